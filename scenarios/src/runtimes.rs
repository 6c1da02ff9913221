//! From `runtimes:` to the specification of a pool of runtimes.

use tenantry_core::policy::fleet::SOLVED_INSTANCES_MAX;
use tenantry_core::policy::levels::Rule;
use tenantry_core::spec::{
    AllocateSpec, PeriodicSpec, RuntimeLengths, RuntimeSpec, RuntimesSpec, ScaleSpec, ShapeKind, SolverSpec,
    StreamSpec, SystemSpec,
};
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::Duration;

use crate::error::Problem;
use crate::models::Models;
use crate::path::Path;
use crate::raw::*;
use crate::scalar::Percent;
use crate::scaling::{self, Scaled};

/// Runtimes of a stream at most: a server numbers them by 16 bits ([`tenantry_core::spec::RuntimeRef`]).
const RUNTIMES_MAX: usize = 1 << 16;

/// A stream's own part, wherever it is written.
struct Stream<'a> {
    name: &'a str,
    model: &'a ModelShape,
    slo: Duration,
    max_length: u32,
    lengths: &'a RawRuntimeLengths,
    shape: RawShapeKind,
    path: Path,
}

/// What `system.runtimes` means; `models` are those of further streams.
pub(crate) fn resolve(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    models: &Models<'_>,
    problems: &mut Vec<Problem>,
) -> Option<RuntimesSpec> {
    let runtimes = system.runtimes.as_ref()?;
    check_beside(system, path, problems);
    let path = path.key("runtimes");
    check_classes(runtimes, raw, &path, problems);
    if matches!(runtimes.allocate, RawAllocate::Global { .. })
        && matches!(raw.workload.arrivals, RawArrivals::ClosedLoop { .. })
    {
        let must = "even, fixed or periodic where clients wait for their answers, since nobody knows beforehand how \
                    often they ask";
        problems.push(Problem::new(path.key("allocate"), must, "global"));
    }
    let mut streams = vec![stream_of(
        system,
        &Stream {
            name: &system.model,
            model,
            slo: runtimes.slo.0,
            max_length: runtimes.max_length.0,
            lengths: &runtimes.lengths,
            shape: runtimes.shape,
            path: path.clone(),
        },
        problems,
    )];
    for (index, stream) in runtimes.streams.iter().enumerate() {
        let path = path.key("streams").index(index);
        let Some(model) = models.named(&stream.model, path.key("model"), problems) else {
            continue;
        };
        let stream = Stream {
            name: &stream.name.0,
            model: &model,
            slo: stream.slo.0,
            max_length: stream.max_length.0,
            lengths: &stream.lengths,
            shape: stream.shape,
            path,
        };
        streams.push(stream_of(system, &stream, problems));
    }
    let gpus = raw.cluster.gpus.0;
    let counts: Option<Vec<usize>> = streams
        .iter()
        .map(|stream| (stream.lengths == RuntimeLengths::Given).then_some(stream.runtimes.len()))
        .collect();
    Some(RuntimesSpec {
        dispatch: dispatch_of(&runtimes.dispatch, &path, problems),
        allocate: allocate_of(
            &runtimes.allocate,
            counts.as_deref(),
            gpus * system.instances_per_gpu.0,
            &path,
            problems,
        ),
        scale: runtimes.scale.map(|scale| scale_of(&scale, runtimes, system, gpus, &path, problems)),
        streams,
    })
}

/// The latencies that a system's streams promise, by service class, where it has several streams. One stream is judged
/// by the scenario's objective, as all systems are.
pub(crate) fn targets(system: &SystemSpec) -> Option<Vec<Duration>> {
    let streams = &system.pool.runtimes.as_ref()?.streams;
    (streams.len() > 1).then(|| streams.iter().map(|stream| stream.slo).collect())
}

/// What a pool of runtimes has instead of other decisions.
fn check_beside(system: &RawSystem, path: &Path, problems: &mut Vec<Problem>) {
    let given = [
        ("batch", system.batch.is_some()),
        ("pipeline", system.pipeline.is_some()),
        ("generation", system.generation.is_some()),
        ("plot", system.plot.is_some()),
        ("tasks", system.tasks.is_some()),
        ("cascade", system.cascade.is_some()),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let must = "left out where there are runtimes, each of which serves one request at a time";
        problems.push(Problem::new(path.key(key), must, "given"));
    }
    // As they are where nobody says, they say nothing.
    let elsewhere = [
        ("padding", system.padding != RawPadding::default()),
        ("place", system.place != RawPlace::default()),
        ("swap", system.swap != RawSwap::default()),
    ];
    for (key, _) in elsewhere.into_iter().filter(|(_, given)| *given) {
        let must = "left out where there are runtimes, whose lengths and dispatch say it";
        problems.push(Problem::new(path.key(key), must, "given"));
    }
    if system.tenant_state != RawTenantState::Head {
        let must = "head where there are runtimes, which are compiled with their parameters";
        problems.push(Problem::new(path.key("tenant_state"), must, "another"));
    }
}

