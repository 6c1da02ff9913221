//! What decoders are made of: matrices, norms and rotary positions, as views into a flat block.

use tch::{Device, Kind, Tensor};

use super::rope::Rope;
use crate::error::ExecutorError;

/// A matrix, with a bias in OPT.
#[derive(Debug)]
pub(crate) struct Linear {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// `[…, in]` to `[…, out]`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(x.f_linear(&self.weight, self.bias.as_ref())?)
    }
}

/// Root mean square norm where there is no bias (Zhang and Sennrich, 2019), otherwise layer norm.
#[derive(Debug)]
pub(crate) struct Norm {
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    pub epsilon: f64,
}

impl Norm {
    /// Over the last dimension.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor, ExecutorError> {
        let (width, weight) = (self.weight.size(), Some(&self.weight));
        Ok(match &self.bias {
            None => x.f_rms_norm(width, weight, self.epsilon)?,
            bias => x.f_layer_norm(width, weight, bias.as_ref(), self.epsilon, true)?,
        })
    }
}

/// Rotary positions (Su et al., 2021) in Hugging Face's arrangement: a head's first half is rotated with its second.
#[derive(Debug)]
pub(crate) struct Rotary {
    /// Cosines, and sines with the first half's sign changed, `[positions, 1, width]` each.
    cosines: Tensor,
    sines: Tensor,
}

/// The rows of [`Rotary`] for a step's tokens, `[tokens, 1, width]` each.
#[derive(Debug)]
pub(crate) struct Angles {
    cosines: Tensor,
    sines: Tensor,
}

impl Rotary {
    pub fn new(positions: u32, width: u32, rope: &Rope, kind: Kind, device: Device) -> Result<Rotary, ExecutorError> {
        // Rounded to single precision, in which the reference computes them too, an ulp apart at most.
        let frequencies: Vec<f32> = rope.frequencies(width).into_iter().map(|f| f as f32).collect();
        let frequencies = Tensor::f_from_slice(&frequencies)?;
        let position = Tensor::f_arange(i64::from(positions), (Kind::Float, Device::Cpu))?;
        let angles = position.f_unsqueeze(1)?.f_mul(&frequencies)?;
        let (cosine, sine) = (angles.f_cos()?, angles.f_sin()?);
        let table = |halves: [&Tensor; 2]| Tensor::f_cat(&halves, 1)?.f_unsqueeze(1)?.f_to_kind(kind)?.f_to(device);
        Ok(Rotary {
            cosines: table([&cosine, &cosine])?,
            sines: table([&sine.f_neg()?, &sine])?,
        })
    }

    /// For tokens at `positions`, `[tokens]`.
    pub fn angles(&self, positions: &Tensor) -> Result<Angles, ExecutorError> {
        Ok(Angles {
            cosines: self.cosines.f_index_select(0, positions)?,
            sines: self.sines.f_index_select(0, positions)?,
        })
    }

    pub fn share(&self) -> Rotary {
        Rotary {
            cosines: self.cosines.shallow_clone(),
            sines: self.sines.shallow_clone(),
        }
    }
}

impl Angles {
    /// Rotates the first so many heads of `projected`, `[tokens, n, width]`, in place.
    pub fn rotate(&self, projected: &Tensor, heads: i64) -> Result<(), ExecutorError> {
        let half = self.cosines.size()[2] / 2;
        let mut rotated = projected.f_narrow(1, 0, heads)?;
        let swapped = match projected.device().is_cuda() {
            // What does not lie side by side would be copied first, by a kernel of its own.
            true => projected.f_roll(half, 2)?.f_narrow(1, 0, heads)?,
            false => rotated.f_roll(half, 2)?,
        };
        let _ = rotated.f_mul_(&self.cosines)?.f_addcmul_(&swapped, &self.sines)?;
        Ok(())
    }
}

/// Cuts views off the front of a flat block, in the order of [`layout::places`](super::layout::places).
pub(crate) struct Views<'a> {
    pub block: &'a Tensor,
    pub offset: i64,
    /// Whether matrices and norms have biases.
    pub biases: bool,
    pub epsilon: f64,
}

impl Views<'_> {
    fn vector(&mut self, length: i64) -> Result<Tensor, ExecutorError> {
        let view = self.block.f_narrow(0, self.offset, length)?;
        self.offset += length;
        Ok(view)
    }

    pub fn matrix(&mut self, rows: i64, columns: i64) -> Result<Tensor, ExecutorError> {
        Ok(self.vector(rows * columns)?.f_view([rows, columns])?)
    }

    pub fn linear(&mut self, outputs: i64, inputs: i64) -> Result<Linear, ExecutorError> {
        Ok(Linear {
            weight: self.matrix(outputs, inputs)?,
            bias: self.biases.then(|| self.vector(outputs)).transpose()?,
        })
    }

    pub fn norm(&mut self, width: i64) -> Result<Norm, ExecutorError> {
        Ok(Norm {
            weight: self.vector(width)?,
            bias: self.biases.then(|| self.vector(width)).transpose()?,
            epsilon: self.epsilon,
        })
    }
}
