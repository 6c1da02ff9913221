//! Looking up a batch: fragments found, rows fetched, and summed up (HMI, Eq. 2), by several threads.
//!
//! The unit of work is a block of tokens of one sequence. A token's sum is over the fragments that cover it, in their
//! order, whichever thread does it: the result does not depend on the number of threads. In a block the index is
//! searched for all fragments before any row is touched, and rows are fetched ahead of their use: into the cache from
//! memory, into the page cache from disk.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::ThreadPool;

use crate::find::{Piece, Road};
use crate::tree::{DomainId, Snapshot};
use crate::{Counters, PlotError};

/// Tokens of a block: enough to have many reads under way at once, few enough that a short batch is shared out.
const BLOCK_TOKENS: usize = 32;

/// Values converted at once: a buffer that stays in the first-level cache.
const LANE_VALUES: usize = 512;

/// Sequences to look up, padded to one width.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Token ids, `[batch, width]`; what is beyond a sequence's length is not read.
    pub tokens: &'a [u32],
    /// Tokens from the beginning of one sequence to that of the next.
    pub width: usize,
    /// Each sequence's length in tokens.
    pub lengths: &'a [u32],
    /// Each sequence's domain; none is the root's tables alone.
    pub domains: &'a [Option<DomainId>],
}

impl Batch<'_> {
    fn check(&self, hidden: usize, out_values: usize) -> Result<(), PlotError> {
        let sequences = self.lengths.len();
        for (what, must, got) in [
            ("tokens", sequences * self.width, self.tokens.len()),
            ("domains", sequences, self.domains.len()),
            ("out", sequences * self.width * hidden, out_values),
        ] {
            if must != got {
                return Err(PlotError::input(what, format!("{must} values"), got));
            }
        }
        match self.lengths.iter().find(|&&length| length as usize > self.width) {
            None => Ok(()),
            Some(length) => Err(PlotError::input(
                "lengths",
                format!("at most the width, {}", self.width),
                length,
            )),
        }
    }
}

/// A text whose end is looked up, as a decoder's step needs it: what comes before gives the first fragments their
/// context.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Token ids.
    pub tokens: &'a [u32],
    /// The first token whose representation is wanted, and with it those of all after it.
    pub first: usize,
    /// Its domain; none is the root's tables alone.
    pub domain: Option<DomainId>,
}

impl Text<'_> {
    /// Representations that are wanted.
    pub fn wanted(&self) -> usize {
        self.tokens.len().saturating_sub(self.first)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
}

/// What representations are given out in: `f32` or `f16`. Sums are made in `f32` in either case.
pub trait Value: sealed::Sealed + Copy + Send + 'static {
    /// Fills `out` by way of `fill`, which adds up in zeroed single precision.
    #[doc(hidden)]
    fn fill<R>(out: &mut [Self], buffer: &mut Vec<f32>, fill: impl FnOnce(&mut [f32]) -> R) -> R;
}

impl Value for f32 {
    fn fill<R>(out: &mut [f32], _: &mut Vec<f32>, fill: impl FnOnce(&mut [f32]) -> R) -> R {
        out.fill(0.0);
        fill(out)
    }
}

impl Value for f16 {
    fn fill<R>(out: &mut [f16], buffer: &mut Vec<f32>, fill: impl FnOnce(&mut [f32]) -> R) -> R {
        buffer.clear();
        buffer.resize(out.len(), 0.0);
        let result = fill(buffer);
        out.convert_from_f32_slice(buffer);
        result
    }
}

/// What one thread takes for a fragment without its row: searching the index, and adding up.
const FRAGMENT_NS: u64 = 100;

/// Bytes of a row that it reads from memory and adds up in a nanosecond,
const ROW_BYTES_A_NS: u64 = 5;

/// and how many times as long all of it takes where rows come from the disk's page cache.
const DISK: u64 = 3;

/// Work for each thread from which a helper is worth its wake-up. One that sleeps is there in 15 to 55 µs, and is
/// waited for even if the caller has done all meanwhile: two threads took 23 µs for two tokens of which one alone takes
/// 0.6; with half as much work as this for each, between 0.55 and 1.4 times one's time (measured on two cores of an AMD
/// EPYC, 2026-11-24).
const THREAD_NS: u64 = 40_000;

