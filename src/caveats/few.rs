//! Runs that were asked so little that they tell little, or nothing.

use std::collections::BTreeMap;

use tenantry_reports::summary::rounded;
use tenantry_reports::{Group, Run, human};

use super::{first_named, is_one_run};

/// One sentence on runs that were asked nothing.
pub(super) fn no_request_caveat(runs: &[Run]) -> Option<String> {
    let was_asked = |run: &&Run| run.summary.interrupted || run.summary.requests.offered > 0;
    let silent = runs.len() - runs.iter().filter(was_asked).count();
    let which = match silent == runs.len() {
        true => String::new(),
        false => format!(" in {silent} of {} runs", runs.len()),
    };
    (silent > 0).then(|| {
        format!("No request came{which} before workload.stop, so that nothing is known of how it would be answered.")
    })
}

/// A quantile is known as well as there are requests beyond it: the share of ten late ones is off by a third or so.
const BEYOND: f64 = 10.0;

/// How many it takes to have so many beyond a quantile, beyond which this share of them lies; nothing where none does.
fn enough(beyond: f64) -> Option<f64> {
    Some((BEYOND / beyond).round()).filter(|enough| enough.is_finite())
}

/// A sentence on what is said by items of which fewer than [`BEYOND`] lie beyond a quantile, that is this share of
/// them.
pub fn few_items_caveat(what: &str, items: usize, beyond: f64, lie: &str) -> Option<String> {
    let enough = enough(beyond).filter(|enough| (items as f64) < *enough)?;
    let [items_told, enough] = [items as u64, enough as u64].map(human::count);
    Some(format!(
        "{what} hangs on few items: there are {items_told}, of which {} {lie}. About {enough} would have ten of these.",
        rounded(items as f64 * beyond)
    ))
}

/// A system's requests at a sweep point, of all its repeats.
struct Judged {
    name: String,
    /// That count, of seeds of their own.
    runs: usize,
    is_guess: bool,
    requests: f64,
    late: f64,
}

impl Judged {
    fn of(group: &Group<'_>) -> Judged {
        let mut seeds = Vec::new();
        let mut judged = Judged {
            name: format!("{} on {}", group.title(), group.machine()),
            runs: 0,
            is_guess: group.runs.iter().any(|run| is_guess(run)),
            requests: 0.0,
            late: 0.0,
        };
        // What is repeated as it was tells nothing more.
        let different = if is_one_run(group) { 1 } else { group.runs.len() };
        for run in group.runs.iter().take(different) {
            let is_new = !seeds.contains(&run.summary.seed);
            if let Some(in_time) = run.summary.slo_attainment.filter(|_| is_new && !run.summary.interrupted) {
                seeds.push(run.summary.seed);
                judged.runs += 1;
                // There is a share in time, so that somebody was judged, however little the guess comes to.
                let requests = judged_in(run).max(1.0);
                judged.requests += requests;
                judged.late += requests * (1.0 - in_time);
            }
        }
        if judged.is_guess {
            judged.requests = two_digits(judged.requests);
        }
        judged
    }
}

/// How many requests of a run were judged: those that came after the warm-up, and did not give up.
fn judged_in(run: &Run) -> f64 {
    let (series, requests) = (&run.curves.series, &run.summary.requests);
    let (width_s, warm_up_s) = (series.width.as_secs_f64(), warm_up_s(run));
    let counted = |(index, arrived): (usize, u64)| {
        let until_s = (index + 1) as f64 * width_s;
        arrived as f64 * ((until_s - warm_up_s) / width_s).clamp(0.0, 1.0)
    };
    let arrived = series.windows.iter().map(|window| window.arrived).enumerate();
    let stayed = 1.0 - requests.cancelled as f64 / requests.offered.max(1) as f64;
    (arrived.map(counted).sum::<f64>() * stayed).round()
}

/// Whether that is a good guess: which requests of the window in which the warm-up ended came after it is not known,
/// nor which of those who gave up did.
fn is_guess(run: &Run) -> bool {
    warm_up_s(run) > 0.0 || run.summary.requests.cancelled > 0
}

