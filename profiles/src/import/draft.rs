//! Tables on their way from a source's points to a card's rows: mended where they fall, checked where points were left
//! out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::sheet::{Place, Sheet};
use super::slips::Slip;
use super::summary_stats::Times;
use crate::card::Source;
use crate::check::dip;
use crate::error::Invalid;
use crate::family::Family;
use crate::grid::Grid;
use crate::keys::CollectiveOperation;
use crate::model::DType;
use crate::origin::Origin;
use crate::rows::{
    CollectiveRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderMixedRow, DecoderPrefillRow,
    DecoderPromptsRow,
};
use crate::slice::{Point, Slice};
use crate::stats::nearest_rank;
use crate::tables::Tables;

/// Times by point, the point's dimensions in the order of the family's axes.
pub(super) type Points<const N: usize> = BTreeMap<[u64; N], Times>;

/// What an importer makes of a source.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub tables: Tables,
    pub origins: Vec<Origin>,
    pub notes: Vec<String>,
    /// The files given, as errors call them.
    files: Vec<String>,
    /// What was done to the points of a table.
    mended: BTreeMap<(Family, String), String>,
}

/// A model in a number format on so many cards: whose decoder tables these are.
#[derive(Clone, Copy)]
pub(super) struct Decoding<'a> {
    pub model: &'a str,
    pub dtype: DType,
    pub tensor_parallel: u32,
}

impl Decoding<'_> {
    pub fn label(self) -> String {
        format!(
            "model={} dtype={} tensor_parallel={}",
            self.model, self.dtype, self.tensor_parallel
        )
    }
}

/// The points of a table without holes: where some were not measured, what is left without the sequences, lengths,
/// sizes that lack the largest share of theirs, one after the other. A note says how many were left out of `what`.
pub(super) fn without_holes(what: &str, points: &Points<2>, draft: &mut Draft) -> Points<2> {
    let mut kept = points.clone();
    loop {
        let axes = [0, 1].map(|axis| kept.keys().map(|at| at[axis]).collect::<BTreeSet<u64>>());
        let lines = [0, 1].into_iter().flat_map(|axis| axes[axis].iter().map(move |&value| (axis, value)));
        let holes = lines.filter_map(|(axis, value)| {
            let there = kept.keys().filter(|at| at[axis] == value).count();
            let missing = axes[1 - axis].len() - there;
            // Shares of lines along either axis are compared by their products with both lengths; of equal ones the
            // shorter goes.
            let share = missing * axes[axis].len();
            (missing > 0).then_some((share, Reverse(there), axis, value))
        });
        let Some((_, _, axis, value)) = holes.max() else { break };
        kept.retain(|at, _| at[axis] != value);
    }
    let left_out = points.len() - kept.len();
    if left_out > 0 {
        draft.note(format!(
            "{what}: {left_out} of {} points are left out, since others beside them were not measured",
            points.len()
        ));
    }
    kept
}

/// Adds a table of a decoder's layers, by these axes.
macro_rules! decoder_table {
    ($name:ident, $family:ident, $row:ident, [$($axis:ident),+]) => {
        pub fn $name(
            &mut self,
            of: Decoding,
            points: Points<{ [$(stringify!($axis)),+].len() }>,
            source: &str,
            error: Option<String>,
        ) -> Result<(), Invalid> {
            let points = self.table(Family::$family, of, points, source, error)?;
            let rows = points.iter().map(|([$($axis),+], times)| $row {
                model: of.model.to_string(),
                dtype: of.dtype,
                tensor_parallel: of.tensor_parallel,
                $($axis: *$axis as u32,)+
                stats: times.stats(),
            });
            self.tables.$name.extend(rows);
            Ok(())
        }
    };
}

