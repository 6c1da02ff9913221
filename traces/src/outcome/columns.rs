//! A CSV of items, whose columns are found by name.

use std::path::{Path, PathBuf};

use crate::error::TraceError;
use crate::read::field::{cut, fields, only_position};
use crate::read::lines::Lines;

/// Of a table that lacks one.
const COLUMNS_SHOWN: usize = 32;

/// The lines of a table.
pub struct Columns {
    lines: Lines,
    path: PathBuf,
    header: Vec<String>,
}

/// The fields of a line, by column.
pub struct Row<'a> {
    fields: &'a [&'a [u8]],
    header: &'a [String],
}

impl<'a> Row<'a> {
    /// What `parse` makes of a field; its error says which column it is of.
    pub fn parse<T>(&self, column: usize, parse: fn(&'a [u8]) -> Result<T, String>) -> Result<T, String> {
        parse(self.fields[column]).map_err(|message| format!("{}: {message}", self.header[column]))
    }
}

impl Columns {
    /// Reads the first line.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::Lacks`] where the file is empty.
    pub fn open(path: &Path) -> Result<Columns, TraceError> {
        let mut lines = Lines::open(path)?;
        if !lines.advance()? {
            return Err(TraceError::lacks(path, "a first line", "an empty file"));
        }
        let header = fields(lines.line()).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        Ok(Columns {
            lines,
            path: path.to_path_buf(),
            header,
        })
    }

    /// Where the column called `name` is, if there is one.
    ///
    /// # Errors
    /// [`TraceError::Lacks`] where there is more than one.
    pub fn position(&self, name: &str) -> Result<Option<usize>, TraceError> {
        only_position(&self.path, &self.header, name)
    }

    /// Where the column called `name` is.
    ///
    /// # Errors
    /// [`TraceError::NoColumn`], or [`TraceError::Lacks`] where there is more than one.
    pub fn find(&self, name: &str) -> Result<usize, TraceError> {
        self.position(name)?.ok_or_else(|| {
            // What is no table at all may have any number of them, however long.
            let more = (self.header.len() > COLUMNS_SHOWN).then(|| "…".to_owned());
            let columns = self.header.iter().take(COLUMNS_SHOWN).map(|name| cut(name.as_bytes()));
            TraceError::NoColumn {
                path: self.path.clone(),
                name: name.to_owned(),
                columns: columns.chain(more).collect(),
            }
        })
    }

    /// What `read` takes of all lines.
    ///
    /// # Errors
    /// [`TraceError::Line`] where a line has not the first line's columns or `read` says what is wrong with it;
    /// [`TraceError::Lacks`] where there are no lines.
    pub fn collect<T>(
        mut self,
        read: impl Fn(&Row<'_>, &mut Vec<T>) -> Result<(), String>,
    ) -> Result<Vec<T>, TraceError> {
        let mut all = Vec::new();
        while self.lines.advance()? {
            let fields: Vec<&[u8]> = fields(self.lines.line()).collect();
            if fields.len() != self.header.len() {
                let (columns, got) = (self.header.len(), fields.len());
                let message = format!("must have {columns} columns as the first line has, got {got}");
                return Err(self.lines.error(message));
            }
            let row = Row {
                fields: &fields,
                header: &self.header,
            };
            read(&row, &mut all).map_err(|message| self.lines.error(message))?;
        }
        if all.is_empty() {
            return Err(TraceError::lacks(&self.path, "items", "only a first line"));
        }
        Ok(all)
    }
}
