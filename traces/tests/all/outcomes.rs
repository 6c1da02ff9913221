//! Outcomes of cascades: tables of public items, the generator fitted to them, and Tabi's numbers.

use std::io::Write;

use crate::common::data;
use tenantry_traces::describe::Histogram;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::fit::cascade::{self, TwoLevels};
use tenantry_traces::outcome::{
    Difficulties, DifficultyDraws, DifficultySpec, DispatchCoins, GeneratedOutcomes, Outcome, OutcomeSource,
    OutcomeTable, OutcomesSpec, TableSpec,
};

const TICKETS: u64 = 400_000;

/// What a cascade that returns the small model's answer from `threshold` on makes of `items`.
struct Cascade {
    returned: f64,
    small_right_of_returned: f64,
    large_right_of_returned: f64,
    small_right_of_others: f64,
    large_right_of_others: f64,
}

fn cascade_of(items: &[[Outcome; 2]], threshold: f32) -> Cascade {
    let (returned, others): (Vec<_>, Vec<_>) = items.iter().partition(|item| item[0].confidence >= threshold);
    let right = |items: &[&[Outcome; 2]], model: usize| {
        items.iter().filter(|item| item[model].correct).count() as f64 / items.len() as f64
    };
    Cascade {
        returned: returned.len() as f64 / items.len() as f64,
        small_right_of_returned: right(&returned, 0),
        large_right_of_returned: right(&returned, 1),
        small_right_of_others: right(&others, 0),
        large_right_of_others: right(&others, 1),
    }
}

fn generated(levels: TwoLevels) -> Vec<[Outcome; 2]> {
    let outcomes = GeneratedOutcomes::new(7, levels);
    (0..TICKETS).map(|ticket| outcomes.of(ticket)).collect()
}

fn close(what: &str, real: f64, generated: f64, within: f64) {
    println!("{what:<60} {:>8.2} % {:>8.2} %", 100.0 * real, 100.0 * generated);
    assert!((real - generated).abs() <= within, "{what}: {real}, not {generated}");
}

#[test]
fn tabis_branches_come_out() {
    let tasks = [
        // Section 7.3.2: returned, accuracy of the small model there and of the large one elsewhere, and the two
        // swapped.
        ("SST-2", cascade::SST_2, 0.975, [0.698, 0.977, 0.914, 0.987, 0.762]),
        ("MNLI", cascade::MNLI, 0.925, [0.494, 0.961, 0.855, 0.968, 0.713]),
    ];
    for (task, levels, threshold, [returned, small, large, large_swapped, small_swapped]) in tasks {
        let cascade = cascade_of(&generated(levels), threshold);
        close(&format!("{task}, returned"), returned, cascade.returned, 0.003);
        close(
            &format!("{task}, small on returned"),
            small,
            cascade.small_right_of_returned,
            0.003,
        );
        close(
            &format!("{task}, large on re-routed"),
            large,
            cascade.large_right_of_others,
            0.003,
        );
        close(
            &format!("{task}, large on returned"),
            large_swapped,
            cascade.large_right_of_returned,
            0.003,
        );
        close(
            &format!("{task}, small on re-routed"),
            small_swapped,
            cascade.small_right_of_others,
            0.003,
        );
    }
}

