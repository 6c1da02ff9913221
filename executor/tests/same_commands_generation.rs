//! Likewise for decoders: runs of steps that end when somebody ends, at an interrupt, or for want of pages, on one card
//! or two.

mod common;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{changes, log_of};
use proptest::prelude::*;
use tenantry_core::board::OpRef;
use tenantry_core::event::{Ended, STEPS_ALIKE};
use tenantry_core::ids::{LaneId, PoolId, RequestId};
use tenantry_core::log::{Log, LoggedEvent, replay};
use tenantry_core::machine::MachineError;
use tenantry_core::op::{OpKind, Run, Until};
use tenantry_core::spec::{
    ConsolidateSpec, DisaggregatedSpec, GenerationSpec, JoinSpec, LightLoadSpec, LoraSpec, PipelineSpec, PlaceSpec,
    PlotSpec, PoolSpec, PrefillSpec, SystemSpec, TenantState,
};
use tenantry_core::testing;
use tenantry_core::topology::LaneKind;
use tenantry_core::{ClusterSpec, Server};
use tenantry_executor::machine::{Batch, Job, Outcome, Ran, RealMachine, Workers};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Card, Contention, ModelShape, Rhythm};
use tenantry_sim::{Before, Jitter, ModelBefore, Prices, VirtualMachine, Warmth};
use tenantry_traces::{Duration, Entry, Request, Time};

const TENANTS: u32 = 8;
const PAGE_TOKENS: u32 = 16;
const PLOT: PlotSpec = PlotSpec {
    fallbacks_ppm: 100_000,
    domain_bytes: Some(1 << 20),
    ..testing::PLOT
};

/// A run whose steps are being made.
struct UnderWay {
    op: OpRef,
    batch: Arc<Batch>,
    run: Run,
    started: Time,
    steps: u32,
    /// Steps after which it ends, if nobody interrupts it.
    most: u32,
    /// When the next step is over.
    boundary: Time,
    first_step_ended: Time,
    marks: Vec<Time>,
}

struct Lane {
    free_since: Time,
    /// Before its last op.
    idle: Duration,
    warmth: Warmth,
    run: Option<UnderWay>,
    /// Who goes on here, in the order of joining, and how many tokens each has yet to make.
    going_on: Vec<(RequestId, u32)>,
}

impl Lane {
    fn new() -> Lane {
        Lane {
            free_since: Time::ZERO,
            idle: Duration::ZERO,
            warmth: Warmth::WARM,
            run: None,
            going_on: Vec::new(),
        }
    }
}

/// The synthetic card has one price for handing over, whatever the rhythm.
const ANY: Rhythm = Rhythm {
    pause_ns: 0,
    work_ns: 0,
    others_busy: false,
};

/// When an end is heard, its place in the virtual machine's log, its lane, its start and its end.
type Heard = (Time, usize, u32, Time, Time);

/// Ends of ops that will be heard. Of two at one instant, neither is the one to be heard first: there a script does as
/// the virtual machine did.
struct ToBeHeard {
    ends: BinaryHeap<Reverse<Heard>>,
    /// By slot and generation of the batch and index of the op.
    places: HashMap<(u32, u32, u32), usize>,
}

impl ToBeHeard {
    /// None yet; at one instant in the order of this log.
    fn as_in(virtual_log: &Log) -> ToBeHeard {
        let events = virtual_log.events.iter().enumerate();
        let places = events.filter_map(|(place, (_, event))| match event {
            LoggedEvent::Done { batch, op, .. } => Some(((batch.slot, batch.generation, *op), place)),
            _ => None,
        });
        ToBeHeard {
            ends: BinaryHeap::new(),
            places: places.collect(),
        }
    }

    /// The op's end will be.
    fn enter(&mut self, heard: Time, op: OpRef, ran: Ran) {
        let place = self.places.get(&(op.batch.slot, op.batch.generation, op.index));
        // What the virtual machine never issued makes the logs differ wherever it comes.
        let place = place.copied().unwrap_or(usize::MAX);
        self.ends.push(Reverse((heard, place, ran.lane.0, ran.started, ran.ended)));
    }

    /// When the first is.
    fn first(&self) -> Option<Time> {
        self.ends.peek().map(|&Reverse((heard, ..))| heard)
    }

    /// Takes the first.
    fn take(&mut self) -> Option<Ran> {
        self.ends.pop().map(|Reverse((_, _, lane, started, ended))| Ran {
            lane: LaneId(lane),
            started,
            ended,
        })
    }
}

