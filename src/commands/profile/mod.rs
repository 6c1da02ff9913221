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
