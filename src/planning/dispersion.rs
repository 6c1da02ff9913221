//! How much more unevenly requests come than independent ones.

use tenantry_scenarios::RunSpec;
use tenantry_traces::Entry;
use tenantry_traces::spec::ArrivalsSpec;

use crate::failure::Failure;

/// Windows that a run is cut into: bursts are seen in those that are about as long as they are.
const WINDOWS: [usize; 3] = [20, 10, 5];

/// The index of dispersion of the counts of some runs' requests, at least 1: the variance of how many come in a window over their mean (Cox and
/// Lewis, *The Statistical Analysis of Series of Events*, section 4.5). It is taken between seeds, window by window, so that a load which
/// climbs by plan is no burst; and 1 where it is not more than chance allows, or nothing is known before the run (a closed loop).
pub fn dispersion(seeds: &[RunSpec]) -> Result<f64, Failure> {
    let arrivals = seeds.iter().map(arrivals_ns).collect::<Result<Vec<_>, _>>()?;
    Ok(of_arrivals(&arrivals))
}

fn arrivals_ns(run: &RunSpec) -> Result<Vec<u64>, Failure> {
    let mut arrivals = Vec::new();
    if matches!(run.workload.arrivals, ArrivalsSpec::ClosedLoop { .. }) {
        return Ok(arrivals);
    }
    let mut workload = tenantry_traces::build(&run.workload).map_err(Failure::bad_input)?;
    while let Some(entry) = workload.next().map_err(Failure::bad_input)? {
        if let Entry::Request(request) = entry {
            arrivals.push(request.arrival.0);
        }
    }
    Ok(arrivals)
}

fn of_arrivals(seeds: &[Vec<u64>]) -> f64 {
    let last = |seed: &Vec<u64>| seed.iter().copied().max().unwrap_or(0);
    let span = seeds.iter().map(last).min().unwrap_or(0);
    let mut most = 1.0_f64;
    for windows in WINDOWS {
        let width = span / windows as u64;
        if width == 0 || seeds.len() < 2 {
            continue;
        }
        let counts = |seed: &Vec<u64>| {
            let mut counts = vec![0.0; windows];
            for arrival in seed {
                if let Some(count) = counts.get_mut((arrival / width) as usize) {
                    *count += 1.0;
                }
            }
            counts
        };
        let counts: Vec<Vec<f64>> = seeds.iter().map(counts).collect();
        let of = seeds.len() as f64;
        let (mut square, mut sum) = (0.0, 0.0);
        for window in 0..windows {
            let mean = counts.iter().map(|seed| seed[window]).sum::<f64>() / of;
            let squares = counts.iter().map(|seed| (seed[window] - mean).powi(2));
            square += squares.sum::<f64>() / (of - 1.0);
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
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;

    /// Requests at a rate for each second that `rate` says, of three seeds.
    fn seeds(rate: impl Fn(u64, u64) -> u64) -> Vec<Vec<u64>> {
        let seed = |seed: u64| {
            let mut stream = Draws::new(seed, Purpose::Arrival).about(0);
            let second = |second: u64| (0..rate(seed, second)).map(move |_| second);
            let seconds: Vec<u64> = (0..100).flat_map(second).collect();
            seconds
                .into_iter()
                .map(|second| second * 1_000_000_000 + stream.below(1_000_000_000))
                .collect()
        };
        (0..3).map(seed).collect()
    }

    #[test]
    fn bursts_are_dispersed_and_a_planned_climb_is_not() {
        assert_eq!(of_arrivals(&seeds(|_, second| 10 + second)), 1.0);
        // A burst of ten seconds and 900 requests more a second at another time for each seed: with windows of ten seconds the counts of three
        // of ten windows are 10,000, 1,000 and 1,000, whose variance is 2.7e7 over a mean of 1,900 in all.
        let burst = |seed: u64, second: u64| if second / 10 == 2 + 3 * seed { 1000 } else { 100 };
        let found = of_arrivals(&seeds(burst));
        assert!((found / (0.3 * 2.7e7 / 1900.0) - 1.0).abs() < 0.05, "{found}");
        assert_eq!(of_arrivals(&[Vec::new(), Vec::new(), Vec::new()]), 1.0);
    }
}
