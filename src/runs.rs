//! From a scenario to its runs: what `simulate`, `execute` and `validate` share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::RunRecord;
use tenantry_core::run::{Observer, RunError};
use tenantry_core::server::tasks::refusals;
use tenantry_core::spec::{EngineSpec, GenerationSpec};
use tenantry_profiles::{Card, DeviceKind, Source};
use tenantry_reports::manifest::Manifest;
use tenantry_reports::summary::GenerationSummary;
use tenantry_reports::{Run, RunFolder, RunLabels, Seen, ServiceClass, Validation};
#[cfg(feature = "libtorch")]
use tenantry_scenarios::Files;
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Jitter, Override, RunSpec, Scenario};
use tenantry_sim::{PriceError, SimulateError, Simulated};
use tenantry_traces::Time;

use crate::cards::{
    card_of, card_of_option, cluster, complete, does_not_fit, on_card, reading_failure, refusal, workload,
};
use crate::caveats::{
    AnotherRate, Extrapolated, Measured, TableUsed, as_compiled, cut_offs_beyond, lengths_without_steps,
    lookups_in_page_cache, more_memory_than_there_is, of_workload, side_by_side_as_if_alone, sizes_as_measured,
    slower_than_slo, table_caveats, undisturbed, unpriced_looks, unpriced_models,
};
use crate::cli::{OutputArgs, ScenarioArgs};
use crate::failure::Failure;
use crate::keep::{Kept, Watch};
use crate::output::{print, say};

/// A scenario with the cards that its runs name.
pub struct Loaded {
    pub scenario: Scenario,
    pub runs: Vec<RunSpec>,
    cards: BTreeMap<String, Card>,
    /// Why a run cannot be had on its card, by its number.
    unfit: BTreeMap<usize, String>,
}

impl Loaded {
    /// Reads the scenario, whose runs must all be possible on their cards. `profile` replaces the card of every run.
    pub fn load(args: &ScenarioArgs, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::of(scenario(args)?, profile)
    }

    /// Likewise where `made` stands for the card of its name.
    pub fn load_with(args: &ScenarioArgs, made: &Card) -> Result<Loaded, Failure> {
        let find = |scenario: &Scenario, name: &str| match name == made.name {
            true => Ok(made.clone()),
            false => card_of(scenario, name),
        };
        Loaded::found(scenario(args)?, None, find)?.if_all_fit()
    }

    /// Finds the cards of a scenario, on which all of its runs must be possible.
    pub fn of(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::of_what_fits(scenario, profile)?.if_all_fit()
    }

    fn if_all_fit(self) -> Result<Loaded, Failure> {
        match self.unfit.first_key_value() {
            None => Ok(self),
            Some((_, why)) => Err(Failure::BadInput(why.clone())),
        }
    }

    /// Finds the cards of a scenario. Runs that are not possible on theirs are [refused](Self::refusal).
    pub fn of_what_fits(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        Loaded::found(scenario, profile, |scenario, name| match profile {
            Some(profile) => card_of_option("--profile", profile),
            None => card_of(scenario, name),
        })
    }

