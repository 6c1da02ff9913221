//! A pool of runtimes: one model compiled for several input lengths, each instance with one of them (Arlo, section 3).

use tenantry_profiles::{AdapterSurface, Beyond, Card, Cost, DType, DeviceKind, Family, MissingTable, ModelShape};
use tenantry_traces::Duration;

use crate::policy::fleet::Allocated;
use crate::policy::levels::Rule;
use crate::policy::scale::{HeadroomSpec, TargetTrackingSpec};

/// Runtimes, who gets which request, and how many instances of each there are.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimesSpec {
    /// Request streams that share the cards, by service class; a single one takes all classes.
    pub streams: Vec<StreamSpec>,
    /// Which instance serves a request.
    pub dispatch: Rule,
    /// How many instances each runtime has.
    pub allocate: AllocateSpec,
    /// How many cards there are: all, where nothing scales.
    pub scale: Option<ScaleSpec>,
}

impl RuntimesSpec {
    /// Whose requests those of a class are: a class without a stream of its own goes to the last.
    pub fn stream_of(&self, class: u16) -> usize {
        stream_of(class, self.streams.len())
    }
}

/// Of so many streams.
#[inline]
pub(crate) fn stream_of(class: u16, streams: usize) -> usize {
    usize::from(class).min(streams - 1)
}

/// Requests of one model and one latency target.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    /// As reports call it.
    pub name: String,
    /// What serves it.
    pub model: ModelShape,
    /// Of weights and activations.
    pub dtype: DType,
    /// Classes of each tenant's head.
    pub classes: u32,
    /// The latency promised, which says how many requests an instance may be given.
    pub slo: Duration,
    /// By ascending length; the longest alone where the card says the others, until it is known ([`RuntimesSpec::on`]).
    pub runtimes: Vec<RuntimeSpec>,
    /// Who says which runtimes there are.
    pub lengths: RuntimeLengths,
    /// Of each runtime, what one request takes on an instance that does nothing else; empty until the card is known
    /// ([`RuntimesSpec::on`]).
    pub service: Vec<Duration>,
}

/// Who says which runtimes a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeLengths {
    /// The scenario.
    Given,
    /// The card, by how its latency rises with the length (section 3.3; `lengths.rs`).
    OfCard,
}

/// The model compiled for inputs of up to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeSpec {
    /// The longest request that it serves, in tokens.
    pub max_length: u32,
    /// What a shorter one costs.
    pub shape: ShapeKind,
}

/// What a runtime was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeKind {
    /// One length: every input is padded to it.
    Static,
    /// Any length: nothing is padded, and everything takes longer.
    Dynamic,
}

/// How many instances each runtime has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocateSpec {
    /// As many of each, the longer ones more where it does not come out even (section 5.2.3).
    Even,
    /// These, by runtime, the streams one after the other.
    Fixed(Vec<u32>),
    /// As the program says for the whole workload's lengths, once, before the start (section 5.2.3). Who knows the
    /// workload and the card makes it [`AllocateSpec::Solved`].
    Global(SolverSpec),
    /// As the program said then.
    Solved(Allocated),
    /// As the program says, each period anew, for the lengths observed in the last one (section 3.3).
    Periodic(PeriodicSpec),
}

/// The runtime scheduler's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicSpec {
    /// From one decision to the next. The paper has 120 s.
    pub period: Duration,
    /// When the first comes: until then instances are given evenly.
    pub first: Duration,
    /// Instances that load another runtime at once, at most: the paper's small batches.
    pub at_once: u32,
    /// Who solves the program.
    pub solver: SolverSpec,
}

/// Who solves the allocation program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SolverSpec {
    /// The dynamic program: exact.
    Dynamic,
    /// The integer program, by HiGHS.
    Highs,
}

/// How the number of cards follows the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleSpec {
    /// Cards at the start.
    pub cards_at_start: u32,
    /// From the decision to add a card until it begins to load its runtime.
    pub start_up: Duration,
    /// When to add and when to release.
    pub rule: ScaleRule,
}

/// When to add a card and when to release one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleRule {
    /// By the tail of recent latencies (Arlo, section 4).
    TargetTracking(TargetTrackingSpec),
    /// By the load (INFaaS).
    Headroom(HeadroomSpec),
}

/// A runtime of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeRef {
    /// Index of its stream.
    pub stream: u16,
    /// Index among the stream's runtimes.
    pub runtime: u16,
}

impl RuntimesSpec {
    /// Whether each was compiled for one length.
    pub fn are_static(&self) -> bool {
        let mut runtimes = self.streams.iter().flat_map(|stream| &stream.runtimes);
        runtimes.all(|runtime| runtime.shape == ShapeKind::Static)
    }

    /// Whether the server asks the solver while it runs.
    pub fn solves(&self) -> bool {
        matches!(self.allocate, AllocateSpec::Periodic(_))
    }

    /// The same with what the card says: which runtimes there are, where nobody else does, and what they take beside
    /// `instances_per_gpu - 1` others on their card.
    ///
    /// # Errors
    /// A table that the card does not have.
    pub fn on(&self, card: &Card, instances_per_gpu: u32) -> Result<RuntimesSpec, MissingTable> {
        let mut spec = self.clone();
        for stream in &mut spec.streams {
            if stream.lengths == RuntimeLengths::OfCard {
                stream.runtimes = stream.runtimes_on(card);
            }
            let costs = stream.runtimes.iter().map(|runtime| {
                let ns = stream.service_ns(card, runtime, runtime.max_length)?;
                let beside = stream.beside_ppm(card, instances_per_gpu, runtime)?;
                Ok(Duration(ns * beside / 1_000_000))
            });
            stream.service = costs.collect::<Result<_, _>>()?;
        }
        Ok(spec)
    }
}

