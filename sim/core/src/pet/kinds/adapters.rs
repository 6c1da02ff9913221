//! Houlsby adapters after attention and after the feed-forward: down, a nonlinearity, up.

use super::Element::F32;
use super::Size::{AtLeast, Is};
use super::{NUMBER, Part, Place, Rules, TokenWork};
use crate::pet::work::PetSizes;

pub(super) struct Adapters;

/// The width of what an adapter follows; nothing where none does.
fn width(place: Place) -> Option<u64> {
    match place {
        Place::Linear {
            name: "attention_output" | "output",
            outputs,
            ..
        } => Some(outputs),
        Place::Linear { .. } | Place::Norm { .. } => None,
    }
}

impl Rules for Adapters {
    fn tensors(&self, place: Place) -> Vec<Part> {
        let Some(width) = width(place).map(|width| width as usize) else {
            return Vec::new();
        };
        vec![
            ("adapter.down", F32, vec![Is(width), AtLeast(1)]),
            ("adapter.down_bias", F32, vec![AtLeast(1)]),
            ("adapter.up", F32, vec![AtLeast(1), Is(width)]),
            ("adapter.up_bias", F32, vec![Is(width)]),
        ]
    }

    /// They stand behind what the weights yield, with a nonlinearity of their own.
    fn merges(&self) -> bool {
        false
    }

    fn bytes(&self, place: Place, sizes: &PetSizes) -> u64 {
        let bottleneck = u64::from(sizes.bottleneck);
        width(place).map_or(0, |width| (2 * width * bottleneck + bottleneck + width) * NUMBER)
    }

    fn work(&self, place: Place, sizes: &PetSizes) -> TokenWork {
        width(place).map_or(TokenWork::default(), |width| TokenWork {
            flops: 2 * 2 * width * u64::from(sizes.bottleneck),
            numbers: 3 * width,
        })
    }
}
