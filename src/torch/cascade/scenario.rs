//! A chosen candidate as a scenario: a system like any other, to be simulated, executed, swept and planned, beside its
//! models alone.

use std::fmt::Write as _;
use std::path::Path;

use tenantry_cascade::candidates::Candidate;
use tenantry_executor::cascade::{ClassifierConfig, described};
use tenantry_traces::outcome::{ProfiledModel, ProfiledModels};

use tenantry::failure::Failure;

/// The offered load, as a share of what the slowest model alone does.
const LOAD: f64 = 0.5;

/// By which a scenario of an earlier selection is known.
pub const FIRST_LINE: &str =
    "# Written by `tenantry cascade select`: the candidate that it chose, and its models alone.";

/// The scenario's text. `folder` is what `tenantry cascade profile` wrote.
pub fn text(candidate: &Candidate, profiled: &ProfiledModels, folder: &Path) -> Result<String, Failure> {
    let models: Vec<&ProfiledModel> = candidate
        .models
        .iter()
        .map(|name| profiled.find(name).expect("candidates are made of what was profiled"))
        .collect();
    let mut text = String::new();
    let mut line = |line: &str| writeln!(text, "{line}").expect("a text takes lines");
    line(FIRST_LINE);
    line("name: selected-cascade\nseed: 7\ncard: cpu\ncluster: { gpus: 1 }\nmodels:");
    let mut slowest_us = 0.0_f64;
    for model in &models {
        let whole = &model.whole;
        let config = ClassifierConfig::read(&whole.folder.join("config.json"), &whole.model).map_err(|error| {
            let profile = folder.join(whole.file_name());
            let must = "that of the model, where it was when it was profiled, from the working directory";
            Failure::BadInput(format!("{}: folder: must be {must}, got {error}", profile.display()))
        });
        line(&format!("  {}: {}", quoted(&whole.model), described(&config?.shape)));
        slowest_us = slowest_us.max(whole.mean_service_us());
    }
    line("tenants: { count: 1, popularity: identical }\nworkload:");
    let rate = two_digits(LOAD * 1e6 / slowest_us);
    line(&format!(
        "  arrivals: {{ twitter: {{ rate: {rate}/s }} }}    # a pattern's mean: half of what the slowest model does \
         one by one; these seconds may bring less"
    ));
    line("  lengths: { input: of-items }\n  stop: { after: 22s }\n  warm_up: 2s\noutcomes:");
    line(&format!(
        "  from: {{ profiled: {{ folder: {} }} }}",
        quoted(&folder.display().to_string())
    ));
    line("systems:");
    let classes = models[0].whole.outputs();
    let several = models.len() > 1;
    let mut system = |preset: &str, name: &str, stages: &[String], join: Option<String>| {
        line(&format!("  - preset: {preset}\n    name: {}", quoted(name)));
        line(&format!(
            "    classes: {classes}\n    batch: {{ size-or-timeout: {{ max_size: 8 }} }}"
        ));
        line("    cascade:\n      stages:");
        for stage in stages {
            line(&format!("        - {stage}"));
        }
        if let Some(join) = join {
            line(&format!("      join: {join}"));
        }
    };
    if let (true, Some(cut_off), Some(slope)) = (several, candidate.cut_off, candidate.slope) {
        let stages: Vec<String> = (0..models.len())
            .map(|level| {
                let name = quoted(&models[level].whole.model);
                let degree = candidate.prune.get(level).copied().flatten();
                let prune = degree.map_or(String::new(), |alpha| format!(", prune: {alpha}"));
                match level + 1 < models.len() {
                    true => format!("{{ model: {name}, reroute: {{ cut_off: {cut_off}, slope: {slope}{prune} }} }}"),
                    false => format!("{{ model: {name} }}"),
                }
            })
            .collect();
        let join = match &candidate.weights {
            Some(weights) => {
                let weights: Vec<String> = weights.iter().map(|weight| format!("{weight:.4}")).collect();
                format!("{{ average: [{}] }}", weights.join(", "))
            }
            None => "last".into(),
        };
        system("tabi", "selected", &stages, Some(join));
    }
    for model in &models {
        let name = &model.whole.model;
        system(
            "infaas-best",
            &format!("{name}-alone"),
            &[format!("{{ model: {} }}", quoted(name))],
            None,
        );
    }
    line("validate: { mean: 5%, p98: 8%, throughput: 3% }");
    Ok(text)
}

/// A load is a rough one; whole numbers would overload a model that takes seconds.
fn two_digits(rate: f64) -> f64 {
    format!("{rate:.1e}").parse().expect("it was written as a number")
}

/// A text as YAML takes it, whatever is in it.
fn quoted(text: &str) -> String {
    serde_json::json!(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_little_is_less_than_one() {
        assert_eq!(
            [1.0 / 3.0, 0.7142, 500.0, 487.3].map(two_digits),
            [0.33, 0.71, 500.0, 490.0]
        );
    }
}