    fn found(
        scenario: Scenario,
        profile: Option<&str>,
        find: impl Fn(&Scenario, &str) -> Result<Card, Failure>,
    ) -> Result<Loaded, Failure> {
        if let Some(profile) = profile
            && scenario.sweeps("card")
        {
            let must = "must be left out where sweep.card says which cards there are";
            return Err(Failure::BadInput(format!("--profile: {must}, got {profile}")));
        }
        let mut runs = scenario.runs();
        let mut cards = BTreeMap::new();
        let mut unfit = BTreeMap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some(profile) = profile {
                run.card = profile.to_owned();
                run.price_per_hour = scenario.prices.get(profile).copied();
            }
            if !cards.contains_key(&run.card) {
                cards.insert(run.card.clone(), find(&scenario, &run.card)?);
            }
            let card = cards.get_mut(&run.card).expect("it was found above");
            complete(card, run);
            match on_card(run, card)? {
                Ok(system) => run.system = system,
                Err(why) => drop(unfit.insert(index, why)),
            }
        }
        // A price under a wrong name would be missing, and nobody would say so.
        for card in scenario.prices.keys().filter(|card| !cards.contains_key(*card)) {
            card_of(&scenario, card)?;
        }
        Ok(Loaded {
            scenario,
            runs,
            cards,
            unfit,
        })
    }

    /// Adds to the cards what they lack of the runs' models, as they are by now.
    pub fn complete(&mut self) {
        for run in &self.runs {
            complete(self.cards.get_mut(&run.card).expect("each run's card was found"), run);
        }
    }

    /// Why run number `run` is not possible on its card, whatever is asked of it; nothing where it is.
    pub fn refusal(&self, run: usize) -> Option<String> {
        let spec = &self.runs[run];
        self.unfit.get(&run).cloned().or_else(|| refusal(spec, self.card(spec)))
    }

    /// All cards, with what the runs call them.
    #[cfg(feature = "libtorch")]
    pub fn cards_by_name(&self) -> impl Iterator<Item = (&String, &Card)> {
        self.cards.iter()
    }

    /// Has every op of a card of this name take so many times as long; the card's own name.
    #[cfg(feature = "libtorch")]
    pub fn at_pace(&mut self, name: &str, ratio: f64) -> &str {
        let card = self.cards.get_mut(name).expect("it was named by these runs");
        *card = card.at_pace(ratio);
        &card.name
    }

    /// A scenario without runs, with the cards that its plan chooses among.
    pub fn of_plan(scenario: Scenario, plan: &Plan) -> Result<Loaded, Failure> {
        let found = { plan.cards.iter() }.map(|(card, _)| Ok((card.clone(), card_of(&scenario, card)?)));
        Ok(Loaded {
            cards: found.collect::<Result<_, Failure>>()?,
            scenario,
            runs: Vec::new(),
            unfit: BTreeMap::new(),
        })
    }

    /// The card of one of the runs.
    pub fn card(&self, run: &RunSpec) -> &Card {
        &self.cards[&run.card]
    }

    /// Refuses what cannot be executed of any system before the first is: what is only simulated, what does not fit its card, weights and texts that are
    /// not there.
    #[cfg(feature = "libtorch")]
    pub fn check_executable(&self) -> Result<(), Failure> {
        // Other seeds change nothing of that.
        for run in self.runs.iter().filter(|run| run.repeat == 0) {
            let only_simulated = tenantry_executor::machine::execute::check(&run.system).err();
            let refused = only_simulated.map(|why| format!("system {}: {why}", run.system.name));
            if let Some(why) = refused.or_else(|| crate::cards::unserved(run, self.card(run))) {
                return Err(Failure::BadInput(why));
            }
        }
        self.check_files()
    }

    #[cfg(feature = "libtorch")]
    fn check_files(&self) -> Result<(), Failure> {
        let mut systems: Vec<&str> = Vec::new();
        for run in &self.runs {
            let name = run.system.name.as_str();
            if systems.contains(&name) {
                continue;
            }
            let own = format!("systems[{}].files", systems.len());
            systems.push(name);
            let Files {
                model,
                models,
                domains,
                tenants,
                corpus,
            } = &run.files;
            let several = |key: &'static str, paths: &[PathBuf]| -> Vec<(String, PathBuf)> {
                let paths = paths.iter().enumerate();
                paths
                    .map(|(index, path)| (format!("{key}[{index}]"), path.clone()))
                    .collect()
            };
            let one = |key: &str, path: &Option<PathBuf>| path.clone().map(|path| (key.to_owned(), path));
            let named = models.iter().map(|(key, path)| (format!("models.{key}"), path.clone()));
            let all = { one("model", model).into_iter() }
                .chain(one("tenants", tenants))
                .chain(named)
                .chain(several("domains", domains))
                .chain(several("corpus", corpus));
            if let Some((key, path)) = { all }.into_iter().find(|(_, path)| !path.exists()) {
                let must = "a path that can be read, relative to the folder you are in";
                let error = self.scenario.wrong(&format!("{own}.{key}"), must, path.display());
                return Err(Failure::bad_input(error));
            }
        }
        Ok(())
    }

    /// All cards, that of the first run first, for the manifest.
    pub fn all_cards(&self) -> Vec<&Card> {
        let of_first_run = self.runs.first().map(|run| &run.card);
        let mut cards: Vec<(&String, &Card)> = self.cards.iter().collect();
        cards.sort_by_key(|(name, _)| Some(*name) != of_first_run);
        cards.into_iter().map(|(_, card)| card).collect()
    }

    /// What a reader must know of the cards before trusting figures that they priced.
    pub fn card_caveats(&self) -> Vec<String> {
        // Cards that were come by alike are named in one sentence.
        let mut derived: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (name, card) in &self.cards {
            let of = &card.provenance;
            if of.source != Source::Measured {
                let how = crate::output::come_by(of.source);
                derived.entry((how, &of.date)).or_default().push(name);
            }
        }
        let unmeasured = |((how, date), names): (&(&str, &str), &Vec<&str>)| match names[..] {
            [name] => {
                format!("Card {name} was not measured: {how} on {date}; `tenantry profile show {name}` says from what.")
            }
            _ => format!(
                "Cards {} were not measured: {how} on {date}; `tenantry profile show {}` and so on say from what.",
                names.join(", "),
                names[0]
            ),
        };
        let mut caveats: Vec<String> = derived.iter().map(unmeasured).collect();
        caveats.extend(undisturbed(self.cards.values()));
        caveats.extend(self.run_caveats());
        caveats.extend(self.price_caveat());
        caveats.sort();
        caveats.dedup();
        caveats
    }

    /// What a reader must know of how the runs' systems are priced.
    pub fn run_caveats(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            let mut caveats = Vec::new();
            let (card, name) = (self.card(run), &run.system.name);
            caveats.extend(side_by_side_as_if_alone(card, run));
            caveats.extend(slower_than_slo(card, &run.system));
            caveats.extend(as_compiled(card, &run.system));
            caveats.extend(more_memory_than_there_is(card, run));
            caveats.extend(unpriced_looks(card, &run.system));
            caveats.extend(cut_offs_beyond(run.answers.as_ref(), &run.system));
            caveats.extend(unpriced_models(card, &run.system));
            caveats.extend(lookups_in_page_cache(card, &run.system));
            caveats.extend(sizes_as_measured(&run.system));
            caveats.extend(lengths_without_steps(card, &run.system));
            let model = &run.system.pool.model.name;
            let mut beside = card.tables.concurrent_step.iter();
            let is_measured = run.system.pool.generation.is_some() && beside.any(|row| row.model == *model);
            if card.device.kind == DeviceKind::Cpu && run.gpus > 1 && !is_measured {
                caveats.push(format!(
                    "{name}: {} cards of {} are simulated as so many machines; on one machine they would share its {} cores.",
                    run.gpus, card.name, card.device.host.cores
                ));
            }
            // What is left out of a sweep, since its card cannot run it, promises nothing.
            caveats.retain(|caveat| !all.contains(caveat));
            if !caveats.is_empty() && self.refusal(index).is_none() {
                all.extend(caveats);
            }
        }
        all
    }

    /// Tasks that are refused, each alone: by what the scenario or their files' headers say.
    pub fn refused_tasks(&self) -> Vec<String> {
        let of_run = |run: &RunSpec| {
            let refused = refusals(&cluster(run, self.card(run)), &run.system.pool, run.tenants);
            let of_system = refused
                .into_iter()
                .map(|why| format!("{}: refused: {why}", run.system.name));
            of_system.collect::<Vec<_>>()
        };
        let mut refused: Vec<String> = self.runs.iter().flat_map(of_run).collect();
        refused.sort();
        refused.dedup();
        refused
    }

    /// A sentence on the prices that costs are reckoned by.
    fn price_caveat(&self) -> Option<String> {
        let priced = self
            .runs
            .iter()
            .filter_map(|run| Some((&run.card, run.price_per_hour?)));
        let mut prices: Vec<String> = priced.map(|(card, price)| format!("{card} {price}")).collect();
        prices.sort();
        prices.dedup();
        (!prices.is_empty()).then(|| {
            format!(
                "Costs are by the prices that the scenario gives, a card and hour: {}. All cards of the cluster are paid all the time, \
                 but those that come and go only while they are there.",
                prices.join(", ")
            )
        })
    }

    /// All cards, by name.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    /// Digests of the cards, by what runs call them.
    pub fn card_digests(&self) -> BTreeMap<&str, String> {
        let cards = self.cards.iter();
        cards.map(|(name, card)| (name.as_str(), card.digest())).collect()
    }

    /// The tables that the runs so far used and that were not measured.
    pub fn tables_used(&self) -> BTreeSet<TableUsed> {
        self.cards.values().flat_map(TableUsed::of_card).collect()
    }

    /// A sentence on each origin other than a measurement, with the tables from there that the runs so far used.
    pub fn table_caveats(&self) -> Vec<String> {
        table_caveats(&self.tables_used())
    }

    /// Where and when the processors' cards among them were measured.
    pub fn measured(&self) -> impl Iterator<Item = Measured> {
        self.cards.values().filter_map(Measured::of_card)
    }

    /// A sentence on each measured card whose prices need not be this machine's of today.
    pub fn machine_caveats(&self) -> Vec<String> {
        Measured::otherwise_than_here(self.measured())
    }

    /// A sentence on each card that is of another kind of device than the one that executes.
    #[cfg(feature = "libtorch")]
    pub fn device_caveats(&self, is_cpu: bool) -> Vec<String> {
        { self.cards.values() }
            .filter_map(|card| crate::caveats::of_another_device(card, is_cpu))
            .collect()
    }

    /// The scenario as it is run: with all that it leaves out, and on the card that was asked for.
    pub fn resolved_yaml(&self) -> String {
        match self.runs.first() {
            Some(run) if !self.scenario.sweeps("card") => self.scenario.yaml_on(&run.card),
            _ => self.scenario.resolved_yaml(),
        }
    }

    /// Writes the folder of results and says where the page lies.
    fn write(
        &self,
        folder: &Path,
        runs: &[Run],
        validation: Option<&Validation>,
        manifest: &Manifest,
    ) -> Result<PathBuf, Failure> {
        let resolved = self.resolved_yaml();
        let results = RunFolder {
            scenario: &self.scenario.name,
            seed: self.scenario.seed,
            resolved_scenario: &resolved,
            runs,
            validation,
            manifest,
        };
        results.write(folder).map_err(Failure::running)
    }

    /// The scenario's limits on the difference between the machines.
    #[cfg(feature = "libtorch")]
    pub fn limits(&self) -> tenantry_reports::Limits {
        match &self.scenario.validate {
            None => tenantry_reports::Limits::default(),
            Some(limits) => tenantry_reports::Limits {
                mean: limits.mean,
                p98: limits.p98,
                throughput: limits.throughput,
            },
        }
    }
}

