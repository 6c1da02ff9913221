//! What simulated runs take of hosts that nothing checks: memory for tenants' parameters and for domains' tables, how
//! fast those and what was looked up are copied from there, and cores and a disk for look-ups.

use std::collections::BTreeMap;

use tenantry_core::spec::{PlotSpec, SystemSpec};
use tenantry_profiles::{Card, DeviceKind, Tier};
use tenantry_reports::summary::{LookupSummary, VIRTUAL};
use tenantry_reports::{Run, RunSummary, human};
use tenantry_scenarios::RunSpec;

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
fn host_memory_caveat(summary: &RunSummary) -> Option<String> {
    let bytes = summary.host_memory_bytes.filter(|bytes| *bytes >= MUCH_HOST_MEMORY)?;
    Some(format!(
        "{}: tenants' parameters take {} of host memory, which is taken to be there.",
        summary.system,
        human::bytes(bytes as f64)
    ))
}

/// What a host's memory gives in a second: some eight channels of DDR4-3200 at their best.
const HOST_BYTES_PER_S: f64 = 200e9;

/// A sentence on each system whose cards together are given more in a second than one host's memory gives, of its run
/// with most: each card has a link of its own, and nothing holds up who copies from the one memory at once.
pub(super) fn host_copies_caveats(runs: &[Run]) -> Vec<String> {
    let mut most: BTreeMap<&str, Copied> = BTreeMap::new();
    let beyond = virtual_ones(runs).filter_map(|summary| Some((&summary.system, Copied::beyond_a_host(summary)?)));
    for (system, copied) in beyond {
        let of = most.entry(system).or_insert(copied);
        if copied.bytes_per_s > of.bytes_per_s {
            *of = copied;
        }
    }
    most.into_iter().map(|(system, copied)| copied.caveat(system)).collect()
}

/// Sentences on all that one simulated run takes of its hosts.
pub(super) fn host_caveats(spec: &RunSpec, card: &Card, summary: &RunSummary) -> Vec<String> {
    let of_memory = host_memory_caveat(summary);
    let of_copies = Copied::beyond_a_host(summary).map(|copied| copied.caveat(&summary.system));
    let of_lookups = lookup_caveats(spec, card, summary);
    of_memory.into_iter().chain(of_copies).chain(of_lookups).collect()
}

/// What leaves host memory for a run's cards together.
#[derive(Clone, Copy)]
struct Copied {
    bytes_per_s: f64,
    gpus: u32,
    /// Of what: tenants' parameters, what was looked up, or both.
    what: &'static str,
    /// What each of several hosts may have to hold.
    held: &'static str,
}

impl Copied {
    /// Where it is more than one host's memory gives.
    fn beyond_a_host(summary: &RunSummary) -> Option<Copied> {
        let may_be = summary.gpus > 1 && summary.duration_s > 0.0;
        may_be.then(|| Copied::of(summary)).filter(|copied| copied.bytes_per_s > HOST_BYTES_PER_S)
    }

    fn of(summary: &RunSummary) -> Copied {
        let parameters = summary.swap.map_or(0, |swap| swap.bytes_in);
        let staged = summary.lookup.and_then(|lookup| lookup.staged_bytes).unwrap_or(0);
        let (what, held) = match (parameters, staged) {
            (_, 0) => ("tenants' parameters", "the parameters"),
            (0, _) => ("what was looked up", "the tables"),
            _ => ("tenants' parameters and what was looked up", "parameters and tables"),
        };
        Copied {
            bytes_per_s: (parameters + staged) as f64 / summary.duration_s,
            gpus: summary.gpus,
            what,
            held,
        }
    }

    fn caveat(&self, system: &str) -> String {
        let Copied {
            bytes_per_s,
            gpus,
            what,
            held,
        } = self;
        let hosts = (bytes_per_s / HOST_BYTES_PER_S).ceil();
        format!(
            "{system}: {} GB/s of {what} leave host memory for {gpus} cards together, which is taken to be fast \
             enough. One host gives some {} GB/s: it would take {hosts} hosts or more, and {held} may have to be held \
             once in each.",
            human::number(bytes_per_s / 1e9),
            human::number(HOST_BYTES_PER_S / 1e9)
        )
    }
}

