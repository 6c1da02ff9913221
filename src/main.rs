//! The command line: one short file for each subcommand in `commands/`, and nothing that a library crate could do.

mod cards;
mod caveats;
mod cli;
mod commands;
#[cfg(feature = "libtorch")]
mod device;
mod failure;
mod interrupt;
mod keep;
mod output;
mod planning;
mod progress;
mod runs;
mod sweep;
mod time_range;

use clap::Parser;

use cli::{Cli, Command};

/// Who reads our output may have enough of it, as `head` has: then the process ends, as others do, and does not panic.
#[cfg(unix)]
fn end_with_the_reader() {
    // SAFETY: no handler of ours is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    end_with_the_reader();
    // What is not could stand in no JSON.
    if let Some(broken) = std::env::args_os().find(|argument| argument.to_str().is_none()) {
        let message = format!("{}: must be UTF-8, got other bytes", broken.to_string_lossy());
        let failure = failure::Failure::BadInput(message);
        eprintln!("{failure}");
        return failure.exit_code();
    }
    let Cli { output, command } = Cli::parse();
    let result = match command {
        Command::Simulate(args) => commands::simulate::run(&args, &output),
        Command::Plan(args) => commands::plan::run(&args, &output),
        Command::Sweep(args) => commands::sweep::run(&args, &output),
        Command::Merge(args) => commands::merge::run(&args, &output),
        #[cfg(feature = "libtorch")]
        Command::Execute(args) => commands::execute::run(&args, &output),
        #[cfg(feature = "libtorch")]
        Command::Validate(args) => commands::validate::run(&args, &output),
        #[cfg(feature = "libtorch")]
        Command::Cascade { command } => commands::cascade::run(&command, &output),
        Command::Trace { command } => commands::trace::run(&command, &output),
        Command::Reproduce(args) => commands::reproduce::run(&args, &output),
        Command::Report(args) => commands::report::run(&args, &output),
        Command::Profile(args) => commands::profile::run(&args, &output),
        Command::New(args) => commands::new::run(&args, &output),
        Command::Check(args) => commands::check::run(&args, &output),
        Command::Schema => commands::schema::run(),
        Command::Presets(args) => commands::presets::run(&args, &output),
        Command::Scenarios(args) => commands::scenarios::run(&args, &output),
        Command::Completions(args) => commands::completions::run(&args, &output),
        Command::Doctor(args) => commands::doctor::run(&args, &output),
        #[cfg(not(feature = "libtorch"))]
        Command::Execute(_) | Command::Validate(_) | Command::Cascade { .. } => {
            Err(failure::Failure::without_libtorch())
        }
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}
