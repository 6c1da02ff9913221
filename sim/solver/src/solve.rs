//! The runtime scheduler's decision: solve the program, or what is defined in its place.

use crate::allocation::{Allocation, Status};
use crate::capacity;
use crate::dynamic;
use crate::error::Invalid;
#[cfg(feature = "highs")]
use crate::integer;
use crate::problem::Problem;

/// Which exact solver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The dynamic program over (runtime, instances used, carry): exact, ties and all.
    Dynamic,
    /// The integer program by HiGHS. Equals are settled by moves of single instances.
    Integer,
}

/// Allocates instances to runtimes (Eqs. 1 to 7, and the longest runtime within its capacity where the problem says
/// so), changing as few as possible among equals, then preferring longer runtimes.
///
/// The result depends on the problem alone: both methods run on one thread and stop at counts of work, not of time.
/// When the constraints cannot be met, or a limit is, there is still an allocation, and its [`Status`] says so.
///
/// # Errors
/// [`Invalid`] when the problem makes no sense, or the method was left out of the build.
pub fn solve(problem: &Problem, method: Method) -> Result<Allocation, Invalid> {
    problem.check()?;
    let floors = problem.floors();
    let needed = floors.iter().sum::<u64>();
    let (solved, status) = if needed > u64::from(problem.instances()) {
        let share = largest_share(problem);
        let served_ppm = (share * 1_000_000 / SHARES) as u32;
        let status = Status::Infeasible { needed, served_ppm };
        (solve_as_published(scaled(problem, share), method)?, status)
    } else {
        if let Some(solved) = solve_feasible(problem, &floors, method)? {
            return Ok(solved);
        }
        (solve_as_published(problem.clone(), method)?, Status::LongestBeyond)
    };
    let instances = match problem.longest_within_capacity {
        true => capacity::relieved(problem, solved.instances),
        false => solved.instances,
    };
    Ok(Allocation::new(problem, instances, status))
}

/// By Eqs. 1 to 7 alone, whatever is left to the longest runtime.
fn solve_as_published(mut problem: Problem, method: Method) -> Result<Allocation, Invalid> {
    problem.longest_within_capacity = false;
    let solved = solve_feasible(&problem, &problem.floors(), method)?;
    Ok(solved.expect("Eq. 5 permits anything"))
}

/// Nothing where no allocation is permitted. The floors fit.
fn solve_feasible(problem: &Problem, floors: &[u64], method: Method) -> Result<Option<Allocation>, Invalid> {
    match method {
        Method::Dynamic => Ok(dynamic::solve(problem, floors)),
        #[cfg(feature = "highs")]
        Method::Integer => Ok(integer::solve(problem, floors)),
        #[cfg(not(feature = "highs"))]
        Method::Integer => Err(Invalid(
            "solver: must be dynamic, got highs, which was left out of this build (`make build` has it)".into(),
        )),
    }
}

/// Shares of demand that are told apart.
const SHARES: u64 = 1 << 20;

fn scaled(problem: &Problem, share: u64) -> Problem {
    let scale = |&demand: &u64| (u128::from(demand) * u128::from(share) / u128::from(SHARES)) as u64;
    Problem {
        demand_milli: problem.demand_milli.iter().map(scale).collect(),
        ..problem.clone()
    }
}

/// The largest share of the demand whose floors fit: no demand always does, all of it does not.
fn largest_share(problem: &Problem) -> u64 {
    let fits = |share: u64| scaled(problem, share).floors().iter().sum::<u64>() <= u64::from(problem.instances());
    let (mut fitting, mut too_much) = (0, SHARES);
    while too_much - fitting > 1 {
        let middle = fitting.midpoint(too_much);
        if fits(middle) {
            fitting = middle;
        } else {
            too_much = middle;
        }
    }
    fitting
}
