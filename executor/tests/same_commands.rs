//! The real machine's coordinator under a script with the virtual machine's durations gives the virtual machine's log: the same
//! events at the same times, and so the same commands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;
use tenantry_core::ids::PoolId;
use tenantry_core::log::Log;
use tenantry_core::machine::MachineError;
use tenantry_core::op::OpKind;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, HeadTask, Met, Padding, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec, SwapSpec, SystemSpec,
    TenantState,
};
use tenantry_core::topology::LaneKind;
use tenantry_core::{ClusterSpec, Ledger, Machine, Server, run};
use tenantry_executor::machine::{Job, Ran, RealMachine, Workers};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Card, DType, DispatchOperation, ModelShape, Rhythm, Tier};
use tenantry_sim::{Before, Jitter, Prices, VirtualMachine, Warmth};
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Request, Time};

const TENANTS: u32 = 10;

#[derive(Clone, Copy)]
struct Lane {
    ops: u64,
    free_since: Time,
    warmth: Warmth,
    /// A lane tells of its ops in order.
    heard: Time,
    last_work: Duration,
}

impl Lane {
    const NEW: Lane = Lane {
        ops: 0,
        free_since: Time::ZERO,
        warmth: Warmth::WARM,
        heard: Time::ZERO,
        last_work: Duration::ZERO,
    };
}

/// When an op's end is heard, its place in the order of issue, its lane, its start and its end.
type Heard = (Time, u64, u32, Time, Time);

/// Workers that take what the profile says, on a clock that jumps.
struct Script {
    now: Time,
    prices: Prices,
    lanes: Vec<Lane>,
    /// When each op's end is heard.
    heard: BinaryHeap<Reverse<Heard>>,
    issued: u64,
}

impl Workers for Script {
    fn now(&self) -> Time {
        self.now
    }

