//! Who is let in: tenants whose rate is limited.

use std::collections::BTreeMap;

use crate::common::requests::{rows, text, whole};
use crate::common::{folder, good};

/// One request of each tenant a second, and three at once.
const LIMIT: &str = "systems[0].admit={rate-limit: {rate: 1/s, burst: 3}}";
const PERIOD_NS: u64 = 1_000_000_000;
const BURST: u64 = 3;

/// Whoever serves, each tenant gets what a bucket of tokens of its own lets in, and who is turned away for it is told
/// so.
#[test]
fn a_rate_is_limited_by_tenant_in_every_family() {
    let folder = folder();
    for scenario in [
        "s.yaml",
        "arlo/two-on-a-card",
        "pets/two-models",
        "tabi/exits",
        "punica/tiny-scale",
    ] {
        let short = "workload.stop={after: 4s, requests: 2000}";
        good(
            folder.path(),
            &[
                "simulate",
                scenario,
                "--set",
                LIMIT,
                "--set",
                short,
                "--set",
                "sweep={}",
                "--requests",
                "--out",
                "out",
            ],
        );
        let rows = rows(&folder.path().join("out/requests.parquet"));
        let first = text(&rows[0], "system").unwrap().to_owned();
        let limited = rows
            .iter()
            .filter(|row| text(row, "system") == Some(&first) && whole(row, "seed") == whole(&rows[0], "seed"));
        let mut arrivals: Vec<(u64, u64, u64, bool)> = limited
            .map(|row| {
                let reason = text(row, "reason");
                assert!(matches!(reason, None | Some("rate_limited")), "{scenario}: {reason:?}");
                let arrival = whole(row, "arrival_ns").unwrap();
                let [ticket, tenant] = ["ticket", "tenant"].map(|column| whole(row, column).unwrap());
                (arrival, ticket, tenant, reason.is_none())
            })
            .collect();
        arrivals.sort_unstable();
        let full = BURST * PERIOD_NS;
        let mut buckets: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut turned_away = 0;
        for (arrival, _, tenant, let_in) in arrivals {
            let (since, tokens) = buckets.entry(tenant).or_insert((0, full));
            *tokens = (*tokens + arrival - *since).min(full);
            *since = arrival;
            assert_eq!(
                let_in,
                *tokens >= PERIOD_NS,
                "{scenario}: tenant {tenant} at {arrival} ns"
            );
            *tokens -= if let_in { PERIOD_NS } else { 0 };
            turned_away += u64::from(!let_in);
        }
        assert!(turned_away > 0, "{scenario}: nobody asks too often");
    }
}
