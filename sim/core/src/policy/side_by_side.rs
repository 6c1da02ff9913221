//! Operators of several streams on one GPU, as a roofline has them.
//!
//! Alone, an operator is launched by the host, moves its bytes, and computes for what is left of its time. Side by
//! side, these three are shared: one operator may be launched while another's bytes are moved and a third computes, and
//! those that need the same thing at once share it max-min fairly, none faster than alone. So a stream of operators
//! that move bytes runs freely beside a stream of those that compute, and two streams of the same kind take turns,
//! which is why Algorithm 2 puts operators of like intensity on one stream (PetS, section 4.2).
//!
//! Nothing of this was measured: it follows from what each operator takes alone (the card's `pet` table), on cards that
//! have no `concurrent_pet`. Kernels of several streams are taken to find room on the card at once, whatever their
//! number, which is more than a card grants.

/// What an operator does alone, in nanoseconds that add up to its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// Runs after those before it on the same stream.
    pub stream: u16,
    /// The host launches it.
    pub launch_ns: u64,
    /// Its bytes are moved at the card's bandwidth.
    pub move_ns: u64,
    /// It computes, at whatever rate its kernels reach.
    pub compute_ns: u64,
}

/// One that has begun, or is to.
#[derive(Clone, Copy, Debug)]
struct Left {
    stream: usize,
    /// Of its time alone, in nanoseconds.
    ns: f64,
    /// Parts of that which it is launched, moves and computes.
    uses: [f64; 3],
    /// Its pace, of that which it has alone.
    pace: f64,
}

/// Runs operators side by side; its memory is used again.
#[derive(Debug, Default)]
pub struct SideBySide {
    /// By stream, the next last.
    waiting: Vec<Vec<Left>>,
    running: Vec<Left>,
}

impl SideBySide {
    /// Until the last stream is done, in nanoseconds: no more than all operators take one after the other, and no less
    /// than the busiest stream or the most wanted of the three.
    pub fn ns(&mut self, operators: &[Operator], streams: u16) -> u64 {
        let streams = usize::from(streams);
        if streams > self.waiting.len() {
            self.waiting.resize_with(streams, Vec::new);
        }
        for operator in operators.iter().rev() {
            let parts = [operator.launch_ns, operator.move_ns, operator.compute_ns].map(|ns| ns as f64);
            let ns: f64 = parts.iter().sum();
            if ns > 0.0 {
                let stream = usize::from(operator.stream);
                let uses = parts.map(|part| part / ns);
                self.waiting[stream].push(Left {
                    stream,
                    ns,
                    uses,
                    pace: 1.0,
                });
            }
        }
        self.running.clear();
        self.running.extend(self.waiting[..streams].iter_mut().filter_map(Vec::pop));
        let mut all_ns = 0.0;
        while !self.running.is_empty() {
            self.share();
            let first = |least: f64, left: &Left| least.min(left.ns / left.pace);
            let passed_ns = self.running.iter().fold(f64::INFINITY, first);
            all_ns += passed_ns;
            let waiting = &mut self.waiting;
            self.running.retain_mut(|left| {
                // The first to end does so exactly.
                if left.ns / left.pace > passed_ns {
                    left.ns -= passed_ns * left.pace;
                    return true;
                }
                match waiting[left.stream].pop() {
                    Some(next) => *left = next,
                    None => return false,
                }
                true
            });
        }
        all_ns.round() as u64
    }

