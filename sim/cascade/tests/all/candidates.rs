//! Candidates: known answers; the search against every candidate tried; what the paper's early stops miss.

use proptest::prelude::*;
use tenantry_cascade::Reroute;
use tenantry_cascade::candidates::{Candidate, Joins, ModelProfile, PassProfile, PrunedProfile, Repository, Rules};
use tenantry_cascade::search::{EarlyStops, Targets, select};

/// Every item takes as long.
fn pass(latency_ms: f64, outputs: Vec<Vec<f64>>) -> PassProfile {
    PassProfile {
        latency_ms: vec![latency_ms; outputs.len()],
        attended_ms: vec![1.25 * latency_ms; outputs.len()],
        outputs,
    }
}

/// Two classes, all labels 0: the probability of class 0, item by item.
fn model(name: &str, latency_ms: f64, right: &[f64]) -> ModelProfile {
    ModelProfile {
        name: name.into(),
        whole: pass(
            latency_ms,
            right.iter().map(|&share| vec![share, 1.0 - share]).collect(),
        ),
        pruned: Vec::new(),
    }
}

fn repository(models: Vec<ModelProfile>) -> Repository {
    Repository {
        labels: vec![0; models[0].whole.outputs.len()],
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

/// One slope, so steep that it is a step.
fn step() -> Rules {
    Rules {
        slopes: vec![1e6],
        ..Rules::default()
    }
}

fn averaged() -> Rules {
    Rules {
        join: Joins::Average,
        ..step()
    }
}

fn all(repository: &Repository) -> Vec<Candidate> {
    repository.candidates(&step(), None).unwrap()
}

#[test]
fn the_sum_of_both_levels_by_hand() {
    let candidates = pair().candidates(&averaged(), None).unwrap();
    let cascade = candidates.iter().find(|candidate| candidate.cut_off == Some(0.95)).unwrap();
    assert_eq!(cascade.models, ["small", "large"]);
    assert!((cascade.returned[0] - 0.6).abs() < 1e-12);
    // Weights of 2 and 3 right of 4: the ninth is 0.4 · 0.4 + 0.6 · 0.9, right; the tenth is not.
    assert!((cascade.weights.as_ref().unwrap()[0] - 0.4).abs() < 1e-12);
    assert!((cascade.accuracy - 0.9).abs() < 1e-12);
    assert!((cascade.mean_ms - (0.6 * 6.0 + 0.4 * 26.0)).abs() < 1e-9);
    assert_eq!((cascade.p75_ms, cascade.p99_ms), (26.0, 26.0));
}

#[test]
fn the_fastest_that_meets_the_targets_is_chosen() {
    let chosen = |targets: &Targets| pair().best(&averaged(), targets).unwrap().chosen.unwrap().models;
    assert_eq!(chosen(&targets(0.9)), ["small", "large"]);
    assert_eq!(chosen(&targets(0.7)), ["small"]);
    // A tail that only one model alone keeps.
    let tight = Targets {
        p99_ms: Some(21.0),
        ..targets(0.9)
    };
    assert_eq!(chosen(&tight), ["large"]);
    let nearest = pair().best(&averaged(), &targets(0.95)).unwrap().chosen.unwrap_err();
    assert!(nearest.len() == 3 && nearest[0].accuracy >= nearest[1].accuracy);
    assert!((nearest[0].accuracy - 0.9).abs() < 1e-12);
}

/// Both orders of the cut-offs, so that none is the first by chance.
#[test]
fn of_equally_near_candidates_the_fastest_is_the_nearest() {
    let mut candidates = all(&pair());
    // All miss a target of two alike.
    candidates.iter_mut().for_each(|candidate| candidate.accuracy = 0.5);
    for _ in 0..2 {
        let nearest = select(&candidates, &targets(1.0)).unwrap_err();
        let fastest = candidates.iter().map(|candidate| candidate.mean_ms).fold(f64::INFINITY, f64::min);
        assert_eq!((nearest[0].mean_ms, nearest[0].models.len()), (fastest, 1));
        assert!(nearest.is_sorted_by(|a, b| a.mean_ms <= b.mean_ms));
        candidates.reverse();
    }
    // As fast as the model alone: the model alone.
    candidates.iter_mut().for_each(|candidate| candidate.mean_ms = 5.0);
    for _ in 0..2 {
        let nearest = select(&candidates, &targets(1.0)).unwrap_err();
        let parts = |candidate: &&Candidate| (candidate.models.len(), candidate.weights.is_some());
        assert_eq!(
            nearest.iter().map(parts).collect::<Vec<_>>(),
            [(1, false), (1, false), (2, false)]
        );
        candidates.reverse();
    }
}

/// Steps between which no confidence lies send the same items on, however the answers are joined: that is one way, not
/// many.
#[test]
fn ways_that_do_the_same_are_named_once() {
    let small = model("small", 5.0, &[0.99, 0.99, 0.6, 0.4]);
    let large = model("large", 20.0, &[0.99, 0.99, 0.9, 0.3]);
    let candidates = repository(vec![small, large]).candidates(&step(), None).unwrap();
    let cascades = candidates.iter().filter(|candidate| candidate.models.len() == 2);
    let of_half: Vec<&Candidate> = cascades.filter(|candidate| candidate.returned == [0.5, 0.5]).collect();
    assert!(of_half.len() > 10, "many cut-offs and two joins do that");
    // All are right about three of four, so that the fastest are the nearest: the small model, and cascades that ask
    // the large one hardly ever.
    let nearest = select(&candidates, &targets(1.0)).unwrap_err();
    let returned: Vec<&[f64]> = nearest.iter().map(|candidate| &candidate.returned[..]).collect();
    assert!(
        returned.len() == 3 && returned[..2] == [&[1.0][..], &[1.0, 0.0]],
        "{returned:?}"
    );
    assert!(returned[2][1] > 0.1, "{returned:?}");
    let simplest = nearest.iter().all(|candidate| candidate.weights.is_none());
    assert!(simplest, "of what does the same, no average: {nearest:?}");
}

/// A slope that is asked for twice is no other one.
#[test]
fn a_slope_is_tried_once() {
    let with = |slopes: &[f64]| Rules {
        slopes: slopes.to_vec(),
        ..Rules::default()
    };
    let tried = |slopes: &[f64]| pair().candidates(&with(slopes), None).unwrap();
    assert_eq!(tried(&[10.0, 1e6, 10.0]), tried(&[10.0, 1e6]));
}

/// Quantiles are over items, each of which takes its own time: a model whose mean keeps a target does not keep it at
/// p99.
#[test]
fn tails_are_of_items_and_not_of_means() {
    let mut repository = pair();
    // The third item takes the small model long, the last takes the large one long.
    repository.models[1].whole.latency_ms[2] = 55.0;
    repository.models[0].whole.latency_ms[9] = 110.0;
    let candidates = repository.candidates(&averaged(), None).unwrap();
    let alone = |name: &str| candidates.iter().find(|found| found.models == [name]).unwrap();
    let [small, large] = ["small", "large"].map(alone);
    assert_eq!((small.mean_ms, small.p75_ms, small.p99_ms), (10.0, 5.0, 55.0));
    assert!((large.mean_ms - 29.0).abs() < 1e-12);
    assert_eq!((large.p75_ms, large.p99_ms), (20.0, 110.0));
    // The small model looks at each for 1 ms: five items in 6 ms, three in 26, one in 56, one in 116.
    let cascade = candidates.iter().find(|found| found.cut_off == Some(0.95)).unwrap();
    assert_eq!((cascade.p75_ms, cascade.p99_ms), (26.0, 116.0));
    assert!((cascade.mean_ms - (11.0 + 0.4 * 29.0)).abs() < 1e-9, "means as ever");
    let found = |p99_ms| {
        let targets = Targets {
            p99_ms: Some(p99_ms),
            ..targets(0.6)
        };
        let chosen = repository.best(&averaged(), &targets).unwrap().chosen;
        chosen.map(|chosen| chosen.models.len()).ok()
    };
    assert_eq!(
        (found(50.0), found(60.0)),
        (None, Some(1)),
        "the mean of 10 ms is no tail"
    );
}

/// What is left out of a tail is left out by its chance: one item in fifty is slow, and goes on half of the time.
#[test]
fn quantiles_count_items_by_their_chances() {
    let small = model("small", 1.0, &[0.99; 50]);
    let mut large = model("large", 10.0, &[1.0; 50]);
    large.whole.latency_ms[0] = 100.0;
    let rules = Rules {
        slopes: vec![0.0],
        ..averaged()
    };
    // Above the cut-off every second item goes on: half of the chances are at 2 ms, half at 12, and one in a hundred at
    // 102.
    let at = |candidate: &&Candidate| candidate.cut_off == Some(0.95);
    let candidates = repository(vec![small, large]).candidates(&rules, None).unwrap();
    let cascade = candidates.iter().find(at).unwrap();
    assert_eq!((cascade.p75_ms, cascade.p99_ms), (12.0, 12.0));
    assert!((cascade.returned[0] - 0.5).abs() < 1e-12);
}

/// The last answer counts where the average would be worse: the small model is sure of nothing and wrong about much.
#[test]
fn answers_are_joined_as_is_more_accurate() {
    let small = model("small", 5.0, &[0.99, 0.99, 0.99, 0.99, 0.2, 0.2, 0.75]);
    let large = model("large", 20.0, &[0.99, 0.99, 0.99, 0.99, 0.6, 0.6, 0.4]);
    let of = |join| {
        let rules = Rules { join, ..step() };
        let found = repository(vec![small.clone(), large.clone()]).best(&rules, &targets(0.85)).unwrap();
        found.chosen.map(|chosen| (chosen.models.len(), chosen.weights)).ok()
    };
    // Averaged, the two that the large model has right are wrong and the last is right: five of seven, where the large
    // model alone has six.
    assert_eq!(of(Joins::Average), Some((1, None)));
    assert_eq!(of(Joins::Both), Some((2, None)));
    assert_eq!(of(Joins::Both), of(Joins::Last));
}

fn pruned(by: &[(&str, f64)], latency_ms: f64, outputs: &[Vec<f64>], wrong: usize) -> PrunedProfile {
    let worse = |(item, output): (usize, &Vec<f64>)| if item < wrong { vec![0.1, 0.9] } else { output.clone() };
    PrunedProfile {
        by: by.iter().map(|&(model, alpha)| (model.to_owned(), alpha)).collect(),
        pass: pass(latency_ms, outputs.iter().enumerate().map(worse).collect()),
    }
}

/// Pruning that costs too much is not tried by the paper, nor any that prunes more.
#[test]
fn degrees_of_pruning_stop_at_their_loss() {
    let mut repository = pair();
    let outputs = repository.models[0].whole.outputs.clone();
    let at = |alpha, latency_ms, wrong| pruned(&[("small", alpha)], latency_ms, &outputs, wrong);
    repository.models[0].pruned = vec![at(0.5, 18.0, 0), at(0.6, 16.0, 1), at(0.7, 14.0, 0)];
    let degrees = |stops: Option<&EarlyStops>| {
        let found = repository.candidates(&step(), stops).unwrap();
        let mut degrees: Vec<f64> = found.iter().filter_map(|found| found.prune.first().copied().flatten()).collect();
        degrees.dedup();
        degrees
    };
    assert_eq!(degrees(Some(&EarlyStops::PAPER)), [0.5]);
    assert_eq!(degrees(None), [0.5, 0.6, 0.7]);
    // Who prunes sums up its attention, which takes a quarter longer here.
    let found = repository.candidates(&step(), None).unwrap();
    let at_half = found.iter().find(|found| found.prune == [Some(0.5)] && found.cut_off == Some(0.95));
    assert!((at_half.unwrap().mean_ms - (0.6 * 7.25 + 0.4 * (7.25 + 18.0))).abs() < 1e-9);
}

/// Of three models the second prunes too where the third was profiled on that, and only after the degree that it was
/// profiled on.
#[test]
fn models_prune_as_they_were_profiled() {
    let mut models = vec![
        model("a", 2.0, &[0.9, 0.4, 0.3, 0.3]),
        model("b", 6.0, &[0.9, 0.9, 0.4, 0.3]),
        model("c", 20.0, &[0.9, 0.9, 0.9, 0.3]),
    ];
    let outputs = models[2].whole.outputs.clone();
    models[1].pruned = vec![pruned(&[("a", 0.5)], 5.0, &models[1].whole.outputs, 0)];
    models[2].pruned = vec![
        pruned(&[("a", 0.5)], 18.0, &outputs, 0),
        pruned(&[("b", 0.4)], 17.0, &outputs, 0),
        pruned(&[("a", 0.5), ("b", 0.3)], 15.0, &outputs, 0),
    ];
    let mut found: Vec<(String, Vec<Option<f64>>)> = all(&repository(models))
        .into_iter()
        .filter(|found| found.cut_off == Some(0.95))
        .map(|found| (found.models.concat(), found.prune))
        .collect();
    found.dedup();
    let (half, less) = (Some(0.5), Some(0.4));
    let expected = [
        ("ab", vec![None]),
        ("ab", vec![half]),
        ("ac", vec![None]),
        ("ac", vec![half]),
        ("bc", vec![None]),
        ("bc", vec![less]),
        ("abc", vec![None, None]),
        ("abc", vec![None, less]),
        ("abc", vec![half, None]),
        ("abc", vec![half, Some(0.3)]),
    ];
    assert_eq!(found, expected.map(|(models, prune)| (models.to_owned(), prune)));
}

/// A third level or a second as slow as the first is cut by the tail.
#[test]
fn slow_tails_are_cut_by_the_papers_rule() {
    let slow = repository(vec![
        model("a", 19.0, &[0.6, 0.4, 0.6, 0.4]),
        model("b", 20.0, &[0.9, 0.9, 0.9, 0.4]),
    ]);
    let found = slow.candidates(&averaged(), Some(&EarlyStops::PAPER)).unwrap();
    assert!(
        found.iter().all(|candidate| candidate.models.len() == 1 || candidate.p75_ms <= 30.0),
        "{found:?}"
    );
    assert!(!found.iter().any(|candidate| candidate.cut_off == Some(0.95)));
    assert!(all(&slow).iter().any(|candidate| candidate.cut_off == Some(0.95)));
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let refused = |change: &dyn Fn(&mut Repository)| {
        let mut broken = pair();
        change(&mut broken);
        broken.best(&step(), &targets(0.9)).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|broken| broken.labels[3] = 2),
        "item 3: label: must be below the head's 2 classes, got 2"
    );
    assert_eq!(
        refused(&|broken| broken.models[0].whole.outputs[0][0] = 1.2),
        "confidence: must be from 0 to 1, got 1.2"
    );
    assert_eq!(
        refused(&|broken| drop(broken.models[1].whole.outputs.pop())),
        "outputs: must be 10, got 9"
    );
    assert_eq!(
        refused(&|broken| broken.models[1].whole.attended_ms.truncate(9)),
        "latencies with attention: must be 10, got 9"
    );
    assert_eq!(
        refused(&|broken| broken.models[1].whole.latency_ms[4] = -4.0),
        "latency: must be at least 0, got -4"
    );
    let outputs = vec![vec![0.5, 1.5]; 10];
    assert_eq!(
        refused(&|broken| broken.models[0].pruned = vec![pruned(&[("small", 0.5)], 9.0, &outputs, 0)]),
        "confidence: must be from 0 to 1, got 1.5"
    );
    let rules = Rules {
        cut_off: (0.95, 0.0),
        ..step()
    };
    let error = pair().best(&rules, &targets(0.9)).unwrap_err().to_string();
    assert_eq!(error, "step of cut-offs: must be above 0, got 0");
}

/// k is selected as c is: where all that goes on half of the time is enough, the gentle slope serves faster, and where
/// it is not, only the step does.
#[test]
fn slopes_are_selected_as_cut_offs_are() {
    // Ten items of which the small model is sure by 0.96 and has half right; the large one has all.
    let right: Vec<f64> = (0..10).map(|item| if item % 2 == 0 { 0.96 } else { 0.04 }).collect();
    let repository = repository(vec![model("small", 1.0, &right), model("large", 10.0, &[1.0; 10])]);
    let chosen = |accuracy| {
        let rules = Rules {
            slopes: vec![0.0, 1e6],
            cut_off: (0.95, 1.0),
            join: Joins::Last,
            ..Rules::default()
        };
        let chosen = repository.best(&rules, &targets(accuracy)).unwrap().chosen.unwrap();
        (chosen.models.len(), chosen.slope)
    };
    assert_eq!(chosen(0.75), (2, Some(0.0)));
    // At 0.96 the step still sends all on, so that the large model alone is faster.
    assert_eq!(chosen(0.95), (1, None));
}

/// Models that know when they know: an item of difficulty d has a confidence that falls with d, and is answered wrongly
/// where it is above the model's strength.
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

/// A small model that is right by luck where it is least sure: with the lowest cut-off the cascade is more accurate
/// than with the highest, where the paper's search has given up.
#[test]
fn early_stops_miss_a_cascade_that_grows_more_accurate_with_a_lower_cut_off() {
    let repository = graded(&[(0.735_229, 20.5), (0.720_532, 3.0)]);
    let targets = targets(0.732_5);
    assert!(repository.best(&averaged(), &targets).unwrap().chosen.unwrap().mean_ms < 5.0);
    let left = repository.candidates(&averaged(), Some(&EarlyStops::PAPER)).unwrap();
    assert_eq!(select(&left, &targets).unwrap().models, ["m0"]);
}

/// Two to four models of two to four classes, that agree on nothing in particular, and what some of them make of words
/// that others pruned. Latencies and probabilities are coarse, so that candidates tie.
fn anything() -> impl Strategy<Value = Repository> {
    (2..5_usize, 2..5_usize, 1..14_usize).prop_flat_map(|(models, classes, items)| {
        let share = prop::sample::select(vec![0.0, 0.2, 0.5, 0.9, 1.0_f64]);
        let output = prop::collection::vec(share, classes).prop_map(|shares| {
            let sum: f64 = shares.iter().sum();
            let even = 1.0 / shares.len() as f64;
            shares.iter().map(|share| if sum > 0.0 { share / sum } else { even }).collect::<Vec<f64>>()
        });
        // Now and then an item takes much longer than the others do.
        let takes = (prop_oneof![4 => 1..6_u32, 1 => 1..40_u32], 0..3_u32, output);
        let pass = prop::collection::vec(takes, items).prop_map(|items| PassProfile {
            latency_ms: items.iter().map(|item| item.0.into()).collect(),
            attended_ms: items.iter().map(|item| (item.0 + item.1).into()).collect(),
            outputs: items.into_iter().map(|item| item.2).collect(),
        });
        // Pruned by the first model alone, by the second alone, and by both.
        let of_model = (pass.clone(), prop::collection::vec(prop::option::of(pass), 3));
        let labels = prop::collection::vec(0..classes, items);
        (labels, prop::collection::vec(of_model, models), 0..2_u32).prop_map(|(labels, models, control_ms)| {
            let chains = [vec![("m0", 0.5)], vec![("m1", 0.5)], vec![("m0", 0.5), ("m1", 0.4)]];
            let by = |chain: &Vec<(&str, f64)>| chain.iter().map(|&(by, alpha)| (by.to_owned(), alpha)).collect();
            let model = |(index, (whole, passes)): (usize, (PassProfile, Vec<Option<PassProfile>>))| ModelProfile {
                name: format!("m{index}"),
                whole,
                pruned: chains
                    .iter()
                    .zip(passes)
                    .filter_map(|(chain, pass)| {
                        Some(PrunedProfile {
                            by: by(chain),
                            pass: pass?,
                        })
                    })
                    .collect(),
            };
            Repository {
                labels,
                models: models.into_iter().enumerate().map(model).collect(),
                control_ms: control_ms.into(),
            }
        })
    })
}

fn some_slopes() -> impl Strategy<Value = Vec<f64>> {
    prop::sample::subsequence(vec![0.0, 10.0, 1e6], 1..=3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What the search finds is what trying every candidate finds, to the bit: the same candidate among equals, and the
    /// same nearest ones.
    #[test]
    fn the_search_finds_what_brute_force_finds(
        repository in anything(), accuracy in 0.05..1.0_f64, mean_ms in prop::option::of(1.0..12.0_f64),
        p99_ms in prop::option::of(1.0..50.0_f64), slopes in some_slopes(),
        join in prop::sample::select(vec![Joins::Average, Joins::Last, Joins::Both]), levels_max in 1..5_usize,
    ) {
        let rules = Rules { slopes, join, levels_max, ..Rules::default() };
        let targets = Targets { accuracy, mean_ms, p99_ms };
        let all = repository.candidates(&rules, None).unwrap();
        let brute = select(&all, &targets).cloned().map_err(|nearest| nearest.into_iter().cloned().collect::<Vec<_>>());
        let search = repository.best(&rules, &targets).unwrap();
        prop_assert_eq!(search.candidates, all.len());
        prop_assert!(search.measured <= all.len());
        prop_assert_eq!(search.chosen, brute);
    }

    /// Quantiles are those of what can become of every item, gone through one by one.
    #[test]
    fn quantiles_are_those_of_every_way_of_every_item(repository in anything(), slopes in some_slopes()) {
        let rules = Rules { slopes, join: Joins::Last, ..Rules::default() };
        let unpruned = |candidate: &Candidate| candidate.prune.iter().all(Option::is_none);
        for candidate in repository.candidates(&rules, None).unwrap().into_iter().filter(unpruned) {
            let find = |name: &String| &repository.models.iter().find(|model| model.name == *name).unwrap().whole;
            let passes: Vec<&PassProfile> = candidate.models.iter().map(find).collect();
            let items = repository.labels.len();
            let mut ends: Vec<(f64, f64)> = Vec::new();
            for item in 0..items {
                let (mut chance, mut ms) = (1.0 / items as f64, 0.0);
                for (level, pass) in passes.iter().enumerate() {
                    ms += pass.latency_ms[item];
                    let sure = pass.outputs[item].iter().copied().fold(0.0, f64::max);
                    let goes_on = match candidate.cut_off {
                        Some(cut_off) if level + 1 < passes.len() => {
                            ms += repository.control_ms;
                            Reroute::new(cut_off, candidate.slope.unwrap()).unwrap().probability(sure)
                        }
                        _ => 0.0,
                    };
                    ends.push((ms, chance * (1.0 - goes_on)));
                    chance *= goes_on;
                }
            }
            for (share, got) in [(0.75, candidate.p75_ms), (0.99, candidate.p99_ms)] {
                let kept = |limit: f64| ends.iter().filter(|end| end.0 <= limit).map(|end| end.1).sum::<f64>();
                prop_assert!(kept(got) >= share - 1e-5, "{} of {candidate:?}", kept(got));
                prop_assert!(kept(got - 1e-9) < share + 1e-5, "{} of {candidate:?}", kept(got - 1e-9));
            }
        }
    }

    /// The same of models that know when they know, at targets between the least and the most accurate.
    #[test]
    fn the_search_finds_what_brute_force_finds_of_graded_models(
        strengths in prop::collection::vec((0.6..0.99_f64, 3.0..40.0_f64), 2..5), part in 0.0..1.0_f64,
    ) {
        let repository = graded(&strengths);
        let all = all(&repository);
        let accuracies = || all.iter().map(|candidate| candidate.accuracy);
        let (least, most) = (accuracies().fold(1.0, f64::min), accuracies().fold(0.0, f64::max));
        let targets = targets(least + part * (most - least));
        let found = repository.best(&step(), &targets).unwrap().chosen.ok();
        prop_assert_eq!(found.as_ref(), select(&all, &targets).ok());
    }

    /// Giving up early never invents anything: what it finds, the search finds, or better.
    #[test]
    fn early_stops_find_nothing_better(
        strengths in prop::collection::vec((0.6..0.99_f64, 3.0..40.0_f64), 2..5), part in 0.0..1.0_f64,
    ) {
        let repository = graded(&strengths);
        let left = repository.candidates(&averaged(), Some(&EarlyStops::PAPER)).unwrap();
        let targets = targets(0.6 + 0.39 * part);
        let early = select(&left, &targets).map_or(f64::INFINITY, |found| found.mean_ms);
        let best = repository.best(&averaged(), &targets).unwrap().chosen.map_or(f64::INFINITY, |found| found.mean_ms);
        prop_assert!(early >= best);
    }
}

/// Folders' names say nothing of models that are right as often: the faster comes first, whatever it is called.
#[test]
fn of_models_as_often_right_the_faster_is_asked_first() {
    let of = |fast: &str, slow: &str| {
        let (fast, slow) = (model(fast, 5.0, &[0.99, 0.4]), model(slow, 20.0, &[0.4, 0.99]));
        let candidates = |models| repository(models).candidates(&step(), None).expect("it is whole");
        let first = candidates(vec![fast.clone(), slow.clone()]);
        assert_eq!(first, candidates(vec![slow, fast]));
        first
    };
    for (fast, slow) in [("a", "b"), ("b", "a")] {
        let cascades = of(fast, slow).into_iter().filter(|candidate| candidate.models.len() > 1);
        let orders: Vec<Vec<String>> = cascades.map(|candidate| candidate.models).collect();
        assert!(!orders.is_empty());
        assert!(orders.iter().all(|models| *models == [fast, slow]), "{orders:?}");
    }
}
