//! Names, counts, and numbers without a unit.

use schemars::{Schema, json_schema};

use super::{Plain, Scalar};

/// What something is called in reports and in other keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

impl Scalar for Name {
    const MUST: &'static str = "a name";

    fn read(plain: Plain<'_>) -> Option<Name> {
        plain.text().filter(|text| !text.trim().is_empty()).map(|text| Name(text.to_string()))
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(self.0.clone().into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"\S"})
    }
}

/// A number of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

impl Scalar for Count {
    const MUST: &'static str = "a whole number from 1 to 4294967295";

    fn read(plain: Plain<'_>) -> Option<Count> {
        plain.whole().and_then(|whole| u32::try_from(whole).ok()).filter(|&whole| whole > 0).map(Count)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Whole(self.0.into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "integer", "minimum": 1, "maximum": u32::MAX})
    }
}

/// Numbers of things that differ in how many there may be: memory and time go with them.
macro_rules! counts {
    ($($(#[$doc:meta])* $type:ident($most:expr, $must:literal);)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $type(pub u32);

        impl Scalar for $type {
            const MUST: &'static str = $must;

            fn read(plain: Plain<'_>) -> Option<$type> {
                Count::read(plain).map(|count| count.0).filter(|&count| count <= $most).map($type)
            }

            fn write(&self) -> Plain<'static> {
                Plain::Whole(self.0.into())
            }

            fn schema() -> Schema {
                json_schema!({"type": "integer", "minimum": 1, "maximum": $most})
            }
        }
    )+};
}

/// Cards of a cluster at most.
pub const GPUS_MAX: u32 = 100_000;

counts! {
    /// Cards of a cluster.
    GpuCount(GPUS_MAX, "a whole number from 1 to 100000");
    /// Clients that wait for their answers.
    ClientCount(10_000_000, "a whole number from 1 to 10000000");
    /// Threads that ask at a steady pace: those that have begun are kept in memory.
    ThreadCount(10_000_000, "a whole number from 1 to 10000000");
    /// Times that something is done again.
    RepeatCount(10_000, "a whole number from 1 to 10000");
    /// Classes of a head, widths inside adapters, ranks.
    WidthCount(1 << 20, "a whole number from 1 to 1048576");
    /// Instances on a card.
    InstanceCount(1024, "a whole number from 1 to 1024");
    /// Points of a sweep that are drawn.
    SampleCount(100_000, "a whole number from 1 to 100000");
}

/// Which one, of a tenant or a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index(pub u32);

impl Scalar for Index {
    const MUST: &'static str = "a whole number from 0 to 4294967295";

    fn read(plain: Plain<'_>) -> Option<Index> {
        plain.whole().and_then(|whole| u32::try_from(whole).ok()).map(Index)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Whole(self.0.into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "integer", "minimum": 0, "maximum": u32::MAX})
    }
}

/// A number of things of which there may be very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongCount(pub u64);

impl Scalar for LongCount {
    const MUST: &'static str = "a whole number, at least 1";

    fn read(plain: Plain<'_>) -> Option<LongCount> {
        plain.whole().filter(|&whole| whole > 0).map(LongCount)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Whole(self.0)
    }

    fn schema() -> Schema {
        json_schema!({"type": "integer", "minimum": 1})
    }
}

/// Numbers without a unit that differ in their range alone.
macro_rules! numbers {
    ($($(#[$doc:meta])* $type:ident($within:expr, $must:literal, $schema:tt);)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $type(pub f64);

        impl Scalar for $type {
            const MUST: &'static str = $must;

            fn read(plain: Plain<'_>) -> Option<$type> {
                let within: fn(f64) -> bool = $within;
                plain.float().filter(|&float| within(float)).map($type)
            }

            fn write(&self) -> Plain<'static> {
                Plain::Float(self.0)
            }

            fn schema() -> Schema {
                json_schema!($schema)
            }
        }
    )+};
}

numbers! {
    /// A factor or a size.
    Positive(|x| x > 0.0, "a number above 0", {"type": "number", "exclusiveMinimum": 0});
    /// A factor or an exponent that may be 0.
    NotNegative(|x| x >= 0.0, "a number, 0 or above", {"type": "number", "minimum": 0});
    /// A coefficient of variation: beyond the most, thousands would come at the same instant.
    Variation(|x| x > 0.0 && x <= 100.0, "a number above 0, at most 100", {"type": "number", "exclusiveMinimum": 0, "maximum": 100});
    /// How many times as much.
    AboveOne(|x| x > 1.0, "a number above 1", {"type": "number", "exclusiveMinimum": 1});
    /// A part of a whole.
    Share(|x| x > 0.0 && x < 1.0, "a number between 0 and 1", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1});
}
