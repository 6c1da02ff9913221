//! Arrivals from a recording of tenants' activity, minute by minute.

use std::sync::Arc;

use super::arrival::Arrival;
use super::popularity::{Rows, none_of_those_drawn};
use super::process::{MOST_STEPS, too_seldom};
use crate::draw::Draws;
use crate::error::TraceError;
use crate::read::activity::{self, Cell};
use crate::spec::ActivitySpec;
use crate::time::Time;

const NS_PER_MINUTE: u64 = 60_000_000_000;

/// Requests of one minute are put in order in memory: these take a gigabyte.
const MOST_A_MINUTE: f64 = 20_000_000.0;

/// The cells of all tenants by minute: the same for all rounds of a part.
pub struct Activity {
    /// In order of minute.
    cells: Vec<Cell>,
    /// From the recording's beginning to where it begins again.
    minutes: u32,
}

const MINUTES_PER_DAY: u32 = 1440;

impl Activity {
    pub fn read(seed: u64, tenants: u32, spec: &ActivitySpec, scale: f64) -> Result<Activity, TraceError> {
        let mut recorded: Vec<Vec<Cell>> = Vec::new();
        let extent = activity::for_each(&spec.path, spec.skip_bad_lines, |cell| {
            let tenant = cell.tenant as usize;
            if recorded.len() <= tenant {
                recorded.resize(tenant + 1, Vec::new());
            }
            recorded[tenant].push(cell);
        })?;
        let Some(last_minute) = recorded.iter().flatten().map(|cell| cell.minute).max() else {
            return Err(TraceError::none(&spec.path, "have requests", extent.skipped));
        };
        // Also those who ask for nothing, and minutes in which nobody does.
        let recorded = extent.rows(recorded);
        let minutes = match extent.minutes {
            // The form does not say when the recording ends: not with its last request, and a day of it is to begin at
            // the same hour again.
            0 if spec.repeat => (last_minute + 1).next_multiple_of(MINUTES_PER_DAY),
            minutes => minutes.max(last_minute + 1),
        };
        let rows = Rows::new(seed, recorded.len(), tenants);
        let mut cells: Vec<Cell> = Vec::new();
        for tenant in 0..tenants {
            let shift = u64::from(rows.shift(tenant, minutes));
            cells.extend(recorded[rows.of(tenant)].iter().map(|cell| Cell {
                tenant,
                minute: ((u64::from(cell.minute) + shift) % u64::from(minutes)) as u32,
                requests: cell.requests,
            }));
        }
        cells.sort_unstable_by_key(|cell| (cell.minute, cell.tenant));
        // Some recordings have a line for each request: a minute of a tenant's is one cell, with draws of its own.
        cells.dedup_by(|cell, kept| {
            let same = (cell.minute, cell.tenant) == (kept.minute, kept.tenant);
            if same {
                kept.requests = kept.requests.saturating_add(cell.requests);
            }
            same
        });
        if cells.is_empty() {
            return Err(none_of_those_drawn(&spec.path));
        }
        for minute in cells.chunk_by(|a, b| a.minute == b.minute) {
            let requests = scale * minute.iter().map(|cell| f64::from(cell.requests)).sum::<f64>();
            if requests > MOST_A_MINUTE {
                let number = minute[0].minute;
                let message = format!(
                    "must have at most {MOST_A_MINUTE} requests in a minute, times `scale`, got {requests:.3e} in \
                     minute {number}"
                );
                return Err(TraceError::file(&spec.path, message));
            }
        }
        Ok(Activity { cells, minutes })
    }
}

/// Arrivals as active tenants ask.
pub struct ActiveTenants {
    activity: Arc<Activity>,
    scale: f64,
    repeat: bool,
    /// Nothing is asked for at this time or later.
    end: Time,
    draws: Draws,
    next_cell: usize,
    rounds: u64,
    /// The arrivals of the current minute, latest first, so that the next one is at the end.
    minute: Vec<Arrival>,
}

impl ActiveTenants {
    pub fn new(activity: Arc<Activity>, repeat: bool, scale: f64, end: Time, draws: Draws) -> ActiveTenants {
        ActiveTenants {
            activity,
            scale,
            repeat,
            end: end.min(Time::ARRIVALS_END),
            draws,
            next_cell: 0,
            rounds: 0,
            minute: Vec::new(),
        }
    }

    /// Draws the arrivals of the next minute that has cells. False at the end.
    fn fill(&mut self) -> bool {
        let Activity { cells, minutes } = &*self.activity;
        if self.next_cell == cells.len() {
            if !self.repeat {
                return false;
            }
            self.next_cell = 0;
            self.rounds += 1;
        }
        let recorded_minute = cells[self.next_cell].minute;
        let minute = self.rounds * u64::from(*minutes) + u64::from(recorded_minute);
        // Before it is looked through: where hardly anybody asks, time ends before somebody does.
        let Some(begins) = minute.checked_mul(NS_PER_MINUTE).filter(|&at| at < self.end.0) else {
            return false;
        };
        let draws = self.draws.part(minute);
        while let Some(cell) = cells.get(self.next_cell).filter(|cell| cell.minute == recorded_minute) {
            self.next_cell += 1;
            let mut stream = draws.about(u64::from(cell.tenant));
            let requests = (f64::from(cell.requests) * self.scale + stream.unit()) as u64;
            self.minute.extend((0..requests).map(|_| Arrival {
                tenant: Some(cell.tenant),
                ..Arrival::at(Time(begins + stream.below(NS_PER_MINUTE)))
            }));
        }
        self.minute.sort_unstable_by_key(|arrival| std::cmp::Reverse((arrival.at, arrival.tenant)));
        true
    }
}

impl Iterator for ActiveTenants {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut minutes = 0;
        while self.minute.is_empty() {
            minutes += 1;
            if minutes > MOST_STEPS {
                return Some(Err(too_seldom()));
            }
            if !self.fill() {
                return None;
            }
        }
        self.minute.pop().map(Ok)
    }
}
