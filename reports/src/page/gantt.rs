//! The ops of a run's first moments, lane by lane.

use serde::Serialize;

use super::charts::{Choice, Compared, point_choice};
use crate::curves::{MAX_RUNS_WITH_OPS, OpDrawn};
use crate::group::Group;
use crate::human;
use crate::seen::OPS;

/// Lanes that can be told apart; a system with more shows the first.
const MAX_LANES: usize = 24;

const TITLE: &str = "The first work after the warm-up";

/// Ops of all systems and sweep points of a page together: they weigh most of all.
const MAX_OPS: usize = 3600;

/// What was done when on which lane.
#[derive(Debug, Serialize)]
pub struct Gantt {
    /// Of its element in the page.
    pub id: &'static str,
    /// Above it.
    pub title: String,
    /// How to read it, in a sentence.
    pub caption: &'static str,
    /// As for a chart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// A view for each combination.
    pub views: Vec<GanttView>,
}

/// The ops of one run.
#[derive(Debug, Default, Serialize)]
pub struct GanttView {
    /// What it shows, in words.
    pub summary: String,
    pub(crate) lanes: Vec<String>,
    /// In microseconds, where ops are left out: those that began later. Until then lanes without an op are idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<f64>,
    /// What was done.
    pub(crate) names: Vec<String>,
    /// Lane, name, category, start and duration in microseconds, requests of its batch.
    pub(crate) ops: Vec<(usize, usize, usize, f64, f64, u32)>,
}

/// Kinds of work, each with a colour: `--k-…` in the style sheet.
pub(crate) const CATEGORIES: [&str; 4] = ["compute", "copy", "lookup", "other"];

