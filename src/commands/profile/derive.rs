//! `tenantry profile derive`: a card from a datasheet, or from a paper's own numbers.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenantry_profiles::paper::{Outcome, Paper, Role, Sensitivity};
use tenantry_profiles::roofline::{Datasheet, Roofline, derive_card};
use tenantry_profiles::{Card, Invalid, describe};
use tenantry_reports::manifest::quoted;

use super::{models, show, table};
use crate::cli::{DeriveArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{check_card_folder, print, say, today};

/// What is derived where no models are named.
const DEFAULT_MODELS: [&str; 3] = ["bert-base", "bert-large", "llama-7b"];

pub fn run(args: &DeriveArgs, output: &OutputArgs) -> Result<(), Failure> {
    match (&args.paper, &args.datasheet) {
        (Some(name), _) => paper(name, args, output),
        (None, Some(sheet)) => datasheet(sheet, args, output),
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

fn save(card: &Card, args: &DeriveArgs, output: &OutputArgs) -> Result<PathBuf, Failure> {
    let out = args.out.clone().unwrap_or_else(|| Path::new("profiles/cards").join(&card.name));
    check_card_folder("--out", &out)?;
    check_replaces(card, &out)?;
    card.save(&out)?;
    say(output, &format!("profile: {}", out.display()));
    Ok(out)
}

/// A card that somebody measured or imported is not replaced by what is computed in an instant, nor hidden by one of
/// its name.
fn check_replaces(card: &Card, out: &Path) -> Result<(), Failure> {
    // What cannot be read is no card of ours, and saving says whether it may go.
    let there = Card::load(out).ok();
    let shipped = match out.parent() == Some(Path::new("profiles/cards")) {
        true => Card::embedded(&card.name)?,
        false => None,
    };
    match there.or(shipped) {
        Some(there) if there.provenance.source != card.provenance.source => Err(Failure::BadInput(format!(
            "{}: must be a card that was {} or no card, got one that was {}; --out says where else this one may go",
            out.display(),
            card.provenance.source,
            there.provenance.source
        ))),
        _ => Ok(()),
    }
}

fn datasheet(name: &str, args: &DeriveArgs, output: &OutputArgs) -> Result<(), Failure> {
    let is_file = name.ends_with(".yaml") || name.ends_with(".yml");
    let sheet = if is_file {
        let text = std::fs::read_to_string(name).map_err(|error| Failure::unreadable(Path::new(name), &error))?;
        Datasheet::read(name, &text)?
    } else {
        Datasheet::builtin(name).map_err(|error| {
            Failure::bad_input(Invalid {
                place: "--datasheet".to_owned(),
                must: format!("a YAML file or {}", error.must),
                ..error
            })
        })?
    };
    let models = models(&args.models, &DEFAULT_MODELS)?;
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    // A file by its name, without the paths of this machine.
    let asked = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or(name);
    let command = format!(
        "tenantry profile derive --datasheet {} --models {}",
        quoted(asked),
        names.join(",")
    );
    let mut card = derive_card(&Roofline::new(sheet), &models, &today(), &command);
    if let Some(name) = args.out.as_deref().and_then(Path::file_name).and_then(|name| name.to_str()) {
        name.clone_into(&mut card.name);
    }
    let out = save(&card, args, output)?;
    let tables = describe(&card);
    let value = json!({ "card": card.name, "folder": out, "digest": card.digest(), "tables": tables.len() });
    print(output, &value, || show::text(&card, &tables))
}

fn paper(name: &str, args: &DeriveArgs, output: &OutputArgs) -> Result<(), Failure> {
    let paper = Paper::load(name)?;
    let card = paper.card();
    let out = save(&card, args, output)?;
    let (outcomes, sensitivities) = (paper.outcomes(&card), paper.sensitivities());
    let value = json!({
        "card": card.name,
        "folder": out,
        "digest": card.digest(),
        "paper": paper.paper(),
        "inputs": paper.numbers(),
        "outcomes": outcomes,
        "sensitivities": sensitivities,
    });
    print(output, &value, || text(&paper, &outcomes, &sensitivities))
}

fn text(paper: &Paper, outcomes: &[Outcome], sensitivities: &[Sensitivity]) -> String {
    let role = |role: Role| match role {
        Role::Input => "input",
        Role::Predicted => "predicted",
        Role::Assumed => "assumed",
    };
    let outcomes = outcomes.iter().map(|outcome| {
        let off = 100.0 * (outcome.ours / outcome.paper - 1.0);
        [
            outcome.what.to_owned(),
            format!("{:.4}", outcome.paper).trim_end_matches('0').trim_end_matches('.').to_owned(),
            format!("{:.4}", outcome.ours).trim_end_matches('0').trim_end_matches('.').to_owned(),
            format!("{off:+.1} %"),
            role(outcome.role).to_owned(),
        ]
    });
    let outcomes = table(
        ["Result, by first-order arithmetic", "Paper", "Ours", "Off", "Kind"],
        outcomes,
        &[1, 2, 3],
    );
    let sensitivities = sensitivities.iter().map(|sensitivity| {
        [
            sensitivity.number.clone(),
            sensitivity.outcome.to_owned(),
            format!("{:+.1} %", 100.0 * sensitivity.less),
            format!("{:+.1} %", 100.0 * sensitivity.more),
        ]
    });
    let sensitivities = table(
        ["Assumption", "Result", "At − 20 %", "At + 20 %"],
        sensitivities,
        &[2, 3],
    );
    format!("{}: {}\n\n{outcomes}\n\n{sensitivities}", paper.name(), paper.paper())
}
