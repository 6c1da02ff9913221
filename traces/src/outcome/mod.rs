//! What the models of a cascade make of a request: draws from a table of real items, or from a fitted generator.
//!
//! A ticket is one item for all models, so that hard items are hard for all of them, as they are in truth. Nothing here
//! depends on which models a policy asks, nor in what order.

mod columns;
mod difficulty;
mod generated;
mod saved;
mod source;
mod table;

use std::num::NonZeroU16;

pub use difficulty::{Difficulties, DifficultyDraws};
pub use generated::{DispatchCoins, GeneratedOutcomes};
pub use saved::{
    ProfiledModel, ProfiledModels, PruneStep, SavedCalibration, SavedDirichlet, SavedOutputs, SavedPruning,
};
pub use source::{
    AnswersSpec, DifficultySpec, DrawnSpec, GeneratedSpec, KnownAverage, OtherModel, OutcomeSource, OutcomesSpec,
    PrunedPoint, TableSpec,
};
pub use table::OutcomeTable;

use crate::draw::{Draws, Purpose};
use crate::request::Ticket;

/// What one model makes of one item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The model's own confidence in its answer, from 0 to 1.
    pub confidence: f32,
    /// Whether the answer is right: equal to the gold label, or where the table has none, to the reference model's.
    pub correct: bool,
    /// Which wrong answer it is, from 1 up: of an item, models with one number gave one answer. Nothing where it is
    /// right, or nobody says what was answered.
    pub wrong: Option<NonZeroU16>,
}

/// Which of some items a request is about: any, all alike.
#[derive(Clone, Copy, Debug)]
pub struct ItemDraws {
    draws: Draws,
    items: u64,
}

impl ItemDraws {
    /// Of `items`, under a seed.
    pub fn new(seed: u64, items: usize) -> ItemDraws {
        ItemDraws {
            draws: Draws::new(seed, Purpose::Outcome),
            items: items as u64,
        }
    }

    /// The item that `ticket` is about.
    #[inline]
    pub fn of(&self, ticket: Ticket) -> usize {
        self.draws.about(ticket).below(self.items) as usize
    }
}

/// Outcomes by ticket.
#[derive(Clone, Debug)]
pub struct Outcomes {
    draws: ItemDraws,
    table: OutcomeTable,
}

impl Outcomes {
    /// Each ticket is any of the table's items, all alike.
    pub fn new(seed: u64, table: OutcomeTable) -> Outcomes {
        Outcomes {
            draws: ItemDraws::new(seed, table.items()),
            table,
        }
    }

    /// The items.
    pub fn table(&self) -> &OutcomeTable {
        &self.table
    }

    /// What the models make of `ticket`, in their order.
    #[inline]
    pub fn of(&self, ticket: Ticket) -> &[Outcome] {
        self.table.item(self.draws.of(ticket))
    }
}
