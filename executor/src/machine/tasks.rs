//! What the lanes of a pool of tasks do: forward passes over many tasks by the registry's operators, or over one task's own model.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tch::{Device, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::op::{Member, OpKind, Pet};
use tenantry_core::policy::coordinated::Planner;
use tenantry_core::policy::pet_work::linear_weights;
use tenantry_core::server::tasks::TaskServer;
use tenantry_core::spec::{EngineSpec, PoolSpec, Registration, TaskFile, TasksSpec};
use tenantry_core::topology::{Lane, LaneKind, Topology};
use tenantry_profiles::PetKind;
use tenantry_traces::draw::{Draws, Purpose};

use super::Batch;
use super::serving::{Answer, fail_all, reason};
use super::threads::Perform;
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;
use crate::model::{Encoder, Heads, Input};
use crate::pet::{Array, Group, Kind, Parameters, PetError, Registry, Streams, kind_named};

/// The shared models and tasks of a pool: all that must exist before the first request.
pub struct TaskServing {
    /// By index of the shared model: its name, and the heads of all tenants.
    models: Vec<(String, Heads)>,
    registry: Registry,
    /// By task, where each has a model of its own.
    own: BTreeMap<u32, Encoder>,
    host_bytes: u64,
    max_tokens: u32,
    seed: u64,
    device: Device,
}

/// What a pool's tasks depend on, beside the pool itself.
#[derive(Clone, Copy, Debug)]
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
}

