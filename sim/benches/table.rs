//! One table of how fast the simulator is on one core, what memory it takes, and how both grow.
//!
//! `cargo bench -p tenantry-sim --bench table`. After `--`: names of systems, to run only these, once each and nothing
//! else, as a profiler wants it, `disturbed`, for these on cards with a spread and contention, and `path=value` to
//! change their scenarios; or `long`, for the run that takes half a minute too.

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{ALIKE, ALL, ARLO, Case, HMI, PUNICA, SWAPPING, TABI, digest};
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use peak_alloc::PeakAlloc;
use rayon::prelude::*;
use tenantry_core::RunRecord;
use tenantry_core::durations::Tally;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{DType, Drawn, ModelShape};
use tenantry_reports::Seen;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::{Duration, Time};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Seconds for which this thread has had a core: on a machine that others use too, the clock on the wall tells of them.
fn busy_s() -> f64 {
    // Not rustix's, which looks for the kernel's own functions where valgrind has none.
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("Linux has this clock");
    now.num_nanoseconds() as f64 / 1e9
}

/// Runs of which the median counts.
const REPEATS: usize = 5;
/// Likewise, where two such are compared.
const REPEATS_COMPARED: usize = 3;

/// One run of a case.
struct Measured {
    record: RunRecord,
    ops: u64,
    busy_s: f64,
    peak_bytes: usize,
}

impl Measured {
    fn of(run: impl FnOnce() -> (RunRecord, u64)) -> Measured {
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let start_s = busy_s();
        let (record, ops) = run();
        Measured {
            busy_s: busy_s() - start_s,
            peak_bytes: HEAP.peak_usage() - before,
            record,
            ops,
        }
    }

    fn once(case: &Case) -> Measured {
        Measured::of(|| {
            let done = case.simulate();
            (done.record, done.ops)
        })
    }

    /// The run that takes the median of so many.
    fn median(repeats: usize, run: impl Fn() -> Measured) -> Measured {
        let mut runs: Vec<Measured> = (0..repeats).map(|_| run()).collect();
        runs.sort_by(|one, other| one.busy_s.total_cmp(&other.busy_s));
        runs.swap_remove(repeats / 2)
    }

    fn ns_per_request(&self) -> f64 {
        self.busy_s * 1e9 / self.record.counts.offered as f64
    }
}

fn millions(number: f64) -> String {
    format!("{:.2} M", number / 1e6)
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn case(name: &'static str, yaml: &str, overrides: &[&str]) -> Case {
    let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    Case::new(name, yaml, &overrides)
}

fn print_run(name: &str, measured: &Measured) {
    let Measured {
        record, ops, busy_s, ..
    } = measured;
    let tokens = match record.output_tokens {
        0 => "–".to_owned(),
        tokens => millions(tokens as f64 / busy_s),
    };
    println!(
        "{name:<25}{:>10}{:>12}{:>12}{:>12}{:>8.1}{:>11.1}{:>13}  {}",
        millions(record.counts.offered as f64),
        millions(record.counts.offered as f64 / busy_s),
        millions(*ops as f64 / busy_s),
        tokens,
        record.batch_requests as f64 / record.batches as f64,
        record.in_flight_mean,
        mebibytes(measured.peak_bytes),
        digest(record),
    );
}

/// What figures are of: they differ from one machine to another.
fn machine() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").expect("the benchmark runs on Linux");
    let model = all.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    format!(
        "{cores} cores of {}",
        model.map_or("an unknown processor", |(_, name)| name)
    )
}

