//! What changed step by step while a run went on: how many instances each runtime had (Arlo, Fig. 12), how many cards
//! there were.

use super::charts::{Axis, Chart, Choice, Compared, Line, LineStyle, MAX_LINES, View, point_choice, words};
use crate::group::Group;
use crate::summary::RunSummary;

/// Changes that are drawn: more would be one line over another.
const MAX_CHANGES: usize = 256;

/// From when on, in seconds, there were so many of each.
struct Steps<'a> {
    names: Vec<&'a str>,
    rows: &'a [(f64, Vec<u32>)],
}

/// A chart of what changes.
struct Kind {
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    y: &'static str,
    read: for<'a> fn(&'a RunSummary) -> Option<Steps<'a>>,
}

const KINDS: [Kind; 2] = [
    Kind {
        id: "fleet",
        title: "Instances of each runtime",
        caption: "How many each has, or is to have, from a decision on (the first 256). A runtime is named by its \
                  stream and its longest request.",
        y: "Instances",
        read: |run| {
            let fleet = run.fleet.as_ref()?;
            Some(Steps {
                names: fleet.runtimes.iter().map(String::as_str).collect(),
                rows: &fleet.allocations,
            })
        },
    },
    Kind {
        id: "cards",
        title: "Cards that come and go",
        caption: "How many there are, or are to be, from a decision on (the first 256); of a cascade, for each of its \
                  models.",
        y: "Cards",
        read: |run| match &run.cascade {
            Some(cascade) => Some(Steps {
                names: cascade.stages.iter().map(|stage| stage.model.as_str()).collect(),
                rows: &cascade.scaling.as_ref()?.cards,
            }),
            None => Some(Steps {
                names: vec!["cards"],
                rows: &run.scaling.as_ref()?.cards,
            }),
        },
    },
];

/// Those of which any system has changes.
pub fn charts(compared: &Compared<'_, '_>) -> Vec<Chart> {
    KINDS.iter().filter_map(|kind| chart(compared, kind)).collect()
}

fn chart(compared: &Compared<'_, '_>, kind: &Kind) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for group in compared.groups.iter().filter(|group| changed(group, kind).is_some()) {
        let name = compared.name(group);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let of = |point: usize, name: &String| {
        let found = compared.all_at(point).find(|group| compared.name(group) == *name);
        found.and_then(|group| view(group, kind)).unwrap_or_else(View::empty)
    };
    let views = (0..compared.points.len()).flat_map(|point| names.iter().map(move |name| of(point, name)));
    let views = views.collect();
    let mut choices = point_choice(&compared.points);
    if names.len() > 1 {
        choices.push(Choice {
            label: "System".to_owned(),
            options: names,
            point: false,
        });
    }
    let steps = compared.groups.iter().filter_map(|group| changed(group, kind));
    let most = steps.map(|steps| steps.names.len()).max().unwrap_or(0);
    let limit = match most > MAX_LINES {
        true => format!(", first {MAX_LINES} of {most} lines"),
        false => String::new(),
    };
    Some(Chart {
        id: kind.id.to_owned(),
        title: format!("{}{limit}", kind.title),
        caption: kind.caption,
        choices,
        views,
    })
}

/// A group's steps, if there are several.
fn changed<'a>(group: &Group<'a>, kind: &Kind) -> Option<Steps<'a>> {
    (kind.read)(&group.runs[0].summary).filter(|steps| steps.rows.len() > 1)
}

/// The first run's.
fn view(group: &Group<'_>, kind: &Kind) -> Option<View> {
    let Steps { names, rows } = changed(group, kind)?;
    let shown = &rows[..rows.len().min(MAX_CHANGES)];
    let until = match rows.get(shown.len()) {
        Some((next, _)) => *next,
        None => group.runs[0].curves.end.as_secs_f64(),
    };
    // Each stays until the next: a step.
    let ends = shown[1..].iter().map(|(from, _)| *from).chain([until]);
    let xs: Vec<f64> = shown.iter().zip(ends).flat_map(|((from, _), to)| [*from, to.max(*from)]).collect();
    let columns = names.iter().enumerate().take(MAX_LINES);
    let line = |(column, name): (usize, &&str)| Line {
        name: (*name).to_owned(),
        system: None,
        style: LineStyle::nth(column),
        points: false,
        ys: shown.iter().flat_map(|(_, counts)| [Some(f64::from(counts[column])); 2]).collect(),
        spans: Vec::new(),
    };
    let (first, last) = (&shown[0].1, &shown[shown.len() - 1].1);
    let in_words = columns
        .clone()
        .map(|(column, name)| format!("{name}: {} at first, {} at last", first[column], last[column]));
    Some(View {
        summary: words(in_words),
        x: Axis::linear("Time in s"),
        y: Axis::linear(kind.y),
        target: None,
        lines: columns.map(line).collect(),
        xs,
    })
}

