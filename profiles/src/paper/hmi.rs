//! HMI's Quadro P5000: PyTorch, so that small batches are bound by launches and large ones by arithmetic.

use super::draft::{Draft, Link, builtin};
use super::{Outcome, Paper, assumed, input, predicted};
use crate::card::{Card, Source};
use crate::keys::{AdapterImplementation, Direction, LookupOutcome, Tier, TokensOf};
use crate::model::{DType, ModelShape};
use crate::roofline::ops::encoder_layer_flops;
use crate::roofline::{Datasheet, DerivedError, Factors, Roofline, decoder_layers};
use crate::rows::{AdapterRow, PlotLookupRow};
use crate::stats::Stats;

const DTYPE: DType = DType::F32;
const BATCHES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LENGTHS: [u32; 6] = [16, 32, 64, 128, 256, 512];
const ADAPTER_LENGTHS: [u32; 3] = [16, 128, 512];
/// To adapters, each token of a decoder's step is a sequence of its own.
const STEP_LENGTHS: [u32; 2] = [1, 16];
const DECODERS: [&str; 2] = ["opt-125m", "distilgpt2"];
const MODELS: [&str; 4] = ["bert-base", "distilbert", "tinybert-6", "tinybert-4"];
/// Look-ups cost the same for any number of threads, since the paper has one figure.
const THREADS: [u32; 3] = [1, 8, 64];
/// Tokens of the fragments whose look-ups that figure is of.
const TRIGRAM: u32 = 3;
/// Costs of other fragments are in proportion to the vectors that are read for one, which changes its slope at 2 and
/// nowhere else.
const FRAGMENT_TOKENS: [u32; 4] = [1, 2, TRIGRAM, 8];

/// The card's rates, as its numbers give them.
struct Rates {
    /// One kernel's launch: what batch 1 is bound by.
    launch_us: f64,
    /// Operations a second that a large batch reaches.
    flops_per_s: f64,
    /// Bytes a second of the card's memory.
    bytes_per_s: f64,
}

/// Operations and bytes of one layer's adapters, gathered for a batch.
fn adapter_work(model: &ModelShape, bottleneck: f64, [tenants, batch, tokens]: [f64; 3]) -> (f64, f64) {
    let hidden = f64::from(model.hidden);
    let weights = 2.0 * hidden * bottleneck;
    let moved = batch * tokens * (4.0 * hidden + 2.0 * bottleneck);
    (
        2.0 * batch * tokens * weights,
        4.0 * ((tenants + 2.0 * batch) * weights + moved),
    )
}

impl Rates {
    /// Six layers take 6 ms at batch 1, whatever they compute; at the assumed batch a request takes its share of Table
    /// 6, so that the rate of arithmetic follows.
    fn of(paper: &Paper) -> Rates {
        let launch_us = 1e3 * paper.number("six_layers_ms") / 6.0 / paper.number("layer_launches");
        let bytes_per_s = 1e9 * paper.number("memory_gbytes_per_s") * Factors::FITTED.memory;
        let (batch, tokens) = (paper.number("batch"), paper.number("tokens"));
        let base = builtin("bert-base");
        let (adapter_flops, adapter_bytes) = adapter_work(&base, paper.number("bottleneck"), [batch, batch, tokens]);
        let batch_us = 1e6 * batch / paper.number("hbert_per_s");
        let layers_us = batch_us - paper.number("head_launches") * launch_us - 6e6 * adapter_bytes / bytes_per_s;
        Rates {
            launch_us,
            flops_per_s: 6e6 * (encoder_layer_flops(&base, batch, tokens) + adapter_flops) / layers_us,
            bytes_per_s,
        }
    }

    /// The host launches while the card computes: the slower of both counts.
    fn us(&self, launches: f64, flops: f64, bytes: f64) -> f64 {
        (launches * self.launch_us).max(1e6 * (flops / self.flops_per_s + bytes / self.bytes_per_s))
    }
}

