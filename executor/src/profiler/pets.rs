//! Points of PET operators: one layer's, of one task's mini-batch, for every kind (β of PetS, section 4.1).
//!
//! They are measured as they are served: several tasks' mini-batches of one batch, taken out of it one after the other
//! at each linear layer, whose shared product has just been written over the whole batch. What one mini-batch takes is
//! its part of that.

use std::cell::OnceCell;
use std::time::Duration;

use tch::{Kind as Number, Tensor};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{ConcurrentPetRow, DType, ModelShape, PetKind, PetRow, Tables};

use super::Suite;
use super::compute::{Subject, spread_out};
use super::held_out::{HoldOut, Spot};
use super::instances::STREAMS;
use super::schedule::Point;
use super::timing::timed_in_turn;
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::pet::{Linear, LoadedOperators, Member, Norm, PetBatch, Reader, Streams, kind_named};

/// Tasks of a kind that take turns, so that their parameters are not all in the processor's caches.
const TASKS: u32 = 8;
/// A batch's results at its widest linear layer are as large as this where as many sequences as are served suffice:
/// more than a core's own caches hold, so that mini-batches lie where a whole batch's shared product leaves them.
const BATCH_BYTES: u64 = 8 << 20;

/// Tasks of every kind over one model, in the sizes of PetS, Table 4.
pub(crate) struct PetSubject<'a> {
    subject: &'a Subject,
    dtype: DType,
    /// The model's first two layers: each layer's operators cost the same.
    shape: ModelShape,
    kinds: Vec<(PetKind, Vec<LoadedOperators>)>,
    /// Kinds that do not run here, with the reason.
    fails: Vec<(PetKind, String)>,
    /// All points', since one is measured at a time: room for each would be tens of gigabytes.
    room: OnceCell<Room>,
}

/// Numbers for the activations of the largest point, all of them ones.
struct Room {
    /// Inputs and results of each of [`Linear::ALL`].
    linear: Vec<[Tensor; 2]>,
    normalised: Tensor,
}

impl<'a> PetSubject<'a> {
    pub fn model(&self) -> &str {
        &self.subject.encoder.shape().name
    }

    /// Loads random tasks of every kind that runs here.
    pub fn new(subject: &'a Subject, kinds: &[PetKind], dtype: DType, seed: u64) -> Result<Self, ExecutorError> {
        let device = subject.encoder.device();
        let shape = subject.encoder.shape();
        let shape = ModelShape {
            layers: shape.layers.min(2),
            // Embeddings have no operators.
            vocabulary: 1,
            ..shape.clone()
        };
        let encoder = Encoder::random(&shape, seed, dtype, device)?;
        let mut pets = PetSubject {
            subject,
            dtype,
            shape,
            kinds: Vec::new(),
            fails: Vec::new(),
            room: OnceCell::new(),
        };
        for &name in kinds {
            let kind = kind_named(name.name()).expect("every kind of a profile is implemented");
            let task = |task| {
                let parameters = kind.random(&pets.shape, &PetSizes::PAPER, seed, task);
                let operators = kind.load(&Reader::new(&parameters), &encoder)?;
                Ok::<_, ExecutorError>(LoadedOperators::new(operators))
            };
            match tch::no_grad(|| (0..TASKS).map(task).collect::<Result<Vec<_>, _>>()) {
                Err(error) if error.is_out_of_memory() || matches!(error, ExecutorError::NoSparseProduct { .. }) => {
                    pets.fails.push((name, error.to_string()));
                }
                tasks => pets.kinds.push((name, tasks?)),
            }
        }
        Ok(pets)
    }

