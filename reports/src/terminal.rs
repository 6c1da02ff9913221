//! Tables for the terminal.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle, presets};

use crate::classes::{self, class_columns};
use crate::curves::Run;
use crate::group::{Group, Spread, title};
use crate::human::{self, ABSENT};
use crate::metric;
use crate::validation::{Comparison, Validation, Verdict};

/// Where a table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A file or a pipe: no colour, no wrapping, no lines drawn.
    Plain,
    /// A terminal.
    Terminal {
        /// Columns of text.
        width: u16,
        /// Whether it may be coloured.
        color: bool,
    },
}

impl Style {
    /// For a terminal of this width, in colour unless the user's `NO_COLOR` forbids it; `None` for anything else.
    pub fn of(terminal_width: Option<u16>) -> Style {
        // https://no-color.org: set and not empty.
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        terminal_width.map_or(Style::Plain, |width| Style::Terminal { width, color })
    }
}

/// A line below the header and nothing else.
const HEADER_LINE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Systems as rows, or as columns where the terminal is too narrow for that, and below them their service classes.
/// Figures are means over repeats.
pub fn systems(runs: &[Run], style: Style) -> String {
    let groups = Group::all(runs);
    let classes: Vec<Vec<String>> = groups.iter().flat_map(classes).collect();
    let mut systems = all_systems(&groups, style);
    let repeats = groups.iter().map(|group| group.runs.len());
    if let (Some(least), Some(most)) = (repeats.clone().min(), repeats.max())
        && most > 1
    {
        let up_to = if least < most { "up to " } else { "" };
        systems += &format!("\n means of {up_to}{most} repeats; summary.csv has each, the page their spread");
    }
    if classes.is_empty() {
        return systems;
    }
    let head = ["System", "Machine", "Class"].into_iter().chain(class_columns().map(|(title, _)| title));
    let mut rows = vec![head.map(str::to_owned).collect()];
    rows.extend(classes);
    format!("{systems}\n\n{}", systems_table(&rows, style, 3).trim_fmt())
}

/// A row for each service class of a group.
fn classes(group: &Group<'_>) -> Vec<Vec<String>> {
    let of_group = classes::figures(group);
    let row = |(class, figures): (String, [String; 6])| {
        [safe(&group.title()), safe(group.machine()), safe(&class)].into_iter().chain(figures).collect()
    };
    of_group.into_iter().map(row).collect()
}

fn all_systems(groups: &[Group<'_>], style: Style) -> String {
    let metrics = metric::shown(groups);
    let titles = ["System", "Machine"].into_iter().chain(metrics.iter().map(|metric| metric.title));
    let mut rows: Vec<Vec<String>> = vec![titles.map(str::to_owned).collect()];
    rows.extend(groups.iter().map(|group| {
        let figures = metrics
            .iter()
            .map(|metric| group.mean(metric.read).map_or(ABSENT.to_owned(), |value| metric.unit.show(value)));
        [safe(&group.title()), safe(group.machine())].into_iter().chain(figures).collect()
    }));
    let text = systems_table(&rows, Style::Plain, 2).trim_fmt();
    match style {
        Style::Terminal { width, .. } if text.lines().any(|line| line.chars().count() > usize::from(width)) => {
            let columns = (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i].clone()).collect());
            systems_table(&columns.collect::<Vec<_>>(), style, 1).trim_fmt()
        }
        Style::Plain => text,
        Style::Terminal { .. } => systems_table(&rows, style, 2).trim_fmt(),
    }
}

