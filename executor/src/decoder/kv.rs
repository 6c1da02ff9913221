//! Keys and values of running sequences, in pages on the device.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::layout;
use crate::device::{copy_without_waiting, kind, sent_to};
use crate::error::ExecutorError;

/// Pages of keys and values, the page outermost, so that sequences join and leave one by one (Punica, section 5.4).
///
/// The cache knows nothing of sequences: which pages are whose is what each [`Chunk`](super::Chunk) of a step says. A
/// page holds all layers, so that one copy moves it.
#[derive(Debug)]
pub struct KvCache {
    /// `[pages, layers, 2, page_tokens, kv_heads, width]`. Tokens come before heads, unlike in the paper: so the pages
    /// of a sequence, gathered, are its keys without another copy.
    pages: Tensor,
    layers: Range<usize>,
}

impl KvCache {
    /// `pages` pages of `page_tokens` tokens each, for `layers` of a decoder: all, or the upper ones where a PLOT table
    /// stands in for the lower.
    ///
    /// # Errors
    /// A shape that is no decoder's, no pages, empty pages, layers that the shape does not have, or no memory on the
    /// device.
    pub fn new(
        shape: &ModelShape,
        layers: Range<usize>,
        pages: u32,
        page_tokens: u32,
        dtype: DType,
        device: Device,
    ) -> Result<KvCache, ExecutorError> {
        layout::check(shape)?;
        for (what, count) in [("pages of the KV cache", pages), ("tokens in a page", page_tokens)] {
            if count == 0 {
                return Err(ExecutorError::input(what, "at least 1", 0));
            }
        }
        if layers.is_empty() || layers.end > shape.layers as usize {
            let must = format!("some of the {} of {}", shape.layers, shape.name);
            return Err(ExecutorError::input(
                "layers of the KV cache",
                must,
                format!("{layers:?}"),
            ));
        }
        let size = [
            i64::from(pages),
            layers.len() as i64,
            2,
            page_tokens.into(),
            shape.kv_heads.into(),
            (shape.hidden / shape.heads).into(),
        ];
        // Written once here, so that no step waits for the memory.
        Ok(KvCache {
            pages: Tensor::f_zeros(size, (kind(dtype), device))?,
            layers,
        })
    }

    /// How many pages there are; their ids count from 0.
    pub fn pages(&self) -> u32 {
        self.pages.size()[0] as u32
    }

    /// Tokens in a page.
    pub fn page_tokens(&self) -> u32 {
        self.pages.size()[3] as u32
    }

