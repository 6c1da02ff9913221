//! What is looked up is what was encoded, put together as HMI's Eq. 2 and 3 say: against a reference in hash maps and
//! plain loops.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::common::{Layers, build, corpus};
use half::f16;
use proptest::prelude::*;
use tenantry_plot::{Batch, Context, Counters, DomainId, Engine, Node, Select, Shape, Table, Text, Tier, Tiers, Tree};

const MEMORY: Tier = Tier::Memory { locked: false };

/// A node's rows by fragment, as the paper writes `Φ_v[X]`.
type Rows = HashMap<Vec<u32>, Vec<f32>>;

/// The rows that a table of `share` of the corpus's `n`-grams has, by the plainest means.
fn rows(shape: Shape, share: f64, corpus: &[Vec<u32>], seed: u64) -> Rows {
    let n = shape.fragment_tokens as usize;
    let mut counts: HashMap<&[u32], u64> = HashMap::new();
    corpus
        .iter()
        .flat_map(|tokens| tokens.windows(n))
        .for_each(|key| *counts.entry(key).or_default() += 1);
    let all: u64 = counts.values().sum();
    let mut ranked: Vec<_> = counts.into_iter().collect();
    ranked.sort_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
    let layers = Layers::new(shape, seed);
    let mut covered = 0u64;
    let chosen = ranked.into_iter().take_while(|&(_, count)| {
        let needed = (covered as f64) < share * all as f64;
        covered += count;
        needed
    });
    chosen.map(|(key, _)| (key.to_vec(), layers.row(key))).collect()
}

/// The reference: domain, then root, then shorter fragments; sums by position; division by how many there were.
struct Reference {
    shape: Shape,
    domain: Rows,
    root: Rows,
    lengths: Vec<usize>,
}

impl Reference {
    /// Eq. 3.
    fn look_up(&self, fragment: &[u32], counters: Option<&mut Counters>) -> Option<&Vec<f32>> {
        let mut ignored = Counters::default();
        let counters = counters.unwrap_or(&mut ignored);
        if let Some(row) = self.domain.get(fragment) {
            counters.domain_hits += 1;
            return Some(row);
        }
        let row = self.root.get(fragment)?;
        counters.root_hits += 1;
        Some(row)
    }

    /// For each token of a window that is not there, the vectors that shorter fragments have for it.
    fn parts(&self, tokens: &[u32], start: usize, end: usize, longest: usize, vectors: &mut [Vec<Vec<f32>>]) {
        let Some(&n) = self.lengths.iter().filter(|&&n| n <= longest).max() else {
            return;
        };
        let d = self.shape.hidden as usize;
        for at in start..=end - n {
            match self.look_up(&tokens[at..at + n], None) {
                Some(row) => (0..n).for_each(|position| vectors[at + position].push(row[position * d..][..d].to_vec())),
                None => self.parts(tokens, at, at + n, n - 1, vectors),
            }
        }
    }

    /// Eq. 2, for a context of both sides.
    fn both(&self, tokens: &[u32], counters: &mut Counters) -> Vec<Vec<f32>> {
        let (n, d) = (self.shape.fragment_tokens as usize, self.shape.hidden as usize);
        let mut vectors = vec![Vec::new(); tokens.len()];
        let windows = if tokens.is_empty() {
            0
        } else {
            tokens.len().saturating_sub(n) + 1
        };
        for start in 0..windows {
            let end = (start + n).min(tokens.len());
            let whole = (end - start == n).then(|| self.look_up(&tokens[start..end], Some(counters))).flatten();
            if let Some(row) = whole {
                (0..n).for_each(|position| vectors[start + position].push(row[position * d..][..d].to_vec()));
                continue;
            }
            counters.fallbacks += 1;
            let mut parts = vec![Vec::new(); tokens.len()];
            self.parts(tokens, start, end, (end - start).min(n - 1), &mut parts);
            for (vectors, parts) in vectors.iter_mut().zip(parts).filter(|(_, parts)| !parts.is_empty()) {
                vectors.push(normalized_sum(&parts, d));
            }
        }
        counters.misses += vectors.iter().filter(|vectors| vectors.is_empty()).count() as u64;
        vectors.iter().map(|vectors| normalized_sum(vectors, d)).collect()
    }

