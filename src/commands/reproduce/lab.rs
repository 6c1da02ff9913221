//! Where a reproduction's figures come from: shipped scenarios, simulated on the papers' cards, or on another.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use tenantry_core::durations::Durations;
use tenantry_core::{Observer, RunRecord, SystemSpec};
use tenantry_profiles::paper::Paper;
use tenantry_profiles::{Beyond, Card, DType, Family, ModelKind, ModelShape};
use tenantry_reports::RunSummary;
use tenantry_reports::summary::VIRTUAL;
use tenantry_scenarios::RunSpec;
use tenantry_traces::Workload;

use super::grounds::{Ground, Grounds};
use super::number::signed;
use super::seeds::Seeds;
use crate::cards::{find_card, on_card, workload};
use crate::cli::ScenarioArgs;
use crate::failure::Failure;
use crate::lookups::Lookups;
use crate::runs::{Loaded, failure_of, simulation, summarized};

/// Simulates.
pub struct Lab {
    interrupt: Arc<AtomicBool>,
    cards: Cards,
    done: Arc<Done>,
    grounds: Grounds,
    /// By name.
    used: RefCell<BTreeSet<String>>,
}

/// Runs that were simulated, by what decides them: figures ask for some of them again, and most of what a card assumes
/// is not read by most runs.
#[derive(Debug, Default)]
pub struct Done(Mutex<HashMap<blake3::Hash, Outcome>>);

/// What came of a run that nobody watched.
#[derive(Clone, Debug)]
struct Outcome {
    summary: RunSummary,
    /// What was priced beyond the range of its card's tables.
    extrapolated: Vec<(Family, Beyond)>,
}

/// What scenarios are simulated on.
#[derive(Debug)]
enum Cards {
    /// The papers'.
    Papers,
    /// The one of this name.
    Other(String),
    /// The papers', where this stands for the one of its name.
    Made(Box<Card>),
}

/// A scenario's runs in its order.
#[derive(Debug)]
pub struct Runs(Vec<LabRun>);

/// A run, and whether any of its ops was priced beyond the range of its card's tables.
#[derive(Debug)]
struct LabRun {
    summary: RunSummary,
    beyond: bool,
}

impl Lab {
    /// One that stops when the flag is set, on another card than the papers' where one is named.
    pub fn new(interrupt: Arc<AtomicBool>, card: Option<String>) -> Lab {
        Lab {
            interrupt,
            cards: card.map_or(Cards::Papers, Cards::Other),
            done: Arc::default(),
            grounds: Grounds::default(),
            used: RefCell::default(),
        }
    }

    /// One on the papers' cards, where `made` stands for the one of its name; with others it shares what is done.
    pub fn with(interrupt: Arc<AtomicBool>, made: Card, done: &Arc<Done>) -> Lab {
        Lab {
            interrupt,
            cards: Cards::Made(Box::new(made)),
            done: Arc::clone(done),
            grounds: Grounds::default(),
            used: RefCell::default(),
        }
    }

    /// What everything since the last call rests on.
    pub fn take_ground(&self) -> Ground {
        self.grounds.take()
    }

    /// What figures rest on, for costs that are read from a card's tables without a run.
    pub fn grounds(&self) -> &Grounds {
        &self.grounds
    }

    /// The cards that all came from, by name.
    pub fn into_cards_used(self) -> BTreeSet<String> {
        self.used.into_inner()
    }

    /// A card whose tables are read without a run.
    pub fn card(&self, name: &str) -> Result<Rc<Card>, Failure> {
        let card = Rc::new(find_card(name)?);
        self.used.borrow_mut().insert(name.to_owned());
        self.grounds.card(&card);
        Ok(card)
    }

    /// The card that stands in for a paper's.
    pub fn other_card(&self) -> Option<&str> {
        match &self.cards {
            Cards::Other(card) => Some(card),
            Cards::Papers | Cards::Made(_) => None,
        }
    }

