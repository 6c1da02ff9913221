//! Named systems: lists of decisions in YAML, which a user can print, copy and change.

use serde_yaml::{Mapping, Value};

use crate::error::{Problem, describe};
use crate::path::Path;

/// Name and text of each, simplest first.
const PRESETS: [(&str, &str); 11] = [
    ("bert-dedicated", include_str!("../presets/bert-dedicated.yaml")),
    ("bert-compress", include_str!("../presets/bert-compress.yaml")),
    ("hbert-adapter", include_str!("../presets/hbert-adapter.yaml")),
    ("hbert-plot", include_str!("../presets/hbert-plot.yaml")),
    ("hmi", include_str!("../presets/hmi.yaml")),
    ("bert-shared", include_str!("../presets/bert-shared.yaml")),
    ("punica", include_str!("../presets/punica.yaml")),
    ("vllm-backbone", include_str!("../presets/vllm-backbone.yaml")),
    ("static-batches", include_str!("../presets/static-batches.yaml")),
    ("queue-per-lora", include_str!("../presets/queue-per-lora.yaml")),
    ("chunked-prefill", include_str!("../presets/chunked-prefill.yaml")),
];

const NAMES: [&str; PRESETS.len()] = {
    let mut names = [""; PRESETS.len()];
    let mut index = 0;
    while index < PRESETS.len() {
        names[index] = PRESETS[index].0;
        index += 1;
    }
    names
};

/// The names of all presets.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// The preset called `name` as YAML with comments: an entry of `systems:` with its decisions spelled out.
pub fn yaml(name: &str) -> Option<&'static str> {
    PRESETS
        .iter()
        .find(|(preset, _)| *preset == name)
        .map(|(_, text)| *text)
}

/// Replaces each `preset: NAME` in the scenario's `systems:` by the preset's keys. Shapes that are wrong in other ways are left
/// for the decoder to find.
pub(crate) fn fill_in(scenario: &mut Value) -> Vec<Problem> {
    let Some(Value::Sequence(systems)) = scenario.get_mut("systems") else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    for (index, system) in systems.iter_mut().enumerate() {
        let Value::Mapping(own) = system else { continue };
        let Some(preset) = own.get("preset") else { continue };
        let path = Path::default().key("systems").index(index).key("preset");
        match preset.as_str().and_then(yaml) {
            Some(text) => *own = filled_in(text, std::mem::take(own)),
            None => problems.push(Problem::unknown_name(path, &describe(preset), names().iter().copied())),
        }
    }
    problems
}

/// The preset in `text` with `own` keys over it.
fn filled_in(text: &str, mut own: Mapping) -> Mapping {
    let mut system: Mapping = serde_yaml::from_str(text).expect("a shipped preset is YAML");
    own.remove("preset");
    for (key, value) in own {
        match system.get_mut(&key).and_then(|preset| same_choice(preset, &value)) {
            Some((preset_content, content)) => preset_content.extend(content.clone()),
            None => drop(system.insert(key, value)),
        }
    }
    system
}

/// The contents of two choices, `{name: {…}}`, where the name is the same: only then do the preset's keys still mean anything.
fn same_choice<'a>(preset: &'a mut Value, own: &'a Value) -> Option<(&'a mut Mapping, &'a Mapping)> {
    let [(name, content)] = own.as_mapping()?.iter().collect::<Vec<_>>()[..] else {
        return None;
    };
    Some((preset.get_mut(name)?.as_mapping_mut()?, content.as_mapping()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn systems(yaml: &str) -> Value {
        let mut scenario = serde_yaml::from_str(yaml).unwrap();
        assert_eq!(fill_in(&mut scenario), []);
        scenario["systems"].clone()
    }

    #[test]
    fn every_preset_is_named_after_itself() {
        for name in names() {
            let preset: Value = serde_yaml::from_str(yaml(name).unwrap()).unwrap();
            assert_eq!(preset["name"], Value::from(*name));
            assert_eq!(systems(&format!("systems: [{{preset: {name}}}]"))[0], preset);
        }
        assert_eq!(yaml("hmis"), None);
    }

    #[test]
    fn own_keys_go_over_the_preset() {
        let system = &systems(
            "systems: [{preset: hbert-adapter, name: x, batch: {size-or-timeout: {max_size: 3}}, \
             tenant_state: head, pipeline: synchronous}]",
        )[0];
        let preset: Value = serde_yaml::from_str(yaml("hbert-adapter").unwrap()).unwrap();
        assert_eq!(system["name"], Value::from("x"));
        assert_eq!(system["pipeline"], Value::from("synchronous"));
        assert_eq!(system["tenant_state"], Value::from("head"));
        assert_eq!(system["batch"]["size-or-timeout"]["max_size"], Value::from(3));
        let wait = "max_wait";
        assert_eq!(
            system["batch"]["size-or-timeout"][wait],
            preset["batch"]["size-or-timeout"][wait]
        );
    }

    #[test]
    fn another_choice_replaces_the_presets() {
        let system = &systems("systems: [{preset: hbert-adapter, batch: {fixed-size: {size: 3}}}]")[0];
        assert_eq!(
            system["batch"],
            serde_yaml::from_str::<Value>("{fixed-size: {size: 3}}").unwrap()
        );
    }
}
