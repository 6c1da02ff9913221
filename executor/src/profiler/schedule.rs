//! In what order points are measured, and for how long.
//!
//! Every round visits each unfinished point once, in an order of its own, so that a machine that grows warm or busy
//! disturbs all tables alike. A visit measures several times in a row, as serving repeats the same op.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::{Stats, Tables};
use tenantry_traces::draw::{Draws, Purpose};

use super::Progress;
use super::stats::Samples;
use crate::error::ExecutorError;

/// A point is finished when its median is known this well.
const RELATIVE_HALF_WIDTH: f64 = 0.02;
/// But not before this many measurements,
const COUNT_MIN: usize = 20;
/// and this many visits: what is measured in one visit shares whatever the machine did then.
const VISITS_MIN: u32 = 3;
/// A point without this many measurements when the time is over is measured nevertheless.
const COUNT_NEEDED: usize = 3;
/// No point takes more; the tails are known by then.
const COUNT_MAX: usize = 2000;
/// What a visit lasts; a slower op is measured once a visit.
const VISIT: Duration = Duration::from_millis(10);

type Measure<'a> = Box<dyn FnMut() -> Result<Duration, ExecutorError> + 'a>;
type Record<'a> = Box<dyn Fn(&mut Tables, Stats) + 'a>;

/// One point of one table.
pub(crate) struct Point<'a> {
    table: String,
    measure: Measure<'a>,
    record: Record<'a>,
    samples: Samples,
    visits: u32,
}

impl<'a> Point<'a> {
    /// A point of `table`, which is saved if all its points are measured. `measure` does the op once and says how long it
    /// took, `record` adds the point's row.
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
            samples: Samples::default(),
            visits: 0,
        }
    }

    fn visit(&mut self) -> Result<(), ExecutorError> {
        let start = Instant::now();
        let warm_up = (self.measure)()?;
        // Other points have filled the caches meanwhile. An op longer than a visit is past that within itself, and warms up
        // only once.
        if self.visits > 0 && warm_up > VISIT {
            self.samples.push(micros(warm_up));
        }
        while self.samples.count() < COUNT_MAX && (start.elapsed() < VISIT || self.samples.count() == 0) {
            self.samples.push(micros((self.measure)()?));
        }
        self.visits += 1;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.samples.count() >= COUNT_MAX
            || (self.visits >= VISITS_MIN
                && self.samples.count() >= COUNT_MIN
                && self.samples.relative_half_width() <= RELATIVE_HALF_WIDTH)
    }

    fn is_usable(&self) -> bool {
        self.samples.count() >= COUNT_NEEDED
    }
}

fn micros(duration: Duration) -> f64 {
    // The clock may not resolve an op; a table's costs are positive.
    (duration.as_nanos() as f64 / 1e3).max(1e-3)
}

/// How the measuring went.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub points: usize,
    /// Points whose median is known as well as was asked.
    pub finished: usize,
    /// How well the least known median is known; infinite where a point has too few measurements to tell.
    pub widest: f64,
    /// Tables left out, since the user asked to stop before all their points were measured.
    pub left_out: Vec<String>,
}

/// Measures until all points are finished or `until` has come, and fills `tables`.
pub(crate) fn measure(
    mut points: Vec<Point<'_>>,
    tables: &mut Tables,
    until: Instant,
    seed: u64,
    progress: &mut dyn FnMut(Progress),
    interrupted: &AtomicBool,
) -> Result<Outcome, ExecutorError> {
    let total = points.len();
    let mut finished = vec![false; total];
    'rounds: for round in 0.. {
        let mut order: Vec<usize> = (0..total).filter(|&index| !finished[index]).collect();
        shuffle(&mut order, seed, round);
        let mut visited = false;
        for index in order {
            if interrupted.load(Ordering::Relaxed) {
                break 'rounds;
            }
            let time_left = until.saturating_duration_since(Instant::now());
            if time_left.is_zero() && points[index].is_usable() {
                continue;
            }
            points[index].visit()?;
            visited = true;
            finished[index] = points[index].is_finished();
            let points_done = finished.iter().filter(|finished| **finished).count();
            progress(Progress {
                points_done,
                points: total,
                time_left,
            });
        }
        if !visited {
            break;
        }
    }

    let mut left_out: Vec<String> = points
        .iter()
        .filter(|point| !point.is_usable())
        .map(|point| point.table.clone())
        .collect();
    left_out.sort();
    left_out.dedup();
    let saved: Vec<&Point<'_>> = points.iter().filter(|point| !left_out.contains(&point.table)).collect();
    for point in &saved {
        (point.record)(tables, point.samples.stats());
    }
    Ok(Outcome {
        points: total,
        finished: finished.iter().filter(|finished| **finished).count(),
        widest: saved
            .iter()
            .map(|point| point.samples.relative_half_width())
            .fold(0.0, f64::max),
        left_out,
    })
}

