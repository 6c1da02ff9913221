//! Response times: Fig. 12 of periodic tenants, Fig. 13 of a burst.

use crate::commands::reproduce::lab::{Changed, Lab, Runs, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// A capacity that serves nearly all of 10,000 tenants' 500 requests a second.
const NEARLY_ENOUGH: f64 = 490.0;
/// Requests a second of 10,000 tenants that ask every 20 s.
const ASKED: f64 = 500.0;
/// Section 7, item 2: "up to 10K tenants, with approximately 1,000× end-to-end response time speedup compared to a
/// standard PLM via model swapping (see Section 7.4)".
const RATIO: f64 = 1000.0;

/// Every tenant asks once in 20 s, a hundred times.
pub fn figure_12(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 12";
    let few = lab.runs("hmi/fig-12", &["sweep={tenants.count: [10, 100]}"])?;
    let fitted = lab.runs("hmi/fig-12", &[])?;
    let together = [
        "systems[1].batch.per-tenant.max_size=32",
        "systems[2].batch.per-tenant.max_size=32",
    ];
    let together = lab.runs("hmi/fig-12", &together)?;
    let faster = lab.runs_if("hmi/fig-12", &[], "hbert_per_s", Changed::To(NEARLY_ENOUGH))?;
    let mean_s = |runs: &Runs, system: &str| latency_ms(runs.of(system)) / 1e3;
    let ratio = |runs: &Runs| mean_s(runs, "bert-dedicated") / mean_s(runs, "hbert");
    let small = [10, 100].map(|tenants| latency_ms(few.among("hbert", tenants)));
    let served = |system: &str| fitted.of(system).throughput_rps.unwrap_or(0.0) / ASKED;
    let is_papers = lab.other_card().is_none();
    let capacity = if is_papers {
        "Table 6's capacity"
    } else {
        "this card's capacity"
    };
    let queues = match is_papers {
        true => {
            "10,000 tenants are 500 requests/s, more than Table 6's 380.9/s: hBERT itself queues, the longer the test \
             lasts"
        }
        false => "10,000 tenants are 500 requests/s",
    };
    let apart = "assumes that a batch of 32 from the queue's head falls apart into one request of each tenant (7.4: \
                 batches are split by tenant)";
    let beyond = match is_papers {
        true => "; section 7's \"approximately 1,000×\" cannot be had at this capacity",
        false => "",
    };
    let mut rows = vec![
        Row::shape(
            FIGURE,
            "hBERT, mean at 100 tenants over 10: constant",
            "×",
            small[1] / small[0],
            (small[1] / small[0] - 1.0).abs() < 0.1,
        ),
        Row::assumed(
            FIGURE,
            format!("hBERT, mean at 10,000 tenants, {capacity}"),
            "s",
            None,
            mean_s(&fitted, "hbert"),
        )
        .note(queues),
        Row::assumed(
            FIGURE,
            format!("BERT-dedicated over hBERT, {capacity}"),
            "×",
            is_papers.then_some(RATIO),
            ratio(&fitted),
        )
        .note(format!("{queues}; {apart}{beyond}")),
        Row::assumed(
            FIGURE,
            "BERT-dedicated over hBERT, what waits of a tenant served together",
            "×",
            None,
            ratio(&together),
        )
        .note("assumes the other reading, up to 32 requests of one tenant that has a backlog, as in Figs. 11 and 13"),
        Row::shape(
            FIGURE,
            "BERT-dedicated at 10,000 tenants, share of the load that it serves: it cannot keep up, below 90 %",
            "",
            served("bert-dedicated"),
            served("bert-dedicated") < 0.9,
        ),
    ];
    if let Some(faster) = &faster {
        rows.extend([
            Row::assumed(
                FIGURE,
                "hBERT, mean at 10,000 tenants, 490/s",
                "s",
                None,
                mean_s(faster, "hbert"),
            )
            .note("assumes a card fitted to 490/s rather than to Table 6's 380.9/s"),
            Row::assumed(
                FIGURE,
                "BERT-dedicated over hBERT, 490/s",
                "×",
                Some(RATIO),
                ratio(faster),
            )
            .note(
                "assumes a card fitted to 490/s: the ratio hangs on how nearly hBERT keeps up, not on how much faster \
                 it is",
            ),
        ]);
    }
    // "Other baselines were unable to process the requests in time", and their means rise before hBERT's does.
    for (system, name) in &OTHERS[1..] {
        let over = mean_s(&fitted, system) / mean_s(&fitted, "hbert");
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name} over hBERT at 10,000 tenants, {capacity}: above 1"),
                "×",
                over,
                over > 1.0,
            )
            .note(format!(
                "mean {:.0} s; it serves {:.0} % of the load, hBERT {:.0} %{}{}",
                mean_s(&fitted, system),
                100.0 * served(system),
                100.0 * served("hbert"),
                match *system {
                    "bert-compress-tiny4" => format!(
                        "; {apart}: with what waits of a tenant served together it is {:.2} ×, and the order is the \
                         other one",
                        mean_s(&together, system) / mean_s(&together, "hbert")
                    ),
                    _ => String::new(),
                },
                faster.as_ref().map_or(String::new(), |faster| {
                    let over = mean_s(faster, system) / mean_s(faster, "hbert");
                    format!("; at 490/s, {over:.0} ×")
                }),
            )),
        );
    }
    for (system, name) in OTHERS {
        let few = [10, 100].map(|tenants| latency_ms(few.among(system, tenants)));
        rows.push(
            Row::assumed(FIGURE, format!("{name}, mean at 100 tenants"), "ms", None, few[1]).note(format!(
                "of 10 tenants {:.1} ms; hBERT {:.1} and {:.1} ms; the text has no figure",
                few[0], small[1], small[0]
            )),
        );
    }
    Ok(rows)
}

