//! The files that a scenario names: what its runs depend on beside its own text and the cards.
//!
//! Every variant is listed, so that whoever adds one is asked whether it names a file.

use std::path::PathBuf;

use crate::raw::{
    Files, RawArrivals, RawJoint, RawLength, RawManagement, RawOutcomeSource, RawPopularity, RawRecordedLengths,
    RawScenario,
};

/// All of them, in the order of the sections. Some are folders: those of profiled models and of checkpoints.
pub(crate) fn files(raw: &mut RawScenario) -> Vec<&mut PathBuf> {
    let mut files = Vec::new();
    popularity(&mut raw.tenants.popularity, &mut files);
    arrivals(&mut raw.workload.arrivals, &mut files);
    let lengths = &mut raw.workload.lengths;
    for one in [&mut lengths.input, &mut lengths.output].into_iter().flatten() {
        length(one, &mut files);
    }
    match &mut lengths.joint {
        Some(RawJoint::Trace(of)) => recorded(of, &mut files),
        Some(RawJoint::Sharegpt | RawJoint::Bins { .. } | RawJoint::OfArrivals) | None => {}
    }
    match &mut raw.workload.management {
        Some(RawManagement::Trace(trace)) => files.push(&mut trace.path),
        Some(RawManagement::Rates(_) | RawManagement::List(_)) | None => {}
    }
    match raw.outcomes.as_mut().map(|outcomes| &mut outcomes.from) {
        Some(RawOutcomeSource::Table { file, .. } | RawOutcomeSource::Difficulty { file, .. }) => files.push(file),
        Some(RawOutcomeSource::Profiled { folder }) => files.push(folder),
        Some(RawOutcomeSource::Generated { .. }) | None => {}
    }
    for system in &mut raw.systems {
        let Files {
            model,
            models,
            domains,
            tenants,
            corpus,
        } = &mut system.files;
        let checkpoints = model.iter_mut().chain(models.values_mut());
        files.extend(checkpoints.chain(domains).chain(tenants).chain(corpus));
        let tasks = system.tasks.iter_mut().flat_map(|tasks| &mut tasks.registrations);
        files.extend(tasks.filter_map(|task| task.file.as_mut()));
    }
    files
}

/// Those that simulations read. Weights are for executions, but for tasks' files, which say kinds and sizes; of what
/// lies beside checkpoints, the tokenizer counts texts.
pub(crate) fn inputs(raw: &RawScenario) -> Vec<PathBuf> {
    let mut raw = raw.clone();
    let mut tokenizers = Vec::new();
    for system in &mut raw.systems {
        tokenizers.extend(system.files.tokenizer());
        system.files = Files {
            corpus: std::mem::take(&mut system.files.corpus),
            ..Files::default()
        };
    }
    let named = files(&mut raw).into_iter().map(|file| file.clone());
    named.chain(tokenizers).collect()
}

fn popularity<'a>(popularity: &'a mut RawPopularity, files: &mut Vec<&'a mut PathBuf>) {
    match popularity {
        RawPopularity::File(path) => files.push(path),
        RawPopularity::Distinct
        | RawPopularity::Uniform
        | RawPopularity::UniformSqrt
        | RawPopularity::Identical
        | RawPopularity::Zipf(_)
        | RawPopularity::Skewed(_)
        | RawPopularity::Weights(_)
        | RawPopularity::AzureFunctions
        | RawPopularity::OfArrivals => {}
    }
}

fn arrivals<'a>(of: &'a mut RawArrivals, files: &mut Vec<&'a mut PathBuf>) {
    match of {
        RawArrivals::Counts(counts) => files.push(&mut counts.path),
        RawArrivals::Trace(trace) => files.push(&mut trace.path),
        RawArrivals::Activity(activity) => files.push(&mut activity.path),
        RawArrivals::Shape(shape) => files.push(&mut shape.path),
        RawArrivals::Superpose(several) => several.iter_mut().for_each(|one| arrivals(one, files)),
        RawArrivals::Scaled { arrivals: scaled, .. } => arrivals(scaled, files),
        RawArrivals::Cut(part) => arrivals(&mut part.arrivals, files),
        RawArrivals::Poisson { .. }
        | RawArrivals::Constant { .. }
        | RawArrivals::Gamma { .. }
        | RawArrivals::Mmpp { .. }
        | RawArrivals::Ramp { .. }
        | RawArrivals::PeriodicPerTenant { .. }
        | RawArrivals::Burst { .. }
        | RawArrivals::ClosedLoop { .. }
        | RawArrivals::Twitter { .. }
        | RawArrivals::Regimes { .. } => {}
    }
}

