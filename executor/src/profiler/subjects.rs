//! What a suite measures with beside the models themselves: what tenants add to them, tables to look up in, bytes to be
//! copied, files to be read. And the points of all of it, in the order in which an interrupted suite counts them.

use std::path::Path;
use std::time::Duration;

use tenantry_profiles::{ModelKind, ModelShape};

use super::Plan;
use super::adapters::AdapterSubject;
use super::compute::Subject;
use super::copies::{Checkpoint, Copies, Stored};
use super::decoder::DecoderSubject;
use super::held_out::HoldOut;
use super::lookups::LookupSubject;
use super::lora::LoraSubject;
use super::models::Models;
use super::pets::PetSubject;
use super::schedule::Point;
use super::scratch::Scratch;
use super::sizes::{Sizes, stored_bytes_max};
use super::steps::{self, StepTenants};
use super::texts::TextSubject;
use super::timing::issue;
use super::{instances, plans, solves};
use crate::error::ExecutorError;

/// Width up to which decoders' look-ups are measured: a wider one's table of every token would take hundreds of
/// megabytes.
const LOOKUP_HIDDEN_MAX: u32 = 2048;

/// All of it, of some models.
pub(super) struct Subjects<'a> {
    models: &'a Models,
    adapters: Vec<AdapterSubject>,
    step_adapters: Vec<(&'a DecoderSubject, AdapterSubject)>,
    pub texts: Vec<TextSubject>,
    pets: Vec<PetSubject<'a>>,
    loras: Vec<LoraSubject<'a>>,
    pub lookups: Vec<LookupSubject>,
    pub copies: Copies,
    sizes: Sizes,
    checkpoints: Vec<Checkpoint<'a>>,
    stored: Vec<Stored>,
    /// What the others have on the disk lies in it.
    _scratch: Scratch,
}

