//! Shared models, and the tasks on them: registered as triplets, loaded and unloaded (PetS, section 3.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use tch::Device;
use tenantry_core::spec::FineTuned;
use tenantry_profiles::did_you_mean;

use super::batch::{Group, Member, PetBatch};
use super::error::PetError;
use super::kind::Kind;
use super::loaded::LoadedOperators;
use super::own_model::OwnModel;
use super::parameters::{Parameters, Reader};
use crate::device::element_bytes;
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::whole_models::WholeModel;

/// Bytes of an index on the device.
const INDEX_BYTES: u64 = 4;

/// What binds a task to its shared model and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triplet {
    /// The task.
    pub task: u32,
    /// The shared model's name.
    pub model: String,
    /// The kind's name.
    pub kind: &'static str,
}

impl std::fmt::Display for Triplet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.kind, self.model)
    }
}

#[derive(Debug)]
struct Task {
    triplet: Triplet,
    kind: &'static dyn Kind,
    parameters: Arc<Parameters>,
    /// On the device.
    resident_bytes: u64,
    operators: Option<LoadedOperators>,
}

/// Shared models and tasks, on one device with so much memory for both. Whatever is refused leaves everything else as
/// it was.
#[derive(Debug)]
pub struct Registry {
    kinds: &'static [&'static dyn Kind],
    max_bytes: u64,
    used_bytes: u64,
    models: BTreeMap<String, Encoder>,
    tasks: BTreeMap<u32, Task>,
}

