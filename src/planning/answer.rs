//! A plan from its search to all that is said of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use rayon::prelude::*;
use tenantry_reports::human;
use tenantry_reports::plan::{Binds, CANNOT_RUN, PlanOption, PlanReport, PlanRuns, sure};
use tenantry_reports::summary::rounded;
use tenantry_scenarios::plan::Plan;
use tenantry_scenarios::{Objective, Scenario};
use tenantry_sim::plan::{Cell, Judgement, Sample, Search};

use crate::caveats::{host_memory_caveat, unanswered};
use crate::failure::Failure;
use crate::planning::accuracy::Answers;
use crate::planning::binds::{GIVEN_UP, binds, refused};
use crate::planning::evaluate::{Evaluator, Known};
use crate::planning::found::{Found, cards, find, rules, short, system, target};
use crate::planning::front::{around, front};
use crate::planning::moves::Moving;

/// Why nothing is known of a level.
const NO_REQUEST: &str = "no request comes after the warm-up";

/// Fewer times the target's latency are too little for a queue to show that it grows.
const SHORT: f64 = 10.0;

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
    let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| {
        evaluator.run(cells)
    });
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
    let said = Said {
        scenario,
        evaluator: &evaluator,
        search: &search,
        found: &found,
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
        notes: said.notes(),
    };
    let caveats = evaluator.caveats();
    Ok(Planned { report, best, caveats })
}

/// What is said of a search that is over.
struct Said<'a, F> {
    scenario: &'a Scenario,
    evaluator: &'a Evaluator<'a>,
    search: &'a Search<F>,
    found: &'a Found,
}

