//! Of the generators of arrivals that a scenario has, the one that is nearest to the first half of a recording.

use serde_json::{Value, json};
use tenantry_reports::trace::Trace;
use tenantry_traces::Duration;
use tenantry_traces::describe::{Histogram, dispersion};
use tenantry_traces::fit::mmpp::{self, Arrivals};
use tenantry_traces::fit::quantiles::{self, Knot};
use tenantry_traces::fit::twitter::{self, Regimes};
use tenantry_traces::spec::MmppState;

use super::generate;
use super::rates::{GENERATED, check_s, mean, trace};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::Watchdog;
use crate::failure::Failure;

/// A generator, fitted.
pub enum Generator {
    Poisson,
    /// A renewal process whose gaps have this coefficient of variation.
    Gamma {
        cv: f64,
    },
    /// Two levels.
    Mmpp([MmppState; 2]),
    /// The recording's own calms and plateaus.
    Regimes(Regimes),
    /// The sample stream's own pattern.
    Twitter,
}

/// The nearest, and which were tried.
pub struct Nearest {
    pub generator: Generator,
    tried: Vec<&'static str>,
}

/// The nearest to what they were fitted to: the other half only judges. `arrivals` are those that are counted in
/// `seen`.
pub fn nearest(
    args: &TraceFitArgs,
    seen: &[u32],
    arrivals: Arrivals,
    watchdog: &mut Watchdog,
) -> Result<Nearest, Failure> {
    let real = trace(seen, "real, seen")?;
    let mut best: Option<(f64, Generator)> = None;
    let mut tried = Vec::new();
    for generator in fitted(seen, arrivals) {
        tried.push(generator.name());
        let keys = vec![("workload.arrivals", generator.arrivals(mean(seen)))];
        let generated = generate(args, &keys, check_s(seen, GENERATED / 5.0), watchdog)?;
        let distance = distance(&real, &generated);
        if best.as_ref().is_none_or(|(least, _)| distance < *least) {
            best = Some((distance, generator));
        }
    }
    tried.dedup();
    let (_, generator) = best.expect("a Poisson process can always be had");
    Ok(Nearest { generator, tried })
}

/// All that could be fitted, in the order in which they are tried: the first of those that are as near is taken.
fn fitted(seen: &[u32], arrivals: Arrivals) -> Vec<Generator> {
    let regimes = twitter::fit_rates(seen);
    let mut all = vec![Generator::Poisson];
    all.extend(gaps_cv(seen).map(|cv| Generator::Gamma { cv }));
    all.extend(mmpp::fit(arrivals).map(Generator::Mmpp));
    // Where a rate has more than two levels, calms and plateaus by their means may be nearer than what is likeliest.
    all.extend(regimes.as_ref().and_then(levels).map(Generator::Mmpp));
    all.extend(regimes.map(Generator::Regimes));
    all.push(Generator::Twitter);
    all
}

impl Nearest {
    /// Which generator it is.
    pub fn note(&self, seen: &[u32]) -> String {
        format!(
            "`{}` is the nearest to the first half ({} s) of {}, which are all that could be fitted to it",
            self.generator.name(),
            seen.len(),
            self.tried.join(", ")
        )
    }
}