/// Sentences on a simulated run whose tables take much of the host, or that looks up more at once than one host of its
/// card does: each card has a lane of its own for it, and nothing holds up who looks up beside others.
pub fn lookup_caveats(spec: &RunSpec, card: &Card, summary: &RunSummary) -> Vec<String> {
    let (Some(plot), Some(lookup)) = (&spec.system.pool.plot, &summary.lookup) else {
        return Vec::new();
    };
    let lanes = summary.lanes.iter().filter(|(lane, _)| lane.ends_with("/lookup"));
    let at_once: f64 = lanes.map(|(_, lane)| lane.busy_share).sum();
    // On a processor, lanes share the cores.
    let of_cores = (card.device.kind == DeviceKind::Cuda)
        .then(|| cores_caveat(summary, card, at_once * f64::from(plot.threads)))
        .flatten();
    let of_disk = (plot.tier == Tier::Disk).then(|| disk_caveat(summary, lookup, at_once)).flatten();
    let of_tables = tables_caveat(&summary.system, plot);
    let of_threads = threads_caveat(&spec.system, plot, card);
    of_tables.into_iter().chain(of_threads).chain(of_cores).chain(of_disk).collect()
}

/// Several threads that a card's table knows nothing of.
fn threads_caveat(system: &SystemSpec, plot: &PlotSpec, card: &Card) -> Option<String> {
    let (model, tier) = (&system.pool.model.name, plot.tier);
    let rows = card.tables.plot_lookup.iter().filter(|row| row.model == *model && row.tier == tier);
    let mut by_threads: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    for row in rows {
        by_threads
            .entry((row.outcome, row.tokens_of, row.fragment_tokens, row.tokens))
            .or_default()
            .push(row.stats.median_us);
    }
    let tells_nothing = by_threads.values().all(|medians| medians.iter().all(|median| *median == medians[0]));
    (plot.threads > 1 && tells_nothing).then(|| {
        format!(
            "{}: look-ups cost on {} what one thread takes, since its table knows no more of `plot.threads` ({}) than \
             the cores that they keep busy.",
            system.name, card.name, plot.threads
        )
    })
}

/// Domains' tables, all of them in memory, that take much of it. How large the root's is follows from its texts, which
/// a simulation has none of.
fn tables_caveat(system: &str, plot: &PlotSpec) -> Option<String> {
    let each = plot.domain_bytes?;
    let all = each.saturating_mul(plot.domains.into());
    let root = match plot.tier {
        Tier::Memory => "lies there too",
        Tier::Disk => "lies on the disk",
    };
    (all >= MUCH_HOST_MEMORY).then(|| {
        format!(
            "{system}: domains' tables take {} of host memory ({} of {}), which is taken to be there. The root's, \
             whose size the scenario does not say, {root}.",
            human::bytes(all as f64),
            human::count(plot.domains.into()),
            human::bytes(each as f64)
        )
    })
}

/// Look-ups that keep so many cores busy.
fn cores_caveat(summary: &RunSummary, card: &Card, busy: f64) -> Option<String> {
    let cores = card.device.host.cores;
    let hosts = (busy / f64::from(cores)).ceil();
    (hosts > 1.0).then(|| {
        format!(
            "{}: look-ups keep {} cores busy on average, for {} cards together, which are taken to be there. A host of \
             {} has {cores}: it would take {hosts} hosts or more, and the tables may have to be held once in each.",
            summary.system,
            human::number(busy),
            summary.gpus,
            card.name
        )
    })
}

