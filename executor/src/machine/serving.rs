//! What the lanes do: copies and look-ups on some, forward passes on the others, with handles of their own on the same
//! memory.

mod compute_lane;
mod host_lane;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tenantry_core::Server;
use tenantry_core::command::FailureReason;
use tenantry_core::event::MemberFailure;
use tenantry_core::ids::InstanceId;
use tenantry_core::machine::LookupCounts;
use tenantry_core::op::{Encode, Layers, Member, OpKind};
use tenantry_core::spec::{HeadTask, PoolSpec, RuntimeRef, ShapeKind, StreamSpec, TenantState};
use tenantry_core::topology::{Lane, LaneKind, Topology};
use tenantry_profiles::AdapterImplementation;
use tenantry_traces::draw::{Draws, Purpose};

use compute_lane::ComputeLane;
use host_lane::{HostLane, SolverLane};

use super::first_passes::first_passes;
use super::inputs::{Inputs, ids_of};
use super::managing::Manager;
use super::pool_serving::{AnswerList, PoolServing};
use super::retrieval::{Retrieval, Retrieved, rows, tables_of};
use super::threads::Perform;
use super::{Batch, errors};
use crate::adapters::{AdapterCache, AdapterPlan, AdapterShape, AdapterStore, Adapters};
use crate::device::{Stream, kind, prepare_lane_thread};
use crate::error::ExecutorError;
use crate::files::{EncoderBlock, Files, OneForAll, read_encoder_block};
use crate::likeliest::{NOT_FINITE, likeliest, not_finite};
use crate::model::{CompiledModel, Encoder, Heads, Input, Variant};
use crate::parameter_sets::Room;
use crate::plot::Tables;
use crate::whole_models::{ModelSlots, ModelStore, WholeModel};

/// The class that a tenant's head found the likeliest for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// Whose request.
    pub ticket: u64,
    /// Of a cascade, which of its models says so.
    pub stage: u16,
    /// Which class.
    pub class: u32,
}

/// The labels that a tenant's head found the likeliest for a request's tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tagged {
    /// Whose request.
    pub ticket: u64,
    /// Of each token, padding left out.
    pub labels: Vec<u32>,
}

/// Slots whose last load failed. Whoever finds his tenant there fails too.
type BadSlots = Arc<Mutex<BTreeSet<(InstanceId, u32)>>>;

/// What each tenant has of its own, in host memory.
enum Store {
    Models(ModelStore),
    Adapters(AdapterStore),
    None,
}

impl Store {
    fn share(&self) -> Store {
        match self {
            Store::Models(store) => Store::Models(store.share()),
            Store::Adapters(store) => Store::Adapters(store.share()),
            Store::None => Store::None,
        }
    }

    fn sets(&self) -> Option<&crate::ParameterSets> {
        match self {
            Store::Models(store) => Some(&store.sets),
            Store::Adapters(store) => Some(&store.sets),
            Store::None => None,
        }
    }

    fn missing(&self) -> &[(usize, String)] {
        self.sets().map_or(&[], crate::ParameterSets::missing)
    }
}

/// Where an instance's tenants lie on the device.
enum Slots {
    Models(ModelSlots<Encoder>),
    Adapters(AdapterCache, AdapterImplementation),
    None,
}

impl Slots {
    fn share(&self) -> Slots {
        match self {
            Slots::Models(slots) => Slots::Models(slots.share()),
            Slots::Adapters(cache, implementation) => Slots::Adapters(cache.share(), *implementation),
            Slots::None => Slots::None,
        }
    }
}

/// What a pool's parameters depend on, beside the pool itself.
pub struct Provision {
    /// How many tenants.
    pub tenants: u32,
    /// Slots of each instance; nothing where nothing is swapped.
    pub slots: Option<u32>,
    /// Of weights and token ids.
    pub seed: u64,
    /// Where is computed.
    pub device: Device,
    /// Host memory that tenants' parameters may take.
    pub max_host_bytes: u64,
    /// Set by who does not wait until they are made.
    pub interrupt: Arc<AtomicBool>,
    /// What the pool looks up in, where it does: of the same seed, or the same files.
    pub tables: Option<Tables>,
    /// In place of random weights.
    pub files: Files,
}

