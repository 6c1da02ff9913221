//! What each pipeline runs at the same time.

use super::*;

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

/// A lane one op of which is held until an op of another lane runs beside it: neither ends before both have started,
/// however busy the machine is. Where the pipeline does not let them run at once, nobody comes.
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

/// Fig. 10 as it is executed: synchronously nothing runs beside anything; with retrieval ahead, the next batch is
/// looked up while one computes, and no adapters come in; with adapters ahead, the next batch's come in too; layer by
/// layer, the next layer's. What computes never runs beside what it needs. Each lane is busy with one op at a time, as
/// long as its ops take, and idle between them.
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
