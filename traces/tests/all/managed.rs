//! Changes of tenants and domains among the requests: who is there when a part of a recording begins, and when changes
//! stop.

use std::path::{Path, PathBuf};

use crate::common::workloads::{message, part, spec};
use tenantry_traces::management::{ManagementRates, ManagementSpec, ManagementTrace};
use tenantry_traces::read::Changes;
use tenantry_traces::spec::{ArrivalsSpec, CancellationsSpec, Cut, PopularitySpec, Stop, TraceSpec, WorkloadSpec};
use tenantry_traces::write::TraceFile;
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Time, build};

const SECOND: u64 = 1_000_000_000;

fn at(secs: u64, change: Change) -> ManageRequest {
    ManageRequest {
        at: Time(secs * SECOND),
        change,
    }
}

/// Writes them as a recording.
fn recording(path: &Path, changes: &[ManageRequest]) {
    let mut file = TraceFile::create_with_changes(path).unwrap();
    let entries = changes.iter().map(|&change| Entry::Manage(change)).collect();
    file.write_all(&mut Listed::new(entries)).unwrap();
    file.finish().unwrap();
}

fn replay(path: PathBuf, from_s: u64, length_s: Option<u64>) -> ManagementTrace {
    ManagementTrace {
        path,
        speed: 1.0,
        from: Duration::from_secs(from_s),
        length: length_s.map(Duration::from_secs),
    }
}

/// Whoever was created before is there, and whoever was deleted is not.
#[test]
fn a_part_of_a_recording_begins_with_those_who_were_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changes.csv");
    let tenant = Change::tenant;
    recording(
        &path,
        &[
            at(0, tenant(1, Action::Absent)),
            at(0, tenant(2, Action::Absent)),
            at(0, Change::domain(5, Action::Absent)),
            at(1, tenant(1, Action::Create)),
            at(2, tenant(3, Action::Delete)),
            at(3, tenant(4, Action::Delete)),
            at(4, tenant(4, Action::Create)),
            at(5, tenant(2, Action::Create)),
            at(7, tenant(3, Action::Create)),
            at(9, tenant(1, Action::Update)),
        ],
    );
    let changes = |from_s, length_s| -> Vec<ManageRequest> {
        let changes = Changes::open(&replay(path.clone(), from_s, length_s)).unwrap();
        changes.collect::<Result<_, _>>().unwrap()
    };
    let absent = [
        at(0, tenant(2, Action::Absent)),
        at(0, tenant(3, Action::Absent)),
        at(0, Change::domain(5, Action::Absent)),
    ];
    let behind = [
        at(0, tenant(2, Action::Create)),
        at(2, tenant(3, Action::Create)),
        at(4, tenant(1, Action::Update)),
    ];
    assert_eq!(changes(5, None), [&absent[..], &behind].concat());
    assert_eq!(changes(5, Some(4)), [&absent[..], &behind[..2]].concat());
    assert_eq!(changes(60, None), [at(0, Change::domain(5, Action::Absent))]);
}

/// Instants of the requests and of the changes, absences aside.
fn instants(spec: &WorkloadSpec) -> [Vec<u64>; 2] {
    let mut workload = build(spec).unwrap();
    let mut both = [Vec::new(), Vec::new()];
    while let Some(at) = workload.peek().unwrap() {
        match workload.next().unwrap().unwrap() {
            Entry::Request(_) => both[0].push(at.0),
            Entry::Manage(request) if request.change.action == Action::Absent => {}
            Entry::Manage(_) => both[1].push(at.0),
            Entry::Cancel { .. } => panic!("nobody gives up"),
        }
    }
    assert_eq!(workload.next().unwrap(), None);
    both
}

