//! A scenario's models, by their keys or by the names of built-in ones.

use tenantry_profiles::{ModelKind, ModelShape};

use crate::error::Problem;
use crate::path::Path;
use crate::raw::{RawModel, RawScenario};

/// The models that a scenario may name.
pub(crate) struct Models<'a> {
    /// Those of `models` by key; nothing for those with a problem.
    by_key: Vec<(&'a str, Option<ModelShape>)>,
}

impl<'a> Models<'a> {
    /// Those of a scenario. What is wrong with one is added to the problems.
    pub fn resolve(raw: &'a RawScenario, problems: &mut Vec<Problem>) -> Models<'a> {
        let path = Path::default().key("models");
        let shape = |(key, model): (&'a String, &RawModel)| match shape_of(key, model, path.key(key)) {
            Ok(shape) => (key.as_str(), Some(shape)),
            Err(problem) => {
                problems.push(problem);
                (key.as_str(), None)
            }
        };
        Models {
            by_key: raw.models.iter().map(shape).collect(),
        }
    }

    /// The model of a name that stands at `path`, or what is wrong among the problems.
    pub fn named(&self, name: &str, path: Path, problems: &mut Vec<Problem>) -> Option<ModelShape> {
        self.find(name, path).map_err(|problem| problems.extend(problem)).ok()
    }

    /// The model of a name that stands at `path`.
    ///
    /// # Errors
    /// There is none of that name; or there is one with a problem, which is among the problems already.
    pub fn find(&self, name: &str, path: Path) -> Result<ModelShape, Option<Problem>> {
        if let Some((_, model)) = self.by_key.iter().find(|(key, _)| *key == name) {
            return model.clone().ok_or(None);
        }
        let known = self.by_key.iter().map(|(key, _)| *key);
        let builtins = ModelShape::builtin_names().iter().copied();
        ModelShape::builtin(name).ok_or_else(|| Some(Problem::unknown_name(path, name, known.chain(builtins))))
    }
}

fn shape_of(key: &str, model: &RawModel, path: Path) -> Result<ModelShape, Problem> {
    let shape = match model {
        RawModel::Builtin(name) => ModelShape::builtin(name)
            .ok_or_else(|| Problem::unknown_name(path.clone(), name, ModelShape::builtin_names().iter().copied()))?,
        RawModel::Shape(shape) if shape.kind == ModelKind::Encoder && (shape.gated || shape.kv_heads.is_some()) => {
            let key = if shape.gated { "gated" } else { "kv_heads" };
            return Err(Problem::new(
                path.key(key),
                "left out for an encoder, which has none of it",
                "something",
            ));
        }
        RawModel::Shape(shape) => ModelShape {
            name: key.to_string(),
            kind: shape.kind,
            layers: shape.layers.0,
            hidden: shape.hidden.0,
            heads: shape.heads.0,
            kv_heads: shape.kv_heads.unwrap_or(shape.heads).0,
            intermediate: shape.intermediate.0,
            gated: shape.gated,
            vocabulary: shape.vocabulary.0,
            positions: shape.positions.0,
        },
    };
    shape.validate().map_err(|error| Problem::new(path.key(error.field), error.must, error.got))?;
    Ok(shape)
}
