//! One table of a family, whatever the family: its points, their grid, and what is missing from it.

use std::collections::HashSet;

use itertools::Itertools;

use crate::family::Family;
use crate::rows::Row;
use crate::stats::Stats;

/// The points of one table: the rows of a family that share their names.
pub(crate) struct Slice {
    pub family: Family,
    /// As messages call it: `model=tiny dtype=f32`.
    pub label: String,
    pub axes: &'static [&'static str],
    pub points: Vec<Point>,
}

/// One measured point of a [`Slice`].
pub(crate) struct Point {
    /// The row's index in its family.
    pub row: usize,
    pub at: Vec<u64>,
    pub stats: Stats,
}

/// Points that a table lacks.
pub(crate) struct Missing {
    pub first: Vec<u64>,
    /// How many, but for more than are counted.
    count: usize,
}

/// Missing points that are counted beyond the first.
const MISSING_COUNTED: usize = 9_999;

impl Missing {
    /// `17`, or `10000 or more`.
    pub fn how_many(&self) -> String {
        match self.count > MISSING_COUNTED {
            true => format!("{} or more", self.count),
            false => self.count.to_string(),
        }
    }
}

/// How a label writes a model,
pub(crate) const MODEL: &str = "model=";
/// and a number format.
pub(crate) const DTYPE: &str = "dtype=";

/// The number format that a label has, as it is written there.
pub(crate) fn dtype_of(label: &str) -> Option<&str> {
    label.split(' ').find_map(|cell| cell.strip_prefix(DTYPE))
}

/// The model that a label names, if its table is a model's.
pub(crate) fn model_of(label: &str) -> Option<&str> {
    label.split(' ').find_map(|cell| cell.strip_prefix(MODEL))
}

impl Slice {
    /// Whether it goes as far along each axis as another of the same family.
    pub fn reaches(&self, other: &Slice) -> bool {
        let most = |slice: &Slice, axis: usize| slice.points.iter().map(|point| point.at[axis]).max();
        (0..self.axes.len()).all(|axis| most(self, axis) >= most(other, axis))
    }

    /// What messages call it, also where its family has one table only.
    pub fn called(&self) -> &str {
        match self.label.as_str() {
            "" => self.family.name(),
            label => label,
        }
    }

    /// What a point takes as a whole. What only adds to a lane's work (a hand-over, a pass after idleness) may add next
    /// to nothing, so that it counts with the work that it adds to.
    pub fn whole_us(&self, point: &Point) -> f64 {
        let work = self.axes.iter().position(|axis| *axis == "work_us");
        point.stats.median_us + work.map_or(0.0, |axis| point.at[axis] as f64)
    }

    /// The model that its label has.
    pub fn model(&self) -> Option<&str> {
        model_of(&self.label)
    }

    /// The number format that its label has.
    pub fn dtype(&self) -> Option<&str> {
        dtype_of(&self.label)
    }

    /// The distinct values of each axis, ascending.
    pub fn knots(&self) -> Vec<Vec<u64>> {
        let of_axis = |axis: usize| {
            let mut knots: Vec<u64> = self.points.iter().map(|point| point.at[axis]).collect();
            knots.sort_unstable();
            knots.dedup();
            knots
        };
        (0..self.axes.len()).map(of_axis).collect()
    }

    /// The index of `at` in a dense array over `knots`, the last axis running fastest.
    pub fn dense_index(knots: &[Vec<u64>], at: &[u64]) -> usize {
        let place = |(knots, value): (&Vec<u64>, &u64)| knots.partition_point(|knot| knot < value);
        let places = knots.iter().zip(at).map(|pair| (place(pair), pair.0.len()));
        places.fold(0, |index, (place, length)| index * length + place)
    }

    /// The points that differ along one axis only, ascending along it: all such lines.
    pub fn lines(&self, axis: usize) -> Vec<Vec<&Point>> {
        let others = |point: &Point| [&point.at[..axis], &point.at[axis + 1..]].concat();
        let mut sorted: Vec<(Vec<u64>, &Point)> = self.points.iter().map(|point| (others(point), point)).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.at[axis].cmp(&b.1.at[axis])));
        let lines = sorted.chunk_by(|a, b| a.0 == b.0);
        lines.map(|line| line.iter().map(|(_, point)| *point).collect()).collect()
    }

    /// The points that the grid needs and nobody measured; nothing where it has all.
    pub fn missing(&self) -> Option<Missing> {
        let measured: HashSet<&[u64]> = self.points.iter().map(|point| point.at.as_slice()).collect();
        // One by one: a broken table may ask for more points than memory has room for.
        let mut missing = self
            .knots()
            .into_iter()
            .multi_cartesian_product()
            .filter(|at| !measured.contains(at.as_slice()) && self.family.possible(at));
        let first = missing.next()?;
        let count = 1 + missing.take(MISSING_COUNTED).count();
        Some(Missing { first, count })
    }

    /// `batch=4 tokens=64`.
    pub fn describe(&self, at: &[u64]) -> String {
        let cells: Vec<String> = at.iter().map(u64::to_string).collect();
        label(&mut self.axes.iter().copied().zip(&cells))
    }
}

fn label<'a>(cells: &mut dyn Iterator<Item = (&'a str, &'a String)>) -> String {
    cells.map(|(column, cell)| format!("{column}={cell}")).collect::<Vec<_>>().join(" ")
}

/// What messages and origins call the table of a row: what older profiles do not have is left out where it is what
/// theirs is.
pub(crate) fn table_of<R: Row>(row: &R) -> String {
    named(R::FAMILY, R::NAMES, &row.names())
}

fn named(family: Family, columns: &[&str], names: &[String]) -> String {
    let cells = columns.iter().copied().zip(names);
    label(&mut cells.filter(|(column, cell)| family.default_of(column) != Some(cell.as_str())))
}

/// The tables among `rows`, in the order in which they first appear.
pub(crate) fn slices<R: Row>(rows: &[R]) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    for (label, run) in runs(rows) {
        match slices.iter_mut().find(|slice| slice.label == label) {
            Some(slice) => slice.points.extend(run),
            None => slices.push(slice_of::<R>(label, run.collect())),
        }
    }
    slices
}

/// The table among `rows` of this label, where there is one.
pub(crate) fn slice<R: Row>(rows: &[R], asked: &str) -> Option<Slice> {
    let of_table = runs(rows).filter(|(label, _)| label == asked);
    let points: Vec<Point> = of_table.flat_map(|(_, run)| run).collect();
    (!points.is_empty()).then(|| slice_of::<R>(asked.to_owned(), points))
}

fn slice_of<R: Row>(label: String, points: Vec<Point>) -> Slice {
    Slice {
        family: R::FAMILY,
        label,
        axes: R::AXES,
        points,
    }
}

/// Neighbours of one table each, and its label. Writing labels takes most of the time of finding a table, so it is not
/// done for each row.
fn runs<R: Row>(rows: &[R]) -> impl Iterator<Item = (String, impl Iterator<Item = Point>)> {
    let mut next = 0;
    rows.chunk_by(R::shares_table).map(move |run| {
        let first = next;
        next += run.len();
        let points = run.iter().enumerate().map(move |(place, row)| Point {
            row: first + place,
            at: row.at(),
            stats: *row.stats(),
        });
        (table_of(&run[0]), points)
    })
}
