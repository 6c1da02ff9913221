//! What a batch of tasks takes: the shared model's tables, and each group's operators on their streams.
//!
//! No card says what operators of several tasks take side by side, so that streams are priced from what it does say. On a CPU a
//! stream is a thread: the busiest decides, slowed down as whole layers side by side were measured to be. On a GPU operators share
//! launching, bandwidth and arithmetic as a roofline has it (`side_by_side.rs`): launching an operator takes what the least of its table
//! does, its bytes are moved at the highest bandwidth that any operator's table reaches, and the rest of its time it computes. Streams
//! meet again after each of a layer's four linear layers, which takes a hand-over each.

use tenantry_core::op::{BatchShape, Pet, PetGroup};
use tenantry_core::policy::pet_work::{PetSizes, layer_work};
use tenantry_core::spec::{EngineSpec, PoolSpec, TasksSpec};
use tenantry_profiles::{
    AdapterSurface, Card, Curve, DeviceKind, DispatchOperation, Family, MissingTable, ModelShape, PetKind,
    PoolBatching, Surface,
};

use crate::prices::{Extrapolated, OpSpread, Quantile};
use crate::side_by_side::{Operator, SideBySide};

/// Linear layers of an encoder layer, after each of which streams meet.
const LINEARS: u64 = 4;

/// The tables of all shared models.
#[derive(Debug)]
pub(crate) struct PetPrices {
    models: Vec<OfModel>,
    /// Indexed as `OfModel::pets`.
    kinds: Vec<PetKind>,
    /// Of splitting pools on the host, in the order of [`PoolBatching::ALL`]; nothing where no pool is split.
    planning: Vec<Surface>,
    sizes: PetSizes,
    device: DeviceKind,
    hand_over_ns: u64,
    /// Used again.
    operators: Vec<Operator>,
    side_by_side: SideBySide,
    /// Busy time of streams, likewise.
    busy_ns: Vec<u64>,
}

#[derive(Debug)]
struct OfModel {
    shape: ModelShape,
    embedding: Surface,
    layer: Surface,
    head: Curve,
    /// Absent where it was not measured, or one model computes at a time.
    concurrent: Option<AdapterSurface>,
    pets: Vec<PetSurface>,
    /// The highest bandwidth that an operator's table reaches.
    bytes_per_ns: f64,
}

/// One kind's operators of a layer.
#[derive(Debug)]
struct PetSurface {
    surface: Surface,
    /// Launching alone: [`Surface::least`].
    launch_ns: u64,
}

impl PetPrices {
    pub fn new(card: &Card, pool: &PoolSpec, tasks: &TasksSpec) -> Result<PetPrices, MissingTable> {
        let kinds: Vec<PetKind> = match tasks.engine {
            EngineSpec::Shared { .. } => {
                let asked = |kind: &PetKind| tasks.registrations.iter().any(|of| of.kind == kind.name());
                PetKind::ALL.iter().copied().filter(asked).collect()
            }
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => Vec::new(),
        };
        let several = matches!(tasks.engine, EngineSpec::Parallel { .. } | EngineSpec::Shared { .. });
        let model = |shape: &ModelShape| OfModel::new(card, pool, shape, &kinds, &tasks.sizes, several);
        let dispatch = |operation| Ok::<u64, MissingTable>(card.dispatch(operation)?.median_ns);
        Ok(PetPrices {
            models: tasks.models(&pool.model).map(model).collect::<Result<_, _>>()?,
            kinds,
            planning: match tasks.plans() {
                true => PoolBatching::ALL
                    .iter()
                    .map(|batching| card.plan(*batching))
                    .collect::<Result<_, _>>()?,
                false => Vec::new(),
            },
            sizes: tasks.sizes,
            device: card.device.kind,
            hand_over_ns: dispatch(DispatchOperation::Wake)? + dispatch(DispatchOperation::Tell)?,
            operators: Vec::new(),
            side_by_side: SideBySide::default(),
            busy_ns: Vec::new(),
        })
    }

    /// A forward pass, in nanoseconds.
    pub fn work_ns(
        &mut self,
        pet: &Pet,
        groups: &[PetGroup],
        shape: BatchShape,
        spread: &mut OpSpread,
        extrapolated: &mut Extrapolated,
    ) -> u64 {
        // The parts of one op run within milliseconds of each other: what slows one slows all.
        let draw = spread.draw();
        let model = &self.models[usize::from(pet.model)];
        let (requests, tokens) = (shape.requests, shape.tokens);
        extrapolated.note(model.embedding.beyond(requests, tokens), Family::Embedding);
        extrapolated.note(model.layer.beyond(requests, tokens), Family::EncoderLayer);
        extrapolated.note(model.head.beyond(requests.into()), Family::Head);
        let layers = u64::from(model.shape.layers);
        let shared = draw.of(model.embedding.cost(requests, tokens))
            + layers * draw.of(model.layer.cost(requests, tokens))
            + draw.of(model.head.cost(requests.into()));
        shared + layers * self.layer_ns(pet, groups, draw, extrapolated)
    }

