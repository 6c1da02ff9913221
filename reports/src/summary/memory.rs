//! What lay on cards, what came and went, and what was looked up instead.

use serde::{Deserialize, Serialize};
use tenantry_core::machine::LookupCounts;
use tenantry_core::server::generation::GenerationCounts;
use tenantry_core::server::{MemoryUse, SwapCounts};

use super::number::ratio;

/// Memory of all cards together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySummary {
    /// What the system may fill.
    pub capacity: u64,
    /// Backbones and tenants' heads.
    pub shared: u64,
    /// Swapped parameters of one tenant; absent where nothing is swapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_tenant: Option<u64>,
    /// Most that ever lay there, `shared` included.
    pub peak: u64,
}

/// Tenants' parameters that came and went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapSummary {
    /// Was on the card.
    pub hits: u64,
    /// Had to come in.
    pub misses: u64,
    /// Left for another.
    pub evictions: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
}

/// What a decoder did beside generating.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationSummary {
    /// Requests that left a card for want of memory.
    pub evictions: u64,
    /// Requests that left a card so that it would be empty.
    pub migrations: u64,
    /// Tokens that had to come into a cache again after either.
    pub recomputed_tokens: u64,
    /// Tokens of prompts that another request of the tenant had computed; absent where systems share none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_tokens: Option<u64>,
    /// Adapters that were read from the disk; absent where host memory holds all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
    /// Requests whose keys and values were copied from the card that took their prompts in to another; absent where
    /// every card does both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfers: Option<u64>,
    /// Bytes of such copies, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transferred_bytes: Option<u64>,
    /// Requests that were given fewer tokens than they ask for, since the model has no positions for more; absent where
    /// none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortened: Option<u64>,
}

/// Fragments looked up, by which table answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookupSummary {
    /// Fragments looked up: a text of n tokens has n less the fragment's length and one more.
    pub tokens: u64,
    /// A domain's own table.
    pub domain_hits: u64,
    /// The table of all domains.
    pub root_hits: u64,
    /// Neither: shorter fragments did.
    pub fallbacks: u64,
    /// Bytes of what was found that were copied to the cards, padding included; absent in what was written before 0.1
    /// told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_bytes: Option<u64>,
}

impl MemorySummary {
    /// Nothing where a system has no memory of cards to fill.
    pub(super) fn of(memory: MemoryUse) -> Option<MemorySummary> {
        (memory.capacity_bytes > 0).then(|| MemorySummary {
            capacity: memory.capacity_bytes,
            shared: memory.shared_bytes,
            per_tenant: (memory.per_tenant_bytes > 0).then_some(memory.per_tenant_bytes),
            peak: memory.total_bytes(),
        })
    }
}

impl GenerationSummary {
    pub(super) fn of(counts: GenerationCounts) -> GenerationSummary {
        GenerationSummary {
            evictions: counts.evictions,
            migrations: counts.migrations,
            recomputed_tokens: counts.recomputed_tokens,
            shared_tokens: (counts.shared_tokens > 0).then_some(counts.shared_tokens),
            reads: (counts.reads > 0).then_some(counts.reads),
            transfers: (counts.transfers > 0).then_some(counts.transfers),
            transferred_bytes: (counts.transfers > 0).then_some(counts.transferred_bytes),
            shortened: (counts.shortened > 0).then_some(counts.shortened),
        }
    }
}

impl LookupSummary {
    pub(super) fn of(counts: LookupCounts) -> LookupSummary {
        LookupSummary {
            tokens: counts.tokens,
            domain_hits: counts.domain_hits,
            root_hits: counts.root_hits,
            fallbacks: counts.fallbacks,
            staged_bytes: None,
        }
    }
}

impl SwapSummary {
    pub(super) fn of(counts: SwapCounts) -> SwapSummary {
        SwapSummary {
            hits: counts.hits,
            misses: counts.misses,
            evictions: counts.evictions,
            bytes_in: counts.bytes_in,
        }
    }

    /// Share of uses that found the parameters on the card; absent where there was no use.
    pub fn hit_share(&self) -> Option<f64> {
        ratio(self.hits as f64, (self.hits + self.misses) as f64)
    }
}
