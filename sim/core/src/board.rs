//! Which op may run when: the one piece of bookkeeping that both machines share, so that their lanes mean the same.
//!
//! A lane is a queue. An op is *ready* once the ops that it waits for on other lanes have been noticed to end; what it
//! waits for on its own lane is implied by the queue's order. A machine issues ready ops from the front of a lane's
//! queue (the virtual one when the lane is idle, the real one ahead of time, since its workers keep the order), reports
//! when each ran, and then notices its end, which makes other ops ready and tells the server where it asked to be told.

use std::collections::VecDeque;

use smallvec::SmallVec;
use tenantry_traces::Time;

use crate::event::BatchTiming;
use crate::ids::{BatchId, InstanceId, LaneId};
use crate::op::{After, BatchShape, Op, OpKind};

/// An op on the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRef {
    /// Its batch.
    pub batch: BatchId,
    /// Its index in the submission.
    pub index: u32,
}

/// An op that ran, for whoever watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRan {
    /// Which it is.
    pub op: OpRef,
    /// Where it ran.
    pub lane: LaneId,
    /// Who ran it.
    pub instance: InstanceId,
    /// What was done.
    pub kind: OpKind,
    /// To a batch of these sizes.
    pub shape: BatchShape,
    /// When it started.
    pub started: Time,
    /// When it ended.
    pub ended: Time,
}

/// An op that starts.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    /// Which it is.
    pub op: OpRef,
    /// What is done.
    pub kind: &'a OpKind,
    /// The sizes of its batch.
    pub shape: BatchShape,
    /// Who runs it.
    pub instance: InstanceId,
    /// End of the last op that ran on its lane.
    pub free_since: Time,
}

/// What noticing an op's end brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// The batch's timing, where the server asked to be told.
    pub told: Option<BatchTiming>,
    /// Whether it was the batch's last op; its handle is stale from now on.
    pub batch_ended: bool,
}

#[derive(Debug)]
struct OpState {
    op: Op,
    /// Ops on other lanes whose end has not been noticed.
    blockers: u8,
    /// Later ops on other lanes that wait for this one, and the first of them.
    waiters: u16,
    first_waiter: u16,
}

#[derive(Debug, Default)]
struct Batch {
    generation: u32,
    instance: Option<InstanceId>,
    shape: Option<BatchShape>,
    /// Beside the rest where it is but one, so that it takes no line of a cache more.
    ops: SmallVec<[OpState; 1]>,
    /// Ops whose end has not been noticed.
    left: u32,
    /// A later batch of the instance with ops that wait for the end of this one.
    waited_for_by: Option<BatchId>,
    /// End of this batch's last op on the compute lane, or its submission.
    frontier: Time,
    timing: BatchTiming,
}

#[derive(Debug, Default)]
struct Lane {
    /// Waiting and issued ops; the first `issued` have been issued.
    queue: VecDeque<OpRef>,
    issued: usize,
    /// End of the last op that ran.
    free_since: Time,
}

/// The queues of all lanes and the state of all submitted batches.
#[derive(Debug)]
pub struct Board {
    lanes: Vec<Lane>,
    batches: Vec<Batch>,
    /// By instance: the batch that was submitted last, of those that compute.
    latest: Vec<Option<BatchId>>,
    /// Ops that ran and were not taken yet, where somebody watches.
    watched: Option<Vec<OpRan>>,
}

impl Board {
    /// An empty board.
    pub fn new(lanes: usize) -> Board {
        Board {
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            batches: Vec::new(),
            latest: Vec::new(),
            watched: None,
        }
    }

    /// Whether ops that run from now on are kept for [`Board::take_ran`].
    pub fn watch(&mut self, watch: bool) {
        self.watched = watch.then(Vec::new);
    }

