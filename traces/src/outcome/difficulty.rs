//! How hard items are: how many of many models of one kind get each of them right.

use std::path::Path;

use super::Outcome;
use super::columns::Columns;
use crate::draw::{Draws, Purpose};
use crate::error::TraceError;
use crate::read::field::{shown, whole};
use crate::request::Ticket;

/// The column that counts, of 100 models.
const COLUMN: &str = "n_correct_of_100";

/// The share of models that get an item right, for each item of a test set, such as MNLI's under 100 fine-tuned
/// BERT-base models (McCoy, Min and Linzen, "BERTs of a feather do not generalize together", BlackboxNLP 2020).
#[derive(Clone, Debug, PartialEq)]
pub struct Difficulties {
    right_of_100: Vec<u8>,
}

impl Difficulties {
    /// Reads the column `n_correct_of_100` of a CSV.
    ///
    /// # Errors
    /// [`TraceError::NoColumn`] where there is no such column; [`TraceError::Lacks`] where there is more than one, or
    /// no item; [`TraceError::Line`] where a line is broken.
    pub fn read(path: &Path) -> Result<Difficulties, TraceError> {
        let table = Columns::open(path)?;
        let column = table.find(COLUMN)?;
        let right_of_100 = table.collect(|row, right_of_100| {
            right_of_100.push(row.parse(column, parse_count)?);
            Ok(())
        })?;
        Ok(Difficulties { right_of_100 })
    }

    /// The share of models that get `item` right.
    pub fn share_right(&self, item: usize) -> f64 {
        f64::from(self.right_of_100[item]) / 100.0
    }

    /// How many items there are.
    pub fn items(&self) -> usize {
        self.right_of_100.len()
    }
}

fn parse_count(field: &[u8]) -> Result<u8, String> {
    let count = whole(field).ok().and_then(|count| u8::try_from(count).ok());
    let count = count.filter(|&count| count <= 100);
    count.ok_or_else(|| format!("must be 0 to 100, got {}", shown(field)))
}

/// Who is right by ticket, for any number of models of one kind: a ticket is one item for all of them, and given the
/// item they err on their own.
#[derive(Clone, Debug)]
pub struct DifficultyDraws {
    draws: Draws,
    difficulties: Difficulties,
}

impl DifficultyDraws {
    /// Each ticket is any of the items, all alike.
    pub fn new(seed: u64, difficulties: Difficulties) -> DifficultyDraws {
        DifficultyDraws {
            draws: Draws::new(seed, Purpose::Outcome),
            difficulties,
        }
    }

    /// How hard the items are.
    pub fn difficulties(&self) -> &Difficulties {
        &self.difficulties
    }

    /// What the `model`th model makes of `ticket`. Nothing is known of its own confidence: it is the chance that a
    /// model of the kind is right about the item, and so as well calibrated as one can be that knows how hard items are
    /// and not what it will answer.
    pub fn of(&self, ticket: Ticket, model: u32) -> Outcome {
        let items = self.difficulties.items() as u64;
        let item = self.draws.about(ticket).below(items) as usize;
        let chance = self.difficulties.share_right(item);
        let mut stream = self.draws.part(u64::from(model)).about(ticket);
        Outcome {
            confidence: chance as f32,
            correct: stream.unit() < chance,
            wrong: None,
        }
    }
}
