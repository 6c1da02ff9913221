//! What the paper times alone: a model's steps, and a LoRA's way to the card. These come from the card's tables, since
//! nothing is served.

use tenantry_profiles::paper::{Paper, Role};
use tenantry_profiles::{Card, DType, Direction, Family, ModelShape};

use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// The first testbed's.
pub(super) const CARD: &str = "paper-a100-80g";
pub(super) const DTYPE: DType = DType::F16;

pub(super) fn llama(name: &str) -> ModelShape {
    ModelShape::builtin(name).expect("it comes with the product")
}

/// Prefill and decode against the batch.
pub fn figure_1(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 1";
    let (paper, card) = (Paper::load(CARD)?, lab.card(CARD)?);
    let of_figure = paper.outcomes(&card).into_iter().filter(|outcome| outcome.what.ends_with("(Fig. 1)"));
    let mut rows: Vec<Row> = of_figure
        .map(|outcome| {
            let what = outcome.what.trim_end_matches(" ms (Fig. 1)").trim_end_matches(',');
            assert_eq!(outcome.role, Role::Input);
            Row::input(FIGURE, what, "ms", outcome.paper, outcome.ours)
                .note("without the host's work for each sequence, which a simulated step is charged beside it")
        })
        .collect();
    let model = llama("llama-7b");
    let decoder = card.decoder(&model, DTYPE, 1).map_err(Failure::running)?;
    let context = paper.number("short_context") as u32;
    let step = |chunks: &[(u32, u32)], sequences: u32| {
        decoder.beyond(chunks, sequences, context, |family, beyond| {
            lab.grounds().cost(family, Some(beyond));
        });
        decoder.step(model.layers, chunks, sequences, context).median_ns as f64
    };
    let prefill = |batch: usize| step(&vec![(context, context); batch], 0);
    let decode = |batch| step(&[], batch);
    let growths = (prefill(32) / prefill(1), decode(32) / decode(1));
    rows.push(
        Row::shape(
            FIGURE,
            "prefill of 32 over prefill of 1: grows with the batch, decode hardly",
            "×",
            growths.0,
            growths.0 > 3.0 * growths.1,
        )
        .note(format!(
            "decode grows {:.1} ×, of which the host's work for each sequence is a part that Fig. 1 does not have. The \
             text: in proportion to the batch (32 ×), and from 11 to 13 ms (1.2 ×); judged is that the one grows three \
             times as much as the other",
            growths.1
        )),
    );
    Ok(rows)
}

/// Loading a LoRA on demand.
pub fn section_5(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Section 5.2";
    let card = lab.card(CARD)?;
    let model = llama("llama-7b");
    let bytes = u64::from(model.layers) * model.lora_parameters_per_layer(16) * DTYPE.bytes();
    let copy = card.copy(Direction::HostToDevice, true).map_err(Failure::running)?;
    lab.grounds().cost(Family::Copy, copy.beyond(bytes));
    let of_layer = model.lora_parameters_per_layer(16) * DTYPE.bytes();
    lab.grounds().cost(Family::Copy, copy.beyond(of_layer));
    let share = bytes as f64 / (model.parameters() * DTYPE.bytes()) as f64;
    Ok(vec![
        Row::shape(
            FIGURE,
            "a LoRA of rank 16, of the 7B model's bytes: 0.1 to 1 % (section 2.2)",
            "%",
            100.0 * share,
            (0.001..=0.01).contains(&share),
        )
        .note("all seven projections in 16 bits, as the model"),
        Row::assumed(
            FIGURE,
            "loading a LoRA of rank 16 of the 7B model",
            "ms",
            Some(2.0),
            copy.cost(bytes).median_ns as f64 / 1e6,
        )
        .note("assumes 25 GB/s: the paper's 2 ms for 80 MB would be 40 GB/s, beyond PCIe 4"),
        Row::assumed(
            FIGURE,
            "loading one of its 32 layers",
            "µs",
            Some(50.0),
            copy.cost(of_layer).median_ns as f64 / 1e3,
        )
        .note(
            "assumes 25 GB/s and 10 µs to begin a copy: 2.5 MB in 50 µs would be 50 GB/s; 32 of them by the paper \
             are 1.6 ms and not 2",
        ),
        moved_over_anew(lab, &card, &model)?,
        Row::not_checkable(
            "Section 6",
            "a fused LayerNorm, 110 to 4 µs",
            "of what it is part of the text gives no time without it; in the card's steps it is fused, as in the \
             paper's",
        ),
    ])
}

/// What a request's keys and values take when they are computed again on another card, over their copy.
fn moved_over_anew(lab: &Lab, card: &Card, model: &ModelShape) -> Result<Row, Failure> {
    const TOKENS: u32 = 512;
    let decoder = card.decoder(model, DTYPE, 1).map_err(Failure::running)?;
    let copy = card.copy(Direction::HostToDevice, true).map_err(Failure::running)?;
    let bytes = u64::from(TOKENS) * model.cached_per_token() * DTYPE.bytes();
    lab.grounds().cost(Family::Copy, copy.beyond(bytes));
    decoder.beyond(&[(TOKENS, TOKENS)], 0, 0, |family, beyond| {
        lab.grounds().cost(family, Some(beyond));
    });
    let anew = decoder.step(model.layers, &[(TOKENS, TOKENS)], 0, 0).median_ns as f64;
    let copied = copy.cost(bytes).median_ns as f64;
    let what = "512 tokens of 7B taken in anew, over copying their keys and values";
    Ok(
        Row::assumed("Section 5.3", what, "×", Some(1.0), anew / copied).note(format!(
            "the paper has it equal or better in most cases, and no figure: here {:.1} ms against {:.1} at 25 GB/s, so \
             that it is not; both without what is lost by moving",
            anew / 1e6,
            copied / 1e6
        )),
    )
}
