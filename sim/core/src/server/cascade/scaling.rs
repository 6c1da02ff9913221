//! Cards that come and go: a stage's model is loaded onto more of its cards as the stage's own load asks for it, and
//! given up again.
//!
//! Each stage decides by what it sees itself, since only so many of a cascade's requests come to a later one. A card
//! that two stages share is used from when the first wants it until the last has given it up.

use tenantry_traces::{Duration, Time};

use super::{CascadeServer, Running};
use crate::command::{Command, Commands};
use crate::event::Event;
use crate::ids::{GpuId, InstanceId, RequestId};
use crate::op::{BatchShape, LoadModel, Op, OpKind};
use crate::policy::scale::{Asked, Scale, Scaler};
use crate::server::FLEET;
use crate::server::scaling::{ScalingLog, ScalingUse, in_order};

/// What a stage has on one of its cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Off,
    /// The card starts up until then; then it loads the model.
    Starting(Time),
    /// The model is being loaded.
    Loading,
    /// The model serves.
    Serving,
    /// Gets nothing more; what runs is let run.
    Leaving,
}

impl State {
    /// Whether the stage has the card, or is to have it.
    pub fn counts(self) -> bool {
        matches!(self, State::Starting(_) | State::Loading | State::Serving)
    }
}

/// One of a stage's cards.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageCard {
    pub gpu: GpuId,
    pub state: State,
}

/// What the cluster's cards are used for.
pub(super) struct Cards {
    /// By card: stages that have something on it.
    users: Vec<u32>,
    /// Cards that somebody uses.
    used: u32,
    /// By card: when its start-up is over, while anybody uses it.
    up_at: Vec<Time>,
    /// A timer is set and has not come.
    armed: bool,
    /// In the cards' memory, now and at most.
    bytes: u64,
    bytes_most: u64,
    log: ScalingLog,
}

impl Cards {
    pub fn new(gpus: u32) -> Cards {
        Cards {
            users: vec![0; gpus as usize],
            used: 0,
            up_at: vec![Time::ZERO; gpus as usize],
            armed: false,
            bytes: 0,
            bytes_most: 0,
            log: ScalingLog::default(),
        }
    }

    /// A stage takes a card, which is ours from now on and up after so long, unless it was ours already.
    fn take(&mut self, now: Time, gpu: GpuId, start_up: Duration, bytes: u64) {
        self.log.count_until(now, self.used);
        let users = &mut self.users[gpu.index()];
        if *users == 0 {
            self.up_at[gpu.index()] = now + start_up;
            self.used += 1;
        }
        *users += 1;
        self.bytes += bytes;
        self.bytes_most = self.bytes_most.max(self.bytes);
    }

    /// A stage has nothing on a card any more.
    fn give_back(&mut self, now: Time, gpu: GpuId, bytes: u64) {
        self.log.count_until(now, self.used);
        self.users[gpu.index()] -= 1;
        self.used -= u32::from(self.users[gpu.index()] == 0);
        self.bytes -= bytes;
    }

    pub fn bytes_most(&self) -> u64 {
        self.bytes_most
    }
}

impl CascadeServer {
    /// How cards that come and go were used until now; nothing where all stay.
    pub fn scaling(&self, now: Time) -> Option<ScalingUse> {
        if !self.scales() {
            return None;
        }
        Some(self.cards.log.until(now, self.cards.used))
    }

    /// See [`crate::server::Server::count_cards_from`].
    pub fn count_cards_from(&mut self, start: Time) {
        self.cards.log.count_from(start);
    }

    fn scales(&self) -> bool {
        self.stages.iter().any(|stage| stage.scaler.is_some())
    }

