//! What policies know of a card: α and β of each shared model, and what handing an operator to a stream takes.

use std::sync::Arc;

use tenantry_profiles::{AdapterSurface, Card, DeviceKind, DispatchOperation, MissingTable, ModelShape, PetKind};

use crate::op::PetGroup;
use crate::policy::coordinated::{Tables, TablesError};
use crate::policy::pet_work::{PetSizes, layer_work};
use crate::policy::streams::{StreamOperator, StreamRule, hidden_by_launching_ns};
use crate::server::ServerError;
use crate::spec::{PoolSpec, TasksSpec};

/// Linear layers of an encoder layer: a task's operators are handed over at each.
const LINEARS: u64 = 4;

/// A card's tables as dense arrays.
#[derive(Debug)]
pub(crate) struct Latencies {
    shapes: Vec<ModelShape>,
    /// By shared model, as `shapes`: lent to whoever plans.
    tables: Arc<[Tables]>,
    /// Of the β tables.
    kinds: Vec<PetKind>,
    /// What launching a layer's operators takes, by shared model and kind: the least of their tables.
    launch_ns: Vec<Vec<u64>>,
    sizes: PetSizes,
    hand_over_ns: u64,
    device: DeviceKind,
    /// Layers side by side, by shared model: on a CPU, where that was measured.
    concurrent: Vec<Option<AdapterSurface>>,
    /// Streams that can do anything at once: a CPU's cores.
    streams_max: u32,
}

impl Latencies {
    /// For batches of up to `max_batch` queries, and tasks of these kinds.
    ///
    /// # Errors
    /// A table that the card lacks, or limits that are too large.
    pub fn new(
        card: &Card,
        pool: &PoolSpec,
        tasks: &TasksSpec,
        max_batch: u32,
        kinds: Vec<PetKind>,
    ) -> Result<Latencies, ServerError> {
        let shapes: Vec<ModelShape> = tasks.models(&pool.model).cloned().collect();
        let tables = shapes
            .iter()
            .map(|shape| tables(card, pool, shape, [max_batch, tasks.max_tokens], &kinds))
            .collect::<Result<_, ServerError>>()?;
        let launch_ns = |shape: &ModelShape| -> Result<Vec<u64>, MissingTable> {
            let least = |kind: &PetKind| Ok(card.pet(shape, pool.dtype, *kind)?.least().median_ns);
            kinds.iter().map(least).collect()
        };
        let launch_ns = shapes.iter().map(launch_ns).collect::<Result<_, _>>()?;
        let dispatch = |operation| Ok::<u64, MissingTable>(card.dispatch(operation)?.median_ns);
        Ok(Latencies {
            shapes,
            tables,
            launch_ns,
            kinds,
            sizes: tasks.sizes,
            hand_over_ns: dispatch(DispatchOperation::Wake)? + dispatch(DispatchOperation::Tell)?,
            device: card.device.kind,
            concurrent: match card.device.kind {
                DeviceKind::Cpu => tasks
                    .models(&pool.model)
                    .map(|shape| card.concurrent_layer(shape, pool.dtype).ok())
                    .collect(),
                DeviceKind::Cuda => Vec::new(),
            },
            streams_max: match card.device.kind {
                DeviceKind::Cpu => card.device.host.cores.max(1),
                DeviceKind::Cuda => u32::MAX,
            },
        })
    }

    /// α and β of all shared models.
    pub fn all_tables(&self) -> Arc<[Tables]> {
        Arc::clone(&self.tables)
    }

    /// Index of a kind in the β tables.
    ///
    /// # Panics
    /// If no loaded task is of it.
    pub fn kind(&self, kind: PetKind) -> u32 {
        let index = self.kinds.iter().position(|known| *known == kind);
        index.expect("a loaded task's kind has a table") as u32
    }

    /// A group's operators in one layer, as the scheduler of streams sees them.
    pub fn operator(&self, model: u16, group: &PetGroup) -> StreamOperator {
        let (shape, tables) = (&self.shapes[usize::from(model)], &self.tables[usize::from(model)]);
        let tokens = u64::from(group.count) * u64::from(group.tokens);
        let work = layer_work(group.kind, shape, &self.sizes, tokens);
        let kind = self.kind(group.kind);
        let all_layers_ns = tables.task_ns(kind, group.count, group.tokens);
        let latency_ns = (all_layers_ns / u64::from(shape.layers)).max(1);
        StreamOperator {
            flops: work.flops,
            latency_ns,
            launch_ns: self.launch_ns[usize::from(model)][kind as usize].min(latency_ns),
            bytes_per_s: (u128::from(work.bytes) * 1_000_000_000 / u128::from(latency_ns)) as u64,
        }
    }

    /// How many streams operators get: as many where, by the card's tables, less time is theirs side by side than meeting takes at each linear
    /// layer.
    pub fn streams(&self, model: u16, groups: &[PetGroup], operators: &[StreamOperator], many: u32) -> u32 {
        let rule = StreamRule {
            few: 1,
            many: many.min(self.streams_max),
            meeting_ns: LINEARS * self.hand_over_ns,
        };
        rule.streams(operators.len(), |streams| match self.device {
            DeviceKind::Cuda => hidden_by_launching_ns(operators),
            DeviceKind::Cpu => {
                // Threads share the operators, and slow each other down as whole layers do. What nobody measured hides nothing.
                let all_ns: u64 = operators.iter().map(|operator| operator.latency_ns).sum();
                let requests = groups.iter().map(|group| group.count).sum::<u32>() / streams;
                let tokens = groups.iter().map(|group| group.tokens).max().unwrap_or(1);
                let concurrent = self.concurrent[usize::from(model)].as_ref();
                let slower = concurrent.map(|of| {
                    let ns = |streams| of.cost(streams, requests.max(1), tokens).median_ns;
                    u128::from(all_ns) * u128::from(ns(streams)) / u128::from(ns(1).max(1)) / u128::from(streams)
                });
                slower.map_or(0, |ns| all_ns.saturating_sub(ns as u64))
            }
        })
    }
}

fn tables(
    card: &Card,
    pool: &PoolSpec,
    shape: &ModelShape,
    [max_batch, max_tokens]: [u32; 2],
    kinds: &[PetKind],
) -> Result<Tables, ServerError> {
    let (embedding, layer) = (
        card.embedding(shape, pool.dtype)?,
        card.encoder_layer(shape, pool.dtype)?,
    );
    let head = card.head(shape, pool.dtype, pool.classes)?;
    let pets = kinds
        .iter()
        .map(|kind| card.pet(shape, pool.dtype, *kind))
        .collect::<Result<Vec<_>, _>>()?;
    let layers = u64::from(shape.layers);
    let shared = |batch: u32, tokens: u32| {
        embedding.cost(batch, tokens).median_ns
            + layers * layer.cost(batch, tokens).median_ns
            + head.cost(batch.into()).median_ns
    };
    let own = |kind: u32, batch: u32, tokens: u32| layers * pets[kind as usize].cost(batch, tokens).median_ns;
    Tables::new(max_batch, max_tokens, kinds.len() as u32, shared, own).map_err(|error: TablesError| error.into())
}