/// What a command that ran a scenario leaves: the folder, and on the terminal the result, what must be known about it, and where the
/// page lies.
pub struct Outcome<'a, T> {
    pub loaded: &'a Loaded,
    pub folder: &'a Path,
    pub runs: &'a [Run],
    pub validation: Option<&'a Validation>,
    pub manifest: &'a Manifest,
    /// Printed where `--json` asks for it.
    pub value: T,
}

impl<T: serde::Serialize> Outcome<'_, T> {
    /// Writes and prints; `text` is the result for people.
    pub fn publish(&self, output: &OutputArgs, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let page = self
            .loaded
            .write(self.folder, self.runs, self.validation, self.manifest)?;
        print(output, &self.value, text)?;
        for caveat in &self.manifest.caveats {
            say(output, &format!("note: {caveat}"));
        }
        say(output, &format!("report: {}", page.display()));
        Ok(())
    }
}

/// Reads a scenario with the overrides of the command line.
pub fn scenario(args: &ScenarioArgs) -> Result<Scenario, Failure> {
    let mut overrides: Vec<Override> = args.set.iter().map(|text| Override::set(text)).collect();
    overrides.extend(args.seed.map(seed));
    Scenario::load_with(&args.scenario, &overrides).map_err(Failure::bad_input)
}

