//! PetS's three cards: α is a constant and arithmetic at a rate, β a roofline scaled to one of Fig. 9's shares.
//!
//! The paper has no absolute latency. Its authors published what their engine takes for BERT-base on the GTX 1080 Ti,
//! which t₀ + operations / rate meets within 5 % where there is much work. The V100's rate is FasterTransformer's
//! single-precision table's, and its part of the peak is the TX2's.

use serde::Deserialize;

use super::draft::{Draft, Link, builtin};
use super::{Outcome, Paper, assumed, input, predicted};
use crate::card::{Card, Source};
use crate::keys::PetKind;
use crate::model::{DType, ModelShape};
use crate::roofline::ops::encoder_layer_flops;
use crate::roofline::{Datasheet, Factors, Roofline};
use crate::rows::{ConcurrentLayerRow, PetRow};
use crate::stats::Stats;

const DTYPE: DType = DType::F32;
/// Up to the largest batch of Fig. 7, and from the shortest query of Fig. 12.
const BATCHES: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const LENGTHS: [u32; 8] = [1, 4, 16, 32, 64, 128, 256, 512];
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
/// Queries of each task and their tokens: Fig. 8's in the authors' public scripts (PKUZHOU/PetS-ATC-2022,
/// `research/eval_throughput_seqs.sh`).
const PARALLEL_SHAPES: [(u32, u32); 4] = [(4, 16), (2, 32), (1, 64), (1, 128)];
/// The card of Figs. 8 and 9, to which their figures are fitted for all three.
const FITTED_ON: &str = "paper-gtx1080ti";

/// A layer's cost without tasks: t₀ and a rate.
#[derive(Clone, Copy)]
struct Alpha {
    constant_us: f64,
    flops_per_s: f64,
}

/// A cell of what the authors published of their engine on the GTX 1080 Ti; lengths of `adapters_total_ms` are those of
/// its comment.
#[derive(Deserialize)]
struct EngineRow {
    batch: u32,
    tokens: u32,
    model_ms: f64,
    adapters_total_ms: f64,
}

/// All cells.
const ENGINE: &str = include_str!("../../papers/pets-gtx1080ti-engine.csv");

fn engine_rows() -> impl Iterator<Item = EngineRow> {
    let mut reader = csv::ReaderBuilder::new();
    let rows = reader.comment(Some(b'#')).from_reader(ENGINE.as_bytes()).into_deserialize();
    rows.map(|row: Result<EngineRow, csv::Error>| row.expect("a test reads it"))
}

impl Alpha {
    /// The V100's part of its peak, from two rows of FasterTransformer's table.
    fn part_of_peak(paper: &Paper) -> f64 {
        let base = builtin("bert-base");
        let layer_us = |name: &str| 1e3 * paper.number(name) / f64::from(base.layers);
        let (small, large) = (
            encoder_layer_flops(&base, 1.0, 32.0),
            encoder_layer_flops(&base, 32.0, 128.0),
        );
        let (small_us, large_us) = (layer_us("v100_batch_1_by_32_ms"), layer_us("v100_batch_32_by_128_ms"));
        let flops_per_us = (large - small) / (large_us - small_us);
        1e6 * flops_per_us / (1e12 * paper.number("v100_peak_tflops"))
    }

    /// Of the authors' engine on their GTX 1080 Ti: a pass less the adapters' own time in it, as t₀ + operations / rate
    /// with the least sum of squared relative errors.
    fn of_engine(passes: f64) -> Alpha {
        let base = builtin("bert-base");
        // Normal equations of (t₀ + w / r) / t = 1 over all cells, in t₀ and 1 / r.
        let (mut squares, mut ones) = ([0.0; 3], [0.0; 2]);
        for row in engine_rows() {
            let us = 1e3 * (row.model_ms - row.adapters_total_ms / passes) / f64::from(base.layers);
            let [constant, work] = [
                1.0 / us,
                encoder_layer_flops(&base, row.batch.into(), row.tokens.into()) / us,
            ];
            for (sum, product) in squares.iter_mut().zip([constant * constant, constant * work, work * work]) {
                *sum += product;
            }
            ones[0] += constant;
            ones[1] += work;
        }
        let [cc, cw, ww] = squares;
        let determinant = cc * ww - cw * cw;
        let us_per_flop = (ones[1] * cc - ones[0] * cw) / determinant;
        Alpha {
            constant_us: (ones[0] * ww - ones[1] * cw) / determinant,
            flops_per_s: 1e6 / us_per_flop,
        }
    }

