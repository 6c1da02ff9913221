//! LLMServingSim's layer profiles: one layer of Llama-3.1-8B in vLLM, kind by kind, and attention of prefill chunks and
//! decodes apart and together.

use std::collections::BTreeMap;

use super::draft::{Decoding, Draft, Points, by_context, error_where_left_out, on_line, without_holes};
use super::gpus::Gpu;
use super::profile_meta::{self, MustBe, ProfileMeta};
use super::sheet::Sheet;
use super::summary_stats::Times;
use crate::error::Invalid;
use crate::family::Family;
use crate::model::DType;
use crate::stats::nearest_rank;

/// In the words of the profile's `meta.yaml`. The source says these, and no more is known of another profile.
const MUST_BE: MustBe = MustBe {
    architecture: "llama",
    model: "meta-llama/Llama-3.1-8B",
    variant: "bf16",
    vllm_version: "0.19.0",
    iterations: ITERATIONS,
    tensor_parallel: OF.tensor_parallel,
};

const SOURCE: &str = "LLMServingSim (casys-kaist/LLMServingSim @5daddb2, MIT), vLLM 0.19.0, Llama-3.1-8B bf16";

const OF: Decoding = Decoding {
    model: "llama3.1-8b",
    dtype: DType::Bf16,
    tensor_parallel: 1,
};

/// `measurement_iterations` there.
const ITERATIONS: u64 = 3;

/// What one layer runs, and how often (`sequence` in the source's `profiler/models/llama.yaml`): it has two norms.
const LAYER: [(&str, f64); 7] = [
    ("layernorm", 2.0),
    ("qkv_proj", 1.0),
    ("rotary_emb", 1.0),
    ("o_proj", 1.0),
    ("gate_up_proj", 1.0),
    ("act_fn", 1.0),
    ("down_proj", 1.0),
];

/// Mixed batches are kept where the prompt's cached tokens are one of these; the others show how far interpolation is
/// off.
const CACHED: [u64; 6] = [0, 128, 512, 2048, 8192, 16384];

/// By kind of layer.
type Lines = BTreeMap<String, Points<1>>;

/// A chunk's tokens, those cached before it, new tokens, and their context.
type Mixed = BTreeMap<[u64; 4], Times>;

pub(super) fn import(metas: &[ProfileMeta], sheets: &[Sheet], gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    if sheets.is_empty() {
        return Err(Invalid::argument("FILES", "tables beside their meta.yaml", "none"));
    }
    match metas {
        [] => {
            profile_meta::check_degrees(MUST_BE.tensor_parallel, &[], sheets)?;
            draft.note(
                "no meta.yaml was given, which alone says whose these tables are: they are taken for those of the \
                 release, whatever model, format and vLLM they are of",
            );
        }
        [meta] => meta.check(&MUST_BE, gpu, sheets)?,
        several => {
            let must = "with one meta.yaml at most, which says whose all tables are";
            let got = format!("{} .yaml files", several.len());
            return Err(Invalid::argument("FILES", must, got));
        }
    }
    let (mut by_tokens, mut by_sequences, mut attention) = (None, None, None);
    for sheet in sheets {
        if sheet.has("prefill_chunk") {
            sheet.once(attention.is_some())?;
            attention = Some(attention_of(sheet)?);
        } else if sheet.has("sequences") {
            sheet.once(by_sequences.is_some())?;
            by_sequences = Some(lines(sheet, "sequences")?);
        } else if sheet.has("tokens") {
            sheet.once(by_tokens.is_some())?;
            by_tokens = Some(lines(sheet, "tokens")?);
        } else {
            let must =
                "one with prefill_chunk, sequences or tokens (a profile's attention, per-sequence or dense file)";
            return Err(sheet.invalid("header", must, "none of these"));
        }
    }
    if by_sequences.is_some() && by_tokens.is_none() {
        let must =
            "given together with the same profile's dense file, which has the embeddings that a step begins with";
        return Err(sheets[0].invalid("header", must, "a per-sequence file alone"));
    }
    draft.note(
        "one figure a point, the mean of 3 iterations after warm-up: all quantiles are that figure, no spread is \
         known; eager kernels, one layer, times of layers without gaps between kernels",
    );
    if let Some(layers) = &by_tokens {
        let points = sum_of(layers, &LAYER, sheets)?;
        draft.decoder_dense(
            OF,
            points,
            &format!("{SOURCE}: dense.csv, the sum of a layer's kinds"),
            None,
        )?;
    }
    if let (Some(layers), Some(heads)) = (&by_tokens, &by_sequences) {
        ends(layers, heads, sheets, draft)?;
    }
    if let Some(attention) = &attention {
        attentions(attention, draft)?;
    }
    Ok(())
}

