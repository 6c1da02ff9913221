//! Draws from a table of weights in constant time.

use std::sync::Arc;

/// Walker's alias method with Vose's linear construction (M. D. Vose, "A linear algorithm for generating random numbers
/// with a given distribution", IEEE TSE 17(9), 1991): a uniform slot, then either the slot itself or its alias. Copies
/// share the table.
#[derive(Clone, Debug)]
pub struct Alias {
    slots: Arc<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Chance of the slot itself in units of 2^-32. The chance of an outcome is thus right to 2^-32 of a slot.
    own: u32,
    other: u32,
}

impl Alias {
    /// A table that draws `i` in proportion to `weights[i]`.
    ///
    /// # Panics
    /// If there is no weight, one is negative or not finite, or all are 0; callers check what users give.
    pub fn new(weights: &[f64]) -> Alias {
        let total: f64 = weights.iter().sum();
        assert!(total.is_finite() && total > 0.0, "weights need a positive, finite sum");
        assert!(weights.iter().all(|&weight| weight >= 0.0), "weights are not negative");
        let count = u32::try_from(weights.len()).expect("fewer than 2^32 weights");

        let mut mass: Vec<f64> = weights.iter().map(|weight| weight / total * f64::from(count)).collect();
        let (mut poor, mut rich): (Vec<u32>, Vec<u32>) = (0..count).partition(|&i| mass[i as usize] < 1.0);
        let mut slots: Vec<Slot> = (0..count)
            .map(|i| Slot {
                own: u32::MAX,
                other: i,
            })
            .collect();
        while let (Some(&small), Some(&large)) = (poor.last(), rich.last()) {
            poor.pop();
            slots[small as usize] = Slot {
                own: (mass[small as usize] * 4_294_967_296.0) as u32,
                other: large,
            };
            mass[large as usize] -= 1.0 - mass[small as usize];
            if mass[large as usize] < 1.0 {
                rich.pop();
                poor.push(large);
            }
        }
        // What is left in either list has mass 1 up to rounding, and is its own alias.
        drop((mass, poor, rich));
        Alias { slots: slots.into() }
    }

    /// The outcome for 64 uniform bits.
    #[inline]
    pub fn pick(&self, bits: u64) -> u32 {
        let product = u128::from(bits) * self.slots.len() as u128;
        let index = (product >> 64) as usize;
        let slot = self.slots[index];
        // The low half is uniform given the index, to 2^-64 times the number of slots.
        let fraction = (product as u64 >> 32) as u32;
        if fraction < slot.own { index as u32 } else { slot.other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Draws, Purpose};
    use proptest::prelude::*;

    #[test]
    fn a_weight_of_zero_is_never_drawn() {
        let alias = Alias::new(&[0.0, 1.0, 0.0, 3.0, 0.0]);
        let mut stream = Draws::new(1, Purpose::Tenant).about(0);
        let mut drawn = [0u32; 5];
        for _ in 0..40_000 {
            drawn[alias.pick(stream.bits()) as usize] += 1;
        }
        assert_eq!((drawn[0], drawn[2], drawn[4]), (0, 0, 0));
        assert!((f64::from(drawn[3]) / 40_000.0 - 0.75).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn the_table_holds_the_weights(weights in proptest::collection::vec(0.0f64..100.0, 1..200)) {
            let total: f64 = weights.iter().sum();
            prop_assume!(total > 0.0);
            let alias = Alias::new(&weights);
            let mut mass = vec![0.0; weights.len()];
            for (i, slot) in alias.slots.iter().enumerate() {
                let own = f64::from(slot.own) / 4_294_967_296.0;
                mass[i] += own;
                mass[slot.other as usize] += 1.0 - own;
            }
            for (got, weight) in mass.iter().zip(&weights) {
                prop_assert!((got / weights.len() as f64 - weight / total).abs() < 1e-8);
            }
        }
    }
}
