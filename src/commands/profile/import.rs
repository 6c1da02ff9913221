//! `tenantry profile import`: a card from public measurements, or more tables for one.

use serde_json::json;
use tenantry_profiles::{Card, DEFAULT_LAUNCH_OVERHEAD_US, Import, ImportSource, ModelShape, describe};
use tenantry_reports::manifest::quoted;

use super::{built_in, show};
use crate::cli::{ImportArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{check_card_folder, next, print, today};

pub fn run(args: &ImportArgs, output: &OutputArgs) -> Result<(), Failure> {
    let name = args.out.file_name().map(|name| name.to_string_lossy().into_owned());
    let name =
        name.ok_or_else(|| Failure::BadInput(format!("--out: must be a folder's path, got {}", args.out.display())))?;
    check_card_folder("--out", &args.out)?;
    let import = Import {
        source: args.from,
        gpu: args.gpu.clone(),
        models: models(args.from, &args.model)?,
        launch_overhead_us: launch_overhead_us(args.from, args.launch_overhead_us)?,
        files: args.files.clone(),
    };
    let imported = import.run(&name, &today())?;
    let mut card = if args.out.join("card.yaml").is_file() {
        let mut card = Card::load(&args.out)?;
        card.add_imported(&imported).map_err(|invalid| Failure::BadInput(invalid.to_string()))?;
        card
    } else {
        imported
    };
    card.fill_from_datasheet(&args.gpu).map_err(|invalid| Failure::BadInput(invalid.to_string()))?;
    card.save(&args.out)?;
    let tables = describe(&card);
    let value = json!({ "name": card.name, "folder": args.out, "digest": card.digest(), "tables": tables.len() });
    print(output, &value, || show::text(&card, &tables))?;
    next(
        output,
        &format!(
            "tenantry profile show {} --report card.html (its curves)",
            quoted(&args.out.display().to_string())
        ),
    );
    Ok(())
}

/// The models of `--model`, of sources whose files may be of several.
fn models(source: ImportSource, named: &[String]) -> Result<Vec<ModelShape>, Failure> {
    let takes = matches!(source, ImportSource::Vidur | ImportSource::Aiconfigurator);
    match named {
        [name, ..] if !takes => Err(Failure::BadInput(format!(
            "--model: must be left out for {source}, whose files say or fix their model, got {name}"
        ))),
        names => built_in("--model", &names.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}

/// The gap of `--launch-overhead-us`, of the source whose layers are composed of kernels.
fn launch_overhead_us(source: ImportSource, given: Option<f64>) -> Result<f64, Failure> {
    match given {
        Some(us) if source != ImportSource::Aiconfigurator => Err(Failure::BadInput(format!(
            "--launch-overhead-us: must be left out for {source}: aiconfigurator's layers alone are composed with it, got {us}"
        ))),
        given => Ok(given.unwrap_or(DEFAULT_LAUNCH_OVERHEAD_US)),
    }
}
