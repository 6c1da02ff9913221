//! Self-attention of a step's tokens over the key-value cache: chunks one by one, all new tokens together.

use tch::{Device, Tensor};

use super::kv::KvCache;
use super::step::{Decodes, Prefill, Step};
use crate::error::ExecutorError;

/// Scores that a processor's widest vectors hold. What is left of a row it takes one by one: attention over 47 tokens
/// takes 1.4 times as long as over 48.
const VECTOR_SCORES: i64 = 16;

/// So many tokens, and places after them that are masked, as fill vectors of scores.
pub(crate) fn filled(tokens: i64) -> i64 {
    (tokens + VECTOR_SCORES - 1) / VECTOR_SCORES * VECTOR_SCORES
}

/// How many heads, and how wide each is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub query: i64,
    pub kv: i64,
    pub width: i64,
}

impl Heads {
    /// Heads of queries, keys and values.
    pub fn all(self) -> i64 {
        self.query + 2 * self.kv
    }

    /// Writes the keys and values in `projected`, `[tokens, all heads, width]`, to the cache, and attends:
    /// `[tokens, hidden]`.
    pub fn attend(self, projected: &Tensor, layer: usize, step: &Step, kv: &KvCache) -> Result<Tensor, ExecutorError> {
        let tokens = step.tokens() as i64;
        let mut pages = kv.layer(layer)?;
        let new = projected.f_narrow(1, self.query, 2 * self.kv)?.f_view([tokens, 2, self.kv, self.width])?;
        let _ = pages.f_index_put_(&[Some(&step.pages), None, Some(&step.offsets)], &new, false)?;

        let mut attended = Vec::with_capacity(step.prefills.len() + 1);
        for prefill in &step.prefills {
            attended.push(self.prefill(projected, &pages, prefill)?);
        }
        if let Some(decodes) = &step.decodes {
            attended.push(self.decode(projected, &pages, decodes)?);
        }
        Ok(match attended.len() {
            1 => attended.pop().expect("there is one"),
            _ => Tensor::f_cat(&attended, 0)?,
        })
    }

    /// One chunk over itself and what is cached before it.
    fn prefill(self, projected: &Tensor, pages: &Tensor, prefill: &Prefill) -> Result<Tensor, ExecutorError> {
        let own = projected.f_narrow(0, prefill.first, prefill.tokens)?;
        let query = own.f_narrow(1, 0, self.query)?;
        let attended = match &prefill.cached {
            None => {
                let mut of_tokens = own.f_narrow(1, self.query, 2 * self.kv)?;
                // A GPU's kernels take any length, and the fastest of them as many keys as queries.
                if of_tokens.device() == Device::Cpu {
                    let after = filled(prefill.tokens) - prefill.tokens;
                    of_tokens = of_tokens.f_constant_pad_nd([0, 0, 0, 0, 0, after])?;
                }
                let key = of_tokens.f_narrow(1, 0, self.kv)?;
                let value = of_tokens.f_narrow(1, self.kv, self.kv)?;
                self.causal(&query.f_unsqueeze(0)?, &key.f_unsqueeze(0)?, &value.f_unsqueeze(0)?)?
            }
            Some(cached) => {
                let [key, value] = self.gathered(pages, &cached.pages, 1, cached.context)?;
                // As new tokens attend: the query heads that share keys stand as so many positions of one head. A GPU's
                // kernels that take a mask know no shared keys, and what does computes every score in memory.
                let (tokens, shared) = (prefill.tokens, self.query / self.kv);
                let query = query
                    .f_reshape([tokens, self.kv, shared, self.width])?
                    .f_permute([1, 2, 0, 3])?
                    .f_reshape([1, self.kv, shared * tokens, self.width])?;
                let mask = match shared {
                    1 => cached.mask.shallow_clone(),
                    _ => cached.mask.f_repeat([shared, 1])?,
                };
                Tensor::f_scaled_dot_product_attention(&query, &key, &value, Some(&mask), 0.0, false, None, false)?
                    .f_view([self.kv, shared, tokens, self.width])?
                    .f_permute([2, 0, 1, 3])?
            }
        };
        Ok(attended.f_reshape([prefill.tokens, self.query * self.width])?)
    }

    /// Attention of sequences of equal length over themselves: queries, keys and values are `[n, l, heads, width]`. Of
    /// more keys than queries, the last are seen by none.
    pub fn causal(self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor, ExecutorError> {
        let by_head = |x: &Tensor| x.f_transpose(1, 2);
        let (query, key, value) = (by_head(query)?, by_head(key)?, by_head(value)?);
        let attended =
            Tensor::f_scaled_dot_product_attention::<Tensor>(&query, &key, &value, None, 0.0, true, None, true)?;
        Ok(attended.f_transpose(1, 2)?)
    }

    /// One new token of each sequence, all at once.
    fn decode(self, projected: &Tensor, pages: &Tensor, decodes: &Decodes) -> Result<Tensor, ExecutorError> {
        let sequences = decodes.sequences;
        let [key, value] = self.gathered(pages, &decodes.pages, sequences, decodes.context)?;
        // The query heads that share keys stand as so many positions of one head: nothing is repeated in memory.
        let query = projected.f_narrow(0, decodes.first, sequences)?.f_narrow(1, 0, self.query)?.f_reshape([
            sequences,
            self.kv,
            self.query / self.kv,
            self.width,
        ])?;
        let mask = decodes.mask.as_ref();
        let attended = Tensor::f_scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, None, false)?;
        Ok(attended.f_reshape([sequences, self.query * self.width])?)
    }

    /// The keys and values of so many sequences, copied together from their pages: `[sequences, kv, context, width]`
    /// each.
    fn gathered(
        self,
        pages: &Tensor,
        ids: &Tensor,
        sequences: i64,
        context: i64,
    ) -> Result<[Tensor; 2], ExecutorError> {
        let gather = |which| {
            pages
                .f_select(1, which)?
                .f_index_select(0, ids)?
                .f_view([sequences, -1, self.kv, self.width])?
                .f_narrow(1, 0, context)?
                .f_transpose(1, 2)
        };
        Ok([gather(0)?, gather(1)?])
    }
}
