//! Tabi's V100: Table 1's twelve models at batch 1, over the words of a query.
//!
//! Word pruning gives the slope: 14.2 % fewer words are 17 % less time (SST-2), 13.6 % are 15.4 % (MNLI), so that time
//! goes with words to the power of 1.18. INFaaS's 22.0 ms for SST-2's 26 words against Table 1's 26 ms then say that
//! Table 1's queries, MNLI's, have 30 words. The tokens of this card's tables are words.

use super::draft::{Draft, Link, builtin};
use super::{Outcome, Paper, assumed, input, predicted};
use crate::card::{Card, Source};
use crate::keys::DispatchOperation;
use crate::model::{DType, ModelKind, ModelShape};
use crate::rows::{ConcurrentLayerRow, DispatchRow};
use crate::stats::Stats;

const DTYPE: DType = DType::F32;
const BATCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];
const WORDS: [u32; 9] = [8, 16, 22, 26, 30, 40, 64, 96, 128];
const STREAMS: [u32; 6] = [1, 2, 4, 6, 8, 16];
/// What a model loses at most while as many of it run at once as its packing factor says (section 7.1).
const PACKED: f64 = 1.1;

/// Table 1's models: the name in the inputs, the shape's name, and where it is not built-in its layers, hidden width,
/// heads, vocabulary.
const MODELS: [(&str, &str, Option<[u32; 4]>); 12] = [
    ("bert_small", "bert-small", None),
    ("distilbert", "distilbert", None),
    ("albert", "albert-base", Some([12, 768, 12, 30_000])),
    ("prunebert", "prunebert", Some([12, 768, 12, 30_522])),
    ("deberta_small", "deberta-small", Some([6, 768, 12, 128_100])),
    ("bert_base", "bert-base", None),
    ("roberta_base", "roberta-base", Some([12, 768, 12, 50_265])),
    ("deberta_base", "deberta-base", Some([12, 768, 12, 128_100])),
    ("bert_large", "bert-large", None),
    ("roberta_large", "roberta-large", Some([24, 1024, 16, 50_265])),
    ("deberta_large", "deberta-large", Some([24, 1024, 16, 50_265])),
    ("deberta_xlarge", "deberta-xlarge", Some([24, 1536, 24, 128_100])),
];

fn shape(name: &str, dimensions: Option<[u32; 4]>) -> ModelShape {
    let Some([layers, hidden, heads, vocabulary]) = dimensions else {
        return builtin(name);
    };
    ModelShape {
        name: name.to_owned(),
        kind: ModelKind::Encoder,
        layers,
        hidden,
        heads,
        kv_heads: heads,
        intermediate: 4 * hidden,
        gated: false,
        vocabulary,
        positions: 512,
    }
}

/// Time goes with words to this power, as the mean of both tasks' pruning says.
fn power(paper: &Paper) -> f64 {
    let of = |task: &str| {
        let left = |what: &str| libm::log(1.0 - paper.number(&format!("{task}_pruned_{what}")));
        left("time") / left("words")
    };
    (of("sst2") + of("mnli")) / 2.0
}

/// Words of the queries that Table 1 was measured with.
fn table_1_words(paper: &Paper) -> f64 {
    let ratio = paper.number("infaas_sst2_ms") / paper.number("roberta_large_ms");
    paper.number("sst2_words") / libm::pow(ratio, 1.0 / power(paper))
}

