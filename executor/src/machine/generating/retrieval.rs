//! What stands for a decoder's lower layers: prompts' representations, looked up on one lane and staged on the device
//! by another before they join, and those of the tokens that a step has made, which the next one looks up itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::machine::LookupCounts;
use tenantry_core::op::Member;
use tenantry_plot::Engine;

use super::GeneratedTokens;
use crate::device::{HostNumbers, Stream, synchronize};
use crate::error::ExecutorError;
use crate::machine::Batch;
use crate::machine::retrieval::{Retrieved, UNBROKEN, count};
use crate::plot::Tables;

/// Representations of a request's tokens on an instance's device.
#[derive(Debug)]
struct Staged {
    /// Of the first row, in the request's tokens.
    first: u32,
    /// `[tokens, hidden]`.
    states: Tensor,
}

/// A request's tokens that are wanted: those from `first` up to `end`, of which `ids` has all that come before too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub request: RequestId,
    pub tenant: u32,
    pub ids: &'a [i64],
    pub first: u32,
    pub end: u32,
}

/// Looks a pool's tokens up. Lanes share it.
pub(super) struct Retrieval {
    tables: Tables,
    engine: Engine,
    kind: Kind,
    device: Device,
    counts: Arc<Mutex<LookupCounts>>,
    /// By instance: prompts that were looked up before they joined.
    staged: Vec<Mutex<HashMap<RequestId, Staged>>>,
}

impl Retrieval {
    /// Look-ups shared by so many threads each, for so many instances.
    ///
    /// # Errors
    /// No threads, or more than can be started.
    pub fn new(
        tables: Tables,
        threads: u32,
        instances: usize,
        kind: Kind,
        device: Device,
    ) -> Result<Retrieval, ExecutorError> {
        Ok(Retrieval {
            tables,
            engine: Engine::new(threads as usize)?,
            kind,
            device,
            counts: Arc::default(),
            staged: (0..instances).map(|_| Mutex::default()).collect(),
        })
    }

    /// What is looked up in.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// What all look-ups so far met.
    pub fn counts(&self) -> Arc<Mutex<LookupCounts>> {
        Arc::clone(&self.counts)
    }

    /// The ids of a request's prompt.
    pub fn prompt(&self, member: &Member) -> Vec<i64> {
        let prompt = self.tables.prompt(member.ticket, member.tenant, member.input_tokens);
        prompt.into_iter().map(i64::from).collect()
    }

    /// Looks up what of a batch's one request must come into the cache, into host memory.
    ///
    /// # Errors
    /// A table that can no longer be read.
    pub fn look_up(&self, batch: &Batch, generated: &GeneratedTokens) -> Result<(), ExecutorError> {
        let member = &batch.members[0];
        let mut ids = self.prompt(member);
        let generated = generated.lock().expect(UNBROKEN);
        ids.extend(generated.get(&member.ticket).into_iter().flatten());
        drop(generated);
        let first = member.sequence.cached_tokens;
        let wanted = Wanted {
            request: member.request,
            tenant: member.tenant,
            ids: &ids,
            first,
            end: first + member.sequence.chunk_tokens,
        };
        let found = self.find(&[wanted])?;
        *batch.retrieved.lock().expect(UNBROKEN) = Retrieved::Found(found);
        Ok(())
    }

    /// Copies what was looked up to where it is computed with, and keeps it there until the request has been computed,
    /// or has left.
    ///
    /// # Errors
    /// Nothing was looked up, or no memory on the device.
    pub fn stage(&self, batch: &Batch) -> Result<(), ExecutorError> {
        let Retrieved::Found(found) = std::mem::take(&mut *batch.retrieved.lock().expect(UNBROKEN)) else {
            // The look-up failed, and its members have been told.
            return Err(ExecutorError::input("representations", "looked up", "nothing"));
        };
        let member = &batch.members[0];
        let staged = Staged {
            first: member.sequence.cached_tokens,
            states: self.on_device(&found)?,
        };
        synchronize(self.device)?;
        let mut all = self.staged[batch.instance.index()].lock().expect(UNBROKEN);
        all.insert(member.request, staged);
        Ok(())
    }