/// A part of what a request takes on a runtime.
#[derive(Clone, Copy, Debug)]
pub struct CostPart {
    /// How often it is done.
    pub times: u64,
    /// What it costs each time.
    pub cost: Cost,
    /// The table that says so.
    pub family: Family,
    /// How far beyond that table's points, if it is.
    pub beyond: Option<Beyond>,
}

impl StreamSpec {
    /// What a request of `tokens` takes on a runtime of its own card, in nanoseconds: the median.
    ///
    /// A CPU compiles nothing: its static runtimes are padded, and take what the model takes at that length.
    ///
    /// # Errors
    /// A table that the card does not have, or no runtime so long in it.
    pub fn service_ns(&self, card: &Card, runtime: &RuntimeSpec, tokens: u32) -> Result<u64, MissingTable> {
        let cost = self.cost(card, runtime, tokens)?;
        Ok(cost.iter().map(|part| part.times * part.cost.median_ns).sum())
    }

    /// Likewise as the parts that it is the sum of.
    ///
    /// # Errors
    /// As [`StreamSpec::service_ns`].
    pub fn cost(&self, card: &Card, runtime: &RuntimeSpec, tokens: u32) -> Result<Vec<CostPart>, MissingTable> {
        if runtime.shape == ShapeKind::Static && card.device.kind == DeviceKind::Cuda {
            let compiled = card.static_model(&self.model, self.dtype)?;
            let cost = compiled.cost(1, runtime.max_length);
            return match cost {
                // A longer runtime than the longest that was compiled has no cost.
                Some(cost) => Ok(vec![CostPart {
                    times: 1,
                    cost,
                    family: Family::StaticModel,
                    beyond: compiled.beyond(1, runtime.max_length),
                }]),
                None => Err(MissingTable {
                    card: card.name.clone(),
                    family: Family::StaticModel,
                    asked: format!("model={} of {} tokens or more", self.model.name, runtime.max_length),
                    found: format!("{} at most", compiled.lengths().last().unwrap_or(0)).into(),
                    command: Some(format!("tenantry profile --device cuda:0 --models {}", self.model.name)),
                    other_formats: Box::default(),
                }),
            };
        }
        let tokens = match runtime.shape {
            ShapeKind::Static => runtime.max_length,
            ShapeKind::Dynamic => tokens,
        };
        let embedding = card.embedding(&self.model, self.dtype)?;
        let layer = card.encoder_layer(&self.model, self.dtype)?;
        let head = card.head(&self.model, self.dtype, self.classes)?;
        Ok(vec![
            CostPart {
                times: 1,
                cost: embedding.cost(1, tokens),
                family: Family::Embedding,
                beyond: embedding.beyond(1, tokens),
            },
            CostPart {
                times: u64::from(self.model.layers),
                cost: layer.cost(1, tokens),
                family: Family::EncoderLayer,
                beyond: layer.beyond(1, tokens),
            },
            CostPart {
                times: 1,
                cost: head.cost(1),
                family: Family::Head,
                beyond: head.beyond(1),
            },
        ])
    }

    /// How much longer a request takes while `instances` of the card compute, in parts of a million. One instance is
    /// not slowed.
    ///
    /// # Errors
    /// Several instances on a card for which that was not measured.
    pub fn beside_ppm(&self, card: &Card, instances: u32, runtime: &RuntimeSpec) -> Result<u64, MissingTable> {
        if instances <= 1 {
            return Ok(1_000_000);
        }
        let (_, surface) = self.side_by_side(card, runtime.shape)?;
        Ok(surface.beside_ppm(instances, 1, runtime.max_length))
    }

    /// What runtimes of such a shape take while several instances compute, by instances, batch and tokens, and which
    /// table says so. Of compiled ones on a card on which that was not measured, layers that are computed one by one
    /// stand for them.
    ///
    /// # Errors
    /// Neither was measured.
    pub fn side_by_side(&self, card: &Card, shape: ShapeKind) -> Result<(Family, AdapterSurface), MissingTable> {
        if shape == ShapeKind::Static
            && let Some(compiled) = card.concurrent_model(&self.model, self.dtype)?
        {
            return Ok((Family::ConcurrentModel, compiled));
        }
        let layers = card.concurrent_layer(&self.model, self.dtype)?;
        Ok((Family::ConcurrentLayer, layers))
    }

    /// M: requests that one instance of each runtime finishes within the SLO, at least one.
    ///
    /// # Panics
    /// Before the card is known.
    pub fn capacities(&self) -> impl Iterator<Item = u32> + '_ {
        assert_eq!(self.service.len(), self.runtimes.len(), "the card is known");
        self.service
            .iter()
            .map(|service| u32::try_from(self.slo.0 / service.0.max(1)).unwrap_or(u32::MAX).max(1))
    }

    /// The first runtime long enough for so many tokens.
    pub fn fitting(&self, tokens: u32) -> Option<usize> {
        let at = self.runtimes.partition_point(|runtime| runtime.max_length < tokens);
        (at < self.runtimes.len()).then_some(at)
    }
}
