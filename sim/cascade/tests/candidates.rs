//! Candidates: known answers, and the early stops against an exhaustive search.

use proptest::prelude::*;
use tenantry_cascade::candidates::{Candidate, ModelProfile, PrunedProfile, Repository, Rules, Targets, select};

/// Two classes, all labels 0: the probability of class 0, item by item.
fn model(name: &str, latency_ms: f64, right: &[f64]) -> ModelProfile {
    ModelProfile {
        name: name.into(),
        latency_ms,
        outputs: right.iter().map(|&share| vec![share, 1.0 - share]).collect(),
        pruned: Vec::new(),
    }
}

fn repository(models: Vec<ModelProfile>) -> Repository {
    Repository {
        labels: vec![0; models[0].outputs.len()],
        models,
        control_ms: 1.0,
    }
}

/// Small: sure and right on six of ten, unsure and half right on four. Large: right on all but one of the hard ones.
fn pair() -> Repository {
    let small = model("small", 5.0, &[0.99, 0.99, 0.99, 0.99, 0.99, 0.99, 0.6, 0.6, 0.4, 0.4]);
    let large = model("large", 20.0, &[0.99, 0.99, 0.99, 0.99, 0.99, 0.99, 0.9, 0.9, 0.9, 0.3]);
    repository(vec![large, small])
}

fn targets(accuracy: f64) -> Targets {
    Targets {
        accuracy,
        mean_ms: None,
        p99_ms: None,
    }
}

#[test]
fn the_sum_of_both_levels_by_hand() {
    let candidates = pair().candidates(&Rules::default()).unwrap();
    let cascade = candidates
        .iter()
        .find(|candidate| candidate.cut_off == Some(0.95))
        .unwrap();
    assert_eq!(cascade.models, ["small", "large"]);
    assert!((cascade.returned[0] - 0.6).abs() < 1e-12);
    // Weights of 2 and 3 right of 4: the ninth is 0.4 · 0.4 + 0.6 · 0.9, right; the tenth is not.
    assert!((cascade.weights[0] - 0.4).abs() < 1e-12);
    assert!((cascade.accuracy - 0.9).abs() < 1e-12);
    assert!((cascade.mean_ms - (0.6 * 6.0 + 0.4 * 26.0)).abs() < 1e-9);
    assert_eq!((cascade.p75_ms, cascade.p99_ms), (26.0, 26.0));
}

#[test]
fn the_fastest_that_meets_the_targets_is_chosen() {
    let candidates = pair().candidates(&Rules::default()).unwrap();
    let chosen = |targets: &Targets| select(&candidates, targets).unwrap().models.clone();
    assert_eq!(chosen(&targets(0.9)), ["small", "large"]);
    assert_eq!(chosen(&targets(0.7)), ["small"]);
    // A tail that only one model alone keeps.
    let tight = Targets {
        p99_ms: Some(21.0),
        ..targets(0.9)
    };
    assert_eq!(chosen(&tight), ["large"]);
    let nearest = select(&candidates, &targets(0.95)).unwrap_err();
    assert!(nearest.len() == 3 && nearest[0].accuracy >= nearest[1].accuracy);
    assert!((nearest[0].accuracy - 0.9).abs() < 1e-12);
}

/// Pruning that costs too much is not tried, nor any that prunes more.
#[test]
fn degrees_of_pruning_stop_at_their_loss() {
    let mut repository = pair();
    let large = &mut repository.models[0];
    let worse = |alpha, latency_ms, wrong: usize| PrunedProfile {
        alpha,
        latency_ms,
        outputs: large
            .outputs
            .iter()
            .enumerate()
            .map(|(item, output)| if item < wrong { vec![0.1, 0.9] } else { output.clone() })
            .collect(),
    };
    large.pruned = vec![worse(0.5, 18.0, 0), worse(0.6, 16.0, 1), worse(0.7, 14.0, 0)];
    let degrees = |early_stops| {
        let rules = Rules {
            early_stops,
            ..Rules::default()
        };
        let mut degrees: Vec<f64> = repository
            .candidates(&rules)
            .unwrap()
            .iter()
            .filter_map(|found| found.alpha)
            .collect();
        degrees.dedup();
        degrees
    };
    assert_eq!(degrees(true), [0.5]);
    assert_eq!(degrees(false), [0.5, 0.6, 0.7]);
}