    /// Of decoders: the longest fragment that ends at the token (HMI, 7.6).
    fn preceding(&self, tokens: &[u32], counters: &mut Counters) -> Vec<Vec<f32>> {
        let n = self.shape.fragment_tokens as usize;
        (1..=tokens.len())
            .map(|end| {
                let whole = (end >= n).then(|| self.look_up(&tokens[end - n..end], Some(counters))).flatten();
                if let Some(row) = whole {
                    return row.clone();
                }
                counters.fallbacks += 1;
                let mut shorter = self.lengths.iter().filter(|&&length| length < n && length <= end);
                let row = shorter.find_map(|&length| self.look_up(&tokens[end - length..end], None));
                counters.misses += u64::from(row.is_none());
                row.cloned().unwrap_or(vec![0.0; self.shape.hidden as usize])
            })
            .collect()
    }
}

fn normalized_sum(vectors: &[Vec<f32>], d: usize) -> Vec<f32> {
    let mut sum = vec![0.0f32; d];
    for vector in vectors {
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
    }
    sum.iter().map(|sum| sum / vectors.len().max(1) as f32).collect()
}

/// A tree with tables of these lengths; in the domain the longest and those below it that `domain_short` says.
fn plant(folder: &Path, shape: Shape, lengths: &[u32], domain_short: bool, tiers: Tiers) -> (Tree, Reference) {
    // The domain's corpus is another, with which the root's has some fragments in common.
    let (general, special) = (corpus(30, 20, 9, 1), corpus(12, 20, 9, 2));
    let mut reference = Reference {
        shape,
        domain: Rows::new(),
        root: Rows::new(),
        lengths: lengths.iter().map(|&n| n as usize).collect(),
    };
    for &n in lengths {
        let shape = shape.with_fragment_tokens(n);
        // Something is missing at every length, so that every way of falling back is gone.
        let share = if n == 1 { 0.97 } else { 0.6 };
        let path = Tree::stage(folder, Node::Root).unwrap().join(format!("{n}.plot"));
        build(&path, shape, Select::Coverage(share), &general, 1).unwrap();
        reference.root.extend(rows(shape, share, &general, 1));
        if n == reference.shape.fragment_tokens || domain_short {
            let path = Tree::stage(folder, Node::Domain("biology")).unwrap().join(format!("{n}.plot"));
            build(&path, shape, Select::Coverage(0.3), &special, 2).unwrap();
            reference.domain.extend(rows(shape, 0.3, &special, 2));
        }
    }
    let tree = Tree::found(folder, tiers).unwrap();
    tree.publish(Node::Domain("biology")).unwrap();
    (tree, reference)
}

/// Looks sequences up, padded with a token that would be found if it were read.
fn retrieve(tree: &Tree, threads: usize, sequences: &[Vec<u32>], domain: Option<DomainId>) -> (Vec<f32>, Counters) {
    let width = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let mut tokens = vec![0; sequences.len() * width];
    for (row, sequence) in tokens.chunks_exact_mut(width.max(1)).zip(sequences) {
        row[..sequence.len()].copy_from_slice(sequence);
    }
    let lengths: Vec<u32> = sequences.iter().map(|sequence| sequence.len() as u32).collect();
    let snapshot = tree.snapshot();
    let batch = Batch {
        tokens: &tokens,
        width,
        lengths: &lengths,
        domains: &vec![domain; sequences.len()],
    };
    let values = tokens.len() * snapshot.root().shape().hidden as usize;
    // What was in the caller's buffer before must not show.
    let mut out = vec![f32::NAN; values];
    let engine = Engine::new(threads).unwrap().always_sharing();
    let counters = engine.retrieve(&snapshot, &batch, &mut out).unwrap();
    let mut half = vec![f16::NAN; values];
    assert_eq!(
        engine.retrieve(&snapshot, &batch, &mut half).unwrap().misses,
        counters.misses
    );
    let rounded: Vec<f16> = out.iter().map(|&value| f16::from_f32(value)).collect();
    assert_eq!(half, rounded, "half precision is the single one, rounded");
    (
        out,
        Counters {
            cold_rows: 0,
            ..counters
        },
    )
}

