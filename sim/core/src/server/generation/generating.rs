//! Those who generate on an instance, together.
//!
//! From the step that completes its prompt until it leaves, a request does what its instance does: in each run it makes a token a step,
//! takes as long, and is told as late. So nothing is booked on it meanwhile, however many there are: the instance counts what it does,
//! a request remembers how far that was when it joined, and the difference is what became of it ([`Generating::book`]). What policies
//! and machines want to know of all of them at once is kept as a sum, or by what does not change while everybody makes steps.

use tenantry_traces::Duration;

use super::memory::{Rooms, total};
use super::sequence::Sequence;
use crate::event::RunOutcome;

/// What an instance has done since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    runs: u64,
    steps: u64,
    /// These modulo a page's tokens, which are asked for more often than they change.
    over: u32,
    computed: Duration,
    told: Duration,
}

/// What a run took, for each of its requests.
#[derive(Clone, Copy)]
pub(super) struct Took {
    pub computed: Duration,
    /// Until the server heard of its end.
    pub told: Duration,
}

/// One instance's.
#[derive(Debug)]
pub(super) struct Generating {
    page_tokens: u32,
    done: Progress,
    requests: u32,
    /// Of all.
    cached_tokens: u64,
    /// Requests by their tokens in the cache less the steps done, modulo a page's: those with most first, so that rooms are in order.
    by_phase: Vec<u32>,
    /// Whose they are, each as often as it has one, in order; and how many differ.
    tenants: Vec<u32>,
    different_tenants: u32,
    /// The most tokens that one has in the cache, less the steps done. When that one leaves, it must be looked for.
    longest: Option<i64>,
    /// Runs that had more requests than all after them: each one's number, and its requests.
    largest: Vec<(u64, u32)>,
}

impl Generating {
    pub fn new(page_tokens: u32) -> Generating {
        Generating {
            page_tokens,
            done: Progress::default(),
            requests: 0,
            cached_tokens: 0,
            by_phase: vec![0; page_tokens as usize],
            tenants: Vec::new(),
            different_tenants: 0,
            longest: None,
            largest: Vec::new(),
        }
    }

