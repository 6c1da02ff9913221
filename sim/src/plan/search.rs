//! The first level that meets a target, of the best candidate.

use std::collections::BTreeMap;

use tenantry_core::durations::Durations;

use super::judgement::{Judgement, all, judgement, quantile_ms};
use super::{Rules, Sample};

/// Below this share of busy time, what misses the target does so for another reason than too much load: a batch that
/// does not fill, a latency that no further card shortens. More generous levels need not be better then.
pub(super) const IDLE: f64 = 0.5;

/// Candidates whose first runs are made together.
const TOGETHER: usize = 2;

/// A way to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The value of each level, rising: less is better.
    pub values: Vec<f64>,
}

/// A candidate at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Which candidate.
    pub candidate: usize,
    /// Which of its levels.
    pub level: usize,
}

/// What came of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The first level that meets the target, of those that were of interest; nothing where none does.
    pub level: Option<usize>,
    /// The cell that says so.
    pub decided_by: Cell,
    /// A more generous level missed the target where a less generous one met it: levels were tried one by one.
    pub not_monotone: bool,
}

/// The best.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What meets the target at the least value; nothing where nothing meets it.
    pub best: Option<Cell>,
    /// How sure: that the best meets the target, that one level less does not, and that each other candidate misses it
    /// where it would be better than the best, all together (Bonferroni).
    pub confidence: f64,
    /// Of all that says so, what is least sure.
    pub least_sure: Option<Cell>,
    /// Of each candidate.
    pub standings: Vec<Standing>,
}

/// Runs cells, remembers what came of them, and decides.
pub struct Search<F> {
    rules: Rules,
    run: F,
    samples: BTreeMap<Cell, Vec<Sample>>,
    /// What the samples say.
    judged: BTreeMap<Cell, Judgement>,
    /// Of a candidate, so many of its least generous levels.
    refused: BTreeMap<usize, usize>,
    runs: usize,
}

impl<F, E> Search<F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, E>,
{
    /// A search by these rules. `run` runs each cell with the repeat's seed, all of one call at once if it likes. The
    /// same repeat has the same requests in every cell that may be compared: differences are then the candidates' own.
    pub fn new(rules: Rules, run: F) -> Search<F> {
        Search {
            rules,
            run,
            samples: BTreeMap::new(),
            judged: BTreeMap::new(),
            refused: BTreeMap::new(),
            runs: 0,
        }
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Runs so far.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Every cell that was run.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        self.samples.keys().copied()
    }

    /// The runs of a cell.
    pub fn samples(&self, cell: Cell) -> &[Sample] {
        self.samples.get(&cell).map_or(&[], Vec::as_slice)
    }

