//! Prompts are looked up beside what runs, and join when what was found lies on the card (HMI, section 6: the next
//! batch's retrieval is hidden behind this one's compute). What a step makes itself is looked up by the next
//! ([`LookupsInSteps`]).

use super::step::member;
use super::*;
use crate::op::{Lookup, Stage};

impl GenerationServer {
    /// Looks up what of a request must come into its instance's cache: its prompt and, after an eviction, what it had
    /// generated.
    pub(super) fn retrieve(&mut self, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let batch = self.flights.insert(Flight::Retrieve { instance, request: id });
        let sequence = &mut self.sequences[id];
        sequence.retrieval = Retrieval::Coming(batch);
        let tokens = sequence.to_prefill;
        let mark = commands.mark();
        let mut member = member(id, sequence);
        member.sequence.chunk_tokens = tokens;
        commands.members.push(member);
        let lanes = self.topology.instances[instance.index()];
        commands.ops.push(Op {
            kind: OpKind::Lookup(Lookup {
                tokens,
                fragments: tokens,
            }),
            lane: lanes.lookup,
            after: After::NONE,
            behind: false,
            told: false,
        });
        commands.ops.push(Op {
            kind: OpKind::Stage(Stage {
                bytes: u64::from(tokens) * self.row_bytes,
            }),
            lane: lanes.copy,
            after: After::op(0),
            behind: false,
            told: true,
        });
        let shape = BatchShape {
            requests: 1,
            tokens,
            input_tokens: tokens,
            tenants: 1,
        };
        commands.submit(batch, instance, shape, mark);
    }

    pub(super) fn retrieved(
        &mut self,
        now: Time,
        done: &Done<'_>,
        instance: InstanceId,
        id: RequestId,
        commands: &mut Commands,
    ) {
        let coming = Retrieval::Coming(done.batch);
        let here = |sequence: &&mut Sequence| sequence.place == Place::Instance(instance);
        let Some(sequence) = self.sequences.get_mut(id).filter(here) else {
            // It has left meanwhile.
            commands.list.push(Command::Release { instance, request: id });
            return;
        };
        if sequence.retrieval != coming {
            // It left and came back: what is looked up for it anew takes the place of this.
            return;
        }
        sequence.retrieval = Retrieval::There;
        if let Some(failure) = done.failures.first() {
            self.leave(now, id, instance, commands);
            self.finish(now, id, Verdict::Failed(failure.reason), commands);
            self.dispatch(now, commands);
        } else {
            self.interrupt_if_ready(instance, commands);
        }
        self.advance(now, instance, commands);
    }
}
