//! How an answer moves when the load or a price does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use tenantry_reports::human;
use tenantry_reports::plan::{Move, sure};
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Objective, Scenario};
use tenantry_sim::plan::{Cell, Sample, Search};

use crate::failure::Failure;
use crate::planning::evaluate::{Evaluator, Known};
use crate::planning::found::{find, rules, short, system};
use crate::planning::offers::affordable;

/// A fifth more, and a fifth less.
const BY: [(f64, &str); 2] = [(1.2, "more"), (0.8, "less")];

/// Searches again under other circumstances.
pub struct Moving<'a> {
    pub scenario: &'a Scenario,
    pub plan: &'a Plan,
    pub interrupt: &'a Arc<AtomicBool>,
    pub bar: &'a ProgressBar,
    /// What the plan ran, which is not run again.
    pub known: &'a Arc<Known>,
}

/// What another search found.
struct Another {
    /// In words, with how sure it is where that is less than asked for.
    then: String,
    /// The system, the card, and how many cards, tenants and times the load.
    what: Option<(String, String, u32, u32, f64)>,
}

impl Moving<'_> {
    /// The answer with another load. The highest rate is the load: it does not move with it.
    pub fn with_load(&self) -> Result<Vec<Move>, Failure> {
        let mut moves = Vec::new();
        if self.plan.find == Objective::HighestRate {
            return Ok(moves);
        }
        for (factor, word) in BY {
            // Of few clients it is more than a fifth, or less.
            let clients = self.scenario.clients_at(factor);
            if clients.is_some() && clients == self.scenario.clients_at(1.0) {
                moves.push(Move {
                    when: format!("With 20 % {word} load"),
                    then: "cannot be asked: of so few clients that is none".to_owned(),
                });
                continue;
            }
            let clients = clients.map_or(String::new(), |clients| format!(" ({} clients)", human::count(clients)));
            let then = match self.again(self.plan, factor) {
                // The answer stands all the same: some loads cannot be scaled.
                Err(Failure::BadInput(why)) => format!("cannot be asked: {why}"),
                another => another?.then,
            };
            moves.push(Move {
                when: format!("With 20 % {word} load{clients}"),
                then,
            });
        }
        Ok(moves)
    }

    /// The answer with another price for one of the cards, where prices decide: between cards, or how many can be paid.
    /// What was run is not run again where as many can be.
    pub fn with_prices<F>(
        &self,
        search: &mut Search<F>,
        evaluator: &Evaluator<'_>,
        best: Cell,
    ) -> Result<Vec<Move>, Failure>
    where
        F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
    {
        let mut moves = Vec::new();
        let plan = self.plan;
        let by_cost = plan.find == Objective::LeastCost;
        if !(by_cost && plan.cards.len() > 1 || plan.max_cost_per_hour.is_some()) {
            return Ok(moves);
        }
        for (index, (card, price)) in plan.cards.iter().enumerate() {
            let Some(price) = *price else { continue };
            for (factor, word) in BY {
                let changed = price * factor;
                let then = if affordable(plan, Some(changed)) != affordable(plan, Some(price)) {
                    let mut at_this_price = plan.clone();
                    at_this_price.cards[index].1 = Some(changed);
                    self.with_other_prices(&at_this_price, evaluator, best)?
                } else if by_cost {
                    let found = find(search, evaluator, &BTreeMap::from([(card.as_str(), changed)]))?;
                    let other = found.best.filter(|found| *found != best);
                    // What is compared are the choices.
                    other.map(|other| format!("{}, at today's prices", short(evaluator, search, Some(other))))
                } else {
                    None
                };
                moves.push(Move {
                    when: format!("If {card} costs 20 % {word}"),
                    then: then.unwrap_or_else(|| "the same".to_owned()),
                });
            }
        }
        Ok(moves)
    }

    /// Searches among the cards that `plan`'s prices allow; nothing where that comes to the same.
    fn with_other_prices(&self, plan: &Plan, evaluator: &Evaluator<'_>, best: Cell) -> Result<Option<String>, Failure> {
        if plan.cards.iter().all(|(_, price)| affordable(plan, *price).is_empty()) {
            return Ok(Some("not one of the cards can be paid".to_owned()));
        }
        let another = self.again(plan, 1.0)?;
        Ok((another.what != Some(what(evaluator, best))).then_some(another.then))
    }

    fn again(&self, plan: &Plan, load: f64) -> Result<Another, Failure> {
        let known = Arc::clone(self.known);
        let evaluator = Evaluator::new(
            self.scenario,
            plan,
            load,
            known,
            Arc::clone(self.interrupt),
            self.bar.clone(),
        )?;
        let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
        let found = find(&mut search, &evaluator, &BTreeMap::new())?;
        let close = (found.confidence < plan.confidence).then(|| format!(" ({} sure)", sure(found.confidence)));
        Ok(Another {
            then: short(&evaluator, &search, found.best) + &close.unwrap_or_default(),
            what: found.best.map(|cell| what(&evaluator, cell)),
        })
    }
}

fn what(evaluator: &Evaluator<'_>, cell: Cell) -> (String, String, u32, u32, f64) {
    let (point, card) = (evaluator.point(cell), evaluator.offers[cell.candidate].card);
    (
        system(evaluator, cell),
        card.to_owned(),
        point.gpus,
        point.tenants,
        point.load,
    )
}
