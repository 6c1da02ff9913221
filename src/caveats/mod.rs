//! What a reader must know of figures before trusting them, in sentences: of what was loaded (`of_loaded`: cards,
//! machines, tables of prices; `tables`: of lower layers), of what was asked (`recordings`, `rates`, `pruning`,
//! `targets`), of what models answer (`answers`), of prices (`prices`, `extrapolated`), and of what came of it
//! (`outcomes`, `backlog`, `classes`, `ends`, `few`, `host`, `management`). Each command gathers those that it can
//! have.

mod answers;
mod backlog;
mod classes;
mod ends;
mod extrapolated;
mod few;
mod host;
mod management;
mod of_loaded;
mod outcomes;
mod prices;
mod pruning;
mod rates;
mod recordings;
mod tables;
mod targets;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;

use tenantry_reports::{Group, Run};

pub use answers::*;
pub use classes::planned_class_target_caveat;
pub use extrapolated::*;
pub use few::few_items_caveat;
pub use host::lookup_caveats;
pub use outcomes::*;
pub use prices::*;
pub use pruning::*;
pub use rates::*;
pub use recordings::*;
pub use tables::two_tables_caveats;
pub use targets::planned_for_another_target;

/// Sentences of several runs, each once. Of those that differ in nothing but their figures one stands for all, and says
/// how many there are: a sweep may have hundreds.
pub fn once<'a>(sentences: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let said = alike(sentences).into_iter().map(|Alike { first, others, .. }| match others {
        0 => first.clone(),
        1 => format!("{first} So it is in another run, with other figures."),
        others => format!("{first} So it is in {others} more runs, with other figures."),
    });
    said.collect()
}

/// Why runs cannot be, each reason once, as [`once`] has it, and how many runs it is of.
pub fn refusals<'a>(reasons: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let said = alike(reasons).into_iter().map(|Alike { first, all, others }| match others {
        0 => format!("({all}): {first}"),
        others => format!("({all}, {others} of them with other figures): {first}"),
    });
    said.collect()
}

/// Sentences that differ in nothing but their figures.
struct Alike<'a> {
    first: &'a String,
    all: usize,
    /// Those with other figures than the first.
    others: usize,
}

fn alike<'a>(sentences: impl IntoIterator<Item = &'a String>) -> Vec<Alike<'a>> {
    let mut alike: BTreeMap<String, Alike<'a>> = BTreeMap::new();
    for sentence in sentences {
        let of = alike.entry(without_figures(sentence)).or_insert(Alike {
            first: sentence,
            all: 0,
            others: 0,
        });
        of.all += 1;
        of.others += usize::from(sentence != of.first);
    }
    alike.into_values().collect()
}

/// Sentences in order, each once; whole numbers in them are in the order of their values, so that task 3 comes before
/// task 10.
pub fn in_order(mut sentences: Vec<String>) -> Vec<String> {
    sentences.sort_by_cached_key(|sentence| {
        let pieces = sentence.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
        let number = |piece: &[u8]| std::str::from_utf8(piece).ok()?.parse::<u64>().ok();
        let keys = pieces.map(|piece| (number(piece), piece.to_vec()));
        keys.collect::<Vec<_>>()
    });
    sentences.dedup();
    sentences
}

/// A sentence with the same sign for each figure. Names that have digits in them are none.
fn without_figures(sentence: &str) -> String {
    let is_figure = |word: &str| {
        let digits = word.trim_matches(|c| "(),;:.%".contains(c)).replace(',', "");
        digits.parse::<f64>().is_ok_and(f64::is_finite)
    };
    let words = sentence.split_whitespace().map(|word| if is_figure(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Systems and sweep points that are named in a sentence.
const NAMED: usize = 4;

/// The first of many names, and how many more there are.
fn first_named(names: &[String]) -> String {
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", names[..names.len().min(NAMED)].join(", "))
}

/// Whether all repeats are one and the same run, since no seed changes it.
fn is_one_run(group: &Group<'_>) -> bool {
    let of = |run: &Run| (run.summary.latency_ms, run.summary.requests, run.curves.end);
    group.runs.iter().all(|run| of(run) == of(group.runs[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sentences_are_in_the_order_of_their_values() {
        let of = |sentences: &[&str]| in_order(sentences.iter().map(|&said| said.to_owned()).collect());
        let said = of(&[
            "b: task 10: x",
            "b: task 3: y",
            "a: task 12: x",
            "b: task 3: x",
            "b: task 10: x",
        ]);
        assert_eq!(said, ["a: task 12: x", "b: task 3: x", "b: task 3: y", "b: task 10: x"]);
    }

    #[test]
    fn sentences_that_differ_in_figures_are_said_once() {
        let sentences = [
            "it left at 20.1 s (10 requests).",
            "it left at 20.1 s (10 requests).",
            "it left at 9.5 s (9 requests).",
            "arlo-2 left at 3 s.",
            "it left at 8 s (7 requests).",
            "arlo-3 left at 3 s.",
        ]
        .map(str::to_owned);
        let said = once(&sentences);
        let expected = [
            "arlo-2 left at 3 s.",
            "arlo-3 left at 3 s.",
            "it left at 20.1 s (10 requests). So it is in 2 more runs, with other figures.",
        ];
        assert_eq!(said, expected);
        assert_eq!(once(&sentences[..3]).len(), 1);
        assert!(once(&sentences[..3])[0].ends_with("So it is in another run, with other figures."));
        assert_eq!(once(&sentences[..2]), ["it left at 20.1 s (10 requests)."]);
        let said = refusals(&sentences[..4]);
        let expected = [
            "(1): arlo-2 left at 3 s.",
            "(3, 1 of them with other figures): it left at 20.1 s (10 requests).",
        ];
        assert_eq!(said, expected);
    }
}
