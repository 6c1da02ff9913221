//! The text that a scenario was read from, so that whoever finds something wrong with it can say where.

use std::path::Path as FilePath;

use serde_yaml::Value;

use crate::error::{Problem, ScenarioError, ScenarioErrors};
use crate::lines::line_of;
use crate::path::{Path, Step};
use crate::presets::OwnPreset;

/// A file's text, and what options of the command line changed of it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// As errors call the file.
    pub file: String,
    pub text: String,
    /// Paths that overrides have set, and by which option.
    pub set: Vec<(Path, &'static str)>,
    /// What both say together.
    pub tree: Value,
    /// Where keys came from that neither says.
    pub presets: Vec<OwnPreset>,
}

/// Things wrong with one file that are told, at most: more would not help to mend it, and each takes a look through its
/// text.
const ERRORS_MAX: usize = 20;

/// Where a scenario was read is no part of what it asks.
impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Origin {
    pub fn errors(&self, problems: Vec<Problem>) -> ScenarioErrors {
        let left_out = problems.len().saturating_sub(ERRORS_MAX);
        let told = problems.into_iter().take(ERRORS_MAX);
        ScenarioErrors {
            told: told.map(|problem| self.error(problem)).collect(),
            left_out,
        }
    }

    /// Where a file is named, if it is.
    pub fn naming(&self, file: &FilePath) -> Option<Path> {
        let file = file.to_str()?;
        let mut left: Vec<(Path, &Value)> = vec![(Path::default(), &self.tree)];
        while let Some((path, value)) = left.pop() {
            match value {
                Value::String(text) if text == file => return Some(path),
                Value::Sequence(list) => {
                    let entries = list.iter().enumerate();
                    left.extend(entries.map(|(index, value)| (path.index(index), value)));
                }
                Value::Mapping(entries) => {
                    let named = |(key, value)| Some((path.key(Value::as_str(key)?), value));
                    left.extend(entries.iter().filter_map(named));
                }
                _ => {}
            }
        }
        None
    }

    pub fn error(&self, problem: Problem) -> ScenarioError {
        let path = problem.path();
        if let Some((preset, below)) = self.of_preset(&path) {
            let line = line_of(&preset.text, &below);
            return problem.locate(below, &preset.file, line);
        }
        // Of several that set it, the last one counts.
        if let Some((_, option)) = self.set.iter().rfind(|(set, _)| path.starts_with(set)) {
            return problem.locate(path, option, None);
        }
        let line = line_of(&self.text, &path);
        problem.locate(path, &self.file, line)
    }

    /// The preset of one's own that says more of what a path leads to than the scenario does, and is not overruled
    /// there by a whole section; and where it is in the preset.
    fn of_preset(&self, path: &Path) -> Option<(&OwnPreset, Path)> {
        let preset = self.presets.iter().find(|preset| path.starts_with(&preset.system))?;
        let system = preset.system.steps().len();
        let below = &path.steps()[system..];
        let there = led_to(&preset.keys, below);
        let is_told_by_preset = system + there.len() > led_to(&self.tree, path.steps()).len().max(system);
        let is_kept = led_to(&preset.filled_in, &below[..there.len()]).get(there.len().wrapping_sub(1)) == there.last();
        (is_told_by_preset && is_kept).then(|| (preset, Path::default().join(below)))
    }
}

/// What the steps lead to, one after the other, as far as there is something.
fn led_to<'a>(tree: &'a Value, steps: &[Step]) -> Vec<&'a Value> {
    let found = steps.iter().scan(tree, |at, step| {
        *at = match step {
            Step::Key(key) => at.get(key.as_str())?,
            Step::Index(index) => at.get(*index)?,
        };
        Some(*at)
    });
    found.collect()
}
