//! The points of a sweep: every combination of the keys with lists, and in each the same draws from the keys with
//! ranges.

use serde_yaml::Value;
use tenantry_traces::draw::{Draws, Purpose};

use crate::decode::decode;
use crate::error::{PROBLEMS_MAX, Problem, describe, one_of};
use crate::files::inputs;
use crate::path::{Path, Step};
use crate::raw::{RawAxis, RawRange, RawSamples, RawScale, RawScenario};
use crate::resolve::{Resolved, resolve};
use crate::scalar::number_and_unit;
use crate::scenario::Point;

/// Keys that a run has. The others are the scenario's as a whole, and can't differ between its runs.
const SWEPT: [&str; 11] = [
    "seed", "card", "cluster", "prices", "models", "tenants", "workload", "outcomes", "systems", "slo", "jitter",
];

/// The sweep, resolved: `base` alone where there is none.
pub(crate) fn points(tree: &Value, raw: &RawScenario, base: Resolved) -> Result<Vec<Point>, Vec<Problem>> {
    let axes = axes(raw)?;
    if axes.is_empty() {
        return Ok(vec![Point {
            parameters: Vec::new(),
            resolved: base,
            inputs: inputs(raw),
        }]);
    }
    check_count(&axes, raw.samples.map_or(1, samples))?;
    let mut problems: Vec<Problem> = Vec::new();
    let mut points = Vec::new();
    for choice in choices(&axes, raw.samples.map_or(1, samples)) {
        match point(tree, &axes, &choice) {
            Ok(point) => points.push(point),
            // Each value is in many points, and would be wrong in all of them.
            Err(new) => new.into_iter().for_each(|problem| {
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }),
        }
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
    }
    if problems.is_empty() { Ok(points) } else { Err(problems) }
}

/// Points of a sweep, at most: each is resolved before the first runs.
const POINTS_MAX: usize = 1_000_000;

/// Refuses lists whose product no machine holds.
fn check_count(axes: &[Axis<'_>], samples: usize) -> Result<(), Vec<Problem>> {
    let mut listed = axes.iter().filter(|axis| !axis.drawn).map(|axis| axis.values.len());
    let points = listed.try_fold(samples, usize::checked_mul);
    match points {
        Some(points) if points <= POINTS_MAX => Ok(()),
        points => {
            let got = points.map_or("more than can be counted".to_owned(), |points| points.to_string());
            let must = format!("of at most {POINTS_MAX} points in all");
            Err(vec![Problem::new(Path::default().key("sweep"), must, got)])
        }
    }
}

/// One swept key.
struct Axis<'a> {
    name: &'a str,
    path: Path,
    values: Vec<Value>,
    /// The values are draws, one for each sample, rather than a list of the file's.
    drawn: bool,
}

impl Axis<'_> {
    /// Where in the file value number `index` is.
    fn source(&self, index: usize) -> Path {
        let key = Path::default().key("sweep").key(self.name);
        if self.drawn { key } else { key.index(index) }
    }
}

fn axes(raw: &RawScenario) -> Result<Vec<Axis<'_>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut axes = Vec::new();
    for (number, (name, axis)) in raw.sweep.0.iter().enumerate() {
        let key = Path::default().key("sweep").key(name);
        let path = Path::parse(name).unwrap_or_default();
        match path.steps() {
            [Step::Key(root), ..] if SWEPT.contains(&root.as_str()) => {}
            [Step::Key(root), ..] => {
                let must = format!("the path of a key in {}", one_of(SWEPT));
                problems.push(Problem::unknown_name(key.clone(), root, SWEPT).must(must));
            }
            _ => problems.push(Problem::new(key.clone(), "a path such as tenants.count", name)),
        }
        let names = raw.sweep.0.iter().map(|(name, _)| name);
        if let Some(problem) = set_as_a_whole(name, names, &key, "another axis") {
            problems.push(problem);
            continue;
        }
        let (values, drawn) = match (axis, raw.samples) {
            (RawAxis::Values(values), _) if values.is_empty() => {
                problems.push(Problem::new(key, "a list of at least one value", "an empty list"));
                continue;
            }
            (RawAxis::Values(values), _) => {
                if let Some(problem) = given_again(values, &key) {
                    problems.push(problem);
                    continue;
                }
                (values.clone(), false)
            }
            (RawAxis::Range(_), None) => {
                let must = "a list where samples is not given, such as samples: {latin-hypercube: 100}";
                problems.push(Problem::new(key, must, "a range"));
                continue;
            }
            (RawAxis::Range(range), Some(samples)) => match draw(range, samples, raw.seed, number as u64, &key) {
                Ok(values) => (values, true),
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            },
        };
        axes.push(Axis {
            name,
            path,
            values,
            drawn,
        });
    }
    if raw.samples.is_some() && problems.is_empty() && !axes.iter().any(|axis| axis.drawn) {
        let must = "left out where no key of sweep has a range {from: …, to: …}";
        problems.push(Problem::new(Path::default().key("samples"), must, "samples"));
    }
    if problems.is_empty() { Ok(axes) } else { Err(problems) }
}

