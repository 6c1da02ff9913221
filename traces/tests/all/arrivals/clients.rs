//! Clients that wait for answers, think and give up.

use super::*;

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
