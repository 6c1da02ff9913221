//! `tenantry completions`: what a shell needs to complete commands and flags.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};

pub fn run(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut Cli::command(), "tenantry", &mut std::io::stdout());
}
