//! The step of a model's latency by length (Arlo, section 3.3, "Determine the max_length of each runtime").
//!
//! A card multiplies matrices in tiles, so latency rises at every multiple of some length and hardly between. A runtime
//! that ends within a step costs as much as one that ends with it: the multiples of the step are the lengths worth
//! compiling for.

use crate::card::Card;
use crate::model::{DType, ModelShape};
use crate::rows::EncoderLayerRow;

/// Within a step, latency is level up to this share: the paper's "usually less than 5 %".
const LEVEL: f64 = 0.05;
/// Samples on each step: one cannot tell a step from a slope, and two tell it by lying at one height.
const SAMPLES_MIN: usize = 2;

/// A latency that rises in equal steps of length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staircase {
    /// Tokens from one rise to the next.
    pub step: u32,
    /// By step: the longest length that it covers, and the median latency measured on it, in nanoseconds.
    pub treads: Vec<(u32, u64)>,
}

/// Finds the longest step of the latency by length in `measured`, pairs of (length, latency in nanoseconds): the
/// lengths at which a static runtime is worth having. Lengths may repeat and come in any order; noise and single
/// outliers do no harm.
///
/// None when latency does not rise, when it rises within steps as much as between them, or when fewer than two samples
/// lie on one of the steps, which cannot tell the two apart. Steps of unequal length, which the paper allows for, are
/// not found.
pub fn staircase(measured: &[(u32, u64)]) -> Option<Staircase> {
    let mut samples: Vec<(u32, f64)> = Vec::with_capacity(measured.len());
    for &(length, latency_ns) in measured.iter().filter(|(length, latency_ns)| *length > 0 && *latency_ns > 0) {
        // Deviations are shares: differences of logarithms.
        samples.push((length, libm::log(latency_ns as f64)));
    }
    samples.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let longest = samples.last()?.0;
    let steps: Vec<(u32, f64)> =
        (2..=longest / 2).filter_map(|step| Some((step, unevenness(&samples, step)?))).collect();
    let evenest = steps.iter().map(|step| step.1).min_by(f64::total_cmp)?;
    // A rise of LEVEL along a step is a mean deviation of a quarter of it; the rest is noise, which every step shows.
    let is_level = |unevenness: f64| unevenness <= evenest + LEVEL / 4.0;
    let widest = steps.iter().rposition(|step| is_level(step.1))?;
    // Steps of nearly that length may pass as well, or be the same between two measured lengths: the best, and of
    // equals the one that ends at a measured length.
    let alike = steps[..=widest].iter().rev().take_while(|step| is_level(step.1));
    let &(step, _) = alike.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))?;

    let levels: Vec<(u32, f64)> = treads(&samples, step)
        .map(|tread| {
            (
                tread[0].0.div_ceil(step) * step,
                median(tread.iter().map(|sample| sample.1)),
            )
        })
        .collect();
    let rise = levels[levels.len() - 1].1 - levels[0].1;
    let rise_within: f64 = treads(&samples, step).map(slant).sum();
    (rise > LEVEL && rise_within < rise / 2.0).then(|| Staircase {
        step,
        treads: levels
            .into_iter()
            .map(|(length, level)| (length, libm::round(libm::exp(level)) as u64))
            .collect(),
    })
}

impl Card {
    /// The staircase of a model's encoder layer under one request: the lengths that it was measured at say where the
    /// card's tiles end. None where they show no equal steps, or the card has no such table.
    ///
    /// Compiled models do not say it: their table has only the lengths that somebody compiled.
    pub fn staircase(&self, model: &ModelShape, dtype: DType) -> Option<Staircase> {
        let of_model = |row: &&EncoderLayerRow| row.model == model.name && row.dtype == dtype && row.batch == 1;
        let rows = self.tables.encoder_layer.iter().filter(of_model);
        let measured: Vec<(u32, u64)> = rows.map(|row| (row.tokens, (row.stats.median_us * 1e3) as u64)).collect();
        staircase(&measured)
    }
}

/// Runs of samples on the same step: lengths 1 to `step`, `step + 1` to twice it, and so on.
fn treads(samples: &[(u32, f64)], step: u32) -> impl Iterator<Item = &[(u32, f64)]> {
    samples.chunk_by(move |a, b| a.0.div_ceil(step) == b.0.div_ceil(step))
}

/// How much a straight line through a tread would rise: twice the difference of its halves' medians.
fn slant(tread: &[(u32, f64)]) -> f64 {
    if tread.len() < 2 {
        return 0.0;
    }
    let half = tread.len() / 2;
    let of = |part: &[(u32, f64)]| median(part.iter().map(|sample| sample.1));
    2.0 * (of(&tread[tread.len() - half..]) - of(&tread[..half]))
}

