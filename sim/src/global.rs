//! The lengths of a whole workload as the solver's question: what Arlo's "global" allocation knows beforehand (section
//! 5.2.3).

use std::ops::ControlFlow;

use tenantry_core::policy::fleet::{Question, RuntimeQuestion, StreamQuestion};
use tenantry_core::spec::{RuntimesSpec, SolverSpec};
use tenantry_traces::{Time, TraceError, Workload};

/// Reads a workload to its end. What comes within less than the longest SLO has that long to be answered. Clients that
/// wait for their answers, who would ask once here, are refused where the scenario is read.
///
/// # Errors
/// When the workload cannot be read.
///
/// # Panics
/// When it is not known what the card's runtimes take.
pub fn whole_workload(
    runtimes: &RuntimesSpec,
    workload: &mut dyn Workload,
    instances: u32,
    solver: SolverSpec,
) -> Result<Question, TraceError> {
    let mut streams: Vec<StreamQuestion> = runtimes
        .streams
        .iter()
        .map(|stream| StreamQuestion {
            slo: stream.slo,
            runtimes: (stream.runtimes.iter().zip(stream.capacities()).zip(&stream.service))
                .map(|((runtime, capacity), &service)| RuntimeQuestion {
                    max_length: runtime.max_length,
                    capacity,
                    service,
                    requests: 0,
                    previous: 0,
                })
                .collect(),
        })
        .collect();
    let (mut first, mut last) = (None, Time::ZERO);
    workload.each_request(&mut |request| {
        first.get_or_insert(request.arrival);
        last = request.arrival;
        let stream = runtimes.stream_of(request.class);
        if let Some(fitting) = runtimes.streams[stream].fitting(request.input_tokens) {
            streams[stream].runtimes[fitting].requests += 1;
        }
        ControlFlow::Continue(())
    })?;
    let slo = streams.iter().map(|stream| stream.slo).max();
    Ok(Question {
        span: last.since(first.unwrap_or(last)).max(slo.unwrap_or_default()),
        streams,
        instances,
        solver,
    })
}
