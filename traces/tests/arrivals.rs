//! When requests arrive: the moments of each kind, and what becomes of cuts, rounds and threads.

mod common;

use std::collections::BTreeSet;
use std::io::Write;

use common::workloads::{mean, message, part, requests, spec};
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

/// Where more requests are the same ones in less time, a part of them takes less time too; rates and instants together have no such part.
#[test]
fn a_part_of_instants_is_compressed_as_they_are() {
    let bursts = || ArrivalsSpec::ThreadBursts {
        threads: 3,
        stagger: Duration::from_secs(2),
        period: Duration::from_secs(6),
        repeats: 5,
    };
    let scaled = |arrivals| ArrivalsSpec::Scaled {
        factor: 2.0,
        arrivals: Box::new(arrivals),
    };
    let plain = instants(part(4, Some(10), true, 2, bursts()));
    let halved: Vec<u64> = plain.iter().map(|at| at / 2).collect();
    assert!(plain.len() > 10, "{plain:?}");
    let compressed = instants(scaled(part(4, Some(10), true, 2, bursts())));
    assert_eq!(compressed[..halved.len()], halved);
    let both = ArrivalsSpec::Superpose(vec![bursts(), ArrivalsSpec::Poisson { rate_per_s: 1.0 }]);
    let refused = spec(scaled(part(4, Some(10), false, 0, both)));
    let error = tenantry_traces::build(&refused).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("must be of rates alone, or of instants alone, where it is scaled"),
        "{error}"
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

/// That a round draws no request is not that there are none.
#[test]
fn rounds_without_a_request_do_not_end_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ramp = |per_h: f64| ArrivalsSpec::Ramp {
        points: [(0, 0.0), (1800, per_h), (3600, 0.0)]
            .map(|(at_s, per_h)| RampPoint {
                at: Time(at_s * 1_000_000_000),
                rate_per_s: per_h / 3600.0,
            })
            .to_vec(),
    };
    let counts_of = |name: &str, text: &str, from_s, length, drop_zeros_from| {
        ArrivalsSpec::Counts(CountsSpec {
            path: file(name, text),
            placement: Placement::Poisson,
            scale: 0.05,
            drop_zeros_from,
            skip_bad_lines: false,
            cut: Cut {
                from: Duration::from_secs(from_s),
                length,
                repeat: false,
            },
        })
    };
    let minute = "0\n0\n0\n1\n".repeat(15);
    let four = format!("requests\n{}", minute.repeat(4));
    let counts = |length| counts_of("counts.csv", &four, 0, length, None);
    let begun = counts_of("counts.csv", &four, 40, None, None);
    let hole = format!("requests\n{minute}{minute}{}{minute}", "0\n".repeat(600));
    let dropped = counts_of("hole.csv", &hole, 0, None, Some(Duration::from_secs(60)));
    let ninety = Some(Duration::from_secs(90));
    let broken = counts_of("broken.csv", &format!("{four}x\n"), 0, ninety, None);
    let shape = || {
        ArrivalsSpec::Shape(ShapeSpec {
            path: file("shape.csv", "hour,requests_per_hour\n0,1\n1,3\n"),
            rate_per_s: 1.0 / 3600.0,
            step: None,
            repeat: false,
        })
    };
    let activity = || {
        ArrivalsSpec::Activity(ActivitySpec {
            path: file("activity.csv", "tenant,minute,invocations\n0,0,1\n0,1,1\n"),
            scale: 0.5,
            skip_bad_lines: false,
            repeat: false,
        })
    };
    let both = ArrivalsSpec::Superpose(vec![ramp(1.0), shape()]);
    let inner = part(600, None, false, 60, ramp(4.0));
    for (arrivals, from_s, length_s, ends_s) in [
        (ramp(4.0), 60, 3600, 3600),
        (counts(None), 60, 120, 240),
        (counts(ninety), 60, 120, 90),
        (begun, 60, 120, 200),
        (dropped, 60, 120, 177),
        (broken, 60, 120, 90),
        (shape(), 60, 7200, 7200),
        (activity(), 60, 60, 120),
        (both, 60, 3600, 7200),
        (inner, 60, 3600, 3060),
    ] {
        let rare = WorkloadSpec {
            popularity: match arrivals {
                ArrivalsSpec::Activity(_) => PopularitySpec::OfArrivals,
                _ => PopularitySpec::Uniform,
            },
            ..spec(part(from_s, Some(length_s), true, 0, arrivals.clone()))
        };
        assert_eq!(requests(&rare).len(), 1000, "{arrivals:?}");
        assert_eq!(
            message(&spec(part(ends_s, Some(length_s), true, 0, arrivals))),
            format!(
                "workload.arrivals.cut.from: must be before the end of the arrivals that it is a part of, {ends_s}.000000 s, got {ends_s}.000000 s"
            )
        );
    }
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

/// Half are answered after 30 ms, and the others told of when their batch is over: either way a client asks again once.
#[test]
fn who_gives_up_is_one_client_still() {
    const CLIENTS: usize = 10;
    let spec = WorkloadSpec {
        stop: Stop {
            requests: Some(20_000),
            after: None,
        },
        cancellations: Some(CancellationsSpec {
            share: 0.5,
            mean_after: Duration::from_millis(20),
        }),
        ..spec(ArrivalsSpec::ClosedLoop {
            clients: CLIENTS as u32,
            think_time: Duration::from_millis(1),
        })
    };
    let mut workload = build(&spec).unwrap();
    let (mut waiting, mut ends, mut given_up) = (BTreeSet::new(), BTreeSet::new(), 0);
    loop {
        let (entry, end) = (workload.peek().unwrap(), ends.first().copied());
        match (entry, end) {
            (None, None) => break,
            (entry, Some((at, ticket))) if entry.is_none_or(|entry| at <= entry) => {
                ends.remove(&(at, ticket));
                waiting.remove(&ticket);
                workload.finished(at, ticket);
            }
            _ => match workload.next().unwrap().unwrap() {
                Entry::Request(request) => {
                    waiting.insert(request.ticket);
                    ends.insert((request.arrival + Duration::from_millis(30), request.ticket));
                }
                Entry::Cancel { ticket, .. } => {
                    given_up += 1;
                    assert!(waiting.remove(&ticket), "nobody gives up after the answer");
                }
                Entry::Manage(_) => unreachable!("none was asked for"),
            },
        }
        assert!(waiting.len() <= CLIENTS, "{} wait", waiting.len());
    }
    assert!(given_up > 5_000, "{given_up}");
}

#[test]
fn a_client_that_thinks_beyond_the_end_of_time_asks_no_more() {
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    let closed = WorkloadSpec {
        stop: Stop {
            requests: Some(300),
            after: None,
        },
        ..spec(ArrivalsSpec::ClosedLoop {
            clients: 1,
            think_time: century,
        })
    };
    let mut workload = build(&closed).unwrap();
    let mut asked = 0;
    while let Some(Entry::Request(request)) = workload.next().unwrap() {
        asked += 1;
        workload.finished(request.arrival, request.ticket);
    }
    assert_eq!(asked, 3, "at 0, 1 and 2 centuries of the 292 years that there are");
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
    let refused = std::iter::repeat_with(|| workload.next())
        .take(10)
        .find_map(Result::err);
    assert_eq!(
        refused.unwrap().to_string(),
        "tenants.count: must be more than the largest tenant of the arrivals, 9, got 4"
    );
}

/// Tenants by the file's lines, the silent ones too, over all its minutes; and where a recording has a line for each request, a minute's requests each
/// come at an instant of their own.
#[test]
fn silent_tenants_and_minutes_are_part_of_their_recording() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, text: &str, tenants, repeat| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let activity = ArrivalsSpec::Activity(ActivitySpec {
            path,
            scale: 1.0,
            skip_bad_lines: false,
            repeat,
        });
        let spec = WorkloadSpec {
            tenants,
            popularity: PopularitySpec::OfArrivals,
            stop: Stop {
                requests: Some(40),
                after: Some(Time(600_000_000_000)),
            },
            ..spec(activity)
        };
        requests(&spec)
    };
    let wide =
        "HashOwner,HashApp,HashFunction,Trigger,1,2,3,4\na,b,c,http,2,0,0,0\na,b,d,http,0,3,0,0\na,b,e,http,0,0,0,0\n";
    let minute = |request: &Request| (request.tenant, request.arrival.0 / 60_000_000_000);
    let once: Vec<(u32, u64)> = of("wide.csv", wide, 3, false).iter().map(minute).collect();
    assert_eq!(
        once,
        [(0, 0), (0, 0), (1, 1), (1, 1), (1, 1)],
        "as many tenants as lines: none is drawn anew"
    );
    let again: Vec<(u32, u64)> = of("wide.csv", wide, 3, true).iter().map(minute).collect();
    assert_eq!(again[5..8], [(0, 4), (0, 4), (1, 5)], "a day is four minutes long");

    let lines: String = (0..30).map(|at| format!("a,f,{}.5,0.1\n", at % 50)).collect();
    let each = of(
        "each.csv",
        &format!("app,func,end_timestamp,duration\n{lines}"),
        1,
        false,
    );
    let instants: std::collections::BTreeSet<u64> = each.iter().map(|request| request.arrival.0).collect();
    assert_eq!((each.len(), instants.len()), (30, 30));
}