    /// Sets each running operator's pace, max-min fairly: all get faster alike until something that they use is used
    /// up, which those that use it keep to, and the others go on.
    fn share(&mut self) {
        const FREE: f64 = -1.0;
        for left in &mut self.running {
            left.pace = FREE;
        }
        let mut used = [0.0; 3];
        loop {
            let mut wanted = [0.0; 3];
            for left in self.running.iter().filter(|left| left.pace == FREE) {
                for (sum, part) in wanted.iter_mut().zip(left.uses) {
                    *sum += part;
                }
            }
            let at_most = |of: usize| {
                if wanted[of] > 0.0 {
                    (1.0 - used[of]) / wanted[of]
                } else {
                    f64::INFINITY
                }
            };
            let (scarce, pace) = (0..3)
                .map(|of| (of, at_most(of)))
                .fold((3, 1.0), |least, of| if of.1 < least.1 { of } else { least });
            // A pace of nothing would never end: what is used up is shared among all that use it, so that only rounding
            // makes it so.
            let pace = f64::max(pace, 1e-6);
            let mut set = 0;
            for left in self.running.iter_mut().filter(|left| left.pace == FREE) {
                if scarce == 3 || left.uses[scarce] > 0.0 {
                    left.pace = pace;
                    set += 1;
                    for (sum, part) in used.iter_mut().zip(left.uses) {
                        *sum += pace * part;
                    }
                }
            }
            if scarce == 3 || set == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moves(stream: u16, ns: u64) -> Operator {
        Operator {
            stream,
            move_ns: ns,
            ..Operator::default()
        }
    }

    fn computes(stream: u16, ns: u64) -> Operator {
        Operator {
            stream,
            compute_ns: ns,
            ..Operator::default()
        }
    }

    fn ns(operators: &[Operator], streams: u16) -> u64 {
        SideBySide::default().ns(operators, streams)
    }

    #[test]
    fn what_moves_runs_beside_what_computes_and_the_same_takes_turns() {
        assert_eq!(ns(&[moves(0, 100), computes(1, 80)], 2), 100);
        assert_eq!(ns(&[moves(0, 100), moves(1, 80)], 2), 180);
        assert_eq!(ns(&[computes(0, 100), computes(1, 80)], 2), 180);
        assert_eq!(ns(&[moves(0, 100), computes(0, 80)], 1), 180);
        // Half of each: two of them leave nothing idle, a third has to wait for its share.
        let half = |stream| Operator {
            stream,
            launch_ns: 0,
            move_ns: 50,
            compute_ns: 50,
        };
        assert_eq!(ns(&[half(0), half(1)], 2), 100);
        assert_eq!(ns(&[half(0), half(1), half(2)], 3), 150);
        // One host launches all of them.
        let launched = |stream| Operator {
            stream,
            launch_ns: 50,
            ..Operator::default()
        };
        assert_eq!(ns(&[launched(0), launched(1), computes(2, 100)], 3), 100);
        assert_eq!(ns(&[], 4), 0);
    }

    #[test]
    fn the_same_operators_take_longer_where_streams_hold_them_without_order() {
        // Two of each kind on two streams: by kind, and in turns.
        let by_kind = [moves(0, 100), moves(0, 100), computes(1, 100), computes(1, 100)];
        let in_turns = [moves(0, 100), moves(1, 100), computes(0, 100), computes(1, 100)];
        assert_eq!(ns(&by_kind, 2), 200);
        assert_eq!(ns(&in_turns, 2), 400);
    }

    fn operators() -> impl Strategy<Value = (Vec<Operator>, u16)> {
        (1u16..9).prop_flat_map(|streams| {
            let operator =
                (0..streams, 0u64..50, 0u64..1000, 0u64..1000).prop_map(|(stream, launch_ns, move_ns, compute_ns)| {
                    Operator {
                        stream,
                        launch_ns,
                        move_ns,
                        compute_ns,
                    }
                });
            (prop::collection::vec(operator, 0..40), Just(streams))
        })
    }

    proptest! {
        #[test]
        fn nothing_is_done_faster_than_it_can_be_nor_slower_than_in_turns((operators, streams) in operators()) {
            let took = ns(&operators, streams);
            let sum = |of: fn(&Operator) -> u64| operators.iter().map(of).sum::<u64>();
            let alone = |of: &Operator| of.launch_ns + of.move_ns + of.compute_ns;
            let busiest = |stream| operators.iter().filter(|of| of.stream == stream).map(alone).sum::<u64>();
            let least = (0..streams).map(busiest).max().unwrap_or(0);
            let wanted = sum(|of| of.launch_ns).max(sum(|of| of.move_ns)).max(sum(|of| of.compute_ns));
            // Rounding.
            prop_assert!(took + 1 >= least.max(wanted));
            prop_assert!(took <= sum(|of| of.launch_ns + of.move_ns + of.compute_ns) + 1);
            if streams == 1 {
                prop_assert!(took.abs_diff(busiest(0)) <= 1);
            }
        }

        #[test]
        fn memory_is_used_again_without_a_trace((one, other) in (operators(), operators())) {
            let mut again = SideBySide::default();
            again.ns(&one.0, one.1);
            prop_assert_eq!(again.ns(&other.0, other.1), ns(&other.0, other.1));
        }
    }
}
