//! Runtimes of several lengths: known answers, and laws that hold while instances are replaced, cards come and go and
//! clients give up.

use crate::common::runtimes::*;
use crate::common::{cluster, log_of, request, run_checked_on, run_listed, system};
use proptest::prelude::*;
use tenantry_core::log::{LoggedEvent, replay};
use tenantry_core::policy::fleet::Fallback;
use tenantry_core::policy::levels::Rule;
use tenantry_core::policy::scale::TargetTrackingSpec;
use tenantry_core::spec::{AllocateSpec, PeriodicSpec, RuntimesSpec, ScaleRule, ScaleSpec, ShapeKind, SolverSpec};
use tenantry_core::{Command, Server};
use tenantry_profiles::Family;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

#[test]
fn a_line_is_served_one_after_the_other_and_padded() {
    let system = of(&runtimes(Rule::LeastPadding, fixed(&[1, 0, 1])), 1);
    let entries = vec![at(0, 1, 10), at(1, 1, 20), at(2, 1, 128), at(3, 1, 129)];
    let record = record(2, &system, entries);
    // 6, 12 and 18 ms on the short runtime; 24 ms on the long one, since there is no middle one.
    let tell = tell_ms(&card());
    assert_ms(record.latency.mean_ns(), (6.0 + 12.0 + 18.0 + 24.0) / 4.0 + tell);
    assert_ms(record.latency.max_ns() as f64, 24.0 + tell);
    assert_eq!(
        (record.padded_tokens, record.input_tokens),
        (3 * 128 + 512, 10 + 20 + 128 + 129)
    );
    let fleet = record.fleet.unwrap();
    assert_eq!(fleet.card_time, Duration(2 * record.end.0));
    assert_eq!((fleet.decisions, fleet.replaced, fleet.allocations.len()), (0, 0, 1));
}

/// Section 3.2's policy of least padding: 157 requests have come to the two instances of 128, which finish 80 each in
/// time.
#[test]
fn figure_4_least_padding_makes_five_late() {
    let system = of(&runtimes(Rule::LeastPadding, fixed(&[2, 1, 1])), 1);
    let snapshot = [(157, 100), (28, 200), (6, 500)];
    let lengths = snapshot.iter().flat_map(|&(count, tokens)| std::iter::repeat_n(tokens, count));
    let lengths = lengths.chain(std::iter::repeat_n(100, 8));
    let mut entries: Vec<Entry> = (0..).zip(lengths).map(|(ticket, tokens)| at(ticket, 0, tokens)).collect();
    entries.extend((0..14).map(|late| at(199 + late, 3, 400)));
    let record = record(4, &system, entries);
    // The end of a request is heard a little later than it is; Fig. 4 counts work.
    let limit = Duration::from_millis(480) + Duration::from_millis(1);
    let late = record.latency.count() as f64 * (1.0 - record.latency.share_within(limit));
    assert_eq!(late.round(), 5.0);
}

#[test]
fn dynamic_shapes_are_not_padded() {
    let mut spec = runtimes(Rule::LeastPadding, fixed(&[1]));
    spec.streams = vec![stream("all", &[512], ShapeKind::Dynamic)];
    let system = of(&spec, 1);
    let record = record(1, &system, vec![at(0, 0, 100)]);
    assert_eq!(record.padded_tokens, 100);
    let spec = &spec.streams[0];
    let takes = spec.service_ns(&card(), &spec.runtimes[0], 100).unwrap();
    assert_eq!(record.compute.mean_ns(), takes as f64);
    // By the synthetic card's formulas, on two layers.
    let layers = f64::from(spec.model.layers);
    assert_eq!(takes as f64 / 1e3, layers * (20.0 + 10.0) + 5.0 + 1.0 + 10.5);
}

