//! Which stream runs which task's operators (PetS, section 4.2 and Algorithm 2), and how many streams there are.
//!
//! The operators of different tasks in one layer do not depend on each other. Two that need the same resource gain
//! nothing by running side by side, so operators are sorted by how much they compute for each byte they move, and each
//! stream takes a stretch of that order: streams then differ in what they need. The paper prints the stream of the
//! `i`-th operator as ⌊i / |S|⌋, which names streams that do not exist as soon as there are more than |S|² operators
//! and leaves most idle before; what it means is ⌊i · |S| / |O|⌋.

use std::cmp::Ordering;

/// One task's operators of one layer, in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOperator {
    /// Floating-point operations.
    pub flops: u64,
    /// How long it takes alone, β, in nanoseconds.
    pub latency_ns: u64,
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
    /// The stream of each operator, below `streams`, by ascending operational intensity (Algorithm 2). Equal ones keep
    /// their order.
    ///
    /// # Panics
    /// If there are no streams.
    pub fn by_intensity(&mut self, operators: &[StreamOperator], streams: u32) -> &[u32] {
        self.sort(operators, streams);
        let count = operators.len() as u64;
        for (index, operator) in self.order.iter().enumerate() {
            self.stream_of[*operator as usize] = (index as u64 * u64::from(streams) / count) as u32;
        }
        &self.stream_of
    }

    /// Likewise, but the order is cut where streams take equally long: an operator is on the stream in whose part of
    /// all time its middle lies. Sorted operators are of one kind after the other, so that as many each, as Algorithm 2
    /// has it, leaves the longest kind on one stream, which all others wait for.
    ///
    /// # Panics
    /// If there are no streams.
    pub fn evenly(&mut self, operators: &[StreamOperator], streams: u32) -> &[u32] {
        self.sort(operators, streams);
        let all_ns: u64 = operators.iter().map(|operator| operator.latency_ns).sum();
        let mut before_ns = 0;
        for operator in &self.order {
            let ns = operators[*operator as usize].latency_ns;
            let middle = u128::from(2 * before_ns + ns) * u128::from(streams) / u128::from(2 * all_ns).max(1);
            self.stream_of[*operator as usize] = (middle as u32).min(streams - 1);
            before_ns += ns;
        }
        &self.stream_of
    }

    /// Operators by ascending operational intensity, all of them on the first stream as yet.
    fn sort(&mut self, operators: &[StreamOperator], streams: u32) {
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
    }

    /// One stream after the other in the operators' own order, whatever they need: what sorting them is compared with.
    ///
    /// # Panics
    /// If there are no streams.
    pub fn in_turn(&mut self, operators: usize, streams: u32) -> &[u32] {
        assert!(streams > 0, "operators run on at least one stream");
        self.stream_of.clear();
        self.stream_of.extend((0..operators as u32).map(|operator| operator % streams));
        &self.stream_of
    }

    /// A stream for each operator: what Algorithm 2 is compared with.
    pub fn one_each(&mut self, operators: usize) -> &[u32] {
        self.stream_of.clear();
        self.stream_of.extend(0..operators as u32);
        &self.stream_of
    }
}

/// Numbers of streams that a profile's rule chooses from (PetS, Fig. 11), the largest of which a system sets: never
/// more than operators, and at least one.
pub fn stream_counts(many: u32, operators: usize) -> impl Iterator<Item = u32> {
    let many = many.min(operators.try_into().unwrap_or(u32::MAX)).max(1);
    [1, 2, 8, 32].into_iter().filter(move |count| *count < many).chain([many])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the busiest stream takes, in nanoseconds, if streams do not slow each other down.
    fn longest_stream_ns(operators: &[StreamOperator], stream_of: &[u32], streams: u32) -> u64 {
        let of_stream = |stream| {
            let own = operators.iter().zip(stream_of).filter(move |(_, of)| **of == stream);
            own.map(|(operator, _)| operator.latency_ns).sum()
        };
        (0..streams).map(of_stream).max().unwrap_or(0)
    }

    fn operator(flops: u64, latency_ns: u64, bytes_per_s: u64) -> StreamOperator {
        StreamOperator {
            flops,
            latency_ns,
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
    fn streams_take_equally_long_where_their_order_is_cut_by_time() {
        // One that takes as long as the three before it, which move more than they compute.
        let operators = [
            operator(1, 10, 1),
            operator(1, 10, 1),
            operator(1, 10, 1),
            operator(900, 30, 1),
        ];
        let mut scheduler = StreamScheduler::default();
        assert_eq!(scheduler.by_intensity(&operators, 2), [0, 0, 1, 1]);
        assert_eq!(scheduler.evenly(&operators, 2), [0, 0, 0, 1]);
        assert_eq!(longest_stream_ns(&operators, &[0, 0, 0, 1], 2), 30);
        assert_eq!(scheduler.evenly(&[], 2), [0; 0]);
    }

    #[test]
    fn a_rule_tries_few_and_many_streams_and_none_in_vain() {
        let counts = |many, operators| stream_counts(many, operators).collect::<Vec<_>>();
        assert_eq!(counts(32, 128), [1, 2, 8, 32]);
        assert_eq!(counts(64, 128), [1, 2, 8, 32, 64]);
        assert_eq!(counts(32, 5), [1, 2, 5]);
        assert_eq!(counts(4, 128), [1, 2, 4]);
        assert_eq!(
            (counts(1, 128), counts(32, 1), counts(32, 0)),
            (vec![1], vec![1], vec![1])
        );
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
            // None has more than its part of the time and one operator.
            let all_ns: u64 = operators.iter().map(|operator| operator.latency_ns).sum();
            let longest_ns = operators.iter().map(|operator| operator.latency_ns).max().unwrap_or(0);
            let stream_of = scheduler.evenly(&operators, streams).to_vec();
            prop_assert!(longest_stream_ns(&operators, &stream_of, streams) <= all_ns / u64::from(streams) + longest_ns + 1);
            for (a, &stream_a) in operators.iter().zip(&stream_of) {
                for (b, &stream_b) in operators.iter().zip(&stream_of) {
                    prop_assert!(stream_a >= stream_b || a.intensity() <= b.intensity());
                }
            }
        }
    }
}
