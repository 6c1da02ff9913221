//! How a planned batch becomes an op: its mini-batches by task, on streams (PetS, section 3.4.3).

use super::*;

impl TaskServer {
    /// Submits a batch whose members wait no longer.
    pub(super) fn start(&mut self, now: Time, instance: InstanceId, planned: &Planned, commands: &mut Commands) {
        let mark = commands.mark();
        let mut shape = BatchShape {
            requests: planned.members.len() as u32,
            tokens: 0,
            input_tokens: 0,
            tenants: 0,
        };
        let (mut last_mini, mut last_tenant) = (None, None);
        for &(id, mini) in &planned.members {
            let request = &self.requests[id];
            let (tenant, input_tokens) = (request.tenant, request.input_tokens);
            shape.tokens = shape.tokens.max(input_tokens);
            shape.input_tokens += input_tokens;
            // A task's mini-batches are neighbours.
            shape.tenants += u32::from(last_tenant != Some(tenant));
            last_tenant = Some(tenant);
            commands.members.push(Member {
                request: id,
                ticket: request.ticket,
                tenant,
                input_tokens,
                slot: NO_SLOT,
                sequence: Sequence::default(),
            });
            if last_mini != Some(mini) {
                last_mini = Some(mini);
                let Entry::Loaded(task) = self.repository.entry(tenant) else {
                    unreachable!("only loaded tasks' queries are let in")
                };
                commands.groups.push(PetGroup {
                    task: tenant,
                    kind: task.kind,
                    count: 0,
                    tokens: 0,
                    stream: 0,
                });
            }
            let group = commands.groups.last_mut().expect("a member is in a group");
            group.count += 1;
            group.tokens = group.tokens.max(input_tokens);
        }
        let streams = match self.engine {
            EngineSpec::Shared { streams, .. } => {
                self.repository.counts.groups += (commands.groups.len() - mark.groups) as u64;
                self.assign_streams(streams, planned.model, &mut commands.groups[mark.groups..])
            }
            // One task's: its operators are in its full model, or behind it on the same stream.
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => {
                if !self.engine.has_operators(commands.groups[mark.groups].kind) {
                    commands.groups.truncate(mark.groups);
                }
                1
            }
        };
        let pet = OpKind::Pet(Pet {
            model: planned.model,
            streams,
        });
        let lane = self.topology.instances[instance.index()].compute;
        commands.ops.push(Op::alone(pet, lane));
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.extend_from_slice(&commands.members[mark.members..]);
        let batch = self.running.insert(Running::Pass {
            instance,
            submitted: now,
            members: kept,
        });
        for (id, _) in &planned.members {
            self.requests[*id].batch = Some(batch);
        }
        self.waiting -= shape.requests;
        self.instances[instance.index()].running += 1;
        commands.submit(batch, instance, shape, mark);
    }

    /// Puts groups on streams, and says how many there are.
    fn assign_streams(&mut self, streams: StreamsSpec, model: u16, groups: &mut [PetGroup]) -> u16 {
        self.operators.clear();
        self.operators.extend(groups.iter().map(|group| self.latencies.operator(model, group)));
        let count = match streams {
            StreamsSpec::ByProfile { many } => self.cheapest_streams(many, model, groups),
            StreamsSpec::Fixed { count } | StreamsSpec::Even { count } | StreamsSpec::InTurn { count } => {
                count.min(groups.len() as u32).max(1)
            }
            StreamsSpec::OneEach => groups.len() as u32,
        };
        let stream_of = match streams {
            StreamsSpec::OneEach => self.streams.one_each(groups.len()),
            StreamsSpec::Even { .. } => self.streams.evenly(&self.operators, count),
            StreamsSpec::InTurn { .. } => self.streams.in_turn(groups.len(), count),
            StreamsSpec::ByProfile { .. } | StreamsSpec::Fixed { .. } => {
                self.streams.by_intensity(&self.operators, count)
            }
        };
        put(groups, stream_of);
        u16::try_from(count).expect("a batch has fewer than 65,536 mini-batches")
    }

    /// How many streams operators take the least time on, by the card's tables (PetS, section 6.3.3); the fewest of
    /// equals.
    fn cheapest_streams(&mut self, many: u32, model: u16, groups: &mut [PetGroup]) -> u32 {
        self.alone_ns.clear();
        self.alone_ns.extend(self.operators.iter().map(|operator| operator.latency_ns));
        let mut cheapest = (u64::MAX, 1);
        for count in self.latencies.stream_counts(many, groups.len()) {
            put(groups, self.streams.by_intensity(&self.operators, count));
            let ns = self.latencies.layer_ns(model, groups, &self.alone_ns, count);
            cheapest = cheapest.min((ns, count));
        }
        cheapest.1
    }
}

/// Notes each group's stream.
fn put(groups: &mut [PetGroup], stream_of: &[u32]) {
    for (group, stream) in groups.iter_mut().zip(stream_of) {
        group.stream = *stream as u16;
    }
}