/// The parameters of a pool and its tenants: all that must exist before the first request.
pub struct Serving {
    pool: PoolSpec,
    device: Device,
    /// Whether static runtimes are compiled: a CPU pads alone.
    compiles: bool,
    seed: u64,
    retrieval: Option<Arc<Retrieval>>,
    backbone: Option<Encoder>,
    heads: Heads,
    /// Of further request streams, whose instances these share the cards with.
    others: Vec<Model>,
    store: Store,
    /// By instance.
    slots: Vec<Slots>,
    manager: Manager,
    /// By instance and then by stream: [room] for the weights of its runtime; empty where instances share the backbone.
    runtimes: Vec<Vec<Encoder>>,
    /// What heads that label tokens have said, shared by all lanes.
    tagged: Arc<Mutex<Vec<Tagged>>>,
}

/// A request stream's model with its tenants' heads.
struct Model {
    weights: Encoder,
    heads: Heads,
}

impl Serving {
    /// Random weights for a pool and its tenants. Where representations are looked up, only the layers above them are
    /// there.
    ///
    /// # Errors
    /// A shape that cannot be built, tables of another width or none for a pool that looks up, or no memory.
    pub fn new(pool: &PoolSpec, server: &Server, provision: Provision) -> Result<Serving, ExecutorError> {
        let PoolSpec {
            model, dtype, classes, ..
        } = pool;
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
        let of_tenants = files.of_tenants()?;
        let retrieval = match tables_of(pool, tables)? {
            None => None,
            Some((plot, tables)) => Some(Arc::new(Retrieval::new(tables, plot.threads, device)?)),
        };
        let first_layer = pool.first_layer();
        let shared = || match &files.model {
            None => Encoder::random_upper(model, first_layer, seed, *dtype, device),
            Some(path) => read_encoder_block(path, model, *dtype)?.encoder(model, first_layer, device),
        };
        let of_host = (tenants, Room::until(max_host_bytes, &interrupt));
        let (store, variant) = store_of(pool, of_tenants.as_deref(), of_host, seed, device)?;
        let backbone = match store {
            Store::Models(_) => None,
            Store::Adapters(_) | Store::None => Some(shared()?),
        };
        let streams = pool.runtimes.as_ref().map_or(&[][..], |runtimes| &runtimes.streams);
        let model_of = |stream: &StreamSpec| {
            Ok(Model {
                weights: Encoder::random(&stream.model, seed, stream.dtype, device)?,
                heads: Heads::random(&stream.model, tenants, stream.classes, seed, stream.dtype, device)?,
            })
        };
        let others = streams.iter().skip(1).map(model_of);
        let others = others.collect::<Result<Vec<Model>, ExecutorError>>()?;
        let weights: Vec<&Encoder> = backbone.iter().chain(others.iter().map(|other| &other.weights)).collect();
        let deployed = server.streams_of_instances().into_iter();
        let runtimes = deployed.map(|stream| room(&weights, stream.map(usize::from)));
        let runtimes = runtimes.collect::<Result<_, _>>()?;
        let instance_slots = |_| slots_of(pool, variant, slots, device);
        let tables = retrieval.as_ref().map(|retrieval| retrieval.tables().clone());
        Ok(Serving {
            manager: Manager::new(store.sets(), tables),
            heads: match &of_tenants {
                None => Heads::random(model, tenants, *classes, seed, *dtype, device)?,
                Some(paths) => Heads::read(model, tenants, (*classes, pool.heads), paths, *dtype, device)?,
            },
            backbone,
            others,
            store,
            slots: server.topology().instances.iter().map(instance_slots).collect::<Result<_, _>>()?,
            pool: pool.clone(),
            device,
            compiles: device.is_cuda(),
            seed,
            retrieval,
            runtimes,
            tagged: Arc::default(),
        })
    }

