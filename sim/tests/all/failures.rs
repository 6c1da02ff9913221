//! What becomes of the others when a request fails in mid-run. The virtual machine lets none fail: the server hears of
//! it by hand.

use crate::common::cluster;
use crate::common::decoders::{TENANTS, generation, memory, request, system};
use tenantry_core::command::{Command, Commands, FailureReason, Verdict};
use tenantry_core::event::{BatchTiming, Done, Failed, RunOutcome};
use tenantry_core::ids::BatchId;
use tenantry_core::op::Member;
use tenantry_core::spec::GenerationSpec;
use tenantry_core::{Event, Server};
use tenantry_traces::{Entry, Time};

/// A server, and the commands that it gave last.
struct Told {
    server: Server,
    now: Time,
    commands: Commands,
}

impl Told {
    fn hears(&mut self, event: &Event<'_>) {
        self.now.0 += 1_000;
        self.commands.clear();
        self.server.handle(self.now, event, &mut self.commands);
        self.server.check_laws(self.now).unwrap();
    }

    fn arrives(&mut self, ticket: u64, tenant: u32) {
        let Entry::Request(request) = request(ticket, 0, tenant, 40, 9) else {
            unreachable!("it is a request")
        };
        self.hears(&Event::Arrived(request));
    }

    /// A run of one step is over, in which these requests failed.
    fn ran(&mut self, batch: BatchId, requests: u32, failed: &[Failed]) {
        let run = RunOutcome {
            requests,
            steps: 1,
            first_step_ended: self.now,
            marks: &[],
            ended: &[],
            failed,
        };
        let ended = self.now;
        self.hears(&Event::Done(Done {
            batch,
            op: 0,
            timing: BatchTiming {
                ended,
                ..BatchTiming::default()
            },
            failures: &[],
            run: Some(run),
            allocation: None,
            plan: None,
            answers: &[],
        }));
    }

    /// The run that was submitted, and whose prompts it takes in.
    fn run(&self) -> (BatchId, Vec<Member>) {
        let mut submitted = self.commands.list.iter().filter_map(|command| match command {
            Command::Submit(submission) => Some((submission.batch, self.commands.members(submission).to_vec())),
            _ => None,
        });
        submitted.next().expect("a run is submitted")
    }
}

/// Who fails in the step that takes its prompt in has computed nothing of what its tenant's prompts begin with, and has
/// made no token.
#[test]
fn what_a_failed_prompt_began_is_found_by_nobody() {
    let system = system(GenerationSpec {
        lora: None,
        shared_prefix_tokens: 32,
        ..generation()
    });
    let server = Server::new(&cluster(1, memory(&system, 64)), &system, TENANTS).unwrap();
    let mut told = Told {
        server,
        now: Time::ZERO,
        commands: Commands::default(),
    };
    told.arrives(0, 1);
    let (first, _) = told.run();
    told.arrives(1, 0);
    told.ran(first, 1, &[]);
    let (second, members) = told.run();
    let [fails] = members[..] else {
        panic!("one prompt is taken in: {members:?}")
    };
    assert_eq!((fails.ticket, fails.sequence.chunk_tokens), (1, 40));
    let reason = FailureReason::LoadFailed;
    let request = fails.request;
    told.ran(second, 2, &[Failed { request, reason }]);
    let finished = told.commands.list.iter().find_map(|command| match command {
        Command::Finish(finish) => Some((finish.ticket, finish.verdict, finish.output_tokens, finish.first_token)),
        _ => None,
    });
    assert_eq!(finished, Some((1, Verdict::Failed(reason), 0, None)));
    let (third, _) = told.run();
    told.arrives(2, 0);
    told.ran(third, 1, &[]);
    let (_, members) = told.run();
    let [next] = members[..] else {
        panic!("one prompt is taken in: {members:?}")
    };
    let sequence = next.sequence;
    assert_eq!((next.ticket, sequence.cached_tokens, sequence.chunk_tokens), (2, 0, 40));
}
