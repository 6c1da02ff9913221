//! Plain systems for the tests of other crates: what a test asks for beside them, it says by struct update.
//!
//! ```
//! use tenantry_core::spec::{PlaceSpec, PoolSpec};
//! use tenantry_core::testing;
//!
//! let system = testing::system(PoolSpec {
//!     place: PlaceSpec::RoundRobin,
//!     ..testing::pool("pool")
//! });
//! assert!(tenantry_core::Server::new(&testing::cluster(2, 1 << 30), &system, 10).is_ok());
//! ```

use tenantry_profiles::{DType, ModelShape, Tier};
use tenantry_traces::Duration;

use crate::spec::{
    AdmitSpec, BatchSpec, ClusterSpec, HeadTask, Met, Padding, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec, SwapSpec,
    SystemSpec, TenantState,
};

/// Cards of so much memory, each with a lane that copies; one lane looks up for all of them.
pub fn cluster(gpus: u32, gpu_memory_bytes: u64) -> ClusterSpec {
    ClusterSpec {
        gpus,
        gpu_memory_bytes,
        shares_host_memory: false,
        copy_lanes: gpus,
        lookup_lanes: 1,
    }
}

/// A pool alone, which lets everybody in.
pub fn system(pool: PoolSpec) -> SystemSpec {
    SystemSpec {
        name: "test".into(),
        admit: AdmitSpec::Open,
        pool,
        route: None,
    }
}

/// `tiny` in single precision, once on each card, for tenants with a head of two classes each and nothing else of their
/// own: batches of up to 8, for which nobody waits, one op after the other.
pub fn pool(name: &str) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        model: ModelShape::builtin("tiny").expect("tiny is built in"),
        dtype: DType::F32,
        classes: 2,
        heads: HeadTask::Classification,
        plot: None,
        tenant_state: TenantState::Head,
        padding: Padding::Longest,
        instances_per_gpu: 1,
        place: PlaceSpec::LeastLoaded,
        batch: BatchSpec::SizeOrTimeout {
            max_size: 8,
            max_wait: Duration::ZERO,
        },
        swap: SwapSpec::LeastRecentlyUsed,
        pipeline: PipelineSpec::SYNCHRONOUS,
        generation: None,
        tasks: None,
        runtimes: None,
    }
}

/// Trigrams in place of one layer, in memory; each of eight domains' own tables answers for half of what is looked up.
pub const PLOT: PlotSpec = PlotSpec {
    lower_layers: 1,
    fragment_tokens: 3,
    threads: 1,
    tier: Tier::Memory,
    domain_hits_ppm: 500_000,
    fallbacks_ppm: 0,
    met: Met::AsBuilt,
    domains: 8,
    domain_bytes: None,
};
