//! Multilinear interpolation over a dense grid, monotone in every dimension, inside the measured range and beyond.
//!
//! All the care is taken when the grid is built, so that a lookup is one formula without cases:
//!
//! 1. Measured medians are made monotone ([`monotone`]); spreads are kept as measured.
//! 2. Each axis gets a knot at zero and one beyond the largest value ([`extend`]). Their values continue the nearest
//!    segments, so that the outermost cells extrapolate by the same formula that interpolates. Where operations do not
//!    grow in proportion, points beyond the measured ones have been added before (`beyond.rs`).

use std::collections::BTreeSet;

use crate::cost::{Beyond, Cost, Spread, whole};
use crate::family::Growth;
use crate::slice::{Missing, Point, Slice};

/// A median in nanoseconds, and mean, p05, p95 and p99 as parts of a million of it.
type Node = [f64; 5];

/// On the line from `near` to `far`, where `fraction` is 1. However far beyond it goes on, parts that are equal in both
/// stay exactly what they are.
fn on_line(near: Node, far: Node, fraction: f64) -> Node {
    std::array::from_fn(|part| between(near[part], far[part], fraction))
}

#[inline]
fn between(near: f64, far: f64, fraction: f64) -> f64 {
    near + fraction * (far - near)
}

#[inline]
fn rounded(ns: f64) -> u64 {
    whole(ns + 0.5)
}

fn with_median([_, spread @ ..]: Node, median_ns: f64) -> Node {
    let [mean, p05, p95, p99] = spread;
    [median_ns, mean, p05, p95, p99]
}

/// Costs on an `N`-dimensional grid of points.
#[derive(Clone, Debug)]
pub(crate) struct Grid<const N: usize> {
    axes: [Axis; N],
    /// The last axis runs fastest.
    nodes: Vec<Node>,
    /// Of the nodes, side by side: most look-ups ask for nothing else.
    medians: Vec<f64>,
    /// Nodes from one knot of an axis to the next.
    strides: [usize; N],
    /// Points beyond one of these along every axis were not measured, though the table has some: there it goes on along
    /// its first axis.
    gone_on: Vec<[u64; N]>,
}

#[derive(Clone, Debug)]
struct Axis {
    name: &'static str,
    /// Between ascending knots, from zero to beyond the measured range.
    cells: Vec<Cell>,
    /// The cells of small values, which most are: found without a search.
    of_small: Vec<u16>,
    /// With the next: what was measured, an empty range on a line where nothing was.
    smallest_measured: u64,
    largest_measured: u64,
    /// How far such a line itself is beyond what was measured.
    line_beyond: Option<Box<Beyond>>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    from: u64,
    /// One over its width.
    inverse_width: f64,
}

/// Values below have their cells in [`Axis::of_small`].
const SMALL: u64 = 1 << 12;

impl Axis {
    fn new(name: &'static str, knots: &[u64]) -> Axis {
        let cell = |pair: &[u64]| Cell {
            from: pair[0],
            inverse_width: 1.0 / (pair[1] - pair[0]) as f64,
        };
        let mut axis = Axis {
            name,
            cells: knots.windows(2).map(cell).collect(),
            of_small: Vec::new(),
            smallest_measured: knots[1],
            largest_measured: knots[knots.len() - 2],
            line_beyond: None,
        };
        let cells = (0..SMALL.min(axis.largest_measured)).map(|value| u16::try_from(axis.search(value)));
        axis.of_small = cells.map_while(Result::ok).collect();
        axis
    }

    fn knots(&self) -> usize {
        self.cells.len() + 1
    }

    fn beyond(&self, value: u64) -> Option<Beyond> {
        if let Some(line) = &self.line_beyond {
            return Some(**line);
        }
        let measured = value.clamp(self.smallest_measured, self.largest_measured);
        (measured != value).then_some(Beyond {
            axis: self.name,
            asked: value,
            measured,
        })
    }

