//! Whole runs on real threads: what comes of them, and that their logs replay.

mod runtimes;

use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};

use tempfile::TempDir;
use tenantry_core::board::OpRan;
use tenantry_core::command::{Refusal, RejectReason};
use tenantry_core::event::Event;
use tenantry_core::log::{Log, replay};
use tenantry_core::op::{Lookup, Manage};
use tenantry_core::run::Observer;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, HeadTask, Met, Padding, ParameterPipeline, PipelineSpec, PlaceSpec, PlotSpec, SwapSpec,
    SystemSpec,
};
use tenantry_core::{ClusterSpec, Ledger, RunRecord, Server, run};
use tenantry_plot::{Engine, Language, Texts};
use tenantry_profiles::{DType, ModelShape, Tier};
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Request, Subject, Time};

use super::*;
use crate::machine::{RealMachine, threads::Threads};
use crate::plot::{Building, LowerLayers, Version};

const TENANTS: u32 = 12;
const REQUESTS: u64 = 60;
const SEED: u64 = 3;
const PLOT: PlotSpec = PlotSpec {
    lower_layers: 1,
    fragment_tokens: 3,
    threads: 1,
    tier: Tier::Memory,
    domain_hits_ppm: 400_000,
    fallbacks_ppm: 100_000,
    met: Met::AsBuilt,
    domains: 8,
    domain_bytes: 0,
};

/// Tables that all tests find built once.
static TABLES: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Of the middle layer of three, so that a wrong first layer would be noticed.
fn looked_up() -> ModelShape {
    ModelShape {
        name: "three".into(),
        layers: 3,
        ..ModelShape::builtin("tiny").unwrap()
    }
}

fn tables(folder: &TempDir, plot: &PlotSpec) -> Tables {
    let root = Encoder::random(&looked_up(), SEED, DType::F32, Device::Cpu).unwrap();
    let root = LowerLayers::Encoder(root);
    let further = |domain, update| root.of_domain(domain, update, plot.lower_layers, SEED).unwrap();
    tables_of(folder, "further", plot, &root, &further, false)
}

/// Tables of a root's layers and of what further pretraining made of them for each domain, and for each of its updates.
fn tables_of(
    folder: &TempDir,
    name: &str,
    plot: &PlotSpec,
    root: &LowerLayers,
    further: &dyn Fn(u32, u32) -> LowerLayers,
    updates: bool,
) -> Tables {
    let model = looked_up();
    let mut encode = |version, fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
        let own;
        let layers = match version {
            Version::Root => root,
            Version::Domain(domain) => {
                own = further(domain, 0);
                &own
            }
            Version::Updated(domain) => {
                own = further(domain, 1);
                &own
            }
        };
        Ok(layers.encode(plot.lower_layers, fragment_tokens, fragments, rows)?)
    };
    // Of more texts, more of what requests ask for is a domain's own.
    let corpus = if updates { 32 } else { 4 };
    let texts = Texts::Made(Language::new(SEED, model.vocabulary).with_corpus(corpus));
    let name = format!("{name}-lower{}", plot.lower_layers);
    let go_on = &mut |_: Building<'_>| ControlFlow::Continue(());
    let tables = Tables::with_encoder(folder.path(), &name, &model, plot, texts, &mut encode, go_on).unwrap();
    match updates {
        true => tables.with_updates(&name, &model, plot, &mut encode, go_on).unwrap(),
        false => tables,
    }
}

fn with_plot(system: SystemSpec, plot: PlotSpec) -> SystemSpec {
    SystemSpec {
        pool: PoolSpec {
            plot: Some(plot),
            model: looked_up(),
            ..system.pool
        },
        ..system
    }
}

fn system(tenant_state: TenantState, batch: BatchSpec, pipeline: PipelineSpec) -> SystemSpec {
    SystemSpec {
        name: "test".into(),
        admit: AdmitSpec::Open,
        route: None,
        pool: PoolSpec {
            name: "pool".into(),
            model: ModelShape::builtin("tiny").unwrap(),
            dtype: DType::F32,
            classes: 5,
            heads: HeadTask::Classification,
            plot: None,
            tenant_state,
            padding: Padding::Longest,
            instances_per_gpu: 1,
            place: PlaceSpec::LeastLoaded,
            batch,
            swap: SwapSpec::LeastRecentlyUsed,
            pipeline,
            generation: None,
            tasks: None,
            runtimes: None,
        },
    }
}

/// Runs a burst of requests; `change` may spoil the parameters before it starts.
fn serve(system: &SystemSpec, slots: u64, change: impl FnOnce(&mut Serving)) -> (RunRecord, Vec<Answer>) {
    let tables = system.pool.plot.map(|plot| tables(&TABLES, &plot));
    serve_with(system, slots, tables, change)
}

fn serve_with(
    system: &SystemSpec,
    slots: u64,
    tables: Option<Tables>,
    change: impl FnOnce(&mut Serving),
) -> (RunRecord, Vec<Answer>) {
    serve_entries(system, slots, tables, requests(Time::ZERO), change)
}

/// All requests, from an instant on.
fn requests(from: Time) -> Vec<Entry> {
    let request = |ticket| {
        Entry::Request(Request {
            ticket,
            tenant: tenant_of(ticket),
            arrival: Time(from.0 + ticket * 100_000),
            input_tokens: tokens_of(ticket),
            output_tokens: 0,
            class: 0,
        })
    };
    (0..REQUESTS).map(request).collect()
}

