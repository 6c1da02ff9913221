//! The figures that tables show, in their order.

use crate::group::Group;
use crate::human;
use crate::summary::RunSummary;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number, its unit in the title.
    Number,
    /// Shown in percent.
    Share,
    /// Shown in the unit that fits.
    Bytes,
}

impl Unit {
    /// For people.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Number => human::number(value),
            Unit::Share => human::percent(value),
            Unit::Bytes => human::bytes(value),
        }
    }
}

/// In which tables a column is.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// In all.
    Always,
    /// Where some of the systems have the figure at all.
    WhereSomeHaveIt,
    /// Where it is as said of some run: of all others the figure says nothing.
    WhereSomeRun(fn(&RunSummary) -> bool),
    /// Where a target is about that quantile, such as `p95`.
    OfTarget(&'static str),
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Short, with the unit.
    pub title: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// How it is shown,
    pub unit: Unit,
    /// and in which tables.
    shown: Shown,
    /// Of a run.
    pub read: fn(&RunSummary) -> Option<f64>,
}

/// The figures that tables show.
const METRICS: [Metric; 24] = [
    Metric {
        title: "Requests/s",
        help: "Requests answered a second.",
        unit: Unit::Number,
        shown: Shown::Always,
        read: |run| run.throughput_rps,
    },
    Metric {
        title: "Tokens/s",
        help: "Tokens generated a second, of requests that were answered.",
        unit: Unit::Number,
        shown: Shown::WhereSomeHaveIt,
        read: |run| run.output_tokens_per_s,
    },
    latency(
        "TTFT ms",
        Shown::WhereSomeHaveIt,
        "Mean time to the first token, from arrival.",
        |run| Some(run.ttft_ms?.mean),
    ),
    latency(
        "TTFT at SLO ms",
        Shown::WhereSomeRun(|run| run.slo.as_ref().is_some_and(|slo| slo.ttft_ms.is_some())),
        "Time to the first token at the quantile that the target is about.",
        |run| run.ttft_ms?.at(&run.slo.as_ref()?.at),
    ),
    latency(
        "TPOT ms",
        Shown::WhereSomeHaveIt,
        "Mean time from one token of a request to its next.",
        |run| Some(run.tpot_ms?.mean),
    ),
    latency(
        "TPOT at SLO ms",
        Shown::WhereSomeRun(|run| run.slo.as_ref().is_some_and(|slo| slo.tpot_ms.is_some())),
        "Time from one token of a request to its next at the quantile that the target is about.",
        |run| run.tpot_ms?.at(&run.slo.as_ref()?.at),
    ),
    latency(
        "Longest gap ms",
        Shown::WhereSomeHaveIt,
        "Mean over requests of the longest time from one token to the next.",
        |run| Some(run.longest_token_gap_ms?.mean),
    ),
    latency(
        "Mean ms",
        Shown::Always,
        "Mean latency, from arrival to answer.",
        |run| Some(run.latency_ms?.mean),
    ),
    latency(
        "p50 ms",
        Shown::Always,
        "Half of all requests took at most this long.",
        |run| Some(run.latency_ms?.p50),
    ),
    latency(
        "p90 ms",
        Shown::OfTarget("p90"),
        "90 % of all requests took at most this long.",
        |run| Some(run.latency_ms?.p90),
    ),
    latency(
        "p95 ms",
        Shown::OfTarget("p95"),
        "95 % of all requests took at most this long.",
        |run| Some(run.latency_ms?.p95),
    ),
    latency(
        "p98 ms",
        Shown::Always,
        "98 % of all requests took at most this long.",
        |run| Some(run.latency_ms?.p98),
    ),
    latency(
        "p99 ms",
        Shown::Always,
        "99 % of all requests took at most this long.",
        |run| Some(run.latency_ms?.p99),
    ),
    latency(
        "p99.9 ms",
        Shown::OfTarget("p99.9"),
        "99.9 % of all requests took at most this long.",
        |run| Some(run.latency_ms?.p999),
    ),
    Metric {
        title: "In SLO",
        help: "Share of requests answered within the target; rejected and failed ones count as missed.",
        unit: Unit::Share,
        shown: Shown::Always,
        read: |run| run.slo_attainment,
    },
    Metric {
        title: "Right",
        help: "Share of the answers that are right.",
        unit: Unit::Share,
        shown: Shown::WhereSomeHaveIt,
        read: |run| run.cascade.as_ref()?.accuracy,
    },
    Metric {
        title: "First alone",
        help: "Share of the requests that the first model alone was asked about, since its answer was good enough.",
        unit: Unit::Share,
        shown: Shown::WhereSomeHaveIt,
        read: |run| match run.cascade.as_ref()?.returned_share_by_stage[..] {
            [first, _, ..] => Some(first),
            _ => None,
        },
    },
    Metric {
        title: "Batch",
        help: "Requests a batch, mean.",
        unit: Unit::Number,
        shown: Shown::Always,
        read: |run| run.batch_size_mean,
    },
    Metric {
        title: "Busy",
        help: "Share of the time in which the busiest lane ran an op.",
        unit: Unit::Share,
        shown: Shown::Always,
        read: |run| run.lanes.values().map(|lane| lane.busy_share).reduce(f64::max),
    },
    Metric {
        title: "Unanswered",
        help: "Share of the requests that were refused, failed or were left at the end: latencies are of the others.",
        unit: Unit::Share,
        shown: Shown::WhereSomeRun(|run| unanswered(run) > 0),
        read: |run| Some(unanswered(run) as f64 / run.requests.offered.max(1) as f64),
    },
    Metric {
        title: "Cards",
        help: "How many there were on average, where they come and go.",
        unit: Unit::Number,
        shown: Shown::WhereSomeRun(scales),
        read: cards_that_come_and_go,
    },
    Metric {
        title: "Memory",
        help: "Most that ever lay in the cards' memory.",
        unit: Unit::Bytes,
        shown: Shown::Always,
        read: |run| Some(run.gpu_memory_bytes?.peak as f64),
    },
    Metric {
        title: "Cost/million",
        help: "What the cards cost while a million requests are answered, by the scenario's prices.",
        unit: Unit::Number,
        shown: Shown::WhereSomeHaveIt,
        read: |run| run.cost_per_million_requests,
    },
    Metric {
        title: "Swap hits",
        help: "Share of uses that found a tenant's parameters on the card.",
        unit: Unit::Share,
        shown: Shown::WhereSomeHaveIt,
        read: |run| run.swap?.hit_share(),
    },
];

