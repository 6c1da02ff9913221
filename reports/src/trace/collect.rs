//! From the pieces of a trace to its figures, in memory that grows with its span, its tenants, its distinct lengths and
//! prefixes, and not with its requests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use tenantry_traces::describe::{Histogram, MAX_SECONDS, concentration, silence_before};
use tenantry_traces::read::Record;
use tenantry_traces::{Request, Time, TraceError};

use super::gaps::{self, Gaps};
use super::{LengthFigures, PrefixFigures, RateFigures, TenantFigures, Trace, TraceCurves, TraceFigures};
use crate::summary::rounded;

/// Takes a trace piece by piece.
#[derive(Clone, Debug)]
pub struct Collector {
    requests: u64,
    unanswered: u64,
    /// Those that come after one of a later time.
    late: u64,
    /// From window number `begins` on: a clock may count from another year.
    counts: VecDeque<u32>,
    begins: u64,
    window_s: u32,
    /// The window of the last arrival, and its bounds in nanoseconds: most arrivals are in the one of the arrival
    /// before.
    window: (u64, Range<u64>),
    first: Option<Time>,
    last: Option<Time>,
    gaps: Gaps,
    input: Histogram,
    output: Histogram,
    /// Tenants below [`DENSE_TENANTS`], by number; the others kept aside.
    by_tenant: Vec<f64>,
    other_tenants: HashMap<u32, f64>,
    blocks: u64,
    distinct_blocks: HashSet<u64>,
}

/// More tenants than are at all likely: 8 MiB of counts. A lone large number must not cost its size.
const DENSE_TENANTS: usize = 1 << 20;

impl Collector {
    /// Nothing yet. Arrivals are counted in windows of `window_s` seconds: 1, or 60 for activity by the minute.
    pub fn new(window_s: u32) -> Collector {
        Collector {
            requests: 0,
            unanswered: 0,
            late: 0,
            counts: VecDeque::new(),
            begins: 0,
            window_s,
            window: (0, 0..0),
            first: None,
            last: None,
            gaps: Gaps::default(),
            input: Histogram::default(),
            output: Histogram::default(),
            by_tenant: Vec::new(),
            other_tenants: HashMap::new(),
            blocks: 0,
            distinct_blocks: HashSet::new(),
        }
    }

    /// A recorded request.
    ///
    /// # Errors
    /// [`TraceError::Spec`] where it arrives more than two years before or after others.
    pub fn record(&mut self, record: &Record) -> Result<(), TraceError> {
        self.requests += 1;
        if let Some(at) = record.arrival {
            self.arrival(at)?;
        }
        if let Some(tokens) = record.input_tokens {
            self.input.add(tokens);
        }
        self.unanswered += u64::from(record.is_unanswered());
        // Encoders generate nothing.
        if let Some(tokens) = record.output_tokens.filter(|&tokens| tokens > 0) {
            self.output.add(tokens);
        }
        if let Some(tenant) = record.tenant {
            self.tenant(tenant, 1);
        }
        Ok(())
    }

    /// A generated request.
    ///
    /// # Errors
    /// As [`Collector::record`].
    pub fn request(&mut self, request: &Request) -> Result<(), TraceError> {
        self.record(&Record {
            arrival: Some(request.arrival),
            tenant: Some(request.tenant),
            input_tokens: Some(request.input_tokens),
            output_tokens: Some(request.output_tokens),
            class: Some(request.class),
            change: None,
        })
    }

    /// So many requests in window number `window`.
    ///
    /// # Errors
    /// As [`Collector::record`].
    pub fn window(&mut self, window: u64, requests: u32) -> Result<(), TraceError> {
        self.requests += u64::from(requests);
        // A recording of counts says itself when it begins: its first seconds without requests are as good as later
        // ones.
        self.count(window, requests)
    }

