//! What tests of the two machines under one script have in common.

#![allow(dead_code, reason = "each test file uses a part")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use tenantry_core::ids::LaneId;
use tenantry_core::log::Log;
use tenantry_core::machine::MachineError;
use tenantry_core::op::OpKind;
use tenantry_core::topology::LaneKind;
use tenantry_core::{Ledger, Machine, Server, Topology, run};
use tenantry_executor::machine::{Job, Ran, Workers};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, Contention, DispatchOperation, Rhythm};
use tenantry_sim::{Before, ModelBefore, Prices, Warmth};
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Time};

#[derive(Clone, Copy)]
struct Lane {
    ops: u64,
    free_since: Time,
    warmth: Warmth,
    /// A lane tells of its ops in order.
    heard: Time,
    last_work: Duration,
}

impl Lane {
    const NEW: Lane = Lane {
        ops: 0,
        free_since: Time::ZERO,
        warmth: Warmth::WARM,
        heard: Time::ZERO,
        last_work: Duration::ZERO,
    };
}

/// When an op's end is heard, its end, its place in the order of issue, its lane and its start. Of two that are heard
/// at one instant, the one that ended first comes first.
type Heard = (Time, Time, u64, u32, Time);

/// Workers that take what the profile says, on a clock that jumps.
pub struct Script {
    now: Time,
    prices: Prices,
    topology: Topology,
    lanes: Vec<Lane>,
    /// When each op's end is heard.
    heard: BinaryHeap<Reverse<Heard>>,
    issued: u64,
}

impl Script {
    /// At time zero, with nothing issued.
    pub fn new(topology: &Topology, prices: Prices) -> Script {
        Script {
            now: Time::ZERO,
            prices,
            lanes: vec![Lane::NEW; topology.lanes.len()],
            topology: topology.clone(),
            heard: BinaryHeap::new(),
            issued: 0,
        }
    }
}

impl Workers for Script {
    fn now(&self) -> Time {
        self.now
    }

    fn issue(&mut self, job: Job) -> Result<(), MachineError> {
        let pool = self.topology.instances[job.batch.instance.index()].pool;
        let lane = &mut self.lanes[job.lane.index()];
        let mut spread = self.prices.spread(job.lane.0, lane.ops);
        let follows = lane.ops > 0 && lane.free_since >= self.now;
        let rhythm = |pause: Duration, work: Duration| Rhythm {
            pause_ns: pause.0,
            work_ns: work.0,
            others_busy: false,
        };
        let (idle, pause, started) = match follows {
            true => (Duration::ZERO, Duration::ZERO, lane.free_since),
            false => {
                let pause = Duration(self.now.0.saturating_sub(lane.heard.0));
                let wake_ns = self.prices.wake_ns(rhythm(pause, lane.last_work), &mut spread);
                (self.now.since(lane.free_since), pause, self.now + Duration(wake_ns))
            }
        };
        let mut work_ns = self.prices.work_ns(pool, &job.kind, job.batch.shape, &mut spread);
        let mut warmth = lane.warmth;
        if matches!(job.kind, OpKind::Encode(_)) {
            let before = Before {
                idle,
                model: ModelBefore::Same,
            };
            work_ns += self.prices.resume_ns(LaneKind::Compute, pool, before, work_ns, &mut warmth, &mut spread);
        }
        let ended = started + Duration(work_ns);
        let heard = lane
            .heard
            .max(ended + Duration(self.prices.tell_ns(rhythm(pause, ended.since(started)), &mut spread)));
        *lane = Lane {
            ops: lane.ops + 1,
            free_since: ended,
            warmth,
            heard,
            last_work: ended.since(started),
        };
        self.heard.push(Reverse((heard, ended, self.issued, job.lane.0, started)));
        self.issued += 1;
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Time>) -> Result<Option<Ran>, MachineError> {
        let noticed = deadline.map(|deadline| match deadline <= self.now {
            true => self.now,
            false => deadline + Duration(self.prices.alarm_ns(deadline, deadline.since(self.now))),
        });
        match (self.heard.peek(), noticed) {
            (Some(&Reverse((heard, ..))), noticed) if noticed.is_none_or(|noticed| heard <= noticed) => {
                let Reverse((heard, ended, _, lane, started)) = self.heard.pop().expect("peeked");
                self.now = heard;
                Ok(Some(Ran {
                    lane: LaneId(lane),
                    started,
                    ended,
                }))
            }
            (_, Some(noticed)) => {
                self.now = noticed;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

/// Without contention: a script cannot re-price an op that it has already timed.
pub fn card() -> Card {
    let mut card = synthetic_card();
    card.contention = Contention::NONE;
    // On a busy machine, telling of an op's end can take longer than the ops after it.
    let tells = card.tables.dispatch.iter_mut().filter(|row| row.operation == DispatchOperation::Tell);
    tells.for_each(|row| (row.stats.p95_us, row.stats.p99_us) = (4_000.0, 20_000.0));
    card
}

/// Tenants that come, change and go within so many nanoseconds.
pub fn changes(tenants: u32, within_ns: u64) -> impl Strategy<Value = Vec<Entry>> {
    let action = prop_oneof![Just(Action::Create), Just(Action::Update), Just(Action::Delete)];
    let change = (0..within_ns, 0..tenants, action).prop_map(|(at_ns, tenant, action)| {
        Entry::Manage(ManageRequest {
            at: Time(at_ns),
            change: Change::tenant(tenant, action),
        })
    });
    prop_oneof![Just(Vec::new()), proptest::collection::vec(change, 1..20)]
}

/// All that a server hears and wants on a machine.
pub fn log_of(server: &mut Server, machine: &mut impl Machine, entries: Vec<Entry>) -> Log {
    let mut log = Log::default();
    run(
        server,
        &mut Listed::new(entries),
        machine,
        &mut Ledger::new(Time::ZERO),
        &mut log,
    )
    .expect("the run is sound");
    log
}
