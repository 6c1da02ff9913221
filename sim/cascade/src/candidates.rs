//! Ways to serve a task with the models of a repository, and what each promises (Tabi, section 5): made and measured on
//! saved outputs, without another pass of a model.
//!
//! Trying another cut-off costs no model's time: it rearranges what the models have answered. Dispatchers' coins are
//! not drawn; each way that an item can take counts by its chance. An item's latency is the sum of what the models that
//! it comes to took for that very item, and quantiles are over items by those chances; the mean, by which candidates
//! are ordered, is of the models' means by the shares that come to them. [`search`](crate::search) chooses among
//! candidates.

use crate::ensemble;
use crate::error::CascadeError;
use crate::reroute::Reroute;

/// By how many items a sum of chances may be off.
const ROUNDING: f64 = 1e-6;

/// What was saved of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelProfile {
    /// Its name.
    pub name: String,
    /// Over whole queries.
    pub whole: PassProfile,
    /// Over queries that other models' attention pruned; empty where that was not tried.
    pub pruned: Vec<PrunedProfile>,
}

/// What was saved of a model on pruned queries.
#[derive(Clone, Debug, PartialEq)]
pub struct PrunedProfile {
    /// The models whose attention took words away, one after the other, and to which degree (Eq. 5); at least one.
    pub by: Vec<(String, f64)>,
    /// What it makes of the words that are left.
    pub pass: PassProfile,
}

/// What was saved of a model on queries.
#[derive(Clone, Debug, PartialEq)]
pub struct PassProfile {
    /// Of each query, in milliseconds, item by item.
    pub latency_ms: Vec<f64>,
    /// The same where the model's attention is summed up, for others' words to be pruned by it.
    pub attended_ms: Vec<f64>,
    /// Calibrated probabilities of the classes, item by item.
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

/// The dispatcher's `k` that is tried where nobody says otherwise, from gentle to a step.
pub const SLOPES: [f64; 4] = [10.0, 20.0, 50.0, 1e6];

/// What is tried. The default is section 5's, but for the join: the paper always averages. It profiles `k` as well
/// (section 4.1) and never says what it tries.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// The dispatcher's `k`, each with every cut-off.
    pub slopes: Vec<f64>,
    /// Models of a candidate, at most.
    pub levels_max: usize,
    /// The first cut-off, and by how much it falls.
    pub cut_off: (f64, f64),
    /// How several answers become one.
    pub join: Joins,
}

/// Which ways of joining answers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// The answers so far are averaged (Eq. 6).
    Average,
    /// The last one counts.
    Last,
    /// Either.
    Both,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            slopes: SLOPES.to_vec(),
            levels_max: 3,
            cut_off: (0.95, 0.05),
            join: Joins::Both,
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
    /// The slope `k` above it; nothing with one model.
    pub slope: Option<f64>,
    /// The degree to which each model but the last prunes what those after it read; nothing where no word goes.
    pub prune: Vec<Option<f64>>,
    /// Of the models' answers (Eq. 6); nothing where the last one counts.
    pub weights: Option<Vec<f64>>,
    /// Share of the items that each level returns.
    pub returned: Vec<f64>,
    /// Share of the items that are right.
    pub accuracy: f64,
    /// Mean latency in milliseconds.
    pub mean_ms: f64,
    /// Latency that three quarters of the items keep.
    pub p75_ms: f64,
    /// Latency that 99 % of the items keep.
    pub p99_ms: f64,
}

/// Some models in their order, and who prunes how much.
#[derive(Clone, Debug)]
pub(crate) struct Way<'a> {
    pub models: Vec<usize>,
    pub prune: Vec<Option<f64>>,
    /// What each model comes to read.
    pub passes: Vec<&'a PassProfile>,
}

/// What items have taken when a level of a way answers them, whatever the dispatcher.
#[derive(Clone, Debug)]
pub(crate) struct Elapsed {
    /// By level, in the mean, in milliseconds.
    mean_ms: Vec<f64>,
    /// Milliseconds, level and item, ascending.
    ascending: Vec<(f64, usize, usize)>,
}

