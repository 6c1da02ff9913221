//! Laws of generated workloads, and the moments of each kind of arrivals.

use std::io::Write;

use proptest::prelude::*;
use tenantry_traces::describe::dispersion;
use tenantry_traces::fit::twitter::{self, Regimes};
use tenantry_traces::fit::{quantiles, sharegpt};
use tenantry_traces::generate::Shares;
use tenantry_traces::spec::{
    ArrivalsSpec, CountsSpec, Cut, JointSpec, LengthSpec, LengthsSpec, MmppState, OutputBinSpec, PartSpec, Placement,
    PopularitySpec, QuantilePoint, RampPoint, Stop, Tweets, WorkloadSpec,
};
use tenantry_traces::{Duration, Entry, Request, Time, TraceError, Workload, build};

fn spec(arrivals: ArrivalsSpec) -> WorkloadSpec {
    WorkloadSpec {
        seed: 7,
        tenants: 100,
        popularity: PopularitySpec::Uniform,
        arrivals,
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Normal {
                mean: 100.0,
                sd: 30.0,
                min: 1,
                max: 512,
            },
            output: LengthSpec::Fixed(0),
        },
        class_shares: vec![3.0, 1.0],
        management: Default::default(),
        groups: Default::default(),
        presence: Default::default(),
        stop: Stop {
            requests: Some(1000),
            after: None,
        },
    }
}

fn requests(spec: &WorkloadSpec) -> Vec<Request> {
    let mut workload = build(spec).unwrap();
    drain(&mut *workload)
}

fn drain(workload: &mut dyn Workload) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(at) = workload.peek().unwrap() {
        let Some(Entry::Request(request)) = workload.next().unwrap() else {
            panic!("what was announced must come")
        };
        assert_eq!(request.arrival, at);
        requests.push(request);
    }
    assert_eq!(workload.next().unwrap(), None);
    requests
}

fn message(spec: &WorkloadSpec) -> String {
    match build(spec) {
        Err(error @ TraceError::Spec { .. }) => error.to_string(),
        Err(error) => panic!("must be an error of the specification, got {error}"),
        Ok(_) => panic!("must be refused"),
    }
}

fn part(from_s: u64, length_s: Option<u64>, repeat: bool, delay_s: u64, arrivals: ArrivalsSpec) -> ArrivalsSpec {
    ArrivalsSpec::Part(PartSpec {
        cut: Cut {
            from: Duration::from_secs(from_s),
            length: length_s.map(Duration::from_secs),
            repeat,
        },
        delay: Duration::from_secs(delay_s),
        arrivals: Box::new(arrivals),
    })
}

fn arrivals() -> impl Strategy<Value = ArrivalsSpec> {
    let rate = 0.5f64..5000.0;
    let seconds = |range: std::ops::Range<u64>| range.prop_map(Duration::from_secs);
    let simple = prop_oneof![
        rate.clone().prop_map(|rate_per_s| ArrivalsSpec::Poisson { rate_per_s }),
        rate.clone()
            .prop_map(|rate_per_s| ArrivalsSpec::Constant { rate_per_s }),
        (rate.clone(), 0.2f64..4.0).prop_map(|(rate_per_s, cv)| ArrivalsSpec::Gamma { rate_per_s, cv }),
        (rate.clone(), rate.clone(), seconds(1..20)).prop_map(|(a, b, mean_dwell)| ArrivalsSpec::Mmpp {
            states: [a, b].map(|rate_per_s| MmppState { rate_per_s, mean_dwell }).to_vec(),
        }),
        (rate.clone(), rate.clone(), 1u64..100).prop_map(|(a, b, end)| ArrivalsSpec::Ramp {
            points: [(0, a), (end, b), (2 * end, 0.0)]
                .map(|(at, rate_per_s)| RampPoint {
                    at: Time(at * 1_000_000_000),
                    rate_per_s
                })
                .to_vec(),
        }),
        rate.prop_map(|rate_per_s| ArrivalsSpec::Twitter { rate_per_s }),
        (1u32..20, seconds(0..2), seconds(0..3), 0u32..9).prop_map(|(threads, stagger, period, repeats)| {
            ArrivalsSpec::ThreadBursts {
                threads,
                stagger,
                period,
                repeats,
            }
        }),
    ];
    simple.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(ArrivalsSpec::Superpose),
            (0.1f64..10.0, inner.clone()).prop_map(|(factor, arrivals)| ArrivalsSpec::Scaled {
                factor,
                arrivals: Box::new(arrivals)
            }),
            (0u64..3, proptest::option::of(1u64..9), 0u64..3, inner)
                .prop_map(|(from_s, length_s, delay_s, arrivals)| { part(from_s, length_s, false, delay_s, arrivals) }),
        ]
    })
}

