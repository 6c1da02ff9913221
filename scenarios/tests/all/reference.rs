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
        let required = required(schema);
        let rows = ORDER.map(|key| self.row(key, &keys[key], required.contains(&key)));
        let mut page = format!("\n## All keys\n\n{HEADER}{}", rows.concat());
        self.left.reverse();
        while let Some((path, part)) = self.left.pop() {
            let known = self.left.len();
            let _ = write!(page, "\n## `{path}`\n\n{}", self.section(&path, &part));
            // What it leads to follows it.
            self.left[known..].reverse();
        }
        page
    }

    /// What stands below a heading: what it is, its alternatives, and its keys with theirs.
    fn section(&mut self, path: &str, part: &Value) -> String {
        let mut rows = self.rows(path, part);
        let mut list = String::new();
        for variant in variants(part) {
            let said = words(variant).map_or(String::new(), |words| format!(": {words}"));
            let tag = variant["properties"].as_object().filter(|_| variants_are_keys(part));
            if let Some((name, value)) = tag.and_then(|keys| keys.iter().next()) {
                let path = format!("{path}.{name}");
                let form = if value["properties"].is_object() {
                    rows += &self.rows(&path, value);
                    let alone = variants(part).any(|other| other["const"] == *name);
                    if alone { " (alone, or with keys)" } else { "" }.into()
                } else {
                    format!(" ({})", self.form(&path, value))
                };
                let _ = writeln!(list, "- `{name}`{form}{said}");
            } else if !variants(part).any(|other| is_mapping_of(other, &variant["const"])) {
                let _ = writeln!(list, "- {}{said}", self.form(path, variant));
            }
        }
        let table = if rows.is_empty() {
            rows
        } else {
            format!("{HEADER}{rows}")
        };
        let said = words(part).map(str::to_owned).into_iter();
        let blocks: Vec<String> = said.chain([list, table]).filter(|block| !block.is_empty()).collect();
        let blocks: Vec<&str> = blocks.iter().map(|block| block.trim_end()).collect();
        blocks.join("\n\n") + "\n"
    }

    fn rows(&mut self, path: &str, part: &Value) -> String {
        let required = required(part);
        let keys = part["properties"].as_object().into_iter().flatten();
        keys.map(|(key, value)| self.row(&format!("{path}.{key}"), value, required.contains(&key.as_str())))
            .collect()
    }

    /// A key as a row of a table.
    fn row(&mut self, path: &str, value: &Value, must: bool) -> String {
        let said = words(value).unwrap_or_else(|| panic!("{path} has a description"));
        let (what, default) = without_default(said);
        let default = default.unwrap_or_else(|| match value.get("default") {
            _ if must => "must be given".into(),
            Some(Value::Null) | None => "–".into(),
            Some(default) => format!("`{}`", plain(default)),
        });
        let cells = [self.form(path, value), default, what].map(|cell| cell.replace('|', "\\|"));
        format!("| `{path}` | {} |\n", cells.join(" | "))
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

const HEADER: &str = "| key | form | default | what |\n| --- | --- | --- | --- |\n";

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

/// Whether it is a mapping of this name, which then also stands alone.
fn is_mapping_of(variant: &Value, name: &Value) -> bool {
    name.as_str().is_some_and(|name| variant["properties"].get(name).is_some())
}

/// A description, and what it says of the default.
fn without_default(said: &str) -> (String, Option<String>) {
    let Some((what, default)) = said.split_once("Default: ") else {
        return (said.to_owned(), None);
    };
    let (default, more) = default.split_once(". ").unwrap_or((default.trim_end_matches('.'), ""));
    ((what.to_owned() + more).trim_end().to_owned(), Some(default.to_owned()))
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

/// As GitHub makes it of a heading.
fn anchor(path: &str) -> String {
    path.chars()
        .filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .flat_map(char::to_lowercase)
        .collect()
}