/// Workers that take what the profile says, on a clock that jumps, and look for an interrupt after each step.
struct Script {
    now: Time,
    prices: Prices,
    lanes: Vec<Lane>,
    heard: ToBeHeard,
}

impl Script {
    fn ends(&mut self, op: OpRef, ran: Ran) {
        let tell = Duration(self.prices.tell_ns(ANY, &mut self.prices.spread(0, 0)));
        self.lanes[ran.lane.index()].free_since = ran.ended;
        self.heard.enter(ran.ended + tell, op, ran);
    }

    fn steps_ns(&mut self, run: &Run, batch: &Batch, step: u32) -> u64 {
        self.prices.steps_ns(&batch.members, run.going_on, batch.shape.tenants, step..step + 1)
    }

    fn begin(&mut self, job: Job, run: Run, started: Time) {
        let Job { lane, op, batch, .. } = job;
        let first_ns = self.steps_ns(&run, &batch, 0);
        let lane = &mut self.lanes[lane.index()];
        assert_eq!(lane.going_on.len() as u32, run.going_on.requests);
        let complete = batch.members.iter().filter(|member| member.sequence.completes);
        lane.going_on.extend(complete.map(|member| {
            let sequence = member.sequence;
            (member.request, sequence.output_tokens - sequence.generated_tokens)
        }));
        let left = lane.going_on.iter().map(|&(_, left)| left);
        let until = match run.until {
            Until::FirstEnds => left.min(),
            Until::AllEnd => left.max(),
        };
        let most = run.max_steps.min(until.unwrap_or(u32::MAX));
        let before = Before {
            idle: lane.idle,
            model: ModelBefore::Same,
        };
        let work_ns = self.prices.steps_ns(&batch.members, run.going_on, batch.shape.tenants, 0..most);
        let (kind, pool, warmth) = (LaneKind::Compute, PoolId(0), &mut lane.warmth);
        let mut spread = self.prices.spread(0, 0);
        let resume = self.prices.resume_ns(kind, pool, before, work_ns, warmth, &mut spread);
        let boundary = started + Duration(resume + first_ns);
        lane.run = Some(UnderWay {
            op,
            run,
            started,
            steps: 0,
            most,
            boundary,
            first_step_ended: boundary,
            marks: Vec::new(),
            batch,
        });
    }

    /// The next end of a step: when, whether it is its run's last, and where.
    fn next_boundary(&self) -> Option<(Time, bool, usize)> {
        let runs = self.lanes.iter().enumerate();
        let boundary = |(lane, state): (usize, &Lane)| {
            let run = state.run.as_ref()?;
            Some((run.boundary, run.steps + 1 == run.most, lane))
        };
        runs.filter_map(boundary).min_by_key(|&(at, last, lane)| (at, !last, lane))
    }

    fn step(&mut self, lane: usize) {
        let run = self.lanes[lane].run.as_mut().expect("a run is under way");
        run.steps += 1;
        if run.steps.is_multiple_of(STEPS_ALIKE) {
            run.marks.push(run.boundary);
        }
        if run.steps < run.most && !run.batch.interrupted.load(Ordering::Relaxed) {
            let (what, batch, step) = (run.run, Arc::clone(&run.batch), run.steps);
            let step_ns = self.steps_ns(&what, &batch, step);
            let run = self.lanes[lane].run.as_mut().expect("a run is under way");
            run.boundary += Duration(step_ns);
            return;
        }
        let state = &mut self.lanes[lane];
        let run = state.run.take().expect("a run is under way");
        // Who has none left since an earlier run waits for others.
        let over = state.going_on.iter().filter(|&&(_, left)| (1..=run.steps).contains(&left));
        let ended = over.map(|&(request, step)| Ended { request, step }).collect();
        for (_, left) in &mut state.going_on {
            *left = left.saturating_sub(run.steps);
        }
        *run.batch.outcome.lock().unwrap() = Some(Outcome {
            steps: run.steps,
            first_step_ended: run.first_step_ended,
            marks: run.marks,
            ended,
            failed: Vec::new(),
        });
        let ran = Ran {
            lane: LaneId(lane as u32),
            started: run.started,
            ended: run.boundary,
        };
        self.ends(run.op, ran);
    }
}

impl Workers for Script {
    fn now(&self) -> Time {
        self.now
    }

