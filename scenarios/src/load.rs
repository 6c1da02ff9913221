//! From a file and its overrides to a [`Scenario`]: parse, override, fill in presets, decode, sweep, resolve.
//!
//! The steps before decoding work on the untyped YAML tree, so that a file, `--set` and `sweep` reach the same keys by
//! the same paths and are told off in the same words.

use serde_yaml::Value;
use tenantry_core::answers::{self, Answers, AnswersError};
use tenantry_core::spec::RouteSpec;
use tenantry_profiles::near_miss;
use tenantry_traces::TraceError;
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::spec::WorkloadSpec;

use crate::choices;
use crate::decode::decode;
use crate::distinct::Distinct;
use crate::error::{Problem, ScenarioError, ScenarioErrors};
use crate::lines::second_line_of;
use crate::origin::Origin;
use crate::path::Path;
use crate::plan;
use crate::presets;
use crate::raw::{RawScenario, RawSweep};
use crate::resolve::{resolve, write_domain_tables};
use crate::scenario::{Limits, Scenario};
use crate::shipped;
use crate::sweep::points;

/// What errors call overrides by path.
const SET: &str = "--set";

/// A value that takes the place of a scenario's own before anything is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The option of the command line that errors name.
    option: &'static str,
    /// `path=value`, the value in YAML.
    assignment: String,
    /// What the user has typed: the whole assignment, or only the value.
    typed: usize,
}

impl Override {
    /// What `--set` has: `path=value`.
    pub fn set(assignment: &str) -> Override {
        Override {
            option: SET,
            assignment: assignment.to_owned(),
            typed: 0,
        }
    }

    /// What an option of its own has: the value of `path`.
    pub fn option(option: &'static str, path: &str, value: &str) -> Override {
        Override {
            option,
            assignment: format!("{path}={value}"),
            typed: path.len() + 1,
        }
    }

    /// The path and the value.
    fn parse(&self) -> Result<(Path, Value), ScenarioErrors> {
        let form = if self.typed == 0 { "path=value" } else { "a value" };
        let problem = |must: &str| {
            let problem = Problem::new(Path::default(), format!("{form}{must}"), &self.assignment[self.typed..]);
            problem.locate(Path::default(), self.option, None)
        };
        let (path, value) = self.assignment.split_once('=').ok_or_else(|| problem(""))?;
        let in_yaml = if self.typed == 0 {
            " with a value in YAML"
        } else {
            " in YAML"
        };
        let value: Value = serde_yaml::from_str(value).map_err(|error| {
            let error = error.to_string();
            // Where it is in the value nobody asks.
            let what = error.split(" at line ").next().unwrap_or_default();
            if let (Some((within, must, got)), Some(path)) = (meant(what), Path::parse(path)) {
                return Problem::new(Path::default(), must, got).locate(path.join(within.steps()), self.option, None);
            }
            problem(&format!("{in_yaml} ({what})"))
        })?;
        let to_one = !value.is_sequence() && !value.is_mapping();
        let path = Path::parse_set(path, to_one).ok_or_else(|| problem(" with a path such as tenants.count"))?;
        Ok((path, value))
    }

