//! One row of a reproduction: a figure of the paper beside ours, and what the comparison is worth.

use serde::Serialize;
use tenantry_reports::summary::rounded;

use super::seeds::{Range, Spread};

/// What a comparison is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The card was fitted to it: shown, proves nothing but that the simulator says what the card does.
    Input,
    /// Follows without having been fitted to.
    Predicted,
    /// Follows from something that the paper does not say: the note names it.
    Assumed,
    /// An order or a direction is compared, not a size.
    ShapeOnly,
    /// Likewise of what the paper does not have: not counted among its orders.
    Ours,
    /// The paper's own figures exclude each other, whatever is simulated: the note shows it.
    Contradicted,
    /// The text cannot support a comparison: the note says why.
    NotCheckable,
}

impl Kind {
    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::Predicted => "predicted",
            Kind::Assumed => "assumed",
            Kind::ShapeOnly => "shape only",
            Kind::Ours => "ours",
            Kind::Contradicted => "contradicted",
            Kind::NotCheckable => "not checkable",
        }
    }
}

/// How far an input may be off: the card is fitted by arithmetic, and runs have beginnings and ends.
const INPUT_TOLERANCE: f64 = 0.05;

/// What a paper says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Said {
    /// A number.
    Number(f64),
    /// From the least to the most of several figures, of which the text has no more.
    Range([f64; 2]),
}

impl Said {
    /// What a figure of ours is set against: of a range the nearest.
    fn nearest(self, ours: f64) -> f64 {
        match self {
            Said::Number(number) => number,
            Said::Range([least, most]) => ours.clamp(least, most),
        }
    }
}