#[test]
fn two_instances_of_a_card_slow_each_other_down() {
    let mut spec = runtimes(Rule::LeastPadding, fixed(&[2]));
    spec.streams = vec![stream("all", &[128], ShapeKind::Static)];
    let system = of(&spec, 2);
    let one = record(1, &system, vec![at(0, 0, 100)]);
    assert_eq!(one.compute.mean_ns(), 6e6);
    let both = record(1, &system, vec![at(0, 0, 100), at(1, 0, 100)]);
    assert_ms(both.compute.mean_ns(), 6.0 * BESIDE);
    // The capacity within the SLO is that of an instance that shares its card.
    let capacities: Vec<u32> = system.pool.runtimes.unwrap().streams[0].capacities().collect();
    assert_eq!(capacities, [53]);
}

/// 200 short requests a second need 1.2 instances; the start is even.
#[test]
fn instances_are_replaced_a_few_at_a_time() {
    let system = of(&runtimes(PAPER, periodic(100)), 1);
    let entries = (0..64).map(|ticket| at(ticket, 5 * ticket, 100)).collect();
    let record = record(6, &system, entries);
    let fleet = record.fleet.clone().unwrap();
    // Asked at 100, 200 and 300 ms, and answered before the last request has left, which comes at 315 ms.
    assert_eq!((fleet.decisions, fleet.fallbacks.len(), fleet.late), (3, 0, 0));
    let (first, start) = (&fleet.allocations[1], &fleet.allocations[0]);
    assert_eq!(start, &(Time::ZERO, vec![2, 2, 2]));
    assert_eq!(first.1, [5, 0, 1]);
    assert_ms((first.0.0 - 100_000_000) as f64, SOLVE_MS as f64 + tell_ms(&card()));
    assert_eq!(fleet.replaced, 3);
    assert_eq!(record.counts.served, 64);
    let loads: u64 = record.lanes.iter().filter(|lane| lane.name.contains("copy")).map(|lane| lane.busy.0).sum();
    assert_eq!(loads, 3 * LOAD_MS * 1_000_000);
}

/// The line of an instance that leaves goes to the others, and to those in hand nothing happens.
#[test]
fn a_line_is_dispatched_anew_and_nobody_is_lost() {
    let mut spec = runtimes(Rule::LeastPadding, periodic(50));
    spec.streams = vec![stream("all", &[128, 512], ShapeKind::Static)];
    let system = of(&spec, 1);
    // Ten long requests in two lines, and then short ones, many more than one instance can serve.
    let mut entries: Vec<Entry> = (0..10).map(|ticket| at(ticket, 0, 500)).collect();
    entries.extend((0..100).map(|ticket| at(10 + ticket, 5 + ticket / 2, 100)));
    let record = record(4, &system, entries);
    let fleet = record.fleet.unwrap();
    // After 52 ms each long runtime has ended two of five, and has two in hand.
    assert_eq!(fleet.redispatched, 1, "{fleet:?}");
    assert!(fleet.allocations[1].1[1] < 2, "{fleet:?}");
    assert_eq!((record.counts.served, record.counts.unfinished), (110, 0));
}

/// Nobody is sent to an instance that leaves at the same time, to be sent on from there.
#[test]
fn instances_that_leave_at_once_take_nothing_from_each_other() {
    let AllocateSpec::Periodic(often) = periodic(100) else {
        unreachable!("it is planned each period")
    };
    let two = AllocateSpec::Periodic(PeriodicSpec {
        period: Duration::from_secs(10),
        at_once: 2,
        ..often
    });
    let mut spec = runtimes(Rule::LeastPadding, two);
    spec.streams = vec![stream("all", &[128, 512], ShapeKind::Static)];
    let system = of(&spec, 1);
    // Short ones for all but one of six instances, and long ones of just before the answer comes: two in hand of each
    // that is long, and one in line.
    let mut entries: Vec<Entry> = (0..200).map(|ticket| at(ticket, ticket / 2, 100)).collect();
    entries.extend((0..9).map(|ticket| at(200 + ticket, 101, 500)));
    let record = record(6, &system, entries);
    let fleet = record.fleet.unwrap();
    assert_eq!(
        fleet.allocations[..2],
        [(Time::ZERO, vec![3, 3]), (fleet.allocations[1].0, vec![5, 1])]
    );
    assert_eq!(fleet.redispatched, 2, "{fleet:?}");
    assert_eq!(record.counts.unfinished, 0);
}

