//! The arguments.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::output::quoted;
use crate::sweep::job_file::Engine;
use crate::sweep::shard::Shard;

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
    /// Search for what keeps a latency target at the least: cards, cost; or the most: tenants, load.
    #[command(after_help = "Examples:\n  tenantry plan plan/fewest-cards --out out/plan\n  \
                      tenantry plan mine.yaml --set 'plan={find: most-tenants, tenants: {from: 10, to: 100000}}'\n\n\
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
    #[command(
        after_help = "Example: tenantry validate scenarios/quickstart.yaml --device cpu --repeats 3\n\n\
                            Exits with 3 when the differences exceed the scenario's `validate:` limits."
    )]
    Validate(ValidateArgs),
    /// Describe, convert and generate traces of requests, and fit generators to them.
    #[command(after_help = "Example: tenantry trace info requests.csv --report trace.html")]
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Train, profile and judge cascades of real models that answer real texts (Tabi).
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
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  tenantry profile --device cpu --suite quick\n  \
                      tenantry profile --device cpu --for scenarios/quickstart.yaml --out out/cpu\n  \
                      tenantry profile show cpu\n\n\
                      An interrupted measurement (Ctrl-C) leaves OUT.partial; the same command goes on with it."
    )]
    Profile(ProfileArgs),
    /// Write a commented scenario from a few answers: asked for on a terminal, or given as flags.
    #[command(after_help = "Examples:\n  tenantry new shops.yaml\n  \
                      tenantry new shops.yaml --tenants 3000 --model bert-base --rate 200/s --latency 100ms --card l4 --gpus 2\n  \
                      tenantry new chat.yaml --model llama-7b --card a100-sxm --rate 5/s --output 200 --defaults")]
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
    #[command(
        after_help = "Examples:\n  tenantry completions bash > ~/.local/share/bash-completion/completions/tenantry\n  \
                      tenantry completions zsh > \"${fpath[1]}/_tenantry\"\n  \
                      tenantry completions fish > ~/.config/fish/completions/tenantry.fish"
    )]
    Completions(CompletionsArgs),
    /// Say what this machine has, and what to do about what is missing.
    #[command(after_help = "Example: tenantry doctor")]
    Doctor,
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
    #[arg(long)]
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

/// What is kept of the runs beside their figures.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Write requests.parquet into the folder: a row for each request.
    #[arg(long)]
    pub requests: bool,
    /// Write timeline.json into the folder, for ui.perfetto.dev: which op ran when on which lane. By default of the two seconds
    /// after the warm-up; `--timeline=30s..32s` is another window.
    #[arg(long, value_name = "START..END", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub timeline: Option<String>,
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
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Write the requests of the first run as a trace, .csv, .csv.gz or .parquet, which `arrivals: {trace: …}` replays.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/simulate")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// Where plan.json, plan.html and answer.yaml go.
    #[arg(long, default_value = "out/plan")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// Price ops by this profile instead of the scenario's card: a folder, or the name of a card.
    #[arg(long)]
    pub profile: Option<String>,
    /// Runs at a time; by default one a core.
    #[arg(long)]
    pub jobs: Option<NonZeroUsize>,
    /// Only this part of the runs. Shards may share a folder.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Write a job file into the folder that runs all shards on this engine, and run nothing.
    #[arg(long, value_enum, requires = "shards", conflicts_with = "shard")]
    pub job_file: Option<Engine>,
    /// How many shards the job file runs.
    #[arg(long, value_name = "N", requires = "job_file")]
    pub shards: Option<NonZeroUsize>,
    /// Where each run, and when all are done the run's folder, goes.
    #[arg(long, default_value = "out/sweep")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Folders that `tenantry sweep` left; shards that shared one are one.
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/merged")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ExecuteArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// The device to run on.
    #[arg(long)]
    pub device: String,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Write the requests of the first run as a trace, .csv, .csv.gz or .parquet, which `arrivals: {trace: …}` replays.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
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
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/validate")]
    pub out: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum CascadeCommand {
    /// Train a small and a larger encoder on a generated language task, and save them as Hugging Face's models are saved.
    #[command(after_help = "Example: tenantry cascade example --out out/cascade")]
    Example(CascadeExampleArgs),
    /// Run models over labelled items, one at a time: calibrate them, and save outputs, confidences, importance and latencies.
    #[command(
        after_help = "Example: tenantry cascade profile out/cascade/small out/cascade/large \\\n      \
                            --items out/cascade/profile.csv --out out/cascade/profiled"
    )]
    Profile(CascadeProfileArgs),
    /// Answer labelled items by each model alone and by their cascade: accuracy against latency, and calibration before and after.
    #[command(
        after_help = "Example: tenantry cascade judge out/cascade/small out/cascade/large \\\n      \
                            --items out/cascade/test.csv --profiled out/cascade/profiled --cut-off 0.9 --alpha 0.7"
    )]
    Judge(CascadeJudgeArgs),
    /// Choose models, cut-off and pruning from what `cascade profile` saved: the fastest that meets the targets.
    #[command(
        after_help = "Example: tenantry cascade select out/cascade/profiled --accuracy 90 --p99-ms 5\n\n\
                            Exits with 3, and the nearest candidates, when none meets the targets."
    )]
    Select(CascadeSelectArgs),
}

