//! Systems that plan for another target than requests are judged by.

use tenantry_core::SystemSpec;
use tenantry_core::in_time::Slo;
use tenantry_reports::human;

/// A sentence where runtimes are allocated, requests given to them and cards asked for by another latency than requests
/// are judged by. Where several streams share the cards, each has the target of its class.
pub fn planned_for_another_target(system: &SystemSpec, slo: Option<Slo>) -> Option<String> {
    let [stream] = &system.pool.runtimes.as_ref()?.streams[..] else {
        return None;
    };
    let judged = slo?.target.latency?;
    let [planned_for, judged_by] =
        [stream.slo, judged].map(|latency| human::exact_milliseconds(latency.0 as f64 / 1e6));
    (stream.slo != judged).then(|| {
        format!(
            "{}: instances and cards are planned, and requests given to them, by `runtimes.slo` ({planned_for}), and \
             judged by `slo.latency` ({judged_by}): with the same in both it may do better.",
            system.name
        )
    })
}

#[cfg(test)]
mod tests {
    use tenantry_core::in_time::Target;
    use tenantry_scenarios::{Scenario, shipped_yaml};
    use tenantry_traces::Duration;

    use super::*;

    #[test]
    fn another_target_than_that_of_the_scenario_is_told() {
        let yaml = shipped_yaml("arlo/fig-6a").unwrap();
        let scenario = Scenario::from_yaml("arlo/fig-6a", yaml, &[]).unwrap();
        let told = |latency: Option<Option<Duration>>| {
            let slo = latency.map(|latency| Slo {
                target: Target {
                    latency,
                    ..Target::default()
                },
                quantile: 0.98,
            });
            planned_for_another_target(&scenario.runs()[0].system, slo)
        };
        assert_eq!(told(Some(Some(Duration::from_millis(150)))), None);
        assert_eq!(told(Some(None)), None, "a first token's target is of other systems");
        assert_eq!(told(None), None);
        let said = told(Some(Some(Duration::from_millis(50)))).unwrap();
        for (key, ms) in [("runtimes.slo", 150.0), ("slo.latency", 50.0)] {
            let by = format!("by `{key}` ({})", human::exact_milliseconds(ms));
            assert!(said.contains(&by), "{said}");
        }
    }
}