    /// Why there are no points of some kinds.
    pub fn fails(&self) -> impl Iterator<Item = String> + '_ {
        let name = &self.subject.encoder.shape().name;
        let note = move |(kind, reason): &(PetKind, String)| format!("{kind} on {name} does not run here: {reason}");
        self.fails.iter().map(note)
    }

    /// All points.
    pub fn points(&self, suite: Suite, hold_out: HoldOut) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (name, dtype, axes) = (&self.subject.encoder.shape().name, self.dtype, &self.subject.axes);
        let (batches, lengths) = match suite {
            Suite::Quick => (few(&axes.batch), axes.few_tokens()),
            Suite::Full => (axes.batch.clone(), axes.tokens.clone()),
        };
        let grid = batches.iter().flat_map(|&batch| lengths.iter().map(move |&tokens| [batch, tokens]));
        let spots = hold_out.spots(grid.collect(), Some);
        let mut points = Vec::new();
        for (kind, tasks) in &self.kinds {
            for &Spot {
                at: [batch, tokens],
                held_out,
            } in &spots
            {
                let (model, kind) = (name.clone(), *kind);
                let row = move |tables: &mut Tables, stats| {
                    let model = model.clone();
                    tables.pet.push(PetRow {
                        model,
                        dtype,
                        kind,
                        batch,
                        tokens,
                        stats,
                    });
                };
                let measure = self.measure(tasks, batch, tokens)?;
                points.push(Point::new(format!("pet of {name}, {kind}"), measure, row).held_out(held_out));
            }
        }
        Ok(points)
    }

    /// Points of operators on several streams at once.
    pub fn side_by_side(&self, suite: Suite, hold_out: HoldOut) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (name, dtype, axes) = (&self.subject.encoder.shape().name, self.dtype, &self.subject.axes);
        if self.kinds.is_empty() {
            return Ok(Vec::new());
        }
        let (batches, lengths) = match suite {
            Suite::Quick => (vec![axes.batch[0], axes.batch[axes.batch.len() / 2]], axes.few_tokens()),
            Suite::Full => (axes.batch.clone(), axes.fewer_tokens()),
        };
        let mut points = Vec::new();
        let lengths = &lengths;
        let grid = self.streams().flat_map(|streams| {
            let of_streams = move |&batch| lengths.iter().map(move |&tokens| [streams, batch, tokens]);
            batches.iter().flat_map(of_streams)
        });
        for Spot {
            at: [streams, batch, tokens],
            held_out,
        } in hold_out.spots(grid.collect(), Some)
        {
            let model = name.clone();
            let row = move |tables: &mut Tables, stats| {
                tables.concurrent_pet.push(ConcurrentPetRow {
                    model: model.clone(),
                    dtype,
                    streams,
                    batch,
                    tokens,
                    stats,
                });
            };
            let measure = self.measure_streams(streams, batch, tokens)?;
            points.push(Point::new(format!("concurrent_pet of {name}"), measure, row).held_out(held_out));
        }
        Ok(points)
    }

    /// A layer's operators of a mini-batch of each kind for each stream, until the last stream is done: as many
    /// whatever their size, so that more work costs more.
    fn measure_streams(
        &self,
        streams: u32,
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let kinds = self.kinds.len() as u32;
        let sequences = self.batch_of_streams(streams, batch);
        let mut activations = self.activations(sequences, tokens)?;
        let layers = self.shape.layers as usize;
        let threads = Streams::on(self.subject.encoder.device(), streams)?;
        let mut calls = 0;
        Ok(move || {
            let (layer, first) = turn(calls, layers, streams * kinds);
            let member = |group: u32| Member {
                operators: {
                    let (_, tasks) = &self.kinds[(group / streams) as usize];
                    tasks[spread_out(first + group, TASKS) as usize].clone()
                },
                first: (group * batch).into(),
                count: batch.into(),
                tokens: tokens.into(),
                stream: group % streams,
            };
            let of_tasks = PetBatch::new((0..streams * kinds).map(member).collect());
            calls += 1;
            timed_in_turn(
                self.subject.encoder.device(),
                &mut activations,
                |(_, _, y)| fill(y),
                |(linear, x, y)| tch::no_grad(|| of_tasks.operate(layer, *linear, x, y, &threads)),
            )
        })
    }

    /// Inputs and results of each linear layer, for a batch of so many sequences. Most batches are padded to more than
    /// a mini-batch's longest: rows then do not follow each other.
    fn activations(&self, sequences: u32, tokens: u32) -> Result<Vec<(Linear, Tensor, Tensor)>, ExecutorError> {
        let of = |(linear, [x, y]): (Linear, &[Tensor; 2])| {
            let (outputs, inputs) = linear.size(&self.shape);
            Ok((
                linear,
                batch_of(x, sequences, tokens, inputs)?,
                batch_of(y, sequences, tokens, outputs)?,
            ))
        };
        let linear = &self.room()?.linear;
        Linear::ALL.into_iter().zip(linear).map(of).collect()
    }

    fn room(&self) -> Result<&Room, ExecutorError> {
        if self.room.get().is_none() {
            let rows = self.rows_max();
            let (device, number) = (self.subject.encoder.device(), self.subject.encoder.kind());
            let ones = |width: usize| {
                let ones = Tensor::f_ones([rows as i64 * width as i64], (Number::Float, device))?;
                Ok::<_, ExecutorError>(ones.f_to_kind(number)?)
            };
            let of = |linear: Linear| {
                let (outputs, inputs) = linear.size(&self.shape);
                Ok([ones(inputs)?, ones(outputs)?])
            };
            let linear = Linear::ALL.into_iter().map(of).collect::<Result<_, ExecutorError>>()?;
            let normalised = ones(self.shape.hidden as usize)?;
            let _ = self.room.set(Room { linear, normalised });
        }
        Ok(self.room.get().expect("there is room by now"))
    }

    /// Tokens of the largest batch of all points, padding included.
    fn rows_max(&self) -> u64 {
        let axes = &self.subject.axes;
        let shapes = axes.batch.iter().flat_map(|&batch| axes.tokens.iter().map(move |&tokens| (batch, tokens)));
        let rows = |(batch, tokens)| {
            let alone = self.batch(batch, tokens).0;
            let beside = self.streams().map(|streams| self.batch_of_streams(streams, batch));
            u64::from(beside.max().unwrap_or(0).max(alone)) * u64::from(tokens + 1)
        };
        shapes.map(rows).max().expect("a grid has points")
    }

    /// Streams that are measured at once, as far as there are cores: each is issued to, or computed on, by a thread of
    /// its own.
    fn streams(&self) -> impl Iterator<Item = u32> {
        let cores = tenantry_profiles::cores();
        STREAMS.into_iter().filter(move |&streams| streams == 1 || streams <= cores)
    }

    /// Sequences of what several streams compute at once: a mini-batch of each kind a stream.
    fn batch_of_streams(&self, streams: u32, batch: u32) -> u32 {
        streams * self.kinds.len() as u32 * batch
    }

    /// Sequences of the batch in which mini-batches of so many lie, and mini-batches that are computed of it.
    fn batch(&self, sequences: u32, tokens: u32) -> (u32, u32) {
        let widest = self.shape.intermediate.max(3 * self.shape.hidden);
        let bytes = 4 * u64::from(widest) * u64::from(tokens + 1);
        let served = *self.subject.axes.batch.last().expect("a grid has batches");
        let all = u32::try_from(BATCH_BYTES / bytes).unwrap_or(u32::MAX);
        let all = all.min(served).max(sequences);
        (all, (all / sequences).min(TASKS))
    }

    fn measure<'b>(
        &'b self,
        tasks: &'b [LoadedOperators],
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + 'b, ExecutorError> {
        let device = self.subject.encoder.device();
        let (sequences, groups) = self.batch(batch, tokens);
        let mut activations = self.activations(sequences, tokens)?;
        let normalised = batch_of(&self.room()?.normalised, sequences, tokens, self.shape.hidden as usize)?;
        let layers = self.shape.layers as usize;
        let streams = Streams::on(self.subject.encoder.device(), 1)?;
        let mut calls = 0;
        Ok(move || {
            let (layer, first) = turn(calls, layers, groups);
            let member = |group: u32| Member {
                operators: tasks[spread_out(first + group, TASKS) as usize].clone(),
                first: (group * (sequences / groups)).into(),
                count: batch.into(),
                tokens: tokens.into(),
                stream: 0,
            };
            let of_tasks = PetBatch::new((0..groups).map(member).collect());
            calls += 1;
            let products = timed_in_turn(
                device,
                &mut activations,
                |(_, _, y)| fill(y),
                |(linear, x, y)| tch::no_grad(|| of_tasks.operate(layer, *linear, x, y, &streams)),
            )?;
            let shifts = timed_in_turn(
                device,
                &mut Norm::ALL.to_vec(),
                |_| fill(&mut normalised.shallow_clone()),
                |norm| tch::no_grad(|| of_tasks.shift(layer, *norm, &normalised)),
            )?;
            Ok((products + shifts) / groups)
        })
    }
}

/// Operators add to results: without fresh ones they would grow beyond all numbers.
fn fill(results: &mut Tensor) -> Result<(), ExecutorError> {
    let _ = results.f_fill_(1.0)?;
    Ok(())
}

/// Which layer a call measures, and the first of its tasks: others once these have been through all layers, so that
/// each layer meets all tasks.
fn turn(call: u32, layers: usize, tasks: u32) -> (usize, u32) {
    let layers = layers as u32;
    ((call % layers) as usize, call / layers * tasks)
}

/// First, middle and last.
fn few(all: &[u32]) -> Vec<u32> {
    let last = all.len() - 1;
    let mut few = vec![all[0], all[last / 2], all[last]];
    few.dedup();
    few
}

/// The first of these numbers as a batch, padded by a token.
fn batch_of(numbers: &Tensor, sequences: u32, tokens: u32, width: usize) -> Result<Tensor, ExecutorError> {
    let size = [i64::from(sequences), i64::from(tokens) + 1, width as i64];
    Ok(numbers.f_narrow(0, 0, size.iter().product())?.f_view(size)?)
}
