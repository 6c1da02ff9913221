//! Exact counts of a corpus's fragments in bounded memory, and the choice of those that a table holds.

use std::io;
use std::path::{Path, PathBuf};

use crate::slots::{Slots, slots_for};
use crate::sorter::{Merge, Sorter};

/// Which of a corpus's fragments a table holds; the most frequent first, ties by token ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Select {
    /// All of them: HMI's α = 100 %, and its root table.
    All,
    /// The fewest most frequent ones that cover this share, from 0 to 1, of *occurrences*: HMI's α. (5.1 reads as a
    /// share of the distinct fragments; 7.7 and Table 5 make it one of occurrences: 0.4 % of the trigrams are α = 50
    /// %.)
    Coverage(f64),
    /// So many.
    MostFrequent(u64),
}

impl Select {
    /// What a root table holds if so many parts of a million of the occurrences, the rarest, are to fall back to
    /// shorter fragments.
    pub fn of_root(fallbacks_ppm: u32) -> Select {
        Select::parts(1_000_000_u32.saturating_sub(fallbacks_ppm))
    }

    /// What a domain's own table holds if it is to answer so many parts of a million of its look-ups; nothing where the
    /// root answers all.
    pub fn of_domain(domain_hits_ppm: u32) -> Option<Select> {
        (domain_hits_ppm > 0).then(|| Select::parts(domain_hits_ppm))
    }

    /// The most frequent fragments that cover so many parts of a million of all occurrences.
    fn parts(ppm: u32) -> Select {
        match ppm {
            1_000_000.. => Select::All,
            _ => Select::Coverage(f64::from(ppm) / 1e6),
        }
    }
}

/// What was counted, and what was chosen of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Fragments chosen.
    pub fragments: u64,
    /// Distinct fragments in the corpus.
    pub distinct: u64,
    /// Occurrences of any fragment.
    pub occurrences: u64,
    /// Occurrences of those chosen.
    pub covered: u64,
}

/// Memory for counting a corpus; those of generated languages take far less.
pub const COUNTING_BYTES: usize = 256 << 20;

/// Counts in memory, and spills sorted counts where they grow beyond it.
pub(crate) struct Counter {
    fragment_tokens: usize,
    folder: PathBuf,
    memory_bytes: usize,
    /// Distinct fragments at which the counts in memory are spilled.
    fragments_max: usize,
    slots: Slots,
    /// Slots filled at which they are doubled.
    fill_max: usize,
    counts: Vec<u64>,
    sorter: Sorter,
}

const FILL_FIRST: usize = 1 << 12;

impl Counter {
    /// A counter of fragments of so many tokens that takes about `memory_bytes` and spills into `folder`.
    pub(crate) fn new(folder: &Path, fragment_tokens: usize, memory_bytes: usize) -> io::Result<Counter> {
        let record_bytes = 4 * fragment_tokens + 8;
        // A quarter sorts what the other three count: a slot, an empty third of one, a count, and the half that
        // doubling copies.
        let counting_bytes = 2 * (4 * fragment_tokens + 4) + 16;
        let fragments_max = (memory_bytes / 4 * 3 / counting_bytes).clamp(16, 1 << 31);
        let fill_max = fragments_max.min(FILL_FIRST);
        Ok(Counter {
            fragment_tokens,
            folder: folder.to_path_buf(),
            memory_bytes,
            fragments_max,
            slots: Slots::new(fragment_tokens, slots_for(fill_max as u64))?,
            fill_max,
            counts: Vec::new(),
            sorter: Sorter::new(folder, record_bytes, memory_bytes / 4),
        })
    }

    /// Counts the fragments of a sequence; one shorter than a fragment has none.
    pub(crate) fn push(&mut self, tokens: &[u32]) -> io::Result<()> {
        for key in tokens.windows(self.fragment_tokens) {
            if self.counts.len() == self.fill_max {
                self.make_room()?;
            }
            let ordinal = self.slots.find_or_insert(key, self.counts.len() as u32) as usize;
            match self.counts.get_mut(ordinal) {
                Some(count) => *count += 1,
                None => self.counts.push(1),
            }
        }
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        if self.fill_max == self.fragments_max {
            return self.spill();
        }
        self.fill_max = (2 * self.fill_max).min(self.fragments_max);
        let mut slots = Slots::new(self.fragment_tokens, slots_for(self.fill_max as u64))?;
        for (key, ordinal) in self.slots.iter() {
            slots.find_or_insert(key, ordinal);
        }
        self.slots = slots;
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut record = Vec::new();
        for (key, ordinal) in self.slots.iter() {
            record.clear();
            // Big-endian, so that records in the order of bytes are in the order of keys.
            record.extend(key.iter().flat_map(|token| token.to_be_bytes()));
            record.extend(self.counts[ordinal as usize].to_be_bytes());
            self.sorter.push(&record)?;
        }
        self.slots.bytes_mut().fill(0);
        self.counts.clear();
        Ok(())
    }

