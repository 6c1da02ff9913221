//! The dynamic program of both steps: a sequence of items, ascending by length, is split into stretches of least total
//! cost.

use std::ops::Range;

/// Memory of one run, kept for the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Items up to each one's end: queries and the longest of them.
    ends: Vec<(u32, u32)>,
    /// What the first `i` items cost at least, `state` in Algorithm 1.
    cost: Vec<u64>,
    /// Where the last stretch of the first `i` items begins.
    start: Vec<u32>,
    /// The stretches found, in order.
    pub stretches: Vec<Range<usize>>,
    /// Stretches that were priced so far, in all runs: what the program's time follows from.
    pub priced: u64,
}

/// A table's costs at one length: of batches of 0, 1, … queries.
#[derive(Clone, Copy, Debug)]
pub(super) struct CostRow<'a> {
    /// In nanoseconds.
    pub ns: &'a [u64],
    /// At each size, the least cost of that size or any larger.
    pub least_from_ns: &'a [u64],
}

impl Scratch {
    /// Splits `items`, each a number of queries and their longest length, ascending by length, into stretches of at
    /// most `max` queries: the least sum of each stretch's cost at its size and its last item's length (Eq. 4, and Eq.
    /// 5 with `L_i`). Among equals, later stretches are as long as can be, which makes fewer of
    /// them, as in Algorithm 1. Puts the result into [`stretches`](Self::stretches).
    ///
    /// An item of more than `max` queries is not among the items: mini-batches have been split under the same limit.
    pub fn split<'a>(&mut self, items: impl Iterator<Item = (u32, u32)>, max: u32, row: impl Fn(u32) -> CostRow<'a>) {
        self.ends.clear();
        self.ends.push((0, 0));
        let mut queries = 0;
        for (count, tokens) in items {
            queries += count;
            self.ends.push((queries, tokens));
        }
        let count = self.ends.len() - 1;
        self.cost.clear();
        self.cost.resize(count + 1, 0);
        self.start.clear();
        self.start.resize(count + 1, 0);
        let mut row_of = (0, None);
        for i in 1..=count {
            let (end, tokens) = self.ends[i];
            // Neighbours often have the same length.
            if row_of.0 != tokens || row_of.1.is_none() {
                row_of = (tokens, Some(row(tokens)));
            }
            let CostRow { ns, least_from_ns } = row_of.1.expect("a row was just looked up");
            let (mut least, mut start) = (u64::MAX, 0);
            for j in (1..=i).rev() {
                let size = end - self.ends[j - 1].0;
                // What lies before the stretch costs nothing or more, so longer stretches cannot win either.
                if size > max || least_from_ns[size as usize] > least {
                    break;
                }
                self.priced += 1;
                let cost = self.cost[j - 1] + ns[size as usize];
                if cost <= least {
                    (least, start) = (cost, j - 1);
                }
            }
            self.cost[i] = least;
            self.start[i] = start as u32;
        }
        self.stretches.clear();
        let mut end = count;
        while end > 0 {
            let start = self.start[end] as usize;
            self.stretches.push(start..end);
            end = start;
        }
        self.stretches.reverse();
    }

    /// What the stretches found cost together.
    #[cfg(test)]
    pub fn cost(&self) -> u64 {
        *self.cost.last().expect("a split has run")
    }
}
