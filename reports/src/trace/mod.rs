//! What a trace looks like, and how far a generator is from it: the figures of `tenantry trace info` and `trace fit`.
//!
//! [`Collector`] takes a trace piece by piece, whatever its format says of requests; [`TraceFigures`] are its figures,
//! [`TraceCurves`] what is drawn of it, and [`Comparison`] sets generated beside real ones.

mod collect;
mod compare;
mod gaps;

pub use collect::Collector;
pub use compare::{Comparison, Row};

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use tenantry_traces::describe::{Histogram, dispersion};

use crate::human;
use crate::summary::rounded;
use crate::terminal::{self, Style};

/// A trace that was read to its end.
#[derive(Clone, Debug)]
pub struct Trace {
    /// In figures.
    pub figures: TraceFigures,
    /// In pictures.
    pub curves: TraceCurves,
}

impl Trace {
    /// Without what `other` does not say: a generator of lengths alone says nothing of arrivals.
    #[must_use]
    pub fn restricted_to(mut self, other: &Trace) -> Trace {
        let (figures, curves) = (&mut self.figures, &mut self.curves);
        if other.figures.requests_per_s.is_none() {
            (figures.requests_per_s, figures.span_s) = (None, None);
            figures.dispersion.clear();
            (figures.gaps, figures.empty_seconds_share, figures.holes) = (None, None, None);
            (curves.counts, curves.whole) = (Vec::new(), 0..0);
        }
        if other.figures.gaps.is_none_or(|gaps| gaps.cv.is_none()) {
            figures.gaps = figures.gaps.map(|gaps| GapFigures { cv: None, ..gaps });
        }
        if other.figures.input_tokens.is_none() {
            figures.input_tokens = None;
            curves.input = Histogram::default();
        }
        if other.figures.output_tokens.is_none() {
            figures.output_tokens = None;
            curves.output = Histogram::default();
        }
        if other.figures.tenants.is_none() {
            figures.tenants = None;
            curves.by_tenant.clear();
        }
        self
    }
}

/// A trace in figures. What a format does not say is absent, never zero.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceFigures {
    /// The file, or what it is called.
    pub name: String,
    /// The format.
    pub format: String,
    /// All of them.
    pub requests: u64,
    /// Of those, the ones without an answer: turns of a conversation that ends with a question, requests that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<u64>,
    /// Broken lines that were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_lines: Option<u64>,
    /// Before the first arrival, in whole seconds, where that is longer than all arrivals last: a clock that counts
    /// from some other moment. All other figures are from the first arrival on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
    /// From the first arrival to the last, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_s: Option<f64>,
    /// Arrivals in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<RateFigures>,
    /// Index of dispersion (variance over mean of the counts, 1 for a Poisson process) by window: `1s`, `10s`, `60s`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dispersion: BTreeMap<&'static str, f64>,
    /// From one request to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapFigures>,
    /// Seconds without a request, of those from the first arrival to the last; of counts, of all that are recorded.
    /// Absent where the format has minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_seconds_share: Option<f64>,
    /// Stretches without a request that chance does not make, where they distort the mean rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holes: Option<HoleFigures>,
    /// Of inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<LengthFigures>,
    /// Of outputs; absent for encoders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<LengthFigures>,
    /// What prompts begin with, where the format has hashes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes: Option<PrefixFigures>,
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants: Option<TenantFigures>,
    /// Those that stand after one of a later time: nothing is replayed so, and `tenantry trace convert --sort` puts
    /// them in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    /// Changes of tenants and domains between the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_requests: Option<u64>,
    /// Tenants and domains that are not there at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent_at_first: Option<u64>,
    /// Columns that the format does not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread_columns: Vec<String>,
}

/// Arrivals in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RateFigures {
    /// Over all windows from the first arrival's to the last's; of counts, over all that are recorded.
    pub mean: f64,
    /// In the busiest window.
    pub max: f64,
    /// The window over which requests are counted, in seconds: 1, or what the format has.
    pub window_s: u32,
}

