//! How rows are shown: a table for each figure on the terminal, and as Markdown.

use std::fmt::Write as _;

use tenantry_reports::human;
use tenantry_reports::terminal::{self, Style};

use super::number::{fixed, proper, signed, with_unit};
use super::row::{Kind, Row, Said};
use super::seeds::Range;
use super::{OfFigure, Reproduction};
use crate::caveats::table_caveats;

/// The figures of a reproduction with their rows, in the order of their first rows.
fn figures(rows: &[Row]) -> Vec<(&'static str, Vec<&Row>)> {
    let mut figures: Vec<(&'static str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match figures.iter_mut().find(|(figure, _)| *figure == row.figure) {
            Some((_, rows)) => rows.push(row),
            None => figures.push((row.figure, vec![row])),
        }
    }
    figures
}

/// What the rows' figures are called, each once, in the order of their first rows.
pub fn names(rows: &[Row]) -> Vec<&'static str> {
    figures(rows).into_iter().map(|(figure, _)| figure).collect()
}

const HEADER: [&str; 6] = ["What", "Paper", "Ours", "Off", "Kind", "Within"];

/// What rows say of themselves whose figure has prices from beyond its tables.
const EXTRAPOLATED: &str = "extrapolated";

/// What a paper's figures rest on: where their tables are from, once for all of them, what is unpriced, and which
/// figures go beyond the tables.
fn grounds(of_figures: &[OfFigure]) -> Vec<String> {
    let tables = of_figures.iter().flat_map(|of| of.ground.tables.iter().cloned());
    let mut sentences = table_caveats(&tables.collect());
    for OfFigure { figure, ground } in of_figures {
        sentences.extend(ground.unpriced.iter().map(|sentence| format!("{figure}: {sentence}")));
    }
    sentences.extend(of_figures.iter().filter_map(|OfFigure { figure, ground }| {
        let sentence = ground.extrapolated.as_ref()?;
        Some(format!("{figure}, {EXTRAPOLATED}: {sentence}"))
    }));
    sentences
}

fn cells(row: &Row) -> [String; HEADER.len()] {
    let figure = |value: Option<f64>| value.map_or(human::ABSENT.to_owned(), |value| with_unit(value, row.unit));
    let paper = |said: Said| match said {
        Said::Number(number) => with_unit(number, row.unit),
        Said::Range([least, most]) => format!("{} to {}", proper(&human::number(least)), with_unit(most, row.unit)),
    };
    let ours = match row.range {
        None => figure(row.ours),
        Some(Range { seeds, least, greatest }) => {
            let [least, greatest] = [least, greatest].map(|value| proper(&human::number(value)));
            format!("{} ({seeds} seeds: {least} to {greatest})", figure(row.ours))
        }
    };
    let off = |difference: f64| match row.in_points {
        true => format!("{} points", signed(difference, 1)),
        false => format!("{} %", signed(100.0 * difference, 1)),
    };
    let band = |tolerance: f64| match row.in_points {
        true => format!("(± {} points)", fixed(tolerance, 1)),
        false => format!("(± {} %)", fixed(100.0 * tolerance, 0)),
    };
    let within = match (row.within, row.tolerance) {
        (None, _) => human::ABSENT.to_owned(),
        (Some(true), Some(tolerance)) => format!("yes {}", band(tolerance)),
        (Some(false), Some(tolerance)) => format!("NO {}", band(tolerance)),
        (Some(true), None) => "holds".to_owned(),
        (Some(false), None) => "DOES NOT HOLD".to_owned(),
    };
    [
        row.what.clone(),
        row.paper.map_or(human::ABSENT.to_owned(), paper),
        ours,
        row.difference.map_or(human::ABSENT.to_owned(), off),
        match row.extrapolated {
            Some(true) => format!("{}, {EXTRAPOLATED}", row.kind.name()),
            Some(false) | None => row.kind.name().to_owned(),
        },
        within,
    ]
}

