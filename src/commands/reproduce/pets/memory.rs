//! How many tasks lie on a card, and what they take: Tables 1 and 5, Fig. 10.

use serde_json::Value;
use tenantry_core::pet::work::linear_weights;
use tenantry_profiles::ModelShape;
use tenantry_reports::RunSummary;

use super::{Queries, TOLERANCE, greatest, least, runs};
use crate::commands::reproduce::lab::{Lab, Runs};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const MODELS: [(&str, &str); 3] = [
    ("distilbert", "DistilBERT"),
    ("bert-base", "BERT-base"),
    ("bert-large", "BERT-large"),
];
/// Card, its name, and by model the tasks of SeqS and PetS.
type OfCard = (&'static str, &'static str, [(f64, f64); 3]);

const CARDS: [OfCard; 3] = [
    ("paper-tx2", "TX2, 8 GB", [(34.0, 504.0), (17.0, 180.0), (3.0, 12.0)]),
    (
        "paper-gtx1080ti",
        "1080 Ti, 11 GB",
        [(56.0, 1336.0), (28.0, 588.0), (7.0, 126.0)],
    ),
    (
        "paper-v100",
        "V100, 32 GB",
        [(170.0, 4344.0), (85.0, 2164.0), (25.0, 560.0)],
    ),
];
/// A kind as summaries name it, its name, Table 1's share of a model's parameters in percent, and why ours is another.
type OfKind = (&'static str, &'static str, f64, &'static str);

/// Table 1's footnote: "Comparisons are based on BERT-large", and all but masks are "obtained from the reported
/// numbers" of other papers.
const KINDS: [OfKind; 3] = [
    (
        "adapters",
        "adapters",
        7.3,
        "Table 4's bottleneck of 64 at two places of a layer, which is served, is less",
    ),
    (
        "diff-pruning",
        "differences",
        0.5,
        "It counts values alone; resident is a sparse matrix with an index for each, and with the differences of \
         biases",
    ),
    (
        "bit-fit",
        "biases",
        3.8,
        "Table 4's biases of the linear and normalization layers and a classification layer are no more; the text does \
         not say what else Table 1 counts",
    ),
];

/// Of the nine, cards before models.
const OF_DISTILBERT_ON_V100: usize = 6;

fn loaded(run: &RunSummary) -> f64 {
    run.tasks.as_ref().map_or(f64::NAN, |tasks| tasks.loaded_until_full.into())
}

fn find<'a>(runs: &'a Runs, system: &str, card: &str, model: &str) -> &'a RunSummary {
    let at = |value: &str| Value::from(value);
    runs.find(system, &[("card", at(card)), ("models.backbone", at(model))])
}

/// Table 5's tasks of PetS over full models, of BERT-base on one card.
pub fn tasks_over_full_models(lab: &Lab, card: &str) -> Result<f64, Failure> {
    let (card, bert_base) = (format!("card={card}"), "sweep={models.backbone: [bert-base]}");
    let runs = lab.runs("pets/table-5", &[&card, bert_base])?;
    let [pets, full] = ["pets", "seqs"].map(|system| loaded(runs.of(system)));
    Ok(pets / full)
}

/// The most tasks.
pub fn table_5(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 5";
    let runs = lab.runs("pets/table-5", &[])?;
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    for (card, card_name, of_models) in CARDS {
        for ((model, name), (seqs, pets)) in MODELS.into_iter().zip(of_models) {
            let full = loaded(find(&runs, "seqs", card, model));
            let what = format!("SeqS, {name} on {card_name}");
            rows.push(match model {
                "bert-base" => {
                    Row::input(FIGURE, what, "tasks", seqs, full).note("the card's reserve was fitted to it")
                }
                "bert-large" => Row::predicted(FIGURE, what, "tasks", [seqs, full], TOLERANCE).note(
                    "one model more or less is much of so few; the card's reserve was fitted to BERT-base, and what \
                     else a larger model takes the text does not say",
                ),
                _ => Row::predicted(FIGURE, what, "tasks", [seqs, full], TOLERANCE),
            });
            let ours = loaded(find(&runs, "pets", card, model));
            ratios.push(ours / full);
            let what = format!("PetS, {name} on {card_name}");
            rows.push(match card {
                "paper-tx2" => Row::assumed(FIGURE, what, "tasks", Some(pets), ours).note(
                    "assumes that a task's parameters lie there twice: host and GPU share this card's memory, and the \
                     repository in the host's part holds what the GPU has as well. Once, they are 1.8, 2.5 and 9.4 \
                     times the paper's",
                ),
                _ => Row::predicted(FIGURE, what, "tasks", [pets, ours], TOLERANCE).note(
                    "masks and differences as the sparse matrices that are computed with. Nothing but models, \
                     activations of 32 queries and the reserve takes memory here. The paper's two cards differ by 21 \
                     GiB and by so many tasks that one takes 7.5, 14.3 and 52 MB of DistilBERT, BERT-base and \
                     BERT-large (here 6.0, 12.1 and 40), and 1.8, 3.4 and 5.2 GB remain that hold no task (models \
                     included): its allocator rounds up (section 6.3.2), by how much the text does not say, and its \
                     public code gives differences twice Table 4's share",
                ),
            });
        }
    }
    rows.extend([
        Row::predicted(
            FIGURE,
            "PetS over SeqS, DistilBERT on V100, 32 GB",
            "×",
            [26.0, ratios[OF_DISTILBERT_ON_V100]],
            TOLERANCE,
        ),
        Row::shape(
            FIGURE,
            "PetS over SeqS, DistilBERT on V100, over the most of the nine: it is the most",
            "×",
            ratios[OF_DISTILBERT_ON_V100] / greatest(&ratios),
            ratios[OF_DISTILBERT_ON_V100] >= greatest(&ratios),
        )
        .note(
            "a task's share of a model is nearly the same for all models here, so that the nine differ by whether one \
             full model more finds room; what takes the more of a small card and of a large model in the paper is left \
             out (above)",
        ),
        Row::assumed(
            FIGURE,
            "PetS over SeqS, least of the nine",
            "×",
            Some(4.0),
            least(&ratios),
        )
        .note(
            "the paper's is BERT-large's on the TX2, whose 12 tasks rest on what its host holds (assumed above); here \
             a task's share of a model is nearly the same for all models, and so is the ratio",
        ),
    ]);
    Ok(rows)
}

