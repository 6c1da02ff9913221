//! Punica's two testbeds: a decode step's parts from Fig. 1, LoRA from Fig. 9 and the 2 ms of the abstract, and the
//! rest of a step from Fig. 11's 1,044 tokens/s.
//!
//! A step of 32 requests takes 30.7 ms at 1,044 tokens/s. Fig. 1's 13 ms, the attention over what is cached, LoRA's 2
//! ms and a share of each request's prefill leave 10 ms, which batch 1 does not have: it is taken for the host's work
//! for each sequence (sampling, page tables, text). As it does not grow with the model, the 13B's throughput is a
//! prediction.

use super::draft::{Draft, Link, builtin};
use super::{Outcome, Paper, input, predicted};
use crate::card::{Card, Source};
use crate::keys::{AdapterImplementation, CollectiveOperation};
use crate::model::{DType, ModelShape};
use crate::roofline::{Datasheet, Roofline, matrix_weights};
use crate::rows::{CollectiveRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderPrefillRow, LoraRow};
use crate::stats::Stats;

const DTYPE: DType = DType::F16;
const STEP_TOKENS: [u32; 12] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
const SEQUENCES: [u32; 6] = [1, 8, 16, 32, 64, 128];
const CONTEXTS: [u32; 7] = [16, 64, 128, 512, 1024, 2048, 4096];
const TENANTS: [u32; 6] = [1, 2, 8, 16, 32, 64];
const RANKS: [u32; 4] = [8, 16, 32, 64];
/// Sequences at which Fig. 1's, Fig. 11's and the abstract's figures were had.
const BATCH: u32 = 32;
/// The largest batch of Fig. 9, and the different tenants in it up to which its uniform line (8 of them) and its skewed
/// one (9) are no higher than one tenant's.
const KERNEL_TOKENS: u32 = 64;
const KERNEL_TENANTS: u32 = 8;
/// Llama's weights of which a launch of LoRA covers a product: the microbenchmarks' hidden size.
const BENCHMARK_HIDDEN: f64 = 4096.0;

/// Models that the card can hold, and the cards that share a layer of them.
const MODELS: [(&str, u32); 3] = [("llama-7b", 1), ("llama-13b", 1), ("llama-70b", 8)];

/// What the parts of a step cost, in microseconds.
#[derive(Clone)]
struct Parts {
    /// Of a layer beside its bytes: launches.
    layer_us: f64,
    /// Of streaming weights, in bytes a microsecond.
    bytes_per_us: f64,
    /// From one token in a step to 32, for a byte of weights.
    growth_us_per_byte: f64,
    /// Operations a microsecond of large steps.
    flops_per_us: f64,
    /// Attention of one sequence over one cached token, which one sequence alone cannot make faster …
    latency_us_per_token: f64,
    /// … and of the cache's bytes when many do.
    cache_us_per_byte: f64,
    /// The host's work for a sequence.
    sequence_us: f64,
    /// What eight processes do for each all-reduce beside moving its bytes.
    all_reduce_start_us: f64,
    /// And those bytes' rate, in bytes a microsecond.
    all_reduce_bytes_per_us: f64,
    roofline: Roofline,
}

fn weight_bytes(model: &ModelShape, cards: f64) -> f64 {
    2.0 * matrix_weights(model) / cards
}

fn cache_bytes(model: &ModelShape, cards: f64) -> f64 {
    2.0 * 2.0 * f64::from(model.hidden / model.heads * model.kv_heads) / cards
}

