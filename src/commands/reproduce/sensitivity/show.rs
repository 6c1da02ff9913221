//! How sensitivities are shown: a table for each card on the terminal, and as Markdown.

use std::fmt::Write as _;

use tenantry_profiles::paper::LEAST_CHANGE;
use tenantry_reports::terminal::{self, Style};

use super::{AsIs, Assumption, OfCard, Outcome, Varied};
use crate::commands::reproduce::number::{signed, with_unit};

const HEADER: [&str; 6] = ["Assumption", "Value", "Main result", "At −20 %", "As is", "At +20 %"];

/// From this relative change on an assumption carries a result.
const CARRIES: f64 = 0.05;

/// One for each assumption and main result.
fn rows(card: &OfCard) -> Vec<[String; HEADER.len()]> {
    let of_assumption = |assumption: &Assumption| {
        let number = format!("`{}`", assumption.number);
        let value = format!("{} {}", assumption.value, assumption.unit).trim_end().to_owned();
        let row = |(index, AsIs { result, ours }): (usize, &AsIs)| {
            let [less, more] = [&assumption.less, &assumption.more].map(|varied| cell(varied, index, result.unit));
            let what = format!("{}: {}", result.figure, result.what);
            [
                number.clone(),
                value.clone(),
                what,
                less,
                with_unit(*ours, result.unit),
                more,
            ]
        };
        card.results.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    card.assumptions.iter().flat_map(of_assumption).collect()
}

fn cell(varied: &Varied, result: usize, unit: &str) -> String {
    match &varied.outcome {
        Outcome::Simulated { .. } if varied.rounded_away => "as is: rounding leaves the value".to_owned(),
        Outcome::Simulated { results, changes } => {
            let change = signed(100.0 * changes[result], 1);
            format!("{} ({change} %)", with_unit(results[result], unit))
        }
        Outcome::Refused { refused } => format!("refused: {refused}"),
    }
}

/// Which assumptions carry the card's main results, and which change none.
fn verdict(card: &OfCard) -> String {
    let greatest = |assumption: &Assumption| {
        let of_result = |result| [&assumption.less, &assumption.more].map(|varied| varied.outcome.change(result));
        let changes = (0..card.results.len()).flat_map(of_result).flatten();
        changes.fold(0.0, |greatest: f64, change| greatest.max(change.abs()))
    };
    let named = |of: &dyn Fn(f64) -> bool| {
        let names = card.assumptions.iter().filter(|assumption| of(greatest(assumption)));
        let names: Vec<String> = names.map(|assumption| format!("`{}`", assumption.number)).collect();
        match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        }
    };
    format!(
        "More than {:.0} %: {}. Less than 0.05 %: {}.",
        100.0 * CARRIES,
        named(&|change| change > CARRIES),
        named(&|change| change < LEAST_CHANGE),
    )
}

/// The main results beside the paper's.
fn results(card: &OfCard) -> String {
    let one = |AsIs { result, ours }: &AsIs| {
        let paper = result.paper.map_or("no number".to_owned(), |paper| with_unit(paper, result.unit));
        let (figure, what) = (result.figure, result.what);
        format!(
            "- {figure}, {what}: {} (paper: {paper})\n",
            with_unit(*ours, result.unit)
        )
    };
    card.results.iter().map(one).collect()
}

/// For the terminal.
pub fn text(card: &OfCard, style: Style) -> String {
    let header = HEADER.map(str::to_owned).to_vec();
    let rows = rows(card).into_iter().map(|row| row.map(|cell| cell.replace('`', "")).to_vec());
    let table: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    let verdict = verdict(card).replace('`', "");
    let table = terminal::figures(&table, style);
    format!("{}, {}\n{}\n{table}\n{verdict}", card.card, card.paper, results(card))
}

/// For the folder.
pub fn markdown(card: &OfCard) -> String {
    let mut text = format!(
        "## {}\n\n{}.\n\n{}\n{}\n\n",
        card.card,
        card.paper,
        results(card),
        verdict(card)
    );
    writeln!(
        text,
        "| {} |\n| --- | ---: | --- | ---: | ---: | ---: |",
        HEADER.join(" | ")
    )
    .expect("strings are writable");
    for row in rows(card) {
        let cells = row.map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.join(" | ")).expect("strings are writable");
    }
    text
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::paper::Knowledge;

    use super::super::leading::LEADING;
    use super::*;

    fn simulated(value: f64, rounded_away: bool, result: f64) -> Varied {
        Varied {
            value,
            rounded_away,
            outcome: Outcome::simulated(vec![result], &[2.0]),
        }
    }

    fn assumption(number: &str, less: Varied, more: Varied) -> Assumption {
        Assumption {
            number: number.into(),
            kind: Knowledge::Assumed,
            value: 2.0,
            unit: "kernels".into(),
            less,
            more,
        }
    }

    #[test]
    fn what_has_no_result_says_why() {
        let card = OfCard {
            card: "paper-p5000",
            paper: "HMI".into(),
            results: vec![AsIs {
                result: LEADING[0].results[0],
                ours: 2.0,
            }],
            assumptions: vec![
                assumption("carries", simulated(1.6, false, 1.8), simulated(2.4, false, 2.1)),
                assumption("whole", simulated(2.0, true, 2.0), simulated(2.0, true, 2.0)),
                assumption(
                    "idle",
                    simulated(1.6, false, f64::INFINITY),
                    simulated(2.4, false, 2.02),
                ),
            ],
        };
        let page = markdown(&card);
        let row = |number: &str| page.lines().find(|line| line.starts_with(&format!("| `{number}`"))).unwrap();
        assert!(
            row("carries").contains("| 1.80 × (−10.0 %) | 2.00 × | 2.10 × (+5.0 %) |"),
            "{page}"
        );
        assert_eq!(row("whole").matches("rounding leaves the value").count(), 2, "{page}");
        assert!(row("idle").contains("| refused: no request was answered |"), "{page}");
        assert!(
            page.contains("More than 5 %: `carries`. Less than 0.05 %: `whole`."),
            "{page}"
        );
    }
}
