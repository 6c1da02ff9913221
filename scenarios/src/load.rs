//! From a file and its overrides to a [`Scenario`]: parse, override, fill in presets, decode, sweep, resolve.
//!
//! The steps before decoding work on the untyped YAML tree, so that a file, `--set` and `sweep` reach the same keys by the same
//! paths and are told off in the same words.

use serde_yaml::Value;
use tenantry_traces::TraceError;
use tenantry_traces::spec::WorkloadSpec;

use crate::decode::decode;
use crate::error::{Problem, ScenarioError, ScenarioErrors, one_of};
use crate::lines::line_of;
use crate::path::{Path, Step};
use crate::presets;
use crate::raw::RawScenario;
use crate::resolve::{Resolved, resolve};
use crate::scenario::{Limits, Point, Scenario};
use crate::shipped;

/// What errors call overrides.
const SET: &str = "--set";

pub(crate) fn load(path_or_name: &str, overrides: &[String]) -> Result<Scenario, ScenarioErrors> {
    let (file, text) = shipped::find(path_or_name)?;
    from_yaml(&file, &text, overrides)
}

pub(crate) fn from_yaml(file: &str, text: &str, overrides: &[String]) -> Result<Scenario, ScenarioErrors> {
    let mut source = Source {
        file,
        text,
        set: Vec::new(),
    };
    let mut tree = source.tree(overrides)?;
    let mut problems = presets::fill_in(&mut tree);
    let raw = match decode::<RawScenario>(&tree) {
        Ok(raw) if problems.is_empty() => raw,
        Ok(_) => return Err(source.errors(problems)),
        Err(others) => {
            add_independent(&mut problems, others);
            return Err(source.errors(problems));
        }
    };
    let base = resolve(&raw).map_err(|problems| source.errors(problems))?;
    let slo = base.slo;
    let points = points(&tree, &raw, base).map_err(|problems| source.errors(problems))?;
    let mut checked: Vec<&WorkloadSpec> = Vec::new();
    for point in &points {
        let workload = &point.resolved.workload;
        if !checked.contains(&workload) {
            tenantry_traces::build(workload).map_err(|error| source.of_trace(error))?;
            checked.push(workload);
        }
    }
    Ok(Scenario {
        name: raw.name.0.clone(),
        seed: raw.seed,
        card: raw.card.0.clone(),
        slo,
        repeats: raw.repeats.0,
        validate: raw.validate.map(Limits::from),
        raw,
        points,
    })
}

/// Where the values of a tree come from.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
    /// Paths that overrides have set.
    set: Vec<Path>,
}

impl Source<'_> {
    /// The parsed text with the overrides applied.
    fn tree(&mut self, overrides: &[String]) -> Result<Value, ScenarioErrors> {
        let mut tree = serde_yaml::from_str(self.text).map_err(|error| self.syntax(&error))?;
        for text in overrides {
            let problem = |must: &str| Problem::new(Path::default(), must, text).locate(Path::default(), SET, None);
            let (path, value) = text.split_once('=').ok_or_else(|| problem("path=value"))?;
            let path = Path::parse(path).ok_or_else(|| problem("path=value with a path such as tenants.count"))?;
            let value = serde_yaml::from_str(value).map_err(|_| problem("path=value with a value in YAML"))?;
            path.set(&mut tree, value).map_err(|problem| {
                let path = problem.path();
                problem.locate(path, SET, None)
            })?;
            self.set.push(path);
        }
        Ok(tree)
    }

    fn syntax(&self, error: &serde_yaml::Error) -> ScenarioError {
        let line = error.location().map(|location| location.line() as u64);
        let message = error.to_string();
        // The error's text ends with the position, which has a place of its own.
        let message = message.split(" at line ").next().unwrap_or_default();
        Problem::new(Path::default(), "YAML", format!("an error: {message}")).locate(Path::default(), self.file, line)
    }

    fn errors(&self, problems: Vec<Problem>) -> ScenarioErrors {
        ScenarioErrors(problems.into_iter().map(|problem| self.error(problem)).collect())
    }

    fn error(&self, problem: Problem) -> ScenarioError {
        let path = problem.path();
        if self.set.iter().any(|set| path.starts_with(set)) {
            return problem.locate(path, SET, None);
        }
        let line = line_of(self.text, &path);
        problem.locate(path, self.file, line)
    }

    /// The workload's generators know best what they can't do; they name fields by their own names.
    fn of_trace(&self, error: TraceError) -> ScenarioError {
        let (file, line, field, message) = match error {
            TraceError::Spec { field, message } => (None, None, yaml_path(&field), message),
            TraceError::Line { path, line, message } => (Some(path), Some(line), String::new(), message),
            TraceError::File { path, message } => (Some(path), None, String::new(), message),
            TraceError::Io { path, source } => (
                Some(path),
                None,
                String::new(),
                format!("must be readable, got {source}"),
            ),
        };
        let in_parts = message
            .strip_prefix("must be ")
            .and_then(|message| message.split_once(", got "));
        let (must, got) = match in_parts {
            Some((must, got)) => (must, got.to_string()),
            None => ("usable as a trace", format!("an error: {message}")),
        };
        let path = Path::parse(&field).unwrap_or_default();
        let problem = Problem::new(path.clone(), must, got);
        match file {
            Some(file) => problem.locate(path, &file.display().to_string(), line),
            None => self.error(problem),
        }
    }
}

