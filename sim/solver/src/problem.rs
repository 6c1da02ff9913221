//! The program's input, its check, and what an allocation costs (Arlo, section 3.3, Eqs. 1 to 7).

use tenantry_core::policy::fleet::SOLVED_INSTANCES_MAX;

use crate::curve::MeanLatency;
use crate::error::Invalid;

/// Demand is counted in thousandths of a request, so that carries and ties are exact.
pub const MILLI: u64 = 1000;

/// One runtime: the model compiled for one input length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The longest request that it serves, in tokens.
    pub max_length: u32,
    /// M: how many requests one instance finishes within the SLO.
    pub capacity: u32,
    /// L: mean latency of the requests that one instance is given in an SLO window.
    pub latency: MeanLatency,
}

/// How many instances of each runtime, given what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// By ascending `max_length`.
    pub runtimes: Vec<Runtime>,
    /// Q: thousandths of a request in an SLO window, one entry a runtime: those that fit it and no shorter one.
    pub demand_milli: Vec<u64>,
    /// G, before each card is cut.
    pub cards: u32,
    /// How many instances share a card; capacities and latencies are then those of a sharing instance. The paper has 1.
    pub instances_per_card: u32,
    /// The allocation in force, from which ties are broken; empty at the start.
    pub previous: Vec<u32>,
    /// Whether the longest runtime may have no more to do than it finishes within the SLO. The paper's may have
    /// anything (Eq. 5): see `capacity.rs`.
    pub longest_within_capacity: bool,
}

/// What an allocation costs that the problem does not permit.
pub(crate) const FORBIDDEN: u128 = u128::MAX;

/// What Eqs. 4 and 5 make of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// C: thousandths of a request that each runtime serves in a window.
    pub load_milli: Vec<u64>,
    /// R: thousandths of a request that each runtime leaves to the next longer one; zero for the longest.
    pub spill_milli: Vec<u64>,
    /// Eq. 1: the sum of latencies, in nanoseconds times thousandths of a request.
    pub cost: u128,
}

/// Demand, Q, of a stretch of time: each bin's requests, scaled to one SLO window and rounded to thousandths.
///
/// With the counts of one scheduling period it is what the runtime scheduler solves for; with a whole trace's, the
/// paper's "global" ablation (Table 3).
pub fn demand_milli(requests: &[u64], span_ns: u64, slo_ns: u64) -> Vec<u64> {
    assert!(span_ns > 0, "requests were counted over some time");
    let per_window = |&count: &u64| {
        let scaled = u128::from(count) * u128::from(MILLI) * u128::from(slo_ns);
        let rounded = (scaled + u128::from(span_ns) / 2) / u128::from(span_ns);
        u64::try_from(rounded).expect("a window holds fewer than 2^64 thousandths of a request")
    };
    requests.iter().map(per_window).collect()
}

impl Problem {
    /// G: how many instances there are to give out.
    pub fn instances(&self) -> u32 {
        self.cards * self.instances_per_card
    }

    /// Eqs. 3 and 7: the fewest instances that each runtime may have.
    pub fn floors(&self) -> Vec<u64> {
        let last = self.runtimes.len() - 1;
        let floor = |(at, runtime): (usize, &Runtime)| {
            let full = self.demand_milli[at] / (MILLI * u64::from(runtime.capacity));
            if at == last { full.max(1) } else { full }
        };
        self.runtimes.iter().enumerate().map(floor).collect()
    }

