//! How many cards there are: added and given back one decision at a time.

use tenantry_traces::Time;

use super::RuntimeServer;
use crate::command::Commands;
use crate::ids::{GpuId, InstanceId};
use crate::policy::scale::{Asked, Scale};
use crate::server::runtimes::instances::State;

impl RuntimeServer {
    /// All cards of the cluster.
    pub(super) fn gpus(&self) -> impl Iterator<Item = GpuId> + use<> {
        (0..self.instances.len() as u32 / self.fleet.instances_per_gpu).map(GpuId)
    }

    /// Cards that are ours and stay: those that only end what is in hand serve nobody else.
    fn cards_that_stay(&self) -> u32 {
        let goes = |on: usize| matches!(self.instances[on].state, State::Off | State::Leaving(None));
        self.gpus().filter(|&gpu| !self.on_gpu(gpu).all(goes)).count() as u32
    }

    /// Looks at the number of cards, if that is due.
    pub(super) fn scale(&mut self, now: Time, commands: &mut Commands) {
        if self.fleet.scaler.as_ref().is_none_or(|scaler| now < scaler.due()) {
            return;
        }
        let asked = Asked {
            cards: self.cards_that_stay(),
            inside: true,
            waiting: self.waiting.into(),
        };
        match self.fleet.scaler.as_mut().and_then(|scaler| scaler.ask(now, asked)) {
            None => {}
            Some(Scale::Add(cards)) => {
                let off = self.gpus().filter(|&gpu| self.on_gpu(gpu).all(|on| self.instances[on].state == State::Off));
                let added: Vec<GpuId> = off.take(cards as usize).collect();
                self.fleet.counts.added += added.len() as u64;
                added.into_iter().for_each(|gpu| self.start_card(now, gpu, commands));
            }
            Some(Scale::Release) => self.release_card(now, commands),
        }
    }

    pub(super) fn release_card(&mut self, now: Time, commands: &mut Commands) {
        let Some(gpu) = self.least_busy_card() else { return };
        self.fleet.counts.released += 1;
        self.fleet.plan_anew();
        let serving = self.on_gpu(gpu).filter(|&on| self.instances[on].state != State::Off);
        let leaving: Vec<_> = serving.map(|index| (InstanceId(index as u32), None)).collect();
        self.leave(now, &leaving, commands);
        self.remember(now, self.deployed());
    }

    /// The card with the fewest outstanding requests, of equals the first, among those whose instances all serve, but
    /// for any that could not load their runtime, and that do not have the last of a stream's longest runtime (Eq. 7).
    pub(super) fn least_busy_card(&self) -> Option<GpuId> {
        let busy = self.gpus().filter_map(|gpu| {
            let mut load = None;
            let serves = |runtime, on: usize| self.instances[on].state == State::Serving(runtime);
            for index in self.on_gpu(gpu) {
                let runtime = match self.instances[index].state {
                    State::Serving(runtime) => runtime,
                    State::Off => continue,
                    _ => return None,
                };
                let stream = &self.streams[usize::from(runtime.stream)];
                let longest = usize::from(runtime.runtime) + 1 == stream.spec.runtimes.len();
                if longest
                    && stream.levels.instances(usize::from(runtime.runtime))
                        <= self.on_gpu(gpu).filter(|&on| serves(runtime, on)).count()
                {
                    return None;
                }
                let (_, outstanding) = stream.levels.find(InstanceId(index as u32)).expect("who serves is listed");
                load = Some(load.unwrap_or(0) + outstanding);
            }
            Some((load?, gpu))
        });
        busy.min().map(|(_, gpu)| gpu)
    }
}