/// A key of which another of the same section sets all, as a problem of where it stands.
pub(crate) fn set_as_a_whole<'a>(
    key: &str,
    mut keys: impl Iterator<Item = &'a String>,
    at: &Path,
    other: &str,
) -> Option<Problem> {
    let path = Path::parse(key)?;
    let covers = |other: &&String| *other != key && Path::parse(other).is_some_and(|other| path.starts_with(&other));
    let whole = keys.find(covers)?;
    let must = format!("left out beside {whole}, which sets all of it");
    Some(Problem::new(at.clone(), must, other))
}

/// The first of the values that is there twice, as a problem of where they stand.
pub(crate) fn given_again(values: &[Value], at: &Path) -> Option<Problem> {
    let again = |(index, value): &(usize, &Value)| values[..*index].contains(value);
    let (index, value) = values.iter().enumerate().find(again)?;
    let must = "another value than those before it";
    Some(Problem::new(at.index(index), must, describe(value)))
}

fn samples(samples: RawSamples) -> usize {
    let (RawSamples::Random(count) | RawSamples::LatinHypercube(count)) = samples;
    count.0 as usize
}

/// One value of a range for each sample. They depend on the scenario's seed and the number of the key, and on nothing
/// else.
fn draw(range: &RawRange, how: RawSamples, seed: u64, number: u64, key: &Path) -> Result<Vec<Value>, Problem> {
    let bounds = Bounds::of(range, key)?;
    let draws = Draws::new(seed, Purpose::Sweep).part(number);
    let count = samples(how);
    let parts = match how {
        RawSamples::Random(_) => (0..count).map(|sample| draws.about(sample as u64).unit()).collect(),
        RawSamples::LatinHypercube(_) => {
            // A random permutation (Fisher and Yates) says in which part of the range each sample lies, a draw where in
            // it.
            let mut part: Vec<usize> = (0..count).collect();
            let mut shuffle = draws.part(0).about(0);
            for last in (1..count).rev() {
                part.swap(last, shuffle.below(last as u64 + 1) as usize);
            }
            let within = |sample: usize| draws.about(sample as u64).unit();
            (0..count)
                .map(|sample| (part[sample] as f64 + within(sample)) / count as f64)
                .collect::<Vec<f64>>()
        }
    };
    Ok(parts.into_iter().map(|part| bounds.at(part)).collect())
}

/// Whole numbers up to here are told apart while they are drawn.
const WHOLE_MAX: f64 = (1_u64 << 53) as f64;

/// A range as numbers.
struct Bounds {
    from: f64,
    to: f64,
    log: bool,
    whole: bool,
    unit: Option<String>,
}

impl Bounds {
    fn of(range: &RawRange, key: &Path) -> Result<Bounds, Problem> {
        let (from, from_unit) = number(&range.from, &key.key("from"))?;
        let (to, to_unit) = number(&range.to, &key.key("to"))?;
        if from_unit != to_unit {
            let must = match &from_unit {
                Some(unit) => format!("in the unit of from, {unit}"),
                None => "a number without a unit, like from".to_string(),
            };
            return Err(Problem::new(key.key("to"), must, describe(&range.to)));
        }
        if to <= from {
            let must = format!("above from ({})", describe(&range.from));
            return Err(Problem::new(key.key("to"), must, describe(&range.to)));
        }
        let log = range.scale == RawScale::Log;
        if log && from <= 0.0 {
            return Err(Problem::new(
                key.key("from"),
                "above 0 where scale is log",
                describe(&range.from),
            ));
        }
        let whole = |value: &Value| matches!(value, Value::Number(number) if !number.is_f64());
        let whole = whole(&range.from) && whole(&range.to);
        for (name, bound, value) in [("from", from, &range.from), ("to", to, &range.to)] {
            if whole && bound.abs() > WHOLE_MAX {
                let must = format!("from -{WHOLE_MAX} to {WHOLE_MAX} where whole numbers are drawn");
                return Err(Problem::new(key.key(name), must, describe(value)));
            }
        }
        Ok(Bounds {
            from,
            to,
            log,
            whole,
            unit: from_unit,
        })
    }

