//! Which queries run together, and on which streams: Figs. 11 and 12, and batches that are planned as requests arrive.

use serde_json::Value;
use tenantry_reports::RunSummary;

use crate::commands::reproduce::lab::{Lab, Runs, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const TASKS: [u32; 3] = [32, 64, 128];
/// Numbers of streams beside 32.
const OTHER_STREAMS: [&str; 3] = ["streams-1", "streams-2", "streams-8"];

/// Streams of operators.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    const TOKENS: [u32; 4] = [4, 16, 32, 64];
    let runs = lab.runs("pets/fig-11", &[])?;
    let of = |system: &str, tasks: u32, tokens: u32| {
        let at = [
            ("tenants.count", tasks.into()),
            ("workload.lengths.input.fixed", tokens.into()),
        ];
        rate(runs.find(system, &at))
    };
    // How much less time 1,024 queries take.
    let saved =
        |system: &str, tasks, tokens| 100.0 * (1.0 - of("streams-1", tasks, tokens) / of(system, tasks, tokens));
    let best = TOKENS
        .map(|tokens| saved("streams-32", 32, tokens))
        .into_iter()
        .fold(f64::MIN, f64::max);
    let least_over_others = TOKENS
        .map(|tokens| {
            let others = OTHER_STREAMS.map(|system| saved(system, 32, tokens));
            saved("streams-32", 32, tokens) - others.into_iter().fold(0.0, f64::max)
        })
        .into_iter()
        .fold(f64::MAX, f64::min);
    let mut rows = vec![
        Row::assumed(FIGURE, "32 tasks, 32 streams, time saved at most", "%", Some(15.0), best).note(
            "assumes that operators side by side share launches, bandwidth and arithmetic as a roofline has it (docs/pets.md): no card \
             measures it",
        ),
        Row::shape(
            FIGURE,
            "32 tasks, 32 streams, 4 tokens, time saved: some",
            "%",
            saved("streams-32", 32, 4),
            saved("streams-32", 32, 4) > 0.0,
        )
        .note("the paper's gain at 4 tokens needs launches that overlap, which no card measures"),
        Row::shape(
            FIGURE,
            "32 tasks: 32 streams are the best number at every length, saved over the best other at least",
            "%",
            least_over_others,
            least_over_others >= 0.0,
        )
        .note("operators side by side share the card's rates here, so that few streams are enough"),
    ];
    for tasks in [64, 128] {
        let lost = saved("streams-32", tasks, 4);
        let what = format!("{tasks} tasks, 32 streams, 4 tokens, time saved: less than none");
        rows.push(Row::shape(FIGURE, what, "%", lost, lost < 0.0));
    }
    let worst = |system: &str| {
        let all = TASKS
            .iter()
            .flat_map(|&tasks| TOKENS.map(|tokens| saved(system, tasks, tokens)));
        all.fold(f64::MAX, f64::min)
    };
    rows.push(Row::shape(
        FIGURE,
        "as many streams as the profile says, over all shapes, time saved at least: none lost",
        "%",
        worst("by-profile"),
        worst("by-profile") > -1.0,
    ));
    // Over all shapes whose operators are not all launching.
    let more = |one: &str, other: &str| {
        let shapes = TASKS
            .iter()
            .flat_map(|&tasks| TOKENS[1..].iter().map(move |&tokens| (tasks, tokens)));
        let more: Vec<f64> = shapes
            .map(|(tasks, tokens)| saved(one, tasks, tokens) - saved(other, tasks, tokens))
            .collect();
        mean(&more)
    };
    let over_naive = more("streams-32", "one-each");
    rows.push(Row::shape(
        FIGURE,
        "32 streams by intensity over a stream for each task, 16 tokens and more, time saved in the mean: more",
        "%",
        over_naive,
        over_naive > 0.0,
    ));
    for streams in [2, 8] {
        let what =
            format!("{streams} streams by intensity over tasks in turn, 16 tokens and more, time saved in the mean");
        let ours = more(&format!("streams-{streams}"), &format!("in-turn-{streams}"));
        rows.push(Row::assumed(FIGURE, what, "%", None, ours).note(
            "not in the paper: what sorting alone is worth. Its streams hold as many operators each, whatever they take, and launching, which \
             all need alike, is a large part of these",
        ));
    }
    rows.push(Row::shape(
        FIGURE,
        "a stream for each task, time saved at least: much lost",
        "%",
        worst("one-each"),
        worst("one-each") < worst("by-profile") - 2.0,
    ));
    Ok(rows)
}

/// As in the authors' public experiments.
const DEVIATIONS: [u32; 4] = [1, 2, 4, 8];

