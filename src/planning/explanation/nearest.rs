//! What comes nearest where nothing keeps the target.

use rayon::prelude::*;
use tenantry_core::durations::Durations;
use tenantry_reports::human;
use tenantry_reports::summary::rounded;
use tenantry_sim::plan::{Cell, Sample};

use super::Explanation;
use crate::failure::Failure;
use crate::planning::found::{cards, system};

/// A cell, and what its runs came to over all of their requests: so the table of options has it too.
#[derive(Clone, Copy, Debug)]
pub struct Nearest {
    pub cell: Cell,
    /// Of the requests that were judged, those in time, …
    pub in_time: f64,
    /// … and those that nobody answered.
    pub unanswered: f64,
    /// Of those that were answered, at the target's quantile, in milliseconds; infinite where none was.
    pub latency_ms: f64,
}

impl Nearest {
    fn of(cell: Cell, samples: &[Sample], in_time: f64, quantile: f64) -> Nearest {
        let mut latencies = Durations::default();
        samples.iter().for_each(|sample| latencies.add(&sample.latencies));
        let judged: u64 = samples.iter().map(|sample| sample.judged).sum();
        Nearest {
            cell,
            in_time,
            unanswered: judged.saturating_sub(latencies.count()) as f64 / judged.max(1) as f64,
            latency_ms: match latencies.count() {
                0 => f64::INFINITY,
                _ => latencies.quantile_ns(quantile) as f64 / 1e6,
            },
        }
    }
}

impl<F> Explanation<'_, F>
where
    F: FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Failure>,
{
    /// Of all that was run, that of which most requests are in time.
    pub fn nearest(&self) -> Result<Option<Nearest>, Failure> {
        match self.nearest.get() {
            Some(nearest) => Ok(*nearest),
            None => {
                let nearest = self.look_for_nearest()?;
                Ok(*self.nearest.get_or_init(|| nearest))
            }
        }
    }

    /// What was stopped is run to its end where it may be the nearest.
    fn look_for_nearest(&self) -> Result<Option<Nearest>, Failure> {
        let share = |samples: &[Sample]| {
            let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
            sum(|sample| sample.kept) as f64 / sum(|sample| sample.judged).max(1) as f64
        };
        let (evaluator, quantile) = (self.evaluator, self.evaluator.quantile());
        let is_stopped = |cell: &Cell| self.judged(*cell).is_some_and(|judged| judged.hopeless);
        let (stopped, ended): (Vec<Cell>, Vec<Cell>) = self.run().into_iter().partition(is_stopped);
        let of_ended = |cell: Cell| {
            let in_time = self.judged(cell)?.share.mean;
            Some(Nearest::of(cell, self.search.samples(cell), in_time, quantile))
        };
        let mut all: Vec<Nearest> = ended.into_iter().filter_map(of_ended).collect();
        let least = all.iter().map(|nearest| nearest.in_time).fold(-1.0, f64::max);
        // Of a run that was stopped, all that could have been in time are taken to be.
        let open = stopped.into_iter().map(|cell| (cell, self.search.samples(cell)));
        let open: Vec<(Cell, u32)> = open
            .filter(|(_, samples)| share(samples) > least)
            .map(|(cell, samples)| (cell, samples.len() as u32))
            .collect();
        let in_full = |(cell, repeats): (Cell, u32)| {
            let runs = (0..repeats).map(|repeat| evaluator.in_full(cell, repeat));
            let runs = runs.collect::<Result<Vec<_>, Failure>>()?;
            Ok(Nearest::of(cell, &runs, share(&runs), quantile))
        };
        let open = open.into_par_iter().map(in_full);
        all.extend(open.collect::<Result<Vec<_>, Failure>>()?);
        // Of equals the fastest, as where nothing is in time.
        let order =
            |a: &Nearest, b: &Nearest| b.in_time.total_cmp(&a.in_time).then(a.latency_ms.total_cmp(&b.latency_ms));
        all.sort_by(order);
        Ok(all.first().copied())
    }

    /// What it is, and what its requests came to.
    pub(super) fn nearest_in_words(&self, nearest: Nearest) -> String {
        // Without a target the share says it.
        let unanswered = self.scenario.slo.and_then(|_| self.unanswered(nearest.cell));
        let unanswered = unanswered.map_or(String::new(), |why| {
            format!(" and {} are not answered: {why}", human::percent(nearest.unanswered))
        });
        format!(
            "{} with {}, where {} are {}{}{unanswered}",
            cards(self.evaluator, nearest.cell),
            system(self.evaluator, nearest.cell),
            human::percent_apart(nearest.in_time, self.evaluator.quantile()),
            self.kept(),
            self.reached(nearest).unwrap_or_default()
        )
    }

    /// The quantile that a target for whole answers is about: how near is near, a share does not say.
    fn reached(&self, nearest: Nearest) -> Option<String> {
        let slo = self.scenario.slo?;
        let limit_ms = slo.target.latency?.as_millis_f64();
        let at = rounded(slo.quantile * 100.0);
        let reached = human::milliseconds_apart(nearest.latency_ms, limit_ms);
        nearest.latency_ms.is_finite().then(|| format!(" (p{at} is {reached})"))
    }
}
