//! Recorded requests, whatever format they are in.

use std::path::Path;

use super::columns::Columns;
use super::field::{Clock, below_2_32, fields, shown};
use super::format::{Format, Layout};
use super::invocations::Invocations;
use super::lines::Lines;
use super::mapped::Mapped;
use super::mooncake::MooncakeLine;
use super::parquet;
use super::sharegpt::{Conversations, Tokenize};
use crate::error::TraceError;
use crate::management::{Action, Change};
use crate::time::{Duration, Time};

/// A recorded request. What a format does not say is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Since the start of the recording.
    pub arrival: Option<Time>,
    /// Dense, from 0.
    pub tenant: Option<u32>,
    /// At least 1.
    pub input_tokens: Option<u32>,
    /// 0 for encoders; absent for one that was never answered.
    pub output_tokens: Option<u32>,
    /// Service class.
    pub class: Option<u16>,
    /// What is to change, where it is a management request and nothing else. [`Records`] leaves such rows out.
    pub change: Option<Change>,
}

/// The records of a file, one after another, in constant memory.
pub struct Records {
    format: Format,
    source: Source,
    skip_bad_lines: bool,
    skipped: u64,
    left_out: u64,
    /// Marks of who is absent at first among what was left out.
    absent: u64,
    /// Whether management requests are read, rather than those for answers.
    of_changes: bool,
}

enum Source {
    Csv(Table),
    Mooncake(MooncakeLines),
    ShareGpt(Box<Conversations>),
    Parquet(Box<parquet::Rows>),
    Invocations(Box<Invocations>),
    Mapped(Box<Mapped>),
}

impl Record {
    /// Whether it is a request that got no answer.
    pub fn is_unanswered(&self) -> bool {
        // Where there is no input there is no request that could be answered.
        self.input_tokens.is_some() && self.output_tokens.is_none()
    }
}

impl Records {
    /// Opens a file of any of the formats that hold requests. With `skip_bad_lines`, broken lines are left out and
    /// counted. ShareGPT's texts are counted as four characters a token.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::File`] where the file is in none of these formats.
    pub fn open(path: &Path, skip_bad_lines: bool) -> Result<Records, TraceError> {
        Records::open_with(path, skip_bad_lines, Box::new(super::sharegpt::FOUR_CHARS_A_TOKEN))
    }

    /// As [`Records::open`], with ShareGPT's texts counted by `tokenize`.
    ///
    /// # Errors
    /// As [`Records::open`].
    pub fn open_with(path: &Path, skip_bad_lines: bool, tokenize: Box<dyn Tokenize>) -> Result<Records, TraceError> {
        Records::open_as(path, Format::of(path)?, skip_bad_lines, tokenize)
    }

    /// As [`Records::open_with`], of a format that is given rather than found.
    ///
    /// # Errors
    /// As [`Records::open`]; [`TraceError::File`] also where the file does not begin as `format` does.
    pub fn open_as(
        path: &Path,
        format: Format,
        skip_bad_lines: bool,
        tokenize: Box<dyn Tokenize>,
    ) -> Result<Records, TraceError> {
        format.confirm(path)?;
        let source = match format {
            Format::ShareGpt => Source::ShareGpt(Box::new(Conversations::open(path, tokenize)?)),
            Format::TenantryParquet => Source::Parquet(Box::new(parquet::Rows::open(path)?)),
            Format::Invocations => Source::Invocations(Box::new(Invocations::open(path)?)),
            Format::Mooncake => Source::Mooncake(MooncakeLines {
                lines: Lines::open(path)?,
                line: MooncakeLine::default(),
            }),
            Format::Counts | Format::RateShape | Format::ActivitySparse | Format::ActivityWide => {
                let message = format!("must hold requests one by one, got {}", format.name());
                return Err(TraceError::file(path, message));
            }
            _ => Source::Csv(Table::open(
                path,
                format.layout().expect("the other formats are tables"),
            )?),
        };
        Ok(Records::of(format, source, skip_bad_lines))
    }

    /// Opens any CSV with a header, plain or gzip, whose columns are `columns`. It is read twice, the first time for
    /// its earliest instant, which becomes 0. Tenants are numbered from 0 in the order in which they are first named
    /// ([`Records::tenant_names`]).
    ///
    /// # Errors
    /// [`TraceError::Io`], [`TraceError::NoColumn`], and [`TraceError::File`] where a column that is named stands there
    /// twice.
    pub fn open_columns(path: &Path, columns: &Columns, skip_bad_lines: bool) -> Result<Records, TraceError> {
        let source = Source::Mapped(Box::new(Mapped::open(path, columns)?));
        Ok(Records::of(Format::Columns, source, skip_bad_lines))
    }

