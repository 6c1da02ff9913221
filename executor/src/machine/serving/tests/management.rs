//! Tenants and domains come, change and go while others are served.

use super::*;

fn manage(change: Change) -> Entry {
    Entry::Manage(ManageRequest { at: Time::ZERO, change })
}

/// A tenant that is updated answers by its new version from then on, one that is deleted not at all, and all others as
/// ever.
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

/// While its layers come one by one, a slot's block is the one that was begun with; once it has come in whole nobody
/// holds it for the slot, so that a tenant that is deleted or replaced leaves host memory.
#[test]
fn what_has_come_in_whole_is_let_go_of() {
    let system = system(
        adapters(AdapterImplementation::GatherBmm),
        BATCHED,
        PipelineSpec::LAYERWISE,
    );
    let (_, _, serving) = provisioned(&system, 5, None);
    let mut lane = serving.host_lane(&BadSlots::default());
    let mut batch = Batch::new(InstanceId(0), BatchShape::NOTHING, Vec::new());
    batch.loads = vec![Load { tenant: 1, slot: 0 }, Load { tenant: 2, slot: 3 }];
    let all = Layers::all(system.pool.model.layers);
    let one_by_one: Vec<Layers> = all.each().collect();
    for (copies, expected) in [(&one_by_one[..], &[2, 0][..]), (&[all], &[0])] {
        let held: Vec<usize> = copies
            .iter()
            .map(|&layers| {
                let copy = CopyIn {
                    layers,
                    chunks: 1,
                    chunk_bytes: 1,
                };
                lane.perform(&OpKind::CopyIn(copy), &batch);
                lane.begun.len()
            })
            .collect();
        assert_eq!(held, expected);
    }
    assert!(batch.failures.lock().unwrap().is_empty());
}

/// A lane whose op after so many others begins when all who hold the gate's other end have let go of it.
struct Gated {
    lane: Box<dyn Perform>,
    before: u32,
    gate: Option<Receiver<()>>,
}

impl Perform for Gated {
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        self.lane.prepare()
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        match self.before.checked_sub(1) {
            Some(before) => self.before = before,
            None => {
                if let Some(gate) = self.gate.take() {
                    assert_eq!(gate.recv_timeout(NEVER), Err(RecvTimeoutError::Disconnected));
                }
            }
        }
        self.lane.perform(kind, batch);
    }
}

/// Lanes of which the one of a kind begins its op after so many others when the gate is opened.
fn behind(lanes: Lanes, kind: LaneKind, before: u32, gate: Receiver<()>) -> Lanes {
    let mut gate = Some(gate);
    let gated = |(lane, perform): (Lane, Box<dyn Perform>)| match lane.kind == kind {
        true => {
            let gated = Gated {
                lane: perform,
                before,
                gate: gate.take(),
            };
            (lane, Box::new(gated) as Box<dyn Perform>)
        }
        false => (lane, perform),
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

/// A tenant is deleted while a batch with one of its requests runs: that request is answered as ever, those of it that
/// wait fail with the reason, later ones are refused, and the others never notice.
#[test]
fn a_tenant_is_deleted_in_flight() {
    const DELETED: u32 = 2;
    // All at once, the tenant's own first: one of them is in the first batch, and another behind all that a lane has in
    // hand.
    let mut burst: Vec<Request> = requests(Time::ZERO)
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Request(request) => Some(request),
            _ => None,
        })
        .collect();
    let own: Vec<u64> =
        burst.iter().filter(|request| request.tenant == DELETED).map(|request| request.ticket).collect();
    let (first, last) = (own[0], *own.last().unwrap());
    burst.sort_by_key(|request| match request.ticket {
        ticket if ticket == first => 0,
        ticket if own.contains(&ticket) => 2,
        _ => 1,
    });
    let mut entries: Vec<Entry> = burst
        .iter()
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
            |lanes| behind(lanes, LaneKind::Compute, 0, gate),
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
        let of_ticket = |ticket| answers.iter().find(|answer| answer.ticket == ticket);
        assert!(of_ticket(first).is_some(), "{pipeline:?}: what ran goes on");
        let lost = |answer: &Answer| !expected.contains(answer);
        assert!(!answers.iter().any(lost), "{pipeline:?}");
    }
}

