//! The page of `profile show --report`: what a profile holds, where it comes from, and its costs as curves.
//!
//! It takes lines and cells ready made: this crate does not know what a profile is.

use std::collections::BTreeSet;

use minijinja::value::Serde;
use serde::Serialize;

use super::charts::{Axis, Chart, Line, LineStyle, MAX_LINES, View};
use super::{environment, style};
use crate::error::ReportError;
use crate::human;
use crate::manifest::Manifest;
use crate::summary::rounded;

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

/// Lines over positive numbers, both axes logarithmic.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Of its element in the page.
    pub id: &'static str,
    /// Above it.
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub caption: &'static str,
    /// Along the bottom.
    pub x: &'static str,
    /// Up the side.
    pub y: &'static str,
    /// A name, and points of ascending x.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
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

/// None where there is nothing to draw: a line needs two points.
pub(super) fn chart(curves: &Curves) -> Option<Chart> {
    let lines: Vec<_> = curves
        .lines
        .iter()
        .filter(|(_, points)| points.len() > 1)
        .take(MAX_LINES)
        .collect();
    // Positive floats are ordered as their bits are.
    let xs: BTreeSet<u64> = lines
        .iter()
        .flat_map(|(_, points)| points.iter().map(|(x, _)| x.to_bits()))
        .collect();
    let xs: Vec<f64> = xs.into_iter().map(f64::from_bits).collect();
    if xs.len() < 2 {
        return None;
    }
    let in_words = lines.iter().map(|(name, points)| {
        let [first, last] = [points[0], points[points.len() - 1]];
        let [x0, y0, x1, y1] = [first.0, first.1, last.0, last.1].map(human::number);
        format!("{name}: from {y0} at {x0} to {y1} at {x1}")
    });
    let line = |index: usize, name: &str, points: &[(f64, f64)]| Line {
        name: name.to_owned(),
        system: None,
        style: LineStyle::nth(index),
        points: false,
        ys: xs.iter().map(|x| at(points, *x).map(rounded)).collect(),
    };
    let drawn = lines.iter().enumerate();
    Some(Chart::single(
        curves.id.to_owned(),
        curves.title,
        curves.caption,
        View {
            summary: in_words.collect::<Vec<_>>().join("; "),
            x: Axis::log(curves.x),
            y: Axis::log(curves.y),
            target: None,
            lines: drawn.map(|(index, (name, points))| line(index, name, points)).collect(),
            xs,
        },
    ))
}

/// The line at `x`: through its points as a power between two of them, nothing beyond.
fn at(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|point| point.0 < x);
    let found = points.get(after)?;
    if found.0 == x {
        return Some(found.1);
    }
    let before = points[after.checked_sub(1)?];
    let part = (x / before.0).ln() / (found.0 / before.0).ln();
    Some(before.1 * (found.1 / before.1).powf(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(lines: Vec<(String, Vec<(f64, f64)>)>) -> Curves {
        Curves {
            id: "layer",
            title: "Layer",
            caption: "Lower is faster.",
            x: "Tokens",
            y: "ms",
            lines,
        }
    }

    #[test]
    fn a_page_holds_its_cells_escaped_and_its_lines() {
        let charts = [curves(vec![
            ("batch 1".into(), vec![(1.0, 1.0), (4.0, 4.0)]),
            ("</script>".into(), vec![(2.0, 8.0), (8.0, 8.0)]),
        ])];
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
        let data = html
            .split("id=\"chart-data\">")
            .nth(1)
            .unwrap()
            .split("</script>")
            .next()
            .unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data[0]["views"][0]["xs"], serde_json::json!([1.0, 2.0, 4.0, 8.0]));
        // Between its points a line goes on, beyond them it does not.
        assert_eq!(
            data[0]["views"][0]["lines"][0]["ys"],
            serde_json::json!([1.0, 2.0, 4.0, null])
        );
        assert!(!html.contains("http://") && !html.contains("src=\"http"));
    }

    #[test]
    fn single_points_are_not_drawn() {
        assert!(chart(&curves(vec![("one".into(), vec![(1.0, 1.0)])])).is_none());
        assert!(chart(&curves(Vec::new())).is_none());
    }
}
