//! A step of several tenants' low-rank products, by three implementations that agree within rounding.

use tch::Tensor;

use super::cache::LoraCache;
use super::plan::{LoraPlan, Plan, Rows, Stretch};
use super::shape::{Input, LoraViews};
use crate::error::ExecutorError;
use crate::gathered::gathered_at_once;

/// The LoRA of a step: which matrices, and which token uses which.
#[derive(Clone, Copy, Debug)]
pub struct Loras<'a> {
    cache: &'a LoraCache,
    plan: &'a LoraPlan,
}

impl<'a> Loras<'a> {
    /// Puts together a cache and a plan that it [made](LoraCache::plan), or that a handle on the same memory made.
    pub fn new(cache: &'a LoraCache, plan: &'a LoraPlan) -> Loras<'a> {
        Loras { cache, plan }
    }

    /// All low-rank products of one layer, added to `outputs`, `[tokens, all outputs]` each.
    ///
    /// `inputs` are `[tokens, in]`, in the order of the forward pass: of queries, keys and values; of attention's
    /// output projection; of the feed-forward's first and of its last matrix.
    pub(crate) fn layer(&self, layer: usize, inputs: &[Tensor], outputs: &mut [Tensor]) -> Result<(), ExecutorError> {
        let pairs = inputs.iter().zip(outputs);
        for (input, (x, y)) in Input::ALL.into_iter().zip(pairs) {
            self.add(layer, input, x, y)?;
        }
        Ok(())
    }

    /// `y += x · A · B` for each projection of an input, `x` `[tokens, in]` and `y` `[tokens, all their outputs]`.
    pub(crate) fn add(&self, layer: usize, input: Input, x: &Tensor, y: &mut Tensor) -> Result<(), ExecutorError> {
        let views = self.cache.views(layer, input);
        tch::no_grad(|| match &self.plan.0 {
            Plan::Loop { stretches } => one_by_one(views, stretches, x, y),
            Plan::GatherBmm { rows, slots } => gathered(views, rows, slots, x, y),
            Plan::Grouped { rows, slots, ends } => match slots {
                None => grouped(views, rows, ends, x, y),
                Some(slots) => grouped(&views.copied(slots)?, rows, ends, x, y),
            },
        })
    }
}

/// One tenant after the other, each by ordinary matrix products.
fn one_by_one(views: &LoraViews, stretches: &[Stretch], x: &Tensor, y: &Tensor) -> Result<(), ExecutorError> {
    for &Stretch { slot, first, count } in stretches {
        let inner = x.f_narrow(0, first, count)?.f_mm(&views.down.f_select(0, slot)?)?;
        let rows = y.f_narrow(0, first, count)?;
        for part in Parts::new(views, &inner) {
            let mut columns = rows.f_narrow(1, part.column, part.width)?;
            let _ = columns.f_addmm_(&part.inner?, &part.up.f_select(0, slot)?)?;
        }
    }
    Ok(())
}

/// Copies each token's matrices together, then batched matrix products.
fn gathered(views: &LoraViews, rows: &Rows, slots: &Tensor, x: &Tensor, y: &Tensor) -> Result<(), ExecutorError> {
    let (x, count) = (rows.of(x)?, rows.count());
    if count == 0 {
        return Ok(());
    }
    let numbers = |matrices: &Tensor| matrices.size()[1] * matrices.size()[2];
    let stacked = |matrices: &Tensor| matrices.size()[1..].iter().product();
    let largest = views.stacked_ups.iter().map(stacked).fold(numbers(&views.down), i64::max);
    let at_once = gathered_at_once(x.device(), count, largest);
    if at_once == count {
        return gathered_whole(views, rows, slots, &x, y);
    }
    // The same memory for every piece: new ones would each find it as cold as the first.
    let room = Tensor::f_empty([at_once * largest], (x.kind(), x.device()))?;
    let products = |x: &Tensor, matrices: &Tensor| -> Result<Tensor, ExecutorError> {
        let width = matrices.size()[2];
        let outer = Tensor::f_empty([count, 1, width], (x.kind(), x.device()))?;
        for first in (0..count).step_by(at_once as usize) {
            let piece = at_once.min(count - first);
            let own = room.f_narrow(0, 0, piece * numbers(matrices))?;
            let own = own.f_view([piece, matrices.size()[1], width])?;
            let own = matrices.f_index_select_out(&own, 0, &slots.f_narrow(0, first, piece)?)?;
            let x = x.f_narrow(0, first, piece)?.f_unsqueeze(1)?;
            let _ = x.f_bmm_out(&outer.f_narrow(0, first, piece)?, &own)?;
        }
        Ok(outer.f_squeeze_dim(1)?)
    };
    add_parts(views, rows, &x, y, products)
}

