//! Systems that take no part in management requests.

use tenantry_core::spec::SystemSpec;
use tenantry_reports::Run;
use tenantry_scenarios::RunSpec;
use tenantry_traces::management::ManagementSpec;

use crate::output::counted;

/// A sentence on a system that has all tenants all the time, where `workload.management` has them come and go.
pub(super) fn management_caveat(spec: &RunSpec, run: &Run) -> Option<String> {
    if spec.workload.management == ManagementSpec::None || keeps_tenancy(&spec.system) {
        return None;
    }
    let refused = match run.summary.management.as_ref() {
        None => String::new(),
        Some(changes) => format!(
            ", and none of {} applied",
            counted(changes.offered, "management request", "management requests")
        ),
    };
    Some(format!(
        "{}: workload.management has no effect on tasks, runtimes and cascades, whose tenants are there all the time: \
         requests of those that it has absent were served{refused}.",
        spec.system.name
    ))
}

/// Whether its tenants come and go: others refuse all that is asked of them as `unknown`.
fn keeps_tenancy(system: &SystemSpec) -> bool {
    system.route.is_none() && system.pool.tasks.is_none() && system.pool.runtimes.is_none()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tenantry_reports::summary::ManagementSummary;
    use tenantry_scenarios::Scenario;

    use super::super::testing;
    use super::*;

    /// What is said of a run of `arlo` or `bert-shared` in which so many changes were refused.
    fn told(preset: &str, management: &str, refused: u64) -> Option<String> {
        let text = format!(
            "name: managed\nseed: 1\ncard: cpu\nmodels: {{ backbone: bert-base }}\ntenants: {{ count: 8 }}\nworkload:\n  \
             arrivals: {{ poisson: {{ rate: 30/s }} }}\n  lengths: {{ input: {{ fixed: 32 }} }}\n  \
             stop: {{ requests: 100 }}\n{management}systems: [{{ preset: {preset}, name: mine }}]\nslo: {{ latency: 1s, \
             at: p98 }}\n"
        );
        let scenario = Scenario::from_yaml("test.yaml", &text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        let mut run = testing::run("mine", 100);
        run.summary.management = (refused > 0).then(|| ManagementSummary {
            offered: refused,
            made: BTreeMap::new(),
            refused_by: BTreeMap::from([("unknown".to_owned(), refused)]),
            failed_by: BTreeMap::new(),
            unfinished: 0,
            made_ms: None,
        });
        management_caveat(&scenario.runs()[0], &run)
    }

    #[test]
    fn who_takes_no_part_in_management_is_told_of() {
        let rates = "  management: { rates: { present_at_start: 50%, update: 1/s } }\n";
        let said = told("arlo", rates, 38).expect("nothing applied");
        assert!(said.starts_with("mine: workload.management has no effect"), "{said}");
        assert!(
            said.ends_with(", and none of 38 management requests applied."),
            "{said}"
        );
        // Nothing was asked of those who are there.
        assert!(told("arlo", rates, 0).is_some_and(|said| said.ends_with("were served.")));
        assert_eq!(told("arlo", "", 0), None);
        // It has no domains, but tenants that come and go.
        assert_eq!(told("bert-shared", rates, 38), None);
    }
}
