//! What ops take from each other when several lanes compute.

use tenantry_core::ids::PoolId;
use tenantry_core::op::{BatchShape, OpKind};
use tenantry_profiles::Family;

use super::{ModelPrices, Prices};

impl Prices {
    /// How much longer a layer takes while `streams` instances of the card compute, in parts of a million; nothing where that was
    /// not measured.
    pub fn streams_ppm(&self, pool: PoolId, kind: &OpKind, streams: u32, shape: BatchShape) -> Option<u64> {
        let prices = match (&self.models[pool.index()], kind) {
            (ModelPrices::Encoder(prices), _) => prices,
            (ModelPrices::Tasks(prices), OpKind::Pet(pet)) => {
                return prices.streams_ppm(pet, self.at_once(streams), shape);
            }
            (ModelPrices::Runtimes(prices), OpKind::Infer(infer)) => return prices.streams_ppm(*infer, streams, shape),
            (ModelPrices::Decoder(prices), OpKind::Run(_)) => return prices.streams_ppm(streams, shape.requests),
            _ => return None,
        };
        let surface = prices.concurrent.as_ref()?;
        Some(surface.beside_ppm(streams, shape.requests, shape.tokens))
    }

    /// Of so many streams of tasks' models, those that compute at once: of more than there are cores nothing is measured, and they take turns.
    pub(super) fn at_once(&self, streams: u32) -> u32 {
        self.cores.map_or(streams, |cores| streams.min(cores.max(1)))
    }

    /// Notes where what ops take from each other side by side is beyond what was measured; encoders' is noted with their layers.
    pub fn note_side_by_side(&mut self, pool: PoolId, kind: &OpKind, streams: u32, shape: BatchShape) {
        let (beyond, family) = match (&self.models[pool.index()], kind) {
            (ModelPrices::Tasks(prices), OpKind::Pet(pet)) => {
                let beyond = prices.streams_beyond(pet, self.at_once(streams), shape);
                (beyond, Family::ConcurrentLayer)
            }
            (ModelPrices::Runtimes(prices), OpKind::Infer(infer)) => prices.streams_beyond(*infer, streams, shape),
            (ModelPrices::Decoder(prices), OpKind::Run(_)) => {
                (prices.streams_beyond(streams, shape.requests), Family::ConcurrentStep)
            }
            _ => return,
        };
        self.extrapolated.note(beyond, family);
    }

    /// Cores that all lanes of all cards share; nothing where each card computes for itself, or where it was not measured what
    /// decoders that compute side by side take from each other.
    pub fn cores_shared(&self) -> Option<u64> {
        let share = match &self.models[0] {
            ModelPrices::Decoder(steps) => steps.streams_ppm(1, 1).is_some(),
            // Full models side by side may be as many as there are tasks.
            ModelPrices::Tasks(_) => true,
            _ => false,
        };
        self.cores.filter(|_| share).map(u64::from)
    }

    /// Whether no core is left for whoever wakes, when so many lanes compute beside a lane that does not.
    pub fn fills_cores(&self, lanes: u32) -> bool {
        lanes + 1 >= self.host_cores
    }
}
