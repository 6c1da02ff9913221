//! A cascade on both machines: the same answers are drawn, so that the same requests are returned by the same models.

use tch::Device;
use tenantry_cascade::Reroute;
use tenantry_core::RunRecord;
use tenantry_core::op::Layers;
use tenantry_core::policy::scale::TargetTrackingSpec;
use tenantry_core::spec::{
    AdmitSpec, AnswerJoin, BatchSpec, ClusterSpec, DispatchSpec, OrderSpec, PlaceSpec, PoolSpec, RouteSpec, ScaleRule,
    ScaleSpec, StageSpec, SystemSpec,
};
use tenantry_core::testing;
use tenantry_executor::machine::execute::{self, ExecuteError, execute};
use tenantry_executor::{Encoder, Heads};
use tenantry_profiles::DType;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::simulate;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::fit::cascade::SST_2;
use tenantry_traces::outcome::{AnswersSpec, DrawnSpec, GeneratedSpec, KnownAverage, OutcomesSpec, PrunedPoint};
use tenantry_traces::{Duration, Entry, Listed, Request, Time};

const SEED: u64 = 9;
const TENANTS: u32 = 3;

fn stage(name: &str, dispatch: Option<DispatchSpec>) -> StageSpec {
    StageSpec {
        pool: PoolSpec {
            batch: BatchSpec::SizeOrTimeout {
                max_size: 4,
                max_wait: Duration::ZERO,
            },
            ..testing::pool(name)
        },
        gpus: vec![0],
        layers: Layers::all(2),
        dispatch,
        scale: None,
        packing: None,
    }
}

fn cascade() -> SystemSpec {
    let dispatch = DispatchSpec {
        reroute: Reroute::new(0.95, 1e6).unwrap(),
        prune_alpha: Some(0.7),
    };
    let stages = vec![stage("small", Some(dispatch)), stage("large", None)];
    SystemSpec {
        name: "cascade".into(),
        admit: AdmitSpec::Open,
        pool: stages[0].pool.clone(),
        route: Some(RouteSpec {
            stages,
            order: OrderSpec::OneByOne,
            join: AnswerJoin::Average(vec![0.45, 0.55]),
            seed: SEED,
        }),
    }
}

fn answers() -> AnswersSpec {
    AnswersSpec::Drawn(DrawnSpec {
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
        averages: vec![KnownAverage {
            weights: vec![0.45, 0.55],
            gain: 0.0,
        }],
    })
}

fn entries() -> Vec<Entry> {
    every(Duration::from_micros(200))
}

fn every(gap: Duration) -> Vec<Entry> {
    let entry = |ticket: u64| {
        Entry::Request(Request {
            ticket,
            tenant: (ticket % u64::from(TENANTS)) as u32,
            arrival: Time(ticket * gap.0),
            input_tokens: 8 + (ticket % 9) as u32,
            output_tokens: 0,
            class: 0,
        })
    };
    (0..120).map(entry).collect()
}

fn cluster() -> ClusterSpec {
    cards(1)
}

fn cards(gpus: u32) -> ClusterSpec {
    ClusterSpec {
        copy_lanes: 1,
        ..testing::cluster(gpus, 1 << 30)
    }
}

fn executed(system: &SystemSpec, known: Option<&AnswersSpec>) -> Result<execute::Executed, ExecuteError> {
    executed_on(cluster(), system, known, entries())
}

fn executed_on(
    cluster: ClusterSpec,
    system: &SystemSpec,
    known: Option<&AnswersSpec>,
    entries: Vec<Entry>,
) -> Result<execute::Executed, ExecuteError> {
    let card = synthetic_card();
    let spec = execute::Run {
        seed: SEED,
        outcomes: known.map(|known| (known, SEED)),
        ..execute::Run::new(Device::Cpu, &card, cluster, system, TENANTS)
    };
    execute(&spec, &mut Listed::new(entries), Default::default(), ())
}

/// The same requests on the virtual machine.
fn simulated(system: &SystemSpec, known: &AnswersSpec) -> RunRecord {
    let card = synthetic_card();
    let spec = tenantry_sim::Run {
        answers: Some((known, SEED)),
        ..tenantry_sim::Run::new(&card, cluster(), system, TENANTS)
    };
    let simulated = simulate(&spec, &mut Listed::new(entries()), Default::default(), None);
    simulated.unwrap().record
}

#[test]
fn both_machines_return_the_same_requests_from_the_same_models() {
    let (system, known) = (cascade(), answers());
    let simulated = simulated(&system, &known);
    let executed = executed(&system, Some(&known)).unwrap();
    let (virtual_one, real) = (simulated.cascade.unwrap(), executed.record.cascade.unwrap());
    assert_eq!(real.returned, virtual_one.returned);
    assert_eq!((real.judged, real.right), (virtual_one.judged, virtual_one.right));
    assert!(
        real.returned.iter().all(|&requests| requests > 0),
        "{:?}",
        real.returned
    );
    let asked: Vec<u64> = real.stages.iter().map(|stage| stage.answered).collect();
    assert_eq!(asked, [120, real.returned[1]]);
    // A class for each pass, from the real heads.
    assert_eq!(executed.answers.len() as u64, asked.iter().sum::<u64>());
    assert!(real.stages.iter().all(|stage| stage.computed > Duration::ZERO));
}

