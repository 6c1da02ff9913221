//! What is said of a run: `summary.json`.
//!
//! What does not apply is absent, never zero: a system that finished nothing has no `latency_ms`, one that swaps nothing has no
//! `swap`. Counts of requests are always there. All times are milliseconds but `duration_s`; shares lie between 0 and 1.
//!
//! Floats are rounded to six significant digits, which is more than any measurement here has and keeps the file readable and
//! identical for the same input. Nothing in it comes from a clock, a host or a path.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::RunRecord;
use tenantry_core::command::{FailureReason, Refusal, RejectReason};
use tenantry_core::ledger::{ByReason, CascadeRecord, Durations, ManagementRecord};
use tenantry_core::server::cascade::StageCounts;
use tenantry_core::server::runtimes::FleetUse;
use tenantry_traces::{Duration, Time};

use crate::curves::Run;
use crate::tasks::TaskSummary;

/// The machine on which simulated runs ran; any other is a device: `cpu`, `cuda:0`.
pub const VIRTUAL: &str = "virtual";

/// The sweep point: a scenario's path and the value it had.
pub type Parameters = BTreeMap<String, serde_json::Value>;

/// A latency target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// To be answered within.
    pub latency: Duration,
    /// The share of requests for which that must hold: 0.98 for `p98`.
    pub quantile: f64,
}

/// What cards cost, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rent {
    /// Cards of the cluster.
    pub gpus: u32,
    /// Of one card, in the scenario's currency.
    pub price_per_hour: f64,
}

/// What a record does not know about its run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLabels {
    /// The system's name.
    pub system: String,
    /// The sweep point.
    pub parameters: Parameters,
    /// Counted from 0.
    pub repeat: u32,
    /// [`VIRTUAL`] or a device.
    pub machine: String,
    /// Of this repeat.
    pub seed: u64,
    /// The scenario's target.
    pub slo: Option<Slo>,
    /// Where the scenario has a price for the card.
    pub rent: Option<Rent>,
}

/// A whole `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Of the file's form: 1.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// In the order in which they were asked for.
    pub runs: Vec<RunSummary>,
}

impl Summary {
    /// Of all runs of a scenario.
    pub fn new(scenario: &str, seed: u64, runs: &[Run]) -> Summary {
        let runs = runs.iter().map(|run| run.summary.clone()).collect();
        Summary {
            schema: 1,
            scenario: scenario.to_owned(),
            seed,
            runs,
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The system's name.
    pub system: String,
    /// The sweep point; empty without a sweep.
    pub parameters: Parameters,
    /// Counted from 0.
    pub repeat: u32,
    /// [`VIRTUAL`] or a device.
    pub machine: String,
    /// Of this repeat.
    pub seed: u64,
    /// The user stopped it; only then is it there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// All requests, those of the warm-up included.
    pub requests: RequestCounts,
    /// Rejected requests by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_by: BTreeMap<String, u64>,
    /// Failed requests by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by: BTreeMap<String, u64>,
    /// From the end of the warm-up to the last event, in seconds.
    pub duration_s: f64,
    /// Requests answered after the warm-up, by `duration_s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_rps: Option<f64>,
    /// Tokens of requests answered after the warm-up, by `duration_s`; absent for encoders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_s: Option<f64>,
    /// From arrival to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<Distribution>,
    /// Of each request, the mean time from one token to the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<Distribution>,
    /// From arrival to answer. The five parts below add up to it, request by request and so in the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<Distribution>,
    /// From arrival to the submission of the batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<Distribution>,
    /// From submission until the compute lane was free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane_ms: Option<Distribution>,
    /// The lane was free, and the batch's parameters were not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<Distribution>,
    /// The batch computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_ms: Option<Distribution>,
    /// From the end of the batch until the server had handled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tell_ms: Option<Distribution>,
    /// The target, and whether it was met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo: Option<SloSummary>,
    /// Share of requests answered within the target, of those that arrived after the warm-up. Rejected and failed requests count
    /// as missed; cancelled and unfinished ones do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo_attainment: Option<f64>,
    /// Requests inside, averaged over the whole run.
    pub in_flight_mean: f64,
    /// Requests a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size_mean: Option<f64>,
    /// Share of the computed tokens that were padding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding_share: Option<f64>,
    /// By name.
    pub lanes: BTreeMap<String, LaneSummary>,
    /// Logical bytes on all cards together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_bytes: Option<MemorySummary>,
    /// Tenants' parameters that came and went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapSummary>,
    /// Absent for encoders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationSummary>,
    /// Absent where tenants are no tasks that share models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSummary>,
    /// Cards with a request on them, averaged over the run; with runtimes, cards from their start-up until they are given back.
    /// Absent for other encoders, whose cards are all kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_time_weighted: Option<f64>,
    /// What the cards cost while a million requests are answered, at the pace after the warm-up and in the currency of the scenario's
    /// prices: all of the cluster's cards, whether busy or not; with runtimes, `gpus_time_weighted` of them. Absent without a price, and
    /// where nothing was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_million_requests: Option<f64>,
    /// Absent where nothing is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<LookupSummary>,
    /// What was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadSummary>,
    /// How evenly tenants were served; absent where fewer than two were answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<FairnessSummary>,
    /// Of a route between models; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cascade: Option<CascadeSummary>,
    /// Tenants and domains that came, changed and went, over the whole run; absent where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<ManagementSummary>,
    /// Absent where there are no runtimes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSummary>,
}

/// Requests by how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Arrived: the sum of all below.
    pub offered: u64,
    /// Answered.
    pub finished: u64,
    /// Turned away.
    pub rejected: u64,
    /// Let in, not answered.
    pub failed: u64,
    /// Given up by their clients.
    pub cancelled: u64,
    /// Still inside at the end.
    pub unfinished: u64,
}

/// A distribution of times in milliseconds: exact mean and maximum, quantiles within 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Distribution {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p98: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// A target, and whether it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloSummary {
    /// The target in milliseconds.
    pub latency_ms: f64,
    /// For which share of requests: `p98`.
    pub at: String,
    /// Whether `slo_attainment` is at least that; absent where no request was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// A lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneSummary {
    /// Share of `duration_s` in which an op ran.
    pub busy_share: f64,
}

