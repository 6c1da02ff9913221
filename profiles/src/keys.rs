//! What picks one table of a family, beside models and number formats: implementations, sources, kinds.

use serde::{Deserialize, Serialize};

use crate::cells::{Field, Refused};
use crate::names::named;
use crate::schema::Form;

/// How a batch of several tenants' adapters is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterImplementation {
    /// One tenant after the other.
    Loop,
    /// Weights gathered for each request, then one batched matrix product.
    GatherBmm,
    /// Requests sorted by tenant, then one product over segments.
    Grouped,
}
named!(AdapterImplementation { Loop => "loop", GatherBmm => "gather-bmm", Grouped => "grouped" });

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the host's memory to the card's.
    HostToDevice,
}
named!(Direction { HostToDevice => "host-to-device" });

/// Where parameters are loaded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadSource {
    /// A file of raw blocks on the disk, as tenants' parameters are kept beside memory: read into the host's memory.
    /// Profiles from before [`Checkpoint`](Self::Checkpoint) have whole models' checkpoints here too.
    Disk,
    /// A whole model's checkpoint on the disk: checked, read, converted and brought onto the card.
    Checkpoint,
    /// The host's memory.
    Host,
}
named!(LoadSource { Disk => "disk", Checkpoint => "checkpoint", Host => "host" });

/// What it takes to hand work over, beside the work itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchOperation {
    /// From handing an op to an idle lane until it starts.
    Wake,
    /// From the end of an op until another lane or the server hears of it.
    Tell,
    /// From an instant that the serving loop sleeps until to its noticing that it has come.
    Alarm,
    /// A look at what an encoder's pass came to: confidence, and the attention that words were paid (Tabi, section
    /// 7.5).
    Inspect,
    /// What it takes the host to issue a layer to a device that works by itself. A layer that takes the device less
    /// lasts as long as this, which its own table shows too: this row is told, and prices nothing.
    Issue,
}
named!(DispatchOperation { Wake => "wake", Tell => "tell", Alarm => "alarm", Inspect => "inspect", Issue => "issue" });

/// What the processor's other cores do while work is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherCores {
    /// One at least has nothing to do: whoever is woken may be woken there, which takes ten times as long as on a core
    /// that is awake.
    Idle,
    /// All compute.
    Busy,
}
named!(OtherCores { Idle => "idle", Busy => "busy" });

/// Where a PLOT table's rows lie when they are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The host's memory.
    Memory,
    /// The disk, with nothing of the table cached.
    Disk,
}
named!(Tier { Memory => "memory", Disk => "disk" });

/// What the look-ups of a batch met in PLOT tables (HMI, Eq. 3): each takes another number of probes and of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupOutcome {
    /// Not told apart: a mixture, or a source that has one figure. Stands in for those that a card has no table of.
    Any,
    /// Every fragment in its domain's own table.
    DomainHit,
    /// Every fragment in the root's table, and not in its domain's.
    RootHit,
    /// Every fragment in neither, so that shorter ones answer for it.
    Fallback,
}
named!(LookupOutcome { Any => "any", DomainHit => "domain-hit", RootHit => "root-hit", Fallback => "fallback" });

/// Whose the tokens are that are looked up together: each text costs something whatever its length, so that as many of
/// them cost more apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokensOf {
    /// Whole texts or prompts. Stands in for sequences where a card has no table of these.
    Texts,
    /// As many sequences that a decoder generates, the newest token of each.
    Sequences,
}
named!(TokensOf { Texts => "texts", Sequences => "sequences" });

/// A kind of parameter-efficient fine-tuning (PetS, section 2.3), and LoRA beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PetKind {
    /// Houlsby adapters after attention and feed-forward.
    Adapters,
    /// A binary mask over each weight.
    MaskBert,
    /// A sparse difference from each weight.
    DiffPruning,
    /// Biases of its own.
    BitFit,
    /// Low-rank products beside each weight.
    Lora,
}
named!(PetKind {
    Adapters => "adapters",
    MaskBert => "mask-bert",
    DiffPruning => "diff-pruning",
    BitFit => "bit-fit",
    Lora => "lora",
});

