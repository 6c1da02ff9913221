//! Points of encoder layers, embeddings and heads: the forward pass, in the pieces in which it is served.

use std::time::Duration;

use tch::{Kind, Tensor};
use tenantry_profiles::{
    AttendedLayerRow, DType, DispatchOperation, DispatchRow, EmbeddingRow, EncoderLayerRow, HeadRow, ModelShape,
    Tables, TaggingHeadRow,
};
use tenantry_traces::draw::{Draws, Purpose};

use super::Suite;
use super::axes::{Axes, Served};
use super::held_out::{HoldOut, Spot};
use super::instances::{Instance, LAYERS};
use super::schedule::{Measure, Point};
use super::timing::{issued, timed};
use crate::cascade::layers_with_importance;
use crate::error::ExecutorError;
use crate::likeliest::likeliest;
use crate::machine::cascading::read_out;
use crate::model::{Encoder, Heads, Input};

/// Tenants among whose heads a batch's are found.
const TENANTS: u32 = 1024;
/// Measurements of every point that a suite's time must allow, warm-up included.
const PASSES: f64 = 10.0;

/// A model to be measured, and on which batches.
pub(crate) struct Subject {
    pub encoder: Encoder,
    pub axes: Axes,
    /// What one token takes in one measurement, from which the grid was chosen.
    pub per_token: Duration,
    pub dtype: DType,
    seed: u64,
}

impl Subject {
    /// A random model; its grid is what is served, as far as `time` allows. What a token takes is measured where it is
    /// not known.
    pub fn new(
        shape: &ModelShape,
        seed: u64,
        dtype: DType,
        device: tch::Device,
        (suite, served): (Suite, Served),
        time: Duration,
        per_token: Option<Duration>,
    ) -> Result<Subject, ExecutorError> {
        let encoder = Encoder::random(shape, seed, dtype, device)?;
        let (batch, tokens) = (4, shape.positions.min(32));
        let mut subject = Subject {
            encoder,
            axes: Axes {
                batch: vec![batch],
                tokens: vec![tokens],
            },
            per_token: Duration::ZERO,
            dtype,
            seed,
        };
        subject.per_token = match per_token {
            Some(known) => known,
            None => {
                let mut forward = subject.layers(batch, tokens)?;
                forward()?;
                forward()? * LAYERS.min(shape.layers) / (batch * tokens)
            }
        };
        subject.axes = Axes::affordable(
            device,
            suite,
            shape.positions,
            served,
            subject.per_token,
            time.div_f64(PASSES),
        );
        Ok(subject)
    }

    /// A batch of random tokens with some padding, as most batches have.
    pub fn input(&self, batch: u32, tokens: u32) -> Result<Input, ExecutorError> {
        let mut sequences = self.sequences(batch, tokens, 0);
        let last = sequences.last_mut().expect("a batch has a sequence");
        last.truncate((tokens as usize).div_ceil(2));
        self.encoder.input(&sequences, tokens as usize)
    }

    /// Random tokens, others for each first ticket.
    pub fn sequences(&self, batch: u32, tokens: u32, first_ticket: u64) -> Vec<Vec<i64>> {
        let draws = Draws::new(self.seed, Purpose::Tokens);
        let vocabulary = u64::from(self.encoder.shape().vocabulary);
        let sequence = |row| {
            let mut stream = draws.about(first_ticket + u64::from(row));
            (0..tokens).map(|_| stream.below(vocabulary) as i64).collect()
        };
        (0..batch).map(sequence).collect()
    }

    /// Measures one layer of a batch, at each call beginning with another.
    pub fn layers(
        &self,
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + use<>, ExecutorError> {
        let mut instance = Instance::new(&self.encoder, self.input(batch, tokens)?)?;
        Ok(move || instance.layer())
    }

    /// Measures how long the host is busy with issuing a layer to a GPU.
    pub fn issuing(&self) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let input = self.input(self.axes.batch[0], self.axes.tokens[0])?;
        let hidden = self.encoder.embed(&input)?;
        let layers = LAYERS.min(self.encoder.shape().layers);
        Ok(move || {
            let pass = || self.encoder.layers(hidden.shallow_clone(), 0..layers as usize, &input, None);
            Ok(issued(self.encoder.device(), pass)? / layers)
        })
    }

