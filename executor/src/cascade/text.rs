//! From text to tokens and back: the only thing that models of a cascade share is the text itself (Tabi, section 4.2).

use std::ops::Range;
use std::path::{Path, PathBuf};

use tenantry_cascade::pruning::text_of;
use tenantry_cascade::{CascadeError, Token, keep_words};
use tenantry_traces::read::{tokenizer, unpanicked};
use tokenizers::{EncodeInput, Encoding, Tokenizer, TruncationParams};

use crate::error::ExecutorError;

/// What is asked of a classifier: one text, or a pair of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// The text, or the first of a pair.
    pub first: String,
    /// The second of a pair.
    pub second: Option<String>,
}

impl Texts {
    /// One text.
    pub fn one(text: impl Into<String>) -> Texts {
        Texts {
            first: text.into(),
            second: None,
        }
    }

    fn parts(&self) -> Vec<&str> {
        std::iter::once(self.first.as_str()).chain(self.second.as_deref()).collect()
    }

    /// The texts without the words that received little attention (Tabi, Eq. 5), where `tokens` are theirs and
    /// `importance` is what [`Classifier::classify`](super::Classifier::classify) said of those. Words that the model
    /// did not read, since it ends before, stay.
    ///
    /// # Errors
    /// An `alpha` that is negative or not finite.
    ///
    /// # Panics
    /// If the tokens are another text's, or `importance` is not of the tokens.
    pub fn pruned(&self, tokens: &Tokens, importance: &[f32], alpha: f64) -> Result<Texts, CascadeError> {
        let placed = tokens.with_importance(importance);
        let parts = self.parts();
        let read: Vec<&str> = parts.iter().zip(&tokens.read).map(|(part, &end)| &part[..end]).collect();
        let kept = keep_words(&read, &placed, alpha)?;
        let mut texts = parts.iter().zip(&tokens.read).zip(&kept).map(|((part, &end), kept)| {
            let words = [text_of(part, kept)].into_iter().filter(|text| !text.is_empty());
            let unread = part[end..].split_whitespace().map(str::to_owned);
            words.chain(unread).collect::<Vec<_>>().join(" ")
        });
        Ok(Texts {
            first: texts.next().expect("there is a first text"),
            second: texts.next(),
        })
    }

    /// Words, as white space separates them.
    pub fn words(&self) -> usize {
        self.parts().iter().map(|part| part.split_whitespace().count()).sum()
    }
}

/// Texts as a model takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Ids, the special tokens of the model's template among them.
    pub ids: Vec<i64>,
    /// Which of two texts each token is of, as the model's template numbers them.
    pub segments: Vec<i64>,
    /// Which text each token stands for, and which of its bytes; none for special tokens.
    pub places: Vec<Option<(usize, Range<usize>)>>,
    /// How many bytes of each text the model reads: all, unless the text is longer than the model.
    pub read: Vec<usize>,
}

impl Tokens {
    fn with_importance(&self, importance: &[f32]) -> Vec<Token> {
        assert_eq!(importance.len(), self.ids.len(), "a number for each token");
        let token = |(&importance, place): (&f32, &Option<_>)| Token {
            importance,
            place: place.clone(),
        };
        importance.iter().zip(&self.places).map(token).collect()
    }
}

/// A model's `tokenizer.json`.
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    path: PathBuf,
    /// Tokens that the model reads.
    positions: usize,
}

