//! Who is there: tenants' models and domains' tables come, change and go by management requests (HMI, section 4.1),
//! while others are served.
//!
//! A model that is created or updated is read into host memory by an op, and is there, or new, once that has ended:
//! slots that hold the old version are then found by nobody. A model that is deleted is gone at once for all who wait,
//! and its memory is let go of when the last batch that uses it has ended.

use std::collections::BTreeMap;

use tenantry_traces::{Action, ManageRequest, Subject};

use crate::command::{Command, Commands, FailureReason, ManageOutcome, Managed, Refusal, RejectReason};
use crate::ids::{BatchId, InstanceId};
use crate::op::{BatchShape, Manage, Op, OpKind};
use crate::spec::PoolSpec;
use crate::topology::Topology;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    There,
    NotCreated,
    /// Its first version is being read.
    Coming,
    Deleted,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: State,
    /// Members of running batches, and ops that read a new version.
    users: u32,
}

const THERE: Entry = Entry {
    state: State::There,
    users: 0,
};

/// Tenants and domains of a pool.
#[derive(Debug)]
pub(crate) struct Tenancy {
    tenants: Vec<Entry>,
    domains: Vec<Entry>,
    /// Of a tenant's own parameters; 0 where tenants have none.
    tenant_bytes: u64,
    domain_bytes: u64,
    /// Deleted models that are still used.
    leaving: BTreeMap<u32, ManageRequest>,
}

/// What a server must do about a management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing more: it has been answered, or needs no answer.
    Nothing,
    /// Submit an op.
    Submit(Manage),
    /// Let nobody find the tenant's slots, fail who waits, and then ask [`Tenancy::unused`].
    Delete(u32),
}

impl Tenancy {
    /// All are there.
    pub fn new(pool: &PoolSpec, tenants: u32, tenant_bytes: u64) -> Tenancy {
        let domains = pool.plot.map_or(0, |plot| plot.domains);
        Tenancy {
            tenants: vec![THERE; tenants as usize],
            domains: vec![THERE; domains as usize],
            tenant_bytes,
            domain_bytes: pool.plot.and_then(|plot| plot.domain_bytes).unwrap_or(0),
            leaving: BTreeMap::new(),
        }
    }

    /// Whether a tenant's requests are let in.
    #[inline]
    pub fn check(&self, tenant: u32) -> Result<(), RejectReason> {
        match self.tenants.get(tenant as usize).map(|entry| entry.state) {
            None => Err(RejectReason::UnknownTenant),
            Some(State::There) => Ok(()),
            Some(State::NotCreated | State::Coming) => Err(RejectReason::NotCreated),
            Some(State::Deleted) => Err(RejectReason::Deleted),
        }
    }

    /// Whether a tenant's model was deleted.
    pub fn is_deleted(&self, tenant: u32) -> bool {
        self.tenants[tenant as usize].state == State::Deleted
    }

    /// Whether a tenant's parameters may lie on a card where no batch uses them.
    pub fn may_be_resident(&self, tenant: u32) -> bool {
        self.tenants[tenant as usize].state == State::There
    }

    /// A request of the tenant begins to run.
    #[inline]
    pub fn enter(&mut self, tenant: u32) {
        self.tenants[tenant as usize].users += 1;
    }

    /// A request of the tenant has run. What is to be discarded, if it was the last to use what was deleted.
    #[inline]
    pub fn leave(&mut self, tenant: u32) -> Option<ManageRequest> {
        self.tenants[tenant as usize].users -= 1;
        self.unused(tenant)
    }

    /// The request that deletes the tenant, if nobody uses its model any more: [`Tenancy::submit`] its discarding.
    #[inline]
    pub fn unused(&mut self, tenant: u32) -> Option<ManageRequest> {
        // Nearly always nobody is being deleted.
        match self.leaving.is_empty() {
            true => None,
            false => self.left(tenant),
        }
    }

    #[cold]
    fn left(&mut self, tenant: u32) -> Option<ManageRequest> {
        match self.tenants[tenant as usize].users {
            0 => self.leaving.remove(&tenant),
            _ => None,
        }
    }

    fn entry(&mut self, subject: Subject) -> Option<&mut Entry> {
        match subject {
            Subject::Tenant(tenant) => self.tenants.get_mut(tenant as usize),
            Subject::Domain(domain) => self.domains.get_mut(domain as usize),
        }
    }

