//! A transformer layer alone: Fig. 10. It comes from the card's tables, since nothing is served.

use tenantry_profiles::paper::Paper;
use tenantry_profiles::{AdapterImplementation, Card, Family, ModelShape};

use super::kernels::{CARD, DTYPE, llama};
use super::patterns::Pattern;
use super::products::{lora, us};
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const FIGURE: &str = "Fig. 10";
const BATCH: u32 = 32;
const MODELS: [(&str, &str); 2] = [("7B", "llama-7b"), ("13B", "llama-13b")];

/// A layer with its LoRA products, in microseconds.
fn layer_us(
    lab: &Lab,
    card: &Card,
    model: &ModelShape,
    context: u32,
    pattern: Pattern,
    batch: u32,
) -> Result<f64, Failure> {
    let decoder = card.decoder(model, DTYPE, 1).map_err(Failure::running)?;
    let grounds = lab.grounds();
    grounds.cost(Family::DecoderDense, decoder.dense.beyond(batch.into()));
    grounds.cost(Family::DecoderDecode, decoder.decode.beyond(batch, context));
    let parts = decoder.dense.cost(batch.into()).median_ns + decoder.decode.cost(batch, context).median_ns;
    let lora = lora(card, model, AdapterImplementation::Grouped, 16)?;
    Ok(parts as f64 / 1e3 + us(lab, &lora, pattern.tenants(batch), batch))
}

/// A layer against the batch.
pub fn figure_10(lab: &Lab) -> Result<Vec<Row>, Failure> {
    let card = lab.card(CARD)?;
    let shorter = Paper::load(CARD)?.with("long_context", 1024.0).card();
    let mut rows = Vec::new();
    for (name, model) in MODELS {
        let model = llama(model);
        let of = |card: &Card, context, pattern, batch| layer_us(lab, card, &model, context, pattern, batch);
        let growth = |card: &Card, context| {
            Ok::<_, Failure>(of(card, context, Pattern::Distinct, BATCH)? / of(card, context, Pattern::Distinct, 1)?)
        };
        let (at_512, at_2048) = (growth(&card, 512)?, growth(&card, 2048)?);
        rows.extend([
            Row::assumed(
                FIGURE,
                format!("{name}, 512 tokens: a layer of 32 over one of 1"),
                "×",
                Some(1.72),
                at_512,
            )
            .note(format!(
                "assumes that Fig. 1's longer sequences are of 2,048 tokens; with 1,024 it is {:.2} ×. The text has \
                 one figure for both models",
                growth(&shorter, 512)?
            )),
            Row::shape(
                FIGURE,
                format!("{name}, 2,048 tokens: grows more than at 512"),
                "×",
                at_2048,
                at_2048 > at_512,
            ),
        ]);
        for context in [512, 2048] {
            let at_32 = Pattern::ALL.map(|pattern| of(&card, context, pattern, BATCH));
            let at_32 = at_32.into_iter().collect::<Result<Vec<f64>, _>>()?;
            let (most, least) = (
                at_32.iter().copied().fold(0.0, f64::max),
                at_32.iter().copied().fold(f64::INFINITY, f64::min),
            );
            rows.extend([
                Row::shape(
                    FIGURE,
                    format!(
                        "{name}, {context} tokens: slowest over fastest of the four patterns at 32: roughly the \
                         same"
                    ),
                    "×",
                    most / least,
                    most / least < 1.15,
                ),
                Row::assumed(
                    FIGURE,
                    format!("{name}, {context} tokens: a layer of 32, distinct"),
                    "ms",
                    None,
                    at_32[0] / 1e3,
                )
                .note(format!(
                    "one request: {:.3} ms; uniform, skewed and identical at 32: {:.3}, {:.3} and {:.3}. The text \
                     gives no time: the figure's axis ends at 2 ms",
                    of(&card, context, Pattern::Distinct, 1)? / 1e3,
                    at_32[1] / 1e3,
                    at_32[2] / 1e3,
                    at_32[3] / 1e3
                )),
            ]);
        }
    }
    Ok(rows)
}