/// Adds to unknown presets the other problems that don't follow from them: a system without its preset lacks all its keys.
fn add_independent(unknown_presets: &mut Vec<Problem>, others: Vec<Problem>) {
    let systems: Vec<Path> = unknown_presets
        .iter()
        .filter_map(|problem| problem.path().parent())
        .collect();
    let follows = |problem: &Problem| systems.iter().any(|system| problem.path().starts_with(system));
    unknown_presets.extend(others.into_iter().filter(|problem| !follows(problem)));
}

/// The generators' name of a field in the words of the YAML.
fn yaml_path(field: &str) -> String {
    [
        ("rate_per_s", "rate"),
        ("periodic_per_tenant", "periodic-per-tenant"),
        ("thread_bursts", "burst"),
        ("closed_loop", "closed-loop"),
        ("].probability", "].share"),
    ]
    .iter()
    .fold(field.to_string(), |field, (theirs, ours)| field.replace(theirs, ours))
}

/// Keys that a run has. The others are the scenario's as a whole, and can't differ between its runs.
const SWEPT: [&str; 9] = [
    "seed", "card", "cluster", "models", "tenants", "workload", "systems", "slo", "jitter",
];

/// The sweep's grid, resolved: `base` alone where there is no sweep.
fn points(tree: &Value, raw: &RawScenario, base: Resolved) -> Result<Vec<Point>, Vec<Problem>> {
    let axes = axes(raw)?;
    if axes.is_empty() {
        return Ok(vec![Point {
            parameters: Vec::new(),
            resolved: base,
        }]);
    }
    let mut problems: Vec<Problem> = Vec::new();
    let mut points = Vec::new();
    for choice in grid(&axes) {
        match point(tree, &axes, &choice) {
            Ok(point) => points.push(point),
            // Each value is in many points, and would be wrong in all of them.
            Err(new) => new.into_iter().for_each(|problem| {
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }),
        }
    }
    if problems.is_empty() { Ok(points) } else { Err(problems) }
}

/// One swept key.
struct Axis<'a> {
    name: &'a str,
    path: Path,
    values: &'a [Value],
}

impl Axis<'_> {
    /// Where in the file value number `index` is.
    fn source(&self, index: usize) -> Path {
        Path::default().key("sweep").key(self.name).index(index)
    }
}

fn axes(raw: &RawScenario) -> Result<Vec<Axis<'_>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut axes = Vec::new();
    for (name, values) in &raw.sweep.0 {
        let key = Path::default().key("sweep").key(name);
        let path = Path::parse(name).unwrap_or_default();
        match path.steps() {
            [Step::Key(root), ..] if SWEPT.contains(&root.as_str()) => {}
            [Step::Key(root), ..] => {
                let must = format!("the path of a key in {}", one_of(SWEPT));
                problems.push(Problem::unknown_name(key.clone(), root, SWEPT).must(must));
            }
            _ => problems.push(Problem::new(key.clone(), "a path such as tenants.count", name)),
        }
        if values.is_empty() {
            problems.push(Problem::new(key, "a list of at least one value", "an empty list"));
        }
        axes.push(Axis { name, path, values });
    }
    if problems.is_empty() { Ok(axes) } else { Err(problems) }
}

/// Which value of each axis, for every point; the last axis changes fastest.
fn grid(axes: &[Axis<'_>]) -> Vec<Vec<usize>> {
    axes.iter().fold(vec![Vec::new()], |points, axis| {
        let longer =
            |point: Vec<usize>| (0..axis.values.len()).map(move |index| point.iter().copied().chain([index]).collect());
        points.into_iter().flat_map(longer).collect()
    })
}

fn point(tree: &Value, axes: &[Axis<'_>], choice: &[usize]) -> Result<Point, Vec<Problem>> {
    let mut tree = tree.clone();
    let mut parameters = Vec::new();
    for (axis, &index) in axes.iter().zip(choice) {
        let value = &axis.values[index];
        axis.path
            .set(&mut tree, value.clone())
            .map_err(|problem| vec![problem.moved(axis.source(index))])?;
        let json = serde_json::to_value(value).map_err(|_| {
            vec![Problem::new(
                axis.source(index),
                "a value without YAML tags and with texts as keys",
                "another",
            )]
        })?;
        parameters.push((axis.name.to_string(), json));
    }
    let resolved = decode::<RawScenario>(&tree)
        .and_then(|raw| resolve(&raw))
        .map_err(|problems| {
            let blame = |problem: Problem| {
                let swept = axes
                    .iter()
                    .zip(choice)
                    .find(|(axis, _)| problem.path().starts_with(&axis.path));
                match swept {
                    Some((axis, &index)) => {
                        let path = problem.path();
                        let below = &path.steps()[axis.path.steps().len()..];
                        problem.moved(axis.source(index).join(below))
                    }
                    // Right in itself, but not together with what is swept.
                    None => {
                        let together: Vec<String> = parameters
                            .iter()
                            .map(|(name, value)| format!("{name} is {value}"))
                            .collect();
                        problem.given(&together.join(" and "))
                    }
                }
            };
            problems.into_iter().map(blame).collect::<Vec<_>>()
        })?;
    Ok(Point { parameters, resolved })
}