/// Memory of all cards together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySummary {
    /// What the system may fill.
    pub capacity: u64,
    /// Backbones and tenants' heads.
    pub shared: u64,
    /// Swapped parameters of one tenant; absent where nothing is swapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_tenant: Option<u64>,
    /// Most that ever lay there, `shared` included.
    pub peak: u64,
}

/// Tenants' parameters that came and went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwapSummary {
    /// Was on the card.
    pub hits: u64,
    /// Had to come in.
    pub misses: u64,
    /// Left for another.
    pub evictions: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
}

/// What a decoder did beside generating.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GenerationSummary {
    /// Requests that left a card for want of memory.
    pub evictions: u64,
    /// Requests that left a card so that it would be empty.
    pub migrations: u64,
    /// Tokens that had to come into a cache again after either.
    pub recomputed_tokens: u64,
    /// Tokens of prompts that another request of the tenant had computed; absent where none were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_tokens: Option<u64>,
    /// Adapters that were read from the disk; absent where host memory held all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<u64>,
}

/// How a fleet of runtimes was used, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetSummary {
    /// Allocations that were solved for.
    pub decisions: u64,
    /// Of those, allocations that stand for a solution: the constraints could not be met, or the solver's limit was.
    pub fallbacks: u64,
    /// Periods in which the solver was still at the last question.
    pub late: u64,
    /// Instances that changed their runtime.
    pub replaced: u64,
    /// Requests that were dispatched anew because their instance left.
    pub redispatched: u64,
    /// Cards added.
    pub cards_added: u64,
    /// Cards released.
    pub cards_released: u64,
    /// The columns of `allocations`: `stream/longest request`.
    pub runtimes: Vec<String>,
    /// From when on, in seconds, each runtime has, or is to have, so many instances.
    pub allocations: Vec<(f64, Vec<u32>)>,
}

impl FleetSummary {
    fn new(fleet: &FleetUse) -> FleetSummary {
        let column = |(stream, length): &(String, u32)| format!("{stream}/{length}");
        let row = |(from, counts): &(Time, Vec<u32>)| (rounded(from.as_secs_f64()), counts.clone());
        FleetSummary {
            decisions: fleet.decisions,
            fallbacks: fleet.fallbacks,
            late: fleet.late,
            replaced: fleet.replaced,
            redispatched: fleet.redispatched,
            cards_added: fleet.added,
            cards_released: fleet.released,
            runtimes: fleet.runtimes.iter().map(column).collect(),
            allocations: fleet.allocations.iter().map(row).collect(),
        }
    }
}

