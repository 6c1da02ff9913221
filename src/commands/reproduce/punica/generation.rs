//! Text generation on one card and on eight that share each layer: Fig. 11 and 12.

use serde_json::{Value, json};
use tenantry_reports::RunSummary;

use super::patterns::Pattern;
use crate::commands::reproduce::lab::{Changed, Lab, Runs, change, tokens_per_s};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Patterns of popularity: the paper's name, and what `tenants.popularity` is.
fn patterns() -> [(&'static str, Value); 4] {
    Pattern::ALL.map(|pattern| (pattern.name(), pattern.popularity()))
}

const MODELS: [(&str, &str, f64, f64); 2] = [("7B", "llama-7b", 1044.0, 1140.0), ("13B", "llama-13b", 693.0, 789.0)];

/// Lengths and number of requests of the authors' public benchmark (punica-ai/punica, benchmarks/bench_textgen.py and
/// bench_textgen_lora_all.py): some 1,030 tokens each.
const PUBLIC: [&str; 4] = [
    "workload.arrivals.burst.threads=1024",
    "tenants.count=1024",
    "workload.lengths={input: {lognormal: {median: 18, sigma: 0.8, min: 1, max: 2046}}, \
     output: {quantiles: [{share: 0, tokens: 1}, {share: 1, tokens: 2030}]}}",
    "sweep={models.backbone: [llama-7b, llama-13b], tenants.popularity: [distinct]}",
];

fn at<'a>(runs: &'a Runs, system: &str, model: &str, popularity: &Value) -> &'a RunSummary {
    runs.find(
        system,
        &[
            ("models.backbone", json!(model)),
            ("tenants.popularity", popularity.clone()),
        ],
    )
}