#[cfg(test)]
mod tests {
    use tenantry_core::server::runtimes::FleetUse;
    use tenantry_traces::{Duration, Time};

    use super::*;
    use crate::curves::Run;
    use crate::summary::{ScalingSummary, VIRTUAL};
    use crate::testing;

    #[test]
    fn an_allocation_that_changes_is_drawn_in_steps() {
        let run = |system: &str, allocations: &[(u64, [u32; 2])]| {
            let mut record = testing::record(100, Duration::from_millis(5));
            record.fleet = Some(FleetUse {
                runtimes: vec![("base".into(), 64), ("base".into(), 512)],
                allocations: allocations
                    .iter()
                    .map(|(at, counts)| (Time::ZERO + Duration::from_secs(*at), counts.to_vec()))
                    .collect(),
                ..FleetUse::default()
            });
            Run::new(testing::labels(system, VIRTUAL), &record)
        };
        let level = run("level", &[(0, [1, 3])]);
        let of = |runs: &[Run]| charts(&Compared::new(&Group::all(runs)));
        assert!(of(std::slice::from_ref(&level)).is_empty(), "nothing changed");
        let changes = run("arlo", &[(0, [2, 2]), (4, [3, 1])]);
        let drawn = of(&[level, changes]).remove(0);
        assert_eq!((drawn.views.len(), drawn.choices.len()), (1, 0));
        let view = &drawn.views[0];
        assert_eq!(view.xs, [0.0, 4.0, 4.0, 10.0]);
        assert_eq!(
            view.summary,
            "base/64: 2 at first, 3 at last; base/512: 2 at first, 1 at last"
        );
        let ys: Vec<Vec<f64>> = view.lines.iter().map(|line| line.ys.iter().flatten().copied().collect()).collect();
        assert_eq!(ys, [[2.0, 2.0, 3.0, 3.0], [2.0, 2.0, 1.0, 1.0]]);
    }

    #[test]
    fn more_runtimes_than_are_drawn_are_told() {
        let drawn = |runtimes: u32| {
            let mut record = testing::record(100, Duration::from_millis(5));
            let counts = |of: u32| vec![of; runtimes as usize];
            record.fleet = Some(FleetUse {
                runtimes: (0..runtimes).map(|runtime| ("base".into(), 64 * (runtime + 1))).collect(),
                allocations: vec![
                    (Time::ZERO, counts(1)),
                    (Time::ZERO + Duration::from_secs(4), counts(2)),
                ],
                ..FleetUse::default()
            });
            let runs = [Run::new(testing::labels("arlo", VIRTUAL), &record)];
            charts(&Compared::new(&Group::all(&runs))).remove(0)
        };
        let (all, some) = (drawn(24), drawn(30));
        assert_eq!((all.views[0].lines.len(), some.views[0].lines.len()), (24, 24));
        assert!(
            !all.title.contains("first") && some.title.ends_with(", first 24 of 30 lines"),
            "{}",
            some.title
        );
    }

    #[test]
    fn cards_that_come_and_go_are_drawn_and_counted() {
        let mut run = Run::new(
            testing::labels("punica", VIRTUAL),
            &testing::record(100, Duration::from_millis(5)),
        );
        run.summary.gpus_time_weighted = Some(1.44);
        let read = |runs: &[Run]| {
            let groups = Group::all(runs);
            let columns = crate::metric::shown(&groups);
            let cards = columns.iter().find(|metric| metric.title == "Cards");
            cards.and_then(|metric| groups[0].mean(metric.read))
        };
        assert_eq!(read(&[run.clone()]), None, "of cards that stay it is the busy ones");
        run.summary.scaling = Some(ScalingSummary {
            cards_added: 1,
            cards_released: 0,
            redispatched: 0,
            cards: vec![(0.0, vec![1]), (3.0, vec![2])],
            cards_left_out: 0,
        });
        assert_eq!(read(&[run.clone()]), Some(1.44));
        let drawn = charts(&Compared::new(&Group::all(&[run])));
        assert_eq!((drawn.len(), drawn[0].id.as_str()), (1, "cards"));
        assert_eq!(drawn[0].views[0].summary, "cards: 1 at first, 2 at last");
        assert_eq!(drawn[0].views[0].xs, [0.0, 3.0, 3.0, 10.0]);
    }
}
