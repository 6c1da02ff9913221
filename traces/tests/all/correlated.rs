//! Whether models that err on the same items, as the generator's others do, vote as real models do: fitted to some
//! models' outcomes and checked on others' (LLM-Uncertainty-Bench, 10,000 questions of MMLU).

use crate::common;
use tenantry_traces::fit::cascade::{MNLI, correlation};
use tenantry_traces::outcome::{GeneratedSpec, OtherModel, OutcomeSource, OutcomeTable, OutcomesSpec};

const TABLE: &str = "cascade/uncertainty_bench_mmlu_10k_base_icl1.csv.gz";
/// The large model, and what counts as right.
const LARGE: &str = "llama_2_70b";
const RIGHT: &str = "qwen_72b";

/// Of some models, by item: whether each is right.
fn right(models: &[&str]) -> Option<Vec<Vec<bool>>> {
    let table = OutcomeTable::read(&common::data(TABLE)?, models, Some(RIGHT)).unwrap();
    let item = |item| table.item(item).iter().map(|outcome| outcome.correct).collect();
    Some((0..table.items()).map(item).collect())
}

fn share(items: &[&Vec<bool>], of: impl Fn(&[bool]) -> bool) -> f64 {
    items.iter().filter(|item| of(item)).count() as f64 / items.len() as f64
}

/// The mean correlation of three models' pairs, where the first model, the large one, is right or wrong.
fn fitted(items: &[Vec<bool>], large: bool) -> f64 {
    let given: Vec<&Vec<bool>> = items.iter().filter(|item| item[0] == large).collect();
    let pair = |(one, other): (usize, usize)| {
        let alone = |model: usize| share(&given, |item| item[model]);
        correlation(share(&given, |item| item[one] && item[other]), alone(one), alone(other))
    };
    [(1, 2), (1, 3), (2, 3)].map(pair).iter().sum::<f64>() / 3.0
}

/// How often most of three models are right that are drawn with this correlation, each as often right as the real ones.
fn voted(items: &[Vec<bool>], correlation: f64) -> f64 {
    let other = |model: usize| {
        let chance = |large: bool| {
            let given: Vec<&Vec<bool>> = items.iter().filter(|item| item[0] == large).collect();
            share(&given, |item| item[model])
        };
        OtherModel {
            name: model.to_string(),
            confidence: vec![(1.0, 1.0)],
            right_if_large_is: vec![(1.0, chance(true))],
            right_if_large_is_not: vec![(1.0, chance(false))],
        }
    };
    let spec = GeneratedSpec {
        small: "small".into(),
        large: "large".into(),
        levels: MNLI,
        others: [1, 2, 3].map(other).to_vec(),
        correlation,
    };
    let source = OutcomeSource::new(&OutcomesSpec::Generated(spec), 7).unwrap();
    // The generator's large model is right more often than the real one: its two branches are weighed as the real one's
    // are.
    let large = items.iter().filter(|item| item[0]).count() as f64 / items.len() as f64;
    let (mut of, mut most) = ([0.0_f64; 2], [0.0_f64; 2]);
    for ticket in 0..100_000 {
        let branch = usize::from(source.of(ticket, 1).correct);
        of[branch] += 1.0;
        let right = (2..5).filter(|&model| source.of(ticket, model).correct).count();
        most[branch] += f64::from(u8::from(right >= 2));
    }
    large * most[1] / of[1] + (1.0 - large) * most[0] / of[0]
}

#[test]
fn a_vote_is_as_often_right_as_that_of_models_which_err_together() {
    let Some(fitted_to) = right(&[LARGE, "qwen_1_8b", "qwen_7b", "llama_2_7b"]) else {
        return;
    };
    let correlations = [true, false].map(|large| fitted(&fitted_to, large));
    println!("correlations where the large model is right and where not: {correlations:.2?}");
    assert!(
        correlations.iter().all(|of| (0.2..0.7).contains(of)),
        "{correlations:?}"
    );
    for with_another in [
        ["qwen_1_8b", "qwen_7b", "qwen_14b"],
        ["qwen_7b", "qwen_14b", "llama_2_7b"],
        ["qwen_1_8b", "qwen_14b", "llama_2_7b"],
    ] {
        let items = right(&[LARGE, with_another[0], with_another[1], with_another[2]]).expect("it was there before");
        let all: Vec<&Vec<bool>> = items.iter().collect();
        let real = share(&all, |item| item[1..].iter().filter(|right| **right).count() >= 2);
        let [alone, together] = [0.0, 0.5].map(|correlation| voted(&items, correlation));
        println!("{with_another:?}: {real:.3}, drawn alone {alone:.3}, together {together:.3}");
        assert!((together - real).abs() < 0.6 * (alone - real).abs(), "{with_another:?}");
    }
}
