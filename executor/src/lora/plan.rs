//! How the tokens of a step fall on slots: made once a step, used by every projection of every layer (Punica, section
//! 6).

use tch::{Device, Kind, Tensor};
use tenantry_profiles::AdapterImplementation;

use crate::device::sent_to;
use crate::error::ExecutorError;

/// Groups that libtorch's product on a GPU no longer takes (`aten/src/ATen/native/cuda/GroupedBlas.cpp`, 2.11).
const GROUPS_BEYOND: u32 = 1024;

/// A stretch of tokens that use the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which; none for the backbone alone.
    pub slot: Option<u32>,
    /// How many.
    pub tokens: u32,
}

/// Which slot each token of a step uses, prepared for one implementation. Made by
/// [`LoraCache::plan`](super::LoraCache::plan).
#[derive(Debug)]
pub struct LoraPlan(pub(crate) Plan);

#[derive(Debug)]
pub(crate) enum Plan {
    Loop {
        stretches: Vec<Stretch>,
    },
    GatherBmm {
        rows: Rows,
        /// Slot of each of the rows, `[n]`, 64-bit.
        slots: Tensor,
    },
    Grouped {
        /// In the order of their slots.
        rows: Rows,
        /// The slots whose matrices are to be copied together, `[g]`, 64-bit; none where the product takes all slots as
        /// they are.
        slots: Option<Tensor>,
        /// Where the rows of each of these slots, or of all, end, 32-bit: what libtorch's grouped product takes.
        ends: Tensor,
    },
}

/// Rows of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub slot: i64,
    pub first: i64,
    pub count: i64,
}

/// Rows that use any slot at all.
#[derive(Debug)]
pub(crate) enum Rows {
    /// The first so many, in their order.
    First(i64),
    /// These, `[n]`, 64-bit.
    These(Tensor),
}

impl LoraPlan {
    pub(crate) fn new(
        segments: &[Segment],
        slots: u32,
        implementation: AdapterImplementation,
        device: Device,
        kind: Kind,
    ) -> Result<LoraPlan, ExecutorError> {
        if segments.is_empty() {
            return Err(ExecutorError::input("step", "at least one token", "none"));
        }
        if let Some(slot) = segments.iter().find_map(|segment| segment.slot.filter(|slot| *slot >= slots)) {
            return Err(ExecutorError::input(
                "slot of a segment",
                format!("below {slots}"),
                slot,
            ));
        }
        let stretches = stretches(segments);
        Ok(LoraPlan(match implementation {
            AdapterImplementation::Loop => Plan::Loop { stretches },
            AdapterImplementation::GatherBmm => {
                let of_rows = |stretch: &Stretch| vec![stretch.slot; stretch.count as usize];
                let slots: Vec<i64> = stretches.iter().flat_map(of_rows).collect();
                Plan::GatherBmm {
                    rows: Rows::new(&stretches, device)?,
                    slots: sent_to(device, &Tensor::f_from_slice(&slots)?)?,
                }
            }
            // A GPU's product skips slots without rows, in bfloat16, and takes so many at most. A CPU's, and a GPU's in
            // other formats, walks through them one by one. Else few are copied together.
            AdapterImplementation::Grouped => {
                let all = device.is_cuda() && kind == Kind::BFloat16 && slots < GROUPS_BEYOND;
                Plan::grouped(stretches, slots, all, device)?
            }
        }))
    }
}

impl Plan {
    /// With `all` slots as they are, or with copies of those that have rows.
    pub fn grouped(mut stretches: Vec<Stretch>, slots: u32, all: bool, device: Device) -> Result<Plan, ExecutorError> {
        stretches.sort_by_key(|stretch| (stretch.slot, stretch.first));
        let mut present: Vec<i64> = stretches.iter().map(|stretch| stretch.slot).collect();
        present.dedup();
        let mut ends = ends(&stretches, slots)?;
        if !all {
            ends = present.iter().map(|&slot| ends[slot as usize]).collect();
        }
        let present = (!all).then(|| sent_to(device, &Tensor::f_from_slice(&present)?));
        Ok(Plan::Grouped {
            rows: Rows::new(&stretches, device)?,
            slots: present.transpose()?,
            ends: sent_to(device, &Tensor::f_from_slice(&ends)?)?,
        })
    }
}