fn serve_entries(
    system: &SystemSpec,
    slots: u64,
    tables: Option<Tables>,
    entries: Vec<Entry>,
    change: impl FnOnce(&mut Serving),
) -> (RunRecord, Vec<Answer>) {
    serve_entries_between(system, slots, tables, entries, change, |lanes| lanes, ())
}

/// Who does each lane's ops.
type Lanes = Vec<(Lane, Box<dyn Perform>)>;

/// A card with room for `slots` of a system's tenants, the server, and all parameters.
fn provisioned(system: &SystemSpec, slots: u64, tables: Option<Tables>) -> (ClusterSpec, Server, Serving) {
    let pool = &system.pool;
    let heads = match &pool.runtimes {
        None => pool.model.head_parameters(pool.classes),
        Some(runtimes) => { runtimes.streams.iter() }
            .map(|stream| stream.model.head_parameters(stream.classes))
            .sum(),
    };
    let heads = u64::from(TENANTS) * heads * 4;
    let layers = u64::from(pool.computed_layers());
    let embedding = match pool.plot {
        None => pool.model.embedding_parameters(),
        Some(_) => 0,
    };
    let model = (layers * pool.model.layer_parameters() + embedding) * 4;
    let memory = heads
        + match pool.tenant_state {
            TenantState::Model => slots * model,
            TenantState::Adapters { bottleneck, .. } => {
                model + slots * layers * pool.model.adapter_parameters_per_layer(bottleneck) * 4
            }
            // Instances of runtimes have weights of their own.
            TenantState::Head => u64::from(pool.instances_per_gpu) * model,
        };
    let cluster = ClusterSpec {
        gpus: 1,
        gpu_memory_bytes: memory,
        shares_host_memory: false,
        copy_lanes: 1,
        lookup_lanes: 1,
    };
    let server = Server::new(&cluster, system, TENANTS).unwrap();
    let provision = Provision {
        tenants: TENANTS,
        slots: server.slots_per_instance(),
        seed: SEED,
        device: Device::Cpu,
        max_host_bytes: 1 << 30,
        tables,
        files: crate::Files::NONE,
    };
    let serving = Serving::new(pool, &server, provision)
        .unwrap()
        .with_management()
        .unwrap();
    (cluster, server, serving)
}

fn serve_entries_between(
    system: &SystemSpec,
    slots: u64,
    tables: Option<Tables>,
    entries: Vec<Entry>,
    change: impl FnOnce(&mut Serving),
    between: impl FnOnce(Lanes) -> Lanes,
    watch: impl Observer,
) -> (RunRecord, Vec<Answer>) {
    let (cluster, mut server, mut serving) = provisioned(system, slots, tables);
    let topology = server.topology().clone();
    change(&mut serving);
    let answers = Arc::default();
    let threads = Threads::start(between(serving.lanes(&topology, &answers)), Arc::default())
        .unwrap()
        .counting(serving.lookups());
    let mut machine = RealMachine::new(&topology, threads);
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let mut workload = Listed::new(entries);
    let end = run(&mut server, &mut workload, &mut machine, &mut ledger, (&mut log, watch)).unwrap();
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing else.
    let mut fresh = Server::new(&cluster, system, TENANTS).unwrap();
    assert_eq!(replay(&mut fresh, &log.events), log.commands);
    let record = ledger.close(end, &server, &machine).unwrap();
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.sort_unstable();
    (record, answers)
}

fn tenant_of(ticket: u64) -> u32 {
    (ticket * 7 % u64::from(TENANTS)) as u32
}

/// Some texts are shorter than a fragment.
fn tokens_of(ticket: u64) -> u32 {
    1 + (ticket % 20) as u32
}

const BATCHED: BatchSpec = BatchSpec::SizeOrTimeout {
    max_size: 8,
    max_wait: Duration::from_millis(1),
};
const ONE_BY_ONE: BatchSpec = BatchSpec::SizeOrTimeout {
    max_size: 1,
    max_wait: Duration::ZERO,
};

fn adapters(implementation: AdapterImplementation) -> TenantState {
    TenantState::Adapters {
        bottleneck: 16,
        implementation,
    }
}

/// The answer depends on the tenant and the input, never on the batch, the pipeline, the swapping or the implementation.
#[test]
fn batching_and_swapping_do_not_change_an_answer() {
    let alone = system(
        adapters(AdapterImplementation::Loop),
        ONE_BY_ONE,
        PipelineSpec::SYNCHRONOUS,
    );
    let (record, expected) = serve(&alone, u64::from(TENANTS), |_| {});
    assert_eq!((record.counts.served, expected.len() as u64), (REQUESTS, REQUESTS));
    let classes: BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell inputs apart");
    for implementation in [AdapterImplementation::Loop, AdapterImplementation::GatherBmm] {
        for pipeline in [
            PipelineSpec::SYNCHRONOUS,
            PipelineSpec::PREFETCH,
            PipelineSpec::LAYERWISE,
        ] {
            let batched = system(adapters(implementation), BATCHED, pipeline);
            let (record, answers) = serve(&batched, 9, |_| {});
            assert_eq!(record.counts.served, REQUESTS);
            assert!(record.batches < REQUESTS, "requests are batched");
            assert!(
                record.swaps.unwrap().evictions > 0,
                "9 slots are too few for 12 tenants"
            );
            assert_eq!(answers, expected, "{implementation} {pipeline:?}");
        }
    }
}

