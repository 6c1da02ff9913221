//! What a generator makes, in counts and lengths.

use tenantry_traces::describe::Histogram;
use tenantry_traces::spec::WorkloadSpec;
use tenantry_traces::{Entry, TraceError, build};

/// All requests of a workload.
#[derive(Default)]
pub struct Described {
    /// Arrivals in each second.
    pub requests_per_s: Vec<u32>,
    /// Lengths of inputs.
    pub input: Histogram,
    /// Lengths of outputs.
    pub output: Histogram,
}

/// Generates a workload to its end.
pub fn described(spec: &WorkloadSpec) -> Result<Described, TraceError> {
    let mut workload = build(spec)?;
    let mut all = Described::default();
    while let Some(entry) = workload.next()? {
        let Entry::Request(request) = entry else {
            panic!("nothing is cancelled or managed here")
        };
        let second = (request.arrival.0 / 1_000_000_000) as usize;
        if all.requests_per_s.len() <= second {
            all.requests_per_s.resize(second + 1, 0);
        }
        all.requests_per_s[second] += 1;
        all.input.add(request.input_tokens);
        all.output.add(request.output_tokens);
    }
    Ok(all)
}