/// How a pool of waiting queries is split into batches (PetS, sections 4.1 and 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolBatching {
    /// As they came, so many at a time.
    Fixed,
    /// By what the shared model costs.
    AlphaOnly,
    /// Each task's by what its operators cost.
    BetaOnly,
    /// By both, one after the other (Algorithm 1).
    Coordinated,
}
named!(PoolBatching {
    Fixed => "fixed",
    AlphaOnly => "alpha-only",
    BetaOnly => "beta-only",
    Coordinated => "coordinated",
});

/// What several cards do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveOperation {
    /// Every card gets the sum of all.
    AllReduce,
    /// One card to another.
    SendReceive,
}
named!(CollectiveOperation { AllReduce => "all-reduce", SendReceive => "send-receive" });

/// Whose parameters a pass is made with that the one before was not: what a processor's caches cannot keep from one to
/// the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Changing {
    /// Other tenants' heads over a shared model.
    Heads,
    /// The same of a model that was compiled for its shape: of a GPU's the host only launches a graph.
    Compiled,
    /// Their adapters too.
    Adapters,
    /// Other parameter-efficient tasks' operators.
    Tasks,
    /// Another tenant's whole model, which lay untouched until now.
    Model,
    /// Another tenant's whole model, which was copied just before: copies leave caches that cores share full of it.
    CopiedModel,
}
named!(Changing {
    Heads => "heads", Compiled => "compiled", Adapters => "adapters", Tasks => "tasks", Model => "model", CopiedModel => "copied-model"
});

/// What a step's tenants add to a decoder's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Added {
    /// Nothing: the backbone alone.
    Nothing,
    /// Low-rank products, written as `lora-gather-bmm-8`.
    Lora {
        /// How a step of several tenants is computed.
        implementation: AdapterImplementation,
        /// Of the products.
        rank: u32,
    },
    /// Houlsby adapters after attention, written as `adapters-gather-bmm-64`.
    Adapters {
        /// Likewise.
        implementation: AdapterImplementation,
        /// Width inside them.
        bottleneck: u32,
    },
}

impl Added {
    /// How a step of several tenants is computed; nothing where nothing is added.
    pub fn implementation(self) -> Option<AdapterImplementation> {
        match self {
            Added::Nothing => None,
            Added::Lora { implementation, .. } | Added::Adapters { implementation, .. } => Some(implementation),
        }
    }
}

impl std::fmt::Display for Added {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Added::Nothing => f.write_str("nothing"),
            Added::Lora { implementation, rank } => write!(f, "lora-{implementation}-{rank}"),
            Added::Adapters {
                implementation,
                bottleneck,
            } => write!(f, "adapters-{implementation}-{bottleneck}"),
        }
    }
}

impl Field for Added {
    fn form() -> Form {
        Form::text(&[])
    }

    fn read(text: &str) -> Result<Self, Refused> {
        if text == "nothing" {
            return Ok(Added::Nothing);
        }
        let parts = text.split_once('-').and_then(|(what, how)| Some((what, how.rsplit_once('-')?)));
        match parts {
            Some(("lora", (implementation, rank))) => Ok(Added::Lora {
                implementation: Field::read(implementation)?,
                rank: Field::read(rank)?,
            }),
            Some(("adapters", (implementation, bottleneck))) => Ok(Added::Adapters {
                implementation: Field::read(implementation)?,
                bottleneck: Field::read(bottleneck)?,
            }),
            _ => Err(Refused {
                must: "nothing, or what is added, its implementation and its width, such as lora-gather-bmm-8".into(),
                suggested: None,
            }),
        }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_read_as_it_is_written() {
        for &implementation in AdapterImplementation::ALL {
            for added in [
                Added::Nothing,
                Added::Lora {
                    implementation,
                    rank: 16,
                },
                Added::Adapters {
                    implementation,
                    bottleneck: 64,
                },
            ] {
                assert!(
                    matches!(Added::read(&added.write()), Ok(read) if read == added),
                    "{added}"
                );
            }
        }
        for wrong in ["lora-8", "gather-bmm-8", "adapters-gather-bmm-", "none"] {
            assert!(Added::read(wrong).is_err(), "{wrong}");
        }
    }
}