    /// Measures a whole pass that sums up the attention which tokens receive, and says what one layer took.
    fn attended(
        &self,
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let input = self.input(batch, tokens)?;
        let hidden = self.encoder.embed(&input)?;
        let layers = 0..self.encoder.shape().layers as usize;
        Ok(move || {
            let pass = || layers_with_importance(&self.encoder, layers.clone(), hidden.shallow_clone(), &input);
            Ok(timed(self.encoder.device(), pass)? / self.encoder.shape().layers)
        })
    }

    /// Measures layers of a batch in the middle of the grid.
    pub fn middle(&self) -> Result<Measure<'_>, ExecutorError> {
        let middle = |axis: &[u32]| axis[axis.len() / 2];
        Ok(Box::new(
            self.layers(middle(&self.axes.batch), middle(&self.axes.tokens))?,
        ))
    }

    /// Measures from drawing token ids, which stands for reading a request, to the first hidden state.
    fn embedding(&self, batch: u32, tokens: u32) -> impl FnMut() -> Result<Duration, ExecutorError> + '_ {
        let mut ticket = 0;
        move || {
            ticket += u64::from(batch);
            timed(self.encoder.device(), || {
                let input = self.encoder.input(&self.sequences(batch, tokens, ticket), tokens as usize)?;
                self.encoder.embed(&input)
            })
        }
    }

    /// A look at what a pass came to (Tabi, Eq. 3 and 5): of a batch in the middle of the grid, since hardly anything
    /// depends on its size.
    pub fn inspect(&self) -> Result<Point<'static>, ExecutorError> {
        let middle = |axis: &[u32]| i64::from(axis[axis.len() / 2]);
        let (batch, tokens) = (middle(&self.axes.batch), middle(&self.axes.tokens));
        let device = self.encoder.device();
        let like = (Kind::Float, device);
        let (logits, importance) = (
            Tensor::f_rand([batch, 2], like)?,
            Tensor::f_rand([batch, tokens], like)?,
        );
        let measure = move || timed(device, || read_out(&logits, Some(&importance)));
        let row = |tables: &mut Tables, stats| {
            tables.dispatch.push(DispatchRow {
                operation: DispatchOperation::Inspect,
                stats,
            });
        };
        Ok(Point::new("dispatch: inspect".into(), measure, row))
    }

    /// Measures from the last hidden state to the answers in host memory.
    fn head<'a>(
        &'a self,
        heads: &'a Heads,
        batch: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + 'a, ExecutorError> {
        let size = [
            i64::from(batch),
            self.longest().into(),
            self.encoder.shape().hidden.into(),
        ];
        let hidden = Tensor::f_zeros(size, (self.encoder.kind(), self.encoder.device()))?;
        let mut calls = 0;
        Ok(move || {
            calls += 1;
            let tenants: Vec<u32> = (0..batch).map(|row| spread_out(calls * batch + row, TENANTS)).collect();
            timed(self.encoder.device(), || answers(heads, &hidden, &tenants))
        })
    }

    /// Points of heads that label every token, over the batches and lengths of the forward pass.
    pub fn tagging<'a>(
        &'a self,
        heads: &'a [(u32, Heads)],
        hold_out: HoldOut,
    ) -> Result<Vec<Point<'a>>, ExecutorError> {
        let model = &self.encoder.shape().name;
        let mut points = Vec::new();
        for Spot {
            at: [batch, tokens],
            held_out,
        } in hold_out.spots(self.axes.points().collect(), Some)
        {
            for &(classes, ref heads) in heads {
                let (name, dtype) = (model.clone(), self.dtype);
                let row = move |tables: &mut Tables, stats| {
                    tables.tagging_head.push(TaggingHeadRow {
                        model: name.clone(),
                        dtype,
                        batch,
                        tokens,
                        classes,
                        stats,
                    });
                };
                let size = [batch.into(), tokens.into(), self.encoder.shape().hidden.into()];
                let hidden = Tensor::f_zeros(size, (self.encoder.kind(), self.encoder.device()))?;
                let mut calls = 0;
                let measure = move || {
                    calls += 1;
                    let tenants: Vec<u32> = (0..batch).map(|row| spread_out(calls * batch + row, TENANTS)).collect();
                    timed(self.encoder.device(), || labels(heads, &hidden, &tenants))
                };
                let table = format!("tagging_head of {model}");
                points.push(Point::new(table, measure, row).held_out(held_out));
            }
        }
        Ok(points)
    }

    fn longest(&self) -> u32 {
        *self.axes.tokens.last().expect("a grid has lengths")
    }

    /// Heads of each of these numbers of classes.
    pub fn heads(&self, classes: &[u32]) -> Result<Vec<(u32, Heads)>, ExecutorError> {
        let (shape, device) = (self.encoder.shape(), self.encoder.device());
        let heads = |&classes| {
            Ok((
                classes,
                Heads::random(shape, TENANTS, classes, self.seed, self.dtype, device)?,
            ))
        };
        classes.iter().map(heads).collect()
    }

    /// All points of the forward pass and, if asked for, of one that says which words were attended to.
    pub fn points<'a>(
        &'a self,
        heads: &'a [(u32, Heads)],
        attended: bool,
        hold_out: HoldOut,
    ) -> Result<Vec<Point<'a>>, ExecutorError> {
        let (model, dtype) = (self.encoder.shape().name.clone(), self.dtype);
        let mut points = Vec::new();
        for Spot {
            at: [batch, tokens],
            held_out,
        } in hold_out.spots(self.axes.points().collect(), Some)
        {
            let name = model.clone();
            let row = move |tables: &mut Tables, stats| {
                tables.encoder_layer.push(EncoderLayerRow {
                    model: name.clone(),
                    dtype,
                    batch,
                    tokens,
                    stats,
                });
            };
            if attended {
                let name = model.clone();
                let attended_row = move |tables: &mut Tables, stats| {
                    tables.attended_layer.push(AttendedLayerRow {
                        model: name.clone(),
                        dtype,
                        batch,
                        tokens,
                        stats,
                    });
                };
                let attended = self.attended(batch, tokens)?;
                let table = format!("attended_layer of {model}");
                points.push(Point::new(table, attended, attended_row).held_out(held_out));
            }
            let table = format!("encoder_layer of {model}");
            points.push(Point::new(table, self.layers(batch, tokens)?, row).held_out(held_out));
            let name = model.clone();
            let row = move |tables: &mut Tables, stats| {
                tables.embedding.push(EmbeddingRow {
                    model: name.clone(),
                    dtype,
                    batch,
                    tokens,
                    stats,
                });
            };
            let table = format!("embedding of {model}");
            points.push(Point::new(table, self.embedding(batch, tokens), row).held_out(held_out));
        }
        for &batch in &self.axes.batch {
            for (classes, heads) in heads {
                let (name, classes) = (model.clone(), *classes);
                let row = move |tables: &mut Tables, stats| {
                    tables.head.push(HeadRow {
                        model: name.clone(),
                        dtype,
                        batch,
                        classes,
                        stats,
                    });
                };
                points.push(Point::new(format!("head of {model}"), self.head(heads, batch)?, row));
            }
        }
        Ok(points)
    }
}

