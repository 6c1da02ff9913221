//! What a system is, as plain data: the resolved form of a scenario's `systems:` entry. No YAML, no defaults, no units to parse.

use tenantry_profiles::{AdapterImplementation, DType, ModelShape};
use tenantry_traces::Duration;

/// The hardware under a system.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSpec {
    /// Number of cards, at least 1.
    pub gpus: u32,
    /// Memory that the server may fill on each card, in bytes: the card's memory less what the runtime keeps.
    pub gpu_memory_bytes: u64,
    /// Lanes that copy parameters in, at least 1: a GPU's copy engine each, or a CPU's spare cores, which several cards then share.
    pub copy_lanes: u32,
}

/// One serving system: a list of decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemSpec {
    /// As reports call it.
    pub name: String,
    /// Which requests are let in.
    pub admit: AdmitSpec,
    /// The instances that serve; requests go to the first until a route between pools is given.
    pub pool: PoolSpec,
}

/// The instances that serve one model.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    /// As lanes and reports call it.
    pub name: String,
    /// The backbone.
    pub model: ModelShape,
    /// Of weights and activations.
    pub dtype: DType,
    /// Classes of each tenant's head.
    pub classes: u32,
    /// What each tenant has of its own, and so what is swapped.
    pub tenant_state: TenantState,
    /// To what length the requests of a batch are padded.
    pub padding: Padding,
    /// Instances on each card, at least 1; they share its memory evenly.
    pub instances_per_gpu: u32,
    /// Which instance serves a request.
    pub place: PlaceSpec,
    /// What runs next on an instance.
    pub batch: BatchSpec,
    /// What leaves the card's memory for what must come in.
    pub swap: SwapSpec,
    /// How a batch becomes ops on lanes.
    pub pipeline: PipelineSpec,
}

/// What a tenant has of its own. Every tenant has a head beside it, always resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// A whole fine-tuned model.
    Model,
    /// Houlsby adapters of this bottleneck in every layer of a shared backbone (HMI, section 3.2.2).
    Adapters {
        /// Rows of the down-projection.
        bottleneck: u32,
        /// How a batch of several tenants is computed.
        implementation: AdapterImplementation,
    },
    /// Only the head: the backbone is a shared feature extractor.
    Head,
}

/// To what length the requests of a batch are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// To the longest of the batch.
    Longest,
    /// To a fixed number of tokens; longer requests are refused.
    To(u32),
}

/// Which requests are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitSpec {
    /// All.
    Open,
    /// Those that find fewer than this many waiting.
    BoundedQueue {
        /// Waiting requests at which the door closes.
        max_waiting: u32,
    },
}

/// Which instance serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// The one with the fewest requests waiting or running; the lowest id among equals.
    LeastLoaded,
    /// In turn.
    RoundRobin,
}

/// What runs next on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSpec {
    /// The tenant that has waited longest, with all its waiting requests up to a size.
    PerTenant {
        /// Largest batch.
        max_size: u32,
    },
    /// Exactly this many, however long that takes.
    FixedSize {
        /// The size.
        size: u32,
    },
    /// As soon as there are enough or the oldest has waited long enough.
    SizeOrTimeout {
        /// Largest batch.
        max_size: u32,
        /// Longest wait of the oldest; 0 starts whatever is there.
        max_wait: Duration,
    },
}

/// What leaves the card's memory for what must come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapSpec {
    /// The one not used for longest.
    LeastRecentlyUsed,
}

/// How a batch becomes ops on lanes (HMI, Fig. 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSpec {
    /// One batch at a time; it computes when all its parameters are there.
    Synchronous,
    /// The next batch's parameters come in while this one computes.
    Prefetch,
    /// As `Prefetch`, and each layer computes as soon as its own adapters are there.
    Layerwise,
}