    /// A shipped scenario with changes, as `--set` has them.
    pub fn load(&self, scenario: &str, set: &[&str]) -> Result<Loaded, Failure> {
        let loaded = load_on(&self.cards, scenario, set)?;
        self.uses(&loaded);
        Ok(loaded)
    }

    fn uses(&self, loaded: &Loaded) {
        self.grounds.scenario(loaded);
        let names = loaded.cards_by_name().map(|(name, _)| name.clone());
        self.used.borrow_mut().extend(names);
    }

    /// All runs of a shipped scenario.
    pub fn runs(&self, scenario: &str, set: &[&str]) -> Result<Runs, Failure> {
        let loaded = self.load(scenario, set)?;
        let runs = loaded.runs.iter().map(|run| (run, loaded.card(run)));
        self.side_by_side(&runs.collect::<Vec<_>>()).map(Runs)
    }

    /// Those of these systems alone.
    pub fn runs_of(&self, systems: &[&str], scenario: &str, set: &[&str]) -> Result<Runs, Failure> {
        let loaded = self.load(scenario, set)?;
        let asked = loaded.runs.iter().filter(|run| systems.contains(&run.system.name.as_str()));
        let runs = asked.map(|run| (run, loaded.card(run)));
        self.side_by_side(&runs.collect::<Vec<_>>()).map(Runs)
    }

    /// Likewise with each of these seeds, which must be an odd number.
    pub fn seeds(&self, scenario: &str, set: &[&str], seeds: &[u64]) -> Result<Seeds, Failure> {
        let cards = &self.cards;
        let load = |seed: &u64| load_on(cards, scenario, &[set, &[&format!("seed={seed}")]].concat());
        let loaded: Vec<Result<Loaded, Failure>> = seeds.par_iter().map(load).collect();
        let loaded = loaded.into_iter().collect::<Result<Vec<Loaded>, Failure>>()?;
        loaded.iter().for_each(|loaded| self.uses(loaded));
        let of_seeds = loaded.iter();
        let runs = of_seeds.flat_map(|loaded| loaded.runs.iter().map(move |run| (run, loaded.card(run))));
        let runs: Vec<(&RunSpec, &Card)> = runs.collect();
        let mut done = self.side_by_side(&runs)?.into_iter();
        let of_seed = |loaded: &Loaded| Runs(done.by_ref().take(loaded.runs.len()).collect());
        Ok(Seeds(loaded.iter().map(of_seed).collect()))
    }

    /// Likewise, where the card is made from another value for one of the paper's numbers.
    pub fn runs_with(&self, scenario: &str, set: &[&str], number: &str, value: Changed) -> Result<Runs, Failure> {
        let loaded = self.load(scenario, set)?;
        let card = |run: &RunSpec| {
            let paper = Paper::load(&run.card)?;
            let value = match value {
                Changed::To(value) => value,
                Changed::By(factor) => factor * paper.number(number),
            };
            Ok(paper.with(number, value).card())
        };
        let cards: Vec<Card> = loaded.runs.iter().map(card).collect::<Result<_, Failure>>()?;
        let runs: Vec<(&RunSpec, &Card)> = loaded.runs.iter().zip(&cards).collect();
        self.side_by_side(&runs).map(Runs)
    }

    /// As [`runs_with`](Self::runs_with); nothing on another card than the paper's, which is not made from its numbers.
    pub fn runs_if(&self, scenario: &str, set: &[&str], number: &str, value: Changed) -> Result<Option<Runs>, Failure> {
        match self.other_card() {
            None => self.runs_with(scenario, set, number, value).map(Some),
            Some(_) => Ok(None),
        }
    }

    /// One run, for whoever watches.
    pub fn run(&self, run: &RunSpec, card: &Card, watch: Option<&mut dyn Observer>) -> Result<RunSummary, Failure> {
        let record = self.recorded(run, card, watch)?;
        Ok(summary_of(run, &record))
    }

