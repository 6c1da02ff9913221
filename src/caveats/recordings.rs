//! What recordings have in them that a run has not, or has though nobody wants it.

use tenantry_reports::{Run, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::generate::part_of_recording;
use tenantry_traces::spec::{ArrivalsSpec, PopularitySpec, TraceSpec};

/// A sentence on a recording that is silent for longer than its requests last.
pub(super) fn silence_caveat(spec: &RunSpec, run: &Run) -> Option<String> {
    let ArrivalsSpec::Trace(trace) = &spec.workload.arrivals else {
        return None;
    };
    let silent_s = run.summary.workload?.silent_s?;
    // In the recording's own time.
    let from_s = trace.cut.from.as_secs_f64() + (silent_s * trace.speed).floor();
    Some(format!(
        "the first request comes after {silent_s} s of silence, longer than all requests last, and throughput, busy \
         shares and costs are over that time too: workload.arrivals.trace.from={from_s}s leaves it out."
    ))
}

/// Sentences on recordings some of whose requests got no answer, or ask a decoder for none, or whose tenants are not
/// those that ask, each once. Runs that ended before a line that cannot be read are none the worse for it: that is a
/// sentence too.
pub fn recording_caveats(runs: &[RunSpec]) -> Vec<String> {
    let of = |which: fn(&RunSpec) -> bool| {
        let mut traces: Vec<&TraceSpec> = Vec::new();
        let leaves = runs.iter().filter(|run| which(run)).flat_map(|run| run.workload.arrivals.leaves());
        for leaf in leaves {
            // A sweep replays one many times.
            if let ArrivalsSpec::Trace(trace) = leaf
                && !traces.contains(&trace)
            {
                traces.push(trace);
            }
        }
        traces
    };
    let replayed = of(|_| true);
    let generated = of(|run| run.system.pool.generation.is_some());
    let draws_others = |run: &RunSpec| {
        let drawn = !matches!(
            run.workload.popularity,
            PopularitySpec::OfArrivals | PopularitySpec::Distinct | PopularitySpec::Identical
        );
        // What is superposed with arrivals that name nobody has no tenants of its own.
        drawn && !matches!(run.workload.arrivals, ArrivalsSpec::Superpose(_))
    };
    let with_others = of(draws_others);
    let of_some = match runs.iter().all(draws_others) {
        true => "",
        false => "in some runs ",
    };
    let mut sentences = Vec::new();
    for trace in replayed {
        let (part, unread) = part_of_recording(trace);
        let mut say = |count: u64, what: &str| {
            let (path, count, all) = (trace.path.display(), human::count(count), human::count(part.requests));
            sentences.push(format!("{path}: {count} of {all} requests {what}."));
        };
        if part.unanswered > 0 {
            say(
                part.unanswered,
                "got no answer when they were recorded, and are left out",
            );
        }
        if part.without_output > 0 && generated.contains(&trace) {
            say(
                part.without_output,
                "ask for no token (an output of 0), and are answered as soon as their prompts are computed; leave out \
                 those that failed when they were recorded",
            );
        }
        if part.tenants > 1 && with_others.contains(&trace) {
            sentences.push(format!(
                "{}: {of_some}its {} tenants are not those that ask, which are drawn by tenants.popularity in their \
                 place; `popularity: of-arrivals` keeps them, where nothing varies how many there are.",
                trace.path.display(),
                human::count(part.tenants)
            ));
        }
        if let Some(why) = unread {
            sentences.push(format!(
                "What is known of a recording ends where it cannot be read: {why}."
            ));
        }
    }
    sentences
}
