//! Enums that are written by name, in tables, YAML and messages alike.

/// Gives an enum its names, for messages and for the cells of a table. They must be those that serde writes.
macro_rules! named {
    ($type:ident { $($variant:ident => $name:literal),+ $(,)? }) => {
        impl $type {
            /// All values, in the order of their names.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];
            /// The names of all values, as tables and YAML write them.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The value's name, as tables and YAML write it.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl crate::cells::Field for $type {
            fn form() -> crate::schema::Form {
                crate::schema::Form::text(Self::NAMES)
            }

            fn read(text: &str) -> Result<Self, crate::cells::Refused> {
                let found = Self::ALL.iter().find(|value| value.name() == text);
                found.copied().ok_or_else(|| crate::cells::Refused::name(text, Self::NAMES))
            }

            fn write(&self) -> String {
                self.name().to_string()
            }
        }
    };
}
pub(crate) use named;

/// The candidate that `got` is most likely a misspelling or the beginning of, if any is near; capitals are no
/// difference.
pub fn near_miss<'a>(got: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const BEGINNING: usize = 3;
    let got = got.to_lowercase();
    let length = got.chars().count();
    let tolerated_edits = (length / 3).max(1);
    let near = |candidate: &'a str| {
        let small = candidate.to_lowercase();
        let edits = strsim::damerau_levenshtein(&got, &small);
        let begins = length >= BEGINNING && small.starts_with(&got);
        (begins || edits <= tolerated_edits).then_some((!begins, edits, candidate))
    };
    let nearest = candidates.into_iter().filter(|_| length > 0).filter_map(near).min();
    nearest.map(|(.., candidate)| candidate.to_string())
}

/// What an error ends with where a [`near_miss`] is known: `; did you mean bert-base?`; nothing else.
pub fn did_you_mean<'a>(got: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    near_miss(got, candidates).map_or(String::new(), |near| format!("; did you mean {near}?"))
}

#[cfg(test)]
mod tests {
    use serde::{Serialize, de::DeserializeOwned};

    use super::near_miss;
    use crate::{
        AdapterImplementation, DType, DeviceKind, Direction, DispatchOperation, LoadSource, ModelKind, Source,
    };

    /// serde and the name agree on every value of an enum.
    fn agree<T: Serialize + DeserializeOwned + std::fmt::Display>(values: &[T]) {
        for value in values {
            let name = value.to_string();
            assert_eq!(serde_yaml::to_string(value).unwrap().trim(), name);
            let read: T = serde_yaml::from_str(&name).unwrap();
            assert_eq!(read.to_string(), name);
        }
    }

    #[test]
    fn names_are_those_that_serde_writes() {
        agree(ModelKind::ALL);
        agree(DType::ALL);
        agree(AdapterImplementation::ALL);
        agree(Direction::ALL);
        agree(LoadSource::ALL);
        agree(DispatchOperation::ALL);
        agree(DeviceKind::ALL);
        agree(Source::ALL);
    }

    #[test]
    fn near_misses_are_near() {
        let names = ["bert-base", "bert-large", "tiny"];
        assert_eq!(near_miss("bert-bsae", names).as_deref(), Some("bert-base"));
        assert_eq!(near_miss("bertlarge", names).as_deref(), Some("bert-large"));
        assert_eq!(near_miss("tin", names).as_deref(), Some("tiny"));
        assert_eq!(near_miss("llama", names), None);
        assert_eq!(near_miss("", names), None);
        assert_eq!(near_miss("BERT-base", names).as_deref(), Some("bert-base"));
        assert_eq!(near_miss("h100", ["v100", "h100-sxm"]).as_deref(), Some("h100-sxm"));
        assert_eq!(near_miss("", ["a"]), None, "one letter would be near everything");
    }
}