    /// Follows requests through an allocation, by Eqs. 4 to 6, whether or not it keeps to Eq. 3.
    ///
    /// # Panics
    /// When the longest runtime has no instance, or there is not one count a runtime.
    pub fn flow(&self, counts: &[u32]) -> Flow {
        assert_eq!(counts.len(), self.runtimes.len(), "one count a runtime");
        let last = counts.len() - 1;
        let mut flow = Flow {
            load_milli: Vec::with_capacity(counts.len()),
            spill_milli: Vec::with_capacity(counts.len()),
            cost: 0,
        };
        let mut carry = 0;
        for (at, &count) in counts.iter().enumerate() {
            let (load, spill) = if at == last {
                (carry + self.demand_milli[at], 0)
            } else {
                self.serve(at, count, carry)
            };
            flow.cost += self.cost(at, count, load);
            flow.load_milli.push(load);
            flow.spill_milli.push(spill);
            carry = spill;
        }
        flow
    }

    /// Eq. 1, as [`Problem::flow`] has it; [`FORBIDDEN`] where the longest runtime has more to do than it may.
    pub(crate) fn total_cost(&self, counts: &[u32]) -> u128 {
        let last = counts.len() - 1;
        let mut carry = 0;
        let mut total = 0;
        for (at, &count) in counts[..last].iter().enumerate() {
            let (load, spill) = self.serve(at, count, carry);
            total += self.cost(at, count, load);
            carry = spill;
        }
        let load = carry + self.demand_milli[last];
        match self.permits(counts[last], load) {
            true => total + self.cost(last, counts[last], load),
            false => FORBIDDEN,
        }
    }

    /// Whether so many instances of the longest runtime may have so much to do.
    pub(crate) fn permits(&self, count: u32, load_milli: u64) -> bool {
        !self.longest_within_capacity || self.excess_milli(count, load_milli) == 0
    }

    /// How much of that is beyond what they finish within the SLO.
    pub(crate) fn excess_milli(&self, count: u32, load_milli: u64) -> u64 {
        let longest = &self.runtimes[self.runtimes.len() - 1];
        load_milli.saturating_sub(u64::from(count) * u64::from(longest.capacity) * MILLI)
    }

    /// What a runtime that is not the longest serves, and what it leaves (Eqs. 4 and 5).
    pub(crate) fn serve(&self, at: usize, count: u32, carry_milli: u64) -> (u64, u64) {
        let asked = carry_milli + self.demand_milli[at];
        let load = asked.min(u64::from(count) * u64::from(self.runtimes[at].capacity) * MILLI);
        (load, asked - load)
    }

    /// One term of Eq. 1.
    pub(crate) fn cost(&self, at: usize, count: u32, load_milli: u64) -> u128 {
        if load_milli == 0 {
            return 0;
        }
        self.runtimes[at].latency.cost(count, load_milli)
    }

    /// How many instances must load a runtime that they do not have now.
    pub fn changes(&self, counts: &[u32]) -> u32 {
        if self.previous.is_empty() {
            return 0;
        }
        let added = |(now, before): (&u32, &u32)| now.saturating_sub(*before);
        counts.iter().zip(&self.previous).map(added).sum()
    }

    /// Refuses what the solvers cannot take, naming the field.
    pub fn check(&self) -> Result<(), Invalid> {
        let runtimes = self.runtimes.len();
        Invalid::unless(runtimes > 0, || "runtimes: must have at least one, got none".into())?;
        for (name, length) in [
            ("demand_milli", self.demand_milli.len()),
            ("previous", self.previous.len()),
        ] {
            let absent = name == "previous" && length == 0;
            Invalid::unless(absent || length == runtimes, || {
                format!("{name}: must have one entry a runtime ({runtimes}), got {length}")
            })?;
        }
        let total = u64::from(self.cards) * u64::from(self.instances_per_card);
        Invalid::unless((1..=LIMITS.instances).contains(&total), || {
            format!(
                "cards times instances_per_card: must be 1 to {}, got {total}",
                LIMITS.instances
            )
        })?;
        for (at, runtime) in self.runtimes.iter().enumerate() {
            let longer = at == 0 || runtime.max_length > self.runtimes[at - 1].max_length;
            Invalid::unless(longer, || {
                let before = self.runtimes[at - 1].max_length;
                let got = runtime.max_length;
                format!(
                    "runtimes[{at}].max_length: must be above runtimes[{}]'s {before}, got {got}",
                    at - 1
                )
            })?;
            Invalid::unless((1..=LIMITS.capacity).contains(&runtime.capacity), || {
                let got = runtime.capacity;
                format!("runtimes[{at}].capacity: must be 1 to {}, got {got}", LIMITS.capacity)
            })?;
            runtime.latency.check(&format!("runtimes[{at}].latency"))?;
        }
        for (at, &demand) in self.demand_milli.iter().enumerate() {
            Invalid::unless(demand <= LIMITS.demand_milli, || {
                format!(
                    "demand_milli[{at}]: must be at most {}, got {demand}",
                    LIMITS.demand_milli
                )
            })?;
        }
        Ok(())
    }
}

