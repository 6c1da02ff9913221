//! What each op family asks of a card, from the model's shape: launches, operations, bytes.
//!
//! Launches are those of a fused runtime (attention in one kernel, biases and activations inside the products).

use super::{Roofline, Work};
use crate::keys::{AdapterImplementation, CollectiveOperation, LoadSource, PetKind};
use crate::model::{DType, ModelKind, ModelShape};

/// Kernels of one encoder layer: two norms, the joint projection, attention, its output, and two of feed-forward.
pub(crate) const LAYER_LAUNCHES: f64 = 7.0;
const EMBEDDING_LAUNCHES: f64 = 2.0;
const HEAD_LAUNCHES: f64 = 2.0;
/// Norms, rotary positions, four projections, gate and activation, output.
const DENSE_LAUNCHES: f64 = 9.0;
const ATTENTION_LAUNCHES: f64 = 2.0;
const ENDS_LAUNCHES: f64 = 5.0;
/// What a launch costs within a graph captured for one shape, as a part of what it costs alone.
const CAPTURED: f64 = 0.25;
/// Sparse products reach this part of the peak that dense ones reach (Gale et al., 2020, at 90 to 95 % sparsity:
/// assumed for all cards).
const SPARSE: f64 = 0.15;
/// Shares of each weight matrix that MaskBert and Diff-pruning keep (PetS, Table 4).
const MASKED: f64 = 0.05;
const PRUNED: f64 = 0.005;
/// PetS, Table 4, and Punica, section 7.
const PET_BOTTLENECK: f64 = 64.0;
const PET_RANK: f64 = 16.0;
/// Of the link, that a copy between pinned memory and the card reaches, and one from pageable memory: public
/// measurements are at 10.2 to 13.1 of 16, 25 of 32 and 56 of 64 GB/s.
const PINNED: f64 = 0.8;
const PAGEABLE: f64 = 0.4;
/// Beginning a copy, a load, or a message between cards.
const COPY_US: f64 = 10.0;
const LOAD_US: f64 = 200.0;
const MESSAGE_US: f64 = 10.0;
/// A disk that nobody named.
pub(super) const DISK_BYTES_PER_US: f64 = 2e3;
/// One vector of a PLOT table's row: cache misses, and half precision to single (HMI, section 6.1: 0.2 ms for 128
/// tokens, each in three overlapping trigrams); and one that must come from the disk (2.4 ms).
const VECTOR_US: f64 = 0.2e3 / (3.0 * 128.0);
const DISK_VECTOR_US: f64 = 2.4e3 / (3.0 * 128.0);

/// Weights of one layer's matrices, without biases and norms.
pub(crate) fn matrix_weights(model: &ModelShape) -> f64 {
    let [hidden, intermediate] = [model.hidden, model.intermediate].map(f64::from);
    let feed_forward = if model.gated { 3.0 } else { 2.0 };
    2.0 * hidden * hidden + 2.0 * hidden * kv_width(model) + feed_forward * hidden * intermediate
}

fn kv_width(model: &ModelShape) -> f64 {
    f64::from(model.hidden) / f64::from(model.heads) * f64::from(model.kv_heads)
}

/// Inputs and outputs of all matrices of a layer as one of `cards` that share it has them, in numbers a token: what
/// LoRA's products read and write.
fn matrix_ends(model: &ModelShape, cards: u32) -> f64 {
    model.lora_parameters_per_card(1, cards) as f64
}

fn matrices(model: &ModelShape) -> f64 {
    if model.gated { 7.0 } else { 6.0 }
}

/// Floating-point operations of one encoder layer over `batch` sequences of `tokens` tokens: two for each weight of its
/// matrices and token, and for attention, whose scores and their sums are two products of all pairs of tokens, four for
/// each pair and dimension.
pub fn encoder_layer_flops(model: &ModelShape, batch: f64, tokens: f64) -> f64 {
    batch * tokens * (2.0 * matrix_weights(model) + 4.0 * tokens * f64::from(model.hidden))
}

/// One encoder layer over `batch` sequences of `tokens` tokens.
pub fn encoder_layer(model: &ModelShape, dtype: DType, batch: u32, tokens: u32) -> Work {
    let [hidden, intermediate] = [model.hidden, model.intermediate].map(f64::from);
    let (all, bytes) = (f64::from(batch) * f64::from(tokens), dtype.bytes() as f64);
    let weights = matrix_weights(model);
    Work {
        launches: LAYER_LAUNCHES,
        flops: encoder_layer_flops(model, batch.into(), tokens.into()),
        streamed_bytes: weights * bytes,
        moved_bytes: all * (14.0 * hidden + 2.0 * intermediate) * bytes,
    }
}

