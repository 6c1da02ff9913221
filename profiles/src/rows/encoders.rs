//! What encoders do: layers, ends, adapters, tasks' operators, whole models.

use std::cmp::Ordering;

use super::{Row, family};
use crate::cells::{Cells, Field, RefusedIn};
use crate::family::Family;
use crate::keys::{AdapterImplementation, PetKind};
use crate::model::DType;
use crate::schema::Column;
use crate::stats::Stats;

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
    /// One layer's operators of PetS's tasks while so many streams compute theirs, each mini-batches of all kinds:
    /// until the last stream is done, hand-overs included.
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
    /// One encoder layer that also sums up the attention which each token receives (Tabi, section 4.2): fused kernels
    /// do not say.
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
    /// A whole pass of a trained classifier over texts, as a lane makes it: from token ids to what its head puts out,
    /// in host memory. It is not the sum of its parts: it has a head of its own, its lengths are those of texts, and
    /// each part finds the caches as the one before left them.
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
    /// What a lane makes of a pass over texts: calibrated confidences and probabilities (Tabi, Eq. 3), kept and
    /// revealed to the dispatcher.
    TextLookRow: TextLook,
    names {
        /// The model's name.
        model: String,
        /// Whether each of these texts goes on without the words that received little attention (Eq. 5): they are taken
        /// out, and what is left is read by the next model's tokenizer.
        pruned: bool,
    },
    axes {
        /// Texts in the batch.
        batch: u32,
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
