//! From an op to nanoseconds, by a card's measured tables.

mod copies;
mod draws;
mod extrapolated;
mod passes;
mod resume;
mod side_by_side;

use std::collections::BTreeMap;
use std::ops::Range;

use tenantry_core::ids::PoolId;
use tenantry_core::op::{BatchShape, GoingOn, Manage, Member, OpKind, Pet, PetGroup};
use tenantry_core::spec::{PlotSpec, PoolSpec, RouteSpec, StageSpec, SystemFamily, SystemSpec};
use tenantry_profiles::{
    Card, Curve, Direction, DispatchOperation, Drawn, Family, HandOver, LoadSource, MissingTable, Place, Resume,
    TokensOf,
};
use tenantry_traces::draw::{Draws, Purpose};

pub(crate) use self::copies::messages;
use self::copies::{CopyPrices, LinkPrices};
pub use self::draws::OpSpread;
pub(crate) use self::draws::Quantile;
pub(crate) use self::extrapolated::Extrapolated;
use self::passes::{EncoderPrices, TextPrices};
use self::resume::ResumePrices;
pub use self::resume::{Before, ModelBefore, Warmth};
pub use self::side_by_side::Cores;
use self::side_by_side::{at_once, cores_of};
use crate::lookups::LookupPrices;
use crate::pet_prices::PetPrices;
use crate::runtime_prices::RuntimePrices;
use crate::steps::{StepCosts, StepPrices};

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
    lookup_resume: Option<Resume>,
    /// Of the host that issues to the card.
    host_cores: u32,
    /// Where the card is the host's own processor.
    cores: Option<u32>,
    draws: Option<Draws>,
    /// By lane: the last block of its steps that was drawn, and where in their spread.
    blocks: Vec<Option<(u64, Place)>>,
    extrapolated: Extrapolated,
}

#[derive(Debug)]
enum ModelPrices {
    Encoder(Box<EncoderPrices>),
    Decoder(Box<StepPrices>),
    Tasks(Box<PetPrices>),
    Runtimes(Box<RuntimePrices>),
}

impl Prices {
    /// Binds the tables that a system's ops need, whatever its pools.
    ///
    /// # Errors
    /// A table that the card does not have, with the command that measures it.
    pub fn of_system(card: &Card, system: &SystemSpec, jitter: Jitter) -> Result<Prices, PriceError> {
        let pool = &system.pool;
        let model = match system.family() {
            SystemFamily::Cascade(route) => return Prices::of_stages(card, route, jitter),
            SystemFamily::Tasks(tasks) => ModelPrices::Tasks(Box::new(PetPrices::new(card, pool, tasks)?)),
            SystemFamily::Runtimes(runtimes) => {
                ModelPrices::Runtimes(Box::new(RuntimePrices::new(card, pool, runtimes)?))
            }
            SystemFamily::Generation(generation) => {
                ModelPrices::Decoder(Box::new(StepPrices::new(card, pool, generation)?))
            }
            SystemFamily::Encoding => {
                let prices = EncoderPrices::new(card, pool, at_once(card, pool.instances_per_gpu), false)?;
                ModelPrices::Encoder(Box::new(prices))
            }
        };
        let generation = pool.generation.as_ref();
        let scales = generation.is_some_and(|generation| generation.scale.is_some());
        Prices::of_models(card, &[pool], vec![model], jitter)?.with_model_loads(card, scales)
    }

