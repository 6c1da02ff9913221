//! What is kept of a run beside its record, and what writing the results takes: 100,000 requests of HMI with each
//! observer, then the files of a hundred runs, and the page of one. Prints digests of what was written.

mod common;

use std::hint::black_box;

use common::{Case, HMI, digest_of};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_reports::folder::json;
use tenantry_reports::requests::{RequestsPart, join};
use tenantry_reports::{Manifest, Page, Run, RunLabels, Seen, Summary};
use tenantry_traces::Time;

const REQUESTS: u64 = 100_000;

fn labels(repeat: u32) -> RunLabels {
    RunLabels {
        card: "h200-sxm".into(),
        gpus: 1,
        price_per_hour: None,
        system: "hmi".into(),
        parameters: Default::default(),
        repeat,
        machine: "virtual".into(),
        seed: 7,
        slo: None,
    }
}

fn described(bytes: &[u8]) -> String {
    let digest = digest_of(bytes.iter().map(|byte| u64::from(*byte)));
    format!("{} bytes, digest {digest}", bytes.len())
}

fn reporting(criterion: &mut Criterion) {
    let case = Case::new("hmi", HMI, &[format!("workload.stop.requests={REQUESTS}")]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("requests.parquet");
    let mut group = criterion.benchmark_group("observers");
    group.throughput(Throughput::Elements(REQUESTS)).sample_size(10);
    group.bench_function("none", |bencher| bencher.iter(|| case.simulate()));
    group.bench_function("seen", |bencher| {
        bencher.iter(|| case.simulate_watched(Some(&mut Seen::new(Time::ZERO, None, true))));
    });
    let write_rows = || {
        let mut rows = RequestsPart::new(&path, &labels(0), Time::ZERO).expect("the folder is writable");
        case.simulate_watched(Some(&mut rows));
        rows.finish().expect("the disk is not full")
    };
    join(&path, &[write_rows()]).expect("the disk is not full");
    println!(
        "requests.parquet: {}",
        described(&std::fs::read(&path).expect("it was written"))
    );
    group.bench_function("requests.parquet", |bencher| bencher.iter(write_rows));
    group.finish();

    let record = case.simulate().record;
    let mut group = criterion.benchmark_group("files");
    group.sample_size(20);
    let runs: Vec<Run> = (0..100).map(|repeat| Run::new(labels(repeat), &record)).collect();
    let summary = || json(&Summary::new("hmi", 7, black_box(&runs))).expect("it has a form in JSON");
    println!("summary.json of 100 runs: {}", described(&summary()));
    group.bench_function("summary.json of 100 runs", |bencher| bencher.iter(summary));
    group.bench_function("a record's summary and curves", |bencher| {
        bencher.iter(|| Run::new(labels(0), black_box(&record)));
    });
    let mut seen = Seen::new(Time::ZERO, None, true);
    case.simulate_watched(Some(&mut seen));
    let (watched, manifest) = ([Run::new(labels(0), &record).with_seen(&seen)], Manifest::default());
    let page = || {
        let page = Page {
            scenario: "hmi",
            runs: black_box(&watched),
            validation: None,
            folders: &[],
            manifest: &manifest,
        };
        page.render().expect("the template is sound")
    };
    println!("report.html: {}", described(page().as_bytes()));
    group.bench_function("report.html", |bencher| bencher.iter(page));
    group.finish();
}

criterion_group!(benches, reporting);
criterion_main!(benches);
