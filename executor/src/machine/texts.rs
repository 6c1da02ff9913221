//! What the lanes of a cascade do where trained models answer labelled texts: real passes over real tokens, calibrated
//! confidence, and words pruned by attention, so that what the dispatcher hears is what the models say (Tabi, section
//! 4).
//!
//! Tokenizers count whole texts before the run begins, as the paper leaves them out; what is pruned is read by the next
//! model's tokenizer where it was pruned, on the lane that looked at the answer.

mod probe;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use tch::Device;
use tenantry_core::answers::{Judge, TextLengths};
use tenantry_core::command::{FailureReason, Finish};
use tenantry_core::event::Answer as Revealed;
use tenantry_core::op::{Member, OpKind};
use tenantry_core::policy::route::{self, Answered, NextStage, Route};
use tenantry_core::spec::{DispatchSpec, OrderSpec, RouteSpec, StageSpec};
use tenantry_core::topology::{Instance, Lane, Topology};
use tenantry_profiles::ModelShape;
use tenantry_traces::TraceError;
use tenantry_traces::outcome::{ItemDraws, ProfiledModel, ProfiledModels};

pub(crate) use self::probe::TextProbe;
use super::Batch;
use super::first_passes::first_passes;
use super::inputs::Inputs;
use super::pool_serving::{AnswerList, PoolServing};
use super::serving::{Answer, fail_all, fail_those, fail_unanswered, reason};
use super::stage_cards::StageCards;
use super::threads::Perform;
use crate::cascade::{Calibration, Classified, Item, TextModel, Texts, Tokens, described, hash_items, read_items};
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;

/// The trained models of a route, and the texts that they are asked about.
pub(crate) struct TextServing {
    /// By pool.
    stages: Vec<TextStage>,
    /// Of stages whose cards come and go.
    on_cards: StageCards<TextModel>,
    device: Device,
    texts: Arc<ServedTexts>,
    /// Who goes on, by the policy that the server decides by.
    route: Arc<dyn Route>,
}

/// One stage's model.
struct TextStage {
    index: usize,
    model: TextModel,
    calibration: Calibration,
    /// Who is told how sure it is; nobody at the last stage, and where all are asked at once.
    dispatch: Option<DispatchSpec>,
    /// Who reads what is left of a pruned text.
    next: Option<TextModel>,
    /// Texts that it reads at once.
    largest_batch: u32,
}

impl TextStage {
    /// A handle for a lane, with the weights of its own card where it has such.
    fn share(&self, own: Option<&TextModel>) -> TextStage {
        TextStage {
            model: own.unwrap_or(&self.model).share(),
            next: self.next.as_ref().map(TextModel::share),
            index: self.index,
            calibration: self.calibration.clone(),
            dispatch: self.dispatch,
            largest_batch: self.largest_batch,
        }
    }

    /// The degree to which the next model's words are pruned.
    fn alpha(&self) -> Option<f64> {
        self.dispatch?.prune_alpha.filter(|&alpha| alpha > 0.0)
    }
}

/// A text as a model reads it.
#[derive(Clone, Debug)]
struct Reading {
    texts: Arc<Texts>,
    tokens: Arc<Tokens>,
}

impl Reading {
    /// Of so many tokens: cut, or repeated where it has fewer.
    fn of_length(&self, length: usize) -> Tokens {
        let of = |numbers: &[i64]| numbers.iter().copied().cycle().take(length).collect();
        Tokens {
            ids: of(&self.tokens.ids),
            segments: of(&self.tokens.segments),
            places: Vec::new(),
            read: Vec::new(),
        }
    }
}

/// The number that a regression answers a request with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Whose request.
    pub ticket: u64,
    /// Which of a cascade's models says so.
    pub stage: u16,
    /// As its head gives it: a regression's outputs are not calibrated, its spread is.
    pub number: f64,
}

/// The items of a run, what became of them on their way, and what was answered.
#[derive(Debug)]
pub(crate) struct ServedTexts {
    draws: ItemDraws,
    items: Vec<Item>,
    /// By stage and item, whole.
    whole: Vec<Vec<Reading>>,
    judge: Judge,
    on_way: Mutex<OnWay>,
    /// What regressions answered, in the order in which it came.
    numbers: Mutex<Vec<Number>>,
}