/// Systems of `hmi/fig-13` beside hBERT.
const OTHERS: [(&str, &str); 4] = [
    ("bert-dedicated", "BERT-dedicated"),
    ("bert-compress-tiny4", "BERT-compress tiny4"),
    ("bert-shared", "BERT-shared"),
    ("hbert-adapter", "hBERT-adapter"),
];

/// 250 threads start 50 ms apart and ask 50 times each.
pub fn figure_13(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 13";
    let runs = lab.runs("hmi/fig-13", &[])?;
    let hbert = runs.among("hbert", 1000);
    let requests = hbert.requests.finished as f64;
    let quantiles = |system: &str, tenants: u32| {
        let latency = runs.among(system, tenants).latency_ms.expect("requests were answered");
        [latency.p50, latency.p90, latency.p99]
    };
    let in_words = |[p50, p90, p99]: [f64; 3]| format!("p50, p90, p99: {p50:.0}, {p90:.0}, {p99:.0} ms");
    let ours = quantiles("hbert", 1000);
    let mut rows = vec![
        Row::input(FIGURE, "requests", "", 12_500.0, requests),
        Row::input(FIGURE, "time that they take", "s", 72.5, hbert.duration_s)
            .note("the paper counts 250 gaps and 50 pauses, of which the last do not matter"),
        Row::assumed(FIGURE, "hBERT, median", "ms", None, ours[0]).note(format!(
            "assumes 1,000 tenants, which nobody says: {}; of 10 tenants {}",
            in_words(ours),
            in_words(quantiles("hbert", 10))
        )),
    ];
    for (system, name) in OTHERS {
        let theirs = quantiles(system, 1000);
        let few = quantiles(system, 10);
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name}, median over hBERT's: above 1, as are p90 and p99"),
                "×",
                theirs[0] / ours[0],
                theirs.iter().zip(ours).all(|(theirs, ours)| *theirs > ours),
            )
            .note(format!("{}; of 10 tenants {}", in_words(theirs), in_words(few))),
        );
    }
    Ok(rows)
}
