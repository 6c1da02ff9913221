//! What one layer's operators of all tasks take on several streams, by a card's tables. The scheduler chooses the
//! number of streams by it, and the virtual machine charges it.
//!
//! On a GPU whose operators were measured side by side (`concurrent_pet`: on each stream a mini-batch of each kind),
//! the busiest stream decides, slowed down as they were by as many streams as the work would fill as well: streams that
//! have less to do are beside it for as long as they have. More streams than were measured are not chosen. On others
//! they share launching, bandwidth and arithmetic as a roofline has it ([`side_by_side`](super::side_by_side)):
//! launching an operator takes what the least of its table does, its bytes are moved at the highest bandwidth that any
//! operator's table of the card reaches, whichever kinds are served, and the rest of its time it computes. Streams meet
//! again after each linear layer of a layer at which one of the tasks has an operator, which takes a hand-over each.
//!
//! On a CPU a stream is a thread, and the busiest decides. How much slower threads are side by side, hand-overs and
//! all, is measured with operators (`concurrent_pet`). A card that lacks that table takes what it says of whole layers
//! side by side (`concurrent_layer`), and the hand-overs on top; one that lacks both says that nothing is gained.
//! Threads beyond the cores take turns on them, so that they gain no more than an evener share of the work for each.

use tenantry_profiles::{
    AdapterSurface, Beyond, Card, DeviceKind, DispatchOperation, MissingTable, ModelShape, PetKind,
};

use super::side_by_side::{Operator, SideBySide};
use crate::op::PetGroup;
use crate::pet::work::{PetSizes, layer_work, linear_layers};
use crate::spec::{PoolSpec, TasksSpec};

/// A card's prices, by shared model.
#[derive(Debug)]
pub struct StreamPrices {
    device: DeviceKind,
    /// Of the host, on which a CPU's streams compute.
    cores: u32,
    /// For each further stream, after a linear layer.
    meeting_ns: u64,
    sizes: PetSizes,
    kinds: Vec<PetKind>,
    models: Vec<OfModel>,
    /// Used again.
    operators: Vec<Operator>,
    side_by_side: SideBySide,
    /// Busy time of streams, likewise.
    busy_ns: Vec<u64>,
}

#[derive(Debug)]
struct OfModel {
    shape: ModelShape,
    /// Launching alone, by kind.
    launch_ns: Vec<u64>,
    /// The linear layers of a layer at which a kind has operators, a bit each, by kind.
    linears: Vec<u8>,
    /// The highest bandwidth that an operator's table reaches.
    bytes_per_ns: f64,
    measured: SideBySideTable,
}

/// What a card says of what is side by side: threads of a CPU, streams of a GPU.
#[derive(Debug)]
enum SideBySideTable {
    /// Of operators, and the most that were.
    Operators(AdapterSurface, u32),
    Layers(AdapterSurface),
    None,
}

const PPM: u64 = 1_000_000;

impl StreamPrices {
    /// For tasks of these kinds.
    ///
    /// # Errors
    /// The card lacks a kind's table, or what a hand-over takes.
    pub fn new(
        card: &Card,
        pool: &PoolSpec,
        tasks: &TasksSpec,
        kinds: &[PetKind],
    ) -> Result<StreamPrices, MissingTable> {
        let dispatch = |operation| Ok::<u64, MissingTable>(card.dispatch(operation)?.median_ns);
        let model = |shape: &ModelShape| OfModel::new(card, pool, shape, kinds, &tasks.sizes);
        Ok(StreamPrices {
            device: card.device.kind,
            cores: card.device.host.cores.max(1),
            meeting_ns: dispatch(DispatchOperation::Wake)? + dispatch(DispatchOperation::Tell)?,
            sizes: tasks.sizes,
            kinds: kinds.to_vec(),
            models: tasks.models(&pool.model).map(model).collect::<Result<_, _>>()?,
            operators: Vec::new(),
            side_by_side: SideBySide::default(),
            busy_ns: Vec::new(),
        })
    }

    /// What launching a kind's operators of a layer takes: the least of their table.
    pub fn launch_ns(&self, model: u16, kind: PetKind) -> u64 {
        self.models[usize::from(model)].launch_ns[self.kind(kind)]
    }

