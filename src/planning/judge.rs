//! Watches a run and cuts its requests into batches; stops it once the target is out of reach.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::command::{Command, Verdict};
use tenantry_core::durations::Durations;
use tenantry_core::event::Event;
use tenantry_core::in_time::{InTime, Slo, Target};
use tenantry_core::run::Observer;
use tenantry_core::spec::{AdmitSpec, BatchSpec, Met, PlanningSpec, PoolSpec, StopSpec, SystemSpec};
use tenantry_core::{Commands, RunRecord};
use tenantry_scenarios::{Jitter, RunSpec};
use tenantry_sim::plan::Sample;
use tenantry_traces::describe::silence_before;
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::spec::{ArrivalsSpec, GroupsSpec, Placement, WorkloadSpec};
use tenantry_traces::{Duration, Request, Time};

use crate::cards::{reading_failure, workload};
use crate::failure::Failure;
use crate::planning::dispersion::Evenness;

/// Batches of a run: as many as textbooks advise (Law and Kelton, section 9.5.3: ten to thirty).
const BATCHES: usize = 20;

/// Where one run decides, it is hopeless when it has missed the target for this many times the requests that may miss
/// it.
const HOPELESS: f64 = 2.0;

/// Fewer than this may be a bad moment.
const MISSES_MIN: u64 = 30;

/// Where requests come in bursts, a run is not hopeless before it has missed the target for this share of its requests:
/// one in a hundred may see a burst that makes very many late.
const HOPELESS_IN_BURSTS: f64 = 0.5;

/// After so many requests of a workload it is asked whether the user wants to stop.
const LOOKS_UP: u64 = 4096;

/// The requests that are judged: those after the warm-up, by ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    first: u64,
    end: u64,
    /// How many.
    requests: u64,
    /// Requests a second; unknown of a closed loop.
    pub rate_per_s: Option<f64>,
    /// From the end of the warm-up to the last arrival, in seconds; unknown of a closed loop.
    pub span_s: Option<f64>,
    /// When that time begins: with the warm-up's end, or with the first request where nothing came for longer than all
    /// of them last.
    pub from: Time,
    /// Of all requests: when each comes, whose it is and how long. Unknown of a closed loop.
    pub digest: Option<u64>,
}

impl Judged {
    /// Of a run, by going through its workload once. A closed loop's depends on the answers; that its stop says how
    /// many requests there are, the plan has seen to.
    pub fn of(run: &RunSpec, interrupt: &AtomicBool) -> Result<Judged, Failure> {
        let warm_up = Time::ZERO + run.warm_up;
        if matches!(run.workload.arrivals, ArrivalsSpec::ClosedLoop { .. }) {
            let end = run.workload.stop.requests.expect("a plan's closed loop says how many");
            return Ok(Judged {
                first: 0,
                end,
                requests: end,
                rate_per_s: None,
                span_s: None,
                from: warm_up,
                digest: None,
            });
        }
        let (mut first, mut end, mut last, mut requests) = (u64::MAX, 0, Time::ZERO, 0);
        let mut came_first = None;
        let mut digest = DefaultHasher::new();
        each_request(run, interrupt, |request| {
            came_first.get_or_insert(request.arrival);
            if request.arrival >= warm_up {
                first = first.min(request.ticket);
                requests += 1;
            }
            end = end.max(request.ticket + 1);
            last = last.max(request.arrival);
            let lengths = (request.input_tokens, request.output_tokens);
            (request.arrival.0, request.tenant, lengths).hash(&mut digest);
        })?;
        let first = first.min(end);
        // A recording's clock may begin long before its first request.
        let from = match came_first.filter(|came_first| silence_before(*came_first, last).is_some()) {
            Some(came_first) => came_first.max(warm_up),
            None => warm_up,
        };
        let time_s = if last > from {
            last.since(from).as_secs_f64()
        } else {
            0.0
        };
        Ok(Judged {
            first,
            end,
            requests,
            rate_per_s: (time_s > 0.0).then(|| (end - first) as f64 / time_s),
            span_s: Some(time_s),
            from,
            digest: Some(digest.finish()),
        })
    }

    /// How many there are.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn batch(self, ticket: u64) -> Option<usize> {
        let of = self.end.checked_sub(self.first).filter(|of| *of > 0)?;
        let batch = ticket.checked_sub(self.first)? * BATCHES as u64 / of;
        Some((batch as usize).min(BATCHES - 1))
    }
}

/// Goes through a run's requests, until the user wants to stop.
fn each_request(run: &RunSpec, interrupt: &AtomicBool, mut see: impl FnMut(&Request)) -> Result<(), Failure> {
    let mut goes_on = GoesOn::until(interrupt);
    let read = workload(run)?.each_request(&mut |request| {
        see(request);
        goes_on.after_another()
    });
    read.map_err(|error| reading_failure(Some(&run.file), &error))?;
    not_interrupted(interrupt)
}

