//! `tenantry profile --device …`: measures a card.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use tenantry_executor::profiler::{Plan, Profiled, Progress, Suite as Thoroughness, profile};
use tenantry_profiles::{Card, DType, Tables};
use tenantry_reports::manifest::quoted;

use super::needs::{Needs, needs};
use crate::device::Device;
use tenantry::cli::{OutputArgs, ProfileArgs, Suite};
use tenantry::commands::profile::show;
use tenantry::failure::Failure;
use tenantry::output::{check_beside, check_folder, next, print, say, today};
use tenantry::{interrupt, progress};

/// Of weights and of the order of measurement.
const SEED: u64 = 7;

pub fn run(args: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    let device_name = args.device.as_deref().expect("clap asks for it");
    let device = Device::find(device_name)?;
    let mut needs = needs(args)?;
    if !device.is_cpu() && args.scenarios.is_empty() {
        // Long inputs take a GPU no time: as long as the models' positions allow.
        needs.served.tokens = Some(u32::MAX);
    }
    let out = out_folder(args, device_name)?;
    let name = out.file_name().and_then(|name| name.to_str()).unwrap_or(device_name).to_owned();
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    if args.again && args.suite != Suite::Full {
        let must = "--again: must be with --suite full, whose points held out say what is off";
        return Err(Failure::BadInput(format!("{must}, got a quick suite")));
    }
    // Better to know before than after measuring. What is measured is kept beside the card meanwhile.
    check_folder("--out", &out)?;
    check_beside("--out", &out)?;
    Card::check_place(&out)?;
    let there = keeps(args).then(|| Card::load(&out)).transpose()?;
    let again = match &there {
        Some(there) if args.again => there.tables_beyond_limits(),
        _ => Vec::new(),
    };
    let interrupt = interrupt::flag();
    let suite = match args.suite {
        Suite::Quick => Thoroughness::Quick,
        Suite::Full => Thoroughness::Full,
    };
    let plan = plan(needs, &device, suite)?;
    let plan = Plan {
        name,
        time: args.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes)),
        there: there.as_ref().map_or_else(Tables::default, |there| there.tables.without(&again)),
        has_limits: there.as_ref().is_some_and(|there| there.limits_of(plan.dtype).is_some()),
        partial: Some(partial.clone()),
        command: command(args, device_name),
        ..plan
    };
    if let Some(there) = &there {
        there.check_same_device(&plan.description).map_err(Failure::bad_input)?;
        there.check_same_models(&plan.models).map_err(Failure::bad_input)?;
    }
    let models: Vec<&str> = plan.models.iter().map(|model| model.name.as_str()).collect();
    say(
        output,
        &format!(
            "measuring {} on {device_name} for some {} s, longer where three visits of each point take longer",
            models.join(", "),
            plan.expected().as_secs()
        ),
    );
    if partial.exists() {
        say(output, &format!("going on with {}", partial.display()));
    }
    let bar = progress::timed("measuring", output.quiet);
    let mut show_progress = |at: Progress| {
        bar.set_length((bar.elapsed() + at.time_left).as_millis() as u64);
        bar.set_position(bar.elapsed().as_millis() as u64);
        let Progress {
            points_done, points, ..
        } = at;
        let left = at.time_left.as_secs();
        bar.set_message(format!("{points_done} of {points} points done, some {left} s left"));
    };
    let Profiled {
        card,
        interrupted,
        kept_short,
    } = profile(&plan, &mut show_progress, &interrupt).map_err(|error| match error {
        error if error.is_bad_input() => Failure::bad_input(error),
        error => Failure::running(error),
    })?;
    bar.finish_and_clear();
    if interrupted {
        // A card that lacks tables must not take the place of one that has them.
        return Err(Failure::Interrupted(format!(
            "nothing was written to {}; {} keeps what was measured, and the same command goes on with it",
            out.display(),
            partial.display()
        )));
    }
    let card = match there {
        Some(mut there) => {
            there.add_measured(card, &again).map_err(Failure::bad_input)?;
            there
        }
        None => card,
    };
    card.save(&out).map_err(|error| {
        let partial = partial.display();
        Failure::Running(format!(
            "{error} ({partial} keeps what was measured, and the same command goes on with it)"
        ))
    })?;
    std::fs::remove_file(&partial)
        .map_err(|error| Failure::Running(format!("{}: must be removable: {error}", partial.display())))?;
    let tables = tenantry_profiles::describe(&card);
    print(
        output,
        &json!({ "card": card.name, "folder": out, "digest": card.digest() }),
        || show::text(&card, &tables),
    )?;
    if let Some(tables) = kept_short {
        say(
            output,
            &format!("kept as they are, though not as far as is asked for (another --out has them measured): {tables}"),
        );
    }
    say(output, &format!("profile: {}", out.display()));
    let out = quoted(&out.display().to_string());
    next(output, &format!("tenantry profile show {out}"));
    Ok(())
}