/// From one request to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GapFigures {
    /// The longest, in seconds; of counts and of requests that are not in order of time, in whole windows.
    pub longest_s: f64,
    /// When it begins, in seconds by the recording's own clock.
    pub longest_from_s: f64,
    /// The coefficient of variation, standard deviation over mean: 0 for even arrivals, 1 for a Poisson process. Absent
    /// where instants are not known, or not in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cv: Option<f64>,
}

/// Stretches without a request of at least 60 s and 100 mean gaps, where together they are at least 1 % of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HoleFigures {
    /// How many there are.
    pub count: u64,
    /// How long they last together, in seconds.
    pub total_s: f64,
    /// The mean rate of the time without them, in requests a second.
    pub requests_per_s_without: f64,
}

/// A distribution of lengths, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct LengthFigures {
    pub mean: f64,
    pub p50: u32,
    pub p90: u32,
    pub p95: u32,
    pub p98: u32,
    pub p99: u32,
    pub max: u32,
}

impl LengthFigures {
    /// `None` where there is no length.
    pub fn of(lengths: &Histogram) -> Option<LengthFigures> {
        let figures = lengths.figures()?;
        Some(LengthFigures {
            mean: rounded(figures.mean),
            p50: figures.p50,
            p90: figures.p90,
            p95: figures.p95,
            p98: figures.p98,
            p99: figures.p99,
            max: figures.max,
        })
    }
}

/// What prompts begin with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefixFigures {
    /// Hashes of a request's input, one a block of tokens.
    pub blocks_per_request: f64,
    /// Share of the blocks that an earlier request had too: what a cache that never forgets would hold.
    pub seen_before_share: f64,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TenantFigures {
    /// Tenants that asked at all.
    pub count: u64,
    /// The highest number of one of them.
    pub highest: u32,
    /// Share of the requests that the most active 1 % of them sent (at least one tenant).
    pub top_1_percent_share: f64,
    /// As above, of the most active 10 %.
    pub top_10_percent_share: f64,
}

/// What is drawn of a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceCurves {
    /// Requests in each window of `window_s` seconds.
    pub counts: Vec<u32>,
    /// Which of them are whole. Of instants the last one ends the time, so that its window is cut off, and the first
    /// begins it where the clock does not begin there.
    pub whole: Range<usize>,
    /// The window, in seconds.
    pub window_s: u32,
    /// Input lengths.
    pub input: Histogram,
    /// Output lengths.
    pub output: Histogram,
    /// Requests of each tenant that asked, most first.
    pub by_tenant: Vec<f64>,
}

/// Dispersion of fewer windows says nothing.
const LEAST_WINDOWS: usize = 10;

impl TraceCurves {
    /// The variance of the counts of whole windows of so many seconds, over their mean; none where there are too few of
    /// them.
    pub fn dispersion(&self, window_s: u32) -> Option<f64> {
        let windows = window_s
            .is_multiple_of(self.window_s.max(1))
            .then(|| (window_s / self.window_s.max(1)) as usize)?;
        let whole = &self.counts[self.whole.clone()];
        let enough = whole.len() / windows.max(1) >= LEAST_WINDOWS;
        dispersion(whole, windows).filter(|_| enough).map(rounded)
    }
}

/// The figures of some traces, a column each.
pub fn table(traces: &[Trace], style: Style) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec![String::new()]];
    rows[0].extend(traces.iter().map(|trace| terminal::safe(&trace.figures.name)));
    for (title, read) in FIGURES {
        let cells: Vec<Option<String>> = traces.iter().map(|trace| read(&trace.figures)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or(human::ABSENT.to_owned()));
            rows.push([title.to_owned()].into_iter().chain(cells).collect());
        }
    }
    terminal::figures(&rows, style)
}

