//! What the lanes of a pool of tasks do: forward passes over many tasks by the registry's operators, or over one task's
//! own model.

mod origin;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tch::{Device, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::op::{OpKind, Pet};
use tenantry_core::policy::coordinated::Planner;
use tenantry_core::server::tasks::TaskServer;
use tenantry_core::spec::{EngineSpec, PoolSpec, Registration, TaskFile, TasksSpec};
use tenantry_core::topology::{Lane, LaneKind, Topology};
use tenantry_traces::draw::{Draws, Purpose};

use self::origin::Origin;
use super::Batch;
use super::first_passes::first_passes;
use super::inputs::{Inputs, ids_of};
use super::pool_serving::{AnswerList, PoolServing};
use super::serving::{fail_all, reason, tell};
use super::threads::Perform;
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;
use crate::files::Files;
use crate::likeliest::likeliest;
use crate::model::{Encoder, Heads, Input, LinearParameters, Pooler, Poolers};
use crate::pet::{Array, Group, Kind, OwnModel, PetError, Registry, StoredHead, Streams};

/// The shared models and tasks of a pool: all that must exist before the first request.
pub struct TaskServing {
    /// By index of the shared model: its name, and the heads of all tenants.
    models: Vec<(String, Heads)>,
    /// Before the heads of those tasks that brought one.
    poolers: Poolers,
    registry: Registry,
    /// By task, where each has a model of its own.
    own: BTreeMap<u32, OwnModel>,
    /// By task, how many tokens its model knows.
    vocabularies: BTreeMap<u32, u64>,
    host_bytes: u64,
    max_batch: u32,
    max_tokens: u32,
    known_streams: u32,
    seed: u64,
    device: Device,
}

/// What a pool's tasks depend on, beside the pool itself.
#[derive(Clone, Debug)]
pub struct TaskProvision {
    /// How many tenants.
    pub tenants: u32,
    /// Of weights and token ids.
    pub seed: u64,
    /// Where is computed.
    pub device: Device,
    /// Memory for shared models and tasks.
    pub max_bytes: u64,
    /// That tasks can be of: as a rule [`KINDS`](crate::pet::KINDS).
    pub kinds: &'static [&'static dyn Kind],
    /// The shared models' weights, where they are not random.
    pub files: Files,
    /// Set by who does not wait until all are registered.
    pub interrupt: Arc<AtomicBool>,
}

impl TaskServing {
    /// Shared models and tasks, from files or of random weights. Every registration is handed to the registry, which
    /// refuses on its own what it cannot serve; what the server loads must be among the others. A task for which there
    /// is no memory is taken from the server again.
    ///
    /// # Errors
    /// A shape that cannot be built, files that cannot be read or are of another shape, a task that the server loads
    /// and the registry refuses, no memory for the shared models, or the user stopped it.
    pub fn new(
        pool: &PoolSpec,
        tasks: &TasksSpec,
        server: &mut TaskServer,
        provision: TaskProvision,
    ) -> Result<TaskServing, ExecutorError> {
        let TaskProvision {
            tenants,
            seed,
            device,
            max_bytes,
            kinds,
            files,
            interrupt,
        } = provision;
        let origin = Origin {
            pool,
            tasks,
            files: &files,
            seed,
        };
        let mut serving = TaskServing {
            models: Vec::new(),
            poolers: Poolers::default(),
            registry: Registry::new(kinds, max_bytes),
            own: BTreeMap::new(),
            vocabularies: BTreeMap::new(),
            host_bytes: 0,
            max_batch: tasks.max_batch,
            max_tokens: tasks.max_tokens,
            known_streams: tasks.known_streams(),
            seed,
            device,
        };
        let shared = matches!(tasks.engine, EngineSpec::Shared { .. });
        for (name, shape) in tasks.named_models(&pool.model) {
            let heads = Heads::random(shape, tenants, pool.classes, seed, pool.dtype, device)?;
            serving.models.push((name.to_string(), heads));
            if shared {
                let model = origin.model(name, device)?;
                serving.registry.add_model(name, model).map_err(of_task)?;
            }
        }
        let mut merged_from = MergedFrom {
            registry: Registry::new(kinds, u64::MAX),
            first: BTreeMap::new(),
        };
        for (position, registration) in tasks.registrations.iter().enumerate() {
            ExecutorError::if_set(&interrupt)?;
            let is_loaded = server.loaded_by(registration.task) == Some(position as u32);
            let mut models = tasks.named_models(&pool.model);
            if let (true, Some((_, shape))) = (is_loaded, models.find(|(name, _)| *name == registration.model)) {
                serving.vocabularies.insert(registration.task, shape.vocabulary.into());
            }
            let loaded = match shared {
                true => serving.register(registration, &origin, is_loaded),
                false if is_loaded => serving.build(registration, &origin, &mut merged_from),
                false => Ok(()),
            };
            match loaded {
                // Of one that the server refused nothing is loaded.
                Err(error) if error.is_out_of_memory() && !is_loaded => {}
                Err(error) if error.is_out_of_memory() => server.unload(registration, &error.to_string()),
                loaded => loaded?,
            }
        }
        let missing = |task: &u32| match shared {
            true => serving.registry.triplet(*task).is_none(),
            false => !serving.own.contains_key(task),
        };
        match (0..tenants).filter(|&task| server.loaded_by(task).is_some()).find(missing) {
            Some(task) => Err(ExecutorError::input(
                format!("task {task}"),
                "one that the registry takes",
                "one that only the server takes",
            )),
            None => Ok(serving),
        }
    }

