//! What the lanes of a cascade do: each stage's instances run its model, and look at what came of a pass where a
//! dispatcher asks.
//!
//! Weights and token ids are random. What the models *answer* is drawn, as on the virtual machine; what they *cost* is
//! real, the attention that words are pruned by included. Where a model's upper layers go on from an exit (DeeBERT),
//! they go on with the very states that the lower ones came to.

mod kept_states;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::ids::InstanceId;
use tenantry_core::op::OpKind;
use tenantry_core::spec::{PoolSpec, RouteSpec, StageSpec};
use tenantry_core::topology::{Lane, Topology};
use tenantry_traces::draw::{Draws, Purpose};

pub(super) use kept_states::KeptStates;

use super::Batch;
use super::first_passes::first_passes;
use super::inputs::{Inputs, ids_of};
use super::pool_serving::{AnswerList, PoolServing};
use super::serving::{fail_all, reason, tell};
use super::stage_cards::StageCards;
use super::threads::Perform;
use crate::cascade::layers_with_importance;
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::likeliest::likeliest;
use crate::model::{Encoder, Heads, Input};

/// The models of a route.
pub(super) struct CascadeServing {
    /// By pool.
    stages: Vec<StageModel>,
    /// Of stages whose cards come and go.
    on_cards: StageCards<Encoder>,
    device: Device,
    seed: u64,
    tokens: Draws,
    /// Of requests that may go on in the layers above.
    kept: Arc<KeptStates>,
}

/// One stage's model, which all tenants share but for their heads.
struct StageModel {
    /// Which.
    stage: u16,
    encoder: Encoder,
    heads: Heads,
    /// Of the encoder. From above 0 they go on where the stage before has ended.
    layers: Range<usize>,
    /// Whether the next stage goes on where this one ends.
    exits: bool,
    /// Whether the next model is to read fewer words.
    prunes: bool,
    /// Texts that it reads at once.
    largest_batch: u32,
}

impl StageModel {
    /// A handle for a lane, with the weights of its own card where it has such.
    fn share(&self, own: Option<&Encoder>) -> StageModel {
        StageModel {
            stage: self.stage,
            encoder: own.unwrap_or(&self.encoder).share(),
            heads: self.heads.share(),
            layers: self.layers.clone(),
            exits: self.exits,
            prunes: self.prunes,
            largest_batch: self.largest_batch,
        }
    }

    fn continues(&self) -> bool {
        self.layers.start > 0
    }

    /// Its layers over `hidden`, and the attention that tokens received where words are to be pruned.
    fn pass(&self, hidden: Tensor, input: &Input) -> Result<(Tensor, Option<Tensor>), ExecutorError> {
        let StageModel { encoder, layers, .. } = self;
        if !self.prunes {
            return Ok((encoder.layers(hidden, layers.clone(), input, None)?, None));
        }
        let (hidden, importance) = layers_with_importance(encoder, layers.clone(), hidden, input)?;
        Ok((hidden, Some(importance)))
    }
}

impl CascadeServing {
    /// Random weights for each model; the stages of one model share them, each with heads of its own.
    ///
    /// # Errors
    /// A shape that cannot be built, or no memory.
    pub fn new(route: &RouteSpec, tenants: u32, seed: u64, device: Device) -> Result<CascadeServing, ExecutorError> {
        let mut stages: Vec<StageModel> = Vec::new();
        for (index, stage) in route.stages.iter().enumerate() {
            let PoolSpec {
                model, dtype, classes, ..
            } = &stage.pool;
            let of_stage = seed.wrapping_add(index as u64);
            let encoder = match stages.last() {
                Some(before) if stage.continues() => before.encoder.share(),
                _ => Encoder::random(model, of_stage, *dtype, device)?,
            };
            let exits = route.stages.get(index + 1).is_some_and(StageSpec::continues);
            stages.push(StageModel {
                stage: index as u16,
                encoder,
                heads: Heads::random(model, tenants, *classes, of_stage, *dtype, device)?,
                layers: stage.layers.range(),
                exits,
                prunes: stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some()),
                largest_batch: stage.pool.batch.max_size(),
            });
        }
        Ok(CascadeServing {
            on_cards: StageCards::new(route, device, |index| &stages[index].encoder)?,
            device,
            stages,
            seed,
            tokens: Draws::new(seed, Purpose::Tokens),
            kept: Arc::default(),
        })
    }
}

