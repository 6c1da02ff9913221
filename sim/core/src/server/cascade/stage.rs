//! One model of a route: its instances, their queues, and what batches and placement its pool asks for.

use std::ops::Range;

use tenantry_traces::{Duration, Time};

use super::super::memory::{Memory, ServerError};
use super::super::queue::Queue;
use super::scaling::{StageCard, State};
use crate::ids::{GpuId, InstanceId, LaneId};
use crate::op::{After, Encode, Layers, Op, OpKind};
use crate::policy::batch::{self, Batch};
use crate::policy::place::{self, Loads, Place};
use crate::policy::scale::Scaler;
use crate::spec::{ClusterSpec, Padding, PoolSpec, RouteSpec, StageSpec};

/// A running copy of a stage's model.
pub(super) struct Instance {
    pub queue: Queue,
    /// Whether a batch runs on it.
    pub busy: bool,
    /// The earliest instant for which a timer is set and has not come.
    pub timer: Option<Time>,
}

/// What a stage did.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCounts {
    /// The pool's name.
    pub name: String,
    /// Requests that its model answered.
    pub answered: u64,
    /// Its batches computed for so long, all together.
    pub computed: Duration,
    /// See [`StageSpec::packing`].
    pub packing: Option<f64>,
}

/// One model of a route.
pub(super) struct Stage {
    pub place: Box<dyn Place>,
    pub batch: Box<dyn Batch>,
    pub loads: Loads,
    pub placed: u64,
    /// Of its first instance.
    first_instance: u32,
    /// Whether it goes on where the stage before has ended.
    continues: bool,
    padding: Padding,
    max_tokens: u32,
    layers: Layers,
    /// Whether somebody reads how sure its answers are.
    inspected: bool,
    pub counts: StageCounts,
    /// Its cards; none where it goes on where the stage before has ended.
    pub cards: Vec<StageCard>,
    /// Instances on each.
    instances_per_card: u32,
    /// Says how many of them there are to be; nothing where it has all.
    pub scaler: Option<Scaler>,
    pub cards_at_start: usize,
    /// Of a card that nobody uses.
    pub start_up: Duration,
    /// Of its model, and of what it takes on a card, tenants' heads included.
    pub weight_bytes: u64,
    pub memory_bytes: u64,
}

impl Stage {
    /// `instances` are those of the stage, which take so much of a card's memory.
    pub fn new(spec: &StageSpec, instances: Range<u32>, memory_bytes: u64) -> Stage {
        let PoolSpec { padding, .. } = spec.pool;
        let gpus: &[u32] = if spec.continues() { &[] } else { &spec.gpus };
        let off = |&gpu: &u32| StageCard {
            gpu: GpuId(gpu),
            state: State::Off,
        };
        Stage {
            place: place::build(&spec.pool.place),
            batch: batch::build(&spec.pool.batch),
            loads: Loads::new(instances.len() as u32),
            placed: 0,
            first_instance: instances.start,
            continues: spec.continues(),
            padding,
            max_tokens: match padding {
                Padding::Longest => spec.pool.model.positions,
                Padding::To(tokens) => tokens,
            },
            layers: spec.layers,
            inspected: spec.dispatch.is_some(),
            counts: StageCounts {
                name: spec.pool.name.clone(),
                answered: 0,
                computed: Duration::ZERO,
                packing: spec.packing,
            },
            cards: gpus.iter().map(off).collect(),
            instances_per_card: spec.pool.instances_per_gpu,
            scaler: spec.scale.map(|scale| Scaler::new(scale.rule)),
            cards_at_start: spec.scale.map_or(gpus.len(), |scale| scale.cards_at_start as usize),
            start_up: spec.scale.map_or(Duration::ZERO, |scale| scale.start_up),
            weight_bytes: spec.pool.model.parameters() * spec.pool.dtype.bytes(),
            memory_bytes,
        }
    }

    /// The longest request that it takes.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// To what length a batch is padded whose longest request has `tokens`.
    pub fn padded(&self, tokens: u32) -> u32 {
        match self.padding {
            Padding::Longest => tokens,
            Padding::To(fixed) => fixed,
        }
    }

