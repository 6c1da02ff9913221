//! Runs the cells of a search.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use indicatif::ProgressBar;
use rayon::prelude::*;
use tenantry_core::RunRecord;
use tenantry_core::spec::PipelineSpec;
use tenantry_profiles::Card;
use tenantry_profiles::roofline::complete;
use tenantry_reports::plan::CANNOT_RUN;
use tenantry_reports::summary::VIRTUAL;
use tenantry_reports::tasks::TASK_OUT_OF_MEMORY;
use tenantry_reports::{RunSummary, human};
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Objective, RunSpec, Scenario};
use tenantry_sim::plan::{Bursts, Candidate, Cell, Sample};
use tenantry_traces::Time;

use crate::cards::{card_of, needs, on_card, refusal};
use crate::caveats::{
    AnotherRate, Extrapolated, TableUsed, another_rate_caveat, extrapolation_caveat, of_answer, table_caveats,
};
use crate::failure::Failure;
use crate::lookups::Lookups;
use crate::planning::accuracy::Answers;
use crate::planning::binds::{FIND_NO_MEMORY, GIVEN_UP};
use crate::planning::dispersion::Evenness;
use crate::planning::judge::{Judge, Judged, not_interrupted};
use crate::planning::kept::{PlanRun, PlanRuns, Served};
use crate::planning::offers::{Offer, Point, cost_per_hour, levels};
use crate::planning::strain::Strain;
use crate::runs::{simulate_watched, summarized};

mod loads;
mod longer;

pub use self::loads::OtherSeeds;

/// Seeds that show how much runs differ.
const SEEDS: u32 = 3;

/// Requests that come by themselves are late in heaps where lanes are busier than this.
const NEAR_CAPACITY: f64 = 0.85;

/// How many times the scenario's load, by its bits, and how many tenants.
type Load = (u64, u32);

/// What was run of a plan so far, for all searches that are made for it.
#[derive(Default)]
pub struct Known {
    runs: Mutex<PlanRuns>,
    /// Of the same plan, made before it was interrupted, and not asked for again yet.
    kept: Mutex<PlanRuns>,
    judged: Mutex<BTreeMap<(u64, u32, u32), Judged>>,
    /// Of each load, with so many tenants.
    evenness: Mutex<BTreeMap<Load, Evenness>>,
    /// Of each even load that keeps a cell busy, when its requests come by many seeds.
    arrivals: Mutex<BTreeMap<Load, Option<Arc<Bursts>>>>,
    /// Of many times as many requests, the share in time where surely too few are.
    longer: Mutex<BTreeMap<Served, Option<f64>>>,
    lookups: Lookups,
    made: AtomicUsize,
}

impl Known {
    /// With what was run before.
    pub fn with(kept: PlanRuns) -> Known {
        Known {
            kept: Mutex::new(kept),
            ..Known::default()
        }
    }

    /// All that was run, now or before.
    pub fn into_runs(self) -> PlanRuns {
        let unlocked = |of: Mutex<PlanRuns>| of.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut runs = unlocked(self.runs);
        for run in runs.values_mut() {
            run.has_bursts = run.sample.bursts.is_some();
        }
        let mut all = unlocked(self.kept);
        all.extend(runs);
        all
    }
}

