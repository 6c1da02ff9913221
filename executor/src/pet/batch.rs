//! A batch of several tasks of any kinds, and its forward pass (PetS, sections 3.1 and 3.4.3, Fig. 5).

use std::ops::Range;

use tch::Tensor;

use super::kind::{Linear, Norm, Operators};
use super::loaded::LoadedOperators;
use super::streams::{Job, Streams};
use crate::error::ExecutorError;
use crate::model::{Encoder, Input};

/// Neighbouring sequences of one task: a mini-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Whose.
    pub task: u32,
    /// Sequences.
    pub count: usize,
    /// The longest of them, in tokens: what lies beyond is padding, on which the task's operators are not computed.
    pub tokens: usize,
}

/// Mini-batches of loaded tasks, in the order of the batch's sequences. Made by
/// [`Registry::batch`](super::Registry::batch).
#[derive(Debug)]
pub struct PetBatch {
    members: Vec<Member>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub operators: LoadedOperators,
    /// Sequences, and the first of them.
    pub first: i64,
    pub count: i64,
    /// The longest.
    pub tokens: i64,
    pub stream: u32,
}

impl Member {
    /// The mini-batch's part of `[n, l, width]`, without padding beyond its longest.
    fn part(&self, of: &Tensor) -> Result<Tensor, ExecutorError> {
        Ok(of.f_narrow(0, self.first, self.count)?.f_narrow(1, 0, self.tokens)?)
    }
}

impl PetBatch {
    pub(crate) fn new(members: Vec<Member>) -> PetBatch {
        PetBatch { members }
    }

    /// Assigns each mini-batch to a stream, as
    /// [`StreamScheduler`](tenantry_core::policy::streams::StreamScheduler) chooses. Until then all are on the first.
    ///
    /// # Panics
    /// Without a stream for each mini-batch.
    pub fn assign(&mut self, stream_of: &[u32]) {
        assert_eq!(stream_of.len(), self.members.len(), "a stream for each mini-batch");
        for (member, stream) in self.members.iter_mut().zip(stream_of) {
            member.stream = *stream;
        }
    }

    /// Layers `range` over `hidden`, `[n, l, hidden]` both in and out, where `input` is the batch that `hidden` came
    /// from. What it yields at padding is of no use, as with [`Encoder::layers`].
    ///
    /// # Errors
    /// A batch of another size, mini-batches longer than it, or no memory on the device.
    ///
    /// # Panics
    /// If the model has no such layers, or a mini-batch is on a stream that there is not.
    pub fn layers(
        &self,
        encoder: &Encoder,
        mut hidden: Tensor,
        range: Range<usize>,
        input: &Input,
        streams: &Streams,
    ) -> Result<Tensor, ExecutorError> {
        let count: i64 = self.members.iter().map(|member| member.count).sum();
        if count != input.batch() as i64 {
            let must = format!("{count}, the sequences of its mini-batches");
            return Err(ExecutorError::input("sequences of the batch", must, input.batch()));
        }
        let longest = self.members.iter().map(|member| member.tokens).max().unwrap_or(0);
        if longest > input.tokens() as i64 {
            let must = format!("at least {longest}, its longest mini-batch");
            return Err(ExecutorError::input("padded length of the batch", must, input.tokens()));
        }
        let highest = self.members.iter().map(|member| member.stream).max().unwrap_or(0);
        assert!(highest < streams.count(), "stream {highest} of {}", streams.count());
        tch::no_grad(|| {
            for layer in range {
                hidden = self.layer(encoder, layer, &hidden, input, streams)?;
            }
            Ok(hidden)
        })
    }

    fn layer(
        &self,
        encoder: &Encoder,
        layer: usize,
        hidden: &Tensor,
        input: &Input,
        streams: &Streams,
    ) -> Result<Tensor, ExecutorError> {
        let linear = |linear, x: &Tensor| self.linear(encoder, layer, linear, x, streams);
        let attended = encoder.attend_projected(layer, &linear(Linear::QueryKeyValue, hidden)?, input)?;
        let mut attention = linear(Linear::AttentionOutput, &attended)?;
        let hidden = self.norm(encoder, layer, Norm::Attention, &attention.f_add_(hidden)?)?;
        let inner = encoder.layer_parts(layer).activate(linear(Linear::Intermediate, &hidden)?)?;
        let mut output = linear(Linear::Output, &inner)?;
        self.norm(encoder, layer, Norm::Output, &output.f_add_(&hidden)?)
    }

    /// The three operations of the unified representation.
    fn linear(
        &self,
        encoder: &Encoder,
        layer: usize,
        linear: Linear,
        x: &Tensor,
        streams: &Streams,
    ) -> Result<Tensor, ExecutorError> {
        let shared = linear.of(encoder.layer_parts(layer));
        let y = x.f_linear(&shared.weight, Some(&shared.bias))?;
        self.operate(layer, linear, x, &y, streams)?;
        Ok(y)
    }

    /// All mini-batches' operators at one linear layer: of the batch's inputs `x`, `[n, l, in]`, into the shared
    /// product `y`, `[n, l, out]`.
    pub(crate) fn operate(
        &self,
        layer: usize,
        linear: Linear,
        x: &Tensor,
        y: &Tensor,
        streams: &Streams,
    ) -> Result<(), ExecutorError> {
        let works = |member: &&Member| {
            let operators = &member.operators;
            operators.bias_delta(layer, linear).is_some() || operators.has_delta(layer, linear)
        };
        let job = |member: &Member| {
            let job = Job {
                operators: member.operators.clone(),
                layer,
                linear,
                x: member.part(x)?,
                y: member.part(y)?,
            };
            Ok((member.stream, job))
        };
        streams.run(self.members.iter().filter(works).map(job))
    }

    fn norm(&self, encoder: &Encoder, layer: usize, norm: Norm, x: &Tensor) -> Result<Tensor, ExecutorError> {
        let y = norm.of(encoder.layer_parts(layer)).forward(x)?;
        self.shift(layer, norm, &y)?;
        Ok(y)
    }

    /// Adds to a norm's results, `[n, l, hidden]`, what each mini-batch's own bias is off the shared one.
    pub(crate) fn shift(&self, layer: usize, norm: Norm, y: &Tensor) -> Result<(), ExecutorError> {
        for member in &self.members {
            if let Some(delta) = member.operators.norm_bias_delta(layer, norm) {
                let _ = member.part(y)?.f_add_(delta)?;
            }
        }
        Ok(())
    }
}

/// One task's operators at one linear layer: of inputs `x`, `[n, l, in]`, into results `y`, `[n, l, out]`, which hold
/// the shared product, shared bias included.
pub(crate) fn operate(
    operators: &dyn Operators,
    layer: usize,
    linear: Linear,
    x: &Tensor,
    y: &Tensor,
) -> Result<(), ExecutorError> {
    let mut result = y.shallow_clone();
    if let Some(delta) = operators.bias_delta(layer, linear) {
        let _ = result.f_add_(delta)?;
    }
    if let Some(delta) = operators.delta(layer, linear, x, y)? {
        let _ = result.f_add_(&delta.f_reshape(y.size())?)?;
    }
    Ok(())
}
