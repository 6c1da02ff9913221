//! On which line of a YAML text a value is.
//!
//! The parser tells positions only of errors. So the text is read once more, by a visitor that walks down a path and
//! raises an error at its end. Lines are looked up only for messages, so that reading twice costs nothing that matters.

use std::fmt;

use serde::de::DeserializeSeed;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::path::{Path, Step};

/// The line, from 1, of what `path` leads to in `text`, or of the nearest thing above that is there.
pub(crate) fn line_of(text: &str, path: &Path) -> Option<u64> {
    let steps = path.steps();
    (1..=steps.len()).rev().find_map(|count| probed(text, &steps[..count], 1))
}

/// The line where a key stands for the second time in its mapping.
pub(crate) fn second_line_of(text: &str, path: &Path) -> Option<u64> {
    probed(text, path.steps(), 2)
}

fn probed(text: &str, steps: &[Step], nth: usize) -> Option<u64> {
    let found = Probe { steps, nth }.deserialize(serde_yaml::Deserializer::from_str(text));
    Some(found.err()?.location()?.line() as u64)
}

/// Raises an error at the end of the steps, where its key is found for the nth time; ends in peace where they lead
/// nowhere.
struct Probe<'a> {
    steps: &'a [Step],
    nth: usize,
}

impl<'de> DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end of the path")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((Step::Key(key), steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("here"));
        };
        let mut nth = self.nth;
        while let Some(found) = entries.next_key_seed(Key {
            key,
            is_last: steps.is_empty() && nth == 1,
        })? {
            match found {
                true if steps.is_empty() => {
                    nth -= 1;
                    entries.next_value::<IgnoredAny>()?;
                }
                true => entries.next_value_seed(Probe { steps, nth })?,
                false => drop(entries.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((Step::Index(index), steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("here"));
        };
        for _ in 0..*index {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        list.next_element_seed(Probe { steps, nth: self.nth })?;
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Whether a key is the one wanted; an error, and so a position, where that is the end of the path.
struct Key<'a> {
    key: &'a str,
    is_last: bool,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        match key == self.key {
            true if self.is_last => Err(E::custom("here")),
            found => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_keys_and_entries() {
        let text = "a: 1\nb:\n  c: 2\n\n  d: {e: 3}\nl:\n  - x\n  - y: 1\n    z: 2\n";
        for (path, line) in [
            ("a", Some(1)),
            ("b", Some(2)),
            ("b.c", Some(3)),
            ("b.d.e", Some(5)),
            ("b.missing", Some(2)),
            ("b.c.deeper", Some(3)),
            ("l[0]", Some(7)),
            ("l[1]", Some(8)),
            ("l[1].z", Some(9)),
            ("l[7]", Some(6)),
            ("missing", None),
        ] {
            assert_eq!(line_of(text, &Path::parse(path).unwrap()), line, "{path}");
        }
    }

    #[test]
    fn lines_of_keys_that_stand_twice() {
        let text = "a: 1\nl:\n  - x: 1\n    y: 2\n    x: 3\na: 2\n";
        for (path, line) in [("a", Some(6)), ("l[0].x", Some(5)), ("l[0].y", None)] {
            assert_eq!(second_line_of(text, &Path::parse(path).unwrap()), line, "{path}");
        }
    }
}
