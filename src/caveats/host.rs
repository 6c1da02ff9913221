//! What simulated runs take of hosts that nothing checks: memory for tenants' parameters, and how fast they are copied from there.

use std::collections::BTreeMap;

use tenantry_reports::summary::VIRTUAL;
use tenantry_reports::{Run, RunSummary, human};

/// More than many a host has.
const MUCH_HOST_MEMORY: u64 = 32 << 30;

/// A sentence on each system whose tenants' parameters take much of the host, of its run with most.
pub(super) fn host_memory_caveats(runs: &[Run]) -> Vec<String> {
    let mut most: BTreeMap<&str, &RunSummary> = BTreeMap::new();
    for summary in virtual_ones(runs) {
        let of = most.entry(&summary.system).or_insert(summary);
        if summary.host_memory_bytes > of.host_memory_bytes {
            *of = summary;
        }
    }
    most.into_values().filter_map(host_memory_caveat).collect()
}

/// Likewise, of one run.
pub fn host_memory_caveat(summary: &RunSummary) -> Option<String> {
    let bytes = summary.host_memory_bytes.filter(|bytes| *bytes >= MUCH_HOST_MEMORY)?;
    Some(format!(
        "{}: tenants' parameters take {} of host memory, which is taken to be there.",
        summary.system,
        human::bytes(bytes as f64)
    ))
}

/// What a host's memory gives in a second: some eight channels of DDR4-3200 at their best.
const HOST_BYTES_PER_S: f64 = 200e9;

/// A sentence on each system whose cards together are given more in a second than one host's memory gives, of its run with most: each card has a link
/// of its own, and nothing holds up who copies from the one memory at once.
pub(super) fn host_copies_caveats(runs: &[Run]) -> Vec<String> {
    let mut most: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for summary in virtual_ones(runs).filter(|summary| summary.gpus > 1) {
        let Some(swap) = summary.swap.filter(|_| summary.duration_s > 0.0) else {
            continue;
        };
        let per_s = swap.bytes_in as f64 / summary.duration_s;
        let of = most.entry(&summary.system).or_default();
        if per_s > of.0 {
            *of = (per_s, summary.gpus);
        }
    }
    let beyond = most.into_iter().filter(|(_, (per_s, _))| *per_s > HOST_BYTES_PER_S);
    beyond
        .map(|(system, (per_s, gpus))| {
            let hosts = (per_s / HOST_BYTES_PER_S).ceil();
            format!(
                "{system}: {} GB/s of tenants' parameters leave host memory for {gpus} cards together, which is taken \
                 to be fast enough. One host gives some {} GB/s: it would take {hosts} hosts or more, and the \
                 parameters may have to be held once in each.",
                human::number(per_s / 1e9),
                human::number(HOST_BYTES_PER_S / 1e9)
            )
        })
        .collect()
}

/// Executed runs say themselves what was there.
fn virtual_ones(runs: &[Run]) -> impl Iterator<Item = &RunSummary> {
    let all = runs.iter().map(|run| &run.summary);
    all.filter(|summary| summary.machine == VIRTUAL)
}

#[cfg(test)]
mod tests {
    use tenantry_reports::summary::SwapSummary;

    use super::*;
    use crate::caveats::testing::run;

    /// So many bytes for so many cards in ten seconds.
    fn copying(gigabytes: u64, gpus: u32) -> Run {
        let mut run = run("dedicated", 1_000);
        run.summary.gpus = gpus;
        run.summary.duration_s = 10.0;
        run.summary.swap = Some(SwapSummary {
            hits: 0,
            misses: 1_000,
            evictions: 0,
            bytes_in: gigabytes * 1_000_000_000,
        });
        run
    }

    #[test]
    fn more_than_a_host_gives_is_told_of_once_a_system() {
        assert!(host_copies_caveats(&[copying(1_900, 64)]).is_empty());
        // No link of a single card is so fast.
        assert!(host_copies_caveats(&[copying(2_100, 1)]).is_empty());
        let told = host_copies_caveats(&[copying(2_100, 16), copying(10_800, 64)]);
        assert_eq!(
            told,
            [
                "dedicated: 1,080 GB/s of tenants' parameters leave host memory for 64 cards together, which is taken to \
                 be fast enough. One host gives some 200 GB/s: it would take 6 hosts or more, and the parameters may have \
                 to be held once in each."
            ]
        );
        let mut executed = copying(10_800, 64);
        executed.summary.machine = "cpu".into();
        assert!(host_copies_caveats(&[executed]).is_empty());
    }
}
