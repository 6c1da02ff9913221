//! A sparse difference from each weight, and one from each bias.

use super::Element::{F32, I32};
use super::Size::{AtLeast, Is};
use super::{NUMBER, Part, Place, Rules, TokenWork, beside, csr_bytes};
use crate::policy::pet_work::PetSizes;

pub(super) struct DiffPruning;

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
