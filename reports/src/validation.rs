//! How far simulated and executed runs of the same systems differ: `validation.json`.
//!
//! What was executed is the reference: an error is what the simulation says too much, in percent of what was measured. Where
//! there are repeats, means over them are compared and their spread stands beside; where there are several seeds, whose errors may cancel out in the
//! mean, so does the largest of one seed.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::classes::ClassSummary;
use crate::curves::Run;
use crate::group::{Group, Spread, title};
use crate::human;
use crate::summary::{ManagementSummary, Parameters, RequestCounts, RunSummary, VIRTUAL, rounded};

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

/// By how much the shares of requests that were refused, or failed, may differ: beyond it the two machines did not serve the same, and figures of
/// what they answered say nothing of each other.
pub const UNANSWERED: f64 = 0.01;
const FAILED: &str = "requests.failed";
/// Tokens that a request was given, in the mean.
pub const TOKENS_PER_REQUEST: &str = "output_tokens_per_request";
const MANAGEMENT_FAILED: &str = "management.failed";

/// Who gives up does so by the clock: where times differ by what limits allow, so does how many do. By more than this share of all requests, the two
/// machines did not answer the same ones.
const GIVEN_UP: f64 = 0.05;

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
    /// Throughput, latency and batch size, how each service class fared, and how many requests were refused, given up, evicted or moved.
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
    /// Positive where the simulation says more than was measured. Of a count of requests (`requests.failed`), in percent of all requests.
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
    /// The same as a share of the mean latency's difference: these add up to 1, and are large where stages cancel out. Absent
    /// where the means are equal.
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

/// The two sides of a comparison; at least one is there.
#[derive(Clone, Debug)]
pub struct Pair<'a> {
    /// On the virtual machine.
    pub simulated: Option<Group<'a>>,
    /// On a device.
    pub executed: Option<Group<'a>>,
}

impl<'a> Pair<'a> {
    /// Every executed group with its simulated one, and every simulated group that was not executed. Nothing is left out, so
    /// that a system which only one machine could run is seen.
    pub fn all(runs: &'a [Run]) -> Vec<Pair<'a>> {
        let (simulated, executed): (Vec<_>, Vec<_>) = Group::all(runs).into_iter().partition(Group::is_virtual);
        let same = |a: &Group, b: &Group| a.system() == b.system() && a.parameters() == b.parameters();
        let mut pairs = Vec::new();
        for simulated in &simulated {
            let mut devices = executed.iter().filter(|group| same(group, simulated)).peekable();
            if devices.peek().is_none() {
                pairs.push(Pair {
                    simulated: Some(simulated.clone()),
                    executed: None,
                });
            }
            pairs.extend(devices.map(|executed| Pair {
                simulated: Some(simulated.clone()),
                executed: Some(executed.clone()),
            }));
        }
        let alone = executed
            .iter()
            .filter(|group| !simulated.iter().any(|other| same(group, other)));
        pairs.extend(alone.map(|executed| Pair {
            simulated: None,
            executed: Some(executed.clone()),
        }));
        pairs
    }

    /// Either side: what they have in common can be asked of it.
    pub fn any(&self) -> &Group<'a> {
        self.simulated
            .as_ref()
            .or(self.executed.as_ref())
            .expect("a pair has a side")
    }
}

impl Validation {
    /// Whether the verdict is of figures that both machines have: false where all that is outside its limit is missing on one of them.
    pub fn is_measured(&self) -> bool {
        let figures = || self.comparisons.iter().flat_map(|comparison| &comparison.figures);
        let is_there = |figure: &FigureError| figure.simulated.is_some() && figure.executed.is_some();
        let outside = |figure: &&FigureError| figure.verdict == Some(Verdict::Outside);
        figures().filter(outside).any(is_there) || figures().find(outside).is_none()
    }

    /// Which systems' requests failed when they were executed and not when they were simulated, in words, whether or not there are limits. `None`
    /// where that is a hundredth of the requests at most.
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
                    "{}: {} is {} % off in the mean over seeds, which is within its limit, and {} % for seed {}: errors of seeds cancel out.",
                    title(&comparison.system, &comparison.parameters),
                    figure.figure,
                    human::signed(figure.error_percent.unwrap_or(0.0)),
                    human::signed(worst.error_percent),
                    worst.seed
                )
            })
        };
        let sentences = { self.comparisons.iter() }.flat_map(|comparison| {
            comparison
                .figures
                .iter()
                .filter_map(move |figure| of_figure(comparison, figure))
        });
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
        let comparisons: Vec<Comparison> = Pair::all(runs)
            .iter()
            .map(|pair| Comparison::new(pair, limits))
            .collect();
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

