//! How long queries are: the paper has means, and percentiles hang on the rest.

use super::Task;

/// Words of MNLI's pairs, premise and hypothesis together: the share that has at most so many. Of its 9,815 matched
/// development pairs, as McCoy et al. (2020) list them (`berts_of_a_feather`); the paper's are the mismatched ones.
const MNLI_WORDS: [(f64, u32); 16] = [
    (0.0, 2),
    (0.01, 5),
    (0.05, 9),
    (0.1, 12),
    (0.2, 16),
    (0.3, 20),
    (0.4, 23),
    (0.5, 27),
    (0.6, 31),
    (0.7, 35),
    (0.8, 40),
    (0.9, 48),
    (0.95, 56),
    (0.99, 79),
    (0.999, 156),
    (1.0, 216),
];
/// Their mean, and that of SST-2's queries (section 7.3.3).
const MNLI_MEAN: f64 = 29.18;
const SST_2_MEAN: f64 = 26.0;

/// What rows say of it that rest on these lengths.
pub const LENGTHS: &str = "queries are as long as MNLI's development pairs are, SST-2's as spread about their mean of \
                           26 words: the paper has means alone, and time over words from 22 to 30";

/// A scenario's change by which queries are as long as a task's.
pub fn as_long_as(task: &Task) -> String {
    let scale = match task.name {
        "SST-2" => SST_2_MEAN / MNLI_MEAN,
        _ => 1.0,
    };
    let point = |(share, words): (f64, u32)| {
        let tokens = (f64::from(words) * scale).round().max(1.0);
        format!("{{share: {share}, tokens: {tokens}}}")
    };
    let points = MNLI_WORDS.map(point).join(", ");
    format!("workload.lengths.input={{quantiles: [{points}]}}")
}
