//! Cards that come and go (Punica, section 5.1): one is asked for when none that is there is lightly loaded or has room for who is next, and one
//! without load is given back while another that is lightly loaded stays.
//!
//! What is lightly loaded is what consolidation means by it: that empties cards, and this rule stops paying for them.

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
    /// They serve; while they have no request, since when.
    Serving { idle_since: Option<Time> },
}

/// The cluster's cards, where they come and go: those of an instance together.
pub(super) struct Cards {
    spec: LightLoadSpec,
    /// Of an instance.
    cards: u32,
    /// By instance.
    states: Vec<State>,
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
        let mut states = vec![State::Away; instances];
        states[..ours as usize].fill(State::Serving {
            idle_since: Some(Time::ZERO),
        });
        let mut all = Cards {
            spec,
            cards,
            states,
            ours,
            ours_most: ours,
            heard: Time::ZERO,
            log: ScalingLog::default(),
        };
        all.remember(Time::ZERO);
        all
    }

    pub fn ours_most(&self) -> u32 {
        self.ours_most
    }

    pub fn serves(&self, instance: InstanceId) -> bool {
        matches!(self.states[instance.index()], State::Serving { .. })
    }

    fn is_light(&self, load: u32) -> bool {
        load <= self.spec.light
    }

    fn take(&mut self, now: Time, instance: InstanceId) {
        self.log.count_until(now, self.ours * self.cards);
        self.states[instance.index()] = State::Starting(now + self.spec.start_up);
        self.ours += 1;
        self.ours_most = self.ours_most.max(self.ours);
        self.log.counts.added += u64::from(self.cards);
        self.remember(now);
    }

    fn give_back(&mut self, at: Time, instance: InstanceId) {
        self.log.count_until(at, self.ours * self.cards);
        self.states[instance.index()] = State::Away;
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

    /// What became due since the last event: cards that have had no load for long enough are given back, and those that are up load their
    /// model.
    pub(super) fn before_event(&mut self, now: Time, commands: &mut Commands) {
        while let Some((at, instance)) = self.next_return().filter(|&(at, _)| at <= now) {
            self.give_back(at, instance, commands);
        }
        let up = |state: &State| matches!(state, State::Starting(at) if *at <= now);
        while let Some(index) = self.cards.as_ref().and_then(|cards| cards.states.iter().position(up)) {
            self.load_model(now, InstanceId(index as u32), commands);
        }
    }

    /// Which cards are given back next, and when, if nothing happens before.
    fn next_return(&self) -> Option<(Time, InstanceId)> {
        let cards = self.cards.as_ref()?;
        let serving = || self.topology.instance_ids().filter(|&id| cards.serves(id));
        let light = serving().filter(|id| cards.is_light(self.instances[id.index()].load()));
        let (serving, light) = (serving().count() as u32, light.count());
        // Whoever is given back is one of those.
        if serving * cards.cards <= cards.spec.cards_min || light < 2 {
            return None;
        }
        let idle = cards
            .states
            .iter()
            .zip(&self.instances)
            .zip(self.topology.instance_ids());
        let returns = idle.filter_map(|((state, instance), id)| match *state {
            State::Serving {
                idle_since: Some(since),
            } if instance.copies.iter().all(|&copies| copies == 0) => {
                Some(((since + cards.spec.patience).max(cards.heard), id))
            }
            _ => None,
        });
        returns.min()
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
        cards.states[instance.index()] = State::Loading;
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
        cards.states[instance.index()] = State::Serving { idle_since: Some(now) };
        self.dispatch(now, commands);
    }

    /// An instance could not load its model: its cards are given back.
    pub(super) fn without_model(&mut self, now: Time, instance: InstanceId) {
        let cards = self.cards.as_mut().expect("only cards that come load");
        cards.give_back(now, instance);
    }

    /// Asks for a card if none is lightly loaded, or none has room for who is next, unless one is on its way.
    pub(super) fn after_event(&mut self, now: Time, commands: &mut Commands) {
        let Some(cards) = &mut self.cards else { return };
        cards.heard = now;
        let (mut light, mut coming, mut away) = (false, false, None);
        for (index, (state, instance)) in cards.states.iter_mut().zip(&self.instances).enumerate() {
            let load = instance.load();
            if let State::Serving { idle_since } = state {
                *idle_since = (load == 0).then(|| idle_since.unwrap_or(now));
            }
            match state {
                State::Away => away = away.or(Some(InstanceId(index as u32))),
                State::Starting(_) | State::Loading => coming = true,
                State::Serving { .. } => light |= load <= cards.spec.light,
            }
        }
        let Some(instance) = away.filter(|_| !coming) else {
            return;
        };
        // Lightly loaded, a card may be full all the same: of pages, of tenants, or of another tenant's requests.
        let first_waits = || self.queue.first().is_some() && self.next_placement().is_none();
        if light && !first_waits() {
            return;
        }
        let cards = self.cards.as_mut().expect("they come and go");
        cards.take(now, instance);
        let at = now + cards.spec.start_up;
        match at > now {
            true => commands.list.push(Command::SetTimer { instance: FLEET, at }),
            false => self.load_model(now, instance, commands),
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
