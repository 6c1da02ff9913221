//! The factors between a datasheet and what is had of it, and how far they miss a card that they were not fitted to.

use super::ops::encoder_layer;
use super::{Datasheet, Roofline};
use crate::family::Family;
use crate::model::{DType, ModelShape};
use crate::stats::nearest_rank;

/// How much of a datasheet is had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// What each kernel takes beside its work, in microseconds.
    pub launch_us: f64,
    /// The part of the peak that products reach.
    pub arithmetic: f64,
    /// The part of the memory's bandwidth that is reached.
    pub memory: f64,
}

impl Factors {
    /// Fitted to published latencies of BERT on seven cards (TensorRT and FasterTransformer;
    /// `profiles/tests/all/roofline.rs` fits them again); the memory's part is aiconfigurator's.
    pub const FITTED: Factors = Factors {
        launch_us: 9.0,
        arithmetic: 0.65,
        memory: 0.8,
    };

    /// |derived − measured| / measured on cards that the factors were not fitted to: its median.
    pub const ERROR_MEDIAN: f64 = 0.22;
    /// The same, which 95 % of the points do not exceed.
    pub const ERROR_P95: f64 = 0.55;

    /// The error of whole encoders, in words.
    pub fn stated_error() -> String {
        in_words(Self::ERROR_MEDIAN, Self::ERROR_P95)
    }
}

fn in_words(median: f64, p95: f64) -> String {
    let percent = |share: f64| (100.0 * share).round();
    format!("±{} % at the median, ±{} % at p95", percent(median), percent(p95))
}

/// How far a family's derived tables are off where somebody measured such tables, for a source that published them or
/// for this project: |derived − measured| / measured over each card's points, the mean of that over the cards, and the
/// worst. None of these tables took part in the fit but those of whole encoders, which `static_model` has too: theirs
/// is what each card is off by when it is left out.
///
/// Published tables are of fused kernels that nothing holds up; the H200 that was measured for this project issues each
/// op from the host. So a card that nobody measured may be as far off as the worst.
///
/// `profiles/tests/all/roofline.rs` computes it again from the shipped cards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DerivedError {
    /// Cards that have such tables.
    pub cards: usize,
    /// At the median of a card's points.
    pub median: f64,
    /// At their 95th percentile.
    pub p95: f64,
    /// The median of the card with the worst.
    pub worst_median: f64,
    /// The 95th percentile of the card with the worst, which may be another.
    pub worst_p95: f64,
}

impl DerivedError {
    /// Of a family; none where no card has one of its tables measured.
    pub fn of(family: Family) -> Option<DerivedError> {
        let of_one = |at: [f64; 2]| (1, at, at);
        let (cards, [median, p95], [worst_median, worst_p95]) = match family {
            // Whole encoders, each of seven cards derived with factors that were fitted to the others; of the worst,
            // also by the H200.
            Family::EncoderLayer | Family::StaticModel => {
                (7, [Factors::ERROR_MEDIAN, Factors::ERROR_P95], [0.57, 1.12])
            }
            Family::DecoderDense => (7, [0.22, 0.47], [0.46, 0.85]),
            Family::DecoderPrefill => (6, [0.40, 0.79], [0.78, 1.19]),
            Family::DecoderDecode => (6, [0.29, 0.60], [0.77, 0.91]),
            Family::DecoderEnds => (5, [0.40, 0.83], [0.70, 1.41]),
            Family::Collective => (3, [0.33, 0.80], [0.45, 0.91]),
            // No source publishes these: they are by the H200 alone.
            Family::Embedding => of_one([0.66, 0.76]),
            Family::Head => of_one([0.72, 0.81]),
            Family::Adapter => of_one([0.27, 0.50]),
            Family::Lora => of_one([0.50, 0.77]),
            Family::Pet => of_one([0.37, 0.90]),
            Family::ConcurrentLayer => of_one([0.52, 0.73]),
            Family::Copy => of_one([0.63, 1.11]),
            Family::ModelLoad => of_one([0.72, 1.22]),
            _ => return None,
        };
        Some(DerivedError {
            cards,
            median,
            p95,
            worst_median,
            worst_p95,
        })
    }

    /// In words, as a derived table of the family states it.
    pub fn stated(family: Family) -> String {
        match DerivedError::of(family) {
            Some(of_one @ DerivedError { cards: 1, .. }) => {
                format!("{}, by the tables of one card", in_words(of_one.median, of_one.p95))
            }
            Some(of) => format!(
                "{}, by the tables of {} cards; of single cards up to {}",
                in_words(of.median, of.p95),
                of.cards,
                in_words(of.worst_median, of.worst_p95)
            ),
            None => "unknown: no card has such a table measured".to_owned(),
        }
    }
}