/// A third level or a second as slow as the first is cut by the tail.
#[test]
fn slow_tails_are_cut() {
    let slow = repository(vec![
        model("a", 19.0, &[0.6, 0.4, 0.6, 0.4]),
        model("b", 20.0, &[0.9, 0.9, 0.9, 0.4]),
    ]);
    let found = slow.candidates(&Rules::default()).unwrap();
    assert!(
        found
            .iter()
            .all(|candidate| candidate.models.len() == 1 || candidate.p75_ms <= 30.0),
        "{found:?}"
    );
    assert!(!found.iter().any(|candidate| candidate.cut_off == Some(0.95)));
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let mut broken = pair();
    broken.labels[3] = 2;
    let error = broken.candidates(&Rules::default()).unwrap_err().to_string();
    assert_eq!(error, "item 3: label: must be below the head's 2 classes, got 2");
    let mut broken = pair();
    broken.models[0].outputs[0][0] = 1.2;
    let error = broken.candidates(&Rules::default()).unwrap_err().to_string();
    assert_eq!(error, "confidence: must be from 0 to 1, got 1.2");
    let mut broken = pair();
    broken.models[1].outputs.pop();
    assert_eq!(
        broken.candidates(&Rules::default()).unwrap_err().to_string(),
        "outputs: must be 10, got 9"
    );
}

/// Models that know when they know: an item of difficulty d has a confidence that falls with d, and is answered wrongly where it is above
/// the model's strength.
fn graded(strengths: &[(f64, f64)]) -> Repository {
    let models = strengths.iter().enumerate().map(|(index, &(strength, latency_ms))| {
        let right: Vec<f64> = (0..200)
            .map(|item| {
                let difficulty = f64::from(item) / 200.0;
                let sure = 0.5 + 0.5 * ((difficulty - strength).abs() / 0.3).min(1.0);
                if difficulty < strength { sure } else { 1.0 - sure }
            })
            .collect();
        model(&format!("m{index}"), latency_ms, &right)
    });
    repository(models.collect())
}

fn best(repository: &Repository, early_stops: bool, targets: &Targets) -> Option<Candidate> {
    let rules = Rules {
        early_stops,
        ..Rules::default()
    };
    select(&repository.candidates(&rules).unwrap(), targets).ok().cloned()
}

/// A small model that is right by luck where it is least sure: with the lowest cut-off the cascade is more accurate than with the highest,
/// where the search has given up.
#[test]
fn early_stops_miss_a_cascade_that_grows_more_accurate_with_a_lower_cut_off() {
    let repository = graded(&[(0.735_229, 20.5), (0.720_532, 3.0)]);
    let targets = targets(0.732_5);
    assert!(best(&repository, false, &targets).unwrap().mean_ms < 5.0);
    assert_eq!(best(&repository, true, &targets).unwrap().models, ["m0"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Giving up early never invents anything: what it finds, an exhaustive search finds, or better. That it loses nothing is true of most
    /// targets above the mean accuracy of any models used, and not of all.
    #[test]
    fn early_stops_find_nothing_better_than_an_exhaustive_search(
        strengths in prop::collection::vec((0.6..0.99_f64, 3.0..40.0_f64), 2..5), part in 0.0..1.0_f64,
    ) {
        let repository = graded(&strengths);
        let singles = repository.candidates(&Rules { levels_max: 1, ..Rules::default() }).unwrap();
        let mut accuracies: Vec<f64> = singles.iter().map(|single| single.accuracy).collect();
        accuracies.sort_by(f64::total_cmp);
        let [.., second, most] = accuracies[..] else { unreachable!("there are two models") };
        // Above the mean of the best two, and so of any.
        let floor = (second + most) / 2.0;
        let targets = targets(floor + part * (most - floor));
        let exhaustive = best(&repository, false, &targets).map(|found| found.mean_ms);
        let early = best(&repository, true, &targets).map(|found| found.mean_ms);
        prop_assert!(early.unwrap_or(f64::INFINITY) >= exhaustive.unwrap_or(f64::INFINITY));
    }
}
