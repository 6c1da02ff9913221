//! Cascades of made-up models, on the virtual machine.

use tenantry_cascade::Reroute;
use tenantry_core::command::Finish;
use tenantry_core::log::Log;
use tenantry_core::op::Layers;
use tenantry_core::spec::{
    AnswerJoin, BatchSpec, DispatchSpec, OrderSpec, RouteSpec, StageSpec, SystemSpec, TenantState,
};
use tenantry_core::{Command, Observer, RunRecord};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, ModelShape};
use tenantry_sim::{Run, SimulateError, Simulated, simulate};
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::{Duration, Entry, Listed};

use super::{answers, cluster, request, system};

pub const TENANTS: u32 = 3;
pub const MEMORY: u64 = 4 << 30;

pub fn stage(model: &str, gpus: &[u32], dispatch: Option<(f64, f64, Option<f64>)>) -> StageSpec {
    let mut pool = system().pool;
    pool.name = model.into();
    pool.model = ModelShape::builtin(model).expect("it is built in");
    pool.tenant_state = TenantState::Head;
    StageSpec {
        layers: Layers::all(pool.model.layers),
        pool,
        gpus: gpus.to_vec(),
        dispatch: dispatch.map(|(cut_off, slope, prune_alpha)| DispatchSpec {
            reroute: Reroute::new(cut_off, slope).expect("it is within range"),
            prune_alpha,
        }),
        scale: None,
        packing: None,
    }
}

pub fn routed(order: OrderSpec, stages: Vec<StageSpec>) -> SystemSpec {
    let mut system = system();
    system.pool = stages[0].pool.clone();
    let weights = vec![1.0; stages.len()];
    system.route = Some(RouteSpec {
        join: match order {
            OrderSpec::OneByOne => AnswerJoin::Average(weights),
            OrderSpec::AtOnce => AnswerJoin::Vote(weights),
        },
        stages,
        order,
        seed: 5,
    });
    system
}

pub fn alone(mut stage: StageSpec) -> SystemSpec {
    stage.dispatch = None;
    routed(OrderSpec::OneByOne, vec![stage])
}

pub fn logged(system: &SystemSpec, gpus: u32, entries: Vec<Entry>) -> (RunRecord, Log) {
    logged_on(&synthetic_card(), system, gpus, entries)
}

pub fn logged_on(card: &Card, system: &SystemSpec, gpus: u32, entries: Vec<Entry>) -> (RunRecord, Log) {
    let mut log = Log::default();
    let done = judged_on(card, system, gpus, &answers(), entries, &mut log).expect("the run is sound");
    (done.record, log)
}

/// Where the system has a route, by these answers.
pub fn judged_on(
    card: &Card,
    system: &SystemSpec,
    gpus: u32,
    answers: &AnswersSpec,
    entries: Vec<Entry>,
    mut watch: impl Observer,
) -> Result<Simulated, SimulateError> {
    let spec = Run {
        answers: system.route.is_some().then_some((answers, 9)),
        ..Run::new(card, cluster(gpus, MEMORY), system, TENANTS)
    };
    simulate(&spec, &mut Listed::new(entries), Default::default(), Some(&mut watch))
}

pub fn finishes(log: &Log) -> Vec<Finish> {
    let finish = |command: &Command| match command {
        Command::Finish(finish) => Some(*finish),
        _ => None,
    };
    log.commands.iter().filter_map(|logged| finish(&logged.command)).collect()
}

/// The latency of a single request of 40 tokens.
pub fn latency(system: &SystemSpec, gpus: u32) -> Duration {
    Duration(logged(system, gpus, vec![request(0, 0, 0, 40)]).0.latency.max_ns())
}

/// Queries 100 ms apart.
pub fn apart(count: u64) -> Vec<Entry> {
    (0..count).map(|ticket| request(ticket, ticket * 100_000, 0, 40)).collect()
}

/// What the synthetic card takes to look at a pass.
pub const INSPECT: Duration = Duration(40_000);

pub const ALL: Option<(f64, f64, Option<f64>)> = Some((1.0, 1.0, None));
pub const NONE: Option<(f64, f64, Option<f64>)> = Some((0.0, 1e9, None));

/// One request at a time.
pub fn one_by_one(mut stage: StageSpec) -> StageSpec {
    stage.pool.batch = BatchSpec::SizeOrTimeout {
        max_size: 1,
        max_wait: Duration::ZERO,
    };
    stage
}
