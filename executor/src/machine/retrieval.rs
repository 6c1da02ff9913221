//! What stands for the lower layers: looked up into host memory on one lane, staged on the device by another, and begun
//! with by the third.

use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tenantry_core::machine::LookupCounts;
use tenantry_core::spec::{PlotSpec, PoolSpec};
use tenantry_plot::{Counters, Engine};

use super::Batch;
use crate::device::{HostNumbers, synchronize};
use crate::error::ExecutorError;
use crate::model::Input;
use crate::plot::Tables;

/// How far a batch's representations have come.
#[derive(Debug, Default)]
pub(crate) enum Retrieved {
    /// None were asked for, or they could not be had.
    #[default]
    Nothing,
    /// In host memory: `[requests, tokens, hidden]`, in the order of [`rows`].
    Found(HostNumbers),
    /// On the device, likewise.
    Staged(Input, Tensor),
}

/// Members in the order of a batch's rows: those of one tenant next to each other.
pub(crate) fn rows(batch: &Batch) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..batch.members.len()).collect();
    rows.sort_by_key(|&row| batch.members[row].slot);
    rows
}

/// Looks batches up. Lanes share it.
pub(crate) struct Retrieval {
    tables: Tables,
    engine: Engine,
    /// Where it is computed with what was looked up.
    device: Device,
    counts: Arc<Mutex<LookupCounts>>,
    /// Buffers of batches that have been staged: fresh memory would cost as much as the look-up itself.
    spare: Mutex<Vec<HostNumbers>>,
}

impl Retrieval {
    /// Look-ups for a device, shared by so many threads each.
    ///
    /// # Errors
    /// No threads, or more than can be started.
    pub fn new(tables: Tables, threads: u32, device: Device) -> Result<Retrieval, ExecutorError> {
        Ok(Retrieval {
            tables,
            engine: Engine::new(threads as usize)?,
            device,
            counts: Arc::default(),
            spare: Mutex::default(),
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

    /// Looks a batch up into host memory.
    ///
    /// # Errors
    /// A table that can no longer be read, or no memory.
    pub fn look_up(&self, batch: &Batch) -> Result<(), ExecutorError> {
        let width = batch.shape.tokens as usize;
        let spare = self.spare.lock().expect(UNBROKEN).pop();
        let mut found = spare.map_or_else(|| HostNumbers::new(self.device), Ok)?;
        found.resize(batch.members.len() * width * self.tables.hidden())?;
        let requests: Vec<(u64, u32, u32)> = rows(batch)
            .into_iter()
            .map(|row| &batch.members[row])
            .map(|member| (member.ticket, member.tenant, member.input_tokens))
            .collect();
        let met = self.tables.retrieve(&self.engine, requests.into_iter(), width, found.as_mut_slice())?;
        count(&self.counts, &met);
        *batch.retrieved.lock().expect(UNBROKEN) = Retrieved::Found(found);
        Ok(())
    }

    /// Copies what was looked up to where it is computed with, in the model's number format.
    ///
    /// # Errors
    /// Nothing was looked up, or no memory on the device.
    pub fn stage(&self, batch: &Batch, kind: Kind) -> Result<(), ExecutorError> {
        let Retrieved::Found(found) = std::mem::take(&mut *batch.retrieved.lock().expect(UNBROKEN)) else {
            // The look-up failed, and its members have been told.
            return Err(ExecutorError::input("representations", "looked up", "nothing"));
        };
        let tokens = batch.shape.tokens as usize;
        let lengths: Vec<usize> = rows(batch).into_iter().map(|row| batch.members[row].input_tokens as usize).collect();
        let size = [lengths.len() as i64, tokens as i64, self.tables.hidden() as i64];
        let input = Input::of_lengths(&lengths, tokens, kind, self.device)?;
        let hidden = found.on_device(&size, kind, self.device)?;
        // Whoever computes with it does so on another stream.
        synchronize(self.device)?;
        self.spare.lock().expect(UNBROKEN).push(found);
        *batch.retrieved.lock().expect(UNBROKEN) = Retrieved::Staged(input, hidden);
        Ok(())
    }
}

/// Counts what look-ups met: each fragment has one answer, and tokens at a text's end begin none.
pub(super) fn count(counts: &Mutex<LookupCounts>, met: &Counters) {
    let mut counts = counts.lock().expect(UNBROKEN);
    counts.tokens += met.domain_hits + met.root_hits + met.fallbacks;
    counts.domain_hits += met.domain_hits;
    counts.root_hits += met.root_hits;
    counts.fallbacks += met.fallbacks;
}

/// What a pool looks up in, and how: tables of as many values a token as its model has. Nothing where it looks nothing
/// up.
///
/// # Errors
/// Tables of another width, or none for a pool that looks up.
pub(super) fn tables_of(pool: &PoolSpec, tables: Option<Tables>) -> Result<Option<(PlotSpec, Tables)>, ExecutorError> {
    let model = &pool.model;
    match (pool.plot, tables) {
        (None, _) => Ok(None),
        (Some(plot), Some(tables)) if tables.hidden() == model.hidden as usize => Ok(Some((plot, tables))),
        (Some(_), tables) => {
            let must = format!("of {} values a token, as {} has", model.hidden, model.name);
            let got = tables.map_or("none".to_string(), |tables| tables.hidden().to_string());
            Err(ExecutorError::input("tables to look up in", must, got))
        }
    }
}

/// Why a lock can be had.
pub(super) const UNBROKEN: &str = "no lane panics while it holds this";
