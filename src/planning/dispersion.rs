//! How much more unevenly requests come than independent ones.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use tenantry_core::in_time::Slo;
use tenantry_scenarios::RunSpec;
use tenantry_sim::plan::Bursts;
use tenantry_traces::spec::{ArrivalsSpec, PresenceSpec, WorkloadSpec};

use crate::failure::Failure;
use crate::planning::judge::each_arrival;

/// Seeds whose arrivals are counted: so many tell a variance within a third or so.
pub const SEEDS: u32 = 16;

/// Windows that a run is cut into: bursts are seen in those that are about as long as they are, or longer.
const WINDOWS: [usize; 5] = [20, 10, 5, 2, 1];

/// A run with fewer requests that may be late, of those that tell as much as one independent request, says too little
/// of bursts.
const FEW: f64 = 20.0;

/// So many of them are drawn in all, as far as the seeds and the requests below allow: enough to tell the share that is
/// late within a fifth or so.
const ENOUGH: f64 = 100.0;

/// Seeds at most, …
const SEEDS_MAX: f64 = 128.0;

/// … and requests at most of more seeds than [`SEEDS`]: a second or two of drawing.
const REQUESTS_MAX: f64 = 8e6;

/// Slots of the target's latency, as fine as waits are to be told.
const SLOTS_IN_TARGET: f64 = 8.0;

/// Slots of a run at most.
const SLOTS_MAX: f64 = 20_000.0;

/// How the requests of a load come.
#[derive(Clone, Debug)]
pub struct Evenness {
    /// The index of dispersion of their counts, at least 1.
    pub dispersion: f64,
    /// Of a run's requests, how many may be late, in such as come by themselves; as many as one likes where nothing is
    /// known.
    may_be_late: f64,
    /// When they come by many seeds, where a few runs say too little.
    pub bursts: Option<Arc<Bursts>>,
}

impl Evenness {
    /// Requests that are independent of each other, or of which nothing is known.
    pub const EVEN: Evenness = Evenness {
        dispersion: 1.0,
        may_be_late: f64::INFINITY,
        bursts: None,
    };

    /// Of the load of some runs, by its arrivals with other seeds. `seeds` makes the first so many repeats.
    /// Requests are counted while they are drawn, twice: how long runs are says how wide a window is.
    pub fn of(
        seeds: impl Fn(u32) -> Result<Vec<RunSpec>, Failure>,
        interrupt: &AtomicBool,
    ) -> Result<Evenness, Failure> {
        let runs = seeds(SEEDS)?;
        let run = &runs[0];
        if is_even(&run.workload) {
            return Ok(Evenness::EVEN);
        }
        if is_periodic(&run.workload.arrivals) {
            // All that a seed draws of a tenant is its phase: its requests tell as much as one, however many they are.
            let requests = Span::of(run, interrupt)?.requests as f64;
            return Ok(Evenness {
                dispersion: (requests / f64::from(run.tenants)).max(1.0),
                ..Evenness::EVEN
            });
        }
        let mut spans = each(&runs, |run| Span::of(run, interrupt))?;
        let shortest_ns = spans.iter().map(|span| span.last_ns).min().unwrap_or(0);
        let windows = |run: &RunSpec| in_windows(shortest_ns, |see| each_arrival(run, interrupt, see));
        let dispersion = of_windows(&each(&runs, windows)?);
        let requests = spans.iter().map(|span| span.requests).sum::<u64>() as f64 / f64::from(SEEDS);
        let Some(slo) = run.slo else {
            return Ok(Evenness {
                dispersion,
                ..Evenness::EVEN
            });
        };
        let may_be_late = requests * (1.0 - slo.quantile) / dispersion;
        if dispersion == 1.0 || may_be_late >= FEW {
            return Ok(Evenness {
                dispersion,
                may_be_late,
                bursts: None,
            });
        }
        let runs = seeds(seeds_for(ENOUGH / may_be_late, requests))?;
        spans.extend(each(&runs[spans.len()..], |run| Span::of(run, interrupt))?);
        Ok(Evenness {
            dispersion,
            may_be_late,
            bursts: Some(Arc::new(counted(&runs, &spans, slo, interrupt)?)),
        })
    }

    /// How many times as long a run must be to say enough of the bursts by itself; nothing where it does.
    pub fn longer(&self) -> Option<f64> {
        (self.bursts.is_some() && self.may_be_late > 0.0).then(|| FEW / self.may_be_late)
    }
}

