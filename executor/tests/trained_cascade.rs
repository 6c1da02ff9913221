//! The self-contained example, small: trained here, saved, read again, calibrated, and served as a cascade.

use std::sync::atomic::AtomicBool;

use tch::Device;
use tenantry_cascade::{Reroute, expected_calibration_error};
use tenantry_executor::cascade::{
    Answered, Calibration, CalibrationMethod, Cascade, Classifier, EnsembleEffect, ExampleModel, ExampleSize, Item,
    Label, Level, Outputs, Reviews, Settings, Source, TextModel, Texts, judge, make_example, read_items,
};
use tenantry_executor::{ExecutorError, use_one_core};
use tenantry_profiles::DType;
use tenantry_traces::outcome::DispatchCoins;

/// Of tests that nobody stops.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Seconds of training on a quiet machine. The small model is too narrow to learn what a contrast does.
fn size() -> ExampleSize {
    ExampleSize {
        train_items: 1600,
        held_out_items: 400,
        models: vec![model("small", [1, 16, 2], 3), model("large", [2, 64, 4], 3)],
    }
}

fn model(name: &'static str, [layers, hidden, heads]: [u32; 3], epochs: u32) -> ExampleModel {
    ExampleModel {
        name,
        layers,
        hidden,
        heads,
        epochs,
    }
}

fn labels(items: &[Item]) -> Vec<Label> {
    items.iter().map(|item| item.label).collect()
}

fn outputs(model: &TextModel, items: &[Item], calibration: Option<Calibration>) -> Outputs {
    let observed = model.observe(items.iter().map(|item| &item.texts), true, &NEVER).unwrap();
    let labels = labels(items);
    let calibration = calibration.unwrap_or_else(|| {
        Calibration::fit(&observed.logits, &labels, CalibrationMethod::Temperature, 0.0, &NEVER).unwrap()
    });
    Outputs::new(
        model.name(),
        model.answer(),
        Source::default(),
        &labels,
        observed,
        calibration,
    )
    .unwrap()
}

#[test]
fn a_trained_cascade_serves_real_texts() {
    use_one_core();
    let folder = tempfile::tempdir().unwrap();
    let mut losses = Vec::new();
    let mut watch = |model: &str, epoch: u32, loss: f64| losses.push((model.to_owned(), epoch, loss));
    let files = make_example(folder.path(), &size(), 7, Device::Cpu, &NEVER, &mut watch).unwrap();
    assert!(
        losses.iter().all(|(_, epoch, loss)| *epoch < 2 || *loss < 0.69),
        "nothing was learnt: {losses:?}"
    );

    let read = |folder| TextModel::read(folder, DType::F32, Device::Cpu).unwrap();
    let [small, large] = [&files.models[0], &files.models[1]].map(|folder| read(folder));
    let items = |path| read_items(path, small.answer()).unwrap();
    let (profile, test) = (items(&files.profile), items(&files.test));

    // The offline pass, saved and read again.
    let profiled = [&small, &large].map(|model| outputs(model, &profile, None));
    for outputs in &profiled {
        let path = folder.path().join("outputs.safetensors");
        outputs.write(&path).unwrap();
        assert_eq!(Outputs::read(&path).unwrap(), *outputs);
    }
    let [small_profile, large_profile] = &profiled;
    assert!(small_profile.accuracy() > 0.6, "{}", small_profile.accuracy());
    assert!(
        large_profile.accuracy() > small_profile.accuracy(),
        "{} and {}",
        large_profile.accuracy(),
        small_profile.accuracy()
    );

    // Calibration lowers the likelihood's loss on the items it was fitted to, and keeps confidences within reach of
    // accuracies on others.
    let tested = outputs(&small, &test, Some(small_profile.calibration.clone()));
    let pairs = tested.confidences.iter().map(|&confidence| f64::from(confidence)).zip(tested.right());
    assert!(expected_calibration_error(pairs, 10).unwrap() < 0.15);

    // Confident answers are right more often than the others.
    let accuracy = |sure: bool| {
        let mut sorted: Vec<(f32, bool)> = tested.confidences.iter().copied().zip(tested.right()).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (low, high) = sorted.split_at(sorted.len() / 2);
        let half = if sure { high } else { low };
        half.iter().filter(|(_, right)| *right).count()
    };
    assert!(accuracy(true) > accuracy(false));

    // At the ends the cascade is one of its models; between, some are returned. The same coins give the same answers.
    let levels = || {
        vec![
            Level {
                model: &small,
                calibration: small_profile.calibration.clone(),
            },
            Level {
                model: &large,
                calibration: large_profile.calibration.clone(),
            },
        ]
    };
    let coins = DispatchCoins::new(7);
    let run = |cut_off, slope, alpha, weights: Option<Vec<f64>>| {
        let reroute = Reroute::new(cut_off, slope).unwrap();
        let cascade = Cascade::new(levels(), reroute, alpha, weights).unwrap();
        cascade.answer_all(&test, |ticket, stage| coins.of(ticket, stage), &NEVER).unwrap()
    };
    let large_test = outputs(&large, &test, Some(large_profile.calibration.clone()));
    let all_on = run(1.0, 10.0, 0.0, None);
    assert!(all_on.iter().all(|(answered, _)| answered.level == 1));
    let right: Vec<bool> = all_on.iter().map(|(_, right)| *right).collect();
    assert_eq!(right, large_test.right());

    ensembles_are_of_all_that_were_asked(&run(1.0, 10.0, 0.0, Some(vec![0.7, 0.3])), [&tested, &large_test]);
    let settings = Settings {
        reroute: Reroute::new(1.0, 10.0).unwrap(),
        alpha: 0.0,
    };
    let coin = |item: u64, stage: u32| coins.of(item, stage);
    let texts = [read(&files.models[0]), read(&files.models[1])];
    let verdict = judge(&texts, [&profiled, &profiled], &test, settings, &coin, &NEVER).unwrap();
    let rejoined = joined_again(&verdict.ensemble[0].weights, [&tested, &large_test]);
    effects_are_counted_again(&verdict.ensemble[0], &rejoined, [&tested, &large_test]);

    let some = run(0.8, 1e6, 0.0, None);
    let returned = some.iter().filter(|(answered, _)| answered.level == 0).count();
    let sure = tested.confidences.iter().filter(|&&confidence| confidence > 0.9).count();
    assert_eq!(returned, sure, "a step returns what is above (1 + c) / 2");
    let pruned = run(0.8, 1e6, 0.7, Some(vec![0.4, 0.6]));
    for ((plain, _), (pruned, _)) in some.iter().zip(&pruned) {
        assert_eq!(plain.level, pruned.level, "pruning does not move the dispatcher");
        assert!(pruned.words.last() <= plain.words.last());
        assert!(pruned.words[pruned.level] > 0);
    }
    let words = |answers: &[(Answered, bool)]| -> usize {
        answers
            .iter()
            .filter(|(answered, _)| answered.level == 1)
            .map(|(answered, _)| answered.words[1])
            .sum()
    };
    assert!(
        words(&pruned) < words(&some),
        "words are pruned through the text, whatever the tokenizers"
    );
}

