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

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Short, with the unit.
    pub title: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// How it is shown.
    pub unit: Unit,
    /// Of a run.
    pub read: fn(&RunSummary) -> Option<f64>,
}

/// The figures that tables show.
const METRICS: [Metric; 22] = [
    Metric {
        title: "Requests/s",
        help: "Requests answered a second.",
        unit: Unit::Number,
        read: |run| run.throughput_rps,
    },
    Metric {
        title: "Tokens/s",
        help: "Tokens generated a second, of requests that were answered.",
        unit: Unit::Number,
        read: |run| run.output_tokens_per_s,
    },
    latency("TTFT ms", "Mean time to the first token, from arrival.", |run| {
        Some(run.ttft_ms?.mean)
    }),
    latency("TPOT ms", "Mean time from one token of a request to its next.", |run| {
        Some(run.tpot_ms?.mean)
    }),
    latency(
        "Longest gap ms",
        "Mean over requests of the longest time from one token to the next.",
        |run| Some(run.longest_token_gap_ms?.mean),
    ),
    latency("Mean ms", "Mean latency, from arrival to answer.", |run| {
        Some(run.latency_ms?.mean)
    }),
    latency("p50 ms", "Half of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p50)
    }),
    latency("p90 ms", "90 % of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p90)
    }),
    latency("p95 ms", "95 % of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p95)
    }),
    latency("p98 ms", "98 % of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p98)
    }),
    latency("p99 ms", "99 % of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p99)
    }),
    latency("p99.9 ms", "99.9 % of all requests took at most this long.", |run| {
        Some(run.latency_ms?.p999)
    }),
    Metric {
        title: "In SLO",
        help: "Share of requests answered within the target; rejected and failed ones count as missed.",
        unit: Unit::Share,
        read: |run| run.slo_attainment,
    },
    Metric {
        title: "Right",
        help: "Share of the answers that are right.",
        unit: Unit::Share,
        read: |run| run.cascade.as_ref()?.accuracy,
    },
    Metric {
        title: "At once",
        help: "Share of the requests that the first model's answer was good enough for.",
        unit: Unit::Share,
        read: |run| match run.cascade.as_ref()?.returned_share_by_stage[..] {
            [first, _, ..] => Some(first),
            _ => None,
        },
    },
    Metric {
        title: "Batch",
        help: "Requests a batch, mean.",
        unit: Unit::Number,
        read: |run| run.batch_size_mean,
    },
    Metric {
        title: "Busy",
        help: "Share of the time in which the busiest lane ran an op.",
        unit: Unit::Share,
        read: |run| run.lanes.values().map(|lane| lane.busy_share).reduce(f64::max),
    },
    Metric {
        title: "Unanswered",
        help: "Share of the requests that were refused or failed: latencies are of the others.",
        unit: Unit::Share,
        read: unanswered,
    },
    Metric {
        title: "Cards",
        help: "How many there were on average, where they come and go.",
        unit: Unit::Number,
        read: cards_that_come_and_go,
    },
    Metric {
        title: "Memory",
        help: "Most that ever lay in the cards' memory.",
        unit: Unit::Bytes,
        read: |run| Some(run.gpu_memory_bytes?.peak as f64),
    },
    Metric {
        title: "Cost/million",
        help: "What the cards cost while a million requests are answered, by the scenario's prices.",
        unit: Unit::Number,
        read: |run| run.cost_per_million_requests,
    },
    Metric {
        title: "Swap hits",
        help: "Share of uses that found a tenant's parameters on the card.",
        unit: Unit::Share,
        read: |run| run.swap?.hit_share(),
    },
];

/// Quantiles whose column is there where a target is about them.
const OF_TARGETS: [&str; 3] = ["p90 ms", "p95 ms", "p99.9 ms"];

/// What only some systems have: its column is left out where none does.
const OF_SOME: [&str; 10] = [
    "Tokens/s",
    "TTFT ms",
    "TPOT ms",
    "Longest gap ms",
    "Right",
    "At once",
    "Unanswered",
    "Cards",
    "Cost/million",
    "Swap hits",
];

/// The figures that a table of these groups shows.
pub fn shown(groups: &[Group<'_>]) -> Vec<&'static Metric> {
    let some_has = |metric: &Metric| groups.iter().any(|group| group.mean(metric.read).is_some());
    let slos = groups.iter().filter_map(|group| group.runs[0].summary.slo.as_ref());
    let is_asked = |title: &str| slos.clone().any(|slo| format!("{} ms", slo.at) == title);
    METRICS
        .iter()
        .filter(|metric| !OF_SOME.contains(&metric.title) || some_has(metric))
        .filter(|metric| !OF_TARGETS.contains(&metric.title) || is_asked(metric.title))
        .collect()
}

fn unanswered(run: &RunSummary) -> Option<f64> {
    let unanswered = run.requests.rejected + run.requests.failed;
    (unanswered > 0).then(|| unanswered as f64 / run.requests.offered as f64)
}

/// Of cards that stay, runs hold how many were busy.
fn cards_that_come_and_go(run: &RunSummary) -> Option<f64> {
    let of_cascade = run.cascade.as_ref().and_then(|cascade| cascade.scaling.as_ref());
    let of_fleet = run.fleet.as_ref().map(|fleet| fleet.cards_added + fleet.cards_released);
    let scales = run.scaling.is_some() || of_cascade.is_some() || of_fleet.is_some_and(|changes| changes > 0);
    run.gpus_time_weighted.filter(|_| scales)
}

const fn latency(title: &'static str, help: &'static str, read: fn(&RunSummary) -> Option<f64>) -> Metric {
    Metric {
        title,
        help,
        unit: Unit::Number,
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
}