    /// The ops that ran since the last call, in the order in which the machine heard of their ends; none without
    /// [`Board::watch`].
    pub fn take_ran(&mut self) -> impl Iterator<Item = OpRan> + '_ {
        self.watched.iter_mut().flat_map(|ran| ran.drain(..))
    }

    /// Queues a batch's ops on their lanes.
    #[inline]
    pub fn submit(&mut self, now: Time, batch: BatchId, instance: InstanceId, shape: BatchShape, ops: &[Op]) {
        let slot = batch.slot as usize;
        if slot >= self.batches.len() {
            self.batches.resize_with(slot + 1, Batch::default);
        }
        let before = self.follow(instance, batch, ops);
        let state = &mut self.batches[slot];
        assert_eq!(state.left, 0, "a batch's handle is free when it is submitted");
        state.generation = batch.generation;
        state.instance = Some(instance);
        state.shape = Some(shape);
        state.left = ops.len() as u32;
        state.frontier = now;
        state.timing = BatchTiming {
            ended: now,
            ..BatchTiming::default()
        };
        state.ops.clear();
        for (index, op) in ops.iter().enumerate() {
            let mut blockers = u8::from(op.behind && before);
            if op.after != After::NONE {
                for waited_for in op.after.iter().filter(|&i| ops[i].lane != op.lane) {
                    let waited_for = &mut state.ops[waited_for];
                    if waited_for.waiters == 0 {
                        waited_for.first_waiter = index as u16;
                    }
                    waited_for.waiters += 1;
                    blockers += 1;
                }
            }
            state.ops.push(OpState {
                op: *op,
                blockers,
                waiters: 0,
                first_waiter: 0,
            });
            self.lanes[op.lane.index()].queue.push_back(OpRef {
                batch,
                index: index as u32,
            });
        }
    }

    /// Notes that `batch` is the instance's latest; whether the one before has not ended and `batch` waits for it.
    #[inline]
    fn follow(&mut self, instance: InstanceId, batch: BatchId, ops: &[Op]) -> bool {
        // What only brings something in stands between no two batches.
        if !ops.iter().any(|op| op.kind.computes()) {
            return false;
        }
        if instance.index() >= self.latest.len() {
            self.latest.resize(instance.index() + 1, None);
        }
        let before = self.latest[instance.index()].replace(batch);
        let Some(before) = before.filter(|_| ops.iter().any(|op| op.behind)) else {
            return false;
        };
        let state = &mut self.batches[before.slot as usize];
        let runs = state.generation == before.generation && state.left > 0;
        if runs {
            state.waited_for_by = Some(batch);
        }
        runs
    }

    #[inline]
    fn batch(&self, batch: BatchId) -> &Batch {
        let state = &self.batches[batch.slot as usize];
        assert_eq!(state.generation, batch.generation, "the batch is live");
        state
    }

    /// The op itself.
    #[inline]
    pub fn op(&self, op: OpRef) -> &Op {
        &self.batch(op.batch).ops[op.index as usize].op
    }

    /// The sizes of an op's batch.
    #[inline]
    pub fn shape(&self, batch: BatchId) -> BatchShape {
        self.batch(batch).shape.expect("submitted")
    }

    /// Who runs the batch.
    #[inline]
    pub fn instance(&self, batch: BatchId) -> InstanceId {
        self.batch(batch).instance.expect("submitted")
    }

    /// Takes the next op of a lane on which none runs, if it is ready: with its kind, its batch's sizes and who runs
    /// it, and when the lane was last busy.
    #[inline]
    pub fn start(&mut self, lane: LaneId) -> Option<Started<'_>> {
        let lane = &mut self.lanes[lane.index()];
        if lane.issued > 0 {
            return None;
        }
        let op = *lane.queue.front()?;
        let batch = &self.batches[op.batch.slot as usize];
        let OpState { op: of, blockers, .. } = &batch.ops[op.index as usize];
        if *blockers > 0 {
            return None;
        }
        lane.issued = 1;
        Some(Started {
            op,
            kind: &of.kind,
            shape: batch.shape.expect("submitted"),
            instance: batch.instance.expect("submitted"),
            free_since: lane.free_since,
        })
    }

    /// The first op of the lane's queue that has not been issued, if it is ready.
    #[inline]
    pub fn ready(&self, lane: LaneId) -> Option<OpRef> {
        let lane = &self.lanes[lane.index()];
        let next = *lane.queue.get(lane.issued)?;
        (self.batch(next.batch).ops[next.index as usize].blockers == 0).then_some(next)
    }

    /// Whether an op of this lane has not been issued.
    #[inline]
    pub fn is_waited_for(&self, lane: LaneId) -> bool {
        let lane = &self.lanes[lane.index()];
        lane.queue.len() > lane.issued
    }

    /// Takes the op that `ready` returned.
    #[inline]
    pub fn issue(&mut self, lane: LaneId) {
        self.lanes[lane.index()].issued += 1;
    }

    /// The first issued op of the lane ran from `started` to `ended`. Frees the lane for the next.
    #[inline]
    pub fn ran(&mut self, lane: LaneId, started: Time, ended: Time) -> OpRef {
        let state = &mut self.lanes[lane.index()];
        assert!(state.issued > 0, "an op that ends has been issued");
        let op = state.queue.pop_front().expect("issued ops are queued");
        state.issued -= 1;
        let lane_free = state.free_since;
        state.free_since = ended;
        let batch = &mut self.batches[op.batch.slot as usize];
        if batch.ops[op.index as usize].op.kind.computes() {
            // From the batch's frontier the lane was first taken by others, then free, then ours.
            let free = lane_free.max(batch.frontier).min(started);
            batch.timing.lane += free.since(batch.frontier);
            batch.timing.stall += started.since(free);
            batch.timing.busy += ended.since(started);
            batch.timing.ended = ended;
            batch.frontier = ended;
        }
        if let Some(watched) = &mut self.watched {
            watched.push(OpRan {
                op,
                lane,
                instance: batch.instance.expect("submitted"),
                kind: batch.ops[op.index as usize].op.kind,
                shape: batch.shape.expect("submitted"),
                started,
                ended,
            });
        }
        op
    }

    /// The end of an op that ran has become known. Calls `woken` for each lane on which an op may have become ready.
    pub fn notice(&mut self, op: OpRef, mut woken: impl FnMut(LaneId)) -> Noticed {
        let batch = &mut self.batches[op.batch.slot as usize];
        assert_eq!(batch.generation, op.batch.generation, "the batch is live");
        let index = op.index as usize;
        let OpState {
            op: Op { lane, told, .. },
            mut waiters,
            first_waiter,
            ..
        } = batch.ops[index];
        batch.left -= 1;
        let noticed = Noticed {
            told: told.then_some(batch.timing),
            batch_ended: batch.left == 0,
        };
        // Mostly nobody waits.
        if waiters > 0 {
            let mut later = batch.ops[first_waiter.into()..].iter_mut();
            while waiters > 0 {
                let later = later.next().expect("who waits comes later");
                if later.op.lane != lane && later.op.after.iter().any(|i| i == index) {
                    waiters -= 1;
                    later.blockers -= 1;
                    if later.blockers == 0 {
                        woken(later.op.lane);
                    }
                }
            }
        }
        if noticed.batch_ended
            && let Some(next) = batch.waited_for_by.take()
        {
            for waiting in &mut self.batches[next.slot as usize].ops {
                if waiting.op.behind {
                    waiting.blockers -= 1;
                    if waiting.blockers == 0 {
                        woken(waiting.op.lane);
                    }
                }
            }
        }
        noticed
    }

    /// Whether nothing is queued or running.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.queue.is_empty())
    }
}
