//! Texts that stand for numbers.

use std::collections::HashMap;

/// Names, numbered from 0 in the order in which they are first seen. All are kept in memory.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The number of a name, which is perhaps new.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        let name = String::from_utf8_lossy(name);
        if let Some(&number) = self.numbers.get(name.as_ref()) {
            return number;
        }
        let number = u32::try_from(self.names.len()).expect("so many names have no room in memory");
        self.numbers.insert(name.clone().into_owned(), number);
        self.names.push(name.into_owned());
        number
    }

    /// All of them, by number.
    pub fn all(&self) -> &[String] {
        &self.names
    }
}
