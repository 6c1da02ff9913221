//! Each public recording is read against the statistics in its `SOURCES.md`.

use crate::common::{counts_without_holes, data};
use tenantry_traces::describe::{Histogram, concentration, dispersion};
use tenantry_traces::outcome::{Outcome, OutcomeTable, Outcomes};
use tenantry_traces::read::mooncake::Prefixes;
use tenantry_traces::read::shape::RateShape;
use tenantry_traces::read::{Counts, Format, Record, Records, activity};
use tenantry_traces::spec::{ArrivalsSpec, LengthsSpec, ShapeSpec, Stop, WorkloadSpec};
use tenantry_traces::{Duration, Entry, Time, build};

fn records(name: &str, format: Format) -> Option<Vec<Record>> {
    let records = Records::open(&data(name)?, false).unwrap();
    assert_eq!(records.format(), format);
    Some(records.collect::<Result<_, _>>().unwrap())
}

fn inputs(records: &[Record]) -> Histogram {
    records.iter().filter_map(|record| record.input_tokens).collect()
}

fn outputs(records: &[Record]) -> Histogram {
    records.iter().filter_map(|record| record.output_tokens).collect()
}

/// Mean to the digit given; p50, p98 and the longest, where the source's convention for quantiles may be one token off.
fn check(what: &str, lengths: &Histogram, mean: f64, p50: f64, p98: f64, max: u32) {
    let got = lengths.figures().unwrap();
    assert!((got.mean - mean).abs() < 0.1, "{what}: mean {mean}, got {}", got.mean);
    assert!(
        (f64::from(got.p50) - p50).abs() <= 1.0,
        "{what}: p50 {p50}, got {}",
        got.p50
    );
    assert!(
        (f64::from(got.p98) / p98 - 1.0).abs() < 0.01,
        "{what}: p98 {p98}, got {}",
        got.p98
    );
    assert_eq!(got.max, max, "{what}");
}

fn seconds(records: &[Record]) -> f64 {
    let at = |record: Option<&Record>| record.and_then(|record| record.arrival).unwrap();
    at(records.last()).since(at(records.first())).as_secs_f64()
}

#[test]
fn twitter_counts() {
    if let Some(path) = data("twitter/twitter_2021_08_per_second.csv.gz") {
        let counts: Vec<u32> = Counts::open(&path, false).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(counts.len(), 1_899_061);
        assert_eq!(counts.iter().map(|&n| u64::from(n)).sum::<u64>(), 120_774_326);
        assert_eq!(counts.iter().filter(|&&n| n == 0).count(), 37_899);
        assert!((dispersion(&counts, 1).unwrap() - 27.4).abs() < 0.1);
        check(
            "requests a second",
            &counts.iter().copied().collect(),
            63.6,
            53.0,
            230.0,
            388,
        );
        assert!(counts_without_holes(&path).len() < 1_863_000);
    }
    if let Some(path) = data("twitter/twitter_2021_08_clip_6h.csv") {
        let counts: Vec<u32> = Counts::open(&path, false).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(counts.iter().sum::<u32>(), 1_071_141);
        assert!((dispersion(&counts, 1).unwrap() - 26.9).abs() < 0.1);
        check(
            "requests a second, clip",
            &counts.iter().copied().collect(),
            49.59,
            41.0,
            212.0,
            269,
        );
    }
    if let Some(path) = data("twitter/twitter_2021_08_per_minute.csv") {
        let error = Counts::open(&path, false).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("must be per-second counts (`requests` or `second,requests`), got rate-shape"),
            "{error}"
        );
        let minutes = RateShape::read(&path).unwrap();
        assert_eq!((minutes.values.len(), minutes.step), (31_651, Duration::from_secs(60)));
        // All but the 2 records of the last second, which is no whole minute.
        assert_eq!(minutes.values.iter().sum::<f64>(), 120_774_324.0);
        let holes = minutes.values.iter().filter(|&&requests| requests == 0.0).count();
        let per_minute: Histogram = minutes.values.iter().map(|&requests| requests as u32).collect();
        let not_holes = |share: f64| (holes as f64 + share * (31_651 - holes) as f64) / 31_651.0;
        for (share, per_s) in [(0.5, 51.8), (0.9, 79.8), (0.95, 170.0), (0.99, 240.0)] {
            let got = f64::from(per_minute.quantile(not_holes(share)).unwrap()) / 60.0;
            assert!((got / per_s - 1.0).abs() < 0.002, "{share}: {per_s}, got {got}");
        }
    }
}

