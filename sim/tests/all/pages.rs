//! The whole server under random arrivals, cancellations, evictions, migrations, shared prefixes, changes of tenants,
//! cards that come and go and prompts apart from tokens, beside an account of its own of where every page of the caches
//! is: none is lost or shared by mistake, all come back, and each request ends once.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::cluster;
use crate::common::decoders::{
    EVENTS_MAX, PAGE_TOKENS, TENANTS, entries, generation, memory, request, system, systems,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tenantry_core::ids::{BatchId, InstanceId, RequestId};
use tenantry_core::op::{GoingOn, Member, NO_SLOT, Op, OpKind, SharedPrefix, Submission};
use tenantry_core::spec::{GenerationSpec, LoraSpec, PlaceSpec, SystemSpec};
use tenantry_core::{Command, Commands, Event, Machine, Next, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Entry, Listed, Time, Workload};

/// Pages taken and given back in all scenarios together, at the least.
const OPERATIONS_MIN: u64 = 50_000_000;

/// Whose a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Request(RequestId),
    Prefix(u32),
}

/// What an instance's cache holds of a request from its first step there, or since it is copied there, until it is
/// released.
#[derive(Debug)]
struct Held {
    pages: Vec<u32>,
    prefix: Option<SharedPrefix>,
    cached_tokens: u32,
    /// What the run under way takes in.
    chunk_tokens: u32,
    /// Whether it makes tokens.
    generates: bool,
}

/// One instance's cache by places, as a machine that computes has it from the commands that it gets.
#[derive(Debug)]
struct Cache {
    page_tokens: u32,
    owners: Vec<Owner>,
    free: Vec<u32>,
    held: BTreeMap<RequestId, Held>,
    /// Their tenants and pages.
    prefixes: BTreeMap<u32, (u32, Vec<u32>)>,
    /// By slot: the tenant whose own parameters were copied there last.
    slots: BTreeMap<u32, u32>,
    operations: u64,
}

impl Cache {
    fn new(pages: u32, page_tokens: u32) -> Cache {
        Cache {
            page_tokens,
            owners: vec![Owner::Nobody; pages as usize],
            free: (0..pages).collect(),
            held: BTreeMap::new(),
            prefixes: BTreeMap::new(),
            slots: BTreeMap::new(),
            operations: 0,
        }
    }

    fn take(&mut self, owner: Owner) -> Result<u32, String> {
        let page = self.free.pop().ok_or_else(|| format!("{owner:?} gets a page that there is not"))?;
        self.operations += 1;
        match std::mem::replace(&mut self.owners[page as usize], owner) {
            Owner::Nobody => Ok(page),
            other => Err(format!("page {page} is {other:?}'s and becomes {owner:?}'s")),
        }
    }

    fn give_back(&mut self, owner: Owner, pages: Vec<u32>) -> Result<(), String> {
        for page in pages {
            let was = std::mem::replace(&mut self.owners[page as usize], Owner::Nobody);
            if was != owner {
                return Err(format!("{owner:?} gives page {page} back, which is {was:?}'s"));
            }
            self.free.push(page);
            self.operations += 1;
        }
        Ok(())
    }

    /// What a request reads of its tenant's is there, or is begun by it.
    fn read(&mut self, member: &Member) -> Result<(), String> {
        let Some(SharedPrefix { id, pages }) = member.sequence.prefix else {
            return Ok(());
        };
        if let Some((tenant, held)) = self.prefixes.get(&id) {
            return match *tenant == member.tenant && held.len() as u32 >= pages {
                true => Ok(()),
                false => Err(format!(
                    "{member:?} reads prefix {id}, tenant {tenant}'s on {} pages",
                    held.len()
                )),
            };
        }
        let taken = (0..pages).map(|_| self.take(Owner::Prefix(id)));
        let taken = taken.collect::<Result<_, _>>()?;
        self.prefixes.insert(id, (member.tenant, taken));
        Ok(())
    }

    /// A request is to have pages for so many tokens.
    fn grow(&mut self, request: RequestId, tokens: u32) -> Result<(), String> {
        let held = &self.held[&request];
        // The first tokens may come into a prefix that it begins.
        let shared = held.prefix.map_or(0, |prefix| prefix.pages);
        let wanted = tokens.div_ceil(self.page_tokens).saturating_sub(shared);
        for _ in held.pages.len() as u32..wanted {
            let page = self.take(Owner::Request(request))?;
            self.held.get_mut(&request).expect("it is held").pages.push(page);
        }
        Ok(())
    }

