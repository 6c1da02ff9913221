//! What a table's keys and rows are.

use crate::PlotError;

/// The longest fragment that a table may have, in tokens: as long as BERT's longest input.
pub const FRAGMENT_TOKENS_MAX: u32 = 512;

/// The widest representation that a table may have, in values.
pub const HIDDEN_MAX: u32 = 1 << 16;

/// Which tokens a token sees in the lower layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Tokens on both sides (encoders). A row holds a vector for each position of its fragment, `H ∈ R^{n×d}` (HMI,
    /// 3.2.1).
    Both,
    /// Preceding tokens only (decoders): fragment `i` is `[x_{i-n+1}, …, x_i]` (HMI, 7.6). A row holds the vector of
    /// its last token alone, since the others are to be had only from fragments that need tokens not yet generated.
    Preceding,
}

/// The shape of a table: what it is looked up by, and what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of a fragment: n of the n-grams. Trigrams are HMI's default.
    pub fragment_tokens: u32,
    /// Which tokens a token sees.
    pub context: Context,
    /// Values of a token's representation: d.
    pub hidden: u32,
}

impl Shape {
    /// HMI's default for an encoder: trigrams.
    pub fn trigrams(hidden: u32) -> Shape {
        Shape {
            fragment_tokens: 3,
            context: Context::Both,
            hidden,
        }
    }

    /// The same table for fragments of another length, as the fallback needs them.
    pub fn with_fragment_tokens(self, fragment_tokens: u32) -> Shape {
        Shape {
            fragment_tokens,
            ..self
        }
    }

    /// Vectors in a row.
    pub fn positions(&self) -> u32 {
        match self.context {
            Context::Both => self.fragment_tokens,
            Context::Preceding => 1,
        }
    }

    /// Values in a row.
    pub fn row_values(&self) -> usize {
        self.positions() as usize * self.hidden as usize
    }

    /// Bytes of a row, in half precision.
    pub fn row_bytes(&self) -> u64 {
        2 * self.row_values() as u64
    }

    /// Bytes of a key: a `u32` a token.
    pub fn key_bytes(&self) -> u64 {
        4 * u64::from(self.fragment_tokens)
    }

    pub(crate) fn check(&self) -> Result<(), PlotError> {
        for (what, value, most) in [
            ("fragment_tokens", self.fragment_tokens, FRAGMENT_TOKENS_MAX),
            ("hidden", self.hidden, HIDDEN_MAX),
        ] {
            if !(1..=most).contains(&value) {
                return Err(PlotError::input(what, format!("from 1 to {most}"), value));
            }
        }
        Ok(())
    }
}