/// Whether the card that is there stays, with more or better tables.
fn keeps(args: &ProfileArgs) -> bool {
    args.add || args.again
}

/// Where the card goes: what is kept meanwhile lies beside it.
fn out_folder(args: &ProfileArgs, device: &str) -> Result<PathBuf, Failure> {
    let default_out = || PathBuf::from("profiles/cards").join(device.replace(':', ""));
    // Without a slash at its end, and by its name where it is the one that the user is in.
    let out: PathBuf = args.out.clone().unwrap_or_else(default_out).components().collect();
    let out = match out.file_name() {
        Some(_) => out,
        None => out
            .canonicalize()
            .map_err(|error| Failure::BadInput(format!("--out: {}: {error}", out.display())))?,
    };
    if args.out.is_none() && !keeps(args) && out.join("card.yaml").exists() {
        // A quick one would take the place of a shipped one, with fewer tables.
        let there = out.display();
        return Err(Failure::BadInput(format!(
            "--out: must be given where {there} is there already: another folder, such as out/here, for --profile \
             out/here; {there} itself to take its place; or --add, to keep it and add what it lacks; got nothing"
        )));
    }
    Ok(out)
}

/// Of what is needed, on a device.
fn plan(needs: Needs, device: &Device, suite: Thoroughness) -> Result<Plan, Failure> {
    let dtype = needs.dtype.unwrap_or(DType::F32);
    if device.is_cpu() && dtype != DType::F32 {
        let message = format!("--dtype, or a scenario's dtype: must be f32 to be measured on this device, got {dtype}");
        return Err(Failure::BadInput(message));
    }
    Ok(Plan {
        name: "card".into(),
        device: device.torch(),
        description: device.description()?,
        models: needs.models,
        dtype,
        classes: needs.classes,
        ops: needs.ops,
        served: needs.served,
        texts: needs.texts,
        suite,
        there: Tables::default(),
        has_limits: false,
        time: None,
        seed: SEED,
        scratch: std::env::temp_dir(),
        partial: None,
        command: String::new(),
        date: today(),
    })
}

