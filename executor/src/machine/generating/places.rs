//! Whose the pages of an instance's cache are, and what comes there from other instances' caches or goes from it to
//! them.
//!
//! The lane that computes has requests of its own. The lane that copies keys and values from instance to instance finds
//! here what is to be copied, and takes pages for it. What the server counts as free is free at once, whatever the lane
//! that computes is doing meanwhile: nobody's run needs the pages of who has left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tenantry_core::command::FailureReason;
use tenantry_core::ids::RequestId;
use tenantry_core::op::{Member, OpKind, SharedPrefix, Transfer};

use super::pages::{HeldPages, PagePool};
use crate::decoder::KvCache;
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::machine::Batch;
use crate::machine::retrieval::UNBROKEN;
use crate::machine::serving::{fail_all, reason};
use crate::machine::threads::{Perform, Vacate};

/// What an instance keeps of a request from its first step here until it leaves.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Of its prompt and of what it has generated.
    pub ids: Vec<i64>,
    /// Ids of the pages of its prefix, and then of its own.
    pub table: Vec<u32>,
    pub shared_pages: u32,
}

#[derive(Debug)]
struct State {
    pages: PagePool,
    /// Requests' own pages.
    held: HashMap<RequestId, HeldPages>,
    /// Pages that several requests read.
    prefixes: HashMap<u32, HeldPages>,
    /// From elsewhere, until their first step here.
    landed: HashMap<RequestId, Held>,
    /// Requests whose prompts are complete, to go on elsewhere: their ids and pages.
    complete: HashMap<RequestId, (Vec<i64>, Vec<u32>)>,
}

/// A handle on one instance's.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Mutex<State>>);