#[derive(Debug, Default)]
struct OnWay {
    /// What a stage is to read of a request whose words an earlier one pruned.
    pruned: BTreeMap<(u64, usize), Reading>,
    /// What each stage that was asked about a request put out, calibrated.
    outputs: BTreeMap<(u64, usize), Vec<f64>>,
}

impl ServedTexts {
    fn on_way(&self) -> MutexGuard<'_, OnWay> {
        self.on_way.lock().expect("no lane panics with the texts")
    }

    fn numbers(&self) -> MutexGuard<'_, Vec<Number>> {
        self.numbers.lock().expect("no lane panics with the numbers")
    }

    /// Which of the items a request is.
    pub fn item(&self, ticket: u64) -> usize {
        self.draws.of(ticket)
    }

    /// How long each request is for each stage.
    pub fn lengths(&self) -> TextLengths {
        let tokens = |whole: &Vec<Reading>| whole.iter().map(|reading| reading.tokens.ids.len() as u32).collect();
        TextLengths {
            items: self.draws,
            tokens: self.whole.iter().map(tokens).collect(),
        }
    }

    /// What a stage reads of a request.
    fn reading(&self, ticket: u64, stage: usize) -> Reading {
        let pruned = self.on_way().pruned.remove(&(ticket, stage));
        pruned.unwrap_or_else(|| self.whole[stage][self.draws.of(ticket)].clone())
    }

    /// Whether the joined answer to a request is right, where it was answered.
    pub fn is_right(&self, finish: &Finish) -> Option<bool> {
        let on_way = self.on_way();
        let asked = finish.returned?.asked_stages();
        let outputs: Vec<(usize, &[f64])> = asked
            .map(|stage| Some((stage, on_way.outputs.get(&(finish.ticket, stage))?.as_slice())))
            .collect::<Option<_>>()?;
        let label = self.items[self.draws.of(finish.ticket)].label;
        Some(self.judge.is_right(&outputs, label.number().into()))
    }

    /// A request has left.
    pub fn left(&self, ticket: u64) {
        let mut on_way = self.on_way();
        for stage in 0..self.whole.len() {
            on_way.pruned.remove(&(ticket, stage));
            on_way.outputs.remove(&(ticket, stage));
        }
    }
}

impl TextServing {
    /// Reads the models, calibrations and items that a folder of `tenantry cascade profile` names. Requests draw their
    /// items by `seed`.
    ///
    /// # Errors
    /// A stage that goes on where the one before has ended; a model that the folder does not have, is of another shape
    /// than the stage says or has another number of classes; items that are not those of the folder any more; what a
    /// tokenizer does not take.
    pub fn new(folder: &Path, route: &RouteSpec, seed: u64, device: Device) -> Result<TextServing, ExecutorError> {
        let profiled = ProfiledModels::read(folder)?;
        let mut models = Vec::new();
        for stage in &route.stages {
            models.push(read(stage, &profiled, folder, device)?);
        }
        let first = &profiled.models[0].whole;
        let of_first = |error| named(error, &folder.join(first.file_name()), "items_file");
        if hash_items(&first.items).map_err(of_first)? != first.items_hash {
            return Err(ExecutorError::checkpoint(
                &first.items,
                "items",
                format!("those that {} was profiled on", first.model),
                "others",
            ));
        }
        let items = read_items(&first.items, models[0].0.answer())?;
        let shared: Vec<Arc<Texts>> = items.iter().map(|item| Arc::new(item.texts.clone())).collect();
        let whole = |(model, _): &(TextModel, Calibration)| {
            let reading = |(number, texts): (usize, &Arc<Texts>)| {
                let tokens = model.encode(texts).map_err(|error| error.of_item(number))?;
                Ok(Reading {
                    tokens: Arc::new(tokens),
                    texts: Arc::clone(texts),
                })
            };
            let read = shared.iter().enumerate().map(reading);
            read.collect::<Result<Vec<_>, ExecutorError>>()
        };
        let texts = ServedTexts {
            draws: ItemDraws::new(seed, items.len()),
            whole: models.iter().map(whole).collect::<Result<_, _>>()?,
            items,
            judge: Judge::new(route.join.clone(), first.calibration.tolerance()),
            on_way: Mutex::default(),
            numbers: Mutex::default(),
        };
        let next = |index: usize| match route.order {
            OrderSpec::OneByOne => models.get(index + 1).map(|(model, _)| model.share()),
            OrderSpec::AtOnce => None,
        };
        let nexts: Vec<Option<TextModel>> = (0..models.len()).map(next).collect();
        let on_cards = StageCards::new(route, device, |index| &models[index].0)?;
        let stages = models.into_iter().zip(nexts).zip(&route.stages).enumerate();
        Ok(TextServing {
            on_cards,
            device,
            stages: stages
                .map(|(index, (((model, calibration), next), stage))| TextStage {
                    index,
                    model,
                    calibration,
                    dispatch: stage.dispatch,
                    next,
                    largest_batch: stage.pool.batch.max_size(),
                })
                .collect(),
            texts: Arc::new(texts),
            route: Arc::from(route::build(route)),
        })
    }

