//! What policies know of a card: α and β of each shared model, and what operators take on several streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenantry_profiles::{Card, ModelShape, PetKind};

use super::planning::Candidate;
use super::repository::Task;
use crate::op::PetGroup;
use crate::pet::work::{PetSizes, layer_work};
use crate::policy::coordinated::{Tables, TablesError};
use crate::policy::stream_prices::StreamPrices;
use crate::policy::streams::{StreamOperator, stream_counts};
use crate::server::ServerError;
use crate::spec::{PoolSpec, TasksSpec};

/// A card's tables as dense arrays.
#[derive(Debug)]
pub(crate) struct Latencies {
    shapes: Vec<ModelShape>,
    /// By shared model, as `shapes`: lent to whoever plans.
    tables: Arc<[Tables]>,
    /// Of the β tables.
    kinds: Vec<PetKind>,
    sizes: PetSizes,
    streams: StreamPrices,
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
        Ok(Latencies {
            shapes,
            tables,
            sizes: tasks.sizes,
            streams: StreamPrices::new(card, pool, tasks, &kinds)?,
            kinds,
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

    /// What queries of any tasks take together, before it is known which share a batch: each shared model's padded to
    /// their mean length, as batches of like lengths nearly are, and each task's operators over its own at once.
    pub fn predicted_ns(&self, pool: &[Candidate]) -> u64 {
        let mut of_model: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
        let mut of_task: BTreeMap<u32, (Task, (u32, u32))> = BTreeMap::new();
        for query in pool {
            let model = of_model.entry(query.task.model).or_default();
            let (_, task) = of_task.entry(query.tenant).or_insert((query.task, (0, 0)));
            for (count, tokens) in [model, task] {
                *count += 1;
                *tokens += query.tokens;
            }
        }
        let shared = of_model.into_iter().map(|(model, of)| {
            let tables = &self.tables[usize::from(model)];
            in_batches(of, tables.max_batch(), |count, tokens| tables.shared_ns(count, tokens))
        });
        let own = of_task.into_values().map(|(task, of)| {
            let (tables, kind) = (&self.tables[usize::from(task.model)], self.kind(task.kind));
            in_batches(of, tables.max_batch(), |count, tokens| {
                tables.task_ns(kind, count, tokens)
            })
        });
        shared.chain(own).sum()
    }

    /// Likewise of one query, without a look at the others.
    pub fn alone_ns(&self, query: &Candidate) -> u64 {
        let tables = &self.tables[usize::from(query.task.model)];
        tables.shared_ns(1, query.tokens) + tables.task_ns(self.kind(query.task.kind), 1, query.tokens)
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
            bytes_per_s: (u128::from(work.bytes) * 1_000_000_000 / u128::from(latency_ns)) as u64,
        }
    }

    /// Numbers of streams that these operators could run on, up to the most that there is reason to choose here.
    pub fn stream_counts(&self, many: u32, operators: usize) -> impl Iterator<Item = u32> + use<> {
        stream_counts(many.min(self.streams.most()), operators)
    }

    /// What one layer's operators take on the streams that groups say.
    pub fn layer_ns(&mut self, model: u16, groups: &[PetGroup], alone_ns: &[u64], streams: u32) -> u64 {
        self.streams.layer_ns(model, groups, alone_ns, streams as u16)
    }
}

/// Queries and the sum of their tokens, in batches of up to `max`, padded to their mean length.
fn in_batches((count, tokens): (u32, u32), max: u32, batch_ns: impl Fn(u32, u32) -> u64) -> u64 {
    let mean_tokens = tokens.div_ceil(count);
    let full_ns = match count / max {
        0 => 0,
        full => u64::from(full) * batch_ns(max, mean_tokens),
    };
    let rest_ns = match count % max {
        0 => 0,
        rest => batch_ns(rest, mean_tokens),
    };
    full_ns + rest_ns
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
    let pets = kinds.iter().map(|kind| card.pet(shape, pool.dtype, *kind)).collect::<Result<Vec<_>, _>>()?;
    let layers = u64::from(shape.layers);
    let shared = |batch: u32, tokens: u32| {
        embedding.median_ns(batch, tokens) + layers * layer.median_ns(batch, tokens) + head.median_ns(batch.into())
    };
    let own = |kind: u32, batch: u32, tokens: u32| layers * pets[kind as usize].median_ns(batch, tokens);
    Tables::new(max_batch, max_tokens, kinds.len() as u32, shared, own).map_err(|error: TablesError| error.into())
}
