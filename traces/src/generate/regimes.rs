//! The rate of a stream with calms and plateaus, as [`Regimes`] describe it.

use super::process::{Rates, Segment};
use crate::draw::Draws;
use crate::error::{TraceError, not_negative, positive};
use crate::fit::quantiles::{self, Knot};
use crate::fit::twitter::{Regimes, STEP_S};
use crate::time::Time;

/// The generator: a segment for each step of the level.
pub struct RegimeRates<K> {
    regimes: Regimes<K>,
    scale: f64,
    durations: Draws,
    levels: Draws,
    runs: u64,
    steps: u64,
    on_plateau: bool,
    run_until: Time,
    /// The levels of calms and of plateaus as standard normal variables. That of calms goes on after a plateau.
    calm_level: f64,
    plateau_level: f64,
    now: Time,
}

/// That there is a rate and that time goes on.
///
/// # Errors
/// [`TraceError::Spec`] with the points that must be others; `field` names `regimes`.
pub fn check(field: &str, regimes: &Regimes) -> Result<(), TraceError> {
    for (name, knots) in [
        ("calm.lasts", &regimes.calm_s),
        ("calm.rates", &regimes.calm_rate),
        ("plateau.lasts", &regimes.plateau_s),
        ("plateau.rates", &regimes.plateau_rate),
    ] {
        let field = format!("{field}.{name}");
        let ends = (knots.first().map(|knot| knot.0), knots.last().map(|knot| knot.0));
        let rise = knots.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1);
        if ends != (Some(0.0), Some(1.0)) || knots.len() < 2 || !rise {
            let must_be = "points that rise from share 0 to share 1";
            return Err(TraceError::spec(&field, must_be, format!("{knots:?}")));
        }
        not_negative(&field, knots[0].1)?;
        if name != "calm.rates" {
            positive(&field, quantiles::mean(knots))?;
        }
    }
    positive(&format!("{field}.calm.memory"), regimes.calm_memory_s)?;
    positive(&format!("{field}.plateau.memory"), regimes.plateau_memory_s)?;
    Ok(())
}

impl<K: AsRef<[Knot]>> RegimeRates<K> {
    /// The pattern of `regimes` at a mean of `rate_per_s`.
    pub fn new(regimes: Regimes<K>, rate_per_s: f64, draws: Draws) -> RegimeRates<K> {
        let (calm_s, plateau_s) = (
            quantiles::mean(regimes.calm_s.as_ref()),
            quantiles::mean(regimes.plateau_s.as_ref()),
        );
        let (durations, levels) = (draws.part(0), draws.part(1));
        RegimeRates {
            scale: rate_per_s / regimes.mean_rate_per_s() / 1e9,
            // Flipped when the first run begins.
            on_plateau: durations.about(0).unit() * (calm_s + plateau_s) < calm_s,
            regimes,
            durations,
            levels,
            runs: 0,
            steps: 0,
            run_until: Time::ZERO,
            calm_level: levels.about(u64::MAX).normal(),
            plateau_level: 0.0,
            now: Time::ZERO,
        }
    }

    fn begin_run(&mut self) {
        self.on_plateau = !self.on_plateau;
        let mut stream = self.durations.about(self.runs + 1);
        let duration_s = if self.on_plateau {
            &self.regimes.plateau_s
        } else {
            &self.regimes.calm_s
        }
        .as_ref();
        let duration_s = match self.runs {
            // The run that is under way at the start: an instant falls into long ones more often than there are such,
            // anywhere in them.
            0 => quantiles::value_by_size_at(duration_s, stream.unit()) * stream.unit(),
            _ => quantiles::value_at(duration_s, stream.unit()),
        };
        self.runs += 1;
        let ns = duration_s * 1e9;
        self.run_until = Time(self.now.0.saturating_add(ns.max(1.0) as u64));
    }
}

impl<K: AsRef<[Knot]> + Send> Rates for RegimeRates<K> {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        let mut stream = self.levels.about(self.steps);
        self.steps += 1;
        if self.now >= self.run_until {
            self.begin_run();
            if self.on_plateau {
                self.plateau_level = stream.normal();
            }
        }
        let (rate, memory_s, level) = if self.on_plateau {
            (
                &self.regimes.plateau_rate,
                self.regimes.plateau_memory_s,
                &mut self.plateau_level,
            )
        } else {
            (
                &self.regimes.calm_rate,
                self.regimes.calm_memory_s,
                &mut self.calm_level,
            )
        };
        let kept = libm::exp(-(STEP_S as f64) / memory_s);
        *level = kept * *level + libm::sqrt(1.0 - kept * kept) * stream.normal();
        let probability = 0.5 * libm::erfc(-*level / std::f64::consts::SQRT_2);
        let step_end = Time(self.now.0.saturating_add(STEP_S as u64 * 1_000_000_000));
        self.now = step_end.min(self.run_until);
        Ok(Some(Segment {
            until: self.now,
            rate_per_ns: quantiles::value_at(rate.as_ref(), probability) * self.scale,
            slope: 0.0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Purpose;
    use crate::fit::twitter::RATES;

    /// A recording begins at no particular moment of its stream: neither its first minutes nor later ones have more
    /// plateaus or requests than all of it.
    #[test]
    fn the_beginning_is_as_any_other_time() {
        const SEEDS: u64 = 20_000;
        const MINUTES: usize = 10;
        let calm_s = quantiles::mean(RATES.calm_s);
        let plateau_s = quantiles::mean(RATES.plateau_s);
        let must_be = plateau_s / (calm_s + plateau_s);
        let mut requests = Vec::new();
        let mut on_plateau_s = [0.0; MINUTES];
        for seed in 0..SEEDS {
            let mut rates = RegimeRates::new(RATES, 1.0, Draws::new(seed, Purpose::Rate));
            let (mut from_s, mut sum) = (0.0, 0.0);
            while from_s < 60.0 * MINUTES as f64 {
                let segment = rates.next().unwrap().unwrap();
                let until_s = segment.until.as_secs_f64().min(60.0 * MINUTES as f64);
                sum += (until_s - from_s) * segment.rate_per_ns * 1e9;
                // A step is within a minute, since six are one, but for the ends of runs, which part few.
                on_plateau_s[(from_s / 60.0) as usize] += f64::from(u8::from(rates.on_plateau)) * (until_s - from_s);
                from_s = until_s;
            }
            requests.push(sum / (60.0 * MINUTES as f64));
        }
        let count = SEEDS as f64;
        let mean = requests.iter().sum::<f64>() / count;
        let variance = requests.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / count;
        let error = libm::sqrt(variance / count);
        assert!((mean - 1.0).abs() < 3.0 * error, "{mean} ± {error}");
        let error = libm::sqrt(must_be * (1.0 - must_be) / count);
        for (minute, seconds) in on_plateau_s.iter().enumerate() {
            let share = seconds / 60.0 / count;
            assert!(
                (share - must_be).abs() < 3.0 * error,
                "minute {minute}: {share}, must be {must_be} ± {error}"
            );
        }
    }
}