    /// Runtimes that are compiled for their length.
    fn static_runtimes(&self) -> BTreeMap<RuntimeRef, usize> {
        let streams = self.pool.runtimes.iter().flat_map(|runtimes| &runtimes.streams);
        let of_stream = |(stream, spec): (u16, &StreamSpec)| {
            let runtimes = (0_u16..).zip(spec.runtimes.clone());
            let fixed = runtimes.filter(|(_, runtime)| self.compiles && runtime.shape == ShapeKind::Static);
            let named = fixed.map(move |(runtime, spec)| (RuntimeRef { stream, runtime }, spec.max_length as usize));
            named.collect::<Vec<_>>()
        };
        (0_u16..).zip(streams).flat_map(of_stream).collect()
    }

    fn host_lane(&self, bad_slots: &BadSlots) -> HostLane {
        let others = self.others.iter().map(|other| &other.weights);
        HostLane {
            begun: BTreeMap::new(),
            retrieval: self.retrieval.clone(),
            kind: kind(self.pool.dtype),
            device: self.device,
            computed: Layers::from(self.pool.first_layer(), self.pool.model.layers),
            store: self.store.share(),
            slots: self.slots.iter().map(Slots::share).collect(),
            bad_slots: Arc::clone(bad_slots),
            manager: self.manager.share(),
            runtimes: self.runtimes.iter().map(handles).collect(),
            weights: handles(self.backbone.iter().chain(others)),
        }
    }

    fn compute_lane(&self, instance: usize, bad_slots: &BadSlots, answers: &AnswerList) -> ComputeLane {
        let others = self.others.iter().map(|other| &other.heads);
        ComputeLane {
            backbones: match self.runtimes.get(instance) {
                Some(own) => handles(own),
                None => handles(&self.backbone),
            },
            heads: [&self.heads].into_iter().chain(others).map(Heads::share).collect(),
            stream: 0,
            to_compile: self.static_runtimes(),
            compiled: BTreeMap::new(),
            slots: self.slots[instance].share(),
            largest_batch: match self.pool.runtimes {
                Some(_) => 1,
                None => self.pool.batch.max_size(),
            },
            dynamic: self
                .pool
                .runtimes
                .iter()
                .flat_map(|runtimes| &runtimes.streams)
                .any(|stream| stream.runtimes.iter().any(|runtime| runtime.shape == ShapeKind::Dynamic)),
            looks_up: self.retrieval.is_some(),
            tokens: Draws::new(self.seed, Purpose::Tokens),
            device: self.device,
            bad_slots: Arc::clone(bad_slots),
            answers: Arc::clone(answers),
            tags: (self.pool.heads == HeadTask::Tagging).then(|| Arc::clone(&self.tagged)),
            under_way: None,
        }
    }
}

/// Memory for the largest of all streams' models, as each of them would lie in it: an instance has the one that was
/// loaded last, at first that of the stream it is deployed for.
fn room(weights: &[&Encoder], deployed: Option<usize>) -> Result<Vec<Encoder>, ExecutorError> {
    let largest = weights.iter().max_by_key(|encoder| encoder.parameters().numel());
    let block = largest.expect("a pool of runtimes has a stream").parameters().f_zeros_like()?;
    let within = |encoder: &&Encoder| encoder.over(block.f_narrow(0, 0, encoder.parameters().numel() as i64)?);
    let room: Vec<Encoder> = weights.iter().map(within).collect::<Result<_, _>>()?;
    if let Some(stream) = deployed {
        room[stream].load(weights[stream].parameters())?;
    }
    Ok(room)
}

/// Handles on the same weights.
fn handles<'a>(encoders: impl IntoIterator<Item = &'a Encoder>) -> Vec<Encoder> {
    encoders.into_iter().map(Encoder::share).collect()
}