    /// How often a layer's streams meet: nobody is woken at a linear layer at which no task of the batch has an
    /// operator.
    fn meetings(&self, model: u16, groups: &[PetGroup]) -> u64 {
        let linears = &self.models[usize::from(model)].linears;
        let of_all = groups.iter().map(|group| linears[self.kind(group.kind)]);
        of_all.fold(0, |all, own| all | own).count_ones().into()
    }

    fn kind(&self, kind: PetKind) -> usize {
        let index = self.kinds.iter().position(|known| *known == kind);
        index.expect("a loaded task's kind has a table")
    }

    /// The most streams to choose: a CPU's cores, since more can do nothing at once, and on a GPU as many as were
    /// measured.
    pub fn most(&self) -> u32 {
        let measured = self.models.iter().filter_map(|of| match of.measured {
            SideBySideTable::Operators(_, most) => Some(most),
            _ => None,
        });
        match self.device {
            DeviceKind::Cpu => self.cores,
            DeviceKind::Cuda => measured.min().unwrap_or(u32::MAX),
        }
    }

    /// How far what streams take from each other lies beyond what was measured of operators side by side; nothing where
    /// none were.
    pub fn beyond(&self, model: u16, groups: &[PetGroup], streams: u16) -> Option<Beyond> {
        let SideBySideTable::Operators(of, _) = &self.models[usize::from(model)].measured else {
            return None;
        };
        if streams <= 1 {
            return None;
        }
        let at_once = match self.device {
            DeviceKind::Cpu => u32::from(streams).min(self.cores),
            DeviceKind::Cuda => u32::from(streams).min(groups.len() as u32),
        };
        let (members, longest) = members_and_longest(groups);
        let batch = members / groups.len().max(1) as u32;
        of.beyond(at_once, batch.max(1), longest)
    }

    /// One layer's operators of these groups on their streams, of which there are `streams`; alone each takes
    /// `alone_ns`.
    pub fn layer_ns(&mut self, model: u16, groups: &[PetGroup], alone_ns: &[u64], streams: u16) -> u64 {
        let all_ns = alone_ns.iter().sum();
        if streams <= 1 {
            return all_ns;
        }
        let meeting_ns = self.meetings(model, groups) * self.meeting_ns;
        let others = u64::from(streams - 1);
        let busiest_ns = busiest_ns(&mut self.busy_ns, groups, alone_ns, streams);
        let (members, longest) = members_and_longest(groups);
        let each = members / groups.len().max(1) as u32;
        // What so many at once take over what one does alone.
        let slower = |surface: &AdapterSurface, busiest_ns: u64, at_once: u32, batch: u32| {
            let ns = |at_once| surface.cost(at_once, batch.max(1), longest).median_ns;
            (u128::from(busiest_ns) * u128::from(ns(at_once)) / u128::from(ns(1).max(1))) as u64
        };
        match (self.device, &self.models[usize::from(model)].measured) {
            // Each stream's own thread launches, moves and computes.
            (DeviceKind::Cpu, measured) => {
                let busiest_ns = busiest_ns.max(u64::div_ceil(all_ns, self.cores.into()));
                let (streams, at_once) = (u32::from(streams), u32::from(streams).min(self.cores));
                match measured {
                    SideBySideTable::Operators(of, _) => {
                        let ns = slower(of, busiest_ns, at_once, each);
                        ns.max(busiest_ns) + meeting_ns * u64::from(streams - at_once)
                    }
                    SideBySideTable::Layers(of) => {
                        let ns = slower(of, busiest_ns, at_once, members / at_once).max(busiest_ns);
                        ns.min(all_ns) + meeting_ns * others
                    }
                    SideBySideTable::None => all_ns + meeting_ns * others,
                }
            }
            // Meetings of as many as were measured included.
            (DeviceKind::Cuda, SideBySideTable::Operators(of, _)) => {
                let as_even_ppm = (all_ns * PPM / busiest_ns.max(1)).max(PPM);
                let (below, above) = ((as_even_ppm / PPM) as u32, as_even_ppm.div_ceil(PPM) as u32);
                let [least_ns, most_ns] = [below, above].map(|at_once| slower(of, busiest_ns, at_once, each));
                let ns = least_ns + most_ns.saturating_sub(least_ns) * (as_even_ppm % PPM) / PPM;
                ns.max(busiest_ns) + meeting_ns * u64::from(u32::from(streams).saturating_sub(above))
            }
            (DeviceKind::Cuda, _) => {
                self.operators.clear();
                for (group, &ns) in groups.iter().zip(alone_ns) {
                    let (of, kind) = (&self.models[usize::from(model)], self.kind(group.kind));
                    let tokens = u64::from(group.count) * u64::from(group.tokens);
                    let bytes = layer_work(group.kind, &of.shape, &self.sizes, tokens).bytes;
                    let launch_ns = of.launch_ns[kind].min(ns);
                    let move_ns = ((bytes as f64 / of.bytes_per_ns) as u64).min(ns - launch_ns);
                    self.operators.push(Operator {
                        stream: group.stream,
                        launch_ns,
                        move_ns,
                        compute_ns: ns - launch_ns - move_ns,
                    });
                }
                self.side_by_side.ns(&self.operators, streams) + meeting_ns * others
            }
        }
    }
}

