//! The fitted constants are what the fit gives on one half of the data, and the generators look like the other half.

use crate::common::described::{Described, described};
use crate::common::{counts_without_holes, data};
use tenantry_traces::describe::{Histogram, concentration, dispersion};
use tenantry_traces::fit::quantiles::{LENGTH_PROBABILITIES, fit_lengths};
use tenantry_traces::fit::{azure_functions, sharegpt, twitter};
use tenantry_traces::read::{self, activity};
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, Stop, Tweets, WorkloadSpec};
use tenantry_traces::{Entry, Time, build};

fn every_second<T: Copy>(values: &[T], from: usize) -> Vec<T> {
    values.iter().skip(from).step_by(2).copied().collect()
}

#[test]
fn constants_are_what_the_fit_gives() {
    if let Some(path) = data("twitter/twitter_2018_04_25_lengths.csv") {
        let inputs: Vec<u32> = read::lengths(&path, false).unwrap().iter().map(|pair| pair.input).collect();
        let fitted = fit_lengths(&every_second(&inputs, 0), &LENGTH_PROBABILITIES);
        assert!(fitted == twitter::LENGTHS, "LENGTHS\n{fitted:?}\n");
    }
    if let Some(path) = data("sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv") {
        let joint = sharegpt::fit(&every_second(&read::lengths(&path, false).unwrap(), 0));
        assert!(joint.input == sharegpt::INPUT, "INPUT\n{:?}\n", joint.input);
        let bins = || joint.output_by_input.iter().map(|bin| (bin.longest_input, &bin.output[..]));
        assert!(
            bins().eq(sharegpt::OUTPUT_BY_INPUT.iter().copied()),
            "BINS\n{:?}\n",
            bins().collect::<Vec<_>>()
        );
    }
    if let Some(path) = data("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz") {
        let [seen, _] = azure_functions::halves(&activity::totals(&path, false).unwrap().0);
        let knots = azure_functions::fit(&seen);
        assert!(knots == azure_functions::LOG_REQUESTS, "LOG_REQUESTS\n{knots:?}\n");
    }
    if let Some(path) = data("twitter/twitter_2021_08_per_second.csv.gz") {
        let counts = counts_without_holes(&path);
        let fitted = twitter::fit_rates(&counts[..counts.len() / 2]).unwrap();
        let twitter::Regimes {
            calm_s,
            plateau_s,
            calm_rate,
            plateau_rate,
            calm_memory_s,
            plateau_memory_s,
        } = twitter::RATES;
        let constants = twitter::Regimes {
            calm_s: calm_s.to_vec(),
            plateau_s: plateau_s.to_vec(),
            calm_rate: calm_rate.to_vec(),
            plateau_rate: plateau_rate.to_vec(),
            calm_memory_s,
            plateau_memory_s,
        };
        assert!(fitted == constants, "RATES\n{fitted:?}\n");
    }
}

/// Neither the noise of counts nor the levels' distribution is taken for forgetting.
#[test]
fn a_fitted_memory_is_the_one_that_levels_were_made_with() {
    const SECONDS: u64 = 600_000;
    let shipped = twitter::RATES;
    let regimes = twitter::Regimes {
        calm_s: shipped.calm_s.to_vec(),
        plateau_s: shipped.plateau_s.to_vec(),
        calm_rate: shipped.calm_rate.to_vec(),
        plateau_rate: shipped.plateau_rate.to_vec(),
        calm_memory_s: 425.0,
        plateau_memory_s: 135.0,
    };
    let spec = WorkloadSpec {
        arrivals: ArrivalsSpec::Regimes {
            rate_per_s: regimes.mean_rate_per_s(),
            regimes: regimes.clone(),
        },
        stop: Stop {
            requests: None,
            after: Some(Time(SECONDS * 1_000_000_000)),
        },
        ..spec()
    };
    let mut counts = vec![0; SECONDS as usize];
    let mut workload = build(&spec).unwrap();
    while let Some(entry) = workload.next().unwrap() {
        if let Entry::Request(request) = entry {
            counts[(request.arrival.0 / 1_000_000_000) as usize] += 1;
        }
    }
    let fitted = twitter::fit_rates(&counts).unwrap();
    close("calm memory, s", regimes.calm_memory_s, fitted.calm_memory_s, 0.1);
    close(
        "plateau memory, s",
        regimes.plateau_memory_s,
        fitted.plateau_memory_s,
        0.15,
    );
}

