//! Which models, and how, for a task's targets (Tabi, section 5): offline, candidates are made and measured on saved outputs; online, the
//! fastest that meets the targets is chosen.
//!
//! Trying another cut-off costs no model's time: it rearranges what the models have answered. Dispatchers' coins are not drawn; each way that an
//! item can take counts by its chance.

use crate::ensemble;
use crate::error::CascadeError;
use crate::reroute::Reroute;

/// What was saved of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProfile {
    /// Its name.
    pub name: String,
    /// Of a whole query, in milliseconds.
    pub latency_ms: f64,
    /// Calibrated probabilities of the classes, item by item.
    pub outputs: Vec<Vec<f64>>,
    /// The same on pruned queries, by rising degree; empty where that was not tried.
    pub pruned: Vec<PrunedProfile>,
}

/// What was saved of a model on queries without the words that a degree prunes (Eq. 5).
#[derive(Clone, Debug, PartialEq)]
pub struct PrunedProfile {
    /// The degree.
    pub alpha: f64,
    /// Of a pruned query, in milliseconds.
    pub latency_ms: f64,
    /// As [`ModelProfile::outputs`].
    pub outputs: Vec<Vec<f64>>,
}

/// The registered models on the items of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Repository {
    /// The right classes.
    pub labels: Vec<usize>,
    /// The models.
    pub models: Vec<ModelProfile>,
    /// What it takes to look at an answer before it is returned or goes on, in milliseconds.
    pub control_ms: f64,
}

/// What is tried, and when it is given up. [`Rules::default`] is section 5's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The dispatcher's `k`, which the paper never gives.
    pub slope: f64,
    /// Models of a candidate, at most.
    pub levels_max: usize,
    /// The first cut-off, and by how much it falls.
    pub cut_off: (f64, f64),
    /// A candidate's latency at p75, by that of its slowest model, at most.
    pub p75_factor_max: f64,
    /// What pruning may cost a model of its accuracy, as a share of the items.
    pub pruning_loss_max: f64,
    /// Whether the answers so far are averaged (Eq. 6), or the last counts.
    pub ensemble: bool,
    /// Whether anything is given up early; an exhaustive search gives up nothing but what breaks the p75 rule.
    pub early_stops: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            slope: 1e6,
            levels_max: 3,
            cut_off: (0.95, 0.05),
            p75_factor_max: 1.5,
            pruning_loss_max: 0.02,
            ensemble: true,
            early_stops: true,
        }
    }
}

/// A way to serve a task, with what it promises. With one model, that model alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its models, by ascending accuracy.
    pub models: Vec<String>,
    /// The cut-off `c`; nothing with one model.
    pub cut_off: Option<f64>,
    /// The degree of pruning; nothing where no word goes.
    pub alpha: Option<f64>,
    /// Of the models' answers (Eq. 6).
    pub weights: Vec<f64>,
    /// Share of the items that each level returns.
    pub returned: Vec<f64>,
    /// Share of the items that are right.
    pub accuracy: f64,
    /// Mean latency in milliseconds.
    pub mean_ms: f64,
    /// Latency that three quarters keep.
    pub p75_ms: f64,
    /// Latency that 99 % keep.
    pub p99_ms: f64,
}

/// What a task asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Share of right answers, at least.
    pub accuracy: f64,
    /// Mean latency, at most.
    pub mean_ms: Option<f64>,
    /// Latency at p99, at most.
    pub p99_ms: Option<f64>,
}

impl Repository {
    /// # Errors
    /// Where a model has not an output for each item, a label is beyond the classes, or there are no items or models.
    pub fn check(&self) -> Result<(), CascadeError> {
        if self.labels.is_empty() || self.models.is_empty() {
            return Err(CascadeError::Nothing { what: "repository" });
        }
        let outputs = |model: &ModelProfile| -> Vec<usize> {
            let pruned = model.pruned.iter().map(|pruned| pruned.outputs.len());
            std::iter::once(model.outputs.len()).chain(pruned).collect()
        };
        for model in &self.models {
            if let Some(got) = outputs(model).into_iter().find(|&got| got != self.labels.len()) {
                let must = self.labels.len();
                return Err(CascadeError::Lengths {
                    what: "outputs",
                    must,
                    got,
                });
            }
            for (item, (output, &label)) in model.outputs.iter().zip(&self.labels).enumerate() {
                let classes = output.len();
                if label >= classes {
                    return Err(CascadeError::Label { item, label, classes });
                }
                if let Some(&got) = output.iter().find(|share| !(0.0..=1.0 + 1e-9).contains(*share)) {
                    return Err(CascadeError::Range {
                        what: "confidence",
                        must: "from 0 to 1",
                        got,
                    });
                }
            }
        }
        Ok(())
    }

