//! Prints docs/traces.md's tables: each fitted generator against the half of its recording that the fit did not see,
//! and how far the half that it saw is from that one itself, which no fit can better but by chance.
//!
//! `cargo run --release -p tenantry-traces --example fit_tables -- FOLDER`, with the folder of public recordings. Fits
//! are on every second row, of the rates on the first half in time, of tenants on a half that is dealt out by size;
//! nothing here is fitted anew but the cascades.

#[path = "../tests/all/common/described.rs"]
mod described;

use std::path::{Path, PathBuf};

use described::{Described, described};
use tenantry_traces::describe::{Histogram, concentration, dispersion};
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::fit::{azure_functions, cascade};
use tenantry_traces::outcome::{GeneratedOutcomes, Outcome, OutcomeTable};
use tenantry_traces::read::{self, Counts, activity};
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, Stop, Tweets, WorkloadSpec};
use tenantry_traces::{Lengths, Time, TraceError};

fn main() -> Result<(), TraceError> {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder of public recordings"));
    println!("| quantity | figure | real, seen | real, unseen | generated | generated to unseen | seen to unseen |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    lengths(&folder)?;
    rates(&folder)?;
    tenants(&folder)?;
    cascades(&folder)
}

/// Of what was fitted, of what it is checked against, and of what was generated.
type Three<T> = [T; 3];

fn row(quantity: &str, figure: &str, [seen, unseen, generated]: Three<f64>) {
    let to_unseen = |value: f64| 100.0 * (value / unseen - 1.0);
    println!(
        "| {quantity} | {figure} | {seen:.2} | {unseen:.2} | {generated:.2} | {:+.1} % | {:+.1} % |",
        to_unseen(generated),
        to_unseen(seen)
    );
}

fn compare(quantity: &str, histograms: Three<&Histogram>) {
    let figures = histograms.map(|histogram| histogram.figures().expect("there are values"));
    row(quantity, "mean", figures.map(|of| of.mean));
    row(quantity, "p50", figures.map(|of| of.p50.into()));
    row(quantity, "p90", figures.map(|of| of.p90.into()));
    row(quantity, "p98", figures.map(|of| of.p98.into()));
    let [seen, unseen, generated] = histograms;
    distance(quantity, "Kolmogorov-Smirnov distance", [seen, unseen, generated]);
}

fn distance(quantity: &str, what: &str, [seen, unseen, generated]: Three<&Histogram>) {
    let of = |histogram: &Histogram| unseen.distance(histogram).expect("there are values");
    let (generated, seen) = (of(generated), of(seen));
    println!("| {quantity} | {what} | | | | {generated:.4} | {seen:.4} |");
}

fn every_second<T: Copy>(values: &[T]) -> [Vec<T>; 2] {
    [0, 1].map(|from| values.iter().skip(from).step_by(2).copied().collect())
}

fn generate(arrivals: ArrivalsSpec, lengths: LengthsSpec, stop: Stop) -> Result<Described, TraceError> {
    described(&WorkloadSpec {
        stop,
        ..WorkloadSpec::new(7, 1, arrivals, lengths)
    })
}

fn lengths(folder: &Path) -> Result<(), TraceError> {
    let generated = |lengths| {
        let stop = Stop {
            requests: Some(1_000_000),
            after: None,
        };
        generate(ArrivalsSpec::Constant { rate_per_s: 1000.0 }, lengths, stop)
    };
    let inputs = |half: &[Lengths]| half.iter().map(|pair| pair.input).collect::<Histogram>();
    let outputs = |half: &[Lengths]| half.iter().map(|pair| pair.output).collect::<Histogram>();
    let [seen, unseen] = every_second(&read::lengths(
        &folder.join("twitter/twitter_2018_04_25_lengths.csv"),
        false,
    )?);
    let tweets = generated(LengthsSpec::Independent {
        input: LengthSpec::Twitter {
            tweets: Tweets::Measured,
            span: 125,
        },
        output: LengthSpec::Fixed(0),
    })?;
    compare("tweets, BERT tokens", [&inputs(&seen), &inputs(&unseen), &tweets.input]);
    let conversations = folder.join("sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv");
    let [seen, unseen] = every_second(&read::lengths(&conversations, false)?);
    let conversations = generated(LengthsSpec::ShareGpt)?;
    compare(
        "ShareGPT, input",
        [&inputs(&seen), &inputs(&unseen), &conversations.input],
    );
    compare(
        "ShareGPT, output",
        [&outputs(&seen), &outputs(&unseen), &conversations.output],
    );
    Ok(())
}

/// Runs of at least a minute of zeros are the archive's holes.
fn without_holes(counts: &[u32]) -> Vec<u32> {
    let runs = counts.chunk_by(|a, b| (*a == 0) == (*b == 0));
    runs.filter(|run| run[0] != 0 || run.len() < 60).flatten().copied().collect()
}

fn rates(folder: &Path) -> Result<(), TraceError> {
    let counts = Counts::open(&folder.join("twitter/twitter_2021_08_per_second.csv.gz"), false)?
        .collect::<Result<Vec<_>, _>>()?;
    let counts = without_holes(&counts);
    let (seen, unseen) = counts.split_at(counts.len() / 2);
    let mean = unseen.iter().map(|&count| f64::from(count)).sum::<f64>() / unseen.len() as f64;
    let stop = Stop {
        requests: None,
        after: Some(Time(4 * unseen.len() as u64 * 1_000_000_000)),
    };
    let lengths = LengthsSpec::Independent {
        input: LengthSpec::Fixed(1),
        output: LengthSpec::Fixed(0),
    };
    let generated = generate(ArrivalsSpec::Twitter { rate_per_s: mean }, lengths, stop)?;
    let three = [seen, unseen, &generated.requests_per_s];
    let quantity = "Twitter sample stream, requests/s";
    let [seen, unseen, generated] = three.map(|counts| counts.iter().copied().collect::<Histogram>());
    compare(quantity, [&seen, &unseen, &generated]);
    for window_s in [1, 10, 60, 300] {
        let figure = format!("index of dispersion, {window_s} s");
        row(
            quantity,
            &figure,
            three.map(|counts| dispersion(counts, window_s).expect("there are windows")),
        );
    }
    Ok(())
}

fn tenants(folder: &Path) -> Result<(), TraceError> {
    let (totals, _) = activity::totals(
        &folder.join("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz"),
        false,
    )?;
    let [seen, unseen] = azure_functions::halves(&totals);
    let three = [&seen, &unseen, &azure_functions::weights(unseen.len() as u32)];
    let [seen, unseen, generated] =
        three.map(|totals| totals.iter().map(|total| total.round() as u32).collect::<Histogram>());
    compare(
        "Azure Functions, a tenant's requests a day",
        [&seen, &unseen, &generated],
    );
    for (figure, share) in [
        ("share of the top 1 %, in %", 0.01),
        ("share of the top 10 %, in %", 0.1),
    ] {
        let shares = three.map(|totals| 100.0 * concentration(totals, share).expect("there are requests"));
        row("Azure Functions, requests", figure, shares);
    }
    Ok(())
}

/// Of a cascade that returns the small model's answer from 0.7 on.
fn cascades(folder: &Path) -> Result<(), TraceError> {
    for task in ["mmlu_10k", "hellaswag_10k", "halu_summarization"] {
        let path = folder.join(format!("cascade/uncertainty_bench_{task}_base_icl1.csv.gz"));
        let table = OutcomeTable::read(&path, &["qwen_7b", "qwen_14b"], Some("qwen_72b"))?;
        let split = Draws::new(1, Purpose::Outcome);
        let (mut seen, mut unseen) = (Vec::new(), Vec::new());
        for item in 0..table.items() {
            let outcomes = [table.item(item)[0], table.item(item)[1]];
            let half = if split.about(item as u64).below(2) == 0 {
                &mut seen
            } else {
                &mut unseen
            };
            half.push(outcomes);
        }
        let outcomes = GeneratedOutcomes::new(7, cascade::fit(&seen));
        let generated: Vec<[Outcome; 2]> = (0..400_000).map(|ticket| outcomes.of(ticket)).collect();
        let percent = |items: &[[Outcome; 2]], returned: bool, right: &dyn Fn(&[Outcome; 2]) -> bool| {
            let branch: Vec<_> = items.iter().filter(|item| (item[0].confidence >= 0.7) == returned).collect();
            100.0 * branch.iter().filter(|item| right(item)).count() as f64 / branch.len() as f64
        };
        let returned = |items: &[[Outcome; 2]]| {
            100.0 * items.iter().filter(|item| item[0].confidence >= 0.7).count() as f64 / items.len() as f64
        };
        let confidence = |items: &[[Outcome; 2]]| -> Histogram {
            items.iter().map(|item| (item[0].confidence * 1e4).round() as u32).collect()
        };
        let quantity = format!("cascade, {task}");
        let three = [&seen, &unseen, &generated];
        row(&quantity, "returned, in %", three.map(|items| returned(items)));
        let small = |item: &[Outcome; 2]| item[0].correct;
        let large = |item: &[Outcome; 2]| item[1].correct;
        row(
            &quantity,
            "small right of returned, in %",
            three.map(|items| percent(items, true, &small)),
        );
        row(
            &quantity,
            "large right of re-routed, in %",
            three.map(|items| percent(items, false, &large)),
        );
        let [seen, unseen, generated] = three.map(|items| confidence(items));
        distance(
            &quantity,
            "Kolmogorov-Smirnov distance of the confidence",
            [&seen, &unseen, &generated],
        );
    }
    Ok(())
}
