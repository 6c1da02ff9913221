//! Checks a [`WorkloadSpec`] and builds it.

use std::sync::Arc;

use super::activity::{ActiveTenants, Activity};
use super::arrival::Arrivals;
use super::closed_loop::ClosedLoop;
use super::counts::CountedRates;
use super::ends;
use super::giving_up::GivingUp;
use super::groups::TenantGroups;
use super::lengths::LengthsByTicket;
use super::managed::{Changes, Managed};
use super::merge::Merge;
use super::once::Once;
use super::open_loop::OpenLoop;
use super::part::Part;
use super::periodic::{PeriodicTenants, ThreadBursts};
use super::popularity::TenantsByTicket;
use super::presence::Presence;
use super::process::{Gaps, Process, Rates};
use super::rates::{Constant, Mmpp, Product, Ramp, bursts};
use super::recorded::Recorded;
use super::regimes::{self, RegimeRates};
use super::requests::Requests;
use super::shape::ShapedRates;
use crate::draw::{Draws, Purpose};
use crate::error::{TraceError, positive};
use crate::fit::twitter;
use crate::read::shape::RateShape;
use crate::spec::{ArrivalsSpec, CountsSpec, Cut, PartSpec, Placement, Stop, WorkloadSpec};
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
        groups: TenantGroups::new(spec)?,
    };
    let presence = Presence::new(spec.seed, spec.tenants, &spec.presence)?;
    if spec.stop == Stop::default() && spec.arrivals.is_endless() {
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
        if presence.is_some() {
            let must_be = "absent in a closed loop, whose answers would change who is awake to ask";
            return Err(TraceError::spec("tenants.presence", must_be, "one"));
        }
        let clients = ClosedLoop::new(clients, think_time, spec.stop, requests);
        return managed(spec, clients);
    }
    let builder = Builder {
        seed: spec.seed,
        tenants: spec.tenants,
        classes: spec.class_shares.len(),
        awake: presence.as_ref().map_or(1.0, Presence::kept),
        round: 0,
        end: spec.stop.end(),
        activities: Arc::new(Once::new()),
        shapes: Arc::new(Once::new()),
    };
    if let ArrivalsSpec::Poisson { rate_per_s } = spec.arrivals {
        // The most usual arrivals are drawn right where they become requests, which spares them a box.
        let arrivals = builder.poisson("workload.arrivals", 0, rate_per_s, 1.0)?;
        return managed(spec, OpenLoop::new(spec, arrivals, requests, presence));
    }
    let arrivals = builder.build("workload.arrivals", 0, &spec.arrivals, 1.0)?;
    managed(spec, OpenLoop::new(spec, arrivals, requests, presence))
}

/// The requests with what else the workload brings.
fn managed(
    spec: &WorkloadSpec,
    requests: impl Workload + Send + 'static,
) -> Result<Box<dyn Workload + Send>, TraceError> {
    match Changes::new(spec)? {
        None => giving_up(spec, requests),
        Some(changes) => giving_up(spec, Managed::new(requests, changes, spec.stop)),
    }
}

