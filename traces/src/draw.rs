//! Draws that depend on nothing but their key.
//!
//! A draw about a request is a pure function of `(seed, purpose, ticket, index)`, so that neither a policy, nor the
//! order of systems, nor the number of threads can change the workload. The function is SplitMix64 (Steele, Lea and
//! Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): a Weyl counter with a 64-bit mixing function,
//! here used with the counter given rather than kept. Transcendental functions come from `libm`, since the platform's
//! differ by processor.

use std::convert::Infallible;

use rand::rand_core::TryRng;

use crate::ziggurat::{EXPONENTIAL, LAYERS, Layers, TAIL};

/// What a draw is for. Two purposes never share a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Gaps between arrivals.
    Arrival = 1,
    /// Which tenant a request belongs to.
    Tenant = 2,
    /// Input lengths.
    InputLength = 3,
    /// Output lengths.
    OutputLength = 4,
    /// Token ids of a request's input.
    Tokens = 5,
    /// What a stage's model makes of a request.
    Outcome = 6,
    /// Spread of an operation's duration about its median.
    Jitter = 7,
    /// Weights of models and adapters.
    Weights = 8,
    /// Whether and when a client gives up.
    Cancellation = 9,
    /// Per-tenant properties: phase, domain, kind, activity.
    TenantProperty = 10,
    /// How the rate of arrivals changes: dwell times and states.
    Rate = 11,
    /// Whether a tenant that is awake in part sends.
    Presence = 12,
    /// A router's coins, such as a cascade's dispatcher.
    Dispatch = 13,
    /// Points of a sweep.
    Sweep = 14,
    /// How many words of a request are pruned, and which wrong answer a model gives.
    Answer = 15,
    /// Management requests: when, what, and of whom.
    Management = 16,
    /// Where a sequence ends.
    EndOfSequence = 17,
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The draws of one purpose under one seed, addressed by `(ticket, index)`.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    key: u64,
}

impl Draws {
    /// The draws for `purpose` under `seed`.
    pub fn new(seed: u64, purpose: Purpose) -> Draws {
        Draws {
            key: mix(mix(seed.wrapping_add(GOLDEN_GAMMA)) ^ (purpose as u64).wrapping_mul(GOLDEN_GAMMA)),
        }
    }

    /// The draws of one of several parts that have the purpose in common, such as superposed arrivals.
    pub fn part(self, part: u64) -> Draws {
        Draws {
            key: mix(self.key ^ part.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA)),
        }
    }

    /// A stream of draws about `ticket`.
    #[inline]
    pub fn about(self, ticket: u64) -> Stream {
        Stream {
            state: mix(self.key ^ mix(ticket.wrapping_add(GOLDEN_GAMMA))),
        }
    }
}