/// Tagging heads: each token of each request gets the label that its tenant's head gives it, whatever the batch and its padding.
#[test]
fn heads_label_every_token() {
    let mut alone = system(TenantState::Head, ONE_BY_ONE, PipelineSpec::SYNCHRONOUS);
    alone.pool.heads = HeadTask::Tagging;
    let model = &alone.pool.model;
    let encoder = Encoder::random(model, SEED, DType::F32, Device::Cpu).unwrap();
    let heads = Heads::random(model, TENANTS, 5, SEED, DType::F32, Device::Cpu).unwrap();
    let draws = tenantry_traces::draw::Draws::new(SEED, tenantry_traces::draw::Purpose::Tokens);
    let expected: Vec<Tagged> = (0..REQUESTS)
        .map(|ticket| {
            let tokens = tokens_of(ticket) as usize;
            let mut stream = draws.about(ticket);
            let ids: Vec<i64> = (0..tokens)
                .map(|_| stream.below(model.vocabulary.into()) as i64)
                .collect();
            let input = encoder.input(&[ids], tokens).unwrap();
            let hidden = encoder.embed(&input).unwrap();
            let hidden = encoder.layers(hidden, 0..model.layers as usize, &input, None).unwrap();
            let labels = heads
                .tag(&hidden, &[tenant_of(ticket)])
                .unwrap()
                .argmax(2, false)
                .get(0);
            Tagged {
                ticket,
                labels: (0..tokens as i64)
                    .map(|token| labels.int64_value(&[token]) as u32)
                    .collect(),
            }
        })
        .collect();
    let labels: BTreeSet<u32> = { expected.iter() }.flat_map(|tagged| tagged.labels.clone()).collect();
    assert!(labels.len() > 1, "the heads tell tokens apart");
    let batched = {
        let mut batched = system(TenantState::Head, BATCHED, PipelineSpec::SYNCHRONOUS);
        batched.pool.heads = HeadTask::Tagging;
        batched
    };
    for system in [alone.clone(), batched] {
        let mut tagged = None;
        let (record, answers) = serve(&system, 0, |serving| tagged = Some(serving.tags()));
        assert_eq!((record.counts.served, answers.len()), (REQUESTS, 0));
        let mut tagged = std::mem::take(&mut *tagged.unwrap().lock().unwrap());
        tagged.sort_unstable();
        assert_eq!(tagged, expected);
    }
}

#[test]
fn whole_models_are_swapped_and_answer_for_their_own_tenant() {
    let synchronous = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 4 },
        PipelineSpec::SYNCHRONOUS,
    );
    let (record, expected) = serve(&synchronous, u64::from(TENANTS), |_| {});
    assert_eq!(record.counts.served, REQUESTS);
    let prefetch = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 2 },
        PipelineSpec::PREFETCH,
    );
    let (record, answers) = serve(&prefetch, 3, |_| {});
    assert!(record.swaps.unwrap().evictions > 0);
    assert_eq!(answers, expected);
}

/// One tenant's parameters are missing: its requests fail with the reason, in every batch, and all others are served.
#[test]
fn only_the_requests_of_a_tenant_that_cannot_be_loaded_fail() {
    for pipeline in PIPELINES {
        let whole = system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline);
        for system in [whole.clone(), with_plot(whole, PLOT)] {
            let (record, _) = serve(&system, 9, |serving| {
                let shape = AdapterShape::upper(&system.pool.model, system.pool.first_layer(), 16).unwrap();
                let store = AdapterStore::random(shape, TENANTS - 1, SEED, DType::F32, Device::Cpu, 1 << 30);
                serving.store = Store::Adapters(store.unwrap());
            });
            let of_last = (0..REQUESTS).filter(|&ticket| tenant_of(ticket) == TENANTS - 1).count() as u64;
            assert_eq!(record.counts.failed, of_last, "{pipeline:?}");
            assert_eq!(record.failed.get(&FailureReason::LoadFailed), Some(&of_last));
            assert_eq!(record.counts.served, REQUESTS - of_last);
        }
    }
}

fn manage(change: Change) -> Entry {
    Entry::Manage(ManageRequest { at: Time::ZERO, change })
}

/// A tenant that is updated answers by its new version from then on, one that is deleted not at all, and all others as ever.
#[test]
fn tenants_change_and_go_while_others_are_served() {
    let models = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 4 },
        PipelineSpec::PREFETCH,
    );
    let (_, expected) = serve(&models, 5, |_| {});
    let from = Time(1_000_000_000);
    let mut entries = vec![
        manage(Change::tenant(3, Action::Update)),
        manage(Change::tenant(5, Action::Delete)),
        manage(Change::tenant(7, Action::Absent)),
        manage(Change::tenant(7, Action::Create)),
        manage(Change::domain(1, Action::Update)),
    ];
    entries.extend(requests(from));
    let (record, answers) = serve_entries(&models, 5, None, entries, |_| {});
    let of = |tenant| (0..REQUESTS).filter(move |&ticket| tenant_of(ticket) == tenant);
    assert_eq!(record.rejected[&RejectReason::Deleted], of(5).count() as u64);
    // On a busy machine the new model may be there later than its first requests.
    let early = record.rejected.get(&RejectReason::NotCreated).copied().unwrap_or(0);
    assert_eq!(record.counts.served, REQUESTS - of(5).count() as u64 - early);
    let made = &record.management.made;
    assert_eq!((made["create"], made["update"], made["delete"]), (1, 1, 1));
    assert_eq!(
        record.management.refused[&Refusal::Unknown],
        1,
        "nothing is looked up here"
    );
    let class = |answers: &[Answer], ticket| {
        let index = answers.binary_search_by_key(&ticket, |answer: &Answer| answer.ticket);
        index.ok().map(|index| answers[index].class)
    };
    for tenant in 0..TENANTS {
        let mut served = of(tenant).filter(|&ticket| class(&answers, ticket).is_some());
        let changed = served.any(|ticket| class(&answers, ticket) != class(&expected, ticket));
        assert_eq!(changed, [3, 7].contains(&tenant), "tenant {tenant}");
    }
}

