//! Points of decoders: what a layer does token by token, its attention, and what comes before and after the layers.

use std::time::Duration;

use tch::{Kind, Tensor};
use tenantry_profiles::{
    DType, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderPrefillRow, DecoderWholePromptRow, ModelShape,
    Stats, Tables,
};

use super::Suite;
use super::axes::{Knots, on};
use super::held_out::{HoldOut, Spot};
use super::schedule::{Measure, Point};
use super::timing::{issued, timed};
use crate::decoder::{Chunk, Decoder, KvCache, Sampling, Step, sample};
use crate::error::ExecutorError;

/// Layers that are measured: enough to find the caches, at a layer's start, as another layer left them.
pub(super) const LAYERS: u32 = 4;

/// The values of the grids' dimensions.
struct Grids {
    /// Tokens in a step.
    tokens: Knots,
    /// Tokens of a prompt's chunk, and those that its last token attends to.
    chunk: Knots,
    /// Sequences that get a new token.
    sequences: Knots,
    /// Tokens that each attends to.
    context: Knots,
}

/// Products of numbers that are no powers of two take up to a tenth more than what lies half-way between those.
/// Attention of prompts is computed in blocks of 32 tokens, and of as many that they attend to as fill a vector, 16; a
/// block that is not full costs nearly as much as one that is. So there are neighbours on both sides of the first ends
/// of blocks, and then middles of them; new tokens attend likewise.
const ON_CPU: Grids = Grids {
    tokens: Knots {
        quick: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        full: &[
            1, 2, 3, 4, 6, 8, 12, 15, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
        ],
    },
    chunk: Knots {
        quick: &[2, 16, 64, 128, 256, 512, 1024],
        full: &[
            2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 40, 48, 49, 64, 65, 80, 81, 96, 97, 112, 113, 128, 129, 152, 168,
            200, 232, 256, 257, 296, 328, 392, 456, 512, 520, 648, 776, 1024,
        ],
    },
    sequences: Knots {
        quick: &[1, 2, 4, 8, 16, 32],
        full: &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32],
    },
    context: Knots {
        quick: &[16, 128, 512, 1024, 2048],
        full: &[
            16, 17, 32, 33, 48, 49, 64, 65, 80, 81, 96, 97, 112, 113, 128, 136, 168, 200, 248, 328, 392, 520, 776,
            1032, 1544, 2048,
        ],
    },
};

/// Kernels take tiles of 64 and 128 rows, a card holds more sequences, and the time is for fewer points.
const ON_GPU: Grids = Grids {
    tokens: Knots {
        quick: &[1, 8, 32, 128, 512, 2048],
        full: &[
            1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        ],
    },
    chunk: Knots {
        quick: &[2, 64, 256, 1024, 2048],
        full: &[2, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048],
    },
    sequences: Knots {
        quick: &[1, 8, 32, 64, 128],
        full: &[1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128],
    },
    context: Knots {
        quick: &[16, 256, 1024, 2048],
        full: &[16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048],
    },
};

/// Tokens in a page, as is usual.
pub(crate) const PAGE_TOKENS: u32 = 16;
/// Measurements of every point that the time must allow, warm-up included.
pub(crate) const PASSES: f64 = 10.0;

/// A decoder to be measured, and in which steps.
pub(crate) struct DecoderSubject {
    pub decoder: Decoder,
    kv: KvCache,
    pub dtype: DType,
    /// How many values the grids' dimensions have.
    pub suite: Suite,
    pub axes: DecoderAxes,
    /// What one token takes in one measurement, from which the grids were chosen.
    pub per_token: Duration,
}

/// The values of the grids' dimensions, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecoderAxes {
    pub tokens: Vec<u32>,
    pub chunk: Vec<u32>,
    pub sequences: Vec<u32>,
    pub context: Vec<u32>,
}

