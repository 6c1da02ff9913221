//! LoRA's products alone: Figs. 7, 8 and 9. They come from the card's tables, since nothing is served.

use tenantry_profiles::paper::Paper;
use tenantry_profiles::roofline::Datasheet;
use tenantry_profiles::{AdapterImplementation, Card, Family, ModelShape, Surface};

use super::kernels::{CARD, DTYPE, llama};
use super::patterns::Pattern;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// The largest batch of these figures.
const BATCH: u32 = 64;

/// A layer's LoRA products by tenants and tokens of the step.
pub fn lora(
    card: &Card,
    model: &ModelShape,
    implementation: AdapterImplementation,
    rank: u32,
) -> Result<Surface, Failure> {
    card.lora(model, DTYPE, implementation, rank, 1).map_err(Failure::running)
}

/// Microseconds of a batch.
pub fn us(lab: &Lab, surface: &Surface, tenants: u32, tokens: u32) -> f64 {
    lab.grounds().cost(Family::Lora, surface.beyond(tenants, tokens));
    surface.cost(tenants, tokens).median_ns as f64 / 1e3
}

/// What a full batch takes over what one request does.
fn growth(lab: &Lab, surface: &Surface, pattern: Pattern) -> f64 {
    us(lab, surface, pattern.tenants(BATCH), BATCH) / us(lab, surface, 1, 1)
}

/// One product of the roofline's case study (section 7.1): 16 numbers of each input to 4,096.
const NARROW: f64 = 16.0;
const WIDE: f64 = 4096.0;

/// Its floating-point operations, by the formula there.
fn operations(tokens: u32) -> f64 {
    f64::from(tokens) * NARROW * WIDE * 2.0
}

/// The bytes that it reads and writes, likewise.
fn bytes(tenants: u32, tokens: u32) -> f64 {
    (f64::from(tokens) * (NARROW + WIDE) + f64::from(tenants) * NARROW * WIDE) * 2.0
}

