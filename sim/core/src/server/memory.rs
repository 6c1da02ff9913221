//! What lies in the cards' memory. Logical bytes: an allocator's own rounding is the executor's to report.

use crate::policy::pipeline::OPS_BESIDE_LAYERS;
use crate::spec::{ClusterSpec, ParameterPipeline, PoolSpec, TenantState};

/// Of a batch laid out layer by layer: a copy and a forward pass each, within [`crate::op::After`]'s indices.
const MAX_LAYERS: u32 = (254 - OPS_BESIDE_LAYERS as u32) / 2;

/// A system that cannot be built.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The shared part does not fit.
    #[error(
        "{model} needs {needed_bytes} bytes on each card for its shared weights, heads and instances, and the card has \
         {available_bytes}"
    )]
    BackboneDoesNotFit {
        /// The backbone.
        model: String,
        /// What is needed before any tenant's parameters.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// More ops than a batch may have.
    #[error("{model} has {layers} layers, and a batch that is laid out layer by layer may have {MAX_LAYERS}")]
    TooManyLayers {
        /// The backbone.
        model: String,
        /// Its layers.
        layers: u32,
    },
    /// Batches of tasks are planned by a card's tables, and none was given.
    #[error("{model}: tasks are batched by the tables of a card, so that the system must be built on one")]
    NoCard {
        /// The backbone.
        model: String,
    },
    /// The card lacks a table that batches are planned by.
    #[error(transparent)]
    MissingTable(#[from] tenantry_profiles::MissingTable),
    /// The largest batch or the longest query asks for tables that no memory holds.
    #[error("{0}")]
    Tables(#[from] crate::policy::coordinated::TablesError),
    /// No tenant's parameters fit beside the shared part.
    #[error(
        "one tenant's parameters of {model} are {tenant_bytes} bytes, and each instance has {free_bytes} bytes for them"
    )]
    TenantDoesNotFit {
        /// The backbone.
        model: String,
        /// Of one tenant.
        tenant_bytes: u64,
        /// What is left for an instance's slots.
        free_bytes: u64,
    },
    /// A pool of runtimes whose specification was not completed by a card.
    #[error("what the card's runtimes take must be known before a server is built, and was not filled in")]
    CardUnknown,
    /// Requests would come that no instance ever serves.
    #[error("stream {stream} must have an instance of its longest runtime at the start, got none of the {instances}")]
    NoLongestRuntime {
        /// Whose requests.
        stream: String,
        /// Of all streams.
        instances: u32,
    },
}

/// Bytes on all cards together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// What the cards have.
    pub capacity_bytes: u64,
    /// Backbones, one a card, and all tenants' heads; with tasks, what is kept free for activations, and heads with
    /// their tasks.
    pub shared_bytes: u64,
    /// Swapped parameters of one tenant.
    pub per_tenant_bytes: u64,
    /// Swapped parameters that lie on the cards. Slots are filled before any is reused, so this is also their peak.
    pub tenant_bytes: u64,
    /// Key-value cache that was in use at most; 0 for encoders.
    pub cache_bytes: u64,
}

impl MemoryUse {
    /// All together.
    pub fn total_bytes(&self) -> u64 {
        self.shared_bytes + self.tenant_bytes + self.cache_bytes
    }

    /// The law that it is no more than there is.
    ///
    /// # Errors
    /// That it is broken.
    pub fn check(&self) -> Result<(), String> {
        let (all, there) = (self.total_bytes(), self.capacity_bytes);
        match all > there {
            true => Err(format!("{all} bytes lie in {there} bytes of memory: {self:?}")),
            false => Ok(()),
        }
    }
}

/// The plan of one card, the same on each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    gpus: u64,
    card_bytes: u64,
    shared_bytes: u64,
    tenant_bytes: u64,
    slots: Option<u32>,
}

