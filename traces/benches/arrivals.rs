//! How fast workloads are generated and read, with a digest of what came out: a faster wrong answer shows.
//!
//! `cargo bench -p tenantry-traces`. One element is one request.

use std::hint::black_box;
use std::io::Write;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_traces::read::{Records, own};
use tenantry_traces::spec::{
    ArrivalsSpec, LengthSpec, LengthsSpec, MmppState, PopularitySpec, Stop, Tweets, WorkloadSpec,
};
use tenantry_traces::{Duration, Entry, Request, Time, build};

const REQUESTS: u64 = 1_000_000;

fn spec(arrivals: ArrivalsSpec, lengths: LengthsSpec, popularity: PopularitySpec) -> WorkloadSpec {
    WorkloadSpec {
        popularity,
        stop: Stop {
            requests: Some(REQUESTS),
            after: None,
        },
        ..WorkloadSpec::new(7, 10_000, arrivals, lengths)
    }
}

fn encoder(input: LengthSpec) -> LengthsSpec {
    LengthsSpec::Independent {
        input,
        output: LengthSpec::Fixed(0),
    }
}

fn specs() -> Vec<(&'static str, WorkloadSpec)> {
    let poisson = ArrivalsSpec::Poisson { rate_per_s: 500.0 };
    let state = |rate_per_s, seconds| MmppState {
        rate_per_s,
        mean_dwell: Duration::from_secs(seconds),
    };
    let tweets = LengthSpec::Twitter {
        tweets: Tweets::Arlo,
        span: 512,
    };
    vec![
        (
            "poisson, fixed, uniform",
            spec(
                poisson.clone(),
                encoder(LengthSpec::Fixed(128)),
                PopularitySpec::Uniform,
            ),
        ),
        (
            "poisson, sharegpt, zipf",
            spec(poisson, LengthsSpec::ShareGpt, PopularitySpec::Zipf { exponent: 1.0 }),
        ),
        (
            "mmpp, tweets, azure functions",
            spec(
                ArrivalsSpec::Mmpp {
                    states: vec![state(300.0, 10), state(1500.0, 2)],
                },
                encoder(tweets.clone()),
                PopularitySpec::AzureFunctions,
            ),
        ),
        (
            "twitter, tweets, distinct",
            spec(
                ArrivalsSpec::Twitter { rate_per_s: 500.0 },
                encoder(tweets),
                PopularitySpec::Distinct,
            ),
        ),
        (
            "periodic per tenant, fixed",
            spec(
                ArrivalsSpec::PeriodicPerTenant {
                    period: Duration::from_secs(20),
                },
                encoder(LengthSpec::Fixed(128)),
                PopularitySpec::OfArrivals,
            ),
        ),
    ]
}

/// FNV-1a over what a request is.
fn digest(requests: impl Iterator<Item = Request>) -> u64 {
    requests.fold(0xcbf2_9ce4_8422_2325, |hash, request| {
        let lengths = u64::from(request.input_tokens) << 32 | u64::from(request.output_tokens);
        [request.arrival.0, u64::from(request.tenant), lengths]
            .iter()
            .fold(hash, |hash, word| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3))
    })
}

fn requests(spec: &WorkloadSpec) -> impl Iterator<Item = Request> {
    let mut workload = build(spec).expect("the specifications of this benchmark are right");
    std::iter::from_fn(move || match workload.next().expect("generators read nothing") {
        Some(Entry::Request(request)) => Some(request),
        _ => None,
    })
}

fn generating(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generate");
    group.throughput(Throughput::Elements(REQUESTS)).sample_size(10);
    for (name, spec) in specs() {
        eprintln!("digest of {name}: {:016x}", digest(requests(&spec)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut workload = build(&spec).expect("as above");
                let mut last = Time::ZERO;
                // As the serving loop does: look when, then take.
                while let Some(at) = workload.peek().expect("generators read nothing") {
                    last = at;
                    black_box(workload.next().expect("generators read nothing"));
                }
                last
            });
        });
    }
    group.finish();
}

fn reading(criterion: &mut Criterion) {
    let mut writer = own::Writer::new(Vec::new(), false).expect("memory is not full");
    requests(&specs()[1].1).for_each(|request| writer.write(&request).expect("memory is not full"));
    let text = writer.finish().expect("memory is not full");
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&text).expect("a temporary file");
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(10);
    group.bench_function("our CSV", |bencher| {
        bencher.iter(|| Records::open(file.path(), false).expect("it was written above").filter(Result::is_ok).count());
    });
    group.finish();
}

criterion_group!(benches, generating, reading);
criterion_main!(benches);
