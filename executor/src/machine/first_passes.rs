//! The passes that a lane makes before the run begins, so that none of its requests pays for what a process does once.

use std::collections::BTreeSet;

use tch::Device;

/// Texts, `most` of them, and tokens of them: libtorch chooses its kernels and fills its allocator, and a GPU loads
/// each kernel, which may be another for another shape, when it is first used.
pub(super) fn first_passes(device: Device, most: usize, longest: usize) -> Vec<(usize, usize)> {
    let (batches, lengths) = match device.is_cuda() {
        false => (vec![1, 8], vec![longest]),
        true => (vec![1, 4, 8, 32], vec![longest.min(16), longest.div_ceil(4), longest]),
    };
    let shapes = batches.into_iter().flat_map(|batch: usize| {
        let batch = batch.min(most);
        lengths.iter().map(move |&tokens| (batch, tokens))
    });
    // Each once, where a small system makes them the same.
    let shapes: BTreeSet<(usize, usize)> = shapes.collect();
    shapes.into_iter().collect::<Vec<_>>().repeat(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No pass is larger than what serves, and the largest is made: each three times.
    #[test]
    fn first_passes_are_those_that_a_run_can_make() {
        let gpu = Device::Cuda(0);
        assert_eq!(first_passes(gpu, 1, 100), [(1, 16), (1, 25), (1, 100)].repeat(3));
        assert_eq!(first_passes(Device::Cpu, 1, 100), [(1, 100)].repeat(3));
        assert_eq!(first_passes(Device::Cpu, 6, 100), [(1, 100), (6, 100)].repeat(3));
        let of_many = first_passes(gpu, 64, 12);
        assert_eq!(of_many.iter().max(), Some(&(32, 12)));
        assert_eq!(of_many.len(), 3 * 4 * 2, "16 tokens are cut to 12");
    }
}
