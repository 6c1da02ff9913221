//! More levels than two: exits inside a model (Table 4), a third model (Table 5).

use tenantry_reports::RunSummary;

use super::lengths::{LENGTHS, as_long_as};
use super::overall::{accuracy, below};
use super::{TASKS, TOLERANCE, draws};
use crate::commands::reproduce::lab::{Changed, Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// DeeBERT* on RoBERTa-large, by task: what the scenario is changed to, the cut-off that Tabi has there, and the
/// paper's time saved and accuracy in percent.
const EARLY_EXIT: [(&str, &[&str], f64, [f64; 2]); 2] = [
    ("SST-2", &[], 0.95, [38.0, 95.9]),
    (
        "MNLI",
        &[
            "outcomes.from.generated.task=mnli",
            "systems[0].classes=3",
            "systems[1].classes=3",
            "workload.lengths.input.fixed=30",
        ],
        0.85,
        [24.0, 90.4],
    ),
];

/// Early exits as a curve: what they save by how many leave early.
pub fn table_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    let mut rows = Vec::new();
    for (task, set, chosen, [time, right]) in EARLY_EXIT {
        let runs = lab.runs("tabi/table-4", set)?;
        let whole = latency_ms(runs.of("large-alone"));
        let mut saved = Vec::new();
        for cut_off in [0.75, 0.85, 0.95] {
            let run = runs.find(
                "early-exit",
                &[("systems[0].cascade.stages[0].reroute.cut_off", cut_off.into())],
            );
            let early = run.cascade.as_ref().map_or(f64::NAN, |cascade| 100.0 * cascade.returned_share_by_stage[0]);
            let reduction = below(latency_ms(run), whole);
            saved.push(reduction);
            let paper = |figure: f64| (cut_off == chosen).then_some(figure);
            let what = |what: &str| format!("{task}, DeeBERT* on RoBERTa-large, {what} at c = {cut_off}");
            let note = format!(
                "assumes one exit, after half of the layers, as sure and as often right as DistilBERT: {early:.1} % \
                 leave there; the paper's row stands beside Tabi's own cut-off. Where the paper's exits are, and who \
                 leaves, is not in the text"
            );
            rows.push(Row::assumed(FIGURE, what("latency saved"), "%", paper(time), reduction).note(&note));
            rows.push(Row::assumed(FIGURE, what("accuracy"), "%", paper(right), accuracy(run)).in_points().note(note));
        }
        rows.push(Row::ours(
            FIGURE,
            format!("{task}, early exit, latency saved at c = 0.75 over 0.95: more leave early at a lower cut-off"),
            "×",
            saved[0] / saved[2],
            saved.is_sorted_by(|a, b| a > b),
        ));
    }
    rows.push(Row::not_checkable(
        FIGURE,
        "DeeBERT on base-size models (93 and 94.4 % at −40 and −26 %; 83.9 and 87 % at −14 and −19 %)",
        "what their exits answer is not in the text, nor whose latency theirs is set against",
    ));
    Ok(rows)
}

/// Two levels' p99 in milliseconds by the paper's p99 of three and how much more that is (Table 5), and what both
/// models of two levels take in the mean: DistilBERT's time (Table 1) and what pruning leaves of DeBERTa-large's (Table
/// 3).
const TWO_LEVELS_P99_MS: f64 = 49.4 / 1.703;
const BOTH_MODELS_MS: f64 = 7.0 + 29.0 * (1.0 - 0.154);
/// What makes the paper contradict itself.
const _: () = assert!(TWO_LEVELS_P99_MS < BOTH_MODELS_MS);

