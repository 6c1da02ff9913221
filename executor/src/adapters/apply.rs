//! A batch of several tenants' adapters, by three implementations that agree within rounding.

use tch::Tensor;

use super::cache::AdapterCache;
use super::plan::{AdapterPlan, Group, Plan};
use crate::error::ExecutorError;
use crate::gathered::gathered_at_once;

/// The adapters of a batch: which parameters, and which sequence uses which.
#[derive(Clone, Copy, Debug)]
pub struct Adapters<'a> {
    cache: &'a AdapterCache,
    plan: &'a AdapterPlan,
}

impl<'a> Adapters<'a> {
    /// Puts together a cache and a plan that it [made](AdapterCache::plan), or that a handle on the same memory made.
    pub fn new(cache: &'a AdapterCache, plan: &'a AdapterPlan) -> Adapters<'a> {
        Adapters { cache, plan }
    }

    /// One layer's adapters over `activations`, `[n, l, hidden]` both in and out and contiguous.
    ///
    /// # Errors
    /// Activations of another batch or width, or no memory on the device.
    ///
    /// # Panics
    /// If the adapters have no such layer.
    pub fn apply(&self, layer: usize, activations: Tensor) -> Result<Tensor, ExecutorError> {
        let blocks = self.cache.layer(layer);
        // The adapter adds to what it is given, which nobody needs any more: all three work in place.
        tch::no_grad(|| match &self.plan.0 {
            Plan::Loop { groups } => self.one_by_one(blocks, groups, activations),
            Plan::GatherBmm { slots } => self.gathered(blocks, slots, activations),
            Plan::Grouped { slots, ends, group_of } => self.grouped(blocks, slots, ends, group_of, activations),
        })
    }

    /// One group after the other, each two ordinary matrix products.
    fn one_by_one(&self, blocks: &Tensor, groups: &[Group], activations: Tensor) -> Result<Tensor, ExecutorError> {
        let hidden = i64::from(self.cache.shape().hidden);
        for group in groups {
            let own = self.cache.shape().views(&blocks.f_narrow(0, group.slot, 1)?)?;
            let (down, up) = (own.down.f_select(0, 0)?, own.up.f_select(0, 0)?);
            let mut rows = activations.f_narrow(0, group.first, group.count)?.f_view([-1, hidden])?;
            let inner = own.down_bias.f_select(0, 0)?.f_addmm(&rows, &down)?.f_relu_()?;
            let _ = rows.f_addmm_(&inner, &up)?.f_add_(&own.up_bias.f_select(0, 0)?)?;
        }
        Ok(activations)
    }

    /// Copies each sequence's parameters together, then two batched matrix products; many sequences, as a prompt's
    /// tokens are, in pieces.
    fn gathered(&self, blocks: &Tensor, slots: &Tensor, activations: Tensor) -> Result<Tensor, ExecutorError> {
        let (sequences, block) = (slots.size()[0], blocks.size()[1]);
        let at_once = gathered_at_once(blocks.device(), sequences, block);
        // The same memory for every piece: new ones would each find it as cold as the first.
        let room = Tensor::f_empty([at_once, block], (blocks.kind(), blocks.device()))?;
        for first in (0..sequences).step_by(at_once as usize) {
            let piece = at_once.min(sequences - first);
            let own = room.f_narrow(0, 0, piece)?;
            let own = blocks.f_index_select_out(&own, 0, &slots.f_narrow(0, first, piece)?)?;
            let own = self.cache.shape().views(&own)?;
            let mut rows = activations.f_narrow(0, first, piece)?;
            let inner = own.down_bias.f_baddbmm(&rows, &own.down, 1.0, 1.0)?.f_relu_()?;
            let _ = rows.f_baddbmm_(&inner, &own.up)?.f_add_(&own.up_bias)?;
        }
        Ok(activations)
    }

    /// Copies each group's parameters together, then two products over segments of the batch's tokens.
    fn grouped(
        &self,
        blocks: &Tensor,
        slots: &Tensor,
        ends: &Tensor,
        group_of: &Tensor,
        mut activations: Tensor,
    ) -> Result<Tensor, ExecutorError> {
        let size = activations.size();
        let (n, l, hidden) = (size[0], size[1], size[2]);
        let own = self.cache.shape().views(&blocks.f_index_select(0, slots)?)?;
        let (down_bias, up_bias) = (
            own.down_bias.f_index_select(0, group_of)?,
            own.up_bias.f_index_select(0, group_of)?,
        );
        let product = |x: &Tensor, weights: &Tensor| x.f_internal_grouped_mm(weights, Some(ends), None, None);

        let inner = product(&activations.f_view([n * l, hidden])?, &own.down)?;
        let inner = inner.f_view([n, l, -1])?.f_add_(&down_bias)?.f_relu_()?;
        let outer = product(&inner.f_view([n * l, -1])?, &own.up)?;
        Ok(activations.f_add_(&outer.f_view([n, l, hidden])?)?.f_add_(&up_bias)?)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};
    use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

    use super::*;
    use crate::adapters::{AdapterShape, AdapterStore};

    const SLOTS: u32 = 6;
    const TOKENS: i64 = 5;

    /// A cache whose slot `s` holds tenant `s + 1`, with its store.
    fn filled(bottleneck: u32) -> (AdapterStore, AdapterCache) {
        let shape = AdapterShape::new(&ModelShape::builtin("tiny").unwrap(), bottleneck).unwrap();
        let store = AdapterStore::random(shape, 10, 3, DType::F32, Device::Cpu, u64::MAX).unwrap();
        let cache = AdapterCache::new(shape, SLOTS, DType::F32, Device::Cpu).unwrap();
        for slot in 0..SLOTS {
            cache.share().load(&store, slot + 1, slot, 0..2).unwrap();
        }
        (store, cache)
    }

    /// HMI's Eq. 1 for one sequence, written with other operations on the tenant's block in the store.
    fn reference(store: &AdapterStore, tenant: u32, layer: usize, a: &Tensor) -> Tensor {
        let (hidden, bottleneck) = (i64::from(store.shape().hidden), i64::from(store.shape().bottleneck));
        let block = store.sets.of(tenant).view([2, -1]).get(layer as i64);
        let sizes = [hidden * bottleneck, bottleneck, hidden * bottleneck, hidden];
        let parts = block.split_with_sizes(sizes, 0);
        let down = parts[0].view([hidden, bottleneck]).transpose(0, 1);
        let up = parts[2].view([bottleneck, hidden]).transpose(0, 1);
        a.linear(&down, Some(&parts[1])).clamp_min(0.0).linear(&up, Some(&parts[3])) + a
    }

    fn check(slots: &[u32], bottleneck: u32) {
        let (store, cache) = filled(bottleneck);
        let n = slots.len() as i64;
        for implementation in cache.implementations() {
            for layer in 0..2 {
                let activations = Tensor::randn([n, TOKENS, 128], (Kind::Float, Device::Cpu));
                let plan = cache.plan(slots, TOKENS as usize, implementation).unwrap();
                let adapted = Adapters::new(&cache, &plan).apply(layer, activations.copy()).unwrap();
                for (row, slot) in slots.iter().enumerate() {
                    let expected = reference(&store, slot + 1, layer, &activations.get(row as i64));
                    let difference = (adapted.get(row as i64) - expected).abs().max().double_value(&[]);
                    assert!(
                        difference < 1e-5,
                        "{implementation}, {slots:?}, sequence {row}: off by {difference}"
                    );
                }
            }
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
        #[test]
        fn every_implementation_equals_one_by_one(
            slots in proptest::collection::vec(0..SLOTS, 1..12), sorted: bool, bottleneck in 1u32..20,
        ) {
            let mut slots = slots;
            if sorted {
                slots.sort_unstable();
            }
            check(&slots, bottleneck);
        }
    }

    #[test]
    fn a_prompts_tokens_are_gathered_in_pieces() {
        // Of 16,576 numbers each: three pieces.
        let slots: Vec<u32> = (0..150).map(|row| row % SLOTS).collect();
        check(&slots, 64);
    }

    #[test]
    fn an_unaligned_bottleneck_is_refused_by_grouped_with_the_reason() {
        let (_, cache) = filled(3);
        match cache.grouped_fails() {
            None => assert!(cache.implementations().contains(&AdapterImplementation::Grouped)),
            Some(reason) => {
                let refused = cache.plan(&[0], 4, AdapterImplementation::Grouped).unwrap_err();
                assert!(refused.to_string().contains(reason), "{refused}");
            }
        }
    }

    #[test]
    fn layers_are_loaded_one_by_one() {
        let (store, cache) = filled(8);
        cache.load(&store, 9, 2, 1..2).unwrap();
        let same = |layer: usize, tenant| {
            let own = cache.shape().layer_blocks(layer..layer + 1);
            let of_tenant = store.block(tenant).narrow(0, own.start as i64, own.len() as i64);
            cache.layer(layer).get(2).equal(&of_tenant)
        };
        assert!(same(0, 3) && same(1, 9));
    }

    #[test]
    fn slots_that_there_are_not_are_refused() {
        let (_, cache) = filled(8);
        let refused = cache.plan(&[0, SLOTS], 4, AdapterImplementation::Loop).unwrap_err();
        assert_eq!(refused.to_string(), "slot of a sequence: must be below 6, got 6");
    }
}
