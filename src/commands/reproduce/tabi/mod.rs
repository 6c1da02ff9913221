//! Tabi (an efficient multi-level inference system for large language models), on `paper-v100-tabi`.

mod cost;
mod lengths;
mod levels;
mod load;
mod overall;
mod parts;
mod percentiles;

use tenantry_reports::RunSummary;

use super::Figure;
use super::lab::{Lab, Runs};
use super::row::Row;
use crate::failure::Failure;

/// Above its tables.
pub const TITLE: &str = "Tabi: cascades of language models on two NVIDIA V100 (card paper-v100-tabi)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    overall::table_1,
    overall::table_2_latency,
    overall::table_2_accuracy,
    cost::table_2_cost,
    percentiles::figure_7,
    parts::section_7_3_2,
    parts::table_3,
    parts::figures_8_and_9,
    levels::table_4,
    levels::table_5,
    load::under_load,
    out_of_scope,
];

/// How far every prediction may be off, whatever came out.
const TOLERANCE: f64 = 0.05;

/// A task that the text says enough about.
struct Task {
    name: &'static str,
    scenario: &'static str,
    classes: u32,
    /// The system of the cascade's large model by itself.
    large_alone: &'static str,
}

/// The two of section 7.3.
const TASKS: [Task; 2] = [
    Task {
        name: "SST-2",
        scenario: "tabi/table-2-sst-2",
        classes: 2,
        large_alone: "infaas-best",
    },
    Task {
        name: "MNLI",
        scenario: "tabi/table-2-mnli",
        classes: 3,
        large_alone: "large-alone",
    },
];

/// How many outcomes were drawn for a run.
fn draws(run: &RunSummary) -> f64 {
    run.requests.finished as f64
}

/// Both tasks' runs.
fn tasks(lab: &Lab) -> Result<[Runs; 2], Failure> {
    let [sst2, mnli] = TASKS.map(|task| lab.runs(task.scenario, &[]));
    Ok([sst2?, mnli?])
}

/// What the text cannot support.
fn out_of_scope(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![
        Row::not_checkable(
            "Fig. 6",
            "SST-2's confidence and accuracy by bucket",
            "the figure is lost, and its logits are not public; calibration on the real logits of MMLU is in \
             docs/reproduce.md",
        ),
        Row::not_checkable(
            "Fig. 1",
            "the optimum takes 11 % of what is used; smaller models predict the same for over 90 % of queries (section \
             2.1)",
            "which model gets which query right is not public; language models' answers are in traces/",
        ),
        Row::not_checkable(
            "Section 7.3.1",
            "the selected cascade is always of DistilBERT and RoBERTa-large or DeBERTa-large",
            "what the others of the family answer is not in the text; the search itself is tested on models that are \
             trained here",
        ),
        Row::not_checkable(
            "Section 7.5",
            "each model is run some 2.5 times to profile α, in tens of minutes",
            "that is the authors' profiling; `cascade profile` makes two passes a degree and says how many",
        ),
        Row::not_checkable(
            "Section 4.2",
            "a small and a large model share 89 % of the top half of tokens (SST-2)",
            "that is about trained models' attention; here outcomes are drawn, and which words go is not looked at",
        ),
        Row::not_checkable(
            "Section 7.5",
            "break-even with DeBERTa-small at 92 and 86 %",
            "what other cut-offs and models answer is not in the text",
        ),
        Row::not_checkable(
            "Section 7.5",
            "early exits save 3 % more than Tabi below 91 and 87 %",
            "how many leave an exit, and how often they are right, is not in the text: Table 4's exit is assumed to be \
             as sure as DistilBERT",
        ),
    ])
}
