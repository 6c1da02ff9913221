//! The scenario's text. It is written line by line rather than from a type, for the sake of its comments.

use serde_json::json;
use serde_yaml::Value;
use tenantry_profiles::ModelKind;
use tenantry_reports::manifest::quoted;
use tenantry_scenarios::presets;
use tenantry_traces::fit::sharegpt;

use super::answers::{Answers, LaidOut};

/// The systems that are worth comparing first.
pub fn usual_systems(generates: bool) -> [&'static str; 3] {
    match generates {
        true => ["punica", "queue-per-lora", "vllm-backbone"],
        false => ["bert-dedicated", "hbert-adapter", "bert-shared"],
    }
}

/// The whole file, which is to be called `file`.
pub fn scenario(file: &str, answers: &Answers, laid_out: LaidOut) -> String {
    let Answers {
        model,
        tenants,
        tenants_of_trace,
        latency,
        at,
        card,
        gpus,
        ..
    } = answers;
    // Comments name the file as a shell reads it.
    let as_word = &quoted(file);
    let name = std::path::Path::new(file).file_stem().map_or("scenario".into(), |stem| {
        stem.to_string_lossy().replace(['.', ' '], "-")
    });
    let (name, card, model) = (text(&name), text(card), &model.name);
    let [tenants, latency, at, gpus] = [tenants, latency, at, gpus].map(|answer| scalar(answer));
    let (of_model, backbone) = match answers.have_own_models() {
        true => (String::new(), "of systems without models of their own; these have them"),
        false => (format!(" of {model}"), "which all tenants build on"),
    };
    format!(
        "\
# {tenants} tenants{of_model} on {gpus} × {card}: which system answers {at} of the requests within {latency}?
#
#   tenantry check {as_word}       is it valid, and what is every default?
#   tenantry simulate {as_word}    who meets the target: a table, and a page to show
#   tenantry plan {as_word}        how few cards keep it, with which system, and how sure that is
#
# Every key can be changed on the command line too: --set tenants.count=5000. `tenantry schema` is for editors.

name: {name}
seed: 7                         # another seed is another draw of the same workload
card: {card}                    # a card of profiles/cards, or a folder that `tenantry profile` made

cluster:
  gpus: {gpus}
  # gpu_memory: 16 GiB          # less than the card has, as if something else lay there too

models:
  backbone: {model}             # {backbone}

tenants:
  count: {tenants}
  popularity: {popularity}     # who asks how often; or {others}
{kinds}
workload:
{workload}
{outcomes}systems:                        # each serves the same requests; `tenantry presets NAME` shows what is in one
{systems}
slo: {{ latency: {latency}, at: {at} }}

# sweep: {{ tenants.count: [100, 1000, 10000] }}   # a run for each value
# repeats: 3                                     # with other seeds
# prices: {{ {card}: 2.5 }}   # a card and hour, in your currency: what a million requests cost is then said
# plan: {{ find: fewest-cards, gpus: {{ from: 1, to: 32 }} }}   # what `tenantry plan {as_word}` looks for; this where it is left out
",
        popularity = if *tenants_of_trace { "of-arrivals" } else { "{ zipf: 0.9 }" },
        others = match tenants_of_trace {
            true => "uniform, distinct, identical, {zipf: 0.9}, {skewed: 1.5}",
            false => "uniform, distinct, identical, {skewed: 1.5}, of-arrivals",
        },
        kinds = if some_has(answers, "tasks") { KINDS } else { "" },
        workload = workload(answers),
        outcomes = if some_has(answers, "cascade") { OUTCOMES } else { "" },
        systems = systems(answers, laid_out),
    )
}

/// An answer as one scalar: what else is in it is part of the value, so that the scenario's own rules refuse it.
fn scalar(answer: &str) -> String {
    match answer.parse::<f64>() {
        Ok(_) => answer.to_owned(),
        Err(_) => text(answer),
    }
}

/// A text as YAML reads it back, in braces too: plain where it can be, since a file or a folder may be called anything.
fn text(text: &str) -> String {
    let read: Option<Value> = serde_yaml::from_str(&format!("{{ key: {text} }}")).ok();
    let is_plain = read.as_ref().is_some_and(|read| read.get("key").is_some_and(|value| value == text));
    match is_plain {
        true => text.to_owned(),
        false => json!(text).to_string(),
    }
}

/// What a preset with tasks asks of a scenario.
const KINDS: &str = "  \
  # What is a tenant's own, by shares; MODEL/KIND where it is over another of the `models`.
  kinds: { adapters: 1, lora: 1, bit-fit: 1, mask-bert: 1, diff-pruning: 1 }
";

