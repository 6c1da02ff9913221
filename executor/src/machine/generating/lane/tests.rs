use tenantry_core::ids::InstanceId;
use tenantry_core::op::{BatchShape, NO_SLOT, Sequence};
use tenantry_core::spec::LookupsInSteps;
use tenantry_profiles::{DType, ModelShape};

use super::*;
use crate::machine::generating::tenants::Store;

fn lane() -> RunLane {
    let model = ModelShape::builtin("tiny-llama").unwrap();
    let serving = GenerationServing {
        device: Device::Cpu,
        seed: 1,
        vocabulary: model.vocabulary.into(),
        decoder: Some(Decoder::random(&model, 1, DType::F32, Device::Cpu).unwrap()),
        cards: None,
        retrieval: None,
        store: Store::None,
        slots: vec![Slots::None],
        caches: vec![KvCache::new(&model, 0..2, 20, 4, DType::F32, Device::Cpu).unwrap()],
        end_of_sequence: None,
        shared_prefix_tokens: 0,
        generated: GeneratedTokens::default(),
        manager: crate::machine::managing::Manager::new(None, None),
        disk: None,
        places: vec![Places::new(20)],
        prefill_instances: 0,
    };
    RunLane::new(&serving, 0)
}

fn prompt(slot: u32) -> Member {
    Member {
        request: RequestId { slot, generation: 0 },
        ticket: slot.into(),
        tenant: 0,
        input_tokens: 6,
        slot: NO_SLOT,
        sequence: Sequence {
            prefix: None,
            cached_tokens: 0,
            chunk_tokens: 6,
            completes: true,
            generated_tokens: 0,
            output_tokens: 50,
        },
    }
}

fn batch(members: Vec<Member>) -> Batch {
    let shape = BatchShape {
        requests: members.len() as u32,
        tokens: 0,
        input_tokens: 0,
        tenants: 1,
    };
    Batch::new(InstanceId(0), shape, members)
}

fn steps(max_steps: u32, going_on: GoingOn) -> OpKind {
    OpKind::Run(Run {
        max_steps,
        until: Until::FirstEnds,
        lookups: LookupsInSteps::None,
        going_on,
    })
}

const NOBODY: GoingOn = GoingOn {
    requests: 0,
    cached_tokens: 0,
};

fn outcome(batch: &Batch) -> (u32, Vec<Failed>) {
    let outcome = batch.outcome.lock().unwrap().clone().unwrap();
    (outcome.steps, outcome.failed)
}

#[test]
fn a_prompt_that_fails_does_not_fail_the_others() {
    let mut lane = lane();
    let first = batch(vec![prompt(0)]);
    lane.perform(&steps(3, NOBODY), &first);
    assert_eq!(outcome(&first), (3, Vec::new()));

    // The second's prompt is beyond the vocabulary.
    let spoilt = Held {
        ids: vec![1_000_000; 6],
        table: Vec::new(),
        shared_pages: 0,
    };
    lane.held.insert(prompt(1).request, spoilt);
    let first_goes_on = GoingOn {
        requests: 1,
        cached_tokens: 8,
    };
    let both = batch(vec![prompt(1)]);
    lane.perform(&steps(9, first_goes_on), &both);
    let failure = Failed {
        request: prompt(1).request,
        reason: FailureReason::ComputeFailed,
    };
    assert_eq!(outcome(&both), (1, vec![failure]), "the server hears of it at once");
    assert_eq!(lane.generated.lock().unwrap()[&0].len(), 4);

    lane.release(prompt(0).request);
    let alone = batch(vec![prompt(1)]);
    lane.perform(&steps(9, NOBODY), &alone);
    assert_eq!(outcome(&alone), (0, vec![failure]));
    lane.release(prompt(1).request);
    assert!(lane.held.is_empty());
}

#[test]
fn an_interrupt_ends_a_run_at_its_next_step() {
    let mut lane = lane();
    let interrupted = batch(vec![prompt(0)]);
    interrupted.interrupted.store(true, Ordering::Relaxed);
    lane.perform(&steps(30, NOBODY), &interrupted);
    assert_eq!(outcome(&interrupted).0, 1);
}

#[test]
fn where_all_wait_for_the_longest_its_length_is_the_runs() {
    let mut lane = lane();
    let of = |slot, output_tokens| {
        let mut member = prompt(slot);
        member.sequence.output_tokens = output_tokens;
        member
    };
    let all = batch(vec![of(0, 4), of(1, 7), of(2, 2)]);
    let kind = OpKind::Run(Run {
        max_steps: 30,
        until: Until::AllEnd,
        lookups: LookupsInSteps::None,
        going_on: NOBODY,
    });
    lane.perform(&kind, &all);
    let ended = all.outcome.lock().unwrap().clone().unwrap().ended;
    let steps: Vec<(u32, u32)> = ended.iter().map(|end| (end.request.slot, end.step)).collect();
    assert_eq!(steps, [(0, 4), (1, 7), (2, 2)]);
    let generated = lane.generated.lock().unwrap();
    assert_eq!([0, 1, 2].map(|ticket| generated[&ticket].len()), [4, 7, 2]);
}

/// However many runs its steps fall into.
#[test]
fn who_waits_for_the_longest_makes_nothing_in_further_runs() {
    let mut lane = lane();
    let of = |slot, output_tokens| {
        let mut member = prompt(slot);
        member.sequence.output_tokens = output_tokens;
        member
    };
    let mut ended = |max_steps, going_on, members| {
        let kind = OpKind::Run(Run {
            max_steps,
            until: Until::AllEnd,
            lookups: LookupsInSteps::None,
            going_on,
        });
        let run = batch(members);
        lane.perform(&kind, &run);
        let ended = run.outcome.lock().unwrap().clone().unwrap().ended;
        ended.iter().map(|end| (end.request.slot, end.step)).collect::<Vec<_>>()
    };
    assert_eq!(ended(3, NOBODY, vec![of(0, 4), of(1, 7), of(2, 2)]), [(2, 2)]);
    let all = GoingOn {
        requests: 3,
        cached_tokens: 3 * 8,
    };
    assert_eq!(ended(30, all, Vec::new()), [(0, 1), (1, 4)]);
    let generated = lane.generated.lock().unwrap();
    assert_eq!([0, 1, 2].map(|ticket| generated[&ticket].len()), [4, 7, 2]);
}