impl DecoderAxes {
    /// The grids for a model of so many positions. Where measuring every point once would take longer than `pass`, the
    /// most tokens are left out; `per_token` is what one token takes in one measurement.
    fn affordable(grids: &Grids, positions: u32, suite: Suite, per_token: Duration, pass: Duration) -> DecoderAxes {
        let fits = |most: u32| move |tokens: &u32| *tokens <= most.min(positions);
        let below = |axis: &[u32], most| -> Vec<u32> { axis.iter().copied().filter(fits(most)).collect() };
        let mut most = *grids.tokens.of(suite).last().expect("there are some");
        loop {
            let mut axes = DecoderAxes {
                tokens: below(grids.tokens.of(suite), most),
                chunk: below(grids.chunk.of(suite), 2 * most),
                sequences: grids.sequences.of(suite).to_vec(),
                context: below(grids.context.of(suite), 4 * most),
            };
            for axis in [&mut axes.chunk, &mut axes.context] {
                if axis.is_empty() {
                    axis.push(positions);
                }
            }
            let tokens: u32 = axes.tokens.iter().sum();
            // Attention's points take about as long as the others.
            if most <= 32 || f64::from(tokens) * 2.0 * per_token.as_secs_f64() <= pass.as_secs_f64() {
                return axes;
            }
            most /= 2;
        }
    }
}

impl DecoderSubject {
    /// A random model of a few layers; its grids are what `time` allows. What a token takes is measured where it is not
    /// known.
    pub fn new(
        shape: &ModelShape,
        seed: u64,
        dtype: DType,
        device: tch::Device,
        suite: Suite,
        time: Duration,
        per_token: Option<Duration>,
    ) -> Result<DecoderSubject, ExecutorError> {
        let few = ModelShape {
            layers: shape.layers.min(LAYERS),
            ..shape.clone()
        };
        let (decoder, grids) = (
            Decoder::random(&few, seed, dtype, device)?,
            on(device, &ON_CPU, &ON_GPU),
        );
        let layers = 0..few.layers as usize;
        let sample = few.positions.min(32);
        let kv = KvCache::new(
            &few,
            layers.clone(),
            sample.div_ceil(PAGE_TOKENS),
            PAGE_TOKENS,
            dtype,
            device,
        )?;
        let mut subject = DecoderSubject {
            decoder,
            kv,
            dtype,
            suite,
            axes: DecoderAxes::affordable(grids, few.positions, suite, Duration::ZERO, time),
            per_token: Duration::ZERO,
        };
        subject.per_token = match per_token {
            Some(known) => known,
            None => {
                let mut dense = subject.dense(sample)?;
                dense()?;
                dense()? / sample
            }
        };
        subject.axes = DecoderAxes::affordable(grids, few.positions, suite, subject.per_token, time.div_f64(PASSES));

        let of = |axis: &[u32]| axis.last().map_or(1, |&last| last.div_ceil(PAGE_TOKENS));
        let pages = of(&subject.axes.sequences.iter().map(|&n| n * PAGE_TOKENS).collect::<Vec<_>>())
            * of(&subject.axes.context)
            + of(&subject.axes.tokens).max(of(&subject.axes.chunk));
        subject.kv = KvCache::new(&few, layers, pages, PAGE_TOKENS, dtype, device)?;
        Ok(subject)
    }

    /// So many sequences that get their next token, each attending to `context` tokens, and then a prompt of `rest`
    /// tokens. Pages of a sequence lie apart, as they do once sequences have come and gone. Other tokens come of
    /// another `first`.
    fn step(&self, first: u32, sequences: u32, context: u32, rest: u32) -> Result<Step, ExecutorError> {
        let vocabulary = i64::from(self.decoder.shape().vocabulary);
        let ids: Vec<i64> = (0..i64::from(sequences.max(rest)))
            .map(|index| (i64::from(first) + index) * 31 % vocabulary)
            .collect();
        let count = self.kv.pages_for(context).max(1);
        let pages: Vec<Vec<u32>> =
            (0..sequences).map(|own| (0..count).map(|page| own + page * sequences).collect()).collect();
        let last = self.kv.pages();
        let prompt: Vec<u32> = (last - self.kv.pages_for(rest)..last).collect();
        let mut chunks: Vec<Chunk<'_>> = pages
            .iter()
            .zip(ids.chunks(1))
            .map(|(pages, ids)| Chunk {
                ids,
                cached: context - 1,
                pages,
                slot: None,
                wants_token: true,
            })
            .collect();
        if rest > 0 {
            chunks.push(Chunk {
                ids: &ids[..rest as usize],
                cached: 0,
                pages: &prompt,
                slot: None,
                wants_token: false,
            });
        }
        self.decoder.step(&chunks, &self.kv)
    }

