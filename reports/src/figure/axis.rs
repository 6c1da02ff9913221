//! Where an axis begins, ends and is marked. plotters' own logarithmic axis is marked at powers of ten only; here a
//! logarithmic axis is a linear one of logarithms.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::human;
use crate::page::charts::Axis;

/// An axis with its marks.
#[derive(Clone, Debug)]
pub struct Scaled {
    log: bool,
    percent: bool,
    names: Vec<String>,
    /// In its own units: logarithms where it is logarithmic.
    pub ends: (f64, f64),
    /// Likewise.
    pub marks: Vec<f64>,
    /// Of the values at the marks, where these lie at even steps: as many as tell one from the next.
    decimals: Option<usize>,
}

impl Scaled {
    /// An axis that goes across: as wide as its values, with some room where they are marked points.
    pub fn across(axis: &Axis, values: &[f64], points: bool) -> Scaled {
        Scaled::new(axis, values, |low, high| {
            match (axis.names.is_empty(), points || low == high) {
                (false, _) => (low - 0.5, high + 0.5),
                (true, true) => (low - room(low, high), high + room(low, high)),
                (true, false) => (low, high),
            }
        })
    }

    /// An axis that goes up: from nothing to a little above the most, shares to all of it.
    pub fn up(axis: &Axis, values: &[f64]) -> Scaled {
        Scaled::new(axis, values, |low, high| match (axis.percent, axis.log) {
            (true, _) => (0.0, 1.0),
            (false, true) => (low - room(low, high), high + room(low, high)),
            (false, false) => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
        })
    }

    /// An axis of rows, the first on top: row `i` of `n` lies at `n - i - 0.5`.
    pub fn rows(names: &[String]) -> Scaled {
        let rows = names.len() as f64;
        Scaled {
            log: false,
            percent: false,
            names: names.iter().rev().cloned().collect(),
            ends: (0.0, rows),
            marks: (0..names.len()).map(|row| row as f64 + 0.5).collect(),
            decimals: None,
        }
    }

    fn new(axis: &Axis, values: &[f64], ends: impl Fn(f64, f64) -> (f64, f64)) -> Scaled {
        let mut scaled = Scaled {
            log: axis.log,
            percent: axis.percent,
            names: axis.names.clone(),
            ends: (0.0, 1.0),
            marks: Vec::new(),
            decimals: None,
        };
        let placed = || values.iter().map(|&value| scaled.place(value)).filter(|at| at.is_finite());
        let (low, high) = placed().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
            (low.min(at), high.max(at))
        });
        if low <= high {
            scaled.ends = ends(low, high);
        }
        let (low, high) = scaled.ends;
        let is_within = |mark: &f64| (low..=high).contains(mark);
        let log: Vec<f64> = log_marks(low, high).into_iter().filter(is_within).collect();
        scaled.marks = match (scaled.log, scaled.names.len()) {
            (true, _) if log.len() >= FEWEST_MARKS => log,
            (true, _) => {
                let step = even_step(10f64.powf(low), 10f64.powf(high));
                scaled.decimals = Some(decimals(step));
                let values = even_marks(10f64.powf(low), 10f64.powf(high), step);
                values.map(f64::log10).filter(is_within).collect()
            }
            (false, 0) => {
                let step = even_step(low, high);
                scaled.decimals = Some(decimals(step));
                even_marks(low, high, step).filter(is_within).collect()
            }
            (false, names) => (0..names).map(|index| index as f64).filter(is_within).collect(),
        };
        scaled
    }

    /// Where a value lies.
    pub fn place(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }

    /// What stands at a mark.
    pub fn name(&self, mark: f64) -> String {
        if let Some(name) = self.names.get(mark.floor() as usize) {
            return name.clone();
        }
        let value = if self.log { 10f64.powf(mark) } else { mark };
        match (self.percent, self.decimals) {
            (true, _) => format!("{} %", (value * 100.0).round()),
            (false, Some(decimals)) => plain(human::with_decimals(value, decimals)),
            (false, None) => plain(human::number(value)),
        }
    }
}

impl Ranged for Scaled {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Scaled {
    fn format_ext(&self, mark: &f64) -> String {
        self.name(*mark)
    }
}

/// A mark's value without needless zeros.
fn plain(text: String) -> String {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn room(low: f64, high: f64) -> f64 {
    if low == high { 0.3 } else { (high - low) * 0.04 }
}

/// 1, 2, 5, 10, 20 …; only powers of ten where there are many.
fn log_marks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.floor() as i32..=high.ceil() as i32;
    powers.flat_map(|power| steps.iter().map(move |step| f64::from(power) + step.log10())).collect()
}

/// Of fewer nobody reads a value.
const FEWEST_MARKS: usize = 3;

/// For some six marks: 1, 2 or 5 times a power of ten.
fn even_step(low: f64, high: f64) -> f64 {
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    step.into_iter().find(|step| *step >= rough).unwrap_or(power)
}

/// Of such a step.
fn decimals(step: f64) -> usize {
    (-step.log10().floor()).max(0.0) as usize
}

fn even_marks(low: f64, high: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(move |index| index as f64 * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_lie_within() {
        let linear = Scaled::up(&Axis::linear("ms"), &[3.0, 23.0]);
        assert_eq!(linear.ends.0, 0.0);
        assert_eq!(names(&linear), ["0", "5", "10", "15", "20"]);
        let log = Scaled::across(&Axis::log("tenants"), &[10.0, 1000.0], false);
        assert_eq!(names(&log), ["10", "20", "50", "100", "200", "500", "1,000"]);
        assert_eq!(log.place(100.0), 2.0);
        let share = Scaled::up(&Axis::percent("share"), &[0.2]);
        assert_eq!((share.ends, share.name(0.4)), ((0.0, 1.0), "40 %".into()));
    }

    fn names(axis: &Scaled) -> Vec<String> {
        axis.marks.iter().map(|&mark| axis.name(mark)).collect()
    }

    #[test]
    fn no_two_marks_carry_the_same_number() {
        let late = Scaled::across(&Axis::linear("ms"), &[2000.0, 2002.4], false);
        assert_eq!(names(&late), ["2,000", "2,000.5", "2,001", "2,001.5", "2,002"]);
    }

    #[test]
    fn a_short_logarithmic_axis_is_marked_at_even_steps() {
        let cost = Scaled::across(&Axis::log("ms"), &[14.5, 45.0], false);
        assert_eq!(names(&cost), ["20", "30", "40"]);
        let one = Scaled::across(&Axis::log("ms"), &[20.1, 20.95], false);
        assert_eq!(names(&one), ["20.2", "20.4", "20.6", "20.8"]);
    }

    #[test]
    fn one_value_and_none_have_an_axis() {
        let one = Scaled::across(&Axis::log("tenants"), &[10.0], true);
        assert!(one.ends.0 < 1.0 && one.ends.1 > 1.0);
        assert_eq!(Scaled::up(&Axis::linear("ms"), &[]).ends, (0.0, 1.0));
    }
}
