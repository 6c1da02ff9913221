//! The one loop: next event, the server handles it, the machine performs the commands, the ledger observes.

use tenantry_traces::{Entry, Ticket, Time, TraceError, Workload};

use crate::board::OpRan;
use crate::command::{Command, Commands};
use crate::event::Event;
use crate::ledger::{BrokenLaw, Ledger};
use crate::machine::{Machine, MachineError, Next};
use crate::server::Server;

/// Hears all that passes between server and machine. What it does must not change the run.
pub trait Observer {
    /// An event, before the server handles it.
    fn event(&mut self, now: Time, event: &Event<'_>) {
        let _ = (now, event);
    }

    /// A command, before the machine performs it.
    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        let _ = (now, command, commands);
    }

    /// Whether what a route's models made of a request is right, where that is known; before the command by which it
    /// leaves.
    fn judged(&mut self, ticket: Ticket, right: Option<bool>) {
        let _ = (ticket, right);
    }

    /// Whether [`Observer::ran`] is wanted from now on. Asked at each event: who never asks pays nothing, nor who has
    /// seen enough.
    fn watches_ops(&self) -> bool {
        false
    }

    /// An op that ran, told or not, once the machine has heard of its end.
    fn ran(&mut self, ran: &OpRan) {
        let _ = ran;
    }
}

/// Nobody watches.
impl Observer for () {}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        self.0.event(now, event);
        self.1.event(now, event);
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        self.0.command(now, command, commands);
        self.1.command(now, command, commands);
    }

    fn judged(&mut self, ticket: Ticket, right: Option<bool>) {
        self.0.judged(ticket, right);
        self.1.judged(ticket, right);
    }

    fn watches_ops(&self) -> bool {
        self.0.watches_ops() || self.1.watches_ops()
    }

    fn ran(&mut self, ran: &OpRan) {
        self.0.ran(ran);
        self.1.ran(ran);
    }
}

impl<O: Observer + ?Sized> Observer for &mut O {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        (**self).event(now, event);
    }

    fn command(&mut self, now: Time, command: &Command, commands: &Commands) {
        (**self).command(now, command, commands);
    }

    fn judged(&mut self, ticket: Ticket, right: Option<bool>) {
        (**self).judged(ticket, right);
    }

    fn watches_ops(&self) -> bool {
        (**self).watches_ops()
    }

    fn ran(&mut self, ran: &OpRan) {
        (**self).ran(ran);
    }
}

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// When the last request had left and nobody came any more: what happens after it, such as a load that nobody waits
    /// for or a tenant that is updated, makes no run longer. Where requests are left inside, the time of the last
    /// event.
    pub at: Time,
    /// The user stopped it; what had finished by then is in the ledger.
    pub interrupted: bool,
}

/// A run that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The workload.
    #[error(transparent)]
    Workload(#[from] TraceError),
    /// The machine.
    #[error(transparent)]
    Machine(MachineError),
    /// A law of the simulation: a mistake in Tenantry.
    #[error(transparent)]
    Law(#[from] BrokenLaw),
}

/// Serves `workload` until it is exhausted and nothing more will happen.
///
/// # Errors
/// When the workload cannot be read, the machine is lost, or a law is broken.
pub fn run(
    server: &mut Server,
    workload: &mut dyn Workload,
    machine: &mut impl Machine,
    ledger: &mut Ledger,
    mut watch: impl Observer,
) -> Result<RunEnd, RunError> {
    let mut commands = Commands::default();
    let mut at = Time::ZERO;
    let mut ended = None;
    machine.count_busy_from(ledger.warm_up());
    server.count_cards_from(ledger.warm_up());
    let mut watches_ops = false;
    // A macro, since compilers do not inline a closure of several callers, and this loop is as hot as what it calls.
    macro_rules! hear {
        ($now:expr, $event:expr) => {
            hear(server, ledger, &mut watch, &mut commands, at, $now, $event)
        };
    }
    // When the next of the workload is due, asked for again when something has come of it or has been finished.
    let (mut due, mut asks) = (None, true);
    loop {
        if asks {
            due = workload.peek()?;
            asks = false;
        }
        if ended.is_none() && ledger.is_empty() && workload.peek_request()?.is_none() {
            ended = Some(at);
            ledger.ended(at, server, machine);
        }
        let over = |interrupted| {
            let at = ended.unwrap_or(at);
            Ok(RunEnd { at, interrupted })
        };
        let (now, is_first) = match machine.next(due) {
            Ok(Next::Event(now, ref event)) => (now, hear!(now, event)?),
            Ok(Next::Due(now)) => {
                asks = true;
                let is_first = match workload.next()? {
                    Some(Entry::Request(request)) => hear!(now, &Event::Arrived(server.as_read(request)))?,
                    Some(Entry::Cancel { ticket, .. }) => hear!(now, &Event::Cancelled(ticket))?,
                    Some(Entry::Manage(request)) => hear!(now, &Event::Manage(request))?,
                    None => return Err(BrokenLaw("a workload that announced an entry has one".into()).into()),
                };
                (now, is_first)
            }
            Ok(Next::Idle) => return over(false),
            Err(MachineError::Interrupted) => return over(true),
            Err(error) => return Err(RunError::Machine(error)),
        };
        at = now;
        if is_first {
            ledger.leave_out_lookups(machine);
        }
        for command in &commands.list {
            ledger.command(now, command, &commands)?;
            if let Command::Finish(finish) = command {
                if let Some(returned) = finish.returned {
                    let right = machine.is_right(finish);
                    ledger.returned(finish.arrival, returned, right);
                    watch.judged(finish.ticket, right);
                }
                workload.finished(now, finish.ticket);
                asks = true;
            }
            watch.command(now, command, &commands);
            machine.perform(now, command, &commands).map_err(RunError::Machine)?;
        }
        if !commands.list.is_empty() {
            commands.clear();
        }
        if watches_ops {
            machine.board().take_ran().for_each(|ran| watch.ran(&ran));
        }
        if watches_ops != watch.watches_ops() {
            watches_ops = !watches_ops;
            machine.board().watch(watches_ops);
        }
    }
}

/// The server hears of an event, right where the machine says it, since it is large to be moved; the one before was at
/// `at`. Whether it is the first after the warm-up.
#[inline(always)]
fn hear(
    server: &mut Server,
    ledger: &mut Ledger,
    watch: &mut impl Observer,
    commands: &mut Commands,
    at: Time,
    now: Time,
    event: &Event<'_>,
) -> Result<bool, BrokenLaw> {
    ledger.event(at, now, event)?;
    let is_first = !ledger.is_warm() && now >= ledger.warm_up();
    if is_first {
        ledger.warmed_up(server);
    }
    watch.event(now, event);
    server.handle(now, event, commands);
    Ok(is_first)
}
