//! What becomes of an instance: it serves, leaves, loads another runtime or is given back, and its line goes elsewhere.

use tenantry_traces::Time;

use super::{Running, RuntimeServer};
use crate::command::{Command, Commands};
use crate::ids::{GpuId, InstanceId};
use crate::op::{BatchShape, LoadRuntime, Op, OpKind};
use crate::server::queue::Queue;
use crate::spec::RuntimeRef;

/// What an instance is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its card is not ours.
    Off,
    /// Its card starts up; then it loads a runtime.
    Starting,
    /// Gets nothing more, and then loads this runtime, or is given back.
    Leaving(Option<RuntimeRef>),
    /// Loads a runtime.
    Loading(RuntimeRef),
    /// Serves.
    Serving(RuntimeRef),
}

pub(super) struct Instance {
    pub state: State,
    /// Its line, first come first served.
    pub queue: Queue,
    /// Requests submitted and not ended.
    pub in_hand: u32,
    /// Whether it changes its runtime as part of a replacement.
    pub replaced: bool,
}

impl Instance {
    pub fn off() -> Instance {
        Instance {
            state: State::Off,
            queue: Queue::new(0),
            in_hand: 0,
            replaced: false,
        }
    }

    /// The runtime that it has or is to have.
    pub fn runtime(&self) -> Option<RuntimeRef> {
        match self.state {
            State::Serving(runtime) | State::Loading(runtime) | State::Leaving(Some(runtime)) => Some(runtime),
            State::Off | State::Starting | State::Leaving(None) => None,
        }
    }
}

impl RuntimeServer {
    /// An instance serves a runtime from now on, and those who waited for one so long are dispatched.
    pub(super) fn serve(&mut self, now: Time, instance: InstanceId, runtime: RuntimeRef, commands: &mut Commands) {
        let stream = &mut self.streams[usize::from(runtime.stream)];
        self.instances[instance.index()].state = State::Serving(runtime);
        stream.levels.add(instance, usize::from(runtime.runtime), 0);
        let held = stream.held.view(&self.requests);
        if held.is_empty() {
            return;
        }
        let mut moving = std::mem::take(&mut self.moving);
        moving.extend(held.iter().map(|held| held.id));
        for &id in &moving {
            stream.held.remove(&mut self.requests, id);
        }
        moving.drain(..).for_each(|id| self.dispatch(now, id, commands));
        self.moving = moving;
    }

    /// Instances get nothing more: their lines are dispatched anew, to others, and each goes on to its next runtime
    /// when it has nothing in hand.
    pub(super) fn leave(&mut self, now: Time, leaving: &[(InstanceId, Option<RuntimeRef>)], commands: &mut Commands) {
        for &(instance, next) in leaving {
            let state = &mut self.instances[instance.index()].state;
            let State::Serving(runtime) = *state else {
                unreachable!("only who serves leaves")
            };
            *state = State::Leaving(next);
            self.streams[usize::from(runtime.stream)].levels.remove(instance);
        }
        for &(instance, _) in leaving {
            let state = &mut self.instances[instance.index()];
            let mut moving = std::mem::take(&mut self.moving);
            let line = state.queue.view(&self.requests);
            moving.extend(line.iter().map(|waiting| waiting.id));
            for &id in &moving {
                state.queue.remove(&mut self.requests, id);
            }
            self.fleet.counts.redispatched += moving.len() as u64;
            moving.drain(..).for_each(|id| self.dispatch(now, id, commands));
            self.moving = moving;
            self.vacated(now, instance, commands);
        }
    }

    /// An instance that leaves may have nothing in hand any more.
    pub(super) fn vacated(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let state = &mut self.instances[instance.index()];
        let State::Leaving(next) = state.state else {
            return;
        };
        if state.in_hand > 0 {
            return;
        }
        match next {
            Some(runtime) => self.load(instance, runtime, commands),
            None => {
                self.off(now, instance);
            }
        }
    }

    /// An instance has no runtime any more, and with the last of its card the card is given back: whether it was that.
    fn off(&mut self, now: Time, instance: InstanceId) -> bool {
        self.instances[instance.index()].state = State::Off;
        let gpu = self.topology.instances[instance.index()].gpu;
        let is_last = self.on_gpu(gpu).all(|on| self.instances[on].state == State::Off);
        if is_last {
            self.fleet.card_left(now);
        }
        is_last
    }

    /// A card's start-up is over.
    pub(super) fn started(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        assert_eq!(self.instances[instance.index()].state, State::Starting, "at {now}");
        let runtime = self.runtime_of_added();
        self.load(instance, runtime, commands);
        self.remember(now, self.deployed());
    }

    fn load(&mut self, instance: InstanceId, runtime: RuntimeRef, commands: &mut Commands) {
        self.instances[instance.index()].state = State::Loading(runtime);
        let batch = self.running.insert(Running::Load(instance));
        let op = OpKind::LoadRuntime(LoadRuntime {
            runtime,
            bytes: self.streams[usize::from(runtime.stream)].weight_bytes,
        });
        let lane = self.topology.instances[instance.index()].copy;
        let mark = commands.mark();
        commands.ops.push(Op::alone(op, lane));
        commands.submit(batch, instance, BatchShape::NOTHING, mark);
    }

    /// An instance serves its runtime; one that could not load it serves nobody any more.
    pub(super) fn loaded(&mut self, now: Time, instance: InstanceId, failed: bool, commands: &mut Commands) {
        let State::Loading(runtime) = self.instances[instance.index()].state else {
            unreachable!("only who loads has loaded")
        };
        if failed {
            self.fleet.counts.released += u64::from(self.off(now, instance));
            self.fleet.plan_anew();
            self.remember(now, self.deployed());
        } else {
            self.serve(now, instance, runtime, commands);
        }
        if std::mem::take(&mut self.instances[instance.index()].replaced) {
            self.fleet.counts.replaced += u64::from(!failed);
            self.changed(now, commands);
        }
    }

    /// What an instance of an added card loads: the longest runtime of the first stream (section 4). Where all runtimes
    /// are to have as many instances, the one that lacks most for that, of equals the longest.
    fn runtime_of_added(&self) -> RuntimeRef {
        if !self.fleet.even {
            return RuntimeRef {
                stream: 0,
                runtime: self.streams[0].spec.runtimes.len() as u16 - 1,
            };
        }
        let deployed = self.deployed();
        let shares = self.even_shares(deployed.iter().sum::<u32>() + 1);
        let lacks = |&number: &usize| (i64::from(shares[number]) - i64::from(deployed[number]), number);
        let most = (0..shares.len()).max_by_key(lacks);
        self.runtime(most.expect("there is a runtime"))
    }

    /// Indices of a card's instances.
    pub(super) fn on_gpu(&self, gpu: GpuId) -> std::ops::Range<usize> {
        let each = self.fleet.instances_per_gpu as usize;
        gpu.index() * each..(gpu.index() + 1) * each
    }

    /// Starts a card up.
    pub(super) fn start_card(&mut self, now: Time, gpu: GpuId, commands: &mut Commands) {
        for index in self.on_gpu(gpu) {
            let instance = InstanceId(index as u32);
            self.instances[index].state = State::Starting;
            commands.list.push(Command::SetTimer {
                instance,
                at: now + self.fleet.start_up,
            });
        }
        self.fleet.card_came(now);
    }
}
