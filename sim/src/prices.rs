//! From an op to nanoseconds, by a card's measured tables.

use std::collections::BTreeMap;
use std::ops::Range;

use tenantry_core::ids::PoolId;
use tenantry_core::op::{BatchShape, Encode, GoingOn, Manage, Member, OpKind, Pet, PetGroup, Transfer};
use tenantry_core::spec::{HeadTask, LinkSpec, PlotSpec, PoolSpec, RouteSpec, StageSpec, SystemSpec, TenantState};
use tenantry_core::topology::LaneKind;
use tenantry_profiles::{
    AdapterSurface, Beyond, Card, Changing, CollectiveOperation, Cost, Curve, Direction, DispatchOperation, Drawn,
    Family, HandOver, LoadSource, MissingTable, Place, Resume, Rhythm, Surface, TaggingSurface, TokensOf,
};
use tenantry_traces::draw::{Draws, Purpose, Stream};
use tenantry_traces::{Duration, Time};

use crate::lookups::LookupPrices;
use crate::pet_prices::PetPrices;
use crate::runtime_prices::RuntimePrices;
use crate::steps::{StepCosts, StepPrices};

/// Keeps the draws of blocks of steps apart from those of lanes' ops.
const BLOCK: u64 = 1 << 62;

/// Keeps the draws of alarms apart from those of lanes, whose keys begin with the lane.
const ALARM: u64 = 1 << 63;

/// Whether an op's duration varies as it did when it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Every op takes its median.
    None,
    /// Drawn from the measured quantiles.
    Measured {
        /// Of the draws.
        seed: u64,
    },
}

/// A card that cannot price a pool's ops.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PriceError(#[from] pub MissingTable);

/// The costs of a system's ops on one card, bound once so that a look-up hashes and allocates nothing.
#[derive(Debug)]
pub struct Prices {
    /// By pool.
    models: Vec<ModelPrices>,
    lookup: Option<LookupPrices>,
    copy: CopyPrices,
    /// Between cards; bound where anything is copied there.
    link: Option<LinkPrices>,
    /// Of what is read from the disk; bound where anything is.
    store: Option<Curve>,
    /// Of models from host memory; bound where a stage's cards come and go.
    model_load: Option<Curve>,
    wake: HandOver,
    tell: HandOver,
    alarm: HandOver,
    inspect: Option<Drawn>,
    /// By pool, as `models`.
    resume: Vec<ResumePrices>,
    /// Of copies, as far as it was measured.
    copy_resume: Option<Resume>,
    /// Of the host that issues to the card.
    host_cores: u32,
    /// Where the card is the host's own processor.
    cores: Option<u32>,
    draws: Option<Draws>,
    /// By lane: the last block of its steps that was drawn, and where in their spread.
    blocks: Vec<Option<(u64, Place)>>,
    extrapolated: Extrapolated,
}

/// Families of which a cost was asked beyond what was measured, and the farthest of each.
#[derive(Debug, Default)]
pub(crate) struct Extrapolated(BTreeMap<Family, Beyond>);

impl Extrapolated {
    /// Remembers a cost, if it was beyond.
    #[inline]
    pub fn note(&mut self, beyond: Option<Beyond>, family: Family) {
        if let Some(beyond) = beyond {
            self.note_beyond(beyond, family);
        }
    }

    #[inline(never)]
    fn note_beyond(&mut self, beyond: Beyond, family: Family) {
        let farthest = self.0.entry(family).or_insert(beyond);
        // Mostly it lies on the way to the farthest, which is seen without a division.
        let is_on_the_way = beyond.measured == farthest.measured
            && beyond.asked.abs_diff(beyond.measured) <= farthest.asked.abs_diff(farthest.measured)
            && (beyond.asked > beyond.measured) == (farthest.asked > farthest.measured);
        if !is_on_the_way && beyond.factor() > farthest.factor() {
            *farthest = beyond;
        }
    }
}

#[derive(Debug)]
enum ModelPrices {
    Encoder(Box<EncoderPrices>),
    Decoder(Box<StepPrices>),
    Tasks(Box<PetPrices>),
    Runtimes(Box<RuntimePrices>),
}

/// What copying pages from card to card costs.
#[derive(Debug)]
enum LinkPrices {
    /// As the scenario says.
    Given(LinkSpec),
    /// As measured between two such cards, by bytes of a message.
    Measured(Box<Surface>),
    /// As copies on the card, page by page.
    Copies,
}

impl LinkPrices {
    fn new(card: &Card, given: Option<LinkSpec>) -> LinkPrices {
        let measured = || card.collective(CollectiveOperation::SendReceive).ok();
        match given {
            Some(link) => LinkPrices::Given(link),
            None => measured().map_or(LinkPrices::Copies, |surface| LinkPrices::Measured(Box::new(surface))),
        }
    }
}

