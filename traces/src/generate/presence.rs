//! Which tenants are awake, instant by instant.

use super::popularity::{PART_DIURNAL_PHASE, PART_LIFE, PART_ON_OFF};
use crate::draw::{Draws, Purpose, Stream};
use crate::error::{TraceError, positive};
use crate::spec::{DiurnalSpec, LifetimesSpec, OnOffSpec, Phases, PresenceSpec};
use crate::time::{Duration, Time};

/// The tenants' states at the current instant, which never goes back. Memory grows with the tenants, not with the
/// requests.
pub struct Presence {
    on_off: Option<OnOff>,
    diurnal: Option<Diurnal>,
    lives: Option<Vec<Life>>,
    /// For what is awake in part.
    coins: Draws,
    /// When the last tenant has gone.
    pub over: Time,
}

impl Presence {
    /// Nothing where every tenant is always awake.
    pub fn new(seed: u64, tenants: u32, spec: &PresenceSpec) -> Result<Option<Presence>, TraceError> {
        if *spec == PresenceSpec::default() {
            return Ok(None);
        }
        let properties = Draws::new(seed, Purpose::TenantProperty);
        let lives = spec
            .lifetimes
            .map(|lifetimes| lives(properties.part(PART_LIFE), tenants, &lifetimes))
            .transpose()?;
        let over = lives.as_ref().and_then(|lives| lives.iter().map(|life| life.end).max());
        Ok(Some(Presence {
            on_off: spec
                .on_off
                .map(|on_off| OnOff::new(properties.part(PART_ON_OFF), tenants, on_off))
                .transpose()?,
            diurnal: spec
                .diurnal
                .map(|diurnal| Diurnal::new(properties.part(PART_DIURNAL_PHASE), tenants, diurnal))
                .transpose()?,
            lives,
            coins: Draws::new(seed, Purpose::Presence),
            over: over.unwrap_or(Time::MAX),
        }))
    }

    /// Which share of what is asked for is sent, over a long time and in the mean over tenants; lifetimes are not
    /// counted.
    pub fn kept(&self) -> f64 {
        self.on_off.as_ref().map_or(1.0, |on_off| on_off.share_on)
            * self.diurnal.as_ref().map_or(1.0, |diurnal| 0.5 * (1.0 + diurnal.trough))
    }

    /// Whether `tenant` sends at `at`, which is not before the last one asked about; `candidate` numbers the question.
    #[inline]
    pub fn is_awake(&mut self, tenant: u32, at: Time, candidate: u64) -> bool {
        if let Some(lives) = &self.lives {
            let life = lives[tenant as usize];
            if at < life.start || at >= life.end {
                return false;
            }
        }
        if let Some(on_off) = &mut self.on_off
            && !on_off.is_on(tenant, at)
        {
            return false;
        }
        let diurnal = self.diurnal.as_ref();
        diurnal.is_none_or(|diurnal| self.coins.about(candidate).unit() < diurnal.activity(tenant, at))
    }
}

/// Times as long as they are on: with tenants that sleep longer, a request would take milliseconds to be drawn.
const LONGEST_OFF: f64 = 10_000.0;

/// Turns of all tenants. Those of one are functions of the seed, of the tenant and of how many went before; of a tenant
/// that asks after so long that its turns are forgotten, also of when it asked before.
struct OnOff {
    draws: Draws,
    spec: OnOffSpec,
    share_on: f64,
    /// After so long nothing is left of what a tenant was.
    forgotten: Duration,
    turns: Vec<Turn>,
}

/// Of the time in which the chance to be on comes nearer to the share of time that is on by the factor e: after as
/// many, nearer than a draw can tell (e^-40 is below 2^-53).
const FORGOTTEN_AFTER: f64 = 40.0;

#[derive(Clone, Copy)]
struct Turn {
    until: Time,
    number: u32,
    on: bool,
}

