//! A CSV of one's own, read through a mapping of its columns ([`Columns`]).
//!
//! The file is read twice: the first time for its earliest instant, since logs are often written in the order in which
//! answers were done, and for whether its service classes are numbers.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use csv::ByteRecord;

use super::columns::{Columns, Instants};
use super::field::{below_2_32, only_position, shown, whole};
use super::lines::{MAX_LINE_BYTES, open_bytes};
use super::names::Names;
use super::records::Record;
use crate::error::TraceError;
use crate::time::Time;

/// The rows of a file, in its order. Memory grows with the number of tenants and classes, not with the file.
pub(super) struct Mapped {
    table: Table,
    earliest_ns: i128,
    tenants: Names,
    /// `None` where classes are numbers.
    classes: Option<Names>,
}

impl Mapped {
    pub fn open(path: &Path, columns: &Columns) -> Result<Mapped, TraceError> {
        let mut table = Table::open(path, columns)?;
        let mut earliest_ns: Option<i128> = None;
        let mut are_numbers = true;
        while table.advance()? {
            let Ok(row) = table.row() else { continue };
            let least = [earliest_ns, row.arrival_ns].into_iter().flatten().min();
            earliest_ns = least;
            are_numbers &= row.class.is_none_or(|class| class_number(class).is_some());
        }
        Ok(Mapped {
            table: Table::open(path, columns)?,
            earliest_ns: earliest_ns.unwrap_or(0),
            tenants: Names::default(),
            classes: (!are_numbers).then(Names::default),
        })
    }

    /// An error at the row that was handed out last.
    pub fn error(&self, message: String) -> TraceError {
        self.table.error(message)
    }

    /// Of tenants, by number, so far.
    pub fn tenant_names(&self) -> &[String] {
        self.tenants.all()
    }

    /// Of service classes, by number, so far; none where they are numbers.
    pub fn class_names(&self) -> &[String] {
        self.classes.as_ref().map_or(&[], Names::all)
    }

    /// The next row; the inner error is one row's and may be skipped, the outer one the file's.
    pub fn advance(&mut self) -> Result<Option<Result<Record, TraceError>>, TraceError> {
        if !self.table.advance()? {
            return Ok(None);
        }
        Ok(Some(self.record().map_err(|message| self.table.error(message))))
    }

    fn record(&mut self) -> Result<Record, String> {
        let row = self.table.row()?;
        let since = |at_ns: i128| {
            let since_ns = at_ns.checked_sub(self.earliest_ns)?;
            u64::try_from(since_ns).ok().map(Time)
        };
        let far = "arrival: must be within 584 years of the earliest, got one farther off";
        let arrival = row.arrival_ns.map(|at_ns| since(at_ns).ok_or(far)).transpose()?;
        let class = match (row.class, &mut self.classes) {
            (None, _) => None,
            (Some(class), None) => class_number(class),
            (Some(class), Some(names)) => {
                let too_many = |_| "class: must be one of 2^16 names, got more".to_owned();
                Some(u16::try_from(names.number(class)).map_err(too_many)?)
            }
        };
        Ok(Record {
            arrival,
            tenant: row.tenant.map(|name| self.tenants.number(name)),
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            class,
            change: None,
        })
    }
}

fn class_number(class: &[u8]) -> Option<u16> {
    whole(class).ok().and_then(|number| u16::try_from(number).ok())
}

/// What a row says, before names have numbers and instants their zero.
struct Row<'a> {
    arrival_ns: Option<i128>,
    tenant: Option<&'a [u8]>,
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
    class: Option<&'a [u8]>,
}

/// The rows as they stand there.
struct Table {
    path: PathBuf,
    reader: csv::Reader<io::Take<Box<dyn BufRead + Send>>>,
    header: Vec<String>,
    arrival: Option<(usize, Instants)>,
    tenant: Option<usize>,
    input_tokens: Option<usize>,
    output_tokens: Option<usize>,
    class: Option<usize>,
    row: ByteRecord,
    /// Where the current row begins, 1-based.
    line: u64,
}

