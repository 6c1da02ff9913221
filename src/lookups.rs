//! What look-ups need to know of texts: read and counted once for all runs of a scenario that have the same.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tenantry_core::spec::PlotSpec;
use tenantry_plot::{Corpus, GivenTexts, KeySets, PlotError, Texts};
use tenantry_scenarios::{RunSpec, Scenario};
use tenantry_sim::MetError;
use tenantry_traces::generate::TenantGroups;

use crate::cards::{reading_failure, workload, workload_failure};
use crate::failure::Failure;

/// Texts and keys of tables that are known so far.
#[derive(Default)]
pub struct Lookups {
    corpora: Mutex<Vec<(Source, Arc<Corpus>)>>,
    keys: KeySets,
}

/// What users' texts hang on.
#[derive(PartialEq)]
struct Source {
    files: Vec<PathBuf>,
    tokenizer: Option<PathBuf>,
    vocabulary: u32,
}

impl Lookups {
    /// Counts what look-ups of a run meet in its tables, and how large these are where the scenario does not say.
    pub fn count(&self, run: &RunSpec, plot: &mut PlotSpec) -> Result<(), Failure> {
        let model = &run.system.pool.model;
        let groups = TenantGroups::new(&run.workload).map_err(|error| workload_failure(Some(&run.file), &error))?;
        let texts = match run.files.corpus.is_empty() {
            true => Texts::new(&[], None, run.seed, model.vocabulary, groups.domains()),
            false => self.corpus(run).map(|corpus| Texts::Given(GivenTexts::new(corpus, run.seed, groups.domains()))),
        };
        let texts = texts.map_err(Failure::bad_input)?;
        let mut workload = workload(run)?;
        let counted = tenantry_sim::count_met(plot, model, &texts, &mut *workload, &self.keys);
        let counted = counted.map_err(|error| match error {
            MetError::Workload(error) => reading_failure(Some(&run.file), &error),
            MetError::Tables(_) => Failure::running(error),
        })?;
        plot.met = counted.met;
        plot.domain_bytes = plot.domain_bytes.or(Some(counted.domain_bytes));
        Ok(())
    }

    /// That a run's texts, if it has any in files, can be read; `system` is its place in the scenario.
    pub fn check_texts(&self, scenario: &Scenario, system: usize, run: &RunSpec) -> Result<(), Failure> {
        if run.files.corpus.is_empty() {
            return Ok(());
        }
        let wrong = |error: PlotError| {
            let (path, must, got) = match &error {
                PlotError::Io { path, source } => (path, "a file that can be read", source.to_string()),
                PlotError::Field { path, must, got, .. } => (path, must.as_str(), got.clone()),
                _ => return Failure::bad_input(error),
            };
            let files = format!("systems[{system}].files");
            let key = match run.files.corpus.iter().position(|file| file == path) {
                Some(file) => format!("{files}.corpus[{file}]"),
                // The tokenizer beside it.
                None => format!("{files}.model"),
            };
            Failure::bad_input(scenario.wrong(&key, must, format!("{}: {got}", path.display())))
        };
        self.corpus(run).map(drop).map_err(wrong)
    }

    fn corpus(&self, run: &RunSpec) -> Result<Arc<Corpus>, PlotError> {
        let source = Source {
            files: run.files.corpus.clone(),
            tokenizer: run.files.tokenizer(),
            vocabulary: run.system.pool.model.vocabulary,
        };
        let mut corpora = self.corpora.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, corpus)) = corpora.iter().find(|(of, _)| *of == source) {
            return Ok(Arc::clone(corpus));
        }
        let corpus = Corpus::read(&source.files, source.tokenizer.as_deref(), source.vocabulary)?;
        let corpus = Arc::new(corpus);
        corpora.push((source, Arc::clone(&corpus)));
        Ok(corpus)
    }
}