    /// The management requests of a trace of our own, and nothing else.
    ///
    /// # Errors
    /// As [`Records::open`], and [`TraceError::File`] where the file's format has none.
    pub(super) fn open_changes(path: &Path) -> Result<Records, TraceError> {
        let records = Records::open(path, false)?;
        match records.format {
            Format::Tenantry | Format::TenantryParquet => Ok(Records {
                of_changes: true,
                ..records
            }),
            other => {
                let message = format!("must be a trace of our own to hold changes, got {}", other.name());
                Err(TraceError::file(path, message))
            }
        }
    }

    fn of(format: Format, source: Source, skip_bad_lines: bool) -> Records {
        Records {
            format,
            source,
            skip_bad_lines,
            skipped: 0,
            left_out: 0,
            absent: 0,
            of_changes: false,
        }
    }

    /// What the file turned out to be.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many broken lines were left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many management requests were left out so far.
    pub fn management_requests(&self) -> u64 {
        self.left_out
    }

    /// How many marks were, of tenants and domains that are absent at first: nobody asks for these.
    pub fn absent_at_first(&self) -> u64 {
        self.absent
    }

    /// What tenants are called in a file of which columns are read ([`Records::open_columns`]), by number, as far as it
    /// was read; empty in other formats.
    pub fn tenant_names(&self) -> &[String] {
        match &self.source {
            Source::Mapped(mapped) => mapped.tenant_names(),
            _ => &[],
        }
    }

    /// As [`Records::tenant_names`], of service classes; empty also where these are numbers.
    pub fn class_names(&self) -> &[String] {
        match &self.source {
            Source::Mapped(mapped) => mapped.class_names(),
            _ => &[],
        }
    }

    /// Mooncake's prefix hashes of the last record, one per 512 tokens of input; empty in other formats.
    pub fn prefix_hashes(&self) -> &[u64] {
        match &self.source {
            Source::Mooncake(mooncake) => &mooncake.line.hash_ids,
            _ => &[],
        }
    }

    /// How long the invocation of the last record ran, in Azure Functions 2021.
    pub fn invocation_duration(&self) -> Option<Duration> {
        match &self.source {
            Source::Invocations(invocations) => Some(invocations.duration()),
            _ => None,
        }
    }

    /// An error at the last record, by its line or row.
    pub fn error(&self, message: String) -> TraceError {
        match &self.source {
            Source::Csv(table) => table.lines.error(message),
            Source::Mooncake(mooncake) => mooncake.lines.error(message),
            Source::ShareGpt(conversations) => conversations.error(message),
            Source::Parquet(rows) => rows.error(message),
            Source::Invocations(invocations) => invocations.lines.error(message),
            Source::Mapped(mapped) => mapped.error(message),
        }
    }

    /// The next record, and what is wrong with it.
    #[inline]
    fn advance(&mut self) -> Option<Result<Record, Broken>> {
        let nested = match &mut self.source {
            Source::Csv(table) => return table.advance(),
            Source::Mooncake(MooncakeLines { lines, line }) => lines.advance().map(|any| {
                any.then(|| {
                    *line = serde_json::from_slice(lines.line())
                        .map_err(|error| lines.error(super::mooncake::explain(&error)))?;
                    line.record().map_err(|message| lines.error(message))
                })
            }),
            Source::ShareGpt(conversations) => conversations.advance(),
            Source::Parquet(rows) => rows.advance(),
            Source::Mapped(mapped) => mapped.advance(),
            Source::Invocations(invocations) => invocations
                .lines
                .advance()
                .map(|any| any.then(|| invocations.parse().map_err(|message| invocations.lines.error(message)))),
        };
        let record = nested.map_err(Broken::File).transpose()?;
        Some(record.and_then(|record| record.map_err(Broken::Line)))
    }
}

/// What an error is about.
enum Broken {
    /// A record, which may be skipped.
    Line(TraceError),
    /// The rest of the file.
    File(TraceError),
}

impl Iterator for Records {
    type Item = Result<Record, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            return Some(match self.advance()? {
                Ok(record) if record.change.is_some() != self.of_changes => {
                    match record.change.map(|change| change.action) {
                        Some(Action::Absent) => self.absent += 1,
                        _ => self.left_out += 1,
                    }
                    continue;
                }
                Ok(record) => Ok(record),
                Err(Broken::Line(_)) if self.skip_bad_lines => {
                    self.skipped += 1;
                    continue;
                }
                Err(Broken::Line(error) | Broken::File(error)) => Err(error),
            });
        }
    }
}

struct MooncakeLines {
    lines: Lines,
    line: MooncakeLine,
}

/// A CSV with a row per request.
struct Table {
    lines: Lines,
    layout: Layout,
    columns: Vec<Option<Column>>,
    /// The first row's instant, where instants count from it.
    zero: Option<Time>,
}

#[derive(Clone, Copy)]
enum Column {
    Arrival(Clock),
    Tenant,
    Input,
    Output,
    Class,
    Change,
}