pub(crate) fn stretches(segments: &[Segment]) -> Vec<Stretch> {
    let mut first = 0;
    let mut stretches = Vec::with_capacity(segments.len());
    for segment in segments {
        let count = i64::from(segment.tokens);
        if let Some(slot) = segment.slot {
            let slot = slot.into();
            stretches.push(Stretch { slot, first, count });
        }
        first += count;
    }
    stretches
}

fn ends(sorted: &[Stretch], slots: u32) -> Result<Vec<i32>, ExecutorError> {
    let mut counts = vec![0i64; slots as usize];
    for stretch in sorted {
        counts[stretch.slot as usize] += stretch.count;
    }
    let mut end = 0;
    let add = |count: i64| {
        end += count;
        i32::try_from(end).map_err(|_| ExecutorError::input("tokens of the step", format!("at most {}", i32::MAX), end))
    };
    counts.into_iter().map(add).collect()
}

impl Rows {
    fn new(stretches: &[Stretch], device: Device) -> Result<Rows, ExecutorError> {
        let rows: Vec<i64> =
            stretches.iter().flat_map(|stretch| stretch.first..stretch.first + stretch.count).collect();
        Ok(match rows.iter().enumerate().all(|(index, &row)| index as i64 == row) {
            true => Rows::First(rows.len() as i64),
            false => Rows::These(sent_to(device, &Tensor::f_from_slice(&rows)?)?),
        })
    }

    pub fn count(&self) -> i64 {
        match self {
            Rows::First(count) => *count,
            Rows::These(rows) => rows.size()[0],
        }
    }

    /// These rows of `x`.
    pub fn of(&self, x: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(match self {
            Rows::First(count) => x.f_narrow(0, 0, *count)?,
            Rows::These(rows) => x.f_index_select(0, rows)?,
        })
    }

    /// Adds `addend` to the columns of these rows of `y` that begin at `column`.
    pub fn add(&self, y: &Tensor, column: i64, addend: &Tensor) -> Result<(), ExecutorError> {
        let mut columns = y.f_narrow(1, column, addend.size()[1])?;
        let _ = match self {
            Rows::First(count) => columns.f_narrow(0, 0, *count)?.f_add_(addend)?,
            Rows::These(rows) => columns.f_index_add_(0, rows, addend)?,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(slot: Option<u32>, tokens: u32) -> Segment {
        Segment { slot, tokens }
    }

    #[test]
    fn tokens_of_the_backbone_belong_to_no_stretch() {
        let segments = [segment(Some(2), 3), segment(None, 4), segment(Some(0), 1)];
        let stretch = |slot, first, count| Stretch { slot, first, count };
        assert_eq!(stretches(&segments), [stretch(2, 0, 3), stretch(0, 7, 1)]);
    }

    #[test]
    fn groups_end_slot_after_slot() {
        let segments = [
            segment(Some(2), 3),
            segment(None, 4),
            segment(Some(0), 1),
            segment(Some(2), 2),
        ];
        for (all, expected_slots, expected_ends) in
            [(true, None, vec![1, 1, 6, 6]), (false, Some(vec![0, 2]), vec![1, 6])]
        {
            let plan = Plan::grouped(stretches(&segments), 4, all, Device::Cpu).unwrap();
            let Plan::Grouped {
                rows: Rows::These(rows),
                slots,
                ends,
            } = plan
            else {
                panic!("grouped, in another order than the tokens");
            };
            assert_eq!(Vec::<i64>::try_from(&rows).unwrap(), [7, 0, 1, 2, 8, 9]);
            assert_eq!(slots.map(|slots| Vec::<i64>::try_from(&slots).unwrap()), expected_slots);
            assert_eq!(Vec::<i32>::try_from(&ends).unwrap(), expected_ends);
        }
    }

    #[test]
    fn slots_that_there_are_not_are_refused() {
        let plan =
            |segments: &[Segment]| LoraPlan::new(segments, 4, AdapterImplementation::Loop, Device::Cpu, Kind::Float);
        let refused = plan(&[segment(Some(4), 1)]).unwrap_err().to_string();
        assert_eq!(refused, "slot of a segment: must be below 4, got 4");
        assert_eq!(
            plan(&[]).unwrap_err().to_string(),
            "step: must be at least one token, got none"
        );
    }
}
