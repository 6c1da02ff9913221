//! What a tenant's prompts have in common, cached once on an instance.
//!
//! The first whole pages of a prompt belong to its tenant's *prefix* and not to the request, and any number of requests
//! read them. The request that comes first computes them; those that come while it does compute their own. A prompt
//! that has more of the common text than its tenant's prefix begins a longer one, which others find in its place. A
//! prefix that nobody reads stays until its pages are wanted, the one that was left first going first. An instance
//! counts the readers of each; a page is let go of when there are none. Another tenant never finds it: its keys and
//! values are those of its tenant's adapters.

use std::collections::{BTreeMap, BTreeSet};

use crate::op::SharedPrefix;

/// One instance's.
#[derive(Debug)]
pub(super) struct Prefixes {
    /// Tokens that a tenant's prompts have in common.
    tokens: u32,
    page_tokens: u32,
    /// Those that can be found, or are being computed.
    by_tenant: BTreeMap<u32, u32>,
    all: BTreeMap<u32, Prefix>,
    /// That nobody reads, by when they were left.
    idle: BTreeSet<(u64, u32)>,
    idle_pages: u32,
    /// So many were ever made, and left.
    made: u32,
    left: u64,
}

#[derive(Debug)]
struct Prefix {
    tenant: u32,
    pages: u32,
    readers: u32,
    /// Whether all its tokens are in the cache.
    complete: bool,
    /// When it was left, where it is idle.
    left: u64,
}

/// What a request has of its tenant's prefix when it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It is there.
    Found(SharedPrefix),
    /// It is this request's to be computed, and one that was shorter and that nobody reads is to be let go of.
    Begun(SharedPrefix, Option<SharedPrefix>),
    /// Nothing: the prompt is short, or another request is computing it.
    Alone,
}

impl Prefixes {
    pub fn new(tokens: u32, page_tokens: u32) -> Prefixes {
        Prefixes {
            tokens,
            page_tokens,
            by_tenant: BTreeMap::new(),
            all: BTreeMap::new(),
            idle: BTreeSet::new(),
            idle_pages: 0,
            made: 0,
            left: 0,
        }
    }

    /// Whole pages that such a prompt has in common with others. Its last token is its own: what follows it is to be
    /// computed.
    fn pages_of(&self, prompt_tokens: u32) -> u32 {
        match self.tokens {
            // Mostly there is no common text, and no need of a division.
            0 => 0,
            tokens => tokens.min(prompt_tokens.saturating_sub(1)) / self.page_tokens,
        }
    }

    /// Pages of a prompt that a request would find and others read already. What nobody reads could be let go of: it
    /// takes room again when it is read.
    pub fn would_share(&self, tenant: u32, prompt_tokens: u32) -> u32 {
        let wanted = self.pages_of(prompt_tokens);
        let prefix = self.by_tenant.get(&tenant).map(|id| &self.all[id]);
        let read = prefix.is_some_and(|prefix| prefix.complete && prefix.readers > 0 && wanted <= prefix.pages);
        if read { wanted } else { 0 }
    }

    /// A request comes. The pages of a prefix that it begins are to be taken.
    pub fn enter(&mut self, tenant: u32, prompt_tokens: u32) -> Entered {
        let wanted = self.pages_of(prompt_tokens);
        if wanted == 0 {
            return Entered::Alone;
        }
        let mut outgrown = None;
        if let Some(&id) = self.by_tenant.get(&tenant) {
            let prefix = self.all.get_mut(&id).expect("what is found is there");
            // For the sake of a shorter prompt, none is kept from being let go of.
            if !prefix.complete || prefix.readers == 0 && wanted < prefix.pages {
                return Entered::Alone;
            }
            if wanted <= prefix.pages {
                if prefix.readers == 0 {
                    self.idle.remove(&(prefix.left, id));
                    self.idle_pages -= prefix.pages;
                }
                prefix.readers += 1;
                return Entered::Found(SharedPrefix { id, pages: wanted });
            }
            outgrown = self.invalidate(tenant);
        }
        let id = self.made;
        self.made += 1;
        self.by_tenant.insert(tenant, id);
        let prefix = Prefix {
            tenant,
            pages: wanted,
            readers: 1,
            complete: false,
            left: 0,
        };
        self.all.insert(id, prefix);
        Entered::Begun(SharedPrefix { id, pages: wanted }, outgrown)
    }

    /// A request has so many tokens in the cache: if it is the one that computes its prefix, others may find it now.
    pub fn cached(&mut self, of: SharedPrefix, tokens: u32) {
        let prefix = self.all.get_mut(&of.id).expect("its reader keeps it");
        prefix.complete |= tokens >= prefix.pages * self.page_tokens;
    }

