//! What a search found, in words.

use std::collections::{BTreeMap, BTreeSet};

use tenantry_core::in_time::Slo;
use tenantry_reports::human;
use tenantry_reports::plan::name;
use tenantry_reports::summary::rounded;
use tenantry_scenarios::Objective;
use tenantry_sim::plan::{Cell, Rules, Sample, Search, Standing};

use crate::failure::Failure;
use crate::planning::evaluate::Evaluator;

/// Of either kind of search.
pub struct Found {
    pub best: Option<Cell>,
    pub confidence: f64,
    /// What leaves most of the doubt, where one cell does.
    pub least_sure: Option<Cell>,
    pub standings: Vec<Standing>,
    /// Others that could not be told from the best.
    pub tied: Vec<Cell>,
}

/// Searches with these prices in place of the plan's, until what is found keeps the target for longer than a run lasts,
/// too.
pub fn find<F>(
    search: &mut Search<F>,
    evaluator: &Evaluator<'_>,
    prices: &BTreeMap<&str, f64>,
) -> Result<Found, Failure>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    loop {
        let found = by_runs(search, evaluator, prices)?;
        match found.best {
            Some(best) if evaluator.falls_behind(best)? => {
                let level = last_behind(evaluator, best)?;
                search.refuse_up_to(Cell { level, ..best });
            }
            _ => return Ok(found),
        }
    }
}

/// The most generous level of a candidate that falls behind with one of its levels: by strides that double, then by
/// bisection. Far more generous ones are not asked first, which may miss the target for other reasons.
fn last_behind(evaluator: &Evaluator<'_>, behind: Cell) -> Result<usize, Failure> {
    let falls_behind = |level: usize| evaluator.falls_behind(Cell { level, ..behind });
    let levels = evaluator.levels[behind.candidate].len();
    let (mut low, mut stride) = (behind.level, 1);
    while low + stride < levels && falls_behind(low + stride)? {
        low += stride;
        stride *= 2;
    }
    let mut high = (low + stride).min(levels);
    while high - low > 1 {
        let level = usize::midpoint(low, high);
        match falls_behind(level)? {
            true => low = level,
            false => high = level,
        }
    }
    Ok(low)
}

/// Likewise by runs of the scenario's length alone.
pub fn by_runs<F>(
    search: &mut Search<F>,
    evaluator: &Evaluator<'_>,
    prices: &BTreeMap<&str, f64>,
) -> Result<Found, Failure>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    let candidates = evaluator.candidates(prices);
    if evaluator.plan.find == Objective::TightestLatency {
        let race = search.tightest(&candidates)?;
        return Ok(Found {
            best: race.best,
            confidence: (race.confidence - wrong_about_answers(evaluator, race.best, &race.standings)).max(0.0),
            least_sure: None,
            standings: race.standings,
            tied: race.tied,
        });
    }
    let answer = search.best(&candidates)?;
    Ok(Found {
        best: answer.best,
        confidence: (answer.confidence - wrong_about_answers(evaluator, answer.best, &answer.standings)).max(0.0),
        least_sure: answer.least_sure,
        standings: answer.standings,
        tied: Vec::new(),
    })
}

/// The doubts that the best is right often enough, and that what was given up for its answers is not.
fn wrong_about_answers(evaluator: &Evaluator<'_>, best: Option<Cell>, standings: &[Standing]) -> f64 {
    let Some(least) = evaluator.plan.min_accuracy else {
        return 0.0;
    };
    let decided: BTreeSet<Cell> = standings.iter().map(|standing| standing.decided_by).chain(best).collect();
    let doubt = |cell: &Cell| {
        let answers = evaluator.answers(*cell)?;
        let counts = best == Some(*cell) || !answers.are_enough(least);
        counts.then(|| 1.0 - answers.sure(least))
    };
    decided.iter().filter_map(doubt).sum()
}

/// The rules of a plan's decisions.
pub fn rules(evaluator: &Evaluator<'_>) -> Rules {
    Rules {
        // Without an objective as many must be answered as the latency is read of: nobody is the fastest by turning
        // requests away.
        share: evaluator.quantile(),
        has_target: evaluator.has_target(),
        confidence: evaluator.plan.confidence,
        quantile: evaluator.quantile(),
        seeds: evaluator.seeds(),
        repeats: evaluator.repeats,
    }
}

/// The system of a cell with its settings.
pub fn system(evaluator: &Evaluator<'_>, cell: Cell) -> String {
    let way = evaluator.offers[cell.candidate].way;
    name(&way.system, way.settings.iter().map(|(path, value)| (path, value)))
}

/// `1 card of l4`.
pub fn cards(evaluator: &Evaluator<'_>, cell: Cell) -> String {
    let card = evaluator.offers[cell.candidate].card;
    match evaluator.point(cell).gpus {
        1 => format!("1 card of {card}"),
        gpus => format!("{gpus} cards of {card}"),
    }
}

/// The target: `98 % of the requests within 150 ms`, `… within 1 s to the first token and 50 ms a token`,
/// `98 % of the requests answered`.
pub fn target(slo: Option<Slo>, quantile: f64) -> String {
    // What was asked for, with all of its digits.
    let requests = format!("{} % of the requests", rounded(quantile * 100.0));
    slo.map_or(format!("{requests} answered"), |slo| {
        let limits = [slo.target.latency, slo.target.first_token, slo.target.per_token];
        let limits = limits.map(|limit| limit.map(|limit| limit.as_millis_f64()));
        format!("{requests} within {}", human::limits(limits))
    })
}

/// The answer without what surrounds it.
pub fn short<F>(evaluator: &Evaluator<'_>, search: &Search<F>, best: Option<Cell>) -> String
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    let Some(cell) = best else {
        return match evaluator.has_target() {
            true => "nothing that was tried keeps the target".to_owned(),
            false => "nothing that was tried answers as many".to_owned(),
        };
    };
    let point = evaluator.point(cell);
    let (cards, system) = (cards(evaluator, cell), system(evaluator, cell));
    let rate = evaluator.rate_per_s(cell).map(|rate| format!("{} requests/s", human::number(rate)));
    match evaluator.plan.find {
        Objective::FewestCards => format!("{cards} with {system}"),
        Objective::LeastCost => {
            let cost = point.cost.map_or(String::new(), |cost| format!(" at {} an hour", human::number(cost)));
            format!("{cards} with {system}{cost}")
        }
        Objective::MostTenants => {
            // Clients that wait for their answers have no rate of their own.
            let rate = rate.map_or(String::new(), |rate| format!(" ({rate})"));
            format!(
                "{} tenants{rate} on {cards} with {system}",
                human::count(point.tenants.into())
            )
        }
        Objective::HighestRate => {
            format!(
                "{} ({} times the scenario's load) on {cards} with {system}",
                rate.unwrap_or_default(),
                human::number(point.load)
            )
        }
        Objective::TightestLatency => {
            let latency = search.judged(cell).map_or(f64::NAN, |judgement| judgement.score);
            format!("{} with {system} on {cards}", human::milliseconds(latency))
        }
    }
}
