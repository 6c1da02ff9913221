//! Reads `requests.parquet`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

/// A row of `requests.parquet`, by column.
pub type Cells = BTreeMap<String, Field>;

pub fn rows(path: &Path) -> Vec<Cells> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let cells = |row: Row| row.get_column_iter().map(|(name, cell)| (name.clone(), cell.clone())).collect();
    let rows: Vec<Cells> = reader.get_row_iter(None).unwrap().map(|row| cells(row.unwrap())).collect();
    let counted: i64 = reader.metadata().row_groups().iter().map(|group| group.num_rows()).sum();
    assert_eq!(rows.len() as i64, counted);
    rows
}

pub fn whole(row: &Cells, column: &str) -> Option<u64> {
    match &row[column] {
        Field::Null => None,
        Field::Long(value) => Some(*value as u64),
        Field::ULong(value) => Some(*value),
        Field::UInt(value) => Some(u64::from(*value)),
        other => panic!("{column}: {other:?}"),
    }
}

pub fn text<'a>(row: &'a Cells, column: &str) -> Option<&'a str> {
    match &row[column] {
        Field::Null => None,
        Field::Str(text) => Some(text),
        other => panic!("{column}: {other:?}"),
    }
}
