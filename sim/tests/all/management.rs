//! Tenants and domains come, change and go while others are served (HMI, section 4.1): what becomes of their requests,
//! and what it costs.

use std::ops::Range;

use crate::common::{ADAPTERS, changes, cluster, manage, memory_for, request, run_listed, system};
use proptest::prelude::*;
use tenantry_core::command::{FailureReason, Refusal, RejectReason};
use tenantry_core::ledger::RunRecord;
use tenantry_core::machine::LaneUse;
use tenantry_core::spec::{BatchSpec, PipelineSpec, PlotSpec, SystemSpec};
use tenantry_core::testing;
use tenantry_profiles::LoadSource;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::Jitter;
use tenantry_traces::{Action, Change, Duration, Entry, ManageRequest, Time};

const TENANTS: u32 = 4;

fn run(system: &SystemSpec, entries: Vec<Entry>) -> RunRecord {
    let memory = memory_for(system, TENANTS, 2);
    run_listed(
        &synthetic_card(),
        cluster(1, memory),
        system,
        TENANTS,
        Jitter::None,
        entries,
    )
    .record
}

/// One request after another, each served alone.
fn one_by_one() -> SystemSpec {
    let mut system = system();
    system.pool.batch = BatchSpec::SizeOrTimeout {
        max_size: 1,
        max_wait: Duration::ZERO,
    };
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    system
}

#[test]
fn requests_are_let_in_while_their_tenant_is_there() {
    let entries = vec![
        manage(0, 1, Action::Absent),
        request(0, 10, 1, 8),
        manage(20, 1, Action::Create),
        // Its parameters are still being read.
        request(1, 30, 1, 8),
        request(2, 400_000, 1, 8),
        manage(800_000, 1, Action::Delete),
        request(3, 800_001, 1, 8),
        request(4, 900_000, 0, 8),
    ];
    let record = run(&one_by_one(), entries);
    assert_eq!(record.counts.served, 2);
    assert_eq!(record.rejected[&RejectReason::NotCreated], 2);
    assert_eq!(record.rejected[&RejectReason::Deleted], 1);
    let management = &record.management;
    assert_eq!((management.offered, management.unfinished), (2, 0));
    assert_eq!((management.made["create"], management.made["delete"]), (1, 1));
}

/// Who waits when its tenant is deleted has waited in vain; who runs is served, and so are all others.
#[test]
fn a_tenant_deleted_in_flight() {
    let tenants = [0, 1, 0, 2, 0];
    let mut entries: Vec<Entry> = (0..).zip(tenants).map(|(ticket, tenant)| request(ticket, 0, tenant, 64)).collect();
    entries.push(manage(1, 0, Action::Delete));
    let record = run(&one_by_one(), entries);
    assert_eq!((record.counts.served, record.counts.failed), (3, 2));
    assert_eq!(record.failed[&FailureReason::Deleted], 2);
    assert_eq!(record.management.made["delete"], 1);
    // Its memory is let go of after its request has run, which is when the deletion is answered.
    assert!(record.management.latency.mean_ns() > record.compute.quantile_ns(0.0) as f64);
}

/// Requests go on with the old version until the new one has been read, and then it must come in anew.
#[test]
fn an_update_makes_the_next_batch_load_again() {
    let asked = |ticket, at_us| request(ticket, at_us, 0, 8);
    let quiet = vec![asked(0, 0), asked(1, 300_000), asked(2, 600_000)];
    let updated = quiet.iter().copied().chain([manage(400_000, 0, Action::Update)]).collect();
    let misses = |entries| run(&one_by_one(), entries).swaps.expect("adapters are swapped").misses;
    assert_eq!((misses(quiet), misses(updated)), (1, 2));
}

/// Reading a new version takes what the card says of reading as many bytes from disk, and hand-overs.
#[test]
fn a_new_version_costs_its_reading() {
    let card = synthetic_card();
    let mut system = one_by_one();
    let domain_bytes = 1 << 20;
    system.pool.plot = Some(PlotSpec {
        domain_bytes: Some(domain_bytes),
        ..testing::PLOT
    });
    let of_domain = ManageRequest {
        at: Time(100_000_000),
        change: Change::domain(3, Action::Update),
    };
    let entries = vec![request(0, 0, 0, 8), Entry::Manage(of_domain), request(1, 900_000, 0, 8)];
    let record = run(&system, entries);
    assert_eq!(record.management.made["update-domain"], 1);
    let reading_ns = card.model_load(LoadSource::Disk).unwrap().cost(domain_bytes).median_ns;
    let hand_overs_ns = record.management.latency.mean_ns() as u64 - reading_ns;
    assert!(hand_overs_ns < 100_000, "{hand_overs_ns}");
    assert_eq!(disk(&record).busy.0, reading_ns, "the host's disk reads it");
}