    /// So many requests of a tenant, whose time is told by [`Collector::window`].
    pub fn tenant(&mut self, tenant: u32, requests: u32) {
        if tenant as usize >= DENSE_TENANTS {
            *self.other_tenants.entry(tenant).or_default() += f64::from(requests);
            return;
        }
        let tenant = tenant as usize;
        match self.by_tenant.get_mut(tenant) {
            Some(count) => *count += f64::from(requests),
            None => {
                self.by_tenant.resize(tenant + 1, 0.0);
                self.by_tenant[tenant] = f64::from(requests);
            }
        }
    }

    /// The hashes of what the last request's input begins with, one a block of tokens.
    pub fn prefix_hashes(&mut self, hashes: &[u64]) {
        self.blocks += hashes.len() as u64;
        self.distinct_blocks.extend(hashes);
    }

    fn arrival(&mut self, at: Time) -> Result<(), TraceError> {
        match self.last {
            Some(last) if at < last => self.late += 1,
            Some(last) => self.gaps.add(last, at),
            None => {}
        }
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
        let (window, bounds) = &self.window;
        if bounds.contains(&at.0) {
            let count = &mut self.counts[(window - self.begins) as usize];
            *count = count.saturating_add(1);
            return Ok(());
        }
        let window_ns = u64::from(self.window_s) * 1_000_000_000;
        let window = at.0 / window_ns;
        if self.counts.is_empty() {
            self.begins = window;
        }
        self.count(window, 1)?;
        self.window = (window, window * window_ns..(window + 1).saturating_mul(window_ns));
        Ok(())
    }

    fn count(&mut self, window: u64, requests: u32) -> Result<(), TraceError> {
        let last = self.begins + self.counts.len() as u64;
        let windows = last.max(window + 1) - self.begins.min(window);
        if windows.saturating_mul(u64::from(self.window_s)) > MAX_SECONDS {
            return Err(TraceError::Spec {
                field: "arrival".into(),
                message: "must be within two years of the others, got one farther off".into(),
            });
        }
        while window < self.begins {
            self.counts.push_front(0);
            self.begins -= 1;
        }
        let window = (window - self.begins) as usize;
        if window >= self.counts.len() {
            self.counts.resize(window + 1, 0);
        }
        self.counts[window] = self.counts[window].saturating_add(requests);
        Ok(())
    }