impl<F> Said<'_, F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    fn refused(&self, cell: Cell) -> Option<String> {
        self.evaluator.refused(cell)
    }

    fn judged(&self, cell: Cell) -> Option<Judgement> {
        self.search.judged(cell).filter(|_| self.refused(cell).is_none())
    }

    fn sentence(&self) -> Result<String, Failure> {
        let target = target(self.scenario.slo, self.evaluator.quantile());
        let Some(best) = self.found.best else {
            return self.nothing(&target);
        };
        let sure = format!("{} sure", sure(self.found.confidence));
        let short = short(self.evaluator, self.search, Some(best));
        let judged = self.search.judged(best).expect("the answer was run");
        let in_time = format!("{} are {}", human::percent(judged.share.mean), self.kept());
        let right = self.evaluator.answers(best).and_then(Answers::share);
        let right = right.filter(|_| self.evaluator.plan.min_accuracy.is_some());
        let right = right.map_or(String::new(), |share| {
            format!(", {} of the answers are right", human::percent(share))
        });
        let lesser = best
            .level
            .checked_sub(1)
            .map(|level| self.evaluator.point(Cell { level, ..best }));
        let answer = match (self.evaluator.plan.find, lesser) {
            (Objective::FewestCards | Objective::LeastCost, lesser) => {
                let lesser = lesser.map_or("fewer were not tried".to_owned(), |point| {
                    format!("{} {} not", point.gpus, if point.gpus == 1 { "does" } else { "do" })
                });
                let keep = if self.evaluator.point(best).gpus == 1 {
                    "keeps"
                } else {
                    "keep"
                };
                format!("{short} {keep} {target} ({in_time}{right}); {lesser}; {sure}.")
            }
            (Objective::MostTenants | Objective::HighestRate, lesser) => {
                let beyond = best.level.checked_sub(1).map(|level| Cell { level, ..best });
                let top = match lesser {
                    None => "; more was not tried".to_owned(),
                    Some(_) if beyond.is_some_and(|beyond| self.is_empty(beyond)) => {
                        format!("; beyond it {NO_REQUEST} (workload.stop, workload.warm_up)")
                    }
                    Some(_) => String::new(),
                };
                format!("Up to {short} keep {target} ({in_time}{right}){top}; {sure}.")
            }
            (Objective::TightestLatency, _) => {
                let quantile = rounded(self.evaluator.quantile() * 100.0);
                let tied: Vec<String> = self.found.tied.iter().map(|cell| self.option(*cell)).collect();
                let tied = match tied.is_empty() {
                    true => String::new(),
                    false => format!("; {} could not be told from it", tied.join(", ")),
                };
                let more = best.level + 1 < self.evaluator.levels[best.candidate].len();
                let more = if more {
                    "; more cards are less than 1 % faster"
                } else {
                    ""
                };
                let kept = self.scenario.slo.map(|_| format!(" and keeps {target} ({in_time})"));
                format!(
                    "The tightest p{quantile} is {short}{}{right}{more}{tied}; {sure}.",
                    kept.unwrap_or_default()
                )
            }
        };
        let close = self.found.confidence < self.evaluator.plan.confidence;
        let close = match close {
            false => String::new(),
            true => format!(
                " The decision is close{}: {}",
                self.about(best),
                self.what_would_tell(best)?
            ),
        };
        let too_short = self.too_short(best).unwrap_or_default();
        Ok(format!("{answer}{close}{too_short}"))
    }

    /// About what else than the answer a decision is close, where that leaves most of the doubt.
    fn about(&self, best: Cell) -> String {
        let about = self.found.least_sure.filter(|cell| *cell != best);
        let about = about.and_then(|cell| {
            let (share, kept) = (human::percent(self.judged(cell)?.share.mean), self.kept());
            let what = short(self.evaluator, self.search, Some(cell));
            Some(match self.judged(cell)?.hopeless {
                true => format!(", above all about {what}, where {share} were {kept} until a run was stopped"),
                false => format!(", above all about {what}, where {share} are {kept}"),
            })
        });
        about.unwrap_or_default()
    }

    /// The system of a cell, with its card where there are others to choose from.
    fn option(&self, cell: Cell) -> String {
        let system = system(self.evaluator, cell);
        match self.evaluator.plan.cards.len() {
            1 => system,
            _ => format!("{system} on {}", cards(self.evaluator, cell)),
        }
    }

    /// What would settle a decision that is close; where bursts leave the doubt, how long a run would see enough of them.
    fn what_would_tell(&self, best: Cell) -> Result<String, Failure> {
        let evenness = self.evaluator.evenness(best)?;
        if let (Some(span_s), Some(times)) = (self.evaluator.span_s(best), evenness.longer()) {
            return Ok(format!(
                "requests come in bursts, {} of them tell as much as one that comes by itself, and a run of {} sees few. A longer one \
                 (workload.stop) would tell more; one of {} would do without what other seeds' arrivals let expect.",
                human::number(evenness.dispersion),
                human::milliseconds(span_s * 1e3),
                human::milliseconds(span_s * times * 1e3),
            ));
        }
        Ok(match self.evaluator.one_workload {
            true => "a longer run (workload.stop), over more of the recording, would tell.",
            false => "longer runs or more repeats would tell.",
        }
        .to_owned())
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
                let why =
                    "Lanes are busy nearly all the time, so that requests are late in heaps, of which one run sees few";
                (why.to_owned(), self.evaluator.arrivals(cell).ok()??)
            }
        };
        Some(format!(
            "{why}: what the runs show is carried over to the arrivals of {} seeds by a queue that makes as many late as the runs did, and shares in \
             time are of those.",
            bursts.seeds.len()
        ))
    }

    /// A sentence where the requests come within so short a time that an overload hardly shows.
    fn too_short(&self, best: Cell) -> Option<String> {
        let (span_s, target) = (self.evaluator.span_s(best)?, self.scenario.slo?.target);
        let longest = target.latency.max(target.first_token)?;
        (span_s < SHORT * longest.as_secs_f64()).then(|| {
            format!(
                " The run is short: requests come for {}, in which a queue hardly grows to {}; a later workload.stop would tell.",
                human::milliseconds(span_s * 1e3),
                human::milliseconds(longest.as_millis_f64())
            )
        })
    }

    /// What comes nearest of all that was run; where nothing can be an answer, why.
    fn nothing(&self, target: &str) -> Result<String, Failure> {
        let cells: Vec<Cell> = { self.search.cells() }
            .filter(|cell| self.judged(*cell).is_some())
            .collect();
        if !cells.is_empty() && cells.iter().all(|cell| self.is_empty(*cell)) {
            return Ok(format!(
                "Nothing can be told: {NO_REQUEST} (workload.stop, workload.warm_up)."
            ));
        }
        let nearest = self.nearest(&cells)?;
        Ok(nearest.map_or_else(
            || {
                let cells = self.found.standings.iter().map(|standing| standing.decided_by);
                // One reason is that of all settings of a system.
                let mut why: Vec<(String, usize)> = Vec::new();
                let reason = |cell| match self.refused(cell)? {
                    why if why.starts_with(CANNOT_RUN) => Some(why),
                    why => Some(format!("{}: {why}", system(self.evaluator, cell))),
                };
                for reason in cells.filter_map(reason) {
                    match why.iter_mut().find(|(other, _)| *other == reason) {
                        Some((_, options)) => *options += 1,
                        None => why.push((reason, 1)),
                    }
                }
                let why = why.into_iter().map(|(reason, options)| match options {
                    1 => reason,
                    options => format!("{reason} ({options} options)"),
                });
                format!("No option can be an answer: {}.", why.collect::<Vec<_>>().join("; "))
            },
            |(share, cell)| {
                let unanswered = self.unanswered(cell);
                format!(
                    "Nothing that was tried keeps {target}. Nearest: {} with {}, where {} are {}{}.",
                    cards(self.evaluator, cell),
                    system(self.evaluator, cell),
                    human::percent(share),
                    self.kept(),
                    unanswered.map_or(String::new(), |why| format!(" and {why}"))
                )
            },
        ))
    }

    /// Of some cells the one of which most requests are in time, and how many. What was stopped is run to its end where it may be that one.
    fn nearest(&self, cells: &[Cell]) -> Result<Option<(f64, Cell)>, Failure> {
        let share = |samples: &[Sample]| {
            let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
            sum(|sample| sample.kept) as f64 / sum(|sample| sample.judged).max(1) as f64
        };
        let is_stopped = |cell: &Cell| self.judged(*cell).is_some_and(|judged| judged.hopeless);
        let (stopped, ended): (Vec<Cell>, Vec<Cell>) = cells.iter().partition(|cell| is_stopped(cell));
        let of_ended = |cell: Cell| self.judged(cell).map(|judged| (judged.share.mean, judged.score, cell));
        let mut shares: Vec<(f64, f64, Cell)> = ended.into_iter().filter_map(of_ended).collect();
        let least = shares.iter().map(|(share, ..)| *share).fold(-1.0, f64::max);
        // Of a run that was stopped, all that could have been in time are taken to be.
        let open = stopped.into_iter().map(|cell| (cell, self.search.samples(cell)));
        let open: Vec<(Cell, u32)> = open
            .filter(|(_, samples)| share(samples) > least)
            .map(|(cell, samples)| (cell, samples.len() as u32))
            .collect();
        let evaluator = self.evaluator;
        let in_full = |(cell, repeats): (Cell, u32)| {
            let runs = (0..repeats).map(|repeat| evaluator.in_full(cell, repeat));
            let runs = runs.collect::<Result<Vec<_>, Failure>>()?;
            let latency_ms = runs[0].latencies.quantile_ns(evaluator.quantile()) as f64 / 1e6;
            Ok((share(&runs), latency_ms, cell))
        };
        let open = open.into_par_iter().map(in_full);
        shares.extend(open.collect::<Result<Vec<_>, Failure>>()?);
        // Of equals the fastest, as where nothing is in time.
        shares.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)));
        Ok(shares.first().map(|(share, _, cell)| (*share, *cell)))
    }

    /// Whether no request came after the warm-up.
    fn is_empty(&self, cell: Cell) -> bool {
        self.search.samples(cell).iter().all(|sample| sample.judged == 0)
    }

    /// What those requests are that count for a cell.
    fn kept(&self) -> &'static str {
        match self.scenario.slo {
            Some(_) => "in time",
            None => "answered",
        }
    }

    /// What became of so many requests that were not answered that a cell misses the target whatever the others' latency.
    fn unanswered(&self, cell: Cell) -> Option<String> {
        let (share, why) = unanswered(&self.evaluator.seen(cell)?)?;
        (share > 1.0 - self.evaluator.quantile()).then_some(why)
    }

    fn options(&self) -> Vec<PlanOption> {
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
            let per_million = |cost: f64| rate.map(|rate| rounded(cost / 3600.0 / rate * 1e6));
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
                    let late = if judged.hopeless && is_sure {
                        "far too many are late"
                    } else {
                        "misses it"
                    };
                    let late = if self.is_empty(cell) { NO_REQUEST } else { late };
                    let why = self.unanswered(cell).unwrap_or_else(|| late.to_owned());
                    format!("{GIVEN_UP}{why}")
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
                cost_per_million_requests: { point.cost.and_then(per_million) }.filter(|_| keeps),
                within: to_its_end
                    .filter(|_| self.scenario.slo.is_some())
                    .map(|judged| rounded(judged.share.mean)),
                within_half_width: to_its_end
                    .map(|judged| judged.share.half_width(0.95))
                    .filter(|width| width.is_finite())
                    .map(rounded),
                accuracy: self.evaluator.answers(cell).and_then(Answers::share).map(rounded),
                latency_ms: to_its_end
                    .map(|judged| judged.score)
                    .filter(|score| score.is_finite())
                    .map(rounded),
                ttft_ms: part_ms(|sample| sample.first_token.as_ref()),
                tpot_ms: part_ms(|sample| sample.per_token.as_ref()),
                confidence: judged.map(|judged| rounded(judged.confidence)),
                runs: self.evaluator.runs(cell, self.search.samples(cell).len()),
                verdict: format!("{verdict}{note}"),
                chosen,
            }
        };
        standings.map(option).collect()
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

    /// The latency decides between equals, by the seeds that both were run with: that of the table is over all of a cell's own.
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

    fn binds(&self) -> Result<Option<Binds>, Failure> {
        let Some(best) = self.found.best else { return Ok(None) };
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
            None => { self.evaluator.seen(lesser) }.map(|seen| binds(&seen, at, "of the time", true, turns)),
        })
    }

    fn notes(&self) -> Vec<String> {
        let decided = match self.search.rules().repeats {
            1 if self.evaluator.plan.repeats == 1 => "A decision takes one run.".to_owned(),
            1 => "A decision takes one run, since other seeds bring the same requests, or bursts, once more: how sure it is says how much parts of \
                  them differ, not how another day would."
                .to_owned(),
            repeats if self.evaluator.plan.find == Objective::TightestLatency => format!(
                "They race: each is run once, and those that are not surely slower than the fastest run on with other seeds, {repeats} runs at most. That the \
                 fastest keeps a target is judged by {} at least.",
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
            "How sure an answer is takes the prices of the card's profile as they are: what they are off by, and what is derived or extrapolated, is not \
             in it."
                .to_owned(),
        );
        let foretold = self
            .found
            .best
            .filter(|best| self.search.judged(*best).is_some_and(|judged| judged.foretold));
        notes.extend(foretold.and_then(|best| self.carried_over(best)));
        let prices = self.evaluator.plan.cards.iter();
        let prices: Vec<String> = prices
            .filter_map(|(card, price)| Some(format!("{card} {}", (*price)?)))
            .collect();
        if !prices.is_empty() {
            notes.push(format!(
                "Costs are by the prices that the scenario gives, a card and hour, all cards paid all the time: {}.",
                prices.join(", ")
            ));
        }
        if self.evaluator.plan.min_accuracy.is_some() {
            notes.push(
                "Whether answers are right is counted in a level's first run and, while that is not sure, in up to as many others; how sure it \
                 is then counts towards how sure the answer is."
                    .to_owned(),
            );
        }
        let best = self.found.best.and_then(|best| self.evaluator.seen(best));
        notes.extend(best.as_ref().and_then(host_memory_caveat));
        if self.found.standings.iter().any(|standing| standing.not_monotone) {
            notes.push(
                "Where more of a card or less load was found to be worse, levels were tried one by one.".to_owned(),
            );
        }
        notes
    }
}
