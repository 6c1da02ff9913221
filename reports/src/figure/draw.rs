//! One figure on a drawing area. `dots` is how many pixels a unit of the figure has.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::axis::Scaled;
use crate::page::charts::{COLORS, Line, Stroke, View};
use crate::page::gantt::{CATEGORIES, GanttView};

type Area<DB> = DrawingArea<DB, Shift>;
type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// As in the page's light theme; the last is for what is no system.
const PALETTE: [RGBColor; COLORS + 1] = [
    RGBColor(0x0b, 0x66, 0xc3),
    RGBColor(0xc2, 0x41, 0x0c),
    RGBColor(0x0f, 0x7b, 0x62),
    RGBColor(0x8b, 0x3f, 0xb8),
    RGBColor(0x8a, 0x65, 0x00),
    RGBColor(0xb0, 0x1e, 0x5e),
    RGBColor(0x4b, 0x5f, 0xcf),
    RGBColor(0x3f, 0x7a, 0x1c),
    RGBColor(0x7a, 0x84, 0x94),
];
/// Of the kinds of work, in their order.
const KINDS: [RGBColor; CATEGORIES.len()] = [PALETTE[2], PALETTE[1], PALETTE[3], PALETTE[8]];
const TEXT: RGBColor = RGBColor(0x1b, 0x24, 0x30);
const GRID: RGBColor = RGBColor(0xdd, 0xe2, 0xe8);
const TARGET: RGBColor = RGBColor(0xb3, 0x26, 0x1e);

/// Names in a row of the legend.
const NAMES_A_ROW: usize = 3;
/// Ops of a figure: more would be hairlines.
const OPS: usize = 60;

/// Lines over shared x values.
pub fn lines<DB: DrawingBackend>(area: &Area<DB>, dots: u32, title: &str, view: &View) -> Drawn<DB> {
    let px = |units: u32| units * dots;
    let names: Vec<(&str, ShapeStyle, Stroke)> = view
        .lines
        .iter()
        .map(|line| (line.name.as_str(), style(line, dots), line.style.stroke))
        .collect();
    let plot = with_legend(area, dots, &names)?;
    let values: Vec<f64> = view
        .lines
        .iter()
        .flat_map(|line| line.ys.iter().flatten().chain(line.spans.iter().flatten().flatten()))
        .copied()
        .collect();
    let x = Scaled::across(&view.x, &view.xs, view.lines.iter().any(|line| line.points));
    let up: Vec<f64> = match view.target {
        // A target far above would press all lines to the bottom.
        Some(target) if target.up && values.iter().any(|value| value * 4.0 > target.value) => {
            values.iter().copied().chain([target.value]).collect()
        }
        _ => values,
    };
    let y = Scaled::up(&view.y, &up);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, ("sans-serif", px(18)).into_font().color(&TEXT))
        .margin(px(12))
        .x_label_area_size(px(46))
        .y_label_area_size(px(72))
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .bold_line_style(GRID.stroke_width(dots))
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT.stroke_width(dots))
        .label_style(("sans-serif", px(13)).into_font().color(&TEXT))
        .axis_desc_style(("sans-serif", px(14)).into_font().color(&TEXT))
        .x_labels(x.marks.len().max(1))
        .y_labels(y.marks.len().max(1))
        .x_desc(view.x.label.as_str())
        .y_desc(view.y.label.as_str())
        .draw()?;
    for line in &view.lines {
        let places: Vec<Option<(f64, f64)>> = view
            .xs
            .iter()
            .zip(&line.ys)
            .map(|(&at, figure)| Some((x.place(at), y.place((*figure)?))))
            .map(|place| place.filter(|(x, y)| x.is_finite() && y.is_finite()))
            .collect();
        let style = style(line, dots);
        // Where points are marked, the line goes on over a gap; elsewhere a gap is one, and a value between two is a
        // point.
        let parts: Vec<Vec<(f64, f64)>> = match line.points {
            true => vec![places.iter().flatten().copied().collect()],
            false => places.split(Option::is_none).map(|part| part.iter().flatten().copied().collect()).collect(),
        };
        for part in parts.into_iter().filter(|part| part.len() > 1) {
            match dash(line.style.stroke) {
                Dash::None => {}
                Dash::Solid => drop(chart.draw_series(LineSeries::new(part, style))?),
                Dash::Gaps(length, gap) => {
                    chart.draw_series(DashedLineSeries::new(part, px(length), px(gap), style))?;
                }
            }
        }
        let radius = px(if line.points { 3 } else { 2 });
        let marks: Vec<(f64, f64)> = match line.points {
            true => places.iter().flatten().copied().collect(),
            false => places
                .split(Option::is_none)
                .filter_map(|part| if let [Some(alone)] = part { Some(*alone) } else { None })
                .collect(),
        };
        chart.draw_series(marks.into_iter().map(|place| Circle::new(place, radius, style.filled())))?;
        let spans = view.xs.iter().zip(&line.spans).filter_map(|(&at, span)| {
            let ends = (*span)?.map(|end| (x.place(at), y.place(end)));
            ends.iter().all(|(_, end)| end.is_finite()).then_some(ends)
        });
        for ends in spans {
            chart.draw_series(LineSeries::new(ends, style.stroke_width(dots)))?;
        }
    }
    if let Some(target) = view.target {
        let ends = match target.up {
            true => [(x.ends.0, y.place(target.value)), (x.ends.1, y.place(target.value))],
            false => [(x.place(target.value), y.ends.0), (x.place(target.value), y.ends.1)],
        };
        let within = ends
            .iter()
            .all(|at| (x.ends.0..=x.ends.1).contains(&at.0) && (y.ends.0..=y.ends.1).contains(&at.1));
        if within {
            chart.draw_series(LineSeries::new(ends, TARGET.stroke_width(dots)))?;
            let text = format!("target {} ms", crate::human::number(target.value));
            let font = ("sans-serif", px(12)).into_font().color(&TARGET);
            // Above a line across, and beside the top of one upwards, away from the axis' numbers.
            let at = if target.up { ends[0] } else { ends[1] };
            chart.draw_series([Text::new(text, at, font)])?;
        }
    }
    Ok(())
}