fn warm_up_s(run: &Run) -> f64 {
    // Durations are rounded to six digits.
    const ROUNDING: f64 = 1e-5;
    let end_s = run.curves.end.as_secs_f64();
    let warm_up_s = end_s - run.summary.duration_s;
    if warm_up_s > ROUNDING * end_s { warm_up_s } else { 0.0 }
}

/// Of a guess no more digits than are known.
fn two_digits(guess: f64) -> f64 {
    let unit = 10f64.powf(guess.max(1.0).log10().floor() - 1.0).max(1.0);
    (guess / unit).round() * unit
}

/// A sentence on the verdicts that so few requests gave, at each quantile of targets: fewer than [`BEYOND`] are
/// expected beyond it, or were.
pub(super) fn few_judged_caveats(runs: &[Run]) -> Vec<String> {
    let mut by_quantile: BTreeMap<&str, Vec<Judged>> = BTreeMap::new();
    let groups = Group::all(runs);
    for group in &groups {
        if let Some(slo) = &group.runs[0].summary.slo {
            by_quantile.entry(&slo.at).or_default().push(Judged::of(group));
        }
    }
    by_quantile.into_iter().filter_map(|(at, judged)| few_at(at, judged)).collect()
}

fn few_at(at: &str, mut judged: Vec<Judged>) -> Option<String> {
    let percent: f64 = at.strip_prefix('p')?.parse().ok()?;
    let beyond = 1.0 - percent / 100.0;
    // Where all requests are to keep the target, none are expected beyond it, however many there are.
    let enough = enough(beyond)?;
    judged.retain(|of| of.requests > 0.0 && of.requests < enough && of.late < BEYOND);
    let counts = judged.iter().map(|of| of.requests);
    let (least, most) = (counts.clone().reduce(f64::min)?, counts.reduce(f64::max)?);
    let count = |requests: f64| human::count(requests as u64);
    let (counted, at_most) = match least == most {
        true => (count(most), ""),
        false => (format!("{} to {}", count(least), count(most)), "at most "),
    };
    let some = if judged.iter().any(|of| of.is_guess) {
        "some "
    } else {
        ""
    };
    let were = match most == 1.0 {
        true if some.is_empty() => format!("{counted} was"),
        true => "hardly any were".to_owned(),
        false => format!("{some}{counted} were"),
    };
    let in_all = if judged.iter().any(|of| of.runs > 1) {
        " in all repeats"
    } else {
        ""
    };
    let names: Vec<String> = judged.into_iter().map(|of| of.name).collect();
    Some(format!(
        "Whether the target is met hangs on few requests: {were} judged{in_all}, of which {at_most}{} are expected \
         beyond {at} ({}). About {} would have ten there (`workload.stop`, `repeats`).",
        rounded(most * beyond),
        first_named(&names),
        count(enough)
    ))
}

#[cfg(test)]
mod tests {
    use tenantry_core::in_time::{Slo, Target};
    use tenantry_reports::RunLabels;
    use tenantry_traces::Duration;

    use super::*;
    use crate::caveats::testing::{labels, record};

    /// So many requests under a seed, of which so large a part kept a target at p98.
    fn judged(requests: u64, seed: u64, in_time: f64) -> Run {
        let slo = Some(Slo {
            target: Target::of_latency(Duration::from_millis(100)),
            quantile: 0.98,
        });
        let labels = RunLabels {
            slo,
            seed,
            repeat: seed as u32,
            ..labels("hmi")
        };
        let mut run = Run::new(labels, &record(requests));
        run.summary.slo_attainment = (requests > 0).then_some(in_time);
        run
    }

    #[test]
    fn a_verdict_by_few_requests_is_told_of() {
        let told = |runs: &[Run]| few_judged_caveats(runs);
        assert_eq!(
            told(&[judged(30, 0, 1.0)]),
            [
                "Whether the target is met hangs on few requests: 30 were judged, of which 0.6 are expected beyond p98 \
                 (hmi on virtual). About 500 would have ten there (`workload.stop`, `repeats`)."
            ]
        );
        assert_eq!(told(&[judged(500, 0, 1.0)]), [""; 0]);
        assert_eq!(
            told(&[judged(0, 0, 1.0)]),
            [""; 0],
            "nobody was judged, which is told of otherwise"
        );
        // Ten that are late tell as much as ten that are expected to be.
        assert_eq!(told(&[judged(30, 0, 0.5)]), [""; 0]);
        let mut without = judged(30, 0, 1.0);
        without.summary.slo = None;
        assert_eq!(told(&[without]), [""; 0]);
    }

