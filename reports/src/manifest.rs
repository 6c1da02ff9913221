//! Where a result comes from: `manifest.json`. All that may differ between two runs of the same input is here and not in
//! `summary.json`.

use serde::{Deserialize, Serialize};

/// Where a result comes from. The caller knows; this crate reads no clock and asks no host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of Tenantry.
    pub version: String,
    /// As it was typed.
    pub command_line: Vec<String>,
    /// When it began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// How long it took, in seconds of wall time.
    pub wall_s: f64,
    /// Simulated events a second of wall time; absent where nothing was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_s: Option<f64>,
    /// What prices the ops; absent where nothing was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSource>,
    /// Where several cards were compared: what prices the ops of the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_profiles: Vec<ProfileSource>,
    /// Where it ran.
    pub host: Host,
    /// What a reader must know before trusting the figures, a sentence each: extrapolated costs, a derived profile, a
    /// machine that was not quiet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<String>,
}

impl Manifest {
    /// Whether it is of `tenantry plan`: a folder that plans and runs were written to is of whoever came last.
    pub fn is_of_plan(&self) -> bool {
        let words = self.command_line.iter().skip(1);
        words
            .into_iter()
            .find(|word| !word.starts_with('-'))
            .is_some_and(|word| word == "plan")
    }

    /// Without what says on which machine it was made, when and how fast: for a page that others get, and that comes out the same each
    /// time.
    pub fn anonymous(self) -> Manifest {
        let program = |word: String| match word.rsplit_once('/') {
            Some((_, name)) => name.to_owned(),
            None => word,
        };
        let mut words = self.command_line.into_iter();
        Manifest {
            command_line: words.next().map(program).into_iter().chain(words).collect(),
            started: None,
            wall_s: 0.0,
            events_per_s: None,
            host: Host {
                device: self.host.device,
                ..Host::default()
            },
            ..self
        }
    }
}

/// A profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSource {
    /// Of its folder.
    pub name: String,
    /// Of its contents.
    pub digest: String,
    /// Measured, fitted, imported or derived, and when, in the profile's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<String>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// Processors that the program may use.
    pub cores: u32,
    /// The device on which requests were executed; absent where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        for word in ["plain", "a b", "it's", "systems[0].batch={size: 1}", "$HOME", ""] {
            let echoed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(echoed.stdout).unwrap(), word);
        }
    }
}
