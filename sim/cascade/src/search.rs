//! The fastest candidate that meets a task's targets (Tabi, section 5).
//!
//! [`Repository::best`] misses nothing: it leaves out only what provably cannot be chosen. A lower cut-off sends no
//! item further, so that a way's mean latency is least at the lowest one, by one of the slopes; and no way is more
//! accurate than its models' answers allow (`accuracy_max`). Tails bound nothing: whether a candidate keeps its p99 is
//! looked at for each that is fast enough. The paper's own search gives up early; [`EarlyStops`] are its rules, and
//! what they miss is measured in `examples/early_stops.rs`.

use crate::candidates::{Candidate, Flow, Joins, Repository, Rules, Way};
use crate::error::CascadeError;
use crate::reroute::Reroute;

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Share of right answers, at least.
    pub accuracy: f64,
    /// Mean latency, at most.
    pub mean_ms: Option<f64>,
    /// Latency that 99 % of the items keep, at most.
    pub p99_ms: Option<f64>,
}

/// Where a search gives up early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EarlyStops {
    /// No lower cut-off is tried from the first at which a candidate is less accurate than its models in the mean.
    pub below_models_mean: bool,
    /// A candidate's latency at p75, by the greatest of its models alone, at most.
    pub p75_factor_max: f64,
    /// No higher degree of pruning is tried from the first that costs a model more of its accuracy, as a share of the
    /// items.
    pub pruning_loss_max: f64,
}

impl EarlyStops {
    /// Section 5's. It knows no model but the first of a candidate whose attention prunes.
    pub const PAPER: EarlyStops = EarlyStops {
        below_models_mean: true,
        p75_factor_max: 1.5,
        pruning_loss_max: 0.02,
    };
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The fastest candidate, in the mean, that meets the targets, and the more accurate among equals; or those that
    /// come nearest, as [`select`] has them.
    pub chosen: Result<Candidate, Vec<Candidate>>,
    /// How many candidates there are.
    pub candidates: usize,
    /// How many of them had to be measured.
    pub measured: usize,
}

impl Repository {
    /// The fastest of all candidates that meet the targets.
    ///
    /// # Errors
    /// As [`Repository::check`], and where a rule is out of its range.
    pub fn best(&self, rules: &Rules, targets: &Targets) -> Result<Search, CascadeError> {
        self.check()?;
        let dispatchers = rules.dispatchers()?;
        let ways = self.ways(rules.levels_max);
        let candidates = ways.iter().map(|way| rules.choices(way, &dispatchers).len()).sum();
        let mut by_least: Vec<(f64, usize)> = Vec::with_capacity(ways.len());
        for (place, way) in ways.iter().enumerate() {
            let least_ms = match way.passes.len() {
                1 => self.mean_ms(way, None),
                _ => lowest(&dispatchers)
                    .map(|reroute| self.mean_ms(way, Some(reroute)))
                    .fold(f64::INFINITY, f64::min),
            };
            // Sums round.
            by_least.push((least_ms * (1.0 - 1e-9), place));
        }
        by_least.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut best: Option<Chosen> = None;
        let mut measured = 0;
        for (least_ms, place) in by_least {
            let way = &ways[place];
            if best.as_ref().is_some_and(|best| least_ms > best.candidate.mean_ms) {
                break;
            }
            if self.accuracy_max(way) + 1e-9 < targets.accuracy {
                continue;
            }
            let elapsed = self.elapsed(way);
            let mut flow: Option<Flow> = None;
            // Of a slope from the lowest cut-off up, so that the first to meet the targets is its fastest.
            for (choice, (reroute, average)) in rules.choices(way, &dispatchers).into_iter().enumerate().rev() {
                if flow.as_ref().is_none_or(|flow| flow.reroute != reroute) {
                    flow = Some(self.flow(way, &elapsed, reroute));
                }
                let flow = flow.as_ref().expect("it was just made");
                let slower = best.as_ref().is_some_and(|best| flow.mean_ms > best.candidate.mean_ms);
                if slower || targets.missed_by(targets.accuracy, flow.mean_ms, flow.p99_ms) > 0.0 {
                    continue;
                }
                measured += 1;
                let candidate = self.measured(way, flow, average)?;
                let found = Chosen {
                    candidate,
                    place: (place, choice),
                };
                if targets.miss(&found.candidate) == 0.0 && best.as_ref().is_none_or(|best| found.precedes(best)) {
                    best = Some(found);
                }
            }
        }
        let chosen = match best {
            Some(best) => Ok(best.candidate),
            None => {
                measured = candidates;
                let all = self.candidates(rules, None)?;
                select(&all, targets).cloned().map_err(|nearest| nearest.into_iter().cloned().collect())
            }
        };
        Ok(Search {
            chosen,
            candidates,
            measured,
        })
    }

