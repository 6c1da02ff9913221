//! What decides a run: the tables that it reads, and no others.

use tenantry_core::SystemSpec;
use tenantry_core::in_time::Target;
use tenantry_core::spec::OrderSpec;
use tenantry_profiles::testing::{slowed, synthetic_card};
use tenantry_profiles::{Card, Family};
use tenantry_sim::{Jitter, Run, simulate};
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::{Duration, Entry, Listed, Time};

use crate::common::{answers, cascades, cluster, decoders, memory_for, request, runtimes, system, tasks};

const TENANTS: u32 = 4;

/// A system of each family with a few requests.
struct Case {
    card: Card,
    system: Box<dyn Fn(&Card) -> SystemSpec>,
    answers: Option<AnswersSpec>,
    memory: u64,
    entries: Vec<Entry>,
}

/// What decides a run and what came of it, each as text.
#[derive(Debug, PartialEq)]
struct Outcome {
    decided_by: String,
    record: String,
}

impl Case {
    fn outcome(&self, card: &Card, change: impl Fn(&mut Run<'_>)) -> Outcome {
        let system = (self.system)(card);
        let mut run = Run {
            answers: self.answers.as_ref().map(|answers| (answers, 1)),
            ..Run::new(card, cluster(1, self.memory), &system, TENANTS)
        };
        change(&mut run);
        let mut workload = Listed::new(self.entries.clone());
        let decided_by = run.decided_by(&workload).expect("the card has its tables");
        let done = simulate(&run, &mut workload, Default::default(), None).expect("the run is sound");
        Outcome {
            decided_by: decided_by.expect("its server reads no card"),
            record: format!("{:?}", done.record),
        }
    }

    /// The families of which a slower table changes the record.
    fn read(&self) -> Vec<Family> {
        let as_is = self.outcome(&self.card, |_| {});
        let changes = |family: &&Family| {
            let slower = self.outcome(&slowed(self.card.clone(), **family), |_| {});
            let changed = slower.record != as_is.record;
            assert!(!changed || slower.decided_by != as_is.decided_by, "{family} decides it");
            changed
        };
        Family::ALL.iter().filter(changes).copied().collect()
    }
}

fn entries(tokens: u32) -> Vec<Entry> {
    (0..8).map(|n| request(n, 100 * n, n as u32 % TENANTS, tokens)).collect()
}

fn encoders() -> Case {
    Case {
        card: synthetic_card(),
        system: Box::new(|_| system()),
        answers: None,
        memory: memory_for(&system(), TENANTS, 2),
        entries: entries(16),
    }
}

fn generating() -> Case {
    let system = || decoders::system(decoders::generation());
    Case {
        card: synthetic_card(),
        system: Box::new(move |_| system()),
        answers: None,
        memory: decoders::memory(&system(), 400),
        entries: (0..8).map(|n| decoders::request(n, 100 * n, n as u32 % TENANTS, 16, 4)).collect(),
    }
}

fn cascade() -> Case {
    let stages = || {
        let small = cascades::stage("tiny", &[0], Some((0.9, 10.0, None)));
        vec![small, cascades::stage("bert-base", &[0], None)]
    };
    Case {
        card: synthetic_card(),
        system: Box::new(move |_| cascades::routed(OrderSpec::OneByOne, stages())),
        answers: Some(answers()),
        memory: cascades::MEMORY,
        entries: entries(16),
    }
}

fn of_lengths() -> Case {
    let spec = || runtimes::runtimes(runtimes::PAPER, runtimes::periodic(1));
    Case {
        card: runtimes::card(),
        system: Box::new(move |card| {
            let mut system = system();
            system.pool.runtimes = Some(spec().on(card, 3).expect("the card has its tables"));
            system.pool.instances_per_gpu = 3;
            system
        }),
        answers: None,
        memory: cascades::MEMORY,
        entries: entries(100),
    }
}

#[test]
fn what_a_run_reads_decides_it() {
    use Family::*;
    let read = [encoders(), generating(), cascade(), of_lengths()].map(|case| case.read());
    assert_eq!(
        read,
        [
            vec![EncoderLayer, Embedding, Head, Adapter, Copy, Dispatch],
            vec![
                Copy,
                Dispatch,
                DecoderDense,
                DecoderPrefill,
                DecoderDecode,
                DecoderEnds,
                Lora
            ],
            vec![EncoderLayer, Embedding, Head, Dispatch],
            vec![ModelLoad, Dispatch, StaticModel, Solve],
        ]
    );
}

#[test]
fn what_a_run_does_not_read_does_not_decide_it() {
    let case = encoders();
    let mut other = case.card.clone();
    other.device.name = "another".into();
    other.tables.decoder_dense.clear();
    other.tables.decoder_prefill.clear();
    other.tables.pet.clear();
    assert_eq!(case.outcome(&other, |_| {}), case.outcome(&case.card, |_| {}));
}

#[test]
fn what_else_a_run_is_told_decides_it() {
    type Change = fn(&mut Run<'_>);
    let changes: [(&str, Change); 4] = [
        ("seed", |run| run.seed = 2),
        ("warm_up", |run| run.warm_up = Time(1)),
        ("target", |run| {
            run.target = Some(Target::of_latency(Duration::from_millis(1)))
        }),
        ("jitter", |run| run.jitter = Jitter::Measured { seed: 1 }),
    ];
    for case in [encoders(), generating(), cascade()] {
        let as_is = case.outcome(&case.card, |_| {});
        for (what, change) in changes {
            assert_ne!(case.outcome(&case.card, change).decided_by, as_is.decided_by, "{what}");
        }
        let mut other = case.card.clone();
        other.contention.compute_beside_copy += 0.01;
        let beside = case.outcome(&other, |_| {});
        assert_ne!(beside.decided_by, as_is.decided_by, "contention");
        // A cascade copies nothing.
        assert_eq!(beside.record == as_is.record, case.answers.is_some());
    }
    let case = cascade();
    let other = |run: &mut Run<'_>| run.answers = run.answers.map(|(answers, _)| (answers, 2));
    assert_ne!(
        case.outcome(&case.card, other),
        case.outcome(&case.card, |_| {}),
        "answers' seed"
    );
}

#[test]
fn a_server_that_reads_the_card_is_decided_by_all_of_it() {
    let card = synthetic_card();
    let system = tasks::tasks(2);
    let run = Run::new(&card, cluster(1, 1 << 30), &system, 2);
    assert_eq!(
        run.decided_by(&Listed::new(Vec::new())).expect("the card has its tables"),
        None
    );
}
