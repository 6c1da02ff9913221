//! Who asks and how much, and what a specification cannot have.

use std::io::Write;

use crate::common::workloads::{mean, message, requests, spec};
use tenantry_traces::fit::twitter::{self, Regimes};
use tenantry_traces::fit::{quantiles, sharegpt};
use tenantry_traces::generate::Shares;
use tenantry_traces::spec::{
    ArrivalsSpec, JointSpec, LengthSpec, LengthsSpec, OutputBinSpec, PopularitySpec, QuantilePoint, Stop, Tweets,
    WorkloadSpec,
};
use tenantry_traces::{Request, build};

#[test]
fn lengths_and_tenants_are_drawn_from_files() {
    let mut lengths = tempfile::NamedTempFile::new().unwrap();
    lengths.write_all(b"num_prefill_tokens,num_decode_tokens\n10,1\n20,2\n").unwrap();
    let mut activity = tempfile::NamedTempFile::new().unwrap();
    activity.write_all(b"tenant,minute,invocations\n0,0,30\n1,0,5\n1,1,5\n").unwrap();
    let spec = WorkloadSpec {
        tenants: 2,
        popularity: PopularitySpec::File(activity.path().to_path_buf()),
        lengths: LengthsSpec::Resampled {
            path: lengths.path().to_path_buf(),
            skip_bad_lines: false,
            tokenizer: None,
        },
        stop: Stop {
            requests: Some(10_000),
            after: None,
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    let requests = requests(&spec);
    assert!(
        requests.iter().all(|request| request.input_tokens == 10 * request.output_tokens),
        "pairs stay together"
    );
    let share = |of: &dyn Fn(&Request) -> bool| requests.iter().filter(|request| of(request)).count() as f64 / 10_000.0;
    assert!((share(&|request| request.output_tokens == 1) - 0.5).abs() < 0.02);
    assert!((share(&|request| request.tenant == 0) - 0.75).abs() < 0.02);
}

#[test]
fn popularity_is_as_specified() {
    let counts = |popularity, tenants| {
        let spec = WorkloadSpec {
            popularity,
            tenants,
            stop: Stop {
                requests: Some(100_000),
                after: None,
            },
            ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
        };
        let mut counts = vec![0u32; tenants as usize];
        requests(&spec).iter().for_each(|request| counts[request.tenant as usize] += 1);
        counts
    };
    assert_eq!(counts(PopularitySpec::Distinct, 1000), vec![100; 1000]);
    assert_eq!(counts(PopularitySpec::Identical, 3), vec![100_000, 0, 0]);
    let sqrt = counts(PopularitySpec::UniformSqrt, 101);
    assert_eq!(
        sqrt.iter().filter(|&&n| n > 0).count(),
        11,
        "the square root of 101, rounded up"
    );
    let skewed = counts(PopularitySpec::Skewed { alpha: 1.5 }, 10_000);
    for pair in skewed[..8].windows(2) {
        assert!(
            (f64::from(pair[0]) / f64::from(pair[1]) - 1.5).abs() < 0.15,
            "{:?}",
            &skewed[..9]
        );
    }
    let zipf = counts(PopularitySpec::Zipf { exponent: 1.0 }, 1000);
    assert!(
        (f64::from(zipf[0]) / f64::from(zipf[9]) - 10.0).abs() < 1.0,
        "{} {}",
        zipf[0],
        zipf[9]
    );
}

#[test]
fn lengths_are_as_specified() {
    let inputs = |input| {
        let spec = WorkloadSpec {
            lengths: LengthsSpec::Independent {
                input,
                output: LengthSpec::Fixed(3),
            },
            stop: Stop {
                requests: Some(100_000),
                after: None,
            },
            ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
        };
        let mut inputs: Vec<u32> = requests(&spec).iter().map(|request| request.input_tokens).collect();
        inputs.sort_unstable();
        inputs
    };
    let normal = inputs(LengthSpec::Normal {
        mean: 100.0,
        sd: 20.0,
        min: 1,
        max: 512,
    });
    assert!((mean(&normal) - 100.0).abs() < 0.3);
    assert!(
        (f64::from(normal[97_725]) - 140.0).abs() <= 1.0,
        "two standard deviations up"
    );
    let cut = inputs(LengthSpec::Normal {
        mean: 100.0,
        sd: 20.0,
        min: 90,
        max: 110,
    });
    assert_eq!((cut[0], cut[99_999]), (90, 110));
    assert!(cut.iter().filter(|&&n| n == 110).count() < 6_000, "cut, not piled up");
    let arlo = LengthSpec::Twitter {
        tweets: Tweets::Arlo,
        span: 125,
    };
    let (p50, p98) = (inputs(arlo.clone())[50_000], inputs(arlo)[98_000]);
    assert!(
        (20..=22).contains(&p50) && (69..=72).contains(&p98),
        "Arlo, section 2.2: 21 and 72; got {p50} and {p98}"
    );
    let recalibrated = inputs(LengthSpec::Twitter {
        tweets: Tweets::Arlo,
        span: 512,
    });
    assert!((84..=88).contains(&recalibrated[50_000]) && recalibrated[99_999] <= 512);
    let measured = |span| {
        inputs(LengthSpec::Twitter {
            tweets: Tweets::Measured,
            span,
        })
    };
    let (own, stretched) = (measured(125), measured(512));
    assert_eq!((own[50_000], own[98_000], own[99_999]), (33, 74, 134), "as they were");
    for (tweets, rank) in [(&own, 20_000), (&own, 50_000), (&own, 90_000), (&own, 98_000)] {
        let scaled = f64::from(tweets[rank]) * 512.0 / 125.0;
        assert!((f64::from(stretched[rank]) - scaled).abs() < 5.0, "{rank}: {scaled}");
    }
    assert!((480..=512).contains(&stretched[99_999]), "{}", stretched[99_999]);
    let point = |probability, tokens| QuantilePoint { probability, tokens };
    let quantiles = inputs(LengthSpec::Quantiles(vec![
        point(0.0, 10.5),
        point(0.5, 20.5),
        point(1.0, 40.5),
    ]));
    assert_eq!((quantiles[0], quantiles[99_999]), (11, 40));
    assert!((19..=21).contains(&quantiles[50_000]));
    assert_eq!(inputs(LengthSpec::Empirical(vec![5, 5, 9]))[66_000], 5);
}

/// As at the start after a turn, as at its other end half-way, and half of each between.
#[test]
fn lengths_drift_to_another_distribution_and_back() {
    let drifting = |from, to, requests| WorkloadSpec {
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Drifting {
                from: Box::new(from),
                to: Box::new(to),
                requests,
            },
            output: LengthSpec::Fixed(0),
        },
        stop: Stop {
            requests: Some(200_000),
            after: None,
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    let fixed = drifting(LengthSpec::Fixed(100), LengthSpec::Fixed(300), 100_000);
    let inputs: Vec<u32> = requests(&fixed).iter().map(|request| request.input_tokens).collect();
    for (around, expected) in [
        (0, 100.0),
        (25_000, 200.0),
        (50_000, 300.0),
        (75_000, 200.0),
        (100_000, 100.0),
    ] {
        let window = &inputs[around..around + 1_000];
        let mean = mean(window);
        assert!((mean - expected).abs() < 12.0, "around {around}: {mean}");
    }
    assert!((mean(&inputs) - 200.0).abs() < 1.0, "whole turns have as many of each");
    assert_eq!(
        message(&drifting(LengthSpec::Fixed(1), LengthSpec::Empirical(Vec::new()), 9)),
        "workload.lengths.input.drifting.to.empirical: must be a list of lengths, got an empty list"
    );
    assert_eq!(
        message(&drifting(LengthSpec::Fixed(1), LengthSpec::Fixed(2), 1)),
        "workload.lengths.input.drifting.requests: must be at least 2, got 1"
    );
}

/// Whether the outer mixture takes `from` and what the inner one then takes have nothing to do with each other.
#[test]
fn a_mixture_inside_of_another_has_a_coin_of_its_own() {
    const TURN: u64 = 1000;
    let drifting = |from, to| LengthSpec::Drifting {
        from: Box::new(from),
        to: Box::new(to),
        requests: TURN,
    };
    let inner = || drifting(LengthSpec::Fixed(1), LengthSpec::Fixed(2));
    let outer = || LengthSpec::Fixed(3);
    for (lengths, inner_first) in [(drifting(inner(), outer()), true), (drifting(outer(), inner()), false)] {
        let nested = WorkloadSpec {
            lengths: LengthsSpec::Independent {
                input: lengths,
                output: LengthSpec::Fixed(0),
            },
            stop: Stop {
                requests: Some(300 * TURN),
                after: None,
            },
            ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
        };
        // Where in its turn a mixture takes `to` with a chance of 0.34 to 0.65.
        let within: Vec<u32> = requests(&nested)
            .iter()
            .filter(|request| (200..300).contains(&(request.ticket % TURN)))
            .map(|request| request.input_tokens)
            .collect();
        let chance = |ticket: u64| (1.0 - (std::f64::consts::TAU * ticket as f64 / TURN as f64).cos()) / 2.0;
        let mean = |of: &dyn Fn(f64) -> f64| (200..300).map(|ticket| of(chance(ticket))).sum::<f64>() / 100.0;
        let inner_share = |chance: f64| if inner_first { 1.0 - chance } else { chance };
        for (tokens, must_be) in [
            (1, mean(&|chance| inner_share(chance) * (1.0 - chance))),
            (2, mean(&|chance| inner_share(chance) * chance)),
            (3, mean(&|chance| 1.0 - inner_share(chance))),
        ] {
            let share = within.iter().filter(|&&input| input == tokens).count() as f64 / within.len() as f64;
            assert!((share - must_be).abs() < 0.01, "{tokens}: {share}, must be {must_be}");
        }
    }
}

#[test]
fn points_of_a_distribution_go_from_share_0_to_share_1() {
    let quantiles = |points: &[(f64, f64)]| WorkloadSpec {
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Quantiles(
                points.iter().map(|&(probability, tokens)| QuantilePoint { probability, tokens }).collect(),
            ),
            output: LengthSpec::Fixed(0),
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    let field = "workload.lengths.input.quantiles";
    let must_be = "must be a list of points from share 0 to share 1, got";
    for (points, error) in [
        (&[][..], format!("{field}: {must_be} an empty list")),
        (&[(0.0, 5.0)], format!("{field}: {must_be} one point, of share 0")),
        (&[(0.0, 5.0), (0.5, 6.0)], format!("{field}: {must_be} 2 from 0 to 0.5")),
        (
            &[(0.0, 5.0), (0.5, 6.0), (0.4, 7.0), (1.0, 8.0)],
            format!("{field}[2].share: must be from the point before, 0.5, to 1, got 0.4"),
        ),
    ] {
        assert_eq!(message(&quantiles(points)), error);
    }
}

#[test]
fn classes_are_shared_out_among_tenants() {
    let shares = Shares::new("kinds", 7, 1, &[1.0, 0.0, 3.0]).unwrap();
    let mut counts = [0u32; 3];
    (0..10_000).for_each(|tenant| counts[shares.of(tenant) as usize] += 1);
    assert_eq!(counts[1], 0);
    assert!((f64::from(counts[2]) / 10_000.0 - 0.75).abs() < 0.02, "{counts:?}");
}

#[test]
fn what_cannot_be_met_is_refused_with_its_field() {
    let base = spec(ArrivalsSpec::Poisson { rate_per_s: -1.0 });
    assert_eq!(
        message(&base),
        "workload.arrivals.poisson.rate_per_s: must be a finite number above 0, got -1"
    );
    let nested = ArrivalsSpec::Superpose(vec![
        ArrivalsSpec::Constant { rate_per_s: 1.0 },
        ArrivalsSpec::Gamma {
            rate_per_s: 1.0,
            cv: 0.0,
        },
    ]);
    assert_eq!(
        message(&spec(nested)),
        "workload.arrivals.superpose[1].gamma.cv: must be a finite number above 0, got 0"
    );
    let endless = WorkloadSpec {
        stop: Stop::default(),
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    assert_eq!(
        message(&endless),
        "workload.stop: must be given, since these arrivals never end, got nothing"
    );
    let reversed = WorkloadSpec {
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Normal {
                mean: 1.0,
                sd: 1.0,
                min: 9,
                max: 3,
            },
            output: LengthSpec::Fixed(0),
        },
        ..spec(ArrivalsSpec::Constant { rate_per_s: 1.0 })
    };
    assert_eq!(
        message(&reversed),
        "workload.lengths.input.normal.max: must be 9 (`min`) to 1048576, got 3"
    );
    let mut unnamed = build(&WorkloadSpec {
        popularity: PopularitySpec::OfArrivals,
        ..spec(ArrivalsSpec::Poisson { rate_per_s: 1.0 })
    })
    .unwrap();
    assert_eq!(
        unnamed.next().unwrap_err().to_string(),
        "tenants.popularity: must be a distribution, since the arrivals bring no tenant, got `of-arrivals`"
    );
}

/// The public fits, said as a scenario says a fit of its own.
#[test]
fn fits_of_ones_own_are_the_shipped_ones_where_their_numbers_are() {
    let shipped = twitter::RATES;
    let regimes = Regimes {
        calm_s: shipped.calm_s.to_vec(),
        plateau_s: shipped.plateau_s.to_vec(),
        calm_rate: shipped.calm_rate.to_vec(),
        plateau_rate: shipped.plateau_rate.to_vec(),
        calm_memory_s: shipped.calm_memory_s,
        plateau_memory_s: shipped.plateau_memory_s,
    };
    let joint = JointSpec {
        input: quantiles::points(sharegpt::INPUT),
        output_by_input: sharegpt::OUTPUT_BY_INPUT
            .iter()
            .map(|&(longest_input, output)| OutputBinSpec {
                longest_input,
                output: quantiles::points(output),
            })
            .collect(),
    };
    let with = |arrivals, lengths| WorkloadSpec {
        lengths,
        stop: Stop {
            requests: Some(20_000),
            after: None,
        },
        ..spec(arrivals)
    };
    let own = |regimes, joint| {
        with(
            ArrivalsSpec::Regimes {
                rate_per_s: 3.0,
                regimes,
            },
            LengthsSpec::Joint(joint),
        )
    };
    let shipped = with(ArrivalsSpec::Twitter { rate_per_s: 3.0 }, LengthsSpec::ShareGpt);
    let (own_requests, shipped) = (requests(&own(regimes.clone(), joint.clone())), requests(&shipped));
    let mut cut = 0;
    for (own, shipped) in own_requests.into_iter().zip(shipped) {
        // Which pairs a recording may not have is no part of a fit of one's own.
        let output_tokens = own.output_tokens.min(8192 - own.input_tokens);
        cut += usize::from(output_tokens < own.output_tokens);
        assert_eq!(shipped, Request { output_tokens, ..own });
    }
    assert!((1..200).contains(&cut), "{cut} of 20,000");

    let mut falling = regimes.clone();
    falling.calm_rate[3].1 = 1.0;
    let mut timeless = regimes.clone();
    timeless.plateau_s = vec![(0.0, 0.0), (1.0, 0.0)];
    for (broken, field) in [(falling, "calm.rates"), (timeless, "plateau.lasts")] {
        let error = build(&own(broken, joint.clone())).err().unwrap().to_string();
        assert!(
            error.starts_with(&format!("workload.arrivals.regimes.{field}: must be")),
            "{error}"
        );
    }
    let mut unsorted = joint;
    unsorted.output_by_input.swap(0, 1);
    let error = build(&own(regimes, unsorted)).err().unwrap().to_string();
    assert!(
        error.contains("output_by_input[1].longest_input: must be above the bin before"),
        "{error}"
    );
}
