//! What a decoder's step costs: layers token by token, attention by context, and the ends.

use crate::cost::{Beyond, Cost, of_ppm};
use crate::family::Family;
use crate::grid::Grid;
use crate::surfaces::{Curve, Surface};

/// Costs of a decoder's steps.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// One layer without attention, by tokens of the step.
    pub dense: Curve,
    /// One layer's attention of a prompt's chunk, by its tokens and its context.
    pub prefill: Surface,
    /// One layer's attention of a prompt that is computed at once, by its tokens. Without it, that is a chunk of as
    /// many tokens as its context.
    pub whole_prompt: Option<Curve>,
    /// One layer's attention of new tokens, by sequences and their mean context. Between measured contexts it is
    /// linear.
    pub decode: Surface,
    /// One layer's attention of both in one kernel. Without it, a step's attention is the sum of its chunks' and its
    /// new tokens'.
    pub mixed: Option<MixedAttention>,
    /// One layer's attention of several prompts in one kernel. Without it, a step's chunks are computed one by one.
    pub together: Option<PromptsTogether>,
    /// Before and after the layers, by sequences that get a token and tokens of the step.
    pub ends: Surface,
}

/// Costs of one layer's attention of a chunk and new tokens together, as they were measured: [`Decoder::attention`]
/// says what of them prices a step.
#[derive(Clone, Debug)]
pub struct MixedAttention {
    grid: Grid<4>,
    /// Tokens of the longest chunk that was measured.
    longest_chunk: u32,
}

/// A chunk, and new tokens beside it.
#[derive(Clone, Copy)]
struct Mix {
    /// Of the chunk,
    tokens: u32,
    /// and those that were cached before it.
    cached: u32,
    /// New tokens, one of each.
    sequences: u32,
    /// What each of these attends to.
    context: u32,
}

impl MixedAttention {
    pub(crate) fn new(grid: Grid<4>) -> MixedAttention {
        let [longest_chunk, ..] = grid.nearest([u64::MAX; 4]);
        MixedAttention {
            grid,
            longest_chunk: longest_chunk as u32,
        }
    }
}

impl Mix {
    /// Where it lies on the grid, which has the tokens that the chunk's first attends to.
    fn at(self) -> [u64; 4] {
        let first_context = u64::from(self.cached) + 1;
        [
            self.tokens.into(),
            first_context,
            self.sequences.into(),
            self.context.into(),
        ]
    }
}

/// Costs of one layer's attention of several whole prompts in one kernel, by prompts and tokens of each.
#[derive(Clone, Debug)]
pub struct PromptsTogether(pub(crate) Surface);

impl PromptsTogether {
    /// What these chunks take in one kernel, in parts of a million of what they take one by one: as much as so many
    /// whole prompts, each of which attends as often as the chunks do in the mean.
    fn share_ppm(&self, chunks: &[(u32, u32)]) -> u64 {
        let (prompts, tokens) = as_whole_prompts(chunks);
        share_ppm(
            self.0.median_ns(prompts, tokens),
            self.0.median_ns(1, tokens) * u64::from(prompts),
        )
    }

    fn covers(&self, chunks: &[(u32, u32)]) -> bool {
        let (prompts, tokens) = as_whole_prompts(chunks);
        self.0.covers(prompts, tokens)
    }

    fn beyond(&self, chunks: &[(u32, u32)]) -> Option<Beyond> {
        let (prompts, tokens) = as_whole_prompts(chunks);
        self.0.beyond(prompts, tokens)
    }
}

const ONE_BY_ONE_PPM: u64 = 1_000_000;

/// What `part_ns` is of `all_ns`, in parts of a million.
fn share_ppm(part_ns: u64, all_ns: u64) -> u64 {
    ONE_BY_ONE_PPM * part_ns / all_ns.max(1)
}

/// Costs of whole steps as a lane makes them, of a model of so many layers. Beyond the measured range they are those of
/// its edge: what they are for is their ratio to their parts, and that settles.
#[derive(Clone, Debug)]
pub struct WholeSteps {
    /// Layers of the model that was measured.
    pub layers: u32,
    pub(crate) grid: Grid<3>,
}

impl WholeSteps {
    /// The nearest measured step to one in which one of `sequences` sequences brings `chunk_tokens` tokens and the
    /// others a new one each, which attends to `context` tokens on average: the same three.
    pub fn nearest(&self, chunk_tokens: u32, sequences: u32, context: u32) -> [u32; 3] {
        let nearest = self.grid.nearest([chunk_tokens.into(), sequences.into(), context.into()]);
        nearest.map(|value| value as u32)
    }