/// The roofline of the segmented product.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let paper = Paper::load(CARD)?;
    let surface = lora(
        &*lab.card(CARD)?,
        &llama("llama-7b"),
        AdapterImplementation::Grouped,
        16,
    )?;
    let sheet = Datasheet::builtin("a100-pcie").map_err(Failure::running)?;
    let one_us = paper.number("lora_kernel_us");
    let intensity = |pattern: Pattern, tokens| operations(tokens) / bytes(pattern.tenants(tokens), tokens);
    // Fig. 9 times an operator, which is two products.
    let giga_per_s = |tokens, us: f64| 2.0 * operations(tokens) / us / 1e3;
    let achieved = |pattern| giga_per_s(BATCH, one_us * growth(lab, &surface, pattern));
    let stated = |pattern| {
        let number = match pattern {
            Pattern::Distinct => "lora_rank_16_us",
            Pattern::Uniform | Pattern::Skewed | Pattern::Identical => "lora_kernel_shared_us",
        };
        giga_per_s(BATCH, paper.number(number))
    };
    let at_memory = |pattern| intensity(pattern, BATCH) * sheet.memory_bandwidth / 1e9;
    let one = giga_per_s(1, one_us);

    let mut rows = Vec::new();
    for pattern in Pattern::ALL {
        let what = format!("{}, operations a byte of 64 requests", pattern.name());
        let row = Row::assumed(FIGURE, what, "", None, intensity(pattern, BATCH));
        let of_one = format!(
            "the horizontal axis, by section 7.1's formula for {NARROW} × {WIDE}; one request: {:.2}",
            intensity(pattern, 1)
        );
        rows.push(row.note(match pattern {
            Pattern::Skewed => format!(
                "{of_one}; assumes {} LoRAs, as the authors' public benchmark divides 64 requests",
                pattern.tenants(BATCH)
            ),
            _ => of_one,
        }));
    }
    for pattern in Pattern::ALL {
        let what = format!("{}, operations a second at 64", pattern.name());
        let (paper, ours) = (stated(pattern), achieved(pattern));
        let note = format!(
            "the vertical axis: the formula's operations over Fig. 9's times of an operator (two products), since the \
             figure is lost; one request: {one:.1}; the memory's bandwidth would allow {:.0}",
            at_memory(pattern)
        );
        rows.push(Row::input(FIGURE, what, "GFLOP/s", paper, ours).note(note));
    }
    let [distinct, uniform, skewed, identical] = Pattern::ALL.map(|pattern| achieved(pattern) / one);
    let same_intensity = intensity(Pattern::Distinct, BATCH) / intensity(Pattern::Distinct, 1);
    let steepness = identical.ln() / (intensity(Pattern::Identical, BATCH) / intensity(Pattern::Identical, 1)).ln();
    rows.extend([
        Row::shape(
            FIGURE,
            "distinct, operations a byte at 64 over 1: do not change",
            "×",
            same_intensity,
            (same_intensity - 1.0).abs() < 1e-9,
        ),
        Row::shape(
            FIGURE,
            "distinct, operations/s at 64 over 1: more at the same intensity",
            "×",
            distinct,
            distinct > 2.0,
        ),
        Row::shape(
            FIGURE,
            "identical, operations/s at 64 over 1: highest, uniform and skewed in between",
            "×",
            identical,
            [uniform, skewed].iter().all(|between| (distinct..=identical).contains(between)),
        )
        .note(format!(
            "distinct {distinct:.1}, uniform {uniform:.1}, skewed {skewed:.1} ×"
        )),
        Row::contradicted(
            FIGURE,
            "identical: slope from 1 to 64 in the logarithmic plot, that of memory bandwidth being 1",
            "",
            [1.0, steepness],
            format!(
                "Figs. 8 and 9 say that 64 take hardly longer than one; the formula has them move {:.1} times the \
                 bytes, {:.0} GB/s of the card's {:.0} at 64: it is launches that these times are of, not the memory",
                bytes(1, BATCH) / bytes(1, 1),
                2.0 * bytes(1, BATCH) / paper.number("lora_kernel_shared_us") / 1e3,
                sheet.memory_bandwidth / 1e9
            ),
        ),
        Row::not_checkable(
            FIGURE,
            "the points of the plot themselves",
            "the figure is lost, and the text gives no number",
        ),
    ]);
    Ok(rows)
}

