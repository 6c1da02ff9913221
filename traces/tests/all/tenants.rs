//! When tenants are awake, and the groups that they fall into.

use std::io::Write;

use crate::common::workloads::{message, requests};
use proptest::prelude::*;
use tenantry_traces::generate::TenantGroups;
use tenantry_traces::spec::{
    ArrivalsSpec, Cut, DiurnalSpec, GroupsSpec, LengthSpec, LengthsSpec, LifetimesSpec, OnOffSpec, Phases,
    PopularitySpec, PresenceSpec, Stop, TraceSpec, WorkloadSpec,
};
use tenantry_traces::{Duration, Request, Time, build};

const HOUR: Duration = Duration::from_secs(3600);

fn spec(presence: PresenceSpec) -> WorkloadSpec {
    let lengths = LengthsSpec::Independent {
        input: LengthSpec::Fixed(1),
        output: LengthSpec::Fixed(0),
    };
    WorkloadSpec {
        presence,
        stop: Stop {
            requests: None,
            after: Some(Time(4 * HOUR.0)),
        },
        ..WorkloadSpec::new(7, 200, ArrivalsSpec::Poisson { rate_per_s: 50.0 }, lengths)
    }
}

const SLEEPY: OnOffSpec = OnOffSpec {
    mean_on: Duration::from_secs(60),
    mean_off: Duration::from_secs(540),
};

