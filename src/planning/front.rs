//! The front of cost and latency.

use std::collections::{BTreeMap, BTreeSet};

use tenantry_reports::plan::{CostUnit, FrontPoint};
use tenantry_reports::summary::rounded;
use tenantry_scenarios::Objective;
use tenantry_sim::plan::{Cell, Sample, Search};

use crate::failure::Failure;
use crate::planning::evaluate::Evaluator;
use crate::planning::found::{Found, system};

/// What is compared for the front of cost and latency: every offer where it costs as much as the answer, a level more,
/// twice and four times as much and the most, whatever the search ran; and less as well, where the answer is not what
/// costs least. Offers that cannot be an answer at all are left out.
pub fn around(evaluator: &Evaluator<'_>, found: &Found, best: Cell) -> Vec<Cell> {
    let candidates = evaluator.candidates(&BTreeMap::new());
    let value = candidates[best.candidate].values[best.level];
    let factors: &[f64] = match evaluator.plan.find {
        Objective::TightestLatency => &[0.25, 0.5, 1.0, 2.0, 4.0],
        _ => &[1.0, 2.0, 4.0],
    };
    let mut cells = vec![best];
    for (candidate, standing) in found.standings.iter().enumerate() {
        if standing.decided_by.candidate == candidate && evaluator.refused(standing.decided_by).is_some() {
            continue;
        }
        let values = &candidates[candidate].values;
        // Values of loads are negative: half as much costs twice as much a request.
        let at = |factor: f64| {
            let least = if value < 0.0 { value / factor } else { value * factor };
            values.partition_point(|value| *value < least - 1e-9 * least.abs())
        };
        let mut levels: Vec<usize> = factors.iter().map(|factor| at(*factor)).collect();
        levels.extend([at(1.0) + 1, values.len() - 1]);
        levels.retain(|level| *level < values.len());
        cells.extend(levels.into_iter().map(|level| Cell { candidate, level }));
    }
    cells.sort_unstable();
    cells.dedup();
    cells
}

/// What is compared, and of all else that was run what nothing beats in both. All by the first seed, over the same
/// requests: what keeps the target and was run to its end.
pub fn front<F>(evaluator: &Evaluator<'_>, search: &Search<F>, found: &Found) -> (CostUnit, Vec<FrontPoint>)
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    let unit = unit(evaluator);
    let compared: BTreeSet<Cell> = found.best.map_or(BTreeSet::new(), |best| {
        around(evaluator, found, best).into_iter().collect()
    });
    let run: Vec<(Cell, (f64, f64))> =
        search.cells().filter_map(|cell| Some((cell, at(evaluator, search, unit, cell)?))).collect();
    let mut points: Vec<FrontPoint> = run
        .iter()
        .map(|&(cell, (cost, latency_ms))| {
            let on_front = !run.iter().any(|(_, other)| beats(*other, (cost, latency_ms)));
            let level = evaluator.point(cell);
            let point = FrontPoint {
                name: system(evaluator, cell),
                card: evaluator.offers[cell.candidate].card.to_owned(),
                gpus: level.gpus,
                tenants: Some(level.tenants),
                offered_rps: evaluator.rate_per_s(cell).map(rounded),
                cost: rounded(cost),
                latency_ms: rounded(latency_ms),
                on_front,
            };
            (cell, point)
        })
        .filter(|(cell, point)| point.on_front || compared.contains(cell))
        .map(|(_, point)| point)
        .collect();
    points.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(a.latency_ms.total_cmp(&b.latency_ms)));
    (unit, points)
}

/// Whether something that costs and takes so much is at least as good as another in both, and better in one.
pub fn beats(this: (f64, f64), other: (f64, f64)) -> bool {
    this.0 <= other.0 && this.1 <= other.1 && this != other
}

/// What a cell costs, and its latency by the first seed; nothing where it does not keep the target, or was refused.
pub fn at<F>(evaluator: &Evaluator<'_>, search: &Search<F>, unit: CostUnit, cell: Cell) -> Option<(f64, f64)>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    if evaluator.refused(cell).is_some() || !search.judged(cell)?.meets {
        return None;
    }
    let latency_ms = search.latency_ms(cell, 1);
    let point = evaluator.point(cell);
    let an_hour = match unit {
        CostUnit::CostPerHour | CostUnit::CostPerMillion => point.cost?,
        CostUnit::Cards | CostUnit::CardHoursPerMillion => point.gpus.into(),
    };
    let cost = match unit {
        CostUnit::Cards | CostUnit::CostPerHour => an_hour,
        CostUnit::CardHoursPerMillion | CostUnit::CostPerMillion => evaluator.cost_per_million(cell, an_hour)?,
    };
    latency_ms.is_finite().then_some((cost, latency_ms))
}

/// By the plan's prices where all cards have one; per request where the load differs.
fn unit(evaluator: &Evaluator<'_>) -> CostUnit {
    let priced = evaluator.offers.iter().all(|offer| offer.price.is_some());
    let by_load = matches!(evaluator.plan.find, Objective::MostTenants | Objective::HighestRate);
    match (priced, by_load) {
        (false, false) => CostUnit::Cards,
        (true, false) => CostUnit::CostPerHour,
        (false, true) => CostUnit::CardHoursPerMillion,
        (true, true) => CostUnit::CostPerMillion,
    }
}
