//! Dotted paths into a scenario: what errors print, `--set` takes and `sweep` is keyed by.

use std::fmt;

use serde_yaml::Value;

use crate::error::{Problem, describe};

/// One step down.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Into a mapping.
    Key(String),
    /// Into a list, from 0.
    Index(usize),
}

/// Where something is in a scenario, as in `systems[1].batch.size-or-timeout.max_size`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// What `text` writes; nothing where it is not a path.
    pub fn parse(text: &str) -> Option<Path> {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let (key, mut indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            if key.is_empty() {
                return None;
            }
            steps.push(Step::Key(key.to_string()));
            while !indices.is_empty() {
                let (index, rest) = indices.strip_prefix('[')?.split_once(']')?;
                steps.push(Step::Index(index.parse().ok()?));
                indices = rest;
            }
        }
        Some(Path(steps))
    }

    /// What `--set` writes: as [`parse`](Self::parse), but that the keys of a sweep and of a plan's choices are paths,
    /// of which each is one step. `to_one` says that it is set to a single value, which no such key has: then a range's
    /// own keys may come behind it.
    pub fn parse_set(text: &str, to_one: bool) -> Option<Path> {
        if let Some(swept) = text.strip_prefix("sweep.") {
            let (key, of_range) = match swept.rsplit_once('.') {
                Some((key, of_range @ ("from" | "to" | "scale"))) if to_one => (key, Some(of_range)),
                _ => (swept, None),
            };
            let path = Path::default().key("sweep").key(Path::parse(key).map(|_| key)?);
            return Some(of_range.map_or(path.clone(), |of_range| path.key(of_range)));
        }
        if let Some(chosen) = text.strip_prefix("plan.choices.")
            && let Some((system, key)) = chosen.split_once('.')
        {
            let choices = Path::default().key("plan").key("choices").key(system);
            return Some(choices.key(Path::parse(key).map(|_| key)?));
        }
        Path::parse(text)
    }

    pub fn key(&self, key: &str) -> Path {
        self.step(Step::Key(key.to_string()))
    }

    pub fn index(&self, index: usize) -> Path {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Path {
        let mut steps = self.0.clone();
        steps.push(step);
        Path(steps)
    }

    /// These steps, and then `below`.
    pub fn join(&self, below: &[Step]) -> Path {
        Path([&self.0, below].concat())
    }

    /// One step up; nothing above the root.
    pub fn parent(&self) -> Option<Path> {
        let (_, above) = self.0.split_last()?;
        Some(Path(above.to_vec()))
    }

    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether `self` is at or below `above`.
    pub fn starts_with(&self, above: &Path) -> bool {
        self.0.starts_with(&above.0)
    }

    /// Puts `value` at this path of `root`, making the mappings on the way that are not there.
    pub fn set(&self, root: &mut Value, value: Value) -> Result<(), Problem> {
        let mut here = Path::default();
        let mut at = root;
        for step in &self.0 {
            if at.is_null() {
                *at = Value::Mapping(Default::default());
            }
            at = match (step, at) {
                (Step::Key(key), Value::Mapping(entries)) => entries.entry(key.as_str().into()).or_insert(Value::Null),
                (Step::Key(key), other) => {
                    let must = format!("a mapping, to have a key {key}");
                    let problem = Problem::new(here.clone(), must, describe(other));
                    return Err(match (&*other, key.parse::<usize>()) {
                        (Value::Sequence(_), Ok(index)) => problem.suggest(Some(here.index(index).to_string())),
                        _ => problem,
                    });
                }
                (Step::Index(index), Value::Sequence(list)) => {
                    let length = list.len();
                    list.get_mut(*index).ok_or_else(|| {
                        Problem::new(
                            here.clone(),
                            format!("a list with an entry [{index}]"),
                            format!("{length} entries"),
                        )
                    })?
                }
                (Step::Index(index), other) => {
                    return Err(Problem::new(
                        here,
                        format!("a list, to have an entry [{index}]"),
                        describe(other),
                    ));
                }
            };
            here = here.step(step.clone());
        }
        *at = value;
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if depth == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_they_print() {
        for text in ["seed", "tenants.count", "systems[1].batch", "a[0][12].b-c.d_e"] {
            assert_eq!(Path::parse(text).unwrap().to_string(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "[0]", "a[", "a[x]", "a[0]b", "a[-1]"] {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_entry_of_a_list_is_told_as_it_is_written() {
        let mut root: Value = serde_yaml::from_str("{systems: [{preset: hmi}]}").unwrap();
        let problem = Path::parse("systems.0.preset").unwrap().set(&mut root, Value::Null);
        let told = problem.unwrap_err().locate(Path::default(), "--set", None).to_string();
        assert!(told.ends_with("got a list; did you mean systems[0]?"), "{told}");
    }

    #[test]
    fn keys_that_are_paths_are_set_whole() {
        let set = |path: &str, root: &str, value: &str| {
            let mut root: Value = serde_yaml::from_str(root).unwrap();
            let value: Value = serde_yaml::from_str(value).unwrap();
            let path = Path::parse_set(path, !value.is_sequence() && !value.is_mapping()).unwrap();
            path.set(&mut root, value).unwrap();
            serde_yaml::to_string(&root).unwrap()
        };
        let swept = set(
            "sweep.systems[0].batch.max_size",
            "{sweep: {tenants.count: [1]}}",
            "[2]",
        );
        assert_eq!(
            swept,
            "sweep:\n  tenants.count:\n  - 1\n  systems[0].batch.max_size:\n  - 2\n"
        );
        let range = set(
            "sweep.tenants.count.to",
            "{sweep: {tenants.count: {from: 1, to: 2}}}",
            "9",
        );
        assert_eq!(range, "sweep:\n  tenants.count:\n    from: 1\n    to: 9\n");
        let chosen = set(
            "plan.choices.punica.generation.max_batch",
            "{plan: {choices: {}}}",
            "[16]",
        );
        assert_eq!(
            chosen,
            "plan:\n  choices:\n    punica:\n      generation.max_batch:\n      - 16\n"
        );
        let ends_so = set("sweep.stages[0].layers.to", "{sweep: {}}", "[1, 2]");
        assert_eq!(ends_so, "sweep:\n  stages[0].layers.to:\n  - 1\n  - 2\n");
        assert_eq!(Path::parse_set("tenants.count", true), Path::parse("tenants.count"));
        assert_eq!(Path::parse_set("sweep.a..b", false), None);
    }

    #[test]
    fn setting_makes_the_mappings_on_the_way() {
        let mut root: Value = serde_yaml::from_str("{a: 1, l: [x, y]}").unwrap();
        Path::parse("b.c.d").unwrap().set(&mut root, 2.into()).unwrap();
        Path::parse("l[1]").unwrap().set(&mut root, "z".into()).unwrap();
        assert_eq!(
            root,
            serde_yaml::from_str::<Value>("{a: 1, l: [x, z], b: {c: {d: 2}}}").unwrap()
        );
    }
}