/// The likeliest classes, in host memory.
pub(crate) fn answers(heads: &Heads, hidden: &Tensor, tenants: &[u32]) -> Result<Vec<i64>, ExecutorError> {
    let classes = likeliest(&heads.forward(hidden, tenants)?)?;
    Ok(Vec::try_from(&classes.f_to_kind(Kind::Int64)?)?)
}

/// The likeliest label of every token, text after text, in host memory.
pub(crate) fn labels(heads: &Heads, hidden: &Tensor, tenants: &[u32]) -> Result<Vec<i64>, ExecutorError> {
    let labels = likeliest(&heads.tag(hidden, tenants)?)?.f_view([-1])?;
    Ok(Vec::try_from(&labels.f_to_kind(Kind::Int64)?)?)
}

/// The `index`-th of `count` (a power of two) things in an order that jumps about, so that caches do not foresee it. No
/// thing comes again before all others have come.
pub(crate) fn spread_out(index: u32, count: u32) -> u32 {
    assert!(count.is_power_of_two(), "an odd stride visits all of a power of two");
    // The odd number nearest to 2^32 divided by the golden ratio (Knuth's multiplicative hashing).
    index.wrapping_mul(2_654_435_769) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_once_before_anything_comes_again() {
        let mut seen: Vec<u32> = (1000..1064).map(|index| spread_out(index, 64)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>());
    }
}
