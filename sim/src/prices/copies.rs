//! Copies from host memory, from the disk and from card to card.

use tenantry_core::op::Transfer;
use tenantry_core::spec::LinkSpec;
use tenantry_profiles::{Card, CollectiveOperation, Curve, Drawn, Family, Surface};

use super::Prices;
use super::draws::OpSpread;
use super::extrapolated::Extrapolated;

/// What copying pages from card to card costs.
#[derive(Debug)]
pub enum LinkPrices {
    /// As the scenario says.
    Given(LinkSpec),
    /// As measured between two such cards, by bytes of a message.
    Measured(Box<Surface>),
    /// As copies on the card, page by page.
    Copies,
}

impl LinkPrices {
    pub fn new(card: &Card, given: Option<LinkSpec>) -> LinkPrices {
        let measured = || card.collective(CollectiveOperation::SendReceive).ok();
        match given {
            Some(link) => LinkPrices::Given(link),
            None => measured().map_or(LinkPrices::Copies, |surface| LinkPrices::Measured(Box::new(surface))),
        }
    }
}

/// Copies from host memory.
#[derive(Debug)]
pub struct CopyPrices {
    pub curve: Curve,
    /// The size of the last chunk of parameters, and its cost: they are all alike.
    pub last: Option<(u64, Drawn)>,
}

impl CopyPrices {
    pub fn chunk(&mut self, bytes: u64, extrapolated: &mut Extrapolated) -> &Drawn {
        if self.last.is_none_or(|(known, _)| known != bytes) {
            extrapolated.note(self.curve.beyond(bytes), Family::Copy);
            self.last = Some((bytes, self.curve.cost(bytes).into()));
        }
        &self.last.as_ref().expect("it has just been looked up").1
    }
}

/// So many bytes in messages as large as a table's keys can be, and what is left: mostly none, and all.
pub(crate) fn messages(bytes: u64) -> (u64, u32) {
    let largest = u64::from(u32::MAX);
    (bytes / largest, (bytes % largest) as u32)
}

impl Prices {
    /// Whether transfers go over links that cards have: one processor's threads copy in their memory.
    pub fn has_links(&self) -> bool {
        match &self.link {
            None => false,
            Some(LinkPrices::Given(_) | LinkPrices::Measured(_)) => true,
            Some(LinkPrices::Copies) => self.cores.is_none(),
        }
    }

    /// Pages from card to card.
    pub(super) fn transfer_ns(&mut self, transfer: &Transfer, spread: &mut OpSpread) -> u64 {
        let (pages, page_bytes) = (u64::from(transfer.pages), transfer.page_bytes);
        let bytes = pages * page_bytes;
        match self.link.as_ref().expect("a system with cards for prompts has a link") {
            LinkPrices::Given(link) => {
                let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(link.bytes_per_s));
                link.latency.0 + u64::try_from(ns).unwrap_or(u64::MAX / 2)
            }
            LinkPrices::Measured(surface) => {
                let (whole, rest) = messages(bytes);
                let largest = if whole > 0 { u32::MAX } else { rest };
                self.extrapolated.note(surface.beyond(2, largest), Family::Collective);
                let draw = spread.draw();
                whole * draw.of(surface.cost(2, u32::MAX)) + draw.of(surface.cost(2, rest))
            }
            LinkPrices::Copies => {
                self.extrapolated.note(self.copy.curve.beyond(page_bytes), Family::Copy);
                pages * spread.of(self.copy.curve.cost(page_bytes))
            }
        }
    }

    /// What is read from the disk.
    pub(super) fn stored_ns(&mut self, bytes: u64, spread: &mut OpSpread) -> u64 {
        let store = self.store.as_ref().expect("who reads from the disk has bound its price");
        self.extrapolated.note(store.beyond(bytes), Family::ModelLoad);
        spread.of(store.cost(bytes))
    }
}