/// By item, the average of what both models saved.
fn joined_again(weights: &[f64], saved: [&Outputs; 2]) -> Vec<Vec<f64>> {
    let [small, large] = saved.map(|outputs| &outputs.softmax);
    let sum: f64 = weights.iter().sum();
    let mean = |(a, b): (&f32, &f32)| (weights[0] * f64::from(*a) + weights[1] * f64::from(*b)) / sum;
    small
        .iter()
        .zip(large)
        .map(|(small, large)| small.iter().zip(large).map(mean).collect())
        .collect()
}

fn class(shares: &[f64]) -> usize {
    (1..shares.len()).fold(0, |best, class| if shares[class] > shares[best] { class } else { best })
}

/// What a cascade with weights answers is the average of what was saved of its models, and not the last one's answer.
fn ensembles_are_of_all_that_were_asked(answers: &[(Answered, bool)], saved: [&Outputs; 2]) {
    let mut others = 0;
    for (item, expected) in joined_again(&[0.7, 0.3], saved).iter().enumerate() {
        let (answered, right) = &answers[item];
        for (found, expected) in answered.answer.iter().zip(expected) {
            assert!(
                (found - expected).abs() < 1e-4,
                "item {item}: {found} instead of {expected}"
            );
        }
        assert_eq!(
            *right,
            saved[1].labels[item] == Label::Class(class(expected)),
            "item {item}"
        );
        let last: Vec<f64> = saved[1].softmax[item].iter().map(|&share| share.into()).collect();
        others += u32::from(class(expected) != class(&last));
    }
    assert!(
        others > 0,
        "an average that never differs from the last answer holds nothing"
    );
}

/// All items are re-routed: what the average mends and breaks is counted again from what was saved.
fn effects_are_counted_again(effect: &EnsembleEffect, rejoined: &[Vec<f64>], saved: [&Outputs; 2]) {
    let [small, large] = saved.map(Outputs::right);
    let averaged: Vec<bool> = rejoined
        .iter()
        .zip(&saved[1].labels)
        .map(|(shares, label)| Label::Class(class(shares)) == *label)
        .collect();
    let count = |holds: &dyn Fn(usize) -> bool| (0..averaged.len()).filter(|&item| holds(item)).count();
    let expected = [
        averaged.len(),
        count(&|item| !large[item]),
        count(&|item| !large[item] && small[item]),
        count(&|item| !large[item] && averaged[item]),
        count(&|item| large[item] && !averaged[item]),
    ];
    let found = [
        effect.items,
        effect.wrong,
        effect.earlier_right,
        effect.mended,
        effect.broken,
    ];
    assert_eq!(found, expected);
    assert!(
        effect.mended + effect.broken > 0,
        "an ensemble that changes nothing holds nothing: {found:?}"
    );
}

