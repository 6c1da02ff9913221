//! What each paper leads with on each of its cards, as `reproduce` simulates it.
//!
//! All are made so that more is better: times are the baseline's over the paper's system's.

use serde::Serialize;
use tenantry_profiles::paper::Paper;

use crate::cli::PaperName;
use crate::commands::reproduce::lab::{Lab, latency_ms, rate, tokens_per_s};
use crate::commands::reproduce::pets::{memory, throughput};
use crate::failure::Failure;

/// The main results on one card.
#[derive(Debug)]
pub struct Leading {
    /// Whose.
    pub of: PaperName,
    /// By name.
    pub card: &'static str,
    /// Those that are simulated.
    pub results: &'static [MainResult],
    /// Their values, on the lab's card. What a scenario says of an assumption that the card says too is taken from the paper's numbers.
    pub simulate: fn(&Lab, &Paper) -> Result<Vec<f64>, Failure>,
}

/// One of them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MainResult {
    /// The paper's figure or table.
    pub figure: &'static str,
    /// What it says.
    pub what: &'static str,
    /// Of it.
    pub unit: &'static str,
    /// The paper's, where its text has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
}

const fn ratio(figure: &'static str, what: &'static str, paper: Option<f64>) -> MainResult {
    MainResult {
        figure,
        what,
        unit: "×",
        paper,
    }
}

/// Fig. 7's and Table 5's on one of PetS's cards.
const fn pets(speed_up: Option<f64>, tasks: f64) -> [MainResult; 2] {
    [
        ratio("Fig. 7", "throughput over a full model's, mean", speed_up),
        ratio("Table 5", "tasks of BERT-base over SeqS's", Some(tasks)),
    ]
}

/// By card, in the papers' order.
pub const LEADING: &[Leading] = &[
    Leading {
        of: PaperName::Hmi,
        card: "paper-p5000",
        results: &[
            ratio("Table 6", "hBERT over BERT-dedicated, requests/s", Some(380.9 / 165.2)),
            ratio(
                "Table 6",
                "hBERT over synchronized hBERT, requests/s",
                Some(380.9 / 304.8),
            ),
        ],
        simulate: hmi,
    },
    Leading {
        of: PaperName::Pets,
        card: "paper-gtx1080ti",
        results: &{
            let [speed_up, tasks] = pets(Some(1.53), 588.0 / 28.0);
            let over_pars = ratio("Fig. 8", "PetS over ParS, requests/s, 16 tasks, mean", Some(1.177));
            [speed_up, tasks, over_pars]
        },
        simulate: |lab, _| {
            let mut results = pets_on(lab, "paper-gtx1080ti")?;
            results.push(throughput::mean_over_pars(lab, 16)?);
            Ok(results)
        },
    },
    Leading {
        of: PaperName::Pets,
        card: "paper-v100",
        results: &pets(Some(1.63), 2164.0 / 85.0),
        simulate: |lab, _| pets_on(lab, "paper-v100"),
    },
    Leading {
        of: PaperName::Pets,
        card: "paper-tx2",
        results: &pets(None, 180.0 / 17.0),
        simulate: |lab, _| pets_on(lab, "paper-tx2"),
    },
    Leading {
        of: PaperName::Punica,
        card: "paper-a100-80g",
        results: &[
            ratio("Fig. 11", "7B, distinct: Punica over vLLM, tokens/s", Some(12.0)),
            MainResult {
                figure: "Fig. 11",
                what: "7B, distinct: Punica",
                unit: "tok/s",
                paper: Some(1044.0),
            },
        ],
        simulate: punica_on_one_card,
    },
    Leading {
        of: PaperName::Punica,
        card: "paper-a100-40g",
        results: &[
            ratio("Fig. 13", "mean batch of a step over the least loaded card's", None),
            ratio("Fig. 13", "mean latency of the least loaded card over Punica's", None),
        ],
        simulate: punica_on_sixteen_cards,
    },
    Leading {
        of: PaperName::Arlo,
        card: "paper-rtx3090",
        results: &[
            ratio("Fig. 6a", "mean latency of ST over Arlo's", Some(1.0 / (1.0 - 0.703))),
            ratio("Fig. 6a", "mean latency of DT over Arlo's", Some(1.0 / (1.0 - 0.237))),
        ],
        simulate: arlo,
    },
    Leading {
        of: PaperName::Tabi,
        card: "paper-v100-tabi",
        results: &[
            ratio(
                "Table 2",
                "SST-2: mean latency of INFaaS over Tabi's",
                Some(22.0 / 13.2),
            ),
            ratio("Table 2", "MNLI: mean latency of INFaaS over Tabi's", Some(25.8 / 20.3)),
        ],
        simulate: tabi,
    },
];

