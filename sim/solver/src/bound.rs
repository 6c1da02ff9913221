//! What both solvers know before they start: a good allocation, a lower bound by pricing cards, and so the few counts
//! of each runtime that can still be part of an optimum.
//!
//! Charge a fee for every instance and give all instances back for it: `min Σ cost ≥ min Σ (cost + fee · N) − fee · G`
//! (a Lagrangian relaxation of Eq. 2). With fractional instances and free demotion the right side falls apart into a
//! price for a request of each length, linear in the carry, which makes it a bound for every partial allocation at the
//! cost of two multiplications. Integrality is all that it ignores, so it lies within a per cent or less.

use crate::allocation::Status;
use crate::capacity;
use crate::problem::{FORBIDDEN, MILLI, Problem};

/// Floating-point bounds are trusted up to this share of the incumbent, far above their rounding.
const SLACK: f64 = 1e-9;

/// The priced relaxation, and the best allocation found without search.
#[derive(Debug)]
pub(crate) struct Bound {
    fee: f64,
    /// By runtime: a lower bound of `cost + fee · N` at load C is `fixed + slope · C`.
    fixed: Vec<f64>,
    slope: Vec<f64>,
    /// By runtime, and one more: what a thousandth of a request costs at least at this runtime or a longer one.
    price: Vec<f64>,
    /// By runtime, and one more: the bound on this and all longer runtimes without a carry.
    rest: Vec<f64>,
    /// The best allocation that local search found.
    pub(crate) incumbent: Vec<u32>,
    pub(crate) incumbent_cost: u128,
    /// No optimum costs more: the incumbent's cost and the slack.
    limit: f64,
}

impl Bound {
    /// For a problem that is sound and whose floors fit; nothing where no allocation gives the longest runtime as
    /// little as it may have.
    pub(crate) fn new(problem: &Problem, floors: &[u64]) -> Option<Bound> {
        let fee = best_fee(problem, floors);
        let (incumbent, cost) = search(problem, floors, fee)?;
        Some(Bound {
            limit: cost as f64 * (1.0 + SLACK) + 1.0,
            incumbent,
            incumbent_cost: cost,
            ..Bound::at_fee(problem, floors, fee)
        })
    }

    fn at_fee(problem: &Problem, floors: &[u64], fee: f64) -> Bound {
        let runtimes = problem.runtimes.len();
        let mut bound = Bound {
            fee,
            fixed: vec![0.0; runtimes],
            slope: vec![0.0; runtimes],
            price: vec![f64::INFINITY; runtimes + 1],
            rest: vec![0.0; runtimes + 1],
            incumbent: Vec::new(),
            incumbent_cost: 0,
            limit: 0.0,
        };
        for at in 0..runtimes {
            let curve = &problem.runtimes[at].latency;
            (_, bound.slope[at]) = curve.cheapest(fee / MILLI as f64, load_max(problem, at));
        }
        bound.force_longest(problem, floors[runtimes - 1]);
        for at in (0..runtimes).rev() {
            bound.price[at] = bound.price[at + 1].min(bound.slope[at]);
            bound.rest[at] = bound.rest[at + 1] + bound.fixed[at] + problem.demand_milli[at] as f64 * bound.price[at];
        }
        bound
    }

    /// The longest runtime may have to have more instances than the fee would buy for its own demand (Eq. 7). Then a
    /// tangent at the load that they get is the better bound, if tangents are bounds: the one with the highest total.
    /// (The others need not: their floors are full instances.)
    fn force_longest(&mut self, problem: &Problem, floor: u64) {
        let last = problem.runtimes.len() - 1;
        let curve = &problem.runtimes[last].latency;
        let (fullest, _) = curve.cheapest(self.fee / MILLI as f64, load_max(problem, last));
        let forced = floor as f64;
        let demand = problem.demand_milli[last] as f64;
        let own = demand / (forced * MILLI as f64);
        if own >= fullest || !curve.is_convex() {
            return;
        }
        // The least that a request of each length costs before it comes to the longest.
        let mut price = f64::INFINITY;
        let mut prices = vec![0.0; last];
        for at in (0..last).rev() {
            price = self.slope[at].min(price);
            prices[at] = price;
        }
        let total = |slope: f64, fixed: f64| {
            let demands = problem.demand_milli[..last].iter().zip(&prices);
            fixed + demand * slope + demands.map(|(&demand, price)| demand as f64 * price.min(slope)).sum::<f64>()
        };
        let mut best = total(self.slope[last], 0.0);
        // The total is concave in the slope, and highest at a price, or where the load is that of the lengths demoted.
        let mut sum = demand;
        let demoted = (0..last).rev().map(|at| {
            sum += problem.demand_milli[at] as f64;
            sum / (forced * MILLI as f64)
        });
        let at_prices = prices.iter().map(|&price| curve.best_at_price(price, (own, fullest)).0);
        for load in std::iter::once(own).chain(demoted).chain(at_prices) {
            let load = load.clamp(own, fullest);
            let (latency, steepness) = curve.at(load);
            let slope = latency + load * steepness;
            let fixed = forced * (self.fee + load * MILLI as f64 * (latency - slope));
            let found = total(slope, fixed);
            if found > best {
                (best, self.slope[last], self.fixed[last]) = (found, slope, fixed);
            }
        }
    }