#[test]
fn tweets() {
    let Some(tweets) = records("twitter/twitter_2018_04_25_lengths.csv", Format::Tweets) else {
        return;
    };
    assert_eq!(tweets.len(), 6_259);
    check("tweets", &inputs(&tweets), 33.9, 33.0, 74.0, 134);
    assert_eq!(inputs(&tweets).quantile(0.9), Some(56));
    assert_eq!(tweets[0].arrival, Some(Time::ZERO));
    assert!((seconds(&tweets) - 1_739.009).abs() < 1e-9);
}

#[test]
fn sharegpt_lengths() {
    let csv = "sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv";
    if let Some(rows) = records(csv, Format::Sarathi) {
        assert_eq!(rows.len(), 30_731);
        check("prefill", &inputs(&rows), 2_340.0, 1_730.0, 7_164.0, 8_141);
        check("decode", &outputs(&rows), 438.7, 415.0, 975.0, 1_024);
        let p90 = [inputs(&rows), outputs(&rows)].map(|lengths| lengths.quantile(0.9).unwrap());
        assert!(p90[0].abs_diff(5_696) <= 1 && p90[1].abs_diff(834) <= 1, "{p90:?}");
    }
    if let Some(rows) = records("sharegpt/sharegpt_sample_first_pair_tokens.csv", Format::PromptResponse) {
        assert_eq!(rows.len(), 43);
        let (prompts, responses) = (inputs(&rows).figures().unwrap(), outputs(&rows).figures().unwrap());
        assert_eq!((prompts.p50, prompts.max), (1_005, 1_010));
        assert!((prompts.mean - 1_005.0).abs() < 0.5, "{prompts:?}");
        assert!(
            responses.p50.abs_diff(286) <= 1 && responses.p98.abs_diff(768) <= 2,
            "{responses:?}"
        );
        // SOURCES.md says 326, which its own file does not give.
        assert!((responses.mean - 317.07).abs() < 0.01, "{responses:?}");
    }
    if let Some(rows) = records(
        "llmservingsim/sharegpt_llama31_8b_300_sps10_lengths.csv",
        Format::LlmServingSim,
    ) {
        assert_eq!(rows.len(), 300);
        assert!((inputs(&rows).figures().unwrap().mean - 857.5).abs() < 0.1);
        assert!((outputs(&rows).figures().unwrap().mean - 652.5).abs() < 0.1);
        assert!((seconds(&rows) - 29.1).abs() < 0.1);
    }
}

#[test]
fn sharegpt_conversations() {
    let read = |name: &str| records(&format!("sharegpt/{name}"), Format::ShareGpt);
    let answered = |rows: &[Record]| rows.iter().filter(|row| row.output_tokens.is_some()).count();
    if let Some(rows) = read("sharegpt_sample_first_pair.json") {
        assert_eq!((rows.len(), answered(&rows)), (43, 43));
        // Four characters a token against the source's own count of prompts.
        let mean = inputs(&rows).figures().unwrap().mean;
        assert!((mean / 1_005.0 - 1.0).abs() < 0.25, "{mean}");
    }
    if let Some(rows) = read("sharegpt_multiturn_dialogstudio.json") {
        assert_eq!((rows.len(), answered(&rows)), (14, 14), "10, 2, 2, 8 and 6 turns");
        assert!(
            rows[..5].windows(2).all(|pair| pair[0].input_tokens < pair[1].input_tokens),
            "the context grows"
        );
    }
    if let Some(rows) = read("sharegpt_v3_first_human_turn.json") {
        assert_eq!((rows.len(), answered(&rows)), (497, 0));
        let mean = inputs(&rows).figures().unwrap().mean;
        assert!((mean - 349.0 / 4.0).abs() < 1.0, "{mean}");
    }
    if let Some(rows) = read("fastchat_dummy_conversation_100.json") {
        assert_eq!(answered(&rows), rows.len());
        assert_eq!(rows[0].input_tokens, Some(3), "`Who are you?` has 12 characters");
    }
    if let Some(rows) = read("iwc_sharegpt_sample.json") {
        assert_eq!((rows.len(), answered(&rows)), (3, 1), "two that end on a human turn");
    }
    if let Some(rows) = read("iwc_sharegpt_multiturn.json") {
        assert_eq!((rows.len(), answered(&rows)), (3, 3));
    }
}

