//! Whose the pages of an instance's cache are, and what comes there from other instances' caches or goes from it to them.
//!
//! The lane that computes has requests of its own. The lane that copies keys and values from instance to instance finds here what is to be
//! copied, and takes pages for it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenantry_core::command::FailureReason;
use tenantry_core::ids::RequestId;
use tenantry_core::op::{Member, OpKind, SharedPrefix, Transfer};

use super::UNBROKEN;
use super::pages::{HeldPages, PagePool};
use crate::decoder::KvCache;
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::machine::Batch;
use crate::machine::serving::{fail_all, reason};
use crate::machine::threads::Perform;

/// The longest that a lane takes to let go of pages that the server counts as free: it does so between two runs.
const PATIENCE: Duration = Duration::from_secs(600);

/// What an instance keeps of a request from its first step here until it leaves.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Of its prompt and of what it has generated.
    pub ids: Vec<i64>,
    pub pages: HeldPages,
    /// Ids of the pages of its prefix, and then of its own.
    pub table: Vec<u32>,
    pub shared_pages: u32,
}

#[derive(Debug)]
struct State {
    pages: PagePool,
    /// Pages that several requests read.
    prefixes: HashMap<u32, HeldPages>,
    /// From elsewhere, until their first step here.
    landed: HashMap<RequestId, Held>,
    /// Requests whose prompts are complete, to go on elsewhere: their ids and pages.
    complete: HashMap<RequestId, (Vec<i64>, Vec<u32>)>,
    /// The lane that computes is gone: no page comes back any more.
    ended: bool,
}

/// A handle on one instance's.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<(Mutex<State>, Condvar)>);

