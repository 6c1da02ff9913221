//! What a card must hold: of a scenario's runs, or of models by name.

use std::path::Path;

use tenantry_core::spec::{EngineSpec, HeadTask, PoolSpec, RouteSpec, RuntimeLengths, TenantState};
use tenantry_executor::profiler::{Ops, Served, ServedRoute};
use tenantry_profiles::{Changing, DType, ModelKind, ModelShape};
use tenantry_scenarios::{Distinct, RunSpec};
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::spec::WorkloadSpec;
use tenantry_traces::{Entry, TraceError};

use tenantry::cli::{ProfileArgs, ScenarioArgs, Suite};
use tenantry::commands::profile::models;
use tenantry::failure::Failure;
use tenantry::runs::scenario;

/// What is measured where neither models nor a scenario are given.
const DEFAULT_MODELS: [&str; 2] = ["tiny", "bert-mini"];
const DEFAULT_BOTTLENECKS: [u32; 2] = [16, 64];
/// What heads of other numbers of classes lie between: a product of three columns or of nine mostly takes longer than a
/// line between two and sixteen says, and these are what tokens are labelled with (nine for names of persons, places,
/// organizations and others).
const DEFAULT_CLASSES: [u32; 4] = [2, 3, 9, 16];
/// Of decoders' LoRA; a full suite takes all of them.
const DEFAULT_RANKS: [u32; 4] = [8, 16, 32, 64];
const QUICK_RANKS: usize = 2;
/// An encoder's longest input is rounded up to a power of two up to these tokens, and beyond to a multiple of half of
/// them: another seed's may be longer.
const SHORT_TOKENS: u32 = 128;
/// Requests that are looked at for the longest input.
const REQUESTS_LOOKED_AT: u64 = 1_000_000;

/// What a profile must hold.
#[derive(Default)]
pub struct Needs {
    pub models: Vec<ModelShape>,
    pub classes: Vec<u32>,
    /// Absent where nothing needs any.
    pub dtype: Option<DType>,
    pub ops: Ops,
    pub served: Served,
    pub texts: Vec<ServedRoute>,
}

pub fn needs(args: &ProfileArgs) -> Result<Needs, Failure> {
    if !args.scenarios.is_empty() {
        let mut runs = Vec::new();
        for path in &args.scenarios {
            let of_path = ScenarioArgs {
                scenario: path.clone(),
                set: Vec::new(),
                seed: None,
            };
            runs.extend(scenario(&of_path, None)?.runs());
        }
        return needs_of(&runs)?.with_inputs_of(&runs);
    }
    let models = models(&args.models, &DEFAULT_MODELS)?;
    let ranks = match args.suite {
        Suite::Quick => &DEFAULT_RANKS[..QUICK_RANKS],
        Suite::Full => &DEFAULT_RANKS,
    };
    Ok(Needs {
        ops: Ops::all(&models, &DEFAULT_BOTTLENECKS, ranks),
        models,
        classes: DEFAULT_CLASSES.to_vec(),
        dtype: Some(args.dtype),
        served: Served::default(),
        texts: Vec::new(),
    })
}

/// The models that these runs compute with, and in which number format.
pub fn models_of(runs: &[RunSpec]) -> Result<(Vec<ModelShape>, DType), Failure> {
    let needs = needs_of(runs)?;
    Ok((needs.models, needs.dtype.unwrap_or(DType::F32)))
}

/// What the ops of these runs are priced by, and no more.
pub fn needs_of(runs: &[RunSpec]) -> Result<Needs, Failure> {
    let mut needs = Needs::default();
    for run in runs {
        for pool in run.system.pools() {
            needs.add_pool(pool, run.gpus)?;
        }
        let route = run.system.route.as_ref();
        for stage in route.iter().flat_map(|route| &route.stages) {
            let ops = needs.ops.of_mut(&stage.pool.model.name);
            ops.inspected |= stage.dispatch.is_some();
            ops.attended |= stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some());
            // Stages have instances of their own.
            ops.concurrent = true;
        }
        if let (Some(AnswersSpec::Profiled(folder)), Some(route)) = (&run.answers, route) {
            needs.add_texts(folder, route);
        }
    }
    needs.classes.sort_unstable();
    needs.classes.dedup();
    for (index, model) in needs.models.iter().enumerate() {
        if let Some(other) = needs.models[..index].iter().find(|other| other.name == model.name) {
            return Err(Failure::BadInput(format!(
                "models: {}: must be one shape in all that is measured for one card, got {} and {}; call one of them \
                 otherwise, or measure a card for each",
                model.name,
                other.in_words(),
                model.in_words()
            )));
        }
    }
    Ok(needs)
}

