//! `docs/paper-cards.md` holds what the papers' inputs make: every number with its source, what follows from it, and what each
//! assumption weighs. Run with `UPDATE=1` to write the page's generated part and the committed cards again.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use tenantry_profiles::paper::{Knowledge, Paper, Role};

const PAGE: &str = "../docs/paper-cards.md";
const BEGIN: &str =
    "<!-- generated from here on: UPDATE=1 cargo test --release -p tenantry-profiles --test paper_cards -->\n";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn figure(value: f64) -> String {
    let digits = if value.abs() >= 100.0 { 1 } else { 3 };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn section(paper: &Paper) -> String {
    let mut text = format!("\n## {}\n\n{}.\n\n", paper.name(), paper.paper());
    text += "| result, by first-order arithmetic | paper | ours | off | kind |\n| --- | ---: | ---: | ---: | --- |\n";
    for outcome in paper.outcomes(&paper.card()) {
        let role = match outcome.role {
            Role::Input => "input",
            Role::Predicted => "predicted",
            Role::Assumed => "assumed",
        };
        let off = 100.0 * (outcome.ours / outcome.paper - 1.0);
        let (theirs, ours) = (figure(outcome.paper), figure(outcome.ours));
        writeln!(
            text,
            "| {} | {theirs} | {ours} | {off:+.1} % | {role} |",
            cell(outcome.what)
        )
        .unwrap();
    }
    let sensitivities = paper.sensitivities();
    text += "\n| assumption | value | why | − 20 % and + 20 % change |\n| --- | ---: | --- | --- |\n";
    for (name, number) in paper.numbers().iter().filter(|(_, number)| number.kind.is_chosen()) {
        let of_it = sensitivities.iter().filter(|sensitivity| sensitivity.number == *name);
        let changes: Vec<String> = of_it
            .map(|sensitivity| {
                let [less, more] = [sensitivity.less, sensitivity.more].map(|change| 100.0 * change);
                format!("{} {less:+.1} and {more:+.1} %", cell(sensitivity.outcome))
            })
            .collect();
        let changes = if changes.is_empty() {
            format!(
                "none of these; [of main results that are simulated](sensitivity.md#{})",
                paper.name()
            )
        } else {
            changes.join("; ")
        };
        let unit = &number.unit;
        let why = match number.kind {
            Knowledge::Interpreted => format!("stated, its setting interpreted: {}", number.source),
            _ => number.source.clone(),
        };
        writeln!(
            text,
            "| `{name}` | {} {unit} | {} | {changes} |",
            number.value,
            cell(&why)
        )
        .unwrap();
    }
    text += "\n| number | value | kind | source |\n| --- | ---: | --- | --- |\n";
    for (name, number) in paper.numbers().iter().filter(|(_, number)| !number.kind.is_chosen()) {
        let kind = match number.kind {
            Knowledge::Stated => "stated",
            Knowledge::Published => "published elsewhere",
            Knowledge::Interpreted | Knowledge::Assumed => unreachable!("they were left out"),
        };
        let (value, unit) = (number.value, &number.unit);
        writeln!(
            text,
            "| `{name}` | {value} {unit} | {kind} | {} |",
            cell(&number.source)
        )
        .unwrap();
    }
    text
}

#[test]
fn the_page_holds_what_the_inputs_make() {
    let papers: Vec<Paper> = Paper::names().iter().map(|name| Paper::load(name).unwrap()).collect();
    let made: String = papers.iter().map(section).collect();
    let page = fs::read_to_string(PAGE).unwrap();
    let (prose, generated) = page.split_once(BEGIN).expect("the page marks what is generated");
    if env::var_os("UPDATE").is_some() {
        fs::write(PAGE, format!("{prose}{BEGIN}{made}")).unwrap();
        for paper in &papers {
            paper.card().save(&Path::new("cards").join(paper.name())).unwrap();
        }
        return;
    }
    assert!(
        generated == made,
        "docs/paper-cards.md is not what its inputs make: run this test with UPDATE=1"
    );
}
