//! Latency of Arlo and its baselines: Figs. 2, 6, 7, 8 and 10.

use super::{below, bursty, p98_ms};
use crate::commands::reproduce::lab::{Changed, Lab, Runs, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const BASELINES: [(&str, &str); 3] = [("arlo-st", "ST"), ("arlo-dt", "DT"), ("infaas", "INFaaS")];
/// Ten points of a reduction of some 70 or 98 %.
const TEN_POINTS: [(f64, f64); 2] = [(70.3, 10.0 / 70.3), (98.1, 10.0 / 98.1)];
const INFAAS: &str = "INFaaS is fitted: as many instances of each length, one filled to 2 % of what it finishes within the SLO, which comes near Fig. 6a's 24.9 % (24.5); \
                      at 1, 5, 10, 20 and 85 % Arlo would be 12.8, 58.6, 78.0, 88.8 and 97.5 % below it there (seed 7, 2026-11-23)";
const DYNAMIC: &str =
    "dynamic runtimes are fitted to take 1.45 times as long, so that service and 0.8 ms give Fig. 6a's 23.7 %";
const LEVEL: &str = "BERT-large's level is assumed: 2.3 times BERT-base, between 1.94 (the card's peak arithmetic) and 2.6 (Table 4's load)";

/// What the card was made from.
pub fn figure_2(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 2";
    let mut rows = Vec::new();
    for (scenario, model, ratio) in [("arlo/fig-6a", "BERT-base", 4.22), ("arlo/fig-6b", "BERT-large", 5.25)] {
        let loaded = lab.load(scenario, &[])?;
        let run = &loaded.runs[0];
        let runtimes = run.system.pool.runtimes.as_ref().expect("Arlo has runtimes");
        let service = &runtimes.streams[0].service;
        let (first, last) = (service[0].0 as f64, service[service.len() - 1].0 as f64);
        rows.push(Row::input(
            FIGURE,
            format!("{model}: 512 tokens over 64"),
            "×",
            ratio,
            last / first,
        ));
        rows.push(Row::input(
            FIGURE,
            format!("{model}: step of the staircase, found in the profile"),
            "tokens",
            64.0,
            f64::from(runtimes.streams[0].runtimes[0].max_length),
        ));
        if model == "BERT-base" {
            rows.push(Row::input(FIGURE, "BERT-base at 512 tokens", "ms", 4.86, last / 1e6));
        }
    }
    rows.push(Row::not_checkable(
        FIGURE,
        "dynamic over static, 1.22 to 3.56 times",
        "the text does not say at which lengths; the card has 1.45 at all of them, fitted to Fig. 6a",
    ));
    Ok(rows)
}

/// Reductions of the mean against each baseline.
fn reductions(figure: &'static str, runs: &Runs, papers: [f64; 3], note: &str) -> Vec<Row> {
    let arlo = runs.of("arlo");
    let mut rows: Vec<Row> = BASELINES
        .iter()
        .zip(papers)
        .map(|(&(system, name), paper)| {
            let ours = below(latency_ms(arlo), latency_ms(runs.of(system)));
            let why = match name {
                "ST" => note,
                "DT" => DYNAMIC,
                _ => INFAAS,
            };
            Row::assumed(figure, format!("mean, Arlo below {name}"), "%", Some(paper), ours).note(why)
        })
        .collect();
    let order = ["arlo", "arlo-dt", "infaas", "arlo-st"].map(|system| latency_ms(runs.of(system)));
    rows.push(Row::shape(
        figure,
        "mean: Arlo, DT, INFaaS, ST in this order; Arlo's",
        "ms",
        order[0],
        order.is_sorted(),
    ));
    rows
}

/// Reductions of the 98th percentile, of which the paper has the larger one of a figure's two streams.
fn tails(figure: &'static str, streams: [&Runs; 2], papers: [f64; 3], notes: [&str; 3]) -> Vec<Row> {
    let reduction = |runs: &Runs, system: &str| below(p98_ms(runs.of("arlo")), p98_ms(runs.of(system)));
    let rows = BASELINES.iter().zip(papers).zip(notes);
    rows.map(|((&(system, name), paper), note)| {
        let [base, large] = streams.map(|runs| reduction(runs, system));
        let what = format!("98th percentile, Arlo below {name}, the larger of both streams");
        let each = format!("BERT-base {base:.1} %, BERT-large {large:.1} %. {LEVEL}. {note}");
        Row::assumed(figure, what, "%", Some(paper), base.max(large)).note(each.trim_end())
    })
    .collect()
}

/// Ten cards, BERT-base at 1,000 requests a second.
pub fn figure_6a(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 6a";
    let runs = lab.runs("arlo/fig-6a", &[])?;
    let bare = lab.runs_with("arlo/fig-6a", &[], "overhead_ms", Changed::To(0.0))?;
    let mean = |runs: &Runs, system: &str| latency_ms(runs.of(system));
    let (paper, tolerance) = TEN_POINTS[0];
    let ours = below(mean(&bare, "arlo"), mean(&bare, "arlo-st"));
    let mut rows = vec![
        Row::predicted(
            FIGURE,
            "mean, Arlo below ST, without the simulator's 0.8 ms a request",
            "%",
            [paper, ours],
            tolerance,
        )
        .note("a level rate of 1,000/s, at which ST hardly queues: what is left is padding. Any unevenness of the rate raises it"),
    ];
    let busy = lab.runs("arlo/fig-6a", &["workload.arrivals.poisson.rate=1900/s"])?;
    let level = format!(
        "assumes 0.8 ms more for each request of all systems (section 5.2.1) at a level rate, of which ST takes 49 %; at 1,900 requests/s, 92 % \
         of what ST serves, it is {:.1} %",
        below(mean(&busy, "arlo"), mean(&busy, "arlo-st"))
    );
    rows.extend(reductions(FIGURE, &runs, [70.3, 23.7, 24.9], &level));
    Ok(rows)
}

/// Ten cards, BERT-large at 1,500 requests a second.
pub fn figure_6b(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 6b";
    let runs = lab.runs("arlo/fig-6b", &[])?;
    let ours = below(latency_ms(runs.of("arlo")), latency_ms(runs.of("arlo-st")));
    let arlo = latency_ms(runs.of("arlo"));
    let below_of = |system: &str| below(arlo, latency_ms(runs.of(system)));
    let mut rows = vec![
        Row::contradicted(
            FIGURE,
            "mean, Arlo below ST",
            "%",
            [66.7, ours],
            "150 requests/s on a card that serves 89 padded to 512 tokens cannot be kept up with, and the mean grows for as long as the test lasts",
        ),
        Row::assumed(FIGURE, "mean, Arlo below DT", "%", Some(29.2), below_of("arlo-dt")).note(LEVEL),
        Row::assumed(FIGURE, "mean, Arlo below INFaaS", "%", Some(39.3), below_of("infaas"))
            .note(format!("{LEVEL}; {INFAAS}")),
        Row::shape(
            FIGURE,
            "98th percentile of Arlo; ST's alone is beyond the SLO",
            "ms",
            p98_ms(runs.of("arlo")),
            ["arlo", "arlo-dt", "infaas"]
                .iter()
                .all(|system| p98_ms(runs.of(system)) <= 450.0)
                && p98_ms(runs.of("arlo-st")) > 450.0,
        ),
    ];
    let base = lab.runs("arlo/fig-6a", &[])?;
    let notes = [
        "ST's BERT-large cannot keep up: its tail grows for as long as the test lasts",
        DYNAMIC,
        INFAAS,
    ];
    rows.extend(tails("Fig. 6", [&base, &runs], [89.4, 25.9, 40.1], notes));
    Ok(rows)
}

/// The load rises.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let runs = lab.runs("arlo/fig-7", &[])?;
    let mean =
        |system: &str, rate: &str| latency_ms(runs.find(system, &[("workload.arrivals.poisson.rate", rate.into())]));
    let spread = |rate: &str| mean("arlo-st", rate) / mean("arlo", rate);
    let high = ["arlo-st", "arlo-dt", "infaas"].map(|system| mean(system, "4000/s"));
    Ok(vec![
        Row::shape(
            FIGURE,
            "ST over Arlo at 4,000/s, against that at 500/s: far more",
            "×",
            spread("4000/s"),
            spread("4000/s") > 10.0 * spread("500/s"),
        ),
        Row::shape(
            FIGURE,
            "mean of Arlo at 4,000/s, the lowest of all",
            "ms",
            mean("arlo", "4000/s"),
            high.iter().all(|&other| mean("arlo", "4000/s") < other),
        ),
        Row::not_checkable(
            FIGURE,
            "the curves",
            "the figure's values are lost, and the text has none",
        ),
    ])
}

