//! The arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Which serving policy, on how much GPU, meets my latency target when thousands of tenants each have their own fine-tuned
/// transformer?
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// How much is said, and to whom.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Say only what is wrong.
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Print the result to standard output as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a scenario's systems on the virtual machine.
    #[command(after_help = "Example: tenantry simulate scenarios/quickstart.yaml --set tenants.count=5000")]
    Simulate(SimulateArgs),
    /// Run a scenario's systems for real, through libtorch.
    #[command(after_help = "Example: tenantry execute scenarios/quickstart.yaml --device cpu")]
    Execute(ExecuteArgs),
    /// Simulate and execute the same requests, and compare.
    #[command(
        after_help = "Example: tenantry validate scenarios/quickstart.yaml --device cpu --repeats 3\n\n\
                            Exits with 3 when the differences exceed the scenario's `validate:` limits."
    )]
    Validate(ValidateArgs),
    /// Measure a card, or look at a profile.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  tenantry profile --device cpu --suite quick\n  \
                      tenantry profile --device cpu --for scenarios/quickstart.yaml --out out/cpu\n  \
                      tenantry profile show cpu"
    )]
    Profile(ProfileArgs),
    /// Say whether a scenario is valid, and what it resolves to.
    #[command(after_help = "Example: tenantry check scenarios/quickstart.yaml")]
    Check(CheckArgs),
    /// Print the JSON Schema of scenarios, for editors.
    #[command(after_help = "Example: tenantry schema > scenario.schema.json")]
    Schema,
    /// List the presets, or print one as YAML to copy and change.
    #[command(after_help = "Example: tenantry presets hbert-adapter")]
    Presets(PresetsArgs),
    /// Say what this machine has, and what to do about what is missing.
    #[command(after_help = "Example: tenantry doctor")]
    Doctor,
}

/// A scenario with changes.
#[derive(Debug, Args)]
pub struct ScenarioArgs {
    /// A YAML file, or the name of a shipped scenario.
    pub scenario: String,
    /// Change a key: a dotted path and a YAML value.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Another seed than the scenario's.
    #[arg(long)]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
pub struct SimulateArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// Price ops by this profile instead of the scenario's card: a folder, or the name of a card.
    #[arg(long)]
    pub profile: Option<String>,
    /// Runs at a time; by default one a core.
    #[arg(long)]
    pub jobs: Option<std::num::NonZeroUsize>,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/simulate")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExecuteArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// The device to run on.
    #[arg(long)]
    pub device: String,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/execute")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ValidateArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// The device to run on.
    #[arg(long)]
    pub device: String,
    /// Price ops by this profile instead of the scenario's card.
    #[arg(long)]
    pub profile: Option<String>,
    /// Execute the same requests this many times.
    #[arg(long, default_value = "1")]
    pub repeats: std::num::NonZeroU32,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/validate")]
    pub out: PathBuf,
}

/// How thorough a profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// Minutes: the shapes that small scenarios need.
    Quick,
    /// As long as it takes.
    Full,
}

#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    /// The device to measure.
    #[arg(long, required = true)]
    pub device: Option<String>,
    /// How thorough.
    #[arg(long, value_enum, default_value = "quick")]
    pub suite: Suite,
    /// Measure only these built-in models.
    #[arg(long, value_delimiter = ',', conflicts_with = "scenario")]
    pub models: Vec<String>,
    /// Measure what this scenario needs, and no more.
    #[arg(long = "for", value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// Where the profile goes; by default `profiles/cards/DEVICE`.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Print what a profile holds, where it comes from, and how well it interpolates.
    Show {
        /// The name of a card, or a folder.
        card: String,
    },
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
