//! Numbers without gaps, for those that a recording has.

use std::collections::HashMap;

use tenantry_traces::Request;
use tenantry_traces::read::Records;

/// Numbers from 0 in the order in which they are asked for.
#[derive(Debug, Default)]
struct Dense {
    numbers: HashMap<u32, u32>,
    /// By new number, the old one.
    old: Vec<u32>,
}

impl Dense {
    /// The new number for an old one.
    fn number(&mut self, old: u32) -> u32 {
        let next = self.old.len() as u32;
        *self.numbers.entry(old).or_insert_with(|| {
            self.old.push(old);
            next
        })
    }

    /// What the new numbers stand for: the old ones' names, or where they have none the old ones themselves.
    fn names(&self, names: &[String]) -> Vec<String> {
        let name = |&old: &u32| names.get(old as usize).cloned().unwrap_or_else(|| old.to_string());
        self.old.iter().map(name).collect()
    }
}

/// Numbers of tenants and classes, where those that are written are to have no gaps.
#[derive(Debug)]
pub struct Numbering {
    /// Whether tenants' own numbers are left too.
    of_numbers: bool,
    tenants: Dense,
    classes: Dense,
}

impl Numbering {
    /// Names are numbered without gaps; with `of_numbers`, so are tenants that have numbers.
    pub fn new(of_numbers: bool) -> Numbering {
        Numbering {
            of_numbers,
            tenants: Dense::default(),
            classes: Dense::default(),
        }
    }

    /// Numbers the request that is written next. What is left out before it must leave no gap.
    pub fn renumber(&mut self, request: &mut Request, records: &Records) {
        if self.of_numbers || !records.tenant_names().is_empty() {
            request.tenant = self.tenants.number(request.tenant);
        }
        if !records.class_names().is_empty() {
            request.class = self.classes.number(request.class.into()) as u16;
        }
    }

    /// Who is who: `tenant` or `class`, and names by number.
    pub fn names(&self, records: &Records) -> Vec<(&'static str, Vec<String>)> {
        let tenants = ("tenant", self.tenants.names(records.tenant_names()));
        let classes = ("class", self.classes.names(records.class_names()));
        let all = [tenants, classes];
        all.into_iter().filter(|(_, names)| !names.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_gaps_and_can_be_told_back() {
        let mut dense = Dense::default();
        let numbers = [90_000_000, 7, 90_000_000, u32::MAX].map(|old| dense.number(old));
        assert_eq!(numbers, [0, 1, 0, 2]);
        assert_eq!(dense.names(&[]), ["90000000", "7", "4294967295"]);
        let mut named = Dense::default();
        named.number(1);
        assert_eq!(named.names(&["a".into(), "b".into()]), ["b"]);
    }
}