#[test]
fn generated_outcomes_look_like_the_half_that_the_fit_did_not_see() {
    for name in ["mmlu_10k", "hellaswag_10k", "halu_summarization"] {
        let Some(path) = data(&format!("cascade/uncertainty_bench_{name}_base_icl1.csv.gz")) else {
            return;
        };
        // Right is what the largest model says too: the files have no gold labels.
        let table = OutcomeTable::read(&path, &["qwen_7b", "qwen_14b"], Some("qwen_72b")).unwrap();
        let items: Vec<[Outcome; 2]> = (0..table.items()).map(|i| table.item(i).try_into().unwrap()).collect();
        // By a draw for each item, since neighbours are of one question or one kind in some of the files.
        let split = Draws::new(1, Purpose::Outcome);
        let half = |which: u64| -> Vec<[Outcome; 2]> {
            let of_half = |(i, _): &(usize, &[Outcome; 2])| split.about(*i as u64).below(2) == which;
            items.iter().enumerate().filter(of_half).map(|(_, item)| *item).collect()
        };
        let (seen, unseen) = (half(0), half(1));
        let generated = generated(cascade::fit(&seen));
        let confidences = |items: &[[Outcome; 2]]| -> Histogram {
            items.iter().map(|item| (item[0].confidence * 1e4).round() as u32).collect()
        };
        let distance = confidences(&unseen).distance(&confidences(&generated)).unwrap();
        println!("{name}: Kolmogorov-Smirnov distance of the confidence {distance:.4}");
        assert!(distance < 0.03, "{name}: {distance}");
        for threshold in [0.5, 0.7, 0.9] {
            let [real, generated] = [&unseen, &generated].map(|items| cascade_of(items, threshold));
            let what = |what: &str| format!("{name}, threshold {threshold}: {what}");
            // Both halves scatter: four standard errors of their difference, in 45 comparisons.
            let within =
                |share: f64, of: f64| 4.0 * (2.0 * share * (1.0 - share) / (of * unseen.len() as f64)).sqrt() + 0.001;
            let (kept, rest) = (real.returned, 1.0 - real.returned);
            for (name, real, generated, of) in [
                ("returned", kept, generated.returned, 1.0),
                (
                    "small on returned",
                    real.small_right_of_returned,
                    generated.small_right_of_returned,
                    kept,
                ),
                (
                    "large on returned",
                    real.large_right_of_returned,
                    generated.large_right_of_returned,
                    kept,
                ),
                (
                    "small on re-routed",
                    real.small_right_of_others,
                    generated.small_right_of_others,
                    rest,
                ),
                (
                    "large on re-routed",
                    real.large_right_of_others,
                    generated.large_right_of_others,
                    rest,
                ),
            ] {
                close(&what(name), real, generated, within(generated, of));
            }
        }
    }
}

#[test]
fn a_ticket_has_its_outcome_whoever_asks_and_when() {
    let outcomes = GeneratedOutcomes::new(3, cascade::MNLI);
    let forwards: Vec<_> = (0..1000).map(|ticket| outcomes.of(ticket)).collect();
    let backwards: Vec<_> = (0..1000).rev().map(|ticket| outcomes.of(ticket)).collect();
    assert!(forwards.iter().eq(backwards.iter().rev()));
    assert_ne!(
        forwards,
        (1000..2000).map(|ticket| outcomes.of(ticket)).collect::<Vec<_>>()
    );
    let coins = DispatchCoins::new(3);
    assert_eq!(coins.of(5, 0), coins.of(5, 0));
    assert_ne!(coins.of(5, 0), coins.of(5, 1));
}

#[test]
fn routellm_has_correctness_alone() {
    let Some(path) = data("cascade/routellm_mixtral_vs_gpt4_correct.csv.gz") else {
        return;
    };
    let table = OutcomeTable::read_correctness(&path, &["weak", "strong"]).unwrap();
    // 14 042 items of MMLU and 1 319 of GSM8K.
    assert_eq!(table.items(), 15_361);
    let share = |of: &dyn Fn(&[Outcome]) -> bool| {
        (0..table.items()).filter(|&i| of(table.item(i))).count() as f64 / table.items() as f64
    };
    let weighted = |mmlu: f64, gsm8k: f64| (mmlu * 14_042.0 + gsm8k * 1_319.0) / 15_361.0;
    close("weak", weighted(0.681, 0.638), share(&|item| item[0].correct), 0.001);
    close("strong", weighted(0.806, 0.857), share(&|item| item[1].correct), 0.001);
    assert!((0..table.items()).all(|i| table.item(i)[0].correct == (table.item(i)[0].confidence == 1.0)));
    // A fit has two confidences, and of each the share that there is.
    let items: Vec<[Outcome; 2]> = (0..table.items()).map(|i| table.item(i).try_into().unwrap()).collect();
    let fitted = cascade::fit(&items);
    for small_right in [true, false] {
        let real = share(&|item| item[0].correct == small_right && item[1].correct)
            / share(&|item| item[0].correct == small_right);
        let confidence = f64::from(u8::from(small_right));
        close(
            "strong, given weak",
            real,
            fitted.large_right(confidence, small_right),
            1e-9,
        );
    }
}

