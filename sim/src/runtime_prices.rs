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
    runtimes: Vec<OfRuntime>,
}

#[derive(Debug)]
struct OfRuntime {
    times: Times,
    /// A layer, or the compiled model, on several instances of a card at once; absent where a card has one.
    concurrent: Option<(Family, AdapterSurface)>,
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
                let concurrent = match pool.instances_per_gpu {
                    1 => None,
                    _ => Some(stream.side_by_side(card, runtime.shape)?),
                };
                let times = match runtime.shape {
                    ShapeKind::Static => Times::Padded(parts(runtime.max_length)?),
                    ShapeKind::Dynamic => {
                        let by_tokens = (1..=runtime.max_length).map(parts);
                        Times::ByTokens(by_tokens.collect::<Result<_, _>>()?)
                    }
                };
                Ok(OfRuntime { times, concurrent })
            });
            Ok(StreamPrices {
                runtimes: runtimes.collect::<Result<_, MissingTable>>()?,
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
        match &self.runtime(infer).times {
            Times::Padded(parts) => parts,
            Times::ByTokens(by_tokens) => &by_tokens[shape.tokens.max(1) as usize - 1],
        }
    }

    fn runtime(&self, infer: Infer) -> &OfRuntime {
        let runtime = infer.runtime;
        &self.streams[usize::from(runtime.stream)].runtimes[usize::from(runtime.runtime)]
    }

    pub fn load(&self, load: LoadRuntime) -> (Cost, Option<Beyond>) {
        let curve = self.load.as_ref().expect("a pool that changes runtimes has prices for it");
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
        let (_, surface) = self.runtime(infer).concurrent.as_ref()?;
        Some(surface.beside_ppm(streams, shape.requests, shape.tokens))
    }

    /// How far that is beyond what was measured, and of which table.
    pub fn streams_beyond(&self, infer: Infer, streams: u32, shape: BatchShape) -> (Option<Beyond>, Family) {
        match &self.runtime(infer).concurrent {
            Some((family, surface)) => (surface.beyond(streams, shape.requests, shape.tokens), *family),
            None => (None, Family::ConcurrentLayer),
        }
    }
}
