//! `tenantry reproduce`: that it runs, that its predictions hold, and that its figures are the ones that were looked
//! at.

use std::fs;

use crate::common::{check_bad, good, tenantry};
use serde_json::Value;

/// A row that was looked at: figure, what, ours.
type Golden = (&'static str, &'static str, f64);

/// How far a figure may move before somebody should look again.
const DRIFT: f64 = 0.01;

/// The same of a share that is judged in percentage points.
const DRIFT_POINTS: f64 = 0.2;

/// A row that is not met: figure, what. Orders of the papers that do not hold here, and predictions and inputs that
/// miss, each with a note that says why.
type NotMet = (&'static str, &'static str);

const PETS_NOT_MET: &[NotMet] = &[
    ("Table 5", "SeqS, BERT-large on TX2, 8 GB"),
    ("Table 5", "PetS, DistilBERT on 1080 Ti, 11 GB"),
    ("Table 5", "PetS, BERT-base on 1080 Ti, 11 GB"),
    ("Table 5", "PetS, BERT-large on 1080 Ti, 11 GB"),
    ("Table 5", "PetS, BERT-large on V100, 32 GB"),
    (
        "Table 5",
        "PetS over SeqS, DistilBERT on V100, over the most of the nine: it is the most",
    ),
    ("Fig. 9", "tasks' operators, greatest share of the time"),
    ("Fig. 11", "32 tasks, 32 streams, 4 tokens, time saved: some"),
    (
        "Fig. 11",
        "32 tasks: 32 streams are the best number at every length, saved over the best other at least",
    ),
    ("Fig. 12", "coordinated over α-only at deviation 4, 32 tasks: wins"),
    ("Fig. 12", "coordinated over α-only at deviation 8, 128 tasks: loses"),
    (
        "Fig. 12",
        "the choice by deviation (12, the preset's) over the better of both, at worst: the better",
    ),
];

const ARLO_NOT_MET: &[NotMet] = &[
    ("Fig. 6a", "mean, Arlo below ST"),
    ("Fig. 6a", "mean, Arlo below DT"),
    (
        "Fig. 6a",
        "98th percentile, Arlo's over the least of the others': below 1",
    ),
    (
        "Fig. 6b",
        "98th percentile, Arlo's over the least of the others': below 1",
    ),
    ("Fig. 8", "fewer cards: Arlo, DT, INFaaS, ST in this order; Arlo's"),
    ("Fig. 8", "98th percentile: Arlo, DT, INFaaS, ST in this order; Arlo's"),
    (
        "Fig. 8",
        "if all track their tails: Arlo's 98th percentile over the least of the others': below 1",
    ),
    (
        "Fig. 8",
        "if all track their tails: fewer cards in the same order; Arlo's",
    ),
    ("Fig. 11", "8 runtimes: no request beyond the SLO"),
    (
        "Fig. 11",
        "16 runtimes are as good as 8, within a tenth: their mean over that of 8",
    ),
    ("Table 3", "global over each period, mean: far worse"),
    (
        "Table 3",
        "even, median over mean: most requests do not queue, below a tenth",
    ),
    ("Table 4", "80 cards, 20,000/s: IG over ILB, mean: worse"),
    (
        "Section 6",
        "two streams on 16 cards, mean: the shares by the whole workload's mean load over shares that follow what comes in: longer",
    ),
];

const TABI_NOT_MET: &[NotMet] = &[
    ("Table 2", "SST-2, Tabi, latency below INFaaS's"),
    ("Table 2", "MNLI, Tabi, latency below INFaaS's"),
    ("Table 2", "MNLI, Tabi, latency over Cocktail's: below 1"),
    ("Table 2", "MNLI, Tabi's queries over Cocktail's: above 1"),
    ("Table 2", "SST-2, Tabi's queries above INFaaS's"),
    ("Fig. 7", "MNLI, p99 over INFaaS's: better (section 7.2)"),
];

/// A figure of which rows are priced beyond the range of the card's tables, and how many.
type Extrapolated<'a> = (&'a str, usize);

