//! A small language task with easy and hard items, so that cascades can be tried where no trained model is at hand.
//!
//! Reviews of places to stay and to eat, in clauses such as "the soup was delicious"; the question is whether the
//! author would come back. In easy reviews all clauses say the same. In hard ones words alone do not tell: a clause may
//! be negated ("was hardly delicious"), and where there is a "but", what comes after it decides. Some reviewers err.
//! All is drawn from the seed alone.

use std::collections::BTreeSet;

use tenantry_traces::draw::{Draws, Purpose, Stream};
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::bert::BertProcessing;
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder};

use super::config::Answer;
use super::items::{Item, Label};
use super::text::Texts;
use crate::error::ExecutorError;

const SUBJECTS: [&str; 32] = [
    "soup",
    "room",
    "waiter",
    "view",
    "breakfast",
    "bed",
    "bathroom",
    "garden",
    "staff",
    "service",
    "bread",
    "fish",
    "dessert",
    "terrace",
    "lobby",
    "pool",
    "coffee",
    "wine",
    "pasta",
    "salad",
    "music",
    "parking",
    "reception",
    "towels",
    "pillow",
    "kitchen",
    "steak",
    "curry",
    "owner",
    "menu",
    "location",
    "wifi",
];
const GOOD: [&str; 28] = [
    "delicious",
    "lovely",
    "wonderful",
    "friendly",
    "clean",
    "superb",
    "charming",
    "excellent",
    "fresh",
    "cosy",
    "delightful",
    "generous",
    "fantastic",
    "perfect",
    "pleasant",
    "tasty",
    "brilliant",
    "splendid",
    "attentive",
    "comfortable",
    "spotless",
    "warm",
    "amazing",
    "great",
    "nice",
    "welcoming",
    "quiet",
    "memorable",
];
const BAD: [&str; 28] = [
    "awful",
    "terrible",
    "dirty",
    "rude",
    "stale",
    "bland",
    "horrible",
    "noisy",
    "cold",
    "disgusting",
    "shabby",
    "overpriced",
    "dreadful",
    "broken",
    "smelly",
    "slow",
    "disappointing",
    "mediocre",
    "greasy",
    "cramped",
    "filthy",
    "soggy",
    "unfriendly",
    "poor",
    "bad",
    "nasty",
    "burnt",
    "gloomy",
];
const NEGATIONS: [&str; 3] = ["not", "hardly", "never"];
const DEGREES: [&str; 6] = ["really", "rather", "quite", "very", "truly", "simply"];
const CONTRASTS: [&str; 3] = ["but", "yet", "however"];
const OPENINGS: [&str; 8] = [
    "honestly ,",
    "to be fair ,",
    "as far as i can tell ,",
    "in the end ,",
    "well ,",
    "on the whole ,",
    "during our stay",
    "when we came in april",
];
const ENDINGS: [&str; 8] = [
    "for all of us",
    "this time",
    "on that rainy evening",
    "in my opinion",
    "as always in this town",
    "to say the least",
    "if you ask me",
    "for the two of us",
];

/// One reviewer in so many writes the opposite of the truth on the form.
const ERRING: u64 = 50;
/// Hard reviews of a hundred.
const HARD_OF_HUNDRED: u64 = 40;

/// How a review is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difficulty {
    /// All clauses say the same, in so many words.
    Easy,
    /// Negations or a contrast.
    Hard,
}

/// An item and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// The item.
    pub item: Item,
    /// How it is written.
    pub difficulty: Difficulty,
}

/// All reviews under a seed.
#[derive(Clone, Copy, Debug)]
pub struct Reviews {
    draws: Draws,
}

impl Reviews {
    /// Those of `seed`.
    pub fn new(seed: u64) -> Reviews {
        Reviews {
            draws: Draws::new(seed, Purpose::Tokens),
        }
    }

    /// What the task's heads answer.
    pub fn answer() -> Answer {
        Answer::Class(vec!["negative".into(), "positive".into()])
    }

    /// The `number`th review.
    pub fn review(&self, number: u64) -> Review {
        let mut stream = self.draws.about(number);
        let positive = stream.below(2) == 1;
        let hard = stream.below(100) < HARD_OF_HUNDRED;
        let mut text = match stream.below(2) {
            0 => format!("{} ", of(&OPENINGS, &mut stream)),
            _ => String::new(),
        };
        text += &match (hard, stream.below(2)) {
            (false, _) => clauses(2 + stream.below(2), positive, 0, &mut stream),
            (true, 0) => {
                let before = clauses(1 + stream.below(2), !positive, 10, &mut stream);
                let after = clauses(1 + stream.below(2), positive, 10, &mut stream);
                format!("{before} , {} {after}", of(&CONTRASTS, &mut stream))
            }
            (true, _) => clauses(1 + stream.below(3), positive, 60, &mut stream),
        };
        text += match stream.below(3) {
            0 => " .",
            1 => " !",
            _ => "",
        };
        let errs = stream.below(ERRING) == 0;
        Review {
            item: Item {
                texts: Texts::one(text),
                label: Label::Class(usize::from(positive != errs)),
            },
            difficulty: if hard { Difficulty::Hard } else { Difficulty::Easy },
        }
    }

    /// The reviews of a range.
    pub fn range(&self, numbers: std::ops::Range<u64>) -> Vec<Review> {
        numbers.map(|number| self.review(number)).collect()
    }
}