/// Forward passes of an encoder.
#[derive(Debug)]
struct EncoderPrices {
    embedding: Surface,
    layer: Surface,
    head: HeadPrices,
    adapter: Option<AdapterSurface>,
    /// One layer on several instances of a card at once; absent where that was not measured.
    concurrent: Option<AdapterSurface>,
    /// Of trained classifiers over texts, whole; absent where that was not measured, and a pass costs what its parts do.
    texts: Option<TextPrices>,
    /// Instances on a card.
    streams: u32,
    /// By requests: tokens and tenants of the last such batch, and what a layer of it and its adapters cost. The ops of a batch ask for
    /// the same.
    layers: Vec<Option<LayerCosts>>,
    embeddings: LastOfSize,
    heads: LastOfSize,
}

/// What a trained classifier's stage takes on a card that measured it with the very lane that serves.
#[derive(Debug)]
struct TextPrices {
    pass: Surface,
    /// What the lane makes of a pass; where nobody dispatches, at its end.
    look: Curve,
    /// The same where each of the texts goes on pruned; absent where that was not measured.
    pruned_look: Option<Curve>,
    dispatches: bool,
    passes: LastOfSize,
}

impl TextPrices {
    fn new(card: &Card, stage: &StageSpec, attended: bool) -> Result<Option<TextPrices>, MissingTable> {
        let PoolSpec { model, dtype, .. } = &stage.pool;
        let (Some(pass), Some(look)) = (card.text_pass(model, *dtype, attended)?, card.text_look(model, false)?) else {
            return Ok(None);
        };
        Ok(Some(TextPrices {
            pass,
            look,
            pruned_look: card.text_look(model, true)?,
            dispatches: stage.dispatch.is_some(),
            passes: LastOfSize::default(),
        }))
    }

    /// A pass, and what is made of it where no look follows.
    fn pass_ns(&mut self, shape: BatchShape, draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let BatchShape { requests, tokens, .. } = shape;
        let pass = &self.pass;
        let cost = self.passes.cost(requests, tokens, || {
            extrapolated.note(pass.beyond(requests, tokens), Family::TextPass);
            pass.cost(requests, tokens)
        });
        let ns = draw.of_drawn(cost);
        match self.dispatches {
            true => ns,
            false => ns + draw.of(self.looked(requests, extrapolated)),
        }
    }

    fn looked(&self, requests: u32, extrapolated: &mut Extrapolated) -> Cost {
        extrapolated.note(self.look.beyond(requests.into()), Family::TextLook);
        self.look.cost(requests.into())
    }

    /// A look at so many answers, after which so many texts go on pruned.
    fn look_ns(&self, requests: u32, pruned: u32, draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let all = draw.of(self.looked(requests, extrapolated));
        let Some(pruned_look) = self.pruned_look.as_ref().filter(|_| pruned > 0) else {
            return all;
        };
        extrapolated.note(pruned_look.beyond(pruned.into()), Family::TextLook);
        let more = draw.of(pruned_look.cost(pruned.into()));
        all + more.saturating_sub(draw.of(self.look.cost(pruned.into())))
    }
}

/// What a part of a pass costs, by requests: tokens of the last such batch, and its cost.
#[derive(Debug, Default)]
struct LastOfSize(Vec<Option<(u32, Drawn)>>);

impl LastOfSize {
    /// That of a batch of so many tokens, which is asked for where the last of its size had others.
    fn cost(&mut self, requests: u32, tokens: u32, ask: impl FnOnce() -> Cost) -> &Drawn {
        let index = requests as usize;
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        let last = &mut self.0[index];
        if last.is_none_or(|(known, _)| known != tokens) {
            *last = Some((tokens, ask().into()));
        }
        &last.as_ref().expect("it has just been asked for").1
    }
}

/// Copies from host memory.
#[derive(Debug)]
struct CopyPrices {
    curve: Curve,
    /// The size of the last chunk of parameters, and its cost: they are all alike.
    last: Option<(u64, Drawn)>,
}

impl CopyPrices {
    fn chunk(&mut self, bytes: u64, extrapolated: &mut Extrapolated) -> &Drawn {
        if self.last.is_none_or(|(known, _)| known != bytes) {
            extrapolated.note(self.curve.beyond(bytes), Family::Copy);
            self.last = Some((bytes, self.curve.cost(bytes).into()));
        }
        &self.last.as_ref().expect("it has just been looked up").1
    }
}

/// From the last hidden states to what tenants' heads say.
#[derive(Debug)]
enum HeadPrices {
    Classification(Curve),
    Tagging { surface: TaggingSurface, classes: u32 },
}