impl Registry {
    /// Nothing yet; models and tasks may take `max_bytes` on the device. `kinds` are those that tasks can be of, as a
    /// rule [`KINDS`](super::KINDS).
    pub fn new(kinds: &'static [&'static dyn Kind], max_bytes: u64) -> Registry {
        Registry {
            kinds,
            max_bytes,
            used_bytes: 0,
            models: BTreeMap::new(),
            tasks: BTreeMap::new(),
        }
    }

    /// Adds a shared model under a name that tasks call it by: two of one shape are two models.
    ///
    /// # Errors
    /// A name that is taken, or no memory left.
    pub fn add_model(&mut self, name: &str, encoder: Encoder) -> Result<(), PetError> {
        let model = name.to_string();
        if self.models.contains_key(&model) {
            return Err(PetError::ModelAdded { model });
        }
        let bytes = self.room_for(encoder.device_bytes(), || format!("shared model {model}"))?;
        self.used_bytes += bytes;
        self.models.insert(model, encoder);
        Ok(())
    }

    /// Registers a task: checks its parameters and keeps them, compressed, in host memory.
    ///
    /// # Errors
    /// A task that is there already, a model or kind that is not, or parameters that do not fit.
    pub fn register(&mut self, task: u32, model: &str, kind: &str, parameters: Parameters) -> Result<(), PetError> {
        if let Some(there) = self.tasks.get(&task) {
            let registered = there.triplet.to_string();
            return Err(PetError::Registered { task, registered });
        }
        let models = self.models.keys().map(String::as_str);
        let Some(encoder) = self.models.get(model) else {
            return Err(PetError::UnknownModel {
                task,
                known: models.clone().collect::<Vec<_>>().join(", "),
                got: model.to_string(),
                near: did_you_mean(model, models),
            });
        };
        let names = self.kinds.iter().map(|kind| kind.name());
        let Some(kind) = self.kinds.iter().copied().find(|known| known.name() == kind) else {
            return Err(PetError::UnknownKind {
                task,
                known: names.clone().collect::<Vec<_>>().join(", "),
                got: kind.to_string(),
                near: did_you_mean(kind, names),
            });
        };
        let misfit = |misfit| PetError::Misfit { task, misfit };
        let reader = Reader::new(&parameters);
        let resident = kind.check(&reader, encoder.shape()).map_err(misfit)?;
        reader.finish().map_err(misfit)?;
        let resident_bytes = resident.numbers * element_bytes(encoder.kind()) + resident.indices * INDEX_BYTES;
        let triplet = Triplet {
            task,
            model: model.to_string(),
            kind: kind.name(),
        };
        let registered = Task {
            triplet,
            kind,
            parameters: Arc::new(parameters),
            resident_bytes,
            operators: None,
        };
        self.tasks.insert(task, registered);
        Ok(())
    }

    /// Registers a task from a file, which says of which model and kind it is.
    #[cfg(test)]
    pub fn register_file(&mut self, task: u32, path: &std::path::Path) -> Result<(), PetError> {
        let (model, kind, parameters) = Parameters::read(path)?;
        self.register(task, &model, &kind, parameters)
    }

    /// Brings a task onto the device; nothing happens where it is there already.
    ///
    /// # Errors
    /// A task that is not registered, no memory left, or a device that cannot compute it.
    pub fn load(&mut self, task: u32) -> Result<(), PetError> {
        let found = self.tasks.get(&task).ok_or(PetError::NotRegistered { task })?;
        if found.operators.is_some() {
            return Ok(());
        }
        let bytes = self.room_for(found.resident_bytes, || format!("task {task} ({})", found.triplet))?;
        let model = &self.models[&found.triplet.model];
        let operators = tch::no_grad(|| found.kind.load(&Reader::new(&found.parameters), model))?;
        let found = self.tasks.get_mut(&task).expect("the task was just found");
        found.operators = Some(LoadedOperators::new(operators));
        self.used_bytes += bytes;
        Ok(())
    }

    /// A registered task's full model: its shared model's with its parameters merged in, in memory of its own on that
    /// device.
    ///
    /// # Errors
    /// A task that is not registered, no memory, or a device that cannot compute it.
    pub fn own_model(&self, task: u32, fine_tuned: FineTuned, device: Device) -> Result<OwnModel, PetError> {
        self.merged(task, fine_tuned, |shared| shared.copy_to(device))
    }

    /// The same, but with the embedding of another full model of that shared model, on whose device it is: only layers
    /// are in memory of its own.
    ///
    /// # Errors
    /// As [`own_model`](Self::own_model), or a model of another shape.
    pub fn own_layers(&self, task: u32, fine_tuned: FineTuned, beside: &OwnModel) -> Result<OwnModel, PetError> {
        self.merged(task, fine_tuned, |shared| shared.copy_beside(beside.encoder()))
    }

    fn merged(
        &self,
        task: u32,
        fine_tuned: FineTuned,
        copy: impl FnOnce(&Encoder) -> Result<Encoder, ExecutorError>,
    ) -> Result<OwnModel, PetError> {
        let found = self.tasks.get(&task).ok_or(PetError::NotRegistered { task })?;
        let copied = copy(&self.models[&found.triplet.model])?;
        let parameters = Reader::new(&found.parameters);
        Ok(OwnModel::new(copied, found.kind, &parameters, fine_tuned)?)
    }

    /// Takes a task off the device; it stays registered. A batch that holds it keeps its memory until the batch is
    /// dropped.
    ///
    /// # Errors
    /// A task that is not registered.
    pub fn unload(&mut self, task: u32) -> Result<(), PetError> {
        let found = self.tasks.get_mut(&task).ok_or(PetError::NotRegistered { task })?;
        if found.operators.take().is_some() {
            self.used_bytes -= found.resident_bytes;
        }
        Ok(())
    }

    /// Takes a task off the device and forgets it.
    ///
    /// # Errors
    /// A task that is not registered.
    pub fn remove(&mut self, task: u32) -> Result<(), PetError> {
        self.unload(task)?;
        self.tasks.remove(&task);
        Ok(())
    }

    /// A batch of loaded tasks, all of one shared model, in the order of its sequences.
    ///
    /// # Errors
    /// A task that is not registered, not loaded or of another model, or a mini-batch without sequences or tokens.
    pub fn batch(&self, model: &str, groups: &[Group]) -> Result<PetBatch, PetError> {
        let mut first = 0;
        let member = |&Group { task, count, tokens }: &Group| {
            for (what, size) in [("sequences", count), ("tokens", tokens)] {
                if size == 0 {
                    let what = format!("{what} of the mini-batch of task {task}");
                    return Err(ExecutorError::input(what, "at least 1", 0).into());
                }
            }
            let found = self.tasks.get(&task).ok_or(PetError::NotRegistered { task })?;
            if found.triplet.model != model {
                return Err(PetError::OtherModel {
                    task,
                    model: model.to_string(),
                    got: found.triplet.model.clone(),
                });
            }
            let operators = found.operators.as_ref().ok_or(PetError::NotLoaded { task })?;
            let member = Member {
                operators: operators.clone(),
                first,
                count: count as i64,
                tokens: tokens as i64,
                stream: 0,
            };
            first += member.count;
            Ok(member)
        };
        Ok(PetBatch::new(groups.iter().map(member).collect::<Result<_, _>>()?))
    }

    /// The shared model of this name.
    pub fn model(&self, name: &str) -> Option<&Encoder> {
        self.models.get(name)
    }

    /// A task's triplet, if it is registered.
    pub fn triplet(&self, task: u32) -> Option<&Triplet> {
        self.tasks.get(&task).map(|task| &task.triplet)
    }

    /// Bytes that a task takes, or would take, on the device; and in the repository.
    #[cfg(test)]
    pub fn task_bytes(&self, task: u32) -> Option<(u64, u64)> {
        let bytes = |task: &Task| (task.resident_bytes, task.parameters.bytes());
        self.tasks.get(&task).map(bytes)
    }

    /// Bytes that shared models and loaded tasks take on the device.
    #[cfg(test)]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Another handle on the same memory, for another thread. What is registered or loaded later through one is not
    /// seen through the other.
    pub fn share(&self) -> Registry {
        let task = |task: &Task| Task {
            triplet: task.triplet.clone(),
            parameters: Arc::clone(&task.parameters),
            operators: task.operators.clone(),
            ..*task
        };
        Registry {
            models: self.models.iter().map(|(name, model)| (name.clone(), model.share())).collect(),
            tasks: self.tasks.iter().map(|(id, of)| (*id, task(of))).collect(),
            ..*self
        }
    }

    /// `bytes`, if they fit what is left.
    fn room_for(&self, bytes: u64, what: impl FnOnce() -> String) -> Result<u64, PetError> {
        let free_bytes = self.max_bytes.saturating_sub(self.used_bytes);
        if bytes > free_bytes {
            return Err(PetError::OutOfMemory {
                what: what(),
                bytes,
                free_bytes,
                max_bytes: self.max_bytes,
            });
        }
        Ok(bytes)
    }
}
