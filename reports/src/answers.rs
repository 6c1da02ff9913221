//! `answers.parquet`: what a real machine answered, and to what.
//!
//! Figures do not depend on it: it is for who wants to see that each tenant's own parameters answered, with a library
//! of another make beside it. A simulated run answers nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;
use tenantry_core::command::{Command, Commands, Finish, Verdict};
use tenantry_core::run::Observer;
use tenantry_traces::Time;

use crate::error::ReportError;
use crate::rows::{self, Rows, Value};
use crate::summary::RunLabels;
use crate::whole::Part;

/// The columns. What does not apply is null.
///
/// - `system`, `machine`, `repeat`, `seed`, `parameters`, `ticket`, `tenant`: which request of which run, as in
///   `requests.parquet`.
/// - `stage`: of a cascade, which of its models this is the answer of, from 0; there is a row for each that was asked.
/// - `item`: of models that came with texts of their own, which of these it read, from 0 in the order of their file.
/// - `input_ids`: the token ids that were read, by the first of a cascade's models.
/// - `class`: what a head found the likeliest, `number`: what a regression answers, `labels`: what it found the
///   likeliest for each token, `tokens`: the ids that a decoder made.
pub const SCHEMA: &str = "
message answer {
  required binary system (UTF8);
  required binary machine (UTF8);
  required int32 repeat (INTEGER(32,false));
  required int64 seed (INTEGER(64,false));
  required binary parameters (UTF8);
  required int64 ticket;
  required int32 tenant (INTEGER(32,false));
  optional int32 stage (INTEGER(32,false));
  optional int64 item;
  optional group input_ids (LIST) { repeated group list { required int64 element; } }
  optional int32 class (INTEGER(32,false));
  optional double number;
  optional group labels (LIST) { repeated group list { required int64 element; } }
  optional group tokens (LIST) { repeated group list { required int64 element; } }
}";

static TYPE: LazyLock<TypePtr> =
    LazyLock::new(|| Arc::new(parse_message_type(SCHEMA).expect("the schema is well formed")));

/// What was answered to a request, by one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// To which.
    pub ticket: u64,
    /// By which of a cascade's models.
    pub stage: Option<u16>,
    /// What it said.
    pub said: Said,
}

/// What a model says.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// The likeliest class.
    Class(u32),
    /// A regression's answer.
    Number(f64),
    /// The likeliest label of each token.
    Labels(Vec<i64>),
    /// Ids of tokens.
    Tokens(Vec<i64>),
}

/// What a model read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// Which of the texts that came with it.
    pub item: Option<u64>,
    /// Ids of the tokens, of any other text.
    pub ids: Option<Vec<i64>>,
}

/// Who was answered in a run. Watch the run with it.
#[derive(Debug, Default)]
pub struct Answered {
    by_ticket: BTreeMap<u64, Finish>,
}

impl Answered {
    /// A part of the file at `path`, whose folder must exist: the rows of a run, of requests that were answered, in the
    /// order of `answers`. `read` says what of a request was read by which of a cascade's models.
    ///
    /// # Errors
    /// When the folder is not writable, or a row could not be written.
    pub fn write(
        &self,
        path: &Path,
        of: &RunLabels,
        answers: impl IntoIterator<Item = Answer>,
        read: impl Fn(&Finish, Option<u16>) -> Read,
    ) -> Result<Part, ReportError> {
        let (labels, mut rows) = (rows::labels(of)?, Rows::new(path, &TYPE)?);
        for answer in answers {
            let Some(finish) = self.by_ticket.get(&answer.ticket) else {
                continue;
            };
            let Read { item, ids } = read(finish, answer.stage);
            let (mut class, mut number, mut tags, mut tokens) = (None, None, None, None);
            match answer.said {
                Said::Class(said) => class = Some(said),
                Said::Number(said) => number = Some(said),
                Said::Labels(said) => tags = Some(said),
                Said::Tokens(said) => tokens = Some(said),
            }
            let row = [
                Value::long(Some(answer.ticket)),
                Value::int(Some(finish.tenant)),
                Value::int(answer.stage.map(u32::from)),
                Value::long(item),
                Value::Longs(ids),
                Value::int(class),
                Value::Double(number),
                Value::Longs(tags),
                Value::Longs(tokens),
            ];
            rows.push(labels.clone().into_iter().chain(row));
        }
        rows.finish()
    }
}