/// Bounds within which every sum is exact in 128 bits.
pub(crate) struct Limits {
    pub instances: u64,
    pub capacity: u32,
    pub demand_milli: u64,
}

pub(crate) const LIMITS: Limits = Limits {
    instances: SOLVED_INSTANCES_MAX as u64,
    capacity: 1_000_000,
    demand_milli: 10_000_000_000,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn serial(max_length: u32, capacity: u32, service_ns: u64) -> Runtime {
        Runtime {
            max_length,
            capacity,
            latency: MeanLatency::Serial { service_ns },
        }
    }

    fn two() -> Problem {
        Problem {
            runtimes: vec![serial(64, 10, 100), serial(128, 5, 200)],
            demand_milli: vec![24_500, 3_000],
            cards: 4,
            instances_per_card: 1,
            previous: Vec::new(),
            longest_within_capacity: false,
        }
    }

    #[test]
    fn what_does_not_fit_is_demoted() {
        let flow = two().flow(&[2, 2]);
        assert_eq!(flow.load_milli, [20_000, 7_500]);
        assert_eq!(flow.spill_milli, [4_500, 0]);
        // 20 requests at 100 (10 + 1) / 2 and 7.5 at 200 (3.75 + 1) / 2.
        assert_eq!(flow.cost, 20_000 * 550 + 7_500 * 475);
    }

    #[test]
    fn the_longest_serves_all_it_is_given() {
        let flow = two().flow(&[0, 1]);
        assert_eq!(flow.load_milli, [0, 27_500]);
        assert_eq!(flow.cost, 27_500 * 2_850);
    }

    #[test]
    fn what_is_forbidden_costs_more_than_anything() {
        let within = Problem {
            longest_within_capacity: true,
            ..two()
        };
        // Two of the longest serve ten requests, and one five.
        assert_eq!(within.total_cost(&[2, 2]), two().total_cost(&[2, 2]));
        assert_eq!(within.total_cost(&[2, 1]), FORBIDDEN);
        assert_eq!(within.excess_milli(1, 7_500), 2_500);
    }

    #[test]
    fn floors_count_full_instances_and_one_of_the_longest() {
        assert_eq!(two().floors(), [2, 1]);
    }

    #[test]
    fn demand_is_scaled_to_a_window() {
        // 800 windows of 150 ms in 120 s.
        assert_eq!(demand_milli(&[800, 1, 0], 120_000_000_000, 150_000_000), [1000, 1, 0]);
    }

    #[test]
    fn errors_name_the_field() {
        let mut problem = two();
        problem.runtimes[1].max_length = 64;
        let error = problem.check().expect_err("not ascending").to_string();
        assert_eq!(error, "runtimes[1].max_length: must be above runtimes[0]'s 64, got 64");
        let mut problem = two();
        problem.runtimes[0].capacity = 0;
        let error = problem.check().expect_err("no capacity").to_string();
        assert_eq!(error, "runtimes[0].capacity: must be 1 to 1000000, got 0");
        let mut problem = two();
        problem.cards = 0;
        assert!(problem.check().is_err());
    }
}
