//! What policies know of a card: α and β of each shared model, and what handing an operator to a stream takes.

use std::sync::Arc;

use tenantry_profiles::{Card, DeviceKind, DispatchOperation, MissingTable, ModelShape, PetKind};

use crate::op::PetGroup;
use crate::policy::coordinated::{Tables, TablesError};
use crate::policy::pet_work::{PetSizes, layer_work};
use crate::policy::streams::{StreamOperator, StreamRule};
use crate::server::ServerError;
use crate::spec::{PoolSpec, TasksSpec};

/// Linear layers of an encoder layer: a task's operators are handed over at each.
const LINEARS: u64 = 4;

/// One part in so many of the operators' work overlaps at best: three of the paper's four kinds move bytes, and one computes.
const OVERLAP: u64 = 4;

/// A card's tables as dense arrays.
#[derive(Debug)]
pub(crate) struct Latencies {
    shapes: Vec<ModelShape>,
    /// By shared model, as `shapes`: lent to whoever plans.
    tables: Arc<[Tables]>,
    /// Of the β tables.
    kinds: Vec<PetKind>,
    sizes: PetSizes,
    hand_over_ns: u64,
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
        let dispatch = |operation| Ok::<u64, MissingTable>(card.dispatch(operation)?.median_ns);
        Ok(Latencies {
            shapes,
            tables,
            kinds,
            sizes: tasks.sizes,
            hand_over_ns: dispatch(DispatchOperation::Wake)? + dispatch(DispatchOperation::Tell)?,
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
        let all_layers_ns = tables.task_ns(self.kind(group.kind), group.count, group.tokens);
        let latency_ns = (all_layers_ns / u64::from(shape.layers)).max(1);
        StreamOperator {
            flops: work.flops,
            latency_ns,
            bytes_per_s: (u128::from(work.bytes) * 1_000_000_000 / u128::from(latency_ns)) as u64,
        }
    }

    /// When operators are long enough for several streams: from when what overlaps of their work outlasts handing them over at each
    /// linear layer. The least operator of a kind is launching alone, of which nothing overlaps.
    pub fn stream_rule(&self, model: u16, many: u32) -> StreamRule {
        let (shape, tables) = (&self.shapes[usize::from(model)], &self.tables[usize::from(model)]);
        let kinds = self.kinds.len().max(1) as u64;
        let least_ns: u64 = (0..self.kinds.len() as u32)
            .map(|kind| tables.task_ns(kind, 1, 1))
            .sum();
        let launch_ns = least_ns / kinds / u64::from(shape.layers);
        StreamRule::from_hand_over(
            launch_ns + OVERLAP * LINEARS * self.hand_over_ns,
            many.min(self.streams_max),
        )
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