/// The first row is the header; cells after the first `names` columns are figures.
fn systems_table(rows: &[Vec<String>], style: Style, names: usize) -> Table {
    let mut table = table(style);
    let aligned = |(i, cell): (usize, Cell)| {
        cell.set_alignment(if i < names {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    };
    table.set_header(rows[0].iter().map(|text| head(text)).enumerate().map(aligned));
    for row in &rows[1..] {
        table.add_row(row.iter().map(Cell::new).enumerate().map(aligned));
    }
    table
}

/// A table of figures: the first row is the header, the first column names.
pub fn figures(rows: &[Vec<String>], style: Style) -> String {
    systems_table(rows, style, 1).trim_fmt()
}

/// A validation's figures and, below, where the mean's differences come from.
pub fn validation(validation: &Validation, style: Style) -> String {
    let mut figures = table(style);
    figures.set_header(["System", "Figure", "Simulated", "Executed", "Error", "Limit", "Verdict"].map(head));
    let mut stages = table(style);
    stages.set_header(
        [
            "System",
            "Stage",
            "Simulated ms",
            "Executed ms",
            "Difference ms",
            "Points of mean error",
        ]
        .map(head),
    );
    for comparison in &validation.comparisons {
        add_figures(&mut figures, comparison);
        add_stages(&mut stages, comparison);
    }
    match stages.is_empty() {
        true => figures.trim_fmt(),
        false => format!("{}\n\n{}", figures.trim_fmt(), stages.trim_fmt()),
    }
}

fn add_figures(table: &mut Table, comparison: &Comparison) {
    let system = safe(&title(&comparison.system, &comparison.parameters));
    for figure in &comparison.figures {
        let percent =
            |value: Option<f64>| value.map_or(ABSENT.to_owned(), |value| format!("{} %", human::signed(value)));
        let limit = figure.limit_percent.map_or(ABSENT.to_owned(), |limit| format!("±{} %", human::number(limit)));
        let verdict = match figure.verdict {
            None => Cell::new(ABSENT),
            Some(Verdict::Within) => Cell::new("within").fg(Color::Green),
            Some(Verdict::Outside) => Cell::new("OUTSIDE").fg(Color::Red),
        };
        table.add_row([
            Cell::new(&system),
            Cell::new(safe(&figure.figure)),
            right(spread(figure.simulated)),
            right(spread(figure.executed)),
            right(percent(figure.error_percent)),
            right(limit),
            verdict,
        ]);
    }
}

fn add_stages(table: &mut Table, comparison: &Comparison) {
    let system = safe(&title(&comparison.system, &comparison.parameters));
    for stage in &comparison.stages {
        table.add_row([
            Cell::new(&system),
            Cell::new(stage.stage),
            right(human::number(stage.simulated_ms)),
            right(human::number(stage.executed_ms)),
            right(human::signed(stage.difference_ms)),
            right(human::signed(stage.points_of_mean_error)),
        ]);
    }
}

/// `87.2`, or `87.2 (85.1 … 89.9)` where repeats differ.
pub fn spread(spread: Option<Spread>) -> String {
    match spread {
        None => ABSENT.to_owned(),
        Some(Spread { mean, min, max }) if min == max => human::number(mean),
        Some(Spread { mean, min, max }) => {
            format!(
                "{} ({} … {})",
                human::number(mean),
                human::number(min),
                human::number(max)
            )
        }
    }
}

fn head(text: &str) -> Cell {
    Cell::new(text).add_attribute(Attribute::Bold)
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn table(style: Style) -> Table {
    let mut table = Table::new();
    match style {
        Style::Plain => {
            table.load_style(presets::NOTHING).force_no_tty();
        }
        Style::Terminal { width, color } => {
            table.load_style(HEADER_LINE);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            if color {
                table.enforce_styling()
            } else {
                table.force_no_tty()
            };
        }
    }
    table
}

/// A user's text without the control characters that would move the cursor or colour the rest.
pub(crate) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '�' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::VIRTUAL;
    use crate::testing::{labels, record, runs};
    use crate::validation::Limits;
    use tenantry_core::RunRecord;
    use tenantry_traces::Duration;

    const ESCAPE: char = '\u{1b}';

    #[test]
    fn systems_are_rows_and_repeats_are_one() {
        let text = systems(&runs(), Style::Plain);
        assert_eq!(text.lines().count(), 1 + 4 + 1, "{text}");
        assert!(
            text.ends_with(" means of up to 3 repeats; summary.csv has each, the page their spread"),
            "{text}"
        );
        assert!(!text.contains(ESCAPE) && !text.contains('─'), "{text}");
    }

    #[test]
    fn systems_are_columns_where_it_is_narrow() {
        let text = systems(
            &runs(),
            Style::Terminal {
                width: 80,
                color: false,
            },
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().next().unwrap().contains("bert-dedicated"), "{text}");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        let validation = Validation::new(
            "v",
            Limits {
                mean: Some(0.05),
                ..Limits::default()
            },
            &runs(),
        );
        let show = |color| super::validation(&validation, Style::Terminal { width: 140, color });
        assert!(show(true).contains(ESCAPE));
        assert!(!show(false).contains(ESCAPE));
    }

    #[test]
    fn names_cannot_reach_the_terminal_and_absent_is_not_zero() {
        let runs = [
            Run::new(labels("\u{1b}[2Jgone", VIRTUAL), &RunRecord::default()),
            Run::new(labels("fine", VIRTUAL), &record(10, Duration::from_millis(1))),
        ];
        let text = systems(&runs, Style::Plain);
        assert!(!text.contains(ESCAPE), "{text}");
        assert!(text.lines().nth(1).unwrap().contains(ABSENT), "{text}");
    }
}
