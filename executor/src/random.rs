//! Random weights, each a function of `(seed, part, owner)` alone: not of the device, of libtorch, or of how many there
//! are.

use rayon::prelude::*;
use tenantry_traces::draw::{Draws, Purpose, Stream};

/// The standard deviation that BERT initialises its weights with.
pub(crate) const INITIAL_STD: f32 = 0.02;

/// Which kind of weights: parts never share draws.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Part {
    Model = 0,
    Adapter = 1,
    Head = 2,
    Lora = 3,
    NewVersion = 4,
    FurtherPretraining = 5,
}

/// The draws for one owner's weights.
pub(crate) fn weights(seed: u64, part: Part, owner: u64) -> Stream {
    Draws::new(seed, Purpose::Weights).part(part as u64).about(owner)
}

/// Fills with uniform numbers of mean 0 and the given standard deviation. Uniform and not normal, since nothing depends
/// on the tails and thousands of tenants' weights are to be there in seconds.
pub(crate) fn fill(stream: &mut Stream, std: f32, out: &mut [f32]) {
    let scale = std * 3f32.sqrt() / (1u32 << 31) as f32;
    for pair in out.chunks_mut(2) {
        let bits = stream.bits();
        for (number, half) in pair.iter_mut().zip([(bits >> 32) as u32, bits as u32]) {
            *number = half as i32 as f32 * scale;
        }
    }
}

/// The same numbers as [`fill`] gives, on all cores: for what is made before a run, and takes one core a minute.
pub(crate) fn fill_on_all_cores(stream: &mut Stream, std: f32, out: &mut [f32]) {
    let at = |draws: usize| stream.clone().skipped(draws as u64);
    out.par_chunks_mut(CHUNK_NUMBERS)
        .enumerate()
        .for_each(|(chunk, numbers)| fill(&mut at(chunk * CHUNK_NUMBERS / 2), std, numbers));
    *stream = at(out.len().div_ceil(2));
}

/// Numbers that a core fills at once. Even, since a draw gives two.
const CHUNK_NUMBERS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cores_fill_as_one_does() {
        for length in [0, 1, 5, CHUNK_NUMBERS, 3 * CHUNK_NUMBERS + 7] {
            let filled = |fill: fn(&mut Stream, f32, &mut [f32])| {
                let mut stream = weights(7, Part::Model, 0);
                let mut numbers = vec![0.0; length];
                fill(&mut stream, 0.02, &mut numbers);
                (numbers, stream.bits())
            };
            assert_eq!(
                filled(fill_on_all_cores),
                filled(fill),
                "{length} numbers, and what is drawn after them"
            );
        }
    }

    #[test]
    fn moments_and_independence() {
        let mut numbers = vec![0.0; 100_001];
        fill(&mut weights(7, Part::Model, 3), 0.02, &mut numbers);
        let count = numbers.len() as f32;
        let mean = numbers.iter().sum::<f32>() / count;
        let std = (numbers.iter().map(|x| x * x).sum::<f32>() / count).sqrt();
        assert!(mean.abs() < 3e-4, "mean {mean}");
        assert!((std - 0.02).abs() < 2e-4, "standard deviation {std}");

        let mut again = vec![0.0; 10];
        fill(&mut weights(7, Part::Model, 3), 0.02, &mut again);
        assert_eq!(again, numbers[..10]);
        fill(&mut weights(7, Part::Adapter, 3), 0.02, &mut again);
        assert_ne!(again, numbers[..10]);
    }
}
