//! What the lanes do for decoders: copies of tenants' low-rank matrices on one, runs of steps on the other.
//!
//! Weights are shared by all instances of the device; each has slots for adapters and a key-value cache of its own. What a request
//! has generated is kept in host memory, so that it goes on elsewhere after it has left an instance.

mod disk;
mod lane;
mod pages;
mod probe;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tch::Device;
use tenantry_core::command::FailureReason;
use tenantry_core::event::MemberFailure;
use tenantry_core::ids::InstanceId;
use tenantry_core::op::{Layers, OpKind};
use tenantry_core::server::generation::GenerationServer;
use tenantry_core::spec::{GenerationSpec, PoolSpec, StopSpec};
use tenantry_core::topology::{Lane, LaneKind, Topology};
use tenantry_profiles::AdapterImplementation;

use self::disk::Disk;
use self::lane::RunLane;
pub(crate) use self::probe::{Probed, StepProbe};
use super::Batch;
use super::managing::Manager;
use super::serving::reason;
use super::threads::Perform;
use crate::decoder::{Decoder, KvCache};
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;
use crate::lora::{LoraCache, LoraShape, LoraStore, Segment};

/// What a request got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generated {
    /// Whose.
    pub ticket: u64,
    /// Ids of the tokens, in order.
    pub tokens: Vec<i64>,
}

/// Tokens generated so far, by ticket, also of requests that have left: shared by all lanes.
type GeneratedTokens = Arc<Mutex<HashMap<u64, Vec<i64>>>>;

/// An instance's adapters on the device, and how they are computed.
struct Adapters {
    cache: LoraCache,
    implementation: AdapterImplementation,
}

impl Adapters {
    fn share(&self) -> Adapters {
        Adapters {
            cache: self.cache.share(),
            implementation: self.implementation,
        }
    }
}

/// The parameters of a pool of decoders and of its tenants: all that must exist before the first request.
pub struct GenerationServing {
    device: Device,
    seed: u64,
    decoder: Decoder,
    store: Option<LoraStore>,
    /// By instance; empty where tenants have nothing of their own.
    adapters: Vec<Adapters>,
    /// By instance.
    caches: Vec<KvCache>,
    /// Ends a request that makes it before its last.
    end_of_sequence: Option<i64>,
    shared_prefix_tokens: u32,
    generated: GeneratedTokens,
    manager: Manager,
    /// Where host memory does not hold all tenants' adapters.
    disk: Option<Arc<Disk>>,
}

impl GenerationServing {
    /// Random weights for a pool and `tenants` tenants. Each instance has the server's slots for adapters and its pages, of which no
    /// more are made than its requests can fill. Tenants' adapters take at most `max_host_bytes` of host memory.
    ///
    /// # Errors
    /// A shape that cannot be built, layers that several cards are to share, pages that are to be found again, an implementation that
    /// the device does not have, or no memory.
    pub fn new(
        pool: &PoolSpec,
        generation: &GenerationSpec,
        server: &GenerationServer,
        tenants: u32,
        seed: u64,
        device: Device,
        max_host_bytes: u64,
    ) -> Result<GenerationServing, ExecutorError> {
        let instances = &server.topology().instances;
        let (model, dtype) = (&pool.model, pool.dtype);
        if generation.tensor_parallel != 1 {
            return Err(ExecutorError::input(
                "tensor_parallel",
                "1 to be executed",
                generation.tensor_parallel,
            ));
        }
        if generation.prefix_caching {
            return Err(ExecutorError::input("prefix_caching", "false to be executed", true));
        }
        let (mut store, mut disk) = (None, None);
        let mut adapters = Vec::new();
        if let (Some(lora), Some(slots)) = (generation.lora, server.slots_per_instance()) {
            let shape = LoraShape::new(model, lora.rank)?;
            let all = LoraStore::random(shape, tenants, seed, dtype, device, max_host_bytes)?;
            if let Some(slots) = lora.host_slots {
                disk = Some(Arc::new(Disk::write(&all.sets, slots.min(tenants), device)?));
            }
            store = Some(all);
            for _ in instances {
                let cache = LoraCache::new(shape, slots, dtype, device)?;
                // An implementation that this device lacks is refused here and not in the middle of a run.
                let segment = Segment {
                    slot: Some(0),
                    tokens: 1,
                };
                cache.plan(&[segment], lora.implementation)?;
                adapters.push(Adapters {
                    cache,
                    implementation: lora.implementation,
                });
            }
        }
        let fillable = generation
            .max_batch
            .saturating_mul(model.positions.div_ceil(generation.page_tokens));
        let layers = model.layers as usize;
        let pages = server.pages_per_instance().min(fillable);
        let cache = |_| KvCache::new(model, 0..layers, pages, generation.page_tokens, dtype, device);
        Ok(GenerationServing {
            manager: Manager::new(store.as_ref().map(|store| &store.sets), None),
            disk,
            decoder: Decoder::random(model, seed, dtype, device)?,
            store,
            adapters,
            caches: instances.iter().map(cache).collect::<Result<_, _>>()?,
            end_of_sequence: match generation.stop {
                StopSpec::Length => None,
                StopSpec::EndOfSequence { token, .. } => Some(token.into()),
            },
            shared_prefix_tokens: generation.shared_prefix_tokens,
            generated: GeneratedTokens::default(),
            device,
            seed,
        })
    }

