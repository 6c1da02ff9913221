//! Points of LoRA: every implementation that the device has.

use std::time::Duration;

use tch::Tensor;
use tenantry_profiles::{AdapterImplementation, DType, LoraRow, Stats, Tables};

use super::axes::Knots;
use super::compute::spread_out;
use super::decoder::DecoderSubject;
use super::held_out::{HoldOut, Spot};
use super::schedule::Point;
use super::timing::timed;
use crate::error::ExecutorError;
use crate::lora::{LoraCache, LoraShape, LoraStore, Loras, Segment};

/// Tenants in the cache, among whom a step's are found: more than a step has, so that their matrices are not all in the
/// processor's caches.
const SLOTS: u32 = 64;
/// Tenants in a step.
const TENANTS: Knots = Knots {
    quick: &[1, 4, 16, 32],
    full: &[1, 2, 3, 4, 6, 9, 13, 16, 24, 32],
};
/// Tokens in a step: those of decodes, and those of prompts.
const TOKENS: Knots = Knots {
    quick: &[1, 4, 16, 32, 128, 512],
    full: &[1, 2, 4, 6, 9, 13, 16, 25, 32, 64, 96, 128, 192, 256, 384, 512],
};

/// Inputs and results of a layer's products, one `[tokens, width]` for each. All points of a rank compute in the same
/// memory, one after the other.
struct Room {
    tokens: u32,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

impl Room {
    /// Of so many tokens at most.
    fn new(subject: &LoraSubject<'_>, tokens: u32) -> Result<Room, ExecutorError> {
        let decoder = &subject.subject.decoder;
        let numbers = |widths: Vec<i64>| -> Result<Vec<Tensor>, ExecutorError> {
            let ones = |width| Tensor::f_ones([i64::from(tokens), width], (decoder.kind(), decoder.device()));
            Ok(widths.into_iter().map(ones).collect::<Result<_, _>>()?)
        };
        let (widths_in, widths_out) = subject.cache.shape().widths();
        Ok(Room {
            tokens,
            inputs: numbers(widths_in)?,
            outputs: numbers(widths_out)?,
        })
    }

    /// The part for fewer tokens.
    fn of(&self, tokens: u32) -> Result<Room, ExecutorError> {
        let part = |all: &[Tensor]| -> Result<Vec<Tensor>, ExecutorError> {
            let first = |numbers: &Tensor| numbers.f_narrow(0, 0, tokens.into());
            Ok(all.iter().map(first).collect::<Result<_, _>>()?)
        };
        Ok(Room {
            tokens,
            inputs: part(&self.inputs)?,
            outputs: part(&self.outputs)?,
        })
    }
}

/// LoRA of one rank over one decoder.
pub(crate) struct LoraSubject<'a> {
    pub subject: &'a DecoderSubject,
    dtype: DType,
    pub cache: LoraCache,
}

impl<'a> LoraSubject<'a> {
    /// A full cache of random matrices.
    pub fn new(subject: &'a DecoderSubject, rank: u32, dtype: DType, seed: u64) -> Result<Self, ExecutorError> {
        let (model, device) = (subject.decoder.shape(), subject.decoder.device());
        let shape = LoraShape::new(model, rank)?;
        let cache = LoraCache::new(shape, SLOTS, dtype, device)?;
        // Which numbers they are costs nothing; a few tenants' are enough to fill all slots.
        let tenants = SLOTS.min(4);
        let store = LoraStore::random(shape, tenants, seed, dtype, device, u64::MAX)?;
        for slot in 0..SLOTS {
            cache.load(&store, slot % tenants, slot, 0..shape.layers as usize)?;
        }
        Ok(LoraSubject { subject, dtype, cache })
    }

    /// Why there are no points of the grouped implementation, if there are none.
    pub fn grouped_fails(&self) -> Option<&str> {
        self.cache.grouped_fails()
    }

    /// All points.
    pub fn points(&self, wanted: &[AdapterImplementation], hold_out: HoldOut) -> Result<Vec<Point<'_>>, ExecutorError> {
        let (model, dtype, rank) = (&self.subject.decoder.shape().name, self.dtype, self.cache.shape().rank);
        let suite = self.subject.suite;
        let most = *self.subject.axes.tokens.last().expect("a grid has tokens");
        let mut grid = Vec::new();
        for &tokens in TOKENS.of(suite).iter().filter(|tokens| **tokens <= most) {
            let tenants = TENANTS.of(suite).iter().filter(|tenants| **tenants <= tokens);
            grid.extend(tenants.map(|&tenants| [tenants, tokens]));
        }
        let possible = |at: [u32; 2]| Some(at).filter(|[tenants, tokens]| tenants <= tokens);
        let spots = hold_out.spots(grid, possible);
        let room = Room::new(self, most)?;
        let mut points = Vec::new();
        let measured = self.cache.implementations().into_iter();
        for implementation in measured.filter(|of| wanted.contains(of)) {
            for &Spot {
                at: [tenants, tokens],
                held_out,
            } in &spots
            {
                let name = model.clone();
                let row = move |tables: &mut Tables, stats: Stats| {
                    tables.lora.push(LoraRow {
                        model: name.clone(),
                        dtype,
                        implementation,
                        rank,
                        tensor_parallel: 1,
                        tenants,
                        tokens,
                        stats,
                    });
                };
                let table = format!("lora of {model}, {implementation}, rank {rank}");
                let measure = self.measure(implementation, tenants, room.of(tokens)?)?;
                points.push(Point::new(table, measure, row).held_out(held_out));
            }
        }
        Ok(points)
    }

    /// Measures all products of one layer, at each call another's, and then of other tenants.
    fn measure(
        &self,
        implementation: AdapterImplementation,
        tenants: u32,
        room: Room,
    ) -> Result<impl FnMut() -> Result<Duration, ExecutorError> + '_, ExecutorError> {
        let (decoder, shape) = (&self.subject.decoder, self.cache.shape());
        let Room {
            tokens,
            inputs,
            mut outputs,
        } = room;
        let mut calls = 0;
        Ok(move || {
            // Others once these have been through all layers, so that each layer meets all slots.
            let (layer, first) = (calls % shape.layers, calls / shape.layers * tenants);
            calls += 1;
            let segment = |tenant| Segment {
                slot: Some(spread_out(first + tenant, SLOTS)),
                tokens: (tenant + 1) * tokens / tenants - tenant * tokens / tenants,
            };
            let segments: Vec<Segment> = (0..tenants).map(segment).collect();
            // Made once a step: a layer's share of it is small.
            let plan = self.cache.plan(&segments, implementation)?;
            for output in &mut outputs {
                // The products are added: without this they would grow beyond all numbers.
                let _ = output.f_zero_()?;
            }
            timed(decoder.device(), || {
                Loras::new(&self.cache, &plan).layer(layer as usize, &inputs, &mut outputs)
            })
        })
    }
}
