//! One measured point of each op family: a row of its CSV file, and how rows are read and written.
//!
//! A family's columns are the names that pick one table of it (model, dtype …), then the dimensions that a lookup
//! interpolates over (batch, tokens …), then [`Stats`]. Each family is declared once.

use std::cmp::Ordering;

use crate::cells::{Cells, Field, Refused};
use crate::family::Family;
use crate::keys::{
    AdapterImplementation, Added, Changing, CollectiveOperation, Direction, DispatchOperation, LoadSource,
    LookupOutcome, OtherCores, PetKind, PoolBatching, Tier, TokensOf,
};
use crate::model::DType;
use crate::schema::Column;
use crate::stats::{STATS_COLUMNS, Stats};

/// A row of one family's table.
pub(crate) trait Row: Clone {
    const FAMILY: Family;
    /// The columns that pick one table of the family.
    const NAMES: &'static [&'static str];
    /// The dimensions that a lookup interpolates over.
    const AXES: &'static [&'static str];
    /// What a row of it is.
    const DESCRIPTION: &'static str;

    /// The form of [`NAMES`](Self::NAMES) and [`AXES`](Self::AXES), in order.
    fn keys() -> Vec<Column>;
    fn read(cells: &impl Cells) -> Result<Self, (&'static str, Refused)>;
    /// The cells of [`NAMES`](Self::NAMES), in order.
    fn names(&self) -> Vec<String>;
    /// The point on [`AXES`](Self::AXES), in order.
    fn at(&self) -> Vec<u64>;
    fn stats(&self) -> &Stats;
    fn stats_mut(&mut self) -> &mut Stats;
    /// The order of rows in a saved file: by name, then by each dimension.
    fn compare(&self, other: &Self) -> Ordering;

    /// The cell of the `model` column, where the family has one.
    fn model(&self) -> Option<String> {
        let model = Self::NAMES.iter().position(|column| *column == "model")?;
        Some(self.names().swap_remove(model))
    }

    /// All columns, in order.
    fn columns() -> Vec<&'static str> {
        [Self::NAMES, Self::AXES, &STATS_COLUMNS].concat()
    }
}