/// How much faster coordinated batching is than another, by tasks and deviation.
fn gains(runs: &Runs, other: &str, tasks: &[u32], deviations: &[u32]) -> Vec<f64> {
    let of = |system: &str, tasks: u32, deviation: u32| {
        let at = [
            ("tenants.count", Value::from(tasks)),
            ("workload.lengths.input.normal.sd", Value::from(deviation)),
        ];
        rate(runs.find(system, &at))
    };
    let grid = tasks
        .iter()
        .flat_map(|&tasks| deviations.iter().map(move |&deviation| (tasks, deviation)));
    grid.map(|(tasks, deviation)| of("coordinated", tasks, deviation) / of(other, tasks, deviation))
        .collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

/// Strategies of batching.
pub fn figure_12(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 12";
    let runs = lab.runs("pets/fig-12", &[])?;
    let wide = lab.runs(
        "pets/fig-12",
        &["sweep={tenants.count: [32, 64, 128], workload.lengths.input.normal.sd: [24]}"],
    )?;
    let over = |runs: &Runs, other: &str| mean(&gains(runs, other, &TASKS, &DEVIATIONS));
    let over_alpha = gains(&runs, "alpha-only", &TASKS, &[1, 2, 4]);
    let at = |deviation: u32| mean(&gains(&runs, "alpha-only", &TASKS, &[deviation]));
    let widest = mean(&gains(&wide, "alpha-only", &TASKS, &[24]));
    // Over each strategy that it chooses from, kept throughout.
    let chosen_over = |other: &str| {
        let of = |runs: &Runs, deviations: &[u32]| -> Vec<f64> {
            let chosen = gains(runs, "by-variance", &TASKS, deviations);
            let other = gains(runs, other, &TASKS, deviations);
            other
                .iter()
                .zip(&chosen)
                .map(|(other, chosen)| other / chosen)
                .collect()
        };
        mean(&[of(&runs, &DEVIATIONS), of(&wide, &[24])].concat())
    };
    let chosen = chosen_over("alpha-only").min(chosen_over("coordinated"));
    let chosen_at_worst = {
        let over = |other| gains(&runs, other, &TASKS, &DEVIATIONS);
        let ratios = over("by-variance")
            .into_iter()
            .zip(over("alpha-only"))
            .map(|(chosen, alpha)| 1.0 / chosen / (1.0 / alpha).max(1.0));
        ratios.fold(f64::MAX, f64::min)
    };
    let most = over_alpha.iter().copied().fold(0.0, f64::max);
    const AS_THEIRS: &str = "streams, sizes and deviations as in the authors' public experiments (docs/reproduce.md)";
    let mut rows = vec![
        Row::predicted(
            FIGURE,
            "coordinated over fixed, mean",
            "×",
            [1.52, over(&runs, "fixed")],
            0.1,
        )
        .note(AS_THEIRS),
        Row::predicted(
            FIGURE,
            "coordinated over β-only, mean",
            "×",
            [1.27, over(&runs, "beta-only")],
            0.1,
        )
        .note(AS_THEIRS),
        Row::predicted(
            FIGURE,
            "coordinated over α-only, deviation 1 to 4, at most",
            "×",
            [1.14, most],
            0.1,
        )
        .note(AS_THEIRS),
        Row::predicted(
            FIGURE,
            "coordinated over α-only, deviation 1 to 4, mean",
            "×",
            [1.06, mean(&over_alpha)],
            0.1,
        )
        .note(AS_THEIRS),
        Row::shape(
            FIGURE,
            "coordinated wins over fixed and β-only at every deviation and number of tasks: least gain",
            "×",
            gains(&runs, "fixed", &TASKS, &DEVIATIONS)
                .into_iter()
                .chain(gains(&runs, "beta-only", &TASKS, &DEVIATIONS))
                .fold(f64::MAX, f64::min),
            gains(&runs, "fixed", &TASKS, &DEVIATIONS)
                .iter()
                .all(|gain| *gain > 1.0)
                && gains(&runs, "beta-only", &TASKS, &DEVIATIONS)
                    .iter()
                    .all(|gain| *gain > 1.0),
        ),
        Row::shape(
            FIGURE,
            "coordinated over α-only: deviation 8 against deviation 2, falls",
            "×",
            at(8) / at(2),
            at(8) < at(2),
        ),
    ];
    for tasks in TASKS {
        let gain = gains(&runs, "alpha-only", &[tasks], &[8])[0];
        let what = format!("coordinated over α-only at deviation 8, {tasks} tasks: coordinated loses");
        let row = Row::shape(FIGURE, what, "×", gain, gain < 1.0);
        rows.push(row.note("the more tasks, the more of a batch's time is launching, which is what step 1 saves"));
    }
    rows.extend([
        Row::shape(
            FIGURE,
            "coordinated over α-only at deviation 24: coordinated loses",
            "×",
            widest,
            widest < 1.0,
        )
        .note("beyond the paper's deviations"),
        Row::shape(
            FIGURE,
            "the choice by deviation over either strategy kept throughout, deviation 1 to 24, mean: more",
            "×",
            chosen,
            chosen > 1.0,
        )
        .note(format!(
            "over the better of both it is {chosen_at_worst:.3} at worst, with 32 tasks: where to change over hangs on their number too"
        )),
    ]);
    Ok(rows)
}

/// Quality of service, which the paper leaves as future work.
pub fn online(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Section 8";
    let runs = lab.runs("pets/online", &[])?;
    let p98 = |run: &RunSummary| run.latency_ms.map_or(f64::INFINITY, |latency| latency.p98);
    let mut rows = Vec::new();
    for rate in ["100/s", "300/s", "500/s", "700/s"] {
        let of = |system| p98(runs.find(system, &[("workload.arrivals.poisson.rate", rate.into())]));
        let (pets, full) = (of("pets"), of("fixed-32").min(of("fixed-8")));
        let what = format!(
            "{rate}: p98 of batches planned online over that of batches of 8 or 32 that wait until they are full: below 1"
        );
        rows.push(Row::shape(FIGURE, what, "×", pets / full, pets < full));
        let greedy = of("fixed-32-at-once").min(of("fixed-128-at-once"));
        let what = format!("{rate}: over that of up to 32 or 128 taken as soon as the card is free: at most 1.02");
        rows.push(Row::shape(FIGURE, what, "×", pets / greedy, pets <= 1.02 * greedy));
    }
    Ok(rows)
}