fn of(words: &[&'static str], stream: &mut Stream) -> &'static str {
    words[stream.below(words.len() as u64) as usize]
}

/// So many clauses of one meaning, of which `negated` in a hundred say it by negating its opposite.
fn clauses(count: u64, positive: bool, negated: u64, stream: &mut Stream) -> String {
    let clause = |_| {
        let subject = of(&SUBJECTS, stream);
        let negated = stream.below(100) < negated;
        let adjectives = if positive != negated { &GOOD } else { &BAD };
        let before = match (negated, stream.below(3)) {
            (true, _) => of(&NEGATIONS, stream),
            (false, 0) => of(&DEGREES, stream),
            (false, _) => "",
        };
        let adjective = of(adjectives, stream);
        let ending = match stream.below(3) {
            0 => of(&ENDINGS, stream),
            _ => "",
        };
        let words = ["the", subject, "was", before, adjective, ending];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    (0..count).map(clause).collect::<Vec<_>>().join(" and ")
}

/// A tokenizer of few ids that splits words into pieces of bytes, in the way of GPT-2 and RoBERTa, learnt from `texts`.
///
/// # Errors
/// Where the library refuses the texts.
pub fn byte_pair_tokenizer(texts: &[&str], ids: usize) -> Result<Tokenizer, ExecutorError> {
    let specials = ["<s>", "<pad>", "</s>", "<unk>"];
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(ids)
        .show_progress(false)
        .special_tokens(specials.map(|token| AddedToken::from(token, true)).to_vec())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let processor = RobertaProcessing::new(("</s>".into(), 2), ("<s>".into(), 0));
    let mut tokenizer = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(None::<BertNormalizer>)
        .with_pre_tokenizer(Some(ByteLevel::default()))
        .with_post_processor(Some(processor))
        .with_decoder(Some(ByteLevel::default()))
        .build()
        .map_err(refused)?;
    let _ = tokenizer.train(&mut trainer, texts.iter()).map_err(refused)?;
    Ok(tokenizer.into())
}

/// A tokenizer that keeps the words of `texts` whole and splits others into letters, in the way of BERT.
///
/// # Errors
/// Where the library refuses what it is made of.
pub fn word_piece_tokenizer(texts: &[&str]) -> Result<Tokenizer, ExecutorError> {
    let words: BTreeSet<&str> = texts.iter().flat_map(|text| text.split_whitespace()).collect();
    let letters: BTreeSet<char> = words.iter().flat_map(|word| word.chars()).chain('a'..='z').collect();
    let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(str::to_owned);
    let begun = letters.iter().map(char::to_string);
    let continued = letters.iter().map(|letter| format!("##{letter}"));
    let longer = words.iter().filter(|word| word.chars().count() > 1).map(|word| (*word).to_owned());
    let tokens = specials.into_iter().chain(begun).chain(continued).chain(longer);
    let vocabulary: Vec<String> = tokens.collect();
    let vocabulary = WordPiece::read_bytes(vocabulary.join("\n").as_bytes()).map_err(refused)?;
    let model = WordPiece::builder().vocab(vocabulary).build().map_err(refused)?;
    let mut tokenizer = Tokenizer::new(model);
    let special = |token: &str| AddedToken::from(token, true);
    let _ = tokenizer
        .add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(special).to_vec())
        .map_err(refused)?;
    let _ = tokenizer
        .with_normalizer(Some(BertNormalizer::default()))
        .map_err(refused)?
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_post_processor(Some(BertProcessing::new(("[SEP]".into(), 3), ("[CLS]".into(), 2))));
    Ok(tokenizer)
}

fn refused(error: tokenizers::Error) -> ExecutorError {
    ExecutorError::input("tokenizer", "made of these texts", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_depend_on_seed_and_number_alone() {
        let reviews = Reviews::new(7);
        assert_eq!(reviews.range(0..50)[17], reviews.review(17));
        assert_ne!(reviews.review(17), Reviews::new(8).review(17));
        let positive = |review: &Review| review.item.label == Label::Class(1);
        let share = |of: &dyn Fn(&Review) -> bool| {
            reviews.range(0..4000).iter().filter(|review| of(review)).count() as f64 / 4000.0
        };
        assert!((share(&positive) - 0.5).abs() < 0.03);
        assert!((share(&|review| review.difficulty == Difficulty::Hard) - 0.4).abs() < 0.03);
    }

    #[test]
    fn tokenizers_are_the_same_each_time_and_differ() {
        let reviews = Reviews::new(7).range(0..300);
        let texts: Vec<&str> = reviews.iter().map(|review| review.item.texts.first.as_str()).collect();
        let pieces = byte_pair_tokenizer(&texts, 400).unwrap();
        let again = byte_pair_tokenizer(&texts, 400).unwrap();
        assert_eq!(pieces.to_string(false).unwrap(), again.to_string(false).unwrap());
        let words = word_piece_tokenizer(&texts).unwrap();
        assert_eq!(
            words.to_string(false).unwrap(),
            word_piece_tokenizer(&texts).unwrap().to_string(false).unwrap()
        );

        let text = "the reception was disappointing";
        let count = |tokenizer: &Tokenizer| tokenizer.encode(text, true).unwrap().len();
        assert_eq!(count(&words), 6);
        assert!(count(&pieces) > 6, "{}", count(&pieces));
    }
}
