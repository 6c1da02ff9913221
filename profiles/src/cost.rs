//! What an op costs: a median, its measured mean and spread, and the surfaces that give them for any shape.
//!
//! Bind a surface once per run ([`Card::encoder_layer`](crate::Card::encoder_layer) and its kind), then look costs up: some
//! tens of nanoseconds, without allocation or hashing.

use std::collections::BTreeSet;

use crate::grid::Grid;
use crate::power;

/// What one op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Half of such ops take no longer, in nanoseconds.
    pub median_ns: u64,
    /// How far others lie from it.
    pub spread: Spread,
}

/// Mean and quantiles as parts of a million of the median.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The mean, which a few slow ops move far from the median.
    pub mean_ppm: u32,
    /// 5 % take no longer; at most 1,000,000.
    pub p05_ppm: u32,
    /// 95 % take no longer; at least 1,000,000.
    pub p95_ppm: u32,
    /// 99 % take no longer; at least `p95_ppm`.
    pub p99_ppm: u32,
}

/// The median as parts of a million of itself.
const MEDIAN_PPM: f64 = 1e6;

/// How close to its ends the mean of a bent segment may lie, as a share of its height: its exponent is from 1/99 to 99.
const LEAST_HEIGHT: f64 = 0.01;

impl Spread {
    /// Every op takes the median.
    pub const NONE: Spread = Spread {
        mean_ppm: 1_000_000,
        p05_ppm: 1_000_000,
        p95_ppm: 1_000_000,
        p99_ppm: 1_000_000,
    };

    /// The `k` with which [`Cost::at_quantile`] has the measured mean. A segment that rises as `t^k` has its own mean at
    /// `1 / (k + 1)` of its height, so that the mean of all is linear in that share.
    fn exponent(self) -> f64 {
        let [mean, p05, p95, p99] = [self.mean_ppm, self.p05_ppm, self.p95_ppm, self.p99_ppm].map(f64::from);
        // The mean with both bent segments at their lower ends, and how much it rises until they are at their upper.
        let least = 0.05 * p05 + 0.45 * (p05 + MEDIAN_PPM) / 2.0 + 0.45 * MEDIAN_PPM + 0.04 * p95 + 0.01 * p99;
        let rise = 0.45 * (p95 - MEDIAN_PPM) + 0.04 * (p99 - p95);
        // Where nothing rises, no exponent matters; the bound keeps it a number.
        let share = (mean - least) / rise.max(f64::MIN_POSITIVE);
        1.0 / share.clamp(LEAST_HEIGHT, 1.0 - LEAST_HEIGHT) - 1.0
    }
}

impl Cost {
    /// Of what is not done.
    pub const NOTHING: Cost = Cost {
        median_ns: 0,
        spread: Spread::NONE,
    };

    /// This and then `other`: whatever slows the one slows the other, so quantiles add up.
    pub fn plus(self, other: Cost) -> Cost {
        let (ours, theirs) = (self.median_ns as f64, other.median_ns as f64);
        // Nothing and nothing is still nothing.
        let both = (ours + theirs).max(1.0);
        let part = |of: fn(Spread) -> u32, none: f64| {
            let weighted = ours * f64::from(of(self.spread)) + theirs * f64::from(of(other.spread));
            if ours + theirs > 0.0 {
                (weighted / both + 0.5) as u32
            } else {
                none as u32
            }
        };
        Cost {
            median_ns: self.median_ns.saturating_add(other.median_ns),
            spread: Spread {
                mean_ppm: part(|spread| spread.mean_ppm, MEDIAN_PPM),
                p05_ppm: part(|spread| spread.p05_ppm, MEDIAN_PPM),
                p95_ppm: part(|spread| spread.p95_ppm, MEDIAN_PPM),
                p99_ppm: part(|spread| spread.p99_ppm, MEDIAN_PPM),
            },
        }
    }

    /// So many of these, one after the other; what slows one slows all.
    pub fn times(self, count: u32) -> Cost {
        Cost {
            median_ns: self.median_ns.saturating_mul(count.into()),
            spread: self.spread,
        }
    }

    /// As many parts of a million of this.
    pub fn share(self, ppm: u64) -> Cost {
        Cost {
            median_ns: of_ppm(self.median_ns, ppm),
            spread: self.spread,
        }
    }