/// Nobody waits so long for anything but what never comes.
const NEVER: std::time::Duration = std::time::Duration::from_secs(120);

/// A lane whose first op begins when all who hold the gate's other end have let go of it.
struct Gated {
    lane: Box<dyn Perform>,
    gate: Option<Receiver<()>>,
}

impl Perform for Gated {
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        self.lane.prepare()
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        if let Some(gate) = self.gate.take() {
            assert_eq!(gate.recv_timeout(NEVER), Err(RecvTimeoutError::Disconnected));
        }
        self.lane.perform(kind, batch);
    }
}

/// Lanes of which the one that computes begins when the gate is opened.
fn compute_behind(lanes: Lanes, gate: Receiver<()>) -> Lanes {
    let mut gate = Some(gate);
    let gated = |(lane, perform): (Lane, Box<dyn Perform>)| match lane.kind {
        LaneKind::Compute => {
            let gated = Gated {
                lane: perform,
                gate: gate.take(),
            };
            (lane, Box::new(gated) as Box<dyn Perform>)
        }
        _ => (lane, perform),
    };
    lanes.into_iter().map(gated).collect()
}

/// Holds a gate until the server is about to hear of the first management request.
struct UntilManaged(Option<Sender<()>>);

impl Observer for UntilManaged {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        if matches!(event, Event::Manage(_)) {
            self.0 = None;
        }
    }
}

/// A tenant is deleted while a batch with one of its requests runs: that request is answered as ever, those of it that wait fail with
/// the reason, later ones are refused, and the others never notice.
#[test]
fn a_tenant_is_deleted_in_flight() {
    const DELETED: u32 = 2;
    // All at once, the tenant's own first: one of them is in the first batch, and another behind all that a lane has in hand.
    let mut burst: Vec<Request> = requests(Time::ZERO)
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Request(request) => Some(request),
            _ => None,
        })
        .collect();
    let own: Vec<u64> = { burst.iter() }
        .filter(|request| request.tenant == DELETED)
        .map(|request| request.ticket)
        .collect();
    let (first, last) = (own[0], *own.last().unwrap());
    burst.sort_by_key(|request| match request.ticket {
        ticket if ticket == first => 0,
        ticket if own.contains(&ticket) => 2,
        _ => 1,
    });
    let mut entries: Vec<Entry> = { burst.iter() }
        .map(|&request| {
            Entry::Request(Request {
                arrival: match request.ticket {
                    // Long after all others are answered.
                    ticket if ticket == last => Time(300_000_000),
                    _ => Time::ZERO,
                },
                ..request
            })
        })
        .collect();
    // A nanosecond later: the lanes have begun with what came.
    entries.push(Entry::Manage(ManageRequest {
        at: Time(1),
        change: Change::tenant(DELETED, Action::Delete),
    }));
    for pipeline in PIPELINES {
        let system = system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline);
        let (_, expected) = serve(&system, 9, |_| {});
        // However busy the machine is, the first batch is not over before the server has heard of it.
        let (heard, gate) = mpsc::channel();
        let (record, answers) = serve_entries_between(
            &system,
            9,
            None,
            entries.clone(),
            |_| {},
            |lanes| compute_behind(lanes, gate),
            UntilManaged(Some(heard)),
        );
        let waited = own.len() as u64 - 2;
        assert!(waited > 0);
        assert_eq!(
            record.failed.get(&FailureReason::Deleted),
            Some(&waited),
            "{pipeline:?}"
        );
        assert_eq!(record.rejected.get(&RejectReason::Deleted), Some(&1), "{pipeline:?}");
        assert_eq!(record.counts.served, REQUESTS - waited - 1, "{pipeline:?}");
        assert_eq!(record.management.made["delete"], 1);
        let of_ticket = |ticket| { answers.iter() }.find(|answer| answer.ticket == ticket);
        assert!(of_ticket(first).is_some(), "{pipeline:?}: what ran goes on");
        let lost = |answer: &Answer| !expected.contains(answer);
        assert!(!answers.iter().any(lost), "{pipeline:?}");
    }
}

/// A look-up lane that says after each op what it did, until the listener has gone.
struct Telling {
    lane: Box<dyn Perform>,
    said: Sender<Said>,
}

/// What a look-up lane did.
#[derive(Debug, PartialEq)]
enum Said {
    LookedUp(Vec<u64>),
    Updated(u32),
}

impl Perform for Telling {
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        self.lane.prepare()
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        self.lane.perform(kind, batch);
        let said = match kind {
            OpKind::Lookup(_) => Said::LookedUp(batch.members.iter().map(|member| member.ticket).collect()),
            OpKind::Manage(Manage::Store {
                subject: Subject::Domain(domain),
                ..
            }) => Said::Updated(*domain),
            _ => return,
        };
        let _ = self.said.send(said);
    }
}