#[test]
fn what_cannot_be_met_is_counted_as_a_fallback() {
    let system = of(&runtimes(PAPER, periodic(20)), 1);
    // 1000 long requests a second need 24 instances.
    let entries = (0..40).map(|ticket| at(ticket, ticket, 500)).collect();
    let fleet = record(3, &system, entries).fleet.unwrap();
    // Of the 20 ms up to the first two answers; those who come no more are none to be allocated for.
    let fallbacks: Vec<_> = fleet.fallbacks.iter().collect();
    assert_eq!(fallbacks, [(&Fallback::DemandBeyondCards, &2)], "{fleet:?}");
}

#[test]
fn a_slow_solver_is_not_asked_twice() {
    let mut slow = card();
    slow.tables.solve.iter_mut().for_each(|row| row.stats = exact_us(250_000));
    let system = of(&runtimes(PAPER, periodic(100)), 1);
    let entries = (0..100).map(|ticket| at(ticket, 5 * ticket, 100)).collect();
    let run = run_listed(&slow, cluster(3, MEMORY), &system, TENANTS, Jitter::None, entries);
    let fleet = run.record.fleet.unwrap();
    // Asked at 100 and at 400 ms, not at 200, 300 and 500 ms; what is asked last is answered when nobody is left, and
    // the run over.
    assert_eq!((fleet.decisions, fleet.late), (1, 3), "{fleet:?}");
}

#[test]
fn a_runtime_longer_than_what_was_measured_is_told_of() {
    let card = synthetic_card();
    let longest = card.tables.encoder_layer.iter().map(|row| row.tokens).max().unwrap();
    let farthest = |max_length, shape, tokens| {
        let mut spec = runtimes(Rule::LeastPadding, fixed(&[1]));
        spec.streams = vec![stream("all", &[max_length], shape)];
        let mut system = system();
        system.pool.runtimes = Some(spec.on(&card, 1).unwrap());
        let entries = vec![at(0, 1, tokens)];
        let simulated = run_listed(&card, cluster(1, MEMORY), &system, TENANTS, Jitter::None, entries);
        let mut told = simulated.extrapolated.into_iter();
        let layer = told.find(|(family, _)| *family == Family::EncoderLayer);
        layer.map(|(_, beyond)| (beyond.asked, beyond.measured))
    };
    let of = |tokens: u32| Some((u64::from(tokens), u64::from(longest)));
    assert_eq!(farthest(longest, ShapeKind::Static, 20), None);
    assert_eq!(farthest(longest + 80, ShapeKind::Static, 20), of(longest + 80));
    // What is not padded costs what it has.
    assert_eq!(farthest(longest + 80, ShapeKind::Dynamic, 20), None);
    assert_eq!(
        farthest(longest + 80, ShapeKind::Dynamic, longest + 70),
        of(longest + 70)
    );
}

/// What came before a minute without anybody is not what the next allocation is solved for: its period begins with who
/// comes then.
#[test]
fn an_allocation_after_an_idle_stretch_is_for_who_comes_then() {
    let mut spec = runtimes(PAPER, periodic(1_000));
    spec.streams = vec![stream("all", &[128, 256, 512], ShapeKind::Static)];
    let system = of(&spec, 1);
    // Short ones, of which the last period's are not asked for, and then long ones.
    let short = (0..190).map(|n| at(n, 10 * n, 100));
    let long = (0..300).map(|n| at(190 + n, 60_000 + 10 * n, 500));
    let fleet = record(3, &system, short.chain(long).collect()).fleet.unwrap();
    let times: Vec<f64> = fleet.allocations.iter().map(|(at, _)| at.as_secs_f64()).collect();
    let after: Vec<&(Time, Vec<u32>)> = fleet.allocations.iter().filter(|(at, _)| at.as_secs_f64() > 50.0).collect();
    assert!(!after.is_empty(), "{fleet:?}");
    // A period after the first of them, and by long ones alone: all instances are long.
    assert!(after[0].0.as_secs_f64() >= 61.0, "{times:?}");
    assert_eq!(after[0].1, [0, 0, 3], "{fleet:?}");
}