macro_rules! family {
    (
        $(#[doc = $doc:literal])* $row:ident: $family:ident,
        names { $($(#[doc = $name_doc:literal])* $name:ident: $name_type:ty),* $(,)? },
        axes { $($(#[doc = $axis_doc:literal])* $axis:ident: $axis_type:ty),* $(,)? }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $row {
            $($(#[doc = $name_doc])* pub $name: $name_type,)*
            $($(#[doc = $axis_doc])* pub $axis: $axis_type,)*
            /// What was measured there.
            pub stats: Stats,
        }

        impl Row for $row {
            const FAMILY: Family = Family::$family;
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
            const AXES: &'static [&'static str] = &[$(stringify!($axis)),*];
            const DESCRIPTION: &'static str = concat!($($doc),*);

            fn keys() -> Vec<Column> {
                vec![
                    $(Column::of::<$name_type>(stringify!($name), concat!($($name_doc),*)),)*
                    $(Column::of::<$axis_type>(stringify!($axis), concat!($($axis_doc),*)),)*
                ]
            }

            fn read(cells: &impl Cells) -> Result<Self, (&'static str, Refused)> {
                Ok($row {
                    $($name: cells.cell(stringify!($name))?,)*
                    $($axis: cells.cell(stringify!($axis))?,)*
                    stats: Stats::read(cells)?,
                })
            }

            fn names(&self) -> Vec<String> {
                vec![$(self.$name.write()),*]
            }

            fn at(&self) -> Vec<u64> {
                vec![$(u64::from(self.$axis)),*]
            }

            fn stats(&self) -> &Stats {
                &self.stats
            }

            fn stats_mut(&mut self) -> &mut Stats {
                &mut self.stats
            }

            fn compare(&self, other: &Self) -> Ordering {
                Ordering::Equal
                    $(.then_with(|| self.$name.cmp(&other.$name)))*
                    $(.then_with(|| self.$axis.cmp(&other.$axis)))*
            }
        }
    };
}

family! {
    /// One encoder layer's forward pass.
    EncoderLayerRow: EncoderLayer,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// From token ids to the first hidden state.
    EmbeddingRow: Embedding,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// From the last hidden state to logits, with a head for each request gathered from its tenant's.
    HeadRow: Head,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Classes of each head.
        classes: u32,
    }
}

family! {
    /// From the last hidden state to a label for each token, with a head for each request gathered from its tenant's.
    TaggingHeadRow: TaggingHead,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
        /// Labels of each head.
        classes: u32,
    }
}

family! {
    /// One layer's Houlsby adapters over a batch of several tenants.
    AdapterRow: Adapter,
    names {
        /// The backbone's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// How the batch is computed.
        implementation: AdapterImplementation,
        /// Rows of the down-projection.
        bottleneck: u32,
    },
    axes {
        /// Different tenants in the batch, at most `batch`.
        tenants: u32,
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// One copy over the host's link.
    CopyRow: Copy,
    names {
        /// Which way.
        direction: Direction,
        /// Whether the host's memory is page-locked.
        pinned: bool,
    },
    axes {
        /// Size.
        bytes: u64,
    }
}

family! {
    /// Parameters loaded: a tenant's block or a whole model.
    ModelLoadRow: ModelLoad,
    names {
        /// From where.
        source: LoadSource,
    },
    axes {
        /// Their size.
        bytes: u64,
    }
}

family! {
    /// Work beside the model's own.
    DispatchRow: Dispatch,
    names {
        /// Which.
        operation: DispatchOperation,
    },
    axes {}
}

family! {
    /// Handing work over between the loop and a lane, which sleep in turns. Whoever is woken is woken on the core that is awake or on another,
    /// as the system sees fit, which depends on the rhythm of work and pauses.
    HandOverRow: HandOver,
    names {
        /// Which.
        operation: DispatchOperation,
        /// What the other cores do.
        other_cores: OtherCores,
    },
    axes {
        /// From hearing of the end of the lane's last op until the next is handed over, in microseconds; 1 stands for at once.
        pause_us: u32,
        /// What the lane's ops take, in microseconds; 1 where it does not matter.
        work_us: u32,
    }
}

family! {
    /// What a model's pass takes longer after its lane was idle or had another tenant's model: caches are cold, memory may have to be
    /// mapped anew, clocks are low.
    ResumeRow: Resume,
    names {
        /// The model's name.
        model: String,
        /// Whose parameters are others than those of the pass before.
        changing: Changing,
        /// The layer from which on it is computed, 1 being all. Where tenants have whole models, these are theirs from there on.
        from_layer: u32,
    },
    axes {
        /// How long the lane was idle, in microseconds. Where the model changes, 1 stands for not at all.
        idle_us: u32,
        /// What the compute takes on a lane that was busy before, with the same model, in microseconds.
        work_us: u32,
    }
}

family! {
    /// What a copy to the device takes longer after its lane was idle, for the same reasons.
    CopyResumeRow: CopyResume,
    names {},
    axes {
        /// How long the lane was idle, in microseconds.
        idle_us: u32,
        /// What the copy takes on a lane that was busy before, in microseconds.
        work_us: u32,
    }
}

family! {
    /// What a look-up takes longer after its lane, and the threads that share its work, were idle.
    LookupResumeRow: LookupResume,
    names {
        /// Threads that share the work.
        threads: u32,
    },
    axes {
        /// How long they were idle, in microseconds.
        idle_us: u32,
        /// What the look-up takes by threads that were busy before, in microseconds.
        work_us: u32,
    }
}

family! {
    /// A whole encoder compiled for one shape (Arlo, section 2.2): a batch runs on the next larger compiled one.
    StaticModelRow: StaticModel,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens that it was compiled for.
        tokens: u32,
    }
}

family! {
    /// One encoder layer while so many instances run one at once.
    ConcurrentLayerRow: ConcurrentLayer,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Instances that compute at the same time, this one included.
        streams: u32,
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// A whole encoder compiled for one shape while so many instances run theirs.
    ConcurrentModelRow: ConcurrentModel,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Instances that compute at the same time, this one included.
        streams: u32,
        /// Sequences in the batch.
        batch: u32,
        /// Tokens that it was compiled for.
        tokens: u32,
    }
}

family! {
    /// One layer's operators of PetS's tasks while so many streams compute theirs, each mini-batches of all kinds: until the last stream is done,
    /// hand-overs included.
    ConcurrentPetRow: ConcurrentPet,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Streams that compute at the same time, the first of them the caller's.
        streams: u32,
        /// Sequences in each mini-batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// One encoder layer that also sums up the attention which each token receives (Tabi, section 4.2): fused kernels do not say.
    AttendedLayerRow: AttendedLayer,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// A whole pass of a trained classifier over texts, as a lane makes it: from token ids to what its head puts out, in host memory. It is not
    /// the sum of its parts: it has a head of its own, its lengths are those of texts, and each part finds the caches as the one before left them.
    TextPassRow: TextPass,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Whether it also sums up the attention that each token receives (Tabi, section 4.2).
        attended: bool,
    },
    axes {
        /// Texts in the batch.
        batch: u32,
        /// Tokens of the longest: the others are padded to it.
        tokens: u32,
    }
}

family! {
    /// What a lane makes of a pass over texts: calibrated confidences and probabilities (Tabi, Eq. 3), kept and revealed to the dispatcher.
    TextLookRow: TextLook,
    names {
        /// The model's name.
        model: String,
        /// Whether each of these texts goes on without the words that received little attention (Eq. 5): they are taken out, and what is
        /// left is read by the next model's tokenizer.
        pruned: bool,
    },
    axes {
        /// Texts in the batch.
        batch: u32,
    }
}

family! {
    /// Fragments of a batch looked up in a PLOT table and aggregated to hidden states (HMI, Eq. 2 and 3).
    PlotLookupRow: PlotLookup,
    names {
        /// The backbone's name.
        model: String,
        /// Where the root's rows lie; a domain's own lie in memory.
        tier: Tier,
        /// What all of the look-ups met.
        outcome: LookupOutcome,
        /// Whose tokens they are.
        tokens_of: TokensOf,
    },
    axes {
        /// Threads that share the work.
        threads: u32,
        /// Tokens of the whole batch.
        tokens: u32,
        /// Tokens of a fragment: the n of n-grams.
        fragment_tokens: u32,
    }
}

family! {
    /// One layer's task-specific operators over the mini-batch of one task (PetS, the β of section 4.1).
    PetRow: Pet,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Of the task.
        kind: PetKind,
    },
    axes {
        /// Sequences in the batch.
        batch: u32,
        /// Tokens of each, padding included.
        tokens: u32,
    }
}

family! {
    /// What one decoder layer does token by token: norms, projections and feed-forward, without attention.
    DecoderDenseRow: DecoderDense,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Tokens of all sequences in the step.
        tokens: u32,
    }
}

family! {
    /// One decoder layer's attention of a prompt's chunk over itself and what is cached before it.
    DecoderPrefillRow: DecoderPrefill,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Tokens of the chunk.
        tokens: u32,
        /// Tokens that the last of them attends to: those cached before, and the chunk's own.
        context: u32,
    }
}

family! {
    /// One decoder layer's attention of a prompt that is computed at once, over itself alone: without a past it gathers no pages and needs no mask, so it
    /// takes less than a chunk which ends as long a context, and less than some smaller chunks of it.
    DecoderWholePromptRow: DecoderWholePrompt,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Its tokens.
        tokens: u32,
    }
}

family! {
    /// One decoder layer's attention of one new token for each sequence.
    DecoderDecodeRow: DecoderDecode,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Sequences.
        sequences: u32,
        /// Tokens that each attends to, its own included; their mean where they differ.
        context: u32,
    }
}

