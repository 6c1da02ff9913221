//! What a system is, as plain data: the resolved form of a scenario's `systems:` entry. No YAML, no defaults, no units
//! to parse.

mod family;
mod lengths;
mod route;
mod runtimes;

use tenantry_profiles::{AdapterImplementation, Changing, DType, ModelShape, Tier};
use tenantry_traces::Duration;

pub use crate::policy::fairness::Weights;

mod tasks;

pub use family::SystemFamily;
pub use lengths::LengthsFound;
pub use route::{AnswerJoin, DispatchSpec, OrderSpec, RouteSpec, StageSpec};
pub(crate) use runtimes::stream_of;
pub use runtimes::{
    AllocateSpec, CostPart, PeriodicSpec, RuntimeLengths, RuntimeRef, RuntimeSpec, RuntimesSpec, ScaleRule, ScaleSpec,
    ShapeKind, SolverSpec, StreamSpec,
};
pub use tasks::*;

/// The hardware under a system.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSpec {
    /// Number of cards, at least 1.
    pub gpus: u32,
    /// Memory that the server may fill on each card, in bytes: the card's memory less what the runtime keeps.
    pub gpu_memory_bytes: u64,
    /// Whether that is the host's memory as well, so that what the host keeps of tenants' parameters lies there too.
    pub shares_host_memory: bool,
    /// Lanes that copy parameters in, at least 1: a GPU's copy engine each, or a CPU's spare cores, which several cards
    /// then share.
    pub copy_lanes: u32,
    /// Lanes that look representations up; cards share them as they do copy lanes. With none, the copy lanes do it.
    pub lookup_lanes: u32,
}

impl ClusterSpec {
    /// Memory of a card at most, in bytes: of all cards together it is still a number of 64 bits.
    pub const CARD_BYTES_MAX: u64 = 1 << 47;

    /// Memory of a card for what it computes with, where the host keeps so many bytes for each of these tenants.
    pub fn beside_kept_bytes(&self, tenants: u32, tenant_bytes: u64) -> u64 {
        match self.shares_host_memory {
            true => {
                let kept_bytes = u64::from(tenants).saturating_mul(tenant_bytes);
                self.gpu_memory_bytes.saturating_sub(kept_bytes)
            }
            false => self.gpu_memory_bytes,
        }
    }
}

/// One serving system: a list of decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemSpec {
    /// As reports call it.
    pub name: String,
    /// Which requests are let in.
    pub admit: AdmitSpec,
    /// The instances that serve; with a route, those of its first stage.
    pub pool: PoolSpec,
    /// Which models a request is sent to, where that is not the pool's alone.
    pub route: Option<RouteSpec>,
}

impl SystemSpec {
    /// The pools, by [`PoolId`](crate::ids::PoolId).
    pub fn pools(&self) -> impl Iterator<Item = &PoolSpec> {
        let routed = self.route.iter().flat_map(|route| &route.stages);
        let alone = self.route.is_none().then_some(&self.pool);
        alone.into_iter().chain(routed.map(|stage| &stage.pool))
    }
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
    /// What they say of a request.
    pub heads: HeadTask,
    /// What replaces the backbone's lower layers, if anything.
    pub plot: Option<PlotSpec>,
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
    /// How a decoder's requests run from step to step; nothing for encoders. Batches and padding are encoders' alone,
    /// and of the pipeline decoders have [`PipelineSpec::prefetch_retrieval`].
    pub generation: Option<GenerationSpec>,
    /// Parameter-efficient tasks over shared models, in place of `tenant_state`; nothing where there are none.
    pub tasks: Option<TasksSpec>,
    /// Runtimes of several lengths, each request alone on an instance of one of them; nothing where an instance serves
    /// any length. Tenants' state, batches, padding, placement and pipeline are not theirs.
    pub runtimes: Option<RuntimesSpec>,
}

