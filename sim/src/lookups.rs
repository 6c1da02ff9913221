//! What look-ups in a table of precomputed lower layers cost, and bringing what they find to the card.

use tenantry_core::spec::PlotSpec;
use tenantry_profiles::{
    Beyond, Card, Cost, Curve, DeviceKind, Direction, LookupOutcome, LookupSurface, MissingTable, ModelShape, Tier,
    TokensOf,
};

/// Look-ups of a pool's table.
#[derive(Debug)]
pub(crate) struct LookupPrices {
    spec: PlotSpec,
    /// What may be met, and parts of a million of the look-ups that meet it. A batch costs as much of each outcome's
    /// cost of all its tokens: what each fragment takes adds up so, and what each batch takes is counted once.
    met: Vec<(u32, LookupSurface)>,
}

impl LookupPrices {
    /// Of a model's table, for batches of whole texts or of sequences' newest tokens.
    pub fn new(
        card: &Card,
        model: &ModelShape,
        spec: PlotSpec,
        tokens_of: TokensOf,
    ) -> Result<LookupPrices, MissingTable> {
        let (by_domain, mut by_shorter) = spec.met_ppm();
        if spec.fragment_tokens == 1 {
            // Nothing is shorter: that a token has no row is found out as that it has one.
            by_shorter = 0;
        }
        let outcomes = [
            // A domain's table lies in memory, whatever the root's tier (HMI, section 7.7).
            (by_domain, Tier::Memory, LookupOutcome::DomainHit),
            (1_000_000 - by_domain - by_shorter, spec.tier, LookupOutcome::RootHit),
            (by_shorter, spec.tier, LookupOutcome::Fallback),
        ];
        let met = outcomes.into_iter().filter(|(ppm, ..)| *ppm > 0);
        Ok(LookupPrices {
            spec,
            met: met
                .map(|(ppm, tier, outcome)| Ok((ppm, card.plot_lookup(model, tier, outcome, tokens_of)?)))
                .collect::<Result<_, MissingTable>>()?,
        })
    }

    /// The table.
    pub fn spec(&self) -> PlotSpec {
        self.spec
    }

    /// The farthest of what the tables were asked beyond what was measured.
    pub fn beyond(&self, tokens: u32) -> Option<Beyond> {
        let PlotSpec {
            threads,
            fragment_tokens,
            ..
        } = self.spec;
        let asked = self.met.iter().filter_map(|(_, surface)| surface.beyond(threads, tokens, fragment_tokens));
        asked.max_by(|one, other| one.factor().total_cmp(&other.factor()))
    }

    /// Of so many tokens together, by what `of` takes of a cost.
    pub fn ns(&self, tokens: u32, of: impl Fn(Cost) -> u64) -> u64 {
        let PlotSpec {
            threads,
            fragment_tokens,
            ..
        } = self.spec;
        let part = |(ppm, surface): &(u32, LookupSurface)| {
            u128::from(*ppm) * u128::from(of(surface.cost(threads, tokens, fragment_tokens)))
        };
        (self.met.iter().map(part).sum::<u128>() / 1_000_000) as u64
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
    /// Of what stands for a model's hidden states.
    pub fn new(card: &Card, model: &ModelShape) -> Result<StageCosts, MissingTable> {
        let pinned = card.device.kind == DeviceKind::Cuda;
        Ok(StageCosts {
            copy: card.copy(Direction::HostToDevice, pinned)?,
            bytes_per_token: PlotSpec::row_bytes(model.hidden),
        })
    }

    /// How far a copy of so many tokens is beyond what was measured.
    pub fn beyond(&self, tokens: u32) -> Option<Beyond> {
        self.copy.beyond(u64::from(tokens) * self.bytes_per_token)
    }

    /// The median.
    pub fn median_ns(&self, tokens: u32) -> u64 {
        self.copy.median_ns(u64::from(tokens) * self.bytes_per_token)
    }
}