    /// The cards at the start, on which the models are there when the first request comes.
    pub(super) fn deploy(&mut self) {
        for index in 0..self.stages.len() {
            let stage = &mut self.stages[index];
            for card in 0..stage.cards.len() {
                if card < stage.cards_at_start {
                    stage.cards[card].state = State::Serving;
                    let gpu = stage.cards[card].gpu;
                    self.cards.take(Time::ZERO, gpu, Duration::ZERO, stage.memory_bytes);
                } else {
                    stage.close(card);
                }
            }
        }
        self.remember(Time::ZERO);
    }

    fn remember(&mut self, now: Time) {
        let counted = self.stages.iter().map(|stage| stage.cards_counted());
        self.cards.log.counts.remember(now, counted);
    }

    pub(super) fn scaling_timer(&mut self, now: Time, commands: &mut Commands) {
        self.cards.armed = false;
        if !self.is_at_rest() {
            self.ask_stages(now, commands);
        }
    }

    /// Whether nothing happens any more until somebody comes: nobody is inside, or all who are wait for a batch that
    /// others must fill. A card that may still be given back leaves those who wait on it to another, whose batch they
    /// may fill.
    #[inline]
    pub(super) fn is_at_rest(&self) -> bool {
        self.jobs.is_empty() || (self.running.is_empty() && self.waits_for_others())
    }

    /// Whether all who are inside wait for a batch that others must fill, where nothing runs. It is asked before each
    /// event: but for the look at what runs it is kept out of the way.
    #[cold]
    fn waits_for_others(&self) -> bool {
        let starts = || {
            let mut cards = self.stages.iter().flat_map(|stage| &stage.cards);
            cards.any(|card| matches!(card.state, State::Starting(_)))
        };
        let asks = || self.instances.iter().any(|instance| instance.timer.is_some());
        let releases = || {
            let of_stage = |index: usize| {
                let scaler = self.stages[index].scaler.as_ref();
                scaler.is_some_and(|scaler| scaler.may_release(self.asked(index)))
            };
            (0..self.stages.len()).any(of_stage)
        };
        !self.cards.armed && !asks() && !starts() && !releases()
    }

    /// All were [at rest](Self::is_at_rest) until this event.
    #[cold]
    pub(super) fn rested(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        let brings_card = match *event {
            Event::Timer(instance) => instance != FLEET && self.is_up(now, instance),
            Event::Done(_) => true,
            Event::Arrived(_) | Event::Cancelled(_) | Event::Manage(_) => false,
        };
        self.stages_idled(now, !brings_card);
        self.advance_touched(now, commands);
    }

    /// What was due while all were [at rest](Self::is_at_rest), at the times when it was: no timer is set then, so that
    /// a run ends with its last request. Cards are given back as ever, and none is added, since nobody is kept waiting.
    /// What was due last is decided with whoever has come.
    fn stages_idled(&mut self, now: Time, somebody_comes: bool) {
        // In the order of time, since a card's use is counted up to each release.
        while let Some((at, index)) = self.earliest(|scaler| scaler.missed(now, somebody_comes)) {
            let asked = self.asked(index);
            let may_go = self.stages[index].serving().count() > 1;
            let scaler = self.stages[index].scaler.as_mut().expect("it has missed something");
            if !may_go || !scaler.may_release(asked) {
                scaler.pass_silence(now, asked, somebody_comes);
            } else if scaler.releases_in_silence(asked) {
                self.release_card(at, index);
            } else {
                // No other stage's release changes what this one is asked with.
                scaler.pass_until_release(now, asked, somebody_comes);
            }
        }
    }

    /// What a stage's rule goes by.
    fn asked(&self, index: usize) -> Asked {
        let stage = &self.stages[index];
        let instances = (0..stage.cards.len()).flat_map(|card| stage.on(card));
        let busy = instances.map(|instance| &self.instances[instance.index()]).filter(|instance| instance.busy);
        let lines = busy.map(|instance| instance.queue.view(&self.entries).len());
        Asked {
            cards: stage.cards_counted(),
            inside: (0..stage.cards.len()).any(|card| stage.load_on(card) > 0),
            waiting: lines.map(u64::from).sum(),
        }
    }

