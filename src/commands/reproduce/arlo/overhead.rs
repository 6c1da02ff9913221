//! What deciding takes on this machine: Fig. 9 and Table 2.

use std::time::Instant;

use tenantry_core::ids::InstanceId;
use tenantry_core::policy::fleet::{Question, RuntimeQuestion, StreamQuestion};
use tenantry_core::policy::levels::{LevelSpec, Levels, Rule};
use tenantry_core::spec::SolverSpec;
use tenantry_traces::Duration;

use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Repeats of which the shortest counts.
const REPEATS: u32 = 20;

/// The shortest of several, in seconds; each is given something fresh.
fn shortest_s<T>(fresh: impl Fn() -> T, mut timed: impl FnMut(&mut T)) -> f64 {
    let one = |_| {
        let mut given = fresh();
        let started = Instant::now();
        timed(&mut given);
        started.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(one).fold(f64::INFINITY, f64::min)
}

/// BERT-base within 150 ms, compiled for so many lengths.
fn runtimes(count: u32) -> impl Iterator<Item = (u32, u32, u64)> {
    (1..=count).map(move |at| {
        let service_us = 1_152 + 3_708 * at / count;
        (512 * at / count, 150_000 / service_us, u64::from(service_us))
    })
}

/// Dispatching 2,400 requests at once to 1,200 instances of 12 runtimes.
pub fn figure_9(_: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 9";
    let specs: Vec<LevelSpec> = runtimes(12)
        .map(|(max_length, capacity, _)| LevelSpec { max_length, capacity })
        .collect();
    let rule = Rule::Demote {
        threshold: 0.85,
        decay: 0.9,
        peek: 6,
    };
    let mut full = Levels::new(&specs, rule);
    for instance in 0..1200 {
        let level = (instance % 12) as usize;
        full.add(
            InstanceId(instance),
            level,
            specs[level].capacity * (80 + instance % 20) / 100,
        );
    }
    // Most are short: squares of a spread.
    let lengths: Vec<u32> = (0..2400).map(|n: u32| (n * 7 % 2400).pow(2) / 11_300 + 1).collect();
    let burst = |cluster: &mut Levels| {
        for &length in &lengths {
            let instance = cluster.dispatch(length.min(512)).expect("a runtime serves 512 tokens");
            cluster.load_changed(instance, 1);
        }
    };
    let ms = 1e3 * shortest_s(|| full.clone(), burst);
    Ok(vec![
        Row::assumed(FIGURE, "2,400 requests to 1,200 instances", "ms", Some(0.737), ms).note(
            "wall time of this machine, one thread, the best of 20; loads of 80 to 99 % of the capacity are assumed",
        ),
    ])
}

/// Solving the program.
pub fn table_2(_: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 2";
    let mut rows = Vec::new();
    for (cards, count, paper) in [(50, 8, 0.156), (200, 12, 0.623), (1000, 16, 2.612)] {
        let stream = StreamQuestion {
            slo: Duration::from_millis(150),
            runtimes: runtimes(count)
                .map(|(max_length, capacity, service_us)| RuntimeQuestion {
                    max_length,
                    capacity,
                    service: Duration::from_micros(service_us),
                    // Two thirds of what the cards serve, halved from one length to the next.
                    requests: (u64::from(cards) * 350 * 120) >> (1 + 8 * (max_length - 1) / 512),
                    previous: 0,
                })
                .collect(),
        };
        let question = Question {
            streams: vec![stream],
            instances: cards,
            span: Duration::from_secs(120),
            solver: SolverSpec::Dynamic,
        };
        let seconds = shortest_s(|| (), |_| drop(std::hint::black_box(tenantry_sim::allocate(&question))));
        rows.push(
            Row::assumed(FIGURE, format!("{cards} cards, {count} runtimes"), "s", Some(paper), seconds).note(
                "wall time of this machine, one thread, the best of 20; the dynamic program against the paper's Gurobi; the demand is assumed",
            ),
        );
    }
    Ok(rows)
}
