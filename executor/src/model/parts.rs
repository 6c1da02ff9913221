//! What layers consist of, as views into the flat block of parameters.

use tch::Tensor;

use crate::error::ExecutorError;

#[derive(Debug)]
pub(crate) struct Linear {
    /// `[out, in]`.
    pub weight: Tensor,
    /// `[out]`.
    pub bias: Tensor,
}

impl Linear {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(x.f_linear(&self.weight, Some(&self.bias))?)
    }

    pub(super) fn pieces(&self) -> [&Tensor; 2] {
        [&self.weight, &self.bias]
    }
}

#[derive(Debug)]
pub(crate) struct Norm {
    weight: Tensor,
    pub bias: Tensor,
    epsilon: f64,
}

impl Norm {
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, ExecutorError> {
        let width = self.weight.size();
        Ok(x.f_layer_norm(width, Some(&self.weight), Some(&self.bias), self.epsilon, true)?)
    }

    pub(super) fn pieces(&self) -> [&Tensor; 2] {
        [&self.weight, &self.bias]
    }
}

/// Cuts views off the front of a flat block, in the order of [`places`](super::places).
pub(super) struct Views<'a> {
    block: &'a Tensor,
    offset: i64,
    norm_epsilon: f64,
}

impl<'a> Views<'a> {
    pub fn new(block: &'a Tensor, norm_epsilon: f64) -> Views<'a> {
        Views {
            block,
            offset: 0,
            norm_epsilon,
        }
    }

    /// Numbers that are cut off so far.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Goes on from where so many were.
    pub fn go_back_to(&mut self, offset: i64) {
        self.offset = offset;
    }

    pub fn vector(&mut self, length: i64) -> Result<Tensor, ExecutorError> {
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
            bias: self.vector(outputs)?,
        })
    }

    pub fn norm(&mut self, width: i64) -> Result<Norm, ExecutorError> {
        Ok(Norm {
            weight: self.vector(width)?,
            bias: self.vector(width)?,
            epsilon: self.norm_epsilon,
        })
    }
}
