//! `tenantry profile --device …`: measures a card.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenantry_core::spec::{EngineSpec, HeadTask, PoolSpec, RouteSpec, StageSpec, TenantState};
use tenantry_executor::ExecutorError;
use tenantry_executor::profiler::{Ops, Plan, Profiled, Progress, Served, ServedRoute, Suite as Thoroughness, profile};
use tenantry_profiles::{Card, Changing, DType, ModelShape, PetKind};
use tenantry_scenarios::RunSpec;
use tenantry_traces::outcome::AnswersSpec;

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
#[derive(Default)]
struct Needs {
    models: Vec<ModelShape>,
    bottlenecks: Vec<u32>,
    ranks: Vec<u32>,
    classes: Vec<u32>,
    /// Absent where nothing needs any.
    dtype: Option<DType>,
    ops: Ops,
    served: Served,
    texts: Vec<ServedRoute>,
}

pub fn run(args: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    let device_name = args.device.as_deref().expect("clap asks for it");
    let device = Device::find(device_name)?;
    let needs = needs(args)?;
    let default_out = || PathBuf::from("profiles/cards").join(device_name.replace(':', ""));
    let out = args.out.clone().unwrap_or_else(default_out);
    let name = out
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(device_name)
        .to_owned();
    let partial = PathBuf::from(format!("{}.partial", out.display()));
    // Better to know before than after measuring.
    let there = args.add.then(|| Card::load(&out)).transpose()?;
    let suite = match args.suite {
        Suite::Quick => Thoroughness::Quick,
        Suite::Full => Thoroughness::Full,
    };
    let plan = Plan {
        name,
        partial: Some(partial.clone()),
        command: command(args, device_name),
        ..plan(needs, &device, suite)?
    };
    let models = plan
        .models
        .iter()
        .map(|model| model.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let seconds = plan.suite.duration(plan.models.len(), plan.device).as_secs();
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
    let remove_partial = || {
        std::fs::remove_file(&partial)
            .map_err(|error| Failure::Running(format!("{}: must be removable: {error}", partial.display())))
    };
    let card = match there {
        Some(mut there) => {
            there.add_measured(card).map_err(Failure::bad_input)?;
            there
        }
        None => card,
    };
    match card.save(&out) {
        Ok(()) => remove_partial()?,
        Err(other) => {
            let kept = format!(
                "{} keeps what was measured, and the same command goes on with it",
                partial.display()
            );
            return Err(Failure::Running(format!("{other} ({kept})")));
        }
    }
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

/// Of what is needed, on a device.
fn plan(needs: Needs, device: &Device, suite: Thoroughness) -> Result<Plan, Failure> {
    let dtype = needs.dtype.unwrap_or(DType::F32);
    if device.is_cpu() && dtype != DType::F32 {
        let message = format!("dtype: must be f32 to be measured on this device, got {dtype}");
        return Err(Failure::BadInput(message));
    }
    Ok(Plan {
        name: "card".into(),
        device: device.torch(),
        description: tenantry_executor::describe(device.torch()).map_err(Failure::running)?,
        models: needs.models,
        dtype,
        bottlenecks: needs.bottlenecks,
        ranks: needs.ranks,
        classes: needs.classes,
        ops: needs.ops,
        served: needs.served,
        texts: needs.texts,
        suite,
        seed: SEED,
        scratch: std::env::temp_dir(),
        partial: None,
        command: String::new(),
        date: today(),
    })
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
        dtype: Some(named(&args.dtype)?),
        ops: Ops::all(),
        served: Served::default(),
        texts: Vec::new(),
    })
}

fn named(dtype: &str) -> Result<DType, Failure> {
    let known = DType::ALL.iter().find(|known| known.name() == dtype);
    known.copied().ok_or_else(|| {
        let must = DType::NAMES.join(", ");
        Failure::BadInput(format!("--dtype: must be among {must}, got {dtype}"))
    })
}

/// The models that these runs compute with, and in which number format.
pub fn models_of(runs: &[RunSpec]) -> Result<(Vec<ModelShape>, DType), Failure> {
    let needs = needs_of(runs)?;
    Ok((needs.models, needs.dtype.unwrap_or(DType::F32)))
}

/// What the ops of these runs are priced by, and no more.
fn needs_of(runs: &[RunSpec]) -> Result<Needs, Failure> {
    let mut needs = Needs::default();
    for run in runs {
        for pool in run.system.pools() {
            needs.add_pool(pool, run.gpus)?;
        }
        let prunes = |stage: &StageSpec| stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some());
        let route = run.system.route.as_ref();
        needs.ops.attended |= route.is_some_and(|route| route.stages.iter().any(prunes));
        if let (Some(AnswersSpec::Profiled(folder)), Some(route)) = (&run.answers, route) {
            needs.add_texts(folder, route);
        }
        // Stages have instances of their own.
        needs.ops.concurrent |= route.is_some();
    }
    // Others than pools of tasks do not say how long their inputs are.
    let all_say = runs
        .iter()
        .flat_map(|run| run.system.pools())
        .all(|pool| pool.tasks.is_some());
    needs.served.tokens = needs.served.tokens.filter(|_| all_say);
    for list in [&mut needs.bottlenecks, &mut needs.ranks, &mut needs.classes] {
        list.sort_unstable();
        list.dedup();
    }
    Ok(needs)
}

