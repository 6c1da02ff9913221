//! Refuses times in which the GPU cannot have computed what they are said to be of: another GPU's, or in another unit.

use crate::card::Card;
use crate::error::Invalid;
use crate::family::Family;
use crate::model::{DType, ModelShape};
use crate::roofline::{Datasheet, ops};

/// Boards may clock above what their datasheet's peak is at.
const ABOVE_PEAK: f64 = 1.2;

/// A time of a card's.
struct Timed<'a> {
    family: Family,
    model: &'a str,
    dtype: DType,
    /// Its sizes, as an error tells them.
    at: String,
    flops: f64,
    us: f64,
}

/// # Errors
/// A time in which the datasheet's peak would have to be exceeded.
pub(super) fn check(card: &Card, sheet: &Datasheet) -> Result<(), Invalid> {
    for timed in timed(card) {
        let peak = peak(sheet, timed.dtype);
        let least_us = 1e6 * timed.flops / peak;
        if timed.us * ABOVE_PEAK < least_us {
            let Timed {
                family,
                model,
                dtype,
                at,
                us,
                ..
            } = timed;
            let must =
                format!("a GPU that takes {us:.4} µs for {model} in {dtype}, {at} ({family}), as these files say",);
            let got = format!(
                "{}, which at its peak of {peak:e} FLOP/s takes {least_us:.4} µs",
                sheet.name
            );
            return Err(Invalid::new("--gpu", "value", must, got));
        }
    }
    Ok(())
}

/// Products in single precision may be computed as TensorFloat-32, at half the rate of half precision; those in half precision may be summed up in it,
/// at twice the rate of some cards' datasheets.
fn peak(sheet: &Datasheet, dtype: DType) -> f64 {
    let half = sheet.f16.unwrap_or_default();
    match dtype {
        DType::F32 => sheet.f32.max(half / 2.0),
        DType::F16 => 2.0 * half,
        DType::Bf16 => sheet.bf16.unwrap_or_default(),
    }
}

/// The times whose arithmetic follows from their model's shape.
fn timed(card: &Card) -> impl Iterator<Item = Timed<'_>> {
    let shape = |model: &str| -> ModelShape { card.model(model).expect("a card has tables of known models only") };
    let tables = &card.tables;
    let layers = tables.encoder_layer.iter().map(move |row| Timed {
        family: Family::EncoderLayer,
        model: &row.model,
        dtype: row.dtype,
        at: format!("batch {}, {} tokens", row.batch, row.tokens),
        flops: ops::encoder_layer_flops(&shape(&row.model), row.batch.into(), row.tokens.into()),
        us: row.stats.median_us,
    });
    let dense = tables.decoder_dense.iter().map(move |row| Timed {
        family: Family::DecoderDense,
        model: &row.model,
        dtype: row.dtype,
        at: format!("{} tokens", row.tokens),
        flops: ops::decoder_dense(&shape(&row.model), row.dtype, row.tensor_parallel, row.tokens).flops,
        us: row.stats.median_us,
    });
    let prompts = tables.decoder_prefill.iter().map(move |row| {
        let at = [row.tokens, row.context];
        Timed {
            family: Family::DecoderPrefill,
            model: &row.model,
            dtype: row.dtype,
            at: format!("{} tokens of {}", row.tokens, row.context),
            flops: ops::decoder_prefill(&shape(&row.model), row.dtype, row.tensor_parallel, at).flops,
            us: row.stats.median_us,
        }
    });
    let whole = tables.static_model.iter().map(move |row| {
        let model = shape(&row.model);
        Timed {
            family: Family::StaticModel,
            model: &row.model,
            dtype: row.dtype,
            at: format!("batch {}, {} tokens", row.batch, row.tokens),
            flops: f64::from(model.layers) * ops::encoder_layer_flops(&model, row.batch.into(), row.tokens.into()),
            us: row.stats.median_us,
        }
    });
    layers.chain(whole).chain(dense).chain(prompts)
}
