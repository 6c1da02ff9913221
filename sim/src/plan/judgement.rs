//! Whether a cell meets the target, and how sure that is.

use tenantry_core::durations::Durations;

use super::bursts::Outlook;
use super::stats::{Estimate, sure_by_count};
use super::{Rules, Sample};

/// What was decided of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Whether it meets the target.
    pub meets: bool,
    /// How sure that is, from one half to 1.
    pub confidence: f64,
    /// The share of requests that kept the target; of a run that was stopped early, of those who had left by then.
    /// Under bursts what is to be expected of it by the arrivals of many seeds.
    pub share: Estimate,
    /// The latency at the rules' quantile over all requests of all repeats, in milliseconds; infinite where none was
    /// served. It breaks ties.
    pub score: f64,
    /// Runs that it took.
    pub runs: u32,
    /// The busiest lane's share of time.
    pub busy: f64,
    /// Stopped early.
    pub hopeless: bool,
    /// Under bursts the arrivals of many seeds say so, and not the runs alone.
    pub foretold: bool,
}

/// A side of the target, and how sure it is.
struct Decision {
    meets: bool,
    confidence: f64,
    share: Estimate,
    foretold: bool,
}

/// What a cell's runs say of it; nothing where there is none.
pub fn judgement(samples: &[Sample], rules: &Rules) -> Option<Judgement> {
    let last = samples.last()?;
    let latencies = all(samples, |sample| &sample.latencies);
    // Mostly the target reckons by these.
    let reckoned = samples.iter().any(|sample| sample.taken.is_some()).then(|| all(samples, Sample::taken));
    let taken = reckoned.as_ref().unwrap_or(&latencies);
    let bursts = samples.iter().find_map(|sample| sample.bursts.as_ref());
    let outlook = bursts.and_then(|bursts| bursts.outlook(samples, taken, rules.share));
    let hopeless = samples.iter().any(|sample| sample.hopeless);
    let runs = samples.len() as u32;
    let decision = match outlook {
        // What other seeds say does not make up for it.
        _ if samples.iter().any(|sample| sample.refused) => Decision {
            meets: false,
            confidence: 1.0,
            ..by_runs(samples, 1.0, hopeless, rules)
        },
        Some(outlook) => {
            let foretold = by_outlook(outlook, samples, hopeless, rules);
            // Late requests come in heaps even where the fluid does not tell of which seeds. Where none was late, it
            // cannot know of heaps.
            let any_late = samples.iter().any(|sample| sample.kept < sample.judged);
            let of_late = if any_late { outlook.dispersion } else { 1.0 };
            let by_itself = by_runs(samples, of_late, hopeless, rules);
            // That a single run had bad luck, or good, is no more than a guess.
            let is_guess = runs == 1 && foretold.meets != by_itself.meets;
            match outlook.foretells && !is_guess {
                // A bound on what nothing is seen of adds to how sure the runs are, and takes nothing from it.
                true if outlook.no_backlog && foretold.meets == by_itself.meets => Decision {
                    confidence: by_itself.confidence.max(foretold.confidence),
                    ..by_itself
                },
                true if outlook.no_backlog => by_itself,
                true => foretold,
                false => by_itself,
            }
        }
        None => by_runs(samples, 1.0, hopeless, rules),
    };
    Some(Judgement {
        meets: decision.meets,
        confidence: charged(decision.confidence, runs, rules).max(0.5),
        share: decision.share,
        score: quantile_ms(&latencies, rules),
        runs,
        busy: last.busy,
        hopeless,
        foretold: decision.foretold,
    })
}

/// Of the requests that were served in all of these runs.
pub fn all(samples: &[Sample], of: fn(&Sample) -> &Durations) -> Durations {
    let mut all = Durations::default();
    for sample in samples {
        all.add(of(sample));
    }
    all
}

/// The latency at the rules' quantile, in milliseconds; infinite where there is none.
pub fn quantile_ms(latencies: &Durations, rules: &Rules) -> f64 {
    match latencies.count() {
        0 => f64::INFINITY,
        _ => latencies.quantile_ns(rules.quantile) as f64 / 1e6,
    }
}

/// Runs are added until a decision is sure enough, which takes those moments at which chance favours it. Where it was
/// not sure enough with the first few seeds, each further look counts: the doubt is that of one look times the looks so
/// far (Bonferroni), but no more than the doubt of this look and all that the earlier ones might have spent.
fn charged(confidence: f64, runs: u32, rules: &Rules) -> f64 {
    let looks = runs.saturating_sub(rules.seeds) + 1;
    if looks == 1 {
        return confidence;
    }
    let doubt = 1.0 - confidence;
    1.0 - (doubt * f64::from(looks)).min(doubt + 1.0 - rules.confidence)
}

