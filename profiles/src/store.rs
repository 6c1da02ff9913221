//! A card as a folder: reading it, and writing it whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{fs, process};

use itertools::Itertools;

use crate::card::Card;
use crate::cells::one_of;
use crate::error::{Access, Invalid, ProfileError};
use crate::family::Family;
use crate::model::ModelShape;
use crate::names::near_miss;
use crate::slice::Point;
use crate::tables::Role;
use crate::yaml;

/// What the name of a file of held-out points has before its ending.
const HELD_OUT: &str = ".held-out";

/// The file that makes a folder a profile.
pub(crate) const CARD_FILE: &str = "card.yaml";

impl Card {
    /// Reads and checks the profile in a folder.
    ///
    /// # Errors
    /// The first file that cannot be read, or value that cannot be right, with its line.
    pub fn load(folder: &Path) -> Result<Card, ProfileError> {
        let mut files = vec![(CARD_FILE.to_string(), read(&folder.join(CARD_FILE))?)];
        let entries = fs::read_dir(folder).map_err(|source| failed(folder, Access::List, source))?;
        for entry in entries {
            let path = entry.map_err(|source| failed(folder, Access::List, source))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".csv") || is_table(&name.to_lowercase()) {
                files.push((name, read(&path)?));
            }
        }
        files[1..].sort();
        Card::from_files(&folder.display().to_string(), &files)
    }

    /// Writes the profile to a folder, whole or not at all: it is written beside the folder and then put in its place.
    /// A profile that is there is replaced; other files beside it stay.
    ///
    /// # Errors
    /// A card that [`load`](Self::load) would refuse is not written, nor is a folder replaced that holds something else
    /// than a profile.
    pub fn save(&self, folder: &Path) -> Result<(), ProfileError> {
        let files = self.to_files();
        Card::from_files(&folder.display().to_string(), &files)?;

        let unwritable = |source| ProfileError::Io {
            path: folder.display().to_string(),
            access: Access::Write,
            source,
        };
        Card::check_place(folder)?;
        let replaces = folder.exists();
        if replaces && !folder.join(CARD_FILE).exists() {
            // An empty folder may be the one that somebody works in, or a disk's own: it stays, and is a profile's with
            // the last file.
            let (card_file, tables) = files.split_first().expect("a card has a card.yaml");
            return write_files(folder, tables.iter().chain([card_file])).map_err(unwritable);
        }
        let (new, old) = (beside(folder, "new"), beside(folder, "old"));
        let discard = |_: &io::Error| {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&new);
        };
        fs::create_dir_all(&new).map_err(unwritable)?;
        write_files(&new, &files).inspect_err(discard).map_err(unwritable)?;
        if !replaces {
            return fs::rename(&new, folder).inspect_err(discard).map_err(unwritable);
        }
        fs::rename(folder, &old).inspect_err(discard).map_err(unwritable)?;
        if let Err(source) = fs::rename(&new, folder) {
            // The first error is the one to report; should this fail too, the old profile still lies beside.
            let _ = fs::rename(&old, folder);
            return Err(unwritable(source));
        }
        move_other_files(&old, folder).and_then(|()| fs::remove_dir_all(&old)).map_err(unwritable)
    }

    /// Whether a profile may be [saved](Self::save) there: what a profiler asks before it begins.
    ///
    /// # Errors
    /// A folder that holds something else.
    pub fn check_place(folder: &Path) -> Result<(), ProfileError> {
        let is_other = || -> io::Result<bool> {
            Ok(folder.exists() && !folder.join(CARD_FILE).exists() && fs::read_dir(folder)?.next().is_some())
        };
        let got = match is_other() {
            Ok(false) => return Ok(()),
            Ok(true) => "one that holds something else than a profile".to_string(),
            Err(error) => error.to_string(),
        };
        let place = folder.display().to_string();
        Err(Invalid::new(&place, "folder", "new, empty or a profile's", got).into())
    }

    /// Whether [`load`](Self::load) would accept the card once saved: what a profiler asks before it ends.
    ///
    /// # Errors
    /// The first value that cannot be right, with the line that it would have in a saved file.
    pub fn validate(&self) -> Result<(), ProfileError> {
        Card::from_files(&self.name, &self.to_files())?;
        Ok(())
    }

    /// Reads a profile from the texts of its files; errors call its folder `folder`.
    pub(crate) fn from_files(folder: &str, files: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<Card, ProfileError> {
        let path = |file: &str| format!("{folder}/{file}");
        let yaml = files.iter().find(|(name, _)| name.as_ref() == CARD_FILE);
        let (_, yaml) = yaml.ok_or_else(|| Invalid::new(folder, CARD_FILE, "a file", "no such file"))?;
        let mut card = yaml::read_card(&path(CARD_FILE), yaml.as_ref())?;
        let in_line = |invalid: Invalid| yaml::in_line(yaml.as_ref(), invalid);
        card.check_fields(&path(CARD_FILE)).map_err(in_line)?;

        let listed = card.models.iter().map(|model| model.name.as_str());
        let names = ModelShape::builtin_names().iter().copied().chain(listed);
        let models: Vec<ModelShape> = names.unique().filter_map(|name| card.model(name)).collect();
        let mut held_out_lines = BTreeMap::new();
        for (name, text) in files.iter().filter(|(name, _)| name.as_ref() != CARD_FILE) {
            let name = name.as_ref();
            let known = || Family::ALL.iter().flat_map(|&family| files_of(family));
            let Some((family, role, _)) = known().find(|(.., file)| file == name) else {
                let tables: Vec<String> = Family::ALL.iter().map(|family| family.file()).collect();
                let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
                let known: Vec<String> = known().map(|(.., file)| file).collect();
                let suggested = near_miss(name, known.iter().map(String::as_str));
                return Err(Invalid::new(folder, name, one_of(&tables), "an unknown table").suggest(suggested).into());
            };
            let tables = match role {
                Role::Table => &mut card.tables,
                Role::HeldOut => &mut card.held_out,
            };
            let lines = tables.read_csv(family, role, &path(name), text.as_ref(), &models)?;
            if role == Role::HeldOut {
                held_out_lines.insert(family, lines);
            }
        }
        card.check_held_out(folder, &held_out_lines)?;
        card.check_origins(&path(CARD_FILE)).map_err(in_line)?;
        card.check_certainty(&path(CARD_FILE)).map_err(in_line)?;
        card.check_limits(&path(CARD_FILE)).map_err(in_line)?;
        if let Some(sheet) = &card.datasheet {
            let in_card = |invalid: Invalid| Invalid {
                field: format!("datasheet.{}", invalid.field),
                ..invalid
            };
            sheet.check(&path(CARD_FILE)).map_err(in_card).map_err(in_line)?;
        }
        Ok(card)
    }

    /// The names and texts of the card's files: the same for the same content.
    pub(crate) fn to_files(&self) -> Vec<(String, String)> {
        let yaml = serde_yaml::to_string(self).expect("a card has only names, numbers and lists");
        let mut files = vec![(CARD_FILE.to_string(), yaml)];
        for (role, tables) in [(Role::Table, &self.tables), (Role::HeldOut, &self.held_out)] {
            let file = |(family, text)| (file_of(family, role), text);
            files.extend(tables.to_csv().into_iter().map(file));
        }
        files
    }

    /// Points are held out of a table that is there; `lines` are those of their rows.
    fn check_held_out(&self, folder: &str, lines: &BTreeMap<Family, Vec<u64>>) -> Result<(), Invalid> {
        let tables = self.tables.slices();
        for slice in self.held_out.slices_of_rows() {
            let of_family = || tables.iter().filter(|table| table.family == slice.family);
            let file = format!("{folder}/{}", file_of(slice.family, Role::HeldOut));
            let line = |point: &Point| lines[&slice.family][point.row];
            if of_family().next().is_none() {
                let must = "there, beside its held-out points";
                return Err(Invalid::new(folder, &slice.family.file(), must, "no such file"));
            }
            let Some(table) = of_family().find(|table| table.label == slice.label) else {
                let known: Vec<&str> = of_family().map(|table| table.label.as_str()).collect();
                let must = format!("one of {}: {}", slice.family.file(), one_of(&known));
                let invalid = Invalid::new(&file, "table", must, format!("{:?}", slice.label));
                return Err(invalid.in_line(line(&slice.points[0])));
            };
            // An error at points that price would be none.
            let there: BTreeSet<&[u64]> = table.points.iter().map(|point| point.at.as_slice()).collect();
            if let Some(point) = slice.points.iter().find(|point| there.contains(point.at.as_slice())) {
                let must = format!("points that {} does not have", slice.family.file());
                let invalid = Invalid::new(&file, slice.called(), must, slice.describe(&point.at));
                return Err(invalid.in_line(line(point)));
            }
        }
        Ok(())
    }
}