    /// With new versions of tenants' adapters, for a workload with management requests.
    ///
    /// # Errors
    /// No room for them in the folder for temporary files.
    pub fn with_management(mut self) -> Result<GenerationServing, ExecutorError> {
        if self.disk.is_some() {
            let must = "left out to be executed where tenants' adapters are created and updated";
            return Err(ExecutorError::input("lora.host_slots", must, "given"));
        }
        self.manager = self.manager.with_versions(self.seed, self.device)?;
        Ok(self)
    }

    /// Parameter sets in host memory that differ, where tenants must share some; nothing where each has its own.
    pub fn shared_sets(&self) -> Option<u32> {
        let sets = &self.store.as_ref()?.sets;
        (sets.distinct() < sets.tenants()).then(|| sets.distinct())
    }

    /// Bytes of tenants' parameters in host memory.
    pub fn host_bytes(&self) -> u64 {
        let sets = self.store.as_ref().map(|store| &store.sets);
        match (sets, &self.disk) {
            (Some(sets), Some(disk)) => u64::from(disk.slots()) * sets.bytes_per_tenant(),
            (sets, _) => sets.map_or(0, crate::ParameterSets::host_bytes),
        }
    }

    /// Who does each lane's ops.
    pub fn lanes(&self, topology: &Topology) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |(index, lane): (usize, &Lane)| {
            let perform: Box<dyn Perform> = match lane.kind {
                LaneKind::Copy | LaneKind::Lookup | LaneKind::Solve => Box::new(LoadLane {
                    store: self.store.as_ref().map(LoraStore::share),
                    manager: self.manager.share(),
                    disk: self.disk.clone(),
                    adapters: self.adapters.iter().map(Adapters::share).collect(),
                }),
                LaneKind::Compute => {
                    let mut instances = topology.instances.iter();
                    let instance = instances.position(|instance| instance.compute.index() == index);
                    Box::new(RunLane::new(
                        self,
                        instance.expect("a compute lane belongs to an instance"),
                    ))
                }
            };
            (lane.clone(), perform)
        };
        topology.lanes.iter().enumerate().map(lane).collect()
    }

    /// What each request has got so far, by ticket. For requests that were cancelled or failed, what they had until then.
    pub fn generated(&self) -> Vec<Generated> {
        let tokens = self.generated.lock().expect("no lane panics with the tokens");
        let generated = |(&ticket, tokens): (&u64, &Vec<i64>)| Generated {
            ticket,
            tokens: tokens.clone(),
        };
        let mut all: Vec<Generated> = tokens.iter().map(generated).collect();
        all.sort_unstable();
        all
    }
}

/// Copies tenants' low-rank matrices to the device.
struct LoadLane {
    store: Option<LoraStore>,
    manager: Manager,
    disk: Option<Arc<Disk>>,
    /// By instance.
    adapters: Vec<Adapters>,
}

impl LoadLane {
    fn load(&self, instance: InstanceId, tenant: u32, slot: u32, layers: Layers) -> Result<(), FailureReason> {
        let store = self.store.as_ref().filter(|store| tenant < store.sets.tenants());
        let (Some(store), Some(adapters)) = (store, self.adapters.get(instance.index())) else {
            return Err(FailureReason::LoadFailed);
        };
        let loaded = adapters.cache.load(store, tenant, slot, layers.range());
        loaded.map_err(|error| reason(&error, FailureReason::LoadFailed))
    }
}

impl Perform for LoadLane {
    fn prepare(&mut self) {
        prepare_lane_thread();
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let copy = match kind {
            OpKind::CopyIn(copy) => copy,
            OpKind::Manage(manage) => return self.manager.perform(manage, batch),
            OpKind::Fetch(fetch) => {
                let disk = self.disk.as_ref().expect("what is read from a disk lies there");
                if let Err(error) = disk.fetch(batch.loads[0].tenant, fetch.slot) {
                    fail_all(batch, reason(&error, FailureReason::LoadFailed));
                }
                return;
            }
            _ => unreachable!("a copy lane copies"),
        };
        let load = |load: &tenantry_core::op::Load| self.load(batch.instance, load.tenant, load.slot, copy.layers);
        // All members wait for the one tenant that a copy brings.
        if let Err(reason) = batch.loads.iter().try_for_each(load) {
            fail_all(batch, reason);
        }
    }
}

fn fail_all(batch: &Batch, reason: FailureReason) {
    let failures = (0..batch.members.len() as u32).map(|member| MemberFailure { member, reason });
    let mut all = batch.failures.lock().expect("no lane panics with the list");
    all.extend(failures);
}

#[cfg(test)]
mod tests;
