//! Which batches and lengths are measured: the usual ones, as far as model and time allow.

use std::time::Duration;

use tch::Device;

use super::Suite;

/// Sequences in a batch, and tenants in it; larger ones in steps of two where larger ones are served. Of three
/// sequences, tenants or tokens, of six and of twelve, products take up to a fifth more than what lies half-way between
/// two and four, four and eight, or eight and sixteen, which kernels are made for.
const BATCH: Knots = Knots {
    quick: &[1, 2, 4, 8, 16, 32],
    full: &[1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32],
};
/// Tokens of a padded sequence, closest where costs bend: another kernel is chosen at 16. Multiples of 16 take up to a
/// tenth less than what lies beside them, and a table rises: so neighbours are apart, and half are not such multiples.
const TOKENS: Knots = Knots {
    quick: &[1, 2, 4, 8, 15, 24, 32, 45, 64, 96, 128],
    full: &[1, 2, 3, 4, 5, 6, 8, 15, 24, 32, 45, 64, 96, 128],
};
/// The same on a GPU, where up to some thousand tokens take what it takes to issue their kernels: those few are
/// measured often instead.
const BATCH_ON_GPU: Knots = Knots {
    quick: &[1, 4, 16, 32, 64],
    full: &[1, 2, 4, 8, 16, 32, 64],
};
const TOKENS_ON_GPU: Knots = Knots {
    quick: &[1, 16, 64, 128],
    full: &[1, 8, 16, 32, 64, 96, 128],
};
/// Those beyond, where longer ones are served; attention grows with their square.
const LONGER_TOKENS: &[u32] = &[192, 256, 384, 512, 768, 1024];
const LONGER_TOKENS_ON_GPU: &[u32] = &[256, 512, 1024];
/// Those beyond are apart by so many where steps are looked for: two on each of the paper's, which are of 64 tokens
/// (Arlo, Fig. 2).
const STEP_TOKENS: u32 = 32;
/// Those of a table with a third dimension.
const FEWER_TOKENS: [u32; 10] = [1, 2, 3, 4, 6, 8, 15, 32, 64, 128];

/// The values of a dimension: those that a quick suite has time for, and all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knots {
    pub quick: &'static [u32],
    pub full: &'static [u32],
}

/// What a device's points are chosen from: kernels of a GPU are made for other sizes than a processor's.
pub(crate) fn on<T>(device: Device, cpu: &'static T, gpu: &'static T) -> &'static T {
    match device.is_cuda() {
        true => gpu,
        false => cpu,
    }
}

impl Knots {
    pub fn of(&self, suite: Suite) -> &'static [u32] {
        match suite {
            Suite::Quick => self.quick,
            Suite::Full => self.full,
        }
    }
}

/// The largest shapes that are served, where somebody says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Sequences in a batch; up to 32 are measured whatever it is.
    pub batch: Option<u32>,
    /// Tokens of a padded sequence.
    pub tokens: Option<u32>,
    /// Whether the lengths must show the steps of the latency, if it has such.
    pub steps: bool,
}

/// The values of a grid's two dimensions, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axes {
    pub batch: Vec<u32>,
    pub tokens: Vec<u32>,
}

impl Axes {
    /// A suite's grid for a model of so many positions, of which these are served. Where measuring every point once
    /// would take longer than `pass`, the largest batches are left out, then the longest inputs; `per_token` is what
    /// one token takes in one measurement.
    pub fn affordable(
        device: Device,
        suite: Suite,
        positions: u32,
        served: Served,
        per_token: Duration,
        pass: Duration,
    ) -> Axes {
        let longest = served.tokens.map_or(positions, |tokens| tokens.clamp(1, positions));
        let longer = on(device, &LONGER_TOKENS, &LONGER_TOKENS_ON_GPU);
        let longer = longer.iter().copied().filter(|_| served.tokens.is_some());
        let steps = (1..=longest / STEP_TOKENS).map(|at| at * STEP_TOKENS).filter(|_| served.steps);
        let usual = on(device, &TOKENS, &TOKENS_ON_GPU).of(suite).iter().copied().chain(longer).chain(steps);
        let mut tokens: Vec<u32> = usual.filter(|&tokens| tokens <= longest).collect();
        tokens.sort_unstable();
        tokens.dedup();
        if tokens.is_empty() || served.tokens.is_some() && tokens.last() != Some(&longest) {
            tokens.push(longest);
        }
        let mut batch = on(device, &BATCH, &BATCH_ON_GPU).of(suite).to_vec();
        let most = served.batch.unwrap_or(0);
        while let Some(last) = batch.last().filter(|&&last| last < most) {
            batch.push((2 * last).min(most));
        }
        let mut axes = Axes { batch, tokens };
        while axes.all_tokens() as f64 * per_token.as_secs_f64() > pass.as_secs_f64() {
            if axes.batch.len() > 3 {
                axes.batch.pop();
            } else if axes.tokens.len() > 2 {
                axes.tokens.pop();
            } else {
                break;
            }
        }
        axes
    }