impl Needs {
    /// The same for inputs as long as these runs' workloads bring. Pools of tasks say themselves how long theirs are,
    /// and decoders' grids do not depend on it: a prompt may be cut, and what is cached grows with the answer.
    fn with_inputs_of(mut self, runs: &[RunSpec]) -> Result<Needs, Failure> {
        let mut seen: Distinct<&WorkloadSpec> = Distinct::default();
        let depends = |pool: &PoolSpec| {
            let encodes = pool.runtimes.is_some() || pool.model.kind == ModelKind::Encoder;
            encodes && pool.tasks.is_none()
        };
        for run in runs.iter().filter(|run| run.system.pools().any(depends)) {
            if !seen.insert(&run.workload) {
                continue;
            }
            let longest = longest_input(&run.workload).map_err(Failure::bad_input)?;
            let longest = match longest > SHORT_TOKENS {
                true => longest.next_multiple_of(SHORT_TOKENS / 2),
                false => longest.next_power_of_two(),
            };
            self.served.tokens = self.served.tokens.max(Some(longest));
        }
        Ok(self)
    }

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
        let is_concurrent = pool.instances_per_gpu * gpus > 1;
        let tags = pool.heads == HeadTask::Tagging;
        let whole = (pool.changing() == Changing::Model).then_some(pool.first_layer());
        if let Some(runtimes) = &pool.runtimes {
            self.ops.solves |= runtimes.solves();
            for stream in &runtimes.streams {
                add(&mut self.models, stream.model.clone());
                let ops = self.ops.of_mut(&stream.model.name);
                ops.compiled = true;
                ops.concurrent |= is_concurrent;
                ops.tagging |= tags;
                self.classes.push(stream.classes);
                let lengths = stream.runtimes.iter().map(|runtime| runtime.max_length);
                self.served.tokens = self.served.tokens.max(lengths.max());
                self.served.steps |= stream.lengths == RuntimeLengths::OfCard;
            }
            return Ok(());
        }
        self.classes.push(pool.classes);
        if let Some(tasks) = &pool.tasks {
            for model in tasks.models(&pool.model) {
                add(&mut self.models, model.clone());
                let ops = self.ops.of_mut(&model.name);
                for kind in tasks.engine.kinds_with_operators(&tasks.registrations) {
                    add(&mut ops.pets, kind);
                }
                whole.into_iter().for_each(|first| add(&mut ops.whole_models, first));
                ops.tagging |= tags;
                ops.concurrent |= is_concurrent || !matches!(tasks.engine, EngineSpec::Sequential { .. });
            }
            self.served.batch = self.served.batch.max(Some(tasks.largest_batch()));
            self.served.tokens = self.served.tokens.max(Some(tasks.max_tokens));
            for &batching in tasks.batchings() {
                add(&mut self.ops.plans, batching);
            }
            return Ok(());
        }
        add(&mut self.models, pool.model.clone());
        self.served.batch = self.served.batch.max(Some(pool.batch.max_size()));
        let ops = self.ops.of_mut(&pool.model.name);
        ops.concurrent |= is_concurrent;
        if let Some(plot) = &pool.plot {
            add(&mut ops.lookups, plot.fragment_tokens);
        }
        ops.tagging |= tags;
        whole.into_iter().for_each(|first| add(&mut ops.whole_models, first));
        if let TenantState::Adapters {
            bottleneck,
            implementation,
        } = pool.tenant_state
        {
            add(&mut ops.bottlenecks, bottleneck);
            add(&mut ops.adapters, implementation);
        }
        if let Some(lora) = pool.generation.as_ref().and_then(|generation| generation.lora) {
            add(&mut ops.ranks, lora.rank);
            add(&mut ops.adapters, lora.implementation);
        }
        Ok(())
    }
}

/// The longest input that is asked for, in tokens.
fn longest_input(workload: &WorkloadSpec) -> Result<u32, TraceError> {
    let mut requests = tenantry_traces::build(workload)?;
    let (mut longest, mut looked_at) = (0, 0);
    while looked_at < REQUESTS_LOOKED_AT && requests.peek()?.is_some() {
        if let Some(Entry::Request(request)) = requests.next()? {
            longest = longest.max(request.input_tokens);
            looked_at += 1;
            requests.finished(request.arrival, request.ticket);
        }
    }
    Ok(longest)
}

