//! Hidden states of requests that have come to an exit between a model's layers, until they go on or leave.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tch::Tensor;
use tenantry_core::op::Member;
use tenantry_traces::Ticket;

use crate::error::ExecutorError;
use crate::model::{Encoder, Input};

/// By ticket, `[tokens, hidden]` each, on the device. Who goes on is not known until somebody has looked at an exit's
/// answers, so that all are kept.
#[derive(Debug, Default)]
pub(in crate::machine) struct KeptStates(Mutex<BTreeMap<Ticket, Tensor>>);

impl KeptStates {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<Ticket, Tensor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a batch has come to, `[n, l, hidden]`: of each member what is not padding.
    ///
    /// # Errors
    /// No memory.
    pub fn put(&self, members: &[Member], hidden: &Tensor) -> Result<(), ExecutorError> {
        let own = (0..).zip(members).map(|(row, member)| {
            let tokens = hidden.f_select(0, row)?.f_narrow(0, 0, member.input_tokens.into())?;
            // A view would keep the whole batch.
            let mut own = tokens.f_empty_like()?;
            own.f_copy_(&tokens)?;
            Ok((member.ticket, own))
        });
        let own = own.collect::<Result<Vec<(Ticket, Tensor)>, ExecutorError>>()?;
        self.kept().extend(own);
        Ok(())
    }

    /// Takes what these members have come to, padded to `tokens`: `[n, tokens, hidden]`.
    ///
    /// # Errors
    /// Somebody of whom nothing is kept, or no memory.
    pub fn take(&self, members: &[Member], tokens: usize, encoder: &Encoder) -> Result<(Input, Tensor), ExecutorError> {
        let (kind, device) = (encoder.kind(), encoder.device());
        let lengths: Vec<usize> = members.iter().map(|member| member.input_tokens as usize).collect();
        let input = Input::of_lengths(&lengths, tokens, kind, device)?;
        let size = [members.len() as i64, tokens as i64, encoder.shape().hidden.into()];
        let hidden = Tensor::f_zeros(size, (kind, device))?;
        for (row, member) in (0..).zip(members) {
            let own = self.kept().remove(&member.ticket).ok_or_else(|| {
                let what = format!("hidden states of request {}", member.ticket);
                ExecutorError::input(what, "kept since the exit", "nothing")
            })?;
            hidden.f_select(0, row)?.f_narrow(0, 0, own.size()[0])?.f_copy_(&own)?;
        }
        Ok((input, hidden))
    }

    /// A request has left: nobody goes on with what it had come to.
    pub fn left(&self, ticket: Ticket) {
        self.kept().remove(&ticket);
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};
    use tenantry_core::ids::RequestId;
    use tenantry_core::op::{NO_SLOT, Sequence};
    use tenantry_profiles::{DType, ModelShape};

    use super::*;

    fn member(ticket: u64, input_tokens: u32) -> Member {
        Member {
            request: RequestId { slot: 0, generation: 0 },
            ticket,
            tenant: 0,
            input_tokens,
            slot: NO_SLOT,
            sequence: Sequence::default(),
        }
    }

    #[test]
    fn what_is_kept_is_taken_once_without_the_padding_of_its_batch() {
        let encoder = Encoder::random(&ModelShape::builtin("tiny").unwrap(), 7, DType::F32, Device::Cpu).unwrap();
        let kept = KeptStates::default();
        let width = i64::from(encoder.shape().hidden);
        let hidden = Tensor::rand([3, 5, width], (Kind::Float, Device::Cpu));
        let members = [member(4, 2), member(9, 5), member(11, 3)];
        kept.put(&members, &hidden).unwrap();
        kept.left(9);
        // Others of another batch, the other way round and padded further.
        let going_on = [members[2], members[0]];
        let (input, taken) = kept.take(&going_on, 6, &encoder).unwrap();
        assert_eq!((input.batch(), input.tokens()), (2, 6));
        for (row, (from, length)) in [(0, (2, 3)), (1, (0, 2))] {
            let own = taken.get(row);
            assert!(own.narrow(0, 0, length).equal(&hidden.get(from).narrow(0, 0, length)));
            assert_eq!(own.narrow(0, length, 6 - length).abs().max().double_value(&[]), 0.0);
        }
        assert!(kept.kept().is_empty());
        let error = kept.take(&going_on, 6, &encoder).unwrap_err().to_string();
        assert!(error.contains("hidden states of request 11"), "{error}");
    }
}
