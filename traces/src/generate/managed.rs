//! Requests, and among them management requests: both in order of time, and at one instant those that change something
//! first.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;

use crate::draw::{Draws, Purpose, Stream};
use crate::error::TraceError;
use crate::management::{Action, Change, ManageRequest, ManagementRates, ManagementSpec};
use crate::read::Changes as Recorded;
use crate::request::{Entry, Ticket};
use crate::spec::{ArrivalsSpec, Stop, WorkloadSpec};
use crate::time::{Duration, Time};
use crate::workload::Workload;

/// Management requests in order of time.
pub(super) enum Changes {
    Listed(VecDeque<ManageRequest>),
    Drawn(Box<Drawn>),
    Recorded(Box<Recorded>),
}

impl Changes {
    /// Those of a workload, if it has any.
    pub fn new(spec: &WorkloadSpec) -> Result<Option<Changes>, TraceError> {
        Ok(match &spec.management {
            ManagementSpec::None => None,
            ManagementSpec::Listed(requests) => Some(Changes::Listed(with_absent(requests))),
            ManagementSpec::Rates(rates) => {
                let closed = matches!(spec.arrivals, ArrivalsSpec::ClosedLoop { .. });
                if closed && spec.stop.after.is_none() {
                    let must_be =
                        "given where clients wait for their answers, so that it is known when management ends";
                    return Err(TraceError::spec("workload.stop.after", must_be, "nothing"));
                }
                let drawn = Drawn::new(spec.seed, spec.tenants, rates, spec.stop.end())?;
                Some(Changes::Drawn(Box::new(drawn)))
            }
            ManagementSpec::Trace(trace) => {
                if repeats(&spec.arrivals, &trace.path) {
                    let must_be = "another file than that of arrivals which repeat: changes are replayed once, and who \
                                   was there at first would not be so in the next round";
                    let field = "workload.management.trace.path";
                    return Err(TraceError::spec(field, must_be, trace.path.display()));
                }
                Some(Changes::Recorded(Box::new(Recorded::open(trace)?)))
            }
        })
    }

    fn next(&mut self) -> Result<Option<ManageRequest>, TraceError> {
        match self {
            Changes::Listed(requests) => Ok(requests.pop_front()),
            Changes::Drawn(drawn) => Ok(drawn.next()),
            Changes::Recorded(recorded) => recorded.next().transpose(),
        }
    }
}

/// Whether `arrivals` replay the recording at `path` again and again.
fn repeats(arrivals: &ArrivalsSpec, path: &Path) -> bool {
    match arrivals {
        ArrivalsSpec::Trace(trace) => trace.cut.repeat && trace.path == path,
        ArrivalsSpec::Superpose(parts) => parts.iter().any(|part| repeats(part, path)),
        ArrivalsSpec::Scaled { arrivals, .. } => repeats(arrivals, path),
        ArrivalsSpec::Part(part) if part.cut.repeat => {
            let is_it = |leaf: &&ArrivalsSpec| matches!(leaf, ArrivalsSpec::Trace(trace) if trace.path == path);
            part.arrivals.leaves().iter().any(is_it)
        }
        ArrivalsSpec::Part(part) => repeats(&part.arrivals, path),
        _ => false,
    }
}

/// The requests in order of time, after those that say who is absent until created.
fn with_absent(requests: &[ManageRequest]) -> VecDeque<ManageRequest> {
    let mut requests = requests.to_vec();
    requests.sort_by_key(|request| request.at);
    let mut seen = BTreeSet::new();
    let first = |request: &&ManageRequest| seen.insert(request.change.subject);
    let created = requests.iter().filter(first).filter(|request| request.change.action == Action::Create);
    let absent = |request: &ManageRequest| ManageRequest {
        at: Time::ZERO,
        change: Change {
            action: Action::Absent,
            ..request.change
        },
    };
    let mut all: VecDeque<ManageRequest> = created.map(absent).collect();
    all.extend(requests);
    all
}

/// Management requests at random: one Poisson process, whose points are of each kind in proportion to its rate.
pub(super) struct Drawn {
    stream: Stream,
    rates: ManagementRates,
    /// Nothing is looked for at this time or later.
    end: Time,
    at: Time,
    /// Tenants that are not there yet to be told of, when the run begins.
    to_tell: u32,
    /// All tenants, those that are there first.
    tenants: Vec<u32>,
    there: usize,
}

