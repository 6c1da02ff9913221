//! How busy lanes are while late requests are inside, which is when a run is short of something: under bursts lanes may
//! idle most of the time.

use tenantry_core::RunRecord;
use tenantry_core::board::OpRan;
use tenantry_core::command::{Command, Commands};
use tenantry_core::in_time::{InTime, Target};
use tenantry_core::run::Observer;
use tenantry_reports::RunSummary;
use tenantry_traces::Time;

/// Slots that a run is cut into at least, …
const SLOTS_LEAST: u64 = 4096;
/// … so many of them in the target's limit where that takes more: whoever waits a little too long is inside for a few,
/// and what lanes do before and after is not counted …
const SLOTS_IN_LIMIT: f64 = 16.0;
/// … and at most, …
const SLOTS_MOST: u64 = 1 << 20;
/// … and of all lanes of all cards.
const SLOTS_OF_ALL: u64 = 1 << 24;

/// Watches a run.
pub struct Strain {
    warm_up: Time,
    /// When the first slot begins; what was before counts in it.
    from: Time,
    target: Target,
    slots: u64,
    slot_ns: u64,
    /// By lane, nanoseconds in each slot.
    busy_ns: Vec<Vec<u64>>,
    /// How many more late requests are inside from each slot on.
    late: Vec<i64>,
}

impl Strain {
    /// Of a run on so many cards whose requests come for so long from some time on. What ends later counts in its last
    /// slot but one.
    pub fn new(warm_up: Time, from: Time, span_s: f64, target: Target, gpus: u32) -> Strain {
        let span_ns = (span_s * 1e9) as u64;
        let limit_ns = target.limit().map_or(f64::INFINITY, |limit| limit.0 as f64);
        let most = (SLOTS_OF_ALL / u64::from(gpus.max(1))).clamp(SLOTS_LEAST, SLOTS_MOST);
        let slots = ((span_ns as f64 * SLOTS_IN_LIMIT / limit_ns) as u64).clamp(SLOTS_LEAST, most);
        Strain {
            warm_up,
            from,
            target,
            slots,
            slot_ns: span_ns / slots + 1,
            busy_ns: Vec::new(),
            late: vec![0; slots as usize + 1],
        }
    }

    fn slot(&self, at: Time) -> usize {
        (at.0.saturating_sub(self.from.0) / self.slot_ns).min(self.slots) as usize
    }

    /// Puts how busy the run's lanes were while late requests were inside in place of how busy they were all the time.
    /// Whether there were such.
    pub fn tell(self, record: &RunRecord, summary: &mut RunSummary) -> bool {
        let mut inside = 0;
        let is_late = self.late.iter().map(|more| {
            inside += more;
            inside > 0
        });
        // Of the last slot nobody knows how long it is.
        let late: Vec<usize> = is_late
            .enumerate()
            .filter_map(|(slot, late)| late.then_some(slot))
            .filter(|slot| *slot < self.slots as usize)
            .collect();
        let all_ns = late.len() as f64 * self.slot_ns as f64;
        for (lane, of) in record.lanes.iter().enumerate().filter(|_| !late.is_empty()) {
            let busy_ns = self.busy_ns.get(lane).map_or(0, |busy| late.iter().map(|slot| busy[*slot]).sum());
            if let Some(summary) = summary.lanes.get_mut(&of.name) {
                summary.busy_share = busy_ns as f64 / all_ns;
            }
        }
        !late.is_empty()
    }
}

impl Observer for Strain {
    fn command(&mut self, now: Time, command: &Command, _: &Commands) {
        let Command::Finish(finish) = command else { return };
        if finish.arrival < self.warm_up {
            return;
        }
        if InTime::default().left(now, finish, Some(&self.target)) {
            let (from, until) = (self.slot(finish.arrival), self.slot(now));
            self.late[from] += 1;
            if let Some(after) = self.late.get_mut(until + 1) {
                *after -= 1;
            }
        }
    }

    fn watches_ops(&self) -> bool {
        true
    }

    fn ran(&mut self, ran: &OpRan) {
        let lane = ran.lane.0 as usize;
        if lane >= self.busy_ns.len() {
            let slots = self.slots as usize + 1;
            self.busy_ns.resize_with(lane + 1, || vec![0; slots]);
        }
        let (first, last) = (self.slot(ran.started), self.slot(ran.ended));
        for slot in first..=last {
            let begins = self.from.0 + slot as u64 * self.slot_ns;
            let ends = if slot as u64 == self.slots {
                u64::MAX
            } else {
                begins + self.slot_ns
            };
            self.busy_ns[lane][slot] += ran.ended.0.min(ends).saturating_sub(ran.started.0.max(begins));
        }
    }
}
