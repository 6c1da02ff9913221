//! Rates: of the generators that a scenario has, the one that is nearest to the first half of a recording.

use serde_json::{Value, json};
use tenantry_reports::trace::{Collector, Trace};
use tenantry_scenarios::scalar::Period;
use tenantry_traces::describe::{Histogram, MAX_SECONDS, dispersion};
use tenantry_traces::fit::{quantiles, twitter};
use tenantry_traces::read::Counts;

use super::{Fitted, after, generate, too_few};
use crate::cli::TraceFitArgs;
use crate::commands::trace::source::Watchdog;
use crate::failure::Failure;

/// Of fewer seconds rates say little.
pub const LEAST: usize = 1200;

/// Requests that a check generates at most, so that it takes seconds; to choose between generators, a fifth.
const GENERATED: f64 = 1e8;
/// How much longer than the recording it is otherwise: what is generated is then off by chance by a quarter of what the recording is.
const TIMES_AS_LONG: f64 = 20.0;

/// What is said of the aims where rates are among what is checked.
pub const AIMS: &str = "the aims allow for what the second half is off by chance, by how many of its windows are \
                        independent; where these are fewer than 30, there is no telling";

pub fn rates(args: &TraceFitArgs, watchdog: &mut Watchdog) -> Result<Fitted, Failure> {
    let mut recorded = Counts::open(&args.file, args.read.skip_bad_lines).map_err(Failure::bad_input)?;
    let all: Vec<u32> = recorded
        .by_ref()
        .collect::<Result<_, _>>()
        .map_err(Failure::bad_input)?;
    let skipped = recorded.skipped();
    let seconds = Seconds::without_holes(args, &all)?;
    let [seen, unseen] = seconds.halves(args)?;
    let generators = Generators::of(seen);
    let name = generators.nearest(args, seen, watchdog)?;
    let arrivals = |counts: &[u32]| {
        let arrivals = generators.arrivals(name, mean(counts));
        vec![("workload.arrivals", arrivals.expect("it could be had before"))]
    };
    // The sample stream's own numbers are not of this file: whether they have seen it, only the user can know.
    let is_unseen = if name == "twitter" {
        "real, second half"
    } else {
        "real, unseen"
    };
    let mut real = trace(unseen, is_unseen)?;
    real.figures.skipped_lines = (skipped > 0).then_some(skipped);
    Ok(Fitted {
        // Rates of two halves differ, and a generator is scaled to the rate that is wanted: the shape is what is checked.
        generated: generate(args, &arrivals(unseen), check_s(unseen, GENERATED), watchdog)?,
        real,
        seen: None,
        keys: arrivals(&seconds.counts),
        notes: vec![
            seconds.holes.clone(),
            nearest_note(name, seen),
            format!(
                "checked against the second half ({} s) at its mean rate, which is all that was taken from that half",
                unseen.len()
            ),
            AIMS.to_owned(),
            seen_note(name),
        ],
    })
}

/// Which generator it is.
pub fn nearest_note(name: &str, seen: &[u32]) -> String {
    format!(
        "`{name}` is the nearest to the first half ({} s) of {}",
        seen.len(),
        Generators::NAMES.join(", ")
    )
}

/// What it has seen.
pub fn seen_note(name: &str) -> String {
    match name {
        "twitter" => "`twitter` was not fitted to this file but to the first eleven days of the sample stream's \
                      2021-08; of a recording that these days are in, or a part of, it has seen the second half too"
            .to_owned(),
        _ => format!("`{name}` is fitted to the first half alone"),
    }
}

/// Requests a second.
pub fn mean(counts: &[u32]) -> f64 {
    counts.iter().map(|&count| f64::from(count)).sum::<f64>() / counts.len() as f64
}

/// For how long to generate at the rate of `counts`, `most` requests at most, and not for longer than a trace is read.
pub fn check_s(counts: &[u32], most: f64) -> Value {
    let seconds = (TIMES_AS_LONG * counts.len() as f64).min(most / mean(counts));
    after(seconds.ceil().min(MAX_SECONDS as f64))
}

