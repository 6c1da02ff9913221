//! `tenantry cascade`: models that answer real texts, trained, profiled and judged.

mod example;
mod judge;
mod profile;
mod scenario;
mod select;

use std::path::{Path, PathBuf};

use tenantry_cascade::Reroute;
use tenantry_executor::cascade::{Item, TextModel, read_items};
use tenantry_executor::{ExecutorError, use_one_core};
use tenantry_profiles::DType;
use tenantry_reports::terminal;
use tenantry_traces::outcome::ProfiledModels;
use tenantry_traces::whole;

use crate::device::Device;
use tenantry::caveats::few_items_caveat;
use tenantry::cli::{CascadeCommand, CascadeModelsArgs, OutputArgs};
use tenantry::failure::Failure;
use tenantry::output::{check_folder, check_left_by, style};

pub fn run(command: &CascadeCommand, output: &OutputArgs) -> Result<(), Failure> {
    // As everywhere in serving, an op runs on one core.
    use_one_core();
    match command {
        CascadeCommand::Example(args) => example::run(args, output),
        CascadeCommand::Profile(args) => profile::run(args, output),
        CascadeCommand::Judge(args) => judge::run(args, output),
        CascadeCommand::Select(args) => select::run(args, output),
    }
}

/// The dispatcher that `--cut-off` and `--slope` say.
fn reroute(cut_off: f64, slope: f64) -> Result<Reroute, Failure> {
    Reroute::new(cut_off, slope).map_err(|error| Failure::BadInput(format!("--{error}")))
}

/// Models and labelled items, which are the user's input.
struct Asked {
    models: Vec<TextModel>,
    items: Vec<Item>,
    /// Of the items' file.
    items_hash: String,
}

impl Asked {
    fn read(args: &CascadeModelsArgs) -> Result<Asked, Failure> {
        let device = Device::find(&args.device)?.torch();
        let model = |folder: &PathBuf| TextModel::read(folder, DType::F32, device);
        let models: Vec<TextModel> = args.models.iter().map(model).collect::<Result<_, _>>().map_err(of_input)?;
        for (index, model) in models.iter().enumerate() {
            if models[..index].iter().any(|other| other.name() == model.name()) {
                let message = format!("MODEL: must be folders of different names, got {} twice", model.name());
                return Err(Failure::BadInput(message));
            }
        }
        let items = read_items(&args.items, models[0].answer()).map_err(of_input)?;
        Ok(Asked {
            models,
            items,
            items_hash: tenantry_executor::cascade::hash_items(&args.items).map_err(of_input)?,
        })
    }
}

/// What is wrong with a model or with items, whose files are only read.
fn of_input(error: ExecutorError) -> Failure {
    match error {
        ExecutorError::File { path, source } => Failure::unreadable(&path, &source),
        error => Failure::bad_input(error),
    }
}

/// What `cascade profile` left in a folder.
fn profiled_in(folder: &Path) -> Result<ProfiledModels, Failure> {
    check_left_by("tenantry cascade profile", folder)?;
    ProfiledModels::read(folder).map_err(Failure::bad_input)
}

/// A note on a quantile of these items' latencies of which they say little.
fn few_beyond_p99(what: &str, items: usize) -> Option<String> {
    few_items_caveat(what, items, 0.01, "are expected beyond p99")
}

/// The middle one, the greater of two.
fn median(us: &[f32]) -> f32 {
    let mut sorted = us.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted[sorted.len() / 2]
}

/// A folder that is made beside `folder` and renamed to it when it is whole.
struct Unfinished<'a> {
    folder: &'a Path,
    beside: tempfile::TempDir,
}

impl<'a> Unfinished<'a> {
    fn new(folder: &'a Path) -> Result<Unfinished<'a>, Failure> {
        if folder.exists() {
            let message = format!(
                "--out: must be a folder that is not there yet, got {}",
                folder.display()
            );
            return Err(Failure::BadInput(message));
        }
        check_folder("--out", folder)?;
        let parent = whole::folder_of(folder);
        let failed = |error: std::io::Error| Failure::Running(format!("{}: {error}", parent.display()));
        std::fs::create_dir_all(parent).map_err(failed)?;
        let beside = whole::begin_folder(parent).map_err(failed)?;
        Ok(Unfinished { folder, beside })
    }

    fn path(&self) -> &Path {
        self.beside.path()
    }

    fn finish(self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::Running(format!("{}: {error}", self.folder.display()));
        whole::finish_folder(self.beside, self.folder).map_err(failed)
    }
}

/// A table for the terminal.
fn table<const COLUMNS: usize>(header: [&str; COLUMNS], rows: impl Iterator<Item = Vec<String>>) -> String {
    let header = header.map(str::to_owned).to_vec();
    let table: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    terminal::figures(&table, style())
}

/// A model or an item that cannot be used is the input's fault; a file that cannot be written, or a device without
/// memory, is not. Models that are half trained are good for nothing.
fn failure(error: ExecutorError) -> Failure {
    match error {
        ExecutorError::Interrupted => Failure::Interrupted("nothing was written".into()),
        error if error.is_bad_input() => Failure::bad_input(error),
        error => Failure::running(error),
    }
}