impl<'a> Subjects<'a> {
    /// What the plan asks for. `notes` say what there is no memory for, and what does not run here.
    pub fn new(models: &'a Models, plan: &Plan, notes: &mut Vec<String>) -> Result<Subjects<'a>, ExecutorError> {
        let scratch = Scratch::new(&plan.scratch)?;
        let (adapters, step_adapters) = adapters(models, plan, notes)?;
        let texts = TextSubject::all(&plan.texts, plan.seed, plan.device)?;
        let pets = models
            .encoders
            .iter()
            .map(|subject| {
                let kinds = &plan.ops.of(&subject.encoder.shape().name).pets;
                PetSubject::new(subject, kinds, plan.dtype, plan.seed)
            })
            .collect::<Result<Vec<_>, _>>()?;
        notes.extend(pets.iter().flat_map(PetSubject::fails));
        let loras = loras(models, plan, notes)?;
        let lookups = lookups(plan, scratch.path(), notes)?;
        let sizes = Sizes::new(plan)?;
        let copies = Copies::new(plan.device, *sizes.copies.last().expect("there are sizes"))?;
        let stored_most = stored_bytes_max(plan);
        let encoders = models
            .encoders
            .iter()
            .map(|subject| &subject.encoder)
            .filter(|encoder| encoder.parameters().numel() as u64 * plan.dtype.bytes() <= stored_most);
        if stored_most < u64::MAX {
            let mib = stored_most >> 20;
            notes.push(format!(
                "model_load has what is read from the disk up to {mib} MiB: a full suite reads whole checkpoints"
            ));
        }
        let checkpoints = encoders.enumerate().map(|(index, encoder)| {
            // The model's name need not be a file's.
            let file = scratch.path().join(format!("checkpoint-{index}.safetensors"));
            Checkpoint::write(encoder, file)
        });
        let stored = sizes.stored.iter().map(|&bytes| Stored::write(bytes, plan.device));
        Ok(Subjects {
            models,
            adapters,
            step_adapters,
            texts,
            pets,
            loras,
            lookups,
            copies,
            checkpoints: checkpoints.collect::<Result<_, _>>()?,
            stored: stored.collect::<Result<_, _>>()?,
            sizes,
            _scratch: scratch,
        })
    }

    /// All points, those of the models included.
    pub fn points<'s>(&'s self, plan: &Plan, time_for_model: Duration) -> Result<Vec<Point<'s>>, ExecutorError> {
        let hold_out = HoldOut::new(plan.suite, plan.seed);
        let mut points = self.of_encoders(plan, hold_out)?;
        for lookup in &self.lookups {
            points.extend(lookup.points(plan.suite, hold_out));
        }
        points.extend(self.of_decoders(plan, time_for_model, hold_out)?);
        let is_inspected = |subject: &&Subject| plan.ops.of(&subject.encoder.shape().name).inspected;
        if let Some(subject) = self.models.encoders.iter().find(is_inspected) {
            points.push(subject.inspect()?);
        }
        for (index, text) in self.texts.iter().enumerate() {
            let name = &text.probe.shape().name;
            let first = self.texts.iter().position(|other| other.probe.shape().name == *name);
            points.extend(text.points(first == Some(index))?);
        }
        if plan.device.is_cuda() {
            points.push(match (self.models.encoders.first(), self.models.decoders.first()) {
                (Some(subject), _) => issue(subject.issuing()?),
                (None, Some(subject)) => issue(subject.issuing()?),
                (None, None) => unreachable!("there is a model, and it is one or the other"),
            });
        }
        if plan.ops.solves {
            points.extend(solves::points(hold_out));
        }
        points.extend(plans::points(&plan.ops.plans, plan.suite, hold_out, plan.seed));
        points.extend(self.copies.points(&self.sizes.copies, plan.suite, hold_out));
        points.extend(self.copies.model_points(&self.sizes.models));
        points.extend(self.checkpoints.iter().map(|checkpoint| checkpoint.point(plan.dtype)));
        points.extend(self.stored.iter().map(Stored::point));
        Ok(points)
    }

    fn of_encoders<'s>(&'s self, plan: &Plan, hold_out: HoldOut) -> Result<Vec<Point<'s>>, ExecutorError> {
        let mut points = Vec::new();
        for (subject, heads) in self.models.encoders.iter().zip(&self.models.heads) {
            let ops = plan.ops.of(&subject.encoder.shape().name);
            points.extend(subject.points(heads, ops.attended, hold_out)?);
            if ops.tagging {
                points.extend(subject.tagging(heads, hold_out)?);
            }
            points.extend(instances::points(subject, heads, ops, plan.suite, hold_out)?);
        }
        for adapter in &self.adapters {
            let implementations = &plan.ops.of(adapter.model()).adapters;
            points.extend(adapter.points(implementations, plan.suite, hold_out)?);
        }
        for pet in &self.pets {
            points.extend(pet.points(plan.suite, hold_out)?);
            if plan.ops.of(pet.model()).concurrent {
                points.extend(pet.side_by_side(plan.suite, hold_out)?);
            }
        }
        Ok(points)
    }

    fn of_decoders<'s>(
        &'s self,
        plan: &Plan,
        time: Duration,
        hold_out: HoldOut,
    ) -> Result<Vec<Point<'s>>, ExecutorError> {
        let mut points = Vec::new();
        let ops_of = |subject: &DecoderSubject| plan.ops.of(&subject.decoder.shape().name);
        for subject in &self.models.decoders {
            points.extend(subject.points(hold_out)?);
            let tenants = StepTenants::Backbone;
            points.extend(steps::points(subject, tenants, ops_of(subject), time, hold_out)?);
        }
        for (subject, adapters) in &self.step_adapters {
            let ops = ops_of(subject);
            points.extend(adapters.points(&ops.adapters, plan.suite, hold_out)?);
            let tenants = StepTenants::Adapters(&adapters.cache);
            points.extend(steps::points(subject, tenants, ops, time, hold_out)?);
        }
        for lora in &self.loras {
            let ops = ops_of(lora.subject);
            points.extend(lora.points(&ops.adapters, hold_out)?);
            let tenants = StepTenants::Loras(&lora.cache);
            points.extend(steps::points(lora.subject, tenants, ops, time, hold_out)?);
        }
        Ok(points)
    }
}

/// Adapters of encoders' layers, and of decoders'.
type Adapters<'a> = (Vec<AdapterSubject>, Vec<(&'a DecoderSubject, AdapterSubject)>);