/// Many items may have one confidence, as where it is a count of votes: the share is of all of them, whoever stands
/// first in the file.
#[test]
fn a_fit_takes_all_items_of_one_confidence_together() {
    let mut items = Vec::new();
    for (confidence, small_right_of_100, large_right_of_100) in [(0.25, 30, 40), (0.5, 60, 70), (0.75, 80, 50)] {
        for item in 0..900 {
            let of = |right_of_100: usize| Outcome {
                confidence,
                correct: item < 9 * right_of_100,
                wrong: None,
            };
            items.push([of(small_right_of_100), of(large_right_of_100)]);
        }
    }
    let fitted = cascade::fit(&items);
    for (confidence, small, large_if_small_is, large_if_small_is_not) in [
        (0.25, 0.3, 1.0, 10.0 / 70.0),
        (0.5, 0.6, 1.0, 10.0 / 40.0),
        (0.75, 0.8, 50.0 / 80.0, 0.0),
    ] {
        // Bins are drawn a little towards all items.
        let is = |what: &str, real, fitted| close(&format!("{what} at {confidence}"), real, fitted, 0.02);
        is("small", small, fitted.small_right(confidence));
        is(
            "large, small right",
            large_if_small_is,
            fitted.large_right(confidence, true),
        );
        is(
            "large, small wrong",
            large_if_small_is_not,
            fitted.large_right(confidence, false),
        );
    }
}

