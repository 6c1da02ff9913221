//! From a scenario to its runs: what `simulate`, `execute` and `validate` share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use tenantry_core::machine::MachineError;
use tenantry_core::run::{Observer, RunError};
use tenantry_core::server::Server;
use tenantry_core::spec::{AllocateSpec, LengthsFound, Met, RuntimeLengths};
use tenantry_core::{ClusterSpec, RunRecord, SystemSpec};
use tenantry_plot::Texts;
use tenantry_profiles::{Beyond, Card, Changing, DeviceKind, Family, ProfileError, Source};
use tenantry_reports::manifest::Manifest;
use tenantry_reports::{Rent, Run, RunFolder, RunLabels, Seen, Slo, Validation};
use tenantry_scenarios::{Jitter, Override, RunSpec, Scenario};
use tenantry_sim::{MetError, PriceError, Prices, SimulateError, Simulated};
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::{Time, TraceError};

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

    /// Finds the cards of a scenario, on which all of its runs must be possible.
    pub fn of(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        let loaded = Loaded::of_what_fits(scenario, profile)?;
        match loaded.unfit.first_key_value() {
            None => Ok(loaded),
            Some((_, why)) => Err(Failure::BadInput(why.clone())),
        }
    }

    /// Finds the cards of a scenario. Runs that are not possible on theirs are [refused](Self::refusal).
    pub fn of_what_fits(scenario: Scenario, profile: Option<&str>) -> Result<Loaded, Failure> {
        let mut runs = scenario.runs();
        let mut cards = BTreeMap::new();
        let mut unfit = BTreeMap::new();
        for (index, run) in runs.iter_mut().enumerate() {
            if let Some(profile) = profile {
                run.card = profile.to_owned();
                run.price_per_hour = scenario.prices.get(profile).copied();
            }
            if !cards.contains_key(&run.card) {
                let found = match profile {
                    Some(profile) => card_of_option("--profile", profile),
                    None => card_of(&scenario, &run.card),
                };
                cards.insert(run.card.clone(), found?);
            }
            match on_card(run, &cards[&run.card])? {
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

    /// A scenario without runs, with these cards.
    pub fn of_cards<'a>(scenario: Scenario, cards: impl Iterator<Item = &'a str>) -> Result<Loaded, Failure> {
        let found = cards.map(|card| Ok((card.to_owned(), card_of(&scenario, card)?)));
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

    /// The card of the first run, for the manifest.
    pub fn first_card(&self) -> Option<&Card> {
        let of_first_run = self.runs.first().map(|run| self.card(run));
        of_first_run.or_else(|| self.cards.values().next())
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
        for run in &self.runs {
            let (card, name) = (self.card(run), &run.system.name);
            let instances = run.system.pool.instances_per_gpu;
            // Runtimes are slowed down as measured, or refused.
            if instances > 1 && run.system.pool.runtimes.is_none() {
                caveats.push(format!(
                    "{name}: {instances} instances compute side by side on each card as if each were alone; how much they slow \
                     each other down is not measured yet, so the simulation promises too much."
                ));
            }
            caveats.extend(unpriced_looks(card, &run.system));
            caveats.extend(unpriced_models(card, &run.system));
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
        }
        caveats.extend(self.price_caveat());
        caveats.sort();
        caveats.dedup();
        caveats
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
                 but those of runtimes that come and go only while they are there.",
                prices.join(", ")
            )
        })
    }

    /// All cards, by name.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    /// The tables that the runs so far used and that were not measured.
    pub fn tables_used(&self) -> BTreeSet<TableUsed> {
        let of_card = |card: &Card| {
            let used = card.used_unmeasured().into_iter();
            let table = |used: tenantry_profiles::UsedTable| TableUsed {
                card: card.name.clone(),
                kind: used.origin.kind,
                source: used.origin.source,
                error: used.origin.error,
                table: format!("{} {}", used.family, used.table).trim_end().to_owned(),
            };
            used.map(table).collect::<Vec<_>>()
        };
        self.cards.values().flat_map(of_card).collect()
    }

    /// A sentence on each origin other than a measurement, with the tables from there that the runs so far used.
    pub fn table_caveats(&self) -> Vec<String> {
        table_caveats(&self.tables_used())
    }

    /// A sentence on each measured card that is not this machine's, by its host's processor: what was executed here need not
    /// agree with it.
    #[cfg(feature = "libtorch")]
    pub fn machine_caveats(&self) -> Vec<String> {
        let here = crate::output::processor().unwrap_or_else(|| "an unknown processor".to_owned());
        let elsewhere = |card: &&Card| {
            card.provenance.source == Source::Measured
                && card.device.kind == DeviceKind::Cpu
                && card.device.host.cpu != here
        };
        let sentence = |card: &Card| {
            format!(
                "Card {} was measured on {} on {}, and requests were executed on {here}: `tenantry profile compare` shows how far \
                 a new profile lies from it.",
                card.name, card.provenance.date, card.device.host.cpu
            )
        };
        self.cards.values().filter(elsewhere).map(sentence).collect()
    }

    /// Writes the folder of results and says where the page lies.
    fn write(
        &self,
        folder: &Path,
        runs: &[Run],
        validation: Option<&Validation>,
        manifest: &Manifest,
    ) -> Result<PathBuf, Failure> {
        let resolved = self.scenario.resolved_yaml();
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

/// Folders whose `profiles/cards` are searched before the embedded cards.
pub fn card_folders() -> Vec<PathBuf> {
    vec![PathBuf::from(".")]
}

/// The cards that are known by name.
pub fn card_names() -> Vec<String> {
    Card::available(&card_folders())
}

/// What to do where a card is missed.
const MEASURE: &str = "measure this machine's with `tenantry profile --device cpu --suite quick`";

/// A card by name or path, as an argument gives it.
pub fn find_card(name: &str) -> Result<Card, Failure> {
    let found = Card::find(name, &card_folders());
    found.map_err(|error| match &error {
        ProfileError::UnknownCard { .. } => Failure::BadInput(format!("{error} ({MEASURE})")),
        _ => Failure::bad_input(error),
    })
}

/// A card that an option of the command line names.
fn card_of_option(option: &str, name: &str) -> Result<Card, Failure> {
    find_card(name).map_err(|failure| match failure {
        Failure::BadInput(message) => match message.strip_prefix("card: ") {
            Some(message) => Failure::BadInput(format!("{option}: {message}")),
            None => Failure::BadInput(message),
        },
        failure => failure,
    })
}

/// A card that a scenario names. Where there is none, the error says where in the scenario it is named.
pub fn card_of(scenario: &Scenario, name: &str) -> Result<Card, Failure> {
    Card::find(name, &card_folders()).map_err(|error| match error {
        ProfileError::UnknownCard {
            name,
            available,
            suggested,
        } => {
            let must = format!("a folder with a card.yaml or one of {}", available.join(", "));
            let error = scenario.wrong_card(&name, must, suggested);
            Failure::BadInput(format!("{error} ({MEASURE})"))
        }
        error => Failure::bad_input(error),
    })
}

/// The name of a scenario's card that finds it from any folder: its own where it comes with the program, else its folder's path.
pub fn card_from_anywhere(name: &str) -> Result<String, Failure> {
    let Some(folder) = Card::folder(name, &card_folders()) else {
        return Ok(name.to_owned());
    };
    let card = Card::load(&folder).map_err(Failure::bad_input)?;
    let same = |embedded: &Card| embedded.digest() == card.digest();
    if Card::embedded(name)
        .map_err(Failure::bad_input)?
        .as_ref()
        .is_some_and(same)
    {
        return Ok(name.to_owned());
    }
    let folder = std::path::absolute(&folder).map_err(Failure::running)?;
    Ok(folder.display().to_string())
}

/// A sentence on each stream whose runtimes' lengths were to be found in the card's staircase, which has none.
fn lengths_without_steps<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let streams = system.pool.runtimes.iter().flat_map(|runtimes| &runtimes.streams);
    let found = streams.filter(|stream| stream.lengths == RuntimeLengths::OfCard);
    found.filter_map(|stream| {
        let instead = match stream.lengths_found(card) {
            LengthsFound::Steps(_) => return None,
            LengthsFound::Compiled => "the lengths that the card has it compiled for are used".to_owned(),
            LengthsFound::EqualParts(parts) => format!("{parts} runtimes of equally spaced lengths are used"),
        };
        Some(format!(
            "{}: the profile of card {} shows no steps in the latency of {} by length; {instead}. `runtimes.lengths` names others.",
            system.name, card.name, stream.model.name
        ))
    })
}

