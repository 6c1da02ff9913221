//! PetS's three cards: α is a constant and arithmetic at a published rate, β a roofline scaled to one of Fig. 9's shares.
//!
//! The paper has no absolute latency. FasterTransformer's single-precision table for a V100 is met within 5 % by
//! t₀ + operations / rate; that rate's part of the peak is carried over to the other two cards.

use super::draft::{Draft, Link, builtin};
use super::{Outcome, Paper, assumed, input, predicted};
use crate::card::{Card, Source};
use crate::keys::PetKind;
use crate::model::{DType, ModelShape};
use crate::roofline::{Datasheet, Factors, Roofline, matrix_weights};
use crate::rows::{ConcurrentLayerRow, PetRow, Stats};

const DTYPE: DType = DType::F32;
const BATCHES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LENGTHS: [u32; 7] = [4, 16, 32, 64, 128, 256, 512];
const STREAMS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const PARALLEL_BATCHES: [u32; 4] = [1, 2, 4, 8];
const PARALLEL_LENGTHS: [u32; 4] = [16, 32, 64, 128];
const MODELS: [&str; 3] = ["distilbert", "bert-base", "bert-large"];
/// The paper's four kinds, of which Fig. 9's eight tasks have two each.
const KINDS: [PetKind; 4] = [
    PetKind::Adapters,
    PetKind::MaskBert,
    PetKind::DiffPruning,
    PetKind::BitFit,
];
/// Fig. 9's tasks and the tokens of each: one query of 64.
const TASKS: u32 = 8;
const TASK_TOKENS: u32 = 64;
const ONE_QUERY: (u32, u32) = (1, TASK_TOKENS);
/// Tasks at which Fig. 8's 17.7 % was had, in the mean of four shapes.
const PARALLEL_TASKS: u32 = 16;
/// Queries of each task and their tokens: Fig. 8's in the authors' public scripts (PKUZHOU/PetS-ATC-2022, `research/eval_throughput_seqs.sh`).
const PARALLEL_SHAPES: [(u32, u32); 4] = [(4, 16), (2, 32), (1, 64), (1, 128)];
/// The card of Figs. 8 and 9, to which their figures are fitted for all three.
const FITTED_ON: &str = "paper-gtx1080ti";

/// A layer's cost without tasks: t₀ and a rate.
#[derive(Clone, Copy)]
struct Alpha {
    constant_us: f64,
    flops_per_s: f64,
}

fn flops(model: &ModelShape, batch: f64, tokens: f64) -> f64 {
    2.0 * batch * tokens * matrix_weights(model) + 4.0 * batch * tokens * tokens * f64::from(model.hidden)
}

impl Alpha {
    /// The V100's part of its peak, and its constant, from two rows of FasterTransformer's table.
    fn published(paper: &Paper) -> (f64, f64) {
        let base = builtin("bert-base");
        let layer_us = |name: &str| 1e3 * paper.number(name) / f64::from(base.layers);
        let (small, large) = (flops(&base, 1.0, 32.0), flops(&base, 32.0, 128.0));
        let (small_us, large_us) = (layer_us("v100_batch_1_by_32_ms"), layer_us("v100_batch_32_by_128_ms"));
        let flops_per_us = (large - small) / (large_us - small_us);
        let peak = 1e12 * paper.number("v100_peak_tflops");
        (1e6 * flops_per_us / peak, small_us - small / flops_per_us)
    }

    /// Of the card. `fitted` says whether Fig. 9's speed-up sets the constant, or FasterTransformer's table.
    fn of(paper: &Paper) -> Alpha {
        let (part, v100_constant_us) = Alpha::published(paper);
        let flops_per_s = part * 1e12 * paper.number("peak_tflops");
        let constant_us = match paper.name() {
            "paper-v100" => v100_constant_us,
            // n(t₀ + w) = s(t₀ + n w), where w is one task's work and s the speed-up of n in one batch.
            FITTED_ON => {
                let work_us = 1e6 * flops(&builtin("bert-large"), 1.0, TASK_TOKENS.into()) / flops_per_s;
                let (tasks, speedup) = (f64::from(TASKS), paper.number("shared_speedup"));
                work_us * tasks * (speedup - 1.0) / (tasks - speedup)
            }
            _ => paper.number("constant_us"),
        };
        Alpha {
            constant_us,
            flops_per_s,
        }
    }