/// Of runs that were stopped, or whose seed one machine alone has run, there is nothing to compare: the others.
fn made_on_both(runs: &[Run]) -> Vec<Run> {
    let whole = || runs.iter().filter(|run| !run.summary.interrupted);
    let is_on_both = |run: &&Run| {
        let same = |other: &Run| {
            let (a, b) = (&run.summary, &other.summary);
            (&a.system, &a.parameters, a.seed) == (&b.system, &b.parameters, b.seed)
                && (a.machine == VIRTUAL) != (b.machine == VIRTUAL)
        };
        whole().any(same)
    };
    whole().filter(is_on_both).cloned().collect()
}

impl Comparison {
    fn new(pair: &Pair<'_>, limits: Limits) -> Comparison {
        let figure = |figure: &str, limit: Option<f64>, read: fn(&RunSummary) -> Option<f64>| {
            let (simulated, executed) = both(pair, |group| group.spread(read));
            FigureError {
                worst_seed: worst_seed(pair, read),
                ..FigureError::new(figure.to_owned(), simulated, executed, limit)
            }
        };
        let figures = [
            figure("throughput_rps", limits.throughput, |run| run.throughput_rps),
            figure("latency_ms.mean", limits.mean, |run| Some(run.latency_ms?.mean)),
            figure("latency_ms.p50", None, |run| Some(run.latency_ms?.p50)),
            figure("latency_ms.p98", limits.p98, |run| Some(run.latency_ms?.p98)),
            figure("latency_ms.p99", None, |run| Some(run.latency_ms?.p99)),
            figure("batch_size_mean", None, |run| run.batch_size_mean),
        ]
        .into_iter()
        // What neither side has, as an encoder has no tokens, is no figure of theirs.
        .chain(
            [
                figure("output_tokens_per_s", None, |run| run.output_tokens_per_s),
                figure(TOKENS_PER_REQUEST, None, |run| {
                    let answered_per_s = run.throughput_rps.filter(|rate| *rate > 0.0)?;
                    Some(run.output_tokens_per_s? / answered_per_s)
                }),
                figure("ttft_ms.mean", None, |run| Some(run.ttft_ms?.mean)),
                figure("tpot_ms.mean", None, |run| Some(run.tpot_ms?.mean)),
                figure("token_gap_ms.p98", None, |run| Some(run.token_gap_ms?.p98)),
                figure("longest_token_gap_ms.mean", None, |run| {
                    Some(run.longest_token_gap_ms?.mean)
                }),
            ]
            .into_iter()
            .chain(decisions(pair))
            .chain(classes(pair))
            .filter(|figure| figure.simulated.is_some() || figure.executed.is_some())
            .chain(counts(pair, limits)),
        )
        .collect::<Vec<_>>();
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

impl FigureError {
    fn new(figure: String, simulated: Option<Spread>, executed: Option<Spread>, limit: Option<f64>) -> FigureError {
        let error = match (simulated, executed) {
            (Some(simulated), Some(executed)) if executed.mean != 0.0 => Some(simulated.mean / executed.mean - 1.0),
            _ => None,
        };
        FigureError::judged(figure, (simulated, executed), error, limit)
    }

    /// How many requests ended so. Mostly few or none do: the error is in percent of all requests.
    fn of_requests(pair: &Pair<'_>, figure: &str, count: fn(&RequestCounts) -> u64, limit: Option<f64>) -> FigureError {
        let counts = |run: &RunSummary| Some((count(&run.requests), run.requests.offered));
        FigureError::of_all(pair, figure, counts, limit)
    }

    /// How many changes of tenants and domains ended so, likewise in percent of all of them.
    fn of_changes(
        pair: &Pair<'_>,
        figure: &str,
        count: fn(&ManagementSummary) -> u64,
        limit: Option<f64>,
    ) -> FigureError {
        let counts = |run: &RunSummary| run.management.as_ref().map(|changes| (count(changes), changes.offered));
        FigureError::of_all(pair, figure, counts, limit)
    }

    /// So many of so many: the error is in percent of the latter.
    fn of_all(
        pair: &Pair<'_>,
        figure: &str,
        counts: impl Fn(&RunSummary) -> Option<(u64, u64)>,
        limit: Option<f64>,
    ) -> FigureError {
        let some = both(pair, |group| group.spread(|run| Some(counts(run)?.0 as f64)));
        let share = |run: &RunSummary| counts(run).map(|(some, all)| some as f64 / all.max(1) as f64);
        let error = match both(pair, |group| group.mean(share)) {
            (Some(simulated), Some(executed)) => Some(simulated - executed),
            _ => None,
        };
        FigureError::judged(figure.to_owned(), some, error, limit)
    }

    fn judged(
        figure: String,
        (simulated, executed): (Option<Spread>, Option<Spread>),
        error: Option<f64>,
        limit: Option<f64>,
    ) -> FigureError {
        FigureError {
            figure,
            simulated,
            executed,
            error_percent: error.map(|share| rounded(share * 100.0)),
            limit_percent: limit.map(|share| rounded(share * 100.0)),
            worst_seed: None,
            verdict: limit.map(|limit| Verdict::of(error.is_some_and(|error| error.abs() <= limit))),
        }
    }
}

/// The largest error of a seed, where both machines ran the same ones, and several.
fn worst_seed(pair: &Pair<'_>, read: fn(&RunSummary) -> Option<f64>) -> Option<SeedError> {
    let seeds = |group: &Group<'_>| -> BTreeSet<u64> { group.runs.iter().map(|run| run.summary.seed).collect() };
    let (simulated, executed) = (pair.simulated.as_ref()?, pair.executed.as_ref()?);
    let both: Vec<u64> = seeds(simulated).intersection(&seeds(executed)).copied().collect();
    let error = |seed: u64| {
        let of = |group: &Group<'_>| group.mean(|run| read(run).filter(|_| run.seed == seed));
        let (simulated, executed) = (of(simulated)?, of(executed)?);
        let error = (executed != 0.0).then(|| simulated / executed - 1.0)?;
        Some(SeedError {
            seed,
            error_percent: rounded(error * 100.0),
        })
    };
    let errors = { both.iter() }.filter_map(|&seed| error(seed));
    errors
        .max_by(|a, b| a.error_percent.abs().total_cmp(&b.error_percent.abs()))
        .filter(|_| both.len() > 1)
}

/// What policies came to beside times.
fn decisions(pair: &Pair<'_>) -> Vec<FigureError> {
    let figure = |name: String, read: &dyn Fn(&RunSummary) -> Option<f64>| {
        let (simulated, executed) = both(pair, |group| group.spread(read));
        FigureError::new(name, simulated, executed, None)
    };
    let stages =
        { pair.any().runs[0].summary.cascade.as_ref() }.map_or(0, |cascade| cascade.returned_share_by_stage.len());
    let returned = |stage: usize| {
        figure(format!("cascade.returned_share_by_stage.{stage}"), &|run| {
            run.cascade.as_ref()?.returned_share_by_stage.get(stage).copied()
        })
    };
    let others = [
        figure("slo_attainment".to_owned(), &|run| run.slo_attainment),
        figure("gpus_time_weighted".to_owned(), &|run| run.gpus_time_weighted),
        figure("cascade.accuracy".to_owned(), &|run| run.cascade.as_ref()?.accuracy),
    ];
    others.into_iter().chain((0..stages).map(returned)).collect()
}

/// The 98th percentile of each service class, and how much of it was answered in time, where classes are told apart.
fn classes(pair: &Pair<'_>) -> Vec<FigureError> {
    let names = pair.any().runs[0].summary.classes.keys();
    let figures = names.flat_map(|name| {
        let figure = |figure: &str, read: fn(&ClassSummary) -> Option<f64>| {
            let (simulated, executed) = both(pair, |group| group.spread(|run| read(run.classes.get(name)?)));
            FigureError::new(format!("classes.{name}.{figure}"), simulated, executed, None)
        };
        [
            figure("latency_ms.p98", |class| Some(class.latency_ms?.p98)),
            figure("attainment", |class| class.attainment),
        ]
    });
    figures.collect()
}

/// How often what happens now and then did, where it did on either side. Where there are limits, so there are of what nobody answers.
fn counts(pair: &Pair<'_>, limits: Limits) -> impl Iterator<Item = FigureError> {
    let figure = |figure: &str, read: fn(&RunSummary) -> Option<u64>| {
        let (simulated, executed) = both(pair, |group| group.spread(|run| read(run).map(|count| count as f64)));
        FigureError::new(figure.to_owned(), simulated, executed, None)
    };
    let unanswered = (limits != Limits::default()).then_some(UNANSWERED);
    let figures = [
        FigureError::of_requests(pair, "requests.rejected", |requests| requests.rejected, unanswered),
        FigureError::of_requests(pair, FAILED, |requests| requests.failed, unanswered),
        FigureError::of_requests(pair, "requests.unfinished", |requests| requests.unfinished, unanswered),
        FigureError::of_requests(
            pair,
            "requests.cancelled",
            |requests| requests.cancelled,
            unanswered.map(|_| GIVEN_UP),
        ),
        FigureError::of_changes(
            pair,
            MANAGEMENT_FAILED,
            |changes| changes.failed_by.values().sum(),
            unanswered,
        ),
        FigureError::of_changes(
            pair,
            "management.refused",
            |changes| changes.refused_by.values().sum(),
            unanswered,
        ),
        figure("swap.hits", |run| Some(run.swap.as_ref()?.hits)),
        figure("lookup.domain_hits", |run| Some(run.lookup.as_ref()?.domain_hits)),
        figure("lookup.root_hits", |run| Some(run.lookup.as_ref()?.root_hits)),
        figure("lookup.fallbacks", |run| Some(run.lookup.as_ref()?.fallbacks)),
        figure("generation.evictions", |run| Some(run.generation?.evictions)),
        figure("generation.migrations", |run| Some(run.generation?.migrations)),
    ];
    let happened = |spread: Option<Spread>| spread.is_some_and(|spread| spread.max > 0.0);
    figures
        .into_iter()
        .filter(move |figure| happened(figure.simulated) || happened(figure.executed))
}

/// `None` unless both sides finished requests.
fn stages(pair: &Pair<'_>) -> Option<Vec<StageError>> {
    let (simulated, executed) = (pair.simulated.as_ref()?, pair.executed.as_ref()?);
    let mean = |group: &Group| group.mean(|run| Some(run.latency_ms?.mean));
    let (simulated_mean, executed_mean) = (mean(simulated)?, mean(executed)?);
    let stage = |index: usize, name: &'static str| {
        let part = |group: &Group| group.mean(|run| run.stages_ms()[index].1);
        let (simulated_ms, executed_ms) = (part(simulated)?, part(executed)?);
        let difference = simulated_ms - executed_ms;
        let whole = simulated_mean - executed_mean;
        Some(StageError {
            stage: name,
            simulated_ms,
            executed_ms,
            difference_ms: rounded(difference),
            points_of_mean_error: rounded(difference / executed_mean * 100.0),
            share_of_difference: (whole != 0.0).then(|| rounded(difference / whole)),
        })
    };
    let names = simulated.runs[0].summary.stages_ms().map(|(name, _)| name);
    names
        .into_iter()
        .enumerate()
        .map(|(index, name)| stage(index, name))
        .collect()
}

fn lanes(pair: &Pair<'_>) -> Vec<LaneError> {
    let groups = [&pair.simulated, &pair.executed].into_iter().flatten();
    let names: BTreeSet<&String> = groups
        .flat_map(|group| &group.runs)
        .flat_map(|run| run.summary.lanes.keys())
        .collect();
    let lane = |name: &String| {
        let (simulated, executed) = both(pair, |group| group.mean(|run| Some(run.lanes.get(name)?.busy_share)));
        LaneError {
            lane: name.clone(),
            simulated,
            executed,
        }
    };
    names.into_iter().map(lane).collect()
}

fn both<T>(pair: &Pair<'_>, read: impl Fn(&Group<'_>) -> Option<T>) -> (Option<T>, Option<T>) {
    (
        pair.simulated.as_ref().and_then(&read),
        pair.executed.as_ref().and_then(&read),
    )
}

#[cfg(test)]
mod tests;
