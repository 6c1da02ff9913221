//! How many tasks lie on a card, and what they take: Table 5 and Fig. 10.

use serde_json::Value;
use tenantry_reports::RunSummary;

use super::{Queries, runs};
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
/// Of BERT-base without its embedding, as section 6.3.2 rounds it.
const FULL_MODEL_BYTES: f64 = 0.35e9;

fn loaded(run: &RunSummary) -> f64 {
    run.tasks
        .as_ref()
        .map_or(f64::NAN, |tasks| tasks.loaded_until_full.into())
}

fn find<'a>(runs: &'a Runs, system: &str, card: &str, model: &str) -> &'a RunSummary {
    let at = |value: &str| Value::from(value);
    runs.find(system, &[("card", at(card)), ("models.backbone", at(model))])
}

/// The most tasks.
pub fn table_5(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 5";
    let runs = lab.runs("pets/table-5", &[])?;
    let mut rows = Vec::new();
    for (card, card_name, of_models) in CARDS {
        for ((model, name), (seqs, pets)) in MODELS.into_iter().zip(of_models) {
            let ours = loaded(find(&runs, "seqs", card, model));
            let what = format!("SeqS, {name} on {card_name}");
            rows.push(match model {
                "bert-base" => Row::input(FIGURE, what, "tasks", seqs, ours)
                    .note("the card's reserve was fitted to it, with 0.35 GB a task"),
                // Small numbers go by whole models.
                _ => Row::predicted(FIGURE, what, "tasks", [seqs, ours], f64::max(0.05, 1.0 / seqs + 1e-9)),
            });
            let ours = loaded(find(&runs, "pets", card, model));
            let what = format!("PetS, {name} on {card_name}");
            rows.push(match (card, model) {
                ("paper-v100", _) => Row::predicted(FIGURE, what, "tasks", [pets, ours], 0.25)
                    .note("masks and differences as the sparse matrices that are computed with"),
                ("paper-tx2", _) => Row::assumed(FIGURE, what, "tasks", Some(pets), ours).note(
                    "assumes that a task's parameters lie there once: host and GPU share this card's memory, and a repository in the \
                     host's part would hold them a second time",
                ),
                _ => Row::assumed(FIGURE, what, "tasks", Some(pets), ours).note(
                    "assumes that nothing but models, activations of 32 queries and the reserve takes memory; the paper's allocator \
                     rounds up (section 6.3.2), which takes the more of a small card",
                ),
            });
        }
    }
    let base = find(&runs, "pets", "paper-v100", "bert-base");
    let kinds = base.tasks.as_ref().map(|tasks| &tasks.kinds);
    let (tasks, bytes) = kinds
        .into_iter()
        .flat_map(|kinds| kinds.values())
        .fold((0, 0), |(tasks, bytes), kind| (tasks + kind.tasks, bytes + kind.bytes));
    rows.push(
        Row::predicted(
            FIGURE,
            "a task of BERT-base over a full model, mean of the four kinds",
            "%",
            [3.65, 100.0 * bytes as f64 / f64::from(tasks) / FULL_MODEL_BYTES],
            0.1,
        )
        .note("3.65 % is the mean of Table 1; there a mask is bits (3 %), here resident as a sparse matrix (9.7 %), and biases are 0.1 %"),
    );
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
    let share = 100.0 * memory(most.of("pets")) / 11e9;
    Ok(vec![
        Row::predicted(
            FIGURE,
            "weights of a single task of BERT-base",
            "GB",
            [0.35, one.unwrap_or(0) as f64 / 1e9],
            0.05,
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
        .note("with activations for 256 queries of 128 tokens kept free; the paper's allocator takes what it needs, rounded up"),
        Row::not_checkable(
            FIGURE,
            "data memory that triples from 32 to 64 tasks",
            "rounding of the paper's allocator; logical bytes are counted here",
        ),
    ])
}
