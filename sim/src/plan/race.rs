//! The candidate with the least score, latency say: all run once, and those that are not clearly worse run on.

use super::Sample;
use super::search::{Candidate, Cell, Search, Standing};
use super::stats::Estimate;

/// A score this much above the least is as good, where it takes less.
const AS_GOOD: f64 = 0.01;

/// What came of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Race {
    /// The least score; nothing where every candidate was hopeless.
    pub best: Option<Cell>,
    /// How sure it is that it is less than each other's, all together (Bonferroni).
    pub confidence: f64,
    /// Others that the most repeats allowed could not tell from it.
    pub tied: Vec<Cell>,
    /// Of each candidate, at the level that it ran with.
    pub standings: Vec<Standing>,
}

impl<F, E> Search<F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, E>,
{
    /// The candidate with the least score at its most generous level, at which latency is expected to be least; a level in the middle is
    /// tried as well, and all of them where that one is faster. Scores are compared batch by batch over the same requests, so that what
    /// the load does to all of them cancels out. Of the winner's levels, the first one is taken whose score is within 1 % of the least: who
    /// wants the least latency does not want cards that add nothing to it.
    ///
    /// # Errors
    /// When a run fails.
    pub fn tightest(&mut self, candidates: &[Candidate]) -> Result<Race, E> {
        let last = |candidate: usize| Cell {
            candidate,
            level: candidates[candidate].values.len() - 1,
        };
        let middle = |candidate: usize| Cell {
            level: last(candidate).level / 2,
            ..last(candidate)
        };
        let all = 0..candidates.len();
        let first: Vec<Cell> = all
            .clone()
            .flat_map(|candidate| [last(candidate), middle(candidate)])
            .collect();
        let mut first_once = first.clone();
        first_once.dedup();
        self.begin(&first_once)?;
        let mut standings = Vec::new();
        for candidate in all {
            let (mut arm, mut not_monotone) = (last(candidate), false);
            if self.hopeless(arm) || self.worse(arm, middle(candidate)) >= self.rules().confidence {
                let levels: Vec<Cell> = (0..=arm.level).map(|level| Cell { candidate, level }).collect();
                self.begin(&levels)?;
                let best = levels
                    .into_iter()
                    .filter(|cell| !self.hopeless(*cell))
                    .min_by(|a, b| self.mean(*a).total_cmp(&self.mean(*b)));
                not_monotone = best.is_some();
                arm = best.unwrap_or(arm);
            }
            standings.push(Standing {
                level: (!self.hopeless(arm)).then_some(arm.level),
                decided_by: arm,
                not_monotone,
            });
        }
        let mut alive: Vec<Cell> = standings
            .iter()
            .filter(|standing| standing.level.is_some())
            .map(|standing| standing.decided_by)
            .collect();
        let mut doubts = 0.0;
        loop {
            let Some(best) = alive
                .iter()
                .copied()
                .min_by(|a, b| self.mean(*a).total_cmp(&self.mean(*b)))
            else {
                return Ok(Race {
                    best: None,
                    confidence: 1.0,
                    tied: Vec::new(),
                    standings,
                });
            };
            let spent = self.samples(best).len() as u32 >= self.rules().repeats;
            let mut others = Vec::new();
            for other in alive.into_iter().filter(|cell| *cell != best) {
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
                return Ok(Race {
                    best: Some(frugal),
                    confidence: (1.0_f64 - doubts).max(0.0),
                    tied: others,
                    standings,
                });
            }
            others.push(best);
            alive = others;
            self.repeat(&alive)?;
        }
    }

    /// The first level of the best's candidate that is as good, as far as its first run tells: by bisection, since less of a card is
    /// expected to be slower.
    fn frugal(&mut self, best: Cell) -> Result<Cell, E> {
        let (mut low, mut high) = (0, best.level);
        while low < high {
            let middle = Cell {
                level: (low + high) / 2,
                ..best
            };
            self.begin(&[middle])?;
            if !self.hopeless(middle) && self.excess(middle, best) <= AS_GOOD {
                high = middle.level;
            } else {
                low = middle.level + 1;
            }
        }
        Ok(Cell { level: high, ..best })
    }

    /// How much larger a cell's score is than another's over the same requests, as a part of the other's.
    fn excess(&self, cell: Cell, other: Cell) -> f64 {
        let (mut sum, mut of_other) = (0.0, 0.0);
        for (a, b) in self.samples(cell).iter().zip(self.samples(other)) {
            sum += a.score.iter().sum::<f64>() / a.score.len().max(1) as f64;
            of_other += b.score.iter().sum::<f64>() / b.score.len().max(1) as f64;
        }
        if of_other > 0.0 {
            sum / of_other - 1.0
        } else {
            f64::INFINITY
        }
    }

    fn hopeless(&self, cell: Cell) -> bool {
        self.samples(cell).iter().any(|sample| sample.hopeless)
    }

    fn mean(&self, cell: Cell) -> f64 {
        self.judged(cell).map_or(f64::INFINITY, |judgement| judgement.score)
    }

    /// How sure it is that `cell` has a larger score than `other`, by the batches of the repeats that both have run.
    fn worse(&self, cell: Cell, other: Cell) -> f64 {
        let pairs = self.samples(cell).iter().zip(self.samples(other));
        let differences = pairs.map(|(a, b)| a.score.iter().zip(&b.score).map(|(a, b)| a - b).collect::<Vec<f64>>());
        let differences: Vec<Vec<f64>> = differences.collect();
        // Equal scores leave nothing to choose, and no further repeat would.
        Estimate::of(&differences).map_or(0.5, |difference| match (difference.mean, difference.error) {
            (0.0, 0.0) => 0.5,
            _ => difference.above(0.0),
        })
    }
}
