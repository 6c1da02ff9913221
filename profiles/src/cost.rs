//! What an op costs: a median, its measured mean and spread, and a draw from it.

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

    /// The `k` with which [`Cost::at_quantile`] has the measured mean. A segment that rises as `t^k` has its own mean
    /// at `1 / (k + 1)` of its height, so that the mean of all is linear in that share.
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

/// A [`Cost`] that is drawn from again and again: what its spread takes to be computed is, and what can be a product is
/// no division. No larger than it must be, since many are kept.
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
            false => self.nearly(place.u, || place.log2, || place.log2).unwrap_or_else(|| self.defined(place.u)),
        }
    }

    fn varied(&self, u: f64) -> u64 {
        self.nearly(u, || log2_to_p95(u), || log2_to_p99(u)).unwrap_or_else(|| self.defined(u))
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
    /// Whether more was asked than was measured, not less.
    pub fn is_above(&self) -> bool {
        self.asked > self.measured
    }

    /// How many times what was measured, or one over that where less was asked; above 1.
    pub fn factor(&self) -> f64 {
        let (asked, measured) = (self.asked.max(1) as f64, self.measured.max(1) as f64);
        (asked / measured).max(measured / asked)
    }
}

impl std::fmt::Display for Beyond {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Beyond { axis, asked, measured } = self;
        let bound = if self.is_above() { "up to" } else { "from" };
        write!(formatter, "{axis} {asked}, measured {bound} {measured}")
    }
}
