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

    /// Without what says on which machine it was made, in which folders (but for notes on folders with spaces in their names), when and how fast: for a page that others get, and that comes out
    /// the same each time.
    pub fn anonymous(self) -> Manifest {
        let program = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
        let mut words = self.command_line.iter();
        Manifest {
            command_line: words
                .next()
                .map(program)
                .into_iter()
                .chain(words.map(|word| word_without_folders(word)))
                .collect(),
            caveats: self.caveats.iter().map(|caveat| without_folders(caveat)).collect(),
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

/// A word of a command line, where one that is a path as a whole may have anything in it.
fn word_without_folders(word: &str) -> String {
    let (option, value) = word.split_once('=').unwrap_or(("", word));
    let (option, value) = if word.starts_with('/') {
        ("", word)
    } else {
        (option, value)
    };
    match (value.starts_with('/'), option) {
        (false, _) => without_folders(word),
        (true, "") => last_part(value).to_owned(),
        (true, option) => format!("{option}={}", last_part(value)),
    }
}

/// Of each absolute path in a text the last part.
fn without_folders(text: &str) -> String {
    let parts = text.split_inclusive(|c| " ,:={[('\"".contains(c));
    parts.map(last_part).collect()
}

/// Of an absolute path the last part; anything else as it is.
pub fn last_part(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((_, name)) if path.starts_with('/') => name,
        _ => path,
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
    fn of_a_path_the_last_part_is_told() {
        for (word, told) in [
            ("/home/me/s.yaml", "s.yaml"),
            ("out/a", "out/a"),
            ("--out=/home/me/out/", "--out=out"),
            ("/home/Jane Doe/s.yaml", "s.yaml"),
            ("--out=/home/Jane Doe/out", "--out=out"),
            ("card=/home/Jane Doe/c", "card=c"),
            ("/home/a=b/s.yaml", "s.yaml"),
            ("out/a b", "out/a b"),
            (
                "arrivals={trace: {path: /home/me/t.csv}}",
                "arrivals={trace: {path: t.csv}}",
            ),
            ("card=[/a/b, l4]", "card=[b, l4]"),
            ("arrivals.poisson.rate=5/s", "arrivals.poisson.rate=5/s"),
        ] {
            let of = Manifest {
                command_line: vec!["/usr/bin/tenantry".into(), word.into()],
                caveats: vec!["Left out (1): /home/jane/s.yaml: card: must be there.".into()],
                ..Manifest::default()
            }
            .anonymous();
            assert_eq!(of.command_line, ["tenantry", told]);
            assert_eq!(of.caveats, ["Left out (1): s.yaml: card: must be there."]);
        }
    }

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
