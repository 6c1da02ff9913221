//! The candidate with the least score, latency say: all run once, and those that are not clearly worse run on.

use super::Sample;
use super::search::{Candidate, Cell, IDLE, Search, Standing};
use super::stats::Estimate;

/// A score this much above the least is as good, where it takes less.
const AS_GOOD: f64 = 0.01;

/// What came of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    /// The least score of those that meet the target; nothing where none does.
    pub best: Option<Cell>,
    /// How sure it is that it meets the target and that it is less than each other's, or that none meets the target,
    /// all together (Bonferroni).
    pub confidence: f64,
    /// Others that the most repeats allowed could not tell from it, and those whose scores are the same.
    pub tied: Vec<Cell>,
    /// Of each candidate, at the level that it ran with.
    pub standings: Vec<Standing>,
}

impl<F, E> Search<F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, E>,
{
    /// The candidate with the least score that meets the target. It is expected to be least at the most generous level;
    /// while lanes idle, half the level is tried as well, since fewer cards may fill their batches sooner, and all of
    /// them where one of these is faster or the target is missed. Scores are compared batch by batch over the same
    /// requests, so that what the load does to all of them cancels out. Of the winner's levels, the first one is taken
    /// that meets the target with a score within 1 % of the least: who wants the least latency does not want cards that
    /// add nothing to it. Whether that level meets the target is then judged with other seeds, and where it does not,
    /// the race is run again; so it is where none does, until that is as sure.
    ///
    /// # Errors
    /// When a run fails.
    pub fn tightest(&mut self, candidates: &[Candidate]) -> Result<Race, E> {
        loop {
            let mut race = self.race(candidates)?;
            match race.best {
                Some(best) if !self.is_settled(best) => self.repeat(&[best])?,
                Some(best) => {
                    let sure = self.judged(best).expect("the best was run").confidence;
                    race.confidence = (race.confidence + sure - 1.0).max(0.0);
                    return Ok(race);
                }
                None => {
                    // One seed's misfortune is no answer: whichever of each candidate's levels is nearest to the target
                    // is run with others first.
                    let nearest: Vec<Cell> = (0..candidates.len())
                        .filter_map(|candidate| self.nearest_miss(candidates, candidate, None))
                        .collect();
                    let unsure: Vec<Cell> = nearest.iter().copied().filter(|cell| !self.is_settled(*cell)).collect();
                    if unsure.is_empty() {
                        let doubt = |cell: &Cell| self.judged(*cell).map_or(1.0, |judged| 1.0 - judged.confidence);
                        race.confidence = (1.0 - nearest.iter().map(doubt).sum::<f64>()).max(0.0);
                        return Ok(race);
                    }
                    self.repeat(&unsure)?;
                }
            }
        }
    }

    fn race(&mut self, candidates: &[Candidate]) -> Result<Race, E> {
        self.halve(candidates)?;
        let mut standings = Vec::new();
        for (candidate, levels) in candidates.iter().enumerate() {
            let cell = |level: usize| Cell { candidate, level };
            let last = cell(levels.values.len() - 1);
            let all: Vec<Cell> = (0..=last.level).map(cell).collect();
            let is_run = |search: &Self, cell: &Cell| !search.samples(*cell).is_empty();
            let is_faster = |other: &Cell| is_run(self, other) && self.worse(last, *other) >= self.rules().confidence;
            let not_monotone = !self.meets(last) || all.iter().any(is_faster);
            if not_monotone {
                self.begin(&all)?;
            }
            let best = all
                .into_iter()
                .filter(|cell| is_run(self, cell) && self.meets(*cell))
                .min_by(|a, b| self.latency_ms(*a, 1).total_cmp(&self.latency_ms(*b, 1)));
            standings.push(Standing {
                level: best.map(|best| best.level),
                decided_by: best.unwrap_or(last),
                not_monotone: not_monotone && best.is_some(),
            });
        }
        let mut alive: Vec<Cell> = standings
            .iter()
            .filter(|standing| standing.level.is_some())
            .map(|standing| standing.decided_by)
            .collect();
        let mut doubts = 0.0;
        // What has the same scores as another leaves nothing to choose, and no further run would.
        let mut equals: Vec<Cell> = Vec::new();
        loop {
            let runs = |cell: &Cell| self.samples(*cell).len();
            let repeats = alive.iter().map(runs).min().unwrap_or_default();
            let Some(best) = alive
                .iter()
                .copied()
                .min_by(|a, b| self.latency_ms(*a, repeats).total_cmp(&self.latency_ms(*b, repeats)))
            else {
                return Ok(Race {
                    best: None,
                    confidence: 0.0,
                    tied: Vec::new(),
                    standings,
                });
            };
            let spent = repeats as u32 >= self.rules().repeats;
            let mut others = Vec::new();
            for other in alive.into_iter().filter(|cell| *cell != best) {
                if self.is_equal(other, best) {
                    equals.push(other);
                    continue;
                }
                let sure = self.worse(other, best);
                if sure < self.rules().confidence {
                    others.push(other);
                }
                if sure >= self.rules().confidence || spent {
                    doubts += 1.0 - sure;
                }
            }
            if others.is_empty() || spent {
                let frugal = self.frugal(best)?;
                let of_winner = &mut standings[best.candidate];
                (of_winner.level, of_winner.decided_by) = (Some(frugal.level), frugal);
                let mut tied = others;
                tied.push(best);
                equals.retain(|cell| tied.iter().any(|tied| self.is_equal(*cell, *tied)));
                tied.pop();
                tied.extend(equals);
                return Ok(Race {
                    best: Some(frugal),
                    confidence: (1.0_f64 - doubts).max(0.0),
                    tied,
                    standings,
                });
            }
            others.push(best);
            alive = others;
            // All of them by the same seeds.
            let behind: Vec<Cell> = alive.iter().copied().filter(|cell| self.samples(*cell).len() == repeats).collect();
            self.repeat(&behind)?;
        }
    }

