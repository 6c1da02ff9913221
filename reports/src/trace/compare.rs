//! Generated requests beside real ones that the fit did not see.

use serde::Serialize;
use tenantry_traces::describe::Histogram;

use super::{TenantFigures, Trace};
use crate::human::{self, ABSENT};
use crate::summary::rounded;
use crate::terminal::{self, Style};

/// What a fitted generator aims at: quantiles and means within 3 %.
const LENGTHS_WITHIN: f64 = 0.03;
/// The shares of the most active tenants within 3 %, besides what the two parts of the recording are apart by
/// themselves, or two standard errors.
const CONCENTRATION_WITHIN: f64 = 0.03;
/// The index of dispersion within 15 %.
const DISPERSION_WITHIN: f64 = 0.15;
/// The Kolmogorov-Smirnov distance below 0.03.
const DISTANCE_BELOW: f64 = 0.03;
/// Of fewer independent windows a recording's rates say nothing: their dispersion alone is known to a half of itself.
const LEAST_INDEPENDENT: f64 = 30.0;

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
    /// How large the error, or the distance, may be; absent where the recording is too short to tell.
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
    /// Sets `generated` beside `real`. Of few requests each figure is off by chance: two standard errors of so many
    /// independent ones are allowed for beside the aim. Where a few tenants are a good part of all requests, no fit can
    /// be nearer to `real` than `seen` is, the part that was fitted: their distance is allowed for in the shares of the
    /// most active instead.
    pub fn new(real: &Trace, generated: &Trace, seen: Option<&Trace>) -> Comparison {
        let mut rows = Vec::new();
        let (r, g) = (&real.curves, &generated.curves);
        for (what, real, generated) in [
            ("input tokens", &r.input, &g.input),
            ("output tokens", &r.output, &g.output),
        ] {
            let requests = real.iter().map(|(_, times)| times as f64).sum();
            rows.extend(lengths(what, real, generated, Some(requests)));
        }
        let per_window = |counts: &[u32]| counts.iter().copied().collect();
        let same_window = r.window_s == g.window_s && !r.counts.is_empty() && !g.counts.is_empty();
        if same_window && real.figures.requests_per_s.is_some() {
            rows.extend(lengths(
                &format!("requests in {} s", r.window_s),
                &per_window(&r.counts),
                &per_window(&g.counts),
                independent_windows(real, r.window_s),
            ));
        }
        for (window, seconds) in DISPERSIONS {
            let at = |trace: &Trace| trace.figures.dispersion.get(window).copied();
            if let (Some(of_real), Some(generated)) = (at(real), at(generated)) {
                let by_chance = independent_windows(real, seconds).map(|windows| 2.0 * (2.0 / (windows - 1.0)).sqrt());
                let aim = by_chance.map(|off| rounded(DISPERSION_WITHIN + off));
                rows.push(Row::new(format!("dispersion at {window}"), of_real, generated, aim));
            }
        }
        let requests: f64 = r.by_tenant.iter().sum();
        if let (Some(real), Some(generated)) = (real.figures.tenants, generated.figures.tenants) {
            let seen = seen.and_then(|seen| seen.figures.tenants);
            let mut share = |name: &str, of: fn(&TenantFigures) -> f64| {
                let off = match &seen {
                    Some(seen) => (of(seen) / of(&real) - 1.0).abs(),
                    // A request is one of the most active's or not, by itself.
                    None => 2.0 * ((1.0 - of(&real)) / of(&real) / requests).sqrt(),
                };
                let aim = rounded(CONCENTRATION_WITHIN + off);
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
            let verdict = match (row.aim, row.within) {
                (None, _) => Some("too few windows"),
                (_, within) => within.map(|within| if within { "within" } else { "OUTSIDE" }),
            };
            let verdict = verdict.map(str::to_owned);
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
        let header = ["Figure", "Real", "Generated", "Error", "Aim", "Verdict"].map(str::to_owned).to_vec();
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

/// The windows of dispersion, and their lengths in seconds.
const DISPERSIONS: [(&str, u32); 3] = [("1s", 1), ("10s", 10), ("60s", 60)];

/// Windows of `seconds` of a recording. Where its rate lasts, neighbours go together, and the counts of longer windows
/// spread more than a Poisson process's would: so many fewer are independent. Nothing where they are too few to tell.
fn independent_windows(recording: &Trace, seconds: u32) -> Option<f64> {
    let at = |&(window, of): &(&str, u32)| Some((of, *recording.figures.dispersion.get(window)?));
    let known: Vec<(u32, f64)> = DISPERSIONS.iter().filter_map(at).collect();
    let (_, own) = known.iter().find(|(of, _)| *of == seconds)?;
    let (_, longest) = known.last()?;
    let curves = &recording.curves;
    let windows = (curves.counts.len() as u32 * curves.window_s / seconds) as f64;
    Some(windows * (own / longest).min(1.0)).filter(|independent| *independent >= LEAST_INDEPENDENT)
}

/// `samples` is how many independent ones `real` is of, by which its figures are off from those of what it is a sample
/// of.
fn lengths(what: &str, real: &Histogram, generated: &Histogram, samples: Option<f64>) -> Vec<Row> {
    let (Some(r), Some(g), Some(distance)) = (real.figures(), generated.figures(), real.distance(generated)) else {
        return Vec::new();
    };
    let row = |name: &str, of_real: f64, generated, by_chance: &dyn Fn(f64) -> f64| {
        let aim = samples.map(|count| rounded(LENGTHS_WITHIN + by_chance(count) / of_real));
        Row::new(format!("{what}, {name}"), of_real, generated, aim)
    };
    let quantile = |name: &str, share: f64, of_real: u32, generated: u32| {
        // The quantiles that the share's own error reaches to, on the side that is farther.
        let by_chance = |count: f64| {
            let off = 2.0 * (share * (1.0 - share) / count).sqrt();
            let at = |share: f64| real.quantile(share.clamp(0.0, 1.0)).unwrap_or(of_real);
            f64::from(at(share - off).abs_diff(of_real).max(at(share + off).abs_diff(of_real)))
        };
        row(name, of_real.into(), generated.into(), &by_chance)
    };
    // That of two samples, of which the generated one is large, at 95 %.
    let aim = samples.map(|count| rounded(DISTANCE_BELOW + 1.36 / count.sqrt()));
    vec![
        row("mean", r.mean, g.mean, &|count| {
            2.0 * (variance(real, r.mean) / count).sqrt()
        }),
        quantile("p50", 0.5, r.p50, g.p50),
        quantile("p90", 0.9, r.p90, g.p90),
        quantile("p98", 0.98, r.p98, g.p98),
        Row {
            figure: format!("{what}, Kolmogorov-Smirnov"),
            real: None,
            generated: rounded(distance),
            error: None,
            aim,
            within: aim.map(|aim| distance < aim),
        },
    ]
}

fn variance(lengths: &Histogram, mean: f64) -> f64 {
    let (sum, count) = lengths.iter().fold((0.0, 0.0), |(sum, count), (tokens, times)| {
        let off = f64::from(tokens) - mean;
        (sum + times as f64 * off * off, count + times as f64)
    });
    sum / count
}

#[cfg(test)]
mod tests {
    use tenantry_traces::draw::{Draws, Purpose};
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

    /// A recording of an hour is off by chance from the process that it is of, the more the longer its rates last.
    #[test]
    fn a_recordings_own_chance_is_no_fault_of_the_generator() {
        // Poisson, and a rate that is redrawn every so many seconds.
        for lasts_s in [u64::MAX, 5] {
            let sampled = |seed: u64, levels: u64, seconds: u64| {
                let draws = Draws::new(seed, Purpose::Arrival);
                let levels = Draws::new(levels, Purpose::Rate);
                let mut collector = Collector::new(1);
                for second in 0..seconds {
                    let level = levels.about(second / lasts_s).unit();
                    let (mut count, mut at) = (0, 0.0);
                    let mut gaps = draws.about(second);
                    loop {
                        at += gaps.exponential();
                        match at < 10.0 + 20.0 * level {
                            true => count += 1,
                            false => break,
                        }
                    }
                    collector.window(second, count).unwrap();
                }
                collector.finish("t", "t", 0)
            };
            let (mut judged, mut outside) = (0, Vec::new());
            for seed in 0..40 {
                // A Poisson process has one level.
                let levels = if lasts_s == u64::MAX { seed } else { 1000 + seed };
                let (real, generated) = (sampled(seed, seed, 3600), sampled(1000 + seed, levels, 36_000));
                let rows = Comparison::new(&real, &generated, None).rows;
                judged += rows.iter().filter(|row| row.within.is_some()).count();
                outside.extend(rows.into_iter().filter(|row| row.within == Some(false)));
            }
            assert!(judged > 300, "{judged}");
            assert!(
                outside.len() * 20 < judged,
                "{lasts_s}: {} of {judged}: {outside:?}",
                outside.len()
            );
        }
    }

    /// Neither are few requests': what made them is within the aims as often as two standard errors say.
    #[test]
    fn what_made_few_requests_is_within_the_aims() {
        let sampled = |seed: u64, requests: u64| {
            let draws = Draws::new(seed, Purpose::InputLength);
            let mut collector = Collector::new(1);
            // A half of one tenant, a quarter of another, and the rest of eighteen.
            let mut by_tenant = [0; 20];
            for ticket in 0..requests {
                let mut draw = draws.about(ticket);
                let record = Record {
                    input_tokens: Some(1 + (400.0 * draw.exponential()) as u32),
                    output_tokens: Some(1 + (90.0 * (0.8 * draw.normal()).exp()) as u32),
                    ..Record::default()
                };
                collector.record(&record).unwrap();
                let tenant = [0, 0, 1, 2 + draw.below(18)][draw.below(4) as usize];
                by_tenant[tenant as usize] += 1;
            }
            (0..).zip(by_tenant).for_each(|(tenant, requests)| collector.tenant(tenant, requests));
            collector.finish("t", "t", 0)
        };
        let generated = sampled(1000, 100_000);
        let rows: Vec<Row> =
            (0..60).flat_map(|seed| Comparison::new(&sampled(seed, 1_500), &generated, None).rows).collect();
        let outside: Vec<&Row> = rows.iter().filter(|row| row.within == Some(false)).collect();
        assert_eq!(rows.len(), 60 * 12);
        assert!(outside.len() * 20 < rows.len(), "{}: {outside:?}", outside.len());
    }

    #[test]
    fn of_few_windows_nothing_is_told() {
        let sampled = |seconds: u64| {
            let mut collector = Collector::new(1);
            (0..seconds).for_each(|second| collector.window(second, (second % 7) as u32).unwrap());
            collector.finish("t", "t", 0)
        };
        let comparison = Comparison::new(&sampled(1200), &sampled(36_000), None);
        let row = |figure: &str| comparison.rows.iter().find(|row| row.figure == figure).unwrap();
        let minutes = row("dispersion at 60s");
        assert_eq!((minutes.aim, minutes.within), (None, None), "twenty minutes");
        assert_eq!(row("dispersion at 1s").within, Some(true));
        let cells = comparison.cells();
        assert_eq!(cells.last().unwrap()[5], "too few windows", "{cells:?}");
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
        // By itself each of 1,990 requests is of the largest with that chance.
        let chance = 1000.0f64 / 1990.0;
        let by_chance = 2.0 * ((1.0 - chance) / chance / 1990.0).sqrt();
        assert!((row(None, 1010).aim.unwrap() - (0.03 + by_chance)).abs() < 1e-4);
        assert!(
            (row(Some(&seen), 500).aim.unwrap() - (0.03 + 1.0 - (500.0 / 1490.0) / (1000.0 / 1990.0))).abs() < 1e-4
        );
    }
}