#[test]
fn azure_llm() {
    let Some(rows) = records("azure_llm/AzureLLMInferenceTrace_conv.csv", Format::AzureLlm) else {
        return;
    };
    assert_eq!(rows.len(), 19_366);
    assert!((seconds(&rows) - 3_501.7).abs() < 0.1);
    check("context", &inputs(&rows), 1_154.7, 1_020.0, 4_098.0, 14_050);
    check("generated", &outputs(&rows), 211.1, 129.0, 540.0, 1_000);
    let gaps: Vec<f64> = rows
        .windows(2)
        .map(|pair| pair[1].arrival.unwrap().since(pair[0].arrival.unwrap()).as_secs_f64())
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
    assert!((variance.sqrt() / mean - 1.09).abs() < 0.005);
}

#[test]
fn mooncake() {
    if let Some(rows) = records("mooncake/conversation_trace.jsonl.gz", Format::Mooncake) {
        assert_eq!(rows.len(), 12_031);
        assert!((seconds(&rows) - 3_537.0).abs() < 1.0);
        let input = inputs(&rows).figures().unwrap();
        // The mean is given as a whole number.
        assert!((input.mean - 12_035.0).abs() < 0.5, "{input:?}");
        check("input", &inputs(&rows), input.mean, 6_909.0, 66_449.0, 126_195);
        check("output", &outputs(&rows), 342.6, 350.0, 892.0, 2_000);
    }
    if let Some(path) = data("mooncake/conversation_trace.jsonl.gz") {
        let prefixes = Prefixes::read(&path, false).unwrap();
        let blocks: usize = (0..prefixes.len() as u64).map(|ticket| prefixes.of(ticket).len()).sum();
        assert!((blocks as f64 / prefixes.len() as f64 - 24.0).abs() < 0.1);
        // The excerpt is the beginning of the whole.
        if let Some(rows) = records("mooncake/conversation_trace_head500.jsonl", Format::Mooncake) {
            let whole = Records::open(&path, false).unwrap().take(500);
            assert_eq!(rows, whole.collect::<Result<Vec<_>, _>>().unwrap());
            let head = Prefixes::read(&data("mooncake/conversation_trace_head500.jsonl").unwrap(), false).unwrap();
            assert_eq!(head.len(), 500);
            assert!((0..500).all(|ticket| head.of(ticket) == prefixes.of(ticket)));
        }
        let mut seen = std::collections::BTreeSet::new();
        let again = (0..prefixes.len() as u64)
            .flat_map(|ticket| prefixes.of(ticket))
            .filter(|&&hash| !seen.insert(hash));
        assert!((again.count() as f64 / blocks as f64 - 0.366).abs() < 0.001);
    }
}

