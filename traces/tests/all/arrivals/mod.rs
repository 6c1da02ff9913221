//! When requests arrive: the moments of each kind, and what becomes of cuts, rounds and threads.

mod clients;
mod parts;

use crate::common::workloads::{mean, message, part, requests, spec};
use std::collections::BTreeSet;
use std::io::Write;
use tenantry_traces::describe::dispersion;
use tenantry_traces::spec::{
    ActivitySpec, ArrivalsSpec, CancellationsSpec, CountsSpec, Cut, MmppState, Placement, PopularitySpec, RampPoint,
    ShapeSpec, Stop, TraceSpec, WorkloadSpec,
};
use tenantry_traces::{Duration, Entry, Request, Time, build};

/// Requests in each of `seconds` seconds.
fn requests_per_s(arrivals: ArrivalsSpec, seconds: u64) -> Vec<u32> {
    let mut counts = vec![0; seconds as usize];
    let spec = WorkloadSpec {
        stop: Stop {
            requests: None,
            after: Some(Time(seconds * 1_000_000_000)),
        },
        ..spec(arrivals)
    };
    for request in requests(&spec) {
        counts[(request.arrival.0 / 1_000_000_000) as usize] += 1;
    }
    counts
}

#[test]
fn rates_and_dispersions_are_those_of_theory() {
    let within = |what: &str, got: f64, must_be: f64, share: f64| {
        assert!(
            (got / must_be - 1.0).abs() < share,
            "{what}: must be {must_be}, got {got}"
        );
    };
    let poisson = requests_per_s(ArrivalsSpec::Poisson { rate_per_s: 50.0 }, 20_000);
    within("poisson rate", mean(&poisson), 50.0, 0.01);
    within("poisson dispersion", dispersion(&poisson, 10).unwrap(), 1.0, 0.1);

    let constant = requests_per_s(ArrivalsSpec::Constant { rate_per_s: 3.0 }, 1000);
    assert_eq!(constant, vec![3; 1000]);

    // A renewal process disperses by the square of its coefficient of variation over long windows (Cox, "Renewal
    // Theory", 4.5).
    for cv in [0.5, 3.0] {
        let gamma = requests_per_s(ArrivalsSpec::Gamma { rate_per_s: 50.0, cv }, 40_000);
        within("gamma rate", mean(&gamma), 50.0, 0.02);
        within("gamma dispersion", dispersion(&gamma, 60).unwrap(), cv * cv, 0.15);
    }

    // Two states with equal dwells: 1 + 2 Var(rate) / (mean rate · relaxation rate) over long windows.
    let state = |rate_per_s| MmppState {
        rate_per_s,
        mean_dwell: Duration::from_secs(1),
    };
    let mmpp = requests_per_s(
        ArrivalsSpec::Mmpp {
            states: vec![state(20.0), state(80.0)],
        },
        100_000,
    );
    within("mmpp rate", mean(&mmpp), 50.0, 0.02);
    within(
        "mmpp dispersion",
        dispersion(&mmpp, 100).unwrap(),
        1.0 + 2.0 * 900.0 / (50.0 * 2.0),
        0.15,
    );

    // The time in a state is in proportion to its dwell.
    let longer = MmppState {
        mean_dwell: Duration::from_secs(3),
        ..state(80.0)
    };
    let several = ArrivalsSpec::Scaled {
        factor: 2.0,
        arrivals: Box::new(ArrivalsSpec::Superpose(vec![
            ArrivalsSpec::Poisson { rate_per_s: 10.0 },
            ArrivalsSpec::Mmpp {
                states: vec![state(20.0), longer],
            },
        ])),
    };
    assert_eq!(several.rate_per_s(), Some(150.0));
    within("several at once", mean(&requests_per_s(several, 20_000)), 150.0, 0.02);

    let point = |seconds: u64, rate_per_s| RampPoint {
        at: Time(seconds * 1_000_000_000),
        rate_per_s,
    };
    let ramp = requests_per_s(
        ArrivalsSpec::Ramp {
            points: vec![point(0, 0.0), point(500, 100.0), point(1000, 0.0)],
        },
        1000,
    );
    within("ramp total", f64::from(ramp.iter().sum::<u32>()), 50_000.0, 0.02);
    within(
        "ramp's first half of the way up",
        f64::from(ramp[..250].iter().sum::<u32>()),
        6_250.0,
        0.05,
    );

    let twice = ArrivalsSpec::Superpose(vec![
        ArrivalsSpec::Poisson { rate_per_s: 20.0 },
        ArrivalsSpec::Scaled {
            factor: 3.0,
            arrivals: Box::new(ArrivalsSpec::Poisson { rate_per_s: 10.0 }),
        },
    ]);
    let superposed = requests_per_s(twice, 20_000);
    within("superposed rate", mean(&superposed), 50.0, 0.01);
    within("superposed dispersion", dispersion(&superposed, 1).unwrap(), 1.0, 0.05);
}