family! {
    /// One decoder layer's attention of a prompt's chunk and of new tokens in one kernel, which is not the sum of the two.
    DecoderMixedRow: DecoderMixed,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Tokens of the chunk.
        tokens: u32,
        /// Tokens that the first of them attends to: those cached before, and itself.
        first_context: u32,
        /// Sequences that get a new token.
        sequences: u32,
        /// Tokens that each of these attends to, its own included; their mean where they differ.
        context: u32,
    }
}

family! {
    /// One decoder layer's attention of several whole prompts in one kernel, which takes less than they do one by one.
    DecoderPromptsRow: DecoderPrompts,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Prompts.
        prompts: u32,
        /// Tokens of each.
        tokens: u32,
    }
}

family! {
    /// A decoder before and after its layers: embedding, last norm, output matrix and sampling.
    DecoderEndsRow: DecoderEnds,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Cards that share each layer.
        tensor_parallel: u32,
    },
    axes {
        /// Sequences that get a new token.
        sequences: u32,
        /// Tokens of all sequences in the step.
        tokens: u32,
    }
}

family! {
    /// A whole step of a decoder, as a lane makes it: pages, layout, all layers, new tokens. It is not the sum of its parts: contexts
    /// differ, code and weights are as the part before left them, and a device that computes while the host prepares hides some of both.
    DecoderStepRow: DecoderStep,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// Layers that were measured, of as many as the model has or fewer.
        layers: u32,
        /// What tenants add, each sequence another one.
        added: Added,
    },
    axes {
        /// Tokens of one sequence's chunk; the others bring one new token each, and where this is 1, all do.
        chunk_tokens: u32,
        /// Sequences in the step.
        sequences: u32,
        /// Tokens that a new token attends to on average, its own included; from half to one and a half times that.
        context: u32,
    }
}

