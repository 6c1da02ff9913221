//! `answers.parquet`: what each request read, and what its tenant's own parameters answered.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::requests::{Cells, rows, text, whole};
use crate::common::{folder, good, tenantry};
use parquet::record::{Field, ListAccessor};
use tenantry_executor::{Device, Encoder, Heads};
use tenantry_scenarios::Scenario;

/// The rows of `answers.parquet` and, by system and ticket, those of `requests.parquet`, of a scenario that is
/// executed.
fn executed(at: &Path, scenario: &str, set: &[&str]) -> (Vec<Cells>, BTreeMap<(String, u64), Cells>) {
    let mut args = vec![
        "execute",
        scenario,
        "--device",
        "cpu",
        "--requests",
        "--answers",
        "--out",
        "out",
    ];
    for set in set {
        args.extend(["--set", set]);
    }
    good(at, &args);
    let answers = rows(&at.join("out/answers.parquet"));
    let requests = { rows(&at.join("out/requests.parquet")).into_iter() }.map(|row| (who(&row), row));
    (answers, requests.collect())
}

fn who(row: &Cells) -> (String, u64) {
    (text(row, "system").unwrap().to_owned(), whole(row, "ticket").unwrap())
}

fn list(row: &Cells, column: &str) -> Option<Vec<i64>> {
    match &row[column] {
        Field::Null => None,
        Field::ListInternal(list) => Some((0..list.len()).map(|at| list.get_long(at).unwrap()).collect()),
        other => panic!("{column}: {other:?}"),
    }
}

/// Whoever has the weights computes the same from what is written down: each tenant's own head answered.
#[test]
fn answers_are_what_the_tenants_parameters_say_of_the_ids() {
    let folder = folder();
    let at = folder.path();
    let systems =
        "systems=[{preset: bert-shared}, {preset: bert-shared, name: alone, batch: {per-tenant: {max_size: 1}}}]";
    let (answers, requests) = executed(at, "s.yaml", &[systems]);
    assert_eq!(answers.len(), 600, "{}", requests.len());
    let scenario = Scenario::load(at.join("s.yaml").to_str().unwrap(), &[]).unwrap();
    let pool = &scenario.runs()[1].system.pool;
    let (seed, dtype) = (scenario.seed, pool.dtype);
    let encoder = Encoder::random(&pool.model, seed, dtype, Device::Cpu).unwrap();
    let heads = Heads::random(&pool.model, 20, pool.classes, seed, dtype, Device::Cpu).unwrap();
    let (mut same, mut by_tenant_0) = (0, 0);
    for row in &answers {
        let request = &requests[&who(row)];
        let ids = list(row, "input_ids").unwrap();
        let tenant = whole(row, "tenant").unwrap() as u32;
        assert_eq!(whole(request, "tenant"), Some(tenant.into()));
        assert_eq!(whole(request, "input_tokens"), Some(ids.len() as u64));
        assert_eq!(
            (&row["labels"], &row["tokens"], &row["stage"]),
            (&Field::Null, &Field::Null, &Field::Null)
        );
        let input = encoder.input(&[&ids], ids.len()).unwrap();
        let layers = 0..pool.model.layers as usize;
        let hidden = encoder.layers(encoder.embed(&input).unwrap(), layers, &input, None).unwrap();
        let class = |tenant| heads.forward(&hidden, &[tenant]).unwrap().argmax(-1, false).int64_value(&[0]) as u64;
        same += u64::from(Some(class(tenant)) == whole(row, "class"));
        by_tenant_0 += u64::from(Some(class(0)) == whole(row, "class"));
    }
    // Sums in another order may turn a near tie.
    assert!(same >= 598, "{same} of 600");
    assert!(by_tenant_0 < 500, "heads tell tenants apart: {by_tenant_0}");
}

/// Labels of tokens, tokens of decoders, and each of a cascade's models that was asked.
#[test]
fn every_kind_of_answer_is_written_down() {
    let folder = folder();
    let at = folder.path();
    let (answers, requests) = executed(
        at,
        "s.yaml",
        &["systems=[{preset: bert-shared, heads: tagging, classes: 5}]"],
    );
    assert_eq!(answers.len(), requests.len());
    for row in &answers {
        let labels = list(row, "labels").unwrap();
        assert_eq!(Some(labels.len() as u64), whole(&requests[&who(row)], "input_tokens"));
        assert!(labels.iter().all(|label| (0..5).contains(label)) && row["class"] == Field::Null);
    }

    let few = ["systems=[{preset: punica, dtype: f32, generation: {lora: {rank: 8, slots: 8}, max_batch: 8}}]"];
    let models = "models={backbone: tiny-llama}";
    let lengths =
        "workload.lengths={input: {fixed: 9}, output: {quantiles: [{share: 0, tokens: 1}, {share: 1, tokens: 9}]}}";
    let (answers, requests) = executed(at, "s.yaml", &[few[0], models, lengths, "workload.stop.requests=60"]);
    assert_eq!(answers.len(), 60);
    for row in &answers {
        let tokens = list(row, "tokens").unwrap();
        assert_eq!(
            Some(tokens.len() as u64),
            whole(&requests[&who(row)], "generated_tokens")
        );
        assert_eq!(list(row, "input_ids").unwrap().len(), 9);
    }

    let (answers, requests) = executed(at, "tabi/cpu", &["workload.stop.after=1s", "workload.warm_up=0s"]);
    let mut asked: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for row in &answers {
        let stage = whole(row, "stage").unwrap();
        asked.entry(who(row)).or_default().push(stage);
        let ids = list(row, "input_ids").map(|ids| ids.len());
        assert_eq!(ids, (stage == 0).then_some(26), "{row:?}");
    }
    assert_eq!(asked.len(), requests.len());
    for (who, stages) in &asked {
        let returned = whole(&requests[who], "stage").unwrap();
        assert_eq!(stages, &(0..=returned).collect::<Vec<_>>(), "{who:?}");
    }
    assert!(asked.values().any(|stages| stages.len() == 2));
}

/// A run that answers nothing has no such file, and an earlier one's is not taken for its own.
#[test]
fn answers_of_an_earlier_run_are_told() {
    let folder = folder();
    let at = folder.path();
    executed(at, "s.yaml", &["workload.stop.requests=20"]);
    let output = tenantry(at, &["simulate", "s.yaml", "--out", "out"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("answers.parquet") && said.contains("not of these runs"),
        "{said}"
    );
    let refused = tenantry(at, &["simulate", "s.yaml", "--answers"]);
    assert_eq!(refused.status.code(), Some(2));
}

/// What was simulated is worth something without what could not be executed.
#[test]
fn a_validation_whose_first_execution_fails_keeps_what_was_simulated() {
    let folder = folder();
    let at = folder.path();
    // A whole file, of other tensors than the model's: that is known only when it is read.
    std::fs::create_dir(at.join("weights")).unwrap();
    let header = r#"{"other":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &[0; 4]].concat();
    std::fs::write(at.join("weights/model.safetensors"), file).unwrap();
    let set = "systems=[{preset: bert-shared, files: {model: weights}}]";
    let output = tenantry(
        at,
        &["validate", "s.yaml", "--device", "cpu", "--out", "out", "--set", set],
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("what was run until then is in out"), "{said}");
    let summary = std::fs::read_to_string(at.join("out/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let machines: Vec<_> = { summary["runs"].as_array().unwrap().iter() }.map(|run| &run["machine"]).collect();
    assert_eq!(machines, ["virtual"]);
}
