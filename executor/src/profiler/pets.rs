//! Points of PET operators: one layer's, of one task's mini-batch, for every kind (β of PetS, section 4.1).

use std::time::Duration;

use tch::{Kind as Number, Tensor};
use tenantry_core::policy::pet_work::PetSizes;
use tenantry_profiles::{DType, ModelShape, PetKind, PetRow, Tables};

use super::compute::{Subject, spread_out};
use super::schedule::Point;
use super::{Suite, timed};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::pet::{Linear, Norm, Operators, Reader, kind_named, operate};

/// Tasks of a kind that take turns, so that their parameters are not all in the processor's caches.
const TASKS: u32 = 8;

/// Tasks of every kind over one model, in the sizes of PetS, Table 4.
pub(crate) struct PetSubject<'a> {
    subject: &'a Subject,
    dtype: DType,
    /// The model's first two layers: each layer's operators cost the same.
    shape: ModelShape,
    kinds: Vec<(PetKind, Vec<Box<dyn Operators>>)>,
    /// Kinds that do not run here, with the reason.
    fails: Vec<(PetKind, String)>,
}

impl<'a> PetSubject<'a> {
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
        };
        for &name in kinds {
            let kind = kind_named(name.name()).expect("every kind of a profile is implemented");
            let task = |task| {
                let parameters = kind.random(&pets.shape, &PetSizes::PAPER, seed, task);
                kind.load(&Reader::new(&parameters), &encoder)
            };
            match tch::no_grad(|| (0..TASKS).map(task).collect::<Result<Vec<_>, _>>()) {
                Ok(tasks) => pets.kinds.push((name, tasks)),
                Err(error) => pets.fails.push((name, error.to_string())),
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
    pub fn points(&self, suite: Suite) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (name, dtype, axes) = (&self.subject.encoder.shape().name, self.dtype, &self.subject.axes);
        let (batches, lengths) = match suite {
            Suite::Quick => (few(&axes.batch), axes.few_tokens()),
            Suite::Full => (axes.batch.clone(), axes.tokens.clone()),
        };
        let mut points = Vec::new();
        for (kind, tasks) in &self.kinds {
            for (&batch, &tokens) in batches
                .iter()
                .flat_map(|batch| lengths.iter().map(move |tokens| (batch, tokens)))
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
                points.push(Point::new(format!("pet of {name}, {kind}"), measure, row));
            }
        }
        Ok(points)
    }

    fn measure<'b>(
        &'b self,
        tasks: &'b [Box<dyn Operators>],
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + 'b, ExecutorError> {
        let (device, number) = (self.subject.encoder.device(), self.subject.encoder.kind());
        // As a mini-batch lies in its batch, most of which are padded to more than its longest: rows then do not follow each other.
        let part = move |of: &Tensor| of.f_narrow(1, 0, tokens.into());
        let ones = |width: usize| {
            let size = [i64::from(batch), i64::from(tokens) + 1, width as i64];
            Tensor::f_ones(size, (Number::Float, device))?.f_to_kind(number)
        };
        let mut activations = Vec::new();
        for linear in Linear::ALL {
            let (outputs, inputs) = linear.size(&self.shape);
            activations.push((linear, part(&ones(inputs)?)?, ones(outputs)?));
        }
        let hidden = ones(self.shape.hidden as usize)?;
        let layers = self.shape.layers as usize;
        let mut calls = 0;
        Ok(move || {
            let operators = &tasks[spread_out(calls, TASKS) as usize];
            let layer = calls as usize / TASKS as usize % layers;
            calls += 1;
            // Operators add to results: without fresh ones they would grow beyond all numbers. The copies also leave the
            // caches as the shared products before them do.
            let results: Vec<Tensor> = activations
                .iter()
                .map(|(_, _, y)| part(&y.copy()))
                .collect::<Result<_, _>>()?;
            let normalised = part(&hidden.copy())?;
            timed(device, || {
                tch::no_grad(|| {
                    for ((linear, x, _), y) in activations.iter().zip(&results) {
                        operate(&**operators, layer, *linear, x, y)?;
                    }
                    for bias in Norm::ALL
                        .iter()
                        .filter_map(|norm| operators.norm_bias_delta(layer, *norm))
                    {
                        let _ = normalised.shallow_clone().f_add_(bias)?;
                    }
                    Ok(())
                })
            })
        })
    }
}

/// First, middle and last.
fn few(all: &[u32]) -> Vec<u32> {
    let last = all.len() - 1;
    let mut few = vec![all[0], all[last / 2], all[last]];
    few.dedup();
    few
}
