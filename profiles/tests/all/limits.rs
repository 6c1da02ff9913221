//! How many tables of the measured cards that ship are within the limits on interpolation: none fewer than there were,
//! and the numbers of `docs/profiles-accuracy.md`.

use std::collections::BTreeMap;

use tenantry_profiles::{Card, LeftOut, ModelKind, ModelShape, Source, TableError, TaggingHeadRow, leave_out_errors};

/// Cards' tables of encoders and of what needs no model, or of decoders, that were within the first limit and within
/// the second.
const AT_LEAST: [(&str, ModelKind, [usize; 2]); 5] = [
    ("cpu", ModelKind::Encoder, [46, 35]),
    ("cpu-epyc", ModelKind::Encoder, [45, 29]),
    ("cpu-epyc-zen5", ModelKind::Encoder, [52, 51]),
    ("cpu", ModelKind::Decoder, [64, 55]),
    ("cpu-epyc-zen5", ModelKind::Decoder, [70, 70]),
];

/// Whose ops a table is of.
fn kind(table: &str) -> ModelKind {
    let model = table.strip_prefix("model=").and_then(|rest| rest.split(' ').next());
    let shape = model.and_then(ModelShape::builtin);
    shape.map_or(ModelKind::Encoder, |shape| shape.kind)
}

/// Tables checked at such points, and those within the first limit and the second.
fn counts(errors: &[TableError], of: ModelKind, points: LeftOut) -> [usize; 3] {
    let of_kind = || errors.iter().filter(|error| error.of == points && kind(&error.table) == of);
    [
        of_kind().count(),
        of_kind().filter(|error| error.median < TableError::MEDIAN_LIMIT).count(),
        of_kind().filter(|error| error.p95 < TableError::P95_LIMIT).count(),
    ]
}

#[test]
fn no_fewer_tables_are_within_the_limits_than_were_and_the_page_has_the_numbers() {
    let errors = |name: &str| {
        let card = Card::embedded(name).unwrap().unwrap();
        assert_eq!(card.provenance.source, Source::Measured);
        leave_out_errors(&card)
    };
    let (mut all, mut own): (Vec<[usize; 3]>, Vec<[usize; 3]>) = (Vec::new(), Vec::new());
    for (name, of, [median, p95]) in AT_LEAST {
        let errors = errors(name);
        let counted = counts(&errors, of, LeftOut::HeldOut);
        assert!(counted[1] >= median && counted[2] >= p95, "{name}, {of:?}: {counted:?}");
        all.push(counted);
        own.push(counts(&errors, of, LeftOut::Own));
    }
    let page = include_str!("../../../docs/profiles-accuracy.md");
    for (row, what) in [
        "tables with points held out",
        "of these within 3 % in the median",
        "within 8 % at p95",
    ]
    .iter()
    .enumerate()
    {
        let cells: Vec<String> = all.iter().map(|counted| counted[row].to_string()).collect();
        let line = format!("| {what} | {} |", cells.join(" | "));
        assert!(
            page.contains(&line),
            "docs/profiles-accuracy.md must have the row {line}"
        );
    }
    let cells: Vec<String> = own.iter().map(|[tables, median, p95]| format!("{tables}: {median} and {p95}")).collect();
    let line = format!(
        "| without: of these within 3 % and 8 % at their own points | {} |",
        cells.join(" | ")
    );
    assert!(
        page.contains(&line),
        "docs/profiles-accuracy.md must have the row {line}"
    );
}

/// How much longer labels take than two of them, as the page says.
#[test]
fn the_page_has_what_labels_cost() {
    let card = Card::embedded("cpu-epyc-zen5").unwrap().unwrap();
    let mut ratios: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let of_two = |row: &TaggingHeadRow| {
        let mut rows = card.tables.tagging_head.iter();
        let at = |row: &TaggingHeadRow| (row.model.clone(), row.batch, row.tokens);
        let two = rows.find(|two| two.classes == 2 && at(two) == at(row));
        two.expect("each has two classes").stats.median_us
    };
    for row in &card.tables.tagging_head {
        ratios.entry(row.classes).or_default().push(row.stats.median_us / of_two(row));
    }
    let mut middle = |classes: u32| {
        let ratios = ratios.get_mut(&classes).expect("they were measured");
        ratios.sort_by(f64::total_cmp);
        (
            ratios.len(),
            ratios[(ratios.len() - 1) / 2],
            ratios[0],
            ratios[ratios.len() - 1],
        )
    };
    let (points, three, ..) = middle(3);
    let ((_, nine, ..), (_, sixteen, least, most)) = (middle(9), middle(16));
    let said = format!(
        "Of the {points} batches, lengths and models of `cpu-epyc-zen5`, three labels take {three:.2} times as long as \
         two in the middle, nine {nine:.2} times and sixteen {sixteen:.2} times, from {least:.2} to {most:.2}."
    );
    let page = include_str!("../../../docs/profiles-accuracy.md").replace('\n', " ");
    assert!(page.contains(&said), "docs/profiles-accuracy.md must say {said}");
}

/// A GPU whose minutes did not do for points held out: each of its tables is checked at its own points.
#[test]
fn the_page_has_the_numbers_of_the_card_without_points_held_out() {
    let card = Card::embedded("h200-sxm").unwrap().unwrap();
    let mut errors = leave_out_errors(&card);
    errors.retain(|error| card.origin(error.family, &error.table).kind == Source::Measured);
    assert!(errors.iter().all(|error| error.of == LeftOut::Own));
    let within = |limit: fn(&&TableError) -> bool| errors.iter().filter(limit).count();
    let said = format!(
        "of {} tables {} are within 3 % in the median and {} within 8 % at p95",
        errors.len(),
        within(|error| error.median < TableError::MEDIAN_LIMIT),
        within(|error| error.p95 < TableError::P95_LIMIT)
    );
    let page = include_str!("../../../docs/profiles-accuracy.md").replace('\n', " ");
    assert!(page.contains(&said), "docs/profiles-accuracy.md must say {said}");
}

/// The tables beyond the limits, the farthest last: where another knot would help most.
#[test]
fn every_table_with_points_held_out_has_an_error() {
    for (name, of, _) in AT_LEAST {
        let mut errors = leave_out_errors(&Card::embedded(name).unwrap().unwrap());
        errors.retain(|error| {
            error.of == LeftOut::HeldOut && kind(&error.table) == of && error.median >= TableError::MEDIAN_LIMIT
        });
        errors.sort_by(|one, other| one.median.total_cmp(&other.median));
        for error in &errors {
            println!(
                "{name}: {} {}: {:.1} %, p95 {:.1} %",
                error.family,
                error.table,
                100.0 * error.median,
                100.0 * error.p95
            );
        }
        assert!(
            errors.iter().all(|error| error.predictions >= 8),
            "{name}: too few points to tell"
        );
    }
}
