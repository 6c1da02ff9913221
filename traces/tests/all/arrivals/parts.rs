//! Parts of other arrivals: cut out, repeated, recorded.

use super::*;

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

/// Where more requests are the same ones in less time, a part of them takes less time too; rates and instants together
/// have no such part.
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
        "workload.arrivals.cut.from: must be before the last request of the arrivals that it is a part of, got \
         30.000000 s"
    );
    let endless = part(0, None, true, 0, ArrivalsSpec::Constant { rate_per_s: 1.0 });
    assert_eq!(
        message(&spec(endless)),
        "workload.arrivals.cut.length: must be given where a part repeats, since its last request does not say when it \
         ends, got nothing"
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
                "workload.arrivals.cut.from: must be before the end of the arrivals that it is a part of, \
                 {ends_s}.000000 s, got {ends_s}.000000 s"
            )
        );
    }
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

/// Tenants by the file's lines, the silent ones too, over all its minutes; and where a recording has a line for each
/// request, a minute's requests each come at an instant of their own.
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

/// A recording's `second`s are its clock, whatever they count from: by it a cut ends too, which may begin before the
/// first row.
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
            (first.saturating_sub(60), Some(first.min(60) + 3), [1, 2, 3, 0]),
            (0, Some(first + 2), [1, 2, 0, 0]),
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
        (50, Some(53), [0, 2, 3, 0]),
        (0, None, [0, 2, 3, 0]),
        (0, Some(102), [0, 2, 0, 0]),
    ] {
        let spec = of(broken, from_s, length_s, true);
        assert_eq!(per_second(&spec), counts, "broken, from {from_s} for {length_s:?}");
    }
    for (from_s, length_s, refused) in [
        (104, None, "must have requests from second 104 on, got none"),
        (
            0,
            Some(3),
            "must have requests from second 0 to second 3, got its first line at second 100",
        ),
        (
            40,
            Some(60),
            "must have requests from second 40 to second 100, got its first line at second 100",
        ),
    ] {
        let outside = build(&of(&text(100), from_s, length_s, false)).unwrap().next();
        let error = outside.unwrap_err().to_string();
        assert!(error.ends_with(refused), "{error}");
    }
}
