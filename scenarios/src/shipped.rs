//! The scenarios that come with the binary.

use std::fs;

use tenantry_profiles::near_miss;

use crate::error::{ScenarioError, ScenarioErrors};

/// Name and text of each; those in a folder are named with it.
const SHIPPED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// Where scenarios lie in a checkout.
const FOLDER: &str = "scenarios";

/// The names of the scenarios in the binary.
pub fn shipped_names() -> Vec<&'static str> {
    SHIPPED.iter().map(|(name, _)| *name).collect()
}

/// The text of a scenario in the binary.
pub fn shipped_yaml(name: &str) -> Option<&'static str> {
    let found = SHIPPED.iter().find(|(shipped, _)| *shipped == name);
    found.map(|(_, text)| *text)
}

/// What a scenario is about, by the comment that it begins with: the question where it has one, else its first words.
pub fn about(yaml: &str) -> String {
    const LONGEST: usize = 120;
    let comment = yaml.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let lines: Vec<&str> = comment.take_while(|line| !line.is_empty()).collect();
    if let Some(question) = lines.first().filter(|line| line.ends_with('?')) {
        return question.to_string();
    }
    let words = lines.join(" ");
    let quoted = words.split_once('"').and_then(|(who, rest)| {
        let question = rest.split_once('"')?.0;
        who.starts_with("Who asks").then_some(question)
    });
    let words = quoted.unwrap_or(&words);
    match words.char_indices().nth(LONGEST) {
        None => words.to_string(),
        Some((end, _)) => {
            let whole_words = words[..end].rsplit_once(' ').map_or("", |(whole, _)| whole);
            format!("{} …", whole_words.trim_end_matches([',', ':', ';']))
        }
    }
}

/// The scenario's file, as errors are to call it, and its text. In this order: the file at this path; the file of this
/// name in `scenarios/`; the embedded one, by name or by the path that it has in a checkout.
pub(crate) fn find(path_or_name: &str) -> Result<(String, String), ScenarioErrors> {
    let in_checkout = format!("{FOLDER}/{path_or_name}.yaml");
    for path in [path_or_name, &in_checkout] {
        // A pipe is read like a file.
        if fs::metadata(path).is_ok_and(|found| !found.is_dir()) {
            return match fs::read_to_string(path) {
                Ok(text) => Ok((path.to_string(), text)),
                Err(error) => Err(unreadable(path, error.to_string()).into()),
            };
        }
    }
    let name = path_or_name.strip_prefix(FOLDER).and_then(|name| name.strip_prefix('/')?.strip_suffix(".yaml"));
    let name = name.unwrap_or(path_or_name);
    match SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
        Some((_, text)) => Ok((format!("(embedded) {FOLDER}/{name}.yaml"), text.to_string())),
        None => Err(unknown(path_or_name).into()),
    }
}

fn unreadable(path: &str, got: String) -> ScenarioError {
    ScenarioError {
        file: path.to_string(),
        line: None,
        path: String::new(),
        must: "a readable text file".to_string(),
        got,
        suggestion: None,
    }
}

fn unknown(path_or_name: &str) -> ScenarioError {
    ScenarioError {
        file: "scenario".to_string(),
        line: None,
        path: String::new(),
        must: "a file, or one of those that `tenantry scenarios` lists".to_string(),
        got: path_or_name.to_string(),
        suggestion: near_miss(path_or_name, shipped_names()),
    }
}
