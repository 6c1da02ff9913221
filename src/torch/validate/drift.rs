//! Whether it is the profile that is not this machine's any more, and no policy.

use tenantry_reports::validation::TOKENS_PER_REQUEST;
use tenantry_reports::{Comparison, Validation, human};

/// A sentence on each system whose batches computed much faster or slower than their card says: then it is the profile
/// that is not this machine's any more, and no policy. Or, where the machine was `gauged`, what is left beside that.
pub fn drift_caveats(validation: &Validation, gauged: bool) -> Vec<String> {
    const DRIFT: f64 = 0.1;
    let drifted = validation.comparisons.iter().filter_map(|comparison| {
        let compute = comparison.stages.iter().find(|stage| stage.stage == "compute")?;
        let drift = compute.executed_ms / compute.simulated_ms - 1.0;
        (drift.abs() > DRIFT).then(|| {
            let why = match (other_work(comparison), gauged) {
                (Some(other), _) => format!("{other}, so that this says little of the machine's pace"),
                (None, false) => {
                    "the machine has drifted since it was measured, or was busy; `--gauge` tells by how much, and \
                     `tenantry profile` measures it again"
                        .to_owned()
                }
                (None, true) => "that is beside the machine's pace, which was gauged".to_owned(),
            };
            format!(
                "{}: a request's batch computed {:.1} ms and its profile says {:.1} ms, {:+.0} %: {why}.",
                comparison.system,
                compute.executed_ms,
                compute.simulated_ms,
                drift * 100.0
            )
        })
    });
    drifted.collect()
}

/// What a request's batch had to compute, where it was not what was simulated: then times are not of the same work.
fn other_work(comparison: &Comparison) -> Option<String> {
    const OTHER_PERCENT: f64 = 5.0;
    let differs = |name: &str| {
        let figure = comparison.figures.iter().find(|figure| figure.figure == name)?;
        let is_other = figure.error_percent.is_some_and(|error| error.abs() > OTHER_PERCENT);
        Some([figure.executed?.mean, figure.simulated?.mean].map(human::number)).filter(|_| is_other)
    };
    if let Some([executed, simulated]) = differs(TOKENS_PER_REQUEST) {
        return Some(format!(
            "requests were given {executed} tokens, and {simulated} when simulated (a sequence that may end by a token \
             ends by the model's when executed, and by `chance` when simulated)"
        ));
    }
    let [executed, simulated] = differs("batch_size_mean")?;
    Some(format!(
        "batches had {executed} requests, and {simulated} when simulated"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenantry_reports::{FigureError, Spread, StageError};

    use super::*;

    /// A system whose batches computed so long, and should have by the profile.
    fn computed(system: &str, executed_ms: f64, simulated_ms: f64) -> Comparison {
        let stage = |stage, simulated_ms: f64, executed_ms: f64| StageError {
            stage,
            simulated_ms,
            executed_ms,
            difference_ms: simulated_ms - executed_ms,
            points_of_mean_error: 0.0,
            share_of_difference: None,
        };
        Comparison {
            system: system.into(),
            parameters: BTreeMap::new(),
            device: Some("cpu".into()),
            simulated_repeats: 1,
            executed_repeats: 1,
            verdict: None,
            figures: Vec::new(),
            // A queue that is far off is no drift.
            stages: vec![stage("queue", 1.0, 9.0), stage("compute", simulated_ms, executed_ms)],
            lanes: Vec::new(),
        }
    }

    #[test]
    fn a_machine_that_computes_otherwise_than_its_profile_says_is_told() {
        let comparisons = vec![
            computed("steady", 10.9, 10.0),
            computed("slower", 11.5, 10.0),
            computed("faster", 8.5, 10.0),
        ];
        let validation = Validation {
            schema: 1,
            scenario: "drift".into(),
            stopped: false,
            verdict: None,
            comparisons,
        };
        let told = drift_caveats(&validation, false);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("slower: a request's batch computed 11.5 ms and its profile says 10.0 ms, +15 %"));
        assert!(told[0].contains("`--gauge` tells by how much"), "{}", told[0]);
        // Other batches say nothing of the machine.
        let mut validation = validation;
        let spread = |mean| Spread {
            mean,
            min: mean,
            max: mean,
        };
        validation.comparisons[1].figures.push(FigureError {
            figure: "batch_size_mean".into(),
            simulated: Some(spread(4.0)),
            executed: Some(spread(2.0)),
            error_percent: Some(100.0),
            limit_percent: None,
            worst_seed: None,
            verdict: None,
        });
        let told = drift_caveats(&validation, false);
        assert!(
            told[0].contains("batches had 2.00 requests, and 4.00 when simulated") && !told[0].contains("drifted"),
            "{}",
            told[0]
        );
        assert!(
            told[1].starts_with("faster") && told[1].contains("-15 %"),
            "{}",
            told[1]
        );
        validation.comparisons[1].figures.clear();
        let gauged = drift_caveats(&validation, true);
        assert!(
            gauged.iter().all(|caveat| caveat.contains("beside the machine's pace")),
            "{gauged:?}"
        );
    }
}
