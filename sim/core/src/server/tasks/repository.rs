//! Which tasks there are and which of them lie on the cards: registered as triplets of task, shared model and kind,
//! then loaded (PetS, section 3.3). Whatever is wrong with one is that one's alone: the others are served.

use tenantry_profiles::{ModelShape, PetKind, near_miss};

use crate::command::TaskFault;
use crate::pet::work::{activation_bytes, mask_elements, resident_bytes};
use crate::server::ServerError;
use crate::spec::{ClusterSpec, EngineSpec, PoolSpec, Registration, TasksSpec};

/// A task that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// Index of its shared model.
    pub model: u16,
    pub kind: PetKind,
    /// Position among the loaded tasks.
    pub position: u32,
    /// Position of its registration among all.
    pub registration: u32,
    /// Of its own parameters on each card, and of its head with its pooler.
    own_bytes: u64,
    head_bytes: u64,
    /// That the host keeps of both, where it shares the card's memory.
    kept_bytes: u64,
}

/// What there is of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Registrations that came.
    pub registrations: u32,
    /// Tasks that lie on each card.
    pub loaded: u32,
    /// Of those, how many had been loaded when one found no memory for the first time; all where none did.
    pub loaded_until_full: u32,
    /// Registrations that were refused, by reason.
    pub refused: Vec<(TaskFault, u32)>,
    /// By kind: loaded tasks, and bytes of their own parameters on each card, heads apart.
    pub by_kind: Vec<(PetKind, u32, u64)>,
    /// Kept free for activations on each card, in bytes.
    pub activation_bytes: u64,
    /// The most queries of a batch: as asked for, or as many as activations leave.
    pub max_batch: u32,
    /// Pools that were taken up, to be split into batches where that is to be done.
    pub plans: u64,
    /// Mini-batches that ran.
    pub groups: u64,
}

/// By tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Unknown,
    Refused(TaskFault),
    Loaded(Task),
}

/// The tasks of a system, the same on each card.
#[derive(Debug)]
pub(crate) struct Repository {
    entries: Vec<Entry>,
    pub counts: TaskCounts,
    /// Why registrations were refused, each with the place where it says what is wrong; of those for which memory is
    /// exhausted the first.
    pub refusals: Vec<String>,
    /// Shared models, activations and what models have in common.
    pub shared_bytes: u64,
    /// Loaded tasks with their heads, and what the host keeps of them there.
    pub tasks_bytes: u64,
    pub card_bytes: u64,
    shares_host_memory: bool,
}

impl Repository {
    /// Registers and loads what comes, for tenants `0..tenants`.
    ///
    /// # Errors
    /// Shared models that do not fit beside one query's activations.
    pub fn new(
        cluster: &ClusterSpec,
        pool: &PoolSpec,
        tasks: &TasksSpec,
        tenants: u32,
    ) -> Result<Repository, ServerError> {
        let models: Vec<(&str, &ModelShape)> = tasks.named_models(&pool.model).collect();
        let number = pool.dtype.bytes();
        let common_bytes: u64 = models.iter().map(|(_, shape)| number * common_parameters(shape, &tasks.engine)).sum();
        let at_once = u64::from(tasks.batches_at_once());
        let of_query = models
            .iter()
            .map(|(_, shape)| activation_bytes(shape, tasks.max_tokens) * at_once)
            .max()
            .expect("a pool has a model");
        let available = cluster.gpu_memory_bytes;
        let room = available.checked_sub(common_bytes).filter(|&room| room >= of_query);
        let room = room.ok_or_else(|| ServerError::BackboneDoesNotFit {
            model: models.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            needed_bytes: common_bytes + of_query,
            available_bytes: available,
        })?;
        let max_batch = u64::from(tasks.max_batch).min(room / of_query) as u32;
        let activation_bytes = u64::from(max_batch) * of_query;
        let mut repository = Repository {
            entries: vec![Entry::Unknown; tenants as usize],
            counts: TaskCounts {
                registrations: tasks.registrations.len() as u32,
                activation_bytes,
                max_batch,
                ..TaskCounts::default()
            },
            refusals: Vec::new(),
            shared_bytes: common_bytes + activation_bytes,
            tasks_bytes: 0,
            card_bytes: available,
            shares_host_memory: cluster.shares_host_memory,
        };
        for (nth, registration) in tasks.registrations.iter().enumerate() {
            repository.take(nth as u32, registration, &models, pool, tasks);
        }
        Ok(repository)
    }

