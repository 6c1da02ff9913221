//! Biases of its own, of linear layers and norms.

use super::Element::F32;
use super::Size::Is;
use super::{NUMBER, Part, Place, Rules, TokenWork};
use crate::pet::work::PetSizes;

pub(super) struct BitFit;

/// How many biases there are at a place.
fn biases(place: Place) -> u64 {
    match place {
        Place::Linear { outputs, .. } => outputs,
        Place::Norm { width, .. } => width,
    }
}

impl Rules for BitFit {
    fn tensors(&self, place: Place) -> Vec<Part> {
        vec![("bias", F32, vec![Is(biases(place) as usize)])]
    }

    fn bytes(&self, place: Place, _: &PetSizes) -> u64 {
        biases(place) * NUMBER
    }

    fn work(&self, place: Place, _: &PetSizes) -> TokenWork {
        match place {
            Place::Linear { outputs, .. } => TokenWork {
                flops: outputs,
                numbers: 2 * outputs,
            },
            // A norm adds a bias whatever the task.
            Place::Norm { .. } => TokenWork::default(),
        }
    }
}
