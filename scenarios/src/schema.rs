//! The JSON Schema of a scenario file.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::raw::RawScenario;

/// The JSON Schema of a scenario file, for editors.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(RawScenario).to_value();
    names_stand_alone(&mut schema);
    presets_fill_in(&mut schema);
    sentences_run_on(&mut schema);
    schema
}

/// Where the source breaks a description's lines, editors need not: they wrap at their own width.
fn sentences_run_on(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::String(description)) = fields.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            fields.values_mut().for_each(sentences_run_on);
        }
        Value::Array(items) => items.iter_mut().for_each(sentences_run_on),
        _ => {}
    }
}

/// A name alone stands for content with nothing but defaults, as it is read.
fn names_stand_alone(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::Array(kinds)) = fields.get_mut("oneOf") {
                let names: Vec<Value> = kinds.iter().filter_map(of_defaults).collect();
                kinds.extend(names);
            }
            fields.values_mut().for_each(names_stand_alone);
        }
        Value::Array(items) => items.iter_mut().for_each(names_stand_alone),
        _ => {}
    }
}

/// The name of a kind of value whose content has keys and requires none. What is defined elsewhere is content that is
/// given.
fn of_defaults(kind: &Value) -> Option<Value> {
    let [name] = kind.get("required")?.as_array()?.as_slice() else {
        return None;
    };
    let content = kind.get("properties")?.get(name.as_str()?)?;
    let defaults = content.get("properties").is_some() && content.get("required").is_none();
    defaults.then(|| json!({ "const": name, "description": kind.get("description"), "type": "string" }))
}

/// What is left out of a system with a preset is the preset's, at any depth: no part of a system requires a key. What
/// tells one kind of value from another, as in `{adapters: …}`, still does.
fn presets_fill_in(schema: &mut Value) {
    let mut reached = BTreeSet::new();
    let mut next = references(&schema["$defs"]["RawSystem"]["properties"]);
    while let Some(name) = next.pop_first() {
        next.extend(references(&schema["$defs"][&name]));
        reached.insert(name);
        next = next.difference(&reached).cloned().collect();
    }
    for name in reached {
        require_nothing(&mut schema["$defs"][&name]);
    }
    require_nothing(&mut schema["$defs"]["RawSystem"]["properties"]);
}

/// The definitions that a part of a schema refers to.
fn references(part: &Value) -> BTreeSet<String> {
    let name = |text: &str| text.strip_prefix("#/$defs/").map(str::to_owned);
    match part {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str).and_then(name);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => BTreeSet::new(),
    }
}

fn require_nothing(part: &mut Value) {
    match part {
        Value::Object(fields) => {
            let is_tag = fields.get("properties").and_then(Value::as_object).map(|keys| keys.len()) == Some(1);
            if !is_tag {
                fields.remove("required");
            }
            fields.values_mut().for_each(require_nothing);
        }
        Value::Array(items) => items.iter_mut().for_each(require_nothing),
        _ => {}
    }
}