    /// The representations of tokens of several requests, `[tokens, hidden]`: those that were staged, and the others
    /// looked up now.
    ///
    /// # Errors
    /// A table that can no longer be read, or no memory on the device.
    pub fn states(&self, instance: InstanceId, wanted: &[Wanted<'_>]) -> Result<Tensor, ExecutorError> {
        let (staged, own) = (
            self.staged[instance.index()].lock().expect(UNBROKEN),
            Stream::current(self.device)?,
        );
        let rows = |wanted: &Wanted<'_>| {
            let Staged { first, states } = staged.get(&wanted.request)?;
            let skipped = wanted.first.checked_sub(*first)?;
            let there = i64::from(wanted.end - first) <= states.size()[0];
            there.then(|| -> Result<Tensor, ExecutorError> {
                // The lane that copies made them, and would be given their memory again as soon as they are dropped.
                own.keeps(states)?;
                Ok(states.f_narrow(0, skipped.into(), (wanted.end - wanted.first).into())?)
            })
        };
        let there: Vec<Option<Tensor>> =
            wanted.iter().map(|wanted| rows(wanted).transpose()).collect::<Result<_, ExecutorError>>()?;
        drop(staged);
        let missing: Vec<Wanted<'_>> = wanted
            .iter()
            .zip(&there)
            .filter(|(_, rows)| rows.is_none())
            .map(|(wanted, _)| *wanted)
            .collect();
        if missing.len() == wanted.len() {
            return self.on_device(&self.find(&missing)?);
        }
        let found = match missing.len() {
            0 => None,
            _ => Some(self.on_device(&self.find(&missing)?)?),
        };
        let mut next = 0;
        let mut pieces = Vec::with_capacity(wanted.len());
        for (wanted, rows) in wanted.iter().zip(there) {
            pieces.push(match (rows, &found) {
                (Some(rows), _) => rows,
                (None, Some(found)) => {
                    let tokens = i64::from(wanted.end - wanted.first);
                    let own = found.f_narrow(0, next, tokens)?;
                    next += tokens;
                    own
                }
                (None, None) => unreachable!("what is missing was found"),
            });
        }
        Ok(Tensor::f_cat(&pieces, 0)?)
    }

    /// What was staged of a request is of no use any more.
    pub fn drop_staged(&self, instance: InstanceId, request: RequestId) {
        self.staged[instance.index()].lock().expect(UNBROKEN).remove(&request);
    }

    /// Requests of which something is staged.
    #[cfg(test)]
    pub fn staged(&self) -> usize {
        self.staged.iter().map(|staged| staged.lock().unwrap().len()).sum()
    }

    fn find(&self, wanted: &[Wanted<'_>]) -> Result<HostNumbers, ExecutorError> {
        // Only what fragments reach back to is handed on.
        let before = self.tables.fragment_tokens() as u32 - 1;
        let from = |wanted: &Wanted<'_>| wanted.first.saturating_sub(before);
        let tokens: Vec<u32> = wanted
            .iter()
            .flat_map(|wanted| &wanted.ids[from(wanted) as usize..wanted.end as usize])
            .map(|&id| id as u32)
            .collect();
        let mut rest = tokens.as_slice();
        let text = |wanted: &Wanted<'_>| {
            let (own, others) = rest.split_at((wanted.end - from(wanted)) as usize);
            rest = others;
            (wanted.tenant, own, (wanted.first - from(wanted)) as usize)
        };
        let texts: Vec<(u32, &[u32], usize)> = wanted.iter().map(text).collect();
        let rows: u32 = wanted.iter().map(|wanted| wanted.end - wanted.first).sum();
        let mut found = HostNumbers::new(self.device)?;
        found.resize(rows as usize * self.tables.hidden())?;
        let met = self.tables.retrieve_ends(&self.engine, &texts, found.as_mut_slice())?;
        count(&self.counts, &met);
        Ok(found)
    }

    fn on_device(&self, found: &HostNumbers) -> Result<Tensor, ExecutorError> {
        found.on_device(&[-1, self.tables.hidden() as i64], self.kind, self.device)
    }
}
