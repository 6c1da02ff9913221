//! What handing work over takes: between threads that have nothing else to do, and as serving has it.

use std::collections::BTreeMap;

use tenantry_profiles::{DispatchOperation, DispatchRow, HandOverRow, Stats};
use tenantry_traces::Duration;

use super::stats::Samples;
use crate::machine::threads::HandOver;

/// One hand-over to a lane that had been idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOver {
    pub idle_us: u32,
    pub hand_over: HandOver,
}

/// Between threads that have nothing else to do.
pub(crate) fn dispatch_rows(hand_overs: &[HandOver]) -> Vec<DispatchRow> {
    let all: Vec<&HandOver> = hand_overs.iter().collect();
    let row = |(operation, stats)| DispatchRow { operation, stats };
    summed_up(&all).map(row).to_vec()
}

/// Of lanes that wait between passes, by how long they waited.
pub(crate) fn rows_by_idle(handed_over: &[HandedOver]) -> Vec<HandOverRow> {
    let mut by_idle: BTreeMap<u32, Vec<&HandOver>> = BTreeMap::new();
    for HandedOver { idle_us, hand_over } in handed_over {
        by_idle.entry(*idle_us).or_default().push(hand_over);
    }
    let rows = |(idle_us, of): (u32, Vec<&HandOver>)| {
        let row = move |(operation, stats)| HandOverRow {
            operation,
            idle_us,
            stats,
        };
        summed_up(&of).map(row)
    };
    by_idle.into_iter().flat_map(rows).collect()
}

fn summed_up(hand_overs: &[&HandOver]) -> [(DispatchOperation, Stats); 3] {
    let stats = |latency: fn(&HandOver) -> Duration| {
        let mut samples = Samples::default();
        for hand_over in hand_overs {
            samples.push(latency(hand_over).0 as f64 / 1e3);
        }
        samples.stats()
    };
    [
        (DispatchOperation::Wake, stats(|hand_over| hand_over.wake)),
        (DispatchOperation::Tell, stats(|hand_over| hand_over.tell)),
        (DispatchOperation::Alarm, stats(|hand_over| hand_over.alarm)),
    ]
}