/// A figure of the paper beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The paper's figure or table.
    pub figure: &'static str,
    /// What was measured there.
    pub what: String,
    /// Of both figures.
    pub unit: &'static str,
    /// What the comparison is worth.
    pub kind: Kind,
    /// The paper's, where it says one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<Said>,
    /// Ours, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<f64>,
    /// Where ours is the median of several seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Ours relative to the paper's, less 1; in points ours less the paper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// Whether the difference and the tolerance are percentage points.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub in_points: bool,
    /// How large the difference may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// Whether it is no larger or, for a shape, whether it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<bool>,
    /// Whether it was priced beyond the range of the card's tables; undecided until its figure is done, where any of
    /// the figure's runs was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extrapolated: Option<bool>,
    /// The assumption with what depends on it, or the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Row {
    fn new(kind: Kind, figure: &'static str, what: impl Into<String>, unit: &'static str) -> Row {
        Row {
            figure,
            what: what.into(),
            unit,
            kind,
            paper: None,
            ours: None,
            range: None,
            difference: None,
            in_points: false,
            tolerance: None,
            within: None,
            extrapolated: None,
            note: String::new(),
        }
    }

    fn compared(self, paper: Said, ours: f64) -> Row {
        Row {
            paper: Some(paper),
            ours: Some(rounded(ours)),
            difference: Some(rounded(ours / paper.nearest(ours) - 1.0)),
            ..self
        }
    }

    fn judged(self, tolerance: f64) -> Row {
        Row {
            tolerance: Some(tolerance),
            within: self.difference.map(|difference| difference.abs() <= tolerance),
            ..self
        }
    }

    /// What the card was fitted to.
    pub fn input(figure: &'static str, what: impl Into<String>, unit: &'static str, paper: f64, ours: f64) -> Row {
        Row::new(Kind::Input, figure, what, unit)
            .compared(Said::Number(paper), ours)
            .judged(INPUT_TOLERANCE)
    }

    /// A share in percent that `draws` outcomes were made to have: it must come out within three standard errors.
    pub fn drawn(figure: &'static str, what: impl Into<String>, paper: f64, ours: f64, draws: f64) -> Row {
        let row = Row::new(Kind::Input, figure, what, "%").compared(Said::Number(paper), ours).in_points();
        let share = paper / 100.0;
        row.judged(300.0 * (share * (1.0 - share) / draws).sqrt())
    }

    /// What must come out within `tolerance` of the paper's.
    pub fn predicted(
        figure: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        [paper, ours]: [f64; 2],
        tolerance: f64,
    ) -> Row {
        Row::new(Kind::Predicted, figure, what, unit)
            .compared(Said::Number(paper), ours)
            .judged(tolerance)
    }

    /// Likewise of a range, as far as ours is outside it.
    pub fn predicted_within(
        figure: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        range: [f64; 2],
        ours: f64,
        tolerance: f64,
    ) -> Row {
        Row::new(Kind::Predicted, figure, what, unit)
            .compared(Said::Range(range), ours)
            .judged(tolerance)
    }

    /// What depends on an assumption, which the note must name.
    pub fn assumed(
        figure: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        paper: Option<f64>,
        ours: f64,
    ) -> Row {
        let row = Row::new(Kind::Assumed, figure, what, unit);
        match paper {
            Some(paper) => row.compared(Said::Number(paper), ours),
            None => Row {
                ours: Some(rounded(ours)),
                ..row
            },
        }
    }

    /// What other figures of the paper exclude, as `why` shows.
    pub fn contradicted(
        figure: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        [paper, ours]: [f64; 2],
        why: impl Into<String>,
    ) -> Row {
        Row::new(Kind::Contradicted, figure, what, unit).compared(Said::Number(paper), ours).note(why)
    }

    /// An order or a direction, and a figure of ours that shows it.
    pub fn shape(figure: &'static str, what: impl Into<String>, unit: &'static str, ours: f64, holds: bool) -> Row {
        Row {
            ours: Some(rounded(ours)),
            within: Some(holds),
            ..Row::new(Kind::ShapeOnly, figure, what, unit)
        }
    }

    /// Likewise of what the paper does not have.
    pub fn ours(figure: &'static str, what: impl Into<String>, unit: &'static str, ours: f64, holds: bool) -> Row {
        Row {
            kind: Kind::Ours,
            ..Row::shape(figure, what, unit, ours, holds)
        }
    }

    /// What the text cannot support, and why.
    pub fn not_checkable(figure: &'static str, what: impl Into<String>, reason: impl Into<String>) -> Row {
        Row::new(Kind::NotCheckable, figure, what, "").note(reason)
    }

    /// An unjudged share in percent, set against the paper's in points: of shares near 100 % a relative difference says
    /// little.
    pub fn in_points(self) -> Row {
        let pair = self.ours.zip(self.paper);
        let difference = pair.map(|(ours, paper)| rounded(ours - paper.nearest(ours)));
        Row {
            difference,
            in_points: true,
            ..self
        }
    }

    /// The same where ours is the median of several seeds.
    pub fn over(self, spread: Spread) -> Row {
        Row {
            range: Some(spread.into()),
            ..self
        }
    }

    /// The same with a note.
    pub fn note(self, note: impl Into<String>) -> Row {
        Row {
            note: note.into(),
            ..self
        }
    }

    /// The same where it is known whether its own runs were priced beyond the tables' range, whatever others of its
    /// figure were.
    pub fn extrapolated(self, beyond: bool) -> Row {
        Row {
            extrapolated: Some(beyond),
            ..self
        }
    }

    /// The same on another card than the paper's: what the paper's own would have to meet is only set beside it.
    pub fn elsewhere(self) -> Row {
        match self.kind {
            Kind::Input | Kind::Predicted => Row {
                kind: Kind::Assumed,
                tolerance: None,
                within: None,
                note: match self.note.is_empty() {
                    true => "of another card than the paper's".into(),
                    false => self.note,
                },
                ..self
            },
            Kind::Assumed | Kind::ShapeOnly | Kind::Ours | Kind::Contradicted | Kind::NotCheckable => self,
        }
    }

    /// Whether it is a prediction that missed, or an input that did not come out again: then the fit, or its
    /// arithmetic, is off, and what is predicted from it as well.
    pub fn missed(&self) -> bool {
        matches!(self.kind, Kind::Predicted | Kind::Input) && self.within != Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_and_inputs_miss() {
        let predicted = |ours| Row::predicted("Fig. 1", "x", "/s", [100.0, ours], 0.1);
        assert!(!predicted(109.0).missed() && predicted(111.0).missed() && predicted(f64::NAN).missed());
        assert_eq!(predicted(111.0).difference, Some(0.11));
        let of_range = |ours| Row::predicted_within("Fig. 1", "x", "/s", [100.0, 110.0], ours, 0.1);
        let differences = [90.0, 104.0, 121.0, 122.0].map(|ours| (of_range(ours).difference, of_range(ours).missed()));
        let met = |difference| (Some(difference), false);
        assert_eq!(differences[..3], [met(-0.1), met(0.0), met(0.1)]);
        assert!(differences[3].1);
        assert_eq!(
            serde_json::to_value(of_range(104.0).paper).unwrap(),
            serde_json::json!([100.0, 110.0])
        );
        let input = Row::input("Fig. 1", "x", "/s", 100.0, 90.0);
        assert!(input.missed() && input.within == Some(false));
        assert!(!Row::assumed("Fig. 1", "x", "/s", Some(100.0), 1.0).missed());
        assert!(!Row::not_checkable("Fig. 1", "x", "lost").missed());
        let contradicted = Row::contradicted("Fig. 1", "x", "/s", [100.0, 50.0], "why");
        assert!(!contradicted.missed() && contradicted.difference == Some(-0.5) && contradicted.within.is_none());
        let drawn = |ours| Row::drawn("Fig. 1", "x", 90.0, ours, 10_000.0);
        assert_eq!(
            (drawn(90.8).within, drawn(91.0).within),
            (Some(true), Some(false)),
            "0.9 points are three standard errors"
        );
        assert_eq!(drawn(90.8).difference, Some(0.8));
        let elsewhere = predicted(111.0).elsewhere();
        assert!(!elsewhere.missed());
        assert_eq!((elsewhere.kind, elsewhere.difference), (Kind::Assumed, Some(0.11)));
    }
}
