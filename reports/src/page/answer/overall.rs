//! One sentence over all systems: who meets the target, and what tells those apart.

use std::collections::BTreeMap;

use super::targets::{Kept, NOBODY_COUNTS, Targets, is_judged, share_in_time, slo};
use crate::group::{Group, identity};
use crate::human::{self, listed};
use crate::page::charts::Compared;
use crate::summary::RunSummary;

/// Nothing where there are not several systems, or none that is judged where another is.
pub fn overall(compared: &Compared<'_, '_>) -> Option<String> {
    // Where a system was both simulated and executed, what was executed counts.
    let was_executed = |group: &Group<'_>| {
        let of_it = |other: &Group<'_>| other.system() == group.system() && other.parameters() == group.parameters();
        compared.groups.iter().any(|other| !other.is_virtual() && of_it(other))
    };
    let groups: Vec<&Group<'_>> =
        compared.groups.iter().filter(|group| !(group.is_virtual() && was_executed(group))).collect();
    if compared.systems.len() < 2 {
        return None;
    }
    if compared.points.len() > 1 {
        return by_points(&compared.systems, &groups);
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
    let (the, each) = match targets.are_one {
        true => (targets.whose("the"), targets.whose("the")),
        false => (targets.whose("their"), targets.whose("its")),
    };
    let always = in_every_repeat(&judged);
    let met: Vec<&Group<'_>> = judged.iter().copied().filter(|group| Kept::of(group).always()).collect();
    let who = Judged {
        judged: judged.len(),
        all: groups.len(),
    };
    Some(match (met.len(), &judged[..]) {
        (met, [one]) => {
            let meets = if met == 1 { "meets" } else { "does not meet" };
            format!("{} {meets} {the}{always}.", who.only(one.system()))
        }
        (0, _) => format!(
            "None of the {} meets {each}{always}; {}.",
            who.systems(),
            closest(&judged)
        ),
        (1, _) => format!("{} meets {each}{always}.", who.one_of(met[0].system())),
        (n, _) => {
            let who = match n == judged.len() {
                true => format!("All {} meet", who.systems()),
                false => format!("{n} of {} meet", who.systems()),
            };
            format!("{who} {the}{always}: {}.", traits(&met))
        }
    })
}

/// How many systems a sentence is about, of how many.
#[derive(Clone, Copy)]
struct Judged {
    judged: usize,
    all: usize,
}

impl Judged {
    /// "6 systems", "3 systems that are judged (of 6)".
    fn systems(self) -> String {
        let Judged { judged, all } = self;
        match judged == all {
            true => format!("{all} systems"),
            false => format!("{judged} systems that are judged (of {all})"),
        }
    }

    /// Of a system that does what no other judged one does.
    fn one_of(self, system: &str) -> String {
        match self.judged == self.all {
            true => format!("Only {system}"),
            false => format!("Of the {}, only {system}", self.systems()),
        }
    }

    /// Where no other is judged.
    fn only(self, system: &str) -> String {
        format!("Only {system} is judged, of {} systems: it", self.all)
    }
}