    /// The most generous level of each candidate, half of it, and so on while lanes idle: where they do not, fewer
    /// cards queue for longer.
    fn halve(&mut self, candidates: &[Candidate]) -> Result<(), E> {
        let last = |(candidate, levels): (usize, &Candidate)| Cell {
            candidate,
            level: levels.values.len() - 1,
        };
        let mut next: Vec<Cell> = candidates.iter().enumerate().map(last).collect();
        while !next.is_empty() {
            self.begin(&next)?;
            next.retain(|cell| cell.level > 0 && self.judged(*cell).is_some_and(|judged| judged.busy < IDLE));
            next.iter_mut().for_each(|cell| cell.level /= 2);
        }
        Ok(())
    }

    /// The first level of the best's candidate that meets the target and is as good, as far as the runs so far tell: of
    /// those that were run, and by bisection between it and the last before it that is not, since less of a card is
    /// expected to be slower.
    fn frugal(&mut self, best: Cell) -> Result<Cell, E> {
        let at = |level: usize| Cell { level, ..best };
        let is_run = |search: &Self, level: usize| !search.samples(at(level)).is_empty();
        let is_as_good =
            |search: &Self, level: usize| search.meets(at(level)) && search.excess(at(level), best) <= AS_GOOD;
        let mut run = (0..best.level).filter(|level| is_run(self, *level));
        let mut high = run.find(|level| is_as_good(self, *level)).unwrap_or(best.level);
        let before = (0..high).rev().find(|level| is_run(self, *level));
        let mut low = before.map_or(0, |level| level + 1);
        while low < high {
            let middle = (low + high) / 2;
            self.begin(&[at(middle)])?;
            if is_as_good(self, middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(at(high))
    }

    /// How much larger a cell's score is than another's over the same requests, as a part of the other's.
    fn excess(&self, cell: Cell, other: Cell) -> f64 {
        let repeats = self.samples(cell).len().min(self.samples(other).len());
        let of_other = self.latency_ms(other, repeats);
        if of_other > 0.0 {
            self.latency_ms(cell, repeats) / of_other - 1.0
        } else {
            f64::INFINITY
        }
    }

    fn meets(&self, cell: Cell) -> bool {
        self.judged(cell).is_some_and(|judgement| judgement.meets)
    }

    /// How sure it is that `cell` has a larger score than `other`, by the batches of the repeats that both have run.
    fn worse(&self, cell: Cell, other: Cell) -> f64 {
        match self.is_equal(cell, other) {
            true => 0.5,
            false => Estimate::of(&self.differences(cell, other)).map_or(0.5, |difference| difference.above(0.0)),
        }
    }

    /// Whether two cells' scores are the same, batch by batch.
    fn is_equal(&self, cell: Cell, other: Cell) -> bool {
        let differences = self.differences(cell, other);
        differences.iter().flatten().all(|difference| *difference == 0.0) && !differences.iter().all(Vec::is_empty)
    }

    /// By how much larger the scores of a cell's batches are than another's, in the repeats that both have run.
    fn differences(&self, cell: Cell, other: Cell) -> Vec<Vec<f64>> {
        let pairs = self.samples(cell).iter().zip(self.samples(other));
        pairs.map(|(own, other)| own.differences(other)).collect()
    }
}
