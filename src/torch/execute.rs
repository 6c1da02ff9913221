//! `tenantry execute`: all runs of a scenario for real, one after the other.

use tenantry_core::command::FailureReason;
use tenantry_reports::validation::UNANSWERED;
use tenantry_reports::{Run, group, human};

use crate::device::Device;
use crate::executable;
use tenantry::caveats::{another_rate_caveat, in_order, interrupted_caveat, of_runs, recording_caveats};
use tenantry::cli::{ExecuteArgs, OutputArgs};
use tenantry::failure::Failure;
use tenantry::keep::{Keep, More};
use tenantry::output::{Started, next};
use tenantry::runs::{Loaded, Place, labels, publish};
use tenantry::{interrupt, progress};

pub fn run(args: &ExecuteArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let device = Device::find(&args.device)?.with_answers(args.answers);
    let loaded = Loaded::load(&args.scenario, None)?;
    executable::check(&loaded, &device)?;
    let more = More {
        record: args.record.as_deref(),
        answers: args.answers,
    };
    let keep = Keep::new(&args.keep, more, &args.out, &loaded)?;
    let mut kept = Vec::new();
    let interrupt = interrupt::flag();
    let bar = progress::bar(loaded.runs.len() as u64, "executing", output.quiet);
    let mut runs: Vec<Run> = Vec::new();
    let mut another_rate = Vec::new();
    let mut caveats = Vec::new();
    // By the user, or by what failed: the runs before are whole.
    let mut stopped = None;
    for (index, spec) in loaded.runs.iter().enumerate() {
        let watch = keep.watch(index, spec, &labels(spec, device.name(), spec.repeat))?;
        let executed = match device.execute(spec, loaded.card(spec), spec.repeat, &interrupt, &bar, watch) {
            Err(why) if !runs.is_empty() => {
                stopped = Some(why);
                break;
            }
            executed => executed?,
        };
        kept.extend(executed.kept);
        bar.inc(1);
        caveats.extend(executed.caveats);
        another_rate.extend(executed.another_rate);
        runs.push(executed.run);
        if executed.interrupted {
            stopped = Some(Failure::Interrupted("the last run is not whole".into()));
            break;
        }
    }
    bar.finish_and_clear();
    let place = Place::of(
        &args.out,
        stopped.is_some(),
        runs.iter().any(|run| !run.summary.interrupted),
    )?;
    let until_then = place.until_then("executed");
    let Some(folder) = place.folder() else {
        return stopped.map_or(Ok(()), |why| Err(why.with(until_then)));
    };
    caveats.extend(keep.write(kept, folder)?);
    caveats.extend(loaded.machine_caveats());
    caveats.extend(loaded.answer_caveats());
    caveats.extend(recording_caveats(&loaded.runs));
    caveats.extend(another_rate_caveat(another_rate, runs.len()));
    caveats.extend(of_runs(&runs));
    if stopped.is_some() {
        caveats.push(interrupted_caveat(loaded.runs.len(), &loaded.runs, &runs));
    }
    let mut caveats = in_order(caveats);
    // What casts doubt on all of it comes first.
    caveats.splice(0..0, loaded.executed_device_caveats(&device.description()?));
    let manifest = started.manifest(&loaded.all_cards(), Some(device.name()), 0, caveats);
    publish(&loaded, folder, &runs, &manifest, output)?;
    if let Some(why) = stopped {
        return Err(why.with(until_then));
    }
    let failing: Vec<String> = runs.iter().filter_map(failing).collect();
    if !failing.is_empty() {
        return Err(Failure::Running(failing.join("; ")));
    }
    // What its card has no prices for cannot be simulated.
    if (0..loaded.runs.len()).any(|run| loaded.refusal(run).is_some()) {
        return Ok(());
    }
    let (words, device) = (args.scenario.words(), device.name());
    next(
        output,
        &format!("tenantry validate {words} --device {device} (does the simulation agree?)"),
    );
    Ok(())
}

/// Says which run's requests failed, where more did than a validation lets pass: then something is broken. That their
/// tenant was deleted is the workload's wish.
fn failing(run: &Run) -> Option<String> {
    let summary = &run.summary;
    let offered = summary.requests.offered;
    let deleted = summary.failed_by.get(FailureReason::Deleted.name()).copied().unwrap_or(0);
    let failed = summary.requests.failed - deleted;
    (failed as f64 > UNANSWERED * offered as f64).then(|| {
        format!(
            "{}: {} of {} requests failed",
            group::title(&summary.system, &summary.parameters),
            human::count(failed),
            human::count(offered)
        )
    })
}
