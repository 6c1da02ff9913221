//! Likewise for cascades whose cards come and go: models are loaded, requests are placed anew, and both machines hear
//! and want the same.

mod common;

use common::{Script, card, log_of};
use proptest::prelude::*;
use tenantry_cascade::Reroute;
use tenantry_core::answers::Answers;
use tenantry_core::op::{Layers, OpKind};
use tenantry_core::policy::scale::{HeadroomSpec, TargetTrackingSpec};
use tenantry_core::spec::{
    AdmitSpec, AnswerJoin, BatchSpec, DispatchSpec, OrderSpec, PoolSpec, RouteSpec, ScaleRule, ScaleSpec, StageSpec,
    SystemSpec,
};
use tenantry_core::testing;
use tenantry_core::{ClusterSpec, Server};
use tenantry_executor::machine::RealMachine;
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::fit::cascade::SST_2;
use tenantry_traces::outcome::{AnswersSpec, DrawnSpec, GeneratedSpec, OutcomesSpec, PrunedPoint};
use tenantry_traces::{Duration, Entry, Request, Time};

const TENANTS: u32 = 3;
const GPUS: u32 = 3;

fn stage(name: &str, dispatch: Option<DispatchSpec>, scale: Option<ScaleSpec>, max_size: u32) -> StageSpec {
    StageSpec {
        pool: PoolSpec {
            batch: BatchSpec::SizeOrTimeout {
                max_size,
                max_wait: Duration::from_millis(1),
            },
            ..testing::pool(name)
        },
        gpus: (0..GPUS).collect(),
        layers: Layers::all(2),
        dispatch,
        scale,
        packing: None,
    }
}

/// Rules that take cards and give them up within seconds, whatever the load.
fn scales() -> impl Strategy<Value = Option<ScaleSpec>> {
    let headroom = (1u64..200, 1u32..3).prop_map(|(interval_ms, patience)| {
        ScaleRule::Headroom(HeadroomSpec {
            instances_per_card: 1,
            headroom_ppm: 50_000,
            interval: Duration::from_millis(interval_ms),
            patience,
            cards_min: 1,
            cards_max: GPUS,
        })
    });
    let tracking = (500u64..8_000).prop_map(|slo_us| {
        ScaleRule::TargetTracking(TargetTrackingSpec {
            slo: Duration::from_micros(slo_us),
            percentile: 98,
            add_ppm: 950_000,
            release_ppm: 900_000,
            recent: Duration::from_secs(1),
            period: Duration::from_secs(1),
            settle: Duration::ZERO,
            cards_min: 1,
            cards_max: GPUS,
        })
    });
    let scale = (prop_oneof![headroom, tracking], 1..=GPUS, 0u64..1_500);
    proptest::option::weighted(
        0.8,
        scale.prop_map(|(rule, cards_at_start, start_up_ms)| ScaleSpec {
            cards_at_start,
            start_up: Duration::from_millis(start_up_ms),
            rule,
        }),
    )
}

fn systems() -> impl Strategy<Value = SystemSpec> {
    let systems = (scales(), scales(), 1u32..4, 0.5..1.0_f64);
    systems.prop_map(|(small, large, max_size, cut_off)| {
        let dispatch = DispatchSpec {
            reroute: Reroute::new(cut_off, 10.0).expect("it is within range"),
            prune_alpha: Some(0.7),
        };
        let stages = vec![
            stage("small", Some(dispatch), small, max_size),
            stage("large", None, large, max_size),
        ];
        SystemSpec {
            name: "cascade".into(),
            admit: AdmitSpec::Open,
            pool: stages[0].pool.clone(),
            route: Some(RouteSpec {
                stages,
                order: OrderSpec::OneByOne,
                join: AnswerJoin::Last,
                seed: 5,
            }),
        }
    })
}

/// Bursts and pauses over some seconds.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let gap_us = prop_oneof![9 => 0u64..2_000, 1 => 0u64..1_500_000];
    proptest::collection::vec((gap_us, 0..TENANTS, 1u32..64), 20..150).prop_map(|requests| {
        let mut at_us = 0;
        let request = |(ticket, (gap_us, tenant, input_tokens))| {
            at_us += gap_us;
            Entry::Request(Request {
                ticket: ticket as u64,
                tenant,
                arrival: Time(at_us * 1_000),
                input_tokens,
                output_tokens: 0,
                class: 0,
            })
        };
        requests.into_iter().enumerate().map(request).collect()
    })
}

fn answers(system: &SystemSpec) -> Option<Answers> {
    let spec = AnswersSpec::Drawn(DrawnSpec {
        outcomes: OutcomesSpec::Generated(GeneratedSpec {
            small: "small".into(),
            large: "large".into(),
            levels: SST_2,
            correlation: 0.0,
            others: Vec::new(),
        }),
        pruned: vec![PrunedPoint {
            degree: 0.7,
            words: 0.142,
            loss: Some(0.0),
        }],
        averages: Vec::new(),
    });
    Answers::of_system(system, Some((&spec, 9))).expect("the models are known")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_real_machine_on_a_script_loads_and_gives_up_cards_as_the_virtual_one_does(
        system in systems(), entries in entries(), seed in 0u64..1000
    ) {
        let card = card();
        let cluster = ClusterSpec { lookup_lanes: 0, ..testing::cluster(GPUS, 1 << 30) };
        let jitter = Jitter::Measured { seed };
        let server = || Server::new(&cluster, &system, TENANTS).expect("it fits");
        let prices = || Prices::of_system(&card, &system, jitter).expect("the card has all tables");

        let mut simulated = server();
        let mut machine = VirtualMachine::new(simulated.topology(), prices(), &card.contention, Default::default())
            .with_answers(answers(&system));
        let virtual_log = log_of(&mut simulated, &mut machine, entries.clone());

        let mut executed = server();
        let script = Script::new(executed.topology(), prices());
        let mut machine = RealMachine::new(executed.topology(), script).with_answers(answers(&system));
        let real_log = log_of(&mut executed, &mut machine, entries);

        let ended = virtual_log.events.last().expect("there were requests").0;
        let scaling = simulated.scaling(ended);
        prop_assert_eq!(&scaling, &executed.scaling(ended));
        let loads = |op: &tenantry_core::op::Op| matches!(op.kind, OpKind::LoadModel(_));
        let loaded = virtual_log.commands.iter().flat_map(|command| &command.ops).filter(|op| loads(op)).count() as u64;
        prop_assert!(loaded <= scaling.map_or(0, |scaling| scaling.added));
        prop_assert_eq!(virtual_log, real_log);
    }
}
