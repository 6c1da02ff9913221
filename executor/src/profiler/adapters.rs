//! Points of batched adapters: every implementation that the device has.

use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{AdapterImplementation, AdapterRow, DType, ModelShape, Tables};

use super::Suite;
use super::axes::Knots;
use super::compute::{Subject, spread_out};
use super::decoder::DecoderSubject;
use super::held_out::{HoldOut, Spot};
use super::schedule::Point;
use super::timing::timed;
use crate::adapters::{AdapterCache, AdapterShape, AdapterStore, Adapters};
use crate::error::ExecutorError;

/// Tenants in the cache, among whom a batch's are found: more than a batch has, so that their parameters are not all in
/// the processor's caches.
const SLOTS: u32 = 128;

/// Sequences of a decoder's step, each a token long to adapters, and tenants among them. Of three and more tenants each
/// of which has a few, products take up to a fifth longer than what lies between one and eight.
const STEP_SEQUENCES: Knots = Knots {
    quick: &[1, 8, 32, 128],
    full: &[1, 2, 3, 5, 8, 11, 17, 32, 48, 128],
};

/// The adapters of one bottleneck over one model.
pub(crate) struct AdapterSubject {
    model: String,
    dtype: DType,
    kind: Kind,
    device: Device,
    pub cache: AdapterCache,
    /// Sequences, and tenants among them.
    batches: Vec<u32>,
    /// Tokens of each sequence, and those of a quick suite.
    lengths: [Vec<u32>; 2],
}

impl AdapterSubject {
    /// Of an encoder's batches.
    pub fn of_encoder(subject: &Subject, bottleneck: u32, dtype: DType, seed: u64) -> Result<Self, ExecutorError> {
        let (encoder, axes) = (&subject.encoder, &subject.axes);
        let lengths = [axes.fewer_tokens(), axes.few_tokens()];
        let place = (encoder.kind(), encoder.device());
        // Every layer's adapters cost the same; two layers' are enough to alternate between.
        let shape = ModelShape {
            layers: encoder.shape().layers.min(2),
            ..encoder.shape().clone()
        };
        AdapterSubject::new(&shape, place, bottleneck, (dtype, seed), axes.batch.clone(), lengths)
    }

    /// Of a decoder's steps: of all layers that it is measured with.
    pub fn of_decoder(
        subject: &DecoderSubject,
        bottleneck: u32,
        dtype: DType,
        seed: u64,
    ) -> Result<Self, ExecutorError> {
        let decoder = &subject.decoder;
        let place = (decoder.kind(), decoder.device());
        let batches = STEP_SEQUENCES.of(subject.suite).to_vec();
        AdapterSubject::new(
            decoder.shape(),
            place,
            bottleneck,
            (dtype, seed),
            batches,
            [vec![1], vec![1]],
        )
    }

    /// A full cache of random adapters.
    fn new(
        shape: &ModelShape,
        (kind, device): (Kind, Device),
        bottleneck: u32,
        (dtype, seed): (DType, u64),
        batches: Vec<u32>,
        lengths: [Vec<u32>; 2],
    ) -> Result<Self, ExecutorError> {
        let model = shape.name.clone();
        let shape = AdapterShape::new(shape, bottleneck)?;
        let cache = AdapterCache::new(shape, SLOTS, dtype, device)?;
        let store = AdapterStore::random(shape, SLOTS, seed, dtype, device, u64::MAX)?;
        for slot in 0..SLOTS {
            cache.load(&store, slot, slot, 0..shape.layers as usize)?;
        }
        Ok(AdapterSubject {
            model,
            dtype,
            kind,
            device,
            cache,
            batches,
            lengths,
        })
    }

    /// Whose.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Width inside the adapters.
    pub fn bottleneck(&self) -> u32 {
        self.cache.shape().bottleneck
    }

    /// Why there are no points of the grouped implementation, if there are none.
    pub fn grouped_fails(&self) -> Option<&str> {
        self.cache.grouped_fails()
    }

    /// All points.
    pub fn points(
        &self,
        wanted: &[AdapterImplementation],
        suite: Suite,
        hold_out: HoldOut,
    ) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (dtype, bottleneck) = (self.dtype, self.bottleneck());
        let [all, few] = &self.lengths;
        let lengths = match suite {
            Suite::Quick => few,
            Suite::Full => all,
        };
        let mut grid = Vec::new();
        for &batch in &self.batches {
            for &tenants in self.batches.iter().filter(|tenants| **tenants <= batch) {
                grid.extend(lengths.iter().map(|&tokens| [tenants, batch, tokens]));
            }
        }
        let possible = |at: [u32; 3]| Some(at).filter(|[tenants, batch, _]| tenants <= batch);
        let spots = hold_out.spots(grid, possible);
        let hidden = i64::from(self.cache.shape().hidden);
        let rows = |spot: &Spot<3>| i64::from(spot.at[1]) * i64::from(spot.at[2]);
        // What comes in is the same for all points: none writes to it.
        let most = spots.iter().map(rows).max().unwrap_or(0);
        let attention = Tensor::f_ones([most * hidden], (self.kind, self.device))?;
        let mut points = Vec::new();
        let measured = self.cache.implementations().into_iter();
        for implementation in measured.filter(|of| wanted.contains(of)) {
            for &Spot {
                at: [tenants, batch, tokens],
                held_out,
            } in &spots
            {
                let model = self.model.clone();
                let row = move |tables: &mut Tables, stats| {
                    tables.adapter.push(AdapterRow {
                        model: model.clone(),
                        dtype,
                        implementation,
                        bottleneck,
                        tenants,
                        batch,
                        tokens,
                        stats,
                    });
                };
                let table = format!("adapter of {}, {implementation}, bottleneck {bottleneck}", self.model);
                let size = [batch.into(), tokens.into(), hidden];
                let attention = attention.f_narrow(0, 0, size.iter().product())?.f_view(size)?;
                let measure = self.measure(implementation, tenants, attention);
                points.push(Point::new(table, measure, row).held_out(held_out));
            }
        }
        Ok(points)
    }

    fn measure(
        &self,
        implementation: AdapterImplementation,
        tenants: u32,
        attention: Tensor,
    ) -> impl FnMut() -> Result<Duration, ExecutorError> + '_ {
        let device = self.device;
        let size = attention.size();
        let (batch, tokens) = (size[0] as u32, size[1] as usize);
        let mut calls = 0;
        move || {
            let layers = self.cache.shape().layers;
            // Others once these have been through all layers, so that each layer meets all slots.
            let (layer, first) = (calls % layers, calls / layers * tenants);
            let slot = |row| spread_out(first + row * tenants / batch, SLOTS);
            let slots: Vec<u32> = (0..batch).map(slot).collect();
            calls += 1;
            let plan = self.cache.plan(&slots, tokens, implementation)?;
            // Adapters work in place: without a fresh copy, repeated application would grow beyond all numbers. It also
            // leaves the caches as the attention before it does.
            let attention = attention.copy();
            timed(device, || {
                Adapters::new(&self.cache, &plan).apply(layer as usize, attention)
            })
        }
    }
}