/// The run's system with what can be known only of a card and a workload: what look-ups meet, what runtimes take, and how many there are of
/// each where the whole workload decides; or why it cannot be had there.
pub fn on_card(run: &RunSpec, card: &Card) -> Result<Result<SystemSpec, String>, Failure> {
    let mut system = run.system.clone();
    if let Some(plot) = system.pool.plot.as_mut().filter(|plot| plot.met == Met::Counted) {
        let mut workload = tenantry_traces::build(&run.workload).map_err(Failure::bad_input)?;
        let model = &run.system.pool.model;
        let tokenizer = run.files.tokenizer();
        let texts = Texts::new(&run.files.corpus, tokenizer.as_deref(), run.seed, model.vocabulary);
        let texts = texts.map_err(Failure::bad_input)?;
        let counted = tenantry_sim::count_met(plot, model, &texts, &mut *workload);
        plot.met = counted.map_err(|error| match error {
            MetError::Workload(TraceError::Io { .. }) | MetError::Tables(_) => Failure::running(error),
            MetError::Workload(_) => Failure::bad_input(error),
        })?;
    }
    let Some(runtimes) = &mut system.pool.runtimes else {
        return Ok(Ok(system));
    };
    let unfit = |error: &dyn std::fmt::Display| format!("system {}: {error}", run.system.name);
    match runtimes.on(card, system.pool.instances_per_gpu) {
        Ok(known) => *runtimes = known,
        Err(error) => return Ok(Err(unfit(&error))),
    }
    if let AllocateSpec::Global(solver) = runtimes.allocate {
        let mut workload = tenantry_traces::build(&run.workload).map_err(Failure::bad_input)?;
        let cards = runtimes.scale.map_or(run.gpus, |scale| scale.cards_at_start);
        let question =
            tenantry_sim::whole_workload(runtimes, &mut *workload, cards * system.pool.instances_per_gpu, solver)
                .map_err(Failure::bad_input)?;
        match tenantry_sim::allocate(&question) {
            Ok(answer) => runtimes.allocate = AllocateSpec::Fixed(answer.instances),
            Err(error) => return Ok(Err(unfit(&error))),
        }
    }
    Ok(Ok(system))
}

