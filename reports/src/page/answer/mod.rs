//! The answer in plain words: a sentence on all systems, in `overall`, and here one on each.

mod overall;
mod targets;

pub use overall::overall;

use serde::Serialize;

use self::targets::{Kept, NOBODY_COUNTS, Targets, is_judged, share_in_time, slo, target};
use super::charts::Compared;
use super::sweep::number;
use crate::group::{Group, plain};
use crate::human::{self, ABSENT};
use crate::summary::{RunSummary, SloSummary};

/// The answer on one system.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// `met`, `missed`, or `none` where there is no target.
    pub mark: &'static str,
    /// The system.
    pub title: String,
    /// Where it ran.
    pub place: String,
    /// The rest of the sentence.
    pub text: String,
}

/// A sentence on each system on each machine; over a sweep, on all of its points.
pub fn answers(compared: &Compared<'_, '_>) -> Vec<Answer> {
    if compared.points.len() == 1 {
        return compared.groups.iter().map(answer).collect();
    }
    let mut named: Vec<(&str, &str, Vec<&Group<'_>>)> = Vec::new();
    for group in compared.groups {
        let same =
            |(system, machine, _): &&mut (&str, &str, _)| *system == group.system() && *machine == group.machine();
        match named.iter_mut().find(same) {
            Some((_, _, groups)) => groups.push(group),
            None => named.push((group.system(), group.machine(), vec![group])),
        }
    }
    named.iter().map(|(_, _, groups)| over_sweep(groups)).collect()
}

fn answer(group: &Group<'_>) -> Answer {
    let (mark, head) = headline(group);
    Answer {
        mark,
        title: group.system().to_owned(),
        place: group.place(),
        text: format!("{head}{}.", losses(&[group])),
    }
}

fn over_sweep(groups: &[&Group<'_>]) -> Answer {
    let first = groups[0];
    if groups.len() == 1 {
        return answer(first);
    }
    let targets = Targets::of(groups);
    let span = span(groups, targets.as_ref());
    let judged: Vec<&Group<'_>> = groups.iter().copied().filter(|group| is_judged(group)).collect();
    let count = |is: fn(Kept) -> bool| judged.iter().filter(|group| is(Kept::of(group))).count();
    let (all, always, sometimes) = (judged.len(), count(Kept::always), count(Kept::sometimes));
    let (mark, mut text) = match targets {
        None => ("none", format!("over {} sweep points, {span}", groups.len())),
        Some(targets) => {
            let its = targets.whose("its");
            match (always, sometimes) {
                _ if all == 0 => ("none", format!("is not judged by {its}: {NOBODY_COUNTS}")),
                (n, _) if n == all => ("met", format!("meets {its} at {}; {span}", all_points(n))),
                (0, 0) => ("missed", format!("misses {its} at {}; {span}", all_points(all))),
                (0, n) => (
                    "partly",
                    format!("meets {its} only in some repeats, at {n} of {all} sweep points; {span}"),
                ),
                (n, sometimes) => {
                    let more = match sometimes {
                        0 => String::new(),
                        more => format!(", and in some repeats at {more} more"),
                    };
                    let until = until(&judged);
                    (
                        "partly",
                        format!("meets {its} at {n} of {all} sweep points{until}{more}; {span}"),
                    )
                }
            }
        }
    };
    if (1..groups.len()).contains(&all) && slo(first).is_some() {
        text += &format!("; {} more are not judged, where {NOBODY_COUNTS}", groups.len() - all);
    }
    Answer {
        mark,
        title: first.system().to_owned(),
        place: first.place(),
        text: format!("{text}{}.", losses(groups)),
    }
}

/// A time that a target can limit.
struct Time {
    /// What it is of, behind a quantile.
    of_what: &'static str,
    limit_ms: fn(&SloSummary) -> Option<f64>,
    /// At a quantile, by its name.
    reached_ms: fn(&Group<'_>, &str) -> Option<f64>,
}

/// Of whole answers and of their parts.
const TIMES: [Time; 3] = [
    Time {
        of_what: "",
        limit_ms: |slo| slo.latency_ms,
        reached_ms: |group, at| group.latency_at(at),
    },
    Time {
        of_what: " of the first token",
        limit_ms: |slo| slo.ttft_ms,
        reached_ms: |group, at| group.mean(|run| run.ttft_ms?.at(at)),
    },
    Time {
        of_what: " of each further one",
        limit_ms: |slo| slo.tpot_ms,
        reached_ms: |group, at| group.mean(|run| run.tpot_ms?.at(at)),
    },
];

impl Time {
    fn has_limit(&self, groups: &[&Group<'_>]) -> bool {
        let mut slos = groups.iter().filter_map(|group| slo(group));
        slos.any(|slo| (self.limit_ms)(slo).is_some())
    }

    /// The verb of a sentence on the least and the most of some groups, and its end; nothing where none of them holds
    /// that quantile.
    fn range(&self, groups: &[&Group<'_>], at: &str, targets: Option<&Targets<'_>>) -> Option<(&'static str, String)> {
        let reached = || groups.iter().filter_map(|group| (self.reached_ms)(group, at));
        let show = |ms: f64| match targets {
            Some(targets) => targets.beside(self.limit_ms, ms),
            None => human::milliseconds(ms),
        };
        let (least, most) = (show(reached().reduce(f64::min)?), show(reached().reduce(f64::max)?));
        Some(match least == most {
            true => (" is", format!(" {least}")),
            false => (" lies", format!(" between {least} and {most}")),
        })
    }
}

/// The quantile that the target is about, over all sweep points, of all that has a limit; p98 where runs do not hold
/// that quantile, and p98 of whole answers without a target.
fn span(groups: &[&Group<'_>], targets: Option<&Targets<'_>>) -> String {
    let times: Vec<&Time> = match targets {
        Some(_) => TIMES.iter().filter(|time| time.has_limit(groups)).collect(),
        None => vec![&TIMES[0]],
    };
    let ranges = |at: &str| {
        let mut said = "";
        let range = |time: &&Time| {
            let (verb, end) = time.range(groups, at, targets)?;
            let again = std::mem::replace(&mut said, verb) == verb;
            Some(format!("{}{}{end}", time.of_what, if again { "" } else { verb }))
        };
        let ranges: Vec<String> = times.iter().filter_map(range).collect();
        (!ranges.is_empty()).then(|| format!("{at}{}", ranges.join(",")))
    };
    let wanted = targets.map_or("p98", |targets| targets.at);
    ranges(wanted).or_else(|| ranges("p98")).unwrap_or_else(|| {
        let was_answered = |group: &&Group<'_>| group.latency_at("p98").is_some();
        match groups.iter().any(was_answered) {
            true => "no answer has what the target limits".to_owned(),
            false => "no request after the warm-up was answered".to_owned(),
        }
    })
}

fn all_points(points: usize) -> String {
    match points {
        1 => "its one sweep point".to_owned(),
        points => format!("all {points} sweep points"),
    }
}

/// Where one number is swept and the target is met on one side only: up to which value, or from which on.
fn until<'a>(groups: &[&'a Group<'_>]) -> String {
    /// A point of a sweep over one number.
    struct Point<'a> {
        key: &'a str,
        number: f64,
        /// What the number is of, as a unit: others do not compare.
        base: &'a str,
        value: String,
        is_met: bool,
    }
    let point = |group: &&'a Group<'_>| match group.parameters().iter().collect::<Vec<_>>()[..] {
        [(key, value)] => number(value).map(|(number, base)| Point {
            key,
            number,
            base,
            value: plain(value),
            is_met: Kept::of(group).always(),
        }),
        _ => None,
    };
    let Some(mut points) = groups.iter().map(point).collect::<Option<Vec<_>>>() else {
        return String::new();
    };
    if points.windows(2).any(|pair| pair[0].base != pair[1].base) {
        return String::new();
    }
    points.sort_by(|a, b| a.number.total_cmp(&b.number));
    let changes = points.windows(2).filter(|pair| pair[0].is_met != pair[1].is_met);
    let edge = match (changes.count(), points[0].is_met) {
        (1, true) => points.iter().rfind(|point| point.is_met).map(|point| ("up to", point)),
        (1, false) => points.iter().find(|point| point.is_met).map(|point| ("from", point)),
        _ => None,
    };
    edge.map_or(String::new(), |(side, Point { key, value, .. })| {
        format!(", {side} {key} {value}")
    })
}

fn headline(group: &Group<'_>) -> (&'static str, String) {
    let rate = group.mean(|run| run.throughput_rps).map_or(ABSENT.to_owned(), human::number);
    let Some(slo) = slo(group) else {
        let p98 = group.mean(|run| Some(run.latency_ms?.p98)).map(human::milliseconds);
        let text = p98.map_or("finished no request".to_owned(), |p98| {
            format!("has a p98 of {p98} at {rate} requests/s")
        });
        return ("none", text);
    };
    let target = target(slo);
    let kept = Kept::of(group);
    let Some(share) = share_in_time(group) else {
        return ("none", format!("is not judged by its target {target}: {NOBODY_COUNTS}"));
    };
    let (mark, verb, repeats) = match kept {
        kept if kept.always() => ("met", "meets", String::new()),
        Kept { met: 0, .. } => ("missed", "misses", String::new()),
        Kept { met, judged } => ("missed", "meets", format!(" in only {met} of {judged} repeats")),
    };
    let reached = reached(group, slo);
    let not_judged = match group.runs.len() - kept.judged {
        0 => String::new(),
        1 => format!("; 1 repeat more is not judged, where {NOBODY_COUNTS}"),
        more => format!("; {more} repeats more are not judged, where {NOBODY_COUNTS}"),
    };
    (
        mark,
        format!(
            "{verb} its target {target}{repeats}: {reached}{share} of requests are in time, at {rate} \
             requests/s{not_judged}"
        ),
    )
}

/// What is reached at the target's quantile, of all that has a limit: "p98 is 90 ms, "; "p98 of the first token is 1.2
/// s, of each further one 40 ms, ".
fn reached(group: &Group<'_>, slo: &SloSummary) -> String {
    let mut verb = " is";
    let figures = TIMES.iter().filter_map(|time| {
        let (reached_ms, limit_ms) = ((time.reached_ms)(group, &slo.at)?, (time.limit_ms)(slo)?);
        let reached = human::milliseconds_apart(reached_ms, limit_ms);
        Some(format!("{}{} {reached}", time.of_what, std::mem::take(&mut verb)))
    });
    let figures: Vec<String> = figures.collect();
    match figures.is_empty() {
        true => String::new(),
        false => format!("{}{}, ", slo.at, figures.join(",")),
    }
}

/// What was lost, summed over the runs.
fn losses(groups: &[&Group<'_>]) -> String {
    let runs = || groups.iter().flat_map(|group| &group.runs).map(|run| &run.summary);
    let total = |count: fn(&RunSummary) -> u64| runs().map(count).sum::<u64>();
    let lost = [
        (total(|run| run.requests.rejected), "rejected"),
        (total(|run| run.requests.failed), "failed"),
        (total(|run| run.requests.cancelled), "cancelled"),
        (total(|run| run.requests.unfinished), "unfinished"),
    ];
    // What stands beside it is the mean of repeats.
    let of = match groups.iter().any(|group| group.runs.len() > 1) {
        true => " in all repeats",
        false => "",
    };
    let mut text: String = lost
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("; {} {what}{of}", human::count(*n)))
        .collect();
    if runs().any(|run| run.interrupted) {
        text.push_str("; stopped before its end");
    }
    text
}

#[cfg(test)]
mod tests;
