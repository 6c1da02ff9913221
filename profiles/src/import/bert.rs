//! Whole-model latencies of BERT from vendors' benchmark tables: TensorRT's demonstration and FasterTransformer's
//! guide.

use std::collections::{BTreeMap, BTreeSet};

use super::US_PER_MS;
use super::draft::{Draft, Points};
use super::gpus::Gpu;
use super::sheet::{Line, Sheet};
use super::summary_stats::Times;
use crate::error::Invalid;
use crate::family::Family;
use crate::model::{DType, ModelShape};
use crate::roofline::Roofline;
use crate::rows::{EncoderLayerRow, StaticModelRow};

/// TensorRT's engines are built for one batch and one length each: they are the static runtime. A layer is a share of
/// the whole.
pub(super) fn tensorrt(sheets: &[Sheet], gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    let mut measured: BTreeMap<&str, Points<2>> = BTreeMap::new();
    let mut readme = String::new();
    for sheet in sheets {
        for line in sheet.lines() {
            if Some(line.text("gpu")?) != gpu.tensorrt || line.text("precision")? != "FP16" {
                continue;
            }
            let Some(model) = builtin_of(line.text("model")?) else {
                continue;
            };
            readme = format!(
                "README of {} @{}",
                line.text("readme_date")?,
                line.text("readme_commit")?
            );
            let [average, p95, p99] = ["avg_ms", "p95_ms", "p99_ms"].map(|column| line.time(column));
            let (average, p95, p99) = (average?, p95?, p99?);
            if p99 < p95 {
                return Err(line.invalid("p99_ms", &format!("at least p95_ms, {p95}")));
            }
            // Those that the quantiles leave the average are between nothing and all of the longest.
            let (least, most) = (SHARE_ABOVE_P95 * p95, p99);
            if !(least..=most).contains(&average) {
                let must = format!("from {least} to {most}, by p95_ms and p99_ms");
                return Err(line.invalid("avg_ms", &must));
            }
            let times = Times {
                tail_us: Some([p95 * US_PER_MS, p99 * US_PER_MS]),
                ..Times::only(average * US_PER_MS, 1).of(line)
            };
            let at = [line.positive("batch_size")?, length_of(line, model)?];
            line.once("seq_len", measured.entry(model).or_default().insert(at, times))?;
        }
    }
    nothing_of(gpu.tensorrt, measured.is_empty(), gpu, sheets)?;
    draft.note(format!(
        "TensorRT's demo/BERT ({readme}, Apache-2.0), FP16, GPU time of the whole model with embedding and \
         question-answering head, without copies; averages stand for medians, which are not published, and p05 equals \
         them; two lengths only"
    ));
    for (model, points) in measured {
        let source = format!(
            "NVIDIA/TensorRT demo/BERT, {readme}, FP16, {}",
            gpu.tensorrt.unwrap_or_default()
        );
        let points = complete(model, &points, sheets, draft)?;
        whole_models(model, DType::F16, &points, &source, draft)?;
        layers_of_whole(model, DType::F16, &points, &source, gpu, draft)?;
        draft.of_one_shape(Family::EncoderLayer);
    }
    Ok(())
}

/// FasterTransformer's kernels take any shape: the dynamic runtime. Its times are of the encoder's twelve layers alone.
pub(super) fn faster_transformer(sheets: &[Sheet], gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    // The guide repeats its baselines; of FT's own tables PyTorch's is taken.
    let mut measured: BTreeMap<(DType, bool), Points<2>> = BTreeMap::new();
    for sheet in sheets {
        for line in sheet.lines() {
            let dtype = match line.text("precision")? {
                "FP16" => DType::F16,
                "FP32" => DType::F32,
                _ => continue,
            };
            let unpadded = match line.text("implementation")? {
                "FT" => false,
                "EFF-FT" => true,
                _ => continue,
            };
            if Some(line.text("gpu")?) != gpu.faster_transformer || line.text("framework")? != "PyTorch" {
                continue;
            }
            let at = [line.positive("batch_size")?, length_of(line, "bert-base")?];
            let times = Times::only(line.time("latency_ms")? * US_PER_MS, 1).of(line);
            line.once(
                "seq_len",
                measured.entry((dtype, unpadded)).or_default().insert(at, times),
            )?;
        }
    }
    nothing_of(gpu.faster_transformer, measured.is_empty(), gpu, sheets)?;
    draft.note(
        "FasterTransformer's docs/bert_guide.md (@df4a753, Apache-2.0), implementation FT in PyTorch, BERT-base; a \
         layer is a twelfth of the encoder; one figure a point, no spread is known",
    );
    for dtype in [DType::F16, DType::F32] {
        let Some(points) = measured.get(&(dtype, false)) else {
            continue;
        };
        let on = gpu.faster_transformer.unwrap_or_default();
        let layers_share = format!("the whole encoder over its {} layers", shape("bert-base").layers);
        let source = format!("NVIDIA/FasterTransformer docs/bert_guide.md @df4a753, FT, {dtype}, {on}; {layers_share}");
        let complete = complete(&format!("bert-base, {dtype}"), points, sheets, draft)?;
        layers("bert-base", dtype, &complete, &source, draft)?;
        if let Some(unpadded) = measured.get(&(dtype, true)) {
            draft.note(padding(dtype, points, unpadded));
        }
    }
    Ok(())
}

/// What padding costs: the same requests, of half the padded length, with padding and without.
fn padding(dtype: DType, padded: &Points<2>, unpadded: &Points<2>) -> String {
    let saved = padded.iter().filter_map(|([batch, tokens], with)| {
        let without = unpadded.get(&[*batch, *tokens])?;
        let share = 100.0 * (1.0 - without.median_us / with.median_us);
        Some(format!("{batch}×{tokens}: {share:.0} %"))
    });
    let saved: Vec<String> = saved.collect();
    format!(
        "evidence on padding, {dtype}: inputs of half the padded length without padding (EFF-FT) save, by batch × \
         padded length, {}",
        saved.join(", ")
    )
}

