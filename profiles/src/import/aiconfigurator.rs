//! Layers composed from aiconfigurator's kernel times: matrix products and attention as measured, norms and activations
//! by memory bandwidth, and a gap between kernels.

use std::collections::BTreeSet;

use super::conversion;
use super::draft::{Decoding, Draft, Points, on_line};
use super::gpus::Gpu;
use super::operators::{Attention, Products};
use super::sheet::Sheet;
use super::summary_stats::Times;
use super::{Import, US_PER_MS};
use crate::error::Invalid;
use crate::family::Family;
use crate::keys::CollectiveOperation;
use crate::model::{DType, ModelKind, ModelShape};
use crate::rows::EncoderLayerRow;
use crate::stats::nearest_rank;

const SOURCE: &str = "aiconfigurator (ai-dynamo/aiconfigurator @095f58a, Apache-2.0)";

const DTYPE: DType = DType::Bf16;

/// Of what layers are.
const LAYER: &str = "a layer composed of 8 kernels";

/// What the source itself takes kernels that only read and write memory to reach of the data sheet's bandwidth, and the
/// time that the shortest of them takes (`mem_bw_scale`, `mem_const_latency_s` in its system specifications).
const BANDWIDTH_REACHED: f64 = 0.8;
const SHORTEST_US: f64 = 3.0;

/// What is composed unless models are named.
const MODELS: [&str; 7] = [
    "bert-base",
    "bert-large",
    "distilbert",
    "tinybert-6",
    "llama-7b",
    "llama-13b",
    "llama-70b",
];

const TENSOR_PARALLEL: [u32; 4] = [1, 2, 4, 8];

/// Encoders' lengths: what was measured up to BERT's longest.
const ENCODER_BATCHES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Sequences of a decode step.
const SEQUENCES: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Prompts of a step, in one kernel.
const PROMPTS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Of so many of these a length must have been measured to be kept.
const COUNTS_LEAST: usize = 3;
/// How often a point was measured to which a line goes on, by which runs know that it lies beyond what was.
const UNMEASURED: u64 = 0;

pub(super) fn import(sheets: &[Sheet], import: &Import, gpu: &Gpu, draft: &mut Draft) -> Result<(), Invalid> {
    let mut kernels = Kernels {
        products: Products::default(),
        encoder: Attention::default(),
        context: Attention::default(),
        generation: Attention::default(),
        bytes_per_us: gpu.sheet.memory_bandwidth * BANDWIDTH_REACHED / 1e6,
        gap_us: import.launch_overhead_us,
        versions: BTreeSet::new(),
    };
    for sheet in sheets {
        if sheet.has("nccl_dtype") {
            collectives(sheet, draft)?;
            continue;
        }
        conversion::check(sheet)?;
        kernels.versions.append(&mut conversion::versions(sheet, "vllm")?);
        // One layer's kernels are one engine's.
        if let (Some(first), Some(other)) = (kernels.versions.first(), kernels.versions.iter().nth(1)) {
            let must = format!("one version of vLLM in all files, such as {first}");
            return Err(sheet.invalid("version", must, other));
        }
        if sheet.has("m") {
            kernels.products.read(sheet)?;
        } else if sheet.has("kv_len_before") {
            kernels.generation.read(sheet, "kv_len_before")?;
        } else if sheet.has("isl") && sheet.has("num_key_value_heads") {
            kernels.context.read(sheet, "isl")?;
        } else if sheet.has("isl") {
            kernels.encoder.read(sheet, "isl")?;
        } else if !sheet.has("mem_bw_scale") {
            let must = "aiconfigurator's gemm, encoder, context or generation attention, nccl or system specifications";
            return Err(sheet.invalid("header", must, "another table's"));
        }
    }
    let default: Vec<ModelShape> = MODELS.iter().filter_map(|name| ModelShape::builtin(name)).collect();
    let models = if import.models.is_empty() {
        &default
    } else {
        &import.models
    };
    draft.note(format!(
        "kernel times of isolated operators, warm, back to back, one figure each: no spread is known; layers are \
         composed: matrix products and attention as measured (between measured widths by straight lines), norms, \
         activations and rotations by reading and writing at {:.0} % of the data sheet's bandwidth and never under \
         {SHORTEST_US} µs (both the source's own figures), and {} µs between kernels (--launch-overhead-us); \
         all-reduces are not in the layers",
        100.0 * BANDWIDTH_REACHED,
        import.launch_overhead_us
    ));
    for model in models {
        match model.kind {
            ModelKind::Encoder => encoder(&kernels, model, draft)?,
            ModelKind::Decoder => decoder(&kernels, model, draft)?,
        }
    }
    if draft.origins.is_empty() {
        let must = "tables that compose a layer: matrix products with attention";
        return Err(Invalid::argument("FILES", must, "none for any of the models"));
    }
    Ok(())
}

