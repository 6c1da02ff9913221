//! Token counts by a `tokenizer.json`, the format of Hugging Face's `tokenizers`.

use std::path::Path;
use std::str::FromStr;

use tokenizers::{Encoding, Tokenizer};

use super::guard::unpanicked;
use super::sharegpt::Tokenize;
use crate::error::TraceError;

/// A tokenizer that is read from its `tokenizer.json`. Texts are counted whole, without the special tokens that a
/// model's template puts around them, since those belong to the serving system and not to the recording:
/// [`around`](TokenizerJson::around) has them.
pub struct TokenizerJson {
    tokenizer: Tokenizer,
}

impl TokenizerJson {
    /// Reads a `tokenizer.json`; truncation and padding in it are not applied.
    ///
    /// # Errors
    /// [`TraceError::Io`] where it cannot be read, [`TraceError::File`] where it is not such a file.
    pub fn open(path: &Path) -> Result<TokenizerJson, TraceError> {
        Ok(TokenizerJson { tokenizer: open(path)? })
    }

    /// The ids of a text's tokens.
    ///
    /// # Errors
    /// A text that the tokenizer does not take, in words.
    pub fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        Ok(self.encoded(text, false)?.get_ids().to_vec())
    }

    /// The special tokens that the model's template puts before and behind a text: `[CLS]` and `[SEP]` of BERT, none
    /// where it has no template.
    ///
    /// # Errors
    /// As [`ids`](Self::ids).
    pub fn around(&self, text: &str) -> Result<[Vec<u32>; 2], String> {
        let encoding = self.encoded(text, true)?;
        let tokens = || encoding.get_ids().iter().zip(encoding.get_special_tokens_mask());
        let is_special = |(_, special): &(&u32, &u32)| **special != 0;
        let before: Vec<u32> = tokens().take_while(is_special).map(|(id, _)| *id).collect();
        let behind = tokens().skip(before.len()).rev().take_while(is_special);
        let mut behind: Vec<u32> = behind.map(|(id, _)| *id).collect();
        behind.reverse();
        Ok([before, behind])
    }

    fn encoded(&self, text: &str, special: bool) -> Result<Encoding, String> {
        let must_be = |got: &dyn std::fmt::Display| format!("must be text that the tokenizer knows, got {got}");
        unpanicked(|| self.tokenizer.encode_fast(text, special))
            .map_err(|what| must_be(&what))?
            .map_err(|error| must_be(&error))
    }
}

/// The library's own tokenizer of a `tokenizer.json`, without the truncation and padding in it.
///
/// # Errors
/// As [`TokenizerJson::open`].
pub fn open(path: &Path) -> Result<Tokenizer, TraceError> {
    let bytes = std::fs::read(path).map_err(|source| TraceError::unreadable(path, source))?;
    let no_tokenizer =
        |got: &dyn std::fmt::Display| TraceError::file(path, format!("must be a tokenizer.json, got {got}"));
    // The library takes JSON for granted in places, and would say nothing of where it ends.
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(|error| no_tokenizer(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| no_tokenizer(&error))?;
    // Not from bytes, which is generic: the library's parser would be compiled anew here.
    let mut tokenizer = unpanicked(|| Tokenizer::from_str(text))
        .map_err(|what| no_tokenizer(&what))?
        .map_err(|error| no_tokenizer(&error))?;
    tokenizer.with_truncation(None).map_err(|error| no_tokenizer(&error))?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

impl Tokenize for TokenizerJson {
    fn count(&mut self, text: &str) -> Result<u32, String> {
        Ok(u32::try_from(self.ids(text)?.len()).unwrap_or(u32::MAX))
    }
}

/// The tokenizer in `path`, or four characters a token where there is none.
pub(crate) fn given(path: Option<&Path>) -> Result<Box<dyn Tokenize>, TraceError> {
    Ok(match path {
        Some(path) => Box::new(TokenizerJson::open(path)?),
        None => Box::new(super::sharegpt::FOUR_CHARS_A_TOKEN),
    })
}