/// Fragments looked up, by which table answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookupSummary {
    /// Fragments looked up: a text of n tokens has n less the fragment's length and one more.
    pub tokens: u64,
    /// A domain's own table.
    pub domain_hits: u64,
    /// The table of all domains.
    pub root_hits: u64,
    /// Neither: shorter fragments did.
    pub fallbacks: u64,
}

/// What was asked, the warm-up included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSummary {
    /// Requests a second, up to the last arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_rps: Option<f64>,
    /// Variance over mean of the requests in a second: 1 for a Poisson process, more for bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispersion: Option<f64>,
    /// Of an input.
    pub input_tokens: Tokens,
    /// Of an output; absent for encoders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Tokens>,
    /// Tenants that asked at all.
    pub tenants: u64,
    /// The part of the requests that the busiest tenth of them sent.
    pub busiest_tenth_share: f64,
}

/// Lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Tokens {
    pub mean: f64,
    pub p50: u32,
    pub p98: u32,
    pub max: u32,
}

/// How evenly tenants were served, of the requests that arrived after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FairnessSummary {
    /// Tenants with a request that was answered, turned away or failed.
    pub tenants: u64,
    /// Each tenant's mean latency, over the tenants that were answered.
    pub tenant_mean_latency_ms: Across,
    /// Jain's index of those means: 1 where all tenants wait alike, 1/n where one waits and the others do not (Jain, Chiu and Hawe,
    /// 1984).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jain_index: Option<f64>,
    /// Share of the tenants for whom the latency target was met, counted as for `slo_attainment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants_in_slo: Option<f64>,
}

/// A figure over tenants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Across {
    pub min: f64,
    pub p50: f64,
    pub p98: f64,
    pub max: f64,
}

/// What a route between models came to, of the requests that arrived after the warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CascadeSummary {
    /// Share of the answered requests that each stage returned.
    pub returned_share_by_stage: Vec<f64>,
    /// Share of the answers that are right; absent where nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The same of those that each stage returned; null where it returned none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy_by_stage: Option<Vec<Option<f64>>>,
    /// Time of a whole card that a request takes, where each model runs as often on a card as its packing factor says: the sum over models of
    /// mean time, share of the requests and 1 / packing factor (Tabi, section 7.1). Absent where a factor is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_gpu_ms_per_request: Option<f64>,
    /// The models in their order.
    pub stages: Vec<StageSummary>,
}

/// One model of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSummary {
    /// The model's name.
    pub model: String,
    /// Answers of it, by the requests that were answered.
    pub asked_share: f64,
    /// Its compute lanes' time an answer; absent where it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_ms_mean: Option<f64>,
}

impl CascadeSummary {
    /// Nothing where no request was answered.
    fn new(record: &CascadeRecord) -> Option<CascadeSummary> {
        let returned = record.returned.iter().sum::<u64>() as f64;
        let share = |count: u64| ratio(count as f64, returned);
        let cost = |stage: &StageCounts| Some(stage.computed.as_millis_f64() / returned / stage.packing?);
        let cost = record.stages.iter().map(cost).sum::<Option<f64>>();
        let stage = |stage: &StageCounts| {
            Some(StageSummary {
                model: stage.name.clone(),
                asked_share: share(stage.answered)?,
                compute_ms_mean: ratio(stage.computed.as_millis_f64(), stage.answered as f64),
            })
        };
        Some(CascadeSummary {
            returned_share_by_stage: record
                .returned
                .iter()
                .map(|&count| share(count))
                .collect::<Option<_>>()?,
            accuracy: ratio(
                record.right.iter().sum::<u64>() as f64,
                record.judged.iter().sum::<u64>() as f64,
            ),
            accuracy_by_stage: record.judged.iter().any(|&judged| judged > 0).then(|| {
                let stages = record.right.iter().zip(&record.judged);
                stages
                    .map(|(&right, &judged)| ratio(right as f64, judged as f64))
                    .collect()
            }),
            packed_gpu_ms_per_request: cost.map(rounded),
            stages: record.stages.iter().map(stage).collect::<Option<_>>()?,
        })
    }
}