impl Table {
    fn open(path: &Path, columns: &Columns) -> Result<Table, TraceError> {
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            // A row that ends in both of CRLF is then whole when its line is counted.
            .terminator(csv::Terminator::Any(b'\n'))
            .from_reader(open_bytes(path)?.take(0));
        let mut table = Table {
            path: path.to_path_buf(),
            reader,
            header: Vec::new(),
            arrival: None,
            tenant: None,
            input_tokens: None,
            output_tokens: None,
            class: None,
            row: ByteRecord::new(),
            line: 0,
        };
        if !table.advance()? {
            return Err(TraceError::file(path, "must have a first line, got an empty file"));
        }
        let header = (0..table.row.len()).map(|column| String::from_utf8_lossy(table.field(column)).into_owned());
        table.header = header.collect();
        let at = |name: &String| table.position(name);
        let arrival = columns.arrival.as_ref();
        let arrival = arrival.map(|(name, instants)| at(name).map(|at| (at, *instants)));
        let tenant = columns.tenant.as_ref().map(at).transpose()?;
        let input_tokens = columns.input_tokens.as_ref().map(at).transpose()?;
        let output_tokens = columns.output_tokens.as_ref().map(at).transpose()?;
        let class = columns.class.as_ref().map(at).transpose()?;
        Ok(Table {
            arrival: arrival.transpose()?,
            tenant,
            input_tokens,
            output_tokens,
            class,
            ..table
        })
    }

    /// Where the one column of that name is.
    fn position(&self, name: &str) -> Result<usize, TraceError> {
        only_position(&self.path, &self.header, name)?.ok_or_else(|| TraceError::NoColumn {
            path: self.path.clone(),
            name: name.to_owned(),
            columns: self.header.clone(),
        })
    }

    fn error(&self, message: String) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: self.line,
            message,
        }
    }

    /// Goes to the next row that is not empty. False at the end.
    fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            // A quote that is never closed must not fill the memory with the rest of the file.
            self.reader.get_mut().set_limit(MAX_LINE_BYTES as u64);
            let read = self.reader.read_byte_record(&mut self.row);
            self.line = self.first_line();
            let any = read.map_err(|error| match error.into_kind() {
                csv::ErrorKind::Io(source) => TraceError::unreadable(&self.path, source),
                other => TraceError::file(&self.path, format!("must be a CSV, got {other:?}")),
            })?;
            if self.reader.get_ref().limit() == 0 {
                let message = format!(
                    "must be a row below {} MiB; is a quote never closed?",
                    MAX_LINE_BYTES >> 20
                );
                return Err(self.error(message));
            }
            let is_empty = self.row.len() == 1 && self.row[0].trim_ascii().is_empty();
            if !any || !is_empty {
                return Ok(any);
            }
        }
    }

    /// Where the row begins that was read last: the reader's own answer is where it began to look, which may be at
    /// empty lines.
    fn first_line(&self) -> u64 {
        let looked_from = self.row.position().map_or(0, csv::Position::line);
        let within = memchr::memchr_iter(b'\n', self.row.as_slice()).count() as u64;
        let behind = self.reader.position().line();
        looked_from.max(behind.saturating_sub(within + 1))
    }

    /// A field of the current row, without what stands around it; the last one ends in half a CRLF.
    fn field(&self, column: usize) -> &[u8] {
        let field = self.row[column].trim_ascii();
        let inner = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        inner.unwrap_or(field)
    }

    /// What the current row says; in errors, the column and what it must be.
    fn row(&self) -> Result<Row<'_>, String> {
        let (must, got) = (self.header.len(), self.row.len());
        if must != got {
            return Err(format!("must have {must} columns as the first line has, got {got}"));
        }
        let named = |column: usize| move |message: String| format!("{}: {message}", self.header[column]);
        let arrival = self.arrival.map(|(column, instants)| instants.parse(self.field(column)).map_err(named(column)));
        let text = |column: usize| match self.field(column) {
            b"" => Err(named(column)("must have a value, got none".into())),
            field => Ok(field),
        };
        let tokens = |column: usize| tokens(self.field(column)).map_err(named(column));
        let input = self.input_tokens.map(|column| match tokens(column)? {
            0 => Err(named(column)("must be at least 1, got `0`".into())),
            tokens => Ok(tokens),
        });
        let output_tokens = match self.output_tokens {
            None => Some(0),
            Some(column) if self.field(column).is_empty() => None,
            Some(column) => Some(tokens(column)?),
        };
        Ok(Row {
            arrival_ns: arrival.transpose()?,
            tenant: self.tenant.map(text).transpose()?,
            input_tokens: input.transpose()?,
            output_tokens,
            class: self.class.map(text).transpose()?,
        })
    }
}

