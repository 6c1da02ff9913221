//! More levels than two: exits inside a model (Table 4), a third model (Table 5).

use crate::commands::reproduce::lab::{Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Early exits as a curve: what they save by how many leave early.
pub fn table_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    let runs = lab.runs("tabi/table-4", &[])?;
    let whole = latency_ms(runs.of("large-alone"));
    let mut rows = Vec::new();
    let mut saved = Vec::new();
    for cut_off in [0.75, 0.85, 0.95] {
        let run = runs.find(
            "early-exit",
            &[("systems[0].cascade.stages[0].reroute.cut_off", cut_off.into())],
        );
        let early = run
            .cascade
            .as_ref()
            .map_or(f64::NAN, |cascade| 100.0 * cascade.returned_share_by_stage[0]);
        let reduction = 100.0 * (1.0 - latency_ms(run) / whole);
        saved.push(reduction);
        let paper = (cut_off == 0.95).then_some(38.0);
        let what = format!("SST-2, DeeBERT* on RoBERTa-large, latency saved at c = {cut_off}");
        rows.push(Row::assumed(FIGURE, what, "%", paper, reduction).note(format!(
            "assumes one exit, after half of the layers, as sure as DistilBERT: {early:.1} % leave there. Where the paper's exits are, and who leaves, \
             is not in the text"
        )));
    }
    rows.push(Row::shape(
        FIGURE,
        "early exit, latency saved at c = 0.75 over 0.95: more leave early at a lower cut-off",
        "×",
        saved[0] / saved[2],
        saved.is_sorted_by(|a, b| a > b),
    ));
    rows.push(Row::not_checkable(
        FIGURE,
        "accuracies, and DeeBERT on base-size models",
        "what their exits answer is not in the text",
    ));
    Ok(rows)
}

/// A third model between the two, for MNLI.
pub fn table_5(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 5";
    let runs = lab.runs("tabi/table-2-mnli", &[])?;
    let (three, two) = (runs.of("three-levels"), runs.of("tabi"));
    let p99 = |run: &tenantry_reports::RunSummary| run.latency_ms.map_or(f64::NAN, |latency| latency.p99);
    let mut rows = vec![
        Row::predicted(FIGURE, "mean latency", "ms", [22.0, latency_ms(three)], 0.05)
            .note("inputs: the shares that each level returns"),
        Row::predicted(FIGURE, "p99", "ms", [49.4, p99(three)], 0.05),
    ];
    let returned = three
        .cascade
        .as_ref()
        .map(|cascade| cascade.returned_share_by_stage.clone())
        .unwrap_or_default();
    for (level, (paper, ours)) in [45.6, 36.8, 17.6].into_iter().zip(returned).enumerate() {
        let what = format!("returned by level {}", level + 1);
        rows.push(
            Row::input(FIGURE, what, "%", paper, 100.0 * ours)
                .note("exact by construction: cut-off and confidence are set so"),
        );
    }
    let more = |three: f64, two: f64| 100.0 * (three / two - 1.0);
    rows.push(
        Row::assumed(
            FIGURE,
            "mean over two levels'",
            "%",
            Some(8.4),
            more(latency_ms(three), latency_ms(two)),
        )
        .note("assumes that a look at the answers takes 1.35 ms at each of the first two levels"),
    );
    rows.push(
        Row::assumed(FIGURE, "p99 over two levels'", "%", Some(70.3), more(p99(three), p99(two))).note(
            "assumes that two levels' p99 is both models' time, 33 ms; the paper's own 49.4 ms and +70.3 % make it 29.0 ms, which is the large model alone",
        ),
    );
    rows.push(Row::not_checkable(
        FIGURE,
        "median, 12.7 ms",
        "45.6 % are returned by the first level, so that the median query is one that two models answer, in 26 ms",
    ));
    rows.push(
        Row::assumed(FIGURE, "accuracy", "%", Some(90.2), super::overall::accuracy(three))
            .note("assumes how often DeBERTa-base is right where DeBERTa-large is and is not, and that its confidence says nothing of it"),
    );
    Ok(rows)
}
