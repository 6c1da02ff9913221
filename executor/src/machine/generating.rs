//! What the lanes do for decoders: copies of what tenants have of their own on one, runs of steps on the other,
//! look-ups where a table stands for the lower layers, and copies of keys and values where prompts are taken in apart.
//!
//! Weights are shared by all instances of the device, unless each tenant has a model of its own or cards come and go,
//! onto which the model is then loaded; each instance has slots for tenants and a key-value cache. What a request has
//! generated is kept in host memory, so that it goes on elsewhere after it has left an instance.

mod cards;
mod disk;
mod lane;
mod pages;
mod places;
mod probe;
mod retrieval;
mod tenants;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tch::Device;
use tenantry_core::command::FailureReason;
use tenantry_core::ids::InstanceId;
use tenantry_core::machine::LookupCounts;
use tenantry_core::op::{Layers, OpKind};
use tenantry_core::server::generation::GenerationServer;
use tenantry_core::spec::{GenerationSpec, PoolSpec, StopSpec, TenantState};
use tenantry_core::topology::{Lane, LaneKind, Topology};

use self::cards::Cards;
pub(super) use self::disk::Disk;
use self::lane::RunLane;
use self::places::{LinkLane, Places};
pub(crate) use self::probe::{Probed, StepProbe};
use self::retrieval::Retrieval;
pub(crate) use self::tenants::Slots;
use self::tenants::{Source, Store};
use super::Batch;
use super::inputs::Inputs;
use super::managing::Manager;
use super::pool_serving::{AnswerList, PoolServing};
use super::retrieval::tables_of;
use super::serving::{Provision, fail_all, is_lost, reason};
use super::threads::Perform;
use crate::decoder::{Decoder, KvCache};
use crate::device::{kind, prepare_lane_thread};
use crate::error::ExecutorError;
use crate::files::read_decoder_block;

/// What a request got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generated {
    /// Whose.
    pub ticket: u64,
    /// Ids of the tokens, in order.
    pub tokens: Vec<i64>,
}

/// Tokens generated so far, by ticket, where they are asked for also of requests that have left: shared by all lanes.
pub(super) type GeneratedTokens = Arc<Mutex<HashMap<u64, Vec<i64>>>>;

/// The parameters of a pool of decoders and of its tenants: all that must exist before the first request.
pub struct GenerationServing {
    device: Device,
    seed: u64,
    vocabulary: u64,
    /// Absent where each tenant has a model of its own.
    decoder: Option<Decoder>,
    /// Where they come and go, and there is one model for all tenants.
    cards: Option<Cards>,
    retrieval: Option<Arc<Retrieval>>,
    store: Store,
    /// By instance.
    slots: Vec<Slots>,
    /// By instance.
    caches: Vec<KvCache>,
    /// By instance.
    places: Vec<Places>,
    /// Of the instances, the first so many only take prompts in.
    prefill_instances: u32,
    /// Ends a request that makes it before its last.
    end_of_sequence: Option<i64>,
    shared_prefix_tokens: u32,
    generated: GeneratedTokens,
    manager: Manager,
    /// Where host memory does not hold all tenants' adapters.
    disk: Option<Arc<Disk>>,
}

/// That a pool asks for nothing that is only simulated.
///
/// # Errors
/// It does.
pub(super) fn check(pool: &PoolSpec) -> Result<(), ExecutorError> {
    let Some(generation) = &pool.generation else {
        return Ok(());
    };
    let cards = generation.tensor_parallel;
    if cards != 1 {
        return Err(ExecutorError::input("tensor_parallel", "1 to be executed", cards));
    }
    if generation.prefix_caching {
        return Err(ExecutorError::input("prefix_caching", "false to be executed", true));
    }
    if pool.plot.is_some() && generation.shared_prefix_tokens > 0 {
        // Texts that a table was built for have no beginning in common.
        let must = "0 to be executed above a table";
        let got = generation.shared_prefix_tokens;
        return Err(ExecutorError::input("shared_prefix", must, got));
    }
    Ok(())
}

/// Pages of each instance's cache: no more than requests can fill. Prefixes that nobody reads take all the rest.
pub(super) fn pages(pool: &PoolSpec, generation: &GenerationSpec, server: &GenerationServer) -> u32 {
    let fillable = match generation.shared_prefix_tokens {
        0 => (generation.max_batch).saturating_mul(pool.model.positions.div_ceil(generation.page_tokens)),
        _ => u32::MAX,
    };
    server.pages_per_instance().min(fillable)
}