fn trace(counts: &[u32], name: &str) -> Result<Trace, Failure> {
    let mut collector = Collector::new(1);
    for (second, &count) in (0..).zip(counts) {
        collector.window(second, count).map_err(Failure::bad_input)?;
    }
    Ok(collector.finish(name, "counts", 0))
}

/// Generators of rates, as far as they can be fitted to per-second counts.
pub struct Generators {
    /// The recording's own calms and plateaus, where it has enough of them.
    regimes: Option<twitter::Regimes>,
    /// The coefficient of variation of a renewal process's gaps, where this is no Poisson process.
    gaps_cv: Option<f64>,
}

impl Generators {
    /// In the order in which they are tried: the first of those that are as near is taken.
    const NAMES: [&str; 5] = ["poisson", "gamma", "mmpp", "regimes", "twitter"];

    /// Fits them.
    pub fn of(seen: &[u32]) -> Generators {
        Generators {
            regimes: twitter::fit_rates(seen),
            gaps_cv: gaps_cv(seen),
        }
    }

    /// `workload.arrivals` by one of them at a mean rate; nothing where it could not be fitted.
    pub fn arrivals(&self, name: &str, mean_per_s: f64) -> Option<Value> {
        let rate = |rate: f64| format!("{rate:.6}/s");
        Some(match name {
            "poisson" => json!({ "poisson": { "rate": rate(mean_per_s) } }),
            "gamma" => {
                let cv: f64 = format!("{:.4}", self.gaps_cv?).parse().expect("a float");
                json!({ "gamma": { "rate": rate(mean_per_s), "cv": cv } })
            }
            "twitter" => json!({ "twitter": { "rate": rate(mean_per_s) } }),
            "regimes" => own_regimes(self.regimes.as_ref()?, rate(mean_per_s)),
            _ => {
                let regimes = self.regimes.as_ref()?;
                let scale = mean_per_s / regimes.mean_rate_per_s();
                let state = |rates: &[quantiles::Knot], dwell_s: &[quantiles::Knot]| {
                    let dwell = format!("{:.3}s", quantiles::mean(dwell_s));
                    json!({ "rate": rate(scale * quantiles::mean(rates)), "mean_dwell": dwell })
                };
                let states = [
                    state(&regimes.calm_rate, &regimes.calm_s),
                    state(&regimes.plateau_rate, &regimes.plateau_s),
                ];
                json!({ "mmpp": { "states": states } })
            }
        })
    }

    /// The nearest to what they were fitted to: the other half only judges.
    pub fn nearest(&self, args: &TraceFitArgs, seen: &[u32], watchdog: &mut Watchdog) -> Result<&'static str, Failure> {
        let real = trace(seen, "real, seen")?;
        let mut best: Option<(f64, &str)> = None;
        for name in Generators::NAMES {
            let Some(arrivals) = self.arrivals(name, mean(seen)) else {
                continue;
            };
            let keys = vec![("workload.arrivals", arrivals)];
            let generated = generate(args, &keys, check_s(seen, GENERATED / 5.0), watchdog)?;
            let distance = distance(&real, &generated);
            if best.is_none_or(|(least, _)| distance < least) {
                best = Some((distance, name));
            }
        }
        let (_, name) = best.expect("a Poisson process can always be had");
        Ok(name)
    }
}

/// Counts of a renewal process in long windows vary over their mean as its gaps do over theirs, squared (Cox and Lewis, *The Statistical Analysis of Series of
/// Events*, 1966, section 4.6). `None` where that is 1 within three standard errors, as of a Poisson process, or beyond what a scenario can say.
fn gaps_cv(counts: &[u32]) -> Option<f64> {
    const WINDOW_S: usize = 10;
    let windows = (counts.len() / WINDOW_S) as f64;
    let dispersion = dispersion(counts, WINDOW_S)?;
    let is_poisson = (dispersion - 1.0).abs() < 3.0 * (2.0 / windows).sqrt();
    let cv = dispersion.sqrt();
    (!is_poisson && cv > 0.0 && cv <= 100.0).then_some(cv)
}

