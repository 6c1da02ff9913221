//! What logits are the likeliest of.

use tch::Tensor;

use crate::error::ExecutorError;

/// In the place of a class, label or token where a row of logits has none: its largest is not a finite number.
pub(crate) const NOT_FINITE: i64 = -1;

/// The likeliest along the last dimension of `logits`, on their device, or [`NOT_FINITE`]. As libtorch has it, a row
/// with a NaN is likeliest to be that.
pub(crate) fn likeliest(logits: &Tensor) -> Result<Tensor, ExecutorError> {
    let (most, at) = logits.f_max_dim(-1, false)?;
    let broken = most.f_isfinite()?.f_logical_not()?;
    Ok(at.f_masked_fill(&broken, NOT_FINITE)?)
}

/// What is said of an answer that is [`NOT_FINITE`].
pub(crate) fn not_finite(tenant: u32) -> ExecutorError {
    ExecutorError::input(format!("what tenant {tenant} is answered"), "finite", "NaN or infinity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_has_no_likeliest() {
        let rows = [
            [0.5, 2.0, -1.0],
            [f32::NAN, 1.0, 0.0],
            [0.0, f32::INFINITY, 0.0],
            [f32::NEG_INFINITY; 3],
            [f32::NEG_INFINITY, 3.0, 3.0],
        ];
        let logits = Tensor::from_slice2(&rows);
        let of = |logits: &Tensor| Vec::<i64>::try_from(&likeliest(logits).unwrap()).unwrap();
        assert_eq!(of(&logits)[..4], [1, NOT_FINITE, NOT_FINITE, NOT_FINITE]);
        assert!([1, 2].contains(&of(&logits)[4]));
        let labels = likeliest(&logits.view([1, 5, 3])).unwrap();
        assert_eq!(labels.size(), [1, 5]);
    }
}