    fn us(&self, model: &ModelShape, batch: u32, tokens: u32) -> f64 {
        self.constant_us + 1e6 * flops(model, batch.into(), tokens.into()) / self.flops_per_s
    }
}

/// Tasks' operators: the roofline's, times one factor.
struct Beta {
    roofline: Roofline,
    scale: f64,
}

impl Beta {
    fn unscaled(paper: &Paper, alpha: Alpha) -> Beta {
        let named = Datasheet::builtin(match paper.name() {
            "paper-v100" => "v100-32g",
            FITTED_ON => "gtx-1080-ti",
            _ => "jetson-tx2",
        });
        let arithmetic = Factors::FITTED.arithmetic;
        let sheet = Datasheet {
            f32: alpha.flops_per_s / arithmetic,
            ..named.expect("it comes with the product")
        };
        let factors = Factors {
            launch_us: paper.number("pet_launch_us"),
            ..Factors::FITTED
        };
        Beta {
            roofline: Roofline { sheet, factors },
            scale: 1.0,
        }
    }

    /// The factor is that with which Fig. 9's least share comes out on its card.
    fn of(paper: &Paper, alpha: Alpha) -> Beta {
        let fitted_on = match paper.name() {
            FITTED_ON => paper.clone(),
            // What is assumed of the operators is assumed of all three.
            _ => Paper::load(FITTED_ON)
                .expect("a test loads it")
                .with("pet_launch_us", paper.number("pet_launch_us")),
        };
        let its_alpha = Alpha::of(&fitted_on);
        let raw_us = tasks_us(
            &Beta::unscaled(&fitted_on, its_alpha),
            &builtin("bert-large"),
            TASKS,
            ONE_QUERY,
        );
        let share = fitted_on.number("pet_share");
        let alpha_us = its_alpha.us(&builtin("bert-large"), TASKS, TASK_TOKENS);
        Beta {
            scale: share / (1.0 - share) * alpha_us / raw_us,
            ..Beta::unscaled(paper, alpha)
        }
    }

    fn us(&self, model: &ModelShape, kind: PetKind, batch: u32, tokens: u32) -> f64 {
        self.scale * self.roofline.pet_us(model, DTYPE, kind, batch, tokens)
    }
}

/// One layer's operators of so many tasks, as many of each kind, with so many queries of so many tokens each.
fn tasks_us(beta: &Beta, model: &ModelShape, tasks: u32, (each, tokens): (u32, u32)) -> f64 {
    let of_each = f64::from(tasks) / KINDS.len() as f64;
    KINDS
        .iter()
        .map(|kind| of_each * beta.us(model, *kind, each, tokens))
        .sum()
}

/// How much more than its work a model takes for each that computes beside it, so that 16 tasks side by side are as much slower than PetS as
/// Fig. 8 has it in the mean of its four shapes. That each other model crowds it alike is assumed: the text has this one figure.
fn crowding(paper: &Paper) -> f64 {
    let fitted_on = Paper::load(FITTED_ON).expect("a test loads it");
    let fitted_on = if paper.name() == FITTED_ON { paper } else { &fitted_on };
    let alpha = Alpha::of(fitted_on);
    let base = builtin("bert-base");
    let beta = Beta::of(fitted_on, alpha);
    // The ratio of a shape is (t₀ + (1 + 15 c) w) / p, linear in the crowding c: w is the work, p PetS's time.
    let (mut uncrowded, mut by_crowding) = (0.0, 0.0);
    for (each, tokens) in PARALLEL_SHAPES {
        let all_us = alpha.us(&base, PARALLEL_TASKS * each, tokens);
        let pets_us = all_us + tasks_us(&beta, &base, PARALLEL_TASKS, (each, tokens));
        uncrowded += all_us / pets_us;
        by_crowding += f64::from(PARALLEL_TASKS - 1) * (all_us - alpha.constant_us) / pets_us;
    }
    let shapes = PARALLEL_SHAPES.len() as f64;
    (shapes * fitted_on.number("parallel_ratio") - uncrowded) / by_crowding
}