    /// Pages that a sequence of so many tokens needs.
    pub fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_tokens())
    }

    /// The layers it is for.
    pub fn layers(&self) -> Range<usize> {
        self.layers.clone()
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> KvCache {
        KvCache {
            pages: self.pages.shallow_clone(),
            layers: self.layers.clone(),
        }
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        self.pages.device()
    }

    /// Its number format.
    pub fn kind(&self) -> Kind {
        self.pages.kind()
    }

    /// Issues copies of pages of another cache of the same sizes into pages of this one, one for one. They are there,
    /// and the others may change, when the current stream has come past them.
    ///
    /// # Errors
    /// Caches of different sizes, or a page that one of them does not have.
    ///
    /// # Panics
    /// If there are not as many of the one as of the other.
    pub fn copy_pages(&self, pages: &[u32], from: &KvCache, from_pages: &[u32]) -> Result<(), ExecutorError> {
        assert_eq!(pages.len(), from_pages.len(), "each page comes from one");
        if self.pages.size()[1..] != from.pages.size()[1..] {
            let must = format!("of {:?} numbers", &self.pages.size()[1..]);
            let got = format!("of {:?}", &from.pages.size()[1..]);
            return Err(ExecutorError::input("pages to be copied", must, got));
        }
        let mut done = 0;
        while done < pages.len() {
            // What follows each other on both sides is one copy.
            let follows = |ids: &[u32], index: usize| ids[done + index] == ids[done] + index as u32;
            let left = pages.len() - done;
            let all = (1..left).find(|&index| !follows(pages, index) || !follows(from_pages, index));
            let count = all.unwrap_or(left);
            let of = |tensor: &Tensor, first: u32| tensor.f_narrow(0, first.into(), count as i64);
            let mut to = of(&self.pages, pages[done])?;
            copy_without_waiting(&mut to, &of(&from.pages, from_pages[done])?)?;
            done += count;
        }
        Ok(())
    }

    /// Issues zeros into pages that new holders begin: what lies beyond a sequence's end is masked, but what is no
    /// number stays none behind a mask, and a former holder's must not reach another's tokens.
    pub(crate) fn clear(&self, pages: &[i64]) -> Result<(), ExecutorError> {
        if !pages.is_empty() {
            let pages = sent_to(self.device(), &Tensor::f_from_slice(pages)?)?;
            let _ = self.pages.shallow_clone().f_index_fill_(0, &pages, 0.0)?;
        }
        Ok(())
    }

    /// A layer's pages, `[pages, 2, page_tokens, kv_heads, width]`.
    ///
    /// # Panics
    /// If it is not among the cache's layers.
    pub(crate) fn layer(&self, layer: usize) -> Result<Tensor, ExecutorError> {
        assert!(self.layers.contains(&layer), "layer {layer} of {:?}", self.layers);
        Ok(self.pages.f_select(1, (layer - self.layers.start) as i64)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_the_shape() {
        let shape = ModelShape::builtin("tiny-llama").unwrap();
        let kv = KvCache::new(&shape, 0..2, 5, 16, DType::F32, Device::Cpu).unwrap();
        // 2 layers × keys and values × 16 tokens × 2 heads × 32 numbers × 4 bytes.
        let bytes = |cache: &KvCache| cache.pages.numel() * cache.kind().elt_size_in_bytes();
        assert_eq!((bytes(&kv) / 5, bytes(&kv)), (16_384, 81_920));
        assert_eq!([0, 1, 16, 17].map(|tokens| kv.pages_for(tokens)), [0, 1, 1, 2]);
        let upper = KvCache::new(&shape, 1..2, 5, 16, DType::Bf16, Device::Cpu).unwrap();
        assert_eq!(bytes(&upper) / 5, 4_096);
    }

    #[test]
    fn pages_are_copied_one_for_one() {
        let shape = ModelShape::builtin("tiny-llama").unwrap();
        let cache = |pages| KvCache::new(&shape, 0..2, pages, 4, DType::F32, Device::Cpu).unwrap();
        let (from, to) = (cache(6), cache(8));
        for page in 0..6 {
            let _ = from.pages.get(page).fill_(page as f64 + 1.0);
        }
        to.copy_pages(&[7, 1, 2, 3], &from, &[0, 3, 4, 2]).unwrap();
        let first = |page| to.pages.get(page).flatten(0, -1);
        let held: Vec<f64> = (0..8).map(|page| first(page).max().double_value(&[])).collect();
        assert_eq!(held, [0.0, 4.0, 5.0, 3.0, 0.0, 0.0, 0.0, 1.0]);
        assert!((0..8).all(|page| first(page).max() == first(page).min()));

        assert!(to.copy_pages(&[8], &from, &[0]).is_err());
        let other = KvCache::new(&shape, 1..2, 3, 4, DType::F32, Device::Cpu).unwrap();
        let refused = to.copy_pages(&[0], &other, &[0]).unwrap_err().to_string();
        assert!(refused.starts_with("pages to be copied: must be of"), "{refused}");
    }

    #[test]
    fn impossible_caches_are_refused() {
        let shape = ModelShape::builtin("tiny-llama").unwrap();
        let refused = |layers, pages, tokens| {
            let error = KvCache::new(&shape, layers, pages, tokens, DType::F32, Device::Cpu);
            error.unwrap_err().to_string()
        };
        assert_eq!(refused(0..2, 0, 16), "pages of the KV cache: must be at least 1, got 0");
        assert_eq!(refused(0..2, 4, 0), "tokens in a page: must be at least 1, got 0");
        assert_eq!(
            refused(1..3, 4, 16),
            "layers of the KV cache: must be some of the 2 of tiny-llama, got 1..3"
        );
    }
}
