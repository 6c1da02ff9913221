//! `tenantry simulate`: all runs of a scenario on the virtual machine, side by side.

use rayon::prelude::*;
use tenantry_core::command::RejectReason;
use tenantry_core::in_time::Slo;
use tenantry_profiles::DeviceKind;
use tenantry_reports::Run;
use tenantry_reports::summary::VIRTUAL;

use crate::caveats::{another_rate_caveat, extrapolation_caveat, interrupted_caveat, of_runs, once, recording_caveats};
use crate::cli::{OutputArgs, SimulateArgs};
use crate::failure::Failure;
use crate::keep::{Keep, More};
use crate::output::{Started, next};
use crate::runs::{Loaded, Place, SimulatedRun, labels, publish, simulate};
use crate::{interrupt, progress};

pub fn run(args: &SimulateArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let loaded = Loaded::load(&args.scenario, args.profile.as_deref())?;
    loaded.check_priced()?;
    let more = More {
        record: args.record.as_deref(),
        answers: false,
    };
    let keep = Keep::new(&args.keep, more, &args.out, &loaded)?;
    let interrupt = interrupt::flag();
    let bar = progress::bar(loaded.runs.len() as u64, "simulating", output.quiet);
    // More than there are runs would have nothing to do.
    let jobs = args.jobs.map_or(0, |jobs| jobs.get().min(loaded.runs.len().max(1)));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build().map_err(Failure::running)?;
    // Parallelism is across runs, and the results keep the order of the runs: their number does not change a byte.
    let results: Vec<Result<Option<SimulatedRun>, Failure>> = pool.install(|| {
        let one = |(index, spec)| {
            let watch = keep.watch(index, spec, &labels(spec, VIRTUAL, spec.repeat))?;
            let result = simulate(spec, loaded.card(spec), &interrupt, watch);
            bar.inc(1);
            result
        };
        loaded.runs.par_iter().enumerate().map(one).collect()
    });
    bar.finish_and_clear();
    let mut finished: Vec<SimulatedRun> =
        results.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let interrupted = finished.len() < loaded.runs.len() || finished.iter().any(|run| run.interrupted);
    let place = Place::of(&args.out, interrupted, finished.iter().any(|run| !run.interrupted))?;
    let Some(folder) = place.folder() else {
        return Err(Failure::Interrupted(place.until_then("simulated")));
    };

    let mut caveats = loaded.card_caveats();
    caveats.extend(loaded.table_caveats());
    caveats.extend(loaded.machine_caveats());
    caveats.extend(loaded.refused_tasks());
    caveats.extend(extrapolation_caveat(finished.iter().flat_map(|run| &run.extrapolated)));
    caveats.extend(keep.write(finished.iter_mut().filter_map(|run| run.kept.take()).collect(), folder)?);
    caveats.extend(once(finished.iter().flat_map(|run| &run.caveats)));
    let another_rate = finished.iter().filter_map(|run| run.another_rate);
    caveats.extend(another_rate_caveat(another_rate, finished.len()));
    let events = finished.iter().map(|run| run.events).sum();
    let runs: Vec<Run> = finished.into_iter().map(|run| run.run).collect();
    if interrupted {
        caveats.push(interrupted_caveat(loaded.runs.len(), &loaded.runs, &runs));
    }
    caveats.extend(recording_caveats(&loaded.runs));
    caveats.extend(of_runs(&runs));
    let manifest = started.manifest(&loaded.all_cards(), None, events, caveats);
    publish(&loaded, folder, &runs, &manifest, output)?;
    if interrupted {
        return Err(Failure::Interrupted(place.until_then("simulated")));
    }
    if !runs.iter().all(|run| is_too_long(loaded.scenario.slo, run)) {
        next(output, &worth_trying(args, &loaded, &runs));
    }
    Ok(())
}

/// Whether so many requests are too long for the model that the target is missed with any number of cards.
fn is_too_long(slo: Option<Slo>, run: &Run) -> bool {
    let too_long = run.summary.rejected_by.get(RejectReason::TooLong.name());
    let (too_long, offered) = (too_long.copied().unwrap_or(0), run.summary.requests.offered);
    slo.is_some_and(|slo| too_long as f64 > (1.0 - slo.quantile) * offered as f64)
}

/// Whether requests came after the warm-up.
fn is_judged(run: &Run) -> bool {
    run.summary.slo.as_ref().is_some_and(|slo| slo.met.is_some())
}

/// Where there is a target, how many cards keep it; else whether the machine agrees.
fn worth_trying(args: &SimulateArgs, loaded: &Loaded, runs: &[Run]) -> String {
    let words = args.scenario.words_on(args.profile.as_deref());
    let scenario = &loaded.scenario;
    if scenario.slo.is_none() {
        return match loaded.cards().all(|card| card.device.kind == DeviceKind::Cpu) {
            true => format!("tenantry validate {words} --device cpu (does a real run agree?)"),
            false => format!(
                "tenantry validate {words} --device cuda:0 (where there is such a card: does a real run agree?)"
            ),
        };
    }
    if !runs.iter().any(is_judged) {
        return format!(
            "tenantry check {words} (no request counts: when does it stop, how long is its warm-up, does a batch ever \
             fill?)"
        );
    }
    let missed = |run: &Run| run.summary.slo.as_ref().is_some_and(|slo| slo.met == Some(false));
    let why = match (&scenario.plan, runs.iter().any(missed)) {
        (Some(_), _) => "its section plan asks for the best",
        (None, true) => "how many cards keep the target, and with which system?",
        (None, false) => "would fewer cards do, and how sure is that?",
    };
    format!("tenantry plan {words} ({why})")
}
