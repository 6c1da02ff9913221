//! Engines of one model built for one length each and for any length, timed by `trtexec`: Arlo's static and dynamic
//! runtimes.
//!
//! Nobody publishes such pairs: the file is a row for each engine and shape, of what `trtexec` prints as *GPU Compute
//! Time*.

use std::collections::BTreeMap;

use super::US_PER_MS;
use super::bert::{complete, layers_of_whole, length_of, whole_models};
use super::draft::{Draft, Points};
use super::gpus::Gpu;
use super::sheet::{Line, Sheet};
use super::summary_stats::Times;
use crate::check::MEAN_OVER_P99_MAX;
use crate::error::Invalid;
use crate::model::{DType, ModelKind, ModelShape};
use crate::stats::nearest_rank;

/// What both kinds of engines of a model take.
#[derive(Default)]
struct Pair {
    fixed: Points<2>,
    any: Points<2>,
}

pub(super) fn import(sheets: &[Sheet], gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    let mut measured: BTreeMap<(&str, DType), Pair> = BTreeMap::new();
    for sheet in sheets {
        for line in sheet.lines() {
            let model = model_of(line)?;
            let pair = measured.entry((model, dtype_of(line)?)).or_default();
            let points = match line.text("engine")? {
                "static" => &mut pair.fixed,
                "dynamic" => &mut pair.any,
                _ => return Err(line.invalid("engine", "static or dynamic")),
            };
            let at = [line.positive("batch_size")?, length_of(line, model)?];
            line.once("seq_len", points.insert(at, times(line)?))?;
        }
    }
    if measured.is_empty() {
        return Err(Invalid::argument("FILES", "at least one engine", "none"));
    }
    draft.note(
        "GPU time of whole models in TensorRT, with embedding and head, without copies; of engines built for one \
         length the table of compiled models, of those for any length the layers, each a share of the whole less its \
         ends",
    );
    let on = &gpu.sheet.product;
    for ((model, dtype), pair) in &measured {
        if !pair.fixed.is_empty() {
            let source = format!("TensorRT engines for one length each, by trtexec, {dtype}, {on}");
            let points = complete(&format!("{model}, {dtype}, static"), &pair.fixed, sheets, draft)?;
            whole_models(model, *dtype, &points, &source, draft)?;
        }
        if !pair.any.is_empty() {
            let source = format!("TensorRT engines for any length, by trtexec, {dtype}, {on}");
            let points = complete(&format!("{model}, {dtype}, dynamic"), &pair.any, sheets, draft)?;
            layers_of_whole(model, *dtype, &points, &source, gpu, draft)?;
        }
        if let Some(longer) = longer(pair) {
            draft.note(format!("{model}, {dtype}: an engine for any length takes {longer}"));
        }
    }
    Ok(())
}

fn model_of(line: Line<'_>) -> Result<&str, Invalid> {
    let name = line.text("model")?;
    match ModelShape::builtin(name) {
        Some(model) if model.kind == ModelKind::Encoder => Ok(name),
        _ => Err(line.invalid("model", "a built-in encoder, such as bert-base")),
    }
}

fn dtype_of(line: Line) -> Result<DType, Invalid> {
    match line.text("precision")? {
        "FP32" => Ok(DType::F32),
        "FP16" => Ok(DType::F16),
        "BF16" => Ok(DType::Bf16),
        _ => Err(line.invalid("precision", "FP32, FP16 or BF16")),
    }
}

fn times(line: Line) -> Result<Times, Invalid> {
    let us = |column: &str| line.time(column).map(|ms| ms * US_PER_MS);
    let (median_us, tail_us) = (us("median_ms")?, [us("p95_ms")?, us("p99_ms")?]);
    let rising = [("p95_ms", median_us, tail_us[0]), ("p99_ms", tail_us[0], tail_us[1])];
    if let Some((column, ..)) = rising.iter().find(|(_, smaller, larger)| larger < smaller) {
        return Err(line.invalid(column, "no less than the quantile before it"));
    }
    let mean_us = us("mean_ms")?;
    if mean_us > MEAN_OVER_P99_MAX * tail_us[1] {
        return Err(line.invalid("mean_ms", &format!("at most {MEAN_OVER_P99_MAX} times p99_ms")));
    }
    Ok(Times {
        mean_us,
        tail_us: Some(tail_us),
        ..Times::only(median_us, 1).of(line)
    })
}

/// How many times as long an engine for any length takes, where both were measured.
fn longer(pair: &Pair) -> Option<String> {
    let both = pair.any.iter().filter_map(|(at, any)| Some((any, pair.fixed.get(at)?)));
    let mut ratios: Vec<f64> = both.map(|(any, fixed)| any.median_us / fixed.median_us).collect();
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios.first()?, ratios.last()?);
    let median = nearest_rank(&ratios, 50);
    let shapes = ratios.len();
    Some(format!(
        "{median:.2} times as long as one for that length (from {least:.2} to {most:.2}, {shapes} shapes)"
    ))
}
