//! Files that a part's rounds have in common.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::TraceError;

/// What was read from files, by the field that names them: once, however many rounds of a part are built of it.
pub struct Once<T>(Mutex<BTreeMap<String, Arc<T>>>);

impl<T> Once<T> {
    pub fn new() -> Once<T> {
        Once(Mutex::default())
    }

    /// What `field` names, by `read` where nobody has asked for it before.
    pub fn get(&self, field: &str, read: impl FnOnce() -> Result<T, TraceError>) -> Result<Arc<T>, TraceError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(field) {
            return Ok(known.clone());
        }
        let new = Arc::new(read()?);
        all.insert(field.to_owned(), new.clone());
        Ok(new)
    }
}
