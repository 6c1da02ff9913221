//! A plan's choices: every system with each combination of the values that are tried, and what is wrong with them.

use serde_json::Value as Json;
use serde_yaml::Value;

use crate::decode::decode;
use crate::error::{PROBLEMS_MAX, Problem};
use crate::path::Path;
use crate::plan::{Way, check_system, numbers_of_cards};
use crate::raw::{RawPlan, RawScenario};
use crate::resolve::resolve;
use crate::scenario::written;
use crate::sweep::{given_again, set_as_a_whole};

/// Combinations of one system's choices, at most: each is searched by itself.
const OPTIONS_MAX: usize = 10_000;

/// A value of one of a system's keys.
#[derive(Clone, Debug)]
struct Choice<'a> {
    key: &'a str,
    value: &'a Value,
    /// Where in the file it is.
    source: Path,
}

/// Every combination of a system's choices: one of nothing where it has none.
fn combinations<'a>(plan: &'a RawPlan, system: &str) -> Vec<Vec<Choice<'a>>> {
    let of_system = Path::default().key("plan").key("choices").key(system);
    let mut combinations: Vec<Vec<Choice<'a>>> = vec![Vec::new()];
    for (key, values) in plan.choices.get(system).into_iter().flatten() {
        let source = of_system.key(key);
        let longer = |so_far: Vec<Choice<'a>>| {
            let source = source.clone();
            values.iter().enumerate().map(move |(index, value)| {
                let source = source.index(index);
                so_far.iter().cloned().chain([Choice { key, value, source }]).collect()
            })
        };
        combinations = combinations.into_iter().flat_map(longer).collect();
    }
    combinations
}

/// The ways of a plan: by system, in the file's order. What is no path, or no value, is a problem.
pub(crate) fn ways(raw: &RawScenario, plan: &RawPlan, problems: &mut Vec<Problem>) -> Vec<Way> {
    let path = Path::default().key("plan").key("choices");
    let names = || raw.systems.iter().map(|system| system.name.0.as_str());
    for system in plan.choices.keys().filter(|name| !names().any(|known| known == *name)) {
        problems.push(Problem::unknown_name(path.key(system), system, names()));
    }
    // Before any value is looked at.
    for (system, keys) in &plan.choices {
        let options = keys.values().map(Vec::len).try_fold(1, usize::checked_mul);
        if options.is_none_or(|options| options > OPTIONS_MAX) {
            let must = format!("at most {OPTIONS_MAX} combinations");
            let got = options.map_or("more than can be counted".to_owned(), |options| options.to_string());
            problems.push(Problem::new(path.key(system), must, got));
        }
    }
    if !problems.is_empty() {
        return Vec::new();
    }
    for (system, keys) in &plan.choices {
        for (key, values) in keys {
            let path = path.key(system).key(key);
            if key == "name" {
                let must = "left out: options are told apart by what is chosen";
                problems.push(Problem::new(path, must, "a choice of names"));
            } else if let Some(problem) = set_as_a_whole(key, keys.keys(), &path, "another choice") {
                problems.push(problem);
            } else if let Some(problem) = given_again(values, &path) {
                problems.push(problem);
            } else if Path::parse(key).is_none() {
                let must = "the path of one of the system's keys, such as batch.size-or-timeout.max_size";
                problems.push(Problem::new(path, must, key));
            } else if values.is_empty() {
                problems.push(Problem::new(path, "a list of at least one value", "an empty list"));
            } else if let Some(index) = values.iter().position(|value| json(value).is_none()) {
                let must = "a value without YAML tags and with texts as keys";
                problems.push(Problem::new(path.index(index), must, "another"));
            }
        }
    }
    if !problems.is_empty() {
        return Vec::new();
    }
    let setting = |choice: &Choice<'_>| Some((choice.key.to_string(), json(choice.value)?));
    let of_system = |system: &str| {
        let way = |choices: Vec<Choice<'_>>| Way {
            system: system.to_string(),
            settings: choices.iter().filter_map(setting).collect(),
        };
        combinations(plan, system).into_iter().map(way).collect::<Vec<Way>>()
    };
    names().flat_map(of_system).collect()
}

fn json(value: &Value) -> Option<Json> {
    serde_json::to_value(value).ok()
}