fn lines(sheet: &Sheet, axis: &str) -> Result<Lines, Invalid> {
    let mut lines = Lines::new();
    for line in sheet.lines() {
        let times = Times::only(line.time("time_us")?, ITERATIONS).of(line);
        let kind = lines.entry(line.text("layer")?.to_string()).or_default();
        line.once(axis, kind.insert([line.positive(axis)?], times))?;
    }
    Ok(lines)
}

fn attention_of(sheet: &Sheet) -> Result<Mixed, Invalid> {
    let mut points = Mixed::new();
    for line in sheet.lines() {
        let mut at = [0; 4];
        for (value, column) in at.iter_mut().zip(["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"]) {
            *value = line.whole(column)?;
        }
        let times = Times::only(line.time("time_us")?, ITERATIONS).of(line);
        line.once("kv_decode", points.insert(at, times))?;
    }
    Ok(points)
}

/// So many of each kind, where all were measured.
fn sum_of(layers: &Lines, kinds: &[(&str, f64)], sheets: &[Sheet]) -> Result<Points<1>, Invalid> {
    let mut sum: Option<Points<1>> = None;
    for (kind, times) in kinds {
        let line = layers
            .get(*kind)
            .ok_or_else(|| sheets[0].invalid("layer", format!("{kind} among others"), "no row of it"))?;
        let line: Points<1> = line.iter().map(|(at, us)| (*at, us.times(*times))).collect();
        sum = Some(match sum {
            None => line,
            Some(sum) => sum.iter().filter_map(|(at, us)| Some((*at, us.plus(*line.get(at)?)))).collect(),
        });
    }
    Ok(sum.unwrap_or_default())
}

/// Embedding and last norm go by tokens, output matrix and sampler by sequences.
fn ends(layers: &Lines, heads: &Lines, sheets: &[Sheet], draft: &mut Draft) -> Result<(), Invalid> {
    let by_tokens = sum_of(layers, &[("embedding", 1.0), ("final_layernorm", 1.0)], sheets)?;
    let by_sequences = sum_of(heads, &[("lm_head", 1.0), ("sampler", 1.0)], sheets)?;
    // By tokens they take 10 of more than 1,000 µs: a few points tell all there is.
    let mut measured = Points::new();
    for ([sequences], head) in &by_sequences {
        for ([tokens], embedding) in &by_tokens {
            measured.insert([*sequences, *tokens], head.plus(*embedding));
        }
    }
    let kept = measured.iter().filter(|([_, tokens], _)| tokens.is_power_of_two());
    let kept: Points<2> = kept.map(|(at, us)| (*at, *us)).collect();
    let measured = measured.iter().map(|(at, us)| (*at, us.median_us));
    let error = error_where_left_out(Family::DecoderEnds, &kept, measured);
    let source = format!("{SOURCE}: dense.csv (embedding, final_layernorm) and per_sequence.csv (lm_head, sampler)");
    draft.decoder_ends(OF, kept, &source, error)
}