    /// One registration, and the loading of its task.
    fn take(
        &mut self,
        nth: u32,
        registration: &Registration,
        models: &[(&str, &ModelShape)],
        pool: &PoolSpec,
        tasks: &TasksSpec,
    ) {
        let task = registration.task as usize;
        assert!(task < self.entries.len(), "tasks are tenants");
        if let Entry::Loaded(there) = self.entries[task] {
            let must = "registered once";
            let got = format!(
                "a second registration (it is {} of {})",
                there.kind,
                models[usize::from(there.model)].0
            );
            self.refuse(
                registration,
                Refusal::new(TaskFault::RegisteredTwice, &registration.at, "task", must, got),
            );
            return;
        }
        let checked = checked(registration, models);
        let loaded = checked.and_then(|checked| self.load(nth, registration, checked, (pool, tasks)));
        self.entries[task] = match loaded {
            Ok(task) => Entry::Loaded(task),
            Err(refusal) => {
                let fault = refusal.fault;
                self.refuse(registration, refusal);
                Entry::Refused(fault)
            }
        };
    }

    /// Takes a task whose header and file are as they must be, as long as there is room on the card.
    fn load(
        &mut self,
        nth: u32,
        registration: &Registration,
        Checked { index, model, kind }: Checked<'_>,
        (pool, tasks): (&PoolSpec, &TasksSpec),
    ) -> Result<Task, Refusal> {
        let file = registration.file.as_ref();
        let number = pool.dtype.bytes();
        let operators_bytes = match tasks.engine.has_operators(kind) {
            true => file
                .and_then(|file| file.resident_bytes)
                .unwrap_or_else(|| resident_bytes(kind, model, &tasks.sizes)),
            false => 0,
        };
        let full_model = tasks.engine.full_models();
        let model_bytes = full_model.map_or(0, |of| number * full_parameters(model, of.own_embeddings));
        let own_bytes = model_bytes + operators_bytes;
        let pooled = file.is_some_and(|file| file.pooled);
        let pooler = if pooled { model.pooler_parameters() } else { 0 };
        let head_bytes = number * (model.head_parameters(pool.classes) + pooler);
        // The host's repository keeps what is added to a shared model (PetS, section 3.3); a full model is read from
        // where it was stored.
        let kept_bytes = match self.shares_host_memory {
            true => operators_bytes + head_bytes,
            false => 0,
        };
        let bytes = own_bytes + head_bytes + kept_bytes;
        if self.shared_bytes + self.tasks_bytes + bytes > self.card_bytes {
            let left = self.card_bytes - self.shared_bytes - self.tasks_bytes;
            return Err(Refusal {
                fault: TaskFault::OutOfMemory,
                why: format!(
                    "{}: must fit the {left} bytes left of {}, got {bytes} bytes",
                    registration.place(),
                    self.card_bytes
                ),
            });
        }
        self.tasks_bytes += bytes;
        let position = self.counts.loaded;
        self.counts.loaded += 1;
        let full = self.counts.refused.iter().any(|(fault, _)| *fault == TaskFault::OutOfMemory);
        self.counts.loaded_until_full += u32::from(!full);
        let by_kind = &mut self.counts.by_kind;
        match by_kind.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + own_bytes),
            None => by_kind.push((kind, 1, own_bytes)),
        }
        by_kind.sort_unstable();
        Ok(Task {
            model: index,
            kind,
            position,
            registration: nth,
            own_bytes,
            head_bytes,
            kept_bytes,
        })
    }

    /// A loaded task for which the machine found no memory, whatever the sizes say. All others stay, and none comes in
    /// its place.
    pub fn unload(&mut self, registration: &Registration, got: &str) {
        let entry = &mut self.entries[registration.task as usize];
        let Entry::Loaded(task) = *entry else {
            unreachable!("only loaded tasks are brought into memory")
        };
        *entry = Entry::Refused(TaskFault::OutOfMemory);
        self.tasks_bytes -= task.own_bytes + task.head_bytes + task.kept_bytes;
        self.counts.loaded -= 1;
        self.counts.loaded_until_full = self.counts.loaded_until_full.min(task.position);
        let of_kind = self.counts.by_kind.iter_mut().find(|(kind, ..)| *kind == task.kind);
        let (_, count, bytes) = of_kind.expect("a loaded task is of a kind that is counted");
        (*count, *bytes) = (*count - 1, *bytes - task.own_bytes);
        self.counts.by_kind.retain(|(_, count, _)| *count > 0);
        let why = format!("{}: must fit the memory that there is, got {got}", registration.place());
        let fault = TaskFault::OutOfMemory;
        self.refuse(registration, Refusal { fault, why });
    }

    fn refuse(&mut self, registration: &Registration, refusal: Refusal) {
        let Refusal { fault, why } = refusal;
        let refused = &mut self.counts.refused;
        let full = refused.iter().any(|(known, _)| *known == TaskFault::OutOfMemory);
        if fault != TaskFault::OutOfMemory || !full {
            self.refusals.push(format!("task {}: {why}", registration.task));
        }
        match refused.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, count)) => *count += 1,
            None => refused.push((fault, 1)),
        }
        refused.sort_unstable();
    }

    pub fn entry(&self, tenant: u32) -> Entry {
        self.entries.get(tenant as usize).copied().unwrap_or(Entry::Unknown)
    }

    /// Which kinds loaded tasks have.
    pub fn kinds(&self) -> impl Iterator<Item = PetKind> + '_ {
        self.counts.by_kind.iter().map(|(kind, ..)| *kind)
    }
}

