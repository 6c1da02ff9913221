//! Which stream runs which task's operators (PetS, section 4.2 and Algorithm 2), and how many streams there are.
//!
//! The operators of different tasks in one layer do not depend on each other. Two that need the same resource gain nothing by
//! running side by side, so operators are sorted by how much they compute for each byte they move, and each stream takes a
//! stretch of that order: streams then differ in what they need. The paper prints the stream of the `i`-th operator as
//! ⌊i / |S|⌋, which names streams that do not exist as soon as there are more than |S|² operators and leaves most idle before;
//! what it means is ⌊i · |S| / |O|⌋.

use std::cmp::Ordering;

/// One task's operators of one layer, in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOperator {
    /// Floating-point operations.
    pub flops: u64,
    /// How long it takes alone, β, in nanoseconds.
    pub latency_ns: u64,
    /// Of these, until the host has launched it: what the least of its kind takes.
    pub launch_ns: u64,
    /// The memory bandwidth that it uses while it runs, ω, in bytes a second.
    pub bytes_per_s: u64,
}

impl StreamOperator {
    /// Operations for each byte moved: what it achieves in operations a second by what it moves in bytes a second
    /// (Algorithm 2, line 5).
    pub fn intensity(&self) -> f64 {
        let flops_per_s = self.flops as f64 * 1e9 / self.latency_ns.max(1) as f64;
        flops_per_s / self.bytes_per_s.max(1) as f64
    }
}

/// Assigns operators to streams; its memory is used again.
#[derive(Clone, Debug, Default)]
pub struct StreamScheduler {
    intensities: Vec<f64>,
    order: Vec<u32>,
    stream_of: Vec<u32>,
}

impl StreamScheduler {
    /// The stream of each operator, below `streams`, by ascending operational intensity (Algorithm 2). Equal ones keep their
    /// order.
    ///
    /// # Panics
    /// If there are no streams.
    pub fn by_intensity(&mut self, operators: &[StreamOperator], streams: u32) -> &[u32] {
        assert!(streams > 0, "operators run on at least one stream");
        self.intensities.clear();
        self.intensities.extend(operators.iter().map(StreamOperator::intensity));
        self.order.clear();
        self.order.extend(0..operators.len() as u32);
        let by_intensity =
            |a: &u32, b: &u32| -> Ordering { self.intensities[*a as usize].total_cmp(&self.intensities[*b as usize]) };
        self.order.sort_by(by_intensity);
        self.stream_of.clear();
        self.stream_of.resize(operators.len(), 0);
        let count = operators.len() as u64;
        for (index, operator) in self.order.iter().enumerate() {
            self.stream_of[*operator as usize] = (index as u64 * u64::from(streams) / count) as u32;
        }
        &self.stream_of
    }

    /// One stream after the other in the operators' own order, whatever they need: what sorting them is compared with.
    ///
    /// # Panics
    /// If there are no streams.
    pub fn in_turn(&mut self, operators: usize, streams: u32) -> &[u32] {
        assert!(streams > 0, "operators run on at least one stream");
        self.stream_of.clear();
        self.stream_of
            .extend((0..operators as u32).map(|operator| operator % streams));
        &self.stream_of
    }

    /// A stream for each operator: what Algorithm 2 is compared with.
    pub fn one_each(&mut self, operators: usize) -> &[u32] {
        self.stream_of.clear();
        self.stream_of.extend(0..operators as u32);
        &self.stream_of
    }
}

/// How many streams a batch's operators get (PetS, section 6.3.3): many where what they hide of each other outlasts that streams meet, few
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRule {
    /// Streams for short operators.
    pub few: u32,
    /// Streams for long ones.
    pub many: u32,
    /// What each further stream takes until all have met again, in nanoseconds.
    pub meeting_ns: u64,
}

impl StreamRule {
    /// Streams for so many operators, of whose time `hidden_ns` says how much less they take on so many streams: never more than operators,
    /// and at least 1.
    pub fn streams(&self, operators: usize, hidden_ns: impl FnOnce(u32) -> u64) -> u32 {
        let at_most = |streams: u32| (streams as usize).min(operators).max(1) as u32;
        let (few, many) = (at_most(self.few), at_most(self.many));
        let met_ns = self.meeting_ns.saturating_mul(u64::from(many - 1));
        if many > few && hidden_ns(many) > met_ns {
            many
        } else {
            few
        }
    }
}

