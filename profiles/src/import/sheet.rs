//! A comma-separated file of someone else's, plain or gzipped, read by column name.

use std::borrow::Cow;
use std::fs;
use std::io::Read;
use std::path::Path;

use csv::StringRecord;
use flate2::read::MultiGzDecoder;

use crate::error::{Access, Invalid, ProfileError};
use crate::names::near_miss;
use crate::tables::check_repeated;

/// All lines of a file.
pub(super) struct Sheet {
    /// Of the files given.
    number: usize,
    /// As errors call it.
    file: String,
    header: StringRecord,
    /// Line number and cells.
    lines: Vec<(u64, StringRecord)>,
}

/// One line of a [`Sheet`].
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    sheet: &'a Sheet,
    number: u64,
    cells: &'a StringRecord,
}

/// Where a figure was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The sheet's number among the files given.
    pub sheet: usize,
    pub line: u64,
}

/// Sums of two counts are counts that a card's tables can hold.
const COUNT_MAX: u64 = i32::MAX as u64;

const SIZE_MAX: u64 = 1 << 50;

/// How gzip begins, whatever its file is called.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Of milliseconds, a quarter of an hour, and of microseconds a second: no kernel takes as long, nor does any model
/// that is timed here.
const TIME_MAX: f64 = 1e6;

impl Sheet {
    pub fn open(number: usize, path: &Path) -> Result<Sheet, ProfileError> {
        let file = path.display().to_string();
        let io = |source| ProfileError::Io {
            path: file.clone(),
            access: Access::Read,
            source,
        };
        let bytes = fs::read(path).map_err(io)?;
        let mut text = String::new();
        if bytes.starts_with(&GZIP_MAGIC) {
            MultiGzDecoder::new(bytes.as_slice()).read_to_string(&mut text).map_err(io)?;
        } else {
            text = String::from_utf8(bytes).map_err(|error| io(std::io::Error::other(error)))?;
        }
        let sheet = Sheet::read(&file, text.trim_start_matches('\u{feff}'))?;
        Ok(Sheet { number, ..sheet })
    }

    pub fn read(file: &str, text: &str) -> Result<Sheet, Invalid> {
        let unreadable = |error: csv::Error| {
            let line = error.position().map_or(1, |position| position.line());
            Invalid::new(file, "line", "comma-separated values", error.to_string()).in_line(line)
        };
        let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
        let header = reader.headers().map_err(unreadable)?.clone();
        check_repeated(file, &header).map_err(|invalid| invalid.in_line(1))?;
        let mut lines = Vec::new();
        for record in reader.records() {
            let record = record.map_err(unreadable)?;
            lines.push((record.position().map_or(1, |position| position.line()), record));
        }
        let sheet = Sheet {
            number: 0,
            file: file.to_string(),
            header,
            lines,
        };
        // A profiler that was stopped leaves a header, of which nothing can be made.
        match sheet.lines.is_empty() {
            true => Err(sheet.invalid("lines", "at least one below the header", "none")),
            false => Ok(sheet),
        }
    }

    /// As errors call it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Without the folders that it is in.
    pub fn name(&self) -> Cow<'_, str> {
        let name = Path::new(&self.file).file_name();
        name.unwrap_or_default().to_string_lossy()
    }

    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.header.iter()
    }

    pub fn has(&self, column: &str) -> bool {
        self.columns().any(|name| name == column)
    }

    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|(number, cells)| Line {
            sheet: self,
            number: *number,
            cells,
        })
    }

    /// Refuses a second file of a kind of which a card has one: two of them are two cards'.
    pub fn once(&self, read_before: bool) -> Result<(), Invalid> {
        match read_before {
            false => Ok(()),
            true => Err(self.invalid(
                "header",
                "of another kind than the files before it",
                "a second one of a kind",
            )),
        }
    }

    /// A complaint about the file as a whole.
    pub fn invalid(&self, field: &str, must: impl Into<String>, got: impl Into<String>) -> Invalid {
        Invalid::new(&self.file, field, must, got)
    }
}

impl<'a> Line<'a> {
    pub fn place(self) -> Place {
        Place {
            sheet: self.sheet.number,
            line: self.number,
        }
    }

    pub fn text(self, column: &str) -> Result<&'a str, Invalid> {
        let place = self.sheet.header.iter().position(|name| name == column);
        place.map(|place| self.cells[place].trim()).ok_or_else(|| {
            let suggested = near_miss(column, self.sheet.header.iter());
            let invalid = Invalid::new(&self.sheet.file, column, "a column", "no such column");
            invalid.suggest(suggested).in_line(1)
        })
    }

    /// A count, such as of cached tokens.
    pub fn whole(self, column: &str) -> Result<u64, Invalid> {
        self.between(column, 0, COUNT_MAX)
    }

    /// A count of what there must be some of, such as sequences of a batch.
    pub fn positive(self, column: &str) -> Result<u64, Invalid> {
        self.between(column, 1, COUNT_MAX)
    }

    /// A message's size, in whatever unit the column has.
    pub fn size(self, column: &str) -> Result<u64, Invalid> {
        self.between(column, 1, SIZE_MAX)
    }

    fn between(self, column: &str, least: u64, most: u64) -> Result<u64, Invalid> {
        let text = self.text(column)?;
        let whole = text.parse().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            (number.fract() == 0.0 && (0.0..1e15).contains(&number)).then_some(number as u64)
        });
        whole
            .filter(|whole| (least..=most).contains(whole))
            .ok_or_else(|| self.invalid(column, &format!("a whole number from {least} to {most}")))
    }

    /// Refuses what a row above said as well: `said_before` is what it said.
    pub fn once<T>(self, column: &str, said_before: Option<T>) -> Result<(), Invalid> {
        match said_before {
            None => Ok(()),
            Some(_) => Err(self.invalid(column, "of a shape that no row above has")),
        }
    }

    /// A time, in whatever unit the column has.
    pub fn time(self, column: &str) -> Result<f64, Invalid> {
        self.number(column, |time| time > 0.0 && time <= TIME_MAX)?
            .ok_or_else(|| self.invalid(column, &format!("a time above 0 and up to {TIME_MAX:e}")))
    }

    /// A time of what may be done in no time at all, or how far times lie apart.
    pub fn time_if_any(self, column: &str) -> Result<f64, Invalid> {
        self.number(column, |time| (0.0..=TIME_MAX).contains(&time))?
            .ok_or_else(|| self.invalid(column, &format!("a time from 0 to {TIME_MAX:e}")))
    }

    /// A number that is as it must be; none where it is not.
    pub fn number(self, column: &str, is_right: impl Fn(f64) -> bool) -> Result<Option<f64>, Invalid> {
        let number: Option<f64> = self.text(column)?.parse().ok();
        Ok(number.filter(|number| is_right(*number)))
    }

    /// A complaint about one cell.
    pub fn invalid(self, column: &str, must: &str) -> Invalid {
        let got = format!("{:?}", self.text(column).unwrap_or_default());
        Invalid::new(&self.sheet.file, column, must, got).in_line(self.number)
    }
}
