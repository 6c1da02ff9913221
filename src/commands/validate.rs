//! `tenantry validate`: the same requests on both machines, and how far they differ.

use tenantry_reports::summary::VIRTUAL;
use tenantry_reports::{Run, Validation, Verdict, terminal};

use crate::cli::{OutputArgs, ValidateArgs};
use crate::device::Device;
use crate::failure::Failure;
use crate::keep::Keep;
use crate::output::{Started, next, quoted, style};
use crate::runs::{Loaded, Outcome, SimulatedRun, extrapolation_caveat, labels, simulate};
use crate::{interrupt, progress};

pub fn run(args: &ValidateArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let device = Device::find(&args.device)?;
    let loaded = Loaded::load(&args.scenario, args.profile.as_deref())?;
    let keep = Keep::new(&args.keep, None, &args.out, &loaded.runs)?;
    let mut kept = Vec::new();
    let interrupt = interrupt::flag();
    let repeats = args.repeats.get();
    let total = loaded.runs.len() as u64 * u64::from(1 + repeats);
    let bar = progress::bar(total, "validating", output.quiet);
    let mut simulated: Vec<SimulatedRun> = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut caveats = loaded.card_caveats();
    let mut interrupted = false;
    for spec in &loaded.runs {
        let watch = keep.watch(runs.len(), spec, &labels(spec, VIRTUAL, spec.repeat))?;
        let Some(mut run) = simulate(spec, loaded.card(spec), spec.repeat, &interrupt, watch)? else {
            interrupted = true;
            break;
        };
        bar.inc(1);
        kept.extend(run.kept.take());
        runs.push(run.run.clone());
        interrupted = run.interrupted;
        simulated.push(run);
    }
    // Round by round, so that a machine that drifts does not favour the system that came first.
    'rounds: for round in 0..repeats {
        for spec in &loaded.runs {
            if interrupted {
                break 'rounds;
            }
            let repeat = spec.repeat * repeats + round;
            let watch = keep.watch(runs.len(), spec, &labels(spec, device.name(), repeat))?;
            let executed = device.execute(spec, loaded.card(spec), repeat, &interrupt, watch)?;
            kept.extend(executed.kept);
            bar.inc(1);
            caveats.extend(executed.caveats);
            interrupted = executed.interrupted;
            runs.push(executed.run);
        }
    }
    bar.finish_and_clear();
    keep.write(kept)?;
    caveats.extend(loaded.table_caveats());
    caveats.extend(loaded.machine_caveats());
    caveats.extend(extrapolation_caveat(simulated.iter().flat_map(|run| &run.extrapolated)));
    caveats.sort();
    caveats.dedup();

    let validation = Validation::new(&loaded.scenario.name, loaded.limits(), &runs);
    caveats.extend(drift_caveats(&validation));
    let events = simulated.iter().map(|run| run.events).sum();
    let manifest = started.manifest(loaded.first_card(), Some(device.name()), events, caveats);
    let outcome = Outcome {
        loaded: &loaded,
        folder: &args.out,
        runs: &runs,
        validation: Some(&validation),
        manifest: &manifest,
        value: &validation,
    };
    outcome.publish(output, || terminal::validation(&validation, style()))?;
    if interrupted {
        return Err(Failure::Interrupted(format!(
            "what was run until then is in {}",
            args.out.display()
        )));
    }
    let words = args.scenario.words_on(args.profile.as_deref());
    let again = format!(
        "tenantry profile --device {} --for {} --out out/card (measure anew), then validate with --profile out/card",
        device.name(),
        quoted(&args.scenario.scenario)
    );
    match (validation.verdict, loaded.scenario.slo) {
        (Some(Verdict::Outside), _) => next(output, &again),
        (_, Some(_)) if !loaded.scenario.has_sweep() => {
            next(
                output,
                &format!("tenantry plan {words} (how many cards keep the target?)"),
            );
        }
        _ => {}
    }
    match validation.verdict {
        Some(Verdict::Outside) => Err(Failure::LimitNotMet(
            "simulated and executed figures differ by more than the scenario's `validate:` allows".into(),
        )),
        Some(Verdict::Within) | None => Ok(()),
    }
}

/// A sentence on each system whose batches computed much faster or slower than their card says: then it is the profile that is not this
/// machine's any more, and no policy.
fn drift_caveats(validation: &Validation) -> Vec<String> {
    const DRIFT: f64 = 0.1;
    let drifted = validation.comparisons.iter().filter_map(|comparison| {
        let compute = comparison.stages.iter().find(|stage| stage.stage == "compute")?;
        let drift = compute.executed_ms / compute.simulated_ms - 1.0;
        (drift.abs() > DRIFT).then(|| {
            format!(
                "{}: a request's batch computed {:.1} ms and its profile says {:.1} ms, {:+.0} %: the machine has drifted since it was \
                 measured, or was busy; `tenantry profile` measures it again.",
                comparison.system,
                compute.executed_ms,
                compute.simulated_ms,
                drift * 100.0
            )
        })
    });
    drifted.collect()
}