/// A row of the table: what it is called, and what a trace says there.
type Figure = (&'static str, fn(&TraceFigures) -> Option<String>);

/// The rows of the table, on the terminal and on the page.
pub const FIGURES: [Figure; 36] = [
    ("format", |trace| Some(trace.format.clone())),
    ("requests", |trace| Some(human::count(trace.requests))),
    ("unanswered", |trace| trace.unanswered.map(human::count)),
    ("skipped lines", |trace| trace.skipped_lines.map(human::count)),
    ("silent before, s", |trace| trace.silent_s.map(human::number)),
    ("span, s", |trace| trace.span_s.map(human::number)),
    ("requests/s, mean", |trace| {
        Some(human::number(trace.requests_per_s?.mean))
    }),
    ("requests/s, most", |trace| {
        Some(human::number(trace.requests_per_s?.max))
    }),
    ("dispersion at 1 s", |trace| {
        trace.dispersion.get("1s").map(|&d| human::number(d))
    }),
    ("dispersion at 10 s", |trace| {
        trace.dispersion.get("10s").map(|&d| human::number(d))
    }),
    ("dispersion at 60 s", |trace| {
        trace.dispersion.get("60s").map(|&d| human::number(d))
    }),
    ("gaps, cv", |trace| trace.gaps?.cv.map(human::number)),
    ("longest gap, s", |trace| Some(human::number(trace.gaps?.longest_s))),
    ("empty seconds", |trace| trace.empty_seconds_share.map(human::percent)),
    ("holes in all, s", |trace| Some(human::number(trace.holes?.total_s))),
    ("input tokens, mean", |trace| {
        Some(human::number(trace.input_tokens?.mean))
    }),
    ("input tokens, p50", |trace| {
        Some(human::count(trace.input_tokens?.p50.into()))
    }),
    ("input tokens, p90", |trace| {
        Some(human::count(trace.input_tokens?.p90.into()))
    }),
    ("input tokens, p95", |trace| {
        Some(human::count(trace.input_tokens?.p95.into()))
    }),
    ("input tokens, p98", |trace| {
        Some(human::count(trace.input_tokens?.p98.into()))
    }),
    ("input tokens, p99", |trace| {
        Some(human::count(trace.input_tokens?.p99.into()))
    }),
    ("input tokens, most", |trace| {
        Some(human::count(trace.input_tokens?.max.into()))
    }),
    ("output tokens, mean", |trace| {
        Some(human::number(trace.output_tokens?.mean))
    }),
    ("output tokens, p50", |trace| {
        Some(human::count(trace.output_tokens?.p50.into()))
    }),
    ("output tokens, p90", |trace| {
        Some(human::count(trace.output_tokens?.p90.into()))
    }),
    ("output tokens, p95", |trace| {
        Some(human::count(trace.output_tokens?.p95.into()))
    }),
    ("output tokens, p98", |trace| {
        Some(human::count(trace.output_tokens?.p98.into()))
    }),
    ("output tokens, p99", |trace| {
        Some(human::count(trace.output_tokens?.p99.into()))
    }),
    ("output tokens, most", |trace| {
        Some(human::count(trace.output_tokens?.max.into()))
    }),
    ("prefix blocks a request", |trace| {
        Some(human::number(trace.prefixes?.blocks_per_request))
    }),
    ("prefix blocks seen before", |trace| {
        Some(human::percent(trace.prefixes?.seen_before_share))
    }),
    ("tenants", |trace| Some(human::count(trace.tenants?.count))),
    ("share of the top 1 %", |trace| {
        Some(human::percent(trace.tenants?.top_1_percent_share))
    }),
    ("share of the top 10 %", |trace| {
        Some(human::percent(trace.tenants?.top_10_percent_share))
    }),
    ("management requests", |trace| {
        trace.management_requests.map(human::count)
    }),
    ("absent at first", |trace| trace.absent_at_first.map(human::count)),
];
