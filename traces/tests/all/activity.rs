//! Tenants as active as in a recording: whose rows they are.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::workloads::{part, requests, spec};
use tenantry_traces::spec::{
    ActivitySpec, ArrivalsSpec, CountsSpec, Cut, Placement, PopularitySpec, Stop, WorkloadSpec,
};
use tenantry_traces::{Time, build};

fn activity(path: &Path) -> ArrivalsSpec {
    ArrivalsSpec::Activity(ActivitySpec {
        path: path.to_path_buf(),
        scale: 1.0,
        skip_bad_lines: false,
        repeat: false,
    })
}

fn popular(path: &Path, seed: u64, tenants: u32) -> WorkloadSpec {
    WorkloadSpec {
        seed,
        tenants,
        popularity: PopularitySpec::File(path.to_path_buf()),
        ..spec(ArrivalsSpec::Poisson { rate_per_s: 10.0 })
    }
}

/// A part of a larger recording keeps that one's numbers, of which those left out are nobody's.
#[test]
fn tenants_of_the_sparse_form_are_those_who_ask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.csv");
    let lines: String = (0..100)
        .map(|tenant| format!("{},{},{}\n", 1000 + 3 * tenant, tenant % 7, 1 + tenant % 2))
        .collect();
    std::fs::write(&path, format!("tenant,minute,invocations\n{lines}5,0,0\n")).unwrap();

    let own = WorkloadSpec {
        tenants: 100,
        popularity: PopularitySpec::OfArrivals,
        ..spec(activity(&path))
    };
    let mut asked = vec![0; 100];
    requests(&own).iter().for_each(|request| asked[request.tenant as usize] += 1);
    let must_be: Vec<u32> = (0..100).map(|tenant| 1 + tenant % 2).collect();
    assert_eq!(asked, must_be, "each its own row");

    for (tenants, at_least) in [(100, 100), (5, 5)] {
        let asked: BTreeSet<u32> = requests(&popular(&path, 3, tenants)).iter().map(|request| request.tenant).collect();
        assert!(asked.len() * 100 >= at_least * 99, "{} of {tenants}", asked.len());
    }
}

#[test]
fn rows_that_are_all_silent_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wide.csv");
    let silent = "a,b,c,http,0,0\n".repeat(30);
    let header = "HashOwner,HashApp,HashFunction,Trigger,1,2\n";
    std::fs::write(&path, format!("{header}{silent}a,b,d,http,0,2\n")).unwrap();
    let own = WorkloadSpec {
        tenants: 2,
        popularity: PopularitySpec::OfArrivals,
        ..spec(activity(&path))
    };
    for drawn in [popular(&path, 1, 2), own] {
        let error = build(&drawn).map(drop).unwrap_err().to_string();
        assert!(
            error.ends_with("wide.csv: must have requests of the tenants drawn from it, got none"),
            "{error}"
        );
    }
}

#[test]
fn a_minute_of_more_requests_than_memory_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.csv");
    for (lines, scale) in [("0,7,4294967295\n", 1.0), ("0,7,30\n1,7,30\n", 1e9)] {
        std::fs::write(&path, format!("tenant,minute,invocations\n{lines}")).unwrap();
        let huge = WorkloadSpec {
            tenants: lines.lines().count() as u32,
            popularity: PopularitySpec::OfArrivals,
            ..spec(ArrivalsSpec::Activity(ActivitySpec {
                path: path.clone(),
                scale,
                skip_bad_lines: false,
                repeat: false,
            }))
        };
        let error = build(&huge).map(drop).unwrap_err().to_string();
        let must_be = "huge.csv: must have at most 20000000 requests in a minute, times `scale`, got";
        assert!(error.contains(must_be) && error.ends_with("in minute 7"), "{error}");
    }
}

/// Rather than looked for, for ever.
#[test]
fn activity_that_hardly_ever_asks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seldom.csv");
    // A recording of one minute.
    std::fs::write(&path, "HashOwner,HashApp,HashFunction,Trigger,1\na,b,c,http,1\n").unwrap();
    let seldom = WorkloadSpec {
        tenants: 1,
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::Activity(ActivitySpec {
            path,
            scale: 1e-30,
            skip_bad_lines: false,
            repeat: true,
        }))
    };
    let error = build(&seldom).unwrap().next().unwrap_err().to_string();
    assert!(
        error.contains("must be more frequent than a request in 30000000 steps of their rate"),
        "{error}"
    );
}

/// A day of which one minute asks: the rounds reach the end of time before as many steps have gone by as are looked
/// through.
#[test]
fn activity_that_hardly_ever_asks_ends_with_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("day.csv");
    std::fs::write(&path, "tenant,minute,invocations\n0,1439,1\n").unwrap();
    let day = WorkloadSpec {
        tenants: 1,
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::Activity(ActivitySpec {
            path,
            scale: 1e-6,
            skip_bad_lines: false,
            repeat: true,
        }))
    };
    let asked = requests(&day);
    assert!(asked.len() < 5, "{} in 107 thousand days", asked.len());
    assert!(asked.iter().all(|request| request.arrival < Time::ARRIVALS_END));
}

/// Until then the others ask.
#[test]
fn what_hardly_ever_asks_is_looked_for_until_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let seldom = ArrivalsSpec::Activity(ActivitySpec {
        path: file("activity.csv", "tenant,minute,invocations\n0,0,1\n"),
        scale: 1e-30,
        skip_bad_lines: false,
        repeat: true,
    });
    let counts = ArrivalsSpec::Counts(CountsSpec {
        path: file("counts.csv", "requests\n1\n"),
        placement: Placement::Poisson,
        scale: 1e-30,
        drop_zeros_from: None,
        skip_bad_lines: false,
        cut: Cut {
            repeat: true,
            ..Cut::default()
        },
    });
    let later = part(30, None, false, 60, counts.clone());
    let often = || ArrivalsSpec::Constant { rate_per_s: 0.1 };
    for rare in [seldom, counts, later] {
        let both = WorkloadSpec {
            stop: Stop {
                requests: None,
                after: Some(Time(3_600_000_000_000)),
            },
            ..spec(ArrivalsSpec::Superpose(vec![often(), rare]))
        };
        assert_eq!(requests(&both).len(), 360);
    }
}