/// Where the items go under a dispatcher, and when they are answered.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub reroute: Option<Reroute>,
    /// By level and item, the chance that it comes there.
    comes: Vec<Vec<f64>>,
    pub returned: Vec<f64>,
    pub mean_ms: f64,
    pub p75_ms: f64,
    pub p99_ms: f64,
}

impl Repository {
    /// # Errors
    /// Where a model has not an output and a latency for each item, a label is beyond the classes, or there are no
    /// items or models.
    pub fn check(&self) -> Result<(), CascadeError> {
        if self.labels.is_empty() || self.models.is_empty() {
            return Err(CascadeError::Nothing { what: "repository" });
        }
        for model in &self.models {
            let pruned = model.pruned.iter().map(|pruned| &pruned.pass);
            for pass in std::iter::once(&model.whole).chain(pruned) {
                let PassProfile {
                    latency_ms,
                    attended_ms,
                    outputs,
                } = pass;
                let lengths = [
                    ("outputs", outputs.len()),
                    ("latencies", latency_ms.len()),
                    ("latencies with attention", attended_ms.len()),
                ];
                for (what, got) in lengths {
                    if got != self.labels.len() {
                        let must = self.labels.len();
                        return Err(CascadeError::Lengths { what, must, got });
                    }
                }
                let mut times = latency_ms.iter().chain(attended_ms);
                if let Some(&got) = times.find(|ms| !(**ms >= 0.0 && ms.is_finite())) {
                    return Err(CascadeError::Range {
                        what: "latency",
                        must: "at least 0",
                        got,
                    });
                }
                for (item, (output, &label)) in outputs.iter().zip(&self.labels).enumerate() {
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
        }
        Ok(())
    }

    /// Whether each item is answered rightly.
    fn right(&self, outputs: &[Vec<f64>]) -> Vec<bool> {
        let answers = outputs.iter().map(|output| ensemble::likeliest(output));
        answers.zip(&self.labels).map(|(answer, label)| answer == *label).collect()
    }

    pub(crate) fn accuracy_of(&self, outputs: &[Vec<f64>]) -> f64 {
        let right = self.right(outputs);
        right.iter().filter(|right| **right).count() as f64 / right.len() as f64
    }

    /// The models by ascending accuracy, of equal ones the faster first: their order in the repository, which follows
    /// folders' names, says nothing.
    fn ascending(&self) -> Vec<usize> {
        let accuracy = |model: &ModelProfile| self.accuracy_of(&model.whole.outputs);
        let accuracies: Vec<f64> = self.models.iter().map(accuracy).collect();
        let mut order: Vec<usize> = (0..self.models.len()).collect();
        order.sort_by(|&a, &b| {
            let [first, second] = [a, b].map(|model| &self.models[model]);
            accuracies[a]
                .total_cmp(&accuracies[b])
                .then_with(|| mean(&first.whole.latency_ms).total_cmp(&mean(&second.whole.latency_ms)))
                .then_with(|| first.name.cmp(&second.name))
        });
        order
    }

    /// Every choice of models in ascending order, and every way to prune that was profiled: single models first, and of
    /// the same models the one that prunes nothing.
    pub(crate) fn ways(&self, levels_max: usize) -> Vec<Way<'_>> {
        let mut all = Vec::new();
        for models in combinations(&self.ascending(), levels_max) {
            let first = Way {
                passes: vec![&self.models[models[0]].whole],
                models,
                prune: Vec::new(),
            };
            self.go_on(first, Vec::new(), &mut all);
        }
        all
    }

    /// Adds the ways that go on from the levels so far, whose models pruned as `by` says.
    fn go_on<'a>(&'a self, way: Way<'a>, by: Vec<(String, f64)>, all: &mut Vec<Way<'a>>) {
        let level = way.passes.len();
        let Some(&next) = way.models.get(level) else {
            all.push(way);
            return;
        };
        let next = &self.models[next];
        let whole = by.is_empty().then_some(&next.whole);
        let as_before = next.pruned.iter().find(|pruned| pruned.by == by);
        if let Some(pass) = whole.or(as_before.map(|pruned| &pruned.pass)) {
            self.go_on(way.with(None, pass), by.clone(), all);
        }
        let name = &self.models[way.models[level - 1]].name;
        for pruned in &next.pruned {
            if let Some(((last, alpha), before)) = pruned.by.split_last()
                && last == name
                && before == by
            {
                self.go_on(way.with(Some(*alpha), &pruned.pass), pruned.by.clone(), all);
            }
        }
    }

