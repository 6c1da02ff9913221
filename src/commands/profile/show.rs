//! `tenantry profile show`: what a profile holds, where it comes from, and how well it interpolates.

use std::path::Path;

use serde_json::json;
use tenantry_profiles::{AxisSummary, Card, Certainty, LeftOut, TableError, TableForms, TableSummary, describe};
use tenantry_reports::human;
use tenantry_reports::page::ProfilePage;

use super::plots::{self, roofline};
use super::table;
use crate::cards::{card_of_option, folder_of};
use crate::cli::{OutputArgs, SchemaOf, ShowArgs};
use crate::failure::Failure;
use crate::output::{Started, check_page, print, provenance, say, to_stdout, write_in_folder};

const HEADER: [&str; 12] = [
    "Family",
    "Table",
    "Origin",
    "Points",
    "Measurements",
    "Medians known to",
    "Moved to rise",
    "Range",
    "Checked at",
    "Error: median",
    "p95",
    "Worst",
];

pub fn run(args: &ShowArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let Some(name) = &args.card else {
        // Whatever is asked for beside it, a schema is JSON.
        let bytes = match args.schema {
            Some(SchemaOf::Tables) => tenantry_reports::folder::json(&TableForms::all()),
            Some(SchemaOf::Card) | None => tenantry_reports::folder::json(&Card::schema()),
        };
        let bytes = bytes.map_err(Failure::running)?;
        to_stdout(&bytes)?;
        return Ok(());
    };
    let card = card_of_option("CARD", name)?;
    if let Some(path) = &args.report {
        check_page("--report", path, folder_of(name))?;
    }
    let tables = describe(&card);
    if let Some(path) = &args.report {
        report(&card, &tables, &started, path)?;
    }
    let value = json!({
        "name": card.name,
        "digest": card.digest(),
        "device": card.device,
        "contention": card.contention,
        "provenance": card.provenance,
        "limits": card.limits,
        "shares_of_roof": roofline::shares(&card).iter().map(roofline::Shares::json).collect::<Vec<_>>(),
        "tables": tables.iter().map(|table| table_json(&card, table)).collect::<Vec<_>>(),
    });
    print(output, &value, || text(&card, &tables))?;
    if let Some(path) = &args.report {
        say(output, &format!("report: {}", path.display()));
    }
    Ok(())
}

/// The page with the card's tables and curves.
fn report(card: &Card, tables: &[TableSummary], started: &Started, path: &Path) -> Result<(), Failure> {
    let mut facts = vec![
        ("Device", format!("{} ({})", card.device.name, card.device.kind)),
        (
            "Host",
            format!("{}, {} cores", card.device.host.cpu, card.device.host.cores),
        ),
        ("Memory", memory(card)),
        ("Source", provenance(card)),
        ("Contention", contention(card)),
        ("Digest", card.digest()),
    ];
    facts.extend(warnings(tables).map(|warning| ("Warning", warning)));
    facts.extend(card.provenance.notes.iter().map(|note| ("Note", note.clone())));
    let sources = sources(card, tables).into_iter();
    facts.extend(sources.map(|(families, source)| ("Tables' source", format!("{families}: {source}"))));
    let rows: Vec<Vec<String>> = tables.iter().map(|table| cells(card, table).to_vec()).collect();
    let curves = plots::curves(card);
    let page = ProfilePage {
        title: &card.name,
        facts: &facts,
        header: &HEADER,
        text_columns: 3,
        rows: &rows,
        charts: &curves,
        manifest: &started.manifest(&[], None, 0, Vec::new()),
    };
    let html = page.render().map_err(Failure::running)?;
    write_in_folder(path, &html)
}

fn memory(card: &Card) -> String {
    let device = &card.device;
    format!(
        "{}, of which {} stay free",
        human::bytes(device.memory_bytes as f64),
        human::bytes(device.reserve_bytes as f64)
    )
}

fn contention(card: &Card) -> String {
    let of = &card.contention;
    format!(
        "compute beside a copy × {:.3}, a copy beside compute × {:.3}; compute beside look-ups × {:.3}, look-ups \
         beside compute × {:.3}",
        of.compute_beside_copy, of.copy_beside_compute, of.compute_beside_lookup, of.lookup_beside_compute
    )
}