#[test]
fn sleepers_leave_the_rate_and_take_turns() {
    let presence = PresenceSpec {
        on_off: Some(SLEEPY),
        ..PresenceSpec::default()
    };
    let requests = requests(&spec(presence));
    let expected = 50.0 * 4.0 * 3600.0;
    assert!(
        (requests.len() as f64 / expected - 1.0).abs() < 0.05,
        "{}",
        requests.len()
    );
    // In any second about a tenth of the tenants is awake, and over the hours nearly all were.
    let tenants_of = |from_s: u64, until_s: u64| {
        let within = |request: &&Request| (from_s..until_s).contains(&(request.arrival.0 / 1_000_000_000));
        let mut tenants: Vec<u32> = requests.iter().filter(within).map(|request| request.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        tenants.len()
    };
    let in_ten_seconds: usize = (0..100).map(|i| tenants_of(100 * i, 100 * i + 10)).sum();
    assert!(
        (15.0..30.0).contains(&(in_ten_seconds as f64 / 100.0)),
        "{in_ten_seconds}"
    );
    assert_eq!(tenants_of(0, 4 * 3600), 200);
    // A tenant's gaps are short within a turn and long between two: far burstier than Poisson.
    let of_one: Vec<f64> = requests.iter().filter(|r| r.tenant == 3).map(|r| r.arrival.as_secs_f64()).collect();
    let gaps: Vec<f64> = of_one.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!(variance.sqrt() / mean > 3.0, "{}", variance.sqrt() / mean);
}

#[test]
fn a_day_has_a_peak_and_a_trough() {
    let day = |phases| PresenceSpec {
        diurnal: Some(DiurnalSpec {
            period: HOUR,
            trough: 0.2,
            phases,
        }),
        ..PresenceSpec::default()
    };
    let by_quarter = |presence| {
        let mut counts = [0.0f64; 4];
        let requests = requests(&spec(presence));
        for request in &requests {
            // Quarters about the trough, the rise, the peak and the fall.
            let minute = request.arrival.0 / 60_000_000_000;
            counts[((minute + 7) % 60 / 15) as usize] += 1.0;
        }
        (counts.map(|count| count / requests.len() as f64), requests.len() as f64)
    };
    let (together, count) = by_quarter(day(Phases::Together));
    assert!(
        (count / 720_000.0 - 1.0).abs() < 0.02,
        "the rate's mean is kept: {count}"
    );
    assert!(together[0] < 0.12 && together[2] > 0.38, "{together:?}");
    let (spread, _) = by_quarter(day(Phases::Spread));
    assert!(spread.iter().all(|share| (share - 0.25).abs() < 0.03), "{spread:?}");
}

#[test]
fn tenants_appear_and_go() {
    let presence = PresenceSpec {
        lifetimes: Some(LifetimesSpec {
            present_at_start: 0.25,
            appear_within: HOUR,
            mean_stay: Some(Duration::from_secs(600)),
        }),
        ..PresenceSpec::default()
    };
    let endless = WorkloadSpec {
        stop: Stop {
            requests: Some(u64::MAX),
            after: None,
        },
        ..spec(presence)
    };
    let requests = requests(&endless);
    assert!(!requests.is_empty(), "and it ends, since all have gone");
    let mut first = vec![None; 200];
    for request in &requests {
        first[request.tenant as usize].get_or_insert(request.arrival);
    }
    // A tenant's first request comes within some seconds of its appearance, once every four seconds as it asks.
    let at_start = first.iter().flatten().filter(|at| at.0 < 60_000_000_000).count();
    assert!((35..75).contains(&at_start), "{at_start}");
    let later = first.iter().flatten().filter(|at| at.0 > HOUR.0 / 2).count();
    assert!((50..100).contains(&later), "{later}");
    let stay = PresenceSpec {
        lifetimes: Some(LifetimesSpec {
            present_at_start: 1.0,
            appear_within: Duration::ZERO,
            mean_stay: None,
        }),
        ..PresenceSpec::default()
    };
    assert_eq!(
        self::requests(&spec(stay)),
        self::requests(&spec(PresenceSpec::default()))
    );
}

#[test]
fn groups_are_functions_of_the_tenant() {
    let grouped = WorkloadSpec {
        class_shares: vec![9.0, 1.0],
        management: Default::default(),
        cancellations: None,
        groups: GroupsSpec {
            kinds: vec![1.0, 1.0],
            domains: vec![1.0; 10],
        },
        ..spec(PresenceSpec::default())
    };
    let groups = TenantGroups::new(&grouped).unwrap();
    let share =
        |is: &dyn Fn(u32) -> bool| f64::from((0..20_000).filter(|&tenant| is(tenant)).count() as u32) / 20_000.0;
    assert!((share(&|tenant| groups.class_of(tenant) == Some(1)) - 0.1).abs() < 0.01);
    assert!((share(&|tenant| groups.kind_of(tenant) == 1) - 0.5).abs() < 0.02);
    assert!((share(&|tenant| groups.domains().of(tenant) == 9) - 0.1).abs() < 0.01);
    assert_eq!(groups.domains().count(), 10);
    let unsaid = TenantGroups::new(&spec(PresenceSpec::default())).unwrap();
    assert_eq!((unsaid.domains().count(), unsaid.domains().of(19)), (8, 3), "in turns");
    // One grouping says nothing of another.
    assert!((share(&|tenant| groups.kind_of(tenant) == 1 && groups.domains().of(tenant) < 5) - 0.25).abs() < 0.02);
    for request in requests(&grouped).iter().take(1000) {
        assert_eq!(Some(request.class), groups.class_of(request.tenant));
    }
    let bad = WorkloadSpec {
        groups: GroupsSpec {
            kinds: vec![0.0],
            domains: vec![],
        },
        ..grouped
    };
    assert_eq!(
        message(&bad),
        "tenants.kinds: must be shares of which one is above 0, and whose sum is a number, got [0.0]"
    );
    let mut huge = bad.clone();
    huge.groups.kinds = vec![1e308, 1e308];
    assert!(message(&huge).contains("whose sum is a number, got [1e308, 1e308]"));
    huge.groups.kinds = vec![1.0];
    huge.popularity = PopularitySpec::Weights(vec![f64::MAX; huge.tenants as usize]);
    assert!(
        message(&huge).contains("must be weights whose sum is a number, got inf"),
        "{}",
        message(&huge)
    );
}

#[test]
fn presence_that_cannot_be_is_refused_with_its_field() {
    let zero = PresenceSpec {
        on_off: Some(OnOffSpec {
            mean_on: Duration::ZERO,
            ..SLEEPY
        }),
        ..PresenceSpec::default()
    };
    assert_eq!(
        message(&spec(zero)),
        "tenants.presence.on_off.mean_on: must be a finite number above 0, got 0"
    );
    let rare = PresenceSpec {
        on_off: Some(OnOffSpec {
            mean_on: Duration::from_secs(1),
            mean_off: Duration::from_secs(86_400),
        }),
        ..PresenceSpec::default()
    };
    assert_eq!(
        message(&spec(rare)),
        "tenants.presence.on_off.mean_on: must be at least 1/10000 of mean_off, since all that sleeping tenants would \
         ask is drawn and left out, got 1/86400 of it"
    );
    let closed = WorkloadSpec {
        arrivals: ArrivalsSpec::ClosedLoop {
            clients: 1,
            think_time: Duration::ZERO,
        },
        ..spec(PresenceSpec {
            on_off: Some(SLEEPY),
            ..PresenceSpec::default()
        })
    };
    assert!(message(&closed).starts_with("tenants.presence: must be absent in a closed loop"));
}

/// A recording's classes are its own, whatever is drawn for tenants; one beyond those of the workload is none of them.
#[test]
fn a_recorded_class_is_kept() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let rows = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n0,0,1,9,0,1\n1,1,2,9,0,0\n2,0,3,9,0,0\n3,1,4,9,0,2\n";
    file.write_all(rows.as_bytes()).unwrap();
    let of = |seed, class_shares| WorkloadSpec {
        seed,
        class_shares,
        popularity: PopularitySpec::OfArrivals,
        arrivals: ArrivalsSpec::Trace(TraceSpec {
            path: file.path().to_path_buf(),
            speed: 1.0,
            skip_bad_lines: false,
            cut: Cut::default(),
        }),
        lengths: LengthsSpec::OfArrivals,
        ..spec(PresenceSpec::default())
    };
    for seed in 0..4 {
        for shares in [vec![1.0; 3], Vec::new()] {
            let classes: Vec<u16> = requests(&of(seed, shares)).iter().map(|request| request.class).collect();
            assert_eq!(classes, [1, 0, 0, 2], "seed {seed}");
        }
    }
    let mut two = build(&of(1, vec![1.0; 2])).unwrap();
    let error = (0..4).find_map(|_| two.next().err()).unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "{}:5: class: must be 0 to 1, since tenants.classes are 2, got 2",
            file.path().display()
        )
    );
}

