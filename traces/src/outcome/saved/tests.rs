use super::*;

fn pass(classes: Option<Vec<String>>, labels: &[f32]) -> SavedOutputs {
    let items = labels.len();
    SavedOutputs {
        model: "small".into(),
        folder: "out/small".into(),
        model_hash: "def".into(),
        items: "out/items.csv".into(),
        items_hash: "abc".into(),
        calibrated_on: "abc".into(),
        calibration: match classes {
            Some(_) => SavedCalibration::Temperature(1.25),
            None => SavedCalibration::Spread {
                spread: 0.5,
                tolerance: 0.25,
            },
        },
        pruning: None,
        labels: labels.to_vec(),
        logits: vec![classes.as_ref().map_or(vec![0.5], |names| vec![0.5; names.len()]); items],
        softmax: vec![classes.as_ref().map_or(vec![0.5], |names| vec![1.0 / names.len() as f32; names.len()]); items],
        confidences: vec![classes.as_ref().map_or(0.75, |names| 1.0 / names.len() as f32); items],
        service_us: vec![12.5; items],
        attended_us: vec![14.5; items],
        input_tokens: (0..items as u32).map(|item| 3 + item).collect(),
        importance: (0..items).map(|tokens| vec![0.25; tokens]).collect(),
        classes,
    }
}

fn three_classes() -> SavedOutputs {
    pass(Some(vec!["a".into(), "b".into(), "c".into()]), &[0.0, 2.0, 1.0])
}

fn step(by: &str, alpha: f64) -> PruneStep {
    PruneStep { by: by.into(), alpha }
}

fn pruned(steps: &[PruneStep]) -> SavedOutputs {
    SavedOutputs {
        pruning: Some(SavedPruning {
            steps: steps.to_vec(),
            words_left: 0.858,
        }),
        attended_us: Vec::new(),
        ..three_classes()
    }
}

fn write(folder: &Path, pass: &SavedOutputs) -> PathBuf {
    let path = folder.join(pass.file_name());
    std::fs::write(&path, pass.to_bytes()).unwrap();
    path
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let twice = [step("smaller", 0.7), step("small", 0.5)];
    for outputs in [
        three_classes(),
        pruned(&twice[..1]),
        pruned(&twice),
        pass(None, &[0.5, -2.0]),
    ] {
        let path = write(folder.path(), &outputs);
        assert_eq!(SavedOutputs::read(&path).unwrap(), outputs);
    }
}

