//! How a cell would fare under many more seeds than it was run with, by their arrivals alone.
//!
//! Where requests come in bursts that are about as long as a run, most runs see none that matters, and a few see most
//! of what is late: some runs say next to nothing of the share that is late in the long run, and their own spread says
//! too little of how little. But what differs between such runs is mostly when their requests came, and that costs
//! little to draw. A *fluid queue*, which serves its backlog at a steady rate, tells from the arrivals how many wait
//! too long; its rate is the one that makes as many late as were in the runs. It then says what the other seeds would
//! have seen. That is a control variate whose mean is estimated from more repeats (Law and Kelton, *Simulation Modeling
//! and Analysis*, section 11.4; Schmeiser, Taaffe and Wang, *Biased control-variate estimation*, IIE Transactions 33,
//! 2001): how far the fluid is from the runs, seed by seed, counts as doubt, and so does how much the seeds differ.

use tenantry_core::durations::Durations;
use tenantry_traces::Duration;

use super::Sample;
use super::stats::Estimate;

/// Halvings of the rate that is looked for: to a millionth of a millionth.
const HALVINGS: u32 = 40;

/// A wait for so much of what may be waited tells of a backlog, and how long that became; a shorter one may be that for
/// a batch to fill.
const BACKLOG: f64 = 0.5;

/// The least part of what may be waited that is told from no wait.
const NO_WAIT: f64 = 0.01;

/// What waits for nothing: the quantile of the latencies that a request has by itself.
const ALONE: f64 = 0.1;

/// When the requests of many seeds come.
#[derive(Clone, Debug, PartialEq)]
pub struct Bursts {
    /// Of a slot, in seconds.
    pub slot_s: f64,
    /// The first slot after the warm-up.
    pub first: usize,
    /// Of each seed, how many requests come in each slot. The first seeds are those of the runs, in their order.
    pub seeds: Vec<Vec<u32>>,
    /// The target's limit, in seconds: [`Target::limit`](tenantry_core::in_time::Target::limit).
    pub target_s: f64,
}

/// What is to be expected of a cell by the arrivals of many seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// The share of requests that keep the target.
    pub share: Estimate,
    /// Whether it tells how the runs differ. Where they do for other reasons than when their requests came, only
    /// `dispersion` is of use.
    pub foretells: bool,
    /// It is a bound from below: hardly any request waited long in the runs, or for more than its batch to fill, and
    /// such waits tell only how little the cell can do at least.
    pub at_least: bool,
    /// Nobody waited for longer than a batch takes to fill in the runs: the bound is of a backlog of which they show
    /// nothing.
    pub no_backlog: bool,
    /// Requests of all seeds.
    pub judged: f64,
    /// So many of them tell as much as one: the index of dispersion of the late requests' counts. They are late
    /// together.
    pub dispersion: f64,
}

/// A queue that is served at a steady rate.
#[derive(Clone, Copy, Debug)]
struct Fluid {
    rate_per_s: f64,
    /// Who waits longer is late.
    patience_s: f64,
}

/// How a seed's requests fare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Fared {
    late: f64,
    judged: f64,
}

impl Fluid {
    fn serve(&self, counts: &[u32], slot_s: f64, first: usize) -> Fared {
        let (served, patience) = (self.rate_per_s * slot_s, self.rate_per_s * self.patience_s);
        let (mut backlog, mut fared) = (0.0_f64, Fared::default());
        for (slot, &count) in counts.iter().enumerate() {
            let count = f64::from(count);
            // Requests come evenly within a slot, over which the backlog rises or falls evenly.
            let after = backlog + count - served;
            if slot >= first {
                let (low, high) = (backlog.min(after), backlog.max(after));
                let late = match () {
                    () if low >= patience => 1.0,
                    () if high <= patience => 0.0,
                    () => (high - patience) / (high - low),
                };
                fared.late += late * count;
                fared.judged += count;
            }
            backlog = after.max(0.0);
        }
        fared
    }
}