/// One decoder layer without attention over `tokens`, on each of the cards that share it.
pub fn decoder_dense(model: &ModelShape, dtype: DType, tensor_parallel: u32, tokens: u32) -> Work {
    let (all, bytes, cards) = (f64::from(tokens), dtype.bytes() as f64, f64::from(tensor_parallel));
    let [hidden, intermediate] = [model.hidden, model.intermediate].map(f64::from);
    let weights = matrix_weights(model) / cards;
    Work {
        launches: DENSE_LAUNCHES,
        flops: 2.0 * all * weights,
        streamed_bytes: weights * bytes,
        // Every card has the whole hidden state.
        moved_bytes: all * (8.0 * hidden + 2.0 * intermediate / cards) * bytes,
    }
}

/// One decoder layer's attention of a chunk of `tokens` whose last token attends to `context`.
pub fn decoder_prefill(model: &ModelShape, dtype: DType, tensor_parallel: u32, [tokens, context]: [u32; 2]) -> Work {
    let [tokens, context, cards] = [tokens, context, tensor_parallel].map(f64::from);
    let mean_context = context - (tokens - 1.0) / 2.0;
    Work {
        launches: ATTENTION_LAUNCHES,
        flops: 4.0 * tokens * mean_context * f64::from(model.hidden) / cards,
        streamed_bytes: 2.0 * context * kv_width(model) * dtype.bytes() as f64 / cards,
        moved_bytes: 0.0,
    }
}

/// One decoder layer's attention of a new token for each of `sequences`, each to `context`.
pub fn decoder_decode(model: &ModelShape, dtype: DType, tensor_parallel: u32, [sequences, context]: [u32; 2]) -> Work {
    let [sequences, context, cards] = [sequences, context, tensor_parallel].map(f64::from);
    let pairs = sequences * context / cards;
    Work {
        launches: ATTENTION_LAUNCHES,
        flops: 4.0 * pairs * f64::from(model.hidden),
        streamed_bytes: 2.0 * pairs * kv_width(model) * dtype.bytes() as f64,
        moved_bytes: 0.0,
    }
}

impl Roofline {
    /// One encoder layer's forward pass.
    pub fn encoder_layer_us(&self, model: &ModelShape, dtype: DType, batch: u32, tokens: u32) -> f64 {
        self.us(encoder_layer(model, dtype, batch, tokens), dtype)
    }

    /// From token ids to the first hidden state.
    pub fn embedding_us(&self, model: &ModelShape, dtype: DType, batch: u32, tokens: u32) -> f64 {
        let moved = f64::from(batch) * f64::from(tokens) * 4.0 * f64::from(model.hidden);
        let work = Work {
            launches: EMBEDDING_LAUNCHES,
            moved_bytes: moved * dtype.bytes() as f64,
            ..Work::default()
        };
        self.us(work, dtype)
    }

    /// Classification heads, one gathered for each sequence.
    pub fn head_us(&self, model: &ModelShape, dtype: DType, batch: u32, classes: u32) -> f64 {
        let weights = f64::from(batch) * f64::from(model.hidden) * f64::from(classes);
        let work = Work {
            launches: HEAD_LAUNCHES,
            flops: 2.0 * weights,
            // Gathered, and then read.
            streamed_bytes: 3.0 * weights * dtype.bytes() as f64,
            ..Work::default()
        };
        self.us(work, dtype)
    }

    /// A whole encoder captured for one shape.
    pub fn static_model_us(&self, model: &ModelShape, dtype: DType, batch: u32, tokens: u32) -> f64 {
        let layers = f64::from(model.layers);
        let eager = self.embedding_us(model, dtype, batch, tokens)
            + layers * self.encoder_layer_us(model, dtype, batch, tokens)
            + self.head_us(model, dtype, batch, 2);
        let launches = EMBEDDING_LAUNCHES + layers * LAYER_LAUNCHES + HEAD_LAUNCHES;
        eager - (1.0 - CAPTURED) * launches * self.factors.launch_us
    }

    /// One encoder layer while `streams` instances compute one at once: arithmetic and memory are shared, launches
    /// overlap.
    pub fn concurrent_layer_us(&self, model: &ModelShape, dtype: DType, streams: u32, batch: u32, tokens: u32) -> f64 {
        let one = encoder_layer(model, dtype, batch, tokens);
        let streams = f64::from(streams);
        let all = Work {
            launches: one.launches,
            flops: streams * one.flops,
            streamed_bytes: streams * one.streamed_bytes,
            moved_bytes: streams * one.moved_bytes,
        };
        self.us(all, dtype)
    }

