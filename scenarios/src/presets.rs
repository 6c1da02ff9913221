//! Named systems: lists of decisions in YAML, which a user can print, copy and change.

use std::fs;

use serde_yaml::{Mapping, Value};

use crate::error::{Problem, describe};
use crate::path::{Path, Step};

/// Name and text of each, simplest first.
const PRESETS: [(&str, &str); 26] = [
    ("bert-dedicated", include_str!("../presets/bert-dedicated.yaml")),
    ("bert-compress", include_str!("../presets/bert-compress.yaml")),
    ("hbert-adapter", include_str!("../presets/hbert-adapter.yaml")),
    ("hbert-plot", include_str!("../presets/hbert-plot.yaml")),
    ("hmi", include_str!("../presets/hmi.yaml")),
    ("bert-shared", include_str!("../presets/bert-shared.yaml")),
    ("gpt-dedicated", include_str!("../presets/gpt-dedicated.yaml")),
    ("gpt-compress", include_str!("../presets/gpt-compress.yaml")),
    ("gpt-shared", include_str!("../presets/gpt-shared.yaml")),
    ("hgpt", include_str!("../presets/hgpt.yaml")),
    ("punica", include_str!("../presets/punica.yaml")),
    ("vllm-backbone", include_str!("../presets/vllm-backbone.yaml")),
    ("static-batches", include_str!("../presets/static-batches.yaml")),
    ("queue-per-lora", include_str!("../presets/queue-per-lora.yaml")),
    ("chunked-prefill", include_str!("../presets/chunked-prefill.yaml")),
    ("pets", include_str!("../presets/pets.yaml")),
    ("pets-fixed", include_str!("../presets/pets-fixed.yaml")),
    ("seqs", include_str!("../presets/seqs.yaml")),
    ("pars", include_str!("../presets/pars.yaml")),
    ("tabi", include_str!("../presets/tabi.yaml")),
    ("infaas-best", include_str!("../presets/infaas-best.yaml")),
    ("cocktail", include_str!("../presets/cocktail.yaml")),
    ("arlo", include_str!("../presets/arlo.yaml")),
    ("arlo-st", include_str!("../presets/arlo-st.yaml")),
    ("arlo-dt", include_str!("../presets/arlo-dt.yaml")),
    ("infaas", include_str!("../presets/infaas.yaml")),
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
    PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, text)| *text)
}

/// Replaces each `preset: NAME`, and each `preset: FILE.yaml`, in the scenario's `systems:` by the preset's keys.
/// Shapes that are wrong in other ways are left for the decoder to find. Also the presets that are files of one's own.
pub(crate) fn fill_in(scenario: &mut Value) -> (Vec<OwnPreset>, Vec<Problem>) {
    let (mut of_files, mut problems) = (Vec::new(), Vec::new());
    let Some(Value::Sequence(systems)) = scenario.get_mut("systems") else {
        return (of_files, problems);
    };
    for (index, system) in systems.iter_mut().enumerate() {
        let Value::Mapping(own) = system else { continue };
        let Some(preset) = own.get("preset") else { continue };
        let path = Path::default().key("systems").index(index).key("preset");
        match keys(preset, &path) {
            Ok((keys, file)) => {
                let of_file = file.map(|file| (file, keys.clone()));
                *own = filled_in(keys, std::mem::take(own));
                of_files.extend(of_file.map(|((file, text), keys)| OwnPreset {
                    system: Path::default().key("systems").index(index),
                    file,
                    text,
                    keys: Value::Mapping(keys),
                    filled_in: Value::Mapping(own.clone()),
                }));
            }
            Err(problem) => problems.push(problem),
        }
    }
    (of_files, problems)
}

/// A preset that is a file of one's own, of which a system's keys came.
#[derive(Clone, Debug)]
pub(crate) struct OwnPreset {
    /// Where the system is in the scenario.
    pub system: Path,
    pub file: String,
    pub text: String,
    pub keys: Value,
    /// With the system's own keys over them.
    pub filled_in: Value,
}

/// A file's name and its text.
type FileText = (String, String);

