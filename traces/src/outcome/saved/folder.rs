//! A folder of saved passes: models on the same items, whole and pruned.

use std::path::{Path, PathBuf};

use super::{ENDING, PruneStep, SavedOutputs};
use crate::error::TraceError;

/// What a folder of saved passes holds: models on the same items.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledModels {
    /// Each model's, with at least one.
    pub models: Vec<ProfiledModel>,
}

/// One model's passes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledModel {
    /// Over whole items.
    pub whole: SavedOutputs,
    /// Over pruned ones: by how many models pruned them, and by rising degree.
    pub pruned: Vec<SavedOutputs>,
}

impl ProfiledModels {
    /// Reads all files of a folder.
    ///
    /// # Errors
    /// As [`SavedOutputs::read`]; a folder without such files, or whose files are not of the same items and classes,
    /// have a model twice or with several weights, or lack its whole items.
    pub fn read(folder: &Path) -> Result<ProfiledModels, TraceError> {
        let io = |source| TraceError::unlisted(folder, source);
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .map_err(io)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()
            .map_err(io)?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
        paths.sort();
        let passes = paths.iter().map(|path| SavedOutputs::read(path)).collect::<Result<Vec<_>, _>>()?;
        let wrong = |must: &str, got: String| TraceError::file(folder, format!("must {must}, got {got}"));
        let Some(first) = passes.first().cloned() else {
            return Err(wrong("have the files of `tenantry cascade profile`", "none".into()));
        };
        let differs =
            |other: &&SavedOutputs| (&other.items_hash, &other.classes) != (&first.items_hash, &first.classes);
        if let Some(other) = passes.iter().find(differs) {
            let got = format!("{} beside {}", other.model, first.model);
            return Err(wrong("be about the same items and classes throughout", got));
        }
        let (whole, mut pruned): (Vec<_>, Vec<_>) = passes.into_iter().partition(|pass| pass.pruning.is_none());
        let mut models: Vec<ProfiledModel> = Vec::new();
        for whole in whole {
            if models.iter().any(|other| other.whole.model == whole.model) {
                let must = "have each model's whole items once";
                return Err(wrong(must, format!("{} twice", whole.model)));
            }
            let mut of_model: Vec<SavedOutputs> = pruned.extract_if(.., |pass| pass.model == whole.model).collect();
            if let Some(other) = of_model.iter().find(|pass| pass.model_hash != whole.model_hash) {
                let must = format!("be of the same files of {} throughout", whole.model);
                return Err(wrong(&must, format!("others in {}", other.file_name())));
            }
            of_model.sort_by(|a, b| in_order(a.steps(), b.steps()));
            models.push(ProfiledModel {
                whole,
                pruned: of_model,
            });
        }
        match pruned.first() {
            Some(other) => Err(wrong(
                "have each model's whole items",
                format!("only pruned ones of {}", other.model),
            )),
            None => Ok(ProfiledModels { models }),
        }
    }

    /// A model by its name.
    pub fn find(&self, name: &str) -> Option<&ProfiledModel> {
        self.models.iter().find(|model| model.whole.model == name)
    }

    /// The models' names.
    pub fn names(&self) -> Vec<&str> {
        self.models.iter().map(|model| model.whole.model.as_str()).collect()
    }

    /// What is right, item by item, as [`SavedOutputs::labels`].
    pub fn labels(&self) -> &[f32] {
        &self.models[0].whole.labels
    }
}

impl ProfiledModel {
    /// The pass over items that were pruned so; over whole ones where nobody pruned them.
    pub fn after(&self, steps: &[PruneStep]) -> Option<&SavedOutputs> {
        std::iter::once(&self.whole).chain(&self.pruned).find(|pass| pass.steps() == steps)
    }

    /// How the items were pruned that it has read, other than not at all.
    pub fn prunings(&self) -> impl Iterator<Item = &[PruneStep]> {
        self.pruned.iter().map(SavedOutputs::steps)
    }
}

fn in_order(a: &[PruneStep], b: &[PruneStep]) -> std::cmp::Ordering {
    let each = || a.iter().zip(b);
    let by_name = each().map(|(a, b)| a.by.cmp(&b.by));
    let by_degree = each().map(|(a, b)| a.alpha.total_cmp(&b.alpha));
    let differ = |order: &std::cmp::Ordering| order.is_ne();
    let first = by_name.chain(by_degree).find(differ);
    a.len().cmp(&b.len()).then(first.unwrap_or(std::cmp::Ordering::Equal))
}
