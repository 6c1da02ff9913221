//! How an answer moves when the load or a price does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use tenantry_reports::plan::{Move, sure};
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Objective, Scenario};
use tenantry_sim::plan::{Cell, Sample, Search};

use crate::failure::Failure;
use crate::planning::evaluate::Evaluator;
use crate::planning::found::{find, rules, short};

/// A fifth more, and a fifth less.
const BY: [(f64, &str); 2] = [(1.2, "more"), (0.8, "less")];

/// The answer with another load; and the runs that it took.
pub fn with_load(
    scenario: &Scenario,
    plan: &Plan,
    interrupt: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<(Vec<Move>, usize), Failure> {
    let mut moves = Vec::new();
    let mut runs = 0;
    // The highest rate is the load: it does not move with it.
    if plan.find == Objective::HighestRate {
        return Ok((moves, runs));
    }
    for (factor, word) in BY {
        let evaluator = Evaluator::new(scenario, plan, factor, Arc::clone(interrupt), bar.clone())?;
        let mut search = Search::new(rules(scenario, &evaluator)?, |cells: &[(Cell, u32)]| {
            evaluator.run(cells)
        });
        let found = find(&mut search, &evaluator, &BTreeMap::new())?;
        runs += search.runs() + evaluator.extra_runs();
        let close = (found.confidence < plan.confidence).then(|| format!(" ({} sure)", sure(found.confidence)));
        moves.push(Move {
            when: format!("With 20 % {word} load"),
            then: short(&evaluator, &search, found.best) + &close.unwrap_or_default(),
        });
    }
    Ok((moves, runs))
}

/// The answer with another price for one of the cards. What was run is not run again.
pub fn with_prices<F>(search: &mut Search<F>, evaluator: &Evaluator<'_>, best: Cell) -> Result<Vec<Move>, Failure>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    let mut moves = Vec::new();
    if evaluator.plan.find != Objective::LeastCost || evaluator.plan.cards.len() < 2 {
        return Ok(moves);
    }
    for (card, price) in &evaluator.plan.cards {
        let Some(price) = price else { continue };
        for (factor, word) in BY {
            let prices = BTreeMap::from([(card.as_str(), price * factor)]);
            let found = find(search, evaluator, &prices)?;
            let same = found.best == Some(best);
            moves.push(Move {
                when: format!("If {card} costs 20 % {word}"),
                then: match same {
                    true => "the same".to_owned(),
                    // At the plan's prices: what is compared are the choices.
                    false => format!("{}, at today's prices", short(evaluator, search, found.best)),
                },
            });
        }
    }
    Ok(moves)
}