/// Likewise, for when they come alone, in nanoseconds.
pub fn each_arrival(run: &RunSpec, interrupt: &AtomicBool, mut see: impl FnMut(u64)) -> Result<(), Failure> {
    let mut goes_on = GoesOn::until(interrupt);
    let read = workload(run)?.each_arrival(&mut |arrival| {
        see(arrival.0);
        goes_on.after_another()
    });
    read.map_err(|error| reading_failure(Some(&run.file), &error))?;
    not_interrupted(interrupt)
}

/// Looks now and then, while many requests are gone through, whether the user wants to stop.
struct GoesOn<'a> {
    interrupt: &'a AtomicBool,
    seen: u64,
}

impl GoesOn<'_> {
    fn until(interrupt: &AtomicBool) -> GoesOn<'_> {
        GoesOn { interrupt, seen: 0 }
    }

    fn after_another(&mut self) -> ControlFlow<()> {
        self.seen += 1;
        match self.seen.is_multiple_of(LOOKS_UP) && self.interrupt.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// What was cut short says nothing.
pub fn not_interrupted(interrupt: &AtomicBool) -> Result<(), Failure> {
    match interrupt.load(Ordering::Relaxed) {
        true => Err(Failure::Interrupted("the plan is not finished".into())),
        false => Ok(()),
    }
}

/// Whether requests come when a recording's came, or as many in the second or the minute in which they did. Bursts are
/// what one recording has once: other instants within them, other tenants and lengths are no further evidence of them.
/// Counts that are rates bring other numbers with other seeds, which are.
pub fn is_recorded(arrivals: &ArrivalsSpec) -> bool {
    let is_it = |leaf: &&ArrivalsSpec| match leaf {
        ArrivalsSpec::Trace(_) | ArrivalsSpec::Activity(_) => true,
        ArrivalsSpec::Counts(counts) => counts.placement == Placement::Even,
        _ => false,
    };
    arrivals.leaves().iter().all(is_it)
}

/// Whether a seed decides more than when requests of how many tokens come from whom: which are answered how, who gives
/// up, when a sequence ends, how long an op takes; of what kind, domain and class a tenant is, and when it changes; what
/// texts meet in a table.
pub fn is_drawn(run: &RunSpec) -> bool {
    let stop = run.system.pool.generation.as_ref().map(|generation| &generation.stop);
    let WorkloadSpec {
        groups: GroupsSpec { kinds, domains },
        class_shares,
        management,
        ..
    } = &run.workload;
    run.answers.is_some()
        || run.workload.cancellations.is_some()
        || run.jitter != Jitter::None
        || stop.is_some_and(|stop| *stop != StopSpec::Length)
        || [kinds, domains, class_shares].iter().any(|shares| shares.len() > 1)
        || matches!(management, ManagementSpec::Rates(_))
        || run.system.pools().any(|pool| pool.plot.is_some_and(|plot| plot.met == Met::Counted))
}

/// How long requests may wait for their batches to fill: one after the other at the stages of a cascade. Decoders and
/// runtimes have none.
fn longest_fill(system: &SystemSpec) -> Duration {
    let of_pool = |pool: &PoolSpec| match (&pool.tasks, pool.batch) {
        _ if pool.generation.is_some() || pool.runtimes.is_some() => None,
        (Some(tasks), _) => match tasks.planning {
            PlanningSpec::Pool { max_wait, .. } => max_wait,
            PlanningSpec::Online { .. } => None,
        },
        (None, BatchSpec::SizeOrTimeout { max_wait, .. }) => Some(max_wait),
        (None, BatchSpec::PerTenant { .. } | BatchSpec::FixedSize { .. }) => None,
    };
    let fills = system.pools().filter_map(of_pool);
    fills.fold(Duration::ZERO, |sum, fill| sum + fill)
}

/// Judges the requests of a run.
#[derive(Debug)]
pub struct Judge {
    judged: Judged,
    warm_up: Time,
    slo: Option<Slo>,
    quantile: f64,
    misses: u64,
    misses_max: u64,
    evenness: Evenness,
    batches: Vec<Batch>,
    /// Where the target is not of the latency alone: see [`Sample::taken`].
    taken: Option<Durations>,
    first_token: Option<Durations>,
    per_token: Option<Durations>,
    user: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    is_open: bool,
    fills: Duration,
}

/// Requests that came one after the other, after the warm-up.
#[derive(Clone, Debug, Default)]
struct Batch {
    in_time: InTime,
    /// Of those that were served.
    latencies_ns: Vec<u64>,
}

impl Judge {
    /// Of one of up to `repeats` runs over such requests, which come so evenly. It is stopped when so many have missed
    /// the target that all others would have to keep it, and then would not make up for them. `user` is the user's wish
    /// to stop; the flag of [`stop`](Self::stop) is the run's own.
    pub fn new(
        run: &RunSpec,
        judged: Judged,
        evenness: Evenness,
        quantile: f64,
        repeats: u32,
        user: Arc<AtomicBool>,
    ) -> Judge {
        let requests = judged.end.saturating_sub(judged.first) as f64;
        let misses_max = run.slo.map_or(u64::MAX, |slo| {
            let late = 1.0 - slo.quantile;
            // Where half may be late, twice as many are all: then as many as leave half of what is to be in time.
            let hopeless = (HOPELESS * late).min(late + slo.quantile / 2.0);
            let may = hopeless.max(f64::from(repeats) * late);
            let may = match evenness.bursts {
                Some(_) => may.max(HOPELESS_IN_BURSTS),
                None => may,
            };
            ((may * requests).ceil() as u64).max(MISSES_MIN)
        });
        let recorded = |is_held_to: &dyn Fn(&Target) -> bool| {
            run.slo.filter(|slo| is_held_to(&slo.target)).map(|_| Durations::default())
        };
        Judge {
            judged,
            warm_up: Time::ZERO + run.warm_up,
            slo: run.slo,
            quantile,
            misses: 0,
            misses_max,
            evenness,
            batches: vec![Batch::default(); BATCHES],
            taken: recorded(&|target| !target.is_of_latency()),
            first_token: recorded(&|target| target.first_token.is_some()),
            per_token: recorded(&|target| target.per_token.is_some()),
            user,
            stop: Arc::new(AtomicBool::new(false)),
            is_open: run.system.admit == AdmitSpec::Open,
            fills: longest_fill(&run.system),
        }
    }

    /// Goes on whatever is missed.
    pub fn never_stop(&mut self) {
        self.misses_max = u64::MAX;
    }

    /// What stops the run.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// What was seen.
    pub fn finish(mut self, record: &RunRecord, busy: f64) -> Sample {
        let hopeless = self.misses > self.misses_max;
        assert!(hopeless || !record.interrupted || self.user.load(Ordering::Relaxed));
        let mut latencies = Durations::default();
        let all = self.batches.iter().flat_map(|batch| &batch.latencies_ns);
        all.for_each(|latency| latencies.record(Duration(*latency)));
        let quantile = self.quantile;
        let at_quantile = |batch: &mut Batch| {
            let served = batch.latencies_ns.len();
            let at = ((served as f64 * quantile).ceil() as usize).max(1) - 1;
            (served > 0).then(|| {
                let (_, latency, _) = batch.latencies_ns.select_nth_unstable(at.min(served - 1));
                *latency as f64 / 1e6
            })
        };
        let score = self.batches.iter_mut().map(at_quantile).collect();
        let of_batches = self.batches.iter().map(|batch| batch.in_time);
        let shares = of_batches.clone().filter_map(|batch| batch.share(record.interrupted));
        // A run that was stopped goes on as well as it can.
        let (judged, kept) = match hopeless {
            true => {
                let judged = (self.judged.end - self.judged.first).max(self.misses);
                (judged, judged - self.misses)
            }
            false => of_batches.fold((0, 0), |(judged, kept), batch| {
                (judged + batch.judged(record.interrupted), kept + batch.in_time())
            }),
        };
        Sample {
            judged,
            kept,
            dispersion: self.evenness.dispersion,
            bursts: self.evenness.bursts,
            within: shares.collect(),
            score,
            latencies,
            taken: self.taken,
            first_token: self.first_token,
            per_token: self.per_token,
            hopeless,
            refused: false,
            busy,
            is_open: self.is_open,
            fills: self.fills,
        }
    }
}

impl Observer for Judge {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        let Event::Arrived(request) = event else { return };
        if request.arrival >= self.warm_up
            && let Some(batch) = self.judged.batch(request.ticket)
        {
            self.batches[batch].in_time.came();
        }
    }

    fn command(&mut self, now: Time, command: &Command, _: &Commands) {
        let Command::Finish(finish) = command else { return };
        if finish.arrival < self.warm_up {
            return;
        }
        let Some(batch) = self.judged.batch(finish.ticket) else {
            return;
        };
        let batch = &mut self.batches[batch];
        let target = self.slo.map(|slo| slo.target);
        if finish.verdict == Verdict::Served {
            batch.latencies_ns.push(now.since(finish.arrival).0);
            if let (Some(taken), Some(target)) = (&mut self.taken, target) {
                taken.record(target.taken(now, finish));
            }
            if let Some(first_token) = &mut self.first_token {
                first_token.record(finish.to_first_token(now));
            }
            if let (Some(per_token), Some(took)) = (&mut self.per_token, finish.per_token(now)) {
                per_token.record(took);
            }
        }
        let is_late = batch.in_time.left(now, finish, target.as_ref());
        self.misses += u64::from(is_late);
        if self.misses > self.misses_max || self.user.load(Ordering::Relaxed) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}
