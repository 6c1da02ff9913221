//! What becomes of cards whose model cannot be loaded. The virtual machine lets no load fail: this one does, and takes
//! as long for each of the others.

use std::collections::BTreeMap;

use crate::common::{cascades, cluster, runtimes};
use tenantry_core::command::{Command, Commands, FailureReason, Verdict};
use tenantry_core::event::{Answer, BatchTiming, Done, MemberFailure};
use tenantry_core::ids::{BatchId, InstanceId, LaneId};
use tenantry_core::op::{OpKind, Submission};
use tenantry_core::policy::fleet::{Allocated, Question};
use tenantry_core::policy::levels::Rule;
use tenantry_core::spec::{ScaleSpec, ShapeKind, SystemSpec};
use tenantry_core::{Event, Server};
use tenantry_solver::answer_or_keep;
use tenantry_traces::{Duration, Entry, Request, Time};

/// A batch, a load, an answer of the solver.
const EACH: Duration = Duration::from_millis(10);

enum Pending {
    Arrival(Request),
    Timer(InstanceId),
    Ended(Ended),
}

struct Ended {
    batch: BatchId,
    op: u32,
    members: usize,
    timing: BatchTiming,
    failures: Vec<MemberFailure>,
    question: Option<Question>,
}

/// Loads fail on one instance.
struct Machine {
    server: Server,
    failing: InstanceId,
    pending: BTreeMap<(Time, u64), Pending>,
    made: u64,
    free: BTreeMap<LaneId, Time>,
    served: u64,
    loads: BTreeMap<InstanceId, u64>,
    batches: BTreeMap<InstanceId, u64>,
}

impl Machine {
    fn run(server: Server, failing: u32, entries: impl IntoIterator<Item = Entry>) -> (Machine, Time) {
        let mut machine = Machine {
            server,
            failing: InstanceId(failing),
            pending: BTreeMap::new(),
            made: 0,
            free: BTreeMap::new(),
            served: 0,
            loads: BTreeMap::new(),
            batches: BTreeMap::new(),
        };
        for entry in entries {
            let Entry::Request(request) = entry else {
                unreachable!("only requests come")
            };
            machine.expect(request.arrival, Pending::Arrival(request));
        }
        let mut now = Time::ZERO;
        while let Some(((at, _), pending)) = machine.pending.pop_first() {
            now = at;
            machine.hears(now, &pending);
        }
        (machine, now)
    }

    fn expect(&mut self, at: Time, what: Pending) {
        self.made += 1;
        self.pending.insert((at, self.made), what);
    }

    fn hears(&mut self, now: Time, what: &Pending) {
        let mut commands = Commands::default();
        match what {
            Pending::Arrival(request) => self.server.handle(now, &Event::Arrived(*request), &mut commands),
            Pending::Timer(instance) => self.server.handle(now, &Event::Timer(*instance), &mut commands),
            Pending::Ended(ended) => {
                let allocated: Option<Allocated> = ended.question.as_ref().map(answer_or_keep);
                let sure = Answer {
                    confidence_ppm: 1_000_000,
                    next_tokens: 1,
                };
                let done = Done {
                    batch: ended.batch,
                    op: ended.op,
                    timing: ended.timing,
                    failures: &ended.failures,
                    run: None,
                    allocation: allocated.as_ref(),
                    plan: None,
                    answers: &vec![sure; ended.members],
                };
                self.server.handle(now, &Event::Done(done), &mut commands);
            }
        }
        self.server.check_laws(now).unwrap();
        for command in &commands.list {
            match command {
                Command::Submit(submission) => self.submit(now, submission, &commands),
                Command::SetTimer { instance, at } => self.expect(*at, Pending::Timer(*instance)),
                Command::Finish(finish) => {
                    assert_eq!(finish.verdict, Verdict::Served, "ticket {}", finish.ticket);
                    self.served += 1;
                }
                _ => unreachable!("nothing else is asked of those who share a model"),
            }
        }
    }

    fn submit(&mut self, now: Time, submission: &Submission, commands: &Commands) {
        let [op] = &commands.ops[submission.ops.clone()] else {
            unreachable!("all is one op")
        };
        let Submission { batch, instance, .. } = *submission;
        let (mut failures, mut question) = (Vec::new(), None);
        match op.kind {
            OpKind::LoadModel(_) | OpKind::LoadRuntime(_) => {
                *self.loads.entry(instance).or_default() += 1;
                if instance == self.failing {
                    failures.push(MemberFailure {
                        member: 0,
                        reason: FailureReason::LoadFailed,
                    });
                }
            }
            OpKind::Solve(solve) => question = Some(commands.questions[solve.question as usize].clone()),
            _ => *self.batches.entry(instance).or_default() += 1,
        }
        let free = self.free.entry(op.lane).or_insert(now);
        let begun = now.max(*free);
        let ended = begun + EACH;
        *free = ended;
        let timing = BatchTiming {
            lane: begun.since(now),
            stall: Duration::ZERO,
            busy: EACH,
            ended,
        };
        let what = Ended {
            batch,
            op: 0,
            members: submission.members.len(),
            timing,
            failures,
            question,
        };
        self.expect(ended, Pending::Ended(what));
    }

    fn loads_that_failed(&self) -> u64 {
        self.loads[&self.failing]
    }

    fn batches_where_loads_fail(&self) -> Option<&u64> {
        self.batches.get(&self.failing)
    }
}

fn server(system: &SystemSpec, gpus: u32) -> Server {
    Server::new(&cluster(gpus, cascades::MEMORY), system, runtimes::TENANTS).unwrap()
}

