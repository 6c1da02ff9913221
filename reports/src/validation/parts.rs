//! Where the two sides' difference comes from: parts of the mean latency, and lanes' work.

use std::collections::BTreeSet;

use super::pair::Pair;
use super::{LaneError, StageError};
use crate::group::Group;
use crate::summary::rounded;

/// `None` unless both sides finished requests.
pub(super) fn stages(pair: &Pair<'_>) -> Option<Vec<StageError>> {
    let (simulated, executed) = (pair.simulated.as_ref()?, pair.executed.as_ref()?);
    let mean = |group: &Group| group.mean(|run| Some(run.latency_ms?.mean));
    let (simulated_mean, executed_mean) = (mean(simulated)?, mean(executed)?);
    let stage = |index: usize, name: &'static str| {
        let part = |group: &Group| group.mean(|run| run.stages_ms()[index].1);
        let (simulated_ms, executed_ms) = (part(simulated)?, part(executed)?);
        let difference = simulated_ms - executed_ms;
        let whole = simulated_mean - executed_mean;
        Some(StageError {
            stage: name,
            simulated_ms,
            executed_ms,
            difference_ms: rounded(difference),
            points_of_mean_error: rounded(difference / executed_mean * 100.0),
            share_of_difference: (whole != 0.0).then(|| rounded(difference / whole)),
        })
    };
    let names = simulated.runs[0].summary.stages_ms().map(|(name, _)| name);
    names.into_iter().enumerate().map(|(index, name)| stage(index, name)).collect()
}

pub(super) fn lanes(pair: &Pair<'_>) -> Vec<LaneError> {
    let groups = [&pair.simulated, &pair.executed].into_iter().flatten();
    let names: BTreeSet<&String> =
        groups.flat_map(|group| &group.runs).flat_map(|run| run.summary.lanes.keys()).collect();
    let lane = |name: &String| {
        let (simulated, executed) = pair.both(|group| group.mean(|run| Some(run.lanes.get(name)?.busy_share)));
        LaneError {
            lane: name.clone(),
            simulated,
            executed,
        }
    };
    names.into_iter().map(lane).collect()
}
