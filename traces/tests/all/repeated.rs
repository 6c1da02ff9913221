//! Recordings that begin again: when they do, and that they need not be read again for it.

use std::path::Path;

use crate::common::workloads::{part, requests, spec};
use tenantry_traces::spec::{
    ActivitySpec, ArrivalsSpec, CountsSpec, Cut, Placement, PopularitySpec, ShapeSpec, Stop, TraceSpec, WorkloadSpec,
};
use tenantry_traces::{Duration, Entry, Time, build};

const MINUTE: u64 = 60_000_000_000;

fn activity(path: &Path, repeat: bool) -> ArrivalsSpec {
    ArrivalsSpec::Activity(ActivitySpec {
        path: path.to_path_buf(),
        scale: 1.0,
        skip_bad_lines: false,
        repeat,
    })
}

fn trace(path: &Path, from_s: u64, length_s: u64, repeat: bool) -> ArrivalsSpec {
    ArrivalsSpec::Trace(TraceSpec {
        path: path.to_path_buf(),
        speed: 1.0,
        skip_bad_lines: false,
        cut: Cut {
            from: Duration::from_secs(from_s),
            length: Some(Duration::from_secs(length_s)),
            repeat,
        },
    })
}

/// Office hours come again at their hour: the night behind the last request is a part of the day.
#[test]
fn a_day_of_activity_comes_again_after_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = folder.path().join("sparse.csv");
    std::fs::write(&sparse, "tenant,minute,invocations\n0,540,2\n0,1019,1\n").unwrap();
    let each = folder.path().join("each.csv");
    std::fs::write(
        &each,
        "app,func,end_timestamp,duration\na,f,32400.5,0.1\na,f,61150.5,0.1\n",
    )
    .unwrap();
    let two_days = folder.path().join("two-days.csv");
    std::fs::write(&two_days, "tenant,minute,invocations\n0,540,1\n0,1440,1\n").unwrap();
    for (path, minutes) in [
        (sparse, &[540, 540, 1019, 1980, 1980, 2459, 3420][..]),
        (each, &[540, 1019, 1980, 2459, 3420]),
        (two_days, &[540, 1440, 3420, 4320]),
    ] {
        let spec = WorkloadSpec {
            tenants: 1,
            popularity: PopularitySpec::OfArrivals,
            stop: Stop {
                requests: Some(minutes.len() as u64),
                after: None,
            },
            ..spec(activity(&path, true))
        };
        let asked: Vec<u64> = requests(&spec).iter().map(|request| request.arrival.0 / MINUTE).collect();
        assert_eq!(asked, minutes, "{}", path.display());
    }
}

/// Files are gone once the first round has been read.
#[test]
fn rounds_are_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let rows: String = (0..50).map(|second| format!("{second},7,1\n")).collect();
    let recorded = file(
        "trace.csv",
        &format!("arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}"),
    );
    let counts = ArrivalsSpec::Counts(CountsSpec {
        path: file("counts.csv", "requests\n5\n7\n1\n0\n2\n"),
        placement: Placement::Poisson,
        scale: 3.0,
        drop_zeros_from: None,
        skip_bad_lines: false,
        cut: Cut {
            from: Duration::from_secs(1),
            length: Some(Duration::from_secs(3)),
            repeat: true,
        },
    });
    let shape = ArrivalsSpec::Shape(ShapeSpec {
        path: file("shape.csv", "hour,requests_per_hour\n0,3600\n1,7200\n"),
        rate_per_s: 1.0,
        step: None,
        repeat: false,
    });
    let asked = file("activity.csv", "tenant,minute,invocations\n0,0,100\n1,1,100\n");
    let of_activity = part(0, Some(30), true, 0, activity(&asked, false));
    for (arrivals, popularity) in [
        (trace(&recorded, 10, 20, true), PopularitySpec::Uniform),
        (
            part(10, Some(20), true, 0, trace(&recorded, 0, 50, false)),
            PopularitySpec::Uniform,
        ),
        (counts, PopularitySpec::Uniform),
        (part(0, Some(60), true, 0, shape), PopularitySpec::Uniform),
        (of_activity, PopularitySpec::OfArrivals),
    ] {
        let spec = WorkloadSpec {
            tenants: 2,
            popularity,
            ..spec(arrivals)
        };
        let expected = requests(&spec);
        assert_eq!(expected.len(), 1000);
        let mut workload = build(&spec).unwrap();
        let mut again = Vec::new();
        let hidden = folder.path().with_extension("hidden");
        while let Some(entry) = workload.next().unwrap() {
            again.push(entry);
            if again.len() == 200 {
                std::fs::rename(folder.path(), &hidden).unwrap();
            }
        }
        std::fs::rename(&hidden, folder.path()).unwrap();
        let expected: Vec<Entry> = expected.into_iter().map(Entry::Request).collect();
        assert!(again == expected, "{:?}", spec.arrivals);
    }
}

/// One that is too long to be kept is read again, and has the same.
#[test]
fn a_round_that_is_too_long_to_be_kept_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.csv");
    let long: u64 = (1 << 18) + 3;
    let mut text = String::from("arrival_ns,tenant,input_tokens,output_tokens\n");
    (0..long).for_each(|at| text.push_str(&format!("{at},{},9,0\n", at % 7)));
    std::fs::write(&path, text).unwrap();
    let spec = WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        stop: Stop {
            requests: Some(2 * long),
            after: None,
        },
        ..spec(trace(&path, 0, 1, true))
    };
    let mut workload = build(&spec).unwrap();
    for round in 0..2 {
        for at in 0..long {
            let Some(Entry::Request(request)) = workload.next().unwrap() else {
                panic!("must have {long} requests, got {at}")
            };
            let expected = (Time(round * 1_000_000_000 + at), (at % 7) as u32);
            assert_eq!((request.arrival, request.tenant), expected);
        }
    }
}