/// The command that measures this card again, without the paths of this machine.
fn command(args: &ProfileArgs, device: &str) -> String {
    let suite = match args.suite {
        Suite::Quick => "quick",
        Suite::Full => "full",
    };
    let mut command = format!("tenantry profile --device {device} --suite {suite}");
    if let Some(minutes) = args.minutes {
        command += &format!(" --minutes {minutes}");
    }
    for scenario in &args.scenarios {
        command += &format!(" --for {}", quoted(scenario));
    }
    // Clap takes neither of these beside a scenario.
    if !args.models.is_empty() {
        command += &format!(" --models {}", args.models.join(","));
    }
    if args.scenarios.is_empty() && args.dtype != DType::F32 {
        command += &format!(" --dtype {}", args.dtype);
    }
    for (given, flag) in [(args.add, " --add"), (args.again, " --again")] {
        if given {
            command += flag;
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tenantry_scenarios::RunSpec;
    use tenantry_sim::{Jitter, Prices};

    use super::super::needs::needs_of;
    use super::super::needs::tests::runs;
    use super::*;

    /// A card measured for these runs, too briefly to be good for more than its tables.
    fn card_for(runs: &[RunSpec]) -> tenantry_profiles::Card {
        let needs = needs_of(runs).unwrap_or_else(|error| panic!("{error}"));
        let plan = plan(needs, &Device::find("cpu").unwrap(), Thoroughness::Quick).unwrap();
        let (interrupted, mut visits) = (AtomicBool::new(false), 0);
        let mut count = |at: Progress| {
            visits += 1;
            interrupted.store(visits >= 3 * at.points, Ordering::Relaxed);
        };
        profile(&plan, &mut count, &interrupted).unwrap().card
    }

    /// What is measured for a scenario prices all its systems, and what no system does is not measured. With the
    /// smallest of models.
    fn a_scenario_gets_what_it_needs_and_no_more(name: &str, set: &[&str]) {
        let runs = runs(name, set);
        let card = card_for(&runs);
        for run in &runs {
            let prices = Prices::of_system(&card, &run.system, Jitter::None);
            assert!(prices.is_ok(), "{name}, {}: {}", run.system.name, prices.unwrap_err());
        }
        let has = &card.tables;
        assert_eq!(!has.pet.is_empty(), name.starts_with("pets"), "{name}");
        assert_eq!(!has.plan.is_empty(), name.starts_with("pets"), "{name}");
        assert_eq!(!has.attended_layer.is_empty(), name.starts_with("tabi"), "{name}");
        assert_eq!(!has.static_model.is_empty(), name.starts_with("arlo"), "{name}");
        assert_eq!(!has.decoder_step.is_empty(), name.starts_with("punica"), "{name}");
        assert!(has.plot_lookup.is_empty(), "{name}");
    }

    #[test]
    fn encoders_get_what_they_need() {
        a_scenario_gets_what_it_needs_and_no_more("quickstart", &[]);
    }

    #[test]
    fn decoders_get_what_they_need() {
        a_scenario_gets_what_it_needs_and_no_more("punica/tiny-two-workers", &[]);
    }

    #[test]
    fn runtimes_get_what_they_need() {
        let set = [
            "models.backbone=tiny",
            "workload.lengths.input.twitter.span=119",
            "systems[0].runtimes={max_length: 128, lengths: {of: [64, 128]}, allocate: even}",
            "systems[1].runtimes={max_length: 128}",
        ];
        a_scenario_gets_what_it_needs_and_no_more("arlo/tweets-on-two-cores", &set);
    }

    #[test]
    fn cascades_get_what_they_need() {
        a_scenario_gets_what_it_needs_and_no_more("tabi/cpu", &["models.large=tiny"]);
    }

    #[test]
    fn tasks_get_what_they_need() {
        a_scenario_gets_what_it_needs_and_no_more("pets/mixed-64", &["models.backbone=tiny"]);
    }

    #[test]
    fn number_formats_that_a_device_does_not_measure_are_refused() {
        let refused = |dtype| {
            let needs = Needs {
                dtype: Some(dtype),
                ..Needs::default()
            };
            plan(needs, &Device::find("cpu").unwrap(), Thoroughness::Quick).err()
        };
        assert!(refused(DType::F32).is_none());
        let message = refused(DType::Bf16).unwrap().to_string();
        assert!(
            message.contains("must be f32 to be measured on this device, got bf16"),
            "{message}"
        );
        let mut runs = runs("quickstart", &[]);
        let mut other = runs[0].clone();
        other.system.pool.dtype = DType::F16;
        runs.push(other);
        let message = needs_of(&runs).err().unwrap().to_string();
        assert!(message.contains("must be f32 in all pools"), "{message}");
    }
}
