//! What each part contributes: Figs. 11 and 12, Tables 3 and 4.

use tenantry_reports::RunSummary;

use super::{SEEDS, bursty, p50_ms, p98_ms};
use crate::commands::reproduce::lab::{Lab, Runs, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::commands::reproduce::seeds::{Seeds, Spread};
use crate::failure::Failure;

/// Two to sixteen runtimes.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    let seeds = lab.seeds("arlo/fig-11", &[], &SEEDS)?;
    fn of(runs: &Runs, count: u32) -> &RunSummary {
        runs.find("arlo", &[("systems[0].runtimes.lengths.count", count.into())])
    }
    let mean = |count| seeds.spread(|runs| latency_ms(of(runs, count)));
    let tail = |count| seeds.spread(|runs| p98_ms(of(runs, count)));
    let late_of = |runs: &Runs, count| 100.0 * (1.0 - of(runs, count).slo_attainment.unwrap_or(0.0));
    let late = |count| seeds.spread(|runs| late_of(runs, count));
    let eight = r#"sweep={"systems[0].runtimes.lengths.count": [8]}"#;
    let milder = lab.seeds("arlo/fig-11", &[&bursty(6_500, 1.5), eight], &SEEDS)?;
    let load = format!(
        "the load is lost: assumes 6,500 requests/s, which two runtimes cannot serve, in bursts of twice the mean; \
         with bursts of 1.5 times the mean 8 runtimes have a mean of {:.1} ms, and {:.2} % of requests are late",
        milder.spread(|runs| latency_ms(of(runs, 8))).median,
        milder.spread(|runs| late_of(runs, 8)).median
    );
    let assumed = |what: String, unit, paper, ours: Spread| {
        let row = Row::assumed(FIGURE, what, unit, Some(paper), ours.median);
        row.over(ours).note(&load)
    };
    let mut rows = Vec::new();
    for (count, paper_mean, paper_p98) in [(8, 14.16, 84.04), (16, 14.45, 81.74)] {
        rows.push(assumed(
            format!("{count} runtimes, mean"),
            "ms",
            paper_mean,
            mean(count),
        ));
        rows.push(assumed(
            format!("{count} runtimes, 98th percentile"),
            "ms",
            paper_p98,
            tail(count),
        ));
    }
    let few = "4 runtimes, requests beyond the SLO";
    rows.push(assumed(few.to_owned(), "%", 2.5, late(4)));
    let shape = |what, unit, ours: Spread, holds: fn(f64) -> bool| {
        Row::shape(FIGURE, what, unit, ours.median, holds(ours.median)).over(ours)
    };
    rows.push(shape(
        "2 runtimes fail: requests beyond the SLO",
        "%",
        late(2),
        |late| late > 50.0,
    ));
    rows.push(
        shape("8 runtimes: no request beyond the SLO", "%", late(8), |late| {
            late == 0.0
        })
        .note(format!(
            "the paper's 98th percentile, 84 ms, is a fifth of the SLO, and so its load lighter than \
             ours or its bursts milder. {load}"
        )),
    );
    let more = seeds.ratio(|runs| latency_ms(of(runs, 16)), |runs| latency_ms(of(runs, 8)));
    rows.push(
        shape(
            "16 runtimes are as good as 8, within a tenth: their mean over that of 8",
            "×",
            more,
            |more| (more - 1.0).abs() <= 0.1,
        )
        .note(format!(
            "the paper's are 1.02 and 0.97 times (98th percentiles). The program counts a window's requests against \
             whole instances, and twice as many runtimes are twice as many single instances of rare lengths, which a \
             burst fills. {load}"
        )),
    );
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
        let note = "the load is lost: assumes 6,000 requests/s in bursts of twice the mean; how lengths drift is lost: \
                    assumes that they get half as long within twenty minutes";
        let run = runs.of(system);
        rows.push(Row::assumed(FIGURE, format!("{name}, mean"), "ms", Some(mean), latency_ms(run)).note(note));
        rows.push(Row::assumed(FIGURE, format!("{name}, median"), "ms", Some(median), p50_ms(run)).note(note));
        rows.push(Row::assumed(FIGURE, format!("{name}, 98th percentile"), "ms", Some(p98), p98_ms(run)).note(note));
    }
    let mean = |system: &str| latency_ms(runs.of(system));
    for (system, what) in [("even", "even"), ("global", "global")] {
        let row = Row::shape(
            FIGURE,
            format!("{what} over each period, mean: far worse"),
            "×",
            mean(system) / mean("arlo"),
            mean(system) > 5.0 * mean("arlo"),
        );
        rows.push(row.note(
            "the paper's are 40 (even) and 7.0 times (global). Ours keeps the longest runtime within its capacity, which \
             the paper's program does not, and how lengths drift is lost",
        ));
    }
    for (what, of) in [
        ("mean", latency_ms as fn(&RunSummary) -> f64),
        ("98th percentile", p98_ms),
    ] {
        let [even, global] = ["even", "global"].map(|system| of(runs.of(system)));
        let what = format!("even over global, {what}: worse");
        rows.push(Row::shape(FIGURE, what, "×", even / global, even > global));
    }
    let [global, arlo] = ["global", "arlo"].map(|system| p98_ms(runs.of(system)));
    rows.push(Row::shape(
        FIGURE,
        "global over each period, 98th percentile: far worse",
        "×",
        global / arlo,
        global > 5.0 * arlo,
    ));
    let even = runs.of("even");
    rows.push(
        Row::shape(
            FIGURE,
            "even, median over mean: most requests do not queue, below a tenth",
            "×",
            p50_ms(even) / latency_ms(even),
            p50_ms(even) < 0.1 * latency_ms(even),
        )
        .note(
            "the paper's is 0.05 times: its even shares fall short for a stretch of its forty minutes, ours for most \
             of the twenty, in which tweets are longer than at the end; how lengths drift is lost",
        ),
    );
    Ok(rows)
}