impl std::fmt::Debug for TextTokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextTokenizer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TextTokenizer {
    /// Reads a `tokenizer.json` for a model of so many positions and ids. Longer texts are cut where the model ends;
    /// padding is left to the model.
    ///
    /// # Errors
    /// A file that cannot be read or is none, or one with ids that the model does not have.
    pub fn read(path: &Path, positions: u32, vocabulary: u32) -> Result<TextTokenizer, ExecutorError> {
        let mut tokenizer = tokenizer::open(path)?;
        let wrong = |field: &str, must: String, got: String| ExecutorError::checkpoint(path, field, must, got);
        if let Some(id) = tokenizer.get_vocab(true).into_values().max().filter(|&id| id >= vocabulary) {
            let must = format!("ids below {vocabulary}, the model's vocabulary");
            return Err(wrong("vocabulary", must, id.to_string()));
        }
        let truncation = TruncationParams {
            max_length: positions as usize,
            ..TruncationParams::default()
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(|error| wrong("template", "shorter than the model".into(), error.to_string()))?;
        Ok(TextTokenizer {
            tokenizer,
            path: path.to_path_buf(),
            positions: positions as usize,
        })
    }

    /// The tokens of `texts`.
    ///
    /// # Errors
    /// A text that the tokenizer does not take, or a word that it loses: no token stands for it, so that nobody could
    /// say what the model makes of it.
    pub fn encode(&self, texts: &Texts) -> Result<Tokens, ExecutorError> {
        let input = match &texts.second {
            Some(second) => EncodeInput::from((texts.first.as_str(), second.as_str())),
            None => EncodeInput::from(texts.first.as_str()),
        };
        let refused = |got: &dyn std::fmt::Display| {
            ExecutorError::checkpoint(&self.path, "text", "one that the tokenizer knows", got)
        };
        let encoding = unpanicked(|| self.tokenizer.encode(input, true))
            .map_err(|what| refused(&what))?
            .map_err(|error| refused(&error))?;
        let widened = |numbers: &[u32]| numbers.iter().map(|&number| number.into()).collect();
        let parts = texts.parts();
        let mut places = places(&encoding, &parts);
        // Where there are no special tokens the library stops with the word that fills the model, and nothing
        // overflows.
        let is_cut = !encoding.get_overflowing().is_empty() || encoding.len() == self.positions;
        let read = match is_cut {
            true => read(&places, &parts),
            false => parts.iter().map(|part| part.len()).collect(),
        };
        for (text, bytes) in places.iter_mut().flatten() {
            to_the_word_behind(bytes, &parts[*text][..read[*text]]);
        }
        let tokens = Tokens {
            ids: widened(encoding.get_ids()),
            segments: widened(encoding.get_type_ids()),
            read,
            places,
        };
        // At a degree of 0 every word stays, and one that no token stands for is told.
        texts
            .pruned(&tokens, &vec![1.0; tokens.ids.len()], 0.0)
            .map_err(|error| ExecutorError::Cascade {
                what: self.path.display().to_string(),
                error,
            })?;
        Ok(tokens)
    }
}

/// Where each token stands. A byte-level tokenizer's tokens may be parts of a character, and of the first after a space
/// that it put there itself the library has an offset within that character: such tokens stand for the whole of it.
fn places(encoding: &Encoding, texts: &[&str]) -> Vec<Option<(usize, Range<usize>)>> {
    let special = encoding.get_special_tokens_mask();
    let tokens = encoding.get_offsets().iter().zip(special).zip(encoding.get_sequence_ids());
    let place = |((&(from, to), &special), text): ((&(usize, usize), &u32), Option<usize>)| {
        let at = text.filter(|_| special == 0)?;
        let whole = |byte: &usize| texts[at].is_char_boundary(*byte);
        let start = (0..=from).rev().find(whole).unwrap_or(0);
        let end = (to..texts[at].len()).find(whole).unwrap_or(texts[at].len());
        Some((at, start..end))
    };
    tokens.map(place).collect()
}

/// Whether a token stands for a space alone, or for nothing of the text, as the first of a word that is in no
/// vocabulary with its space does: `Ġ` of byte-level tokenizers, `▁` of SentencePiece's.
fn is_blank(text: &str, bytes: &Range<usize>) -> bool {
    text[bytes.clone()].trim_start().is_empty()
}

/// A blank token is a part of the word behind it (Tabi, section 4.2: a word goes only with all its tokens), and stands
/// at that one's first character; of no word, at the end of what is `read`, where none is behind it.
fn to_the_word_behind(bytes: &mut Range<usize>, read: &str) {
    if bytes.end <= read.len() && !is_blank(read, bytes) {
        return;
    }
    let behind = read.get(bytes.end..).unwrap_or_default().trim_start();
    let start = read.len() - behind.len();
    let first = behind.chars().next().map_or(0, char::len_utf8);
    *bytes = start..start + first;
}

/// How far a model reads that does not read to the end: to the end of the last word of which it has a token that is not
/// blank.
fn read(places: &[Option<(usize, Range<usize>)>], texts: &[&str]) -> Vec<usize> {
    let end = |(index, text): (usize, &&str)| {
        let of_text = places.iter().flatten().filter(|(text, _)| *text == index);
        let last = of_text.filter(|(_, bytes)| !is_blank(text, bytes)).map(|(_, bytes)| bytes.end).max();
        last.map_or(0, |last| {
            last + text[last..].find(char::is_whitespace).unwrap_or(text.len() - last)
        })
    };
    texts.iter().enumerate().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tokenizer that was made by the library out of this text, in BERT's way.
    fn tokenizer(json: &str) -> TextTokenizer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, json).unwrap();
        TextTokenizer::read(&path, 8, 11).unwrap()
    }

    /// Splits `beautifully` in two, and knows little else.
    const WORD_PIECE: &str = r###"{
        "version": "1.0", "truncation": null, "padding": {"strategy": {"Fixed": 99}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [
            {"id": 1, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
            {"id": 2, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "this": 4, "paper": 5, "beautiful": 6, "##ly": 7, "written": 8, "is": 9, ".": 10}}
    }"###;

    /// The text that each token stands for.
    fn pieces<'a>(texts: &'a Texts, tokens: &Tokens) -> Vec<&'a str> {
        let parts = texts.parts();
        let piece = |place: &Option<(usize, Range<usize>)>| {
            place.as_ref().map_or("", |(text, bytes)| &parts[*text][bytes.clone()])
        };
        tokens.places.iter().map(piece).collect()
    }

    #[test]
    fn tokens_know_their_places() {
        let texts = Texts::one(" This  beautifully written.");
        let tokens = tokenizer(WORD_PIECE).encode(&texts).unwrap();
        assert_eq!(tokens.ids, [1, 4, 6, 7, 8, 10, 2]);
        assert_eq!(
            pieces(&texts, &tokens),
            ["", "This", "beautiful", "ly", "written", ".", ""]
        );
        // The mean is 2.6: the first word goes, and the last stays for its full stop.
        let pruned = texts.pruned(&tokens, &[9.0, 1.0, 3.0, 0.0, 0.0, 9.0, 9.0], 0.7).unwrap();
        assert_eq!(pruned, Texts::one("beautifully written."));
    }

    #[test]
    fn pairs_are_told_apart_and_long_texts_cut() {
        let pair = Texts {
            first: "this is".into(),
            second: Some("beautifully this".into()),
        };
        let tokens = tokenizer(WORD_PIECE).encode(&pair).unwrap();
        assert_eq!(tokens.ids, [1, 4, 9, 2, 6, 7, 4, 2]);
        assert_eq!(tokens.segments, [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(
            pieces(&pair, &tokens),
            ["", "this", "is", "", "beautiful", "ly", "this", ""]
        );

        let long = Texts::one("this is this is this is this is");
        let tokens = tokenizer(WORD_PIECE).encode(&long).unwrap();
        assert_eq!(
            (tokens.ids.len(), &tokens.read),
            (8, &vec!["this is this is this is".len()])
        );
        let pruned = long.pruned(&tokens, &[0.0, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 0.0], 0.5).unwrap();
        assert_eq!(pruned, Texts::one("is is is this is"), "what was not read stays");
    }

    #[test]
    fn a_lost_word_is_an_error() {
        // The normalizer strips control characters, and nothing is left.
        let error = tokenizer(WORD_PIECE).encode(&Texts::one("this \u{200d} paper")).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "tokenizer.json: text 0: every word must have a token, got none for `\u{200d}`: the tokenizer loses it"
            ),
            "{error}"
        );
    }

    /// Of bytes alone, with a space before the text or without, as GPT-2's and RoBERTa's are.
    fn of_bytes(add_prefix_space: bool, positions: u32) -> TextTokenizer {
        let bytes = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet();
        let level = serde_json::json!({
            "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": true
        });
        of_characters(bytes, &level, &level, positions)
    }

    /// Without merges: each of `characters` is a token.
    fn of_characters(
        characters: impl IntoIterator<Item = char>,
        before: &serde_json::Value,
        after: &serde_json::Value,
        positions: u32,
    ) -> TextTokenizer {
        let mut characters: Vec<char> = characters.into_iter().collect();
        characters.sort_unstable();
        let ids = characters.iter().zip(0_u32..);
        let vocab: serde_json::Map<String, serde_json::Value> =
            ids.map(|(character, id)| (character.to_string(), id.into())).collect();
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": before, "post_processor": after, "decoder": null,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, json.to_string()).unwrap();
        TextTokenizer::read(&path, positions, 256).unwrap()
    }

    /// A space that is a token, as before a word that no vocabulary has with it, goes and stays with that word.
    #[test]
    fn a_word_stays_for_the_space_before_it() {
        let metaspace = serde_json::json!({
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true
        });
        let sentence_piece = of_characters("▁abc".chars(), &metaspace, &serde_json::Value::Null, 64);
        let texts = Texts::one("a  b c ");
        for (tokenizer, spaces) in [(of_bytes(true, 64), "Ġ"), (sentence_piece, "▁")] {
            let tokens = tokenizer.encode(&texts).unwrap();
            let pieces = pieces(&texts, &tokens);
            assert!(!pieces.contains(&" "), "{spaces}: {pieces:?}");
            // The first token that stands at `b` is the space.
            let space = pieces.iter().position(|piece| *piece == "b").unwrap();
            assert_eq!(
                pieces.iter().filter(|piece| **piece == "b").count(),
                3,
                "{spaces}: {pieces:?}"
            );
            let mut importance = vec![1.0; pieces.len()];
            importance[space] = 9.0;
            assert_eq!(
                texts.pruned(&tokens, &importance, 1.0).unwrap(),
                Texts::one("b"),
                "{spaces}"
            );
        }
    }

    /// The space before the next word is the last that is read, and says nothing of that word.
    #[test]
    fn a_long_text_may_end_between_words() {
        let texts = Texts::one("ab cd ef gh");
        for (positions, read) in [(5, "ab cd"), (6, "ab cd"), (7, "ab cd ef")] {
            let tokens = of_bytes(false, positions).encode(&texts).unwrap();
            assert_eq!((tokens.ids.len(), tokens.read[0]), (positions as usize, read.len()));
            let mut importance = vec![0.0; positions as usize];
            importance[0] = 1.0;
            let unread = texts.first[read.len()..].to_owned();
            assert_eq!(
                texts.pruned(&tokens, &importance, 0.5).unwrap(),
                Texts::one(format!("ab{unread}"))
            );
        }
    }

    #[test]
    fn texts_that_begin_with_characters_of_several_bytes_have_their_places() {
        for add_prefix_space in [false, true] {
            let tokenizer = of_bytes(add_prefix_space, 64);
            for text in [
                "É was good",
                "écoute",
                "“was” good",
                "– was good",
                "日本 was good",
                "was 日本 good",
            ] {
                let texts = Texts::one(text);
                let tokens = tokenizer.encode(&texts).unwrap();
                for piece in pieces(&texts, &tokens) {
                    assert!(piece.chars().count() <= 2, "{text}: a byte stands for {piece:?}");
                }
                // All words but the first lose: what is kept may begin with such a character, and is read in turn.
                let first = text.split(' ').next().unwrap();
                let importance: Vec<f32> = tokens
                    .places
                    .iter()
                    .map(|place| f32::from(u8::from(place.as_ref().is_some_and(|(_, at)| at.start < first.len()))))
                    .collect();
                let pruned = texts.pruned(&tokens, &importance, 0.5).unwrap();
                assert_eq!(pruned, Texts::one(first), "{add_prefix_space}");
                tokenizer.encode(&pruned).unwrap();
            }
        }
    }

    #[test]
    fn a_tokenizer_of_another_model_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, WORD_PIECE).unwrap();
        let error = TextTokenizer::read(&path, 8, 10).unwrap_err().to_string();
        assert!(
            error.ends_with("vocabulary: must be ids below 10, the model's vocabulary, got 10"),
            "{error}"
        );
        std::fs::write(&path, "{}").unwrap();
        let error = TextTokenizer::read(&path, 8, 10).unwrap_err().to_string();
        assert!(
            error.contains("tokenizer.json: must be a tokenizer.json, got"),
            "{error}"
        );
    }
}