    /// Of the card: the engine's own on the GTX 1080 Ti; elsewhere its constant, which is the host's part, and
    /// FasterTransformer's part of the peak.
    fn of(paper: &Paper) -> Alpha {
        if paper.name() == FITTED_ON {
            return Alpha::of_engine(paper.number("profiled_passes"));
        }
        let fitted_on = Paper::load(FITTED_ON).expect("a test loads it");
        let share = paper.number("peak_share_times") * Alpha::part_of_peak(paper);
        Alpha {
            constant_us: paper.number("constant_times") * Alpha::of(&fitted_on).constant_us,
            flops_per_s: share * 1e12 * paper.number("peak_tflops"),
        }
    }

    fn us(&self, model: &ModelShape, batch: u32, tokens: u32) -> f64 {
        self.constant_us + 1e6 * encoder_layer_flops(model, batch.into(), tokens.into()) / self.flops_per_s
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
    KINDS.iter().map(|kind| of_each * beta.us(model, *kind, each, tokens)).sum()
}

/// How much more than its work a model takes for each that computes beside it, so that 16 tasks side by side are as
/// much slower than PetS as Fig. 8 has it in the mean of its four shapes. That each other model crowds it alike is
/// assumed: the text has this one figure.
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

/// A layer of so many models of one shape side by side.
fn side_by_side(name: &str, alpha: Alpha, crowding: f64) -> Vec<ConcurrentLayerRow> {
    let model = builtin(name);
    let mut rows = Vec::new();
    for streams in STREAMS {
        for batch in PARALLEL_BATCHES {
            for tokens in PARALLEL_LENGTHS {
                let one_us = alpha.us(&model, batch, tokens);
                let others = f64::from(streams - 1);
                let all_us =
                    alpha.constant_us + (1.0 + crowding * others) * f64::from(streams) * (one_us - alpha.constant_us);
                rows.push(ConcurrentLayerRow {
                    model: name.to_owned(),
                    dtype: DTYPE,
                    streams,
                    batch,
                    tokens,
                    // What takes turns crowds nobody.
                    stats: Stats::exact(all_us.min(f64::from(streams) * one_us)),
                });
            }
        }
    }
    rows
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
            "FasterTransformer's single-precision rate on a V100, and t₀ of PetS's own engine on a GTX 1080 Ti",
        ),
        FITTED_ON => (
            Source::Fitted,
            "the authors' own table of their engine on this card, less its adapters, as t₀ + operations / rate",
        ),
        _ => (
            Source::Assumed,
            "the V100's part of the peak (FasterTransformer), and t₀ of PetS's own engine on a GTX 1080 Ti",
        ),
    };
    draft.mark(
        kind,
        source,
        Some(match paper.name() {
            FITTED_ON => "3 % in the median of 30 published cells, 28 % at worst",
            _ => "±30 %",
        }),
    );

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
    for name in MODELS {
        draft.tables.concurrent_layer.extend(side_by_side(name, alpha, crowding));
    }
    draft.mark(
        Source::Fitted,
        "Fig. 8: PetS is 17.7 % ahead of 16 BERT-base models side by side; that other models crowd each other alike is \
         assumed",
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
    // A task's model is counted without the embedding, which is there once: 0.35 GB (section 6.3.2) leave no room for
    // it.
    let room = card.device.memory_bytes - card.device.reserve_bytes;
    let tasks = |name: &str| {
        let model = builtin(name);
        let number = DTYPE.bytes();
        let task_bytes = number * u64::from(model.layers) * model.layer_parameters();
        ((room - number * model.embedding_parameters()) / task_bytes) as f64
    };
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
            predicted(
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