impl OnOff {
    fn new(draws: Draws, tenants: u32, spec: OnOffSpec) -> Result<OnOff, TraceError> {
        let field = "tenants.presence.on_off";
        let on_s = positive(&format!("{field}.mean_on"), spec.mean_on.as_secs_f64())?;
        let off_s = positive(&format!("{field}.mean_off"), spec.mean_off.as_secs_f64())?;
        if off_s > LONGEST_OFF * on_s {
            let must_be = format!(
                "at least 1/{LONGEST_OFF} of mean_off, since all that sleeping tenants would ask is drawn and left out"
            );
            let got = format!("1/{:.0} of it", off_s / on_s);
            return Err(TraceError::spec(&format!("{field}.mean_on"), &must_be, got));
        }
        let share_on = on_s / (on_s + off_s);
        let mut on_off = OnOff {
            draws,
            spec,
            share_on,
            // The chain of two states forgets at the sum of both rates (Cox and Miller, "The Theory of Stochastic
            // Processes", section 4.3).
            forgotten: Duration((FORGOTTEN_AFTER * share_on * spec.mean_off.0 as f64) as u64),
            turns: Vec::with_capacity(tenants as usize),
        };
        for tenant in 0..tenants {
            let on = draws.about(u64::from(tenant)).unit() < share_on;
            let mut turn = Turn {
                until: Time::ZERO,
                number: 0,
                on,
            };
            // What is left of an exponential turn is as long as a whole one.
            turn.until = on_off.end(tenant, turn);
            on_off.turns.push(turn);
        }
        Ok(on_off)
    }

    /// The end of a turn that begins at its `until`.
    fn end(&self, tenant: u32, turn: Turn) -> Time {
        let mean = if turn.on { self.spec.mean_on } else { self.spec.mean_off };
        let mut stream = self.stream(tenant, turn.number);
        // At least a nanosecond, so that time goes on whatever is drawn.
        let ns = (mean.0 as f64 * stream.exponential()).max(1.0) as u64;
        Time(turn.until.0.saturating_add(ns))
    }

    fn stream(&self, tenant: u32, turn: u32) -> Stream {
        self.draws.part(u64::from(tenant)).about(u64::from(turn))
    }

    /// The turn at `at`, long after `last`: as at the start, whatever went between.
    fn anew(&self, tenant: u32, last: Turn, at: Time) -> Turn {
        let coin = last.number.wrapping_add(1);
        let mut turn = Turn {
            until: at,
            number: coin.wrapping_add(1),
            on: self.stream(tenant, coin).unit() < self.share_on,
        };
        turn.until = self.end(tenant, turn);
        turn
    }

    #[inline]
    fn is_on(&mut self, tenant: u32, at: Time) -> bool {
        let mut turn = self.turns[tenant as usize];
        if at >= turn.until {
            // Rather than turn after turn, of which there may be any number since the tenant last asked.
            if at.since(turn.until) > self.forgotten {
                turn = self.anew(tenant, turn, at);
            }
            while at >= turn.until {
                turn.on = !turn.on;
                turn.number = turn.number.wrapping_add(1);
                turn.until = self.end(tenant, turn);
            }
            self.turns[tenant as usize] = turn;
        }
        turn.on
    }
}

/// Points of the day at which activity is kept; between them it is linear, and off by less than 5e-6.
const POINTS: usize = 1024;

struct Diurnal {
    turns_per_ns: f64,
    trough: f64,
    /// At [`POINTS`] points from the trough on, and at its end again.
    activity: Vec<f64>,
    /// Of each tenant, in periods; empty where they peak together.
    phases: Vec<f32>,
}

