//! Sizes of a tenant's low-rank matrices, and which lies where.

use std::ops::Range;

use tch::Tensor;
use tenantry_profiles::ModelShape;

use crate::decoder;
use crate::error::ExecutorError;

/// The shape of a tenant's low-rank matrices: a pair for every dense projection of every layer, `y += x · A · B`.
///
/// One layer's are one block. For each input that projections share, it holds their `A` side by side,
/// `[in, projections × rank]`, so that all of them shrink it by one product; then each projection's `B`, `[rank, out]`.
/// Every tenant takes the same room: what has a lower rank, or adapts fewer projections, is filled up with zeros. The
/// scale (α / r) is in `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoraShape {
    /// Layers of the decoder.
    pub layers: u32,
    /// Width of its hidden state.
    pub hidden: u32,
    /// Width of its keys.
    pub kv_width: u32,
    /// Width inside its feed-forward.
    pub intermediate: u32,
    /// Whether it is Llama's, with a gate.
    pub gated: bool,
    /// Of every pair; the largest that fits a slot.
    pub rank: u32,
}

/// What several projections of a layer have as input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Of queries, keys and values.
    Attention,
    /// Of attention's output projection.
    AttentionOutput,
    /// Of gate and up, or of OPT's first matrix.
    FeedForward,
    /// Of down, or of OPT's second matrix.
    FeedForwardOutput,
}

impl Input {
    pub const ALL: [Input; 4] = [
        Input::Attention,
        Input::AttentionOutput,
        Input::FeedForward,
        Input::FeedForwardOutput,
    ];
}

/// One projection: its name in Hugging Face's layout, and its width.
pub(crate) struct Projection {
    pub module: &'static str,
    pub width: i64,
}

/// The pairs of one input, of so many slots, as views.
#[derive(Debug)]
pub(crate) struct LoraViews {
    /// `[slots, in, projections × rank]`.
    pub down: Tensor,
    /// `[slots, rank, out]` for each projection.
    pub ups: Vec<Tensor>,
    /// The same of neighbours that are equally wide together, `[slots, projections, rank, out]`.
    pub stacked_ups: Vec<Tensor>,
}

impl LoraViews {
    /// The pairs of some slots, copied together, one projection beside another.
    pub fn copied(&self, slots: &Tensor) -> Result<LoraViews, ExecutorError> {
        let copy = |matrices: &Tensor| matrices.f_index_select(0, slots);
        Ok(LoraViews {
            down: copy(&self.down)?,
            ups: self.ups.iter().map(copy).collect::<Result<_, _>>()?,
            stacked_ups: Vec::new(),
        })
    }
}

impl LoraShape {
    /// Low-rank matrices for a decoder.
    ///
    /// # Errors
    /// A shape that is no decoder's, or a rank of 0.
    pub fn new(model: &ModelShape, rank: u32) -> Result<LoraShape, ExecutorError> {
        decoder::check(model)?;
        if rank == 0 {
            return Err(ExecutorError::input("rank of LoRA", "at least 1", 0));
        }
        Ok(LoraShape {
            layers: model.layers,
            hidden: model.hidden,
            kv_width: model.hidden / model.heads * model.kv_heads,
            intermediate: model.intermediate,
            gated: model.gated,
            rank,
        })
    }

    /// Numbers of one layer's matrices.
    pub fn parameters_per_layer(&self) -> u64 {
        Input::ALL.into_iter().map(|input| self.length(input)).sum::<i64>() as u64
    }

    /// Numbers of a tenant's matrices.
    pub fn parameters(&self) -> u64 {
        u64::from(self.layers) * self.parameters_per_layer()
    }

    /// Width of an input.
    pub(crate) fn width(&self, input: Input) -> i64 {
        match input {
            Input::FeedForwardOutput => self.intermediate.into(),
            _ => self.hidden.into(),
        }
    }

    /// The projections of an input, in the order in which the decoder's fused matrix has them.
    pub(crate) fn projections(&self, input: Input) -> Vec<Projection> {
        let of = |module, width: u32| Projection {
            module,
            width: width.into(),
        };
        let (hidden, kv, intermediate) = (self.hidden, self.kv_width, self.intermediate);
        match (input, self.gated) {
            (Input::Attention, _) => vec![
                of("self_attn.q_proj", hidden),
                of("self_attn.k_proj", kv),
                of("self_attn.v_proj", kv),
            ],
            (Input::AttentionOutput, true) => vec![of("self_attn.o_proj", hidden)],
            (Input::AttentionOutput, false) => vec![of("self_attn.out_proj", hidden)],
            (Input::FeedForward, true) => vec![of("mlp.gate_proj", intermediate), of("mlp.up_proj", intermediate)],
            (Input::FeedForward, false) => vec![of("fc1", intermediate)],
            (Input::FeedForwardOutput, true) => vec![of("mlp.down_proj", hidden)],
            (Input::FeedForwardOutput, false) => vec![of("fc2", hidden)],
        }
    }

