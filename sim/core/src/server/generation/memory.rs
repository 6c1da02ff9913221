//! What lies where on an instance's cards: weights, room for tenants' adapters, and pages of the key-value cache in all
//! the rest.

use super::page::PageSize;
use crate::server::memory::{MemoryUse, ServerError};
use crate::spec::{ClusterSpec, GenerationSpec, PoolSpec, TenantState};

/// The plan of one instance, the same for each. All its cards hold as much of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenerationMemory {
    instances: u64,
    /// Of an instance's cards together.
    capacity_bytes: u64,
    /// Of the backbone; 0 where each tenant has a model of its own.
    weights_bytes: u64,
    /// Of one tenant's own parameters, on all cards of an instance together; 0 where there are none.
    tenant_bytes: u64,
    /// The same where they are kept, once: cards that share layers hold some of a LoRA each.
    stored_bytes: u64,
    slots: u32,
    page_bytes: u64,
    pub pages: u32,
}

impl GenerationMemory {
    pub fn plan(
        cluster: &ClusterSpec,
        pool: &PoolSpec,
        generation: &GenerationSpec,
        tenants: u32,
        instances: usize,
    ) -> Result<GenerationMemory, ServerError> {
        let model = &pool.model;
        let dtype_bytes = pool.dtype.bytes();
        let cards = u64::from(generation.tensor_parallel);
        let layers = u64::from(pool.computed_layers());
        let backbone = pool.computed_parameters();
        let (shared, stored, slots) = match (pool.tenant_state, generation.lora) {
            (TenantState::Model, _) => (0, backbone, generation.slots),
            (TenantState::Adapters { bottleneck, .. }, _) => {
                let adapters = layers * model.adapter_parameters_per_layer(bottleneck);
                (backbone, adapters, generation.slots)
            }
            (TenantState::Head, Some(lora)) => {
                let whole = layers * model.lora_parameters_per_layer(lora.rank);
                (backbone, whole, lora.slots)
            }
            (TenantState::Head, None) => (backbone, 0, 0),
        };
        // What is more than can be counted is more than there is.
        let own = match generation.lora {
            Some(lora) => {
                let per_card = layers * model.lora_parameters_per_card(lora.rank, generation.tensor_parallel);
                cards.saturating_mul(per_card)
            }
            None => stored,
        };
        // Room for adapters that nobody has is room for pages.
        let slots = slots.min(tenants);
        let [weights_bytes, tenant_bytes, stored_bytes] =
            [shared, own, stored].map(|parameters| parameters.saturating_mul(dtype_bytes));
        let held_by_host = generation.host_slots().unwrap_or(tenants);
        let capacity_bytes = cards * cluster.beside_kept_bytes(held_by_host.min(tenants), stored_bytes);
        let page_tokens = u64::from(generation.page_tokens);
        let page_bytes = layers * model.cached_per_token_and_layer() * dtype_bytes * page_tokens;
        let needed_bytes = tenant_bytes.saturating_mul(slots.into()).saturating_add(weights_bytes);
        let pages = capacity_bytes.saturating_sub(needed_bytes) / page_bytes;
        if pages == 0 {
            return Err(ServerError::BackboneDoesNotFit {
                model: model.name.clone(),
                needed_bytes: needed_bytes.saturating_add(page_bytes),
                available_bytes: capacity_bytes,
            });
        }
        Ok(GenerationMemory {
            instances: instances as u64,
            capacity_bytes,
            weights_bytes,
            tenant_bytes,
            stored_bytes,
            slots,
            page_bytes,
            pages: u32::try_from(pages).unwrap_or(u32::MAX),
        })
    }

    /// Of a page, on all cards of an instance together.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Of one tenant's own parameters, on all cards of an instance together.
    pub fn tenant_bytes(&self) -> u64 {
        self.tenant_bytes
    }

    /// The same in host memory or on the disk.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Tenants whose own parameters an instance has room for; nothing where they have none.
    pub fn slots(&self) -> Option<u32> {
        (self.tenant_bytes > 0).then_some(self.slots)
    }