/// What a preset with a cascade asks of a scenario.
const OUTCOMES: &str = "\
outcomes:                       # how sure and how right the models are: here as the Tabi paper says of SST-2, with
  # its RoBERTa-large for the large one; docs/tabi.md says how to take it from models of your own
  from: { generated: { small: distilbert, large: bert-large, task: sst-2 } }
  pruned: [{ degree: 0.5, words: 3.8% }, { degree: 0.7, words: 14.2%, loss: 0.3% }, { degree: 0.9, words: 62.5% }]
  averages: [{ weights: [0.762, 0.914], gain: 0.4% }]

";

/// Whether a preset among the systems has this part.
fn some_has(answers: &Answers, part: &str) -> bool {
    answers.systems.iter().any(|system| has(system, part))
}

/// Whether all of the systems are cascades, whose presets name their models.
pub fn are_cascades(systems: &[String]) -> bool {
    !systems.is_empty() && systems.iter().all(|system| has(system, "cascade"))
}

/// Whether a preset of that name has this part.
fn has(preset: &str, part: &str) -> bool {
    let system = presets::yaml(preset).and_then(|yaml| serde_yaml::from_str::<Value>(yaml).ok());
    system.is_some_and(|system| system.get(part).is_some())
}

fn workload(answers: &Answers) -> String {
    let Answers {
        model,
        rate,
        trace,
        silent,
        input,
        output,
        ..
    } = answers;
    if let Some(trace) = trace {
        let from = silent.map_or(String::new(), |silent| format!(", from: {}s", silent.as_secs_f64()));
        let before = if silent.is_some() {
            ": before `from` it is silent"
        } else {
            ""
        };
        let path = json!(trace);
        return format!(
            "  \
  arrivals: {{ trace: {{ path: {path}{from} }} }}   # `tenantry trace info` describes it{before}
  lengths: {{ joint: of-arrivals }}
  warm_up: 0s                   # left out of the figures
"
        );
    }
    let [rate, input, output] = [rate, input, output].map(|answer| scalar(answer));
    let lengths = match model.kind {
        ModelKind::Encoder => {
            format!("{{ input: {{ fixed: {input} }} }}      # or {{twitter: {{}}}}, {{lognormal: …}}")
        }
        ModelKind::Decoder => {
            // Of a model of fewer positions many of its conversations would be refused.
            let others = match model.positions >= sharegpt::LONGEST_TOGETHER {
                true => "{ joint: sharegpt }",
                false => "{lognormal: …} for each",
            };
            format!("{{ input: {{ fixed: {input} }}, output: {{ fixed: {output} }} }}   # or {others}")
        }
    };
    let (stop, warm_up) = match model.kind {
        ModelKind::Encoder => ("60s", "5s"),
        ModelKind::Decoder => ("600s", "60s"),
    };
    format!(
        "  \
  arrivals: {{ poisson: {{ rate: {rate} }} }}   # or gamma, mmpp, ramp, closed-loop, a recorded trace
  lengths: {lengths}
  stop: {{ after: {stop} }}
  warm_up: {warm_up}                   # left out of the figures
"
    )
}

fn systems(answers: &Answers, laid_out: LaidOut) -> String {
    let LaidOut { dtype, cards } = laid_out;
    let (mut keys, mut why) = (String::new(), Vec::new());
    if let Some(dtype) = dtype {
        keys += &format!(", dtype: {dtype}");
        why.push("as the card has its prices".to_owned());
    }
    if cards > 1 {
        keys += &format!(", generation: {{ tensor_parallel: {cards} }}");
        why.push(format!("{cards} cards hold the model together"));
    }
    let why = why.join("; ");
    let system = |preset: &String| match keys.is_empty() {
        true => format!("  - preset: {preset}\n"),
        false => format!("  - {{ preset: {preset}{keys} }}   # {why}\n"),
    };
    answers.systems.iter().map(|preset| system(&text(preset))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever stands after it, in a line or in braces.
    #[test]
    fn texts_are_quoted_where_yaml_would_read_another() {
        for plain in ["my-shops", "out/my card", "a100-sxm", "../cards/h100", "100/s"] {
            assert_eq!(text(plain), plain);
        }
        let words = "123 1e3 true null ~ #x [a] {a} 'x \"x `a @a &a *a !a %a a: | >".split(' ');
        let with_spaces = [
            "",
            " a",
            "a: b",
            "a, b",
            "- a",
            "? a",
            "a #2",
            "100/s } } #",
            "1s\nseed: 9",
        ];
        for other in words.chain(with_spaces) {
            let written = text(other);
            assert_ne!(written, other);
            let read: Value = serde_yaml::from_str(&format!("a: {written}   # why\nb: {{ c: {written} }}")).unwrap();
            assert_eq!(
                (&read["a"], &read["b"]["c"]),
                (&other.into(), &other.into()),
                "{written}"
            );
        }
        assert_eq!([scalar("5"), scalar("-1"), scalar("5 # x")], ["5", "-1", "\"5 # x\""]);
    }
}
