//! Vidur's profiling tables: operators of one decoder layer, attention, collectives, and what the host does for each
//! iteration.
//!
//! All times are milliseconds, of eager PyTorch kernels in half precision in early 2024.

use std::collections::{BTreeMap, BTreeSet};

use super::US_PER_MS;
use super::draft::{Decoding, Draft, Points, by_context, error_where_left_out, without_holes};
use super::sheet::{Line, Sheet};
use super::summary_stats::Times;
use crate::error::Invalid;
use crate::family::Family;
use crate::keys::CollectiveOperation;
use crate::model::{DType, ModelKind, ModelShape};

const SOURCE: &str = "Vidur (microsoft/vidur @7d47513, MIT)";

/// Vidur's profiler runs half precision.
const DTYPE: DType = DType::F16;

/// By what share a sum of equal times may differ from as many times one of them.
const ROUNDED: f64 = 1e-9;

/// The repetitions of an operator and of a collective: not stated in the tables, but their means are whole multiples of
/// these shares.
const REPETITIONS: u64 = 20;
const COLLECTIVE_REPETITIONS: u64 = 3;

/// A layer's operators. `add` counts once, as in Vidur's own predictor; attention has tables of its own.
const LAYER: [&str; 9] = [
    "input_layernorm",
    "attn_pre_proj",
    "attn_rope",
    "attn_post_proj",
    SECOND_NORM,
    "mlp_up_proj",
    "mlp_act",
    "mlp_down_proj",
    "add",
];

/// Phi-2, whose attention and MLP begin with the same norm, has none; models with a gated MLP have it.
const SECOND_NORM: &str = "post_attention_layernorm";

/// Of 128 batches and 79 contexts, every fourth batch and these are kept; the others show how far interpolation is off.
const BATCH_STEP: u64 = 4;
const CONTEXTS: [u64; 14] = [
    32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4032,
];

/// Chunks that are kept: both ends of the kernel's steps of 64 tokens where these are high. And the contexts of each.
const CHUNKS: [u64; 17] = [
    64, 80, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024, 1536, 2048, 3072, 4096,
];
const CHUNK_CONTEXTS: [u64; 14] = [
    64, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096,
];

pub(super) fn import(sheets: &[Sheet], models: &[ModelShape], draft: &mut Draft) -> Result<(), Invalid> {
    draft.note(
        "milliseconds there, microseconds here; least, most, mean, median and deviation of each operator are \
         published: sums add medians and means, and take the operators to vary independently and normally for p05, p95 \
         and p99, within the sums of least and most",
    );
    for sheet in sheets {
        if sheet.has("time_stats.mlp_up_proj.median") {
            layers(sheet, models, draft)?;
        } else if sheet.has("time_stats.attn_decode.median") {
            attention(sheet, models, draft)?;
        } else if sheet.has("time_stats.all_reduce.median") {
            collectives(sheet, CollectiveOperation::AllReduce, "all_reduce", draft)?;
        } else if sheet.has("time_stats.send_recv.median") {
            collectives(sheet, CollectiveOperation::SendReceive, "send_recv", draft)?;
        } else if sheet.has("schedule_median") {
            host(sheet, draft)?;
        } else {
            let must = "Vidur's mlp.csv, attention.csv, all_reduce.csv, send_recv.csv or cpu_overheads.csv";
            return Err(sheet.invalid("header", must, "another table's"));
        }
    }
    Ok(())
}

/// One operator's summary.
fn times(line: Line, operator: &str, count: u64) -> Result<Times, Invalid> {
    summary(line, operator, count, |column| line.time(column))
}

/// That of what attention reshapes before and after its kernel: often nothing.
fn reshapes(line: Line) -> Result<Times, Invalid> {
    let of = |operator: &str| summary(line, operator, REPETITIONS, |column| line.time_if_any(column));
    Ok(of("attn_input_reshape")?.plus(of("attn_output_reshape")?))
}