    /// By level and item, the chance that the item comes there; `reroute` is there where there are several models.
    fn comes(&self, way: &Way<'_>, reroute: Option<Reroute>) -> Vec<Vec<f64>> {
        let mut comes = vec![vec![1.0; self.labels.len()]];
        for pass in &way.passes[..way.passes.len() - 1] {
            let reroute = reroute.expect("several levels have a dispatcher");
            let goes_on = |(output, came): (&Vec<f64>, &f64)| {
                came * reroute.probability(output.iter().copied().fold(0.0, f64::max))
            };
            let came = comes.last().expect("there is a first level");
            comes.push(pass.outputs.iter().zip(came).map(goes_on).collect());
        }
        comes
    }

    /// The share of the items that each level returns.
    fn returned(&self, comes: &[Vec<f64>]) -> Vec<f64> {
        let items = self.labels.len();
        (0..comes.len())
            .map(|level| (0..items).map(|item| stays(comes, level, item)).sum::<f64>() / items as f64)
            .collect()
    }

    /// What a level takes of each item, and what it takes to look at its answer.
    fn taken<'a>(&self, way: &Way<'a>, level: usize) -> (&'a [f64], f64) {
        let pass = way.passes[level];
        match way.prune.get(level) {
            Some(Some(_)) => (&pass.attended_ms, self.control_ms),
            Some(None) => (&pass.latency_ms, self.control_ms),
            None => (&pass.latency_ms, 0.0),
        }
    }

    /// By level, what has been taken in the mean when it answers.
    fn mean_elapsed_ms(&self, way: &Way<'_>) -> Vec<f64> {
        let mut sum_ms = 0.0;
        (0..way.passes.len())
            .map(|level| {
                let (taken_ms, control_ms) = self.taken(way, level);
                sum_ms += mean(taken_ms) + control_ms;
                sum_ms
            })
            .collect()
    }

    pub(crate) fn elapsed(&self, way: &Way<'_>) -> Elapsed {
        let mut sum_ms = vec![0.0; self.labels.len()];
        let mut ascending = Vec::with_capacity(way.passes.len() * sum_ms.len());
        for level in 0..way.passes.len() {
            let (taken_ms, control_ms) = self.taken(way, level);
            for (item, (sum_ms, taken_ms)) in sum_ms.iter_mut().zip(taken_ms).enumerate() {
                *sum_ms += taken_ms + control_ms;
                ascending.push((*sum_ms, level, item));
            }
        }
        ascending.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        Elapsed {
            mean_ms: self.mean_elapsed_ms(way),
            ascending,
        }
    }

    /// The mean latency under a dispatcher.
    pub(crate) fn mean_ms(&self, way: &Way<'_>, reroute: Option<Reroute>) -> f64 {
        let returned = self.returned(&self.comes(way, reroute));
        sum_of_shares(&returned, &self.mean_elapsed_ms(way))
    }

    /// Where the items go; `reroute` is there where there are several models.
    pub(crate) fn flow(&self, way: &Way<'_>, elapsed: &Elapsed, reroute: Option<Reroute>) -> Flow {
        let comes = self.comes(way, reroute);
        let returned = self.returned(&comes);
        Flow {
            reroute,
            mean_ms: sum_of_shares(&returned, &elapsed.mean_ms),
            p75_ms: elapsed.quantile_ms(&comes, 0.75),
            p99_ms: elapsed.quantile_ms(&comes, 0.99),
            comes,
            returned,
        }
    }

    /// What comes of a way, its answers joined.
    pub(crate) fn measured(&self, way: &Way<'_>, flow: &Flow, average: bool) -> Result<Candidate, CascadeError> {
        let weights = match average && way.passes.len() > 1 {
            true => {
                let right: Vec<Vec<bool>> = way.passes.iter().map(|pass| self.right(&pass.outputs)).collect();
                Some(ensemble::weights_of_route(&flow.comes[1], &right)?)
            }
            false => None,
        };
        let mut right = 0.0;
        for (item, &label) in self.labels.iter().enumerate() {
            for level in 0..way.passes.len() {
                let chance = stays(&flow.comes, level, item);
                let answer = match &weights {
                    Some(weights) if level > 0 => {
                        let asked = weights.iter().zip(&way.passes[..=level]);
                        let weighted = asked.map(|(&weight, pass)| (weight, &pass.outputs[item][..]));
                        ensemble::likeliest(&ensemble::average(weighted)?)
                    }
                    _ => ensemble::likeliest(&way.passes[level].outputs[item]),
                };
                if answer == label {
                    right += chance;
                }
            }
        }
        Ok(Candidate {
            models: way.models.iter().map(|&model| self.models[model].name.clone()).collect(),
            cut_off: flow.reroute.map(|reroute| reroute.cut_off()),
            slope: flow.reroute.map(|reroute| reroute.slope()),
            prune: way.prune.clone(),
            weights,
            returned: flow.returned.clone(),
            accuracy: right / self.labels.len() as f64,
            mean_ms: flow.mean_ms,
            p75_ms: flow.p75_ms,
            p99_ms: flow.p99_ms,
        })
    }

    /// The share of right answers that no cut-off, weights or join of a way can exceed: of items that some level may
    /// answer rightly. An average is right only if no other class is likelier to every model that was asked.
    pub(crate) fn accuracy_max(&self, way: &Way<'_>) -> f64 {
        let may_be_right = |item: &usize| {
            let label = self.labels[*item];
            let classes = way.passes[0].outputs[*item].len();
            let holds = |pass: &&PassProfile, other: usize| {
                let output = &pass.outputs[*item];
                // Sums round.
                output[label] + 1e-9 >= output[other]
            };
            (0..classes).all(|other| way.passes.iter().any(|pass| holds(pass, other)))
        };
        (0..self.labels.len()).filter(may_be_right).count() as f64 / self.labels.len() as f64
    }
}