/// How requests to a decoder run (Punica, section 5; continuous batching after Orca).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationSpec {
    /// Low-rank adapters of each tenant; nothing where all share the backbone, or have what `tenant_state` says.
    pub lora: Option<LoraSpec>,
    /// Tenants for whose own models or Houlsby adapters, as `tenant_state` says, an instance has room; unused where
    /// they have neither.
    pub slots: u32,
    /// Who may run together.
    pub join: JoinSpec,
    /// Requests that an instance runs at once, at most.
    pub max_batch: u32,
    /// How prompts get into the cache.
    pub prefill: PrefillSpec,
    /// Tokens of a page of the key-value cache.
    pub page_tokens: u32,
    /// Whether an evicted request that returns to its instance finds what has not been overwritten of its pages (vLLM).
    pub prefix_caching: bool,
    /// Cards that share each instance's layers.
    pub tensor_parallel: u32,
    /// Whether, and how, nearly empty instances are emptied.
    pub consolidate: Option<ConsolidateSpec>,
    /// Whether, and how, cards come and go; not where some only take prompts in.
    pub scale: Option<LightLoadSpec>,
    /// What ends a sequence.
    pub stop: StopSpec,
    /// Who is next of those that wait for an instance.
    pub queue: QueueSpec,
    /// Tokens that the prompts of a tenant begin with in common, cached once on an instance; 0 where each is cached
    /// alone.
    pub shared_prefix_tokens: u32,
    /// Cards that only take prompts in, apart from those that only make the tokens after the first; nothing where each
    /// does both.
    pub disaggregated: Option<DisaggregatedSpec>,
}

impl Default for GenerationSpec {
    /// One backbone for all, 32 requests at a time.
    fn default() -> GenerationSpec {
        GenerationSpec {
            lora: None,
            slots: 0,
            join: JoinSpec::AnyTenant,
            max_batch: 32,
            prefill: PrefillSpec::OnePerStep,
            page_tokens: 16,
            prefix_caching: false,
            tensor_parallel: 1,
            consolidate: None,
            scale: None,
            stop: StopSpec::Length,
            queue: QueueSpec::Arrival,
            shared_prefix_tokens: 0,
            disaggregated: None,
        }
    }
}

impl GenerationSpec {
    /// Tenants whose low-rank adapters host memory has room for, where the others' lie on the disk.
    pub fn host_slots(&self) -> Option<u32> {
        self.lora.and_then(|lora| lora.host_slots)
    }

    /// Of the instances, the first so many only take prompts in.
    pub fn prefill_instances(&self) -> u32 {
        self.disaggregated.map_or(0, |disaggregated| disaggregated.prefill_gpus / self.tensor_parallel)
    }
}

/// Prompts are taken in on some cards, and what they leave in the key-value cache is copied to others, which go on from
/// there (DistServe, Zhong et al., OSDI 2024; Splitwise, Patel et al., ISCA 2024).
///
/// Only where anyone may run with anyone ([`JoinSpec::AnyTenant`]) and nothing is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisaggregatedSpec {
    /// The first so many cards take prompts in; fewer than there are, and a multiple of
    /// [`GenerationSpec::tensor_parallel`].
    pub prefill_gpus: u32,
    /// What carries pages from card to card; nothing where that costs what was measured between two such cards or,
    /// where nothing was, what copies on the card cost.
    pub link: Option<LinkSpec>,
}

/// A link between two cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// In one direction.
    pub bytes_per_s: u64,
    /// Of a transfer, before its first byte.
    pub latency: Duration,
}

/// Who is next of those that wait for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSpec {
    /// Who came first.
    Arrival,
    /// The oldest request of the tenant that was served the fewest tokens.
    VirtualTokenCounter(Weights),
}

/// What ends a sequence. Where it ends is hidden from policies either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSpec {
    /// The workload's length.
    Length,
    /// A token, or the workload's length where it does not come before.
    EndOfSequence {
        /// Its id, for a machine that computes tokens.
        token: u32,
        /// How likely each token is to be it, in parts of a million: for a machine that does not.
        chance_ppm: u32,
    },
}

/// Tenants' low-rank adapters, on all dense projections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraSpec {
    /// Of the products.
    pub rank: u32,
    /// How a step of several tenants is computed.
    pub implementation: AdapterImplementation,
    /// Tenants whose adapters an instance has room for.
    pub slots: u32,
    /// Tenants whose adapters host memory has room for, the others' lying on the disk; nothing where it holds all.
    pub host_slots: Option<u32>,
}

/// Who may run together on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinSpec {
    /// Anyone, whenever there is room (Punica).
    AnyTenant,
    /// Those of the running tenant, as long as they are first in the queue (Punica's reading of vLLM).
    HeadRun,
    /// Likewise, and only while nothing runs; all wait for the longest (its reading of FasterTransformer and its kind).
    HeadRunStatic,
    /// Those of the running tenant, from a queue of its own: the better baseline that the paper does not have.
    QueuePerTenant,
}

/// How prompts get into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefillSpec {
    /// One whole prompt in a step, beside the others' new tokens (Punica, section 5).
    OnePerStep,
    /// As much of prompts as fits into a step of so many tokens (Sarathi).
    Chunked {
        /// Tokens of a step, new ones included.
        max_tokens: u32,
    },
}

