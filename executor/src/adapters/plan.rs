//! How the sequences of a batch fall on slots: made once a batch, used in every layer.

use tch::{Device, Tensor};
use tenantry_profiles::AdapterImplementation;

use crate::device::sent_to;
use crate::error::ExecutorError;

/// Which slot each sequence of a batch uses, prepared for one implementation. Made by
/// [`AdapterCache::plan`](crate::AdapterCache::plan).
#[derive(Debug)]
pub struct AdapterPlan(pub(crate) Plan);

#[derive(Debug)]
pub(crate) enum Plan {
    Loop {
        groups: Vec<Group>,
    },
    GatherBmm {
        /// Slot of each sequence, `[n]`, 64-bit.
        slots: Tensor,
    },
    Grouped {
        /// Slot of each group, `[g]`, 64-bit.
        slots: Tensor,
        /// Where each group ends, in tokens from the batch's first, `[g]`, 32-bit: what libtorch's grouped product
        /// takes.
        ends: Tensor,
        /// Group of each sequence, `[n]`, 64-bit.
        group_of: Tensor,
    },
}

/// A stretch of sequences that use the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub slot: i64,
    /// Its first sequence.
    pub first: i64,
    /// How many.
    pub count: i64,
}

impl AdapterPlan {
    pub(crate) fn new(
        slots: &[u32],
        tokens: usize,
        implementation: AdapterImplementation,
        device: Device,
    ) -> Result<AdapterPlan, ExecutorError> {
        if slots.is_empty() {
            return Err(ExecutorError::input("batch", "at least one sequence", "none"));
        }
        let on_device = |numbers: &[i64]| sent_to(device, &Tensor::f_from_slice(numbers)?);
        let groups = groups(slots);
        Ok(AdapterPlan(match implementation {
            AdapterImplementation::Loop => Plan::Loop { groups },
            AdapterImplementation::GatherBmm => {
                let slots: Vec<i64> = slots.iter().map(|&slot| slot.into()).collect();
                Plan::GatherBmm {
                    slots: on_device(&slots)?,
                }
            }
            AdapterImplementation::Grouped => {
                let slots: Vec<i64> = groups.iter().map(|group| group.slot).collect();
                let end = |group: &Group| i32::try_from((group.first + group.count) * tokens as i64);
                let ends: Vec<i32> = groups.iter().map(end).collect::<Result<_, _>>().map_err(|_| {
                    ExecutorError::input("tokens of the batch", format!("at most {}", i32::MAX), "more")
                })?;
                let of_group = |(index, group): (usize, &Group)| vec![index as i64; group.count as usize];
                let group_of: Vec<i64> = groups.iter().enumerate().flat_map(of_group).collect();
                Plan::Grouped {
                    slots: on_device(&slots)?,
                    ends: sent_to(device, &Tensor::f_from_slice(&ends)?)?,
                    group_of: on_device(&group_of)?,
                }
            }
        }))
    }
}

fn groups(slots: &[u32]) -> Vec<Group> {
    let mut first = 0;
    let group = |stretch: &[u32]| {
        let group = Group {
            slot: stretch[0].into(),
            first,
            count: stretch.len() as i64,
        };
        first += group.count;
        group
    };
    slots.chunk_by(|a, b| a == b).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_equal_slots_are_groups() {
        let group = |slot, first, count| Group { slot, first, count };
        assert_eq!(groups(&[7]), [group(7, 0, 1)]);
        assert_eq!(
            groups(&[2, 2, 0, 2, 2, 2]),
            [group(2, 0, 2), group(0, 2, 1), group(2, 3, 3)]
        );
    }
}
