//! Laws that all generated workloads keep, whatever their arrivals.

use std::ops::ControlFlow;

use crate::common::workloads::{part, requests, spec};
use proptest::prelude::*;
use tenantry_traces::spec::{
    ArrivalsSpec, CancellationsSpec, MmppState, OnOffSpec, PopularitySpec, PresenceSpec, RampPoint, Stop, WorkloadSpec,
};
use tenantry_traces::{Duration, Time, build};

fn arrivals() -> impl Strategy<Value = ArrivalsSpec> {
    let rate = 0.5f64..5000.0;
    let seconds = |range: std::ops::Range<u64>| range.prop_map(Duration::from_secs);
    let simple = prop_oneof![
        rate.clone().prop_map(|rate_per_s| ArrivalsSpec::Poisson { rate_per_s }),
        rate.clone().prop_map(|rate_per_s| ArrivalsSpec::Constant { rate_per_s }),
        (rate.clone(), 0.2f64..4.0).prop_map(|(rate_per_s, cv)| ArrivalsSpec::Gamma { rate_per_s, cv }),
        (rate.clone(), rate.clone(), seconds(1..20)).prop_map(|(a, b, mean_dwell)| ArrivalsSpec::Mmpp {
            states: [a, b].map(|rate_per_s| MmppState { rate_per_s, mean_dwell }).to_vec(),
        }),
        (rate.clone(), rate.clone(), 1u64..100).prop_map(|(a, b, end)| ArrivalsSpec::Ramp {
            points: [(0, a), (end, b), (2 * end, 0.0)]
                .map(|(at, rate_per_s)| RampPoint {
                    at: Time(at * 1_000_000_000),
                    rate_per_s
                })
                .to_vec(),
        }),
        rate.prop_map(|rate_per_s| ArrivalsSpec::Twitter { rate_per_s }),
        (1u32..20, seconds(0..2), seconds(0..3), 0u32..9).prop_map(|(threads, stagger, period, repeats)| {
            ArrivalsSpec::ThreadBursts {
                threads,
                stagger,
                period,
                repeats,
            }
        }),
    ];
    simple.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(ArrivalsSpec::Superpose),
            (0.1f64..10.0, inner.clone()).prop_map(|(factor, arrivals)| ArrivalsSpec::Scaled {
                factor,
                arrivals: Box::new(arrivals)
            }),
            (0u64..3, proptest::option::of(1u64..9), 0u64..3, inner)
                .prop_map(|(from_s, length_s, delay_s, arrivals)| { part(from_s, length_s, false, delay_s, arrivals) }),
        ]
    })
}

/// That so many requests, at most, come when `each_request` says, if only `each_arrival` is asked.
fn told_alike(spec: &WorkloadSpec, enough: usize) {
    let mut came = Vec::new();
    let heard = build(spec).unwrap().each_arrival(&mut |at| {
        came.push(at);
        match came.len() < enough {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    heard.unwrap();
    let mut whole = Vec::new();
    let heard = build(spec).unwrap().each_request(&mut |request| {
        whole.push(request.arrival);
        ControlFlow::Continue(())
    });
    heard.unwrap();
    whole.truncate(enough);
    assert_eq!(came, whole);
}

#[test]
fn when_requests_come_that_bring_their_tenants_is_told_alike_without_them() {
    let period = Duration::from_millis(40);
    let of_arrivals = WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::PeriodicPerTenant { period })
    };
    told_alike(&of_arrivals, 700);
    told_alike(&of_arrivals, usize::MAX);
}

proptest! {
    #[test]
    fn time_never_runs_back_and_tickets_count_up(arrivals in arrivals(), seed: u64) {
        let spec = WorkloadSpec { seed, ..spec(arrivals) };
        let requests = requests(&spec);
        prop_assert!(requests.iter().zip(0..).all(|(request, ticket)| request.ticket == ticket));
        prop_assert!(requests.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
        prop_assert!(requests.iter().all(|request| request.tenant < 100 && request.input_tokens >= 1 && request.class < 2));
    }

    #[test]
    fn a_ticket_has_the_same_draws_whatever_the_arrivals(one in arrivals(), other in arrivals(), seed: u64) {
        let [one, other] = [one, other].map(|arrivals| requests(&WorkloadSpec { seed, ..spec(arrivals) }));
        for (a, b) in one.iter().zip(&other) {
            prop_assert_eq!((a.tenant, a.input_tokens, a.class), (b.tenant, b.input_tokens, b.class));
        }
    }

    #[test]
    fn a_workload_is_the_same_however_often_and_wherever_it_is_built(arrivals in arrivals(), seed: u64) {
        let spec = WorkloadSpec { seed, ..spec(arrivals) };
        let elsewhere = {
            let spec = spec.clone();
            std::thread::spawn(move || requests(&spec))
        };
        prop_assert_eq!(requests(&spec), elsewhere.join().unwrap());
    }

    #[test]
    fn a_longer_workload_begins_as_a_shorter_one(arrivals in arrivals(), seed: u64, short in 0u64..500) {
        let long = WorkloadSpec { seed, ..spec(arrivals) };
        let short = WorkloadSpec { stop: Stop { requests: Some(short), after: None }, ..long.clone() };
        let (long, short) = (requests(&long), requests(&short));
        prop_assert_eq!(&long[..short.len()], &short[..]);
    }

    /// Whatever else decides which of them are requests, and however many somebody wants to hear of.
    #[test]
    fn when_requests_come_is_told_alike_without_them(
        arrivals in arrivals(),
        seed: u64,
        end_ms in 1u64..3000,
        sleep: bool,
        give_up: bool,
        enough in 1usize..2000,
    ) {
        let on_off = OnOffSpec { mean_on: Duration::from_millis(200), mean_off: Duration::from_millis(300) };
        let cancellations = CancellationsSpec { share: 0.5, mean_after: Duration::from_millis(50) };
        let spec = WorkloadSpec {
            seed,
            stop: Stop { requests: Some(1000), after: Some(Time(end_ms * 1_000_000)) },
            presence: PresenceSpec { on_off: sleep.then_some(on_off), ..PresenceSpec::default() },
            cancellations: give_up.then_some(cancellations),
            ..spec(arrivals)
        };
        told_alike(&spec, enough);
    }

    #[test]
    fn nothing_arrives_at_the_end_or_later(arrivals in arrivals(), seed: u64, end_ms in 0u64..3000) {
        let end = Time(end_ms * 1_000_000);
        let cut = WorkloadSpec { seed, stop: Stop { requests: None, after: Some(end) }, ..spec(arrivals) };
        let whole = WorkloadSpec { stop: Stop { requests: Some(100_000), after: None }, ..cut.clone() };
        let before_end: Vec<_> = requests(&whole).into_iter().filter(|request| request.arrival < end).collect();
        // Where the whole has more than 100 000 requests before the end, only those are compared.
        let cut = requests(&cut);
        prop_assert_eq!(&cut[..before_end.len()], &before_end[..]);
        prop_assert!(before_end.len() == 100_000 || cut.len() == before_end.len());
    }
}
