//! What is known of the loads that cells are asked: when their requests come, and how evenly.

use std::sync::Arc;

use tenantry_scenarios::RunSpec;
use tenantry_sim::plan::{Bursts, Cell};

use super::{Evaluator, Load, locked, remembered};
use crate::caveats::AnotherRate;
use crate::failure::Failure;
use crate::planning::dispersion::{Evenness, of_seeds};
use crate::planning::judge::{Judged, is_drawn, is_recorded};

/// What the seeds of other repeats bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherSeeds {
    /// Other requests, or other fates of them.
    Others,
    /// The same, in all that decides a run.
    TheSame,
    /// A recording's bursts once more, whatever else differs.
    TheRecording,
}

impl Evaluator<'_> {
    /// Whether other seeds are no further evidence.
    pub fn has_one_workload(&self) -> bool {
        self.other_seeds != OtherSeeds::Others
    }

    /// What other seeds bring: of a recording its bursts again, or the same requests, of which the same becomes.
    /// Repeats would be the same evidence again.
    pub(super) fn other_seeds_bring(&self) -> Result<OtherSeeds, Failure> {
        let last = |candidate: usize| {
            let level = self.levels[candidate].len() - 1;
            Cell { candidate, level }
        };
        let least = |candidate: usize| {
            let scenario = self.scenario_of(last(candidate), 2);
            Ok::<_, Failure>(scenario.map_err(Failure::BadInput)?.runs())
        };
        let first = least(0)?;
        if is_recorded(&first[0].workload.arrivals) {
            return Ok(OtherSeeds::TheRecording);
        }
        for candidate in 0..self.offers.len() {
            if is_drawn(&least(candidate)?[0]) {
                return Ok(OtherSeeds::Others);
            }
        }
        // Where tenants are what is planned, seeds may differ in the most of them alone; these may be no valid scenario.
        let most = Cell { candidate: 0, level: 0 };
        let most = match self.load(most) == self.load(last(0)) {
            true => Vec::new(),
            false => self.scenario_of(most, 2).map_or(Vec::new(), |scenario| scenario.runs()),
        };
        for runs in [first, most] {
            let digests = runs.iter().map(|run| Ok(Judged::of(run, &self.interrupt)?.digest));
            let digests = digests.collect::<Result<Vec<_>, Failure>>()?;
            if digests.iter().any(|digest| digest.is_none() || *digest != digests[0]) {
                return Ok(OtherSeeds::Others);
            }
        }
        Ok(OtherSeeds::TheSame)
    }

    /// Requests a second in a cell that was run: as its scenario names them, or, where it names no rate or they came at
    /// another, as they came with the first seed.
    pub fn rate_per_s(&self, cell: Cell) -> Option<f64> {
        let came = self.came_per_s(cell)?;
        let run = self.seeds_of(cell, 1).ok()?.pop()?;
        let asked = run.workload.arrivals.rate_per_s();
        let requests = self.first_judged(cell)?.requests();
        let is_another = AnotherRate::of_rate(&run.workload, came, requests).is_some();
        Some(asked.filter(|_| !is_another).unwrap_or(came))
    }

    /// How many requests a second came with the first seed of a cell that was run.
    pub fn came_per_s(&self, cell: Cell) -> Option<f64> {
        self.first_judged(cell)?.rate_per_s
    }

    /// For how long requests came in a cell that was run, the warm-up left out.
    pub fn span_s(&self, cell: Cell) -> Option<f64> {
        self.first_judged(cell)?.span_s
    }

    /// How many times the scenario's load, and of how many tenants.
    fn load(&self, cell: Cell) -> Load {
        let (.., tenants, load) = self.served(cell);
        (load, tenants)
    }

    /// Of the first seed that brings requests after the warm-up.
    fn first_judged(&self, cell: Cell) -> Option<Judged> {
        let (load, tenants) = self.load(cell);
        let known = locked(&self.known.judged);
        let mut repeats = known.range((load, tenants, 0)..=(load, tenants, u32::MAX));
        repeats.find_map(|(_, judged)| (judged.requests() > 0).then_some(*judged))
    }

    /// How evenly a cell's requests come; as if evenly where there is but one workload, of which the parts are
    /// compared.
    pub fn evenness(&self, cell: Cell) -> Result<Evenness, Failure> {
        remembered(&self.known.evenness, self.load(cell), || {
            // What is not valid is refused when it is to be run.
            match !self.has_one_workload() && self.scenario_of(cell, 1).is_ok() {
                true => self.counting(|| Evenness::of(|repeats| self.seeds_of(cell, repeats), &self.interrupt)),
                false => Ok(Evenness::EVEN),
            }
        })
    }

    fn seeds_of(&self, cell: Cell, repeats: u32) -> Result<Vec<RunSpec>, Failure> {
        Ok(self.scenario_of(cell, repeats).map_err(Failure::BadInput)?.runs())
    }

    /// Says what takes a while.
    fn counting<T>(&self, count: impl FnOnce() -> T) -> T {
        self.bar.set_message(", counting when requests come with other seeds");
        let counted = count();
        self.bar.set_message("");
        counted
    }

    /// When a load's Poisson requests come by many seeds; nothing where that cannot be known, or tells nothing.
    pub fn arrivals(&self, cell: Cell) -> Result<Option<Arc<Bursts>>, Failure> {
        remembered(&self.known.arrivals, self.load(cell), || {
            if self.has_one_workload() {
                return Ok(None);
            }
            let found = self.counting(|| of_seeds(|repeats| self.seeds_of(cell, repeats), &self.interrupt))?;
            Ok(found.map(Arc::new))
        })
    }

    pub(super) fn judged(&self, run: &RunSpec, cell: Cell, repeat: u32) -> Result<Judged, Failure> {
        let (load, tenants) = self.load(cell);
        remembered(&self.known.judged, (load, tenants, repeat), || {
            Judged::of(run, &self.interrupt)
        })
    }
}