    /// Widths of the four inputs, and of all outputs of each, in the order of the forward pass.
    pub(crate) fn widths(&self) -> (Vec<i64>, Vec<i64>) {
        let outputs = |input| self.projections(input).iter().map(|projection| projection.width).sum();
        let inputs = Input::ALL.into_iter();
        (
            inputs.clone().map(|input| self.width(input)).collect(),
            inputs.map(outputs).collect(),
        )
    }

    /// Numbers of an input's pairs.
    fn length(&self, input: Input) -> i64 {
        let pair = |projection: &Projection| i64::from(self.rank) * (self.width(input) + projection.width);
        self.projections(input).iter().map(pair).sum()
    }

    /// Where one layer's matrices lie in a tenant's block.
    pub(crate) fn layer_blocks(&self, layers: Range<usize>) -> Range<usize> {
        let length = self.parameters_per_layer() as usize;
        layers.start * length..layers.end * length
    }

    /// Views of one layer's `blocks`, `[slots, parameters_per_layer]`; nothing is copied.
    pub(crate) fn views(&self, blocks: &Tensor, input: Input) -> Result<LoraViews, ExecutorError> {
        let mut offset: i64 = Input::ALL
            .into_iter()
            .take_while(|earlier| *earlier != input)
            .map(|earlier| self.length(earlier))
            .sum();
        let slots = blocks.size()[0];
        let mut numbers = |count: i64| {
            let view = blocks.f_narrow(1, offset, count);
            offset += count;
            view
        };
        let (rank, projections) = (i64::from(self.rank), self.projections(input));
        let (width, all) = (self.width(input), projections.len() as i64 * rank);
        let down = numbers(width * all)?.f_view([slots, width, all])?;
        let (mut ups, mut stacked_ups) = (Vec::new(), Vec::new());
        for alike in projections.chunk_by(|one, next| one.width == next.width) {
            let (count, width) = (alike.len() as i64, alike[0].width);
            let stacked = numbers(count * rank * width)?.f_view([slots, count, rank, width])?;
            ups.extend(stacked.f_unbind(1)?);
            stacked_ups.push(stacked);
        }
        Ok(LoraViews { down, ups, stacked_ups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_published_ones() {
        // Rank 16 on all dense projections of Llama 2 7B: 40 million numbers, 0.6 % of the model (Punica: 0.1 to 1 %).
        let shape = LoraShape::new(&ModelShape::builtin("llama-7b").unwrap(), 16).unwrap();
        assert_eq!(shape.parameters(), 39_976_960);
        let opt = LoraShape::new(&ModelShape::builtin("opt-125m").unwrap(), 8).unwrap();
        assert_eq!(opt.parameters(), 12 * 8 * (4 * 2 * 768 + 2 * (768 + 3072)));
    }

    #[test]
    fn views_cover_a_block_without_gap_or_overlap() {
        for name in ["tiny-llama", "tiny-opt"] {
            let shape = LoraShape::new(&ModelShape::builtin(name).unwrap(), 8).unwrap();
            let blocks = Tensor::zeros(
                [3, shape.parameters_per_layer() as i64],
                (tch::Kind::Int64, tch::Device::Cpu),
            );
            for input in Input::ALL {
                let views = shape.views(&blocks, input).unwrap();
                let _ = views.down.shallow_clone().g_add_scalar_(1);
                for mut up in views.ups {
                    let _ = up.g_add_scalar_(1);
                }
            }
            assert!(blocks.eq(1).all().int64_value(&[]) == 1, "{name}");
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let refused = |name, rank| LoraShape::new(&ModelShape::builtin(name).unwrap(), rank).unwrap_err().to_string();
        assert_eq!(refused("tiny-llama", 0), "rank of LoRA: must be at least 1, got 0");
        assert_eq!(refused("tiny", 8), "model tiny: kind: must be decoder, got encoder");
    }
}