fn length<'a>(of: &'a mut RawLength, files: &mut Vec<&'a mut PathBuf>) {
    match of {
        RawLength::Trace(of) => recorded(of, files),
        RawLength::Drifting { from, to, .. } => {
            length(from, files);
            length(to, files);
        }
        RawLength::Fixed(_)
        | RawLength::Normal { .. }
        | RawLength::Lognormal { .. }
        | RawLength::Empirical(_)
        | RawLength::Twitter { .. }
        | RawLength::Quantiles(_)
        | RawLength::Sharegpt
        | RawLength::OfArrivals
        | RawLength::OfItems => {}
    }
}

fn recorded<'a>(of: &'a mut RawRecordedLengths, files: &mut Vec<&'a mut PathBuf>) {
    files.push(&mut of.path);
    files.extend(&mut of.tokenizer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;

    #[test]
    fn every_kind_of_file_is_found() {
        let found = |popularity: &str, arrivals: &str, lengths: &str, more: &str| {
            let text = format!(
                "{{name: n, models: {{backbone: tiny}}, tenants: {{count: 2, popularity: {popularity}}}, \
                 workload: {{arrivals: {arrivals}, lengths: {lengths}{more}}}, \
                 systems: [{{name: s, tenant_state: model}}]}}"
            );
            let tree = serde_yaml::from_str(&text).unwrap();
            let mut raw: RawScenario = decode(&tree).unwrap_or_else(|problems| panic!("{problems:?}: {text}"));
            assert_eq!(
                files(&mut raw).into_iter().map(|file| file.clone()).collect::<Vec<_>>(),
                inputs(&raw)
            );
            let names: Vec<String> = files(&mut raw).iter().map(|file| file.display().to_string()).collect();
            names.join(" ")
        };
        let (one, fixed) = ("{poisson: {rate: 1/s}}", "{input: {fixed: 3}}");
        for (arrivals, files) in [
            (one, ""),
            ("{trace: {path: a}}", "a"),
            ("{counts: {path: a}}", "a"),
            ("{activity: {path: a}}", "a"),
            ("{shape: {path: a, rate: 1/s}}", "a"),
            ("{scaled: {factor: 2, arrivals: {trace: {path: a}}}}", "a"),
            ("{cut: {arrivals: {trace: {path: a}}}}", "a"),
            (
                "{superpose: [{trace: {path: a}}, {poisson: {rate: 1/s}}, {counts: {path: b}}]}",
                "a b",
            ),
        ] {
            assert_eq!(found("uniform", arrivals, fixed, ""), files, "{arrivals}");
        }
        for (lengths, files) in [
            (
                "{input: {trace: {path: a, tokenizer: b}}, output: {trace: {path: c}}}",
                "a b c",
            ),
            (
                "{input: {drifting: {from: {fixed: 1}, to: {trace: {path: a}}, requests: 9}}}",
                "a",
            ),
            ("{joint: {trace: {path: a}}}", "a"),
        ] {
            assert_eq!(found("uniform", one, lengths, ""), files, "{lengths}");
        }
        assert_eq!(
            found("{file: a}", one, fixed, ", management: {trace: {path: b}}"),
            "a b"
        );
        for (outcomes, file) in [
            ("{table: {file: a, models: {m: m}}}", "a"),
            ("{profiled: {folder: a}}", "a"),
        ] {
            let outcomes = format!("}}, outcomes: {{from: {outcomes}");
            assert_eq!(found("uniform", one, fixed, &outcomes), file, "{outcomes}");
        }
    }

    #[test]
    fn weights_have_places_and_are_no_inputs_of_simulations() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("tokenizer.json"), "{}").unwrap();
        let model = place.path().display();
        let text = format!(
            "{{name: n, models: {{backbone: tiny}}, tenants: {{count: 2}}, workload: {{arrivals: {{poisson: {{rate: \
             1/s}}}}, lengths: {{input: {{fixed: 3}}}}}}, systems: [{{name: s, tenant_state: head, files: {{model: \
             {model}, models: {{f: f}}, domains: [b], tenants: c, corpus: [d, e]}}, tasks: {{engine: {{shared: \
             {{batching: coordinated}}}}, max_batch: 8, max_tokens: 8, planning: {{pool: {{size: 4}}}}, \
             registrations: [{{task: 0, file: t}}, {{task: 1, kind: lora}}]}}}}]}}"
        );
        let mut raw: RawScenario = decode(&serde_yaml::from_str(&text).unwrap()).unwrap();
        assert_eq!(files(&mut raw).len(), 7);
        let read: Vec<String> = inputs(&raw).iter().map(|file| file.display().to_string()).collect();
        assert_eq!(read, ["d", "e", "t", &format!("{model}/tokenizer.json")]);
    }
}
