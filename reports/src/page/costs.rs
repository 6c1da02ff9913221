//! The charts of a profile: costs over sizes, both axes logarithmic, a view for each table that the reader chooses
//! between.

use super::charts::{Axis, Chart, Choice, GREY, Line, LineStyle, MAX_LINES, Stroke, View, coarse, words};
use crate::human;

/// A chart of positive numbers, both axes logarithmic. What has nothing to draw is left out by the page.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Of its element in the page.
    pub id: &'static str,
    /// Above it.
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub caption: &'static str,
    /// Along the bottom, with its unit.
    pub x: &'static str,
    /// Up the side, with its unit.
    pub y: &'static str,
    /// Before the choice between its views, where there are several.
    pub choice: &'static str,
    /// What the reader chooses between.
    pub views: Vec<CurvesView>,
}

/// What is seen of such a chart at a time.
#[derive(Clone, Debug)]
pub struct CurvesView {
    /// By which it is chosen; part of the title where there is no other.
    pub option: String,
    /// All of it.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// How they are drawn.
    pub mark: Mark,
    /// Of ascending x; of equal x among [`Mark::Points`] alone.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line through two points or more.
    Line,
    /// Each for itself.
    Points,
    /// A grey line, which bounds the others.
    Bound,
}

impl Series {
    fn is_drawn(&self) -> bool {
        match self.mark {
            Mark::Points => !self.points.is_empty(),
            Mark::Line | Mark::Bound => self.points.len() > 1,
        }
    }

    fn style(&self, index: usize) -> LineStyle {
        let LineStyle { color, stroke } = LineStyle::nth(index);
        match self.mark {
            Mark::Line => LineStyle { color, stroke },
            Mark::Points => LineStyle {
                color,
                stroke: Stroke::None,
            },
            Mark::Bound => LineStyle {
                color: GREY,
                stroke: Stroke::Solid,
            },
        }
    }

    /// At each place: the points themselves at their own, a line at all that it spans.
    fn ys(&self, index: usize, places: &[Place]) -> Vec<Option<f64>> {
        let y = |place: &Place| match self.mark {
            Mark::Points => place.point.filter(|(of, _)| *of == index).map(|(_, y)| y),
            Mark::Line | Mark::Bound => at(&self.points, place.x),
        };
        places.iter().map(|place| y(place).map(coarse)).collect()
    }

    fn in_words(&self) -> String {
        let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = match self.mark {
            Mark::Points => [self.points.iter().min_by(by_y), self.points.iter().max_by(by_y)],
            Mark::Line | Mark::Bound => [self.points.first(), self.points.last()],
        };
        let ends = ends.map(|end| end.expect("what is drawn has points"));
        let [x0, y0, x1, y1] = [ends[0].0, ends[0].1, ends[1].0, ends[1].1].map(human::number);
        format!("{}: from {y0} at {x0} to {y1} at {x1}", self.name)
    }
}

/// A value of the x axis, and whose point lies there: points of equal x have a place each.
struct Place {
    x: f64,
    point: Option<(usize, f64)>,
}

/// None where there is nothing to draw.
pub(super) fn chart(curves: &Curves) -> Option<Chart> {
    let drawn = curves.views.iter().filter_map(|each| Some((each.option.clone(), view(curves, each)?)));
    let (mut options, views): (Vec<String>, Vec<View>) = drawn.unzip();
    let (title, choices) = match options.len() {
        0 => return None,
        1 if options[0].is_empty() => (curves.title.to_owned(), Vec::new()),
        1 => (format!("{}: {}", curves.title, options.remove(0)), Vec::new()),
        _ => (
            curves.title.to_owned(),
            vec![Choice {
                label: curves.choice.to_owned(),
                options,
                point: false,
            }],
        ),
    };
    Some(Chart {
        id: curves.id.to_owned(),
        title,
        caption: curves.caption,
        choices,
        views,
    })
}