    /// How far such a step lies beyond what was measured: then it costs what the nearest does, in parts of its own
    /// parts.
    pub fn beyond(&self, [chunk_tokens, sequences, context]: [u32; 3]) -> Option<Beyond> {
        self.grid.beyond([chunk_tokens.into(), sequences.into(), context.into()])
    }

    /// What such a step costs.
    pub fn cost(&self, [chunk_tokens, sequences, context]: [u32; 3]) -> Cost {
        self.grid.cost([chunk_tokens.into(), sequences.into(), context.into()])
    }
}

/// One of the kernels that a layer's attention takes.
enum Kernel<'a> {
    /// Of a chunk: its tokens, and those that the last of them attends to. And what it takes beside others in one
    /// kernel, in parts of a million of what it takes alone.
    Prefill(u32, u32, u64),
    /// Of a prompt that is computed at once, where such were measured by themselves: what prices it, its tokens, and
    /// likewise.
    Whole(&'a Curve, u32, u64),
    /// Of new tokens: sequences, and their mean context.
    Decode(u32, u32),
    /// Of both.
    Mixed(&'a MixedAttention, Mix),
}

impl Decoder {
    /// A whole step of a model of `layers` layers: chunks of prompts, each with its tokens and the tokens that its last
    /// attends to (those cached before, and its own), and one new token for each of `sequences`, which attend to
    /// `context` tokens on average. Each chunk and each sequence takes part in the output, as in vLLM, which computes
    /// logits for unfinished prompts too.
    pub fn step(&self, layers: u32, chunks: &[(u32, u32)], sequences: u32, context: u32) -> Cost {
        let (outputs, tokens) = outputs_and_tokens(chunks, sequences);
        let layer = self.dense.cost(tokens.into()).plus(self.attention(chunks, sequences, context));
        layer.times(layers).plus(self.ends.cost(outputs, tokens))
    }

    /// One layer's attention in such a step; an empty step has none.
    ///
    /// Where both kinds were measured in one kernel, that is the price of a mixed step, and several chunks count as the
    /// one that attends as often as they do together. Where several prompts were, chunks take the share of their own
    /// costs that these do. Together they never take less than the dearest of them does alone: a few tokens with a long
    /// context do not become cheaper beside a short prompt, nor a prompt beside a new token. What of a chunk is longer
    /// than any that was measured beside new tokens adds to both what it adds to the chunk alone.
    pub fn attention(&self, chunks: &[(u32, u32)], sequences: u32, context: u32) -> Cost {
        let mut sum: Option<Cost> = None;
        self.kernels(chunks, sequences, context, |kernel| {
            let cost = match kernel {
                Kernel::Prefill(tokens, context, ppm) => self.prefill.cost(tokens, context).share(ppm),
                Kernel::Whole(whole, tokens, ppm) => whole.cost(tokens.into()).share(ppm),
                Kernel::Decode(sequences, context) => self.decode.cost(sequences, context),
                Kernel::Mixed(mixed, mix) => Cost {
                    median_ns: self.mixed_ns(mixed, mix),
                    ..mixed.grid.cost(mix.at())
                },
            };
            sum = Some(sum.map_or(cost, |sum| sum.plus(cost)));
        });
        sum.unwrap_or(Cost::NOTHING)
    }

    /// The median of [`attention`](Self::attention), for a fraction of what all of it takes.
    pub fn attention_ns(&self, chunks: &[(u32, u32)], sequences: u32, context: u32) -> u64 {
        let mut sum = 0;
        self.kernels(chunks, sequences, context, |kernel| {
            sum += match kernel {
                Kernel::Prefill(tokens, context, ppm) => of_ppm(self.prefill.median_ns(tokens, context), ppm),
                Kernel::Whole(whole, tokens, ppm) => of_ppm(whole.median_ns(tokens.into()), ppm),
                Kernel::Decode(sequences, context) => self.decode.median_ns(sequences, context),
                Kernel::Mixed(mixed, mix) => self.mixed_ns(mixed, mix),
            };
        });
        sum
    }

    /// What prices a chunk of so many tokens of a context, if that is a whole prompt and those were measured by
    /// themselves.
    #[inline]
    fn whole(&self, tokens: u32, context: u32) -> Option<&Curve> {
        self.whole_prompt.as_ref().filter(|_| tokens == context)
    }

    /// What takes a chunk in.
    #[inline]
    fn chunk(&self, tokens: u32, context: u32, ppm: u64) -> Kernel<'_> {
        match self.whole(tokens, context) {
            Some(whole) => Kernel::Whole(whole, tokens, ppm),
            None => Kernel::Prefill(tokens, context, ppm),
        }
    }

    fn chunk_ns(&self, tokens: u32, context: u32) -> u64 {
        match self.whole(tokens, context) {
            Some(whole) => whole.median_ns(tokens.into()),
            None => self.prefill.median_ns(tokens, context),
        }
    }

    /// What a chunk and new tokens take together.
    fn mixed_ns(&self, mixed: &MixedAttention, mix: Mix) -> u64 {
        let chunk_ns = |tokens| self.chunk_ns(tokens, tokens + mix.cached);
        let measured = Mix {
            tokens: mix.tokens.min(mixed.longest_chunk),
            ..mix
        };
        let alone_ns = chunk_ns(measured.tokens);
        let together_ns = mixed.grid.median_ns(measured.at());
        let least_ns = alone_ns.max(self.decode.median_ns(mix.sequences, mix.context));
        let longer_ns = match mix.tokens > measured.tokens {
            true => chunk_ns(mix.tokens).saturating_sub(alone_ns),
            false => 0,
        };
        together_ns.max(least_ns) + longer_ns
    }

    /// The kernels of one layer's attention in such a step.
    #[inline]
    fn kernels(&self, chunks: &[(u32, u32)], sequences: u32, context: u32, mut each: impl FnMut(Kernel<'_>)) {
        match (&self.mixed, chunks, sequences) {
            (Some(mixed), [_, ..], 1..) => {
                let mix = |(tokens, cached)| Mix {
                    tokens,
                    cached,
                    sequences,
                    context,
                };
                let one = dearest(chunks, |chunk| self.mixed_ns(mixed, mix(chunk)));
                each(Kernel::Mixed(mixed, mix(one)));
            }
            (Some(_), [_, _, ..], 0) => {
                let (tokens, cached) = dearest(chunks, |(tokens, cached)| self.chunk_ns(tokens, tokens + cached));
                each(self.chunk(tokens, tokens + cached, ONE_BY_ONE_PPM));
            }
            _ => {
                let ppm = self.together(chunks).map_or(ONE_BY_ONE_PPM, |together| {
                    let alone_ns = chunks.iter().map(|&(tokens, context)| self.chunk_ns(tokens, context));
                    let least_ppm = share_ppm(alone_ns.clone().max().unwrap_or(0), alone_ns.sum());
                    together.share_ppm(chunks).max(least_ppm)
                });
                for &(tokens, context) in chunks {
                    each(self.chunk(tokens, context, ppm));
                }
                if sequences > 0 {
                    each(Kernel::Decode(sequences, context));
                }
            }
        }
    }

    /// What prices these chunks as one kernel, if they are several and anything does.
    #[inline]
    fn together(&self, chunks: &[(u32, u32)]) -> Option<&PromptsTogether> {
        self.together.as_ref().filter(|_| self.mixed.is_none() && chunks.len() > 1)
    }

    /// Whether all that such a step costs lies within what was measured; reports say where it does not.
    #[inline]
    pub fn covers(&self, chunks: &[(u32, u32)], sequences: u32, context: u32) -> bool {
        let (outputs, tokens) = outputs_and_tokens(chunks, sequences);
        let mut covers = self.dense.covers(tokens.into()) && self.ends.covers(outputs, tokens);
        covers &= self.together(chunks).is_none_or(|together| together.covers(chunks));
        self.kernels(chunks, sequences, context, |kernel| {
            covers &= match kernel {
                Kernel::Prefill(tokens, context, _) => self.prefill.covers(tokens, context),
                Kernel::Whole(whole, tokens, _) => whole.covers(tokens.into()),
                Kernel::Decode(sequences, context) => self.decode.covers(sequences, context),
                Kernel::Mixed(mixed, mix) => mixed.grid.covers(mix.at()),
            };
        });
        covers
    }

    /// Tells of each family how far such a step lies beyond what was measured.
    pub fn beyond(&self, chunks: &[(u32, u32)], sequences: u32, context: u32, mut tell: impl FnMut(Family, Beyond)) {
        let mut note = |family, beyond: Option<Beyond>| {
            if let Some(beyond) = beyond {
                tell(family, beyond);
            }
        };
        let (outputs, tokens) = outputs_and_tokens(chunks, sequences);
        self.kernels(chunks, sequences, context, |kernel| match kernel {
            Kernel::Prefill(tokens, context, _) => note(Family::DecoderPrefill, self.prefill.beyond(tokens, context)),
            Kernel::Whole(whole, tokens, _) => note(Family::DecoderWholePrompt, whole.beyond(tokens.into())),
            Kernel::Decode(sequences, context) => note(Family::DecoderDecode, self.decode.beyond(sequences, context)),
            Kernel::Mixed(mixed, mix) => note(Family::DecoderMixed, mixed.grid.beyond(mix.at())),
        });
        note(
            Family::DecoderPrompts,
            self.together(chunks).and_then(|together| together.beyond(chunks)),
        );
        note(Family::DecoderDense, self.dense.beyond(tokens.into()));
        note(Family::DecoderEnds, self.ends.beyond(outputs, tokens));
    }
}

#[inline]
fn outputs_and_tokens(chunks: &[(u32, u32)], sequences: u32) -> (u32, u32) {
    let tokens: u32 = chunks.iter().map(|(tokens, _)| tokens).sum();
    (chunks.len() as u32 + sequences, tokens + sequences)
}

/// The tokens of one chunk, and those cached before it, that stands for these: what attends as often as they do
/// together, or the one of them that takes longer than that by itself.
#[inline]
fn dearest(chunks: &[(u32, u32)], median_ns: impl Fn((u32, u32)) -> u64) -> (u32, u32) {
    let together = as_one_chunk(chunks);
    match chunks {
        [_] => together,
        _ => chunks
            .iter()
            .map(after_cached)
            .chain([together])
            .max_by_key(|chunk| median_ns(*chunk))
            .unwrap_or(together),
    }
}

/// A chunk's tokens, and those cached before it.
fn after_cached(&(tokens, context): &(u32, u32)) -> (u32, u32) {
    (tokens, context.saturating_sub(tokens))
}

/// How often a chunk's tokens attend in all: each to its context less half of the chunk in the mean.
fn attended(&(tokens, context): &(u32, u32)) -> f64 {
    f64::from(tokens) * (f64::from(context) - f64::from(tokens) / 2.0)
}

/// As many whole prompts, and the tokens of each with which it attends as often as these chunks do in the mean.
fn as_whole_prompts(chunks: &[(u32, u32)]) -> (u32, u32) {
    let mean = chunks.iter().map(attended).sum::<f64>() / chunks.len() as f64;
    (chunks.len() as u32, ((2.0 * mean).sqrt() + 0.5) as u32)
}

/// The tokens of one chunk, and those cached before it, that attends as often as these chunks do together. It has all
/// their tokens, unless these attend so seldom (many short prompts) that even a prompt of as many would attend more
/// often.
fn as_one_chunk(chunks: &[(u32, u32)]) -> (u32, u32) {
    if let [chunk] = chunks {
        return after_cached(chunk);
    }
    let tokens: f64 = chunks.iter().map(|(tokens, _)| f64::from(*tokens)).sum();
    let attended: f64 = chunks.iter().map(attended).sum();
    let cached = attended / tokens - tokens / 2.0;
    if cached >= 0.0 {
        (tokens as u32, (cached + 0.5) as u32)
    } else {
        (((2.0 * attended).sqrt() + 0.5) as u32, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{as_one_chunk, as_whole_prompts};

    #[test]
    fn chunks_stand_for_whole_prompts_that_attend_as_often() {
        assert_eq!(as_whole_prompts(&[(100, 100); 4]), (4, 100));
        // 100 × 50 and 100 × 750 is twice 283²/2.
        assert_eq!(as_whole_prompts(&[(100, 100), (100, 800)]), (2, 283));
    }

    #[test]
    fn several_chunks_attend_as_often_as_the_one_that_stands_for_them() {
        assert_eq!(as_one_chunk(&[(100, 700)]), (100, 600));
        // 100 × 650 and 300 × 450 is 400 × 500, which 400 tokens after 300 have.
        assert_eq!(as_one_chunk(&[(100, 700), (300, 600)]), (400, 300));
        // Four prompts of 100 attend 4 × 100 × 50 times, as often as one of 200 does.
        assert_eq!(as_one_chunk(&[(100, 100); 4]), (200, 0));
    }
}
