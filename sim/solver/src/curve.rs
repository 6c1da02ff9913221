//! Mean latency by load: the L of Eq. 1.

use crate::error::Invalid;
use crate::problem::MILLI;

/// The mean latency of the requests that one instance is given in an SLO window, by how many they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeanLatency {
    /// One after the other: `service_ns · (B + 1) / 2` for a load of B, the paper's batch size of 1.
    Serial {
        /// One request's time on an instance that does nothing else.
        service_ns: u64,
    },
    /// Measured: pairs of (load in requests, mean latency in nanoseconds), joined by straight lines. Flat before the
    /// first, and going on like the last piece after the last.
    Points(Vec<(u32, u64)>),
}

/// A straight piece of a curve, in floating point: from one load to another, the latency
/// `start + slope · (load − from)`.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: f64,
    to: f64,
    start: f64,
    slope: f64,
}

const LATENCY_NS_MAX: u64 = 100_000_000_000;
const LOAD_MAX: u32 = 1_000_000;

impl MeanLatency {
    /// `C · L(C / N)`, rounded to a whole nanosecond times a thousandth of a request.
    pub(crate) fn cost(&self, count: u32, load_milli: u64) -> u128 {
        let load = i128::from(load_milli);
        let full = i128::from(count) * i128::from(MILLI);
        let (numerator, denominator) = match self {
            MeanLatency::Serial { service_ns } => (i128::from(*service_ns) * load * (load + full), 2 * full),
            MeanLatency::Points(points) => {
                let (first, last) = (points[0], points[points.len() - 1]);
                // The piece on which the load of one instance lies: compared without dividing.
                let after = points.partition_point(|point| i128::from(point.0) * full < load);
                if after == 0 || points.len() == 1 {
                    let flat = if after == 0 { first.1 } else { last.1 };
                    return u128::from(flat) * u128::from(load_milli);
                }
                let after = after.min(points.len() - 1);
                let ((b0, l0), (b1, l1)) = (points[after - 1], points[after]);
                let width = i128::from(b1 - b0) * full;
                let risen = (i128::from(l1) - i128::from(l0)) * (load - i128::from(b0) * full);
                (load * (i128::from(l0) * width + risen), width)
            }
        };
        ((numerator + denominator / 2) / denominator) as u128
    }

    /// Latency and its slope at a load, for bounds and tangents.
    pub(crate) fn at(&self, load: f64) -> (f64, f64) {
        let piece = self.pieces().find(|piece| load <= piece.to).expect("the last is endless");
        (piece.start + piece.slope * (load - piece.from), piece.slope)
    }

    /// Whether `B · L(B)` is convex, so that a tangent of it is a bound.
    pub(crate) fn is_convex(&self) -> bool {
        let mut steepest = 0.0;
        self.pieces().all(|piece| {
            let steeper = piece.slope >= steepest;
            steepest = piece.slope;
            steeper
        })
    }

    /// The load up to `load_max` at which `L(B) + fee / B` is least, and that least: what a request costs when an
    /// instance costs `fee`.
    pub(crate) fn cheapest(&self, fee: f64, load_max: f64) -> (f64, f64) {
        let mut best = (load_max, f64::INFINITY);
        for piece in self.pieces().take_while(|piece| piece.from < load_max) {
            let to = piece.to.min(load_max);
            // The slope of L(B) + fee / B vanishes at the root of fee / slope.
            let load = if piece.slope > 0.0 {
                (fee / piece.slope).sqrt()
            } else {
                f64::INFINITY
            };
            let load = load.clamp(piece.from, to);
            let price = piece.start + piece.slope * (load - piece.from) + fee / load;
            // With no fee the best is an infinitesimal load, on a flat endless piece an endless one: 0 / 0 and 0 · ∞
            // above.
            let price = if load > 0.0 && load.is_finite() {
                price
            } else {
                piece.start
            };
            if price < best.1 {
                best = (load, price);
            }
        }
        best
    }

    /// The load within a range at which `B · (L(B) − price)` is least, and that least.
    pub(crate) fn best_at_price(&self, price: f64, (low, high): (f64, f64)) -> (f64, f64) {
        let mut best = (low, f64::INFINITY);
        for piece in self.pieces().filter(|piece| piece.from <= high && piece.to >= low) {
            let (from, to) = (piece.from.max(low), piece.to.min(high));
            let constant = piece.start - piece.slope * piece.from - price;
            let vertex = if piece.slope > 0.0 {
                -constant / (2.0 * piece.slope)
            } else {
                to
            };
            for load in [vertex.clamp(from, to), from, to] {
                let value = load * (constant + piece.slope * load);
                if value < best.1 {
                    best = (load, value);
                }
            }
        }
        best
    }