/// The same in one piece, as the tokens of most steps are: projections that are equally wide take one copy and one
/// product together.
fn gathered_whole(views: &LoraViews, rows: &Rows, slots: &Tensor, x: &Tensor, y: &Tensor) -> Result<(), ExecutorError> {
    let count = rows.count();
    let down = views.down.f_index_select(0, slots)?;
    let inner = x.f_unsqueeze(1)?.f_bmm(&down)?;
    let (mut first, mut column) = (0, 0);
    for ups in &views.stacked_ups {
        let size = ups.size();
        let (parts, rank, width) = (size[1], size[2], size[3]);
        let up = ups.f_index_select(0, slots)?.f_view([count * parts, rank, width])?;
        // All projections lie in order already; some of them are copied together.
        let inner = inner.f_narrow(2, first, parts * rank)?.f_reshape([count * parts, 1, rank])?;
        match rows {
            // Products and sums in one, where the columns of a row are as many matrices one after the other. A
            // processor's library takes them from whole rows only: others it does one by one.
            Rows::First(_) if parts * width == y.size()[1] || (parts == 1 && y.device().is_cuda()) => {
                let columns = y.f_narrow(0, 0, count)?.f_narrow(1, column, parts * width)?;
                let mut columns = match parts {
                    1 => columns.f_unsqueeze(1)?,
                    _ => columns.f_view([count * parts, 1, width])?,
                };
                let _ = columns.f_baddbmm_(&inner, &up)?;
            }
            _ => rows.add(y, column, &inner.f_bmm(&up)?.f_view([count, parts * width])?)?,
        }
        first += parts * rank;
        column += parts * width;
    }
    Ok(())
}

/// Adds the outer products of each part of what the inner one comes to.
fn add_parts(
    views: &LoraViews,
    rows: &Rows,
    x: &Tensor,
    y: &Tensor,
    products: impl Fn(&Tensor, &Tensor) -> Result<Tensor, ExecutorError>,
) -> Result<(), ExecutorError> {
    let inner = products(x, &views.down)?;
    for part in Parts::new(views, &inner) {
        rows.add(y, part.column, &products(&part.inner?, part.up)?)?;
    }
    Ok(())
}

/// Products over segments of the step's tokens; `views` are of the slots that `ends` tells the ends of.
fn grouped(views: &LoraViews, rows: &Rows, ends: &Tensor, x: &Tensor, y: &Tensor) -> Result<(), ExecutorError> {
    if rows.count() == 0 {
        return Ok(());
    }
    let product = |x: &Tensor, weights: &Tensor| -> Result<Tensor, ExecutorError> {
        Ok(x.f_internal_grouped_mm(weights, Some(ends), None, None)?)
    };
    add_parts(views, rows, &rows.of(x)?, y, product)
}

/// The projections that share an input, each with its share of the shrunk input and its columns of the output.
struct Parts<'a> {
    views: &'a LoraViews,
    inner: &'a Tensor,
    next: usize,
    column: i64,
}

struct Part<'a> {
    /// `[rows, rank]`.
    inner: Result<Tensor, tch::TchError>,
    /// `[slots, rank, out]`.
    up: &'a Tensor,
    column: i64,
    width: i64,
}

