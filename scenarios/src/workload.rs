//! From the raw `workload:` and `tenants:` to a [`WorkloadSpec`].

use tenantry_traces::Time;
use tenantry_traces::fit::twitter::Regimes;
use tenantry_traces::spec::{
    ActivitySpec, ArrivalsSpec, CancellationsSpec, CountsSpec, Cut, DiurnalSpec, GroupsSpec, JointSpec, LengthSpec,
    LengthsSpec, LifetimesSpec, MmppState, OnOffSpec, OutputBinSpec, PartSpec, Phases, Placement, PopularitySpec,
    PresenceSpec, QuantilePoint, RampPoint, ShapeSpec, Stop, TraceSpec, Tweets, WorkloadSpec,
};

use crate::error::Problem;
use crate::management;
use crate::path::Path;
use crate::raw::*;

/// The workload under the scenario's seed. What only the generators can tell (files, cross-checks of distributions) is
/// left to them: see [`crate::scenario`].
pub(crate) fn resolve(raw: &RawScenario, problems: &mut Vec<Problem>) -> WorkloadSpec {
    let arrivals = arrivals(&raw.workload.arrivals);
    let popularity = popularity(&raw.tenants.popularity);
    let lengths = lengths(&raw.workload.lengths, problems);

    let root = Path::default();
    if popularity == PopularitySpec::OfArrivals && !can_say(&arrivals, Detail::Tenant) {
        let must = "a distribution, since these arrivals don't say which tenant asks";
        problems.push(Problem::new(root.key("tenants").key("popularity"), must, "of-arrivals"));
    }
    if popularity != PopularitySpec::OfArrivals
        && let Some(kind) = tells_tenants(&arrivals)
    {
        let must = format!("of-arrivals, since {kind} arrivals say which tenant asks");
        problems.push(Problem::new(
            root.key("tenants").key("popularity"),
            must,
            "a distribution",
        ));
    }
    // Where no lengths are given, that is said already.
    let asked_of_arrivals = raw.workload.lengths.input.is_some() || raw.workload.lengths.joint.is_some();
    if lengths == LengthsSpec::OfArrivals && asked_of_arrivals && !can_say(&arrivals, Detail::Lengths) {
        let must = "a distribution, since these arrivals don't say how long requests are";
        problems.push(Problem::new(
            root.key("workload").key("lengths").key(asked_for(&raw.workload.lengths)),
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
        class_shares: raw.tenants.classes.shares(),
        groups: GroupsSpec {
            kinds: raw.tenants.kinds.shares(),
            domains: raw.tenants.domains.shares(),
        },
        management: management::resolve(raw, problems),
        cancellations: raw.workload.cancellations.map(|cancellations| CancellationsSpec {
            share: cancellations.share.fraction(),
            mean_after: cancellations.mean_after.0,
        }),
        presence: raw.tenants.presence.as_ref().map(presence).unwrap_or_default(),
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
    arrivals.leaves().into_iter().all(|leaf| match leaf {
        ArrivalsSpec::Trace(_) => true,
        ArrivalsSpec::PeriodicPerTenant { .. } | ArrivalsSpec::Activity(_) => detail == Detail::Tenant,
        _ => false,
    })
}

/// The kind of arrivals that are nothing without the tenants that they name.
fn tells_tenants(arrivals: &ArrivalsSpec) -> Option<&'static str> {
    arrivals.leaves().into_iter().find_map(|leaf| match leaf {
        ArrivalsSpec::PeriodicPerTenant { .. } => Some("periodic-per-tenant"),
        ArrivalsSpec::Activity(_) => Some("activity"),
        _ => None,
    })
}

pub(crate) fn arrivals(raw: &RawArrivals) -> ArrivalsSpec {
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
            skip_bad_lines: counts.skip_bad_lines,
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
        RawArrivals::Activity(activity) => ArrivalsSpec::Activity(ActivitySpec {
            path: activity.path.clone(),
            scale: activity.scale.0,
            skip_bad_lines: activity.skip_bad_lines,
            repeat: activity.repeat,
        }),
        RawArrivals::Shape(shape) => ArrivalsSpec::Shape(ShapeSpec {
            path: shape.path.clone(),
            rate_per_s: shape.rate.0,
            step: shape.step.map(|step| step.0),
            repeat: shape.repeat,
        }),
        RawArrivals::Twitter { rate } => ArrivalsSpec::Twitter { rate_per_s: rate.0 },
        RawArrivals::Regimes { rate, calm, plateau } => {
            let times = |regime: &RawRegime| -> Vec<_> {
                let points = regime.lasts.iter();
                points.map(|point| (point.share.0, point.time.0.as_secs_f64())).collect()
            };
            let rates = |regime: &RawRegime| -> Vec<_> {
                let points = regime.rates.iter();
                points.map(|point| (point.share.0, point.rate.0)).collect()
            };
            ArrivalsSpec::Regimes {
                rate_per_s: rate.0,
                regimes: Regimes {
                    calm_s: times(calm),
                    plateau_s: times(plateau),
                    calm_rate: rates(calm),
                    plateau_rate: rates(plateau),
                    calm_memory_s: calm.memory.0.as_secs_f64(),
                    plateau_memory_s: plateau.memory.0.as_secs_f64(),
                },
            }
        }
        RawArrivals::Superpose(parts) => ArrivalsSpec::Superpose(parts.iter().map(arrivals).collect()),
        RawArrivals::Scaled {
            factor,
            arrivals: scaled,
        } => ArrivalsSpec::Scaled {
            factor: factor.0,
            arrivals: Box::new(arrivals(scaled)),
        },
        RawArrivals::Cut(part) => ArrivalsSpec::Part(PartSpec {
            cut: Cut {
                from: part.from.0,
                length: part.length.map(|length| length.0),
                repeat: part.repeat,
            },
            delay: part.delay.0,
            arrivals: Box::new(arrivals(&part.arrivals)),
        }),
    }
}

/// The key of `lengths` that says how long inputs are.
fn asked_for(raw: &RawLengths) -> &'static str {
    if raw.joint.is_some() { "joint" } else { "input" }
}