/// The 7B and 13B models on one card.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    let runs = lab.runs("punica/fig-11", &[])?;
    let all_alike = lab.runs("punica/fig-11", &["workload.lengths.output={fixed: 101}"])?;
    let longer_prompts = lab.runs_with(
        "punica/fig-11",
        &["workload.lengths.input.fixed=192"],
        "prompt_tokens",
        Changed::To(192.0),
    )?;
    let speed =
        |runs: &Runs, system: &str, model: &str, popularity: &Value| tokens_per_s(at(runs, system, model, popularity));
    let assumptions = |system: &str, model: &str, popularity: &Value| {
        let ours = speed(&runs, system, model, popularity);
        format!(
            "assumes prompts of 160 tokens and outputs spread evenly up to 201; all of 101: {}, prompts of 192: {}",
            change(ours, speed(&all_alike, system, model, popularity)),
            change(ours, speed(&longer_prompts, system, model, popularity)),
        )
    };
    let mut rows = Vec::new();
    for (name, model, punica, vllm) in MODELS {
        let distinct = speed(&runs, "punica", model, &json!("distinct"));
        for (pattern, popularity) in patterns() {
            let ours = speed(&runs, "punica", model, &popularity);
            let what = format!("{name}, Punica, {pattern}");
            let row = match (model, pattern) {
                ("llama-7b", "distinct") => Row::input(FIGURE, what, "tok/s", punica, ours),
                (_, "distinct") => Row::predicted(FIGURE, what, "tok/s", [punica, ours], 0.1),
                // Follows from the row above wherever fewer tenants cost no more: no prediction of its own.
                _ => as_distinct(FIGURE, &what, ours, distinct),
            };
            rows.push(row.note(assumptions("punica", model, &popularity)));
        }
        let identical = json!("identical");
        let backbone = speed(&runs, "vllm-backbone", model, &identical);
        rows.push(
            Row::predicted(
                FIGURE,
                format!("{name}, vLLM backbone, identical"),
                "tok/s",
                [vllm, backbone],
                0.1,
            )
            .note(assumptions("vllm-backbone", model, &identical)),
        );
        let punica_identical = speed(&runs, "punica", model, &identical);
        let static_lora = speed(&runs, "static-batches-lora", model, &identical);
        let static_batches = speed(&runs, "static-batches", model, &identical);
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name}, static batches, identical: below those that are joined, vLLM's and Punica's"),
                "tok/s",
                static_batches,
                static_batches < backbone && static_batches < punica_identical,
            )
            .note(assumptions("static-batches", model, &identical)),
        );
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name}, static batches with LoRA, identical: below those without, and Punica's"),
                "tok/s",
                static_lora,
                static_lora < static_batches && static_lora < punica_identical,
            )
            .note(format!(
                "as Hugging Face and DeepSpeed are run, with this card's kernels. Not charged are what FlashAttention \
                 saves, of which the paper gives no number, Hugging Face's copy of the whole cache in each step \
                 (section 5.4: some 4.5 ms at 32 requests of 260 tokens), and its padding to the batch's longest. {}",
                assumptions("static-batches-lora", model, &identical)
            )),
        );
        for (pattern, popularity) in &patterns()[..3] {
            let baseline = at(&runs, "vllm-backbone", model, popularity);
            let batch = baseline.batch_size_mean.unwrap_or(0.0);
            rows.push(
                Row::shape(
                    FIGURE,
                    format!("{name}, vLLM backbone, {pattern}, batch: extremely small (1 to 3)"),
                    "",
                    batch,
                    (1.0..=3.0).contains(&batch),
                )
                .note(format!(
                    "{:.0} tok/s: only neighbours in the queue run together",
                    tokens_per_s(baseline)
                )),
            );
            let waiting = at(&runs, "static-batches-lora", model, popularity);
            rows.push(
                Row::shape(
                    FIGURE,
                    format!("{name}, static batches with LoRA, {pattern}: no faster than vLLM's backbone"),
                    "tok/s",
                    tokens_per_s(waiting),
                    tokens_per_s(waiting) <= tokens_per_s(baseline),
                )
                .note(format!("batches of {:.1}", waiting.batch_size_mean.unwrap_or(0.0))),
            );
        }
    }
    let distinct = json!("distinct");
    let twelve = |runs: &Runs| {
        speed(runs, "punica", "llama-7b", &distinct) / speed(runs, "vllm-backbone", "llama-7b", &distinct)
    };
    rows.push(
        Row::predicted(
            "Abstract",
            "7B, Punica over vLLM, distinct",
            "×",
            [12.0, twelve(&runs)],
            0.1,
        )
        .note(format!("all outputs of 101 tokens: {:.1} ×", twelve(&all_alike))),
    );
    rows.push(added_latency(&runs));
    for (pattern, popularity) in &patterns()[1..3] {
        let queues = speed(&runs, "queue-per-lora", "llama-7b", popularity);
        let over = speed(&runs, "punica", "llama-7b", popularity) / queues;
        rows.push(
            Row::assumed(
                FIGURE,
                format!("7B, a queue for each LoRA, {pattern}"),
                "tok/s",
                None,
                queues,
            )
            .note(format!(
                "a better baseline than the paper has, with LoRA: Punica is {over:.1} × as fast as it, not twelve"
            )),
        );
    }
    Ok(rows)
}

/// The same with the lengths of the authors' public benchmark.
pub fn figure_11_public(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    let public = lab.runs("punica/fig-11", &PUBLIC)?;
    let mut rows = Vec::new();
    for (name, model, paper, _) in MODELS {
        rows.push(
            Row::assumed(
                FIGURE,
                format!("{name}, Punica, distinct, lengths of the authors' public benchmark"),
                "tok/s",
                Some(paper),
                tokens_per_s(at(&public, "punica", model, &json!("distinct"))),
            )
            .note(
                "punica-ai/punica's bench_textgen_lora_all.py sends 1,024 requests of some 24 tokens that make 1,000 \
                 each, ten times the text's 101,000 in all, and counts prompts as well",
            )
            .extrapolated(public.beyond(&["punica"])),
        );
    }
    Ok(rows)
}

/// What LoRA adds to each token.
fn added_latency(runs: &Runs) -> Row {
    let per_token = |system: &str, pattern: &str| {
        let run = at(runs, system, "llama-7b", &json!(pattern));
        run.tpot_ms.map_or(f64::NAN, |tpot| tpot.mean)
    };
    let added = per_token("punica", "distinct") - per_token("vllm-backbone", "identical");
    Row::assumed(
        "Abstract",
        "7B, LoRA adds to each token, distinct",
        "ms",
        Some(2.0),
        added,
    )
    .note(
        "the paper says nothing of its workload: assumes that of Fig. 11, whose batches are not always of 32; the card \
         adds 2 ms to a step of 32 new tokens",
    )
}

