//! Tenantry's own Parquet: the columns of its CSV ([`crate::read::own`]), all required, as unsigned integers; `change`
//! is 0 for requests, and otherwise counts `absent`, `create`, `update`, `delete`, `absent-domain`, `create-domain`,
//! `update-domain` from 1.
//!
//! Column-wise by Apache Parquet's own library without Arrow, which has no part in six columns of integers.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use crate::management::ManageRequest;
use crate::request::Request;

/// Rows that are kept in memory until they are written as a row group: 8 MiB.
pub const ROWS_PER_GROUP: usize = 1 << 18;

/// The columns with their widths in bits, in the order of the file.
pub const COLUMNS: [(&str, i8); 6] = [
    ("ticket", 64),
    ("tenant", 32),
    ("arrival_ns", 64),
    ("input_tokens", 32),
    ("output_tokens", 32),
    ("class", 16),
];

/// The column of recordings with management requests.
const CHANGE: (&str, i8) = ("change", 8);

/// Writes requests, a row each, in memory that does not grow with their number but for some bytes of index a row group.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rows: Vec<Row>,
    changes: bool,
}

/// A request, and 0; or a management request's tenant and instant, and the number of its kind.
struct Row {
    request: Request,
    change: u64,
}

impl<W: Write + Send> Writer<W> {
    /// Writes the file's first bytes.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn new(out: W, changes: bool) -> io::Result<Writer<W>> {
        Ok(Writer {
            file: SerializedFileWriter::new(out, schema(changes), properties()).map_err(io_error)?,
            rows: Vec::with_capacity(ROWS_PER_GROUP),
            changes,
        })
    }

    /// Takes one management request, for which there must be a column.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write_change(&mut self, request: &ManageRequest) -> io::Result<()> {
        assert!(
            self.changes,
            "a recording with management requests has a column for them"
        );
        let stands_for = Request {
            ticket: 0,
            tenant: request.change.of(),
            arrival: request.at,
            input_tokens: 0,
            output_tokens: 0,
            class: 0,
        };
        self.push(stands_for, request.change.number())
    }

    /// Takes one request.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn write(&mut self, request: &Request) -> io::Result<()> {
        self.push(*request, 0)
    }

    fn push(&mut self, request: Request, change: u64) -> io::Result<()> {
        self.rows.push(Row { request, change });
        if self.rows.len() == ROWS_PER_GROUP {
            self.write_group().map_err(io_error)?;
        }
        Ok(())
    }

    /// Writes the rows that are left and the file's index, and gives `out` back.
    ///
    /// # Errors
    /// Whatever `out` says.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.rows.is_empty() {
            self.write_group().map_err(io_error)?;
        }
        let mut out = self.file.into_inner().map_err(io_error)?;
        out.flush()?;
        Ok(out)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for (name, _) in columns(self.changes) {
            let mut column = group.next_column()?.expect("as many columns as the schema has");
            // The bits of an unsigned number are kept in a signed one: that is what the logical type is for.
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(writer) => {
                    let values: Vec<i64> = self.rows.iter().map(|row| wide(row, name) as i64).collect();
                    writer.write_batch(&values, None, None)?;
                }
                ColumnWriter::Int32ColumnWriter(writer) => {
                    let values: Vec<i32> = self.rows.iter().map(|row| wide(row, name) as i32).collect();
                    writer.write_batch(&values, None, None)?;
                }
                _ => unreachable!("all columns are of integers"),
            }
            column.close()?;
        }
        group.close()?;
        self.rows.clear();
        Ok(())
    }
}

fn columns(changes: bool) -> impl Iterator<Item = (&'static str, i8)> {
    COLUMNS.into_iter().chain(changes.then_some(CHANGE))
}

fn wide(row: &Row, column: &str) -> u64 {
    let Row { request, change } = row;
    match column {
        "ticket" => request.ticket,
        "tenant" => request.tenant.into(),
        "arrival_ns" => request.arrival.0,
        "input_tokens" => request.input_tokens.into(),
        "output_tokens" => request.output_tokens.into(),
        "class" => request.class.into(),
        _ => *change,
    }
}

fn schema(changes: bool) -> TypePtr {
    let column = |(name, bit_width): (&str, i8)| {
        let physical = if bit_width > 32 {
            Physical::INT64
        } else {
            Physical::INT32
        };
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::integer(bit_width, false)))
            .build();
        Arc::new(column.expect("an integer column of a known width"))
    };
    let columns = columns(changes).map(column).collect();
    let schema = Type::group_type_builder("requests").with_fields(columns).build();
    Arc::new(schema.expect("a group of columns"))
}

/// Tickets and arrivals rise, so that their differences are small; the rest has few values, which the default's
/// dictionary suits.
fn properties() -> WriterPropertiesPtr {
    let rising = |builder: parquet::file::properties::WriterPropertiesBuilder, name: &str| {
        let path = ColumnPath::from(name);
        builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
    };
    let builder = WriterProperties::builder().set_compression(Compression::SNAPPY);
    Arc::new(rising(rising(builder, "ticket"), "arrival_ns").build())
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}
