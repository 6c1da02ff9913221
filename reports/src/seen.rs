//! What is noted of a run beside its record while it runs: what was asked, how each tenant and each service class
//! fared, and the first ops.
//!
//! Watch a run with a [`Seen`], and give it to [`Run::with_seen`](crate::Run::with_seen). It keeps a few numbers for
//! each tenant and a few hundred ops, whatever the length of the run.

use std::collections::BTreeMap;

use tenantry_core::board::OpRan;
use tenantry_core::command::{Command, Commands, Verdict};
use tenantry_core::event::Event;
use tenantry_core::in_time::{InTime, Slo};
use tenantry_core::run::Observer;
use tenantry_traces::Time;
use tenantry_traces::describe::{Histogram, concentration, dispersion, silence_before};

use crate::classes::{ClassSummary, Classes, ServiceClass};
use crate::curves::{OpDrawn, shares};
use crate::summary::{Across, FairnessSummary, Tokens, WorkloadSummary, rounded};
use crate::timeline;

/// Ops that a page draws of a run; beside them those that were under way when the last of these ended.
pub(crate) const OPS: usize = 400;
/// Of arrivals, second by second: a year and more. A longer run has no dispersion.
const MAX_SECONDS: u64 = 1 << 25;

/// Notes of one run.
#[derive(Clone, Debug)]
pub struct Seen {
    warm_up: Time,
    target: Option<Slo>,
    wanted_ops: usize,
    now: Time,
    arrivals: Option<Arrivals>,
    /// From the second of the first arrival on.
    requests_per_s: Vec<u32>,
    input: Histogram,
    output: Histogram,
    /// By id.
    tenants: Vec<Tenant>,
    classes: Classes,
    ops: Vec<OpRan>,
    /// When as many ops as are wanted had ended. Ops are told of at their end: those that began before are still
    /// awaited for as long again.
    ops_until: Option<Time>,
}

/// The first and the last.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    first: Time,
    last: Time,
}

impl Arrivals {
    /// The second of the first one, from which rates count: before it is the silence of a recording whose clock begins
    /// elsewhere.
    fn first_second(self) -> u64 {
        self.first.0 / 1_000_000_000
    }
}

/// How one tenant fared.
#[derive(Clone, Copy, Debug, Default)]
struct Tenant {
    /// Requests that arrived, the warm-up's included.
    asked: u32,
    in_time: InTime,
    /// Of those that arrived after the warm-up.
    answered: u32,
    /// Of the answered.
    latency_sum_ns: u128,
}

impl Seen {
    /// Of a run whose warm-up is left out of the figures. `ops`: whether the first of them are to be drawn.
    pub fn new(warm_up: Time, target: Option<Slo>, ops: bool) -> Seen {
        Seen {
            warm_up,
            target,
            wanted_ops: if ops { OPS } else { 0 },
            now: Time::ZERO,
            arrivals: None,
            requests_per_s: Vec::new(),
            input: Histogram::default(),
            output: Histogram::default(),
            tenants: Vec::new(),
            classes: Classes::default(),
            ops: Vec::new(),
            ops_until: None,
        }
    }

    /// Tells these service classes apart, by number, where there are several.
    pub fn with_classes(self, classes: Vec<ServiceClass>) -> Seen {
        Seen {
            classes: Classes::new(classes),
            ..self
        }
    }

    /// How each service class fared in a run that has ended, or that the user did; empty where there is one.
    pub fn classes(&self, interrupted: bool) -> BTreeMap<String, ClassSummary> {
        self.classes.summaries(interrupted)
    }

    fn tenant(&mut self, id: u32) -> &mut Tenant {
        let index = id as usize;
        if index >= self.tenants.len() {
            self.tenants.resize(index + 1, Tenant::default());
        }
        &mut self.tenants[index]
    }