/// So many runs take as long as the 95th percentile or longer.
const SHARE_ABOVE_P95: f64 = 0.05;

fn builtin_of(name: &str) -> Option<&'static str> {
    match name {
        "BERT base" => Some("bert-base"),
        "BERT large" => Some("bert-large"),
        _ => None,
    }
}

fn nothing_of(called: Option<&str>, nothing: bool, gpu: &Gpu, sheets: &[Sheet]) -> Result<(), Invalid> {
    match (sheets.first(), called) {
        (Some(sheet), Some(called)) if nothing => {
            Err(sheet.invalid("gpu", format!("{called} in some row"), "no such row"))
        }
        (_, None) => Err(Invalid::argument(
            "--gpu",
            "a GPU that this source has",
            gpu.sheet.name.clone(),
        )),
        (None, _) => Err(Invalid::argument("FILES", "at least one", "none")),
        _ => Ok(()),
    }
}

/// The batches that every length was measured at, as a table needs them; a note says what was left out.
///
/// # Errors
/// There is no such batch.
pub(super) fn complete(
    what: &str,
    points: &Points<2>,
    sheets: &[Sheet],
    draft: &mut Draft,
) -> Result<Points<2>, Invalid> {
    let lengths: BTreeSet<u64> = points.keys().map(|[_, tokens]| *tokens).collect();
    let whole = |batch: u64| lengths.iter().all(|tokens| points.contains_key(&[batch, *tokens]));
    let kept: Points<2> =
        points.iter().filter(|([batch, _], _)| whole(*batch)).map(|(at, times)| (*at, *times)).collect();
    if kept.is_empty() {
        let must = format!("for {what} with each length in some batch that all lengths have");
        return Err(sheets[0].invalid("batch_size", must, "no such batch"));
    }
    let left_out = points.len() - kept.len();
    if left_out > 0 {
        draft.note(format!(
            "{what}: {left_out} of {} points are left out, of batches that were not measured at every length",
            points.len()
        ));
    }
    Ok(kept)
}

/// Engines that are built for one length each.
pub(super) fn whole_models(
    model: &str,
    dtype: DType,
    points: &Points<2>,
    source: &str,
    draft: &mut Draft,
) -> Result<(), Invalid> {
    let label = format!("model={model} dtype={dtype}");
    let points = draft.rising(Family::StaticModel, &label, points.clone())?;
    draft.origin(Family::StaticModel, &label, source, None);
    draft.tables.static_model.extend(points.iter().map(|([batch, tokens], times)| StaticModelRow {
        model: model.to_string(),
        dtype,
        batch: *batch as u32,
        tokens: *tokens as u32,
        stats: times.stats(),
    }));
    Ok(())
}

/// Layers of whole models, timed with embedding and head. Of these no table tells, and they are taken as the card
/// derives them, so that a model composed of its parts takes what it was measured to take.
pub(super) fn layers_of_whole(
    model: &str,
    dtype: DType,
    points: &Points<2>,
    source: &str,
    gpu: &Gpu,
    draft: &mut Draft,
) -> Result<(), Invalid> {
    let roofline = Roofline::new(gpu.sheet.clone());
    let shape = shape(model);
    let without_ends = points.iter().map(|(at, times)| {
        let [batch, tokens] = at.map(|value| value as u32);
        let ends_us =
            roofline.embedding_us(&shape, dtype, batch, tokens) + roofline.head_us(&shape, dtype, batch, CLASSES);
        let share = (1.0 - ends_us / times.median_us).max(LEAST_SHARE_OF_LAYERS);
        (*at, times.times(share))
    });
    let source = format!(
        "{source}; the whole model less embedding and head, which are derived, over its {} layers",
        shape.layers
    );
    layers(model, dtype, &without_ends.collect(), &source, draft)
}

/// The classes of a head as such tables have it: the answer's first and last word, in the published ones.
const CLASSES: u32 = 2;

/// A model that takes hardly longer than its derived ends, with a launch for each kernel, has these in one graph: half
/// of it is its layers'.
const LEAST_SHARE_OF_LAYERS: f64 = 0.5;

/// A layer as a share of all layers.
fn layers(model: &str, dtype: DType, points: &Points<2>, source: &str, draft: &mut Draft) -> Result<(), Invalid> {
    let label = format!("model={model} dtype={dtype}");
    let share = 1.0 / f64::from(shape(model).layers);
    let points: Points<2> = points.iter().map(|(at, times)| (*at, times.times(share))).collect();
    let points = draft.rising(Family::EncoderLayer, &label, points)?;
    draft.origin(Family::EncoderLayer, &label, source, None);
    draft.tables.encoder_layer.extend(points.iter().map(|([batch, tokens], times)| EncoderLayerRow {
        model: model.to_string(),
        dtype,
        batch: *batch as u32,
        tokens: *tokens as u32,
        stats: times.stats(),
    }));
    Ok(())
}

/// A length that the model has positions for.
pub(super) fn length_of(line: Line<'_>, model: &str) -> Result<u64, Invalid> {
    let (length, positions) = (line.positive("seq_len")?, shape(model).positions);
    match length <= u64::from(positions) {
        true => Ok(length),
        false => Err(line.invalid("seq_len", &format!("at most the {positions} positions of {model}"))),
    }
}

fn shape(model: &str) -> ModelShape {
    ModelShape::builtin(model).expect("it is built-in")
}
