//! `tenantry reproduce --sensitivity`: what the papers' main results become where an assumption of a card is a fifth
//! smaller and a fifth larger.
//!
//! The card is made anew with the other value and what the paper leads with is simulated again: see
//! `docs/sensitivity.md`.

mod leading;
mod show;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use rayon::prelude::*;
use serde::Serialize;
use tenantry_profiles::paper::{Knowledge, Paper};
use tenantry_reports::summary::rounded;

use super::lab::Lab;
use super::publish::Pages;
use crate::cli::{OutputArgs, PaperName, ReproduceArgs};
use crate::failure::Failure;
use crate::output::{Started, style};
use crate::{interrupt, progress};
use leading::{LEADING, Leading, MainResult};

/// What came of one card.
#[derive(Debug, Serialize)]
struct OfCard {
    card: &'static str,
    paper: String,
    results: Vec<AsIs>,
    assumptions: Vec<Assumption>,
}

/// A main result with all assumptions as they are.
#[derive(Debug, Serialize)]
struct AsIs {
    #[serde(flatten)]
    result: MainResult,
    ours: f64,
}

/// An assumption, and what its change does.
#[derive(Debug, Serialize)]
struct Assumption {
    number: String,
    kind: Knowledge,
    value: f64,
    unit: String,
    less: Varied,
    more: Varied,
}

/// What became of the main results with another value.
#[derive(Debug, Serialize)]
struct Varied {
    value: f64,
    /// Whether rounding leaves the value what it was.
    rounded_away: bool,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    /// In the results' order; changes are relative.
    Simulated { results: Vec<f64>, changes: Vec<f64> },
    /// Why there is no such card, or no run on it.
    Refused { refused: String },
}

#[derive(Serialize)]
struct Written<'a> {
    schema: u32,
    /// Cards are missing, since the user stopped it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    cards: &'a [OfCard],
}

pub fn run(args: &ReproduceArgs, started: Started, output: &OutputArgs) -> Result<(), Failure> {
    let asked = |leading: &&Leading| args.paper == PaperName::All || args.paper == leading.of;
    let cards = LEADING
        .iter()
        .filter(asked)
        .map(|leading| Ok((leading, Paper::load(leading.card)?)))
        .collect::<Result<Vec<(&Leading, Paper)>, Failure>>()?;
    let runs: usize = cards.iter().map(|(_, paper)| 1 + 2 * paper.assumptions().count()).sum();
    let bar = progress::bar(runs as u64, "varying", output.quiet);
    let flag = interrupt::flag();
    let results: Vec<Result<OfCard, Failure>> =
        cards.par_iter().map(|(leading, paper)| of_card(leading, paper, &flag, &bar)).collect();
    bar.finish_and_clear();
    let finished = finished(results)?;
    let interrupted = finished.len() < cards.len();
    publish(args, started, output, &finished, interrupted)?;
    match interrupted {
        false => Ok(()),
        true => Err(Failure::Interrupted(format!(
            "{} of {} cards are in {}",
            finished.len(),
            cards.len(),
            args.out.display()
        ))),
    }
}

/// The cards that were whole when the user stopped it, or all. Where there is none, nothing is written.
fn finished(results: Vec<Result<OfCard, Failure>>) -> Result<Vec<OfCard>, Failure> {
    let (mut finished, mut stopped) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(card) => finished.push(card),
            Err(Failure::Interrupted(why)) => stopped = Some(Failure::Interrupted(why)),
            Err(failure) => return Err(failure),
        }
    }
    match stopped.filter(|_| finished.is_empty()) {
        None => Ok(finished),
        Some(stopped) => Err(stopped),
    }
}

fn of_card(
    leading: &Leading,
    paper: &Paper,
    interrupt: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<OfCard, Failure> {
    let done = Arc::default();
    let simulate = |paper: &Paper| {
        let card = paper.card();
        card.validate()?;
        let results = (leading.simulate)(&Lab::with(Arc::clone(interrupt), card, &done), paper)?;
        bar.inc(1);
        Ok::<_, Failure>(results.into_iter().map(rounded).collect::<Vec<f64>>())
    };
    let as_is = simulate(paper)?;
    let assumptions: Vec<_> = paper.assumptions().collect();
    let assumptions = assumptions
        .into_par_iter()
        .map(|(name, number)| {
            let varied = |value: f64| {
                let rounded_away = value == number.value;
                let outcome = match simulate(&paper.with(name, value)) {
                    Ok(results) => Outcome::simulated(results, &as_is),
                    Err(Failure::BadInput(refused)) => Outcome::Refused { refused },
                    Err(failure) => return Err(failure),
                };
                Ok(Varied {
                    value: rounded(value),
                    rounded_away,
                    outcome,
                })
            };
            let [less, more] = number.varied();
            Ok(Assumption {
                number: name.to_owned(),
                kind: number.kind,
                value: number.value,
                unit: number.unit.clone(),
                less: varied(less)?,
                more: varied(more)?,
            })
        })
        .collect::<Result<Vec<Assumption>, Failure>>()?;
    let results = leading.results.iter().zip(as_is);
    Ok(OfCard {
        card: leading.card,
        paper: paper.paper().to_owned(),
        results: results.map(|(&result, ours)| AsIs { result, ours }).collect(),
        assumptions,
    })
}

impl Outcome {
    /// A card on which nothing is answered has no latency, and so no result.
    fn simulated(results: Vec<f64>, as_is: &[f64]) -> Outcome {
        if results.iter().any(|result| !result.is_finite()) {
            return Outcome::Refused {
                refused: "no request was answered".into(),
            };
        }
        let changes = results.iter().zip(as_is);
        Outcome::Simulated {
            changes: changes.map(|(after, before)| rounded(after / before - 1.0)).collect(),
            results,
        }
    }

    /// The change of one of the results; none where there is no result.
    fn change(&self, result: usize) -> Option<f64> {
        match self {
            Outcome::Simulated { changes, .. } => changes.get(result).copied(),
            Outcome::Refused { .. } => None,
        }
    }
}

fn publish(
    args: &ReproduceArgs,
    started: Started,
    output: &OutputArgs,
    cards: &[OfCard],
    interrupted: bool,
) -> Result<(), Failure> {
    let written = Written {
        schema: 1,
        interrupted,
        cards,
    };
    let pages = Pages {
        stem: "sensitivity",
        pages: cards.iter().map(show::markdown).collect(),
        missing: interrupted.then_some("cards"),
        started,
        cards: cards.iter().map(|card| card.card.to_owned()).collect(),
    };
    super::publish::publish(args, output, pages, &written, || {
        let texts: Vec<String> = cards.iter().map(|card| show::text(card, style())).collect();
        texts.join("\n\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_that_are_whole_are_kept_of_what_is_interrupted() {
        let card = |card| {
            Ok(OfCard {
                card,
                paper: String::new(),
                results: Vec::new(),
                assumptions: Vec::new(),
            })
        };
        let stopped = || Err(Failure::Interrupted("nothing was written".into()));
        let names = |results| {
            let finished = finished(results)?;
            Ok::<_, Failure>(finished.iter().map(|card| card.card).collect::<Vec<_>>())
        };
        assert_eq!(names(vec![card("a"), card("b")]).unwrap(), ["a", "b"]);
        assert_eq!(names(vec![stopped(), card("b"), stopped()]).unwrap(), ["b"]);
        assert!(matches!(names(vec![stopped()]), Err(Failure::Interrupted(_))));
        let broken = Err(Failure::Running("a law".into()));
        assert!(matches!(
            names(vec![card("a"), stopped(), broken]),
            Err(Failure::Running(_))
        ));
    }
}
