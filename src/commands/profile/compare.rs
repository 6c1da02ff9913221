//! `tenantry profile compare`: what one card takes over what another does, or how far one machine drifted.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use tenantry_profiles::{Card, Ratios, compare, describe, unlike_models};
use tenantry_reports::page::{NamedRatios, RatioGroup, RatiosPage};

use super::table;
use crate::cards::{card_of_option, folder_of};
use crate::cli::{CompareArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{Started, check_page, print, provenance, say, write_in_folder};

const HEADER: [&str; 9] = [
    "Family",
    "Table",
    "Origin",
    "Points",
    "of these between",
    "Second / first: p5",
    "median",
    "p95",
    "Drift",
];

const NOTE: &str = "Drift is the median of |second / first − 1| over the first card's points that lie within the second's;\n\
                    \"between\" are those that the second has no measurement at, and interpolates.";

pub fn run(args: &CompareArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let (first, second) = (
        card_of_option("FIRST", &args.first)?,
        card_of_option("SECOND", &args.second)?,
    );
    if let Some(path) = &args.report {
        let folders = [&args.first, &args.second].into_iter().filter_map(|name| folder_of(name));
        check_page("--report", path, folders)?;
    }
    let ratios = compare(&first, &second);
    if let Some(path) = &args.report {
        report([&first, &second], &ratios, &started, path)?;
    }
    let card = |card: &Card| json!({ "name": card.name, "digest": card.digest(), "provenance": card.provenance });
    let value = json!({
        "first": card(&first),
        "second": card(&second),
        "unlike_models": unlike_models(&first, &second),
        "ratios": ratios.iter().map(|ratios| ratios_json([&first, &second], ratios)).collect::<Vec<_>>(),
    });
    print(output, &value, || text(&first, &second, &ratios))?;
    if let Some(path) = &args.report {
        say(output, &format!("report: {}", path.display()));
    }
    Ok(())
}

/// The page with the ratios, drawn and in figures.
fn report(cards: [&Card; 2], ratios: &[Ratios], started: &Started, path: &Path) -> Result<(), Failure> {
    let [first, second] = cards.map(|card| format!("{}: {} ({})", card.name, card.device.name, provenance(card)));
    let rows: Vec<Vec<String>> = ratios.iter().map(|ratios| cells(cards, ratios).to_vec()).collect();
    let page = RatiosPage {
        title: &format!("{} over {}", cards[1].name, cards[0].name),
        facts: &[("First", first), ("Second", second)],
        header: &HEADER,
        text_columns: 3,
        rows: &rows,
        note: &note(cards),
        groups: &groups(ratios),
        manifest: &started.manifest(&[], None, 0, Vec::new()),
    };
    let html = page.render().map_err(Failure::running)?;
    write_in_folder(path, &html)
}

/// All families, each as one, and then the tables of each that has several.
fn groups(ratios: &[Ratios]) -> Vec<RatioGroup> {
    let named = |name: String, of: &Ratios| NamedRatios {
        name,
        p05: of.p05,
        median: of.median,
        p95: of.p95,
    };
    let whole = ratios.iter().filter(|ratios| ratios.table.is_none());
    let mut groups = vec![RatioGroup {
        option: "all families".to_owned(),
        across: "Op family",
        ratios: whole.map(|ratios| named(ratios.family.to_string(), ratios)).collect(),
    }];
    for family in ratios.chunk_by(|a, b| a.family == b.family) {
        let tables = family.iter().filter_map(|ratios| Some(named(short(ratios.table.as_ref()?), ratios)));
        let tables: Vec<NamedRatios> = tables.collect();
        if tables.len() > 1 {
            groups.push(RatioGroup {
                option: family[0].family.to_string(),
                across: "Table",
                ratios: tables,
            });
        }
    }
    groups.retain(|group| !group.ratios.is_empty());
    groups
}

/// A table's name without what its cells are of: `bert-mini f32`.
fn short(table: &str) -> String {
    let cells = table.split(' ').map(|cell| cell.split_once('=').map_or(cell, |(_, value)| value));
    cells.collect::<Vec<_>>().join(" ")
}

/// Where the tables behind these ratios come from: the first card's, and the second's where they are of another kind.
fn origins([first, second]: [&Card; 2], ratios: &Ratios) -> String {
    let of = |at: usize, card: &Card| match &ratios.labels {
        Some(labels) => card.origin(ratios.family, &labels[at]).kind.to_string(),
        None => {
            let tables = describe(card).into_iter().filter(|table| table.family == ratios.family);
            let kinds = tables.map(|table| card.origin(table.family, &table.table).kind.to_string());
            kinds.collect::<BTreeSet<String>>().into_iter().collect::<Vec<_>>().join(" and ")
        }
    };
    let (first, second) = (of(0, first), of(1, second));
    match first == second {
        true => first,
        false => format!("{first}; {second}"),
    }
}

/// What the figures are, and what is not among them.
fn note([first, second]: [&Card; 2]) -> String {
    let unlike = unlike_models(first, second).into_iter().map(|unlike| {
        let families: Vec<&str> = unlike.families.iter().map(|family| family.name()).collect();
        format!(
            "\n{} is another model on each card ({}): its {} are not compared.",
            unlike.model,
            unlike.differences,
            families.join(", ")
        )
    });
    NOTE.to_owned() + &unlike.collect::<String>()
}

fn cells(cards: [&Card; 2], ratios: &Ratios) -> [String; HEADER.len()] {
    [
        ratios.family.to_string(),
        ratios.table.clone().unwrap_or_else(|| "(all)".to_owned()),
        origins(cards, ratios),
        ratios.points.to_string(),
        ratios.interpolated.to_string(),
        format!("{:.3}", ratios.p05),
        format!("{:.3}", ratios.median),
        format!("{:.3}", ratios.p95),
        format!("{:.1} %", 100.0 * ratios.drift),
    ]
}

fn ratios_json(cards: [&Card; 2], ratios: &Ratios) -> serde_json::Value {
    json!({
        "family": ratios.family.to_string(),
        "table": ratios.table,
        "origin": origins(cards, ratios),
        "points": ratios.points,
        "interpolated": ratios.interpolated,
        "p05": ratios.p05,
        "median": ratios.median,
        "p95": ratios.p95,
        "drift": ratios.drift,
    })
}

fn text(first: &Card, second: &Card, ratios: &[Ratios]) -> String {
    let card =
        |which: &str, card: &Card| format!("{which}  {}: {} ({})", card.name, card.device.name, provenance(card));
    let heading = format!("{}\n{}\n", card("first ", first), card("second", second));
    let note = note([first, second]);
    if ratios.is_empty() {
        return heading
            + "\nThey have no table in common that reaches as far in both.\n"
            + note.trim_start_matches(NOTE);
    }
    let figures: Vec<usize> = (3..HEADER.len()).collect();
    let rows = ratios.iter().map(|ratios| cells([first, second], ratios));
    heading + "\n" + &table(HEADER, rows, &figures) + "\n\n" + &note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cards::find_card;

    #[test]
    fn families_come_first_and_then_the_tables_of_those_with_several() {
        let [cpu, epyc] = ["cpu", "cpu-epyc"].map(|name| find_card(name).unwrap());
        let ratios = compare(&cpu, &epyc);
        let groups = groups(&ratios);
        let names = |group: &RatioGroup| group.ratios.iter().map(|ratios| ratios.name.clone()).collect::<Vec<_>>();
        assert!(names(&groups[0]).contains(&"encoder_layer".to_owned()));
        let layers = groups.iter().find(|group| group.option == "encoder_layer").unwrap();
        assert_eq!(names(layers), ["bert-mini f32", "tiny f32"]);
        assert!(
            groups.iter().all(|group| group.option != "copy_resume"),
            "it is one table"
        );
    }
}