pub(super) fn tables(paper: &Paper) -> Draft {
    let number = |name: &str| paper.number(name);
    let mut draft = Draft::default();
    let (power, measured_words, rest_us) = (power(paper), table_1_words(paper), number("ends_us"));
    for (key, name, dimensions) in MODELS {
        let model = shape(name, dimensions);
        if dimensions.is_some() {
            draft.models.push(model.clone());
        }
        let whole_us = |words: u32| {
            let at_30 = 1e3 * number(&format!("{key}_ms"));
            at_30 * libm::pow(f64::from(words) / measured_words, power)
        };
        let packing = number(&format!("{key}_packing"));
        let layer_us = |words: u32| (whole_us(words) - 2.0 * rest_us) / f64::from(model.layers);
        // As many as fit beside each other fit in a batch; beyond, the card is full.
        let layer = |batch: u32, words: u32| layer_us(words) * (f64::from(batch) / packing).max(1.0);
        draft.encoder(&model, DTYPE, [&BATCHES, &WORDS], layer, |_, _| rest_us);
        draft.head(&model, DTYPE, &BATCHES, |_| rest_us);
        for streams in STREAMS {
            // Alone it is not slowed at all, and at its packing factor by a tenth.
            let beside = f64::from(streams - 1) / (packing - 1.0).max(1.0);
            let shared = 1.0 + (PACKED - 1.0) * beside.min(1.0);
            let slower = shared * (f64::from(streams) / packing).max(1.0);
            for batch in BATCHES {
                for tokens in WORDS {
                    let stats = Stats::exact(slower * layer(batch, tokens));
                    let model = model.name.clone();
                    let row = ConcurrentLayerRow {
                        model,
                        dtype: DTYPE,
                        streams,
                        batch,
                        tokens,
                        stats,
                    };
                    draft.tables.concurrent_layer.push(row);
                }
            }
        }
    }
    draft.mark(
        Source::Fitted,
        "Table 1 at batch 1, Table 3's pruning over words; larger batches and models side by side by Table 1's packing \
         factor",
        Some("±10 % at batch 1 and up to 30 words, ±50 % elsewhere"),
    );
    draft.tables.dispatch.push(DispatchRow {
        operation: DispatchOperation::Inspect,
        stats: Stats::exact(1e3 * number("control_ms")),
    });
    draft.mark(
        Source::Assumed,
        "section 7.5: less than or around 5 ms a query; fitted to SST-2 and MNLI (Table 2)",
        None,
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
    let number = |name: &str| paper.number(name);
    let ms = |name: &str, words: f64| {
        let (_, name, dimensions) = MODELS.into_iter().find(|(key, _, _)| *key == name).expect("one of Table 1");
        let model = shape(name, dimensions);
        let layer = card.encoder_layer(&model, DTYPE).expect("the card has it");
        let us = |words: u32| {
            f64::from(model.layers) * layer.cost(1, words).median_ns as f64 / 1e3 + 2.0 * number("ends_us")
        };
        // Between whole words.
        let (below, part) = (words.floor() as u32, words.fract());
        (us(below) * (1.0 - part) + us(below + 1) * part) / 1e3
    };
    let control = number("control_ms");
    let (sst2, mnli) = (number("sst2_words"), table_1_words(paper));
    let re_routed = |task: &str| 1.0 - number(&format!("{task}_returned"));
    let pruned = |task: &str, words: f64| words * (1.0 - number(&format!("{task}_pruned_words")));
    let tabi = |task: &str, large: &str, words: f64| {
        ms("distilbert", words) + control + re_routed(task) * ms(large, pruned(task, words))
    };
    let [second, third] = [number("three_levels_second"), number("three_levels_third")];
    // The control looks at the answers of both levels that another comes after.
    let three = ms("distilbert", mnli)
        + control
        + (second + third) * (ms("deberta_base", pruned("mnli", mnli)) + control)
        + third * ms("deberta_large", pruned("mnli", mnli));
    vec![
        input("RoBERTa-large on MNLI, ms (Table 1)", 26.0, ms("roberta_large", mnli)),
        input("INFaaS on SST-2, ms (Table 2)", 22.0, ms("roberta_large", sst2)),
        predicted("INFaaS on MNLI, ms (Table 2)", 25.8, ms("roberta_large", mnli)),
        // The control is one assumed constant, fitted to both.
        assumed("Tabi on SST-2, ms (Table 2)", 13.2, tabi("sst2", "roberta_large", sst2)),
        assumed("Tabi on MNLI, ms (Table 2)", 20.3, tabi("mnli", "deberta_large", mnli)),
        predicted("three levels on MNLI, ms (Table 5)", 22.0, three),
    ]
}
