//! What the models of a cascade make of a request: draws from a table of real items, or from a fitted generator.
//!
//! A ticket is one item for all models, so that hard items are hard for all of them, as they are in truth. Nothing here
//! depends on which models a policy asks, nor in what order.

mod columns;
mod difficulty;
mod generated;
mod saved;
mod source;

use std::path::Path;

use columns::Columns;
pub use difficulty::{Difficulties, DifficultyDraws};
pub use generated::{DispatchCoins, GeneratedOutcomes};
pub use saved::{
    ProfiledModel, ProfiledModels, PruneStep, SavedCalibration, SavedDirichlet, SavedOutputs, SavedPruning,
};
pub use source::{
    AnswersSpec, DifficultySpec, DrawnSpec, GeneratedSpec, KnownAverage, OtherModel, OutcomeSource, OutcomesSpec,
    PrunedPoint, TableSpec,
};

use crate::draw::{Draws, Purpose};
use crate::error::TraceError;
use crate::read::field::shown;
use crate::request::Ticket;

/// What one model makes of one item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The model's own confidence in its answer, from 0 to 1.
    pub confidence: f32,
    /// Whether the answer is right: equal to the gold label, or where the table has none, to the reference model's.
    pub correct: bool,
}

/// The outcomes of some models on some items.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeTable {
    models: usize,
    /// Item by item, in each the models in their order.
    outcomes: Vec<Outcome>,
}

impl OutcomeTable {
    /// Reads the columns `MODEL_conf` and `MODEL_correct` (0 or 1) of each of `models` from a CSV. Where a table has answers
    /// but no gold labels, name a `reference` model: right is then what equals it, by the columns `MODEL_pred`.
    ///
    /// # Errors
    /// [`TraceError::NoColumn`] where a column is missing; [`TraceError::Lacks`] where it is there twice, or there are no items; [`TraceError::Line`] where a line is broken, an empty
    /// answer among them, which is none that could be right.
    pub fn read(path: &Path, models: &[&str], reference: Option<&str>) -> Result<OutcomeTable, TraceError> {
        let table = open(path, models)?;
        let answer = if reference.is_some() { "pred" } else { "correct" };
        let columns = models
            .iter()
            .map(|model| {
                Ok((
                    table.find(&format!("{model}_conf"))?,
                    table.find(&format!("{model}_{answer}"))?,
                ))
            })
            .collect::<Result<Vec<_>, TraceError>>()?;
        let reference = reference
            .map(|model| table.find(&format!("{model}_pred")))
            .transpose()?;
        let outcomes = table.collect(|row, outcomes| {
            for &(confidence, answer) in &columns {
                outcomes.push(Outcome {
                    confidence: row.parse(confidence, parse_share)?,
                    correct: match reference {
                        Some(reference) => row.parse(answer, parse_answer)? == row.parse(reference, parse_answer)?,
                        None => row.parse(answer, parse_flag)?,
                    },
                });
            }
            Ok(())
        })?;
        Ok(OutcomeTable {
            models: models.len(),
            outcomes,
        })
    }

    /// Reads the columns `MODEL_correct` (0 or 1) of each of `models` from a CSV without confidences. They are then an oracle's: 1 where the
    /// model is right and 0 where it is wrong, which bounds what any router can reach.
    ///
    /// # Errors
    /// As [`OutcomeTable::read`].
    pub fn read_correctness(path: &Path, models: &[&str]) -> Result<OutcomeTable, TraceError> {
        let table = open(path, models)?;
        let columns = models
            .iter()
            .map(|model| table.find(&format!("{model}_correct")))
            .collect::<Result<Vec<_>, TraceError>>()?;
        let outcomes = table.collect(|row, outcomes| {
            for &answer in &columns {
                let correct = row.parse(answer, parse_flag)?;
                let confidence = if correct { 1.0 } else { 0.0 };
                outcomes.push(Outcome { confidence, correct });
            }
            Ok(())
        })?;
        Ok(OutcomeTable {
            models: models.len(),
            outcomes,
        })
    }

    /// How many items there are.
    pub fn items(&self) -> usize {
        self.outcomes.len() / self.models
    }

    /// How sure a model is where it is least so.
    pub fn least_confidence(&self, model: usize) -> f32 {
        let of_model = self.outcomes.iter().skip(model).step_by(self.models);
        of_model.map(|outcome| outcome.confidence).fold(1.0, f32::min)
    }

    /// The outcomes of an item, in the order of the models.
    pub fn item(&self, item: usize) -> &[Outcome] {
        &self.outcomes[item * self.models..(item + 1) * self.models]
    }
}

fn open(path: &Path, models: &[&str]) -> Result<Columns, TraceError> {
    match models {
        [] => Err(TraceError::file(path, "must be asked for at least one model, got none")),
        _ => Columns::open(path),
    }
}

/// Which of some items a request is about: any, all alike.
#[derive(Clone, Copy, Debug)]
pub struct ItemDraws {
    draws: Draws,
    items: u64,
}

impl ItemDraws {
    /// Of `items`, under a seed.
    pub fn new(seed: u64, items: usize) -> ItemDraws {
        ItemDraws {
            draws: Draws::new(seed, Purpose::Outcome),
            items: items as u64,
        }
    }

    /// The item that `ticket` is about.
    #[inline]
    pub fn of(&self, ticket: Ticket) -> usize {
        self.draws.about(ticket).below(self.items) as usize
    }
}

/// Outcomes by ticket.
#[derive(Clone, Debug)]
pub struct Outcomes {
    draws: ItemDraws,
    table: OutcomeTable,
}

impl Outcomes {
    /// Each ticket is any of the table's items, all alike.
    pub fn new(seed: u64, table: OutcomeTable) -> Outcomes {
        Outcomes {
            draws: ItemDraws::new(seed, table.items()),
            table,
        }
    }

    /// The items.
    pub fn table(&self) -> &OutcomeTable {
        &self.table
    }

    /// What the models make of `ticket`, in their order.
    #[inline]
    pub fn of(&self, ticket: Ticket) -> &[Outcome] {
        self.table.item(self.draws.of(ticket))
    }
}

fn parse_share(field: &[u8]) -> Result<f32, String> {
    let share = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok());
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("must be a number from 0 to 1, got {}", shown(field)))
}

fn parse_answer(field: &[u8]) -> Result<&[u8], String> {
    match field.trim_ascii() {
        b"" => Err(format!("must be an answer, got {}", shown(field))),
        answer => Ok(answer),
    }
}

fn parse_flag(field: &[u8]) -> Result<bool, String> {
    match field {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(format!("must be 0 or 1, got {}", shown(field))),
    }
}