#[test]
fn what_cannot_be_executed_is_refused() {
    let error = executed(&cascade(), None).unwrap_err();
    assert!(matches!(error, ExecuteError::Answers(_)), "{error}");
}

/// A model with an exit after the first of its two layers. `cut_off` says who leaves there.
fn early_exit(cut_off: f64) -> SystemSpec {
    let mut system = cascade();
    let route = system.route.as_mut().unwrap();
    route.join = AnswerJoin::Last;
    let [lower, upper] = &mut route.stages[..] else {
        unreachable!("there are two stages")
    };
    lower.layers = Layers { first: 0, count: 1 };
    lower.dispatch = Some(DispatchSpec {
        reroute: Reroute::new(cut_off, 1e6).unwrap(),
        prune_alpha: None,
    });
    upper.layers = Layers { first: 1, count: 1 };
    system.pool = lower.pool.clone();
    system
}

/// Whoever does not leave at an exit goes on with the very states that the layers below came to, whoever else is in the
/// batch: both machines return the same requests from the same layers, and the real one's answers are those of the
/// whole model.
#[test]
fn who_does_not_leave_at_an_exit_goes_on_in_the_layers_above() {
    let (system, known) = (early_exit(0.95), answers());
    let simulated = simulated(&system, &known);
    let executed = executed(&system, Some(&known)).unwrap();
    let real = executed.record.cascade.unwrap();
    assert_eq!(real.returned, simulated.cascade.unwrap().returned);
    assert!(
        real.returned.iter().all(|&requests| requests > 0),
        "{:?}",
        real.returned
    );
    assert_eq!((executed.record.counts.served, executed.errors.len()), (120, 0));

    // Computed again, each alone.
    let pool = &system.pool;
    let encoder = Encoder::random(&pool.model, SEED, DType::F32, Device::Cpu).unwrap();
    let heads = |stage| Heads::random(&pool.model, TENANTS, 2, SEED + stage, DType::F32, Device::Cpu).unwrap();
    let heads = [heads(0), heads(1)];
    let draws = Draws::new(SEED, Purpose::Tokens);
    let class = |request: &Request, stage: usize| {
        let mut drawn = draws.about(request.ticket);
        let ids: Vec<i64> =
            (0..request.input_tokens).map(|_| drawn.below(pool.model.vocabulary.into()) as i64).collect();
        let input = encoder.input(&[&ids[..]], ids.len()).unwrap();
        let hidden = encoder.layers(encoder.embed(&input).unwrap(), 0..stage + 1, &input, None).unwrap();
        let logits = heads[stage].forward(&hidden, &[request.tenant]).unwrap();
        logits.argmax(1, false).int64_value(&[0]) as u32
    };
    let mut went_on = 0;
    for entry in entries() {
        let Entry::Request(request) = entry else { continue };
        let mut expected = vec![class(&request, 0)];
        let found = executed.answers.iter().filter(|answer| answer.ticket == request.ticket);
        let mut found: Vec<u32> = found.map(|answer| answer.class).collect();
        if found.len() == 2 {
            went_on += 1;
            expected.push(class(&request, 1));
        }
        // Of one request they are in the order of their classes.
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{}", request.ticket);
    }
    assert_eq!(went_on, real.returned[1]);
}

/// A second card comes for each stage, onto which its model is really loaded: until then there is nothing on it, and
/// from then on every other request is answered there as on the first.
#[test]
fn a_card_that_comes_answers_as_the_first_does() {
    let gap = Duration::from_millis(25);
    let mut system = cascade();
    for stage in &mut system.route.as_mut().unwrap().stages {
        stage.gpus = vec![0, 1];
        stage.pool.place = PlaceSpec::RoundRobin;
        stage.scale = Some(ScaleSpec {
            cards_at_start: 1,
            start_up: Duration::from_millis(1),
            // No request is so fast, so that a card comes as soon as anybody asks.
            rule: ScaleRule::TargetTracking(TargetTrackingSpec {
                slo: Duration(1),
                percentile: 98,
                add_ppm: 950_000,
                release_ppm: 500_000,
                recent: Duration::from_secs(10),
                period: Duration::from_secs(60),
                settle: Duration::from_secs(60),
                cards_min: 1,
                cards_max: 2,
            }),
        });
    }
    let known = answers();
    let alone = executed_on(cluster(), &cascade(), Some(&known), every(gap)).unwrap();
    let scaled = executed_on(cards(2), &system, Some(&known), every(gap)).unwrap();
    let scaling = scaled.record.scaling.unwrap();
    assert_eq!((scaling.added, scaling.released), (2, 0), "{scaling:?}");
    assert_eq!(scaling.cards.last().unwrap().1, [2, 2]);
    let on_second = scaled.record.lanes.iter().filter(|lane| lane.name.starts_with("gpu1/compute"));
    assert!(on_second.clone().count() == 2 && on_second.clone().all(|lane| lane.busy > Duration::ZERO));
    assert_eq!(scaled.answers, alone.answers);
    assert!(alone.record.scaling.is_none());
}