/// The keys of a preset: of a shipped one by its name, or of one's own by its file.
fn keys(preset: &Value, path: &Path) -> Result<(Mapping, Option<FileText>), Problem> {
    let name = preset.as_str().unwrap_or_default();
    if let Some(text) = yaml(name) {
        return Ok((serde_yaml::from_str(text).expect("a shipped preset is YAML"), None));
    }
    if !name.ends_with(".yaml") {
        return Err(Problem::unknown_name(
            path.clone(),
            &describe(preset),
            names().iter().copied(),
        ));
    }
    let must = "a preset's name, or a file as `tenantry presets NAME` prints one";
    let text =
        fs::read_to_string(name).map_err(|error| Problem::new(path.clone(), must, format!("{name}: {error}")))?;
    let wrong = |error| Problem::new(path.clone(), must, format!("{name}: {error}"));
    let mut keys: Value = serde_yaml::from_str(&text).map_err(wrong)?;
    keys.apply_merge().map_err(wrong)?;
    let keys = serde_yaml::from_value(keys).map_err(wrong)?;
    Ok((keys, Some((name.to_owned(), text))))
}

/// The preset with `own` keys over it.
fn filled_in(mut system: Mapping, mut own: Mapping) -> Mapping {
    own.remove("preset");
    put_over(&mut system, own);
    system
}

/// Writes out the preset's cascade in the system that a path leads into the stages of: they are a list, of which an
/// entry can only be set where it is there.
pub(crate) fn unfold_stages(scenario: &mut Value, path: &Path) {
    let [
        Step::Key(systems),
        Step::Index(index),
        Step::Key(cascade),
        Step::Key(stages),
        Step::Index(_),
        ..,
    ] = path.steps()
    else {
        return;
    };
    if [systems, cascade, stages] != ["systems", "cascade", "stages"] {
        return;
    }
    let system = scenario.get_mut("systems").and_then(|systems| systems.get_mut(*index));
    let Some(Value::Mapping(own)) = system else { return };
    let has_stages = own.get("cascade").is_some_and(|cascade| cascade.get("stages").is_some());
    let preset = own.get("preset").and_then(|preset| keys(preset, &Path::default()).ok());
    let Some(of_preset) = preset.filter(|_| !has_stages).and_then(|(mut preset, _)| preset.remove("cascade")) else {
        return;
    };
    let key = Value::from("cascade");
    let mut whole = Mapping::from_iter([(key.clone(), of_preset)]);
    if let Some(own) = own.remove(&key) {
        put_over(&mut whole, Mapping::from_iter([(key, own)]));
    }
    own.extend(whole);
}

/// Sections whose keys are decisions of their own, each of which goes over the preset's alone.
const SECTIONS: [&str; 6] = ["generation", "lora", "plot", "runtimes", "tasks", "cascade"];

/// Whether a section is another one than the preset's, of which nothing means anything any more: a cascade's order and
/// weights are of its stages.
fn is_another(section: &Value) -> bool {
    section.get("stages").is_some()
}

fn put_over(preset: &mut Mapping, own: Mapping) {
    for (key, value) in own {
        let is_section = key.as_str().is_some_and(|key| SECTIONS.contains(&key)) && !is_another(&value);
        if is_section && let (Some(Value::Mapping(preset)), Value::Mapping(own)) = (preset.get_mut(&key), &value) {
            put_over(preset, own.clone());
            continue;
        }
        match preset.get_mut(&key).and_then(|preset| same_choice(preset, &value)) {
            Some((preset_content, content)) => preset_content.extend(content.clone()),
            None => drop(preset.insert(key, value)),
        }
    }
}