    /// A cache of so many pages: the one that parts are measured in, if it has as many, since steps are measured one
    /// after the other.
    pub fn cache_at_least(&self, pages: u32) -> Result<KvCache, ExecutorError> {
        match self.kv.pages() >= pages {
            true => Ok(self.kv.share()),
            false => self.cache_of(pages),
        }
    }

    /// A cache of its own for an instance.
    pub fn cache_of(&self, pages: u32) -> Result<KvCache, ExecutorError> {
        let shape = self.decoder.shape();
        KvCache::new(
            shape,
            0..self.layers(),
            pages,
            PAGE_TOKENS,
            self.dtype,
            self.decoder.device(),
        )
    }

    fn layers(&self) -> usize {
        self.decoder.shape().layers as usize
    }

    fn hidden(&self, tokens: u32) -> Result<Tensor, ExecutorError> {
        let size = [i64::from(tokens), self.decoder.shape().hidden.into()];
        let ones = Tensor::f_ones(size, (Kind::Float, self.decoder.device()))?;
        Ok(ones.f_to_kind(self.decoder.kind())?)
    }

    /// Measures one layer without its attention, at each call another.
    fn dense(&self, tokens: u32) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let step = self.step(0, 0, 1, tokens)?;
        let (hidden, attended) = (self.hidden(tokens)?, self.hidden(tokens)?);
        let mut calls = 0;
        Ok(move || {
            let layer = calls % self.layers();
            calls += 1;
            timed(self.decoder.device(), || {
                let projected = self.decoder.before_attention(layer, &hidden, &step, None)?;
                let after = self.decoder.after_attention(layer, hidden.shallow_clone(), &attended, None)?;
                Ok((projected, after))
            })
        })
    }

    /// Measures how long the host is busy with issuing a layer of a step with one sequence to a GPU.
    pub fn issuing(&self) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let step = self.step(0, 1, self.axes.context[0], 0)?;
        let hidden = self.hidden(1)?;
        Ok(move || {
            issued(self.decoder.device(), || {
                self.decoder.layers(hidden.shallow_clone(), 0..1, &step, &self.kv, None)
            })
        })
    }

    /// Measures one layer's attention, at each call another's.
    fn attention(&self, step: Step) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let hidden = self.hidden(step.tokens() as u32)?;
        let projected = self.decoder.before_attention(0, &hidden, &step, None)?;
        let mut calls = 0;
        Ok(move || {
            let layer = calls % self.layers();
            calls += 1;
            timed(self.decoder.device(), || {
                self.decoder.attend(layer, &projected, &step, &self.kv)
            })
        })
    }

    /// Measures attention of a chunk that ends a context of so many tokens, over pages even if it is all of them; or of
    /// a whole prompt, which attends to itself alone.
    fn prefill(
        &self,
        tokens: u32,
        context: u32,
        whole: bool,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let ids = vec![1; tokens as usize];
        let pages: Vec<u32> = (0..self.kv.pages_for(context)).rev().collect();
        let chunk = Chunk {
            ids: &ids,
            cached: context - tokens,
            pages: &pages,
            slot: None,
            wants_token: true,
        };
        let step = self.decoder.step(&[chunk], &self.kv)?;
        self.attention(match whole {
            true => step,
            false => step.over_pages(&chunk, &self.kv)?,
        })
    }

    /// Measures from the chunks of a step to the first hidden state, and from the last to the new tokens on the host.
    fn ends(
        &self,
        sequences: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        // A step has at least as many tokens as sequences; what the grid has beyond is measured as if it had fewer.
        let decoding = sequences.min(tokens);
        let hidden = self.hidden(sequences)?;
        let samplings = vec![Sampling::Greedy; sequences as usize];
        let context = self.axes.context[0];
        Ok(move || {
            timed(self.decoder.device(), || {
                let step = self.step(0, decoding, context, tokens - decoding)?;
                let first = self.decoder.embed(&step)?;
                Ok((first, sample(&self.decoder.logits_of(&hidden)?, &samplings)?))
            })
        })
    }

    /// All points.
    pub fn points(&self, hold_out: HoldOut) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (model, dtype, axes) = (self.decoder.shape().name.clone(), self.dtype, &self.axes);
        let table = |family: &str| format!("{family} of {model}");
        let pairs = |first: &[u32], second: &[u32]| -> Vec<[u32; 2]> {
            first.iter().flat_map(|&of| second.iter().map(move |&with| [of, with])).collect()
        };
        let mut points = Vec::new();
        let tokens = axes.tokens.iter().map(|&tokens| [tokens]).collect();
        for Spot { at: [tokens], held_out } in hold_out.spots(tokens, Some) {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats: Stats| {
                tables.decoder_dense.push(DecoderDenseRow {
                    model: name.clone(),
                    dtype,
                    tensor_parallel: 1,
                    tokens,
                    stats,
                });
            };
            points.push(Point::new(table("decoder_dense"), self.dense(tokens)?, row).held_out(held_out));
        }
        // What comes before and after the layers is smooth.
        let smooth = on(self.decoder.device(), &ON_CPU, &ON_GPU).tokens.quick;
        let fewer_tokens = axes.tokens.iter().copied().filter(|tokens| smooth.contains(tokens));
        for [tokens, sequences] in pairs(&fewer_tokens.collect::<Vec<_>>(), &axes.sequences) {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats: Stats| {
                tables.decoder_ends.push(DecoderEndsRow {
                    model: name.clone(),
                    dtype,
                    tensor_parallel: 1,
                    sequences,
                    tokens,
                    stats,
                });
            };
            points.push(Point::new(table("decoder_ends"), self.ends(sequences, tokens)?, row));
        }
        let chunks = pairs(&axes.chunk, &axes.chunk).into_iter();
        let chunks = chunks.filter(|[tokens, context]| tokens <= context);
        // A whole prompt is no chunk, and the grid's are there for what lies beside them.
        let with_a_past = |[tokens, context]: [u32; 2]| Some([tokens, context]).filter(|_| tokens < context);
        for Spot {
            at: [tokens, context],
            held_out,
        } in hold_out.spots(chunks.collect(), with_a_past)
        {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats: Stats| {
                tables.decoder_prefill.push(DecoderPrefillRow {
                    model: name.clone(),
                    dtype,
                    tensor_parallel: 1,
                    tokens,
                    context,
                    stats,
                });
            };
            let measure = self.prefill(tokens, context, false)?;
            points.push(Point::new(table("decoder_prefill"), measure, row).held_out(held_out));
        }
        let prompts = axes.chunk.iter().map(|&tokens| [tokens]).collect();
        for Spot { at: [tokens], held_out } in hold_out.spots(prompts, Some) {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats: Stats| {
                tables.decoder_whole_prompt.push(DecoderWholePromptRow {
                    model: name.clone(),
                    dtype,
                    tensor_parallel: 1,
                    tokens,
                    stats,
                });
            };
            let measure = self.prefill(tokens, tokens, true)?;
            points.push(Point::new(table("decoder_whole_prompt"), measure, row).held_out(held_out));
        }
        for Spot {
            at: [sequences, context],
            held_out,
        } in hold_out.spots(pairs(&axes.sequences, &axes.context), Some)
        {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats: Stats| {
                tables.decoder_decode.push(DecoderDecodeRow {
                    model: name.clone(),
                    dtype,
                    tensor_parallel: 1,
                    sequences,
                    context,
                    stats,
                });
            };
            let measure = self.attention(self.step(0, sequences, context, 0)?)?;
            points.push(Point::new(table("decoder_decode"), measure, row).held_out(held_out));
        }
        Ok(points)
    }

    /// Measures layers of a step in the middle of the grid.
    pub fn middle(&self) -> Result<Measure<'_>, ExecutorError> {
        Ok(Box::new(self.dense(self.axes.tokens[self.axes.tokens.len() / 2])?))
    }

    /// All layers of a step of so many sequences that get their next token, through a model of this shape. Other tokens
    /// come of another `first`.
    pub fn step_through(&self, decoder: &Decoder, first: u32, sequences: u32) -> Result<Tensor, ExecutorError> {
        let step = self.step(first, sequences, self.axes.context[0], 0)?;
        decoder.layers(decoder.embed(&step)?, 0..self.layers(), &step, &self.kv, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What chunks without a past are measured by computes what whole prompts do.
    #[test]
    fn a_prompt_over_its_pages_attends_as_one_by_itself() {
        let shape = ModelShape::builtin("tiny-llama").unwrap();
        let time = Duration::from_secs(1);
        let cpu = tch::Device::Cpu;
        let subject = DecoderSubject::new(
            &shape,
            5,
            DType::F32,
            cpu,
            Suite::Quick,
            time,
            Some(Duration::from_nanos(1)),
        )
        .unwrap();
        let (ids, pages) = ((1..38).collect::<Vec<i64>>(), [2, 0, 1]);
        let chunk = Chunk {
            ids: &ids,
            cached: 0,
            pages: &pages,
            slot: None,
            wants_token: true,
        };
        let attended = |step: Step| {
            let hidden = subject.decoder.embed(&step).unwrap();
            let projected = subject.decoder.before_attention(0, &hidden, &step, None).unwrap();
            subject.decoder.attend(0, &projected, &step, &subject.kv).unwrap()
        };
        let step = || subject.decoder.step(&[chunk], &subject.kv).unwrap();
        let (alone, over_pages) = (
            attended(step()),
            attended(step().over_pages(&chunk, &subject.kv).unwrap()),
        );
        assert!(alone.f_allclose(&over_pages, 1e-4, 1e-6, false).unwrap());
        assert!(alone.std(false).double_value(&[]) > 1e-4);
    }

    #[test]
    fn positions_and_time_limit_the_grids() {
        let cheap = Duration::from_nanos(1);
        let pass = Duration::from_secs(1);
        let affordable =
            |positions, per_token, pass| DecoderAxes::affordable(&ON_CPU, positions, Suite::Quick, per_token, pass);
        for (grids, suite) in [
            (&ON_CPU, Suite::Quick),
            (&ON_CPU, Suite::Full),
            (&ON_GPU, Suite::Quick),
            (&ON_GPU, Suite::Full),
        ] {
            let all = DecoderAxes::affordable(grids, 4096, suite, cheap, pass);
            assert_eq!(
                (all.tokens, all.chunk, all.context),
                (
                    grids.tokens.of(suite).to_vec(),
                    grids.chunk.of(suite).to_vec(),
                    grids.context.of(suite).to_vec()
                )
            );
        }
        let short = affordable(128, cheap, pass);
        assert_eq!(
            (short.tokens.last(), short.chunk.last(), short.context.last()),
            (Some(&128), Some(&128), Some(&128))
        );
        let shortest = affordable(8, cheap, pass);
        assert_eq!((shortest.chunk, shortest.context), (vec![2], vec![8]));
        // A millisecond a token: 255 tokens twice are half a second.
        let slow = affordable(4096, Duration::from_millis(1), pass);
        assert_eq!(
            (slow.tokens.last(), slow.chunk.last(), slow.context.last()),
            (Some(&128), Some(&256), Some(&512))
        );
        let slowest = affordable(4096, pass, pass);
        assert_eq!((slowest.tokens.last(), slowest.sequences.len()), (Some(&32), 6));
    }
}
