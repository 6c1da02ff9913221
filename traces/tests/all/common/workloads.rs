//! Workloads to be looked at as a whole.

use tenantry_traces::spec::{ArrivalsSpec, Cut, LengthSpec, LengthsSpec, PartSpec, Stop, WorkloadSpec};
use tenantry_traces::{Duration, Entry, Request, TraceError, Workload, build};

/// A thousand requests of a hundred tenants.
pub fn spec(arrivals: ArrivalsSpec) -> WorkloadSpec {
    let lengths = LengthsSpec::Independent {
        input: LengthSpec::Normal {
            mean: 100.0,
            sd: 30.0,
            min: 1,
            max: 512,
        },
        output: LengthSpec::Fixed(0),
    };
    WorkloadSpec {
        class_shares: vec![3.0, 1.0],
        stop: Stop {
            requests: Some(1000),
            after: None,
        },
        ..WorkloadSpec::new(7, 100, arrivals, lengths)
    }
}

/// All of them.
pub fn requests(spec: &WorkloadSpec) -> Vec<Request> {
    let mut workload = build(spec).unwrap();
    drain(&mut *workload)
}

/// All that are left.
pub fn drain(workload: &mut dyn Workload) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(at) = workload.peek().unwrap() {
        let Some(Entry::Request(request)) = workload.next().unwrap() else {
            panic!("what was announced must come")
        };
        assert_eq!(request.arrival, at);
        requests.push(request);
    }
    assert_eq!(workload.next().unwrap(), None);
    requests
}

/// Why it is refused.
pub fn message(spec: &WorkloadSpec) -> String {
    match build(spec) {
        Err(error @ TraceError::Spec { .. }) => error.to_string(),
        Err(error) => panic!("must be an error of the specification, got {error}"),
        Ok(_) => panic!("must be refused"),
    }
}

/// A part of `arrivals`.
pub fn part(from_s: u64, length_s: Option<u64>, repeat: bool, delay_s: u64, arrivals: ArrivalsSpec) -> ArrivalsSpec {
    ArrivalsSpec::Part(PartSpec {
        cut: Cut {
            from: Duration::from_secs(from_s),
            length: length_s.map(Duration::from_secs),
            repeat,
        },
        delay: Duration::from_secs(delay_s),
        arrivals: Box::new(arrivals),
    })
}

pub fn mean(counts: &[u32]) -> f64 {
    counts.iter().map(|&n| f64::from(n)).sum::<f64>() / counts.len() as f64
}
