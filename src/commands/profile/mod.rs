//! `tenantry profile`: measure a card, or look at a profile.

mod compare;
mod derive;
mod import;
#[cfg(feature = "libtorch")]
mod measure;
#[cfg(feature = "libtorch")]
mod needs;
mod plots;
mod show;

#[cfg(feature = "libtorch")]
pub use needs::models_of;

use tenantry_profiles::{ModelShape, near_miss};

use crate::cli::{OutputArgs, ProfileArgs, ProfileCommand};
use crate::failure::Failure;

pub fn run(args: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    match &args.command {
        Some(ProfileCommand::Show(show)) => show::run(show, output),
        Some(ProfileCommand::Compare(compare)) => compare::run(compare, output),
        Some(ProfileCommand::Derive(derive)) => derive::run(derive, output),
        Some(ProfileCommand::Import(import)) => import::run(import, output),
        #[cfg(feature = "libtorch")]
        None => measure::run(args, output),
        #[cfg(not(feature = "libtorch"))]
        None => Err(Failure::without_libtorch()),
    }
}

/// The built-in models of `--models`, or these where it names none.
fn models(named: &[String], otherwise: &[&str]) -> Result<Vec<ModelShape>, Failure> {
    let names: Vec<&str> = match named {
        [] => otherwise.to_vec(),
        named => named.iter().map(String::as_str).collect(),
    };
    if let Some(again) =
        { names.iter().enumerate() }.find_map(|(index, name)| names[..index].contains(name).then_some(name))
    {
        return Err(Failure::BadInput(format!(
            "--models: must be each model once, got {again} twice"
        )));
    }
    let known = ModelShape::builtin_names();
    let model = |name: &str| {
        ModelShape::builtin(name).ok_or_else(|| {
            let near = near_miss(name, known.iter().copied());
            let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
            Failure::BadInput(format!(
                "--models: must be among {}, got {name}{near}",
                known.join(", ")
            ))
        })
    };
    names.into_iter().map(model).collect()
}
