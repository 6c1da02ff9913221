//! How many instances each runtime had over time (Arlo, Fig. 12).

use super::charts::{Axis, Chart, Choice, Compared, Line, LineStyle, MAX_LINES, View, point_choice, words};
use crate::group::Group;
use crate::summary::FleetSummary;

/// Changes that are drawn: more would be one line over another.
const MAX_CHANGES: usize = 256;

/// Of each system whose allocation changed; nothing where none did.
pub fn chart(compared: &Compared<'_, '_>) -> Option<Chart> {
    let mut names: Vec<String> = Vec::new();
    for group in compared.groups.iter().filter(|group| changed(group).is_some()) {
        let name = compared.name(group);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let view = |point: usize, name: &String| {
        let mut groups = compared.groups.iter();
        let found = groups.find(|group| compared.point(group) == point && compared.name(group) == *name);
        found.and_then(view).unwrap_or_else(View::empty)
    };
    let views = (0..compared.points.len()).flat_map(|point| names.iter().map(move |name| view(point, name)));
    let views = views.collect();
    let mut choices = point_choice(&compared.points);
    if names.len() > 1 {
        choices.push(Choice {
            label: "System".to_owned(),
            options: names,
            point: false,
        });
    }
    Some(Chart {
        id: "fleet".to_owned(),
        title: "Instances of each runtime".to_owned(),
        caption: "How many each has, or is to have, from a decision on (the first 256). A runtime is named by its stream and its longest request.",
        choices,
        views,
    })
}

/// A group's fleet, if its allocation changed.
fn changed<'a>(group: &Group<'a>) -> Option<&'a FleetSummary> {
    let fleet = group.runs[0].summary.fleet.as_ref()?;
    (fleet.allocations.len() > 1).then_some(fleet)
}

/// The first run's.
fn view(group: &Group<'_>) -> Option<View> {
    let fleet = changed(group)?;
    let shown = &fleet.allocations[..fleet.allocations.len().min(MAX_CHANGES)];
    let until = match fleet.allocations.get(shown.len()) {
        Some((next, _)) => *next,
        None => group.runs[0].curves.end.as_secs_f64(),
    };
    // Each stays until the next: a step.
    let ends = shown[1..].iter().map(|(from, _)| *from).chain([until]);
    let xs: Vec<f64> = shown
        .iter()
        .zip(ends)
        .flat_map(|((from, _), to)| [*from, to.max(*from)])
        .collect();
    let columns = fleet.runtimes.iter().enumerate().take(MAX_LINES);
    let line = |(column, name): (usize, &String)| Line {
        name: name.clone(),
        system: None,
        style: LineStyle::nth(column),
        points: false,
        ys: { shown.iter() }
            .flat_map(|(_, counts)| [Some(f64::from(counts[column])); 2])
            .collect(),
    };
    let (first, last) = (&shown[0].1, &shown[shown.len() - 1].1);
    let in_words = columns
        .clone()
        .map(|(column, name)| format!("{name}: {} at first, {} at last", first[column], last[column]));
    Some(View {
        summary: words(in_words),
        x: Axis::linear("Time in s"),
        y: Axis::linear("Instances"),
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
    use crate::summary::VIRTUAL;
    use crate::testing;

    #[test]
    fn an_allocation_that_changes_is_drawn_in_steps() {
        let run = |system: &str, allocations: &[(u64, [u32; 2])]| {
            let mut record = testing::record(100, Duration::from_millis(5));
            record.fleet = Some(FleetUse {
                runtimes: vec![("base".into(), 64), ("base".into(), 512)],
                allocations: { allocations.iter() }
                    .map(|(at, counts)| (Time::ZERO + Duration::from_secs(*at), counts.to_vec()))
                    .collect(),
                ..FleetUse::default()
            });
            Run::new(testing::labels(system, VIRTUAL), &record)
        };
        let level = run("level", &[(0, [1, 3])]);
        let of = |runs: &[Run]| chart(&Compared::new(&Group::all(runs)));
        assert!(of(std::slice::from_ref(&level)).is_none(), "nothing changed");
        let changes = run("arlo", &[(0, [2, 2]), (4, [3, 1])]);
        let drawn = of(&[level, changes]).unwrap();
        assert_eq!((drawn.views.len(), drawn.choices.len()), (1, 0));
        let view = &drawn.views[0];
        assert_eq!(view.xs, [0.0, 4.0, 4.0, 10.0]);
        assert_eq!(
            view.summary,
            "base/64: 2 at first, 3 at last; base/512: 2 at first, 1 at last"
        );
        let ys: Vec<Vec<f64>> = view
            .lines
            .iter()
            .map(|line| line.ys.iter().flatten().copied().collect())
            .collect();
        assert_eq!(ys, [[2.0, 2.0, 3.0, 3.0], [2.0, 2.0, 1.0, 1.0]]);
    }
}