/// By the runs' own requests, of which so many that are late tell as much as one, or more by their arrivals.
fn by_runs(samples: &[Sample], of_late: f64, hopeless: bool, rules: &Rules) -> Decision {
    let within: Vec<Vec<f64>> = samples.iter().map(|sample| sample.within.clone()).collect();
    let counts: Vec<(u64, u64)> = samples.iter().map(|sample| (sample.kept, sample.judged)).collect();
    let nothing = Estimate {
        mean: 0.0,
        error: 0.0,
        freedom: 1.0,
    };
    // Who judges no request keeps no target.
    let of_batches = Estimate::of(&within).unwrap_or(nothing);
    let of_repeats = Estimate::of_repeats(&counts).unwrap_or(nothing);
    let target = rules.share;
    let meets = !hopeless && of_repeats.mean >= target - 1e-12;
    let dispersion = samples.iter().map(|sample| sample.dispersion).sum::<f64>() / samples.len() as f64;
    let dispersion = dispersion.max(of_late);
    let independent = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64 / dispersion;
    let (kept, judged) = (independent(|sample| sample.kept), independent(|sample| sample.judged));
    // Of a run that was stopped, the misses that were seen are evidence, and its batches are not all there.
    let is_open = hopeless && kept >= target * judged;
    let mut confidence = match judged == 0.0 || is_open {
        true => 0.5,
        false => sure_by_count(kept, judged, target),
    };
    if !hopeless {
        confidence = confidence.min(of_batches.on_the_side(meets, target));
    }
    if samples.len() > 1 {
        confidence = confidence.min(of_repeats.on_the_side(meets, target));
    }
    let answers_all = |sample: &Sample| sample.is_open && sample.kept == sample.judged;
    if !rules.has_target && meets && samples.iter().all(answers_all) {
        confidence = 1.0;
    }
    Decision {
        meets,
        confidence,
        share: match (hopeless, samples.len()) {
            (true, _) => of_batches,
            (false, 1) => Estimate {
                mean: of_repeats.mean,
                ..of_batches
            },
            (false, _) => of_repeats,
        },
        foretold: false,
    }
}

/// By what is to be expected of the arrivals of many seeds, of which the runs tell how they are borne.
fn by_outlook(outlook: Outlook, samples: &[Sample], hopeless: bool, rules: &Rules) -> Decision {
    let (share, target) = (outlook.share, rules.share);
    // A bound tells on one side only: where nothing was late, how much may be at most; where a run was stopped, how
    // much is at least.
    let is_open = match outlook.at_least {
        true => share.mean < target,
        false => hopeless && share.mean >= target,
    };
    if is_open {
        let decision = by_runs(samples, outlook.dispersion, hopeless, rules);
        return Decision {
            confidence: 0.5,
            ..decision
        };
    }
    let meets = !hopeless && share.mean >= target - 1e-12;
    let independent = outlook.judged / outlook.dispersion.max(samples[0].dispersion);
    Decision {
        meets,
        confidence: sure_by_count(share.mean * independent, independent, target).min(share.on_the_side(meets, target)),
        share,
        foretold: true,
    }
}

#[cfg(test)]
mod tests {
    use tenantry_traces::draw::{Draws, Purpose};

    use super::*;

    /// A share that is the target's to a hair: whoever looks after each run and stops when sure is wrong more often
    /// than one time in twenty, unless looks cost.
    #[test]
    fn looking_again_and_again_costs() {
        let mut stream = Draws::new(5, Purpose::Arrival).about(0);
        let (mut sure, mut sure_without) = (0, 0);
        for _ in 0..2000 {
            let mut runs = Vec::new();
            let (mut stopped, mut stopped_without) = (false, false);
            while (runs.len() as u32) < Rules::SOME.repeats {
                runs.push(((9800.0 + 40.0 * stream.normal()).round() as u64, 10_000));
                if (runs.len() as u32) < Rules::SOME.seeds {
                    continue;
                }
                let above = Estimate::of_repeats(&runs).unwrap().above(Rules::SOME.share);
                stopped_without |= above >= Rules::SOME.confidence;
                stopped |= charged(above, runs.len() as u32, &Rules::SOME) >= Rules::SOME.confidence;
            }
            sure += u32::from(stopped);
            sure_without += u32::from(stopped_without);
        }
        // Of those that are sure it is above: one in twenty is what a single look allows.
        let [with, without] = [sure, sure_without].map(|wrong| f64::from(wrong) / 2000.0);
        assert!(without > 0.09 && with < 0.08, "{with} {without}");
    }

    /// Another seed may bring requests that keep the target.
    #[test]
    fn without_a_request_nothing_is_sure() {
        let judged = judgement(&[Sample::empty(), Sample::empty()], &Rules::SOME).unwrap();
        assert_eq!((judged.meets, judged.confidence), (false, 0.5));
    }

    /// Ten requests say little of a share that is in time, or is let in; that all are answered where nobody is turned
    /// away is seen.
    #[test]
    fn without_a_target_who_answers_all_is_sure_to() {
        let ten = Sample {
            is_open: true,
            judged: 10,
            kept: 10,
            within: vec![1.0; 10],
            ..Sample::empty()
        };
        let sure = |rules: &Rules, kept| {
            let sample = Sample { kept, ..ten.clone() };
            judgement(&[sample], rules).unwrap().confidence
        };
        let without = Rules {
            has_target: false,
            ..Rules::SOME
        };
        assert_eq!(sure(&without, 10), 1.0);
        assert!(sure(&Rules::SOME, 10) < 0.9 && sure(&without, 9) < 0.9);
        let may_refuse = Sample { is_open: false, ..ten };
        assert!(judgement(&[may_refuse], &without).unwrap().confidence < 0.9);
    }

    #[test]
    fn a_first_look_costs_nothing_and_a_last_one_is_not_charged_for_more_than_was_spent() {
        assert_eq!(charged(0.9, 3, &Rules::SOME), 0.9);
        assert!((charged(0.99, 4, &Rules::SOME) - 0.98).abs() < 1e-12);
        assert!((charged(0.9, 8, &Rules::SOME) - 0.85).abs() < 1e-12);
    }
}
