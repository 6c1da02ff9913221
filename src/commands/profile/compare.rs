//! `tenantry profile compare`: what one card takes over what another does, or how far one machine drifted.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::json;
use tenantry_profiles::{Card, Ratios, compare};

use crate::cards::find_card;
use crate::cli::OutputArgs;
use crate::failure::Failure;
use crate::output::{print, provenance};

pub fn run(first: &str, second: &str, output: &OutputArgs) -> Result<(), Failure> {
    let (first, second) = (find_card(first)?, find_card(second)?);
    let ratios = compare(&first, &second);
    let card = |card: &Card| json!({ "name": card.name, "digest": card.digest(), "provenance": card.provenance });
    let value = json!({
        "first": card(&first),
        "second": card(&second),
        "ratios": ratios.iter().map(ratios_json).collect::<Vec<_>>(),
    });
    print(output, &value, || text(&first, &second, &ratios))
}

fn ratios_json(ratios: &Ratios) -> serde_json::Value {
    json!({
        "family": ratios.family.to_string(),
        "table": ratios.table,
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
    if ratios.is_empty() {
        return heading + "\nThey have no table in common that reaches as far in both.";
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "Family",
        "Table",
        "Points",
        "of these between",
        "Second / first: p5",
        "median",
        "p95",
        "Drift",
    ]);
    for ratios in ratios {
        table.add_row([
            ratios.family.to_string(),
            ratios.table.clone().unwrap_or_else(|| "(all)".to_owned()),
            ratios.points.to_string(),
            ratios.interpolated.to_string(),
            format!("{:.3}", ratios.p05),
            format!("{:.3}", ratios.median),
            format!("{:.3}", ratios.p95),
            format!("{:.1} %", 100.0 * ratios.drift),
        ]);
    }
    for column in 2..8 {
        let column = table.column_mut(column).expect("the header has it");
        column.set_cell_alignment(CellAlignment::Right);
    }
    heading
        + "\n"
        + &table.trim_fmt()
        + "\n\nDrift is the median of |second / first − 1| over the first card's points that lie within the second's;\n\
             \"between\" are those that the second has no measurement at, and interpolates."
}
