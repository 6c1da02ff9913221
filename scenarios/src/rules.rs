//! What must hold between the values of a scenario, said as a list: what holds, of which key, and what the key must be
//! where it does not.

use std::fmt::Display;

use crate::error::Problem;
use crate::path::Path;

/// Rules of the keys below one path. What is broken is added to the problems.
pub(crate) struct Rules<'a> {
    path: Path,
    problems: &'a mut Vec<Problem>,
}

impl Rules<'_> {
    pub fn below<'a>(path: &Path, problems: &'a mut Vec<Problem>) -> Rules<'a> {
        let path = path.clone();
        Rules { path, problems }
    }

    /// Where `holds` is not so, `key` must be `must`. The key's own keys follow upon dots: `stop.eos.token`.
    pub fn hold(&mut self, holds: bool, key: &str, must: impl Into<String>, got: impl Display) {
        if !holds {
            let path = key.split('.').fold(self.path.clone(), |path, key| path.key(key));
            self.problems.push(Problem::new(path, must, got));
        }
    }

    /// A key that has nothing to say here, where `given` says that it has been given all the same.
    pub fn left_out(&mut self, given: bool, key: &str, why: impl Display, got: impl Display) {
        self.hold(!given, key, format!("left out {why}"), got);
    }
}