#[test]
fn mnli_is_as_hard_as_a_hundred_berts_say() {
    let Some(path) = data("cascade/mnli_dev_100_bert_base_correct_counts.csv") else {
        return;
    };
    let difficulties = Difficulties::read(&path).unwrap();
    let items = difficulties.items();
    assert_eq!(items, 9_815);
    let share = |is: &dyn Fn(f64) -> bool| {
        (0..items).filter(|&item| is(difficulties.share_right(item))).count() as f64 / items as f64
    };
    close("right for all", 0.665, share(&|right| right == 1.0), 0.0006);
    close("right for none", 0.054, share(&|right| right == 0.0), 0.0006);
    close(
        "in between",
        0.09,
        share(&|right| (0.21..=0.79).contains(&right)),
        0.001,
    );
    let draws = DifficultyDraws::new(7, difficulties);
    let right = |model| (0..TICKETS).filter(|&ticket| draws.of(ticket, model).correct).count() as f64 / TICKETS as f64;
    close("a model", 0.8434, right(0), 0.003);
    // Two models agree far more often than two coins of that bias, which would in 73.6 % of cases.
    let agree = (0..TICKETS)
        .filter(|&ticket| draws.of(ticket, 0).correct == draws.of(ticket, 1).correct)
        .count();
    assert!(agree as f64 / TICKETS as f64 > 0.9);
    // Who is sure is right: of answers of a confidence, that share is.
    for (low, high) in [(0.0, 0.2), (0.2, 0.8), (0.8, 1.01)] {
        let some: Vec<Outcome> = (0..TICKETS)
            .map(|ticket| draws.of(ticket, 2))
            .filter(|outcome| (low..high).contains(&outcome.confidence))
            .collect();
        let mean = |of: fn(&Outcome) -> f64| some.iter().map(of).sum::<f64>() / some.len() as f64;
        let sure = mean(|outcome| outcome.confidence.into());
        let right = mean(|outcome| f64::from(u8::from(outcome.correct)));
        close(&format!("right, confidence from {low}"), sure, right, 0.01);
    }
    // As a scenario asks for it: two models by name.
    let spec = OutcomesSpec::Difficulty(DifficultySpec {
        path,
        models: vec!["one".into(), "other".into()],
    });
    let source = OutcomeSource::new(&spec, 7).unwrap();
    assert_eq!(source.names(), ["one", "other"]);
    assert!((0..1000).all(|ticket| source.of(ticket, 1) == draws.of(ticket, 1)));
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn broken_tables_say_where() {
    let counts = file("index,n_correct_of_100\n0,100\n1,101\n");
    let error = Difficulties::read(counts.path()).unwrap_err().to_string();
    assert!(
        error.ends_with(":3: n_correct_of_100: must be 0 to 100, got `101`"),
        "{error}"
    );
    for (table, must_be) in [
        (
            "index,n_correct_of_100\n0,100\n1,7,0\n",
            ":3: must have 2 columns as the first line has, got 3",
        ),
        (
            "index,n_correct_of_100\n100\n",
            ":2: must have 2 columns as the first line has, got 1",
        ),
        (
            "n_correct_of_100,n_correct_of_100\n1,2\n",
            ": must have one column `n_correct_of_100`, got 2",
        ),
        (
            "n_correct\n1\n",
            ": must have a column `n_correct_of_100`, got `n_correct`",
        ),
        ("n_correct_of_100\n", ": must have items, got only a first line"),
        ("", ": must have a first line, got an empty file"),
    ] {
        let error = Difficulties::read(file(table).path()).unwrap_err().to_string();
        assert!(error.ends_with(must_be), "{error}");
    }
    let table = file("a_correct,b_correct\n1,0\n1,maybe\n");
    let error = OutcomeTable::read_correctness(table.path(), &["a", "b"]).unwrap_err().to_string();
    assert!(error.ends_with(":3: b_correct: must be 0 or 1, got `maybe`"), "{error}");
    // An answer that is missing is not the right one, also where the reference's is missing too.
    for (table, must_be) in [
        (
            "a_conf,a_pred,r_pred\n0.5,x,x\n0.5,,\n",
            ":3: a_pred: must be an answer, got ``",
        ),
        (
            "a_conf,a_pred,r_pred\n0.5,x,\n",
            ":2: r_pred: must be an answer, got ``",
        ),
        (
            "a_conf,a_pred,r_pred\n0.5,\" \",x\n",
            ":2: a_pred: must be an answer, got ` `",
        ),
        (
            "a_conf,a_pred,a_conf,r_pred\n0.5,x,0.7,x\n",
            ": must have one column `a_conf`, got 2",
        ),
        (
            "a_conf,a_pred,r_pred,r_pred\n0.5,x,x,y\n",
            ": must have one column `r_pred`, got 2",
        ),
    ] {
        let read = OutcomeTable::read(file(table).path(), &["a"], Some("r"));
        let error = read.unwrap_err().to_string();
        assert!(error.ends_with(must_be), "{error}");
    }
    let table = file("a_conf,a_pred,r_pred,note,note\n0.5,x,\"x\",,\n0.5,x,y,,\n");
    let read = OutcomeTable::read(table.path(), &["a"], Some("r")).unwrap();
    assert_eq!([0, 1].map(|item| read.item(item)[0].correct), [true, false]);
}

/// Of an item it is kept which models gave the same wrong answer, in no more memory than who was right.
#[test]
fn models_that_are_wrong_alike_are_known() {
    let numbers = |table: &str, reference| {
        let read = OutcomeTable::read(file(table).path(), &["a", "b", "c"], reference).unwrap();
        let of_item = |item| {
            let numbers = read.item(item).iter().map(|outcome| outcome.wrong.map_or(0, |number| number.get()));
            numbers.collect::<Vec<_>>()
        };
        (read.wrong_answers(), (0..read.items()).map(of_item).collect::<Vec<_>>())
    };
    let compared = "a_conf,a_pred,b_conf,b_pred,c_conf,c_pred,r_pred\n\
                    0.5,x,0.5,y,0.5,y,x\n0.5,z,0.5,x,0.5,y,x\n0.5,y,0.5,z,0.5,y,x\n0.5,x,0.5,x,0.5,x,x\n";
    let alike = vec![vec![0, 1, 1], vec![1, 0, 2], vec![1, 2, 1], vec![0, 0, 0]];
    assert_eq!(numbers(compared, Some("r")), (2, alike));
    // Labelled, with the answers of two models.
    let flagged = "a_conf,a_correct,a_pred,b_conf,b_correct,b_pred,c_conf,c_correct\n\
                   0.5,0,x,0.5,0,x,0.5,0\n0.5,0,x,0.5,0,y,0.5,1\n";
    assert_eq!(numbers(flagged, None), (2, vec![vec![1, 1, 0], vec![1, 2, 0]]));
    // Of some items nobody knows what a model answered.
    let empty = "a_conf,a_correct,a_pred,b_conf,b_correct,b_pred,c_conf,c_correct,c_pred\n0.5,0,x,0.5,0, ,0.5,0,x\n";
    assert_eq!(numbers(empty, None), (1, vec![vec![1, 0, 1]]));
    let read = OutcomeTable::read(file(empty).path(), &["a", "b", "c"], None).unwrap();
    assert_eq!(
        [0, 1, 2].map(|model| read.has_unknown_answers(model)),
        [false, true, false]
    );
    let bare = "a_conf,a_correct,b_conf,b_correct,c_conf,c_correct\n0.5,0,0.5,0,0.5,1\n";
    assert_eq!(numbers(bare, None), (0, vec![vec![0; 3]]));
    assert_eq!(size_of::<Outcome>(), 8);
}

/// Which models' answers a table has is known before it is read.
#[test]
fn models_whose_answers_a_table_lacks_are_named() {
    let table = file("a_conf,a_correct,a_pred,b_conf,b_correct,r_pred\n0.5,0,x,0.5,0,y\n");
    let of = |reference: Option<&str>| TableSpec {
        path: table.path().into(),
        models: [("one", "a"), ("two", "b")].map(|(model, column)| (model.into(), column.into())).into(),
        reference: reference.map(str::to_owned),
    };
    assert_eq!(of(None).without_answers().unwrap(), [("two", "b_pred".to_owned())]);
    assert_eq!(of(Some("r")).without_answers().unwrap(), []);
}