impl GenerationServing {
    /// Random weights for a pool and its tenants. Each instance has the server's slots for tenants and its pages, of
    /// which no more are made than its requests can fill. Where representations are looked up, only the layers above
    /// them are there.
    ///
    /// # Errors
    /// A shape that cannot be built, layers that several cards are to share, pages that are to be found again, an
    /// implementation that the device does not have, tables of another width or none for a pool that looks up, or no
    /// memory.
    pub fn new(
        pool: &PoolSpec,
        generation: &GenerationSpec,
        server: &GenerationServer,
        provision: Provision,
    ) -> Result<GenerationServing, ExecutorError> {
        let Provision {
            tenants,
            slots,
            seed,
            device,
            max_host_bytes,
            interrupt,
            tables,
            files,
        } = provision;
        let instances = &server.topology().instances;
        let (model, dtype) = (&pool.model, pool.dtype);
        check(pool)?;
        let retrieval = match tables_of(pool, tables)? {
            None => None,
            Some((plot, tables)) => {
                let retrieval = Retrieval::new(tables, plot.threads, instances.len(), kind(dtype), device)?;
                Some(Arc::new(retrieval))
            }
        };
        let source = Source {
            tenants,
            seed,
            device,
            max_host_bytes,
            interrupt: &interrupt,
        };
        let store = Store::new(pool, generation, source, &files)?;
        let disk = store.disk(generation, source)?;
        let of_instance = |_| store.slots(pool, generation, slots.unwrap_or(0), device);
        let of_instances = instances.iter().map(of_instance).collect::<Result<Vec<_>, _>>()?;
        let first_layer = pool.first_layer();
        let decoder = match pool.tenant_state {
            TenantState::Model => None,
            TenantState::Adapters { .. } | TenantState::Head => Some(match &files.model {
                None => Decoder::random_upper(model, first_layer, seed, dtype, device)?,
                Some(path) => {
                    let (config, block) = read_decoder_block(path, model, dtype)?;
                    Decoder::from_parameters(&config, block)?.upper_of(first_layer, device)?
                }
            }),
        };
        let cards = match (&decoder, generation.scale) {
            (Some(decoder), Some(scale)) => {
                let loaded = scale.cards_at_start as usize;
                Some(Cards::new(decoder, instances.len(), loaded, device)?)
            }
            _ => None,
        };
        let layers = first_layer as usize..model.layers as usize;
        let pages = pages(pool, generation, server);
        let cache = |_| KvCache::new(model, layers.clone(), pages, generation.page_tokens, dtype, device);
        let tables = retrieval.as_ref().map(|retrieval| retrieval.tables().clone());
        Ok(GenerationServing {
            manager: Manager::new(store.sets(), tables),
            disk,
            decoder,
            cards,
            retrieval,
            store,
            slots: of_instances,
            places: instances.iter().map(|_| Places::new(pages)).collect(),
            prefill_instances: generation.prefill_instances(),
            caches: instances.iter().map(cache).collect::<Result<_, _>>()?,
            end_of_sequence: match generation.stop {
                StopSpec::Length => None,
                StopSpec::EndOfSequence { token, .. } => Some(token.into()),
            },
            shared_prefix_tokens: generation.shared_prefix_tokens,
            generated: GeneratedTokens::default(),
            device,
            seed,
            vocabulary: model.vocabulary.into(),
        })
    }

    /// The model that an instance computes with; nothing where each tenant has one of its own.
    fn model(&self, instance: usize) -> Option<&Decoder> {
        let own = self.cards.as_ref().map(|cards| cards.model(instance));
        own.or(self.decoder.as_ref())
    }
}