/// A range that the text gives of a system's tokens a second, and of which patterns.
struct OfPatterns {
    system: &'static str,
    name: &'static str,
    range: [f64; 2],
    patterns: &'static str,
}

/// How much less counts as the same where the text says so, whose own figures are 2.4 to 3.5 % apart: as predictions
/// are judged.
const AS_MUCH: f64 = 0.1;

/// The text has one speed for all patterns of popularity.
fn as_distinct(figure: &'static str, what: &str, ours: f64, distinct: f64) -> Row {
    let over = ours / distinct;
    let what = format!("{what}: as where all are distinct, within a twentieth");
    Row::shape(figure, what, "tok/s", ours, (over - 1.0).abs() <= AS_DISTINCT)
}

/// How much tenants that share their LoRAs may gain where the text names one speed for all patterns (one per cent apart
/// in Fig. 12).
const AS_DISTINCT: f64 = 0.05;

/// The 70B model on eight cards.
pub fn figure_12(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 12";
    let runs = lab.runs("punica/fig-12", &[])?;
    let all_alike = lab.runs("punica/fig-12", &["workload.lengths.output={fixed: 101}"])?;
    let speed = |runs: &Runs, system: &str, popularity: &Value| {
        tokens_per_s(runs.find(system, &[("tenants.popularity", popularity.clone())]))
    };
    let row = |pattern: &str, of: &OfPatterns, popularity: &Value| {
        let ours = speed(&runs, of.system, popularity);
        let what = format!("{}, {pattern}", of.name);
        Row::predicted_within(FIGURE, what, "tok/s", of.range, ours, 0.1).note(format!(
            "the paper has the range of {}, whose nearest figure this is set against; all outputs of 101 tokens: {}",
            of.patterns,
            change(ours, speed(&all_alike, of.system, popularity))
        ))
    };
    const PUNICA: OfPatterns = OfPatterns {
        system: "punica",
        name: "Punica",
        range: [441.0, 446.0],
        patterns: "all four patterns",
    };
    const BACKBONE: OfPatterns = OfPatterns {
        system: "vllm-backbone",
        name: "vLLM backbone",
        range: [21.0, 25.0],
        patterns: "the three patterns of several LoRAs",
    };
    let [distinct, uniform, skewed, identical] = patterns().map(|(_, popularity)| popularity);
    let backbone = speed(&runs, "vllm-backbone", &identical);
    let alike = |pattern: &str, popularity: &Value| {
        let [ours, distinct] = [popularity, &distinct].map(|popularity| speed(&runs, "punica", popularity));
        as_distinct(FIGURE, &format!("Punica, {pattern}"), ours, distinct)
    };
    let ratio = speed(&runs, "punica", &distinct) / speed(&runs, "vllm-backbone", &distinct);
    Ok(vec![
        Row::input(FIGURE, "vLLM backbone, identical", "tok/s", 457.0, backbone)
            .note("sets what the eight cards' exchange takes; the card's fit has no beginning and no end"),
        row("distinct", &PUNICA, &distinct),
        alike("uniform", &uniform),
        alike("skewed", &skewed),
        alike("identical", &identical),
        row("distinct", &BACKBONE, &distinct),
        row("uniform", &BACKBONE, &uniform),
        row("skewed", &BACKBONE, &skewed),
        Row::shape(
            FIGURE,
            "identical, Punica over vLLM's backbone: the same",
            "×",
            speed(&runs, "punica", &identical) / backbone,
            (1.0 - AS_MUCH..1.0).contains(&(speed(&runs, "punica", &identical) / backbone)),
        )
        .note(
            "by the ranges Punica has 96.5 to 97.6 % of it; here LoRA's launches, which cards that share a layer do \
             not share, are charged in full",
        ),
        Row::assumed(FIGURE, "Punica over vLLM, distinct", "×", Some(441.0 / 21.0), ratio)
            .note("the quotient of two rows above, which are judged; assumes the ranges' lower ends"),
    ])
}