    /// The stage of which a time is said that is the earliest, of equals the first.
    fn earliest(&self, of: impl Fn(&Scaler) -> Option<Time>) -> Option<(Time, usize)> {
        let times = self.stages.iter().map(|stage| stage.scaler.as_ref().and_then(&of));
        times.zip(0..).filter_map(|(time, index)| Some((time?, index))).min()
    }

    /// Asks the stages how many cards they want, if that is due, and sets the next timer, while anybody is inside.
    pub(super) fn ask_stages(&mut self, now: Time, commands: &mut Commands) {
        if self.cards.armed || self.jobs.is_empty() {
            return;
        }
        for index in 0..self.stages.len() {
            if self.stages[index].scaler.as_ref().is_none_or(|scaler| now < scaler.due()) {
                continue;
            }
            let asked = self.asked(index);
            let scaler = self.stages[index].scaler.as_mut();
            match scaler.and_then(|scaler| scaler.ask(now, asked)) {
                None => {}
                Some(Scale::Add(cards)) => self.add_cards(now, index, cards, commands),
                Some(Scale::Release) => self.release_card(now, index),
            }
        }
        if let Some((at, _)) = self.earliest(|scaler| Some(scaler.due())) {
            self.cards.armed = true;
            commands.list.push(Command::SetTimer { instance: FLEET, at });
        }
    }

    /// A stage takes cards, first those that are ours anyway: they need not start up and cost nothing more.
    fn add_cards(&mut self, now: Time, index: usize, cards: u32, commands: &mut Commands) {
        let stage = &self.stages[index];
        let mut off: Vec<usize> =
            (0..stage.cards.len()).filter(|&card| stage.cards[card].state == State::Off).collect();
        off.sort_by_key(|&card| self.cards.users[stage.cards[card].gpu.index()] == 0);
        off.truncate(cards as usize);
        for &card in &off {
            let stage = &mut self.stages[index];
            let gpu = stage.cards[card].gpu;
            self.cards.take(now, gpu, stage.start_up, stage.memory_bytes);
            self.cards.log.counts.added += 1;
            let up_at = self.cards.up_at[gpu.index()];
            if up_at > now {
                stage.cards[card].state = State::Starting(up_at);
                commands.list.push(Command::SetTimer {
                    instance: stage.first_on(card),
                    at: up_at,
                });
            } else {
                self.load(index, card, commands);
            }
        }
        if !off.is_empty() {
            self.remember(now);
        }
    }

    /// A timer of an instance may be that of its card's start-up.
    pub(super) fn started(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        if self.is_up(now, instance) {
            let (index, card) = self.card_of(instance);
            self.load(index, card, commands);
        }
    }

    /// Whether an instance's card has just started up.
    pub(super) fn is_up(&self, now: Time, instance: InstanceId) -> bool {
        let (index, card) = self.card_of(instance);
        let on_card = self.stages[index].cards.get(card);
        on_card.is_some_and(|on_card| matches!(on_card.state, State::Starting(up_at) if up_at <= now))
    }

    fn load(&mut self, index: usize, card: usize, commands: &mut Commands) {
        let stage = &mut self.stages[index];
        stage.cards[card].state = State::Loading;
        let instance = stage.first_on(card);
        let op = OpKind::LoadModel(LoadModel {
            bytes: stage.weight_bytes,
        });
        let batch = self.running.insert(Running::Load(instance));
        let lane = self.topology.instances[instance.index()].copy;
        let mark = commands.mark();
        commands.ops.push(Op::alone(op, lane));
        commands.submit(batch, instance, BatchShape::NOTHING, mark);
    }

