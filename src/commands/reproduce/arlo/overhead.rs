//! What deciding takes on this machine: Fig. 9 and Table 2.

use std::time::Instant;

use tenantry_core::ids::InstanceId;
use tenantry_core::policy::fleet::Question;
use tenantry_core::policy::levels::{LevelSpec, Levels, Rule};
use tenantry_core::spec::SolverSpec;
use tenantry_reports::human::count;

use crate::cards::workload;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Repeats of which the shortest counts: a burst takes some 0.05 ms, and whatever else runs only adds to it.
const REPEATS: u32 = 200;

/// The shortest of several, in seconds; each is given something fresh.
fn shortest_s<T>(fresh: impl Fn() -> T, mut timed: impl FnMut(&mut T)) -> f64 {
    let one = |_| {
        let mut given = fresh();
        let started = Instant::now();
        timed(&mut given);
        started.elapsed().as_secs_f64()
    };
    (0..REPEATS).map(one).fold(f64::INFINITY, f64::min)
}

/// BERT-base within 150 ms, compiled for so many lengths.
fn runtimes(count: u32) -> impl Iterator<Item = (u32, u32, u64)> {
    (1..=count).map(move |at| {
        let service_us = 1_152 + 3_708 * at / count;
        (512 * at / count, 150_000 / service_us, u64::from(service_us))
    })
}

/// Dispatching twice as many requests at once as there are instances of 12 runtimes: at the figure's scales, and at the
/// largest with other numbers of levels that are looked at (Algorithm 1's L).
pub fn figure_9(_: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 9";
    /// As elsewhere; the figure's own values of L are lost.
    const PEEK: usize = 6;
    const MOST: u32 = 1200;
    let note = format!(
        "wall time of this machine, one thread, the best of {REPEATS}; loads of 80 to 99 % of the capacity are \
         assumed, and which L the paper's 0.737 ms are of"
    );
    let row = |instances: u32, peek: usize| {
        let (requests, ms) = (2 * instances, 1e3 * burst_s(instances, peek));
        let what = |of: &str| {
            format!(
                "{} requests to {} instances{of}",
                count(requests.into()),
                count(instances.into())
            )
        };
        let row = match peek {
            PEEK => Row::assumed(FIGURE, what(""), "ms", (instances == MOST).then_some(0.737), ms),
            _ => Row::assumed(FIGURE, what(&format!(", L of {peek}")), "ms", None, ms),
        };
        row.note(&note)
    };
    let scales = (200..=MOST).step_by(200).map(|instances| (instances, PEEK));
    let others = [1, 3, 12].map(|peek| (MOST, peek));
    Ok(scales.chain(others).map(|(instances, peek)| row(instances, peek)).collect())
}

/// Seconds that twice as many requests as instances take, each with the update of its instance.
fn burst_s(instances: u32, peek: usize) -> f64 {
    let specs: Vec<LevelSpec> =
        runtimes(12).map(|(max_length, capacity, _)| LevelSpec { max_length, capacity }).collect();
    let rule = Rule::Demote {
        threshold: 0.85,
        decay: 0.9,
        peek,
    };
    let mut full = Levels::new(&specs, rule);
    for instance in 0..instances {
        let level = (instance % 12) as usize;
        let load = specs[level].capacity * (80 + instance % 20) / 100;
        full.add(InstanceId(instance), level, load);
    }
    let requests = 2 * instances;
    // Most are short: squares of a spread.
    let share = |n: u32| f64::from(n * 7 % requests) / f64::from(requests);
    let lengths: Vec<u32> = (0..requests).map(|n| 1 + (511.0 * share(n).powi(2)) as u32).collect();
    let burst = |cluster: &mut Levels| {
        for &length in &lengths {
            let instance = cluster.dispatch(length).expect("a runtime serves 512 tokens");
            cluster.load_changed(instance, 1);
        }
    };
    shortest_s(|| full.clone(), burst)
}

