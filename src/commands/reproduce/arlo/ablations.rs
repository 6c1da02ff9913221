//! What each part contributes: Figs. 11 and 12, Tables 3 and 4.

use super::{bursty, p50_ms, p98_ms};
use crate::commands::reproduce::lab::{Lab, Runs, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const LOAD: &str = "the load is lost: assumes 6,500 requests/s, which two runtimes cannot serve, in bursts of twice the mean; with bursts of 1.5 times the mean 8 \
     runtimes have a mean of 9.8 ms";

/// Two to sixteen runtimes.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    let runs = lab.runs("arlo/fig-11", &[])?;
    let of = |count: u32| runs.find("arlo", &[("systems[0].runtimes.lengths.count", count.into())]);
    let mean = |count| latency_ms(of(count));
    let late = |count| 100.0 * (1.0 - of(count).slo_attainment.unwrap_or(0.0));
    let mut rows: Vec<Row> = [(8, 14.16, 84.04), (16, 14.45, 81.74)]
        .into_iter()
        .flat_map(|(count, paper_mean, paper_p98)| {
            let what = |of: &str| format!("{count} runtimes, {of}");
            [
                Row::assumed(FIGURE, what("mean"), "ms", Some(paper_mean), mean(count)).note(LOAD),
                Row::assumed(
                    FIGURE,
                    what("98th percentile"),
                    "ms",
                    Some(paper_p98),
                    p98_ms(of(count)),
                )
                .note(LOAD),
            ]
        })
        .collect();
    rows.push(Row::assumed(FIGURE, "4 runtimes, requests beyond the SLO", "%", Some(2.5), late(4)).note(LOAD));
    rows.push(Row::shape(
        FIGURE,
        "2 runtimes fail: requests beyond the SLO",
        "%",
        late(2),
        late(2) > 50.0,
    ));
    rows.push(Row::shape(
        FIGURE,
        "16 runtimes are as good as 8, within a tenth: their mean over that of 8",
        "×",
        mean(16) / mean(8),
        (mean(16) / mean(8) - 1.0).abs() <= 0.1,
    ).note(format!(
        "the paper's are 1.02 and 0.97 times (98th percentiles). The program counts a window's requests against whole instances, and twice as many runtimes are twice as many \
         single instances of rare lengths, which a burst fills. {LOAD}"
    )));
    Ok(rows)
}

/// Even, global, periodic.
pub fn table_3(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 3";
    const PAPER: [(&str, &str, [f64; 3]); 3] = [
        ("even", "even", [455.19, 21.13, 3407.02]),
        ("global", "global", [80.58, 8.21, 1514.53]),
        ("arlo", "each period", [11.51, 8.02, 75.04]),
    ];
    let runs = lab.runs("arlo/table-3", &[])?;
    let mut rows = Vec::new();
    for (system, name, [mean, median, p98]) in PAPER {
        let note = "the load is lost: assumes 6,000 requests/s in bursts of twice the mean; how lengths drift is lost: assumes that they get half as long within twenty minutes";
        let run = runs.of(system);
        rows.push(Row::assumed(FIGURE, format!("{name}, mean"), "ms", Some(mean), latency_ms(run)).note(note));
        rows.push(Row::assumed(FIGURE, format!("{name}, median"), "ms", Some(median), p50_ms(run)).note(note));
        rows.push(Row::assumed(FIGURE, format!("{name}, 98th percentile"), "ms", Some(p98), p98_ms(run)).note(note));
    }
    let mean = |system: &str| latency_ms(runs.of(system));
    for (system, what) in [("even", "even"), ("global", "global")] {
        rows.push(Row::shape(
            FIGURE,
            format!("{what} over each period, mean: far worse"),
            "×",
            mean(system) / mean("arlo"),
            mean(system) > 5.0 * mean("arlo"),
        ));
    }
    rows.push(Row::shape(
        FIGURE,
        "even over global, mean: worse",
        "×",
        mean("even") / mean("global"),
        mean("even") > mean("global"),
    ));
    Ok(rows)
}

