//! `tenantry validate`: the same requests on both machines, and how far they differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_executor::profiler::{Pace, gauge};
use tenantry_profiles::{Card, DType, ModelShape};
use tenantry_reports::manifest::quoted;
use tenantry_reports::summary::VIRTUAL;
use tenantry_reports::validation::TOKENS_PER_REQUEST;
use tenantry_reports::{Comparison, Run, Validation, Verdict, human, terminal};

use super::profile::models_of;
use crate::caveats::{another_rate_caveat, extrapolation_caveat, interrupted_caveat, of_runs, recording_caveats};
use crate::cli::{OutputArgs, ValidateArgs};
use crate::device::Device;
use crate::failure::Failure;
use crate::keep::{Keep, Kept};
use crate::output::{Started, next, style};
use crate::runs::{Loaded, Outcome, SimulatedRun, labels, simulate};
use crate::{interrupt, progress};

pub fn run(args: &ValidateArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let device = Device::find(&args.device)?;
    let mut loaded = Loaded::load(&args.scenario, args.profile.as_deref())?;
    loaded.check_executable()?;
    let keep = Keep::new(&args.keep, None, &args.out, &loaded.runs)?;
    let interrupt = interrupt::flag();
    let repeats = args.repeats.get();
    let total = loaded.runs.len() as u64 * u64::from(1 + repeats);
    let bar = progress::bar(total, "validating", output.quiet);
    let mut caveats = loaded.card_caveats();
    // As they are before a gauge sets their pace.
    let cards: Vec<Card> = loaded.all_cards().into_iter().cloned().collect();
    let mut gauging = match args.gauge {
        true => Some(Gauging::of(&loaded)?),
        false => None,
    };
    let simulate_all = |loaded: &Loaded, interrupt: &Arc<AtomicBool>| {
        let mut simulated: Vec<SimulatedRun> = Vec::new();
        for (index, spec) in loaded.runs.iter().enumerate() {
            let watch = keep.watch(index, spec, &labels(spec, VIRTUAL, spec.repeat))?;
            let Some(run) = simulate(spec, loaded.card(spec), spec.repeat, interrupt, watch)? else {
                return Ok((simulated, true));
            };
            bar.inc(1);
            let interrupted = run.interrupted;
            simulated.push(run);
            if interrupted {
                return Ok((simulated, true));
            }
        }
        Ok::<_, Failure>((simulated, false))
    };
    // How fast the machine is meanwhile is known only afterwards.
    let (mut simulated, mut interrupted) = match gauging {
        None => simulate_all(&loaded, &interrupt)?,
        Some(_) => (Vec::new(), false),
    };
    // Where a run failed; those before it are whole.
    let mut failed: Option<Failure> = None;
    let (mut executed, mut kept_executed): (Vec<Run>, Vec<Kept>) = (Vec::new(), Vec::new());
    let mut another_rate = Vec::new();
    // Round by round, so that a machine that drifts does not favour the system that came first.
    'rounds: for round in 0..repeats {
        if let Some(gauging) = &mut gauging {
            gauging.measure(&loaded, &device, &interrupt)?;
        }
        for spec in &loaded.runs {
            if interrupted {
                break 'rounds;
            }
            let repeat = spec.repeat * repeats + round;
            let index = loaded.runs.len() + executed.len();
            let watch = keep.watch(index, spec, &labels(spec, device.name(), repeat))?;
            let run = match device.execute(spec, loaded.card(spec), repeat, &interrupt, &bar, watch) {
                // While a table was built; the runs before it are whole.
                Err(Failure::Interrupted(_)) if !simulated.is_empty() => {
                    interrupted = true;
                    break 'rounds;
                }
                Err(why) if !executed.is_empty() => {
                    failed = Some(why);
                    break 'rounds;
                }
                run => run?,
            };
            kept_executed.extend(run.kept);
            bar.inc(1);
            caveats.extend(run.caveats);
            interrupted = run.interrupted;
            another_rate.extend(run.another_rate);
            executed.push(run.run);
        }
    }
    if let Some(gauging) = &mut gauging {
        if failed.is_none() {
            gauging.measure(&loaded, &device, &interrupt)?;
        }
        if !executed.is_empty() {
            caveats.extend(gauging.price(&mut loaded));
        }
        // What was executed until the user stopped it is worth nothing without these; who asks again ends the process.
        let own = match interrupt.load(Ordering::Relaxed) {
            true => Arc::default(),
            false => Arc::clone(&interrupt),
        };
        interrupted |= interrupt.load(Ordering::Relaxed);
        let stopped;
        (simulated, stopped) = simulate_all(&loaded, &own)?;
        interrupted |= stopped;
    }
    bar.finish_and_clear();
    let kept_simulated = simulated.iter_mut().filter_map(|run| run.kept.take());
    caveats.extend(keep.write(kept_simulated.chain(kept_executed).collect())?);
    let runs: Vec<Run> = { simulated.iter().map(|run| &run.run) }
        .chain(&executed)
        .cloned()
        .collect();
    let is_stopped = interrupted || failed.is_some();
    if is_stopped {
        let asked = loaded.runs.len() * repeats as usize;
        caveats.push(interrupted_caveat(asked, &loaded.runs, &executed));
    }
    caveats.splice(0..0, loaded.device_caveats(device.is_cpu()));
    caveats.extend(loaded.table_caveats());
    caveats.extend(loaded.machine_caveats());
    caveats.extend(extrapolation_caveat(simulated.iter().flat_map(|run| &run.extrapolated)));
    caveats.extend(recording_caveats(&loaded.runs)?);
    caveats.extend(another_rate_caveat(another_rate, executed.len()));
    caveats.extend(of_runs(&runs));

    let validation = match is_stopped {
        true => Validation::of_stopped(&loaded.scenario.name, loaded.limits(), &runs),
        false => Validation::new(&loaded.scenario.name, loaded.limits(), &runs),
    };
    caveats.extend(drift_caveats(&validation, gauging.is_some()));
    caveats.sort();
    caveats.dedup();
    let events = simulated.iter().map(|run| run.events).sum();
    let manifest = started.manifest(&cards.iter().collect::<Vec<_>>(), Some(device.name()), events, caveats);
    let outcome = Outcome {
        loaded: &loaded,
        folder: &args.out,
        runs: &runs,
        validation: Some(&validation),
        manifest: &manifest,
        value: &validation,
    };
    outcome.publish(output, || terminal::validation(&validation, style()))?;
    let until_then = format!("what was run until then is in {}", args.out.display());
    if let Some(why) = failed {
        return Err(why.with(until_then));
    }
    if interrupted {
        return Err(Failure::Interrupted(until_then));
    }
    let words = args.scenario.words_on(args.profile.as_deref());
    // Neither the profile nor the machine's pace explains these.
    if let Some(failures) = validation.failures() {
        let which = format!(
            "tenantry validate {words} --device {} --requests (which requests failed? requests.parquet tells)",
            device.name()
        );
        next(output, &which);
        return Err(Failure::Running(failures));
    }
    let again = match args.gauge {
        false => format!(
            "tenantry validate {words} --device {} --gauge (is it the machine that has changed?)",
            device.name()
        ),
        true => format!(
            "tenantry profile --device {} --for {} --out out/card (measure anew), then validate with --profile out/card",
            device.name(),
            quoted(&args.scenario.scenario)
        ),
    };
    match (validation.verdict, loaded.scenario.slo) {
        (Some(Verdict::Outside), _) if validation.is_measured() => next(output, &again),
        (_, Some(_)) if !loaded.scenario.has_sweep() => {
            next(
                output,
                &format!("tenantry plan {words} (how many cards keep the target?)"),
            );
        }
        _ => {}
    }
    match validation.verdict {
        Some(Verdict::Outside) if !validation.is_measured() => Err(Failure::LimitNotMet(
            "not all that the scenario's `validate:` limits was measured on both machines".into(),
        )),
        Some(Verdict::Outside) => Err(Failure::LimitNotMet(
            "simulated and executed figures differ by more than the scenario's `validate:` allows".into(),
        )),
        Some(Verdict::Within) | None => Ok(()),
    }
}