/// The pattern of the recording itself.
fn own_regimes(regimes: &twitter::Regimes, rate: String) -> Value {
    let seconds = |seconds: f64| format!("{seconds:.3}s");
    let regime = |lasts: &[quantiles::Knot], rates: &[quantiles::Knot], memory_s: f64| {
        let lasts = lasts
            .iter()
            .map(|knot| json!({ "share": knot.0, "time": seconds(knot.1) }));
        let rates = rates
            .iter()
            .map(|knot| json!({ "share": knot.0, "rate": format!("{}/s", knot.1) }));
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

/// What is a hole of a recording where nothing else is said.
const HOLE: &str = "1min";

/// Per-second counts without the recording's holes.
pub struct Seconds {
    pub counts: Vec<u32>,
    /// Of each, which of the recording's seconds it is.
    at: Vec<usize>,
    /// What became of stretches without a request.
    pub holes: String,
}

impl Seconds {
    /// Leaves out stretches without a request that are as long as `--drop-zeros-from` says, or where it says nothing a minute, unless the rate is so low
    /// that chance makes some.
    pub fn without_holes(args: &TraceFitArgs, all: &[u32]) -> Result<Seconds, Failure> {
        let hole = args.drop_zeros_from.as_deref().unwrap_or(HOLE);
        let period: Period = serde_yaml::from_str(hole)
            .map_err(|_| Failure::BadInput(format!("--drop-zeros-from: must be {}, got {hole}", Period::MUST)))?;
        let hole_s = period.0.as_secs_f64().ceil() as usize;
        let runs = || all.chunk_by(|a, b| (*a == 0) == (*b == 0));
        let is_hole = |run: &[u32]| run[0] == 0 && run.len() >= hole_s;
        let holes_s: usize = runs().filter(|run| is_hole(run)).map(<[u32]>::len).sum();
        // How many such stretches follow on seconds with requests where these come at random, at the rate that is left.
        let requests: f64 = all.iter().map(|&count| f64::from(count)).sum();
        let rate = requests / (all.len() - holes_s).max(1) as f64;
        let asked = all.iter().filter(|&&count| count > 0).count() as f64;
        let stretches = |rate: f64| asked * (-rate * hole_s as f64).exp();
        // Where requests stand so far apart that most stretches are as long, what is left of the time says nothing of the rate; then there is no more
        // silence than at the rate over all of it.
        let rate_of_all = requests / all.len() as f64;
        let silent_s = stretches(rate_of_all) * (hole_s as f64 + 1.0 / rate_of_all);
        let is_chance = stretches(rate) >= 0.5 || holes_s as f64 <= 2.0 * silent_s;
        if holes_s > 0 && is_chance && args.drop_zeros_from.is_none() {
            return Ok(Seconds {
                counts: all.to_vec(),
                at: (0..all.len()).collect(),
                holes: format!(
                    "stretches of {hole} and more without a request count as silence, since so low a rate has some; \
                     --drop-zeros-from takes them for holes"
                ),
            });
        }
        let (mut counts, mut at, mut second) = (Vec::new(), Vec::new(), 0);
        for run in runs() {
            if !is_hole(run) {
                counts.extend(run);
                at.extend(second..second + run.len());
            }
            second += run.len();
        }
        let holes = match holes_s {
            0 => "no stretch without requests was taken for a hole of the recording".to_owned(),
            seconds => format!(
                "{seconds} s in stretches of {hole} and more without a request are taken for holes of the recording \
                 and left out; with a longer --drop-zeros-from they count as silence"
            ),
        };
        Ok(Seconds { counts, at, holes })
    }

    /// The first half, to fit, and the second, to check.
    pub fn halves(&self, args: &TraceFitArgs) -> Result<[&[u32]; 2], Failure> {
        if self.counts.len() < LEAST {
            return Err(too_few(args, "seconds with counts", LEAST, self.counts.len()));
        }
        let (seen, unseen) = self.counts.split_at(self.counts.len() / 2);
        if mean(seen) == 0.0 || mean(unseen) == 0.0 {
            return Err(too_few(args, "requests in each half", 1, 0));
        }
        Ok([seen, unseen])
    }

    /// The second of the recording with which the second half begins.
    pub fn middle(&self) -> usize {
        self.at[self.counts.len() / 2]
    }
}
