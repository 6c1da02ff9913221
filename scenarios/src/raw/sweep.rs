//! `sweep:` and `samples:` — which keys take which values.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_yaml::Value;

use crate::scalar::SampleCount;

/// Dotted paths and the values that they take, in the file's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawSweep(pub Vec<(String, RawAxis)>);

/// The values of one key.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RawAxis {
    /// Each of them.
    Values(Vec<Value>),
    /// Drawn.
    Range(RawRange),
}

/// Values between two, drawn as `samples` says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRange {
    /// The least: a number, or one with a unit. Between whole numbers, whole numbers are drawn.
    #[schemars(with = "serde_json::Value")]
    pub from: Value,
    /// The most, in the same unit.
    #[schemars(with = "serde_json::Value")]
    pub to: Value,
    /// What is drawn evenly.
    #[serde(default)]
    pub scale: RawScale,
}

/// What is drawn evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawScale {
    /// The value.
    #[default]
    Linear,
    /// Its logarithm.
    Log,
}

/// How many points are drawn from the sweep's ranges, and how.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawSamples {
    /// Each on its own.
    Random(SampleCount),
    /// So that each key has one value in each of as many equal parts of its range (McKay, Beckman and Conover,
    /// Technometrics 21(2), 1979).
    LatinHypercube(SampleCount),
}

impl RawSweep {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for RawSweep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = serializer.serialize_map(Some(self.0.len()))?;
        for (path, axis) in &self.0 {
            entries.serialize_entry(path, axis)?;
        }
        entries.end()
    }
}

impl<'de> Deserialize<'de> for RawSweep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawSweep, D::Error> {
        struct SweepVisitor;

        impl<'de> Visitor<'de> for SweepVisitor {
            type Value = RawSweep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of dotted paths to lists of values or ranges")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawSweep, A::Error> {
                let mut sweep = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    sweep.push(entry);
                }
                Ok(RawSweep(sweep))
            }
        }

        deserializer.deserialize_map(SweepVisitor)
    }
}

list_or_mapping!(RawAxis, "a list, or a range {from: …, to: …}", Values, Range);

impl JsonSchema for RawSweep {
    fn schema_name() -> Cow<'static, str> {
        "RawSweep".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let range = generator.subschema_for::<RawRange>();
        json_schema!({
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "array", "minItems": 1}, range]},
        })
    }
}