    /// Hands one registration to the registry, with the parameters that it says it has; it stays there if the server
    /// loads its task by it.
    fn register(
        &mut self,
        registration: &Registration,
        origin: &Origin<'_>,
        is_loaded: bool,
    ) -> Result<(), ExecutorError> {
        let task = registration.task;
        let Some(handed) = hand_in(registration, origin, &mut self.registry)? else {
            return Ok(());
        };
        if !is_loaded {
            // The server found no memory for it.
            return self.registry.remove(task).map_err(of_task);
        }
        if let Err(error) = self.registry.load(task) {
            self.registry.remove(task).map_err(of_task)?;
            return Err(of_task(error));
        }
        self.host_bytes += handed.bytes;
        self.put_head(registration, handed)
    }

    /// Makes a full model of one registration, by which the server loads its task.
    fn build(
        &mut self,
        registration: &Registration,
        origin: &Origin<'_>,
        merged_from: &mut MergedFrom,
    ) -> Result<(), ExecutorError> {
        let (task, model) = (registration.task, registration.model.as_str());
        let MergedFrom { registry, first } = merged_from;
        if registry.model(model).is_none() && origin.find(model).is_some() {
            let shared = origin.model(model, Device::Cpu)?;
            registry.add_model(model, shared).map_err(of_task)?;
        }
        let Some(handed) = hand_in(registration, origin, registry)? else {
            return Ok(());
        };
        let full = origin.tasks.engine.full_models().expect("an engine of full models");
        let beside = first.get(model).filter(|_| !full.own_embeddings);
        let own = match beside {
            Some(other) => registry.own_layers(task, full.fine_tuned, &self.own[other]),
            None => registry.own_model(task, full.fine_tuned, self.device),
        };
        registry.remove(task).map_err(of_task)?;
        self.own.insert(task, own.map_err(of_task)?);
        first.entry(model.to_owned()).or_insert(task);
        self.put_head(registration, handed)
    }

    /// Takes a task's own head, where it has one.
    fn put_head(&mut self, registration: &Registration, handed: Handed) -> Result<(), ExecutorError> {
        let Some(Head { linear, pooler }) = handed.head else {
            return Ok(());
        };
        if let Some(Pooler { dense, activation }) = pooler {
            let dense = LinearParameters {
                weight: dense.weight.f_to(self.device)?,
                bias: dense.bias.f_to(self.device)?,
            };
            self.poolers.put(registration.task, Pooler { dense, activation });
        }
        let (_, heads) = self
            .models
            .iter()
            .find(|(name, _)| *name == registration.model)
            .expect("a task that was taken has a model");
        heads.put(registration.task, &linear.weight, &linear.bias)
    }
}

impl PoolServing for TaskServing {
    fn lanes(&self, topology: &Topology, answers: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |lane: &Lane| {
            let perform: Box<dyn Perform> = match lane.kind {
                LaneKind::Copy | LaneKind::Lookup | LaneKind::Link | LaneKind::Disk => Box::new(IdleLane),
                LaneKind::Solve => Box::new(PlannerLane(Planner::default())),
                LaneKind::Compute => Box::new(TaskLane {
                    models: self.models.iter().map(|(name, heads)| (name.clone(), heads.share())).collect(),
                    poolers: self.poolers.share(),
                    registry: self.registry.share(),
                    own: self.own.iter().map(|(task, model)| (*task, model.share())).collect(),
                    streams: None,
                    known_streams: self.known_streams,
                    max_batch: self.max_batch,
                    max_tokens: self.max_tokens,
                    tokens: Draws::new(self.seed, Purpose::Tokens),
                    device: self.device,
                    answers: Arc::clone(answers),
                }),
            };
            (lane.clone(), perform)
        };
        topology.lanes.iter().map(lane).collect()
    }

