//! What is said of each option: its figures, and how it stands beside the answer.

use std::collections::BTreeMap;

use tenantry_reports::human;
use tenantry_reports::plan::PlanOption;
use tenantry_reports::summary::rounded;
use tenantry_scenarios::Objective;
use tenantry_sim::plan::{Cell, Sample};

use super::{Explanation, NO_REQUEST};
use crate::failure::Failure;
use crate::planning::accuracy::Answers;
use crate::planning::binds::GIVEN_UP;

impl<F> Explanation<'_, F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    pub fn options(&self) -> Vec<PlanOption> {
        let standings = self.found.standings.iter().enumerate();
        let option = |(candidate, standing): (usize, &tenantry_sim::plan::Standing)| {
            let offer = &self.evaluator.offers[candidate];
            // What was not tried is shown at its best level, at which it would have been worse than the answer.
            let cell = match standing.decided_by {
                cell if cell.candidate == candidate => cell,
                _ => Cell { candidate, level: 0 },
            };
            let point = self.evaluator.point(cell);
            let judged = self.judged(cell);
            // Of a run that was stopped early, the figures are of its worst part.
            let to_its_end = judged.filter(|judged| !judged.hopeless);
            let rate = self.evaluator.rate_per_s(cell);
            let chosen = self.found.best == Some(cell);
            let part_ms = |of| to_its_end.and_then(|_| self.search.part_ms(cell, of)).map(rounded);
            let per_million = |cost: f64| self.evaluator.cost_per_million(cell, cost).map(rounded);
            // The search had no need of it, and the front has: it costs more than the answer.
            let is_worse = standing.decided_by != cell;
            let keeps = standing.level.is_some() || is_worse && judged.is_some_and(|judged| judged.meets);
            let verdict = match (self.refused(cell), judged) {
                (Some(why), _) => why,
                (_, None) => "not tried: worse at its best".to_owned(),
                _ if keeps => self.beside_the_answer(cell),
                _ if is_worse => "worse at its best, where it misses the target".to_owned(),
                (_, Some(judged)) => {
                    let is_sure = judged.confidence >= self.evaluator.plan.confidence;
                    let late = match self.scenario.slo {
                        Some(_) if judged.hopeless && is_sure => "far too many are late",
                        Some(_) => "misses it",
                        None => "too few are answered",
                    };
                    let late = if self.is_empty(cell) { NO_REQUEST } else { late };
                    let why = self.unanswered(cell).unwrap_or_else(|| late.to_owned());
                    format!("{GIVEN_UP}{why}{}", self.as_little_as_the_answer(cell))
                }
            };
            let note = if standing.not_monotone {
                "; not monotone, every level tried"
            } else {
                ""
            };
            PlanOption {
                system: offer.way.system.clone(),
                settings: offer.way.settings.iter().cloned().collect(),
                card: offer.card.to_owned(),
                gpus: point.gpus,
                tenants: point.tenants,
                offered_rps: rate.map(rounded),
                cost_per_hour: point.cost.map(rounded),
                // Of an option that was given up it would be of requests that it does not answer.
                cost_per_million_requests: point.cost.and_then(per_million).filter(|_| keeps),
                within: to_its_end.filter(|_| self.scenario.slo.is_some()).map(|judged| rounded(judged.share.mean)),
                within_half_width: to_its_end
                    .map(|judged| judged.share.half_width(0.95))
                    .filter(|width| width.is_finite())
                    .map(rounded),
                accuracy: self.evaluator.answers(cell).and_then(Answers::share).map(rounded),
                latency_ms: to_its_end.map(|judged| judged.score).filter(|score| score.is_finite()).map(rounded),
                ttft_ms: part_ms(|sample| sample.first_token.as_ref()),
                tpot_ms: part_ms(|sample| sample.per_token.as_ref()),
                confidence: judged.map(|judged| rounded(judged.confidence)),
                runs: self.evaluator.runs(cell, self.search.samples(cell).len()),
                verdict: format!("{verdict}{}{note}", self.against_its_runs(cell).unwrap_or_default()),
                chosen,
            }
        };
        standings.map(option).collect()
    }

    /// Of an option that was given up at what is as good as the answer: with more it may keep the target, and is worse.
    fn as_little_as_the_answer(&self, cell: Cell) -> &'static str {
        let at_its_most = cell.level + 1 == self.evaluator.levels[cell.candidate].len();
        match self.evaluator.plan.find {
            _ if at_its_most || self.found.best.is_none() => "",
            Objective::FewestCards => " with as few cards as the answer",
            Objective::LeastCost => " at as little cost as the answer",
            Objective::MostTenants => " with as many tenants as the answer",
            Objective::HighestRate => " at as high a rate as the answer",
            Objective::TightestLatency => "",
        }
    }

    /// Where the arrivals of many seeds decide otherwise than a cell's own runs do, of which its latencies are: what
    /// these say.
    fn against_its_runs(&self, cell: Cell) -> Option<String> {
        let judged = self.judged(cell).filter(|judged| judged.foretold && !judged.hopeless)?;
        let samples = self.search.samples(cell);
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64;
        let own = sum(|sample| sample.kept) / sum(|sample| sample.judged);
        let runs = match samples.len() {
            1 => "its own run".to_owned(),
            runs => format!("its own {runs} runs"),
        };
        ((own >= self.evaluator.quantile()) != judged.meets).then(|| {
            format!(
                ", by the arrivals of many seeds; in {runs} {} are {}",
                human::percent(own),
                self.kept()
            )
        })
    }

    /// What a cell that keeps the target, or is as fast as its system gets, is beside the answer.
    fn beside_the_answer(&self, cell: Cell) -> String {
        let ranked = self.evaluator.plan.find != Objective::TightestLatency;
        if self.found.best == Some(cell) {
            "the answer"
        } else if self.found.tied.contains(&cell) {
            "as good, as far as can be told"
        } else if ranked && self.costs_the_same(cell) {
            return self.between_equals(cell);
        } else if ranked {
            "keeps the target, and is worse"
        } else if self.scenario.slo.is_some() {
            "keeps the target, and is slower"
        } else {
            "slower"
        }
        .to_owned()
    }

    /// The latency decides between equals, by the seeds that both were run with: that of the table is over all of a
    /// cell's own.
    fn between_equals(&self, cell: Cell) -> String {
        let runs = |cell: Cell| self.search.samples(cell).len();
        let is_slower = self.found.best.is_some_and(|best| self.search.is_faster(best, cell));
        let fast = if is_slower { "slower" } else { "as fast" };
        let over = match self.found.best.is_some_and(|best| runs(best) != runs(cell)) {
            true => " over the runs that both have",
            false => "",
        };
        format!("keeps the target as well, and is {fast}{over}")
    }

    /// Whether a cell is as good as the best but for the latency, which decides between equals.
    fn costs_the_same(&self, cell: Cell) -> bool {
        let candidates = self.evaluator.candidates(&BTreeMap::new());
        let value = |cell: Cell| candidates[cell.candidate].values[cell.level];
        self.found.best.is_some_and(|best| value(best) == value(cell))
    }
}