/// When the requests of a load come by many seeds, where they come by themselves: near capacity they are late in heaps
/// all the same. Nothing but of Poisson requests with a target.
pub fn of_seeds(
    seeds: impl Fn(u32) -> Result<Vec<RunSpec>, Failure>,
    interrupt: &AtomicBool,
) -> Result<Option<Bursts>, Failure> {
    let runs = seeds(1)?;
    let Some(slo) = runs[0]
        .slo
        .filter(|_| matches!(unscaled(&runs[0].workload.arrivals), ArrivalsSpec::Poisson { .. }))
    else {
        return Ok(None);
    };
    let first = Span::of(&runs[0], interrupt)?;
    let runs = seeds(seeds_for(SEEDS_MAX, first.requests as f64))?;
    let mut spans = vec![first];
    spans.extend(each(&runs[1..], |run| Span::of(run, interrupt))?);
    Ok(Some(counted(&runs, &spans, slo, interrupt)?))
}

/// How many seeds are drawn, of so many that one would like, with so many requests each.
fn seeds_for(wanted: f64, requests: f64) -> u32 {
    let most = SEEDS_MAX.min(REQUESTS_MAX / requests.max(1.0));
    wanted.min(most).max(SEEDS.into()) as u32
}

/// How many requests of each run come in each slot.
fn counted(runs: &[RunSpec], spans: &[Span], slo: Slo, interrupt: &AtomicBool) -> Result<Bursts, Failure> {
    let last_ns = spans.iter().map(|span| span.last_ns).max().unwrap_or(0);
    let last_s = last_ns as f64 / 1e9;
    let target_s = slo.target.limit().map_or(0.0, |limit| limit.as_secs_f64());
    let slot_s = (target_s / SLOTS_IN_TARGET).max(last_s / SLOTS_MAX);
    let counts = |run: &RunSpec| {
        let mut counts = vec![0_u32; (last_s / slot_s) as usize + 1];
        each_arrival(run, interrupt, |arrival| {
            counts[(arrival as f64 / 1e9 / slot_s) as usize] += 1
        })?;
        Ok(counts)
    };
    Ok(Bursts {
        slot_s,
        first: (runs[0].warm_up.as_secs_f64() / slot_s).round() as usize,
        seeds: each(runs, counts)?,
        target_s,
    })
}

/// Whether requests are independent by how they are drawn, or, in a closed loop, not known before the run.
fn is_even(workload: &WorkloadSpec) -> bool {
    let even = matches!(
        unscaled(&workload.arrivals),
        ArrivalsSpec::Poisson { .. } | ArrivalsSpec::Constant { .. } | ArrivalsSpec::ClosedLoop { .. }
    );
    even && workload.presence == PresenceSpec::default()
}

/// The arrivals, whatever load is made of them.
pub fn unscaled(arrivals: &ArrivalsSpec) -> &ArrivalsSpec {
    match arrivals {
        ArrivalsSpec::Scaled { arrivals, .. } => unscaled(arrivals),
        own => own,
    }
}

/// Whether each tenant asks at its own even pace.
fn is_periodic(arrivals: &ArrivalsSpec) -> bool {
    let is_it = |leaf: &&ArrivalsSpec| matches!(leaf, ArrivalsSpec::PeriodicPerTenant { .. });
    arrivals.leaves().iter().all(is_it)
}

/// Of each run, side by side.
fn each<T: Send>(
    runs: &[RunSpec],
    of: impl Fn(&RunSpec) -> Result<T, Failure> + Sync + Send,
) -> Result<Vec<T>, Failure> {
    runs.par_iter().map(of).collect()
}

/// How many requests a run has, and when the last one comes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    requests: u64,
    last_ns: u64,
}

impl Span {
    fn of(run: &RunSpec, interrupt: &AtomicBool) -> Result<Span, Failure> {
        let mut span = Span::default();
        each_arrival(run, interrupt, |arrival| {
            span.requests += 1;
            span.last_ns = span.last_ns.max(arrival);
        })?;
        Ok(span)
    }
}

/// How many requests come in each of the windows that a span is cut into, for each of [`WINDOWS`].
type InWindows = [Vec<f64>; WINDOWS.len()];

/// Of the arrivals that `each` goes through.
fn in_windows(
    span_ns: u64,
    each: impl FnOnce(&mut dyn FnMut(u64)) -> Result<(), Failure>,
) -> Result<InWindows, Failure> {
    let mut counts = WINDOWS.map(|windows| vec![0.0; windows]);
    each(&mut |arrival| {
        for counts in &mut counts {
            let width = (span_ns / counts.len() as u64).max(1);
            if let Some(count) = counts.get_mut((arrival / width) as usize) {
                *count += 1.0;
            }
        }
    })?;
    Ok(counts)
}

