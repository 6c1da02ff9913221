//! `tenantry validate`: the same requests on both machines, and how far they differ.

mod both;
mod drift;
mod gauging;

use tenantry_profiles::Card;
use tenantry_reports::manifest::quoted;
use tenantry_reports::{Run, Validation, Verdict, terminal};

use self::both::Both;
use self::drift::drift_caveats;
use crate::device::Device;
use crate::executable;
use tenantry::caveats::{
    another_rate_caveat, extrapolation_caveat, in_order, interrupted_caveat, of_runs, recording_caveats,
    two_tables_caveats,
};
use tenantry::cli::{OutputArgs, ValidateArgs};
use tenantry::failure::Failure;
use tenantry::keep::{Keep, More};
use tenantry::output::{Started, next, style};
use tenantry::runs::{Loaded, Outcome, Place};
use tenantry::{interrupt, progress};

pub fn run(args: &ValidateArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let device = Device::find(&args.device)?;
    let mut loaded = Loaded::load(&args.scenario, args.profile.as_deref())?;
    executable::check(&loaded, &device)?;
    loaded.check_priced()?;
    let keep = Keep::new(&args.keep, More::default(), &args.out, &loaded)?;
    let interrupt = interrupt::flag();
    let repeats = args.repeats.get();
    let total = loaded.runs.len() as u64 * u64::from(1 + repeats);
    let both = Both {
        device: &device,
        keep: &keep,
        bar: progress::bar(total, "validating", output.quiet),
        repeats,
    };
    let mut caveats = loaded.card_caveats();
    // As they are before a gauge sets their pace.
    let cards: Vec<Card> = loaded.all_cards().into_iter().cloned().collect();
    let (mut simulated, mut executed) = match args.gauge {
        false => both.simulate_then_execute(&loaded, &interrupt)?,
        true => both.execute_then_simulate(&mut loaded, &interrupt)?,
    };
    both.bar.finish_and_clear();
    let is_stopped = executed.interrupted || executed.failed.is_some();
    let is_whole = |run: &Run| !run.summary.interrupted;
    let any_whole = simulated.iter().any(|run| is_whole(&run.run)) || executed.runs.iter().any(is_whole);
    let place = Place::of(&args.out, is_stopped, any_whole)?;
    let until_then = place.until_then("run");
    let Some(folder) = place.folder() else {
        return Err(executed.why_stopped(until_then));
    };
    let kept_simulated = simulated.iter_mut().filter_map(|run| run.kept.take());
    let kept = kept_simulated.chain(std::mem::take(&mut executed.kept)).collect();
    caveats.extend(keep.write(kept, folder)?);
    caveats.append(&mut executed.caveats);
    let runs: Vec<Run> = simulated.iter().map(|run| &run.run).chain(&executed.runs).cloned().collect();
    if is_stopped {
        let asked = loaded.runs.len() * repeats as usize;
        caveats.push(interrupted_caveat(asked, &loaded.runs, &executed.runs));
    }
    caveats.extend(loaded.table_caveats());
    caveats.extend(two_tables_caveats(&loaded.runs));
    caveats.extend(loaded.machine_caveats());
    caveats.extend(extrapolation_caveat(simulated.iter().flat_map(|run| &run.extrapolated)));
    caveats.extend(recording_caveats(&loaded.runs));
    let another_rate = std::mem::take(&mut executed.another_rate);
    caveats.extend(another_rate_caveat(another_rate, executed.runs.len()));
    caveats.extend(of_runs(&runs));

    let validation = match is_stopped {
        true => Validation::of_stopped(&loaded.scenario.name, loaded.limits(), &runs),
        false => Validation::new(&loaded.scenario.name, loaded.limits(), &runs),
    };
    let two_devices = loaded.device_caveats(&device.description()?);
    // Of two devices it is no wonder that one computes otherwise than the other.
    if two_devices.is_empty() {
        caveats.extend(drift_caveats(&validation, args.gauge));
    }
    caveats.extend(validation.cancelling());
    let is_cards_device = two_devices.is_empty();
    let mut caveats = in_order(caveats);
    // What casts doubt on all of it comes first.
    caveats.splice(0..0, two_devices);
    let events = simulated.iter().map(|run| run.events).sum();
    let manifest = started.manifest(&cards.iter().collect::<Vec<_>>(), Some(device.name()), events, caveats);
    let outcome = Outcome {
        loaded: &loaded,
        folder,
        runs: &runs,
        validation: Some(&validation),
        manifest: &manifest,
        value: &validation,
    };
    outcome.publish(output, || terminal::validation(&validation, style()))?;
    if is_stopped {
        return Err(executed.why_stopped(until_then));
    }
    conclude(&validation, &loaded, &device, is_cards_device, args, output)
}

/// What to do next, and what the command ends with.
fn conclude(
    validation: &Validation,
    loaded: &Loaded,
    device: &Device,
    is_cards_device: bool,
    args: &ValidateArgs,
    output: &OutputArgs,
) -> Result<(), Failure> {
    let (words, name) = (args.scenario.words_on(args.profile.as_deref()), device.name());
    let repeats = repeats_words(args.repeats.get());
    // Neither the profile nor the machine's pace explains these.
    if let Some(failures) = validation.failures() {
        let which = format!(
            "tenantry validate {words} --device {name}{repeats} --requests (which requests failed? requests.parquet tells)"
        );
        next(output, &which);
        return Err(Failure::Running(failures));
    }
    let profile = |why: &str| {
        format!(
            "tenantry profile --device {name} --for {} --out out/card ({why}), then validate with --profile out/card",
            quoted(&args.scenario.scenario)
        )
    };
    let again = match (args.gauge, is_cards_device) {
        (_, false) => profile("a card of this device"),
        (true, true) => profile("measure anew"),
        (false, true) => {
            format!("tenantry validate {words} --device {name}{repeats} --gauge (is it the machine that has changed?)")
        }
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

/// The words that ask for as many executions of each run again, where it is not one.
fn repeats_words(repeats: u32) -> String {
    match repeats {
        1 => String::new(),
        several => format!(" --repeats {several}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asked_for_several_executions_is_told_to_ask_for_them_again() {
        assert_eq!([1, 5].map(repeats_words), ["", " --repeats 5"]);
    }
}
