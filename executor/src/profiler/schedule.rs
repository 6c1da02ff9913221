//! In what order points are measured, and for how long.
//!
//! Every round visits each unfinished point once, in an order of its own, so that a machine that grows warm or busy
//! disturbs all tables alike. A visit measures several times in a row, as serving repeats the same op.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tch::Device;
use tenantry_profiles::{Certainty, Family, Stats, Tables};
use tenantry_traces::draw::{Draws, Purpose};

use super::Progress;
use super::outcome::{Failure, Outcome};
use super::stats::{Samples, Visits};
use crate::device::{give_memory_back, synchronize};
use crate::error::ExecutorError;

/// A point is finished when its median is known this well.
const RELATIVE_HALF_WIDTH: f64 = 0.02;
/// A point with fewer visits when the time is over is visited nevertheless: measurements of one visit vary less than
/// those of two.
const VISITS_NEEDED: usize = 3;
/// No point is visited more often: the tails are known by then.
const VISITS_MAX: usize = 60;
/// Nor is one measured more often in one visit.
const MEASUREMENTS_A_VISIT: usize = 100;
/// What a visit lasts at most; a slower op is measured once a visit.
const VISIT: Duration = Duration::from_millis(5);
/// What a visit lasts where the time would not do for [`VISITS_WANTED`] otherwise.
const VISIT_LEAST: Duration = Duration::from_millis(1);
/// Visits that each point is to have: fewer than six tell nothing of how well the median is known, and slow ops take
/// more than their part.
const VISITS_WANTED: u32 = 16;
/// How long a visit repeats an op before its measurements count: other points have filled the caches meanwhile, and a
/// core gets back half of what it has lost in each 2.4 ms of work (docs/validation.md). What serving finds cold is
/// measured by itself (`resume.rs`).
const WARM_UP: Duration = Duration::from_millis(5);
/// How often a table is measured again in which an op costs less than a smaller one.
const SETTLE_ROUNDS: u32 = 3;
/// How long such a table is measured again, for each of its points.
const SETTLE: Duration = Duration::from_millis(150);
/// How much measuring a crash may cost,
const KEEP: Duration = Duration::from_secs(10);
/// and how many times as long as it takes to keep it, so that that takes little of the time.
const KEEP_OVER_WRITE: u32 = 50;

/// Does an op once and says how long it took.
pub(crate) type Measure<'a> = Box<dyn FnMut() -> Result<Duration, ExecutorError> + 'a>;
type Record<'a> = Box<dyn Fn(&mut Tables, Stats) + 'a>;

/// One point of one table.
pub(crate) struct Point<'a> {
    table: String,
    measure: Measure<'a>,
    record: Record<'a>,
    visits: Visits,
    /// Whether it is no part of its table, and checks it.
    held_out: bool,
    finished: bool,
    /// Why it cannot be measured.
    failure: Option<Failure>,
}