/// Instances with little to do give it to others, so that their cards can be returned (Punica, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsolidateSpec {
    /// How often it is looked at.
    pub every: Duration,
    /// Requests up to which an instance is lightly loaded.
    pub light: u32,
}

/// Cards are asked for while none is lightly loaded, and given back while they have no load (Punica, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LightLoadSpec {
    /// Requests up to which an instance is lightly loaded: [`ConsolidateSpec::light`], where instances are emptied.
    pub light: u32,
    /// Cards at the start, whole instances of them and at least one.
    pub cards_at_start: u32,
    /// Never fewer cards serve; no more than at the start.
    pub cards_min: u32,
    /// From the decision to ask for a card until it begins to load the model.
    pub start_up: Duration,
    /// How long a card has had no load before it is given back.
    pub patience: Duration,
}

impl PoolSpec {
    /// Layers that are computed: all but those that a table replaces.
    pub fn computed_layers(&self) -> u32 {
        self.model.layers - self.first_layer()
    }

    /// Whose parameters a batch is computed with that the one before was not.
    pub fn changing(&self) -> Changing {
        match (&self.tasks, self.tenant_state) {
            (Some(tasks), _) => match tasks.engine {
                EngineSpec::Shared { .. } => Changing::Tasks,
                EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => Changing::Model,
            },
            (None, TenantState::Model) => Changing::Model,
            (None, TenantState::Adapters { .. }) => Changing::Adapters,
            (None, TenantState::Head) => match &self.runtimes {
                Some(runtimes) if runtimes.are_static() => Changing::Compiled,
                _ => Changing::Heads,
            },
        }
    }

    /// The first layer that is computed.
    pub fn first_layer(&self) -> u32 {
        self.plot.map_or(0, |plot| plot.lower_layers)
    }

    /// Parameters of the model that are computed with: all or, above a table, those of the upper layers and, of a
    /// decoder, what comes after them. What is looked up stands for the embedding too.
    pub fn computed_parameters(&self) -> u64 {
        let layers = u64::from(self.computed_layers()) * self.model.layer_parameters();
        match (self.plot, &self.generation) {
            (None, _) => self.model.parameters(),
            (Some(_), Some(_)) => layers + self.model.output_parameters(),
            (Some(_), None) => layers,
        }
    }

    /// What the model that its tenants share takes on a card; nothing where each of them has one of its own.
    pub fn shared_model_bytes(&self) -> u64 {
        match self.tenant_state {
            TenantState::Model => 0,
            TenantState::Adapters { .. } | TenantState::Head => self.computed_parameters() * self.dtype.bytes(),
        }
    }

    /// What of the members' tokens a decoder's steps look up themselves.
    pub fn lookups_in_steps(&self) -> LookupsInSteps {
        match self.plot {
            None => LookupsInSteps::None,
            Some(_) if self.pipeline.prefetch_retrieval => LookupsInSteps::NewTokens,
            Some(_) => LookupsInSteps::All,
        }
    }
}

/// What tenants' heads make of the last hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadTask {
    /// One class of a text, from its first token.
    #[default]
    Classification,
    /// A label of every token, as named-entity recognition needs (HMI, Table 1).
    Tagging,
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

/// What a decoder's steps look up in a table for themselves, on the lane that computes: the fragment of a token that
/// has just been made is not known before (HMI, section 7.6), so that nothing of its own batch can hide its look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupsInSteps {
    /// There is no table.
    None,
    /// The tokens that they make; prompts were looked up before they joined.
    NewTokens,
    /// Prompts too.
    All,
}

/// A precomputed table of what the lower layers make of short fragments (HMI, section 3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlotSpec {
    /// Layers that it replaces, fewer than the model has; the embedding goes with them.
    pub lower_layers: u32,
    /// Tokens of a fragment.
    pub fragment_tokens: u32,
    /// Threads that share the look-ups of a batch.
    pub threads: u32,
    /// Where the root table lies.
    pub tier: Tier,
    /// Parts of a million of a domain's occurrences of fragments that its own table, in memory, is built to answer for
    /// (HMI, section 5.1: the α of its most frequent fragments).
    pub domain_hits_ppm: u32,
    /// Parts of a million of all occurrences that the root's table leaves out, so that shorter fragments answer for
    /// them.
    pub fallbacks_ppm: u32,
    /// What requests' look-ups meet in such tables.
    pub met: Met,
    /// Domains with tables of their own: as many as the workload has.
    pub domains: u32,
    /// Size of a domain's own table: what creating and updating it reads. None where it is to be counted with what
    /// look-ups meet.
    pub domain_bytes: Option<u64>,
}

