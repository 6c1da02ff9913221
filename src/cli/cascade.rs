//! Of `tenantry cascade`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// Write a scenario that serves what was chosen, beside its models alone.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
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
    /// What an earlier `cascade profile` wrote of these models: calibrated as there, rather than on these items.
    #[arg(long, value_name = "FOLDER")]
    pub calibrated_by: Option<PathBuf>,
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