fn giving_up(
    spec: &WorkloadSpec,
    entries: impl Workload + Send + 'static,
) -> Result<Box<dyn Workload + Send>, TraceError> {
    Ok(match spec.cancellations {
        None => Box::new(entries),
        Some(cancellations) => Box::new(GivingUp::new(entries, spec.seed, cancellations)?),
    })
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

/// Whether more of these arrivals come in less time, rather than at a higher rate in the same; nothing where it is so
/// for some of them alone.
pub fn is_compressed(arrivals: &ArrivalsSpec) -> Option<bool> {
    let is_it = |leaf: &ArrivalsSpec| {
        matches!(
            leaf,
            ArrivalsSpec::Trace(_) | ArrivalsSpec::PeriodicPerTenant { .. } | ArrivalsSpec::ThreadBursts { .. }
        )
    };
    let mut leaves = arrivals.leaves().into_iter().map(is_it);
    let first = leaves.next()?;
    leaves.all(|leaf| leaf == first).then_some(first)
}

/// What all arrivals of one workload have in common.
#[derive(Clone)]
struct Builder {
    seed: u64,
    tenants: u32,
    /// Service classes that the workload has; 0 where it names none.
    classes: usize,
    /// The share of time that tenants are awake: what rates are divided by, so that as many are sent as they say.
    awake: f64,
    /// Of a part that repeats: each round has gaps and rates of its own.
    round: u64,
    /// When the workload is over, in the arrivals' own time: what comes then or later need not be looked for.
    end: Time,
    /// Recordings that rounds of a part are built of.
    activities: Arc<Once<Activity>>,
    shapes: Arc<Once<RateShape>>,
}

impl Builder {
    fn draws(&self, purpose: Purpose, part: u64) -> Draws {
        let draws = Draws::new(self.seed, purpose).part(part);
        match self.round {
            0 => draws,
            round => draws.part(round),
        }
    }

    /// As [`build`](Self::build).
    fn poisson(&self, field: &str, part: u64, rate_per_s: f64, factor: f64) -> Result<Process<Constant>, TraceError> {
        let rate_per_s = positive(&format!("{field}.poisson.rate_per_s"), rate_per_s)?;
        let gaps = Gaps::Exponential(self.draws(Purpose::Arrival, part));
        let rates = Constant::new(rate_per_s * (factor / self.awake));
        Ok(Process::new(rates, gaps, self.end))
    }

    fn process(&self, rates: impl Rates + 'static, gaps: Gaps) -> Arrivals {
        Box::new(Process::new(rates, gaps, self.end))
    }

    /// `field` names `spec` in errors, `part` tells superposed ones apart, `factor` is what rates are multiplied by.
    fn build(&self, field: &str, part: u64, spec: &ArrivalsSpec, factor: f64) -> Result<Arrivals, TraceError> {
        let (gap_draws, rate_draws) = (self.draws(Purpose::Arrival, part), self.draws(Purpose::Rate, part));
        let poisson = Gaps::Exponential(gap_draws);
        let name = |kind: &str| format!("{field}.{kind}");
        let rate_factor = factor / self.awake;
        let rate = |kind: &str, rate_per_s: f64| {
            positive(&format!("{field}.{kind}.rate_per_s"), rate_per_s).map(|rate_per_s| rate_per_s * rate_factor)
        };
        Ok(match spec {
            ArrivalsSpec::Poisson { rate_per_s } => Box::new(self.poisson(field, part, *rate_per_s, factor)?),
            ArrivalsSpec::Constant { rate_per_s } => {
                self.process(Constant::new(rate("constant", *rate_per_s)?), Gaps::Even)
            }
            ArrivalsSpec::Gamma { rate_per_s, cv } => {
                let cv = positive(&name("gamma.cv"), *cv)?;
                let gaps = Gaps::Gamma {
                    draws: gap_draws,
                    shape: 1.0 / (cv * cv),
                };
                self.process(Constant::new(rate("gamma", *rate_per_s)?), gaps)
            }
            ArrivalsSpec::Mmpp { states } => {
                let mut states = states.clone();
                states.iter_mut().for_each(|state| state.rate_per_s *= rate_factor);
                self.process(Mmpp::new(&name("mmpp.states"), &states, rate_draws)?, poisson)
            }
            ArrivalsSpec::Ramp { points } => {
                let mut points = points.clone();
                points.iter_mut().for_each(|point| point.rate_per_s *= rate_factor);
                self.process(Ramp::new(&name("ramp.points"), &points)?, poisson)
            }
            ArrivalsSpec::Twitter { rate_per_s } => {
                let rates = RegimeRates::new(twitter::RATES, rate("twitter", *rate_per_s)?, rate_draws);
                self.process(rates, poisson)
            }
            ArrivalsSpec::Regimes { rate_per_s, regimes } => {
                let rate_per_s = rate("regimes", *rate_per_s)?;
                regimes::check(&name("regimes"), regimes)?;
                self.process(RegimeRates::new(regimes.clone(), rate_per_s, rate_draws), poisson)
            }
            ArrivalsSpec::Shape(shape) => {
                let field = name("shape");
                let table = self.shapes.get(&field, || RateShape::read(&shape.path))?;
                self.process(ShapedRates::new(&field, shape, table, rate_factor)?, poisson)
            }
            ArrivalsSpec::Counts(counts) => {
                self.counted(&name("counts"), counts, rate_factor, gap_draws, rate_draws)?
            }
            ArrivalsSpec::Activity(activity) => {
                let scale = positive(&name("activity.scale"), activity.scale)? * rate_factor;
                let read = || Activity::read(self.seed, self.tenants, activity, scale);
                let cells = self.activities.get(&name("activity"), read)?;
                Box::new(ActiveTenants::new(cells, activity.repeat, scale, self.end, gap_draws))
            }
            ArrivalsSpec::Trace(trace) => Box::new(Recorded::open(&name("trace"), trace, factor, self.classes)?),
            ArrivalsSpec::PeriodicPerTenant { period } => {
                let field = name("periodic_per_tenant.period");
                let period = compressed(&field, *period, factor)?;
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
                let stagger = compressed(&name("thread_bursts.stagger"), *stagger, factor)?;
                let period = compressed(&name("thread_bursts.period"), *period, factor)?;
                Box::new(ThreadBursts::new(*threads, stagger, period, *repeats))
            }
            ArrivalsSpec::Superpose(parts) => self.superposed(&name("superpose"), part, parts, factor)?,
            ArrivalsSpec::Scaled { factor: own, arrivals } => {
                let own = positive(&name("scaled.factor"), *own)?;
                let factor = positive(&name("scaled.factor"), factor * own)?;
                self.build(&name("scaled.arrivals"), part, arrivals, factor)?
            }
            ArrivalsSpec::Part(spec) => self.part_of(name("cut"), part, spec, factor)?,
            ArrivalsSpec::ClosedLoop { .. } => {
                return Err(TraceError::spec(field, "an open loop inside of others", "closed_loop"));
            }
        })
    }

    fn superposed(&self, field: &str, part: u64, parts: &[ArrivalsSpec], factor: f64) -> Result<Arrivals, TraceError> {
        if parts.is_empty() {
            return Err(TraceError::spec(field, "a list of at least one", "an empty list"));
        }
        if parts.len() as u64 >= MOST_PARTS {
            let must = format!("a list of fewer than {MOST_PARTS}");
            return Err(TraceError::spec(field, &must, parts.len()));
        }
        let build = |(i, arrivals)| {
            // Children of the parts p and q never meet: each level has a base of its own.
            let part = part.wrapping_mul(MOST_PARTS).wrapping_add(i as u64 + 1);
            self.build(&format!("{field}[{i}]"), part, arrivals, factor)
        };
        let parts: Vec<Arrivals> = parts.iter().enumerate().map(build).collect::<Result<_, _>>()?;
        Ok(Box::new(Merge::new(parts)))
    }

    /// A part of other arrivals, cut out in their own time.
    fn part_of(&self, field: String, part: u64, spec: &PartSpec, factor: f64) -> Result<Arrivals, TraceError> {
        let arrivals = spec.arrivals.clone();
        let inner = format!("{field}.arrivals");
        let spec = match is_compressed(&arrivals) {
            Some(true) => PartSpec {
                cut: Cut {
                    from: compressed(&format!("{field}.from"), spec.cut.from, factor)?,
                    length: spec
                        .cut
                        .length
                        .map(|length| compressed(&format!("{field}.length"), length, factor))
                        .transpose()?,
                    ..spec.cut
                },
                delay: compressed(&format!("{field}.delay"), spec.delay, factor)?,
                arrivals: spec.arrivals.clone(),
            },
            None if factor != 1.0 => {
                let must = "of rates alone, or of instants alone, where it is scaled: the time of instants is \
                            compressed, and of rates it is not";
                return Err(TraceError::spec(&inner, must, "both"));
            }
            _ => spec.clone(),
        };
        // In the arrivals' own time the first round ends last. Where rounds are alike, how far the first one comes
        // tells of all.
        let end = match ends::draws_nothing(&arrivals) {
            true => Time::MAX,
            false => Time(self.end.0.saturating_sub(spec.delay.0).saturating_add(spec.cut.from.0)),
        };
        let outer = self.clone();
        let build = move |round| {
            // Rounds of a part within the rounds of another.
            let round = outer.round.wrapping_mul(MOST_ROUNDS).wrapping_add(round);
            let builder = Builder {
                round,
                end,
                ..outer.clone()
            };
            builder.build(&inner, part, &arrivals, factor)
        };
        Ok(Box::new(Part::new(field, &spec, self.end, Box::new(build))?))
    }

    fn counted(
        &self,
        field: &str,
        spec: &CountsSpec,
        factor: f64,
        gap_draws: Draws,
        rate_draws: Draws,
    ) -> Result<Arrivals, TraceError> {
        let rates = CountedRates::open(field, spec, factor)?;
        Ok(match spec.placement {
            Placement::Poisson => self.process(rates, Gaps::Exponential(gap_draws)),
            Placement::Even => self.process(rates, Gaps::Even),
            Placement::Bursty {
                peak,
                share,
                mean_burst,
            } => {
                let field = format!("{field}.placement.bursty");
                let factors = bursts(&field, peak, share, mean_burst, rate_draws)?;
                self.process(Product::new(rates, factors), Gaps::Exponential(gap_draws))
            }
        })
    }
}

/// Where there are instants rather than rates, time is compressed.
fn compressed(field: &str, duration: Duration, factor: f64) -> Result<Duration, TraceError> {
    let scaled = Duration::from_secs_f64(duration.as_secs_f64() / factor);
    scaled.ok_or_else(|| TraceError::spec(field, "below 584 years after scaling", duration))
}

const MOST_PARTS: u64 = 1 << 16;
const MOST_ROUNDS: u64 = 1 << 32;
