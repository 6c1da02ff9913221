//! What an interrupted run leaves beside the card, so that the same command goes on where it stopped.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Plan;
use super::schedule::State;
use crate::error::ExecutorError;
use crate::host::write_whole;

/// How many tables a card has that is added to.
const THERE: &str = "tables that are there";

/// An unfinished profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Partial {
    /// The command that goes on with it.
    command: String,
    /// What is measured and on what, by name; measurements of another plan are no part of this one.
    plan: BTreeMap<String, Value>,
    /// Runs that worked on it.
    pub runs: u32,
    /// Of the suite's time.
    pub spent_ns: u64,
    /// What one token of each model took when its grid was chosen: the same grid comes of it again.
    pub per_token_ns: BTreeMap<String, u64>,
    /// What was measured, and what is next.
    pub state: State,
}

impl Partial {
    /// After so many runs of a plan.
    pub fn new(plan: &Plan, runs: u32, spent: Duration, per_token_ns: BTreeMap<String, u64>, state: State) -> Partial {
        Partial {
            command: plan.command.clone(),
            plan: described(plan),
            runs,
            spent_ns: spent.as_nanos() as u64,
            per_token_ns,
            state,
        }
    }

    /// Reads what an earlier run of this plan left; nothing where there is no such file.
    pub fn read(path: &Path, plan: &Plan) -> Result<Option<Partial>, ExecutorError> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(ExecutorError::file(path))?,
        };
        let partial: Partial = serde_json::from_str(&text).map_err(|error| {
            let what = path.display().to_string();
            ExecutorError::input(what, "an unfinished profile, or removed", error)
        })?;
        for (name, value) in described(plan) {
            let theirs = match partial.plan.get(&name) {
                // A build of before did not say it; whether the points are the same is seen when they are gone on with.
                None if name == THERE => continue,
                theirs => theirs.unwrap_or(&Value::Null),
            };
            if *theirs != value {
                let what = format!("{}: {name}", path.display());
                let out = path.with_extension("");
                let advice = format!(
                    "{theirs} (finish it with `{} --out {}`, or remove the file)",
                    partial.command,
                    out.display()
                );
                return Err(ExecutorError::input(what, format!("{value}, as asked for"), advice));
            }
        }
        Ok(Some(partial))
    }

    /// Writes it, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), ExecutorError> {
        let text = serde_json::to_vec(self).expect("measurements are written in memory");
        write_whole(path, &text)
    }
}

/// All that decides which points there are and what they take.
fn described(plan: &Plan) -> BTreeMap<String, Value> {
    let device = &plan.description;
    // What is mended in a driver within a version makes no other device of it.
    let driver = device.driver.as_ref().map(|driver| driver.split('.').next().unwrap_or_default());
    [
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("device", json!([device.name, device.host.cpu, device.host.cores])),
        ("driver", json!([driver, device.libtorch])),
        ("models", json!(plan.models)),
        ("dtype", json!(plan.dtype.to_string())),
        ("classes", json!(plan.classes)),
        ("ops", json!(plan.ops)),
        (
            "served",
            json!([
                json!(plan.served.batch),
                json!(plan.served.tokens),
                json!(plan.served.steps)
            ]),
        ),
        (
            "texts",
            json!(plan.texts.iter().map(|texts| format!("{texts:?}")).collect::<Vec<_>>()),
        ),
        (THERE, json!(plan.there.names().len())),
        ("suite", json!(format!("{:?}", plan.suite).to_lowercase())),
        ("minutes", json!(plan.duration().as_secs_f64() / 60.0)),
        ("seed", json!(plan.seed)),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into()
}