fn summary(
    line: Line,
    operator: &str,
    count: u64,
    time: impl Fn(&str) -> Result<f64, Invalid>,
) -> Result<Times, Invalid> {
    let column = |part: &str| format!("time_stats.{operator}.{part}");
    let us = |part: &str| time(&column(part)).map(|ms| ms * US_PER_MS);
    let times = Times {
        count,
        mean_us: us("mean")?,
        median_us: us("median")?,
        least_us: us("min")?,
        most_us: us("max")?,
        variance: (US_PER_MS * line.time_if_any(&column("std"))?).powi(2),
        tail_us: None,
        place: Some(line.place()),
    };
    // Means were rounded when they were summed up.
    let (least_us, most_us) = (times.least_us * (1.0 - ROUNDED), times.most_us * (1.0 + ROUNDED));
    let is_between = |us: f64| (least_us..=most_us).contains(&us);
    match [("median", times.median_us), ("mean", times.mean_us)]
        .into_iter()
        .find(|(_, us)| !is_between(*us))
    {
        None => Ok(times),
        Some((part, _)) => Err(line.invalid(&column(part), "from min to max of the same operator")),
    }
}

fn layers(sheet: &Sheet, models: &[ModelShape], draft: &mut Draft) -> Result<(), Invalid> {
    let mut measured: BTreeMap<(String, u32), BTreeMap<[u64; 1], Vec<Times>>> = BTreeMap::new();
    for line in sheet.lines() {
        let model = model_of(line, models)?;
        let mut layer = Times::default();
        let one_norm = !is_gated(line)? && !sheet.has(&format!("time_stats.{SECOND_NORM}.median"));
        for operator in LAYER.iter().filter(|operator| **operator != SECOND_NORM || !one_norm) {
            layer = layer.plus(times(line, operator, REPETITIONS)?);
        }
        let tensor_parallel = line.positive("num_tensor_parallel_workers")? as u32;
        let points = measured.entry((model, tensor_parallel)).or_default();
        points.entry([line.positive("num_tokens")?]).or_default().push(layer);
    }
    for ((model, tensor_parallel), points) in measured {
        let of = Decoding {
            model: &model,
            dtype: DTYPE,
            tensor_parallel,
        };
        let points: Points<1> = points.into_iter().map(|(at, all)| (at, Times::pooled(all))).collect();
        let kept = thinned(&points);
        let error = error_where_left_out(
            Family::DecoderDense,
            &kept,
            points.iter().map(|(at, us)| (*at, us.median_us)),
        );
        let source = format!("{SOURCE}, compute/{model}/mlp.csv: the sum of a layer's operators, without all-reduces");
        draft.decoder_dense(of, kept, &source, error)?;
    }
    Ok(())
}

fn is_gated(line: Line) -> Result<bool, Invalid> {
    Ok(line.text("use_gated_mlp")? == "True")
}

/// The built-in model, or the one asked for, of these dimensions.
fn model_of(line: Line, models: &[ModelShape]) -> Result<String, Invalid> {
    let (hidden, heads) = (line.whole("n_embd")?, line.whole("n_head")?);
    let (kv_heads, intermediate) = (line.whole("n_kv_head")?, line.whole("n_expanded_embd")?);
    let gated = is_gated(line)?;
    let is_it = |model: &ModelShape| {
        let dimensions = [model.hidden, model.heads, model.kv_heads, model.intermediate].map(u64::from);
        model.gated == gated && dimensions == [hidden, heads, kv_heads, intermediate]
    };
    let must = "the width of a built-in decoder, or of one of --model";
    decoder(models, is_it).ok_or_else(|| line.invalid("n_embd", must))
}

/// The first decoder that is it, of those asked for or else of the built-in ones.
fn decoder(models: &[ModelShape], is_it: impl Fn(&ModelShape) -> bool) -> Option<String> {
    let names = ModelShape::builtin_names().iter();
    let builtins: Vec<ModelShape> = names.filter_map(|name| ModelShape::builtin(name)).collect();
    let candidates = if models.is_empty() { builtins.as_slice() } else { models };
    let found = candidates.iter().find(|model| model.kind == ModelKind::Decoder && is_it(model));
    found.map(|model| model.name.clone())
}