    /// What was asked; nothing where nothing was.
    pub fn workload(&self) -> Option<WorkloadSummary> {
        let asked: Vec<f64> = self.tenants.iter().map(|tenant| f64::from(tenant.asked)).collect();
        let arrivals = self.arrivals?;
        let seconds = arrivals.last.as_secs_f64() - arrivals.first_second() as f64;
        let requests: f64 = asked.iter().sum();
        Some(WorkloadSummary {
            silent_s: silence_before(arrivals.first, arrivals.last).map(|silent| silent.as_secs_f64()),
            rate_rps: (seconds > 0.0).then(|| rounded(requests / seconds)),
            dispersion: self.dispersion().map(rounded),
            input_tokens: tokens(&self.input)?,
            output_tokens: tokens(&self.output).filter(|output| output.max > 0),
            tenants: asked.iter().filter(|&&asked| asked > 0.0).count() as u64,
            busiest_tenth_share: rounded(concentration(&asked, 0.1)?),
        })
    }

    /// The last second is rarely whole, nor is the first of a recording that begins in it: they are left out.
    fn dispersion(&self) -> Option<f64> {
        let whole = self.requests_per_s.len().checked_sub(1)?;
        let arrivals = self.arrivals?;
        let counted = arrivals.last.0 / 1_000_000_000 - arrivals.first_second() < MAX_SECONDS;
        let from = usize::from(arrivals.first_second() > 0).min(whole);
        counted.then(|| dispersion(&self.requests_per_s[from..whole], 1)).flatten()
    }

    /// How evenly tenants were served in a run that has ended, or that the user did; nothing where fewer than two had
    /// an answer.
    pub fn fairness(&self, interrupted: bool) -> Option<FairnessSummary> {
        let means = self.tenant_latency_ms();
        if means.len() < 2 {
            return None;
        }
        let (sum, squares) = means.iter().fold((0.0, 0.0), |(sum, squares), ms| (sum + ms, squares + ms * ms));
        let shares = self.tenants.iter().filter_map(|tenant| tenant.in_time.share(interrupted));
        let shares: Vec<f64> = shares.collect();
        let met = |quantile: f64| {
            let kept = shares.iter().filter(|share| **share >= quantile);
            rounded(kept.count() as f64 / shares.len() as f64)
        };
        Some(FairnessSummary {
            tenants: shares.len() as u64,
            tenants_answered: Some(means.len() as u64),
            tenant_mean_latency_ms: Across {
                min: rounded(means[0]),
                p50: rounded(nearest(&means, 0.5)),
                p98: rounded(nearest(&means, 0.98)),
                max: rounded(means[means.len() - 1]),
            },
            jain_index: (squares > 0.0).then(|| rounded(sum * sum / (means.len() as f64 * squares))),
            tenants_in_slo: self.target.map(|target| met(target.quantile)),
        })
    }

    /// The mean latency of each tenant that was answered, in milliseconds, ascending.
    fn tenant_latency_ms(&self) -> Vec<f64> {
        let answered = self.tenants.iter().filter(|tenant| tenant.answered > 0);
        let mut means: Vec<f64> =
            answered.map(|tenant| tenant.latency_sum_ns as f64 / f64::from(tenant.answered) / 1e6).collect();
        means.sort_unstable_by(f64::total_cmp);
        means
    }

    /// Tenants' mean latencies at each of [`shares`]; empty where fewer than two were answered.
    pub fn tenant_quantiles_ms(&self) -> Vec<f64> {
        let means = self.tenant_latency_ms();
        match means.len() {
            0 | 1 => Vec::new(),
            _ => shares().map(|share| rounded(nearest(&means, share))).collect(),
        }
    }

    /// The ops to draw, by their start.
    pub fn ops(&self) -> Vec<OpDrawn> {
        let mut ops: Vec<OpDrawn> = self.ops.iter().map(drawn).collect();
        ops.sort_by_key(|op| (op.started_ns, op.lane));
        ops
    }
}

fn drawn(ran: &OpRan) -> OpDrawn {
    let (name, category) = timeline::name(&ran.kind);
    OpDrawn {
        lane: ran.lane.0 as usize,
        name,
        category: category.to_owned(),
        started_ns: ran.started.0,
        ended_ns: ran.ended.0,
        requests: ran.shape.requests,
    }
}

/// The value that a share of the ascending `values` does not exceed.
fn nearest(values: &[f64], share: f64) -> f64 {
    let rank = (share * values.len() as f64).ceil() as usize;
    values[rank.clamp(1, values.len()) - 1]
}