    /// The sweep's values come after all overrides: one of the same key would change nothing.
    fn check_not_swept(&self, sweep: &RawSweep) -> Result<(), ScenarioErrors> {
        let (path, _) = self.parse()?;
        let key = path.to_string();
        let is_within = |swept: &str| {
            let rest = key.strip_prefix(swept);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // The sweep itself has no values of its own key: what is wrong with that is said of its keys.
        let mut swept = sweep.0.iter().filter(|(swept, _)| swept != "sweep");
        let Some((swept, _)) = swept.find(|(swept, _)| is_within(swept)) else {
            return Ok(());
        };
        let must = format!("left out where sweep.{swept} says which values it has");
        let problem = Problem::new(Path::default(), must, &self.assignment[self.typed..]);
        Err(problem.locate(Path::default(), self.option, None).into())
    }
}

pub(crate) fn load(path_or_name: &str, overrides: &[Override]) -> Result<Scenario, ScenarioErrors> {
    let (file, text) = shipped::find(path_or_name)?;
    from_yaml(&file, &text, overrides)
}

pub(crate) fn from_yaml(file: &str, text: &str, overrides: &[Override]) -> Result<Scenario, ScenarioErrors> {
    let mut source = Origin {
        file: file.to_string(),
        // Some editors begin a file with a byte order mark.
        text: text.trim_start_matches('\u{feff}').to_string(),
        set: Vec::new(),
        tree: Value::Null,
        presets: Vec::new(),
    };
    let mut tree = source.tree(overrides)?;
    source.tree.clone_from(&tree);
    let (presets, mut problems) = presets::fill_in(&mut tree);
    source.presets = presets;
    let mut raw = match decode::<RawScenario>(&tree) {
        Ok(raw) if problems.is_empty() => raw,
        Ok(_) => return Err(source.errors(problems)),
        Err(others) => {
            add_independent(&mut problems, others);
            return Err(source.errors(problems));
        }
    };
    for one in overrides {
        one.check_not_swept(&raw.sweep)?;
    }
    let base = resolve(&raw).map_err(|problems| source.errors(problems))?;
    let slo = base.slo;
    let plan = plan::resolve(&raw).map_err(|problems| source.errors(problems))?;
    choices::check(&raw).map_err(|problems| source.errors(problems))?;
    let points = points(&tree, &raw, base).map_err(|problems| source.errors(problems))?;
    let mut checked: Distinct<&WorkloadSpec> = Distinct::default();
    for point in &points {
        let workload = &point.resolved.workload;
        if checked.insert(workload) {
            tenantry_traces::build(workload).map_err(|error| source.of_trace(error))?;
        }
    }
    let mut checked: Distinct<(&AnswersSpec, &RouteSpec)> = Distinct::default();
    for point in &points {
        let Some(answers) = &point.resolved.answers else {
            continue;
        };
        for (index, system) in point.resolved.systems.iter().enumerate() {
            let Some(route) = &system.route else { continue };
            if checked.insert((answers, route)) {
                Answers::new(answers, route, raw.seed).map_err(|error| source.of_answers(error, index))?;
            }
        }
    }
    // What a sweep or a plan's choices change of a table changes its size.
    if raw.sweep.is_empty() && raw.plan.is_none() {
        write_domain_tables(&mut raw, &points[0].resolved);
    }
    Ok(Scenario {
        name: raw.name.0.clone(),
        file: source.file.clone(),
        seed: raw.seed,
        card: raw.card.0.clone(),
        slo,
        prices: raw.prices.iter().map(|(card, price)| (card.clone(), price.0)).collect(),
        repeats: raw.repeats.0,
        validate: raw.validate.map(Limits::from),
        plan,
        raw,
        points,
        origin: source,
    })
}

/// What a key must be.
const ONCE: &str = "given once";

/// What the parser says of YAML whose form is right: of what, what it must be, what was got.
fn meant(message: &str) -> Option<(Path, &'static str, String)> {
    let path = |text: &str| match text.trim_end_matches(": ").trim_start_matches('.') {
        "" => Some(Path::default()),
        // Of a list that is no key's.
        text if text.starts_with('[') => {
            let below = Path::parse(&format!("list{text}"))?;
            Some(Path::default().join(&below.steps()[1..]))
        }
        text => Path::parse(text),
    };
    if let Some((around, key)) = message.split_once("duplicate entry with key ") {
        let key = path(around)?.key(key.trim_matches('"'));
        return Some((key, ONCE, "it a second time".to_owned()));
    }
    let (of, rest) = message.split_once("invalid type: integer `")?;
    let (number, _) = rest.split_once('`')?;
    Some((path(of)?, "a number of at most 64 bits", number.to_owned()))
}

impl Origin {
    /// The parsed text with the overrides applied.
    fn tree(&mut self, overrides: &[Override]) -> Result<Value, ScenarioErrors> {
        let mut tree: Value = serde_yaml::from_str(&self.text).map_err(|error| self.syntax(&error))?;
        tree.apply_merge().map_err(|error| self.syntax(&error))?;
        for change in overrides {
            let (path, value) = change.parse()?;
            presets::unfold_stages(&mut tree, &path);
            path.set(&mut tree, value).map_err(|problem| {
                let path = problem.path();
                problem.locate(path, change.option, None)
            })?;
            self.set.push((path, change.option));
        }
        Ok(tree)
    }

