//! What look-ups in a table of precomputed lower layers cost, and bringing what they find to the card.

use tenantry_core::spec::PlotSpec;
use tenantry_profiles::{
    Beyond, Card, Cost, Curve, DType, DeviceKind, Direction, MissingTable, ModelShape, Surface, Tier,
};

/// Look-ups of a pool's table.
#[derive(Debug)]
pub(crate) struct LookupPrices {
    spec: PlotSpec,
    /// Of domains' own tables, and of the root table where it lies there too.
    memory: Surface,
    root: Surface,
}

impl LookupPrices {
    /// Of a model's table.
    pub fn new(card: &Card, model: &ModelShape, spec: PlotSpec) -> Result<LookupPrices, MissingTable> {
        Ok(LookupPrices {
            spec,
            memory: card.plot_lookup(model, Tier::Memory)?,
            root: card.plot_lookup(model, spec.tier)?,
        })
    }

    /// The table.
    pub fn spec(&self) -> PlotSpec {
        self.spec
    }

    /// The farther of what the two tiers were asked beyond what was measured.
    pub fn beyond(&self, tokens: u32) -> Option<Beyond> {
        let beyond = [&self.memory, &self.root].map(|surface| surface.beyond(self.spec.threads, tokens));
        let beyond = beyond.into_iter().flatten();
        beyond.max_by(|one, other| one.factor().total_cmp(&other.factor()))
    }

    /// Of so many tokens together, by what `of` takes of a cost.
    pub fn ns(&self, tokens: u32, of: impl Fn(Cost) -> u64) -> u64 {
        let PlotSpec {
            threads,
            tier,
            domain_hits_ppm,
            ..
        } = self.spec;
        match tier {
            Tier::Memory => of(self.memory.cost(threads, tokens)),
            Tier::Disk => {
                // A domain's table lies in memory, whatever the root's tier (HMI, section 7.7).
                let by_domain = (u64::from(tokens) * u64::from(domain_hits_ppm) / 1_000_000) as u32;
                of(self.memory.cost(threads, by_domain)) + of(self.root.cost(threads, tokens - by_domain))
            }
        }
    }

    /// The median.
    pub fn median_ns(&self, tokens: u32) -> u64 {
        self.ns(tokens, |cost| cost.median_ns)
    }
}

/// Copies of tokens' representations to the card.
#[derive(Debug)]
pub(crate) struct StageCosts {
    copy: Curve,
    bytes_per_token: u64,
}

impl StageCosts {
    /// Of a model's hidden states.
    pub fn new(card: &Card, model: &ModelShape, dtype: DType) -> Result<StageCosts, MissingTable> {
        let pinned = card.device.kind == DeviceKind::Cuda;
        Ok(StageCosts {
            copy: card.copy(Direction::HostToDevice, pinned)?,
            bytes_per_token: u64::from(model.hidden) * dtype.bytes(),
        })
    }

    /// How far a copy of so many tokens is beyond what was measured.
    pub fn beyond(&self, tokens: u32) -> Option<Beyond> {
        self.copy.beyond(u64::from(tokens) * self.bytes_per_token)
    }

    /// The median.
    pub fn median_ns(&self, tokens: u32) -> u64 {
        self.copy.cost(u64::from(tokens) * self.bytes_per_token).median_ns
    }
}
