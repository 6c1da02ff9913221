//! Public recordings as workloads: what comes is what was recorded.

use std::collections::BTreeMap;

use crate::common::data;
use crate::common::workloads::requests;
use tenantry_traces::describe::dispersion;
use tenantry_traces::read::{Counts, Record, Records, activity};
use tenantry_traces::spec::{
    ActivitySpec, ArrivalsSpec, CountsSpec, Cut, LengthsSpec, Placement, PopularitySpec, Stop, TraceSpec, WorkloadSpec,
};
use tenantry_traces::{Duration, Time};

#[test]
fn tenants_are_as_active_as_they_were() {
    let Some(path) = data("azure_functions/azure_functions_2019_day_1350_sparse.csv.gz") else {
        return;
    };
    let spec = |tenants, scale| {
        let activity = ActivitySpec {
            skip_bad_lines: false,
            path: path.clone(),
            scale,
            repeat: false,
        };
        WorkloadSpec {
            popularity: PopularitySpec::OfArrivals,
            ..WorkloadSpec::new(1, tenants, ArrivalsSpec::Activity(activity), LengthsSpec::ShareGpt)
        }
    };
    let whole = requests(&spec(1_350, 1.0));
    let mut cells = BTreeMap::new();
    for request in &whole {
        *cells.entry((request.tenant, (request.arrival.0 / 60_000_000_000) as u32)).or_insert(0) += 1;
    }
    let mut recorded = BTreeMap::new();
    activity::for_each(&path, false, |cell| {
        _ = recorded.insert((cell.tenant, cell.minute), cell.requests)
    })
    .unwrap();
    assert_eq!(cells, recorded);
    assert!((requests(&spec(1_350, 0.1)).len() as f64 / 99_650.3 - 1.0).abs() < 0.01);
    // Ten thousand tenants out of these: seven times the requests, give or take which of the large ones are drawn.
    let many = requests(&spec(10_000, 1.0));
    assert!(
        (many.len() as f64 / (996_503.0 * 10_000.0 / 1_350.0) - 1.0).abs() < 0.2,
        "{}",
        many.len()
    );
}

#[test]
fn a_recorded_trace_is_replayed_as_it_was() {
    let Some(path) = data("azure_llm/AzureLLMInferenceTrace_conv.csv") else {
        return;
    };
    let trace = |speed, cut| {
        let trace = TraceSpec {
            path: path.clone(),
            speed,
            skip_bad_lines: false,
            cut,
        };
        WorkloadSpec {
            stop: Stop {
                requests: Some(40_000),
                after: None,
            },
            ..WorkloadSpec::new(1, 10, ArrivalsSpec::Trace(trace), LengthsSpec::OfArrivals)
        }
    };
    let recorded: Vec<Record> = Records::open(&path, false).unwrap().collect::<Result<_, _>>().unwrap();
    let whole = requests(&trace(1.0, Cut::default()));
    assert_eq!(whole.len(), recorded.len());
    for (request, record) in whole.iter().zip(&recorded) {
        assert_eq!(Some(request.arrival), record.arrival);
        assert_eq!(
            (Some(request.input_tokens), Some(request.output_tokens)),
            (record.input_tokens, record.output_tokens)
        );
    }
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let cut = Cut {
        from: minutes(10),
        length: Some(minutes(5)),
        repeat: true,
    };
    let repeated = requests(&trace(2.0, cut));
    assert_eq!(repeated.len(), 40_000);
    let round = repeated
        .iter()
        .take_while(|request| request.arrival < Time::ZERO + Duration::from_secs(150))
        .count();
    for (first, again) in repeated.iter().zip(&repeated[round..]) {
        assert_eq!(first.arrival + Duration::from_secs(150), again.arrival);
        assert_eq!(first.input_tokens, again.input_tokens);
    }
}

#[test]
fn counts_are_replayed_second_by_second() {
    let Some(path) = data("twitter/twitter_2021_08_clip_6h.csv") else {
        return;
    };
    let real: Vec<u32> = Counts::open(&path, false).unwrap().collect::<Result<_, _>>().unwrap();
    let replay = |placement, scale| {
        let counts = CountsSpec {
            skip_bad_lines: false,
            path: path.clone(),
            placement,
            scale,
            drop_zeros_from: Some(Duration::from_secs(60)),
            cut: Cut::default(),
        };
        let spec = WorkloadSpec::new(1, 10, ArrivalsSpec::Counts(counts), LengthsSpec::ShareGpt);
        let mut counts = vec![0u32; real.len()];
        requests(&spec)
            .iter()
            .for_each(|request| counts[(request.arrival.0 / 1_000_000_000) as usize] += 1);
        counts
    };
    assert_eq!(replay(Placement::Even, 1.0), real);
    // A Poisson process whose rate is the count adds 1 to the dispersion.
    let stable = replay(Placement::Poisson, 1.0);
    assert!((dispersion(&stable, 1).unwrap() / (dispersion(&real, 1).unwrap() + 1.0) - 1.0).abs() < 0.02);
    let bursty = Placement::Bursty {
        peak: 3.0,
        share: 0.1,
        mean_burst: Duration::from_secs(2),
    };
    let bursty = replay(bursty, 1.0);
    let total = |counts: &[u32]| counts.iter().map(|&n| f64::from(n)).sum::<f64>();
    assert!((total(&bursty) / total(&real) - 1.0).abs() < 0.03);
    assert!(dispersion(&bursty, 1).unwrap() > 1.3 * dispersion(&stable, 1).unwrap());
    assert!(
        (total(&replay(Placement::Even, 0.1)) - total(&real) * 0.1).abs() <= 1.0,
        "fractions are carried on"
    );
}
