//! From tokens to rows: which table answers for which fragment (HMI, Eq. 3, and the fallback after it).

use std::ops::Range;

use crate::Context;
use crate::slots::hash;
use crate::table::Table;
use crate::tree::Branch;

/// What the look-ups of a batch met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tokens whose representation was asked for, padding left out.
    pub tokens: u64,
    /// Fragments found in their domain's table.
    pub domain_hits: u64,
    /// Fragments found in the root table, not in the domain's.
    pub root_hits: u64,
    /// Fragments found in neither, or cut short by the input's end, and so put together from shorter ones.
    pub fallbacks: u64,
    /// Tokens for which there was nothing at all, not even a unigram: their representation is zero.
    pub misses: u64,
    /// Rows that were not in the page cache and had to come from the disk; 0 where the file system cannot tell.
    pub cold_rows: u64,
}

impl std::ops::Add for Counters {
    type Output = Counters;

    fn add(self, other: Counters) -> Counters {
        Counters {
            tokens: self.tokens + other.tokens,
            domain_hits: self.domain_hits + other.domain_hits,
            root_hits: self.root_hits + other.root_hits,
            fallbacks: self.fallbacks + other.fallbacks,
            misses: self.misses + other.misses,
            cold_rows: self.cold_rows + other.cold_rows,
        }
    }
}

/// A row found: it stands for the tokens from `start` on.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'t> {
    pub(crate) table: &'t Table,
    pub(crate) ordinal: u32,
    /// Position in the sequence of the row's first vector.
    pub(crate) start: usize,
    /// Vectors in the row.
    pub(crate) positions: usize,
    /// Which of the sequence's fragments it answers for; several pieces of one fragment are its fallback.
    pub(crate) fragment: usize,
}

/// Where a sequence is looked up: its domain's tables, then the root's.
#[derive(Clone, Copy)]
pub(crate) struct Road<'t> {
    pub(crate) domain: Option<&'t Branch>,
    pub(crate) root: &'t Branch,
}

enum Level {
    Domain,
    Root,
}

impl<'t> Road<'t> {
    /// Fragments of a sequence: one for each place where a whole fragment fits (Eq. 2's sweep; a window that hangs over
    /// an end is part of its neighbour), the sequence itself if it is shorter; with preceding context, one that ends at
    /// each token.
    pub(crate) fn fragments(&self, length: usize) -> usize {
        let shape = self.root.shape();
        match shape.context {
            Context::Both if length == 0 => 0,
            Context::Both => length.saturating_sub(shape.fragment_tokens as usize) + 1,
            Context::Preceding => length,
        }
    }

    /// Fragments that have a vector for one of these tokens.
    pub(crate) fn fragments_of(&self, tokens: Range<usize>, length: usize) -> Range<usize> {
        match self.root.shape().context {
            Context::Both => {
                let reach = self.root.shape().fragment_tokens as usize - 1;
                tokens.start.saturating_sub(reach)..tokens.end.min(self.fragments(length))
            }
            Context::Preceding => tokens,
        }
    }

    /// The tokens of a fragment.
    fn window(&self, fragment: usize, length: usize) -> Range<usize> {
        let fragment_tokens = self.root.shape().fragment_tokens as usize;
        match self.root.shape().context {
            Context::Both => fragment..(fragment + fragment_tokens).min(length),
            Context::Preceding => (fragment + 1).saturating_sub(fragment_tokens)..fragment + 1,
        }
    }

    /// Fetches the slots at which the search for a fragment begins.
    #[inline]
    pub(crate) fn prefetch(&self, tokens: &[u32], fragment: usize) {
        let key = &tokens[self.window(fragment, tokens.len())];
        let hash = hash(key);
        for branch in [self.domain, Some(self.root)].into_iter().flatten() {
            if let Some(table) = branch.table(key.len()) {
                table.slots().prefetch(hash);
            }
        }
    }

    #[inline]
    fn look_up(&self, key: &[u32]) -> Option<(&'t Table, u32, Level)> {
        let hash = hash(key);
        for (branch, level) in [(self.domain, Level::Domain), (Some(self.root), Level::Root)] {
            if let Some(table) = branch.and_then(|branch| branch.table(key.len()))
                && let Some(ordinal) = table.slots().find(hash, key)
            {
                return Some((table, ordinal, level));
            }
        }
        None
    }

    /// Finds the rows of a fragment, and counts where.
    pub(crate) fn find(&self, tokens: &[u32], fragment: usize, pieces: &mut Vec<Piece<'t>>, counters: &mut Counters) {
        let window = self.window(fragment, tokens.len());
        if window.len() == self.root.shape().fragment_tokens as usize
            && let Some((table, ordinal, level)) = self.look_up(&tokens[window.clone()])
        {
            match level {
                Level::Domain => counters.domain_hits += 1,
                Level::Root => counters.root_hits += 1,
            }
            pieces.push(piece(table, ordinal, &window, fragment));
            return;
        }
        counters.fallbacks += 1;
        // A sequence's end may leave less than a fragment, for which there may be a table of its own length.
        let longest = window.len().min(self.root.shape().fragment_tokens as usize - 1);
        match self.root.shape().context {
            Context::Both => self.split(tokens, window.clone(), longest, fragment, pieces),
            Context::Preceding => self.shorten(tokens, window, longest, fragment, pieces),
        }
    }

    /// The next shorter length of which there is a table.
    fn shorter_than(&self, length: usize) -> Option<usize> {
        let branches = [self.domain, Some(self.root)].into_iter().flatten();
        let lengths = branches.flat_map(Branch::tables).map(|table| table.shape().fragment_tokens as usize);
        lengths.filter(|&shorter| shorter < length).max()
    }

    /// A fragment that is not there is every one within it that is at most `longest` tokens long, and so on down for
    /// those that are not there either.
    fn split(
        &self,
        tokens: &[u32],
        window: Range<usize>,
        longest: usize,
        fragment: usize,
        pieces: &mut Vec<Piece<'t>>,
    ) {
        let Some(length) = self.shorter_than(longest + 1) else {
            return;
        };
        for start in window.start..=window.end - length {
            let part = start..start + length;
            match self.look_up(&tokens[part.clone()]) {
                Some((table, ordinal, _)) => pieces.push(piece(table, ordinal, &part, fragment)),
                None => self.split(tokens, part, length - 1, fragment, pieces),
            }
        }
    }

    /// With preceding context, a fragment that is not there is the longest one there is that ends at the same token.
    fn shorten(
        &self,
        tokens: &[u32],
        window: Range<usize>,
        longest: usize,
        fragment: usize,
        pieces: &mut Vec<Piece<'t>>,
    ) {
        let mut longest = longest;
        while let Some(length) = self.shorter_than(longest + 1) {
            let part = window.end - length..window.end;
            if let Some((table, ordinal, _)) = self.look_up(&tokens[part.clone()]) {
                return pieces.push(piece(table, ordinal, &part, fragment));
            }
            longest = length - 1;
        }
    }
}

fn piece<'t>(table: &'t Table, ordinal: u32, window: &Range<usize>, fragment: usize) -> Piece<'t> {
    let positions = table.shape().positions() as usize;
    Piece {
        table,
        ordinal,
        start: window.end - positions,
        positions,
        fragment,
    }
}