    pub fn requests(&self) -> u32 {
        self.requests
    }

    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens
    }

    pub fn different_tenants(&self) -> u32 {
        self.different_tenants
    }

    pub fn has_tenant(&self, tenant: u32) -> bool {
        self.tenants.binary_search(&tenant).is_ok()
    }

    /// A request's prompt is complete.
    pub fn join(&mut self, sequence: &Sequence) -> Progress {
        self.requests += 1;
        self.cached_tokens += u64::from(sequence.cached_tokens);
        let phase = self.phase(sequence.cached_tokens, self.done);
        self.by_phase[phase] += 1;
        let at = self.tenants.partition_point(|&tenant| tenant < sequence.tenant);
        self.different_tenants += u32::from(self.tenants.get(at) != Some(&sequence.tenant));
        self.tenants.insert(at, sequence.tenant);
        let ahead = ahead(sequence.cached_tokens, self.done);
        self.longest = match self.requests {
            1 => Some(ahead),
            _ => self.longest.map(|longest| longest.max(ahead)),
        };
        self.done
    }

    /// A request that has joined at `since` leaves: all that became of it is booked.
    pub fn leave(&mut self, since: Progress, sequence: &mut Sequence) {
        let phase = self.phase(sequence.cached_tokens, since);
        if self.longest == Some(ahead(sequence.cached_tokens, since)) {
            self.longest = None;
        }
        self.book(since, sequence);
        self.requests -= 1;
        self.cached_tokens -= u64::from(sequence.cached_tokens);
        self.by_phase[phase] -= 1;
        let at = self.tenants.partition_point(|&tenant| tenant < sequence.tenant);
        self.tenants.remove(at);
        self.different_tenants -= u32::from(self.tenants.get(at) != Some(&sequence.tenant));
    }

    /// What stays the same of a request while it makes a token a step: its place among all by their tokens in the cache less the steps done.
    fn phase(&self, cached_tokens: u32, then: Progress) -> usize {
        let page = self.page_tokens;
        let ahead = cached_tokens % page + page - then.over;
        (page - 1 - if ahead < page { ahead } else { ahead - page }) as usize
    }

    /// Steps made since then.
    pub fn steps_since(&self, since: Progress) -> u32 {
        (self.done.steps - since.steps) as u32
    }

    /// Books what has become of a request since it joined.
    pub fn book(&self, since: Progress, sequence: &mut Sequence) {
        let steps = self.steps_since(since);
        sequence.cached_tokens += steps;
        sequence.generated_tokens += steps;
        sequence.computed += Duration(self.done.computed.0 - since.computed.0);
        sequence.told += Duration(self.done.told.0 - since.told.0);
        let own = sequence.cached_tokens - sequence.shared_pages() * self.page_tokens;
        sequence.pages = own.div_ceil(self.page_tokens);
        let later = self.largest.partition_point(|&(run, _)| run <= since.runs);
        let largest = self.largest.get(later).map_or(0, |&(_, requests)| requests);
        sequence.batch_requests = sequence.batch_requests.max(largest);
    }

    /// A run is over. The pages that those who had joined before it have taken.
    pub fn ran(&mut self, outcome: &RunOutcome<'_>, took: Took) -> u32 {
        self.done.runs += 1;
        self.done.computed += took.computed;
        self.done.told += took.told;
        while { self.largest.last() }.is_some_and(|&(_, requests)| requests <= outcome.requests) {
            self.largest.pop();
        }
        self.largest.push((self.done.runs, outcome.requests));
        let steps = outcome.steps;
        if steps == 0 {
            return 0;
        }
        let (whole, last) = ((steps - 1) / self.page_tokens, (steps - 1) % self.page_tokens + 1);
        let pages = match self.requests {
            0 => 0,
            requests => whole * requests + self.with_less_room(last as usize),
        };
        self.done.steps += u64::from(steps);
        self.done.over = (self.done.over + last) % self.page_tokens;
        self.cached_tokens += u64::from(self.requests) * u64::from(steps);
        pages
    }

    /// Requests by the tokens for which there is room on their last page, from none up to all of a page but one.
    fn by_room(&self) -> impl Iterator<Item = u32> + '_ {
        let (first, others) = self.rooms_first();
        first.iter().chain(others).copied()
    }

    /// The same as two lists.
    fn rooms_first(&self) -> (&[u32], &[u32]) {
        let without = match self.done.over {
            0 => self.page_tokens,
            over => over,
        };
        let (others, first) = self.by_phase.split_at(without as usize - 1);
        (first, others)
    }

    /// Requests with room for fewer tokens than these, at most a page's, on their last page.
    fn with_less_room(&self, tokens: usize) -> u32 {
        let (first, others) = self.rooms_first();
        let of_first = tokens.min(first.len());
        total(&first[..of_first]) + total(&others[..tokens - of_first])
    }

    /// Requests that have no room for another token on their pages.
    pub fn without_room(&self) -> u32 {
        self.rooms_first().0[0]
    }

    /// Whether what is kept of all together is what it is of each: for tests. `all` are they, booked.
    pub fn check(&self, all: &[Sequence]) -> Result<(), String> {
        let mut tenants: Vec<u32> = all.iter().map(|sequence| sequence.tenant).collect();
        tenants.sort_unstable();
        let cached = all.iter().map(|sequence| sequence.cached_tokens);
        let mut by_room = vec![0; self.page_tokens as usize];
        cached.clone().for_each(|tokens| {
            let over = tokens % self.page_tokens;
            by_room[((self.page_tokens - over) % self.page_tokens) as usize] += 1;
        });
        let longest = self.longest.map(|longest| longest + self.done.steps as i64);
        let kept = (self.requests, self.cached_tokens, &self.tenants);
        let found = (all.len() as u32, cached.clone().map(u64::from).sum(), &tenants);
        if kept != found || !self.by_room().eq(by_room) {
            return Err(format!(
                "{kept:?} are kept of those who generate, and there are {found:?}"
            ));
        }
        tenants.dedup();
        if self.different_tenants != tenants.len() as u32
            || longest.is_some_and(|longest| cached.max() != Some(longest as u32))
        {
            return Err(format!("{self:?} is kept of those who generate, and {all:?} do"));
        }
        Ok(())
    }

    /// The room of all, before a run's first step.
    pub fn rooms(&self, rooms: &mut Rooms) {
        let (first, others) = self.rooms_first();
        rooms.begin(self.requests, first, others);
    }

    /// The most tokens that a request has in the cache. Since when each has been here and what it had in the cache then is asked for where
    /// that is not known.
    pub fn longest(&mut self, here: impl Iterator<Item = (Progress, u32)>) -> u32 {
        if self.longest.is_none() {
            self.longest = here.map(|(since, cached_tokens)| ahead(cached_tokens, since)).max();
        }
        self.longest
            .map_or(0, |longest| (longest + self.done.steps as i64) as u32)
    }
}