fn systems() {
    println!("{}\n", machine());
    println!(
        "{:<25}{:>10}{:>12}{:>12}{:>12}{:>8}{:>11}{:>13}  digest",
        "system", "requests", "requests/s", "ops/s", "tokens/s", "batch", "in flight", "peak heap"
    );
    let median = |name: &str, case: &Case| print_run(name, &Measured::median(REPEATS, || Measured::once(case)));
    for (name, yaml) in ALL {
        median(name, &case(name, yaml, &[]));
    }
    let at_16 = ["cluster.gpus=16", "workload.arrivals.poisson.rate=16/s"];
    median("punica, 16 cards", &case("punica", PUNICA, &at_16));
    let at_rate = "workload.arrivals.poisson.rate=1.5/s";
    median("punica, 1,147 and 211", &case("punica", PUNICA, &[ALIKE, at_rate]));
    // The same run twice: leaping must have the digest of stepping.
    let alike = case("punica", PUNICA, &[ALIKE, at_rate]);
    let step_by_step = || Measured::of(|| alike.simulate_step_by_step());
    print_run("  step by step", &Measured::median(REPEATS, step_by_step));
    for (name, yaml) in [("arlo", ARLO), ("punica", PUNICA), ("tabi", TABI)] {
        median(&format!("{name}, disturbed"), &case(name, yaml, &[]).disturbed());
    }
    median("punica, 16, disturbed", &case("punica", PUNICA, &at_16).disturbed());
    let alike = alike.disturbed();
    median("1,147 and 211, disturbed", &alike);
    let step_by_step = || Measured::of(|| alike.simulate_step_by_step());
    print_run("  step by step", &Measured::median(REPEATS, step_by_step));
    for (name, yaml) in [("hmi", HMI), ("punica", PUNICA)] {
        let case = case(name, yaml, &[]);
        let watched = || {
            Measured::of(|| {
                let done = case.simulate_watched(Some(&mut Seen::new(Time::ZERO, None, true)));
                (done.record, done.ops)
            })
        };
        print_run(&format!("{name}, for a page"), &Measured::median(REPEATS, watched));
    }
}

/// A hundred thousand tenants and a million, on cards with as much more memory as their heads take: as many adapters
/// fit as before.
const TENANTS_100K: &[&str] = &["tenants.count=100000", "cluster.gpu_memory=1488 MiB"];
const TENANTS_1M: &[&str] = &["tenants.count=1000000", "cluster.gpu_memory=6769 MiB"];

/// Nanoseconds that each of `count` takes.
fn print_part(name: &str, count: u64, mut all: impl FnMut()) {
    let each = |_| {
        let start_s = busy_s();
        all();
        (busy_s() - start_s) * 1e9 / count as f64
    };
    let mut ns: Vec<f64> = (0..REPEATS).map(each).collect();
    ns.sort_by(f64::total_cmp);
    println!("{name:<56}{:>14.1}", ns[REPEATS / 2]);
}