/// What a run's folder calls it.
pub fn labels(run: &RunSpec, machine: &str, repeat: u32) -> RunLabels {
    RunLabels {
        system: run.system.name.clone(),
        parameters: run.parameters.iter().cloned().collect(),
        repeat,
        machine: machine.to_owned(),
        seed: run.seed,
        slo: run.slo.map(|slo| Slo {
            latency: slo.latency,
            quantile: slo.quantile,
        }),
        rent: run.price_per_hour.map(|price_per_hour| Rent {
            gpus: run.gpus,
            price_per_hour,
        }),
    }
}

/// The cluster of a run on its card.
pub fn cluster(run: &RunSpec, card: &Card) -> ClusterSpec {
    let (copy_lanes, lookup_lanes) = match card.device.kind {
        // Each GPU has a copy engine of its own, and the host's cores do nothing else.
        DeviceKind::Cuda => (run.gpus, run.gpus),
        // With a single core to spare, the copy lane looks up as well.
        DeviceKind::Cpu => (card.lanes.host.div_ceil(2), card.lanes.host / 2),
    };
    run.cluster(
        card.device.memory_bytes - card.device.reserve_bytes,
        copy_lanes,
        lookup_lanes,
    )
}

/// A table that priced ops and was not measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableUsed {
    card: String,
    kind: Source,
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    table: String,
}

