//! Of the commands that help to write scenarios.

use std::path::PathBuf;

use clap::Args;

use super::ScenarioArgs;

#[derive(Clone, Debug, Args)]
pub struct NewArgs {
    /// Where the scenario goes: a new file.
    #[arg(default_value = "scenario.yaml")]
    pub file: PathBuf,
    /// How many tenants there are.
    #[arg(long, value_name = "N")]
    pub tenants: Option<String>,
    /// The built-in model that they build on.
    #[arg(long)]
    pub model: Option<String>,
    /// Requests a second from all of them, with the unit: 200/s.
    #[arg(long, conflicts_with = "trace")]
    pub rate: Option<String>,
    /// A recorded trace that says when requests arrive and how long they are.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "output"])]
    pub trace: Option<String>,
    /// Tokens of an input.
    #[arg(long, value_name = "TOKENS")]
    pub input: Option<String>,
    /// Tokens of an output, where the model generates.
    #[arg(long, value_name = "TOKENS")]
    pub output: Option<String>,
    /// The latency target, with the unit: 100ms.
    #[arg(long, value_name = "TIME")]
    pub latency: Option<String>,
    /// The share of requests that must meet it: p98.
    #[arg(long, value_name = "QUANTILE")]
    pub at: Option<String>,
    /// The card, by name or folder.
    #[arg(long)]
    pub card: Option<String>,
    /// How many cards.
    #[arg(long, value_name = "N")]
    pub gpus: Option<String>,
    /// Presets to compare; by default three that suit the model.
    #[arg(long, value_delimiter = ',')]
    pub systems: Vec<String>,
    /// Ask nothing: what no flag says takes its default. So it is too where no terminal is there to ask on.
    #[arg(long)]
    pub defaults: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
}

#[derive(Debug, Args)]
pub struct PresetsArgs {
    /// The preset to print.
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScenariosArgs {
    /// The scenario to print.
    pub name: Option<String>,
}