    /// A run begins: its members' prompts come in.
    fn begin(&mut self, going_on: GoingOn, members: &[Member]) -> Result<(), String> {
        let generating = self.held.values().filter(|held| held.generates);
        let known = generating.fold(GoingOn::default(), |sum, held| GoingOn {
            requests: sum.requests + 1,
            cached_tokens: sum.cached_tokens + u64::from(held.cached_tokens),
        });
        if known != going_on {
            return Err(format!("{going_on:?} are to go on, and {known:?} do"));
        }
        for member in members {
            self.read(member)?;
            let in_slot = self.slots.get(&member.slot);
            if member.slot != NO_SLOT && in_slot != Some(&member.tenant) {
                return Err(format!("{member:?} runs with what tenant {in_slot:?} has"));
            }
            let sequence = member.sequence;
            let held = self.held.entry(member.request).or_insert(Held {
                pages: Vec::new(),
                prefix: sequence.prefix,
                cached_tokens: 0,
                chunk_tokens: 0,
                generates: false,
            });
            (held.cached_tokens, held.chunk_tokens) = (sequence.cached_tokens, sequence.chunk_tokens);
            held.generates = sequence.completes;
            // A prompt gets its pages at once.
            let tokens = member.input_tokens + sequence.generated_tokens;
            self.grow(
                member.request,
                tokens.max(sequence.cached_tokens + sequence.chunk_tokens),
            )?;
        }
        Ok(())
    }

    /// The run is over: tokens were made.
    fn ran(&mut self, steps: u32) -> Result<(), String> {
        let mut grown = Vec::new();
        for (&request, held) in &mut self.held {
            let chunk_tokens = std::mem::take(&mut held.chunk_tokens);
            held.cached_tokens += match (steps, held.generates) {
                (0, _) => 0,
                (_, false) => chunk_tokens,
                // The first step takes the rest of the prompt in, or the token made last.
                (_, true) => chunk_tokens.max(1) + steps - 1,
            };
            grown.push((request, held.cached_tokens));
        }
        grown.into_iter().try_for_each(|(request, tokens)| self.grow(request, tokens))
    }

    /// What has come of a request from another cache.
    fn land(&mut self, member: &Member) -> Result<(), String> {
        self.read(member)?;
        let held = Held {
            pages: Vec::new(),
            prefix: member.sequence.prefix,
            cached_tokens: member.sequence.cached_tokens,
            chunk_tokens: 0,
            generates: false,
        };
        if self.held.insert(member.request, held).is_some() {
            return Err(format!("{member:?} comes to where it is"));
        }
        self.grow(member.request, member.sequence.cached_tokens)
    }

    fn release(&mut self, request: RequestId) -> Result<(), String> {
        // One that never ran is not known here.
        match self.held.remove(&request) {
            None => Ok(()),
            Some(held) => self.give_back(Owner::Request(request), held.pages),
        }
    }

    fn release_prefix(&mut self, prefix: u32) -> Result<(), String> {
        let reads = |held: &Held| held.prefix.is_some_and(|of| of.id == prefix);
        if let Some(reader) = self.held.iter().find(|(_, held)| reads(held)) {
            return Err(format!("prefix {prefix} goes while it is read: {reader:?}"));
        }
        match self.prefixes.remove(&prefix) {
            None => Ok(()),
            Some((_, pages)) => self.give_back(Owner::Prefix(prefix), pages),
        }
    }

    /// With nobody inside, only what tenants share is kept.
    fn check_empty(&self) -> Result<(), String> {
        let shared: usize = self.prefixes.values().map(|(_, pages)| pages.len()).sum();
        match self.held.is_empty() && self.free.len() + shared == self.owners.len() {
            true => Ok(()),
            false => Err(format!("pages are lost: {self:?}")),
        }
    }
}

/// All caches, and who has ended.
struct Account {
    caches: Vec<Cache>,
    /// Runs under way.
    runs: BTreeMap<BatchId, InstanceId>,
    arrived: BTreeSet<u64>,
    ended: BTreeSet<u64>,
}

