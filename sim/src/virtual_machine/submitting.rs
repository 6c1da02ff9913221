//! What is kept of a batch when it is submitted: what its ops will be priced by, and what the server asked to be
//! solved.

use tenantry_core::Commands;
use tenantry_core::ids::{BatchId, InstanceId};
use tenantry_core::machine::MachineError;
use tenantry_core::op::{Member, Op, OpKind, Submission};
use tenantry_core::policy::coordinated::PoolPlan;
use tenantry_solver::answer_or_keep;
use tenantry_traces::Time;

use super::VirtualMachine;
use super::lanes::Work;
use crate::last_tokens::LastTokens;
use crate::leap::{Leap, RunPlan};

/// Whose whole model a batch is computed with.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    pub tenant: u32,
    /// Whether the batch has it copied first.
    pub copied: bool,
}

impl VirtualMachine {
    pub(super) fn submit(
        &mut self,
        now: Time,
        submission: &Submission,
        commands: &Commands,
    ) -> Result<(), MachineError> {
        let ops = commands.ops(submission);
        self.plan(submission, commands);
        if let Some(answers) = &mut self.answers {
            answers.submitted(submission.batch, commands.members(submission));
        }
        self.solve(submission, commands);
        self.split_pool(submission, commands);
        self.board.submit(now, submission.batch, submission.instance, submission.shape, ops);
        for op in ops {
            self.try_start(op.lane);
        }
        Ok(())
    }

    /// Keeps what a run's pace follows from until it starts, and the groups of a batch of tasks.
    fn plan(&mut self, submission: &Submission, commands: &Commands) {
        let slot = submission.batch.slot as usize;
        let pool = self.topology.instances[submission.instance.index()].pool;
        if self.prices.changes_model(pool) || slot < self.owners.len() {
            if slot >= self.owners.len() {
                self.owners.resize(slot + 1, None);
            }
            // All members are of one tenant; a run without members goes on with the last one's.
            let copies = |op: &Op| matches!(op.kind, OpKind::CopyIn(_));
            let owner = commands.members(submission).first().map(|member| Owner {
                tenant: member.tenant,
                copied: commands.ops(submission).iter().any(copies),
            });
            self.owners[slot] = owner.filter(|_| self.prices.changes_model(pool));
        }
        if !submission.groups.is_empty() || slot < self.groups.len() {
            if slot >= self.groups.len() {
                self.groups.resize_with(slot + 1, Vec::new);
            }
            self.groups[slot].clear();
            self.groups[slot].extend_from_slice(commands.groups(submission));
        }
        if let Some(outcome) = self.outcomes.get_mut(slot) {
            outcome.steps = 0;
        }
        let runs = commands.ops(submission).iter().find_map(|op| match op.kind {
            OpKind::Run(run) => Some(run),
            _ => None,
        });
        let Some(run) = runs else { return };
        if slot >= self.leaps.len() {
            self.leaps.resize_with(slot + 1, Leap::default);
        }
        let instance = submission.instance.index();
        if instance >= self.last_tokens.len() {
            self.last_tokens.resize_with(instance + 1, LastTokens::default);
        }
        let last_tokens = &mut self.last_tokens[instance];
        let members = commands.members(submission);
        for Member {
            request,
            ticket,
            sequence,
            ..
        } in members.iter().filter(|member| member.sequence.completes)
        {
            let longest = sequence.output_tokens;
            let tokens = self.ends.map_or(longest, |ends| ends.output_tokens(*ticket, longest));
            last_tokens.join(*request, tokens.saturating_sub(sequence.generated_tokens).max(1));
        }
        let steps = last_tokens.steps(run.until).map_or(run.max_steps, |steps| steps.min(run.max_steps));
        let costs = self.prices.run(members, run.going_on, submission.shape.tenants, steps);
        self.leaps[slot].plan = RunPlan {
            typical: self.prices.typical(&costs),
            costs,
            requests: submission.shape.requests,
            steps: steps.max(1),
        };
    }

    /// Solves what a submission asks. The answer is told when the time that it takes has passed.
    fn solve(&mut self, submission: &Submission, commands: &Commands) {
        if commands.questions.is_empty() {
            return;
        }
        if let Some(question) = commands.question(submission) {
            self.allocations.insert(submission.batch, answer_or_keep(question));
        }
    }

    /// Splits the pool that a submission asks about. As with [`solve`](Self::solve), the plan is told when its time has
    /// passed.
    fn split_pool(&mut self, submission: &Submission, commands: &Commands) {
        if commands.pools.is_empty() {
            return;
        }
        let Some(question) = commands.pool(submission) else {
            return;
        };
        let mut plan = PoolPlan::default();
        for op in commands.ops(submission) {
            if let OpKind::PlanPool(of) = op.kind {
                self.planner.answer(question, of.model, &mut plan);
            }
        }
        self.plans.insert(submission.batch, plan);
    }

    /// Lets a batch's run end at its next step.
    pub(super) fn interrupt_run(&mut self, now: Time, instance: InstanceId, batch: BatchId) {
        let lane = self.topology.instances[instance.index()].compute;
        let running = self.lanes[lane.index()].running.as_ref();
        let Some(running) = running.filter(|running| running.op.batch == batch) else {
            // It has not started; or it has ended, that has not been heard yet, and this makes no difference.
            self.leaps[batch.slot as usize].plan.steps = 1;
            return;
        };
        if let Work::Steps = running.work {
            let leap = &mut self.leaps[batch.slot as usize];
            leap.cut(self.prices.steps(), now);
            leap.end_here();
            self.pending.segment_of(lane, leap);
        }
    }
}