fn view(curves: &Curves, view: &CurvesView) -> Option<View> {
    let series = view.series.iter().filter(|series| series.is_drawn());
    let series: Vec<&Series> = series.take(MAX_LINES).collect();
    // A bound alone bounds nothing.
    if series.iter().all(|series| series.mark == Mark::Bound) {
        return None;
    }
    let places = places(&series);
    let lines = series.iter().enumerate().map(|(index, series)| Line {
        name: series.name.clone(),
        system: None,
        style: series.style(index),
        points: series.mark == Mark::Points,
        ys: series.ys(index, &places),
        spans: Vec::new(),
    });
    Some(View {
        summary: words(series.iter().map(|series| series.in_words())),
        x: Axis::log(curves.x),
        y: Axis::log(curves.y),
        target: None,
        lines: lines.collect(),
        xs: places.iter().map(|place| place.x).collect(),
    })
}

fn places(series: &[&Series]) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for (index, series) in series.iter().enumerate() {
        places.extend(series.points.iter().map(|&(x, y)| Place {
            x,
            point: (series.mark == Mark::Points).then_some((index, y)),
        }));
    }
    places.sort_by(|a, b| a.x.total_cmp(&b.x));
    // Lines share their places.
    places.dedup_by(|next, kept| next.x == kept.x && next.point.is_none() && kept.point.is_none());
    places
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

    fn series(name: &str, mark: Mark, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            mark,
            points: points.to_vec(),
        }
    }

    fn curves(views: Vec<(&str, Vec<Series>)>) -> Curves {
        let view = |(option, series): (&str, Vec<Series>)| CurvesView {
            option: option.into(),
            series,
        };
        Curves {
            id: "layer",
            title: "Layer",
            caption: "Lower is faster.",
            x: "Tokens",
            y: "ms",
            choice: "Model",
            views: views.into_iter().map(view).collect(),
        }
    }

    fn ys(chart: &Chart, line: usize) -> &[Option<f64>] {
        &chart.views[0].lines[line].ys
    }

    #[test]
    fn between_its_points_a_line_goes_on_and_points_stand_alone() {
        let drawn = chart(&curves(vec![(
            "",
            vec![
                series("line", Mark::Line, &[(1.0, 1.0), (4.0, 4.0)]),
                series("points", Mark::Points, &[(2.0, 8.0), (2.0, 6.0), (8.0, 8.0)]),
            ],
        )]));
        let drawn = drawn.unwrap();
        assert_eq!(drawn.views[0].xs, [1.0, 2.0, 2.0, 4.0, 8.0]);
        assert_eq!(ys(&drawn, 0), [Some(1.0), Some(2.0), Some(2.0), Some(4.0), None]);
        assert_eq!(ys(&drawn, 1), [None, Some(8.0), Some(6.0), None, Some(8.0)]);
        assert!(drawn.views[0].lines[1].points && drawn.views[0].lines[1].style.stroke == Stroke::None);
    }

    #[test]
    fn a_reader_chooses_between_views_that_have_something() {
        let line = |name: &str| vec![series(name, Mark::Line, &[(1.0, 1.0), (2.0, 2.0)])];
        let one_point = || vec![series("one", Mark::Line, &[(1.0, 1.0)])];
        let two = chart(&curves(vec![("a", line("a")), ("b", one_point()), ("c", line("c"))])).unwrap();
        assert_eq!((two.title.as_str(), two.views.len()), ("Layer", 2));
        assert_eq!(two.choices[0].options, ["a", "c"]);
        let one = chart(&curves(vec![("a", line("a")), ("b", one_point())])).unwrap();
        assert_eq!((one.title.as_str(), one.choices.len()), ("Layer: a", 0));
    }

    #[test]
    fn what_has_nothing_to_draw_is_no_chart() {
        let bound = series("roof", Mark::Bound, &[(1.0, 1.0), (2.0, 2.0)]);
        let one = series("one", Mark::Line, &[(1.0, 1.0)]);
        assert!(chart(&curves(Vec::new())).is_none());
        assert!(chart(&curves(vec![("a", vec![bound.clone(), one])])).is_none());
        let points = series("points", Mark::Points, &[(1.0, 1.0)]);
        assert!(chart(&curves(vec![("a", vec![bound, points])])).is_some());
    }
}