fn file_of(family: Family, role: Role) -> String {
    let file = family.file();
    match role {
        Role::Table => file,
        Role::HeldOut => file.replace(".csv", &format!("{HELD_OUT}.csv")),
    }
}

/// The files that a family's rows may be in.
fn files_of(family: Family) -> impl Iterator<Item = (Family, Role, String)> {
    let file = move |role| (family, role, file_of(family, role));
    [Role::Table, Role::HeldOut].into_iter().map(file)
}

fn is_table(name: &str) -> bool {
    let mut tables = Family::ALL.iter().flat_map(|&family| files_of(family));
    tables.any(|(.., file)| name == file)
}

fn read(path: &Path) -> Result<String, ProfileError> {
    fs::read_to_string(path).map_err(|source| failed(path, Access::Read, source))
}

fn failed(path: &Path, access: Access, source: io::Error) -> ProfileError {
    ProfileError::Io {
        path: path.display().to_string(),
        access,
        source,
    }
}

/// `cpu` becomes `.cpu.new-1234`: hidden, on the same file system, and this process's own.
fn beside(folder: &Path, role: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(folder.file_name().unwrap_or_default());
    name.push(format!(".{role}-{}", process::id()));
    folder.with_file_name(name)
}

/// Writes files into a folder, or leaves none of them.
fn write_files<'a>(folder: &Path, files: impl IntoIterator<Item = &'a (String, String)>) -> io::Result<()> {
    let mut written = Vec::new();
    let mut write = |name: &str, text: &str| {
        written.push(folder.join(name));
        let mut file = fs::File::create(folder.join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let all = files.into_iter().try_for_each(|(name, text)| write(name, text));
    if all.is_err() {
        for path in written {
            // The first error is the one to report.
            let _ = fs::remove_file(path);
        }
    }
    all
}

/// Moves what a user keeps beside a profile's own files.
fn move_other_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if name != CARD_FILE && !name.to_str().is_some_and(is_table) {
            fs::rename(from.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}
