//! Whole runs on real threads: what comes of them, and that their logs replay.

mod answers;
mod looked_up;
mod management;
mod runtimes;
mod side_by_side;

use std::ops::ControlFlow;
use std::sync::LazyLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};

use tempfile::TempDir;
use tenantry_core::board::OpRan;
use tenantry_core::command::{Refusal, RejectReason};
use tenantry_core::event::Event;
use tenantry_core::ids::RequestId;
use tenantry_core::log::{Log, replay};
use tenantry_core::op::{BatchShape, CopyIn, Load, Lookup, Manage, Sequence};
use tenantry_core::run::Observer;
use tenantry_core::spec::{BatchSpec, HeadTask, ParameterPipeline, PipelineSpec, PlotSpec, SystemSpec};
use tenantry_core::testing;
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
    domain_hits_ppm: 400_000,
    fallbacks_ppm: 100_000,
    ..testing::PLOT
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
    testing::system(PoolSpec {
        classes: 5,
        tenant_state,
        batch,
        pipeline,
        ..testing::pool("pool")
    })
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
        Some(runtimes) => runtimes.streams.iter().map(|stream| stream.model.head_parameters(stream.classes)).sum(),
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
    let cluster = testing::cluster(1, memory);
    let server = Server::new(&cluster, system, TENANTS).unwrap().with_management();
    let provision = Provision {
        tenants: TENANTS,
        slots: server.slots_per_instance(),
        seed: SEED,
        device: Device::Cpu,
        max_host_bytes: 1 << 30,
        interrupt: Arc::default(),
        tables,
        files: crate::Files::NONE,
    };
    let mut serving = Serving::new(pool, &server, provision).unwrap();
    serving.make_versions(&AtomicBool::default()).unwrap();
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
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let mut workload = Listed::new(entries);
    let threads = Threads::start(between(serving.lanes(&topology, &answers)), Arc::default())
        .unwrap()
        .counting(serving.lookups());
    let mut machine = RealMachine::new(&topology, threads);
    let end = run(&mut server, &mut workload, &mut machine, &mut ledger, (&mut log, watch)).unwrap();
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing
    // else.
    let mut fresh = Server::new(&cluster, system, TENANTS).unwrap().with_management();
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

/// Nobody waits so long for anything but what never comes.
const NEVER: std::time::Duration = std::time::Duration::from_secs(120);

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

/// What a request's class must be, from the parts alone: rows summed up, then the upper layers by `encoder`, then the
/// head.
fn expected_class(tables: &Tables, encoder: &Encoder, adapter: Option<(&AdapterCache, u32)>, ticket: u64) -> u32 {
    let (tenant, tokens) = (tenant_of(ticket), tokens_of(ticket) as usize);
    let model = encoder.shape();
    let mut found = vec![0.0; tokens * model.hidden as usize];
    let request = [(ticket, tenant, tokens as u32)];
    tables.retrieve(&Engine::new(1).unwrap(), request.into_iter(), tokens, &mut found).unwrap();
    let hidden = Tensor::from_slice(&found).view([1, tokens as i64, model.hidden.into()]);
    let input = Input::of_lengths(&[tokens], tokens, Kind::Float, Device::Cpu).unwrap();
    let plan = adapter.map(|(cache, slot)| cache.plan(&[slot], tokens, AdapterImplementation::Loop).unwrap());
    let adapters = adapter.zip(plan.as_ref()).map(|((cache, _), plan)| Adapters::new(cache, plan));
    let layers = PLOT.lower_layers as usize..model.layers as usize;
    let hidden = encoder.layers(hidden, layers, &input, adapters.as_ref()).unwrap();
    let heads = Heads::random(model, TENANTS, 5, SEED, DType::F32, Device::Cpu).unwrap();
    let logits = heads.forward(&hidden, &[tenant]).unwrap();
    logits.argmax(1, false).int64_value(&[0]) as u32
}

#[test]
fn a_batch_without_members_fails_as_one_and_another_is_lost_with_its_last() {
    let reason = FailureReason::LoadFailed;
    let loads_a_model = Batch::new(InstanceId(0), BatchShape::NOTHING, Vec::new());
    fail_all(&loads_a_model, reason);
    assert_eq!(
        *loads_a_model.failures.lock().unwrap(),
        [MemberFailure { member: 0, reason }]
    );
    let member = |tenant| Member {
        request: RequestId {
            slot: tenant,
            generation: 0,
        },
        ticket: tenant.into(),
        tenant,
        input_tokens: 8,
        slot: 0,
        sequence: Sequence::default(),
    };
    let batch = Batch::new(InstanceId(0), BatchShape::NOTHING, vec![member(0), member(1)]);
    assert!(!is_lost(&batch));
    for (tenant, lost) in [(0, false), (0, false), (1, true)] {
        fail_those(&batch, reason, |member| member.tenant == tenant);
        assert_eq!(is_lost(&batch), lost);
    }
}