    /// One layer's Houlsby adapters after attention.
    pub fn adapter_us(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        bottleneck: u32,
        [tenants, batch, tokens]: [u32; 3],
    ) -> f64 {
        let [hidden, bottleneck, tenants, batch, tokens] =
            [model.hidden, bottleneck, tenants, batch, tokens].map(f64::from);
        let (all, bytes, adapter) = (batch * tokens, dtype.bytes() as f64, 2.0 * hidden * bottleneck);
        let (launches, weights) = match implementation {
            AdapterImplementation::Loop => (4.0 * tenants, tenants * adapter),
            // What is gathered is written once and read again.
            AdapterImplementation::GatherBmm => (5.0, (tenants + 2.0 * batch) * adapter),
            AdapterImplementation::Grouped => (6.0, tenants * adapter),
        };
        let work = Work {
            launches,
            flops: 2.0 * all * adapter,
            streamed_bytes: weights * bytes,
            moved_bytes: all * (4.0 * hidden + 2.0 * bottleneck) * bytes,
        };
        self.us(work, dtype)
    }

    /// One layer's operators of one task (PetS, section 3.1).
    pub fn pet_us(&self, model: &ModelShape, dtype: DType, kind: PetKind, batch: u32, tokens: u32) -> f64 {
        let (all, bytes) = (f64::from(batch) * f64::from(tokens), dtype.bytes() as f64);
        let [hidden, intermediate] = [model.hidden, model.intermediate].map(f64::from);
        let outputs = 4.0 * hidden + intermediate + hidden;
        let sparse = |share: f64| {
            let kept = share * matrix_weights(model);
            Work {
                launches: matrices(model),
                flops: 2.0 * all * kept / SPARSE,
                // A value and its column each.
                streamed_bytes: kept * (bytes + 4.0),
                moved_bytes: 2.0 * all * outputs * bytes,
            }
        };
        let dense = |weights: f64, launches: f64, moved: f64| Work {
            launches,
            flops: 2.0 * all * weights,
            streamed_bytes: weights * bytes,
            moved_bytes: all * moved * bytes,
        };
        let work = match kind {
            PetKind::Adapters => {
                let adapter = 2.0 * hidden * PET_BOTTLENECK;
                dense(2.0 * adapter, 2.0 * 4.0, 2.0 * (4.0 * hidden + 2.0 * PET_BOTTLENECK))
            }
            PetKind::MaskBert => sparse(MASKED),
            PetKind::DiffPruning => sparse(PRUNED),
            PetKind::BitFit => dense(0.0, matrices(model), 2.0 * outputs),
            PetKind::Lora => dense(
                PET_RANK * matrix_ends(model, 1),
                2.0 * matrices(model),
                matrix_ends(model, 1) + 2.0 * matrices(model) * PET_RANK,
            ),
        };
        self.us(work, dtype)
    }

    /// One decoder layer without attention, on each of the cards that share it.
    pub fn decoder_dense_us(&self, model: &ModelShape, dtype: DType, tensor_parallel: u32, tokens: u32) -> f64 {
        self.us(decoder_dense(model, dtype, tensor_parallel, tokens), dtype)
    }

    /// One decoder layer's attention of a chunk of `tokens` whose last token attends to `context`.
    pub fn decoder_prefill_us(&self, model: &ModelShape, dtype: DType, tensor_parallel: u32, at: [u32; 2]) -> f64 {
        self.us(decoder_prefill(model, dtype, tensor_parallel, at), dtype)
    }

    /// One decoder layer's attention of a new token for each of `sequences`.
    pub fn decoder_decode_us(&self, model: &ModelShape, dtype: DType, tensor_parallel: u32, at: [u32; 2]) -> f64 {
        self.us(decoder_decode(model, dtype, tensor_parallel, at), dtype)
    }

    /// A decoder before and after its layers.
    pub fn decoder_ends_us(
        &self,
        model: &ModelShape,
        dtype: DType,
        tensor_parallel: u32,
        [sequences, tokens]: [u32; 2],
    ) -> f64 {
        let [sequences, tokens, cards] = [sequences, tokens, tensor_parallel].map(f64::from);
        let bytes = dtype.bytes() as f64;
        let output = f64::from(model.vocabulary) * f64::from(model.hidden) / cards;
        let work = Work {
            launches: ENDS_LAUNCHES,
            flops: 2.0 * sequences * output,
            streamed_bytes: output * bytes,
            moved_bytes: (2.0 * tokens * f64::from(model.hidden) + 2.0 * sequences * f64::from(model.vocabulary))
                * bytes,
        };
        self.us(work, dtype)
    }

