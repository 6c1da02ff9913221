//! `tenantry profile`: measure a card, or look at a profile.

#[cfg(feature = "libtorch")]
mod measure;
mod show;

use crate::cli::{OutputArgs, ProfileArgs, ProfileCommand};
use crate::failure::Failure;

pub fn run(args: &ProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    match &args.command {
        Some(ProfileCommand::Show { card }) => show::run(card, output),
        #[cfg(feature = "libtorch")]
        None => measure::run(args, output),
        #[cfg(not(feature = "libtorch"))]
        None => Err(Failure::without_libtorch()),
    }
}
