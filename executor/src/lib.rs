//! The real machine: models, adapters and the profiler, on libtorch.

#[cfg(test)]
mod tests {
    /// LibTorch is found, loaded and computes.
    #[test]
    fn libtorch_works() {
        let ones = tch::Tensor::ones([3, 4], (tch::Kind::Float, tch::Device::Cpu));
        assert_eq!(ones.sum(tch::Kind::Float).double_value(&[]), 12.0);
    }
}