impl TaskServing {
    /// Random weights for shared models and tasks. Every registration is handed to the registry, which refuses on its own what it
    /// cannot serve; what the server loads must be among the others. A task for which there is no memory is taken from the server again.
    ///
    /// # Errors
    /// A shape that cannot be built, a task that the server loads and the registry refuses, or no memory for the shared models.
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
        } = provision;
        let mut serving = TaskServing {
            models: Vec::new(),
            registry: Registry::new(kinds, max_bytes),
            own: BTreeMap::new(),
            host_bytes: 0,
            max_tokens: tasks.max_tokens,
            seed,
            device,
        };
        let shared = matches!(tasks.engine, EngineSpec::Shared { .. });
        for (index, (name, shape)) in tasks.named_models(&pool.model).enumerate() {
            let heads = Heads::random(shape, tenants, pool.classes, seed, pool.dtype, device)?;
            serving.models.push((name.to_string(), heads));
            if shared {
                let encoder = Encoder::random(shape, seed_of(seed, index as u64), pool.dtype, device)?;
                serving.registry.add_model(name, encoder).map_err(of_task)?;
            }
        }
        for registration in &tasks.registrations {
            let loaded = match shared {
                true => serving.register(registration, pool, tasks, server),
                false => serving.build(registration, pool, tasks, server),
            };
            match loaded {
                Err(error) if error.is_out_of_memory() => server.unload(registration, &error.to_string()),
                loaded => loaded?,
            }
        }
        let missing = |task: &u32| shared && serving.registry.triplet(*task).is_none();
        match (0..tenants).filter(|&task| server.task(task).is_some()).find(missing) {
            Some(task) => Err(ExecutorError::input(
                format!("task {task}"),
                "one that the registry takes",
                "one that only the server takes",
            )),
            None => Ok(serving),
        }
    }

    /// Hands one registration to the registry, with the parameters that it says it has.
    fn register(
        &mut self,
        registration: &Registration,
        pool: &PoolSpec,
        tasks: &TasksSpec,
        server: &TaskServer,
    ) -> Result<(), ExecutorError> {
        let task = registration.task;
        let parameters = match &registration.file {
            None => self.made_up(registration, pool, tasks),
            Some(TaskFile { fault: Some(_), .. }) => return Ok(()),
            Some(file) => Parameters::read(Path::new(&file.path))?.2,
        };
        let bytes = parameters.bytes();
        match self
            .registry
            .register(task, &registration.model, &registration.kind, parameters)
        {
            Err(PetError::Executor(error)) => Err(error),
            // For which the server refuses it as well, or says that they differ.
            Err(_) if server.task(task).is_none() || self.registry.triplet(task).is_some() => Ok(()),
            Err(error) => Err(of_task(error)),
            // The server found no memory for it.
            Ok(()) if server.task(task).is_none() => self.registry.remove(task).map_err(of_task),
            Ok(()) => {
                if let Err(error) = self.registry.load(task) {
                    self.registry.remove(task).map_err(of_task)?;
                    return Err(of_task(error));
                }
                self.host_bytes += bytes;
                Ok(())
            }
        }
    }

    /// A whole model for a task that the server loads.
    fn build(
        &mut self,
        registration: &Registration,
        pool: &PoolSpec,
        tasks: &TasksSpec,
        server: &TaskServer,
    ) -> Result<(), ExecutorError> {
        let task = registration.task;
        if let (Some((model, _)), false) = (server.task(task), self.own.contains_key(&task)) {
            let shape = tasks.models(&pool.model).nth(model.into());
            let shape = shape.expect("a loaded task has a model");
            let encoder = Encoder::random(shape, seed_of(self.seed, task.into()), pool.dtype, self.device)?;
            self.own.insert(task, encoder);
        }
        Ok(())
    }

    /// Random parameters, with the faults that the registration says they have.
    fn made_up(&self, registration: &Registration, pool: &PoolSpec, tasks: &TasksSpec) -> Parameters {
        let mut models = tasks.named_models(&pool.model);
        let model = models
            .find(|(name, _)| *name == registration.model)
            .map(|(_, shape)| shape);
        let shape = registration.trained_on.as_ref().or(model);
        let mut parameters = match (kind_named(&registration.kind), shape) {
            (Some(kind), Some(shape)) => kind.random(shape, &tasks.sizes, self.seed, registration.task),
            _ => Parameters::default(),
        };
        if let Some(elements) = registration.mask_elements
            && registration.kind == PetKind::MaskBert.name()
            && model.is_some_and(|shape| elements != linear_weights(shape))
        {
            // One row of so many bits, which is the size of no mask.
            let bytes = elements.div_ceil(8).min(1 << 20) as usize;
            let mask = Array::bytes(&[1, bytes], vec![0; bytes]);
            parameters.insert("layer.0.query_key_value.mask", mask);
        }
        parameters
    }

    /// Bytes of tasks' parameters in host memory, compressed.
    pub fn host_bytes(&self) -> u64 {
        self.host_bytes
    }

    /// Who does each lane's ops. `answers` receives what comes of them.
    pub fn lanes(&self, topology: &Topology, answers: &Arc<Mutex<Vec<Answer>>>) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |lane: &Lane| {
            let perform: Box<dyn Perform> = match lane.kind {
                LaneKind::Copy | LaneKind::Lookup | LaneKind::Link => Box::new(IdleLane),
                LaneKind::Solve => Box::new(PlannerLane(Planner::default())),
                LaneKind::Compute => Box::new(TaskLane {
                    models: self
                        .models
                        .iter()
                        .map(|(name, heads)| (name.clone(), heads.share()))
                        .collect(),
                    registry: self.registry.share(),
                    own: self.own.iter().map(|(task, model)| (*task, model.share())).collect(),
                    streams: None,
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
}

/// Of the weights of one among several models, the first of them by the run's own seed: neighbours' have nothing in common, whether or not
/// they are of one shape.
fn seed_of(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index << 32)
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
    registry: Registry,
    own: BTreeMap<u32, Encoder>,
    /// As many as any batch so far had.
    streams: Option<Streams>,
    max_tokens: u32,
    tokens: Draws,
    device: Device,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl TaskLane {
    fn pass(&mut self, pet: &Pet, batch: &Batch) -> Result<(), ExecutorError> {
        if self
            .streams
            .as_ref()
            .is_none_or(|streams| streams.count() < pet.streams.into())
        {
            self.streams = Some(Streams::on(self.device, pet.streams.into())?);
        }
        let streams = self.streams.as_ref().expect("there are streams from here on");
        let (name, heads) = &self.models[usize::from(pet.model)];
        let encoder = match self.own.get(&batch.members[0].tenant) {
            Some(own) => own,
            None => self.registry.model(name).expect("a batch's model is shared"),
        };
        let input = self.input(encoder, batch)?;
        let hidden = encoder.embed(&input)?;
        let layers = 0..encoder.shape().layers as usize;
        let hidden = match batch.groups.as_slice() {
            [] => encoder.layers(hidden, layers, &input, None)?,
            groups => {
                let of_tasks: Vec<Group> = groups
                    .iter()
                    .map(|group| Group {
                        task: group.task,
                        count: group.count as usize,
                        tokens: group.tokens as usize,
                    })
                    .collect();
                let mut of_tasks = self.registry.batch(name, &of_tasks).map_err(of_task)?;
                let stream_of: Vec<u32> = groups.iter().map(|group| group.stream.into()).collect();
                of_tasks.assign(&stream_of);
                of_tasks.layers(encoder, hidden, layers, &input, streams)?
            }
        };
        let tenants: Vec<u32> = batch.members.iter().map(|member| member.tenant).collect();
        let classes = heads.forward(&hidden, &tenants)?.f_argmax(1, false)?;
        // Reading the answer waits for the device.
        let classes = Vec::<i64>::try_from(&classes)?;
        let answer = |(member, class): (&Member, i64)| Answer {
            ticket: member.ticket,
            class: class as u32,
        };
        let answers = batch.members.iter().zip(classes).map(answer);
        self.answers
            .lock()
            .expect("no lane panics with the list")
            .extend(answers);
        Ok(())
    }

    /// Draws the token ids of the batch.
    fn input(&self, encoder: &Encoder, batch: &Batch) -> Result<Input, ExecutorError> {
        let vocabulary = u64::from(encoder.shape().vocabulary);
        let sequence = |member: &Member| -> Vec<i64> {
            let mut draws = self.tokens.about(member.ticket);
            (0..member.input_tokens)
                .map(|_| draws.below(vocabulary) as i64)
                .collect()
        };
        let sequences: Vec<Vec<i64>> = batch.members.iter().map(sequence).collect();
        encoder.input(&sequences, batch.shape.tokens as usize)
    }

    /// A pass over one model without tasks.
    fn warm_up(&self, encoder: &Encoder, batch: usize) -> Result<Tensor, ExecutorError> {
        let tokens = self.max_tokens as usize;
        let input = encoder.input(&vec![vec![0_i64; tokens]; batch], tokens)?;
        let layers = 0..encoder.shape().layers as usize;
        encoder.layers(encoder.embed(&input)?, layers, &input, None)
    }
}

impl Perform for TaskLane {
    fn device(&self) -> Device {
        self.device
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) {
        prepare_lane_thread();
        let shared = self.models.iter().filter_map(|(name, _)| self.registry.model(name));
        for encoder in shared.chain(self.own.values().take(1)) {
            for batch in [1, 8] {
                // What cannot run will say so when a request asks for it.
                if (0..2).any(|_| self.warm_up(encoder, batch).is_err()) {
                    return;
                }
            }
        }
        // A device that is lost will say so when a request asks for it.
        let _ = crate::device::synchronize(self.device);
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
