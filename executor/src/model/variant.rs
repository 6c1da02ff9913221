//! What encoders have otherwise than BERT.

use super::relative::Distances;

/// BERT's, in all published checkpoints.
pub(crate) const LAYER_NORM_EPSILON: f64 = 1e-12;

/// Of an encoder whose layers compute what BERT's do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Variant {
    /// Added to variances by norms.
    pub norm_epsilon: f64,
    /// Between the two products of the feed-forward block.
    pub gelu: Gelu,
    /// The width of embeddings that are then projected to the hidden width (ALBERT, Lan et al., 2020, section 3.1).
    pub embedding: Option<u32>,
    /// Whether one layer's parameters stand for all layers' (likewise).
    pub one_layer: bool,
    /// Where tokens attend by how far apart they are (DeBERTa).
    pub relative: Option<Distances>,
}

impl Variant {
    /// BERT itself.
    pub const BERT: Variant = Variant {
        norm_epsilon: LAYER_NORM_EPSILON,
        gelu: Gelu::Exact,
        embedding: None,
        one_layer: false,
        relative: None,
    };
}

/// The Gaussian error linear unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gelu {
    /// By the error function.
    Exact,
    /// By a hyperbolic tangent near to it.
    Tanh,
}

impl Gelu {
    /// As libtorch calls it.
    pub fn name(self) -> &'static str {
        match self {
            Gelu::Exact => "none",
            Gelu::Tanh => "tanh",
        }
    }
}
