//! The chart of figures over a sweep: what a reader chooses is up, the values of a swept key are across, a line is a
//! system.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::charts::{
    Axis, Chart, Choice, Compared, Line, LineStyle, MAX_LINES, Stroke, Target, View, coarse, one_target, words,
};
use crate::group::{Group, identity, plain};
use crate::human;
use crate::metric::{Metric, Unit, shown};
use crate::summary::{Parameters, SloSummary};

/// A logarithmic axis serves values that span more than this ratio.
const WIDE: f64 = 20.0;

/// Nothing without a sweep.
pub fn chart(compared: &Compared<'_, '_>) -> Option<Chart> {
    let keys = keys(compared);
    let alongs: Vec<Along<'_>> = keys.iter().flat_map(|key| alongs(compared, key, &keys)).collect();
    let metrics = metrics(compared, &keys);
    if alongs.is_empty() || metrics.is_empty() {
        return None;
    }
    let views = metrics.iter().flat_map(|metric| alongs.iter().map(move |along| view(compared, metric, along)));
    let views = views.collect();
    let choices = [
        ("Figure", metrics.iter().map(|metric| metric.title.to_owned()).collect()),
        (
            "Across",
            alongs.iter().map(|along| along.title.clone()).collect::<Vec<_>>(),
        ),
    ];
    let choice = |(label, options): (&str, Vec<String>)| Choice {
        label: label.to_owned(),
        options,
        point: false,
    };
    Some(Chart {
        id: "sweep".to_owned(),
        title: "Figures over the sweep".to_owned(),
        caption: "A point is a system at a sweep point, the mean over its repeats, with a bar from the least to the \
                  most of them; the lines between only lead the eye.",
        choices: choices.into_iter().map(choice).filter(|choice| choice.options.len() > 1).collect(),
        views,
    })
}

