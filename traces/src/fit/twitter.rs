//! Tweets: how long they are, and how their rate goes up and down.
//!
//! The sample stream alternates between a calm level that drifts over hours and plateaus of several minutes at some
//! four times that level, about every two hours. Within ten seconds it is Poisson (variance over mean of the calm
//! seconds: 1.01 in the median). So the rate is modelled as alternating calms and plateaus whose durations are drawn
//! from their quantiles, with a level that is drawn from the regime's quantiles through an autoregressive Gaussian
//! (Cario and Nelson, "Autoregressive to anything", Operations Research Letters 19, 1996).

use super::memory::memory_s;
use super::quantiles::{self, Knot, LengthKnot};

/// Where the lengths come from.
pub const LENGTHS_SOURCE: &str = "archiveteam Twitter sample stream, 2018-04-25 13:15, 13:31 and 13:43 UTC, all \
                                  languages, bert-base-uncased tokens of the 140-character text with [CLS] and [SEP] \
                                  (reconfigurable-ml-pipeline/ipa twitter-2018-04-25.tar.1 @e1f08dd); fitted on every \
                                  second tweet";

/// Where the rate comes from.
pub const RATES_SOURCE: &str = "archiveteam Twitter sample stream, 2021-08, records per second with delete notices \
                                (reconfigurable-ml-pipeline/web-service-datasets workload.tbz2 @7404ad6); daily holes \
                                left out, fitted on the first half";

/// The longest tweet of Arlo's clips, which its recalibration stretches to 512 (section 5).
pub const ARLO_LONGEST_TWEET_TOKENS: f64 = 125.0;

/// Median of Arlo's ten-minute clips (section 2.1).
pub const ARLO_MEDIAN_TOKENS: f64 = 21.0;

/// Of the lognormal distribution with Arlo's median and its p98 of 72 tokens (section 2.1): ln(72 / 21) / 2.053749, the
/// latter being the 98th percentile of the standard normal distribution.
pub const ARLO_SIGMA: f64 = 0.599_941_6;

/// Tokens of a tweet.
pub const LENGTHS: &[LengthKnot] = &[
    (0.0, 2),
    (0.00671, 3),
    (0.01629, 5),
    (0.02268, 6),
    (0.02939, 7),
    (0.06006, 9),
    (0.07604, 10),
    (0.11022, 12),
    (0.12907, 13),
    (0.14601, 14),
    (0.18403, 16),
    (0.20351, 17),
    (0.22013, 18),
    (0.23738, 19),
    (0.2722, 21),
    (0.29042, 22),
    (0.31022, 23),
    (0.32971, 24),
    (0.35016, 25),
    (0.39169, 27),
    (0.41789, 28),
    (0.4361, 29),
    (0.45751, 30),
    (0.47668, 31),
    (0.49808, 32),
    (0.51725, 33),
    (0.53802, 34),
    (0.56294, 35),
    (0.58722, 36),
    (0.60543, 37),
    (0.64377, 39),
    (0.66262, 40),
    (0.68307, 41),
    (0.70671, 42),
    (0.7262, 43),
    (0.74441, 44),
    (0.7738, 46),
    (0.80607, 48),
    (0.82236, 49),
    (0.8476, 51),
    (0.87093, 53),
    (0.88754, 54),
    (0.90735, 56),
    (0.93131, 59),
    (0.95591, 63),
    (0.97827, 72),
    (0.98339, 75),
    (0.99042, 81),
    (0.99521, 88),
    (0.99808, 94),
    (1.0, 134),
];

/// The rate of a stream with calms and plateaus, relative to its mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Regimes<K = Vec<Knot>> {
    /// How long calms last, in seconds.
    pub calm_s: K,
    /// How long plateaus last, in seconds.
    pub plateau_s: K,
    /// The rate in calms, in requests per second of the fitted recording.
    pub calm_rate: K,
    /// The rate in plateaus.
    pub plateau_rate: K,
    /// Over what time the level of a calm is forgotten, in seconds: the time constant of the autocorrelation of the
    /// Gaussian that it is a quantile by.
    pub calm_memory_s: f64,
    /// Over what time the level of a plateau is forgotten.
    pub plateau_memory_s: f64,
}

/// The sample stream's, as [`fit_rates`] finds them.
pub const RATES: Regimes<&[Knot]> = Regimes {
    calm_s: &[
        (0.0, 30.0),
        (0.05, 82.5),
        (0.1, 1435.0),
        (0.25, 4215.0),
        (0.5, 6705.0),
        (0.75, 8452.5),
        (0.9, 10520.0),
        (0.95, 12352.5),
        (1.0, 15830.0),
    ],
    plateau_s: &[
        (0.0, 30.0),
        (0.05, 50.0),
        (0.1, 70.0),
        (0.25, 280.0),
        (0.5, 420.0),
        (0.75, 570.0),
        (0.9, 730.0),
        (0.95, 942.0),
        (1.0, 1400.0),
    ],
    calm_rate: &[
        (0.0, 0.0),
        (0.001, 33.1382),
        (0.01, 38.5),
        (0.05, 41.6),
        (0.1, 43.2),
        (0.25, 46.3),
        (0.4, 49.2),
        (0.5, 51.5),
        (0.6, 54.5),
        (0.75, 62.5),
        (0.9, 73.8),
        (0.95, 79.5),
        (0.98, 87.3),
        (0.99, 95.3),
        (0.995, 104.4),
        (0.999, 114.8),
        (1.0, 166.4),
    ],
    plateau_rate: &[
        (0.0, 43.7),
        (0.001, 91.4076),
        (0.01, 119.1),
        (0.05, 130.93),
        (0.1, 146.96),
        (0.25, 185.3),
        (0.4, 210.4),
        (0.5, 219.6),
        (0.6, 225.4),
        (0.75, 233.85),
        (0.9, 246.6),
        (0.95, 252.6),
        (0.98, 260.2),
        (0.99, 270.522),
        (0.995, 282.137),
        (0.999, 306.611),
        (1.0, 318.8),
    ],
    calm_memory_s: 477.0,
    plateau_memory_s: 128.0,
};