/// Lanes of which the one that looks up tells.
fn lookups_told(lanes: Lanes, said: &Sender<Said>) -> Lanes {
    let telling = |(lane, perform): (Lane, Box<dyn Perform>)| match lane.kind {
        LaneKind::Lookup => {
            let telling = Telling {
                lane: perform,
                said: said.clone(),
            };
            (lane, Box::new(telling) as Box<dyn Perform>)
        }
        _ => (lane, perform),
    };
    lanes.into_iter().map(telling).collect()
}

/// Two versions of each domain's rows, in turns: from an update on a domain's requests are answered by the other, and what was looked up before
/// keeps what it found, although it computes later.
#[test]
fn an_update_of_a_domain_changes_the_answers_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = looked_up();
    let layers = |seed| LowerLayers::Encoder(Encoder::random(&model, seed, DType::F32, Device::Cpu).unwrap());
    let further = |domain, update| layers(100 + u64::from(100 * update + domain));
    let tables = tables_of(&folder, "updated", &PLOT, &layers(SEED), &further, true);
    let encoder = Encoder::random(&model, SEED, DType::F32, Device::Cpu).unwrap();
    let expected = || -> Vec<u32> {
        (0..REQUESTS)
            .map(|ticket| expected_class(&tables, &encoder, None, ticket))
            .collect()
    };
    let update_all = || (0..PLOT.domains).for_each(|domain| tables.reload(domain).unwrap());
    let first = expected();
    update_all();
    let second = expected();
    update_all();
    assert_eq!(expected(), first, "the versions take turns");

    // A batch of eight is looked up first, half of whose answers an update changes, and is held up until all domains are updated.
    let changes = |ticket: &u64| first[*ticket as usize] != second[*ticket as usize];
    let half = |changing: bool| (0..REQUESTS).filter(move |ticket| changes(ticket) == changing).take(4);
    let held: BTreeSet<u64> = half(true).chain(half(false)).collect();
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for entry in requests(Time::ZERO) {
        let Entry::Request(request) = entry else { continue };
        let (arrival, entries) = match held.contains(&request.ticket) {
            true => (Time::ZERO, &mut early),
            false => (Time(2), &mut late),
        };
        entries.push(Entry::Request(Request { arrival, ..request }));
    }
    let update = |domain| {
        Entry::Manage(ManageRequest {
            at: Time(1),
            change: Change::domain(domain, Action::Update),
        })
    };
    let entries = { early.into_iter() }.chain((0..PLOT.domains).map(update)).chain(late);
    let (said, told) = mpsc::channel();
    let (updated, gate) = mpsc::channel();
    let (forward, order) = mpsc::channel();
    // Lets go of the gate when all is updated.
    let listener = std::thread::spawn(move || {
        let (mut left, mut updated) = (PLOT.domains, Some(updated));
        for said in told {
            left -= u32::from(matches!(said, Said::Updated(_)));
            if left == 0 {
                updated = None;
            }
            forward.send(said).unwrap();
        }
        drop(updated);
    });
    let system = with_plot(system(TenantState::Head, BATCHED, PipelineSpec::PREFETCH), PLOT);
    let (record, answers) = serve_entries_between(
        &system,
        0,
        Some(tables.clone()),
        entries.collect(),
        |_| {},
        |lanes| lookups_told(compute_behind(lanes, gate), &said),
        (),
    );
    drop(said);
    listener.join().unwrap();
    assert_eq!(record.counts.served, REQUESTS);
    assert_eq!(record.management.made["update-domain"], u64::from(PLOT.domains));
    let (mut updated, mut kept, mut changed) = (BTreeSet::new(), 0, 0);
    for said in order {
        match said {
            Said::Updated(domain) => drop(updated.insert(domain)),
            Said::LookedUp(tickets) => {
                for ticket in tickets {
                    let (class, at) = (answers[ticket as usize].class, ticket as usize);
                    match updated.contains(&(tenant_of(ticket) % PLOT.domains)) {
                        true => assert_eq!(class, second[at], "{ticket}, looked up after"),
                        false => assert_eq!(class, first[at], "{ticket}, looked up before"),
                    }
                    let differs = u32::from(first[at] != second[at]);
                    match updated.is_empty() {
                        true => kept += differs,
                        false => changed += differs,
                    }
                }
            }
        }
    }
    assert!(kept > 0 && changed > 0, "{kept} kept and {changed} changed");
}

/// All ops that ran.
#[derive(Default)]
struct AllOps(Vec<OpRan>);

impl Observer for AllOps {
    fn watches_ops(&self) -> bool {
        true
    }

    fn ran(&mut self, ran: &OpRan) {
        self.0.push(*ran);
    }
}

/// A lane one op of which is held until an op of another lane runs beside it: neither ends before both have started, however busy the
/// machine is. Where the pipeline does not let them run at once, nobody comes.
struct Meeting {
    lane: Box<dyn Perform>,
    /// Which ops are counted, and how many of them come before the one that is held.
    wanted: fn(&OpKind) -> bool,
    before: usize,
    meets: Option<(Sender<()>, Receiver<()>)>,
}

impl Perform for Meeting {
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        self.lane.prepare()
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        if (self.wanted)(kind) {
            match self.before.checked_sub(1) {
                Some(left) => self.before = left,
                None => {
                    if let Some((here, there)) = self.meets.take() {
                        here.send(()).unwrap();
                        there.recv_timeout(NEVER).expect("the other op runs at the same time");
                    }
                }
            }
        }
        self.lane.perform(kind, batch);
    }
}

