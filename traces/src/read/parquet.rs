//! Our own requests in Parquet ([`crate::write::parquet`]), or any other table with columns of those names and of
//! integers.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::{Compression, ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::claims::{Bounded, HonestPages};
use super::guard::unpanicked;
use super::records::Record;
use crate::error::TraceError;
use crate::management::Change;
use crate::time::Time;

/// The first four bytes of a Parquet file.
pub const MAGIC: &[u8] = b"PAR1";

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 4096;

/// The columns that are read, with the most that each may hold. Others are left alone.
const COLUMNS: [(&str, u64); 6] = [
    ("tenant", u32::MAX as u64),
    ("arrival_ns", u64::MAX),
    ("input_tokens", u32::MAX as u64),
    ("output_tokens", u32::MAX as u64),
    (CLASS, u16::MAX as u64),
    (CHANGE, u8::MAX as u64),
];

/// A column that may be left out, as in CSV.
const CLASS: &str = "class";
/// The column that only recordings with management requests have.
const CHANGE: &str = "change";

/// The rows of a file, in its order, some thousand at a time.
pub(super) struct Rows {
    path: PathBuf,
    file: SerializedFileReader<Bounded>,
    /// Where each of [`COLUMNS`] is in the file.
    positions: [Option<usize>; COLUMNS.len()],
    /// Whether their numbers have no sign.
    unsigned: [bool; COLUMNS.len()],
    next_group: usize,
    /// `None` where the file has no such column, and all are 0.
    columns: Vec<Option<ColumnReader>>,
    /// Column by column, the current batch: `None` where a value is missing.
    batch: [Vec<Option<u64>>; COLUMNS.len()],
    in_batch: usize,
    /// The row that was handed out last, 1-based.
    row: u64,
}

