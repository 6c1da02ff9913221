//! Models that answer with a number.

use super::*;

/// The small model with the first of its two outputs alone, which makes a regression of it, and items whose labels are
/// numbers.
fn regression() -> Trained {
    let classes = trained(2, &[]);
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (&classes.files.models[0], folder.path().join("small"));
    std::fs::create_dir(&to).unwrap();
    std::fs::copy(from.join("tokenizer.json"), to.join("tokenizer.json")).unwrap();
    let config = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let keys = config.as_object_mut().unwrap();
    keys.retain(|key, _| !["id2label", "label2id"].contains(&key.as_str()));
    keys.insert("problem_type".into(), "regression".into());
    keys.insert("num_labels".into(), 1.into());
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    let first = |(name, tensor): (String, Tensor)| match name.starts_with("classifier.") {
        true => (name, tensor.narrow(0, 0, 1)),
        false => (name, tensor),
    };
    let tensors = Tensor::read_safetensors(from.join("model.safetensors")).unwrap();
    let tensors: Vec<(String, Tensor)> = tensors.into_iter().map(first).collect();
    Tensor::write_safetensors(&tensors, to.join("model.safetensors")).unwrap();
    let small = TextModel::read(from, DType::F32, Device::Cpu).unwrap();
    let mut numbered = read_items(&classes.files.test, small.answer()).unwrap();
    for (index, item) in numbered.iter_mut().enumerate() {
        item.label = Label::Number((index % 4) as f32);
    }
    let items = folder.path().join("test.csv");
    write_items(&items, &numbered, &Answer::Number).unwrap();
    let files = ExampleFiles {
        models: vec![to],
        profile: items.clone(),
        test: items,
    };
    profiled(folder, files, CalibrationMethod::Temperature, &[])
}

#[test]
fn a_regression_answers_with_the_numbers_that_were_saved_of_it() {
    let trained = regression();
    let Trained { answers, profiled, .. } = &trained;
    let reroute = Reroute::new(0.6, 10.0).unwrap();
    let mut alone = system(&trained, &["small"], reroute, None, AnswerJoin::Last);
    alone.route.as_mut().unwrap().stages[0].pool.classes = 1;
    let real = executed(&alone, answers).unwrap();
    assert_eq!(real.record.counts.served, REQUESTS);
    assert!(real.answers.is_empty(), "it has no classes: {:?}", real.answers);
    let saved = &profiled.find("small").unwrap().whole.softmax;
    let draws = tenantry_traces::outcome::ItemDraws::new(SEED, saved.len());
    let tickets: Vec<u64> = real.numbers.iter().map(|number| number.ticket).collect();
    assert_eq!(tickets, Vec::from_iter(0..REQUESTS));
    for number in &real.numbers {
        let expected = f64::from(saved[draws.of(number.ticket)][0]);
        // In a batch a row may be summed up in another order.
        assert!(
            (number.number - expected).abs() < 1e-4,
            "{number:?}, and {expected} was saved"
        );
    }
    let distinct: std::collections::BTreeSet<u64> = real.numbers.iter().map(|of| of.number.to_bits()).collect();
    assert!(distinct.len() > 10, "the items differ: {}", distinct.len());
}
