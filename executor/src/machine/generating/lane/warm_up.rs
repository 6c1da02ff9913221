//! Steps before the first request.

use super::RunLane;
use crate::decoder::{Chunk, Sampling, sample};
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::machine::generating::tenants::Slots;

impl RunLane {
    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    pub(super) fn warm_up(&self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        // A GPU loads each kernel when it is first used, and there are others for more tokens.
        let shapes: &[_] = match self.device.is_cuda() {
            true => &[(1, 1), (8, 1), (32, 1), (1, 16), (4, 4), (32, 4)],
            false => &[(1, 1), (8, 1)],
        };
        let positions = self.positions();
        for &(requests, pages) in shapes.iter().filter(|(_, pages)| pages * self.kv.page_tokens() <= positions) {
            for _ in 0..3 {
                self.step_over(requests, pages)?;
            }
        }
        synchronize(self.device)
    }

    fn positions(&self) -> u32 {
        match (&self.decoder, &self.slots) {
            (Some(decoder), _) => decoder.shape().positions,
            (None, Slots::Models(models)) => models.model(0).shape().positions,
            (None, _) => unreachable!("tenants without models share one"),
        }
    }

    /// Steps over whatever the cache's first pages hold: prompts of up to so many pages each, of different lengths,
    /// then what comes after half of each, then a token each.
    fn step_over(&self, requests: u32, pages_each: u32) -> Result<(), ExecutorError> {
        let requests = requests.min(self.kv.pages() / pages_each);
        let most = self.kv.page_tokens() * pages_each;
        let pages: Vec<u32> = (0..requests * pages_each).collect();
        let ids = vec![0; most as usize];
        for part in 0..3 {
            let chunk = |(index, pages): (u32, _)| {
                let tokens = most - index % self.kv.page_tokens();
                let cached = [0, tokens / 2, tokens - 1][part];
                Chunk {
                    ids: &ids[cached as usize..tokens as usize],
                    cached,
                    pages,
                    slot: (!matches!(self.slots, Slots::None)).then_some(0),
                    wants_token: true,
                }
            };
            let chunks: Vec<Chunk<'_>> = (0..).zip(pages.chunks(pages_each as usize)).map(chunk).collect();
            if chunks.is_empty() {
                return Ok(());
            }
            let decoder = self.decoder_of(&chunks)?;
            let step = decoder.step(&chunks, &self.kv)?;
            let plan = self.slots.plan(&step)?;
            let tenants = self.slots.parameters(plan.as_ref());
            let logits = match &self.retrieval {
                None => decoder.forward(&step, &self.kv, tenants)?,
                Some(_) => {
                    let size = [step.tokens() as i64, decoder.shape().hidden.into()];
                    let states = tch::Tensor::f_zeros(size, (decoder.kind(), self.device))?;
                    decoder.forward_upper(states, &step, &self.kv, tenants)?
                }
            };
            sample(&logits, &vec![Sampling::Greedy; step.wanted()])?;
        }
        Ok(())
    }
}