/// Threads that look up: the caller's own and, for batches that are worth a wake-up, those beside it.
///
/// The caller works too, rather than to sleep until all is done. It saves a wake-up; and two helpers woken at once by a
/// thread that then sleeps are often put on one core while another is idle, so that two threads took now half of one's
/// time and now all of it.
pub struct Engine {
    /// None for one thread.
    helpers: Option<ThreadPool>,
    /// Work for each thread from which one is woken.
    thread_ns: u64,
}

impl Engine {
    /// An engine of so many threads; with one, the caller's does the work.
    ///
    /// # Errors
    ///
    /// If there are none, or they cannot be started.
    pub fn new(threads: usize) -> Result<Engine, PlotError> {
        let start = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(threads - 1);
            let named = builder.thread_name(|index| format!("plot-{index}"));
            named.build().map_err(|error| {
                PlotError::input("threads", "as many as can be started", format!("{threads}: {error}"))
            })
        };
        let helpers = match threads {
            0 => return Err(PlotError::input("threads", "at least 1", 0)),
            1 => None,
            _ => Some(start()?),
        };
        Ok(Engine {
            helpers,
            thread_ns: THREAD_NS,
        })
    }

    /// The same, with helpers woken for however little work: how tests know that they make no difference to results.
    #[doc(hidden)]
    pub fn always_sharing(self) -> Engine {
        Engine { thread_ns: 1, ..self }
    }

    /// Helpers that are worth waking for so many tokens of this tree.
    fn helpers_for(&self, tree: &Snapshot, tokens: usize) -> usize {
        let root = tree.root();
        let alone_ns = FRAGMENT_NS + root.shape().row_bytes() / ROW_BYTES_A_NS;
        let tier = match root.tables()[0].is_in_memory() {
            true => 1,
            false => DISK,
        };
        let threads = tokens as u64 * alone_ns * tier / self.thread_ns;
        threads.saturating_sub(1) as usize
    }

    /// Looks a batch up: fills `out`, `[batch, width, hidden]`, with the normalized sum of the vectors that fragments
    /// have for each token; padding is zero. Says what the look-ups met.
    ///
    /// # Errors
    ///
    /// If the batch's parts do not fit each other, a domain has been deleted, or a row cannot be read: a table cut
    /// while in use gives [`PlotError::Truncated`]. `out` then holds no result.
    pub fn retrieve<V: Value>(&self, tree: &Snapshot, batch: &Batch, out: &mut [V]) -> Result<Counters, PlotError> {
        let hidden = tree.root().shape().hidden as usize;
        batch.check(hidden, out.len())?;
        let roads = batch.domains.iter().map(|domain| {
            let domain = domain.map(|domain| tree.branch(domain)).transpose()?;
            Ok(Road {
                domain,
                root: tree.root(),
            })
        });
        let roads = roads.collect::<Result<Vec<Road>, PlotError>>()?;
        if out.is_empty() {
            return Ok(Counters::default());
        }
        let blocks = out.chunks_mut(batch.width * hidden).enumerate().flat_map(|(sequence, out)| {
            let blocks = out.chunks_mut(BLOCK_TOKENS * hidden).enumerate();
            blocks.map(move |(index, out)| (sequence, index * BLOCK_TOKENS, out))
        });
        let tokens = batch.lengths.iter().sum::<u32>() as usize;
        self.share_out(
            blocks.collect(),
            self.helpers_for(tree, tokens),
            |(sequence, first, out)| {
                let tokens = &batch.tokens[sequence * batch.width..][..batch.lengths[sequence] as usize];
                look_up(&roads[sequence], tokens, first, hidden, out)
            },
        )
    }
}

impl Engine {
    /// Looks the ends of texts up: fills `out`, `[wanted of all texts, hidden]`, text by text. Says what the look-ups
    /// met.
    ///
    /// # Errors
    ///
    /// As for [`retrieve`](Engine::retrieve).
    pub fn retrieve_ends<V: Value>(
        &self,
        tree: &Snapshot,
        texts: &[Text],
        out: &mut [V],
    ) -> Result<Counters, PlotError> {
        let hidden = tree.root().shape().hidden as usize;
        let values = texts.iter().map(Text::wanted).sum::<usize>() * hidden;
        if values != out.len() {
            return Err(PlotError::input("out", format!("{values} values"), out.len()));
        }
        let helpers = self.helpers_for(tree, values / hidden);
        let mut rest = out;
        let mut blocks = Vec::with_capacity(texts.len());
        for text in texts {
            let road = Road {
                domain: text.domain.map(|domain| tree.branch(domain)).transpose()?,
                root: tree.root(),
            };
            let (own, others) = std::mem::take(&mut rest).split_at_mut(text.wanted() * hidden);
            rest = others;
            let own = own.chunks_mut(BLOCK_TOKENS * hidden).enumerate();
            blocks.extend(own.map(|(index, out)| (road, text.tokens, text.first + index * BLOCK_TOKENS, out)));
        }
        self.share_out(blocks, helpers, |(road, tokens, first, out)| {
            look_up(&road, tokens, first, hidden, out)
        })
    }

