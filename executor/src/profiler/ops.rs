//! Which ops a card must price.

use std::collections::BTreeMap;

use serde::Serialize;
use tenantry_profiles::{AdapterImplementation, ModelKind, ModelShape, PetKind, PoolBatching};

/// HMI's default fragments.
const TRIGRAM: u32 = 3;

/// Ops beside those that every model's serving takes: embeddings, layers, heads, steps without LoRA, copies and
/// hand-overs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ops {
    /// By the model's name.
    of_models: BTreeMap<String, ModelOps>,
    /// Integer programs that allocate cards to runtimes.
    pub solves: bool,
    /// Pools of queries split into batches.
    pub plans: Vec<PoolBatching>,
}

/// Those of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelOps {
    /// Of adapters and of LoRA.
    pub adapters: Vec<AdapterImplementation>,
    /// Bottlenecks of adapters.
    pub bottlenecks: Vec<u32>,
    /// Ranks of decoders' LoRA.
    pub ranks: Vec<u32>,
    /// Operators of parameter-efficient tasks.
    pub pets: Vec<PetKind>,
    /// Passes with another tenant's whole model than the ones before: of the model's layers from so many on.
    pub whole_models: Vec<u32>,
    /// Look-ups of lower layers' results, by tables of fragments of so many tokens.
    pub lookups: Vec<u32>,
    /// Heads that label every token.
    pub tagging: bool,
    /// Passes that also say which words were attended to.
    pub attended: bool,
    /// Looks at what passes came to.
    pub inspected: bool,
    /// Whole passes at a padded length, as runtimes are compiled.
    pub compiled: bool,
    /// Layers and steps while other instances compute theirs.
    pub concurrent: bool,
}

impl Ops {
    /// All that there are, of these models, for adapters of these bottlenecks and LoRA of these ranks.
    pub fn all(models: &[ModelShape], bottlenecks: &[u32], ranks: &[u32]) -> Ops {
        let of = |model: &ModelShape| ModelOps {
            adapters: AdapterImplementation::ALL.to_vec(),
            bottlenecks: bottlenecks.to_vec(),
            ranks: ranks.to_vec(),
            pets: PetKind::ALL.to_vec(),
            whole_models: vec![0],
            lookups: vec![TRIGRAM],
            tagging: true,
            attended: true,
            inspected: true,
            compiled: model.kind == ModelKind::Encoder,
            concurrent: true,
        };
        Ops {
            of_models: models.iter().map(|model| (model.name.clone(), of(model))).collect(),
            solves: true,
            plans: PoolBatching::ALL.to_vec(),
        }
    }

    /// Those of a model.
    pub fn of(&self, model: &str) -> &ModelOps {
        static NONE: ModelOps = ModelOps {
            adapters: Vec::new(),
            bottlenecks: Vec::new(),
            ranks: Vec::new(),
            pets: Vec::new(),
            whole_models: Vec::new(),
            lookups: Vec::new(),
            tagging: false,
            attended: false,
            inspected: false,
            compiled: false,
            concurrent: false,
        };
        self.of_models.get(model).unwrap_or(&NONE)
    }

    /// The same, to be added to.
    pub fn of_mut(&mut self, model: &str) -> &mut ModelOps {
        self.of_models.entry(model.to_owned()).or_default()
    }
}