impl Parts {
    /// Figs. 1 and 11 are of the first testbed; on the second, its own memory streams the weights.
    fn of(paper: &Paper) -> Parts {
        let number = |name: &str| paper.number(name);
        let llama = builtin("llama-7b");
        let layers = f64::from(llama.layers);
        let roofline = |name: &str| Roofline::new(Datasheet::builtin(name).expect("it comes with the product"));
        let rate = |roofline: &Roofline| 1e-6 * roofline.sheet.memory_bandwidth * roofline.factors.memory;
        let testbed_1 = roofline("a100-pcie");
        let (short, long) = (number("short_context"), number("long_context"));
        let us = |name: &str| 1e3 * number(name);
        // Longer contexts cost the same for one sequence whatever its bytes, and as many bytes as 32 have.
        let latency_us_per_token = (us("decode_1_long_ms") - us("decode_1_short_ms")) / layers / (long - short);
        let slope = (us("decode_32_long_ms") - us("decode_32_short_ms")) / layers / (long - short);
        let bytes = weight_bytes(&llama, 1.0);
        let step_us = us("decode_1_short_ms") - testbed_1.decoder_ends_us(&llama, DTYPE, 1, [1, 1]);
        let ends_growth_us = testbed_1.decoder_ends_us(&llama, DTYPE, 1, [BATCH; 2])
            - testbed_1.decoder_ends_us(&llama, DTYPE, 1, [1, 1]);
        let wider_us = (us("decode_32_short_ms") - us("decode_1_short_ms") - ends_growth_us) / layers
            - (slope - latency_us_per_token) * short;
        let mut parts = Parts {
            layer_us: step_us / layers - latency_us_per_token * short - bytes / rate(&testbed_1),
            bytes_per_us: rate(&testbed_1),
            growth_us_per_byte: wider_us / bytes,
            flops_per_us: 1e-6 * testbed_1.sheet.f16.expect("an A100 has it") * number("prefill_share_of_peak"),
            latency_us_per_token,
            cache_us_per_byte: slope / (f64::from(BATCH) * cache_bytes(&llama, 1.0)),
            sequence_us: 0.0,
            all_reduce_start_us: 0.0,
            all_reduce_bytes_per_us: 1e3 * number("all_reduce_gbytes_per_s"),
            roofline: testbed_1,
        };
        let step_us = 1e6 * f64::from(BATCH) / number("tokens_per_s_7b");
        parts.sequence_us = (step_us - parts.step(paper, &llama, 1, BATCH, true)) / f64::from(BATCH);
        let testbed_2 = roofline("a100-sxm-40g");
        let mut shared = Parts {
            bytes_per_us: rate(&testbed_2),
            roofline: testbed_2,
            ..parts.clone()
        };
        // A step has two starts a layer; a prefill that joins it shares them.
        let large = builtin("llama-70b");
        let step_us = 1e6 * f64::from(BATCH) / number("tokens_per_s_70b");
        let left_us = step_us - shared.step(paper, &large, 8, BATCH, false);
        shared.all_reduce_start_us = left_us / (2.0 * f64::from(large.layers));
        parts.all_reduce_start_us = shared.all_reduce_start_us;
        if is_first_testbed(paper) { parts } else { shared }
    }

    fn all_reduce_us(&self, cards: u32, bytes: f64) -> f64 {
        let cards = f64::from(cards);
        self.all_reduce_start_us + 2.0 * (cards - 1.0) / cards * bytes / self.all_reduce_bytes_per_us
    }

    /// Both all-reduces of a layer over a step's hidden states.
    fn all_reduces_us(&self, model: &ModelShape, cards: u32, tokens: f64) -> f64 {
        match cards {
            1 => 0.0,
            _ => 2.0 * self.all_reduce_us(cards, 2.0 * tokens * f64::from(model.hidden)),
        }
    }

    fn dense_us(&self, model: &ModelShape, cards: u32, tokens: f64) -> f64 {
        let bytes = weight_bytes(model, cards.into());
        let narrow = tokens.min(f64::from(BATCH)) - 1.0;
        let streaming = bytes / self.bytes_per_us + self.growth_us_per_byte * bytes * narrow / f64::from(BATCH - 1);
        // From there on arithmetic takes over.
        let arithmetic = (tokens - f64::from(BATCH)).max(0.0) * bytes / self.flops_per_us;
        self.layer_us + streaming + arithmetic
    }

    fn decode_us(&self, model: &ModelShape, cards: u32, [sequences, context]: [f64; 2]) -> f64 {
        let cache = self.cache_us_per_byte * sequences * cache_bytes(model, cards.into());
        context * cache.max(self.latency_us_per_token)
    }

    fn ends_us(&self, model: &ModelShape, cards: u32, [sequences, tokens]: [u32; 2]) -> f64 {
        self.roofline.decoder_ends_us(model, DTYPE, cards, [sequences, tokens])
            + f64::from(sequences) * self.sequence_us
    }

