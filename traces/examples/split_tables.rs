//! Prints how far two random halves of a recording differ by themselves, and how far a generator that is fitted to one
//! is from the other: what no generator can be held to, and whether ours are off to one side.
//!
//! `cargo run --release -p tenantry-traces --example split_tables -- FOLDER`, with the folder of public recordings.
//! Everything is fitted anew to each half; docs/traces.md has the tables.

use std::path::{Path, PathBuf};

use tenantry_traces::describe::{Histogram, concentration, dispersion};
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::fit::quantiles::{LENGTH_PROBABILITIES, fit_lengths, points};
use tenantry_traces::fit::{azure_functions, cascade, sharegpt};
use tenantry_traces::outcome::{GeneratedOutcomes, Outcome, OutcomeTable};
use tenantry_traces::read::{self, Counts, activity};
use tenantry_traces::spec::{ArrivalsSpec, JointSpec, LengthSpec, LengthsSpec, OutputBinSpec, Stop, WorkloadSpec};
use tenantry_traces::{Entry, Lengths, TraceError, build};

const SPLITS: u64 = 100;
const GENERATED: u64 = 100_000;

/// Figures by name.
type Figures = Vec<(&'static str, f64)>;

fn main() -> Result<(), TraceError> {
    let folder = PathBuf::from(std::env::args().nth(1).expect("the folder of public recordings"));
    println!(
        "| quantity | figure | half to half, ± | generator to unseen half, mean | ± | generator to its own half, mean \
         | ± |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    let tweets = read::lengths(&folder.join("twitter/twitter_2018_04_25_lengths.csv"), false)?;
    let inputs = |pairs: &[Lengths]| -> Vec<u32> { pairs.iter().map(|pair| pair.input).collect() };
    table(
        "tweets, BERT tokens",
        |split| Ok(halves(&tweets, split)),
        |half| lengths(inputs(half)),
        |half| {
            let knots = fit_lengths(&inputs(half), &LENGTH_PROBABILITIES);
            let spec = LengthsSpec::Independent {
                input: LengthSpec::Quantiles(points(&knots)),
                output: LengthSpec::Fixed(0),
            };
            Ok(lengths(generated(spec)?.iter().map(|pair| pair.input)))
        },
    )?;
    let conversations = folder.join("sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv");
    let conversations = read::lengths(&conversations, false)?;
    for (name, side) in [
        ("ShareGPT, input", (|pair| pair.input) as fn(&Lengths) -> u32),
        ("ShareGPT, output", |pair| pair.output),
    ] {
        table(
            name,
            |split| Ok(halves(&conversations, split)),
            |half| lengths(half.iter().map(side)),
            |half| Ok(lengths(generated(joint(&sharegpt::fit(half)))?.iter().map(side))),
        )?;
    }
    rates(&folder)?;
    let (totals, _) = activity::totals(
        &folder.join("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz"),
        false,
    )?;
    table(
        "Azure Functions, a tenant's requests a day",
        |split| Ok(halves(&totals, split)),
        tenants,
        |half| {
            Ok(tenants(&azure_functions::weights_of(
                &azure_functions::fit(half),
                half.len() as u32,
            )))
        },
    )?;
    for task in ["mmlu_10k", "hellaswag_10k", "halu_summarization"] {
        let path = folder.join(format!("cascade/uncertainty_bench_{task}_base_icl1.csv.gz"));
        let outcomes = OutcomeTable::read(&path, &["qwen_7b", "qwen_14b"], Some("qwen_72b"))?;
        let items: Vec<[Outcome; 2]> =
            (0..outcomes.items()).map(|item| [outcomes.item(item)[0], outcomes.item(item)[1]]).collect();
        table(
            &format!("cascade, {task}"),
            |split| Ok(halves(&items, split)),
            cascade_of,
            |half| {
                let outcomes = GeneratedOutcomes::new(7, cascade::fit(half));
                let items: Vec<[Outcome; 2]> = (0..GENERATED).map(|ticket| outcomes.of(ticket)).collect();
                Ok(cascade_of(&items))
            },
        )?;
    }
    Ok(())
}

/// Two random halves.
fn halves<T: Copy>(all: &[T], split: u64) -> [Vec<T>; 2] {
    let draws = Draws::new(split, Purpose::Sweep);
    let mut order: Vec<(u64, T)> = (0..).zip(all).map(|(i, &item)| (draws.about(i).bits(), item)).collect();
    order.sort_unstable_by_key(|(key, _)| *key);
    let items: Vec<T> = order.into_iter().map(|(_, item)| item).collect();
    let (one, other) = items.split_at(items.len() / 2);
    [one.to_vec(), other.to_vec()]
}

/// A row for each figure: over all splits, the standard deviation of one half's over the other's, and mean and standard
/// deviation of the generator's over that of the half that it has not seen, and over that of the half that it was
/// fitted to.
fn table<T>(
    quantity: &str,
    split: impl Fn(u64) -> Result<[Vec<T>; 2], TraceError>,
    figures: impl Fn(&[T]) -> Figures,
    generate: impl Fn(&[T]) -> Result<Figures, TraceError>,
) -> Result<(), TraceError> {
    let mut errors: Vec<(&str, [Vec<f64>; 3])> = Vec::new();
    for number in 0..SPLITS {
        let [seen, unseen] = split(number)?;
        let (seen, unseen, generated) = (figures(&seen), figures(&unseen), generate(&seen)?);
        for (at, (name, real)) in unseen.iter().enumerate() {
            if errors.len() == at {
                errors.push((name, Default::default()));
            }
            let (seen, generated) = (seen[at].1, generated[at].1);
            for (errors, ratio) in errors[at].1.iter_mut().zip([seen / real, generated / real, generated / seen]) {
                errors.push(100.0 * (ratio - 1.0));
            }
        }
    }
    for (figure, errors) in errors {
        let [(_, halves), (unseen, unseen_sd), (own, own_sd)] = errors.map(|errors| moments(&errors));
        println!(
            "| {quantity} | {figure} | {halves:.1} % | {unseen:+.1} % | {unseen_sd:.1} % | {own:+.1} % | {own_sd:.1} % \
             |"
        );
    }
    Ok(())
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64;
    (mean, variance.sqrt())
}

fn lengths(lengths: impl IntoIterator<Item = u32>) -> Figures {
    let lengths: Histogram = lengths.into_iter().collect();
    let figures = lengths.figures().expect("there are lengths");
    vec![
        ("mean", figures.mean),
        ("p50", figures.p50.into()),
        ("p90", figures.p90.into()),
        ("p98", figures.p98.into()),
    ]
}

fn tenants(totals: &[f64]) -> Figures {
    let mut figures = lengths(totals.iter().map(|total| total.round() as u32));
    for (name, share) in [("share of the top 1 %", 0.01), ("share of the top 10 %", 0.1)] {
        figures.push((name, concentration(totals, share).expect("there are requests")));
    }
    figures
}

/// Of a cascade that returns the small model's answer from 0.7 on.
fn cascade_of(items: &[[Outcome; 2]]) -> Figures {
    let (returned, others): (Vec<_>, Vec<_>) = items.iter().partition(|item| item[0].confidence >= 0.7);
    let right = |items: &[&[Outcome; 2]], model: usize| {
        items.iter().filter(|item| item[model].correct).count() as f64 / items.len() as f64
    };
    vec![
        ("returned", returned.len() as f64 / items.len() as f64),
        ("small right of returned", right(&returned, 0)),
        ("large right of re-routed", right(&others, 1)),
    ]
}

fn joint(fitted: &sharegpt::Joint) -> LengthsSpec {
    LengthsSpec::Joint(JointSpec {
        input: points(&fitted.input),
        output_by_input: fitted
            .output_by_input
            .iter()
            .map(|bin| OutputBinSpec {
                longest_input: bin.longest_input,
                output: points(&bin.output),
            })
            .collect(),
    })
}

fn generated(lengths: LengthsSpec) -> Result<Vec<Lengths>, TraceError> {
    let mut workload = build(&WorkloadSpec {
        stop: Stop {
            requests: Some(GENERATED),
            after: None,
        },
        ..WorkloadSpec::new(7, 1, ArrivalsSpec::Constant { rate_per_s: 1.0 }, lengths)
    })?;
    let mut lengths = Vec::new();
    while let Some(Entry::Request(request)) = workload.next()? {
        lengths.push(Lengths {
            input: request.input_tokens,
            output: request.output_tokens,
        });
    }
    Ok(lengths)
}

/// Days of the Twitter stream: its seconds go together, so that halves are of whole days. A generator's own halves
/// would take hours.
fn rates(folder: &Path) -> Result<(), TraceError> {
    let counts = Counts::open(&folder.join("twitter/twitter_2021_08_per_second.csv.gz"), false)?
        .collect::<Result<Vec<_>, _>>()?;
    // Runs of at least a minute of zeros are the archive's holes.
    let runs = counts.chunk_by(|a, b| (*a == 0) == (*b == 0));
    let counts: Vec<u32> = runs.filter(|run| run[0] != 0 || run.len() < 60).flatten().copied().collect();
    let days: Vec<&[u32]> = counts.chunks_exact(86_400).collect();
    let figures = |days: &[&[u32]]| -> Figures {
        let counts = days.concat();
        let mut figures = lengths(counts.iter().copied());
        for (name, window_s) in [
            ("index of dispersion, 1 s", 1),
            ("index of dispersion, 10 s", 10),
            ("index of dispersion, 60 s", 60),
            ("index of dispersion, 300 s", 300),
        ] {
            figures.push((name, dispersion(&counts, window_s).expect("there are windows")));
        }
        figures
    };
    let mut errors: Vec<(&str, Vec<f64>)> = Vec::new();
    for split in 0..SPLITS {
        let [one, other] = halves(&days, split).map(|half| figures(&half));
        for (at, (name, value)) in one.iter().enumerate() {
            if errors.len() == at {
                errors.push((name, Vec::new()));
            }
            errors[at].1.push(100.0 * (value / other[at].1 - 1.0));
        }
    }
    for (figure, errors) in errors {
        println!(
            "| Twitter sample stream, requests/s | {figure} | {:.1} % | | | | |",
            moments(&errors).1
        );
    }
    Ok(())
}