fn hmi(lab: &Lab, paper: &Paper) -> Result<Vec<f64>, Failure> {
    let size = paper.number("batch");
    let batches = [0, 3].map(|system| format!("systems[{system}].batch.fixed-size.size={size}"));
    let runs = lab.runs_of(
        &["hbert", "synchronized"],
        "hmi/table-6",
        &batches.each_ref().map(String::as_str),
    )?;
    // A batch falls apart into one for each tenant.
    let share = (size / paper.number("tenants")).floor().max(1.0);
    let pairs = format!("systems[0].batch.per-tenant.max_size={share}");
    let dedicated = rate(lab.runs("hmi/table-6-dedicated", &[&pairs])?.of("bert-dedicated"));
    let hbert = rate(runs.of("hbert"));
    Ok(vec![hbert / dedicated, hbert / rate(runs.of("synchronized"))])
}

fn pets_on(lab: &Lab, card: &str) -> Result<Vec<f64>, Failure> {
    Ok(vec![
        throughput::mean_speed_up(lab, card)?,
        memory::tasks_over_full_models(lab, card)?,
    ])
}

/// The scenarios' prompts are those that the card assumes.
fn prompts(paper: &Paper) -> String {
    format!("workload.lengths.input.fixed={}", paper.number("prompt_tokens"))
}

fn punica_on_one_card(lab: &Lab, paper: &Paper) -> Result<Vec<f64>, Failure> {
    let distinct = "sweep={models.backbone: [llama-7b], tenants.popularity: [distinct]}";
    let set = [distinct, &prompts(paper)];
    let runs = lab.runs_of(&["punica", "vllm-backbone"], "punica/fig-11", &set)?;
    let [punica, vllm] = ["punica", "vllm-backbone"].map(|system| tokens_per_s(runs.of(system)));
    Ok(vec![punica / vllm, punica])
}

fn punica_on_sixteen_cards(lab: &Lab, paper: &Paper) -> Result<Vec<f64>, Failure> {
    let runs = lab.runs("punica/fig-13", &[&prompts(paper)])?;
    let [punica, spread] = ["punica", "least-loaded"].map(|system| runs.of(system));
    let [of_punica, of_spread] = [punica, spread].map(|run| run.batch_size_mean.unwrap_or(f64::NAN));
    Ok(vec![of_punica / of_spread, latency_ms(spread) / latency_ms(punica)])
}

fn arlo(lab: &Lab, _: &Paper) -> Result<Vec<f64>, Failure> {
    let runs = lab.runs_of(&["arlo", "arlo-st", "arlo-dt"], "arlo/fig-6a", &[])?;
    let arlo = latency_ms(runs.of("arlo"));
    let over_arlo = |system| latency_ms(runs.of(system)) / arlo;
    Ok(vec![over_arlo("arlo-st"), over_arlo("arlo-dt")])
}

fn tabi(lab: &Lab, _: &Paper) -> Result<Vec<f64>, Failure> {
    let over_tabi = |scenario: &str| {
        let runs = lab.runs_of(&["infaas-best", "tabi"], scenario, &[])?;
        Ok(latency_ms(runs.of("infaas-best")) / latency_ms(runs.of("tabi")))
    };
    ["tabi/table-2-sst-2", "tabi/table-2-mnli"]
        .into_iter()
        .map(over_tabi)
        .collect()
}
