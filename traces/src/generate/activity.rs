//! Arrivals from a recording of tenants' activity, minute by minute.

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

/// The cells of all tenants by minute, and the arrivals of the current minute.
pub struct ActiveTenants {
    /// In order of minute.
    cells: Vec<Cell>,
    minutes: u32,
    scale: f64,
    repeat: bool,
    /// Nothing is asked for at this time or later.
    end: Time,
    draws: Draws,
    next_cell: usize,
    rounds: u64,
    /// Latest first, so that the next one is at the end.
    minute: Vec<Arrival>,
}

impl ActiveTenants {
    pub fn open(
        seed: u64,
        tenants: u32,
        spec: &ActivitySpec,
        scale: f64,
        end: Time,
        draws: Draws,
    ) -> Result<ActiveTenants, TraceError> {
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
        let minutes = extent.minutes.max(last_minute + 1);
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
        Ok(ActiveTenants {
            cells,
            minutes,
            scale,
            repeat: spec.repeat,
            end: end.min(Time::ARRIVALS_END),
            draws,
            next_cell: 0,
            rounds: 0,
            minute: Vec::new(),
        })
    }

    /// Draws the arrivals of the next minute that has cells. False at the end.
    fn fill(&mut self) -> bool {
        if self.next_cell == self.cells.len() {
            if !self.repeat {
                return false;
            }
            self.next_cell = 0;
            self.rounds += 1;
        }
        let recorded_minute = self.cells[self.next_cell].minute;
        let minute = self.rounds * u64::from(self.minutes) + u64::from(recorded_minute);
        // Before it is looked through: where hardly anybody asks, time ends before somebody does.
        let Some(begins) = minute.checked_mul(NS_PER_MINUTE).filter(|&at| at < self.end.0) else {
            return false;
        };
        let draws = self.draws.part(minute);
        while let Some(cell) = self
            .cells
            .get(self.next_cell)
            .filter(|cell| cell.minute == recorded_minute)
        {
            self.next_cell += 1;
            let mut stream = draws.about(u64::from(cell.tenant));
            let requests = (f64::from(cell.requests) * self.scale + stream.unit()) as u64;
            self.minute.extend((0..requests).map(|_| Arrival {
                tenant: Some(cell.tenant),
                ..Arrival::at(Time(begins + stream.below(NS_PER_MINUTE)))
            }));
        }
        self.minute
            .sort_unstable_by_key(|arrival| std::cmp::Reverse((arrival.at, arrival.tenant)));
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
