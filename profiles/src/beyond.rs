//! Where the operations of an op do not grow in proportion to its size, a table goes on beyond its largest points by
//! them.
//!
//! Attention takes a product of all pairs of tokens: an encoder layer's operations grow faster than its tokens, and
//! those of a prompt's chunk slower, since its first tokens attend to fewer than its last. So a few points follow the
//! measured ones, which cost what each further operation cost over the last doubling: the roofline of the nearest
//! points. Whatever an op takes beside, such as launches, is in these points too, and does not grow. All other ops take
//! operations and bytes in proportion along each axis, so that their roofline is the straight line on which
//! [`Grid`](crate::grid::Grid) goes on.

use crate::family::Family;
use crate::model::ModelShape;
use crate::roofline::ops::encoder_layer_flops;
use crate::slice::{Point, Slice};
use crate::stats::Stats;

/// How many doublings beyond the largest point.
const DOUBLINGS: u32 = 4;
/// Parts of each: between them lie straight lines, which overstate a square by 1.3 % at most.
const PARTS: u64 = 4;

/// An op whose operations grow otherwise than in proportion.
pub(crate) trait Operations {
    /// The axes along which points are to follow, the proportional ones first.
    const AXES: &'static [usize];

    /// In any unit, of a point.
    fn of(&self, at: &[u64]) -> f64;
}

/// An encoder layer, or passes that are made of such; the last two axes are sequences and their tokens.
pub(crate) struct EncoderLayers<'a, const SEQUENCES: usize>(pub &'a ModelShape);

impl<const SEQUENCES: usize> Operations for EncoderLayers<'_, SEQUENCES> {
    const AXES: &'static [usize] = &[SEQUENCES + 1];

    fn of(&self, at: &[u64]) -> f64 {
        let [batch, tokens] = [at[SEQUENCES], at[SEQUENCES + 1]].map(|value| value as f64);
        encoder_layer_flops(self.0, batch, tokens)
    }
}

/// The attention of a prompt's chunk, by its tokens and the context of the last of them: pairs of tokens.
pub(crate) struct ChunkAttention;

impl Operations for ChunkAttention {
    const AXES: &'static [usize] = &[1, 0];

    fn of(&self, at: &[u64]) -> f64 {
        let [tokens, context] = [at[0], at[1]].map(|value| value as f64);
        tokens * (context - (tokens - 1.0) / 2.0)
    }
}

/// The attention of a whole prompt, by its tokens: a chunk that is all of its context.
pub(crate) struct WholePromptAttention;

impl Operations for WholePromptAttention {
    const AXES: &'static [usize] = &[0];

    fn of(&self, at: &[u64]) -> f64 {
        ChunkAttention.of(&[at[0], at[0]])
    }
}

/// A table, and the points that follow its largest.
pub(crate) fn carried_on<O: Operations>(slice: &Slice, operations: &O) -> Slice {
    let points = slice.points.iter();
    let copy = |point: &Point| Point {
        row: point.row,
        at: point.at.clone(),
        stats: point.stats,
    };
    let mut all = Slice {
        family: slice.family,
        label: slice.label.clone(),
        axes: slice.axes,
        points: points.map(copy).collect(),
    };
    for &axis in O::AXES {
        let beyond = knots_beyond(slice, axis);
        let mut followers: Vec<Point> = Vec::new();
        for line in all.lines(axis) {
            let follow = follow(&line, &followers, axis, &beyond, operations, slice.family);
            followers.extend(follow);
        }
        all.points.extend(followers);
    }
    all
}

/// The values that follow an axis's largest.
fn knots_beyond(slice: &Slice, axis: usize) -> Vec<u64> {
    let largest = slice.points.iter().map(|point| point.at[axis]).max().unwrap_or(0);
    let doubling = |doubling: u32| {
        let from = largest << doubling;
        (1..=PARTS).map(move |part| from + from * part / PARTS)
    };
    let mut knots: Vec<u64> = (0..DOUBLINGS).flat_map(doubling).filter(|knot| *knot > largest).collect();
    knots.dedup();
    knots
}

/// The points that follow a line. `followers` are those of the lines before it.
fn follow(
    line: &[&Point],
    followers: &[Point],
    axis: usize,
    beyond: &[u64],
    operations: &impl Operations,
    family: Family,
) -> Vec<Point> {
    let Some(edge) = line.last() else { return Vec::new() };
    let at = |value: u64| {
        let mut at = edge.at.clone();
        at[axis] = value;
        at
    };
    let us_per_operation = us_per_operation(line, followers, axis, operations);
    let done = operations.of(&edge.at);
    let follower = |&value: &u64| {
        let at = at(value);
        let more_us = us_per_operation * (operations.of(&at) - done).max(0.0);
        family.possible(&at).then(|| Point {
            row: edge.row,
            at,
            stats: slower(edge.stats, more_us),
        })
    };
    beyond.iter().filter_map(follower).collect()
}