/// The upper 53 bits as a number in `[0, 1)`; a signed number is the quicker to convert.
#[inline]
fn to_unit(bits: u64) -> f64 {
    (bits >> 11) as i64 as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Consecutive draws from one key: SplitMix64. It is a `rand` generator, so that `rand_distr` can draw from it.
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// 64 uniform bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }

    /// As if [`bits`](Self::bits) had been called `times` more times.
    #[must_use]
    pub fn skipped(mut self, times: u64) -> Stream {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA.wrapping_mul(times));
        self
    }

    /// Uniform in `[0, 1)`, on a grid of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        to_unit(self.bits())
    }

    /// Uniform in `0..n` (Lemire's multiplication; the bias is below n / 2^64).
    ///
    /// # Panics
    /// If `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a draw needs at least one choice");
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1, by the ziggurat method: one draw of the stream in 99 cases of 100, without a logarithm.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        let bits = self.bits();
        // The layer's bits and the position's do not overlap.
        let layer = (bits & (LAYERS as u64 - 1)) as usize;
        let Layers { x, .. } = &*EXPONENTIAL;
        let candidate = to_unit(bits) * x[layer];
        if candidate < x[layer + 1] {
            candidate
        } else {
            self.exponential_at_the_edge(layer, candidate)
        }
    }

    /// The hundredth case, apart so that the others are inlined.
    #[cold]
    fn exponential_at_the_edge(&mut self, layer: usize, candidate: f64) -> f64 {
        let Layers { f, .. } = &*EXPONENTIAL;
        if layer == 0 {
            // Without memory, the tail is the whole again.
            TAIL - libm::log(1.0 - self.unit())
        } else if f[layer + 1] + (f[layer] - f[layer + 1]) * self.unit() < libm::exp(-candidate) {
            candidate
        } else {
            self.exponential()
        }
    }

    /// Standard normal (Box and Muller's transform, one of the pair).
    #[inline]
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(std::f64::consts::TAU * self.unit())
    }

    /// Gamma of the given shape and scale 1, by rejection (Marsaglia and Tsang, "A simple method for generating gamma
    /// variables", ACM TOMS 26(3), 2000). It takes as many draws of the stream as it needs.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // Section 6 of the paper: gamma(a) is gamma(a + 1) times U^(1/a).
            // An exponential is the negative logarithm of a uniform.
            return self.gamma(shape + 1.0) * libm::exp(-self.exponential() / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let z = self.normal();
            let base = 1.0 + c * z;
            let v = base * base * base;
            if v <= 0.0 {
                continue;
            }
            // Step 4's squeeze spares most logarithms.
            let u = 1.0 - self.unit();
            if u < 1.0 - 0.0331 * (z * z) * (z * z) || libm::log(u) < 0.5 * z * z + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.bits() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.bits())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::Distribution;

    use super::*;

    #[test]
    fn reference_values_are_pinned() {
        // SplitMix64 from state 0, as in the reference implementation.
        let mut stream = Stream { state: 0 };
        assert_eq!(stream.bits(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(stream.bits(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(stream.bits(), 0x06C4_5D18_8009_454F);
    }

    #[test]
    fn purposes_and_tickets_are_independent_streams() {
        let a = Draws::new(7, Purpose::Arrival).about(1).bits();
        assert_ne!(a, Draws::new(7, Purpose::Tenant).about(1).bits());
        assert_ne!(a, Draws::new(7, Purpose::Arrival).about(2).bits());
        assert_ne!(a, Draws::new(8, Purpose::Arrival).about(1).bits());
        assert_eq!(a, Draws::new(7, Purpose::Arrival).about(1).bits());
    }

    #[test]
    fn exponentials_are_exponential() {
        let mut stream = Draws::new(3, Purpose::Arrival).about(0);
        let n = 1_000_000;
        let mut sample: Vec<f64> = (0..n).map(|_| stream.exponential()).collect();
        sample.sort_unstable_by(f64::total_cmp);
        let distance = sample
            .iter()
            .enumerate()
            .map(|(rank, x)| ((rank as f64 + 0.5) / f64::from(n) - (1.0 - libm::exp(-x))).abs())
            .fold(0.0, f64::max);
        // Kolmogorov's statistic exceeds 1.95 / sqrt(n) once in a thousand.
        assert!(distance < 1.95 / f64::from(n).sqrt(), "{distance}");
        // The tail, beyond which one in 2 200 falls.
        let beyond = sample.iter().filter(|&&x| x > TAIL).count() as f64 / f64::from(n);
        assert!((beyond / libm::exp(-TAIL) - 1.0).abs() < 0.2, "{beyond}");
    }

    /// Ours give the same bits on every machine, which `rand_distr`'s do not; they are distributed as its are.
    #[test]
    fn draws_are_distributed_as_those_of_rand_distr() {
        let n = 100_000;
        let distance = |about: u64, ours: &dyn Fn(&mut Stream) -> f64, theirs: &dyn Fn(&mut Stream) -> f64| {
            let sorted = |about: u64, draw: &dyn Fn(&mut Stream) -> f64| {
                let mut stream = Draws::new(5, Purpose::Arrival).about(about);
                let mut sample: Vec<f64> = (0..n).map(|_| draw(&mut stream)).collect();
                sample.sort_unstable_by(f64::total_cmp);
                sample
            };
            let (ours, theirs) = (sorted(about, ours), sorted(about + 1, theirs));
            let below = |x: &f64| theirs.partition_point(|y| y <= x);
            let ranks = ours.iter().enumerate();
            let apart = ranks.map(|(rank, x)| (below(x) as f64 - (rank as f64 + 0.5)).abs());
            apart.fold(0.0, f64::max) / f64::from(n)
        };
        let gamma = |shape: f64| {
            let theirs = rand_distr::Gamma::new(shape, 1.0).unwrap();
            distance(shape.to_bits(), &|stream| stream.gamma(shape), &|stream| {
                theirs.sample(stream)
            })
        };
        let distances = [
            distance(0, &Stream::exponential, &|stream| rand_distr::Exp1.sample(stream)),
            distance(2, &Stream::normal, &|stream| rand_distr::StandardNormal.sample(stream)),
            gamma(0.3),
            gamma(1.0),
            gamma(7.5),
        ];
        // Smirnov's statistic of two samples exceeds 1.95 sqrt(2 / n) once in a thousand.
        let most = 1.95 * (2.0 / f64::from(n)).sqrt();
        assert!(distances.iter().all(|distance| *distance < most), "{distances:?}");
        // And such as are not are told apart.
        let other = distance(4, &Stream::exponential, &|stream| 1.02 * stream.exponential());
        assert!(other > most, "{other}");
    }

    #[test]
    fn moments_are_right() {
        let mut stream = Draws::new(1, Purpose::Arrival).about(0);
        let n = 200_000;
        let (mut unit, mut exponential, mut normal, mut normal_squared) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..n {
            unit += stream.unit();
            exponential += stream.exponential();
            let z = stream.normal();
            normal += z;
            normal_squared += z * z;
        }
        let n = f64::from(n);
        assert!((unit / n - 0.5).abs() < 0.003);
        assert!((exponential / n - 1.0).abs() < 0.01);
        assert!((normal / n).abs() < 0.01);
        assert!((normal_squared / n - 1.0).abs() < 0.02);
    }
}