    /// Has the blocks looked up by whichever thread is free, the caller's and so many helpers at most, and adds up what
    /// they met; a failure ends its thread's work.
    fn share_out<B: Send>(
        &self,
        blocks: Vec<B>,
        most_helpers: usize,
        look_up: impl Fn(B) -> Result<Counters, PlotError> + Sync,
    ) -> Result<Counters, PlotError> {
        let useful_helpers = blocks.len().saturating_sub(1).min(most_helpers);
        let blocks = Mutex::new(blocks.into_iter());
        let next = || blocks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || std::iter::from_fn(next).try_fold(Counters::default(), |sum, block| Ok(sum + look_up(block)?));
        let Some(helpers) = self.helpers.as_ref().filter(|_| useful_helpers > 0) else {
            return work();
        };
        let others = Mutex::new(Vec::new());
        let own = helpers.in_place_scope(|scope| {
            for _ in 0..useful_helpers.min(helpers.current_num_threads()) {
                scope.spawn(|_| {
                    let theirs = work();
                    others.lock().unwrap_or_else(PoisonError::into_inner).push(theirs);
                });
            }
            work()
        });
        let others = others.into_inner().unwrap_or_else(PoisonError::into_inner);
        others.into_iter().try_fold(own?, |sum, theirs| Ok(sum + theirs?))
    }
}

/// Buffers of a thread, kept from block to block.
#[derive(Default)]
struct Scratch {
    /// Rows read from disk, one after the other.
    rows: Vec<f16>,
    /// Sums in single precision, where the result is in half.
    sums: Vec<f32>,
    fallback: Fallback,
    /// Vectors summed up for each of the block's tokens.
    counts: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Fills the representations of the tokens from `first` on, as many as `out` holds.
fn look_up<V: Value>(
    road: &Road,
    tokens: &[u32],
    first: usize,
    hidden: usize,
    out: &mut [V],
) -> Result<Counters, PlotError> {
    let end = (first + out.len() / hidden).min(tokens.len()).max(first);
    let mut counters = Counters {
        tokens: (end - first) as u64,
        ..Counters::default()
    };
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch {
            rows,
            sums,
            fallback,
            counts,
        } = scratch;
        counts.clear();
        counts.resize(end - first, 0);
        let pieces = if first < end {
            find(road, tokens, first..end, &mut counters)
        } else {
            Vec::new()
        };
        fetch(&pieces, rows, &mut counters)?;
        V::fill(out, sums, |sums| {
            let mut block = Block {
                first,
                hidden,
                sums,
                counts,
            };
            let mut rows = Rows { read: rows };
            for fragment in pieces.chunk_by(|a, b| a.fragment == b.fragment) {
                match fragment {
                    [whole] => block.add(whole.start, whole.positions, rows.of(whole)),
                    parts => fallback.add(parts, &mut rows, &mut block),
                }
            }
            counters.misses = block.normalize();
        });
        Ok(counters)
    })
}

/// The rows of all fragments that have a vector for one of these tokens. A fragment is counted with the block it begins
/// in.
fn find<'t>(road: &Road<'t>, tokens: &[u32], block: std::ops::Range<usize>, counters: &mut Counters) -> Vec<Piece<'t>> {
    let fragments = road.fragments_of(block.clone(), tokens.len());
    for fragment in fragments.clone() {
        road.prefetch(tokens, fragment);
    }
    let mut pieces = Vec::with_capacity(fragments.len());
    let mut counted_before = Counters::default();
    for fragment in fragments {
        let counters = if block.contains(&fragment) {
            &mut *counters
        } else {
            &mut counted_before
        };
        road.find(tokens, fragment, &mut pieces, counters);
    }
    pieces
}