    /// The latencies of a system of a shipped scenario, for quantiles that summaries leave out.
    pub fn latencies(&self, loaded: &Loaded, system: &str) -> Result<Durations, Failure> {
        let found = loaded.runs.iter().find(|run| run.system.name == system);
        let run = found.unwrap_or_else(|| panic!("the scenario has a run of {system}"));
        Ok(self.recorded(run, loaded.card(run), None)?.latency)
    }

    fn recorded(&self, run: &RunSpec, card: &Card, watch: Option<&mut dyn Observer>) -> Result<RunRecord, Failure> {
        let system = system_on(run, card)?;
        let (spec, workload) = (spec(run, card, &system), workload(run)?);
        let (record, extrapolated) = simulated(run, &spec, workload, &self.interrupt, watch)?;
        self.grounds.run(card, extrapolated);
        Ok(record)
    }

    /// Runs on their cards, as many at once as there are cores. Their order, and so what comes of them, is that of
    /// `runs`.
    fn side_by_side(&self, runs: &[(&RunSpec, &Card)]) -> Result<Vec<LabRun>, Failure> {
        let (done, interrupt) = (&*self.done, &self.interrupt);
        let outcomes: Vec<_> = runs.par_iter().map(|(run, card)| done.outcome(run, card, interrupt)).collect();
        let noted = |(outcome, (_, card)): (Result<Outcome, Failure>, &(_, &Card))| {
            let Outcome { summary, extrapolated } = outcome?;
            let beyond = !extrapolated.is_empty();
            self.grounds.run(card, extrapolated);
            Ok(LabRun { summary, beyond })
        };
        outcomes.into_iter().zip(runs).map(noted).collect()
    }
}

impl Done {
    /// What came of a run, now or when it was simulated before.
    fn outcome(&self, run: &RunSpec, card: &Card, interrupt: &Arc<AtomicBool>) -> Result<Outcome, Failure> {
        let system = system_on(run, card)?;
        let (spec, workload) = (spec(run, card, &system), workload(run)?);
        let decided = spec
            .decided_by(&*workload)
            .map_err(|error| failure_of(run, card, error.into()))?
            .map(|by| blake3::hash(format!("{run:?} {by}").as_bytes()));
        let known = decided.and_then(|by| self.runs().get(&by).cloned());
        if let Some(outcome) = known {
            return Ok(outcome);
        }
        let (record, extrapolated) = simulated(run, &spec, workload, interrupt, None)?;
        let summary = summary_of(run, &record);
        let outcome = Outcome { summary, extrapolated };
        if let Some(by) = decided {
            self.runs().insert(by, outcome.clone());
        }
        Ok(outcome)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<blake3::Hash, Outcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A shipped scenario with changes.
fn load_on(cards: &Cards, scenario: &str, set: &[&str]) -> Result<Loaded, Failure> {
    let args = ScenarioArgs {
        scenario: scenario.to_owned(),
        set: set.iter().map(|text| (*text).to_owned()).collect(),
        seed: None,
    };
    match cards {
        Cards::Papers => Loaded::load(&args, None),
        Cards::Made(made) => Loaded::load_with(&args, made),
        Cards::Other(card) => {
            let mut loaded = Loaded::load(&args, Some(card))?;
            let card = find_card(card)?;
            for run in &mut loaded.runs {
                let pool = &mut run.system.pool;
                pool.dtype = dtype_on(&card, &pool.model).unwrap_or(pool.dtype);
            }
            loaded.complete();
            Ok(loaded)
        }
    }
}

/// A run's system with what can be known only of its card.
fn system_on(run: &RunSpec, card: &Card) -> Result<SystemSpec, Failure> {
    on_card(run, card, &Lookups::default())?.map_err(Failure::BadInput)
}

/// A run of such a system; what an op takes does not vary by chance.
fn spec<'a>(run: &'a RunSpec, card: &'a Card, system: &'a SystemSpec) -> tenantry_sim::Run<'a> {
    tenantry_sim::Run {
        jitter: tenantry_sim::Jitter::None,
        ..simulation(run, card, system)
    }
}