pub(super) fn tables(paper: &Paper) -> Draft {
    let number = |name: &str| paper.number(name);
    let alpha = Alpha::of(paper);
    let beta = Beta::of(paper, alpha);
    let mut draft = Draft::default();
    let launch_us = number("pet_launch_us");
    for name in MODELS {
        let model = builtin(name);
        let layer = |batch: u32, tokens: u32| alpha.us(&model, batch, tokens);
        let embedding = |batch: u32, tokens: u32| beta.roofline.embedding_us(&model, DTYPE, batch, tokens);
        draft.encoder(&model, DTYPE, [&BATCHES, &LENGTHS], layer, embedding);
        draft.head(&model, DTYPE, &BATCHES, |_| 2.0 * launch_us);
    }
    let (kind, source) = match paper.name() {
        "paper-v100" => (
            Source::Fitted,
            "FasterTransformer's single-precision table for a V100, as t₀ + operations / rate",
        ),
        FITTED_ON => (
            Source::Fitted,
            "the V100's part of the peak (FasterTransformer), t₀ from Fig. 9's 2.17×",
        ),
        _ => (
            Source::Assumed,
            "the V100's part of the peak (FasterTransformer), and an assumed t₀",
        ),
    };
    draft.mark(kind, source, Some("±30 %: the engine is another than the paper's"));

    for name in MODELS {
        for &kind in PetKind::ALL {
            for batch in BATCHES {
                for tokens in LENGTHS {
                    let stats = Stats::exact(beta.us(&builtin(name), kind, batch, tokens));
                    draft.tables.pet.push(PetRow {
                        model: name.to_owned(),
                        dtype: DTYPE,
                        kind,
                        batch,
                        tokens,
                        stats,
                    });
                }
            }
        }
    }
    draft.mark(
        Source::Fitted,
        "roofline of each kind's operators, scaled to Fig. 9's 27.4 %",
        Some("±50 % a kind"),
    );

    let crowding = crowding(paper);
    let base = builtin("bert-base");
    for streams in STREAMS {
        for batch in PARALLEL_BATCHES {
            for tokens in PARALLEL_LENGTHS {
                let one_us = alpha.us(&base, batch, tokens);
                let others = f64::from(streams - 1);
                let side_by_side_us =
                    alpha.constant_us + (1.0 + crowding * others) * f64::from(streams) * (one_us - alpha.constant_us);
                // What takes turns crowds nobody.
                let stats = Stats::exact(side_by_side_us.min(f64::from(streams) * one_us));
                let model = base.name.clone();
                draft.tables.concurrent_layer.push(ConcurrentLayerRow {
                    model,
                    dtype: DTYPE,
                    streams,
                    batch,
                    tokens,
                    stats,
                });
            }
        }
    }
    draft.mark(
        Source::Fitted,
        "Fig. 8: PetS is 17.7 % ahead of 16 models side by side",
        Some("±30 %"),
    );

    draft.link(&Link::numbered(number));
    draft.dispatch([number("dispatch_us"); 3]);
    draft.mark(
        Source::Assumed,
        "nothing in the text: the link as it is elsewhere",
        None,
    );
    draft
}