/// What each tenant has of its own, from its file or random, and which variant of the model all of them are.
fn store_of(
    pool: &PoolSpec,
    files: Option<&[PathBuf]>,
    (tenants, room): (u32, Room<'_>),
    seed: u64,
    device: Device,
) -> Result<(Store, Variant), ExecutorError> {
    let (model, dtype, first_layer) = (&pool.model, pool.dtype, pool.first_layer());
    let mut variant = OneForAll::unknown();
    let store = match (pool.tenant_state, files) {
        (TenantState::Head, _) => Store::None,
        (TenantState::Model, None) => {
            let random = ModelStore::random::<Encoder>;
            Store::Models(random(model, first_layer, tenants, seed, dtype, device, room)?)
        }
        (TenantState::Model, Some(paths)) => {
            let upper = Encoder::numbers(model, first_layer)? as i64;
            let blocks = paths.iter().map(|path| {
                let EncoderBlock {
                    parameters,
                    variant: own,
                } = read_encoder_block(path, model, dtype)?;
                variant.agree(path, own)?;
                Ok(parameters.f_narrow(0, parameters.size()[0] - upper, upper)?)
            });
            let of = ModelStore::of_blocks::<Encoder>;
            Store::Models(of(model, first_layer, tenants, dtype, device, room, blocks)?)
        }
        (TenantState::Adapters { bottleneck, .. }, files) => {
            let adapter = AdapterShape::upper(model, first_layer, bottleneck)?;
            Store::Adapters(match files {
                None => AdapterStore::random(adapter, tenants, seed, dtype, device, room)?,
                Some(paths) => AdapterStore::read(adapter, tenants, paths, dtype, device, room)?,
            })
        }
    };
    Ok((store, variant.get().unwrap_or(Variant::BERT)))
}

/// An instance's room for tenants' own parameters.
fn slots_of(pool: &PoolSpec, variant: Variant, slots: Option<u32>, device: Device) -> Result<Slots, ExecutorError> {
    let (model, dtype, first_layer) = (&pool.model, pool.dtype, pool.first_layer());
    Ok(match (pool.tenant_state, slots) {
        (TenantState::Model, Some(slots)) => {
            let numbers = Encoder::numbers(model, first_layer)? as i64;
            let room = || Tensor::f_zeros([numbers], (kind(dtype), device));
            let slot = || Encoder::of_variant(model, variant, first_layer, room()?);
            Slots::Models(ModelSlots::of(slots, slot)?)
        }
        (
            TenantState::Adapters {
                bottleneck,
                implementation,
            },
            Some(slots),
        ) => {
            let adapter = AdapterShape::upper(model, first_layer, bottleneck)?;
            let cache = AdapterCache::new(adapter, slots, dtype, device)?;
            // An implementation that this device lacks is refused here and not in the middle of a run.
            cache.plan(&[0], 1, implementation)?;
            Slots::Adapters(cache, implementation)
        }
        _ => Slots::None,
    })
}

impl PoolServing for Serving {
    fn lanes(&self, topology: &Topology, answers: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)> {
        let bad_slots = BadSlots::default();
        let lane = |(index, lane): (usize, &Lane)| {
            let perform: Box<dyn Perform> = match lane.kind {
                LaneKind::Solve => Box::new(SolverLane),
                LaneKind::Copy | LaneKind::Lookup | LaneKind::Link | LaneKind::Disk => {
                    Box::new(self.host_lane(&bad_slots))
                }
                LaneKind::Compute => {
                    let instance = topology
                        .instances
                        .iter()
                        .position(|instance| instance.compute.index() == index)
                        .expect("a compute lane belongs to an instance");
                    Box::new(self.compute_lane(instance, &bad_slots, answers))
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
        let streams = self.pool.runtimes.as_ref().map_or(&[][..], |runtimes| &runtimes.streams);
        let mut vocabularies: Vec<u64> = streams.iter().map(|stream| stream.model.vocabulary.into()).collect();
        if vocabularies.is_empty() {
            vocabularies.push(self.pool.model.vocabulary.into());
        }
        // A class without a stream of its own goes to the last.
        let last = vocabularies.len() - 1;
        Inputs::drawn(self.seed, 0, move |of| vocabularies[usize::from(of.class).min(last)])
    }

    fn make_versions(&mut self, interrupt: &AtomicBool) -> Result<(), ExecutorError> {
        self.manager.make_versions(self.seed, self.device, interrupt)
    }

    fn has_stored_blocks(&self) -> bool {
        self.manager.has_versions()
    }

    fn lookups(&self) -> Option<Arc<Mutex<LookupCounts>>> {
        self.retrieval.as_ref().map(|retrieval| retrieval.counts())
    }

    fn host_bytes(&self) -> u64 {
        self.store.sets().map_or(0, crate::ParameterSets::host_bytes)
    }

    fn shared_sets(&self) -> Option<u32> {
        self.store.sets()?.shared()
    }

    fn missing(&self) -> Vec<String> {
        let of_files: BTreeMap<usize, &String> = self
            .heads
            .missing()
            .iter()
            .chain(self.store.missing())
            .map(|(file, reason)| (*file, reason))
            .collect();
        of_files.into_values().cloned().collect()
    }

    fn tagged(&self) -> Vec<Tagged> {
        let mut tagged = std::mem::take(&mut *self.tagged.lock().expect("no lane panics with the list"));
        tagged.sort_unstable();
        tagged
    }
}

/// Fails all members of a batch; those that failed before keep their reason. A batch without any, such as one that
/// loads a model, fails as one that has one, or its failure would not be heard.
pub(super) fn fail_all(batch: &Batch, reason: FailureReason) {
    if batch.members.is_empty() {
        let mut failures = batch.failures.lock().expect("no lane panics with the list");
        failures.push(MemberFailure { member: 0, reason });
    }
    fail_those(batch, reason, |_| true);
}

/// Likewise, these alone.
pub(super) fn fail_those(batch: &Batch, reason: FailureReason, fails: impl Fn(&Member) -> bool) {
    let those = batch.members.iter().enumerate().filter(|(_, member)| fails(member));
    let failures = those.map(|(member, _)| MemberFailure {
        member: member as u32,
        reason,
    });
    batch.failures.lock().expect("no lane panics with the list").extend(failures);
}

/// Whether a batch has nobody left to be served. What is still to be done for it would fail by what failed before, and
/// be told as an error of its own.
pub(super) fn is_lost(batch: &Batch) -> bool {
    let failures = batch.failures.lock().expect("no lane panics with the list");
    let failed: BTreeSet<u32> = failures.iter().map(|failure| failure.member).collect();
    !failed.is_empty() && failed.len() >= batch.members.len()
}

/// Tells the class that a stage has found for each of these members of a batch; who has none that is finite fails.
pub(super) fn tell(
    batch: &Batch,
    stage: u16,
    classes: impl Iterator<Item = (usize, i64)>,
    answers: &Mutex<Vec<Answer>>,
) {
    let (broken, finite): (Vec<_>, Vec<_>) = classes.partition(|(_, class)| *class == NOT_FINITE);
    fail_unanswered(batch, broken.into_iter().map(|(member, _)| member));
    let answered = finite.into_iter().map(|(member, class)| Answer {
        ticket: batch.members[member].ticket,
        stage,
        class: class as u32,
    });
    answers.lock().expect("no lane panics with the list").extend(answered);
}

/// Fails the members of a batch whose answers are not finite numbers.
pub(super) fn fail_unanswered(batch: &Batch, members: impl Iterator<Item = usize>) {
    let mut failures = batch.failures.lock().expect("no lane panics with the list");
    for member in members {
        // Who failed before has its reason: what was computed in its place may be anything.
        if failures.iter().any(|failed| failed.member == member as u32) {
            continue;
        }
        errors::note(&not_finite(batch.members[member].tenant));
        failures.push(MemberFailure {
            member: member as u32,
            reason: FailureReason::ComputeFailed,
        });
    }
}

/// The reason that members fail for which this error stopped. Its text is kept with the lane's errors.
pub(super) fn reason(error: &ExecutorError, otherwise: FailureReason) -> FailureReason {
    errors::note(error);
    match error.is_out_of_memory() {
        true => FailureReason::OutOfMemory,
        false => otherwise,
    }
}

#[cfg(test)]
mod tests;