/// Allocation over time.
pub fn figure_12(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![Row::not_checkable(
        "Fig. 12",
        "instances of each runtime over 40 minutes",
        "the curves are lost, and the clip's drift of lengths with them; `fleet.allocations` of arlo/table-3's summary has ours",
    )])
}

/// Who gets a request.
pub fn table_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    let setting = |cards: u32, rate: u32, seconds: u32, peak: f64| -> Result<Runs, Failure> {
        let cards = format!("cluster.gpus={cards}");
        let stop = format!("workload.stop={{after: {seconds}s}}");
        lab.runs("arlo/table-4", &[&cards, &bursty(rate, peak), &stop])
    };
    let milder = setting(25, 6_000, 120, 1.5)?;
    let of_milder = |system: &str| {
        format!(
            "{:.0} and {:.0} ms",
            latency_ms(milder.of(system)),
            p98_ms(milder.of(system))
        )
    };
    let note = format!(
        "bursts of twice the mean and BERT-large's level (2.3 times BERT-base) are assumed; with bursts of 1.5 times the mean, 25 cards have means and \
         98th percentiles of {} (ILB), {} (IG) and {} (RS)",
        of_milder("ilb"),
        of_milder("ig"),
        of_milder("arlo")
    );
    let scales = [
        (
            setting(25, 6_000, 120, 2.0)?,
            "25 cards, 6,000/s",
            [(1035.9, 9555.3), (150.21, 422.03), (77.8, 414.58)],
        ),
        (
            setting(80, 20_000, 60, 2.0)?,
            "80 cards, 20,000/s",
            [(77.83, 1024.78), (157.09, 1183.85), (73.61, 810.41)],
        ),
        (
            setting(1000, 250_000, 15, 2.0)?,
            "1,000 cards, 250,000/s",
            [(76.23, 419.04), (172.0, 990.29), (76.09, 408.79)],
        ),
    ];
    let mut rows = Vec::new();
    for (runs, scale, papers) in &scales {
        for ((system, name), (mean, p98)) in [("ilb", "ILB"), ("ig", "IG"), ("arlo", "RS")].into_iter().zip(papers) {
            let run = runs.of(system);
            rows.push(
                Row::assumed(
                    FIGURE,
                    format!("{scale}, {name}: mean"),
                    "ms",
                    Some(*mean),
                    latency_ms(run),
                )
                .note(&note),
            );
            rows.push(
                Row::assumed(
                    FIGURE,
                    format!("{scale}, {name}: 98th percentile"),
                    "ms",
                    Some(*p98),
                    p98_ms(run),
                )
                .note(&note),
            );
        }
        let mean = |system: &str| latency_ms(runs.of(system));
        for (system, name) in [("ilb", "ILB"), ("ig", "IG")] {
            rows.push(Row::shape(
                FIGURE,
                format!("{scale}: RS over {name}, mean: no worse"),
                "×",
                mean("arlo") / mean(system),
                mean("arlo") <= 1.01 * mean(system),
            ));
        }
        let [ilb, ig] = [papers[0].0, papers[1].0];
        let than = if ig > ilb { "worse" } else { "better" };
        let ours = mean("ig") / mean("ilb");
        let row = Row::shape(
            FIGURE,
            format!("{scale}: IG over ILB, mean: {than}"),
            "×",
            ours,
            (ours > 1.0) == (ig > ilb),
        );
        rows.push(row.note(
            "the program that both run on counts on requests that move up: what it gives a length may be less than that length alone asks for. ILB never moves any, so that \
             where an allocation spills (here the 320 tokens' three instances of 80 cards) one of its queues grows; which lengths spill on how many cards hangs on how long \
             queries are, which is fitted to two quantiles",
        ));
    }
    Ok(rows)
}