/// The figures that a table of these groups shows.
pub fn shown(groups: &[Group<'_>]) -> Vec<&'static Metric> {
    let runs = || groups.iter().flat_map(|group| &group.runs).map(|run| &run.summary);
    let is_shown = |metric: &&Metric| match metric.shown {
        Shown::Always => true,
        Shown::WhereSomeHaveIt => runs().any(|run| (metric.read)(run).is_some()),
        Shown::WhereSomeRun(is_so) => runs().any(is_so),
        Shown::OfTarget(quantile) => runs().any(|run| run.slo.as_ref().is_some_and(|slo| slo.at == quantile)),
    };
    METRICS.iter().filter(is_shown).collect()
}

/// Refused, failed, or still there at the end of a run that nobody stopped.
fn unanswered(run: &RunSummary) -> u64 {
    let requests = &run.requests;
    let left = if run.interrupted { 0 } else { requests.unfinished };
    requests.rejected + requests.failed + left
}

/// Whether its cards come and go, and did.
fn scales(run: &RunSummary) -> bool {
    let of_cascade = run.cascade.as_ref().and_then(|cascade| cascade.scaling.as_ref());
    let of_fleet = run.fleet.as_ref().map(|fleet| fleet.cards_added + fleet.cards_released);
    run.scaling.is_some() || of_cascade.is_some() || of_fleet.is_some_and(|changes| changes > 0)
}

/// Of other systems, runs hold how many of the cards that stay were busy.
fn cards_that_come_and_go(run: &RunSummary) -> Option<f64> {
    run.gpus_time_weighted.filter(|_| scales(run) || run.fleet.is_some())
}

const fn latency(
    title: &'static str,
    shown: Shown,
    help: &'static str,
    read: fn(&RunSummary) -> Option<f64>,
) -> Metric {
    Metric {
        title,
        help,
        unit: Unit::Number,
        shown,
        read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Where one system's target is about a quantile, the others' is there to compare.
    #[test]
    fn a_quantile_that_a_target_is_about_is_shown_of_all() {
        let mut runs = testing::runs();
        let titles = |runs: &[crate::Run]| -> Vec<&'static str> {
            shown(&Group::all(runs)).iter().map(|metric| metric.title).collect()
        };
        assert!(!titles(&runs).contains(&"p95 ms"));
        runs[0].summary.slo.as_mut().unwrap().at = "p95".into();
        let groups = Group::all(&runs);
        let columns = shown(&groups);
        let p95 = columns.iter().find(|metric| metric.title == "p95 ms").unwrap();
        assert!(groups.iter().all(|group| group.mean(p95.read).is_some()));
    }

    /// What a target of tokens is judged by stands beside the means.
    #[test]
    fn a_target_of_tokens_shows_what_it_is_judged_by() {
        let mut runs = testing::runs();
        let titles = |runs: &[crate::Run]| -> Vec<&'static str> {
            shown(&Group::all(runs)).iter().map(|metric| metric.title).collect()
        };
        assert!(!titles(&runs).iter().any(|title| title.contains("at SLO")));
        let latency = runs[0].summary.latency_ms;
        let slo = runs[0].summary.slo.as_mut().unwrap();
        (slo.at, slo.ttft_ms) = ("p95".into(), Some(500.0));
        runs[0].summary.ttft_ms = latency;
        assert!(titles(&runs).contains(&"TTFT at SLO ms") && !titles(&runs).contains(&"TPOT at SLO ms"));
        let read = METRICS.iter().find(|metric| metric.title == "TTFT at SLO ms").unwrap().read;
        assert_eq!(read(&runs[0].summary), Some(latency.unwrap().p95));
    }

    /// Of two seeds of which one has refused nobody, half as many were refused.
    #[test]
    fn seeds_without_any_count_too() {
        let mut runs = testing::runs();
        let column =
            |runs: &[crate::Run]| shown(&Group::all(runs)).into_iter().find(|metric| metric.title == "Unanswered");
        for run in &mut runs {
            let requests = &mut run.summary.requests;
            (requests.rejected, requests.failed) = (0, 0);
        }
        assert!(column(&runs).is_none());
        let mut second = runs[0].clone();
        second.summary.repeat = 1;
        second.summary.requests.rejected = second.summary.requests.offered / 10;
        runs.insert(1, second);
        let groups = Group::all(&runs);
        let share = groups[0].mean(column(&runs).unwrap().read).unwrap();
        assert!((share - 0.05).abs() < 1e-3, "{share}");
        // Who is left when a run ends by itself was not answered either.
        let [first, ..] = &mut runs[..] else { unreachable!() };
        first.summary.requests.unfinished = first.summary.requests.offered;
        let read = column(&runs).unwrap().read;
        assert_eq!(read(&runs[0].summary), Some(1.0));
        runs[0].summary.interrupted = true;
        assert_eq!(read(&runs[0].summary), Some(0.0));
    }
}