    fn syntax(&self, error: &serde_yaml::Error) -> ScenarioError {
        let line = error.location().map(|location| location.line() as u64);
        let message = error.to_string();
        // The error's text ends with the position, which has a place of its own.
        let message = message.split(" at line ").next().unwrap_or_default();
        if let Some((path, must, got)) = meant(message) {
            let line = match must {
                ONCE => second_line_of(&self.text, &path).or(line),
                _ => line,
            };
            return Problem::new(Path::default(), must, got).locate(path, &self.file, line);
        }
        Problem::new(Path::default(), "YAML", format!("an error: {message}")).locate(Path::default(), &self.file, line)
    }

    /// What a system's stages are asked that nobody knows of their models.
    fn of_answers(&self, error: AnswersError, system: usize) -> ScenarioError {
        let root = Path::default();
        let cascade = root.key("systems").index(system).key("cascade");
        let stage = |stage: usize| cascade.key("stages").index(stage);
        self.error(match error {
            AnswersError::Outcomes(error) => return self.of_outcomes(error),
            AnswersError::Model { index, model, known } => {
                Problem::unknown_name(stage(index).key("model"), &model, known.iter().map(String::as_str))
            }
            AnswersError::Pruning { index, alpha, known } => {
                let must = format!(
                    "at or between degrees whose `loss` is in `outcomes.pruned` ({}), since nobody knows what others \
                     cost",
                    numbers(&known)
                );
                Problem::new(stage(index).key("reroute").key("prune"), must, alpha)
            }
            AnswersError::Average { weights, known } => {
                let known: Vec<String> = known.iter().map(|weights| format!("[{}]", numbers(weights))).collect();
                let must = format!(
                    "weights whose `gain` is in `outcomes.averages` ({}), since a generator has no probabilities to \
                     average",
                    if known.is_empty() {
                        "none".into()
                    } else {
                        known.join(", ")
                    }
                );
                Problem::new(
                    cascade.key("join").key("average"),
                    must,
                    format!("[{}]", numbers(&weights)),
                )
            }
            AnswersError::Pruned {
                by,
                model,
                steps,
                route,
                known,
                ..
            } => {
                let (last, before) = steps.split_last().expect("whole items are always known");
                let after = match before {
                    [] => String::new(),
                    before => format!(" after {}", answers::described(before)),
                };
                let known = answers::described_all(&known);
                let must = format!("a degree at which {model} was profiled{after} ({known})");
                let hint = format!("{}; `tenantry cascade profile --route {route}` measures it", last.alpha);
                Problem::new(stage(by).key("reroute").key("prune"), must, hint)
            }
            AnswersError::Classes { model, must, got, .. } => {
                let must = format!("{must}, as {model} has");
                Problem::new(root.key("systems").index(system).key("classes"), must, got)
            }
            AnswersError::Unsure {
                model, classes, least, ..
            } => {
                let must = format!(
                    "more, since {model} is sure of an answer by {least} only and the likeliest of {classes} classes \
                     has more than that, or `cascade.join` last or a vote"
                );
                Problem::new(root.key("systems").index(system).key("classes"), must, classes)
            }
            AnswersError::Answers { classes, wrong, .. } => {
                let must = format!(
                    "{} at least, since the table's models give {wrong} wrong answers to one item that are spelt \
                     differently, or `cascade.join` last",
                    wrong + 1
                );
                Problem::new(root.key("systems").index(system).key("classes"), must, classes)
            }
            AnswersError::Chances => Problem::new(
                cascade.key("join"),
                "last or a vote, since a chance of being right is no probability of the answer",
                "average",
            ),
            AnswersError::Small { index, model } => Problem::new(
                stage(index).key("model"),
                "another where words are pruned before it or answers averaged, since of a generator's small model \
                 nothing is known but what it is alone",
                model,
            ),
            AnswersError::Vote => Problem::new(
                cascade.key("join"),
                "last or average, since these models answer numbers",
                "vote",
            ),
            AnswersError::None { .. } => Problem::new(root.key("outcomes"), "given", "nothing"),
        })
    }

