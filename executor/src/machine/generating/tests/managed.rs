//! Tenants that change and go, and requests that are cancelled, while others generate.

use tenantry_core::op::{BatchShape, CopyIn, Fetch, Load};

use super::*;
use crate::ParameterSets;

#[test]
fn a_request_that_is_cancelled_in_mid_stream_leaves_the_others_alone() {
    // A slow machine may not have begun so soon, and a fast one may have answered before.
    let cut = [5, 2, 10, 20, 1, 40, 80].into_iter().any(cancelled_in_mid_stream);
    assert!(cut, "no request was cut in mid-stream");
}

/// Cancels the first three requests after some milliseconds, and says whether one had begun and had not ended.
fn cancelled_in_mid_stream(after_ms: u64) -> bool {
    let mut entries = requests();
    // Nobody waits for these: they come first, and would go on for long.
    let long = |ticket: u64| Request {
        output_tokens: 100,
        arrival: Time::ZERO,
        ..request(ticket)
    };
    let cancelled = [0, 1, 2];
    for ticket in cancelled {
        entries[ticket as usize] = Entry::Request(long(ticket));
    }
    let at = Time::ZERO + Duration::from_millis(after_ms);
    entries.extend(cancelled.map(|ticket| Entry::Cancel { at, ticket }));
    entries.sort_by_key(Entry::at);
    let served = serve(generation(), 1, 60, entries, |serving| serving);
    let mut cut = false;
    for (&ticket, finish) in &served.finished {
        let regret = served.generated.contains_key(&ticket).then(|| served.regret(ticket, finish.tenant));
        assert!(
            regret.is_none_or(|regret| regret < 1e-3),
            "ticket {ticket} is off by {regret:?}"
        );
        let made = served.generated.get(&ticket).map_or(0, Vec::len);
        assert_eq!(finish.output_tokens as usize, made, "ticket {ticket}");
        if cancelled.contains(&ticket) {
            let is_cancelled = finish.verdict == Verdict::Cancelled;
            assert!(is_cancelled && made < 100 || made == 100);
            cut |= is_cancelled && made > 0;
        } else {
            assert_eq!(finish.verdict, Verdict::Served);
        }
    }
    assert_eq!(served.finished.len() as u64, REQUESTS);
    cut
}

/// Whose tenant is deleted fails where it waits and ends where it runs; tenants that are updated go on with what they
/// began with.
#[test]
fn tenants_change_and_go_while_others_generate() {
    let at = Time::ZERO + Duration::from_millis(2);
    let manage = |tenant, action| {
        Entry::Manage(ManageRequest {
            at,
            change: Change::tenant(tenant, action),
        })
    };
    let mut entries = vec![
        manage(2, Action::Delete),
        manage(4, Action::Update),
        manage(2, Action::Update),
    ];
    entries.extend(requests());
    let served = serve(generation(), 1, 60, entries, |mut serving| {
        serving.make_versions(&AtomicBool::default()).unwrap();
        serving
    });
    let management = &served.record.management;
    assert_eq!((management.made["delete"], management.made["update"]), (1, 1));
    assert_eq!(management.refused.values().sum::<u64>(), 1);
    assert!(served.record.rejected[&RejectReason::Deleted] > 0);
    let counts = served.record.counts;
    assert_eq!(counts.served + counts.rejected + counts.failed, REQUESTS);
    for (&ticket, finish) in &served.finished {
        let touched = [2, 4].contains(&finish.tenant);
        assert!(
            finish.verdict == Verdict::Served || finish.tenant == 2,
            "ticket {ticket}: {finish:?}"
        );
        if !touched {
            let regret = served.regret(ticket, finish.tenant);
            assert!(regret < 1e-3, "ticket {ticket} is off by {regret}");
        }
    }
    let store = loras(&served.serving).unwrap();
    assert_eq!(store.sets.of(2).numel(), 0, "its memory is let go of");
}