    /// Of what all tenants share, on all cards of an instance together.
    pub fn weights_bytes(&self) -> u64 {
        self.weights_bytes
    }

    /// With the model on so many instances at once, at most; `peak_pages` is the sum of what each instance held at
    /// most.
    pub fn used(&self, loaded: u32, slots: u32, peak_pages: u64) -> MemoryUse {
        let slots = u64::from(slots).min(u64::from(self.slots) * self.instances);
        MemoryUse {
            capacity_bytes: self.instances * self.capacity_bytes,
            shared_bytes: u64::from(loaded) * self.weights_bytes,
            per_tenant_bytes: self.tenant_bytes,
            tenant_bytes: slots * self.tenant_bytes,
            cache_bytes: peak_pages * self.page_bytes,
        }
    }
}

/// Pages of one instance's cache. Only their number matters to policies; a machine that computes gives them places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    page: PageSize,
    total: u32,
    used: u32,
    /// Promised to the run under way, which takes of them what it needs: how much, is known when it has ended.
    promised: u32,
    /// Used by what nobody reads, and could be let go of.
    idle: u32,
    peak: u32,
    /// Pages handed out since the start. Those that lie free are handed out in the order in which they became so.
    handed_out: u64,
    /// The place in that order of the next page that becomes free.
    next_place: u64,
}

/// Of requests, each counted once: no more than there are, so that it need not be looked for an overflow, and several
/// are added at once.
pub(super) fn total(counts: &[u32]) -> u32 {
    counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// Requests by the tokens for which each has room on its pages before the first step of a run, which has its pages.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    requests: u32,
    /// By tokens, below a page's, and all of these.
    by_tokens: Vec<u32>,
    below: u32,
}

impl Rooms {
    /// Those of so many requests, with room for no token, one, and so on, up to all of a page but one.
    pub fn begin(&mut self, requests: u32, by_tokens: &[u32]) {
        (self.requests, self.below) = (requests, requests);
        self.by_tokens.clear();
        self.by_tokens.extend_from_slice(by_tokens);
    }

    /// And of another, which has room for a page's at most.
    pub fn add(&mut self, tokens: u32) {
        self.requests += 1;
        if let Some(requests) = self.by_tokens.get_mut(tokens as usize) {
            *requests += 1;
            self.below += 1;
        }
    }

    /// Requests with room for fewer tokens than these, at most a page's.
    pub fn with_less(&self, tokens: u32) -> u32 {
        match tokens as usize {
            page if page == self.by_tokens.len() => self.below,
            tokens => total(&self.by_tokens[..tokens]),
        }
    }

    /// The most tokens, up to a page's, for which no more than so many requests have less room, and how many these are.
    fn that_leave_out(&self, most: u32) -> (u32, u32) {
        let mut requests = 0_u32;
        let fits = |of: &&u32| {
            // No more than there are, as in `total`.
            let more = requests.wrapping_add(**of);
            let fits = more <= most;
            if fits {
                requests = more;
            }
            fits
        };
        let tokens = self.by_tokens.iter().take_while(fits).count() as u32;
        (tokens, requests)
    }
}

/// Pages that a request held until it left, the last of them the first to be handed out again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pages: u32,
    /// The place of its first page in the order of handing out, and one.
    end: u64,
}

impl Pages {
    pub fn new(page: PageSize, total: u32) -> Pages {
        Pages {
            page,
            total,
            used: 0,
            promised: 0,
            idle: 0,
            handed_out: 0,
            next_place: u64::from(total),
            peak: 0,
        }
    }