/// What every simulation does often.
fn parts() {
    const COUNT: u64 = 1 << 22;
    println!("\n{:<56}{:>14}", "part", "ns each");
    let card = synthetic_card();
    let tiny = ModelShape::builtin("tiny").expect("it is built in");
    let layer = card.encoder_layer(&tiny, DType::F32).expect("the card has it");
    // Enough that branches cannot be learnt.
    let mixed = |index: u64, below: u64| 1 + ((index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % below) as u32;
    let shapes: Vec<(u32, u32)> =
        { 0..1 << 16 }.map(|index| (mixed(index, 48), mixed(index + (1 << 16), 192))).collect();
    print_part("look a layer's price up", COUNT, || {
        for &(batch, tokens) in shapes.iter().cycle().take(COUNT as usize) {
            black_box(layer.cost(batch, tokens));
        }
    });
    let mut stream = Draws::new(7, Purpose::Jitter).about(0);
    print_part("draw from its spread", COUNT, || {
        let cost = Drawn::from(layer.cost(8, 128));
        for _ in 0..COUNT {
            black_box(cost.at_quantile(stream.unit()));
        }
    });
    for (name, case) in [
        ("hmi", case("hmi", HMI, &[])),
        ("punica", case("punica", PUNICA, &["workload.stop.requests=1000000"])),
    ] {
        print_part(&format!("generate a request of {name}"), 1_000_000, || {
            let mut workload = tenantry_traces::build(&case.run.workload).expect("the workload is sound");
            while workload.next().expect("generators read nothing").is_some() {}
        });
    }
    print_part("record a duration", COUNT, || {
        let mut durations = Tally::default();
        (0..COUNT).for_each(|index| durations.record(Duration(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36)));
        black_box(durations.into_durations().max_ns());
    });
}

/// Cards that have their own compute lanes each, as the synthetic one has not.
const CARD_1: &[&str] = &["card=v100"];
const CARDS_10: &[&str] = &["card=v100", "cluster.gpus=10", "workload.arrivals.poisson.rate=38000/s"];
const CARDS_100: &[&str] = &[
    "card=v100",
    "cluster.gpus=100",
    "workload.arrivals.poisson.rate=380000/s",
];
/// The same with a hundred tenants, whose adapters every card has soon: as many ops a request on each number of cards.
const CARD_1_WARM: &[&str] = &["card=v100", "tenants.count=100"];
const CARDS_10_WARM: &[&str] = &[
    "card=v100",
    "tenants.count=100",
    "cluster.gpus=10",
    "workload.arrivals.poisson.rate=38000/s",
];
const CARDS_100_WARM: &[&str] = &[
    "card=v100",
    "tenants.count=100",
    "cluster.gpus=100",
    "workload.arrivals.poisson.rate=380000/s",
];
const MODELS_1: &[&str] = &[
    "card=v100",
    "models.backbone=bert-base",
    "cluster.gpu_memory=8 GiB",
    "workload.arrivals.poisson.rate=20/s",
];
const MODELS_10: &[&str] = &[
    "card=v100",
    "models.backbone=bert-base",
    "cluster={gpus: 10, gpu_memory: 8 GiB}",
    "workload.arrivals.poisson.rate=200/s",
];
const MODELS_100: &[&str] = &[
    "card=v100",
    "models.backbone=bert-base",
    "cluster={gpus: 100, gpu_memory: 8 GiB}",
    "workload.arrivals.poisson.rate=2000/s",
];

/// What is grown, and by which overrides before and after. The rate grows with the cards.
const SLOPES: [(&str, &str, &str, [&[&str]; 2]); 19] = [
    ("tenants × 10", "hmi", HMI, [&[], TENANTS_100K]),
    ("tenants × 100", "hmi", HMI, [&[], TENANTS_1M]),
    (
        "cards × 10",
        "arlo",
        ARLO,
        [&["cluster.gpus=100", "workload.arrivals.poisson.rate=25000/s"], &[]],
    ),
    (
        "cards × 100",
        "arlo",
        ARLO,
        [&["cluster.gpus=10", "workload.arrivals.poisson.rate=2500/s"], &[]],
    ),
    (
        "cards × 10",
        "punica",
        PUNICA,
        [&[], &["cluster.gpus=10", "workload.arrivals.poisson.rate=10/s"]],
    ),
    (
        "cards × 100",
        "punica",
        PUNICA,
        [
            &[ALIKE],
            &[ALIKE, "cluster.gpus=100", "workload.arrivals.poisson.rate=100/s"],
        ],
    ),
    ("cards × 10", "hmi", HMI, [CARD_1, CARDS_10]),
    ("cards × 100", "hmi", HMI, [CARD_1, CARDS_100]),
    ("cards × 10, 100 tenants", "hmi", HMI, [CARD_1_WARM, CARDS_10_WARM]),
    ("cards × 100, 100 tenants", "hmi", HMI, [CARD_1_WARM, CARDS_100_WARM]),
    ("cards × 10", "swapping", SWAPPING, [MODELS_1, MODELS_10]),
    ("cards × 100", "swapping", SWAPPING, [MODELS_1, MODELS_100]),
    // One card at the rate at which its batches are as large as placing makes those of many.
    (
        "cards × 16, batches alike",
        "punica",
        PUNICA,
        [
            &[ALIKE, "workload.arrivals.poisson.rate=2.7/s"],
            &[ALIKE, "cluster.gpus=16", "workload.arrivals.poisson.rate=16/s"],
        ],
    ),
    (
        "rate × 10",
        "hmi",
        HMI,
        [&["workload.arrivals.poisson.rate=380/s"], &[]],
    ),
    (
        "rate × 10",
        "arlo",
        ARLO,
        [&["workload.arrivals.poisson.rate=25000/s"], &[]],
    ),
    (
        "rate × 10",
        "punica",
        PUNICA,
        [&["workload.arrivals.poisson.rate=0.1/s"], &[]],
    ),
    ("length × 10", "hmi", HMI, [&["workload.stop.requests=100000"], &[]]),
    ("length × 10", "arlo", ARLO, [&["workload.stop.requests=100000"], &[]]),
    (
        "length × 10",
        "punica",
        PUNICA,
        [&["workload.stop.requests=10000"], &[]],
    ),
];

fn slopes() {
    println!(
        "\n{:<28}{:<10}{:>14}{:>14}{:>8}",
        "grown", "system", "ns/request", "then", "ratio"
    );
    for (what, name, yaml, overrides) in SLOPES {
        let cases = overrides.map(|overrides| case(name, yaml, overrides));
        // In turns, so that what disturbs the machine for a while disturbs both.
        let turns: Vec<[f64; 2]> = (0..REPEATS_COMPARED)
            .map(|_| cases.each_ref().map(|case| Measured::once(case).ns_per_request()))
            .collect();
        let [before, after] = [0, 1].map(|which| {
            let mut ns: Vec<f64> = turns.iter().map(|turn| turn[which]).collect();
            ns.sort_by(f64::total_cmp);
            ns[REPEATS_COMPARED / 2]
        });
        println!("{what:<28}{name:<10}{before:>14.1}{after:>14.1}{:>8.2}", after / before);
    }
}

/// Live bytes of what `make` makes.
fn live_bytes<T>(make: impl FnOnce() -> T) -> usize {
    let before = HEAP.current_usage();
    let made = make();
    let bytes = HEAP.current_usage() - before;
    drop(made);
    bytes
}

fn memory() {
    println!("\n{:<56}{:>14}", "memory", "bytes");
    let of_tenants = |overrides: &[&str]| {
        let case = case("hmi", HMI, overrides);
        live_bytes(|| case.server()) as f64
    };
    let per_tenant = (of_tenants(TENANTS_1M) - of_tenants(&[])) / 990_000.0;
    println!("{:<56}{per_tenant:>14.1}", "hmi, each tenant");
    let of_cards = |gpus: u32| {
        let gpus = format!("cluster={{gpus: {gpus}, gpu_memory: 12 GiB}}");
        let case = case("hmi", HMI, &["card=v100", "tenants.count=1000000", &gpus]);
        live_bytes(|| case.server()) as f64
    };
    let per_card = (of_cards(11) - of_cards(1)) / 10e6;
    println!("{:<56}{per_card:>14.1}", "hmi, each tenant for each further card");
    for (name, yaml) in [("hmi", HMI), ("punica", PUNICA)] {
        let at_once = |requests: &str| {
            let burst =
                format!("workload.arrivals={{burst: {{threads: {requests}, stagger: 0s, period: 1s, repeats: 1}}}}");
            let stop = format!("workload.stop={{requests: {requests}}}");
            Measured::once(&case(name, yaml, &[&burst, &stop])).peak_bytes as f64
        };
        // Tables grow by doubling: between powers of two the slope is theirs.
        let per_request = (at_once("262144") - at_once("131072")) / 131_072.0;
        println!("{:<56}{per_request:>14.1}", format!("{name}, each request in flight"));
    }
    let million = Measured::once(&case("hmi", HMI, TENANTS_1M));
    println!(
        "{:<56}{:>14}",
        "hmi, peak at 1 M tenants",
        mebibytes(million.peak_bytes)
    );
}

fn long() {
    let case = case("hmi", HMI, &["workload.stop.requests=100000000"]);
    println!();
    print_run("hmi, 100 M requests", &Measured::once(&case));
}

fn sweep() {
    let case = case("hmi", HMI, &[]);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let runs = 8 * cores;
    let seconds = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        let start = Instant::now();
        pool.install(|| (0..runs).into_par_iter().for_each(|_| drop(case.simulate())));
        start.elapsed().as_secs_f64()
    };
    // In turns, so that what disturbs the machine for a while disturbs both.
    let mut ratios: Vec<f64> = (0..REPEATS_COMPARED).map(|_| seconds(1) / seconds(cores)).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "\na sweep of {runs} runs on {cores} cores: {:.2} times one core",
        ratios[REPEATS_COMPARED / 2]
    );
}