    fn issue(&mut self, job: Job) -> Result<(), MachineError> {
        let mut spread = self.prices.spread(0, 0);
        let free_since = self.lanes[job.lane.index()].free_since;
        let follows = free_since > Time::ZERO && free_since >= self.now;
        let (idle, started) = match follows {
            true => (Duration::ZERO, free_since),
            false => {
                let idle = self.now.since(free_since);
                (idle, self.now + Duration(self.prices.wake_ns(ANY, &mut spread)))
            }
        };
        self.lanes[job.lane.index()].idle = idle;
        match job.kind {
            OpKind::Run(run) => {
                assert!(!follows, "an instance makes one run at a time");
                self.begin(job, run, started);
            }
            kind => {
                let work_ns = self.prices.work_ns(PoolId(0), &kind, job.batch.shape, &mut spread);
                let ran = Ran {
                    lane: job.lane,
                    started,
                    ended: started + Duration(work_ns),
                };
                self.ends(job.op, ran);
            }
        }
        Ok(())
    }

    fn release(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        self.lanes[lane.index()].going_on.retain(|&(other, _)| other != request);
        Ok(())
    }

    fn park(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        self.release(lane, request)
    }

    fn wait(&mut self, deadline: Option<Time>) -> Result<Option<Ran>, MachineError> {
        let noticed = deadline.map(|deadline| match deadline <= self.now {
            true => self.now,
            false => deadline + Duration(self.prices.alarm_ns(deadline, deadline.since(self.now))),
        });
        loop {
            let heard = self.heard.first();
            let next = match (heard, noticed) {
                (Some(heard), Some(noticed)) => Some(heard.min(noticed)),
                (heard, noticed) => heard.or(noticed),
            };
            match (self.next_boundary(), next) {
                // At one instant, a run that is over ends before all else; one that goes on hears of an interrupt
                // first.
                (Some((at, last, lane)), next) if next.is_none_or(|next| at < next || at == next && last) => {
                    self.step(lane)
                }
                (_, Some(next)) if heard == Some(next) => {
                    self.now = next;
                    return Ok(self.heard.take());
                }
                (_, Some(next)) => {
                    self.now = next;
                    return Ok(None);
                }
                (_, None) => return Ok(None),
            }
        }
    }
}

/// Without contention: a script cannot re-price an op that it has already timed.
fn card() -> Card {
    let mut card = synthetic_card();
    card.contention = Contention::NONE;
    card
}

fn systems() -> impl Strategy<Value = SystemSpec> {
    let join = prop_oneof![
        3 => Just(JoinSpec::AnyTenant),
        1 => Just(JoinSpec::HeadRun),
        1 => Just(JoinSpec::HeadRunStatic),
        1 => Just(JoinSpec::QueuePerTenant),
    ];
    let prefill = prop_oneof![
        Just(PrefillSpec::OnePerStep),
        (8u32..60).prop_map(|max_tokens| PrefillSpec::Chunked { max_tokens }),
    ];
    // What tenants have of their own, for how many of them there is room, and whether a table stands for the lower
    // layer.
    let owned = (0u8..4, 1u32..5, 0u8..3);
    let consolidate = proptest::option::of((1u64..5, 1u32..4)).prop_map(|consolidate| {
        consolidate.map(|(ms, light)| ConsolidateSpec {
            every: Duration::from_millis(ms),
            light,
        })
    });
    let scale = (1u32..4, 0u64..4, 0u64..8).prop_map(|(light, start_up_ms, patience_ms)| LightLoadSpec {
        light,
        cards_at_start: 1,
        cards_min: 1,
        start_up: Duration::from_millis(start_up_ms),
        patience: Duration::from_millis(patience_ms),
    });
    let place = prop_oneof![
        Just(PlaceSpec::LargestWorkingSet),
        Just(PlaceSpec::LeastLoaded),
        Just(PlaceSpec::RoundRobin),
    ];
    // Whether one of the cards only takes prompts in, where there are two.
    let cards = (consolidate, proptest::option::of(scale));
    (join, prefill, owned, cards, place, 1u32..6, any::<bool>()).prop_map(
        |(join, prefill, (own, slots, table), (consolidate, scale), place, max_batch, apart)| {
            // What goes with that.
            let (own, join, table) = match apart {
                true => (own.max(1), JoinSpec::AnyTenant, 0),
                false => (own, join, table),
            };
            let mut system = system(join, prefill, (own, slots, table), consolidate, place, max_batch, apart);
            let generation = system.pool.generation.as_mut().expect("it generates");
            generation.scale = scale.filter(|_| !apart);
            system
        },
    )
}

