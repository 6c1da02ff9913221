//! Service classes with targets of their own, where one target judges all requests together.

use tenantry_reports::classes::ClassSummary;
use tenantry_reports::{Run, RunSummary, human};
use tenantry_scenarios::RunSpec;

use super::once;

/// A sentence on each system whose service classes have other targets than the scenario's, by which all requests are
/// judged together.
pub(super) fn class_target_caveats(runs: &[Run]) -> Vec<String> {
    let of = |run: &Run| {
        let RunSummary {
            system, slo, classes, ..
        } = &run.summary;
        let judged_by = slo.as_ref()?;
        let is_own = |class: &ClassSummary| class.target_ms.is_some() && class.target_ms != judged_by.latency_ms;
        let own = classes.iter().filter(|(_, class)| is_own(class));
        let own: Vec<String> = own.map(|(name, class)| own_target(name, class.target_ms.unwrap_or_default())).collect();
        (!own.is_empty()).then(|| {
            format!(
                "{system}: all requests together are judged by the scenario's target, {} (SLO, the page's answer, \
                 plans), also those of classes with targets of their own ({}); the table of service classes judges \
                 these.",
                judged_by.in_words(),
                own.join(", ")
            )
        })
    };
    once(&runs.iter().filter_map(of).collect::<Vec<_>>())
}

/// The same of a plan's answer, of which no request's class was looked at.
pub fn planned_class_target_caveat(answer: &RunSpec) -> Option<String> {
    let target = answer.slo?.target;
    let classes = answer.tenant_groups.classes.iter().zip(&answer.class_targets);
    let own = classes.filter_map(|(name, own)| {
        let latency = own.as_ref()?.latency?;
        (target.latency != Some(latency)).then(|| own_target(name, latency.as_millis_f64()))
    });
    let own: Vec<String> = own.collect();
    let limits = [target.latency, target.first_token, target.per_token];
    (!own.is_empty()).then(|| {
        format!(
            "{}: the plan judges all requests together by the scenario's target, {}, also those of classes with \
             targets of their own ({}); a simulation of the answer judges these, in its table of service classes.",
            answer.system.name,
            human::limits(limits.map(|limit| limit.map(|limit| limit.as_millis_f64()))),
            own.join(", ")
        )
    })
}

/// `interactive 150 ms`.
fn own_target(class: &str, target_ms: f64) -> String {
    format!("{class} {}", human::milliseconds(target_ms))
}

#[cfg(test)]
mod tests {
    use tenantry_scenarios::Scenario;

    use super::*;

    #[test]
    fn a_plan_says_whose_targets_it_does_not_look_at() {
        let told = |scenario: &str, set: &[&str]| {
            let set: Vec<String> = set.iter().map(|set| set.to_string()).collect();
            let scenario = Scenario::load(scenario, &set).unwrap_or_else(|errors| panic!("{errors}"));
            planned_class_target_caveat(&scenario.runs()[0])
        };
        // Streams of runtimes have a target each, and the first of them the scenario's.
        let said = told("arlo/streams", &[]).unwrap();
        assert!(
            said.starts_with(
                "arlo: the plan judges all requests together by the scenario's target, 150\u{a0}ms, also those of \
                 classes with targets of their own (large 450\u{a0}ms); "
            ),
            "{said}"
        );
        let said = told("arlo/streams", &["slo.latency=450ms"]).unwrap();
        assert!(said.contains("(base 150"), "{said}");
        assert_eq!(told("quickstart", &[]), None);
    }
}
