//! PetS (parameter-efficient tasks on one shared model), on `paper-tx2`, `paper-gtx1080ti` and `paper-v100`.

mod batching;
mod memory;
mod throughput;

use super::Figure;
use super::lab::{Lab, Runs};
use super::row::Row;
use crate::failure::Failure;

/// Above its tables.
pub const TITLE: &str = "PetS: parameter-efficient tasks in one batch (cards paper-tx2, paper-gtx1080ti, paper-v100)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    memory::table_5,
    throughput::figure_7,
    throughput::figure_8,
    throughput::figure_9,
    memory::figure_10,
    batching::figure_11,
    batching::figure_12,
    batching::online,
    not_checkable,
];

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
    lab.runs(scenario, &set.iter().map(String::as_str).collect::<Vec<_>>())
}

fn not_checkable(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![
        Row::not_checkable(
            "Fig. 7, 8, 11, 12",
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