impl Places {
    /// All pages are free.
    pub fn new(pages: u32) -> Places {
        Places(Arc::new(Mutex::new(State {
            pages: PagePool::new(pages),
            held: HashMap::new(),
            prefixes: HashMap::new(),
            landed: HashMap::new(),
            complete: HashMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect(UNBROKEN)
    }

    /// Lets a request have so many pages, with those of its prefix.
    pub fn grow(&self, request: RequestId, held: &mut Held, pages: u32) {
        let known = held.table.len() as u32;
        if known < pages {
            let mut state = self.state();
            let own = state.grow(request, pages - held.shared_pages);
            held.table.extend_from_slice(&own[(known - held.shared_pages) as usize..]);
        }
    }

    /// Ids of a prefix's pages, of which the first to name it computes them.
    pub fn prefix(&self, prefix: SharedPrefix) -> Vec<u32> {
        self.state().prefix(prefix)
    }

    /// A request's prompt is complete: what others may copy.
    pub fn complete(&self, request: RequestId, held: &Held) {
        let copied = (held.ids.clone(), held.table.clone());
        self.state().complete.insert(request, copied);
    }

    /// What has come of a request from elsewhere.
    pub fn take_landed(&self, request: RequestId) -> Option<Held> {
        self.state().landed.remove(&request)
    }

    /// Takes pages for what comes of a request from elsewhere, so many with those of its prefix. Ids of all of them.
    fn land(&self, member: &Member, ids: Vec<i64>, pages: u32) -> Vec<u32> {
        let mut state = self.state();
        let mut table = member.sequence.prefix.map_or_else(Vec::new, |prefix| state.prefix(prefix));
        let shared_pages = table.len() as u32;
        table.extend_from_slice(state.grow(member.request, pages - shared_pages));
        let landed = Held {
            ids,
            table: table.clone(),
            shared_pages,
        };
        state.landed.insert(member.request, landed);
        table
    }
}

impl Vacate for Places {
    fn release(&self, request: RequestId) {
        // Of a lane that panicked with it the run hears elsewhere.
        let Ok(mut state) = self.0.lock() else { return };
        state.landed.remove(&request);
        state.complete.remove(&request);
        // One that never ran here has none.
        let pages = state.held.remove(&request).unwrap_or_default();
        state.give_back(pages);
    }

    fn release_prefix(&self, prefix: u32) {
        let Ok(mut state) = self.0.lock() else { return };
        // One whose request never ran is not known here.
        let pages = state.prefixes.remove(&prefix).unwrap_or_default();
        state.give_back(pages);
    }
}

impl State {
    /// Ids of a request's own pages, of which it then has so many.
    fn grow(&mut self, request: RequestId, pages: u32) -> &[u32] {
        let own = self.held.entry(request).or_default();
        self.pages.grow(own, pages);
        own.ids()
    }

    fn prefix(&mut self, prefix: SharedPrefix) -> Vec<u32> {
        let pages = self.prefixes.entry(prefix.id).or_default();
        self.pages.grow(pages, prefix.pages);
        pages.ids()[..prefix.pages as usize].to_vec()
    }

    fn give_back(&mut self, pages: HeldPages) {
        self.pages.give_back(pages);
        let held = self.held.values().chain(self.prefixes.values());
        let held: usize = held.map(|pages| pages.ids().len()).sum();
        assert_eq!(held as u32 + self.pages.free(), self.pages.total(), "a page is lost");
    }
}

/// Copies keys and values from instance to instance.
pub(super) struct LinkLane {
    /// By instance.
    pub caches: Vec<KvCache>,
    /// By instance.
    pub places: Vec<Places>,
}

impl LinkLane {
    fn transfer(&self, transfer: &Transfer, batch: &Batch) -> Result<(), FailureReason> {
        let (from, to) = (transfer.from.index(), batch.instance.index());
        let member = &batch.members[0];
        let complete = self.places[from].state().complete.get(&member.request).cloned();
        let (ids, table) = complete.expect("what is copied has been completed there");
        let cache = &self.caches[to];
        let all_pages = cache.pages_for(member.sequence.cached_tokens);
        let landed = self.places[to].land(member, ids, all_pages);
        let copied = transfer.first_page as usize..all_pages as usize;
        let done = cache.copy_pages(&landed[copied.clone()], &self.caches[from], &table[copied]);
        let done = done.and_then(|()| synchronize(cache.device()));
        done.map_err(|error: ExecutorError| {
            // What was issued before it failed still writes into pages that are another's as soon as it leaves.
            let _ = synchronize(cache.device());
            reason(&error, FailureReason::LoadFailed)
        })
    }
}

impl Perform for LinkLane {
    fn device(&self) -> tch::Device {
        self.caches.first().map_or(tch::Device::Cpu, KvCache::device)
    }

    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        Ok(())
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let OpKind::Transfer(transfer) = kind else {
            unreachable!("a link carries keys and values")
        };
        if let Err(reason) = self.transfer(transfer, batch) {
            fail_all(batch, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tenantry_core::op::Sequence;

    use super::*;

    fn member(slot: u32, prefix: Option<SharedPrefix>) -> Member {
        Member {
            request: RequestId { slot, generation: 0 },
            ticket: slot.into(),
            tenant: 0,
            input_tokens: 8,
            slot: 0,
            sequence: Sequence {
                prefix,
                ..Sequence::default()
            },
        }
    }

    #[test]
    fn what_comes_takes_pages_of_its_own_and_shares_its_prefix() {
        let places = Places::new(8);
        let prefix = Some(SharedPrefix { id: 3, pages: 2 });
        let first = places.land(&member(0, prefix), vec![7], 4);
        let second = places.land(&member(1, prefix), vec![8], 5);
        assert_eq!((first.len(), second.len()), (4, 5));
        assert_eq!(first[..2], second[..2], "the prefix is there once");
        assert_eq!(places.state().pages.free(), 8 - 2 - 2 - 3);
        let landed = places.take_landed(member(0, None).request).unwrap();
        assert_eq!((landed.table, landed.shared_pages, landed.ids), (first, 2, vec![7]));
    }

    /// A run was promised the last two pages when somebody left who had two others. Whoever comes next has those of who
    /// left, though the lane that computes has not heard of it, and none that the run still grows into.
    #[test]
    fn who_comes_has_the_pages_of_who_left_and_none_of_a_runs() {
        let places = Places::new(4);
        let request = |slot| member(slot, None).request;
        let mut runs = Held::default();
        places.land(&member(1, None), Vec::new(), 2);
        places.release(request(1));
        let comes = places.land(&member(2, None), Vec::new(), 2);
        places.grow(request(0), &mut runs, 1);
        places.grow(request(0), &mut runs, 2);
        assert!(runs.table.iter().all(|page| !comes.contains(page)));
        assert!(places.take_landed(request(1)).is_none());
        // What the lane hears afterwards, of one who has come again, changes nothing.
        places.release(request(0));
        let again = places.land(&member(0, None), vec![5], 2);
        assert_eq!(places.take_landed(request(0)).map(|held| held.table), Some(again));
    }

    /// What may happen to requests, in any order.
    #[derive(Clone, Copy, Debug)]
    enum Move {
        /// One comes from elsewhere, with so many pages of its own beside its prefix's.
        Land { who: u32, prefix: Option<u32>, own: u32 },
        /// Its first step, by so many pages longer.
        Run { who: u32, by: u32 },
        /// It ends, is evicted, goes on elsewhere or is given up.
        Leave { who: u32 },
        /// Nobody reads a prefix any more.
        Release { prefix: u32 },
    }

    const WHO: u32 = 12;
    const PREFIXES: u32 = 4;

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let prefix = proptest::option::of(0..PREFIXES);
        let one = prop_oneof![
            3 => (0..WHO, prefix, 1u32..5).prop_map(|(who, prefix, own)| Move::Land { who, prefix, own }),
            3 => (0..WHO, 0u32..4).prop_map(|(who, by)| Move::Run { who, by }),
            2 => (0..WHO).prop_map(|who| Move::Leave { who }),
            1 => (0..PREFIXES).prop_map(|prefix| Move::Release { prefix }),
        ];
        proptest::collection::vec(one, 5_000..10_000)
    }

    /// Who holds a page, as an account of its own.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Owner {
        Request(u32),
        Prefix(u32),
    }

    /// What an account knows of one that is here.
    struct Here {
        prefix: Option<SharedPrefix>,
        /// Once it runs.
        held: Option<Held>,
        table: Vec<u32>,
    }

    proptest! {
        // Some half a million moves.
        #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn no_page_is_lost_or_shared_by_those_who_should_not(total in 8u32..60, moves in moves()) {
            let places = Places::new(total);
            let mut owner: Vec<Option<Owner>> = vec![None; total as usize];
            let mut here: BTreeMap<u32, Here> = BTreeMap::new();
            let mut prefixes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            // Each prefix is of as many pages wherever it is named.
            let shared = |id: u32| SharedPrefix { id, pages: 1 + id % 3 };
            for step in moves {
                match step {
                    Move::Land { who, prefix, own } if !here.contains_key(&who) => {
                        let prefix = prefix.map(shared);
                        let begun = prefix.filter(|of| !prefixes.contains_key(&of.id)).map_or(0, |of| of.pages);
                        if places.state().pages.free() < own + begun {
                            continue;
                        }
                        let of_prefix = prefix.map_or(0, |of| of.pages);
                        let table = places.land(&member(who, prefix), vec![who.into()], own + of_prefix);
                        prop_assert_eq!(table.len() as u32, own + of_prefix);
                        let (front, back) = table.split_at(of_prefix as usize);
                        if let Some(prefix) = prefix {
                            let known = prefixes.entry(prefix.id).or_insert_with(|| {
                                front.iter().for_each(|&page| {
                                    assert!(owner[page as usize].replace(Owner::Prefix(prefix.id)).is_none());
                                });
                                front.to_vec()
                            });
                            prop_assert_eq!(&known[..], front, "all read the same");
                        }
                        for &page in back {
                            let before = owner[page as usize].replace(Owner::Request(who));
                            prop_assert!(before.is_none(), "page {} is {:?}'s", page, before);
                        }
                        here.insert(who, Here { prefix, held: None, table });
                    }
                    Move::Run { who, by } => {
                        let Some(Here { held, table, .. }) = here.get_mut(&who) else { continue };
                        if held.is_none() {
                            let landed = places.take_landed(member(who, None).request).expect("it came");
                            prop_assert_eq!((&landed.table, &landed.ids), (&*table, &vec![i64::from(who)]));
                            *held = Some(landed);
                        }
                        let held = held.as_mut().expect("it runs");
                        let before = held.table.clone();
                        let pages = before.len() as u32 + by.min(places.state().pages.free());
                        places.grow(member(who, None).request, held, pages);
                        prop_assert_eq!(&held.table[..before.len()], &before[..], "what is cached stays where it is");
                        for &page in &held.table[before.len()..] {
                            let before = owner[page as usize].replace(Owner::Request(who));
                            prop_assert!(before.is_none(), "page {} is {:?}'s", page, before);
                        }
                    }
                    Move::Leave { who } => {
                        let Some(gone) = here.remove(&who) else { continue };
                        let of_prefix = gone.prefix.map_or(0, |of| of.pages) as usize;
                        let table = gone.held.map_or(gone.table, |held| held.table);
                        for &page in &table[of_prefix..] {
                            prop_assert_eq!(owner[page as usize].take(), Some(Owner::Request(who)));
                        }
                        places.release(member(who, None).request);
                    }
                    Move::Release { prefix } => {
                        if here.values().any(|other| other.prefix.is_some_and(|of| of.id == prefix)) {
                            continue;
                        }
                        places.release_prefix(prefix);
                        for page in prefixes.remove(&prefix).unwrap_or_default() {
                            prop_assert_eq!(owner[page as usize].take(), Some(Owner::Prefix(prefix)));
                        }
                    }
                    Move::Land { .. } => {}
                }
                let owned = owner.iter().flatten().count() as u32;
                prop_assert_eq!(places.state().pages.free(), total - owned, "a page is lost");
            }
        }
    }
}
