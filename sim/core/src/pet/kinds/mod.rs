//! What each kind of parameter-efficient task is to whoever plans, prices and checks it without computing it: its
//! tensors, what they weigh on the device, and what its operators do.
//!
//! A new kind is one file here that implements [`Rules`], and its line in [`rules`]; `work` and `tensors` add up what
//! the files say. Read `bit_fit.rs` for the shortest.

mod adapters;
mod bit_fit;
mod diff_pruning;
mod lora;
mod mask_bert;

use tenantry_profiles::{ModelShape, PetKind};

use super::tensors::Resident;
use super::work::PetSizes;

/// Bytes of a number and of a sparse matrix's index.
pub(super) const NUMBER: u64 = 4;
pub(super) const INDEX: u64 = 4;

/// Where in an encoder layer an operator of a task may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A linear layer.
    Linear {
        name: &'static str,
        outputs: u64,
        inputs: u64,
    },
    /// A norm over so many numbers.
    Norm { name: &'static str, width: u64 },
}

impl Place {
    /// Its part of a tensor's name.
    pub fn name(self) -> &'static str {
        match self {
            Place::Linear { name, .. } | Place::Norm { name, .. } => name,
        }
    }

    /// Those of an encoder layer, in the order of a forward pass, the norms last. Query, key and value are one linear
    /// layer.
    pub fn all(shape: &ModelShape) -> [Place; 6] {
        let (hidden, intermediate) = (u64::from(shape.hidden), u64::from(shape.intermediate));
        let linear = |name, outputs, inputs| Place::Linear { name, outputs, inputs };
        [
            linear("query_key_value", 3 * hidden, hidden),
            linear("attention_output", hidden, hidden),
            linear("intermediate", intermediate, hidden),
            linear("output", hidden, intermediate),
            Place::Norm {
                name: "attention_norm",
                width: hidden,
            },
            Place::Norm {
                name: "output_norm",
                width: hidden,
            },
        ]
    }
}

/// Of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    F32,
    I32,
    /// Bits, eight to an element.
    U8,
}

/// Of a tensor's dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Is(usize),
    /// The task's own (a rank, a bottleneck, a number of elements), so much at least; the same in all tensors of a
    /// place.
    AtLeast(usize),
    /// Likewise, from so much to so much.
    Between(usize, usize),
}

/// A tensor: the end of its name, its elements, and its dimensions.
pub(super) type Part = (&'static str, Element, Vec<Size>);

/// Content that cannot be computed with, of one of a place's tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub part: &'static str,
    pub must: String,
    pub got: String,
}

/// What an operator does for each token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenWork {
    /// Floating-point operations: two for each multiplication with addition.
    pub flops: u64,
    /// Numbers that it reads and writes beside its parameters.
    pub numbers: u64,
}

/// What a kind has at each place of an encoder layer.
pub(super) trait Rules: Sync {
    /// The tensors that make its operator there together; none where it has no operator.
    fn tensors(&self, place: Place) -> Vec<Part>;

    /// Whether a task may leave a place's tensors out as a whole, though not everywhere.
    fn optional(&self) -> bool {
        false
    }

    /// What the content of its tensors there takes on the device beside their own numbers and indices. `data` are their
    /// elements, in the order of [`tensors`](Self::tensors), which fit.
    ///
    /// # Errors
    /// What element types and shapes do not show.
    fn content(&self, _place: Place, _data: &[&[u8]]) -> Result<Resident, Unfit> {
        Ok(Resident::default())
    }

    /// Bytes of its parameters there, resident on the device, where only their sizes are known.
    fn bytes(&self, place: Place, sizes: &PetSizes) -> u64;

    /// What its operator does there for each token.
    fn work(&self, place: Place, sizes: &PetSizes) -> TokenWork;

    /// Whether its operators can be added to the shared model's parameters, so that a task's full model is of the
    /// shared one's shape.
    fn merges(&self) -> bool {
        true
    }

    /// Whether it is a mask with an element for each weight of the linear layers, of which a registration may state the
    /// number.
    fn masks_weights(&self) -> bool {
        false
    }
}

/// The rules of a kind.
pub(super) fn rules(kind: PetKind) -> &'static dyn Rules {
    match kind {
        PetKind::Adapters => &adapters::Adapters,
        PetKind::MaskBert => &mask_bert::MaskBert,
        PetKind::DiffPruning => &diff_pruning::DiffPruning,
        PetKind::BitFit => &bit_fit::BitFit,
        PetKind::Lora => &lora::Lora,
    }
}

/// Bytes of a sparse matrix as CSR, of whose elements a share is kept.
fn csr_bytes(share: f64, outputs: u64, inputs: u64) -> u64 {
    PetSizes::elements(share, outputs, inputs) * (NUMBER + INDEX) + (outputs + 1) * INDEX
}

/// What an operator beside a linear layer reads of each token, and adds to its output.
fn beside(outputs: u64, inputs: u64) -> u64 {
    inputs + 2 * outputs
}
