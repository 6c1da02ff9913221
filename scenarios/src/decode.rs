//! From a YAML value to a raw type, with a path for everything that is wrong.
//!
//! It differs from `serde_yaml::from_value` in three ways: problems carry paths and come in parts ([`Problem`]); a
//! choice with content is written as a mapping with one key, `poisson: {rate: 5/s}`, rather than as a YAML tag; and one
//! reading finds every problem, by leaving out what is wrong and looking again.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_yaml::Value;

use crate::error::{Problem, describe, one_of};
use crate::path::Path;

/// `value` as a `T`, or all that keeps it from being one.
pub(crate) fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, Vec<Problem>> {
    let mut left_out = BTreeSet::new();
    let mut problems = Vec::new();
    loop {
        let problem = match T::deserialize(At {
            value,
            path: Path::default(),
            left_out: &left_out,
        }) {
            Ok(decoded) if problems.is_empty() => return Ok(decoded),
            Ok(_) => return Err(problems),
            Err(problem) => problem,
        };
        // What was left out is missed later on. That is no problem of its own, but what misses it can't be had either.
        let mut path = problem.path();
        if !left_out.contains(&path) {
            problems.push(problem);
        }
        while !left_out.insert(path.clone()) {
            match path.parent() {
                Some(parent) => path = parent,
                None => return Err(problems),
            }
        }
        if left_out.contains(&Path::default()) {
            return Err(problems);
        }
    }
}

/// A value and where it is.
#[derive(Clone)]
struct At<'a> {
    value: &'a Value,
    path: Path,
    left_out: &'a BTreeSet<Path>,
}

impl<'a> At<'a> {
    fn must<T>(&self, must: impl Into<String>) -> Result<T, Problem> {
        Err(Problem::somewhere(must).at(&self.path, self.value))
    }

    fn child(&self, path: Path, value: &'a Value) -> At<'a> {
        At {
            value,
            path,
            left_out: self.left_out,
        }
    }
}

impl<'de> Deserializer<'de> for At<'de> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let visited = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(whole), ..) => visitor.visit_u64(whole),
                (_, Some(whole), _) => visitor.visit_i64(whole),
                (.., float) => visitor.visit_f64(float.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Sequence(list) => visitor.visit_seq(Elements {
                at: self.clone(),
                list: list.iter().enumerate(),
            }),
            Value::Mapping(entries) => visitor.visit_map(Entries {
                at: self.clone(),
                entries: entries.iter(),
                value: None,
            }),
            Value::Tagged(_) => return self.must("without a YAML tag"),
        };
        visited.map_err(|problem| problem.at(&self.path, self.value))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match self.value {
            Value::Mapping(_) => self.deserialize_any(visitor),
            _ => self.must(format!("a mapping with keys out of {}", fields.join(", "))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let choice = match self.value {
            Value::String(name) => Choice {
                at: self.clone(),
                name,
                content: None,
            },
            Value::Mapping(entries) if entries.len() == 1 => {
                let (name, content) = entries.iter().next().expect("one entry");
                let Value::String(name) = name else {
                    return self.must(one_of(variants.iter().copied()));
                };
                let content = self.child(self.path.key(name), content);
                if self.left_out.contains(&content.path) {
                    return content.must("right");
                }
                Choice {
                    at: self.clone(),
                    name,
                    content: Some(content),
                }
            }
            Value::Mapping(entries) if entries.len() > 1 => {
                let must = format!("only {}", one_of(variants.iter().copied()));
                // One that nobody knows may be a known one mistyped.
                let mut names = entries.keys().filter_map(Value::as_str);
                return match names.find(|name| !variants.contains(name)) {
                    Some(name) => Err(Problem::unknown_name(self.path, name, variants.iter().copied()).must(must)),
                    None => self.must(must),
                };
            }
            _ => return self.must(one_of(variants.iter().copied())),
        };
        visitor.visit_enum(choice).map_err(|problem| problem.at(&self.path, self.value))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::String(_) => self.deserialize_any(visitor),
            _ => self.must("text"),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Number(number) if number.is_u64() => self.deserialize_any(visitor),
            _ => self.must("a whole number, 0 or above"),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Bool(_) => self.deserialize_any(visitor),
            _ => self.must("true or false"),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Sequence(_) => self.deserialize_any(visitor),
            _ => self.must("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::Mapping(_) => self.deserialize_any(visitor),
            _ => self.must("a mapping"),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str bytes byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

struct Elements<'a> {
    at: At<'a>,
    list: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        for (index, value) in self.list.by_ref() {
            let path = self.at.path.index(index);
            if !self.at.left_out.contains(&path) {
                return seed.deserialize(self.at.child(path, value)).map(Some);
            }
        }
        Ok(None)
    }
}

struct Entries<'a> {
    at: At<'a>,
    entries: serde_yaml::mapping::Iter<'a>,
    /// Of the key that was read last.
    value: Option<At<'a>>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        for (key, value) in self.entries.by_ref() {
            let Value::String(key) = key else {
                let got = format!("a key that is {}", describe(key));
                return Err(Problem::new(self.at.path.clone(), "a mapping with texts as keys", got));
            };
            let path = self.at.path.key(key);
            if !self.at.left_out.contains(&path) {
                self.value = Some(self.at.child(path, value));
                return seed.deserialize(StrDeserializer::new(key)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Problem> {
        seed.deserialize(self.value.take().expect("a value follows its key"))
    }
}

/// One of several: a name, or a mapping of one name to its content.
struct Choice<'a> {
    at: At<'a>,
    name: &'a str,
    content: Option<At<'a>>,
}

static NO_CONTENT: LazyLock<Value> = LazyLock::new(|| Value::Mapping(Default::default()));

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Problem;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Problem> {
        Ok((seed.deserialize(StrDeserializer::new(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'de> {
    type Error = Problem;

    fn unit_variant(self) -> Result<(), Problem> {
        match self.content {
            Some(content) if !content.value.is_null() => self.at.must(format!("{} alone", self.name)),
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Problem> {
        match self.content {
            Some(content) => seed.deserialize(content),
            None => self.at.must(format!("a mapping {{{}: …}}", self.name)),
        }
    }

    /// A name alone stands for content with nothing but defaults.
    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Problem> {
        let content = self.content.unwrap_or_else(|| self.at.child(self.at.path.key(self.name), &NO_CONTENT));
        content.deserialize_struct("", fields, visitor)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Problem> {
        match self.content {
            Some(content) => content.deserialize_seq(visitor),
            None => self.at.must(format!("a mapping {{{}: […]}}", self.name)),
        }
    }
}