/// Management requests by what came of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManagementSummary {
    /// The sum of all below.
    pub offered: u64,
    /// Done, by kind: `create`, `update`, `delete`, `create-domain`, `update-domain`.
    pub made: BTreeMap<String, u64>,
    /// Refused, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_by: BTreeMap<String, u64>,
    /// Failed, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by: BTreeMap<String, u64>,
    /// Not answered when the user stopped the run.
    pub unfinished: u64,
    /// From a request to its being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<Distribution>,
}

impl ManagementSummary {
    fn of(record: &ManagementRecord) -> Option<ManagementSummary> {
        (record.offered > 0).then(|| ManagementSummary {
            offered: record.offered,
            made: named(&record.made, |kind| kind),
            refused_by: named(&record.refused, Refusal::name),
            failed_by: named(&record.failed, FailureReason::name),
            unfinished: record.unfinished,
            made_ms: Distribution::of(&record.latency),
        })
    }
}

impl SwapSummary {
    /// Share of uses that found the parameters on the card; absent where there was no use.
    pub fn hit_share(&self) -> Option<f64> {
        ratio(self.hits as f64, (self.hits + self.misses) as f64)
    }
}

impl RunSummary {
    /// Of a run that has ended.
    pub fn new(labels: RunLabels, record: &RunRecord) -> RunSummary {
        let counts = record.counts;
        let duration_s = record.duration.as_secs_f64();
        let lanes = record.lanes.iter().filter_map(|lane| {
            let busy_share = ratio(lane.busy.as_secs_f64(), duration_s)?;
            Some((lane.name.clone(), LaneSummary { busy_share }))
        });
        let memory = record.memory;
        let attainment = labels.slo.and_then(|slo| attainment(record, slo));
        let throughput_rps = ratio(record.served as f64, duration_s);
        let fleet_gpus = record
            .fleet
            .as_ref()
            .and_then(|fleet| ratio(fleet.card_time.as_secs_f64(), record.end.as_secs_f64()));
        RunSummary {
            system: labels.system,
            parameters: labels.parameters,
            repeat: labels.repeat,
            machine: labels.machine,
            seed: labels.seed,
            interrupted: record.interrupted,
            requests: RequestCounts {
                offered: counts.offered,
                finished: counts.served,
                rejected: counts.rejected,
                failed: counts.failed,
                cancelled: counts.cancelled,
                unfinished: counts.unfinished,
            },
            rejected_by: named(&record.rejected, RejectReason::name),
            failed_by: named(&record.failed, FailureReason::name),
            duration_s: rounded(duration_s),
            throughput_rps,
            output_tokens_per_s: record
                .generation
                .and_then(|_| ratio(record.output_tokens as f64, duration_s)),
            ttft_ms: Distribution::of(&record.first_token),
            tpot_ms: Distribution::of(&record.per_token),
            latency_ms: Distribution::of(&record.latency),
            queue_ms: Distribution::of(&record.queue),
            lane_ms: Distribution::of(&record.lane),
            stall_ms: Distribution::of(&record.stall),
            compute_ms: Distribution::of(&record.compute),
            tell_ms: Distribution::of(&record.tell),
            slo: labels.slo.map(|slo| SloSummary {
                latency_ms: rounded(slo.latency.as_millis_f64()),
                at: format!("p{}", rounded(slo.quantile * 100.0)),
                met: attainment.map(|share| share >= slo.quantile),
            }),
            slo_attainment: attainment.map(rounded),
            in_flight_mean: rounded(record.in_flight_mean),
            batch_size_mean: ratio(record.batch_requests as f64, record.batches as f64),
            padding_share: ratio(
                record.padded_tokens as f64 - record.input_tokens as f64,
                record.padded_tokens as f64,
            ),
            lanes: lanes.collect(),
            gpu_memory_bytes: (memory.capacity_bytes > 0).then(|| MemorySummary {
                capacity: memory.capacity_bytes,
                shared: memory.shared_bytes,
                per_tenant: (memory.per_tenant_bytes > 0).then_some(memory.per_tenant_bytes),
                peak: memory.total_bytes(),
            }),
            swap: record.swaps.map(|swaps| SwapSummary {
                hits: swaps.hits,
                misses: swaps.misses,
                evictions: swaps.evictions,
                bytes_in: swaps.bytes_in,
            }),
            tasks: record.tasks.as_ref().map(TaskSummary::new),
            generation: record.generation.map(|generation| GenerationSummary {
                evictions: generation.evictions,
                migrations: generation.migrations,
                recomputed_tokens: generation.recomputed_tokens,
                shared_tokens: (generation.shared_tokens > 0).then_some(generation.shared_tokens),
                reads: (generation.reads > 0).then_some(generation.reads),
            }),
            gpus_time_weighted: record
                .generation
                .and_then(|generation| ratio(generation.occupied.as_secs_f64(), record.end.as_secs_f64()))
                .or(fleet_gpus),
            cost_per_million_requests: labels.rent.and_then(|rent| {
                let an_hour = fleet_gpus.unwrap_or(rent.gpus.into()) * rent.price_per_hour;
                ratio(an_hour / 3600.0 * 1e6, throughput_rps?)
            }),
            lookup: record.lookups.map(|lookups| LookupSummary {
                tokens: lookups.tokens,
                domain_hits: lookups.domain_hits,
                root_hits: lookups.root_hits,
                fallbacks: lookups.fallbacks,
            }),
            workload: None,
            fairness: None,
            cascade: record.cascade.as_ref().and_then(CascadeSummary::new),
            management: ManagementSummary::of(&record.management),
            fleet: record.fleet.as_ref().map(FleetSummary::new),
        }
    }

