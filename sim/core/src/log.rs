//! A run written down: for replaying it into a fresh server, and for comparing two machines command by command.

use tenantry_traces::{ManageRequest, Request, Ticket, Time};

use crate::command::{Command, Commands};
use crate::event::{Answer, BatchTiming, Done, Ended, Event, Failed, MemberFailure, RunOutcome};
use crate::ids::{BatchId, InstanceId};
use crate::op::{Load, Member, Op, PetGroup};
use crate::policy::coordinated::{PoolPlan, Query};
use crate::policy::fleet::{Allocated, Question};
use crate::run::Observer;
use crate::server::Server;

/// An event that owns what the machine lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedEvent {
    /// See [`Event::Done`].
    Done {
        /// Whose op.
        batch: BatchId,
        /// Its index.
        op: u32,
        /// How the batch fared.
        timing: BatchTiming,
        /// Members that failed.
        failures: Vec<MemberFailure>,
        /// Of a decoder's run.
        run: Option<Box<LoggedRun>>,
        /// Of a route's stage.
        answers: Vec<Answer>,
        /// Of the solver.
        allocation: Option<Allocated>,
        /// Of the planner.
        plan: Option<PoolPlan>,
    },
    /// See [`Event::Timer`].
    Timer(InstanceId),
    /// See [`Event::Arrived`].
    Arrived(Request),
    /// See [`Event::Cancelled`].
    Cancelled(Ticket),
    /// See [`Event::Manage`].
    Manage(ManageRequest),
}

/// A [`RunOutcome`] that owns what the machine lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRun {
    /// Its requests.
    pub requests: u32,
    /// Steps made.
    pub steps: u32,
    /// When the first was over.
    pub first_step_ended: Time,
    /// When others were.
    pub marks: Vec<Time>,
    /// Requests that have their last token.
    pub ended: Vec<Ended>,
    /// Requests that failed.
    pub failed: Vec<Failed>,
}

impl LoggedEvent {
    fn own(event: &Event<'_>) -> LoggedEvent {
        match *event {
            Event::Done(Done {
                batch,
                op,
                timing,
                failures,
                run,
                answers,
                allocation,
                plan,
            }) => LoggedEvent::Done {
                batch,
                op,
                timing,
                failures: failures.to_vec(),
                run: run.map(|run| {
                    Box::new(LoggedRun {
                        requests: run.requests,
                        steps: run.steps,
                        first_step_ended: run.first_step_ended,
                        marks: run.marks.to_vec(),
                        ended: run.ended.to_vec(),
                        failed: run.failed.to_vec(),
                    })
                }),
                answers: answers.to_vec(),
                allocation: allocation.cloned(),
                plan: plan.cloned(),
            },
            Event::Timer(instance) => LoggedEvent::Timer(instance),
            Event::Arrived(request) => LoggedEvent::Arrived(request),
            Event::Cancelled(ticket) => LoggedEvent::Cancelled(ticket),
            Event::Manage(request) => LoggedEvent::Manage(request),
        }
    }

    fn lend(&self) -> Event<'_> {
        match self {
            LoggedEvent::Done {
                batch,
                op,
                timing,
                failures,
                run,
                answers,
                allocation,
                plan,
            } => Event::Done(Done {
                batch: *batch,
                op: *op,
                timing: *timing,
                failures,
                run: run.as_ref().map(|run| RunOutcome {
                    requests: run.requests,
                    steps: run.steps,
                    first_step_ended: run.first_step_ended,
                    marks: &run.marks,
                    ended: &run.ended,
                    failed: &run.failed,
                }),
                answers,
                allocation: allocation.as_ref(),
                plan: plan.as_ref(),
            }),
            LoggedEvent::Timer(instance) => Event::Timer(*instance),
            LoggedEvent::Arrived(request) => Event::Arrived(*request),
            LoggedEvent::Cancelled(ticket) => Event::Cancelled(*ticket),
            LoggedEvent::Manage(request) => Event::Manage(*request),
        }
    }
}

/// A command with what it refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCommand {
    /// When.
    pub at: Time,
    /// The command.
    pub command: Command,
    /// Of a submission.
    pub members: Vec<Member>,
    /// Of a submission.
    pub loads: Vec<Load>,
    /// Of a submission.
    pub ops: Vec<Op>,
    /// Of a submission.
    pub groups: Vec<PetGroup>,
    /// Of a submission.
    pub question: Option<Question>,
    /// Of a submission: the queries that are to be split, by shared model.
    pub pool: Vec<Vec<Query>>,
}

impl LoggedCommand {
    fn own(at: Time, command: &Command, commands: &Commands) -> LoggedCommand {
        let mut command = command.clone();
        let (mut members, mut loads, mut ops, mut groups) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut question, mut pool) = (None, Vec::new());
        if let Command::Submit(submission) = &mut command {
            members = commands.members(submission).to_vec();
            loads = commands.loads(submission).to_vec();
            ops = commands.ops(submission).to_vec();
            question = commands.question(submission).cloned();
            pool = commands.pool(submission).map_or_else(Vec::new, |pool| pool.queries.clone());
            // Where in the buffer it lay is of no interest.
            (submission.members, submission.loads, submission.ops) = (0..members.len(), 0..loads.len(), 0..ops.len());
            groups = commands.groups(submission).to_vec();
            submission.groups = 0..groups.len();
        }
        LoggedCommand {
            at,
            command,
            members,
            loads,
            ops,
            groups,
            question,
            pool,
        }
    }
}

/// All events and commands of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// What the server heard.
    pub events: Vec<(Time, LoggedEvent)>,
    /// What it wanted.
    pub commands: Vec<LoggedCommand>,
}

impl Observer for Log {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        self.events.push((now, LoggedEvent::own(event)));
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        self.commands.push(LoggedCommand::own(now, command, commands));
    }
}

/// Tells a fresh server all that another has heard. Its commands are those of the log if and only if it decides alike.
pub fn replay(server: &mut Server, events: &[(Time, LoggedEvent)]) -> Vec<LoggedCommand> {
    let mut commands = Commands::default();
    let mut all = Vec::new();
    for (at, event) in events {
        server.handle(*at, &event.lend(), &mut commands);
        all.extend(commands.list.iter().map(|command| LoggedCommand::own(*at, command, &commands)));
        commands.clear();
    }
    all
}
