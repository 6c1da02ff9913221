//! What each paper leads with on each of its cards, as `reproduce` simulates it.
//!
//! All are made so that more is better: times are the baseline's over the paper's system's.

use serde::Serialize;
use tenantry_core::spec::{BatchSpec, TenantState};
use tenantry_profiles::paper::Paper;

use crate::cli::PaperName;
use crate::commands::reproduce::lab::{Lab, Runs, latency_ms, rate, tokens_per_s};
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
    /// Their values, on the lab's card. What a scenario says of an assumption that the card says too is taken from the
    /// paper's numbers.
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
            ratio("Fig. 11", "10,000 tenants: hBERT over BERT-dedicated, requests/s", None),
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
            ratio(
                "Fig. 12",
                "70B, distinct: Punica over vLLM, tokens/s",
                Some(441.0 / 21.0),
            ),
            ratio("Fig. 13", "mean batch of a step over the least loaded card's", None),
            ratio("Fig. 13", "mean latency of the least loaded card over Punica's", None),
        ],
        simulate: punica_on_many_cards,
    },
    Leading {
        of: PaperName::Arlo,
        card: "paper-rtx3090",
        results: &[
            ratio("Fig. 6a", "mean latency of ST over Arlo's", Some(1.0 / (1.0 - 0.703))),
            ratio("Fig. 6a", "mean latency of DT over Arlo's", Some(1.0 / (1.0 - 0.237))),
            ratio("Fig. 10b", "mean latency of ST over Arlo's", Some(1.0 / (1.0 - 0.981))),
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
    let set = [0, 3].map(|system| {
        let batch = format!("systems[{system}].batch.fixed-size.size={size}");
        [batch, adapters(paper, system)]
    });
    let memory = format!("cluster.gpu_memory={} B", memory_of_two_batches(lab, paper)?);
    let set = set.as_flattened().iter().chain([&memory]).map(String::as_str);
    let runs = lab.runs_of(&["hbert", "synchronized"], "hmi/table-6", &set.collect::<Vec<_>>())?;
    let hbert = rate(runs.of("hbert"));
    Ok(vec![
        hbert / dedicated_of_batches(lab, size, paper.number("tenants"))?,
        hbert / rate(runs.of("synchronized")),
        over_dedicated_of_many(lab, paper)?,
    ])
}

/// The scenario's card has room for two batches' adapters and no more, so that one is brought while the other computes.
/// Of larger batches, or adapters, it must have more: else the next one's would wait, which is another question than
/// how large they are.
fn memory_of_two_batches(lab: &Lab, paper: &Paper) -> Result<u64, Failure> {
    let loaded = lab.load("hmi/table-6", &[])?;
    let run = &loaded.runs[0];
    let (TenantState::Adapters { bottleneck, .. }, BatchSpec::FixedSize { size, .. }) =
        (&run.system.pool.tenant_state, &run.system.pool.batch)
    else {
        unreachable!("the scenario has adapters, in batches of one size")
    };
    let pool = &run.system.pool;
    let upper_layers = u64::from(pool.model.layers - pool.plot.as_ref().map_or(0, |plot| plot.lower_layers));
    let adapters = |batch: u64, bottleneck: u32| {
        2 * batch * upper_layers * pool.model.adapter_parameters_per_layer(bottleneck) * pool.dtype.bytes()
    };
    let varied = adapters(paper.number("batch") as u64, paper.number("bottleneck") as u32);
    let memory = run.gpu_memory_bytes.expect("the scenario says how much");
    Ok(memory + varied - adapters((*size).into(), *bottleneck))
}

/// A system's adapters are as wide as the card's.
fn adapters(paper: &Paper, system: usize) -> String {
    let bottleneck = paper.number("bottleneck");
    format!("systems[{system}].tenant_state.adapters.bottleneck={bottleneck}")
}

/// BERT-dedicated's requests a second where a batch falls apart into one for each tenant. Where it does not do so
/// evenly, some tenants have a request more than others; the scenario has them all alike, and so each part is simulated
/// by itself.
fn dedicated_of_batches(lab: &Lab, size: f64, tenants: f64) -> Result<f64, Failure> {
    let pass_s = |requests: f64| {
        let alike = format!("systems[0].batch.per-tenant.max_size={requests}");
        let run = lab.runs("hmi/table-6-dedicated", &[&alike])?;
        Ok::<_, Failure>(requests / rate(run.of("bert-dedicated")))
    };
    let fewer = (size / tenants).floor();
    let with_one_more = size - fewer * tenants;
    let mut batch_s = with_one_more * pass_s(fewer + 1.0)?;
    if fewer > 0.0 {
        batch_s += (tenants - with_one_more) * pass_s(fewer)?;
    }
    Ok(size / batch_s)
}

/// Fig. 11's throughput of hBERT over BERT-dedicated's at 10,000 tenants, with two batches inside.
fn over_dedicated_of_many(lab: &Lab, paper: &Paper) -> Result<f64, Failure> {
    let size = paper.number("batch");
    let set = [
        "sweep={tenants.count: [10000]}".to_owned(),
        format!("workload.arrivals.closed-loop.clients={}", 2.0 * size),
        format!("systems[0].batch.per-tenant.max_size={size}"),
        format!("systems[4].batch.size-or-timeout.max_size={size}"),
        adapters(paper, 4),
    ];
    let systems = ["hbert", "bert-dedicated"];
    let runs = lab.runs_of(&systems, "hmi/fig-11", &set.each_ref().map(String::as_str))?;
    let [hbert, dedicated] = systems.map(|system| rate(runs.of(system)));
    Ok(hbert / dedicated)
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

fn punica_on_many_cards(lab: &Lab, paper: &Paper) -> Result<Vec<f64>, Failure> {
    let prompts = prompts(paper);
    let distinct = ["sweep={tenants.popularity: [distinct]}", &prompts];
    let shared = lab.runs("punica/fig-12", &distinct)?;
    let [punica, vllm] = ["punica", "vllm-backbone"].map(|system| tokens_per_s(shared.of(system)));
    let sixteen = lab.runs("punica/fig-13", &[&prompts])?;
    let [packed, spread] = ["punica", "least-loaded"].map(|system| sixteen.of(system));
    let [of_packed, of_spread] = [packed, spread].map(|run| run.batch_size_mean.unwrap_or(f64::NAN));
    Ok(vec![
        punica / vllm,
        of_packed / of_spread,
        latency_ms(spread) / latency_ms(packed),
    ])
}

fn arlo(lab: &Lab, _: &Paper) -> Result<Vec<f64>, Failure> {
    let base = lab.runs_of(&["arlo", "arlo-st", "arlo-dt"], "arlo/fig-6a", &[])?;
    let large = lab.runs_of(&["arlo", "arlo-st"], "arlo/fig-10b", &[])?;
    let over_arlo = |runs: &Runs, system: &str| latency_ms(runs.of(system)) / latency_ms(runs.of("arlo"));
    Ok(vec![
        over_arlo(&base, "arlo-st"),
        over_arlo(&base, "arlo-dt"),
        over_arlo(&large, "arlo-st"),
    ])
}

fn tabi(lab: &Lab, _: &Paper) -> Result<Vec<f64>, Failure> {
    let over_tabi = |scenario: &str| {
        let runs = lab.runs_of(&["infaas-best", "tabi"], scenario, &[])?;
        Ok(latency_ms(runs.of("infaas-best")) / latency_ms(runs.of("tabi")))
    };
    ["tabi/table-2-sst-2", "tabi/table-2-mnli"].into_iter().map(over_tabi).collect()
}