/// All measured kernels of a card.
struct Kernels {
    products: Products,
    encoder: Attention,
    context: Attention,
    generation: Attention,
    /// Of kernels bound by memory.
    bytes_per_us: f64,
    gap_us: f64,
    /// Of vLLM, as far as the files say.
    versions: BTreeSet<String>,
}

impl Kernels {
    /// What a table is composed of.
    fn source(&self, of: &str) -> String {
        format!(
            "{SOURCE}, {} kernels, {DTYPE}: {of}",
            conversion::told("vLLM", &self.versions)
        )
    }

    /// A kernel that reads and writes so many numbers in all.
    fn moves(&self, numbers: u64) -> f64 {
        ((numbers * DTYPE.bytes()) as f64 / self.bytes_per_us).max(SHORTEST_US)
    }

    /// What kernels take one after the other, if all were measured.
    fn run(&self, kernels: &[Option<f64>]) -> Option<f64> {
        kernels.iter().try_fold(0.0, |sum, us| us.map(|us| sum + us + self.gap_us))
    }

    /// An encoder layer: query, key and value in one product, attention, output, norm, two products with an activation,
    /// norm.
    fn encoder_layer(&self, model: &ModelShape, batch: u64, tokens: u64) -> Option<f64> {
        let (hidden, inner, heads) = (model.hidden.into(), model.intermediate.into(), u64::from(model.heads));
        let rows = batch * tokens;
        // The sum with what came before is read with the norm's input.
        let norm = || Some(self.moves(3 * rows * hidden));
        self.run(&[
            self.products.us(rows, 3 * hidden, hidden),
            self.encoder.us(batch, tokens, heads, heads, hidden / heads),
            self.products.us(rows, hidden, hidden),
            norm(),
            self.products.us(rows, inner, hidden),
            Some(self.moves(2 * rows * inner)),
            self.products.us(rows, hidden, inner),
            norm(),
        ])
    }

    /// A gated decoder layer without attention on one of so many cards.
    fn decoder_layer(&self, model: &ModelShape, cards: u64, rows: u64) -> Option<f64> {
        let (hidden, inner): (u64, u64) = (model.hidden.into(), model.intermediate.into());
        let width = hidden / u64::from(model.heads);
        let projected = (hidden + 2 * width * u64::from(model.kv_heads)) / cards;
        // The residual is read and written with each norm.
        let norm = || Some(self.moves(4 * rows * hidden));
        self.run(&[
            norm(),
            self.products.us(rows, projected, hidden),
            Some(self.moves(2 * rows * projected)),
            self.products.us(rows, hidden, hidden / cards),
            norm(),
            self.products.us(rows, 2 * inner / cards, hidden),
            Some(self.moves(3 * rows * inner / cards)),
            self.products.us(rows, hidden, inner / cards),
        ])
    }

    /// Embedding, last norm and output matrix on one of so many cards.
    fn decoder_ends(&self, model: &ModelShape, cards: u64, sequences: u64, rows: u64) -> Option<f64> {
        let (hidden, vocabulary): (u64, u64) = (model.hidden.into(), model.vocabulary.into());
        self.run(&[
            Some(self.moves(2 * rows * hidden)),
            Some(self.moves(4 * rows * hidden)),
            self.products.us(sequences, vocabulary / cards, hidden),
        ])
    }
}

fn encoder(kernels: &Kernels, model: &ModelShape, draft: &mut Draft) -> Result<(), Invalid> {
    let (heads, width) = (u64::from(model.heads), u64::from(model.hidden / model.heads));
    let mut points = Points::<2>::new();
    let lengths = kernels.encoder.lengths(heads, heads, width);
    for tokens in lengths.into_iter().filter(|tokens| *tokens <= model.positions.into()) {
        let line = ENCODER_BATCHES.map(|batch| ([batch, tokens], kernels.encoder_layer(model, batch, tokens)));
        if line.iter().all(|(_, us)| us.is_some()) {
            points.extend(line.map(|(at, us)| (at, Times::only(us.expect("all are there"), 1))));
        }
    }
    if points.is_empty() {
        draft.note(format!(
            "no layer of {}: no attention of {heads} heads of width {width} was measured, or no products of its widths",
            model.name
        ));
        return Ok(());
    }
    let label = format!("model={} dtype={DTYPE}", model.name);
    let points = draft.rising(Family::EncoderLayer, &label, points)?;
    draft.origin(Family::EncoderLayer, &label, &kernels.source(LAYER), None);
    draft.tables.encoder_layer.extend(points.iter().map(|([batch, tokens], times)| EncoderLayerRow {
        model: model.name.clone(),
        dtype: DTYPE,
        batch: *batch as u32,
        tokens: *tokens as u32,
        stats: times.stats(),
    }));
    Ok(())
}