fn agrees_with_reference(context: Context, lengths: &[u32], tiers: Tiers) {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape {
        fragment_tokens: lengths[0],
        context,
        hidden: 600,
    };
    let (tree, reference) = plant(folder.path(), shape, lengths, lengths.len() % 2 == 1, tiers);
    let mut sequences = corpus(3, 70, 10, 3);
    // Every length about the fragments', and about a block's.
    sequences.extend((0..8).chain(31..36).map(|length| corpus(1, length, 10, 40 + length as u64).remove(0)));
    let width = 70;
    for domain in [None, tree.snapshot().domain("biology")] {
        let reference = Reference {
            domain: if domain.is_some() {
                reference.domain.clone()
            } else {
                Rows::new()
            },
            root: reference.root.clone(),
            lengths: reference.lengths.clone(),
            shape,
        };
        let (out, counters) = retrieve(&tree, 1, &sequences, domain);
        let mut expected = Counters::default();
        for (sequence, out) in sequences.iter().zip(out.chunks_exact(width * 600)) {
            expected.tokens += sequence.len() as u64;
            let rows = match context {
                Context::Both => reference.both(sequence, &mut expected),
                Context::Preceding => reference.preceding(sequence, &mut expected),
            };
            for (token, (row, out)) in rows.iter().zip(out.chunks_exact(600)).enumerate() {
                let worst = row.iter().zip(out).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-6, "token {token} of {sequence:?}: {worst}");
            }
            assert!(
                out[sequence.len() * 600..].iter().all(|&value| value == 0.0),
                "padding is zero"
            );
        }
        assert_eq!(counters, expected);
        assert!(counters.root_hits > 0 && counters.fallbacks > 0, "{counters:?}");
        assert_eq!(counters.domain_hits > 0, domain.is_some());
        for threads in [2, 3] {
            assert_eq!(
                retrieve(&tree, threads, &sequences, domain),
                (out.clone(), counters),
                "{threads} threads"
            );
        }
        for (first, threads) in [(0, 1), (1, 2), (2, 1), (33, 3), (69, 1), (90, 2)] {
            let texts = sequences.iter().map(|tokens| Text { tokens, first, domain });
            let texts: Vec<Text> = texts.collect();
            let wanted = texts.iter().map(Text::wanted).sum::<usize>();
            let mut ends = vec![0f32; wanted * 600];
            let engine = Engine::new(threads).unwrap().always_sharing();
            let met = engine.retrieve_ends(&tree.snapshot(), &texts, &mut ends).unwrap();
            let whole = out.chunks_exact(width * 600).zip(&texts);
            let expected: Vec<f32> = whole
                .flat_map(|(row, text)| &row[600 * first.min(text.tokens.len())..600 * text.tokens.len()])
                .copied()
                .collect();
            assert!(ends == expected, "from token {first} on, {threads} threads");
            assert_eq!(met.tokens, wanted as u64);
        }
    }
}

#[test]
fn trigrams_with_both_fallbacks() {
    let tiers = Tiers {
        root: MEMORY,
        domains: MEMORY,
    };
    agrees_with_reference(Context::Both, &[3, 2, 1], tiers);
}

#[test]
fn trigrams_on_disk_and_domains_in_memory() {
    let tiers = Tiers {
        root: Tier::Disk,
        domains: MEMORY,
    };
    agrees_with_reference(Context::Both, &[3, 1], tiers);
}

#[test]
fn five_grams_on_disk() {
    let tiers = Tiers {
        root: Tier::Disk,
        domains: Tier::Disk,
    };
    agrees_with_reference(Context::Both, &[5, 2, 1], tiers);
}

#[test]
fn a_decoder_s_trigrams() {
    let tiers = Tiers {
        root: MEMORY,
        domains: Tier::Disk,
    };
    agrees_with_reference(Context::Preceding, &[3, 2, 1], tiers);
    agrees_with_reference(Context::Preceding, &[5, 2], tiers);
}