    /// What was taken. `skipped` lines were broken and left out.
    pub fn finish(self, name: &str, format: &str, skipped: u64) -> Trace {
        let highest_kept_aside = self.other_tenants.keys().max().copied();
        let highest_dense = self.by_tenant.iter().rposition(|&requests| requests > 0.0);
        let highest = highest_kept_aside.or(highest_dense.map(|number| number as u32));
        let mut by_tenant: Vec<f64> = self
            .by_tenant
            .into_iter()
            .chain(self.other_tenants.into_values())
            .filter(|&requests| requests > 0.0)
            .collect();
        by_tenant.sort_unstable_by(|a, b| b.total_cmp(a));
        let counts = Vec::from(self.counts);
        let seconds = (counts.len() * self.window_s as usize) as f64;
        let per_s = |requests: f64| rounded(requests / f64::from(self.window_s));
        let total: f64 = counts.iter().map(|&n| f64::from(n)).sum();
        let silent = self.first.zip(self.last).and_then(|(first, last)| silence_before(first, last));
        let span_s = match (self.first, self.last) {
            (Some(first), Some(last)) => Some(rounded(last.since(first).as_secs_f64())),
            _ => (seconds > 0.0).then_some(seconds),
        };
        // Of instants, the last one ends the time: its window is rarely whole.
        let begins_s = (self.begins * u64::from(self.window_s)) as f64;
        let lasted = self.last.map(|last| last.as_secs_f64() - begins_s);
        let lasted_s = lasted.filter(|lasted_s| *lasted_s > 0.0).unwrap_or(seconds);
        let rates = counts.iter().max().map(|&most| RateFigures {
            mean: rounded(total / lasted_s),
            max: per_s(f64::from(most)),
            window_s: self.window_s,
        });
        let cut_off = usize::from(self.last.is_some());
        let from = usize::from(self.begins > 0).min(counts.len() - cut_off);
        let curves = TraceCurves {
            whole: from..counts.len() - cut_off,
            counts,
            window_s: self.window_s,
            input: self.input,
            output: self.output,
            by_tenant,
        };
        let dispersion_at = |(name, window_s): (&'static str, u32)| Some((name, curves.dispersion(window_s)?));
        let tenants = || {
            Some(TenantFigures {
                count: curves.by_tenant.len() as u64,
                highest: highest?,
                top_1_percent_share: rounded(concentration(&curves.by_tenant, 0.01)?),
                top_10_percent_share: rounded(concentration(&curves.by_tenant, 0.1)?),
            })
        };
        let prefixes = (self.blocks > 0).then(|| PrefixFigures {
            blocks_per_request: rounded(self.blocks as f64 / self.requests as f64),
            seen_before_share: rounded(1.0 - self.distinct_blocks.len() as f64 / self.blocks as f64),
        });
        Trace {
            figures: TraceFigures {
                name: name.to_owned(),
                format: format.to_owned(),
                requests: self.requests,
                unanswered: (self.unanswered > 0).then_some(self.unanswered),
                skipped_lines: (skipped > 0).then_some(skipped),
                silent_s: silent.map(|silent| silent.as_secs_f64()),
                span_s,
                requests_per_s: rates,
                dispersion: [("1s", 1), ("10s", 10), ("60s", 60)].into_iter().filter_map(dispersion_at).collect(),
                gaps: match self.last {
                    Some(_) if self.late == 0 => self.gaps.figures(),
                    _ => gaps::by_windows(&curves.counts, self.window_s, begins_s),
                },
                empty_seconds_share: (self.window_s == 1 && !curves.counts.is_empty()).then(|| {
                    let empty = curves.counts.iter().filter(|&&count| count == 0).count();
                    rounded(empty as f64 / curves.counts.len() as f64)
                }),
                holes: gaps::holes(&curves.counts, self.window_s, lasted_s),
                input_tokens: LengthFigures::of(&curves.input),
                output_tokens: LengthFigures::of(&curves.output),
                prefixes,
                tenants: tenants(),
                out_of_order: (self.late > 0).then_some(self.late),
                management_requests: None,
                absent_at_first: None,
                unread_columns: Vec::new(),
            },
            curves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_s: u64, tenant: u32, output: Option<u32>) -> Record {
        Record {
            arrival: Some(Time(at_s * 1_000_000_000)),
            tenant: Some(tenant),
            input_tokens: Some(10),
            output_tokens: output,
            class: None,
            change: None,
        }
    }

    #[test]
    fn figures_are_those_of_what_was_taken() {
        let mut collector = Collector::new(1);
        for second in 0..20 {
            for request in 0..2 * (second % 2) {
                collector.record(&record(second, request as u32 * 3, Some(5))).unwrap();
            }
        }
        collector.record(&record(19, 0, None)).unwrap();
        let figures = collector.finish("a.csv", "tenantry", 2).figures;
        assert_eq!(
            (figures.requests, figures.unanswered, figures.skipped_lines),
            (21, Some(1), Some(2))
        );
        assert_eq!(figures.span_s, Some(18.0));
        assert_eq!(figures.requests_per_s.unwrap().max, 3.0);
        assert_eq!(figures.tenants.unwrap().count, 2, "tenants 1 and 2 did not ask");
        assert!((figures.dispersion["1s"] - 1.1).abs() < 0.2, "{figures:?}");
        assert!(!figures.dispersion.contains_key("10s"), "two windows say nothing");
        assert_eq!(figures.output_tokens.unwrap().p50, 5);
    }

    #[test]
    fn what_a_format_does_not_say_is_absent() {
        let mut collector = Collector::new(1);
        collector
            .record(&Record {
                input_tokens: Some(7),
                output_tokens: Some(0),
                ..Record::default()
            })
            .unwrap();
        let value = serde_json::to_value(collector.finish("x", "sarathi", 0).figures).unwrap();
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["format", "input_tokens", "name", "requests"]);
    }

    /// What some programs write for a time that they do not know.
    #[test]
    fn the_last_instant_that_there_is_is_in_a_window() {
        let mut collector = Collector::new(1);
        let at = Time(u64::MAX);
        collector
            .record(&Record {
                arrival: Some(at),
                ..record(0, 0, None)
            })
            .unwrap();
        assert_eq!(collector.finish("a.csv", "tenantry", 0).figures.requests, 1);
    }

    #[test]
    fn a_cut_off_last_second_is_no_dispersion_and_a_large_tenant_no_memory() {
        let mut collector = Collector::new(1);
        for second in 0..50 {
            for _ in 0..if second == 49 { 1 } else { 9 } {
                collector.record(&record(second, u32::MAX, None)).unwrap();
            }
        }
        let figures = collector.finish("a.csv", "tenantry", 0).figures;
        assert_eq!(figures.dispersion["1s"], 0.0);
        assert_eq!(figures.tenants.unwrap().count, 1);
    }

    #[test]
    fn a_cut_off_last_second_counts_as_long_as_it_lasts() {
        let mut collector = Collector::new(1);
        for request in 0..=110 {
            let arrival = Some(Time(request * 10_000_000));
            let record = Record {
                arrival,
                ..record(0, 0, None)
            };
            collector.record(&record).unwrap();
        }
        let figures = collector.finish("a.csv", "tenantry", 0).figures;
        assert_eq!(figures.requests_per_s.unwrap().mean, 100.909);
    }

    /// A clock may count from the last midnight, or from 1970.
    #[test]
    fn figures_are_from_the_first_arrival_on() {
        let figures_from = |start_s: u64| {
            let mut collector = Collector::new(1);
            for second in 0..100 {
                for _ in 0..2 * (second % 2) {
                    collector.record(&record(start_s + second, 0, None)).unwrap();
                }
            }
            collector.finish("a.csv", "tenantry", 0).figures
        };
        let of_its_own = figures_from(0);
        assert_eq!(
            (of_its_own.silent_s, of_its_own.requests_per_s.unwrap().mean),
            (None, 1.02041)
        );
        for start_s in [86_400, 1_700_000_000] {
            let late = figures_from(start_s);
            assert_eq!(
                late.silent_s,
                Some(start_s as f64 + 1.0),
                "the first second has no request"
            );
            assert_eq!(
                (late.span_s, late.requests_per_s),
                (of_its_own.span_s, of_its_own.requests_per_s)
            );
            assert!((late.dispersion["1s"] - 1.0).abs() < 0.05, "{late:?}");
        }
    }

    #[test]
    fn arrivals_two_years_apart_are_refused() {
        for others in [0, 1 << 28] {
            let mut collector = Collector::new(1);
            collector.record(&record(others, 0, None)).unwrap();
            let error = collector.record(&record(1 << 27, 0, None)).unwrap_err().to_string();
            assert!(error.contains("two years"), "{error}");
        }
    }

    #[test]
    fn an_earlier_arrival_may_stand_later() {
        let mut collector = Collector::new(1);
        for second in [10, 7, 12, 7] {
            collector.record(&record(second, 0, None)).unwrap();
        }
        let trace = collector.finish("a.csv", "tenantry", 0);
        assert_eq!(trace.curves.counts, [2, 0, 0, 1, 0, 1]);
        assert_eq!(trace.figures.out_of_order, Some(2));
        assert_eq!(trace.figures.span_s, Some(5.0));
    }
}