    /// All candidates, or those that early stops leave; single models first.
    ///
    /// # Errors
    /// As [`Repository::check`], and where a rule is out of its range.
    pub fn candidates(&self, rules: &Rules, stops: Option<&EarlyStops>) -> Result<Vec<Candidate>, CascadeError> {
        self.check()?;
        let dispatchers = rules.dispatchers()?;
        let mut ways = self.ways(rules.levels_max);
        if let Some(stops) = stops {
            self.drop_what_prunes_too_much(&mut ways, stops);
        }
        let mut found = Vec::new();
        for way in &ways {
            let alone = |&model: &usize| &self.models[model].whole;
            let models = || way.models.iter().map(alone);
            let mean = models().map(|pass| self.accuracy_of(&pass.outputs)).sum::<f64>() / way.models.len() as f64;
            let slowest_ms = models().map(|pass| pass.quantile_ms(0.75)).fold(0.0, f64::max);
            let elapsed = self.elapsed(way);
            let slope = |choice: &(Option<Reroute>, bool)| choice.0.map(|reroute| reroute.slope());
            let mut given_up = None;
            for choices in rules.choices(way, &dispatchers).chunk_by(|a, b| a.0 == b.0) {
                if given_up.is_some() && given_up == slope(&choices[0]) {
                    continue;
                }
                let flow = self.flow(way, &elapsed, choices[0].0);
                let candidates = choices
                    .iter()
                    .map(|&(_, average)| self.measured(way, &flow, average))
                    .collect::<Result<Vec<_>, _>>()?;
                if let Some(stops) = stops.filter(|_| way.passes.len() > 1) {
                    let all_below = candidates.iter().all(|candidate| candidate.accuracy < mean);
                    if stops.below_models_mean && all_below {
                        given_up = slope(&choices[0]);
                        continue;
                    }
                    if flow.p75_ms > stops.p75_factor_max * slowest_ms {
                        continue;
                    }
                }
                found.extend(candidates);
            }
        }
        Ok(found)
    }

    /// Of the same models, no higher degree than the first at which one loses too much.
    fn drop_what_prunes_too_much(&self, ways: &mut Vec<Way<'_>>, stops: &EarlyStops) {
        let mut given_up: Option<Vec<usize>> = None;
        ways.retain(|way| {
            let Some((first, later)) = way.prune.split_first() else {
                return true;
            };
            if later.iter().any(Option::is_some) {
                return false;
            }
            let too_much = way.models.iter().zip(&way.passes).any(|(&model, pass)| {
                let whole = self.accuracy_of(&self.models[model].whole.outputs);
                whole - self.accuracy_of(&pass.outputs) > stops.pruning_loss_max
            });
            if first.is_some() && too_much {
                given_up = Some(way.models.clone());
            }
            first.is_none() || given_up.as_ref() != Some(&way.models)
        });
    }
}

impl Rules {
    /// Slope by slope, by falling cut-off.
    fn dispatchers(&self) -> Result<Vec<Reroute>, CascadeError> {
        let (first, step) = self.cut_off;
        if !(step > 0.0 && step.is_finite()) {
            return Err(CascadeError::Range {
                what: "step of cut-offs",
                must: "above 0",
                got: step,
            });
        }
        // A slope that stands there again is tried once.
        let mut slopes: Vec<f64> = Vec::new();
        for &slope in &self.slopes {
            if !slopes.contains(&slope) {
                slopes.push(slope);
            }
        }
        if slopes.is_empty() {
            return Err(CascadeError::Nothing { what: "list of slopes" });
        }
        // Steps of a hundredth are not exact in binary, and cut-offs are read by people, who know no -0.
        let cut_offs = || {
            let all = (0..).map(|steps| libm::round((first - f64::from(steps) * step) * 1e9) / 1e9 + 0.0);
            all.take_while(|&cut_off| cut_off >= 0.0)
        };
        let with = |&slope: &f64| cut_offs().map(move |cut_off| Reroute::new(cut_off, slope));
        slopes.iter().flat_map(with).collect()
    }