impl PassProfile {
    /// Latency that this share of the items keeps.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        let mut ascending = self.latency_ms.clone();
        ascending.sort_unstable_by(f64::total_cmp);
        let rank = (share * ascending.len() as f64 - ROUNDING).ceil() as usize;
        ascending[rank.clamp(1, ascending.len()) - 1]
    }
}

impl Elapsed {
    /// Latency that this share of the items keeps, each way that an item can take by its chance.
    fn quantile_ms(&self, comes: &[Vec<f64>], share: f64) -> f64 {
        let enough = share * comes[0].len() as f64 - ROUNDING;
        let mut until = 0.0;
        let reached = self.ascending.iter().find(|(_, level, item)| {
            until += stays(comes, *level, *item);
            until >= enough
        });
        let (last, ..) = self.ascending.last().expect("there are items");
        reached.map_or(*last, |(ms, ..)| *ms)
    }
}

impl<'a> Way<'a> {
    /// A level more, on what the last one leaves at a degree.
    fn with(&self, alpha: Option<f64>, pass: &'a PassProfile) -> Way<'a> {
        let mut way = self.clone();
        way.prune.push(alpha);
        way.passes.push(pass);
        way
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

fn sum_of_shares(shares: &[f64], of: &[f64]) -> f64 {
    shares.iter().zip(of).map(|(share, of)| share * of).sum()
}

/// The chance that an item is returned at a level.
fn stays(comes: &[Vec<f64>], level: usize, item: usize) -> f64 {
    let goes_on = comes.get(level + 1).map_or(0.0, |next| next[item]);
    comes[level][item] - goes_on
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
        all.extend(longest.iter().map(|places| places.iter().map(|&place| order[place]).collect()));
    }
    all
}