    /// All groups' operators of one layer.
    fn layer_ns(&mut self, pet: &Pet, groups: &[PetGroup], draw: Quantile, extrapolated: &mut Extrapolated) -> u64 {
        let model = &self.models[usize::from(pet.model)];
        self.operators.clear();
        for group in groups {
            let kind = self.kinds.iter().position(|kind| *kind == group.kind);
            let of = &model.pets[kind.expect("a loaded task's kind has a table")];
            extrapolated.note(of.surface.beyond(group.count, group.tokens), Family::Pet);
            let ns = draw.of(of.surface.cost(group.count, group.tokens));
            let tokens = u64::from(group.count) * u64::from(group.tokens);
            let bytes = layer_work(group.kind, &model.shape, &self.sizes, tokens).bytes;
            let launch_ns = of.launch_ns.min(ns);
            let move_ns = ((bytes as f64 / model.bytes_per_ns) as u64).min(ns - launch_ns);
            self.operators.push(Operator {
                stream: group.stream,
                launch_ns,
                move_ns,
                compute_ns: ns - launch_ns - move_ns,
            });
        }
        let alone_ns = |of: &Operator| of.launch_ns + of.move_ns + of.compute_ns;
        let all_ns: u64 = self.operators.iter().map(alone_ns).sum();
        if pet.streams == 1 {
            return all_ns;
        }
        let streams = u64::from(pet.streams);
        let meeting_ns = LINEARS * (streams - 1) * self.hand_over_ns;
        let side_by_side_ns = match self.device {
            DeviceKind::Cpu => {
                // Each stream's own thread launches, moves and computes.
                self.busy_ns.clear();
                self.busy_ns.resize(usize::from(pet.streams), 0);
                for operator in &self.operators {
                    self.busy_ns[usize::from(operator.stream)] += alone_ns(operator);
                }
                let busiest_ns = self.busy_ns.iter().copied().max().unwrap_or(0);
                let longest = groups.iter().map(|group| group.tokens).max().unwrap_or(1);
                let count = groups.iter().map(|group| group.count).sum::<u32>() / u32::from(pet.streams);
                let slower_ppm = model.streams_ppm(streams as u32, count.max(1), longest);
                slower_ppm
                    .map_or(all_ns, |ppm| busiest_ns * ppm / 1_000_000)
                    .min(all_ns)
            }
            DeviceKind::Cuda => self.side_by_side.ns(&self.operators, pet.streams),
        };
        side_by_side_ns + meeting_ns
    }

    /// Splitting a pool on the host, by tasks and queries.
    pub fn planning(&self, batching: PoolBatching) -> &Surface {
        &self.planning[batching as usize]
    }

    /// How much longer a layer takes while so many models of a card compute, in parts of a million; nothing where that was not
    /// measured.
    pub fn streams_ppm(&self, pet: &Pet, streams: u32, shape: BatchShape) -> Option<u64> {
        self.models[usize::from(pet.model)].streams_ppm(streams, shape.requests, shape.tokens)
    }
}

impl OfModel {
    fn new(
        card: &Card,
        pool: &PoolSpec,
        shape: &ModelShape,
        kinds: &[PetKind],
        sizes: &PetSizes,
        several: bool,
    ) -> Result<OfModel, MissingTable> {
        let dtype = pool.dtype;
        let mut of = OfModel {
            shape: shape.clone(),
            embedding: card.embedding(shape, dtype)?,
            layer: card.encoder_layer(shape, dtype)?,
            head: card.head(shape, dtype, pool.classes)?,
            concurrent: several.then(|| card.concurrent_layer(shape, dtype).ok()).flatten(),
            pets: Vec::new(),
            bytes_per_ns: f64::MIN_POSITIVE,
        };
        for &kind in kinds {
            let surface = card.pet(shape, dtype, kind)?;
            let rows = card.tables.pet.iter();
            let rows = rows.filter(|row| row.model == shape.name && row.kind == kind);
            let most = rows.max_by_key(|row| (row.batch, row.tokens));
            let most = most.expect("a bound table has rows");
            let launch_ns = surface.least().median_ns;
            let work = layer_work(kind, shape, sizes, u64::from(most.batch) * u64::from(most.tokens));
            let ns = surface
                .cost(most.batch, most.tokens)
                .median_ns
                .saturating_sub(launch_ns)
                .max(1) as f64;
            of.bytes_per_ns = of.bytes_per_ns.max(work.bytes as f64 / ns);
            of.pets.push(PetSurface { surface, launch_ns });
        }
        Ok(of)
    }

    fn streams_ppm(&self, streams: u32, batch: u32, tokens: u32) -> Option<u64> {
        let surface = self.concurrent.as_ref()?;
        let ns = |streams| surface.cost(streams, batch, tokens).median_ns;
        Some((ns(streams) * 1_000_000 / ns(1).max(1)).max(1_000_000))
    }
}
