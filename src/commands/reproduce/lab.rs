//! Where a reproduction's figures come from: shipped scenarios, simulated on the papers' cards, or on another.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenantry_core::durations::Durations;
use tenantry_core::{Observer, RunRecord};
use tenantry_profiles::paper::Paper;
use tenantry_profiles::{Card, DType, ModelKind, ModelShape};
use tenantry_reports::RunSummary;
use tenantry_reports::summary::VIRTUAL;
use tenantry_scenarios::RunSpec;
use tenantry_traces::Time;

use super::grounds::{Ground, Grounds};
use super::number::signed;
use crate::cards::{cluster, find_card, on_card};
use crate::cli::ScenarioArgs;
use crate::failure::Failure;
use crate::runs::{Loaded, failure_of, summarized};

/// Simulates.
pub struct Lab {
    interrupt: Arc<AtomicBool>,
    /// In place of the papers' cards.
    card: Option<String>,
    grounds: Grounds,
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
            card,
            grounds: Grounds::default(),
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

    /// A card whose tables are read without a run.
    pub fn card(&self, name: &str) -> Result<Rc<Card>, Failure> {
        let card = Rc::new(find_card(name)?);
        self.grounds.card(&card);
        Ok(card)
    }

    /// The card that stands in for a paper's.
    pub fn other_card(&self) -> Option<&str> {
        self.card.as_deref()
    }

    /// A shipped scenario with changes, as `--set` has them.
    pub fn load(&self, scenario: &str, set: &[&str]) -> Result<Loaded, Failure> {
        let args = ScenarioArgs {
            scenario: scenario.to_owned(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            seed: None,
        };
        let mut loaded = Loaded::load(&args, self.other_card())?;
        if let Some(card) = &self.card {
            let card = find_card(card)?;
            for run in &mut loaded.runs {
                let pool = &mut run.system.pool;
                pool.dtype = dtype_on(&card, &pool.model).unwrap_or(pool.dtype);
            }
            loaded.complete();
        }
        self.grounds.scenario(&loaded);
        Ok(loaded)
    }

    /// All runs of a shipped scenario.
    pub fn runs(&self, scenario: &str, set: &[&str]) -> Result<Runs, Failure> {
        let loaded = self.load(scenario, set)?;
        let runs = loaded.runs.iter().map(|run| self.lab_run(run, loaded.card(run), ()));
        runs.collect::<Result<_, _>>().map(Runs)
    }

    /// Likewise, where the card is made from another value for one of the paper's numbers.
    pub fn runs_with(&self, scenario: &str, set: &[&str], number: &str, value: Changed) -> Result<Runs, Failure> {
        let loaded = self.load(scenario, set)?;
        let run = |run: &RunSpec| {
            let paper = Paper::load(&run.card)?;
            let value = match value {
                Changed::To(value) => value,
                Changed::By(factor) => factor * paper.number(number),
            };
            self.lab_run(run, &paper.with(number, value).card(), ())
        };
        loaded.runs.iter().map(run).collect::<Result<_, _>>().map(Runs)
    }

    /// As [`runs_with`](Self::runs_with); nothing on another card than the paper's, which is not made from its numbers.
    pub fn runs_if(&self, scenario: &str, set: &[&str], number: &str, value: Changed) -> Result<Option<Runs>, Failure> {
        match self.card {
            None => self.runs_with(scenario, set, number, value).map(Some),
            Some(_) => Ok(None),
        }
    }

    /// One run, for whoever watches.
    pub fn run(&self, run: &RunSpec, card: &Card, watch: impl Observer) -> Result<RunSummary, Failure> {
        Ok(self.lab_run(run, card, watch)?.summary)
    }

    fn lab_run(&self, run: &RunSpec, card: &Card, watch: impl Observer) -> Result<LabRun, Failure> {
        let (record, beyond) = self.recorded(run, card, watch)?;
        let summary = summarized(run, VIRTUAL, run.repeat, &record).summary;
        Ok(LabRun { summary, beyond })
    }

    /// The latencies of a system of a shipped scenario, for quantiles that summaries leave out.
    pub fn latencies(&self, loaded: &Loaded, system: &str) -> Result<Durations, Failure> {
        let found = loaded.runs.iter().find(|run| run.system.name == system);
        let run = found.unwrap_or_else(|| panic!("the scenario has a run of {system}"));
        Ok(self.recorded(run, loaded.card(run), ())?.0.latency)
    }

    fn recorded(&self, run: &RunSpec, card: &Card, watch: impl Observer) -> Result<(RunRecord, bool), Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::Running(format!("system {}: {error}", run.system.name));
        let system = on_card(run, card)?.map_err(Failure::BadInput)?;
        let spec = tenantry_sim::Run {
            card,
            cluster: cluster(run, card),
            system: &system,
            tenants: run.tenants,
            warm_up: Time::ZERO + run.warm_up,
            jitter: tenantry_sim::Jitter::None,
            seed: 1,
            answers: run.answers.as_ref().map(|answers| (answers, run.seed)),
        };
        let mut workload = tenantry_traces::build(&run.workload).map_err(|error| failed(&error))?;
        let done = tenantry_sim::simulate(&spec, &mut *workload, Arc::clone(&self.interrupt), watch)
            .map_err(|error| failure_of(run, error))?;
        if done.record.interrupted {
            return Err(Failure::Interrupted("nothing was written".into()));
        }
        let beyond = !done.extrapolated.is_empty();
        self.grounds.run(card, done.extrapolated);
        Ok((done.record, beyond))
    }
}

/// The number format that a card knows a model in, or else others of its kind: papers' cards have single precision, most others half of it.
fn dtype_on(card: &Card, model: &ModelShape) -> Option<DType> {
    let encoders = || { card.tables.encoder_layer.iter() }.map(|row| (&row.model, row.dtype));
    let decoders = || { card.tables.decoder_dense.iter() }.map(|row| (&row.model, row.dtype));
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
        { self.0.iter() }
            .map(|run| &run.summary)
            .find(matches)
            .unwrap_or_else(|| panic!("the scenario has a run of {system} at {at:?}"))
    }

    /// Whether any run of these systems, or of all where none is named, was priced beyond the range of its card's tables.
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