#[test]
fn azure_functions() {
    if let Some(path) = data("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz") {
        let mut cells = 0;
        let mut most = 0;
        activity::for_each(&path, false, |cell| {
            cells += 1;
            most = most.max(cell.requests);
            assert!(cell.tenant < 1_350 && cell.minute < 1_440);
        })
        .unwrap();
        assert_eq!((cells, most), (334_418, 697));
        let totals = activity::totals(&path, false).unwrap().0;
        assert_eq!((totals.len(), totals.iter().sum::<f64>()), (1_350, 996_503.0));
        assert!((concentration(&totals, 0.01).unwrap() - 0.461).abs() < 0.01);
        assert!((concentration(&totals, 0.1).unwrap() - 0.792).abs() < 0.001);
        let by_tenant: Histogram = totals.iter().map(|&total| total as u32).collect();
        let quantiles = [0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0].map(|share| by_tenant.quantile(share).unwrap());
        for (got, expected) in quantiles.into_iter().zip([1, 4, 34, 333, 1_440, 9_195, 86_399]) {
            assert!(
                (f64::from(got) / f64::from(expected) - 1.0).abs() < 0.01,
                "{quantiles:?}"
            );
        }
        let mut minutes = vec![0u32; 1_440];
        activity::for_each(&path, false, |cell| minutes[cell.minute as usize] += cell.requests).unwrap();
        assert_eq!((minutes.iter().min(), minutes.iter().max()), (Some(&480), Some(&1_611)));
        assert!((dispersion(&minutes, 1).unwrap() - 32.3).abs() < 0.1);
        if let Some(summary) = data("azure_functions/azure_functions_2019_day_1350_summary.csv") {
            let mut by_tenant = vec![[0u32; 3]; 1_350];
            activity::for_each(&path, false, |cell| {
                let [total, active, most] = &mut by_tenant[cell.tenant as usize];
                (*total, *active, *most) = (*total + cell.requests, *active + 1, (*most).max(cell.requests));
            })
            .unwrap();
            // `tenant,total_invocations,active_minutes,max_per_minute,…`
            let text = std::fs::read_to_string(summary).unwrap();
            let rows: Vec<Vec<u32>> = text
                .lines()
                .skip(1)
                .map(|line| line.split(',').take(4).map(|field| field.parse().unwrap()).collect())
                .collect();
            assert_eq!(rows.len(), 1_350);
            for (row, (tenant, figures)) in rows.iter().zip((0..).zip(&by_tenant)) {
                assert_eq!((row[0], &row[1..]), (tenant, &figures[..]));
            }
        }
    }
    if let Some(path) = data("azure_functions/azure_functions_2019_duration_marginal_1350.csv") {
        // `avg_ms,count,min_ms,…`: execution times, which no generator is fitted to.
        let text = std::fs::read_to_string(path).unwrap();
        let mut means: Vec<f64> =
            text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
        means.sort_unstable_by(f64::total_cmp);
        assert_eq!(means.len(), 1_350);
        for (rank, ms) in [(67, 2.0), (675, 627.0), (1_282, 33_100.0)] {
            assert!(
                (means[rank] / ms - 1.0).abs() < 0.02,
                "{rank}: {ms}, got {}",
                means[rank]
            );
        }
    }
    if let Some(path) = data("azure_functions/azure_functions_2019_original_format_head100.csv") {
        let totals = activity::totals(&path, false).unwrap().0;
        assert_eq!((totals.len(), totals.iter().sum::<f64>()), (100, 123_090.0));
    }
}

#[test]
fn azure_functions_2021() {
    let Some(path) = data("azure_functions/azure_functions_2021_200_rows.csv") else {
        return;
    };
    let mut records = Records::open(&path, false).unwrap();
    assert_eq!(records.format(), Format::Invocations);
    let mut durations = Vec::new();
    let mut rows = Vec::new();
    while let Some(record) = records.next() {
        rows.push(record.unwrap());
        durations.push(records.invocation_duration().unwrap().as_secs_f64());
    }
    assert_eq!(rows.len(), 199);
    assert_eq!(rows.iter().filter_map(|row| row.tenant).max(), Some(30), "31 functions");
    // Rows are in the order of their starts, end less duration.
    assert!(rows.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
    let [shortest, longest] = [f64::min, f64::max].map(|of| durations.iter().copied().reduce(of).unwrap());
    assert_eq!((shortest, longest), (0.0, 404.987));
    // The last end is at 1 260 s.
    let ends = rows.iter().zip(&durations).map(|(row, duration)| row.arrival.unwrap().as_secs_f64() + duration);
    assert!((ends.fold(0.0, f64::max) - 1_260.055_798).abs() < 1e-5);
    assert_eq!(activity::totals(&path, false).unwrap().0.iter().sum::<f64>(), 199.0);
}

#[test]
fn burstgpt_aggregates_shape_rates() {
    let shape = |name: &str| data(&format!("burstgpt/{name}")).map(|path| (RateShape::read(&path).unwrap(), path));
    if let Some((daily, path)) = shape("burstgpt_1_daily.csv") {
        assert_eq!((daily.values.len(), daily.step), (61, Duration::from_secs(86_400)));
        assert_eq!(daily.values.iter().sum::<f64>(), 1_429_737.0);
        let error = Records::open(&path, false).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.ends_with("must hold requests one by one, got rate-shape"),
            "{error}"
        );
    }
    if let Some((minutes, _)) = shape("burstgpt_1_week1_minute_tokens_per_s.csv") {
        // 6 366 rows, of which 143 round to no token a second.
        assert_eq!(minutes.values.iter().filter(|&&value| value > 0.0).count(), 6_366 - 143);
        assert!(minutes.values.len() <= 10_080);
    }
    if let Some((hours, path)) = shape("burstgpt_1_hour_of_day_mean.csv") {
        let peak = hours.values.iter().copied().fold(0.0, f64::max);
        let valley = hours.values.iter().copied().fold(f64::MAX, f64::min);
        assert_eq!((hours.values.len(), hours.values[14]), (24, peak));
        assert!((peak / valley - 11.7).abs() < 0.05, "{}", peak / valley);
        // An hour in a second: two rounds, with the rate's mean and the table's pattern.
        let arrivals = ArrivalsSpec::Shape(ShapeSpec {
            path,
            rate_per_s: 10_000.0,
            step: Some(Duration::from_secs(1)),
            repeat: true,
        });
        let spec = WorkloadSpec {
            stop: Stop {
                requests: None,
                after: Some(Time(48_000_000_000)),
            },
            ..WorkloadSpec::new(7, 1, arrivals, LengthsSpec::ShareGpt)
        };
        let mut counts = [0.0f64; 48];
        let mut workload = build(&spec).unwrap();
        while let Some(Entry::Request(request)) = workload.next().unwrap() {
            counts[(request.arrival.0 / 1_000_000_000) as usize] += 1.0;
        }
        assert!((counts.iter().sum::<f64>() / 480_000.0 - 1.0).abs() < 0.01);
        let mean = hours.values.iter().sum::<f64>() / 24.0;
        for (second, count) in counts.iter().enumerate() {
            let expected = 10_000.0 * hours.values[second % 24] / mean;
            assert!(
                (count - expected).abs() < 5.0 * expected.sqrt(),
                "{second}: {count}, not {expected}"
            );
        }
    }
}

