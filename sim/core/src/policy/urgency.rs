//! Which of the waiting queries are planned now where each has a deadline: those that would miss theirs if all were
//! run, and others only as far as they keep nobody from it.

use tenantry_traces::Time;

/// What is allowed for beyond what is predicted, before it is known which queries share a batch: one over so many
/// parts. Coordinated batches pad up to a sixth of their tokens (`tenantry reproduce pets`, Fig. 12), and planning
/// takes its time.
const ALLOWANCE_PARTS: u64 = 4;

/// Whether a query that takes so long by itself cannot be answered by its deadline any more.
pub fn is_lost(now: Time, deadline: Time, alone_ns: u64) -> bool {
    deadline.0 < now.0 + alone_ns
}

/// Takes what is to be planned out of `waiting`, at most `window` queries.
///
/// Who can still be answered in time comes before who cannot, each by deadline: a query of a class with time to spare
/// is overtaken until its own deadline is near, and not beyond. Where running all of a window would miss some deadlines
/// and keep others, these go first, and as many more, in the same order, as end before the earliest of them; half of
/// the window at least, since small batches take more time a query, for which all pay. Where it would miss none, or all
/// that can be kept, the whole window is planned, which takes the least time a query.
///
/// `predicted_ns` is what queries take together, `alone_ns` what one takes by itself: it is asked of everybody who
/// waits.
pub fn first_due<Q: Copy>(
    now: Time,
    mut waiting: Vec<Q>,
    window: usize,
    deadline: impl Fn(&Q) -> Time,
    alone_ns: impl Fn(&Q) -> u64,
    predicted_ns: impl Fn(&[Q]) -> u64,
) -> Vec<Q> {
    // Whether it is lost, its deadline, and its place, so that those alike come in the order in which they came.
    let mut order: Vec<(bool, Time, usize)> = waiting
        .iter()
        .enumerate()
        .map(|(place, query)| {
            let deadline = deadline(query);
            (is_lost(now, deadline, alone_ns(query)), deadline, place)
        })
        .collect();
    if order.len() > window {
        order.select_nth_unstable(window - 1);
        order.truncate(window);
    }
    order.sort_unstable();
    waiting = order.iter().map(|(_, _, place)| waiting[*place]).collect();

    let in_time = order.iter().take_while(|(lost, ..)| !lost).count();
    let all_end = now.0 + predicted_ns(&waiting);
    let endangered = waiting[..in_time].partition_point(|query| deadline(query).0 < all_end);
    if endangered == 0 || endangered == in_time {
        return waiting;
    }
    let earliest = deadline(&waiting[0]).0;
    let more: Vec<usize> = (endangered + 1..=waiting.len()).collect();
    let more = more.partition_point(|&count| {
        let predicted_ns = predicted_ns(&waiting[..count]);
        now.0 + predicted_ns + predicted_ns / ALLOWANCE_PARTS <= earliest
    });
    waiting.truncate((endangered + more).max(waiting.len() / 2));
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of those that are planned at 100 ms, of a window of 8, where a query takes 10 ms; deadlines in
    /// milliseconds.
    fn planned(deadlines_ms: &[u64]) -> Vec<usize> {
        let predicted = |queries: &[usize]| 10_000_000 * queries.len() as u64;
        let deadline = |place: &usize| Time(1_000_000 * deadlines_ms[*place]);
        let waiting = (0..deadlines_ms.len()).collect();
        first_due(Time(100_000_000), waiting, 8, deadline, |_| predicted(&[0]), predicted)
    }

    #[test]
    fn all_are_planned_where_all_are_in_time_and_where_none_gains() {
        assert_eq!(planned(&[900, 160, 170]), [1, 2, 0], "nobody misses");
        assert_eq!(planned(&[110, 120, 110, 115]), [0, 2, 3, 1], "all are endangered");
        assert_eq!(planned(&[90, 105, 80]), [2, 0, 1], "all are lost");
        assert_eq!(
            planned(&[105, 115, 104, 125]),
            [1, 3, 2, 0],
            "all that are not lost are endangered"
        );
    }

    #[test]
    fn who_is_in_danger_goes_first_with_as_many_others_as_keep_the_earliest_deadline() {
        // All five would take until 150 ms; there is room for one beside the two, if a quarter is allowed for.
        assert_eq!(planned(&[900, 138, 800, 700, 145]), [1, 4, 3]);
        // There is none.
        assert_eq!(planned(&[900, 137, 800, 700, 145]), [1, 4]);
        // Who is lost is the last to fill what is left.
        assert_eq!(planned(&[105, 900, 138, 104, 800]), [2, 4, 1]);
        assert_eq!(planned(&[101, 102, 103, 104, 175, 800, 810, 900]), [4, 5, 6, 7, 0, 1]);
        // Half of a window is planned whatever is urgent.
        assert_eq!(planned(&[120, 900, 900, 900, 900, 900, 900, 900]), [0, 1, 2, 3]);
    }

    #[test]
    fn who_has_time_to_spare_is_overtaken_until_its_deadline_is_near() {
        let bulk_first = planned(&[120, 190, 200, 210, 220, 230, 240, 250, 260, 270]);
        assert_eq!(bulk_first[0], 0);
        let window = planned(&[900, 300, 310, 320, 330, 340, 350, 360, 370]);
        assert!(!window.contains(&0) && window.len() == 8);
    }
}