/// Implementations of the LoRA product.
pub fn figure_8(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let card = lab.card(CARD)?;
    let of = |implementation, rank| lora(&card, &llama("llama-7b"), implementation, rank);
    let (narrow, wide) = (
        of(AdapterImplementation::Grouped, 16)?,
        of(AdapterImplementation::Grouped, 64)?,
    );
    let (looped, gathered) = (
        of(AdapterImplementation::Loop, 16)?,
        of(AdapterImplementation::GatherBmm, 16)?,
    );
    let at_64 = |surface: &Surface, pattern: Pattern| us(lab, surface, pattern.tenants(BATCH), BATCH);
    let slower = |surface: &Surface, pattern| at_64(surface, pattern) / at_64(&narrow, pattern);
    let mut rows = vec![
        Row::input(
            FIGURE,
            "identical, batch 64 over 1 (37 to 40 µs)",
            "×",
            40.0 / 37.0,
            growth(lab, &narrow, Pattern::Identical),
        )
        .note("the card has Fig. 9's 42 to 45 µs, of the same products"),
        Row::assumed(
            FIGURE,
            "distinct, batch 64 over 1 (37 to 116 µs)",
            "×",
            Some(116.0 / 37.0),
            growth(lab, &wide, Pattern::Distinct),
        )
        .note(format!(
            "assumes rank 64, whose 118 µs in Fig. 9 are near 116; rank 16, as section 7 has it, gives {:.2} ×",
            growth(lab, &narrow, Pattern::Distinct)
        )),
    ];
    for pattern in [Pattern::Uniform, Pattern::Skewed] {
        let what = format!("{}, batch 64 over 1 (37 to 46 µs)", pattern.name());
        let ours = growth(lab, &narrow, pattern);
        rows.push(Row::assumed(FIGURE, what, "×", Some(46.0 / 37.0), ours).note(format!(
            "the card has Fig. 9's 42 to 45 µs; assumes {} LoRAs",
            pattern.tenants(BATCH)
        )));
    }
    for pattern in Pattern::ALL {
        let (by_loop, by_gather) = (slower(&looped, pattern), slower(&gathered, pattern));
        let how = match pattern {
            Pattern::Distinct => "behaves terribly",
            _ => "above 1",
        };
        let what = format!("{}, loop over the segmented product at 64: {how}", pattern.name());
        let holds = match pattern {
            Pattern::Distinct => by_loop > by_gather,
            _ => by_loop > 1.0,
        };
        rows.push(Row::shape(FIGURE, what, "×", by_loop, holds).note(match pattern {
            Pattern::Identical => {
                "\"regardless of workloads\"; the text has no time of a loop, and the card's is Fig. 9's kernel, once \
                 for each tenant, here once, and what a roofline has tokens beyond one add"
            }
            _ => {
                "the card's are derived: a kernel of Fig. 9 for each tenant, and what a roofline has tokens beyond \
                 one add"
            }
        }));
        let what = format!(
            "{}, gather and bmm over the segmented product at 64: above 1",
            pattern.name()
        );
        rows.push(
            Row::shape(FIGURE, what, "×", by_gather, by_gather > 1.0)
                .note("the card's are derived: the text says only that they are slower"),
        );
    }
    let fewer = [Pattern::Uniform, Pattern::Skewed]
        .map(|pattern| at_64(&gathered, pattern) / at_64(&gathered, Pattern::Distinct))
        .into_iter()
        .fold(0.0, f64::max);
    rows.push(
        Row::shape(
            FIGURE,
            "gather and bmm at 64, uniform and skewed over distinct, the larger: slightly better",
            "×",
            fewer,
            fewer < 1.0,
        )
        .note("fewer matrices are read"),
    );
    rows.push(Row::not_checkable(
        FIGURE,
        "gather and bmm by themselves, the latter the same across four workloads",
        "the figure is lost, the text gives no time of either, and the card has what both take together",
    ));
    Ok(rows)
}

/// Ranks.
pub fn figure_9(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 9";
    const SCALED: &str = "the card keeps the ratios: a layer's products are scaled to the 2 ms that they add to a step";
    const BEYOND: &str =
        "Up to 8 tenants cost what one does, as uniform requests have; from there it grows evenly to 64 tenants'";
    let card = lab.card(CARD)?;
    let paper = Paper::load(CARD)?;
    let one = paper.number("lora_kernel_us");
    let shared = paper.number("lora_kernel_shared_us");
    let mut rows = Vec::new();
    for rank in [8, 16, 32, 64] {
        let surface = lora(&card, &llama("llama-7b"), AdapterImplementation::Grouped, rank)?;
        let all = paper.number(&format!("lora_rank_{rank}_us"));
        for pattern in Pattern::ALL {
            let stated = match pattern {
                Pattern::Distinct => all,
                Pattern::Uniform | Pattern::Skewed | Pattern::Identical => shared,
            };
            let what = format!(
                "rank {rank}, {}, 64 requests over one ({one} to {stated} µs)",
                pattern.name()
            );
            let row = Row::input(FIGURE, what, "×", stated / one, growth(lab, &surface, pattern));
            rows.push(match pattern {
                Pattern::Skewed => row.note(format!("{SCALED}. {BEYOND}")),
                _ => row.note(SCALED),
            });
        }
    }
    Ok(rows)
}