impl PoolServing for CascadeServing {
    fn lanes(&self, topology: &Topology, answers: &AnswerList) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |(index, lane): (usize, &Lane)| {
            // A stage that goes on where another has ended has that one's lane.
            let of_lane = topology.instance_ids().filter_map(|id| {
                let instance = &topology.instances[id.index()];
                let model = || self.stages[instance.pool.index()].share(self.on_cards.model(instance));
                (instance.compute.index() == index).then(|| (id, model()))
            });
            let models: BTreeMap<InstanceId, StageModel> = of_lane.collect();
            let perform: Box<dyn Perform> = match models.is_empty() {
                false => Box::new(StageLane {
                    models,
                    device: self.device,
                    tokens: self.tokens,
                    answers: Arc::clone(answers),
                    kept: Arc::clone(&self.kept),
                    pass: None,
                }),
                true => Box::new(self.on_cards.loader(topology, self.device)),
            };
            (lane.clone(), perform)
        };
        topology.lanes.iter().enumerate().map(lane).collect()
    }

    /// By the first of its models.
    fn inputs(&self) -> Inputs {
        let first = self.stages.first().expect("a route has a stage");
        let vocabulary = first.encoder.shape().vocabulary.into();
        Inputs::drawn(self.seed, 0, move |_| vocabulary)
    }

    fn kept_states(&self) -> Option<Arc<KeptStates>> {
        Some(Arc::clone(&self.kept))
    }
}

/// What a pass came to, until somebody has looked at it.
struct Pass {
    logits: Tensor,
    importance: Option<Tensor>,
}

/// Brings what a pass came to into host memory, as a dispatcher reads it: confidences, and the attention that tokens
/// were paid.
pub(crate) fn read_out(logits: &Tensor, importance: Option<&Tensor>) -> Result<(), ExecutorError> {
    let (confidences, _) = logits.f_softmax(-1, Kind::Float)?.f_max_dim(1, false)?;
    let _ = Vec::<f32>::try_from(&confidences)?;
    if let Some(importance) = importance {
        let _ = Vec::<Vec<f32>>::try_from(importance)?;
    }
    Ok(())
}

/// Runs the instances of a lane: of a stage's model, and of the stages that go on in its upper layers.
struct StageLane {
    models: BTreeMap<InstanceId, StageModel>,
    device: Device,
    tokens: Draws,
    answers: AnswerList,
    kept: Arc<KeptStates>,
    /// The last pass, which is looked at by the next op if at all.
    pass: Option<Pass>,
}

impl StageLane {
    /// A batch's token ids, embedded.
    fn embed(&self, encoder: &Encoder, batch: &Batch) -> Result<(Input, Tensor), ExecutorError> {
        let vocabulary = u64::from(encoder.shape().vocabulary);
        let ids = |member| ids_of(self.tokens, vocabulary, member);
        let sequences: Vec<Vec<i64>> = batch.members.iter().map(ids).collect();
        let input = encoder.input(&sequences, batch.shape.tokens as usize)?;
        let embedded = encoder.embed(&input)?;
        Ok((input, embedded))
    }

    fn encode(&mut self, batch: &Batch) -> Result<(), ExecutorError> {
        let model = &self.models[&batch.instance];
        let encoder = &model.encoder;
        let tokens = batch.shape.tokens as usize;
        let (input, below) = match model.continues() {
            true => self.kept.take(&batch.members, tokens, encoder)?,
            false => self.embed(encoder, batch)?,
        };
        let (hidden, importance) = model.pass(below, &input)?;
        if model.exits {
            self.kept.put(&batch.members, &hidden)?;
        }
        let tenants: Vec<u32> = batch.members.iter().map(|member| member.tenant).collect();
        let logits = model.heads.forward(&hidden, &tenants)?;
        // Reading the answer waits for the device.
        let classes = Vec::<i64>::try_from(&likeliest(&logits)?)?;
        tell(batch, model.stage, classes.into_iter().enumerate(), &self.answers);
        self.pass = Some(Pass { logits, importance });
        Ok(())
    }

    /// Reads what a dispatcher decides by: confidences, and the attention that tokens were paid.
    fn inspect(&mut self) -> Result<(), ExecutorError> {
        let Some(Pass { logits, importance }) = self.pass.take() else {
            // The pass failed, and its members have been told.
            return Ok(());
        };
        read_out(&logits, importance.as_ref())
    }

    /// A pass over nothing in particular, and what is read of it. What exits keep for the stages above them is not
    /// tried.
    fn warm_up(model: &StageModel, batch: usize, tokens: usize) -> Result<(), ExecutorError> {
        let encoder = &model.encoder;
        let input = encoder.input(&vec![vec![0_i64; tokens]; batch], tokens)?;
        let (hidden, importance) = model.pass(encoder.embed(&input)?, &input)?;
        let logits = model.heads.forward(&hidden, &vec![0; batch])?;
        let _ = Vec::<i64>::try_from(&likeliest(&logits)?)?;
        read_out(&logits, importance.as_ref())
    }
}

impl Perform for StageLane {
    fn device(&self) -> Device {
        self.device
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        for model in self.models.values() {
            let longest = model.encoder.shape().positions as usize;
            for (batch, tokens) in first_passes(self.device, model.largest_batch as usize, longest) {
                StageLane::warm_up(model, batch, tokens)?;
            }
        }
        synchronize(self.device)
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let done = match kind {
            OpKind::Encode(_) => self.encode(batch),
            OpKind::Inspect => self.inspect(),
            _ => unreachable!("a cascade's lanes compute"),
        };
        if let Err(error) = done {
            self.pass = None;
            fail_all(batch, reason(&error, FailureReason::ComputeFailed));
        }
    }
}