impl<'a> Parts<'a> {
    fn new(views: &'a LoraViews, inner: &'a Tensor) -> Parts<'a> {
        Parts {
            views,
            inner,
            next: 0,
            column: 0,
        }
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let up = self.views.ups.get(self.next)?;
        let (rank, width) = (up.size()[1], up.size()[2]);
        let part = Part {
            inner: self.inner.f_narrow(1, self.next as i64 * rank, rank),
            up,
            column: self.column,
            width,
        };
        self.next += 1;
        self.column += width;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};
    use tenantry_profiles::{DType, ModelShape};

    use super::*;
    use crate::lora::plan::stretches;
    use crate::lora::{LoraShape, LoraStore, Segment};

    /// Each token's products, written with other operations on its tenant's matrices.
    fn reference(cache: &LoraCache, input: Input, slots: &[Option<i64>], x: &Tensor, y: &Tensor) -> Tensor {
        let views = cache.views(1, input);
        let row = |(row, slot): (usize, &Option<i64>)| {
            let (own, sum) = (x.get(row as i64).unsqueeze(0), y.get(row as i64).unsqueeze(0));
            let Some(slot) = *slot else { return sum };
            let inner = own.linear::<Tensor>(&views.down.get(slot).transpose(0, 1), None);
            let parts = inner.chunk(views.ups.len() as i64, 1);
            let outer = |(part, up): (&Tensor, &Tensor)| part.linear::<Tensor>(&up.get(slot).transpose(0, 1), None);
            sum + Tensor::cat(&parts.iter().zip(&views.ups).map(outer).collect::<Vec<_>>(), 1)
        };
        Tensor::cat(&slots.iter().enumerate().map(row).collect::<Vec<_>>(), 0)
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
        #[test]
        fn every_implementation_equals_token_by_token(
            llama: bool,
            segments in proptest::collection::vec((proptest::option::of(0..6u32), 1..4u32), 1..9),
            rank in proptest::sample::select(vec![8u32, 16, 64]),
        ) {
            let model = ModelShape::builtin(if llama { "tiny-llama" } else { "tiny-opt" }).unwrap();
            let shape = LoraShape::new(&model, rank).unwrap();
            let store = LoraStore::random(shape, 6, 3, DType::F32, Device::Cpu, u64::MAX).unwrap();
            let cache = LoraCache::new(shape, 6, DType::F32, Device::Cpu).unwrap();
            for slot in 0..6 {
                cache.load(&store, slot, slot, 0..2).unwrap();
            }
            let of_tokens = |&(slot, tokens): &(Option<u32>, u32)| vec![slot.map(i64::from); tokens as usize];
            let slots: Vec<Option<i64>> = segments.iter().flat_map(of_tokens).collect();
            let segments: Vec<Segment> = segments.into_iter().map(|(slot, tokens)| Segment { slot, tokens }).collect();
            let (widths, outputs) = shape.widths();
            let mut plans: Vec<LoraPlan> =
                cache.implementations().into_iter().map(|how| cache.plan(&segments, how).unwrap()).collect();
            if cache.grouped_fails().is_none() {
                // As on a GPU.
                plans.push(LoraPlan(Plan::grouped(stretches(&segments), 6, true, Device::Cpu).unwrap()));
            }
            for plan in plans {
                for (input, (width, output)) in Input::ALL.into_iter().zip(widths.iter().zip(&outputs)) {
                    let random = |width: i64| Tensor::randn([slots.len() as i64, width], (Kind::Float, Device::Cpu));
                    let (x, y) = (random(*width), random(*output));
                    let mut found = y.copy();
                    Loras::new(&cache, &plan).add(1, input, &x, &mut found).unwrap();
                    let off = (found - reference(&cache, input, &slots, &x, &y)).abs().max().double_value(&[]);
                    proptest::prop_assert!(off < 1e-5, "{:?}, {:?}: off by {}", plan, input, off);
                }
            }
        }
    }
}
