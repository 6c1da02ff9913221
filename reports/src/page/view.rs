//! What the page says in words, tables and bars.

use serde::Serialize;

use crate::group::{Group, Spread};
use crate::human::{self, ABSENT};
use crate::metric::{Metric, latency_at};
use crate::summary::RunSummary;

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

/// A group's row in the systems' table.
#[derive(Debug, Serialize)]
pub struct Row {
    title: String,
    place: String,
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
    pub fn new(group: &Group<'_>, metrics: &[&Metric]) -> Row {
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
            title: group.title(),
            place: group.place(),
            repeats: group.runs.len(),
            cells: cells.collect(),
        }
    }
}

/// The answer on one group: a sentence.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// `met`, `missed`, or `none` where there is no target.
    mark: &'static str,
    title: String,
    place: String,
    text: String,
}

/// A sentence on each group.
pub fn answers(groups: &[Group<'_>]) -> Vec<Answer> {
    groups.iter().map(answer).collect()
}

fn answer(group: &Group<'_>) -> Answer {
    let (mark, head) = headline(group);
    let text = format!("{head}{}.", losses(group));
    Answer {
        mark,
        title: group.title(),
        place: group.place(),
        text,
    }
}

fn headline(group: &Group<'_>) -> (&'static str, String) {
    let summaries = || group.runs.iter().map(|run| &run.summary);
    let rate = group
        .mean(|run| run.throughput_rps)
        .map_or(ABSENT.to_owned(), human::number);
    let Some(slo) = group.runs[0].summary.slo.as_ref() else {
        let p98 = group.mean(|run| Some(run.latency_ms?.p98)).map(human::milliseconds);
        let text = p98.map_or("finished no request".to_owned(), |p98| {
            format!("has a p98 of {p98} at {rate} requests/s")
        });
        return ("none", text);
    };
    let target = human::milliseconds(slo.latency_ms);
    let met = summaries()
        .filter(|run| run.slo.as_ref().and_then(|slo| slo.met) == Some(true))
        .count();
    let (mark, verb) = match met {
        n if n == group.runs.len() => ("met", "meets its target".to_owned()),
        0 => ("missed", "misses its target".to_owned()),
        n => (
            "missed",
            format!("meets its target in only {n} of {} repeats", group.runs.len()),
        ),
    };
    let Some(attainment) = group.mean(|run| run.slo_attainment) else {
        return (
            mark,
            format!("{verb} of {target} at {}: it finished no request", slo.at),
        );
    };
    let share = human::percent(attainment);
    let reached = group.mean(|run| latency_at(run, &slo.at)).map(human::milliseconds);
    let reached = reached.map_or(String::new(), |reached| format!("{} is {reached}, ", slo.at));
    (
        mark,
        format!(
            "{verb} of {target} at {}: {reached}{share} of requests are in time, at {rate} requests/s",
            slo.at
        ),
    )
}

/// What was lost, summed over the repeats.
fn losses(group: &Group<'_>) -> String {
    let total = |count: fn(&RunSummary) -> u64| group.runs.iter().map(|run| count(&run.summary)).sum::<u64>();
    let lost = [
        (total(|run| run.requests.rejected), "rejected"),
        (total(|run| run.requests.failed), "failed"),
        (total(|run| run.requests.cancelled), "cancelled"),
        (total(|run| run.requests.unfinished), "unfinished"),
    ];
    let mut text: String = lost
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("; {} {what}", human::count(*n)))
        .collect();
    if group.runs.iter().any(|run| run.summary.interrupted) {
        text.push_str("; stopped before its end");
    }
    text
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
    title: String,
    place: String,
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

/// The parts of each group's mean latency. The longest bar fills its row.
pub fn stages(groups: &[Group<'_>]) -> Vec<Bar> {
    let mean = |group: &Group| group.mean(|run| Some(run.latency_ms?.mean));
    let longest = groups.iter().filter_map(mean).fold(0.0, f64::max);
    let bar = |group: &Group| {
        let total = human::milliseconds(mean(group)?);
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
            title: group.title(),
            place: group.place(),
            total,
            parts,
        })
    };
    groups.iter().filter_map(bar).collect()
}

/// What lies in the cards' memory. A whole bar is all of it.
pub fn memory(groups: &[Group<'_>]) -> Vec<Bar> {
    let bar = |group: &Group| {
        let memory = group.runs[0].summary.gpu_memory_bytes?;
        let capacity = memory.capacity as f64;
        let part = |name, bytes: u64| Part {
            name,
            width: width(bytes as f64 / capacity),
            text: human::bytes(bytes as f64),
        };
        let mut parts = vec![part("shared", memory.shared)];
        if memory.per_tenant.is_some() {
            parts.push(part("tenants", memory.peak - memory.shared));
        }
        parts.push(part("free", memory.capacity - memory.peak));
        Some(Bar {
            title: group.title(),
            place: group.place(),
            total: human::bytes(capacity),
            parts,
        })
    };
    groups.iter().filter_map(bar).collect()
}

/// A group's lanes.
#[derive(Debug, Serialize)]
pub struct Lanes {
    title: String,
    place: String,
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
pub fn lanes(groups: &[Group<'_>]) -> Vec<Lanes> {
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
            title: group.title(),
            place: group.place(),
            busiest: format!("{busiest} {}", human::percent(busy(busiest))),
            lanes: names.map(lane).collect(),
        })
    };
    groups.iter().filter_map(of_group).collect()
}

/// Percent for a style sheet.
fn width(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}
