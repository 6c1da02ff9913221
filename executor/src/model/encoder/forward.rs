//! What an encoder computes: padded inputs, embeddings, layers with tenants' adapters.

use std::ops::Range;

use tch::Tensor;

use super::{Embedding, Encoder, Layer};
use crate::adapters::Adapters;
use crate::error::ExecutorError;
use crate::model::input::Input;
use crate::model::relative::Distances;

impl Encoder {
    /// A padded batch of token ids, ready for [`embed`](Self::embed): each of `sequences` is padded to `tokens`.
    ///
    /// # Errors
    /// More tokens than the model has positions, an empty batch or sequence, or an id outside the vocabulary.
    pub fn input(&self, sequences: &[impl AsRef<[i64]>], tokens: usize) -> Result<Input, ExecutorError> {
        if tokens > self.shape.positions as usize {
            let must = format!(
                "at most {} tokens, the positions of {}",
                self.shape.positions, self.shape.name
            );
            return Err(ExecutorError::input("padded length of the batch", must, tokens));
        }
        Input::pad(
            sequences,
            tokens,
            self.shape.vocabulary.into(),
            self.kind(),
            self.device(),
        )
    }

    /// The sum of token, position and segment embeddings, normalised: `[n, l, hidden]`.
    ///
    /// # Errors
    /// Only upper layers are here, the batch has no token ids, or no memory on the device.
    pub fn embed(&self, input: &Input) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.embedded(input))
    }

    /// As [`embed`](Self::embed), and kept in mind for gradients where a parameter asks for one.
    pub(crate) fn embedded(&self, input: &Input) -> Result<Tensor, ExecutorError> {
        let (Some(embedding), Some(ids)) = (&self.embedding, &input.ids) else {
            let what = format!("embedding of {}", self.shape.name);
            return Err(ExecutorError::input(what, "here, with token ids", "looked up instead"));
        };
        let Embedding {
            words,
            positions,
            segments,
            norm,
            projection,
        } = embedding;
        let segment = match &input.segments {
            Some(ids) => Tensor::f_embedding(segments, ids, -1, false, false)?,
            None => segments.f_select(0, 0)?,
        };
        let position = positions.f_narrow(0, 0, input.tokens() as i64)?.f_add(&segment)?;
        let mut sum = Tensor::f_embedding(words, ids, -1, false, false)?;
        let embedded = norm.forward(&sum.f_add_(&position)?)?;
        match projection {
            None => Ok(embedded),
            Some(projection) => projection.forward(&embedded),
        }
    }

    /// Layers `range` over `hidden`, `[n, l, hidden]` both in and out, where `input` is the batch that `hidden` came
    /// from. With `adapters`, each layer adapts what its attention yields.
    ///
    /// # Errors
    /// Adapters of another width, or no memory on the device.
    ///
    /// # Panics
    /// If there are no such layers here.
    pub fn layers(
        &self,
        mut hidden: Tensor,
        range: Range<usize>,
        input: &Input,
        adapters: Option<&Adapters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| {
            for index in range {
                hidden = self.layer(index, &hidden, input, adapters)?;
            }
            Ok(hidden)
        })
    }

    /// One layer, kept in mind for gradients where a parameter asks for one.
    pub(crate) fn layer(
        &self,
        index: usize,
        hidden: &Tensor,
        input: &Input,
        adapters: Option<&Adapters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let layer = self.layer_parts(index);
        let attended = self.attend_projected(index, &layer.query_key_value.forward(hidden)?, input)?;
        let mut attention = layer.attention_output.forward(&attended)?;
        if let Some(adapters) = adapters {
            attention = adapters.apply(index, attention)?;
        }
        layer.after_attention(attention, hidden)
    }

    /// A layer's attention over queries, keys and values that are already there, `[n, l, 3 · hidden]`.
    pub(crate) fn attend_projected(
        &self,
        index: usize,
        projected: &Tensor,
        input: &Input,
    ) -> Result<Tensor, ExecutorError> {
        let [query, key, value] = self.by_head(projected)?;
        let by_distance = self.scores_by_distance(index, &query, &key)?;
        let scale = by_distance.as_ref().map(|_| self.score_scale());
        let mask = match (by_distance, &input.mask) {
            (Some(scores), Some(mask)) => Some(scores.f_add(mask)?),
            (scores, mask) => scores.or_else(|| mask.as_ref().map(Tensor::shallow_clone)),
        };
        let attended = Tensor::f_scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, scale, false)?;
        self.rejoined(&attended)
    }

    /// What products of queries with keys are multiplied by.
    pub(crate) fn score_scale(&self) -> f64 {
        let width = self.shape.hidden / self.shape.heads;
        match self.variant.relative {
            None => 1.0 / f64::from(width).sqrt(),
            Some(_) => Distances::scale(width.into()),
        }
    }

    /// What is added to a layer's scores, `[n, heads, l, l]`, where tokens attend by how far apart they are.
    pub(crate) fn scores_by_distance(
        &self,
        index: usize,
        query: &Tensor,
        key: &Tensor,
    ) -> Result<Option<Tensor>, ExecutorError> {
        let relative = self.relative.as_ref();
        relative.map(|of| of.scores(index, query, key)).transpose()
    }

    /// Queries, keys and values of `projected`, `[n, l, 3 · hidden]`: each `[n, heads, l, width]`.
    pub(crate) fn by_head(&self, projected: &Tensor) -> Result<[Tensor; 3], ExecutorError> {
        let size = projected.size();
        let (heads, width) = (
            i64::from(self.shape.heads),
            i64::from(self.shape.hidden / self.shape.heads),
        );
        let by_head = projected.f_view([size[0], size[1], 3, heads, width])?.f_permute([2, 0, 3, 1, 4])?;
        let parts = by_head.f_unbind(0)?;
        Ok(parts.try_into().expect("there are three"))
    }

    /// What the heads attended to, `[n, heads, l, width]`, side by side: `[n, l, hidden]`.
    pub(crate) fn rejoined(&self, attended: &Tensor) -> Result<Tensor, ExecutorError> {
        let size = attended.size();
        let size = [size[0], size[2], size[1] * size[3]];
        Ok(attended.f_transpose(1, 2)?.f_reshape(size)?)
    }
}

