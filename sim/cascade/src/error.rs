//! What the arithmetic refuses.

/// An input that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CascadeError {
    /// Nothing to fit to.
    #[error("{what}: must have items, got none")]
    Nothing {
        /// What was to be fitted.
        what: &'static str,
    },
    /// A label beyond the head's classes.
    #[error("item {item}: label: must be below the head's {classes} classes, got {label}")]
    Label {
        /// Position among the items.
        item: usize,
        /// Its label.
        label: usize,
        /// Length of its logits.
        classes: usize,
    },
    /// Logits of another length than the first item's.
    #[error("item {item}: logits: must be {classes} as the first item's, got {got}")]
    Classes {
        /// Position among the items.
        item: usize,
        /// Length of the first item's.
        classes: usize,
        /// Length of this one's.
        got: usize,
    },
    /// Infinite, or not a number.
    #[error("item {item}: {what}: must be finite, got {got}")]
    NotFinite {
        /// Position among the items.
        item: usize,
        /// Which number.
        what: &'static str,
        /// What it is.
        got: f64,
    },
    /// A number outside its range.
    #[error("{what}: must be {must}, got {got}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it must be.
        must: &'static str,
        /// What it is.
        got: f64,
    },
    /// A token that points outside the text, or into the middle of a character.
    #[error("token {token}: must lie in text {text}, got bytes {start} to {end}")]
    Token {
        /// Position among the tokens.
        token: usize,
        /// Position of the text in the pair.
        text: usize,
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
    },
    /// A word of the text that no token covers.
    #[error("text {text}: every word must have a token, got none for `{word}`: the tokenizer loses it")]
    LostWord {
        /// Position of the text in the pair.
        text: usize,
        /// The word.
        word: String,
    },
    /// Attention whose length is not that of square matrices.
    #[error("attention: must be matrices of {tokens} by {tokens}, got {got} numbers")]
    Attention {
        /// Tokens of the input.
        tokens: usize,
        /// Numbers given.
        got: usize,
    },
    /// Lists that must go together and do not.
    #[error("{what}: must be {must}, got {got}")]
    Lengths {
        /// Which list.
        what: &'static str,
        /// The length that it must have.
        must: usize,
        /// The length that it has.
        got: usize,
    },
    /// The user stopped it.
    #[error("stopped before its end")]
    Interrupted,
}