    /// The value at this part of the range, from 0 to 1.
    fn at(&self, part: f64) -> Value {
        // Whole numbers have a part of the range each, the last one as well.
        let to = if self.whole { self.to + 1.0 } else { self.to };
        let value = if self.log {
            libm::exp(libm::log(self.from) + part * (libm::log(to) - libm::log(self.from)))
        } else {
            self.from + part * (to - self.from)
        };
        match &self.unit {
            None if self.whole => Value::from(libm::floor(value).clamp(self.from, self.to) as i64),
            None => Value::from(self.short(value)),
            Some(unit) => Value::from(format!("{}{unit}", self.short(value))),
        }
    }

    /// Six digits are more than any answer has, and read better than sixteen; where the first ones are the same for all
    /// of the range, six after these.
    fn short(&self, value: f64) -> f64 {
        let largest = self.from.abs().max(self.to.abs());
        let same = libm::log10(largest / (self.to - self.from)).clamp(0.0, 11.0) as usize;
        let short: f64 = format!("{value:.*e}", 5 + same).parse().expect("a formatted number is a number");
        short.clamp(self.from, self.to)
    }
}

/// A number, and its unit with the space before it.
fn number(value: &Value, path: &Path) -> Result<(f64, Option<String>), Problem> {
    let read = match value {
        Value::Number(number) => number.as_f64().filter(|number| number.is_finite()).map(|number| (number, None)),
        Value::String(text) => number_and_unit(text)
            .filter(|(_, unit)| !unit.is_empty())
            .map(|(number, unit)| (number, Some(unit.to_string()))),
        _ => None,
    };
    read.ok_or_else(|| {
        let must = "a number, or one with its unit such as 500/s or 20ms";
        Problem::new(path.clone(), must, describe(value))
    })
}

/// Which value of each axis, for every point; samples change fastest, and of the lists the last one.
fn choices(axes: &[Axis<'_>], samples: usize) -> Vec<Vec<usize>> {
    let listed = axes.iter().fold(vec![Vec::new()], |points, axis| {
        let values = if axis.drawn { 1 } else { axis.values.len() };
        let longer = |point: Vec<usize>| (0..values).map(move |index| point.iter().copied().chain([index]).collect());
        points.into_iter().flat_map(longer).collect()
    });
    let sampled = |point: Vec<usize>| {
        (0..samples).map(move |sample| {
            let index = |(axis, &index): (&Axis<'_>, &usize)| if axis.drawn { sample } else { index };
            axes.iter().zip(&point).map(index).collect()
        })
    };
    listed.into_iter().flat_map(sampled).collect()
}

fn point(tree: &Value, axes: &[Axis<'_>], choice: &[usize]) -> Result<Point, Vec<Problem>> {
    let mut tree = tree.clone();
    let mut parameters = Vec::new();
    for (axis, &index) in axes.iter().zip(choice) {
        let value = &axis.values[index];
        axis.path
            .set(&mut tree, value.clone())
            .map_err(|problem| vec![problem.moved(axis.source(index))])?;
        let json = serde_json::to_value(value).map_err(|_| {
            vec![Problem::new(
                axis.source(index),
                "a value without YAML tags and with texts as keys",
                "another",
            )]
        })?;
        parameters.push((axis.name.to_string(), json));
    }
    let (resolved, inputs) =
        decode::<RawScenario>(&tree)
            .and_then(|raw| Ok((resolve(&raw)?, inputs(&raw))))
            .map_err(|problems| {
                let blame = |problem: Problem| {
                    let swept = axes.iter().zip(choice).find(|(axis, _)| problem.path().starts_with(&axis.path));
                    match swept {
                        Some((axis, &index)) => {
                            let path = problem.path();
                            let below = &path.steps()[axis.path.steps().len()..];
                            problem.moved(axis.source(index).join(below))
                        }
                        // Right in itself, but not together with what is swept.
                        None => {
                            let together: Vec<String> =
                                parameters.iter().map(|(name, value)| format!("{name} is {value}")).collect();
                            problem.given(&together.join(" and "))
                        }
                    }
                };
                problems.into_iter().map(blame).collect::<Vec<_>>()
            })?;
    Ok(Point {
        parameters,
        resolved,
        inputs,
    })
}
