//! `docs/scenario.md`: that it holds what the JSON Schema says of each key. Run with `UPDATE=1` to write the page's
//! generated part again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::{env, fs};

use serde_json::Value;
use tenantry_scenarios::schema;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenario.md");
const BEGIN: &str = "<!-- generated from here on: UPDATE=1 cargo test -p tenantry-scenarios --test all reference -->\n";

/// The keys of a scenario in the order in which one is written.
const ORDER: [&str; 17] = [
    "name", "seed", "card", "cluster", "models", "tenants", "workload", "systems", "outcomes", "slo", "prices",
    "jitter", "repeats", "sweep", "samples", "plan", "validate",
];

#[test]
fn the_page_has_every_key() {
    let made = Reference::default().page(&schema());
    let page = fs::read_to_string(PAGE).unwrap();
    let (prose, generated) = page.split_once(BEGIN).expect("the page says where it is generated");
    if env::var_os("UPDATE").is_some() {
        fs::write(PAGE, format!("{prose}{BEGIN}{made}")).unwrap();
        return;
    }
    assert!(
        generated == made,
        "docs/scenario.md is not what the schema says: run this test with UPDATE=1"
    );
}

/// Sections are written one after the other; what is described once is referred to from then on.
#[derive(Default)]
struct Reference {
    definitions: Value,
    /// By what path each definition with a section of its own is described.
    described: BTreeMap<String, String>,
    /// Sections that are still to be written, the next one last.
    left: Vec<(String, Value)>,
}

impl Reference {
    fn page(mut self, schema: &Value) -> String {
        self.definitions = schema["$defs"].clone();
        let keys = schema["properties"].as_object().unwrap();
        assert!(keys.keys().all(|key| ORDER.contains(&key.as_str())) && keys.len() == ORDER.len());
        let mut page = String::from("\n## All keys\n\n");
        let required = required(schema);
        page += HEADER;
        for key in ORDER {
            page += &self.row(key, key, &keys[key], required.contains(&key));
        }
        self.left.reverse();
        while let Some((path, part)) = self.left.pop() {
            let known = self.left.len();
            let _ = write!(page, "\n## `{path}`\n\n{}", self.section(&path, &part));
            // What it leads to follows it.
            self.left[known..].reverse();
        }
        page
    }

    /// What stands below a heading.
    fn section(&mut self, path: &str, part: &Value) -> String {
        let mut text = words(part).map_or(String::new(), |words| format!("{words}\n\n"));
        if let Some(keys) = part["properties"].as_object() {
            text += HEADER;
            let required = required(part);
            for (key, value) in keys {
                text += &self.row(key, &format!("{path}.{key}"), value, required.contains(&key.as_str()));
            }
        }
        for variant in variants(part) {
            let said = words(variant).map_or(String::new(), |words| format!(": {words}"));
            match variant["properties"].as_object().and_then(|keys| keys.iter().next()) {
                Some((name, value)) if variants_are_keys(part) => {
                    let path = format!("{path}.{name}");
                    let form = match value["properties"].is_object() {
                        true => String::new(),
                        false => format!(" ({})", self.form(&path, value)),
                    };
                    let _ = writeln!(text, "- `{name}`{form}{said}");
                    let required = required(value);
                    for (key, value) in value["properties"].as_object().into_iter().flatten() {
                        let must = required.contains(&key.as_str());
                        let form = self.form(&format!("{path}.{key}"), value);
                        let default = default(value, must);
                        let said = words(value).unwrap_or_default();
                        let _ = writeln!(text, "  - `{key}`: {said} {}; {default}", capital(&form));
                    }
                }
                _ => {
                    let form = self.form(path, variant);
                    let _ = writeln!(text, "- {form}{said}");
                }
            }
        }
        text
    }

    /// A key as a row of a table.
    fn row(&mut self, key: &str, path: &str, value: &Value, must: bool) -> String {
        let form = self.form(path, value).replace('|', "\\|");
        let said = words(value).unwrap_or_default().replace('|', "\\|");
        format!(
            "| `{key}` | {said} | {form} | {} |\n",
            default(value, must).replace('|', "\\|")
        )
    }

