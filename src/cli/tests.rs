use std::any::TypeId;
use std::iter;
use std::path::PathBuf;

use clap::Command;

use super::{command, number, whole};

/// A command and all that it has, but for what prints help.
fn all(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|below| below.get_name() != "help");
    iter::once(command).chain(below.flat_map(all)).collect()
}

/// What a command's help shows as examples, which stand before what else it says.
fn examples(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    help.split("\n\n").next().unwrap_or_default().to_owned()
}

/// As a shell takes it apart: here quotes stand around whole words.
fn words(example: &str) -> Vec<String> {
    let parts = example.split('\'').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Clap breaks what is wider than the terminal, and half a command is another one.
#[test]
fn examples_fit_a_terminal_of_80_columns() {
    for command in all(&command()) {
        for line in examples(command).lines() {
            assert!(line.chars().count() <= 76, "{}: {line}", command.get_name());
        }
    }
}

#[test]
fn examples_are_taken() {
    let root = command();
    let mut count = 0;
    for of in all(&root) {
        let joined = examples(of).replace("\\\n", " ");
        for example in joined.lines().filter(|line| *line != "Examples:") {
            let example = example.trim_start_matches("Example: ");
            let words = words(example);
            // Where the answer goes is the shell's business.
            let given = words.iter().take_while(|word| *word != ">");
            let taken = root.clone().try_get_matches_from(given);
            assert!(taken.is_ok(), "{example}: {}", taken.unwrap_err());
            count += 1;
        }
    }
    assert!(count > 30, "{count} examples");
}

#[test]
fn what_all_commands_have_stands_behind_their_own_options() {
    let mut root = command();
    root.build();
    for command in all(&root) {
        let help = command.clone().render_long_help().to_string();
        let before_examples = help.split("\nExample").next().unwrap_or_default();
        let lines = before_examples.lines().map(str::trim_start);
        let options = lines.filter(|line| line.starts_with('-'));
        let options: Vec<&str> = options
            .filter_map(|line| line.split(' ').find(|word| word.starts_with("--")))
            .filter(|option| *option != "--version")
            .collect();
        let name = command.get_name();
        assert!(
            options.ends_with(&["--json", "--quiet", "--help"]),
            "{name}: {options:?}"
        );
    }
}

#[test]
fn options_take_numbers_below_0_and_name_devices() {
    for command in all(&command()) {
        let options = command.get_opts().filter(|option| option.get_action().takes_values());
        for option in options {
            let which = format!("{} {}", command.get_name(), option.get_id());
            let is_file = option.get_value_parser().type_id() == TypeId::of::<PathBuf>();
            assert_ne!(option.is_allow_negative_numbers_set(), is_file, "{which}");
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            let names_devices = help.contains("cpu or cuda:N") || help.contains("cpu, or cuda:N");
            assert_eq!(option.get_id() == "device", names_devices, "{which}");
        }
    }
}

#[test]
fn numbers_are_told_what_they_must_be() {
    assert_eq!((number("-1.5e2"), whole(2..=3)("3")), (Ok(-150.0), Ok(3)));
    for text in ["a", "", "1,5", "nan", "inf"] {
        assert_eq!(number(text), Err(format!("must be a number, got {text}")));
    }
    for text in ["7", "-1", "2.5", "two"] {
        let refused = format!("must be a whole number from 2 to 3, got {text}");
        assert_eq!(whole(2..=3)(text), Err(refused));
    }
}
