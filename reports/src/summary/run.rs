//! One run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::RunRecord;
use tenantry_core::command::{FailureReason, RejectReason};

use super::asked::{FairnessSummary, WorkloadSummary};
use super::cascade::{CascadeSummary, ScalingSummary};
use super::figures::{Distribution, LaneSummary, RequestCounts, SloSummary};
use super::fleet::FleetSummary;
use super::labels::{Parameters, RunLabels};
use super::management::ManagementSummary;
use super::memory::{GenerationSummary, LookupSummary, MemorySummary, SwapSummary};
use super::number::{named, ratio, rounded};
use crate::classes::ClassSummary;
use crate::tasks::TaskSummary;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The system's name.
    pub system: String,
    /// The sweep point; empty without a sweep.
    pub parameters: Parameters,
    /// Counted from 0.
    pub repeat: u32,
    /// [`VIRTUAL`](super::VIRTUAL) or a device.
    pub machine: String,
    /// Of this repeat.
    pub seed: u64,
    /// The card's profile, as the scenario calls it; empty in what was written before 0.1 told it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub card: String,
    /// Cards of the cluster: at most, where they come and go.
    #[serde(default)]
    pub gpus: u32,
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
    /// From the end of the warm-up until the last request has left, in seconds; to the last event where some are left
    /// inside for ever.
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
    /// From each token that was made after the warm-up, a request's first aside, back to the one before it. Where steps
    /// follow each other with nothing between them, each counts as their mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_gap_ms: Option<Distribution>,
    /// Of each request with several tokens, the longest of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_token_gap_ms: Option<Distribution>,
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
    /// Share of requests answered within the target, of those that arrived after the warm-up. Who was refused or
    /// failed, gave up after the target had passed, or was left at the end missed it; who gave up before tells nothing,
    /// and does not count.
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
    /// What the host holds of tenants' parameters, which come to the cards from there; absent where nothing is swapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_bytes: Option<u64>,
    /// Tenants' parameters that came and went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapSummary>,
    /// Absent for encoders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationSummary>,
    /// Of decoders, over the whole run; absent where no cards come and go. A cascade has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSummary>,
    /// Absent where tenants are no tasks that share models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSummary>,
    /// Cards with a request on them, averaged over the time after the warm-up; where cards come and go, from their
    /// start-up until they are given back. Absent for other encoders, whose cards are all kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_time_weighted: Option<f64>,
    /// What the cards cost while a million requests are answered, at the pace after the warm-up and in the currency of
    /// the scenario's prices: all of the cluster's cards, whether busy or not; where they come and go,
    /// `gpus_time_weighted` of them. Absent without a price, and where nothing was answered.
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
    /// How each service class fared, by its name; absent where there is one, or more than 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, ClassSummary>,
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

impl RunSummary {
    /// Of a run that has ended.
    pub fn new(labels: RunLabels, record: &RunRecord) -> RunSummary {
        let duration_s = record.duration.as_secs_f64();
        let lanes = record.lanes.iter().filter_map(|lane| {
            let busy_share = ratio(lane.busy.as_secs_f64(), duration_s)?;
            Some((lane.name.clone(), LaneSummary { busy_share }))
        });
        let attainment = labels.slo.and_then(|_| record.in_time.share(record.interrupted));
        let throughput_rps = ratio(record.served as f64, duration_s);
        let of_fleet = record.fleet.as_ref().map(|fleet| fleet.card_time);
        let card_time = of_fleet.or(record.scaling.as_ref().map(|scaling| scaling.card_time));
        let fleet_gpus = card_time.and_then(|time| ratio(time.as_secs_f64(), duration_s));
        RunSummary {
            system: labels.system,
            parameters: labels.parameters,
            repeat: labels.repeat,
            machine: labels.machine,
            seed: labels.seed,
            card: labels.card,
            gpus: labels.gpus,
            interrupted: record.interrupted,
            requests: RequestCounts::of(record.counts),
            rejected_by: named(&record.rejected, RejectReason::name),
            failed_by: named(&record.failed, FailureReason::name),
            duration_s: rounded(duration_s),
            throughput_rps,
            output_tokens_per_s: record.generation.and_then(|_| ratio(record.output_tokens as f64, duration_s)),
            ttft_ms: Distribution::of(&record.first_token),
            tpot_ms: Distribution::of(&record.per_token),
            token_gap_ms: Distribution::of(&record.token_gap),
            longest_token_gap_ms: Distribution::of(&record.longest_gap),
            latency_ms: Distribution::of(&record.latency),
            queue_ms: Distribution::of(&record.queue),
            lane_ms: Distribution::of(&record.lane),
            stall_ms: Distribution::of(&record.stall),
            compute_ms: Distribution::of(&record.compute),
            tell_ms: Distribution::of(&record.tell),
            slo: labels.slo.map(|slo| SloSummary::of(slo, attainment)),
            slo_attainment: attainment.map(rounded),
            in_flight_mean: rounded(record.in_flight_mean),
            batch_size_mean: ratio(record.batch_requests as f64, record.batches as f64),
            padding_share: ratio(
                record.padded_tokens as f64 - record.input_tokens as f64,
                record.padded_tokens as f64,
            ),
            lanes: lanes.collect(),
            gpu_memory_bytes: MemorySummary::of(record.memory),
            host_memory_bytes: None,
            swap: record.swaps.map(SwapSummary::of),
            tasks: record.tasks.as_ref().map(TaskSummary::new),
            generation: record.generation.map(GenerationSummary::of),
            scaling: record.generation.and(record.scaling.as_ref()).map(ScalingSummary::new),
            gpus_time_weighted: fleet_gpus.or_else(|| {
                let occupied = record.generation?.occupied;
                ratio(occupied.as_secs_f64(), duration_s)
            }),
            cost_per_million_requests: labels.price_per_hour.and_then(|price| {
                let an_hour = fleet_gpus.unwrap_or(labels.gpus.into()) * price;
                ratio(an_hour / 3600.0 * 1e6, throughput_rps?)
            }),
            lookup: record.lookups.map(LookupSummary::of),
            workload: None,
            fairness: None,
            classes: BTreeMap::new(),
            cascade: record
                .cascade
                .as_ref()
                .and_then(|cascade| CascadeSummary::new(cascade, record.scaling.as_ref())),
            management: ManagementSummary::of(&record.management),
            fleet: record.fleet.as_ref().map(FleetSummary::new),
        }
    }

    /// The parts of the mean latency in the order in which a request meets them, in milliseconds; `None` where nothing
    /// finished.
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
