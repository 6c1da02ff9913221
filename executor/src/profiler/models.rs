//! The models of a suite, on the device.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tenantry_profiles::{Changing, ModelKind, ModelShape, ResumeRow};

use super::Plan;
use super::compute::Subject;
use super::decoder::DecoderSubject;
use super::passes;
use super::schedule::Measure;
use super::texts::TextSubject;
use crate::error::ExecutorError;
use crate::model::Heads;

/// Share of a model's time that goes to its forward pass, when its grid is chosen.
const FORWARD_SHARE: f64 = 0.6;

/// All that compute, by what they are.
pub(super) struct Models {
    pub encoders: Vec<Subject>,
    /// Of each encoder, by their number of classes.
    pub heads: Vec<Vec<(u32, Heads)>>,
    pub decoders: Vec<DecoderSubject>,
}

impl Models {
    /// Random ones. What a token takes decides on their grids; it is measured of models of which it is not in
    /// `per_token_ns`.
    pub fn load(
        plan: &Plan,
        time_for_model: Duration,
        per_token_ns: Option<&BTreeMap<String, u64>>,
    ) -> Result<Models, ExecutorError> {
        let per_token = |shape: &ModelShape| {
            let known = per_token_ns?.get(&shape.name)?;
            Some(Duration::from_nanos(*known))
        };
        let time = time_for_model.mul_f64(FORWARD_SHARE);
        let (seed, dtype, device) = (plan.seed, plan.dtype, plan.device);
        let encoder = |shape: &ModelShape| {
            Subject::new(
                shape,
                seed,
                dtype,
                device,
                (plan.suite, plan.served),
                time,
                per_token(shape),
            )
        };
        let decoder =
            |shape: &ModelShape| DecoderSubject::new(shape, seed, dtype, device, plan.suite, time, per_token(shape));
        let of_kind = |kind| plan.models.iter().filter(move |model| model.kind == kind);
        let encoders: Vec<Subject> = of_kind(ModelKind::Encoder).map(encoder).collect::<Result<_, _>>()?;
        let decoders = of_kind(ModelKind::Decoder).map(decoder).collect::<Result<_, _>>()?;
        let heads = encoders.iter().map(|subject| subject.heads(&plan.classes));
        Ok(Models {
            heads: heads.collect::<Result<_, _>>()?,
            encoders,
            decoders,
        })
    }

    /// What a token takes, by the model's name.
    pub fn per_token_ns(&self) -> BTreeMap<String, u64> {
        let encoders = self.encoders.iter();
        let encoders = encoders.map(|subject| (subject.encoder.shape(), subject.per_token));
        let decoders = self.decoders.iter();
        let decoders = decoders.map(|subject| (subject.decoder.shape(), subject.per_token));
        encoders
            .chain(decoders)
            .map(|(shape, per_token)| (shape.name.clone(), per_token.as_nanos() as u64))
            .collect()
    }

    /// An op of the first model, to be set beside copies.
    pub fn middle(&self, plan: &Plan) -> Result<Measure<'_>, ExecutorError> {
        match (self.encoders.first(), self.decoders.first()) {
            (Some(subject), _) if plan.models[0].kind == ModelKind::Encoder => subject.middle(),
            (_, Some(subject)) => subject.middle(),
            _ => unreachable!("there is a first model, and it is one or the other"),
        }
    }

    /// Measures passes after idleness: of an encoder that answers texts as its lane makes them.
    pub fn resume_rows(
        &self,
        texts: &[TextSubject],
        plan: &Plan,
        interrupted: &AtomicBool,
    ) -> Result<Vec<ResumeRow>, ExecutorError> {
        let mut rows = Vec::new();
        for (subject, heads) in self.encoders.iter().zip(&self.heads) {
            let Some((_, heads)) = heads.first() else { continue };
            let shape = subject.encoder.shape();
            let of_texts = texts.iter().find(|text| text.probe.shape().name == shape.name);
            for (changing, first_layer) in passes::changings(plan, shape) {
                rows.extend(match of_texts {
                    _ if changing == Changing::Compiled => passes::measure_compiled(subject, heads, interrupted)?,
                    Some(text) if changing == Changing::Heads => passes::measure_texts(text, interrupted)?,
                    _ => passes::measure_encoder(subject, heads, (changing, first_layer), plan, interrupted)?,
                });
            }
        }
        for subject in &self.decoders {
            for (changing, first_layer) in passes::changings(plan, subject.decoder.shape()) {
                // What a decoder looks up itself is part of its steps, whatever its tenants have of their own.
                if first_layer == 0 {
                    rows.extend(passes::measure_decoder(subject, changing, plan, interrupted)?);
                }
            }
        }
        Ok(rows)
    }
}