/// The sources of tables that were come by in another way than the card, each with the families that have such tables.
fn sources(card: &Card, tables: &[TableSummary]) -> Vec<(String, String)> {
    let mut sources: Vec<(Vec<&'static str>, String)> = Vec::new();
    for table in tables {
        let origin = card.origin(table.family, &table.table);
        if origin.source == card.provenance.command {
            continue;
        }
        let family = table.family.name();
        match sources.iter_mut().find(|(_, source)| *source == origin.source) {
            Some((families, _)) if families.contains(&family) => {}
            Some((families, _)) => families.push(family),
            None => sources.push((vec![family], origin.source)),
        }
    }
    let joined = |(families, source): (Vec<&str>, String)| (families.join(", "), source);
    sources.into_iter().map(joined).collect()
}

/// Where a table comes from, and how far it may be off where that is stated.
fn origin(card: &Card, table: &TableSummary) -> String {
    let origin = card.origin(table.family, &table.table);
    match origin.error {
        Some(error) => format!("{}, {error}", origin.kind),
        None => origin.kind.to_string(),
    }
}

fn table_json(card: &Card, table: &TableSummary) -> serde_json::Value {
    json!({
        "family": table.family.to_string(),
        "table": table.table,
        "origin": card.origin(table.family, &table.table),
        "points": table.points,
        "measurements": table.measurements,
        "certainty": card.certainty_of(table.family, &table.table),
        "moved_to_rise": { "points": table.moved.points, "farthest": table.moved.farthest },
        "axes": table.axes.iter().map(|axis| json!({ "name": axis.name, "values": axis.values })).collect::<Vec<_>>(),
        "leap": table.leap.as_ref().map(|leap| json!({ "at": leap.at, "beside": leap.beside, "times": leap.times })),
        "leave_out_error": told_error(table).map(|error| {
            json!({
                "points": error.of.name(),
                "predictions": error.predictions,
                "median": error.median,
                "p95": error.p95,
                "worst": { "at": error.worst.at, "error": error.worst.error },
            })
        }),
    })
}

/// The error of interpolation, where it says something: of what was computed, how well lines follow a formula says
/// nothing of how far it is from a card.
fn told_error(table: &TableSummary) -> Option<&TableError> {
    table.error.as_ref().filter(|_| table.measurements.is_some())
}

/// One row of the table of tables.
fn cells(card: &Card, summary: &TableSummary) -> [String; HEADER.len()] {
    let told = told_error(summary);
    let error = |read: fn(&TableError) -> f64| {
        told.map_or_else(|| "–".to_owned(), |error| format!("{:.1} %", 100.0 * read(error)))
    };
    [
        summary.family.to_string(),
        summary.table.clone(),
        origin(card, summary),
        summary.points.to_string(),
        summary.measurements.map_or_else(|| "–".to_owned(), |measurements| measurements.to_string()),
        known_to(card, summary),
        moved(summary),
        summary.axes.iter().map(range).collect::<Vec<_>>().join(", "),
        told.map_or_else(String::new, checked_at),
        error(|error| error.median),
        error(|error| error.p95),
        told.map_or_else(String::new, |error| worst(summary, error)),
    ]
}

/// Where a table is off most.
fn worst(summary: &TableSummary, error: &TableError) -> String {
    format!(
        "{:+.1} % at {}",
        100.0 * error.worst.error,
        place(summary, &error.worst.at)
    )
}

/// `batch 4, tokens 64`.
fn place(summary: &TableSummary, at: &[u64]) -> String {
    let names = summary.axes.iter().map(|axis| axis.name);
    let cells: Vec<String> = names.zip(at).map(|(name, value)| format!("{name} {value}")).collect();
    cells.join(", ")
}

/// What is probably in another unit, table by table.
fn warnings(tables: &[TableSummary]) -> impl Iterator<Item = String> {
    tables.iter().filter_map(|table| {
        let leap = table.leap.as_ref()?;
        Some(format!(
            "{} {}: {} costs {:.0} times what {} says, in proportion: one of them may be in another unit",
            table.family,
            table.table,
            place(table, &leap.at),
            leap.times,
            place(table, &leap.beside)
        ))
    })
}

/// How well a table's medians are known: the one in the middle, and the least known.
fn known_to(card: &Card, summary: &TableSummary) -> String {
    let Some(certainty) = card.certainty_of(summary.family, &summary.table) else {
        return "–".to_owned();
    };
    let Certainty {
        untold,
        half_width,
        widest,
        ..
    } = certainty;
    let told = half_width
        .zip(*widest)
        .map(|(half_width, widest)| format!("{:.1} %, widest {:.1} %", 100.0 * half_width, 100.0 * widest));
    let untold = (*untold > 0).then(|| format!("{untold} visited too rarely to tell"));
    told.into_iter().chain(untold).collect::<Vec<_>>().join(", ")
}

/// How many points are priced otherwise than they were measured, and how far the farthest is moved.
fn moved(summary: &TableSummary) -> String {
    match summary.moved.points {
        0 => "–".to_owned(),
        points => format!("{points}, up to {:.0} %", 100.0 * summary.moved.farthest),
    }
}

/// Which points tell the error, and how many predictions of them.
fn checked_at(error: &TableError) -> String {
    match error.of {
        LeftOut::HeldOut => format!("{} held out", error.predictions),
        LeftOut::Own => "own, from neighbours".to_string(),
    }
}

pub fn text(card: &Card, tables: &[TableSummary]) -> String {
    let device = &card.device;
    let mut lines = vec![
        format!("{}: {} ({})", card.name, device.name, device.kind),
        format!("  host       {}, {} cores", device.host.cpu, device.host.cores),
        format!("  memory     {}", memory(card)),
        format!("  source     {}", provenance(card)),
        format!("  contention {}", contention(card)),
    ];
    lines.extend(card.provenance.notes.iter().map(|note| format!("  note       {note}")));
    lines.push(String::new());
    let rows = tables.iter().map(|summary| cells(card, summary));
    lines.push(table(HEADER, rows, &[3, 4, 9, 10]));
    let warnings: Vec<String> = warnings(tables).map(|warning| format!("warning: {warning}")).collect();
    if !warnings.is_empty() {
        lines.push(format!("\n{}", warnings.join("\n")));
    }
    let shares = roofline::shares(card);
    if !shares.is_empty() {
        lines.push("\nShares of the roof:".to_owned());
        lines.extend(shares.iter().map(|of_part| format!("  {}", of_part.line())));
    }
    let sources = sources(card, tables);
    if !sources.is_empty() {
        lines.push("\nWhere tables come from:".to_owned());
        lines.extend(sources.iter().map(|(families, source)| format!("  {families}: {source}")));
    }
    lines.join("\n")
}

fn range(axis: &AxisSummary) -> String {
    match (axis.values.first(), axis.values.last()) {
        (Some(first), Some(last)) if first != last => format!("{} {first} to {last}", axis.name),
        (Some(only), _) => format!("{} {only}", axis.name),
        _ => axis.name.to_owned(),
    }
}
