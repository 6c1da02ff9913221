//! `tenantry trace`: describe, convert and generate traces, and fit generators to them.

mod columns;
mod convert;
mod dense;
mod fit;
mod generate;
mod info;
pub mod names;
pub mod source;
mod workload;

use crate::cli::{OutputArgs, TraceCommand};
use crate::failure::Failure;

pub fn run(command: &TraceCommand, output: &OutputArgs) -> Result<(), Failure> {
    match command {
        TraceCommand::Info(args) => info::run(args, output),
        TraceCommand::Convert(args) => convert::run(args, output),
        TraceCommand::Generate(args) => generate::run(args, output),
        TraceCommand::Fit(args) => fit::run(args, output),
    }
}
