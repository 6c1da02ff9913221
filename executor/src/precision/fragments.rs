//! A table of what lower layers make of fragments: filled on the device, averaged on the host, and gone on with on the
//! device.

use std::ops::ControlFlow;

use tch::Tensor;
use tenantry_core::spec::{Met, PlotSpec};
use tenantry_plot::{Batch, Engine, Language, Texts};
use tenantry_profiles::DType;

use super::encoders::{encoder, shape};
use super::reference::{EncoderReference, as_it_is};
use super::{Place, SEED, tolerance};
use crate::error::ExecutorError;
use crate::model::{Encoder, Input};
use crate::plot::{Tables, encoder_layers};

const PLOT: PlotSpec = PlotSpec {
    lower_layers: 1,
    fragment_tokens: 3,
    threads: 1,
    tier: tenantry_profiles::Tier::Memory,
    domain_hits_ppm: 0,
    fallbacks_ppm: 0,
    met: Met::AsBuilt,
    domains: 8,
    domain_bytes: None,
};
/// Tokens of the text.
const TOKENS: usize = 10;

/// Compares a text's upper layers over what was looked up of its fragments.
pub(super) fn check(place: &mut Place<'_>) -> Result<(), ExecutorError> {
    let shape = shape();
    let upper = encoder(place)?;
    // Tables are filled in single precision, whatever is served in; of the same numbers, so that there is one
    // reference.
    let lower = Encoder::from_parameters(&shape, upper.parameters().f_to_kind(tch::Kind::Float)?)?;
    let folder = tempfile::tempdir().map_err(ExecutorError::file(std::env::temp_dir()))?;
    let language = || Language::new(SEED, shape.vocabulary).with_corpus(1);
    let mut encode = |_, tokens: usize, fragments: &[u32], rows: &mut [f32]| {
        Ok(encoder_layers(&lower, PLOT.lower_layers, tokens, fragments, rows)?)
    };
    let texts = Texts::Made(language());
    let tables = Tables::with_encoder(folder.path(), "checked", &shape, &PLOT, texts, &mut encode, &mut |_| {
        ControlFlow::Continue(())
    })?;
    let text: Vec<u32> = language().corpus_text(0, 0).take(TOKENS).collect();
    let hidden = shape.hidden as usize;
    let mut found = vec![0f32; TOKENS * hidden];
    let batch = Batch {
        tokens: &text,
        width: TOKENS,
        lengths: &[TOKENS as u32],
        domains: &[None],
    };
    Engine::new(1)?.retrieve(&tables.snapshot(), &batch, &mut found)?;
    let states = Tensor::f_from_slice(&found)?.f_view([1, TOKENS as i64, hidden as i64])?;
    let input = Input::of_lengths(&[TOKENS], TOKENS, place.kind(), place.device)?;
    let layers = PLOT.lower_layers as usize..shape.layers as usize;
    let found = upper.layers(place.there(&states)?, layers.clone(), &input, None)?;

    let reference = EncoderReference::of(&upper)?;
    let ids: Vec<i64> = text.iter().map(|&token| token.into()).collect();
    let averages = averages(&reference, &ids);
    let expected = reference.run(averages, layers.clone(), &as_it_is);
    // Had the table the layers' input, and not what they make of it.
    let without = reference.run(reference.embed(&ids), layers, &as_it_is);
    // Rows are kept in half precision.
    let tolerance = tolerance(place.dtype).max(tolerance(DType::F16));
    let found = found.f_squeeze_dim(0)?;
    place.compare_within(tolerance, "upper layers over fragments", &found, &expected, &without)
}

/// HMI's Eq. 3: for each token the mean of what the lower layers make of it in all fragments that hold it.
fn averages(reference: &EncoderReference, ids: &[i64]) -> Tensor {
    let fragments: Vec<Tensor> = ids
        .windows(PLOT.fragment_tokens as usize)
        .map(|fragment| reference.run(reference.embed(fragment), 0..PLOT.lower_layers as usize, &as_it_is))
        .collect();
    let mean = |token: usize| {
        let first = (token + 1).saturating_sub(PLOT.fragment_tokens as usize);
        let holding = first..=token.min(fragments.len() - 1);
        let states: Vec<Tensor> = holding.map(|start| fragments[start].get((token - start) as i64)).collect();
        Tensor::stack(&states, 0).mean_dim(0, false, tch::Kind::Double)
    };
    Tensor::stack(&(0..ids.len()).map(mean).collect::<Vec<_>>(), 0)
}
