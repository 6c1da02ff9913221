//! Cards that come and go (Punica, section 5.1): one is asked for when none that is there is lightly loaded or has room
//! for who is next, and one without load is given back while another that is lightly loaded stays.
//!
//! What is lightly loaded is what consolidation means by it: that empties cards, and this rule stops paying for them.

use std::collections::BTreeSet;

use super::*;
use crate::op::LoadModel;
use crate::server::FLEET;
use crate::server::scaling::{ScalingLog, ScalingUse};
use crate::spec::LightLoadSpec;

/// What an instance's cards are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// They are not ours.
    Away,
    /// They start up until then; then they load the model.
    Starting(Time),
    /// The model is being loaded.
    Loading,
    /// They serve.
    Serving(Load),
}

/// How much an instance that serves has to do, as the last event left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// While it has no request, since when.
    idle_since: Option<Time>,
    is_light: bool,
}

impl State {
    /// Serving, without a request since then.
    fn without_load(since: Time) -> State {
        State::Serving(Load {
            idle_since: Some(since),
            is_light: true,
        })
    }
}

/// The cluster's cards, where they come and go: those of an instance together.
pub(super) struct Cards {
    spec: LightLoadSpec,
    /// Of an instance.
    cards: u32,
    /// By instance. What follows is counted by it, so that no event looks at all of them.
    states: Vec<State>,
    /// Instances that serve, and those of them that are lightly loaded.
    serving: u32,
    light: u32,
    /// Those without a request, by since when.
    idle: BTreeSet<(Time, InstanceId)>,
    /// Those whose cards are not ours.
    away: BTreeSet<InstanceId>,
    /// The one whose cards start up or load: there is one at a time.
    coming: Option<InstanceId>,
    /// Instances whose load has changed in this event.
    reloaded: Vec<InstanceId>,
    /// Instances whose cards are ours, now and at most.
    ours: u32,
    ours_most: u32,
    /// The last event: what is due by itself was decided by what that left.
    heard: Time,
    log: ScalingLog,
}

impl Cards {
    /// The first are there at the start, with the model.
    pub fn new(spec: LightLoadSpec, cards: u32, instances: usize) -> Cards {
        let ours = spec.cards_at_start / cards;
        let mut all = Cards {
            spec,
            cards,
            states: vec![State::Away; instances],
            serving: 0,
            light: 0,
            idle: BTreeSet::new(),
            away: (0..instances as u32).map(InstanceId).collect(),
            coming: None,
            reloaded: Vec::new(),
            ours,
            ours_most: ours,
            heard: Time::ZERO,
            log: ScalingLog::default(),
        };
        for instance in (0..ours).map(InstanceId) {
            all.turn(instance, State::without_load(Time::ZERO));
        }
        all.remember(Time::ZERO);
        all
    }

    pub fn ours_most(&self) -> u32 {
        self.ours_most
    }

    pub fn serves(&self, instance: InstanceId) -> bool {
        matches!(self.states[instance.index()], State::Serving(_))
    }

    fn turn(&mut self, instance: InstanceId, state: State) {
        match std::mem::replace(&mut self.states[instance.index()], state) {
            State::Away => {
                self.away.remove(&instance);
            }
            State::Starting(_) | State::Loading => self.coming = None,
            State::Serving(was) => {
                self.serving -= 1;
                self.light -= u32::from(was.is_light);
                was.idle_since.map(|since| self.idle.remove(&(since, instance)));
            }
        }
        match state {
            State::Away => {
                self.away.insert(instance);
            }
            State::Starting(_) | State::Loading => self.coming = Some(instance),
            State::Serving(load) => {
                self.serving += 1;
                self.light += u32::from(load.is_light);
                self.idle.extend(load.idle_since.map(|since| (since, instance)));
            }
        }
    }

    /// An instance's load has changed.
    #[inline]
    pub fn reloaded(&mut self, instance: InstanceId) {
        self.reloaded.push(instance);
    }

    /// Takes over what an event has left of an instance's requests.
    fn now_has(&mut self, now: Time, instance: InstanceId, load: u32) {
        let State::Serving(was) = self.states[instance.index()] else {
            return;
        };
        let load = Load {
            idle_since: (load == 0).then(|| was.idle_since.unwrap_or(now)),
            is_light: load <= self.spec.light,
        };
        if load != was {
            self.turn(instance, State::Serving(load));
        }
    }