/// The length of a step of the level, in seconds: within it the stream is Poisson.
pub const STEP_S: usize = 10;

/// The autocorrelation of levels is matched at a minute. In steps.
const MEMORY_LAG: usize = 60 / STEP_S;

/// A step is on a plateau where its rate is above so many times the median.
const PLATEAU_OVER_MEDIAN: f64 = 2.25;

/// Shorter plateaus are noise, and shorter calms do not interrupt one. In steps.
const SHORTEST_STEPS: usize = 3;

const RATE_PROBABILITIES: [f64; 17] = [
    0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0,
];
const DURATION_PROBABILITIES: [f64; 9] = [0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0];

/// Fits regimes to per-second counts without holes. `None` where the stream has fewer than ten plateaus: fit something
/// simpler.
pub fn fit_rates(counts: &[u32]) -> Option<Regimes> {
    let rates: Vec<f64> = counts
        .chunks_exact(STEP_S)
        .map(|step| step.iter().map(|&count| f64::from(count)).sum::<f64>() / STEP_S as f64)
        .collect();
    let median = quantiles::fit(&rates, &[0.5]).first()?.1;
    let mut on_plateau: Vec<bool> = rates.iter().map(|&rate| rate > PLATEAU_OVER_MEDIAN * median).collect();
    for regime in [false, true] {
        absorb_short_runs(&mut on_plateau, regime);
    }
    let runs: Vec<(bool, &[f64])> = split_runs(&on_plateau, &rates);
    // The first and the last run are cut off by the recording.
    let durations = |plateau: bool| -> Vec<f64> {
        let whole = &runs[1..runs.len().max(2) - 1];
        whole.iter().filter(|run| run.0 == plateau).map(|run| (run.1.len() * STEP_S) as f64).collect()
    };
    let levels = |plateau: bool| -> Vec<f64> {
        runs.iter().filter(|run| run.0 == plateau).flat_map(|run| run.1.iter().copied()).collect()
    };
    let (calm_s, plateau_s) = (durations(false), durations(true));
    if calm_s.len() < 10 || plateau_s.len() < 10 {
        return None;
    }
    let (calm_rate, plateau_rate) = (
        quantiles::fit(&levels(false), &RATE_PROBABILITIES),
        quantiles::fit(&levels(true), &RATE_PROBABILITIES),
    );
    let memory_s = |plateau: bool, rates: &[Knot]| {
        // The first and the last step of a run are in part of the run beside it.
        let of_regime = runs.iter().filter(|run| run.0 == plateau);
        let steps: Vec<&[f64]> = of_regime.filter_map(|(_, run)| run.get(1..run.len() - 1)).collect();
        memory_s(&steps, rates, STEP_S, MEMORY_LAG)
    };
    Some(Regimes {
        calm_s: quantiles::fit(&calm_s, &DURATION_PROBABILITIES),
        plateau_s: quantiles::fit(&plateau_s, &DURATION_PROBABILITIES),
        calm_memory_s: memory_s(false, &calm_rate),
        plateau_memory_s: memory_s(true, &plateau_rate),
        calm_rate,
        plateau_rate,
    })
}

/// Turns runs of `regime` that are too short into the other regime. The first and the last run may be longer than is
/// seen.
fn absorb_short_runs(on_plateau: &mut [bool], regime: bool) {
    let mut start = 0;
    while start < on_plateau.len() {
        let run = on_plateau[start..].iter().take_while(|&&plateau| plateau == on_plateau[start]).count();
        let inside = start > 0 && start + run < on_plateau.len();
        if inside && on_plateau[start] == regime && run < SHORTEST_STEPS {
            on_plateau[start..start + run].fill(!regime);
        }
        start += run;
    }
}

fn split_runs<'a>(on_plateau: &[bool], rates: &'a [f64]) -> Vec<(bool, &'a [f64])> {
    let mut rest = rates;
    let split = |run: &[bool]| {
        let (steps, tail) = rest.split_at(run.len());
        rest = tail;
        (run[0], steps)
    };
    on_plateau.chunk_by(|a, b| a == b).map(split).collect()
}

impl<K: AsRef<[Knot]>> Regimes<K> {
    /// Requests per second over a long time.
    pub fn mean_rate_per_s(&self) -> f64 {
        let calm_s = quantiles::mean(self.calm_s.as_ref());
        let plateau_s = quantiles::mean(self.plateau_s.as_ref());
        let requests =
            calm_s * quantiles::mean(self.calm_rate.as_ref()) + plateau_s * quantiles::mean(self.plateau_rate.as_ref());
        requests / (calm_s + plateau_s)
    }
}