    /// The same for several encoders, which compute side by side.
    fn of_stages(card: &Card, route: &RouteSpec, jitter: Jitter) -> Result<Prices, PriceError> {
        let streams = at_once(card, most_on_a_card(route));
        let model = |stage: &StageSpec| {
            let prunes = stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some());
            let mut prices = EncoderPrices::new(card, &stage.pool, streams, prunes)?;
            let attended = stage.dispatch.and_then(|dispatch| dispatch.prune_alpha).is_some_and(|alpha| alpha > 0.0);
            prices.texts = TextPrices::new(card, stage, attended)?;
            Ok::<_, MissingTable>(ModelPrices::Encoder(Box::new(prices)))
        };
        let models = route.stages.iter().map(model).collect::<Result<_, MissingTable>>()?;
        let pools: Vec<&PoolSpec> = route.stages.iter().map(|stage| &stage.pool).collect();
        let scales = route.stages.iter().any(|stage| stage.scale.is_some());
        Prices::of_models(card, &pools, models, jitter)?.with_model_loads(card, scales)
    }

    /// With what models that are loaded onto cards take, if any are.
    fn with_model_loads(mut self, card: &Card, scales: bool) -> Result<Prices, PriceError> {
        self.model_load = scales.then(|| card.model_load(LoadSource::Host)).transpose()?;
        Ok(self)
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
        let resume = pools.iter().map(|pool| ResumePrices::new(card, pool)).collect::<Result<_, _>>()?;
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
            link: pool
                .generation
                .as_ref()
                .and_then(|generation| generation.disaggregated)
                .map(|disaggregated| LinkPrices::new(card, disaggregated.link)),
            store: match pool.generation.as_ref().and_then(|generation| generation.lora?.host_slots) {
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
            lookup_resume: match pools.iter().find_map(|pool| pool.plot) {
                Some(plot) => card.lookup_resume(plot.threads)?,
                None => None,
            },
            host_cores: card.device.host.cores,
            cores: cores_of(card),
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
    /// As [`Prices::of_system`].
    pub fn with_management(mut self, card: &Card) -> Result<Prices, PriceError> {
        self.store = Some(card.model_load(LoadSource::Disk)?);
        Ok(self)
    }

    /// The table that the pool looks up in.
    pub fn plot(&self) -> Option<PlotSpec> {
        self.lookup.as_ref().map(LookupPrices::spec)
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
                self.extrapolated.note(self.copy.curve.beyond(stage.bytes), Family::Copy);
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
                    self.extrapolated.note(surface.beyond(plan.tasks, plan.queries), Family::Plan);
                    ns += spread.of(surface.cost(plan.tasks, plan.queries));
                }
                ns
            }
            OpKind::Manage(Manage::Store { bytes, .. }) => self.stored_ns(*bytes, spread),
            // Memory is let go of at once, as far as anybody has measured.
            OpKind::Manage(Manage::Discard { .. }) => 0,
            OpKind::LoadModel(load) => {
                let curve = self.model_load.as_ref().expect("a system that loads models has a price for it");
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

    fn lookup_ns(&mut self, tokens: u32, spread: &mut OpSpread) -> u64 {
        let lookup = self.lookup.as_ref().expect("a pool that looks up has a table");
        self.extrapolated.note(lookup.beyond(tokens), Family::PlotLookup);
        let draw = spread.draw();
        lookup.ns(tokens, |cost| draw.of(cost))
    }

    /// The steps of a decoder's run, of which so many will be asked for.
    pub(crate) fn run(&mut self, members: &[Member], going_on: GoingOn, tenants: u32, steps: u32) -> StepCosts {
        let ModelPrices::Decoder(prices) = &mut self.models[0] else {
            unreachable!("an encoder's pool makes no steps")
        };
        prices.run(members, going_on, tenants, steps, &mut self.extrapolated)
    }

    /// A measure of how much the blocks of a run's steps vary; nothing where nothing does.
    #[inline]
    pub(crate) fn typical(&mut self, costs: &StepCosts) -> Option<Drawn> {
        self.draws?;
        match &mut self.models[0] {
            ModelPrices::Decoder(prices) => Some(prices.typical(costs)),
            ModelPrices::Encoder(_) | ModelPrices::Tasks(_) | ModelPrices::Runtimes(_) => None,
        }
    }

    /// What these steps of a decoder's run, counted from 0, take beside nothing else and without jitter, in
    /// nanoseconds.
    pub fn steps_ns(&mut self, members: &[Member], going_on: GoingOn, tenants: u32, steps: Range<u32>) -> u64 {
        let costs = self.run(members, going_on, tenants, steps.end);
        self.steps().worked_ns(&costs, steps.end) - self.steps().worked_ns(&costs, steps.start)
    }

    pub(crate) fn steps(&self) -> &StepPrices {
        match &self.models[0] {
            ModelPrices::Decoder(steps) => steps,
            ModelPrices::Encoder(_) | ModelPrices::Tasks(_) | ModelPrices::Runtimes(_) => {
                unreachable!("an encoder's pool makes no steps")
            }
        }
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