/// So many look-ups at once, of a root that lies on the disk. Whoever finds its fragment in a domain's table, in
/// memory, does not read it.
fn disk_caveat(summary: &RunSummary, lookup: &LookupSummary, at_once: f64) -> Option<String> {
    let of_root = 1.0 - lookup.domain_hits as f64 / lookup.tokens.max(1) as f64;
    let reading = at_once * of_root;
    (reading > 1.0).then(|| {
        format!(
            "{}: {} look-ups at once read the root's table from the disk on average, for {} cards together, each as \
             fast as one alone. Cards of one host share its disk: it would take {} such disks or more.",
            summary.system,
            human::number(reading),
            summary.gpus,
            reading.ceil()
        )
    })
}

/// Executed runs say themselves what was there.
fn virtual_ones(runs: &[Run]) -> impl Iterator<Item = &RunSummary> {
    let all = runs.iter().map(|run| &run.summary);
    all.filter(|summary| summary.machine == VIRTUAL)
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;
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

    /// So many fragments, of which a fourth are in a domain's table, and gigabytes of what stands for them.
    fn looked_up(gigabytes: u64) -> LookupSummary {
        LookupSummary {
            tokens: 1_000,
            domain_hits: 250,
            root_hits: 750,
            fallbacks: 0,
            staged_bytes: Some(gigabytes * 1_000_000_000),
        }
    }

    #[test]
    fn what_was_looked_up_leaves_host_memory_too() {
        let mut both = copying(1_900, 64);
        both.summary.lookup = Some(looked_up(200));
        let mut staged = both.clone();
        (staged.summary.swap, staged.summary.lookup) = (None, Some(looked_up(2_100)));
        for (run, what, held) in [
            (
                both,
                "tenants' parameters and what was looked up",
                "parameters and tables",
            ),
            (staged, "what was looked up", "the tables"),
        ] {
            let told = host_copies_caveats(&[run]);
            let expected = format!(
                "dedicated: 210 GB/s of {what} leave host memory for 64 cards together, which is taken to be fast \
                 enough. One host gives some 200 GB/s: it would take 2 hosts or more, and {held} may have to be held \
                 once in each."
            );
            assert_eq!(told, [expected]);
        }
    }

    #[test]
    fn tables_of_many_domains_take_much_of_a_host() {
        let of = |domains, domain_bytes, tier| PlotSpec {
            domains,
            domain_bytes,
            tier,
            ..tenantry_core::testing::PLOT
        };
        let told = |plot: PlotSpec| tables_caveat("hmi", &plot);
        // One that is a little too small, none at all, and one that nobody has counted.
        for small in [Some((32 << 30) / 8 - 1), Some(0), None] {
            assert_eq!(told(of(8, small, Tier::Memory)), None);
        }
        for (tier, root) in [(Tier::Memory, "lies there too"), (Tier::Disk, "lies on the disk")] {
            let expected = format!(
                "hmi: domains' tables take 32.0\u{a0}GiB of host memory (8 of 4.00\u{a0}GiB), which is taken to be there. \
                 The root's, whose size the scenario does not say, {root}."
            );
            assert_eq!(told(of(8, Some(4 << 30), tier)), Some(expected));
        }
    }

    #[test]
    fn look_ups_of_many_cards_take_several_hosts_and_disks() {
        let (card, summary) = (synthetic_card(), copying(1, 64).summary);
        assert_eq!(cores_caveat(&summary, &card, 4.0), None);
        assert_eq!(
            cores_caveat(&summary, &card, 9.0).unwrap(),
            "dedicated: look-ups keep 9.00 cores busy on average, for 64 cards together, which are taken to be there. A \
             host of synthetic has 4: it would take 3 hosts or more, and the tables may have to be held once in each."
        );
        assert_eq!(disk_caveat(&summary, &looked_up(1), 1.3), None);
        assert_eq!(
            disk_caveat(&summary, &looked_up(1), 4.0).unwrap(),
            "dedicated: 3.00 look-ups at once read the root's table from the disk on average, for 64 cards together, \
             each as fast as one alone. Cards of one host share its disk: it would take 3 such disks or more."
        );
    }
}