/// Allocation over time.
pub fn figure_12(_: &Lab) -> Result<Vec<Row>, Failure> {
    Ok(vec![Row::not_checkable(
        "Fig. 12",
        "instances of each runtime over 40 minutes",
        "the curves are lost, and the clip's drift of lengths with them; ours are drawn in the page of `tenantry \
         simulate arlo/table-3` (Instances of each runtime)",
    )])
}

/// Table 4's systems, the paper's names.
const DISPATCHERS: [(&str, &str); 3] = [("ilb", "ILB"), ("ig", "IG"), ("arlo", "RS")];

/// Who gets a request.
pub fn table_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    let setting = |cards: u32, rate: u32, seconds: u32, peak: f64| -> Result<Seeds, Failure> {
        let cards = format!("cluster.gpus={cards}");
        let stop = format!("workload.stop={{after: {seconds}s}}");
        lab.seeds("arlo/table-4", &[&cards, &bursty(rate, peak), &stop], &SEEDS)
    };
    let mean = |seeds: &Seeds, system: &str| seeds.spread(|runs| latency_ms(runs.of(system)));
    let tail = |seeds: &Seeds, system: &str| seeds.spread(|runs| p98_ms(runs.of(system)));
    let milder = setting(25, 6_000, 120, 1.5)?;
    let of_milder = |system: &str| {
        format!(
            "{:.0} and {:.0} ms",
            mean(&milder, system).median,
            tail(&milder, system).median
        )
    };
    let note = format!(
        "bursts of twice the mean and BERT-large's level (2.3 times BERT-base) are assumed; with bursts of 1.5 times \
         the mean, 25 cards have means and 98th percentiles of {} (ILB), {} (IG) and {} (RS)",
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
    for (seeds, scale, papers) in &scales {
        for ((system, name), (paper_mean, paper_p98)) in DISPATCHERS.into_iter().zip(papers) {
            let figures = [
                ("mean", paper_mean, mean(seeds, system)),
                ("98th percentile", paper_p98, tail(seeds, system)),
            ];
            rows.extend(figures.map(|(what, paper, ours)| {
                let what = format!("{scale}, {name}: {what}");
                let row = Row::assumed(FIGURE, what, "ms", Some(*paper), ours.median);
                row.over(ours).note(&note)
            }));
        }
        for (system, name) in &DISPATCHERS[..2] {
            let [by_mean, by_tail] = [latency_ms as fn(&RunSummary) -> f64, p98_ms]
                .map(|of| seeds.ratio(|runs| of(runs.of("arlo")), |runs| of(runs.of(system))));
            for (what, ours) in [("mean", by_mean), ("98th percentile", by_tail)] {
                let what = format!("{scale}: RS over {name}, {what}: no worse");
                rows.push(Row::shape(FIGURE, what, "×", ours.median, ours.median <= 1.01).over(ours));
            }
        }
        let [ilb, ig] = [papers[0].0, papers[1].0];
        let than = if ig > ilb { "worse" } else { "better" };
        let ours = seeds.ratio(|runs| latency_ms(runs.of("ig")), |runs| latency_ms(runs.of("ilb")));
        let row = Row::shape(
            FIGURE,
            format!("{scale}: IG over ILB, mean: {than}"),
            "×",
            ours.median,
            (ours.median > 1.0) == (ig > ilb),
        );
        rows.push(row.over(ours).note(
            "the program that both run on counts on requests that move up: what it gives a length may be less than \
             that length alone asks for. ILB never moves any, so that where an allocation spills (here the 320 tokens' \
             three instances of 80 cards) one of its queues grows; which lengths spill on how many cards hangs on how \
             long queries are, which is fitted to two quantiles",
        ));
    }
    rows.extend(replanned(lab)?);
    rows.extend(swinging(lab)?);
    Ok(rows)
}

