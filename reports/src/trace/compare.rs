//! Generated requests beside real ones that the fit did not see.

use serde::Serialize;

use super::{TenantFigures, Trace};
use crate::human::{self, ABSENT};
use crate::summary::rounded;
use crate::terminal::{self, Style};

/// What a fitted generator aims at: quantiles and means within 3 %.
const LENGTHS_WITHIN: f64 = 0.03;
/// The shares of the most active tenants within 3 %, besides what the two parts of the recording are apart by themselves.
const CONCENTRATION_WITHIN: f64 = 0.03;
/// The index of dispersion within 15 %.
const DISPERSION_WITHIN: f64 = 0.15;
/// The Kolmogorov-Smirnov distance below 0.03.
const DISTANCE_BELOW: f64 = 0.03;

/// A figure, real and generated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which figure.
    pub figure: String,
    /// In the part that the fit did not see; absent for a distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real: Option<f64>,
    /// In what was generated, or the distance between the two.
    pub generated: f64,
    /// Generated over real, less 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// How large the error, or the distance, may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<f64>,
    /// Whether it is within the aim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<bool>,
}

/// All figures that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// In the order of the table.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Sets `generated` beside `real`. Where a few tenants are a good part of all requests, no fit can be nearer to `real` than `seen` is, the
    /// part that was fitted: their distance is allowed for in the shares of the most active.
    pub fn new(real: &Trace, generated: &Trace, seen: Option<&Trace>) -> Comparison {
        let mut rows = Vec::new();
        let (r, g) = (&real.curves, &generated.curves);
        for (what, real, generated) in [
            ("input tokens", &r.input, &g.input),
            ("output tokens", &r.output, &g.output),
        ] {
            rows.extend(lengths(what, real, generated));
        }
        let per_window = |counts: &[u32]| counts.iter().copied().collect();
        let same_window = r.window_s == g.window_s && !r.counts.is_empty() && !g.counts.is_empty();
        if same_window && real.figures.requests_per_s.is_some() {
            rows.extend(lengths(
                &format!("requests in {} s", r.window_s),
                &per_window(&r.counts),
                &per_window(&g.counts),
            ));
        }
        for window in ["1s", "10s", "60s"] {
            let at = |trace: &Trace| trace.figures.dispersion.get(window).copied();
            if let (Some(real), Some(generated)) = (at(real), at(generated)) {
                rows.push(Row::new(
                    format!("dispersion at {window}"),
                    real,
                    generated,
                    Some(DISPERSION_WITHIN),
                ));
            }
        }
        if let (Some(real), Some(generated)) = (real.figures.tenants, generated.figures.tenants) {
            let seen = seen.and_then(|seen| seen.figures.tenants).unwrap_or(real);
            let mut share = |name: &str, of: fn(&TenantFigures) -> f64| {
                let apart = (of(&seen) / of(&real) - 1.0).abs();
                let aim = rounded(CONCENTRATION_WITHIN + apart);
                rows.push(Row::new(
                    format!("share of the {name}"),
                    of(&real),
                    of(&generated),
                    Some(aim),
                ));
            };
            share("top 1 %", |tenants| tenants.top_1_percent_share);
            share("top 10 %", |tenants| tenants.top_10_percent_share);
        }
        Comparison { rows }
    }

    /// Whether all figures with an aim are within it.
    pub fn within(&self) -> bool {
        self.rows.iter().all(|row| row.within != Some(false))
    }

    /// As rows of text, the first of them the header.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let percent = |share: f64| format!("{} %", human::signed(100.0 * share));
        let row = |row: &Row| {
            let aim = row.aim.map(|aim| match row.error {
                Some(_) => format!("±{} %", human::number(100.0 * aim)),
                None => format!("below {aim}"),
            });
            let verdict = row
                .within
                .map(|within| if within { "within" } else { "OUTSIDE" }.to_owned());
            [
                Some(row.figure.clone()),
                row.real.map(human::number),
                Some(human::number(row.generated)),
                row.error.map(percent),
                aim,
                verdict,
            ]
            .map(|cell| cell.unwrap_or(ABSENT.to_owned()))
            .to_vec()
        };
        let header = ["Figure", "Real", "Generated", "Error", "Aim", "Verdict"]
            .map(str::to_owned)
            .to_vec();
        [header].into_iter().chain(self.rows.iter().map(row)).collect()
    }

    /// For the terminal.
    pub fn table(&self, style: Style) -> String {
        terminal::figures(&self.cells(), style)
    }
}

