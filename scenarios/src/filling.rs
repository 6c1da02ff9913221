//! Batches of a fixed size, which nothing but requests fills: that as many can wait as fill one.

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;
use crate::rules::Rules;
use crate::scalar::Count;

/// Instances at which requests wait for batches of a fixed size.
struct Waited {
    size: u32,
    /// Where the size is said.
    path: Path,
    /// As many as surely all have requests that wait before one has a batch of them.
    instances: u64,
}

impl Waited {
    /// As many requests as can wait without filling a batch.
    fn unfilled(&self) -> u64 {
        self.instances * u64::from(self.size - 1)
    }
}

/// That enough requests can wait at the encoder, or at each model of a cascade that is asked first. Those that are
/// asked later are left out: who waits there is not bounded by who may wait at the door.
pub(crate) fn check(system: &RawSystem, raw: &RawScenario, path: &Path, problems: &mut Vec<Problem>) {
    for waited in asked_first(system, raw, path) {
        let (size, instances, unfilled) = (waited.size, waited.instances, waited.unfilled());
        if let RawAdmit::BoundedQueue {
            max_waiting: Count(most),
        } = system.admit
        {
            let must = format!(
                "more than {unfilled}, as many as can wait for batches of {size} on {instances} instances without \
                 filling one, or batch must be size-or-timeout"
            );
            let fills = u64::from(most) > unfilled;
            Rules::below(path, problems).hold(fills, "admit.bounded-queue.max_waiting", must, most);
        }
        if let RawArrivals::ClosedLoop { clients, .. } = raw.workload.arrivals
            && u64::from(clients.0) <= unfilled
        {
            let largest = (u64::from(clients.0) - 1) / instances + 1;
            let must = format!(
                "at most {largest}, the largest batch that {} clients who wait for their answers fill on {instances} \
                 instances, or batch must be size-or-timeout",
                clients.0
            );
            problems.push(Problem::new(waited.path, must, size));
        }
    }
}

/// Where requests wait first, for batches of a fixed size.
fn asked_first(system: &RawSystem, raw: &RawScenario, path: &Path) -> Vec<Waited> {
    let waited = |batch: Option<RawBatch>, path: &Path, instances: u64, scales: bool| match batch {
        Some(RawBatch::FixedSize { size: Count(size) }) => Some(Waited {
            size,
            path: path.key("batch").key("fixed-size").key("size"),
            instances: if fills_evenly(system, raw, scales) {
                instances
            } else {
                1
            },
        }),
        _ => None,
    };
    let Some(cascade) = &system.cascade else {
        let instances = u64::from(raw.cluster.gpus.0) * u64::from(system.instances_per_gpu.0);
        return waited(system.batch, path, instances, false).into_iter().collect();
    };
    let first = match cascade.order {
        RawOrder::OneByOne => 1,
        RawOrder::AtOnce => cascade.stages.len(),
    };
    let stages = cascade.stages.iter().enumerate().take(first);
    let of_stage = |(index, stage): (usize, &RawStage)| {
        let cards = match (&stage.scale, &stage.gpus) {
            // There may be no more than those that are always kept.
            (Some(scale), _) => u64::from(scale.min.0),
            (None, Some(gpus)) => gpus.len() as u64,
            (None, None) => raw.cluster.gpus.0.into(),
        };
        let instances = cards * u64::from(stage.instances_per_gpu.unwrap_or(system.instances_per_gpu).0);
        let own = path.key("cascade").key("stages").index(index);
        let (batch, path) = stage.batch.map_or((system.batch, path), |batch| (Some(batch), &own));
        waited(batch, path, instances, stage.scale.is_some())
    };
    stages.filter_map(of_stage).collect()
}

/// Whether all instances have all but one of a batch before the first has a whole one: where the next request goes to
/// whom the fewest wait for, or, to each in turn, where who waits leaves by batches alone.
fn fills_evenly(system: &RawSystem, raw: &RawScenario, scales: bool) -> bool {
    let leaves = raw.workload.cancellations.is_some() || raw.workload.management.is_some() || scales;
    system.place != RawPlace::RoundRobin || !leaves
}
