//! The arguments.

mod cascade;
mod profile;
mod run;
mod trace;
mod write;

#[cfg(test)]
mod tests;

use std::any::TypeId;
use std::num::{IntErrorKind, ParseIntError};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use tenantry_reports::manifest::quoted;

pub use cascade::*;
pub use profile::*;
pub use run::*;
pub use trace::*;
pub use write::*;

/// Which serving policy, on how much GPU, meets my latency target when thousands of tenants each have their own
/// fine-tuned transformer?
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What this process was asked for. Where that is help, or wrong, it is said and the process ends.
    pub fn of_process() -> Cli {
        let asked = command().get_matches();
        Cli::from_arg_matches(&asked).unwrap_or_else(|error| error.exit())
    }
}

/// All commands. Their options, but those of files, take bare numbers below 0, to say themselves what they must be: else
/// each would be taken for a flag that nobody knows.
pub fn command() -> clap::Command {
    fn with_negative_numbers(command: clap::Command) -> clap::Command {
        command
            .mut_args(|argument| match takes_numbers(&argument) {
                true => argument.allow_negative_numbers(true),
                false => argument,
            })
            .mut_subcommands(with_negative_numbers)
    }
    with_negative_numbers(Cli::command())
}

fn takes_numbers(argument: &clap::Arg) -> bool {
    let is_option = argument.get_action().takes_values() && !argument.is_positional();
    is_option && argument.get_value_parser().type_id() != TypeId::of::<PathBuf>()
}

/// Among the options in a command's help: behind its own, and before `--help`, which clap puts at 999.
const BEFORE_HELP: usize = 998;

/// How much is said, and to whom.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Say only what is wrong.
    #[arg(long, global = true, display_order = BEFORE_HELP)]
    pub quiet: bool,
    /// Print the result to standard output as JSON.
    #[arg(long, global = true, display_order = BEFORE_HELP)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a scenario's systems on the virtual machine.
    #[command(after_help = "Example: tenantry simulate quickstart --set tenants.count=5000")]
    Simulate(SimulateArgs),
    /// Search for what keeps a latency target at the least: cards, cost; or the most: tenants, load.
    #[command(after_help = "Examples:\n  tenantry plan plan/fewest-cards --out out/plan\n  \
                      tenantry plan mine.yaml \\\n    \
                      --set 'plan={find: most-tenants, tenants: {from: 10, to: 100000}}'\n\n\
                      A scenario without a section `plan` is asked for the fewest cards, 1 to 32, that keep its slo.\n\
                            Exits with 3 and the nearest when nothing keeps the target.")]
    Plan(PlanArgs),
    /// Run a scenario's sweep in parts, each run saved as it finishes: what is interrupted goes on where it was.
    #[command(after_help = "Examples:\n  tenantry sweep hmi/fig-11 --out out/fig-11\n  \
                            tenantry sweep hmi/fig-11 --shard 3/8 --out out/fig-11\n  \
                            tenantry sweep hmi/fig-11 --job-file slurm --shards 50 --out out/fig-11")]
    Sweep(SweepArgs),
    /// Join the shards of a sweep: the same files, to the byte, as of a sweep in one piece.
    #[command(after_help = "Example: tenantry merge out/shard-1 out/shard-2 --out out/merged")]
    Merge(MergeArgs),
    /// Run a scenario's systems for real, through libtorch.
    #[command(after_help = "Example: tenantry execute scenarios/quickstart.yaml --device cpu")]
    Execute(ExecuteArgs),
    /// Simulate and execute the same requests, and compare.
    #[command(after_help = "Example: tenantry validate quickstart --device cpu --repeats 3\n\n\
                            Exits with 3 when the differences exceed the scenario's `validate:` limits, and with 1 when more than 1 % of the \
                            requests failed that the simulation answered.")]
    Validate(ValidateArgs),
    /// Describe, convert and generate traces of requests, and fit generators to them.
    #[command(after_help = "Example: tenantry trace info requests.csv --report trace.html")]
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Train, profile and judge cascades of real models that answer real texts (Tabi).
    #[command(after_help = "Example: tenantry cascade example --out out/example")]
    Cascade {
        #[command(subcommand)]
        command: CascadeCommand,
    },
    /// Run the papers' experiments on the papers' cards, and compare with what they say.
    #[command(after_help = "Example: tenantry reproduce hmi --out out/hmi\n\n\
                            Exits with 3 when a prediction is outside its tolerance.")]
    Reproduce(ReproduceArgs),
    /// Make the page of a finished folder again, or one page of several side by side.
    #[command(after_help = "Examples:\n  tenantry report out/simulate\n  \
                            tenantry report out/before out/after --out before-after.html\n  \
                            tenantry report out/simulate --figures out/figures")]
    Report(ReportArgs),
    /// Measure a card, or look at a profile.
    #[command(
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  tenantry profile --device cpu --suite quick --out out/here\n  \
                      tenantry profile --device cpu --for quickstart --out out/cpu\n  \
                      tenantry profile show cpu\n\n\
                      An interrupted measurement (Ctrl-C) leaves OUT.partial; the same command goes on with it."
    )]
    Profile(ProfileArgs),
    /// Write a commented scenario from a few answers: asked for on a terminal, or given as flags.
    #[command(after_help = "Examples:\n  tenantry new shops.yaml\n  \
                      tenantry new shops.yaml --tenants 3000 --model bert-base --rate 200/s \\\n    \
                      --latency 100ms --card l4 --gpus 2\n  \
                      tenantry new chat.yaml --model llama-7b --card a100-sxm --rate 5/s \\\n    \
                      --output 200 --defaults")]
    New(NewArgs),
    /// Say whether a scenario is valid, and what it resolves to.
    #[command(after_help = "Example: tenantry check scenarios/quickstart.yaml")]
    Check(CheckArgs),
    /// Print the JSON Schema of scenarios, for editors.
    #[command(after_help = "Example: tenantry schema > scenario.schema.json")]
    Schema,
    /// List the presets, or print one as YAML to copy and change.
    #[command(after_help = "Example: tenantry presets hbert-adapter")]
    Presets(PresetsArgs),
    /// List the scenarios that come with the program, or print one as YAML to copy and change.
    #[command(after_help = "Examples:\n  tenantry scenarios\n  tenantry scenarios plan/least-cost > mine.yaml")]
    Scenarios(ScenariosArgs),
    /// Print what a shell needs to complete commands and flags.
    #[command(after_help = "Examples:\n  tenantry completions bash \\\n    \
                      > ~/.local/share/bash-completion/completions/tenantry\n  \
                      tenantry completions zsh > \"${fpath[1]}/_tenantry\"\n  \
                      tenantry completions fish > ~/.config/fish/completions/tenantry.fish")]
    Completions(CompletionsArgs),
    /// Say what this machine has, and what to do about what is missing.
    #[command(after_help = "Examples:\n  tenantry doctor\n  tenantry doctor --device cuda:0")]
    Doctor(DoctorArgs),
}