/// Table 2's sizes: cards, runtimes, the paper's seconds.
const SIZES: [(u32, u32, f64); 3] = [(50, 8, 0.156), (200, 12, 0.623), (1000, 16, 2.612)];
/// Requests a second on a card: up to Table 4's 250, the paper's highest with BERT-large.
const LOADS: [u32; 4] = [100, 150, 200, 250];
/// Clips of each load.
const CLIPS: [u32; 5] = [1, 2, 3, 4, 5];

/// Solving the program: 20 problems of each size, as many as the paper's runs, each with the lengths of two seconds of
/// tweets.
pub fn table_2(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 2";
    let mut rows = Vec::new();
    for (cards, count, paper) in SIZES {
        let mut questions = Vec::new();
        for load in LOADS {
            for clip in CLIPS {
                questions.push(question(lab, cards, count, load, clip)?);
            }
        }
        for (solver, name) in [(SolverSpec::Dynamic, "dynamic program"), (SolverSpec::Highs, "HiGHS")] {
            let what = |of: &str| format!("{cards} cards, {count} runtimes, {name}: {of}");
            let Some((times_s, feasible)) = solving(&questions, solver) else {
                rows.push(Row::not_checkable(
                    FIGURE,
                    what("mean"),
                    "left out of this build (`make build` has it)",
                ));
                continue;
            };
            let problems = times_s.len();
            let note = format!(
                "wall time of this machine, one thread; {problems} problems, of which {feasible} have a solution, \
                 BERT-large's within 450 ms: the lengths of two seconds each of tweets stretched to 512, at 100 to 250 \
                 requests/s a card. The paper's is Gurobi's mean over 20; its demands are lost"
            );
            let mean = times_s.iter().sum::<f64>() / problems as f64;
            let worst = times_s.iter().copied().fold(0.0, f64::max);
            rows.push(Row::assumed(FIGURE, what("mean"), "s", Some(paper), mean).note(&note));
            let middle = (times_s[(problems - 1) / 2] + times_s[problems / 2]) / 2.0;
            rows.push(Row::assumed(FIGURE, what("median"), "s", None, middle).note(&note));
            rows.push(Row::assumed(FIGURE, what("worst"), "s", None, worst).note(&note));
        }
    }
    Ok(rows)
}

/// What a clip of Table 4's tweets asks for.
fn question(lab: &Lab, cards: u32, count: u32, load: u32, clip: u32) -> Result<Question, Failure> {
    let changes = [
        format!("cluster.gpus={cards}"),
        format!("seed={clip}"),
        format!("workload.arrivals={{poisson: {{rate: {}/s}}}}", load * cards),
        "workload.stop={after: 2s}".to_owned(),
        "workload.warm_up=0s".to_owned(),
        format!("systems[0].runtimes.lengths={{count: {count}}}"),
    ];
    let loaded = lab.load("arlo/table-4", &changes.each_ref().map(String::as_str))?;
    let run = &loaded.runs[0];
    let runtimes = run.system.pool.runtimes.as_ref().expect("Arlo has runtimes");
    let mut workload = workload(run)?;
    tenantry_sim::whole_workload(runtimes, &mut *workload, cards, SolverSpec::Dynamic).map_err(Failure::bad_input)
}

/// Seconds that each takes, ascending, and how many have a solution; none where the solver is left out of the build.
fn solving(questions: &[Question], solver: SolverSpec) -> Option<(Vec<f64>, usize)> {
    let mut feasible = 0;
    let mut times_s = Vec::with_capacity(questions.len());
    for question in questions {
        let question = Question {
            solver,
            ..question.clone()
        };
        let started = Instant::now();
        let answer = std::hint::black_box(tenantry_sim::allocate(&question)).ok()?;
        times_s.push(started.elapsed().as_secs_f64());
        feasible += usize::from(answer.fallback.is_none());
    }
    times_s.sort_by(f64::total_cmp);
    Some((times_s, feasible))
}