fn decoder(kernels: &Kernels, model: &ModelShape, draft: &mut Draft) -> Result<(), Invalid> {
    if !model.gated {
        draft.note(format!("no layers of {}: only Llama's block is composed", model.name));
        return Ok(());
    }
    if kernels.products.is_empty() || kernels.context.is_empty() || kernels.generation.is_empty() {
        return Ok(());
    }
    for tensor_parallel in TENSOR_PARALLEL.into_iter().filter(|cards| model.kv_heads.is_multiple_of(*cards)) {
        let of = Decoding {
            model: &model.name,
            dtype: DTYPE,
            tensor_parallel,
        };
        decoder_on(kernels, model, of, draft)?;
    }
    Ok(())
}

fn decoder_on(kernels: &Kernels, model: &ModelShape, of: Decoding, draft: &mut Draft) -> Result<(), Invalid> {
    let cards = u64::from(of.tensor_parallel);
    let (heads, kv_heads) = (u64::from(model.heads) / cards, u64::from(model.kv_heads) / cards);
    let width = u64::from(model.hidden / model.heads);
    let only = |us: f64| Times::only(us, 1);

    let dense = kernels.products.rows().into_iter();
    let dense: Points<1> = dense
        .filter_map(|rows| Some(([rows], only(kernels.decoder_layer(model, cards, rows)?))))
        .collect();
    let (decode, gone_on) = decode(kernels, heads, kv_heads, width);
    let prefill = prefill(kernels, &decode, heads, kv_heads, width);
    let (prompts, prompts_gone_on) = by_count(kernels, &kernels.context, &PROMPTS, [heads, kv_heads, width]);
    let mut ends = Points::<2>::new();
    for sequences in kernels.products.rows() {
        for tokens in [1, 16, 256, 2048, 16384] {
            if let Some(us) = kernels.decoder_ends(model, cards, sequences, tokens) {
                ends.insert([sequences, tokens], only(us));
            }
        }
    }
    if [dense.is_empty(), prefill.is_empty(), decode.is_empty(), ends.is_empty()].contains(&true) {
        let told = format!(
            "no layers of {} on {cards} cards: attention of {heads} heads, {kv_heads} of them of keys and values, or",
            model.name
        );
        draft.note(format!("{told} products of its widths were not measured"));
        return Ok(());
    }
    draft.decoder_dense(of, dense, &kernels.source(LAYER), None)?;
    let source = kernels.source(
        "context attention of whole prompts; a chunk after c cached tokens as a prompt of all less one of c, and no \
         less than one new token after c",
    );
    draft.decoder_prefill(of, prefill, &source, None)?;
    draft.decoder_prompts(
        of,
        prompts,
        &kernels.source("context attention of whole prompts of one length in one kernel"),
        prompts_gone_on,
    )?;
    draft.decoder_decode(of, decode, &kernels.source("generation attention"), gone_on)?;
    draft.decoder_ends(
        of,
        ends,
        &kernels.source("embedding and norm by bandwidth, output matrix as measured, no sampling"),
        None,
    )
}

/// Prompts as measured. A chunk's attention after what is cached attends as often as a whole prompt's less the cached
/// part's own, and takes no less than a prompt of its length, nor than one new token after as much, which reads all of
/// it too.
fn prefill(kernels: &Kernels, decode: &Points<2>, heads: u64, kv_heads: u64, width: u64) -> Points<2> {
    let new_token: Vec<(u64, Times)> = decode
        .iter()
        .filter(|([sequences, _], _)| *sequences == 1)
        .map(|([_, context], times)| (*context, *times))
        .collect();
    if new_token.is_empty() {
        return Points::new();
    }
    let reads_us = |context: u64| on_line(&new_token, context as f64).median_us;
    let whole = |tokens: u64| kernels.context.us(1, tokens, heads, kv_heads, width);
    let lengths: Vec<u64> = kernels
        .context
        .lengths(heads, kv_heads, width)
        .into_iter()
        .filter(|tokens| whole(*tokens).is_some())
        .collect();
    let line: Vec<(u64, Times)> =
        lengths.iter().filter_map(|tokens| Some((*tokens, Times::only(whole(*tokens)?, 1)))).collect();
    let mut points = Points::new();
    for (place, (tokens, alone)) in line.iter().enumerate() {
        for (context, all) in &line[place..] {
            let us = match context - tokens {
                0 => all.median_us + kernels.gap_us,
                cached => {
                    let attends_us = alone.median_us.max(all.median_us - on_whole(&line, cached));
                    (attends_us + kernels.gap_us).max(reads_us(cached + 1))
                }
            };
            points.insert([*tokens, *context], Times::only(us, 1));
        }
    }
    points
}