impl<'a> Point<'a> {
    /// A point of `table`, which is saved if all its points are measured. `measure` does the op once and says how long
    /// it took, `record` adds the point's row.
    pub fn new(
        table: String,
        measure: impl FnMut() -> Result<Duration, ExecutorError> + 'a,
        record: impl Fn(&mut Tables, Stats) + 'a,
    ) -> Point<'a> {
        let (measure, record) = (Box::new(measure), Box::new(record));
        Point {
            table,
            measure,
            record,
            visits: Visits::default(),
            held_out: false,
            finished: false,
            failure: None,
        }
    }

    /// The same, held out of its table or not.
    pub fn held_out(self, held_out: bool) -> Point<'a> {
        Point { held_out, ..self }
    }

    /// Whether it is of a table that is not among these.
    pub fn is_lacking(&self, there: &[(Family, String)]) -> bool {
        let mut row = Tables::default();
        self.lay_out(&mut row);
        !row.names().iter().all(|own| there.contains(own))
    }

    /// Where its rows lie.
    fn at(&self) -> Vec<String> {
        let mut rows = Tables::default();
        self.lay_out(&mut rows);
        rows.places()
    }

    /// Whether another schedule's measurements are of this point.
    fn is_of(&self, state: &PointState) -> bool {
        self.table == state.table && state.at.as_ref().is_none_or(|at| *at == self.at()) && state.visits.are_sound()
    }

    /// Adds its row, of which only where it lies means something.
    pub fn lay_out(&self, tables: &mut Tables) {
        (self.record)(tables, Stats::exact(1.0));
    }

    fn visit(&mut self, warm_up: Duration, lasting: Duration) -> Result<(), ExecutorError> {
        let mut start = Instant::now();
        (self.measure)()?;
        // A graph that is captured, or kernels that are loaded, when a point is first measured, warm nothing up.
        if self.visits.count() == 0 && start.elapsed() > warm_up {
            start = Instant::now();
        }
        while start.elapsed() < warm_up {
            (self.measure)()?;
        }
        let mut visit = Samples::default();
        let start = Instant::now();
        while visit.count() == 0 || start.elapsed() < lasting && visit.count() < MEASUREMENTS_A_VISIT {
            visit.push(micros((self.measure)()?));
        }
        self.visits.push(visit);
        self.finished = self.is_finished();
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.visits.count() >= VISITS_MAX || self.is_known()
    }

    fn is_known(&self) -> bool {
        self.visits.relative_half_width() <= RELATIVE_HALF_WIDTH
    }

    fn is_usable(&self) -> bool {
        self.visits.count() >= VISITS_NEEDED
    }

    /// Whether it was visited too rarely to tell how well its median is known, and so how far its measurements spread.
    fn is_rarely_visited(&self) -> bool {
        self.visits.relative_half_width().is_infinite()
    }

    /// What came out of it, spread as [those visited as rarely](Schedule::spreads) are together, if it is one of them.
    fn stats(&self, spreads: &BTreeMap<&str, Stats>) -> Stats {
        let own = self.visits.stats();
        match spreads.get(self.table.as_str()) {
            Some(&others) if self.is_rarely_visited() => own.spread_like(others),
            _ => own,
        }
    }
}

fn micros(duration: Duration) -> f64 {
    // The clock may not resolve an op; a table's costs are positive.
    (duration.as_nanos() as f64 / 1e3).max(1e-3)
}

/// How far a schedule has come: all that it takes to go on as if nothing had happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    round: u64,
    /// Points that this round has not visited, the next one last.
    rest: Vec<usize>,
    points: Vec<PointState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PointState {
    table: String,
    /// Where it lies, if it was visited.
    at: Option<Vec<String>>,
    visits: Visits,
    failure: Option<Failure>,
    /// With all of its table.
    given_up: bool,
}

/// When measuring ends, and who hears how far it is.
pub(crate) struct Watch<'a> {
    pub until: Instant,
    pub progress: &'a mut dyn FnMut(Progress),
    /// Is given the state every few seconds, and when the user asks to stop.
    pub keep: &'a mut dyn FnMut(State) -> Result<(), ExecutorError>,
    pub interrupted: &'a AtomicBool,
}

/// Points, and in which order they are visited.
pub(crate) struct Schedule<'a> {
    points: Vec<Point<'a>>,
    seed: u64,
    /// Rounds that have begun.
    round: u64,
    /// Points that this round has not visited, the next one last.
    rest: Vec<usize>,
    /// What a visit lasts, once it is warm.
    visit: Duration,
    warm_up: Duration,
    /// Of the points.
    device: Device,
}

impl<'a> Schedule<'a> {
    pub fn new(points: Vec<Point<'a>>, device: Device, seed: u64) -> Schedule<'a> {
        Schedule {
            points,
            device,
            seed,
            round: 0,
            rest: Vec::new(),
            visit: VISIT,
            warm_up: WARM_UP,
        }
    }

    /// The same, with visits so short that this time allows enough of them, each with its warm-up.
    pub fn within(self, time: Duration) -> Schedule<'a> {
        let visits = VISITS_WANTED * (self.points.len() as u32).max(1);
        Schedule {
            visit: (time / visits).saturating_sub(self.warm_up).clamp(VISIT_LEAST, VISIT),
            ..self
        }
    }

    /// Goes on where another schedule of the same points stopped. False, and nothing is changed, where they are not the
    /// same.
    pub fn resume(&mut self, state: State) -> bool {
        let are_ours = self.points.len() == state.points.len()
            && self.points.iter().zip(&state.points).all(|(point, state)| point.is_of(state));
        if !are_ours || state.rest.iter().any(|&index| index >= self.points.len()) {
            return false;
        }
        (self.round, self.rest) = (state.round, state.rest);
        for (point, state) in self.points.iter_mut().zip(state.points) {
            point.visits = state.visits;
            point.failure = state.failure;
            point.finished = state.given_up || point.is_finished();
        }
        true
    }

