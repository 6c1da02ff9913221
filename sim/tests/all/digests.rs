//! The systems that benchmarks run, shortened, have the digests that they had: what makes them faster changes nothing
//! else.
//!
//! A change that is meant to change results changes digests too, and its message says why.

#[path = "../../benches/common/mod.rs"]
mod benched;

use benched::{ALIKE, ALL, ARLO, Case, HMI, PUNICA, TABI, digest};

const SIXTEEN: [&str; 2] = ["cluster.gpus=16", "workload.arrivals.poisson.rate=16/s"];

/// The benchmarks' systems, and what they leave out: many cards, spread and contention on cards that have none, and a
/// cache so small that requests are evicted.
fn cases() -> Vec<(&'static str, Case)> {
    let case = |name, yaml, requests: u32, overrides: &[&str]| {
        let requests = format!("workload.stop.requests={requests}");
        let overrides = overrides.iter().map(|&text| text.to_owned()).chain([requests]);
        Case::new(name, yaml, &overrides.collect::<Vec<_>>())
    };
    let mut cases: Vec<_> = ALL.map(|(name, yaml)| (name, case(name, yaml, 5000, &[]))).into();
    cases.extend([
        (
            "hmi, ten cards",
            case(
                "hmi",
                HMI,
                20_000,
                &["card=v100", "cluster.gpus=10", "workload.arrivals.poisson.rate=38000/s"],
            ),
        ),
        (
            "arlo, 50 cards, disturbed",
            case(
                "arlo",
                ARLO,
                20_000,
                &["cluster.gpus=50", "workload.arrivals.poisson.rate=12500/s"],
            )
            .disturbed(),
        ),
        ("punica, 16 cards", case("punica", PUNICA, 20_000, &SIXTEEN)),
        (
            "punica, 16 cards, disturbed",
            case("punica", PUNICA, 20_000, &SIXTEEN).disturbed(),
        ),
        (
            "punica, lengths alike",
            case(
                "punica",
                PUNICA,
                20_000,
                &[ALIKE, "workload.arrivals.poisson.rate=1.5/s"],
            ),
        ),
        (
            "punica, few pages",
            case("punica", PUNICA, 5000, &["cluster={gpus: 1, gpu_memory: 24 GiB}"]),
        ),
        ("tabi, disturbed", case("tabi", TABI, 20_000, &[]).disturbed()),
        ("arlo, disturbed", case("arlo", ARLO, 20_000, &[]).disturbed()),
        (
            "punica, lengths alike, disturbed",
            case(
                "punica",
                PUNICA,
                20_000,
                &[ALIKE, "workload.arrivals.poisson.rate=1.5/s"],
            )
            .disturbed(),
        ),
        (
            "punica, few pages, disturbed",
            case("punica", PUNICA, 5000, &["cluster={gpus: 1, gpu_memory: 24 GiB}"]).disturbed(),
        ),
    ]);
    cases
}

const DIGESTS: [(&str, &str); 16] = [
    ("hmi", "5a5f2edd11484f35"),
    ("swapping", "9bc5ed9734e1d8bc"),
    ("arlo", "0bdfbdf0bd84ec38"),
    ("pets", "e7d6a1dd22b06351"),
    ("punica", "8b64263989b241b2"),
    ("tabi", "f541eb093133c4f3"),
    ("hmi, ten cards", "3669e4dddb988a2b"),
    ("arlo, 50 cards, disturbed", "f9917a23090af939"),
    ("punica, 16 cards", "20f1655ef67632b1"),
    ("punica, 16 cards, disturbed", "33d902152292d523"),
    ("punica, lengths alike", "22285e3c69532a9d"),
    ("punica, few pages", "a65b8dca9b233f34"),
    ("tabi, disturbed", "2fdb2a0cf4b6af29"),
    ("arlo, disturbed", "95291d718d9ec30e"),
    ("punica, lengths alike, disturbed", "76a846bae576f7b6"),
    ("punica, few pages, disturbed", "19eb93760dbcea04"),
];

#[test]
fn results_are_as_they_were() {
    let of = |(name, case): (&'static str, Case)| {
        let record = case.simulate().record;
        if name.starts_with("punica, few pages") {
            let generation = record.generation.as_ref().expect("it generates");
            assert!(generation.evictions > 0, "nobody is evicted: {generation:?}");
        }
        (name, digest(&record))
    };
    let digests: Vec<_> = cases().into_iter().map(of).collect();
    let digests: Vec<_> = digests.iter().map(|(name, digest)| (*name, digest.as_str())).collect();
    assert_eq!(digests, DIGESTS);
}

/// Steps one by one come to the same as leaps, on a card that is disturbed too.
#[test]
fn leaps_have_the_digests_of_steps() {
    let overrides = [ALIKE.to_owned(), "workload.stop.requests=5000".to_owned()];
    for case in [
        Case::new("punica", PUNICA, &overrides),
        Case::new("punica", PUNICA, &overrides).disturbed(),
    ] {
        assert_eq!(digest(&case.simulate().record), digest(&case.simulate_step_by_step().0));
    }
}

#[test]
fn a_digest_tells_answers_that_are_right_more_often() {
    let of = |gain: &str| {
        let averages = format!("outcomes.averages=[{{weights: [0.762, 0.914], gain: {gain}}}]");
        let shortened = ["workload.stop.requests=5000".to_owned(), averages];
        digest(&Case::new("tabi", TABI, &shortened).simulate().record)
    };
    assert_ne!(of("0.4%"), of("2%"));
}