/// What falls due while nobody has come, or hardly anybody since the last time, is not decided by the first who comes:
/// it begins anew with them, as at the start.
#[test]
fn no_allocation_is_made_of_one_request_after_a_silence() {
    let each = |period_ms| match periodic(period_ms) {
        AllocateSpec::Periodic(spec) => AllocateSpec::Periodic(PeriodicSpec {
            first: Duration::from_millis(300),
            ..spec
        }),
        _ => unreachable!("it is planned each period"),
    };
    let mut spec = runtimes(PAPER, each(1_000));
    spec.streams = vec![stream("all", &[128, 256, 512], ShapeKind::Static)];
    let system = of(&spec, 1);
    // Half of them short and half long; the first is short, by which alone all would be.
    let from = |ticket: u64, ms: u64, count: u64| {
        (0..count).map(move |n| at(ticket + n, ms + 10 * n, if n % 2 == 0 { 100 } else { 500 }))
    };
    // After a silence that ends just before the first is due, of less than a period, and of more.
    for silence_ms in [299, 500, 1_200, 5_000] {
        let fleet = record(6, &system, from(0, silence_ms, 60).collect()).fleet.unwrap();
        assert_eq!(fleet.decisions, 1, "{fleet:?}");
        let first_change = &fleet.allocations[1];
        assert!(first_change.0 >= Time((silence_ms + 300) * 1_000_000), "{fleet:?}");
        let last = &fleet.allocations.last().unwrap().1;
        assert!(last[0] > 0 && last[2] > 1, "{fleet:?}");
    }
    // Decided at 300 ms and due at 1,300; the load has ended at 400, and comes back shortly before or after that, for
    // less than 300 ms or for more.
    for back_ms in [1_290, 1_350] {
        for (count, decisions) in [(25, 1), (60, 2)] {
            let entries = from(0, 0, 40).chain(from(40, back_ms, count)).collect();
            let fleet = record(6, &system, entries).fleet.unwrap();
            assert_eq!(fleet.decisions, decisions, "{back_ms}, {count}: {fleet:?}");
        }
    }
    // Where somebody comes all the time, nothing begins anew.
    let fleet = record(6, &system, from(0, 0, 140).collect()).fleet.unwrap();
    assert_eq!(fleet.decisions, 2, "{fleet:?}");
    // Nor where gaps between requests are short beside a period, though that is no longer than half of the time until
    // the first.
    spec.allocate = each(100);
    let fleet = record(6, &of(&spec, 1), from(0, 0, 140).collect()).fleet.unwrap();
    assert_eq!(fleet.decisions, 12, "each 100 ms from 300 to 1,400: {fleet:?}");
}

#[test]
fn streams_have_runtimes_of_their_own_and_share_the_cards() {
    let mut spec = runtimes(PAPER, periodic(100));
    spec.streams = vec![
        stream("short", &[128, 256], ShapeKind::Static),
        stream("long", &[512], ShapeKind::Static),
    ];
    let system = of(&spec, 1);
    let classed = |ticket: u64, ms: u64, tokens: u32, class: u16| match at(ticket, ms, tokens) {
        Entry::Request(request) => Entry::Request(tenantry_traces::Request { class, ..request }),
        other => other,
    };
    // Hardly any work for the first stream, much for the second: it starts with half of the cards and gets most of
    // them.
    let entries: Vec<Entry> = (0..200)
        .map(|n| classed(n, 2 * n, if n % 10 == 0 { 100 } else { 500 }, u16::from(n % 10 != 0)))
        .collect();
    let run = record(12, &system, entries);
    let fleet = run.fleet.unwrap();
    assert_eq!(fleet.allocations[0].1, [3, 3, 6]);
    assert!(fleet.allocations[1].1[2] >= 9, "{fleet:?}");
    assert_eq!(run.counts.served, 200);
    // The first stream has nothing so long.
    let refused = record(12, &system, vec![classed(0, 0, 500, 0)]);
    assert_eq!(refused.counts.rejected, 1);
}

