//! Allocations that solve nothing, to compare with (Arlo, section 5.2.3, Table 3).

/// Instances given evenly to all runtimes; what is left over goes to the longer ones, so that the longest has at least one.
///
/// The paper's other ablation, "global", is the program solved once for a whole trace: [`crate::demand_milli`] of all its requests.
pub fn even(runtimes: usize, instances: u32) -> Vec<u32> {
    let each = instances / runtimes as u32;
    let left_over = instances as usize % runtimes;
    (0..runtimes)
        .map(|at| each + u32::from(at >= runtimes - left_over))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::even;

    #[test]
    fn the_longer_runtimes_get_what_is_left_over() {
        assert_eq!(even(4, 10), [2, 2, 3, 3]);
        assert_eq!(even(4, 8), [2, 2, 2, 2]);
        assert_eq!(even(3, 1), [0, 0, 1]);
    }
}
