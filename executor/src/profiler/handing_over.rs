//! What handing work over takes, as rows of a profile.

use std::collections::BTreeMap;

use tenantry_profiles::{DispatchOperation, DispatchRow, HandOverRow, OtherCores};

use super::stats::Samples;
use crate::machine::hand_overs::HandOver;

/// What stands for none: tables have no zeros.
const NONE_US: u32 = 1;

/// Beside idle cores, with pauses that are longer than the work: what is said of a machine in one number.
pub(crate) fn dispatch_rows(hand_overs: &[HandOver]) -> Vec<DispatchRow> {
    let mut by_operation: BTreeMap<DispatchOperation, Samples> = BTreeMap::new();
    let calm = hand_overs.iter().filter(|of| of.other_cores == OtherCores::Idle && of.pause_us > of.work_us);
    for (operation, us) in calm.flat_map(told) {
        by_operation.entry(operation).or_default().push(us);
    }
    let rows = by_operation.into_iter().map(|(operation, samples)| DispatchRow {
        operation,
        stats: samples.stats(),
    });
    rows.collect()
}

/// By rhythm; alarms by the pause alone, beside idle cores.
pub(crate) fn rows_by_rhythm(hand_overs: &[HandOver]) -> Vec<HandOverRow> {
    let mut by_rhythm: BTreeMap<(DispatchOperation, OtherCores, u32, u32), Samples> = BTreeMap::new();
    for of in hand_overs {
        for (operation, us) in told(of) {
            let work_us = match operation {
                DispatchOperation::Alarm if of.other_cores == OtherCores::Busy => continue,
                DispatchOperation::Alarm => NONE_US,
                _ => of.work_us,
            };
            let key = (operation, of.other_cores, of.pause_us.max(NONE_US), work_us);
            by_rhythm.entry(key).or_default().push(us);
        }
    }
    let row = |((operation, other_cores, pause_us, work_us), samples): (_, Samples)| HandOverRow {
        operation,
        other_cores,
        pause_us,
        work_us,
        stats: samples.stats(),
    };
    by_rhythm.into_iter().map(row).collect()
}

/// What one round says, in microseconds.
fn told(of: &HandOver) -> impl Iterator<Item = (DispatchOperation, f64)> {
    let alarm = of.alarm.map(|alarm| (DispatchOperation::Alarm, alarm));
    let all = [(DispatchOperation::Wake, of.wake), (DispatchOperation::Tell, of.tell)];
    all.into_iter().chain(alarm).map(|(operation, latency)| (operation, latency.0 as f64 / 1e3))
}