#[test]
fn broken_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = |error: TraceError| {
        let text = error.to_string();
        text.split_once("small.safetensors: ").unwrap().1.to_owned()
    };
    let read = |change: &dyn Fn(&mut SavedOutputs)| {
        let mut broken = three_classes();
        change(&mut broken);
        message(SavedOutputs::read(&write(folder.path(), &broken)).unwrap_err())
    };
    assert_eq!(
        read(&|outputs| outputs.confidences[1] = 1.5),
        "confidence[1]: must be from 0 to 1, got 1.5"
    );
    assert_eq!(
        read(&|outputs| outputs.confidences[1] = f32::NAN),
        "confidence[1]: must be from 0 to 1, got NaN"
    );
    assert_eq!(
        read(&|outputs| {
            outputs.softmax[1] = vec![0.25, 0.5, 0.25];
            outputs.confidences[1] = 0.75;
        }),
        "confidence[1]: must be the greatest of its softmax, 0.5, got 0.75"
    );
    assert!(read(&|outputs| outputs.softmax[0][0] += 0.5).starts_with("softmax[0]: must be 1 in all, got 1.5"));
    assert_eq!(
        read(&|outputs| outputs.softmax[0] = vec![-0.5, 1.0, 0.5]),
        "softmax[0][0]: must be from 0 to 1, got -0.5"
    );
    assert_eq!(
        read(&|outputs| outputs.labels[2] = 3.0),
        "label[2]: must be a class below 3, got 3"
    );
    assert_eq!(
        read(&|outputs| outputs.logits[2][1] = f32::NAN),
        "logits[2][1]: must be a number, got NaN"
    );
    assert_eq!(
        read(&|outputs| outputs.service_us[1] = -4.0),
        "service_us[1]: must be above 0, got -4"
    );
    assert_eq!(
        read(&|outputs| outputs.attended_us[2] = f32::INFINITY),
        "attended_us[2]: must be above 0, got inf"
    );
    assert_eq!(
        read(&|outputs| outputs.importance[2][1] = f32::NAN),
        "importance[2][1]: must be at least 0, got NaN"
    );
    assert_eq!(
        read(&|outputs| outputs.calibration = SavedCalibration::Temperature(0.0)),
        "temperature: must be above 0, got 0"
    );
    let by_class = |weights: Vec<Vec<f64>>| {
        read(&move |outputs| {
            outputs.calibration = SavedCalibration::Dirichlet(SavedDirichlet {
                weights: weights.clone(),
                intercepts: vec![0.0; 3],
            });
        })
    };
    for weights in [vec![vec![1.0; 3]; 2], vec![vec![1.0; 3], vec![1.0; 2], vec![1.0; 3]]] {
        let told = by_class(weights);
        let must = "dirichlet: must be weights of 3 by 3 classes and as many intercepts, all finite, got ";
        assert!(told.starts_with(must), "{told}");
    }
    assert_eq!(
        read(&|outputs| outputs.attended_us.truncate(1)),
        "attended_us: must be none or 3 numbers, got 1"
    );
    assert_eq!(
        read(&|outputs| outputs.input_tokens[0] = 0),
        "input_tokens[0]: must be at least 1, got 0"
    );
    let mut short = three_classes();
    short.service_us.pop();
    // A file that says less than it must is not even written: the view panics, as whoever built it is at fault.
    assert!(std::panic::catch_unwind(|| short.to_bytes()).is_err());

    let path = folder.path().join("small.safetensors");
    std::fs::write(&path, b"words").unwrap();
    let error = message(SavedOutputs::read(&path).unwrap_err());
    assert!(
        error.starts_with("header: must be that of a safetensors file"),
        "{error}"
    );
    let mut older = three_classes().to_bytes();
    let windows = || older.windows(FORMAT.len());
    let at = windows().position(|window| window == FORMAT.as_bytes()).unwrap();
    older[at + FORMAT.len() - 1] = b'1';
    std::fs::write(&path, older).unwrap();
    assert_eq!(
        message(SavedOutputs::read(&path).unwrap_err()),
        "format: must be tenantry-outputs-4, got tenantry-outputs-1; `tenantry cascade profile` writes it anew"
    );
}

#[test]
fn a_folder_is_read_by_model_and_degree() {
    let folder = tempfile::tempdir().unwrap();
    let read = || ProfiledModels::read(folder.path());
    assert!(read().unwrap_err().to_string().ends_with("cascade profile`, got none"));
    let [low, high, middle] = [step("smaller", 0.5), step("smaller", 0.7), step("middle", 0.3)];
    let ways = [vec![low.clone(), middle], vec![high.clone()], vec![low]];
    for steps in &ways {
        write(folder.path(), &pruned(steps));
    }
    let error = read().unwrap_err().to_string();
    assert!(
        error.ends_with("must have each model's whole items, got only pruned ones of small"),
        "{error}"
    );
    write(folder.path(), &three_classes());
    let models = read().unwrap();
    let small = models.find("small").unwrap();
    assert_eq!((models.names(), models.labels()), (vec!["small"], &[0.0, 2.0, 1.0][..]));
    let [twice, high, low] = &ways;
    assert_eq!(small.prunings().collect::<Vec<_>>(), [low, high, twice]);
    for steps in &ways {
        assert_eq!(small.after(steps), Some(&pruned(steps)));
    }
    assert_eq!(small.after(&[]), Some(&small.whole));
    assert_eq!(small.after(&[step("smaller", 0.6)]), None);
    assert_eq!(small.after(&[step("other", 0.5)]), None);

    let trained_on = SavedOutputs {
        model_hash: "other".into(),
        ..pruned(low)
    };
    let path = write(folder.path(), &trained_on);
    let error = read().unwrap_err().to_string();
    assert!(
        error.ends_with("must be of the same files of small throughout, got others in small.smaller-0.5.safetensors"),
        "{error}"
    );
    std::fs::remove_file(path).unwrap();

    let other = SavedOutputs {
        model: "large".into(),
        items_hash: "other".into(),
        ..three_classes()
    };
    write(folder.path(), &other);
    let error = read().unwrap_err().to_string();
    assert!(
        error.ends_with("same items and classes throughout, got small beside large"),
        "{error}"
    );
}
