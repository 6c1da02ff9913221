//! Questions on a terminal.

use std::io::{ErrorKind, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialoguer::console::Term;
use dialoguer::theme::ColorfulTheme;
use dialoguer::{Input, Select};

use crate::failure::Failure;
use crate::interrupt;

/// A terminal on which somebody answers. Ctrl-C, and Escape in a list, end the dialogue.
pub struct Dialogue {
    stop: Arc<AtomicBool>,
}

impl Dialogue {
    /// Whether somebody is there to answer: questions go to standard error, answers come from standard input.
    pub fn is_possible() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Begins.
    pub fn new() -> Dialogue {
        Dialogue {
            stop: interrupt::flag(),
        }
    }

    /// A line of text; Enter takes the default. What does not fit is said, and asked again.
    pub fn text(
        &self,
        question: &str,
        default: &str,
        fits: impl Fn(&str) -> Result<(), String>,
    ) -> Result<String, Failure> {
        self.go_on()?;
        let theme = ColorfulTheme::default();
        let input: Input<'_, String> = Input::with_theme(&theme)
            .with_prompt(question)
            .default(default.to_owned())
            .validate_with(|answer: &String| fits(answer.trim()));
        let answer = input.interact_text().map_err(failed)?;
        Ok(answer.trim().to_owned())
    }

    /// One of several, by arrow keys: its index.
    pub fn one_of(&self, question: &str, items: &[String], default: usize) -> Result<usize, Failure> {
        self.go_on()?;
        let chosen = Select::with_theme(&ColorfulTheme::default())
            .with_prompt(question)
            .items(items)
            .default(default)
            .interact_opt()
            .map_err(failed)?;
        chosen.ok_or_else(stopped)
    }

    /// Ctrl-C may have come between two questions.
    fn go_on(&self) -> Result<(), Failure> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(stopped()),
            false => Ok(()),
        }
    }
}

fn failed(dialoguer::Error::IO(error): dialoguer::Error) -> Failure {
    match error.kind() {
        ErrorKind::Interrupted => stopped(),
        _ => Failure::running(format!("the terminal: {error}")),
    }
}

fn stopped() -> Failure {
    // A list hides the cursor, and a question's line is not at its end. Nothing is lost where that cannot be mended.
    let terminal = Term::stderr();
    terminal.show_cursor().and_then(|()| terminal.write_line("")).ok();
    Failure::Interrupted("nothing is written".into())
}