/// Two streams of which the second has most to do get most cards, and a period in which nobody comes takes none from
/// it.
#[test]
fn a_period_in_which_nobody_comes_leaves_shares_as_they_are() {
    let mut spec = runtimes(PAPER, periodic(100));
    spec.streams = vec![
        stream("first", &[512], ShapeKind::Static),
        stream("second", &[512], ShapeKind::Static),
    ];
    let system = of(&spec, 1);
    // A burst of 1.5 s of work for the second, of which the last are served when nobody has come for a while.
    let entries: Vec<Entry> = (0..400)
        .map(|n| match at(n, n / 8, 500) {
            Entry::Request(request) => Entry::Request(tenantry_traces::Request {
                class: u16::from(n > 0),
                ..request
            }),
            other => other,
        })
        .collect();
    let fleet = record(8, &system, entries).fleet.unwrap();
    assert!(fleet.decisions > 5, "{fleet:?}");
    let shares: Vec<Vec<u32>> = fleet.allocations.into_iter().map(|(_, counts)| counts).collect();
    assert_eq!(shares, [[4, 4], [1, 7]]);
}

#[test]
fn a_card_must_be_known_and_hold_its_instances() {
    let mut unknown = system();
    unknown.pool.runtimes = Some(runtimes(PAPER, AllocateSpec::Even));
    assert!(Server::new(&cluster(1, MEMORY), &unknown, TENANTS).is_err());
    assert!(Server::new(&cluster(1, 1000), &of(&runtimes(PAPER, AllocateSpec::Even), 1), TENANTS).is_err());
    assert!(
        Server::new(
            &cluster(3, MEMORY),
            &of(&runtimes(PAPER, fixed(&[2, 1, 0])), 1),
            TENANTS
        )
        .is_err()
    );
    let mut longer = runtimes(PAPER, AllocateSpec::Even);
    longer.streams[0].runtimes[2].max_length = 1024;
    let error = longer.on(&card(), 1).unwrap_err().to_string();
    assert!(error.contains("of 1024 tokens or more, got 512 at most"), "{error}");
}

fn specs() -> impl Strategy<Value = (RuntimesSpec, u32, u32)> {
    let rule = prop_oneof![
        Just(PAPER),
        Just(Rule::LeastPadding),
        Just(Rule::LeastLoaded),
        Just(Rule::Pack { fill: 0.05 }),
    ];
    let allocate = prop_oneof![
        Just(AllocateSpec::Even),
        (5u64..60, 1u32..4, any::<bool>()).prop_map(|(period_ms, at_once, first)| {
            AllocateSpec::Periodic(PeriodicSpec {
                period: Duration::from_millis(period_ms),
                first: Duration::from_millis(if first { 1 } else { period_ms }),
                at_once,
                solver: SolverSpec::Dynamic,
            })
        }),
    ];
    let scale = prop_oneof![
        2 => Just(None),
        1 => Just(Some(headroom(2, 4))),
        1 => (1u32..4).prop_map(|cards_at_start| {
            Some(ScaleSpec {
                cards_at_start,
                start_up: Duration::from_millis(300),
                rule: ScaleRule::TargetTracking(TargetTrackingSpec {
                    slo: Duration::from_millis(100),
                    percentile: 98,
                    add_ppm: 950_000,
                    release_ppm: 500_000,
                    recent: Duration::from_secs(1),
                    period: Duration::from_secs(1),
                    settle: Duration::from_millis(500),
                    cards_min: 1,
                    cards_max: 4,
                }),
            })
        }),
    ];
    (rule, allocate, scale, 1u32..3, any::<bool>(), 1u32..5).prop_map(
        |(dispatch, allocate, scale, instances_per_gpu, two, gpus)| {
            let mut spec = runtimes(dispatch, allocate);
            spec.scale = scale;
            if two && scale.is_none() {
                spec.streams.push(stream("other", &[256], ShapeKind::Dynamic));
            }
            let gpus = if scale.is_some() {
                4
            } else {
                gpus.max(spec.streams.len() as u32)
            };
            (spec, instances_per_gpu, gpus)
        },
    )
}