/// `--seed`.
pub fn seed(seed: u64) -> Override {
    Override::option("--seed", "seed", &seed.to_string())
}

/// What a run's folder calls it.
pub fn labels(run: &RunSpec, machine: &str, repeat: u32) -> RunLabels {
    RunLabels {
        system: run.system.name.clone(),
        parameters: run.parameters.iter().cloned().collect(),
        repeat,
        machine: machine.to_owned(),
        seed: run.seed,
        slo: run.slo,
        card: run.card.clone(),
        gpus: run.gpus,
        price_per_hour: run.price_per_hour,
    }
}

/// A simulated run.
pub struct SimulatedRun {
    pub run: Run,
    pub interrupted: bool,
    pub events: u64,
    /// Op families priced beyond what was measured, and how far at most.
    pub extrapolated: Vec<Extrapolated>,
    /// What a reader must know of its workload.
    pub caveats: Vec<String>,
    pub another_rate: Option<AnotherRate>,
    /// What was written down of it.
    pub kept: Option<Kept>,
}

/// Simulates one run. Nothing where the user had stopped before it began.
pub fn simulate(
    run: &RunSpec,
    card: &Card,
    repeat: u32,
    interrupt: &Arc<AtomicBool>,
    mut watch: Option<Watch>,
) -> Result<Option<SimulatedRun>, Failure> {
    if interrupt.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut seen = seen(run);
    let done = match &mut watch {
        None => simulate_watched(run, card, Arc::clone(interrupt), &mut seen),
        Some(watch) => simulate_watched(run, card, Arc::clone(interrupt), (&mut seen, watch)),
    }?;
    let summarized = summarized(run, tenantry_reports::summary::VIRTUAL, repeat, &done.record).with_seen(&seen);
    Ok(Some(SimulatedRun {
        caveats: of_workload(run, &summarized),
        another_rate: AnotherRate::of(run, &summarized),
        kept: watch.map(|watch| watch.finish(&done.record)).transpose()?,
        interrupted: done.record.interrupted,
        events: done.events,
        extrapolated: done.extrapolated.into_iter().map(Extrapolated::from).collect(),
        run: summarized,
    }))
}