fn tokens(lengths: &Histogram) -> Option<Tokens> {
    let figures = lengths.figures()?;
    Some(Tokens {
        mean: rounded(figures.mean),
        p50: figures.p50,
        p98: figures.p98,
        max: figures.max,
    })
}

impl Observer for Seen {
    fn event(&mut self, now: Time, event: &Event<'_>) {
        self.now = now;
        let Event::Arrived(request) = event else { return };
        let arrivals = self.arrivals.get_or_insert(Arrivals {
            first: request.arrival,
            last: request.arrival,
        });
        arrivals.last = request.arrival;
        self.input.add(request.input_tokens);
        self.output.add(request.output_tokens);
        let second = request.arrival.0 / 1_000_000_000 - arrivals.first_second();
        if second < MAX_SECONDS {
            let second = second as usize;
            if second >= self.requests_per_s.len() {
                self.requests_per_s.resize(second + 1, 0);
            }
            self.requests_per_s[second] += 1;
        }
        let is_counted = request.arrival >= self.warm_up;
        let tenant = self.tenant(request.tenant);
        tenant.asked += 1;
        if is_counted {
            tenant.in_time.came();
            self.classes.came(request.class);
        }
    }

    fn command(&mut self, now: Time, command: &Command, _: &Commands) {
        let Command::Finish(finish) = command else { return };
        if finish.arrival < self.warm_up {
            return;
        }
        let target = self.target.map(|slo| slo.target);
        self.classes.left(now, finish);
        let tenant = self.tenant(finish.tenant);
        tenant.in_time.left(now, finish, target.as_ref());
        if finish.verdict == Verdict::Served {
            tenant.answered += 1;
            tenant.latency_sum_ns += u128::from(now.since(finish.arrival).0);
        }
    }

    fn watches_ops(&self) -> bool {
        let is_over = |until: Time| self.now > until + until.since(self.warm_up);
        self.wanted_ops > 0 && self.now >= self.warm_up && !self.ops_until.is_some_and(is_over)
    }