    /// Hands the chosen fragments to `keep`, the most frequent first.
    pub(crate) fn select(
        mut self,
        select: Select,
        mut keep: impl FnMut(&[u32]) -> io::Result<()>,
    ) -> io::Result<Counted> {
        self.spill()?;
        let mut counted = Counted::default();
        let mut ranked = self.rank(&mut counted)?;
        let enough = |counted: &Counted| match select {
            Select::All => false,
            Select::Coverage(share) => counted.covered as f64 >= share * counted.occurrences as f64,
            Select::MostFrequent(fragments) => counted.fragments >= fragments,
        };
        let mut key = vec![0; self.fragment_tokens];
        while !enough(&counted)
            && let Some(record) = ranked.next()?
        {
            let (count, tokens) = record.split_at(8);
            for (token, bytes) in key.iter_mut().zip(tokens.chunks_exact(4)) {
                *token = u32::from_be_bytes(bytes.try_into().expect("four bytes"));
            }
            counted.fragments += 1;
            counted.covered += !u64::from_be_bytes(count.try_into().expect("eight bytes"));
            keep(&key)?;
        }
        Ok(counted)
    }

    /// Adds up what was spilled of each key, and sorts by count.
    fn rank(&mut self, counted: &mut Counted) -> io::Result<Merge> {
        let key_bytes = 4 * self.fragment_tokens;
        let spilled = std::mem::replace(
            &mut self.sorter,
            Sorter::new(&self.folder, key_bytes + 8, self.memory_bytes / 2),
        );
        // What counting took is free for sorting.
        self.slots = Slots::new(self.fragment_tokens, 1)?;
        let mut by_key = spilled.finish()?;
        let mut key: Vec<u8> = Vec::new();
        let mut count = 0u64;
        loop {
            let next = by_key.next()?;
            if let Some((next_key, next_count)) = next.map(|record| record.split_at(key_bytes))
                && next_key == key
            {
                count += u64::from_be_bytes(next_count.try_into().expect("eight bytes"));
                continue;
            }
            if count > 0 {
                counted.distinct += 1;
                counted.occurrences += count;
                // Complemented, so that the most frequent come first.
                let mut record = (!count).to_be_bytes().to_vec();
                record.extend(&key);
                self.sorter.push(&record)?;
            }
            let Some(record) = next else { break };
            let (next_key, next_count) = record.split_at(key_bytes);
            key.clear();
            key.extend(next_key);
            count = u64::from_be_bytes(next_count.try_into().expect("eight bytes"));
        }
        let empty = Sorter::new(&self.folder, key_bytes + 8, 0);
        std::mem::replace(&mut self.sorter, empty).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The chosen fragments, by the plainest means.
    fn reference(corpus: &[Vec<u32>], n: usize, share: f64) -> Vec<Vec<u32>> {
        let mut counts: HashMap<&[u32], u64> = HashMap::new();
        corpus
            .iter()
            .flat_map(|tokens| tokens.windows(n))
            .for_each(|key| *counts.entry(key).or_default() += 1);
        let all: u64 = counts.values().sum();
        let mut ranked: Vec<_> = counts.into_iter().collect();
        ranked.sort_by_key(|&(key, count)| (std::cmp::Reverse(count), key));
        let mut covered = 0;
        ranked
            .into_iter()
            .take_while(|&(_, count)| {
                let needed = (covered as f64) < share * all as f64;
                covered += count;
                needed
            })
            .map(|(key, _)| key.to_vec())
            .collect()
    }

    proptest! {
        #[test]
        fn chooses_what_a_hash_map_does(
            corpus in prop::collection::vec(prop::collection::vec(0..6u32, 0..40), 0..20),
            n in 1..5usize,
            share in 0.0..=1.0f64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            // So little memory that it spills again and again.
            for memory_bytes in [0, 1 << 20] {
                let mut counter = Counter::new(folder.path(), n, memory_bytes).unwrap();
                corpus.iter().for_each(|tokens| counter.push(tokens).unwrap());
                let mut chosen = Vec::new();
                let counted = counter
                    .select(Select::Coverage(share), |key| { chosen.push(key.to_vec()); Ok(()) })
                    .unwrap();
                prop_assert_eq!(&chosen, &reference(&corpus, n, share));
                prop_assert_eq!(counted.fragments, chosen.len() as u64);
                prop_assert_eq!(counted.distinct, reference(&corpus, n, 2.0).len() as u64);
                prop_assert!(counted.covered as f64 >= share * counted.occurrences as f64);
            }
        }
    }

    #[test]
    fn coverage_is_of_occurrences_and_not_of_distinct_fragments() {
        let folder = tempfile::tempdir().unwrap();
        let mut counter = Counter::new(folder.path(), 1, 1 << 20).unwrap();
        counter.push(&[7, 7, 7, 7, 7, 1, 2, 3, 4, 5]).unwrap();
        let mut chosen = Vec::new();
        let counted = counter
            .select(Select::Coverage(0.5), |key| {
                chosen.push(key[0]);
                Ok(())
            })
            .unwrap();
        assert_eq!(chosen, [7]);
        assert_eq!((counted.distinct, counted.occurrences, counted.covered), (6, 10, 5));
    }
}