fn attentions(attention: &Mixed, draft: &mut Draft) -> Result<(), Invalid> {
    let file = format!("{SOURCE}: attention.csv");
    let with = |points: &dyn Fn(&[u64; 4]) -> Option<[u64; 2]>| -> Points<2> {
        attention.iter().filter_map(|(at, times)| Some((points(at)?, *times))).collect()
    };
    let chunks = with(&|[tokens, cached, sequences, _]| (*sequences == 0 && *tokens > 0).then_some([*tokens, *cached]));
    let decodes =
        with(&|[tokens, _, sequences, context]| (*tokens == 0 && *sequences > 0).then_some([*sequences, *context]));

    let doublings: Vec<u64> = (4..15).map(|power| 1 << power).collect();
    let kept: Points<2> = chunks
        .iter()
        .filter(|([tokens, _], _)| doublings.contains(tokens))
        .map(|(at, us)| (*at, *us))
        .collect();
    let prefill = by_context(&kept, &doublings);
    let measured = chunks.iter().map(|([tokens, cached], us)| ([*tokens, tokens + cached], us.median_us));
    let error = error_where_left_out(Family::DecoderPrefill, &prefill, measured);
    draft.decoder_prefill(
        OF,
        prefill,
        &format!("{file}, chunks without decodes, from cached tokens to contexts by straight lines"),
        error,
    )?;

    let powers = decodes.iter().filter(|([_, context], _)| context.is_power_of_two());
    let powers: Points<2> = powers.map(|(at, us)| (*at, *us)).collect();
    let decode = without_holes("decodes without chunks", &powers, draft);
    let measured = decodes.iter().map(|(at, us)| (*at, us.median_us));
    let error = error_where_left_out(Family::DecoderDecode, &decode, measured);
    draft.decoder_decode(OF, decode, &format!("{file}, decodes without chunks"), error)?;

    let both = || attention.iter().filter(|([tokens, _, sequences, _], _)| *tokens > 0 && *sequences > 0);
    if both().next().is_none() {
        return Ok(());
    }
    draft.note(sum_against_measured(&chunks, &decodes, both()));
    let kept = |[tokens, cached, _, context]: &[u64; 4]| {
        doublings.contains(tokens) && CACHED.contains(cached) && doublings.contains(context) && *context >= 64
    };
    let at = |[tokens, cached, sequences, context]: &[u64; 4]| [*tokens, cached + 1, *sequences, *context];
    let mixed: Points<4> = both().filter(|(point, _)| kept(point)).map(|(point, us)| (at(point), *us)).collect();
    let error = error_where_left_out(
        Family::DecoderMixed,
        &mixed,
        both().map(|(point, us)| (at(point), us.median_us)),
    );
    draft.decoder_mixed(OF, mixed, &format!("{file}, chunks and decodes in one kernel"), error)
}

/// What pricing a mixed batch as the sum of its parts would miss.
fn sum_against_measured<'a>(
    chunks: &Points<2>,
    decodes: &Points<2>,
    both: impl Iterator<Item = (&'a [u64; 4], &'a Times)>,
) -> String {
    let by_context = |sequences: u64| -> Vec<(u64, Times)> {
        decodes
            .range([sequences, 0]..=[sequences, u64::MAX])
            .map(|([_, context], us)| (*context, *us))
            .collect()
    };
    let (mut errors, mut of_sums, mut of_measured) = (Vec::new(), 0.0, 0.0);
    for ([tokens, cached, sequences, context], us) in both {
        let line = by_context(*sequences);
        if let (Some(chunk), false) = (chunks.get(&[*tokens, *cached]), line.is_empty()) {
            let sum_us = chunk.median_us + on_line(&line, *context as f64).median_us;
            errors.push(sum_us / us.median_us - 1.0);
            of_sums += sum_us;
            of_measured += us.median_us;
        }
    }
    errors.sort_by(f64::total_cmp);
    let percent = |rank| 100.0 * nearest_rank(&errors, rank);
    format!(
        "a chunk and decodes in one kernel take longer than apart, since decodes then run by the kernel made for \
         chunks: over {} mixed batches the sum of the parts is off by {:+.0} % in the median (p05 {:+.0} %, p95 {:+.0} \
         %) and {:+.0} % in all, so they are priced by their own table",
        errors.len(),
        percent(50),
        percent(5),
        percent(95),
        100.0 * (of_sums / of_measured - 1.0)
    )
}