/// The index of dispersion of the counts of some runs' requests: the variance of how many come in a window over their
/// mean (Cox and Lewis, *The Statistical Analysis of Series of Events*, section 4.5), by the windows of which it is
/// most. It is taken between seeds, window by window, so that a load which climbs by plan is no burst; and 1 where it
/// is not more than chance allows.
fn of_windows(seeds: &[InWindows]) -> f64 {
    let mut most = 1.0_f64;
    for (at, windows) in WINDOWS.into_iter().enumerate().filter(|_| seeds.len() > 1) {
        let of = seeds.len() as f64;
        let (mut square, mut sum) = (0.0, 0.0);
        for window in 0..windows {
            let counts = seeds.iter().map(|seed| seed[at][window]);
            let mean = counts.clone().sum::<f64>() / of;
            square += counts.map(|count| (count - mean).powi(2)).sum::<f64>() / (of - 1.0);
            sum += mean;
        }
        // Of independent requests it is 1, give or take a chi-squared variable's spread over its mean.
        let freedom = windows as f64 * (of - 1.0);
        if sum > 0.0 && square / sum > 1.0 + 2.0 * (2.0 / freedom).sqrt() {
            most = most.max(square / sum);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use tenantry_scenarios::Scenario;
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;

    /// Requests at a rate for each second that `rate` says, of three seeds.
    fn seeds(rate: impl Fn(u64, u64) -> u64) -> Vec<Vec<u64>> {
        let seed = |seed: u64| {
            let mut stream = Draws::new(seed, Purpose::Arrival).about(0);
            let second = |second: u64| (0..rate(seed, second)).map(move |_| second);
            let seconds: Vec<u64> = (0..100).flat_map(second).collect();
            seconds.into_iter().map(|second| second * 1_000_000_000 + stream.below(1_000_000_000)).collect()
        };
        (0..3).map(seed).collect()
    }

    fn of_arrivals(seeds: &[Vec<u64>]) -> f64 {
        let last = |seed: &Vec<u64>| seed.iter().copied().max().unwrap_or(0);
        let span = seeds.iter().map(last).min().unwrap_or(0);
        let windows = |seed: &Vec<u64>| {
            let each = |see: &mut dyn FnMut(u64)| {
                seed.iter().for_each(|arrival| see(*arrival));
                Ok(())
            };
            in_windows(span, each).unwrap()
        };
        of_windows(&seeds.iter().map(windows).collect::<Vec<_>>())
    }

    /// What is counted takes no memory by the request, and whoever waits can stop it.
    #[test]
    fn counting_ends_when_the_user_wants() {
        let scenario = Scenario::load("quickstart", &[
            "workload.arrivals={mmpp: {states: [{rate: 3000/s, mean_dwell: 1s}, {rate: 12000/s, mean_dwell: 100ms}]}}".to_owned(),
            "workload.stop={after: 1000h}".to_owned(),
            "sweep={}".to_owned(),
        ])
        .unwrap();
        let interrupt = AtomicBool::new(true);
        let found = Evenness::of(
            |repeats| Ok(vec![scenario.runs().remove(0); repeats as usize]),
            &interrupt,
        );
        assert!(matches!(found, Err(Failure::Interrupted(_))), "{found:?}");
    }

    /// A tenant's phase is one draw, however often it asks.
    #[test]
    fn periodic_requests_tell_as_much_as_their_tenants() {
        let set = [
            "workload.arrivals={periodic-per-tenant: {period: 20ms}}",
            "workload.stop={requests: 4000}",
            "tenants={count: 10, popularity: of-arrivals}",
            "sweep={}",
        ];
        let scenario = Scenario::load("quickstart", &set.map(str::to_owned)).unwrap();
        let seeds = |repeats: u32| Ok(vec![scenario.runs().remove(0); repeats as usize]);
        let found = Evenness::of(seeds, &AtomicBool::new(false)).unwrap();
        assert_eq!(found.dispersion, 400.0);
        assert!(found.bursts.is_none());
    }

    #[test]
    fn bursts_are_dispersed_and_a_planned_climb_is_not() {
        assert_eq!(of_arrivals(&seeds(|_, second| 10 + second)), 1.0);
        // A burst of ten seconds and 900 requests more a second at another time for each seed: with windows of ten
        // seconds the counts of three of ten windows are 10,000, 1,000 and 1,000, whose variance is 2.7e7 over a mean
        // of 1,900 in all.
        let burst = |seed: u64, second: u64| if second / 10 == 2 + 3 * seed { 1000 } else { 100 };
        let found = of_arrivals(&seeds(burst));
        assert!((found / (0.3 * 2.7e7 / 1900.0) - 1.0).abs() < 0.05, "{found}");
        assert_eq!(of_arrivals(&[Vec::new(), Vec::new(), Vec::new()]), 1.0);
    }
}
