//! Those who generate on an instance, together.
//!
//! From the step that completes its prompt until it leaves, a request does what its instance does: in each run it makes
//! a token a step, takes as long, and is told as late. So nothing is booked on it meanwhile, however many there are:
//! the instance counts what it does, a request remembers how far that was when it joined, and the difference is what
//! became of it ([`Generating::book`]). What policies and machines want to know of all of them at once is kept as a
//! sum, or by what does not change while everybody makes steps.

use tenantry_traces::{Duration, Time};

use super::gaps::{RunGaps, between};
use super::memory::{Rooms, total};
use super::page::PageSize;
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
    page: PageSize,
    done: Progress,
    requests: u32,
    /// Of all.
    cached_tokens: u64,
    /// Requests by their tokens in the cache less the steps done, modulo a page's: those with most first, so that rooms
    /// are in order. Twice, one after the other, so that those of a page lie side by side wherever they begin.
    by_phase: Vec<u32>,
    /// By tenant: requests. And how many tenants have any.
    of_tenant: Vec<u32>,
    different_tenants: u32,
    /// What each has in the cache, in tokens, less the steps done; in no order, since few are here, and only the most
    /// is asked for.
    ahead: Vec<i64>,
    most_ahead: Option<i64>,
    /// Runs that had more requests than all after them: each one's number, and its requests.
    largest: Vec<(u64, u32)>,
    /// When the last token was made.
    last_token: Time,
    /// Likewise runs with a longer time between two tokens: each one's number, and that time.
    longest_gaps: Vec<(u64, Duration)>,
}