/// A third model between the two, for MNLI.
pub fn table_5(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 5";
    let runs = lab.runs("tabi/table-2-mnli", &[])?;
    let (three, two) = (runs.of("three-levels"), runs.of("tabi"));
    let p50 = |run: &RunSummary| run.latency_ms.map_or(f64::NAN, |latency| latency.p50);
    let p99: fn(&RunSummary) -> f64 = |run| run.latency_ms.map_or(f64::NAN, |latency| latency.p99);
    let as_long = as_long_as(&TASKS[1]);
    let with = |control_ms, set: &[&str], of: fn(&RunSummary) -> f64| {
        let runs = lab.runs_with("tabi/table-2-mnli", set, "control_ms", Changed::To(control_ms))?;
        Ok::<_, Failure>(of(runs.of("three-levels")))
    };
    let control = |set: &[&str], of: fn(&RunSummary) -> f64| {
        Ok::<_, Failure>(format!(
            "inputs: the shares that each level returns, and the control's 1.35 ms, fitted to Table 2 and spent at \
             each of the first two levels; without it {:.1} ms, with 5 ms {:.1}",
            with(0.0, set, of)?,
            with(5.0, set, of)?
        ))
    };
    let real = lab.runs("tabi/table-2-mnli", &[&as_long])?;
    let (real_three, real_two) = (real.of("three-levels"), real.of("tabi"));
    let fixed = "all queries are as long as the mean";
    let mut rows =
        vec![
        Row::predicted(FIGURE, "mean latency", "ms", [22.0, latency_ms(three)], TOLERANCE)
            .note(format!("{fixed}; {}", control(&[], latency_ms)?))
            .extrapolated(runs.beyond(&[])),
        Row::assumed(
            FIGURE,
            "mean latency, lengths as MNLI's",
            "ms",
            Some(22.0),
            latency_ms(real_three),
        )
        .note(LENGTHS),
        // Of neither percentile is the one or the other reading of the lengths nearer throughout.
        Row::assumed(FIGURE, "p99", "ms", Some(49.4), p99(three))
            .note(format!("{fixed}, so that it is what all three models take together; {}", control(&[], p99)?))
            .extrapolated(runs.beyond(&[])),
        Row::assumed(FIGURE, "p99, lengths as MNLI's", "ms", Some(49.4), p99(real_three)).note(format!(
            "{LENGTHS}. It is that of the longest queries that all three models answer"
        )),
        Row::assumed(FIGURE, "median", "ms", Some(12.7), p50(three))
            .note(format!(
                "{fixed}, and 45.6 % are returned by the first level, so that the median query is one that two models \
                 answer; two levels' is {:.1} ms, and by the paper's −2.3 % 13.0",
                p50(two)
            ))
            .extrapolated(runs.beyond(&[])),
        Row::assumed(FIGURE, "median, lengths as MNLI's", "ms", Some(12.7), p50(real_three)).note(format!(
            "{LENGTHS}. The median query is among the shortest that two models answer; two levels' is {:.1} ms",
            p50(real_two)
        )),
    ];
    let returned = three
        .cascade
        .as_ref()
        .map(|cascade| cascade.returned_share_by_stage.clone())
        .unwrap_or_default();
    for (level, (paper, ours)) in [45.6, 36.8, 17.6].into_iter().zip(returned).enumerate() {
        let what = format!("returned by level {}", level + 1);
        rows.push(
            Row::drawn(FIGURE, what, paper, 100.0 * ours, draws(three))
                .note("exact by construction: cut-off and confidence are set so")
                .extrapolated(runs.beyond(&[])),
        );
    }
    let more = |three: f64, two: f64| 100.0 * (three / two - 1.0);
    rows.push(
        Row::predicted(
            FIGURE,
            "mean over two levels'",
            "%",
            [8.4, more(latency_ms(three), latency_ms(two))],
            TOLERANCE,
        )
        .note("not independent of the mean above: it is that over two levels', which the control was fitted to")
        .extrapolated(runs.beyond(&[])),
    );
    let contradiction = format!(
        "the table contradicts Tables 1 and 3: 49.4 ms and +70.3 % make two levels' p99 {TWO_LEVELS_P99_MS:.1} ms. \
         Half of the queries are answered by both models, which take 7 ms and 29 ms less 15.4 %, {BOTH_MODELS_MS:.1} \
         ms in the mean: a p99 is not below that"
    );
    for (what, three, two, beyond) in [
        ("p99 over two levels'", three, two, runs.beyond(&[])),
        (
            "p99 over two levels', lengths as MNLI's",
            real_three,
            real_two,
            real.beyond(&[]),
        ),
    ] {
        let both = [70.3, more(p99(three), p99(two))];
        rows.push(Row::contradicted(FIGURE, what, "%", both, &contradiction).extrapolated(beyond));
    }
    rows.push(
        Row::assumed(FIGURE, "accuracy", "%", Some(90.2), accuracy(three))
            .in_points()
            .note(
                "assumes how often DeBERTa-base is right where DeBERTa-large is and is not, and that its confidence \
                 says nothing of it",
            )
            .extrapolated(runs.beyond(&[])),
    );
    Ok(rows)
}
