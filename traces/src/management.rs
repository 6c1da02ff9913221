//! Management requests: tenants' models and domains' tables come, change and go while others are served (HMI, section
//! 4.1).

use std::path::PathBuf;

use crate::time::{Duration, Time};

/// What a management request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A tenant's model: dense, from 0.
    Tenant(u32),
    /// A domain's table, likewise.
    Domain(u32),
}

/// What is to become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It is not there when the run begins. No request: it says where the others start from.
    Absent,
    /// It comes.
    Create,
    /// A new version takes the place of the old.
    Update,
    /// It goes.
    Delete,
}

impl Action {
    /// As results and traces call it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Absent => "absent",
            Action::Create => "create",
            Action::Update => "update",
            Action::Delete => "delete",
        }
    }
}

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Change {
    /// Of whom.
    pub subject: Subject,
    /// What becomes of it.
    pub action: Action,
}

impl Change {
    /// All kinds, with what traces call them. Their place is their number in Parquet, counted from 1: 0 is a request.
    /// Domains are not deleted (HMI, section 4.1).
    const KINDS: [(&'static str, bool, Action); 7] = [
        ("absent", false, Action::Absent),
        ("create", false, Action::Create),
        ("update", false, Action::Update),
        ("delete", false, Action::Delete),
        ("absent-domain", true, Action::Absent),
        ("create-domain", true, Action::Create),
        ("update-domain", true, Action::Update),
    ];

    /// Of a tenant's model.
    pub fn tenant(tenant: u32, action: Action) -> Change {
        Change {
            subject: Subject::Tenant(tenant),
            action,
        }
    }

    /// Of a domain's table.
    pub fn domain(domain: u32, action: Action) -> Change {
        Change {
            subject: Subject::Domain(domain),
            action,
        }
    }

    /// The number of its tenant or domain.
    pub fn of(self) -> u32 {
        match self.subject {
            Subject::Tenant(number) | Subject::Domain(number) => number,
        }
    }

    fn kind(self) -> usize {
        let domain = matches!(self.subject, Subject::Domain(_));
        let kind = Change::KINDS
            .iter()
            .position(|&(_, of_domain, action)| (of_domain, action) == (domain, self.action));
        kind.expect("domains are not deleted")
    }

    /// As traces and results call its kind: `create`, `update-domain`.
    pub fn name(self) -> &'static str {
        Change::KINDS[self.kind()].0
    }

    /// The names of all kinds.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Change::KINDS.iter().map(|(name, ..)| *name)
    }

    /// The change of this name of tenant or domain `of`.
    pub fn named(name: &[u8], of: u32) -> Option<Change> {
        let number = Change::KINDS.iter().position(|(kind, ..)| kind.as_bytes() == name)?;
        Change::numbered(number as u64 + 1, of)
    }

    /// Its number in Parquet.
    pub(crate) fn number(self) -> u64 {
        self.kind() as u64 + 1
    }

    /// The change of this number of tenant or domain `of`.
    pub(crate) fn numbered(number: u64, of: u32) -> Option<Change> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let &(_, domain, action) = Change::KINDS.get(index)?;
        Some(match domain {
            true => Change::domain(of, action),
            false => Change::tenant(of, action),
        })
    }
}

/// A management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManageRequest {
    /// When it is made.
    pub at: Time,
    /// What changes.
    pub change: Change,
}

/// Which management requests a workload has beside those for answers. There are none after its stop.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ManagementSpec {
    /// None: every tenant and domain is there from the start, and stays as it is.
    #[default]
    None,
    /// At random instants, of random tenants and domains.
    Rates(ManagementRates),
    /// These. Who is first created is absent until then.
    Listed(Vec<ManageRequest>),
    /// Those of a recording.
    Trace(ManagementTrace),
}

/// Poisson processes of management requests. A tenant that is created is drawn from those that are not there, any other
/// from those that are; where there is none, nobody asks. They end when the workload does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ManagementRates {
    /// Share of the tenants that are there at the start.
    pub present_at_start: f64,
    /// Models created, a second.
    pub create_per_s: f64,
    /// Models updated, a second.
    pub update_per_s: f64,
    /// Models deleted, a second.
    pub delete_per_s: f64,
    /// Domains' tables updated, a second.
    pub update_domain_per_s: f64,
    /// How many domains there are.
    pub domains: u32,
}

/// Management requests of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagementTrace {
    /// A trace of our own with a column `change`.
    pub path: PathBuf,
    /// How many times faster than recorded.
    pub speed: f64,
    /// Which instant of the recording becomes the start of the run; who was not there by then is absent at first.
    pub from: Duration,
    /// How long the part that is replayed is, in the recording's own time; to the end where it is absent.
    pub length: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_back() {
        for (index, name) in Change::names().enumerate() {
            let change = Change::named(name.as_bytes(), 7).unwrap();
            assert_eq!(
                (change.name(), change.of(), change.number()),
                (name, 7, index as u64 + 1)
            );
            assert_eq!(Change::numbered(change.number(), 7), Some(change));
        }
        assert_eq!(Change::named(b"delete-domain", 0), None);
        assert_eq!([0, 8].map(|number| Change::numbered(number, 0)), [None, None]);
    }
}
