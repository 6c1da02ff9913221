//! From an op to nanoseconds, by a card's measured tables.

use std::collections::BTreeSet;

use tenantry_core::op::{BatchShape, Encode, OpKind};
use tenantry_core::spec::{PoolSpec, TenantState};
use tenantry_profiles::{
    AdapterSurface, Card, Cost, Curve, Direction, DispatchOperation, Family, MissingTable, Resume, Surface,
};
use tenantry_traces::draw::{Draws, Purpose, Stream};
use tenantry_traces::{Duration, Time};

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
pub struct PriceError(#[from] MissingTable);

/// The costs of one pool's ops on one card, bound once so that a look-up hashes and allocates nothing.
#[derive(Debug)]
pub struct Prices {
    embedding: Surface,
    layer: Surface,
    head: Curve,
    adapter: Option<AdapterSurface>,
    copy: Curve,
    wake: Cost,
    tell: Cost,
    alarm: Cost,
    resume: Option<Resume>,
    draws: Option<Draws>,
    extrapolated: BTreeSet<Family>,
}

impl Prices {
    /// Binds the tables that the pool's ops need.
    ///
    /// # Errors
    /// A table that the card does not have, with the command that measures it.
    pub fn new(card: &Card, pool: &PoolSpec, jitter: Jitter) -> Result<Prices, PriceError> {
        let PoolSpec {
            model, dtype, classes, ..
        } = pool;
        let pinned = card.device.kind == tenantry_profiles::DeviceKind::Cuda;
        Ok(Prices {
            embedding: card.embedding(model, *dtype)?,
            layer: card.encoder_layer(model, *dtype)?,
            head: card.head(model, *dtype, *classes)?,
            adapter: match pool.tenant_state {
                TenantState::Adapters {
                    bottleneck,
                    implementation,
                } => Some(card.adapter(model, *dtype, implementation, bottleneck)?),
                TenantState::Model | TenantState::Head => None,
            },
            copy: card.copy(Direction::HostToDevice, pinned)?,
            wake: card.dispatch(DispatchOperation::Wake)?,
            tell: card.dispatch(DispatchOperation::Tell)?,
            alarm: card.dispatch(DispatchOperation::Alarm)?,
            resume: card.resume()?,
            draws: match jitter {
                Jitter::None => None,
                Jitter::Measured { seed } => Some(Draws::new(seed, Purpose::Jitter)),
            },
            extrapolated: BTreeSet::new(),
        })
    }

    /// The draws for the `count`-th op of a lane, so that one lane's ops never change another's.
    pub fn spread(&self, lane: u32, count: u64) -> OpSpread {
        OpSpread(self.draws.map(|draws| draws.about(u64::from(lane) << 48 | count)))
    }

    /// What the op takes on a lane of its own, in nanoseconds.
    pub fn work_ns(&mut self, kind: &OpKind, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        match kind {
            OpKind::CopyIn(copy) => {
                if !self.copy.covers(copy.chunk_bytes) {
                    self.extrapolated.insert(Family::Copy);
                }
                u64::from(copy.chunks) * spread.of(self.copy.cost(copy.chunk_bytes))
            }
            OpKind::Encode(encode) => self.encode_ns(encode, shape, spread),
        }
    }

    fn encode_ns(&mut self, encode: &Encode, shape: BatchShape, spread: &mut OpSpread) -> u64 {
        let BatchShape {
            requests,
            tokens,
            tenants,
        } = shape;
        let layers = u64::from(encode.layers.count);
        // The parts of one op run within milliseconds of each other: what slows one slows all.
        let draw = spread.draw();
        let mut ns = 0;
        if encode.embed {
            self.note(self.embedding.covers(requests, tokens), Family::Embedding);
            ns += draw.of(self.embedding.cost(requests, tokens));
        }
        self.note(self.layer.covers(requests, tokens), Family::EncoderLayer);
        ns += layers * draw.of(self.layer.cost(requests, tokens));
        if let Some(adapter) = &self.adapter {
            let covers = adapter.covers(tenants, requests, tokens);
            ns += layers * draw.of(adapter.cost(tenants, requests, tokens));
            self.note(covers, Family::Adapter);
        }
        if encode.heads {
            self.note(self.head.covers(requests.into()), Family::Head);
            ns += draw.of(self.head.cost(requests.into()));
        }
        ns
    }

    fn note(&mut self, covers: bool, family: Family) {
        if !covers {
            self.extrapolated.insert(family);
        }
    }

    /// From handing an op to an idle lane until it starts, in nanoseconds.
    pub fn wake_ns(&self, spread: &mut OpSpread) -> u64 {
        spread.of(self.wake)
    }

    /// From the end of an op until the server or another lane hears of it, in nanoseconds.
    pub fn tell_ns(&self, spread: &mut OpSpread) -> u64 {
        spread.of(self.tell)
    }

    /// From an instant that the loop sleeps until to its noticing that it has come, in nanoseconds. The same instant always gives
    /// the same answer.
    pub fn alarm_ns(&self, until: Time) -> u64 {
        OpSpread(self.draws.map(|draws| draws.about(ALARM ^ until.0))).of(self.alarm)
    }

    /// What compute that takes `work_ns` on a busy lane takes longer after the lane was idle for `idle`, in nanoseconds: caches are
    /// cold and clocks are low. Nothing on cards where this was not measured.
    pub fn resume_ns(&self, idle: Duration, work_ns: u64, spread: &mut OpSpread) -> u64 {
        let micros = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        self.resume
            .as_ref()
            .map_or(0, |resume| spread.of(resume.cost(micros(idle.0), micros(work_ns))))
    }

    /// Families of which a cost was asked beyond what was measured.
    pub fn extrapolated(&self) -> impl Iterator<Item = Family> + '_ {
        self.extrapolated.iter().copied()
    }
}

/// The draws of one op.
#[derive(Debug)]
pub struct OpSpread(Option<Stream>);

/// A place in the measured distribution.
#[derive(Clone, Copy)]
struct Quantile(Option<f64>);

impl Quantile {
    fn of(self, cost: Cost) -> u64 {
        self.0.map_or(cost.median_ns, |u| cost.at_quantile(u))
    }
}

impl OpSpread {
    fn draw(&mut self) -> Quantile {
        Quantile(self.0.as_mut().map(Stream::unit))
    }

    fn of(&mut self, cost: Cost) -> u64 {
        self.draw().of(cost)
    }
}