/// Each stream has a service class: the system's own the first, further ones those after it, in their order.
fn check_classes(runtimes: &RawRuntimes, raw: &RawScenario, path: &Path, problems: &mut Vec<Problem>) {
    if runtimes.streams.is_empty() {
        return;
    }
    let classes = raw.tenants.classes.names();
    let (streams, path) = (runtimes.streams.len() + 1, path.key("streams"));
    if classes.len() != streams {
        let must = format!(
            "{streams} service classes: one for the system itself and one for each of its runtimes.streams ({})",
            streams - 1
        );
        let of_classes = Path::default().key("tenants").key("classes");
        problems.push(Problem::new(of_classes, must, classes.len()));
        return;
    }
    for (index, stream) in runtimes.streams.iter().enumerate() {
        let of = index + 1;
        if classes.iter().position(|class| *class == stream.name.0).is_some_and(|class| class != of) {
            let must = format!(
                "no other class's name: this stream serves class {} of tenants.classes, whose order is the streams'",
                classes[of]
            );
            problems.push(Problem::new(path.index(index).key("name"), must, &stream.name.0));
        }
    }
}

fn stream_of(system: &RawSystem, stream: &Stream<'_>, problems: &mut Vec<Problem>) -> StreamSpec {
    let Stream { model, path, .. } = stream;
    let longest = stream.max_length;
    if model.kind == ModelKind::Decoder {
        problems.push(Problem::new(path.key("model"), "an encoder", &model.name));
    }
    let mut lengths = if longest <= model.positions {
        shorter_lengths(stream, problems)
    } else {
        let must = format!("at most {}, the longest input of model {}", model.positions, model.name);
        problems.push(Problem::new(path.key("max_length"), must, longest));
        // There might be too many to be listed.
        Vec::new()
    };
    if lengths.len() >= RUNTIMES_MAX {
        let must = format!("of at most {RUNTIMES_MAX} runtimes");
        problems.push(Problem::new(path.key("lengths"), must, lengths.len() + 1));
    }
    lengths.push(longest);
    let shape = match stream.shape {
        RawShapeKind::Static => ShapeKind::Static,
        RawShapeKind::Dynamic => ShapeKind::Dynamic,
    };
    StreamSpec {
        name: stream.name.to_owned(),
        model: (*model).clone(),
        dtype: system.dtype,
        classes: system.classes.0,
        slo: stream.slo,
        runtimes: lengths.into_iter().map(|max_length| RuntimeSpec { max_length, shape }).collect(),
        lengths: match stream.lengths {
            RawRuntimeLengths::Staircase => RuntimeLengths::OfCard,
            _ => RuntimeLengths::Given,
        },
        service: Vec::new(),
    }
}

/// The lengths of a stream's runtimes that the scenario says, but for its longest.
fn shorter_lengths(stream: &Stream<'_>, problems: &mut Vec<Problem>) -> Vec<u32> {
    let longest = stream.max_length;
    let path = stream.path.key("lengths");
    match stream.lengths {
        RawRuntimeLengths::Staircase | RawRuntimeLengths::Longest => Vec::new(),
        RawRuntimeLengths::Step(step) => (1..longest.div_ceil(step.0)).map(|at| at * step.0).collect(),
        RawRuntimeLengths::Count(count) if count.0 > longest => {
            let must = format!("at most max_length ({longest})");
            problems.push(Problem::new(path.key("count"), must, count.0));
            Vec::new()
        }
        RawRuntimeLengths::Count(count) => (1..count.0).map(|at| part_of(longest, at, count.0)).collect(),
        RawRuntimeLengths::Of(lengths) => {
            let lengths: Vec<u32> = lengths.iter().map(|length| length.0).collect();
            let ascending = lengths.windows(2).all(|pair| pair[0] < pair[1]);
            if !ascending || lengths.last() != Some(&longest) {
                let must = format!("ascending, with max_length ({longest}) last");
                problems.push(Problem::new(path.key("of"), must, format!("{lengths:?}")));
            }
            lengths[..lengths.len().saturating_sub(1)].to_vec()
        }
    }
}

/// So many of `count` equal parts of a length, in whole tokens.
fn part_of(length: u32, parts: u32, count: u32) -> u32 {
    (u64::from(length) * u64::from(parts) / u64::from(count)) as u32
}

