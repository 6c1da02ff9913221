//! How many instances each runtime has: asked of the solver each period, carried out a few instances at a time.

use tenantry_traces::{Duration, Time};

use super::RuntimeServer;
use crate::command::Commands;
use crate::ids::InstanceId;
use crate::op::{BatchShape, Op, OpKind, Solve};
use crate::policy::fleet::{Allocated, Question, RuntimeQuestion, StreamQuestion, fitted};
use crate::policy::replace::{Deployed, replacement};
use crate::server::runtimes::Running;
use crate::server::runtimes::instances::State;
use crate::spec::PeriodicSpec;

impl RuntimeServer {
    /// Asks the solver, from what was observed since the last time.
    pub(super) fn ask(&mut self, now: Time, periodic: PeriodicSpec, commands: &mut Commands) {
        if self.fleet.solving {
            self.fleet.counts.late += 1;
            return;
        }
        let previous = self.deployed();
        let instances = previous.iter().sum();
        let mut previous = previous.into_iter();
        let streams = self.streams.iter_mut().map(|stream| {
            let runtimes = stream.spec.runtimes.iter().zip(stream.spec.capacities());
            let runtimes = runtimes.zip(&stream.spec.service).zip(&mut stream.observed);
            StreamQuestion {
                slo: stream.spec.slo,
                runtimes: runtimes
                    .map(|(((runtime, capacity), service), observed)| RuntimeQuestion {
                        max_length: runtime.max_length,
                        capacity,
                        service: *service,
                        requests: std::mem::take(observed),
                        previous: previous.next().expect("one a runtime"),
                    })
                    .collect(),
            }
        });
        let question = Question {
            streams: streams.collect(),
            instances,
            span: self.fleet.observed_since.map_or(Duration::ZERO, |since| now.since(since)),
            solver: periodic.solver,
        };
        self.fleet.observed_since = Some(now);
        self.fleet.solving = true;
        let batch = self.running.insert(Running::Solve);
        let lane = self.topology.solver.expect("a pool that asks has a solver");
        let op = OpKind::Solve(Solve {
            question: commands.questions.len() as u32,
            instances,
            runtimes: self.fleet.counts.runtimes.len() as u32,
        });
        commands.questions.push(question);
        let mark = commands.mark();
        commands.ops.push(Op::alone(op, lane));
        // The solver is nobody's instance; the first stands for it.
        commands.submit(batch, InstanceId(0), BatchShape::NOTHING, mark);
    }

    pub(in crate::server::runtimes) fn solved(&mut self, now: Time, answer: &Allocated, commands: &mut Commands) {
        self.fleet.solving = false;
        self.fleet.counts.decided(answer);
        // What was still to be changed for the last answer is out of date.
        self.fleet.plan.clear();
        self.fleet.answer.clone_from(&answer.instances);
        self.fleet.is_to_be_planned = true;
        if self.fleet.changing == 0 {
            self.next_changes(now, commands);
        }
    }

    /// An instance of the batch under way serves its new runtime, or nobody any more.
    pub(in crate::server::runtimes) fn changed(&mut self, now: Time, commands: &mut Commands) {
        self.fleet.changing -= 1;
        if self.fleet.changing == 0 {
            self.next_changes(now, commands);
        }
    }

    /// The next batch of changes: of a new answer, or of the one that is being carried out.
    fn next_changes(&mut self, now: Time, commands: &mut Commands) {
        if std::mem::take(&mut self.fleet.is_to_be_planned) {
            self.plan(now);
        }
        while self.fleet.changing == 0
            && let Some(batch) = self.fleet.plan.pop()
        {
            let mut leaving = Vec::with_capacity(batch.len());
            for change in batch {
                let instance = InstanceId(change.instance);
                // Its card may have been released since.
                if self.instances[instance.index()].state == State::Serving(self.runtime(change.from)) {
                    self.fleet.changing += 1;
                    self.instances[instance.index()].replaced = true;
                    leaving.push((instance, Some(self.runtime(change.to))));
                }
            }
            self.leave(now, &leaving, commands);
        }
    }

    /// Plans the way to the last answer, for all instances that serve or load. Those that load, on a card that has just
    /// come, count for what they will be; they cannot be changed yet.
    fn plan(&mut self, now: Time) {
        let loading = self.by_runtime(|instance| match instance.state {
            State::Loading(runtime) => Some(runtime),
            _ => None,
        });
        let deployed: Vec<Deployed> = (0..)
            .zip(&self.instances)
            .filter_map(|(instance, state)| match state.state {
                State::Serving(runtime) => {
                    let levels = &self.streams[usize::from(runtime.stream)].levels;
                    let (_, load) = levels.find(InstanceId(instance)).expect("who serves is listed");
                    Some(Deployed {
                        instance,
                        runtime: self.number(runtime),
                        load,
                    })
                }
                _ => None,
            })
            .collect();
        let at_once = self.fleet.periodic.map_or(1, |periodic| periodic.at_once) as usize;
        let missing: Vec<u32> = self
            .fleet
            .answer
            .iter()
            .zip(&loading)
            .map(|(target, loading)| target.saturating_sub(*loading))
            .collect();
        let mut target = fitted(missing, deployed.len() as u32);
        self.keep_longest(&deployed, &mut target);
        self.fleet.plan = replacement(&deployed, &target, at_once);
        self.fleet.plan.reverse();
        let all = target.iter().zip(&loading).map(|(target, loading)| target + loading);
        self.remember(now, all.collect());
    }

    /// By number, each stream's longest runtime.
    pub(super) fn longest(&self) -> Vec<usize> {
        let lengths = self.streams.iter().map(|stream| stream.spec.runtimes.len());
        let ends = lengths.scan(0, |end, length| {
            *end += length;
            Some(*end - 1)
        });
        ends.collect()
    }

    /// Eq. 7 while others load: the last instance that serves a stream's longest runtime goes on, whatever loads one,
    /// and one of the runtime that has most changes in its place. The next answer finds one too many.
    fn keep_longest(&self, deployed: &[Deployed], target: &mut [u32]) {
        let longest = self.longest();
        for &kept in &longest {
            if target[kept] > 0 || !deployed.iter().any(|instance| instance.runtime == kept) {
                continue;
            }
            let spare = |&at: &usize| target[at] > u32::from(longest.contains(&at));
            if let Some(most) = (0..target.len()).filter(spare).max_by_key(|&at| target[at]) {
                target[most] -= 1;
                target[kept] += 1;
            }
        }
    }
}
