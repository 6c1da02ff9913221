//! Whether an answer holds for longer than a run of the scenario's length shows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rayon::prelude::*;
use tenantry_reports::human;
use tenantry_scenarios::Objective;
use tenantry_sim::plan::{Cell, Sample};
use tenantry_traces::Time;
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, WorkloadSpec};

use super::{Evaluator, SEEDS, locked, remembered};
use crate::failure::Failure;
use crate::planning::binds::GIVEN_UP;
use crate::planning::dispersion::{Evenness, unscaled};
use crate::planning::judge::{Judge, Judged};
use crate::runs::simulate_watched;

/// How many times as many requests an answer is asked once more.
const LONGER: u64 = 16;

impl Evaluator<'_> {
    /// Whether a cell that keeps the target no longer does, over [`LONGER`] times as many requests that come at the
    /// same rate: a queue that grows by little is not seen in a run of the scenario's length. Never where there is no
    /// target, or no one rate.
    pub fn falls_behind(&self, cell: Cell) -> Result<bool, Failure> {
        let share = remembered(&self.known.longer, self.served(cell), || self.share_of_longer(cell))?;
        if let Some(share) = share {
            locked(&self.behind).insert(cell, share);
        }
        Ok(share.is_some())
    }

    /// Of many times as many requests, the share in time where surely too few are. What is asked as much as can be
    /// served is near its limit by intent, where one seed's chance tells little: there several seeds together must keep
    /// the target.
    fn share_of_longer(&self, cell: Cell) -> Result<Option<f64>, Failure> {
        let to_the_limit = matches!(self.plan.find, Objective::HighestRate | Objective::MostTenants);
        let seeds = match to_the_limit && !self.has_one_workload() {
            true => SEEDS,
            false => 1,
        };
        let samples = (0..seeds).into_par_iter().map(|repeat| self.longer(cell, repeat));
        let samples: Vec<Option<Sample>> = samples.collect::<Result<_, Failure>>()?;
        let samples: Vec<Sample> = samples.into_iter().flatten().collect();
        let in_time = |samples: &mut dyn Iterator<Item = &Sample>| {
            let (kept, judged) = samples.fold((0, 0), |(kept, judged), of| (kept + of.kept, judged + of.judged));
            kept as f64 / judged.max(1) as f64
        };
        let hopeless = samples.iter().filter(|sample| sample.hopeless).map(|of| in_time(&mut [of].into_iter()));
        if let Some(least) = hopeless.reduce(f64::min) {
            return Ok(Some(least));
        }
        let of_all = in_time(&mut samples.iter());
        Ok((samples.len() > 1 && of_all < self.quantile()).then_some(of_all))
    }

    /// A run of many times as many requests, stopped when so many are late that it is no chance; nothing where there is
    /// none to be made.
    fn longer(&self, cell: Cell, repeat: u32) -> Result<Option<Sample>, Failure> {
        let Ok(mut run) = self.run_of(cell, repeat)? else {
            return Ok(None);
        };
        if run.slo.is_none() || !is_steady(&run.workload) {
            return Ok(None);
        }
        let stop = &mut run.workload.stop;
        stop.requests = stop.requests.map(|requests| requests.saturating_mul(LONGER));
        stop.after = stop.after.map(|after| Time(after.0.saturating_mul(LONGER)));
        let judged = Judged::of(&run, &self.interrupt)?;
        let user = Arc::clone(&self.interrupt);
        let mut judge = Judge::new(&run, judged, Evenness::EVEN, self.quantile(), 1, user);
        let done = simulate_watched(&run, &self.cards[run.card.as_str()], judge.stop(), Some(&mut judge))?;
        self.not_interrupted()?;
        self.known.made.fetch_add(1, Ordering::Relaxed);
        Ok(Some(judge.finish(&done.record, 0.0)))
    }

    /// How a cell, or a more generous level of its candidate, falls behind.
    pub(super) fn behind(&self, cell: Cell) -> Option<String> {
        let last = Cell {
            level: usize::MAX,
            ..cell
        };
        let behind = locked(&self.behind);
        let (_, share) = behind.range(cell..=last).next()?;
        let share = human::percent(*share);
        Some(format!(
            "{GIVEN_UP}of {LONGER} times as many requests at most {share} are in time"
        ))
    }
}

/// Whether requests that are alike come at one rate, by whatever chance, for however long. Tenants that have a day,
/// that appear and go, and lengths that drift make of a longer run another load.
fn is_steady(workload: &WorkloadSpec) -> bool {
    let at_one_rate = matches!(
        unscaled(&workload.arrivals),
        ArrivalsSpec::Poisson { .. } | ArrivalsSpec::Constant { .. } | ArrivalsSpec::Gamma { .. }
    );
    let presence = &workload.presence;
    let drifts = |length: &LengthSpec| matches!(length, LengthSpec::Drifting { .. });
    let alike = match &workload.lengths {
        LengthsSpec::Independent { input, output } => !drifts(input) && !drifts(output),
        LengthsSpec::ShareGpt | LengthsSpec::Joint(_) | LengthsSpec::Resampled { .. } => true,
        LengthsSpec::OfArrivals => false,
    };
    // Who is created or deleted comes or goes like any other.
    let stay = workload.management == ManagementSpec::None;
    at_one_rate && presence.diurnal.is_none() && presence.lifetimes.is_none() && stay && alike
}

#[cfg(test)]
mod tests {
    use tenantry_scenarios::Scenario;

    use super::*;

    #[test]
    fn a_longer_run_is_of_the_same_load_or_is_not_made() {
        let steady = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
            let scenario = Scenario::load("quickstart", &settings).unwrap_or_else(|errors| panic!("{errors}"));
            is_steady(&scenario.runs()[0].workload)
        };
        let poisson = "workload.arrivals={poisson: {rate: 100/s}}";
        assert!(steady(&[poisson]));
        assert!(!steady(&[
            "workload.arrivals={ramp: {points: [{at: 0s, rate: 10/s}, {at: 10s, rate: 100/s}]}}"
        ]));
        let day = "tenants.presence={diurnal: {period: 24h, trough: 0.05}}";
        assert!(!steady(&[poisson, day]));
        assert!(!steady(&[
            poisson,
            "tenants.presence={lifetimes: {present_at_start: 0.5, appear_within: 1h, mean_stay: 2h}}"
        ]));
        assert!(steady(&[
            poisson,
            "tenants.presence={on_off: {mean_on: 10s, mean_off: 10s}}"
        ]));
        assert!(!steady(&[
            poisson,
            "workload.management={rates: {present_at_start: 100%, delete: 0.1/s}}"
        ]));
        let drifting = "workload.lengths={input: {drifting: {from: {fixed: 16}, to: {fixed: 64}, requests: 1000}}}";
        assert!(!steady(&[poisson, drifting]));
    }
}