impl Bursts {
    /// What is to be expected of the share of requests that keep the target, by runs with the first seeds; `taken` is
    /// what requests took in all of them, and `share` is the target's. Nothing where a request by itself takes as long
    /// as the target.
    ///
    /// The fluid's rate is fitted where there is most to be seen: by who was late, or, where those were fewer than may
    /// be, by who took longer than all but as many; where that is no longer than batches take to fill, by who took
    /// longer than that.
    pub fn outlook(&self, runs: &[Sample], taken: &Durations, share: f64) -> Option<Outlook> {
        let alone_s = taken.quantile_ns(ALONE) as f64 / 1e9;
        let patience_s = self.target_s - alone_s;
        let seen = self.seeds.get(..runs.len())?;
        let all: f64 = runs.iter().map(|run| run.judged as f64).sum();
        if taken.count() == 0 || patience_s <= 0.0 || all == 0.0 {
            return None;
        }
        // Of a run that was stopped only the late ones are known.
        let stopped = runs.iter().any(|run| run.hopeless);
        // Who was refused, failed or gave up waited for nothing that a queue tells of: these come on top of who waits
        // too long.
        let lost: Vec<f64> = match stopped {
            true => vec![0.0; runs.len()],
            false => runs.iter().map(|run| (run.judged as f64 - run.taken().count() as f64).max(0.0)).collect(),
        };
        let of_lost = lost.iter().sum::<f64>() / all;
        let waited: Vec<f64> = runs.iter().zip(&lost).map(|(run, lost)| run.judged as f64 - lost).collect();
        let judged: f64 = waited.iter().sum();
        let longer_s = taken.quantile_ns(share) as f64 / 1e9;
        let by_late = stopped || longer_s >= self.target_s;
        // Whoever waits no longer than a batch takes to fill need not have waited for others.
        let fills = runs.iter().map(|run| run.fills).max()?;
        let fills_s = fills.as_secs_f64().min(patience_s);
        let mostly_fills = !by_late && longer_s - alone_s <= fills_s;
        let told_s = if mostly_fills { alone_s + fills_s } else { longer_s };
        let late: Vec<f64> = match by_late {
            true => runs.iter().zip(&waited).map(|(run, waited)| waited - run.kept as f64).collect(),
            false => runs.iter().zip(&waited).map(|(run, waited)| waited - not_longer(run.taken(), told_s)).collect(),
        };
        let of_late = late.iter().sum::<f64>() / judged;
        let waited_s = match by_late {
            true => patience_s,
            false => (told_s - alone_s).max(NO_WAIT * patience_s),
        };
        let serve = |seeds: &[Vec<u32>], rate_per_s: f64, patience_s: f64| -> Vec<Fared> {
            let fluid = Fluid { rate_per_s, patience_s };
            let of = |counts: &Vec<u32>| fluid.serve(counts, self.slot_s, self.first);
            seeds.iter().map(of).collect()
        };
        let rate_per_s =
            self.least_rate_per_s(|rate_per_s| late_share(&serve(seen, rate_per_s, waited_s)) <= of_late)?;
        // What the fluid has not foreseen of the runs.
        let foreseen = serve(seen, rate_per_s, waited_s);
        let share_of = |fared: &Fared| fared.late / fared.judged.max(1.0);
        let of_runs = {
            let runs = foreseen.iter().zip(&waited).zip(&late);
            let missed: Vec<f64> = runs.map(|((fared, waited), late)| late - share_of(fared) * waited).collect();
            spread(&missed, judged)
        };
        let plain: Vec<f64> = late.iter().zip(&waited).map(|(late, waited)| late - of_late * waited).collect();
        let fluid = serve(&self.seeds, rate_per_s, patience_s);
        let of_all: f64 = fluid.iter().map(|fared| fared.judged).sum();
        let mean = late_share(&fluid);
        let off: Vec<f64> = fluid.iter().map(|fared| fared.late - mean * fared.judged).collect();
        let of_seeds = spread(&off, of_all);
        let lost_off: Vec<f64> = lost.iter().zip(runs).map(|(lost, run)| lost - of_lost * run.judged as f64).collect();
        let of_losses = spread(&lost_off, all);
        let error = libm::hypot(libm::hypot(of_runs, of_seeds), of_losses);
        let freedom = |error: f64, of: usize| error.powi(4) / (of as f64 - 1.0).max(1.0);
        let seeds = self.seeds.len();
        let square: f64 = off.iter().map(|off| off * off).sum::<f64>() / (seeds as f64 - 1.0).max(1.0);
        Some(Outlook {
            share: Estimate {
                mean: (1.0 - of_lost) * (1.0 - mean),
                error,
                // Welch's: of a sum of errors.
                freedom: match error > 0.0 {
                    true => {
                        let of_few = freedom(of_runs, runs.len()) + freedom(of_losses, runs.len());
                        error.powi(4) / (of_few + freedom(of_seeds, seeds))
                    }
                    false => 1.0,
                },
            },
            // One run does not tell how much what is lost differs from run to run.
            foretells: match runs.len() {
                1 => of_lost == 0.0,
                _ => of_runs == 0.0 || of_runs < spread(&plain, judged),
            },
            at_least: mostly_fills || waited_s < BACKLOG * patience_s,
            no_backlog: mostly_fills && of_late == 0.0,
            judged: of_all,
            dispersion: match mean > 0.0 {
                true => (square / (mean * of_all / seeds as f64)).max(1.0),
                false => 1.0,
            },
        })
    }