    #[test]
    fn what_few_items_say_is_told_of() {
        let told = |items, beyond| few_items_caveat("p99", items, beyond, "are expected beyond it");
        assert_eq!(
            told(60, 1.0 - 0.99).unwrap(),
            "p99 hangs on few items: there are 60, of which 0.6 are expected beyond it. About 1,000 would have ten of \
             these."
        );
        assert_eq!(told(1_000, 1.0 - 0.99), None);
        assert_eq!(told(60, 0.0), None, "none is, however many there are");
    }

    #[test]
    fn repeats_count_together_where_they_are_others() {
        let [one, other] = [judged(299, 0, 1.0), judged(300, 1, 1.0)];
        assert_eq!(few_judged_caveats(&[one.clone(), other.clone()]), [""; 0]);
        let told = few_judged_caveats(&[one.clone(), judged(100, 1, 1.0)]);
        assert!(
            told[0].contains("399 were judged in all repeats, of which 7.98 are"),
            "{told:?}"
        );
        // The same requests again, as `validate --repeats` executes them, or the same run.
        let told = few_judged_caveats(&[one.clone(), judged(298, 0, 1.0)]);
        assert!(told[0].contains("299 were judged, of which"), "{told:?}");
        let told = few_judged_caveats(&[one.clone(), judged(299, 1, 1.0)]);
        assert!(told[0].contains("299 were judged, of which"), "{told:?}");
        let elsewhere = RunLabels {
            machine: "cpu".into(),
            ..labels("hmi")
        };
        let mut executed = Run::new(elsewhere, &record(40));
        executed.summary.slo = one.summary.slo.clone();
        executed.summary.slo_attainment = Some(1.0);
        let told = few_judged_caveats(&[one, executed]);
        assert!(
            told[0].contains("40 to 299 were judged, of which at most 5.98 are"),
            "{told:?}"
        );
    }

    /// Those of the warm-up, and who gave up, are not judged.
    #[test]
    fn who_is_not_judged_does_not_count() {
        let mut late = judged(600, 0, 1.0);
        assert_eq!(judged_in(&late), 600.0);
        late.summary.requests.cancelled = 300;
        assert_eq!(judged_in(&late), 300.0);
        late.summary.requests.cancelled = 0;
        // All came in the sixth second.
        late.summary.duration_s = 4.5;
        assert_eq!(judged_in(&late), 300.0);
        late.summary.duration_s = 4.0;
        assert_eq!(judged_in(&late), 0.0);
        assert_eq!(
            [0.0, 7.0, 31.0, 184.0, 9_876.0].map(two_digits),
            [0.0, 7.0, 31.0, 180.0, 9_900.0]
        );
        late.summary.duration_s = 4.3;
        let told = few_judged_caveats(&[late.clone()]);
        assert!(told[0].contains(" some 180 were judged, of which 3.6 are"), "{told:?}");
        // Some were, since there is a share of them that is in time.
        late.summary.duration_s = 4.0;
        let told = few_judged_caveats(&[late]);
        assert!(
            told[0].contains(" few requests: hardly any were judged, of which 0.02 are"),
            "{told:?}"
        );
    }

    #[test]
    fn runs_without_a_request_are_told_of() {
        assert_eq!(no_request_caveat(&[judged(1, 0, 1.0)]), None);
        let told = no_request_caveat(&[judged(1, 0, 1.0), judged(0, 1, 1.0)]).unwrap();
        assert!(
            told.starts_with("No request came in 1 of 2 runs before workload.stop"),
            "{told}"
        );
        let mut stopped = judged(0, 0, 1.0);
        stopped.summary.interrupted = true;
        assert_eq!(no_request_caveat(&[stopped]), None);
    }
}
