//! `tenantry profile --device …`: measures a card.

use std::path::PathBuf;

use serde_json::json;
use tenantry_core::spec::TenantState;
use tenantry_executor::ExecutorError;
use tenantry_executor::profiler::{Plan, Profiled, Progress, Suite as Thoroughness, profile};
use tenantry_profiles::{DType, ModelShape, ProfileError};
use tenantry_scenarios::RunSpec;

use super::show;
use crate::cli::{OutputArgs, ProfileArgs, ScenarioArgs, Suite};
use crate::device::Device;
use crate::failure::Failure;
use crate::output::{next, print, say, today};
use crate::runs::scenario;
use crate::{interrupt, progress};

/// What is measured where neither models nor a scenario are given.
const DEFAULT_MODELS: [&str; 2] = ["tiny", "bert-mini"];
const DEFAULT_BOTTLENECKS: [u32; 2] = [16, 64];
const DEFAULT_CLASSES: u32 = 2;
/// Of decoders' LoRA; a full suite takes all of them.
const DEFAULT_RANKS: [u32; 4] = [8, 16, 32, 64];
const QUICK_RANKS: usize = 2;
/// Of weights and of the order of measurement.
const SEED: u64 = 7;

/// What a profile must hold.
struct Needs {
    models: Vec<ModelShape>,
    bottlenecks: Vec<u32>,
    ranks: Vec<u32>,
    classes: Vec<u32>,
}

pub fn run(args: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    let device_name = args.device.as_deref().expect("clap asks for it");
    let device = Device::find(device_name)?;
    if device_name != "cpu" {
        let message = format!("--device: must be cpu, since GPUs are not profiled yet, got {device_name}");
        return Err(Failure::BadInput(message));
    }
    let needs = needs(args)?;
    let default_out = || PathBuf::from("profiles/cards").join(device_name.replace(':', ""));
    let out = args.out.clone().unwrap_or_else(default_out);
    let name = out
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(device_name)
        .to_owned();
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    let plan = Plan {
        name,
        device: device.torch(),
        description: tenantry_executor::describe_cpu().map_err(Failure::running)?,
        models: needs.models,
        dtype: DType::F32,
        bottlenecks: needs.bottlenecks,
        ranks: needs.ranks,
        classes: needs.classes,
        suite: match args.suite {
            Suite::Quick => Thoroughness::Quick,
            Suite::Full => Thoroughness::Full,
        },
        seed: SEED,
        scratch: std::env::temp_dir(),
        partial: Some(partial.clone()),
        command: command(args, device_name),
        date: today(),
    };
    let models = plan
        .models
        .iter()
        .map(|model| model.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let seconds = plan.suite.duration(plan.models.len()).as_secs();
    say(
        output,
        &format!("measuring {models} on {device_name}, at most {seconds} s"),
    );
    let interrupt = interrupt::flag();
    if partial.exists() {
        say(output, &format!("going on with {}", partial.display()));
    }
    let bar = progress::known_end(1, "measuring", output.quiet);
    let mut show_progress = |at: Progress| {
        bar.set_length(at.points as u64);
        bar.set_position(at.points_done as u64);
        bar.set_message(format!("at most {} s left", at.time_left.as_secs()));
    };
    let Profiled { card, interrupted } =
        profile(&plan, &mut show_progress, &interrupt).map_err(|error| match error {
            ExecutorError::Input { .. } => Failure::bad_input(error),
            other => Failure::running(other),
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
    let saved = card.save(&out);
    // What is too noisy for a card would be so again.
    std::fs::remove_file(&partial)
        .map_err(|error| Failure::Running(format!("{}: must be removable: {error}", partial.display())))?;
    saved.map_err(|error| match error {
        ProfileError::Invalid(invalid) => {
            let advice = "the machine was too noisy while it was measured; measure again when it is quiet";
            Failure::Running(format!("{invalid} ({advice})"))
        }
        other => Failure::running(other),
    })?;
    let tables = tenantry_profiles::describe(&card);
    print(
        output,
        &json!({ "card": card.name, "folder": out, "digest": card.digest() }),
        || show::text(&card, &tables),
    )?;
    say(output, &format!("profile: {}", out.display()));
    next(output, &format!("tenantry profile show {}", out.display()));
    Ok(())
}

fn needs(args: &ProfileArgs) -> Result<Needs, Failure> {
    if let Some(path) = &args.scenario {
        let scenario = scenario(&ScenarioArgs {
            scenario: path.clone(),
            set: Vec::new(),
            seed: None,
        })?;
        return needs_of(&scenario.runs());
    }
    let names: Vec<&str> = match args.models.is_empty() {
        true => DEFAULT_MODELS.to_vec(),
        false => args.models.iter().map(String::as_str).collect(),
    };
    let known = ModelShape::builtin_names();
    let model = |name: &&str| {
        ModelShape::builtin(name)
            .ok_or_else(|| Failure::BadInput(format!("--models: must be among {}, got {name}", known.join(", "))))
    };
    Ok(Needs {
        models: names.iter().map(model).collect::<Result<_, _>>()?,
        bottlenecks: DEFAULT_BOTTLENECKS.to_vec(),
        ranks: match args.suite {
            Suite::Quick => DEFAULT_RANKS[..QUICK_RANKS].to_vec(),
            Suite::Full => DEFAULT_RANKS.to_vec(),
        },
        classes: vec![DEFAULT_CLASSES],
    })
}

fn needs_of(runs: &[RunSpec]) -> Result<Needs, Failure> {
    let mut needs = Needs {
        models: Vec::new(),
        bottlenecks: Vec::new(),
        ranks: Vec::new(),
        classes: Vec::new(),
    };
    for pool in runs.iter().map(|run| &run.system.pool) {
        if pool.dtype != DType::F32 {
            let message = format!("dtype: must be f32 to be measured on this device, got {}", pool.dtype);
            return Err(Failure::BadInput(message));
        }
        if !needs.models.contains(&pool.model) {
            needs.models.push(pool.model.clone());
        }
        needs.classes.push(pool.classes);
        if let TenantState::Adapters { bottleneck, .. } = pool.tenant_state {
            needs.bottlenecks.push(bottleneck);
        }
        let lora = pool.generation.as_ref().and_then(|generation| generation.lora);
        needs.ranks.extend(lora.map(|lora| lora.rank));
    }
    for list in [&mut needs.bottlenecks, &mut needs.ranks, &mut needs.classes] {
        list.sort_unstable();
        list.dedup();
    }
    Ok(needs)
}

/// The command that measures this card again, without the paths of this machine.
fn command(args: &ProfileArgs, device: &str) -> String {
    let suite = match args.suite {
        Suite::Quick => "quick",
        Suite::Full => "full",
    };
    let mut command = format!("tenantry profile --device {device} --suite {suite}");
    if let Some(scenario) = &args.scenario {
        command += &format!(" --for {scenario}");
    } else if !args.models.is_empty() {
        command += &format!(" --models {}", args.models.join(","));
    }
    command
}
