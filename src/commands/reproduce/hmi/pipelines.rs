//! What prefetching and fewer layers are worth: Tables 6 and 7, Fig. 17.

use crate::commands::reproduce::lab::{Changed, Lab, Runs, change, latency_ms, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// System of `hmi/table-6`, what it leaves out, and the paper's requests a second.
const ABLATIONS: [(&str, &str, f64); 3] = [
    ("without-pipelined-retrieval", "without pipelined retrieval", 340.1),
    (
        "without-pipelined-adapter-swapping",
        "without pipelined adapter swapping",
        338.9,
    ),
    ("synchronized", "synchronized", 304.8),
];
const HBERT: f64 = 380.9;
const DEDICATED: f64 = 165.2;
/// Batches of this size, to see what an assumed 32 is worth.
const SMALLER_BATCH: [&str; 4] = [
    "systems[0].batch.fixed-size.size=16",
    "systems[1].batch.fixed-size.size=16",
    "systems[2].batch.fixed-size.size=16",
    "systems[3].batch.fixed-size.size=16",
];

/// Throughput with and without the two prefetches.
pub fn table_6(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 6";
    let runs = lab.runs("hmi/table-6", &[])?;
    let faster_link = lab.runs_if("hmi/table-6", &[], "link_gbytes_per_s", Changed::By(1.2))?;
    let smaller = lab.runs_if("hmi/table-6", &SMALLER_BATCH, "batch", Changed::To(16.0))?;
    let changed = faster_link.as_ref().zip(smaller.as_ref());
    let resident = lab.runs("hmi/table-6", &["tenants.count=16", "cluster={gpus: 1}"])?;
    let dedicated = rate(lab.runs("hmi/table-6-dedicated", &[])?.of("bert-dedicated"));
    let hbert = rate(runs.of("hbert"));

    let pairs = "assumes batches of 32, which the paper does not say: they fall apart into a pair for each of the 16 \
                 tenants, as this row's figure needs";
    let mut rows = vec![
        Row::input(FIGURE, "hBERT", "/s", HBERT, hbert),
        Row::assumed(FIGURE, "BERT-dedicated", "/s", Some(DEDICATED), dedicated).note(pairs),
        Row::assumed(
            FIGURE,
            "hBERT over BERT-dedicated",
            "×",
            Some(HBERT / DEDICATED),
            hbert / dedicated,
        )
        .note(pairs),
    ];
    for (system, what, paper) in ABLATIONS {
        let ours = rate(runs.of(system));
        let sensitivity = changed.map(|(faster_link, smaller)| {
            format!(
                "; a link a fifth faster changes it by {}, batches of 16 by {}",
                change(ours, rate(faster_link.of(system))),
                change(ours, rate(smaller.of(system))),
            )
        });
        rows.push(Row::predicted(FIGURE, what, "/s", [paper, ours], 0.1).note(format!(
            "assumes that every request brings its adapter along, and batches of 32{}",
            sensitivity.unwrap_or_default()
        )));
    }
    for (system, what, paper) in ABLATIONS {
        let slower = |runs: &Runs| 1e3 / rate(runs.of(system)) - 1e3 / rate(runs.of("hbert"));
        let increment = 1e3 / paper - 1e3 / HBERT;
        let sensitivity = changed.map(|(faster_link, smaller)| {
            format!(
                "a link a fifth faster: {:.3} ms; batches of 16: {:.3} ms",
                slower(faster_link),
                slower(smaller)
            )
        });
        rows.push(
            Row::predicted(
                FIGURE,
                format!("{what}: more time a request"),
                "ms",
                [increment, slower(&runs)],
                0.4,
            )
            .note(sensitivity.unwrap_or_default()),
        );
    }
    let gain = |fast: f64, slow: f64| 100.0 * (fast / slow - 1.0);
    let synchronized = rate(runs.of("synchronized"));
    rows.push(Row::predicted(
        FIGURE,
        "what both prefetches gain",
        "%",
        [gain(HBERT, ABLATIONS[2].2), gain(hbert, synchronized)],
        0.4,
    ));
    let looped = lab.runs("hmi/table-6", &["systems[0].tenant_state.adapters.implementation=loop"])?;
    rows.push(
        Row::assumed(
            FIGURE,
            "hBERT, adapters one tenant after the other",
            "/s",
            None,
            rate(looped.of("hbert")),
        )
        .note(
            "section 7 credits batched products beside prefetching, 6.3 refers to section 7.8 for it, which does not \
             show it; assumes that a loop differs by its launches alone",
        ),
    );
    let adapters = rate(resident.of("without-pipelined-adapter-swapping"));
    rows.push(
        Row::assumed(
            FIGURE,
            "without pipelined adapter swapping, 16 tenants taken literally",
            "/s",
            Some(ABLATIONS[1].2),
            adapters,
        )
        .note(
            "the adapters of 16 tenants stay on the card, and there is nothing to prefetch: the paper's loss says that \
             they were loaded for each request",
        ),
    );
    let shared = rate(lab.runs("hmi/fig-11", &["sweep={tenants.count: [10]}"])?.among("bert-shared", 10));
    rows.push(
        Row::shape(
            FIGURE,
            "synchronized hBERT over BERT-shared: above 1",
            "×",
            synchronized / shared,
            synchronized > shared,
        )
        .note("section 7.8 says BERT-shared where the table has BERT-dedicated; it holds for both"),
    );
    Ok(rows)
}

/// The lanes of the pipeline, as shares of the time.
pub fn figure_17(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 17";
    let runs = lab.runs("hmi/fig-17", &[])?;
    let lanes = &runs.of("hbert").lanes;
    let busy = |begins: &str| -> f64 {
        let of_kind = lanes.iter().filter(|(name, _)| name.contains(begins));
        of_kind.map(|(_, lane)| lane.busy_share).sum()
    };
    let (compute, lookup, copy) = (busy("compute"), busy("lookup"), busy("copy"));
    let timeline = "`tenantry simulate hmi/fig-17 --timeline=0s..110ms` draws it";
    Ok(vec![
        Row::shape(
            FIGURE,
            "computing, share of the time: nearly all",
            "",
            compute,
            compute > 0.97,
        )
        .note(timeline),
        Row::shape(
            FIGURE,
            "searching over computing: much smaller, hidden",
            "",
            lookup / compute,
            lookup > 0.0 && lookup < 0.25 * compute,
        ),
        Row::shape(
            FIGURE,
            "loading adapters and representations over computing: much smaller, hidden",
            "",
            copy / compute,
            copy > 0.0 && copy < 0.25 * compute,
        )
        .note("copies include what was looked up, 393 KB a request, which the figure does not show"),
    ])
}

/// Latency of fewer layers, one request at a time.
pub fn table_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 7";
    let runs = lab.runs("hmi/table-7", &[])?;
    // The median: the first request loads its model.
    let median = |system: &str| runs.of(system).latency_ms.map_or(f64::INFINITY, |latency| latency.p50);
    let saved = |system: &str| 100.0 * (median(system) / median("bert-dedicated") - 1.0);
    let row = |what: &str, system: &str, paper: f64| Row::predicted(FIGURE, what, "%", [paper, saved(system)], 0.1);
    let large_batch = lab.runs(
        "hmi/table-7",
        &[
            "workload.arrivals.closed-loop.clients=32",
            "workload.stop.requests=3200",
        ],
    )?;
    let busy = |system: &str| latency_ms(large_batch.of(system));
    Ok(vec![
        row("hBERT-PLOT 6+6, latency against twelve layers", "hbert-plot-6+6", -49.0),
        row("hBERT-PLOT 6+4", "hbert-plot-6+4", -66.0),
        row("BERT-compress of six layers", "bert-compress-6", -49.0),
        row("BERT-compress distil4", "bert-compress-distil4", -66.0),
        row("BERT-compress tiny4", "bert-compress-tiny4", -66.0)
            .note("at batch 1 launches bind, and four narrow layers take as long as four wide ones"),
        Row::shape(
            FIGURE,
            "hBERT-PLOT 6+6 where requests wait for each other, against twelve layers",
            "%",
            100.0 * (busy("hbert-plot-6+6") / busy("bert-dedicated") - 1.0),
            busy("hbert-plot-6+6") < busy("bert-dedicated"),
        ),
    ])
}
