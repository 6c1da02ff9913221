//! A cascade's stages whose cards come and go: on each of these cards the stage's model has weights of its own, which
//! are loaded from host memory when the server asks for it.

use std::collections::BTreeMap;

use tch::{Device, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::ids::{GpuId, InstanceId, PoolId};
use tenantry_core::op::OpKind;
use tenantry_core::spec::{RouteSpec, StageSpec};
use tenantry_core::topology::{Instance, Topology};

use super::Batch;
use super::serving::{fail_all, reason};
use super::threads::Perform;
use crate::cascade::TextModel;
use crate::device::{copy_block, host_memory_for, prepare_lane_thread};
use crate::error::ExecutorError;
use crate::model::Encoder;

/// A model whose weights are a few blocks of memory.
pub(super) trait Blocks: Sized {
    /// The blocks.
    fn blocks(&self) -> Vec<&Tensor>;

    /// The same model in memory of its own.
    ///
    /// # Errors
    /// No memory.
    fn copy(&self) -> Result<Self, ExecutorError>;
}

impl Blocks for Encoder {
    fn blocks(&self) -> Vec<&Tensor> {
        vec![self.parameters()]
    }

    fn copy(&self) -> Result<Encoder, ExecutorError> {
        Encoder::copy(self)
    }
}

impl Blocks for TextModel {
    fn blocks(&self) -> Vec<&Tensor> {
        self.classifier().blocks().map(|(block, _)| block).to_vec()
    }

    fn copy(&self) -> Result<TextModel, ExecutorError> {
        TextModel::copy(self)
    }
}

/// Models of stages on cards that come and go.
pub(super) struct StageCards<M>(BTreeMap<(PoolId, GpuId), OnCard<M>>);

struct OnCard<M> {
    model: M,
    weights: Weights,
}

/// Blocks on a card, and those in host memory that they are loaded from.
struct Weights {
    on_card: Vec<Tensor>,
    host: Vec<Tensor>,
}

impl Weights {
    fn share(&self) -> Weights {
        let share = |blocks: &[Tensor]| blocks.iter().map(Tensor::shallow_clone).collect();
        Weights {
            on_card: share(&self.on_card),
            host: share(&self.host),
        }
    }

    fn load(&mut self) -> Result<(), ExecutorError> {
        let mut blocks = self.on_card.iter_mut().zip(&self.host);
        blocks.try_for_each(|(on_card, host)| copy_block(on_card, host))
    }
}

impl<M: Blocks> StageCards<M> {
    /// Room on all cards of the stages that scale, and their models on those that they start with; `model` is a
    /// stage's.
    ///
    /// # Errors
    /// No memory.
    pub fn new<'a>(
        route: &RouteSpec,
        device: Device,
        model: impl Fn(usize) -> &'a M,
    ) -> Result<StageCards<M>, ExecutorError>
    where
        M: 'a,
    {
        let mut on_cards = BTreeMap::new();
        let scaling = |(index, stage): (usize, &StageSpec)| stage.scale.map(|scale| (index, stage.gpus.clone(), scale));
        for (index, gpus, scale) in route.stages.iter().enumerate().filter_map(scaling) {
            let model = model(index);
            let host = |block: &&Tensor| host_memory_for(device, block.f_to(Device::Cpu)?);
            let host: Vec<Tensor> = model.blocks().iter().map(host).collect::<Result<_, _>>()?;
            for (card, gpu) in gpus.into_iter().enumerate() {
                let own = model.copy()?;
                let mut on_card: Vec<Tensor> = own.blocks().into_iter().map(Tensor::shallow_clone).collect();
                if card >= scale.cards_at_start as usize {
                    // What was never loaded must not look as if it had been.
                    for block in &mut on_card {
                        let _ = block.f_zero_()?;
                    }
                }
                let host = host.iter().map(Tensor::shallow_clone).collect();
                let weights = Weights { on_card, host };
                on_cards.insert((PoolId(index as u32), GpuId(gpu)), OnCard { model: own, weights });
            }
        }
        Ok(StageCards(on_cards))
    }

    /// The model that an instance's lane computes with, where it has one of its own.
    pub fn model(&self, instance: &Instance) -> Option<&M> {
        self.0.get(&(instance.pool, instance.gpu)).map(|on_card| &on_card.model)
    }

    /// Who loads them.
    pub fn loader(&self, topology: &Topology, device: Device) -> LoadLane {
        let weights = |instance: InstanceId| {
            let Instance { pool, gpu, .. } = topology.instances[instance.index()];
            Some((instance, self.0.get(&(pool, gpu))?.weights.share()))
        };
        LoadLane {
            device,
            weights: topology.instance_ids().filter_map(weights).collect(),
        }
    }
}

/// A copy lane: loads models onto cards, where they come and go.
pub(super) struct LoadLane {
    device: Device,
    /// Of any instance of a card.
    weights: BTreeMap<InstanceId, Weights>,
}

impl Perform for LoadLane {
    fn device(&self) -> Device {
        self.device
    }

    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        Ok(())
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let OpKind::LoadModel(_) = kind else {
            unreachable!("a cascade's copy lanes load models")
        };
        let weights = self.weights.get_mut(&batch.instance);
        if let Err(error) = weights.expect("only stages that scale load").load() {
            fail_all(batch, reason(&error, FailureReason::LoadFailed));
        }
    }
}
