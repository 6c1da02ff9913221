//! The systems that benchmarks run, shortened, have the digests that they had: what makes them faster changes nothing else.
//!
//! A change that is meant to change results changes digests too, and says why (`docs/speed.md` tells of each).

#[path = "../benches/common/mod.rs"]
mod common;

use common::{ALL, Case, digest};

const DIGESTS: [(&str, &str); 6] = [
    ("hmi", "d09001b685398966"),
    ("swapping", "72b687b79adb2db8"),
    ("arlo", "442f954dbcee0776"),
    ("pets", "10de23f6c775364b"),
    ("punica", "b90bf3277f4ceb68"),
    ("tabi", "b7c191d1206ab455"),
];

#[test]
fn results_are_as_they_were() {
    let shortened = ["workload.stop.requests=5000".to_owned()];
    let digests = ALL.map(|(name, yaml)| (name, digest(&Case::new(name, yaml, &shortened).simulate().record)));
    assert_eq!(
        digests.each_ref().map(|(name, digest)| (*name, digest.as_str())),
        DIGESTS
    );
}

#[test]
fn a_digest_tells_answers_that_are_right_more_often() {
    let (name, yaml) = ALL[5];
    let of = |gain: &str| {
        let averages = format!("outcomes.averages=[{{weights: [0.762, 0.914], gain: {gain}}}]");
        let shortened = ["workload.stop.requests=5000".to_owned(), averages];
        digest(&Case::new(name, yaml, &shortened).simulate().record)
    };
    assert_ne!(of("0.4%"), of("2%"));
}
