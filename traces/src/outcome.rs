//! What the models of a cascade make of a request: draws from a table of real items.
//!
//! A ticket is one item for all models, so that hard items are hard for all of them, as they are in truth. Nothing here
//! depends on which models a policy asks, nor in what order.

use std::path::Path;

use crate::draw::{Draws, Purpose};
use crate::error::TraceError;
use crate::read::field::{fields, shown};
use crate::read::lines::Lines;
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
    /// [`TraceError::File`] where a column is missing or there are no items; [`TraceError::Line`] where a line is broken.
    pub fn read(path: &Path, models: &[&str], reference: Option<&str>) -> Result<OutcomeTable, TraceError> {
        let mut lines = Lines::open(path)?;
        if models.is_empty() || !lines.advance()? {
            return Err(TraceError::file(
                path,
                "must have a first line and be asked for at least one model, got neither",
            ));
        }
        let header: Vec<String> = fields(lines.line())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        let column = |name: String| {
            let found = header.iter().position(|other| *other == name);
            found.ok_or_else(|| {
                TraceError::file(
                    path,
                    format!(
                        "must have the column `{name}`, got {}",
                        shown(header.join(",").as_bytes())
                    ),
                )
            })
        };
        let answer = if reference.is_some() { "pred" } else { "correct" };
        let columns = models
            .iter()
            .map(|model| Ok((column(format!("{model}_conf"))?, column(format!("{model}_{answer}"))?)))
            .collect::<Result<Vec<_>, TraceError>>()?;
        let reference = reference.map(|model| column(format!("{model}_pred"))).transpose()?;

        let mut outcomes = Vec::new();
        while lines.advance()? {
            let row: Vec<&[u8]> = fields(lines.line()).collect();
            if row.len() != header.len() {
                let message = format!(
                    "must have {} columns as the first line has, got {}",
                    header.len(),
                    row.len()
                );
                return Err(lines.error(message));
            }
            for &(confidence, answer) in &columns {
                let named = |column: usize, message: String| lines.error(format!("{}: {message}", header[column]));
                outcomes.push(Outcome {
                    confidence: parse_share(row[confidence]).map_err(|message| named(confidence, message))?,
                    correct: match reference {
                        Some(reference) => row[answer] == row[reference],
                        None => parse_flag(row[answer]).map_err(|message| named(answer, message))?,
                    },
                });
            }
        }
        if outcomes.is_empty() {
            return Err(TraceError::file(path, "must have items, got only a first line"));
        }
        Ok(OutcomeTable {
            models: models.len(),
            outcomes,
        })
    }

    /// How many items there are.
    pub fn items(&self) -> usize {
        self.outcomes.len() / self.models
    }

    /// The outcomes of an item, in the order of the models.
    pub fn item(&self, item: usize) -> &[Outcome] {
        &self.outcomes[item * self.models..(item + 1) * self.models]
    }
}

/// Outcomes by ticket.
#[derive(Clone, Debug)]
pub struct Outcomes {
    draws: Draws,
    table: OutcomeTable,
}

impl Outcomes {
    /// Each ticket is any of the table's items, all alike.
    pub fn new(seed: u64, table: OutcomeTable) -> Outcomes {
        Outcomes {
            draws: Draws::new(seed, Purpose::Outcome),
            table,
        }
    }

    /// What the models make of `ticket`, in their order.
    #[inline]
    pub fn of(&self, ticket: Ticket) -> &[Outcome] {
        let items = self.table.items() as u64;
        self.table.item(self.draws.about(ticket).below(items) as usize)
    }
}

fn parse_share(field: &[u8]) -> Result<f32, String> {
    let share = std::str::from_utf8(field).ok().and_then(|text| text.parse().ok());
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("must be a number from 0 to 1, got {}", shown(field)))
}

fn parse_flag(field: &[u8]) -> Result<bool, String> {
    match field {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(format!("must be 0 or 1, got {}", shown(field))),
    }
}
