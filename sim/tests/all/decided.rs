//! What decides a run: the tables that it reads, and no others.

use tenantry_core::SystemSpec;
use tenantry_profiles::Card;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{Run, simulate};
use tenantry_traces::{Listed, Time};

use crate::common::{cluster, decoders, memory_for, request, system, tasks};

const TENANTS: u32 = 4;

fn encoders() -> (SystemSpec, u64) {
    let system = system();
    let memory = memory_for(&system, TENANTS, 2);
    (system, memory)
}

fn generating() -> (SystemSpec, u64) {
    let system = decoders::system(decoders::generation());
    let memory = decoders::memory(&system, 400);
    (system, memory)
}

fn decided_by(run: &Run<'_>) -> Option<String> {
    run.decided_by(&Listed::new(Vec::new())).expect("the card has its tables")
}

fn decided(card: &Card, (system, memory): &(SystemSpec, u64), seed: u64) -> String {
    let run = Run {
        seed,
        ..Run::new(card, cluster(1, *memory), system, TENANTS)
    };
    decided_by(&run).expect("its server reads no card")
}

/// What came of a few requests.
fn record(card: &Card, (system, memory): &(SystemSpec, u64)) -> String {
    let entries = (0..8).map(|n| request(n, 100 * n, n as u32 % TENANTS, 16));
    let run = Run::new(card, cluster(1, *memory), system, TENANTS);
    let done = simulate(&run, &mut Listed::new(entries.collect()), Default::default(), None).expect("the run is sound");
    format!("{:?}", done.record)
}

fn changed(change: impl Fn(&mut Card)) -> Card {
    let mut card = synthetic_card();
    change(&mut card);
    card
}

#[test]
fn what_a_run_does_not_read_does_not_decide_it() {
    let card = synthetic_card();
    let other = changed(|card| {
        card.device.name = "another".into();
        card.tables.decoder_dense.clear();
        card.tables.decoder_prefill.clear();
        card.tables.pet.clear();
    });
    assert_eq!(decided(&other, &encoders(), 1), decided(&card, &encoders(), 1));
    assert_eq!(record(&other, &encoders()), record(&card, &encoders()));
}

#[test]
fn what_a_run_reads_decides_it() {
    let card = synthetic_card();
    let slower = |stats: &mut tenantry_profiles::Stats| stats.median_us *= 1.01;
    let layers = changed(|card| card.tables.encoder_layer.iter_mut().for_each(|row| slower(&mut row.stats)));
    let steps = changed(|card| card.tables.decoder_dense.iter_mut().for_each(|row| slower(&mut row.stats)));
    let copies = changed(|card| card.tables.copy.iter_mut().for_each(|row| slower(&mut row.stats)));
    let contention = changed(|card| card.contention.compute_beside_copy += 0.01);
    for (system, others) in [
        (encoders(), [&layers, &copies, &contention]),
        (generating(), [&steps, &copies, &contention]),
    ] {
        let as_is = decided(&card, &system, 1);
        for other in others {
            assert_ne!(decided(other, &system, 1), as_is);
            assert_ne!(record(other, &system), record(&card, &system));
        }
        assert_ne!(decided(&card, &system, 2), as_is);
        let later = Run {
            warm_up: Time(1),
            ..Run::new(&card, cluster(1, system.1), &system.0, TENANTS)
        };
        assert_ne!(decided_by(&later), Some(as_is));
    }
}

#[test]
fn a_server_that_reads_the_card_is_decided_by_all_of_it() {
    let card = synthetic_card();
    let system = tasks::tasks(2);
    let run = Run::new(&card, cluster(1, 1 << 30), &system, 2);
    assert_eq!(decided_by(&run), None);
}
