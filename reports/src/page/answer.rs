//! The answer in plain words: a sentence on all systems, and one on each.

use serde::Serialize;

use super::charts::Compared;
use super::sweep::number;
use crate::group::{Group, plain};
use crate::human::{self, ABSENT};
use crate::metric::latency_at;
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
    // Without one, of all.
    let at = targets.as_ref().map_or("p98", |targets| targets.at);
    let reached: Vec<f64> = groups
        .iter()
        .filter_map(|group| group.mean(|run| latency_at(run, at)))
        .collect();
    let least = reached.iter().copied().reduce(f64::min).map(human::milliseconds);
    let most = reached.iter().copied().reduce(f64::max).map(human::milliseconds);
    let span = match (least, most) {
        (Some(least), Some(most)) if least == most => format!("{at} is {least}"),
        (Some(least), Some(most)) => format!("{at} lies between {least} and {most}"),
        _ => "no request after the warm-up was answered".to_owned(),
    };
    let judged: Vec<&Group<'_>> = groups.iter().copied().filter(|group| is_judged(group)).collect();
    let (met, all) = (judged.iter().filter(|group| meets(group)).count(), judged.len());
    let (mark, mut text) = match targets {
        None => ("none", format!("over {} sweep points, {span}", groups.len())),
        Some(targets) => {
            let its = targets.whose("its");
            match met {
                _ if all == 0 => ("none", format!("is not judged by {its}: {NOBODY_COUNTS}")),
                n if n == all => ("met", format!("meets {its} at {}; {span}", all_points(n))),
                0 => ("missed", format!("misses {its} at {}; {span}", all_points(all))),
                n => (
                    "partly",
                    format!("meets {its} at {n} of {all} sweep points{}; {span}", until(&judged)),
                ),
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

/// Why a run is not judged.
const NOBODY_COUNTS: &str = "no request that came after the warm-up has ended";

fn all_points(points: usize) -> String {
    match points {
        1 => "its one sweep point".to_owned(),
        points => format!("all {points} sweep points"),
    }
}

/// The targets of several groups.
struct Targets<'a> {
    least: &'a SloSummary,
    most: &'a SloSummary,
    /// The quantile; that of the first where they differ in it.
    at: &'a str,
    same_quantile: bool,
}

impl<'a> Targets<'a> {
    fn of(groups: &[&Group<'a>]) -> Option<Targets<'a>> {
        let mut slos = groups.iter().filter_map(|group| slo(group));
        let first = slos.next()?;
        let mut targets = Targets {
            least: first,
            most: first,
            at: &first.at,
            same_quantile: true,
        };
        for slo in slos {
            targets.same_quantile &= slo.at == first.at;
            if slo.latency_ms < targets.least.latency_ms {
                targets.least = slo;
            }
            if slo.latency_ms > targets.most.latency_ms {
                targets.most = slo;
            }
        }
        Some(targets)
    }

    fn are_one(&self) -> bool {
        self.same_quantile && self.least.latency_ms == self.most.latency_ms
    }

    /// "its target of 100 ms at p98"; the range where they differ.
    fn whose(&self, whose: &str) -> String {
        if self.are_one() {
            return format!("{whose} target {}", target(self.least));
        }
        let [least, most] = [self.least, self.most].map(|slo| human::milliseconds(slo.latency_ms));
        let range = match least == most {
            true => least,
            false => format!("{least} to {most}"),
        };
        let at = match self.same_quantile {
            true => self.at,
            false => "several quantiles",
        };
        format!("{whose} targets of {range} at {at}")
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
            is_met: meets(group),
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

fn slo<'a>(group: &Group<'a>) -> Option<&'a SloSummary> {
    group.runs[0].summary.slo.as_ref()
}

fn target(slo: &SloSummary) -> String {
    format!("of {} at {}", human::milliseconds(slo.latency_ms), slo.at)
}

/// Whether any repeat has requests that count.
fn is_judged(group: &Group<'_>) -> bool {
    group
        .runs
        .iter()
        .any(|run| run.summary.slo.as_ref().is_some_and(|slo| slo.met.is_some()))
}

/// Whether all repeats met their target.
fn meets(group: &Group<'_>) -> bool {
    repeats_met(group) == group.runs.len()
}

fn repeats_met(group: &Group<'_>) -> usize {
    let met = |run: &&&crate::Run| run.summary.slo.as_ref().and_then(|slo| slo.met) == Some(true);
    group.runs.iter().filter(met).count()
}

fn headline(group: &Group<'_>) -> (&'static str, String) {
    let rate = group
        .mean(|run| run.throughput_rps)
        .map_or(ABSENT.to_owned(), human::number);
    let Some(slo) = slo(group) else {
        let p98 = group.mean(|run| Some(run.latency_ms?.p98)).map(human::milliseconds);
        let text = p98.map_or("finished no request".to_owned(), |p98| {
            format!("has a p98 of {p98} at {rate} requests/s")
        });
        return ("none", text);
    };
    let target = target(slo);
    let Some(attainment) = group.mean(|run| run.slo_attainment) else {
        return ("none", format!("is not judged by its target {target}: {NOBODY_COUNTS}"));
    };
    let (mark, verb) = match repeats_met(group) {
        n if n == group.runs.len() => ("met", "meets its target".to_owned()),
        0 => ("missed", "misses its target".to_owned()),
        n => (
            "missed",
            format!("meets its target in only {n} of {} repeats", group.runs.len()),
        ),
    };
    let share = human::percent(attainment);
    let reached = group.mean(|run| latency_at(run, &slo.at)).map(human::milliseconds);
    let reached = reached.map_or(String::new(), |reached| format!("{} is {reached}, ", slo.at));
    (
        mark,
        format!("{verb} {target}: {reached}{share} of requests are in time, at {rate} requests/s"),
    )
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
    let mut text: String = lost
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("; {} {what}", human::count(*n)))
        .collect();
    if runs().any(|run| run.interrupted) {
        text.push_str("; stopped before its end");
    }
    text
}

/// One sentence over all systems, where there are several: who meets the target, and what tells those apart.
pub fn overall(compared: &Compared<'_, '_>) -> Option<String> {
    // Where a system was both simulated and executed, what was executed counts.
    let was_executed = |group: &Group<'_>| {
        let of_it = |other: &Group<'_>| other.system() == group.system() && other.parameters() == group.parameters();
        compared.groups.iter().any(|other| !other.is_virtual() && of_it(other))
    };
    let groups: Vec<&Group<'_>> = compared
        .groups
        .iter()
        .filter(|group| !(group.is_virtual() && was_executed(group)))
        .collect();
    let systems: Vec<&str> = compared.systems.clone();
    if systems.len() < 2 {
        return None;
    }
    if compared.points.len() > 1 {
        return by_points(&systems, &groups);
    }
    let with_target = groups.iter().filter(|group| slo(group).is_some()).count();
    if with_target < groups.len() {
        return Some(format!("{}.", traits(&groups)));
    }
    let judged: Vec<&Group<'_>> = groups.iter().copied().filter(|group| is_judged(group)).collect();
    let targets = Targets::of(&judged);
    let Some(targets) = targets else {
        return Some(format!(
            "None of the {} systems is judged: {NOBODY_COUNTS}.",
            groups.len()
        ));
    };
    let (the, each) = match targets.are_one() {
        true => (targets.whose("the"), targets.whose("the")),
        false => (targets.whose("their"), targets.whose("its")),
    };
    let met: Vec<&Group<'_>> = judged.iter().copied().filter(|group| meets(group)).collect();
    Some(match met.len() {
        0 => {
            let share = |group: &&&Group<'_>| group.mean(|run| run.slo_attainment).unwrap_or(0.0);
            let best = judged.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
            let share = human::percent(share(&best));
            format!(
                "None of the {} systems meets {each}; {} comes closest, with {share} of requests in time.",
                judged.len(),
                best.system()
            )
        }
        1 => format!("Only {} meets {each}.", met[0].system()),
        n => {
            let who = match n == judged.len() {
                true => format!("All {n} systems meet"),
                false => format!("{n} of {} systems meet", judged.len()),
            };
            format!("{who} {the}: {}.", traits(&met))
        }
    })
}

fn by_points(systems: &[&str], groups: &[&Group<'_>]) -> Option<String> {
    groups.iter().find_map(|group| slo(group))?;
    let of = |system: &str| {
        let own = || {
            groups
                .iter()
                .filter(|group| group.system() == system && is_judged(group))
        };
        (own().filter(|group| meets(group)).count(), own().count())
    };
    if systems.iter().all(|system| of(system).1 == 0) {
        return Some(format!(
            "None of the {} systems is judged: {NOBODY_COUNTS}.",
            systems.len()
        ));
    }
    let most = systems.iter().map(|system| of(system).0).max()?;
    if most == 0 {
        return Some(format!(
            "None of the {} systems meets its target at any sweep point.",
            systems.len()
        ));
    }
    let best: Vec<&str> = systems.iter().copied().filter(|system| of(system).0 == most).collect();
    let all = of(best[0]).1;
    let points = match most == all {
        true => all_points(all),
        false => format!("{most} of {all} sweep points"),
    };
    Some(match best[..] {
        [one] if most == all => format!("Only {one} meets its target at {points}."),
        [one] => format!("{one} meets its target at {points}, more than any other system."),
        _ if best.len() == systems.len() => {
            format!("All {} systems meet their targets at {points}.", systems.len())
        }
        _ => format!(
            "{} meet their targets at {points}, more than the others.",
            listed(&best)
        ),
    })
}

/// Who is fastest, who needs least memory, and who costs least.
fn traits(groups: &[&Group<'_>]) -> String {
    type Figure = (&'static str, fn(&RunSummary) -> Option<f64>, fn(f64) -> String);
    let figures: [Figure; 2] = [
        (
            "answers fastest (p98 ",
            |run| Some(run.latency_ms?.p98),
            human::milliseconds,
        ),
        (
            "needs the least memory (",
            |run| Some(run.gpu_memory_bytes?.peak as f64),
            human::bytes,
        ),
    ];
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for (what, read, show) in figures {
        let known = groups
            .iter()
            .filter_map(|group| Some((group.system(), group.mean(read)?)));
        let known: Vec<(&str, f64)> = known.collect();
        let Some(&(system, value)) = known.iter().min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
            continue;
        };
        // What nobody could tell apart is nobody's trait.
        if known.iter().filter(|(_, other)| show(*other) == show(value)).count() > 1 {
            continue;
        }
        let text = format!("{what}{})", show(value));
        match told.iter_mut().find(|(name, _)| name == system) {
            Some((_, texts)) => texts.push(text),
            None => told.push((system.to_owned(), vec![text])),
        }
    }
    let told: Vec<String> = told
        .iter()
        .map(|(system, texts)| format!("{system} {}", texts.join(" and ")))
        .collect();
    match (
        told.is_empty(),
        groups
            .iter()
            .all(|group| group.mean(|run| Some(run.latency_ms?.p98)).is_none()),
    ) {
        (true, true) => "no system finished a request".to_owned(),
        (true, false) => "they take as long and as much memory as each other".to_owned(),
        (false, _) => told.join(", "),
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use tenantry_traces::Duration;

    use super::*;
    use crate::curves::Run;
    use crate::testing::{labels, record};

    fn run(system: &str, slowest_ms: u64) -> Run {
        Run::new(
            labels(system, "virtual"),
            &record(100, Duration::from_millis(slowest_ms)),
        )
    }

    fn at(system: &str, tenants: u64, slowest_ms: u64) -> Run {
        let mut run = run(system, slowest_ms);
        run.summary.parameters.insert("tenants.count".into(), tenants.into());
        run
    }

    fn said(runs: &[Run]) -> (String, Vec<String>) {
        let groups = Group::all(runs);
        let compared = Compared::new(&groups);
        let each = answers(&compared)
            .into_iter()
            .map(|answer| format!("{} {}", answer.title, answer.text));
        (
            overall(&compared).unwrap_or_default().replace('\u{a0}', " "),
            each.map(|text| text.replace('\u{a0}', " ")).collect(),
        )
    }

    #[test]
    fn the_answer_names_who_meets_the_target() {
        // Two of each hundred and two were rejected, so that the share in time is just above 98 % at best.
        let (all, each) = said(&[run("slow", 900), run("fast", 100)]);
        assert_eq!(all, "Only fast meets the target of 150 ms at p98.", "{each:?}");
        let (all, _) = said(&[run("a", 140), run("b", 100)]);
        assert!(
            all.starts_with("All 2 systems meet the target of 150 ms at p98: b answers fastest"),
            "{all}"
        );
        let (all, _) = said(&[run("a", 900), run("b", 800)]);
        assert!(
            all.contains("None of the 2 systems") && all.contains("b comes closest"),
            "{all}"
        );
        assert_eq!(said(&[run("alone", 900)]).0, "");
    }

    #[test]
    fn a_sweep_says_how_far_the_target_is_met() {
        let runs = [
            at("a", 10, 100),
            at("a", 100, 120),
            at("a", 1000, 900),
            at("b", 10, 900),
            at("b", 100, 900),
            at("b", 1000, 900),
        ];
        let (all, each) = said(&runs);
        assert_eq!(
            all,
            "a meets its target at 2 of 3 sweep points, more than any other system."
        );
        assert!(
            each[0].contains("at 2 of 3 sweep points, up to tenants.count 100; p98 lies between"),
            "{each:?}"
        );
        assert!(
            each[1].contains("misses its target of 150 ms at p98 at all 3 sweep points"),
            "{each:?}"
        );
    }
}
