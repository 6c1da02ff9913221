//! Checks a [`WorkloadSpec`] and builds it.

use super::activity::ActiveTenants;
use super::arrival::{Arrival, Arrivals};
use super::closed_loop::ClosedLoop;
use super::counts::CountedRates;
use super::lengths::LengthsByTicket;
use super::merge::Merge;
use super::periodic::{PeriodicTenants, ThreadBursts};
use super::popularity::{Shares, TenantsByTicket};
use super::process::{Gaps, Process};
use super::rates::{Constant, Mmpp, Product, Ramp, bursts};
use super::recorded::Recorded;
use super::regimes::RegimeRates;
use super::requests::Requests;
use crate::draw::{Draws, Purpose};
use crate::error::{TraceError, positive};
use crate::fit::twitter;
use crate::request::Entry;
use crate::spec::{ArrivalsSpec, CountsSpec, Placement, Stop, WorkloadSpec};
use crate::time::{Duration, Time};
use crate::workload::Workload;

/// The workload that `spec` describes.
///
/// # Errors
/// [`TraceError::Spec`] with the field that cannot be met; the others where a file that it names cannot be read.
pub fn build(spec: &WorkloadSpec) -> Result<Box<dyn Workload + Send>, TraceError> {
    if spec.tenants == 0 {
        return Err(TraceError::spec("tenants.count", "at least 1", 0));
    }
    let requests = Requests {
        tenants: TenantsByTicket::new(spec.seed, spec.tenants, &spec.popularity)?,
        lengths: LengthsByTicket::new(spec.seed, &spec.lengths)?,
        classes: classes(spec)?,
    };
    if spec.stop == Stop::default() && is_endless(&spec.arrivals) {
        return Err(TraceError::spec(
            "workload.stop",
            "given, since these arrivals never end",
            "nothing",
        ));
    }
    if let ArrivalsSpec::ClosedLoop { clients, think_time } = spec.arrivals {
        if clients == 0 {
            return Err(TraceError::spec(
                "workload.arrivals.closed_loop.clients",
                "at least 1",
                0,
            ));
        }
        must_be_drawn(&requests)?;
        return Ok(Box::new(ClosedLoop::new(clients, think_time, spec.stop, requests)));
    }
    let arrivals = Builder {
        seed: spec.seed,
        tenants: spec.tenants,
    };
    let arrivals = arrivals.build("workload.arrivals", 0, &spec.arrivals, 1.0)?;
    Ok(Box::new(Open {
        arrivals,
        requests,
        tenants: spec.tenants,
        ticket: 0,
        stop: spec.stop,
        ahead: None,
    }))
}

fn classes(spec: &WorkloadSpec) -> Result<Option<Shares>, TraceError> {
    let shares = &spec.class_shares;
    if shares.len() > usize::from(u16::MAX) {
        return Err(TraceError::spec("workload.classes", "fewer than 65536", shares.len()));
    }
    // Grouping 0 is the service class.
    (!shares.is_empty())
        .then(|| Shares::new("workload.classes", spec.seed, 0, shares))
        .transpose()
}

fn must_be_drawn(requests: &Requests) -> Result<(), TraceError> {
    let got = "`of-arrivals`";
    if matches!(requests.tenants, TenantsByTicket::OfArrivals) {
        return Err(TraceError::spec(
            "tenants.popularity",
            "a distribution, since a closed loop names no tenants",
            got,
        ));
    }
    if matches!(requests.lengths, LengthsByTicket::OfArrivals) {
        return Err(TraceError::spec(
            "workload.lengths",
            "a distribution, since a closed loop brings none",
            got,
        ));
    }
    Ok(())
}

fn is_endless(arrivals: &ArrivalsSpec) -> bool {
    match arrivals {
        ArrivalsSpec::Ramp { .. } | ArrivalsSpec::ThreadBursts { .. } => false,
        ArrivalsSpec::Counts(counts) => counts.cut.repeat,
        ArrivalsSpec::Trace(trace) => trace.cut.repeat,
        ArrivalsSpec::Activity(activity) => activity.repeat,
        ArrivalsSpec::Superpose(parts) => parts.iter().any(is_endless),
        ArrivalsSpec::Scaled { arrivals, .. } => is_endless(arrivals),
        ArrivalsSpec::Poisson { .. }
        | ArrivalsSpec::Constant { .. }
        | ArrivalsSpec::Gamma { .. }
        | ArrivalsSpec::Mmpp { .. }
        | ArrivalsSpec::PeriodicPerTenant { .. }
        | ArrivalsSpec::ClosedLoop { .. }
        | ArrivalsSpec::Twitter { .. } => true,
    }
}

