//! Builds a table of millions of synthetic trigrams and measures it: rates of counting and encoding, bytes a fragment
//! against the least possible, look-ups a second and thread from memory, from the page cache and from the disk.
//!
//! ```text
//! cargo run --release -p tenantry-plot --example plot_scale -- [FRAGMENTS] [HIDDEN] [FOLDER]
//! ```
//!
//! The layers are a stand-in that costs little, so that the rates are the builder's own. An interrupted run goes on
//! where it stopped.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use tenantry_plot::{
    Batch, BuildSpec, Builder, Cause, Counters, Encode, Engine, Node, PlotError, Progress, Select, Shape, Snapshot,
    Table, Tier, Tiers, Tree, storage,
};
use tenantry_traces::draw::{Draws, Purpose};

const VOCABULARY: usize = 30_522;
const SEQUENCE_TOKENS: usize = 128;
const BATCH: usize = 32;
/// Tokens of corpus for each distinct trigram asked for; some trigrams are left over.
const TOKENS_A_FRAGMENT: usize = 4;
/// Of what follows a token. Of all tokens as they come, trigrams are then about as often repeated as in text.
const ZIPF_EXPONENT: f64 = 1.4;
const SEED: u64 = 7;

/// Sequences in which each token has its own order of successors, which are drawn by Zipf's law.
struct Corpus {
    /// Cumulated shares of the successors, of 2³².
    shares: Vec<u64>,
    draws: Draws,
}

impl Corpus {
    fn new() -> Corpus {
        let share = |rank: usize| (rank as f64).powf(-ZIPF_EXPONENT);
        let all: f64 = (1..=VOCABULARY).map(share).sum();
        let mut sum = 0.0;
        let shares = (1..=VOCABULARY).map(|rank| {
            sum += share(rank);
            (sum / all * (1u64 << 32) as f64) as u64
        });
        Corpus {
            shares: shares.collect(),
            draws: Draws::new(SEED, Purpose::Tokens),
        }
    }

    fn sequence(&self, ticket: usize) -> Vec<u32> {
        let mut stream = self.draws.about(ticket as u64);
        let mut token = 0u32;
        let mut next = || {
            let draw = stream.bits() >> 32;
            let rank = self.shares.partition_point(|&share| share <= draw) as u32;
            token = rank.wrapping_add(token).wrapping_mul(0x9e37_79b1) % VOCABULARY as u32;
            token
        };
        (0..SEQUENCE_TOKENS).map(|_| next()).collect()
    }
}

/// A row is a pattern that its tokens choose.
struct Pattern {
    shape: Shape,
    name: String,
}

impl Encode for Pattern {
    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        let fragments = fragments.chunks_exact(self.shape.fragment_tokens as usize);
        for (fragment, row) in fragments.zip(rows.chunks_exact_mut(self.shape.row_values())) {
            let mut state = fragment.iter().fold(1u32, |state, &token| (state ^ token).wrapping_mul(0x9e37_79b1));
            for value in row {
                state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
                *value = (state >> 20) as f32 / 1024.0 - 2.0;
            }
        }
        Ok(())
    }
}

fn build(path: &Path, shape: Shape, select: Select, corpus: &Corpus, sequences: usize) -> Result<(), PlotError> {
    if path.exists() {
        println!("{}: there already", path.display());
        return Ok(());
    }
    let spec = BuildSpec {
        shape,
        select,
        chunk_fragments: storage::CHUNK_FRAGMENTS,
        memory_bytes: 1 << 30,
    };
    let mut layers = Pattern {
        shape,
        name: format!("pattern of {} positions", shape.positions()),
    };
    let mut go_on = |_: Progress| ControlFlow::Continue(());
    let mut builder = Builder::open(path, spec)?;
    let begin = Instant::now();
    builder.count(
        (0..sequences).map(|ticket| Ok::<_, Infallible>(corpus.sequence(ticket))),
        &mut go_on,
    )?;
    let counting_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let counted = builder.encode(&mut layers, &mut go_on)?;
    let encoding_s = begin.elapsed().as_secs_f64();
    println!(
        "{}: {} of {} distinct fragments, {:.1} % of {} occurrences",
        path.display(),
        counted.fragments,
        counted.distinct,
        100.0 * counted.covered as f64 / counted.occurrences as f64,
        counted.occurrences,
    );
    println!(
        "  counted and chosen in {counting_s:.1} s ({:.2} million tokens/s), encoded, indexed and synced in \
         {encoding_s:.1} s ({:.2} million fragments/s)",
        (sequences * SEQUENCE_TOKENS) as f64 / counting_s / 1e6,
        counted.fragments as f64 / encoding_s / 1e6,
    );
    Ok(())
}

/// Sequences to look up, in batches.
struct Load {
    batches: Vec<Vec<u32>>,
}

impl Load {
    fn new(corpus: &Corpus, batches: usize, ticket: impl Fn(usize) -> usize) -> Load {
        let batch = |batch: usize| (0..BATCH).flat_map(|at| corpus.sequence(ticket(batch * BATCH + at))).collect();
        Load {
            batches: (0..batches).map(batch).collect(),
        }
    }