/// Makes runs of a plan's cells, and remembers what they showed.
pub struct Evaluator<'a> {
    scenario: &'a Scenario,
    pub plan: &'a Plan,
    pub offers: Vec<Offer<'a>>,
    /// Of each offer.
    pub levels: Vec<Vec<Point>>,
    /// How many times every load, for the question what more or less of it would change.
    shift: f64,
    cards: BTreeMap<&'a str, Card>,
    known: Arc<Known>,
    pub other_seeds: OtherSeeds,
    /// Runs of a cell at most: one where other seeds bring the same requests.
    pub repeats: u32,
    /// Of cells that fall behind, the share in time of many times as many requests, at most.
    behind: Mutex<BTreeMap<Cell, f64>>,
    interrupt: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl<'a> Evaluator<'a> {
    /// Of a scenario with a plan. Every offer must be valid at its most generous level.
    pub fn new(
        scenario: &'a Scenario,
        plan: &'a Plan,
        shift: f64,
        known: Arc<Known>,
        interrupt: Arc<AtomicBool>,
        bar: ProgressBar,
    ) -> Result<Evaluator<'a>, Failure> {
        let mut offers = Vec::new();
        let mut cards = BTreeMap::new();
        for (card, price) in &plan.cards {
            cards.insert(card.as_str(), card_of(scenario, card)?);
            offers.extend(plan.ways.iter().enumerate().map(|(index, way)| Offer {
                way,
                index,
                card,
                price: *price,
            }));
        }
        let with_levels = offers.into_iter().map(|offer| (offer, levels(scenario, plan, &offer)));
        // What not even one card of may be had is no offer.
        let (offers, levels): (Vec<Offer<'_>>, Vec<Vec<Point>>) =
            with_levels.filter(|(_, levels)| !levels.is_empty()).unzip();
        if offers.is_empty() {
            let must = "enough for the fewest of plan.gpus of one of plan.cards";
            let got = plan.max_cost_per_hour.unwrap_or_default();
            return Err(Failure::bad_input(scenario.wrong("plan.max_cost_per_hour", must, got)));
        }
        let mut evaluator = Evaluator {
            scenario,
            plan,
            offers,
            levels,
            shift,
            cards,
            known,
            other_seeds: OtherSeeds::Others,
            repeats: plan.repeats,
            behind: Mutex::default(),
            interrupt,
            bar,
        };
        for (candidate, levels) in evaluator.levels.iter().enumerate() {
            let level = levels.len() - 1;
            let made = evaluator.scenario_of(Cell { candidate, level }, 1);
            let card = evaluator.cards.get_mut(evaluator.offers[candidate].card);
            let card = card.expect("each offer's card was found");
            // Its choices may need what no other offer does.
            for run in made.map_err(Failure::BadInput)?.runs() {
                complete(card, needs(&run));
            }
        }
        evaluator.other_seeds = evaluator.other_seeds_bring()?;
        if evaluator.has_one_workload() {
            evaluator.repeats = 1;
        }
        Ok(evaluator)
    }

    /// As the search sees them. `prices` replaces those of some cards.
    pub fn candidates(&self, prices: &BTreeMap<&str, f64>) -> Vec<Candidate> {
        let value = |offer: &Offer<'_>, point: &Point| match self.plan.find {
            Objective::FewestCards | Objective::TightestLatency => f64::from(point.gpus),
            Objective::LeastCost => {
                let price = prices.get(offer.card).copied().or(offer.price);
                cost_per_hour(price.unwrap_or(1.0), point.gpus)
            }
            Objective::MostTenants => -f64::from(point.tenants),
            Objective::HighestRate => -point.load,
        };
        let candidate = |(offer, levels): (&Offer<'_>, &Vec<Point>)| Candidate {
            values: levels.iter().map(|point| value(offer, point)).collect(),
        };
        self.offers.iter().zip(&self.levels).map(candidate).collect()
    }

    /// What a reader must know of the tables that priced the runs so far.
    pub fn caveats(&self) -> Vec<String> {
        let used = self.cards.values().flat_map(TableUsed::of_card).collect();
        let mut caveats = table_caveats(&used);
        let runs = locked(&self.known.runs);
        let beyond: Vec<Extrapolated> = runs.values().flat_map(|run| run.extrapolated.clone()).collect();
        caveats.extend(extrapolation_caveat(&beyond));
        caveats
    }

    /// What a cell is.
    pub fn point(&self, cell: Cell) -> Point {
        self.levels[cell.candidate][cell.level]
    }

    /// Runs that were made, for this and for what shares what is known.
    pub fn made(&self) -> usize {
        self.known.made.load(Ordering::Relaxed)
    }

    fn served(&self, cell: Cell) -> Served {
        let (offer, point) = (&self.offers[cell.candidate], self.point(cell));
        let load = (point.load * self.shift).to_bits();
        (offer.index, offer.card.to_owned(), point.gpus, point.tenants, load)
    }

    /// A cell as a scenario of its own; why not, where it is not valid.
    pub fn scenario_of(&self, cell: Cell, repeats: u32) -> Result<Scenario, String> {
        let offer = &self.offers[cell.candidate];
        let point = self.point(cell);
        let load = point.load * self.shift;
        let variant = offer.at(Point { load, ..point }, repeats);
        self.scenario.variant(&variant).map_err(|errors| errors.to_string())
    }

    /// Runs cells side by side. Each repeat has its seed, whatever the cell.
    pub fn run(&self, cells: &[(Cell, u32)]) -> Result<Vec<Sample>, Failure> {
        // Each load once, and not once for each of the runs that are to be made side by side.
        for (cell, _) in cells {
            self.evenness(*cell)?;
        }
        let samples = cells
            .par_iter()
            .map(|&(cell, repeat)| self.one(cell, repeat, false))
            .collect::<Result<Vec<Sample>, Failure>>();
        self.not_interrupted()?;
        let mut samples = samples?;
        for ((cell, _), sample) in cells.iter().zip(&mut samples) {
            let near_capacity = sample.busy >= NEAR_CAPACITY && sample.judged > 0;
            if near_capacity && sample.bursts.is_none() {
                sample.bursts = self.arrivals(*cell)?;
            }
        }
        Ok(samples)
    }

    fn not_interrupted(&self) -> Result<(), Failure> {
        not_interrupted(&self.interrupt)
    }

    fn one(&self, cell: Cell, repeat: u32, in_full: bool) -> Result<Sample, Failure> {
        let key = (self.served(cell), repeat);
        if !in_full {
            if let Some(known) = locked(&self.known.runs).get(&key) {
                return Ok(known.sample.clone());
            }
            if let Some(kept) = self.kept(cell, &key)? {
                return Ok(kept);
            }
        }
        let made = match self.run_of(cell, repeat)? {
            Err(why) => refuse(format!("{CANNOT_RUN}{why}")),
            Ok(run) => self.simulated(cell, repeat, &run, in_full)?,
        };
        let sample = made.sample.clone();
        self.count(1);
        let mut runs = locked(&self.known.runs);
        match runs.get_mut(&key) {
            // Decided by what was seen of it before it was stopped; its figures are those of the whole.
            Some(known) if in_full => {
                known.summary = made.summary;
                known.extrapolated = made.extrapolated;
            }
            _ => drop(runs.insert(key, made)),
        }
        Ok(sample)
    }

    /// A run that was made before the plan was interrupted: as if it were made now.
    fn kept(&self, cell: Cell, key: &(Served, u32)) -> Result<Option<Sample>, Failure> {
        let Some(mut kept) = locked(&self.known.kept).remove(key) else {
            return Ok(None);
        };
        if kept.has_bursts {
            kept.sample.bursts = self.evenness(cell)?.bursts;
        }
        if let Ok(run) = self.run_of(cell, key.1)? {
            self.judged(&run, cell, key.1)?;
        }
        self.count(1 + kept.extra_runs);
        let sample = kept.sample.clone();
        locked(&self.known.runs).insert(key.clone(), kept);
        Ok(Some(sample))
    }

    fn count(&self, runs: u32) {
        self.known.made.fetch_add(runs as usize, Ordering::Relaxed);
        self.bar.inc(runs.into());
    }

    /// A run of a cell to its end, even if it is hopeless: for a figure of it.
    pub fn in_full(&self, cell: Cell, repeat: u32) -> Result<Sample, Failure> {
        self.one(cell, repeat, true)
    }

    /// A run of a cell to its end: how busy lanes were while late requests were inside. Nothing where none were.
    pub fn strained(&self, cell: Cell, repeat: u32) -> Result<Option<RunSummary>, Failure> {
        let (Ok(run), Some(slo)) = (self.run_of(cell, repeat)?, self.scenario.slo) else {
            return Ok(None);
        };
        let judged = self.judged(&run, cell, repeat)?;
        let Some(span_s) = judged.span_s else {
            return Ok(None);
        };
        let mut strain = Strain::new(Time::ZERO + run.warm_up, judged.from, span_s, slo.target, run.gpus);
        let interrupt = Arc::clone(&self.interrupt);
        let done = simulate_watched(&run, &self.cards[run.card.as_str()], interrupt, Some(&mut strain))?;
        self.not_interrupted()?;
        self.count(1);
        let mut summary = summarized(&run, VIRTUAL, repeat, &done.record).summary;
        Ok(strain.tell(&done.record, &mut summary).then_some(summary))
    }

    /// Whether a batch's copies and its computing take turns.
    pub fn takes_turns(&self, cell: Cell) -> Result<bool, Failure> {
        let run = self.run_of(cell, 0)?;
        // A decoder's adapters come in beside its steps.
        Ok(run.is_ok_and(|run| {
            run.system.pool.generation.is_none() && run.system.pool.pipeline == PipelineSpec::SYNCHRONOUS
        }))
    }

    /// A repeat of a cell; why not, where its card cannot run it.
    fn run_of(&self, cell: Cell, repeat: u32) -> Result<Result<RunSpec, String>, Failure> {
        let scenario = match self.scenario_of(cell, repeat + 1) {
            Ok(scenario) => scenario,
            Err(why) => return Ok(Err(why)),
        };
        let run = scenario.runs().pop().expect("one system, and at least one repeat");
        let card = &self.cards[run.card.as_str()];
        let run = match on_card(&run, card, &self.known.lookups)? {
            Ok(system) => RunSpec { system, ..run },
            Err(why) => return Ok(Err(why)),
        };
        Ok(match refusal(&run, card) {
            Some(why) => Err(why),
            None => Ok(run),
        })
    }

    fn simulated(&self, cell: Cell, repeat: u32, run: &RunSpec, in_full: bool) -> Result<PlanRun, Failure> {
        let card = &self.cards[run.card.as_str()];
        let judged = self.judged(run, cell, repeat)?;
        if judged.requests() == 0 {
            // Another seed, or a higher rate, may bring some.
            return Ok(PlanRun::of(Sample::empty()));
        }
        let user = Arc::clone(&self.interrupt);
        let evenness = self.evenness(cell)?;
        let mut judge = Judge::new(run, judged, evenness, self.quantile(), self.repeats, user);
        if in_full {
            judge.never_stop();
        }
        let done = simulate_watched(run, card, judge.stop(), Some(&mut judge))?;
        self.not_interrupted()?;
        let summary = summarized(run, VIRTUAL, repeat, &done.record).summary;
        let busy = summary.lanes.values().map(|lane| lane.busy_share).fold(0.0, f64::max);
        let mut made = PlanRun::of(nothing());
        made.extrapolated = done.extrapolated.into_iter().map(Extrapolated::from).collect();
        made.refused = without_memory(&summary);
        if repeat == 0 {
            made.summary = Some(summary);
            if made.refused.is_none() && !in_full {
                let (answers, extra_runs) = self.answers_like(cell, &done.record)?;
                made.refused = self.too_often_wrong(answers);
                (made.answers, made.extra_runs) = (Some(answers), extra_runs);
            }
        }
        if made.refused.is_none() {
            made.sample = judge.finish(&done.record, busy);
        }
        Ok(made)
    }

    /// How often a cell is right: in its first run, and in as many repeats as it takes to be sure whether that is often
    /// enough. How many these were.
    fn answers_like(&self, cell: Cell, first: &RunRecord) -> Result<(Answers, u32), Failure> {
        let mut answers = Answers::of(first);
        let mut extra_runs = 0;
        let Some(least) = self.plan.min_accuracy else {
            return Ok((answers, extra_runs));
        };
        for repeat in 1..self.plan.repeats {
            if answers.sure(least) >= self.plan.confidence {
                break;
            }
            let Ok(run) = self.run_of(cell, repeat)? else { break };
            let card = &self.cards[run.card.as_str()];
            let done = simulate_watched(&run, card, Arc::clone(&self.interrupt), None)?;
            self.not_interrupted()?;
            answers = answers + Answers::of(&done.record);
            extra_runs += 1;
            self.count(1);
        }
        Ok((answers, extra_runs))
    }

    /// Why a cell is no answer, where too few of its answers are right.
    fn too_often_wrong(&self, answers: Answers) -> Option<String> {
        let least = self.plan.min_accuracy?;
        let share = human::percent(answers.share().unwrap_or(0.0));
        let must = human::percent(least);
        let wrong = !answers.are_enough(least);
        wrong.then(|| format!("{GIVEN_UP}{share} of its answers are right, and {must} must be"))
    }

    /// What is known by a cell's first run; nothing where it was not run.
    fn first<T>(&self, cell: Cell, known: impl FnOnce(&PlanRun) -> Option<T>) -> Option<T> {
        known(locked(&self.known.runs).get(&(self.served(cell), 0))?)
    }

    /// A cell's answers that were judged; nothing where it was not run.
    pub fn answers(&self, cell: Cell) -> Option<Answers> {
        self.first(cell, |run| run.answers)
    }

    /// The first run of a cell; nothing where it was not run.
    pub fn seen(&self, cell: Cell) -> Option<RunSummary> {
        self.first(cell, |run| run.summary.clone())
    }

    /// What costs so much an hour, for a million requests that are answered: in the first run some may not have been.
    pub fn cost_per_million(&self, cell: Cell, an_hour: f64) -> Option<f64> {
        let of_first = self.seen(cell).map(|seen| seen.requests);
        let answered = of_first.map_or(1.0, |of| of.finished as f64 / of.offered.max(1) as f64);
        Some(an_hour / 3600.0 / (self.rate_per_s(cell)? * answered) * 1e6).filter(|cost| cost.is_finite())
    }

    /// What a reader must know of the first run of the cell that is the answer.
    pub fn caveats_of_answer(&self, cell: Cell) -> Result<Vec<String>, Failure> {
        let (Some(seen), Ok(run)) = (self.seen(cell), self.run_of(cell, 0)?) else {
            return Ok(Vec::new());
        };
        let offered = seen.requests.offered;
        let came = self.came_per_s(cell).and_then(|rate| AnotherRate::of_rate(&run.workload, rate, offered));
        let said = of_answer(&run, &self.cards[run.card.as_str()], &seen);
        Ok([another_rate_caveat(came, 1), said].concat())
    }

    /// Why a cell is no answer whatever its load, where that is so.
    pub fn refused(&self, cell: Cell) -> Option<String> {
        let served = self.served(cell);
        let runs = locked(&self.known.runs);
        let mut repeats = runs.range((served.clone(), 0)..=(served, u32::MAX));
        let refused = repeats.find_map(|(_, run)| run.refused.clone());
        refused.or_else(|| self.behind(cell))
    }

    /// Runs of a cell for which the search asked `asked` times; none where its card cannot run it.
    pub fn runs(&self, cell: Cell, asked: usize) -> u32 {
        let cannot_run = |run: &PlanRun| run.refused.as_ref().is_some_and(|why| why.starts_with(CANNOT_RUN));
        let extra = self.first(cell, |run| (!cannot_run(run)).then_some(run.extra_runs));
        extra.map_or(0, |extra| asked as u32 + extra)
    }

    /// Whether requests are to be answered in time, and not only answered.
    pub fn has_target(&self) -> bool {
        self.scenario.slo.is_some()
    }

    /// Where the latency is read off: at the objective's quantile.
    pub fn quantile(&self) -> f64 {
        self.scenario.slo.map_or(0.98, |slo| slo.quantile)
    }

    /// Seeds that a decision takes at least.
    pub fn seeds(&self) -> u32 {
        SEEDS.min(self.repeats)
    }
}