/// Has the table of such rows: paper, figure, rows.
const EXTRAPOLATED_ROWS: &str = include_str!("../../docs/reproduce.md");

fn check(paper: &str, not_met: &[NotMet], extrapolated: &[Extrapolated<'_>], golden: &[Golden]) {
    let place = tempfile::tempdir().unwrap();
    let output = tenantry(place.path(), &["reproduce", paper, "--json", "--out", "out"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let written = fs::read_to_string(place.path().join("out/reproduce.json")).unwrap();
    assert_eq!(printed, written);
    let value: Value = serde_json::from_str(&printed).unwrap();
    let papers = value["papers"].as_array().unwrap();
    assert_eq!(papers.len(), 1);
    let rows = papers[0]["rows"].as_array().unwrap();
    let missed = rows
        .iter()
        .any(|row| (row["kind"] == "predicted" || row["kind"] == "input") && row["within"] != true);
    assert_eq!(
        (&papers[0]["paper"], &papers[0]["within"]),
        (&paper.into(), &(!missed).into())
    );
    assert_eq!(output.status.code(), Some(if missed { 3 } else { 0 }));

    let page = fs::read_to_string(place.path().join("out/reproduce.md")).unwrap();
    let mut wrong = Vec::new();
    let grounds = papers[0]["grounds"].as_array().unwrap();
    let origins = grounds.iter().flat_map(|ground| ground["origins"].as_array()).flatten();
    // No paper's card was measured here, and its reader is told.
    let fitted = origins.filter(|origin| origin.as_str().is_some_and(|origin| origin.contains(", fitted (")));
    assert!(fitted.count() > 0 && page.contains(", fitted ("));
    let beyond =
        |figure: &str| rows.iter().filter(|row| row["extrapolated"] == true && row["figure"] == figure).count();
    for (figure, count) in extrapolated {
        let ground = grounds.iter().find(|ground| ground["figure"] == *figure && !ground["extrapolated"].is_null());
        let sentence = ground.and_then(|ground| ground["extrapolated"].as_str());
        if beyond(figure) != *count || !sentence.is_some_and(|sentence| page.contains(sentence)) {
            wrong.push(format!(
                "{figure}: {} rows are extrapolated, of {sentence:?}",
                beyond(figure)
            ));
        }
    }
    // The table of the docs says the same.
    let documented: Vec<Extrapolated<'_>> = EXTRAPOLATED_ROWS
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, of, figure, count, _, _] = cells[..] else {
                return None;
            };
            (of == paper).then(|| (figure, count.parse().expect("a number of rows")))
        })
        .collect();
    assert_eq!(documented, extrapolated, "docs/reproduce.md");
    let all = rows.iter().filter(|row| row["extrapolated"] == true).count();
    assert_eq!(all, extrapolated.iter().map(|(_, count)| count).sum::<usize>());
    for row in rows {
        let name = format!("{}, {}", row["figure"], row["what"]);
        let kind = row["kind"].as_str().unwrap();
        let judged = ["input", "predicted", "shape-only", "ours"].contains(&kind);
        let explained = row["note"].as_str().is_some_and(|note| !note.is_empty());
        let known = |(figure, what): &NotMet| row["figure"] == *figure && row["what"] == *what;
        let is_known = explained && not_met.iter().any(known);
        if judged && (row["within"] == true) == is_known {
            wrong.push(format!("{name} is not met, or is now: {row}"));
        }
        if ["assumed", "contradicted", "not-checkable"].contains(&kind) && !explained {
            wrong.push(format!("{name} does not say why"));
        }
        if (kind == "not-checkable") != row["ours"].is_null() {
            wrong.push(format!("{name} has a figure where it must not, or none"));
        }
        assert!(page.contains(row["what"].as_str().unwrap()), "{name}");
        // Of several seeds it is the median.
        if let Some(range) = row["range"].as_object() {
            let [least, ours, greatest] =
                [&range["least"], &row["ours"], &range["greatest"]].map(|of| of.as_f64().unwrap());
            let seeds = range["seeds"].as_u64().unwrap();
            assert!(least <= ours && ours <= greatest && seeds % 2 == 1, "{name}: {row}");
            assert!(page.contains(&format!("({seeds} seeds: ")), "{name}");
        }
    }
    let find = |figure: &str, what: &str| rows.iter().find(|row| row["figure"] == figure && row["what"] == what);
    for (figure, what) in not_met {
        if find(figure, what).is_none() {
            wrong.push(format!("{figure}, {what} is not there"));
        }
    }
    for (figure, what, expected) in golden {
        let found = find(figure, what);
        let ours = found.and_then(|row| row["ours"].as_f64()).unwrap_or(f64::NAN);
        let (drift, most) = match found.is_some_and(|row| row["in_points"] == true) {
            true => (ours - expected, DRIFT_POINTS),
            false => (ours / expected - 1.0, DRIFT),
        };
        if drift.is_nan() || drift.abs() > most {
            wrong.push(format!("{figure}, {what}: was {expected}, is {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn hmi_is_reproduced() {
    check(
        "hmi",
        &[],
        &[("Fig. 15", 5)],
        &[
            ("Table 6", "hBERT", 380.9),
            ("Table 6", "BERT-dedicated", 160.1),
            ("Table 6", "without pipelined retrieval", 349.8),
            ("Table 6", "without pipelined adapter swapping", 346.9),
            ("Table 6", "synchronized", 320.9),
            ("Table 6", "hBERT over BERT-dedicated", 2.38),
            ("Table 2", "BERT-dedicated, instances in 16 GB", 36.0),
            ("Table 2", "BERT-compress tiny4, instances in 16 GB", 279.0),
            ("Fig. 3", "1,000 tenants, share that loads a model", 96.7),
            ("Fig. 12", "hBERT, mean at 10,000 tenants, Table 6's capacity", 312.7),
            ("Fig. 12", "BERT-dedicated over hBERT, Table 6's capacity", 74.8),
            ("Table 7", "hBERT-PLOT 6+6, latency against twelve layers", -48.6),
            ("Table 4", "hGPT-PLOT 6+6, latency against twelve layers", -44.8),
            ("Fig. 15", "hGPT, 10,000 tenants over 1: constant", 0.99),
            ("Fig. 15", "hGPT at 10,000 tenants", 3478.0),
        ],
    );
}

#[test]
fn pets_is_reproduced() {
    check(
        "pets",
        PETS_NOT_MET,
        &[("Fig. 8", 1)],
        &[
            ("Table 5", "SeqS, BERT-base on 1080 Ti, 11 GB", 28.0),
            ("Table 5", "PetS, BERT-base on V100, 32 GB", 2332.0),
            ("Table 5", "PetS, BERT-large on 1080 Ti, 11 GB", 211.0),
            ("Table 5", "PetS, BERT-base on TX2, 8 GB", 239.0),
            ("Table 5", "PetS over SeqS, DistilBERT on V100, 32 GB", 27.8),
            ("Table 5", "PetS over SeqS, least of the nine", 13.0),
            (
                "Table 1",
                "a task of BERT-large over its model, masks as they are stored",
                2.82,
            ),
            ("Fig. 7", "1080 Ti, mean over models, shapes and tasks", 1.648),
            ("Fig. 7", "V100, mean over models, shapes and tasks", 1.815),
            ("Fig. 7", "V100, greatest", 1.981),
            ("Fig. 8", "PetS over ParS, 16 tasks, mean of four shapes", 1.2),
            (
                "Fig. 8",
                "PetS over ParS, 16 tasks of 1 × 32 tokens, which the paper does not have",
                0.919,
            ),
            ("Fig. 9", "shared operators of 8 tasks, greatest speed-up", 3.06),
            ("Fig. 11", "32 tasks, 32 streams, time saved at most", 10.54),
            (
                "Fig. 11",
                "8 streams by intensity (Algorithm 2) over tasks in turn, all shapes, time saved in the mean: more",
                -0.750,
            ),
            ("Fig. 12", "coordinated over fixed, mean", 1.550),
            ("Fig. 12", "coordinated over β-only, mean", 1.313),
            ("Fig. 12", "coordinated over α-only, deviation 1 to 4, mean", 1.071),
            (
                "Fig. 12",
                "coordinated over α-only at deviation 4, 32 tasks: wins",
                0.968,
            ),
            (
                "Fig. 12",
                "the cheaper of both plans over α-only at deviation 4, 32 tasks",
                1.0,
            ),
            (
                "Section 7",
                "500/s: p98 of batches planned online over that of batches of 8 or 32 that wait until they are full: below 1",
                0.758,
            ),
            (
                "Section 7",
                "1000/s: over that of up to 32 or 128 taken as soon as the card is free: at most 1.02",
                0.113,
            ),
            (
                "Section 7",
                "900/s: interactive queries within 150 ms where bulk ones have 600 ms, over planning with 150 ms for all: more",
                3.18,
            ),
            (
                "Section 7",
                "1300/s: interactive queries within 150 ms where bulk ones have 600 ms, over planning with 150 ms for all: more",
                53.7,
            ),
        ],
    );
}

#[test]
fn punica_is_reproduced() {
    check(
        "punica",
        &[],
        &[("Fig. 11", 2), ("Fig. 13", 5)],
        &[
            ("Fig. 7", "skewed, operations a byte of 64 requests", 4.92),
            ("Fig. 7", "skewed, operations a second at 64", 368.0),
            ("Fig. 8", "skewed, batch 64 over 1 (37 to 46 µs)", 1.084),
            ("Fig. 9", "rank 64, skewed, 64 requests over one (42 to 45 µs)", 1.102),
            ("Fig. 10", "13B, 512 tokens: a layer of 32 over one of 1", 1.417),
            ("Fig. 10", "13B, 2048 tokens: a layer of 32, distinct", 1.46),
            ("Fig. 11", "7B, Punica, distinct", 1024.0),
            ("Fig. 11", "7B, vLLM backbone, identical", 1105.0),
            ("Fig. 11", "13B, Punica, distinct", 676.0),
            ("Fig. 11", "13B, vLLM backbone, identical", 725.0),
            ("Fig. 11", "7B, a queue for each LoRA, skewed", 845.0),
            ("Abstract", "7B, Punica over vLLM, distinct", 12.0),
            ("Fig. 12", "vLLM backbone, identical", 445.0),
            ("Fig. 12", "Punica, distinct", 412.0),
            ("Fig. 12", "identical, Punica over vLLM's backbone: the same", 0.942),
            (
                "Section 5.3",
                "512 tokens of 7B taken in anew, over copying their keys and values",
                4.90,
            ),
            ("Fig. 12", "vLLM backbone, distinct", 19.4),
            (
                "Fig. 13",
                "a card that runs is full or nearly (28 to 32), share of its time: usually",
                0.780,
            ),
            (
                "Fig. 13",
                "cards without a request, share of all cards' time: they stay idle",
                0.543,
            ),
            ("Fig. 13", "requests moved to other cards: few", 125.0),
            (
                "Fig. 13",
                "pages of 32 requests at their longest, share of a card's",
                30.8,
            ),
            (
                "Fig. 13",
                "conversations: requests evicted for want of pages, over those that are answered: some",
                21.4,
            ),
            (
                "Fig. 13",
                "conversations: of those that left a card, went on at another",
                99.1,
            ),
        ],
    );
}

#[test]
fn arlo_is_reproduced() {
    check(
        "arlo",
        ARLO_NOT_MET,
        &[("Fig. 8", 9)],
        &[
            (
                "Section 2.2",
                "operations wasted on tweets that are padded to 125 tokens",
                80.4,
            ),
            (
                "Fig. 6a",
                "mean, Arlo below ST, without the simulator's 0.8 ms a request",
                63.1,
            ),
            ("Fig. 6a", "mean, Arlo below ST", 54.5),
            ("Fig. 6a", "mean, Arlo below DT", 20.9),
            ("Fig. 6a", "mean, Arlo below INFaaS", 24.5),
            ("Fig. 6b", "mean, Arlo below DT", 24.0),
            ("Fig. 8", "Arlo: cards, time-weighted", 5.46),
            ("Fig. 8", "ST: cards, time-weighted", 7.53),
            ("Fig. 8", "INFaaS: cards, time-weighted", 4.93),
            ("Fig. 10a", "mean, Arlo below ST", 57.5),
            ("Fig. 10b", "mean, Arlo below ST", 98.5),
            ("Fig. 10b", "mean, Arlo below DT", 27.5),
            ("Fig. 11", "8 runtimes, mean", 34.2),
            (
                "Fig. 11",
                "16 runtimes are as good as 8, within a tenth: their mean over that of 8",
                1.11,
            ),
            ("Table 3", "global, mean", 25.6),
            ("Table 3", "each period, mean", 7.09),
            ("Table 4", "25 cards, 6,000/s, RS: mean", 245.0),
            ("Table 4", "25 cards, 6,000/s, planned every 120 s, RS: mean", 324.0),
            (
                "Table 4",
                "25 cards, 5,000/s without bursts, tweets that get longer and shorter within 5 s, ILB: mean",
                831.0,
            ),
            (
                "Section 6",
                "two streams on 16 cards, mean: the shares by the whole workload's mean load over shares that follow what comes in: longer",
                0.803,
            ),
        ],
    );
}

#[test]
fn tabi_is_reproduced() {
    check(
        "tabi",
        TABI_NOT_MET,
        &[("Fig. 7", 14), ("Table 5", 4)],
        &[
            ("Table 1", "roberta-large", 26.0),
            ("Table 2", "SST-2, Tabi, latency", 12.75),
            ("Table 2", "MNLI, Tabi, latency", 20.83),
            ("Table 2", "SST-2, INFaaS, latency", 22.0),
            ("Table 2", "SST-2, Tabi, latency below INFaaS's", 42.1),
            ("Table 2", "MNLI, Tabi, latency below INFaaS's", 20.05),
            ("Table 2", "SST-2, INFaaS, accuracy", 96.4),
            ("Table 2", "SST-2, Cocktail, accuracy", 95.8),
            ("Table 2", "SST-2, Tabi, accuracy", 95.8),
            ("Table 2", "MNLI, INFaaS, accuracy", 90.4),
            ("Table 2", "MNLI, Cocktail, accuracy", 90.4),
            ("Table 2", "MNLI, Tabi, accuracy", 90.7),
            ("Table 2", "SST-2, Tabi, cost", 4.62),
            ("Table 2", "MNLI, Tabi, cost", 8.46),
            ("Table 2", "SST-2, Tabi, queries", 63.7),
            ("Table 2", "MNLI, Tabi, queries", 41.2),
            ("Table 2", "RTE, INFaaS, cost", 19.67),
            ("Table 2", "CLINC150, INFaaS, queries", 42.4),
            ("Fig. 7", "SST-2, median below INFaaS's: by up to 62 %", 57.4),
            ("Fig. 7", "MNLI, median below INFaaS's: by up to 62 %", 42.1),
            ("Fig. 7", "SST-2, p99 over INFaaS's: better (section 7.2)", 0.945),
            ("Fig. 7", "MNLI, p99 over INFaaS's: better (section 7.2)", 1.064),
            ("Section 7.3.2", "SST-2, returned by the small model", 70.2),
            (
                "Section 7.3.2",
                "SST-2, of the re-routed right, large model alone",
                91.5,
            ),
            (
                "Section 7.3.2",
                "SST-2, of the re-routed right, had the small model answered",
                77.0,
            ),
            ("Section 7.3.2", "MNLI, returned by the small model", 49.0),
            ("Section 7.3.2", "MNLI, of the re-routed right, large model alone", 85.3),
            (
                "Section 7.3.2",
                "MNLI, of the returned right, had the large model answered",
                96.7,
            ),
            ("Section 7.3.1", "SST-2, small model's confidence above 0.9", 89.2),
            (
                "Table 4",
                "SST-2, DeeBERT* on RoBERTa-large, accuracy at c = 0.95",
                95.5,
            ),
            (
                "Table 4",
                "MNLI, DeeBERT* on RoBERTa-large, latency saved at c = 0.85",
                19.05,
            ),
            ("Table 5", "mean latency", 22.63),
            ("Table 5", "mean latency, lengths as MNLI's", 23.2),
            ("Table 5", "p99", 51.2),
            ("Table 5", "p99, lengths as MNLI's", 111.0),
            ("Table 5", "median", 26.6),
            ("Table 5", "median, lengths as MNLI's", 14.5),
            ("Table 5", "p99 over two levels'", 55.5),
            ("Table 5", "p99 over two levels', lengths as MNLI's", 20.0),
        ],
    );
}

/// A scenario on disk takes precedence: with batches of 8, eight cards generate far less than the paper says.
#[test]
fn a_prediction_that_misses_is_exit_code_3() {
    let place = tempfile::tempdir().unwrap();
    let shipped = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/punica/fig-12.yaml")).unwrap();
    let folder = place.path().join("scenarios/punica");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("fig-12.yaml"),
        shipped.replace("max_batch: 32", "max_batch: 8"),
    )
    .unwrap();
    let output = tenantry(place.path(), &["reproduce", "punica", "--quiet"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.starts_with("limit not met: outside the tolerance: punica, Fig. 12"),
        "{message}"
    );
    assert!(place.path().join("out/reproduce/reproduce.md").is_file());
}

/// On a card that the paper does not have nothing is judged. What the card has no tables for is derived where it has a
/// datasheet, or else says so, with the command that measures it for the figure's own scenario.
#[test]
fn another_cards_figures_stand_beside_the_papers() {
    let place = tempfile::tempdir().unwrap();
    let printed = good(place.path(), &["reproduce", "hmi", "--profile", "h100-sxm", "--json"]);
    let value: Value = serde_json::from_str(&printed).unwrap();
    let rows = value["papers"][0]["rows"].as_array().unwrap();
    assert!(!rows.iter().any(|row| ["input", "predicted"].contains(&row["kind"].as_str().unwrap())));
    let of = |figure: &str| rows.iter().filter(|row| row["figure"] == figure).collect::<Vec<_>>();
    let instances = { of("Table 2").into_iter() }.find(|row| row["what"] == "BERT-dedicated, instances in 16 GB");
    let instances = instances.unwrap()["ours"].as_f64().unwrap();
    assert!(instances > 300.0, "80 GB and half precision: {instances}");
    // The card has no such model and no such bottleneck; its datasheet says what they take.
    let served = { of("Table 6").into_iter() }.filter(|row| row["ours"].as_f64().is_some_and(|ours| ours > 1_000.0));
    assert!(served.count() >= 5, "{:?}", of("Table 6"));
    let text = value["papers"][0].to_string();
    assert!(
        text.contains("derived") && text.contains("model=tinybert-4 dtype=bf16") && text.contains("bottleneck=80"),
        "{text}"
    );

    let printed = good(place.path(), &["reproduce", "hmi", "--profile", "cpu", "--json"]);
    let value: Value = serde_json::from_str(&printed).unwrap();
    let rows = value["papers"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["figure"] == "Table 6").unwrap();
    let reason = row["note"].as_str().unwrap();
    assert!(
        reason.contains("card cpu: ") && reason.contains("model=bert-base"),
        "{reason}"
    );
    assert!(reason.contains("`tenantry profile --device cpu --for hmi/"), "{reason}");
    check_bad(
        place.path(),
        &[(
            &["reproduce", "pets", "--profile", "h100-sxm"],
            2,
            &["--profile: must be left out but for hmi, got h100-sxm"],
        )],
    );
}

#[test]
fn a_paper_that_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    check_bad(
        place.path(),
        &[(
            &["reproduce", "hmmi"],
            2,
            &["invalid value 'hmmi'", "hmi, pets, punica, arlo, tabi, all"],
        )],
    );
}