/// What all arrivals of one workload have in common.
#[derive(Clone, Copy)]
struct Builder {
    seed: u64,
    tenants: u32,
}

impl Builder {
    /// `field` names `spec` in errors, `part` tells superposed ones apart, `factor` is what rates are multiplied by.
    fn build(self, field: &str, part: u64, spec: &ArrivalsSpec, factor: f64) -> Result<Arrivals, TraceError> {
        let gap_draws = Draws::new(self.seed, Purpose::Arrival).part(part);
        let rate_draws = Draws::new(self.seed, Purpose::Rate).part(part);
        let poisson = Gaps::Exponential(gap_draws);
        let name = |kind: &str| format!("{field}.{kind}");
        let rate = |kind: &str, rate_per_s: f64| {
            positive(&format!("{field}.{kind}.rate_per_s"), rate_per_s)
                .map(|rate_per_s| Constant::new(rate_per_s * factor))
        };
        // Where there are instants rather than rates, time is compressed.
        let compressed = |name: &str, duration: Duration| {
            let scaled = Duration::from_secs_f64(duration.as_secs_f64() / factor);
            scaled.ok_or_else(|| TraceError::spec(name, "below 584 years after scaling", duration))
        };
        Ok(match spec {
            ArrivalsSpec::Poisson { rate_per_s } => Box::new(Process::new(rate("poisson", *rate_per_s)?, poisson)),
            ArrivalsSpec::Constant { rate_per_s } => Box::new(Process::new(rate("constant", *rate_per_s)?, Gaps::Even)),
            ArrivalsSpec::Gamma { rate_per_s, cv } => {
                let cv = positive(&name("gamma.cv"), *cv)?;
                let gaps = Gaps::Gamma {
                    draws: gap_draws,
                    shape: 1.0 / (cv * cv),
                };
                Box::new(Process::new(rate("gamma", *rate_per_s)?, gaps))
            }
            ArrivalsSpec::Mmpp { states } => {
                let mut states = states.clone();
                states.iter_mut().for_each(|state| state.rate_per_s *= factor);
                Box::new(Process::new(
                    Mmpp::new(&name("mmpp.states"), &states, rate_draws)?,
                    poisson,
                ))
            }
            ArrivalsSpec::Ramp { points } => {
                let mut points = points.clone();
                points.iter_mut().for_each(|point| point.rate_per_s *= factor);
                Box::new(Process::new(Ramp::new(&name("ramp.points"), &points)?, poisson))
            }
            ArrivalsSpec::Twitter { rate_per_s } => {
                let rate_per_s = positive(&name("twitter.rate_per_s"), *rate_per_s)? * factor;
                Box::new(Process::new(
                    RegimeRates::new(twitter::RATES, rate_per_s, rate_draws),
                    poisson,
                ))
            }
            ArrivalsSpec::PeriodicPerTenant { period } => {
                let field = name("periodic_per_tenant.period");
                let period = compressed(&field, *period)?;
                if period == Duration::ZERO {
                    return Err(TraceError::spec(&field, "above 0", period));
                }
                Box::new(PeriodicTenants::new(self.seed, part, self.tenants, period))
            }
            ArrivalsSpec::ThreadBursts {
                threads,
                stagger,
                period,
                repeats,
            } => {
                let stagger = compressed(&name("thread_bursts.stagger"), *stagger)?;
                let period = compressed(&name("thread_bursts.period"), *period)?;
                Box::new(ThreadBursts::new(*threads, stagger, period, *repeats))
            }
            ArrivalsSpec::Counts(counts) => self.counted(&name("counts"), counts, factor, gap_draws, rate_draws)?,
            ArrivalsSpec::Activity(activity) => {
                let scale = positive(&name("activity.scale"), activity.scale)? * factor;
                Box::new(ActiveTenants::open(
                    self.seed,
                    self.tenants,
                    activity,
                    scale,
                    gap_draws,
                )?)
            }
            ArrivalsSpec::Trace(trace) => Box::new(Recorded::open(&name("trace"), trace, factor)?),
            ArrivalsSpec::Superpose(parts) => {
                let field = name("superpose");
                if parts.is_empty() {
                    return Err(TraceError::spec(&field, "a list of at least one", "an empty list"));
                }
                let build = |(i, arrivals)| {
                    // Children of the parts p and q never meet: each level has a base of its own.
                    self.build(
                        &format!("{field}[{i}]"),
                        part.wrapping_mul(MOST_PARTS).wrapping_add(i as u64 + 1),
                        arrivals,
                        factor,
                    )
                };
                if parts.len() as u64 >= MOST_PARTS {
                    return Err(TraceError::spec(
                        &field,
                        &format!("a list of fewer than {MOST_PARTS}"),
                        parts.len(),
                    ));
                }
                Box::new(Merge::new(
                    parts.iter().enumerate().map(build).collect::<Result<_, _>>()?,
                ))
            }
            ArrivalsSpec::Scaled { factor: own, arrivals } => {
                let own = positive(&name("scaled.factor"), *own)?;
                let factor = positive(&name("scaled.factor"), factor * own)?;
                self.build(&name("scaled.arrivals"), part, arrivals, factor)?
            }
            ArrivalsSpec::ClosedLoop { .. } => {
                return Err(TraceError::spec(field, "an open loop inside of others", "closed_loop"));
            }
        })
    }