    /// Pages that so many cached tokens take.
    pub fn of(&self, tokens: u32) -> u32 {
        self.page.taken_by(tokens)
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    /// Neither used nor promised, or used by nobody.
    pub fn free(&self) -> u32 {
        self.unused() + self.idle
    }

    /// Neither used nor promised.
    pub fn unused(&self) -> u32 {
        self.total - self.used - self.promised
    }

    /// Not known to be used: with those that a run was promised.
    pub fn perhaps_free(&self) -> u32 {
        self.total - self.used + self.idle
    }

    /// So many of those used could be let go of.
    pub fn set_idle(&mut self, pages: u32) {
        self.idle = pages;
    }

    /// What so many pages hold.
    pub fn tokens(&self, pages: u32) -> u32 {
        pages * self.page.tokens()
    }

    /// A run begins that may take so many, or ends and has taken of them what it needed.
    pub fn promise(&mut self, pages: u32) {
        self.promised = pages;
        assert!(
            self.used + pages <= self.total,
            "more pages are promised than there are"
        );
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// How many steps a run makes at most whom others can join, and how many pages it is promised: for these, and for
    /// the step after them, which who comes meanwhile leaves to the others. That is up to half of what is free, so that
    /// who comes mostly finds pages at once, and need not wait for a step to end before what its tenant has of its own,
    /// or its prompt's look-up, begins to come in.
    pub fn steps_of_half(&self, rooms: &Rooms, most: u32) -> (u32, u32) {
        let half = self.unused().min(self.free().div_ceil(2));
        let (steps, promised) = match self.steps(rooms, most + 1, half) {
            (1, _) => (1, self.taken_by(rooms, 2)),
            (steps, pages) => (steps - 1, pages),
        };
        (steps, promised.min(self.unused()))
    }

    /// How many steps of requests so many of the unused pages are enough for, at most `most`, and how many of them
    /// these take. One at least: for that there are pages before a run begins.
    #[inline]
    pub fn steps(&self, rooms: &Rooms, most: u32, pages: u32) -> (u32, u32) {
        let (requests, page) = (rooms.requests, self.page.tokens());
        // Mostly there are enough for all.
        if most == 1 || u64::from(pages) >= u64::from(requests) * u64::from(self.page.taken_by(most)) {
            return (most, self.taken_by(rooms, most));
        }
        // After as many whole pages' steps as all can make, everyone has as much room as now, and the pages left are
        // for those with the least: they last until the first of the others needs one.
        let (pages_each, left) = (pages / requests, pages % requests);
        let whole = pages_each.saturating_mul(page);
        let (tokens, first) = rooms.that_leave_out(left);
        match whole.saturating_add(tokens) {
            steps if tokens > 0 && steps <= most => (steps, pages_each * requests + first),
            steps => {
                let steps = steps.clamp(1, most);
                (steps, self.taken_by(rooms, steps))
            }
        }
    }

    /// How many pages so many steps take, one at least.
    fn taken_by(&self, rooms: &Rooms, steps: u32) -> u32 {
        let whole = self.page.filled_by(steps - 1);
        whole * rooms.requests + rooms.with_less(steps - whole * self.page.tokens())
    }

    /// Hands out so many pages more.
    #[inline]
    pub fn take(&mut self, pages: u32) {
        self.handed_out += u64::from(pages);
        self.used += pages;
        self.check_used();
    }

    #[inline]
    fn check_used(&mut self) {
        assert!(
            self.used + self.promised <= self.total,
            "more pages are used than there are"
        );
        self.peak = self.peak.max(self.used);
    }

    /// Lets `held` pages grow, or shrink, to those of `tokens`.
    #[inline]
    pub fn resize(&mut self, held: &mut u32, tokens: u32) {
        // Mostly the last page has room for some tokens more.
        let on_held = self.tokens(*held);
        if tokens <= on_held && on_held < tokens + self.page.tokens() {
            return;
        }
        self.resize_to(held, self.of(tokens));
    }

    fn resize_to(&mut self, held: &mut u32, wanted: u32) {
        self.handed_out += u64::from(wanted.saturating_sub(*held));
        self.next_place += u64::from(held.saturating_sub(wanted));
        self.used = self.used - *held + wanted;
        self.check_used();
        *held = wanted;
    }

    /// Lets all go of a request's pages, the last first.
    pub fn leave(&mut self, held: &mut u32) -> Left {
        let pages = *held;
        self.resize(held, 0);
        Left {
            pages,
            end: self.next_place,
        }
    }

    /// Nothing lies there any more of what requests left.
    pub fn forget(&mut self) {
        self.handed_out += u64::from(self.total);
        self.next_place += u64::from(self.total);
    }

    /// Tokens at the beginning of a request that left whose pages nobody has been given since.
    pub fn intact_tokens(&self, left: Left) -> u32 {
        let intact = left.end.saturating_sub(self.handed_out).min(u64::from(left.pages));
        self.tokens(intact as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tenantry_profiles::{AdapterImplementation, ModelKind};

    use super::*;
    use crate::server::memory::tests::extremes;
    use crate::spec::LoraSpec;

    /// Requests with room for so many tokens each, on pages of 16.
    fn rooms(tokens: &[u32]) -> Rooms {
        let mut rooms = Rooms::default();
        rooms.begin(0, &[0; 16]);
        tokens.iter().for_each(|&tokens| rooms.add(tokens));
        rooms
    }

    #[test]
    fn a_run_is_promised_half_of_what_is_free() {
        let mut pages = Pages::new(PageSize::new(16), 100);
        pages.take(94);
        // Of six three: the step after those that it makes has pages too.
        let pair = rooms(&[5, 5]);
        assert_eq!(pages.steps_of_half(&pair, 1_000), (5 + 16 - 1, 2));
        assert_eq!(pages.steps_of_half(&pair, 3), (3, 0));
        // Who comes may have those that nobody reads, and a run those that nobody uses.
        pages.set_idle(3);
        assert_eq!(pages.steps_of_half(&pair, 1_000), (5 + 32 - 1, 4));
        pages.set_idle(90);
        assert_eq!(pages.steps_of_half(&pair, 1_000), (5 + 48 - 1, 6));
        // One step has pages in any case.
        pages.set_idle(0);
        pages.take(4);
        assert_eq!(pages.steps_of_half(&rooms(&[0, 0, 1]), 1_000), (1, 2));
    }

    proptest! {
        /// As many steps as pages are enough for, and no more.
        #[test]
        fn steps_have_their_pages(
            tokens in proptest::collection::vec(0u32..=16, 1..20), most in 1u32..200, pages in 0u32..200,
        ) {
            let (all, rooms) = (Pages::new(PageSize::new(16), 1_000), rooms(&tokens));
            let taken = |steps: u32| tokens.iter().map(|&tokens| steps.saturating_sub(tokens).div_ceil(16)).sum::<u32>();
            let expected = (1..=most).rev().find(|&steps| taken(steps) <= pages).unwrap_or(1);
            prop_assert_eq!(all.steps(&rooms, most, pages), (expected, taken(expected)));
        }

        /// However much there is of everything, it is planned or refused, and what is planned fits.
        #[test]
        fn what_is_too_much_is_refused(
            (cluster, pool, tenants) in extremes(ModelKind::Decoder),
            (slots, host_slots, rank) in (any::<u32>(), proptest::option::of(any::<u32>()), 0u32..=20),
            (page_tokens, tensor_parallel) in (0u32..=20, 0u32..=3),
        ) {
            let lora = LoraSpec {
                rank: 1 << rank,
                implementation: AdapterImplementation::Loop,
                slots: slots.max(1),
                host_slots,
            };
            let generation = GenerationSpec {
                lora: (pool.tenant_state == TenantState::Head && slots % 2 == 0).then_some(lora),
                slots: slots.max(1),
                page_tokens: 1 << page_tokens,
                tensor_parallel: 1 << tensor_parallel,
                ..GenerationSpec::default()
            };
            let instances = cluster.gpus.div_ceil(generation.tensor_parallel);
            match GenerationMemory::plan(&cluster, &pool, &generation, tenants, instances as usize) {
                Ok(memory) => {
                    let pages = u64::from(memory.pages) * u64::from(instances);
                    prop_assert_eq!(memory.used(instances, u32::MAX, pages).check(), Ok(()));
                }
                Err(ServerError::BackboneDoesNotFit { needed_bytes, available_bytes, .. }) => {
                    prop_assert!(needed_bytes > available_bytes);
                }
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            }
        }
    }
}