/// What of operators' time launching hides at best, whatever their number of streams: while one is launched, those before it move bytes and
/// compute, so that the shorter of the two is hidden. That some move while others compute comes on top, and is left out: how much depends on
/// their mix.
pub fn hidden_by_launching_ns(operators: &[StreamOperator]) -> u64 {
    let launches_ns: u64 = operators.iter().map(|operator| operator.launch_ns).sum();
    let all_ns: u64 = operators.iter().map(|operator| operator.latency_ns).sum();
    launches_ns.min(all_ns.saturating_sub(launches_ns))
}

/// What the busiest stream takes, in nanoseconds, if streams do not slow each other down.
pub fn longest_stream_ns(operators: &[StreamOperator], stream_of: &[u32], streams: u32) -> u64 {
    let of_stream = |stream| {
        let own = operators.iter().zip(stream_of).filter(move |(_, of)| **of == stream);
        own.map(|(operator, _)| operator.latency_ns).sum()
    };
    (0..streams).map(of_stream).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn operator(flops: u64, latency_ns: u64, bytes_per_s: u64) -> StreamOperator {
        StreamOperator {
            flops,
            latency_ns,
            launch_ns: 0,
            bytes_per_s,
        }
    }

    #[test]
    fn thirty_two_operators_fill_four_streams_by_intensity() {
        // Intensities fall with the index, so the first operators go to the last stream.
        let operators: Vec<_> = (0..32).map(|i| operator(3200 - 100 * i, 10, 1_000_000_000)).collect();
        let mut scheduler = StreamScheduler::default();
        let streams = scheduler.by_intensity(&operators, 4).to_vec();
        let expected: Vec<u32> = (0..32).map(|i| 3 - i / 8).collect();
        assert_eq!(streams, expected);
        assert_eq!(longest_stream_ns(&operators, &streams, 4), 80);
    }

    #[test]
    fn intensity_is_work_for_each_byte() {
        // 600 operations in 2 µs while moving 100 MB/s, which is 200 bytes.
        assert_eq!(operator(600, 2_000, 100_000_000).intensity(), 3.0);
    }

    #[test]
    fn every_operator_gets_a_stream_of_its_own_without_scheduling() {
        assert_eq!(StreamScheduler::default().one_each(3), [0, 1, 2]);
        assert_eq!(StreamScheduler::default().in_turn(5, 2), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn operators_that_hide_nothing_get_few_streams() {
        let rule = StreamRule {
            few: 1,
            many: 32,
            meeting_ns: 10,
        };
        assert_eq!(rule.streams(64, |_| 310), 1);
        assert_eq!(rule.streams(64, |_| 311), 32);
        // As many streams as operators, of which there are fewer to meet.
        assert_eq!(rule.streams(5, |streams| if streams == 5 { 41 } else { 0 }), 5);
        assert_eq!((rule.streams(1, |_| 1_000), rule.streams(0, |_| 1_000)), (1, 1));
        let two = StreamRule { few: 2, ..rule };
        assert_eq!(two.streams(64, |_| 0), 2);
    }

    #[test]
    fn launching_hides_what_is_shorter() {
        let of = |launch_ns, latency_ns| StreamOperator {
            launch_ns,
            ..operator(1, latency_ns, 1)
        };
        // 30 launching and 15 of work, then 30 and 120.
        assert_eq!(hidden_by_launching_ns(&[of(10, 15), of(10, 15), of(10, 15)]), 15);
        assert_eq!(hidden_by_launching_ns(&[of(10, 50), of(10, 50), of(10, 50)]), 30);
        assert_eq!(hidden_by_launching_ns(&[of(10, 10)]), 0);
        assert_eq!(hidden_by_launching_ns(&[]), 0);
    }

    proptest! {
        #[test]
        fn streams_are_even_and_ordered(
            work in prop::collection::vec((1u64..1000, 1u64..1000, 1u64..1000), 1..80), streams in 1u32..40,
        ) {
            let operators: Vec<_> = work.into_iter().map(|(f, l, b)| operator(f, l, b)).collect();
            let mut scheduler = StreamScheduler::default();
            let stream_of = scheduler.by_intensity(&operators, streams).to_vec();
            let mut counts = vec![0usize; streams as usize];
            for &stream in &stream_of {
                counts[stream as usize] += 1;
            }
            // No stream has two operators more than another.
            let even = operators.len().div_ceil(streams as usize);
            prop_assert!(counts.iter().all(|&count| count <= even && count + 1 >= operators.len() / streams as usize));
            for (a, &stream_a) in operators.iter().zip(&stream_of) {
                for (b, &stream_b) in operators.iter().zip(&stream_of) {
                    prop_assert!(stream_a >= stream_b || a.intensity() <= b.intensity());
                }
            }
        }
    }
}
