//! Runtimes on real threads: what their instances hold, how wide they compute, and what becomes of answers while they
//! are replaced.

use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::op::{BatchShape, Infer, LoadRuntime, NO_SLOT, Sequence};
use tenantry_core::policy::levels::Rule;
use tenantry_core::spec::{
    AllocateSpec, PeriodicSpec, RuntimeLengths, RuntimeRef, RuntimeSpec, RuntimesSpec, ShapeKind, SolverSpec,
};

use super::*;

/// One request at a time, of tenants with heads of their own.
fn head() -> SystemSpec {
    system(TenantState::Head, ONE_BY_ONE, PipelineSpec::SYNCHRONOUS)
}

/// Of different vocabularies, so that the weights of neither are those of the other where they lie in the same place.
fn two_models() -> [ModelShape; 2] {
    let tiny = ModelShape::builtin("tiny").unwrap();
    let smaller = ModelShape {
        layers: 1,
        vocabulary: tiny.vocabulary / 2,
        ..tiny.clone()
    };
    [tiny, smaller]
}

/// What each model answers to all requests where it is the only one.
fn answers_alone(models: &[ModelShape; 2]) -> [Vec<Answer>; 2] {
    let alone = models.clone().map(|model| {
        let mut head = head();
        head.pool.model = model;
        serve(&head, 0, |_| {}).1
    });
    assert_ne!(alone[0], alone[1], "the models tell inputs apart differently");
    alone
}

/// Runtimes of two lengths of each model, on three threads, replaced every few milliseconds.
fn with_runtimes(mut system: SystemSpec, models: &[ModelShape]) -> SystemSpec {
    let pool = &mut system.pool;
    pool.instances_per_gpu = 3;
    let stream = |model: &ModelShape| StreamSpec {
        name: model.name.clone(),
        model: model.clone(),
        dtype: pool.dtype,
        classes: pool.classes,
        slo: Duration::from_millis(100),
        runtimes: [8, 20]
            .map(|max_length| RuntimeSpec {
                max_length,
                shape: ShapeKind::Static,
            })
            .to_vec(),
        lengths: RuntimeLengths::Given,
        service: vec![Duration::from_micros(300), Duration::from_micros(600)],
    };
    pool.runtimes = Some(RuntimesSpec {
        streams: models.iter().map(stream).collect(),
        dispatch: Rule::LeastPadding,
        allocate: AllocateSpec::Periodic(PeriodicSpec {
            period: Duration::from_millis(2),
            first: Duration::from_millis(2),
            at_once: 1,
            solver: SolverSpec::Dynamic,
        }),
        scale: None,
    });
    system
}

/// Two request streams on the same threads: each is answered by its own model, whatever an instance served before.
#[test]
fn streams_are_answered_by_their_own_models() {
    let models = two_models();
    let alone = answers_alone(&models);
    let of_stream = |ticket: u64| (ticket % 2) as usize;
    let entries = requests(Time::ZERO).into_iter().map(|entry| match entry {
        Entry::Request(request) => Entry::Request(Request {
            class: of_stream(request.ticket) as u16,
            ..request
        }),
        other => other,
    });
    let streams = with_runtimes(head(), &models);
    let (record, answers) = serve_entries(&streams, 0, None, entries.collect(), |_| {});
    assert_eq!(record.counts.served, REQUESTS);
    let expected = |ticket: u64| alone[of_stream(ticket)][ticket as usize];
    assert_eq!(answers, (0..REQUESTS).map(expected).collect::<Vec<_>>());
}

/// Runtimes of two lengths on two threads: what a request is padded to does not change its answer, and instances change
/// their runtimes as a solver on a lane of its own says.
#[test]
fn runtimes_answer_as_the_model_does_while_they_are_replaced() {
    let (_, expected) = serve(&head(), 0, |_| {});
    let runtimes = with_runtimes(head(), &[head().pool.model]);
    let (record, answers) = serve(&runtimes, 0, |_| {});
    assert_eq!(record.counts.served, REQUESTS);
    assert_eq!(answers, expected);
    let fleet = record.fleet.unwrap();
    assert!(fleet.decisions > 0 && fleet.allocations[0].1 == [1, 2], "{fleet:?}");
}

/// The same where static runtimes are compiled, as on a GPU: an instance computes what was loaded last, and a runtime's
/// length is not its answer.
#[test]
fn compiled_runtimes_answer_as_padded_ones_do() {
    let models = two_models();
    let alone = answers_alone(&models);
    let (_, _, mut serving) = provisioned(&with_runtimes(head(), &models), 0, None);
    assert!(serving.static_runtimes().is_empty(), "a processor compiles nothing");
    serving.compiles = true;
    let lengths: Vec<_> = serving.static_runtimes().into_values().collect();
    assert_eq!(lengths, [8, 20, 8, 20]);
    let mut instance = Instance::of(&serving);
    instance.computes.prepare().unwrap();
    assert_eq!(instance.computes.compiled.len(), 4, "before the first request");
    assert_eq!(instance.infer(0), (alone[0].clone(), Vec::new()));
    assert_eq!(instance.load(1), None);
    assert_eq!(instance.infer(1), (alone[1].clone(), Vec::new()));
    assert_ne!(instance.infer(0).0, alone[0], "the other was loaded over it");

    // Without a lane's preparation, at the first request.
    let mut instance = Instance::of(&serving);
    assert_eq!(instance.load(0), None);
    assert_eq!(instance.infer(0), (alone[0].clone(), Vec::new()));
    assert_eq!(instance.computes.compiled.len(), 1);
}

