//! What the page says in words, tables and bars.

use std::collections::BTreeSet;

use serde::Serialize;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::charts::Compared;
use crate::classes;
use crate::group::{Group, Spread, point};
use crate::human::{self, ABSENT};
use crate::metric::Metric;
use crate::summary::{FairnessSummary, Parameters, RunSummary, Tokens, WorkloadSummary};

/// A column of the systems' table.
#[derive(Debug, Serialize)]
pub struct Column {
    title: &'static str,
    help: &'static str,
}

/// The columns of the systems' table.
pub fn columns(metrics: &[&Metric]) -> Vec<Column> {
    metrics
        .iter()
        .map(|metric| Column {
            title: metric.title,
            help: metric.help,
        })
        .collect()
}

/// Which of the page's systems and sweep points a row is about, and what it is called.
#[derive(Debug, Serialize)]
pub struct Head {
    system: usize,
    point: usize,
    /// The system.
    name: String,
    /// The sweep point; empty without a sweep.
    at: String,
    /// Where it ran.
    place: String,
}

impl Head {
    fn new(compared: &Compared<'_, '_>, group: &Group<'_>) -> Head {
        Head {
            system: compared.system(group),
            point: compared.point(group),
            name: group.system().to_owned(),
            at: group.point(),
            place: group.place(),
        }
    }
}