    /// The next repeat of each cell, at once.
    pub fn repeat(&mut self, cells: &[Cell]) -> Result<(), E> {
        let wanted: Vec<(Cell, u32)> = cells.iter().map(|cell| (*cell, self.samples(*cell).len() as u32)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let samples = (self.run)(&wanted)?;
        self.runs += wanted.len();
        for ((cell, _), sample) in wanted.into_iter().zip(samples) {
            self.samples.entry(cell).or_default().push(sample);
            self.judge_again(cell);
        }
        Ok(())
    }

    /// The first run of each cell that has none, at once.
    pub fn begin(&mut self, cells: &[Cell]) -> Result<(), E> {
        let new: Vec<Cell> = cells.iter().copied().filter(|cell| self.samples(*cell).is_empty()).collect();
        self.repeat(&new)
    }

    /// A candidate is no answer at this level, nor at any that is less generous, whatever their runs say.
    pub fn refuse_up_to(&mut self, cell: Cell) {
        let levels = self.refused.entry(cell.candidate).or_default();
        *levels = (*levels).max(cell.level + 1);
        let refused = (0..cell.level + 1).map(|level| Cell { level, ..cell });
        refused.for_each(|cell| self.judge_again(cell));
    }

    fn judge_again(&mut self, cell: Cell) {
        let is_refused = self.refused.get(&cell.candidate).is_some_and(|levels| cell.level < *levels);
        let Some(samples) = self.samples.get_mut(&cell) else {
            return;
        };
        samples.iter_mut().for_each(|sample| sample.refused |= is_refused);
        self.judged.extend(judgement(samples, &self.rules).map(|judged| (cell, judged)));
    }

    /// Decides whether a cell meets the target, with as many repeats as that takes.
    ///
    /// # Errors
    /// When a run fails.
    pub fn judge(&mut self, cell: Cell) -> Result<Judgement, E> {
        while !self.is_settled(cell) {
            self.repeat(&[cell])?;
        }
        Ok(self.judged(cell).expect("the cell has a run"))
    }

    /// What a cell's runs so far say, of which one is made where there is none: what shows a search its way. What it
    /// rests on in the end is [judged](Self::judge).
    fn glance(&mut self, cell: Cell) -> Result<Judgement, E> {
        self.begin(&[cell])?;
        Ok(self.judged(cell).expect("the cell has a run"))
    }

    /// Whether a cell has as many runs as its decision takes: a few seeds, and more where they are not sure. What is
    /// hopeless is so by what other seeds could at most make up for, and needs no others to be sure.
    pub(super) fn is_settled(&self, cell: Cell) -> bool {
        let Some(judgement) = self.judged(cell) else {
            return false;
        };
        let enough = judgement.runs >= self.rules.seeds || judgement.hopeless || self.rules.share <= 0.0;
        judgement.runs >= self.rules.repeats || enough && judgement.confidence >= self.rules.confidence
    }

    /// What the runs so far say of a cell; nothing where there is none.
    pub fn judged(&self, cell: Cell) -> Option<Judgement> {
        self.judged.get(&cell).copied()
    }

    /// The latency at the rules' quantile over all requests of a cell's first `repeats` runs.
    pub fn latency_ms(&self, cell: Cell, repeats: usize) -> f64 {
        let samples = self.samples(cell);
        match self.judged(cell) {
            Some(judged) if repeats >= samples.len() => judged.score,
            _ => quantile_ms(
                &all(&samples[..repeats.min(samples.len())], |sample| &sample.latencies),
                &self.rules,
            ),
        }
    }

    /// What a part of an answer took at the rules' quantile, over all requests of a cell's runs; nothing where the
    /// target does not limit it.
    pub fn part_ms(&self, cell: Cell, of: fn(&Sample) -> Option<&Durations>) -> Option<f64> {
        let mut all = Durations::default();
        for sample in self.samples(cell) {
            all.add(of(sample)?);
        }
        Some(quantile_ms(&all, &self.rules)).filter(|took| took.is_finite())
    }

    /// Whether a cell's latency is less than another's, over the seeds that both have run.
    pub fn is_faster(&self, cell: Cell, other: Cell) -> bool {
        let repeats = self.samples(cell).len().min(self.samples(other).len());
        self.latency_ms(cell, repeats) < self.latency_ms(other, repeats)
    }

    /// The candidate and the level of least value that meet the target; of several with the same value the one with the
    /// least score.
    ///
    /// Monotony is checked in three ways. A candidate that misses the target at a level without being busy is not given
    /// up: fewer cards may fill its batches. Around what a bisection finds, one more level is tried above where none
    /// was, and one below where the miss there was not for too much load. And whenever a level misses the target and a
    /// less generous one meets it, that candidate's levels are tried one by one.
    ///
    /// A way through the levels is looked for by one run of each; what the answer rests on is then run with other
    /// seeds, and where that changes a decision, the way is looked for again.
    ///
    /// # Errors
    /// When a run fails.
    pub fn best(&mut self, candidates: &[Candidate]) -> Result<Answer, E> {
        loop {
            let (best, standings) = self.sketch(candidates)?;
            let deciding = self.deciding(candidates, best, &standings);
            let open: Vec<Cell> = deciding.iter().copied().filter(|cell| !self.is_settled(*cell)).collect();
            if open.is_empty() {
                let sure = |cell: &Cell| self.judged(*cell).map_or(0.5, |judgement| judgement.confidence);
                let doubts: f64 = deciding.iter().map(|cell| 1.0 - sure(cell)).sum();
                return Ok(Answer {
                    best,
                    confidence: (1.0 - doubts).max(0.0),
                    least_sure: deciding.iter().copied().min_by(|a, b| sure(a).total_cmp(&sure(b))),
                    standings,
                });
            }
            self.repeat(&open)?;
        }
    }

    /// The best by the runs so far and one of each cell on the way.
    fn sketch(&mut self, candidates: &[Candidate]) -> Result<(Option<Cell>, Vec<Standing>), E> {
        let mut standings: Vec<Standing> = Vec::new();
        let mut best: Option<Cell> = None;
        let value = |cell: Cell| candidates[cell.candidate].values[cell.level];
        for (index, candidate) in candidates.iter().enumerate() {
            if best.is_some() && index % TOGETHER == 1 {
                let next = (index..candidates.len().min(index + TOGETHER)).filter_map(|other| {
                    let level = self.as_good(&candidates[other], best.map(value))?;
                    Some(Cell {
                        candidate: other,
                        level,
                    })
                });
                let next: Vec<Cell> = next.collect();
                self.begin(&next)?;
            }
            let Some(bound) = self.as_good(candidate, best.map(value)) else {
                // Its best level is worse than what is known: there is nothing to run.
                standings.push(Standing {
                    level: None,
                    decided_by: best.expect("nothing else is better than every level"),
                    not_monotone: false,
                });
                continue;
            };
            let standing = self.first(index, bound, best.is_some())?;
            standings.push(standing);
            if let Some(level) = standing.level {
                let cell = Cell {
                    candidate: index,
                    level,
                };
                best = match best {
                    Some(known) if value(known) < value(cell) => Some(known),
                    Some(known) if value(known) == value(cell) && !self.is_faster(cell, known) => Some(known),
                    _ => Some(cell),
                };
            }
        }
        Ok((best, standings))
    }

    /// The most generous level that is as good as the best known; nothing where there is none.
    fn as_good(&self, candidate: &Candidate, best: Option<f64>) -> Option<usize> {
        let levels = &candidate.values;
        let good = best.map_or(levels.len(), |best| levels.partition_point(|&value| value <= best));
        good.checked_sub(1)
    }

    /// The first level of a candidate, up to `bound`, that meets the target. `rival`: at `bound` it is as good as the
    /// best known.
    fn first(&mut self, candidate: usize, bound: usize, rival: bool) -> Result<Standing, E> {
        let cell = |level: usize| Cell { candidate, level };
        let at_bound = self.glance(cell(bound))?;
        let (mut low, mut high) = (0, bound);
        if !at_bound.meets {
            // One of fewer cards, say, may have been run already, and keep it.
            let known = (0..bound).rev().find(|level| self.judged(cell(*level)).is_some_and(|judged| judged.meets));
            let found = match known {
                None if at_bound.busy < IDLE => self.below(candidate, bound, at_bound)?,
                known => known,
            };
            let Some(level) = found else {
                return Ok(Standing {
                    level: None,
                    decided_by: cell(bound),
                    not_monotone: false,
                });
            };
            high = level;
        } else if rival {
            // Where a rival is better than the best known, it is mostly by a little: steps double for as long as they
            // succeed.
            let mut step = 1;
            while step <= high {
                if !self.glance(cell(high - step))?.meets {
                    low = high - step + 1;
                    break;
                }
                high -= step;
                step *= 2;
            }
        }
        while low < high {
            let middle = (low + high) / 2;
            if self.glance(cell(middle))?.meets {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.checked(candidate, high, bound)
    }

    /// A level below `bound` that meets the target, where `bound` misses it without being busy. Levels are halved for
    /// as long as that helps, or nothing at all is in time; where it does and none of them meets the target, they are
    /// tried one by one.
    fn below(&mut self, candidate: usize, bound: usize, at_bound: Judgement) -> Result<Option<usize>, E> {
        let cell = |level: usize| Cell { candidate, level };
        let (mut level, mut share, mut helped) = (bound, at_bound.share.mean, false);
        while level > 0 {
            level /= 2;
            let judgement = self.glance(cell(level))?;
            if judgement.meets {
                return Ok(Some(level));
            }
            if judgement.share.mean <= share && share > 0.0 {
                break;
            }
            helped |= judgement.share.mean > share;
            share = judgement.share.mean;
        }
        for level in (0..if helped { bound } else { 0 }).rev() {
            if self.glance(cell(level))?.meets {
                return Ok(Some(level));
            }
        }
        Ok(None)
    }

    /// The standing of a candidate that first meets the target at `found`, after looking whether that is monotone.
    fn checked(&mut self, candidate: usize, found: usize, bound: usize) -> Result<Standing, E> {
        let cell = |level: usize| Cell { candidate, level };
        let tried = |search: &Self, levels: std::ops::Range<usize>| {
            levels.filter(|level| !search.samples(cell(*level)).is_empty()).count()
        };
        // The level just below misses already. Where that was too much load, lesser ones have more of it; where not,
        // one further down tells whether it goes on.
        let overloaded = found > 0 && self.judged(cell(found - 1)).is_some_and(|judged| judged.busy >= IDLE);
        if found >= 3 && !overloaded && tried(self, 0..found) < 2 {
            self.glance(cell(found / 2))?;
        }
        if bound > found + 1 && tried(self, found + 1..bound + 1) == 0 {
            self.glance(cell((found + bound).div_ceil(2)))?;
        }
        let judged: Vec<(usize, bool)> =
            (0..=bound).filter_map(|level| Some((level, self.judged(cell(level))?.meets))).collect();
        let first_met = judged.iter().find(|(_, meets)| *meets).map(|(level, _)| *level);
        let missed_above = judged.iter().any(|(level, meets)| !meets && first_met.is_some_and(|met| *level > met));
        let mut found = found;
        if missed_above {
            for level in 0..found {
                if self.glance(cell(level))?.meets {
                    found = level;
                    break;
                }
            }
        }
        Ok(Standing {
            level: Some(found),
            decided_by: cell(found),
            not_monotone: missed_above,
        })
    }

    /// What an answer rests on: see [`Answer::confidence`].
    fn deciding(&self, candidates: &[Candidate], best: Option<Cell>, standings: &[Standing]) -> Vec<Cell> {
        let value = |cell: Cell| candidates[cell.candidate].values[cell.level];
        let below = best.and_then(|best| {
            Some(Cell {
                level: best.level.checked_sub(1)?,
                ..best
            })
        });
        let mut deciding: Vec<Cell> = best.into_iter().chain(below).collect();
        for (candidate, standing) in standings.iter().enumerate() {
            if best.is_some_and(|best| best.candidate == candidate) {
                continue;
            }
            match (standing.level, best) {
                // It was given up at a level that an earlier best left it; what counts is that it misses the target
                // where it is as good as the final one, whichever came first.
                (None, best) => {
                    let level = match best {
                        Some(_) => self.as_good(&candidates[candidate], best.map(value)),
                        None => Some(standing.decided_by.level),
                    };
                    deciding.extend(level.map(|level| Cell { candidate, level }));
                }
                (Some(level), Some(best)) => {
                    // It meets the target, and would be better than the best at any level before this one. The last of
                    // them that may be, or a more generous one, misses it.
                    let values = &candidates[candidate].values;
                    let better = values.partition_point(|of| *of < value(best)).min(level);
                    let missed = (better.saturating_sub(1)..level).rev().filter_map(|level| {
                        let cell = Cell { candidate, level };
                        let judgement = self.judged(cell).filter(|judgement| !judgement.meets)?;
                        Some((judgement.confidence, cell))
                    });
                    let surest = missed.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| better > 0);
                    deciding.extend(surest.map(|(_, cell)| cell));
                }
                (Some(_), None) => unreachable!("what meets the target is the best, or another is better"),
            }
        }
        deciding.extend((0..candidates.len()).filter_map(|candidate| self.nearest_miss(candidates, candidate, best)));
        deciding.sort_unstable();
        deciding.dedup();
        deciding
    }

    /// Of a candidate's levels that were run, miss the target and would be at least as good as the best, the one of
    /// which that is least sure: where levels are not monotone, what the last of them says is not said of it.
    pub(super) fn nearest_miss(&self, candidates: &[Candidate], candidate: usize, best: Option<Cell>) -> Option<Cell> {
        let values = &candidates[candidate].values;
        let most = best.map(|best| candidates[best.candidate].values[best.level]);
        let missed = (0..values.len()).filter_map(|level| {
            let cell = Cell { candidate, level };
            let judgement = self.judged(cell).filter(|judgement| !judgement.meets)?;
            let is_as_good = most.is_none_or(|most| values[level] <= most);
            is_as_good.then_some((judgement.confidence, cell))
        });
        missed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, cell)| cell)
    }
}

#[cfg(test)]
mod tests;