/// The most memory that this process has had, the program itself included, as the system counts it.
fn print_resident() {
    let all = std::fs::read_to_string("/proc/self/status").expect("the benchmark runs on Linux");
    let most = all.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(
        "\nmost memory as the system counts it: {}",
        most.map_or("unknown", str::trim)
    );
}

fn main() {
    // Cargo passes flags of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (overrides, named): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| argument.contains('='));
    let asked = |what: &str| named.iter().any(|named| named == what);
    let only: Vec<_> = ALL.into_iter().filter(|(name, _)| asked(name)).collect();
    let known =
        |named: &&String| ["disturbed", "long"].contains(&named.as_str()) || ALL.iter().any(|(name, _)| name == named);
    let names = ALL.map(|(name, _)| name).join(", ");
    if let Some(unknown) = named.iter().find(|named| !known(named)) {
        refuse(&format!("{unknown}: must be {names}, disturbed, long or path=value"));
    }
    if only.is_empty() && (asked("disturbed") || !overrides.is_empty()) {
        refuse(&format!(
            "disturbed and path=value must be of systems: {names}; got none"
        ));
    }
    if !only.is_empty() {
        for (name, yaml) in only {
            let case = Case::new(name, yaml, &overrides);
            let case = if asked("disturbed") { case.disturbed() } else { case };
            print_run(name, &Measured::once(&case));
        }
        print_resident();
        return;
    }
    systems();
    parts();
    slopes();
    memory();
    sweep();
    if asked("long") {
        long();
    }
}

fn refuse(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}
