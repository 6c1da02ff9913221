//! Two states that a trace was made with are found again, whatever they are, and none where there are none.

use crate::common::workloads::spec;
use proptest::prelude::*;
use tenantry_traces::describe::dispersion;
use tenantry_traces::fit::mmpp::{Arrivals, fit};
use tenantry_traces::spec::{ArrivalsSpec, MmppState, Stop, WorkloadSpec};
use tenantry_traces::{Duration, Entry, Time, build};

/// Rates a second and mean dwells in milliseconds, and for how many seconds they are generated: some hundred dwells or
/// more.
const SETS: [([f64; 2], [u64; 2], u64); 6] = [
    ([50.0, 300.0], [10_000, 10_000], 4000),
    ([1000.0, 6000.0], [1000, 200], 600),
    ([20.0, 200.0], [60_000, 5000], 14_400),
    // The quickstart's.
    ([55.0, 140.0], [3000, 800], 3600),
    // Thirty requests a dwell.
    ([10.0, 100.0], [3000, 300], 3600),
    // Silence between bursts.
    ([0.0, 200.0], [1000, 200], 3600),
];

fn states(rates_per_s: [f64; 2], dwells_ms: [u64; 2]) -> [MmppState; 2] {
    [0, 1].map(|state| MmppState {
        rate_per_s: rates_per_s[state],
        mean_dwell: Duration::from_millis(dwells_ms[state]),
    })
}

fn instants(arrivals: ArrivalsSpec, seed: u64, after_s: u64) -> Vec<Time> {
    let after = Some(Time(after_s * 1_000_000_000));
    let stop = Stop { requests: None, after };
    let mut workload = build(&WorkloadSpec {
        seed,
        stop,
        ..spec(arrivals)
    })
    .unwrap();
    let mut instants = Vec::new();
    while let Some(entry) = workload.next().unwrap() {
        if let Entry::Request(request) = entry {
            instants.push(request.arrival);
        }
    }
    instants
}

fn of_states(states: [MmppState; 2], seed: u64, after_s: u64) -> Vec<Time> {
    instants(ArrivalsSpec::Mmpp { states: states.into() }, seed, after_s)
}

fn a_second(instants: &[Time], seconds: u64) -> Vec<u32> {
    let mut counts = vec![0; seconds as usize];
    for instant in instants {
        counts[(instant.0 / 1_000_000_000) as usize] += 1;
    }
    counts
}

fn close(what: &str, must: f64, got: f64, within: f64) {
    println!("{what:<60} {must:>10.3} {got:>10.3}");
    assert!(
        (got - must).abs() <= within * must,
        "{what}: must be {must} within {within}, got {got}"
    );
}

fn are_those(what: &str, must: [MmppState; 2], got: [MmppState; 2], [rates, dwells]: [f64; 2]) {
    for (must, got) in must.into_iter().zip(got) {
        // Of silence it is how many requests are put into it.
        let room = f64::from(u8::from(must.rate_per_s == 0.0));
        close(
            &format!("{what}: rate/s"),
            must.rate_per_s + room,
            got.rate_per_s + room,
            rates,
        );
        let [must_s, got_s] = [must, got].map(|state| state.mean_dwell.as_secs_f64());
        close(&format!("{what}: dwell, s"), must_s, got_s, dwells);
    }
}

#[test]
fn states_are_found_by_their_instants() {
    for (rates_per_s, dwells_ms, after_s) in SETS {
        let must = states(rates_per_s, dwells_ms);
        let what = format!("{rates_per_s:?} for {dwells_ms:?} ms");
        let seen = of_states(must, 1, after_s);
        let found = fit(Arrivals::Instants(&seen)).unwrap();
        are_those(&what, must, found, [0.05, 0.2]);

        // What they make is as another draw of what the trace was made with.
        let long_s = 10 * after_s;
        let [real, made] = [(must, 2), (found, 3)].map(|(states, seed)| of_states(states, seed, long_s));
        close(&format!("{what}: requests"), real.len() as f64, made.len() as f64, 0.15);
        let [real, made] = [real, made].map(|instants| a_second(&instants, long_s));
        for window_s in [1, 10, 60] {
            let [real, made] = [&real, &made].map(|counts| dispersion(counts, window_s).unwrap());
            close(&format!("{what}: dispersion at {window_s} s"), real, made, 0.25);
        }
        let [real, made] = [real, made].map(|mut counts| {
            counts.sort_unstable();
            f64::from(counts[counts.len() * 98 / 100])
        });
        close(&format!("{what}: p98 of a second"), real, made, 0.1);
    }
}

/// Counts of seconds say less of when a state changes, and nothing of states that last no longer than they do.
#[test]
fn states_that_last_for_some_seconds_are_found_by_counts() {
    for (rates_per_s, dwells_ms, after_s) in SETS {
        let must = states(rates_per_s, dwells_ms);
        let counts = a_second(&of_states(must, 1, after_s), after_s);
        let found = fit(Arrivals::Seconds(&counts));
        if dwells_ms[1] >= 5000 {
            let what = format!("{rates_per_s:?} for {dwells_ms:?} ms, counts");
            are_those(&what, must, found.unwrap(), [0.1, 0.25]);
        } else {
            assert_eq!(found, None, "{rates_per_s:?} for {dwells_ms:?} ms");
        }
    }
}

#[test]
fn one_rate_is_not_taken_for_two() {
    let gamma = |cv| ArrivalsSpec::Gamma { rate_per_s: 100.0, cv };
    let constant = ArrivalsSpec::Constant { rate_per_s: 100.0 };
    for seed in 1..=3 {
        for arrivals in [
            ArrivalsSpec::Poisson { rate_per_s: 100.0 },
            gamma(0.5),
            gamma(2.0),
            gamma(4.0),
            constant.clone(),
        ] {
            let what = format!("{arrivals:?} by seed {seed}");
            let instants = instants(arrivals, seed, 1800);
            assert_eq!(fit(Arrivals::Instants(&instants)), None, "{what}");
        }
    }
}

#[test]
fn a_state_that_came_once_is_none() {
    let once = |second: u32| if (300..400).contains(&second) { 90 } else { 10 };
    let counts: Vec<u32> = (0..3600).map(once).collect();
    assert_eq!(fit(Arrivals::Seconds(&counts)), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Whatever comes, and however much at once: states that can be generated, or none.
    #[test]
    fn anything_is_fitted_or_not(
        gaps_ns in proptest::collection::vec(prop_oneof![Just(0u64), 1u64..1000, Just(1 << 40)], 0..600),
        counts in proptest::collection::vec(prop_oneof![Just(0u32), 0u32..9, Just(u32::MAX)], 0..600),
    ) {
        let instants: Vec<Time> = gaps_ns.iter()
            .scan(0, |at, gap| { *at += gap; Some(Time(*at)) })
            .collect();
        let both = || [Arrivals::Instants(&instants), Arrivals::Seconds(&counts)].map(fit);
        prop_assert_eq!(both(), both());
        for states in both().into_iter().flatten() {
            prop_assert!(states[0].rate_per_s < states[1].rate_per_s);
            let is_made = build(&spec(ArrivalsSpec::Mmpp { states: states.into() })).is_ok();
            prop_assert!(is_made, "{:?}", states);
        }
    }
}
