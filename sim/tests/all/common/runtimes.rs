//! Runtimes on a card whose costs are round numbers.

use tenantry_core::RunRecord;
use tenantry_core::log::Log;
use tenantry_core::policy::levels::Rule;
use tenantry_core::policy::scale::HeadroomSpec;
use tenantry_core::spec::{
    AllocateSpec, PeriodicSpec, RuntimeLengths, RuntimeSpec, RuntimesSpec, ScaleRule, ScaleSpec, ShapeKind, SolverSpec,
    StreamSpec, SystemSpec,
};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    Card, ConcurrentLayerRow, DType, DeviceKind, DispatchOperation, LoadSource, ModelShape, SolveRow, StaticModelRow,
    Stats,
};
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry};

use super::{cluster, request, run_watched, system};

pub const TENANTS: u32 = 4;
pub const MEMORY: u64 = 1 << 30;
/// Of runtimes of 128, 256 and 512 tokens, in milliseconds: Fig. 4's capacities of 80, 40 and 20 within 480 ms.
pub const SERVICE_MS: [(u32, u64); 3] = [(128, 6), (256, 12), (512, 24)];
pub const LOAD_MS: u64 = 10;
pub const SOLVE_MS: u64 = 2;
/// Two instances of a card slow each other down so much.
pub const BESIDE: f64 = 1.5;

pub fn exact_us(us: u64) -> Stats {
    Stats::exact(us as f64)
}

/// A card on which handing over costs nothing, so that sums can be done by hand.
pub fn card() -> Card {
    let mut card = synthetic_card();
    let model = || "tiny".to_string();
    let dtype = DType::F32;
    card.device.kind = DeviceKind::Cuda;
    card.contention.compute_beside_copy = 1.0;
    card.contention.copy_beside_compute = 1.0;
    for (tokens, ms) in SERVICE_MS {
        card.tables.static_model.push(StaticModelRow {
            model: model(),
            dtype,
            batch: 1,
            tokens,
            stats: exact_us(ms * 1000),
        });
        for (streams, factor) in [(1, 1.0), (2, BESIDE)] {
            card.tables.concurrent_layer.push(ConcurrentLayerRow {
                model: model(),
                dtype,
                streams,
                batch: 1,
                tokens,
                stats: Stats::exact(100.0 * factor),
            });
        }
    }
    for (gpus, runtimes) in [(1, 1), (1, 8), (16, 1), (16, 8)] {
        let stats = exact_us(SOLVE_MS * 1000);
        card.tables.solve.push(SolveRow { gpus, runtimes, stats });
    }
    for row in &mut card.tables.model_load {
        if row.source == LoadSource::Host {
            row.stats = exact_us(LOAD_MS * 1000);
        }
    }
    for row in &mut card.tables.dispatch {
        if row.operation != DispatchOperation::Tell {
            row.stats = Stats::exact(0.001);
        }
    }
    card
}

pub fn tell_ms(card: &Card) -> f64 {
    card.dispatch(DispatchOperation::Tell).unwrap().median_ns as f64 / 1e6
}

pub const PAPER: Rule = Rule::Demote {
    threshold: 0.85,
    decay: 0.9,
    peek: 6,
};

pub fn stream(name: &str, lengths: &[u32], shape: ShapeKind) -> StreamSpec {
    StreamSpec {
        name: name.into(),
        model: ModelShape::builtin("tiny").unwrap(),
        dtype: DType::F32,
        classes: 2,
        slo: Duration::from_millis(480),
        runtimes: lengths.iter().map(|&max_length| RuntimeSpec { max_length, shape }).collect(),
        lengths: RuntimeLengths::Given,
        service: Vec::new(),
    }
}

pub fn runtimes(dispatch: Rule, allocate: AllocateSpec) -> RuntimesSpec {
    RuntimesSpec {
        streams: vec![stream("all", &[128, 256, 512], ShapeKind::Static)],
        dispatch,
        allocate,
        scale: None,
    }
}

pub fn of(spec: &RuntimesSpec, instances_per_gpu: u32) -> SystemSpec {
    let mut system = system();
    system.pool.instances_per_gpu = instances_per_gpu;
    system.pool.runtimes = Some(spec.on(&card(), instances_per_gpu).unwrap());
    system
}

pub fn at(ticket: u64, ms: u64, tokens: u32) -> Entry {
    request(ticket, ms * 1000, 0, tokens)
}

pub fn logged(gpus: u32, system: &SystemSpec, entries: Vec<Entry>) -> (RunRecord, Log) {
    let mut log = Log::default();
    let done = run_watched(
        &card(),
        cluster(gpus, MEMORY),
        system,
        TENANTS,
        Jitter::None,
        entries,
        &mut log,
    );
    (done.record, log)
}

pub fn record(gpus: u32, system: &SystemSpec, entries: Vec<Entry>) -> RunRecord {
    logged(gpus, system, entries).0
}

pub fn fixed(counts: &[u32]) -> AllocateSpec {
    AllocateSpec::Fixed(counts.to_vec())
}

/// Within the microseconds that the loop takes.
pub fn assert_ms(got_ns: f64, expected_ms: f64) {
    assert!(
        (got_ns / 1e6 - expected_ms).abs() < 0.01,
        "{} ms, expected {expected_ms}",
        got_ns / 1e6
    );
}

pub fn periodic(period_ms: u64) -> AllocateSpec {
    AllocateSpec::Periodic(PeriodicSpec {
        period: Duration::from_millis(period_ms),
        first: Duration::from_millis(period_ms),
        at_once: 1,
        solver: SolverSpec::Dynamic,
    })
}

/// With 5 % to spare, looked at each second.
pub fn headroom(cards_at_start: u32, cards_max: u32) -> ScaleSpec {
    ScaleSpec {
        cards_at_start,
        start_up: Duration::from_millis(500),
        rule: ScaleRule::Headroom(HeadroomSpec {
            instances_per_card: 1,
            headroom_ppm: 50_000,
            interval: Duration::from_secs(1),
            patience: 2,
            cards_min: 1,
            cards_max,
        }),
    }
}