/// Simulates one run under an observer, until `interrupt` is set.
pub fn simulate_watched(
    run: &RunSpec,
    card: &Card,
    interrupt: Arc<AtomicBool>,
    watch: impl Observer,
) -> Result<Simulated, Failure> {
    let spec = tenantry_sim::Run {
        card,
        cluster: cluster(run, card),
        system: &run.system,
        tenants: run.tenants,
        warm_up: Time::ZERO + run.warm_up,
        target: run.slo.map(|slo| slo.target),
        jitter: match run.jitter {
            Jitter::None => tenantry_sim::Jitter::None,
            Jitter::Measured => tenantry_sim::Jitter::Measured { seed: run.seed },
        },
        seed: run.seed,
        answers: run.answers.as_ref().map(|answers| (answers, run.seed)),
    };
    let mut workload = workload(run)?;
    let done = tenantry_sim::simulate(&spec, &mut *workload, interrupt, watch);
    done.map_err(|error| failure_of(run, error))
}

/// Notes what the page shows of a run beside its record.
pub fn seen(run: &RunSpec) -> Seen {
    let slo = labels(run, "", 0).slo;
    let classes = run.tenant_groups.classes.iter().zip(&run.class_targets);
    let classes = classes.map(|(name, target)| ServiceClass {
        name: name.clone(),
        target: *target,
    });
    Seen::new(Time::ZERO + run.warm_up, slo, run.repeat == 0).with_classes(classes.collect())
}

