//! `docs/paper-cards.md` holds what the papers' inputs make: every number with its source, what follows from it, and
//! what each assumption weighs. Run with `UPDATE=1` to write the page's generated part and the committed cards again.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use tenantry_profiles::paper::{Knowledge, Paper, Role};
use tenantry_profiles::roofline::Datasheet;
use tenantry_profiles::{AdapterImplementation, DType, Family, ModelShape, Source};

const PAGE: &str = "../docs/paper-cards.md";
const BEGIN: &str =
    "<!-- generated from here on: UPDATE=1 cargo test -p tenantry-profiles --test all paper_cards -->\n";

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

/// Of many tokens LoRA's products cost at least what it takes to read and write what goes in and out of them, whoever
/// computes them.
#[test]
fn no_lora_is_faster_than_the_memory() {
    let model = ModelShape::builtin("llama-7b").unwrap();
    // Four square projections, and the three of a gated MLP.
    let (hidden, intermediate) = (f64::from(model.hidden), f64::from(model.intermediate));
    let ends = 4.0 * 2.0 * hidden + 3.0 * (hidden + intermediate);
    for (card, sheet) in [("paper-a100-80g", "a100-pcie"), ("paper-a100-40g", "a100-sxm-40g")] {
        let card = Paper::load(card).unwrap().card();
        let bandwidth = Datasheet::builtin(sheet).unwrap().memory_bandwidth;
        let us = |implementation, tenants, tokens| {
            let surface = card.lora(&model, DType::F16, implementation, 16, 1).unwrap();
            surface.cost(tenants, tokens).median_ns as f64 / 1e3
        };
        for tokens in [256, 1024, 4096] {
            let least_us = 1e6 * f64::from(tokens) * ends * 2.0 / bandwidth;
            let grouped_us = us(AdapterImplementation::Grouped, 1, tokens);
            let others = [AdapterImplementation::Loop, AdapterImplementation::GatherBmm];
            let others_us = others.map(|implementation| us(implementation, 1, tokens));
            assert!(grouped_us > least_us, "{tokens}: {grouped_us} of {least_us} µs");
            assert!(
                others_us.iter().all(|us| *us > grouped_us),
                "{tokens}: {others_us:?}, grouped {grouped_us}"
            );
        }
    }
}

/// Fig. 9's lines where requests share weights: 42 to 45 µs up to 64 requests, of which uniform ones are of 8 tenants,
/// skewed ones of 9.
#[test]
fn lora_of_a_few_tenants_costs_what_that_of_one_does() {
    let (card, model) = (
        Paper::load("paper-a100-80g").unwrap().card(),
        ModelShape::builtin("llama-7b").unwrap(),
    );
    for rank in [8, 16, 32, 64] {
        let surface = card.lora(&model, DType::F16, AdapterImplementation::Grouped, rank, 1).unwrap();
        let growth = |tenants| surface.cost(tenants, 64).median_ns as f64 / surface.cost(1, 1).median_ns as f64;
        for tenants in [1, 8, 9] {
            assert!(
                (growth(tenants) / (45.0 / 42.0) - 1.0).abs() < 0.035,
                "{rank}: {}",
                growth(tenants)
            );
        }
        assert!(growth(64) > 1.5, "{rank}: {}", growth(64));
    }
}

/// HMI's figure of its SSD is of a text; of a decoder's single tokens it says nothing.
#[test]
fn what_an_ssd_takes_for_a_decoders_token_is_not_called_fitted() {
    let card = Paper::load("paper-p5000").unwrap().card();
    let kind = |table: &str| card.origin(Family::PlotLookup, table).kind;
    assert_eq!(kind("model=opt-125m tier=disk"), Source::Assumed);
    assert_eq!(kind("model=opt-125m tier=memory"), Source::Fitted);
    let of_texts = card.origin(Family::PlotLookup, "model=bert-base tier=disk");
    assert!(
        of_texts.kind == Source::Fitted && of_texts.source.contains("assumed below 128"),
        "{of_texts:?}"
    );
}
