//! What came of runs: requests that nobody served, or not as asked, runs that ended before their time.

use std::collections::BTreeMap;

use tenantry_core::policy::fleet::Fallback;
use tenantry_profiles::Card;
use tenantry_reports::{Group, Run, RunSummary, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::spec::PopularitySpec;

use super::backlog::backlog_caveat;
use super::classes::class_target_caveats;
use super::ends::early_end_caveat;
use super::few::{few_judged_caveats, no_request_caveat};
use super::host::{host_caveats, host_copies_caveats, host_memory_caveats};
use super::management::management_caveat;
use super::recordings::silence_caveat;
use super::{is_one_run, once};

/// Sentences on what came of runs: requests that nobody served, or not as asked, and allocations that stand for others.
pub fn of_runs(runs: &[Run]) -> Vec<String> {
    let summaries: Vec<&RunSummary> = runs.iter().map(|run| &run.summary).collect();
    let all = [
        no_request_caveat(runs).into_iter().collect(),
        unfinished_caveats(runs),
        shortened_caveats(&summaries),
        unjudged_caveats(runs),
        few_judged_caveats(runs),
        class_target_caveats(runs),
        one_token_caveats(runs),
        unanswered_caveats(&summaries),
        unanswered_tenants_caveats(runs),
        given_up_caveats(runs),
        host_memory_caveats(runs),
        host_copies_caveats(runs),
        cut_batches_caveats(&summaries),
        fleet_caveats(&summaries),
        left_out_caveats(runs),
        backlog_caveat(runs).into_iter().collect(),
        same_repeats_caveats(runs),
    ];
    all.concat()
}

/// Sentences on what came of the first run of a plan's answer that neither its table nor its verdict says: what is not
/// done as asked, and what it takes of hosts.
pub fn of_answer(spec: &RunSpec, card: &Card, summary: &RunSummary) -> Vec<String> {
    let all = [
        early_end_caveat(spec, summary).into_iter().collect(),
        shortened_caveats(&[summary]),
        unanswered_caveats(&[summary]),
        host_caveats(spec, card, summary),
        cut_batches_caveats(&[summary]),
        fleet_caveats(&[summary]),
    ];
    all.concat()
}

/// Sentences on what a run's requests came to: arrivals that were over early, silence that is counted, tenants whose
/// turn came again, and those who came and went to no effect.
pub fn of_workload(spec: &RunSpec, run: &Run) -> Vec<String> {
    let turns = turns_caveat(
        &spec.workload.popularity,
        spec.workload.tenants,
        run.summary.requests.offered,
    );
    let said = [
        early_end_caveat(spec, &run.summary),
        silence_caveat(spec, run),
        turns,
        management_caveat(spec, run),
    ];
    said.into_iter().flatten().collect()
}

/// A sentence on each system of whose changes of instances or cards only the first are listed.
fn left_out_caveats(runs: &[Run]) -> Vec<String> {
    let of = |run: &Run| {
        let RunSummary {
            system,
            fleet,
            scaling,
            cascade,
            ..
        } = &run.summary;
        let scaling = scaling.as_ref().or(cascade.as_ref().and_then(|cascade| cascade.scaling.as_ref()));
        let listed = fleet
            .as_ref()
            .map(|fleet| {
                (
                    fleet.allocations_left_out,
                    fleet.allocations.last().map(|(from, _)| *from),
                )
            })
            .or(scaling.map(|scaling| (scaling.cards_left_out, scaling.cards.last().map(|(from, _)| *from))));
        let (left_out, Some(last)) = listed? else { return None };
        (left_out > 0).then(|| {
            format!(
                "{system}: instances and cards over time are listed, and drawn, up to {}; {} later changes are counted \
                 alone.",
                human::milliseconds(last * 1e3),
                human::count(left_out)
            )
        })
    };
    once(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// A sentence on simulated systems all of whose repeats are one and the same run. Runs without a request are alike for
/// another reason.
fn same_repeats_caveats(runs: &[Run]) -> Vec<String> {
    let mut systems: BTreeMap<&str, bool> = BTreeMap::new();
    let groups = Group::all(runs);
    let was_asked = |group: &&Group<'_>| group.runs.iter().any(|run| run.summary.requests.offered > 0);
    let repeated = groups.iter().filter(|group| group.is_virtual() && group.runs.len() > 1);
    for group in repeated.filter(was_asked) {
        *systems.entry(group.system()).or_insert(true) &= is_one_run(group);
    }
    let same: Vec<&str> = systems.iter().filter(|(_, same)| **same).map(|(system, _)| *system).collect();
    (!same.is_empty())
        .then(|| {
            format!(
                "{}: all repeats are one and the same run, since nothing in it is drawn anew by another seed (arrivals \
                 and lengths are recorded or fixed, and there is no jitter): they say nothing of how much runs differ.",
                match same.len() == systems.len() {
                    true => "All systems".to_owned(),
                    false => same.join(", "),
                }
            )
        })
        .into_iter()
        .collect()
}

/// A sentence on requests of another tenant each that are more than there are tenants.
fn turns_caveat(popularity: &PopularitySpec, tenants: u32, offered: u64) -> Option<String> {
    (*popularity == PopularitySpec::Distinct && offered > u64::from(tenants)).then(|| {
        format!(
            "{} requests take {} tenants in turns (tenants.popularity: distinct), so that some tenants have several: \
             each has a tenant of its own where tenants.count is as high.",
            human::count(offered),
            human::count(tenants.into())
        )
    })
}

/// Sentences on tasks whose batches are cut since more queries' activations find no memory.
fn cut_batches_caveats(runs: &[&RunSummary]) -> Vec<String> {
    let of = |run: &&RunSummary| {
        let tasks = run.tasks.as_ref()?;
        Some(format!(
            "{}: batches are of at most {} queries, and not of {} (tasks.max_batch): their activations take {} of a \
             card's memory, which is all that its models leave, and tasks may find none; a smaller `max_batch` leaves \
             them room.",
            run.system,
            tasks.max_batch,
            tasks.max_batch_asked?,
            human::bytes(tasks.activation_bytes as f64)
        ))
    };
    once(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// Of the requests that a run was offered, the share that was refused or failed, and why, in words; nothing where all
/// were let in and answered.
pub fn unanswered(summary: &RunSummary) -> Option<(f64, String)> {
    let offered = summary.requests.offered;
    let of = |by: &BTreeMap<String, u64>, became: &str| {
        let why = by.iter().filter(|(_, count)| **count > 0);
        let why: Vec<String> = why
            .map(|(reason, count)| format!("{} {}", human::count(*count), reason.replace('_', " ")))
            .collect();
        let share = human::percent(by.values().sum::<u64>() as f64 / offered.max(1) as f64);
        (!why.is_empty()).then(|| format!("{share} of the requests {became} ({})", why.join(", ")))
    };
    let became = [
        of(&summary.rejected_by, "were refused"),
        of(&summary.failed_by, "failed"),
    ];
    let became: Vec<String> = became.into_iter().flatten().collect();
    let all: u64 = summary.rejected_by.values().chain(summary.failed_by.values()).sum();
    (!became.is_empty()).then(|| (all as f64 / offered.max(1) as f64, became.join(", and ")))
}

/// A sentence on each system of which requests were refused or failed, on each machine: of its run with most of them.
fn unanswered_caveats(runs: &[&RunSummary]) -> Vec<String> {
    let mut most: BTreeMap<(&str, &str), (f64, String)> = BTreeMap::new();
    for summary in runs {
        let of = most.entry((&summary.system, &summary.machine)).or_default();
        if let Some(more) = unanswered(summary).filter(|more| more.0 > of.0) {
            *of = more;
        }
    }
    let several = runs.len() > most.len();
    let said = most.into_iter().filter(|(_, (share, _))| *share > 0.0);
    said.map(|((system, machine), (_, became))| {
        let at_most = if several { "in the run with most of them, " } else { "" };
        format!("{system} on {machine}: {at_most}{became}.")
    })
    .collect()
}

/// A sentence on each system of whose tenants some were never answered, on each machine: of its run with most of them.
fn unanswered_tenants_caveats(runs: &[Run]) -> Vec<String> {
    let mut most: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for summary in runs.iter().map(|run| &run.summary) {
        let of = most.entry((&summary.system, &summary.machine)).or_default();
        let fairness = summary.fairness.as_ref();
        if let Some((tenants, answered)) = fairness.and_then(|of| Some((of.tenants, of.tenants_answered?)))
            && tenants - answered > of.0
        {
            *of = (tenants - answered, tenants);
        }
    }
    let several = runs.len() > most.len();
    let said = most.into_iter().filter(|(_, (never, _))| *never > 0);
    said.map(|((system, machine), (never, tenants))| {
        let at_most = if several { "in the run with most of them, " } else { "" };
        let [never, tenants] = [never, tenants].map(human::count);
        format!(
            "{system} on {machine}: {at_most}{never} of {tenants} tenants had no request answered; how long tenants \
             wait, and how alike, is of the others alone."
        )
    })
    .collect()
}

/// A sentence on each system that makes tokens nobody asked for.
fn one_token_caveats(runs: &[Run]) -> Vec<String> {
    let asks_for_none = |run: &&Run| {
        let asked = run.summary.workload.as_ref().map(|workload| &workload.output_tokens);
        run.summary.generation.is_some() && asked.is_some_and(Option::is_none)
    };
    let mut systems: Vec<&str> = runs.iter().filter(asks_for_none).map(|run| run.summary.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let said = |system: &str| {
        format!(
            "{system}: requests ask for no tokens (workload.lengths.output), so that each is answered by its first one."
        )
    };
    systems.into_iter().map(said).collect()
}

/// A sentence on each system whose clients gave up, on each machine: of its run with most of them.
fn given_up_caveats(runs: &[Run]) -> Vec<String> {
    let mut most: BTreeMap<(&str, &str), &RunSummary> = BTreeMap::new();
    for summary in runs.iter().map(|run| &run.summary) {
        let of = most.entry((&summary.system, &summary.machine)).or_insert(summary);
        if given_up_share(summary) > given_up_share(of) {
            *of = summary;
        }
    }
    most.into_values().filter_map(given_up_caveat).collect()
}

fn given_up_share(summary: &RunSummary) -> f64 {
    summary.requests.cancelled as f64 / summary.requests.offered.max(1) as f64
}

/// Likewise, of one run.
fn given_up_caveat(summary: &RunSummary) -> Option<String> {
    let share = given_up_share(summary);
    let counted = match &summary.slo {
        Some(_) => "; those who left before their target had passed count as neither in time nor late",
        None => "",
    };
    (share > 0.0).then(|| {
        format!(
            "{} on {}: {} of the clients gave up before they were answered{counted}.",
            summary.system,
            summary.machine,
            human::percent(share)
        )
    })
}

/// What there is of so many runs of these systems, that the user stopped or that ended at one which failed.
pub fn interrupted_caveat(asked: usize, systems: &[RunSpec], runs: &[Run]) -> String {
    let is_there = |system: &str| runs.iter().any(|run| run.summary.system == system);
    // Sweep points and repeats have the same systems again.
    let mut missing: Vec<&str> = Vec::new();
    for name in systems.iter().map(|run| run.system.name.as_str()) {
        if !is_there(name) && !missing.contains(&name) {
            missing.push(name);
        }
    }
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!("; of {} there is none", missing.join(", ")),
    };
    let whole = runs.iter().filter(|run| !run.summary.interrupted).count();
    let are = if whole == 1 { "is" } else { "are" };
    format!("Stopped before its end: of the {asked} runs that were asked for, {whole} {are} here whole{missing}.")
}

/// A sentence on each system that left requests inside when nothing more happened, on each machine: of all its runs.
fn unfinished_caveats(runs: &[Run]) -> Vec<String> {
    let waiting = |summary: &RunSummary| match summary.interrupted {
        true => 0,
        false => summary.requests.unfinished,
    };
    let said = by_system(runs, waiting).into_iter().map(|(name, Left { requests, of })| {
        format!("{name}: {requests} requests were still waiting at the end{of}, for a batch that never filled.")
    });
    said.collect()
}

/// Likewise, of runs whose figures are of no request.
fn unjudged_caveats(runs: &[Run]) -> Vec<String> {
    let in_no_figure = |summary: &RunSummary| match summary.latency_ms.is_none() && !summary.interrupted {
        true => summary.requests.finished,
        false => 0,
    };
    let said = by_system(runs, in_no_figure).into_iter().map(|(name, Left { requests, of })| {
        format!("{name}: all {requests} requests that were answered came in the warm-up{of}, and are in no latency and no share in time.")
    });
    said.collect()
}

/// Requests of a system that something became of.
struct Left {
    requests: u64,
    /// Of how many of its runs, where there are several; empty where there is one.
    of: String,
}

/// What a count comes to over a system's runs on a machine, of which any has some.
fn by_system(runs: &[Run], count: impl Fn(&RunSummary) -> u64) -> Vec<(String, Left)> {
    // Requests, runs that have any, and all runs.
    let mut sums: Vec<(String, u64, usize, usize)> = Vec::new();
    for summary in runs.iter().map(|run| &run.summary) {
        let name = format!("{} on {}", summary.system, summary.machine);
        let index = sums.iter().position(|(known, ..)| *known == name).unwrap_or_else(|| {
            sums.push((name, 0, 0, 0));
            sums.len() - 1
        });
        let (_, requests, with, all) = &mut sums[index];
        let more = count(summary);
        *requests += more;
        *with += usize::from(more > 0);
        *all += 1;
    }
    let any = sums.into_iter().filter(|(_, _, with, _)| *with > 0);
    any.map(|(name, requests, with, all)| {
        let of = match all {
            1 => String::new(),
            all => format!(" of {with} of {all} runs"),
        };
        (name, Left { requests, of })
    })
    .collect()
}

/// Sentences on requests that ask for more tokens than their model has positions for.
fn shortened_caveats(runs: &[&RunSummary]) -> Vec<String> {
    let of = |summary: &&RunSummary| {
        let shortened = summary.generation?.shortened?;
        let offered = summary.requests.offered;
        Some(format!(
            "{} on {}: {shortened} of {offered} requests ask for more tokens than the model has positions for, and \
             were given as many as it has.",
            summary.system, summary.machine
        ))
    };
    once(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// Why allocations stand for a solution, in words, the gravest reason first.
const REASONS: [(Fallback, &str); 4] = [
    (
        Fallback::QuestionRefused,
        "the solver takes no such question (the allocation stayed as it was)",
    ),
    (
        Fallback::DemandBeyondCards,
        "more requests came than the instances finish within the SLO, one of them of the longest runtime",
    ),
    (
        Fallback::LongestBeyondCapacity,
        "the longest runtime has more to do than it finishes within the SLO, however its stream's instances are given out",
    ),
    (Fallback::SolverLimit, "the solver met its limit"),
];

/// Sentences on systems whose allocations of runtimes are not all what the program says for the time.
fn fleet_caveats(runs: &[&RunSummary]) -> Vec<String> {
    #[derive(Default)]
    struct Counts {
        decisions: u64,
        fallbacks: u64,
        by: [u64; REASONS.len()],
        late: u64,
    }
    let mut fleets: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for RunSummary {
        system, machine, fleet, ..
    } in runs
    {
        let Some(fleet) = fleet else { continue };
        let counts = fleets.entry((system, machine)).or_default();
        counts.decisions += fleet.decisions;
        counts.fallbacks += fleet.fallbacks;
        for (count, (why, _)) in counts.by.iter_mut().zip(REASONS) {
            *count += fleet.fallbacks_by.get(why.name()).unwrap_or(&0);
        }
        counts.late += fleet.late;
    }
    let mut caveats = Vec::new();
    for ((system, machine), counts) in fleets {
        if counts.fallbacks > 0 {
            // Results of earlier versions say how many there were, and not why.
            let reasons = counts
                .by
                .iter()
                .zip(REASONS)
                .filter(|(count, _)| **count > 0)
                .map(|(count, (_, words))| format!(", {count} since {words}"));
            caveats.push(format!(
                "{system} on {machine}: {} of {} allocations stand for a solution{}.",
                counts.fallbacks,
                counts.decisions,
                reasons.collect::<String>()
            ));
        }
        if counts.late > 0 {
            caveats.push(format!(
                "{system} on {machine}: in {} periods the solver was still at the question before, and the allocation \
                 stayed as it was.",
                counts.late
            ));
        }
    }
    caveats
}

#[cfg(test)]
mod tests {
    use tenantry_core::RunRecord;
    use tenantry_core::server::generation::GenerationCounts;
    use tenantry_core::server::runtimes::FleetUse;
    use tenantry_reports::summary::{Across, FairnessSummary};

    use super::*;
    use crate::caveats::testing::labels;

    #[test]
    fn allocations_that_are_no_solutions_are_told_of_once_a_system() {
        let run = |fallbacks: &[(Fallback, u64)], late| {
            let fleet = Some(FleetUse {
                decisions: 6,
                fallbacks: fallbacks.iter().copied().collect(),
                late,
                ..FleetUse::default()
            });
            let record = RunRecord {
                fleet,
                ..RunRecord::default()
            };
            RunSummary::new(labels("arlo"), &record)
        };
        assert!(fleet_caveats(&[&run(&[], 0)]).is_empty());
        let told = fleet_caveats(&[
            &run(&[(Fallback::SolverLimit, 1)], 0),
            &run(&[(Fallback::DemandBeyondCards, 2), (Fallback::SolverLimit, 1)], 3),
        ]);
        assert_eq!(told.len(), 2, "{told:?}");
        let why = "2 since more requests came than the instances finish within the SLO, one of them of the longest runtime, 2 \
             since the solver met its limit.";
        assert_eq!(
            told[0],
            format!("arlo on virtual: 4 of 12 allocations stand for a solution, {why}")
        );
        assert!(told[1].starts_with("arlo on virtual: in 3 periods"), "{told:?}");
        let mut older = run(&[(Fallback::SolverLimit, 1)], 0);
        older.fleet.as_mut().unwrap().fallbacks_by.clear();
        assert_eq!(
            fleet_caveats(&[&older]),
            ["arlo on virtual: 1 of 6 allocations stand for a solution."]
        );
    }

    #[test]
    fn distinct_tenants_are_no_more_than_there_are() {
        let of = |popularity, offered| turns_caveat(&popularity, 1_000, offered);
        assert_eq!(of(PopularitySpec::Distinct, 1_000), None);
        assert_eq!(of(PopularitySpec::Uniform, 2_000), None);
        let said = of(PopularitySpec::Distinct, 2_000).expect("each tenant has two");
        assert!(said.starts_with("2,000 requests take 1,000 tenants in turns"), "{said}");
    }

    #[test]
    fn tenants_who_were_never_answered_are_told_of() {
        let run = |tenants_answered| {
            let mut run = Run::new(labels("seqs"), &RunRecord::default());
            run.summary.fairness = Some(FairnessSummary {
                tenants: 64,
                tenants_answered,
                tenant_mean_latency_ms: Across {
                    min: 1.0,
                    p50: 1.0,
                    p98: 1.0,
                    max: 1.0,
                },
                jain_index: Some(1.0),
                tenants_in_slo: None,
            });
            run
        };
        assert!(unanswered_tenants_caveats(&[run(Some(64)), run(None)]).is_empty());
        let told = unanswered_tenants_caveats(&[run(Some(22))]);
        assert!(
            told[0].starts_with("seqs on virtual: 42 of 64 tenants had no request answered; "),
            "{told:?}"
        );
        let told = unanswered_tenants_caveats(&[run(Some(63)), run(Some(60)), run(Some(64))]);
        assert!(
            told.len() == 1 && told[0].contains(": in the run with most of them, 4 of 64 tenants"),
            "{told:?}"
        );
    }

    /// Systems take turns over a sweep, so that a system's sentences are no neighbours.
    #[test]
    fn shortened_requests_are_told_of_once_a_system() {
        let run = |system: &str, shortened| {
            let generation = Some(GenerationCounts {
                shortened,
                ..GenerationCounts::default()
            });
            let record = RunRecord {
                generation,
                ..RunRecord::default()
            };
            RunSummary::new(labels(system), &record)
        };
        let runs = [run("a", 3), run("b", 3), run("a", 3), run("b", 0), run("a", 4)];
        let told = shortened_caveats(&runs.each_ref());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("a on virtual: 3 of 0 requests ask for more tokens")
                && told[0].ends_with("So it is in another run, with other figures."),
            "{told:?}"
        );
    }

    #[test]
    fn what_many_runs_left_is_told_once_a_system() {
        let run = |system: &str, unfinished| {
            let mut run = Run::new(labels(system), &RunRecord::default());
            run.summary.requests.unfinished = unfinished;
            run
        };
        let runs = [run("a", 3), run("b", 0), run("a", 4), run("a", 0)];
        assert_eq!(
            unfinished_caveats(&runs),
            ["a on virtual: 7 requests were still waiting at the end of 2 of 3 runs, for a batch that never filled."]
        );
        let mut early = run("c", 0);
        early.summary.requests.finished = 5;
        assert_eq!(
            unjudged_caveats(&[early.clone()]),
            [
                "c on virtual: all 5 requests that were answered came in the warm-up, and are in no latency and no share in time."
            ]
        );
        assert_eq!(
            unjudged_caveats(&[early.clone(), early]),
            [
                "c on virtual: all 10 requests that were answered came in the warm-up of 2 of 2 runs, and are in no latency and no share in time."
            ]
        );
    }
}