impl Drawn {
    fn new(seed: u64, tenants: u32, rates: &ManagementRates, end: Time) -> Result<Drawn, TraceError> {
        let given = [
            ("create", rates.create_per_s),
            ("update", rates.update_per_s),
            ("delete", rates.delete_per_s),
            ("update_domain", rates.update_domain_per_s),
        ];
        for (name, per_s) in given {
            if !(per_s.is_finite() && per_s >= 0.0) {
                let field = format!("workload.management.rates.{name}");
                return Err(TraceError::spec(&field, "0 or above", per_s));
            }
        }
        if !(0.0..=1.0).contains(&rates.present_at_start) {
            let field = "workload.management.rates.present_at_start";
            return Err(TraceError::spec(field, "0 to 1", rates.present_at_start));
        }
        let draws = Draws::new(seed, Purpose::Management);
        // Who is there is a property of the tenant, so that more tenants leave the others as they were.
        let is_there = |tenant: &u32| draws.part(1).about((*tenant).into()).unit() < rates.present_at_start;
        let (mut all, absent): (Vec<u32>, Vec<u32>) = (0..tenants).partition(is_there);
        let there = all.len();
        all.extend(&absent);
        Ok(Drawn {
            stream: draws.about(0),
            rates: *rates,
            end,
            at: Time::ZERO,
            to_tell: absent.len() as u32,
            tenants: all,
            there,
        })
    }

    fn next(&mut self) -> Option<ManageRequest> {
        if self.to_tell > 0 {
            let tenant = self.tenants[self.tenants.len() - self.to_tell as usize];
            self.to_tell -= 1;
            return Some(ManageRequest {
                at: Time::ZERO,
                change: Change::tenant(tenant, Action::Absent),
            });
        }
        let rates = &self.rates;
        let kinds = [
            rates.create_per_s,
            rates.update_per_s,
            rates.delete_per_s,
            rates.update_domain_per_s,
        ];
        let per_s: f64 = kinds.iter().sum();
        let possible = |there: usize| {
            let (absent, domains) = (self.tenants.len() - there, self.rates.domains);
            kinds[0] > 0.0 && absent > 0 || kinds[1] + kinds[2] > 0.0 && there > 0 || kinds[3] > 0.0 && domains > 0
        };
        // Where nobody can be asked of, nobody ever will be.
        if !possible(self.there) {
            return None;
        }
        loop {
            let gap = Duration::from_secs_f64(self.stream.exponential() / per_s)?;
            self.at = Time(self.at.0.checked_add(gap.0)?);
            if self.at >= self.end {
                return None;
            }
            let mut point = self.stream.unit() * per_s;
            let kind = kinds.iter().position(|rate| {
                point -= rate;
                point < 0.0
            });
            if let Some(change) = self.change(kind.unwrap_or(kinds.len() - 1)) {
                return Some(ManageRequest { at: self.at, change });
            }
        }
    }

    /// Of a random tenant or domain of which it can be asked.
    fn change(&mut self, kind: usize) -> Option<Change> {
        let below = |stream: &mut Stream, count: usize| (count > 0).then(|| stream.below(count as u64) as usize);
        let Drawn {
            stream, tenants, there, ..
        } = self;
        Some(match kind {
            0 => {
                let absent = *there + below(stream, tenants.len() - *there)?;
                tenants.swap(*there, absent);
                *there += 1;
                Change::tenant(tenants[*there - 1], Action::Create)
            }
            1 => Change::tenant(tenants[below(stream, *there)?], Action::Update),
            2 => {
                let gone = below(stream, *there)?;
                *there -= 1;
                tenants.swap(gone, *there);
                Change::tenant(tenants[*there], Action::Delete)
            }
            _ => Change::domain(below(stream, self.rates.domains as usize)? as u32, Action::Update),
        })
    }
}

/// A workload with management requests, which stop where it does.
pub(super) struct Managed<W> {
    requests: W,
    changes: Changes,
    stop: Stop,
    /// How many requests there were so far.
    asked: u64,
    ahead: Option<ManageRequest>,
    changes_end: bool,
    /// Whether they are over when the requests are, however many these were.
    end_with_requests: bool,
}

impl<W: Workload> Managed<W> {
    pub fn new(requests: W, changes: Changes, stop: Stop) -> Managed<W> {
        let end_with_requests = matches!(changes, Changes::Drawn(_)) && stop.after.is_none();
        Managed {
            requests,
            changes,
            stop,
            asked: 0,
            ahead: None,
            changes_end: false,
            end_with_requests,
        }
    }