impl Diurnal {
    fn new(draws: Draws, tenants: u32, spec: DiurnalSpec) -> Result<Diurnal, TraceError> {
        let field = "tenants.presence.diurnal";
        positive(&format!("{field}.period"), spec.period.as_secs_f64())?;
        if !(0.0..=1.0).contains(&spec.trough) {
            return Err(TraceError::spec(
                &format!("{field}.trough"),
                "a number from 0 to 1",
                spec.trough,
            ));
        }
        let activity = |point: usize| {
            let cosine = libm::cos(std::f64::consts::TAU * point as f64 / POINTS as f64);
            spec.trough + (1.0 - spec.trough) * 0.5 * (1.0 - cosine)
        };
        let phase = |tenant| draws.about(u64::from(tenant)).unit() as f32;
        Ok(Diurnal {
            turns_per_ns: 1.0 / spec.period.0 as f64,
            trough: spec.trough,
            activity: (0..=POINTS).map(activity).collect(),
            phases: match spec.phases {
                Phases::Together => Vec::new(),
                Phases::Spread => (0..tenants).map(phase).collect(),
            },
        })
    }

    /// From `trough` to 1.
    #[inline]
    fn activity(&self, tenant: u32, at: Time) -> f64 {
        let phase = self.phases.get(tenant as usize).map_or(0.0, |&phase| f64::from(phase));
        let turns = at.0 as f64 * self.turns_per_ns + phase;
        let point = (turns - turns.floor()) * POINTS as f64;
        let below = (point as usize).min(POINTS - 1);
        let [from, to] = [self.activity[below], self.activity[below + 1]];
        from + (to - from) * (point - below as f64)
    }
}

#[derive(Clone, Copy)]
struct Life {
    start: Time,
    end: Time,
}

fn lives(draws: Draws, tenants: u32, spec: &LifetimesSpec) -> Result<Vec<Life>, TraceError> {
    let field = "tenants.presence.lifetimes";
    if !(0.0..=1.0).contains(&spec.present_at_start) {
        return Err(TraceError::spec(
            &format!("{field}.present_at_start"),
            "a share from 0 to 1",
            spec.present_at_start,
        ));
    }
    if spec.present_at_start < 1.0 && spec.appear_within == Duration::ZERO {
        let must_be = "above 0 where not all tenants are there from the start";
        return Err(TraceError::spec(&format!("{field}.appear_within"), must_be, "0 s"));
    }
    if let Some(mean_stay) = spec.mean_stay {
        positive(&format!("{field}.mean_stay"), mean_stay.as_secs_f64())?;
    }
    let life = |tenant: u32| {
        let mut stream = draws.about(u64::from(tenant));
        let there = stream.unit() < spec.present_at_start;
        let start = if there { 0 } else { stream.below(spec.appear_within.0) };
        let end = spec.mean_stay.map_or(u64::MAX, |mean| {
            start.saturating_add((mean.0 as f64 * stream.exponential()) as u64)
        });
        Life {
            start: Time(start),
            end: Time(end),
        }
    };
    Ok((0..tenants).map(life).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenant that asks seldom has no more turns drawn than are remembered, and is awake as often as any.
    #[test]
    fn turns_long_past_are_not_drawn() {
        let spec = OnOffSpec {
            mean_on: Duration::from_millis(1),
            mean_off: Duration::from_millis(3),
        };
        let tenants = 40_000;
        let mut on_off = OnOff::new(Draws::new(7, Purpose::TenantProperty), tenants, spec).unwrap();
        // Rarely, then soon after, then at the same instant.
        for (at_ms, asks_before) in [(1_000, 0), (1_001, 1), (1_001, 2)] {
            let at = Time(at_ms * 1_000_000);
            let on = (0..tenants).filter(|&tenant| on_off.is_on(tenant, at)).count();
            let share = on as f64 / f64::from(tenants);
            assert!(
                (share - 0.25).abs() < 5.0 * (0.25 * 0.75 / f64::from(tenants)).sqrt(),
                "{share}"
            );
            let most = on_off.turns.iter().map(|turn| turn.number).max().unwrap();
            assert!(most < 40, "{most} turns after {asks_before} times");
        }
    }
}
