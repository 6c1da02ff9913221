//! From the raw `workload:` and `tenants:` to a [`WorkloadSpec`].

use tenantry_traces::Time;
use tenantry_traces::spec::{
    ArrivalsSpec, CountsSpec, Cut, LengthSpec, LengthsSpec, MmppState, Placement, PopularitySpec, RampPoint, Stop,
    TraceSpec, Tweets, WorkloadSpec,
};

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;

/// The workload under the scenario's seed. What only the generators can tell (files, cross-checks of distributions) is left to
/// them: see [`crate::scenario`].
pub(crate) fn resolve(raw: &RawScenario, problems: &mut Vec<Problem>) -> WorkloadSpec {
    let arrivals = arrivals(&raw.workload.arrivals);
    let popularity = popularity(&raw.tenants.popularity);
    let lengths = lengths(&raw.workload.lengths);

    let root = Path::default();
    if popularity == PopularitySpec::OfArrivals && !can_say(&arrivals, Detail::Tenant) {
        let must = "a distribution, since these arrivals don't say which tenant asks";
        problems.push(Problem::new(root.key("tenants").key("popularity"), must, "of-arrivals"));
    }
    if popularity != PopularitySpec::OfArrivals && is_periodic(&arrivals) {
        let must = "of-arrivals, since periodic-per-tenant arrivals say which tenant asks";
        problems.push(Problem::new(
            root.key("tenants").key("popularity"),
            must,
            "a distribution",
        ));
    }
    if lengths == LengthsSpec::OfArrivals && !can_say(&arrivals, Detail::Lengths) {
        let must = "a distribution, since these arrivals don't say how long requests are";
        problems.push(Problem::new(
            root.key("workload").key("lengths").key("input"),
            must,
            "of-arrivals",
        ));
    }
    if let Some(after) = raw.workload.stop.after
        && raw.workload.warm_up.0 >= after.0
    {
        let must = format!(
            "shorter than workload.stop.after, {}, so that something is left to measure",
            after.0
        );
        problems.push(Problem::new(
            root.key("workload").key("warm_up"),
            must,
            raw.workload.warm_up.0,
        ));
    }
    WorkloadSpec {
        seed: raw.seed,
        tenants: raw.tenants.count.0,
        popularity,
        arrivals,
        lengths,
        class_shares: Vec::new(),
        stop: Stop {
            requests: raw.workload.stop.requests.map(|requests| requests.0),
            after: raw.workload.stop.after.map(|after| Time(after.0.0)),
        },
    }
}

/// What arrivals may say about a request.
#[derive(Clone, Copy, PartialEq)]
enum Detail {
    Tenant,
    Lengths,
}

fn can_say(arrivals: &ArrivalsSpec, detail: Detail) -> bool {
    match arrivals {
        ArrivalsSpec::Trace(_) => true,
        ArrivalsSpec::PeriodicPerTenant { .. } => detail == Detail::Tenant,
        ArrivalsSpec::Superpose(parts) => parts.iter().all(|part| can_say(part, detail)),
        ArrivalsSpec::Scaled { arrivals, .. } => can_say(arrivals, detail),
        _ => false,
    }
}

fn is_periodic(arrivals: &ArrivalsSpec) -> bool {
    match arrivals {
        ArrivalsSpec::PeriodicPerTenant { .. } => true,
        ArrivalsSpec::Superpose(parts) => parts.iter().any(is_periodic),
        ArrivalsSpec::Scaled { arrivals, .. } => is_periodic(arrivals),
        _ => false,
    }
}