/// Ops on their lanes.
pub fn lanes<DB: DrawingBackend>(area: &Area<DB>, dots: u32, title: &str, view: &GanttView) -> Drawn<DB> {
    let px = |units: u32| units * dots;
    let used = CATEGORIES.iter().enumerate().filter(|(index, _)| view.ops.iter().any(|op| op.2 == *index));
    let names: Vec<(&str, ShapeStyle, Stroke)> =
        used.map(|(index, name)| (*name, KINDS[index].stroke_width(px(8)), Stroke::Solid)).collect();
    let plot = with_legend(area, dots, &names)?;
    let ops = &view.ops[..view.ops.len().min(OPS)];
    let lanes = view.lanes.len();
    let start = ops.iter().map(|op| op.3).fold(f64::INFINITY, f64::min) / 1e3;
    // Where ops are left out, as far as all is known.
    let end = match (ops.len() < view.ops.len(), view.until) {
        (true, _) => ops.iter().map(|op| op.3).fold(0.0, f64::max),
        (false, Some(until)) => until,
        (false, None) => ops.iter().map(|op| op.3 + op.4).fold(0.0, f64::max),
    } / 1e3;
    let time = Scaled::across(&crate::page::charts::Axis::linear(""), &[start, end], true);
    let row = |lane: usize| (lanes - lane) as f64 - 0.5;
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, ("sans-serif", px(18)).into_font().color(&TEXT))
        .margin(px(12))
        .x_label_area_size(px(46))
        .y_label_area_size(px(130))
        .build_cartesian_2d(time.clone(), Scaled::rows(&view.lanes))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(GRID.stroke_width(dots))
        .light_line_style(TRANSPARENT)
        .axis_style(TEXT.stroke_width(dots))
        .label_style(("sans-serif", px(13)).into_font().color(&TEXT))
        .axis_desc_style(("sans-serif", px(14)).into_font().color(&TEXT))
        .x_labels(time.marks.len().max(1))
        .y_labels(lanes)
        .x_desc("Time since the start in ms")
        .draw()?;
    let bars = ops.iter().map(|&(lane, _, kind, from, took, _)| {
        let ended = ((from + took) / 1e3).min(end);
        let corners = [(from / 1e3, row(lane) - 0.35), (ended, row(lane) + 0.35)];
        Rectangle::new(corners, KINDS[kind].filled())
    });
    chart.draw_series(bars)?;
    Ok(())
}

