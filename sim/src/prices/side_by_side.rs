//! What ops take from each other when several lanes compute.

use tenantry_core::ids::PoolId;
use tenantry_core::op::{BatchShape, OpKind};
use tenantry_profiles::{Card, DeviceKind, Family};

use super::{ModelPrices, Prices};

/// Cores on which lanes take turns where more compute than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// All cards are one processor's, and whatever lanes do takes a core.
    OfAllCards(u64),
    /// Each card is a processor of its own, on which instances that compute share the cores; what copies and look-ups
    /// take from them was measured. So are encoders', runtimes' and cascades', and decoders' of which it was not
    /// measured what they take from each other.
    OfEachCard(u64),
}

/// Of a card that is the host's own processor.
pub(super) fn cores_of(card: &Card) -> Option<u32> {
    (card.device.kind == DeviceKind::Cpu).then(|| card.device.host.cores.max(1))
}

/// Of so many instances of a card, those that compute at once: of more than there are cores nothing is measured, and
/// they take turns.
pub(super) fn at_once(card: &Card, streams: u32) -> u32 {
    cores_of(card).map_or(streams, |cores| streams.min(cores))
}

impl Prices {
    /// How much longer a layer takes while `streams` instances of the card compute, in parts of a million; nothing
    /// where that was not measured.
    pub fn streams_ppm(&self, pool: PoolId, kind: &OpKind, streams: u32, shape: BatchShape) -> Option<u64> {
        let prices = match (&self.models[pool.index()], kind) {
            (ModelPrices::Encoder(prices), _) => prices,
            (ModelPrices::Tasks(prices), OpKind::Pet(pet)) => {
                return prices.streams_ppm(pet, self.at_once(streams), shape);
            }
            (ModelPrices::Runtimes(prices), OpKind::Infer(infer)) => {
                return prices.streams_ppm(*infer, self.at_once(streams), shape);
            }
            (ModelPrices::Decoder(prices), OpKind::Run(_)) => {
                return prices.streams_ppm(self.at_once(streams), shape.requests);
            }
            _ => return None,
        };
        let surface = prices.concurrent.as_ref()?;
        Some(surface.beside_ppm(self.at_once(streams), shape.requests, shape.tokens))
    }

    /// See [`at_once`].
    pub(super) fn at_once(&self, streams: u32) -> u32 {
        self.cores.map_or(streams, |cores| streams.min(cores))
    }

    /// Notes where what ops take from each other side by side is beyond what was measured; encoders' is noted with
    /// their layers.
    pub fn note_side_by_side(&mut self, pool: PoolId, kind: &OpKind, streams: u32, shape: BatchShape) {
        let (beyond, family) = match (&self.models[pool.index()], kind) {
            (ModelPrices::Tasks(prices), OpKind::Pet(pet)) => {
                let beyond = prices.streams_beyond(pet, self.at_once(streams), shape);
                (beyond, Family::ConcurrentLayer)
            }
            (ModelPrices::Runtimes(prices), OpKind::Infer(infer)) => {
                prices.streams_beyond(*infer, self.at_once(streams), shape)
            }
            (ModelPrices::Decoder(prices), OpKind::Run(_)) => {
                let beyond = prices.streams_beyond(self.at_once(streams), shape.requests);
                (beyond, Family::ConcurrentStep)
            }
            _ => return,
        };
        self.extrapolated.note(beyond, family);
    }

    /// Cores that lanes share, where cards are processors.
    pub fn cores(&self) -> Option<Cores> {
        let cores = u64::from(self.cores?);
        let of_all = match &self.models[0] {
            ModelPrices::Decoder(steps) => steps.streams_ppm(1, 1).is_some(),
            // Full models side by side may be as many as there are tasks.
            ModelPrices::Tasks(_) => true,
            _ => false,
        };
        Some(match of_all {
            true => Cores::OfAllCards(cores),
            false => Cores::OfEachCard(cores),
        })
    }

    /// Whether no core is left for whoever wakes, when so many lanes compute beside a lane that does not.
    pub fn fills_cores(&self, lanes: u32) -> bool {
        lanes + 1 >= self.host_cores
    }
}
