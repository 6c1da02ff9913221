//! Runs whose requests came at another rate than their scenario names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_reports::{RunSummary, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::Time;
use tenantry_traces::spec::{ArrivalsSpec, LifetimesSpec, WorkloadSpec};

/// Rates further from what is asked for, by a part of it, are worth a note.
const FAR: f64 = 0.1;
/// By so many standard deviations of a Poisson process too: fewer requests than that are near by chance.
const DEVIATIONS: f64 = 6.0;

/// How fast a run's requests came, where that is far from what its scenario names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnotherRate {
    came_per_s: f64,
    asked_per_s: f64,
    #[serde(default)]
    follows: Follows,
}

/// What the rate follows, which says whether it comes nearer in a longer run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Follows {
    /// Arrivals that swing by themselves.
    #[default]
    Arrivals,
    /// How many tenants are awake: in the mean over time it is what was asked for.
    Awake,
    /// How many tenants have appeared, all of which stay.
    Appeared,
    /// How many tenants are there, all of which go for good.
    There,
}

const APPEARED: &str = "that is the rate of all tenants together, and requests follow how many of them there are \
                        (`tenants.presence.lifetimes`). From when all have appeared, they come at that rate.";
const THERE: &str = "that is the rate of all tenants together, and requests follow how many of them there are \
                     (`tenants.presence.lifetimes`). Who goes does not come back: the longer, the fewer.";

impl Follows {
    /// Of requests that came for so long, at a lower rate than was asked for or a higher one.
    fn of(spec: &WorkloadSpec, came_for_s: f64, is_lower: bool) -> Follows {
        let presence = &spec.presence;
        // Before all have appeared, or while this came.
        let has_gone = |lifetimes: &LifetimesSpec| {
            let until_s = came_for_s.max(lifetimes.appear_within.as_secs_f64());
            lifetimes.mean_stay.is_some_and(|mean_stay| mean_stay.as_secs_f64() < 10.0 * until_s)
        };
        let is_even = matches!(
            spec.arrivals,
            ArrivalsSpec::Poisson { .. } | ArrivalsSpec::Constant { .. }
        );
        match presence.lifetimes {
            // Tenants who are not there ask nothing, and none of the others asks more for it.
            Some(lifetimes) if is_lower && has_gone(&lifetimes) => Follows::There,
            Some(lifetimes) if is_lower && lifetimes.present_at_start < 1.0 && is_even => Follows::Appeared,
            _ if (presence.on_off.is_some() || presence.diurnal.is_some()) && is_even => Follows::Awake,
            _ => Follows::Arrivals,
        }
    }

    /// Why a run's rate is another.
    fn of_runs(self) -> &'static str {
        match self {
            Follows::Arrivals => {
                "its arrivals swing by more than evens out while a run lasts. Longer runs (`workload.stop`) come \
                 nearer, several seeds (`repeats`) show how far they swing."
            }
            Follows::Awake => {
                "the rate follows how many tenants are awake (`tenants.presence`), which does not even out while a run \
                 lasts. Runs of many of their days or turns (`workload.stop`) come nearer."
            }
            Follows::Appeared => APPEARED,
            Follows::There => THERE,
        }
    }

    /// Why a trace's rate is another.
    fn of_trace(self) -> &'static str {
        match self {
            Follows::Arrivals => {
                "arrivals swing by more than evens out. A longer trace (`--requests`, `--after`) comes nearer; other \
                 seeds (`--seed`) swing otherwise."
            }
            Follows::Awake => {
                "the rate follows how many tenants are awake (`tenants.presence`). A trace of many of their days or \
                 turns (`--requests`, `--after`) comes nearer."
            }
            Follows::Appeared => APPEARED,
            Follows::There => THERE,
        }
    }
}

impl AnotherRate {
    /// Nothing where the rates are near each other, or the scenario names none.
    pub fn of(spec: &RunSpec, summary: &RunSummary) -> Option<AnotherRate> {
        let came_per_s = summary.workload?.rate_rps?;
        AnotherRate::of_rate(&spec.workload, came_per_s, summary.requests.offered).filter(|_| !summary.interrupted)
    }

    /// As [`AnotherRate::of`], of so many requests of a workload, the last of which arrives at `last`.
    pub fn of_workload(spec: &WorkloadSpec, requests: u64, last: Time) -> Option<AnotherRate> {
        AnotherRate::of_rate(spec, requests as f64 / last.as_secs_f64(), requests)
    }

    /// As [`AnotherRate::of`], of so many requests of a workload, which came so fast.
    pub fn of_rate(spec: &WorkloadSpec, came_per_s: f64, requests: u64) -> Option<AnotherRate> {
        let asked_per_s = spec.arrivals.rate_per_s()?;
        let came_for_s = requests as f64 / came_per_s;
        let expected = asked_per_s * came_for_s;
        let off_by = (requests as f64 - expected).abs();
        (off_by > FAR * expected && off_by > DEVIATIONS * expected.sqrt()).then_some(AnotherRate {
            came_per_s,
            asked_per_s,
            follows: Follows::of(spec, came_for_s, came_per_s < asked_per_s),
        })
    }

    fn in_words(self) -> String {
        let [came, asked] = [self.came_per_s, self.asked_per_s].map(human::number);
        format!("{came} and not {asked} a second")
    }
}

/// Sentences on those of so many runs, one for each reason why.
pub fn another_rate_caveat(of: impl IntoIterator<Item = AnotherRate>, runs: usize) -> Vec<String> {
    let mut by_reason: BTreeMap<Follows, Vec<AnotherRate>> = BTreeMap::new();
    for rate in of {
        by_reason.entry(rate.follows).or_default().push(rate);
    }
    let sentence = |(follows, mut far): (Follows, Vec<AnotherRate>)| {
        far.sort_by(|a, b| (a.came_per_s / a.asked_per_s).total_cmp(&(b.came_per_s / b.asked_per_s)));
        let (least, most) = (far.first()?.in_words(), far.last()?.in_words());
        let which = match far.len() == runs {
            true => String::new(),
            false => format!("in {} of {runs} runs ", far.len()),
        };
        let rates = match least == most {
            true => least,
            false => format!("from {least} to {most}"),
        };
        Some(format!(
            "{which}requests came at another rate than the scenario asks for ({rates}): {}",
            follows.of_runs()
        ))
    };
    by_reason.into_iter().filter_map(sentence).collect()
}

/// The same on a trace that is generated.
pub fn another_rate_of_trace(of: AnotherRate) -> String {
    format!(
        "requests come at another rate than is asked for ({}): {}",
        of.in_words(),
        of.follows.of_trace()
    )
}