/// What is remembered under a key, or else is found, once.
fn remembered<K: Ord, V: Clone>(
    known: &Mutex<BTreeMap<K, V>>,
    key: K,
    find: impl FnOnce() -> Result<V, Failure>,
) -> Result<V, Failure> {
    if let Some(known) = locked(known).get(&key) {
        return Ok(known.clone());
    }
    let found = find()?;
    locked(known).insert(key, found.clone());
    Ok(found)
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that is no answer.
fn nothing() -> Sample {
    Sample {
        hopeless: true,
        refused: true,
        busy: 1.0,
        ..Sample::empty()
    }
}

/// What cannot be run, has no memory for some tenants or is wrong too often meets nothing. It counts as busy: what does
/// not fit on some cards will not fit on fewer, and how often a system is right does not depend on its cards.
fn refuse(why: String) -> PlanRun {
    PlanRun {
        refused: Some(why),
        ..PlanRun::of(nothing())
    }
}

/// Who is refused for want of memory is never served, however few ask for it.
fn without_memory(summary: &RunSummary) -> Option<String> {
    let tasks = summary.tasks.as_ref()?;
    let refused = tasks.refused.get(TASK_OUT_OF_MEMORY)?;
    let all = human::count(tasks.registrations.into());
    Some(format!(
        "{GIVEN_UP}{} of {all} {FIND_NO_MEMORY}",
        human::count((*refused).into())
    ))
}