    /// The same that excludes nothing unless it costs more than so many times the incumbent.
    #[cfg(test)]
    pub(crate) fn opened(self, times: f64) -> Bound {
        Bound {
            limit: times * self.limit,
            ..self
        }
    }

    /// No allocation costs less.
    pub(crate) fn lower(&self, instances: u32) -> f64 {
        self.rest[0] - self.fee * f64::from(instances)
    }

    /// What is said of the incumbent when a solver gives up.
    pub(crate) fn gave_up(&self, instances: u32) -> Status {
        Status::Limit(gap(self.incumbent_cost, self.lower(instances)))
    }

    /// Whether a partial allocation, of the runtimes before `next`, can be part of an optimum.
    pub(crate) fn admits(&self, next: usize, left: u32, carry_milli: u64, cost: u128) -> bool {
        let carried = if carry_milli == 0 {
            0.0
        } else {
            carry_milli as f64 * self.price[next]
        };
        cost as f64 + carried + self.rest[next] - self.fee * f64::from(left) <= self.limit
    }

    /// By how much one count of a runtime raises the lower bound, given what is carried to it; and what it carries on.
    /// Never less than nothing, but for rounding, and along a whole allocation its cost less the bound.
    #[cfg(feature = "highs")]
    pub(crate) fn excess_of(&self, problem: &Problem, at: usize, count: u32, carry_milli: u64) -> (f64, u64) {
        let (load, carried) = if at + 1 == problem.runtimes.len() {
            (carry_milli + problem.demand_milli[at], 0)
        } else {
            problem.serve(at, count, carry_milli)
        };
        let priced = |at: usize, carry: u64| match carry {
            0 => self.rest[at],
            _ => self.rest[at] + carry as f64 * self.price[at],
        };
        let paid = problem.cost(at, count, load) as f64 + self.fee * f64::from(count);
        (paid + priced(at + 1, carried) - priced(at, carry_milli), carried)
    }

    /// By runtime: the counts that can be part of an optimum.
    pub(crate) fn counts(&self, problem: &Problem, floors: &[u64]) -> Vec<Vec<u32>> {
        let instances = u64::from(problem.instances());
        let spare = instances - floors.iter().sum::<u64>();
        let room = self.room(problem.instances());
        let counts_of = |at: usize| {
            let excess = self.excess(problem, floors, at);
            let counts = (floors[at]..=floors[at] + spare).map(|count| count as u32);
            counts.filter(|&count| excess(count) <= room).collect()
        };
        (0..problem.runtimes.len()).map(counts_of).collect()
    }

    /// By how much a count of a runtime raises the lower bound, with the best load that it can have. Those of all
    /// runtimes add up.
    pub(crate) fn excess(&self, problem: &Problem, floors: &[u64], at: usize) -> impl Fn(u32) -> f64 {
        let full = |at: usize| u64::from(problem.runtimes[at].capacity) * MILLI;
        let demand = problem.demand_milli[at];
        // Each shorter runtime has its full instances, and leaves no more than the rest.
        let carry_max = (0..at)
            .map(|shorter| problem.demand_milli[shorter] - floors[shorter] * full(shorter))
            .sum::<u64>();
        let takes_all = takes_all(problem, at);
        let (full, curve) = (full(at), &problem.runtimes[at].latency);
        let (fee, fixed, slope) = (self.fee, self.fixed[at], self.slope[at]);
        move |count| {
            if count == 0 {
                return -fixed;
            }
            let capacity = if takes_all { u64::MAX } else { u64::from(count) * full };
            let instances = f64::from(count) * MILLI as f64;
            let each = |load: u64| load.min(capacity) as f64 / instances;
            let (_, least) = curve.best_at_price(slope, (each(demand), each(demand + carry_max)));
            fee * f64::from(count) - fixed + instances * least
        }
    }

