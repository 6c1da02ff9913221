//! A card measured twice: the page has what was kept of it.

/// Rows of `docs/profiles-accuracy.md`, and whose drift stands first in them.
const ROWS: [(&str, &[&str]); 12] = [
    ("encoder layers", &["encoder_layer"]),
    ("embeddings, heads", &["embedding", "head"]),
    ("adapters", &["adapter"]),
    ("copies", &["copy"]),
    (
        "layers, operators beside other instances",
        &["concurrent_layer", "concurrent_pet"],
    ),
    ("whole padded passes", &["static_model"]),
    ("sums of attention", &["attended_layer"]),
    ("tasks' operators", &["pet"]),
    ("look-ups", &["plot_lookup"]),
    ("allocation programs, plans", &["solve", "plan"]),
    ("reads from the disk", &["model_load"]),
    ("hand-overs, after idleness", &["hand_over", "resume"]),
];

#[test]
fn the_page_has_what_two_measurements_of_one_day_differ_by() {
    let kept = include_str!("../../drift/xeon-2026-11-24.json");
    let compared: serde_yaml::Value = serde_yaml::from_str(kept).expect("JSON is YAML");
    let ratios = compared["ratios"].as_sequence().expect("a list of ratios");
    let drift = |family: &&str| {
        let of_all_tables = |ratios: &&serde_yaml::Value| ratios["family"] == **family && ratios["table"].is_null();
        let found = ratios.iter().find(of_all_tables);
        let drift = found.and_then(|ratios| ratios["drift"].as_f64());
        100.0 * drift.unwrap_or_else(|| panic!("{family} was compared"))
    };
    let page = include_str!("../../../docs/profiles-accuracy.md");
    for (row, families) in ROWS {
        let figure = |drift: f64| match drift < 10.0 {
            true => format!("{drift:.1}"),
            false => format!("{drift:.0}"),
        };
        let figures: Vec<String> = families.iter().map(drift).map(figure).collect();
        let cells = format!("| {row} | {} % |", figures.join(", "));
        assert!(page.contains(&cells), "docs/profiles-accuracy.md must have {cells}");
    }
}