impl Memory {
    pub fn plan(cluster: &ClusterSpec, pool: &PoolSpec, tenants: u32) -> Result<Memory, ServerError> {
        let model = &pool.model;
        if pool.pipeline.parameters == ParameterPipeline::NextLayer && model.layers > MAX_LAYERS {
            return Err(ServerError::TooManyLayers {
                model: model.name.clone(),
                layers: model.layers,
            });
        }
        let dtype_bytes = pool.dtype.bytes();
        // Of very many tenants more than can be counted, which is more than there is.
        let heads = u64::from(tenants).saturating_mul(model.head_parameters(pool.classes) * dtype_bytes);
        let layers = u64::from(pool.computed_layers());
        let backbone = pool.computed_parameters() * dtype_bytes;
        let (shared_bytes, tenant_bytes) = match pool.tenant_state {
            TenantState::Model => (heads, backbone),
            TenantState::Adapters { bottleneck, .. } => {
                let per_layer = model.adapter_parameters_per_layer(bottleneck) * dtype_bytes;
                (heads.saturating_add(backbone), layers * per_layer)
            }
            TenantState::Head => (heads.saturating_add(backbone), 0),
        };
        let available_bytes = cluster.beside_kept_bytes(tenants, tenant_bytes);
        let free = available_bytes.checked_sub(shared_bytes).ok_or_else(|| ServerError::BackboneDoesNotFit {
            model: model.name.clone(),
            needed_bytes: shared_bytes,
            available_bytes,
        })?;
        let free_bytes = free / u64::from(pool.instances_per_gpu);
        let slots = free_bytes.checked_div(tenant_bytes).map(|slots| u32::try_from(slots).unwrap_or(u32::MAX - 1));
        if slots == Some(0) {
            return Err(ServerError::TenantDoesNotFit {
                model: model.name.clone(),
                tenant_bytes,
                free_bytes,
            });
        }
        Ok(Memory {
            gpus: u64::from(cluster.gpus),
            card_bytes: cluster.gpu_memory_bytes,
            shared_bytes,
            tenant_bytes,
            slots,
        })
    }

    /// Of one tenant's swapped parameters.
    pub fn tenant_bytes(&self) -> u64 {
        self.tenant_bytes
    }

    /// `None` where nothing is swapped.
    pub fn slots_per_instance(&self) -> Option<u32> {
        self.slots
    }

    pub fn used(&self, slots: u32) -> MemoryUse {
        MemoryUse {
            capacity_bytes: self.gpus * self.card_bytes,
            shared_bytes: self.gpus * self.shared_bytes,
            per_tenant_bytes: self.tenant_bytes,
            tenant_bytes: u64::from(slots) * self.tenant_bytes,
            cache_bytes: 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use tenantry_profiles::{AdapterImplementation, DType, ModelKind, ModelShape};

    use super::*;
    use crate::testing;

    /// Clusters, pools and numbers of tenants up to the most that scenarios may ask for.
    pub(crate) fn extremes(kind: ModelKind) -> impl Strategy<Value = (ClusterSpec, PoolSpec, u32)> {
        let most = |exponents: std::ops::RangeInclusive<u32>| exponents.prop_map(|exponent| 1_u32 << exponent);
        let shape = (
            1..=65_535_u32,
            most(3..=20),
            most(0..=3),
            most(0..=20),
            most(0..=20),
            any::<bool>(),
        );
        let state = prop_oneof![
            Just(TenantState::Model),
            Just(TenantState::Head),
            most(0..=20).prop_map(|bottleneck| TenantState::Adapters {
                bottleneck,
                implementation: AdapterImplementation::Loop,
            }),
        ];
        let sizes = (
            1..=100_000_u32,
            1..=ClusterSpec::CARD_BYTES_MAX,
            any::<bool>(),
            1..=1024_u32,
        );
        (shape, state, sizes, most(0..=20), 1..=100_000_000_u32).prop_map(
            move |((layers, hidden, heads, intermediate, positions, gated), tenant_state, sizes, classes, tenants)| {
                let (gpus, gpu_memory_bytes, shares_host_memory, instances_per_gpu) = sizes;
                let cluster = ClusterSpec {
                    shares_host_memory,
                    ..testing::cluster(gpus, gpu_memory_bytes)
                };
                let model = ModelShape {
                    name: "any".into(),
                    kind,
                    layers,
                    hidden,
                    heads,
                    kv_heads: heads,
                    intermediate,
                    gated,
                    vocabulary: 1 << 20,
                    positions,
                };
                let pool = PoolSpec {
                    model,
                    dtype: DType::F32,
                    classes,
                    tenant_state,
                    instances_per_gpu,
                    ..testing::pool("any")
                };
                (cluster, pool, tenants)
            },
        )
    }

    proptest! {
        /// However much there is of everything, it is planned or refused, and what is planned fits.
        #[test]
        fn what_is_too_much_is_refused((cluster, pool, tenants) in extremes(ModelKind::Encoder)) {
            match Memory::plan(&cluster, &pool, tenants) {
                Ok(memory) => {
                    let slots = memory.slots_per_instance().unwrap_or(0).min(1000);
                    prop_assert_eq!(memory.used(slots).check(), Ok(()));
                }
                Err(ServerError::BackboneDoesNotFit { needed_bytes, available_bytes, .. }) => {
                    prop_assert!(needed_bytes > available_bytes);
                }
                Err(ServerError::TenantDoesNotFit { tenant_bytes, free_bytes, .. }) => {
                    prop_assert!(tenant_bytes > free_bytes);
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
