//! A binary mask over each weight: stored as bits, resident as the weights that it takes away.

use super::Element::U8;
use super::Size::Is;
use super::{Part, Place, Rules, TokenWork, beside, csr_bytes};
use crate::policy::pet_work::PetSizes;

pub(super) struct MaskBert;

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