impl PoolServing for GenerationServing {
    fn lanes(&self, topology: &Topology, _: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |(index, lane): (usize, &Lane)| {
            let perform: Box<dyn Perform> = match lane.kind {
                LaneKind::Copy | LaneKind::Lookup | LaneKind::Solve | LaneKind::Disk => Box::new(HostLane {
                    device: self.device,
                    store: self.store.share(),
                    manager: self.manager.share(),
                    disk: self.disk.clone(),
                    cards: self.cards.as_ref().map(Cards::share),
                    slots: self.slots.iter().map(Slots::share).collect(),
                    retrieval: self.retrieval.clone(),
                    generated: Arc::clone(&self.generated),
                }),
                LaneKind::Link => Box::new(LinkLane {
                    caches: self.caches.iter().map(KvCache::share).collect(),
                    places: self.places.clone(),
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

    fn inputs(&self) -> Inputs {
        if let Some(retrieval) = &self.retrieval {
            return Inputs::of_tables(retrieval.tables());
        }
        let vocabulary = self.vocabulary;
        Inputs::drawn(self.seed, self.shared_prefix_tokens, move |_| vocabulary)
    }

    fn make_versions(&mut self, interrupt: &AtomicBool) -> Result<(), ExecutorError> {
        self.manager.put_on_disk(self.disk.clone());
        self.manager.make_versions(self.seed, self.device, interrupt)
    }

    fn has_stored_blocks(&self) -> bool {
        self.disk.is_some() || self.manager.has_versions()
    }

    fn lookups(&self) -> Option<Arc<Mutex<LookupCounts>>> {
        self.retrieval.as_ref().map(|retrieval| retrieval.counts())
    }

    fn host_bytes(&self) -> u64 {
        match (self.store.sets(), &self.disk) {
            (Some(sets), Some(disk)) => u64::from(disk.slots()) * sets.bytes_per_tenant(),
            (sets, _) => sets.map_or(0, crate::ParameterSets::host_bytes),
        }
    }

    fn shared_sets(&self) -> Option<u32> {
        self.store.sets()?.shared()
    }

    fn missing(&self) -> Vec<String> {
        let sets = self.store.sets();
        sets.map_or_else(Vec::new, crate::ParameterSets::missing_why)
    }

    fn generated_tokens(&self) -> Option<GeneratedTokens> {
        Some(Arc::clone(&self.generated))
    }

    fn generated(&self) -> Vec<Generated> {
        let tokens = std::mem::take(&mut *self.generated.lock().expect("no lane panics with the tokens"));
        let generated = tokens.into_iter().map(|(ticket, tokens)| Generated { ticket, tokens });
        let mut all: Vec<Generated> = generated.collect();
        all.sort_unstable();
        all
    }
}

/// Looks prompts up, and copies to the device: what was looked up, and what tenants have of their own. A lane is given
/// all of these or some.
struct HostLane {
    device: Device,
    store: Store,
    manager: Manager,
    disk: Option<Arc<Disk>>,
    cards: Option<Cards>,
    /// By instance.
    slots: Vec<Slots>,
    retrieval: Option<Arc<Retrieval>>,
    generated: GeneratedTokens,
}

impl HostLane {
    fn load(&self, instance: InstanceId, tenant: u32, slot: u32, layers: Layers) -> Result<(), FailureReason> {
        if self.store.sets().is_none_or(|sets| tenant >= sets.tenants()) {
            return Err(FailureReason::LoadFailed);
        }
        let loaded = self.slots[instance.index()].load(&self.store, tenant, slot, layers.range());
        loaded.map_err(|error| reason(&error, FailureReason::LoadFailed))
    }
}

impl Perform for HostLane {
    fn device(&self) -> Device {
        self.device
    }

    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        Ok(())
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let retrieval = || self.retrieval.as_ref().expect("a pool that looks up has tables");
        let done = match kind {
            OpKind::CopyIn(_) | OpKind::Stage(_) if is_lost(batch) => Ok(()),
            // All members wait for the one tenant that a copy brings.
            OpKind::CopyIn(copy) => batch
                .loads
                .iter()
                .try_for_each(|load| self.load(batch.instance, load.tenant, load.slot, copy.layers)),
            OpKind::Lookup(_) => {
                let found = retrieval().look_up(batch, &self.generated);
                found.map_err(|error| reason(&error, FailureReason::LookupFailed))
            }
            OpKind::Stage(_) => {
                let staged = retrieval().stage(batch);
                staged.map_err(|error| reason(&error, FailureReason::LoadFailed))
            }
            OpKind::LoadModel(_) => {
                let cards = self.cards.as_ref().expect("only cards that come and go load models");
                let loaded = cards.load(batch.instance);
                loaded.map_err(|error| reason(&error, FailureReason::LoadFailed))
            }
            OpKind::Manage(manage) => return self.manager.perform(manage, batch),
            OpKind::Fetch(fetch) => {
                let disk = self.disk.as_ref().expect("what is read from a disk lies there");
                let fetched = disk.fetch(batch.loads[0].tenant, fetch.slot);
                fetched.map_err(|error| reason(&error, FailureReason::LoadFailed))
            }
            _ => unreachable!("a host's lane looks up, reads and copies"),
        };
        if let Err(reason) = done {
            fail_all(batch, reason);
        }
    }
}

#[cfg(test)]
mod tests;