    /// The least rate that is enough, between one request a run and all of them in a slot; nothing where not even that
    /// is.
    fn least_rate_per_s(&self, is_enough: impl Fn(f64) -> bool) -> Option<f64> {
        let most = self.seeds.iter().flatten().copied().max().filter(|most| *most > 0)?;
        let slots = self.seeds.iter().map(Vec::len).max()?;
        let (mut low, mut high) = (1.0 / (self.slot_s * slots as f64), f64::from(most) / self.slot_s);
        if !is_enough(high) {
            return None;
        }
        for _ in 0..HALVINGS {
            let middle = (low * high).sqrt();
            match is_enough(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        Some(high)
    }
}

/// How many took no longer.
fn not_longer(taken: &Durations, than_s: f64) -> f64 {
    taken.count() as f64 * taken.share_within(Duration((than_s * 1e9).round() as u64))
}

fn late_share(fared: &[Fared]) -> f64 {
    let sum = |of: fn(&Fared) -> f64| fared.iter().map(of).sum::<f64>();
    sum(|fared| fared.late) / sum(|fared| fared.judged).max(1.0)
}

/// The standard error of the share that a sum of such deviations makes up, of so many requests.
fn spread(off: &[f64], judged: f64) -> f64 {
    let count = off.len() as f64;
    let square: f64 = off.iter().map(|off| off * off).sum();
    (square * count / (count - 1.0).max(1.0)).sqrt() / judged
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenantry_traces::Duration;
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;
    use crate::plan::Rules;
    use crate::plan::judgement::judgement;

    const TARGET_S: f64 = 0.1;

    /// Twenty seconds of calm, in which now and then come bursts of some length, twelve requests a millisecond.
    fn bursts(seeds: u64) -> Bursts {
        let seed = |seed: u64| {
            let mut stream = Draws::new(seed, Purpose::Arrival).about(0);
            let (mut counts, mut left) = (Vec::new(), 0.0);
            for _ in 0..1600 {
                if left <= 0.0 && stream.unit() < 0.0125 / 4.0 {
                    left = -0.6 * (1.0 - stream.unit()).ln();
                }
                counts.push(if left > 0.0 { 150 } else { 37 });
                left -= 0.0125;
            }
            counts
        };
        Bursts {
            slot_s: 0.0125,
            first: 0,
            seeds: (0..seeds).map(seed).collect(),
            target_s: TARGET_S,
        }
    }

    /// A machine that takes 10 ms for a request by itself, and serves so many a second, as the fluid does; with a part
    /// of all that is late for reasons of its own.
    fn run(bursts: &Bursts, seed: usize, rate_per_s: f64, others_late: f64) -> Sample {
        let served = rate_per_s * bursts.slot_s;
        let (mut backlog, mut latencies, mut kept, mut judged) = (0.0_f64, Durations::default(), 0.0, 0.0);
        for count in &bursts.seeds[seed] {
            let count = f64::from(*count);
            let after = backlog + count - served;
            // Tens of requests of a slot wait as long as its middle says.
            let latency_s = 0.01 + ((backlog + after) / 2.0).max(0.0) / rate_per_s;
            (0..count as u64).for_each(|_| latencies.record(Duration((latency_s * 1e9) as u64)));
            judged += count;
            kept += if latency_s <= TARGET_S { count } else { 0.0 };
            backlog = after.max(0.0);
        }
        Sample {
            judged: judged as u64,
            kept: (kept - others_late * judged).max(0.0) as u64,
            latencies,
            busy: 0.5,
            ..Sample::empty()
        }
    }

    fn outlook(bursts: &Bursts, runs: &[Sample]) -> Option<Outlook> {
        let mut latencies = Durations::default();
        runs.iter().for_each(|run| latencies.add(&run.latencies));
        bursts.outlook(runs, &latencies, 0.98)
    }

    /// The share that is in time over all seeds, which any three runs of a hundred tell much better by their arrivals
    /// than by themselves.
    #[test]
    fn few_runs_tell_what_many_would_show() {
        let bursts = bursts(100);
        let runs: Vec<Sample> = (0..100).map(|seed| run(&bursts, seed, 11_400.0, 0.0)).collect();
        let share = |runs: &[Sample]| {
            let sum = |of: fn(&Sample) -> u64| runs.iter().map(of).sum::<u64>() as f64;
            sum(|run| run.kept) / sum(|run| run.judged)
        };
        let truth = share(&runs);
        let (mut plain, mut foretold, mut groups) = (0.0, 0.0, 0);
        for first in (0..99).step_by(3) {
            // The arrivals of the runs come first.
            let mut turned = bursts.clone();
            turned.seeds.rotate_left(first);
            let of_three = &runs[first..first + 3];
            let found = outlook(&turned, of_three).unwrap();
            assert!(found.share.error > 0.0 && found.dispersion > 1000.0, "{found:?}");
            if !found.at_least {
                foretold += (found.share.mean - truth).powi(2);
                plain += (share(of_three) - truth).powi(2);
                groups += 1;
            }
        }
        assert!(
            groups > 20 && foretold < plain / 25.0,
            "{foretold} of {plain} in {groups}"
        );
    }

    /// A machine that no burst overloads waits for nothing: that is a bound, and a high one.
    #[test]
    fn what_never_waits_is_bounded_from_below() {
        let bursts = bursts(100);
        let runs: Vec<Sample> = (0..3).map(|seed| run(&bursts, seed, 12_100.0, 0.0)).collect();
        let found = outlook(&bursts, &runs).unwrap();
        assert!(found.at_least && found.share.mean > 0.999, "{found:?}");
    }

    /// Who is refused is late whatever the others wait, and however many seeds' arrivals are looked at.
    #[test]
    fn who_is_refused_is_not_made_up_for() {
        let bursts = bursts(100);
        let refuses = |seed: usize| {
            let run = run(&bursts, seed, 12_100.0, 0.0);
            let judged = run.judged * 10 / 9;
            Sample { judged, ..run }
        };
        let runs: Vec<Sample> = (0..3).map(refuses).collect();
        let found = outlook(&bursts, &runs).unwrap();
        assert!(found.foretells && (found.share.mean - 0.9).abs() < 1e-3, "{found:?}");
        // Of one run it is not known how much that differs from run to run.
        assert!(!outlook(&bursts, &runs[..1]).unwrap().foretells);
    }

    /// A run that misses the target is no proof that it is kept in the long run, nor one that keeps it that it is
    /// missed.
    #[test]
    fn one_run_is_not_overruled() {
        let bursts = Arc::new(bursts(100));
        let judged = |seed: usize| {
            let mut turned = (*bursts).clone();
            turned.seeds.rotate_left(seed);
            let run = run(&bursts, seed, 11_400.0, 0.0);
            let itself = run.kept as f64 >= 0.98 * run.judged as f64;
            let within = vec![run.kept as f64 / run.judged as f64; 20];
            let run = Sample {
                within,
                bursts: Some(Arc::new(turned)),
                ..run
            };
            (judgement(&[run], &Rules::SOME).unwrap(), itself)
        };
        let judged: Vec<_> = (0..40).map(judged).collect();
        assert!(judged.iter().all(|(judged, itself)| judged.meets == *itself));
        assert!(judged.iter().any(|(_, itself)| *itself) && !judged.iter().all(|(_, itself)| *itself));
        assert!(judged.iter().any(|(judged, _)| judged.foretold));
    }

    /// A machine that no burst overloads: what its requests wait for is that their batches fill, up to 20 ms, and in
    /// bursts they fill at once.
    fn filling(bursts: &Arc<Bursts>, seed: usize) -> Sample {
        let (mut latencies, mut judged) = (Durations::default(), 0);
        for &count in &bursts.seeds[seed] {
            let fills_ms = if count > 100 { 5.0 } else { 20.0 };
            for request in 0..count {
                let latency_ms = 10.0 + fills_ms * f64::from(request) / f64::from(count);
                latencies.record(Duration((latency_ms * 1e6) as u64));
            }
            judged += u64::from(count);
        }
        Sample {
            judged,
            kept: judged,
            within: vec![1.0; 20],
            dispersion: 3000.0,
            bursts: Some(Arc::clone(bursts)),
            latencies,
            fills: Duration::from_millis(20),
            ..Sample::empty()
        }
    }

    /// Where nobody waits for a backlog, the wait for a batch to fill is none, however near the target is to it.
    #[test]
    fn a_looser_target_leaves_no_more_doubt() {
        let mut bursts = bursts(60);
        for _ in 0..20 {
            bursts.seeds.rotate_left(3);
            let confidence = |target_ms: u64| {
                let bursts = Arc::new(Bursts {
                    target_s: target_ms as f64 / 1e3,
                    ..bursts.clone()
                });
                let runs: Vec<Sample> = (0..3).map(|seed| filling(&bursts, seed)).collect();
                let judged = judgement(&runs, &Rules::SOME).unwrap();
                assert!(judged.meets, "{target_ms} ms: {judged:?}");
                judged.confidence
            };
            let sure = [31, 35, 40, 50, 60, 80, 120, 200].map(confidence);
            assert!(sure.is_sorted() && sure[0] > 0.7, "{sure:?}");
        }
    }

    #[test]
    fn what_has_nothing_to_do_with_arrivals_is_not_foretold() {
        let bursts = bursts(20);
        let runs: Vec<Sample> = (0..4)
            .map(|seed| Sample {
                hopeless: true,
                ..run(&bursts, seed, 13_000.0, 0.1 * seed as f64)
            })
            .collect();
        assert!(!outlook(&bursts, &runs).unwrap().foretells);
        // Nor what takes longer than the target by itself.
        let mut slow = Durations::default();
        slow.record(Duration(200_000_000));
        assert_eq!(bursts.outlook(&runs, &slow, 0.98), None);
        assert_eq!(bursts.outlook(&runs, &Durations::default(), 0.98), None);
    }

    /// Runs that are alike by chance are no proof where late requests come in heaps, also where the fluid does not tell
    /// in which runs.
    #[test]
    fn heaps_count_where_nothing_is_foretold() {
        let bursts = bursts(60);
        let mut others = bursts.clone();
        others.seeds.rotate_left(20);
        let alike = |bursts: Option<Arc<Bursts>>| -> Vec<Sample> {
            let sample = |seed: usize| {
                let run = run(&others, seed, 11_400.0, 0.0);
                Sample {
                    within: vec![0.995; 20],
                    kept: run.judged * 995 / 1000,
                    bursts: bursts.clone(),
                    ..run
                }
            };
            (0..3).map(sample).collect()
        };
        let sure = |runs: &[Sample]| judgement(runs, &Rules::SOME).unwrap();
        let known = sure(&alike(Some(Arc::new(bursts.clone()))));
        assert!(!known.foretold && known.meets && known.confidence < 0.95, "{known:?}");
        assert!(sure(&alike(None)).confidence > 0.999);
    }
}