/// Lanes of which the first op that computes meets the second of those `wanted`.
fn first_compute_meets_second(lanes: Lanes, wanted: fn(&OpKind) -> bool) -> Lanes {
    let ((computes, meets_computing), (other, meets_other)) = (mpsc::channel(), mpsc::channel());
    let lane_of = if wanted(&LOOKUP) {
        LaneKind::Lookup
    } else {
        LaneKind::Copy
    };
    let (mut computing, mut beside) = (Some((computes, meets_other)), Some((other, meets_computing)));
    let meeting = |(lane, perform): (Lane, Box<dyn Perform>)| {
        let (wanted, before, meets): (fn(&OpKind) -> bool, usize, _) = match lane.kind {
            LaneKind::Compute => (is_encode, 0, computing.take()),
            kind if kind == lane_of => (wanted, 1, beside.take()),
            _ => return (lane, perform),
        };
        let meeting = Meeting {
            lane: perform,
            wanted,
            before,
            meets,
        };
        (lane, Box::new(meeting) as Box<dyn Perform>)
    };
    lanes.into_iter().map(meeting).collect()
}

const LOOKUP: OpKind = OpKind::Lookup(Lookup {
    tokens: 1,
    fragments: 1,
});

fn is_lookup(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Lookup(_))
}

fn is_copy_in(kind: &OpKind) -> bool {
    matches!(kind, OpKind::CopyIn(_))
}

fn is_encode(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Encode(_))
}

/// Pairs of ops of two kinds that ran at the same time.
fn beside(ops: &[OpRan], of: fn(&OpKind) -> bool, another: fn(&OpKind) -> bool) -> Vec<(OpRan, OpRan)> {
    let all = |wanted: fn(&OpKind) -> bool| ops.iter().filter(move |op| wanted(&op.kind));
    all(of)
        .flat_map(|one| all(another).map(|other| (*one, *other)))
        .filter(|(one, other)| one.started < other.ended && other.started < one.ended)
        .collect()
}

/// Layers that an op is of.
fn layers_of(op: &OpRan) -> std::ops::Range<usize> {
    match op.kind {
        OpKind::Encode(encode) => encode.layers.range(),
        OpKind::CopyIn(copy) => copy.layers.range(),
        kind => panic!("{kind:?} is of no layers"),
    }
}

/// Fig. 10 as it is executed: synchronously nothing runs beside anything; with retrieval ahead, the next batch is looked up while one computes,
/// and no adapters come in; with adapters ahead, the next batch's come in too; layer by layer, the next layer's. What computes never runs beside
/// what it needs. Each lane is busy with one op at a time, as long as its ops take, and idle between them.
#[test]
fn each_pipeline_runs_side_by_side_what_it_says() {
    let tables = tables(&TABLES, &PLOT);
    let run = |pipeline, between: &mut dyn FnMut(Lanes) -> Lanes| {
        let system = with_plot(
            system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline),
            PLOT,
        );
        let mut ops = AllOps::default();
        let tables = Some(tables.clone());
        let entries = requests(Time::ZERO);
        // Room for all tenants: a second batch waits for nothing of the first.
        let slots = u64::from(TENANTS);
        let (record, _) = serve_entries_between(&system, slots, tables, entries, |_| {}, between, &mut ops);
        assert_eq!(record.counts.served, REQUESTS);
        for (index, lane) in record.lanes.iter().enumerate() {
            let own = ops.0.iter().filter(|op| op.lane.index() == index);
            let mut intervals: Vec<(u64, u64)> = own.map(|op| (op.started.0, op.ended.0)).collect();
            intervals.sort_unstable();
            let busy: u64 = intervals.iter().map(|(started, ended)| ended - started).sum();
            assert_eq!(busy, lane.busy.0, "{}, {pipeline:?}", lane.name);
            let (mut idle, mut until) = (0, 0);
            for (started, ended) in intervals.into_iter().chain([(record.end.0, record.end.0)]) {
                let gap = started.checked_sub(until);
                idle += gap.unwrap_or_else(|| panic!("{}, {pipeline:?}: two ops at once", lane.name));
                until = ended;
            }
            assert_eq!(busy + idle, record.duration.0, "{}, {pipeline:?}", lane.name);
        }
        for (of, name) in [(is_lookup as fn(&OpKind) -> bool, "look-up"), (is_copy_in, "copy")] {
            let needed = |(one, encode): &&(OpRan, OpRan)| {
                one.op.batch == encode.op.batch
                    && (is_lookup(&one.kind) || layers_of(one).start < layers_of(encode).end)
            };
            let found = beside(&ops.0, of, is_encode);
            assert_eq!(found.iter().find(needed), None, "{pipeline:?}: a {name} that it needs");
        }
        ops.0
    };
    let met = |pipeline, wanted| run(pipeline, &mut |lanes| first_compute_meets_second(lanes, wanted));
    // Batches compute in their order, so that another one is the next.
    let next_batch = |(one, encode): &(OpRan, OpRan)| one.op.batch != encode.op.batch;

    let synchronous = run(PipelineSpec::SYNCHRONOUS, &mut |lanes| lanes);
    let any: fn(&OpKind) -> bool = |_| true;
    let itself = |(one, other): &(OpRan, OpRan)| one.op == other.op;
    assert!(beside(&synchronous, any, any).iter().all(itself));

    let retrieval_ahead = met(PipelineSpec::PREFETCH_RETRIEVAL, is_lookup);
    assert!(beside(&retrieval_ahead, is_lookup, is_encode).iter().any(next_batch));
    assert!(beside(&retrieval_ahead, is_copy_in, is_encode).is_empty());

    let both_ahead = met(PipelineSpec::PREFETCH, is_lookup);
    assert!(beside(&both_ahead, is_lookup, is_encode).iter().any(next_batch));
    let both_ahead = met(PipelineSpec::PREFETCH, is_copy_in);
    let copies = beside(&both_ahead, is_copy_in, is_encode);
    assert!(!copies.is_empty() && copies.iter().all(next_batch));

    let layer_by_layer = met(PipelineSpec::LAYERWISE, is_copy_in);
    let next_layer = |(copy, encode): &(OpRan, OpRan)| {
        copy.op.batch == encode.op.batch && layers_of(copy).start == layers_of(encode).end
    };
    assert!(beside(&layer_by_layer, is_copy_in, is_encode).iter().any(next_layer));
}

