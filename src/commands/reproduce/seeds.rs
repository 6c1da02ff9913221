//! A scenario's runs with several seeds: what of a figure is the load's chance.

use serde::Serialize;
use tenantry_reports::summary::rounded;

use super::lab::Runs;

/// Runs that differ in their seed alone, by seed.
#[derive(Debug)]
pub struct Seeds(pub Vec<Runs>);

/// A figure over several seeds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// What is compared with the paper's; of a quotient that of the medians.
    pub median: f64,
    least: f64,
    greatest: f64,
    seeds: usize,
}

/// What reports say of a figure's seeds beside the median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// How many there were.
    pub seeds: usize,
    /// The least figure of any.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Seeds {
    /// A figure of each seed's runs. The number of seeds is odd, so that the median is one of them.
    pub fn spread(&self, of: impl Fn(&Runs) -> f64) -> Spread {
        let mut figures: Vec<f64> = self.0.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        Spread {
            median: figures[figures.len() / 2],
            least: figures[0],
            greatest: figures[figures.len() - 1],
            seeds: figures.len(),
        }
    }

    /// One figure over another: the quotient of their medians, which is what a reader makes of the two, and the range
    /// of the seeds' own.
    pub fn ratio(&self, of: impl Fn(&Runs) -> f64, over: impl Fn(&Runs) -> f64) -> Spread {
        Spread {
            median: self.spread(&of).median / self.spread(&over).median,
            ..self.spread(|runs| of(runs) / over(runs))
        }
    }

    /// Of how many seeds something holds: `3 of 5 seeds`.
    pub fn holding(&self, holds: impl Fn(&Runs) -> bool) -> String {
        let holding = self.0.iter().filter(|runs| holds(runs)).count();
        format!("{holding} of {} seeds", self.0.len())
    }

    /// Whether any run of these systems, or of all where none is named, was priced beyond the range of its card's
    /// tables.
    pub fn beyond(&self, systems: &[&str]) -> bool {
        self.0.iter().any(|runs| runs.beyond(systems))
    }
}

impl From<Spread> for Range {
    fn from(spread: Spread) -> Range {
        Range {
            seeds: spread.seeds,
            least: rounded(spread.least),
            greatest: rounded(spread.greatest),
        }
    }
}
