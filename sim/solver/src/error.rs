//! What the solvers refuse.

/// A problem that makes no sense; the message names the field, what it must be and what it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    pub(crate) fn unless(sound: bool, message: impl FnOnce() -> String) -> Result<(), Invalid> {
        if sound { Ok(()) } else { Err(Invalid(message())) }
    }
}