impl Places {
    /// All pages are free.
    pub fn new(pages: u32) -> Places {
        let state = State {
            pages: PagePool::new(pages),
            prefixes: HashMap::new(),
            landed: HashMap::new(),
            complete: HashMap::new(),
            ended: false,
        };
        Places(Arc::new((Mutex::new(state), Condvar::new())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().expect(UNBROKEN)
    }

    /// Lets `held` grow to so many pages.
    pub fn grow(&self, held: &mut HeldPages, pages: u32) {
        if (held.ids().len() as u32) < pages {
            self.state().pages.grow(held, pages);
        }
    }

    /// Takes all of a request's pages back.
    pub fn give_back(&self, held: HeldPages) {
        self.state().pages.give_back(held);
        self.0.1.notify_all();
    }

    /// The lane that computes is gone: whoever waits for its pages need not.
    fn end(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.1.notify_all();
    }

    /// Ids of a prefix's pages, of which the first to name it computes them.
    pub fn prefix(&self, prefix: SharedPrefix) -> Vec<u32> {
        self.state().prefix(prefix)
    }

    /// Nobody reads a prefix any more.
    pub fn release_prefix(&self, prefix: u32) {
        let mut state = self.state();
        // One whose request never ran is not known here.
        let pages = state.prefixes.remove(&prefix).unwrap_or_default();
        state.pages.give_back(pages);
        drop(state);
        self.0.1.notify_all();
    }

    /// A request's prompt is complete: what others may copy.
    pub fn complete(&self, request: RequestId, held: &Held) {
        let copied = (held.ids.clone(), held.table.clone());
        self.state().complete.insert(request, copied);
    }

    /// A request goes on nowhere, or has been copied.
    pub fn forget(&self, request: RequestId) {
        self.state().complete.remove(&request);
    }

    /// What has come of a request from elsewhere.
    pub fn take_landed(&self, request: RequestId) -> Option<Held> {
        self.state().landed.remove(&request)
    }

    /// Whether pages are held by prefixes, by those that come from elsewhere and, as `others` says, by those that run here, and by nobody
    /// else.
    pub fn check(&self, others: bool, total: u32) {
        let state = self.state();
        let held = others || !state.prefixes.is_empty() || !state.landed.is_empty();
        assert_eq!(held, state.pages.free() != total, "a page is lost");
    }

    /// Takes pages for what comes of a request from elsewhere, so many with those of its prefix. Ids of all of them.
    fn land(&self, member: &Member, ids: Vec<i64>, pages: u32) -> Option<Vec<u32>> {
        let prefix = member.sequence.prefix;
        let own = pages - prefix.map_or(0, |prefix| prefix.pages);
        let wanted = |state: &State| {
            let known = prefix.and_then(|prefix| state.prefixes.get(&prefix.id));
            let begun = prefix.map_or(0, |prefix| prefix.pages);
            own + known.map_or(begun, |_| 0)
        };
        // What the server counts as free may be with a lane that has not heard yet.
        let lacks = |state: &mut State| !state.ended && state.pages.free() < wanted(state);
        let waited = self.0.1.wait_timeout_while(self.state(), PATIENCE, lacks);
        let (mut state, timeout) = waited.expect(UNBROKEN);
        if timeout.timed_out() || state.ended {
            return None;
        }
        let mut table = prefix.map_or_else(Vec::new, |prefix| state.prefix(prefix));
        let mut held = HeldPages::default();
        state.pages.grow(&mut held, own);
        let shared_pages = table.len() as u32;
        table.extend_from_slice(held.ids());
        let landed = Held {
            ids,
            pages: held,
            table: table.clone(),
            shared_pages,
        };
        state.landed.insert(member.request, landed);
        Some(table)
    }
}

/// The handle of the lane that computes, whose end, or whose panic, is that of its pages.
#[derive(Debug)]
pub(super) struct OwnPlaces(pub Places);

impl Deref for OwnPlaces {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.0
    }
}

impl Drop for OwnPlaces {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl State {
    fn prefix(&mut self, prefix: SharedPrefix) -> Vec<u32> {
        let pages = self.prefixes.entry(prefix.id).or_default();
        self.pages.grow(pages, prefix.pages);
        pages.ids()[..prefix.pages as usize].to_vec()
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
        let landed = landed.ok_or(FailureReason::OutOfMemory)?;
        let copied = transfer.first_page as usize..all_pages as usize;
        let done = cache.copy_pages(&landed[copied.clone()], &self.caches[from], &table[copied]);
        let done = done.and_then(|()| synchronize(cache.device()));
        done.map_err(|error: ExecutorError| {
            // Its pages are given back when it leaves.
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
        let first = places.land(&member(0, prefix), vec![7], 4).unwrap();
        let second = places.land(&member(1, prefix), vec![8], 5).unwrap();
        assert_eq!((first.len(), second.len()), (4, 5));
        assert_eq!(first[..2], second[..2], "the prefix is there once");
        assert_eq!(places.state().pages.free(), 8 - 2 - 2 - 3);
        places.check(false, 8);
        let landed = places.take_landed(member(0, None).request).unwrap();
        assert_eq!((landed.table, landed.shared_pages, landed.ids), (first, 2, vec![7]));
    }

    #[test]
    fn nobody_waits_for_pages_of_a_lane_that_is_gone() {
        let places = Places::new(4);
        let mut held = HeldPages::default();
        places.grow(&mut held, 3);
        std::thread::scope(|scope| {
            let lands = scope.spawn(|| places.land(&member(0, None), Vec::new(), 3));
            drop(OwnPlaces(places.clone()));
            assert_eq!(lands.join().unwrap(), None);
        });
    }

    /// The lane that computes gives pages back when it comes to it; until then what the server counts on is waited for.
    #[test]
    fn who_lacks_pages_waits_for_them() {
        let places = Places::new(4);
        let mut held = HeldPages::default();
        places.grow(&mut held, 3);
        std::thread::scope(|scope| {
            let lands = scope.spawn(|| places.land(&member(0, None), Vec::new(), 3));
            places.give_back(held);
            assert_eq!(lands.join().unwrap().map(|table| table.len()), Some(3));
        });
        let landed = places.take_landed(member(0, None).request).unwrap();
        places.give_back(landed.pages);
        places.check(false, 4);
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
        // Some two million moves.
        #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

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
                        let table = places.land(&member(who, prefix), vec![who.into()], own + of_prefix).expect("there \
                                                                                                                 is \
                                                                                                                 room");
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
                        let before = held.pages.ids().to_vec();
                        let pages = before.len() as u32 + by.min(places.state().pages.free());
                        places.grow(&mut held.pages, pages);
                        prop_assert_eq!(&held.pages.ids()[..before.len()], &before[..], "what is cached stays where it \
                                                                                         is");
                        for &page in &held.pages.ids()[before.len()..] {
                            let before = owner[page as usize].replace(Owner::Request(who));
                            prop_assert!(before.is_none(), "page {} is {:?}'s", page, before);
                        }
                    }
                    Move::Leave { who } => {
                        let Some(gone) = here.remove(&who) else { continue };
                        // One that never ran here is let go of from where it landed.
                        let held = gone.held.or_else(|| places.take_landed(member(who, None).request));
                        for &page in held.as_ref().expect("it is here").pages.ids() {
                            prop_assert_eq!(owner[page as usize].take(), Some(Owner::Request(who)));
                        }
                        places.give_back(held.expect("it is here").pages);
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