/// What a prompt of these tokens takes, the shortest ones as the shortest measured.
fn on_whole(line: &[(u64, Times)], tokens: u64) -> f64 {
    on_line(line, tokens.max(line[0].0) as f64).median_us
}

/// Attention of new tokens, by sequences and context.
fn decode(kernels: &Kernels, heads: u64, kv_heads: u64, width: u64) -> (Points<2>, Option<String>) {
    let (points, gone_on) = by_count(kernels, &kernels.generation, &SEQUENCES, [heads, kv_heads, width]);
    let points = points.into_iter();
    let attending = points.map(|([sequences, cached], times)| ([sequences, cached + 1], times));
    (attending.collect(), gone_on)
}

/// Attention of so many sequences of a length in one kernel. The source has fewer of them the longer they are: more go
/// on from its last two along a line, as each further one reads and computes as much. And how far that is off where all
/// were measured, in words; nothing where nothing had to go on.
fn by_count(kernels: &Kernels, attention: &Attention, counts: &[u64], of: [u64; 3]) -> (Points<2>, Option<String>) {
    let [heads, kv_heads, width] = of;
    let measured = |length: u64| -> Vec<f64> {
        let us = counts.iter().map(|count| attention.us(*count, length, heads, kv_heads, width));
        us.map_while(|us| us).collect()
    };
    let lengths = attention.lengths(heads, kv_heads, width).into_iter();
    let lines: Vec<(u64, Vec<f64>)> = lengths
        .map(|length| (length, measured(length)))
        .filter(|(_, us)| us.len() >= COUNTS_LEAST)
        .collect();
    let mut points = Points::new();
    for (length, us) in &lines {
        let times = (0..counts.len()).map(|at| match us.get(at) {
            Some(us) => Times::only(us + kernels.gap_us, 1),
            None => Times::only(going_on(counts, us, at) + kernels.gap_us, UNMEASURED),
        });
        let at = |count: &u64| [*count, *length];
        points.extend(counts.iter().map(at).zip(times));
    }

    let all = counts.len();
    let ragged = || lines.iter().filter(|(_, us)| us.len() < all);
    let Some((first, _)) = ragged().next() else {
        return (points, None);
    };
    let gone_on: usize = ragged().map(|(_, us)| all - us.len()).sum();
    // At the longest of which all were measured, from as few as each of the longer ones has.
    let whole: Vec<&Vec<f64>> = lines.iter().filter(|(_, us)| us.len() == all).map(|(_, us)| us).collect();
    let longest = &whole[whole.len() / 2..];
    let mut errors: Vec<f64> = ragged()
        .flat_map(|(_, few)| longest.iter().map(move |us| (few.len(), us)))
        .flat_map(|(few, us)| (few..all).map(move |at| (going_on(counts, &us[..few], at) / us[at] - 1.0).abs()))
        .collect();
    errors.sort_by(f64::total_cmp);
    let off = match errors.is_empty() {
        true => "untested, as none was measured with all".to_owned(),
        false => format!(
            "off by {:.0} % in the median and {:.0} % at p95 where all were measured",
            100.0 * nearest_rank(&errors, 50),
            100.0 * nearest_rank(&errors, 95)
        ),
    };
    let told = format!(
        "{gone_on} of {} points, of the most sequences at contexts from {first} tokens on, go on from those of fewer \
         along a line, {off}",
        points.len()
    );
    (points, Some(told))
}

/// What `counts[at]` take, on the line through the last two of these.
fn going_on(counts: &[u64], us: &[f64], at: usize) -> f64 {
    let [few, more] = [us.len() - 2, us.len() - 1];
    let [x, from, to] = [at, few, more].map(|index| counts[index] as f64);
    us[more] + (x - to) / (to - from) * (us[more] - us[few]).max(0.0)
}

fn collectives(sheet: &Sheet, draft: &mut Draft) -> Result<(), Invalid> {
    let mut points = Points::<2>::new();
    for line in sheet.lines() {
        if line.text("op_name")? == "all_reduce" && line.text("nccl_dtype")? == "half" {
            // The source counts numbers, of two bytes each.
            let at = [line.positive("num_gpus")?, 2 * line.size("message_size")?];
            let times = Times::only(line.time("latency_ms")? * US_PER_MS, 1).of(line);
            line.once("message_size", points.insert(at, times))?;
        }
    }
    if points.is_empty() {
        let must = "all_reduce of nccl_dtype half in some row";
        return Err(sheet.invalid("op_name", must, "no such row"));
    }
    let nccl = conversion::told("nccl", &conversion::versions(sheet, "nccl_")?);
    let source = format!("{SOURCE}: {nccl}, half; its sizes are numbers, two bytes each");
    draft.collective(CollectiveOperation::AllReduce, points, &source, |_| None)
}
