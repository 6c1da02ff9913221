//! Which ops a card must price.

use serde::Serialize;
use tenantry_profiles::{AdapterImplementation, ModelKind, ModelShape, PetKind, PoolBatching};

/// HMI's default fragments.
const TRIGRAM: u32 = 3;

/// Ops beside those that every model's serving takes: embeddings, layers, heads, steps without LoRA, copies and hand-overs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ops {
    /// Of adapters and of LoRA.
    pub adapters: Vec<AdapterImplementation>,
    /// Operators of parameter-efficient tasks.
    pub pets: Vec<PetKind>,
    /// Passes with another tenant's whole model than the ones before: of the model's layers from so many on.
    pub whole_models: Vec<u32>,
    /// Look-ups of lower layers' results, by tables of fragments of so many tokens.
    pub lookups: Vec<u32>,
    /// Heads that label every token.
    pub tagging: bool,
    /// Passes that also say which words were attended to, and looks at what they came to.
    pub attended: bool,
    /// Whole passes at a padded length, of the models of these names: those that runtimes are compiled of.
    pub static_models: Vec<String>,
    /// Layers and steps while other instances compute theirs.
    pub concurrent: bool,
    /// Integer programs that allocate cards to runtimes.
    pub solves: bool,
    /// Pools of queries split into batches.
    pub plans: Vec<PoolBatching>,
}

impl Ops {
    /// All that there are, of these models.
    pub fn all(models: &[ModelShape]) -> Ops {
        let encoders = models.iter().filter(|model| model.kind == ModelKind::Encoder);
        Ops {
            adapters: AdapterImplementation::ALL.to_vec(),
            pets: PetKind::ALL.to_vec(),
            whole_models: vec![0],
            lookups: vec![TRIGRAM],
            tagging: true,
            attended: true,
            static_models: encoders.map(|model| model.name.clone()).collect(),
            concurrent: true,
            solves: true,
            plans: PoolBatching::ALL.to_vec(),
        }
    }
}