fn system(
    join: JoinSpec,
    prefill: PrefillSpec,
    (own, slots, table): (u8, u32, u8),
    consolidate: Option<ConsolidateSpec>,
    place: PlaceSpec,
    max_batch: u32,
    apart: bool,
) -> SystemSpec {
    testing::system(PoolSpec {
        model: ModelShape::builtin("tiny-llama").expect("it is built in"),
        plot: (table > 0).then_some(PLOT),
        tenant_state: match own {
            0 => TenantState::Model,
            1 => TenantState::Adapters {
                bottleneck: 16,
                implementation: AdapterImplementation::GatherBmm,
            },
            _ => TenantState::Head,
        },
        place,
        pipeline: match table {
            1 => PipelineSpec::PREFETCH_RETRIEVAL,
            _ => PipelineSpec::SYNCHRONOUS,
        },
        generation: Some(GenerationSpec {
            lora: (own == 2).then_some(LoraSpec {
                rank: 8,
                implementation: AdapterImplementation::Grouped,
                slots,
                host_slots: None,
            }),
            slots,
            join: match (own, join) {
                // A tenant's model serves nobody else.
                (0, JoinSpec::AnyTenant) => JoinSpec::QueuePerTenant,
                _ => join,
            },
            max_batch,
            prefill,
            page_tokens: PAGE_TOKENS,
            consolidate,
            disaggregated: apart.then_some(DisaggregatedSpec {
                prefill_gpus: 1,
                link: None,
            }),
            ..GenerationSpec::default()
        }),
        ..testing::pool("pool")
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..900_000,
        0..TENANTS,
        1u32..80,
        1u32..60,
        proptest::option::weighted(0.15, 0u64..9_000_000),
    );
    (proptest::collection::vec(one, 1..60), changes(TENANTS, 40_000_000)).prop_map(|(requests, changes)| {
        let (mut at, mut entries) = (0, changes);
        for (ticket, (gap_ns, tenant, input_tokens, output_tokens, cancel)) in requests.into_iter().enumerate() {
            at += gap_ns;
            let ticket = ticket as u64;
            entries.push(Entry::Request(Request {
                ticket,
                tenant,
                arrival: Time(at),
                input_tokens,
                output_tokens,
                class: 0,
            }));
            entries.extend(cancel.map(|after| Entry::Cancel {
                at: Time(at + after),
                ticket,
            }));
        }
        entries.sort_by_key(Entry::at);
        entries
    })
}

fn cluster(system: &SystemSpec, gpus: u32, pages: u32) -> ClusterSpec {
    let (pool, model) = (&system.pool, &system.pool.model);
    let generation = pool.generation.as_ref().expect("it generates");
    let (layers, slots) = (u64::from(pool.computed_layers()), u64::from(generation.slots));
    let backbone = pool.computed_parameters();
    let parameters = match (pool.tenant_state, generation.lora) {
        (TenantState::Model, _) => slots * backbone,
        (TenantState::Adapters { bottleneck, .. }, _) => {
            backbone + slots * layers * model.adapter_parameters_per_layer(bottleneck)
        }
        (TenantState::Head, Some(lora)) => backbone + slots * layers * model.lora_parameters_per_layer(lora.rank),
        (TenantState::Head, None) => backbone,
    };
    let page = layers * model.cached_per_token_and_layer() * u64::from(PAGE_TOKENS);
    ClusterSpec {
        copy_lanes: 1,
        ..testing::cluster(gpus, 4 * (parameters + page * u64::from(pages)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_real_machine_on_a_script_equals_the_virtual_one(
        system in systems(), entries in entries(), gpus in 1u32..3, pages in 9u32..40
    ) {
        let card = card();
        let generation = system.pool.generation.as_ref().expect("it generates");
        let gpus = gpus.max(1 + u32::from(generation.disaggregated.is_some()));
        let cluster = cluster(&system, gpus, pages);
        let server = || Server::new(&cluster, &system, TENANTS).expect("it fits").with_management();
        let prices = || Prices::of_system(&card, &system, Jitter::None)
            .and_then(|prices| prices.with_management(&card))
            .expect("the card has all tables");

        let mut simulated = server();
        let mut machine =
            VirtualMachine::new(simulated.topology(), prices(), &card.contention, Default::default());
        let virtual_log = log_of(&mut simulated, &mut machine, entries.clone());

        let mut executed = server();
        let script = Script {
            now: Time::ZERO,
            prices: prices(),
            lanes: executed.topology().lanes.iter().map(|_| Lane::new()).collect(),
            heard: ToBeHeard::as_in(&virtual_log),
        };
        let mut machine = RealMachine::new(executed.topology(), script);
        let real_log = log_of(&mut executed, &mut machine, entries);

        prop_assert_eq!(&virtual_log, &real_log);
        prop_assert_eq!(replay(&mut server(), &real_log.events), real_log.commands);
    }
}
