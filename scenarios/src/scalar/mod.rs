//! Numbers and quantities as a scenario writes them: each type knows its range and its unit, so that a value that is
//! read is a value that makes sense. Quantities have units; a bare number is refused.

mod meant;
mod number;
mod quantity;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

pub use meant::MeantTime;
pub use number::*;
pub use quantity::*;

/// What stands in the YAML, and what is written back.
#[derive(Clone, Debug, PartialEq)]
enum Plain<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Float(f64),
}

impl Plain<'_> {
    fn float(&self) -> Option<f64> {
        match self {
            Plain::Text(_) => None,
            Plain::Whole(whole) => Some(*whole as f64),
            Plain::Float(float) => Some(*float).filter(|float| float.is_finite()),
        }
    }

    fn whole(&self) -> Option<u64> {
        match self {
            Plain::Whole(whole) => Some(*whole),
            _ => None,
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Plain::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number that a text says.
    fn unquoted(&self) -> Option<Plain<'static>> {
        let text = self.text()?.trim();
        let whole = text.parse().map(Plain::Whole);
        whole.or_else(|_| text.parse().map(Plain::Float)).ok()
    }
}

/// A type that is one plain value in YAML.
trait Scalar: Sized {
    /// Completes "must be …".
    const MUST: &'static str;
    /// `None` where the value is not what [`MUST`](Self::MUST) says.
    fn read(plain: Plain<'_>) -> Option<Self>;
    /// What may be meant by a text, or a number, that is not.
    fn meant(_: &str) -> Option<String> {
        None
    }
    /// What [`read`](Self::read) reads as this value.
    fn write(&self) -> Plain<'static>;
    fn schema() -> Schema;
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: Scalar> ScalarVisitor<T> {
    fn visit<E: de::Error>(&self, plain: Plain<'_>) -> Result<T, E> {
        T::read(plain.clone()).ok_or_else(|| {
            let unquoted = plain.unquoted().filter(|number| T::read(number.clone()).is_some()).is_some();
            let text = match plain {
                Plain::Text(text) => text,
                Plain::Whole(whole) => whole.to_string().into(),
                Plain::Float(float) => float.to_string().into(),
            };
            let would_do = |meant: &String| T::read(Plain::Text(meant.into())).is_some();
            let meant = match unquoted {
                true => format!("{text} without quotes"),
                false => T::meant(&text).filter(would_do).unwrap_or_default(),
            };
            // What was there instead, the decoder knows; what is meant by it goes in its place.
            E::invalid_value(de::Unexpected::Other(&meant), self)
        })
    }
}

impl<T: Scalar> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::MUST)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.visit(Plain::Text(text.into()))
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<T, E> {
        self.visit(Plain::Whole(whole))
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<T, E> {
        self.visit(u64::try_from(whole).map_or(Plain::Float(whole as f64), Plain::Whole))
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<T, E> {
        self.visit(Plain::Float(float))
    }
}

/// Wires scalars to serde and schemars.
macro_rules! scalars {
    ($($type:ident),+ $(,)?) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(ScalarVisitor::<$type>(PhantomData))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.write() {
                    Plain::Text(text) => serializer.serialize_str(&text),
                    Plain::Whole(whole) => serializer.serialize_u64(whole),
                    Plain::Float(float) => serializer.serialize_f64(float),
                }
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let mut schema = <$type as Scalar>::schema();
                schema.insert("description".to_string(), <$type as Scalar>::MUST.into());
                schema
            }
        }
    )+};
}

scalars!(
    Name,
    Count,
    GpuCount,
    ClientCount,
    ThreadCount,
    RepeatCount,
    SampleCount,
    WidthCount,
    InstanceCount,
    Variation,
    LongPeriod,
    Index,
    LongCount,
    Positive,
    NotNegative,
    AboveOne,
    Share,
    Span,
    Moment,
    Period,
    Rate,
    RateOrZero,
    Memory,
    Bandwidth,
    Percent,
    Part,
    AtQuantile
);