    /// The cell that holds `value`, and how far into it the value lies: from 0 to 1, or more in the last cell.
    #[inline]
    fn locate(&self, value: u64) -> (usize, f64) {
        let index = match self.of_small.get(value as usize) {
            Some(&cell) => cell.into(),
            None => self.search(value),
        };
        let cell = self.cells[index];
        // Far below 2^63, where a signed number is the quicker to convert.
        (index, (value - cell.from) as i64 as f64 * cell.inverse_width)
    }

    fn search(&self, value: u64) -> usize {
        // Mostly it is small, or beyond what was measured.
        let last = self.cells.len() - 1;
        if value >= self.cells[last].from {
            return last;
        }
        self.cells[1..].partition_point(|cell| cell.from <= value)
    }
}

impl<const N: usize> Grid<N> {
    /// Builds the grid of a table; the error is the points that nobody measured.
    pub fn new(slice: &Slice) -> Result<Grid<N>, Missing> {
        if let Some(missing) = slice.missing() {
            return Err(missing);
        }
        let knots: [Vec<u64>; N] = slice.knots().try_into().expect("a table has as many axes as its surface");
        let gone_on = gone_on(slice, &knots);
        let shape = knots.each_ref().map(Vec::len);
        let mut nodes = vec![[f64::NAN; 5]; shape.iter().product()];
        for point in &slice.points {
            let median_ns = point.stats.median_us * 1e3;
            let ppm = |us: f64| us / point.stats.median_us * 1e6;
            nodes[Slice::dense_index(&knots, &point.at)] = [
                median_ns,
                ppm(point.stats.mean_us),
                ppm(point.stats.p05_us),
                ppm(point.stats.p95_us),
                ppm(point.stats.p99_us),
            ];
        }
        // What cannot exist is no number here, and holds nothing up or down.
        let mut medians: Vec<f64> = nodes.iter().map(|node| node[0]).collect();
        let growth: [Growth; N] = std::array::from_fn(|axis| slice.family.growth(axis));
        monotone(&mut medians, shape, growth.map(|growth| growth == Growth::Rises));
        for (node, median) in nodes.iter_mut().zip(medians) {
            node[0] = median;
        }
        let least_ns = nodes.iter().map(|node| node[0]).fold(f64::INFINITY, f64::min);
        if slice.family.is_triangular() {
            complete_triangle(&mut nodes, &knots, least_ns);
        }
        let mut extended = (knots, nodes);
        for axis in 0..N {
            extended = extend(extended, axis, least_ns, growth);
        }
        let (knots, nodes) = extended;
        let mut names = slice.axes.iter();
        let axes = knots.map(|knots| Axis::new(names.next().expect("an axis has a name"), &knots));
        Ok(Grid {
            gone_on,
            ..Grid::of(axes, nodes)
        })
    }

    fn of(axes: [Axis; N], nodes: Vec<Node>) -> Grid<N> {
        let mut strides = [1; N];
        for axis in (1..N).rev() {
            strides[axis - 1] = strides[axis] * axes[axis].knots();
        }
        let medians = nodes.iter().map(|node| node[0]).collect();
        Grid {
            axes,
            nodes,
            medians,
            strides,
            gone_on: Vec::new(),
        }
    }

    /// The cost at a point.
    pub fn cost(&self, at: [u64; N]) -> Cost {
        let [median_ns, mean, p05, p95, p99] = self.parts(at, |place| self.nodes[place]);
        // Saturates: a mean thousands of medians away is not one that wraps around.
        let whole_ppm = |ppm: f64| (ppm + 0.5) as u32;
        let spread = Spread {
            mean_ppm: whole_ppm(mean),
            p05_ppm: whole_ppm(p05),
            p95_ppm: whole_ppm(p95),
            // They could be one apart, the wrong way round, where they are almost the same.
            p99_ppm: whole_ppm(p99).max(whole_ppm(p95)),
        };
        Cost {
            median_ns: rounded(median_ns),
            spread,
        }
    }

    /// The median of [`cost`](Self::cost), for a fraction of what all of it takes.
    pub fn median_ns(&self, at: [u64; N]) -> u64 {
        let [median_ns] = self.parts(at, |place| [self.medians[place]]);
        rounded(median_ns)
    }