fn presences() -> impl Strategy<Value = PresenceSpec> {
    let seconds = |range: std::ops::Range<u64>| range.prop_map(Duration::from_secs);
    let on_off = (seconds(1..60), seconds(1..600)).prop_map(|(mean_on, mean_off)| OnOffSpec { mean_on, mean_off });
    let phases = prop_oneof![Just(Phases::Together), Just(Phases::Spread)];
    let diurnal = (seconds(10..4000), 0.0f64..=1.0, phases).prop_map(|(period, trough, phases)| DiurnalSpec {
        period,
        trough,
        phases,
    });
    let lifetimes = (0.0f64..=1.0, seconds(1..100), proptest::option::of(seconds(1..1000))).prop_map(
        |(present_at_start, appear_within, mean_stay)| LifetimesSpec {
            present_at_start,
            appear_within,
            mean_stay,
        },
    );
    (
        proptest::option::of(on_off),
        proptest::option::of(diurnal),
        proptest::option::of(lifetimes),
    )
        .prop_map(|(on_off, diurnal, lifetimes)| PresenceSpec {
            on_off,
            diurnal,
            lifetimes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn laws_hold_whoever_is_awake(presence in presences(), seed: u64) {
        let spec = WorkloadSpec {
            seed,
            stop: Stop { requests: Some(500), after: Some(Time(600_000_000_000)) },
            ..spec(presence)
        };
        let requests = requests(&spec);
        prop_assert!(requests.iter().zip(0..).all(|(request, ticket)| request.ticket == ticket));
        prop_assert!(requests.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival));
        let elsewhere = {
            let spec = spec.clone();
            std::thread::spawn(move || self::requests(&spec)).join().unwrap()
        };
        prop_assert_eq!(&requests, &elsewhere);
        // A ticket's lengths and a tenant's group do not depend on who sleeps.
        let groups = TenantGroups::new(&spec).unwrap();
        prop_assert!(requests.iter().all(|request| groups.class_of(request.tenant).unwrap_or(0) == request.class));
    }
}
