//! Figures of simulated decoders that documents and scenarios print, against what the program prints now.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::good_json;

fn text(file: &str) -> String {
    fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn runs(scenario: &str) -> Vec<Value> {
    let place = tempfile::tempdir().unwrap();
    let value = good_json(place.path(), &["simulate", scenario, "--out", "out"]);
    value["runs"].as_array().unwrap().clone()
}

/// As tables print it: with a digit behind the point up to a hundred, and commas between thousands.
fn printed(run: &Value, figure: &str, statistic: &str) -> String {
    match run[figure][statistic].as_f64().unwrap() {
        small @ ..100.0 => format!("{small:.1}"),
        large => commas(large.round() as u64),
    }
}

fn commas(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

#[test]
fn prompts_apart_from_tokens() {
    let page = text("docs/disaggregated.md");
    let runs = runs("punica/disaggregated");
    // Systems of a rate side by side: together, in pieces, one card of four, two of four.
    let mut rates: Vec<Vec<&Value>> = Vec::new();
    for run in &runs {
        match rates.last_mut().filter(|row| row[0]["parameters"] == run["parameters"]) {
            Some(row) => row.push(run),
            None => rates.push(vec![run]),
        }
    }
    assert!(rates.len() == 5 && rates.iter().all(|row| row.len() == 4));
    for row in rates {
        let rate = row[0]["parameters"]["workload.arrivals.poisson.rate"].as_str().unwrap();
        let rate = rate.strip_suffix("/s").unwrap();
        let of = |row: &[&Value], figure: &str| {
            let cells: Vec<String> = row.iter().map(|run| printed(run, figure, "p98")).collect();
            cells.join(" | ")
        };
        let half = printed(row[0], "token_gap_ms", "p50");
        let (first, each) = (of(&row, "ttft_ms"), of(&row, "tpot_ms"));
        let (gaps, longest) = (of(&row[..3], "token_gap_ms"), of(&row, "longest_token_gap_ms"));
        for line in [
            format!("| {rate} | {first} | {each} |"),
            format!("| {rate} | {half} | {gaps} | {longest} |"),
        ] {
            assert!(page.contains(&line), "docs/disaggregated.md has no line {line}");
        }
    }
}

#[test]
fn decoders_on_an_h200() {
    let tokens = |run: &Value| commas(run["output_tokens_per_s"].as_f64().unwrap().round() as u64);
    let of = |scenario: &str, system: &str| {
        let runs = runs(scenario).into_iter().filter(|run| run["system"] == system);
        runs.collect::<Vec<_>>()
    };
    let header = |scenario: &str| text(&format!("scenarios/{scenario}.yaml")).replace("\n# ", " ");

    let [distinct, skewed, identical] = &of("h200/punica-popularity", "grouped")[..] else {
        panic!("there are three popularities");
    };
    let told = format!(
        "grouped products make {} tokens a second with distinct LoRAs, {} skewed and {} identical",
        tokens(distinct),
        tokens(skewed),
        tokens(identical)
    );
    assert!(header("h200/punica-popularity").contains(&told), "{told}");

    let [one, eight] = &of("h200/punica-few", "punica")[..] else {
        panic!("there are two numbers of clients");
    };
    let rate = |run: &Value| run["output_tokens_per_s"].as_f64().unwrap();
    let share = |run: &Value| (100.0 * rate(run) / rate(skewed)).round();
    let told = format!(
        "{:.1} and {} tokens a second, {} and {} % of the {}",
        rate(one),
        tokens(eight),
        share(one),
        share(eight),
        tokens(skewed)
    );
    assert!(header("h200/punica-few").contains(&told), "{told}");

    let answered = distinct["throughput_rps"].as_f64().unwrap();
    let told = format!("{:.0} % of the {answered:.1}", 1_000.0 / answered);
    assert!(header("h200/punica-open").contains(&told), "{told}");

    let lora = &of("h200/beside-peft-lora", "punica")[0];
    let step = lora["tpot_ms"]["p50"].as_f64().unwrap();
    let told = format!("{step:.1} ms a token in the median, which is {:.0} tokens", 32e3 / step);
    let page = text("docs/beside-peft.md").replace('\n', " ");
    assert!(page.contains(&told), "docs/beside-peft.md does not say {told}");
}
