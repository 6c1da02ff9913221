//! The tables of an exponential draw without a logarithm.

use std::sync::LazyLock;

/// Layers of equal area under exp(-x), numbered from the lowest, which has the tail (G. Marsaglia and W. W. Tsang, "The
/// ziggurat method for generating random variables", Journal of Statistical Software 5(8), 2000).
///
/// `rand_distr` has the same method, but whether it then calls `libm` or the platform's functions is up to the features
/// of other crates; here the same bits come out on every machine.
pub struct Layers {
    /// Right edges, with that of the lowest layer moved out so that its rectangle has the area of its tail as well.
    pub x: [f64; LAYERS + 1],
    /// exp(-x) at the edges.
    pub f: [f64; LAYERS + 1],
}

/// How many there are: the low eight bits of a draw name one.
pub const LAYERS: usize = 256;

/// Where the tail begins, for 256 layers (rand_distr 0.6, `ziggurat_tables.rs`; Doornik, "An improved ziggurat method",
/// 2005).
pub const TAIL: f64 = 7.697_117_470_131_05;

/// Built once; a few microseconds.
pub static EXPONENTIAL: LazyLock<Layers> = LazyLock::new(|| {
    let density = |x: f64| libm::exp(-x);
    // The lowest layer is a rectangle up to the tail, and the tail.
    let area = TAIL * density(TAIL) + density(TAIL);
    let mut x = [0.0; LAYERS + 1];
    x[0] = area / density(TAIL);
    x[1] = TAIL;
    for i in 2..LAYERS {
        x[i] = -libm::log(area / x[i - 1] + density(x[i - 1]));
    }
    // The highest layer ends at the axis.
    x[LAYERS] = 0.0;
    Layers {
        x,
        f: std::array::from_fn(|i| density(x[i])),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_equal_areas() {
        let Layers { x, f } = &*EXPONENTIAL;
        let area = x[0] * f[1];
        for i in 1..LAYERS {
            let layer = x[i] * (f[i + 1] - f[i]);
            assert!((layer / area - 1.0).abs() < 1e-9, "layer {i}: {layer}, not {area}");
        }
        assert!(x.windows(2).all(|pair| pair[0] > pair[1]));
    }
}
