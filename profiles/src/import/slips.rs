//! Figures that are in another unit than those beside them. Kernels take less time for more work now and then, which is
//! mended; what takes thousands of times as long as what is more is no kernel's.

use super::sheet::Place;
use super::summary_stats::Times;
use crate::error::Invalid;

/// How many times as long as more work some work may take to be mended, so that no point moves more than threefold. Of
/// all published points that are imported, three repetitions of an all-reduce of A100s take 3.4 times as long as of a
/// larger one; microseconds for milliseconds are a thousand.
const FALL_MAX: f64 = 5.0;

/// The point that is wrong, of the two between which costs fall most steeply.
#[derive(Debug, PartialEq)]
pub(super) struct Slip {
    /// Where it was read, if it was read anywhere.
    pub place: Option<Place>,
    must: String,
    got: String,
}

impl Slip {
    /// None where costs fall by no more than can be mended. The points are of any one table.
    pub fn find<const N: usize>(points: &[([u64; N], Times)]) -> Option<Slip> {
        let is_less = |less: &[u64; N], more: &[u64; N]| less.iter().zip(more).all(|(less, more)| less <= more);
        let fall = |less: &Times, more: &Times| less.median_us / more.median_us;
        let falls_to = |point: &([u64; N], Times)| -> Option<(f64, ([u64; N], Times))> {
            let less = points.iter().filter(|other| is_less(&other.0, &point.0));
            let costliest = less.max_by(|a, b| a.1.median_us.total_cmp(&b.1.median_us))?;
            Some((fall(&costliest.1, &point.1), *costliest))
        };
        let falls = points.iter().filter_map(|point| Some((falls_to(point)?, *point)));
        let ((steepest, less), more) = falls.max_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
        if steepest <= FALL_MAX {
            return None;
        }
        let to_more = points.iter().filter(|other| is_less(&other.0, &more.0) && fall(&other.1, &more.1) > FALL_MAX);
        let from_less = points.iter().filter(|other| is_less(&less.0, &other.0) && fall(&less.1, &other.1) > FALL_MAX);
        // The others agree with one of the two: the wrong one is out of step with more of them.
        let (wrong, right, bound) = match from_less.count() > to_more.count() {
            true => (less, more, format!("at most {FALL_MAX} times what")),
            false => (more, less, format!("at least 1/{FALL_MAX} of what")),
        };
        let than = match wrong.0 == less.0 {
            true => "more",
            false => "less",
        };
        let beside = right.1.place.filter(|place| wrong.1.place.is_some_and(|wrong| wrong.sheet == place.sheet));
        let line = beside.map_or_else(String::new, |place| format!(" (line {})", place.line));
        Some(Slip {
            place: wrong.1.place,
            must: format!(
                "{bound} {than} work takes, {}{line}, in the same unit",
                described(&right)
            ),
            got: described(&wrong),
        })
    }

    /// The complaint, of a table or column of a file.
    pub fn invalid(self, file: &str, field: &str) -> Invalid {
        let invalid = Invalid::new(file, field, self.must, self.got);
        match self.place {
            Some(place) => invalid.in_line(place.line),
            None => invalid,
        }
    }
}

/// `40000 µs at 1 × 128`.
fn described<const N: usize>((at, times): &([u64; N], Times)) -> String {
    let at: Vec<String> = at.iter().map(u64::to_string).collect();
    format!("{} µs at {}", times.stats().median_us, at.join(" × "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(us: &[f64]) -> Vec<([u64; 1], Times)> {
        let point = |(index, us): (usize, &f64)| {
            let line = index as u64 + 2;
            let times = Times {
                place: Some(Place { sheet: 0, line }),
                ..Times::only(*us, 1)
            };
            ([10 * line], times)
        };
        us.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_point_that_is_out_of_step_is_named_whichever_way_it_is() {
        let message = |us: &[f64]| Slip::find(&line(us)).unwrap().invalid("a.csv", "time").to_string();
        assert_eq!(
            message(&[1.0, 2000.0, 3.0, 4.0]),
            "a.csv:3: time: must be at most 5 times what more work takes, 3 µs at 40 (line 4), in the same unit, \
             got 2000 µs at 30"
        );
        assert_eq!(
            message(&[1.0, 2.0, 0.003, 4.0]),
            "a.csv:4: time: must be at least 1/5 of what less work takes, 2 µs at 30 (line 3), in the same unit, \
             got 0.003 µs at 40"
        );
    }

    #[test]
    fn what_kernels_steps_and_noise_may_do_is_none() {
        assert_eq!(Slip::find(&line(&[1.0, 5.0, 1.0, 4.0])), None);
        assert_eq!(Slip::find::<1>(&[]), None);
    }
}
