//! Which words a larger model need not read (Tabi, section 4.2).
//!
//! Models share nothing but the text: a word goes by the attention that its tokens were paid in one model, and the
//! other reads the text that is left.

use std::ops::Range;

use crate::error::CascadeError;

/// The attention that each token was paid, summed over layers and heads and over the tokens that paid it (Fig. 3).
///
/// `attention` is any number of matrices of `tokens` by `tokens`, row by row, a row for each token that pays; padding
/// is left out.
///
/// # Errors
/// [`CascadeError::Attention`] where the numbers are not whole matrices.
pub fn importance(attention: &[f32], tokens: usize) -> Result<Vec<f32>, CascadeError> {
    if tokens == 0 || !attention.len().is_multiple_of(tokens * tokens) {
        let got = attention.len();
        return Err(CascadeError::Attention { tokens, got });
    }
    let mut sums = vec![0.0_f64; tokens];
    for row in attention.chunks_exact(tokens) {
        for (sum, &paid) in sums.iter_mut().zip(row) {
            *sum += f64::from(paid);
        }
    }
    Ok(sums.into_iter().map(|sum| sum as f32).collect())
}

/// A token as its tokenizer placed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Attention that it was paid.
    pub importance: f32,
    /// Which of the input's texts it stands for, and which bytes; nothing for special tokens.
    pub place: Option<(usize, Range<usize>)>,
}

/// The bytes of the words that are kept, for each of `texts` (one, or a pair), by Eq. 5: a token counts where its
/// importance is above `alpha` times the mean, and a word stays where any of its tokens does.
///
/// Words are what lies between white space. Special tokens neither count into the mean nor go. A text of which nothing
/// would be left keeps its most important word, since a model must have something to read.
///
/// # Errors
/// Where `alpha` is negative or not finite, a token lies outside its text, or a word has no token.
pub fn keep_words(texts: &[&str], tokens: &[Token], alpha: f64) -> Result<Vec<Vec<Range<usize>>>, CascadeError> {
    if !(alpha >= 0.0 && alpha.is_finite()) {
        return Err(CascadeError::Range {
            what: "alpha",
            must: "at least 0",
            got: alpha,
        });
    }
    let placed = || tokens.iter().filter(|token| token.place.is_some());
    let sum: f64 = placed().map(|token| f64::from(token.importance)).sum();
    let threshold = alpha * sum / placed().count().max(1) as f64;

    let mut words: Vec<Vec<Word>> = texts.iter().map(|text| words(text)).collect();
    for (index, token) in tokens.iter().enumerate() {
        let Some((text, bytes)) = &token.place else { continue };
        let inside = texts.get(*text).is_some_and(|text| text.get(bytes.clone()).is_some());
        if !inside {
            return Err(CascadeError::Token {
                token: index,
                text: *text,
                start: bytes.start,
                end: bytes.end,
            });
        }
        let words = &mut words[*text];
        let first = words.partition_point(|word| word.bytes.end <= bytes.start);
        // A token may reach over white space, as those of SentencePiece do.
        for word in words[first..].iter_mut().take_while(|word| word.bytes.start < bytes.end) {
            word.most = word.most.max(Some(Total(token.importance)));
        }
    }
    texts
        .iter()
        .zip(words)
        .enumerate()
        .map(|(text, (source, words))| kept(text, source, words, threshold))
        .collect()
}

/// The text of the kept words, one space between them.
pub fn text_of(text: &str, kept: &[Range<usize>]) -> String {
    kept.iter().map(|bytes| &text[bytes.clone()]).collect::<Vec<_>>().join(" ")
}

/// Ordered, for the most of several.
#[derive(Clone, Copy, PartialEq)]
struct Total(f32);

impl Eq for Total {}

impl Ord for Total {
    fn cmp(&self, other: &Total) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Total) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Word {
    bytes: Range<usize>,
    /// Of its tokens' importance.
    most: Option<Total>,
}

fn words(text: &str) -> Vec<Word> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace()
        .map(|word| Word {
            bytes: start(word)..start(word) + word.len(),
            most: None,
        })
        .collect()
}