/// A group's row in the systems' table.
#[derive(Debug, Serialize)]
pub struct Row {
    head: Head,
    repeats: usize,
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
struct Cell {
    text: String,
    /// Least and most of the repeats, where they differ.
    spread: Option<String>,
}

impl Row {
    /// Of a group.
    pub fn new(compared: &Compared<'_, '_>, group: &Group<'_>, metrics: &[&Metric]) -> Row {
        let cells = metrics.iter().map(|metric| match group.spread(metric.read) {
            None => Cell {
                text: ABSENT.to_owned(),
                spread: None,
            },
            Some(Spread { mean, min, max }) => {
                let [text, min, max] = [mean, min, max].map(|value| metric.unit.show(value));
                Cell {
                    text,
                    spread: (min != max).then(|| format!("{min} … {max}")),
                }
            }
        });
        Row {
            head: Head::new(compared, group),
            repeats: group.runs.len(),
            cells: cells.collect(),
        }
    }
}

/// The parts of a latency: the name in `summary.json`, and what it means.
pub const STAGES: [(&str, &str); 5] = [
    ("queue", "waits for its batch"),
    ("lane", "waits for the compute lane"),
    ("stall", "waits for parameters"),
    ("compute", "computes"),
    ("tell", "is told"),
];

/// A bar in parts.
#[derive(Debug, Serialize)]
pub struct Bar {
    head: Head,
    total: String,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Width in percent of the whole bar.
    width: f64,
    text: String,
}

/// The parts of each group's mean latency. The longest bar at each sweep point fills its row.
pub fn stages(compared: &Compared<'_, '_>) -> Vec<Bar> {
    let mean = |group: &Group| group.mean(|run| Some(run.latency_ms?.mean));
    let mut longest = vec![0.0_f64; compared.points.len()];
    for group in compared.groups {
        let at_point = &mut longest[compared.point(group)];
        *at_point = at_point.max(mean(group).unwrap_or(0.0));
    }
    let bar = |group: &Group| {
        let total = human::milliseconds(mean(group)?);
        let longest = longest[compared.point(group)];
        let part = |(index, (name, _)): (usize, &(&'static str, _))| {
            let ms = group.mean(|run| run.stages_ms()[index].1).unwrap_or(0.0);
            Part {
                name,
                width: width(ms / longest),
                text: human::milliseconds(ms),
            }
        };
        let parts = STAGES.iter().enumerate().map(part).collect();
        Some(Bar {
            head: Head::new(compared, group),
            total,
            parts,
        })
    };
    compared.groups.iter().filter_map(bar).collect()
}

/// What lies in the cards' memory. A whole bar is all of it.
pub fn memory(compared: &Compared<'_, '_>) -> Vec<Bar> {
    let bar = |group: &Group| {
        let memory = group.runs[0].summary.gpu_memory_bytes?;
        let capacity = memory.capacity as f64;
        let part = |name, bytes: u64| Part {
            name,
            width: width(bytes as f64 / capacity),
            text: human::bytes(bytes as f64),
        };
        let mut parts = vec![part("shared", memory.shared)];
        if memory.peak > memory.shared {
            parts.push(part("tenants", memory.peak - memory.shared));
        }
        parts.push(part("free", memory.capacity - memory.peak));
        Some(Bar {
            head: Head::new(compared, group),
            total: human::bytes(capacity),
            parts,
        })
    };
    compared.groups.iter().filter_map(bar).collect()
}

/// A group's lanes.
#[derive(Debug, Serialize)]
pub struct Lanes {
    head: Head,
    busiest: String,
    lanes: Vec<Lane>,
}

#[derive(Debug, Serialize)]
struct Lane {
    name: String,
    width: f64,
    text: String,
}

/// How busy each group's lanes were.
pub fn lanes(compared: &Compared<'_, '_>) -> Vec<Lanes> {
    let of_group = |group: &Group| {
        let busy = |name: &String| group.mean(|run| Some(run.lanes.get(name)?.busy_share)).unwrap_or(0.0);
        let lane = |name: &String| Lane {
            name: name.clone(),
            width: width(busy(name)),
            text: human::percent(busy(name)),
        };
        let names = group.runs[0].summary.lanes.keys();
        let busiest = names.clone().max_by(|a, b| busy(a).total_cmp(&busy(b)))?;
        Some(Lanes {
            head: Head::new(compared, group),
            busiest: format!("{busiest} {}", human::percent(busy(busiest))),
            lanes: names.map(lane).collect(),
        })
    };
    compared.groups.iter().filter_map(of_group).collect()
}

/// How evenly a group's tenants were served: cells of [`FAIRNESS`].
#[derive(Debug, Serialize)]
pub struct Fairness {
    head: Head,
    cells: Vec<String>,
}

/// The columns on tenants, each with what it means.
const FAIRNESS: [(&str, &str); 7] = [
    ("Tenants", "With a request that was answered, turned away or failed."),
    (
        "Answered",
        "Tenants with a request that was answered, of which alone the latencies are.",
    ),
    ("Fastest tenant", "The least mean latency of a tenant."),
    (
        "Median tenant",
        "Half of the tenants answered wait at most this long on average.",
    ),
    (
        "p98 tenant",
        "98 % of the tenants answered wait at most this long on average.",
    ),
    ("Slowest tenant", "The largest mean latency of a tenant."),
    (
        "Jain's index",
        "Of these mean latencies: 1 where all wait alike; the nearer to 0, the fewer bear the waiting.",
    ),
];

/// The columns of these rows: where there is a target, one more.
pub fn fairness_columns(rows: &[Fairness]) -> Vec<(&'static str, &'static str)> {
    let mut columns = FAIRNESS.to_vec();
    if rows.iter().any(|row| row.cells.len() > FAIRNESS.len()) {
        columns.push(("Tenants in SLO", "Share of all tenants for whom the target was met."));
    }
    columns
}

/// A row each group whose tenants were looked at.
pub fn fairness(compared: &Compared<'_, '_>) -> Vec<Fairness> {
    let row = |group: &Group<'_>| {
        let fairness: FairnessSummary = group.runs[0].summary.fairness?;
        let across = fairness.tenant_mean_latency_ms;
        let times = [across.min, across.p50, across.p98, across.max].map(human::milliseconds);
        let answered = fairness.tenants_answered.map_or(ABSENT.to_owned(), human::count);
        let mut cells = vec![human::count(fairness.tenants), answered];
        cells.extend(times);
        cells.push(fairness.jain_index.map_or(ABSENT.to_owned(), human::number));
        cells.extend(fairness.tenants_in_slo.map(human::percent));
        Some(Fairness {
            head: Head::new(compared, group),
            cells,
        })
    };
    compared.groups.iter().filter_map(row).collect()
}

/// How a service class of a group fared: cells of [`class_columns`](crate::classes::class_columns).
#[derive(Debug, Serialize)]
pub struct Class {
    head: Head,
    class: String,
    cells: [String; 6],
}

/// A row for each service class of each group.
pub fn classes(compared: &Compared<'_, '_>) -> Vec<Class> {
    let rows = |group| {
        let row = move |(class, cells)| Class {
            head: Head::new(compared, group),
            class,
            cells,
        };
        classes::figures(group).into_iter().map(row)
    };
    compared.groups.iter().flat_map(rows).collect()
}

/// What was asked, in words: a name and a text each. Of the first run at each different workload, with the sweep point
/// where that tells those of one folder apart, else with the systems that were asked so.
pub fn workloads(compared: &Compared<'_, '_>, of_one_folder: bool) -> Vec<(String, Vec<(&'static str, String)>)> {
    let mut known: Vec<(WorkloadSummary, Vec<&Group<'_>>)> = Vec::new();
    for group in compared.groups {
        let Some(workload) = group.runs[0].summary.workload else {
            continue;
        };
        match known.iter_mut().find(|(other, _)| *other == workload) {
            Some((_, groups)) => groups.push(group),
            None => known.push((workload, vec![group])),
        }
    }
    let points: BTreeSet<String> = known.iter().map(|(_, groups)| shared_point(groups)).collect();
    let by_point = of_one_folder && points.len() == known.len() && !points.contains("");
    let heading = |groups: &[&Group<'_>]| {
        let point = shared_point(groups);
        if by_point {
            return point;
        }
        let mut names: Vec<String> = Vec::new();
        for name in groups.iter().map(|group| compared.name(group)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match point.is_empty() {
            true => names.join("; "),
            false => format!("{} ({point})", names.join("; ")),
        }
    };
    // Of a wide sweep the ends tell enough.
    const MOST: usize = 6;
    if known.len() > MOST {
        known.drain(MOST / 2..known.len() - MOST / 2);
    }
    let said = |(workload, groups): &(WorkloadSummary, Vec<&Group<'_>>)| {
        let seconds = seconds(&groups[0].runs[0].summary, workload);
        (heading(groups), in_words(workload, seconds))
    };
    known.iter().map(said).collect()
}

/// What the sweep points of some groups have in common; empty where that is nothing.
fn shared_point(groups: &[&Group<'_>]) -> String {
    let mut shared: Parameters = groups[0].parameters().clone();
    shared.retain(|key, value| groups.iter().all(|group| group.parameters().get(key) == Some(value)));
    point(&shared)
}

/// In how many whole seconds requests were counted, as far as their rate tells.
fn seconds(run: &RunSummary, workload: &WorkloadSummary) -> f64 {
    let of_rate = |rate: f64| (run.requests.offered as f64 / rate).floor();
    workload.rate_rps.map_or(0.0, of_rate)
}

/// What the dispersion of the counts of so many seconds says: of few seconds nothing, and of others only what a Poisson
/// process hardly ever comes to is unlike one.
fn burstiness(dispersion: f64, seconds: f64) -> Option<&'static str> {
    /// Of fewer seconds a Poisson process comes out at almost anything.
    const FEW: f64 = 10.0;
    /// So rarely one is called something else, on either side.
    const HARDLY: f64 = 1e-3;
    if seconds < FEW {
        return None;
    }
    let chance = ChiSquared::new(seconds - 1.0).expect("there are some degrees of freedom");
    let so_little = || chance.cdf(dispersion * seconds);
    let so_much = || chance.sf(dispersion * seconds);
    Some(match dispersion {
        d if d < 0.5 && so_little() < HARDLY => "steadier than chance",
        d if d >= 2.0 && so_much() < HARDLY => "in bursts",
        _ => "about as a Poisson process",
    })
}

fn in_words(workload: &WorkloadSummary, seconds: f64) -> Vec<(&'static str, String)> {
    let tokens = |tokens: Tokens| {
        let Tokens { mean, p50, p98, max } = tokens;
        format!(
            "{} on average; median {p50}, p98 {p98}, longest {max}",
            human::number(mean)
        )
    };
    let facts = [
        (
            "Rate",
            workload.rate_rps.map(|rate| format!("{} requests a second on average", human::number(rate))),
        ),
        (
            "Burstiness",
            workload.dispersion.map(|d| {
                let said = burstiness(d, seconds).map_or(String::new(), |said| format!("{said}: "));
                let d = human::number(d);
                format!("{said}the variance of the requests in a second is {d} times their mean")
            }),
        ),
        (
            "Tenants",
            Some(format!(
                "{} asked; the busiest tenth of them sent {} of the requests",
                human::count(workload.tenants),
                human::percent(workload.busiest_tenth_share)
            )),
        ),
        ("Input tokens", Some(tokens(workload.input_tokens))),
        ("Output tokens", workload.output_tokens.map(tokens)),
    ];
    facts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

/// Percent for a style sheet.
fn width(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Tokens;
    use crate::testing;

    fn asked(rate: f64) -> WorkloadSummary {
        let tokens = Tokens {
            mean: 10.0,
            p50: 10,
            p98: 10,
            max: 10,
        };
        WorkloadSummary {
            silent_s: None,
            rate_rps: Some(rate),
            dispersion: None,
            input_tokens: tokens,
            output_tokens: None,
            tenants: 1,
            busiest_tenth_share: 1.0,
        }
    }

    fn headings(runs: &[crate::Run], of_one_folder: bool) -> Vec<String> {
        let groups = Group::all(runs);
        let said = workloads(&Compared::new(&groups), of_one_folder);
        said.into_iter().map(|(heading, _)| heading).collect()
    }

    #[test]
    fn what_was_asked_has_a_name_of_its_own() {
        let mut runs = testing::runs();
        for (run, rate) in runs.iter_mut().zip([1.0, 2.0, 2.0, 2.0, 1.0, 3.0, 3.0, 3.0]) {
            run.summary.workload = Some(asked(rate));
        }
        let names = [
            "hmi, simulated; bert-dedicated, simulated",
            "hmi, executed on cpu",
            "bert-dedicated, executed on cpu",
        ];
        assert_eq!(headings(&runs, true), names);
        for (run, tenants) in runs.iter_mut().zip([10, 20, 20, 20, 10, 30, 30, 30]) {
            run.summary.parameters.insert("tenants.count".into(), tenants.into());
        }
        assert_eq!(
            headings(&runs, true),
            ["tenants.count 10", "tenants.count 20", "tenants.count 30"]
        );
    }

    /// A sweep's point is not the name of what was asked at others too, nor of what was asked without a sweep.
    #[test]
    fn a_point_names_what_was_asked_at_it_alone() {
        /// A system, its sweep point and the rate of what it was asked.
        type Asked<'a> = (&'a str, &'a [(&'a str, u64)], f64);
        let runs = |points: &[Asked<'_>]| -> Vec<crate::Run> {
            let run = |(system, point, rate): &Asked<'_>| {
                let mut run = testing::runs().swap_remove(0);
                run.summary.system = (*system).to_owned();
                let parameters = point.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
                run.summary.parameters = parameters.collect();
                run.summary.workload = Some(asked(*rate));
                run
            };
            points.iter().map(run).collect()
        };
        let folders = runs(&[
            ("a: hmi", &[("cluster.gpus", 1)], 1.0),
            ("a: hmi", &[("cluster.gpus", 2)], 1.0),
            ("b: hmi", &[], 2.0),
        ]);
        assert_eq!(headings(&folders, false), ["a: hmi", "b: hmi"]);
        let swept = runs(&[
            ("a: hmi", &[("rate", 1)], 1.0),
            ("a: hmi", &[("rate", 2)], 2.0),
            ("b: hmi", &[("tenants.count", 3)], 3.0),
        ]);
        assert_eq!(
            headings(&swept, false),
            ["a: hmi (rate 1)", "a: hmi (rate 2)", "b: hmi (tenants.count 3)"]
        );
        let grid = runs(&[
            ("hmi", &[("cluster.gpus", 1), ("rate", 1)], 1.0),
            ("hmi", &[("cluster.gpus", 1), ("rate", 2)], 2.0),
            ("hmi", &[("cluster.gpus", 2), ("rate", 1)], 1.0),
            ("hmi", &[("cluster.gpus", 2), ("rate", 2)], 2.0),
        ]);
        assert_eq!(headings(&grid, true), ["rate 1", "rate 2"]);
    }

    /// A Poisson process of 100 requests a second, counted for 5 seconds, comes out at 0.12 as well as at 2.5.
    #[test]
    fn what_chance_makes_of_few_seconds_is_not_called_steady() {
        for (dispersion, seconds, said) in [
            (0.12, 5.0, None),
            (0.0, 9.0, None),
            (0.3, 12.0, Some("about as a Poisson process")),
            (0.3, 40.0, Some("steadier than chance")),
            (0.0, 12.0, Some("steadier than chance")),
            (1.3, 100_000.0, Some("about as a Poisson process")),
            (2.2, 12.0, Some("about as a Poisson process")),
            (2.2, 40.0, Some("in bursts")),
            (1083.0, 100_000.0, Some("in bursts")),
        ] {
            assert_eq!(burstiness(dispersion, seconds), said, "{dispersion} over {seconds} s");
        }
        let mut run = testing::runs().swap_remove(0);
        let workload = WorkloadSummary {
            dispersion: Some(0.3),
            ..asked(100.0)
        };
        run.summary.workload = Some(workload);
        let said = |offered: u64| {
            let mut run = run.clone();
            run.summary.requests.offered = offered;
            let runs = [run];
            let groups = Group::all(&runs);
            let [(_, facts)] = &workloads(&Compared::new(&groups), true)[..] else {
                panic!("one workload")
            };
            facts[1].1.clone()
        };
        let figure = "the variance of the requests in a second is 0.300 times their mean";
        assert_eq!(said(550), figure);
        assert_eq!(said(5500), format!("steadier than chance: {figure}"));
    }
}