    fn accuracy_of(&self, outputs: &[Vec<f64>]) -> f64 {
        let right = outputs
            .iter()
            .zip(&self.labels)
            .filter(|(output, label)| ensemble::likeliest(output) == **label);
        right.count() as f64 / self.labels.len() as f64
    }

    /// All candidates that the rules leave, single models first.
    ///
    /// # Errors
    /// As [`Repository::check`], and where a rule is out of its range.
    pub fn candidates(&self, rules: &Rules) -> Result<Vec<Candidate>, CascadeError> {
        self.check()?;
        let accuracies: Vec<f64> = self
            .models
            .iter()
            .map(|model| self.accuracy_of(&model.outputs))
            .collect();
        let mut order: Vec<usize> = (0..self.models.len()).collect();
        order.sort_by(|&a, &b| accuracies[a].total_cmp(&accuracies[b]).then(a.cmp(&b)));
        let mut found = Vec::new();
        for levels in combinations(&order, rules.levels_max) {
            let mean = levels.iter().map(|&model| accuracies[model]).sum::<f64>() / levels.len() as f64;
            if let [alone] = levels[..] {
                found.push(self.measured(&[alone], None, None, rules)?);
                continue;
            }
            for alpha in self.degrees(&levels, rules) {
                let (first, step) = rules.cut_off;
                // Steps of a hundredth are not exact in binary, and cut-offs are read by people, who know no -0.
                let cut_offs = (0..).map(|steps| libm::round((first - f64::from(steps) * step) * 1e9) / 1e9 + 0.0);
                for cut_off in cut_offs.take_while(|&cut_off| cut_off >= 0.0) {
                    let reroute = Reroute::new(cut_off, rules.slope)?;
                    let candidate = self.measured(&levels, Some(reroute), alpha, rules)?;
                    if rules.early_stops && candidate.accuracy < mean {
                        break;
                    }
                    let slowest = levels
                        .iter()
                        .map(|&model| self.models[model].latency_ms)
                        .fold(0.0, f64::max);
                    if candidate.p75_ms <= rules.p75_factor_max * slowest {
                        found.push(candidate);
                    }
                }
            }
        }
        Ok(found)
    }

    /// No pruning, and the degrees at which all models but the first were tried and lose little enough; from the first that costs too much
    /// no more is tried.
    fn degrees(&self, levels: &[usize], rules: &Rules) -> Vec<Option<f64>> {
        let later = &levels[1..];
        let first = &self.models[later[0]];
        let mut degrees = vec![None];
        for pruned in &first.pruned {
            let of = |&model: &usize| {
                self.models[model]
                    .pruned
                    .iter()
                    .find(|other| other.alpha == pruned.alpha)
            };
            let loss = |model: &usize| {
                of(model)
                    .map(|pruned| self.accuracy_of(&self.models[*model].outputs) - self.accuracy_of(&pruned.outputs))
            };
            let Some(losses) = later.iter().map(loss).collect::<Option<Vec<f64>>>() else {
                continue;
            };
            if rules.early_stops && losses.iter().any(|&loss| loss > rules.pruning_loss_max) {
                break;
            }
            degrees.push(Some(pruned.alpha));
        }
        degrees
    }

    /// What a level's model takes and answers.
    fn level(&self, model: usize, alpha: Option<f64>) -> (f64, &[Vec<f64>]) {
        let model = &self.models[model];
        match model.pruned.iter().find(|pruned| Some(pruned.alpha) == alpha) {
            Some(pruned) => (pruned.latency_ms, &pruned.outputs),
            None => (model.latency_ms, &model.outputs),
        }
    }