    /// What such ops take on average, in nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        (self.median_ns as f64 * f64::from(self.spread.mean_ppm) / 1e6 + 0.5) as u64
    }

    /// The duration in nanoseconds that a share `u` (from 0 to 1) of such ops does not exceed: through the known
    /// quantiles, and no further than the outermost.
    ///
    /// Up to the median it is a straight line. Above, straight lines would overstate the mean, and with it the load,
    /// where a few ops take much longer than the others. So it rises there as `t^k`, `t` from 0 to 1 between two
    /// quantiles, and one `k` for both segments, from 1/99 to 99, makes the mean over all `u` the measured
    /// [`mean_ns`](Self::mean_ns). Where none does, as when the slowest 1 % take so long that the mean is beyond what
    /// these quantiles can have, it is the nearest.
    pub fn at_quantile(&self, u: f64) -> u64 {
        // What has no spread, as all costs of a card made from a paper, needs no power to be its median.
        match self.spread == Spread::NONE {
            true => self.median_ns,
            false => self.varied(self.spread.exponent(), u),
        }
    }

    fn varied(&self, exponent: f64, u: f64) -> u64 {
        let (
            median,
            Spread {
                p05_ppm,
                p95_ppm,
                p99_ppm,
                ..
            },
        ) = (self.median_ns as f64, self.spread);
        let [p05, p95, p99] = [p05_ppm, p95_ppm, p99_ppm].map(f64::from);
        let value = |ppm: f64| median * ppm / 1e6 + 0.5;
        if u < 0.5 {
            return whole(value(match u < 0.05 {
                true => p05,
                false => p05 + (MEDIAN_PPM - p05) * ((u - 0.05) / (0.5 - 0.05)),
            }));
        }
        if u >= 0.99 {
            return whole(value(p99));
        }
        let (from, width, low, high) = match u < 0.95 {
            true => (0.5, 0.95 - 0.5, MEDIAN_PPM, p95),
            false => (0.95, 0.99 - 0.95, p95, p99),
        };
        power::whole((u - from) / width, exponent, |share| value(low + (high - low) * share))
    }
}

/// As many parts of a million of a duration, rounded. All of it, which is what is mostly asked for, takes no division.
#[inline]
pub(crate) fn of_ppm(ns: u64, ppm: u64) -> u64 {
    if ppm == 1_000_000 {
        return ns;
    }
    ((u128::from(ns) * u128::from(ppm) + 500_000) / 1_000_000) as u64
}

/// How far a share of ops lies between those of the median and of the quantile of 95 %, as a logarithm.
#[inline]
fn log2_to_p95(u: f64) -> Option<f64> {
    power::log2((u - 0.5) * (1.0 / (0.95 - 0.5)))
}

/// Likewise from there to that of 99 %.
#[inline]
fn log2_to_p99(u: f64) -> Option<f64> {
    power::log2((u - 0.95) * (1.0 / (0.99 - 0.95)))
}

/// A place in the distribution of what ops take, at which one cost or several are drawn: what slows one slows all.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The share of ops that take less.
    u: f64,
    /// Of how far that is between the two quantiles about it, above the median: its powers are what costs rise with.
    log2: Option<f64>,
}

impl Place {
    /// Where a share `u` (from 0 to 1) takes less.
    #[inline]
    pub fn new(u: f64) -> Place {
        let log2 = match u {
            0.5..0.95 => log2_to_p95(u),
            0.95..0.99 => log2_to_p99(u),
            _ => None,
        };
        Place { u, log2 }
    }

    /// The share of ops that take less.
    pub fn share(self) -> f64 {
        self.u
    }
}

/// A [`Cost`] that is drawn from again and again: what its spread takes to be computed is, and what can be a product is no division. No larger than
/// it must be, since many are kept.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    cost: Cost,
    /// Of [`Spread::exponent`]; zero, which that never is, where all take the median.
    exponent: f64,
    /// What a line through the quantile of 5 % and the median would rise by, from none of the share to all.
    below_ns: f64,
    /// How far the quantile of 95 % lies from the median, and that of 99 % from there.
    to_p95_ns: f64,
    to_p99_ns: f64,
}

impl From<Cost> for Drawn {
    fn from(cost: Cost) -> Drawn {
        if cost.spread == Spread::NONE {
            return Drawn {
                cost,
                exponent: 0.0,
                below_ns: 0.0,
                to_p95_ns: 0.0,
                to_p99_ns: 0.0,
            };
        }
        let Spread {
            p05_ppm,
            p95_ppm,
            p99_ppm,
            ..
        } = cost.spread;
        let [p05, p95, p99] = [p05_ppm, p95_ppm, p99_ppm].map(f64::from);
        let ns = |ppm: f64| cost.median_ns as f64 * ppm / 1e6;
        Drawn {
            cost,
            exponent: cost.spread.exponent(),
            below_ns: ns(MEDIAN_PPM - p05) / (0.5 - 0.05),
            to_p95_ns: ns(p95 - MEDIAN_PPM),
            to_p99_ns: ns(p99 - p95),
        }
    }
}