fn adapters<'a>(models: &'a Models, plan: &Plan, notes: &mut Vec<String>) -> Result<Adapters<'a>, ExecutorError> {
    let what = |shape: &ModelShape, bottleneck| format!("adapters of {}, bottleneck {bottleneck}", shape.name);
    let (mut of_encoders, mut of_decoders) = (Vec::new(), Vec::new());
    for subject in &models.encoders {
        for &bottleneck in &plan.ops.of(&subject.encoder.shape().name).bottlenecks {
            let made = AdapterSubject::of_encoder(subject, bottleneck, plan.dtype, plan.seed);
            of_encoders.extend(if_it_fits(made, || what(subject.encoder.shape(), bottleneck), notes)?);
        }
    }
    for subject in &models.decoders {
        for &bottleneck in &plan.ops.of(&subject.decoder.shape().name).bottlenecks {
            let made = AdapterSubject::of_decoder(subject, bottleneck, plan.dtype, plan.seed);
            let made = if_it_fits(made, || what(subject.decoder.shape(), bottleneck), notes)?;
            of_decoders.extend(made.map(|adapters| (subject, adapters)));
        }
    }
    for adapter in of_encoders.iter().chain(of_decoders.iter().map(|(_, adapters)| adapters)) {
        if let Some(reason) = adapter.grouped_fails() {
            notes.push(format!(
                "grouped adapters of {}, bottleneck {}, do not run here: {reason}",
                adapter.model(),
                adapter.bottleneck()
            ));
        }
    }
    Ok((of_encoders, of_decoders))
}

fn loras<'a>(models: &'a Models, plan: &Plan, notes: &mut Vec<String>) -> Result<Vec<LoraSubject<'a>>, ExecutorError> {
    let mut loras = Vec::new();
    for subject in &models.decoders {
        let name = &subject.decoder.shape().name;
        for &rank in &plan.ops.of(name).ranks {
            let made = LoraSubject::new(subject, rank, plan.dtype, plan.seed);
            let Some(lora) = if_it_fits(made, || format!("LoRA of {name}, rank {rank}"), notes)? else {
                continue;
            };
            if let Some(reason) = lora.grouped_fails() {
                notes.push(format!(
                    "grouped LoRA of {name}, rank {rank}, does not run here: {reason}"
                ));
            }
            loras.push(lora);
        }
    }
    Ok(loras)
}

/// Whether look-ups of any of the plan's models are measured.
pub(super) fn looks_up(plan: &Plan) -> bool {
    let looked_up = |shape: &ModelShape| is_narrow(shape) && !plan.ops.of(&shape.name).lookups.is_empty();
    plan.models.iter().any(looked_up)
}

fn is_narrow(shape: &ModelShape) -> bool {
    shape.kind == ModelKind::Encoder || shape.hidden <= LOOKUP_HIDDEN_MAX
}

fn lookups(plan: &Plan, scratch: &Path, notes: &mut Vec<String>) -> Result<Vec<LookupSubject>, ExecutorError> {
    let fragments = |shape: &ModelShape| &plan.ops.of(&shape.name).lookups;
    let looked_up = plan.models.iter().filter(|shape| !fragments(shape).is_empty());
    let (narrow, wide): (Vec<&ModelShape>, Vec<&ModelShape>) = looked_up.partition(|shape| is_narrow(shape));
    notes.extend(wide.iter().map(|shape| {
        let name = &shape.name;
        format!("look-ups of {name} are not measured: it is a decoder wider than {LOOKUP_HIDDEN_MAX}")
    }));
    narrow
        .into_iter()
        .map(|shape| LookupSubject::new(shape, fragments(shape), plan.seed, scratch))
        .collect()
}

/// What was made, or a note that there was no memory for it.
fn if_it_fits<T>(
    made: Result<T, ExecutorError>,
    what: impl FnOnce() -> String,
    notes: &mut Vec<String>,
) -> Result<Option<T>, ExecutorError> {
    match made {
        Err(error) if error.is_out_of_memory() => {
            notes.push(format!("{} are not measured: {error}", what()));
            Ok(None)
        }
        made => made.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_memory_is_left_out_and_said() {
        let torch = |text: &str| ExecutorError::from(tch::TchError::Torch(text.to_string()));
        let mut notes = Vec::new();
        let no_room = "CUDA out of memory. Tried to allocate 20.00 GiB.\nstack";
        let left_out = if_it_fits(Err::<(), _>(torch(no_room)), || "these".into(), &mut notes);
        assert_eq!(left_out.unwrap(), None);
        assert_eq!(
            notes,
            ["these are not measured: libtorch: CUDA out of memory. Tried to allocate 20.00 GiB."]
        );
        assert!(
            if_it_fits(
                Err::<(), _>(torch("CUDA error: misaligned address")),
                || "these".into(),
                &mut notes
            )
            .is_err()
        );
        assert_eq!(if_it_fits(Ok(3), || "these".into(), &mut notes).unwrap(), Some(3));
    }
}