/// How fast the machine is, measured again and again while requests are executed.
struct Gauging {
    models: Vec<ModelShape>,
    dtype: DType,
    /// By card, as the runs call it.
    paces: BTreeMap<String, Vec<Pace>>,
}

impl Gauging {
    fn of(loaded: &Loaded) -> Result<Gauging, Failure> {
        let (models, dtype) = models_of(&loaded.runs)?;
        Ok(Gauging {
            models,
            dtype,
            paces: BTreeMap::new(),
        })
    }

    fn measure(&mut self, loaded: &Loaded, device: &Device, interrupt: &Arc<AtomicBool>) -> Result<(), Failure> {
        for (name, card) in loaded.cards_by_name() {
            let seed = loaded.scenario.seed;
            let pace =
                gauge(card, &self.models, self.dtype, device.torch(), seed, interrupt).map_err(Failure::running)?;
            self.paces.entry(name.clone()).or_default().extend(pace);
        }
        Ok(())
    }

    /// Prices ops by what they took meanwhile, in the mean, and says so.
    fn price(&self, loaded: &mut Loaded) -> Vec<String> {
        let mut sentences = Vec::new();
        for (name, paces) in &self.paces {
            let Some(first) = paces.first() else {
                sentences.push(format!(
                    "Card {name} has no points of these models' layers to gauge the machine by."
                ));
                continue;
            };
            let mean = paces.iter().map(|pace| pace.ratio).sum::<f64>() / paces.len() as f64;
            let each: Vec<String> = paces.iter().map(|pace| format!("{:.3}", pace.ratio)).collect();
            let card = loaded.at_pace(name, mean);
            sentences.push(format!(
                "Ops are priced at {mean:.3} times what card {card} says: that is what {} of its points took each time that they were measured, before, \
                 between and after the executions ({}).",
                first.points,
                each.join(", ")
            ));
        }
        sentences
    }
}

