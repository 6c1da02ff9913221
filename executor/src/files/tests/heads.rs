//! Tenants' heads: by the names that each family's classifiers have in Hugging Face's library, and what comes of one
//! that cannot be read.

use super::*;

/// The classification layer after what stands before it, as Hugging Face's classifiers compute it.
#[test]
fn heads_compute_what_their_family_does() {
    let width = 128;
    let hidden = random(&[1, 3, width], 1.0);
    let first = hidden.get(0).get(0);
    let [tanh, relu]: [fn(&Tensor) -> Tensor; 2] = [Tensor::tanh, Tensor::relu];
    for (family, dense, output, activation) in [
        ("bert", Some("bert.pooler.dense"), "classifier", tanh),
        ("distilbert", Some("pre_classifier"), "classifier", relu),
        ("roberta", Some("classifier.dense"), "classifier.out_proj", tanh),
        ("one without", None, "classifier", relu),
    ] {
        let layer = |name: &str, outputs: i64| {
            let (weight, bias) = (random(&[outputs, width], 0.3), random(&[outputs], 1.0));
            [(format!("{name}.weight"), weight), (format!("{name}.bias"), bias)]
        };
        let applied = |[(_, weight), (_, bias)]: &[(String, Tensor); 2], x: &Tensor| weight.mv(x) + bias;
        let output = layer(output, CLASSES.into());
        let dense = dense.map(|name| layer(name, width));
        let pooled = match &dense {
            Some(dense) => activation(&applied(dense, &first)),
            None => first.shallow_clone(),
        };
        let expected = applied(&output, &pooled);
        let mut tensors = Vec::from(output);
        tensors.extend(dense.into_iter().flatten());
        if family == "roberta" {
            // Its encoder may have one, which its classifier does not use.
            tensors.extend(layer("roberta.pooler.dense", width));
        }

        let folder = tempfile::tempdir().unwrap();
        let paths = ["0", "1"].map(|name| folder.path().join(name));
        // Of two tenants' files one has no pooler.
        write(&paths[0], &tensors);
        write(&paths[1], &layer("classifier", CLASSES.into()));
        let heads = Heads::read(&model(), 3, CLASSIFICATION, &paths, DType::F32, Device::Cpu).unwrap();
        for tenant in [0, 2] {
            let logits = heads.share().forward(&hidden, &[tenant]).unwrap().get(0);
            let difference = (logits - &expected).abs().max().double_value(&[]);
            assert!(difference < 1e-4, "{family}, tenant {tenant}: off by {difference}");
        }
    }
}

/// As Hugging Face's `BertForTokenClassification`, which has none.
#[test]
fn heads_that_label_tokens_have_no_pooler() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let mut tensors = write_tenant(&path);
    tensors.push(("bert.pooler.dense.weight".into(), random(&[128, 128], 1.0)));
    tensors.push(("bert.pooler.dense.bias".into(), random(&[128], 1.0)));
    write(&path, &tensors);
    let pooler = |task| read_head(&path, 128, CLASSES, task).unwrap().pooler;
    assert!(pooler(HeadTask::Tagging).is_none() && pooler(HeadTask::Classification).is_some());
}

/// One tenant's file has no head that fits: its requests alone fail, whatever else tenants have of their own.
#[test]
fn only_tenants_whose_head_cannot_be_read_fail() {
    for tenant_state in [system().pool.tenant_state, TenantState::Head, TenantState::Model] {
        let mut system = system();
        system.pool.tenant_state = tenant_state;
        system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
        if tenant_state == TenantState::Model {
            // A batch is of one model.
            system.pool.batch = BatchSpec::PerTenant { max_size: 8 };
        }
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let paths = files.of_tenants().unwrap().unwrap();
        if tenant_state == TenantState::Model {
            (0..).zip(&paths).for_each(|(seed, path)| write_whole(path, seed));
        }
        let expected = executed_by(&system, &folder, &files).unwrap().answers;
        without(&paths[1], "classifier.bias");
        let done = executed_by(&system, &folder, &files).unwrap();
        let is_of_it = |ticket: u64| request(ticket).tenant as usize % paths.len() == 1;
        let failing = (0..REQUESTS).filter(|&ticket| is_of_it(ticket)).count() as u64;
        let failed = done.record.failed.get(&FailureReason::LoadFailed);
        assert_eq!(failed, Some(&failing), "{tenant_state:?}");
        assert_eq!(done.record.counts.served, REQUESTS - failing);
        let path = paths[1].display();
        let reason = format!("{path}: classifier.bias: must be a tensor [4], got no such tensor");
        assert_eq!(done.refused, [reason]);
        let of_others = |answers: &[Answer]| -> Vec<Answer> {
            let others = answers.iter().filter(|answer| !is_of_it(answer.ticket));
            others.copied().collect()
        };
        assert_eq!(of_others(&done.answers), of_others(&expected), "{tenant_state:?}");

        without(&paths[0], "classifier.weight");
        without(&paths[2], "classifier.weight");
        let error = executed_by(&system, &folder, &files);
        assert!(error.is_err(), "no tenant is left to serve");
    }
}

/// A whole model with its head, in a tenant's file.
fn write_whole(path: &Path, seed: u64) {
    let encoder = Encoder::random(&model(), seed, DType::F32, Device::Cpu).unwrap();
    write_checkpoint(path, &model(), encoder.parameters()).unwrap();
    let mut tensors = tensors_of(path);
    tensors.push(("classifier.weight".into(), random(&[CLASSES.into(), 128], 1.0)));
    tensors.push(("classifier.bias".into(), random(&[CLASSES.into()], 1.0)));
    write(path, &tensors);
}

fn tensors_of(path: &Path) -> Vec<(String, Tensor)> {
    let bytes = fs::read(path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = |(name, view): (&str, TensorView<'_>)| (name.to_string(), numbers(path, name, &view).unwrap());
    stored.iter().map(tensor).collect()
}

fn without(path: &Path, name: &str) {
    let mut tensors = tensors_of(path);
    tensors.retain(|(known, _)| known != name);
    write(path, &tensors);
}