impl Observer for Answered {
    fn command(&mut self, _: Time, command: &Command, _: &Commands) {
        if let Command::Finish(finish) = command
            && finish.verdict == Verdict::Served
        {
            self.by_ticket.insert(finish.ticket, *finish);
        }
    }
}

/// Writes `answers.parquet` from the parts of all runs, in their order.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub fn join(path: &Path, parts: &[Part]) -> Result<(), ReportError> {
    rows::join(path, &TYPE, parts)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use tenantry_core::command::Waits;
    use tenantry_traces::Duration;

    use super::*;
    use crate::testing;

    fn finish(ticket: u64, verdict: Verdict) -> Finish {
        Finish {
            request: None,
            ticket,
            tenant: 7,
            class: 0,
            arrival: Time::ZERO,
            input_tokens: 2,
            batch_requests: 1,
            output_tokens: 0,
            first_token: None,
            longest_gap: Duration::ZERO,
            verdict,
            waits: Waits::default(),
            returned: None,
        }
    }

    /// Lists of any length, none, and more rows than one group has; who was not answered has no row.
    #[test]
    fn what_was_answered_is_written_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.parquet");
        let mut answered = Answered::default();
        for ticket in 0..70_000 {
            let verdict = match ticket {
                5 => Verdict::Cancelled,
                _ => Verdict::Served,
            };
            let command = Command::Finish(finish(ticket, verdict));
            answered.command(Time::ZERO, &command, &Commands::default());
        }
        let answer = |ticket: u64| Answer {
            ticket,
            stage: (ticket == 1).then_some(3),
            said: match ticket % 3 {
                0 if ticket == 6 => Said::Number(0.25),
                0 => Said::Class(9),
                1 => Said::Labels(vec![ticket as i64; 2]),
                _ => Said::Tokens(Vec::new()),
            },
        };
        let read = |of: &Finish, _| Read {
            item: (of.ticket == 2).then_some(11),
            ids: (of.ticket != 2).then(|| (0..of.ticket as i64 % 4).collect()),
        };
        let labels = testing::labels("hmi", "cpu");
        let part = answered.write(&path, &labels, (0..70_000).map(answer), read).unwrap();
        let none = Answered::default().write(&path, &labels, [answer(1)], read).unwrap();
        join(&path, &[part, none]).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 69_999);
        assert_eq!(reader.num_row_groups(), 2);
        let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        for (row, cells) in [
            (
                0,
                "ticket: 0, tenant: 7, stage: null, item: null, input_ids: [], class: 9, number: null, labels: null, \
                 tokens: null",
            ),
            (
                1,
                "ticket: 1, tenant: 7, stage: 3, item: null, input_ids: [0], class: null, number: null, labels: [1, \
                 1], tokens: null",
            ),
            (
                2,
                "ticket: 2, tenant: 7, stage: null, item: 11, input_ids: null, class: null, number: null, labels: \
                 null, tokens: []",
            ),
            (
                5,
                "ticket: 6, tenant: 7, stage: null, item: null, input_ids: [0, 1], class: null, number: 0.25, labels: \
                 null, tokens: null",
            ),
        ] {
            assert!(rows[row].contains(cells), "{}", rows[row]);
        }
        assert!(rows[69_998].contains("ticket: 69999, "), "{}", rows[69_998]);
        assert!(rows[69_998].contains("input_ids: [0, 1, 2], "), "{}", rows[69_998]);
    }
}
