//! What the page's script draws, described so that one short script draws it all: lines over shared x values, in one or
//! several views between which the reader chooses.

use std::collections::HashMap;

use serde::Serialize;

use crate::group::Group;
use crate::summary::SloSummary;

/// Lines that a view can hold and a reader can tell apart.
pub(crate) const MAX_LINES: usize = 24;
/// Colours of the page's palette, used again with another stroke where there are more systems; the one after them is
/// grey.
pub(crate) const COLORS: usize = 8;
/// Where a run without a sweep point stands beside others that have one.
const APART: &str = "no sweep point";
/// For what is no system.
pub(super) const GREY: usize = COLORS;

/// One chart.
#[derive(Debug, Serialize)]
pub struct Chart {
    /// Of its element in the page.
    pub id: String,
    /// Above it.
    pub title: String,
    /// How to read it, in a sentence.
    pub caption: &'static str,
    /// What a reader chooses between; a view for each combination, the last choice turning fastest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
    /// At least one.
    pub views: Vec<View>,
}

/// What a reader chooses.
#[derive(Debug, Serialize)]
pub struct Choice {
    /// Before it.
    pub label: String,
    /// At least two.
    pub options: Vec<String>,
    /// Whether it is the page's choice of a sweep point, made once for all charts.
    pub point: bool,
}

/// What is seen of a chart at a time.
#[derive(Debug, Serialize)]
pub struct View {
    /// What it shows, in words, for those who do not see it.
    pub summary: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<Target>,
    /// Ascending.
    pub(crate) xs: Vec<f64>,
    pub(crate) lines: Vec<Line>,
}

/// A line across the chart at the latency target.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Target {
    /// Whether the target is a value of the y axis.
    pub(crate) up: bool,
    pub(crate) value: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) log: bool,
    pub(crate) percent: bool,
    /// Of the values 0, 1, 2 …, where they are no numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) names: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Whose line it is: an index of the page's systems, where it is one's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<usize>,
    #[serde(flatten)]
    pub(crate) style: LineStyle,
    /// Whether each value is marked: they are few, and what lies between them is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) points: bool,
    pub(crate) ys: Vec<Option<f64>>,
    /// Of each value, the least and the most that it is the mean of; empty where no value is one of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) spans: Vec<Option<[f64; 2]>>,
}

/// How a line is told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LineStyle {
    /// Systems have colours, an index of the page's palette …
    pub(crate) color: usize,
    /// … and the machines strokes.
    #[serde(skip_serializing_if = "Stroke::is_solid")]
    pub(crate) stroke: Stroke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stroke {
    Solid,
    /// What was executed, beside what was simulated.
    Dashed,
    /// Systems whose colour is another's too.
    Dotted,
    /// Likewise.
    Mixed,
    /// Points of which none follows another.
    None,
}

impl Stroke {
    fn is_solid(&self) -> bool {
        *self == Stroke::Solid
    }
}

impl LineStyle {
    /// Of the line number `index` among lines that one thing tells apart.
    pub(crate) fn nth(index: usize) -> LineStyle {
        let stroke = match index / COLORS % 3 {
            0 => Stroke::Solid,
            1 => Stroke::Dotted,
            _ => Stroke::Mixed,
        };
        LineStyle {
            color: index % COLORS,
            stroke,
        }
    }

    pub(crate) fn dashed(self) -> LineStyle {
        LineStyle {
            stroke: Stroke::Dashed,
            ..self
        }
    }
}

impl Chart {
    /// A chart with one view.
    pub(super) fn single(id: impl Into<String>, title: impl Into<String>, caption: &'static str, view: View) -> Chart {
        Chart {
            id: id.into(),
            title: title.into(),
            caption,
            choices: Vec::new(),
            views: vec![view],
        }
    }

    /// A chart with a view for each sweep point; nothing where no point has anything to show.
    pub(super) fn at_points(
        id: impl Into<String>,
        title: impl Into<String>,
        caption: &'static str,
        points: &[String],
        views: Vec<Option<View>>,
    ) -> Option<Chart> {
        if views.iter().all(Option::is_none) {
            return None;
        }
        Some(Chart {
            id: id.into(),
            title: title.into(),
            caption,
            choices: point_choice(points),
            views: views.into_iter().map(|view| view.unwrap_or_else(View::empty)).collect(),
        })
    }
}

/// To four significant digits: finer than any screen.
pub(super) fn coarse(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a formatted float is a float")
}

/// What several lines show, in words; of many lines, the first.
pub(super) fn words(each: impl Iterator<Item = String>) -> String {
    const MOST: usize = 8;
    let mut each: Vec<String> = each.collect();
    let more = each.len().saturating_sub(MOST);
    each.truncate(MOST);
    if more > 0 {
        each.push(format!("and {more} more lines"));
    }
    each.join("; ")
}