proptest! {
    #[test]
    fn time_never_runs_back_and_tickets_count_up(arrivals in arrivals(), seed: u64) {
        let spec = WorkloadSpec { seed, ..spec(arrivals) };
        let requests = requests(&spec);
        prop_assert!(requests.iter().zip(0..).all(|(request, ticket)| request.ticket == ticket));
        prop_assert!(requests.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
        prop_assert!(requests.iter().all(|request| request.tenant < 100 && request.input_tokens >= 1 && request.class < 2));
    }

    #[test]
    fn a_ticket_has_the_same_draws_whatever_the_arrivals(one in arrivals(), other in arrivals(), seed: u64) {
        let [one, other] = [one, other].map(|arrivals| requests(&WorkloadSpec { seed, ..spec(arrivals) }));
        for (a, b) in one.iter().zip(&other) {
            prop_assert_eq!((a.tenant, a.input_tokens, a.class), (b.tenant, b.input_tokens, b.class));
        }
    }

    #[test]
    fn a_workload_is_the_same_however_often_and_wherever_it_is_built(arrivals in arrivals(), seed: u64) {
        let spec = WorkloadSpec { seed, ..spec(arrivals) };
        let elsewhere = {
            let spec = spec.clone();
            std::thread::spawn(move || requests(&spec))
        };
        prop_assert_eq!(requests(&spec), elsewhere.join().unwrap());
    }

    #[test]
    fn a_longer_workload_begins_as_a_shorter_one(arrivals in arrivals(), seed: u64, short in 0u64..500) {
        let long = WorkloadSpec { seed, ..spec(arrivals) };
        let short = WorkloadSpec { stop: Stop { requests: Some(short), after: None }, ..long.clone() };
        let (long, short) = (requests(&long), requests(&short));
        prop_assert_eq!(&long[..short.len()], &short[..]);
    }

    #[test]
    fn nothing_arrives_at_the_end_or_later(arrivals in arrivals(), seed: u64, end_ms in 0u64..3000) {
        let end = Time(end_ms * 1_000_000);
        let cut = WorkloadSpec { seed, stop: Stop { requests: None, after: Some(end) }, ..spec(arrivals) };
        let whole = WorkloadSpec { stop: Stop { requests: Some(100_000), after: None }, ..cut.clone() };
        let before_end: Vec<_> = requests(&whole).into_iter().filter(|request| request.arrival < end).collect();
        // Where the whole has more than 100 000 requests before the end, only those are compared.
        let cut = requests(&cut);
        prop_assert_eq!(&cut[..before_end.len()], &before_end[..]);
        prop_assert!(before_end.len() == 100_000 || cut.len() == before_end.len());
    }
}

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

fn mean(counts: &[u32]) -> f64 {
    counts.iter().map(|&n| f64::from(n)).sum::<f64>() / counts.len() as f64
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

    // A renewal process disperses by the square of its coefficient of variation over long windows (Cox, "Renewal Theory", 4.5).
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
fn holes_of_a_recording_are_left_out_and_silence_is_kept() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"requests\n9\n2\n0\n3\n0\n0\n0\n4\n9\n").unwrap();
    let counts = |drop_zeros_from, repeat| {
        let spec = CountsSpec {
            skip_bad_lines: false,
            path: file.path().to_path_buf(),
            placement: Placement::Even,
            scale: 2.0,
            drop_zeros_from,
            cut: Cut {
                from: Duration::from_secs(1),
                length: Some(Duration::from_secs(7)),
                repeat,
            },
        };
        requests_per_s(ArrivalsSpec::Counts(spec), 11)
    };
    assert_eq!(counts(None, false), [4, 0, 6, 0, 0, 0, 8, 0, 0, 0, 0]);
    assert_eq!(counts(None, true), [4, 0, 6, 0, 0, 0, 8, 4, 0, 6, 0]);
    assert_eq!(
        counts(Some(Duration::from_secs(2)), true),
        [4, 0, 6, 8, 4, 0, 6, 8, 4, 0, 6]
    );
}