    /// A reader leaves. The pages that are to be let go of, if nobody can find what it read.
    #[must_use]
    pub fn leave(&mut self, of: SharedPrefix) -> Option<SharedPrefix> {
        let prefix = self.all.get_mut(&of.id).expect("its reader keeps it");
        prefix.readers -= 1;
        if prefix.readers > 0 {
            return None;
        }
        let found = self.by_tenant.get(&prefix.tenant) == Some(&of.id);
        if found && prefix.complete {
            prefix.left = self.left;
            self.left += 1;
            self.idle.insert((prefix.left, of.id));
            self.idle_pages += prefix.pages;
            return None;
        }
        if found {
            self.by_tenant.remove(&prefix.tenant);
        }
        Some(self.remove(of.id))
    }

    fn remove(&mut self, id: u32) -> SharedPrefix {
        let pages = self.all.remove(&id).expect("it is there").pages;
        SharedPrefix { id, pages }
    }

    /// Pages that could be let go of.
    pub fn idle_pages(&self) -> u32 {
        self.idle_pages
    }

    /// Lets go of the one that was left first.
    pub fn reclaim(&mut self) -> Option<SharedPrefix> {
        let (_, id) = self.idle.pop_first()?;
        let gone = self.remove_found(id);
        self.idle_pages -= gone.pages;
        Some(gone)
    }

    fn remove_found(&mut self, id: u32) -> SharedPrefix {
        self.by_tenant.remove(&self.all[&id].tenant);
        self.remove(id)
    }

    /// Nobody finds a tenant's prefix any more, since its adapters are others now, or none, or since a longer one is
    /// computed. The pages to be let go of, if nobody reads it either.
    #[must_use]
    pub fn invalidate(&mut self, tenant: u32) -> Option<SharedPrefix> {
        let id = self.by_tenant.remove(&tenant)?;
        let Prefix { readers, left, .. } = self.all[&id];
        if readers > 0 {
            return None;
        }
        self.idle.remove(&(left, id));
        let gone = self.remove(id);
        self.idle_pages -= gone.pages;
        Some(gone)
    }