/// What is chosen first is what the target limits; p98 where that has no figure.
fn metrics(compared: &Compared<'_, '_>, keys: &[Key<'_>]) -> Vec<&'static Metric> {
    // Where no point could be run there is none.
    let slo = compared.groups.iter().flat_map(|group| &group.runs).find_map(|run| run.summary.slo.as_ref());
    let is_swept = |group: &Group<'_>| keys.iter().any(|key| group.parameters().contains_key(key.name));
    let has = |metric: &&Metric| {
        let mut groups = compared.groups.iter();
        groups.any(|group| is_swept(group) && group.mean(metric.read).is_some())
    };
    let mut metrics: Vec<&Metric> = shown(compared.groups).into_iter().filter(has).collect();
    let is_limited = |metric: &&Metric| slo.is_some_and(|slo| limit_ms(metric, slo).is_some());
    match metrics.iter().any(is_limited) {
        true => metrics.sort_by_key(|metric| !is_limited(metric)),
        false => metrics.sort_by_key(|metric| metric.title != "p98 ms"),
    }
    metrics
}

/// What a target has against a figure.
fn limit_ms(metric: &Metric, slo: &SloSummary) -> Option<f64> {
    match metric.title {
        "TTFT at SLO ms" => slo.ttft_ms,
        "TPOT at SLO ms" => slo.tpot_ms,
        title => slo.latency_ms.filter(|_| title == format!("{} ms", slo.at)),
    }
}

/// A key that the sweep changes.
struct Key<'a> {
    name: &'a str,
    /// All its values, ascending where they are numbers.
    values: Vec<&'a Value>,
    /// The values as numbers, where they are; with the unit that they share.
    numbers: Option<(Vec<f64>, String)>,
    /// By a value as JSON, its place among them.
    places: HashMap<String, usize>,
}

fn keys<'a>(compared: &Compared<'_, 'a>) -> Vec<Key<'a>> {
    let mut keys: Vec<Key<'a>> = Vec::new();
    for group in compared.groups {
        for (name, value) in group.parameters() {
            let known = keys.iter().position(|key| key.name == name);
            let key = known.unwrap_or_else(|| {
                keys.push(Key {
                    name,
                    values: Vec::new(),
                    numbers: None,
                    places: HashMap::new(),
                });
                keys.len() - 1
            });
            let Key { values, places, .. } = &mut keys[key];
            places.entry(value.to_string()).or_insert_with(|| {
                values.push(value);
                values.len() - 1
            });
        }
    }
    keys.retain(|key| key.values.len() > 1);
    for key in &mut keys {
        key.numbers = numbers(&mut key.values);
        key.places = key.values.iter().map(|value| value.to_string()).zip(0..).collect();
    }
    // The finest first: it says most.
    keys.sort_by_key(|key| std::cmp::Reverse(key.values.len()));
    keys
}

/// The values in ascending order, where all are numbers of one quantity; in the unit of the least.
fn numbers(values: &mut [&Value]) -> Option<(Vec<f64>, String)> {
    let (_, base) = number(values[0])?;
    if values.iter().any(|value| number(value).is_none_or(|(_, other)| other != base)) {
        return None;
    }
    let of = |value: &Value| number(value).map_or(0.0, |(number, _)| number);
    values.sort_by(|a, b| of(a).total_cmp(&of(b)));
    let (_, unit) = written(values[0])?;
    let times = UNITS.iter().find(|(name, ..)| *name == unit).map_or(1.0, |(_, times, _)| *times);
    let as_written = |value: &Value| match written(value) {
        Some((number, own)) if own == unit => number,
        _ => of(value) / times,
    };
    Some((values.iter().map(|value| as_written(value)).collect(), unit.to_owned()))
}

/// `500/s` is 500 and `/s`.
fn written(value: &Value) -> Option<(f64, &str)> {
    if let Some(number) = value.as_f64() {
        return Some((number, ""));
    }
    let text = value.as_str()?;
    // As scenarios read it: an `e` is an exponent's, since no unit begins with one.
    let end = text.find(|c: char| !c.is_ascii_digit() && !".+-eE".contains(c)).unwrap_or(text.len());
    Some((text[..end].trim().parse().ok()?, text[end..].trim()))
}

/// The same in bytes, seconds and so on, whatever it was written in.
pub(crate) fn number(value: &Value) -> Option<(f64, &str)> {
    let (number, unit) = written(value)?;
    let known = UNITS.iter().find(|(name, ..)| *name == unit);
    Some(known.map_or((number, unit), |(_, times, base)| (number * times, *base)))
}

/// Units of one quantity, as scenarios have them: how much of which base they are.
const UNITS: [(&str, f64, &str); 20] = [
    ("KiB", 1024.0, "B"),
    ("MiB", 1_048_576.0, "B"),
    ("GiB", 1_073_741_824.0, "B"),
    ("KB", 1e3, "B"),
    ("MB", 1e6, "B"),
    ("GB", 1e9, "B"),
    ("KiB/s", 1024.0, "B/s"),
    ("MiB/s", 1_048_576.0, "B/s"),
    ("GiB/s", 1_073_741_824.0, "B/s"),
    ("KB/s", 1e3, "B/s"),
    ("MB/s", 1e6, "B/s"),
    ("GB/s", 1e9, "B/s"),
    ("ns", 1e-9, "s"),
    ("us", 1e-6, "s"),
    ("µs", 1e-6, "s"),
    ("ms", 1e-3, "s"),
    ("min", 60.0, "s"),
    ("h", 3600.0, "s"),
    ("/min", 1.0 / 60.0, "/s"),
    ("/h", 1.0 / 3600.0, "/s"),
];

/// A way through the sweep: a key, and what the others are meanwhile.
struct Along<'a> {
    title: String,
    key: &'a Key<'a>,
    /// Nothing where the others vary too, so that only a cloud of points can be drawn.
    fixed: Option<Parameters>,
}