/// Nothing where no run has ops to draw, or too many runs to choose from.
pub fn gantt(compared: &Compared<'_, '_>) -> Option<Gantt> {
    if compared.groups.iter().map(|group| group.runs.len()).sum::<usize>() > MAX_RUNS_WITH_OPS {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for group in compared.groups {
        let name = compared.name(group);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let ops = MAX_OPS / compared.groups.len().max(1);
    let view = |point: usize, name: &String| {
        let found = compared.all_at(point).find(|group| compared.name(group) == *name);
        found.map(|group| view(group, ops)).unwrap_or_default()
    };
    let views: Vec<GanttView> = (0..compared.points.len())
        .flat_map(|point| names.iter().map(move |name| view(point, name)))
        .collect();
    if views.iter().all(|view| view.ops.is_empty()) {
        return None;
    }
    let mut choices = point_choice(&compared.points);
    if names.len() > 1 {
        choices.push(Choice {
            label: "System".to_owned(),
            options: names,
            point: false,
        });
    }
    Some(Gantt {
        id: "gantt",
        title: match most_lanes(compared) {
            lanes if lanes > MAX_LANES => format!("{TITLE}, first {MAX_LANES} of {lanes} lanes"),
            _ => TITLE.to_owned(),
        },
        caption: "Each bar is an op on its lane; bars above each other run at the same time.",
        choices,
        views,
    })
}

/// Lanes of the group that has the most.
fn most_lanes(compared: &Compared<'_, '_>) -> usize {
    let lanes = compared.groups.iter().map(|group| group.runs[0].curves.lanes.len());
    lanes.max().unwrap_or(0)
}

/// The first ops of a group, at most `max`.
fn view(group: &Group<'_>, max: usize) -> GanttView {
    let curves = &group.runs[0].curves;
    let ops: Vec<&OpDrawn> = curves.ops.iter().filter(|op| op.lane < MAX_LANES).collect();
    let are_left_out = ops.len() > max || curves.ops.len() >= OPS;
    let ops = &ops[..ops.len().min(max)];
    let until_ns = ops.iter().map(|op| op.started_ns).max().filter(|_| are_left_out);
    let mut names: Vec<String> = Vec::new();
    let mut index_of = |name: &String| {
        names.iter().position(|other| other == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        })
    };
    let category = |op: &OpDrawn| {
        let found = CATEGORIES.iter().position(|category| *category == op.category);
        found.unwrap_or(CATEGORIES.len() - 1)
    };
    // To a tenth, which nobody sees of milliseconds.
    let micros = |ns: u64| (ns as f64 / 100.0).round() / 10.0;
    let drawn = ops.iter().map(|op| {
        let duration = op.ended_ns.saturating_sub(op.started_ns);
        (
            op.lane,
            index_of(&op.name),
            category(op),
            micros(op.started_ns),
            micros(duration),
            op.requests,
        )
    });
    let drawn = drawn.collect();
    let summary = match (
        ops.iter().map(|op| op.started_ns).min(),
        until_ns.or_else(|| ops.iter().map(|op| op.ended_ns).max()),
    ) {
        (Some(start), Some(end)) => format!(
            "{} ops on {} lanes of {} within {}",
            human::count(ops.len() as u64),
            match curves.lanes.len() {
                lanes if lanes > MAX_LANES => format!("the first {MAX_LANES} of {lanes}"),
                lanes => lanes.to_string(),
            },
            group.system(),
            human::milliseconds((end - start) as f64 / 1e6)
        ),
        _ => format!("No ops of {} were noted", group.system()),
    };
    GanttView {
        summary,
        lanes: curves.lanes.iter().take(MAX_LANES).cloned().collect(),
        until: until_ns.map(micros),
        names,
        ops: drawn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn ops_keep_their_lanes_and_share_their_names() {
        let mut runs = testing::runs();
        let op = |lane, started_ns| OpDrawn {
            lane,
            name: "encode layers 0–1".into(),
            category: "compute".into(),
            started_ns,
            ended_ns: started_ns + 2_000,
            requests: 3,
        };
        runs[0].curves.lanes = vec!["gpu0/copy".into(), "gpu0/compute0".into()];
        runs[0].curves.ops = vec![op(1, 1_000), op(1, 3_000)];
        let groups = Group::all(&runs);
        let gantt = gantt(&Compared::new(&groups)).unwrap();
        assert_eq!(gantt.views.len(), 4, "two systems on two machines");
        assert_eq!(gantt.views[0].ops, [(1, 0, 0, 1.0, 2.0, 3), (1, 0, 0, 3.0, 2.0, 3)]);
        assert_eq!(gantt.views[0].names.len(), 1);
        assert!(gantt.views[1].ops.is_empty());
    }

    #[test]
    fn lanes_that_are_not_drawn_are_told_of() {
        let mut runs = testing::runs();
        runs.truncate(1);
        runs[0].curves.lanes = (0..31).map(|lane| format!("gpu{lane}")).collect();
        let op = |lane| OpDrawn {
            lane,
            name: "step".into(),
            category: "compute".into(),
            started_ns: 0,
            ended_ns: 1_000,
            requests: 1,
        };
        runs[0].curves.ops = (0..31).map(op).collect();
        let gantt = gantt(&Compared::new(&Group::all(&runs))).unwrap();
        assert_eq!(gantt.title, "The first work after the warm-up, first 24 of 31 lanes");
        let view = &gantt.views[0];
        assert_eq!((view.lanes.len(), view.ops.len()), (24, 24));
        assert!(
            view.summary.starts_with("24 ops on the first 24 of 31 lanes of "),
            "{}",
            view.summary
        );
    }

    #[test]
    fn a_lane_is_drawn_as_far_as_all_of_it_is_known() {
        let mut run = testing::runs().remove(0);
        let op = |lane, started_ns, ended_ns| OpDrawn {
            lane,
            name: "step".into(),
            category: "compute".into(),
            started_ns,
            ended_ns,
            requests: 1,
        };
        run.curves.lanes = vec!["gpu0".into(), "gpu1".into()];
        run.curves.ops = (0..MAX_OPS as u64).map(|i| op(0, i * 1000, i * 1000 + 1000)).collect();
        run.curves.ops.insert(0, op(1, 0, 9_000_000));
        let view = |runs: &[crate::Run]| {
            let groups = Group::all(runs);
            gantt(&Compared::new(&groups)).unwrap().views.remove(0)
        };
        let cut = view(&[run.clone()]);
        assert_eq!(cut.until, Some(3598.0));
        assert!(cut.summary.ends_with("within 3.60\u{a0}ms"), "{}", cut.summary);
        run.curves.ops.truncate(10);
        assert_eq!(view(&[run]).until, None);
    }
}
