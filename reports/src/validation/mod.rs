//! How far simulated and executed runs of the same systems differ: `validation.json`.
//!
//! What was executed is the reference: an error is what the simulation says too much, in percent of what was measured.
//! Where there are repeats, means over them are compared and their spread stands beside; where there are several seeds,
//! whose errors may cancel out in the mean, so does the largest of one seed.

mod figures;
mod pair;
mod parts;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;

use self::figures::figures;
pub use self::pair::Pair;
use self::parts::{lanes, stages};
use crate::curves::Run;
use crate::group::{Spread, title};
use crate::human;
use crate::summary::{Parameters, VIRTUAL};

/// The scenario's `validate:` limits: the largest error, either way, as a share of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Of the mean latency.
    pub mean: Option<f64>,
    /// Of the latency's 98th percentile.
    pub p98: Option<f64>,
    /// Of the throughput.
    pub throughput: Option<f64>,
}

/// By how much the shares of requests that were refused, or failed, may differ: beyond it the two machines did not
/// serve the same, and figures of what they answered say nothing of each other.
pub const UNANSWERED: f64 = 0.01;
const FAILED: &str = "requests.failed";
/// Tokens that a request was given, in the mean.
pub const TOKENS_PER_REQUEST: &str = "output_tokens_per_request";
const MANAGEMENT_FAILED: &str = "management.failed";

/// Whether limits were kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every limit was kept.
    Within,
    /// A limit was not kept, or there was nothing to judge it by.
    Outside,
}

impl Verdict {
    fn of(kept: bool) -> Verdict {
        if kept { Verdict::Within } else { Verdict::Outside }
    }

    /// `None` where nothing was judged.
    fn all(verdicts: impl Iterator<Item = Verdict>) -> Option<Verdict> {
        verdicts.reduce(|all, next| Verdict::of(all == Verdict::Within && next == Verdict::Within))
    }
}

/// A whole `validation.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Of the file's form: 1.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// It was stopped before all was run: only what is whole, and was run on both machines, is compared.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Over all systems; absent where there are no limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Each system at each sweep point on each device.
    pub comparisons: Vec<Comparison>,
}

/// Simulated against executed runs of one system at one sweep point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The system's name.
    pub system: String,
    /// The sweep point.
    pub parameters: Parameters,
    /// Where it was executed; absent where it was only simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Number of runs.
    pub simulated_repeats: usize,
    /// Number of runs.
    pub executed_repeats: usize,
    /// Absent where there are no limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Throughput, latency and batch size, how each service class fared, and how many requests were refused, given up,
    /// evicted or moved.
    pub figures: Vec<FigureError>,
    /// Where the difference of the mean latency comes from.
    pub stages: Vec<StageError>,
    /// Where the lanes' work differs.
    pub lanes: Vec<LaneError>,
}

/// A figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureError {
    /// Its path in `summary.json`.
    pub figure: String,
    /// Absent where no simulated run has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Spread>,
    /// Absent where no executed run has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<Spread>,
    /// Positive where the simulation says more than was measured. Of a count of requests (`requests.failed`), in
    /// percent of all requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_percent: Option<f64>,
    /// Either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_percent: Option<f64>,
    /// Of the seed that is farthest off; absent where not several seeds ran on both machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_seed: Option<SeedError>,
    /// Absent where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// How far a figure is off for one seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeedError {
    /// Which.
    pub seed: u64,
    /// As [`FigureError::error_percent`].
    pub error_percent: f64,
}

/// A part of the mean latency on both sides, in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageError {
    /// `queue`, `lane`, `stall`, `compute` or `tell`.
    pub stage: &'static str,
    /// Mean over the repeats.
    pub simulated_ms: f64,
    /// Mean over the repeats.
    pub executed_ms: f64,
    /// Simulated less executed. The stages' differences add up to the mean latency's.
    pub difference_ms: f64,
    /// The same in percent of the executed mean latency: these add up to the mean's error.
    pub points_of_mean_error: f64,
    /// The same as a share of the mean latency's difference: these add up to 1, and are large where stages cancel out.
    /// Absent where the means are equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_difference: Option<f64>,
}

/// A lane's busy share on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneError {
    /// Its name.
    pub lane: String,
    /// Mean over the repeats; absent where the simulation has no such lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<f64>,
    /// Mean over the repeats; absent where the device has no such lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed: Option<f64>,
}

impl Validation {
    /// Whether the verdict is of figures that both machines have: false where all that is outside its limit is missing
    /// on one of them.
    pub fn is_measured(&self) -> bool {
        let figures = || self.comparisons.iter().flat_map(|comparison| &comparison.figures);
        let is_there = |figure: &FigureError| figure.simulated.is_some() && figure.executed.is_some();
        let outside = |figure: &&FigureError| figure.verdict == Some(Verdict::Outside);
        figures().filter(outside).any(is_there) || figures().find(outside).is_none()
    }

