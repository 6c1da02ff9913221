//! Of `tenantry trace`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tenantry_scenarios::scalar::Rate;
use tenantry_traces::read::Format;

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Count, span, rate, dispersion, lengths and the tenants' concentration.
    #[command(after_help = "Example: tenantry trace info twitter.csv.gz azure.csv --report traces.html")]
    Info(TraceInfoArgs),
    /// Write a file of any known format as Tenantry's own CSV or Parquet.
    #[command(
        after_help = "Examples:\n  tenantry trace convert AzureLLMInferenceTrace_conv.csv azure.parquet\n  \
                      tenantry trace convert counts.csv requests.csv.gz --input 128 \\\n    \
                      --cut 1h..2h --scale 0.5\n  \
                      tenantry trace convert ours.csv requests.csv \\\n    \
                      --columns 'arrival=ts:ms,tenant=user,input_tokens=in,output_tokens=out'"
    )]
    Convert(TraceConvertArgs),
    /// Write a scenario's workload, or that of flags alone, to a file.
    #[command(
        override_usage = "tenantry trace generate [OPTIONS] [SCENARIO] <OUT>",
        after_help = "Examples:\n  tenantry trace generate scenarios/quickstart.yaml requests.parquet\n  \
                      tenantry trace generate --arrivals '{poisson: {rate: 500/s}}' \\\n    \
                      --lengths '{input: {twitter: {}}}' --popularity '{zipf: 1.1}' \\\n    \
                      --tenants 10000 --requests 1000000 requests.csv"
    )]
    Generate(TraceGenerateArgs),
    /// Fit a generator to one part of a recording, check it against the other, and print it as a scenario has it.
    #[command(
        after_help = "Examples:\n  tenantry trace fit requests requests.csv --out workload.yaml\n  \
                      tenantry trace fit twitter tweets.csv --report fit.html\n  \
                      tenantry trace fit azure-functions invocations.csv --tenants 10000\n  \
                      tenantry trace fit sharegpt conversations.json --out lengths.yaml\n\n\
                      Aims: means and quantiles within 3 %, dispersion within 15 %, Kolmogorov-Smirnov below 0.03. A generator that \
                      misses one is printed all the same, and the table says so."
    )]
    Fit(TraceFitArgs),
}

/// How a file is read.
#[derive(Debug, Default, Args)]
pub struct ReadArgs {
    /// Read a file as this format, where its first line fits several; by default the first line tells.
    #[arg(long, value_name = "NAME", value_parser = super::one_of(&Format::ALL, Format::name))]
    pub format: Option<Format>,
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
    /// A file of any known format, plain or gzip; with --columns, any CSV with a header.
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
    /// Evenly spaced requests, for a format without arrivals: 5/s. A bare number is a second's.
    #[arg(long, value_parser = rate)]
    pub rate: Option<f64>,
    /// Tokens of each input, for a format without lengths.
    #[arg(long, value_name = "N", value_parser = super::count::<NonZeroU32>)]
    pub input: Option<NonZeroU32>,
    /// Put requests in order of time; they are kept in memory.
    #[arg(long)]
    pub sort: bool,
    /// Read any CSV with a header: what its columns for arrival, tenant, input_tokens, output_tokens and class are
    /// called, and the unit of arrival: ns, us, ms or s for numbers, iso for dates with a time of day. A name with
    /// commas stands in double quotes. What is not named, the file does not say. Tenants of any name are numbered, and
    /// OUT.tenants.csv says who is who.
    #[arg(long, value_name = "OUR=THEIRS[:UNIT],…", conflicts_with_all = ["format", "tokenizer"])]
    pub columns: Option<String>,
    /// Number tenants from 0 in the order in which they first ask, and write to OUT.tenants.csv who is who.
    #[arg(long, conflicts_with = "columns")]
    pub dense_tenants: bool,
}

/// Requests a second, written as scenarios have them, or as a number alone.
fn rate(text: &str) -> Result<f64, String> {
    let with_unit = serde_yaml::from_str::<Rate>(text).ok().map(|rate| rate.0);
    with_unit
        .map_or_else(|| positive(text), Ok)
        .map_err(|_| format!("must be a rate above 0 with its unit (/s, /min, /h), such as 5/s, got {text}"))
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
    /// A YAML file, or the name of a shipped scenario; without it the flags say all. Then where to: .csv, .csv.gz or
    /// .parquet.
    // One list, since options may stand between the two and the first may be left out.
    #[arg(required = true, num_args = 1..=2, value_names = ["SCENARIO", "OUT"])]
    pub scenario_and_out: Vec<String>,
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
    #[arg(long, value_parser = super::seed)]
    pub seed: Option<u64>,
}

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FitKind {
    /// All that a trace of requests says: when they come, how long they are, and how unevenly tenants ask.
    Requests,
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
    #[arg(long, default_value = "7", value_parser = super::seed)]
    pub seed: u64,
    /// Runs of at least this much time without a request are holes of the recording and left out of rates; by default
    /// 1min, or none where the rate is so low that there are such runs.
    #[arg(long, value_name = "TIME")]
    pub drop_zeros_from: Option<String>,
    /// How many tenants the printed popularity is for; by default as many as the recording has.
    #[arg(long, value_name = "N", value_parser = super::count::<NonZeroU32>)]
    pub tenants: Option<NonZeroU32>,
    /// Write the fitted keys to this file, as YAML, rather than print them.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a page with the table and the curves.
    #[arg(long, value_name = "PAGE")]
    pub report: Option<PathBuf>,
}
