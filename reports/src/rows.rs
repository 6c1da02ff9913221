//! Rows of a Parquet file with a part for each run.
//!
//! Each run fills a part of its own while it goes on, a row group at a time, and the parts are joined in the order of
//! the runs: memory does not grow with the number of rows, and the file does not depend on the number of threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use crate::error::ReportError;
use crate::summary::RunLabels;
use crate::whole::{Part, PartFile, WholeFile};

/// Rows of a row group at most: some megabytes, as readers like it.
const GROUP_ROWS: usize = 1 << 16;
/// Values of lists in a row group, about: a row may have thousands.
const GROUP_VALUES: usize = 1 << 20;

/// A cell.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(Option<i32>),
    Long(Option<i64>),
    Double(Option<f64>),
    Bool(Option<bool>),
    Text(Option<ByteArray>),
    Longs(Option<Vec<i64>>),
}

impl Value {
    /// The bits of an unsigned number, as Parquet keeps them.
    pub fn int(value: Option<u32>) -> Value {
        Value::Int(value.map(|value| value as i32))
    }

    pub fn long(value: Option<u64>) -> Value {
        Value::Long(value.map(|value| value as i64))
    }

    pub fn text(value: Option<&'static str>) -> Value {
        Value::Text(value.map(ByteArray::from))
    }
}

/// Which run a row is of: what its first columns are (`system`, `machine`, `repeat`, `seed`, `parameters`).
///
/// # Errors
/// Parameters that JSON cannot hold.
pub(crate) fn labels(of: &RunLabels) -> Result<[Value; 5], ReportError> {
    let text = |text: &str| Value::Text(Some(ByteArray::from(text)));
    Ok([
        text(&of.system),
        text(&of.machine),
        Value::int(Some(of.repeat)),
        Value::long(Some(of.seed)),
        text(&serde_json::to_string(&of.parameters)?),
    ])
}

/// The rows of one run, on their way into a part.
#[derive(Debug)]
pub(crate) struct Rows {
    path: PathBuf,
    writer: SerializedFileWriter<PartFile>,
    columns: Vec<Column>,
    rows: usize,
    /// Of lists in these rows.
    values: usize,
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<ParquetError>,
}

impl Rows {
    /// None yet, of a part of the file at `path`, whose folder must exist.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn new(path: &Path, schema: &TypePtr) -> Result<Rows, ReportError> {
        let out = Part::begin(path).map_err(|source| ReportError::io(path, source))?;
        Ok(Rows {
            path: path.to_owned(),
            writer: SerializedFileWriter::new(out, schema.clone(), properties())
                .map_err(|source| ReportError::parquet(path, source))?,
            columns: schema.get_fields().iter().map(Column::of).collect(),
            rows: 0,
            values: 0,
            failed: None,
        })
    }

    /// A row, with a value for each column of the schema.
    pub fn push(&mut self, row: impl IntoIterator<Item = Value>) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            if let Value::Longs(Some(list)) = &value {
                self.values += list.len();
            }
            column.push(value);
        }
        self.rows += 1;
        if (self.rows == GROUP_ROWS || self.values >= GROUP_VALUES)
            && self.failed.is_none()
            && let Err(error) = self.write_group()
        {
            self.failed = Some(error);
        }
    }

    /// There are no more.
    ///
    /// # Errors
    /// When a row could not be written.
    pub fn finish(self) -> Result<Part, ReportError> {
        let path = self.path.clone();
        self.close().map_err(|source| ReportError::parquet(&path, source))
    }

    fn close(mut self) -> Result<Part, ParquetError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.write_group()?;
        Ok(Part::end(self.writer.into_inner()?)?)
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("a column of the schema");
            let levels = column.optional.then_some(&column.levels[..]);
            match &column.values {
                Values::Int(values) => writer.typed::<Int32Type>().write_batch(values, levels, None)?,
                Values::Long(values) => writer.typed::<Int64Type>().write_batch(values, levels, None)?,
                Values::Double(values) => writer.typed::<DoubleType>().write_batch(values, levels, None)?,
                Values::Bool(values) => writer.typed::<BoolType>().write_batch(values, levels, None)?,
                Values::Text(values) => writer.typed::<ByteArrayType>().write_batch(values, levels, None)?,
                Values::Longs { values, repetitions } => {
                    writer.typed::<Int64Type>().write_batch(values, levels, Some(repetitions))?
                }
            };
            writer.close()?;
            column.clear();
        }
        group.close()?;
        (self.rows, self.values) = (0, 0);
        Ok(())
    }
}

