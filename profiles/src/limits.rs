//! What a device reached of its own limits: how fast it multiplies, and how fast it moves memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::error::Invalid;
use crate::model::DType;

/// The highest rates that were measured in one number format, by ops that do nothing else: what others are held
/// against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The number format.
    pub dtype: DType,
    /// Of a product of large square matrices: operations a second, two for each multiplication and addition.
    pub matmul_flops_per_s: f64,
    /// Of a copy of a block that no cache holds, within the device's memory: bytes a second, read and written.
    pub memory_bytes_per_s: f64,
}

impl Card {
    /// What was measured of the device's limits in a number format.
    pub fn limits_of(&self, dtype: DType) -> Option<&Limits> {
        self.limits.iter().find(|limits| limits.dtype == dtype)
    }

    /// Refuses rates that are none, and a format's second ones; `file` is what errors call `card.yaml`.
    pub(crate) fn check_limits(&self, file: &str) -> Result<(), Invalid> {
        for (index, limits) in self.limits.iter().enumerate() {
            let field = |name: &str| format!("limits[{index}].{name}");
            if self.limits[..index].iter().any(|earlier| earlier.dtype == limits.dtype) {
                let must = "a number format that no other has";
                return Err(Invalid::new(file, &field("dtype"), must, limits.dtype.name()));
            }
            for (name, rate) in [
                ("matmul_flops_per_s", limits.matmul_flops_per_s),
                ("memory_bytes_per_s", limits.memory_bytes_per_s),
            ] {
                if !(rate.is_finite() && rate > 0.0) {
                    return Err(Invalid::new(file, &field(name), "a rate above 0", rate.to_string()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic_card;

    #[test]
    fn rates_that_are_none_and_a_formats_second_ones_are_refused() {
        let mut card = synthetic_card();
        let limits = Limits {
            dtype: DType::F32,
            matmul_flops_per_s: 4e10,
            memory_bytes_per_s: 1e10,
        };
        card.limits.push(limits);
        card.validate().unwrap();
        assert_eq!(card.limits_of(DType::F32), Some(&limits));
        assert_eq!(card.limits_of(DType::Bf16), None);
        let refused = |change: fn(&mut Vec<Limits>)| {
            let mut broken = card.clone();
            change(&mut broken.limits);
            broken.validate().unwrap_err().to_string()
        };
        let none = refused(|limits| limits[0].memory_bytes_per_s = 0.0);
        assert!(
            none.contains("limits[0].memory_bytes_per_s: must be a rate above 0, got 0"),
            "{none}"
        );
        let endless = refused(|limits| limits[0].matmul_flops_per_s = f64::INFINITY);
        assert!(
            endless.contains("limits[0].matmul_flops_per_s: must be a rate"),
            "{endless}"
        );
        let twice = refused(|limits| limits.push(limits[0]));
        assert!(
            twice.contains("limits[1].dtype: must be a number format that no other has, got f32"),
            "{twice}"
        );
    }
}
