//! Punica (multi-tenant LoRA serving), on `paper-a100-80g` and `paper-a100-40g`.

mod cluster;
mod conversations;
mod generation;
mod kernels;
mod layers;
mod patterns;
mod products;

use super::Figure;

/// Above its tables.
pub const TITLE: &str = "Punica: many LoRAs on one model (cards paper-a100-80g and paper-a100-40g)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    kernels::figure_1,
    kernels::section_5,
    products::figure_7,
    products::figure_8,
    products::figure_9,
    layers::figure_10,
    generation::figure_11,
    generation::figure_11_public,
    generation::figure_12,
    cluster::figure_13,
    conversations::figure_13_conversations,
];
