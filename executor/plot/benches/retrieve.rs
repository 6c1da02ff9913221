//! What a look-up costs at BERT's width: from memory and from the page cache, into single and half precision, whole and
//! by fallback. Each benchmark prints a digest of what it computes, so that a faster look-up is seen to compute the
//! same.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use half::slice::HalfFloatSliceExt;
use tenantry_plot::{
    Batch, BuildSpec, Builder, Cause, Encode, Engine, Node, Select, Shape, Snapshot, Tier, Tiers, Tree, Value,
};
use tenantry_traces::draw::{Draws, Purpose};

const HIDDEN: u32 = 768;
const WIDTH: usize = 128;
const BATCH: usize = 8;
/// Few enough for a laptop's disk (300 MB), many enough that rows do not stay in the processor's caches.
const SEQUENCES: u64 = 512;

fn corpus() -> Vec<Vec<u32>> {
    let draws = Draws::new(1, Purpose::Tokens);
    let sequence = |ticket| {
        let mut stream = draws.about(ticket);
        (0..WIDTH).map(|_| (stream.bits() % 5_000) as u32).collect()
    };
    (0..SEQUENCES).map(sequence).collect()
}

struct Pattern(Shape);

impl Encode for Pattern {
    fn name(&self) -> &str {
        "pattern"
    }

    fn encode(&mut self, fragments: &[u32], rows: &mut [f32]) -> Result<(), Cause> {
        let fragments = fragments.chunks_exact(self.0.fragment_tokens as usize);
        for (fragment, row) in fragments.zip(rows.chunks_exact_mut(self.0.row_values())) {
            row.iter_mut()
                .enumerate()
                .for_each(|(at, value)| *value = ((fragment[0] as usize + at) % 97) as f32);
        }
        Ok(())
    }
}

fn plant(folder: &Path, corpus: &[Vec<u32>], lengths: &[u32], tier: Tier) -> Tree {
    for &n in lengths {
        let shape = Shape::trigrams(HIDDEN).with_fragment_tokens(n);
        let spec = BuildSpec {
            shape,
            select: Select::All,
            chunk_fragments: 1024,
            memory_bytes: 1 << 28,
        };
        let path = Tree::stage(folder, Node::Root).expect("a folder").join(format!("{n}.plot"));
        // The trigrams are of the first half, so that the second has none.
        let counted = &corpus[..if n == 3 { corpus.len() / 2 } else { corpus.len() }];
        let sequences = counted.iter().map(|tokens| Ok::<_, Cause>(&tokens[..]));
        let builder = Builder::open(path, spec).expect("a folder");
        builder
            .run(sequences, &mut Pattern(shape), &mut |_| ControlFlow::Continue(()))
            .expect("room on the disk");
    }
    Tree::found(
        folder,
        Tiers {
            root: tier,
            domains: tier,
        },
    )
    .expect("just built")
}

fn bench<V: Value + Default>(
    criterion: &mut Criterion,
    name: &str,
    tree: &Snapshot,
    texts: &[Vec<u32>],
    digest: impl Fn(&V) -> u64,
) {
    let engine = Engine::new(1).expect("one thread");
    let batches: Vec<Vec<u32>> = texts.chunks_exact(BATCH).map(|texts| texts.concat()).collect();
    let mut out = vec![V::default(); BATCH * WIDTH * HIDDEN as usize];
    let mut next = batches.iter().cycle();
    let mut once = |out: &mut [V]| {
        let batch = Batch {
            tokens: black_box(next.next().expect("a cycle has no end")),
            width: WIDTH,
            lengths: &[WIDTH as u32; BATCH],
            domains: &[None; BATCH],
        };
        engine.retrieve(tree, &batch, out).expect("nothing is amiss")
    };
    let counters = once(&mut out);
    let sum: u64 = out.iter().map(digest).fold(0, u64::wrapping_add);
    println!(
        "{name}: {} whole, {} by fallback, digest {sum}",
        counters.root_hits, counters.fallbacks
    );
    criterion
        .benchmark_group("retrieve")
        .throughput(Throughput::Elements((BATCH * WIDTH) as u64))
        .measurement_time(Duration::from_secs(4))
        .bench_function(name, |bencher| bencher.iter(|| once(&mut out)));
}

fn retrieve(criterion: &mut Criterion) {
    let corpus = corpus();
    let (whole, fallback) = corpus.split_at(corpus.len() / 2);
    let folder = tempfile::tempdir().expect("a folder");
    let memory = plant(folder.path(), &corpus, &[3, 1], Tier::Memory { locked: false }).snapshot();
    let tiers = Tiers {
        root: Tier::Disk,
        domains: Tier::Disk,
    };
    let disk = Tree::open(folder.path(), tiers).expect("just built").snapshot();
    let single = |value: &f32| u64::from(value.to_bits());
    let half = |value: &f16| u64::from(value.to_bits());
    bench(criterion, "memory into f32", &memory, whole, single);
    bench(criterion, "memory into f16", &memory, whole, half);
    bench(criterion, "page cache into f32", &disk, whole, single);
    bench(
        criterion,
        "fallback to unigrams, memory into f32",
        &memory,
        fallback,
        single,
    );
}

/// Why rows are converted by `half` a slice at a time (F16C), and not value by value.
fn convert(criterion: &mut Criterion) {
    let values: Vec<f16> = (0..HIDDEN * 3).map(|at| f16::from_f32(at as f32 / 7.0)).collect();
    let mut out = vec![0.0f32; values.len()];
    let mut group = criterion.benchmark_group("convert a row");
    group.throughput(Throughput::Elements(values.len() as u64));
    group.bench_function("slice", |bencher| {
        bencher.iter(|| black_box(&values[..]).convert_to_f32_slice(&mut out))
    });
    group.bench_function("value by value", |bencher| {
        bencher.iter(|| out.iter_mut().zip(black_box(&values)).for_each(|(out, value)| *out = value.to_f32()));
    });
}

criterion_group!(benches, retrieve, convert);
criterion_main!(benches);