fn kept(text: usize, source: &str, words: Vec<Word>, threshold: f64) -> Result<Vec<Range<usize>>, CascadeError> {
    let mut kept = Vec::with_capacity(words.len());
    let mut first_of_most: Option<(Total, Range<usize>)> = None;
    for Word { bytes, most } in words {
        let Some(most) = most else {
            let word = source[bytes].to_owned();
            return Err(CascadeError::LostWord { text, word });
        };
        if first_of_most.as_ref().is_none_or(|(before, _)| most > *before) {
            first_of_most = Some((most, bytes.clone()));
        }
        if f64::from(most.0) > threshold {
            kept.push(bytes);
        }
    }
    if kept.is_empty() {
        kept.extend(first_of_most.map(|(_, bytes)| bytes));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token(importance: f32, bytes: Range<usize>) -> Token {
        Token {
            importance,
            place: Some((0, bytes)),
        }
    }

    fn special(importance: f32) -> Token {
        Token {
            importance,
            place: None,
        }
    }

    /// "this paper is beautifully written and enjoyable", in which "beautifully" is two tokens.
    const TEXT: &str = "this paper is beautifully written and enjoyable";

    fn tokens() -> Vec<Token> {
        vec![
            special(90.0),
            token(1.0, 0..4),
            token(2.0, 5..10),
            token(0.2, 11..13),
            token(3.0, 14..23),
            token(0.1, 23..25),
            token(1.0, 26..33),
            token(0.3, 34..37),
            token(3.0, 38..47),
            special(90.0),
        ]
    }

    #[test]
    fn a_word_goes_only_if_all_its_tokens_do() {
        // The mean without special tokens is 10.6 / 8 = 1.325; of "beautifully", "-ly" alone is below.
        let kept = keep_words(&[TEXT], &tokens(), 0.5).unwrap();
        assert_eq!(text_of(TEXT, &kept[0]), "this paper beautifully written enjoyable");
    }

    #[test]
    fn special_tokens_do_not_count() {
        let mut without = tokens();
        without.retain(|token| token.place.is_some());
        assert_eq!(keep_words(&[TEXT], &tokens(), 0.7), keep_words(&[TEXT], &without, 0.7));
    }

    #[test]
    fn nothing_is_pruned_at_zero_and_something_is_left_at_any_degree() {
        assert_eq!(keep_words(&[TEXT], &tokens(), 0.0).unwrap()[0].len(), 7);
        let kept = keep_words(&[TEXT], &tokens(), 100.0).unwrap();
        assert_eq!(text_of(TEXT, &kept[0]), "beautifully");
        let empty: Vec<Vec<Range<usize>>> = vec![vec![]];
        assert_eq!(keep_words(&[""], &[special(1.0)], 0.7), Ok(empty));
    }

    #[test]
    fn pairs_share_one_mean() {
        let second = Token {
            importance: 9.0,
            place: Some((1, 0..2)),
        };
        let kept = keep_words(&["a b", "no"], &[token(1.0, 0..1), token(2.0, 2..3), second], 0.4).unwrap();
        // The mean is 4, so that 1.6 is the threshold.
        assert_eq!(kept, vec![vec![2..3], vec![0..2]]);
    }

    #[test]
    fn tokens_may_reach_over_white_space() {
        let kept = keep_words(&["a bc"], &[token(1.0, 0..1), token(5.0, 1..4)], 1.0).unwrap();
        assert_eq!(kept, vec![vec![2..4]]);
    }

    #[test]
    fn a_lost_word_is_an_error() {
        let error = keep_words(&["a b"], &[token(1.0, 0..1)], 0.5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "text 0: every word must have a token, got none for `b`: the tokenizer loses it"
        );
        let error = keep_words(&["a"], &[token(1.0, 0..2)], 0.5).unwrap_err();
        assert_eq!(error.to_string(), "token 0: must lie in text 0, got bytes 0 to 2");
    }

    #[test]
    fn importance_is_what_was_received() {
        // Two heads of two tokens: columns 0.9 + 0.6 + 0.5 + 0.2 and the rest.
        let sums = importance(&[0.9, 0.1, 0.6, 0.4, 0.5, 0.5, 0.2, 0.8], 2).unwrap();
        assert!((sums[0] - 2.2).abs() < 1e-6 && (sums[1] - 1.8).abs() < 1e-6);
        let error = importance(&[0.5; 6], 2).unwrap_err().to_string();
        assert_eq!(error, "attention: must be matrices of 2 by 2, got 6 numbers");
    }

    proptest! {
        /// A larger degree keeps a subset of the words.
        #[test]
        fn more_is_pruned_at_a_higher_degree(
            weights in prop::collection::vec(0.0..1.0_f32, 1..12), a in 0.0..2.0_f64, b in 0.0..2.0_f64,
        ) {
            let text = vec!["w"; weights.len()].join(" ");
            let tokens: Vec<Token> =
                weights.iter().enumerate().map(|(i, &weight)| token(weight, 2 * i..2 * i + 1)).collect();
            let kept = |alpha| keep_words(&[&text], &tokens, alpha).unwrap().remove(0);
            let (few, many) = (kept(a.max(b)), kept(a.min(b)));
            prop_assert!(!few.is_empty());
            prop_assert!(few.iter().all(|word| many.contains(word)));
        }
    }
}
