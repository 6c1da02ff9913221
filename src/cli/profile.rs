//! Of `tenantry profile`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use tenantry_profiles::paper::Paper;
use tenantry_profiles::{DType, ImportSource};

use super::{number, one_of};

/// How thorough a profile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// 60 s for the first model and 80 s for each further one, on a GPU 3 minutes: the shapes that small scenarios
    /// need. On a CPU mostly longer, until each was visited three times and what is no op was measured: some 2 minutes
    /// for `tiny`. Hardly any median is known to 2 % then.
    Quick,
    /// 14 minutes a model, on a GPU 7 for all: more shapes, and time for every median to settle.
    Full,
}

#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    pub command: Option<ProfileCommand>,
    /// The device to measure: cpu, or cuda:N.
    #[arg(long, required = true)]
    pub device: Option<String>,
    /// How thorough.
    #[arg(long, value_enum, default_value = "quick")]
    pub suite: Suite,
    /// Take up to so long, where the suite's time does not do for every median to be known to 2 %.
    #[arg(long, value_parser = minutes)]
    pub minutes: Option<f64>,
    /// Measure only these built-in models.
    #[arg(long, value_delimiter = ',', conflicts_with = "scenarios")]
    pub models: Vec<String>,
    /// The number format of weights and activations; a CPU is measured in f32 alone.
    #[arg(long, default_value_t = DType::F32, value_parser = one_of(DType::ALL, DType::name),
          conflicts_with = "scenarios")]
    pub dtype: DType,
    /// Measure what this scenario needs, and no more; of several, given one by one, what all need.
    #[arg(long = "for", value_name = "SCENARIO")]
    pub scenarios: Vec<String>,
    /// Keep what the profile that is there has, and add the tables that it lacks, measured on the same device.
    #[arg(long)]
    pub add: bool,
    /// With --suite full, whose points held out say what is off: like --add, and measure again those of its tables
    /// whose prices there are off by more than 3 % in the median or 8 % at p95.
    #[arg(long, conflicts_with = "add")]
    pub again: bool,
    /// Where the profile goes; by default `profiles/cards/DEVICE`, unless a card is there.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Print what a profile holds, where it comes from, and how well it interpolates.
    #[command(after_help = "Examples:\n  tenantry profile show cpu --report cpu.html\n  \
                            tenantry profile show --schema > card.schema.json\n  \
                            tenantry profile show --schema tables > tables.json")]
    Show(ShowArgs),
    /// Print what one card takes over what another does, or how far a machine drifted between two measurements.
    #[command(after_help = "Examples:\n  tenantry profile compare cpu out/cpu-again\n  \
                            tenantry profile compare cpu cpu-epyc --report machines.html")]
    Compare(CompareArgs),
    /// Compute the card of a device that nobody measured, or of a paper's testbed.
    #[command(after_help = "Examples:\n  \
                      tenantry profile derive --datasheet b200-sxm \\\n    \
                      --models bert-base,llama-7b --out out/b200\n  \
                      tenantry profile derive --datasheet my-card.yaml --out out/my-card\n  \
                      tenantry profile derive --paper paper-p5000 --out out/paper-p5000\n\n\
                      What is derived is marked so, with its error, in the card and in every report that uses it.")]
    Derive(DeriveArgs),
    /// Make a card from public measurements, or add them to an imported card.
    #[command(after_help = "Examples:\n  \
                      tenantry profile import --from llmservingsim --gpu rtx-4090 \\\n    \
                      RTX4090_*_dense.csv RTX4090_*_per_sequence.csv \\\n    \
                      RTX4090_*_attention.csv.gz RTX4090_*_profile_meta.yaml \\\n    \
                      --out profiles/cards/rtx-4090\n  \
                      tenantry profile import --from aiconfigurator --gpu h200-sxm \\\n    \
                      --model bert-base h200_sxm_*.csv.gz --out out/h200\n\n\
                      What a source lacks is derived from the datasheet and marked so. docs/profiles-imported.md lists the columns \
                      that each source's tables must have; aiconfigurator's Parquet must be made CSV of bf16 rows first.")]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Whose tables they are. `tensorrt-pairs` are engines that you have built for one length and for any, as trtexec
    /// times them: a CSV of model, precision (FP32, FP16, BF16), engine (static, dynamic), batch_size, seq_len,
    /// mean_ms, median_ms, p95_ms and p99_ms.
    #[arg(long, value_name = "SOURCE", value_parser = one_of(ImportSource::ALL, ImportSource::name))]
    pub from: ImportSource,
    /// The GPU that they were measured on, by its datasheet's name.
    #[arg(long)]
    pub gpu: String,
    /// Take only these built-in models, of sources that have several: vidur and aiconfigurator.
    #[arg(long, value_delimiter = ',')]
    pub model: Vec<String>,
    /// The gap between two kernels, in microseconds, where a source has kernels' times only: aiconfigurator, 1 unless
    /// given.
    #[arg(long, value_name = "US", value_parser = number)]
    pub launch_overhead_us: Option<f64>,
    /// The tables, as CSV, gzipped or not; of llmservingsim also the profile's meta.yaml, which alone says whose they
    /// are.
    #[arg(required = true, value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// Where the card goes; one imported before keeps the tables that these files do not have.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// A day is more than any suite takes.
fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| *minutes > 0.0 && *minutes <= 1440.0);
    minutes.ok_or_else(|| format!("must be a number above 0, and at most 1440, got {text}"))
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The name of a card, or a folder.
    #[arg(required_unless_present = "schema")]
    pub card: Option<String>,
    /// Write a page with its curves.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
    /// Print what a profile's files must be instead.
    #[arg(long, value_enum, value_name = "OF", num_args = 0..=1, default_missing_value = "card",
          conflicts_with_all = ["card", "report"])]
    pub schema: Option<SchemaOf>,
}

/// What a schema is of.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SchemaOf {
    /// The JSON Schema of card.yaml, for editors.
    Card,
    /// A Data Package (datapackage.org) with the Table Schema of every CSV file.
    Tables,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The name of a card, or a folder.
    pub first: String,
    /// The name of another, or a folder: its medians are divided by the first's.
    pub second: String,
    /// Write a page with the ratios of each op family and table.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DeriveArgs {
    /// A datasheet that comes with the product, or a YAML file with one.
    #[arg(long, value_name = "NAME|FILE", required_unless_present = "paper")]
    pub datasheet: Option<String>,
    /// A paper's testbed.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Paper::names()),
          conflicts_with_all = ["datasheet", "models"])]
    pub paper: Option<String>,
    /// Derive these built-in models; by default bert-base, bert-large and llama-7b.
    #[arg(long, value_delimiter = ',')]
    pub models: Vec<String>,
    /// Where the card goes; by default `profiles/cards/NAME`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
