//! What runtimes of several lengths cost, and what changes them: looked up once, so that an op costs an index.

use tenantry_core::op::{BatchShape, Infer, LoadRuntime, Solve};
use tenantry_core::spec::{CostPart, PoolSpec, RuntimesSpec, ShapeKind, StreamSpec};
use tenantry_profiles::{AdapterSurface, Beyond, Card, Cost, Curve, Drawn, Family, LoadSource, MissingTable, Surface};

/// A [`CostPart`], as it is drawn from again and again.
#[derive(Debug)]
pub(crate) struct Part {
    pub times: u64,
    pub cost: Drawn,
    pub family: Family,
    pub beyond: Option<Beyond>,
}

impl From<CostPart> for Part {
    fn from(part: CostPart) -> Part {
        Part {
            times: part.times,
            cost: part.cost.into(),
            family: part.family,
            beyond: part.beyond,
        }
    }
}

/// Of one runtime.
#[derive(Debug)]
enum Times {
    /// Whatever it is given.
    Padded(Vec<Part>),
    /// By tokens, from 1.
    ByTokens(Vec<Vec<Part>>),
}

#[derive(Debug)]
struct StreamPrices {
    runtimes: Vec<Times>,
    /// One layer on several instances of a card at once; absent where a card has one.
    concurrent: Option<AdapterSurface>,
}

/// The costs of a pool of runtimes.
#[derive(Debug)]
pub(crate) struct RuntimePrices {
    streams: Vec<StreamPrices>,
    /// Absent where no instance ever changes its runtime.
    load: Option<Curve>,
    /// Absent where nothing is solved.
    solve: Option<Surface>,
}

impl RuntimePrices {
    pub fn new(card: &Card, pool: &PoolSpec, spec: &RuntimesSpec) -> Result<RuntimePrices, MissingTable> {
        let stream = |stream: &StreamSpec| {
            let runtimes = stream.runtimes.iter().map(|runtime| {
                let parts = |tokens| -> Result<Vec<Part>, MissingTable> {
                    let parts = stream.cost(card, runtime, tokens)?;
                    Ok(parts.into_iter().map(Part::from).collect())
                };
                match runtime.shape {
                    ShapeKind::Static => parts(runtime.max_length).map(Times::Padded),
                    ShapeKind::Dynamic => (1..=runtime.max_length)
                        .map(parts)
                        .collect::<Result<_, _>>()
                        .map(Times::ByTokens),
                }
            });
            Ok(StreamPrices {
                runtimes: runtimes.collect::<Result<_, MissingTable>>()?,
                concurrent: match pool.instances_per_gpu {
                    1 => None,
                    _ => Some(card.concurrent_layer(&stream.model, stream.dtype)?),
                },
            })
        };
        let changes = spec.solves() || spec.scale.is_some();
        Ok(RuntimePrices {
            streams: spec.streams.iter().map(stream).collect::<Result<_, _>>()?,
            load: match changes {
                true => Some(card.model_load(LoadSource::Host)?),
                false => None,
            },
            solve: match spec.solves() {
                true => Some(card.solve()?),
                false => None,
            },
        })
    }

    /// An op's parts.
    pub fn infer(&self, infer: Infer, shape: BatchShape) -> &[Part] {
        let runtime = infer.runtime;
        match &self.streams[usize::from(runtime.stream)].runtimes[usize::from(runtime.runtime)] {
            Times::Padded(parts) => parts,
            Times::ByTokens(by_tokens) => &by_tokens[shape.tokens.max(1) as usize - 1],
        }
    }

    pub fn load(&self, load: LoadRuntime) -> (Cost, Option<Beyond>) {
        let curve = self
            .load
            .as_ref()
            .expect("a pool that changes runtimes has prices for it");
        (curve.cost(load.bytes), curve.beyond(load.bytes))
    }

    pub fn solve(&self, solve: Solve) -> (Cost, Option<Beyond>) {
        let surface = self.solve.as_ref().expect("a pool that solves has prices for it");
        let Solve {
            instances, runtimes, ..
        } = solve;
        (surface.cost(instances, runtimes), surface.beyond(instances, runtimes))
    }

    /// How much longer a request takes while `streams` instances of its card compute, in parts of a million.
    pub fn streams_ppm(&self, infer: Infer, streams: u32, shape: BatchShape) -> Option<u64> {
        let surface = self.streams[usize::from(infer.runtime.stream)].concurrent.as_ref()?;
        let ns = |streams| surface.cost(streams, shape.requests, shape.tokens).median_ns;
        Some((ns(streams) * 1_000_000 / ns(1).max(1)).max(1_000_000))
    }

    /// How far that is beyond what was measured.
    pub fn streams_beyond(&self, infer: Infer, streams: u32, shape: BatchShape) -> Option<Beyond> {
        let surface = self.streams[usize::from(infer.runtime.stream)].concurrent.as_ref()?;
        surface.beyond(streams, shape.requests, shape.tokens)
    }
}