impl HeadPrices {
    /// Of a batch: its cost, and how far beyond what was measured that is.
    fn of(&self, requests: u32, tokens: u32) -> (Cost, Option<Beyond>, Family) {
        match self {
            HeadPrices::Classification(curve) => {
                let requests = u64::from(requests);
                (curve.cost(requests), curve.beyond(requests), Family::Head)
            }
            HeadPrices::Tagging { surface, classes } => (
                surface.cost(requests, tokens, *classes),
                surface.beyond(requests, tokens, *classes),
                Family::TaggingHead,
            ),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct LayerCosts {
    tokens: u32,
    tenants: u32,
    layer: Drawn,
    adapter: Option<Drawn>,
}

impl EncoderPrices {
    /// `streams` instances compute on a card. Where `attended`, a pass also says which words were attended to; on a card where that was
    /// not measured it costs what it does without.
    fn new(card: &Card, pool: &PoolSpec, streams: u32, attended: bool) -> Result<EncoderPrices, MissingTable> {
        let PoolSpec {
            model, dtype, classes, ..
        } = pool;
        let measured = match attended {
            true => card.attended_layer(model, *dtype)?,
            false => None,
        };
        Ok(EncoderPrices {
            embedding: card.embedding(model, *dtype)?,
            layer: match measured {
                Some(layer) => layer,
                None => card.encoder_layer(model, *dtype)?,
            },
            head: match pool.heads {
                HeadTask::Classification => HeadPrices::Classification(card.head(model, *dtype, *classes)?),
                HeadTask::Tagging => HeadPrices::Tagging {
                    surface: card.tagging_head(model, *dtype)?,
                    classes: *classes,
                },
            },
            adapter: match pool.tenant_state {
                TenantState::Adapters {
                    bottleneck,
                    implementation,
                } => Some(card.adapter(model, *dtype, implementation, bottleneck)?),
                TenantState::Model | TenantState::Head => None,
            },
            concurrent: match streams {
                1 => None,
                _ => card.concurrent_layer(model, *dtype).ok(),
            },
            texts: None,
            streams,
            layers: Vec::new(),
            embeddings: LastOfSize::default(),
            heads: LastOfSize::default(),
        })
    }

    fn layer(&mut self, shape: BatchShape, extrapolated: &mut Extrapolated) -> LayerCosts {
        let BatchShape {
            requests,
            tokens,
            tenants,
            input_tokens: _,
        } = shape;
        let index = requests as usize;
        if index >= self.layers.len() {
            self.layers.resize(index + 1, None);
        }
        if let Some(known) = self.layers[index].filter(|known| (known.tokens, known.tenants) == (tokens, tenants)) {
            return known;
        }
        let mut note = |beyond, family| extrapolated.note(beyond, family);
        note(self.layer.beyond(requests, tokens), Family::EncoderLayer);
        if let Some(concurrent) = &self.concurrent {
            note(
                concurrent.beyond(self.streams, requests, tokens),
                Family::ConcurrentLayer,
            );
        }
        if let Some(adapter) = &self.adapter {
            note(adapter.beyond(tenants, requests, tokens), Family::Adapter);
        }
        let adapter = self.adapter.as_ref();
        let costs = LayerCosts {
            tokens,
            tenants,
            layer: self.layer.cost(requests, tokens).into(),
            adapter: adapter.map(|adapter| adapter.cost(tenants, requests, tokens).into()),
        };
        self.layers[index] = Some(costs);
        costs
    }
}

impl Prices {
    /// Binds the tables that the pool's ops need.
    ///
    /// # Errors
    /// A table that the card does not have, with the command that measures it.
    pub fn new(card: &Card, pool: &PoolSpec, jitter: Jitter) -> Result<Prices, PriceError> {
        let model = match (&pool.generation, &pool.tasks) {
            (Some(generation), _) => ModelPrices::Decoder(Box::new(StepPrices::new(card, pool, generation)?)),
            (None, Some(tasks)) => ModelPrices::Tasks(Box::new(PetPrices::new(card, pool, tasks)?)),
            (None, None) if let Some(runtimes) = &pool.runtimes => {
                ModelPrices::Runtimes(Box::new(RuntimePrices::new(card, pool, runtimes)?))
            }
            (None, None) => {
                let prices = EncoderPrices::new(card, pool, pool.instances_per_gpu, false)?;
                ModelPrices::Encoder(Box::new(prices))
            }
        };
        let prices = Prices::of_models(card, &[pool], vec![model], jitter)?;
        let scales = pool
            .generation
            .as_ref()
            .is_some_and(|generation| generation.scale.is_some());
        prices.with_model_loads(card, scales)
    }

    /// With what models that are loaded onto cards take, if any are.
    fn with_model_loads(mut self, card: &Card, scales: bool) -> Result<Prices, PriceError> {
        self.model_load = scales.then(|| card.model_load(LoadSource::Host)).transpose()?;
        Ok(self)
    }

    /// Binds the tables that a system's ops need, whatever its pools.
    ///
    /// # Errors
    /// As [`Prices::new`].
    pub fn of_system(card: &Card, system: &SystemSpec, jitter: Jitter) -> Result<Prices, PriceError> {
        let Some(route) = &system.route else {
            return Prices::new(card, &system.pool, jitter);
        };
        let streams = most_on_a_card(route);
        let model = |stage: &StageSpec| {
            let prunes = stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some());
            let parts = EncoderPrices::new(card, &stage.pool, streams, prunes)?;
            let attended = stage
                .dispatch
                .and_then(|dispatch| dispatch.prune_alpha)
                .is_some_and(|alpha| alpha > 0.0);
            let texts = TextPrices::new(card, stage, attended)?;
            let prices = EncoderPrices { texts, ..parts };
            Ok::<_, MissingTable>(ModelPrices::Encoder(Box::new(prices)))
        };
        let models = route.stages.iter().map(model).collect::<Result<_, MissingTable>>()?;
        let prices = Prices::of_models(card, &system.pools().collect::<Vec<_>>(), models, jitter)?;
        let scales = route.stages.iter().any(|stage| stage.scale.is_some());
        prices.with_model_loads(card, scales)
    }

    /// The prices of each pool's model; a table is the first pool's.
    fn of_models(
        card: &Card,
        pools: &[&PoolSpec],
        models: Vec<ModelPrices>,
        jitter: Jitter,
    ) -> Result<Prices, PriceError> {
        let pinned = card.device.kind == tenantry_profiles::DeviceKind::Cuda;
        let pool = pools[0];
        let model = &pool.model;
        let resume = pools
            .iter()
            .map(|pool| ResumePrices::new(card, pool))
            .collect::<Result<_, _>>()?;
        Ok(Prices {
            models,
            lookup: match pool.plot {
                None => None,
                Some(spec) => Some(LookupPrices::new(card, model, spec, TokensOf::Texts)?),
            },
            copy: CopyPrices {
                curve: card.copy(Direction::HostToDevice, pinned)?,
                last: None,
            },
            link: { pool.generation.as_ref() }
                .and_then(|generation| generation.disaggregated)
                .map(|disaggregated| LinkPrices::new(card, disaggregated.link)),
            store: match pool
                .generation
                .as_ref()
                .and_then(|generation| generation.lora?.host_slots)
            {
                None => None,
                Some(_) => Some(card.model_load(LoadSource::Disk)?),
            },
            model_load: None,
            wake: card.hand_over(DispatchOperation::Wake)?,
            tell: card.hand_over(DispatchOperation::Tell)?,
            alarm: card.hand_over(DispatchOperation::Alarm)?,
            inspect: card.inspect()?.map(Drawn::from),
            resume,
            copy_resume: card.copy_resume()?,
            host_cores: card.device.host.cores,
            cores: (!pinned).then_some(card.device.host.cores),
            draws: match jitter {
                Jitter::Measured { seed } if card.tables.vary() => Some(Draws::new(seed, Purpose::Jitter)),
                // Where all is as the median, nothing needs to be drawn.
                Jitter::Measured { .. } | Jitter::None => None,
            },
            blocks: Vec::new(),
            extrapolated: Extrapolated::default(),
        })
    }

    /// With what management requests need.
    ///
    /// # Errors
    /// As [`Prices::new`].
    pub fn with_management(mut self, card: &Card) -> Result<Prices, PriceError> {
        self.store = Some(card.model_load(LoadSource::Disk)?);
        Ok(self)
    }

    /// The table that the pool looks up in.
    pub fn plot(&self) -> Option<PlotSpec> {
        self.lookup.as_ref().map(LookupPrices::spec)
    }

    /// The draws for the `count`-th op of a lane, so that one lane's ops never change another's.
    pub fn spread(&self, lane: u32, count: u64) -> OpSpread {
        OpSpread(self.draws.map(|draws| draws.about(u64::from(lane) << 48 | count)))
    }

    /// What the op of an instance of the pool takes on a lane of its own, in nanoseconds.
    pub fn work_ns(&mut self, pool: PoolId, kind: &OpKind, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        match kind {
            OpKind::CopyIn(copy) => {
                u64::from(copy.chunks) * spread.of_drawn(self.copy.chunk(copy.chunk_bytes, &mut self.extrapolated))
            }
            OpKind::Fetch(fetch) => self.stored_ns(fetch.bytes, spread),
            OpKind::Lookup(lookup) => self.lookup_ns(lookup.tokens, spread),
            OpKind::Transfer(transfer) => self.transfer_ns(transfer, spread),
            OpKind::Stage(stage) => {
                self.extrapolated
                    .note(self.copy.curve.beyond(stage.bytes), Family::Copy);
                spread.of(self.copy.curve.cost(stage.bytes))
            }
            OpKind::Encode(encode) => self.encode_ns(pool, encode, shape, spread),
            OpKind::Inspect => self.look_ns(pool, shape, 0, spread),
            OpKind::Run(_) => unreachable!("a run is priced step by step"),
            OpKind::Pet(_) => unreachable!("a batch of tasks is priced with its groups"),
            OpKind::PlanPool(plan) => {
                let ModelPrices::Tasks(prices) = &self.models[0] else {
                    unreachable!("only a system of tasks plans pools")
                };
                let mut ns = 0;
                for &rule in plan.rules {
                    let surface = prices.planning(rule);
                    self.extrapolated
                        .note(surface.beyond(plan.tasks, plan.queries), Family::Plan);
                    ns += spread.of(surface.cost(plan.tasks, plan.queries));
                }
                ns
            }
            OpKind::Manage(Manage::Store { bytes, .. }) => self.stored_ns(*bytes, spread),
            // Memory is let go of at once, as far as anybody has measured.
            OpKind::Manage(Manage::Discard { .. }) => 0,
            OpKind::LoadModel(load) => {
                let curve = self
                    .model_load
                    .as_ref()
                    .expect("a system that loads models has a price for it");
                self.extrapolated.note(curve.beyond(load.bytes), Family::ModelLoad);
                spread.of(curve.cost(load.bytes))
            }
            OpKind::Infer(_) | OpKind::LoadRuntime(_) | OpKind::Solve(_) => self.runtime_ns(kind, shape, spread),
        }
    }

    /// What a batch of tasks takes on a lane of its own, in nanoseconds.
    pub fn tasks_ns(&mut self, pet: &Pet, groups: &[PetGroup], shape: BatchShape, spread: &mut OpSpread) -> u64 {
        let ModelPrices::Tasks(prices) = &mut self.models[0] else {
            unreachable!("only a pool of tasks runs batches of them")
        };
        prices.work_ns(pet, groups, shape, spread, &mut self.extrapolated)
    }

    fn runtime_ns(&mut self, kind: &OpKind, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        let ModelPrices::Runtimes(prices) = &self.models[0] else {
            unreachable!("only a pool of runtimes has such ops")
        };
        let ((cost, beyond), family) = match *kind {
            OpKind::LoadRuntime(load) => (prices.load(load), Family::ModelLoad),
            OpKind::Solve(solve) => (prices.solve(solve), Family::Solve),
            OpKind::Infer(infer) => {
                // The parts of one op run within milliseconds of each other: what slows one slows all.
                let draw = spread.draw();
                let mut ns = 0;
                for part in prices.infer(infer, shape) {
                    self.extrapolated.note(part.beyond, part.family);
                    ns += part.times * draw.of_drawn(&part.cost);
                }
                return ns;
            }
            _ => unreachable!("other ops have prices of their own"),
        };
        self.extrapolated.note(beyond, family);
        spread.of(cost)
    }

    /// What is read from the disk.
    fn stored_ns(&mut self, bytes: u64, spread: &mut OpSpread) -> u64 {
        let store = self
            .store
            .as_ref()
            .expect("who reads from the disk has bound its price");
        self.extrapolated.note(store.beyond(bytes), Family::ModelLoad);
        spread.of(store.cost(bytes))
    }

    /// Whether transfers go over links that cards have: one processor's threads copy in their memory.
    pub fn has_links(&self) -> bool {
        match &self.link {
            None => false,
            Some(LinkPrices::Given(_) | LinkPrices::Measured(_)) => true,
            Some(LinkPrices::Copies) => self.cores.is_none(),
        }
    }

    /// Pages from card to card.
    fn transfer_ns(&mut self, transfer: &Transfer, spread: &mut OpSpread) -> u64 {
        let (pages, page_bytes) = (u64::from(transfer.pages), transfer.page_bytes);
        let bytes = pages * page_bytes;
        match self.link.as_ref().expect("a system with cards for prompts has a link") {
            LinkPrices::Given(link) => {
                let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(link.bytes_per_s));
                link.latency.0 + u64::try_from(ns).unwrap_or(u64::MAX / 2)
            }
            LinkPrices::Measured(messages) => {
                // In messages as large as a table's keys can be: mostly one.
                let (whole, rest) = (bytes / u64::from(u32::MAX), (bytes % u64::from(u32::MAX)) as u32);
                let largest = if whole > 0 { u32::MAX } else { rest };
                self.extrapolated.note(messages.beyond(2, largest), Family::Collective);
                let draw = spread.draw();
                whole * draw.of(messages.cost(2, u32::MAX)) + draw.of(messages.cost(2, rest))
            }
            LinkPrices::Copies => {
                self.extrapolated.note(self.copy.curve.beyond(page_bytes), Family::Copy);
                pages * spread.of(self.copy.curve.cost(page_bytes))
            }
        }
    }

    fn lookup_ns(&mut self, tokens: u32, spread: &mut OpSpread) -> u64 {
        let lookup = self.lookup.as_ref().expect("a pool that looks up has a table");
        self.extrapolated.note(lookup.beyond(tokens), Family::PlotLookup);
        let draw = spread.draw();
        lookup.ns(tokens, |cost| draw.of(cost))
    }

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
        let ns = |streams| surface.cost(streams, shape.requests, shape.tokens).median_ns;
        Some((ns(streams) * 1_000_000 / ns(1).max(1)).max(1_000_000))
    }