/// Each note once, with the rows that it is about.
fn notes<'a>(rows: &[&'a Row]) -> Vec<(Vec<&'a str>, &'a str)> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for row in rows.iter().filter(|row| !row.note.is_empty()) {
        match notes.iter_mut().find(|(_, note)| *note == row.note) {
            Some((whats, _)) => whats.push(&row.what),
            None => notes.push((vec![&row.what], &row.note)),
        }
    }
    notes
}

/// For the terminal.
pub fn text(reproduction: &Reproduction, style: Style) -> String {
    let mut text = format!("{}\n", reproduction.title);
    for (figure, rows) in figures(&reproduction.rows) {
        let table: Vec<Vec<String>> = std::iter::once(HEADER.map(str::to_owned).to_vec())
            .chain(rows.iter().map(|row| cells(row).to_vec()))
            .collect();
        write!(text, "\n{figure}\n{}\n", terminal::figures(&table, style)).expect("strings are writable");
        for (whats, note) in notes(&rows) {
            writeln!(text, "  {}: {note}", whats.join("; ")).expect("strings are writable");
        }
    }
    for sentence in grounds(&reproduction.grounds) {
        write!(text, "\nnote: {sentence}").expect("strings are writable");
    }
    write!(text, "\n\n{}", verdict(&reproduction.rows)).expect("strings are writable");
    text
}

/// For the folder.
pub fn markdown(reproduction: &Reproduction) -> String {
    let mut text = format!("# {}\n\n{}\n", reproduction.title, verdict(&reproduction.rows));
    for (figure, rows) in figures(&reproduction.rows) {
        write!(
            text,
            "\n## {figure}\n\n| {} | Note |\n| --- | ---: | ---: | ---: | --- | --- | --- |\n",
            HEADER.join(" | ")
        )
        .expect("strings are writable");
        for row in rows {
            let cells = cells(row).map(|cell| cell.replace('|', "\\|"));
            writeln!(text, "| {} | {} |", cells.join(" | "), row.note.replace('|', "\\|"))
                .expect("strings are writable");
        }
    }
    if !reproduction.grounds.is_empty() {
        text += "\n## What these figures rest on\n\n";
    }
    for sentence in grounds(&reproduction.grounds) {
        writeln!(text, "- {sentence}").expect("strings are writable");
    }
    text
}

/// How many rows of each kind there are, and which miss.
pub fn verdict(rows: &[Row]) -> String {
    let of = |kind: Kind| rows.iter().filter(move |row| row.kind == kind);
    let met = |kind: Kind| of(kind).filter(|row| row.within == Some(true)).count();
    let ours = match of(Kind::Ours).count() {
        0 => String::new(),
        count => format!(", as do {} of {count} that the paper does not have", met(Kind::Ours)),
    };
    let mut text = format!(
        "{} of {} predictions within their tolerance, {} of {} shapes hold{ours}, {} of {} inputs met; {} rows rest on \
         assumptions, {} cannot be checked{}.",
        met(Kind::Predicted),
        of(Kind::Predicted).count(),
        met(Kind::ShapeOnly),
        of(Kind::ShapeOnly).count(),
        met(Kind::Input),
        of(Kind::Input).count(),
        of(Kind::Assumed).count(),
        of(Kind::NotCheckable).count(),
        match of(Kind::Contradicted).count() {
            0 => String::new(),
            count => format!(", of {count} the paper contradicts itself"),
        },
    );
    for row in rows.iter().filter(|row| row.within == Some(false)) {
        write!(text, "\nNot met: {}, {} ({}).", row.figure, row.what, row.kind.name()).expect("strings are writable");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_paper_does_not_have_is_counted_by_itself() {
        let shape = |holds| Row::shape("Fig. 1", "x", "", 1.0, holds);
        let rows = [
            shape(true),
            Row::ours("Fig. 1", "x", "", 1.0, true),
            Row::ours("Fig. 2", "x", "", 1.0, true),
        ];
        let said = verdict(&rows);
        assert!(
            said.contains("1 of 1 shapes hold, as do 2 of 2 that the paper does not have, 0 of 0 inputs met"),
            "{said}"
        );
        assert!(verdict(&rows[..1]).contains("1 of 1 shapes hold, 0 of 0 inputs met"));
    }
}