fn lengths(raw: &RawLengths, problems: &mut Vec<Problem>) -> LengthsSpec {
    let path = Path::default().key("workload").key("lengths");
    if let Some(joint) = &raw.joint {
        for (key, given) in [("input", raw.input.is_some()), ("output", raw.output.is_some())] {
            if given {
                let must = "left out where joint says how long requests are";
                problems.push(Problem::new(path.key(key), must, "a length"));
            }
        }
        return match joint {
            RawJoint::Sharegpt => LengthsSpec::ShareGpt,
            RawJoint::Bins { input, output_by_input } => LengthsSpec::Joint(JointSpec {
                input: points(input),
                output_by_input: output_by_input
                    .iter()
                    .map(|bin| OutputBinSpec {
                        longest_input: bin.longest_input.0,
                        output: points(&bin.output),
                    })
                    .collect(),
            }),
            RawJoint::Trace(recorded) => resampled(recorded),
            RawJoint::OfArrivals => LengthsSpec::OfArrivals,
        };
    }
    let Some(input) = &raw.input else {
        problems.push(Problem::new(path.key("input"), "given", "nothing"));
        return LengthsSpec::OfArrivals;
    };
    match (input, &raw.output) {
        (RawLength::OfArrivals, None) => return LengthsSpec::OfArrivals,
        // The server asks its models' tokenizers, and reads no length of a request.
        (RawLength::OfItems, None) => {
            return LengthsSpec::Independent {
                input: LengthSpec::Fixed(1),
                output: LengthSpec::Fixed(0),
            };
        }
        (RawLength::Trace(recorded), None) => return resampled(recorded),
        _ => {}
    }
    let mut side = |key: &str, raw: &RawLength| {
        length(raw).unwrap_or_else(|| {
            let must = "a distribution where inputs and outputs are given one by one";
            let got = match raw {
                RawLength::OfItems => "of-items",
                _ => "of-arrivals",
            };
            problems.push(Problem::new(path.key(key), must, got));
            LengthSpec::Fixed(1)
        })
    };
    LengthsSpec::Independent {
        input: side("input", input),
        output: match &raw.output {
            Some(output) => side("output", output),
            None => LengthSpec::Fixed(0),
        },
    }
}

fn resampled(recorded: &RawRecordedLengths) -> LengthsSpec {
    LengthsSpec::Resampled {
        path: recorded.path.clone(),
        skip_bad_lines: recorded.skip_bad_lines,
        tokenizer: recorded.tokenizer.clone(),
    }
}

fn points(raw: &[RawQuantilePoint]) -> Vec<QuantilePoint> {
    let point = |point: &RawQuantilePoint| QuantilePoint {
        probability: point.share.0,
        tokens: point.tokens.0,
    };
    raw.iter().map(point).collect()
}

/// `None` where only the arrivals can say.
fn length(raw: &RawLength) -> Option<LengthSpec> {
    Some(match raw {
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
        RawLength::Quantiles(raw) => LengthSpec::Quantiles(points(raw)),
        RawLength::Sharegpt => LengthSpec::ShareGpt,
        RawLength::Twitter { tweets, span } => LengthSpec::Twitter {
            tweets: match tweets {
                RawTweets::Measured => Tweets::Measured,
                RawTweets::Arlo => Tweets::Arlo,
            },
            span: span.0,
        },
        RawLength::Drifting { from, to, requests } => LengthSpec::Drifting {
            from: Box::new(length(from)?),
            to: Box::new(length(to)?),
            requests: requests.0,
        },
        RawLength::Trace(recorded) => LengthSpec::Recorded {
            path: recorded.path.clone(),
            skip_bad_lines: recorded.skip_bad_lines,
            tokenizer: recorded.tokenizer.clone(),
        },
        RawLength::OfArrivals | RawLength::OfItems => return None,
    })
}

fn presence(raw: &RawPresence) -> PresenceSpec {
    PresenceSpec {
        on_off: raw.on_off.map(|on_off| OnOffSpec {
            mean_on: on_off.mean_on.0,
            mean_off: on_off.mean_off.0,
        }),
        diurnal: raw.diurnal.map(|diurnal| DiurnalSpec {
            period: diurnal.period.0,
            trough: diurnal.trough.0,
            phases: match diurnal.phases {
                RawPhases::Together => Phases::Together,
                RawPhases::Spread => Phases::Spread,
            },
        }),
        lifetimes: raw.lifetimes.map(|lifetimes| LifetimesSpec {
            present_at_start: lifetimes.present_at_start.0,
            appear_within: lifetimes.appear_within.0,
            mean_stay: lifetimes.mean_stay.map(|stay| stay.0),
        }),
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