    fn inputs(&self) -> Inputs {
        let vocabularies = self.vocabularies.clone();
        // Who is answered has a task that was loaded.
        Inputs::drawn(self.seed, 0, move |of| vocabularies[&of.tenant])
    }

    fn host_bytes(&self) -> u64 {
        self.host_bytes
    }
}

/// What full models are made from.
struct MergedFrom {
    /// In host memory, until they are made.
    registry: Registry,
    /// Of each shared model the first task with a full one, with whose embedding the others compute where they have
    /// none of their own.
    first: BTreeMap<String, u32>,
}

/// What a task brought beside its operators.
struct Handed {
    /// Of all its parameters, compressed.
    bytes: u64,
    head: Option<Head>,
}

/// A task's own head, in host memory.
struct Head {
    /// The classification layer.
    linear: LinearParameters,
    pooler: Option<Pooler>,
}

impl Head {
    fn read(stored: StoredHead<'_>) -> Result<Head, ExecutorError> {
        let linear = |[weight, bias]: [&Array; 2]| -> Result<LinearParameters, ExecutorError> {
            Ok(LinearParameters {
                weight: weight.tensor()?,
                bias: bias.tensor()?,
            })
        };
        let pooler = stored.pooler.map(|(dense, activation)| -> Result<Pooler, ExecutorError> {
            let dense = linear(dense)?;
            Ok(Pooler { dense, activation })
        });
        Ok(Head {
            linear: linear(stored.linear)?,
            pooler: pooler.transpose()?,
        })
    }
}

/// Hands a registration to a registry. Nothing comes of one that it refuses: the server does so too, and says why.
fn hand_in(
    registration: &Registration,
    origin: &Origin<'_>,
    registry: &mut Registry,
) -> Result<Option<Handed>, ExecutorError> {
    if let Some(TaskFile { fault: Some(_), .. }) = registration.file {
        return Ok(None);
    }
    let parameters = origin.parameters(registration)?;
    let bytes = parameters.bytes();
    let head = match origin.find(&registration.model) {
        None => None,
        Some((_, shape)) => match parameters.head(shape, origin.pool.classes) {
            Ok(head) => head.map(Head::read),
            Err(_) => return Ok(None),
        },
    };
    let head = head.transpose()?;
    match registry.register(registration.task, &registration.model, &registration.kind, parameters) {
        Err(PetError::Executor(error)) => Err(error),
        Err(_) => Ok(None),
        Ok(()) => Ok(Some(Handed { bytes, head })),
    }
}

/// What the registry says of a task that a batch names.
fn of_task(error: PetError) -> ExecutorError {
    match error {
        PetError::Executor(error) => error,
        other => ExecutorError::input("tasks", "registered and loaded", other),
    }
}

/// All tasks lie on the device: nothing is copied or looked up.
struct IdleLane;

impl Perform for IdleLane {
    fn perform(&mut self, _: &OpKind, _: &Batch) {
        unreachable!("a pool of tasks copies nothing")
    }
}

/// Splits pools into batches.
struct PlannerLane(Planner);

impl Perform for PlannerLane {
    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let OpKind::PlanPool(plan) = kind else {
            unreachable!("a planner plans")
        };
        let question = batch.pool.as_ref().expect("a planner is asked something");
        let mut answer = batch.plan.lock().expect("no lane panics with the plan");
        self.0.answer(question, plan.model, answer.get_or_insert_default());
    }
}

/// Runs forward passes of one instance.
struct TaskLane {
    models: Vec<(String, Heads)>,
    poolers: Poolers,
    registry: Registry,
    own: BTreeMap<u32, OwnModel>,
    /// As many as are known to be needed, or as any batch so far had: to begin them takes longer than a batch.
    streams: Option<Streams>,
    known_streams: u32,
    max_batch: u32,
    max_tokens: u32,
    tokens: Draws,
    device: Device,
    answers: AnswerList,
}