impl Layer {
    /// What stands between the two products of the feed-forward block.
    pub(crate) fn activate(&self, mut inner: Tensor) -> Result<Tensor, ExecutorError> {
        Ok(inner.f_gelu_(self.gelu.name())?)
    }

    /// What comes after attention: the sum with what the layer was given, and the feed-forward block.
    pub(crate) fn after_attention(&self, mut attention: Tensor, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        let hidden = self.attention_norm.forward(&attention.f_add_(hidden)?)?;
        let mut output = self.output.forward(&self.activate(self.intermediate.forward(&hidden)?)?)?;
        self.output_norm.forward(&output.f_add_(&hidden)?)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};
    use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

    use super::*;
    use crate::adapters::{AdapterCache, AdapterShape, AdapterStore};
    use crate::whole_models::WholeModel;

    fn tiny() -> Encoder {
        Encoder::random(&ModelShape::builtin("tiny").unwrap(), 7, DType::F32, Device::Cpu).unwrap()
    }

    /// The last hidden state of each sequence's first token, which is what heads read.
    fn run(encoder: &Encoder, sequences: &[Vec<i64>], tokens: usize, adapters: Option<&Adapters<'_>>) -> Tensor {
        let input = encoder.input(sequences, tokens).unwrap();
        let hidden = encoder.embed(&input).unwrap();
        encoder.layers(hidden, 0..2, &input, adapters).unwrap().select(1, 0)
    }

    fn assert_close(found: &Tensor, expected: &Tensor) {
        let difference = (found - expected).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "off by {difference}");
    }

    #[test]
    fn a_batch_of_tenants_equals_each_request_alone() {
        let encoder = tiny();
        let shape = AdapterShape::new(encoder.shape(), 16).unwrap();
        let store = AdapterStore::random(shape, 4, 3, DType::F32, Device::Cpu, u64::MAX).unwrap();
        let cache = AdapterCache::new(shape, 4, DType::F32, Device::Cpu).unwrap();
        for slot in 0..4 {
            cache.load(&store, slot, slot, 0..2).unwrap();
        }
        let sequences: Vec<Vec<i64>> = vec![vec![3; 9], vec![1, 2, 3], (0..16).collect(), vec![8]];
        let slots = [1, 1, 3, 0];
        for implementation in cache.implementations() {
            let adapted = |sequences: &[Vec<i64>], slots: &[u32], tokens| {
                let plan = cache.plan(slots, tokens, implementation).unwrap();
                run(&encoder, sequences, tokens, Some(&Adapters::new(&cache, &plan)))
            };
            let together = adapted(&sequences, &slots, 24);
            for (row, slot) in slots.into_iter().enumerate() {
                let alone = adapted(&sequences[row..=row], &[slot], sequences[row].len());
                assert_close(&together.get(row as i64), &alone.get(0));
            }
        }
        let plan = cache.plan(&[2], 3, AdapterImplementation::Loop).unwrap();
        let adapted = run(&encoder, &sequences[1..2], 3, Some(&Adapters::new(&cache, &plan)));
        assert!(
            !adapted.equal(&run(&encoder, &sequences[1..2], 3, None)),
            "adapters make a difference"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let encoder = tiny();
        let refused = |sequences: &[Vec<i64>], tokens| encoder.input(sequences, tokens).unwrap_err().to_string();
        for (sequences, tokens, message) in [
            (
                vec![vec![1]],
                129,
                "padded length of the batch: must be at most 128 tokens, the positions of tiny, got 129",
            ),
            (vec![], 8, "batch: must be at least one sequence, got none"),
            (
                vec![vec![1], vec![]],
                8,
                "sequence 1 of the batch: must be from 1 to 8 tokens, got 0",
            ),
            (
                vec![vec![1; 9]],
                8,
                "sequence 0 of the batch: must be from 1 to 8 tokens, got 9",
            ),
            (
                vec![vec![1024]],
                8,
                "sequence 0 of the batch: must be token ids from 0 to 1023, got 1024",
            ),
        ] {
            assert_eq!(refused(&sequences, tokens), message);
        }
        let short = Tensor::zeros([5], (Kind::Float, Device::Cpu));
        let message = format!(
            "parameters of tiny: must be [{}] numbers, got [5]",
            encoder.shape().parameters()
        );
        assert_eq!(encoder.load(&short).unwrap_err().to_string(), message);
    }
}
