//! `tenantry profile show`: what a profile holds, where it comes from, and how well it interpolates.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::json;
use tenantry_profiles::{AxisSummary, Card, TableSummary, describe};

use crate::cli::OutputArgs;
use crate::failure::Failure;
use crate::output::{print, provenance};
use crate::runs::find_card;

pub fn run(name: &str, output: &OutputArgs) -> Result<(), Failure> {
    let card = find_card(name)?;
    let tables = describe(&card);
    let value = json!({
        "name": card.name,
        "digest": card.digest(),
        "device": card.device,
        "contention": card.contention,
        "provenance": card.provenance,
        "tables": tables.iter().map(table_json).collect::<Vec<_>>(),
    });
    print(output, &value, || text(&card, &tables))
}

fn table_json(table: &TableSummary) -> serde_json::Value {
    json!({
        "family": table.family.to_string(),
        "table": table.table,
        "points": table.points,
        "measurements": table.measurements,
        "axes": table.axes.iter().map(|axis| json!({ "name": axis.name, "values": axis.values })).collect::<Vec<_>>(),
        "leave_out_error": table.error.as_ref().map(|error| {
            json!({ "predictions": error.predictions, "median": error.median, "p95": error.p95 })
        }),
    })
}

pub fn text(card: &Card, tables: &[TableSummary]) -> String {
    let device = &card.device;
    let mut lines = vec![
        format!("{}: {} ({})", card.name, device.name, device.kind),
        format!("  host       {}, {} cores", device.host.cpu, device.host.cores),
        format!(
            "  memory     {} MiB, of which {} MiB stay free",
            device.memory_bytes >> 20,
            device.reserve_bytes >> 20
        ),
        format!("  source     {}", provenance(card)),
        format!(
            "  contention compute beside a copy × {:.3}, a copy beside compute × {:.3}",
            card.contention.compute_beside_copy, card.contention.copy_beside_compute
        ),
    ];
    lines.extend(card.provenance.notes.iter().map(|note| format!("  note       {note}")));
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "Family",
        "Table",
        "Points",
        "Measurements",
        "Range",
        "Left-out error: median",
        "p95",
    ]);
    for summary in tables {
        let error = |read: fn(&tenantry_profiles::TableError) -> f64| {
            summary
                .error
                .as_ref()
                .map_or_else(|| "–".to_owned(), |error| format!("{:.1} %", 100.0 * read(error)))
        };
        table.add_row([
            summary.family.to_string(),
            summary.table.clone(),
            summary.points.to_string(),
            summary.measurements.to_string(),
            summary.axes.iter().map(range).collect::<Vec<_>>().join(", "),
            error(|error| error.median),
            error(|error| error.p95),
        ]);
    }
    for column in [2, 3, 5, 6] {
        table
            .column_mut(column)
            .expect("the header has it")
            .set_cell_alignment(CellAlignment::Right);
    }
    lines.push(String::new());
    lines.push(table.trim_fmt());
    lines.join("\n")
}

fn range(axis: &AxisSummary) -> String {
    match (axis.values.first(), axis.values.last()) {
        (Some(first), Some(last)) if first != last => format!("{} {first} to {last}", axis.name),
        (Some(only), _) => format!("{} {only}", axis.name),
        _ => axis.name.to_owned(),
    }
}