/// The whole part of nanoseconds, nothing of negative ones. Below 2^63 a signed number is the quicker to convert.
#[inline]
pub(crate) fn whole(ns: f64) -> u64 {
    #[cold]
    fn beyond(ns: f64) -> u64 {
        ns as u64
    }
    match ns as i64 {
        i64::MIN..0 | i64::MAX => beyond(ns),
        whole => whole as u64,
    }
}

impl Drawn {
    /// Half of such ops take no longer, in nanoseconds.
    #[inline]
    pub fn median_ns(&self) -> u64 {
        self.cost.median_ns
    }

    /// As [`Cost::at_quantile`], to the nanosecond.
    #[inline]
    pub fn at_quantile(&self, u: f64) -> u64 {
        match self.exponent == 0.0 {
            true => self.cost.median_ns,
            false => self.varied(u),
        }
    }

    /// The same at a place where other costs are drawn too.
    #[inline]
    pub fn at(&self, place: Place) -> u64 {
        match self.exponent == 0.0 {
            true => self.cost.median_ns,
            // Products round otherwise than the divisions that define a quantile: where that may show, these decide.
            false => self
                .nearly(place.u, || place.log2, || place.log2)
                .unwrap_or_else(|| self.defined(place.u)),
        }
    }

    fn varied(&self, u: f64) -> u64 {
        self.nearly(u, || log2_to_p95(u), || log2_to_p99(u))
            .unwrap_or_else(|| self.defined(u))
    }

    /// Below the median, where half of all draws are, nobody asks for a logarithm.
    #[inline(always)]
    fn nearly(
        &self,
        u: f64,
        log2_to_p95: impl FnOnce() -> Option<f64>,
        log2_to_p99: impl FnOnce() -> Option<f64>,
    ) -> Option<u64> {
        // Centuries: a signed number is the quicker to convert.
        let median_ns = self.cost.median_ns as i64 as f64 + 0.5;
        let (ns, most_ns) = match u {
            0.05..0.5 => (median_ns + self.below_ns * (u - 0.5), median_ns),
            0.5..0.95 => {
                let ns = median_ns + self.to_p95_ns * power::exp2(self.exponent, log2_to_p95()?)?;
                (ns, ns)
            }
            0.95..0.99 => {
                let ns = median_ns + self.to_p95_ns + self.to_p99_ns * power::exp2(self.exponent, log2_to_p99()?)?;
                (ns, ns)
            }
            _ => return None,
        };
        power::certainly_whole(ns, most_ns)
    }

    #[cold]
    fn defined(&self, u: f64) -> u64 {
        self.cost.varied(self.exponent, u)
    }
}

/// How far a cost was asked beyond what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// The dimension, as its table calls it.
    pub axis: &'static str,
    /// What was asked.
    pub asked: u64,
    /// The nearest that was measured.
    pub measured: u64,
}

impl Beyond {
    /// How many times what was measured, or one over that where less was asked; above 1.
    pub fn factor(&self) -> f64 {
        let (asked, measured) = (self.asked.max(1) as f64, self.measured.max(1) as f64);
        (asked / measured).max(measured / asked)
    }
}

impl std::fmt::Display for Beyond {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Beyond { axis, asked, measured } = self;
        let bound = if asked > measured { "up to" } else { "from" };
        write!(formatter, "{axis} {asked}, measured {bound} {measured}")
    }
}

/// Costs by batch and padded tokens.
#[derive(Clone, Debug)]
pub struct Surface(pub(crate) Grid<2>);

impl Surface {
    /// What `batch` sequences of `tokens` tokens each cost, extrapolated where they were not [covered](Self::covers).
    pub fn cost(&self, batch: u32, tokens: u32) -> Cost {
        self.0.cost([batch.into(), tokens.into()])
    }

    /// The median of [`cost`](Self::cost), for a fraction of what all of it takes.
    pub fn median_ns(&self, batch: u32, tokens: u32) -> u64 {
        self.0.median_ns([batch.into(), tokens.into()])
    }

    /// What the smallest measured batch of the shortest measured sequences costs: of an operator, launching alone.
    pub fn least(&self) -> Cost {
        self.0.cost(self.0.nearest([0, 0]))
    }

