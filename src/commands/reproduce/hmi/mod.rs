//! HMI (Hierarchical knowledge Management-based multi-tenant Inference), on `paper-p5000`.

mod generation;
mod memory;
mod pipelines;
mod response;
mod swapping;

use super::Figure;
use super::lab::Lab;
use super::row::Row;
use crate::failure::Failure;

/// Above its tables.
pub const TITLE: &str = "HMI: 10,000 hierarchical models on one NVIDIA Quadro P5000 (card paper-p5000)";

/// What [`FIGURES`] are called.
pub const NAMES: [&str; 13] = [
    "Fig. 3",
    "Fig. 4",
    "Table 2",
    "Fig. 11",
    "Fig. 12",
    "Fig. 13",
    "Table 5",
    "Table 6",
    "Fig. 17",
    "Table 4",
    "Table 7",
    "Fig. 15",
    "Out of scope",
];

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    swapping::figure_3,
    swapping::figure_4,
    memory::table_2,
    swapping::figure_11,
    response::figure_12,
    response::figure_13,
    memory::table_5,
    pipelines::table_6,
    pipelines::figure_17,
    generation::table_4,
    pipelines::table_7,
    generation::figure_15,
    out_of_scope,
];

/// What the text cannot support, and what no simulator says.
fn out_of_scope(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![Row::not_checkable(
        "Out of scope",
        "accuracy: Fig. 5, 7, 14, 16, Tables 3, 4, 5, 7 to 11",
        "what trained models answer: no simulator says it",
    )])
}
