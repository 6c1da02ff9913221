//! What the page of a profile draws, a file for each kind of op. A card has up to a dozen models in several number
//! formats: a chart shows one table at a time, and of its sizes as many as can be told apart.

mod layers;
mod moves;
pub mod roofline;
mod side_by_side;
mod tenants;

use tenantry_profiles::{Card, DType};
use tenantry_reports::page::{Curves, CurvesView, Mark, Series};

/// The charts of a card; those without lines are left out by the page.
pub fn curves(card: &Card) -> Vec<Curves> {
    vec![
        layers::by_tokens(card),
        layers::by_batch(card),
        roofline::roofline(card),
        moves::copies(card),
        layers::dense(card),
        layers::decode(card),
        tenants::adapters(card),
        tenants::lora_by_tenants(card),
        tenants::lora_by_rank(card),
        moves::lookups(card),
        side_by_side::layers(card),
        side_by_side::models(card),
        side_by_side::tasks(card),
        side_by_side::steps(card),
    ]
}

/// Lines of a chart that are told apart at a glance.
const LINES: usize = 6;

/// Rows under the name that each has, in the order in which names first appear.
fn grouped<'r, R>(rows: impl IntoIterator<Item = &'r R>, name: impl Fn(&R) -> String) -> Vec<(String, Vec<&'r R>)> {
    let mut groups: Vec<(String, Vec<&R>)> = Vec::new();
    for row in rows {
        let name = name(row);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

/// A view of these rows: a line for each name, along `x`.
fn view<'r, R>(
    option: String,
    rows: impl IntoIterator<Item = &'r R>,
    name: impl Fn(&R) -> String,
    place: impl Fn(&R) -> (f64, f64),
) -> CurvesView
where
    R: 'r,
{
    let lines = grouped(rows, name).into_iter().map(|(name, rows)| {
        let mut points: Vec<(f64, f64)> = rows.into_iter().map(&place).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series {
            name,
            mark: Mark::Line,
            points,
        }
    });
    CurvesView {
        option,
        series: lines.collect(),
    }
}

/// At most so many of the values, from the least to the most, as evenly spread among the others as can be.
fn few(values: impl IntoIterator<Item = u32>, most: usize) -> Vec<u32> {
    let mut values: Vec<u32> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    match values.len() <= most {
        true => values,
        false => (0..most).map(|i| values[i * (values.len() - 1) / (most - 1)]).collect(),
    }
}

/// What charts call a table of a model.
fn table(model: &str, dtype: DType) -> String {
    format!("{model} {dtype}")
}

/// The same of a decoder whose layers several cards may share.
fn shared_table(model: &str, dtype: DType, tensor_parallel: u32) -> String {
    match tensor_parallel {
        1 => table(model, dtype),
        cards => format!("{}, {cards} cards", table(model, dtype)),
    }
}

/// `one` or `many` by the number, after it.
fn counted(number: u32, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;
    use tenantry_profiles::{Card, Tables};

    use super::*;
    use crate::cards::{card_names, find_card};

    /// The points of a line of a card's chart.
    pub fn line(card: &Card, id: &str, option: &str, name: &str) -> Vec<(f64, f64)> {
        let chart = curves(card).into_iter().find(|curves| curves.id == id);
        let view = chart.and_then(|chart| chart.views.into_iter().find(|view| view.option == option));
        let view = view.unwrap_or_else(|| panic!("{id} has no {option}"));
        let found = view.series.into_iter().find(|series| series.name == name);
        found.unwrap_or_else(|| panic!("{id} has no {name} of {option}")).points
    }

    #[test]
    fn few_are_spread_from_the_least_to_the_most() {
        assert_eq!(few([8, 1, 2, 4, 2], 3), [1, 2, 8]);
        assert_eq!(few([3, 1], 3), [1, 3]);
        assert_eq!(few(0..100, 4), [0, 33, 66, 99]);
        assert!(few([], 3).is_empty());
    }

    #[test]
    fn no_shipped_card_has_more_lines_in_a_chart_than_can_be_told_apart() {
        for name in card_names() {
            for chart in curves(&find_card(&name).unwrap()) {
                for view in &chart.views {
                    assert!(view.series.len() <= LINES, "{name}: {} {}", chart.id, view.option);
                    for series in &view.series {
                        let xs = series.points.iter().map(|point| point.0);
                        assert!(xs.is_sorted(), "{name}: {} {} {}", chart.id, view.option, series.name);
                        let positive = series.points.iter().all(|(x, y)| *x > 0.0 && *y > 0.0);
                        assert!(positive, "{name}: {} {} {}", chart.id, view.option, series.name);
                    }
                }
                let options = chart.views.iter().map(|view| &view.option);
                let different: std::collections::BTreeSet<_> = options.collect();
                assert_eq!(different.len(), chart.views.len(), "{name}: {}", chart.id);
            }
        }
    }

    #[test]
    fn a_card_without_a_family_has_no_chart_of_it() {
        let card = synthetic_card();
        let tables = Tables {
            copy: card.tables.copy.clone(),
            ..Tables::default()
        };
        let drawn = curves(&Card { tables, ..card });
        let drawn = drawn.iter().filter(|chart| !chart.views.is_empty());
        assert_eq!(drawn.map(|chart| chart.id).collect::<Vec<_>>(), ["copies"]);
    }
}
