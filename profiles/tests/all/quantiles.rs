//! The laws of a cost's distribution: it goes through the measured quantiles, rises, and has the measured mean, so that
//! simulated throughput is that of the measured ops.

use proptest::prelude::*;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Cost, DispatchOperation, DispatchRow, Drawn, Place, Spread, Stats, Tables};

const MEDIAN_NS: u64 = 1_000_000;

/// A median of a millisecond and these ratios to it.
fn cost(mean: f64, [p05, p95, p99]: [f64; 3]) -> Cost {
    let ppm = |ratio: f64| (ratio * 1e6).round() as u32;
    let spread = Spread {
        mean_ppm: ppm(mean),
        p05_ppm: ppm(p05),
        p95_ppm: ppm(p95),
        p99_ppm: ppm(p99),
    };
    Cost {
        median_ns: MEDIAN_NS,
        spread,
    }
}

/// What a card makes of these measurements.
fn measured(samples_us: &mut [f64]) -> Cost {
    let mut card = synthetic_card();
    let row = DispatchRow {
        operation: DispatchOperation::Wake,
        stats: Stats::of(samples_us),
    };
    card.tables = Tables {
        dispatch: vec![row],
        ..Tables::default()
    };
    card.validate().unwrap();
    card.dispatch(DispatchOperation::Wake).unwrap()
}

/// The mean of the durations that a simulator draws, in nanoseconds.
fn drawn_mean_ns(cost: Cost) -> f64 {
    let steps = 20_000;
    let at = |step: u32| cost.at_quantile((f64::from(step) + 0.5) / f64::from(steps)) as f64;
    (0..steps).map(at).sum::<f64>() / f64::from(steps)
}

prop_compose! {
    /// p05, p95 and p99 as ratios to the median.
    fn quantiles()(p05 in 0.1..=1.0_f64, above in 0.0..3.0_f64, beyond in 0.0..5.0_f64) -> [f64; 3] {
        [p05, 1.0 + above, 1.0 + above + beyond]
    }
}

proptest! {
    #[test]
    fn the_mean_is_the_measured(quantiles in quantiles(), exponent in 1.0 / 99.0..=99.0_f64) {
        let [p05, p95, p99] = quantiles;
        let bent = |low: f64, high: f64| low + (high - low) / (exponent + 1.0);
        let mean = 0.05 * p05 + 0.45 * (p05 + 1.0) / 2.0 + 0.45 * bent(1.0, p95) + 0.04 * bent(p95, p99) + 0.01 * p99;
        let cost = cost(mean, quantiles);
        let drawn_ns = drawn_mean_ns(cost);
        prop_assert!((drawn_ns / cost.mean_ns() as f64 - 1.0).abs() < 0.005, "{drawn_ns} from {cost:?}");
    }

    /// Even where the mean cannot be met.
    #[test]
    fn durations_rise_through_the_measured_quantiles(
        quantiles in quantiles(),
        mean in 0.0..20.0_f64,
        [u, v] in prop::array::uniform2(0.0..=1.0_f64),
    ) {
        let cost = cost(mean, quantiles);
        prop_assert!(cost.at_quantile(u.min(v)) <= cost.at_quantile(u.max(v)));
        let Spread { p05_ppm, p95_ppm, p99_ppm, .. } = cost.spread;
        let known = [(0.0, p05_ppm), (0.05, p05_ppm), (0.5, 1_000_000), (0.95, p95_ppm), (0.99, p99_ppm), (1.0, p99_ppm)];
        for (u, ppm) in known {
            prop_assert_eq!(cost.at_quantile(u), u64::from(ppm), "at {}", u);
        }
    }

    /// What is drawn again and again is what is defined, to the nanosecond.
    #[test]
    fn drawing_again_and_again_is_drawing_once(
        quantiles in quantiles(),
        mean in 0.0..20.0_f64,
        median_ns in prop_oneof![0..2_000_u64, 0..10_000_000_u64, 0..2_000_000_000_000_u64],
        shares in prop::collection::vec(0.0..=1.0_f64, 50),
    ) {
        let cost = Cost { median_ns, ..cost(mean, quantiles) };
        let drawn = Drawn::from(cost);
        for u in shares.into_iter().chain([0.05, 0.5, 0.95, 0.99]) {
            prop_assert_eq!(drawn.at_quantile(u), cost.at_quantile(u), "at {}", u);
            prop_assert_eq!(drawn.at(Place::new(u)), cost.at_quantile(u), "at {}", u);
        }
    }

    /// Whatever was measured is a row that a card accepts.
    #[test]
    fn statistics_of_any_measurements_are_sound(magnitudes in prop::collection::vec(-2.0..4.0_f64, 1..300)) {
        let mut samples_us: Vec<f64> = magnitudes.into_iter().map(|magnitude| 10_f64.powf(magnitude)).collect();
        let cost = measured(&mut samples_us);
        let mean_ns = samples_us.iter().map(|us| us * 1e3 / samples_us.len() as f64).sum::<f64>();
        let rounding_ns = 1.0 + cost.median_ns as f64 / 1e6 + f64::from(cost.spread.mean_ppm) / 1e6;
        prop_assume!(cost.spread.mean_ppm < u32::MAX);
        prop_assert!((cost.mean_ns() as f64 - mean_ns).abs() <= rounding_ns, "{mean_ns} and {}", cost.mean_ns());
    }
}

