//! What the two programs have in common: the command line, with one short file for each subcommand in `commands/`, and
//! nothing that a library crate could do.
//!
//! `tenantry` (`main.rs`) needs no libtorch, whose loading takes a fraction of a second that simulations are not to
//! pay. What is done on a device of this machine it leaves to `tenantry-torch` (`torch/main.rs`), which lies beside it.

#![allow(missing_docs, reason = "nobody but the two programs uses what is public here")]

pub mod cards;
pub mod caveats;
pub mod cli;
pub mod commands;
pub mod failure;
pub mod interrupt;
pub mod keep;
mod lookups;
pub mod output;
mod planning;
pub mod progress;
pub mod runs;
mod sweep;
mod time_range;

use std::process::ExitCode;

use cli::{CascadeCommand, Cli, Command, DoctorArgs, ExecuteArgs, OutputArgs, ProfileArgs, ValidateArgs};
use failure::Failure;

/// What needs libtorch.
pub enum OnDevice {
    Execute(ExecuteArgs),
    Validate(ValidateArgs),
    Cascade(CascadeCommand),
    Profile(ProfileArgs),
    Doctor(DoctorArgs),
}

/// Who reads our output may have enough of it, as `head` has: then the process ends, as others do, and does not panic.
#[cfg(unix)]
fn end_with_the_reader() {
    // SAFETY: no handler of ours is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Does what the command line asks for, leaving what needs libtorch to `on_device`.
pub fn main(on_device: impl FnOnce(OnDevice, &OutputArgs) -> Result<(), Failure>) -> ExitCode {
    #[cfg(unix)]
    end_with_the_reader();
    // What is not could stand in no JSON.
    if let Some(broken) = std::env::args_os().find(|argument| argument.to_str().is_none()) {
        let message = format!("{}: must be UTF-8, got other bytes", broken.to_string_lossy());
        let failure = Failure::BadInput(message);
        eprintln!("{failure}");
        return failure.exit_code();
    }
    let Cli { output, command } = Cli::of_process();
    let result = match command {
        Command::Simulate(args) => commands::simulate::run(&args, &output),
        Command::Plan(args) => commands::plan::run(&args, &output),
        Command::Sweep(args) => commands::sweep::run(&args, &output),
        Command::Merge(args) => commands::merge::run(&args, &output),
        Command::Execute(args) => on_device(OnDevice::Execute(args), &output),
        Command::Validate(args) => on_device(OnDevice::Validate(args), &output),
        Command::Cascade { command } => on_device(OnDevice::Cascade(command), &output),
        Command::Trace { command } => commands::trace::run(&command, &output),
        Command::Reproduce(args) => commands::reproduce::run(&args, &output),
        Command::Report(args) => commands::report::run(&args, &output),
        Command::Profile(mut args) => match args.command.take() {
            Some(command) => commands::profile::run(&command, &args, &output),
            None => on_device(OnDevice::Profile(args), &output),
        },
        Command::New(args) => commands::new::run(&args, &output),
        Command::Check(args) => commands::check::run(&args, &output),
        Command::Schema => commands::schema::run(),
        Command::Presets(args) => commands::presets::run(&args, &output),
        Command::Scenarios(args) => commands::scenarios::run(&args, &output),
        Command::Completions(args) => commands::completions::run(&args, &output),
        Command::Doctor(args) => on_device(OnDevice::Doctor(args), &output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
