//! How a suite's measuring went, in a card's words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ExecutorError;

/// How the measuring went.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub points: usize,
    /// Points whose median is known as well as was asked.
    pub known: usize,
    /// How well the least known median is known; infinite where a point has too few measurements to tell.
    pub widest: f64,
    /// How well the one in the middle is known, likewise.
    pub middle: f64,
    /// Tables left out, since the user asked to stop before all their points were measured.
    pub left_out: Vec<String>,
    /// Tables left out since one of their points could not be measured.
    pub failed: BTreeMap<String, Failure>,
}

/// Why a point could not be measured, and what was said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Failure {
    NoMemory(String),
    /// The device has no kernel for it, or refuses its shape.
    NotComputed(String),
}

/// What was measured after the points, or what stands for it where one of its ops cannot be: what the points have is
/// not lost by it. A note says so.
///
/// # Errors
/// What is no matter of one op.
pub(crate) fn or_else_noted<T>(
    what: &str,
    measured: Result<T, ExecutorError>,
    otherwise: T,
    notes: &mut Vec<String>,
) -> Result<T, ExecutorError> {
    measured.or_else(|error| {
        let (Failure::NoMemory(why) | Failure::NotComputed(why)) = Failure::of(error)?;
        notes.push(format!("{what}: not measured ({why})"));
        Ok(otherwise)
    })
}

impl Failure {
    /// That of one op.
    ///
    /// # Errors
    /// What is no matter of one op.
    pub fn of(error: ExecutorError) -> Result<Failure, ExecutorError> {
        match error {
            _ if error.is_out_of_memory() => Ok(Failure::NoMemory(error.to_string())),
            ExecutorError::Torch(_) | ExecutorError::Uncaptured(_) => Ok(Failure::NotComputed(error.to_string())),
            _ => Err(error),
        }
    }
}

impl Outcome {
    /// What a card says of it.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.known < self.points && self.left_out.is_empty() {
            let middle = match self.middle.is_finite() {
                true => format!("half of them to {:.0} %, ", self.middle * 100.0),
                false => String::new(),
            };
            let widest = if self.widest.is_finite() {
                format!("the least certain to {:.0} %", self.widest * 100.0)
            } else {
                "some measured too rarely to tell".to_string()
            };
            notes.push(format!(
                "medians of {} of {} points are known to 2 % (95 % confidence), {middle}{widest}",
                self.known, self.points
            ));
        }
        if !self.left_out.is_empty() {
            notes.push(format!("left out as incomplete: {}", self.left_out.join("; ")));
        }
        let (mut no_memory, mut not_computed) = (Vec::new(), Vec::new());
        for (table, failure) in &self.failed {
            match failure {
                Failure::NoMemory(error) => no_memory.push(format!("{table} ({error})")),
                Failure::NotComputed(error) => not_computed.push(format!("{table} ({error})")),
            }
        }
        for (why, tables) in [
            ("left out for lack of memory", no_memory),
            ("left out, since this device does not compute them", not_computed),
        ] {
            if !tables.is_empty() {
                notes.push(format!("{why}: {}", tables.join("; ")));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use tch::TchError;

    use super::*;

    #[test]
    fn what_cannot_be_measured_after_the_points_costs_nothing_but_itself() {
        let mut notes = Vec::new();
        let refused = Err(ExecutorError::from(TchError::Torch("no kernel".into())));
        assert_eq!(or_else_noted("resume", refused, 7, &mut notes).unwrap(), 7);
        assert_eq!(notes, ["resume: not measured (libtorch: no kernel)"]);
        assert_eq!(or_else_noted("resume", Ok(3), 7, &mut notes).unwrap(), 3);
        let lost = Err(ExecutorError::input("folder", "there", "not"));
        assert!(or_else_noted("resume", lost, 7, &mut notes).is_err());
        assert_eq!(notes.len(), 1);
    }
}
