//! Points of look-ups in tables of precomputed representations, from drawing token ids to sums in host memory.
//!
//! What a look-up takes depends on how wide rows are and on which tables have them, not on the numbers in them: tables are built from the
//! corpus that serving builds them from, with rows that no layer computed.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenantry_core::spec::PlotSpec;
use tenantry_plot::Engine;
use tenantry_profiles::{ModelKind, ModelShape, PlotLookupRow, Tables as Rows, Tier};

use super::Suite;
use super::schedule::{Measure, Point};
use crate::error::ExecutorError;
use crate::plot::{Language, Tables};

/// Threads that share a batch's look-ups, as far as there are cores.
const THREADS: [u32; 4] = [1, 2, 4, 8];
/// Tokens of a batch.
const TOKENS: [u32; 6] = [8, 32, 128, 512, 2048, 8192];
/// Of a decoder's step: up to as many as it has sequences, and then prompts.
const STEP_TOKENS: [u32; 6] = [1, 8, 32, 128, 512, 2048];
/// Tokens of a step at which it is no longer one of each sequence.
const PROMPT_TOKENS: u32 = 128;
/// Tokens of each text, where a batch has as many.
const TEXT_TOKENS: u32 = 32;
/// Of the batch that is looked up beside computation.
const TOKENS_BESIDE: u32 = 512;
/// HMI's default fragments, and its α of 50 %.
const PLOT: PlotSpec = PlotSpec {
    lower_layers: 1,
    fragment_tokens: 3,
    threads: 1,
    tier: Tier::Memory,
    domain_hits_ppm: 500_000,
    fallbacks_ppm: 0,
    domain_bytes: 0,
};

/// A model's tables on both tiers.
pub(crate) struct LookupSubject {
    model: String,
    kind: ModelKind,
    memory: Tables,
    /// The root's alone, since domains' tables lie in memory.
    disk: Tables,
    engines: Vec<(u32, Engine)>,
    /// Removed when dropped.
    _folder: TempDir,
}

impl LookupSubject {
    /// Tables of a model's width, in a folder of their own in `scratch`.
    pub fn new(shape: &ModelShape, seed: u64, scratch: &Path) -> Result<LookupSubject, ExecutorError> {
        let file_error = |source| ExecutorError::File {
            path: scratch.to_path_buf(),
            source,
        };
        let folder = tempfile::Builder::new()
            .prefix("tenantry-profile-plot-")
            .tempdir_in(scratch)
            .map_err(file_error)?;
        let tables = |tier| {
            let language = Language::new(seed, shape.vocabulary);
            let plot = PlotSpec { tier, ..PLOT };
            Tables::with_encoder(
                folder.path(),
                &shape.name,
                shape,
                &plot,
                language,
                &mut |_, fragments: &[u32], rows: &mut [f32]| pattern(shape.hidden as usize, fragments, rows),
                &mut |_| {},
            )
        };
        let cores = crate::host::cores();
        let engines = THREADS.into_iter().filter(|&threads| threads == 1 || threads <= cores);
        Ok(LookupSubject {
            model: shape.name.clone(),
            kind: shape.kind,
            memory: tables(Tier::Memory)?,
            disk: tables(Tier::Disk)?.without_domains(),
            engines: engines
                .map(|threads| Ok((threads, Engine::new(threads as usize)?)))
                .collect::<Result<_, ExecutorError>>()?,
            _folder: folder,
        })
    }

    /// All points.
    pub fn points(&self, suite: Suite) -> Vec<Point<'_>> {
        let largest = match suite {
            Suite::Quick => 2048,
            Suite::Full => 8192,
        };
        let all = match self.kind {
            ModelKind::Encoder => TOKENS,
            ModelKind::Decoder => STEP_TOKENS,
        };
        let mut points = Vec::new();
        for (tier, tables) in [(Tier::Memory, &self.memory), (Tier::Disk, &self.disk)] {
            for &(threads, ref engine) in &self.engines {
                for tokens in all.into_iter().filter(|&tokens| tokens <= largest) {
                    let model = self.model.clone();
                    let record = move |rows: &mut Rows, stats| {
                        rows.plot_lookup.push(PlotLookupRow {
                            model: model.clone(),
                            tier,
                            threads,
                            tokens,
                            stats,
                        });
                    };
                    let table = format!("plot_lookup of {}, {tier}", self.model);
                    points.push(Point::new(table, self.measure(tables, engine, tokens), record));
                }
            }
        }
        points
    }

    /// Measures look-ups by one thread in memory.
    pub fn beside(&self) -> Measure<'_> {
        let (_, engine) = &self.engines[0];
        self.measure(&self.memory, engine, TOKENS_BESIDE)
    }

    fn measure<'a>(&self, tables: &'a Tables, engine: &'a Engine, tokens: u32) -> Measure<'a> {
        match self.kind {
            ModelKind::Encoder => Box::new(measure(tables, engine, tokens)),
            ModelKind::Decoder => Box::new(measure_step(tables, engine, tokens)),
        }
    }
}

/// Measures a batch of texts, at each call of others.
fn measure<'a>(
    tables: &'a Tables,
    engine: &'a Engine,
    tokens: u32,
) -> impl FnMut() -> Result<Duration, ExecutorError> + 'a {
    let width = tokens.min(TEXT_TOKENS);
    let texts = tokens / width;
    let mut out = vec![0.0; tokens as usize * tables.hidden()];
    let mut ticket = 0;
    move || {
        let start = Instant::now();
        let requests = (0..texts).map(|row| (ticket + u64::from(row), row, width));
        tables.retrieve(engine, requests, width as usize, &mut out)?;
        ticket += u64::from(texts);
        Ok(start.elapsed())
    }
}

/// Measures what a decoder's step looks up, at each call of other texts: a token of each of many, or prompts whole.
fn measure_step<'a>(
    tables: &'a Tables,
    engine: &'a Engine,
    tokens: u32,
) -> impl FnMut() -> Result<Duration, ExecutorError> + 'a {
    let before = tables.fragment_tokens() as u32 - 1;
    let (texts, length, first) = match tokens {
        prompts @ PROMPT_TOKENS.. => (prompts / PROMPT_TOKENS, PROMPT_TOKENS, 0),
        sequences => (sequences, before + 1, before),
    };
    let mut out = vec![0.0; tokens as usize * tables.hidden()];
    let mut ticket = 0;
    move || {
        let start = Instant::now();
        let prompts: Vec<Vec<u32>> = (0..texts)
            .map(|row| tables.prompt(ticket + u64::from(row), row, length).collect())
            .collect();
        let of = prompts
            .iter()
            .zip(0..)
            .map(|(prompt, row)| (row, prompt.as_slice(), first as usize));
        let of: Vec<(u32, &[u32], usize)> = of.collect();
        tables.retrieve_ends(engine, &of, &mut out)?;
        ticket += u64::from(texts);
        Ok(start.elapsed())
    }
}

/// Rows of numbers as large as hidden states: a vector for each token of a fragment or, for a decoder, for its last.
fn pattern(hidden: usize, fragments: &[u32], rows: &mut [f32]) -> Result<(), tenantry_plot::Cause> {
    let vectors = rows.len() / hidden;
    let last = fragments.len() / vectors - 1;
    let tokens = fragments.iter().skip(last).step_by(last + 1);
    for (&token, vector) in tokens.zip(rows.chunks_exact_mut(hidden)) {
        let mut state = token;
        for value in vector {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            *value = (state >> 20) as f32 / 1024.0 - 2.0;
        }
    }
    Ok(())
}