/// Bursts of all lengths and both classes, too long ones among them, some given up before, during or after service.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        prop_oneof![3 => 0u64..4_000, 1 => 0u64..60_000, 1 => Just(0)],
        0..TENANTS + 1,
        prop_oneof![4 => 1u32..200, 1 => 1u32..540],
        0u16..3,
        proptest::option::weighted(0.2, 0u64..100_000),
    );
    proptest::collection::vec(one, 1..150).prop_map(|requests| {
        let mut at_us = 0;
        let mut entries = Vec::new();
        for (ticket, (gap_us, tenant, tokens, class, cancel_after_us)) in requests.into_iter().enumerate() {
            at_us += gap_us;
            if let Entry::Request(one) = request(ticket as u64, at_us, tenant, tokens) {
                entries.push(Entry::Request(tenantry_traces::Request { class, ..one }));
            }
            if let Some(after_us) = cancel_after_us {
                entries.push(Entry::Cancel {
                    at: Time((at_us + after_us) * 1_000),
                    ticket: ticket as u64,
                });
            }
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Nobody is lost, counted twice or left in the line of an instance that does not serve, after every event of a run
    /// with replacements, cards that come and go, and clients that give up.
    #[test]
    fn the_servers_laws_hold_after_every_event((spec, instances_per_gpu, gpus) in specs(), entries in entries()) {
        let system = of(&spec, instances_per_gpu);
        prop_assert!(run_checked_on(&card(), &cluster(gpus, MEMORY), &system, TENANTS, entries) > 0);
    }

    /// The ledger's laws hold, all requests are accounted for, and none is left where its longest runtime is always
    /// there.
    #[test]
    fn nothing_is_lost((spec, instances_per_gpu, gpus) in specs(), entries in entries()) {
        let offered = entries.iter().filter(|e| matches!(e, Entry::Request(_))).count() as u64;
        let (record, log) = logged(gpus, &of(&spec, instances_per_gpu), entries);
        let finished = log.commands.iter().filter(|logged| matches!(logged.command, Command::Finish(_)));
        let entries = log.events.iter().filter(|(_, event)| matches!(event, LoggedEvent::Arrived(_) | LoggedEvent::Cancelled(_)));
        let last = finished.map(|logged| logged.at).chain(entries.map(|(at, _)| *at)).max().unwrap_or_default();
        prop_assert_eq!(record.counts.offered, offered);
        prop_assert_eq!(record.counts.unfinished, 0);
        prop_assert_eq!(record.end, last, "loads and solvers make no run longer");
        let fleet = record.fleet.unwrap();
        let cards = fleet.card_time.as_secs_f64() / record.end.as_secs_f64().max(1e-9);
        prop_assert!(cards <= f64::from(gpus) + 1e-6, "{cards} of {gpus} cards");
    }

    /// The same seed gives the same log; a fresh server that is told the same events gives the same commands.
    #[test]
    fn runs_repeat_and_replay((spec, instances_per_gpu, gpus) in specs(), entries in entries()) {
        let system = of(&spec, instances_per_gpu);
        let card = card();
        let log = |seed| {
            log_of(&card, cluster(gpus, MEMORY), &system, TENANTS, Jitter::Measured { seed }, entries.clone())
        };
        let first = log(5);
        prop_assert_eq!(&first, &log(5));
        let mut fresh = Server::new(&cluster(gpus, MEMORY), &system, TENANTS).unwrap();
        prop_assert_eq!(replay(&mut fresh, &first.events), first.commands);
    }
}