    /// Parts of the node at a point, by those of the nodes around it.
    #[inline]
    fn parts<const PARTS: usize>(&self, at: [u64; N], node: impl Fn(usize) -> [f64; PARTS]) -> [f64; PARTS] {
        // An array of 2^N places needs a number of its own. N is known where this is compiled, and so is the branch.
        match N {
            // A single cost, such as of a hand-over.
            0 => self.interpolate::<1, PARTS>(at, node),
            1 => self.interpolate::<2, PARTS>(at, node),
            2 => self.interpolate::<4, PARTS>(at, node),
            3 => self.interpolate::<8, PARTS>(at, node),
            4 => self.interpolate::<16, PARTS>(at, node),
            _ => unreachable!("tables have up to four axes"),
        }
    }

    /// In a cell of so many corners, 2^N. Written with loops over numbers, since compilers make less of arrays'
    /// iterators, and leave parts of them as calls.
    #[inline]
    fn interpolate<const CORNERS: usize, const PARTS: usize>(
        &self,
        at: [u64; N],
        node: impl Fn(usize) -> [f64; PARTS],
    ) -> [f64; PARTS] {
        let mut index = 0;
        let mut fractions = [0.0; N];
        for axis in 0..N {
            let (cell, fraction) = self.axes[axis].locate(at[axis]);
            index += cell * self.strides[axis];
            fractions[axis] = fraction;
        }
        // The corners of the cell: those far along an axis have its bit set.
        let mut corners = [[0.0; PARTS]; CORNERS];
        for (corner, parts) in corners.iter_mut().enumerate() {
            let mut place = index;
            for axis in 0..N {
                place += (corner >> axis & 1) * self.strides[axis];
            }
            *parts = node(place);
        }
        for axis in (0..N).rev() {
            for near in 0..1 << axis {
                let far = corners[near + (1 << axis)];
                for part in 0..PARTS {
                    corners[near][part] = between(corners[near][part], far[part], fractions[axis]);
                }
            }
        }
        corners[0]
    }

    /// The same grid, of which points beyond these were not measured.
    pub fn measured_up_to(mut self, largest: [u64; N]) -> Grid<N> {
        for (axis, largest) in self.axes.iter_mut().zip(largest) {
            axis.largest_measured = largest;
        }
        self
    }

    /// Whether a point lies within the measured range of every axis, and not where the table goes on.
    #[inline]
    pub fn covers(&self, at: [u64; N]) -> bool {
        let mut covers = true;
        for (axis, value) in at.iter().enumerate() {
            let axis = &self.axes[axis];
            covers &= (axis.smallest_measured..=axis.largest_measured).contains(value);
        }
        covers && !self.gone_on.iter().any(|last| is_beyond(at, *last))
    }

    /// The point of the measured range that is nearest.
    pub fn nearest(&self, at: [u64; N]) -> [u64; N] {
        std::array::from_fn(|axis| {
            let Axis {
                smallest_measured,
                largest_measured,
                ..
            } = self.axes[axis];
            at[axis].clamp(smallest_measured, largest_measured)
        })
    }

    /// How far beyond what was measured a point lies, along the axis where that is farthest: above the largest, where
    /// costs are large, if it lies there along any. Nothing where it is covered.
    #[inline]
    pub fn beyond(&self, at: [u64; N]) -> Option<Beyond> {
        match self.covers(at) {
            true => None,
            false => self.farthest_beyond(at),
        }
    }

    #[cold]
    fn farthest_beyond(&self, at: [u64; N]) -> Option<Beyond> {
        let beyond = self.axes.iter().zip(at).filter_map(|(axis, value)| axis.beyond(value));
        let gone_on = self.gone_on.iter().filter(|last| is_beyond(at, **last));
        let gone_on = gone_on.map(|last| Beyond {
            axis: self.axes[0].name,
            asked: at[0],
            measured: last[0],
        });
        beyond.chain(gone_on).max_by(|one, other| {
            let by_side = one.is_above().cmp(&other.is_above());
            by_side.then_with(|| one.factor().total_cmp(&other.factor()))
        })
    }
}