    fn lane(&self, stage: usize, own: Option<&TextModel>, answers: &AnswerList) -> TextLane {
        TextLane {
            stage: self.stages[stage].share(own),
            texts: Arc::clone(&self.texts),
            route: Arc::clone(&self.route),
            answers: Arc::clone(answers),
            pass: None,
        }
    }
}

impl PoolServing for TextServing {
    fn lanes(&self, topology: &Topology, answers: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |(index, lane): (usize, &Lane)| {
            let of_lane = |instance: &&Instance| instance.compute.index() == index;
            let perform: Box<dyn Perform> = match topology.instances.iter().find(of_lane) {
                Some(instance) => {
                    let own = self.on_cards.model(instance);
                    Box::new(self.lane(instance.pool.index(), own, answers))
                }
                None => Box::new(self.on_cards.loader(topology, self.device)),
            };
            (lane.clone(), perform)
        };
        topology.lanes.iter().enumerate().map(lane).collect()
    }

    fn inputs(&self) -> Inputs {
        Inputs::items(Arc::clone(&self.texts))
    }

    fn texts(&self) -> Option<Arc<ServedTexts>> {
        Some(Arc::clone(&self.texts))
    }

    fn numbers(&self) -> Vec<Number> {
        let mut numbers = std::mem::take(&mut *self.texts.numbers());
        numbers.sort_unstable_by_key(|number| (number.ticket, number.stage));
        numbers
    }
}

/// A stage's model and its calibration.
fn read(
    stage: &StageSpec,
    profiled: &ProfiledModels,
    folder: &Path,
    device: Device,
) -> Result<(TextModel, Calibration), ExecutorError> {
    let name = &stage.pool.name;
    if stage.layers != tenantry_core::op::Layers::all(stage.pool.model.layers) {
        let what = format!("stage {name}: layers");
        return Err(ExecutorError::input(what, "all of a trained model's", "a part of them"));
    }
    let ProfiledModel { whole, .. } = profiled.find(name).ok_or_else(|| TraceError::File {
        path: folder.to_path_buf(),
        message: format!(
            "must have the route's model {name}, got {}",
            profiled.names().join(", ")
        ),
    })?;
    let profile = folder.join(whole.file_name());
    let model = TextModel::read(&whole.folder, stage.pool.dtype, device);
    let model = model.map_err(|error| named(error, &profile, "folder"))?;
    model.check_profiled(&whole.model_hash, &profile)?;
    let shape = &model.classifier().config().shape;
    let wanted = ModelShape {
        name: shape.name.clone(),
        ..stage.pool.model.clone()
    };
    if *shape != wanted {
        let must = described(shape);
        let what = format!("models.{name}");
        let must = format!("{must}, as {} has it", whole.folder.join("config.json").display());
        return Err(ExecutorError::input(what, must, described(&wanted)));
    }
    let must = model.answer().outputs();
    if stage.pool.classes as usize != must {
        let what = format!("stage {name}: classes");
        return Err(ExecutorError::input(what, must.to_string(), stage.pool.classes));
    }
    let calibration = Calibration::of_saved(whole.calibration.clone()).map_err(|error| ExecutorError::Cascade {
        what: name.clone(),
        error,
    })?;
    Ok((model, calibration))
}

/// A file that is not there any more is told with the profile that says where it was, and by which key.
fn named(error: ExecutorError, profile: &Path, key: &str) -> ExecutorError {
    match error {
        ExecutorError::File { .. } => ExecutorError::checkpoint(
            profile,
            key,
            "where it was when it was profiled, from the working directory",
            error,
        ),
        other => other,
    }
}

