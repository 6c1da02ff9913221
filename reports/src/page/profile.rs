//! The page of `profile show --report`: what a profile holds, where it comes from, and its costs as curves.
//!
//! It takes lines and cells ready made: this crate does not know what a profile is.

use minijinja::value::Serde;
use serde::Serialize;

use super::charts::Chart;
use super::costs::{Curves, chart};
use super::{environment, style};
use crate::error::ReportError;
use crate::manifest::Manifest;

/// A page on a profile.
#[derive(Clone, Copy, Debug)]
pub struct ProfilePage<'a> {
    /// The card's name.
    pub title: &'a str,
    /// What it is, each with a name.
    pub facts: &'a [(&'static str, String)],
    /// The columns of the table of tables; the first is text, as are the first `text_columns`.
    pub header: &'a [&'static str],
    /// So many columns are text, the rest figures.
    pub text_columns: usize,
    /// A row each table.
    pub rows: &'a [Vec<String>],
    /// What is drawn.
    pub charts: &'a [Curves],
    /// Where it comes from.
    pub manifest: &'a Manifest,
}

#[derive(Serialize)]
struct Content<'a> {
    title: &'a str,
    facts: &'a [(&'static str, String)],
    header: &'a [&'static str],
    text_columns: usize,
    rows: &'a [Vec<String>],
    charts: &'a [Chart],
    chart_data: &'a [Chart],
    manifest: &'a Manifest,
    #[serde(flatten)]
    style: super::Style,
}

impl ProfilePage<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// Only when the template is broken.
    pub fn render(&self) -> Result<String, ReportError> {
        let charts: Vec<Chart> = self.charts.iter().filter_map(chart).collect();
        let content = Content {
            title: self.title,
            facts: self.facts,
            header: self.header,
            text_columns: self.text_columns,
            rows: self.rows,
            charts: &charts,
            chart_data: &charts,
            manifest: self.manifest,
            style: style(),
        };
        Ok(environment()?.get_template("profile.html")?.render(Serde(content))?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{CurvesView, Mark, Series};
    use super::*;

    #[test]
    fn a_page_holds_its_cells_escaped_and_its_lines() {
        let charts = [Curves {
            id: "layer",
            title: "Layer",
            caption: "Lower is faster.",
            x: "Tokens",
            y: "ms",
            choice: "Model",
            views: vec![CurvesView {
                option: "</script>".into(),
                series: vec![Series {
                    name: "</script>".into(),
                    mark: Mark::Line,
                    points: vec![(1.0, 1.0), (4.0, 4.0)],
                }],
            }],
        }];
        let page = ProfilePage {
            title: "a <b>",
            facts: &[("Device", "one & only".into())],
            header: &["Family", "Points"],
            text_columns: 1,
            rows: &[vec!["copy".into(), "12".into()]],
            charts: &charts,
            manifest: &Manifest::default(),
        };
        let html = page.render().unwrap();
        assert!(html.contains("a &lt;b&gt;") && html.contains("one &amp; only"));
        assert!(html.contains("<td class=\"figure\">12</td>"));
        let data = html.split("id=\"chart-data\">").nth(1).unwrap().split("</script>").next().unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data[0]["views"][0]["lines"][0]["ys"], serde_json::json!([1.0, 4.0]));
        assert!(!html.contains("http://") && !html.contains("src=\"http"));
    }
}