pub(super) fn outcomes(paper: &Paper, card: &Card) -> Vec<Outcome> {
    let us = |ns: u64| ns as f64 / 1e3;
    let shape_us = |name: &str, batch: u32, tokens: u32| {
        let layer = card.encoder_layer(&builtin(name), DTYPE).expect("the card has it");
        us(layer.cost(batch, tokens).median_ns)
    };
    let layer_us = |name: &str, batch: u32| shape_us(name, batch, TASK_TOKENS);
    let speedup = |name: &str| f64::from(TASKS) * layer_us(name, 1) / layer_us(name, TASKS);
    let pet_shape_us = |name: &str, tasks: u32, (each, tokens): (u32, u32)| -> f64 {
        let of_each = f64::from(tasks) / KINDS.len() as f64;
        let one = |kind: &PetKind| {
            let pet = card.pet(&builtin(name), DTYPE, *kind).expect("the card has it");
            us(pet.cost(each, tokens).median_ns)
        };
        KINDS.iter().map(|kind| of_each * one(kind)).sum()
    };
    let pet_us = |name: &str, tasks: u32| pet_shape_us(name, tasks, ONE_QUERY);
    let share = |name: &str| pet_us(name, TASKS) / (pet_us(name, TASKS) + layer_us(name, TASKS));
    // A task's model is counted without the embeddings, which 0.35 GB leaves no room for.
    let room = (card.device.memory_bytes - card.device.reserve_bytes) as f64;
    let bytes = |name: &str| {
        let model = builtin(name);
        let base = builtin("bert-base");
        let of_base = f64::from(base.layers) * base.layer_parameters() as f64;
        1e9 * paper.number("base_task_gb") * f64::from(model.layers) * model.layer_parameters() as f64 / of_base
    };
    let tasks = |name: &str| (room / bytes(name)).floor();
    let [distil, base, large] = MODELS;
    let table_5 = |column: &str| paper.number(column);
    let mut outcomes = vec![
        input("SeqS, BERT-base, tasks (Table 5)", table_5("seqs_base"), tasks(base)),
        predicted(
            "SeqS, DistilBERT, tasks (Table 5)",
            table_5("seqs_distil"),
            tasks(distil),
        ),
        predicted("SeqS, BERT-large, tasks (Table 5)", table_5("seqs_large"), tasks(large)),
    ];
    if paper.name() == FITTED_ON {
        let parallel = card.concurrent_layer(&builtin(base), DTYPE).expect("the card has it");
        let ratio = |(each, tokens): (u32, u32)| {
            let parallel_us = us(parallel.cost(PARALLEL_TASKS, each, tokens).median_ns);
            let shared_us = shape_us(base, PARALLEL_TASKS * each, tokens);
            parallel_us / (shared_us + pet_shape_us(base, PARALLEL_TASKS, (each, tokens)))
        };
        let ratios = PARALLEL_SHAPES.map(ratio);
        outcomes.extend([
            input(
                "shared operators of 8 tasks, least speed-up (Fig. 9)",
                2.17,
                speedup(large),
            ),
            predicted(
                "shared operators of 8 tasks, greatest speed-up (Fig. 9)",
                3.28,
                speedup(base),
            ),
            input("tasks' operators, least share (Fig. 9)", 0.274, share(large)),
            predicted("tasks' operators, greatest share (Fig. 9)", 0.413, share(base)),
            input(
                "PetS over ParS at 16 tasks, mean of four shapes (Fig. 8)",
                paper.number("parallel_ratio"),
                ratios.iter().sum::<f64>() / ratios.len() as f64,
            ),
        ]);
    }
    outcomes.push(match paper.name() {
        "paper-v100" => assumed(
            "eight tasks of 64 tokens over one at a time (Fig. 7, at most, shapes unstated)",
            1.86,
            batched(&layer_us, &pet_us),
        ),
        FITTED_ON => assumed(
            "eight tasks of 64 tokens over one at a time (Fig. 7, at most, shapes unstated)",
            1.87,
            batched(&layer_us, &pet_us),
        ),
        _ => assumed(
            "eight tasks of 64 tokens over one at a time (Fig. 7: none, shapes unstated)",
            1.0,
            batched(&layer_us, &pet_us),
        ),
    });
    outcomes
}

/// Eight tasks in one batch against one after the other.
fn batched(layer_us: &dyn Fn(&str, u32) -> f64, pet_us: &dyn Fn(&str, u32) -> f64) -> f64 {
    let one_by_one = f64::from(TASKS) * layer_us("bert-base", 1);
    one_by_one / (layer_us("bert-base", TASKS) + pet_us("bert-base", TASKS))
}