fn disk(record: &RunRecord) -> &LaneUse {
    record.lanes.iter().find(|lane| lane.name == "host/disk").unwrap()
}

/// However many cards there are, the host has one disk: what is new is read one after the other, and who copies or
/// computes meanwhile waits for none of it.
#[test]
fn cards_have_one_disk() {
    let run = |cards, updated: Range<u32>| {
        let system = one_by_one();
        let updates = updated.map(|tenant| manage(0, tenant, Action::Update));
        // One comes while all is being read, and one afterwards.
        let entries = updates.chain([request(0, 100, 0, 8), request(1, 20_000, 0, 8)]);
        let entries = entries.collect();
        let cluster = cluster(cards, memory_for(&system, TENANTS, 2));
        run_listed(&synthetic_card(), cluster, &system, TENANTS, Jitter::None, entries).record
    };
    let (one, four, quiet) = (run(1, 1..TENANTS), run(4, 1..TENANTS), run(4, 0..0));
    assert_eq!(disk(&one).busy, disk(&four).busy);
    for record in [&one, &four] {
        assert_eq!(record.management.made["update"], 3);
        // The last has waited for the two before it.
        let (last, read) = (record.management.latency.max_ns(), disk(record).busy.0);
        assert!(
            last > read && last < read + 100_000,
            "{last} ns, of which it read {read}"
        );
        assert_eq!(record.latency.mean_ns(), quiet.latency.mean_ns());
    }
    assert!(
        quiet.lanes.iter().all(|lane| lane.name != "host/disk"),
        "nothing is read"
    );
}

#[test]
fn what_cannot_be_asked_is_refused_with_a_reason() {
    let of_domain = ManageRequest {
        at: Time(5_000),
        change: Change::domain(0, Action::Update),
    };
    let entries = vec![
        manage(0, 1, Action::Absent),
        manage(1, 0, Action::Create),
        manage(2, 1, Action::Update),
        manage(3, 1, Action::Delete),
        manage(4, TENANTS, Action::Delete),
        // This pool looks nothing up, and so has no domains.
        Entry::Manage(of_domain),
        request(0, 6, 2, 64),
        manage(10, 2, Action::Delete),
        manage(11, 2, Action::Create),
    ];
    let record = run(&one_by_one(), entries);
    let management = &record.management;
    let refused = [Refusal::Exists, Refusal::Absent, Refusal::Unknown, Refusal::InUse]
        .map(|refusal| management.refused[&refusal]);
    assert_eq!(refused, [1, 2, 2, 1]);
    assert_eq!(
        (management.offered, management.made["delete"], record.counts.served),
        (7, 1, 1)
    );
}

/// What is asked when nobody is inside and nobody comes any more is done and counted, and makes no run longer.
#[test]
fn changes_after_the_last_request_are_in_no_other_figure() {
    let with = |changes: &[Entry]| {
        let requests = [request(0, 0, 0, 8), request(1, 300_000, 1, 8)];
        run(&one_by_one(), [&requests[..], changes].concat())
    };
    let (alone, managed) = (
        with(&[]),
        with(&[manage(900_000, 0, Action::Update), manage(5_000_000, 1, Action::Delete)]),
    );
    assert!((300_000_000..900_000_000).contains(&alone.end.0), "{}", alone.end);
    let figures = |record: &RunRecord| {
        let busy: u64 = record.lanes.iter().map(|lane| lane.busy.0).sum();
        (record.end, record.duration, record.in_flight_mean, busy)
    };
    assert_eq!(figures(&managed), figures(&alone));
    let made = &managed.management.made;
    assert_eq!((made["update"], made["delete"]), (1, 1));
    // Whoever comes after a change is waited for.
    assert!(with(&[manage(100_000, 1, Action::Update)]).end.0 > 300_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Every management request is answered once, and requests of tenants that nothing is done about fare as they
    /// would: they are served.
    #[test]
    fn every_request_is_answered(changes in changes(TENANTS - 2, 100_000), gaps in proptest::collection::vec(0u64..3_000, 1..60)) {
        let offered = changes
            .iter()
            .filter(|entry| matches!(entry, Entry::Manage(request) if request.change.action != Action::Absent))
            .count() as u64;
        let mut entries = changes;
        let mut at_us = 0;
        for (ticket, gap_us) in gaps.iter().enumerate() {
            at_us += gap_us;
            // The last tenant's alone are not touched by any change.
            entries.push(request(ticket as u64, at_us, TENANTS - 1, 8));
        }
        let mut system = system();
        system.pool.tenant_state = ADAPTERS;
        let record = run(&system, entries);
        let management = &record.management;
        let answered: u64 = management.made.values().chain(management.refused.values()).sum();
        prop_assert_eq!((answered, management.failed.len(), management.unfinished), (offered, 0, 0));
        prop_assert_eq!(record.counts.served, gaps.len() as u64);
    }
}