    /// When the next of both are due.
    fn due(&mut self) -> Result<(Option<Time>, Option<Time>), TraceError> {
        let request = self.requests.peek()?;
        // Clients of a closed loop may have no request now and one later: only their number says that they are over.
        let asked_all = self.stop.requests.is_some_and(|most| self.asked >= most);
        if asked_all || self.end_with_requests && request.is_none() {
            return Ok((None, None));
        }
        if self.ahead.is_none() && !self.changes_end {
            let end = self.stop.end();
            self.ahead = self.changes.next()?.filter(|change| change.at < end);
            self.changes_end = self.ahead.is_none();
        }
        Ok((request, self.ahead.map(|change| change.at)))
    }
}

impl<W: Workload> Workload for Managed<W> {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        let (request, change) = self.due()?;
        Ok(match (request, change) {
            (Some(request), Some(change)) => Some(request.min(change)),
            (request, change) => request.or(change),
        })
    }

    fn peek_request(&mut self) -> Result<Option<Time>, TraceError> {
        self.requests.peek_request()
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        let (request, change) = self.due()?;
        match change {
            Some(at) if request.is_none_or(|request| at <= request) => Ok(self.ahead.take().map(Entry::Manage)),
            _ => {
                let entry = self.requests.next()?;
                self.asked += u64::from(entry.is_some());
                Ok(entry)
            }
        }
    }

    fn finished(&mut self, now: Time, ticket: Ticket) {
        self.requests.finished(now, ticket);
    }

    fn manages(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::management::Subject;

    fn rates() -> ManagementRates {
        ManagementRates {
            present_at_start: 0.5,
            create_per_s: 30.0,
            update_per_s: 40.0,
            delete_per_s: 20.0,
            update_domain_per_s: 10.0,
            domains: 8,
        }
    }

    fn drawn(rates: &ManagementRates, secs: u64) -> Vec<ManageRequest> {
        let mut drawn = Drawn::new(7, 10_000, rates, Time(secs * 1_000_000_000)).unwrap();
        std::iter::from_fn(|| drawn.next()).collect()
    }

    /// Each kind comes as often as its rate says, and only of those of which it can be asked.
    #[test]
    fn what_is_drawn_can_be_asked() {
        let all = drawn(&rates(), 100);
        let mut there = vec![true; 10_000];
        let mut counts = std::collections::BTreeMap::new();
        for request in &all {
            *counts.entry(request.change.name()).or_insert(0) += 1;
            let Subject::Tenant(tenant) = request.change.subject else {
                continue;
            };
            let there = &mut there[tenant as usize];
            assert_eq!(*there, request.change.action != Action::Create, "{request:?}");
            *there = matches!(request.change.action, Action::Create | Action::Update);
        }
        for (name, expected) in [
            ("absent", 5_000),
            ("create", 3_000),
            ("update", 4_000),
            ("delete", 2_000),
            ("update-domain", 1_000),
        ] {
            let got: i32 = counts[name];
            assert!(
                (got - expected).abs() < 5 * f64::from(expected).sqrt() as i32,
                "{name}: {got}"
            );
        }
        assert!(all.is_sorted_by_key(|request| request.at));
    }

    /// Where all are gone, nobody is deleted, and time goes on.
    #[test]
    fn nobody_is_deleted_twice() {
        let rates = ManagementRates {
            present_at_start: 0.001,
            create_per_s: 0.0,
            ..rates()
        };
        let deleted = drawn(&rates, 1_000);
        let deleted = deleted.iter().filter(|request| request.change.action == Action::Delete);
        let mut tenants: Vec<u32> = deleted.map(|request| request.change.of()).collect();
        let count = tenants.len();
        tenants.sort_unstable();
        tenants.dedup();
        assert_eq!(tenants.len(), count);
    }

    #[test]
    fn who_is_first_created_is_absent_until_then() {
        let at = |ms: u64, change| ManageRequest {
            at: Time(ms * 1_000_000),
            change,
        };
        let listed = with_absent(&[
            at(9, Change::tenant(3, Action::Create)),
            at(2, Change::tenant(4, Action::Delete)),
            at(5, Change::tenant(4, Action::Create)),
            at(7, Change::domain(3, Action::Create)),
        ]);
        let names: Vec<(&str, u32)> =
            listed.iter().map(|request| (request.change.name(), request.change.of())).collect();
        let expected = [
            ("absent-domain", 3),
            ("absent", 3),
            ("delete", 4),
            ("create", 4),
            ("create-domain", 3),
            ("create", 3),
        ];
        assert_eq!(names, expected);
    }
}
