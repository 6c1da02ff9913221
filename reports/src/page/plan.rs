//! `plan.html`: a plan for people.

use minijinja::value::Serde;
use serde::Serialize;

use super::charts::{Axis, Chart, GREY, Line, LineStyle, Stroke, View, coarse, words};
use super::{environment, style};
use crate::error::ReportError;
use crate::human;
use crate::manifest::Manifest;
use crate::plan::{FrontPoint, PlanReport};

/// A page on a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanPage<'a> {
    /// The plan.
    pub plan: &'a PlanReport,
    /// Where it comes from.
    pub manifest: &'a Manifest,
}

#[derive(Serialize)]
struct Content<'a> {
    plan: &'a PlanReport,
    rows: Vec<Vec<String>>,
    reasons: Vec<&'a str>,
    front: Vec<Vec<String>>,
    effort: String,
    charts: &'a [Chart],
    chart_data: &'a [Chart],
    manifest: &'a Manifest,
    #[serde(flatten)]
    style: super::Style,
}

impl PlanPage<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// Only when the template is broken.
    pub fn render(&self) -> Result<String, ReportError> {
        let plan = self.plan;
        let charts: Vec<Chart> = self.front().into_iter().collect();
        let content = Content {
            plan,
            rows: plan.rows().into_iter().map(verdict_first).collect(),
            reasons: plan.reasons(),
            front: plan.front_rows(),
            effort: plan.effort(),
            charts: &charts,
            chart_data: &charts,
            manifest: self.manifest,
            style: style(),
        };
        Ok(environment()?.get_template("plan.html")?.render(Serde(content))?)
    }

    /// What was run and keeps the target, cost against latency; nothing where nothing keeps it.
    pub(crate) fn front(&self) -> Option<Chart> {
        let plan = self.plan;
        let mut points: Vec<&FrontPoint> = plan.front.iter().collect();
        points.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        let line = |name: &str, on_front: bool, style: LineStyle| Line {
            name: name.to_owned(),
            system: None,
            style,
            points: true,
            ys: points
                .iter()
                .map(|point| (point.on_front == on_front).then(|| coarse(point.latency_ms)))
                .collect(),
            spans: Vec::new(),
        };
        let apart = LineStyle {
            color: GREY,
            stroke: Stroke::None,
        };
        let mut lines = vec![
            line("the front", true, LineStyle::nth(0)),
            line("dearer or slower", false, apart),
        ];
        lines.retain(|line| line.ys.iter().any(Option::is_some));
        if lines.is_empty() {
            return None;
        }
        let on_front = points.iter().filter(|point| point.on_front).map(|point| {
            let FrontPoint { name, card, gpus, .. } = point;
            let [cost, latency] = [human::number(point.cost), human::milliseconds(point.latency_ms)];
            format!("{gpus} of {card} with {name}: {latency} at {cost}")
        });
        Some(Chart::single(
            "front",
            "Cost against latency",
            "What was run and keeps the target by all seeds that judged it; latencies are of the first seed, over the \
             same requests. On the front, nothing else that was run is both cheaper and faster.",
            View {
                summary: words(on_front),
                x: axis(plan.cost_unit.name(), points.iter().map(|point| point.cost)),
                y: axis(
                    &match plan.is_of_parts() {
                        true => format!("whole answers' latency at {}, ms", plan.latency_at),
                        false => format!("latency at {}, ms", plan.latency_at),
                    },
                    points.iter().map(|point| point.latency_ms),
                ),
                target: None,
                xs: points.iter().map(|point| point.cost).collect(),
                lines,
            },
        ))
    }
}

/// Costs and latencies are compared by ratios; what costs nothing has none.
fn axis(label: &str, mut values: impl Iterator<Item = f64>) -> Axis {
    match values.all(|value| value > 0.0) {
        true => Axis::log(label),
        false => Axis::linear(label),
    }
}

/// What came of an option is what a reader looks for beside its name: the last cell becomes the second.
fn verdict_first(mut row: Vec<String>) -> Vec<String> {
    row[1..].rotate_right(1);
    row
}