/// What look-ups meet in a pool's tables (HMI, Eq. 3). What they answer, the real machine finds in its tables; the
/// virtual one has no texts, and prices and counts by these shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// As often as the tables were built for: requests' texts are like the corpus.
    AsBuilt,
    /// What the texts that the real machine serves meet, which is to be counted before a run; [as built](Met::AsBuilt)
    /// until then.
    Counted,
    /// These shares.
    Shares {
        /// Parts of a million that a domain's own table answers.
        domain_hits_ppm: u32,
        /// Parts of a million that no table of whole fragments answers.
        fallbacks_ppm: u32,
    },
}

impl PlotSpec {
    /// Bytes of a token's sum on its way to the card, `hidden` wide: in single precision, whatever the model's format,
    /// which it is given there.
    pub fn row_bytes(hidden: u32) -> u64 {
        4 * u64::from(hidden)
    }

    /// Parts of a million of the look-ups that domains' own tables answer, and those that only shorter fragments do.
    pub fn met_ppm(&self) -> (u32, u32) {
        match self.met {
            Met::AsBuilt | Met::Counted => (self.domain_hits_ppm, self.fallbacks_ppm),
            Met::Shares {
                domain_hits_ppm,
                fallbacks_ppm,
            } => (domain_hits_ppm, fallbacks_ppm),
        }
    }

    /// Fragments of a text of so many tokens: the windows that fit into it, and itself where it is shorter than one.
    pub fn fragments(&self, tokens: u32) -> u32 {
        (tokens + 1).saturating_sub(self.fragment_tokens).max(1)
    }
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
    /// Of each tenant one a period, and after a silence some at once.
    RateLimit {
        /// Between two requests of a tenant that asks all the time.
        period: Duration,
        /// Requests that a tenant may make at once, at least 1.
        burst: u32,
    },
}

/// Which instance serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceSpec {
    /// The one with the fewest requests waiting or running; the lowest id among equals.
    LeastLoaded,
    /// In turn.
    RoundRobin,
    /// The one that runs most and has room; the highest id among equals (Punica, section 5.1).
    LargestWorkingSet,
}

/// What runs next on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSpec {
    /// The tenant that has waited longest, with all its waiting requests up to a size.
    PerTenant {
        /// Largest batch.
        max_size: u32,
    },
    /// Exactly this many, however long that takes; fewer only on a card that has no slots for so many tenants.
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

impl BatchSpec {
    /// The most requests that a batch can have.
    pub fn max_size(self) -> u32 {
        match self {
            BatchSpec::FixedSize { size: max_size }
            | BatchSpec::PerTenant { max_size }
            | BatchSpec::SizeOrTimeout { max_size, .. } => max_size,
        }
    }
}

/// What leaves the card's memory for what must come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapSpec {
    /// The one not used for longest.
    LeastRecentlyUsed,
    /// The one used by the fewest batches since the start; the one not used for longest among equals.
    LeastFrequentlyUsed,
}

/// How a batch becomes ops on lanes (HMI, section 6 and Fig. 10): what is done for the next batch while this one
/// computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineSpec {
    /// Its representations are looked up.
    pub prefetch_retrieval: bool,
    /// When its tenants' parameters come in.
    pub parameters: ParameterPipeline,
}

/// When a batch's parameters come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterPipeline {
    /// When the batch before has ended; the batch computes when all are there.
    Synchronous,
    /// While the batch before computes; the batch computes when all are there (coarse).
    NextBatch,
    /// While the batch before or an earlier layer computes; each layer computes as soon as its own are there (fine).
    NextLayer,
}

impl PipelineSpec {
    /// One thing after the other (Fig. 10, 2).
    pub const SYNCHRONOUS: PipelineSpec = PipelineSpec {
        prefetch_retrieval: false,
        parameters: ParameterPipeline::Synchronous,
    };
    /// The next batch's representations are looked up.
    pub const PREFETCH_RETRIEVAL: PipelineSpec = PipelineSpec {
        prefetch_retrieval: true,
        parameters: ParameterPipeline::Synchronous,
    };
    /// The next batch's representations and parameters come in (Fig. 10, 3).
    pub const PREFETCH: PipelineSpec = PipelineSpec {
        prefetch_retrieval: true,
        parameters: ParameterPipeline::NextBatch,
    };
    /// As `PREFETCH`, and each layer computes as soon as its own parameters are there (Fig. 10, 4).
    pub const LAYERWISE: PipelineSpec = PipelineSpec {
        prefetch_retrieval: true,
        parameters: ParameterPipeline::NextLayer,
    };
}