    /// Dispatchers, and whether answers are averaged, that a way is tried with.
    fn choices(&self, way: &Way<'_>, dispatchers: &[Reroute]) -> Vec<(Option<Reroute>, bool)> {
        if way.passes.len() == 1 {
            return vec![(None, false)];
        }
        let joins: &[bool] = match self.join {
            Joins::Average => &[true],
            Joins::Last => &[false],
            Joins::Both => &[true, false],
        };
        let with = |&reroute: &Reroute| joins.iter().map(move |&average| (Some(reroute), average));
        dispatchers.iter().flat_map(with).collect()
    }
}

/// Of each slope the dispatcher that sends the fewest items on.
fn lowest(dispatchers: &[Reroute]) -> impl Iterator<Item = Reroute> {
    let least = dispatchers.iter().map(|reroute| reroute.cut_off()).fold(1.0, f64::min);
    dispatchers.iter().copied().filter(move |reroute| reroute.cut_off() == least)
}

/// A candidate, and its place among all.
struct Chosen {
    candidate: Candidate,
    place: (usize, usize),
}

impl Chosen {
    /// Faster, else more accurate, else earlier.
    fn precedes(&self, other: &Chosen) -> bool {
        let (one, two) = (&self.candidate, &other.candidate);
        let order = one.mean_ms.total_cmp(&two.mean_ms);
        let order = order.then(two.accuracy.total_cmp(&one.accuracy));
        order.then(self.place.cmp(&other.place)).is_lt()
    }
}

impl Targets {
    /// How far a candidate is from the targets: 0 where it meets them, else the largest miss relative to its target.
    pub fn miss(&self, candidate: &Candidate) -> f64 {
        self.missed_by(candidate.accuracy, candidate.mean_ms, candidate.p99_ms)
    }

    fn missed_by(&self, accuracy: f64, mean_ms: f64, p99_ms: f64) -> f64 {
        let over = |ms: f64, target: Option<f64>| target.map_or(0.0, |target| ms / target - 1.0);
        let below = 1.0 - accuracy / self.accuracy;
        // Sums of shares come with their rounding.
        let most = below.max(over(mean_ms, self.mean_ms)).max(over(p99_ms, self.p99_ms));
        if most <= 1e-12 { 0.0 } else { most }
    }
}

/// The fastest of these candidates, in the mean, that meets the targets; the more accurate among equals.
///
/// # Errors
/// The nearest candidates, at most three, where none does: nearest first, of equals the fastest, and then the simplest.
/// Of those that do the same, such as a step at two cut-offs between which no confidence lies, the simplest or first is
/// one for all.
pub fn select<'a>(candidates: &'a [Candidate], targets: &Targets) -> Result<&'a Candidate, Vec<&'a Candidate>> {
    let meets = candidates.iter().filter(|candidate| targets.miss(candidate) == 0.0);
    let fastest = meets.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms).then(b.accuracy.total_cmp(&a.accuracy)));
    fastest.ok_or_else(|| {
        let mut nearest: Vec<&Candidate> = candidates.iter().collect();
        // Sums of shares come with their rounding.
        let rounded = |candidate: &Candidate| libm::round(targets.miss(candidate) * 1e9);
        nearest.sort_by(|a, b| {
            let order = rounded(a).total_cmp(&rounded(b)).then(a.mean_ms.total_cmp(&b.mean_ms));
            order.then(parts(a).cmp(&parts(b)))
        });
        let mut different: Vec<&Candidate> = Vec::new();
        for candidate in nearest {
            if !different.iter().any(|known| does_the_same(known, candidate)) {
                different.push(candidate);
            }
            if different.len() == 3 {
                break;
            }
        }
        different
    })
}

/// Whether two candidates send the same items on and come to the same, whatever dispatches and joins them.
fn does_the_same(one: &Candidate, other: &Candidate) -> bool {
    let figures = |candidate: &Candidate| {
        let of = [
            candidate.accuracy,
            candidate.mean_ms,
            candidate.p75_ms,
            candidate.p99_ms,
        ];
        of.into_iter().chain(candidate.returned.clone()).collect::<Vec<f64>>()
    };
    // Sums of shares come with their rounding.
    let alike = |(a, b): (f64, f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
    let same_models = one.models == other.models && one.prune == other.prune;
    same_models && figures(one).into_iter().zip(figures(other)).all(alike)
}

/// What a candidate is made of: the fewer, the simpler.
fn parts(candidate: &Candidate) -> [usize; 3] {
    let pruning = candidate.prune.iter().flatten().count();
    [candidate.models.len(), pruning, candidate.weights.iter().len()]
}
