//! What tenants of decoders have of their own, in host memory and in slots on the device, and how a step computes with
//! it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tch::{Device, Tensor};
use tenantry_core::spec::{GenerationSpec, PoolSpec, TenantState};
use tenantry_profiles::AdapterImplementation;

use super::disk::Disk;
use crate::ParameterSets;
use crate::adapters::{AdapterCache, AdapterPlan, AdapterShape, AdapterStore, Adapters};
use crate::decoder::{Decoder, DecoderConfig, Step, TenantParameters};
use crate::device::kind;
use crate::error::ExecutorError;
use crate::files::{Files, OneForAll, read_decoder_block};
use crate::lora::{LoraCache, LoraPlan, LoraShape, LoraStore, Loras, Segment};
use crate::parameter_sets::Room;
use crate::whole_models::{ModelSlots, ModelStore, WholeModel};

/// In host memory.
pub(crate) enum Store {
    Loras(LoraStore),
    Adapters(AdapterStore),
    /// And what these compute beside their parameters.
    Models(ModelStore, DecoderConfig),
    /// All share the backbone.
    None,
}

/// Where that comes from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub tenants: u32,
    pub seed: u64,
    pub device: Device,
    pub max_host_bytes: u64,
    pub interrupt: &'a AtomicBool,
}

impl Store {
    /// Random parameters, or those of users' files.
    ///
    /// # Errors
    /// A shape that cannot be built, or memory for less than one tenant's.
    pub fn new(
        pool: &PoolSpec,
        generation: &GenerationSpec,
        source: Source<'_>,
        files: &Files,
    ) -> Result<Store, ExecutorError> {
        let (model, dtype, first_layer) = (&pool.model, pool.dtype, pool.first_layer());
        let Source {
            tenants,
            seed,
            device,
            max_host_bytes,
            interrupt,
        } = source;
        let room = Room::until(max_host_bytes, interrupt);
        let of_tenants = files.of_tenants()?;
        Ok(match (pool.tenant_state, generation.lora, of_tenants) {
            (TenantState::Model, _, None) => {
                let random = ModelStore::random::<Decoder>;
                let store = random(model, first_layer, tenants, seed, dtype, device, room)?;
                Store::Models(store, DecoderConfig::new(model)?)
            }
            (TenantState::Model, _, Some(paths)) if first_layer == 0 => {
                let mut config = OneForAll::unknown();
                let blocks = paths.iter().map(|path| {
                    let (own, block) = read_decoder_block(path, model, dtype)?;
                    config.agree(path, own)?;
                    Ok(block)
                });
                let of = ModelStore::of_blocks::<Decoder>;
                let store = of(model, first_layer, tenants, dtype, device, room, blocks)?;
                Store::Models(store, config.get().map_or_else(|| DecoderConfig::new(model), Ok)?)
            }
            (TenantState::Model, _, Some(_)) => {
                let must = "left out above a table for a decoder's whole models";
                return Err(ExecutorError::input("files.tenants", must, "a folder"));
            }
            (TenantState::Adapters { bottleneck, .. }, _, paths) => {
                let shape = AdapterShape::upper(model, first_layer, bottleneck)?;
                Store::Adapters(match paths {
                    None => AdapterStore::random(shape, tenants, seed, dtype, device, room)?,
                    Some(paths) => AdapterStore::read(shape, tenants, &paths, dtype, device, room)?,
                })
            }
            (TenantState::Head, Some(lora), paths) => {
                let shape = LoraShape::new(model, lora.rank)?;
                Store::Loras(match paths {
                    None => LoraStore::random(shape, tenants, seed, dtype, device, room)?,
                    Some(paths) => LoraStore::read(shape, tenants, &paths, dtype, device, room)?,
                })
            }
            (TenantState::Head, None, _) => Store::None,
        })
    }

    /// Puts them on the disk, where host memory is to hold some tenants' only.
    ///
    /// # Errors
    /// As of [`Disk::write`].
    pub(super) fn disk(
        &self,
        generation: &GenerationSpec,
        source: Source<'_>,
    ) -> Result<Option<Arc<Disk>>, ExecutorError> {
        match (self, generation.host_slots()) {
            (Store::Loras(store), Some(slots)) => {
                let disk = Disk::write(&store.sets, slots.min(source.tenants), source.device, source.interrupt)?;
                Ok(Some(Arc::new(disk)))
            }
            _ => Ok(None),
        }
    }

