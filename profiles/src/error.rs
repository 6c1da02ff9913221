//! What can be wrong with a profile, in the form `file:LINE: field: must be …, got …; did you mean …?`.

use std::{fmt, io};

use crate::family::Family;

/// A profile that could not be found, read, understood or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A file could not be read, or a folder not be written to.
    #[error("{path}: must be {access}, got: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What was tried.
        access: Access,
        /// What the operating system said.
        source: io::Error,
    },
    /// Something in a profile is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No card has the name asked for. Who asked knows where the name stands.
    #[error(
        "must be a folder with a card.yaml or one of {}, got {name}{}",
        list(available),
        suggestion(suggested)
    )]
    UnknownCard {
        /// The name asked for.
        name: String,
        /// The cards that there are.
        available: Vec<String>,
        /// The card probably meant.
        suggested: Option<String>,
    },
}

/// What was tried with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read a file.
    Read,
    /// To read what is in a folder.
    List,
    /// To write to a folder.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "a file that can be read",
            Access::List => "a folder that can be read",
            Access::Write => "a folder that can be written to",
        })
    }
}

/// One wrong value in a profile, or in what one is made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}must be {must}, got {got}{}", colon(field), suggestion(suggested))]
pub struct Invalid {
    /// The file, as the user can open it, with the line where one is at fault: `cards/cpu/copy.csv:7`; or an argument:
    /// `--gpu`.
    pub place: String,
    /// The column of a table or the dotted path of a field; empty where the place is all there is to say.
    pub field: String,
    /// What the value must be.
    pub must: String,
    /// What it is.
    pub got: String,
    /// The value probably meant.
    pub suggested: Option<String>,
}

impl Invalid {
    pub(crate) fn new(file: &str, field: &str, must: impl Into<String>, got: impl Into<String>) -> Invalid {
        let (must, got) = (must.into(), got.into());
        Invalid {
            place: file.to_string(),
            field: field.to_string(),
            must,
            got,
            suggested: None,
        }
    }

    /// Of an argument of the command line, as it is called there.
    pub(crate) fn argument(argument: &str, must: impl Into<String>, got: impl Into<String>) -> Invalid {
        Invalid::new(argument, "", must, got)
    }

    /// The same, in a line of the file.
    pub(crate) fn in_line(self, line: u64) -> Invalid {
        Invalid {
            place: format!("{}:{line}", self.place),
            ..self
        }
    }

    /// The same, with the value probably meant.
    pub(crate) fn suggest(self, suggested: Option<String>) -> Invalid {
        Invalid { suggested, ..self }
    }
}

fn colon(field: &str) -> String {
    match field {
        "" => String::new(),
        field => format!("{field}: "),
    }
}

fn suggestion(suggested: &Option<String>) -> String {
    suggested.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "the built-in cards (there are none)".to_string()
    } else {
        names.join(", ")
    }
}

/// A cost that the card has no table for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("card {card}: {}: must hold {asked}, got {found}; {}", family.name(), self.advice())]
pub struct MissingTable {
    /// The card's name.
    pub card: String,
    /// The op family.
    pub family: Family,
    /// What was asked for.
    pub asked: String,
    /// What the card has instead.
    pub found: Box<str>,
    /// The command that measures it; none where the card was derived, of a device that nobody need have.
    pub command: Option<String>,
    /// The number formats in which the card has it, which are suggested.
    pub other_formats: Box<[String]>,
}

impl MissingTable {
    fn advice(&self) -> String {
        let measure = match &self.command {
            Some(command) => format!("measure it with `{command}`"),
            None => "its datasheet gives no more".to_owned(),
        };
        // To ask for what the card has is nearer than to measure.
        let formats: Vec<String> = self.other_formats.iter().map(|format| format!("dtype: {format}")).collect();
        match formats.is_empty() {
            true => measure,
            false => format!("did you mean {}? If not, {measure}", formats.join(" or ")),
        }
    }

    /// The same where no other number format will do.
    pub fn in_this_format_only(mut self) -> MissingTable {
        self.other_formats = Box::default();
        self
    }

    /// The same where a scenario's file asks: the command measures all that its systems need, whatever their shapes.
    pub fn asked_by(mut self, file: &str) -> MissingTable {
        let of_device = |command: &str| command.split(" --models ").next().unwrap_or_default().to_owned();
        self.command = self.command.as_deref().map(|command| format!("{} --for {file}", of_device(command)));
        self
    }
}