fn alongs<'a>(compared: &Compared<'_, 'a>, key: &'a Key<'a>, keys: &[Key<'a>]) -> Vec<Along<'a>> {
    let several = keys.len() > 1;
    let mut fixed: Vec<Parameters> = Vec::new();
    let mut known = HashSet::new();
    let swept = |group: &&Group<'_>| group.parameters().contains_key(key.name);
    for group in compared.groups.iter().filter(swept) {
        let others = others(group.parameters(), key);
        if known.insert(identity(&others)) {
            fixed.push(others);
        }
    }
    // Samples rather than a grid: hardly any two points agree in all other keys.
    let lines = compared.groups.len() / key.values.len().max(1);
    if fixed.len() > 1 && fixed.len() > lines.max(1) * 2 {
        return vec![Along {
            title: format!("{}, while others vary", key.name),
            key,
            fixed: None,
        }];
    }
    let along = |fixed: Parameters| {
        let swept = |name: &str| keys.iter().any(|key| key.name == name);
        let at: Vec<String> = fixed
            .iter()
            .filter(|(name, _)| swept(name))
            .map(|(name, value)| format!("{name} {}", plain(value)))
            .collect();
        Along {
            title: match several && !at.is_empty() {
                true => format!("{} at {}", key.name, at.join(", ")),
                false => key.name.to_owned(),
            },
            key,
            fixed: Some(fixed),
        }
    };
    fixed.into_iter().map(along).collect()
}

fn others(parameters: &Parameters, key: &Key<'_>) -> Parameters {
    let mut others = parameters.clone();
    others.remove(key.name);
    others
}

fn view(compared: &Compared<'_, '_>, metric: &Metric, along: &Along<'_>) -> View {
    let key = along.key;
    // A run of another folder may have no part in the sweep.
    let on_the_way = |group: &&Group<'_>| {
        let parameters = group.parameters();
        let fixed = along.fixed.as_ref();
        parameters.contains_key(key.name) && fixed.is_none_or(|fixed| others(parameters, key) == *fixed)
    };
    let groups: Vec<&Group<'_>> = compared.groups.iter().filter(on_the_way).collect();
    let place = |group: &Group<'_>| {
        let value = group.parameters().get(key.name)?;
        key.places.get(&value.to_string()).copied()
    };
    let places: Vec<Option<usize>> = groups.iter().map(|group| place(group)).collect();
    // One column a group where several may share a value, one a value else.
    let mut columns: Vec<(usize, Option<usize>)> = match along.fixed {
        Some(_) => (0..key.values.len()).map(|value| (value, None)).collect(),
        None => {
            let column = |(index, place): (usize, &Option<usize>)| Some(((*place)?, Some(index)));
            places.iter().enumerate().filter_map(column).collect()
        }
    };
    columns.sort_unstable();
    let column_of: HashMap<(usize, Option<usize>), usize> = columns.iter().copied().zip(0..).collect();
    let x_of = |value: usize| key.numbers.as_ref().map_or(value as f64, |(numbers, _)| numbers[value]);
    let scale = Scale::of(metric, &groups);
    let mut lines: Vec<Line> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let known = lines.iter().position(|line| line.name == compared.name(group));
        let line = known.unwrap_or_else(|| {
            let line = compared.line(group, vec![None; columns.len()]);
            let stroke = if along.fixed.is_none() {
                Stroke::None
            } else {
                line.style.stroke
            };
            lines.push(Line {
                points: true,
                style: LineStyle { stroke, ..line.style },
                ..line
            });
            lines.len() - 1
        });
        let own = along.fixed.is_none().then_some(index);
        let found = places[index].and_then(|place| column_of.get(&(place, own)).copied());
        if let (Some(column), Some(figure)) = (found, group.spread(metric.read)) {
            let line = &mut lines[line];
            line.ys[column] = Some(coarse(figure.mean / scale.unit));
            if figure.min < figure.max {
                line.spans.resize(columns.len(), None);
                line.spans[column] = Some([figure.min, figure.max].map(|end| coarse(end / scale.unit)));
            }
        }
    }
    // Systems that do not have the figure are not in the legend.
    lines.retain(|line| line.ys.iter().any(Option::is_some));
    lines.truncate(MAX_LINES);
    if lines.is_empty() {
        return View::empty();
    }
    let slo = one_target(groups.iter().copied());
    let target_ms = slo.and_then(|slo| limit_ms(metric, slo));
    View {
        summary: in_words(metric, &lines, scale.unit),
        x: Axis {
            label: match &key.numbers {
                Some((_, unit)) if !unit.is_empty() => format!("{}, {unit}", key.name),
                _ => key.name.to_owned(),
            },
            log: key.numbers.as_ref().is_some_and(|(numbers, _)| wide(numbers)),
            percent: false,
            names: match key.numbers {
                Some(_) => Vec::new(),
                None => key.values.iter().map(|value| plain(value)).collect(),
            },
        },
        y: scale.axis,
        target: target_ms.map(|value| Target { up: true, value }),
        xs: columns.iter().map(|&(value, _)| x_of(value)).collect(),
        lines,
    }
}

