//! A binary mask over each weight: stored as bits, resident as the weights that it takes away.

use super::Element::U8;
use super::Size::Is;
use super::{Part, Place, Rules, TokenWork, Unfit, beside, csr_bytes};
use crate::pet::tensors::Resident;
use crate::pet::work::PetSizes;

pub(super) struct MaskBert;

/// The columns of a row of bits that are 0: the first column is a byte's lowest bit.
fn zeros(row: &[u8], columns: usize) -> u64 {
    let (whole, rest) = row.split_at(columns / 8);
    let beyond = u8::MAX << (columns % 8);
    let zeros = whole.iter().map(|byte| byte.count_zeros()).sum::<u32>();
    let zeros = zeros + rest.first().map_or(0, |byte| (byte | beyond).count_zeros());
    zeros.into()
}

impl Rules for MaskBert {
    fn tensors(&self, place: Place) -> Vec<Part> {
        match place {
            Place::Linear { outputs, inputs, .. } => {
                let rows = (inputs as usize).div_ceil(8);
                vec![("mask", U8, vec![Is(outputs as usize), Is(rows)])]
            }
            Place::Norm { .. } => Vec::new(),
        }
    }

    fn content(&self, place: Place, data: &[&[u8]]) -> Result<Resident, Unfit> {
        let Place::Linear { outputs, inputs, .. } = place else {
            return Ok(Resident::default());
        };
        let columns = inputs as usize;
        let rows = data[0].chunks_exact(columns.div_ceil(8));
        let elements = rows.map(|row| zeros(row, columns)).sum();
        Ok(Resident {
            numbers: elements,
            indices: elements + outputs + 1,
        })
    }

    fn bytes(&self, place: Place, sizes: &PetSizes) -> u64 {
        match place {
            Place::Linear { outputs, inputs, .. } => csr_bytes(sizes.masked_share, outputs, inputs),
            Place::Norm { .. } => 0,
        }
    }

    fn work(&self, place: Place, sizes: &PetSizes) -> TokenWork {
        match place {
            Place::Linear { outputs, inputs, .. } => TokenWork {
                flops: 2 * PetSizes::elements(sizes.masked_share, outputs, inputs),
                numbers: beside(outputs, inputs),
            },
            Place::Norm { .. } => TokenWork::default(),
        }
    }

    fn masks_weights(&self) -> bool {
        true
    }
}