/// A whole number of tokens, also as `12.0`: pandas writes a column so in which some are missing.
fn tokens(field: &[u8]) -> Result<u32, String> {
    let point = field.iter().position(|&byte| byte == b'.');
    let digits = match point {
        Some(point) if point + 1 < field.len() && field[point + 1..].iter().all(|&byte| byte == b'0') => {
            &field[..point]
        }
        _ => field,
    };
    whole(digits)
        .map_err(|_| format!("must be a whole number, got {}", shown(field)))
        .and_then(below_2_32)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::read::Records;

    fn columns() -> Columns {
        Columns {
            arrival: Some(("time_ms".into(), Instants::Milliseconds)),
            tenant: Some("customer".into()),
            input_tokens: Some("prompt_len".into()),
            output_tokens: Some("completion_len".into()),
            class: None,
        }
    }

    fn open(text: &[u8], columns: &Columns, skip: bool) -> Result<Records, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Records::open_columns(file.path(), columns, skip)
    }

    fn record(arrival_ms: u64, tenant: u32, input: u32, output: Option<u32>) -> Record {
        Record {
            arrival: Some(Time(arrival_ms * 1_000_000)),
            tenant: Some(tenant),
            input_tokens: Some(input),
            output_tokens: output,
            class: None,
            change: None,
        }
    }

    #[test]
    fn a_table_is_read_however_it_is_written() {
        let plain = "id,time_ms,customer,prompt_len,completion_len\n\
                     7,1700000001000,\"Acme, Inc.\",12,3\n\
                     8,1700000000000,beta,5,\n\
                     9,1700000001500.5,\"Acme, Inc.\",12.0,0\n";
        let bom = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
        let blank = plain.replace("\n8", "\n\n8");
        for text in [plain, &bom, &blank, plain.trim_end()] {
            let mut records = open(text.as_bytes(), &columns(), false).unwrap();
            let got: Vec<Record> = records.by_ref().map(Result::unwrap).collect();
            let expected = [
                record(1000, 0, 12, Some(3)),
                record(0, 1, 5, None),
                Record {
                    arrival: Some(Time(1_500_500_000)),
                    ..record(0, 0, 12, Some(0))
                },
            ];
            assert_eq!(got, expected, "{text:?}");
            assert_eq!(records.tenant_names(), ["Acme, Inc.", "beta"]);
        }
    }

    #[test]
    fn what_is_not_mapped_is_not_said() {
        let only = Columns {
            input_tokens: Some("n".into()),
            ..Columns::default()
        };
        let got: Vec<Record> = open(b"n\n4\n", &only, false).unwrap().map(Result::unwrap).collect();
        let expected = Record {
            input_tokens: Some(4),
            output_tokens: Some(0),
            ..Record::default()
        };
        assert_eq!(got, [expected]);
    }

    #[test]
    fn classes_are_numbers_or_names() {
        let columns = Columns {
            class: Some("tier".into()),
            ..Columns::default()
        };
        let classes = |text: &str| {
            let mut records = open(text.as_bytes(), &columns, false).unwrap();
            let classes: Vec<Option<u16>> = records.by_ref().map(|record| record.unwrap().class).collect();
            (classes, records.class_names().to_vec())
        };
        assert_eq!(classes("tier\n2\n0\n"), (vec![Some(2), Some(0)], vec![]));
        let names = vec!["gold".to_owned(), "0".to_owned()];
        assert_eq!(
            classes("tier\ngold\n0\ngold\n"),
            (vec![Some(0), Some(1), Some(0)], names)
        );
    }

    #[test]
    fn broken_rows_have_a_line_and_can_be_skipped() {
        let header = "time_ms,customer,prompt_len,completion_len\n";
        for end in ["\n", "\r\n"] {
            for (row, message) in [
                ("x,a,1,1", "time_ms: must be a number (of ms), got `x`"),
                ("1,,1,1", "customer: must have a value, got none"),
                ("1,a,0,1", "prompt_len: must be at least 1, got `0`"),
                ("1,a,1.5,1", "prompt_len: must be a whole number, got `1.5`"),
                ("1,a,1,-1", "completion_len: must be a whole number, got `-1`"),
                ("1,a,1", "must have 4 columns as the first line has, got 3"),
            ] {
                let text = format!("{header}\n5,\"a\nb\",1,1\n\n\n{row}\n6,a,1,1\n").replace('\n', end);
                let error = open(text.as_bytes(), &columns(), false)
                    .unwrap()
                    .find_map(Result::err)
                    .expect("the row is broken")
                    .to_string();
                assert!(error.ends_with(&format!(":7: {message}")), "{error}");
                let mut records = open(text.as_bytes(), &columns(), true).unwrap();
                let arrivals: Vec<u64> = records.by_ref().map(|r| r.unwrap().arrival.unwrap().0).collect();
                assert_eq!((arrivals, records.skipped()), (vec![0, 1_000_000], 1));
            }
        }
    }

    #[test]
    fn a_column_that_is_not_there_is_an_error_with_those_that_are() {
        let error = |header: &str| open(header.as_bytes(), &columns(), false).err().unwrap().to_string();
        let missing = error("time_ms,client,prompt_len,completion_len\n");
        let expected = "must have a column `customer`, got `time_ms`, `client`, `prompt_len`, `completion_len`";
        assert!(missing.ends_with(expected), "{missing}");
        let twice = error("time_ms,customer,customer,prompt_len,completion_len\n");
        assert!(twice.ends_with("must have one column `customer`, got 2"), "{twice}");
        assert!(error("").ends_with("must have a first line, got an empty file"));
    }

    #[test]
    fn instants_too_far_apart_are_an_error() {
        let only = Columns {
            arrival: Some(("t".into(), Instants::Nanoseconds)),
            ..Columns::default()
        };
        let most = i128::MAX.to_string();
        let text = format!("t\n-{most}\n{most}\n");
        let mut records = open(text.as_bytes(), &only, false).unwrap();
        assert_eq!(records.next().unwrap().unwrap().arrival, Some(Time(0)));
        let error = records.next().unwrap().unwrap_err().to_string();
        assert!(error.contains(":3: arrival: must be within 584 years"), "{error}");
    }

    proptest::proptest! {
        /// Whatever stands there, rows are read or refused.
        #[test]
        fn no_bytes_are_too_strange(
            rows in proptest::collection::vec("[0-9e.,;\"'\r\nZT:+\\-xé]{0,40}", 0..20),
            instants in proptest::sample::select(&Instants::ALL[..]),
        ) {
            let columns = Columns {
                arrival: Some(("time_ms".into(), instants)),
                class: Some("customer".into()),
                ..columns()
            };
            let text = format!("time_ms,customer,prompt_len,completion_len\n{}", rows.join("\n"));
            let all = open(text.as_bytes(), &columns, true).unwrap();
            proptest::prop_assert!(all.into_iter().all(|record| record.is_ok()));
        }
    }

    #[test]
    fn an_open_quote_does_not_fill_the_memory() {
        let mut text = b"time_ms,customer,prompt_len,completion_len\n1,\"a,1,1\n".to_vec();
        text.resize(2 * MAX_LINE_BYTES, b'x');
        let error = open(&text, &columns(), true).err().unwrap().to_string();
        assert!(error.contains(":2: must be a row below 16 MiB"), "{error}");
    }
}