/// A published latency of a whole encoder.
#[derive(Clone, Debug)]
pub struct WholeModel {
    /// The card's datasheet.
    pub card: Datasheet,
    /// The model.
    pub model: ModelShape,
    /// Its number format.
    pub dtype: DType,
    /// Sequences.
    pub batch: u32,
    /// Tokens of each.
    pub tokens: u32,
    /// Of all layers, in microseconds.
    pub latency_us: f64,
}

impl WholeModel {
    /// The relative error of the derived latency, from −1.
    fn error(&self, factors: Factors) -> f64 {
        let roofline = Roofline {
            sheet: self.card.clone(),
            factors,
        };
        let layer = roofline.us(
            encoder_layer(&self.model, self.dtype, self.batch, self.tokens),
            self.dtype,
        );
        f64::from(self.model.layers) * layer / self.latency_us - 1.0
    }
}

/// What came out for one card that was left out.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// The datasheet's name.
    pub card: String,
    /// Fitted to all others.
    pub factors: Factors,
    /// Relative errors of its points.
    pub errors: Vec<f64>,
}

impl LeftOut {
    /// The `percent`-th percentile of |error|.
    pub fn error_at(&self, percent: usize) -> f64 {
        let mut errors: Vec<f64> = self.errors.iter().map(|error| error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        nearest_rank(&errors, percent)
    }
}

/// Derives each card with factors fitted to the others.
pub fn leave_one_card_out(points: &[WholeModel]) -> Vec<LeftOut> {
    let mut cards: Vec<&str> = points.iter().map(|point| point.card.name.as_str()).collect();
    cards.sort_unstable();
    cards.dedup();
    let left_out = |card: &&str| {
        let (out, rest): (Vec<_>, Vec<_>) = points.iter().partition(|point| point.card.name == **card);
        let factors = Factors::fit(&rest);
        LeftOut {
            card: (*card).to_owned(),
            factors,
            errors: out.iter().map(|point| point.error(factors)).collect(),
        }
    };
    cards.iter().map(left_out).collect()
}

impl Factors {
    /// The launch time and the part of the peak with the least mean |ln(derived / measured)|, which halves and doubles
    /// alike, of a grid as fine as the data deserve.
    pub fn fit(points: &[&WholeModel]) -> Factors {
        let loss =
            |factors: Factors| -> f64 { points.iter().map(|point| (1.0 + point.error(factors)).ln().abs()).sum() };
        let grid = (1..=15).flat_map(|launch| (6..=18).map(move |part| (launch, part)));
        let candidates = grid.map(|(launch, part)| Factors {
            launch_us: f64::from(launch),
            arithmetic: 0.05 * f64::from(part),
            ..Factors::FITTED
        });
        candidates
            .map(|factors| (loss(factors), factors))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .expect("the grid is not empty")
            .1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points that follow the roofline with given factors.
    fn points(cards: &[&str], factors: Factors) -> Vec<WholeModel> {
        let mut points = Vec::new();
        for card in cards {
            for (batch, tokens) in [(1, 32), (8, 128), (32, 384)] {
                let mut point = WholeModel {
                    card: Datasheet::builtin(card).unwrap(),
                    model: ModelShape::builtin("bert-base").unwrap(),
                    dtype: DType::F16,
                    batch,
                    tokens,
                    latency_us: 1.0,
                };
                point.latency_us = point.error(factors) + 1.0;
                points.push(point);
            }
        }
        points
    }

    #[test]
    fn factors_are_found_again() {
        let factors = Factors {
            launch_us: 5.0,
            arithmetic: 0.45,
            ..Factors::FITTED
        };
        let points = points(&["t4", "a100-sxm"], factors);
        let fitted = Factors::fit(&points.iter().collect::<Vec<_>>());
        assert_eq!(fitted.launch_us, 5.0);
        assert!((fitted.arithmetic - 0.45).abs() < 1e-9);
    }

    #[test]
    fn a_card_unlike_the_others_is_missed_by_as_much() {
        let mut all = points(&["t4", "a100-sxm", "l4"], Factors::FITTED);
        for point in all.iter_mut().filter(|point| point.card.name == "l4") {
            point.latency_us *= 2.0;
        }
        let left_out = leave_one_card_out(&all);
        let l4 = left_out.iter().find(|out| out.card == "l4").unwrap();
        assert!((l4.error_at(50) - 0.5).abs() < 1e-6, "{:?}", l4.errors);
    }
}