#[test]
fn a_few_slow_ops_weigh_as_much_as_they_were_measured_to() {
    for (slow, factor) in [
        (15, 10.0),
        (49, 2.0),
        (49, 10.0),
        (55, 2.0),
        (100, 2.0),
        (100, 10.0),
        (450, 3.0),
    ] {
        let mut samples_us: Vec<f64> = (0..1000).map(|op| if op < slow { 100.0 * factor } else { 100.0 }).collect();
        let mean_us = 100.0 + 0.1 * f64::from(slow) * (factor - 1.0);
        let cost = measured(&mut samples_us);
        assert_eq!(cost.mean_ns() as f64, mean_us * 1e3);
        let drawn_ns = drawn_mean_ns(cost);
        let error = drawn_ns / (mean_us * 1e3) - 1.0;
        assert!(error.abs() < 0.01, "{slow} in 1000 at {factor}: {error}");
    }
}

#[test]
fn an_exponential_tail_has_its_mean() {
    // A floor of 1 ms and 50 us on average beyond it.
    let mut samples_us: Vec<f64> = (0..10_000).map(|i| 1e3 - 50.0 * (1.0 - (f64::from(i) + 0.5) / 1e4).ln()).collect();
    let drawn_ns = drawn_mean_ns(measured(&mut samples_us));
    assert!((drawn_ns / 1.05e6 - 1.0).abs() < 1e-3, "{drawn_ns}");
}

#[test]
fn without_spread_every_op_takes_the_median() {
    let cost = Cost {
        median_ns: MEDIAN_NS,
        spread: Spread::NONE,
    };
    for u in [0.0, 0.3, 0.7, 0.97, 1.0] {
        assert_eq!(cost.at_quantile(u), MEDIAN_NS);
    }
    assert_eq!(cost.mean_ns(), MEDIAN_NS);
}

#[test]
fn statistics_are_nearest_ranks() {
    let mut samples_us: Vec<f64> = (1..=200).rev().map(f64::from).collect();
    let stats = Stats {
        count: 200,
        mean_us: 100.5,
        median_us: 100.0,
        p05_us: 10.0,
        p95_us: 190.0,
        p99_us: 198.0,
    };
    assert_eq!(Stats::of(&mut samples_us), stats);
    assert_eq!(Stats::of(&mut [3.0]).p05_us, 3.0);
}

/// A difference below zero is as much a part of the mean as another, and whatever comes of it a card takes.
#[test]
fn differences_below_zero_make_a_cost() {
    let mut half = [[-30.0; 10], [50.0; 10]].concat();
    assert_eq!(Stats::of(&mut half).not_negative().mean_us, 10.0);
    for mut differences in [
        vec![5.0; 20],
        [vec![-200.0], vec![5.0; 19]].concat(),
        [vec![-200.0; 19], vec![5.0]].concat(),
        vec![-1.0; 20],
    ] {
        let mut card = synthetic_card();
        let row = &mut card.tables.dispatch[0];
        row.stats = Stats::of(&mut differences).not_negative();
        card.validate().unwrap_or_else(|error| panic!("{differences:?}: {error}"));
    }
}