/// Why a registration is not taken.
struct Refusal {
    fault: TaskFault,
    /// Place, key, what it must be and what it is.
    why: String,
}

impl Refusal {
    /// Of a key of the scenario.
    fn new(fault: TaskFault, place: &str, key: &str, must: &str, got: String) -> Refusal {
        let why = format!("{place}.{key}: must be {must}, got {got}");
        Refusal { fault, why }
    }
}

/// Why some of a system's registrations are refused, each alone, on cards of such a cluster; of those for which memory
/// is exhausted the first.
pub fn refusals(cluster: &ClusterSpec, pool: &PoolSpec, tenants: u32) -> Vec<String> {
    let of = |tasks| Repository::new(cluster, pool, tasks, tenants).map(|of| of.refusals);
    // Shared models that do not fit are no registration's fault: whoever makes the server says so.
    pool.tasks.as_ref().and_then(|tasks| of(tasks).ok()).unwrap_or_default()
}

/// Parameters of one shape that are there once, whatever the tasks.
fn common_parameters(model: &ModelShape, engine: &EngineSpec) -> u64 {
    match engine.full_models() {
        None => model.parameters(),
        Some(full) if full.own_embeddings => 0,
        Some(_) => model.embedding_parameters(),
    }
}

/// Parameters of a task's full model.
fn full_parameters(model: &ModelShape, own_embeddings: bool) -> u64 {
    match own_embeddings {
        true => model.parameters(),
        false => u64::from(model.layers) * model.layer_parameters(),
    }
}

/// Whether parameters of one fit the layers of the other; names and embeddings do not matter.
fn same_layers(a: &ModelShape, b: &ModelShape) -> bool {
    (a.layers, a.hidden, a.intermediate) == (b.layers, b.hidden, b.intermediate)
}

/// Whose model a task shares, and of which kind it is.
struct Checked<'a> {
    /// Of the shared model.
    index: u16,
    model: &'a ModelShape,
    kind: PetKind,
}

/// What a registration names, where its header and its file are as they must be.
fn checked<'a>(registration: &Registration, models: &[(&str, &'a ModelShape)]) -> Result<Checked<'a>, Refusal> {
    let file = registration.file.as_ref();
    let of_file = |fault: &TaskFault, why: &str| Refusal {
        fault: *fault,
        why: format!("{}: {why}", registration.place()),
    };
    let fault = file.and_then(|file| file.fault.as_ref());
    if let Some((fault @ TaskFault::Unreadable, why)) = fault {
        return Err(of_file(fault, why));
    }
    // What is wrong with a value, and by which key a scenario and a file say it.
    let refuse = |fault, [key, in_file]: [&str; 2], must: String, got: String| match file {
        None => Refusal::new(fault, registration.place(), key, &must, got),
        Some(_) => Refusal {
            fault,
            why: format!("{}: {in_file}: must be {must}, got {got}", registration.place()),
        },
    };
    let named = |fault, keys, known: &[&str], got: &str| {
        let near =
            near_miss(got, known.iter().copied()).map_or(String::new(), |near| format!("; did you mean {near}?"));
        refuse(
            fault,
            keys,
            format!("one of {}", known.join(", ")),
            format!("{got}{near}"),
        )
    };
    let names: Vec<&str> = models.iter().map(|(name, _)| *name).collect();
    let index = names.iter().position(|name| *name == registration.model);
    let index = index.ok_or_else(|| {
        let keys = ["model", "__metadata__.shared_model"];
        named(TaskFault::UnknownModel, keys, &names, &registration.model)
    })?;
    let model = models[index].1;
    let mut kinds = PetKind::ALL.iter().copied();
    let kind = kinds.find(|kind| kind.name() == registration.kind).ok_or_else(|| {
        let known: Vec<&str> = PetKind::ALL.iter().map(|kind| kind.name()).collect();
        named(
            TaskFault::UnknownKind,
            ["kind", "__metadata__.kind"],
            &known,
            &registration.kind,
        )
    })?;
    if let Some((fault, why)) = fault {
        return Err(of_file(fault, why));
    }
    if let Some(shape) = &registration.trained_on
        && !same_layers(shape, model)
    {
        let must = format!("a model with the layers of {}", names[index]);
        return Err(refuse(
            TaskFault::WrongShape,
            ["trained_on"; 2],
            must,
            shape.name.clone(),
        ));
    }
    if let (Some(must), Some(elements)) = (mask_elements(kind, model), registration.mask_elements)
        && elements != must
    {
        let must = format!("{must}, the weights of {}", names[index]);
        return Err(refuse(
            TaskFault::WrongMask,
            ["mask_elements"; 2],
            must,
            elements.to_string(),
        ));
    }
    Ok(Checked {
        index: index as u16,
        model,
        kind,
    })
}
