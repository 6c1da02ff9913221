//! Finds a card by name or path: on disk first, then among those embedded in the binary.

use std::path::{Path, PathBuf};
use std::{fs, path};

use crate::card::Card;
use crate::error::ProfileError;
use crate::names::near_miss;
use crate::store::CARD_FILE;

/// Card, then (file, text).
type EmbeddedCard = (&'static str, &'static [(&'static str, &'static str)]);

/// The cards that were in `profiles/cards` when the crate was built.
static EMBEDDED: &[EmbeddedCard] = include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Where cards lie in each search folder.
const CARDS: &str = "profiles/cards";

impl Card {
    /// The names of the embedded cards.
    pub fn embedded_names() -> Vec<&'static str> {
        EMBEDDED.iter().map(|(name, _)| *name).collect()
    }

    /// The embedded card called `name`; none if there is none.
    ///
    /// # Errors
    /// An embedded card that does not pass [`load`](Self::load)'s checks.
    pub fn embedded(name: &str) -> Result<Option<Card>, ProfileError> {
        let found = EMBEDDED.iter().find(|(card, _)| *card == name);
        found
            .map(|(card, files)| Card::from_files(&format!("(embedded) {CARDS}/{card}"), files))
            .transpose()
    }

    /// Loads the card that a user means by `name_or_path`: a folder, if it has a separator or holds a profile; else
    /// `profiles/cards/NAME` in the first of the `search` folders that has it; else the embedded one.
    ///
    /// # Errors
    /// Lists the cards that there are when none is meant; otherwise those of [`load`](Self::load).
    pub fn find(name_or_path: &str, search: &[PathBuf]) -> Result<Card, ProfileError> {
        if let Some(folder) = Card::folder(name_or_path, search) {
            return Card::load(&folder);
        }
        if let Some(card) = Card::embedded(name_or_path)? {
            return Ok(card);
        }
        let available = Card::available(search);
        let suggested = near_miss(name_or_path, available.iter().map(String::as_str));
        Err(ProfileError::UnknownCard {
            name: name_or_path.to_string(),
            available,
            suggested,
        })
    }

    /// The folder from which [`find`](Self::find) loads a card; none where it is embedded, or there is none.
    pub fn folder(name_or_path: &str, search: &[PathBuf]) -> Option<PathBuf> {
        let path = Path::new(name_or_path);
        if name_or_path.contains(path::is_separator) || path.join(CARD_FILE).is_file() {
            return Some(path.to_owned());
        }
        let mut folders = search.iter().map(|root| root.join(CARDS).join(name_or_path));
        folders.find(|folder| folder.join(CARD_FILE).is_file())
    }

    /// The names that [`find`](Self::find) knows, sorted.
    pub fn available(search: &[PathBuf]) -> Vec<String> {
        let on_disk = search.iter().filter_map(|root| fs::read_dir(root.join(CARDS)).ok()).flatten().flatten();
        let on_disk = on_disk.filter(|entry| entry.path().join(CARD_FILE).is_file());
        let mut names: Vec<String> = on_disk.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        // Hidden folders are what an interrupted save leaves.
        names.retain(|name| !name.starts_with('.'));
        names.extend(Card::embedded_names().into_iter().map(str::to_string));
        names.sort();
        names.dedup();
        names
    }
}