#[test]
fn changes_stop_where_the_workload_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changes.csv");
    let updates: Vec<ManageRequest> = (0..1000).map(|secs| at(secs, Change::tenant(7, Action::Update))).collect();
    recording(&path, &updates);
    let rates = ManagementRates {
        present_at_start: 0.5,
        create_per_s: 0.0,
        update_per_s: 5.0,
        delete_per_s: 0.0,
        update_domain_per_s: 0.0,
        domains: 0,
    };
    let after = |secs| Some(Time(secs * SECOND));
    for management in [
        ManagementSpec::Rates(rates),
        ManagementSpec::Listed(updates),
        ManagementSpec::Trace(replay(path, 0, None)),
    ] {
        let stopped = |requests, after| {
            instants(&WorkloadSpec {
                management: management.clone(),
                stop: Stop { requests, after },
                ..spec(ArrivalsSpec::Constant { rate_per_s: 2.0 })
            })
        };
        // The last of forty requests comes at 19.75 s, which is before the other stop.
        let [requests, changes] = stopped(Some(40), after(500));
        assert_eq!(requests.len(), 40, "{management:?}");
        let last = *changes.last().unwrap();
        assert!(last <= requests[39] && last > 15 * SECOND, "{management:?}: {last}");
        // Of as many requests as are never reached, the time is what stops both.
        for most in [None, Some(1_000_000)] {
            let [requests, changes] = stopped(most, after(30));
            let last = *changes.last().unwrap();
            assert_eq!(requests.len(), 60, "{management:?}");
            assert!((25 * SECOND..30 * SECOND).contains(&last), "{management:?}: {last}");
        }
    }
}

/// Where changes go on after the last request, it is known when somebody asks or gives up next, and that nobody does
/// any more.
#[test]
fn requests_are_looked_for_past_changes() {
    let updates = (0..40).map(|secs| at(secs, Change::tenant(7, Action::Update)));
    let spec = WorkloadSpec {
        management: ManagementSpec::Listed(updates.collect()),
        cancellations: Some(CancellationsSpec {
            share: 0.5,
            mean_after: Duration::from_secs(2),
        }),
        stop: Stop {
            requests: None,
            after: Some(Time(30 * SECOND)),
        },
        ..spec(ArrivalsSpec::ThreadBursts {
            threads: 20,
            stagger: Duration::from_millis(300),
            period: Duration::from_secs(10),
            repeats: 2,
        })
    };
    let mut workload = build(&spec).unwrap();
    let entries: Vec<Entry> = std::iter::from_fn(|| workload.next().unwrap()).collect();
    assert!(entries.iter().any(|entry| matches!(entry, Entry::Cancel { .. })));
    assert!(matches!(entries.last(), Some(Entry::Manage(_))));

    let mut workloads = [build(&spec).unwrap(), Box::new(Listed::new(entries.clone()))];
    for (index, entry) in entries.iter().enumerate() {
        let mut left = entries[index..].iter();
        let next = left.find(|entry| !matches!(entry, Entry::Manage(_))).map(Entry::at);
        for workload in &mut workloads {
            assert_eq!(workload.peek_request().unwrap(), next);
            assert_eq!(workload.next().unwrap().as_ref(), Some(entry));
        }
    }
}

/// A closed loop has no request while its clients wait for answers: changes go on until the last was asked.
#[test]
fn changes_of_a_closed_loop_go_on_until_all_is_asked() {
    let listed = (0..5).map(|secs| at(secs, Change::tenant(7, Action::Update))).collect();
    let spec = WorkloadSpec {
        management: ManagementSpec::Listed(listed),
        stop: Stop {
            requests: Some(2),
            after: None,
        },
        ..spec(ArrivalsSpec::ClosedLoop {
            clients: 1,
            think_time: Duration::ZERO,
        })
    };
    let mut workload = build(&spec).unwrap();
    let mut kinds = Vec::new();
    while let Some(entry) = workload.next().unwrap() {
        kinds.push(matches!(entry, Entry::Request(_)));
        // The answer to the first comes after two more changes.
        if kinds.len() == 4 {
            workload.finished(Time(2 * SECOND + 1), 0);
        }
    }
    assert_eq!(kinds, [false, true, false, false, true]);
}

#[test]
fn a_recording_that_repeats_is_refused_as_that_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec.csv");
    recording(&path, &[at(1, Change::tenant(7, Action::Update))]);
    let recorded = |repeat| {
        ArrivalsSpec::Trace(TraceSpec {
            path: path.clone(),
            speed: 1.0,
            skip_bad_lines: false,
            cut: Cut {
                from: Duration::ZERO,
                length: Some(Duration::from_secs(60)),
                repeat,
            },
        })
    };
    let managed = |arrivals| WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        management: ManagementSpec::Trace(replay(path.clone(), 0, None)),
        ..spec(arrivals)
    };
    for arrivals in [recorded(true), part(0, Some(60), true, 0, recorded(false))] {
        let refused = message(&managed(ArrivalsSpec::Superpose(vec![arrivals])));
        let must_be = "workload.management.trace.path: must be another file than that of arrivals which repeat";
        assert!(refused.starts_with(must_be), "{refused}");
    }
    assert!(build(&managed(part(0, Some(60), false, 0, recorded(false)))).is_ok());
}
