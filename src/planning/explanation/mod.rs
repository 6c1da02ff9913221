//! What is said of a search that is over: the answer in a sentence, with how sure it is and what would make it surer;
//! in files of their own what is said of each option, and what the answer rests on.

mod grounds;
mod nearest;
mod options;

use std::cell::OnceCell;

use tenantry_reports::human;
use tenantry_reports::plan::{CANNOT_RUN, sure};
use tenantry_reports::summary::rounded;
use tenantry_scenarios::{Objective, Scenario};
use tenantry_sim::plan::{Cell, Judgement, Sample, Search};

use self::nearest::Nearest;
use crate::caveats::unanswered;
use crate::failure::Failure;
use crate::planning::accuracy::Answers;
use crate::planning::evaluate::{Evaluator, OtherSeeds};
use crate::planning::found::{Found, cards, short, system, target};

/// Why nothing is known of a level.
const NO_REQUEST: &str = "no request comes after the warm-up";

/// Fewer times the target's latency are too little for a queue to show that it grows.
const SHORT: f64 = 10.0;

/// What is said of a search that is over.
pub struct Explanation<'a, F> {
    pub scenario: &'a Scenario,
    pub evaluator: &'a Evaluator<'a>,
    pub search: &'a Search<F>,
    pub found: &'a Found,
    /// What comes nearest where nothing keeps the target, once it has been looked for.
    pub nearest: OnceCell<Option<Nearest>>,
}

impl<F> Explanation<'_, F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    fn refused(&self, cell: Cell) -> Option<String> {
        self.evaluator.refused(cell)
    }

    fn judged(&self, cell: Cell) -> Option<Judgement> {
        self.search.judged(cell).filter(|_| self.refused(cell).is_none())
    }

    pub fn sentence(&self) -> Result<String, Failure> {
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
        let lesser = best.level.checked_sub(1).map(|level| self.evaluator.point(Cell { level, ..best }));
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
                let kept = match self.scenario.slo {
                    Some(_) => Some(format!(" and keeps {target} ({in_time})")),
                    None => (judged.share.mean < 1.0).then(|| format!(" ({in_time})")),
                };
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

    /// What would settle a decision that is close; where bursts leave the doubt, how long a run would see enough of
    /// them.
    fn what_would_tell(&self, best: Cell) -> Result<String, Failure> {
        let evenness = self.evaluator.evenness(best)?;
        if let (Some(span_s), Some(times)) = (self.evaluator.span_s(best), evenness.longer()) {
            return Ok(format!(
                "requests come in bursts, {} of them tell as much as one that comes by itself, and a run of {} sees \
                 few. A longer one (workload.stop) would tell more; one of {} would do without what other seeds' \
                 arrivals let expect.",
                human::number(evenness.dispersion),
                human::milliseconds(span_s * 1e3),
                human::milliseconds(span_s * times * 1e3),
            ));
        }
        Ok(match self.evaluator.other_seeds {
            OtherSeeds::TheRecording => "a longer run (workload.stop), over more of the recording, would tell.",
            OtherSeeds::TheSame => "a longer run (workload.stop) would tell.",
            OtherSeeds::Others => "longer runs or more repeats would tell.",
        }
        .to_owned())
    }

    /// A sentence where the requests come within so short a time that an overload hardly shows.
    fn too_short(&self, best: Cell) -> Option<String> {
        let (span_s, target) = (self.evaluator.span_s(best)?, self.scenario.slo?.target);
        let longest = target.latency.max(target.first_token)?;
        (span_s < SHORT * longest.as_secs_f64()).then(|| {
            format!(
                " The run is short: requests come for {}, in which a queue hardly grows to {}; a later workload.stop \
                 would tell.",
                human::milliseconds(span_s * 1e3),
                human::milliseconds(longest.as_millis_f64())
            )
        })
    }

    /// What comes nearest of all that was run; where nothing can be an answer, why.
    fn nothing(&self, target: &str) -> Result<String, Failure> {
        let cells = self.run();
        if !cells.is_empty() && cells.iter().all(|cell| self.is_empty(*cell)) {
            return Ok(format!(
                "Nothing can be told: {NO_REQUEST} (workload.stop, workload.warm_up)."
            ));
        }
        Ok(self.nearest()?.map_or_else(
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
            |nearest| {
                let nearest = self.nearest_in_words(nearest);
                format!("Nothing that was tried keeps {target}. Nearest: {nearest}.")
            },
        ))
    }

    /// All that was run.
    fn run(&self) -> Vec<Cell> {
        self.search.cells().filter(|cell| self.judged(*cell).is_some()).collect()
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

    /// What became of so many requests that were not answered that a cell misses the target whatever the others'
    /// latency: in its first run.
    fn unanswered(&self, cell: Cell) -> Option<String> {
        let (share, why) = unanswered(&self.evaluator.seen(cell)?)?;
        let which = match self.search.samples(cell).len() {
            1 => "",
            _ => "in the first run, ",
        };
        (share > 1.0 - self.evaluator.quantile()).then(|| format!("{which}{why}"))
    }
}