    /// Of so many streams of tasks' models, those that compute at once: of more than there are cores nothing is measured, and they take turns.
    fn at_once(&self, streams: u32) -> u32 {
        self.cores.map_or(streams, |cores| streams.min(cores.max(1)))
    }

    /// Notes where what ops take from each other side by side is beyond what was measured; encoders' is noted with their layers.
    pub fn note_side_by_side(&mut self, pool: PoolId, kind: &OpKind, streams: u32, shape: BatchShape) {
        let (beyond, family) = match (&self.models[pool.index()], kind) {
            (ModelPrices::Tasks(prices), OpKind::Pet(pet)) => {
                let beyond = prices.streams_beyond(pet, self.at_once(streams), shape);
                (beyond, Family::ConcurrentLayer)
            }
            (ModelPrices::Runtimes(prices), OpKind::Infer(infer)) => {
                (prices.streams_beyond(*infer, streams, shape), Family::ConcurrentLayer)
            }
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

    /// A dispatcher's look at what a pass came to, after which so many of its texts go on pruned.
    pub fn look_ns(&mut self, pool: PoolId, shape: BatchShape, pruned: u32, spread: &mut OpSpread) -> u64 {
        if let ModelPrices::Encoder(prices) = &self.models[pool.index()]
            && let Some(texts) = &prices.texts
        {
            return texts.look_ns(shape.requests, pruned, spread.draw(), &mut self.extrapolated);
        }
        self.inspect.as_ref().map_or(0, |inspect| spread.of_drawn(inspect))
    }

    fn encode_ns(&mut self, pool: PoolId, encode: &Encode, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        let BatchShape { requests, tokens, .. } = shape;
        let ModelPrices::Encoder(prices) = &mut self.models[pool.index()] else {
            unreachable!("a decoder's pool encodes nothing")
        };
        let layers = u64::from(encode.layers.count);
        // The parts of one op run within milliseconds of each other: what slows one slows all.
        let draw = spread.draw();
        if let Some(texts) = &mut prices.texts {
            return texts.pass_ns(shape, draw, &mut self.extrapolated);
        }
        let costs = prices.layer(shape, &mut self.extrapolated);
        let adapter_ns = costs.adapter.map_or(0, |adapter| draw.of_drawn(&adapter));
        let mut ns = layers * (draw.of_drawn(&costs.layer) + adapter_ns);
        let mut note = |beyond, family| self.extrapolated.note(beyond, family);
        let EncoderPrices {
            embedding,
            embeddings,
            head,
            heads,
            ..
        } = &mut **prices;
        if encode.embed {
            ns += draw.of_drawn(embeddings.cost(requests, tokens, || {
                note(embedding.beyond(requests, tokens), Family::Embedding);
                embedding.cost(requests, tokens)
            }));
        }
        if encode.heads {
            ns += draw.of_drawn(heads.cost(requests, tokens, || {
                let (cost, beyond, family) = head.of(requests, tokens);
                note(beyond, family);
                cost
            }));
        }
        ns
    }

    /// The steps of a decoder's run.
    pub(crate) fn run(&mut self, members: &[Member], going_on: GoingOn, tenants: u32) -> StepCosts {
        let ModelPrices::Decoder(steps) = &mut self.models[0] else {
            unreachable!("an encoder's pool makes no steps")
        };
        steps.run(members, going_on, tenants, &mut self.extrapolated)
    }

    /// What these steps of a decoder's run, counted from 0, take beside nothing else and without jitter, in nanoseconds.
    pub fn steps_ns(&mut self, members: &[Member], going_on: GoingOn, tenants: u32, steps: Range<u32>) -> u64 {
        let costs = self.run(members, going_on, tenants);
        self.steps().between(&costs, steps.start, steps.end)
    }

    pub(crate) fn steps(&mut self) -> &mut StepPrices {
        match &mut self.models[0] {
            ModelPrices::Decoder(steps) => steps,
            ModelPrices::Encoder(_) | ModelPrices::Tasks(_) | ModelPrices::Runtimes(_) => {
                unreachable!("an encoder's pool makes no steps")
            }
        }
    }

    /// How far a block of a lane's steps is from the median, in parts of a million; nothing where none is.
    #[inline]
    pub(crate) fn block_ppm(&mut self, lane: u32, block: u64, typical: &Drawn) -> Option<u64> {
        let place = self.block_place(lane, block)?;
        Some((typical.at(place) * 1_000_000 / typical.median_ns().max(1)).max(1))
    }

    /// Drawn once for all runs that have steps of the block.
    #[inline]
    fn block_place(&mut self, lane: u32, block: u64) -> Option<Place> {
        let draws = self.draws?;
        let of_lane = lane as usize;
        if of_lane >= self.blocks.len() {
            self.blocks.resize(of_lane + 1, None);
        }
        match self.blocks[of_lane] {
            Some((drawn, place)) if drawn == block => Some(place),
            _ => {
                let place = Place::new(draws.about(BLOCK ^ (u64::from(lane) << 48 | block)).unit());
                self.blocks[of_lane] = Some((block, place));
                Some(place)
            }
        }
    }

    /// From handing an op to a sleeping lane until it starts, in nanoseconds.
    pub fn wake_ns(&self, rhythm: Rhythm, spread: &mut OpSpread) -> u64 {
        spread.of_drawn(self.wake.at(rhythm))
    }

    /// From the end of an op until the server or another lane hears of it, in nanoseconds.
    pub fn tell_ns(&self, rhythm: Rhythm, spread: &mut OpSpread) -> u64 {
        spread.of_drawn(self.tell.at(rhythm))
    }

    /// From an instant that the loop sleeps until to its noticing that it has come, in nanoseconds; it has slept for so long. The same
    /// instant always gives the same answer.
    pub fn alarm_ns(&self, until: Time, slept: Duration) -> u64 {
        let rhythm = Rhythm {
            pause_ns: slept.0,
            work_ns: 0,
            others_busy: false,
        };
        OpSpread(self.draws.map(|draws| draws.about(ALARM ^ until.0))).of_drawn(self.alarm.at(rhythm))
    }

    /// Whether no core is left for whoever wakes, when so many lanes compute beside a lane that does not.
    pub fn fills_cores(&self, lanes: u32) -> bool {
        lanes + 1 >= self.host_cores
    }

    /// Whether it matters whose model the pool's last batch was computed with.
    pub fn changes_model(&self, pool: PoolId) -> bool {
        self.resume[pool.index()].other.is_some()
    }

    /// What an op that takes `work_ns` on a warm lane of this kind takes longer on one that was idle before or had another tenant's model,
    /// in nanoseconds: caches are cold and clocks are low. Nothing on cards where this was not measured.
    ///
    /// A lane warms up as it works, which may take it several ops: an op without any idleness before it pays what is left of that.
    pub fn resume_ns(
        &self,
        lane: LaneKind,
        pool: PoolId,
        before: Before,
        work_ns: u64,
        warmth: &mut Warmth,
        spread: &mut OpSpread,
    ) -> u64 {
        let Some(after) = self.resume_after(lane, pool, before) else {
            return 0;
        };
        let micros = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        let work_us = micros(work_ns);
        let going_on = self
            .resume_after(lane, pool, warmth.before)
            .filter(|resume| warmth.work_us < resume.warm_after_us());
        if before == Before::AT_WORK && going_on.is_none() {
            return 0;
        }
        let draw = spread.draw();
        let extra_ns = |resume: &Resume, before: Before, work_us| {
            // Another model costs without any idleness too, for which the least of the table stands.
            let idle_us = micros(before.idle.0).max((before.model != ModelBefore::Same).into());
            resume.extra_ns(idle_us, work_us, |whole| draw.of(whole))
        };
        let anew_ns = extra_ns(after, before, work_us);
        let all_us = warmth.work_us.saturating_add(work_us);
        let left_ns = going_on.map_or(0, |resume| {
            let until = |work_us| extra_ns(resume, warmth.before, work_us);
            until(all_us).saturating_sub(until(warmth.work_us))
        });
        *warmth = match anew_ns >= left_ns {
            true => Warmth { before, work_us },
            false => Warmth {
                work_us: all_us,
                ..*warmth
            },
        };
        anew_ns.max(left_ns)
    }

    /// Whether an op takes longer after this: nothing does on cards where it was not measured.
    pub fn cools_down(&self, lane: LaneKind, pool: PoolId, before: Before) -> bool {
        self.resume_after(lane, pool, before).is_some()
    }

    fn resume_after(&self, lane: LaneKind, pool: PoolId, before: Before) -> Option<&Resume> {
        let of_pool = &self.resume[pool.index()];
        match lane {
            LaneKind::Compute => match before.model {
                ModelBefore::Same => of_pool.same.as_ref(),
                ModelBefore::Other => of_pool.other.as_ref(),
                ModelBefore::Copied => of_pool.copied.as_ref(),
            },
            LaneKind::Copy => self.copy_resume.as_ref(),
            LaneKind::Lookup | LaneKind::Solve | LaneKind::Link => None,
        }
    }

    /// Families of which a cost was asked beyond what was measured, and how far at most.
    pub fn extrapolated(&self) -> impl Iterator<Item = (Family, Beyond)> + '_ {
        self.extrapolated.0.iter().map(|(family, beyond)| (*family, *beyond))
    }
}

/// What a lane did before an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Nothing, for so long.
    pub idle: Duration,
    /// Whose model its last op was of.
    pub model: ModelBefore,
}