    /// Whether this lies within what was measured; reports say where it does not.
    #[inline]
    pub fn covers(&self, batch: u32, tokens: u32) -> bool {
        self.0.covers([batch.into(), tokens.into()])
    }

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, batch: u32, tokens: u32) -> Option<Beyond> {
        self.0.beyond([batch.into(), tokens.into()])
    }
}

/// Costs by one quantity: sequences of a head, bytes of a copy or load.
#[derive(Clone, Debug)]
pub struct Curve(pub(crate) Grid<1>);

impl Curve {
    /// What `x` of them cost, extrapolated where it was not [covered](Self::covers).
    pub fn cost(&self, x: u64) -> Cost {
        self.0.cost([x])
    }

    /// The median of [`cost`](Self::cost), for a fraction of what all of it takes.
    pub fn median_ns(&self, x: u64) -> u64 {
        self.0.median_ns([x])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    #[inline]
    pub fn covers(&self, x: u64) -> bool {
        self.0.covers([x])
    }

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, x: u64) -> Option<Beyond> {
        self.0.beyond([x])
    }
}

/// Costs of one layer's adapters by tenants, or of what computes side by side by how many do.
#[derive(Clone, Debug)]
pub struct AdapterSurface(pub(crate) Grid<3>);

impl AdapterSurface {
    /// What the adapters of `tenants` tenants cost in a batch of `batch` sequences (at least one for each tenant) of
    /// `tokens` tokens each, extrapolated where they were not [covered](Self::covers).
    pub fn cost(&self, tenants: u32, batch: u32, tokens: u32) -> Cost {
        self.0.cost([tenants.into(), batch.into(), tokens.into()])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    pub fn covers(&self, tenants: u32, batch: u32, tokens: u32) -> bool {
        self.0.covers([tenants.into(), batch.into(), tokens.into()])
    }

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, tenants: u32, batch: u32, tokens: u32) -> Option<Beyond> {
        self.0.beyond([tenants.into(), batch.into(), tokens.into()])
    }

    /// Where the first is how many compute side by side: how much longer each takes than alone, in parts of a million, and never less.
    pub fn beside_ppm(&self, streams: u32, batch: u32, tokens: u32) -> u64 {
        const UNIT: u64 = 1_000_000;
        let ns = |streams| self.cost(streams, batch, tokens).median_ns;
        (ns(streams) * UNIT / ns(1).max(1)).max(UNIT)
    }
}

/// Costs of heads that label every token.
#[derive(Clone, Debug)]
pub struct TaggingSurface(pub(crate) Grid<3>);

impl TaggingSurface {
    /// What labels of `batch` sequences of `tokens` tokens cost, by heads of `classes` labels, extrapolated where that was not measured.
    pub fn cost(&self, batch: u32, tokens: u32, classes: u32) -> Cost {
        self.0.cost([batch.into(), tokens.into(), classes.into()])
    }

    /// How far this lies beyond what was measured; nothing where it does not.
    #[inline]
    pub fn beyond(&self, batch: u32, tokens: u32, classes: u32) -> Option<Beyond> {
        self.0.beyond([batch.into(), tokens.into(), classes.into()])
    }
}

/// Costs of look-ups in PLOT tables.
#[derive(Clone, Debug)]
pub struct LookupSurface(pub(crate) Grid<3>);

impl LookupSurface {
    /// What looking up fragments of `fragment_tokens` tokens in texts of `tokens` tokens together costs `threads` threads, extrapolated
    /// where that was not measured.
    pub fn cost(&self, threads: u32, tokens: u32, fragment_tokens: u32) -> Cost {
        self.0.cost([threads.into(), tokens.into(), fragment_tokens.into()])
    }

    /// How far this lies beyond what was measured; nothing where it does not.
    #[inline]
    pub fn beyond(&self, threads: u32, tokens: u32, fragment_tokens: u32) -> Option<Beyond> {
        self.0.beyond([threads.into(), tokens.into(), fragment_tokens.into()])
    }
}

/// The rhythm in which a lane works and pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// From hearing of its last op's end until the next is handed over, in nanoseconds.
    pub pause_ns: u64,
    /// What its op takes, in nanoseconds.
    pub work_ns: u64,
    /// Whether all other cores compute.
    pub others_busy: bool,
}

/// What handing over takes.
#[derive(Clone, Debug)]
pub struct HandOver {
    others_idle: ByRhythm,
    others_busy: Option<ByRhythm>,
}