impl Grid<2> {
    /// The costs along the first axis where the second has this value.
    pub fn along_first(&self, second: u64) -> Grid<1> {
        let [first_axis, second_axis] = &self.axes;
        let (cell, fraction) = second_axis.locate(second);
        let line = |line: &[Node]| on_line(line[cell], line[cell + 1], fraction);
        let mut axis = first_axis.clone();
        axis.line_beyond = second_axis.beyond(second).map(Box::new);
        if axis.line_beyond.is_some() {
            (axis.smallest_measured, axis.largest_measured) = (u64::MAX, 0);
        }
        Grid::of([axis], self.nodes.chunks(second_axis.knots()).map(line).collect())
    }
}

/// The points just before those that a table goes on to, without those that another implies.
fn gone_on<const N: usize>(slice: &Slice, knots: &[Vec<u64>; N]) -> Vec<[u64; N]> {
    let before = |point: &Point| -> [u64; N] {
        std::array::from_fn(|axis| {
            let place = knots[axis].partition_point(|knot| *knot < point.at[axis]);
            place.checked_sub(1).map_or(0, |place| knots[axis][place])
        })
    };
    let unmeasured = slice.points.iter().filter(|point| point.stats.count == 0);
    let all: BTreeSet<[u64; N]> = unmeasured.map(before).collect();
    let is_implied =
        |last: &[u64; N]| all.iter().any(|other| other != last && (0..N).all(|axis| other[axis] <= last[axis]));
    all.iter().filter(|last| !is_implied(last)).copied().collect()
}

/// Whether a point is larger along every axis.
#[inline]
fn is_beyond<const N: usize>(at: [u64; N], last: [u64; N]) -> bool {
    let mut beyond = true;
    for axis in 0..N {
        beyond &= at[axis] > last[axis];
    }
    beyond
}

/// Gives values to batches with more tenants than requests, which cannot exist but are corners of cells that do: the
/// plane through the cell's other three corners, which makes interpolation within the cell's possible half linear. Of
/// costs that rise a corner's lies between its neighbours' then; where they need not rise with tenants, the plane ends
/// at the least cost.
fn complete_triangle<const N: usize>(nodes: &mut [Node], knots: &[Vec<u64>; N], least_ns: f64) {
    let (tenants, batches) = (&knots[0], &knots[1]);
    let tokens: usize = knots[2..].iter().map(Vec::len).product();
    let index = |tenant: usize, batch: usize, token: usize| (tenant * batches.len() + batch) * tokens + token;
    for batch in (0..batches.len()).rev() {
        for tenant in (0..tenants.len()).filter(|tenant| tenants[*tenant] > batches[batch]) {
            for token in 0..tokens {
                let fewer_tenants = nodes[index(tenant - 1, batch, token)];
                let larger_batch = nodes[index(tenant, batch + 1, token)];
                let both = nodes[index(tenant - 1, batch + 1, token)];
                let plane_ns = fewer_tenants[0] + larger_batch[0] - both[0];
                // Nor does it fall where there are more tokens, along which possible costs rise.
                let before_ns = token.checked_sub(1).map_or(least_ns, |token| nodes[index(tenant, batch, token)][0]);
                nodes[index(tenant, batch, token)] = with_median(fewer_tenants, plane_ns.max(before_ns).max(least_ns));
            }
        }
    }
}

/// Makes values rise along every axis that they should rise along by moving each half-way between the largest value
/// before it and the smallest after it. Values that already rise stay as they are; noise moves by at most the size of
/// its dip.
fn monotone<const N: usize>(values: &mut [f64], shape: [usize; N], rises: [bool; N]) {
    let mut least_after = values.to_vec();
    running_max(values, shape, rises);
    // The running minimum from the far end is the running maximum of the negated values in reverse order, and reversing
    // a row-major array reverses all its axes.
    least_after.reverse();
    least_after.iter_mut().for_each(|value| *value = -*value);
    running_max(&mut least_after, shape, rises);
    for (value, least) in values.iter_mut().zip(least_after.iter().rev()) {
        *value = (*value - least) / 2.0;
    }
}

