//! What one forward pass processes: prompts' chunks and new tokens of many sequences, laid out once for all layers.

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{AdapterImplementation, ModelShape};

use super::attention::filled;
use super::kv::KvCache;
use super::parts::{Angles, Rotary};
use crate::adapters::{AdapterCache, AdapterPlan};
use crate::device::sent_to;
use crate::error::ExecutorError;
use crate::lora::Segment;

/// One sequence's part in a step: a prompt, a piece of one, or the one token that was generated last.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Ids of the tokens to be processed, at least one.
    pub ids: &'a [i64],
    /// Tokens of the sequence before these, whose keys and values are in the cache.
    pub cached: u32,
    /// The pages of the sequence in order, enough for all these tokens. Earlier steps filled the first of them.
    pub pages: &'a [u32],
    /// The slot of its tenant's parameters; none for the backbone alone.
    pub slot: Option<u32>,
    /// Whether a next token is wanted: not after a piece of a prompt that another piece follows.
    pub wants_token: bool,
}

/// The chunks of one forward pass, on the device. Made by [`Decoder::step`](super::Decoder::step).
///
/// Inside, longer chunks come before those of one token, and each of the two is ordered by slot, so that tenants'
/// tokens lie next to each other; tokens and logits are told in the order of the chunks given.
#[derive(Debug)]
pub struct Step {
    /// Token ids, `[tokens]`, in the order inside.
    pub(crate) ids: Tensor,
    /// Position of each token in its sequence.
    pub(crate) positions: Tensor,
    /// Page of each token's keys and values.
    pub(crate) pages: Tensor,
    /// Place of each token in its page.
    pub(crate) offsets: Tensor,
    pub(crate) angles: Option<Angles>,
    pub(crate) prefills: Vec<Prefill>,
    pub(crate) decodes: Option<Decodes>,
    /// For each chunk given that wants a token, its last token's row, `[n]`.
    wanted: Tensor,
    /// Where the tokens given went: row `i` inside is row `arrangement[i]` of those given. None where nothing moved.
    arrangement: Option<Vec<i64>>,
    segments: Vec<Segment>,
}

/// A chunk of several tokens.
#[derive(Debug)]
pub(crate) struct Prefill {
    /// Its first row.
    pub first: i64,
    pub tokens: i64,
    /// What is cached before it; none where it begins its sequence.
    pub cached: Option<Cached>,
}

/// Keys and values before a chunk.
#[derive(Debug)]
pub(crate) struct Cached {
    /// The pages up to the chunk's last token, `[p]`.
    pub pages: Tensor,
    /// Places in them that are attended to: of its tokens, the chunk's own included, and of what [fills](filled)
    /// vectors.
    pub context: i64,
    /// Added to scores, `[tokens, context]`: minus infinity for later tokens and for what none is at.
    pub mask: Tensor,
}

/// All chunks of one token.
#[derive(Debug)]
pub(crate) struct Decodes {
    pub first: i64,
    pub sequences: i64,
    /// Their pages, `[sequences × p]`, as many for each as the longest has.
    pub pages: Tensor,
    /// Places of each that are attended to: of the longest's tokens, its new one included, and of what [fills](filled)
    /// vectors.
    pub context: i64,
    /// Added to scores, `[sequences, 1, 1, context]`: minus infinity beyond a sequence's end. None on a CPU where all
    /// end there.
    pub mask: Option<Tensor>,
}