#[test]
fn lengths_and_tenants_are_drawn_from_files() {
    let mut lengths = tempfile::NamedTempFile::new().unwrap();
    lengths
        .write_all(b"num_prefill_tokens,num_decode_tokens\n10,1\n20,2\n")
        .unwrap();
    let mut activity = tempfile::NamedTempFile::new().unwrap();
    activity
        .write_all(b"tenant,minute,invocations\n0,0,30\n1,0,5\n1,1,5\n")
        .unwrap();
    let spec = WorkloadSpec {
        tenants: 2,
        popularity: PopularitySpec::File(activity.path().to_path_buf()),
        lengths: LengthsSpec::Resampled {
            path: lengths.path().to_path_buf(),
            skip_bad_lines: false,
            tokenizer: None,
        },
        stop: Stop {
            requests: Some(10_000),
            after: None,
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    let requests = requests(&spec);
    assert!(
        requests
            .iter()
            .all(|request| request.input_tokens == 10 * request.output_tokens),
        "pairs stay together"
    );
    let share = |of: &dyn Fn(&Request) -> bool| requests.iter().filter(|request| of(request)).count() as f64 / 10_000.0;
    assert!((share(&|request| request.output_tokens == 1) - 0.5).abs() < 0.02);
    assert!((share(&|request| request.tenant == 0) - 0.75).abs() < 0.02);
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
fn a_part_is_what_the_whole_has_there() {
    let whole = ArrivalsSpec::Gamma {
        rate_per_s: 50.0,
        cv: 2.0,
    };
    let expected: Vec<u64> = instants(whole.clone())
        .into_iter()
        .filter(|at| (10_000_000_000..25_000_000_000).contains(at))
        .map(|at| at - 10_000_000_000 + 3_000_000_000)
        .collect();
    assert!(expected.len() > 500);
    assert_eq!(instants(part(10, Some(15), false, 3, whole.clone())), expected);
    // Scaling reaches through it, and the part stays where it is.
    let scaled = |arrivals| ArrivalsSpec::Scaled {
        factor: 2.0,
        arrivals: Box::new(arrivals),
    };
    assert_eq!(
        instants(scaled(part(1, Some(5), true, 2, whole.clone()))),
        instants(part(1, Some(5), true, 2, scaled(whole)))
    );
}

#[test]
fn a_part_that_repeats_does_so_with_draws_of_its_own() {
    let ramp = ArrivalsSpec::Ramp {
        points: [(0, 0.0), (5, 200.0), (10, 0.0)]
            .map(|(at_s, rate_per_s)| RampPoint {
                at: Time(at_s * 1_000_000_000),
                rate_per_s,
            })
            .to_vec(),
    };
    let rounds = |arrivals| -> Vec<Vec<u64>> {
        let instants = instants(part(0, Some(10), true, 0, arrivals));
        let of_round = |round: u64| {
            let of_round = instants.iter().filter(|&&at| at / 10_000_000_000 == round);
            of_round.map(|at| at % 10_000_000_000).collect()
        };
        (0..6).map(of_round).collect()
    };
    let ramps = rounds(ramp.clone());
    assert_eq!(ramps[0], instants(ramp), "the first round is the ramp itself");
    for (round, other) in ramps.iter().zip(&ramps[1..]) {
        assert_ne!(round, other);
        let rising = other.iter().filter(|&&at| at < 5_000_000_000).count();
        assert!(
            other.len().abs_diff(1000) < 120 && rising.abs_diff(500) < 100,
            "{rising} of {}",
            other.len()
        );
    }
    // Nothing is drawn of threads, so that each round is the same.
    let threads = rounds(ArrivalsSpec::ThreadBursts {
        threads: 5,
        stagger: Duration::from_millis(50),
        period: Duration::from_millis(1200),
        repeats: 4,
    });
    assert_eq!(threads[0].len(), 20);
    assert!(threads.iter().all(|round| round == &threads[0]));
    let never = part(
        30,
        Some(10),
        true,
        0,
        ArrivalsSpec::ThreadBursts {
            threads: 1,
            stagger: Duration::ZERO,
            period: Duration::ZERO,
            repeats: 1,
        },
    );
    let error = build(&spec(never)).unwrap().next().unwrap_err().to_string();
    assert_eq!(
        error,
        "workload.arrivals.cut.from: must be before the last request of the arrivals that it is a part of, got 30.000000 s"
    );
    let endless = part(0, None, true, 0, ArrivalsSpec::Constant { rate_per_s: 1.0 });
    assert_eq!(
        message(&spec(endless)),
        "workload.arrivals.cut.length: must be given where a part repeats, since its last request does not say when it ends, got nothing"
    );
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

#[test]
fn a_closed_loop_waits_for_its_answers() {
    let closed = WorkloadSpec {
        stop: Stop {
            requests: Some(3),
            after: None,
        },
        ..spec(ArrivalsSpec::ClosedLoop {
            clients: 2,
            think_time: Duration::from_secs(1),
        })
    };
    let mut workload = build(&closed).unwrap();
    assert_eq!(workload.peek().unwrap(), Some(Time::ZERO));
    assert!(workload.next().unwrap().is_some() && workload.next().unwrap().is_some());
    assert_eq!(workload.peek().unwrap(), None, "both clients wait");
    workload.finished(Time(5), 1);
    assert_eq!(workload.peek().unwrap(), Some(Time(5) + Duration::from_secs(1)));
    let Some(Entry::Request(third)) = workload.next().unwrap() else {
        panic!("the third request")
    };
    assert_eq!(third.ticket, 2);
    workload.finished(Time(9), 0);
    assert_eq!(workload.peek().unwrap(), None, "three were asked for");
}

#[test]
fn popularity_is_as_specified() {
    let counts = |popularity, tenants| {
        let spec = WorkloadSpec {
            popularity,
            tenants,
            stop: Stop {
                requests: Some(100_000),
                after: None,
            },
            ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
        };
        let mut counts = vec![0u32; tenants as usize];
        requests(&spec)
            .iter()
            .for_each(|request| counts[request.tenant as usize] += 1);
        counts
    };
    assert_eq!(counts(PopularitySpec::Distinct, 1000), vec![100; 1000]);
    assert_eq!(counts(PopularitySpec::Identical, 3), vec![100_000, 0, 0]);
    let sqrt = counts(PopularitySpec::UniformSqrt, 101);
    assert_eq!(
        sqrt.iter().filter(|&&n| n > 0).count(),
        11,
        "the square root of 101, rounded up"
    );
    let skewed = counts(PopularitySpec::Skewed { alpha: 1.5 }, 10_000);
    for pair in skewed[..8].windows(2) {
        assert!(
            (f64::from(pair[0]) / f64::from(pair[1]) - 1.5).abs() < 0.15,
            "{:?}",
            &skewed[..9]
        );
    }
    let zipf = counts(PopularitySpec::Zipf { exponent: 1.0 }, 1000);
    assert!(
        (f64::from(zipf[0]) / f64::from(zipf[9]) - 10.0).abs() < 1.0,
        "{} {}",
        zipf[0],
        zipf[9]
    );
}

#[test]
fn lengths_are_as_specified() {
    let inputs = |input| {
        let spec = WorkloadSpec {
            lengths: LengthsSpec::Independent {
                input,
                output: LengthSpec::Fixed(3),
            },
            stop: Stop {
                requests: Some(100_000),
                after: None,
            },
            ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
        };
        let mut inputs: Vec<u32> = requests(&spec).iter().map(|request| request.input_tokens).collect();
        inputs.sort_unstable();
        inputs
    };
    let normal = inputs(LengthSpec::Normal {
        mean: 100.0,
        sd: 20.0,
        min: 1,
        max: 512,
    });
    assert!((mean(&normal) - 100.0).abs() < 0.3);
    assert!(
        (f64::from(normal[97_725]) - 140.0).abs() <= 1.0,
        "two standard deviations up"
    );
    let cut = inputs(LengthSpec::Normal {
        mean: 100.0,
        sd: 20.0,
        min: 90,
        max: 110,
    });
    assert_eq!((cut[0], cut[99_999]), (90, 110));
    assert!(cut.iter().filter(|&&n| n == 110).count() < 6_000, "cut, not piled up");
    let arlo = LengthSpec::Twitter {
        tweets: Tweets::Arlo,
        span: 125,
    };
    let (p50, p98) = (inputs(arlo.clone())[50_000], inputs(arlo)[98_000]);
    assert!(
        (20..=22).contains(&p50) && (69..=72).contains(&p98),
        "Arlo, section 2.2: 21 and 72; got {p50} and {p98}"
    );
    let recalibrated = inputs(LengthSpec::Twitter {
        tweets: Tweets::Arlo,
        span: 512,
    });
    assert!((84..=88).contains(&recalibrated[50_000]) && recalibrated[99_999] <= 512);
    let measured = |span| {
        inputs(LengthSpec::Twitter {
            tweets: Tweets::Measured,
            span,
        })
    };
    let (own, stretched) = (measured(125), measured(512));
    assert_eq!((own[50_000], own[98_000], own[99_999]), (33, 74, 134), "as they were");
    for (tweets, rank) in [(&own, 20_000), (&own, 50_000), (&own, 90_000), (&own, 98_000)] {
        let scaled = f64::from(tweets[rank]) * 512.0 / 125.0;
        assert!((f64::from(stretched[rank]) - scaled).abs() < 5.0, "{rank}: {scaled}");
    }
    assert!((480..=512).contains(&stretched[99_999]), "{}", stretched[99_999]);
    let point = |probability, tokens| QuantilePoint { probability, tokens };
    let quantiles = inputs(LengthSpec::Quantiles(vec![
        point(0.0, 10.5),
        point(0.5, 20.5),
        point(1.0, 40.5),
    ]));
    assert_eq!((quantiles[0], quantiles[99_999]), (11, 40));
    assert!((19..=21).contains(&quantiles[50_000]));
    assert_eq!(inputs(LengthSpec::Empirical(vec![5, 5, 9]))[66_000], 5);
}

/// As at the start after a turn, as at its other end half-way, and half of each between.
#[test]
fn lengths_drift_to_another_distribution_and_back() {
    let drifting = |from, to, requests| WorkloadSpec {
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Drifting {
                from: Box::new(from),
                to: Box::new(to),
                requests,
            },
            output: LengthSpec::Fixed(0),
        },
        stop: Stop {
            requests: Some(200_000),
            after: None,
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    let fixed = drifting(LengthSpec::Fixed(100), LengthSpec::Fixed(300), 100_000);
    let inputs: Vec<u32> = requests(&fixed).iter().map(|request| request.input_tokens).collect();
    for (around, expected) in [
        (0, 100.0),
        (25_000, 200.0),
        (50_000, 300.0),
        (75_000, 200.0),
        (100_000, 100.0),
    ] {
        let window = &inputs[around..around + 1_000];
        let mean = mean(window);
        assert!((mean - expected).abs() < 12.0, "around {around}: {mean}");
    }
    assert!((mean(&inputs) - 200.0).abs() < 1.0, "whole turns have as many of each");
    assert_eq!(
        message(&drifting(LengthSpec::Fixed(1), LengthSpec::Empirical(Vec::new()), 9)),
        "workload.lengths.input.drifting.to.empirical: must be a list of lengths, got an empty list"
    );
    assert_eq!(
        message(&drifting(LengthSpec::Fixed(1), LengthSpec::Fixed(2), 1)),
        "workload.lengths.input.drifting.requests: must be at least 2, got 1"
    );
}

#[test]
fn classes_are_shared_out_among_tenants() {
    let shares = Shares::new("kinds", 7, 1, &[1.0, 0.0, 3.0]).unwrap();
    let mut counts = [0u32; 3];
    (0..10_000).for_each(|tenant| counts[shares.of(tenant) as usize] += 1);
    assert_eq!(counts[1], 0);
    assert!((f64::from(counts[2]) / 10_000.0 - 0.75).abs() < 0.02, "{counts:?}");
}

#[test]
fn what_cannot_be_met_is_refused_with_its_field() {
    let base = spec(ArrivalsSpec::Poisson { rate_per_s: -1.0 });
    assert_eq!(
        message(&base),
        "workload.arrivals.poisson.rate_per_s: must be a finite number above 0, got -1"
    );
    let nested = ArrivalsSpec::Superpose(vec![
        ArrivalsSpec::Constant { rate_per_s: 1.0 },
        ArrivalsSpec::Gamma {
            rate_per_s: 1.0,
            cv: 0.0,
        },
    ]);
    assert_eq!(
        message(&spec(nested)),
        "workload.arrivals.superpose[1].gamma.cv: must be a finite number above 0, got 0"
    );
    let endless = WorkloadSpec {
        stop: Stop::default(),
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    assert_eq!(
        message(&endless),
        "workload.stop: must be given, since these arrivals never end, got nothing"
    );
    let reversed = WorkloadSpec {
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Normal {
                mean: 1.0,
                sd: 1.0,
                min: 9,
                max: 3,
            },
            output: LengthSpec::Fixed(0),
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    assert_eq!(
        message(&reversed),
        "workload.lengths.input.normal.max: must be 9 (`min`) to 1048576, got 3"
    );
    let mut unnamed = build(&WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::Poisson { rate_per_s: 1.0 })
    })
    .unwrap();
    assert_eq!(
        unnamed.next().unwrap_err().to_string(),
        "tenants.popularity: must be a distribution, since the arrivals bring no tenant, got `of-arrivals`"
    );
}

/// The public fits, said as a scenario says a fit of its own.
#[test]
fn fits_of_ones_own_are_the_shipped_ones_where_their_numbers_are() {
    let shipped = twitter::RATES;
    let regimes = Regimes {
        calm_s: shipped.calm_s.to_vec(),
        plateau_s: shipped.plateau_s.to_vec(),
        calm_rate: shipped.calm_rate.to_vec(),
        plateau_rate: shipped.plateau_rate.to_vec(),
        calm_memory_s: shipped.calm_memory_s,
        plateau_memory_s: shipped.plateau_memory_s,
    };
    let joint = JointSpec {
        input: quantiles::points(sharegpt::INPUT),
        output_by_input: sharegpt::OUTPUT_BY_INPUT
            .iter()
            .map(|&(longest_input, output)| OutputBinSpec {
                longest_input,
                output: quantiles::points(output),
            })
            .collect(),
    };
    let with = |arrivals, lengths| WorkloadSpec {
        lengths,
        stop: Stop {
            requests: Some(20_000),
            after: None,
        },
        ..spec(arrivals)
    };
    let own = |regimes, joint| {
        with(
            ArrivalsSpec::Regimes {
                rate_per_s: 3.0,
                regimes,
            },
            LengthsSpec::Joint(joint),
        )
    };
    let shipped = with(ArrivalsSpec::Twitter { rate_per_s: 3.0 }, LengthsSpec::ShareGpt);
    assert_eq!(requests(&own(regimes.clone(), joint.clone())), requests(&shipped));

    let mut falling = regimes.clone();
    falling.calm_rate[3].1 = 1.0;
    let mut timeless = regimes.clone();
    timeless.plateau_s = vec![(0.0, 0.0), (1.0, 0.0)];
    for (broken, field) in [(falling, "calm.rates"), (timeless, "plateau.lasts")] {
        let error = build(&own(broken, joint.clone())).err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("workload.arrivals.regimes.{field}: must be")),
            "{error}"
        );
    }
    let mut unsorted = joint;
    unsorted.output_by_input.swap(0, 1);
    let error = build(&own(regimes, unsorted)).err().unwrap().to_string();
    assert!(
        error.contains("output_by_input[1].longest_input: must be above the bin before"),
        "{error}"
    );
}