/// The mean deviation of samples from their step's median, as a share; none with too few samples on a step. The last
/// one may be cut short.
fn unevenness(samples: &[(u32, f64)], step: u32) -> Option<f64> {
    let last = samples.last()?.0.div_ceil(step);
    let (mut steps, mut total) = (0, 0.0);
    for tread in treads(samples, step) {
        if tread.len() < SAMPLES_MIN && tread[0].0.div_ceil(step) < last {
            return None;
        }
        let level = median(tread.iter().map(|sample| sample.1));
        total += tread.iter().map(|sample| (sample.1 - level).abs()).sum::<f64>();
        steps += 1;
    }
    // A median lies closer to few samples than to many, as a mean does.
    (samples.len() > steps).then(|| total / (samples.len() - steps) as f64)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A rough normal variate in -3..3 from a counter.
    fn variate(seed: u64, at: u64) -> f64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(at);
        let mut uniform = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// BERT-base in the paper's Fig. 2a: 1.152 ms up to 64 tokens, 4.86 ms up to 512, in steps; within one a slight
    /// rise.
    fn bert(step: u32, longest: u32, every: u32, tilt: f64, deviation: f64, seed: u64) -> Vec<(u32, u64)> {
        let sample = |at: u32| {
            let length = at * every;
            let tread = f64::from(length.div_ceil(step) - 1);
            let treads = f64::from(longest / step - 1);
            let level = 1.152e6 + (4.86e6 - 1.152e6) * tread / treads;
            let within = f64::from((length - 1) % step) / f64::from(step);
            let latency = level * (1.0 + tilt * within) * (1.0 + deviation * variate(seed, u64::from(at)));
            (length, latency as u64)
        };
        (1..=longest / every).map(sample).collect()
    }

    #[test]
    fn the_papers_step_is_64() {
        for every in [1, 4, 8, 16] {
            let found = staircase(&bert(64, 512, every, 0.04, 0.0, 0)).expect("it is a staircase");
            assert_eq!(found.step, 64, "every {every}");
            assert_eq!(found.treads.len(), 8);
            assert_eq!(found.treads[7].0, 512);
            assert!(found.treads[0].1.abs_diff(1_175_000) < 15_000, "{:?}", found.treads[0]);
        }
    }

    #[test]
    fn a_straight_line_is_no_staircase() {
        for every in [1, 8, 16] {
            let line: Vec<_> =
                (1..=512 / every).map(|at| (at * every, 600_000 + 8_000 * u64::from(at * every))).collect();
            assert_eq!(staircase(&line), None, "every {every}");
        }
        assert_eq!(
            staircase(&bert(64, 512, 64, 0.0, 0.0, 0)),
            None,
            "one sample a step cannot tell"
        );
        // Two samples where a step would be, on a slope: lengths 32 and 64, 96 and 128, …
        let slope: Vec<_> = (1..=16).map(|at| (at * 32, 600_000 + 256_000 * u64::from(at))).collect();
        assert_eq!(staircase(&slope), None);
        let level: Vec<_> = (1..=64).map(|at| (at * 8, 1_000_000)).collect();
        assert_eq!(staircase(&level), None);
        assert_eq!(staircase(&[]), None);
    }

    /// The paper's card has what Fig. 2 says; imported cards and the processor that ships have lengths that show no
    /// equal steps.
    #[test]
    fn shipped_cards_have_the_steps_that_were_measured() {
        let found = |card: &str, model: &str, dtype: DType| {
            let card = Card::find(card, &[]).expect("it ships");
            let model = ModelShape::builtin(model).expect("it is built-in");
            card.staircase(&model, dtype).map(|found| found.step)
        };
        assert_eq!(found("paper-rtx3090", "bert-base", DType::F32), Some(64));
        assert_eq!(found("paper-rtx3090", "bert-large", DType::F32), Some(64));
        assert_eq!(found("cpu", "bert-mini", DType::F32), None);
        assert_eq!(found("cpu", "tiny", DType::F32), None);
        assert_eq!(found("h100-sxm", "bert-base", DType::Bf16), None);
        assert_eq!(found("a100-sxm", "bert-base", DType::F16), None);
        assert_eq!(found("cpu", "bert-large", DType::F32), None, "it was not measured");
    }

    proptest! {
        #[test]
        fn the_step_is_found_through_noise_and_outliers(
            (step, longest) in prop::sample::select(vec![(64u32, 512u32), (128, 1024), (32, 256), (48, 384)]),
            every in prop::sample::select(vec![1u32, 2, 4]),
            tilt in 0.0f64..0.04,
            deviation in 0.0f64..0.02,
            seed in any::<u64>(),
        ) {
            let mut samples = bert(step, longest, every, tilt, deviation, seed);
            // One slow sample in a hundred.
            for at in (50..samples.len()).step_by(100) {
                samples[at].1 *= 2;
            }
            prop_assert_eq!(staircase(&samples).map(|found| found.step), Some(step));
        }
    }
}
