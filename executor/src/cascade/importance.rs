//! How much attention each token receives: what words are pruned by.

use std::ops::Range;

use tch::{Kind, Tensor};

use crate::error::ExecutorError;
use crate::model::{Encoder, Input};

/// All layers over `hidden`, `[n, l, hidden]` both in and out, and the importance of every token, `[n, l]` of 32 bits:
/// the attention weights that it receives from all tokens, summed over heads and layers (Tabi, Wang et al., EuroSys
/// '23, sections 2.3 and 4.2).
///
/// Padding neither gives nor receives attention. A layer's weights sum to heads times tokens, so that those of a
/// sequence sum to layers · heads · tokens.
///
/// # Errors
/// No memory on the device.
pub(crate) fn layers_with_importance(
    encoder: &Encoder,
    layers: Range<usize>,
    mut hidden: Tensor,
    input: &Input,
) -> Result<(Tensor, Tensor), ExecutorError> {
    tch::no_grad(|| {
        let size = [input.batch() as i64, input.tokens() as i64];
        let mut importance = Tensor::f_zeros(size, (Kind::Float, encoder.device()))?;
        // 1 for the queries of tokens and 0 for those of padding: `[n, 1, l, 1]`.
        let queries = input.mask.as_ref().map(|mask| mask.f_exp()?.f_transpose(2, 3)).transpose()?;
        for index in layers {
            let layer = encoder.layer_parts(index);
            let [query, key, value] = encoder.by_head(&layer.query_key_value.forward(&hidden)?)?;
            let mut scores = query.f_matmul(&key.f_transpose(2, 3)?)?.f_mul_scalar(encoder.score_scale())?;
            if let Some(by_distance) = encoder.scores_by_distance(index, &query, &key)? {
                let _ = scores.f_add_(&by_distance)?;
            }
            if let Some(mask) = &input.mask {
                let _ = scores.f_add_(mask)?;
            }
            let weights = scores.f_softmax(-1, None::<Kind>)?;
            let given = match &queries {
                Some(queries) => weights.f_mul(queries)?,
                None => weights.shallow_clone(),
            };
            let _ = importance.f_add_(&given.f_sum_dim_intlist([1i64, 2].as_slice(), false, Kind::Float)?)?;
            let attended = encoder.rejoined(&weights.f_matmul(&value)?)?;
            hidden = layer.after_attention(layer.attention_output.forward(&attended)?, &hidden)?;
        }
        Ok((hidden, importance))
    })
}

#[cfg(test)]
mod tests {
    use tch::Device;
    use tenantry_profiles::{DType, ModelShape};

    use super::*;

    fn run(encoder: &Encoder, sequences: &[Vec<i64>], tokens: usize) -> (Tensor, Tensor) {
        let input = encoder.input(sequences, tokens).unwrap();
        layers_with_importance(encoder, 0..2, encoder.embed(&input).unwrap(), &input).unwrap()
    }

    fn close(found: &Tensor, expected: &Tensor) {
        let difference = (found - expected).abs().max().double_value(&[]);
        assert!(difference < 1e-4, "off by {difference}");
    }

    #[test]
    fn the_pass_is_the_encoders_and_padding_changes_nothing() {
        let encoder = Encoder::random(&ModelShape::builtin("tiny").unwrap(), 7, DType::F32, Device::Cpu).unwrap();
        let sequences: Vec<Vec<i64>> = vec![vec![3, 9, 4, 1], (0..11).collect()];
        let (hidden, importance) = run(&encoder, &sequences, 16);

        let input = encoder.input(&sequences, 16).unwrap();
        let plain = encoder.layers(encoder.embed(&input).unwrap(), 0..2, &input, None).unwrap();
        for (row, sequence) in (0..).zip(&sequences) {
            let length = sequence.len() as i64;
            close(
                &hidden.get(row).narrow(0, 0, length),
                &plain.get(row).narrow(0, 0, length),
            );
            let (_, alone) = run(&encoder, std::slice::from_ref(sequence), sequence.len());
            close(&importance.get(row).narrow(0, 0, length), &alone.get(0));
            let shape = encoder.shape();
            let total = importance.get(row).sum(Kind::Float).double_value(&[]);
            assert!((total - f64::from(shape.layers * shape.heads) * length as f64).abs() < 1e-3);
            assert_eq!(
                importance.get(row).narrow(0, length, 16 - length).sum(Kind::Float).double_value(&[]),
                0.0
            );
        }
    }
}