/// Every point up to 128 tokens, then every second: matrix products have steps of 16 tokens and more by then.
fn thinned(points: &Points<1>) -> Points<1> {
    let last = *points.keys().next_back().expect("a table has points");
    let every_second = |index: usize| index.is_multiple_of(2);
    let keep = |(index, (at, _)): &(usize, (&[u64; 1], &Times))| **at <= [128] || **at == last || every_second(*index);
    points.iter().enumerate().filter(keep).map(|(_, (at, us))| (*at, *us)).collect()
}

/// Times by a chunk's tokens and those cached before it, and by sequences and those cached before their new tokens.
#[derive(Default)]
struct Attention {
    chunks: BTreeMap<[u64; 2], Vec<Times>>,
    decodes: BTreeMap<[u64; 2], Vec<Times>>,
}

fn attention(sheet: &Sheet, models: &[ModelShape], draft: &mut Draft) -> Result<(), Invalid> {
    let mut measured: BTreeMap<(String, u32), Attention> = BTreeMap::new();
    let mut backend = None;
    for line in sheet.lines() {
        let model = attending_model(line, models)?;
        let tensor_parallel = line.positive("num_tensor_parallel_workers")? as u32;
        let of = measured.entry((model, tensor_parallel)).or_default();
        let kernels = line.text("attention_backend")?;
        if kernels != *backend.get_or_insert(kernels) {
            return Err(line.invalid(
                "attention_backend",
                "that of the rows above, as a table is of one kernel",
            ));
        }
        let cached = line.whole("kv_cache_size")?;
        let reshapes = reshapes(line)?;
        let (at, operator, points) = match line.text("is_prefill")? {
            "True" => (line.positive("prefill_chunk_size")?, "attn_prefill", &mut of.chunks),
            _ => (line.positive("batch_size")?, "attn_decode", &mut of.decodes),
        };
        let times = times(line, operator, REPETITIONS)?.plus(reshapes);
        points.entry([at, cached]).or_default().push(times);
    }
    // As the class of Vidur's that runs it is called: `AttentionBackend.FLASH_ATTENTION`.
    let backend = backend.expect("a sheet has a line").trim_start_matches("AttentionBackend.");
    let source = format!("{SOURCE}, {}: {backend}, with its reshapes", sheet.name());
    for ((model, tensor_parallel), attention) in measured {
        let of = Decoding {
            model: &model,
            dtype: DTYPE,
            tensor_parallel,
        };
        attentions(of, attention, &source, draft)?;
    }
    draft.note("its sum of a chunk's and new tokens' attention is untested: no mixed batches were measured");
    Ok(())
}

/// The model of these heads, the first of several: attention knows no other dimensions.
fn attending_model(line: Line, models: &[ModelShape]) -> Result<String, Invalid> {
    let dimensions = [line.whole("n_embd")?, line.whole("n_q_head")?, line.whole("n_kv_head")?];
    let is_it = |model: &ModelShape| [model.hidden, model.heads, model.kv_heads].map(u64::from) == dimensions;
    let must = "the width, with n_q_head and n_kv_head, of a built-in decoder, or of one of --model";
    decoder(models, is_it).ok_or_else(|| line.invalid("n_embd", must))
}

fn attentions(of: Decoding, attention: Attention, source: &str, draft: &mut Draft) -> Result<(), Invalid> {
    let pooled = |points: BTreeMap<[u64; 2], Vec<Times>>| -> Points<2> {
        points.into_iter().map(|(at, all)| (at, Times::pooled(all))).collect()
    };
    let (chunks, decodes) = (pooled(attention.chunks), pooled(attention.decodes));

    let kept = decodes.iter().filter(|([batch, context], _)| {
        (*batch < BATCH_STEP || batch.is_multiple_of(BATCH_STEP)) && CONTEXTS.contains(context)
    });
    let kept: Points<2> = kept.map(|(at, us)| (*at, *us)).collect();
    let error = error_where_left_out(
        Family::DecoderDecode,
        &kept,
        decodes.iter().map(|(at, us)| (*at, us.median_us)),
    );
    draft.decoder_decode(of, kept, source, error)?;

    let kept = chunks
        .iter()
        .filter(|([tokens, _], _)| CHUNKS.contains(tokens))
        .map(|(at, us)| (*at, *us))
        .collect();
    let kept = by_context(&kept, &CHUNK_CONTEXTS);
    let measured = chunks.iter().map(|([tokens, cached], us)| ([*tokens, tokens + cached], us.median_us));
    let error = error_where_left_out(Family::DecoderPrefill, &kept, measured);
    let source = format!("{source}; from cached tokens to contexts by straight lines");
    draft.decoder_prefill(of, kept, &source, error)
}