impl TaskLane {
    fn pass(&mut self, pet: &Pet, batch: &Batch) -> Result<(), ExecutorError> {
        let lacks = |streams: &Streams| streams.count() < pet.streams.into();
        if self.streams.as_ref().is_none_or(lacks) {
            self.streams = Some(Streams::on(self.device, pet.streams.into())?);
        }
        let streams = self.streams.as_ref().expect("there are streams from here on");
        let (name, heads) = &self.models[usize::from(pet.model)];
        let own = self.own.get(&batch.members[0].tenant);
        let encoder = match own {
            Some(own) => own.encoder(),
            None => self.registry.model(name).expect("a batch's model is shared"),
        };
        let input = self.input(encoder, batch)?;
        let hidden = encoder.embed(&input)?;
        let hidden = match own {
            Some(own) => own.layers(hidden, &input, streams)?,
            None => {
                let of_tasks: Vec<Group> = batch
                    .groups
                    .iter()
                    .map(|group| Group {
                        task: group.task,
                        count: group.count as usize,
                        tokens: group.tokens as usize,
                    })
                    .collect();
                let mut of_tasks = self.registry.batch(name, &of_tasks).map_err(of_task)?;
                let stream_of: Vec<u32> = batch.groups.iter().map(|group| group.stream.into()).collect();
                of_tasks.assign(&stream_of);
                let layers = 0..encoder.shape().layers as usize;
                of_tasks.layers(encoder, hidden, layers, &input, streams)?
            }
        };
        let tenants: Vec<u32> = batch.members.iter().map(|member| member.tenant).collect();
        let classes = self.classes(heads, &hidden, &tenants)?;
        tell(batch, 0, classes.into_iter().enumerate(), &self.answers);
        Ok(())
    }

    /// Draws the token ids of the batch.
    fn input(&self, encoder: &Encoder, batch: &Batch) -> Result<Input, ExecutorError> {
        let vocabulary = u64::from(encoder.shape().vocabulary);
        let ids = |member| ids_of(self.tokens, vocabulary, member);
        let sequences: Vec<Vec<i64>> = batch.members.iter().map(ids).collect();
        encoder.input(&sequences, batch.shape.tokens as usize)
    }

    /// Passes over nothing in particular: over a shared model with each kind's operators, or over some task's own.
    fn warm_up(&self, batch: usize, tokens: usize) -> Result<(), ExecutorError> {
        let streams = self.streams.as_ref().expect("there are streams from here on");
        let begin = |encoder: &Encoder| {
            let input = encoder.input(&vec![vec![0_i64; tokens]; batch], tokens)?;
            let hidden = encoder.embed(&input)?;
            Ok::<_, ExecutorError>((input, hidden))
        };
        for (name, heads) in &self.models {
            let Some(encoder) = self.registry.model(name) else {
                continue;
            };
            for task in self.one_of_each_kind(name, heads.tenants()) {
                // A group on each stream, whose threads have kernels of their own to load.
                let busy = (streams.count() as usize).min(batch);
                let count = |stream: usize| batch / busy + usize::from(stream < batch % busy);
                let groups: Vec<Group> = (0..busy)
                    .map(|stream| Group {
                        task,
                        count: count(stream),
                        tokens,
                    })
                    .collect();
                // One that is not on the device is in no batch.
                let Ok(mut grouped) = self.registry.batch(name, &groups) else {
                    continue;
                };
                grouped.assign(&(0..busy as u32).collect::<Vec<_>>());
                let (input, hidden) = begin(encoder)?;
                let layers = 0..encoder.shape().layers as usize;
                let hidden = grouped.layers(encoder, hidden, layers, &input, streams)?;
                let _ = self.classes(heads, &hidden, &vec![task; batch])?;
            }
        }
        if let Some(own) = self.own.values().next() {
            let (input, hidden) = begin(own.encoder())?;
            let _ = own.layers(hidden, &input, streams)?;
        }
        Ok(())
    }

    /// Of the tasks that share a model, the first of each kind.
    fn one_of_each_kind(&self, model: &str, tenants: u32) -> impl Iterator<Item = u32> {
        let mut of_kind = BTreeMap::new();
        for triplet in (0..tenants).filter_map(|task| self.registry.triplet(task)) {
            if triplet.model == model {
                of_kind.entry(triplet.kind).or_insert(triplet.task);
            }
        }
        of_kind.into_values()
    }

    /// The likeliest class of each text, by its task's pooler and head. Reading them waits for the device.
    fn classes(&self, heads: &Heads, hidden: &Tensor, tenants: &[u32]) -> Result<Vec<i64>, ExecutorError> {
        let pooled = self.poolers.forward(hidden, tenants)?;
        Ok(Vec::<i64>::try_from(&likeliest(&heads.forward(&pooled, tenants)?)?)?)
    }
}

impl Perform for TaskLane {
    fn device(&self) -> Device {
        self.device
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        self.streams = Some(Streams::on(self.device, self.known_streams)?);
        for (batch, tokens) in first_passes(self.device, self.max_batch as usize, self.max_tokens as usize) {
            self.warm_up(batch, tokens)?;
        }
        crate::device::synchronize(self.device)
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let OpKind::Pet(pet) = kind else {
            unreachable!("a lane of tasks runs passes over them")
        };
        if let Err(error) = self.pass(pet, batch) {
            fail_all(batch, reason(&error, FailureReason::ComputeFailed));
        }
    }
}

#[cfg(test)]
mod tests;