/// What a dispatcher between models costs and a measured card has no price for.
fn unpriced_looks<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let dispatches = system.route.iter().flat_map(|route| &route.stages).filter_map(|stage| {
        let dispatch = stage.dispatch?;
        (card.provenance.source == Source::Measured).then_some((&stage.pool, dispatch))
    });
    dispatches.flat_map(move |(pool, dispatch)| {
        let looks = matches!(card.inspect(), Ok(Some(_)));
        let attends = matches!(card.attended_layer(&pool.model, pool.dtype), Ok(Some(_)));
        let unpriced = |what: &str| {
            format!(
                "{}: {what} of {} on card {} was not measured, so that it is simulated as if it took no time.",
                system.name, pool.name, card.name
            )
        };
        let look = (!looks).then(|| unpriced("the dispatcher's look at the answers"));
        let attention = (dispatch.prune_alpha.is_some() && !attends)
            .then(|| unpriced("what summing up the attention to words adds to a pass"));
        look.into_iter().chain(attention)
    })
}

/// What a measured card does not know of whole models that take turns.
fn unpriced_models(card: &Card, system: &SystemSpec) -> Option<String> {
    let pool = &system.pool;
    let unpriced = card.provenance.source == Source::Measured
        && pool.changing() == Changing::Model
        && matches!(card.resume(&pool.model, Changing::Model), Ok(None));
    unpriced.then(|| {
        format!(
            "{}: what a batch of {} takes longer after another tenant's model was not measured on card {}, so that it is simulated as \
             if caches held all models.",
            system.name, pool.model.name, card.name
        )
    })
}

/// A sentence on each origin, with the tables from there.
pub fn table_caveats(tables: &BTreeSet<TableUsed>) -> Vec<String> {
    let mut by_origin: BTreeMap<(&str, Source, String), Vec<&str>> = BTreeMap::new();
    for used in tables {
        let error = used
            .error
            .as_ref()
            .map(|error| format!(", {error}"))
            .unwrap_or_default();
        let origin = (used.card.as_str(), used.kind, format!("{}{error}", used.source));
        by_origin.entry(origin).or_default().push(&used.table);
    }
    let sentence = |((card, kind, source), tables): (&(&str, Source, String), &Vec<&str>)| {
        format!("Card {card}, {kind} ({source}): {}.", tables.join("; "))
    };
    by_origin.iter().map(sentence).collect()
}

/// An op family priced beyond what was measured, and how far at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extrapolated {
    family: Family,
    /// How many times what was measured, or one over that.
    factor: f64,
    beyond: String,
}

impl From<(Family, Beyond)> for Extrapolated {
    fn from((family, beyond): (Family, Beyond)) -> Extrapolated {
        Extrapolated {
            family,
            factor: beyond.factor(),
            beyond: beyond.to_string(),
        }
    }
}