/// A new version that cannot be read leaves the old one in use.
#[test]
fn an_update_that_fails_changes_nothing() {
    let system = system(adapters(AdapterImplementation::Loop), BATCHED, PipelineSpec::PREFETCH);
    let (_, expected) = serve(&system, 9, |_| {});
    let entries = requests(Time::ZERO)
        .into_iter()
        .chain([manage(Change::tenant(1, Action::Update))]);
    let (record, answers) = serve_entries(&system, 9, None, entries.collect(), |serving| {
        // Without what it would be read from.
        serving.manager = Manager::new(serving.store.sets(), None);
    });
    assert_eq!(record.management.failed[&FailureReason::LoadFailed], 1);
    assert_eq!((record.counts.served, answers), (REQUESTS, expected));
}

/// A domain whose table is not there yet is answered for by the root, and from its creation on by its own.
#[test]
fn a_domain_comes_while_others_are_looked_up() {
    let whole = system(adapters(AdapterImplementation::Loop), BATCHED, PipelineSpec::PREFETCH);
    let system = with_plot(whole, PLOT);
    let hits = |changes: Vec<Entry>| {
        let entries = changes.into_iter().chain(requests(Time(1_000_000_000))).collect();
        let tables = Some(tables(&TABLES, &PLOT));
        let (record, _) = serve_entries(&system, 9, tables, entries, |_| {});
        assert_eq!(record.counts.served, REQUESTS);
        (record.lookups.unwrap().domain_hits, record.management)
    };
    let absent = || (0..PLOT.domains).map(|domain| manage(Change::domain(domain, Action::Absent)));
    let created = || (0..PLOT.domains).map(|domain| manage(Change::domain(domain, Action::Create)));
    let (all, _) = hits(Vec::new());
    let (none, _) = hits(absent().collect());
    let (again, management) = hits(absent().chain(created()).collect());
    assert_eq!((none, again), (0, all));
    assert_eq!(management.made["create-domain"], u64::from(PLOT.domains));
}

/// All of Fig. 10's, and the layerwise one without look-ups ahead.
const PIPELINES: [PipelineSpec; 5] = [
    PipelineSpec::SYNCHRONOUS,
    PipelineSpec::PREFETCH_RETRIEVAL,
    PipelineSpec::PREFETCH,
    PipelineSpec::LAYERWISE,
    PipelineSpec {
        prefetch_retrieval: false,
        parameters: ParameterPipeline::NextLayer,
    },
];

/// What a request's class must be, from the parts alone: rows summed up, then the upper layers by `encoder`, then the head.
fn expected_class(tables: &Tables, encoder: &Encoder, adapter: Option<(&AdapterCache, u32)>, ticket: u64) -> u32 {
    let (tenant, tokens) = (tenant_of(ticket), tokens_of(ticket) as usize);
    let model = encoder.shape();
    let mut found = vec![0.0; tokens * model.hidden as usize];
    let request = [(ticket, tenant, tokens as u32)];
    tables
        .retrieve(&Engine::new(1).unwrap(), request.into_iter(), tokens, &mut found)
        .unwrap();
    let hidden = Tensor::from_slice(&found).view([1, tokens as i64, model.hidden.into()]);
    let input = Input::of_lengths(&[tokens], tokens, Kind::Float, Device::Cpu).unwrap();
    let plan = adapter.map(|(cache, slot)| cache.plan(&[slot], tokens, AdapterImplementation::Loop).unwrap());
    let adapters = adapter
        .zip(plan.as_ref())
        .map(|((cache, _), plan)| Adapters::new(cache, plan));
    let layers = PLOT.lower_layers as usize..model.layers as usize;
    let hidden = encoder.layers(hidden, layers, &input, adapters.as_ref()).unwrap();
    let heads = Heads::random(model, TENANTS, 5, SEED, DType::F32, Device::Cpu).unwrap();
    let logits = heads.forward(&hidden, &[tenant]).unwrap();
    logits.argmax(1, false).int64_value(&[0]) as u32
}

