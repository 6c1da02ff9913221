//! A plan from its search to all that is said of it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use tenantry_reports::plan::{PlanReport, PlanRuns};
use tenantry_reports::summary::rounded;
use tenantry_scenarios::Scenario;
use tenantry_scenarios::plan::Plan;
use tenantry_sim::plan::{Cell, Search};

use crate::failure::Failure;
use crate::planning::evaluate::{Evaluator, Known};
use crate::planning::explanation::Explanation;
use crate::planning::found::{find, rules};
use crate::planning::front::{around, front};
use crate::planning::moves::Moving;

/// A plan, and the scenario that it found.
pub struct Planned {
    pub report: PlanReport,
    pub best: Option<Scenario>,
    /// What a reader must know of the tables that priced its runs.
    pub caveats: Vec<String>,
}

/// Plans. What is run is kept in `known`.
pub fn answer(
    scenario: &Scenario,
    plan: &Plan,
    known: &Arc<Known>,
    interrupt: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<Planned, Failure> {
    let evaluator = Evaluator::new(
        scenario,
        plan,
        1.0,
        Arc::clone(known),
        Arc::clone(interrupt),
        bar.clone(),
    )?;
    let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
    let mut found = find(&mut search, &evaluator, &BTreeMap::new())?;
    let mut for_answer = evaluator.made();
    // What is run for the front alone may be better all the same.
    let moving = Moving {
        scenario,
        plan,
        interrupt,
        bar,
        known,
    };
    let mut moves = Vec::new();
    while let Some(best) = found.best {
        search.begin(&around(&evaluator, &found, best))?;
        found = find(&mut search, &evaluator, &BTreeMap::new())?;
        if found.best == Some(best) {
            moves = moving.with_prices(&mut search, &evaluator, best)?;
            // So may be what other prices make worth a run.
            found = find(&mut search, &evaluator, &BTreeMap::new())?;
        }
        if found.best == Some(best) {
            break;
        }
        for_answer = evaluator.made();
    }
    let best = match found.best {
        None => None,
        Some(cell) => {
            moves.extend(moving.with_load()?);
            Some(evaluator.scenario_of(cell, 1).map_err(Failure::Running)?)
        }
    };
    let said = Explanation {
        scenario,
        evaluator: &evaluator,
        search: &search,
        found: &found,
        nearest: OnceCell::new(),
    };
    let (cost_unit, front) = front(&evaluator, &search, &found);
    let report = PlanReport {
        schema: 1,
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        find: serde_json::to_value(plan.find)
            .map_err(Failure::running)?
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        feasible: found.best.is_some(),
        answer: said.sentence()?,
        confidence: rounded(found.confidence),
        options: said.options(),
        front,
        latency_at: format!("p{}", rounded(evaluator.quantile() * 100.0)),
        cost_unit,
        binds: said.binds()?,
        moves,
        runs: PlanRuns {
            answer: for_answer,
            all: evaluator.made(),
            everything: evaluator.levels.iter().map(Vec::len).sum(),
        },
        notes: said.notes()?,
    };
    let caveats = evaluator.caveats();
    Ok(Planned { report, best, caveats })
}
