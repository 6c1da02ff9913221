//! A lane's passes over texts and its looks at them, made again and again: what the profiler measures is what serves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::op::{BatchShape, Member, NO_SLOT, Sequence};
use tenantry_profiles::ModelShape;

use super::{Pass, Reading, TextLane, TextServing};
use crate::cascade::Tokens;
use crate::device::synchronize;
use crate::error::ExecutorError;
use crate::machine::Batch;

/// Different batches whose passes are looked at in turn.
const LOOKED_AT: u64 = 16;

/// A stage's lane with the texts of a run.
pub(crate) struct TextProbe {
    lane: TextLane,
    /// Texts that passes took so far: each takes the next ones.
    taken: usize,
}

impl TextServing {
    /// A probe of each stage.
    pub(crate) fn probes(&self) -> Vec<TextProbe> {
        let probe = |stage| TextProbe {
            lane: self.lane(stage, None, &Arc::default()),
            taken: 0,
        };
        (0..self.stages.len()).map(probe).collect()
    }
}

impl TextProbe {
    /// The stage's model.
    pub fn shape(&self) -> &ModelShape {
        &self.lane.stage.model.classifier().config().shape
    }

    /// Another handle on the same lane.
    pub fn share(&self) -> TextProbe {
        let TextLane {
            stage,
            texts,
            route,
            answers,
            ..
        } = &self.lane;
        TextProbe {
            lane: TextLane {
                stage: stage.share(None),
                texts: Arc::clone(texts),
                route: Arc::clone(route),
                answers: Arc::clone(answers),
                pass: None,
            },
            taken: 0,
        }
    }

    /// Whether its passes sum up attention, by which words are pruned.
    pub fn prunes(&self) -> bool {
        self.lane.stage.alpha().is_some()
    }

    /// How many tokens each of the run's texts has, whole, ascending.
    pub fn lengths(&self) -> Vec<u32> {
        let whole = &self.lane.texts.whole[self.lane.stage.index];
        let mut lengths: Vec<u32> = whole.iter().map(|reading| reading.tokens.ids.len() as u32).collect();
        lengths.sort_unstable();
        lengths
    }

    /// Makes a pass over other texts at each call, and says how long it took. The first is cut or repeated so that it
    /// has `tokens`, to which the others are padded; those that are longer are cut.
    pub fn pass(&mut self, batch: u32, tokens: u32) -> Result<Duration, ExecutorError> {
        let stage = &self.lane.stage;
        let whole = &self.lane.texts.whole[stage.index];
        let text = |index: u32| {
            let reading = &whole[(self.taken + index as usize) % whole.len()];
            let own = reading.tokens.ids.len();
            let length = if index == 0 {
                tokens as usize
            } else {
                own.min(tokens as usize)
            };
            reading.of_length(length)
        };
        let texts: Vec<Tokens> = (0..batch).map(text).collect();
        let texts: Vec<&Tokens> = texts.iter().collect();
        self.taken += batch as usize;
        let classifier = stage.model.classifier();
        synchronize(classifier.device())?;
        let start = Instant::now();
        let classified = classifier.classify(&texts, stage.alpha().is_some())?;
        synchronize(classifier.device())?;
        let took = start.elapsed();
        drop(classified);
        Ok(took)
    }

    /// Looks at passes over so many whole texts, at others in turn, and says how long one look took. With `pruned` each
    /// of the texts goes on without the words that received little attention; without, none goes on.
    pub fn looks(
        &self,
        batch: u32,
        pruned: bool,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + use<>, ExecutorError> {
        let TextProbe { lane, .. } = self.share();
        let looked_at = (0..LOOKED_AT).map(|first| passed(&lane, first * u64::from(batch), batch));
        let looked_at = looked_at.collect::<Result<Vec<_>, _>>()?;
        let mut calls = 0;
        Ok(move || {
            let (batch, pass) = &looked_at[calls % looked_at.len()];
            calls += 1;
            let start = Instant::now();
            let unread = lane.conclude(batch, pass, |_, _, _| pruned);
            let took = start.elapsed();
            if let Some((_, error)) = unread.into_iter().next() {
                return Err(error);
            }
            // As when they have left.
            lane.answers.lock().expect("no lane panics with the list").clear();
            batch.members.iter().for_each(|member| lane.texts.left(member.ticket));
            Ok(took)
        })
    }
}

/// A batch of whole texts, from the ticket `first` on, and what came of a pass over it.
fn passed(lane: &TextLane, first: u64, batch: u32) -> Result<(Batch, Pass), ExecutorError> {
    let stage = &lane.stage;
    let readings: Vec<Reading> = (first..first + u64::from(batch))
        .map(|ticket| lane.texts.reading(ticket, stage.index))
        .collect();
    let tokens: Vec<&Tokens> = readings.iter().map(|reading| &*reading.tokens).collect();
    let classified = stage.model.classifier().classify(&tokens, stage.alpha().is_some())?;
    let member = |(index, reading): (u32, &Reading)| Member {
        request: RequestId {
            slot: index,
            generation: 0,
        },
        ticket: first + u64::from(index),
        tenant: 0,
        input_tokens: reading.tokens.ids.len() as u32,
        slot: NO_SLOT,
        sequence: Sequence::default(),
    };
    let members: Vec<Member> = (0..).zip(&readings).map(member).collect();
    let longest = members.iter().map(|member| member.input_tokens).max();
    let shape = BatchShape {
        requests: batch,
        tokens: longest.unwrap_or(0),
        input_tokens: members.iter().map(|member| member.input_tokens).sum(),
        tenants: 1,
    };
    let batch = Batch::new(InstanceId(0), shape, members);
    Ok((batch, Pass { readings, classified }))
}
