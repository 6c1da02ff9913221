//! How far layers composed from operators are from whole models that were measured: BERT from aiconfigurator's kernels
//! of an H100 against TensorRT and FasterTransformer on an A100, the only published whole models and operators of one
//! architecture at hand.
//!
//! The H100's figures are carried over to the A100 by a third source that measured both: how much longer the A100 takes
//! for a layer of Llama-2-7B on eight cards with as much arithmetic (Vidur).

use tenantry_profiles::{Card, Curve, DType, ModelShape, StaticModel, Surface};

const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What the composed models are off by, in per cent, by batch: the table of `docs/profiles-imported.md`, which explains
/// them.
const EXPECTED: [(&str, u32, [f64; 7]); 4] = [
    ("bert-base", 128, [37.0, 19.0, 8.0, 5.0, 11.0, 6.0, 6.0]),
    ("bert-base", 384, [-16.0, -9.0, -6.0, 13.0, 4.0, -8.0, 6.0]),
    ("bert-large", 128, [20.0, 20.0, 7.0, -4.0, -2.0, -1.0, 7.0]),
    ("bert-large", 384, [-17.0, -18.0, -3.0, 0.0, 3.0, 6.0, 5.0]),
];

/// The same of [`PAIRS`].
const EXPECTED_OF_FASTER_TRANSFORMER: [f64; 9] = [-21.0, -22.0, -22.0, -25.0, -24.0, -21.0, -23.0, -15.0, -20.0];

/// What the H200 takes less than the H100 for [`PAIRS`], at the least and the most, in per cent.
const LEAST_SAVED: f64 = 0.2;
const MOST_SAVED: f64 = 8.1;

/// How far an error may move before its explanation is looked at again, in points.
const MARGIN: f64 = 1.0;

/// FasterTransformer's guide has these.
const PAIRS: [(u32, u32); 9] = [
    (1, 32),
    (1, 128),
    (1, 384),
    (8, 32),
    (8, 128),
    (8, 384),
    (32, 32),
    (32, 128),
    (32, 384),
];

fn card(name: &str) -> Card {
    Card::embedded(name).unwrap().expect(name)
}

fn model(name: &str) -> ModelShape {
    ModelShape::builtin(name).unwrap()
}

/// Weights of a layer's matrix products, without biases and norms.
fn weights(model: &ModelShape) -> u64 {
    let (hidden, inner) = (u64::from(model.hidden), u64::from(model.intermediate));
    let matrices = if model.gated { 3 } else { 2 };
    4 * hidden * hidden + matrices * hidden * inner
}

struct Carried {
    h100: Surface,
    h200: Surface,
    a100_llama: Curve,
    h100_llama: Curve,
    model: ModelShape,
}

impl Carried {
    fn new(name: &str) -> Carried {
        let llama = model("llama-7b");
        let layer = |card: Card| card.encoder_layer(&model(name), DType::Bf16).unwrap();
        let dense = |card: Card| card.decoder(&llama, DType::F16, 8).unwrap().dense;
        Carried {
            h100: layer(card("h100-sxm")),
            h200: layer(card("h200-sxm-imported")),
            a100_llama: dense(card("a100-sxm")),
            h100_llama: dense(card("h100-sxm")),
            model: model(name),
        }
    }

    /// Milliseconds of the whole model on the H100, the H200, and, carried over, the A100.
    fn ms(&self, batch: u32, tokens: u32) -> [f64; 3] {
        let whole = |layer: &Surface| f64::from(self.model.layers) * layer.cost(batch, tokens).median_ns as f64 / 1e6;
        let llama_tokens = u64::from(batch * tokens) * weights(&self.model) * 8 / weights(&model("llama-7b"));
        let ns = |curve: &Curve| curve.cost(llama_tokens.max(1)).median_ns as f64;
        let longer = ns(&self.a100_llama) / ns(&self.h100_llama);
        [whole(&self.h100), whole(&self.h200), whole(&self.h100) * longer]
    }
}

fn median(mut errors: Vec<f64>) -> f64 {
    errors.iter_mut().for_each(|error| *error = error.abs());
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

/// Prints the table of `docs/profiles-imported.md`.
#[test]
fn bert_composed_from_operators_against_whole_models() {
    let a100 = card("a100-sxm");
    let mut errors = Vec::new();
    println!(
        "| model | tokens | batch | H100, composed | H200, composed | A100, carried over | TensorRT, A100 | error |"
    );
    for name in ["bert-base", "bert-large"] {
        let carried = Carried::new(name);
        let tensorrt: StaticModel = a100.static_model(&model(name), DType::F16).unwrap();
        for (tokens, expected) in
            EXPECTED.iter().filter(|(of, ..)| *of == name).map(|(_, tokens, errors)| (*tokens, errors))
        {
            for (batch, expected) in BATCHES.into_iter().zip(expected) {
                let [h100, h200, composed] = carried.ms(batch, tokens);
                let measured = tensorrt.cost(batch, tokens).unwrap().median_ns as f64 / 1e6;
                let error = 100.0 * (composed / measured - 1.0);
                println!(
                    "| {name} | {tokens} | {batch} | {h100:.2} | {h200:.2} | {composed:.2} | {measured:.2} | \
                     {error:+.0} % |"
                );
                assert!(
                    (error - expected).abs() < MARGIN,
                    "{name}, {batch} × {tokens}: {error:+.1} %, and was {expected:+} %"
                );
                errors.push(error);
            }
        }
    }
    let all = median(errors);
    println!("median {all:.1} %");
    assert!(all < 8.5, "median {all} %");

    // The H200 has the same cores and faster memory.
    let (base, faster) = (
        Carried::new("bert-base"),
        card("a100-sxm").encoder_layer(&model("bert-base"), DType::F16).unwrap(),
    );
    println!("| bert-base, batch × tokens | A100, carried over | FasterTransformer, A100 | error |");
    let (mut errors, mut saved) = (Vec::new(), Vec::new());
    for (batch, tokens) in PAIRS {
        let [h100, h200, composed] = base.ms(batch, tokens);
        saved.push(100.0 * (1.0 - h200 / h100));
        let measured = 12.0 * faster.cost(batch, tokens).median_ns as f64 / 1e6;
        let error = 100.0 * (composed / measured - 1.0);
        println!("| {batch} × {tokens} | {composed:.2} | {measured:.2} | {error:+.0} % |");
        errors.push(error);
    }
    for (error, expected) in errors.iter().zip(EXPECTED_OF_FASTER_TRANSFORMER) {
        assert!((error - expected).abs() < MARGIN, "{errors:?}");
    }
    saved.sort_by(f64::total_cmp);
    println!("saved by the H200, in per cent: {saved:.1?}");
    for (saved, expected) in [(saved[0], LEAST_SAVED), (saved[8], MOST_SAVED)] {
        assert!((saved - expected).abs() < MARGIN, "{saved}, and was {expected}");
    }
}
