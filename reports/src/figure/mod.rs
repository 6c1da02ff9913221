//! The page's charts as files for papers: each as SVG, which scales, and as PNG, which every program takes.
//!
//! Drawn by plotters on white, in the page's colours, with DejaVu Sans. A chart between whose views a reader chooses
//! becomes a file for each, named after the choice: `sweep-p98-ms.svg`.

mod axis;
mod draw;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use tenantry_traces::whole::PREFIX;

use crate::error::ReportError;
use crate::page::charts::{Chart, Choice, View};
use crate::page::gantt::{Gantt, GanttView};
use crate::page::{Page, PlanPage};
use crate::whole::write_whole;

/// Of an SVG, in its own units.
const SIZE: (u32, u32) = (960, 600);
/// Of a PNG: dots for each of those units.
const DOTS: u32 = 2;

/// What is drawn, with its title.
enum Figure<'a> {
    Lines(String, &'a View),
    Lanes(String, &'a GanttView),
}

/// What came of a page's figures.
#[derive(Debug)]
pub struct Figures {
    /// The files that there are now, two of each figure.
    pub files: Vec<PathBuf>,
    /// Figures that were drawn.
    pub drawn: usize,
    /// Figures that there would be; fewer are drawn where somebody stops it.
    pub of: usize,
}

/// Writes all charts of a page into a folder, which is made where it is missing. Once `interrupt` is set it ends with
/// the figure.
///
/// # Errors
/// When a file cannot be written; the error names it.
pub fn write(folder: &Path, page: &Page<'_>, interrupt: &AtomicBool) -> Result<Figures, ReportError> {
    let (charts, gantt) = page.drawn();
    write_all(folder, &charts, gantt.as_ref(), interrupt)
}

/// Likewise of a plan's page: its front, where anything that was run keeps the target.
///
/// # Errors
/// As for [`write()`].
pub fn write_plan(folder: &Path, page: &PlanPage<'_>, interrupt: &AtomicBool) -> Result<Figures, ReportError> {
    write_all(folder, page.front().as_slice(), None, interrupt)
}

fn write_all(
    folder: &Path,
    charts: &[Chart],
    gantt: Option<&Gantt>,
    interrupt: &AtomicBool,
) -> Result<Figures, ReportError> {
    fs::create_dir_all(folder).map_err(|source| ReportError::io(folder, source))?;
    let figures: Vec<_> = charts.iter().flat_map(of_chart).chain(gantt.into_iter().flat_map(of_gantt)).collect();
    let mut written = Figures {
        files: Vec::new(),
        drawn: 0,
        of: figures.len(),
    };
    for (name, figure) in &figures {
        if interrupt.load(Ordering::Relaxed) {
            break;
        }
        write_both(folder, name, figure, &mut written.files)?;
        written.drawn += 1;
    }
    Ok(written)
}

fn of_chart(chart: &Chart) -> impl Iterator<Item = (String, Figure<'_>)> {
    let views = chart.views.iter().enumerate().filter(|(_, view)| !view.xs.is_empty());
    views.map(|(index, view)| {
        let (name, title) = named(&chart.id, &chart.title, &chart.choices, index);
        (name, Figure::Lines(title, view))
    })
}

fn of_gantt(gantt: &Gantt) -> impl Iterator<Item = (String, Figure<'_>)> {
    let views = gantt.views.iter().enumerate().filter(|(_, view)| !view.ops.is_empty());
    views.map(|(index, view)| {
        let (name, title) = named(gantt.id, &gantt.title, &gantt.choices, index);
        (name, Figure::Lanes(title, view))
    })
}

/// The file's name without its ending, and the figure's title, of a chart's view.
fn named(id: &str, title: &str, choices: &[Choice], mut index: usize) -> (String, String) {
    let mut chosen: Vec<&str> = Vec::new();
    for choice in choices.iter().rev() {
        chosen.push(&choice.options[index % choice.options.len()]);
        index /= choice.options.len();
    }
    chosen.reverse();
    let parts = std::iter::once(id).chain(chosen.iter().copied()).map(slug);
    let name = parts.collect::<Vec<_>>().join("-");
    match chosen.is_empty() {
        true => (name, title.to_owned()),
        false => (name, format!("{title}: {}", chosen.join(", "))),
    }
}

/// Of a file's name, in bytes: file systems allow 255, and an ending and more follow.
const LONGEST_NAME: usize = 160;

/// Lower case letters, digits and dashes.
fn slug(text: &str) -> String {
    let simple = text.chars().map(|c| {
        if c.is_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    });
    let words: String = simple.collect();
    let words = words.split('-').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// Under the name, or the name with a number where another figure of these has it.
fn write_both(folder: &Path, name: &str, figure: &Figure<'_>, written: &mut Vec<PathBuf>) -> Result<(), ReportError> {
    let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut free = std::iter::once(name.to_owned()).chain(numbered);
    let free = free.find(|name| !written.contains(&folder.join(format!("{name}.svg"))));
    let free = free.expect("numbers do not end");
    let [svg, png] = ["svg", "png"].map(|ending| folder.join(format!("{free}.{ending}")));
    write_whole(&svg, to_svg(&svg, figure)?.as_bytes())?;
    write_png(&png, figure)?;
    written.extend([svg, png]);
    Ok(())
}

fn to_svg(path: &Path, figure: &Figure<'_>) -> Result<String, ReportError> {
    let mut text = String::new();
    draw_on(SVGBackend::with_string(&mut text, SIZE), 1, figure).map_err(|message| failed(path, message))?;
    Ok(text)
}

/// The library writes to a path: to one beside the file's own, which then takes its name.
fn write_png(path: &Path, figure: &Figure<'_>) -> Result<(), ReportError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = tempfile::Builder::new().prefix(PREFIX).suffix(".png").tempfile_in(folder);
    let beside = beside.map_err(|source| ReportError::io(path, source))?;
    let size = (SIZE.0 * DOTS, SIZE.1 * DOTS);
    draw_on(BitMapBackend::new(beside.path(), size), DOTS, figure).map_err(|message| failed(path, message))?;
    let bytes = fs::read(beside.path()).map_err(|source| ReportError::io(path, source))?;
    write_whole(path, &bytes)
}

fn failed(path: &Path, message: String) -> ReportError {
    ReportError::Figure {
        path: path.to_owned(),
        message,
    }
}

fn draw_on<DB: DrawingBackend>(backend: DB, dots: u32, figure: &Figure<'_>) -> Result<(), String> {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        let font = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        assert!(font.is_ok(), "an embedded font is one");
    });
    let area = backend.into_drawing_area();
    let drawn = match figure {
        Figure::Lines(title, view) => draw::lines(&area, dots, title, view),
        Figure::Lanes(title, view) => draw::lanes(&area, dots, title, view),
    };
    drawn.and_then(|()| area.present()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::curves::{OpDrawn, Run};
    use crate::manifest::Manifest;
    use crate::page::charts::{Axis, Line, LineStyle};
    use crate::testing;

    #[test]
    fn each_chart_is_an_svg_and_a_png() {
        let mut runs = Vec::new();
        for tenants in [10, 1000] {
            for mut run in testing::runs() {
                run.summary.parameters.insert("tenants.count".into(), tenants.into());
                run.curves.ops = vec![OpDrawn {
                    lane: 1,
                    name: "encode layers 0–1".into(),
                    category: "compute".into(),
                    started_ns: 0,
                    ended_ns: 1_000_000,
                    requests: 2,
                }];
                runs.push(run);
            }
        }
        let page = Page {
            scenario: "swept",
            runs: &runs,
            validation: None,
            folders: &[],
            manifest: &Manifest::default(),
        };
        let place = tempfile::tempdir().unwrap();
        let none = write(&place.path().join("none"), &page, &AtomicBool::new(true)).unwrap();
        assert_eq!((none.files.len(), none.drawn), (0, 0));
        let written = write(&place.path().join("figures"), &page, &AtomicBool::new(false)).unwrap();
        let named = |name: &str| place.path().join("figures").join(name);
        for name in [
            "sweep-p98-ms",
            "latency-tenants-count-10",
            "gantt-tenants-count-10-hmi-simulated",
        ] {
            let svg = fs::read_to_string(named(&format!("{name}.svg"))).unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("hmi"), "{name}");
            let png = fs::read(named(&format!("{name}.png"))).unwrap();
            assert!(png.starts_with(b"\x89PNG"), "{name}");
        }
        let on_disk = fs::read_dir(place.path().join("figures")).unwrap().count();
        assert_eq!(written.files.len(), on_disk, "and nothing temporary");
        let all = on_disk / 2;
        assert_eq!((written.drawn, written.of, none.of), (all, all, all));
    }

    #[test]
    fn each_figure_has_a_file_of_its_own() {
        let long = "x".repeat(300);
        let points: Vec<Value> = ["a+b", "a-b", "A B", &long, &format!("{long}y")].map(Value::from).into();
        let runs: Vec<Run> = points
            .into_iter()
            .map(|point| {
                let mut run = testing::runs().remove(0);
                run.summary.parameters.insert("arrivals".into(), point);
                run
            })
            .collect();
        let page = Page {
            scenario: "swept",
            runs: &runs,
            validation: None,
            folders: &[],
            manifest: &Manifest::default(),
        };
        let place = tempfile::tempdir().unwrap();
        let written = write(place.path(), &page, &AtomicBool::new(false)).unwrap().files;
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), written.len());
        for name in [
            "latency-arrivals-a-b.svg",
            "latency-arrivals-a-b-2.svg",
            "latency-arrivals-a-b-3.png",
        ] {
            assert!(written.contains(&place.path().join(name)), "{name}: {written:?}");
        }
    }

    #[test]
    fn a_value_between_gaps_is_a_point() {
        let line = |ys: &[Option<f64>]| Line {
            name: "hmi".into(),
            system: None,
            style: LineStyle::nth(0),
            points: false,
            ys: ys.to_vec(),
            spans: Vec::new(),
        };
        let circles = |ys: &[Option<f64>]| {
            let view = View {
                x: Axis::linear("s"),
                y: Axis::linear("ms"),
                xs: (0..ys.len()).map(|x| x as f64).collect(),
                lines: vec![line(ys)],
                ..View::empty()
            };
            let svg = to_svg(Path::new("f.svg"), &Figure::Lines("f".into(), &view)).unwrap();
            svg.matches("<circle").count()
        };
        let (some, none) = (Some(1.0), None);
        assert_eq!(circles(&[some, none, some, some, none, some]), 2);
        assert_eq!(circles(&[some, some, some]), 0);
        assert_eq!(circles(&[none, some, none]), 1);
    }

    #[test]
    fn names_are_fit_for_files() {
        let choice = |label: &str, options: &[&str]| Choice {
            label: label.into(),
            options: options.iter().map(|&option| option.into()).collect(),
            point: false,
        };
        let choices = [choice("Figure", &["p98 ms", "In SLO"]), choice("Across", &["a/b", "c"])];
        assert_eq!(
            named("sweep", "Over", &choices, 2),
            ("sweep-in-slo-a-b".into(), "Over: In SLO, a/b".into())
        );
        assert_eq!(
            named("latency", "Latency", &[], 0),
            ("latency".into(), "Latency".into())
        );
    }
}