    /// All pages, and each prefix's readers.
    pub fn held(&self) -> (u32, BTreeMap<u32, u32>) {
        let pages = self.all.values().map(|prefix| prefix.pages).sum();
        (
            pages,
            self.all.iter().map(|(id, prefix)| (*id, prefix.readers)).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE_TOKENS: u32 = 4;

    #[test]
    fn who_comes_first_computes_and_the_others_find() {
        let mut prefixes = Prefixes::new(10, PAGE_TOKENS);
        assert_eq!(
            prefixes.enter(7, 4),
            Entered::Alone,
            "the last token of a prompt is its own"
        );
        let Entered::Begun(first, None) = prefixes.enter(7, 30) else {
            panic!("nobody was there")
        };
        assert_eq!(first.pages, 2, "whole pages of ten tokens");
        assert_eq!(prefixes.enter(7, 30), Entered::Alone, "it is being computed");
        prefixes.cached(first, 7);
        assert_eq!(prefixes.would_share(7, 30), 0);
        prefixes.cached(first, 8);
        assert_eq!(prefixes.would_share(7, 30), 2);
        assert_eq!(prefixes.would_share(8, 30), 0, "another tenant's are others");
        let shorter = SharedPrefix { pages: 1, ..first };
        assert_eq!(prefixes.enter(7, 6), Entered::Found(shorter));
        assert_eq!((prefixes.leave(first), prefixes.leave(shorter)), (None, None));
        assert_eq!((prefixes.would_share(7, 30), prefixes.idle_pages()), (0, 2));
        assert_eq!(prefixes.enter(7, 6), Entered::Alone, "it would keep two pages for one");
        assert_eq!(prefixes.enter(7, 30), Entered::Found(first));
        assert_eq!((prefixes.leave(first), prefixes.reclaim()), (None, Some(first)));
        assert_eq!((prefixes.idle_pages(), prefixes.held().0), (0, 0));
    }

    #[test]
    fn what_was_never_complete_is_let_go_of() {
        let mut prefixes = Prefixes::new(8, PAGE_TOKENS);
        let Entered::Begun(begun, None) = prefixes.enter(0, 30) else {
            panic!("nobody was there")
        };
        assert_eq!(prefixes.leave(begun), Some(begun));
        assert!(matches!(prefixes.enter(0, 30), Entered::Begun(other, None) if other.id != begun.id));
    }

    #[test]
    fn a_longer_prompt_begins_a_longer_prefix() {
        let mut prefixes = Prefixes::new(24, PAGE_TOKENS);
        let begin = |prefixes: &mut Prefixes, tokens| match prefixes.enter(7, tokens) {
            Entered::Begun(begun, outgrown) => {
                prefixes.cached(begun, tokens);
                (begun, outgrown)
            }
            other => panic!("{other:?}"),
        };
        let (short, _) = begin(&mut prefixes, 6);
        // Whoever reads the short one goes on to.
        let (middle, outgrown) = begin(&mut prefixes, 14);
        assert_eq!((short.pages, middle.pages, outgrown), (1, 3, None));
        assert_eq!(prefixes.leave(short), Some(short), "nobody finds it");
        assert_eq!(prefixes.leave(middle), None);
        // Whoever reads none lets it go.
        let (long, outgrown) = begin(&mut prefixes, 99);
        assert_eq!((long.pages, outgrown), (6, Some(middle)));
        assert_eq!((prefixes.idle_pages(), prefixes.held().0), (0, 6));
        assert_eq!(prefixes.enter(7, 99), Entered::Found(long));
        assert_eq!(prefixes.enter(7, 14), Entered::Found(SharedPrefix { pages: 3, ..long }));
    }

    #[derive(Clone, Copy, Debug)]
    enum Move {
        Enter { tenant: u32, prompt_tokens: u32 },
        Cached { who: usize, tokens: u32 },
        Leave { who: usize },
        Reclaim,
        Invalidate { tenant: u32 },
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            4 => (0u32..6, 1u32..40).prop_map(|(tenant, prompt_tokens)| Move::Enter { tenant, prompt_tokens }),
            3 => (0usize..40, 1u32..40).prop_map(|(who, tokens)| Move::Cached { who, tokens }),
            3 => (0usize..40).prop_map(|who| Move::Leave { who }),
            1 => Just(Move::Reclaim),
            1 => (0u32..6).prop_map(|tenant| Move::Invalidate { tenant }),
        ];
        proptest::collection::vec(one, 2_000..6_000)
    }

    proptest! {
        // A million moves.
        #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

        /// An account of its own of every reader and page: none is let go of while it is read, none is lost, and only
        /// what is complete, current and the tenant's own is found.
        #[test]
        fn pages_are_kept_for_their_readers_and_for_nobody_else(moves in moves()) {
            let mut prefixes = Prefixes::new(24, PAGE_TOKENS);
            // By request: whose, what it reads, and whether it computes it.
            let mut readers: Vec<(u32, SharedPrefix, bool)> = Vec::new();
            // By prefix: pages, complete, current.
            let mut there: BTreeMap<u32, (u32, bool, bool)> = BTreeMap::new();
            let mut owner: BTreeMap<u32, u32> = BTreeMap::new();
            for step in moves {
                let mut gone = None;
                match step {
                    Move::Enter { tenant, prompt_tokens } => match prefixes.enter(tenant, prompt_tokens) {
                        Entered::Begun(begun, outgrown) => {
                            gone = outgrown;
                            for (id, (pages, complete, current)) in &mut there {
                                if *current && owner[id] == tenant {
                                    prop_assert!(*complete && *pages < begun.pages, "it had one");
                                    *current = false;
                                }
                            }
                            prop_assert!(there.insert(begun.id, (begun.pages, false, true)).is_none());
                            owner.insert(begun.id, tenant);
                            readers.push((tenant, begun, true));
                        }
                        Entered::Found(found) => {
                            let (pages, complete, current) = there[&found.id];
                            prop_assert!(complete && current && found.pages <= pages);
                            prop_assert_eq!(owner[&found.id], tenant);
                            prop_assert!(found.pages * PAGE_TOKENS < prompt_tokens);
                            readers.push((tenant, found, false));
                        }
                        Entered::Alone => {}
                    },
                    Move::Cached { who, tokens } if who < readers.len() => {
                        let (_, of, computes) = readers[who];
                        if computes {
                            prefixes.cached(of, tokens);
                            let (pages, complete, _) = there.get_mut(&of.id).expect("it is read");
                            *complete |= tokens >= *pages * PAGE_TOKENS;
                        }
                    }
                    Move::Leave { who } if who < readers.len() => {
                        let (_, of, _) = readers.swap_remove(who);
                        gone = prefixes.leave(of);
                    }
                    Move::Reclaim => {
                        let idle = prefixes.idle_pages();
                        gone = prefixes.reclaim();
                        prop_assert_eq!(gone.is_some(), idle > 0);
                    }
                    Move::Invalidate { tenant } => {
                        gone = prefixes.invalidate(tenant);
                        for (id, (_, _, current)) in &mut there {
                            *current &= owner[id] != tenant;
                        }
                    }
                    Move::Cached { .. } | Move::Leave { .. } => {}
                }
                if let Some(gone) = gone {
                    prop_assert!(readers.iter().all(|(_, of, _)| of.id != gone.id), "it is read");
                    prop_assert_eq!(there.remove(&gone.id).map(|(pages, ..)| pages), Some(gone.pages));
                }
                let (pages, counted) = prefixes.held();
                prop_assert_eq!(pages, there.values().map(|(pages, ..)| pages).sum::<u32>(), "a page is lost");
                prop_assert_eq!(counted.keys().collect::<Vec<_>>(), there.keys().collect::<Vec<_>>());
                let mut idle = 0;
                for (id, count) in counted {
                    let read = readers.iter().filter(|(_, of, _)| of.id == id).count() as u32;
                    prop_assert_eq!(count, read);
                    let (pages, complete, current) = there[&id];
                    prop_assert!(read > 0 || complete && current, "kept for nobody");
                    idle += if read == 0 { pages } else { 0 };
                }
                prop_assert_eq!(prefixes.idle_pages(), idle);
            }
        }
    }
}
