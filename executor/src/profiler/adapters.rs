//! Points of batched adapters: every implementation that the device has.

use std::time::Duration;

use tch::{Kind, Tensor};
use tenantry_profiles::{AdapterImplementation, AdapterRow, DType, ModelShape, Tables};

use super::compute::{Subject, spread_out};
use super::schedule::Point;
use super::{Suite, timed};
use crate::adapters::{AdapterCache, AdapterShape, AdapterStore, Adapters};
use crate::error::ExecutorError;

/// Tenants in the cache, among whom a batch's are found: more than a batch has, so that their parameters are not all in the
/// processor's caches.
const SLOTS: u32 = 128;

/// The adapters of one bottleneck over one model.
pub(crate) struct AdapterSubject<'a> {
    subject: &'a Subject,
    dtype: DType,
    cache: AdapterCache,
}

impl<'a> AdapterSubject<'a> {
    /// A full cache of random adapters.
    pub fn new(subject: &'a Subject, bottleneck: u32, dtype: DType, seed: u64) -> Result<Self, ExecutorError> {
        let device = subject.encoder.device();
        // Every layer's adapters cost the same; two layers' are enough to alternate between.
        let shape = subject.encoder.shape();
        let shape = AdapterShape::new(
            &ModelShape {
                layers: shape.layers.min(2),
                ..shape.clone()
            },
            bottleneck,
        )?;
        let cache = AdapterCache::new(shape, SLOTS, dtype, device)?;
        let store = AdapterStore::random(shape, SLOTS, seed, dtype, device, u64::MAX)?;
        for slot in 0..SLOTS {
            cache.load(&store, slot, slot, 0..shape.layers as usize)?;
        }
        Ok(AdapterSubject { subject, dtype, cache })
    }

    /// Why there are no points of the grouped implementation, if there are none.
    pub fn grouped_fails(&self) -> Option<&str> {
        self.cache.grouped_fails()
    }

    /// All points.
    pub fn points(&self, suite: Suite) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (shape, dtype, axes) = (self.subject.encoder.shape(), self.dtype, &self.subject.axes);
        let bottleneck = self.cache.shape().bottleneck;
        let lengths = match suite {
            Suite::Quick => axes.few_tokens(),
            Suite::Full => axes.tokens.clone(),
        };
        let mut points = Vec::new();
        for implementation in self.cache.implementations() {
            for &batch in &axes.batch {
                for &tenants in axes.batch.iter().filter(|tenants| **tenants <= batch) {
                    for &tokens in &lengths {
                        let model = shape.name.clone();
                        let row = move |tables: &mut Tables, stats| {
                            let model = model.clone();
                            let row = AdapterRow {
                                model,
                                dtype,
                                implementation,
                                bottleneck,
                                tenants,
                                batch,
                                tokens,
                                stats,
                            };
                            tables.adapter.push(row);
                        };
                        let table = format!("adapter of {}, {implementation}, bottleneck {bottleneck}", shape.name);
                        points.push(Point::new(
                            table,
                            self.measure(implementation, tenants, batch, tokens)?,
                            row,
                        ));
                    }
                }
            }
        }
        Ok(points)
    }

    fn measure(
        &self,
        implementation: AdapterImplementation,
        tenants: u32,
        batch: u32,
        tokens: u32,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let device = self.subject.encoder.device();
        let size = [
            i64::from(batch),
            i64::from(tokens),
            i64::from(self.cache.shape().hidden),
        ];
        let attention = Tensor::f_ones(size, (Kind::Float, device))?.f_to_kind(self.subject.encoder.kind())?;
        let mut calls = 0;
        Ok(move || {
            let slot = |row| spread_out(calls * tenants + row * tenants / batch, SLOTS);
            let slots: Vec<u32> = (0..batch).map(slot).collect();
            let layer = calls as usize % self.cache.shape().layers as usize;
            calls += 1;
            let plan = self.cache.plan(&slots, tokens as usize, implementation)?;
            // Adapters work in place: without a fresh copy, repeated application would grow beyond all numbers. It also
            // leaves the caches as the attention before it does.
            let attention = attention.copy();
            timed(device, || Adapters::new(&self.cache, &plan).apply(layer, attention))
        })
    }
}
