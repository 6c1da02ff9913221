//! A CSV of real items with what models made of them.

use std::num::NonZeroU16;
use std::path::Path;

use super::columns::{Columns, Row};
use super::{Outcome, TableSpec};
use crate::error::TraceError;
use crate::read::field::shown;

/// The outcomes of some models on some items.
#[derive(Clone, Debug, PartialEq)]
pub struct OutcomeTable {
    models: usize,
    /// Item by item, in each the models in their order.
    outcomes: Vec<Outcome>,
}

impl OutcomeTable {
    /// Reads the columns `MODEL_conf` and `MODEL_correct` (0 or 1) of each of `models` from a CSV, and what the model
    /// answered from `MODEL_pred` where there is such a column; an empty answer is one that nobody knows. Where a table
    /// has answers but no gold labels, name a `reference` model: right is then what equals it, by the columns
    /// `MODEL_pred`. Answers are the same if they are spelt alike.
    ///
    /// # Errors
    /// [`TraceError::NoColumn`] where a column is missing; [`TraceError::Lacks`] where it is there twice, or there are
    /// no items; [`TraceError::Line`] where a line is broken, an empty answer among them where answers are compared,
    /// which is none that could be right.
    pub fn read(path: &Path, models: &[&str], reference: Option<&str>) -> Result<OutcomeTable, TraceError> {
        let table = open(path, models)?;
        let columns = models
            .iter()
            .map(|model| {
                let answer = match reference {
                    Some(reference) => Answer::compared(&table, model, reference),
                    None => Answer::flagged(&table, model),
                };
                Ok((table.find(&format!("{model}_conf"))?, answer?))
            })
            .collect::<Result<Vec<_>, TraceError>>()?;
        let outcomes = table.collect(|row, outcomes| {
            let mut wrong = WrongAnswers::default();
            for (confidence, answer) in &columns {
                let confidence = row.parse(*confidence, parse_share)?;
                let (correct, answer) = answer.of(row)?;
                outcomes.push(Outcome {
                    confidence,
                    correct,
                    wrong: answer.filter(|_| !correct).and_then(|answer| wrong.number(answer)),
                });
            }
            Ok(())
        })?;
        Ok(OutcomeTable {
            models: models.len(),
            outcomes,
        })
    }

    /// Reads the columns `MODEL_correct` (0 or 1) of each of `models` from a CSV without confidences. They are then an
    /// oracle's: 1 where the model is right and 0 where it is wrong, which bounds what any router can reach.
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
                outcomes.push(Outcome {
                    confidence: if correct { 1.0 } else { 0.0 },
                    correct,
                    wrong: None,
                });
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

    /// Whether nobody says what a model answered to some item that it has wrong.
    pub fn has_unknown_answers(&self, model: usize) -> bool {
        let mut of_model = self.outcomes.iter().skip(model).step_by(self.models);
        of_model.any(|outcome| !outcome.correct && outcome.wrong.is_none())
    }

    /// How many different wrong answers models give to one item, at most; 0 where nobody says what they answered.
    pub fn wrong_answers(&self) -> u32 {
        let numbers = self.outcomes.iter().filter_map(|outcome| outcome.wrong);
        numbers.max().map_or(0, |most| most.get().into())
    }

    /// The outcomes of an item, in the order of the models.
    pub fn item(&self, item: usize) -> &[Outcome] {
        &self.outcomes[item * self.models..(item + 1) * self.models]
    }
}

impl TableSpec {
    /// The models, by name, of which the table says whether they are right and not what they answered, each with the
    /// column that would.
    ///
    /// # Errors
    /// As [`OutcomeTable::read`], of the first line.
    pub fn without_answers(&self) -> Result<Vec<(&str, String)>, TraceError> {
        if self.reference.is_some() {
            return Ok(Vec::new());
        }
        let table = Columns::open(&self.path)?;
        let mut without = Vec::new();
        for (model, column) in &self.models {
            let answers = answers_of(column);
            if table.position(&answers)?.is_none() {
                without.push((model.as_str(), answers));
            }
        }
        Ok(without)
    }
}

fn open(path: &Path, models: &[&str]) -> Result<Columns, TraceError> {
    match models {
        [] => Err(TraceError::file(path, "must be asked for at least one model, got none")),
        _ => Columns::open(path),
    }
}

/// What the column of a model's answers is called.
fn answers_of(model: &str) -> String {
    format!("{model}_pred")
}

/// The columns that say what a model answered, and whether that is right.
enum Answer {
    /// A flag says so, and the answer itself may be there too.
    Flagged { correct: usize, answer: Option<usize> },
    /// Right is what the reference answered.
    Compared { answer: usize, reference: usize },
}

impl Answer {
    fn flagged(table: &Columns, model: &str) -> Result<Answer, TraceError> {
        Ok(Answer::Flagged {
            correct: table.find(&format!("{model}_correct"))?,
            answer: table.position(&answers_of(model))?,
        })
    }

    fn compared(table: &Columns, model: &str, reference: &str) -> Result<Answer, TraceError> {
        Ok(Answer::Compared {
            answer: table.find(&answers_of(model))?,
            reference: table.find(&answers_of(reference))?,
        })
    }

    /// Whether it is right, and the answer.
    fn of<'a>(&self, row: &Row<'a>) -> Result<(bool, Option<&'a [u8]>), String> {
        match *self {
            Answer::Flagged { correct, answer } => {
                let answer = answer.map(|answer| row.parse(answer, |field| Ok(field.trim_ascii())));
                let answer = answer.transpose()?.filter(|answer| !answer.is_empty());
                Ok((row.parse(correct, parse_flag)?, answer))
            }
            Answer::Compared { answer, reference } => {
                let answer = row.parse(answer, parse_answer)?;
                Ok((answer == row.parse(reference, parse_answer)?, Some(answer)))
            }
        }
    }
}

/// The different wrong answers to an item. What they say is of no account, but only which models say the same.
#[derive(Default)]
struct WrongAnswers<'a>(Vec<&'a [u8]>);

impl<'a> WrongAnswers<'a> {
    /// The number of an answer: those that are new are numbered as they come.
    fn number(&mut self, answer: &'a [u8]) -> Option<NonZeroU16> {
        let place = self.0.iter().position(|known| *known == answer).unwrap_or_else(|| {
            self.0.push(answer);
            self.0.len() - 1
        });
        NonZeroU16::new(u16::try_from(place + 1).ok()?)
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