/// Whose model a lane's last op was of, where tenants have models of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelBefore {
    /// The same tenant's, or nobody has their own.
    Same,
    /// Another's, and this tenant's lay on the card.
    Other,
    /// Another's, and this tenant's was copied to the card for the op.
    Copied,
}

impl Before {
    /// It was at work, for the same tenant or for any.
    pub const AT_WORK: Before = Before {
        idle: Duration::ZERO,
        model: ModelBefore::Same,
    };
}

/// How far a lane has warmed up: the coldest that it was, and what it has worked since.
#[derive(Clone, Copy, Debug)]
pub struct Warmth {
    before: Before,
    /// As on a warm lane, in microseconds.
    work_us: u32,
}

impl Warmth {
    /// Of a lane that has not been idle yet.
    pub const WARM: Warmth = Warmth {
        before: Before::AT_WORK,
        work_us: 0,
    };
}

/// What a pool's ops take longer after that.
#[derive(Debug)]
struct ResumePrices {
    /// Than back to back with the same model.
    same: Option<Resume>,
    /// Likewise, where tenants have whole models.
    other: Option<Resume>,
    /// Likewise, after the model's copy.
    copied: Option<Resume>,
}

impl ResumePrices {
    fn new(card: &Card, pool: &PoolSpec) -> Result<ResumePrices, MissingTable> {
        let of = |changing| card.resume(&pool.model, changing, pool.first_layer());
        Ok(match pool.changing() {
            Changing::Model => ResumePrices {
                same: of(Changing::Heads)?,
                other: of(Changing::Model)?,
                copied: of(Changing::CopiedModel)?,
            },
            less => ResumePrices {
                same: of(less)?,
                other: None,
                copied: None,
            },
        })
    }
}