    /// Looks everything up once; prints the rate, and a digest that no change for speed may change.
    fn measure(&self, what: &str, tree: &Snapshot, threads: usize) -> Result<(), PlotError> {
        let engine = Engine::new(threads)?;
        let hidden = tree.root().shape().hidden as usize;
        let mut out = vec![0.0f32; BATCH * SEQUENCE_TOKENS * hidden];
        let mut digest = 0u64;
        let mut total = Counters::default();
        let mut seconds = 0.0;
        for tokens in &self.batches {
            let batch = Batch {
                tokens,
                width: SEQUENCE_TOKENS,
                lengths: &[SEQUENCE_TOKENS as u32; BATCH],
                domains: &[None; BATCH],
            };
            let begin = Instant::now();
            let counters = engine.retrieve(tree, &batch, &mut out)?;
            seconds += begin.elapsed().as_secs_f64();
            total.tokens += counters.tokens;
            total.root_hits += counters.root_hits;
            total.fallbacks += counters.fallbacks;
            total.cold_rows += counters.cold_rows;
            for value in &out {
                digest = digest.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(value.to_bits());
            }
        }
        let fragments = total.root_hits + total.fallbacks;
        println!(
            "  {what}, {threads} threads: {:.0} fragments/s a thread, {:.1} µs a sequence of {SEQUENCE_TOKENS}; {:.1} \
             % found whole, {} rows cold; digest {digest:016x}",
            fragments as f64 / seconds / threads as f64,
            1e6 * seconds / (self.batches.len() * BATCH) as f64,
            100.0 * total.root_hits as f64 / fragments as f64,
            total.cold_rows,
        );
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let fragments: u64 = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let hidden: u32 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let folder = arguments.next().unwrap_or("plot_scale".into());
    let folder = Path::new(&folder);

    let corpus = Corpus::new();
    let sequences = (fragments as usize * TOKENS_A_FRAGMENT).div_ceil(SEQUENCE_TOKENS - 2);
    let shape = Shape::trigrams(hidden);
    if !folder.join("root/CURRENT").exists() {
        let staged = Tree::stage(folder, Node::Root)?;
        for (n, select) in [
            (1, Select::All),
            (2, Select::MostFrequent(fragments / 5)),
            (3, Select::MostFrequent(fragments)),
        ] {
            build(
                &staged.join(format!("{n}.plot")),
                shape.with_fragment_tokens(n),
                select,
                &corpus,
                sequences,
            )?;
        }
        Tree::found(
            folder,
            Tiers {
                root: Tier::Disk,
                domains: Tier::Disk,
            },
        )?;
    }

    let begin = Instant::now();
    let disk = Tree::open(
        folder,
        Tiers {
            root: Tier::Disk,
            domains: Tier::Disk,
        },
    )?
    .snapshot();
    let open_s = begin.elapsed().as_secs_f64();
    let table = &disk.root().tables()[0];
    let (bytes, least) = (
        table.file_bytes(),
        storage::minimum_bytes(&shape, table.counted().fragments),
    );
    let a_fragment = |bytes: u64| bytes as f64 / table.counted().fragments as f64;
    println!(
        "{}: {bytes} bytes, {:.2} a fragment; key and row are {} (+{:.2} %); {:.2} in memory on the disk tier",
        table.path().display(),
        a_fragment(bytes),
        a_fragment(least),
        100.0 * (bytes as f64 / least as f64 - 1.0),
        a_fragment(table.resident_bytes()),
    );
    println!("  opened in {open_s:.2} s on the disk tier (header and index verified, for all three tables)");
    let begin = Instant::now();
    disk.root().tables().iter().try_for_each(Table::verify)?;
    println!("  verified in full in {:.1} s", begin.elapsed().as_secs_f64());

    // Of the corpus that was counted, and of more like it. Each is looked up cold once: what one batch read is warm for
    // the next.
    let seen = Load::new(&corpus, 100, |index| index * 7919 % sequences);
    let unseen = Load::new(&corpus, 100, |index| sequences + index);
    for (what, load) in [("seen", &seen), ("unseen", &unseen)] {
        println!("{what} sequences, batches of {BATCH}, sums in f32:");
        for threads in [1, 2] {
            disk.root().tables().iter().try_for_each(Table::drop_page_cache)?;
            load.measure("disk, cold", &disk, threads)?;
            load.measure("disk, warm", &disk, threads)?;
        }
    }
    drop(disk);
    let begin = Instant::now();
    let tier = Tier::Memory { locked: false };
    let memory = Tree::open(
        folder,
        Tiers {
            root: tier,
            domains: tier,
        },
    )?
    .snapshot();
    println!(
        "loaded into memory and verified in {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    for (what, load) in [("seen", &seen), ("unseen", &unseen)] {
        println!("{what} sequences, batches of {BATCH}, sums in f32:");
        for threads in [1, 2] {
            load.measure("memory, first", &memory, threads)?;
            load.measure("memory, again", &memory, threads)?;
        }
    }
    Ok(())
}