    /// By how much the lower bound may be raised before it excludes an optimum.
    pub(crate) fn room(&self, instances: u32) -> f64 {
        self.limit - self.lower(instances)
    }
}

/// The share of a cost that lies above a lower bound.
pub(crate) fn gap(cost: u128, lower: f64) -> f64 {
    if cost == 0 {
        return 0.0;
    }
    ((cost as f64 - lower) / cost as f64).max(0.0)
}

/// Whether it is the longest runtime, and takes whatever is left (Eq. 5).
fn takes_all(problem: &Problem, at: usize) -> bool {
    at + 1 == problem.runtimes.len() && !problem.longest_within_capacity
}

/// What an instance of a runtime may have to do in a window, in requests.
fn load_max(problem: &Problem, at: usize) -> f64 {
    if takes_all(problem, at) {
        f64::INFINITY
    } else {
        f64::from(problem.runtimes[at].capacity)
    }
}

/// The fee with the highest bound, by narrowing an interval a fixed number of times; any fee gives a valid one.
fn best_fee(problem: &Problem, floors: &[u64]) -> f64 {
    let instances = problem.instances();
    let lower = |fee: f64| Bound::at_fee(problem, floors, fee).lower(instances);
    // Above the cost of serving all by one of the longest, no instance is worth it.
    let last = problem.runtimes.len() - 1;
    let total = problem.demand_milli.iter().sum::<u64>();
    let (mut low, mut high) = (0.0, problem.cost(last, 1, total) as f64);
    for _ in 0..50 {
        let (left, right) = (low + (high - low) * 0.45, low + (high - low) * 0.55);
        if lower(left) < lower(right) {
            low = left;
        } else {
            high = right;
        }
    }
    (low + high) / 2.0
}

/// A good allocation: what the fee would buy, topped up, then single instances moved while that helps. Nothing where
/// there is none.
fn search(problem: &Problem, floors: &[u64], fee: f64) -> Option<(Vec<u32>, u128)> {
    let instances = u64::from(problem.instances());
    let mut spare = instances - floors.iter().sum::<u64>();
    let mut counts: Vec<u32> = floors.iter().map(|&floor| floor as u32).collect();
    for (at, count) in counts.iter_mut().enumerate() {
        let (load, _) = problem.runtimes[at].latency.cheapest(fee / MILLI as f64, load_max(problem, at));
        let bought = (problem.demand_milli[at] as f64 / (load * MILLI as f64)) as u64;
        let more = bought.saturating_sub(u64::from(*count)).min(spare);
        *count += more as u32;
        spare -= more;
    }
    for _ in 0..spare {
        let with_one_more = |at: &usize| {
            counts[*at] += 1;
            let cost = problem.total_cost(&counts);
            counts[*at] -= 1;
            cost
        };
        let at = (0..floors.len()).rev().min_by_key(with_one_more).expect("there is a runtime");
        counts[at] += 1;
    }
    let mut cost = problem.total_cost(&counts);
    if cost == FORBIDDEN {
        counts = capacity::relieved(problem, counts);
        if problem.total_cost(&counts) == FORBIDDEN {
            counts = capacity::within(problem, floors)?;
        }
        cost = problem.total_cost(&counts);
    }
    if keeps(problem, floors, &problem.previous) && problem.total_cost(&problem.previous) < cost {
        counts.clone_from(&problem.previous);
        cost = problem.total_cost(&counts);
    }
    while let Some((from, to, less)) = best_move(problem, floors, &mut counts, cost) {
        counts[from] -= 1;
        counts[to] += 1;
        cost = less;
    }
    Some((counts, cost))
}

/// Whether an allocation satisfies Eqs. 2, 3 and 7.
pub(crate) fn keeps(problem: &Problem, floors: &[u64], counts: &[u32]) -> bool {
    counts.len() == floors.len()
        && counts.iter().map(|&count| u64::from(count)).sum::<u64>() == u64::from(problem.instances())
        && counts.iter().zip(floors).all(|(&count, &floor)| u64::from(count) >= floor)
}

/// The move of one instance from a runtime to another that costs least, if it costs less than `cost`.
fn best_move(problem: &Problem, floors: &[u64], counts: &mut [u32], mut cost: u128) -> Option<(usize, usize, u128)> {
    let mut best = None;
    for from in 0..counts.len() {
        if u64::from(counts[from]) <= floors[from] {
            continue;
        }
        counts[from] -= 1;
        for to in 0..counts.len() {
            counts[to] += 1;
            let moved = problem.total_cost(counts);
            counts[to] -= 1;
            if moved < cost {
                cost = moved;
                best = Some((from, to, moved));
            }
        }
        counts[from] += 1;
    }
    best
}