#[derive(Debug, Args)]
pub struct CascadeSelectArgs {
    /// The folder that `tenantry cascade profile` wrote.
    #[arg(value_name = "FOLDER")]
    pub profiled: PathBuf,
    /// Right answers, at least, in percent.
    #[arg(long, value_name = "PERCENT")]
    pub accuracy: f64,
    /// Mean latency, at most, in milliseconds.
    #[arg(long)]
    pub mean_ms: Option<f64>,
    /// Latency at p99, at most, in milliseconds.
    #[arg(long)]
    pub p99_ms: Option<f64>,
    /// How steeply the chance of asking falls above the cut-off: the paper's k, which it never gives.
    #[arg(long, default_value_t = 10.0)]
    pub slope: f64,
    /// Models of a candidate, at most.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub levels: u32,
    /// Try everything, and give up nothing early.
    #[arg(long)]
    pub exhaustive: bool,
}

#[derive(Debug, Args)]
pub struct CascadeExampleArgs {
    /// The device to train on.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Of the language task and of the weights.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Where the models and their items go: a folder that is not there yet.
    #[arg(long, default_value = "out/cascade")]
    pub out: PathBuf,
}

/// Models, and what they are asked.
#[derive(Debug, Args)]
pub struct CascadeModelsArgs {
    /// Folders with config.json, model.safetensors and tokenizer.json, the cheapest model first.
    #[arg(required = true, value_name = "MODEL")]
    pub models: Vec<PathBuf>,
    /// A CSV with the columns text, label and perhaps text_pair.
    #[arg(long, value_name = "CSV")]
    pub items: PathBuf,
    /// The device to run on.
    #[arg(long, default_value = "cpu")]
    pub device: String,
}

#[derive(Debug, Args)]
pub struct CascadeProfileArgs {
    #[command(flatten)]
    pub models: CascadeModelsArgs,
    /// How far off the right answer of a regression may be.
    #[arg(long, default_value_t = 0.5)]
    pub tolerance: f64,
    /// Where the outputs go: a folder that is not there yet.
    #[arg(long, default_value = "out/cascade-profiled")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct CascadeJudgeArgs {
    #[command(flatten)]
    pub models: CascadeModelsArgs,
    /// What `tenantry cascade profile` wrote about these models on other items.
    #[arg(long, value_name = "FOLDER")]
    pub profiled: PathBuf,
    /// Confidence up to which the next model is always asked: the paper's c.
    #[arg(long, default_value_t = 0.9)]
    pub cut_off: f64,
    /// How steeply the chance of asking falls above it: the paper's k, which it never gives.
    #[arg(long, default_value_t = 10.0)]
    pub slope: f64,
    /// How much is pruned: words go whose attention is below this share of the mean.
    #[arg(long, default_value_t = 0.7)]
    pub alpha: f64,
    /// Of the dispatcher's coins.
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
}

