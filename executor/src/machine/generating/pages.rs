//! Which pages of an instance's cache are whose. The server counts pages; this gives them places.

/// A request's pages, in order. It cannot be copied: a page is held once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeldPages(Vec<u32>);

impl HeldPages {
    /// Their ids.
    pub fn ids(&self) -> &[u32] {
        &self.0
    }
}

/// The pages that nobody holds.
#[derive(Debug)]
pub struct PagePool {
    /// Given back; the last of them goes out first, since it is the likeliest to be in the processor's caches.
    returned: Vec<u32>,
    /// From here on, none has ever been held.
    untouched: u32,
    total: u32,
}

impl PagePool {
    /// Pages `0..total`, all free.
    pub fn new(total: u32) -> PagePool {
        PagePool {
            returned: Vec::new(),
            untouched: 0,
            total,
        }
    }

    /// How many there are.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// How many are free.
    pub fn free(&self) -> u32 {
        self.returned.len() as u32 + self.total - self.untouched
    }

    /// Lets `held` grow to so many pages; it never shrinks.
    ///
    /// # Panics
    /// When there are not enough: the server counts pages and promises none that there is not.
    pub fn grow(&mut self, held: &mut HeldPages, pages: u32) {
        while (held.0.len() as u32) < pages {
            let page = self.returned.pop().unwrap_or_else(|| {
                assert!(self.untouched < self.total, "more pages are held than there are");
                self.untouched += 1;
                self.untouched - 1
            });
            held.0.push(page);
        }
    }

    /// Takes all pages back.
    pub fn give_back(&mut self, held: HeldPages) {
        self.returned.extend(held.0.into_iter().rev());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Grows request `who` by so many pages, as far as there are, or gives all that it holds back.
    #[derive(Clone, Copy, Debug)]
    enum Move {
        Grow { who: usize, by: u32 },
        Leave { who: usize },
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            3 => (0usize..24, 0u32..9).prop_map(|(who, by)| Move::Grow { who, by }),
            1 => (0usize..24).prop_map(|who| Move::Leave { who }),
        ];
        proptest::collection::vec(one, 10_000..20_000)
    }

    proptest! {
        // A million moves.
        #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn no_page_is_lost_or_shared(total in 1u32..200, moves in moves()) {
            let mut pool = PagePool::new(total);
            let mut held: Vec<HeldPages> = (0..24).map(|_| HeldPages::default()).collect();
            // Who holds each page, as an account of its own.
            let mut owner: Vec<Option<usize>> = vec![None; total as usize];
            for step in moves {
                match step {
                    Move::Grow { who, by } => {
                        let before = held[who].ids().to_vec();
                        let pages = before.len() as u32 + by.min(pool.free());
                        pool.grow(&mut held[who], pages);
                        prop_assert_eq!(held[who].ids().len() as u32, pages);
                        prop_assert_eq!(&held[who].ids()[..before.len()], &before[..], "what is cached stays where it \
                                                                                        is");
                        for &page in &held[who].ids()[before.len()..] {
                            prop_assert!(owner[page as usize].is_none(), "page {} is shared", page);
                            owner[page as usize] = Some(who);
                        }
                    }
                    Move::Leave { who } => {
                        let leaving = std::mem::take(&mut held[who]);
                        for &page in leaving.ids() {
                            prop_assert_eq!(owner[page as usize].take(), Some(who));
                        }
                        pool.give_back(leaving);
                    }
                }
                let owned = owner.iter().flatten().count() as u32;
                prop_assert_eq!(pool.free(), total - owned, "a page is lost");
            }
        }
    }

    #[test]
    #[should_panic(expected = "more pages are held than there are")]
    fn a_page_that_there_is_not_is_a_broken_promise() {
        PagePool::new(3).grow(&mut HeldPages::default(), 4);
    }
}
