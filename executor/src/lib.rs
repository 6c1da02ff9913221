//! The real machine: models, adapters and the profiler, on libtorch.
//!
//! This crate decides nothing: which batch runs when, with whose parameters, is the server's business. It reads no YAML
//! and writes no reports. Everything takes its [`tch::Device`] at run time; nothing assumes a CPU.
//!
//! One batch of a shared backbone with adapters, as a machine's lanes do it:
//!
//! ```
//! use tch::Device;
//! use tenantry_executor::{AdapterCache, AdapterShape, AdapterStore, Adapters, Encoder, Heads, prepare_lane_thread};
//! use tenantry_profiles::{AdapterImplementation, DType, ModelShape};
//!
//! # fn main() -> Result<(), tenantry_executor::ExecutorError> {
//! let (shape, dtype, device) = (ModelShape::builtin("tiny").unwrap(), DType::F32, Device::Cpu);
//! let adapter = AdapterShape::new(&shape, 16)?;
//! let backbone = Encoder::random(&shape, 7, dtype, device)?;
//! let heads = Heads::random(&shape, 100, 2, 7, dtype, device)?;
//! let store = AdapterStore::random(adapter, 100, 7, dtype, device, 1 << 30)?;
//! let cache = AdapterCache::new(adapter, 8, dtype, device)?;
//!
//! // The copy lane: tenants 42 and 7 into slots 0 and 1, through its own handle on the cache's memory.
//! let copy_lane_cache = cache.share();
//! copy_lane_cache.load(&store, 42, 0, 0..2)?;
//! copy_lane_cache.load(&store, 7, 1, 0..2)?;
//!
//! // The compute lane: three requests, those of one tenant next to each other, padded to 8 tokens.
//! prepare_lane_thread();
//! let input = backbone.input(&[vec![5, 6, 7], vec![8; 8], vec![9, 10]], 8)?;
//! let plan = cache.plan(&[0, 0, 1], input.tokens(), AdapterImplementation::GatherBmm)?;
//! let adapters = Adapters::new(&cache, &plan);
//! let mut hidden = backbone.embed(&input)?;
//! for layer in 0..2 {
//!     // One op each, or several layers in one: the same functions.
//!     hidden = backbone.layers(hidden, layer..layer + 1, &input, Some(&adapters))?;
//! }
//! let logits = heads.forward(&hidden, &[42, 42, 7])?;
//! assert_eq!(logits.size(), [3, 2]);
//! # Ok(())
//! # }
//! ```
//!
//! Whole models per tenant are [`ModelStore`] and [`ModelSlots`], used likewise: `slots.load(&store, tenant, slot)`,
//! then `slots.model(slot)`.
//!
//! One step of a decoder with LoRA, a prompt and a running sequence together:
//!
//! ```
//! # use tch::Device;
//! use tenantry_executor::{Chunk, Decoder, KvCache, LoraCache, LoraShape, LoraStore, Loras, Sampling, TenantParameters, sample};
//! # use tenantry_profiles::{AdapterImplementation, DType, ModelShape};
//!
//! # fn main() -> Result<(), tenantry_executor::ExecutorError> {
//! # let (dtype, device) = (DType::F32, Device::Cpu);
//! let shape = ModelShape::builtin("tiny-llama").unwrap();
//! let decoder = Decoder::random(&shape, 7, dtype, device)?;
//! let kv = KvCache::new(&shape, 0..2, 64, 16, dtype, device)?;
//! let lora = LoraShape::new(&shape, 16)?;
//! let store = LoraStore::random(lora, 200, 7, dtype, device, 1 << 30)?;
//! let slots = LoraCache::new(lora, 8, dtype, device)?;
//! slots.load(&store, 42, 0, 0..2)?;
//! slots.load(&store, 7, 1, 0..2)?;
//!
//! let running = Chunk { ids: &[9], cached: 20, pages: &[5, 3], slot: Some(0), wants_token: true };
//! let prompt = Chunk { ids: &[4, 8, 15, 16], cached: 0, pages: &[11], slot: Some(1), wants_token: true };
//! let step = decoder.step(&[running, prompt], &kv)?;
//! let plan = slots.plan(step.segments(), AdapterImplementation::Loop)?;
//! let logits = decoder.forward(&step, &kv, Some(TenantParameters::Lora(Loras::new(&slots, &plan))))?;
//! let tokens = sample(&logits, &[Sampling::Greedy; 2])?;
//! assert_eq!(tokens.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! **Threads.** Tensors may move to another thread but not be shared, so each lane holds handles of its own, made by
//! `share()`: they refer to the same memory. Nothing here locks: the server sees to it that a slot is not loaded while
//! a forward pass uses it.
//!
//! Read `model/encoder/forward.rs` and `decoder/forward.rs` for the forward passes, `adapters/apply.rs` for batched
//! adapters, `profiler/mod.rs` for what is measured.

mod adapters;
pub mod cascade;
mod decoder;
mod device;
mod error;
mod files;
mod find;
mod gathered;
mod gpu;
mod host;
mod likeliest;
mod lora;
pub mod machine;
mod model;
mod parameter_sets;
pub mod pet;
mod plot;
pub mod precision;
pub mod profiler;
mod random;
mod stored_blocks;
mod tensors_file;
mod whole_models;

pub use adapters::{AdapterCache, AdapterPlan, AdapterShape, AdapterStore, Adapters};
pub use decoder::{
    Chunk, Decoder, DecoderConfig, KvCache, Rope, RopeScaling, Sampling, Step, TenantParameters, read_decoder, sample,
};
pub use device::{
    DeviceMemory, Entered, Event, Stream, copy_without_waiting, device_memory, forget_peak_memory, give_memory_back,
    kind, prepare_lane_thread, synchronize, synchronize_all, use_one_core,
};
pub use error::ExecutorError;
pub use files::Files;
pub use find::find_device;
pub use gpu::describe;
pub use host::{LIBTORCH_VERSION, available_host_bytes, describe_cpu};
pub use lora::{LoraCache, LoraPlan, LoraShape, LoraStore, Loras, Segment, read_lora};
pub use model::{Encoder, Heads, Input, read_checkpoint, write_checkpoint};
pub use parameter_sets::{ParameterSets, Room};
pub use plot::{Building, Origin, Progress, Tables, WatchBuilding, tables_folder};
pub use tch::Device;
pub use whole_models::{ModelSlots, ModelStore, WholeModel};
