//! A stand-in for the lower layers, and tables built with it.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::path::Path;

use half::f16;
use tenantry_plot::{BuildSpec, Builder, Cause, Counted, Encode, PlotError, Progress, Select, Shape};
use tenantry_traces::draw::{Draws, Purpose};

/// "Layers" whose output for a fragment is drawn from its tokens, and exact in half precision.
pub struct Layers {
    pub shape: Shape,
    /// Tells one model's layers from another's.
    pub seed: u64,
    name: String,
}

impl Layers {
    pub fn new(shape: Shape, seed: u64) -> Layers {
        let name = format!("layers of seed {seed}");
        Layers { shape, seed, name }
    }

    /// `[positions, hidden]` of a fragment.
    pub fn row(&self, fragment: &[u32]) -> Vec<f32> {
        let identity = fragment.iter().fold(1, |hash: u64, &token| {
            hash.wrapping_mul(1_000_003) + u64::from(token) + 1
        });
        let mut stream = Draws::new(self.seed, Purpose::Weights).about(identity);
        let values = 0..self.shape.with_fragment_tokens(fragment.len() as u32).row_values();
        values.map(|_| f16::from_f32((stream.bits() >> 56) as f32 / 64.0 - 2.0).to_f32()).collect()
    }
}

impl Encode for Layers {
    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        let fragments = fragments.chunks_exact(self.shape.fragment_tokens as usize);
        for (fragment, row) in fragments.zip(rows.chunks_exact_mut(self.shape.row_values())) {
            row.copy_from_slice(&self.row(fragment));
        }
        Ok(())
    }
}

pub fn spec(shape: Shape, select: Select) -> BuildSpec {
    BuildSpec {
        shape,
        select,
        chunk_fragments: 7,
        memory_bytes: 1 << 20,
    }
}

/// A corpus that cannot fail.
pub fn infallible(corpus: &[Vec<u32>]) -> impl Iterator<Item = Result<&[u32], Infallible>> {
    corpus.iter().map(|tokens| Ok(&tokens[..]))
}

pub fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Builds a table in one go.
pub fn build(path: &Path, shape: Shape, select: Select, corpus: &[Vec<u32>], seed: u64) -> Result<Counted, PlotError> {
    let mut layers = Layers::new(shape, seed);
    Builder::open(path, spec(shape, select))?.run(infallible(corpus), &mut layers, &mut go_on)
}

/// Sequences whose tokens follow no pattern, small ids the most frequent.
pub fn corpus(sequences: u64, length: usize, vocabulary: u64, seed: u64) -> Vec<Vec<u32>> {
    let draws = Draws::new(seed, Purpose::Tokens);
    let sequence = |ticket| {
        let mut stream = draws.about(ticket);
        let mut token = || {
            let (a, b) = (stream.bits() % vocabulary, stream.bits() % vocabulary);
            (a * b / vocabulary) as u32
        };
        (0..length).map(|_| token()).collect()
    };
    (0..sequences).map(sequence).collect()
}