/// Fisher and Yates's shuffle, the same for the same seed and round.
fn shuffle(order: &mut [usize], seed: u64, round: u64) {
    let mut stream = Draws::new(seed, Purpose::Jitter).about(round);
    for last in (1..order.len()).rev() {
        order.swap(last, stream.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tenantry_profiles::{CopyRow, Direction};

    use super::*;

    const IN_TIME: Duration = Duration::from_secs(60);

    /// Points of a table of copies, of 1, 2, … bytes, that say they take the durations of `took`.
    fn points<'a>(count: u64, took: impl Fn(u64) -> Duration + Copy + 'a) -> Vec<Point<'a>> {
        let point = |bytes| {
            let row = move |stats| CopyRow {
                direction: Direction::HostToDevice,
                pinned: false,
                bytes,
                stats,
            };
            let record = move |tables: &mut Tables, stats| tables.copy.push(row(stats));
            Point::new("copy".to_string(), move || Ok(took(bytes)), record)
        };
        (1..=count).map(point).collect()
    }

    fn run(points: Vec<Point<'_>>, time: Duration, interrupted: &AtomicBool) -> (Outcome, Tables) {
        let mut tables = Tables::default();
        let until = Instant::now() + time;
        let outcome = measure(points, &mut tables, until, 1, &mut |_| {}, interrupted).unwrap();
        (outcome, tables)
    }

    #[test]
    fn steady_points_finish_early() {
        let (outcome, tables) = run(points(3, Duration::from_micros), IN_TIME, &AtomicBool::new(false));
        assert_eq!(
            outcome,
            Outcome {
                points: 3,
                finished: 3,
                widest: 0.0,
                left_out: vec![]
            }
        );
        let mut rows: Vec<_> = tables.copy.iter().map(|row| (row.bytes, row.stats.median_us)).collect();
        rows.sort_by_key(|row| row.0);
        assert_eq!(rows, [(1, 1.0), (2, 2.0), (3, 3.0)]);
    }

    #[test]
    fn without_time_every_point_is_still_usable() {
        let slow = |_| {
            std::thread::sleep(Duration::from_millis(11));
            Ok(Duration::from_millis(11))
        };
        let point = |bytes: u64| Point::new(bytes.to_string(), move || slow(bytes), |_, _| {});
        let (outcome, _) = run((0..2).map(point).collect(), Duration::ZERO, &AtomicBool::new(false));
        assert_eq!((outcome.finished, outcome.left_out), (0, vec![]));
    }

    #[test]
    fn an_interrupt_leaves_out_what_is_incomplete() {
        let interrupted = AtomicBool::new(false);
        let log = RefCell::new(Vec::new());
        let mut all = points(2, Duration::from_micros);
        all.push(Point::new(
            "last".to_string(),
            || {
                log.borrow_mut().push(());
                interrupted.store(true, Ordering::Relaxed);
                std::thread::sleep(VISIT);
                Ok(VISIT)
            },
            |_, _| panic!("an incomplete table is not saved"),
        ));
        let (outcome, tables) = run(all, IN_TIME, &interrupted);
        assert!(outcome.left_out.contains(&"last".to_string()), "{outcome:?}");
        assert!(
            tables.copy.is_empty() || tables.copy.len() == 2,
            "a table is saved whole or not at all"
        );
    }

    #[test]
    fn orders_differ_by_round_and_not_by_run() {
        let order = |round| {
            let mut order: Vec<usize> = (0..50).collect();
            shuffle(&mut order, 9, round);
            order
        };
        assert_eq!(order(4), order(4));
        assert_ne!(order(4), order(5));
        let mut sorted = order(4);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