    pub fn state(&self) -> State {
        let point = |point: &Point<'_>| PointState {
            table: point.table.clone(),
            at: (point.visits.count() > 0).then(|| point.at()),
            visits: point.visits.clone(),
            failure: point.failure.clone(),
            given_up: point.finished && !point.is_usable(),
        };
        State {
            round: self.round,
            rest: self.rest.clone(),
            points: self.points.iter().map(point).collect(),
        }
    }

    /// Visits the points of tables once more in which an op costs less than a smaller one, beyond both spreads: the
    /// machine was disturbed meanwhile. What was measured before counts on, since a few new visits of a large table may
    /// be as disturbed. Says which tables those were. Begins no further round after `time`.
    pub fn settle(&mut self, time: Duration, watch: &mut Watch<'_>) -> Result<Vec<String>, ExecutorError> {
        let end = Instant::now() + time;
        let mut settled = Vec::new();
        for _ in 0..SETTLE_ROUNDS {
            // What an interrupted run has is kept as it is, for the one that goes on.
            if watch.interrupted.load(Ordering::Relaxed) || Instant::now() >= end {
                break;
            }
            let dipped = self.dipped();
            let mut points = 0;
            for point in self.points.iter_mut().filter(|point| dipped.contains(&point.table)) {
                point.finished = false;
                points += 1;
            }
            if points == 0 {
                break;
            }
            self.rest.clear();
            watch.until = end.min(Instant::now() + SETTLE * points);
            self.measure(watch)?;
            settled.extend(dipped);
        }
        settled.sort();
        settled.dedup();
        Ok(settled)
    }

    /// By table that has points which were visited rarely: how far measurements spread about their points' medians, of
    /// all points together. Of three visits one that met a disturbance would make a third of its op's costs slow; it
    /// meets any point as likely.
    fn spreads(&self) -> BTreeMap<&str, Stats> {
        let mut deviations: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let usable = || self.points.iter().filter(|point| point.is_usable());
        let rarely: BTreeSet<&str> =
            usable().filter(|point| point.is_rarely_visited()).map(|point| &*point.table).collect();
        for point in usable().filter(|point| rarely.contains(&*point.table)) {
            deviations.entry(&point.table).or_default().extend(point.visits.deviations());
        }
        let spread = |(table, mut deviations): (_, Vec<f64>)| (table, Stats::of(&mut deviations));
        deviations.into_iter().map(spread).collect()
    }

    /// The tables with an op that costs less than a smaller one.
    fn dipped(&self) -> Vec<String> {
        let mut by_table: BTreeMap<&str, Tables> = BTreeMap::new();
        let spreads = self.spreads();
        for point in self.points.iter().filter(|point| point.is_usable() && !point.held_out) {
            (point.record)(by_table.entry(&point.table).or_default(), point.stats(&spreads));
        }
        let dipped = by_table.into_iter().filter(|(_, table)| table.dips());
        dipped.map(|(name, _)| name.to_string()).collect()
    }

    /// What points with too few visits still take, where visits last as long as so far.
    fn still_needed(&self, visiting: Duration, visits: u32) -> Duration {
        let unusable = self.points.iter().filter(|point| !point.is_usable() && !point.finished);
        let missing: usize = unusable.map(|point| VISITS_NEEDED - point.visits.count()).sum();
        visiting / visits.max(1) * missing as u32
    }

    /// Measures until all points are finished or the time is over.
    pub fn measure(&mut self, watch: &mut Watch<'_>) -> Result<(), ExecutorError> {
        let (mut kept, mut keep_every) = (Instant::now(), KEEP);
        let (mut visiting, mut visits) = (Duration::ZERO, 0);
        loop {
            if watch.interrupted.load(Ordering::Relaxed) {
                return (watch.keep)(self.state());
            }
            let time_left = watch.until.saturating_duration_since(Instant::now());
            let wanted = |point: &Point<'_>| !(point.finished || time_left.is_zero() && point.is_usable());
            if !self.points.iter().any(wanted) {
                return Ok(());
            }
            let Some(index) = self.rest.pop() else {
                self.rest = (0..self.points.len()).filter(|&index| !self.points[index].finished).collect();
                shuffle(&mut self.rest, self.seed, self.round);
                self.round += 1;
                continue;
            };
            if !wanted(&self.points[index]) {
                continue;
            }
            let visit = Instant::now();
            if let Err(error) = self.points[index].visit(self.warm_up, self.visit) {
                self.give_up(index, error)?;
            }
            (visiting, visits) = (visiting + visit.elapsed(), visits + 1);
            (watch.progress)(Progress {
                points_done: self.points.iter().filter(|point| point.finished).count(),
                points: self.points.len(),
                time_left: time_left.max(self.still_needed(visiting, visits)),
            });
            if kept.elapsed() >= keep_every {
                let write = Instant::now();
                (watch.keep)(self.state())?;
                kept = Instant::now();
                keep_every = KEEP.max(KEEP_OVER_WRITE * (kept - write));
            }
        }
    }

    /// Leaves out the table of a point for which there is no memory or which this device does not compute, since a
    /// table has all its points; what is held out of it misses nothing but itself. The device keeps nothing of what was
    /// tried.
    ///
    /// # Errors
    /// What is no matter of one op: a device that does nothing any more, a file or a thread that fails.
    fn give_up(&mut self, index: usize, error: ExecutorError) -> Result<(), ExecutorError> {
        let failure = Failure::of(error)?;
        if let Failure::NotComputed(_) = failure {
            synchronize(self.device)?;
        }
        let (table, held_out) = (self.points[index].table.clone(), self.points[index].held_out);
        for (other, point) in self.points.iter_mut().enumerate() {
            if other == index || !held_out && point.table == table {
                point.visits = Visits::default();
                point.finished = true;
            }
        }
        self.points[index].failure = Some(failure);
        give_memory_back(self.device)
    }

    /// Fills `tables` with those whose points were all measured, and `held_out` with what is held out of these.
    pub fn record(&self, tables: &mut Tables, held_out: &mut Tables) -> Outcome {
        let mut left_out: Vec<String> = self
            .points
            .iter()
            .filter(|point| !point.is_usable() && !point.held_out)
            .map(|point| point.table.clone())
            .collect();
        left_out.sort();
        left_out.dedup();
        let failed: BTreeMap<String, Failure> = self
            .points
            .iter()
            .filter(|point| !point.held_out)
            .filter_map(|point| Some((point.table.clone(), point.failure.clone()?)))
            .collect();
        let saved = |point: &&Point<'_>| point.is_usable() && !left_out.contains(&point.table);
        let saved: Vec<&Point<'_>> = self.points.iter().filter(saved).collect();
        let spreads = self.spreads();
        for point in &saved {
            let tables = if point.held_out { &mut *held_out } else { &mut *tables };
            (point.record)(tables, point.stats(&spreads));
        }
        let mut widths: Vec<f64> = saved.iter().map(|point| point.visits.relative_half_width()).collect();
        widths.sort_by(f64::total_cmp);
        Outcome {
            points: self.points.len(),
            known: self.points.iter().filter(|point| point.is_known()).count(),
            widest: widths.last().copied().unwrap_or(0.0),
            middle: widths.get(widths.len() / 2).copied().unwrap_or(0.0),
            left_out: left_out.into_iter().filter(|table| !failed.contains_key(table)).collect(),
            failed,
        }
    }

    /// How well the medians of each table are known that [`record`](Self::record) fills.
    pub fn certainty(&self) -> Vec<Certainty> {
        let usable = |table: &str| {
            let mut points = self.points.iter().filter(|point| point.table == table && !point.held_out);
            points.all(Point::is_usable)
        };
        let mut widths: BTreeMap<(Family, String), Vec<f64>> = BTreeMap::new();
        let mut known: BTreeMap<&str, bool> = BTreeMap::new();
        for point in self.points.iter().filter(|point| !point.held_out) {
            if *known.entry(&point.table).or_insert_with(|| usable(&point.table)) {
                // Its row says which of a card's tables it is part of.
                let mut row = Tables::default();
                (point.record)(&mut row, point.visits.stats());
                for table in row.names() {
                    widths.entry(table).or_default().push(point.visits.relative_half_width());
                }
            }
        }
        let widths = widths.into_iter();
        widths.map(|((family, table), widths)| Certainty::of(family, table, &widths)).collect()
    }
}

/// Fisher and Yates's shuffle, the same for the same seed and round.
fn shuffle(order: &mut [usize], seed: u64, round: u64) {
    let mut stream = Draws::new(seed, Purpose::Jitter).about(round);
    for last in (1..order.len()).rev() {
        order.swap(last, stream.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests;