/// Counts of any size are added up.
#[test]
fn rates_of_huge_counts_are_fitted() {
    let counts: Vec<u32> =
        (0..24_000).map(|second| if second / 300 % 4 == 0 { u32::MAX } else { 500_000_000 }).collect();
    let fitted = twitter::fit_rates(&counts).unwrap();
    assert_eq!(fitted.plateau_rate[8].1, 4_294_970_000.0);
}

/// A row of the table: real, generated, and by how much they may differ.
fn close(what: &str, real: f64, generated: f64, within: f64) {
    let error = generated / real - 1.0;
    println!("{what:<44} {real:>10.2} {generated:>10.2} {:>+7.1} %", 100.0 * error);
    assert!(
        error.abs() <= within,
        "{what}: must be within {within} of {real}, got {generated}"
    );
}

/// Input and output lengths of `requests` generated ones.
fn generated_lengths(lengths: LengthsSpec, requests: u64) -> [Histogram; 2] {
    let spec = WorkloadSpec {
        lengths,
        stop: Stop {
            requests: Some(requests),
            after: None,
        },
        ..spec()
    };
    let Described { input, output, .. } = described(&spec).unwrap();
    [input, output]
}

fn spec() -> WorkloadSpec {
    let lengths = LengthsSpec::Independent {
        input: LengthSpec::Fixed(1),
        output: LengthSpec::Fixed(0),
    };
    WorkloadSpec::new(7, 1, ArrivalsSpec::Poisson { rate_per_s: 1000.0 }, lengths)
}

fn compare_lengths(what: &str, real: &Histogram, generated: &Histogram) {
    let distance = real.distance(generated).unwrap();
    println!("{what:<44} Kolmogorov-Smirnov distance {distance:.4}");
    let (r, g) = (real.figures().unwrap(), generated.figures().unwrap());
    close(&format!("{what}, mean"), r.mean, g.mean, 0.03);
    close(&format!("{what}, p50"), f64::from(r.p50), f64::from(g.p50), 0.03);
    close(&format!("{what}, p90"), f64::from(r.p90), f64::from(g.p90), 0.03);
    close(&format!("{what}, p98"), f64::from(r.p98), f64::from(g.p98), 0.03);
    assert!(
        distance < 0.03,
        "{what}: the distance must be below 0.03, got {distance}"
    );
}

#[test]
fn generated_lengths_look_like_the_half_that_the_fit_did_not_see() {
    if let Some(path) = data("twitter/twitter_2018_04_25_lengths.csv") {
        let unseen = every_second(&read::lengths(&path, false).unwrap(), 1);
        let real: Histogram = unseen.iter().map(|pair| pair.input).collect();
        let twitter = LengthsSpec::Independent {
            input: LengthSpec::Twitter {
                tweets: Tweets::Measured,
                span: 125,
            },
            output: LengthSpec::Fixed(0),
        };
        let [generated, _] = generated_lengths(twitter, 1_000_000);
        compare_lengths("tweets, BERT tokens", &real, &generated);
    }
    if let Some(path) = data("sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv") {
        let unseen = every_second(&read::lengths(&path, false).unwrap(), 1);
        let [input, output] = generated_lengths(LengthsSpec::ShareGpt, 1_000_000);
        compare_lengths(
            "ShareGPT, input",
            &unseen.iter().map(|pair| pair.input).collect(),
            &input,
        );
        compare_lengths(
            "ShareGPT, output",
            &unseen.iter().map(|pair| pair.output).collect(),
            &output,
        );
        // Outputs of short and of long inputs differ: the joint distribution, not only its margins.
        for (name, inputs) in [("input below 500", 1..500), ("input above 5000", 5000..10_000)] {
            let real: Histogram =
                unseen.iter().filter(|pair| inputs.contains(&pair.input)).map(|pair| pair.output).collect();
            let generated = generated_outputs_where(&inputs);
            let distance = real.distance(&generated).unwrap();
            println!("ShareGPT, output, {name:<26} Kolmogorov-Smirnov distance {distance:.4}");
            assert!(distance < 0.04, "{name}: {distance}");
        }
    }
}