impl Generating {
    pub fn new(page: PageSize, tenants: u32) -> Generating {
        Generating {
            page,
            done: Progress::default(),
            requests: 0,
            cached_tokens: 0,
            by_phase: vec![0; 2 * page.tokens() as usize],
            of_tenant: vec![0; tenants as usize],
            different_tenants: 0,
            ahead: Vec::new(),
            most_ahead: None,
            largest: Vec::new(),
            last_token: Time::ZERO,
            longest_gaps: Vec::new(),
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
        self.of_tenant[tenant as usize] > 0
    }

    /// A request's prompt is complete.
    pub fn join(&mut self, sequence: &Sequence) -> Progress {
        self.requests += 1;
        self.cached_tokens += u64::from(sequence.cached_tokens);
        for phase in self.phases(sequence.cached_tokens, self.done) {
            self.by_phase[phase] += 1;
        }
        let of_tenant = &mut self.of_tenant[sequence.tenant as usize];
        *of_tenant += 1;
        self.different_tenants += u32::from(*of_tenant == 1);
        let ahead = ahead(sequence.cached_tokens, self.done);
        self.ahead.push(ahead);
        self.most_ahead = self.most_ahead.max(Some(ahead));
        self.done
    }

    /// A request leaves: all that became of it is booked.
    pub fn leave(&mut self, sequence: &mut Sequence) {
        let since = sequence.since;
        let phases = self.phases(sequence.cached_tokens, since);
        let ahead = ahead(sequence.cached_tokens, since);
        let at = self.ahead.iter().position(|&other| other == ahead);
        self.ahead.swap_remove(at.expect("who leaves has joined"));
        if self.most_ahead == Some(ahead) {
            self.most_ahead = self.ahead.iter().copied().max();
        }
        self.book(sequence);
        self.requests -= 1;
        self.cached_tokens -= u64::from(sequence.cached_tokens);
        for phase in phases {
            self.by_phase[phase] -= 1;
        }
        let of_tenant = &mut self.of_tenant[sequence.tenant as usize];
        *of_tenant -= 1;
        self.different_tenants -= u32::from(*of_tenant == 0);
    }

    /// What stays the same of a request while it makes a token a step: its two places among all by their tokens in the
    /// cache less the steps done.
    #[inline]
    fn phases(&self, cached_tokens: u32, then: Progress) -> [usize; 2] {
        let page = self.page.tokens();
        let ahead = self.page.over(cached_tokens) + page - then.over;
        let phase = page - 1 - if ahead < page { ahead } else { ahead - page };
        [phase as usize, (phase + page) as usize]
    }

    /// What a request that has joined has in the cache by now.
    pub fn cached_tokens_of(&self, sequence: &Sequence) -> u32 {
        sequence.cached_tokens + self.steps_since(sequence.since)
    }

    /// Steps made since then.
    pub fn steps_since(&self, since: Progress) -> u32 {
        (self.done.steps - since.steps) as u32
    }

    /// Books what has become of a request since it joined.
    pub fn book(&self, sequence: &mut Sequence) {
        let since = sequence.since;
        let steps = self.steps_since(since);
        sequence.cached_tokens += steps;
        sequence.generated_tokens += steps;
        sequence.computed += Duration(self.done.computed.0 - since.computed.0);
        sequence.told += Duration(self.done.told.0 - since.told.0);
        let own = sequence.cached_tokens - sequence.shared_pages() * self.page.tokens();
        sequence.pages = self.page.taken_by(own);
        let largest = greatest_since(&self.largest, since.runs).unwrap_or(0);
        sequence.batch_requests = sequence.batch_requests.max(largest);
        let longest = greatest_since(&self.longest_gaps, since.runs).unwrap_or(Duration::ZERO);
        sequence.longest_gap = sequence.longest_gap.max(longest);
        sequence.last_token = Some(self.last_token);
    }

    /// How long a request waited for a token at most since it joined, when a run is over of which so many steps made it
    /// one.
    pub fn longest_gap(&self, sequence: &Sequence, outcome: &RunOutcome<'_>, gaps: &RunGaps, steps: u32) -> Duration {
        let before = greatest_since(&self.longest_gaps, sequence.since.runs).unwrap_or(Duration::ZERO);
        let first = between(self.last_token, outcome.first_step_ended);
        let of_run = first.max(gaps.longest(steps));
        sequence.longest_gap.max(before).max(of_run)
    }

    /// A run is over, and its last step since `ended`. The pages that those who had joined before it have taken, and
    /// how long they waited for the token of its first step.
    pub fn ran(&mut self, outcome: &RunOutcome<'_>, took: Took, ended: Time, gaps: &RunGaps) -> (u32, Duration) {
        self.done.runs += 1;
        self.done.computed += took.computed;
        self.done.told += took.told;
        while self.largest.last().is_some_and(|&(_, requests)| requests <= outcome.requests) {
            self.largest.pop();
        }
        self.largest.push((self.done.runs, outcome.requests));
        let steps = outcome.steps;
        if steps == 0 {
            return (0, Duration::ZERO);
        }
        let first = between(self.last_token, outcome.first_step_ended);
        self.last_token = ended;
        if self.requests == 0 {
            self.longest_gaps.clear();
        } else {
            let gap = first.max(gaps.longest(steps));
            while self.longest_gaps.last().is_some_and(|&(_, other)| other <= gap) {
                self.longest_gaps.pop();
            }
            self.longest_gaps.push((self.done.runs, gap));
        }
        let page = self.page.tokens();
        let whole = self.page.filled_by(steps - 1);
        // At least one, and at most a page's.
        let last = steps - whole * page;
        let pages = match self.requests {
            0 => 0,
            requests => whole * requests + total(&self.by_room()[..last as usize]),
        };
        self.done.steps += u64::from(steps);
        let over = self.done.over + last;
        self.done.over = if over < page { over } else { over - page };
        self.cached_tokens += u64::from(self.requests) * u64::from(steps);
        (pages, first)
    }

    /// Requests by the tokens for which there is room on their last page, from none up to all of a page but one.
    fn by_room(&self) -> &[u32] {
        let page = self.page.tokens() as usize;
        let without = match self.done.over {
            0 => page,
            over => over as usize,
        };
        &self.by_phase[without - 1..][..page]
    }

    /// Requests that have no room for another token on their pages.
    pub fn without_room(&self) -> u32 {
        self.by_room()[0]
    }

    /// Whether what is kept of all together is what it is of each: for tests. `all` are they, booked.
    pub fn check(&self, all: &[Sequence]) -> Result<(), String> {
        let mut of_tenant = vec![0; self.of_tenant.len()];
        all.iter().for_each(|sequence| of_tenant[sequence.tenant as usize] += 1);
        let page = self.page.tokens();
        let cached = all.iter().map(|sequence| sequence.cached_tokens);
        let mut by_room = vec![0; page as usize];
        cached.clone().for_each(|tokens| {
            by_room[((page - tokens % page) % page) as usize] += 1;
        });
        let kept = (self.requests, self.cached_tokens, &self.of_tenant);
        let found = (all.len() as u32, cached.clone().map(u64::from).sum(), &of_tenant);
        if kept != found || self.by_room() != by_room {
            return Err(format!(
                "{kept:?} are kept of those who generate, and there are {found:?}"
            ));
        }
        if self.different_tenants as usize != of_tenant.iter().filter(|&&requests| requests > 0).count()
            || self.longest() != cached.max().unwrap_or(0)
            || self.ahead.len() != all.len()
        {
            return Err(format!("{self:?} is kept of those who generate, and {all:?} do"));
        }
        Ok(())
    }

    /// The room of all, before a run's first step.
    pub fn rooms(&self, rooms: &mut Rooms) {
        rooms.begin(self.requests, self.by_room());
    }

    /// The most tokens that a request has in the cache.
    pub fn longest(&self) -> u32 {
        self.most_ahead.map_or(0, |most| (most + self.done.steps as i64) as u32)
    }
}

/// What was greatest after so many runs, of those that were greater than all after them. Mostly few of them are as
/// late.
fn greatest_since<T: Copy>(greatest: &[(u64, T)], runs: u64) -> Option<T> {
    let later = greatest.iter().rev().take_while(|&&(run, _)| run > runs);
    later.last().map(|&(_, what)| what)
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
            /// Until its first step was over, and then until its last was.
            first_ns: u64,
            later_ns: u64,
        },
        Leave {
            who: usize,
        },
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            2 => (0u32..5, 1u32..30).prop_map(|(tenant, tokens)| Move::Join { tenant, tokens }),
            3 => (0u32..14, 0u32..3, 0u64..99, 0u64..9, 0u64..500, 0u64..2_000).prop_map(
                |(steps, beside, computed, told, first_ns, later_ns)| Move::Ran {
                    steps,
                    beside,
                    computed,
                    told,
                    first_ns,
                    later_ns,
                }
            ),
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
        let times = (sequence.computed, sequence.told, sequence.longest_gap);
        (tokens, times, sequence.batch_requests)
    }

    proptest! {
        /// Beside an account that books every run on everybody.
        #[test]
        fn the_difference_is_what_became_of_each(moves in moves()) {
            let mut generating = Generating::new(PageSize::new(PAGE_TOKENS), 5);
            // As they joined, and as they are.
            let mut here: Vec<(Sequence, Sequence)> = Vec::new();
            let mut last_token = Time::ZERO;
            for step in moves {
                match step {
                    Move::Join { tenant, tokens } => {
                        let now = sequence(tenant, tokens);
                        let since = generating.join(&now);
                        here.push((Sequence { since, ..now.clone() }, now));
                    }
                    Move::Ran { steps, beside, computed, told, first_ns, later_ns } => {
                        let took = Took { computed: Duration(computed), told: Duration(told) };
                        let first_step_ended = last_token + Duration(first_ns);
                        let ended = first_step_ended + Duration(if steps > 1 { later_ns } else { 0 });
                        let outcome = RunOutcome {
                            requests: here.len() as u32 + beside,
                            steps,
                            first_step_ended,
                            marks: &[],
                            ended: &[],
                            failed: &[],
                        };
                        let later_ns = later_ns / u64::from(steps.saturating_sub(1).max(1));
                        let gap = Duration(if steps > 1 { first_ns.max(later_ns) } else { first_ns });
                        let mut pages = 0;
                        for (_, now) in &mut here {
                            now.cached_tokens += steps;
                            now.generated_tokens += steps;
                            now.computed += took.computed;
                            now.told += took.told;
                            now.batch_requests = now.batch_requests.max(outcome.requests);
                            if steps > 0 {
                                now.longest_gap = now.longest_gap.max(gap);
                            }
                            let held = now.cached_tokens.div_ceil(PAGE_TOKENS);
                            pages += held - std::mem::replace(&mut now.pages, held);
                        }
                        let mut gaps = RunGaps::default();
                        gaps.of(&outcome, ended, Time::ZERO);
                        prop_assert_eq!(generating.ran(&outcome, took, ended, &gaps).0, pages);
                        if steps > 0 {
                            last_token = ended;
                        }
                    }
                    Move::Leave { who } if who < here.len() => {
                        let (mut joined, now) = here.remove(who);
                        generating.leave(&mut joined);
                        prop_assert_eq!(account(&joined), account(&now));
                    }
                    Move::Leave { .. } => {}
                }
                let all: Vec<Sequence> = here.iter().map(|(_, now)| now.clone()).collect();
                prop_assert_eq!(generating.check(&all), Ok(()));
                prop_assert_eq!(generating.longest(), all.iter().map(|sequence| sequence.cached_tokens).max().unwrap_or(0));
            }
        }
    }
}