    fn issue(&mut self, job: Job) -> Result<(), MachineError> {
        let lane = &mut self.lanes[job.lane.index()];
        let mut spread = self.prices.spread(job.lane.0, lane.ops);
        let follows = lane.ops > 0 && lane.free_since >= self.now;
        let rhythm = |pause: Duration, work: Duration| Rhythm {
            pause_ns: pause.0,
            work_ns: work.0,
            others_busy: false,
        };
        let (idle, pause, started) = match follows {
            true => (Duration::ZERO, Duration::ZERO, lane.free_since),
            false => {
                let pause = Duration(self.now.0.saturating_sub(lane.heard.0));
                let wake_ns = self.prices.wake_ns(rhythm(pause, lane.last_work), &mut spread);
                (self.now.since(lane.free_since), pause, self.now + Duration(wake_ns))
            }
        };
        let mut work_ns = self.prices.work_ns(PoolId(0), &job.kind, job.batch.shape, &mut spread);
        let mut warmth = lane.warmth;
        if matches!(job.kind, OpKind::Encode(_)) {
            let before = Before {
                idle,
                other_model: false,
            };
            let (kind, pool) = (LaneKind::Compute, PoolId(0));
            work_ns += self
                .prices
                .resume_ns(kind, pool, before, work_ns, &mut warmth, &mut spread);
        }
        let ended = started + Duration(work_ns);
        let heard = lane
            .heard
            .max(ended + Duration(self.prices.tell_ns(rhythm(pause, ended.since(started)), &mut spread)));
        *lane = Lane {
            ops: lane.ops + 1,
            free_since: ended,
            warmth,
            heard,
            last_work: ended.since(started),
        };
        self.heard
            .push(Reverse((heard, self.issued, job.lane.0, started, ended)));
        self.issued += 1;
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Time>) -> Result<Option<Ran>, MachineError> {
        let noticed = deadline.map(|deadline| match deadline <= self.now {
            true => self.now,
            false => deadline + Duration(self.prices.alarm_ns(deadline, deadline.since(self.now))),
        });
        match (self.heard.peek(), noticed) {
            (Some(&Reverse((heard, ..))), noticed) if noticed.is_none_or(|noticed| heard <= noticed) => {
                let Reverse((heard, _, lane, started, ended)) = self.heard.pop().expect("peeked");
                self.now = heard;
                Ok(Some(Ran {
                    lane: tenantry_core::ids::LaneId(lane),
                    started,
                    ended,
                }))
            }
            (_, Some(noticed)) => {
                self.now = noticed;
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

/// Without contention: a script cannot re-price an op that it has already timed.
fn card() -> Card {
    let mut card = synthetic_card();
    card.contention.compute_beside_copy = 1.0;
    card.contention.copy_beside_compute = 1.0;
    card.contention.compute_beside_lookup = 1.0;
    card.contention.lookup_beside_compute = 1.0;
    // On a busy machine, telling of an op's end can take longer than the ops after it.
    let tells = card
        .tables
        .dispatch
        .iter_mut()
        .filter(|row| row.operation == DispatchOperation::Tell);
    tells.for_each(|row| (row.stats.p95_us, row.stats.p99_us) = (4_000.0, 20_000.0));
    card
}

fn systems() -> impl Strategy<Value = SystemSpec> {
    let batch = prop_oneof![
        (1u32..5).prop_map(|max_size| BatchSpec::PerTenant { max_size }),
        (1u32..7, 0u64..5).prop_map(|(max_size, ms)| BatchSpec::SizeOrTimeout {
            max_size,
            max_wait: Duration::from_millis(ms)
        }),
    ];
    let adapters = TenantState::Adapters {
        bottleneck: 16,
        implementation: AdapterImplementation::Loop,
    };
    let state_and_pipeline = prop_oneof![
        Just((TenantState::Model, PipelineSpec::PREFETCH)),
        Just((TenantState::Model, PipelineSpec::SYNCHRONOUS)),
        Just((adapters, PipelineSpec::SYNCHRONOUS)),
        Just((adapters, PipelineSpec::PREFETCH)),
        Just((adapters, PipelineSpec::LAYERWISE)),
        Just((adapters, PipelineSpec::PREFETCH_RETRIEVAL)),
        Just((TenantState::Model, PipelineSpec::PREFETCH_RETRIEVAL)),
        Just((TenantState::Head, PipelineSpec::PREFETCH)),
        Just((TenantState::Head, PipelineSpec::SYNCHRONOUS)),
    ];
    let tier = prop_oneof![Just(Tier::Memory), Just(Tier::Disk)];
    let plot = proptest::option::of(tier.prop_map(|tier| PlotSpec {
        lower_layers: 1,
        fragment_tokens: 3,
        threads: 1,
        tier,
        domain_hits_ppm: 500_000,
        fallbacks_ppm: 20_000,
        met: Met::AsBuilt,
        domain_bytes: 1 << 20,
    }));
    let systems = (batch, state_and_pipeline, plot, 1u32..3);
    systems.prop_map(
        |(batch, (tenant_state, pipeline), plot, instances_per_gpu)| SystemSpec {
            name: "same".into(),
            admit: AdmitSpec::Open,
            route: None,
            pool: PoolSpec {
                name: "pool".into(),
                model: ModelShape::builtin("tiny").expect("tiny is built in"),
                dtype: DType::F32,
                classes: 2,
                heads: HeadTask::Classification,
                plot,
                tenant_state,
                padding: Padding::Longest,
                instances_per_gpu,
                place: PlaceSpec::LeastLoaded,
                batch,
                swap: SwapSpec::LeastRecentlyUsed,
                pipeline,
                generation: None,
                tasks: None,
                runtimes: None,
            },
        },
    )
}

/// Tenants that come, change and go within so many nanoseconds.
fn changes(within_ns: u64) -> impl Strategy<Value = Vec<Entry>> {
    let action = prop_oneof![Just(Action::Create), Just(Action::Update), Just(Action::Delete)];
    let change = (0..within_ns, 0..TENANTS, action).prop_map(|(at_ns, tenant, action)| {
        Entry::Manage(ManageRequest {
            at: Time(at_ns),
            change: Change::tenant(tenant, action),
        })
    });
    prop_oneof![Just(Vec::new()), proptest::collection::vec(change, 1..20)]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let requests = proptest::collection::vec((0u64..900_000, 0..TENANTS, 1u32..128), 1..100);
    (requests, changes(40_000_000)).prop_map(|(requests, changes)| {
        let mut at = 0;
        let request = |(ticket, (gap_ns, tenant, input_tokens))| {
            at += gap_ns;
            let arrival = Time(at);
            Entry::Request(Request {
                ticket: ticket as u64,
                tenant,
                arrival,
                input_tokens,
                output_tokens: 0,
                class: 0,
            })
        };
        let requests = requests.into_iter().enumerate().map(request);
        changes.into_iter().chain(requests).collect()
    })
}

fn log_of(server: &mut Server, machine: &mut impl Machine, entries: Vec<Entry>) -> Log {
    let mut log = Log::default();
    run(
        server,
        &mut Listed::new(entries),
        machine,
        &mut Ledger::new(Time::ZERO),
        &mut log,
    )
    .expect("the run is sound");
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_real_machine_on_a_script_equals_the_virtual_one(
        system in systems(), entries in entries(), seed in 0u64..1000, memory_mib in 24u64..40,
        lookup_lanes in 0u32..2
    ) {
        let card = card();
        let cluster = ClusterSpec { gpus: 1, gpu_memory_bytes: memory_mib << 20, copy_lanes: 1, lookup_lanes };
        let jitter = Jitter::Measured { seed };
        let server = || Server::new(&cluster, &system, TENANTS).expect("it fits");
        let prices = || Prices::new(&card, &system.pool, jitter)
            .and_then(|prices| prices.with_management(&card))
            .expect("the card has all tables");

        let mut simulated = server();
        let mut machine =
            VirtualMachine::new(simulated.topology(), prices(), &card.contention, Default::default());
        let virtual_log = log_of(&mut simulated, &mut machine, entries.clone());

        let mut executed = server();
        let lanes = executed.topology().lanes.len();
        let script = Script {
            now: Time::ZERO,
            prices: prices(),
            lanes: vec![Lane::NEW; lanes],
            heard: BinaryHeap::new(),
            issued: 0,
        };
        let mut machine = RealMachine::new(executed.topology(), script);
        let real_log = log_of(&mut executed, &mut machine, entries);

        prop_assert_eq!(virtual_log, real_log);
    }
}