/// What a pass came to, until it has been looked at.
struct Pass {
    readings: Vec<Reading>,
    classified: Classified,
}

/// What it came to for one text.
struct Concluded {
    /// Probabilities of classes, or a number.
    output: Vec<f64>,
    /// What a dispatcher is told.
    told: Revealed,
    /// What the next model reads, where it is asked and that is not the whole text.
    left: Option<Reading>,
}

/// Runs one instance of a stage's model.
struct TextLane {
    stage: TextStage,
    texts: Arc<ServedTexts>,
    route: Arc<dyn Route>,
    answers: AnswerList,
    pass: Option<Pass>,
}

impl TextLane {
    fn encode(&mut self, batch: &Batch) -> Result<(), ExecutorError> {
        let stage = &self.stage;
        let reading = |member: &Member| self.texts.reading(member.ticket, stage.index);
        let readings: Vec<Reading> = batch.members.iter().map(reading).collect();
        let tokens: Vec<&Tokens> = readings.iter().map(|reading| &*reading.tokens).collect();
        let classifier = stage.model.classifier();
        let classified = classifier.classify_padded(&tokens, batch.shape.tokens as usize, stage.alpha().is_some())?;
        if stage.dispatch.is_none() {
            self.conclude_by_route(batch, &Pass { readings, classified });
        } else {
            self.pass = Some(Pass { readings, classified });
        }
        Ok(())
    }

    /// Whether the dispatcher will send a request on.
    fn goes_on(&self, member: &Member, confidence_ppm: u32) -> bool {
        let answered = Answered {
            ticket: member.ticket,
            stage: self.stage.index,
            confidence_ppm,
            outstanding: 0,
        };
        matches!(self.route.next(answered), NextStage::Ask(_))
    }

    /// Keeps what came of a pass, and reveals what a dispatcher decides by. Of those that go on, what the next model
    /// reads is prepared; those members of whom it can read nothing, and why.
    fn conclude(
        &self,
        batch: &Batch,
        pass: &Pass,
        goes_on: impl Fn(&Self, &Member, u32) -> bool,
    ) -> Vec<(usize, ExecutorError)> {
        let stage = &self.stage;
        let members = batch.members.len();
        let (mut revealed, mut answers) = (Vec::with_capacity(members), Vec::with_capacity(members));
        let mut numbers = Vec::new();
        let (mut outputs, mut readings) = (Vec::with_capacity(members), Vec::new());
        let (mut unanswered, mut unread) = (Vec::new(), Vec::new());
        for (index, member) in batch.members.iter().enumerate() {
            let Concluded { output, told, left } = match self.of_one(pass, index, member, &goes_on) {
                Ok(Some(concluded)) => concluded,
                nothing => {
                    match nothing {
                        Err(error) => unread.push((index, error)),
                        _ => unanswered.push(index),
                    }
                    // It goes nowhere: whatever is said here decides nothing.
                    revealed.push(Revealed {
                        confidence_ppm: 0,
                        next_tokens: member.input_tokens,
                    });
                    continue;
                }
            };
            let (ticket, index) = (member.ticket, stage.index as u16);
            match stage.calibration {
                Calibration::Number { .. } => numbers.push(Number {
                    ticket,
                    stage: index,
                    number: output[0],
                }),
                Calibration::Classes(_) | Calibration::Dirichlet(_) => answers.push(Answer {
                    ticket,
                    stage: index,
                    class: tenantry_cascade::ensemble::likeliest(&output) as u32,
                }),
            }
            outputs.push(((ticket, stage.index), output));
            readings.extend(left.map(|left| ((ticket, stage.index + 1), left)));
            revealed.push(told);
        }
        fail_unanswered(batch, unanswered.into_iter());
        self.answers.lock().expect("no lane panics with the list").extend(answers);
        self.texts.numbers().extend(numbers);
        let mut on_way = self.texts.on_way();
        on_way.outputs.extend(outputs);
        on_way.pruned.extend(readings);
        drop(on_way);
        *batch.revealed.lock().expect("no worker panics with the answers") = revealed;
        unread
    }