/// Requests of so many tokens, so many microseconds apart.
fn every(gap_us: u64, count: u64, tokens: u32) -> impl Iterator<Item = Entry> {
    (0..count).map(move |ticket| crate::common::request(ticket, ticket * gap_us, 0, tokens))
}

/// Twice what one card does: the card that cannot load its model is given back, asked for again each second, and never
/// used.
#[test]
fn a_stage_gives_a_card_back_that_could_not_load_its_model() {
    use cascades::{alone, one_by_one, stage};
    let mut system = alone(one_by_one(stage("bert-base", &[0, 1, 2], None)));
    system.route.as_mut().expect("it has one").stages[0].scale = Some(runtimes::headroom(1, 3));
    let (machine, end) = Machine::run(server(&system, 3), 1, every(5_000, 1_000, 40));
    assert_eq!(machine.served, 1_000);
    assert_eq!(machine.batches_where_loads_fail(), None);
    assert!(machine.loads_that_failed() >= 3, "{:?}", machine.loads);
    let scaling = machine.server.scaling(end).expect("its cards come and go");
    let kept = scaling.cards.last().expect("some were remembered").1[0];
    assert_eq!(1 + scaling.added - scaling.released, u64::from(kept), "{scaling:?}");
    assert!(machine.batches[&InstanceId(2)] > 300, "{:?}", machine.batches);
}

/// The same for a fleet of runtimes of one length.
#[test]
fn a_fleet_gives_a_card_back_that_could_not_load_its_runtime() {
    let mut spec = runtimes::runtimes(Rule::LeastPadding, runtimes::fixed(&[1]));
    spec.streams = vec![runtimes::stream("all", &[512], ShapeKind::Static)];
    spec.scale = Some(ScaleSpec {
        cards_at_start: 1,
        ..runtimes::headroom(1, 3)
    });
    let system = runtimes::of(&spec, 1);
    let (machine, end) = Machine::run(server(&system, 3), 1, every(5_000, 1_000, 500));
    assert_eq!(machine.served, 1_000);
    assert_eq!(machine.batches_where_loads_fail(), None);
    assert!(machine.loads_that_failed() >= 3, "{:?}", machine.loads);
    let fleet = machine.server.fleet(end).expect("it is one");
    let loads: u64 = machine.loads.values().sum();
    assert_eq!(
        (fleet.added, fleet.released),
        (loads, machine.loads_that_failed()),
        "{fleet:?}"
    );
    assert!(machine.batches[&InstanceId(2)] > 300, "{:?}", machine.batches);
    // It is paid for only while it starts up and loads.
    let failing_s = machine.loads_that_failed() as f64 * (0.5 + EACH.as_secs_f64());
    let others_s = 2.0 * end.as_secs_f64();
    assert!(fleet.card_time.as_secs_f64() < failing_s + others_s, "{fleet:?}");
}

/// Of a card with two instances the other serves alone, and the card goes like any other when it is not needed.
#[test]
fn a_card_stays_while_one_of_its_instances_could_load_its_runtime() {
    let mut spec = runtimes::runtimes(Rule::LeastPadding, runtimes::fixed(&[2]));
    spec.streams = vec![runtimes::stream("all", &[512], ShapeKind::Static)];
    spec.scale = Some(runtimes::headroom(1, 2));
    let rush = every(4_000, 1_000, 500);
    let calm = (0..50).map(|n| runtimes::at(1_000 + n, 4_200 + 200 * n, 500));
    let system = runtimes::of(&spec, 2);
    let (machine, end) = Machine::run(server(&system, 2), 2, rush.chain(calm));
    assert_eq!((machine.served, machine.loads_that_failed()), (1_050, 1));
    assert_eq!(machine.batches_where_loads_fail(), None);
    assert!(machine.batches[&InstanceId(3)] > 200, "{:?}", machine.batches);
    let fleet = machine.server.fleet(end).expect("it is one");
    assert_eq!((fleet.added, fleet.released), (1, 1), "{fleet:?}");
}

/// All requests are of one length: instances change to its runtime, but for one, which serves nobody from then on, and
/// is part of no later allocation.
#[test]
fn an_instance_that_could_not_load_its_next_runtime_is_out_of_the_fleet() {
    let spec = runtimes::runtimes(Rule::LeastPadding, runtimes::periodic(500));
    let mut failed_in_all = 0;
    for failing in 0..8 {
        for (tokens, instances_per_gpu) in [(100, 1), (500, 1), (100, 2), (500, 2)] {
            let system = runtimes::of(&spec, instances_per_gpu);
            let gpus = 8 / instances_per_gpu;
            let entries = every(1_700, 3_000, tokens);
            let (machine, end) = Machine::run(server(&system, gpus), failing, entries);
            assert_eq!(machine.served, 3_000);
            let fleet = machine.server.fleet(end).expect("it is one");
            let failed = machine.loads.get(&InstanceId(failing)).copied().unwrap_or(0);
            assert!(failed <= 1, "{fleet:?}");
            failed_in_all += failed;
            let loads: u64 = machine.loads.values().sum();
            assert_eq!(fleet.replaced, loads - failed);
            assert!(fleet.replaced > 0 && fleet.decisions > 3, "{fleet:?}");
            let last = &fleet.allocations.last().expect("some were remembered").1;
            assert_eq!(u64::from(last.iter().sum::<u32>()), 8 - failed, "{fleet:?}");
        }
    }
    assert!(failed_in_all > 4, "{failed_in_all} changed at all");
}