    /// A mean step of `batch` requests, each with its prefill at the start, in microseconds.
    fn step(&self, paper: &Paper, model: &ModelShape, cards: u32, batch: u32, lora: bool) -> f64 {
        let (prompt, output) = (paper.number("prompt_tokens"), paper.number("output_tokens"));
        let (layers, sequences) = (f64::from(model.layers), f64::from(batch));
        let context = prompt + output / 2.0;
        let lora_us = |tokens: u32| match lora {
            true => self.lora_us(paper, model, [16, cards], [batch, tokens]),
            false => 0.0,
        };
        let more_lora = lora_us(batch + prompt as u32) - lora_us(batch);
        let shared_us = self.all_reduces_us(model, cards, sequences);
        let decode_us = layers
            * (self.dense_us(model, cards, sequences)
                + self.decode_us(model, cards, [sequences, context])
                + lora_us(batch)
                + shared_us)
            + self.ends_us(model, cards, [batch, batch]);
        let wider = self.dense_us(model, cards, sequences + prompt) - self.dense_us(model, cards, sequences);
        let attention = self.roofline.decoder_prefill_us(model, DTYPE, cards, [prompt as u32; 2]);
        let more_shared = self.all_reduces_us(model, cards, sequences + prompt) - shared_us;
        // A request joins once in `output` of its steps, and `batch` requests run.
        decode_us + sequences / output * layers * (wider + attention + more_lora + more_shared)
    }

    /// A layer's seven products. They overlap: their sum is not seven kernels but what 32 layers of them add to a step.
    /// Beyond the tokens that Fig. 9 has, inputs and outputs have to be moved. Where cards share a layer, each has its
    /// part of what grows with the model's width.
    fn lora_us(&self, paper: &Paper, model: &ModelShape, of: [u32; 2], [tenants, tokens]: [u32; 2]) -> f64 {
        let [rank, cards] = of;
        let llama = builtin("llama-7b");
        let at_32 = kernel_us(paper, 16, [BATCH, BATCH]);
        let scale = 1e3 * paper.number("lora_step_ms") / f64::from(llama.layers) / at_32;
        let one = paper.number("lora_kernel_us");
        // Launches stay, bytes grow with the width of the model.
        let part = model.lora_parameters_per_card(rank, cards) as f64 / model.lora_parameters_per_layer(rank) as f64;
        let wider = part * f64::from(model.hidden) / BENCHMARK_HIDDEN;
        let kernels_us = scale * (one + wider * (kernel_us(paper, rank, [tenants, tokens]) - one));
        kernels_us + self.more_lora_us(model, of, [KERNEL_TOKENS, tokens])
    }

    /// What the roofline has tokens beyond so many add to a layer's products, whosever they are: inputs, outputs and
    /// arithmetic.
    fn more_lora_us(&self, model: &ModelShape, of: [u32; 2], [from, tokens]: [u32; 2]) -> f64 {
        let of_one_tenant =
            |tokens| self.roofline.lora_us(model, DTYPE, AdapterImplementation::Grouped, of, [1, tokens]);
        of_one_tenant(tokens.max(from)) - of_one_tenant(from)
    }
}

/// One product's kernel (Fig. 9), in microseconds: from one request to 64 of different tenants. With few tenants for
/// all it hardly grows.
fn kernel_us(paper: &Paper, rank: u32, [tenants, tokens]: [u32; 2]) -> f64 {
    let share = |of: u32, from: u32, to: u32| f64::from(of.clamp(from, to) - from) / f64::from(to - from);
    let one = paper.number("lora_kernel_us");
    let all = paper.number(&format!("lora_rank_{rank}_us"));
    let shared = paper.number("lora_kernel_shared_us") - one;
    let distinct = share(tenants, KERNEL_TENANTS, KERNEL_TOKENS);
    one + (all - one - shared).max(0.0) * distinct + shared * share(tokens, 1, KERNEL_TOKENS)
}

/// Whether it is the one card of 80 GB on which kernels and the 7B were measured, and not the eight of 40 GB.
fn is_first_testbed(paper: &Paper) -> bool {
    paper.number("memory_gib") > 40.0
}

pub(super) fn tables(paper: &Paper) -> Draft {
    let number = |name: &str| paper.number(name);
    let parts = Parts::of(paper);
    let mut draft = Draft::default();
    for (name, cards) in models(paper) {
        let model = builtin(name);
        decoder(&mut draft, &parts, &model, cards);
        let (kind, source, error) = match name {
            "llama-7b" if is_first_testbed(paper) => (
                Source::Fitted,
                "Fig. 1 (11, 13, 17 and 34 ms) and Fig. 11 (1,044 tokens/s)",
                None,
            ),
            _ => (
                Source::Derived,
                "llama-7b's parts (Figs. 1 and 11) on this shape, these cards and their memory",
                Some("±30 %"),
            ),
        };
        draft.mark(kind, source, error);
    }
    for (name, cards) in models(paper) {
        lora(&mut draft, paper, (&builtin(name), cards), &parts);
    }
    for workers in [2, 4, 8] {
        for bytes in [1 << 10, 1 << 15, 1 << 20, 1 << 23, 1 << 26] {
            let operation = CollectiveOperation::AllReduce;
            let stats = Stats::exact(parts.all_reduce_us(workers, bytes as f64));
            draft.tables.collective.push(CollectiveRow {
                operation,
                workers,
                bytes,
                stats,
            });
        }
    }
    draft.mark(
        Source::Fitted,
        "Fig. 12: vLLM's 457 tokens/s of the 70B on eight cards, backbone only",
        Some("±50 %"),
    );

    draft.link(&Link::numbered(number));
    draft.dispatch([number("dispatch_us"); 3]);
    draft.mark(
        Source::Assumed,
        "PCIe 4 at what it reaches elsewhere; the text's 2 ms a LoRA would be 40 GB/s",
        None,
    );
    draft
}

