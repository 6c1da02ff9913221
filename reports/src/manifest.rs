//! Where a result comes from: `manifest.json`. All that may differ between two runs of the same input is here and not
//! in `summary.json`.

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
        words.into_iter().find(|word| !word.starts_with('-')).is_some_and(|word| word == "plan")
    }

    /// Without what says on which machine it was made, in which folders, when and how fast: for a page that others get,
    /// and that comes out the same each time. A folder with spaces in its name is known in a note if the command line
    /// has it as a word's whole value.
    pub fn anonymous(self) -> Manifest {
        let program = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
        // The longer first, since one may be in another.
        let mut folders: Vec<&str> = self.command_line.iter().filter_map(|word| folder_of(word)).collect();
        folders.sort_by_key(|folder| std::cmp::Reverse(folder.len()));
        let of_caveat = |caveat: &String| {
            let folders = folders.iter();
            without_folders(&folders.fold(caveat.clone(), |told, folder| without_folder(&told, folder)))
        };
        let mut words = self.command_line.iter();
        Manifest {
            command_line: words
                .next()
                .map(program)
                .into_iter()
                .chain(words.map(|word| word_without_folders(word)))
                .collect(),
            caveats: self.caveats.iter().map(of_caveat).collect(),
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

/// An option or key, empty where there is none, and its value.
fn option_and_value(word: &str) -> (&str, &str) {
    match word.starts_with('/') {
        true => ("", word),
        false => word.split_once('=').unwrap_or(("", word)),
    }
}

/// The absolute folder, with its last `/`, of a word whose value is a path as a whole; not the root.
fn folder_of(word: &str) -> Option<&str> {
    let (_, value) = option_and_value(word);
    let value = value.trim_end_matches('/');
    let folder = &value[..=value.rfind('/').filter(|_| value.starts_with('/'))?];
    (folder != "/").then_some(folder)
}

/// A word of a command line, where one that is a path as a whole may have anything in it.
fn word_without_folders(word: &str) -> String {
    let (option, value) = option_and_value(word);
    match (value.starts_with('/'), option) {
        (false, _) => without_folders(word),
        (true, "") => last_part(value).to_owned(),
        (true, option) => format!("{option}={}", last_part(value)),
    }
}

/// Whether a path may begin after it, or end before it.
fn is_apart(c: char) -> bool {
    " ,:={[('\"`".contains(c)
}

/// A text without a folder's name where a path begins with it.
fn without_folder(text: &str, folder: &str) -> String {
    let mut parts = text.split(folder);
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if !told.is_empty() && !told.ends_with(is_apart) {
            told += folder;
        }
        told += part;
    }
    told
}

/// Of each absolute path in a text the last part.
fn without_folders(text: &str) -> String {
    let told = |part| match str::trim_end_matches(part, is_apart) {
        "/" => part,
        _ => last_part(part),
    };
    text.split_inclusive(is_apart).map(told).collect()
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

    /// A note says a path of the command line as it is there, whatever is in its name.
    #[test]
    fn folders_of_the_command_line_are_left_out_of_notes() {
        let of = Manifest {
            command_line: [
                "/usr/bin/tenantry",
                "check",
                "/home/Jane Doe/my plans/s.yaml",
                "--out=/srv/a b/out/",
            ]
            .map(String::from)
            .into(),
            caveats: vec![
                "Left out (1): /home/Jane Doe/my plans/s.yaml: card: must be there.".into(),
                "See /home/Jane Doe/my plans/sub/t.csv, /srv/a b/out and /etc/hosts / 2.".into(),
            ],
            ..Manifest::default()
        }
        .anonymous();
        assert_eq!(of.caveats[0], "Left out (1): s.yaml: card: must be there.");
        assert_eq!(of.caveats[1], "See sub/t.csv, out and hosts / 2.");
        let inside = "/mnt/data/t.csv and /data/u.csv";
        assert_eq!(without_folder(inside, "/data/"), "/mnt/data/t.csv and u.csv");
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
