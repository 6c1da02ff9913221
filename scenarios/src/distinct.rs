//! Values of which many are alike, each to be looked at once.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};

/// Values that differ from each other. Specifications have floating-point numbers and so no hash of their own: they are
/// found by one of what `Debug` writes, and compared with the few that have the same. Comparing each with all others
/// would take hours where a sweep has a million points.
#[derive(Debug)]
pub struct Distinct<T> {
    by_hash: HashMap<u64, Vec<T>>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Distinct<T> {
        Distinct {
            by_hash: HashMap::new(),
        }
    }
}

impl<T: Debug + PartialEq> Distinct<T> {
    /// Takes a value, if it has none that is equal; whether it has taken it.
    pub fn insert(&mut self, value: T) -> bool {
        let mut hash = HashOfText::default();
        write!(hash, "{value:?}").expect("a hash takes any text");
        let alike = self.by_hash.entry(hash.0.finish()).or_default();
        let is_new = !alike.contains(&value);
        if is_new {
            alike.push(value);
        }
        is_new
    }
}

/// Of what is written, which is kept nowhere.
#[derive(Default)]
struct HashOfText(DefaultHasher);

impl Write for HashOfText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts how often it is compared, and writes its number or nothing.
    #[derive(Clone, Copy)]
    struct Counted<'a> {
        number: f64,
        compared: &'a Cell<u32>,
        is_written: bool,
    }

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.compared.set(self.compared.get() + 1);
            self.number == other.number
        }
    }

    impl Debug for Counted<'_> {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.is_written {
                true => write!(formatter, "{}", self.number),
                false => Ok(()),
            }
        }
    }

    /// Those that are written alike are told apart all the same, and others are not compared at all.
    #[test]
    fn each_value_is_taken_once() {
        for (is_written, comparisons) in [(true, 100), (false, 99 * 100 / 2 + 100 * 101 / 2)] {
            let compared = Cell::new(0);
            let numbers = (0..100).map(|number| Counted {
                number: f64::from(number) / 7.0,
                compared: &compared,
                is_written,
            });
            let mut distinct = Distinct::default();
            assert!(numbers.clone().all(|number| distinct.insert(number)));
            assert!(!numbers.clone().any(|number| distinct.insert(number)));
            assert_eq!(compared.get(), comparisons, "written: {is_written}");
        }
    }
}