/// Whitens the area, writes the legend at its foot, and leaves the rest to the plot.
fn with_legend<DB: DrawingBackend>(
    area: &Area<DB>,
    dots: u32,
    names: &[(&str, ShapeStyle, Stroke)],
) -> Result<Area<DB>, DrawingAreaErrorKind<DB::ErrorType>> {
    let px = |units: u32| (units * dots) as i32;
    area.fill(&WHITE)?;
    let (width, height) = area.dim_in_pixel();
    let rows = names.len().div_ceil(NAMES_A_ROW) as u32;
    let (plot, legend) = area.split_vertically(height - (rows * 20 + 12) * dots);
    let font = ("sans-serif", 13 * dots).into_font().color(&TEXT);
    let column = (width as i32 - px(84)) / NAMES_A_ROW as i32;
    for (index, (name, style, stroke)) in names.iter().enumerate() {
        let x = px(76) + column * (index % NAMES_A_ROW) as i32;
        let y = px(10) + px(20) * (index / NAMES_A_ROW) as i32;
        let key = [(x, y), (x + px(26), y)];
        match dash(*stroke) {
            Dash::None => legend.draw(&Circle::new((x + px(13), y), px(3), style.filled()))?,
            Dash::Solid => legend.draw(&PathElement::new(key, *style))?,
            Dash::Gaps(length, gap) => {
                // The library's dashes want a series.
                let step = px(length + gap);
                let dashes = (0..px(26) / step.max(1) + 1).map(|i| x + i * step);
                for from in dashes.filter(|from| *from < x + px(26)) {
                    let to = (from + px(length)).min(x + px(26));
                    legend.draw(&PathElement::new([(from, y), (to, y)], *style))?;
                }
            }
        }
        let name = shortened(&legend, name, &font, (column - px(42)) as u32)?;
        legend.draw(&Text::new(name, (x + px(34), y - px(6)), font.clone()))?;
    }
    Ok(plot)
}

/// A name that is at most so wide, in pixels: its middle gives way to an ellipsis, since names that begin alike differ
/// at their ends.
fn shortened<DB: DrawingBackend>(
    area: &Area<DB>,
    name: &str,
    font: &TextStyle<'_>,
    room: u32,
) -> Result<String, DrawingAreaErrorKind<DB::ErrorType>> {
    let mut shown = name.to_owned();
    let mut kept = name.chars().count();
    while kept > 0 && area.estimate_text_size(&shown, font)?.0 > room {
        kept -= 1;
        let (first, last) = (kept.div_ceil(2), kept / 2);
        let end = name.chars().skip(name.chars().count() - last);
        shown = name.chars().take(first).chain(['…']).chain(end).collect();
    }
    Ok(shown)
}

enum Dash {
    None,
    Solid,
    /// Length and gap, in units of the figure.
    Gaps(u32, u32),
}

fn dash(stroke: Stroke) -> Dash {
    match stroke {
        Stroke::None => Dash::None,
        Stroke::Solid => Dash::Solid,
        Stroke::Dashed => Dash::Gaps(9, 5),
        Stroke::Dotted => Dash::Gaps(3, 3),
        Stroke::Mixed => Dash::Gaps(14, 3),
    }
}

fn style(line: &Line, dots: u32) -> ShapeStyle {
    PALETTE[line.style.color].stroke_width(2 * dots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_the_page() {
        let css = include_str!("../../templates/report.css");
        let light = css.split("[data-theme").next().unwrap();
        for (index, RGBColor(r, g, b)) in PALETTE.iter().enumerate() {
            assert!(
                light.contains(&format!("--c{index}: #{r:02x}{g:02x}{b:02x}")),
                "{index}"
            );
        }
    }
}
