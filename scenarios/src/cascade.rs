//! From `cascade:` and `outcomes:` to specifications.

use tenantry_cascade::Reroute;
use tenantry_core::op::Layers;
use tenantry_core::spec::{AnswerJoin, DispatchSpec, OrderSpec, PoolSpec, RouteSpec, ScaleSpec, StageSpec};
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::Duration;
use tenantry_traces::fit::cascade::{MNLI, SST_2};
use tenantry_traces::fit::quantiles::Knot;
use tenantry_traces::outcome::{
    AnswersSpec, DifficultySpec, DrawnSpec, GeneratedSpec, KnownAverage, OtherModel, OutcomesSpec, PrunedPoint,
    TableSpec,
};

use crate::error::Problem;
use crate::models::Models;
use crate::path::Path;
use crate::raw::*;
use crate::resolve::batch_of;
use crate::scalar::NotNegative;
use crate::scaling::{Scaled, scale_of};

/// Stages are bits of a word.
const STAGES_MAX: usize = 32;

/// What a route is made of, beside itself.
pub(crate) struct Around<'a> {
    /// Where the route is.
    pub path: Path,
    /// The system's pool, whose settings stages have where they have none of their own.
    pub pool: &'a PoolSpec,
    /// Cards of the cluster.
    pub gpus: u32,
    /// What is known of the models' answers.
    pub outcomes: Option<&'a RawOutcomes>,
}

/// The route that `raw` means.
pub(crate) fn route(
    raw: &RawCascade,
    around: &Around<'_>,
    models: &Models<'_>,
    problems: &mut Vec<Problem>,
) -> Option<RouteSpec> {
    let path = &around.path;
    let before = problems.len();
    if raw.stages.is_empty() || raw.stages.len() > STAGES_MAX {
        let must = format!("a list of 1 to {STAGES_MAX} models");
        problems.push(Problem::new(path.key("stages"), must, raw.stages.len()));
    }
    let mut stages: Vec<StageSpec> = Vec::new();
    for (index, stage) in raw.stages.iter().enumerate() {
        let path = path.key("stages").index(index);
        check_stage(raw, index, around, &path, problems);
        let Some(model) = models.named(&stage.model.0, path.key("model"), problems) else {
            continue;
        };
        if model.kind == ModelKind::Decoder {
            problems.push(Problem::new(
                path.key("model"),
                "an encoder",
                format!("{}, a decoder", model.name),
            ));
        }
        let layers = layers(stage, &model, stages.last(), raw.order, &path, problems);
        check_prune(raw, index, &path, problems);
        stages.push(StageSpec {
            pool: PoolSpec {
                name: stage.called().to_owned(),
                model,
                instances_per_gpu: stage.instances_per_gpu.map_or(around.pool.instances_per_gpu, |count| count.0),
                batch: stage.batch.map_or(around.pool.batch, batch_of),
                ..around.pool.clone()
            },
            gpus: stage.gpus.clone().unwrap_or_else(|| (0..around.gpus).collect()),
            layers,
            dispatch: stage.reroute.and_then(|reroute| dispatch(&reroute, &path.key("reroute"), problems)),
            scale: scale(raw, index, around, &path, problems),
            packing: stage.packing.map(|packing| packing.0),
        });
    }
    let is_generated = |outcomes: &RawOutcomes| matches!(outcomes.from, RawOutcomeSource::Generated { .. });
    if raw.order == RawOrder::AtOnce
        && raw.stages.len() > 1
        && matches!(raw.join, RawAnswerJoin::Average(_))
        && around.outcomes.is_some_and(is_generated)
    {
        let must = "last or vote where models of a generator are asked at once: what an average gains is known only of \
                    who is asked after another";
        problems.push(Problem::new(path.key("join"), must, "average"));
    }
    let mut weights = |key: &str, weights: &[NotNegative]| {
        let weights: Vec<f64> = weights.iter().map(|weight| weight.0).collect();
        if weights.len() != raw.stages.len() || weights.iter().all(|weight| *weight == 0.0) {
            let must = format!("weights, one for each model ({}), not all 0", raw.stages.len());
            problems.push(Problem::new(path.key("join").key(key), must, listed(&weights)));
        }
        weights
    };
    let join = match &raw.join {
        RawAnswerJoin::Last => AnswerJoin::Last,
        RawAnswerJoin::Average(list) => AnswerJoin::Average(weights("average", list)),
        RawAnswerJoin::Vote(list) => AnswerJoin::Vote(weights("vote", list)),
    };
    (problems.len() == before).then_some(RouteSpec {
        stages,
        order: match raw.order {
            RawOrder::OneByOne => OrderSpec::OneByOne,
            RawOrder::AtOnce => OrderSpec::AtOnce,
        },
        join,
        // Each run sets its own.
        seed: 0,
    })
}

