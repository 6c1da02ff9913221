//! `tenantry completions`: what a shell needs to complete commands and flags.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use serde_json::json;
use tenantry_profiles::ModelShape;
use tenantry_scenarios::{presets, shipped_names};

use crate::cards::card_names;
use crate::cli::{CompletionsArgs, OutputArgs, command};
use crate::failure::Failure;
use crate::output::{print, to_stdout};

pub fn run(args: &CompletionsArgs, output: &OutputArgs) -> Result<(), Failure> {
    let mut command = with_names(command(), args.shell);
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tenantry", &mut script);
    if output.json {
        let value = json!({ "shell": args.shell.to_string(), "script": String::from_utf8_lossy(&script) });
        return print(output, &value, String::new);
    }
    to_stdout(&script)
}

/// The same commands with the names that some arguments are for. They are only offered: commands go on taking what else
/// is right.
fn with_names(command: Command, shell: Shell) -> Command {
    let offer = |command: Command, argument: &str, names: &[&str]| {
        let names = PossibleValuesParser::new(names.iter().map(|name| (*name).to_owned()));
        command.mut_arg(argument, |argument| argument.value_parser(names))
    };
    let shipped = shipped_names();
    let cards = card_names();
    let cards: Vec<&str> = cards.iter().map(String::as_str).collect();
    let command = command
        .mut_subcommand("presets", |presets| offer(presets, "name", presets::names()))
        .mut_subcommand("scenarios", |scenarios| offer(scenarios, "name", &shipped))
        .mut_subcommand("new", |new| {
            let new = offer(new, "model", ModelShape::builtin_names());
            let new = offer(new, "systems", presets::names());
            offer(new, "card", &cards)
        });
    // Where a scenario may be a file too, only Bash offers files beside names.
    if shell != Shell::Bash {
        return command;
    }
    command.mut_subcommands(|sub| {
        let takes_scenario = sub.get_arguments().any(|argument| argument.get_id() == "scenario");
        match takes_scenario {
            true => offer(sub, "scenario", &shipped),
            false => sub,
        }
    })
}
