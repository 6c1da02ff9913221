//! `plan.html`: a plan for people.

use minijinja::value::Serde;
use serde::Serialize;

use super::charts::Chart;
use super::profile::{Curves, chart};
use super::{environment, style};
use crate::error::ReportError;
use crate::manifest::Manifest;
use crate::plan::PlanReport;

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
        let on_front = plan.front.iter().filter(|point| point.on_front);
        let curves = Curves {
            id: "front",
            title: "Cost against latency",
            caption: "What was run and keeps the target, where nothing else that was run is both cheaper and faster.",
            x: plan.cost_unit.name(),
            y: "latency, ms",
            lines: vec![(
                "the front".to_owned(),
                on_front.map(|point| (point.cost, point.latency_ms)).collect(),
            )],
        };
        let charts: Vec<Chart> = chart(&curves).into_iter().collect();
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
}

/// What came of an option is what a reader looks for beside its name: the last cell becomes the second.
fn verdict_first(mut row: Vec<String>) -> Vec<String> {
    row[1..].rotate_right(1);
    row
}