    /// What a value looks like.
    fn form(&mut self, path: &str, part: &Value) -> String {
        if let Some(name) = part["$ref"].as_str() {
            return self.named(path, name.strip_prefix("#/$defs/").unwrap());
        }
        if let Some(constant) = part.get("const") {
            return format!("`{}`", plain(constant));
        }
        if let Some(names) = part["enum"].as_array() {
            let names: Vec<String> = names.iter().map(|name| format!("`{}`", plain(name))).collect();
            return names.join(", ");
        }
        let alternatives: Vec<&Value> = variants(part).filter(|part| part["type"] != "null").collect();
        if !alternatives.is_empty() {
            let forms: Vec<String> = alternatives.iter().map(|part| self.form(path, part)).collect();
            return forms.join(", or ");
        }
        let types: Vec<&str> = match &part["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
            one => one.as_str().into_iter().collect(),
        };
        let forms: Vec<String> = types.iter().map(|name| self.of_type(path, name, part)).collect();
        match forms.is_empty() {
            false => forms.join(", or "),
            true if part.get("pattern").is_some() => "text".into(),
            true => "any value".into(),
        }
    }

    fn of_type(&mut self, path: &str, name: &str, part: &Value) -> String {
        let bounds = [
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        ];
        let bounds: Vec<String> = bounds
            .iter()
            .filter_map(|(key, words)| part.get(key).map(|bound| format!(", {words} {bound}")))
            .collect();
        match name {
            "array" => format!("a list: {}", self.form(&format!("{path}[]"), &part["items"])),
            "object" => format!(
                "a mapping: {}",
                self.form(&format!("{path}.NAME"), &part["additionalProperties"])
            ),
            "integer" => format!("a whole number{}", bounds.concat()),
            "number" => format!("a number{}", bounds.concat()),
            "boolean" => "`true`, `false`".into(),
            _ => "text".into(),
        }
    }

    /// A definition: said on the spot if that takes few words, or else in a section of its own.
    fn named(&mut self, path: &str, name: &str) -> String {
        let part = self.definitions[name].clone();
        let is_scalar =
            part.get("properties").is_none() && variants(&part).all(|part| part.get("properties").is_none());
        let has_words = variants(&part).any(|variant| words(variant).is_some());
        if is_scalar && !has_words {
            return words(&part).map_or_else(|| self.form(path, &part), str::to_owned);
        }
        if let Some(described) = self.described.get(name) {
            return format!("[`{described}`](#{})", anchor(described));
        }
        self.described.insert(name.to_owned(), path.to_owned());
        self.left.push((path.to_owned(), part));
        format!("[`{path}`](#{})", anchor(path))
    }
}

const HEADER: &str = "| key | what | form | default |\n| --- | --- | --- | --- |\n";

fn words(part: &Value) -> Option<&str> {
    part["description"].as_str()
}

fn required(part: &Value) -> Vec<&str> {
    part["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a value is one of. Where it is a mapping as well, they only say which keys go together, as its words do.
fn variants(part: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["oneOf", "anyOf"].into_iter().filter_map(|key| part[key].as_array());
    lists.flatten().filter(|_| part.get("properties").is_none())
}

/// Whether each variant is a constant, or a mapping of the one key that names it.
fn variants_are_keys(part: &Value) -> bool {
    variants(part).all(|variant| match variant["properties"].as_object() {
        Some(keys) => keys.len() == 1,
        None => true,
    })
}

fn default(value: &Value, must: bool) -> String {
    match value.get("default") {
        _ if must => "must be given".into(),
        Some(Value::Null) | None => "left out".into(),
        Some(default) => format!("default `{}`", plain(default)),
    }
}

/// As in YAML.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => format!("[{}]", values.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(keys) => {
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {}", plain(value))).collect();
            format!("{{ {} }}", keys.join(", "))
        }
        other => other.to_string(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// As GitHub makes it of a heading.
fn anchor(path: &str) -> String {
    path.chars()
        .filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .flat_map(char::to_lowercase)
        .collect()
}