/// A recording's `second`s are its clock, whatever they count from; at its first row a cut may begin that is before it.
#[test]
fn a_part_of_counts_is_by_their_own_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let of = |text: &str, from_s: u64, length_s: Option<u64>, skip_bad_lines| {
        let path = folder.path().join("counts.csv");
        std::fs::write(&path, text).unwrap();
        spec(ArrivalsSpec::Counts(CountsSpec {
            path,
            placement: Placement::Even,
            scale: 1.0,
            drop_zeros_from: None,
            skip_bad_lines,
            cut: Cut {
                from: Duration::from_secs(from_s),
                length: length_s.map(Duration::from_secs),
                repeat: false,
            },
        }))
    };
    let per_second = |spec: &WorkloadSpec| {
        let mut counts = [0; 4];
        requests(spec)
            .iter()
            .for_each(|request| counts[(request.arrival.0 / 1_000_000_000) as usize] += 1);
        counts
    };
    const EPOCH: u64 = 1_700_000_000;
    let text = |first: u64| {
        format!(
            "second,requests\n{first},1\n{},2\n{},3\n{},4\n",
            first + 1,
            first + 2,
            first + 3
        )
    };
    for first in [0, 100, EPOCH] {
        let text = text(first);
        for (from_s, length_s, counts) in [
            (first, None, [1, 2, 3, 4]),
            (0, None, [1, 2, 3, 4]),
            (first + 2, None, [3, 4, 0, 0]),
            (first + 1, Some(2), [2, 3, 0, 0]),
            (0, Some(3), [1, 2, 3, 0]),
        ] {
            let spec = of(&text, from_s, length_s, false);
            assert_eq!(per_second(&spec), counts, "from {from_s} for {length_s:?}");
        }
    }
    // Without the column they count from the first row, and a broken first row is a second too.
    assert_eq!(per_second(&of("requests\n1\n2\n3\n", 1, None, false)), [2, 3, 0, 0]);
    let broken = "second,requests\n100,x\n101,2\n102,3\n";
    for (from_s, length_s, counts) in [
        (102, None, [3, 0, 0, 0]),
        (101, None, [2, 3, 0, 0]),
        (100, None, [0, 2, 3, 0]),
        (100, Some(2), [0, 2, 0, 0]),
        (50, None, [0, 2, 3, 0]),
        (50, Some(3), [0, 2, 3, 0]),
        (0, None, [0, 2, 3, 0]),
        (0, Some(2), [0, 2, 0, 0]),
    ] {
        let spec = of(broken, from_s, length_s, true);
        assert_eq!(per_second(&spec), counts, "broken, from {from_s} for {length_s:?}");
    }
    let late = build(&of(&text(100), 104, None, false))
        .unwrap()
        .next()
        .unwrap_err()
        .to_string();
    assert!(
        late.ends_with("must have requests from second 104 on, got none"),
        "{late}"
    );
}
