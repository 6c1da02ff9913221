//! What the `adapters` library says of bottleneck adapters beside their tensors: what no tensor tells, and decides what
//! they compute.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenantry_profiles::of_checkpoint;

use crate::error::ExecutorError;

const CONFIG: &str = "adapter_config.json";

/// What is computed (HMI, Eq. 1): after attention, with ReLU, added to what the adapter reads, before the norm. What is
/// left out is so.
const COMPUTED: [(&str, Value); 10] = [
    ("mh_adapter", Value::Bool(true)),
    ("output_adapter", Value::Bool(false)),
    ("original_ln_before", Value::Bool(false)),
    ("original_ln_after", Value::Bool(true)),
    ("residual_before_ln", Value::Bool(true)),
    ("adapter_residual_before_ln", Value::Bool(false)),
    ("ln_before", Value::Bool(false)),
    ("ln_after", Value::Bool(false)),
    ("is_parallel", Value::Bool(false)),
    ("use_gating", Value::Bool(false)),
];

#[derive(Deserialize)]
struct Saved {
    config: Map<String, Value>,
}

/// That a tenant's adapters are computed as its `adapter_config.json`, in the folder or beside the file, says; where
/// there is none, nobody knows.
///
/// # Errors
/// A file that cannot be read, or another kind of adapter.
pub(super) fn check(tenant: &Path) -> Result<(), ExecutorError> {
    let path = of_checkpoint(tenant, CONFIG);
    if !path.exists() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&path).map_err(ExecutorError::file(&path))?;
    let wrong = |field: String, must: String, got: String| ExecutorError::checkpoint(&path, field, must, got);
    let saved: Saved = serde_json::from_str(&text).map_err(|error| {
        let must = "that of a bottleneck adapter of the adapters library".to_string();
        wrong("config".into(), must, error.to_string())
    })?;
    let others = [("non_linearity", json!("relu")), ("scaling", json!(1.0))];
    for (field, must) in COMPUTED.into_iter().chain(others) {
        let is_so = |got: &Value| *got == must || got.as_f64().is_some_and(|got| must.as_f64() == Some(got));
        if let Some(got) = saved.config.get(field).filter(|got| !is_so(got)) {
            return Err(wrong(format!("config.{field}"), must.to_string(), got.to_string()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adapters_that_are_computed_otherwise_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let said = |config: Value| {
            let saved = json!({ "config": config, "hidden_size": 128, "name": "mine", "version": "adapters.1.3.0" });
            std::fs::write(folder.path().join(CONFIG), saved.to_string()).unwrap();
            let of_folder = check(folder.path()).map_err(|error| error.to_string());
            let of_file = check(&folder.path().join("mine.safetensors")).map_err(|error| error.to_string());
            assert_eq!(of_folder, of_file);
            of_folder.map_err(|error| error.split_once("adapter_config.json: ").unwrap().1.to_string())
        };
        assert!(check(folder.path()).is_ok(), "nothing is said");
        // `DoubleSeqBnConfig(output_adapter=False, non_linearity="relu")`, as the library saves it.
        let computed = json!({
            "mh_adapter": true, "output_adapter": false, "non_linearity": "relu", "reduction_factor": 16, "scaling": 1.0, "is_parallel": false,
            "original_ln_before": false, "original_ln_after": true, "residual_before_ln": true, "adapter_residual_before_ln": false,
            "ln_before": false, "ln_after": false, "use_gating": false, "leave_out": [0, 1], "dropout": 0.0, "inv_adapter": null
        });
        assert_eq!(said(computed.clone()), Ok(()));
        for (field, got, message) in [
            (
                "non_linearity",
                json!("swish"),
                "config.non_linearity: must be \"relu\", got \"swish\"",
            ),
            ("scaling", json!(2), "config.scaling: must be 1.0, got 2"),
            (
                "original_ln_before",
                json!(true),
                "config.original_ln_before: must be false, got true",
            ),
            (
                "residual_before_ln",
                json!("post_add"),
                "config.residual_before_ln: must be true, got \"post_add\"",
            ),
        ] {
            let mut other = computed.clone();
            other[field] = got;
            assert_eq!(said(other), Err(message.to_string()));
        }
    }
}
