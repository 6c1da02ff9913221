//! What an answer rests on: what binds there, how it was decided, and what it does not know.

use tenantry_core::command::RejectReason;
use tenantry_reports::plan::Binds;
use tenantry_reports::{RunSummary, human};
use tenantry_scenarios::Objective;
use tenantry_sim::plan::{Cell, Sample};

use super::Explanation;
use crate::failure::Failure;
use crate::planning::binds::{binds, refused};

impl<F> Explanation<'_, F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    pub fn binds(&self) -> Result<Option<Binds>, Failure> {
        let Some(best) = self.found.best else {
            return self.binds_at_the_nearest();
        };
        let at_the_answer = || {
            let seen = self.evaluator.seen(best);
            let turns = self.evaluator.takes_turns(best)?;
            Ok(seen.map(|seen| binds(&seen, "at the answer", "of the time", false, turns)))
        };
        let Some(lesser) = best.level.checked_sub(1).map(|level| Cell { level, ..best }) else {
            return at_the_answer();
        };
        if let Some(why) = self.refused(lesser) {
            return Ok(at_the_answer()?.map(|binds| refused(&why, binds)));
        }
        if self.search.judged(lesser).is_none_or(|judged| judged.meets) {
            return at_the_answer();
        }
        let at = "one step beyond the answer, where the target is missed";
        let turns = self.evaluator.takes_turns(lesser)?;
        // Where bursts are few, the first run may have seen none.
        let late = |sample: &Sample| (sample.judged - sample.kept) as f64 / sample.judged.max(1) as f64;
        let samples = self.search.samples(lesser);
        let runs = samples.iter().zip(0..samples.len() as u32);
        let worst = runs.rev().max_by(|a, b| late(a.0).total_cmp(&late(b.0)));
        let worst = worst.map_or(0, |(_, repeat)| repeat);
        Ok(match self.evaluator.strained(lesser, worst)? {
            Some(summary) => Some(binds(
                &summary,
                at,
                "of the time in which late requests are inside",
                true,
                turns,
            )),
            None => self.evaluator.seen(lesser).map(|seen| binds(&seen, at, "of the time", true, turns)),
        })
    }

    /// Where nothing keeps the target.
    fn binds_at_the_nearest(&self) -> Result<Option<Binds>, Failure> {
        let nearest = self.nearest()?.map(|nearest| nearest.cell);
        let Some(nearest) = nearest.filter(|cell| !self.is_empty(*cell)) else {
            return Ok(None);
        };
        let turns = self.evaluator.takes_turns(nearest)?;
        Ok(self.evaluator.seen(nearest).map(|seen| {
            // Of a decoder that lets everybody in at once, more cards would have little to take over.
            let of_lanes = binds(&seen, "at the nearest", "of the time", false, turns);
            match self.refused_by_any_cards(&seen) {
                Some(sentence) => Binds {
                    what: "none".to_owned(),
                    sentence,
                    ..of_lanes
                },
                None => of_lanes,
            }
        }))
    }

    /// What is refused whatever the cards do, where that is so much that the target is missed: all but those whom a
    /// full queue keeps out.
    fn refused_by_any_cards(&self, seen: &RunSummary) -> Option<String> {
        let of_cards = RejectReason::QueueFull.name();
        let reasons = || seen.rejected_by.iter().filter(move |(reason, _)| *reason != of_cards);
        let share = reasons().map(|(_, count)| count).sum::<u64>() as f64 / seen.requests.offered.max(1) as f64;
        let counts = reasons().map(|(reason, count)| format!("{} {}", human::count(*count), reason.replace('_', " ")));
        let remedy = match seen.rejected_by.contains_key(RejectReason::TooLong.name()) {
            true => {
                "; a model of more positions takes longer requests, and shorter ones (workload.lengths) fit this one"
            }
            false => "",
        };
        (share > 1.0 - self.evaluator.quantile()).then(|| {
            format!(
                "nothing that cards change: at the nearest, {} of the requests are refused, as with any number of cards \
                 ({}){remedy}.",
                human::percent(share),
                counts.collect::<Vec<_>>().join(", ")
            )
        })
    }

    pub fn notes(&self) -> Result<Vec<String>, Failure> {
        let decided = match self.search.rules().repeats {
            1 if self.evaluator.plan.repeats == 1 => "A decision takes one run.".to_owned(),
            1 => "A decision takes one run, since other seeds bring the same requests, or bursts, once more: how sure \
                  it is says how much parts of them differ, not how another day would."
                .to_owned(),
            repeats if self.evaluator.plan.find == Objective::TightestLatency => format!(
                "They race: each is run once, and those that are not surely slower than the fastest run on with other \
                 seeds, {repeats} runs at most. That the fastest keeps a target is judged by {} at least.",
                self.evaluator.seeds()
            ),
            repeats => format!(
                "A decision takes {} to {repeats} runs with other seeds until it is {} sure.",
                self.evaluator.seeds(),
                human::percent(self.evaluator.plan.confidence)
            ),
        };
        let hopeless = match self.search.rules().repeats {
            1 => "twice the requests that may be late have been",
            _ => "so many requests have been late that other seeds cannot make up for it",
        };
        let mut notes = vec![format!(
            "All options are asked the same requests. {decided} A run is stopped once {hopeless}. Runs of \
             the scenario's length are judged: what grows more slowly than that is not seen."
        )];
        notes.push(
            "How sure an answer is takes the prices of the card's profile as they are: what they are off by, and what \
             is derived or extrapolated, is not in it."
                .to_owned(),
        );
        let foretold = self.found.best.filter(|best| self.search.judged(*best).is_some_and(|judged| judged.foretold));
        notes.extend(foretold.and_then(|best| self.carried_over(best)));
        let prices = self.evaluator.plan.cards.iter();
        let prices: Vec<String> = prices.filter_map(|(card, price)| Some(format!("{card} {}", (*price)?))).collect();
        if !prices.is_empty() {
            notes.push(format!(
                "Costs are by the prices that the scenario gives, a card and hour, all cards paid all the time: {}.",
                prices.join(", ")
            ));
        }
        if self.evaluator.plan.min_accuracy.is_some() {
            notes.push(
                "Whether answers are right is counted in a level's first run and, while that is not sure, in up to as \
                 many others; how sure it is then counts towards how sure the answer is."
                    .to_owned(),
            );
        }
        let best = self.found.best.and_then(|best| self.evaluator.seen(best));
        let given_up = best.as_ref().map_or(0, |seen| seen.requests.cancelled);
        if given_up > 0 {
            let counted = match self.evaluator.has_target() {
                true => "those who left before their target had passed count as neither in time nor late",
                false => "they count neither as answered nor as not",
            };
            notes.push(format!(
                "In the first run of the answer the clients of {} of {} requests gave up waiting: {counted}.",
                human::count(given_up),
                human::count(best.as_ref().map_or(0, |seen| seen.requests.offered))
            ));
        }
        if let Some(best) = self.found.best {
            notes.extend(self.evaluator.caveats_of_answer(best)?);
        }
        if self.found.standings.iter().any(|standing| standing.not_monotone) {
            notes.push(
                "Where more of a card or less load was found to be worse, levels were tried one by one.".to_owned(),
            );
        }
        Ok(notes)
    }

    /// To which other arrivals a cell's runs were carried over, and why.
    fn carried_over(&self, cell: Cell) -> Option<String> {
        let evenness = self.evaluator.evenness(cell).ok()?;
        let (why, bursts) = match evenness.bursts {
            Some(bursts) => {
                let dispersion = human::number(evenness.dispersion);
                let why =
                    format!("Requests come in bursts (index of dispersion {dispersion}), of which one run sees few");
                (why, bursts)
            }
            None => {
                let generates = self.evaluator.seen(cell).is_some_and(|seen| seen.generation.is_some());
                let why = match generates {
                    true => {
                        "A decoder is busy while anybody is inside, however near its limit, and near it requests are \
                         late in heaps, of which one run sees few"
                    }
                    false => {
                        "Lanes are busy nearly all the time, so that requests are late in heaps, of which one run sees \
                         few"
                    }
                };
                (why.to_owned(), self.evaluator.arrivals(cell).ok()??)
            }
        };
        Some(format!(
            "{why}: what the runs show is carried over to the arrivals of {} seeds by a queue that makes as many late \
             as the runs did, and shares in time are of those.",
            bursts.seeds.len()
        ))
    }
}