family! {
    /// A whole step of a decoder while so many instances make one at once, each on a thread of the same processor.
    ConcurrentStepRow: ConcurrentStep,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// What tenants add, each sequence another one.
        added: Added,
    },
    axes {
        /// Instances that compute at the same time, this one included.
        streams: u32,
        /// Sequences in each one's step, which bring one new token each.
        sequences: u32,
    }
}

family! {
    /// One decoder layer's LoRA products on all its dense projections.
    LoraRow: Lora,
    names {
        /// The model's name.
        model: String,
        /// Its number format.
        dtype: DType,
        /// How a step of several tenants is computed.
        implementation: AdapterImplementation,
        /// Of the products.
        rank: u32,
        /// Cards that share each layer, of which this is one.
        tensor_parallel: u32,
    },
    axes {
        /// Different tenants in the step, at most `tokens`.
        tenants: u32,
        /// Tokens of all sequences in the step.
        tokens: u32,
    }
}

family! {
    /// What several cards do together.
    CollectiveRow: Collective,
    names {
        /// Which.
        operation: CollectiveOperation,
    },
    axes {
        /// Cards.
        workers: u32,
        /// Size of each card's part.
        bytes: u64,
    }
}

family! {
    /// An allocation program solved on the host (Arlo, section 3.3).
    SolveRow: Solve,
    names {},
    axes {
        /// Cards to be allocated.
        gpus: u32,
        /// Runtimes that they are allocated to.
        runtimes: u32,
    }
}

family! {
    /// A pool of waiting queries split into batches on the host (PetS, Algorithm 1), in batches of at most 128.
    PlanRow: Plan,
    names {
        /// By which rule.
        batching: PoolBatching,
    },
    axes {
        /// Different tasks among the queries, at most `queries`.
        tasks: u32,
        /// Queries of the pool.
        queries: u32,
    }
}