fn arrivals(raw: &RawArrivals) -> ArrivalsSpec {
    match raw {
        RawArrivals::Poisson { rate } => ArrivalsSpec::Poisson { rate_per_s: rate.0 },
        RawArrivals::Constant { rate } => ArrivalsSpec::Constant { rate_per_s: rate.0 },
        RawArrivals::Gamma { rate, cv } => ArrivalsSpec::Gamma {
            rate_per_s: rate.0,
            cv: cv.0,
        },
        RawArrivals::Mmpp { states } => {
            let state = |state: &RawMmppState| MmppState {
                rate_per_s: state.rate.0,
                mean_dwell: state.mean_dwell.0,
            };
            ArrivalsSpec::Mmpp {
                states: states.iter().map(state).collect(),
            }
        }
        RawArrivals::Ramp { points } => {
            let point = |point: &RawRampPoint| RampPoint {
                at: Time(point.at.0.0),
                rate_per_s: point.rate.0,
            };
            ArrivalsSpec::Ramp {
                points: points.iter().map(point).collect(),
            }
        }
        RawArrivals::PeriodicPerTenant { period } => ArrivalsSpec::PeriodicPerTenant { period: period.0 },
        RawArrivals::Burst {
            threads,
            stagger,
            period,
            repeats,
        } => ArrivalsSpec::ThreadBursts {
            threads: threads.0,
            stagger: stagger.0,
            period: period.0,
            repeats: repeats.0,
        },
        RawArrivals::ClosedLoop { clients, think_time } => ArrivalsSpec::ClosedLoop {
            clients: clients.0,
            think_time: think_time.0,
        },
        RawArrivals::Counts(counts) => ArrivalsSpec::Counts(CountsSpec {
            path: counts.path.clone(),
            placement: match counts.placement {
                RawPlacement::Poisson => Placement::Poisson,
                RawPlacement::Bursty {
                    peak,
                    share,
                    mean_burst,
                } => Placement::Bursty {
                    peak: peak.0,
                    share: share.0,
                    mean_burst: mean_burst.0,
                },
                RawPlacement::Even => Placement::Even,
            },
            scale: counts.scale.0,
            drop_zeros_from: counts.drop_zeros_from.map(|period| period.0),
            cut: Cut {
                from: counts.from.0,
                length: counts.length.map(|length| length.0),
                repeat: counts.repeat,
            },
        }),
        RawArrivals::Trace(trace) => ArrivalsSpec::Trace(TraceSpec {
            path: trace.path.clone(),
            speed: trace.speed.0,
            skip_bad_lines: trace.skip_bad_lines,
            cut: Cut {
                from: trace.from.0,
                length: trace.length.map(|length| length.0),
                repeat: trace.repeat,
            },
        }),
        RawArrivals::Twitter { rate } => ArrivalsSpec::Twitter { rate_per_s: rate.0 },
        RawArrivals::Superpose(parts) => ArrivalsSpec::Superpose(parts.iter().map(arrivals).collect()),
        RawArrivals::Scaled {
            factor,
            arrivals: scaled,
        } => ArrivalsSpec::Scaled {
            factor: factor.0,
            arrivals: Box::new(arrivals(scaled)),
        },
    }
}

/// Encoders generate nothing, so that outputs are of no tokens unless a recording says otherwise.
fn lengths(raw: &RawLengths) -> LengthsSpec {
    let input = match &raw.input {
        RawLength::Fixed(tokens) => LengthSpec::Fixed(tokens.0),
        RawLength::Normal { mean, sd, min, max } => LengthSpec::Normal {
            mean: mean.0,
            sd: sd.0,
            min: min.0,
            max: max.0,
        },
        RawLength::Lognormal {
            median,
            sigma,
            min,
            max,
        } => LengthSpec::Lognormal {
            median: median.0,
            sigma: sigma.0,
            min: min.0,
            max: max.0,
        },
        RawLength::Empirical(lengths) => LengthSpec::Empirical(lengths.iter().map(|tokens| tokens.0).collect()),
        RawLength::Twitter { tweets, span } => LengthSpec::Twitter {
            tweets: match tweets {
                RawTweets::Measured => Tweets::Measured,
                RawTweets::Arlo => Tweets::Arlo,
            },
            span: span.0,
        },
        RawLength::Trace { path, skip_bad_lines } => {
            return LengthsSpec::Resampled {
                path: path.clone(),
                skip_bad_lines: *skip_bad_lines,
            };
        }
        RawLength::OfArrivals => return LengthsSpec::OfArrivals,
    };
    LengthsSpec::Independent {
        input,
        output: LengthSpec::Fixed(0),
    }
}

fn popularity(raw: &RawPopularity) -> PopularitySpec {
    match raw {
        RawPopularity::Distinct => PopularitySpec::Distinct,
        RawPopularity::Uniform => PopularitySpec::Uniform,
        RawPopularity::UniformSqrt => PopularitySpec::UniformSqrt,
        RawPopularity::Identical => PopularitySpec::Identical,
        RawPopularity::Zipf(exponent) => PopularitySpec::Zipf { exponent: exponent.0 },
        RawPopularity::Skewed(alpha) => PopularitySpec::Skewed { alpha: alpha.0 },
        RawPopularity::Weights(weights) => PopularitySpec::Weights(weights.iter().map(|weight| weight.0).collect()),
        RawPopularity::AzureFunctions => PopularitySpec::AzureFunctions,
        RawPopularity::File(path) => PopularitySpec::File(path.clone()),
        RawPopularity::OfArrivals => PopularitySpec::OfArrivals,
    }
}
