//! Of a route between models.

use serde::{Deserialize, Serialize};
use tenantry_core::ledger::CascadeRecord;
use tenantry_core::server::ScalingUse;
use tenantry_core::server::cascade::StageCounts;
use tenantry_traces::Time;

use super::number::{is_zero, ratio, rounded};

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
    /// Time of a whole card that a request takes, where each model runs as often on a card as its packing factor says:
    /// the sum over models of mean time, share of the requests and 1 / packing factor (Tabi, section 7.1). Absent where
    /// a factor is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed_gpu_ms_per_request: Option<f64>,
    /// The models in their order.
    pub stages: Vec<StageSummary>,
    /// Over the whole run; absent where no cards come and go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<ScalingSummary>,
}

/// How the models, or the one that generates, used cards that come and go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingSummary {
    /// Times that a model was brought onto a card.
    pub cards_added: u64,
    /// Times that a model gave one up.
    pub cards_released: u64,
    /// Requests that were placed anew because their instance left.
    pub redispatched: u64,
    /// From when on, in seconds, each model has, or is to have, so many cards, the models in their order.
    pub cards: Vec<(f64, Vec<u32>)>,
    /// Changes after the last of these, where there were more than are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cards_left_out: u64,
}

impl ScalingSummary {
    pub(super) fn new(scaling: &ScalingUse) -> ScalingSummary {
        let row = |(from, cards): &(Time, Vec<u32>)| (rounded(from.as_secs_f64()), cards.clone());
        ScalingSummary {
            cards_added: scaling.added,
            cards_released: scaling.released,
            redispatched: scaling.redispatched,
            cards: scaling.cards.iter().map(row).collect(),
            cards_left_out: scaling.cards_left_out,
        }
    }
}

/// One model of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSummary {
    /// The model's name.
    pub model: String,
    /// Share of the answered requests that it was asked about.
    pub asked_share: f64,
    /// Its compute lanes' time an answer; absent where it gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_ms_mean: Option<f64>,
}

impl CascadeSummary {
    /// Nothing where no request was answered.
    pub(super) fn new(record: &CascadeRecord, scaling: Option<&ScalingUse>) -> Option<CascadeSummary> {
        let returned = record.returned.iter().sum::<u64>() as f64;
        let share = |count: u64| ratio(count as f64, returned);
        let mean = |stage: &StageCounts| ratio(stage.computed.as_millis_f64(), stage.answered as f64);
        let stages = || record.stages.iter().zip(&record.asked);
        let cost = |(stage, asked): (&StageCounts, &u64)| {
            let packing = stage.packing?;
            Some(mean(stage).unwrap_or(0.0) * *asked as f64 / returned / packing)
        };
        let cost = stages().map(cost).sum::<Option<f64>>();
        let stage = |(stage, asked): (&StageCounts, &u64)| {
            Some(StageSummary {
                model: stage.name.clone(),
                asked_share: share(*asked)?,
                compute_ms_mean: mean(stage),
            })
        };
        Some(CascadeSummary {
            returned_share_by_stage: record.returned.iter().map(|&count| share(count)).collect::<Option<_>>()?,
            accuracy: ratio(
                record.right.iter().sum::<u64>() as f64,
                record.judged.iter().sum::<u64>() as f64,
            ),
            accuracy_by_stage: record.judged.iter().any(|&judged| judged > 0).then(|| {
                let stages = record.right.iter().zip(&record.judged);
                stages.map(|(&right, &judged)| ratio(right as f64, judged as f64)).collect()
            }),
            packed_gpu_ms_per_request: cost.map(rounded),
            stages: stages().map(stage).collect::<Option<_>>()?,
            scaling: scaling.map(ScalingSummary::new),
        })
    }
}