impl Generator {
    fn name(&self) -> &'static str {
        match self {
            Generator::Poisson => "poisson",
            Generator::Gamma { .. } => "gamma",
            Generator::Mmpp(_) => "mmpp",
            Generator::Regimes(_) => "regimes",
            Generator::Twitter => "twitter",
        }
    }

    /// `workload.arrivals` by it at a mean rate.
    pub fn arrivals(&self, mean_per_s: f64) -> Value {
        let rate = |rate: f64| format!("{rate:.6}/s");
        match self {
            Generator::Poisson => json!({ "poisson": { "rate": rate(mean_per_s) } }),
            Generator::Gamma { cv } => {
                let cv: f64 = format!("{cv:.4}").parse().expect("a float");
                json!({ "gamma": { "rate": rate(mean_per_s), "cv": cv } })
            }
            Generator::Mmpp(states) => {
                let over = |of: fn(&MmppState) -> f64| -> f64 {
                    states.iter().map(|state| of(state) * state.mean_dwell.as_secs_f64()).sum()
                };
                let scale = mean_per_s * over(|_| 1.0) / over(|state| state.rate_per_s);
                let state = |state: &MmppState| {
                    let dwell = format!("{:.6}s", state.mean_dwell.as_secs_f64());
                    json!({ "rate": rate(scale * state.rate_per_s), "mean_dwell": dwell })
                };
                json!({ "mmpp": { "states": states.iter().map(state).collect::<Vec<_>>() } })
            }
            Generator::Regimes(regimes) => own_regimes(regimes, rate(mean_per_s)),
            Generator::Twitter => json!({ "twitter": { "rate": rate(mean_per_s) } }),
        }
    }

    /// What it has seen.
    pub fn seen_note(&self) -> String {
        match self {
            Generator::Twitter => "`twitter` was not fitted to this file but to the first eleven days of the sample \
                                   stream's 2021-08; of a recording that these days are in, or a part of, it has seen \
                                   the second half too"
                .to_owned(),
            _ => format!("`{}` is fitted to the first half alone", self.name()),
        }
    }
}

/// Calms and plateaus as two levels: by the means of how long they last and of their rates.
fn levels(regimes: &Regimes) -> Option<[MmppState; 2]> {
    let state = |rates: &[Knot], lasts_s: &[Knot]| {
        Some(MmppState {
            rate_per_s: quantiles::mean(rates),
            mean_dwell: Duration::from_secs_f64(quantiles::mean(lasts_s))?,
        })
    };
    Some([
        state(&regimes.calm_rate, &regimes.calm_s)?,
        state(&regimes.plateau_rate, &regimes.plateau_s)?,
    ])
}

/// Counts of a renewal process in long windows vary over their mean as its gaps do over theirs, squared (Cox and Lewis,
/// *The Statistical Analysis of Series of Events*, 1966, section 4.6). `None` where that is 1 within three standard
/// errors, as of a Poisson process, or beyond what a scenario can say.
fn gaps_cv(counts: &[u32]) -> Option<f64> {
    const WINDOW_S: usize = 10;
    let windows = (counts.len() / WINDOW_S) as f64;
    let dispersion = dispersion(counts, WINDOW_S)?;
    let is_poisson = (dispersion - 1.0).abs() < 3.0 * (2.0 / windows).sqrt();
    let cv = dispersion.sqrt();
    (!is_poisson && cv > 0.0 && cv <= 100.0).then_some(cv)
}

/// The pattern of the recording itself.
fn own_regimes(regimes: &Regimes, rate: String) -> Value {
    let seconds = |seconds: f64| format!("{seconds:.3}s");
    let regime = |lasts: &[Knot], rates: &[Knot], memory_s: f64| {
        let lasts = lasts.iter().map(|knot| json!({ "share": knot.0, "time": seconds(knot.1) }));
        let rates = rates.iter().map(|knot| json!({ "share": knot.0, "rate": format!("{}/s", knot.1) }));
        json!({
            "lasts": lasts.collect::<Vec<_>>(),
            "rates": rates.collect::<Vec<_>>(),
            "memory": seconds(memory_s.max(0.001)),
        })
    };
    json!({ "regimes": {
        "rate": rate,
        "calm": regime(&regimes.calm_s, &regimes.calm_rate, regimes.calm_memory_s),
        "plateau": regime(&regimes.plateau_s, &regimes.plateau_rate, regimes.plateau_memory_s),
    } })
}

/// How far a generator is off: the distance of the rates' distributions, and by what factor dispersion is missed.
fn distance(real: &Trace, generated: &Trace) -> f64 {
    let histogram = |trace: &Trace| trace.curves.counts.iter().copied().collect();
    let real_rates: Histogram = histogram(real);
    let rates = real_rates.distance(&histogram(generated)).unwrap_or(1.0);
    let dispersions = real.figures.dispersion.iter().map(|(window, real)| {
        let generated = generated.figures.dispersion.get(window).copied().unwrap_or(0.0);
        (generated / real).ln().abs().min(3.0)
    });
    rates + dispersions.sum::<f64>() / 3.0
}