/// The contents of two choices, `{name: {…}}`, where the name is the same: only then do the preset's keys still mean
/// anything.
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
        assert_eq!(fill_in(&mut scenario).1, []);
        scenario["systems"].clone()
    }

    /// Keys of a cascade go over the preset's; with stages of its own nothing of the preset's is left.
    #[test]
    fn a_cascade_is_changed_key_by_key_or_stated_whole() {
        let of = |own: &str| systems(&format!("systems: [{{preset: tabi, cascade: {own}}}]"))[0]["cascade"].clone();
        let voted = of("{join: {vote: [1, 1]}}");
        assert_eq!(voted["join"]["vote"][0], Value::from(1));
        assert!(
            voted["join"].get("average").is_none() && voted["stages"][1]["model"] == "bert-large",
            "{voted:?}"
        );
        let stated = of("{stages: [{model: a}, {model: b}]}");
        assert!(
            stated.get("join").is_none() && stated.get("order").is_none(),
            "{stated:?}"
        );

        let mut scenario: Value = serde_yaml::from_str("systems: [{preset: tabi, cascade: {join: last}}]").unwrap();
        let path = Path::parse("systems[0].cascade.stages[0].reroute.cut_off").unwrap();
        unfold_stages(&mut scenario, &path);
        path.set(&mut scenario, Value::from(0.9)).unwrap();
        assert!(fill_in(&mut scenario).1.is_empty());
        let cascade = &scenario["systems"][0]["cascade"];
        assert_eq!(cascade["stages"][0]["reroute"]["cut_off"], Value::from(0.9));
        assert_eq!(
            (&cascade["join"], cascade["stages"][0]["model"].as_str()),
            (&Value::from("last"), Some("distilbert"))
        );
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

    /// One key of what holds decisions of its own leaves the others as the preset has them.
    #[test]
    fn decisions_are_changed_one_by_one() {
        let system = &systems(
            "systems: [{preset: punica, generation: {max_batch: 3, lora: {slots: 5}}}, \
             {preset: hmi, plot: {lower_layers: 2}}, {preset: hmi, plot: null}]",
        );
        let of = |name: &str| serde_yaml::from_str::<Value>(yaml(name).unwrap()).unwrap();
        let (generation, preset) = (&system[0]["generation"], &of("punica")["generation"]);
        assert_eq!(
            (&generation["max_batch"], &generation["prefill"]),
            (&Value::from(3), &preset["prefill"])
        );
        assert_eq!(generation["lora"]["slots"], Value::from(5));
        assert_eq!(generation["consolidate"], preset["consolidate"]);
        assert_eq!(system[1]["plot"]["lower_layers"], Value::from(2));
        assert_eq!(system[1]["plot"]["tier"], of("hmi")["plot"]["tier"]);
        assert_eq!(system[2]["plot"], Value::Null);
    }

    #[test]
    fn each_decision_of_a_section_goes_over_the_preset_alone() {
        let system =
            &systems("systems: [{preset: pets, tasks: {max_batch: 8, engine: {shared: {batching: beta-only}}}}]")[0];
        let preset: Value = serde_yaml::from_str(yaml("pets").unwrap()).unwrap();
        let (tasks, of_preset) = (&system["tasks"], &preset["tasks"]);
        assert_eq!(tasks["max_batch"], Value::from(8));
        assert_eq!(tasks["engine"]["shared"]["batching"], Value::from("beta-only"));
        assert_eq!(
            tasks["engine"]["shared"]["streams"],
            of_preset["engine"]["shared"]["streams"]
        );
        assert_eq!(tasks["planning"], of_preset["planning"]);
    }

    #[test]
    fn an_edited_preset_is_a_file() {
        let place = std::env::temp_dir().join(format!("tenantry-preset-{}.yaml", std::process::id()));
        let edited = yaml("bert-shared").unwrap().replace("name: bert-shared", "name: mine");
        fs::write(&place, edited).unwrap();
        let system = &systems(&format!(
            "systems: [{{preset: {}, pipeline: prefetch}}]",
            place.display()
        ))[0];
        assert_eq!(
            (&system["name"], &system["pipeline"]),
            (&"mine".into(), &"prefetch".into())
        );
        fs::remove_file(&place).unwrap();
        let mut gone = serde_yaml::from_str(&format!("systems: [{{preset: {}}}]", place.display())).unwrap();
        assert_eq!(fill_in(&mut gone).1.len(), 1);
    }

    #[test]
    fn runtimes_keep_what_is_not_named() {
        let system = &systems("systems: [{preset: arlo, runtimes: {slo: 450ms, allocate: even}}]")[0];
        assert_eq!(system["runtimes"]["slo"], Value::from("450ms"));
        assert_eq!(system["runtimes"]["allocate"], Value::from("even"));
        assert_eq!(system["runtimes"]["lengths"], Value::from("staircase"));
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