    /// A table of outcomes that is not what it must be as a whole; the rest as of a trace.
    fn of_outcomes(&self, error: TraceError) -> ScenarioError {
        let (path, must, got, meant) = match &error {
            TraceError::NoColumn { path, name, columns } => {
                let meant = near_miss(name, columns.iter().map(String::as_str));
                (path, format!("the column {name}"), columns.join(", "), meant)
            }
            TraceError::Lacks { path, what, got } => (path, what.clone(), got.clone(), None),
            _ => return self.of_trace(error),
        };
        match self.naming(path) {
            Some(key) => {
                let problem = Problem::new(
                    key,
                    format!("a table with {must}"),
                    format!("{}: {got}", path.display()),
                );
                self.error(problem.suggest(meant))
            }
            None => self.of_trace(error),
        }
    }

    /// The workload's generators know best what they can't do; they name fields by their own names.
    fn of_trace(&self, error: TraceError) -> ScenarioError {
        if let TraceError::Io { path, source, .. } = &error
            && let Some(key) = self.naming(path)
        {
            let must = "a path that can be read, relative to the folder you are in";
            return self.error(Problem::new(key, must, format!("{}: {source}", path.display())));
        }
        let (file, line, field, message) = match error {
            TraceError::Spec { field, message } => (None, None, yaml_path(&field), message),
            TraceError::Line { path, line, message } => (Some(path), Some(line), String::new(), message),
            TraceError::File { path, message } => (Some(path), None, String::new(), message),
            TraceError::Lacks { path, what, got } => {
                let message = format!("must have {what}, got {got}");
                (Some(path), None, String::new(), message)
            }
            TraceError::NoColumn { path, name, columns } => {
                let message = format!("must have a column `{name}`, got {}", columns.join(","));
                (Some(path), None, String::new(), message)
            }
            TraceError::Io { path, access, source } => (
                Some(path),
                None,
                String::new(),
                format!("must be {access}, got: {source}"),
            ),
        };
        // Readers name the column or the part of a file that is at fault before they say what it must be.
        let (part, rest) = message.split_once(": must be ").unwrap_or_else(|| {
            let rest = message.strip_prefix("must be ");
            ("", rest.unwrap_or_default())
        });
        let (part, must, got) = match rest.split_once(", got ") {
            Some((must, got)) if !part.contains(' ') => (part, must, got.to_string()),
            _ => ("", "usable as a trace", format!("an error: {message}")),
        };
        let field = if field.is_empty() { part.to_string() } else { field };
        let path = Path::parse(&field).unwrap_or_default();
        let problem = Problem::new(path.clone(), must, got);
        match file {
            Some(file) => problem.locate(path, &file.display().to_string(), line),
            None => self.error(problem),
        }
    }
}

/// `0.5, 0.7`, or `none`.
fn numbers(numbers: &[f64]) -> String {
    let texts: Vec<String> = numbers.iter().map(f64::to_string).collect();
    if texts.is_empty() {
        "none".into()
    } else {
        texts.join(", ")
    }
}

/// Adds to unknown presets the other problems that don't follow from them: a system without its preset lacks all its
/// keys.
fn add_independent(unknown_presets: &mut Vec<Problem>, others: Vec<Problem>) {
    let systems: Vec<Path> = unknown_presets.iter().filter_map(|problem| problem.path().parent()).collect();
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