    /// The parts of the mean latency in the order in which a request meets them, in milliseconds; `None` where nothing finished.
    pub fn stages_ms(&self) -> [(&'static str, Option<f64>); 5] {
        let mean = |part: &Option<Distribution>| part.map(|part| part.mean);
        [
            ("queue", mean(&self.queue_ms)),
            ("lane", mean(&self.lane_ms)),
            ("stall", mean(&self.stall_ms)),
            ("compute", mean(&self.compute_ms)),
            ("tell", mean(&self.tell_ms)),
        ]
    }
}

impl Distribution {
    /// `None` where nothing was recorded.
    pub fn of(durations: &Durations) -> Option<Distribution> {
        let ms = |q: f64| rounded(durations.quantile_ns(q) as f64 / 1e6);
        (durations.count() > 0).then(|| Distribution {
            mean: rounded(durations.mean_ns() / 1e6),
            p50: ms(0.5),
            p90: ms(0.9),
            p95: ms(0.95),
            p98: ms(0.98),
            p99: ms(0.99),
            p999: ms(0.999),
            max: rounded(durations.max_ns() as f64 / 1e6),
        })
    }
}

/// To six significant digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().expect("a formatted float is a float")
}

/// `None` where there is nothing to divide by.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(part / whole))
}

fn attainment(record: &RunRecord, slo: Slo) -> Option<f64> {
    let answered = record.latency.count();
    let within = (record.latency.share_within(slo.latency) * answered as f64).round();
    let judged = answered + record.refused;
    (judged > 0).then(|| within / judged as f64)
}

