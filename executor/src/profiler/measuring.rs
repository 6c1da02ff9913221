//! A plan's points, measured in one run, or gone on with where an interrupted one has stopped.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::partial::Partial;
use super::schedule::{Point, Schedule, State, Watch};
use super::{Plan, Progress};
use crate::error::ExecutorError;

/// Part of a suite's time for measuring tables anew in which an op had cost less than a smaller one.
const SETTLE_PART: f64 = 0.1;

/// Points that are being measured.
pub(super) struct Measuring<'a> {
    pub schedule: Schedule<'a>,
    /// The points' time in all.
    time: Duration,
    /// What comes after the points takes so long.
    after: Duration,
    kept: Kept<'a>,
}

/// Where what was measured is kept for a later run, and with what.
struct Kept<'a> {
    plan: &'a Plan,
    /// What one token of each model took when its grid was chosen.
    per_token_ns: BTreeMap<String, u64>,
    begin: Instant,
    /// Of the points' time, before `begin`.
    spent: Duration,
    /// Runs that worked on it, this one among them.
    runs: u32,
}

impl Kept<'_> {
    fn keep(&self, state: State) -> Result<(), ExecutorError> {
        let Some(path) = &self.plan.partial else {
            return Ok(());
        };
        let spent = self.spent + self.begin.elapsed();
        Partial::new(self.plan, self.runs, spent, self.per_token_ns.clone(), state).write(path)
    }
}

impl<'a> Measuring<'a> {
    /// Points that took `prepared_in` to prepare; `earlier` is what an interrupted run has of them, and `after` what
    /// comes after them takes.
    ///
    /// # Errors
    /// The earlier run had other points.
    pub fn new(
        points: Vec<Point<'a>>,
        plan: &'a Plan,
        per_token_ns: BTreeMap<String, u64>,
        (earlier, prepared_in): (Option<Partial>, Duration),
        after: Duration,
    ) -> Result<Measuring<'a>, ExecutorError> {
        let time = plan.points_duration();
        let mut schedule = Schedule::new(points, plan.device, plan.seed).within(time);
        // Preparing again is not part of the time, so that a run in many parts measures as much as one.
        let (spent, runs) = match earlier {
            None => (prepared_in, 1),
            Some(earlier) if schedule.resume(earlier.state.clone()) => {
                (Duration::from_nanos(earlier.spent_ns), earlier.runs + 1)
            }
            Some(_) => {
                let file = plan.partial.as_ref().map(|path| path.display().to_string());
                let must = "of the points that this machine has, or removed";
                return Err(ExecutorError::input(file.unwrap_or_default(), must, "others"));
            }
        };
        Ok(Measuring {
            schedule,
            time,
            after,
            kept: Kept {
                plan,
                per_token_ns,
                begin: Instant::now(),
                spent,
                runs,
            },
        })
    }

    /// Runs that worked on it, this one among them.
    pub fn runs(&self) -> u32 {
        self.kept.runs
    }

    /// Visits them until all medians are known well or the time is over.
    ///
    /// # Errors
    /// The device is lost, or what was measured cannot be kept.
    pub fn measure(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        interrupted: &AtomicBool,
    ) -> Result<(), ExecutorError> {
        self.watched(progress, interrupted, |schedule, watch| schedule.measure(watch))
    }

    /// Measures tables anew in which an op had cost less than a smaller one, and says which.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn settle(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        interrupted: &AtomicBool,
    ) -> Result<Vec<String>, ExecutorError> {
        let time = self.kept.plan.duration().mul_f64(SETTLE_PART);
        self.watched(progress, interrupted, |schedule, watch| schedule.settle(time, watch))
    }

    /// Keeps what was measured so far for a later run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self) -> Result<(), ExecutorError> {
        self.kept.keep(self.schedule.state())
    }

    fn watched<T>(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        interrupted: &AtomicBool,
        work: impl FnOnce(&mut Schedule<'a>, &mut Watch<'_>) -> Result<T, ExecutorError>,
    ) -> Result<T, ExecutorError> {
        let Measuring {
            schedule,
            time,
            after,
            kept,
        } = self;
        let mut keep = |state| kept.keep(state);
        // What comes after the points is still to come.
        let mut with_the_rest = |at: Progress| {
            progress(Progress {
                time_left: at.time_left + *after,
                ..at
            })
        };
        let mut watch = Watch {
            until: kept.begin + time.saturating_sub(kept.spent),
            progress: &mut with_the_rest,
            keep: &mut keep,
            interrupted,
        };
        work(schedule, &mut watch)
    }
}
