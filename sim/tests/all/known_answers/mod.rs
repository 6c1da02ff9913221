//! Runs whose figures can be computed by hand, and queues whose theory is known.

mod idleness;
mod pipelines;
mod queues;

use crate::common::{ADAPTERS, cluster, memory_for, request, run_listed, system};
use tenantry_core::ClusterSpec;
use tenantry_core::spec::{BatchSpec, PipelineSpec, PlotSpec, TenantState};
use tenantry_core::testing;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    Card, Changing, Contention, CopyResumeRow, Cost, DeviceKind, Direction, DispatchOperation, HandOverRow,
    LookupOutcome, LookupResumeRow, ModelShape, OtherCores, ResumeRow, Stats, Tier, TokensOf,
};
use tenantry_sim::Jitter;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::{Duration, Entry};

fn median_ns(card: &Card, operation: DispatchOperation) -> u64 {
    card.dispatch(operation).unwrap().median_ns
}

/// What a forward pass of the tiny model takes on the synthetic card, and the copy of one tenant's adapters.
fn encode_and_copy_ns(card: &Card, requests: u32, tokens: u32, tenants: u32) -> (u64, u64) {
    let pool = system().pool;
    let layers = u64::from(pool.model.layers);
    let TenantState::Adapters {
        bottleneck,
        implementation,
    } = ADAPTERS
    else {
        unreachable!()
    };
    let adapter = card.adapter(&pool.model, pool.dtype, implementation, bottleneck).unwrap();
    let encode = card.embedding(&pool.model, pool.dtype).unwrap().cost(requests, tokens).median_ns
        + layers * card.encoder_layer(&pool.model, pool.dtype).unwrap().cost(requests, tokens).median_ns
        + layers * adapter.cost(tenants, requests, tokens).median_ns
        + card.head(&pool.model, pool.dtype, pool.classes).unwrap().cost(requests.into()).median_ns;
    let chunk_bytes = pool.model.adapter_parameters_per_layer(bottleneck) * pool.dtype.bytes();
    let copy = card.copy(Direction::HostToDevice, false).unwrap();
    (encode, copy.cost(layers * chunk_bytes).median_ns)
}

#[test]
fn one_request_takes_what_its_ops_take() {
    let card = synthetic_card();
    let mut system = system();
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 4, 4);
    let entries = vec![request(0, 100, 1, 32)];
    let record = run_listed(&card, cluster(1, memory), &system, 4, Jitter::None, entries).record;
    let (encode, copy) = encode_and_copy_ns(&card, 1, 32, 1);
    use DispatchOperation::{Alarm, Tell, Wake};
    let [alarm, wake, tell] = [Alarm, Wake, Tell].map(|operation| median_ns(&card, operation));
    // The loop wakes for the request; the copy is handed over and heard of, then the same for the forward pass.
    let parts = [alarm, wake, copy, tell, wake, encode, tell];
    assert_eq!(record.latency.mean_ns(), parts.iter().sum::<u64>() as f64);
    assert_eq!(record.stall.mean_ns(), (wake + copy + tell + wake) as f64);
    assert_eq!(record.compute.mean_ns(), encode as f64);
    assert_eq!(record.tell.mean_ns(), tell as f64);
    assert_eq!(record.queue.mean_ns(), alarm as f64);
    let swaps = record.swaps.expect("adapters are swapped");
    assert_eq!((swaps.hits, swaps.misses, swaps.evictions), (0, 1, 0));
}

#[test]
fn lanes_of_a_card_slow_each_other_down_by_the_measured_factors() {
    let run = |beside: f64| {
        let mut card = synthetic_card();
        card.contention.compute_beside_copy = beside;
        card.contention.copy_beside_compute = beside;
        let system = system();
        let memory = memory_for(&system, 400, 20);
        let entries = (0..400).map(|i| request(i, 0, i as u32, 128)).collect();
        run_listed(&card, cluster(1, memory), &system, 400, Jitter::None, entries).record
    };
    let (alone, beside) = (run(1.0), run(1.5));
    let busy = |record: &tenantry_core::RunRecord, name: &str| {
        record.lanes.iter().find(|lane| lane.name == name).expect("the lane").busy.0 as f64
    };
    // Nearly every copy runs beside a forward pass; forward passes are longer, so that only a part of each is slowed.
    let copies = busy(&beside, "gpu0/copy") / busy(&alone, "gpu0/copy");
    assert!((1.4..=1.5).contains(&copies), "{copies}");
    let compute = busy(&beside, "gpu0/compute0") / busy(&alone, "gpu0/compute0");
    assert!(compute > 1.02 && compute < 1.5, "{compute}");
}

/// Instances of encoders beyond a processor's cores take turns, as threads do: they finish no more than the cores
/// compute.
#[test]
fn instances_beyond_the_cores_take_turns() {
    let mut card = synthetic_card();
    card.tables.concurrent_layer.clear();
    let end = |card: &Card, instances_per_gpu: u32| {
        let mut system = system();
        system.pool.instances_per_gpu = instances_per_gpu;
        system.pool.tenant_state = TenantState::Head;
        system.pool.batch = BatchSpec::SizeOrTimeout {
            max_size: 1,
            max_wait: Duration::ZERO,
        };
        let entries = (0..64).map(|i| request(i, 100, 0, 32)).collect();
        let gpu = cluster(1, memory_for(&system, 4, 4));
        let record = run_listed(card, gpu, &system, 4, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 64);
        record.end.0 as f64
    };
    assert_eq!(card.device.host.cores, 4);
    let [alone, as_cores, fourfold] = [1, 4, 16].map(|instances| end(&card, instances));
    assert!((3.5..4.1).contains(&(alone / as_cores)), "{alone} {as_cores}");
    assert!(fourfold > 0.97 * as_cores, "{as_cores} {fourfold}");
    // A GPU's instances have kernels of their own.
    card.device.kind = DeviceKind::Cuda;
    let copies = card.tables.copy.clone();
    card.tables.copy.extend(copies.into_iter().map(|mut row| {
        row.pinned = true;
        row
    }));
    assert!(end(&card, 16) < 0.5 * end(&card, 4));
}