/// Reads the rows that are on the disk tier, in the order of the pieces, and fetches the others ahead. All rows are
/// asked for before the first is waited for, so that the disk has a block's worth to do at once: cold look-ups take a
/// third of the time.
fn fetch(pieces: &[Piece], rows: &mut Vec<f16>, counters: &mut Counters) -> Result<(), PlotError> {
    rows.clear();
    let mut cold = Vec::new();
    for piece in pieces {
        if piece.table.is_in_memory() {
            piece.table.prefetch_row(piece.ordinal);
            continue;
        }
        let at = rows.len();
        rows.resize(at + piece.table.shape().row_values(), f16::ZERO);
        if !piece.table.read_cached_row(piece.ordinal, &mut rows[at..])? {
            cold.push((piece, at));
        }
    }
    counters.cold_rows += cold.len() as u64;
    for (piece, at) in cold {
        let row = &mut rows[at..][..piece.table.shape().row_values()];
        piece.table.read_row(piece.ordinal, row)?;
    }
    Ok(())
}

/// Rows in the order of the pieces: from memory, or from what was read.
struct Rows<'s> {
    read: &'s [f16],
}

impl<'s> Rows<'s> {
    fn of<'t: 's>(&mut self, piece: &Piece<'t>) -> &'s [f16] {
        piece.table.row(piece.ordinal).unwrap_or_else(|| {
            let (row, rest) = self.read.split_at(piece.table.shape().row_values());
            self.read = rest;
            row
        })
    }
}

/// Sums over a block of tokens.
struct Block<'s> {
    /// Position in the sequence of the block's first token.
    first: usize,
    hidden: usize,
    /// `[tokens, hidden]`, and padding after it.
    sums: &'s mut [f32],
    counts: &'s mut [u32],
}

impl Block<'_> {
    /// The part of the tokens from `start` on that lies in the block: where in the block, and where in the tokens.
    fn overlap(&self, start: usize, positions: usize) -> (std::ops::Range<usize>, usize) {
        let from = start.max(self.first);
        let to = (start + positions).min(self.first + self.counts.len()).max(from);
        (from - self.first..to - self.first, from - start)
    }

    /// Adds a row's vectors to the tokens from `start` on.
    fn add(&mut self, start: usize, positions: usize, row: &[f16]) {
        let (tokens, skipped) = self.overlap(start, positions);
        self.counts[tokens.clone()].iter_mut().for_each(|count| *count += 1);
        let values = tokens.start * self.hidden..tokens.end * self.hidden;
        let length = values.len();
        add_half(&mut self.sums[values], &row[skipped * self.hidden..][..length]);
    }

    /// Divides by the number of vectors; says for how many tokens there were none.
    fn normalize(&mut self) -> u64 {
        for (sum, &count) in self.sums.chunks_exact_mut(self.hidden).zip(self.counts.iter()) {
            if count > 1 {
                let count = count as f32;
                sum.iter_mut().for_each(|value| *value /= count);
            }
        }
        self.counts.iter().filter(|&&count| count == 0).count() as u64
    }
}

/// Adds half-precision values; `half` converts eight at a time where the processor can (F16C).
fn add_half(sums: &mut [f32], values: &[f16]) {
    let mut lane = [0.0; LANE_VALUES];
    for (sums, values) in sums.chunks_mut(LANE_VALUES).zip(values.chunks(LANE_VALUES)) {
        let lane = &mut lane[..values.len()];
        values.convert_to_f32_slice(lane);
        sums.iter_mut().zip(lane).for_each(|(sum, value)| *sum += *value);
    }
}

/// A fragment that is not there, put together from shorter ones: their normalized sum is its row.
#[derive(Default)]
struct Fallback {
    sums: Vec<f32>,
    counts: Vec<u32>,
}

impl Fallback {
    fn add<'t>(&mut self, fragment: &[Piece<'t>], rows: &mut Rows<'t>, block: &mut Block) {
        let first = fragment.iter().map(|piece| piece.start).min().unwrap_or(0);
        let end = fragment.iter().map(|piece| piece.start + piece.positions).max().unwrap_or(first);
        self.counts.clear();
        self.counts.resize(end - first, 0);
        self.sums.clear();
        self.sums.resize((end - first) * block.hidden, 0.0);
        let mut row = Block {
            first,
            hidden: block.hidden,
            sums: &mut self.sums,
            counts: &mut self.counts,
        };
        for piece in fragment {
            row.add(piece.start, piece.positions, rows.of(piece));
        }
        row.normalize();
        let (tokens, skipped) = block.overlap(first, end - first);
        for (at, position) in tokens.zip(skipped..) {
            if self.counts[position] == 0 {
                continue;
            }
            block.counts[at] += 1;
            let sum = &mut block.sums[at * block.hidden..][..block.hidden];
            let vector = &self.sums[position * block.hidden..][..block.hidden];
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
    }
}