/// Of `tenantry doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also compute each kind of operation on this device, cpu or cuda:N, and compare it with the CPU's in double
    /// precision.
    #[arg(long)]
    pub device: Option<String>,
}

/// A number of things, as options take it.
fn count<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => format!("must be a whole number of {} bits, got {text}", 8 * size_of::<N>()),
        _ => format!("must be a whole number, at least 1, got {text}"),
    })
}

/// A seed, as options take it.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("must be a whole number from 0 to {}, got {text}", u64::MAX))
}

/// A number, as options take it. Whose it is says which numbers it may be.
fn number(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("must be a number, got {text}"))
}

/// A whole number of these, as options take it.
fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse::<u32>().ok().filter(|number| range.contains(number));
        let (first, last) = (range.start(), range.end());
        number.ok_or_else(|| format!("must be a whole number from {first} to {last}, got {text}"))
    }
}

/// One of `all`, by its name: clap lists the names in help and errors, tells a near miss, and has shells complete them.
fn one_of<T: Copy + Send + Sync>(all: &'static [T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(move |value| name(*value));
    PossibleValuesParser::new(names).map(move |given| {
        let named = all.iter().find(|value| name(**value) == given);
        *named.expect("clap takes no other name")
    })
}

/// A scenario with changes.
#[derive(Clone, Debug, Args)]
pub struct ScenarioArgs {
    /// A YAML file, or the name of a shipped scenario, which `tenantry scenarios` lists.
    pub scenario: String,
    /// Change a key: a dotted path and a YAML value.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Another seed than the scenario's.
    #[arg(long, value_parser = seed)]
    pub seed: Option<u64>,
}

impl ScenarioArgs {
    /// As a shell reads them back, to name the scenario in another command.
    pub fn words(&self) -> String {
        let settings = self.set.iter().map(|set| format!(" --set {}", quoted(set)));
        let seed = self.seed.map(|seed| format!(" --seed {seed}"));
        let given: String = settings.chain(seed).collect();
        format!("{}{given}", quoted(&self.scenario))
    }

    /// Likewise, with this card in place of the scenario's.
    pub fn words_on(&self, profile: Option<&str>) -> String {
        let card = profile.map_or(String::new(), |card| {
            format!(" --set {}", quoted(&format!("card={card}")))
        });
        format!("{}{card}", self.words())
    }
}