/// A simulated run.
pub struct SimulatedRun {
    pub run: Run,
    pub interrupted: bool,
    pub events: u64,
    /// Op families priced beyond what was measured, and how far at most.
    pub extrapolated: Vec<Extrapolated>,
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
    Ok(Some(SimulatedRun {
        kept: watch.map(|watch| watch.finish(&done.record)).transpose()?,
        interrupted: done.record.interrupted,
        events: done.events,
        extrapolated: done.extrapolated.into_iter().map(Extrapolated::from).collect(),
        run: summarized(run, tenantry_reports::summary::VIRTUAL, repeat, &done.record).with_seen(&seen),
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
        jitter: match run.jitter {
            Jitter::None => tenantry_sim::Jitter::None,
            Jitter::Measured => tenantry_sim::Jitter::Measured { seed: run.seed },
        },
        seed: run.seed,
        answers: run.answers.as_ref().map(|answers| (answers, run.seed)),
    };
    let mut workload = tenantry_traces::build(&run.workload).map_err(Failure::bad_input)?;
    let done = tenantry_sim::simulate(&spec, &mut *workload, interrupt, watch);
    done.map_err(|error| failure_of(run, error))
}

/// Notes what the page shows of a run beside its record.
pub fn seen(run: &RunSpec) -> Seen {
    let slo = labels(run, "", 0).slo;
    Seen::new(Time::ZERO + run.warm_up, slo, run.repeat == 0)
}

/// What is kept of a run's record.
pub fn summarized(run: &RunSpec, machine: &str, repeat: u32, record: &RunRecord) -> Run {
    Run::new(labels(run, machine, repeat), record)
}

/// Why this run, whose system is [on its card](on_card), cannot be run there, whatever is asked of it; nothing where it can: each of
/// its ops has a price, and its models fit.
pub fn refusal(run: &RunSpec, card: &Card) -> Option<String> {
    let server = Server::on_card(card, &cluster(run, card), &run.system, run.tenants).map(drop);
    let refused = match server {
        Err(error) => error.to_string(),
        Ok(()) => {
            let prices = Prices::of_system(card, &run.system, tenantry_sim::Jitter::None);
            let priced = match run.workload.management {
                ManagementSpec::None => prices,
                _ => prices.and_then(|prices| prices.with_management(card)),
            };
            priced.err()?.0.asked_by(&run.file).to_string()
        }
    };
    Some(format!("system {}: {refused}", run.system.name))
}

/// Why a run was not simulated to its end.
pub fn failure_of(run: &RunSpec, error: SimulateError) -> Failure {
    let error = match error {
        SimulateError::Price(PriceError(missing)) => SimulateError::Price(missing.asked_by(&run.file).into()),
        other => other,
    };
    let message = format!("system {}: {error}", run.system.name);
    match error {
        SimulateError::Server(_) | SimulateError::Price(_) | SimulateError::Answers(_) => Failure::BadInput(message),
        SimulateError::Run(error) => run_failure(message, &error),
        SimulateError::Law(_) => Failure::Running(message),
    }
}

/// A trace that cannot be read is the input's fault, whatever else breaks a run off is not.
pub fn run_failure(message: String, error: &RunError) -> Failure {
    match error {
        RunError::Workload(TraceError::Io { .. }) | RunError::Machine(MachineError::Device(_)) => {
            Failure::Running(message)
        }
        RunError::Workload(_) => Failure::BadInput(message),
        RunError::Machine(_) | RunError::Law(_) => Failure::Running(message),
    }
}

/// Sentences on requests that were still inside when nothing more happened.
pub fn unfinished_caveats(runs: &[Run]) -> Vec<String> {
    let left = runs
        .iter()
        .filter(|run| run.summary.requests.unfinished > 0 && !run.summary.interrupted);
    left.map(|run| {
        let (system, left) = (&run.summary.system, run.summary.requests.unfinished);
        format!(
            "{system} on {}: {left} requests were still waiting at the end, for a batch that never filled.",
            run.summary.machine
        )
    })
    .collect()
}

/// A sentence on what was extrapolated, if anything.
pub fn extrapolation_caveat<'a>(extrapolated: impl IntoIterator<Item = &'a Extrapolated>) -> Option<String> {
    let mut farthest: BTreeMap<Family, &Extrapolated> = BTreeMap::new();
    for one in extrapolated {
        let known = farthest.entry(one.family).or_insert(one);
        if one.factor > known.factor {
            *known = one;
        }
    }
    let list: Vec<String> = farthest
        .iter()
        .map(|(family, one)| format!("{family} ({})", one.beyond))
        .collect();
    let list = list.join("; ");
    (!list.is_empty())
        .then(|| format!("Costs beyond the measured range were extrapolated, for each family the farthest: {list}."))
}