    /// One decoder layer's LoRA products on all its projections, on each of the cards that share it.
    pub fn lora_us(
        &self,
        model: &ModelShape,
        dtype: DType,
        implementation: AdapterImplementation,
        [rank, tensor_parallel]: [u32; 2],
        [tenants, tokens]: [u32; 2],
    ) -> f64 {
        let [rank, tenants, tokens] = [rank, tenants, tokens].map(f64::from);
        let (bytes, ends) = (dtype.bytes() as f64, matrix_ends(model, tensor_parallel));
        let adapter = rank * ends;
        let products = 2.0 * matrices(model);
        let (launches, weights) = match implementation {
            AdapterImplementation::Loop => (products * tenants, tenants * adapter),
            AdapterImplementation::GatherBmm => (2.0 * products, (tenants + 2.0 * tokens) * adapter),
            AdapterImplementation::Grouped => (products, tenants * adapter),
        };
        let work = Work {
            launches,
            flops: 2.0 * tokens * adapter,
            streamed_bytes: weights * bytes,
            moved_bytes: tokens * (ends + products * rank) * bytes,
        };
        self.us(work, dtype)
    }

    /// A copy from the host.
    pub fn copy_us(&self, pinned: bool, bytes: u64) -> f64 {
        let share = if pinned { PINNED } else { PAGEABLE };
        COPY_US + bytes as f64 / (share * self.sheet.link) * 1e6
    }

    /// A whole model brought onto the card.
    pub fn model_load_us(&self, source: LoadSource, bytes: u64) -> f64 {
        let copy_us = LOAD_US + self.copy_us(false, bytes);
        match source {
            LoadSource::Host => copy_us,
            // Read and copied in turns: the slower counts.
            LoadSource::Disk | LoadSource::Checkpoint => copy_us.max(LOAD_US + bytes as f64 / DISK_BYTES_PER_US),
        }
    }

    /// What `workers` cards do together with `bytes` each, as a ring.
    pub fn collective_us(&self, operation: CollectiveOperation, workers: u32, bytes: u64) -> f64 {
        let rate = PINNED * self.sheet.peers / 1e6;
        let workers = f64::from(workers);
        match operation {
            CollectiveOperation::AllReduce => {
                let rounds = 2.0 * (workers - 1.0);
                MESSAGE_US + rounds + rounds / workers * bytes as f64 / rate
            }
            CollectiveOperation::SendReceive => MESSAGE_US + bytes as f64 / rate,
        }
    }
}

/// Rows of a PLOT table for `tokens` tokens, each in so many fragments, whatever the threads: HMI gives one figure, of
/// trigrams.
pub(crate) fn plot_lookup_us(from_disk: bool, tokens: u32, fragments: u32) -> f64 {
    let vector_us = if from_disk { DISK_VECTOR_US } else { VECTOR_US };
    f64::from(fragments) * f64::from(tokens) * vector_us
}

/// Whether the model reads the whole input at once.
pub(crate) fn is_encoder(model: &ModelShape) -> bool {
    model.kind == ModelKind::Encoder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Datasheet;

    fn model(name: &str) -> ModelShape {
        ModelShape::builtin(name).unwrap()
    }

    #[test]
    fn work_of_a_bert_layer_is_the_known_one() {
        let work = encoder_layer(&model("bert-base"), DType::F32, 1, 128);
        // 12 × hidden² weights, twice a token, and 4 × tokens² × hidden for attention.
        assert_eq!(
            work.flops,
            2.0 * 128.0 * 12.0 * 768.0 * 768.0 + 4.0 * 128.0 * 128.0 * 768.0
        );
        assert_eq!(work.streamed_bytes, 4.0 * 12.0 * 768.0 * 768.0);
    }

    #[test]
    fn a_decode_step_of_a_7b_reads_all_weights() {
        let roofline = Roofline::new(Datasheet::builtin("a100-sxm").unwrap());
        let llama = model("llama-7b");
        let step_us = 32.0
            * (roofline.decoder_dense_us(&llama, DType::F16, 1, 1)
                + roofline.decoder_decode_us(&llama, DType::F16, 1, [1, 128]))
            + roofline.decoder_ends_us(&llama, DType::F16, 1, [1, 1]);
        // Punica, Fig. 1: 11 ms, on an A100 of 80 GB.
        assert!((9_000.0..14_000.0).contains(&step_us), "{step_us}");
    }

    #[test]
    fn sharing_a_layer_and_adding_tenants_go_the_right_way() {
        let roofline = Roofline::new(Datasheet::builtin("a100-sxm").unwrap());
        let llama = model("llama-70b");
        let dense = |cards| roofline.decoder_dense_us(&llama, DType::F16, cards, 32);
        assert!(dense(8) < dense(1) / 4.0);
        let lora =
            |implementation, tenants| roofline.lora_us(&llama, DType::F16, implementation, [16, 1], [tenants, 32]);
        assert!(lora(AdapterImplementation::Loop, 32) > 10.0 * lora(AdapterImplementation::Loop, 1));
        assert!(lora(AdapterImplementation::Grouped, 32) < lora(AdapterImplementation::GatherBmm, 32));
    }
}
