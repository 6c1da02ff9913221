//! What a task's own parameters weigh and what its operators do: sums over a model's layers of what each kind says of a
//! place (`kinds`).
//!
//! Sizes are those that the executor keeps on the device: 32-bit numbers, sparse matrices as CSR with 32-bit indices. A
//! mask of MaskBert is therefore not resident as bits but as the weights that it takes away, which costs 8 bytes for
//! each zero: 34.0 MB a task of BERT-base at 5 %, against 10.6 MB of bits in the repository.

use tenantry_profiles::{ModelShape, PetKind};

use super::kinds::{NUMBER, Place, rules};

/// Sizes of the five kinds' parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PetSizes {
    /// Width between an adapter's projections.
    pub bottleneck: u32,
    /// Rank of LoRA's products.
    pub rank: u32,
    /// Share of each weight's elements that a mask takes away.
    pub masked_share: f64,
    /// Share of each weight's elements that differ.
    pub difference_share: f64,
}

impl PetSizes {
    /// PetS, Table 4; the rank of LoRA is not the paper's: 16, as in Punica.
    pub const PAPER: PetSizes = PetSizes {
        bottleneck: 64,
        rank: 16,
        masked_share: 0.05,
        difference_share: 0.005,
    };

    /// Elements of a weight that a share of it is.
    pub fn elements(share: f64, outputs: u64, inputs: u64) -> u64 {
        libm::round(share * (outputs * inputs) as f64) as u64
    }
}

/// What one layer's operators of a task do for so many tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PetWork {
    /// Floating-point operations: two for each multiplication with addition.
    pub flops: u64,
    /// Bytes of memory moved: parameters once, inputs once, outputs read and written.
    pub bytes: u64,
}

/// Bytes of a task's parameters of one layer, resident on the device.
pub fn layer_bytes(kind: PetKind, shape: &ModelShape, sizes: &PetSizes) -> u64 {
    let rules = rules(kind);
    Place::all(shape).into_iter().map(|place| rules.bytes(place, sizes)).sum()
}

/// Bytes of a task's parameters in all layers, resident on the device; its head is counted by
/// [`ModelShape::head_parameters`].
pub fn resident_bytes(kind: PetKind, shape: &ModelShape, sizes: &PetSizes) -> u64 {
    u64::from(shape.layers) * layer_bytes(kind, shape, sizes)
}

/// Elements of a mask over all of a model's linear weights.
pub fn linear_weights(shape: &ModelShape) -> u64 {
    let weights = |place| match place {
        Place::Linear { outputs, inputs, .. } => outputs * inputs,
        Place::Norm { .. } => 0,
    };
    u64::from(shape.layers) * Place::all(shape).into_iter().map(weights).sum::<u64>()
}

/// How many elements a task's mask has over a model's weights; nothing for kinds without one.
pub fn mask_elements(kind: PetKind, shape: &ModelShape) -> Option<u64> {
    rules(kind).masks_weights().then(|| linear_weights(shape))
}

/// The linear layers of an encoder layer at which a kind has operators: a bit each, in the order of the forward pass.
pub fn linear_layers(kind: PetKind, shape: &ModelShape) -> u8 {
    let linears = Place::all(shape).into_iter().filter(|place| matches!(place, Place::Linear { .. }));
    let bits = linears.enumerate().map(|(bit, place)| match rules(kind).tensors(place).is_empty() {
        true => 0,
        false => 1 << bit,
    });
    bits.sum()
}

/// Whether a task's operators can be merged into its full model; else they stay beside it.
pub fn merges(kind: PetKind) -> bool {
    rules(kind).merges()
}

/// Bytes of activations that a forward pass holds at once for each query of so many tokens: in attention its input,
/// query, key, value, their result and the scores; in the feed-forward its input, the inner state and its result; the
/// larger of the two.
pub fn activation_bytes(shape: &ModelShape, tokens: u32) -> u64 {
    let (tokens, hidden) = (u64::from(tokens), u64::from(shape.hidden));
    let attention = tokens * 5 * hidden + u64::from(shape.heads) * tokens * tokens;
    let feed_forward = tokens * (2 * hidden + u64::from(shape.intermediate));
    attention.max(feed_forward) * NUMBER
}

/// What one layer's operators of a task do for a mini-batch of so many tokens in all.
pub fn layer_work(kind: PetKind, shape: &ModelShape, sizes: &PetSizes, tokens: u64) -> PetWork {
    let rules = rules(kind);
    let (mut flops, mut numbers) = (0, 0);
    for place in Place::all(shape) {
        let of_token = rules.work(place, sizes);
        flops += of_token.flops;
        numbers += of_token.numbers;
    }
    PetWork {
        flops: tokens * flops,
        bytes: tokens * numbers * NUMBER + layer_bytes(kind, shape, sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn megabytes(kind: PetKind) -> f64 {
        let shape = ModelShape::builtin("bert-base").unwrap();
        resident_bytes(kind, &shape, &PetSizes::PAPER) as f64 / 1e6
    }

    #[test]
    fn a_task_of_bert_base_takes() {
        // 85 million weights in linear layers: 12 × 12 × 768².
        let weights = 12.0 * 12.0 * 768.0 * 768.0;
        assert_eq!((weights * 0.05 * 8.0 / 1e6_f64).round(), 34.0);
        assert!((megabytes(PetKind::MaskBert) - weights * 0.05 * 8.0 / 1e6).abs() < 0.4);
        assert!((megabytes(PetKind::DiffPruning) - 4.1).abs() < 0.1);
        assert!((megabytes(PetKind::Adapters) - 9.5).abs() < 0.1);
        assert!((megabytes(PetKind::BitFit) - 0.41).abs() < 0.01);
        assert!((megabytes(PetKind::Lora) - 9.4).abs() < 0.1);
    }

    #[test]
    fn masks_and_activations_of_bert_base_take() {
        let shape = ModelShape::builtin("bert-base").unwrap();
        // 10.6 MB of bits, as PetS, Table 1 has 3 % of the model.
        assert_eq!(linear_weights(&shape), 12 * 12 * 768 * 768);
        // 128 tokens: 5 × 768 numbers each, and 12 heads' 128² scores.
        assert_eq!(activation_bytes(&shape, 128), 4 * (128 * 5 * 768 + 12 * 128 * 128));
        // 4 tokens: the inner state is wider than what attention holds.
        assert_eq!(activation_bytes(&shape, 4), 4 * 4 * (2 * 768 + 3072));
    }

    #[test]
    fn biases_compute_least_for_a_byte() {
        let shape = ModelShape::builtin("bert-base").unwrap();
        let intensity = |kind| {
            let work = layer_work(kind, &shape, &PetSizes::PAPER, 128);
            work.flops as f64 / work.bytes as f64
        };
        for kind in [
            PetKind::Adapters,
            PetKind::MaskBert,
            PetKind::DiffPruning,
            PetKind::Lora,
        ] {
            assert!(intensity(kind) > intensity(PetKind::BitFit), "{kind}");
        }
    }
}