/// Over the last doubling of a line. One that is too short to tell, as that of the longest chunk by its context, has
/// what the line before it has, and the first the mean of its only point.
fn us_per_operation(line: &[&Point], followers: &[Point], axis: usize, operations: &impl Operations) -> f64 {
    let edge = line[line.len() - 1];
    let slope = |from: &Point, to: &Point| {
        let us = to.stats.median_us - from.stats.median_us;
        us.max(0.0) / (operations.of(&to.at) - operations.of(&from.at))
    };
    let before = |point: &&&Point| point.at[axis] <= edge.at[axis] / 2;
    match (line.iter().rev().find(before), line, followers) {
        (Some(from), ..) => slope(from, edge),
        (None, [from, _, ..], _) => slope(from, edge),
        (None, _, [.., from, to]) if from.at[axis] < to.at[axis] => slope(from, to),
        _ => edge.stats.median_us / operations.of(&edge.at),
    }
}

/// The same spread about a longer median.
fn slower(stats: Stats, more_us: f64) -> Stats {
    stats.at_pace(1.0 + more_us / stats.median_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(
        family: Family,
        axes: &'static [&'static str],
        points: impl IntoIterator<Item = (Vec<u64>, f64)>,
    ) -> Slice {
        let point = |(row, (at, us)): (usize, (Vec<u64>, f64))| Point {
            row,
            at,
            stats: Stats::exact(us),
        };
        Slice {
            family,
            label: String::new(),
            axes,
            points: points.into_iter().enumerate().map(point).collect(),
        }
    }

    fn us(slice: &Slice, at: [u64; 2]) -> f64 {
        let found = slice.points.iter().find(|point| point.at == at);
        found.unwrap_or_else(|| panic!("{at:?}")).stats.median_us
    }

    /// A layer that takes 10 µs and a nanosecond for each so many operations takes that beyond its points as well.
    #[test]
    fn a_layer_goes_on_by_its_operations() {
        let tiny = ModelShape::builtin("tiny").unwrap();
        let operations = EncoderLayers::<0>(&tiny);
        let cost = |at: &[u64]| 10.0 + operations.of(at) / 1e6;
        let grid = [1, 8].into_iter().flat_map(|batch| [16, 64, 128].map(|tokens| vec![batch, tokens]));
        let points = grid.map(|at| (at.clone(), cost(&at)));
        let all = carried_on(&slice(Family::EncoderLayer, &["batch", "tokens"], points), &operations);
        assert_eq!(all.points.len(), 6 + 2 * 16);
        for at in [[1, 160], [8, 256], [8, 2048]] {
            assert!((us(&all, at) / cost(&at) - 1.0).abs() < 1e-9, "{at:?}");
        }
    }

    /// Pairs of tokens, of chunks and contexts both of which nobody measured.
    #[test]
    fn a_prompt_goes_on_by_its_pairs() {
        let cost = |at: &[u64]| 2.0 + ChunkAttention.of(at) / 1e3;
        let lengths = [16, 64, 256];
        let grid = lengths.iter().flat_map(|&tokens| lengths.iter().map(move |&context| vec![tokens, context]));
        let points = grid.filter(|at| at[0] <= at[1]).map(|at| (at.clone(), cost(&at)));
        let all = carried_on(
            &slice(Family::DecoderPrefill, &["tokens", "context"], points),
            &ChunkAttention,
        );
        for at in [[16, 4096], [256, 512], [512, 512], [320, 1024], [4096, 4096]] {
            assert!(
                (us(&all, at) / cost(&at) - 1.0).abs() < 1e-9,
                "{at:?}: {} and {}",
                us(&all, at),
                cost(&at)
            );
        }
        assert!(all.points.iter().all(|point| point.at[0] <= point.at[1]));
    }

    #[test]
    fn a_single_length_goes_on_in_proportion_to_operations() {
        let tiny = ModelShape::builtin("tiny").unwrap();
        let operations = EncoderLayers::<0>(&tiny);
        let all = carried_on(
            &slice(Family::EncoderLayer, &["batch", "tokens"], [(vec![1, 64], 50.0)]),
            &operations,
        );
        let ratio = operations.of(&[1, 128]) / operations.of(&[1, 64]);
        assert!((us(&all, [1, 128]) - 50.0 * ratio).abs() < 1e-9);
    }
}