/// "PLOT with fragments as long as the input equals the lower layers": the row itself, bit for bit.
#[test]
fn fragments_as_long_as_the_input_give_the_row_itself() {
    for length in [1, 2, 7, 40] {
        for context in [Context::Both, Context::Preceding] {
            let folder = tempfile::tempdir().unwrap();
            let shape = Shape {
                fragment_tokens: length,
                context,
                hidden: 24,
            };
            let texts = corpus(4, length as usize, 50, 5);
            // With preceding context each token's fragment is its whole prefix: a table for every length.
            let shortest = if context == Context::Both { length } else { 1 };
            let mut expected = vec![Vec::new(); texts.len()];
            for n in shortest..=length {
                let shape = shape.with_fragment_tokens(n);
                let prefixes: Vec<Vec<u32>> = texts.iter().map(|text| text[..n as usize].to_vec()).collect();
                let path = Tree::stage(folder.path(), Node::Root).unwrap().join(format!("{n}.plot"));
                build(&path, shape, Select::All, &prefixes, 1).unwrap();
                for (expected, prefix) in expected.iter_mut().zip(&prefixes) {
                    expected.extend(Layers::new(shape, 1).row(prefix));
                }
            }
            let tree = Tree::found(
                folder.path(),
                Tiers {
                    root: MEMORY,
                    domains: MEMORY,
                },
            )
            .unwrap();
            let (out, counters) = retrieve(&tree, 1, &texts, None);
            assert_eq!(out, expected.concat());
            assert_eq!(counters.misses, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A table is the hash map from its fragments to their rows, in either tier, and nothing else.
    #[test]
    fn a_table_is_a_hash_map(
        corpus in prop::collection::vec(prop::collection::vec(0..8u32, 0..30), 0..12),
        fragment_tokens in 1..4u32,
        hidden in 1..40u32,
        share in 0.0..=1.0f64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.plot");
        let shape = Shape { fragment_tokens, context: Context::Both, hidden };
        let counted = build(&path, shape, Select::Coverage(share), &corpus, 1).unwrap();
        let expected = rows(shape, share, &corpus, 1);
        prop_assert_eq!(counted.fragments, expected.len() as u64);
        for tier in [MEMORY, Tier::Disk] {
            let table = Table::open(&path, tier).unwrap();
            table.verify().unwrap();
            prop_assert_eq!(table.file_bytes(), std::fs::metadata(&path).unwrap().len());
            let fragments: HashSet<Vec<u32>> = table.fragments().map(|(key, _)| key.to_vec()).collect();
            prop_assert_eq!(fragments, expected.keys().cloned().collect::<HashSet<_>>());
            for id in 0..8u32.pow(fragment_tokens) {
                let key: Vec<u32> = (0..fragment_tokens).map(|at| id / 8u32.pow(at) % 8).collect();
                let row = table.get(&key).unwrap();
                let row: Option<Vec<f32>> = row.map(|row| row.iter().map(|value| value.to_f32()).collect());
                prop_assert_eq!(row.as_ref(), expected.get(&key));
            }
        }
    }
}

/// The most frequent fragments come first, so that rows in use lie together.
#[test]
fn rows_are_in_order_of_frequency() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.plot");
    let texts = vec![vec![5, 5, 5, 9, 9, 1, 2]];
    build(
        &path,
        Shape::trigrams(4).with_fragment_tokens(1),
        Select::MostFrequent(3),
        &texts,
        1,
    )
    .unwrap();
    let table = Table::open(&path, Tier::Disk).unwrap();
    let mut fragments: Vec<(u32, u32)> = table.fragments().map(|(key, ordinal)| (ordinal, key[0])).collect();
    fragments.sort();
    assert_eq!(fragments, [(0, 5), (1, 9), (2, 1)]);
    assert_eq!(
        (
            table.counted().distinct,
            table.counted().occurrences,
            table.counted().covered
        ),
        (4, 7, 6)
    );
}
