//! Tasks' queries of several service classes, in batches that are made as they come.

use crate::common::tasks::{BY_KIND, MEMORY, of, tasks};
use crate::common::{cluster, log_of, request, run_watched};
use tenantry_core::command::Command;
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::spec::{EngineSpec, PlanningSpec, StreamsSpec, SystemSpec};
use tenantry_core::{Commands, Observer};
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

/// Tickets in the order in which they run.
fn order(system: &SystemSpec, entries: Vec<Entry>) -> Vec<u64> {
    log_of(&synthetic_card(), cluster(1, MEMORY), system, 40, Jitter::None, entries)
        .commands
        .iter()
        .flat_map(|c| c.members.iter().map(|m| m.ticket))
        .collect()
}

#[test]
fn an_urgent_class_goes_first_where_batches_are_planned_online() {
    let mut system = tasks(40);
    let spec = of(&mut system);
    spec.max_batch = 1;
    spec.planning = PlanningSpec::Online {
        window: 64,
        targets: vec![Duration::from_millis(100), Duration::from_millis(1)],
    };
    let mut entries: Vec<Entry> = (0..20).map(|i| request(i, 100, i as u32, 32)).collect();
    for entry in entries.iter_mut().skip(15) {
        if let Entry::Request(request) = entry {
            request.class = 1;
        }
    }
    let order = order(&system, entries);
    assert_eq!(order[..6], [0, 15, 16, 17, 18, 19], "the first found the card idle");
}

/// Long queries that cannot be in time any more wait while short ones can be: a batch is as urgent as those of it that
/// are not lost.
#[test]
fn who_is_lost_goes_after_who_can_be_in_time() {
    let mut system = tasks(40);
    of(&mut system).planning = PlanningSpec::Online {
        window: 64,
        targets: vec![Duration::from_micros(1), Duration::from_millis(2)],
    };
    // The first finds the card idle.
    let mut entries = vec![request(0, 0, 0, 64)];
    for ticket in 1..=40 {
        let is_short = ticket > 32;
        let Entry::Request(mut query) = request(ticket, 50, (ticket % 40) as u32, if is_short { 4 } else { 64 }) else {
            unreachable!("it is a request")
        };
        query.class = u16::from(is_short);
        entries.push(Entry::Request(query));
    }
    let mut first = order(&system, entries)[1..9].to_vec();
    first.sort_unstable();
    assert_eq!(first, Vec::from_iter(33..=40));
}

/// Latencies by class of 160 bulk queries and, just after them, 8 interactive ones of the same lengths, which all wait
/// when the card is free for them; batches are of up to 16.
fn latencies_ms(targets_ms: [u64; 2]) -> [Vec<f64>; 2] {
    let mut system = tasks(40);
    let spec = of(&mut system);
    spec.planning = PlanningSpec::Online {
        window: 32,
        targets: targets_ms.map(Duration::from_millis).to_vec(),
    };
    // The first finds the card idle, and the others wait for it.
    let mut entries = vec![request(0, 0, 0, 64)];
    let (bulk, interactive) = (160, 8);
    for ticket in 1..=bulk + interactive {
        let Entry::Request(mut query) = request(ticket, 50, (ticket % 40) as u32, 10 + (ticket % 8) as u32 * 6) else {
            unreachable!("it is a request")
        };
        query.class = u16::from(ticket > bulk);
        entries.push(Entry::Request(query));
    }
    #[derive(Default)]
    struct Left([Vec<f64>; 2]);
    impl Observer for Left {
        fn command(&mut self, now: Time, command: &Command, _: &Commands) {
            if let Command::Finish(finish) = command {
                self.0[usize::from(finish.class)].push(now.since(finish.arrival).as_millis_f64());
            }
        }
    }
    let mut left = Left::default();
    let (card, jitter) = (synthetic_card(), Jitter::None);
    run_watched(&card, cluster(1, MEMORY), &system, 40, jitter, entries, &mut left);
    left.0
}

#[test]
fn batches_of_many_are_filled_only_as_far_as_the_urgent_are_in_time() {
    let greatest = |ms: &[f64]| ms.iter().copied().fold(0.0, f64::max);
    // All of them take more than 3 ms. As if they were in one class, interactive queries are in batches with bulk ones
    // of their lengths, first to last.
    let [_, interactive] = latencies_ms([3, 3]);
    assert_eq!(interactive.len(), 8);
    assert!(greatest(&interactive) > 3.0, "{interactive:?}");
    let [bulk, interactive] = latencies_ms([20, 3]);
    assert_eq!((bulk.len(), interactive.len()), (161, 8));
    assert!(greatest(&interactive) <= 3.0, "{interactive:?}");
    assert!(greatest(&bulk) <= 20.0);
    // Who is urgent does not compute alone: bulk queries fill its batches.
    assert!(
        bulk.iter().filter(|ms| **ms < greatest(&interactive)).count() > 8,
        "{bulk:?}"
    );
}

/// A fixed size and full models take queries as they came, whatever is urgent.
#[test]
fn baselines_take_queries_as_they_came() {
    let fixed = EngineSpec::Shared {
        batching: Batching::Fixed { size: 1 },
        streams: StreamsSpec::Fixed { count: 1 },
    };
    for engine in [fixed, EngineSpec::Sequential { models: BY_KIND }] {
        let mut system = tasks(20);
        let spec = of(&mut system);
        spec.engine = engine;
        spec.planning = PlanningSpec::Online {
            window: 64,
            targets: vec![Duration::from_millis(100), Duration::from_millis(1)],
        };
        let entries = (0..20).map(|i| request(i, 100 + i, i as u32, 32)).map(|entry| match entry {
            Entry::Request(mut query) => {
                query.class = u16::from(query.ticket >= 15);
                Entry::Request(query)
            }
            other => other,
        });
        assert!(order(&system, entries.collect()).is_sorted(), "{engine:?}");
    }
}
