//! Tabi (an efficient multi-level inference system for large language models), on `paper-v100-tabi`.

mod levels;
mod load;
mod overall;
mod parts;

use super::Figure;
use super::lab::{Lab, Runs};
use super::row::Row;
use crate::failure::Failure;

/// Above its tables.
pub const TITLE: &str = "Tabi: cascades of language models on two NVIDIA V100 (card paper-v100-tabi)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    overall::table_1,
    overall::table_2,
    overall::figure_7,
    parts::section_7_3_2,
    parts::table_3,
    parts::figures_8_and_9,
    levels::table_4,
    levels::table_5,
    load::under_load,
    out_of_scope,
];

/// A task that the text says enough about.
struct Task {
    name: &'static str,
    scenario: &'static str,
}

/// The two of section 7.3.
const TASKS: [Task; 2] = [
    Task {
        name: "SST-2",
        scenario: "tabi/table-2-sst-2",
    },
    Task {
        name: "MNLI",
        scenario: "tabi/table-2-mnli",
    },
];

/// Both tasks' runs.
fn tasks(lab: &Lab) -> Result<[Runs; 2], Failure> {
    let [sst2, mnli] = TASKS.map(|task| lab.runs(task.scenario, &[]));
    Ok([sst2?, mnli?])
}

/// What the text cannot support.
fn out_of_scope(_: &Lab) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = ["RTE", "QQP", "MRPC", "CoLA", "QNLI", "STS-B", "MASSIVE", "CLINC150"]
        .into_iter()
        .map(|task| {
            let reason = "the text gives neither the share that is returned, nor the pruning, nor the words of a query";
            Row::not_checkable(
                "Table 2",
                format!("{task}: accuracy, latency, cost and throughput"),
                reason,
            )
        })
        .collect();
    rows.push(Row::not_checkable(
        "Fig. 6",
        "SST-2's confidence and accuracy by bucket",
        "the figure is lost, and its logits are not public; calibration on the real logits of MMLU is in docs/reproduce.md",
    ));
    rows.push(Row::not_checkable(
        "Section 7.5",
        "break-even with DeBERTa-small at 92 and 86 %",
        "what other cut-offs and models answer is not in the text",
    ));
    Ok(rows)
}