fn collectives(sheet: &Sheet, operation: CollectiveOperation, column: &str, draft: &mut Draft) -> Result<(), Invalid> {
    let mut measured = BTreeMap::<u64, Vec<(u64, Times)>>::new();
    for line in sheet.lines() {
        let workers = line.positive("num_workers")?;
        // Within one machine.
        if line.whole("devices_per_node")? == workers {
            let point = (line.size("size")?, times(line, column, COLLECTIVE_REPETITIONS)?);
            measured.entry(workers).or_default().push(point);
        }
    }
    let sizes: BTreeSet<u64> = measured.values().flatten().map(|(bytes, _)| *bytes).collect();
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else {
        return Err(sheet.invalid(
            "devices_per_node",
            "num_workers in some rows (one machine)",
            "none such",
        ));
    };
    let knots: Vec<u64> = std::iter::successors(Some(*least), |bytes| Some(bytes * 2))
        .take_while(|bytes| bytes <= most)
        .collect();
    // A handful of sizes around each, since three repetitions of one vary by a factor of two.
    let is_near = |other: u64, knot: u64| other.abs_diff(knot) * 8 <= knot;
    let mut points = Points::<2>::new();
    for (workers, line) in &measured {
        for bytes in &knots {
            let pool: Vec<Times> =
                line.iter().filter(|(other, _)| is_near(*other, *bytes)).map(|(_, us)| *us).collect();
            if !pool.is_empty() {
                points.insert([*workers, *bytes], Times::pooled(pool));
            }
        }
    }
    let points = without_holes(&format!("{operation}, cards × bytes"), &points, draft);
    let every = measured
        .iter()
        .flat_map(|(workers, line)| line.iter().map(|(bytes, us)| ([*workers, *bytes], us.median_us)));
    // Those that were pooled are in the table.
    let is_pooled =
        |workers, bytes| knots.iter().any(|&knot| is_near(bytes, knot) && points.contains_key(&[workers, knot]));
    let left_out: Vec<_> = every.filter(|([workers, bytes], _)| !is_pooled(*workers, *bytes)).collect();
    let source = format!("{SOURCE}, network/*/{column}.csv, one machine; sizes within 1/8 of each are pooled");
    draft.collective(operation, points, &source, |points| {
        error_where_left_out(Family::Collective, points, left_out)
    })
}

/// The host's part is no op of the card: it is told in a note.
fn host(sheet: &Sheet, draft: &mut Draft) -> Result<(), Invalid> {
    let parts = [
        "schedule",
        "sampler_e2e",
        "prepare_inputs_e2e",
        "model_execution_e2e",
        "process_model_outputs",
    ];
    let mut by_model: BTreeMap<(String, u64), Vec<(u64, f64)>> = BTreeMap::new();
    for line in sheet.lines() {
        let mut beside = 0.0;
        for part in parts.iter().filter(|part| **part != "model_execution_e2e") {
            beside += line.time(&format!("{part}_median"))?;
        }
        let key = (
            line.text("model_name")?.to_string(),
            line.whole("tensor_parallel_degree")?,
        );
        by_model.entry(key).or_default().push((line.whole("batch_size")?, beside));
    }
    let told = by_model.iter().filter_map(|((model, tensor_parallel), line)| {
        let least = line.iter().min_by_key(|(batch, _)| *batch)?;
        let most = line.iter().max_by_key(|(batch, _)| *batch)?;
        let ends = format!("{:.2} ms at batch {}, {:.2} ms at {}", least.1, least.0, most.1, most.0);
        Some(format!("{model} on {tensor_parallel}: {ends}"))
    });
    let told: Vec<String> = told.collect();
    draft.note(format!(
        "host time beside the model's in each iteration (schedule, prepare, sample, process; vLLM of early 2024), not \
         among the tables: {}",
        told.join("; ")
    ));
    Ok(())
}