    fn ran(&mut self, ran: &OpRan) {
        // Another observer may watch for longer, and have ops told that were under way when the warm-up ended.
        let is_later = self.ops_until.is_some_and(|until| ran.started >= until);
        if !self.watches_ops() || ran.started < self.warm_up || is_later {
            return;
        }
        self.ops.push(*ran);
        if self.ops.len() == self.wanted_ops {
            self.ops_until = Some(ran.ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::board::OpRef;
    use tenantry_core::command::{Finish, RejectReason, Waits};
    use tenantry_core::ids::{BatchId, InstanceId, LaneId};
    use tenantry_core::in_time::Target;
    use tenantry_core::op::{BatchShape, Fetch, OpKind};
    use tenantry_traces::{Duration, Request};

    use super::*;

    fn request(ticket: u64, tenant: u32, arrival_ms: u64) -> Request {
        Request {
            ticket,
            tenant,
            arrival: Time(arrival_ms * 1_000_000),
            input_tokens: 16,
            output_tokens: 0,
            class: 0,
        }
    }

    fn answer(seen: &mut Seen, request: Request, latency_ms: u64) {
        seen.event(request.arrival, &Event::Arrived(request));
        let finish = Finish {
            verdict: Verdict::Served,
            waits: Waits::default(),
            ..Finish::rejected(&request, RejectReason::QueueFull)
        };
        let now = request.arrival + Duration::from_millis(latency_ms);
        seen.command(now, &Command::Finish(finish), &Commands::default());
    }

    fn target(latency_ms: u64) -> Option<Slo> {
        Some(Slo {
            target: Target::of_latency(Duration::from_millis(latency_ms)),
            quantile: 0.5,
        })
    }

    #[test]
    fn tenants_that_wait_alike_are_served_fairly() {
        let mut seen = Seen::new(Time::ZERO, target(20), true);
        for ticket in 0..100 {
            answer(&mut seen, request(ticket, ticket as u32 % 10, ticket * 100), 10);
        }
        let fairness = seen.fairness(false).unwrap();
        assert_eq!((fairness.tenants, fairness.jain_index), (10, Some(1.0)));
        assert_eq!(fairness.tenants_in_slo, Some(1.0));
        let workload = seen.workload().unwrap();
        assert_eq!((workload.tenants, workload.dispersion), (10, Some(0.0)));
        assert_eq!(workload.input_tokens.p98, 16);
        assert_eq!(workload.output_tokens, None);
    }

    /// Jain's index of one tenant that waits nine times as long as another: (1 + 9)² / (2 (1 + 81)).
    #[test]
    fn one_tenant_waits_for_the_other() {
        let mut seen = Seen::new(Time::ZERO, target(20), true);
        answer(&mut seen, request(0, 0, 0), 10);
        answer(&mut seen, request(1, 5, 0), 90);
        let fairness = seen.fairness(false).unwrap();
        assert_eq!(fairness.jain_index, Some(rounded(100.0 / 164.0)));
        assert_eq!(fairness.tenants_in_slo, Some(0.5));
        assert_eq!(fairness.tenant_mean_latency_ms.max, 90.0);
        assert_eq!(seen.tenant_quantiles_ms().len(), shares().count());
    }

    /// However alike the others wait.
    #[test]
    fn who_is_never_answered_is_counted() {
        let mut seen = Seen::new(Time::ZERO, target(20), true);
        answer(&mut seen, request(0, 0, 0), 10);
        answer(&mut seen, request(1, 1, 0), 10);
        for ticket in 2..5 {
            let refused = request(ticket, ticket as u32, 0);
            seen.event(refused.arrival, &Event::Arrived(refused));
            let finish = Finish::rejected(&refused, RejectReason::QueueFull);
            seen.command(refused.arrival, &Command::Finish(finish), &Commands::default());
        }
        let fairness = seen.fairness(false).unwrap();
        assert_eq!((fairness.tenants, fairness.tenants_answered), (5, Some(2)));
        assert_eq!((fairness.answered_share(), fairness.tenants_in_slo), (0.4, Some(0.4)));
        assert_eq!(fairness.jain_index, Some(1.0));
    }

    #[test]
    fn the_warm_up_counts_as_asked_and_not_as_served() {
        let mut seen = Seen::new(Time(1_000_000_000), None, true);
        answer(&mut seen, request(0, 0, 0), 10);
        assert!(!seen.watches_ops());
        assert_eq!(seen.fairness(false), None);
        assert_eq!(seen.workload().unwrap().tenants, 1);
        answer(&mut seen, request(1, 1, 2_000), 10);
        answer(&mut seen, request(2, 2, 2_000), 10);
        assert!(seen.watches_ops());
        assert_eq!(seen.fairness(false).unwrap().tenants_in_slo, None);
    }

    /// Requests that wait for years add up to more than 64 bits of nanoseconds hold: an overload of a long run is no
    /// fault of it.
    #[test]
    fn latencies_of_an_overload_add_up() {
        let mut seen = Seen::new(Time::ZERO, None, false);
        const YEAR_MS: u64 = 365 * 24 * 3_600_000;
        for ticket in 0..10 {
            answer(&mut seen, request(ticket, 0, ticket), 100 * YEAR_MS);
        }
        assert_eq!(seen.tenant_latency_ms(), [100.0 * YEAR_MS as f64]);
    }

    #[test]
    fn an_op_that_is_under_way_at_the_last_one_is_noted() {
        let mut seen = Seen::new(Time::ZERO, None, true);
        let op = |lane, started, ended| OpRan {
            lane: LaneId(lane),
            started: Time(started),
            ended: Time(ended),
            op: OpRef {
                batch: BatchId { slot: 0, generation: 0 },
                index: 0,
            },
            instance: InstanceId(0),
            kind: OpKind::Fetch(Fetch { bytes: 1, slot: 0 }),
            shape: BatchShape::NOTHING,
        };
        for i in 0..OPS as u64 {
            seen.now = Time(i + 1);
            seen.ran(&op(0, i, i + 1));
        }
        seen.now = Time(500);
        seen.ran(&op(0, 400, 500));
        seen.ran(&op(1, 100, 500));
        let drawn = seen.ops();
        assert_eq!(drawn.len(), OPS + 1, "what began later is not");
        assert!(drawn.iter().any(|op| op.lane == 1 && op.ended_ns == 500));
        seen.now = Time(801);
        assert!(!seen.watches_ops());
    }
}
