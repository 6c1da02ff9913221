//! The page of `profile compare --report`: what one card takes over what another does, family by family and table by
//! table.
//!
//! It takes ratios and cells ready made: this crate does not know what a profile is.

use minijinja::value::Serde;
use serde::Serialize;

use super::charts::{Axis, Chart, Choice, GREY, Line, LineStyle, Stroke, View, coarse, words};
use super::{environment, style};
use crate::error::ReportError;
use crate::human;
use crate::manifest::Manifest;

/// A page on two profiles.
#[derive(Clone, Copy, Debug)]
pub struct RatiosPage<'a> {
    /// Which two.
    pub title: &'a str,
    /// What they are, each with a name.
    pub facts: &'a [(&'static str, String)],
    /// The columns of the table of ratios.
    pub header: &'a [&'static str],
    /// So many columns are text, the rest figures.
    pub text_columns: usize,
    /// A row each family and table.
    pub rows: &'a [Vec<String>],
    /// How to read the columns, below them.
    pub note: &'a str,
    /// What is drawn: groups of ratios, of which a reader sees one at a time.
    pub groups: &'a [RatioGroup],
    /// Where it comes from.
    pub manifest: &'a Manifest,
}

/// Ratios that are seen together.
#[derive(Clone, Debug)]
pub struct RatioGroup {
    /// By which it is chosen.
    pub option: String,
    /// What its names are of, along the bottom.
    pub across: &'static str,
    /// At least one.
    pub ratios: Vec<NamedRatios>,
}

/// How the ratios of what two cards take are spread over some points: positive numbers.
#[derive(Clone, Debug)]
pub struct NamedRatios {
    /// Of what.
    pub name: String,
    /// 5 % of the points have no larger one.
    pub p05: f64,
    /// Half of the points.
    pub median: f64,
    /// 95 % of the points.
    pub p95: f64,
}

#[derive(Serialize)]
struct Content<'a> {
    title: &'a str,
    facts: &'a [(&'static str, String)],
    header: &'a [&'static str],
    text_columns: usize,
    rows: &'a [Vec<String>],
    note: &'a str,
    charts: &'a [Chart],
    chart_data: &'a [Chart],
    manifest: &'a Manifest,
    #[serde(flatten)]
    style: super::Style,
}

impl RatiosPage<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// Only when the template is broken.
    pub fn render(&self) -> Result<String, ReportError> {
        let charts: Vec<Chart> = chart(self.groups).into_iter().collect();
        let content = Content {
            title: self.title,
            facts: self.facts,
            header: self.header,
            text_columns: self.text_columns,
            rows: self.rows,
            note: self.note,
            charts: &charts,
            chart_data: &charts,
            manifest: self.manifest,
            style: style(),
        };
        Ok(environment()?.get_template("ratios.html")?.render(Serde(content))?)
    }
}

/// None where nothing is compared.
fn chart(groups: &[RatioGroup]) -> Option<Chart> {
    let choices = match groups.len() {
        0 => return None,
        1 => Vec::new(),
        _ => vec![Choice {
            label: "Tables of".to_owned(),
            options: groups.iter().map(|group| group.option.clone()).collect(),
            point: false,
        }],
    };
    Some(Chart {
        id: "ratios".to_owned(),
        title: "Second over first".to_owned(),
        caption: "What the second card takes over what the first does (up), at the points of each (across): below 1 \
                  the second is faster. Between p5 and p95 lie nine tenths of the points.",
        choices,
        views: groups.iter().map(view).collect(),
    })
}

fn view(RatioGroup { across, ratios, .. }: &RatioGroup) -> View {
    let line = |name: &str, color: usize, of: fn(&NamedRatios) -> f64| Line {
        name: name.to_owned(),
        system: None,
        style: LineStyle {
            color,
            stroke: Stroke::None,
        },
        points: true,
        ys: ratios.iter().map(|ratios| Some(coarse(of(ratios)))).collect(),
        spans: Vec::new(),
    };
    let alike = Line {
        name: "as fast".to_owned(),
        system: None,
        style: LineStyle {
            color: GREY,
            stroke: Stroke::Solid,
        },
        points: false,
        ys: vec![Some(1.0); ratios.len()],
        spans: Vec::new(),
    };
    let in_words = ratios.iter().map(|ratios| {
        let [p05, median, p95] = [ratios.p05, ratios.median, ratios.p95].map(human::number);
        format!("{}: {median}, from {p05} to {p95}", ratios.name)
    });
    View {
        summary: words(in_words),
        x: Axis {
            names: ratios.iter().map(|ratios| ratios.name.clone()).collect(),
            ..Axis::linear(*across)
        },
        y: Axis::log("second / first"),
        target: None,
        xs: (0..ratios.len()).map(|index| index as f64).collect(),
        lines: vec![
            line("p95", 1, |ratios| ratios.p95),
            line("median", 0, |ratios| ratios.median),
            line("p5", 2, |ratios| ratios.p05),
            alike,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(option: &str, names: &[&str]) -> RatioGroup {
        let ratios = names.iter().map(|name| NamedRatios {
            name: (*name).into(),
            p05: 0.5,
            median: 1.25,
            p95: 2.0,
        });
        RatioGroup {
            option: option.into(),
            across: "Table",
            ratios: ratios.collect(),
        }
    }

    #[test]
    fn each_group_is_a_view_of_its_names() {
        let drawn = chart(&[group("all", &["copy", "head"]), group("copy", &["pinned"])]).unwrap();
        assert_eq!(drawn.choices[0].options, ["all", "copy"]);
        assert_eq!(drawn.views[0].x.names, ["copy", "head"]);
        let median = &drawn.views[0].lines[1];
        assert_eq!(median.ys, [Some(1.25), Some(1.25)]);
        assert_eq!(drawn.views[1].xs, [0.0]);
    }

    #[test]
    fn a_page_says_that_nothing_is_in_common() {
        let page = |groups: &[RatioGroup], rows: &[Vec<String>]| {
            let page = RatiosPage {
                title: "a <b>",
                facts: &[("First", "one & only".into())],
                header: &["Family", "Points"],
                text_columns: 1,
                rows,
                note: "Drift is how far.",
                groups,
                manifest: &Manifest::default(),
            };
            page.render().unwrap()
        };
        let html = page(&[group("all", &["copy"])], &[vec!["copy".into(), "12".into()]]);
        assert!(html.contains("a &lt;b&gt;") && html.contains("<td class=\"figure\">12</td>"));
        assert!(html.contains("id=\"chart-ratios\"") && html.contains("Drift is how far."));
        let nothing = page(&[], &[]);
        assert!(nothing.contains("no table in common") && !nothing.contains("chart-ratios"));
    }
}