/// What came of a run, and what was priced beyond the range of its card's tables.
fn simulated(
    run: &RunSpec,
    spec: &tenantry_sim::Run<'_>,
    mut workload: Box<dyn Workload + Send>,
    interrupt: &Arc<AtomicBool>,
    watch: Option<&mut dyn Observer>,
) -> Result<(RunRecord, Vec<(Family, Beyond)>), Failure> {
    let done = tenantry_sim::simulate(spec, &mut *workload, Arc::clone(interrupt), watch)
        .map_err(|error| failure_of(run, spec.card, error))?;
    match done.record.interrupted {
        true => Err(Failure::Interrupted("nothing was written".into())),
        false => Ok((done.record, done.extrapolated)),
    }
}

fn summary_of(run: &RunSpec, record: &RunRecord) -> RunSummary {
    summarized(run, VIRTUAL, run.repeat, record).summary
}

/// The number format that a card knows a model in, or else others of its kind: papers' cards have single precision,
/// most others half of it.
fn dtype_on(card: &Card, model: &ModelShape) -> Option<DType> {
    let encoders = || card.tables.encoder_layer.iter().map(|row| (&row.model, row.dtype));
    let decoders = || card.tables.decoder_dense.iter().map(|row| (&row.model, row.dtype));
    let own = encoders().chain(decoders()).find(|(name, _)| **name == model.name);
    let of_kind = match model.kind {
        ModelKind::Encoder => encoders().next(),
        ModelKind::Decoder => decoders().next(),
    };
    own.or(of_kind).map(|(_, dtype)| dtype)
}

/// How a number of a paper is changed.
#[derive(Clone, Copy, Debug)]
pub enum Changed {
    /// To this value.
    To(f64),
    /// To so many times its value.
    By(f64),
}

impl Runs {
    /// The run of a system; the first where a sweep gives several.
    pub fn of(&self, system: &str) -> &RunSummary {
        self.find(system, &[])
    }

    /// The run of a system at a sweep point, of which the values named by `at` are given as JSON.
    pub fn find(&self, system: &str, at: &[(&str, serde_json::Value)]) -> &RunSummary {
        let matches = |run: &&RunSummary| {
            run.system == system && at.iter().all(|(path, value)| run.parameters.get(*path) == Some(value))
        };
        self.0
            .iter()
            .map(|run| &run.summary)
            .find(matches)
            .unwrap_or_else(|| panic!("the scenario has a run of {system} at {at:?}"))
    }

    /// Whether any run of these systems, or of all where none is named, was priced beyond the range of its card's
    /// tables.
    pub fn beyond(&self, systems: &[&str]) -> bool {
        let asked = |run: &LabRun| systems.is_empty() || systems.contains(&run.summary.system.as_str());
        self.0.iter().any(|run| run.beyond && asked(run))
    }

    /// The run of a system among so many tenants.
    pub fn among(&self, system: &str, tenants: u32) -> &RunSummary {
        self.find(system, &[("tenants.count", tenants.into())])
    }
}

/// Requests a second; 0 where none was answered.
pub fn rate(run: &RunSummary) -> f64 {
    run.throughput_rps.unwrap_or(0.0)
}

/// Tokens made a second; 0 where there are none.
pub fn tokens_per_s(run: &RunSummary) -> f64 {
    run.output_tokens_per_s.unwrap_or(0.0)
}

/// Mean latency in milliseconds; infinite where nothing was answered.
pub fn latency_ms(run: &RunSummary) -> f64 {
    run.latency_ms.map_or(f64::INFINITY, |latency| latency.mean)
}

/// What a change does to a figure: `+1.2 %`.
pub fn change(from: f64, to: f64) -> String {
    format!("{} %", signed(100.0 * (to / from - 1.0), 1))
}
