//! Of the commands that run scenarios, and show what came of it.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ScenarioArgs, count};
use crate::sweep::job_file::Engine;
use crate::sweep::shard::Shard;

/// What is kept of the runs beside their figures.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Write requests.parquet into the folder: a row for each request.
    #[arg(long)]
    pub requests: bool,
    /// Write timeline.json into the folder, for ui.perfetto.dev: which op ran when on which lane. By default of the two
    /// seconds after the warm-up; `--timeline=30s..32s` is another window.
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
    #[arg(long, value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub jobs: Option<NonZeroUsize>,
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
pub struct ExecuteArgs {
    #[command(flatten)]
    pub scenario: ScenarioArgs,
    /// The device to run on: cpu, or cuda:N.
    #[arg(long)]
    pub device: String,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Write answers.parquet into the folder: what each request read, and the class, number, labels or tokens that it
    /// was answered.
    #[arg(long)]
    pub answers: bool,
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
    /// The device to run on: cpu, or cuda:N.
    #[arg(long)]
    pub device: String,
    /// Price ops by this profile instead of the scenario's card.
    #[arg(long)]
    pub profile: Option<String>,
    /// Execute the same requests this many times.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<NonZeroU32>)]
    pub repeats: NonZeroU32,
    /// Measure some of the profile's points before, between and after the executions, and price ops by how fast the
    /// machine is then.
    #[arg(long)]
    pub gauge: bool,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Where the run's folder goes.
    #[arg(long, default_value = "out/validate")]
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
    /// Runs at a time; by default one a core, and of a job file's tasks one each.
    #[arg(long, value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub jobs: Option<NonZeroUsize>,
    /// Take over the runs that another sweep in this folder has in common with this one, such as one with fewer points
    /// or repeats.
    #[arg(long, value_name = "FOLDER", conflicts_with = "job_file")]
    pub reuse: Option<PathBuf>,
    /// Only this part of the runs. Shards may share a folder.
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Write a job file into the folder that runs all shards on this engine, and run nothing.
    #[arg(long, value_enum, requires = "shards", conflicts_with = "shard")]
    pub job_file: Option<Engine>,
    /// How many shards the job file runs.
    #[arg(long, value_name = "N", requires = "job_file", value_parser = count::<NonZeroUsize>)]
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
    /// Another card than the paper's, by name or path; for hmi. Figures that it has no tables for say so.
    #[arg(long, value_name = "CARD")]
    pub profile: Option<String>,
    /// Instead of the figures: what the papers' main results become where an assumption of a card is a fifth smaller
    /// and a fifth larger.
    #[arg(long, conflicts_with = "profile")]
    pub sensitivity: bool,
    /// Where reproduce.md and reproduce.json go; sensitivity.md and sensitivity.json with --sensitivity.
    #[arg(long, value_name = "DIR", default_value = "out/reproduce")]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders that simulate, sweep, execute, validate or merge left; or one that plan left.
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// Where the page goes, .html or .htm; by default report.html in the one folder, or out/report.html for several.
    #[arg(long, value_name = "PAGE")]
    pub out: Option<PathBuf>,
    /// Leave out on which machine it was made, when and how fast: for a page that others get, and that comes out the
    /// same each time.
    #[arg(long)]
    pub anonymous: bool,
    /// Also write each chart as SVG and PNG into this folder, for papers and slides.
    #[arg(long, value_name = "FOLDER")]
    pub figures: Option<PathBuf>,
}