/// Calibration on real logits, of a model trained here until it knows its few items by heart: too sure of others, which
/// a temperature mends on items that it was not fitted to. (`sim/cascade/tests/all/real_logits.rs` has models of
/// others, where their tables are at hand.)
#[test]
fn a_model_that_is_too_sure_is_mended_on_items_that_it_was_not_fitted_to() {
    use_one_core();
    let folder = tempfile::tempdir().unwrap();
    let size = ExampleSize {
        train_items: 400,
        held_out_items: 500,
        models: vec![model("small", [1, 32, 2], 30)],
    };
    let files = make_example(folder.path(), &size, 7, Device::Cpu, &NEVER, &mut |_, _, _| {}).unwrap();
    let small = TextModel::read(&files.models[0], DType::F32, Device::Cpu).unwrap();
    let items = |path| read_items(path, small.answer()).unwrap();
    let (profile, test) = (items(&files.profile), items(&files.test));
    let fitted = outputs(&small, &profile, None).calibration;
    let Calibration::Classes(temperature) = fitted else {
        panic!("the task has classes");
    };
    let held_out = |calibration: &Calibration| {
        let tested = outputs(&small, &test, Some(calibration.clone()));
        let pairs = tested.confidences.iter().map(|&confidence| f64::from(confidence)).zip(tested.right());
        expected_calibration_error(pairs, 15).unwrap()
    };
    let before = held_out(&Calibration::Classes(tenantry_cascade::Temperature::ONE));
    let after = held_out(&Calibration::Classes(temperature));
    let observed = small.observe(profile.iter().map(|item| &item.texts), false, &NEVER).unwrap();
    let by_class = Calibration::fit(
        &observed.logits,
        &labels(&profile),
        CalibrationMethod::Dirichlet,
        0.0,
        &NEVER,
    )
    .unwrap();
    let after_by_class = held_out(&by_class);
    println!(
        "temperature {:.2}: calibration error {before:.3} before, {after:.3} after, {after_by_class:.3} class by class",
        temperature.value()
    );
    assert!(after_by_class < before / 2.0, "{before} and {after_by_class}");
    // It lies in a folder of outputs as any other.
    let saved = outputs(&small, &test, Some(by_class));
    let path = folder.path().join("by-class.safetensors");
    saved.write(&path).unwrap();
    let read = Outputs::read(&path).unwrap();
    assert_eq!((&read.calibration, &read.softmax), (&saved.calibration, &saved.softmax));
    assert!(temperature.value() > 1.2, "it learnt {} by heart", size.train_items);
    assert!(after < before / 2.0, "{before} and {after}");
}

#[test]
fn levels_must_answer_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = ExampleSize {
        train_items: 8,
        held_out_items: 4,
        models: vec![model("small", [1, 16, 2], 1), model("large", [1, 16, 2], 1)],
    };
    let files = make_example(folder.path(), &tiny, 7, Device::Cpu, &NEVER, &mut |_, _, _| {}).unwrap();
    let config = files.models[1].join("config.json");
    let renamed = std::fs::read_to_string(&config).unwrap().replace("negative", "neutral");
    std::fs::write(&config, renamed).unwrap();
    let read = |folder| TextModel::read(folder, DType::F32, Device::Cpu).unwrap();
    let models = [&files.models[0], &files.models[1]].map(|folder| read(folder));
    let calibration = Calibration::Classes(tenantry_cascade::Temperature::ONE);
    let levels = models.iter().map(|model| Level {
        model,
        calibration: calibration.clone(),
    });
    let levels = levels.collect();
    let error = Cascade::new(levels, Reroute::new(0.9, 10.0).unwrap(), 0.0, None).unwrap_err();
    assert!(
        error.to_string().ends_with(&format!(
            "large/config.json: id2label: must be negative, positive, as {} has it, got neutral, positive",
            files.models[0].display()
        )),
        "{error}"
    );

    // Profiles are of one model's files: weights that were trained on are others.
    let place = std::path::Path::new("profiled/large.safetensors");
    let before = models[1].hash().to_owned();
    models[1].check_profiled(&before, place).unwrap();
    let weights = files.models[1].join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let error = read(&files.models[1]).check_profiled(&before, place).unwrap_err();
    assert!(
        error.to_string().contains(
            "model.safetensors, tokenizer.json: must be those that profiled/large.safetensors is of (BLAKE3 "
        ),
        "{error}"
    );

    // A tokenizer that loses a word is told of with its file.
    let error: ExecutorError = models[1].encode(&Texts::one("the \u{200d} soup")).unwrap_err();
    assert!(
        error.to_string().contains("large/tokenizer.json: text 0: every word must have a token"),
        "{error}"
    );
    assert_eq!(Reviews::answer(), *models[0].answer());
    assert!(Classifier::read(folder.path(), DType::F32, Device::Cpu).is_err());
}