    /// First, middle and last length: costs are nearly straight lines in it.
    pub fn few_tokens(&self) -> Vec<u32> {
        let last = self.tokens.len() - 1;
        let mut few = vec![self.tokens[0], self.tokens[last / 2], self.tokens[last]];
        few.dedup();
        few
    }

    /// The longest: those that models are compiled for.
    pub fn longest_tokens(&self) -> Vec<u32> {
        self.tokens[self.tokens.len().saturating_sub(3)..].to_vec()
    }

    /// Lengths for tables of three dimensions.
    pub fn fewer_tokens(&self) -> Vec<u32> {
        let last = self.tokens.last();
        let fewer = self.tokens.iter().filter(|&tokens| FEWER_TOKENS.contains(tokens) || Some(tokens) == last);
        fewer.copied().collect()
    }

    /// All pairs.
    pub fn points(&self) -> impl Iterator<Item = [u32; 2]> + '_ {
        self.batch.iter().flat_map(|&batch| self.tokens.iter().map(move |&tokens| [batch, tokens]))
    }

    fn all_tokens(&self) -> u64 {
        self.points().map(|[batch, tokens]| u64::from(batch) * u64::from(tokens)).sum()
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;
    use tenantry_profiles::{DType, EncoderLayerRow, ModelShape, Stats};

    use super::*;

    #[test]
    fn models_and_time_limit_the_grid() {
        let cheap = Duration::from_nanos(1);
        let all = Served::default();
        let quick =
            |positions, per_token, pass| Axes::affordable(Device::Cpu, Suite::Quick, positions, all, per_token, pass);
        let axes = quick(512, cheap, Duration::from_secs(1));
        assert_eq!(
            (axes.batch.len(), axes.tokens.len(), axes.all_tokens()),
            (6, 11, 63 * 419)
        );
        assert_eq!(axes.few_tokens(), [1, 24, 128]);
        assert_eq!(axes.fewer_tokens(), [1, 2, 4, 8, 15, 32, 64, 128]);
        let full = Axes::affordable(Device::Cpu, Suite::Full, 512, all, cheap, Duration::from_secs(1));
        assert_eq!(
            (full.batch.len(), full.tokens.len(), full.all_tokens()),
            (11, 14, 118 * 433)
        );
        assert_eq!(full.fewer_tokens(), FEWER_TOKENS);
        assert_eq!(
            quick(64, cheap, Duration::from_secs(1)).tokens,
            [1, 2, 4, 8, 15, 24, 32, 45, 64]
        );
        let short = quick(3, cheap, Duration::from_secs(1));
        assert_eq!((short.tokens.clone(), short.few_tokens()), (vec![1, 2], vec![1, 2]));

        // A millisecond a token: 7 sequences of 419 tokens are 2.9 s.
        let slow = Duration::from_millis(1);
        assert_eq!(quick(512, slow, Duration::from_secs(5)).batch, [1, 2, 4]);
        let least = quick(512, Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!((least.batch, least.tokens), (vec![1, 2, 4], vec![1, 2]));
    }

    #[test]
    fn what_is_served_is_measured() {
        let grid = |batch, tokens| {
            let served = Served {
                batch: Some(batch),
                tokens: Some(tokens),
                steps: false,
            };
            let axes = Axes::affordable(
                Device::Cpu,
                Suite::Quick,
                512,
                served,
                Duration::from_nanos(1),
                Duration::from_secs(1),
            );
            (axes.batch, axes.tokens)
        };
        let (batch, tokens) = grid(128, 64);
        assert_eq!(batch, [1, 2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(tokens, [1, 2, 4, 8, 15, 24, 32, 45, 64]);
        let (batch, tokens) = grid(100, 100);
        assert_eq!(
            (batch[6..].to_vec(), tokens[9..].to_vec()),
            (vec![64, 100], vec![96, 100])
        );
        let (batch, tokens) = grid(4, 4096);
        assert_eq!(batch.last(), Some(&32));
        assert_eq!(tokens[10..], [128, 192, 256, 384, 512]);
    }
    /// An op whose latency rises at every 64 tokens, as the paper's card has it: its steps are found where they are
    /// looked for.
    #[test]
    fn steps_are_measured_where_they_are_looked_for() {
        let model = ModelShape::builtin("bert-base").unwrap();
        let found = |steps| {
            let served = Served {
                batch: None,
                tokens: Some(512),
                steps,
            };
            let mut card = synthetic_card();
            let axes = Axes::affordable(
                Device::Cpu,
                Suite::Full,
                model.positions,
                served,
                Duration::from_nanos(1),
                Duration::from_secs(1),
            );
            let row = |[batch, tokens]: [u32; 2]| EncoderLayerRow {
                model: model.name.clone(),
                dtype: DType::F32,
                batch,
                tokens,
                stats: Stats::exact(f64::from(batch * tokens.div_ceil(64)) * 100.0),
            };
            card.tables.encoder_layer = axes.points().map(row).collect();
            card.staircase(&model, DType::F32).map(|staircase| staircase.step)
        };
        assert_eq!((found(true), found(false)), (Some(64), None));
    }
}