#[test]
fn cascade_outcomes() {
    let Some(path) = data("cascade/uncertainty_bench_mmlu_10k_base_icl1.csv.gz") else {
        return;
    };
    let models = ["qwen_1_8b", "qwen_7b", "qwen_14b", "llama_2_70b"];
    let of = |path: &std::path::Path| {
        let table = OutcomeTable::read(path, &models, Some("qwen_72b")).unwrap();
        assert_eq!(table.items(), 10_000);
        table
    };
    let share_of = |table: &OutcomeTable, is: &dyn Fn(&[Outcome]) -> bool| {
        (0..10_000).filter(|&i| is(table.item(i))).count() as f64 / 10_000.0
    };
    for (name, agreements) in [
        ("mmlu_10k", [0.454, 0.618, 0.716, 0.756]),
        ("hellaswag_10k", [0.346, 0.627, 0.896, 0.850]),
        ("halu_summarization", [0.417, 0.499, 0.650, 0.699]),
    ] {
        let Some(path) = data(&format!("cascade/uncertainty_bench_{name}_base_icl1.csv.gz")) else {
            continue;
        };
        let table = of(&path);
        for (model, agreement) in agreements.into_iter().enumerate() {
            let got = share_of(&table, &|item| item[model].correct);
            assert!(
                (got - agreement).abs() < 0.0006,
                "{name}, {}: {agreement}, got {got}",
                models[model]
            );
        }
    }
    let table = of(&path);
    let share = |is: &dyn Fn(&[Outcome]) -> bool| share_of(&table, is);
    for (threshold, kept, agreement) in [(0.5, 0.487, 0.837), (0.7, 0.296, 0.927), (0.9, 0.137, 0.983)] {
        let sure = share(&|item| item[1].confidence >= threshold);
        let right = share(&|item| item[1].confidence >= threshold && item[1].correct);
        assert!(
            (sure - kept).abs() < 0.001 && (right / sure - agreement).abs() < 0.001,
            "{threshold}"
        );
    }
    let outcomes = Outcomes::new(7, table);
    let right = (0..100_000).filter(|&ticket| outcomes.of(ticket)[0].correct).count();
    assert!((right as f64 / 100_000.0 - 0.454).abs() < 0.006);
    assert_eq!(outcomes.of(5), outcomes.of(5));
    let error = OutcomeTable::read(&path, &["qwen"], Some("qwen_72b")).unwrap_err().to_string();
    assert!(
        error.contains("must have a column `qwen_conf`, got `id`, `qwen_1_8b_pred`"),
        "{error}"
    );
}
