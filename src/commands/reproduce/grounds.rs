//! What figures rest on beside their scenarios: where the tables that priced them are from, and what was priced beyond
//! these.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;
use tenantry_profiles::{Beyond, Card, Family};

use crate::caveats::{Extrapolated, TableUsed, extrapolation_caveat, table_caveats};
use crate::runs::Loaded;

/// Collected while a figure is made.
#[derive(Debug, Default)]
pub struct Grounds(RefCell<Collected>);

#[derive(Debug, Default)]
struct Collected {
    tables: BTreeSet<TableUsed>,
    unpriced: BTreeSet<String>,
    extrapolated: Vec<Extrapolated>,
    /// Runs, or costs that were asked of a card's tables, and how many of them were extrapolated.
    priced: [u32; 2],
    /// Cards of which tables are read without a run.
    cards: Vec<Rc<Card>>,
}

/// What one figure rests on, in sentences.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ground {
    /// The tables that priced it and were not measured.
    #[serde(skip)]
    pub tables: BTreeSet<TableUsed>,
    /// These by their origin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// What its cards leave unpriced.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unpriced: BTreeSet<String>,
    /// What was priced beyond the tables' ranges, and how far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extrapolated: Option<String>,
}

impl Grounds {
    /// Notes what a scenario's cards leave unpriced, and the tables that its runtimes are made of.
    pub fn scenario(&self, loaded: &Loaded) {
        let mut collected = self.0.borrow_mut();
        collected.unpriced.extend(loaded.run_caveats());
        collected.tables.extend(loaded.tables_used());
    }

    /// Notes the tables that a run on a card used, and what it extrapolated.
    pub fn run(&self, card: &Card, extrapolated: Vec<(Family, Beyond)>) {
        let mut collected = self.0.borrow_mut();
        collected.tables.extend(TableUsed::of_card(card));
        collected.priced(extrapolated);
    }

    /// Notes a cost that was asked of a table without a run.
    pub fn cost(&self, family: Family, beyond: Option<Beyond>) {
        let extrapolated = beyond.map(|beyond| (family, beyond));
        self.0.borrow_mut().priced(extrapolated);
    }

    /// Notes a card of which tables are read without a run.
    pub fn card(&self, card: &Rc<Card>) {
        self.0.borrow_mut().cards.push(Rc::clone(card));
    }

    /// What was noted since it was last taken.
    pub fn take(&self) -> Ground {
        let mut collected = self.0.take();
        let of_cards = collected.cards.iter().flat_map(|card| TableUsed::of_card(card));
        collected.tables.extend(of_cards);
        let [all, beyond] = collected.priced;
        let extrapolated = extrapolation_caveat(&collected.extrapolated);
        Ground {
            origins: table_caveats(&collected.tables),
            tables: collected.tables,
            unpriced: collected.unpriced,
            extrapolated: extrapolated.map(|sentence| format!("{beyond} of {all} runs or costs. {sentence}")),
        }
    }
}

impl Collected {
    fn priced(&mut self, extrapolated: impl IntoIterator<Item = (Family, Beyond)>) {
        let before = self.extrapolated.len();
        self.extrapolated.extend(extrapolated.into_iter().map(Extrapolated::from));
        let [all, beyond] = &mut self.priced;
        *all += 1;
        *beyond += u32::from(self.extrapolated.len() > before);
    }
}