    /// Likewise, and fails those of whom nothing can be read.
    fn conclude_by_route(&self, batch: &Batch, pass: &Pass) {
        for (member, error) in self.conclude(batch, pass, Self::goes_on) {
            let member = batch.members[member].request;
            let reason = reason(&error, FailureReason::ComputeFailed);
            fail_those(batch, reason, |other| other.request == member);
        }
    }

    /// What a pass came to for one of its members; nothing where that is no number.
    fn of_one(
        &self,
        pass: &Pass,
        index: usize,
        member: &Member,
        goes_on: impl Fn(&Self, &Member, u32) -> bool,
    ) -> Result<Option<Concluded>, ExecutorError> {
        let logits = &pass.classified.logits[index];
        if !logits.iter().all(|logit| logit.is_finite()) {
            return Ok(None);
        }
        let (output, confidence) = self.stage.calibration.apply(logits);
        let confidence_ppm = (confidence * 1e6).round() as u32;
        let (next_tokens, left) = match self.stage.next.is_some() && goes_on(self, member, confidence_ppm) {
            true => self.pass_on(pass, index, member)?,
            false => (member.input_tokens, None),
        };
        let told = Revealed {
            confidence_ppm,
            next_tokens,
        };
        Ok(Some(Concluded { output, told, left }))
    }

    /// What the next model reads of a request, as long as that is; the reading itself unless it is the whole text.
    fn pass_on(&self, pass: &Pass, index: usize, member: &Member) -> Result<(u32, Option<Reading>), ExecutorError> {
        let stage = &self.stage;
        let next = stage.next.as_ref().expect("who goes on has a next model");
        let Reading { texts, tokens } = &pass.readings[index];
        let whole = &self.texts.whole[stage.index + 1][self.texts.draws.of(member.ticket)];
        let left = match (stage.alpha(), &pass.classified.importance) {
            (Some(alpha), Some(importance)) => {
                let left = texts.pruned(tokens, &importance[index], alpha);
                Arc::new(left.map_err(|error| ExecutorError::Cascade {
                    what: stage.model.name().into(),
                    error,
                })?)
            }
            _ => Arc::clone(texts),
        };
        if Arc::ptr_eq(&left, &whole.texts) || left == whole.texts {
            return Ok((whole.tokens.ids.len() as u32, None));
        }
        let reading = Reading {
            tokens: Arc::new(next.encode(&left)?),
            texts: left,
        };
        Ok((reading.tokens.ids.len() as u32, Some(reading)))
    }

    /// A pass over so many of the texts, each of so many tokens.
    fn warm_up(&self, batch: usize, tokens: usize) -> Result<(), ExecutorError> {
        let stage = &self.stage;
        let texts = self.texts.whole[stage.index].iter().cycle().take(batch);
        let texts: Vec<Tokens> = texts.map(|reading| reading.of_length(tokens)).collect();
        let texts: Vec<&Tokens> = texts.iter().collect();
        let classifier = stage.model.classifier();
        classifier.classify(&texts, stage.alpha().is_some()).map(drop)
    }
}

/// Passes to be made before the run: over batches as large as they come, at most so many, and as long as the texts.
fn passes_over(texts: &[Reading], most: u32, device: Device) -> Vec<(usize, usize)> {
    let longest = texts.iter().map(|reading| reading.tokens.ids.len()).max();
    first_passes(device, most as usize, longest.unwrap_or(0))
}

impl Perform for TextLane {
    fn device(&self) -> Device {
        self.stage.model.classifier().device()
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        let (whole, most) = (&self.texts.whole[self.stage.index], self.stage.largest_batch);
        for (batch, tokens) in passes_over(whole, most, self.device()) {
            self.warm_up(batch, tokens)?;
        }
        synchronize(self.device())
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let done = match (kind, self.pass.take()) {
            (OpKind::Encode(_), _) => self.encode(batch),
            (OpKind::Inspect, Some(pass)) => {
                self.conclude_by_route(batch, &pass);
                Ok(())
            }
            // The pass failed, and its members have been told.
            (OpKind::Inspect, None) => Ok(()),
            _ => unreachable!("a cascade's lanes compute"),
        };
        if let Err(error) = done {
            fail_all(batch, reason(&error, FailureReason::ComputeFailed));
        }
    }
}

#[cfg(test)]
mod tests;