/// Instances on the card that has most of them.
fn most_on_a_card(route: &RouteSpec) -> u32 {
    let mut instances: BTreeMap<u32, u32> = BTreeMap::new();
    for stage in route.stages.iter().filter(|stage| !stage.continues()) {
        for &gpu in &stage.gpus {
            *instances.entry(gpu).or_default() += stage.pool.instances_per_gpu;
        }
    }
    instances.into_values().max().unwrap_or(1)
}

/// The draws of one op.
#[derive(Debug)]
pub struct OpSpread(Option<Stream>);

/// A place in the measured distribution, for the parts of one op.
#[derive(Clone, Copy)]
pub(crate) struct Quantile(Option<Place>);

impl Quantile {
    pub fn of(self, cost: Cost) -> u64 {
        self.0.map_or(cost.median_ns, |place| cost.at_quantile(place.share()))
    }

    fn of_drawn(self, cost: &Drawn) -> u64 {
        self.0.map_or(cost.median_ns(), |place| cost.at(place))
    }
}

impl OpSpread {
    pub(crate) fn draw(&mut self) -> Quantile {
        Quantile(self.unit().map(Place::new))
    }

    fn unit(&mut self) -> Option<f64> {
        self.0.as_mut().map(Stream::unit)
    }

    fn of(&mut self, cost: Cost) -> u64 {
        self.unit().map_or(cost.median_ns, |u| cost.at_quantile(u))
    }

    fn of_drawn(&mut self, cost: &Drawn) -> u64 {
        self.unit().map_or(cost.median_ns(), |u| cost.at_quantile(u))
    }
}