    /// Begins what is asked. Answers at once where nothing is to be done.
    pub fn begin(&mut self, request: ManageRequest, commands: &mut Commands) -> Begun {
        let subject = request.change.subject;
        let bytes = match subject {
            Subject::Tenant(_) => self.tenant_bytes,
            Subject::Domain(_) => self.domain_bytes,
        };
        let still_used = matches!(subject, Subject::Tenant(tenant) if self.leaving.contains_key(&tenant));
        let Some(entry) = self.entry(subject) else {
            refuse(request, commands);
            return Begun::Nothing;
        };
        let refused = match (request.change.action, entry.state) {
            (Action::Absent, _) => {
                entry.state = State::NotCreated;
                return match subject {
                    Subject::Tenant(_) => Begun::Nothing,
                    // Its tenants find it unless it is taken away.
                    Subject::Domain(_) => Begun::Submit(Manage::Discard { subject }),
                };
            }
            (Action::Create, State::There | State::Coming) => Some(Refusal::Exists),
            (Action::Create, State::Deleted) if still_used || entry.users > 0 => Some(Refusal::InUse),
            (Action::Create, State::NotCreated | State::Deleted) | (Action::Update | Action::Delete, State::There) => {
                None
            }
            (Action::Update | Action::Delete, _) => Some(Refusal::Absent),
        };
        if let Some(refusal) = refused {
            answer(request, ManageOutcome::Refused(refusal), commands);
            return Begun::Nothing;
        }
        match (request.change.action, subject) {
            (action, Subject::Tenant(tenant)) if bytes == 0 => {
                // All share what there is: only who is let in changes.
                answer(request, ManageOutcome::Made, commands);
                match action {
                    Action::Delete => {
                        entry.state = State::Deleted;
                        Begun::Delete(tenant)
                    }
                    _ => {
                        entry.state = State::There;
                        Begun::Nothing
                    }
                }
            }
            (Action::Delete, Subject::Tenant(tenant)) => {
                entry.state = State::Deleted;
                self.leaving.insert(tenant, request);
                Begun::Delete(tenant)
            }
            (action, _) => {
                if action == Action::Create {
                    entry.state = State::Coming;
                }
                entry.users += 1;
                Begun::Submit(Manage::Store { subject, bytes })
            }
        }
    }

    /// The op of a request has ended. Answers it; whether slots that hold an older version are to be found by nobody,
    /// and what is to be discarded, since it was deleted meanwhile.
    pub fn ended(
        &mut self,
        request: ManageRequest,
        failed: Option<FailureReason>,
        commands: &mut Commands,
    ) -> (bool, Option<ManageRequest>) {
        let Subject::Tenant(tenant) = request.change.subject else {
            let entry = self.entry(request.change.subject).expect("what was begun is known");
            if request.change.action == Action::Absent {
                return (false, None);
            }
            entry.users -= 1;
            if request.change.action == Action::Create {
                entry.state = if failed.is_none() {
                    State::There
                } else {
                    State::NotCreated
                };
            }
            answer(
                request,
                failed.map_or(ManageOutcome::Made, ManageOutcome::Failed),
                commands,
            );
            return (false, None);
        };
        let entry = &mut self.tenants[tenant as usize];
        let outcome = match (request.change.action, failed, entry.state) {
            (Action::Delete, ..) => {
                // What cannot be let go of is gone all the same.
                entry.users -= 1;
                answer(request, ManageOutcome::Made, commands);
                return (false, None);
            }
            (_, _, State::Deleted) => ManageOutcome::Refused(Refusal::Absent),
            (Action::Create, Some(reason), _) => {
                entry.state = State::NotCreated;
                ManageOutcome::Failed(reason)
            }
            (_, Some(reason), _) => ManageOutcome::Failed(reason),
            (_, None, _) => {
                entry.state = State::There;
                ManageOutcome::Made
            }
        };
        answer(request, outcome, commands);
        (outcome == ManageOutcome::Made, self.leave(tenant))
    }

    /// Submits the op of a request on the lane of the host's disk; its end is told. What is let go of goes there too,
    /// so that it is not what a later request has read meanwhile.
    pub fn submit(&mut self, batch: BatchId, manage: Manage, topology: &Topology, commands: &mut Commands) {
        if let Manage::Discard {
            subject: Subject::Tenant(tenant),
        } = manage
        {
            // Nobody is created anew in memory that is about to be let go of.
            self.tenants[tenant as usize].users += 1;
        }
        let mark = commands.mark();
        let lane = topology.disk.expect("a server of tenants who come and change has one");
        commands.ops.push(Op::alone(OpKind::Manage(manage), lane));
        // The host's affair, which no instance waits for: it is counted to the first.
        commands.submit(batch, InstanceId(0), BatchShape::NOTHING, mark);
    }
}

fn answer(request: ManageRequest, outcome: ManageOutcome, commands: &mut Commands) {
    commands.list.push(Command::Managed(Managed { request, outcome }));
}

/// Answers what is asked of a system that has nothing of the kind.
pub(crate) fn refuse(request: ManageRequest, commands: &mut Commands) {
    if request.change.action != Action::Absent {
        answer(request, ManageOutcome::Refused(Refusal::Unknown), commands);
    }
}

/// What lets go of a deleted model.
pub(crate) fn discard(request: ManageRequest) -> Manage {
    Manage::Discard {
        subject: request.change.subject,
    }
}
