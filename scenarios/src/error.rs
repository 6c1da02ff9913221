//! What can be wrong with a scenario, in the form `file:LINE: field.path: must be …, got …; did you mean …?`.

use std::fmt;

use serde::de;
use serde_yaml::Value;

use crate::path::Path;

/// One thing wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The file as the user can open it, or `--set` for an override.
    pub file: String,
    /// The line in the file, from 1, where it is known.
    pub line: Option<u64>,
    /// Where in the file, as in `systems[1].batch`; empty for the file as a whole.
    pub path: String,
    /// What the value must be.
    pub must: String,
    /// What it is.
    pub got: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": must be {}, got {}", self.must, self.got)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// What is wrong with a scenario, at least one thing; a line each when displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioErrors {
    /// The first of them.
    pub told: Vec<ScenarioError>,
    /// How many more there are.
    pub left_out: usize,
}

impl fmt::Display for ScenarioErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.told.iter().map(ScenarioError::to_string).collect();
        f.write_str(&lines.join("\n"))?;
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n(and {more} more)"),
        }
    }
}

impl std::error::Error for ScenarioErrors {}

impl From<ScenarioError> for ScenarioErrors {
    fn from(error: ScenarioError) -> ScenarioErrors {
        ScenarioErrors {
            told: vec![error],
            left_out: 0,
        }
    }
}

/// Of a sweep or of choices, more would not help to find the mistake.
pub(crate) const PROBLEMS_MAX: usize = 10;

/// What is found where a key is none of those that there are.
const UNKNOWN_KEY: &str = "an unknown key";

/// A [`ScenarioError`] in the making. It is serde's error type while a scenario is decoded, so that what is wrong
/// arrives in parts rather than as a sentence; where it is wrong is filled in by the decoder, which knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Known once the problem has left the value at fault.
    path: Option<Path>,
    /// A key of the value at fault, where the key is the problem.
    key: Option<String>,
    must: String,
    got: Option<String>,
    suggestion: Option<String>,
}

impl Problem {
    pub fn new(path: Path, must: impl Into<String>, got: impl fmt::Display) -> Problem {
        Problem {
            path: Some(path),
            got: Some(got.to_string()),
            ..Problem::somewhere(must)
        }
    }

    /// At a value that the decoder is about to name.
    pub fn somewhere(must: impl Into<String>) -> Problem {
        Problem {
            path: None,
            key: None,
            must: must.into(),
            got: None,
            suggestion: None,
        }
    }

    /// A name that is not among `known`.
    pub fn unknown_name<'a>(path: Path, got: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Problem {
        Problem {
            suggestion: tenantry_profiles::near_miss(got, known.clone()),
            ..Problem::new(path, one_of(known), describe(&got.into()))
        }
    }

    /// The decoder came by `path`, where it found `value`: the first to say so is nearest to the fault.
    pub fn at(mut self, path: &Path, value: &Value) -> Problem {
        if self.path.is_none() {
            self.path = Some(match self.key.take() {
                Some(key) => path.key(&key),
                None => path.clone(),
            });
            self.got.get_or_insert_with(|| describe(value));
        }
        self
    }

    /// Whether the key is the problem, whatever its value.
    pub fn is_of_a_key(&self) -> bool {
        self.got.as_deref() == Some(UNKNOWN_KEY)
    }

    /// The same, in other words.
    pub fn must(self, must: impl Into<String>) -> Problem {
        Problem {
            must: must.into(),
            ..self
        }
    }

    /// The same, with what was probably meant.
    pub fn suggest(self, suggestion: Option<String>) -> Problem {
        Problem { suggestion, ..self }
    }

    /// The same, at another path.
    pub fn moved(self, path: Path) -> Problem {
        Problem {
            path: Some(path),
            ..self
        }
    }

    /// The same, with the circumstances in which the value is wrong.
    pub fn given(self, circumstances: &str) -> Problem {
        let got = self.got.as_deref().unwrap_or_default();
        Problem {
            got: Some(format!("{got} where {circumstances}")),
            ..self
        }
    }

    pub fn path(&self) -> Path {
        self.path.clone().unwrap_or_default()
    }

    /// The finished error, given the file (or option) and the line that its path leads to.
    pub fn locate(self, path: Path, file: &str, line: Option<u64>) -> ScenarioError {
        ScenarioError {
            file: file.to_string(),
            line,
            path: path.to_string(),
            must: self.must,
            got: shortened(self.got.unwrap_or_default()),
            suggestion: self.suggestion,
        }
    }
}

/// Characters of a wrong value that are told, at most: a whole file may stand where a word should.
const GOT_MAX: usize = 200;

fn shortened(got: String) -> String {
    match got.char_indices().nth(GOT_MAX) {
        None => got,
        Some((end, _)) => format!("{}… ({} characters)", &got[..end], got.chars().count()),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: must be {}", self.path(), self.must)
    }
}

impl std::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Problem {
        Problem {
            got: Some(message.to_string()),
            ..Problem::somewhere("valid")
        }
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Problem {
        Problem::somewhere(expected.to_string())
    }

    fn invalid_value(got: de::Unexpected<'_>, expected: &dyn de::Expected) -> Problem {
        // A scalar says so what may be meant (`scalar`).
        let meant = match got {
            de::Unexpected::Other(meant) if !meant.is_empty() => Some(meant.to_owned()),
            _ => None,
        };
        Problem {
            suggestion: meant,
            ..Problem::somewhere(expected.to_string())
        }
    }

    fn unknown_variant(got: &str, known: &'static [&'static str]) -> Problem {
        Problem {
            path: None,
            ..Problem::unknown_name(Path::default(), got, known.iter().copied())
        }
    }

    fn unknown_field(got: &str, known: &'static [&'static str]) -> Problem {
        Problem {
            key: Some(got.to_string()),
            got: Some(UNKNOWN_KEY.to_string()),
            suggestion: tenantry_profiles::near_miss(got, known.iter().copied()),
            ..Problem::somewhere(one_of(known.iter().copied()))
        }
    }

    fn missing_field(name: &'static str) -> Problem {
        Problem {
            key: Some(name.to_string()),
            got: Some("nothing".to_string()),
            ..Problem::somewhere("given")
        }
    }
}

/// "one of a, b, c", or "a" where there is no choice.
pub(crate) fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    match names.as_slice() {
        [only] => (*only).to_string(),
        names => format!("one of {}", names.join(", ")),
    }
}

/// A value as an error quotes it.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) if text.is_empty() => "an empty text".to_string(),
        Value::String(text) => text.clone(),
        Value::Sequence(list) if list.is_empty() => "an empty list".to_string(),
        Value::Sequence(_) => "a list".to_string(),
        Value::Mapping(entries) if entries.is_empty() => "an empty mapping".to_string(),
        Value::Mapping(entries) => {
            let keys: Vec<String> = entries.keys().map(describe).collect();
            format!("a mapping with the keys {}", keys.join(", "))
        }
        Value::Tagged(tagged) => format!("a value tagged {}", tagged.tag),
    }
}
