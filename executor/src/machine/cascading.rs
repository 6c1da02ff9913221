//! What the lanes of a cascade do: each stage's instances run its model, and look at what came of a pass where a dispatcher asks.
//!
//! Weights and token ids are random. What the models *answer* is drawn, as on the virtual machine; what they *cost* is real, the attention
//! that words are pruned by included.

use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::op::{Member, OpKind};
use tenantry_core::spec::{PoolSpec, RouteSpec, StageSpec};
use tenantry_core::topology::{Instance, Lane, Topology};
use tenantry_traces::draw::{Draws, Purpose};

use super::Batch;
use super::serving::{Answer, fail_all, reason};
use super::stage_cards::StageCards;
use super::threads::Perform;
use crate::cascade::layers_with_importance;
use crate::device::{prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::model::{Encoder, Heads};

/// The models of a route.
pub(super) struct CascadeServing {
    /// By pool.
    stages: Vec<StageModel>,
    /// Of stages whose cards come and go.
    on_cards: StageCards<Encoder>,
    device: Device,
    tokens: Draws,
}

/// One stage's model, which all tenants share but for their heads.
struct StageModel {
    encoder: Encoder,
    heads: Heads,
    /// Whether the next model is to read fewer words.
    prunes: bool,
}

impl StageModel {
    /// A handle for a lane, with the weights of its own card where it has such.
    fn share(&self, own: Option<&Encoder>) -> StageModel {
        StageModel {
            encoder: own.unwrap_or(&self.encoder).share(),
            heads: self.heads.share(),
            prunes: self.prunes,
        }
    }
}

impl CascadeServing {
    /// Random weights for each stage.
    ///
    /// # Errors
    /// A stage that goes on where the one before has ended, whose hidden states nobody keeps here; a shape that cannot be built, or no
    /// memory.
    pub fn new(route: &RouteSpec, tenants: u32, seed: u64, device: Device) -> Result<CascadeServing, ExecutorError> {
        let stage = |(index, stage): (u64, &StageSpec)| {
            let PoolSpec {
                name,
                model,
                dtype,
                classes,
                ..
            } = &stage.pool;
            if stage.continues() {
                let what = format!("stage {name}: layers");
                let must = "from 0 to be executed, since early exits between layers are only simulated";
                return Err(ExecutorError::input(what, must, format!("from {}", stage.layers.first)));
            }
            Ok(StageModel {
                encoder: Encoder::random(model, seed + index, *dtype, device)?,
                heads: Heads::random(model, tenants, *classes, seed + index, *dtype, device)?,
                prunes: stage.dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some()),
            })
        };
        let stages: Vec<StageModel> = (0..).zip(&route.stages).map(stage).collect::<Result<_, _>>()?;
        Ok(CascadeServing {
            on_cards: StageCards::new(route, device, |index| &stages[index].encoder)?,
            device,
            stages,
            tokens: Draws::new(seed, Purpose::Tokens),
        })
    }

    /// Who does each lane's ops. `answers` receives the likeliest class of each pass.
    pub fn lanes(&self, topology: &Topology, answers: &Arc<Mutex<Vec<Answer>>>) -> Vec<(Lane, Box<dyn Perform>)> {
        let lane = |(index, lane): (usize, &Lane)| {
            let of_lane = |instance: &&Instance| instance.compute.index() == index;
            let perform: Box<dyn Perform> = match topology.instances.iter().find(of_lane) {
                Some(instance) => Box::new(StageLane {
                    model: self.stages[instance.pool.index()].share(self.on_cards.model(instance)),
                    tokens: self.tokens,
                    answers: Arc::clone(answers),
                    pass: None,
                }),
                None => Box::new(self.on_cards.loader(topology, self.device)),
            };
            (lane.clone(), perform)
        };
        topology.lanes.iter().enumerate().map(lane).collect()
    }
}

/// What a pass came to, until somebody has looked at it.
struct Pass {
    logits: Tensor,
    importance: Option<Tensor>,
}

/// Brings what a pass came to into host memory, as a dispatcher reads it: confidences, and the attention that tokens were paid.
pub(crate) fn read_out(logits: &Tensor, importance: Option<&Tensor>) -> Result<(), ExecutorError> {
    let (confidences, _) = logits.f_softmax(-1, Kind::Float)?.f_max_dim(1, false)?;
    let _ = Vec::<f32>::try_from(&confidences)?;
    if let Some(importance) = importance {
        let _ = Vec::<Vec<f32>>::try_from(importance)?;
    }
    Ok(())
}

/// Runs one instance of a stage's model.
struct StageLane {
    model: StageModel,
    tokens: Draws,
    answers: Arc<Mutex<Vec<Answer>>>,
    /// The last pass, which is looked at by the next op if at all.
    pass: Option<Pass>,
}

impl StageLane {
    fn encode(&mut self, batch: &Batch) -> Result<(), ExecutorError> {
        let StageModel { encoder, heads, prunes } = &self.model;
        let vocabulary = u64::from(encoder.shape().vocabulary);
        let ids = |member: &Member| {
            let mut draws = self.tokens.about(member.ticket);
            (0..member.input_tokens)
                .map(|_| draws.below(vocabulary) as i64)
                .collect()
        };
        let sequences: Vec<Vec<i64>> = batch.members.iter().map(ids).collect();
        let input = encoder.input(&sequences, batch.shape.tokens as usize)?;
        let embedded = encoder.embed(&input)?;
        let (hidden, importance) = match prunes {
            true => {
                let (hidden, importance) = layers_with_importance(encoder, embedded, &input)?;
                (hidden, Some(importance))
            }
            false => (
                encoder.layers(embedded, 0..encoder.shape().layers as usize, &input, None)?,
                None,
            ),
        };
        let tenants: Vec<u32> = batch.members.iter().map(|member| member.tenant).collect();
        let logits = heads.forward(&hidden, &tenants)?;
        // Reading the answer waits for the device.
        let classes = Vec::<i64>::try_from(&logits.f_argmax(1, false)?)?;
        let answer = |(member, class): (&Member, i64)| Answer {
            ticket: member.ticket,
            class: class as u32,
        };
        let answers = batch.members.iter().zip(classes).map(answer);
        self.answers
            .lock()
            .expect("no lane panics with the list")
            .extend(answers);
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

    /// A pass over nothing in particular, as long as the model takes.
    fn warm_up(model: &StageModel, batch: usize) -> Result<(), ExecutorError> {
        let shape = model.encoder.shape();
        let tokens = shape.positions as usize;
        let input = model.encoder.input(&vec![vec![0_i64; tokens]; batch], tokens)?;
        let embedded = model.encoder.embed(&input)?;
        let hidden = match model.prunes {
            true => layers_with_importance(&model.encoder, embedded, &input)?.0,
            false => model.encoder.layers(embedded, 0..shape.layers as usize, &input, None)?,
        };
        model.heads.forward(&hidden, &vec![0; batch]).map(drop)
    }
}

impl Perform for StageLane {
    fn device(&self) -> Device {
        self.model.encoder.device()
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        let model = &self.model;
        for batch in [1, 8, 1, 8] {
            StageLane::warm_up(model, batch)?;
        }
        synchronize(model.encoder.device())
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
