//! Low-rank products beside the weights; a task may have them beside some linear layers only.

use super::Element::F32;
use super::Size::{AtLeast, Is};
use super::{NUMBER, Part, Place, Rules, TokenWork, beside};
use crate::pet::work::PetSizes;

pub(super) struct Lora;

impl Rules for Lora {
    fn tensors(&self, place: Place) -> Vec<Part> {
        match place {
            Place::Linear { outputs, inputs, .. } => vec![
                ("lora_a", F32, vec![AtLeast(1), Is(inputs as usize)]),
                ("lora_b", F32, vec![Is(outputs as usize), AtLeast(1)]),
            ],
            Place::Norm { .. } => Vec::new(),
        }
    }

    fn optional(&self) -> bool {
        true
    }

    fn bytes(&self, place: Place, sizes: &PetSizes) -> u64 {
        match place {
            Place::Linear { outputs, inputs, .. } => u64::from(sizes.rank) * (outputs + inputs) * NUMBER,
            Place::Norm { .. } => 0,
        }
    }

    fn work(&self, place: Place, sizes: &PetSizes) -> TokenWork {
        match place {
            Place::Linear { outputs, inputs, .. } => TokenWork {
                flops: 2 * u64::from(sizes.rank) * (outputs + inputs),
                numbers: beside(outputs, inputs),
            },
            Place::Norm { .. } => TokenWork::default(),
        }
    }
}