/// Fig. 8's systems, the paper's names, its cards and its tails in milliseconds.
const FIGURE_8: [(&str, &str, f64, f64); 4] = [
    ("arlo", "Arlo", 5.49, 330.41),
    ("arlo-dt", "DT", 6.38, 397.1),
    ("infaas", "INFaaS", 6.80, 404.12),
    ("arlo-st", "ST", 8.13, 430.54),
];
const LOAD_IS_LOST: &str = "the load is lost: assumes one that climbs and falls twice in twenty minutes";

/// As many cards as the load asks for.
pub fn figure_8(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let described = lab.runs("arlo/fig-8", &[])?;
    let tracking = lab.runs("arlo/fig-8-tracking", &[])?;
    let seconds = |seconds: u32| -> Result<Runs, Failure> {
        let of_system = |system: usize| {
            let rule = format!("systems[{system}].runtimes.scale.rule.target-tracking");
            [format!("{rule}.recent={seconds}s"), format!("{rule}.settle={seconds}s")]
        };
        let set: Vec<String> = (0..FIGURE_8.len()).flat_map(of_system).collect();
        lab.runs(
            "arlo/fig-8-tracking",
            &set.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    };
    let [quicker, slower] = [seconds(1)?, seconds(5)?];
    let cards = |runs: &Runs, system: &str| runs.of(system).gpus_time_weighted.unwrap_or(f64::NAN);
    let tail = |runs: &Runs, system: &str| p98_ms(runs.of(system));
    let list = |of: &dyn Fn(&Runs, &str) -> f64, runs: &Runs, decimals: usize| {
        FIGURE_8
            .map(|(system, ..)| format!("{:.decimals$}", of(runs, system)))
            .join(", ")
    };
    let with = |runs: &Runs| format!("{} cards and {} ms", list(&cards, runs, 2), list(&tail, runs, 0));
    let all_track = format!(
        "{LOAD_IS_LOST}. All four follow the tail of their last 2 s, and a card starts in 1 s, as a replacement does (section 4): 5.1.3 may be read so, and three \
         of the paper's four tails lie at 88 to 96 % of the SLO, where cards are added. Over 1 s instead of 2, Arlo, DT, INFaaS and ST have {}, over 5 s {}",
        with(&quicker),
        with(&slower)
    );
    let mut rows = Vec::new();
    for (system, name, paper_cards, paper_p98) in FIGURE_8 {
        let beyond = described.beyond(&[system]);
        let what = |what: &str| format!("{name}: {what}");
        let (a, b) = (cards(&described, system), tail(&described, system));
        rows.push(
            Row::assumed(FIGURE, what("cards, time-weighted"), "", Some(paper_cards), a)
                .note(format!(
                    "{LOAD_IS_LOST}. Arlo tracks its tail, the others keep headroom (section 5)"
                ))
                .extrapolated(beyond),
        );
        rows.push(
            Row::assumed(FIGURE, what("98th percentile"), "ms", Some(paper_p98), b)
                .note(format!(
                    "{LOAD_IS_LOST}. Headroom hardly lets queue. Arlo is told late: the 98th percentile of 10 s of requests is beyond 95 % of the SLO when a queue is there, \
                     the card that is added starts in 5 s and the next is asked for 10 s later; none of the three times is in the text"
                ))
                .extrapolated(beyond),
        );
        let beyond = tracking.beyond(&[system]);
        let (a, b) = (cards(&tracking, system), tail(&tracking, system));
        rows.push(
            Row::assumed(
                FIGURE,
                what("cards, time-weighted, if all track their tails"),
                "",
                Some(paper_cards),
                a,
            )
            .note(&all_track)
            .extrapolated(beyond),
        );
        rows.push(
            Row::assumed(
                FIGURE,
                what("98th percentile, if all track their tails"),
                "ms",
                Some(paper_p98),
                b,
            )
            .note(&all_track)
            .extrapolated(beyond),
        );
    }
    let in_order = |of: &dyn Fn(&Runs, &str) -> f64, runs: &Runs| FIGURE_8.map(|(system, ..)| of(runs, system));
    let order = in_order(&cards, &described);
    rows.push(
        Row::shape(
            FIGURE,
            "fewer cards: Arlo, DT, INFaaS, ST in this order; Arlo's",
            "",
            order[0],
            order.is_sorted(),
        )
        .note(format!(
            "{} cards. INFaaS keeps as many instances of each length, also on cards that are added, and is then about as good as DT, which is slower by a fitted factor (1.45)",
            list(&cards, &described, 2)
        ))
        .extrapolated(described.beyond(&[])),
    );
    let tails = in_order(&tail, &tracking);
    rows.push(
        Row::shape(
            FIGURE,
            "if all track their tails: 98th percentiles within the SLO of 450 ms; the greatest",
            "ms",
            tails.into_iter().fold(0.0, f64::max),
            tails.iter().all(|tail| *tail <= 450.0),
        )
        .extrapolated(tracking.beyond(&[])),
    );
    let others = tails[1..].iter().copied().fold(f64::INFINITY, f64::min);
    rows.push(
        Row::shape(
            FIGURE,
            "if all track their tails: Arlo's 98th percentile over the least of the others': below 1",
            "×",
            tails[0] / others,
            tails[0] < others,
        )
        .note(format!(
            "who tracks 95 % of the SLO ends up near it, whatever it runs; which is the least hangs on which climb of the lost load meets which number of cards. Over 1 s instead \
             of 2 Arlo's is {:.0} ms, the least of the others' {:.0}",
            tail(&quicker, "arlo"),
            FIGURE_8[1..].iter().map(|(system, ..)| tail(&quicker, system)).fold(f64::INFINITY, f64::min),
        ))
        .extrapolated(tracking.beyond(&[])),
    );
    let order = in_order(&cards, &tracking);
    rows.push(
        Row::shape(
            FIGURE,
            "if all track their tails: fewer cards in the same order; Arlo's",
            "",
            order[0],
            order.is_sorted(),
        )
        .note("DT's are the fewest: any of its cards serves any length, while Arlo keeps one for the rare long ones. How much slower dynamic runtimes are is fitted to Fig. 6a (1.45; the text has 1.22 to 3.56)")
        .extrapolated(tracking.beyond(&[])),
    );
    Ok(rows)
}

/// Ninety cards, BERT-base at 8,000 requests a second.
pub fn figure_10a(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 10a";
    let runs = lab.runs("arlo/fig-10a", &[])?;
    let higher = lab.runs("arlo/fig-10a", &[&bursty(8_000, 2.35)])?;
    let bursts = format!(
        "bursts of twice the mean are assumed, in which ST serves nearly all at once; of 2.35 times the mean {:.1} %",
        below(latency_ms(higher.of("arlo")), latency_ms(higher.of("arlo-st")))
    );
    Ok(reductions(FIGURE, &runs, [70.3, 24.1, 31.3], &bursts))
}

/// Three hundred cards, BERT-large at 25,000 requests a second.
pub fn figure_10b(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 10b";
    let runs = lab.runs("arlo/fig-10b", &[])?;
    let (paper, tolerance) = TEN_POINTS[1];
    let ours = below(latency_ms(runs.of("arlo")), latency_ms(runs.of("arlo-st")));
    let mut rows = reductions(FIGURE, &runs, [98.1, 30.7, 41.7], "");
    rows[0] = Row::predicted(FIGURE, "mean, Arlo below ST", "%", [paper, ours], tolerance).note(
        format!("bursts of twice the mean; {LEVEL}; with 2.47 on ST could not keep up, and its mean would grow for as long as the test lasts"),
    );
    let base = lab.runs("arlo/fig-10a", &[])?;
    rows.extend(tails(
        "Fig. 10",
        [&base, &runs],
        [98.4, 26.0, 29.3],
        ["", DYNAMIC, INFAAS],
    ));
    Ok(rows)
}