/// The same with an allocation every 120 s from the lengths seen until then (section 3.3), where the rows above have
/// one that knows the whole workload, so that dispatch is all that differs.
fn replanned(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    let replanned =
        |system| format!("systems[{system}].runtimes.allocate={{periodic: {{period: 120s, first: 10s, at_once: 4}}}}");
    let systems = [0, 1, 2].map(replanned);
    let mut settings = vec!["cluster.gpus=25", "workload.stop={after: 250s}", "workload.warm_up=30s"];
    let load = bursty(6_000, 2.0);
    settings.push(&load);
    settings.extend(systems.iter().map(String::as_str));
    let seeds = lab.seeds("arlo/table-4", &settings, &SEEDS)?;
    let note = "the first answer comes after ten seconds, of which their bursts are a part, and stays for two minutes";
    let row = |((system, name), paper): ((&str, &str), f64)| {
        let ours = seeds.spread(|runs| latency_ms(runs.of(system)));
        let what = format!("25 cards, 6,000/s, planned every 120 s, {name}: mean");
        Row::assumed(FIGURE, what, "ms", Some(paper), ours.median).over(ours).note(note)
    };
    let mut rows: Vec<Row> = DISPATCHERS.into_iter().zip([1035.9, 150.21, 77.8]).map(row).collect();
    for (less, more, what) in [
        ("arlo", "ilb", "RS over ILB"),
        ("arlo", "ig", "RS over IG"),
        ("ig", "ilb", "IG over ILB"),
    ] {
        let ours = seeds.ratio(|runs| latency_ms(runs.of(less)), |runs| latency_ms(runs.of(more)));
        let what = format!("25 cards, 6,000/s, planned every 120 s: {what}, mean: better");
        rows.push(Row::shape(FIGURE, what, "×", ours.median, ours.median < 1.0).over(ours));
    }
    Ok(rows)
}

/// Lengths that swing within seconds, which the paper gives as the reason for its request scheduler (sections 3.2 and
/// 5.2.3) without a number, beside lengths that do not.
fn swinging(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const SWING: &str = "workload.lengths.input={drifting: {from: {twitter: {tweets: arlo, span: 420}}, to: {twitter: \
                         {tweets: arlo, span: 512}}, requests: 25000}}";
    let level = ["cluster.gpus=25", "workload.arrivals={poisson: {rate: 5000/s}}"];
    let independent = lab.seeds("arlo/table-4", &level, &SEEDS)?;
    let swinging = lab.seeds("arlo/table-4", &[&level[..], &[SWING]].concat(), &SEEDS)?;
    let mean = |seeds: &Seeds, system: &str| seeds.spread(|runs| latency_ms(runs.of(system)));
    let row = |(system, name): (&str, &str)| {
        let ours = mean(&swinging, system);
        let what =
            format!("25 cards, 5,000/s without bursts, tweets that get longer and shorter within 5 s, {name}: mean");
        Row::assumed("Table 4", what, "ms", None, ours.median).over(ours).note(format!(
            "the text has p98 of 71 tokens in ten minutes and 58 in ten seconds (section 3.2); assumes spans that \
                 swing between 420 and 512; {:.1} ms where they do not",
            mean(&independent, system).median
        ))
    };
    Ok(DISPATCHERS.map(row).into())
}
