//! A run over time, in windows.

use tenantry_traces::{Duration, Time};

/// A window of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests that arrived in it.
    pub arrived: u64,
    /// Requests answered in it.
    pub served: u64,
    /// Sum of their latencies, in nanoseconds.
    pub latency_sum_ns: u128,
    /// Batches submitted in it.
    pub batches: u64,
    /// Requests in them.
    pub batch_requests: u64,
}

/// Equal windows from the start of the run, at most [`Series::MAX_WINDOWS`]: when they are full, neighbours are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Of each window.
    pub width: Duration,
    /// From time 0.
    pub windows: Vec<Window>,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            width: Duration::from_millis(10),
            windows: Vec::new(),
        }
    }
}

impl Series {
    /// Enough for a plot.
    pub const MAX_WINDOWS: usize = 1024;

    fn at(&mut self, now: Time) -> &mut Window {
        while now.0 / self.width.0 >= Series::MAX_WINDOWS as u64 {
            self.width = Duration(self.width.0 * 2);
            self.windows = self
                .windows
                .chunks(2)
                .map(|pair| pair.iter().fold(Window::default(), |sum, w| sum.plus(w)))
                .collect();
        }
        let index = (now.0 / self.width.0) as usize;
        if index >= self.windows.len() {
            self.windows.resize(index + 1, Window::default());
        }
        &mut self.windows[index]
    }
}

/// A series under way, which remembers the window that it is in: an event mostly falls into that of the event before.
#[derive(Debug, Default)]
pub(super) struct Windows {
    pub(super) series: Series,
    index: usize,
    from: Time,
    /// Not part of it; at the start there is no window yet.
    until: Time,
}

impl Windows {
    #[inline]
    pub(super) fn at(&mut self, now: Time) -> &mut Window {
        if now < self.from || now >= self.until {
            self.enter(now);
        }
        &mut self.series.windows[self.index]
    }

    #[cold]
    fn enter(&mut self, now: Time) {
        self.series.at(now);
        let width = self.series.width.0;
        self.index = (now.0 / width) as usize;
        self.from = Time(self.index as u64 * width);
        // The last window ends with time itself.
        self.until = Time(self.from.0.saturating_add(width));
    }
}

impl Window {
    fn plus(self, other: &Window) -> Window {
        Window {
            arrived: self.arrived + other.arrived,
            served: self.served + other.served,
            latency_sum_ns: self.latency_sum_ns + other.latency_sum_ns,
            batches: self.batches + other.batches,
            batch_requests: self.batch_requests + other.batch_requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_window_ends_with_time() {
        let mut windows = Windows::default();
        for at in [0, 1 << 63, u64::MAX - 1, u64::MAX] {
            windows.at(Time(at)).arrived += 1;
        }
        let arrived = windows.series.windows.iter().map(|window| window.arrived);
        assert_eq!(arrived.sum::<u64>(), 4);
    }
}