impl HandOver {
    /// Where it was not measured with all other cores busy, they make no difference.
    pub(crate) fn new(others_idle: ByRhythm, others_busy: Option<ByRhythm>) -> HandOver {
        HandOver {
            others_idle,
            others_busy,
        }
    }

    /// The same whatever the rhythm.
    pub(crate) fn always(cost: Cost) -> HandOver {
        let always = ByRhythm {
            pauses_end_ns: vec![u64::MAX],
            works_end_ns: vec![u64::MAX],
            costs: vec![cost.into()],
        };
        HandOver::new(always, None)
    }

    /// That of the measured pause and work which are nearest in proportion, or of the edge.
    #[inline]
    pub fn at(&self, rhythm: Rhythm) -> &Drawn {
        match &self.others_busy {
            Some(busy) if rhythm.others_busy => busy.at(rhythm),
            _ => self.others_idle.at(rhythm),
        }
    }
}

/// What handing over takes by pause and work.
#[derive(Clone, Debug)]
pub(crate) struct ByRhythm {
    /// Of the measured pauses, ascending: up to which other one none is nearer.
    pauses_end_ns: Vec<u64>,
    /// The same of works.
    works_end_ns: Vec<u64>,
    /// By pause, then by work.
    costs: Vec<Drawn>,
}

impl ByRhythm {
    /// The cost at each measured pause and work, in microseconds.
    pub fn new(pauses_us: &BTreeSet<u32>, works_us: &BTreeSet<u32>, cost: impl Fn(u32, u32) -> Drawn) -> ByRhythm {
        let pairs = pauses_us
            .iter()
            .flat_map(|&pause_us| works_us.iter().map(move |&work_us| (pause_us, work_us)));
        ByRhythm {
            pauses_end_ns: ends_ns(pauses_us),
            works_end_ns: ends_ns(works_us),
            costs: pairs.map(|(pause_us, work_us)| cost(pause_us, work_us)).collect(),
        }
    }

    #[inline]
    fn at(&self, rhythm: Rhythm) -> &Drawn {
        if let [only] = self.costs.as_slice() {
            return only;
        }
        let nearest = |ends_ns: &[u64], ns: u64| ends_ns.iter().take_while(|end_ns| ns > **end_ns).count();
        let pause = nearest(&self.pauses_end_ns, rhythm.pause_ns);
        let work = nearest(&self.works_end_ns, rhythm.work_ns);
        &self.costs[pause * self.works_end_ns.len() + work]
    }
}

/// Up to where each value is the nearest in proportion, to the microsecond; the last has no end.
fn ends_ns(values_us: &BTreeSet<u32>) -> Vec<u64> {
    let above = values_us.iter().skip(1);
    let ends = { values_us.iter().zip(above) }
        .map(|(&below, &above)| (u64::from(below) * u64::from(above)).isqrt() * 1_000 + 999);
    ends.chain([u64::MAX]).collect()
}

/// What an op takes longer by how long its lane was idle and by what it takes without. It settles once caches are cold and
/// clocks are low, so beyond the measured range it is that of the edge and never extrapolated.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The op and what it takes longer: spreads are kept in proportion to medians, and there may be next to nothing longer.
    pub(crate) whole: Grid<2>,
    pub(crate) idle_us_min: u32,
    pub(crate) idle_us_max: u32,
    pub(crate) work_us_min: u32,
    pub(crate) work_us_max: u32,
}

impl Resume {
    /// What `work_us` microseconds of work take longer after `idle_us` microseconds without any, in nanoseconds. `of` says where
    /// within its spread a cost lies.
    pub fn extra_ns(&self, idle_us: u32, work_us: u32, of: impl FnOnce(Cost) -> u64) -> u64 {
        let (near_idle_us, near_work_us) = (
            idle_us.clamp(self.idle_us_min, self.idle_us_max),
            work_us.clamp(self.work_us_min, self.work_us_max),
        );
        let whole_ns = of(self.whole.cost([near_idle_us.into(), near_work_us.into()]));
        let extra_ns = whole_ns.saturating_sub(u64::from(near_work_us) * 1_000);
        // Back to back nothing is lost. Below the least that was measured, of idleness or of work, it is in proportion.
        let part = |us: u32, least: u32| (u64::from(us.min(least)), u64::from(least));
        let (idle, work) = (part(idle_us, self.idle_us_min), part(work_us, self.work_us_min));
        extra_ns * idle.0 / idle.1 * work.0 / work.1
    }

    /// Work after which a lane is as fast as it gets, in microseconds: the most that was measured.
    pub fn warm_after_us(&self) -> u32 {
        self.work_us_max
    }
}