impl Table {
    fn open(path: &Path, layout: Layout) -> Result<Table, TraceError> {
        let mut lines = Lines::open(path)?;
        lines.advance()?;
        let role = |name: &[u8]| {
            let is = |column: Option<&str>| column.is_some_and(|column| column.as_bytes() == name);
            match layout.arrival {
                Some((column, clock)) if is(Some(column)) => Some(Column::Arrival(clock)),
                _ if is(layout.tenant) => Some(Column::Tenant),
                _ if is(Some(layout.input)) => Some(Column::Input),
                _ if is(layout.output) => Some(Column::Output),
                _ if is(layout.class) => Some(Column::Class),
                _ if is(layout.change) => Some(Column::Change),
                _ => None,
            }
        };
        let columns = fields(lines.line()).map(role).collect();
        Ok(Table {
            lines,
            layout,
            columns,
            zero: None,
        })
    }

    #[inline]
    fn advance(&mut self) -> Option<Result<Record, Broken>> {
        match self.lines.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(Broken::File(error))),
        }
        Some(match self.parse() {
            Ok(record) => Ok(record),
            Err(message) => Err(Broken::Line(self.lines.error(message))),
        })
    }

    /// The current line's record; in errors, the column and what it must be.
    #[inline]
    fn parse(&mut self) -> Result<Record, String> {
        let layout = &self.layout;
        // A format without outputs is an encoder's.
        let mut record = Record {
            output_tokens: layout.output.is_none().then_some(0),
            ..Record::default()
        };
        let mut change = None;
        let mut rest = fields(self.lines.line());
        let mut columns = self.columns.iter();
        while !rest.is_over() {
            let Some(column) = columns.next() else { break };
            let named = |message: String| format!("{}: {message}", layout.name(*column));
            let number = match column {
                None => {
                    rest.skip_one();
                    continue;
                }
                Some(Column::Change) => {
                    change = rest.next().filter(|name| !name.is_empty());
                    continue;
                }
                Some(Column::Arrival(clock @ (Clock::Seconds | Clock::Milliseconds | Clock::DateTime))) => {
                    let field = rest.next().unwrap_or_default();
                    record.arrival = Some(clock.parse(field).map_err(named)?);
                    continue;
                }
                Some(Column::Tenant) => rest.whole().map_err(|message| named(unnumbered(&message)))?,
                Some(_) => rest.whole().map_err(named)?,
            };
            match column {
                Some(Column::Arrival(_)) => record.arrival = Some(Time(number)),
                Some(Column::Tenant) => {
                    let tenant = below_2_32(number).map_err(|message| named(unnumbered(&message)));
                    record.tenant = Some(tenant?);
                }
                Some(Column::Input) => record.input_tokens = Some(below_2_32(number).map_err(named)?),
                Some(Column::Output) => {
                    let tokens = below_2_32(number).map_err(named)?;
                    record.output_tokens = (tokens > 0 || !layout.failures).then_some(tokens);
                }
                Some(Column::Class) => {
                    let below = |_| named(format!("must be below 2^16, got `{number}`"));
                    record.class = Some(u16::try_from(number).map_err(below)?);
                }
                Some(Column::Change) | None => {}
            }
        }
        if let Some(name) = change {
            let must = || {
                let names: Vec<&str> = Change::names().collect();
                format!(
                    "change: must be empty or one of {}, got {}",
                    names.join(", "),
                    shown(name)
                )
            };
            record.change = Some(Change::named(name, record.tenant.unwrap_or(0)).ok_or_else(must)?);
        } else if record.input_tokens == Some(0) {
            return Err(format!("{}: must be at least 1, got `0`", layout.input));
        }
        if !rest.is_over() || columns.len() > 0 {
            let (must, got) = (self.columns.len(), fields(self.lines.line()).count());
            return Err(format!("must have {must} columns as the first line has, got {got}"));
        }
        if let (true, Some(arrival)) = (layout.from_first, record.arrival) {
            let zero = *self.zero.get_or_insert(arrival);
            let since = arrival.0.checked_sub(zero.0);
            let name = || layout.arrival.map_or("arrival", |(name, _)| name);
            let before = || {
                let earlier = crate::time::Duration(zero.0 - arrival.0);
                format!(
                    "{}: must not be before the first line's, from which times count, got one {earlier} before it; \
                     sort the file's lines by it",
                    name()
                )
            };
            record.arrival = Some(Time(since.ok_or_else(before)?));
        }
        Ok(record)
    }
}

/// What is wrong with a tenant that has no number of ours, and what gives it one.
fn unnumbered(message: &str) -> String {
    format!("{message}; `tenantry trace convert --columns` numbers tenants of any name")
}

impl Layout {
    fn name(&self, column: Option<Column>) -> &'static str {
        let name = match column {
            Some(Column::Arrival(_)) => self.arrival.map(|(name, _)| name),
            Some(Column::Tenant) => self.tenant,
            Some(Column::Input) => Some(self.input),
            Some(Column::Output) => self.output,
            Some(Column::Class) => self.class,
            Some(Column::Change) => self.change,
            None => None,
        };
        name.unwrap_or_default()
    }
}