/// A tenant whose file is broken is one error, and not a second one where it would be copied to.
#[test]
fn what_could_not_be_read_from_the_disk_is_not_copied() {
    let mut from_disk = generation();
    let lora = from_disk.lora.as_mut().expect("it has some");
    (lora.slots, lora.host_slots) = (3, Some(3));
    let broken = 2;
    serve(from_disk, 1, 100, requests(), |mut serving| {
        let sets = serving.store.sets().unwrap();
        let of = |tenant| match tenant == broken {
            true => Err(ExecutorError::input("its file", "whole", "half of it")),
            false => Ok(Tensor::zeros([sets.length() as i64], (sets.kind(), Device::Cpu))),
        };
        let blocks: Vec<_> = (0..TENANTS).map(of).collect();
        let in_files = ParameterSets::of_blocks(
            TENANTS,
            sets.length(),
            DType::F32,
            Device::Cpu,
            u64::MAX,
            blocks.into_iter(),
        );
        let disk = Disk::write(&in_files.unwrap(), 3, Device::Cpu, &AtomicBool::default()).unwrap();
        let whole = serving.disk.replace(Arc::new(disk));
        let server = Server::new(&cluster(&system(generation()), 1, 100), &system(generation()), TENANTS).unwrap();
        let lanes = serving.lanes(server.topology(), &Arc::default());
        let is_copy = |(lane, _): &(Lane, Box<dyn Perform>)| lane.kind == LaneKind::Copy;
        let (_, mut copies) = lanes.into_iter().find(is_copy).expect("a card has one");
        let batch = Batch {
            loads: vec![Load {
                tenant: broken,
                slot: 0,
            }],
            ..Batch::new(InstanceId(0), BatchShape::NOTHING, Vec::new())
        };
        let copy = CopyIn {
            layers: Layers::from(0, 2),
            chunks: 1,
            chunk_bytes: 0,
        };
        for op in [OpKind::Fetch(Fetch { bytes: 0, slot: 0 }), OpKind::CopyIn(copy)] {
            copies.perform(&op, &batch);
        }
        let errors = crate::machine::errors::noted("copy").unwrap();
        assert_eq!(errors.count, 1, "{errors:?}");
        assert_eq!(batch.failures.lock().unwrap().len(), 1);
        serving.disk = whole;
        serving
    });
}

/// What is created and updated stays on the disk until somebody needs it.
#[test]
fn tenants_change_and_go_where_adapters_come_from_the_disk() {
    let manage = |ms, tenant, action| {
        Entry::Manage(ManageRequest {
            at: Time::ZERO + Duration::from_millis(ms),
            change: Change::tenant(tenant, action),
        })
    };
    let updated = 4;
    let of = |ticket| request(ticket).tenant;
    let mut entries = requests();
    // Everybody's first request is over before all changes and the second comes after them, on a busy machine too.
    let later = |ticket: u64| ticket >= u64::from(TENANTS);
    for entry in &mut entries {
        let Entry::Request(request) = entry else { unreachable!() };
        if later(request.ticket) {
            request.arrival += Duration::from_millis(6_000);
        }
    }
    entries.extend([
        manage(3_500, updated, Action::Update),
        manage(3_501, 2, Action::Delete),
        manage(4_500, 2, Action::Create),
    ]);
    entries.sort_by_key(Entry::at);
    let mut from_disk = generation();
    let lora = from_disk.lora.as_mut().expect("it has some");
    (lora.slots, lora.host_slots) = (3, Some(3));
    let mut before = None;
    let served = serve(from_disk, 1, 100, entries, |mut serving| {
        let disk = serving.disk.as_ref().unwrap();
        disk.fetch(updated, 0).unwrap();
        before = Some(serving.store.sets().unwrap().of(updated));
        serving.make_versions(&AtomicBool::default()).unwrap();
        serving
    });
    let management = &served.record.management;
    let made = ["update", "delete", "create"].map(|change| management.made.get(change).copied());
    assert_eq!((made, served.record.counts.served), ([Some(1); 3], REQUESTS));
    for ticket in (0..REQUESTS).filter(|&ticket| later(ticket) || ![updated, 2].contains(&of(ticket))) {
        let regret = served.regret(ticket, of(ticket));
        assert!(regret < 1e-3, "ticket {ticket} is off by {regret}");
    }
    // The last fetch was the judge's.
    served.serving.disk.as_ref().unwrap().fetch(updated, 0).unwrap();
    let after = served.serving.store.sets().unwrap().of(updated);
    assert!(
        !before.unwrap().allclose(&after, 1e-5, 1e-8, false),
        "its adapters are others now"
    );
}
