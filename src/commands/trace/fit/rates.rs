//! Rates: per-second counts, without the recording's holes, and what is nearest to their first half.

use serde_json::Value;
use tenantry_reports::trace::{Collector, Trace};
use tenantry_scenarios::scalar::Period;
use tenantry_traces::Time;
use tenantry_traces::describe::MAX_SECONDS;
use tenantry_traces::fit::mmpp::Arrivals;
use tenantry_traces::read::Counts;

use super::generators::{Generator, nearest};
use super::{Fitted, after, generate, too_few};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::Watchdog;
use crate::failure::Failure;

/// Of fewer seconds rates say little.
pub const LEAST: usize = 1200;

/// Requests that a check generates at most, so that it takes seconds; to choose between generators, a fifth.
pub const GENERATED: f64 = 1e8;
/// How much longer than the recording it is otherwise: what is generated is then off by chance by a quarter of what the
/// recording is.
const TIMES_AS_LONG: f64 = 20.0;

/// What is said of the aims where rates are among what is checked.
pub const AIMS: &str = "the aims allow for two standard errors of what the second half is off by chance: of rates by how many of its windows are \
                        independent (where these are fewer than 30, there is no telling), of lengths and tenants' shares \
                        by its requests";

pub fn rates(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    let mut recorded = Counts::open(&args.file, args.read.skip_bad_lines).map_err(Failure::bad_input)?;
    let all: Vec<u32> = recorded.by_ref().collect::<Result<_, _>>().map_err(Failure::bad_input)?;
    let skipped = recorded.skipped();
    let seconds = Seconds::without_holes(args, &all)?;
    let [seen, unseen] = seconds.halves(args)?;
    let nearest = nearest(args, seen, Arrivals::Seconds(seen), watchdog)?;
    let arrivals = |counts: &[u32]| vec![("workload.arrivals", nearest.generator.arrivals(mean(counts)))];
    // The sample stream's own numbers are not of this file: whether they have seen it, only the user can know.
    let is_unseen = match nearest.generator {
        Generator::Twitter => "real, second half",
        _ => "real, unseen",
    };
    let mut real = trace(unseen, is_unseen)?;
    real.figures.skipped_lines = (skipped > 0).then_some(skipped);
    Ok(Fitted {
        // Rates of two halves differ, and a generator is scaled to the rate that is wanted: the shape is what is
        // checked.
        generated: generate(args, &arrivals(unseen), check_s(unseen, GENERATED), watchdog)?,
        real,
        seen: None,
        keys: arrivals(&seconds.counts),
        notes: vec![
            seconds.holes.clone(),
            nearest.note(seen),
            format!(
                "checked against the second half ({} s) at its mean rate, which is all that was taken from that half",
                unseen.len()
            ),
            AIMS.to_owned(),
            nearest.generator.seen_note(),
        ],
    })
}

/// Requests a second.
pub fn mean(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64
}

/// For how long to generate at the rate of `counts`, `most` requests at most, and not for longer than a trace is read.
pub fn check_s(counts: &[u32], most: f64) -> Value {
    let seconds = (TIMES_AS_LONG * counts.len() as f64).min(most / mean(counts));
    after(seconds.ceil().min(MAX_SECONDS as f64))
}

pub fn trace(counts: &[u32], name: &str) -> Result<Trace, Failure> {
    let mut collector = Collector::new(1);
    for (second, &count) in (0..).zip(counts) {
        collector.window(second, count).map_err(Failure::bad_input)?;
    }
    Ok(collector.finish(name, "counts", 0))
}

/// What is a hole of a recording where nothing else is said.
const HOLE: &str = "1min";

/// Per-second counts without the recording's holes.
pub struct Seconds {
    pub counts: Vec<u32>,
    /// Of each, which of the recording's seconds it is.
    at: Vec<usize>,
    /// What became of stretches without a request.
    pub holes: String,
}