/// A sentence on each system whose batches computed much faster or slower than their card says: then it is the profile that is not this
/// machine's any more, and no policy. Or, where the machine was `gauged`, what is left beside that.
fn drift_caveats(validation: &Validation, gauged: bool) -> Vec<String> {
    const DRIFT: f64 = 0.1;
    let drifted = validation.comparisons.iter().filter_map(|comparison| {
        let compute = comparison.stages.iter().find(|stage| stage.stage == "compute")?;
        let drift = compute.executed_ms / compute.simulated_ms - 1.0;
        (drift.abs() > DRIFT).then(|| {
            let why = match (other_work(comparison), gauged) {
                (Some(other), _) => format!("{other}, so that this says little of the machine's pace"),
                (None, false) => {
                    "the machine has drifted since it was measured, or was busy; `--gauge` tells by how much, and `tenantry profile` \
                     measures it again"
                        .to_owned()
                }
                (None, true) => "that is beside the machine's pace, which was gauged".to_owned(),
            };
            format!(
                "{}: a request's batch computed {:.1} ms and its profile says {:.1} ms, {:+.0} %: {why}.",
                comparison.system,
                compute.executed_ms,
                compute.simulated_ms,
                drift * 100.0
            )
        })
    });
    drifted.collect()
}

/// What a request's batch had to compute, where it was not what was simulated: then times are not of the same work.
fn other_work(comparison: &Comparison) -> Option<String> {
    const OTHER_PERCENT: f64 = 5.0;
    let differs = |name: &str| {
        let figure = comparison.figures.iter().find(|figure| figure.figure == name)?;
        let is_other = figure.error_percent.is_some_and(|error| error.abs() > OTHER_PERCENT);
        Some([figure.executed?.mean, figure.simulated?.mean].map(human::number)).filter(|_| is_other)
    };
    if let Some([executed, simulated]) = differs(TOKENS_PER_REQUEST) {
        return Some(format!(
            "requests were given {executed} tokens, and {simulated} when simulated (a sequence that may end by a token ends by the model's when executed, \
             and by `chance` when simulated)"
        ));
    }
    let [executed, simulated] = differs("batch_size_mean")?;
    Some(format!(
        "batches had {executed} requests, and {simulated} when simulated"
    ))
}

#[cfg(test)]
mod tests {
    use tenantry_reports::{FigureError, Spread, StageError};

    use super::*;

    /// A system whose batches computed so long, and should have by the profile.
    fn computed(system: &str, executed_ms: f64, simulated_ms: f64) -> Comparison {
        let stage = |stage, simulated_ms: f64, executed_ms: f64| StageError {
            stage,
            simulated_ms,
            executed_ms,
            difference_ms: simulated_ms - executed_ms,
            points_of_mean_error: 0.0,
            share_of_difference: None,
        };
        Comparison {
            system: system.into(),
            parameters: BTreeMap::new(),
            device: Some("cpu".into()),
            simulated_repeats: 1,
            executed_repeats: 1,
            verdict: None,
            figures: Vec::new(),
            // A queue that is far off is no drift.
            stages: vec![stage("queue", 1.0, 9.0), stage("compute", simulated_ms, executed_ms)],
            lanes: Vec::new(),
        }
    }

    #[test]
    fn a_machine_that_computes_otherwise_than_its_profile_says_is_told() {
        let comparisons = vec![
            computed("steady", 10.9, 10.0),
            computed("slower", 11.5, 10.0),
            computed("faster", 8.5, 10.0),
        ];
        let validation = Validation {
            schema: 1,
            scenario: "drift".into(),
            stopped: false,
            verdict: None,
            comparisons,
        };
        let told = drift_caveats(&validation, false);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("slower: a request's batch computed 11.5 ms and its profile says 10.0 ms, +15 %"));
        assert!(told[0].contains("`--gauge` tells by how much"), "{}", told[0]);
        // Other batches say nothing of the machine.
        let mut validation = validation;
        let spread = |mean| Spread {
            mean,
            min: mean,
            max: mean,
        };
        validation.comparisons[1].figures.push(FigureError {
            figure: "batch_size_mean".into(),
            simulated: Some(spread(4.0)),
            executed: Some(spread(2.0)),
            error_percent: Some(100.0),
            limit_percent: None,
            verdict: None,
        });
        let told = drift_caveats(&validation, false);
        assert!(
            told[0].contains("batches had 2.00 requests, and 4.00 when simulated") && !told[0].contains("drifted"),
            "{}",
            told[0]
        );
        assert!(
            told[1].starts_with("faster") && told[1].contains("-15 %"),
            "{}",
            told[1]
        );
        validation.comparisons[1].figures.clear();
        let gauged = drift_caveats(&validation, true);
        assert!(
            gauged.iter().all(|caveat| caveat.contains("beside the machine's pace")),
            "{gauged:?}"
        );
    }
}