/// Also where passes before the run fail: what is not compiled then would be in the middle of it. Those passes are of
/// one request, as all others.
#[test]
fn runtimes_are_compiled_whatever_fails_before() {
    let (_, _, mut serving) = provisioned(&with_runtimes(head(), &two_models()), 0, None);
    serving.compiles = true;
    let mut computes = Instance::of(&serving).computes;
    assert_eq!(computes.largest_batch, 1);
    // Half of the pass is to be where the model is not, or nowhere.
    (computes.looks_up, computes.device) = (true, Device::Cuda(0));
    computes.prepare().unwrap_err();
    assert_eq!(computes.compiled.len(), 4);
}

/// A request padded to so many tokens, on the first instance.
fn padded(ticket: u64, tokens: u32) -> Batch {
    let input_tokens = tokens_of(ticket);
    let member = Member {
        request: RequestId { slot: 0, generation: 0 },
        ticket,
        tenant: tenant_of(ticket),
        input_tokens,
        slot: NO_SLOT,
        sequence: Sequence::default(),
    };
    let shape = BatchShape {
        requests: 1,
        tokens,
        input_tokens,
        tenants: 1,
    };
    Batch {
        members: vec![member],
        ..nobodys(shape)
    }
}

/// The first instance's, without requests.
fn nobodys(shape: BatchShape) -> Batch {
    Batch::new(InstanceId(0), shape, Vec::new())
}

/// The first instance's two lanes.
struct Instance {
    copies: HostLane,
    computes: ComputeLane,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Instance {
    fn of(serving: &Serving) -> Instance {
        let (bad, answers) = (BadSlots::default(), Arc::default());
        Instance {
            copies: serving.host_lane(&bad),
            computes: serving.compute_lane(0, &bad, &answers),
            answers,
        }
    }

    /// Why a stream's model could not be loaded.
    fn load(&mut self, stream: u16) -> Option<FailureReason> {
        let load = LoadRuntime {
            runtime: RuntimeRef { stream, runtime: 1 },
            bytes: 0,
        };
        let batch = nobodys(BatchShape::NOTHING);
        self.copies.perform(&OpKind::LoadRuntime(load), &batch);
        let failures = batch.failures.into_inner().unwrap();
        failures.first().map(|failure| failure.reason)
    }

    /// All requests through a stream's longer runtime: what was answered, and why some failed.
    fn infer(&mut self, stream: u16) -> (Vec<Answer>, Vec<FailureReason>) {
        let runtime = RuntimeRef { stream, runtime: 1 };
        let mut failed = Vec::new();
        for ticket in 0..REQUESTS {
            let batch = padded(ticket, 20);
            self.computes.perform(&OpKind::Infer(Infer { runtime }), &batch);
            failed.extend(batch.failures.into_inner().unwrap().iter().map(|failure| failure.reason));
        }
        (std::mem::take(&mut *self.answers.lock().unwrap()), failed)
    }
}

/// An instance holds the model that it was deployed with or that was loaded last, and no other stream's; a load that
/// fails is told.
#[test]
fn an_instance_has_the_model_that_was_loaded_last() {
    let models = two_models();
    let alone = answers_alone(&models);
    let (_, server, mut serving) = provisioned(&with_runtimes(head(), &models), 0, None);
    assert_eq!(server.streams_of_instances(), [Some(0), Some(1), Some(1)]);
    let none = Vec::new();
    let mut instance = Instance::of(&serving);
    assert_eq!(instance.infer(0), (alone[0].clone(), none.clone()));
    assert_ne!(instance.infer(1).0, alone[1], "its model is elsewhere");
    assert_eq!(instance.load(1), None);
    assert_eq!(instance.infer(1), (alone[1].clone(), none.clone()));
    assert_ne!(instance.infer(0).0, alone[0], "the other was loaded over it");

    let mut wider = models[0].clone();
    wider.vocabulary += 1;
    serving.others[0].weights = Encoder::random(&wider, SEED, DType::F32, Device::Cpu).unwrap();
    let mut instance = Instance::of(&serving);
    assert_eq!(
        instance.load(1),
        Some(FailureReason::LoadFailed),
        "it does not fit where it belongs"
    );
    assert_eq!(instance.load(0), None);
    assert_eq!(instance.infer(0), (alone[0].clone(), none));
}

/// What is computed is as wide as the batch says: a static runtime's length, or a dynamic one's request.
#[test]
fn runtimes_compute_all_that_they_pad() {
    let runtimes = with_runtimes(head(), &[head().pool.model]);
    let (.., serving) = provisioned(&runtimes, 0, None);
    let computes = Instance::of(&serving).computes;
    for (ticket, tokens) in [(6, 20), (6, 8), (6, 7), (19, 20)] {
        let under_way = computes.begin(&padded(ticket, tokens), true).unwrap();
        let hidden = i64::from(runtimes.pool.model.hidden);
        assert_eq!(under_way.hidden.size(), [1, i64::from(tokens), hidden]);
    }
}
