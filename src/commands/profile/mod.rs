//! `tenantry profile show`, `compare`, `derive` and `import`: what measures nothing.

mod compare;
mod derive;
mod import;
mod plots;
pub mod show;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use tenantry_profiles::{DType, ModelShape, did_you_mean};

use crate::cli::{OutputArgs, ProfileArgs, ProfileCommand, Suite};
use crate::failure::Failure;

/// Does what is asked; `beside` are the other options of `tenantry profile`, which say what to measure.
pub fn run(command: &ProfileCommand, beside: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    if let Some(option) = measuring(beside) {
        return Err(Failure::BadInput(format!(
            "{option}: must be left out beside show, compare, derive and import, which measure nothing, got one"
        )));
    }
    match command {
        ProfileCommand::Show(show) => show::run(show, output),
        ProfileCommand::Compare(compare) => compare::run(compare, output),
        ProfileCommand::Derive(derive) => derive::run(derive, output),
        ProfileCommand::Import(import) => import::run(import, output),
    }
}

/// A table for the terminal, with these columns to the right.
fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>, figures: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for &column in figures {
        let column = table.column_mut(column).expect("the header has it");
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// An option that says what is measured, where another than its default was given. That all commands have `--json` and
/// `--quiet` keeps this from being left to clap.
fn measuring(args: &ProfileArgs) -> Option<&'static str> {
    let given = [
        ("--device", args.device.is_some()),
        ("--suite", args.suite != Suite::Quick),
        ("--dtype", args.dtype != DType::F32),
        ("--minutes", args.minutes.is_some()),
        ("--models", !args.models.is_empty()),
        ("--for", !args.scenarios.is_empty()),
        ("--add", args.add),
        ("--again", args.again),
        ("--out", args.out.is_some()),
    ];
    given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
}

/// The built-in models of `--models`, or these where it names none.
pub fn models(named: &[String], otherwise: &[&str]) -> Result<Vec<ModelShape>, Failure> {
    let names: Vec<&str> = match named {
        [] => otherwise.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    built_in("--models", &names)
}

/// The built-in models that an option names, each once.
fn built_in(option: &str, names: &[&str]) -> Result<Vec<ModelShape>, Failure> {
    if let Some((_, again)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
        return Err(Failure::BadInput(format!(
            "{option}: must be each model once, got {again} twice"
        )));
    }
    let known = ModelShape::builtin_names();
    let model = |name: &&str| {
        ModelShape::builtin(name).ok_or_else(|| {
            let meant = did_you_mean(name, known.iter().copied());
            Failure::BadInput(format!(
                "{option}: must be among {}, got {name}{meant}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(model).collect()
}
