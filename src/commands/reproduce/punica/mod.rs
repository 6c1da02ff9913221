//! Punica (multi-tenant LoRA serving), on `paper-a100-80g` and `paper-a100-40g`.

mod cluster;
mod generation;
mod kernels;

use super::Figure;

/// Above its tables.
pub const TITLE: &str = "Punica: many LoRAs on one model (cards paper-a100-80g and paper-a100-40g)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    kernels::figure_1,
    kernels::section_5,
    kernels::figure_7,
    kernels::figure_8,
    kernels::figure_9,
    kernels::figure_10,
    generation::figure_11,
    generation::figure_11_public,
    generation::figure_12,
    cluster::figure_13,
];
