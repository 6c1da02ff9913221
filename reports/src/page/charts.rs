//! What the page's script draws: lines over shared x values, described so that one short script draws them all.

use serde::Serialize;

use crate::curves::{log_grid, share_within, shares};
use crate::group::{Group, Spread};
use crate::human;
use crate::summary::rounded;
use crate::validation::Pair;

/// Lines that a chart can hold and a reader can tell apart.
pub(super) const MAX_LINES: usize = 24;
/// Colours of the page's palette, used again where there are more systems; the one after them is grey.
pub(super) const COLORS: usize = 8;
const GREY: usize = COLORS;
/// A logarithmic axis has no zero: it begins at a microsecond at the earliest.
const LEAST_MS: f64 = 1e-3;
/// Points of a latency distribution.
const CDF_POINTS: usize = 200;
/// Points of a line over time.
const TIME_POINTS: usize = 200;

/// One chart.
#[derive(Debug, Serialize)]
pub struct Chart {
    /// Of its element in the page.
    pub id: String,
    /// Above it.
    pub title: &'static str,
    /// How to read it, in a sentence.
    pub caption: &'static str,
    /// What it shows, in words, for those who do not see it.
    pub summary: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Marked on the x axis: the latency target in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<f64>,
    /// Ascending.
    pub(super) xs: Vec<f64>,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
pub(super) struct Axis {
    label: &'static str,
    log: bool,
    percent: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) name: String,
    /// Systems are told apart by colour, an index of the page's palette …
    pub(super) color: usize,
    /// … and the machines by their strokes: what was simulated is solid beside what was executed, dashed.
    pub(super) dashed: bool,
    pub(super) ys: Vec<Option<f64>>,
}

impl Axis {
    pub(super) const fn linear(label: &'static str) -> Axis {
        Axis {
            label,
            log: false,
            percent: false,
        }
    }

    pub(super) const fn log(label: &'static str) -> Axis {
        Axis {
            label,
            log: true,
            percent: false,
        }
    }

    pub(super) const fn percent(label: &'static str) -> Axis {
        Axis {
            label,
            log: false,
            percent: true,
        }
    }
}