fn add<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use tenantry_profiles::PetKind;

    use super::*;

    /// The runs of a shipped scenario.
    pub fn runs(name: &str, set: &[&str]) -> Vec<RunSpec> {
        let args = ScenarioArgs {
            scenario: name.into(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            seed: None,
        };
        scenario(&args, None).unwrap_or_else(|error| panic!("{name}: {error}")).runs()
    }

    fn served(name: &str, set: &[&str]) -> Served {
        let runs = runs(name, set);
        needs_of(&runs).unwrap().with_inputs_of(&runs).unwrap().served
    }

    /// On a GPU one profile does for all scenarios of a number format: none asks for more than those for which it is
    /// measured.
    #[test]
    fn what_is_run_on_a_gpu_needs_no_more_than_its_profile() {
        const SCRIPT: &str = include_str!("../../../scripts/on-gpu.sh");
        let needs = |runs: &[RunSpec]| {
            let Needs {
                models,
                classes,
                dtype,
                ops,
                served,
                texts,
            } = needs_of(runs).unwrap().with_inputs_of(runs).unwrap();
            assert!(texts.is_empty());
            format!("{:?}", (models, classes, dtype, ops, served))
        };
        // A card has a number of minutes and then scenarios, a run a card and then a number of seconds.
        let (mut cards, mut checked) = (BTreeMap::new(), 0);
        for line in SCRIPT.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [card @ ("bf16" | "f32"), minutes, ref scenarios @ ..] if minutes.parse::<f64>().is_ok() => {
                    let of_card: Vec<RunSpec> = scenarios.iter().flat_map(|name| runs(name, &[])).collect();
                    cards.insert(card, of_card);
                }
                [_, card, seconds, name] if cards.contains_key(card) && seconds.parse::<u32>().is_ok() => {
                    let of_card = &cards[card];
                    let mut both = of_card.clone();
                    both.extend(runs(name, &[]));
                    assert_eq!(needs(&both), needs(of_card), "{name} on the profile {card}");
                    checked += 1;
                }
                _ => {}
            }
        }
        assert_eq!((cards.len(), checked), (2, 17), "as many as the script's tables have");
    }

    fn of(batch: Option<u32>, tokens: Option<u32>) -> Served {
        Served {
            batch,
            tokens,
            steps: false,
        }
    }

    /// A pool of tasks says how large its batches can be and how long its inputs.
    #[test]
    fn the_batches_that_a_pool_of_tasks_can_make_are_measured() {
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
    }

    /// Operators are measured that the baselines compute too.
    #[test]
    fn of_full_models_operators_are_measured_that_do_not_merge() {
        let kinds = |engine: &str| {
            let systems = format!("systems=[{{ preset: seqs, tasks: {{ engine: {engine} }} }}]");
            let needs = needs_of(&runs("pets/mixed-64", &[&systems])).unwrap();
            needs.ops.of(&needs.models[0].name).pets.clone()
        };
        assert_eq!(kinds("{ sequential: {} }"), [PetKind::Adapters]);
        assert!(kinds("{ parallel: { fine_tuned: as-a-whole } }").is_empty());
    }

    /// What one scenario's model needs is not measured of another's.
    #[test]
    fn a_models_ops_are_its_own() {
        let both = [runs("h200/tabi-tweets", &[]), runs("h200/hmi-tenants", &[])].concat();
        let needs = needs_of(&both).unwrap();
        let looked_up = needs.models.iter().filter(|model| !needs.ops.of(&model.name).lookups.is_empty());
        let looked_up: Vec<&str> = looked_up.map(|model| model.name.as_str()).collect();
        assert_eq!(looked_up, ["bert-base"]);
        let (small, large) = (needs.ops.of("distilbert"), needs.ops.of("bert-large"));
        assert!(small.adapters.is_empty() && large.bottlenecks.is_empty());
        assert!(
            small.attended && small.inspected && !large.attended && !large.inspected,
            "the first asks which words were attended to"
        );
        let exits = needs_of(&runs("tabi/exits", &[])).unwrap();
        let model = exits.ops.of("bert-mini");
        assert!(
            model.inspected && !model.attended,
            "who goes on is asked, and no words are pruned"
        );
        assert!(small.concurrent && !needs.ops.of("bert-base").concurrent);
    }

    /// Inputs are measured as far as the workload brings them, a little rounded up, and so are batches beyond the usual
    /// ones.
    #[test]
    fn the_inputs_that_a_workload_brings_are_measured() {
        assert_eq!(served("quickstart", &[]), of(Some(8), Some(128)));
        let long = "workload.lengths.input={ lognormal: { median: 100, sigma: 1, min: 1, max: 384 } }";
        let large = "systems[1].batch.size-or-timeout.max_size=64";
        assert_eq!(served("quickstart", &[long, large]), of(Some(64), Some(384)));
        let short = "workload.lengths.input={ normal: { mean: 64, sd: 30, min: 1, max: 128 } }";
        assert_eq!(served("quickstart", &[short]), of(Some(8), Some(128)));
        let fixed = "workload.lengths.input={ fixed: 20 }";
        assert_eq!(served("quickstart", &[fixed]), of(Some(8), Some(32)));
        // Where the card is to say which runtimes there are, its steps are looked for.
        let stepped = Served {
            steps: true,
            ..of(None, Some(512))
        };
        assert_eq!(served("arlo/fig-6a", &[]), stepped);
        assert_eq!(served("arlo/tweets-on-two-cores", &[]), of(None, Some(134)));
        // Decoders' grids do not depend on it.
        assert_eq!(served("h200/punica-open", &[]).tokens, None);
        // Beside tasks, what others bring is measured of all.
        let tasks = "systems=[{ preset: pets, tasks: { max_tokens: 64 } }, { preset: bert-shared }]";
        let kinds = "tenants.kinds={ adapters: 1 }";
        assert_eq!(served("quickstart", &[tasks, kinds, short]).tokens, Some(128));
    }
}
