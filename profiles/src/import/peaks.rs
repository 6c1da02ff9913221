//! Refuses times in which the GPU cannot have computed what they are said to be of, and tables that take it a hundred
//! times as long as they should: another GPU's, or in another unit.

use std::collections::BTreeMap;

use crate::card::Card;
use crate::error::Invalid;
use crate::family::Family;
use crate::model::{DType, ModelShape};
use crate::roofline::{Datasheet, Roofline, ops};

/// Boards may clock above what their datasheet's peak is at.
const ABOVE_PEAK: f64 = 1.2;

/// A table all of whose times are this many times what its datasheet makes of them is in another unit: derived times
/// are off by a few times at most.
const SLOWER: f64 = 100.0;

/// A time of a card's.
#[derive(Clone)]
struct Timed<'a> {
    family: Family,
    model: &'a str,
    dtype: DType,
    /// Its sizes, as an error tells them.
    at: String,
    flops: f64,
    us: f64,
    /// What the datasheet makes of it.
    derived_us: f64,
}

impl Timed<'_> {
    fn model_in_words(&self) -> String {
        format!("{} in {}", self.model, self.dtype)
    }

    /// How many times what the datasheet makes of it.
    fn slower(&self) -> f64 {
        self.us / self.derived_us
    }
}

/// # Errors
/// A time in which the datasheet's peak would have to be exceeded, or a table that is far slower than the datasheet
/// makes it.
pub(super) fn check(card: &Card, sheet: &Datasheet) -> Result<(), Invalid> {
    let roofline = Roofline::new(sheet.clone());
    for timed in timed(card, &roofline) {
        let peak = peak(sheet, timed.dtype);
        let least_us = 1e6 * timed.flops / peak;
        if timed.us * ABOVE_PEAK < least_us {
            let Timed { family, at, us, .. } = &timed;
            let must = format!(
                "a GPU that takes {us:.4} µs for {}, {at} ({family}), as these files say",
                timed.model_in_words()
            );
            let got = format!(
                "{}, which at its peak of {peak:e} FLOP/s takes {least_us:.4} µs",
                sheet.name
            );
            return Err(Invalid::argument("--gpu", must, got));
        }
    }
    check_not_slower(card, &roofline)
}

fn check_not_slower(card: &Card, roofline: &Roofline) -> Result<(), Invalid> {
    let mut nearest: BTreeMap<(Family, &str, DType), Timed<'_>> = BTreeMap::new();
    for timed in timed(card, roofline) {
        let of_table = nearest.entry((timed.family, timed.model, timed.dtype));
        let nearest = of_table.or_insert_with(|| timed.clone());
        if timed.slower() < nearest.slower() {
            *nearest = timed;
        }
    }
    match nearest.into_values().find(|nearest| nearest.slower() > SLOWER) {
        None => Ok(()),
        Some(nearest) => {
            let Timed {
                family,
                at,
                us,
                derived_us,
                ..
            } = &nearest;
            let must = format!(
                "with times of {family} for {} at most {SLOWER} times what the datasheet makes of them, in some row",
                nearest.model_in_words()
            );
            let got = format!("{us:.4} µs for {at}, which should take {derived_us:.4} µs; is it another unit?");
            Err(Invalid::argument("FILES", must, got))
        }
    }
}

/// Products in single precision may be computed as TensorFloat-32, at half the rate of half precision; those in half
/// precision may be summed up in it.
fn peak(sheet: &Datasheet, dtype: DType) -> f64 {
    let half = sheet.f16.unwrap_or_default();
    match dtype {
        DType::F32 => sheet.f32.max(half / 2.0),
        DType::F16 => sheet.f16_summed_in_f16.unwrap_or(half),
        DType::Bf16 => sheet.bf16.unwrap_or_default(),
    }
}

/// The times whose arithmetic follows from their model's shape.
fn timed<'a>(card: &'a Card, roofline: &'a Roofline) -> impl Iterator<Item = Timed<'a>> {
    let shape = |model: &str| -> ModelShape { card.model(model).expect("a card has tables of known models only") };
    let tables = &card.tables;
    let layers = tables.encoder_layer.iter().map(move |row| Timed {
        family: Family::EncoderLayer,
        model: &row.model,
        dtype: row.dtype,
        at: format!("batch {}, {} tokens", row.batch, row.tokens),
        flops: ops::encoder_layer_flops(&shape(&row.model), row.batch.into(), row.tokens.into()),
        us: row.stats.median_us,
        derived_us: roofline.encoder_layer_us(&shape(&row.model), row.dtype, row.batch, row.tokens),
    });
    let dense = tables.decoder_dense.iter().map(move |row| Timed {
        family: Family::DecoderDense,
        model: &row.model,
        dtype: row.dtype,
        at: format!("{} tokens", row.tokens),
        flops: ops::decoder_dense(&shape(&row.model), row.dtype, row.tensor_parallel, row.tokens).flops,
        us: row.stats.median_us,
        derived_us: roofline.decoder_dense_us(&shape(&row.model), row.dtype, row.tensor_parallel, row.tokens),
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
            derived_us: roofline.decoder_prefill_us(&shape(&row.model), row.dtype, row.tensor_parallel, at),
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
            derived_us: roofline.static_model_us(&model, row.dtype, row.batch, row.tokens),
        }
    });
    layers.chain(whole).chain(dense).chain(prompts)
}
