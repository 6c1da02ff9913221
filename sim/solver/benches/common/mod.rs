//! Problems of the paper's sizes (Arlo, Table 2), whose demand the paper does not give: drawn around the tweets'
//! lengths.

use tenantry_solver::{MeanLatency, Problem, Runtime};

/// (cards, runtimes, the paper's seconds with Gurobi).
pub const TABLE_2: [(u32, u32, f64); 3] = [(50, 8, 0.156), (200, 12, 0.623), (1000, 16, 2.612)];

/// The `draw`-th problem of a size: BERT-base's times over 512 tokens (1.152 ms at 64, 4.86 ms at 512) and an SLO of
/// 150 ms; lengths lognormal with the tweets' median and 98th percentile recalibrated to 512 (86 and 295 tokens), each
/// bin's share shifted by up to half; from light load to more than the cards can serve within the SLO.
pub fn problem(cards: u32, runtimes: u32, draw: u64) -> Problem {
    let mut random = Random(draw * 1000 + u64::from(cards));
    let step = 512.0 / f64::from(runtimes);
    let slo_ns = 150e6;
    let service_ns = |length: f64| 1.152e6 + (4.86e6 - 1.152e6) * (length - 64.0).max(0.0) / 448.0;
    let median: f64 = 86.0;
    let deviation = libm::log(295.0 / 86.0) / 2.054;
    let below = |length: f64| 0.5 * libm::erfc(-libm::log(length / median) / deviation / std::f64::consts::SQRT_2);
    let mut shares = Vec::new();
    let mut built = Vec::new();
    for at in 0..runtimes {
        let (from, to) = (step * f64::from(at), step * f64::from(at + 1));
        let lower = if at == 0 { 0.0 } else { below(from) };
        shares.push((below(to) - lower) * (0.5 + random.uniform()));
        built.push(Runtime {
            max_length: to.round() as u32,
            capacity: (slo_ns / service_ns(to)) as u32,
            latency: MeanLatency::Serial {
                service_ns: service_ns(to) as u64,
            },
        });
    }
    // The share of all cards' capacity that is asked for: 0.3 to 1.0.
    let load = 0.3 + 0.7 * random.uniform();
    let cards_a_request: f64 =
        shares.iter().zip(&built).map(|(share, runtime)| share / f64::from(runtime.capacity)).sum();
    let requests = load * f64::from(cards) / cards_a_request;
    Problem {
        demand_milli: shares.iter().map(|share| (share * requests * 1000.0) as u64).collect(),
        runtimes: built,
        cards,
        instances_per_card: 1,
        previous: Vec::new(),
        longest_within_capacity: false,
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