    /// A card has its model: it serves from the next request on. One that could not be loaded is given back.
    pub(super) fn loaded(&mut self, now: Time, instance: InstanceId, failed: bool) {
        let (index, card) = self.card_of(instance);
        let stage = &mut self.stages[index];
        if failed {
            stage.cards[card].state = State::Off;
            self.cards.give_back(now, stage.cards[card].gpu, stage.memory_bytes);
            self.cards.log.counts.released += 1;
            self.remember(now);
            return;
        }
        stage.cards[card].state = State::Serving;
        stage.reopen(card);
    }

    /// A stage gives up its least busy card, of equals the first, if another serves: who waits there is placed anew.
    fn release_card(&mut self, now: Time, index: usize) {
        let stage = &self.stages[index];
        if stage.serving().count() < 2 {
            return;
        }
        let card = stage.serving().min_by_key(|&card| stage.load_on(card)).expect("there are two");
        let stage = &mut self.stages[index];
        stage.cards[card].state = State::Leaving;
        stage.close(card);
        self.cards.log.counts.released += 1;
        self.remember(now);
        for instance in self.stages[index].on(card) {
            let line = self.instances[instance.index()].queue.view(&self.entries);
            let moving: Vec<RequestId> = line.iter().map(|waiting| waiting.id).collect();
            self.cards.log.counts.redispatched += moving.len() as u64;
            for id in moving {
                self.instances[instance.index()].queue.remove(&mut self.entries, id);
                self.stages[index].left(instance);
                let next = self.stages[index].place(None);
                self.entries[id].instance = next;
                self.instances[next.index()].queue.insert(&mut self.entries, id);
                self.touched.push(next);
            }
        }
        self.vacated(now, index, card);
    }

    /// An instance has ended a batch; its card may have been waiting for that.
    pub(super) fn ended_on(&mut self, now: Time, instance: InstanceId) {
        let (index, card) = self.card_of(instance);
        self.vacated(now, index, card);
    }

    /// A card that leaves may have nothing in hand any more.
    fn vacated(&mut self, now: Time, index: usize, card: usize) {
        let stage = &mut self.stages[index];
        let Some(StageCard {
            gpu,
            state: State::Leaving,
        }) = stage.cards.get(card).copied()
        else {
            return;
        };
        if stage.on(card).any(|instance| self.instances[instance.index()].busy) {
            return;
        }
        stage.cards[card].state = State::Off;
        self.cards.give_back(now, gpu, stage.memory_bytes);
    }

    /// An instance's stage, and which of the stage's cards it is on.
    fn card_of(&self, instance: InstanceId) -> (usize, usize) {
        let stage = self.topology.instances[instance.index()].pool.index();
        (stage, self.stages[stage].card_of(instance))
    }

    /// Whether cards are used as it is counted, and nobody is sent where nobody serves.
    pub(super) fn check_cards(&self) -> Result<(), String> {
        let mut users = vec![0; self.cards.users.len()];
        for stage in &self.stages {
            if !stage.cards.is_empty() && stage.cards.iter().all(|card| card.state != State::Serving) {
                return Err(format!("{} serves on no card", stage.counts.name));
            }
            for (card, on_card) in stage.cards.iter().enumerate() {
                users[on_card.gpu.index()] += u32::from(on_card.state != State::Off);
                for instance in stage.on(card) {
                    let serves = on_card.state == State::Serving;
                    let state = &self.instances[instance.index()];
                    let line = state.queue.view(&self.entries);
                    let works = !line.is_empty() || (state.busy && on_card.state != State::Leaving);
                    if stage.is_open(instance) != serves || (works && !serves) {
                        return Err(format!("{instance} is {:?} and has something to do", on_card.state));
                    }
                }
            }
        }
        in_order(&self.cards.log.counts.cards)?;
        let used = users.iter().filter(|&&users| users > 0).count();
        match users == self.cards.users && used == self.cards.used as usize {
            true => Ok(()),
            false => Err(format!(
                "cards are used as {users:?}, not as {:?} ({} used by count)",
                self.cards.users, self.cards.used
            )),
        }
    }
}