/// What a task adds to its model, of BERT-large as the table's footnote has it.
pub fn table_1(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 1";
    let large = ModelShape::builtin("bert-large").expect("it comes with the product");
    let bits = linear_weights(&large) as f64 / (32 * large.parameters()) as f64;
    let masks = Row::predicted(
        FIGURE,
        "a task of BERT-large over its model, masks as they are stored",
        "%",
        [3.0, 100.0 * bits],
        TOLERANCE,
    );
    let mut rows = vec![masks.note(
        "one bit of 32 for each weight of the linear layers. On the card it is the sparse matrix that is computed \
         with, 8 bytes for each of 5 % of the weights",
    )];
    let runs = lab.runs(
        "pets/table-5",
        &["card=paper-v100", "sweep={models.backbone: [bert-large]}"],
    )?;
    let tasks = runs.of("pets").tasks.as_ref();
    let model_bytes = (4 * large.parameters()) as f64;
    for (kind, name, paper, why) in KINDS {
        let of_kind = tasks.and_then(|tasks| tasks.kinds.get(kind));
        let ours = of_kind.map_or(f64::NAN, |of| of.bytes as f64 / f64::from(of.tasks) / model_bytes);
        let what = format!("a task of BERT-large over its model, {name}");
        rows.push(Row::assumed(FIGURE, what, "%", Some(paper), 100.0 * ours).note(format!(
            "the table's is of another setting, \"obtained from the reported numbers\" of another paper (its \
             footnote). {why}"
        )));
    }
    Ok(rows)
}

/// What models take as tasks are added.
pub fn figure_10(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 10";
    let of = |tasks| {
        let queries = Queries {
            card: "paper-gtx1080ti",
            model: "bert-base",
            tasks,
            each: 1,
            tokens: 128,
        };
        runs(lab, "pets/fig-8", 2, queries)
    };
    let (few, many) = (of(1)?, of(32)?);
    let most = of(64)?;
    let memory = |run: &RunSummary| run.gpu_memory_bytes.map_or(f64::NAN, |memory| memory.peak as f64);
    let refused = |run: &RunSummary| run.requests.rejected as f64;
    let one = few.of("seqs").gpu_memory_bytes.and_then(|memory| memory.per_tenant);
    let capacity = most.of("pets").gpu_memory_bytes.map_or(f64::NAN, |memory| memory.capacity as f64);
    let share = 100.0 * memory(most.of("pets")) / capacity;
    Ok(vec![
        // What the paper counts decided on `own_embeddings: false`.
        Row::input(
            FIGURE,
            "weights of a single task of BERT-base",
            "GB",
            0.35,
            one.unwrap_or(0) as f64 / 1e9,
        ),
        Row::shape(
            FIGURE,
            "32 tasks of SeqS find no room (out of memory): tasks without",
            "tasks",
            refused(many.of("seqs")),
            refused(many.of("seqs")) > 0.0,
        ),
        Row::shape(
            FIGURE,
            "32 tasks of ParS find no room either: tasks without",
            "tasks",
            refused(many.of("pars")),
            refused(many.of("pars")) > 0.0,
        ),
        Row::shape(
            FIGURE,
            "64 tasks of PetS, share of the card's memory: less than 40 %",
            "%",
            share,
            share < 40.0,
        )
        .note(
            "with activations for 256 queries of 128 tokens kept free; the paper's allocator takes what it needs, \
             rounded up",
        ),
        Row::not_checkable(
            FIGURE,
            "data memory that triples from 32 to 64 tasks",
            "rounding of the paper's allocator; logical bytes are counted here",
        ),
    ])
}