/// What is kept of a run's record.
pub fn summarized(run: &RunSpec, machine: &str, repeat: u32, record: &RunRecord) -> Run {
    let mut done = Run::new(labels(run, machine, repeat), record);
    done.summary.host_memory_bytes = host_memory_bytes(run, record);
    if let (Some(of), Some(asked)) = (&mut done.summary.tasks, &run.system.pool.tasks) {
        of.max_batch_asked = (of.max_batch < asked.max_batch).then_some(asked.max_batch);
        let may_compose = matches!(asked.engine, EngineSpec::Shared { .. });
        of.mini_batches = of.mini_batches.or(may_compose.then_some(0));
    }
    if let (Some(of), Some(asked)) = (&mut done.summary.generation, &run.system.pool.generation) {
        none_is_zero(of, asked);
    }
    done
}

/// What a system may do and did not do is 0, where what it cannot do is absent.
fn none_is_zero(of: &mut GenerationSummary, asked: &GenerationSpec) {
    let zero = |may: bool| may.then_some(0);
    let apart = asked.disaggregated.is_some();
    of.shared_tokens = { of.shared_tokens }.or(zero(asked.shared_prefix_tokens > 0 || asked.prefix_caching));
    of.reads = of.reads.or(zero(asked.host_slots().is_some()));
    of.transfers = of.transfers.or(zero(apart));
    of.transferred_bytes = of.transferred_bytes.or(zero(apart));
}

/// What the host holds of tenants' parameters: of all, where it does not read them from the disk. Tasks' lie on the cards.
fn host_memory_bytes(run: &RunSpec, record: &RunRecord) -> Option<u64> {
    let pool = &run.system.pool;
    let lora = pool.generation.as_ref().and_then(|generation| generation.lora);
    let held = lora
        .and_then(|lora| lora.host_slots)
        .map_or(run.tenants, |slots| slots.min(run.tenants));
    // Cards that share layers have some of a tenant's LoRA each; the host has it once.
    let own = match lora {
        Some(lora) => {
            let layers = u64::from(pool.computed_layers());
            layers * pool.model.lora_parameters_per_layer(lora.rank) * pool.dtype.bytes()
        }
        None => record.memory.per_tenant_bytes,
    };
    let bytes = u64::from(held) * own;
    (bytes > 0 && pool.tasks.is_none() && pool.runtimes.is_none() && run.system.route.is_none()).then_some(bytes)
}

/// Why a run was not simulated to its end.
pub fn failure_of(run: &RunSpec, error: SimulateError) -> Failure {
    let error = match error {
        SimulateError::Price(PriceError(missing)) => SimulateError::Price(missing.asked_by(&run.file).into()),
        other => other,
    };
    let too_small = match &error {
        SimulateError::Server(error) => does_not_fit(run, error),
        _ => None,
    };
    let message = too_small.unwrap_or_else(|| format!("system {}: {error}", run.system.name));
    match error {
        SimulateError::Server(_) | SimulateError::Price(_) | SimulateError::Answers(_) => Failure::BadInput(message),
        SimulateError::Run(error) => run_failure(run, message, &error),
        SimulateError::Law(_) => Failure::Running(message),
    }
}

/// A trace that cannot be read is the input's fault, whatever else breaks a run off is not; `message` says what of the latter.
pub fn run_failure(run: &RunSpec, message: String, error: &RunError) -> Failure {
    match error {
        RunError::Workload(error) => reading_failure(Some(&run.file), error),
        RunError::Machine(_) | RunError::Law(_) => Failure::Running(message),
    }
}