impl Needs {
    fn add_texts(&mut self, folder: &Path, route: &RouteSpec) {
        let folder = folder.to_path_buf();
        let known = |texts: &ServedRoute| texts.folder == folder && texts.route.stages == route.stages;
        if !self.texts.iter().any(known) {
            let route = route.clone();
            self.texts.push(ServedRoute { folder, route });
        }
    }

    fn add_pool(&mut self, pool: &PoolSpec, gpus: u32) -> Result<(), Failure> {
        let dtype = *self.dtype.get_or_insert(pool.dtype);
        if pool.dtype != dtype {
            let message = format!(
                "dtype: must be {dtype} in all pools, as in the first, to be measured together, got {}",
                pool.dtype
            );
            return Err(Failure::BadInput(message));
        }
        // The processor is all cards that a scenario has.
        self.ops.concurrent |= pool.instances_per_gpu * gpus > 1;
        if let Some(plot) = &pool.plot {
            add(&mut self.ops.lookups, plot.fragment_tokens);
        }
        self.ops.tagging |= pool.heads == HeadTask::Tagging;
        self.ops.whole_models |= pool.changing() == Changing::Model;
        if let TenantState::Adapters {
            bottleneck,
            implementation,
        } = pool.tenant_state
        {
            self.bottlenecks.push(bottleneck);
            add(&mut self.ops.adapters, implementation);
        }
        if let Some(lora) = pool.generation.as_ref().and_then(|generation| generation.lora) {
            self.ranks.push(lora.rank);
            add(&mut self.ops.adapters, lora.implementation);
        }
        if let Some(runtimes) = &pool.runtimes {
            self.ops.static_models = true;
            self.ops.solves |= runtimes.solves();
            for stream in &runtimes.streams {
                add(&mut self.models, stream.model.clone());
                self.classes.push(stream.classes);
            }
            return Ok(());
        }
        self.classes.push(pool.classes);
        let Some(tasks) = &pool.tasks else {
            add(&mut self.models, pool.model.clone());
            return Ok(());
        };
        for model in tasks.models(&pool.model) {
            add(&mut self.models, model.clone());
        }
        self.served.batch = self.served.batch.max(Some(tasks.largest_batch()));
        self.served.tokens = self.served.tokens.max(Some(tasks.max_tokens));
        for &batching in tasks.batchings() {
            add(&mut self.ops.plans, batching);
        }
        let several = match tasks.engine {
            EngineSpec::Shared { .. } => {
                let known = |kind: &&PetKind| tasks.registrations.iter().any(|of| of.kind == kind.name());
                for &kind in PetKind::ALL.iter().filter(known) {
                    add(&mut self.ops.pets, kind);
                }
                true
            }
            EngineSpec::Parallel { .. } => true,
            EngineSpec::Sequential { .. } => false,
        };
        self.ops.concurrent |= several;
        Ok(())
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
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
        if args.add {
            command += " --add";
        }
        return command;
    }
    if !args.models.is_empty() {
        command += &format!(" --models {}", args.models.join(","));
    }
    if args.dtype != DType::F32.name() {
        command += &format!(" --dtype {}", args.dtype);
    }
    if args.add {
        command += " --add";
    }
    command
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tenantry_sim::{Jitter, Prices};

    use super::*;

    fn runs(name: &str) -> Vec<RunSpec> {
        let args = ScenarioArgs {
            scenario: name.into(),
            set: Vec::new(),
            seed: None,
        };
        scenario(&args).unwrap_or_else(|error| panic!("{name}: {error}")).runs()
    }

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

    /// What is measured for a scenario prices all its systems, and what no system does is not measured.
    #[test]
    fn a_scenario_gets_what_it_needs_and_no_more() {
        for name in [
            "quickstart",
            "punica/tiny-two-workers",
            "arlo/tweets-on-two-cores",
            "tabi/cpu",
            "pets/mixed-64",
        ] {
            let runs = runs(name);
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
        let mut runs = runs("quickstart");
        let mut other = runs[0].clone();
        other.system.pool.dtype = DType::F16;
        runs.push(other);
        let message = needs_of(&runs).err().unwrap().to_string();
        assert!(message.contains("must be f32 in all pools"), "{message}");
    }

    /// A pool of tasks says how large its batches can be and how long its inputs.
    #[test]
    fn the_batches_that_a_pool_of_tasks_can_make_are_measured() {
        let served = |name: &str, set: &[&str]| {
            let args = ScenarioArgs {
                scenario: name.into(),
                set: set.iter().map(|set| (*set).to_string()).collect(),
                seed: None,
            };
            needs_of(&scenario(&args).unwrap().runs()).unwrap().served
        };
        let of = |batch, tokens| Served { batch, tokens };
        assert_eq!(served("pets/mixed-64", &[]), of(Some(64), Some(64)));
        assert_eq!(served("pets/online", &[]), of(Some(128), Some(128)));
        // No batch is larger than what is looked at together.
        assert_eq!(
            served(
                "pets/mixed-64",
                &[
                    "systems[5].tasks.max_batch=512",
                    "systems[5].tasks.planning.pool.size=48"
                ]
            ),
            of(Some(64), Some(64))
        );
        assert_eq!(served("quickstart", &[]), Served::default());
    }
}