impl Row {
    fn new(figure: String, real: f64, generated: f64, aim: Option<f64>) -> Row {
        let error = (real != 0.0).then(|| rounded(generated / real - 1.0));
        Row {
            figure,
            real: Some(rounded(real)),
            generated: rounded(generated),
            error,
            aim,
            within: aim.zip(error).map(|(aim, error)| error.abs() <= aim),
        }
    }
}

fn lengths(
    what: &str,
    real: &tenantry_traces::describe::Histogram,
    generated: &tenantry_traces::describe::Histogram,
) -> Vec<Row> {
    let (Some(r), Some(g), Some(distance)) = (real.figures(), generated.figures(), real.distance(generated)) else {
        return Vec::new();
    };
    let row = |name: &str, real, generated| Row::new(format!("{what}, {name}"), real, generated, Some(LENGTHS_WITHIN));
    vec![
        row("mean", r.mean, g.mean),
        row("p50", r.p50.into(), g.p50.into()),
        row("p90", r.p90.into(), g.p90.into()),
        row("p98", r.p98.into(), g.p98.into()),
        Row {
            figure: format!("{what}, Kolmogorov-Smirnov"),
            real: None,
            generated: rounded(distance),
            error: None,
            aim: Some(DISTANCE_BELOW),
            within: Some(distance < DISTANCE_BELOW),
        },
    ]
}

#[cfg(test)]
mod tests {
    use tenantry_traces::read::Record;

    use super::*;
    use crate::trace::Collector;

    fn trace(lengths: impl IntoIterator<Item = u32>) -> Trace {
        let mut collector = Collector::new(1);
        for tokens in lengths {
            let record = Record {
                input_tokens: Some(tokens),
                output_tokens: Some(0),
                ..Record::default()
            };
            collector.record(&record).unwrap();
        }
        collector.finish("t", "t", 0)
    }

    #[test]
    fn a_trace_is_within_all_aims_of_itself_and_outside_those_of_another() {
        let same = Comparison::new(&trace(1..100), &trace(1..100), None);
        assert!(same.within());
        assert_eq!(same.rows.len(), 5, "lengths, and nothing that lengths do not say");
        let other = Comparison::new(&trace(1..100), &trace(1..200), None);
        assert!(!other.within());
        let distance = other.rows.iter().find(|row| row.figure.ends_with("Smirnov")).unwrap();
        assert!((distance.generated - 0.5).abs() < 0.01, "{distance:?}");
    }

    #[test]
    fn the_top_tenants_shares_may_be_off_by_what_the_parts_are_apart() {
        let by_tenant = |most: u32| {
            let mut collector = Collector::new(1);
            (0..100).for_each(|tenant| collector.tenant(tenant, if tenant == 0 { most } else { 10 }));
            collector.finish("t", "t", 0)
        };
        let (real, seen) = (by_tenant(1000), by_tenant(500));
        let row = |seen: Option<&Trace>, generated| Comparison::new(&real, &by_tenant(generated), seen).rows[0].clone();
        assert_eq!(
            (row(None, 1010).within, row(None, 600).within),
            (Some(true), Some(false))
        );
        assert_eq!(
            (row(Some(&seen), 500).within, row(Some(&seen), 300).within),
            (Some(true), Some(false))
        );
        assert!(
            (row(Some(&seen), 500).aim.unwrap() - (0.03 + 1.0 - (500.0 / 1490.0) / (1000.0 / 1990.0))).abs() < 1e-4
        );
    }
}
