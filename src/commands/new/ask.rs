//! Questions on a terminal.

use dialoguer::theme::ColorfulTheme;
use dialoguer::{Input, Select};

use crate::failure::Failure;

/// A line of text; Enter takes the default.
pub fn text(question: &str, default: &str) -> Result<String, Failure> {
    let theme = ColorfulTheme::default();
    let input: Input<'_, String> = Input::with_theme(&theme)
        .with_prompt(question)
        .default(default.to_owned());
    input.interact_text().map_err(stopped)
}

/// One of several, by arrow keys.
pub fn one_of(question: &str, names: &[&str], default: &str) -> Result<String, Failure> {
    let at = names.iter().position(|name| *name == default).unwrap_or(0);
    let chosen = Select::with_theme(&ColorfulTheme::default())
        .with_prompt(question)
        .items(names)
        .default(at)
        .interact()
        .map_err(stopped)?;
    Ok(names[chosen].to_owned())
}

fn stopped(_: dialoguer::Error) -> Failure {
    Failure::Interrupted("nothing is written".into())
}