pub(super) fn tables(paper: &Paper) -> Draft {
    let number = |name: &str| paper.number(name);
    let rates = Rates::of(paper);
    let mut draft = Draft::default();
    let base = builtin("bert-base");
    for name in MODELS {
        let model = builtin(name);
        let layer = |batch: u32, tokens: u32| {
            rates.us(
                number("layer_launches"),
                encoder_layer_flops(&model, batch.into(), tokens.into()),
                0.0,
            )
        };
        let embedding = |batch: u32, tokens: u32| {
            let moved = 4.0 * f64::from(batch * tokens) * f64::from(model.hidden) * 4.0;
            rates.us(number("embedding_launches"), 0.0, moved)
        };
        draft.encoder(&model, DTYPE, [&BATCHES, &LENGTHS], layer, embedding);
        draft.head(&model, DTYPE, &BATCHES, |_| number("head_launches") * rates.launch_us);
        let source = match name == base.name {
            true => "section 6.1 (6 ms for six layers at batch 1) and Table 6 (380.9/s)",
            false => "bert-base's launches and rate of arithmetic on the shape of this model",
        };
        draft.mark(Source::Fitted, source, None);
    }

    let mut bottlenecks = vec![64, number("bottleneck") as u32];
    bottlenecks.dedup();
    for bottleneck in bottlenecks {
        for &implementation in AdapterImplementation::ALL {
            adapters(
                &mut draft,
                paper,
                &rates,
                &base,
                implementation,
                bottleneck,
                &ADAPTER_LENGTHS,
            );
            let decoder = builtin(DECODERS[0]);
            adapters(
                &mut draft,
                paper,
                &rates,
                &decoder,
                implementation,
                bottleneck,
                &STEP_LENGTHS,
            );
        }
    }
    draft.mark(
        Source::Derived,
        "bert-base's launches and rate of arithmetic, and the gather's bytes; their sum with the layer is Table 6's",
        Some("±50 %"),
    );

    all_lookups(&mut draft, paper, &base);

    draft.link(&Link {
        pageable_bytes_per_s: 1e9 * number("pageable_gbytes_per_s"),
        ..Link::numbered(number)
    });
    draft.dispatch([number("dispatch_us"); 3]);
    draft.mark(
        Source::Assumed,
        "PCIe 3 as section 7.1 names it, at what it reaches elsewhere; hand-overs are nowhere",
        None,
    );

    let sheet = Datasheet {
        f32: rates.flops_per_s / Factors::FITTED.arithmetic,
        ..Datasheet::builtin("p5000").expect("it comes with the product")
    };
    let factors = Factors {
        launch_us: rates.launch_us,
        ..Factors::FITTED
    };
    let roofline = Roofline { sheet, factors };
    for name in DECODERS {
        decoder_layers(&mut draft.tables, &roofline, &builtin(name), DTYPE, 1);
    }
    draft.mark(
        Source::Derived,
        "roofline with bert-base's launches and rate of arithmetic",
        None,
    );
    for origin in draft.origins.iter_mut().filter(|origin| origin.error.is_none()) {
        origin.error = match origin.kind {
            Source::Fitted => Some(
                "the figures that it was fitted to come out again; docs/paper-cards.md has how far others are off"
                    .to_owned(),
            ),
            Source::Derived => Some(DerivedError::stated(origin.family)),
            Source::Measured | Source::Imported | Source::Assumed => None,
        };
    }
    draft
}

/// Look-ups of an encoder's and of a decoder's tables. The paper's two figures are of one text of 128 tokens.
fn all_lookups(draft: &mut Draft, paper: &Paper, base: &ModelShape) {
    let decoder = builtin(DECODERS[0]);
    let any = LookupOutcome::Any;
    for (tier, source) in [
        (
            Tier::Memory,
            "section 6.1: 0.2 ms from memory, in proportion to tokens; of trigrams, other fragments in proportion to the \
             vectors of a row",
        ),
        (
            Tier::Disk,
            "section 6.1: 2.4 ms from the SSD, in proportion to tokens (assumed below 128, which the figure is taken \
             to be of); of trigrams, other fragments in proportion to the vectors of a row",
        ),
    ] {
        lookups(draft, paper, base, (tier, any), |fragment_tokens| fragment_tokens);
        draft.mark(Source::Fitted, source, None);
    }
    // A decoder's row is the vector of a fragment's last token, however long the fragment is, and so is what stands in
    // for it. It looks up a token of each sequence in a step, and nothing says how long an SSD takes for so few.
    for (tier, kind, source) in [
        (
            Tier::Memory,
            Source::Fitted,
            "section 6.1: 0.2 ms from memory, in proportion to tokens",
        ),
        (
            Tier::Disk,
            Source::Assumed,
            "section 6.1's 2.4 ms of 128 tokens from the SSD, in proportion to tokens: of one token a 128th",
        ),
    ] {
        lookups(draft, paper, &decoder, (tier, any), |_| TRIGRAM);
        draft.mark(kind, source, None);
    }
    for tier in [Tier::Memory, Tier::Disk] {
        let vectors = |fragment_tokens| match fragment_tokens {
            ..=2 => fragment_tokens,
            longer => 2 * (longer - 1),
        };
        lookups(draft, paper, base, (tier, LookupOutcome::Fallback), vectors);
    }
    draft.mark(
        Source::Derived,
        "section 6.1's look-ups, in proportion to the vectors of the bigrams that stand in for a fragment, or of the \
         unigrams for a bigram",
        Some("±50 %"),
    );
}

/// Look-ups of a model's tables in a tier, with an outcome, of which `vectors` are read for a fragment of so many
/// tokens.
fn lookups(
    draft: &mut Draft,
    paper: &Paper,
    model: &ModelShape,
    (tier, outcome): (Tier, LookupOutcome),
    vectors: impl Fn(u32) -> u32,
) {
    let ms = match tier {
        Tier::Memory => "lookup_memory_ms",
        Tier::Disk => "lookup_disk_ms",
    };
    let vector_us = 1e3 * paper.number(ms) / paper.number("tokens") / f64::from(TRIGRAM);
    for threads in THREADS {
        for tokens in [1, 16, 128, 1024, 8192] {
            for fragment_tokens in FRAGMENT_TOKENS {
                let us = vector_us * f64::from(tokens) * f64::from(vectors(fragment_tokens));
                draft.tables.plot_lookup.push(PlotLookupRow {
                    model: model.name.clone(),
                    tier,
                    outcome,
                    tokens_of: TokensOf::Texts,
                    threads,
                    tokens,
                    fragment_tokens,
                    stats: Stats::exact(us),
                });
            }
        }
    }
}