impl Step {
    pub(crate) fn new(
        shape: &ModelShape,
        rotary: Option<&Rotary>,
        kv: &KvCache,
        chunks: &[Chunk<'_>],
    ) -> Result<Step, ExecutorError> {
        check(shape, kv, chunks)?;
        let (device, page_tokens) = (kv.device(), kv.page_tokens() as usize);
        let on_device = |numbers: &[i64]| sent_to(device, &Tensor::f_from_slice(numbers)?);

        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_by_key(|&index| {
            let chunk = &chunks[index];
            (chunk.ids.len() == 1, chunk.slot.is_none(), chunk.slot)
        });
        kv.clear(&begun_pages(chunks, page_tokens))?;
        let starts = starts(chunks);
        let (mut rows, mut wanted) = (Rows::default(), vec![None; chunks.len()]);
        let (mut prefills, mut decodes) = (Vec::new(), Vec::new());
        for index in order {
            let chunk = &chunks[index];
            let first = rows.ids.len() as i64;
            rows.push(chunk, starts[index], page_tokens);
            wanted[index] = chunk.wants_token.then_some(rows.ids.len() as i64 - 1);
            if chunk.ids.len() == 1 {
                decodes.push(chunk);
            } else {
                prefills.push(Prefill::new(first, chunk, kv)?);
            }
        }
        let wanted: Vec<i64> = wanted.into_iter().flatten().collect();
        let tokens = rows.ids.len() as i64;
        let moved = rows.given.iter().enumerate().any(|(row, &given)| row as i64 != given);

        // One copy to the device for the four.
        let four = [rows.ids, rows.positions, rows.pages, rows.offsets].concat();
        let four = on_device(&four)?.f_view([4, tokens])?;
        let positions = four.f_select(0, 1)?;
        let angles = rotary.map(|rotary| rotary.angles(&positions)).transpose()?;
        Ok(Step {
            ids: four.f_select(0, 0)?,
            pages: four.f_select(0, 2)?,
            offsets: four.f_select(0, 3)?,
            positions,
            angles,
            prefills,
            decodes: Decodes::new(tokens, &decodes, kv)?,
            wanted: on_device(&wanted)?,
            arrangement: moved.then_some(rows.given),
            segments: rows.segments,
        })
    }

    /// Tokens of all chunks.
    pub fn tokens(&self) -> usize {
        self.ids.size()[0] as usize
    }

    /// Chunks that want a token.
    pub fn wanted(&self) -> usize {
        self.wanted.size()[0] as usize
    }

    /// Puts `[tokens, …]`, such as hidden states from a PLOT table, from the order of the chunks given into that
    /// inside, in which [`Decoder::layers`](super::Decoder::layers) expects them.
    ///
    /// # Errors
    /// Fewer rows than the step has tokens.
    pub fn arrange(&self, given: Tensor) -> Result<Tensor, ExecutorError> {
        Ok(match &self.arrangement {
            None => given,
            Some(arrangement) => {
                let arrangement = sent_to(given.device(), &Tensor::f_from_slice(arrangement)?)?;
                given.f_index_select(0, &arrangement)?
            }
        })
    }

    /// Stretches of tokens of one slot, in the order inside: what [`LoraCache::plan`](crate::LoraCache::plan) takes.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Has `chunk`, the only one of the step, attend to its pages even if nothing is cached before it: what a chunk of
    /// a context costs as the past goes to nothing, where a whole prompt needs neither pages nor mask.
    pub(crate) fn over_pages(mut self, chunk: &Chunk<'_>, kv: &KvCache) -> Result<Step, ExecutorError> {
        for prefill in &mut self.prefills {
            prefill.cached = Some(Cached::new(chunk, kv)?);
        }
        Ok(self)
    }

    /// Plans Houlsby adapters for the step's tokens, each a sequence of its own to them.
    ///
    /// # Errors
    /// A chunk without a slot, or what [`AdapterCache::plan`] refuses.
    pub fn plan_adapters(
        &self,
        cache: &AdapterCache,
        implementation: AdapterImplementation,
    ) -> Result<AdapterPlan, ExecutorError> {
        let mut slots = Vec::with_capacity(self.tokens());
        for segment in &self.segments {
            let none = || ExecutorError::input("slot of a chunk", "an adapter's", "none");
            slots.extend(vec![segment.slot.ok_or_else(none)?; segment.tokens as usize]);
        }
        cache.plan(&slots, 1, implementation)
    }

    /// The rows of `hidden`, `[tokens, …]`, that logits are wanted of, in the order of the chunks given.
    pub(crate) fn last_rows(&self, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(hidden.f_index_select(0, &self.wanted)?)
    }
}

/// What is told of each token, in the order inside.
#[derive(Default)]
struct Rows {
    ids: Vec<i64>,
    positions: Vec<i64>,
    pages: Vec<i64>,
    offsets: Vec<i64>,
    /// Its row among the tokens given.
    given: Vec<i64>,
    segments: Vec<Segment>,
}

impl Rows {
    fn push(&mut self, chunk: &Chunk<'_>, start: usize, page_tokens: usize) {
        let tokens = chunk.ids.len() as u32;
        for (index, &id) in chunk.ids.iter().enumerate() {
            let position = chunk.cached as usize + index;
            self.ids.push(id);
            self.positions.push(position as i64);
            self.pages.push(chunk.pages[position / page_tokens].into());
            self.offsets.push((position % page_tokens) as i64);
            self.given.push((start + index) as i64);
        }
        match self.segments.last_mut() {
            Some(last) if last.slot == chunk.slot => last.tokens += tokens,
            _ => self.segments.push(Segment {
                slot: chunk.slot,
                tokens,
            }),
        }
    }
}

impl Prefill {
    fn new(first: i64, chunk: &Chunk<'_>, kv: &KvCache) -> Result<Prefill, ExecutorError> {
        let cached = (chunk.cached > 0).then(|| Cached::new(chunk, kv));
        Ok(Prefill {
            first,
            tokens: chunk.ids.len() as i64,
            cached: cached.transpose()?,
        })
    }
}

impl Cached {
    fn new(chunk: &Chunk<'_>, kv: &KvCache) -> Result<Cached, ExecutorError> {
        let (tokens, pages) = (chunk.ids.len() as i64, own_pages(chunk, kv));
        let context = filled(i64::from(chunk.cached) + tokens).min(pages.len() as i64 * i64::from(kv.page_tokens()));
        let later = Tensor::f_ones([tokens, context], (Kind::Bool, kv.device()))?.f_triu(chunk.cached as i64 + 1)?;
        Ok(Cached {
            pages: sent_to(kv.device(), &Tensor::f_from_slice(&pages)?)?,
            context,
            mask: minus_infinity(&later, kv.kind())?,
        })
    }
}

impl Decodes {
    /// `chunks` are the last rows of a step of so many tokens.
    fn new(tokens: i64, chunks: &[&Chunk<'_>], kv: &KvCache) -> Result<Option<Decodes>, ExecutorError> {
        let ends: Vec<i64> = chunks.iter().map(|chunk| i64::from(chunk.cached) + 1).collect();
        let Some(&longest) = ends.iter().max() else {
            return Ok(None);
        };
        let sequences = chunks.len() as i64;
        let most = kv.pages_for(longest as u32) as usize;
        let context = filled(longest).min(most as i64 * i64::from(kv.page_tokens()));
        let mut pages = Vec::with_capacity(chunks.len() * most);
        for chunk in chunks {
            let mut own = own_pages(chunk, kv);
            // Any page will do: what is beyond the sequence's end is masked.
            own.resize(most, own[0]);
            pages.extend(own);
        }
        let device: Device = kv.device();
        // A GPU has another kernel for what needs none, which a batch would be computed by now and then: so all there
        // have one.
        let mask = (device.is_cuda() || ends.iter().any(|&end| end < context)).then(|| {
            let ends = sent_to(device, &Tensor::f_from_slice(&ends)?)?.f_view([sequences, 1, 1, 1])?;
            let beyond = Tensor::f_arange(context, (Kind::Int64, device))?.f_ge_tensor(&ends)?;
            minus_infinity(&beyond, kv.kind())
        });
        Ok(Some(Decodes {
            first: tokens - sequences,
            sequences,
            pages: sent_to(device, &Tensor::f_from_slice(&pages)?)?,
            context,
            mask: mask.transpose()?,
        }))
    }
}

/// The pages up to a chunk's last token.
fn own_pages(chunk: &Chunk<'_>, kv: &KvCache) -> Vec<i64> {
    let count = kv.pages_for(chunk.cached + chunk.ids.len() as u32) as usize;
    chunk.pages[..count].iter().map(|&page| page.into()).collect()
}

/// Pages of which chunks write the first places and not the last.
fn begun_pages(chunks: &[Chunk<'_>], page_tokens: usize) -> Vec<i64> {
    let begun = |chunk: &Chunk<'_>| {
        let (first, end) = (chunk.cached as usize, chunk.cached as usize + chunk.ids.len());
        let page = end / page_tokens;
        (page * page_tokens >= first && page * page_tokens < end).then(|| chunk.pages[page].into())
    };
    chunks.iter().filter_map(begun).collect()
}

/// A mask to be added: minus infinity where `hidden` is true.
fn minus_infinity(hidden: &Tensor, kind: Kind) -> Result<Tensor, ExecutorError> {
    let zeros = Tensor::f_zeros(hidden.size(), (kind, hidden.device()))?;
    Ok(zeros.f_masked_fill(hidden, f64::NEG_INFINITY)?)
}

/// The first row of each chunk among the tokens given.
fn starts(chunks: &[Chunk<'_>]) -> Vec<usize> {
    let mut start = 0;
    let of = |chunk: &Chunk<'_>| {
        let first = start;
        start += chunk.ids.len();
        first
    };
    chunks.iter().map(of).collect()
}

/// Refuses what would read or write beyond a tensor's end, which a GPU would notice late and take the process with it,
/// and two sequences that write to one page.
fn check(shape: &ModelShape, kv: &KvCache, chunks: &[Chunk<'_>]) -> Result<(), ExecutorError> {
    if chunks.is_empty() {
        return Err(ExecutorError::input("step", "at least one chunk", "none"));
    }
    let page_tokens = kv.page_tokens() as usize;
    let mut written: Vec<u32> = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let refuse = |what: &str, must: String, got: &dyn std::fmt::Display| {
            Err(ExecutorError::input(
                format!("chunk {index} of the step: {what}"),
                must,
                got,
            ))
        };
        if chunk.ids.is_empty() {
            return refuse("ids", "at least one token".into(), &"none");
        }
        if let Some(id) = chunk.ids.iter().find(|id| !(0..i64::from(shape.vocabulary)).contains(*id)) {
            return refuse("ids", format!("from 0 to {}", shape.vocabulary - 1), id);
        }
        let context = chunk.cached as usize + chunk.ids.len();
        if context > shape.positions as usize {
            let must = format!(
                "at most {} tokens with those cached, the positions of {}",
                shape.positions, shape.name
            );
            return refuse("ids", must, &context);
        }
        if chunk.pages.len() * page_tokens < context {
            let must = format!(
                "pages for {context} tokens, {} of {page_tokens}",
                context.div_ceil(page_tokens)
            );
            return refuse("pages", must, &chunk.pages.len());
        }
        if let Some(page) = chunk.pages.iter().find(|page| **page >= kv.pages()) {
            return refuse("pages", format!("below {}", kv.pages()), page);
        }
        written.extend(&chunk.pages[chunk.cached as usize / page_tokens..context.div_ceil(page_tokens)]);
    }
    written.sort_unstable();
    match written.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ExecutorError::input(
            "pages that the step writes to",
            "each one chunk's",
            format!("{} twice", pair[0]),
        )),
        None => Ok(()),
    }
}