    /// Empty slots for so many tenants.
    ///
    /// # Errors
    /// No memory on the device, or an implementation that it lacks: refused here, and not in the middle of a run.
    pub fn slots(
        &self,
        pool: &PoolSpec,
        generation: &GenerationSpec,
        slots: u32,
        device: Device,
    ) -> Result<Slots, ExecutorError> {
        let dtype = pool.dtype;
        Ok(match self {
            Store::Models(_, config) => {
                let first_layer = pool.first_layer();
                let numbers = Decoder::numbers(&pool.model, first_layer)? as i64;
                let room = || Tensor::f_zeros([numbers], (kind(dtype), device));
                Slots::Models(ModelSlots::of(slots, || Decoder::upper(config, first_layer, room()?))?)
            }
            Store::Adapters(store) => {
                let cache = AdapterCache::new(store.shape(), slots, dtype, device)?;
                let TenantState::Adapters { implementation, .. } = pool.tenant_state else {
                    unreachable!("adapters are stored where tenants have such")
                };
                cache.plan(&[0], 1, implementation)?;
                Slots::Adapters(cache, implementation)
            }
            Store::Loras(store) => {
                let cache = LoraCache::new(store.shape(), slots, dtype, device)?;
                let implementation = generation.lora.expect("they are stored").implementation;
                let segment = Segment {
                    slot: Some(0),
                    tokens: 1,
                };
                cache.plan(&[segment], implementation)?;
                Slots::Loras(cache, implementation)
            }
            Store::None => Slots::None,
        })
    }

    pub fn sets(&self) -> Option<&ParameterSets> {
        match self {
            Store::Loras(store) => Some(&store.sets),
            Store::Adapters(store) => Some(&store.sets),
            Store::Models(store, _) => Some(&store.sets),
            Store::None => None,
        }
    }

    pub fn share(&self) -> Store {
        match self {
            Store::Loras(store) => Store::Loras(store.share()),
            Store::Adapters(store) => Store::Adapters(store.share()),
            Store::Models(store, config) => Store::Models(store.share(), config.clone()),
            Store::None => Store::None,
        }
    }
}

/// Of an instance, on the device.
pub(crate) enum Slots {
    Loras(LoraCache, AdapterImplementation),
    Adapters(AdapterCache, AdapterImplementation),
    Models(ModelSlots<Decoder>),
    None,
}

/// How a step's tokens fall on slots.
pub(crate) enum Plan {
    Loras(LoraPlan),
    Adapters(AdapterPlan),
}

impl Slots {
    /// Copies some layers' parameters of a tenant into a slot; whole models in one piece.
    ///
    /// # Errors
    /// A store of another kind or shape.
    pub fn load(
        &self,
        store: &Store,
        tenant: u32,
        slot: u32,
        layers: std::ops::Range<usize>,
    ) -> Result<(), ExecutorError> {
        match (self, store) {
            (Slots::Loras(cache, _), Store::Loras(store)) => cache.load(store, tenant, slot, layers),
            (Slots::Adapters(cache, _), Store::Adapters(store)) => cache.load(store, tenant, slot, layers),
            (Slots::Models(slots), Store::Models(store, _)) => slots.load(store, tenant, slot),
            _ => Err(ExecutorError::input(
                "what tenants have of their own",
                "of the slots' kind",
                "another",
            )),
        }
    }

    /// Prepares a step; nothing where all its tokens meet the same parameters.
    ///
    /// # Errors
    /// A token without a slot, where tenants have adapters.
    pub fn plan(&self, step: &Step) -> Result<Option<Plan>, ExecutorError> {
        Ok(match self {
            Slots::Loras(cache, implementation) => Some(Plan::Loras(cache.plan(step.segments(), *implementation)?)),
            Slots::Adapters(cache, implementation) => Some(Plan::Adapters(step.plan_adapters(cache, *implementation)?)),
            Slots::Models(_) | Slots::None => None,
        })
    }

    /// What the backbone is computed with.
    pub fn parameters<'a>(&'a self, plan: Option<&'a Plan>) -> Option<TenantParameters<'a>> {
        match (self, plan?) {
            (Slots::Loras(cache, _), Plan::Loras(plan)) => Some(TenantParameters::Lora(Loras::new(cache, plan))),
            (Slots::Adapters(cache, _), Plan::Adapters(plan)) => {
                Some(TenantParameters::Adapters(Adapters::new(cache, plan)))
            }
            _ => None,
        }
    }

    pub fn share(&self) -> Slots {
        match self {
            Slots::Loras(cache, implementation) => Slots::Loras(cache.share(), *implementation),
            Slots::Adapters(cache, implementation) => Slots::Adapters(cache.share(), *implementation),
            Slots::Models(slots) => Slots::Models(slots.share()),
            Slots::None => Slots::None,
        }
    }
}
