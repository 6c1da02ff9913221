//! What a cell of a table may hold: names, switches, whole numbers and microseconds.

use crate::names::near_miss;
use crate::schema::Form;

/// A cell that does not hold what its column must.
#[derive(Debug)]
pub(crate) struct Refused {
    pub must: String,
    pub suggested: Option<String>,
}

/// The column of a refused cell, and why.
pub(crate) type RefusedIn = (&'static str, Refused);

impl Refused {
    /// Not one of the names that the column knows.
    pub fn name(got: &str, names: &[&str]) -> Refused {
        Refused {
            must: one_of(names),
            suggested: near_miss(got, names.iter().copied()),
        }
    }
}

/// "a, b or c".
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "nothing".to_string(),
        [only] => only.to_string(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The type of a column.
pub(crate) trait Field: Sized {
    fn form() -> Form;
    fn read(text: &str) -> Result<Self, Refused>;
    fn write(&self) -> String;
    /// Calls a model otherwise, where this is one's name: of all cells only those are free text.
    fn rename(&mut self, _model: &str) {}
}

impl Field for String {
    fn form() -> Form {
        Form::text(&[])
    }

    fn read(text: &str) -> Result<Self, Refused> {
        let refused = || Refused {
            must: "a name".into(),
            suggested: None,
        };
        if text.is_empty() {
            Err(refused())
        } else {
            Ok(text.to_string())
        }
    }

    fn write(&self) -> String {
        self.clone()
    }

    fn rename(&mut self, model: &str) {
        model.clone_into(self);
    }
}

impl Field for bool {
    fn form() -> Form {
        Form::switch()
    }

    fn read(text: &str) -> Result<Self, Refused> {
        text.parse().map_err(|_| Refused::name(text, &["true", "false"]))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// Dimensions and counts start at 1. The bound keeps twice a dimension, and its conversion to `f64`, exact.
const WHOLE_MAX: u64 = 1 << 48;

impl Field for u64 {
    fn form() -> Form {
        Form::whole(WHOLE_MAX)
    }

    fn read(text: &str) -> Result<Self, Refused> {
        let refused = || Refused {
            must: format!("a whole number from 1 to {WHOLE_MAX}"),
            suggested: None,
        };
        text.parse().ok().filter(|value| (1..=WHOLE_MAX).contains(value)).ok_or_else(refused)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Field for u32 {
    fn form() -> Form {
        Form::whole(u32::MAX.into())
    }

    fn read(text: &str) -> Result<Self, Refused> {
        let refused = || Refused {
            must: format!("a whole number from 1 to {}", u32::MAX),
            suggested: None,
        };
        text.parse().ok().filter(|value| *value >= 1).ok_or_else(refused)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// Far below the 584 years that 64 bits of nanoseconds hold.
const MICROSECONDS_MAX: f64 = 1e10;

/// Microseconds.
impl Field for f64 {
    fn form() -> Form {
        Form::above_zero(MICROSECONDS_MAX)
    }

    fn read(text: &str) -> Result<Self, Refused> {
        let refused = || Refused {
            must: format!("microseconds above 0 and up to {MICROSECONDS_MAX:e}"),
            suggested: None,
        };
        text.parse().ok().filter(|value| *value > 0.0 && *value <= MICROSECONDS_MAX).ok_or_else(refused)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// One line of a table, by column name.
pub(crate) trait Cells {
    /// The value in `column`; the error has the column's name with it.
    fn cell<T: Field>(&self, column: &'static str) -> Result<T, RefusedIn>;
}