#[test]
fn thread_bursts_are_those_of_hmi() {
    let bursts = WorkloadSpec {
        stop: Stop::default(),
        ..spec(ArrivalsSpec::ThreadBursts {
            threads: 250,
            stagger: Duration::from_millis(50),
            period: Duration::from_millis(1200),
            repeats: 50,
        })
    };
    let requests = requests(&bursts);
    assert_eq!(requests.len(), 12_500);
    // The last thread starts at 249 · 50 ms and asks 49 periods later for the last time.
    assert_eq!(
        requests[12_499].arrival,
        Time::ZERO + Duration::from_millis(249 * 50 + 49 * 1200)
    );
}

/// The instants of a minute's requests at most.
fn instants(arrivals: ArrivalsSpec) -> Vec<u64> {
    let minute = WorkloadSpec {
        stop: Stop {
            requests: None,
            after: Some(Time(60_000_000_000)),
        },
        ..spec(arrivals)
    };
    requests(&minute).iter().map(|request| request.arrival.0).collect()
}

#[test]
fn periodic_tenants_keep_their_phase() {
    let period = Duration::from_secs(20);
    let periodic = WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::PeriodicPerTenant { period })
    };
    let requests = requests(&periodic);
    for (first, again) in requests.iter().zip(&requests[100..]) {
        assert_eq!((first.tenant, first.arrival + period), (again.tenant, again.arrival));
    }
    assert!(requests[99].arrival < Time::ZERO + period);
}

/// Half of what a time holds is left for what becomes of the last request.
#[test]
fn nothing_arrives_at_the_end_of_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    let rows: String = (0..100).map(|second| format!("{second},7,1\n")).collect();
    std::fs::write(
        &path,
        format!("arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}"),
    )
    .unwrap();
    let trace = |speed, length| {
        ArrivalsSpec::Trace(TraceSpec {
            path: path.clone(),
            speed,
            skip_bad_lines: false,
            cut: Cut {
                from: Duration::ZERO,
                length,
                repeat: length.is_some(),
            },
        })
    };
    let scaled = |factor| ArrivalsSpec::Scaled {
        factor,
        arrivals: Box::new(trace(1.0, None)),
    };
    let decade = Duration::from_secs(10 * 365 * 86_400);
    for (arrivals, arrived) in [
        (trace(1e-300, None), 1),
        (trace(1e-9, None), 10),
        (scaled(1e-9), 10),
        (trace(1.0, Some(decade)), 100 * 30),
    ] {
        let spec = WorkloadSpec {
            stop: Stop {
                requests: Some(200_000),
                after: None,
            },
            ..spec(arrivals)
        };
        let mut workload = build(&spec).unwrap();
        let mut entries = std::iter::from_fn(|| workload.next().transpose());
        let error = entries.nth(arrived).unwrap().unwrap_err().to_string();
        assert!(error.contains(".trace: must be replayed within 292 years"), "{error}");
    }
    // What is drawn ends.
    let rare = requests(&spec(part(
        0,
        None,
        false,
        0,
        ArrivalsSpec::Poisson { rate_per_s: 1e-9 },
    )));
    assert!((1..30).contains(&rare.len()), "{}", rare.len());
    assert!(rare.iter().all(|request| request.arrival < Time::ARRIVALS_END));
}

/// Not the first of those beyond, or whoever mends it is told again and again.
#[test]
fn too_few_tenants_are_told_how_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let lines = (0..10).map(|tenant| format!("{tenant}000000000,{tenant},8,0,0\n"));
    let text = lines.fold(
        "arrival_ns,tenant,input_tokens,output_tokens,class\n".to_owned(),
        |text, line| text + &line,
    );
    std::fs::write(&path, text).unwrap();
    let spec = WorkloadSpec {
        tenants: 4,
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::Trace(TraceSpec {
            path,
            speed: 1.0,
            skip_bad_lines: false,
            cut: Cut::default(),
        }))
    };
    let mut workload = build(&spec).unwrap();
    let refused = std::iter::repeat_with(|| workload.next()).take(10).find_map(Result::err);
    assert_eq!(
        refused.unwrap().to_string(),
        "tenants.count: must be more than the largest tenant of the arrivals, 9, got 4"
    );
}
