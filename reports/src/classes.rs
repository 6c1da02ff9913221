//! How each service class fared: its latency, and how much of it was answered within its own target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::command::{Finish, Verdict};
use tenantry_core::in_time::{InTime, Target};
use tenantry_core::ledger::Durations;
use tenantry_traces::Time;

use crate::group::{Group, Spread};
use crate::human::{self, ABSENT};
use crate::summary::{Distribution, rounded};

/// Where there are more classes than this, none is told apart: each has a distribution of its own.
const CLASSES_MAX: usize = 64;

/// A service class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceClass {
    /// As the scenario calls it.
    pub name: String,
    /// What its requests are to be answered within, where there is anything.
    pub target: Option<Target>,
}

/// What came of a class's requests that arrived after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassSummary {
    /// Answered.
    pub finished: u64,
    /// Turned away or failed.
    pub refused: u64,
    /// From arrival to answer; absent where none was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Distribution>,
    /// The class's target for the whole answer: the one that the system plans by; where it plans by none, the one that
    /// the scenario's first system does that has any; else the scenario's `slo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ms: Option<f64>,
    /// Share of those answered within the target, counted as for `slo_attainment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attainment: Option<f64>,
}

/// What tables say of a class, with what each means.
pub(crate) fn class_columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    [
        (
            "Target",
            "From arrival to answer, for this class, where there is such a limit.",
        ),
        ("In time", "Share answered within the class's target."),
        ("Mean", "Mean latency."),
        ("p50", "Half of the class's requests take at most this long."),
        ("p98", "98 % of them take at most this long."),
        ("Answered", "Requests of the class, in the mean over repeats."),
    ]
    .into_iter()
}

/// Each class of a group with the text of [`class_columns`]: means over its repeats.
pub(crate) fn figures(group: &Group<'_>) -> Vec<(String, [String; 6])> {
    let first = &group.runs[0].summary.classes;
    let figures = |(name, class): (&String, &ClassSummary)| {
        let mean = |read: &dyn Fn(&ClassSummary) -> Option<f64>| {
            let runs = group.runs.iter().filter_map(|run| run.summary.classes.get(name));
            Spread::of(runs.filter_map(read)).map(|spread| spread.mean)
        };
        let show = |value: Option<f64>, text: fn(f64) -> String| value.map_or(ABSENT.to_owned(), text);
        let latency = |of: fn(Distribution) -> f64| mean(&|class| class.latency_ms.map(of));
        let columns = [
            show(class.target_ms, human::milliseconds),
            show(mean(&|class| class.attainment), human::percent),
            show(latency(|of| of.mean), human::milliseconds),
            show(latency(|of| of.p50), human::milliseconds),
            show(latency(|of| of.p98), human::milliseconds),
            show(mean(&|class| Some(class.finished as f64)), |value| {
                human::count(value.round() as u64)
            }),
        ];
        (name.clone(), columns)
    };
    first.iter().map(figures).collect()
}

/// Notes on all classes while a run runs; nothing where there are not several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes(Vec<Class>);

#[derive(Clone, Debug)]
struct Class {
    class: ServiceClass,
    latencies: Durations,
    refused: u64,
    in_time: InTime,
}

impl Classes {
    pub fn new(classes: Vec<ServiceClass>) -> Classes {
        let noted = |class| Class {
            class,
            latencies: Durations::default(),
            refused: 0,
            in_time: InTime::default(),
        };
        match classes.len() {
            2..=CLASSES_MAX => Classes(classes.into_iter().map(noted).collect()),
            _ => Classes::default(),
        }
    }

    pub fn came(&mut self, class: u16) {
        if let Some(class) = self.0.get_mut(usize::from(class)) {
            class.in_time.came();
        }
    }

    pub fn left(&mut self, now: Time, finish: &Finish) {
        let Some(class) = self.0.get_mut(usize::from(finish.class)) else {
            return;
        };
        class.in_time.left(now, finish, class.class.target.as_ref());
        match finish.verdict {
            Verdict::Served => class.latencies.record(now.since(finish.arrival)),
            Verdict::Rejected(_) | Verdict::Failed(_) => class.refused += 1,
            Verdict::Cancelled => {}
        }
    }

    /// Of a run that has ended, or that the user did.
    pub fn summaries(&self, interrupted: bool) -> BTreeMap<String, ClassSummary> {
        let summary = |noted: &Class| {
            let Class {
                class,
                latencies,
                refused,
                in_time,
            } = noted;
            let summary = ClassSummary {
                finished: latencies.count(),
                refused: *refused,
                latency_ms: Distribution::of(latencies),
                target_ms: class
                    .target
                    .and_then(|target| target.latency)
                    .map(|latency| rounded(latency.as_millis_f64())),
                attainment: class.target.and_then(|_| in_time.share(interrupted)).map(rounded),
            };
            (class.name.clone(), summary)
        };
        self.0.iter().map(summary).collect()
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::command::{FailureReason, RejectReason};
    use tenantry_traces::{Duration, Request};

    use super::*;

    /// One of a class that came at 0 leaves.
    fn left(classes: &mut Classes, class: u16, verdict: Verdict, ms: u64) {
        let request = Request {
            ticket: 0,
            tenant: 0,
            arrival: Time::ZERO,
            input_tokens: 16,
            output_tokens: 0,
            class,
        };
        let finish = Finish {
            verdict,
            ..Finish::rejected(&request, RejectReason::QueueFull)
        };
        classes.left(Time::ZERO + Duration::from_millis(ms), &finish);
    }

    fn class(name: &str, target_ms: Option<u64>) -> ServiceClass {
        ServiceClass {
            name: name.to_owned(),
            target: target_ms.map(|ms| Target::of_latency(Duration::from_millis(ms))),
        }
    }

    #[test]
    fn each_class_is_judged_by_its_own_target() {
        let mut classes = Classes::new(vec![
            class("interactive", Some(10)),
            class("bulk", Some(50)),
            class("rest", None),
        ]);
        for latency in [5, 9, 20, 30] {
            for class in [0, 1] {
                classes.came(class);
                left(&mut classes, class, Verdict::Served, latency);
            }
        }
        (0..3).for_each(|_| classes.came(1));
        left(&mut classes, 1, Verdict::Rejected(RejectReason::QueueFull), 0);
        left(&mut classes, 1, Verdict::Failed(FailureReason::OutOfMemory), 1);
        left(&mut classes, 1, Verdict::Cancelled, 1);
        let all = classes.summaries(false);
        let [interactive, bulk, rest] = ["interactive", "bulk", "rest"].map(|name| &all[name]);
        assert_eq!((interactive.finished, interactive.attainment), (4, Some(0.5)));
        assert_eq!(
            (bulk.finished, bulk.refused, bulk.attainment),
            (4, 2, Some(rounded(4.0 / 6.0)))
        );
        assert_eq!(bulk.latency_ms.map(|latency| latency.max), Some(30.0));
        assert_eq!((rest.finished, rest.latency_ms, rest.attainment), (0, None, None));
    }

    #[test]
    fn one_class_or_very_many_are_not_told_apart() {
        assert!(Classes::new(vec![class("all", None)]).summaries(false).is_empty());
        assert!(Classes::new(vec![class("some", None); 65]).summaries(false).is_empty());
    }
}