fn share(percent: Percent, path: Path, problems: &mut Vec<Problem>) -> f64 {
    let share = percent.fraction();
    if share > 0.0 && share <= 1.0 {
        return share;
    }
    problems.push(Problem::new(path, "at most 100%", format!("{} %", share * 100.0)));
    1.0
}

fn dispatch_of(dispatch: &RawDispatch, path: &Path, problems: &mut Vec<Problem>) -> Rule {
    let path = path.key("dispatch");
    match dispatch {
        RawDispatch::LeastPadding => Rule::LeastPadding,
        RawDispatch::LeastLoaded => Rule::LeastLoaded,
        RawDispatch::Demote { threshold, decay, peek } => Rule::Demote {
            threshold: share(*threshold, path.key("demote").key("threshold"), problems),
            decay: share(*decay, path.key("demote").key("decay"), problems),
            peek: peek.0 as usize,
        },
        RawDispatch::Pack { fill } => Rule::Pack {
            fill: share(*fill, path.key("pack").key("fill"), problems),
        },
    }
}

/// `counts` has the runtimes of each stream, where the scenario and not the card says them.
fn allocate_of(
    allocate: &RawAllocate,
    counts: Option<&[usize]>,
    instances: u32,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> AllocateSpec {
    let path = path.key("allocate");
    let solver_of = |solver: RawSolver| match solver {
        RawSolver::Dynamic => SolverSpec::Dynamic,
        RawSolver::Highs => SolverSpec::Highs,
    };
    let solved = match allocate {
        RawAllocate::Global { .. } => Some("global"),
        RawAllocate::Periodic { .. } => Some("periodic"),
        RawAllocate::Even | RawAllocate::Fixed(_) => None,
    };
    if let Some(got) = solved.filter(|_| instances > SOLVED_INSTANCES_MAX) {
        let must = format!(
            "even or fixed for {instances} instances (cluster.gpus times instances_per_gpu), since the program takes \
             {SOLVED_INSTANCES_MAX} at most"
        );
        problems.push(Problem::new(path.clone(), must, got));
    }
    match allocate {
        RawAllocate::Even => AllocateSpec::Even,
        RawAllocate::Global { solver } => AllocateSpec::Global(solver_of(*solver)),
        RawAllocate::Periodic {
            period,
            first,
            at_once,
            solver,
        } => AllocateSpec::Periodic(PeriodicSpec {
            period: period.0,
            first: first.0,
            at_once: at_once.0,
            solver: solver_of(*solver),
        }),
        RawAllocate::Fixed(fixed) => {
            let Some(counts) = counts else {
                let must = "even, global or periodic where the card says which runtimes there are (lengths: staircase)";
                problems.push(Problem::new(path, must, "fixed"));
                return AllocateSpec::Even;
            };
            let runtimes: usize = counts.iter().sum();
            let total: u64 = fixed.iter().copied().map(u64::from).sum();
            let mut last = 0;
            let longest = counts.iter().all(|count| {
                last += count;
                fixed.get(last - 1).is_some_and(|&longest| longest > 0)
            });
            if fixed.len() != runtimes || total != u64::from(instances) || !longest {
                let must = format!(
                    "{runtimes} numbers that add up to the {instances} instances, with one at least of each stream's \
                     longest runtime"
                );
                problems.push(Problem::new(path.key("fixed"), must, format!("{fixed:?}")));
            }
            AllocateSpec::Fixed(fixed.clone())
        }
    }
}

fn scale_of(
    scale: &RawScaling,
    runtimes: &RawRuntimes,
    system: &RawSystem,
    gpus: u32,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> ScaleSpec {
    let path = path.key("scale");
    if !runtimes.streams.is_empty() {
        let must = "left out where several streams share the cards";
        problems.push(Problem::new(path.clone(), must, "given"));
    }
    let must = match runtimes.allocate {
        RawAllocate::Fixed(_) => Some("left out where the number of instances is fixed"),
        RawAllocate::Global { .. } => Some(
            "left out where one allocation is for the whole workload: it is solved for the cards of the start alone",
        ),
        RawAllocate::Even | RawAllocate::Periodic { .. } => None,
    };
    problems.extend(must.map(|must| Problem::new(path.clone(), must, "given")));
    let scaled = Scaled {
        slo: runtimes.slo.0,
        instances_per_gpu: system.instances_per_gpu.0,
        cards: gpus,
        of: "cluster.gpus",
        path: &path,
    };
    scaling::scale_of(scale, &scaled, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_long_inputs_are_whole_tokens() {
        assert_eq!([1, 2, 3].map(|at| part_of(10, at, 3)), [3, 6, 10]);
        assert_eq!(part_of(200_000, 29_999, 30_000), 199_993);
    }
}
