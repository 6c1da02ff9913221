//! What recordings have in them that a run has not, or has though nobody wants it.

use tenantry_reports::{Run, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::generate::unanswered_of;
use tenantry_traces::spec::{ArrivalsSpec, TraceSpec};

use crate::failure::Failure;

/// A sentence on a recording that is silent for longer than its requests last.
pub(super) fn silence_caveat(spec: &RunSpec, run: &Run) -> Option<String> {
    let ArrivalsSpec::Trace(trace) = &spec.workload.arrivals else {
        return None;
    };
    let silent_s = run.summary.workload?.silent_s?;
    // In the recording's own time.
    let from_s = trace.cut.from.as_secs_f64() + (silent_s * trace.speed).floor();
    Some(format!(
        "the first request comes after {silent_s} s of silence, longer than all requests last, and throughput, busy shares and costs are over that time too: \
         workload.arrivals.trace.from={from_s}s leaves it out."
    ))
}

/// Sentences on recordings some of whose requests got no answer, each once.
///
/// # Errors
/// When a recording cannot be read to its end.
pub fn unanswered_in_recordings(runs: &[RunSpec]) -> Result<Vec<String>, Failure> {
    let mut replayed: Vec<&TraceSpec> = Vec::new();
    for run in runs {
        collect(&run.workload.arrivals, &mut replayed);
    }
    let mut sentences = Vec::new();
    for trace in replayed {
        let (requests, unanswered) = unanswered_of(trace).map_err(Failure::bad_input)?;
        if unanswered > 0 {
            sentences.push(format!(
                "{}: {} of {} requests got no answer when they were recorded, and are left out.",
                trace.path.display(),
                human::count(unanswered),
                human::count(requests)
            ));
        }
    }
    Ok(sentences)
}

fn collect<'a>(arrivals: &'a ArrivalsSpec, replayed: &mut Vec<&'a TraceSpec>) {
    match arrivals {
        // A sweep replays one many times.
        ArrivalsSpec::Trace(trace) if !replayed.contains(&trace) => replayed.push(trace),
        ArrivalsSpec::Scaled { arrivals, .. } => collect(arrivals, replayed),
        ArrivalsSpec::Superpose(parts) => parts.iter().for_each(|part| collect(part, replayed)),
        ArrivalsSpec::Part(part) => collect(&part.arrivals, replayed),
        _ => {}
    }
}