/// Writes a file from the parts of all runs, in their order. Pages are copied as they are.
///
/// # Errors
/// When the file cannot be written; the error names it.
pub(crate) fn join(path: &Path, schema: &TypePtr, parts: &[Part]) -> Result<(), ReportError> {
    let mut file = WholeFile::create(path)?;
    copy_groups(&mut file, schema, parts).map_err(|source| ReportError::parquet(path, source))?;
    file.finish()
}

fn copy_groups(out: &mut WholeFile, schema: &TypePtr, parts: &[Part]) -> Result<(), ParquetError> {
    let mut writer = SerializedFileWriter::new(out, schema.clone(), properties())?;
    for part in parts {
        let part = part.open()?;
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            .parse_and_finish(&part)?;
        let index = metadata.page_index();
        for (g, group) in metadata.row_groups().iter().enumerate().filter(|(_, group)| group.num_rows() > 0) {
            let mut copy = writer.next_row_group()?;
            for (c, column) in group.columns().iter().enumerate() {
                let result = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: index.and_then(|index| index.column_index(g, c)).cloned(),
                    offset_index: index.and_then(|index| index.offset_index(g, c)).cloned(),
                };
                copy.append_column(&part, result)?;
            }
            copy.close()?;
        }
    }
    writer.close()?;
    Ok(())
}

fn properties() -> Arc<WriterProperties> {
    Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build())
}

/// A column of the row group that is being filled.
#[derive(Debug)]
struct Column {
    optional: bool,
    values: Values,
    /// Of an optional value 1 where there is one. Of a list's values 2 each, of an empty list 1, of none 0.
    levels: Vec<i16>,
}

#[derive(Debug)]
enum Values {
    Int(Vec<i32>),
    Long(Vec<i64>),
    Double(Vec<f64>),
    Bool(Vec<bool>),
    Text(Vec<ByteArray>),
    /// With a 0 for a list's first value, or the lack of any, and a 1 for each further one.
    Longs {
        values: Vec<i64>,
        repetitions: Vec<i16>,
    },
}

impl Column {
    fn of(field: &TypePtr) -> Column {
        let values = match field.is_group() {
            // As all lists of the schemas are: optional, of required whole numbers.
            true => Values::Longs {
                values: Vec::new(),
                repetitions: Vec::new(),
            },
            false => match field.get_physical_type() {
                parquet::basic::Type::INT32 => Values::Int(Vec::new()),
                parquet::basic::Type::INT64 => Values::Long(Vec::new()),
                parquet::basic::Type::DOUBLE => Values::Double(Vec::new()),
                parquet::basic::Type::BOOLEAN => Values::Bool(Vec::new()),
                _ => Values::Text(Vec::new()),
            },
        };
        Column {
            optional: field.is_optional(),
            values,
            levels: Vec::new(),
        }
    }

    fn push(&mut self, value: Value) {
        let present = match (&mut self.values, value) {
            (Values::Longs { values, repetitions }, Value::Longs(list)) => {
                let length = list.as_ref().map(Vec::len);
                repetitions.extend((0..length.unwrap_or(0).max(1)).map(|n| i16::from(n > 0)));
                match length {
                    None => self.levels.push(0),
                    Some(0) => self.levels.push(1),
                    Some(length) => self.levels.extend(std::iter::repeat_n(2, length)),
                }
                values.extend(list.into_iter().flatten());
                return;
            }
            (Values::Int(values), Value::Int(value)) => value.map(|value| values.push(value)),
            (Values::Long(values), Value::Long(value)) => value.map(|value| values.push(value)),
            (Values::Double(values), Value::Double(value)) => value.map(|value| values.push(value)),
            (Values::Bool(values), Value::Bool(value)) => value.map(|value| values.push(value)),
            (Values::Text(values), Value::Text(value)) => value.map(|value| values.push(value)),
            _ => unreachable!("rows have the types of the schema"),
        };
        assert!(self.optional || present.is_some(), "a required column has a value");
        if self.optional {
            self.levels.push(i16::from(present.is_some()));
        }
    }

    fn clear(&mut self) {
        self.levels.clear();
        match &mut self.values {
            Values::Int(values) => values.clear(),
            Values::Long(values) => values.clear(),
            Values::Double(values) => values.clear(),
            Values::Bool(values) => values.clear(),
            Values::Text(values) => values.clear(),
            Values::Longs { values, repetitions } => {
                values.clear();
                repetitions.clear();
            }
        }
    }
}
