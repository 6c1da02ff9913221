//! The text that a scenario was read from, so that whoever finds something wrong with it can say where.

use std::path::Path as FilePath;

use serde_yaml::Value;

use crate::error::{Problem, ScenarioError, ScenarioErrors};
use crate::lines::line_of;
use crate::path::Path;

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
}

/// Where a scenario was read is no part of what it asks.
impl PartialEq for Origin {
    fn eq(&self, _: &Origin) -> bool {
        true
    }
}

impl Origin {
    pub fn errors(&self, problems: Vec<Problem>) -> ScenarioErrors {
        ScenarioErrors(problems.into_iter().map(|problem| self.error(problem)).collect())
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
        // Of several that set it, the last one counts.
        if let Some((_, option)) = self.set.iter().rfind(|(set, _)| path.starts_with(set)) {
            return problem.locate(path, option, None);
        }
        let line = line_of(&self.text, &path);
        problem.locate(path, &self.file, line)
    }
}