fn wide(ascending: &[f64]) -> bool {
    let (first, last) = (ascending[0], ascending[ascending.len() - 1]);
    first > 0.0 && last / first > WIDE
}

fn in_words(metric: &Metric, lines: &[Line], unit: f64) -> String {
    let said = lines.iter().filter_map(|line| {
        let mut known = line.ys.iter().copied().flatten();
        let first = known.next()?;
        let [first, last] = [first, known.next_back().unwrap_or(first)].map(|y| metric.unit.show(y * unit));
        Some(format!("{}: from {first} to {last}", line.name))
    });
    format!("{}, {}", metric.title, words(said))
}

/// How a figure is drawn.
struct Scale {
    axis: Axis,
    /// What one of the axis is in the summary's unit.
    unit: f64,
}

impl Scale {
    fn of(metric: &Metric, groups: &[&Group<'_>]) -> Scale {
        let mut values: Vec<f64> = groups.iter().filter_map(|group| group.mean(metric.read)).collect();
        values.sort_by(f64::total_cmp);
        let most = values.last().copied().unwrap_or(0.0);
        match metric.unit {
            Unit::Share => Scale {
                axis: Axis::percent(metric.title),
                unit: 1.0,
            },
            Unit::Bytes => {
                let (unit, name) = human::binary_unit(most);
                Scale {
                    axis: Axis::linear(format!("{}, {name}", metric.title)),
                    unit,
                }
            }
            Unit::Number => Scale {
                axis: match !values.is_empty() && wide(&values) {
                    true => Axis::log(metric.title),
                    false => Axis::linear(metric.title),
                },
                unit: 1.0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_traces::Duration;

    use super::*;
    use crate::curves::Run;
    use crate::testing::{labels, record};

    fn run(system: &str, parameters: &[(&str, Value)], slowest_ms: u64) -> Run {
        let mut labels = labels(system, "virtual");
        labels.parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        Run::new(labels, &record(100, Duration::from_millis(slowest_ms)))
    }

    fn of(runs: &[Run]) -> Option<Chart> {
        chart(&Compared::new(&Group::all(runs)))
    }

    #[test]
    fn a_sweep_of_one_key_has_a_line_a_system_in_ascending_order() {
        let mut runs = Vec::new();
        for tenants in [1000, 10, 100] {
            for system in ["hmi", "other"] {
                runs.push(run(system, &[("tenants.count", tenants.into())], tenants / 10));
            }
        }
        let chart = of(&runs).unwrap();
        assert_eq!(chart.choices.len(), 1, "the figure only");
        assert_eq!(chart.choices[0].options[0], "p98 ms");
        let view = &chart.views[0];
        assert_eq!(view.xs, [10.0, 100.0, 1000.0]);
        assert!(view.x.log && view.target.is_some_and(|target| target.up && target.value == 150.0));
        assert_eq!(view.lines.len(), 2);
        let ys: Vec<f64> = view.lines[0].ys.iter().map(|y| y.unwrap()).collect();
        assert!(ys.is_sorted() && ys[0] < 1.0 && ys[2] > 90.0, "{ys:?}");
        assert_eq!(chart.views.len(), chart.choices[0].options.len());
    }

    /// Where parts of an answer are limited, how long whole ones take is not what a reader looks for.
    #[test]
    fn what_is_limited_comes_first_and_has_its_target_drawn() {
        let mut runs: Vec<Run> = Vec::new();
        for tenants in [10, 100] {
            let mut run = run("punica", &[("tenants.count", tenants.into())], tenants);
            (run.summary.ttft_ms, run.summary.tpot_ms) = (run.summary.latency_ms, run.summary.latency_ms);
            let slo = run.summary.slo.as_mut().unwrap();
            (slo.at, slo.latency_ms, slo.ttft_ms) = ("p90".into(), None, Some(1000.0));
            runs.push(run);
        }
        let targets = |chart: &Chart| -> Vec<Option<f64>> {
            let targets = chart.views.iter().map(|view| view.target.map(|target| target.value));
            targets.collect()
        };
        let chart = of(&runs).unwrap();
        assert_eq!(chart.choices[0].options[0], "TTFT at SLO ms");
        assert_eq!(
            (targets(&chart)[0], targets(&chart).iter().flatten().count()),
            (Some(1000.0), 1)
        );
        for run in &mut runs {
            let slo = run.summary.slo.as_mut().unwrap();
            (slo.latency_ms, slo.tpot_ms) = (Some(5000.0), Some(50.0));
        }
        let chart = of(&runs).unwrap();
        assert_eq!(
            chart.choices[0].options[..3],
            ["TTFT at SLO ms", "TPOT at SLO ms", "p90 ms"]
        );
        assert_eq!(targets(&chart)[..4], [Some(1000.0), Some(50.0), Some(5000.0), None]);
    }

    /// Repeats that differ have a bar, from the least to the most of them.
    #[test]
    fn repeats_have_their_spread() {
        let mut runs = Vec::new();
        for (tenants, slowest_ms) in [(10, [20, 40]), (100, [30, 30])] {
            for (repeat, slowest_ms) in (0..).zip(slowest_ms) {
                let mut run = run("hmi", &[("tenants.count", tenants.into())], slowest_ms);
                run.summary.repeat = repeat;
                runs.push(run);
            }
        }
        let view = of(&runs).unwrap().views.remove(0);
        let line = &view.lines[0];
        let [Some([least, most]), None] = line.spans[..] else {
            panic!("{:?}", line.spans)
        };
        let mean = line.ys[0].unwrap();
        assert!(
            least < mean && mean < most && (most / least - 2.0).abs() < 0.05,
            "{line:?}"
        );
        let alone = of(&[runs[0].clone(), runs[2].clone()]).unwrap();
        assert!(alone.views.iter().flat_map(|view| &view.lines).all(|line| line.spans.is_empty()));
    }

    #[test]
    fn a_grid_has_a_way_along_each_key_for_each_value_of_the_other() {
        let mut runs = Vec::new();
        for tenants in [10, 100, 1000] {
            for rate in ["100/s", "200/s"] {
                runs.push(run(
                    "hmi",
                    &[("rate", rate.into()), ("tenants.count", tenants.into())],
                    10,
                ));
            }
        }
        let chart = of(&runs).unwrap();
        let across = &chart.choices[1].options;
        assert_eq!(across.len(), 3 + 2, "{across:?}");
        assert_eq!(across[0], "tenants.count at rate 100/s");
        assert_eq!(across[2], "rate at tenants.count 10");
        assert_eq!(chart.views[2].x.label, "rate, /s");
        assert_eq!(chart.views[2].xs, [100.0, 200.0]);
        assert_eq!(chart.views.len(), chart.choices[0].options.len() * across.len());
    }

    #[test]
    fn values_are_drawn_in_one_unit_however_they_are_written() {
        let view = |values: &[&str]| {
            let runs: Vec<Run> = values.iter().map(|&value| run("hmi", &[("rate", value.into())], 10)).collect();
            of(&runs).unwrap().views.remove(0)
        };
        let exponents = view(&["1e2/s", "5e2/s", "2.5e2/s"]);
        assert_eq!(
            (exponents.xs, exponents.x.label.as_str()),
            (vec![100.0, 250.0, 500.0], "rate, /s")
        );
        let mixed = view(&["5e2/s", "60/s", "3000/min"]);
        assert_eq!(mixed.x.label, "rate, /min");
        for (x, expected) in mixed.xs.iter().zip([3000.0, 3600.0, 30_000.0]) {
            assert!((x / expected - 1.0).abs() < 1e-9, "{x}");
        }
        assert_eq!(view(&["2 MB", "500 KB"]).xs, [500.0, 2000.0]);
        let bandwidths = view(&["2 MiB/s", "512 KiB/s"]);
        assert_eq!(
            (bandwidths.xs, bandwidths.x.label.as_str()),
            (vec![512.0, 2048.0], "rate, KiB/s")
        );
        assert_eq!(view(&["english", "e"]).x.names, ["english", "e"]);
    }

    /// Such a run has figures that no system of the sweep has, and would be a line without a value on an axis without
    /// ends.
    #[test]
    fn a_run_of_another_folder_has_no_part_in_the_sweep() {
        let mut runs: Vec<Run> = Vec::new();
        for tenants in [10, 100] {
            runs.push(run("hmi", &[("tenants.count", tenants.into())], tenants));
        }
        let mut chat = run("punica", &[], 10);
        chat.summary.ttft_ms = chat.summary.latency_ms;
        runs.push(chat);
        let groups = Group::all(&runs);
        let compared = Compared::new(&groups);
        assert_eq!(compared.points.last().unwrap(), "no sweep point");
        assert_eq!(compared.point(groups.last().unwrap()), compared.points.len() - 1);
        let chart = chart(&compared).unwrap();
        assert_eq!(chart.choices.len(), 1, "one way through the sweep");
        assert!(!chart.choices[0].options.iter().any(|title| title.starts_with("TTFT")));
        assert!(chart.views.iter().all(|view| view.lines.iter().all(|line| line.name == "hmi")));
        // With a figure that one of two systems has, the other is not in the legend.
        for tenants in [10, 100] {
            let mut generating = run("punica", &[("tenants.count", tenants.into())], tenants);
            generating.summary.ttft_ms = generating.summary.latency_ms;
            runs.push(generating);
        }
        let chart = of(&runs).unwrap();
        let options = &chart.choices[0].options;
        let ttft = options.iter().position(|title| title.starts_with("TTFT")).unwrap();
        let names: Vec<&str> = chart.views[ttft].lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["punica"]);
    }

    #[test]
    fn samples_are_drawn_as_points_and_names_as_names() {
        let sampled = |i: u64| {
            let parameters = [("a", Value::from(i * 7 % 11)), ("b", Value::from(i * 5 % 11))];
            run("hmi", &parameters, 10)
        };
        let runs: Vec<Run> = (0..11).map(sampled).collect();
        let chart = of(&runs).unwrap();
        assert_eq!(
            chart.choices[1].options,
            ["a, while others vary", "b, while others vary"]
        );
        assert_eq!(chart.views[0].lines[0].style.stroke, Stroke::None);
        assert!(chart.views[0].lines[0].ys.iter().all(Option::is_some));

        let runs = ["uniform", "distinct"].map(|name| run("hmi", &[("popularity", name.into())], 10));
        assert_eq!(of(&runs).unwrap().views[0].x.names, ["uniform", "distinct"]);
        assert!(of(&[run("hmi", &[], 10)]).is_none());
    }
}