impl Account {
    fn cache(&mut self, instance: InstanceId) -> &mut Cache {
        &mut self.caches[instance.index()]
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        match event {
            Event::Arrived(request) => {
                self.arrived.insert(request.ticket);
            }
            Event::Done(done) => {
                if let (Some(outcome), Some(instance)) = (done.run, self.runs.remove(&done.batch)) {
                    self.cache(instance).ran(outcome.steps)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn submitted(&mut self, submission: &Submission, commands: &Commands) -> Result<(), String> {
        let members = commands.members(submission);
        match commands.ops(submission) {
            [
                Op {
                    kind: OpKind::Run(run), ..
                },
            ] => {
                self.runs.insert(submission.batch, submission.instance);
                self.cache(submission.instance).begin(run.going_on, members)
            }
            [
                Op {
                    kind: OpKind::Transfer(_),
                    ..
                },
            ] => self.cache(submission.instance).land(&members[0]),
            // Copies end in the order in which they begin.
            [
                ..,
                Op {
                    kind: OpKind::CopyIn(_),
                    ..
                },
            ] => {
                let loads = commands.loads(submission).iter();
                let loads = loads.map(|load| (load.slot, load.tenant));
                self.cache(submission.instance).slots.extend(loads);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn command(&mut self, command: &Command, commands: &Commands) -> Result<(), String> {
        match command {
            Command::Submit(submission) => self.submitted(submission, commands),
            Command::Park { instance, request } => {
                let held = self.cache(*instance).held.get_mut(request);
                held.ok_or("who is parked is held")?.generates = false;
                Ok(())
            }
            Command::Release { instance, request } => self.cache(*instance).release(*request),
            Command::ReleasePrefix { instance, prefix } => self.cache(*instance).release_prefix(*prefix),
            Command::Finish(finish) => match self.ended.insert(finish.ticket) {
                true => Ok(()),
                false => Err(format!("ticket {} ends twice", finish.ticket)),
            },
            _ => Ok(()),
        }
    }

    /// Nobody is inside. How many pages were taken and given back.
    fn close(self) -> Result<u64, String> {
        if self.arrived != self.ended {
            let lost: Vec<&u64> = self.arrived.symmetric_difference(&self.ended).collect();
            return Err(format!("tickets {lost:?} did not both come and end"));
        }
        self.caches.iter().try_for_each(Cache::check_empty)?;
        Ok(self.caches.iter().map(|cache| cache.operations).sum())
    }
}

/// Serves the requests, and looks at the server's laws after every event.
fn serve(system: &SystemSpec, gpus: u32, pages: u32, entries: Vec<Entry>) -> Result<u64, String> {
    let card = synthetic_card();
    let generation = system.pool.generation.as_ref().expect("it generates");
    let mut server = Server::new(&cluster(gpus, memory(system, pages)), system, TENANTS).unwrap().with_management();
    let prices = Prices::of_system(&card, system, Jitter::None)
        .and_then(|prices| prices.with_management(&card))
        .unwrap();
    let topology = server.topology();
    let mut account = Account {
        caches: topology.instances.iter().map(|_| Cache::new(pages, generation.page_tokens)).collect(),
        runs: BTreeMap::new(),
        arrived: BTreeSet::new(),
        ended: BTreeSet::new(),
    };
    let machine = VirtualMachine::new(topology, prices, &card.contention, Default::default());
    let mut machine = machine.with_ends(generation.stop, 5);
    let mut workload = Listed::new(entries);
    let mut commands = Commands::default();
    for events in 0.. {
        if events == EVENTS_MAX {
            return Err("requests are moved about and never end".into());
        }
        let due = workload.peek().unwrap();
        let (now, event) = match machine.next(due).unwrap() {
            Next::Event(now, event) => (now, event),
            Next::Due(now) => match workload.next().unwrap().unwrap() {
                Entry::Request(request) => (now, Event::Arrived(request)),
                Entry::Cancel { ticket, .. } => (now, Event::Cancelled(ticket)),
                Entry::Manage(request) => (now, Event::Manage(request)),
            },
            Next::Idle => break,
        };
        account.event(&event)?;
        server.handle(now, &event, &mut commands);
        for command in &commands.list {
            account.command(command, &commands)?;
            machine.perform(now, command, &commands).unwrap();
        }
        commands.clear();
        server.check_laws(now)?;
    }
    match server.in_flight() {
        0 => account.close(),
        inside => Err(format!("{inside} requests are never answered")),
    }
}

/// Systems of every kind whose pages are of some size, and room for as many tokens.
fn systems_by_page() -> impl Strategy<Value = (SystemSpec, u32, u32)> {
    let page_tokens = prop_oneof![Just(1u32), Just(2), Just(4), Just(PAGE_TOKENS)];
    (systems(), page_tokens).prop_map(|((mut system, gpus, pages), page_tokens)| {
        let generation = system.pool.generation.as_mut().expect("it generates");
        generation.page_tokens = page_tokens;
        (system, gpus, pages * PAGE_TOKENS / page_tokens)
    })
}

#[test]
fn no_page_is_lost_or_shared_and_each_request_ends_once() {
    let operations = Cell::new(0);
    // The same scenarios each time, so that a failure says something of what was changed.
    let config = ProptestConfig {
        cases: 5_000,
        max_shrink_iters: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let scenarios = (systems_by_page(), entries(400));
    let result = runner.run(&scenarios, |((system, gpus, pages), entries)| {
        let done = serve(&system, gpus, pages, entries).map_err(TestCaseError::fail)?;
        operations.set(operations.get() + done);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let operations = operations.get();
    println!("{operations} pages were taken and given back");
    assert!(operations >= OPERATIONS_MIN);
}

/// A tenant's adapters are being read from the disk for one card. Who waits for them on another gives up, and its slot
/// becomes another tenant's: what was read does not come after that one's.
#[test]
fn adapters_that_nobody_waits_for_any_more_are_not_copied_over_anothers() {
    let lora = generation().lora.map(|lora| LoraSpec {
        slots: 1,
        host_slots: Some(4),
        ..lora
    });
    let mut system = system(GenerationSpec { lora, ..generation() });
    system.pool.place = PlaceSpec::LeastLoaded;
    let gives_up = Entry::Cancel {
        at: Time(2_000),
        ticket: 1,
    };
    let entries = vec![
        request(0, 0, 0, 20, 20),
        request(1, 1, 0, 20, 20),
        gives_up,
        request(2, 3, 1, 20, 20),
    ];
    serve(&system, 2, 64, entries).unwrap();
}
