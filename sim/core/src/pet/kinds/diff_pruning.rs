//! A sparse difference from each weight, and one from each bias.

use super::Element::{F32, I32};
use super::Size::{AtLeast, Is};
use super::{NUMBER, Part, Place, Rules, TokenWork, Unfit, beside, csr_bytes};
use crate::pet::tensors::Resident;
use crate::pet::work::PetSizes;

pub(super) struct DiffPruning;

/// Whether two arrays are the rows and columns of a matrix in CSR that is so wide.
fn check_csr(starts: &[i32], columns: &[i32], width: u64) -> Result<(), Unfit> {
    let elements = columns.len();
    let (first, last) = (starts[0], starts[starts.len() - 1]);
    let unfit = |got: String| Unfit {
        part: "delta.starts",
        must: format!("rising from 0 to {elements}, the number of values"),
        got,
    };
    if first != 0 || usize::try_from(last) != Ok(elements) {
        return Err(unfit(format!("from {first} to {last}")));
    }
    if let Some(row) = starts.windows(2).position(|row| row[0] > row[1]) {
        return Err(unfit(format!("{} after {} at row {row}", starts[row + 1], starts[row])));
    }
    for row in starts.windows(2) {
        let row = &columns[row[0] as usize..row[1] as usize];
        let outside = row.iter().find(|&&column| !u64::try_from(column).is_ok_and(|column| column < width));
        let unsorted = row.windows(2).find(|pair| pair[0] >= pair[1]).map(|pair| &pair[1]);
        if let Some(column) = outside.or(unsorted) {
            return Err(Unfit {
                part: "delta.columns",
                must: format!("from 0 to {}, rising within a row", width - 1),
                got: column.to_string(),
            });
        }
    }
    Ok(())
}

fn integers(data: &[u8]) -> Vec<i32> {
    let integer = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().expect("four bytes"));
    data.chunks_exact(4).map(integer).collect()
}

impl Rules for DiffPruning {
    fn tensors(&self, place: Place) -> Vec<Part> {
        match place {
            Place::Linear { outputs, .. } => vec![
                ("delta.starts", I32, vec![Is(outputs as usize + 1)]),
                ("delta.columns", I32, vec![AtLeast(0)]),
                ("delta.values", F32, vec![AtLeast(0)]),
                ("bias_delta", F32, vec![Is(outputs as usize)]),
            ],
            Place::Norm { .. } => Vec::new(),
        }
    }

    fn content(&self, place: Place, data: &[&[u8]]) -> Result<Resident, Unfit> {
        if let (Place::Linear { inputs, .. }, [starts, columns, ..]) = (place, data) {
            check_csr(&integers(starts), &integers(columns), inputs)?;
        }
        // Numbers and indices of their own are all that is resident.
        Ok(Resident::default())
    }

    fn bytes(&self, place: Place, sizes: &PetSizes) -> u64 {
        match place {
            Place::Linear { outputs, inputs, .. } => {
                csr_bytes(sizes.difference_share, outputs, inputs) + outputs * NUMBER
            }
            Place::Norm { .. } => 0,
        }
    }

    fn work(&self, place: Place, sizes: &PetSizes) -> TokenWork {
        match place {
            Place::Linear { outputs, inputs, .. } => TokenWork {
                flops: 2 * PetSizes::elements(sizes.difference_share, outputs, inputs) + outputs,
                numbers: beside(outputs, inputs),
            },
            Place::Norm { .. } => TokenWork::default(),
        }
    }
}