    /// Which systems' requests failed when they were executed and not when they were simulated, in words, whether or
    /// not there are limits. `None` where that is a hundredth of the requests at most.
    pub fn failures(&self) -> Option<String> {
        let sentences: Vec<String> = self.comparisons.iter().filter_map(Comparison::failures).collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// Sentences on figures that are within their limits in the mean over seeds, and beyond them for one of these.
    pub fn cancelling(&self) -> Vec<String> {
        let of_figure = |comparison: &Comparison, figure: &FigureError| {
            let (limit, worst) = (figure.limit_percent?, figure.worst_seed?);
            let cancels = figure.verdict == Some(Verdict::Within) && worst.error_percent.abs() > limit;
            cancels.then(|| {
                format!(
                    "{}: {} is {} % off in the mean over seeds, which is within its limit, and {} % for seed {}: \
                     errors of seeds cancel out.",
                    title(&comparison.system, &comparison.parameters),
                    figure.figure,
                    human::signed(figure.error_percent.unwrap_or(0.0)),
                    human::signed(worst.error_percent),
                    worst.seed
                )
            })
        };
        let sentences = self
            .comparisons
            .iter()
            .flat_map(|comparison| comparison.figures.iter().filter_map(move |figure| of_figure(comparison, figure)));
        sentences.collect()
    }

    /// Compares what there is where a validation was stopped.
    pub fn of_stopped(scenario: &str, limits: Limits, runs: &[Run]) -> Validation {
        Validation {
            stopped: true,
            ..Validation::new(scenario, limits, &made_on_both(runs))
        }
    }

    /// The runs of which this says how far they are apart.
    pub(crate) fn compared<'a>(&self, runs: &'a [Run]) -> Cow<'a, [Run]> {
        match self.stopped {
            true => Cow::Owned(made_on_both(runs)),
            false => Cow::Borrowed(runs),
        }
    }

    /// Compares all simulated with all executed runs of a scenario.
    pub fn new(scenario: &str, limits: Limits, runs: &[Run]) -> Validation {
        let comparisons: Vec<Comparison> = Pair::all(runs).iter().map(|pair| Comparison::new(pair, limits)).collect();
        let verdict = Verdict::all(comparisons.iter().filter_map(|comparison| comparison.verdict));
        Validation {
            schema: 1,
            scenario: scenario.to_owned(),
            stopped: false,
            verdict,
            comparisons,
        }
    }
}

/// Of runs that were stopped, or whose seed one machine alone has run, there is nothing to compare: the others. Of each
/// of a system's seeds as many as of that which was run the fewest times, or seeds' own differences would be taken for
/// the machines'.
fn made_on_both(runs: &[Run]) -> Vec<Run> {
    let one_system = |run: &Run, other: &Run| {
        let (a, b) = (&run.summary, &other.summary);
        (&a.system, &a.parameters) == (&b.system, &b.parameters)
    };
    let is_virtual = |run: &Run| run.summary.machine == VIRTUAL;
    let whole = || runs.iter().filter(|run| !run.summary.interrupted);
    let is_on_both = |run: &&Run| {
        let is_other = |other: &&Run| one_system(run, other) && is_virtual(run) != is_virtual(other);
        whole().filter(is_other).any(|other| other.summary.seed == run.summary.seed)
    };
    let on_both: Vec<&Run> = whole().filter(is_on_both).collect();
    let each_seed_has_it = |(index, run): &(usize, &&Run)| {
        let seed = run.summary.seed;
        let (mut times, mut before) = (BTreeMap::<u64, usize>::new(), 0);
        let repeated = |(_, other): &(usize, &&Run)| one_system(run, other) && is_virtual(run) == is_virtual(other);
        for (at, other) in on_both.iter().enumerate().filter(repeated) {
            *times.entry(other.summary.seed).or_default() += 1;
            before += usize::from(at < *index && other.summary.seed == seed);
        }
        times.values().all(|times| before < *times)
    };
    on_both.iter().enumerate().filter(each_seed_has_it).map(|(_, run)| (*run).clone()).collect()
}

impl Comparison {
    fn new(pair: &Pair<'_>, limits: Limits) -> Comparison {
        let figures = figures(pair, limits);
        Comparison {
            system: pair.any().system().to_owned(),
            parameters: pair.any().parameters().clone(),
            device: pair.executed.as_ref().map(|group| group.machine().to_owned()),
            simulated_repeats: pair.simulated.as_ref().map_or(0, |group| group.runs.len()),
            executed_repeats: pair.executed.as_ref().map_or(0, |group| group.runs.len()),
            verdict: Verdict::all(figures.iter().filter_map(|figure| figure.verdict)),
            figures,
            stages: stages(pair).unwrap_or_default(),
            lanes: lanes(pair),
        }
    }

    fn failures(&self) -> Option<String> {
        let of = |name: &str, what: &str| {
            let failed = self.figures.iter().find(|figure| figure.figure == name)?;
            let executed = failed.executed?.mean;
            let simulated = failed.simulated.map_or(0.0, |simulated| simulated.mean);
            (failed.error_percent? < -100.0 * UNANSWERED).then(|| {
                format!(
                    "{}: {} {what} failed when executed, {} when simulated",
                    title(&self.system, &self.parameters),
                    counted(executed),
                    counted(simulated)
                )
            })
        };
        let failed = [
            of(FAILED, "requests"),
            of(MANAGEMENT_FAILED, "changes of tenants or domains"),
        ];
        let sentences: Vec<String> = failed.into_iter().flatten().collect();
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }
}

/// How many, in the mean over repeats.
fn counted(mean: f64) -> String {
    match mean.fract() == 0.0 {
        true => human::count(mean as u64),
        false => human::number(mean),
    }
}

#[cfg(test)]
mod tests;
