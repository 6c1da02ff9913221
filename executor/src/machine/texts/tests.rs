//! What is done before the run begins.

use super::*;

fn reading(tokens: std::ops::Range<i64>) -> Reading {
    let tokens = Tokens {
        segments: tokens.clone().map(|id| id % 2).collect(),
        ids: tokens.collect(),
        places: Vec::new(),
        read: Vec::new(),
    };
    Reading {
        texts: Arc::new(Texts::one("a text")),
        tokens: Arc::new(tokens),
    }
}

/// A GPU loads each kernel, which may be another for another shape, when it is first used.
#[test]
fn a_gpu_passes_over_batches_and_lengths_as_they_come() {
    let texts = [reading(0..5), reading(0..80), reading(0..20)];
    let gpu = passes_over(&texts, 4, Device::Cuda(0));
    let shapes = [(1, 16), (1, 20), (1, 80), (4, 16), (4, 20), (4, 80)];
    assert_eq!(gpu, shapes.repeat(3));
    assert_eq!(passes_over(&texts, 4, Device::Cpu), [(1, 80), (4, 80)].repeat(3));
}

#[test]
fn a_reading_is_cut_or_repeated() {
    let of_length = |length| {
        let tokens = reading(3..6).of_length(length);
        (tokens.ids, tokens.segments)
    };
    assert_eq!(of_length(2), (vec![3, 4], vec![1, 0]));
    assert_eq!(of_length(5), (vec![3, 4, 5, 3, 4], vec![1, 0, 1, 1, 0]));
}
