//! What is compared of two sides, and how far they are apart in it.

use std::collections::BTreeSet;

use super::pair::Pair;
use super::{FAILED, FigureError, Limits, MANAGEMENT_FAILED, SeedError, TOKENS_PER_REQUEST, UNANSWERED, Verdict};
use crate::classes::ClassSummary;
use crate::group::{Group, Spread};
use crate::summary::{ManagementSummary, RequestCounts, RunSummary, rounded};

/// Who gives up does so by the clock: where times differ by what limits allow, so does how many do. By more than this
/// share of all requests, the two machines did not answer the same ones.
const GIVEN_UP: f64 = 0.05;

/// Every figure of both sides, in the order in which they are shown.
pub(super) fn figures(pair: &Pair<'_>, limits: Limits) -> Vec<FigureError> {
    let figure = |name, limit, read| FigureError::by_seed(pair, name, limit, read);
    let always = [
        figure("throughput_rps", limits.throughput, |run| run.throughput_rps),
        figure("latency_ms.mean", limits.mean, |run| Some(run.latency_ms?.mean)),
        figure("latency_ms.p50", None, |run| Some(run.latency_ms?.p50)),
        figure("latency_ms.p98", limits.p98, |run| Some(run.latency_ms?.p98)),
        figure("latency_ms.p99", None, |run| Some(run.latency_ms?.p99)),
        figure("batch_size_mean", None, |run| run.batch_size_mean),
    ];
    let is_there = |figure: &FigureError| figure.simulated.is_some() || figure.executed.is_some();
    // What neither side has, as an encoder has no tokens, is no figure of theirs.
    let where_there = tokens(pair).into_iter().chain(decisions(pair)).chain(classes(pair)).filter(is_there);
    always.into_iter().chain(where_there).chain(counts(pair, limits)).collect()
}

/// What a decoder is judged by.
fn tokens(pair: &Pair<'_>) -> [FigureError; 6] {
    let figure = |name, read| FigureError::by_seed(pair, name, None, read);
    [
        figure("output_tokens_per_s", |run| run.output_tokens_per_s),
        figure(TOKENS_PER_REQUEST, |run| {
            let answered_per_s = run.throughput_rps.filter(|rate| *rate > 0.0)?;
            Some(run.output_tokens_per_s? / answered_per_s)
        }),
        figure("ttft_ms.mean", |run| Some(run.ttft_ms?.mean)),
        figure("tpot_ms.mean", |run| Some(run.tpot_ms?.mean)),
        figure("token_gap_ms.p98", |run| Some(run.token_gap_ms?.p98)),
        figure("longest_token_gap_ms.mean", |run| Some(run.longest_token_gap_ms?.mean)),
    ]
}

/// What policies came to beside times.
fn decisions(pair: &Pair<'_>) -> Vec<FigureError> {
    let stages = pair.any().runs[0]
        .summary
        .cascade
        .as_ref()
        .map_or(0, |cascade| cascade.returned_share_by_stage.len());
    let returned = |stage: usize| {
        let name = format!("cascade.returned_share_by_stage.{stage}");
        FigureError::of(pair, name, None, |run| {
            run.cascade.as_ref()?.returned_share_by_stage.get(stage).copied()
        })
    };
    let others = [
        FigureError::of(pair, "slo_attainment", None, |run| run.slo_attainment),
        FigureError::of(pair, "gpus_time_weighted", None, |run| run.gpus_time_weighted),
        FigureError::of(pair, "cascade.accuracy", None, |run| run.cascade.as_ref()?.accuracy),
    ];
    others.into_iter().chain((0..stages).map(returned)).collect()
}

/// The 98th percentile of each service class, and how much of it was answered in time, where classes are told apart.
fn classes(pair: &Pair<'_>) -> Vec<FigureError> {
    let names = pair.any().runs[0].summary.classes.keys();
    let figures = names.flat_map(|name| {
        let figure = |figure: &str, read: fn(&ClassSummary) -> Option<f64>| {
            let of_class = |run: &RunSummary| read(run.classes.get(name)?);
            FigureError::of(pair, format!("classes.{name}.{figure}"), None, of_class)
        };
        [
            figure("latency_ms.p98", |class| Some(class.latency_ms?.p98)),
            figure("attainment", |class| class.attainment),
        ]
    });
    figures.collect()
}

/// How often what happens now and then did, where it did on either side. Where there are limits, so there are of what
/// nobody answers.
fn counts(pair: &Pair<'_>, limits: Limits) -> impl Iterator<Item = FigureError> {
    let unanswered = (limits != Limits::default()).then_some(UNANSWERED);
    let given_up = unanswered.map(|_| GIVEN_UP);
    let requests = |name, limit, count| FigureError::of_requests(pair, name, count, limit);
    let changes = |name, count| FigureError::of_changes(pair, name, count, unanswered);
    let often = |name: &str, count: fn(&RunSummary) -> Option<u64>| {
        FigureError::of(pair, name, None, |run| count(run).map(|count| count as f64))
    };
    let figures = [
        requests("requests.rejected", unanswered, |requests| requests.rejected),
        requests(FAILED, unanswered, |requests| requests.failed),
        requests("requests.unfinished", unanswered, |requests| requests.unfinished),
        requests("requests.cancelled", given_up, |requests| requests.cancelled),
        changes(MANAGEMENT_FAILED, |changes| changes.failed_by.values().sum()),
        changes("management.refused", |changes| changes.refused_by.values().sum()),
        often("swap.hits", |run| Some(run.swap.as_ref()?.hits)),
        often("lookup.domain_hits", |run| Some(run.lookup.as_ref()?.domain_hits)),
        often("lookup.root_hits", |run| Some(run.lookup.as_ref()?.root_hits)),
        often("lookup.fallbacks", |run| Some(run.lookup.as_ref()?.fallbacks)),
        often("generation.evictions", |run| Some(run.generation?.evictions)),
        often("generation.migrations", |run| Some(run.generation?.migrations)),
    ];
    let happened = |spread: Option<Spread>| spread.is_some_and(|spread| spread.max > 0.0);
    figures
        .into_iter()
        .filter(move |figure| happened(figure.simulated) || happened(figure.executed))
}

impl FigureError {
    /// Of means over each side's repeats, relative to the executed one.
    fn of(
        pair: &Pair<'_>,
        figure: impl Into<String>,
        limit: Option<f64>,
        read: impl Fn(&RunSummary) -> Option<f64>,
    ) -> FigureError {
        let sides = pair.both(|group| group.spread(&read));
        let error = match sides {
            (Some(simulated), Some(executed)) if executed.mean != 0.0 => Some(simulated.mean / executed.mean - 1.0),
            _ => None,
        };
        FigureError::judged(figure.into(), sides, error, limit)
    }

    /// Beside the means' error that of the seed which is farthest off.
    fn by_seed(pair: &Pair<'_>, figure: &str, limit: Option<f64>, read: fn(&RunSummary) -> Option<f64>) -> FigureError {
        FigureError {
            worst_seed: worst_seed(pair, read),
            ..FigureError::of(pair, figure, limit, read)
        }
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
        let some = pair.both(|group| group.spread(|run| Some(counts(run)?.0 as f64)));
        let share = |run: &RunSummary| counts(run).map(|(some, all)| some as f64 / all.max(1) as f64);
        let error = match pair.both(|group| group.mean(share)) {
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
    let errors = both.iter().filter_map(|&seed| error(seed));
    errors
        .max_by(|a, b| a.error_percent.abs().total_cmp(&b.error_percent.abs()))
        .filter(|_| both.len() > 1)
}