fn models(paper: &Paper) -> impl Iterator<Item = (&'static str, u32)> {
    // Eight cards that share a layer are the second testbed's.
    let shared = !is_first_testbed(paper);
    MODELS.into_iter().filter(move |(_, cards)| *cards == 1 || shared)
}

fn decoder(draft: &mut Draft, parts: &Parts, model: &ModelShape, tensor_parallel: u32) {
    let (dtype, name) = (DTYPE, || model.name.clone());
    for tokens in STEP_TOKENS {
        let stats = Stats::exact(parts.dense_us(model, tensor_parallel, tokens.into()));
        draft.tables.decoder_dense.push(DecoderDenseRow {
            model: name(),
            dtype,
            tensor_parallel,
            tokens,
            stats,
        });
    }
    for tokens in CONTEXTS {
        for context in CONTEXTS.into_iter().filter(|context| tokens <= *context) {
            let stats =
                Stats::exact(parts.roofline.decoder_prefill_us(model, dtype, tensor_parallel, [tokens, context]));
            let row = DecoderPrefillRow {
                model: name(),
                dtype,
                tensor_parallel,
                tokens,
                context,
                stats,
            };
            draft.tables.decoder_prefill.push(row);
        }
    }
    for sequences in SEQUENCES {
        for context in CONTEXTS {
            let at = [sequences, context].map(f64::from);
            let stats = Stats::exact(parts.decode_us(model, tensor_parallel, at));
            let row = DecoderDecodeRow {
                model: name(),
                dtype,
                tensor_parallel,
                sequences,
                context,
                stats,
            };
            draft.tables.decoder_decode.push(row);
        }
        for tokens in STEP_TOKENS {
            let stats = Stats::exact(parts.ends_us(model, tensor_parallel, [sequences, tokens]));
            let row = DecoderEndsRow {
                model: name(),
                dtype,
                tensor_parallel,
                sequences,
                tokens,
                stats,
            };
            draft.tables.decoder_ends.push(row);
        }
    }
}

fn lora(draft: &mut Draft, paper: &Paper, (model, tensor_parallel): (&ModelShape, u32), parts: &Parts) {
    let points = || {
        let tokens = [1, 2, 8, 16, 32, 64, 256, 1024, 4096];
        tokens.into_iter().flat_map(|tokens| TENANTS.into_iter().map(move |tenants| [tenants, tokens]))
    };
    let possible = |[tenants, tokens]: &[u32; 2]| tenants <= tokens;
    let mut push = |implementation, rank, [tenants, tokens]: [u32; 2], us: f64| {
        let (model, dtype, stats) = (model.name.clone(), DTYPE, Stats::exact(us));
        draft.tables.lora.push(LoraRow {
            model,
            dtype,
            implementation,
            rank,
            tensor_parallel,
            tenants,
            tokens,
            stats,
        });
    };
    for rank in RANKS {
        for point in points().filter(possible) {
            push(
                AdapterImplementation::Grouped,
                rank,
                point,
                parts.lora_us(paper, model, [rank, tensor_parallel], point),
            );
        }
    }
    // The text says of the others only that they are slower: a kernel for each tenant, and a gather of each input's
    // weights.
    for point in points().filter(possible) {
        let of = [16, tensor_parallel];
        let one = parts.lora_us(paper, model, of, [1, 1]);
        // Each kernel has a token of its tenant's.
        let more = parts.more_lora_us(model, of, point);
        push(AdapterImplementation::Loop, 16, point, f64::from(point[0]) * one + more);
        let gathered = parts.roofline.lora_us(model, DTYPE, AdapterImplementation::GatherBmm, of, point)
            - parts.roofline.lora_us(model, DTYPE, AdapterImplementation::GatherBmm, of, [1, 1]);
        push(
            AdapterImplementation::GatherBmm,
            16,
            point,
            2.0 * one + gathered.max(0.0),
        );
    }
    // Of this model, on the testbed where it was measured.
    let grouped = match model.name == "llama-7b" && is_first_testbed(paper) {
        true => (
            "grouped",
            Source::Fitted,
            "Fig. 9 (42 to 72, 75, 89, 118 µs, to 45 with up to 8 tenants), scaled so that 32 layers add 2 ms at 32 \
             tenants; beyond its 64 tokens what the roofline has more of them add",
            None,
        ),
        false => (
            "grouped",
            Source::Derived,
            "llama-7b's on the first testbed (Fig. 9), of which what grows with a model's width does with this one's, \
             or with a card's part of it",
            Some("±50 %"),
        ),
    };
    for (implementation, kind, source, error) in [
        grouped,
        (
            "loop",
            Source::Derived,
            "a kernel of Fig. 9 for each tenant, and what the roofline has tokens beyond one each add",
            Some("±50 %"),
        ),
        (
            "gather-bmm",
            Source::Derived,
            "two kernels of Fig. 9 and the gather's bytes (section 7.1)",
            Some("±50 %"),
        ),
    ] {
        let mut part = Draft::default();
        let of_it = |row: &&LoraRow| row.implementation.name() == implementation && row.model == model.name;
        part.tables.lora = draft.tables.lora.iter().filter(of_it).cloned().collect();
        part.mark(kind, source, error);
        draft.origins.extend(part.origins);
    }
}