/// What the stream that has the most to do takes by itself.
fn busiest_ns(busy_ns: &mut Vec<u64>, groups: &[PetGroup], alone_ns: &[u64], streams: u16) -> u64 {
    busy_ns.clear();
    busy_ns.resize(usize::from(streams), 0);
    for (group, ns) in groups.iter().zip(alone_ns) {
        busy_ns[usize::from(group.stream)] += ns;
    }
    busy_ns.iter().copied().max().unwrap_or(0)
}

/// Requests of all groups, and the tokens of the longest.
fn members_and_longest(groups: &[PetGroup]) -> (u32, u32) {
    let longest = groups.iter().map(|group| group.tokens).max();
    (groups.iter().map(|group| group.count).sum(), longest.unwrap_or(1))
}

impl OfModel {
    fn new(
        card: &Card,
        pool: &PoolSpec,
        shape: &ModelShape,
        kinds: &[PetKind],
        sizes: &PetSizes,
    ) -> Result<OfModel, MissingTable> {
        let dtype = pool.dtype;
        let mut bytes_per_ns = f64::MIN_POSITIVE;
        for kind in PetKind::ALL {
            let rows = card.tables.pet.iter();
            let rows = rows.filter(|row| row.model == shape.name && row.dtype == dtype && row.kind == *kind);
            let Some(most) = rows.max_by_key(|row| (row.batch, row.tokens)) else {
                continue;
            };
            let surface = card.pet(shape, dtype, *kind)?;
            let work = layer_work(*kind, shape, sizes, u64::from(most.batch) * u64::from(most.tokens));
            let ns = surface.cost(most.batch, most.tokens).median_ns;
            let moving_ns = ns.saturating_sub(surface.least().median_ns).max(1) as f64;
            bytes_per_ns = bytes_per_ns.max(work.bytes as f64 / moving_ns);
        }
        let launch_ns = |kind: &PetKind| Ok(card.pet(shape, dtype, *kind)?.least().median_ns);
        Ok(OfModel {
            shape: shape.clone(),
            launch_ns: kinds.iter().map(launch_ns).collect::<Result<_, MissingTable>>()?,
            linears: kinds.iter().map(|kind| linear_layers(*kind, shape)).collect(),
            bytes_per_ns,
            measured: match (card.concurrent_pet(shape, dtype), card.concurrent_layer(shape, dtype)) {
                (Ok(operators), _) => {
                    let rows = card.tables.concurrent_pet.iter();
                    let of_it = rows.filter(|row| row.model == shape.name && row.dtype == dtype);
                    SideBySideTable::Operators(operators, of_it.map(|row| row.streams).max().unwrap_or(1))
                }
                (Err(_), Ok(layers)) => SideBySideTable::Layers(layers),
                (Err(_), Err(_)) => SideBySideTable::None,
            },
        })
    }
}