/// A lane that says after each op what it did, until the listener has gone.
struct Telling {
    lane: Box<dyn Perform>,
    said: Sender<Said>,
}

/// What the lane that looks up did, or the one that reads what is new.
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

/// Lanes of which those tell that look up or read what is new.
fn told_of(lanes: Lanes, said: &Sender<Said>) -> Lanes {
    let telling = |(lane, perform): (Lane, Box<dyn Perform>)| match lane.kind {
        LaneKind::Lookup | LaneKind::Disk => {
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

/// Two versions of each domain's rows, in turns: from an update on a domain's requests are answered by the other, and
/// what was looked up before keeps what it found, although it computes later.
#[test]
fn an_update_of_a_domain_changes_the_answers_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = looked_up();
    let layers = |seed| LowerLayers::Encoder(Encoder::random(&model, seed, DType::F32, Device::Cpu).unwrap());
    let further = |domain, update| layers(100 + u64::from(100 * update + domain));
    let tables = tables_of(&folder, "updated", &PLOT, &layers(SEED), &further, true);
    let encoder = Encoder::random(&model, SEED, DType::F32, Device::Cpu).unwrap();
    let expected =
        || -> Vec<u32> { (0..REQUESTS).map(|ticket| expected_class(&tables, &encoder, None, ticket)).collect() };
    let update_all = || (0..PLOT.domains).for_each(|domain| tables.reload(domain).unwrap());
    let first = expected();
    update_all();
    let second = expected();
    update_all();
    assert_eq!(expected(), first, "the versions take turns");

    // A batch of eight is looked up first, half of whose answers an update changes. Then all domains are updated, and
    // only then is it computed and are others looked up.
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
    let entries = early.into_iter().chain((0..PLOT.domains).map(update)).chain(late);
    let (said, told) = mpsc::channel();
    let (looked_up, updates) = mpsc::channel();
    let (updated, computing) = mpsc::channel();
    let (updated_too, look_ups) = mpsc::channel();
    let (forward, order) = mpsc::channel();
    // Opens the gates.
    let listener = std::thread::spawn(move || {
        let (mut left, mut before, mut after) = (PLOT.domains, Some(looked_up), Some([updated, updated_too]));
        for said in told {
            match said {
                Said::LookedUp(_) => before = None,
                Said::Updated(_) => left -= 1,
            }
            if left == 0 {
                after = None;
            }
            forward.send(said).unwrap();
        }
        drop((before, after));
    });
    // A batch is begun when it is full, though a slow machine take a while to hear of its requests.
    let batch = BatchSpec::SizeOrTimeout {
        max_size: 8,
        max_wait: Duration::from_secs(1),
    };
    let system = with_plot(system(TenantState::Head, batch, PipelineSpec::PREFETCH), PLOT);
    let (record, answers) = serve_entries_between(
        &system,
        0,
        Some(tables.clone()),
        entries.collect(),
        |_| {},
        |lanes| {
            let lanes = behind(lanes, LaneKind::Disk, 0, updates);
            let lanes = behind(lanes, LaneKind::Compute, 0, computing);
            told_of(behind(lanes, LaneKind::Lookup, 1, look_ups), &said)
        },
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

/// A new version that cannot be read leaves the old one in use.
#[test]
fn an_update_that_fails_changes_nothing() {
    let system = system(adapters(AdapterImplementation::Loop), BATCHED, PipelineSpec::PREFETCH);
    let (_, expected) = serve(&system, 9, |_| {});
    let entries = requests(Time::ZERO).into_iter().chain([manage(Change::tenant(1, Action::Update))]);
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