/// What a sentence on the target needs where repeats of a system disagree.
fn in_every_repeat(groups: &[&Group<'_>]) -> &'static str {
    match groups.iter().any(|group| Kept::of(group).sometimes()) {
        true => " in every repeat",
        false => "",
    }
}

/// Who comes closest to a target that nobody meets: in most of the repeats, then for most requests. All where several
/// look alike.
fn closest(groups: &[&Group<'_>]) -> String {
    let met = |group: &Group<'_>| {
        let Kept { met, judged } = Kept::of(group);
        met as f64 / judged as f64
    };
    let share = |group: &Group<'_>| group.mean(|run| run.slo_attainment).unwrap_or(0.0);
    let closer = |a: &Group<'_>, b: &Group<'_>| met(a).total_cmp(&met(b)).then(share(a).total_cmp(&share(b)));
    let best = groups.iter().copied().max_by(|a, b| closer(a, b));
    let best = best.expect("there are several systems");
    if share(best) == 0.0 {
        return "none has any request in time".to_owned();
    }
    let shown = |group: &Group<'_>| share_in_time(group).unwrap_or_default();
    let alike = |group: &&&Group<'_>| met(group) == met(best) && shown(group) == shown(best);
    let alike: Vec<&str> = groups.iter().filter(alike).map(|group| group.system()).collect();
    let Kept { met, judged } = Kept::of(best);
    let repeats = match met {
        0 => String::new(),
        met => format!(", in {met} of {judged} repeats"),
    };
    let (come, each) = match alike.len() {
        1 => ("comes", ""),
        _ => ("come", "each "),
    };
    let (who, share) = (listed(&alike), shown(best));
    format!("{who} {come} closest{repeats}, {each}with {share} of requests in time")
}

/// Over a sweep: at how many points systems meet their targets, of those points at which each of them was judged.
fn by_points(systems: &[&str], groups: &[&Group<'_>]) -> Option<String> {
    groups.iter().find_map(|group| slo(group))?;
    let judged: Vec<&Group<'_>> = groups.iter().copied().filter(|group| is_judged(group)).collect();
    if judged.is_empty() {
        return Some(format!(
            "None of the {} systems is judged: {NOBODY_COUNTS}.",
            systems.len()
        ));
    }
    // By point and system: what was judged.
    let mut at: BTreeMap<String, BTreeMap<&str, Vec<&Group<'_>>>> = BTreeMap::new();
    for &group in &judged {
        let of_point = at.entry(identity(group.parameters())).or_default();
        of_point.entry(group.system()).or_default().push(group);
    }
    // Who is judged nowhere has no points to share.
    let is_anywhere = |system: &&str| at.values().any(|of_point| of_point.contains_key(system));
    let anywhere: Vec<&str> = systems.iter().copied().filter(is_anywhere).collect();
    let is_shared = |of_point: &&BTreeMap<&str, _>| anywhere.iter().all(|system| of_point.contains_key(system));
    let shared: Vec<_> = at.values().filter(is_shared).collect();
    if shared.is_empty() {
        return None;
    }
    let compared: Vec<&Group<'_>> = shared.iter().flat_map(|of_point| of_point.values().flatten().copied()).collect();
    let which = match compared.len() == judged.len() {
        true => "",
        false => " at which every system is judged",
    };
    let met = |system: &str| {
        let meets = |of_point: &&&BTreeMap<&str, Vec<&Group<'_>>>| {
            of_point[system].iter().all(|group| Kept::of(group).always())
        };
        shared.iter().filter(meets).count()
    };
    let always = in_every_repeat(&compared);
    let most = anywhere.iter().map(|system| met(system)).max()?;
    let who = Judged {
        judged: anywhere.len(),
        all: systems.len(),
    };
    if most == 0 {
        let none = match anywhere[..] {
            [one] => format!("{} does not meet", who.only(one)),
            _ => format!("None of the {} meets", who.systems()),
        };
        return Some(format!("{none} its target at any sweep point{which}{always}."));
    }
    let best: Vec<&str> = anywhere.iter().copied().filter(|system| met(system) == most).collect();
    let points = match (most == shared.len(), most) {
        (true, 1) => "the one sweep point".to_owned(),
        (true, most) => format!("all {most} sweep points"),
        (false, most) => format!("{most} of {} sweep points", shared.len()),
    };
    let points = format!("{points}{which}{always}");
    Some(match best[..] {
        [one] if anywhere.len() == 1 => format!("{} meets its target at {points}.", who.only(one)),
        [one] if most == shared.len() => format!("{} meets its target at {points}.", who.one_of(one)),
        [one] => format!("{one} meets its target at {points}, more than any other system."),
        _ if best.len() == anywhere.len() => format!("All {} meet their targets at {points}.", who.systems()),
        _ => format!(
            "{} meet their targets at {points}, more than the others.",
            listed(&best)
        ),
    })
}

/// The p98 of who leaves more than this share of requests unanswered is not that of 98 % of the requests.
const MOST_UNANSWERED: f64 = 0.02;

fn answers_most(group: &Group<'_>) -> bool {
    let unanswered = |run: &RunSummary| {
        let requests = &run.requests;
        (requests.offered > 0).then(|| 1.0 - requests.finished as f64 / requests.offered as f64)
    };
    group.mean(unanswered).is_none_or(|share| share <= MOST_UNANSWERED)
}

/// Who is fastest, and who needs least memory.
fn traits(groups: &[&Group<'_>]) -> String {
    let p98 = |run: &RunSummary| Some(run.latency_ms?.p98);
    if groups.iter().all(|group| group.mean(p98).is_none()) {
        return "no system finished a request".to_owned();
    }
    let answering: Vec<&Group<'_>> = groups.iter().copied().filter(|group| answers_most(group)).collect();
    let fastest = match answering.len() == groups.len() {
        true => "answers fastest",
        false => "answers fastest of those that answer 98\u{a0}% of their requests",
    };
    let memory = |run: &RunSummary| Some(run.gpu_memory_bytes?.peak as f64);
    let mut told: Vec<(&str, Vec<String>)> = Vec::new();
    for (least, what) in [
        (least(&answering, p98, human::milliseconds), format!("{fastest} (p98 ")),
        (
            least(groups, memory, human::bytes),
            "needs the least memory (".to_owned(),
        ),
    ] {
        let Some((system, value)) = least else { continue };
        let text = format!("{what}{value})");
        match told.iter_mut().find(|(name, _)| *name == system) {
            Some((_, texts)) => texts.push(text),
            None => told.push((system, vec![text])),
        }
    }
    let told: Vec<String> = told.iter().map(|(system, texts)| format!("{system} {}", texts.join(" and "))).collect();
    match (told.is_empty(), answering.is_empty()) {
        (true, true) => "no system answers 98\u{a0}% of its requests".to_owned(),
        (true, false) => "they take as long and as much memory as each other".to_owned(),
        (false, _) => told.join(", "),
    }
}

/// The system with the least of a figure, and the figure as it is shown: what nobody could tell apart is nobody's
/// trait.
fn least<'a>(
    groups: &[&Group<'a>],
    read: impl Fn(&RunSummary) -> Option<f64>,
    show: impl Fn(f64) -> String,
) -> Option<(&'a str, String)> {
    let known = groups.iter().filter_map(|group| Some((group.system(), group.mean(&read)?)));
    let known: Vec<(&str, f64)> = known.collect();
    let &(system, value) = known.iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let alike = known.iter().filter(|(_, other)| show(*other) == show(value));
    (alike.count() == 1).then(|| (system, show(value)))
}
