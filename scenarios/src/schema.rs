//! The JSON Schema of a scenario file.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::raw::RawScenario;

/// The JSON Schema of a scenario file, for editors.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(RawScenario).to_value();
    presets_fill_in(&mut schema);
    schema
}

/// What is left out of a system with a preset is the preset's, at any depth: no part of a system requires a key. What tells one kind of
/// value from another, as in `{adapters: …}`, still does.
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
            let is_tag = fields
                .get("properties")
                .and_then(Value::as_object)
                .map(|keys| keys.len())
                == Some(1);
            if !is_tag {
                fields.remove("required");
            }
            fields.values_mut().for_each(require_nothing);
        }
        Value::Array(items) => items.iter_mut().for_each(require_nothing),
        _ => {}
    }
}
