//! What a batch of tasks takes: the shared model's tables, and each group's operators on their streams.
//!
//! Streams are priced as the scheduler prices them (`StreamPrices`), with what this op's own tables drew.

use tenantry_core::op::{BatchShape, Pet, PetGroup};
use tenantry_core::policy::stream_prices::StreamPrices;
use tenantry_core::spec::{EngineSpec, PoolSpec, TasksSpec};
use tenantry_profiles::{
    AdapterSurface, Beyond, Card, Curve, Family, MissingTable, ModelShape, PetKind, PoolBatching, Surface,
};

use crate::prices::{Extrapolated, OpSpread, Quantile};

/// The tables of all shared models.
#[derive(Debug)]
pub(crate) struct PetPrices {
    models: Vec<OfModel>,
    /// Indexed as `OfModel::pets`.
    kinds: Vec<PetKind>,
    /// Of splitting pools on the host, in the order of [`PoolBatching::ALL`]; nothing where no pool is split.
    planning: Vec<Surface>,
    streams: StreamPrices,
    /// Of an op's groups, used again.
    alone_ns: Vec<u64>,
}

#[derive(Debug)]
struct OfModel {
    shape: ModelShape,
    embedding: Surface,
    layer: Surface,
    head: Curve,
    /// Absent where it was not measured, or one model computes at a time.
    concurrent: Option<AdapterSurface>,
    pets: Vec<Surface>,
}

impl PetPrices {
    pub fn new(card: &Card, pool: &PoolSpec, tasks: &TasksSpec) -> Result<PetPrices, MissingTable> {
        let kinds = tasks.engine.kinds_with_operators(&tasks.registrations);
        let several = matches!(tasks.engine, EngineSpec::Parallel { .. } | EngineSpec::Shared { .. });
        let model = |shape: &ModelShape| OfModel::new(card, pool, shape, &kinds, several);
        Ok(PetPrices {
            models: tasks.models(&pool.model).map(model).collect::<Result<_, _>>()?,
            streams: StreamPrices::new(card, pool, tasks, &kinds)?,
            kinds,
            planning: match tasks.plans() {
                true => PoolBatching::ALL.iter().map(|batching| card.plan(*batching)).collect::<Result<_, _>>()?,
                false => Vec::new(),
            },
            alone_ns: Vec::new(),
        })
    }

    /// A forward pass, in nanoseconds.
    pub fn work_ns(
        &mut self,
        pet: &Pet,
        groups: &[PetGroup],
        shape: BatchShape,
        spread: &mut OpSpread,
        extrapolated: &mut Extrapolated,
    ) -> u64 {
        // The parts of one op run within milliseconds of each other: what slows one slows all.
        let draw = spread.draw();
        let model = &self.models[usize::from(pet.model)];
        let (requests, tokens) = (shape.requests, shape.tokens);
        extrapolated.note(model.embedding.beyond(requests, tokens), Family::Embedding);
        extrapolated.note(model.layer.beyond(requests, tokens), Family::EncoderLayer);
        extrapolated.note(model.head.beyond(requests.into()), Family::Head);
        let layers = u64::from(model.shape.layers);
        let shared = draw.of(model.embedding.cost(requests, tokens))
            + layers * draw.of(model.layer.cost(requests, tokens))
            + draw.of(model.head.cost(requests.into()));
        shared + layers * self.layer_ns(pet, groups, draw, extrapolated)
    }

    /// All groups' operators of one layer.
    fn layer_ns(&mut self, pet: &Pet, groups: &[PetGroup], draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let model = &self.models[usize::from(pet.model)];
        self.alone_ns.clear();
        for group in groups {
            let kind = self.kinds.iter().position(|kind| *kind == group.kind);
            let surface = &model.pets[kind.expect("a loaded task's kind has a table")];
            extrapolated.note(surface.beyond(group.count, group.tokens), Family::Pet);
            self.alone_ns.push(draw.of(surface.cost(group.count, group.tokens)));
        }
        extrapolated.note(
            self.streams.beyond(pet.model, groups, pet.streams),
            Family::ConcurrentPet,
        );
        self.streams.layer_ns(pet.model, groups, &self.alone_ns, pet.streams)
    }

    /// Splitting a pool on the host, by tasks and queries.
    pub fn planning(&self, batching: PoolBatching) -> &Surface {
        &self.planning[batching as usize]
    }

    /// How much longer a layer takes while so many models of a card compute, in parts of a million; nothing where that
    /// was not measured.
    pub fn streams_ppm(&self, pet: &Pet, streams: u32, shape: BatchShape) -> Option<u64> {
        self.models[usize::from(pet.model)].streams_ppm(streams, shape.requests, shape.tokens)
    }

    /// How far that is beyond what was measured.
    pub fn streams_beyond(&self, pet: &Pet, streams: u32, shape: BatchShape) -> Option<Beyond> {
        let surface = self.models[usize::from(pet.model)].concurrent.as_ref()?;
        surface.beyond(streams, shape.requests, shape.tokens)
    }
}

impl OfModel {
    fn new(
        card: &Card,
        pool: &PoolSpec,
        shape: &ModelShape,
        kinds: &[PetKind],
        several: bool,
    ) -> Result<OfModel, MissingTable> {
        let dtype = pool.dtype;
        Ok(OfModel {
            shape: shape.clone(),
            embedding: card.embedding(shape, dtype)?,
            layer: card.encoder_layer(shape, dtype)?,
            head: card.head(shape, dtype, pool.classes)?,
            concurrent: several.then(|| card.concurrent_layer(shape, dtype).ok()).flatten(),
            pets: kinds.iter().map(|kind| card.pet(shape, dtype, *kind)).collect::<Result<_, _>>()?,
        })
    }

    fn streams_ppm(&self, streams: u32, batch: u32, tokens: u32) -> Option<u64> {
        Some(self.concurrent.as_ref()?.beside_ppm(streams, batch, tokens))
    }
}