fn generated_outputs_where(inputs: &std::ops::Range<u32>) -> Histogram {
    let spec = WorkloadSpec {
        lengths: LengthsSpec::ShareGpt,
        stop: Stop {
            requests: Some(500_000),
            after: None,
        },
        ..spec()
    };
    let mut workload = build(&spec).unwrap();
    let entries = std::iter::from_fn(|| workload.next().unwrap());
    entries
        .filter_map(|entry| match entry {
            Entry::Request(request) if inputs.contains(&request.input_tokens) => Some(request.output_tokens),
            _ => None,
        })
        .collect()
}

#[test]
fn generated_rates_look_like_the_half_that_the_fit_did_not_see() {
    let Some(path) = data("twitter/twitter_2021_08_per_second.csv.gz") else {
        return;
    };
    let counts = counts_without_holes(&path);
    let real = &counts[counts.len() / 2..];
    let mean = real.iter().map(|&n| f64::from(n)).sum::<f64>() / real.len() as f64;
    // A few hundred plateaus make the dispersion, so that one half's length of them is not enough to tell its
    // expectation.
    let seconds = 4 * real.len() as u64;
    let spec = WorkloadSpec {
        arrivals: ArrivalsSpec::Twitter { rate_per_s: mean },
        stop: Stop {
            requests: None,
            after: Some(Time(seconds * 1_000_000_000)),
        },
        ..spec()
    };
    let generated = &described(&spec).unwrap().requests_per_s;
    let histogram = |counts: &[u32]| counts.iter().copied().collect::<Histogram>();
    compare_lengths("sample stream, requests/s", &histogram(real), &histogram(generated));
    // The plateaus' own shape is not modelled, only how long, how high and how often: over minutes that shows.
    for (window_s, within) in [(1, 0.15), (10, 0.15), (60, 0.15), (300, 0.25)] {
        let [real, generated] = [real, generated].map(|counts| dispersion(counts, window_s).unwrap());
        close(
            &format!("sample stream, dispersion at {window_s} s"),
            real,
            generated,
            within,
        );
    }
}

/// A few functions are a good part of all requests, so that halves differ by more than the aim. So the generator is
/// held to the half that it was fitted to, that it has learnt what there is, and to the other by how far the two halves
/// are apart besides.
#[test]
fn generated_tenants_are_as_uneven_as_both_halves() {
    let Some(path) = data("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz") else {
        return;
    };
    let [seen, unseen] = azure_functions::halves(&activity::totals(&path, false).unwrap().0);
    let generated = azure_functions::weights(unseen.len() as u32);
    let histogram = |totals: &[f64]| totals.iter().map(|total| total.round() as u32).collect::<Histogram>();
    for real in [&seen, &unseen] {
        let distance = histogram(real).distance(&histogram(&generated)).unwrap();
        println!("Azure Functions, a tenant's requests           Kolmogorov-Smirnov distance {distance:.4}");
        assert!(distance < 0.03, "{distance}");
    }
    let figures = |totals: &[f64]| {
        let of = histogram(totals).figures().unwrap();
        let share = |top| 100.0 * concentration(totals, top).unwrap();
        [
            ("a tenant's requests, mean", of.mean),
            ("a tenant's requests, p50", of.p50.into()),
            ("a tenant's requests, p90", of.p90.into()),
            ("a tenant's requests, p98", of.p98.into()),
            ("share of the top 1 %, in %", share(0.01)),
            ("share of the top 10 %, in %", share(0.1)),
        ]
    };
    let [seen, unseen, generated] = [&seen, &unseen, &generated].map(|totals| figures(totals));
    for ((seen, unseen), (name, generated)) in seen.into_iter().zip(unseen).zip(generated) {
        close(&format!("Azure Functions, {name}, seen"), seen.1, generated, 0.03);
        let apart = (seen.1 / unseen.1 - 1.0).abs();
        close(&format!("Azure Functions, {name}"), unseen.1, generated, apart + 0.03);
    }
}