fn adapters(
    draft: &mut Draft,
    paper: &Paper,
    rates: &Rates,
    base: &ModelShape,
    implementation: AdapterImplementation,
    bottleneck: u32,
    lengths: &[u32],
) {
    let launches = paper.number("adapter_launches");
    for batch in BATCHES {
        for tenants in BATCHES.into_iter().filter(|tenants| *tenants <= batch) {
            for &tokens in lengths {
                let point = [tenants, batch, tokens].map(f64::from);
                let (flops, bytes) = adapter_work(base, bottleneck.into(), point);
                let launches = match implementation {
                    AdapterImplementation::Loop => launches * f64::from(tenants),
                    AdapterImplementation::GatherBmm | AdapterImplementation::Grouped => launches,
                };
                draft.tables.adapter.push(AdapterRow {
                    model: base.name.clone(),
                    dtype: DTYPE,
                    implementation,
                    bottleneck,
                    tenants,
                    batch,
                    tokens,
                    stats: Stats::exact(rates.us(launches, flops, bytes)),
                });
            }
        }
    }
}

pub(super) fn outcomes(paper: &Paper, card: &Card) -> Vec<Outcome> {
    let base = builtin("bert-base");
    let (batch, tokens) = (paper.number("batch") as u32, paper.number("tokens") as u32);
    let bottleneck = paper.number("bottleneck") as u32;
    let ms = |ns: u64| ns as f64 / 1e6;
    let layer = card.encoder_layer(&base, DTYPE).expect("the card has it");
    let embedding = card.embedding(&base, DTYPE).expect("the card has it");
    let head = card.head(&base, DTYPE, 2).expect("the card has it");
    let adapter = card
        .adapter(&base, DTYPE, AdapterImplementation::GatherBmm, bottleneck)
        .expect("the card has it");
    let lookup = card
        .plot_lookup(&base, Tier::Memory, LookupOutcome::Any, TokensOf::Texts)
        .expect("the card has it");
    let copy = card.copy(Direction::HostToDevice, true).expect("the card has it");

    let upper_ms = 6.0 * ms(layer.cost(batch, tokens).median_ns + adapter.cost(batch, batch, tokens).median_ns)
        + ms(head.cost(batch.into()).median_ns);
    let request_ms = upper_ms / f64::from(batch);
    let lookup_ms = ms(lookup.cost(1, tokens, TRIGRAM).median_ns);
    let adapter_bytes = 6 * 4 * base.adapter_parameters_per_layer(bottleneck);
    let copy_ms = ms(copy.cost(adapter_bytes).median_ns);
    let per_s = |ms: f64| 1e3 / ms;

    // Every tenant has its own model, so that a batch falls apart into one for each.
    let share = (batch / paper.number("tenants") as u32).max(1);
    let dedicated_ms = (12.0 * ms(layer.cost(share, tokens).median_ns)
        + ms(embedding.cost(share, tokens).median_ns + head.cost(share.into()).median_ns))
        / f64::from(share);
    let room = (card.device.memory_bytes - card.device.reserve_bytes) as f64;
    let fit = |parameters: u64| (room / (4 * parameters) as f64).floor();
    vec![
        input("hBERT, requests/s (Table 6)", 380.9, per_s(request_ms)),
        predicted(
            "hBERT without retrieval prefetch, requests/s (Table 6)",
            340.1,
            per_s(request_ms + lookup_ms),
        ),
        predicted(
            "hBERT without adapter prefetch, requests/s (Table 6)",
            338.9,
            per_s(request_ms + copy_ms),
        ),
        predicted(
            "hBERT synchronous, requests/s (Table 6)",
            304.8,
            per_s(request_ms + lookup_ms + copy_ms),
        ),
        // The batch of 32 was chosen with sight of it.
        assumed("BERT-dedicated, requests/s (Table 6)", 165.2, per_s(dedicated_ms)),
        input(
            "six layers at batch 1, ms (section 6.1)",
            6.0,
            6.0 * ms(layer.cost(1, tokens).median_ns),
        ),
        assumed(
            "BERT-dedicated in 16 GB, instances (Table 2)",
            35.0,
            fit(base.parameters()),
        ),
        assumed(
            "BERT-compress distil in 16 GB, instances (Table 2)",
            60.0,
            fit(builtin("distilbert").parameters()),
        ),
        assumed(
            "BERT-compress tiny4 in 16 GB, instances (Table 2)",
            280.0,
            fit(builtin("tinybert-4").parameters()),
        ),
        assumed(
            "hBERT-PLOT in 16 GB, instances (Table 2)",
            90.0,
            fit(6 * base.layer_parameters()),
        ),
    ]
}