/// The page's choice of a sweep point, where there are several.
pub(super) fn point_choice(points: &[String]) -> Vec<Choice> {
    match points.len() {
        0 | 1 => Vec::new(),
        _ => vec![Choice {
            label: "Sweep point".to_owned(),
            options: points.to_vec(),
            point: true,
        }],
    }
}

impl View {
    /// Where there is nothing to draw.
    pub(crate) fn empty() -> View {
        View {
            summary: "Nothing to draw at this choice".to_owned(),
            x: Axis::linear(""),
            y: Axis::linear(""),
            target: None,
            xs: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl Axis {
    pub(crate) fn linear(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            log: false,
            percent: false,
            names: Vec::new(),
        }
    }

    pub(crate) fn log(label: impl Into<String>) -> Axis {
        Axis {
            log: true,
            ..Axis::linear(label)
        }
    }

    pub(crate) fn percent(label: impl Into<String>) -> Axis {
        Axis {
            percent: true,
            ..Axis::linear(label)
        }
    }
}

/// What is set side by side: the systems, the sweep points and the machines of some groups, in the order of their first
/// runs.
#[derive(Debug)]
pub struct Compared<'g, 'a> {
    /// All of them.
    pub groups: &'g [Group<'a>],
    /// Names.
    pub systems: Vec<&'a str>,
    /// As titles; one, empty, without a sweep.
    pub points: Vec<String>,
    /// By what groups call it, a point's place among these.
    places: HashMap<String, usize>,
    /// By point: its groups.
    at: Vec<Vec<&'g Group<'a>>>,
    one_machine: bool,
}

/// The target of all groups that have one, where it is the same.
pub(super) fn one_target<'g, 'a: 'g>(groups: impl Iterator<Item = &'g Group<'a>>) -> Option<&'a SloSummary> {
    let mut targets = groups.filter_map(|group| group.runs[0].summary.slo.as_ref());
    let first = targets.next()?;
    targets.all(|slo| slo.same_target(first)).then_some(first)
}

impl<'g, 'a> Compared<'g, 'a> {
    /// Of all groups of a page.
    pub fn new(groups: &'g [Group<'a>]) -> Compared<'g, 'a> {
        let mut systems: Vec<&str> = Vec::new();
        let mut points: Vec<String> = Vec::new();
        let (mut places, mut at) = (HashMap::new(), Vec::<Vec<&Group<'_>>>::new());
        for group in groups {
            if !systems.contains(&group.system()) {
                systems.push(group.system());
            }
            let place = *places.entry(group.point()).or_insert_with_key(|point| {
                points.push(point.clone());
                at.push(Vec::new());
                points.len() - 1
            });
            at[place].push(group);
        }
        // Beside a sweep, a run of another folder needs a name for where it stands.
        if points.len() > 1 {
            points.iter_mut().filter(|point| point.is_empty()).for_each(|point| *point = APART.to_owned());
        }
        Compared {
            groups,
            systems,
            points,
            places,
            at,
            one_machine: groups.iter().all(|group| group.machine() == groups[0].machine()),
        }
    }

    /// Whose a group is: an index of the systems.
    pub fn system(&self, group: &Group<'_>) -> usize {
        let found = self.systems.iter().position(|system| *system == group.system());
        found.expect("the group is one of those compared")
    }

    /// Where a group stands in the sweep: an index of the points.
    pub fn point(&self, group: &Group<'_>) -> usize {
        let found = self.places.get(&group.point());
        *found.expect("the group is one of those compared")
    }

    /// The groups at a sweep point.
    pub(super) fn all_at(&self, point: usize) -> impl Iterator<Item = &'g Group<'a>> {
        self.at[point].iter().copied()
    }

    /// Those of them that can be drawn together.
    pub(super) fn at(&self, point: usize) -> impl Iterator<Item = &'g Group<'a>> {
        self.all_at(point).take(MAX_LINES)
    }

    /// A system on its machine, for a legend.
    pub(super) fn name(&self, group: &Group<'_>) -> String {
        match self.one_machine {
            true => group.system().to_owned(),
            false => format!("{}, {}", group.system(), group.place()),
        }
    }

    pub(super) fn line(&self, group: &Group<'_>, ys: Vec<Option<f64>>) -> Line {
        let system = self.system(group);
        let style = LineStyle::nth(system);
        Line {
            name: self.name(group),
            system: Some(system),
            style: match !self.one_machine && !group.is_virtual() {
                true => style.dashed(),
                false => style,
            },
            points: false,
            ys,
            spans: Vec::new(),
        }
    }

    /// Points of a line, the fewer the more lines the page holds, so that it stays light.
    pub(super) fn points_of_a_line(&self) -> usize {
        (40_000 / self.groups.len().max(1)).clamp(48, 200)
    }

    /// Which lines charts show where they leave some out: `first 24 of 30 lines`.
    pub fn limit(&self) -> Option<String> {
        let most = self.at.iter().map(Vec::len).max().unwrap_or(0);
        (most > MAX_LINES).then(|| format!("first {MAX_LINES} of {most} lines"))
    }
}