fn named<R: Copy>(counts: &ByReason<R>, name: fn(R) -> &'static str) -> BTreeMap<String, u64> {
    counts
        .iter()
        .map(|(reason, count)| (name(*reason).to_owned(), *count))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::folder::json;
    use crate::testing::{labels, record};

    /// The file's form, as scripts rely on it. Whoever changes it says so in the change log.
    #[test]
    fn golden() {
        let run = Run::new(labels("hmi", VIRTUAL), &record(1_000, Duration::from_millis(160)));
        let text = String::from_utf8(json(&Summary::new("golden", 7, &[run])).unwrap()).unwrap();
        assert_eq!(text, include_str!("../tests/summary.golden.json"));
    }

    #[test]
    fn what_does_not_apply_is_absent() {
        let summary = RunSummary::new(labels("idle", VIRTUAL), &RunRecord::default());
        let value = serde_json::to_value(&summary).unwrap();
        let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let labels = ["machine", "parameters", "repeat", "seed", "slo", "system"];
        let counts = ["duration_s", "in_flight_mean", "lanes", "requests"];
        let mut expected = [&labels[..], &counts[..]].concat();
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(value["slo"].get("met"), None);
    }

    #[test]
    fn cost_is_of_the_cards_while_a_million_are_answered() {
        let with = |gpus, record: &RunRecord| {
            let rent = Some(Rent {
                gpus,
                price_per_hour: 1.8,
            });
            RunSummary::new(
                RunLabels {
                    rent,
                    ..labels("any", VIRTUAL)
                },
                record,
            )
        };
        let mut record = record(1_000, Duration::from_millis(100));
        let one = with(1, &record);
        let seconds = 1e6 / one.throughput_rps.unwrap();
        assert_eq!(one.cost_per_million_requests, Some(rounded(seconds / 3600.0 * 1.8)));
        let of_two = with(2, &record).cost_per_million_requests.unwrap();
        assert!((of_two / one.cost_per_million_requests.unwrap() - 2.0).abs() < 1e-5);
        // Runtimes' cards are paid while they are there: here one and a half in the mean, of the eight that there may be.
        record.fleet = Some(FleetUse {
            card_time: Duration(record.end.0 / 2 * 3),
            ..FleetUse::default()
        });
        let of_some = with(8, &record);
        let share = of_some.cost_per_million_requests.unwrap() / one.cost_per_million_requests.unwrap();
        assert!((share - 1.5).abs() < 1e-4, "{share}");
        assert_eq!(with(1, &RunRecord::default()).cost_per_million_requests, None);
    }

    #[test]
    fn rejected_and_failed_requests_miss_the_target() {
        let mut record = record(98, Duration::from_millis(100));
        let summary = RunSummary::new(labels("full", VIRTUAL), &record);
        assert_eq!(summary.slo_attainment, Some(0.98), "98 of 100, two rejected");
        assert_eq!(summary.slo.unwrap().met, Some(true));
        record.refused += 1;
        let summary = RunSummary::new(labels("full", VIRTUAL), &record);
        assert_eq!(summary.slo.unwrap().met, Some(false));
    }

    #[test]
    fn a_target_keeps_its_name() {
        for (quantile, name) in [(0.5, "p50"), (0.98, "p98"), (0.999, "p99.9")] {
            let slo = Some(Slo {
                latency: Duration::from_millis(1),
                quantile,
            });
            let labels = RunLabels {
                slo,
                ..labels("any", VIRTUAL)
            };
            assert_eq!(RunSummary::new(labels, &RunRecord::default()).slo.unwrap().at, name);
        }
    }

    /// Every float of a value.
    fn floats(value: &Value) -> Vec<f64> {
        match value {
            Value::Number(number) if number.is_f64() => vec![number.as_f64().unwrap()],
            Value::Array(items) => items.iter().flat_map(floats).collect(),
            Value::Object(fields) => fields.values().flat_map(floats).collect(),
            _ => Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn summaries_keep_their_laws(requests in 1_u64..500, slowest_ns in 100_u64..10_000_000_000) {
            let record = record(requests, Duration(slowest_ns));
            let summary = RunSummary::new(labels("any", "cpu"), &record);
            let latency = summary.latency_ms.unwrap();

            let parts: f64 = summary.stages_ms().iter().map(|(_, ms)| ms.unwrap()).sum();
            prop_assert!((parts - latency.mean).abs() <= latency.mean * 1e-5, "{parts} against {latency:?}");

            let ordered = [latency.p50, latency.p90, latency.p95, latency.p98, latency.p99, latency.p999, latency.max];
            prop_assert!(ordered.is_sorted(), "{latency:?}");

            let RequestCounts { offered, finished, rejected, failed, cancelled, unfinished } = summary.requests;
            prop_assert_eq!(offered, finished + rejected + failed + cancelled + unfinished);

            let bytes = json(&summary).unwrap();
            prop_assert_eq!(&bytes, &json(&RunSummary::new(labels("any", "cpu"), &record)).unwrap());
            prop_assert_eq!(&serde_json::from_slice::<RunSummary>(&bytes).unwrap(), &summary);
            for float in floats(&serde_json::from_slice(&bytes).unwrap()) {
                prop_assert_eq!(float, rounded(float));
            }
        }

        #[test]
        fn rounding_is_close_and_final(value in -1e15_f64..1e15) {
            let once = rounded(value);
            prop_assert!((once - value).abs() <= value.abs() * 5e-6);
            prop_assert_eq!(rounded(once), once);
        }
    }
}
