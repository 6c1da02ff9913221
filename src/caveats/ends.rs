//! Runs that are over before the time that was asked for.

use std::ops::ControlFlow;

use tenantry_reports::{RunSummary, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::spec::{Stop, WorkloadSpec};

use crate::output::counted;

/// A run that is over before this share of its time.
const ENDS_EARLY: f64 = 0.9;

/// A sentence on a run whose last request left well before `workload.stop`, with which its figures end.
pub(super) fn early_end_caveat(spec: &RunSpec, summary: &RunSummary) -> Option<String> {
    let stop = &spec.workload.stop;
    let offered = summary.requests.offered;
    if summary.interrupted || offered == 0 || stop.requests == Some(offered) {
        return None;
    }
    let end_s = spec.warm_up.as_secs_f64() + summary.duration_s;
    let after_s = stop.after.map(|after| after.as_secs_f64());
    let silent_from = after_s.filter(|after_s| end_s < ENDS_EARLY * after_s);
    // Whichever comes first ends a run.
    let is_early = stop.requests.is_some() && after_s.is_none() || silent_from.is_some();
    let end = human::number(end_s);
    if is_early && may_end(&spec.workload) && !goes_on(&spec.workload, offered) {
        let by_requests = stop.requests.map(|requests| counted(requests, "request", "requests"));
        let asked = by_requests.into_iter().chain(after_s.map(|after_s| format!("{} s", human::number(after_s))));
        let asked = asked.collect::<Vec<_>>().join(", ");
        let figures = silent_from.map_or_else(String::new, |_| {
            format!(": throughput, busy shares and costs are over the {end} s until the last one left")
        });
        return Some(format!(
            "the arrivals are over after {}, before workload.stop is reached ({asked}){figures}.",
            counted(offered, "request", "requests")
        ));
    }
    silent_from.map(|after_s| {
        format!(
            "the last request left at {end} s, and workload.stop.after is {} s: throughput, busy shares and costs are \
             over the time until then, without the silence after it.",
            human::number(after_s)
        )
    })
}

/// Whether arrivals may be over by themselves: what goes on for ever does not, but where tenants go for good.
fn may_end(workload: &WorkloadSpec) -> bool {
    let tenants_go = workload.presence.lifetimes.is_some_and(|lives| lives.mean_stay.is_some());
    tenants_go || !workload.arrivals.is_endless()
}

/// Whether more than so many requests come where nothing stops them.
fn goes_on(workload: &WorkloadSpec, offered: u64) -> bool {
    let more = WorkloadSpec {
        stop: Stop {
            requests: Some(offered + 1),
            after: None,
        },
        ..workload.clone()
    };
    let came = tenantry_traces::build(&more).and_then(|entries| {
        let mut came = 0;
        entries.each_arrival(&mut |_| {
            came += 1;
            ControlFlow::Continue(())
        })?;
        Ok(came)
    });
    came.is_ok_and(|came| came > offered)
}