/// As they were given.
fn listed(weights: &[f64]) -> String {
    let weights: Vec<String> = weights.iter().map(f64::to_string).collect();
    format!("[{}]", weights.join(", "))
}

/// What a stage needs of its cards, its place in the order and the outcomes.
fn check_stage(raw: &RawCascade, index: usize, around: &Around<'_>, path: &Path, problems: &mut Vec<Problem>) {
    let stage = &raw.stages[index];
    let mut problem = |path: Path, must: String, got: String| problems.push(Problem::new(path, must, got));
    if let Some(gpus) = &stage.gpus {
        let path = path.key("gpus");
        let cards = around.gpus;
        let mut known: Vec<u32> = gpus.iter().copied().filter(|&gpu| gpu < cards).collect();
        known.sort_unstable();
        known.dedup();
        if gpus.is_empty() || known.len() != gpus.len() {
            let must = format!("different cards of the cluster, from 0 to {}", cards - 1);
            problem(path, must, format!("{gpus:?}"));
        }
    }
    let is_rest = |before: &RawStage| before.model == stage.model && stage.layers.is_some_and(|layers| layers.from > 0);
    if index > 0 && is_rest(&raw.stages[index - 1]) {
        let given = [
            ("gpus", stage.gpus.is_some()),
            ("instances_per_gpu", stage.instances_per_gpu.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| *given) {
            let must = "left out where a stage goes on with the hidden states of the one before, where that has ended";
            problem(path.key(key), must.into(), "given".into());
        }
    }
    let goes_on = raw.order == RawOrder::OneByOne && index + 1 < raw.stages.len();
    match (&stage.reroute, goes_on) {
        (None, true) => problem(
            path.key("reroute"),
            "given, since a model comes after it".into(),
            "nothing".into(),
        ),
        (Some(_), false) => {
            let must = "left out, since no model comes after it".into();
            problem(path.key("reroute"), must, "a dispatcher".into());
        }
        _ => {}
    }
    match around.outcomes {
        None if goes_on => problem(
            Path::default().key("outcomes"),
            format!("given, since {} decides by its confidence", stage.called()),
            "nothing".into(),
        ),
        Some(outcomes) => {
            // What profiled models know is checked when it is read.
            let Some(names) = outcomes.from.names() else { return };
            let pruned = stage.reroute.and_then(|reroute| reroute.prune);
            if let (Some(degree), true) = (pruned, outcomes.pruned.is_empty()) {
                let must = format!("given, since words are pruned at degree {}", degree.0);
                problem(Path::default().key("outcomes").key("pruned"), must, "nothing".into());
            }
            if !names.contains(&stage.called()) {
                let key = if stage.name.is_some() { "name" } else { "model" };
                problems.push(Problem::unknown_name(path.key(key), stage.called(), names));
            }
        }
        None => {}
    }
}

/// How a stage's cards come and go, if they do.
fn scale(
    raw: &RawCascade,
    index: usize,
    around: &Around<'_>,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Option<ScaleSpec> {
    let stage = &raw.stages[index];
    let tracks = |scale: &RawScaling| matches!(scale.rule, RawScalingRule::TargetTracking { .. });
    match (stage.slo, stage.scale.as_ref().is_some_and(tracks)) {
        (None, true) => {
            let must = "given, since target tracking goes by it";
            problems.push(Problem::new(path.key("slo"), must, "nothing"));
        }
        (Some(_), false) => {
            let must = "left out, since only target tracking goes by it";
            problems.push(Problem::new(path.key("slo"), must, "a latency"));
        }
        _ => {}
    }
    let scale = stage.scale.as_ref()?;
    let path = path.key("scale");
    let goes_on = |stage: &RawStage| stage.layers.is_some_and(|layers| layers.from > 0);
    if goes_on(stage) || raw.stages.get(index + 1).is_some_and(goes_on) {
        let must = "left out where a stage goes on with another's hidden states, on the same cards";
        problems.push(Problem::new(path.clone(), must, "given"));
    }
    let own = stage.gpus.as_ref().map(|gpus| gpus.len() as u32);
    let scaled = Scaled {
        slo: stage.slo.map_or(Duration::ZERO, |slo| slo.0),
        instances_per_gpu: stage.instances_per_gpu.map_or(around.pool.instances_per_gpu, |count| count.0),
        cards: own.unwrap_or(around.gpus),
        of: if own.is_some() {
            "the stage's gpus"
        } else {
            "cluster.gpus"
        },
        path: &path,
    };
    Some(scale_of(scale, &scaled, problems))
}

fn layers(
    stage: &RawStage,
    model: &ModelShape,
    before: Option<&StageSpec>,
    order: RawOrder,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Layers {
    let Some(RawLayers { from, to }) = stage.layers else {
        return Layers::all(model.layers);
    };
    let path = path.key("layers");
    let to = to.0;
    if to > model.layers || from >= to {
        let must = format!("a run of the {} layers of {}", model.layers, model.name);
        problems.push(Problem::new(path, must, format!("{from} to {to}")));
        return Layers::all(model.layers);
    }
    if from > 0 {
        let goes_on = before.is_some_and(|before| {
            before.pool.model == *model && u32::from(before.layers.first) + u32::from(before.layers.count) == from
        });
        if order == RawOrder::AtOnce {
            let must = "0 where all are asked at once: nothing has ended that it could go on from";
            problems.push(Problem::new(path.key("from"), must, from));
        } else if !goes_on {
            let must = "where the stage before, of the same model, has ended";
            problems.push(Problem::new(path.key("from"), must, from));
        }
    }
    Layers::from(from, to)
}

/// Words are taken from a text, and hidden states go on as they are (Tabi, section 4.2).
fn check_prune(raw: &RawCascade, index: usize, path: &Path, problems: &mut Vec<Problem>) {
    let prunes = raw.stages[index]
        .reroute
        .as_ref()
        .is_some_and(|reroute| reroute.prune.is_some_and(|alpha| alpha.0 > 0.0));
    let next = raw.stages.get(index + 1).and_then(|next| next.layers);
    if prunes && next.is_some_and(|layers| layers.from > 0) {
        let must = "left out before a stage that goes on with hidden states, of which no words are taken";
        problems.push(Problem::new(path.key("reroute").key("prune"), must, "given"));
    }
}

fn dispatch(raw: &RawReroute, path: &Path, problems: &mut Vec<Problem>) -> Option<DispatchSpec> {
    match Reroute::new(raw.cut_off.0, raw.slope.0) {
        Ok(reroute) => Some(DispatchSpec {
            reroute,
            // At 0 every word is kept, and nobody's attention is read.
            prune_alpha: raw.prune.map(|alpha| alpha.0).filter(|&alpha| alpha > 0.0),
        }),
        Err(_) => {
            problems.push(Problem::new(path.key("cut_off"), "a number from 0 to 1", raw.cut_off.0));
            None
        }
    }
}

impl RawOutcomeSource {
    /// The models that it knows; nothing where a folder says so.
    fn names(&self) -> Option<Vec<&str>> {
        match self {
            RawOutcomeSource::Table { models, .. } => Some(models.keys().map(String::as_str).collect()),
            RawOutcomeSource::Generated {
                small, large, others, ..
            } => Some([small, large].into_iter().chain(others.keys()).map(String::as_str).collect()),
            RawOutcomeSource::Difficulty { models, .. } => Some(models.iter().map(String::as_str).collect()),
            RawOutcomeSource::Profiled { .. } => None,
        }
    }
}

/// What is known of the models' answers.
pub(crate) fn answers(raw: &RawOutcomes, problems: &mut Vec<Problem>) -> AnswersSpec {
    let path = Path::default().key("outcomes");
    let fraction = |part: crate::scalar::Part| f64::from(part.ppm()) / 1e6;
    let pruned: Vec<PrunedPoint> = raw
        .pruned
        .iter()
        .map(|point| PrunedPoint {
            degree: point.degree.0,
            words: fraction(point.words),
            loss: point.loss.map(fraction),
        })
        .collect();
    if !pruned.is_sorted_by(|a, b| a.degree < b.degree) {
        problems.push(Problem::new(path.key("pruned"), "by rising degree", "another order"));
    }
    let averages: Vec<KnownAverage> = raw
        .averages
        .iter()
        .map(|known| KnownAverage {
            weights: known.weights.iter().map(|weight| weight.0).collect(),
            gain: fraction(known.gain),
        })
        .collect();
    if !averages.is_empty() && !matches!(raw.from, RawOutcomeSource::Generated { .. }) {
        let must = "left out, since the models' own answers are averaged";
        problems.push(Problem::new(path.key("averages"), must, "a value"));
    }
    for (index, known) in averages.iter().enumerate() {
        let before = averages[..index].iter().position(|before| before.is_by(&known.weights));
        let must = match before {
            _ if known.weights.iter().sum::<f64>() == 0.0 => "numbers of which some are above 0".to_owned(),
            Some(before) => format!("in other proportions than those of averages[{before}]"),
            None => continue,
        };
        let path = path.key("averages").index(index).key("weights");
        problems.push(Problem::new(path, must, listed(&known.weights)));
    }
    let outcomes = match &raw.from {
        RawOutcomeSource::Profiled { folder } => {
            if !raw.pruned.is_empty() {
                let must = "left out, since profiled models have read what was pruned";
                problems.push(Problem::new(path.key("pruned"), must, "a value"));
            }
            return AnswersSpec::Profiled(folder.clone());
        }
        RawOutcomeSource::Table {
            file,
            models,
            reference,
        } => OutcomesSpec::Table(TableSpec {
            path: file.clone(),
            models: models.clone().into_iter().collect(),
            reference: reference.clone(),
        }),
        RawOutcomeSource::Difficulty { file, models } => {
            let mut different = models.clone();
            different.sort_unstable();
            different.dedup();
            if models.is_empty() || different.len() != models.len() {
                let path = path.key("from").key("difficulty").key("models");
                problems.push(Problem::new(path, "different names, at least one", models.join(", ")));
            }
            OutcomesSpec::Difficulty(DifficultySpec {
                path: file.clone(),
                models: models.clone(),
            })
        }
        RawOutcomeSource::Generated {
            small,
            large,
            task,
            others,
            correlation,
        } => OutcomesSpec::Generated(GeneratedSpec {
            correlation: {
                if !(0.0..=1.0).contains(correlation) {
                    let path = path.key("from").key("generated").key("correlation");
                    problems.push(Problem::new(path, "from 0 to 1", correlation));
                }
                *correlation
            },
            small: small.clone(),
            large: large.clone(),
            levels: match task {
                RawTask::Sst2 => SST_2,
                RawTask::Mnli => MNLI,
            },
            others: others
                .iter()
                .map(|(name, other)| {
                    let path = path.key("from").key("generated").key("others").key(name);
                    if name == small || name == large {
                        let must = "another name than small's and large's";
                        problems.push(Problem::new(path.clone(), must, name));
                    }
                    OtherModel {
                        name: name.clone(),
                        confidence: confidences(&other.confidence, path.key("confidence"), problems),
                        right_if_large_is: vec![(1.0, fraction(other.right_if_large_is))],
                        right_if_large_is_not: vec![(1.0, fraction(other.right_if_large_is_not))],
                    }
                })
                .collect(),
        }),
    };
    AnswersSpec::Drawn(DrawnSpec {
        outcomes,
        pruned,
        averages,
    })
}

/// Texts have their lengths, and whoever serves texts has nothing but texts to serve.
pub(crate) fn check_lengths(raw: &RawScenario, problems: &mut Vec<Problem>) {
    let source = raw.outcomes.as_ref().map(|outcomes| &outcomes.from);
    let profiled = matches!(source, Some(RawOutcomeSource::Profiled { .. }));
    let of_items = raw.workload.lengths.input == Some(RawLength::OfItems);
    let path = Path::default().key("workload").key("lengths").key("input");
    match (profiled, of_items) {
        (true, false) => {
            let must = "of-items, since the items of `outcomes` have their lengths";
            problems.push(Problem::new(path, must, "another length"));
        }
        (false, true) => {
            let must = "a distribution, since no `outcomes` with profiled models have items";
            problems.push(Problem::new(path, must, "of-items"));
        }
        _ => {}
    }
    let alone = |(_, system): &(usize, &RawSystem)| system.cascade.is_none();
    for (index, _) in raw.systems.iter().enumerate().filter(alone).filter(|_| profiled) {
        let path = Path::default().key("systems").index(index).key("cascade");
        let must = "given, perhaps with one model, since requests are about texts";
        problems.push(Problem::new(path, must, "nothing"));
    }
}

fn confidences(points: &[RawConfidence], path: Path, problems: &mut Vec<Problem>) -> Vec<Knot> {
    for (index, point) in points.iter().enumerate() {
        for (key, value) in [("share", point.share), ("confidence", point.confidence)] {
            if !(0.0..=1.0).contains(&value) {
                problems.push(Problem::new(path.index(index).key(key), "a number from 0 to 1", value));
            }
        }
    }
    if points.is_empty() || !points.is_sorted_by(|a, b| a.share < b.share && a.confidence <= b.confidence) {
        problems.push(Problem::new(path, "at least one point, rising in both", "another list"));
    }
    points.iter().map(|point| (point.share, point.confidence)).collect()
}
