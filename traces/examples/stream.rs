//! Streams generated requests for ten thousand tenants and prints how fast, in how much memory, and a digest of what
//! came.
//!
//! `cargo run --release -p tenantry-traces --example stream -- [REQUESTS [KIND]]`: 100 million by default, of every
//! kind by default. The peak is the process's own, as the system counts it (`VmHWM`), and so of all kinds up to the
//! printed one.

use std::time::Instant;

use tenantry_traces::spec::{
    ArrivalsSpec, DiurnalSpec, LengthSpec, LengthsSpec, MmppState, OnOffSpec, Phases, PopularitySpec, PresenceSpec,
    Stop, Tweets, WorkloadSpec,
};
use tenantry_traces::{Duration, Entry, build};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let requests: u64 = arguments.next().map_or(100_000_000, |text| text.parse().expect("a number of requests"));
    let only = arguments.next();
    println!(
        "{:<28} {:>12} {:>12} {:>10}  digest",
        "kind", "requests", "million/s", "peak MiB"
    );
    for (name, spec) in kinds(requests) {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let started = Instant::now();
        let mut workload = build(&spec).expect("the specifications of this example are right");
        let (mut count, mut digest) = (0u64, 0xcbf2_9ce4_8422_2325u64);
        while let Some(entry) = workload.next().expect("generators read nothing") {
            let Entry::Request(request) = entry else { continue };
            let lengths = u64::from(request.input_tokens) << 32 | u64::from(request.output_tokens);
            for word in [request.arrival.0, u64::from(request.tenant), lengths] {
                digest = (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            }
            count += 1;
        }
        let rate = count as f64 / started.elapsed().as_secs_f64() / 1e6;
        println!(
            "{name:<28} {count:>12} {rate:>12.2} {:>10.1}  {digest:016x}",
            peak_mib()
        );
    }
}

fn kinds(requests: u64) -> Vec<(&'static str, WorkloadSpec)> {
    let fixed = LengthsSpec::Independent {
        input: LengthSpec::Fixed(128),
        output: LengthSpec::Fixed(0),
    };
    let base = WorkloadSpec {
        stop: Stop {
            requests: Some(requests),
            after: None,
        },
        ..WorkloadSpec::new(7, 10_000, ArrivalsSpec::Poisson { rate_per_s: 500.0 }, fixed)
    };
    let tweets = LengthsSpec::Independent {
        input: LengthSpec::Twitter {
            tweets: Tweets::Measured,
            span: 512,
        },
        output: LengthSpec::Fixed(0),
    };
    let state = |rate_per_s, seconds| MmppState {
        rate_per_s,
        mean_dwell: Duration::from_secs(seconds),
    };
    let bursty = ArrivalsSpec::Mmpp {
        states: vec![state(300.0, 10), state(1500.0, 2)],
    };
    let half_asleep = PresenceSpec {
        on_off: Some(OnOffSpec {
            mean_on: Duration::from_secs(600),
            mean_off: Duration::from_secs(600),
        }),
        ..PresenceSpec::default()
    };
    let days = PresenceSpec {
        diurnal: Some(DiurnalSpec {
            period: Duration::from_secs(86_400),
            trough: 0.2,
            phases: Phases::Spread,
        }),
        ..PresenceSpec::default()
    };
    let with = |change: &dyn Fn(&mut WorkloadSpec)| {
        let mut spec = base.clone();
        change(&mut spec);
        spec
    };
    vec![
        ("poisson-uniform", base.clone()),
        (
            "poisson-zipf-sharegpt",
            with(&|spec| {
                spec.popularity = PopularitySpec::Zipf { exponent: 1.0 };
                spec.lengths = LengthsSpec::ShareGpt;
            }),
        ),
        (
            "mmpp-functions-tweets",
            with(&|spec| {
                spec.arrivals = bursty.clone();
                spec.popularity = PopularitySpec::AzureFunctions;
                spec.lengths = tweets.clone();
            }),
        ),
        (
            "twitter-distinct-tweets",
            with(&|spec| {
                spec.arrivals = ArrivalsSpec::Twitter { rate_per_s: 500.0 };
                spec.popularity = PopularitySpec::Distinct;
                spec.lengths = tweets.clone();
            }),
        ),
        (
            "gamma-skewed",
            with(&|spec| {
                spec.arrivals = ArrivalsSpec::Gamma {
                    rate_per_s: 500.0,
                    cv: 4.0,
                };
                spec.popularity = PopularitySpec::Skewed { alpha: 1.5 };
            }),
        ),
        (
            "periodic-per-tenant",
            with(&|spec| {
                spec.arrivals = ArrivalsSpec::PeriodicPerTenant {
                    period: Duration::from_secs(20),
                };
                spec.popularity = PopularitySpec::OfArrivals;
            }),
        ),
        ("poisson-half-asleep", with(&|spec| spec.presence = half_asleep)),
        ("poisson-diurnal", with(&|spec| spec.presence = days)),
    ]
}

/// The most memory that this process has held so far, where the system tells.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}