impl Seconds {
    /// Leaves out stretches without a request that are as long as `--drop-zeros-from` says, or where it says nothing a
    /// minute, unless the rate is so low that chance makes some.
    pub fn without_holes(args: &TraceFitArgs, all: &[u32]) -> Result<Seconds, Failure> {
        let hole = args.drop_zeros_from.as_deref().unwrap_or(HOLE);
        let period: Period = serde_yaml::from_str(hole)
            .map_err(|_| Failure::BadInput(format!("--drop-zeros-from: must be {}, got {hole}", Period::MUST)))?;
        let hole_s = period.0.as_secs_f64().ceil() as usize;
        let runs = || all.chunk_by(|a, b| (*a == 0) == (*b == 0));
        let is_hole = |run: &[u32]| run[0] == 0 && run.len() >= hole_s;
        let holes_s: usize = runs().filter(|run| is_hole(run)).map(<[u32]>::len).sum();
        // How many such stretches follow on seconds with requests where these come at random, at the rate that is left.
        let requests: f64 = all.iter().map(|&count| f64::from(count)).sum();
        let rate = requests / (all.len() - holes_s).max(1) as f64;
        let asked = all.iter().filter(|&&count| count > 0).count() as f64;
        let stretches = |rate: f64| asked * (-rate * hole_s as f64).exp();
        // Where requests stand so far apart that most stretches are as long, what is left of the time says nothing of
        // the rate; then there is no more silence than at the rate over all of it.
        let rate_of_all = requests / all.len() as f64;
        let silent_s = stretches(rate_of_all) * (hole_s as f64 + 1.0 / rate_of_all);
        let is_chance = stretches(rate) >= 0.5 || holes_s as f64 <= 2.0 * silent_s;
        if holes_s > 0 && is_chance && args.drop_zeros_from.is_none() {
            return Ok(Seconds {
                counts: all.to_vec(),
                at: (0..all.len()).collect(),
                holes: format!(
                    "stretches of {hole} and more without a request count as silence, since so low a rate has some; \
                     --drop-zeros-from takes them for holes"
                ),
            });
        }
        let (mut counts, mut at, mut second) = (Vec::new(), Vec::new(), 0);
        for run in runs() {
            if !is_hole(run) {
                counts.extend(run);
                at.extend(second..second + run.len());
            }
            second += run.len();
        }
        let holes = match holes_s {
            0 => "no stretch without requests was taken for a hole of the recording".to_owned(),
            seconds => format!(
                "{seconds} s in stretches of {hole} and more without a request are taken for holes of the recording \
                 and left out; with a longer --drop-zeros-from they count as silence"
            ),
        };
        Ok(Seconds { counts, at, holes })
    }

    /// The first half, to fit, and the second, to check.
    pub fn halves(&self, args: &TraceFitArgs) -> Result<[&[u32]; 2], Failure> {
        if self.counts.len() < LEAST {
            return Err(too_few(args, "seconds with counts", LEAST, self.counts.len()));
        }
        let (seen, unseen) = self.counts.split_at(self.counts.len() / 2);
        if mean(seen) == 0.0 || mean(unseen) == 0.0 {
            return Err(too_few(args, "request in each half", 1, 0));
        }
        Ok([seen, unseen])
    }

    /// These instants of the recording on the clock of what is left, on which holes take no time. An instant in a hole
    /// is on none.
    pub fn instants(&self, recorded: impl Iterator<Item = Time>) -> Vec<Time> {
        const SECOND: u64 = 1_000_000_000;
        let left = |instant: Time| {
            let second = self.at.binary_search(&((instant.0 / SECOND) as usize)).ok()?;
            Some(Time(second as u64 * SECOND + instant.0 % SECOND))
        };
        recorded.filter_map(left).collect()
    }

    /// The second of the recording with which the second half begins.
    pub fn middle(&self) -> usize {
        self.at[self.counts.len() / 2]
    }
}
