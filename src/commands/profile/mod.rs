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

use tenantry_profiles::{ModelShape, did_you_mean};

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
    built_in("--models", &names)
}

/// The built-in models that an option names, each once.
fn built_in(option: &str, names: &[&str]) -> Result<Vec<ModelShape>, Failure> {
    if let Some((_, again)) = { names.iter().enumerate() }.find(|(index, name)| names[..*index].contains(name)) {
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
