//! From the raw `workload.management:` to a [`ManagementSpec`].

use tenantry_traces::management::{ManagementRates, ManagementSpec, ManagementTrace};
use tenantry_traces::{Action, Change, ManageRequest, Time};

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;

pub(crate) fn resolve(raw: &RawScenario, problems: &mut Vec<Problem>) -> ManagementSpec {
    let Some(management) = &raw.workload.management else {
        return ManagementSpec::None;
    };
    let path = Path::default().key("workload").key("management");
    match management {
        RawManagement::Rates(rates) => ManagementSpec::Rates(ManagementRates {
            present_at_start: rates.present_at_start.fraction(),
            create_per_s: rates.create.0,
            update_per_s: rates.update.0,
            delete_per_s: rates.delete.0,
            update_domain_per_s: rates.update_domain.0,
            domains: raw.tenants.domain_count(),
        }),
        RawManagement::List(changes) => {
            let path = path.key("list");
            let mut request = |(index, change)| self::request(raw, change, &path.index(index), problems);
            ManagementSpec::Listed(changes.iter().enumerate().filter_map(&mut request).collect())
        }
        RawManagement::Trace(trace) => ManagementSpec::Trace(ManagementTrace {
            path: trace.path.clone(),
            speed: trace.speed.0,
            from: trace.from.0,
            length: trace.length.map(|length| length.0),
        }),
    }
}

fn request(raw: &RawScenario, change: &RawChangeAt, path: &Path, problems: &mut Vec<Problem>) -> Option<ManageRequest> {
    let kinds = [
        ("create", change.create, false, Action::Create),
        ("update", change.update, false, Action::Update),
        ("delete", change.delete, false, Action::Delete),
        ("create_domain", change.create_domain, true, Action::Create),
        ("update_domain", change.update_domain, true, Action::Update),
    ];
    let given: Vec<_> = kinds.iter().filter(|(_, of, ..)| of.is_some()).collect();
    let &[&(key, Some(of), domain, action)] = &given[..] else {
        let names = kinds.map(|(name, ..)| name).join(", ");
        let got: Vec<&str> = given.iter().map(|(name, ..)| *name).collect();
        let got = if got.is_empty() {
            "none".to_string()
        } else {
            got.join(" and ")
        };
        problems.push(Problem::new(path.clone(), format!("one of {names}, beside at"), got));
        return None;
    };
    let count = if domain {
        raw.tenants.domain_count()
    } else {
        raw.tenants.count.0
    };
    if of.0 >= count {
        let what = if domain { "domains" } else { "tenants" };
        problems.push(Problem::new(
            path.key(key),
            format!("below {count}, the number of {what}"),
            of.0,
        ));
    }
    Some(ManageRequest {
        at: Time(change.at.0.0),
        change: match domain {
            true => Change::domain(of.0, action),
            false => Change::tenant(of.0, action),
        },
    })
}