pub(super) fn outcomes(paper: &Paper, card: &Card) -> Vec<Outcome> {
    let number = |name: &str| paper.number(name);
    let decode_ms = |name: &str, [sequences, context]: [u32; 2]| {
        let model = builtin(name);
        let decoder = card.decoder(&model, DTYPE, 1).expect("the card has it");
        let layer = decoder.dense.cost(sequences.into()).median_ns + decoder.decode.cost(sequences, context).median_ns;
        // Fig. 1 times the model, not the host's work for each sequence.
        let ends = decoder.ends.cost(sequences, sequences).median_ns as f64 / 1e6;
        let host = Parts::of(paper).sequence_us * f64::from(sequences) / 1e3;
        f64::from(model.layers) * layer as f64 / 1e6 + ends - host
    };
    let parts = Parts::of(paper);
    let per_s = |name: &str, cards: u32, batch: u32, lora: bool| {
        1e6 * f64::from(batch) / parts.step(paper, &builtin(name), cards, batch, lora)
    };
    let [short, long] = ["short_context", "long_context"].map(|name| number(name) as u32);
    if is_first_testbed(paper) {
        vec![
            input(
                "7B, decode of 1, short, ms (Fig. 1)",
                11.0,
                decode_ms("llama-7b", [1, short]),
            ),
            input(
                "7B, decode of 32, short, ms (Fig. 1)",
                13.0,
                decode_ms("llama-7b", [32, short]),
            ),
            input(
                "7B, decode of 1, long, ms (Fig. 1)",
                17.0,
                decode_ms("llama-7b", [1, long]),
            ),
            input(
                "7B, decode of 32, long, ms (Fig. 1)",
                34.0,
                decode_ms("llama-7b", [32, long]),
            ),
            input("7B, tokens/s (Fig. 11)", 1044.0, per_s("llama-7b", 1, 32, true)),
            predicted(
                "7B, vLLM backbone, tokens/s (Fig. 11)",
                1140.0,
                per_s("llama-7b", 1, 32, false),
            ),
            predicted("13B, tokens/s (Fig. 11)", 693.0, per_s("llama-13b", 1, 32, true)),
            predicted(
                "13B, vLLM backbone, tokens/s (Fig. 11)",
                789.0,
                per_s("llama-13b", 1, 32, false),
            ),
            predicted(
                "7B, batch of 32 over batch of 1 (abstract)",
                12.0,
                per_s("llama-7b", 1, 32, true) / per_s("llama-7b", 1, 1, false),
            ),
        ]
    } else {
        vec![
            input(
                "70B on 8 cards, vLLM backbone, tokens/s (Fig. 12)",
                457.0,
                per_s("llama-70b", 8, 32, false),
            ),
            predicted(
                "70B on 8 cards, tokens/s (Fig. 12: 441 to 446)",
                443.5,
                per_s("llama-70b", 8, 32, true),
            ),
            predicted(
                "70B on 8 cards, batch of 1, tokens/s (Fig. 12: 21 to 25, the nearest)",
                21.0,
                per_s("llama-70b", 8, 1, false),
            ),
        ]
    }
}
