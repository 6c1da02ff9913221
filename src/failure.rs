//! Why a command did not do what it was asked, and the exit code that scripts rely on.

use std::path::Path;
use std::process::ExitCode;
use std::{fmt, io};

use tenantry_profiles::{Access, ProfileError};
use tenantry_traces::TraceError;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Failed while running: exit code 1.
    Running(String),
    /// The input is wrong: exit code 2.
    BadInput(String),
    /// A declared limit was not met: exit code 3.
    LimitNotMet(String),
    /// The user stopped it; what was finished is saved: exit code 130.
    Interrupted(String),
}

impl Failure {
    /// The contract's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Running(_) => 1,
            Failure::BadInput(_) => 2,
            Failure::LimitNotMet(_) => 3,
            Failure::Interrupted(_) => 130,
        })
    }

    /// The same, and what there is all the same.
    pub fn with(self, more: impl fmt::Display) -> Failure {
        match self {
            Failure::Running(why) => Failure::Running(format!("{why}; {more}")),
            Failure::BadInput(why) => Failure::BadInput(format!("{why}; {more}")),
            Failure::LimitNotMet(why) => Failure::LimitNotMet(format!("{why}; {more}")),
            Failure::Interrupted(why) => Failure::Interrupted(format!("{why}; {more}")),
        }
    }

    /// Failed while running.
    pub fn running(error: impl fmt::Display) -> Failure {
        Failure::Running(error.to_string())
    }

    /// The input is wrong.
    pub fn bad_input(error: impl fmt::Display) -> Failure {
        Failure::BadInput(error.to_string())
    }

    /// A file or folder of the input cannot be read.
    pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
        let kind = if path.is_dir() { "folder" } else { "file" };
        Failure::BadInput(format!(
            "{}: must be a {kind} that can be read, got: {error}",
            path.display()
        ))
    }

    /// Why, without what kind of failure it is.
    pub fn reason(&self) -> &str {
        match self {
            Failure::Running(why) | Failure::BadInput(why) | Failure::LimitNotMet(why) | Failure::Interrupted(why) => {
                why
            }
        }
    }
}

/// What a profile or datasheet has wrong is the input's fault; a folder that cannot be written is not.
impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Failure {
        match error {
            ProfileError::Io {
                access: Access::Write, ..
            } => Failure::running(error),
            _ => Failure::bad_input(error),
        }
    }
}

/// Of a trace that is written, or read in the middle of something else. A file that the user names as input is better
/// off with [`Failure::bad_input`], even where it cannot be opened.
impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        match error {
            TraceError::Io { .. } => Failure::running(error),
            _ => Failure::bad_input(error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Running(message) | Failure::BadInput(message) => write!(f, "error: {message}"),
            Failure::LimitNotMet(message) => write!(f, "limit not met: {message}"),
            Failure::Interrupted(message) => write!(f, "interrupted: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts tell by the exit code what to look at, whatever the words are.
    #[test]
    fn a_profile_that_cannot_be_read_is_bad_input_and_one_that_cannot_be_written_is_none() {
        let failure = |access| {
            Failure::from(ProfileError::Io {
                path: "card".to_owned(),
                access,
                source: io::Error::other("broken"),
            })
        };
        let (read, write) = (failure(Access::Read), failure(Access::Write));
        assert!(matches!(read, Failure::BadInput(_)) && matches!(write, Failure::Running(_)));
        assert_eq!(read.reason(), "card: must be a file that can be read, got: broken");
        assert_eq!(
            write.reason(),
            "card: must be a folder that can be written to, got: broken"
        );
        let alike = Failure::unreadable(Path::new("card"), &io::Error::other("broken"));
        assert_eq!(alike.to_string(), read.to_string());
    }
}