/// What is wrong with a system once the plan has made its choices, in terms of the choices: what `plan` would otherwise
/// find while it searches, in a scenario that nobody wrote. They are made in the system with every default written out.
pub(crate) fn check(raw: &RawScenario) -> Result<(), Vec<Problem>> {
    let Some(plan) = raw.plan.as_ref().filter(|plan| !plan.choices.is_empty()) else {
        return Ok(());
    };
    let alone = RawScenario {
        plan: None,
        ..raw.clone()
    };
    let tree: Value = serde_yaml::from_str(&written(&alone)).expect("what was written can be read");
    let (gpus, all_gpus) = (numbers_to_check(raw, plan), numbers_of_cards(raw, plan));
    let mut problems: Vec<Problem> = Vec::new();
    for (index, system) in raw.systems.iter().enumerate() {
        let chosen = combinations(plan, &system.name.0).into_iter().filter(|choices| !choices.is_empty());
        for choices in chosen {
            for problem in wrong(&tree, index, &choices, plan, (&gpus, &all_gpus)) {
                // Each value is in many combinations, and would be wrong in all of them.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
            if problems.len() >= PROBLEMS_MAX {
                return Err(problems);
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Numbers of cards of which one must do for a combination: some take cards by twos, say. From the most on, and no more
/// than show it.
fn numbers_to_check(raw: &RawScenario, plan: &RawPlan) -> Vec<u32> {
    const ENOUGH: usize = 64;
    let mut gpus = numbers_of_cards(raw, plan);
    gpus.sort_unstable_by(|a, b| b.cmp(a));
    gpus.truncate(ENOUGH);
    gpus
}

/// What is wrong with one combination for a system, with whichever of these numbers of cards: as it is with the first
/// of them. What is wrong there with another system is left out: each is tried with the numbers that it takes. A
/// combination that is right may be none that a plan over all numbers can ask for.
fn wrong(
    tree: &Value,
    index: usize,
    choices: &[Choice<'_>],
    plan: &RawPlan,
    (gpus, all_gpus): (&[u32], &[u32]),
) -> Vec<Problem> {
    let mut tree = tree.clone();
    let place = &Path::default().key("systems").index(index);
    let chosen = |choice: &Choice<'_>| place.join(Path::parse(choice.key).expect("keys were checked").steps());
    for choice in choices {
        if let Err(problem) = chosen(choice).set(&mut tree, choice.value.clone()) {
            return vec![problem.moved(choice.source.clone())];
        }
    }
    let systems = place.parent().expect("a system is in a list");
    let of_cluster = Path::default().key("cluster").key("gpus");
    let mut problems = None;
    for &count in gpus {
        of_cluster.set(&mut tree, count.into()).expect("a cluster has cards");
        let decoded = decode::<RawScenario>(&tree);
        let mut found = match &decoded {
            Ok(raw) => resolve(raw).err().unwrap_or_default(),
            Err(found) => found.clone(),
        };
        found.retain(|problem| problem.path().starts_with(place) || !problem.path().starts_with(&systems));
        if found.is_empty() {
            if let Ok(raw) = &decoded {
                check_system(&raw.systems[index], plan, all_gpus, place, &mut found);
            }
            problems = Some(found);
            break;
        }
        problems.get_or_insert(found);
    }
    let problems = problems.unwrap_or_default();
    let blame = |problem: Problem| {
        let path = problem.path();
        match choices.iter().find(|choice| path.starts_with(&chosen(choice))) {
            Some(choice) => {
                let below = &path.steps()[chosen(choice).steps().len()..];
                // A key that there is not is wrong with any value.
                let source = match (below, problem.is_of_a_key()) {
                    ([], true) => choice.source.parent().expect("a choice is in a list"),
                    _ => choice.source.join(below),
                };
                problem.moved(source)
            }
            // Right in itself, but not together with what is chosen.
            None => {
                let value = |choice: &Choice<'_>| Some(format!("{} is {}", choice.key, json(choice.value)?));
                let together: Vec<String> = choices.iter().filter_map(value).collect();
                problem.given(&together.join(" and "))
            }
        }
    };
    problems.into_iter().map(blame).collect()
}
