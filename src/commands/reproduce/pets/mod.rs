//! PetS (parameter-efficient tasks on one shared model), on `paper-tx2`, `paper-gtx1080ti` and `paper-v100`.

mod batching;
pub mod memory;
mod online;
mod streams;
pub mod throughput;

use super::Figure;
use super::lab::{Lab, Runs};
use super::row::Row;
use crate::failure::Failure;

/// Above its tables.
pub const TITLE: &str = "PetS: parameter-efficient tasks in one batch (cards paper-tx2, paper-gtx1080ti, paper-v100)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    memory::table_1,
    memory::table_5,
    throughput::figure_7,
    throughput::figure_8,
    throughput::figure_8_alone,
    throughput::figure_9,
    memory::figure_10,
    streams::figure_11,
    batching::figure_12,
    online::online,
    not_checkable,
];

/// How far every prediction may be off, whatever came out: what the other papers' predictions mostly have.
const TOLERANCE: f64 = 0.1;

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn least(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

fn greatest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Queries of one shape from so many tasks at once.
#[derive(Clone, Copy, Debug)]
struct Queries<'a> {
    card: &'a str,
    model: &'a str,
    tasks: u32,
    /// Queries of each.
    each: u32,
    tokens: u32,
}

/// A scenario whose first systems plan pools, with these queries in one pool.
fn runs(lab: &Lab, scenario: &str, systems: u32, queries: Queries<'_>) -> Result<Runs, Failure> {
    runs_with(lab, scenario, systems, queries, &[])
}

/// The same with more changes.
fn runs_with(lab: &Lab, scenario: &str, systems: u32, queries: Queries<'_>, more: &[&str]) -> Result<Runs, Failure> {
    let Queries {
        card,
        model,
        tasks,
        each,
        tokens,
    } = queries;
    let all = tasks * each;
    let mut set = vec![
        format!("card={card}"),
        format!("models.backbone={model}"),
        format!("tenants.count={tasks}"),
        format!("workload.arrivals.burst.threads={all}"),
        format!("workload.lengths.input.fixed={tokens}"),
    ];
    set.extend((0..systems).map(|system| format!("systems[{system}].tasks.planning.pool.size={all}")));
    // Each task has a stream of its own, and a pool of its own queries.
    if systems > 1 {
        set.push(format!("systems[{systems}].tasks.planning.pool.size={each}"));
    }
    let set: Vec<&str> = set.iter().map(String::as_str).chain(more.iter().copied()).collect();
    lab.runs(scenario, &set)
}

fn not_checkable(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![
        Row::not_checkable(
            "Figs. 7, 8, 11, 12",
            "each bar and point",
            "the images are lost; the text has averages and extremes",
        ),
        Row::not_checkable(
            "Table 1",
            "accuracy of the four kinds",
            "weights are random here; each kind's batched result is tested against its dense merge",
        ),
    ])
}
