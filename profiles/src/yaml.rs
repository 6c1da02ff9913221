//! Reads `card.yaml`, and turns serde's messages into the project's form.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::card::Card;
use crate::cells::one_of;
use crate::error::Invalid;
use crate::names::near_miss;

/// Reads a card without its tables; `file` is what errors call it.
pub(crate) fn read_card(file: &str, text: &str) -> Result<Card, Invalid> {
    read(file, text)
}

/// Reads a file of YAML; `file` is what errors call it.
pub(crate) fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Invalid> {
    // Some editors begin a file with a byte order mark.
    serde_yaml::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
        let message = error.to_string();
        // The error's text ends with the position.
        let invalid = explain(
            file,
            message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message),
        );
        match error.location() {
            Some(location) => invalid.in_line(location.line() as u64),
            None => invalid,
        }
    })
}

/// Where in a file's text the value at a dotted path is, as errors call it (`models[0].hidden`): its line, or that of
/// the nearest value around it that there is.
fn line_of(text: &str, field: &str) -> Option<u64> {
    let steps: Vec<&str> = field.split(['.', '[', ']']).filter(|step| !step.is_empty()).collect();
    let line = |steps: &[&str]| {
        // Whatever is there is refused, and the parser says where.
        let refused = At(steps).deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
        Some(refused.location()?.line() as u64)
    };
    (1..=steps.len()).rev().find_map(|count| line(&steps[..count]))
}

/// A complaint about a value, with the line of the file's text where it stands.
pub(crate) fn in_line(text: &str, invalid: Invalid) -> Invalid {
    match line_of(text, &invalid.field) {
        Some(line) => invalid.in_line(line),
        None => invalid,
    }
}

/// Walks to the value that these keys and numbers of items lead to, and refuses it.
struct At<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("another value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else {
            return Err(A::Error::custom("this one"));
        };
        while let Some(key) = map.next_key::<String>()? {
            if key == *first {
                map.next_value_seed(At(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.0.split_first() else {
            return Err(A::Error::custom("this one"));
        };
        for _ in 0..first.parse::<usize>().unwrap_or(usize::MAX) {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        items.next_element_seed(At(rest))?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// serde writes `path.to.field: what is wrong`, with a handful of fixed wordings for the latter. Anything else (syntax)
/// is passed on as it is.
fn explain(file: &str, message: &str) -> Invalid {
    let is_path = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_.[]".contains(c));
    let (path, problem) = match message.split_once(": ") {
        Some((path, problem)) if is_path(path) => (path, problem),
        _ => ("", message),
    };
    let invalid = |key: &str, must: String, got: &str| {
        let field = match (path, key) {
            ("", "") => "card".to_string(),
            ("", only) | (only, "") => only.to_string(),
            (path, key) => format!("{path}.{key}"),
        };
        Invalid::new(file, &field, must, got)
    };
    if let Some((key, known)) = unknown_name(problem, "unknown field `") {
        invalid(key, one_of(&known), "an unknown key").suggest(near_miss(key, known))
    } else if let Some((name, known)) = unknown_name(problem, "unknown variant `") {
        invalid("", one_of(&known), name).suggest(near_miss(name, known))
    } else if let Some(key) = problem.strip_prefix("missing field `") {
        invalid(key.trim_end_matches('`'), "given".into(), "nothing")
    } else if let Some(key) = problem.strip_prefix("duplicate field `") {
        invalid(key.trim_end_matches('`'), "given once".into(), "it a second time")
    } else if let Some((got, expected)) = wrong_value(problem) {
        invalid("", plain(expected).into(), got)
    } else {
        invalid("", "valid YAML".into(), problem)
    }
}

/// ``unknown field `a`, expected one of `b`, `c` ``: the name, and those that are known.
fn unknown_name<'a>(problem: &'a str, wording: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let (name, expected) = problem.strip_prefix(wording)?.split_once("`, expected ")?;
    Some((name, expected.split('`').skip(1).step_by(2).collect()))
}

/// ``invalid type: string "two", expected u32``: what was got, and what was expected.
fn wrong_value(problem: &str) -> Option<(&str, &str)> {
    let rest = problem.strip_prefix("invalid type: ").or_else(|| problem.strip_prefix("invalid value: "))?;
    let (got, expected) = rest.rsplit_once(", expected ")?;
    let value = got.find(['`', '"']).map_or(got, |start| got[start..].trim_matches('`'));
    Some((value, expected))
}

/// A user's word for a type of Rust.
fn plain(expected: &str) -> &str {
    match expected {
        "u32" | "u64" => "a whole number",
        "f64" => "a number",
        "a string" => "text",
        "a sequence" => "a list",
        structure if structure.starts_with("struct ") => "a mapping of keys",
        other => other,
    }
}
