//! Charts of what a run did: how long requests took, when, and how tenants fared.

use super::charts::{Axis, Chart, Compared, GREY, Line, LineStyle, Stroke, Target, View, coarse, one_target, words};
use tenantry_core::ledger::Window;

use crate::curves::{Curves, log_grid, share_within, shares};
use crate::group::{Group, Spread};
use crate::human;
use crate::summary::Distribution;
use crate::validation::Pair;

/// A logarithmic axis has no zero: it begins at a microsecond at the earliest.
const LEAST_MS: f64 = 1e-3;

/// The charts of all groups together; those that have nothing to show are left out.
pub fn main(compared: &Compared<'_, '_>) -> Vec<Chart> {
    let at_points = |id: &str, title: &str, caption, view: &dyn Fn(&[&Group<'_>]) -> Option<View>| {
        let views = (0..compared.points.len()).map(|point| view(&compared.at(point).collect::<Vec<_>>()));
        Chart::at_points(id, title, caption, &compared.points, views.collect())
    };
    let over_time = |label: &'static str, figure: fn(&Totals) -> Option<f64>| {
        move |groups: &[&Group<'_>]| over_time(compared, groups, label, figure)
    };
    [
        at_points(
            "latency",
            "Latency",
            "The share of requests (up) that took at most a time (across, each step a ratio). Further left is faster.",
            &|groups| {
                let named: Vec<_> = groups.iter().map(|group| (*group, compared.name(group))).collect();
                cdf(&named, |group, ys| compared.line(group, ys))
            },
        ),
        at_points(
            "throughput",
            "Throughput over time",
            "Requests answered a second.",
            &over_time("Requests a second", |window| {
                Some(coarse(window.served as f64 / window.width_s?))
            }),
        ),
        at_points(
            "latency-over-time",
            "Latency over time",
            "Mean latency of the requests answered then.",
            &over_time("Mean latency in ms", |window| {
                (window.served > 0 && window.latency_sum_ns > 0)
                    .then(|| coarse(window.latency_sum_ns as f64 / window.served as f64 / 1e6))
            }),
        ),
        at_points(
            "batch",
            "Batch size over time",
            "Requests a batch, of the batches that began then.",
            &over_time("Requests a batch", |window| {
                (window.batches > 0).then(|| coarse(window.batch_requests as f64 / window.batches as f64))
            }),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How tenants fared.
pub fn tenants(compared: &Compared<'_, '_>) -> Option<Chart> {
    let views = (0..compared.points.len()).map(|point| by_tenant(compared, point));
    Chart::at_points(
        "tenants",
        "Mean latency by tenant",
        "The share of tenants (up) whose requests took at most a time on average (across). The steeper, the more alike \
         they are served. A line ends at the share of those that were answered at all.",
        &compared.points,
        views.collect(),
    )
}

fn by_tenant(compared: &Compared<'_, '_>, point: usize) -> Option<View> {
    let curves: Vec<(&Group<'_>, &[f64])> = compared
        .at(point)
        .map(|group| (group, group.runs[0].curves.tenant_ms.as_slice()))
        .filter(|(_, curve)| !curve.is_empty())
        .collect();
    let xs = latency_grid(curves.iter().map(|(_, curve)| *curve), compared.points_of_a_line())?;
    let lines = curves.iter().map(|(group, curve)| {
        let answered = answered_share(group);
        let share = |&x: &f64| Some(coarse(answered * share_within(curve, x)));
        compared.line(group, xs.iter().map(share).collect())
    });
    let in_words = curves.iter().map(|(group, curve)| {
        let [low, high] = [curve[0], curve[curve.len() - 1]].map(human::milliseconds);
        let answered = match answered_share(group) {
            share if share < 1.0 => format!(", of the {} that were answered", human::percent(share)),
            _ => String::new(),
        };
        format!("{}: from {low} to {high}{answered}", compared.name(group))
    });
    Some(View {
        summary: words(in_words),
        x: Axis::log("Mean latency of a tenant in ms"),
        y: Axis::percent("Share of tenants"),
        target: None,
        lines: lines.collect(),
        xs,
    })
}

/// Of a group's tenants, the share that was answered.
fn answered_share(group: &Group<'_>) -> f64 {
    let fairness = group.runs[0].summary.fairness;
    fairness.map_or(1.0, |fairness| fairness.answered_share())
}

/// The two charts that set one system's simulated beside its executed latencies.
pub fn validation(index: usize, pair: &Pair<'_>) -> Vec<Chart> {
    let (Some(simulated), Some(executed)) = (&pair.simulated, &pair.executed) else {
        return Vec::new();
    };
    let sides = [(simulated, simulated.place()), (executed, executed.place())];
    let line = |group: &Group<'_>, ys| Line {
        name: group.place(),
        system: None,
        style: match group.is_virtual() {
            true => LineStyle::nth(0),
            false => LineStyle::nth(1).dashed(),
        },
        points: false,
        ys,
        spans: Vec::new(),
    };
    let latency = cdf(&sides, line).map(|view| {
        Chart::single(
            format!("validation-{index}-latency"),
            "Latency, simulated and executed",
            "Both distributions. The closer the lines, the better the simulation.",
            view,
        )
    });
    let quantiles = quantiles(simulated, executed).map(|view| {
        Chart::single(
            format!("validation-{index}-quantiles"),
            "Quantile by quantile",
            "Each point is a share of requests: its latency executed (across) and simulated (up). On the grey line \
             both agree.",
            view,
        )
    });
    [latency, quantiles].into_iter().flatten().collect()
}

/// Latencies at equal ratios that span all of these; nothing where there are none.
fn latency_grid<'c>(curves: impl Iterator<Item = &'c [f64]>, points: usize) -> Option<Vec<f64>> {
    let ends = Spread::of(curves.flat_map(|curve| [curve[0], curve[curve.len() - 1]]))?;
    // A single value needs some room around it.
    let low = ends.min.max(LEAST_MS) * 0.98;
    let high = ends.max.max(LEAST_MS) * 1.02;
    Some(log_grid(low, high, points).map(coarse).collect())
}

fn cdf(named: &[(&Group<'_>, String)], line: impl Fn(&Group<'_>, Vec<Option<f64>>) -> Line) -> Option<View> {
    let curves: Vec<_> = named
        .iter()
        .map(|(group, name)| (*group, name, group.latency_ms()))
        .filter(|(_, _, curve)| !curve.is_empty())
        .collect();
    // Lines of a crowded chart cannot be followed into their corners.
    let points = if curves.len() > 8 { 64 } else { 200 };
    let xs = latency_grid(curves.iter().map(|(_, _, curve)| curve.as_slice()), points)?;
    let lines = curves.iter().map(|(group, _, curve)| {
        let share = |&x: &f64| Some(coarse(share_within(curve, x)));
        line(group, xs.iter().map(share).collect())
    });
    let in_words = curves.iter().map(|(group, name, _)| {
        let over_repeats = |read: fn(Distribution) -> f64, of: fn(Spread) -> f64| {
            let spread = group.spread(|run| run.latency_ms.map(read));
            spread.map_or(String::new(), |spread| human::milliseconds(of(spread)))
        };
        format!(
            "{name}: median {}, p98 {}, largest {}",
            over_repeats(|l| l.p50, |repeats| repeats.mean),
            over_repeats(|l| l.p98, |repeats| repeats.mean),
            over_repeats(|l| l.max, |repeats| repeats.max)
        )
    });
    let target = one_target(named.iter().map(|(group, _)| *group)).and_then(|slo| slo.latency_ms);
    Some(View {
        summary: words(in_words),
        x: Axis::log("Latency in ms"),
        y: Axis::percent("Share of requests"),
        target: target.map(|value| Target { up: false, value }),
        lines: lines.collect(),
        xs,
    })
}

/// Each point is a share of requests: how long it took executed and how long simulated.
fn quantiles(simulated: &Group<'_>, executed: &Group<'_>) -> Option<View> {
    let (simulated, executed) = (simulated.latency_ms(), executed.latency_ms());
    if simulated.is_empty() || executed.is_empty() {
        return None;
    }
    let middle = shares().position(|share| share >= 0.5)?;
    let xs: Vec<f64> = executed.iter().map(|ms| coarse(ms.max(LEAST_MS))).collect();
    let both_agree = LineStyle {
        color: GREY,
        stroke: Stroke::Dashed,
    };
    let line = |name: &str, style, ys: Vec<Option<f64>>| Line {
        name: name.to_owned(),
        system: None,
        style,
        points: false,
        ys,
        spans: Vec::new(),
    };
    let of_simulated = simulated.iter().map(|ms| Some(coarse(ms.max(LEAST_MS))));
    Some(View {
        summary: format!(
            "Half of all requests took at most {} simulated and {} executed; the slowest took {} and {}",
            human::milliseconds(simulated[middle]),
            human::milliseconds(executed[middle]),
            human::milliseconds(simulated[simulated.len() - 1]),
            human::milliseconds(executed[executed.len() - 1]),
        ),
        x: Axis::log("Executed, ms"),
        y: Axis::log("Simulated, ms"),
        target: None,
        lines: vec![
            line("both agree", both_agree, xs.iter().copied().map(Some).collect()),
            line("simulated", LineStyle::nth(0), of_simulated.collect()),
        ],
        xs,
    })
}

/// Windows of a group's first run, merged.
#[derive(Clone, Copy, Default)]
struct Totals {
    /// How long it lasted; nothing where that is too short for a rate.
    width_s: Option<f64>,
    served: u64,
    latency_sum_ns: u128,
    batches: u64,
    batch_requests: u64,
}

impl Totals {
    fn with(self, windows: &[Window]) -> Totals {
        windows.iter().fold(self, |sum, window| Totals {
            served: sum.served + window.served,
            latency_sum_ns: sum.latency_sum_ns + window.latency_sum_ns,
            batches: sum.batches + window.batches,
            batch_requests: sum.batch_requests + window.batch_requests,
            ..sum
        })
    }

    /// Of a whole run, in which windows that hold more, or last longer, weigh more.
    fn of_all(curves: &Curves) -> Totals {
        let width_s = Some(curves.end.as_secs_f64()).filter(|s| *s > 0.0);
        Totals {
            width_s,
            ..Totals::default()
        }
        .with(&curves.series.windows)
    }
}

fn over_time(
    compared: &Compared<'_, '_>,
    groups: &[&Group<'_>],
    label: &'static str,
    figure: fn(&Totals) -> Option<f64>,
) -> Option<View> {
    let series = groups.iter().map(|group| &group.runs[0].curves.series);
    // Widths are powers of two of the same width, so that the widest is a multiple of all others.
    let widest_ns = series.clone().map(|series| series.width.0).max()?;
    let longest_ns = series.map(|series| series.width.0 * series.windows.len() as u64).max()?;
    let points = compared.points_of_a_line() as u64;
    let width_ns = widest_ns * longest_ns.div_ceil(widest_ns * points).max(1);
    let width_s = width_ns as f64 / 1e9;
    let xs: Vec<f64> = (0..longest_ns.div_ceil(width_ns)).map(|i| coarse(i as f64 * width_s)).collect();
    if xs.len() < 2 {
        return None;
    }
    let line = |group: &&Group<'_>| {
        let curves = &group.runs[0].curves;
        let merge = (width_ns / curves.series.width.0) as usize;
        let end_s = curves.end.as_secs_f64();
        let totals = curves.series.windows.chunks(merge).enumerate().map(|(i, windows)| {
            // The run may end within its last window; of a small rest of one, no rate can be told.
            let lasted_s = width_s.min(end_s - i as f64 * width_s);
            let whole = Totals {
                width_s: (lasted_s >= width_s / 4.0).then_some(lasted_s),
                ..Totals::default()
            };
            whole.with(windows)
        });
        let mut ys: Vec<Option<f64>> = totals.map(|totals| figure(&totals)).collect();
        ys.resize(xs.len(), None);
        compared.line(group, ys)
    };
    let lines: Vec<Line> = groups.iter().map(line).collect();
    if lines.iter().all(|line| line.ys.iter().all(Option::is_none)) {
        return None;
    }
    let in_words = lines.iter().zip(groups).filter_map(|(line, group)| {
        let spread = Spread::of(line.ys.iter().copied().flatten())?;
        let mean = figure(&Totals::of_all(&group.runs[0].curves))?;
        let [min, mean, max] = [spread.min, mean, spread.max].map(human::number);
        Some(format!("{}: between {min} and {max}, {mean} on average", line.name))
    });
    Some(View {
        summary: words(in_words),
        x: Axis::linear("Time in s"),
        y: Axis::linear(label),
        target: None,
        lines,
        xs,
    })
}

#[cfg(test)]
mod tests {
    use tenantry_traces::{Duration, Time};

    use super::*;
    use crate::curves::Run;
    use crate::summary::{Across, FairnessSummary};
    use crate::testing;

    fn drawn(runs: &[Run], id: &str) -> View {
        let groups = Group::all(runs);
        let charts = main(&Compared::new(&groups));
        let mut chart = charts.into_iter().find(|chart| chart.id == id).unwrap();
        chart.views.remove(0)
    }

    #[test]
    fn a_cut_off_last_window_weighs_no_more_than_it_lasts() {
        let mut run = testing::runs().remove(0);
        let curves = &mut run.curves;
        curves.series.width = Duration::from_secs(10);
        curves.series.windows.truncate(2);
        for (window, served) in curves.series.windows.iter_mut().zip([10, 10]) {
            window.served = served;
        }
        curves.end = Time(12_500_000_000);
        assert_eq!(
            drawn(&[run], "throughput").summary,
            "hmi: between 1.00 and 4.00, 1.60 on average"
        );
    }

    /// Who was never answered took no time, and is not faster than any.
    #[test]
    fn tenants_who_were_never_answered_are_in_no_share() {
        let mut run = testing::runs().remove(0);
        run.curves.tenant_ms = shares().map(|share| 10.0 + share).collect();
        let mut drawn = |fairness: Option<FairnessSummary>| {
            run.summary.fairness = fairness;
            let runs = [run.clone()];
            let groups = Group::all(&runs);
            let view = tenants(&Compared::new(&groups)).unwrap().views.remove(0);
            (view.lines[0].ys.last().copied().flatten(), view.summary)
        };
        let waits = Across {
            min: 10.0,
            p50: 10.5,
            p98: 11.0,
            max: 11.0,
        };
        let of = |tenants_answered| {
            Some(FairnessSummary {
                tenants: 64,
                tenants_answered,
                tenant_mean_latency_ms: waits,
                jain_index: None,
                tenants_in_slo: None,
            })
        };
        let (end, said) = drawn(of(Some(16)));
        assert_eq!(end, Some(0.25));
        assert!(said.ends_with(", of the 25.0\u{a0}% that were answered"), "{said}");
        // A file of an earlier version does not say.
        for whole in [of(Some(64)), of(None), None] {
            let (end, said) = drawn(whole);
            assert_eq!(end, Some(1.0));
            assert!(said.ends_with("11.0\u{a0}ms"), "{said}");
        }
    }

    #[test]
    fn the_largest_latency_is_that_of_all_repeats() {
        let executed = testing::runs().split_off(1);
        let summary = drawn(&executed[..3], "latency").summary;
        assert!(summary.ends_with("largest 123\u{a0}ms"), "{summary}");
    }
}
