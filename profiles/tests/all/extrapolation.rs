//! How far prices beyond a table are off: of shipped cards the longest inputs are left out, back to half of the
//! longest, and predicted.
//!
//! Three ways: along the straight line of the last doubling, in proportion to operations, and by what further
//! operations cost over the last doubling, as the product does it.

use tenantry_profiles::{AdapterImplementation, AdapterRow, Card, DType, Family, ModelShape, Source, Surface};

/// A point of a table by its sequences or its context, and its tokens.
#[derive(Clone, Copy)]
struct Point {
    other: u32,
    tokens: u32,
    us: f64,
}

/// What a 95th percentile of some thirty points moves by when a card is measured again.
const NOISE: f64 = 0.01;

/// What three ways predict of each left-out point, over what was measured.
type Ratios = [f64; 3];

fn compare(
    points: &[Point],
    operations: impl Fn(&Point) -> f64,
    product_us: impl Fn(&Point) -> f64,
    all: &mut Vec<Ratios>,
) {
    let longest = points.iter().map(|point| point.tokens).max().unwrap();
    for point in points.iter().filter(|point| 2 * point.tokens > longest) {
        let kept = |tokens: u32| 2 * tokens <= longest;
        let line = points.iter().filter(|of| of.other == point.other && kept(of.tokens));
        let Some(edge) = line.clone().max_by_key(|of| of.tokens) else {
            continue;
        };
        let Some(before) = line.filter(|of| 2 * of.tokens <= edge.tokens).max_by_key(|of| of.tokens) else {
            continue;
        };
        let share = f64::from(point.tokens - edge.tokens) / f64::from(edge.tokens - before.tokens);
        let line_us = edge.us + (edge.us - before.us).max(0.0) * share;
        let proportion_us = edge.us * operations(point) / operations(edge);
        all.push([line_us, proportion_us, product_us(point)].map(|us| us / point.us));
    }
}