impl Rows {
    pub fn open(path: &Path) -> Result<Rows, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::unreadable(path, source))?;
        let bounded = Bounded::new(file).map_err(|source| TraceError::unreadable(path, source))?;
        bounded.check_footer().map_err(|error| broken(path, &error))?;
        let file = unpanicked(|| SerializedFileReader::new(bounded))
            .map_err(|what| broken(path, &what))?
            .map_err(|error| broken(path, &error))?;
        let schema = file.metadata().file_metadata().schema_descr();
        let mut positions = [None; COLUMNS.len()];
        let mut unsigned = [false; COLUMNS.len()];
        for (number, ((name, _), position)) in COLUMNS.iter().zip(&mut positions).enumerate() {
            let found = schema.columns().iter().position(|column| column.path().string() == *name);
            if found.is_none() && [CLASS, CHANGE].contains(name) {
                continue;
            }
            let found = found.ok_or_else(|| {
                let names: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
                TraceError::file(path, format!("must have the column `{name}`, got {}", names.join(",")))
            })?;
            *position = Some(found);
            let column = &schema.columns()[found];
            let whole = matches!(column.physical_type(), Physical::INT32 | Physical::INT64);
            if !whole || column.max_rep_level() > 0 || column.max_def_level() > 1 {
                let message =
                    format!("must have `{name}` as a plain column of 32- or 64-bit integers, got another type");
                return Err(TraceError::file(path, message));
            }
            // A time in other units would be read as so many nanoseconds.
            let logical = column.logical_type_ref();
            use ConvertedType::{DATE, DECIMAL, TIME_MICROS, TIME_MILLIS, TIMESTAMP_MICROS, TIMESTAMP_MILLIS};
            let is_no_number = matches!(
                logical,
                Some(LogicalType::Timestamp(_) | LogicalType::Time(_) | LogicalType::Decimal(_) | LogicalType::Date)
            ) || matches!(
                column.converted_type(),
                DATE | DECIMAL | TIME_MICROS | TIME_MILLIS | TIMESTAMP_MICROS | TIMESTAMP_MILLIS
            );
            if is_no_number {
                let message = format!("must have `{name}` as whole numbers, got a column of dates, times or decimals");
                return Err(TraceError::file(path, message));
            }
            use ConvertedType::{UINT_8, UINT_16, UINT_32, UINT_64};
            unsigned[number] = matches!(logical, Some(LogicalType::Integer(int)) if !int.is_signed)
                || matches!(column.converted_type(), UINT_8 | UINT_16 | UINT_32 | UINT_64);
        }
        let groups = file.metadata().row_groups().iter();
        // A broken file's groups may have fewer columns than it says.
        let mut read =
            groups.flat_map(|group| positions.iter().flatten().filter_map(|&position| group.columns().get(position)));
        // The one codec that the library has not, nor nearly anybody.
        if read.any(|column| column.compression() == Compression::LZO) {
            let message = "must be compressed by snappy, zstd, gzip, lz4 or brotli, or not at all, got LZO; write it \
                           anew, such as by pyarrow: pq.write_table(pq.read_table(FILE), OUT, compression=\"zstd\")";
            return Err(TraceError::file(path, message));
        }
        Ok(Rows {
            path: path.to_path_buf(),
            file,
            positions,
            unsigned,
            next_group: 0,
            columns: Vec::new(),
            batch: Default::default(),
            in_batch: 0,
            row: 0,
        })
    }

    /// An error at the row that was handed out last.
    pub fn error(&self, message: String) -> TraceError {
        TraceError::file(&self.path, format!("row {}: {message}", self.row))
    }

    /// The next row; the inner error is one row's and may be skipped, the outer one the file's.
    pub fn advance(&mut self) -> Result<Option<Result<Record, TraceError>>, TraceError> {
        while self.in_batch == self.batch[0].len() {
            let filled = unpanicked(|| self.fill()).unwrap_or_else(|what| Err(broken(&self.path, &what)));
            match filled {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) => {
                    // What is behind a broken page cannot be told apart.
                    self.batch.iter_mut().for_each(Vec::clear);
                    self.columns.clear();
                    self.in_batch = 0;
                    self.next_group = self.file.num_row_groups();
                    return Err(error);
                }
            }
        }
        let row = self.in_batch;
        self.in_batch += 1;
        self.row += 1;
        Ok(Some(self.record(row).map_err(|message| self.error(message))))
    }

    fn record(&self, row: usize) -> Result<Record, String> {
        let mut values = [0; COLUMNS.len()];
        let columns = self.batch.iter().zip(self.unsigned);
        for ((value, (column, unsigned)), (name, most)) in values.iter_mut().zip(columns).zip(COLUMNS) {
            let got = column[row].ok_or_else(|| format!("{name}: must have a value, got none"))?;
            if !unsigned && got > i64::MAX as u64 {
                return Err(format!("{name}: must be 0 to {most}, got `{}`", got as i64));
            }
            if got > most {
                return Err(format!("{name}: must be 0 to {most}, got `{got}`"));
            }
            *value = got;
        }
        let [tenant, arrival, input, output, class, change] = values;
        if change == 0 && input == 0 {
            return Err(format!("input_tokens: must be 1 to {}, got `0`", u32::MAX));
        }
        let must = || format!("change: must be 0 to {}, got `{change}`", Change::names().count());
        let change = match change {
            0 => None,
            number => Some(Change::numbered(number, tenant as u32).ok_or_else(must)?),
        };
        Ok(Record {
            arrival: Some(Time(arrival)),
            tenant: Some(tenant as u32),
            input_tokens: Some(input as u32),
            output_tokens: Some(output as u32),
            class: self.has_class().then_some(class as u16),
            change,
        })
    }

    fn has_class(&self) -> bool {
        let columns = COLUMNS.iter().zip(&self.positions);
        columns.into_iter().any(|((name, _), position)| *name == CLASS && position.is_some())
    }

    /// Decodes the next batch. False at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        let Rows {
            path,
            file,
            positions,
            unsigned,
            next_group,
            columns,
            batch,
            ..
        } = self;
        let broken = |error: ParquetError| broken(path, &error);
        if columns.is_empty() {
            if *next_group == file.num_row_groups() {
                return Ok(false);
            }
            let group = file.get_row_group(*next_group).map_err(broken)?;
            let reader = |position: usize| {
                let column = group.metadata().column(position).column_descr_ptr();
                let pages = HonestPages::new(group.get_column_page_reader(position)?);
                Ok(get_column_reader(column, Box::new(pages)))
            };
            *columns = positions
                .iter()
                .map(|&position| position.map(reader).transpose())
                .collect::<Result<_, _>>()
                .map_err(broken)?;
            *next_group += 1;
        }
        self.in_batch = 0;
        for ((column, values), unsigned) in columns.iter_mut().zip(batch.iter_mut()).zip(unsigned) {
            values.clear();
            if let Some(column) = column {
                decode(column, *unsigned, values).map_err(broken)?;
            }
        }
        let rows = batch[0].len();
        for (column, values) in columns.iter().zip(batch.iter_mut()) {
            if column.is_none() {
                values.resize(rows, Some(0));
            }
        }
        if batch.iter().any(|values| values.len() != rows) {
            return Err(TraceError::file(
                path,
                "must have as many values in each column, got fewer in some",
            ));
        }
        if rows == 0 {
            columns.clear();
        }
        Ok(true)
    }
}

/// Up to [`BATCH_ROWS`] values; fewer only at the end of the row group. Numbers with a sign come with the bits of 64
/// with a sign.
fn decode(column: &mut ColumnReader, unsigned: bool, values: &mut Vec<Option<u64>>) -> Result<(), ParquetError> {
    macro_rules! read {
        ($reader:expr, $unsigned:ty) => {{
            let (mut present, mut levels) = (Vec::with_capacity(BATCH_ROWS), Vec::with_capacity(BATCH_ROWS));
            while values.len() < BATCH_ROWS {
                present.clear();
                levels.clear();
                let left = BATCH_ROWS - values.len();
                let (rows, ..) = $reader.read_records(left, Some(&mut levels), None, &mut present)?;
                if rows == 0 {
                    break;
                }
                let mut present = present.iter().map(|&value| match unsigned {
                    true => u64::from(value as $unsigned),
                    false => i64::from(value) as u64,
                });
                if levels.is_empty() {
                    values.extend(present.map(Some));
                } else {
                    values.extend(levels.iter().map(|&level| (level > 0).then(|| present.next()).flatten()));
                }
            }
        }};
    }
    match column {
        ColumnReader::Int32ColumnReader(reader) => read!(reader, u32),
        ColumnReader::Int64ColumnReader(reader) => read!(reader, u64),
        _ => unreachable!("opened with columns of integers only"),
    }
    Ok(())
}

fn broken(path: &Path, got: &dyn std::fmt::Display) -> TraceError {
    TraceError::file(path, format!("must be a whole Parquet file, got {got}"))
}