    fn pieces(&self) -> impl Iterator<Item = Piece> + '_ {
        let (serial, points) = match self {
            MeanLatency::Serial { service_ns } => (Some(*service_ns as f64), &[][..]),
            MeanLatency::Points(points) => (None, &points[..]),
        };
        let serial = serial.map(|service_ns| Piece {
            from: 0.0,
            to: f64::INFINITY,
            start: service_ns / 2.0,
            slope: service_ns / 2.0,
        });
        let flat = points.first().map(|&(load, latency_ns)| Piece {
            from: 0.0,
            to: if points.len() == 1 {
                f64::INFINITY
            } else {
                f64::from(load)
            },
            start: latency_ns as f64,
            slope: 0.0,
        });
        let last = points.len().saturating_sub(2);
        let between = points.windows(2).enumerate().map(move |(at, pair)| {
            let ((b0, l0), (b1, l1)) = (pair[0], pair[1]);
            Piece {
                from: f64::from(b0),
                to: if at == last { f64::INFINITY } else { f64::from(b1) },
                start: l0 as f64,
                slope: (l1 as f64 - l0 as f64) / f64::from(b1 - b0),
            }
        });
        serial.into_iter().chain(flat).chain(between)
    }

    pub(crate) fn check(&self, name: &str) -> Result<(), Invalid> {
        let within = |latency_ns: u64| (1..=LATENCY_NS_MAX).contains(&latency_ns);
        match self {
            MeanLatency::Serial { service_ns } => Invalid::unless(within(*service_ns), || {
                format!("{name}.service_ns: must be 1 to {LATENCY_NS_MAX}, got {service_ns}")
            }),
            MeanLatency::Points(points) => {
                Invalid::unless(!points.is_empty(), || format!("{name}: must have a point, got none"))?;
                for (at, &(load, latency_ns)) in points.iter().enumerate() {
                    let (load_before, latency_before) = if at == 0 { (0, 1) } else { points[at - 1] };
                    Invalid::unless(load > load_before && load <= LOAD_MAX, || {
                        format!(
                            "{name}[{at}]: the load must be {} to {LOAD_MAX}, got {load}",
                            load_before + 1
                        )
                    })?;
                    Invalid::unless(within(latency_ns) && latency_ns >= latency_before, || {
                        format!(
                            "{name}[{at}]: the latency must be {latency_before} to {LATENCY_NS_MAX}, got {latency_ns}"
                        )
                    })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> MeanLatency {
        MeanLatency::Points(vec![(1, 100), (2, 140), (4, 300)])
    }

    #[test]
    fn serial_is_half_the_service_time_times_load_and_one() {
        let serial = MeanLatency::Serial { service_ns: 10 };
        // Three instances, twelve requests: loads of four, 10 (4 + 1) / 2 = 25 each.
        assert_eq!(serial.cost(3, 12_000), 12_000 * 25);
        assert_eq!(serial.at(4.0), (25.0, 5.0));
    }

    #[test]
    fn points_are_joined_flat_before_and_extended_after() {
        let cost_of_one = |load_milli: u64| measured().cost(1, load_milli) as f64 / load_milli as f64;
        assert_eq!(cost_of_one(500), 100.0);
        assert_eq!(cost_of_one(1_000), 100.0);
        assert_eq!(cost_of_one(1_500), 120.0);
        assert_eq!(cost_of_one(4_000), 300.0);
        assert_eq!(cost_of_one(6_000), 460.0);
        assert_eq!(measured().at(1.5), (120.0, 40.0));
        assert_eq!(measured().at(6.0), (460.0, 80.0));
        assert!(measured().is_convex());
        assert!(!MeanLatency::Points(vec![(1, 100), (2, 200), (4, 250)]).is_convex());
    }

    #[test]
    fn the_cheapest_load_and_the_best_at_a_price_are_found() {
        for curve in [
            MeanLatency::Serial { service_ns: 10 },
            measured(),
            MeanLatency::Points(vec![(2, 70)]),
            MeanLatency::Points(vec![(1, 100), (2, 200), (4, 250)]),
        ] {
            for fee in [0.0, 3.0, 50.0, 400.0, 9_000.0] {
                let loads = || (1..=800).map(|tenth| f64::from(tenth) / 100.0);
                let least = loads().map(|load| curve.at(load).0 + fee / load).fold(f64::INFINITY, f64::min);
                let (load, price) = curve.cheapest(fee, 8.0);
                assert!(
                    load <= 8.0 && price <= least + 1e-9,
                    "{curve:?} {fee}: {price} at {load}, {least}"
                );
                assert!(
                    price > least - 0.1 - fee / 50.0,
                    "{curve:?} {fee}: {price} at {load}, {least}"
                );
                let within = || loads().filter(|load| (1.5..=6.0).contains(load));
                let least = within().map(|load| load * (curve.at(load).0 - fee)).fold(f64::INFINITY, f64::min);
                let (load, value) = curve.best_at_price(fee, (1.5, 6.0));
                assert!((1.5..=6.0).contains(&load), "{curve:?} {fee}: {load}");
                assert!(
                    value <= least + 1e-9 && value > least - 0.2,
                    "{curve:?} {fee}: {value}, {least}"
                );
            }
        }
    }
}
