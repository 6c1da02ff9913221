//! The targets that systems are judged by, and how often their repeats meet them.

use crate::group::Group;
use crate::human;
use crate::summary::SloSummary;

/// Why a run is not judged.
pub(super) const NOBODY_COUNTS: &str = "no request that came after the warm-up has ended";

pub(super) fn slo<'a>(group: &Group<'a>) -> Option<&'a SloSummary> {
    group.runs[0].summary.slo.as_ref()
}

/// "of 100 ms at p98".
pub(super) fn target(slo: &SloSummary) -> String {
    format!("of {} at {}", human::exact_milliseconds(slo.latency_ms), slo.at)
}

/// What became of a group's target, in how many of its repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub met: usize,
    /// Those with requests that count.
    pub judged: usize,
}

impl Kept {
    pub fn of(group: &Group<'_>) -> Kept {
        let verdicts = group.runs.iter().filter_map(|run| run.summary.slo.as_ref()?.met);
        let verdicts: Vec<bool> = verdicts.collect();
        Kept {
            met: verdicts.iter().filter(|met| **met).count(),
            judged: verdicts.len(),
        }
    }

    /// In each repeat that is judged.
    pub fn always(self) -> bool {
        self.judged > 0 && self.met == self.judged
    }

    /// In some of them only.
    pub fn sometimes(self) -> bool {
        (1..self.judged).contains(&self.met)
    }
}

pub(super) fn is_judged(group: &Group<'_>) -> bool {
    Kept::of(group).judged > 0
}

/// The targets of several groups.
pub(super) struct Targets<'a> {
    least: &'a SloSummary,
    most: &'a SloSummary,
    /// The quantile; that of the first where they differ in it.
    pub at: &'a str,
    same_quantile: bool,
}

impl<'a> Targets<'a> {
    pub fn of(groups: &[&Group<'a>]) -> Option<Targets<'a>> {
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

    pub fn are_one(&self) -> bool {
        self.same_quantile && self.least.latency_ms == self.most.latency_ms
    }

    /// "its target of 100 ms at p98"; the range where they differ.
    pub fn whose(&self, whose: &str) -> String {
        if self.are_one() {
            return format!("{whose} target {}", target(self.least));
        }
        let [least, most] = [self.least, self.most].map(|slo| human::exact_milliseconds(slo.latency_ms));
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

    /// A latency that is not taken for the target where it is another.
    pub fn beside(&self, ms: f64) -> String {
        match self.are_one() {
            true => human::milliseconds_apart(ms, self.least.latency_ms),
            false => human::milliseconds(ms),
        }
    }
}

/// The share of requests in time, not taken for the target's where it is another.
pub(super) fn share_in_time(group: &Group<'_>) -> Option<String> {
    let quantile = slo(group)?.at.strip_prefix('p')?.parse::<f64>().ok()? / 100.0;
    let share = group.mean(|run| run.slo_attainment)?;
    Some(human::percent_apart(share, quantile))
}