    /// The instance whose cards have started up, and load nothing yet.
    fn up(&self, now: Time) -> Option<InstanceId> {
        self.coming.filter(|id| matches!(self.states[id.index()], State::Starting(at) if at <= now))
    }

    fn take(&mut self, now: Time, instance: InstanceId) {
        self.log.count_until(now, self.ours * self.cards);
        self.turn(instance, State::Starting(now + self.spec.start_up));
        self.ours += 1;
        self.ours_most = self.ours_most.max(self.ours);
        self.log.counts.added += u64::from(self.cards);
        self.remember(now);
    }

    fn give_back(&mut self, at: Time, instance: InstanceId) {
        self.log.count_until(at, self.ours * self.cards);
        self.turn(instance, State::Away);
        self.ours -= 1;
        self.log.counts.released += u64::from(self.cards);
        self.remember(at);
    }

    fn remember(&mut self, at: Time) {
        self.log.counts.remember(at, std::iter::once(self.ours * self.cards));
    }
}

impl GenerationServer {
    /// See [`super::super::Server::scaling`].
    pub fn scaling(&self, now: Time) -> Option<ScalingUse> {
        let cards = self.cards.as_ref()?;
        Some(cards.log.until(now, cards.ours * cards.cards))
    }

    /// See [`crate::server::Server::count_cards_from`].
    pub fn count_cards_from(&mut self, start: Time) {
        self.occupied_since = start;
        if let Some(cards) = &mut self.cards {
            cards.log.count_from(start);
        }
    }

    /// What became due since the last event: cards that have had no load for long enough are given back, and those that
    /// are up load their model.
    #[inline(never)]
    pub(super) fn before_event(&mut self, now: Time, commands: &mut Commands) {
        while let Some((at, instance)) = self.next_return().filter(|&(at, _)| at <= now) {
            self.give_back(at, instance, commands);
        }
        if let Some(instance) = self.cards.as_ref().and_then(|cards| cards.up(now)) {
            self.load_model(now, instance, commands);
        }
    }

    /// Which cards are given back next, and when, if nothing happens before.
    fn next_return(&self) -> Option<(Time, InstanceId)> {
        let cards = self.cards.as_ref()?;
        // Whoever is given back is one of those that are lightly loaded.
        if cards.serving * cards.cards <= cards.spec.cards_min || cards.light < 2 {
            return None;
        }
        let mut next: Option<(Time, InstanceId)> = None;
        for &(since, id) in &cards.idle {
            // What was due before the last event is due with it, all of it at once.
            let due = (since + cards.spec.patience).max(cards.heard);
            if next.is_some_and(|(at, _)| at < due) {
                break;
            }
            if self.instances[id.index()].copies.iter().all(|&copies| copies == 0) {
                next = next.map_or(Some((due, id)), |next| Some(next.min((due, id))));
            }
        }
        next
    }

    /// What lies in the cards' memory is lost.
    fn give_back(&mut self, at: Time, instance: InstanceId, commands: &mut Commands) {
        let cards = self.cards.as_mut().expect("only cards that come go");
        cards.give_back(at, instance);
        let state = &mut self.instances[instance.index()];
        if let Some(slots) = &mut state.slots {
            (0..self.tenants).for_each(|tenant| slots.invalidate(tenant));
        }
        let all = state.pages.total();
        self.reclaim_prefixes(instance, all, commands);
        self.instances[instance.index()].pages.forget();
    }

    /// Where each tenant has a model of its own, there is none to be loaded for all.
    fn load_model(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let bytes = self.memory.weights_bytes() / u64::from(self.spec.tensor_parallel);
        if bytes == 0 {
            self.serve_on(now, instance, commands);
            return;
        }
        let cards = self.cards.as_mut().expect("only cards that come load");
        cards.turn(instance, State::Loading);
        let batch = self.flights.insert(Flight::LoadModel { instance });
        let lane = self.topology.instances[instance.index()].copy;
        let mark = commands.mark();
        let load = OpKind::LoadModel(LoadModel { bytes });
        commands.ops.push(Op::alone(load, lane));
        commands.submit(batch, instance, BatchShape::NOTHING, mark);
    }