/// How thorough a profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// At most 40 s for the first model and 80 s for each further one: the shapes that small scenarios need.
    Quick,
    /// At most 10 minutes a model: more shapes, and time for every median to settle.
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
    #[command(after_help = "Examples:\n  tenantry profile show cpu --report cpu.html\n  \
                            tenantry profile show --schema > card.schema.json")]
    Show(ShowArgs),
    /// Print what one card takes over what another does, or how far a machine drifted between two measurements.
    #[command(after_help = "Example: tenantry profile compare cpu out/cpu-again")]
    Compare {
        /// The name of a card, or a folder.
        first: String,
        /// The name of another, or a folder: its medians are divided by the first's.
        second: String,
    },
    /// Compute the card of a device that nobody measured, or of a paper's testbed.
    #[command(after_help = "Examples:\n  \
                      tenantry profile derive --datasheet b200-sxm --models bert-base,llama-7b --out out/b200\n  \
                      tenantry profile derive --datasheet my-card.yaml --out out/my-card\n  \
                      tenantry profile derive --paper paper-p5000 --out profiles/cards/paper-p5000\n\n\
                      What is derived is marked so, with its error, in the card and in every report that uses it.")]
    Derive(DeriveArgs),
    /// Make a card from public measurements, or add them to an imported card.
    #[command(after_help = "Examples:\n  \
                      tenantry profile import --from llmservingsim --gpu rtx-4090 RTX4090_*_dense.csv RTX4090_*_per_sequence.csv \\\n    \
                      RTX4090_*_attention.csv.gz --out profiles/cards/rtx-4090\n  \
                      tenantry profile import --from aiconfigurator --gpu h200-sxm --model bert-base h200_sxm_*.csv.gz --out out/h200\n\n\
                      What a source lacks is derived from the datasheet and marked so.")]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Whose tables they are.
    #[arg(long, value_parser = source)]
    pub from: tenantry_profiles::ImportSource,
    /// The GPU that they were measured on, by its datasheet's name.
    #[arg(long)]
    pub gpu: String,
    /// Compose only these built-in models.
    #[arg(long, value_delimiter = ',')]
    pub model: Vec<String>,
    /// The gap between two kernels, in microseconds, where a source has kernels' times only.
    #[arg(long, value_name = "US", default_value_t = tenantry_profiles::DEFAULT_LAUNCH_OVERHEAD_US)]
    pub launch_overhead_us: f64,
    /// The tables, as CSV, gzipped or not.
    #[arg(required = true, value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// Where the card goes; one imported before keeps the tables that these files do not have.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

fn source(name: &str) -> Result<tenantry_profiles::ImportSource, String> {
    let known = tenantry_profiles::ImportSource::ALL;
    let found = known.iter().find(|source| source.name() == name);
    found.copied().ok_or_else(|| {
        let names = tenantry_profiles::ImportSource::NAMES;
        let suggested = tenantry_profiles::near_miss(name, names.iter().copied());
        let suggestion = suggested
            .map(|name| format!("; did you mean {name}?"))
            .unwrap_or_default();
        format!("must be {}, got {name}{suggestion}", names.join(", "))
    })
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The name of a card, or a folder.
    #[arg(required_unless_present = "schema")]
    pub card: Option<String>,
    /// Write a page with its curves.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
    /// Print the JSON Schema of card.yaml instead, for editors.
    #[arg(long, conflicts_with_all = ["card", "report"])]
    pub schema: bool,
}

#[derive(Debug, Args)]
pub struct DeriveArgs {
    /// A datasheet that comes with the product, or a YAML file with one.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "paper")]
    pub datasheet: Option<String>,
    /// A paper's testbed.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["datasheet", "models"])]
    pub paper: Option<String>,
    /// Derive these built-in models; by default bert-base, bert-large and llama-7b.
    #[arg(long, value_delimiter = ',')]
    pub models: Vec<String>,
    /// Where the card goes; by default `profiles/cards/NAME`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Args)]
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

/// Which paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaperName {
    /// Hierarchical models, 10,000 on one card.
    Hmi,
    /// Parameter-efficient tasks in one batch.
    Pets,
    /// Many LoRAs on one language model.
    Punica,
    /// One model compiled for several input lengths.
    Arlo,
    /// Cascades of models.
    Tabi,
    /// Each of them.
    All,
}