/// Replaces each value of a row-major array by the largest of those no later than it along every axis that counts.
fn running_max<const N: usize>(values: &mut [f64], shape: [usize; N], counts: [bool; N]) {
    let mut stride = 1;
    for (length, counts) in shape.into_iter().zip(counts).rev() {
        for index in 0..values.len() {
            if counts && index / stride % length > 0 {
                values[index] = values[index].max(values[index - stride]);
            }
        }
        stride *= length;
    }
}

/// Adds a knot at zero and one at twice the largest to an axis.
///
/// Upward, the slope over the last doubling goes on: by then a kernel is bound by compute or bandwidth, and operations
/// and bytes take time in proportion (the roofline of the nearest points). Along the other axes the slope never falls,
/// else two extrapolated costs could cross. A single measured point grows in proportion, as a kernel bound by work
/// does. Downward, the first segment's slope goes on, but never below `least_ns`, the smallest measured cost. Mean and
/// quantiles keep the ratio to the median that they have at the outermost measured point. Along an axis that costs do
/// not rise along, see [`Growth`].
fn extend<const N: usize>(
    (mut knots, nodes): ([Vec<u64>; N], Vec<Node>),
    axis: usize,
    least_ns: f64,
    growth: [Growth; N],
) -> ([Vec<u64>; N], Vec<Node>) {
    let shape = knots.each_ref().map(Vec::len);
    let inner: usize = shape[axis + 1..].iter().product();
    let (length, lines) = (shape[axis], nodes.len() / shape[axis]);
    let along = &knots[axis];
    let (first, last) = (along[0], along[length - 1]);
    // The `line`-th line along the axis has its `place`-th node here, in an array where lines have `length` nodes.
    let index = |line: usize, place: usize, length: usize| (line / inner * length + place) * inner + line % inner;
    let median = |line: usize, place: usize| nodes[index(line, place, length)][0];
    let slope = |line: usize, from: usize, to: usize| {
        (median(line, to) - median(line, from)) / (along[to] - along[from]) as f64
    };

    // Neighbours that lie close together tell more of noise and of one kernel's steps than of what more work takes.
    let octave_below = along.partition_point(|knot| *knot <= last / 2).clamp(1, length.max(2) - 1) - 1;
    let mut across = shape;
    across[axis] = 1;
    let (mut beyond_slopes, mut zeros) = (vec![0.0; lines], vec![0.0; lines]);
    for line in 0..lines {
        (beyond_slopes[line], zeros[line]) = match growth[axis] {
            Growth::Any => (0.0, median(line, 0)),
            Growth::RisesBeyond => {
                let above_least = (median(line, length - 1) - least_ns).max(0.0);
                (above_least / last as f64, median(line, 0))
            }
            Growth::Rises if length == 1 => (median(line, 0) / last as f64, median(line, 0)),
            Growth::Rises => {
                let zero = median(line, 0) - slope(line, 0, 1) * first as f64;
                (slope(line, octave_below, length - 1), zero.max(least_ns))
            }
        };
    }
    let rises = growth.map(|growth| growth == Growth::Rises);
    running_max(&mut beyond_slopes, across, rises);
    running_max(&mut zeros, across, rises);

    let mut extended = vec![[0.0; 5]; lines * (length + 2)];
    for line in 0..lines {
        for place in 0..length {
            extended[index(line, place + 1, length + 2)] = nodes[index(line, place, length)];
        }
        let (smallest, largest) = (nodes[index(line, 0, length)], nodes[index(line, length - 1, length)]);
        extended[index(line, 0, length + 2)] = with_median(smallest, zeros[line]);
        let beyond_ns = largest[0] + beyond_slopes[line] * last as f64;
        extended[index(line, length + 1, length + 2)] = with_median(largest, beyond_ns);
    }
    knots[axis] = [&[0], along.as_slice(), &[2 * last]].concat();
    (knots, extended)
}