    fn counted(
        self,
        field: &str,
        spec: &CountsSpec,
        factor: f64,
        gap_draws: Draws,
        rate_draws: Draws,
    ) -> Result<Arrivals, TraceError> {
        let rates = CountedRates::open(field, spec, factor)?;
        Ok(match spec.placement {
            Placement::Poisson => Box::new(Process::new(rates, Gaps::Exponential(gap_draws))),
            Placement::Even => Box::new(Process::new(rates, Gaps::Even)),
            Placement::Bursty {
                peak,
                share,
                mean_burst,
            } => {
                let factors = bursts(
                    &format!("{field}.placement.bursty"),
                    peak,
                    share,
                    mean_burst,
                    rate_draws,
                )?;
                Box::new(Process::new(Product::new(rates, factors), Gaps::Exponential(gap_draws)))
            }
        })
    }
}

const MOST_PARTS: u64 = 1 << 16;

/// An open loop: arrivals that do not wait for answers.
struct Open {
    arrivals: Arrivals,
    requests: Requests,
    tenants: u32,
    ticket: u64,
    stop: Stop,
    ahead: Option<Arrival>,
}

impl Open {
    /// When the next arrival is, which stays ahead until it is taken.
    #[inline]
    fn due(&mut self) -> Result<Option<Time>, TraceError> {
        if self.ahead.is_none() {
            if self.stop.requests.is_some_and(|limit| self.ticket >= limit) {
                return Ok(None);
            }
            self.ahead = self.arrivals.next().transpose()?;
        }
        let at = self.ahead.as_ref().map(|arrival| arrival.at);
        Ok(at.filter(|&at| self.stop.after.is_none_or(|end| at < end)))
    }
}

impl Workload for Open {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        self.due()
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        if self.due()?.is_none() {
            return Ok(None);
        }
        let arrival = self.ahead.take().expect("what is due is ahead");
        let request = self.requests.complete(self.ticket, arrival).map_err(|missing| {
            let field = if missing == "lengths" {
                "workload.lengths"
            } else {
                "tenants.popularity"
            };
            let must_be = format!("a distribution, since the arrivals bring no {missing}");
            TraceError::spec(field, &must_be, "`of-arrivals`")
        })?;
        if request.tenant >= self.tenants {
            let must_be = format!("more than the largest tenant of the arrivals, {}", request.tenant);
            return Err(TraceError::spec("tenants.count", &must_be, self.tenants));
        }
        self.ticket += 1;
        Ok(Some(Entry::Request(request)))
    }
}