/// Median and 95th percentile of |ratio − 1|.
fn errors(all: &[Ratios]) -> [[f64; 2]; 3] {
    [0, 1, 2].map(|way| {
        let mut errors: Vec<f64> = all.iter().map(|ratios| (ratios[way] - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        [50, 95].map(|percent| errors[(errors.len() * percent).div_ceil(100) - 1])
    })
}

fn told(what: &str, all: &[Ratios]) -> [[f64; 2]; 3] {
    let errors = errors(all);
    let [line, proportion, product] =
        errors.map(|[median, p95]| format!("{:.1} and {:.1} %", 100.0 * median, 100.0 * p95));
    let points = all.len();
    println!(
        "{what}, {points} points: line {line}, in proportion to operations {proportion}, by further operations \
         {product}"
    );
    errors
}

fn card(name: &str) -> Card {
    Card::embedded(name).unwrap().unwrap()
}

/// Layers of encoders.
fn layers(name: &str, attended: bool) -> Vec<Ratios> {
    let (whole, mut half, mut all) = (card(name), card(name), Vec::new());
    let longest = whole.tables.encoder_layer.iter().map(|row| row.tokens).max().unwrap();
    half.tables.encoder_layer.retain(|row| 2 * row.tokens <= longest);
    half.tables.attended_layer.retain(|row| 2 * row.tokens <= longest);
    let mut tables: Vec<(String, DType)> =
        whole.tables.encoder_layer.iter().map(|row| (row.model.clone(), row.dtype)).collect();
    tables.dedup();
    for (name, dtype) in tables {
        let model = ModelShape::builtin(&name).unwrap();
        let surface: Surface = match attended {
            true => half.attended_layer(&model, dtype).unwrap().unwrap(),
            false => half.encoder_layer(&model, dtype).unwrap(),
        };
        let points: Vec<Point> = match attended {
            true => whole
                .tables
                .attended_layer
                .iter()
                .filter(|row| row.model == name)
                .map(|row| Point {
                    other: row.batch,
                    tokens: row.tokens,
                    us: row.stats.median_us,
                })
                .collect(),
            false => whole
                .tables
                .encoder_layer
                .iter()
                .filter(|row| row.model == name && row.dtype == dtype)
                .map(|row| Point {
                    other: row.batch,
                    tokens: row.tokens,
                    us: row.stats.median_us,
                })
                .collect(),
        };
        let operations = |point: &Point| {
            let [tokens, hidden, intermediate] = [point.tokens, model.hidden, model.intermediate].map(f64::from);
            tokens * (2.0 * hidden * (4.0 * hidden + 2.0 * intermediate) + 4.0 * tokens * hidden)
        };
        let product_us = |point: &Point| surface.cost(point.other, point.tokens).median_ns as f64 / 1e3;
        compare(&points, operations, product_us, &mut all);
    }
    all
}

/// Attention of chunks, of contexts that were measured; and of chunks and contexts that were not, by the product alone.
fn prompts(name: &str) -> (Vec<Ratios>, Vec<f64>) {
    let (whole, mut of_tokens, mut of_both) = (card(name), Vec::new(), Vec::new());
    let rows = &whole.tables.decoder_prefill;
    let mut tables: Vec<(String, DType, u32)> =
        rows.iter().map(|row| (row.model.clone(), row.dtype, row.tensor_parallel)).collect();
    tables.dedup();
    // What was derived goes on by operations, of which it was made.
    tables.retain(|(name, dtype, cards)| {
        let table = format!("model={name} dtype={dtype} tensor_parallel={cards}");
        whole.origin(Family::DecoderPrefill, &table).kind != Source::Derived
    });
    for (name, dtype, cards) in tables {
        let model = ModelShape::builtin(&name).unwrap();
        let points: Vec<Point> = rows
            .iter()
            .filter(|row| (&row.model, row.dtype, row.tensor_parallel) == (&name, dtype, cards))
            .map(|row| Point {
                other: row.context,
                tokens: row.tokens,
                us: row.stats.median_us,
            })
            .collect();
        let longest = points.iter().map(|point| point.tokens).max().unwrap();
        let operations = |point: &Point| {
            let [tokens, context] = [point.tokens, point.other].map(f64::from);
            tokens * (context - (tokens - 1.0) / 2.0)
        };
        let prefill_of = |keeps: &dyn Fn(u32, u32) -> bool| {
            let mut half = whole.clone();
            half.tables.decoder_prefill.retain(|row| keeps(row.tokens, row.context));
            half.decoder(&model, dtype, cards).unwrap().prefill
        };
        let prefill = prefill_of(&|tokens, _| 2 * tokens <= longest);
        let product_us = |point: &Point| prefill.cost(point.tokens, point.other).median_ns as f64 / 1e3;
        compare(&points, operations, product_us, &mut of_tokens);
        let prefill = prefill_of(&|_, context| 2 * context <= longest);
        let both = points.iter().filter(|point| 2 * point.tokens > longest && point.other <= longest);
        of_both.extend(both.map(|point| prefill.cost(point.tokens, point.other).median_ns as f64 / 1e3 / point.us));
    }
    (of_tokens, of_both)
}

/// Attention of chunks beside new tokens, of which the longest were left out; that of such chunks alone as well, or
/// not.
fn mixed(name: &str, alone_too: bool) -> Vec<Ratios> {
    let (whole, mut half, mut all) = (card(name), card(name), Vec::new());
    let rows = &whole.tables.decoder_mixed;
    let longest = rows.iter().map(|row| row.tokens).max().unwrap();
    half.tables.decoder_mixed.retain(|row| 2 * row.tokens <= longest);
    if alone_too {
        half.tables.decoder_prefill.retain(|row| 2 * row.tokens <= longest);
    }
    let (model, dtype) = (ModelShape::builtin(&rows[0].model).unwrap(), rows[0].dtype);
    let decoder = half.decoder(&model, dtype, 1).unwrap();
    let mut others: Vec<[u32; 3]> = rows.iter().map(|row| [row.first_context, row.sequences, row.context]).collect();
    others.sort_unstable();
    others.dedup();
    for other in others {
        let [first_context, sequences, context] = other;
        let points: Vec<Point> = rows
            .iter()
            .filter(|row| [row.first_context, row.sequences, row.context] == other)
            .map(|row| Point {
                other: 0,
                tokens: row.tokens,
                us: row.stats.median_us,
            })
            .collect();
        let operations = |point: &Point| {
            let [tokens, first_context] = [point.tokens, first_context].map(f64::from);
            tokens * (first_context + (tokens - 1.0) / 2.0)
        };
        let product_us = |point: &Point| {
            let chunk = (point.tokens, first_context - 1 + point.tokens);
            decoder.attention_ns(&[chunk], sequences, context) as f64 / 1e3
        };
        compare(&points, operations, product_us, &mut all);
    }
    all
}

/// What of a chunk is longer adds to its price beside new tokens what it adds to its price alone.
#[test]
fn the_longest_chunks_beside_new_tokens_are_predicted_by_those_alone() {
    for name in ["rtx4090", "rtx-pro-6000"] {
        for alone_too in [false, true] {
            let alone = if alone_too { "left out too" } else { "known" };
            let what = format!("{name}, attention of both, of chunks alone {alone}");
            let [line, proportion, product] = told(&what, &mixed(name, alone_too));
            assert!(product[0] < line[0] && product[1] < line[1], "{what}");
            assert!(product[0] < proportion[0] / 2.0 && product[1] < proportion[1], "{what}");
        }
    }
}

#[test]
fn the_longest_inputs_are_predicted_better_than_along_a_line() {
    for name in ["cpu", "cpu-epyc"] {
        for attended in [false, true] {
            let what = if attended {
                "layers that sum attention up"
            } else {
                "layers"
            };
            let [line, proportion, product] = told(&format!("{name}, {what}"), &layers(name, attended));
            assert!(product[0] < line[0] && product[1] < line[1] + NOISE, "{name}, {what}");
            assert!(
                product[0] < proportion[0] && product[1] < proportion[1],
                "{name}, {what}"
            );
        }
    }
    let mut all = Vec::new();
    for name in ["cpu", "rtx4090", "rtx-pro-6000", "h100-sxm", "h200-sxm-imported"] {
        let (of_tokens, of_both) = prompts(name);
        let [line, _, product] = told(&format!("{name}, attention of prompts"), &of_tokens);
        assert!(product[1] < line[1], "{name}");
        all.extend(of_tokens);
        let both: Vec<Ratios> = of_both.iter().map(|ratio| [*ratio; 3]).collect();
        let [.., [median, p95]] = errors(&both);
        println!(
            "{name}, where the context was not measured either: {} points, {:.1} and {:.1} %",
            both.len(),
            100.0 * median,
            100.0 * p95
        );
        assert!(median < 0.25, "{name}: {median}");
    }
    let [line, _, product] = told("attention of prompts, all cards", &all);
    assert!(product[0] < line[0] / 2.0, "all cards");
}

/// Where a cost is a start and a slope, scaling its last point by the work is worse than the line, which is its
/// roofline.
#[test]
fn proportional_work_is_predicted_better_along_a_line() {
    for name in ["cpu", "cpu-epyc"] {
        let (whole, mut half) = (card(name), card(name));
        let (mut heads, mut adapters) = (Vec::new(), Vec::new());
        let most = whole.tables.head.iter().map(|row| row.batch).max().unwrap();
        half.tables.head.retain(|row| 2 * row.batch <= most);
        for model in ["tiny", "bert-mini"] {
            let rows = whole.tables.head.iter().filter(|row| row.model == model);
            let points = rows.map(|row| Point {
                other: row.classes,
                tokens: row.batch,
                us: row.stats.median_us,
            });
            let model = ModelShape::builtin(model).unwrap();
            let product_us = |point: &Point| {
                let head = half.head(&model, DType::F32, point.other).unwrap();
                head.cost(point.tokens.into()).median_ns as f64 / 1e3
            };
            compare(
                &points.collect::<Vec<_>>(),
                |point| point.tokens.into(),
                product_us,
                &mut heads,
            );
        }
        let longest = |row: &AdapterRow| row.model != "tiny-llama";
        let most = whole.tables.adapter.iter().filter(|row| longest(row)).map(|row| row.tokens).max().unwrap();
        let mut half = whole.clone();
        half.tables.adapter.retain(|row| !longest(row) || 2 * row.tokens <= most);
        for model in ["tiny", "bert-mini"].map(|name| ModelShape::builtin(name).unwrap()) {
            for &implementation in AdapterImplementation::ALL {
                for bottleneck in [16, 64] {
                    let of = |row: &&AdapterRow| {
                        (&row.model, row.implementation, row.bottleneck) == (&model.name, implementation, bottleneck)
                    };
                    let points = whole.tables.adapter.iter().filter(of).map(|row| Point {
                        // Tenants and batch together.
                        other: row.tenants * 1000 + row.batch,
                        tokens: row.tokens,
                        us: row.stats.median_us,
                    });
                    let surface = half.adapter(&model, DType::F32, implementation, bottleneck).unwrap();
                    let product_us = |point: &Point| {
                        let (tenants, batch) = (point.other / 1000, point.other % 1000);
                        surface.cost(tenants, batch, point.tokens).median_ns as f64 / 1e3
                    };
                    compare(
                        &points.collect::<Vec<_>>(),
                        |point| point.tokens.into(),
                        product_us,
                        &mut adapters,
                    );
                }
            }
        }
        for (what, all) in [("heads by batch", heads), ("adapters by tokens", adapters)] {
            let [line, proportion, product] = told(&format!("{name}, {what}"), &all);
            assert!(
                product[0] < proportion[0] / 2.0 && product[0] < line[0] + 0.01,
                "{name}, {what}"
            );
        }
    }
}
