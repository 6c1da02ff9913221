//! The latency model: α for what all tasks share, β for each kind's own operators, as dense arrays.

use super::split::CostRow;
use super::{Query, QueryError};

/// The most cells that the tables of one model may have, so that a mistyped limit does not fill the memory.
const CELLS_MAX: u64 = 1 << 28;

/// Latencies in nanoseconds for every batch of up to `max_batch` queries of up to `max_tokens` tokens.
///
/// Costs of one length lie next to each other, since the dynamic programs walk over sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    max_batch: u32,
    max_tokens: u32,
    kinds: u32,
    /// `[1 + kinds][max_tokens][max_batch + 1]`: α first, then β of each kind.
    ns: Vec<u64>,
    /// As `ns`: the least from each size on.
    least_from_ns: Vec<u64>,
}

/// Tables that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: must be {must}, got {got}")]
pub struct TablesError {
    /// What is at fault.
    pub field: &'static str,
    /// What it must be.
    pub must: String,
    /// What it is.
    pub got: u64,
}

impl Tables {
    /// Fills the tables, with costs whose sum over a pool stays below 2⁶⁴: `shared_ns(n, l)` is the latency of the
    /// shared model, `task_ns(kind, n, l)` that of one task's operators in all layers.
    ///
    /// # Errors
    /// A limit of 0, or limits whose tables would take gigabytes.
    pub fn new(
        max_batch: u32,
        max_tokens: u32,
        kinds: u32,
        shared_ns: impl Fn(u32, u32) -> u64,
        task_ns: impl Fn(u32, u32, u32) -> u64,
    ) -> Result<Tables, TablesError> {
        for (field, limit) in [("max_batch", max_batch), ("max_tokens", max_tokens)] {
            if limit == 0 {
                let must = "at least 1".into();
                return Err(TablesError { field, must, got: 0 });
            }
        }
        let row = u64::from(max_batch) + 1;
        let cells = (u64::from(kinds) + 1)
            .checked_mul(u64::from(max_tokens))
            .and_then(|rows| rows.checked_mul(row))
            .unwrap_or(u64::MAX);
        if cells > CELLS_MAX {
            return Err(TablesError {
                field: "cells of the latency tables, (1 + kinds) × max_tokens × (max_batch + 1)",
                must: format!("at most {CELLS_MAX}"),
                got: cells,
            });
        }
        let mut ns = Vec::with_capacity(cells as usize);
        for table in 0..=kinds {
            for tokens in 1..=max_tokens {
                ns.push(0);
                ns.extend((1..=max_batch).map(|batch| match table.checked_sub(1) {
                    None => shared_ns(batch, tokens),
                    Some(kind) => task_ns(kind, batch, tokens),
                }));
            }
        }
        let mut least_from_ns = ns.clone();
        for row in least_from_ns.chunks_mut(row as usize) {
            for size in (0..row.len() - 1).rev() {
                row[size] = row[size].min(row[size + 1]);
            }
        }
        Ok(Tables {
            max_batch,
            max_tokens,
            kinds,
            ns,
            least_from_ns,
        })
    }

    /// The most queries in a batch.
    pub fn max_batch(&self) -> u32 {
        self.max_batch
    }

    /// The most tokens of a query.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// Kinds with a β table.
    pub fn kinds(&self) -> u32 {
        self.kinds
    }

    /// `α[n][l]`: what all tasks share, for `batch` queries padded to `tokens`, in nanoseconds.
    ///
    /// # Panics
    /// Beyond the limits.
    pub fn shared_ns(&self, batch: u32, tokens: u32) -> u64 {
        self.shared_row(tokens).ns[batch as usize]
    }

    /// `β[kind][n][l]`: one task's operators over a mini-batch, in nanoseconds.
    ///
    /// # Panics
    /// Beyond the limits.
    pub fn task_ns(&self, kind: u32, batch: u32, tokens: u32) -> u64 {
        self.task_row(kind, tokens).ns[batch as usize]
    }

    pub(super) fn shared_row(&self, tokens: u32) -> CostRow<'_> {
        self.row(0, tokens)
    }

    pub(super) fn task_row(&self, kind: u32, tokens: u32) -> CostRow<'_> {
        assert!(kind < self.kinds, "kind {kind} of {}", self.kinds);
        self.row(kind + 1, tokens)
    }

    fn row(&self, table: u32, tokens: u32) -> CostRow<'_> {
        assert!(
            (1..=self.max_tokens).contains(&tokens),
            "{tokens} tokens, the tables reach {}",
            self.max_tokens
        );
        let length = self.max_batch as usize + 1;
        let first = (table as usize * self.max_tokens as usize + tokens as usize - 1) * length;
        CostRow {
            ns: &self.ns[first..first + length],
            least_from_ns: &self.least_from_ns[first..first + length],
        }
    }

    pub(super) fn check(&self, query: &Query) -> Result<(), QueryError> {
        let refuse = |field, must, got| {
            let id = query.id;
            Err(QueryError { id, field, must, got })
        };
        if !(1..=self.max_tokens).contains(&query.tokens) {
            return refuse("tokens", format!("from 1 to {}", self.max_tokens), query.tokens);
        }
        if query.kind >= self.kinds {
            return refuse("kind", format!("below {}", self.kinds), query.kind);
        }
        Ok(())
    }
}