/// Tokens in the cache less the steps done.
fn ahead(cached_tokens: u32, then: Progress) -> i64 {
    i64::from(cached_tokens) - then.steps as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tenantry_traces::{Request, Time};

    use super::*;

    const PAGE_TOKENS: u32 = 4;

    #[derive(Clone, Copy, Debug)]
    enum Move {
        Join {
            tenant: u32,
            tokens: u32,
        },
        Ran {
            steps: u32,
            beside: u32,
            computed: u64,
            told: u64,
        },
        Leave {
            who: usize,
        },
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            2 => (0u32..5, 1u32..30).prop_map(|(tenant, tokens)| Move::Join { tenant, tokens }),
            3 => (0u32..14, 0u32..3, 0u64..99, 0u64..9)
                .prop_map(|(steps, beside, computed, told)| Move::Ran { steps, beside, computed, told }),
            1 => (0usize..20).prop_map(|who| Move::Leave { who }),
        ];
        proptest::collection::vec(one, 0..200)
    }

    fn sequence(tenant: u32, tokens: u32) -> Sequence {
        let request = Request {
            ticket: 0,
            tenant,
            arrival: Time::ZERO,
            input_tokens: tokens,
            output_tokens: u32::MAX,
            class: 0,
        };
        Sequence {
            cached_tokens: tokens,
            pages: tokens.div_ceil(PAGE_TOKENS),
            ..Sequence::new(&request, Time::ZERO)
        }
    }

    /// What is compared of a request.
    fn account(sequence: &Sequence) -> impl PartialEq + std::fmt::Debug {
        let tokens = (sequence.cached_tokens, sequence.generated_tokens, sequence.pages);
        (tokens, sequence.computed, sequence.told, sequence.batch_requests)
    }

    proptest! {
        /// Beside an account that books every run on everybody.
        #[test]
        fn the_difference_is_what_became_of_each(moves in moves()) {
            let mut generating = Generating::new(PAGE_TOKENS);
            // As they joined, and as they are.
            let mut here: Vec<(Progress, Sequence, Sequence)> = Vec::new();
            for step in moves {
                match step {
                    Move::Join { tenant, tokens } => {
                        let sequence = sequence(tenant, tokens);
                        here.push((generating.join(&sequence), sequence.clone(), sequence));
                    }
                    Move::Ran { steps, beside, computed, told } => {
                        let took = Took { computed: Duration(computed), told: Duration(told) };
                        let outcome = RunOutcome {
                            requests: here.len() as u32 + beside,
                            steps,
                            first_step_ended: Time::ZERO,
                            ended: &[],
                            failed: &[],
                        };
                        let mut pages = 0;
                        for (_, _, now) in &mut here {
                            now.cached_tokens += steps;
                            now.generated_tokens += steps;
                            now.computed += took.computed;
                            now.told += took.told;
                            now.batch_requests = now.batch_requests.max(outcome.requests);
                            let held = now.cached_tokens.div_ceil(PAGE_TOKENS);
                            pages += held - std::mem::replace(&mut now.pages, held);
                        }
                        prop_assert_eq!(generating.ran(&outcome, took), pages);
                    }
                    Move::Leave { who } if who < here.len() => {
                        let (since, mut joined, now) = here.remove(who);
                        generating.leave(since, &mut joined);
                        prop_assert_eq!(account(&joined), account(&now));
                    }
                    Move::Leave { .. } => {}
                }
                let all: Vec<Sequence> = here.iter().map(|(_, _, now)| now.clone()).collect();
                prop_assert_eq!(generating.check(&all), Ok(()));
                let longest = generating.longest(here.iter().map(|(since, joined, _)| (*since, joined.cached_tokens)));
                prop_assert_eq!(longest, all.iter().map(|sequence| sequence.cached_tokens).max().unwrap_or(0));
            }
        }
    }
}
