//! When each request that generates on an instance makes its last token, by the steps that the instance has made by
//! then: as long as it goes on, that never changes, so that a run need not look at its requests.

use tenantry_core::event::Ended;
use tenantry_core::ids::RequestId;
use tenantry_core::op::Until;

/// One instance's.
#[derive(Debug, Default)]
pub(crate) struct LastTokens {
    /// Steps that the instance has made.
    made: u64,
    joined: u64,
    /// Who ends soonest is last.
    requests: Vec<Generating>,
}

#[derive(Debug)]
struct Generating {
    last_step: u64,
    /// Its place in the order of joining.
    place: u64,
    request: RequestId,
}

impl LastTokens {
    /// A request makes so many tokens from the next step on.
    pub fn join(&mut self, request: RequestId, tokens: u32) {
        let (last_step, place) = (self.made + u64::from(tokens), self.joined);
        self.joined += 1;
        let at = self.requests.partition_point(|other| other.last_step > last_step);
        let new = Generating {
            last_step,
            place,
            request,
        };
        self.requests.insert(at, new);
    }

    /// A request makes no token any more, if it did.
    pub fn leave(&mut self, request: RequestId) {
        // Mostly it is one of those who have ended.
        if let Some(at) = self.requests.iter().rposition(|other| other.request == request) {
            self.requests.remove(at);
        }
    }

    /// After how many steps a run ends, if nobody interrupts it; nothing where nobody has a token left to make.
    pub fn steps(&self, until: Until) -> Option<u32> {
        let decides = match until {
            Until::FirstEnds => self.requests.last(),
            Until::AllEnd => self.requests.first(),
        };
        let left = decides?.last_step.saturating_sub(self.made);
        (left > 0).then_some(left as u32)
    }

    /// A run of so many steps is over: who has its last token by it, in the order of joining.
    pub fn ran(&mut self, steps: u32, ended: &mut Vec<Ended>) {
        let made = self.made;
        self.made += u64::from(steps);
        let soonest_first = self.requests.iter().rev();
        let first = self.requests.len() - soonest_first.take_while(|request| request.last_step <= self.made).count();
        let over = &mut self.requests[first..];
        // They leave before the next run, or make nothing in it: their order among themselves is of no use any more.
        over.sort_unstable_by_key(|request| request.place);
        ended.clear();
        let by_this_run = over.iter().filter(|request| request.last_step > made);
        ended.extend(by_this_run.map(|request| Ended {
            request: request.request,
            step: (request.last_step - made) as u32,
        }));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a list of the tokens that each has yet to make.
        #[test]
        fn who_ends_is_who_has_no_token_left(
            runs in proptest::collection::vec((proptest::collection::vec(1u32..20, 0..4), 1u32..9, any::<bool>()), 0..60)
        ) {
            let (mut tokens, mut left, mut joined) = (LastTokens::default(), Vec::new(), 0);
            for (new, most, gives_up) in runs {
                for of_new in new {
                    let request = RequestId { slot: joined, generation: 0 };
                    joined += 1;
                    tokens.join(request, of_new);
                    left.push((request, of_new));
                }
                prop_assert_eq!(tokens.steps(Until::FirstEnds), left.iter().map(|&(_, left)| left).min());
                prop_assert_eq!(tokens.steps(Until::AllEnd), left.iter().map(|&(_, left)| left).max());
                let (steps, mut ended) = (most, Vec::new());
                tokens.ran(steps, &mut ended);
                let over = left.iter().filter(|&&(_, left)| left <= steps);
                let expected: Vec<Ended> = over.map(|&(request, step)| Ended { request, step }).collect();
                prop_assert_eq!(&ended, &expected);
                ended.iter().for_each(|ended| tokens.leave(ended.request));
                left.retain(|&(_, left)| left > steps);
                left.iter_mut().for_each(|(_, left)| *left -= steps);
                if gives_up && !left.is_empty() {
                    tokens.leave(left.remove(left.len() / 2).0);
                }
            }
        }
    }
}