/// Adapters in the upper layers, every pipeline: the answers are those of the parts put together by hand, and every fragment is accounted for.
#[test]
fn looked_up_representations_lead_to_the_same_answers_in_every_pipeline() {
    let tables = tables(&TABLES, &PLOT);
    // The whole model, of which a pool has the upper layers only.
    let encoder = Encoder::random(&looked_up(), SEED, DType::F32, Device::Cpu).unwrap();
    let shape = AdapterShape::upper(&looked_up(), 1, 16).unwrap();
    let store = AdapterStore::random(shape, TENANTS, SEED, DType::F32, Device::Cpu, 1 << 30).unwrap();
    let cache = AdapterCache::new(shape, TENANTS, DType::F32, Device::Cpu).unwrap();
    for tenant in 0..TENANTS {
        cache.load(&store, tenant, tenant, 1..3).unwrap();
    }
    let expected: Vec<Answer> = (0..REQUESTS)
        .map(|ticket| Answer {
            ticket,
            class: expected_class(&tables, &encoder, Some((&cache, tenant_of(ticket))), ticket),
        })
        .collect();
    let classes: BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell inputs apart");
    let mut counted = BTreeSet::new();
    for pipeline in PIPELINES {
        for threads in [1, 2] {
            let plot = PlotSpec { threads, ..PLOT };
            let system = with_plot(
                system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline),
                plot,
            );
            let (record, answers) = serve(&system, 9, |_| {});
            assert_eq!(record.counts.served, REQUESTS, "{pipeline:?}");
            assert!(record.batches < REQUESTS, "requests are batched");
            assert_eq!(answers, expected, "{pipeline:?}");
            let lookups = record.lookups.unwrap();
            assert!(
                lookups.domain_hits > 0 && lookups.root_hits > 0 && lookups.fallbacks > 0,
                "{lookups:?}"
            );
            counted.insert(format!("{lookups:?}"));
        }
    }
    assert_eq!(
        counted.len(),
        1,
        "what is found depends on the texts alone: {counted:?}"
    );
}

/// Eq. 3 matters: where a domain's version of the lower layers has learnt something else than the generic one, tenants of the domain get
/// answers that the root alone would not give, and exactly those that the domain's rows lead to.
#[test]
fn a_domains_own_representations_lead_to_answers_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let model = looked_up();
    let layers = |seed| LowerLayers::Encoder(Encoder::random(&model, seed, DType::F32, Device::Cpu).unwrap());
    let further = |domain, _| layers(100 + u64::from(domain));
    let tables = tables_of(&folder, "apart", &PLOT, &layers(SEED), &further, false);
    let system = with_plot(system(TenantState::Head, BATCHED, PipelineSpec::PREFETCH), PLOT);
    let encoder = Encoder::random(&model, SEED, DType::F32, Device::Cpu).unwrap();
    let expected = || -> Vec<Answer> {
        (0..REQUESTS)
            .map(|ticket| Answer {
                ticket,
                class: expected_class(&tables, &encoder, None, ticket),
            })
            .collect()
    };
    let by_domain = expected();
    let (record, answers) = serve_with(&system, 0, Some(tables.clone()), |_| {});
    assert!(record.lookups.unwrap().domain_hits > 0);
    assert_eq!(answers, by_domain);
    (0..PLOT.domains).for_each(|domain| tables.withdraw(domain));
    let by_root = expected();
    let (record, answers) = serve_with(&system, 0, Some(tables), |_| {});
    assert_eq!(record.lookups.unwrap().domain_hits, 0);
    assert_eq!(answers, by_root);
    let changed = by_domain
        .iter()
        .zip(&by_root)
        .filter(|(domain, root)| domain != root)
        .count();
    assert!(changed > 0, "of {REQUESTS}");
}

/// hBERT-PLOT: each tenant has upper layers of its own.
#[test]
fn tenants_own_upper_layers_are_swapped_under_a_table() {
    let tables = tables(&TABLES, &PLOT);
    let store =
        ModelStore::random::<Encoder>(&looked_up(), 1, TENANTS, SEED, DType::F32, Device::Cpu, 1 << 30).unwrap();
    let expected: Vec<Answer> = (0..REQUESTS)
        .map(|ticket| {
            let upper = store.sets.of(tenant_of(ticket));
            let encoder = Encoder::from_upper_parameters(&looked_up(), 1, upper).unwrap();
            Answer {
                ticket,
                class: expected_class(&tables, &encoder, None, ticket),
            }
        })
        .collect();
    for pipeline in [PipelineSpec::SYNCHRONOUS, PipelineSpec::PREFETCH] {
        let own = system(TenantState::Model, BatchSpec::PerTenant { max_size: 4 }, pipeline);
        let (record, answers) = serve(&with_plot(own, PLOT), 3, |_| {});
        assert!(record.swaps.unwrap().evictions > 0);
        assert_eq!(answers, expected, "{pipeline:?}");
    }
}

/// The root table is cut under its reader: whose rows are gone fails with the reason, the others are served, and nothing else stops.
#[test]
fn a_table_cut_under_its_reader_fails_the_batches_that_need_what_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let plot = PlotSpec {
        tier: Tier::Disk,
        ..PLOT
    };
    for pipeline in PIPELINES {
        let tables = tables(&folder, &plot);
        let path = tables.snapshot().root().tables()[0].path().to_path_buf();
        let whole = std::fs::read(&path).unwrap();
        let system = with_plot(
            system(adapters(AdapterImplementation::Loop), ONE_BY_ONE, pipeline),
            plot,
        );
        let (record, answers) = serve_with(&system, 9, Some(tables), |_| {
            // The most frequent fragments' rows lie at the beginning.
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 / 3).unwrap();
        });
        std::fs::write(&path, &whole).unwrap();
        let failed = record.failed.get(&FailureReason::LookupFailed).copied();
        assert_eq!(failed, Some(record.counts.failed), "{:?}", record.failed);
        assert_eq!(record.counts.failed + record.counts.served, REQUESTS);
        assert!(
            record.counts.served > 0,
            "short texts and those of frequent fragments are still found"
        );
        assert_eq!(answers.len() as u64, record.counts.served);
    }
}