    /// Where a request goes; `before` ran it at the stage before.
    pub fn place(&mut self, before: Option<(&Stage, InstanceId)>) -> InstanceId {
        let local = match before {
            Some((stage, instance)) if self.continues => stage.local(instance),
            _ => self.place.place(self.placed, &self.loads),
        };
        self.placed += 1;
        self.loads.change(local, 1);
        InstanceId(self.first_instance + local.0)
    }

    /// A request has left an instance.
    pub fn left(&mut self, instance: InstanceId) {
        self.loads.change(self.local(instance), -1);
    }

    /// An instance by its place among the stage's own.
    fn local(&self, instance: InstanceId) -> InstanceId {
        InstanceId(instance.0 - self.first_instance)
    }

    /// Cards that it has or is to have.
    pub fn cards_counted(&self) -> u32 {
        self.cards.iter().filter(|card| card.state.counts()).count() as u32
    }

    /// Those of its cards that serve, by their places.
    pub fn serving(&self) -> impl Iterator<Item = usize> {
        (0..self.cards.len()).filter(|&card| self.cards[card].state == State::Serving)
    }

    /// Which of its cards an instance is on.
    pub fn card_of(&self, instance: InstanceId) -> usize {
        (self.local(instance).0 / self.instances_per_card) as usize
    }

    /// The first of its instances on a card.
    pub fn first_on(&self, card: usize) -> InstanceId {
        InstanceId(self.first_instance + card as u32 * self.instances_per_card)
    }

    /// Its instances on a card.
    pub fn on(&self, card: usize) -> impl Iterator<Item = InstanceId> + use<> {
        let first = self.first_on(card).0;
        (first..first + self.instances_per_card).map(InstanceId)
    }

    /// Requests on a card.
    pub fn load_on(&self, card: usize) -> u32 {
        self.on(card).map(|instance| self.loads.of(self.local(instance))).sum()
    }

    /// Nobody is sent to a card any more.
    pub fn close(&mut self, card: usize) {
        self.on(card).for_each(|instance| self.loads.close(self.local(instance)));
    }

    /// Its instances on a card take requests again.
    pub fn reopen(&mut self, card: usize) {
        self.on(card).for_each(|instance| self.loads.reopen(self.local(instance)));
    }

    /// Whether an instance takes requests.
    pub fn is_open(&self, instance: InstanceId) -> bool {
        self.loads.open().binary_search(&self.local(instance)).is_ok()
    }

    /// A forward pass, and a look at what came of it where somebody wants to know.
    pub fn lay_out(&self, lane: LaneId, ops: &mut Vec<Op>) {
        let op = |kind, told| Op {
            kind,
            lane,
            after: After::NONE,
            behind: false,
            told,
        };
        let encode = Encode {
            begin: true,
            embed: self.layers.first == 0,
            layers: self.layers,
            heads: true,
        };
        ops.push(op(OpKind::Encode(encode), !self.inspected));
        if self.inspected {
            ops.push(op(OpKind::Inspect, true));
        }
    }
}

/// What each stage takes of a card's memory; nothing where it goes on where the stage before has ended.
///
/// # Errors
/// Where the models of a card do not fit on it together.
pub(super) fn memory(cluster: &ClusterSpec, route: &RouteSpec, tenants: u32) -> Result<Vec<u64>, ServerError> {
    let mut by_stage = vec![0_u64; route.stages.len()];
    let mut used_bytes = vec![0_u64; cluster.gpus as usize];
    let whole = ClusterSpec {
        gpus: 1,
        ..cluster.clone()
    };
    for (index, stage) in route.stages.iter().enumerate().filter(|(_, stage)| !stage.continues()) {
        let shared_bytes = Memory::plan(&whole, &stage.pool, tenants)?.used(0).shared_bytes;
        by_stage[index] = shared_bytes;
        for &gpu in &stage.gpus {
            let used = &mut used_bytes[gpu as usize];
            *used += shared_bytes;
            if *used > cluster.gpu_memory_bytes {
                return Err(ServerError::BackboneDoesNotFit {
                    model: format!("{} beside the other models of card {gpu}", stage.pool.model.name),
                    needed_bytes: *used,
                    available_bytes: cluster.gpu_memory_bytes,
                });
            }
        }
    }
    Ok(by_stage)
}