impl Draft {
    /// Nothing as yet of these files.
    pub fn of(sheets: &[Sheet]) -> Draft {
        Draft {
            files: sheets.iter().map(|sheet| sheet.file().to_owned()).collect(),
            ..Draft::default()
        }
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Says where a table comes from, how far interpolation is off at measured points that it leaves out, or else that
    /// its source states no error, and how far points were moved.
    pub fn origin(&mut self, family: Family, table: &str, source: &str, error: Option<String>) {
        let mended = self.mended.remove(&(family, table.to_string()));
        let error = error.unwrap_or_else(|| "the source states none".to_owned());
        let both: Vec<String> = std::iter::once(error).chain(mended).collect();
        self.origins.push(Origin {
            error: Some(both.join("; ")),
            ..Origin::new(family, Some(table.to_string()), Source::Imported, source)
        });
    }

    /// The tables of a family so far are of engines built for one shape each.
    pub fn of_one_shape(&mut self, family: Family) {
        let of_family = self.origins.iter_mut().filter(|origin| origin.family == family);
        of_family.for_each(|origin| origin.one_shape = true);
    }

    /// The points as a card accepts them. Where a larger point costs less than a smaller one, beyond what a card
    /// tolerates, all points of the table move half-way between the largest before and the smallest after, and the
    /// table's origin says so.
    ///
    /// # Errors
    /// They would move farther than kernels' steps and noise explain, or a file before has made this table.
    pub fn rising<const N: usize>(
        &mut self,
        family: Family,
        table: &str,
        mut points: Points<N>,
    ) -> Result<Points<N>, Invalid> {
        self.check_first(family, table, &points)?;
        if dip(&slice(family, &points)).is_none() {
            return Ok(points);
        }
        let as_read: Vec<([u64; N], Times)> = points.iter().map(|(at, times)| (*at, *times)).collect();
        if let Some(slip) = Slip::find(&as_read) {
            let file = self.file(slip.place);
            return Err(slip.invalid(&file, &format!("{family} {table}")));
        }
        let no_later = |a: &[u64; N], b: &[u64; N]| a.iter().zip(b).all(|(a, b)| a <= b);
        let (mut moved, mut most) = (0, 0.0_f64);
        for (at, times) in &mut points {
            let before = as_read.iter().filter(|(other, _)| no_later(other, at));
            let after = as_read.iter().filter(|(other, _)| no_later(at, other));
            let largest = before.map(|(_, read)| read.median_us).fold(0.0, f64::max);
            let smallest = after.map(|(_, read)| read.median_us).fold(f64::INFINITY, f64::min);
            let ratio = (largest + smallest) / 2.0 / times.median_us;
            if ratio != 1.0 {
                moved += 1;
                most = most.max((ratio - 1.0).abs());
                *times = times.times(ratio);
            }
        }
        let mended = format!(
            "{moved} of {} points moved, by up to {:.0} %, so that more work never costs less",
            as_read.len(),
            100.0 * most
        );
        self.mended.insert((family, table.to_string()), mended);
        Ok(points)
    }

    /// Two files of one table are two cards', or two measurements of one, of which neither is the other's.
    fn check_first<const N: usize>(&self, family: Family, table: &str, points: &Points<N>) -> Result<(), Invalid> {
        let is_there = |origin: &Origin| origin.family == family && origin.table.as_deref() == Some(table);
        if !self.origins.iter().any(is_there) {
            return Ok(());
        }
        let place = points.values().find_map(|times| times.place);
        let must = "of tables that no file before it has";
        let invalid = Invalid::new(&self.file(place), family.name(), must, table);
        Err(match place {
            Some(place) => invalid.in_line(place.line),
            None => invalid,
        })
    }

    /// The file of a place; all of them where a figure is composed of several's.
    fn file(&self, place: Option<Place>) -> String {
        place.map_or_else(|| self.files.join(", "), |place| self.files[place.sheet].clone())
    }

    /// The points as a card accepts them, and the table's origin; nothing of a table that the source does not have.
    fn table<const N: usize>(
        &mut self,
        family: Family,
        of: Decoding,
        points: Points<N>,
        source: &str,
        error: Option<String>,
    ) -> Result<Points<N>, Invalid> {
        if points.is_empty() {
            return Ok(points);
        }
        let points = self.rising(family, &of.label(), points)?;
        self.origin(family, &of.label(), source, error);
        Ok(points)
    }

    decoder_table!(decoder_dense, DecoderDense, DecoderDenseRow, [tokens]);
    decoder_table!(decoder_prefill, DecoderPrefill, DecoderPrefillRow, [tokens, context]);
    decoder_table!(decoder_decode, DecoderDecode, DecoderDecodeRow, [sequences, context]);
    decoder_table!(
        decoder_mixed,
        DecoderMixed,
        DecoderMixedRow,
        [tokens, first_context, sequences, context]
    );
    decoder_table!(decoder_prompts, DecoderPrompts, DecoderPromptsRow, [prompts, tokens]);
    decoder_table!(decoder_ends, DecoderEnds, DecoderEndsRow, [sequences, tokens]);

    /// What an operation between cards takes, by workers and bytes.
    pub fn collective(
        &mut self,
        operation: CollectiveOperation,
        points: Points<2>,
        source: &str,
        error: impl FnOnce(&Points<2>) -> Option<String>,
    ) -> Result<(), Invalid> {
        let label = format!("operation={operation}");
        let points = self.rising(Family::Collective, &label, points)?;
        let error = error(&points);
        self.origin(Family::Collective, &label, source, error);
        let rows = points.iter().map(|([workers, bytes], times)| CollectiveRow {
            operation,
            workers: *workers as u32,
            bytes: *bytes,
            stats: times.stats(),
        });
        self.tables.collective.extend(rows);
        Ok(())
    }
}

fn slice<const N: usize>(family: Family, points: &Points<N>) -> Slice {
    const AXES: [&str; 4] = ["first", "second", "third", "fourth"];
    let point = |(row, (at, times)): (usize, (&[u64; N], &Times))| Point {
        row,
        at: at.to_vec(),
        stats: times.stats(),
    };
    Slice {
        family,
        label: String::new(),
        axes: &AXES[..N],
        points: points.iter().enumerate().map(point).collect(),
    }
}

/// How far interpolation in `kept` is off at those `measured` points within its range that it does not have, in words;
/// none if there are none.
pub(super) fn error_where_left_out<const N: usize>(
    family: Family,
    kept: &Points<N>,
    measured: impl IntoIterator<Item = ([u64; N], f64)>,
) -> Option<String> {
    if kept.is_empty() {
        return None;
    }
    let grid: Grid<N> = Grid::new(&slice(family, kept)).ok()?;
    let left_out = measured.into_iter().filter(|(at, _)| !kept.contains_key(at) && grid.covers(*at));
    let mut errors: Vec<f64> =
        left_out.map(|(at, us)| (grid.cost(at).median_ns as f64 / 1e3 / us - 1.0).abs()).collect();
    if errors.is_empty() {
        return None;
    }
    errors.sort_by(f64::total_cmp);
    let percent = |rank| 100.0 * nearest_rank(&errors, rank);
    Some(format!(
        "at the {} measured points that the table leaves out: median {:.1} %, p95 {:.1} %",
        errors.len(),
        percent(50),
        percent(95)
    ))
}

/// The value at `x` on a line through points, ascending; beyond the outermost two it goes on.
pub(super) fn on_line(line: &[(u64, Times)], x: f64) -> Times {
    if line.len() == 1 {
        return line[0].1;
    }
    let above = line.partition_point(|(at, _)| *at as f64 <= x).clamp(1, line.len() - 1);
    let ((low, near), (high, far)) = (line[above - 1], line[above]);
    near.towards(far, (x - low as f64) / (high - low) as f64)
}

/// From times by a chunk's tokens and what is cached before it to times by its tokens and its context, which must be on
/// one grid: between measured numbers of cached tokens along a straight line, since each costs the same, and up to 2 %
/// beyond the last.
pub(super) fn by_context(by_cached: &Points<2>, contexts: &[u64]) -> Points<2> {
    let mut lines: BTreeMap<u64, Vec<(u64, Times)>> = BTreeMap::new();
    for ([tokens, cached], times) in by_cached {
        lines.entry(*tokens).or_default().push((*cached, *times));
    }
    let mut points = Points::new();
    for (tokens, line) in lines {
        let most = line.last().expect("a line has points").0;
        let reached = (tokens + most) * 102 / 100;
        for context in contexts.iter().filter(|context| (tokens..=reached).contains(*context)) {
            points.insert([tokens, *context], on_line(&line, (context - tokens) as f64));
        }
    }
    points
}
