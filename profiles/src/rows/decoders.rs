//! What decoders do: layers, whole steps, LoRA, what cards do together.

use std::cmp::Ordering;

use super::{Row, family};
use crate::cells::{Cells, Field, RefusedIn};
use crate::family::Family;
use crate::keys::{AdapterImplementation, Added, CollectiveOperation};
use crate::model::DType;
use crate::schema::Column;
use crate::stats::Stats;

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
    /// One decoder layer's attention of a prompt that is computed at once, over itself alone: without a past it gathers
    /// no pages and needs no mask, so it takes less than a chunk which ends as long a context, and less than some
    /// smaller chunks of it.
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
    /// One decoder layer's attention of a prompt's chunk and of new tokens in one kernel, which is not the sum of the
    /// two.
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
    /// A whole step of a decoder, as a lane makes it: pages, layout, all layers, new tokens. It is not the sum of its
    /// parts: contexts differ, code and weights are as the part before left them, and a device that computes while the
    /// host prepares hides some of both.
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
