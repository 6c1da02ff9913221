//! What the paper times alone: a model's steps, its LoRA products, a layer. These come from the card's tables, since nothing is served.

use tenantry_profiles::paper::{Paper, Role};
use tenantry_profiles::{AdapterImplementation, Card, DType, Direction, Family, ModelShape, Surface};

use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const CARD: &str = "paper-a100-80g";
const DTYPE: DType = DType::F16;

fn llama(name: &str) -> ModelShape {
    ModelShape::builtin(name).expect("it comes with the product")
}

/// A layer's LoRA products by tenants and tokens of the step.
fn lora(card: &Card, implementation: AdapterImplementation, rank: u32) -> Result<Surface, Failure> {
    card.lora(&llama("llama-7b"), DTYPE, implementation, rank)
        .map_err(Failure::running)
}

fn us(lab: &Lab, surface: &Surface, tenants: u32, tokens: u32) -> f64 {
    lab.grounds().cost(Family::Lora, surface.beyond(tenants, tokens));
    surface.cost(tenants, tokens).median_ns as f64 / 1e3
}

/// Distinct tenants of a popularity pattern among `requests`: everyone, the square root, one (section 7).
fn uniform(requests: u32) -> u32 {
    f64::from(requests).sqrt().ceil() as u32
}

/// Prefill and decode against the batch.
pub fn figure_1(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 1";
    let (paper, card) = (Paper::load(CARD)?, lab.card(CARD)?);
    let of_figure = paper
        .outcomes(&card)
        .into_iter()
        .filter(|outcome| outcome.what.ends_with("(Fig. 1)"));
    let mut rows: Vec<Row> = of_figure
        .map(|outcome| {
            let what = outcome.what.trim_end_matches(" ms (Fig. 1)").trim_end_matches(',');
            debug_assert_eq!(outcome.role, Role::Input);
            Row::input(FIGURE, what, "ms", outcome.paper, outcome.ours)
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
            "decode grows {:.1} ×, of which the host's work for each sequence is a part that Fig. 1 does not have",
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
    Ok(vec![
        Row::assumed(
            FIGURE,
            "loading a LoRA of rank 16 of the 7B model",
            "ms",
            Some(2.0),
            copy.cost(bytes).median_ns as f64 / 1e6,
        )
        .note("assumes 25 GB/s: the paper's 2 ms for 80 MB would be 40 GB/s, beyond PCIe 4"),
    ])
}

/// The roofline of the segmented product.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    const FROM_FIGURE_9: &str = "follows from Fig. 9's times, which the card was made from";
    let lora = lora(&*lab.card(CARD)?, AdapterImplementation::Grouped, 16)?;
    // Each request takes the same operations, so that operations a second grow as requests a microsecond do.
    let gain = |tenants| 64.0 / us(lab, &lora, tenants, 64) * us(lab, &lora, 1, 1);
    let [distinct, shared, identical] = [gain(64), gain(uniform(64)), gain(1)];
    Ok(vec![
        Row::shape(
            FIGURE,
            "distinct, operations/s at 64 over 1: more at the same intensity",
            "×",
            distinct,
            distinct > 2.0,
        )
        .note(FROM_FIGURE_9),
        Row::shape(
            FIGURE,
            "identical, operations/s at 64 over 1: highest, uniform in between",
            "×",
            identical,
            identical >= shared && shared >= distinct,
        )
        .note(FROM_FIGURE_9),
        Row::not_checkable(
            FIGURE,
            "operations a second themselves",
            "the figure is lost, and the text gives none",
        ),
    ])
}

/// Implementations of the LoRA product.
pub fn figure_8(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let card = lab.card(CARD)?;
    let grouped = |rank| lora(&card, AdapterImplementation::Grouped, rank);
    let growth = |surface: &Surface, tenants| us(lab, surface, tenants, 64) / us(lab, surface, 1, 1);
    let (narrow, wide) = (grouped(16)?, grouped(64)?);
    let [looped, gathered] = [AdapterImplementation::Loop, AdapterImplementation::GatherBmm]
        .map(|implementation| lora(&card, implementation, 16));
    let (looped, gathered) = (looped?, gathered?);
    let slower = |surface: &Surface| us(lab, surface, 64, 64) / us(lab, &narrow, 64, 64);
    Ok(vec![
        Row::input(
            FIGURE,
            "identical, batch 64 over 1 (37 to 40 µs)",
            "×",
            40.0 / 37.0,
            growth(&narrow, 1),
        )
        .note("the card has Fig. 9's 42 to 45 µs, of the same products"),
        Row::assumed(
            FIGURE,
            "uniform, batch 64 over 1 (37 to 46 µs)",
            "×",
            Some(46.0 / 37.0),
            growth(&narrow, uniform(64)),
        )
        .note("assumes that the cost grows evenly from one tenant's to 64 tenants', both of which Fig. 9 says"),
        Row::assumed(
            FIGURE,
            "distinct, batch 64 over 1 (37 to 116 µs)",
            "×",
            Some(116.0 / 37.0),
            growth(&wide, 64),
        )
        .note(format!(
            "assumes rank 64, whose 118 µs in Fig. 9 are near 116; rank 16, as section 7 has it, gives {:.2} ×",
            growth(&narrow, 64)
        )),
        Row::shape(
            FIGURE,
            "distinct, loop over the segmented product at 64: behaves terribly",
            "×",
            slower(&looped),
            slower(&looped) > slower(&gathered),
        ),
        Row::shape(
            FIGURE,
            "distinct, gather and bmm over the segmented product at 64: above 1",
            "×",
            slower(&gathered),
            slower(&gathered) > 1.0,
        )
        .note("the card's are derived: the text says only that they are slower"),
    ])
}

/// Ranks.
pub fn figure_9(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 9";
    let card = lab.card(CARD)?;
    let paper = Paper::load(CARD)?;
    let one = paper.number("lora_kernel_us");
    [8, 16, 32, 64]
        .into_iter()
        .map(|rank| {
            let surface = lora(&card, AdapterImplementation::Grouped, rank)?;
            let stated = paper.number(&format!("lora_rank_{rank}_us"));
            let what = format!("rank {rank}, 64 tenants over one request ({one} to {stated} µs)");
            let ours = us(lab, &surface, 64, 64) / us(lab, &surface, 1, 1);
            Ok(Row::input(FIGURE, what, "×", stated / one, ours)
                .note("the card keeps the ratios: a layer's products are scaled to the 2 ms that they add to a step"))
        })
        .collect()
}

/// A layer with its LoRA products, in microseconds.
fn layer(lab: &Lab, card: &Card, batch: u32, context: u32, tenants: u32) -> Result<f64, Failure> {
    let decoder = card.decoder(&llama("llama-7b"), DTYPE, 1).map_err(Failure::running)?;
    let grounds = lab.grounds();
    grounds.cost(Family::DecoderDense, decoder.dense.beyond(batch.into()));
    grounds.cost(Family::DecoderDecode, decoder.decode.beyond(batch, context));
    let parts = decoder.dense.cost(batch.into()).median_ns + decoder.decode.cost(batch, context).median_ns;
    let lora = lora(card, AdapterImplementation::Grouped, 16)?;
    Ok(parts as f64 / 1e3 + us(lab, &lora, tenants, batch))
}

/// A layer against the batch.
pub fn figure_10(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 10";
    let card = lab.card(CARD)?;
    let shorter = Paper::load(CARD)?.with("long_context", 1024.0).card();
    let growth =
        |card: &Card, context| Ok::<_, Failure>(layer(lab, card, 32, context, 32)? / layer(lab, card, 1, context, 1)?);
    let (at_512, at_2048) = (growth(&card, 512)?, growth(&card, 2048)?);
    let popularity = layer(lab, &card, 32, 512, 32)? / layer(lab, &card, 32, 512, 1)?;
    Ok(vec![
        Row::assumed(
            FIGURE,
            "7B, 512 tokens: a layer of 32 over one of 1",
            "×",
            Some(1.72),
            at_512,
        )
        .note(format!(
            "assumes that Fig. 1's longer sequences are of 2,048 tokens; with 1,024 it is {:.2} ×",
            growth(&shorter, 512)?
        )),
        Row::shape(
            FIGURE,
            "7B, 2,048 tokens: grows more than at 512",
            "×",
            at_2048,
            at_2048 > at_512,
        ),
        Row::shape(
            FIGURE,
            "distinct over identical at 32: roughly the same",
            "×",
            popularity,
            popularity < 1.15,
        ),
    ])
}
