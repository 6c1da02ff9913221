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
    format!("of {} at {}", slo.in_words(), slo.at)
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
    first: &'a SloSummary,
    /// Whether all are the same.
    pub are_one: bool,
    /// The quantile; that of the first where they differ in it.
    pub at: &'a str,
    same_quantile: bool,
    /// The least limit for the whole answer and the most, where they are of nothing else.
    latencies_ms: Option<(f64, f64)>,
}

impl<'a> Targets<'a> {
    pub fn of(groups: &[&Group<'a>]) -> Option<Targets<'a>> {
        let slos: Vec<&SloSummary> = groups.iter().filter_map(|group| slo(group)).collect();
        let first = *slos.first()?;
        let latencies = slos.iter().map(|slo| slo.only_latency_ms()).collect::<Option<Vec<f64>>>();
        Some(Targets {
            first,
            are_one: slos.iter().all(|slo| slo.same_target(first)),
            at: &first.at,
            same_quantile: slos.iter().all(|slo| slo.at == first.at),
            latencies_ms: latencies.map(|ms| {
                let of = |pick: fn(f64, f64) -> f64| ms.iter().copied().fold(ms[0], pick);
                (of(f64::min), of(f64::max))
            }),
        })
    }

    /// "its target of 100 ms at p98"; the range where they differ.
    pub fn whose(&self, whose: &str) -> String {
        if self.are_one {
            return format!("{whose} target {}", target(self.first));
        }
        let range = match self.latencies_ms {
            None => "several limits".to_owned(),
            Some((least, most)) if least == most => human::exact_milliseconds(least),
            Some((least, most)) => {
                let [least, most] = [least, most].map(human::exact_milliseconds);
                format!("{least} to {most}")
            }
        };
        let at = match self.same_quantile {
            true => self.at,
            false => "several quantiles",
        };
        format!("{whose} targets of {range} at {at}")
    }

    /// A time that is not taken for its limit where it is another.
    pub fn beside(&self, limit_ms: fn(&SloSummary) -> Option<f64>, ms: f64) -> String {
        match limit_ms(self.first).filter(|_| self.are_one) {
            Some(limit_ms) => human::milliseconds_apart(ms, limit_ms),
            None => human::milliseconds(ms),
        }
    }
}

/// The share of requests in time, not taken for the target's where it is another.
pub(super) fn share_in_time(group: &Group<'_>) -> Option<String> {
    let quantile = slo(group)?.at.strip_prefix('p')?.parse::<f64>().ok()? / 100.0;
    let share = group.mean(|run| run.slo_attainment)?;
    Some(human::percent_apart(share, quantile))
}