#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// The paper.
    #[arg(value_enum, default_value = "all")]
    pub paper: PaperName,
    /// Where reproduce.md and reproduce.json go.
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders that simulate, execute or validate left.
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Where the page goes; by default report.html in the one folder, or out/report.html for several.
    #[arg(long, value_name = "PAGE")]
    pub out: Option<PathBuf>,
    /// Also write each chart as SVG and PNG into this folder, for papers and slides.
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Count, span, rate, dispersion, lengths and the tenants' concentration.
    #[command(after_help = "Example: tenantry trace info twitter.csv.gz azure.csv --report traces.html")]
    Info(TraceInfoArgs),
    /// Write a file of any known format as Tenantry's own CSV or Parquet.
    #[command(
        after_help = "Examples:\n  tenantry trace convert AzureLLMInferenceTrace_conv.csv azure.parquet\n  \
                      tenantry trace convert counts.csv requests.csv.gz --input 128 --cut 1h..2h --scale 0.5"
    )]
    Convert(TraceConvertArgs),
    /// Write a scenario's workload, or that of flags alone, to a file.
    #[command(
        allow_missing_positional = true,
        after_help = "Examples:\n  tenantry trace generate scenarios/quickstart.yaml requests.parquet\n  \
                      tenantry trace generate --arrivals '{poisson: {rate: 500/s}}' --lengths '{input: {twitter: {}}}' \\\n      \
                      --tenants 10000 --popularity '{zipf: 1.1}' --requests 1000000 requests.csv"
    )]
    Generate(TraceGenerateArgs),
    /// Fit a generator to one part of a recording, check it against the other, and print it as a scenario has it.
    #[command(
        after_help = "Examples:\n  tenantry trace fit twitter tweets.csv --report fit.html\n  \
                      tenantry trace fit azure-functions invocations.csv --tenants 10000\n\n\
                      Aims: means and quantiles within 3 %, dispersion within 15 %, Kolmogorov-Smirnov below 0.03. A generator that \
                      misses one is printed all the same, and the table says so."
    )]
    Fit(TraceFitArgs),
}

/// How a file is read.
#[derive(Debug, Default, Args)]
pub struct ReadArgs {
    /// Read a file as this format, where its first line fits several; by default the first line tells.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Leave broken lines out and count them, rather than stop at the first.
    #[arg(long)]
    pub skip_bad_lines: bool,
    /// A tokenizer.json that counts the texts of ShareGPT; by default four characters are a token.
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TraceInfoArgs {
    /// Files of any known format, plain or gzip.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write a page with rates over time, dispersion, lengths and tenants.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TraceConvertArgs {
    /// A file of any known format, plain or gzip.
    pub file: PathBuf,
    /// Where to: .csv, .csv.gz or .parquet.
    pub out: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// What rates are multiplied by: counts become more, instants are moved together.
    #[arg(long, default_value = "1", value_parser = positive)]
    pub scale: f64,
    /// Only this part, in the recording's own time, which becomes the start: 1h..2h, or 1h.. to its end.
    #[arg(long, value_name = "START..END")]
    pub cut: Option<String>,
    /// Requests a second, evenly spaced, for a format without arrivals.
    #[arg(long, value_parser = positive)]
    pub rate: Option<f64>,
    /// Tokens of each input, for a format without lengths.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub input: Option<u32>,
    /// Put requests in order of time; they are kept in memory.
    #[arg(long)]
    pub sort: bool,
}

/// A finite number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| format!("must be a number above 0, got {text}"))
}

#[derive(Debug, Args)]
pub struct TraceGenerateArgs {
    /// A YAML file, or the name of a shipped scenario; without it the flags say all.
    pub scenario: Option<String>,
    /// Where to: .csv, .csv.gz or .parquet.
    pub out: PathBuf,
    /// When requests arrive, as `workload.arrivals` of a scenario.
    #[arg(long, value_name = "YAML")]
    pub arrivals: Option<String>,
    /// How long they are, as `workload.lengths`.
    #[arg(long, value_name = "YAML")]
    pub lengths: Option<String>,
    /// How many tenants there are.
    #[arg(long, value_name = "N")]
    pub tenants: Option<String>,
    /// Which of them asks, as `tenants.popularity`.
    #[arg(long, value_name = "YAML")]
    pub popularity: Option<String>,
    /// Stop after so many requests.
    #[arg(long, value_name = "N")]
    pub requests: Option<String>,
    /// Stop at this time, with its unit: 60s, 1h.
    #[arg(long, value_name = "TIME")]
    pub after: Option<String>,
    /// Change a key: a dotted path and a YAML value.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Another seed than the scenario's.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FitKind {
    /// Lengths of tweets, or the rate of a stream from its per-second counts.
    Twitter,
    /// Lengths of conversations.
    Sharegpt,
    /// How unevenly tenants ask.
    AzureFunctions,
}

#[derive(Debug, Args)]
pub struct TraceFitArgs {
    /// What is fitted.
    pub kind: FitKind,
    /// The recording.
    pub file: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Of the generated requests that the fit is checked with.
    #[arg(long, default_value = "7")]
    pub seed: u64,
    /// Runs of at least this much time without a request are holes of the recording and left out of rates.
    #[arg(long, value_name = "TIME", default_value = "1min")]
    pub drop_zeros_from: String,
    /// How many tenants the printed popularity is for; by default as many as the recording has.
    #[arg(long, value_name = "N")]
    pub tenants: Option<std::num::NonZeroU32>,
    /// Write a page with the table and the curves.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
}