    fn measured(
        &self,
        levels: &[usize],
        reroute: Option<Reroute>,
        alpha: Option<f64>,
        rules: &Rules,
    ) -> Result<Candidate, CascadeError> {
        let of: Vec<(f64, &[Vec<f64>])> = levels
            .iter()
            .enumerate()
            .map(|(level, &model)| self.level(model, alpha.filter(|_| level > 0)))
            .collect();
        let last = levels.len() - 1;
        let items = self.labels.len();
        // Chances that an item comes to each level.
        let mut comes = vec![vec![1.0; items]];
        for (_, outputs) in &of[..last] {
            let reroute = reroute.expect("several levels have a dispatcher");
            let goes_on = |(output, came): (&Vec<f64>, &f64)| {
                came * reroute.probability(output.iter().copied().fold(0.0, f64::max))
            };
            let came = comes.last().expect("there is a first level");
            comes.push(outputs.iter().zip(came).map(goes_on).collect());
        }
        let weights = self.weights(&of, &comes)?;
        let (mut right, mut returned) = (0.0, vec![0.0; levels.len()]);
        for item in 0..items {
            for level in 0..levels.len() {
                let goes_on = if level < last { comes[level + 1][item] } else { 0.0 };
                let chance = comes[level][item] - goes_on;
                returned[level] += chance / items as f64;
                let answer = match rules.ensemble && level > 0 {
                    true => {
                        let outputs: Vec<&[f64]> = of[..=level].iter().map(|(_, outputs)| &outputs[item][..]).collect();
                        ensemble::likeliest(&ensemble::average(&weights[..=level], &outputs)?)
                    }
                    false => ensemble::likeliest(&of[level].1[item]),
                };
                if answer == self.labels[item] {
                    right += chance;
                }
            }
        }
        let mut elapsed_ms = Vec::with_capacity(levels.len());
        let mut sum_ms = 0.0;
        for (level, (latency_ms, _)) in of.iter().enumerate() {
            sum_ms += latency_ms + if level < last { self.control_ms } else { 0.0 };
            elapsed_ms.push(sum_ms);
        }
        let quantile = |share: f64| {
            let mut until = 0.0;
            let reached = returned.iter().position(|&part| {
                until += part;
                until >= share - 1e-12
            });
            elapsed_ms[reached.unwrap_or(last)]
        };
        Ok(Candidate {
            models: levels.iter().map(|&model| self.models[model].name.clone()).collect(),
            cut_off: reroute.map(|reroute| reroute.cut_off()),
            alpha,
            accuracy: right / items as f64,
            mean_ms: returned.iter().zip(&elapsed_ms).map(|(share, ms)| share * ms).sum(),
            p75_ms: quantile(0.75),
            p99_ms: quantile(0.99),
            weights,
            returned,
        })
    }

    /// Proportional to the models' accuracies on what is re-routed at all; on everything where nothing is.
    fn weights(&self, of: &[(f64, &[Vec<f64>])], comes: &[Vec<f64>]) -> Result<Vec<f64>, CascadeError> {
        let all = &comes[0];
        let re_routed = comes
            .get(1)
            .filter(|comes| comes.iter().sum::<f64>() > 0.0)
            .unwrap_or(all);
        let sum: f64 = re_routed.iter().sum();
        let accuracy = |(_, outputs): &(f64, &[Vec<f64>])| {
            let items = outputs.iter().zip(&self.labels).zip(re_routed);
            let right = items.filter(|((output, label), _)| ensemble::likeliest(output) == **label);
            (right.map(|(_, chance)| chance).sum::<f64>() / sum).min(1.0)
        };
        let accuracies: Vec<f64> = of.iter().map(accuracy).collect();
        match accuracies.iter().all(|&accuracy| accuracy <= 0.0) {
            true => Ok(vec![1.0 / of.len() as f64; of.len()]),
            false => ensemble::weights(&accuracies),
        }
    }
}

/// Ascending choices of 1 to `most` of the models, fewer first.
fn combinations(order: &[usize], most: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = order.iter().map(|&model| vec![model]).collect();
    let mut longest = (0..order.len()).map(|place| vec![place]).collect::<Vec<_>>();
    for _ in 1..most {
        longest = longest
            .iter()
            .flat_map(|places| {
                let from = places.last().map_or(0, |last| last + 1);
                (from..order.len()).map(move |place| places.iter().copied().chain([place]).collect())
            })
            .collect();
        all.extend(
            longest
                .iter()
                .map(|places| places.iter().map(|&place| order[place]).collect()),
        );
    }
    all
}

impl Targets {
    /// How far a candidate is from the targets: 0 where it meets them, else the largest miss relative to its target.
    pub fn miss(&self, candidate: &Candidate) -> f64 {
        let over = |ms: f64, target: Option<f64>| target.map_or(0.0, |target| ms / target - 1.0);
        let below = 1.0 - candidate.accuracy / self.accuracy;
        // Sums of shares come with their rounding.
        let most = below
            .max(over(candidate.mean_ms, self.mean_ms))
            .max(over(candidate.p99_ms, self.p99_ms));
        if most <= 1e-12 { 0.0 } else { most }
    }
}

/// The fastest candidate, in the mean, that meets the targets; the more accurate among equals.
///
/// # Errors
/// The nearest candidates, nearest first and at most three, where none does.
pub fn select<'a>(candidates: &'a [Candidate], targets: &Targets) -> Result<&'a Candidate, Vec<&'a Candidate>> {
    let meets = candidates.iter().filter(|candidate| targets.miss(candidate) == 0.0);
    let fastest = meets.min_by(|a, b| a.mean_ms.total_cmp(&b.mean_ms).then(b.accuracy.total_cmp(&a.accuracy)));
    fastest.ok_or_else(|| {
        let mut nearest: Vec<&Candidate> = candidates.iter().collect();
        nearest.sort_by(|a, b| targets.miss(a).total_cmp(&targets.miss(b)));
        nearest.truncate(3);
        nearest
    })
}