/// The charts of all groups together; those that have nothing to show are left out.
pub fn main(groups: &[Group<'_>]) -> Vec<Chart> {
    let styled = styled(groups);
    let caption =
        "The share of requests (up) that took at most a time (across, each step a ratio). Further left is faster.";
    let throughput = |window: &Totals| Some(rounded(window.served as f64 / window.width_s));
    let batch =
        |window: &Totals| (window.batches > 0).then(|| rounded(window.batch_requests as f64 / window.batches as f64));
    [
        cdf("latency".to_owned(), "Latency", caption, &styled),
        over_time(
            "throughput",
            "Throughput over time",
            "Requests answered a second.",
            "Requests a second",
            &styled,
            throughput,
        ),
        over_time(
            "batch",
            "Batch size over time",
            "Requests a batch, of the batches that began then.",
            "Requests a batch",
            &styled,
            batch,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Says what the charts leave out.
pub fn limit_note(groups: usize) -> Option<String> {
    (groups > MAX_LINES).then(|| format!("Charts show the first {MAX_LINES} of {groups} rows of the table."))
}

/// The two charts that set one system's simulated beside its executed latencies.
pub fn validation(index: usize, pair: &Pair<'_>) -> Vec<Chart> {
    let (Some(simulated), Some(executed)) = (&pair.simulated, &pair.executed) else {
        return Vec::new();
    };
    let styled = [
        Styled {
            group: simulated,
            name: simulated.place(),
            color: 0,
            dashed: false,
        },
        Styled {
            group: executed,
            name: executed.place(),
            color: 1,
            dashed: true,
        },
    ];
    let caption = "Both distributions. The closer the lines, the better the simulation.";
    [
        cdf(
            format!("validation-{index}-latency"),
            "Latency, simulated and executed",
            caption,
            &styled,
        ),
        quantiles(format!("validation-{index}-quantiles"), simulated, executed),
    ]
    .into_iter()
    .flatten()
    .collect()
}

struct Styled<'g, 'a> {
    group: &'g Group<'a>,
    name: String,
    color: usize,
    dashed: bool,
}

fn styled<'g, 'a>(groups: &'g [Group<'a>]) -> Vec<Styled<'g, 'a>> {
    let one_machine = groups.iter().all(|group| group.machine() == groups[0].machine());
    let mut titles: Vec<String> = Vec::new();
    let mut styled = Vec::new();
    for group in groups.iter().take(MAX_LINES) {
        let title = group.title();
        let color = titles.iter().position(|other| *other == title).unwrap_or_else(|| {
            titles.push(title.clone());
            titles.len() - 1
        });
        let name = if one_machine {
            title
        } else {
            format!("{title}, {}", group.place())
        };
        let color = color % COLORS;
        styled.push(Styled {
            group,
            name,
            color,
            dashed: !one_machine && !group.is_virtual(),
        });
    }
    styled
}

fn cdf(id: String, title: &'static str, caption: &'static str, styled: &[Styled<'_, '_>]) -> Option<Chart> {
    let curves: Vec<(&Styled, Vec<f64>)> = styled
        .iter()
        .map(|s| (s, s.group.latency_ms()))
        .filter(|(_, curve)| !curve.is_empty())
        .collect();
    let ends = Spread::of(curves.iter().flat_map(|(_, curve)| [curve[0], curve[curve.len() - 1]]))?;
    // A single value needs some room around it.
    let low = ends.min.max(LEAST_MS) * 0.98;
    let high = ends.max.max(LEAST_MS) * 1.02;
    let xs: Vec<f64> = log_grid(low, high, CDF_POINTS).map(rounded).collect();
    let lines = curves
        .iter()
        .map(|(s, curve)| s.line(xs.iter().map(|&x| Some(rounded(share_within(curve, x)))).collect()));
    let in_words = curves.iter().map(|(s, _)| {
        let at = |read: fn(crate::summary::Distribution) -> f64| {
            s.group
                .mean(|run| run.latency_ms.map(read))
                .map_or(String::new(), human::milliseconds)
        };
        format!(
            "{}: median {}, p98 {}, largest {}",
            s.name,
            at(|l| l.p50),
            at(|l| l.p98),
            at(|l| l.max)
        )
    });
    Some(Chart {
        id,
        title,
        caption,
        summary: in_words.collect::<Vec<_>>().join("; "),
        x: Axis::log("Latency in ms"),
        y: Axis::percent("Share of requests"),
        target: styled
            .iter()
            .find_map(|s| Some(s.group.runs[0].summary.slo.as_ref()?.latency_ms)),
        lines: lines.collect(),
        xs,
    })
}

/// Each point is a share of requests: how long it took executed and how long simulated.
fn quantiles(id: String, simulated: &Group<'_>, executed: &Group<'_>) -> Option<Chart> {
    let (simulated, executed) = (simulated.latency_ms(), executed.latency_ms());
    if simulated.is_empty() || executed.is_empty() {
        return None;
    }
    let middle = shares().position(|share| share >= 0.5)?;
    let xs: Vec<f64> = executed.iter().map(|ms| rounded(ms.max(LEAST_MS))).collect();
    Some(Chart {
        id,
        title: "Quantile by quantile",
        caption: "Each point is a share of requests: its latency executed (across) and simulated (up). On the grey line both agree.",
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
            Line {
                name: "both agree".to_owned(),
                color: GREY,
                dashed: true,
                ys: xs.iter().copied().map(Some).collect(),
            },
            Line {
                name: "simulated".to_owned(),
                color: 0,
                dashed: false,
                ys: simulated.iter().map(|ms| Some(rounded(ms.max(LEAST_MS)))).collect(),
            },
        ],
        xs,
    })
}

/// Windows of a group's first run, merged.
#[derive(Clone, Copy, Default)]
struct Totals {
    width_s: f64,
    served: u64,
    batches: u64,
    batch_requests: u64,
}

fn over_time(
    id: &'static str,
    title: &'static str,
    caption: &'static str,
    label: &'static str,
    styled: &[Styled<'_, '_>],
    figure: impl Fn(&Totals) -> Option<f64>,
) -> Option<Chart> {
    let series = styled.iter().map(|s| &s.group.runs[0].curves.series);
    // Widths are powers of two of the same width, so that the widest is a multiple of all others.
    let widest_ns = series.clone().map(|series| series.width.0).max()?;
    let longest_ns = series
        .map(|series| series.width.0 * series.windows.len() as u64)
        .max()?;
    let width_ns = widest_ns * longest_ns.div_ceil(widest_ns * TIME_POINTS as u64).max(1);
    let width_s = width_ns as f64 / 1e9;
    let xs: Vec<f64> = (0..longest_ns.div_ceil(width_ns))
        .map(|i| rounded(i as f64 * width_s))
        .collect();
    if xs.len() < 2 {
        return None;
    }
    let lines: Vec<Line> = styled
        .iter()
        .map(|s| {
            let series = &s.group.runs[0].curves.series;
            let merge = (width_ns / series.width.0) as usize;
            let end_s = s.group.runs[0].curves.end.as_secs_f64();
            let totals = series.windows.chunks(merge).enumerate().map(|(i, windows)| {
                windows.iter().fold(
                    Totals {
                        // The run may end within its last window.
                        width_s: width_s.min(end_s - i as f64 * width_s),
                        ..Totals::default()
                    },
                    |sum, window| Totals {
                        served: sum.served + window.served,
                        batches: sum.batches + window.batches,
                        batch_requests: sum.batch_requests + window.batch_requests,
                        ..sum
                    },
                )
            });
            let mut ys: Vec<Option<f64>> = totals.map(|totals| figure(&totals)).collect();
            ys.resize(xs.len(), None);
            s.line(ys)
        })
        .collect();
    let in_words = lines.iter().filter_map(|line| {
        let spread = Spread::of(line.ys.iter().copied().flatten())?;
        let [min, mean, max] = [spread.min, spread.mean, spread.max].map(human::number);
        Some(format!("{}: between {min} and {max}, {mean} on average", line.name))
    });
    Some(Chart {
        id: id.to_owned(),
        title,
        caption,
        summary: in_words.collect::<Vec<_>>().join("; "),
        x: Axis::linear("Time in s"),
        y: Axis::linear(label),
        target: None,
        lines,
        xs,
    })
}

impl Styled<'_, '_> {
    fn line(&self, ys: Vec<Option<f64>>) -> Line {
        Line {
            name: self.name.clone(),
            color: self.color,
            dashed: self.dashed,
            ys,
        }
    }
}