    /// An instance has its model: who waits may go there.
    pub(super) fn serve_on(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let cards = self.cards.as_mut().expect("only cards that come load");
        cards.turn(instance, State::without_load(now));
        self.dispatch(now, commands);
    }

    /// An instance could not load its model: its cards are given back.
    pub(super) fn without_model(&mut self, now: Time, instance: InstanceId) {
        let cards = self.cards.as_mut().expect("only cards that come load");
        cards.give_back(now, instance);
    }

    /// Asks for a card if none is lightly loaded, or none has room for who is next, unless one is on its way.
    #[inline(never)]
    pub(super) fn after_event(&mut self, now: Time, commands: &mut Commands) {
        self.hear_of_loads(now);
        let Some(cards) = &mut self.cards else { return };
        cards.heard = now;
        let away = cards.away.first().copied();
        let Some(instance) = away.filter(|_| cards.coming.is_none()) else {
            return;
        };
        let light = cards.light > 0;
        // Lightly loaded, a card may be full all the same: of pages, of tenants, or of another tenant's requests. Who
        // waits for room in host memory waits on any card.
        let helps = |id| self.host_has_room_for(self.sequences[id].tenant);
        let first_waits = || self.queue.first().is_some_and(helps) && self.next_placement().is_none();
        if light && !first_waits() {
            return;
        }
        let cards = self.cards.as_mut().expect("they come and go");
        cards.take(now, instance);
        let at = now + cards.spec.start_up;
        match at > now {
            true => commands.list.push(Command::SetTimer { instance: FLEET, at }),
            false => {
                self.load_model(now, instance, commands);
                // Where there is nothing to be loaded, it has requests by now.
                self.hear_of_loads(now);
            }
        }
    }

    fn hear_of_loads(&mut self, now: Time) {
        let Some(cards) = &mut self.cards else { return };
        while let Some(instance) = cards.reloaded.pop() {
            cards.now_has(now, instance, self.instances[instance.index()].load());
        }
    }

    /// Whether cards are counted as they are, and nobody is where nobody serves.
    pub(super) fn check_cards(&self) -> Result<(), String> {
        let Some(cards) = &self.cards else { return Ok(()) };
        let ours = cards.states.iter().filter(|&&state| state != State::Away).count() as u32;
        let serving = self.topology.instance_ids().filter(|&id| cards.serves(id)).count() as u32;
        if ours != cards.ours || serving * cards.cards < cards.spec.cards_min.max(1) {
            return Err(format!(
                "{serving} instances serve, {ours} are ours, and {} are counted",
                cards.ours
            ));
        }
        let serving_ids = || self.topology.instance_ids().filter(|&id| cards.serves(id));
        let load = |id: &InstanceId| self.instances[id.index()].load();
        let light = serving_ids().filter(|id| load(id) <= cards.spec.light).count() as u32;
        let idle: Vec<InstanceId> = serving_ids().filter(|id| load(id) == 0).collect();
        let counted_idle: BTreeSet<InstanceId> = cards.idle.iter().map(|(_, id)| *id).collect();
        let is_since = |(since, id): &(Time, InstanceId)| matches!(cards.states[id.index()], State::Serving(load) if load.idle_since == Some(*since));
        let is_same = idle.iter().copied().eq(counted_idle) && cards.idle.iter().all(is_since);
        let away = self.topology.instance_ids().filter(|id| cards.states[id.index()] == State::Away);
        let is_coming = |id: &InstanceId| matches!(cards.states[id.index()], State::Starting(_) | State::Loading);
        let coming = self.topology.instance_ids().find(is_coming);
        if !is_same || !away.eq(cards.away.iter().copied()) || coming != cards.coming {
            return Err(format!(
                "{idle:?} are without load, {coming:?} comes; counted are {:?}, {:?}, and {:?} away",
                cards.idle, cards.coming, cards.away
            ));
        }
        if (serving, light) != (cards.serving, cards.light) {
            return Err(format!(
                "{serving} instances serve, {light} lightly loaded; {} and {} are counted",
                cards.serving, cards.light
            ));
        }
        for (id, instance) in self.topology.instance_ids().zip(&self.instances) {
            if !cards.serves(id) && (instance.load() > 0 || instance.run.is_some() || instance.pages.used() > 0) {
                return Err(format!(
                    "{id} is {:?} and has something to do",
                    cards.states[id.index()]
                ));
            }
        }
        Ok(())
    }
}
