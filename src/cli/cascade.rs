//! Of `tenantry cascade`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tenantry_cascade::candidates::SLOPES;

#[derive(Debug, Subcommand)]
pub enum CascadeCommand {
    /// Train a small and a larger encoder on a generated language task, and save them as Hugging Face's models are
    /// saved.
    #[command(after_help = "Example: tenantry cascade example --out out/cascade")]
    Example(CascadeExampleArgs),
    /// Run models over labelled items, one at a time: calibrate them, and save outputs, confidences, importance and
    /// latencies.
    #[command(
        after_help = "Example: tenantry cascade profile out/cascade/small out/cascade/large \\\n    \
                      --items out/cascade/profile.csv --out out/cascade/profiled"
    )]
    Profile(CascadeProfileArgs),
    /// Answer labelled items by each model alone and by their cascade: accuracy against latency, and calibration before
    /// and after.
    #[command(
        after_help = "Example: tenantry cascade judge out/cascade/small out/cascade/large \\\n    \
                      --items out/cascade/test.csv --profiled out/cascade/profiled \\\n    \
                      --cut-off 0.9 --alpha 0.7"
    )]
    Judge(CascadeJudgeArgs),
    /// Choose models, cut-off and pruning from what `cascade profile` saved: the fastest that meets the targets.
    #[command(after_help = "Example: tenantry cascade select out/cascade/profiled \\\n    \
                            --accuracy 90 --p99-ms 5\n\n\
                            Exits with 3, and the nearest candidates, when none meets the targets.")]
    Select(CascadeSelectArgs),
}

#[derive(Debug, Args)]
pub struct CascadeSelectArgs {
    /// The folder that `tenantry cascade profile` wrote.
    #[arg(value_name = "FOLDER")]
    pub profiled: PathBuf,
    /// Right answers, at least, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = super::number)]
    pub accuracy: f64,
    /// Mean latency, at most, in milliseconds.
    #[arg(long, value_parser = super::number)]
    pub mean_ms: Option<f64>,
    /// Latency that 99 % of the items keep, by what each of them took, at most, in milliseconds.
    #[arg(long, value_parser = super::number)]
    pub p99_ms: Option<f64>,
    /// How steeply the chance of asking falls above the cut-off: the paper's k, each of which is tried with every
    /// cut-off.
    #[arg(long, value_name = "K,…", value_delimiter = ',', default_values_t = SLOPES, value_parser = super::number)]
    pub slope: Vec<f64>,
    /// Models of a candidate, at most.
    #[arg(long, default_value_t = 3, value_parser = super::whole(1..=8))]
    pub levels: u32,
    /// Where the search gives up: nowhere, or where the paper's does (section 5), which misses some.
    #[arg(long, value_enum, default_value_t = EarlyStopsName::None)]
    pub early_stops: EarlyStopsName,
    /// Write a scenario, .yaml or .yml, that serves what was chosen, beside its models alone.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
}

/// What `cascade profile` fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CalibrationName {
    /// One number that logits are divided by.
    Temperature,
    /// For several classes at once: weights between all of them and an intercept of each. It may change answers.
    Dirichlet,
}

/// Where `cascade select` gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EarlyStopsName {
    /// Nowhere: nothing that could be chosen is left out.
    None,
    /// Cut-offs from the first whose accuracy is below the models' mean, p75 above 1.5 times the slowest model's,
    /// pruning from the first degree that costs a model two points; answers are always averaged.
    Paper,
}

#[derive(Debug, Args)]
pub struct CascadeExampleArgs {
    /// The device to train on: cpu, or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Of the language task and of the weights.
    #[arg(long, default_value_t = 7, value_parser = super::seed)]
    pub seed: u64,
    /// Models: a small and a large one, or one between them too.
    #[arg(long, default_value_t = 2, value_parser = super::whole(2..=3))]
    pub levels: u32,
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
    /// The device to run on: cpu, or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
}

#[derive(Debug, Args)]
pub struct CascadeProfileArgs {
    #[command(flatten)]
    pub models: CascadeModelsArgs,
    /// How confidence is made to mean what it says, where classes are answered [default: temperature].
    #[arg(long, value_enum, value_name = "METHOD", conflicts_with = "calibrated_by")]
    pub calibration: Option<CalibrationName>,
    /// How far off the right answer of a regression may be [default: 0.5].
    #[arg(long, value_parser = super::number, conflicts_with = "calibrated_by")]
    pub tolerance: Option<f64>,
    /// What an earlier `cascade profile` wrote of these models: calibrated, and of a regression as tolerant, as there,
    /// rather than on these items.
    #[arg(long, value_name = "FOLDER")]
    pub calibrated_by: Option<PathBuf>,
    /// Models as a cascade asks them, and to which degree each prunes what those after it read, such as
    /// small=0.5,middle=0.3,large: each is profiled on what comes to it there as well. May be given several times.
    #[arg(long = "route", value_name = "ROUTE", value_parser = route)]
    pub routes: Vec<RouteArg>,
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
    #[arg(long, default_value_t = 0.9, value_parser = super::number)]
    pub cut_off: f64,
    /// How steeply the chance of asking falls above it: the paper's k, which it never gives.
    #[arg(long, default_value_t = 10.0, value_parser = super::number)]
    pub slope: f64,
    /// How much is pruned: words go whose attention is below this share of the mean.
    #[arg(long, default_value_t = 0.7, value_parser = super::number)]
    pub alpha: f64,
    /// Of the dispatcher's coins.
    #[arg(long, default_value_t = 7, value_parser = super::seed)]
    pub seed: u64,
}

/// Models and degrees of pruning, 0 where no word goes.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteArg(pub Vec<(String, f64)>);

/// `small=0.5,middle,large`.
fn route(text: &str) -> Result<RouteArg, String> {
    let level = |level: &str| {
        let (name, degree) = level.split_once('=').unwrap_or((level, "0"));
        let alpha: Option<f64> = degree.trim().parse().ok();
        match alpha.filter(|alpha| *alpha >= 0.0 && alpha.is_finite()) {
            Some(alpha) if !name.trim().is_empty() => Ok((name.trim().to_owned(), alpha)),
            _ => Err(format!(
                "must be MODEL=DEGREE or MODEL, a degree at least 0, got {level}"
            )),
        }
    };
    Ok(RouteArg(text.split(',').map(level).collect::<Result<_, _>>()?))
}
