//! What prices rest on: tables that nobody measured here, what a card does not know.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use serde::{Deserialize, Serialize};
use tenantry_core::SystemSpec;
use tenantry_core::pet::work::{PetSizes, resident_bytes};
use tenantry_core::spec::{LengthsFound, Registration, RuntimeLengths, RuntimeSpec, ShapeKind, StreamSpec};
use tenantry_profiles::{
    BeyondLimits, Card, Changing, Contention, DType, Device, DeviceKind, Family, LeftOut, ModelShape, PetKind, Source,
    TableError, Tier, UNKNOWN_PROCESSOR, boot, processor,
};
use tenantry_reports::human;
use tenantry_scenarios::RunSpec;

use crate::cards::usable_bytes;
use crate::output::today;

/// A table that priced ops and was not measured, or was and is known less well than it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableUsed {
    card: String,
    kind: Source,
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    table: String,
    /// How far prices are off, where that is beyond the limits: at the farthest, in parts of a million, and in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beyond_limits: Option<(u64, String)>,
    /// The model that lent it to one whose layers have the same shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lent_by: Option<String>,
}

impl TableUsed {
    /// Those of a card that runs have used so far.
    pub fn of_card(card: &Card) -> impl Iterator<Item = TableUsed> {
        card.used_to_be_told().into_iter().map(|used| TableUsed {
            card: card.name.clone(),
            kind: used.origin.kind,
            source: used.origin.source,
            error: used.origin.error,
            lent_by: used.origin.lent_by,
            table: format!("{} {}", used.family, used.table).trim_end().to_owned(),
            beyond_limits: how_far(&used.beyond_limits),
        })
    }
}

fn how_far(beyond: &BeyondLimits) -> Option<(u64, String)> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let interpolation = beyond.interpolation.as_ref().map(|error| {
        let points = match error.of {
            LeftOut::HeldOut => "",
            LeftOut::Own => "own: ",
        };
        format!("{points}{} and {}", percent(error.median), percent(error.p95))
    });
    let moved = beyond
        .moved
        .map(|moved| format!("prices that rise are up to {} off its points", percent(moved.farthest)));
    let farthest = [
        beyond.interpolation.as_ref().map(|error| error.p95),
        beyond.moved.map(|moved| moved.farthest),
    ];
    let farthest = farthest.into_iter().flatten().fold(0.0, f64::max);
    let words: Vec<String> = interpolation.into_iter().chain(moved).collect();
    (!words.is_empty()).then(|| ((1e6 * farthest) as u64, words.join("; ")))
}

/// A sentence on a scenario that gives its cards more memory than they have to be used.
pub fn more_memory_than_there_is(card: &Card, run: &RunSpec) -> Option<String> {
    let (asked, usable) = (run.gpu_memory_bytes?, usable_bytes(card));
    (asked > usable).then(|| {
        let [asked, usable] = [asked, usable].map(|bytes| human::bytes(bytes as f64));
        format!(
            "`cluster.gpu_memory` is {asked}, more than the {usable} that {} has beside its reserve: the figures are \
             of a card that is not there.",
            card.name
        )
    })
}

/// A sentence on models that compute side by side on a card that does not know how much they slow each other down.
pub fn side_by_side_as_if_alone(card: &Card, run: &RunSpec) -> Option<String> {
    let (system, pool) = (&run.system, &run.system.pool);
    let (instances, models): (u32, Vec<(&ModelShape, DType)>) = match (&system.route, &pool.tasks) {
        // Of a cascade, all its stages' on the card that has most.
        (Some(route), _) => {
            // What goes on from another stage does so where that one is, and in its turn.
            let own = || route.stages.iter().filter(|stage| !stage.continues());
            let on = |gpu: u32| own().filter(move |stage| stage.gpus.contains(&gpu));
            let instances = |gpu: u32| -> u32 { on(gpu).map(|stage| stage.pool.instances_per_gpu).sum() };
            let fullest = (0..run.gpus).max_by_key(|gpu| instances(*gpu)).unwrap_or(0);
            let models = on(fullest).map(|stage| (&stage.pool.model, stage.pool.dtype));
            (instances(fullest), models.collect())
        }
        (None, Some(tasks)) => {
            let models = tasks.models(&pool.model).map(|model| (model, pool.dtype));
            (tasks.batches_at_once(), models.collect())
        }
        (None, None) => (pool.instances_per_gpu, vec![(&pool.model, pool.dtype)]),
    };
    // Runtimes are slowed down as measured, or refused. A table that is asked for counts as used.
    let is_unmeasured = || models.iter().any(|(model, dtype)| card.concurrent_layer(model, *dtype).is_err());
    (instances > 1 && pool.runtimes.is_none() && is_unmeasured()).then(|| {
        format!(
            "{}: {instances} instances compute side by side on each card as if each were alone; how much they slow \
             each other down is not measured yet, so the simulation promises too much.",
            system.name
        )
    })
}

/// A sentence on each stream that has a runtime with which no request is in time.
pub fn slower_than_slo<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let runtimes = system.pool.runtimes.iter();
    runtimes.flat_map(|runtimes| &runtimes.streams).filter_map(|stream| {
        let service_ns = |runtime: &RuntimeSpec| stream.service_ns(card, runtime, runtime.max_length).ok();
        let slower = stream.runtimes.iter().find(|runtime| service_ns(runtime).is_some_and(|ns| ns > stream.slo.0))?;
        Some(format!(
            "{}: a request of {} tokens takes {} alone, more than `runtimes.slo` ({}): the allocation program takes it \
             that an instance finishes one in that time, and what is that long is late with every plan.",
            system.name,
            slower.max_length,
            human::exact_milliseconds(service_ns(slower)? as f64 / 1e6),
            human::exact_milliseconds(stream.slo.0 as f64 / 1e6)
        ))
    })
}

/// What a card's table of compiled models does not tell apart: runtimes of lengths that were not compiled there, and
/// dynamic ones that the same source prices.
pub fn as_compiled<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let streams = system.pool.runtimes.iter().flat_map(|runtimes| &runtimes.streams);
    let streams = streams.filter(|_| card.device.kind == DeviceKind::Cuda);
    streams.filter_map(move |stream| match stream.runtimes.first()?.shape {
        ShapeKind::Static => longer_than_asked(card, system, stream),
        ShapeKind::Dynamic => dynamic_as_static(card, system, stream),
    })
}

fn longer_than_asked(card: &Card, system: &SystemSpec, stream: &StreamSpec) -> Option<String> {
    let compiled = card.static_model(&stream.model, stream.dtype).ok()?;
    let as_longer = stream.runtimes.iter().filter_map(|runtime| {
        let length = compiled.length_for(runtime.max_length).filter(|length| *length > runtime.max_length)?;
        Some(format!("{} tokens as {length}", runtime.max_length))
    });
    let as_longer: Vec<String> = as_longer.collect();
    (!as_longer.is_empty()).then(|| {
        format!(
            "{}: card {} has no times of {} compiled for these lengths, and takes those of the next: {}.",
            system.name,
            card.name,
            stream.model.name,
            human::listed(&as_longer)
        )
    })
}

/// Layers whose times are those of whole compiled models divided by their number.
fn dynamic_as_static(card: &Card, system: &SystemSpec, stream: &StreamSpec) -> Option<String> {
    let table = format!("model={} dtype={}", stream.model.name, stream.dtype);
    let [compiled, layers] = [Family::StaticModel, Family::EncoderLayer].map(|family| card.origin(family, &table));
    let from_compiled = compiled.kind == Source::Imported && layers.source.starts_with(&compiled.source);
    from_compiled.then(|| {
        format!(
            "{}: card {} knows {} by models that were compiled for single lengths alone, so that dynamic runtimes lose \
             nothing to static ones but what padding takes.",
            system.name, card.name, stream.model.name
        )
    })
}

/// A sentence on each stream whose runtimes' lengths were to be found in the card's staircase, which has none.
pub fn lengths_without_steps<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let streams = system.pool.runtimes.iter().flat_map(|runtimes| &runtimes.streams);
    let found = streams.filter(|stream| stream.lengths == RuntimeLengths::OfCard);
    found.filter_map(|stream| {
        let instead = match stream.lengths_found(card) {
            LengthsFound::Steps(_) => return None,
            LengthsFound::Compiled => "the lengths that the card has it compiled for are used".to_owned(),
            LengthsFound::EqualParts(parts) => format!("{parts} runtimes of equally spaced lengths are used"),
        };
        Some(format!(
            "{}: the profile of card {} shows no steps in the latency of {} by length; {instead}. `runtimes.lengths` \
             names others.",
            system.name, card.name, stream.model.name
        ))
    })
}

/// What a dispatcher between models costs and the card has no price for.
pub fn unpriced_looks<'a>(card: &'a Card, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let dispatches = system.route.iter().flat_map(|route| &route.stages).filter_map(|stage| {
        let dispatch = stage.dispatch?;
        // A paper's card is fitted to times that have all of it in them.
        (card.provenance.source != Source::Fitted).then_some((&stage.pool, dispatch))
    });
    dispatches.flat_map(move |(pool, dispatch)| {
        // A card of trained models has the passes and looks of their own lanes.
        let looks = matches!(card.inspect(), Ok(Some(_))) || matches!(card.text_look(&pool.model, false), Ok(Some(_)));
        let attends = matches!(card.attended_layer(&pool.model, pool.dtype), Ok(Some(_)))
            || matches!(card.text_pass(&pool.model, pool.dtype, true), Ok(Some(_)));
        let unpriced = |what: &str| {
            format!(
                "{}: {what} of {} on card {} was not measured, so that it is simulated as if it took no time.",
                system.name, pool.name, card.name
            )
        };
        let look = (!looks).then(|| unpriced("the dispatcher's look at the answers"));
        let attention = (dispatch.prune_alpha.is_some() && !attends)
            .then(|| unpriced("what summing up the attention to words adds to a pass"));
        look.into_iter().chain(attention)
    })
}

/// What a measured card does not know of whole models that take turns.
pub fn unpriced_models(card: &Card, system: &SystemSpec) -> Option<String> {
    let pool = &system.pool;
    let unpriced = card.provenance.source == Source::Measured
        && pool.changing() == Changing::Model
        && matches!(card.resume(&pool.model, Changing::Model, pool.first_layer()), Ok(None));
    unpriced.then(|| {
        format!(
            "{}: what a batch of {} takes longer after another tenant's model was not measured on card {}, so that it \
             is simulated as if caches held all models.",
            system.name, pool.model.name, card.name
        )
    })
}

/// Cards of which nobody knows how much compute, copies and look-ups slow each other down.
pub fn undisturbed<'a>(cards: impl Iterator<Item = &'a Card>) -> Option<String> {
    let alone = |card: &&Card| card.provenance.source != Source::Measured && card.contention == Contention::NONE;
    let names: Vec<&str> = cards.filter(alone).map(|card| card.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Compute, copies and look-ups are taken not to slow each other down on {}: no source says by how much they \
             do.",
            names.join(", ")
        )
    })
}

/// What a measured card does not know of tables that lie on the disk.
pub fn lookups_in_page_cache(card: &Card, system: &SystemSpec) -> Option<String> {
    let stages = system.route.iter().flat_map(|route| &route.stages);
    let mut pools = iter::once(&system.pool).chain(stages.map(|stage| &stage.pool));
    let on_disk = pools.any(|pool| pool.plot.as_ref().is_some_and(|plot| plot.tier == Tier::Disk));
    (on_disk && card.provenance.source == Source::Measured).then(|| {
        format!(
            "{}: look-ups from the disk were measured on card {} with the table in the page cache; a table larger than \
             the memory that is left takes longer.",
            system.name, card.name
        )
    })
}

/// Tasks' operators of other sizes than those that cards are measured and derived with, made up or from files.
pub fn sizes_as_measured(system: &SystemSpec) -> Option<String> {
    let pool = &system.pool;
    let tasks = pool.tasks.as_ref()?;
    let kind_of = |task: &Registration| PetKind::ALL.iter().copied().find(|kind| kind.name() == task.kind);
    let with_operators = |task: &&Registration| kind_of(task).is_some_and(|kind| tasks.engine.has_operators(kind));
    let described = |sizes: &PetSizes| {
        format!(
            "adapters {} wide, LoRA of rank {}, masks of {} % and differences of {} %",
            sizes.bottleneck,
            sizes.rank,
            100.0 * sizes.masked_share,
            100.0 * sizes.difference_share
        )
    };
    let random = tasks.registrations.iter().filter(with_operators).any(|task| task.file.is_none());
    let mut others = Vec::new();
    if random && tasks.sizes != PetSizes::PAPER {
        others.push(format!("this system's are {}", described(&tasks.sizes)));
    }
    // What a file's operators take in memory says whether they are of those sizes; trained masks and differences have a
    // share of zeros nearly as large.
    let same = |bytes: u64, paper: u64| 50 * bytes.abs_diff(paper) <= paper;
    let in_files: BTreeSet<u32> = tasks
        .registrations
        .iter()
        .filter(with_operators)
        .filter(|task| task.file.as_ref().is_some_and(|file| file.fault.is_none()))
        .filter_map(|task| {
            let bytes = task.file.as_ref()?.resident_bytes?;
            let kind = kind_of(task)?;
            let (_, shape) = tasks.named_models(&pool.model).find(|(name, _)| *name == task.model)?;
            (!same(bytes, resident_bytes(kind, shape, &PetSizes::PAPER))).then_some(task.task)
        })
        .collect();
    match (in_files.len(), in_files.first()) {
        (1, Some(task)) => others.push(format!("the file of task {task} has others")),
        (count, Some(task)) => others.push(format!(
            "the files of {count} tasks have others, that of task {task} the first"
        )),
        (_, None) => {}
    }
    (!others.is_empty()).then(|| {
        format!(
            "{}: tasks' operators take the time of {}, as cards know them; {}.",
            system.name,
            described(&PetSizes::PAPER),
            others.join(", and ")
        )
    })
}

/// Where and when a command runs.
struct ThisMachine {
    processor: String,
    boot: Option<String>,
    today: String,
}

impl ThisMachine {
    fn now() -> ThisMachine {
        ThisMachine {
            processor: processor().unwrap_or_else(|| UNKNOWN_PROCESSOR.to_owned()),
            boot: boot(),
            today: today(),
        }
    }
}

/// Where and when a processor's card was measured, which tells whether its prices are of here and today.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    card: String,
    processor: String,
    date: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
}

/// How a sentence on a card of another machine or day ends.
const SHOWS_HOW_FAR: &str = "`tenantry profile compare` shows how far a new profile lies from it.";

impl Measured {
    /// Whether a sentence is on a card of another machine or day: what it says hangs on where and when it was said.
    pub fn is_told_in(sentence: &str) -> bool {
        sentence.ends_with(SHOWS_HOW_FAR)
    }

    /// Nothing of cards that nobody measured, and of devices that are alike wherever they are.
    pub fn of_card(card: &Card) -> Option<Measured> {
        let (of, device) = (&card.provenance, &card.device);
        (of.source == Source::Measured && device.kind == DeviceKind::Cpu).then(|| Measured {
            card: card.name.clone(),
            processor: device.host.cpu.clone(),
            date: of.date.clone(),
            boot: of.boot.clone(),
        })
    }

    /// A sentence on each that was measured elsewhere, or not today.
    pub fn otherwise_than_here(cards: impl Iterator<Item = Measured>) -> Vec<String> {
        let here = ThisMachine::now();
        cards.filter_map(|card| card.otherwise(&here)).collect()
    }

    /// A sentence where it was on another processor, before this machine was last started, or on another day: its
    /// prices are those of then and there.
    fn otherwise(&self, here: &ThisMachine) -> Option<String> {
        let started_since = matches!((&self.boot, &here.boot), (Some(then), Some(now)) if then != now);
        let why = if self.processor != here.processor {
            format!(
                "on {}, and this machine has {}: its prices are the other's",
                self.processor, here.processor
            )
        } else if started_since {
            "before this machine was last started, or on another of the same processor: its prices may be off by some \
             per cent"
                .to_owned()
        } else if self.date != here.today {
            "and not today: a machine drifts by some per cent within hours".to_owned()
        } else {
            return None;
        };
        Some(format!(
            "Card {} was measured on {} {why}; {SHOWS_HOW_FAR}",
            self.card, self.date
        ))
    }
}

/// A sentence on a card of another device than the one that executes, and what that makes of the figures: of another
/// kind, or measured on another GPU (datasheets and imports spell a GPU's name in ways of their own).
pub fn of_another_device(card: &Card, here: &Device, so: &str) -> Option<String> {
    let device = &card.device;
    let other_kind = device.kind != here.kind;
    let other_gpu =
        here.kind == DeviceKind::Cuda && card.provenance.source == Source::Measured && device.name != here.name;
    (other_kind || other_gpu).then(|| {
        let here = match (here.kind, other_kind) {
            (DeviceKind::Cpu, _) => "this processor",
            (DeviceKind::Cuda, true) => "a GPU",
            (DeviceKind::Cuda, false) => here.name.as_str(),
        };
        format!(
            "Card {} is of {}, and requests were served by {here}: {so}.",
            card.name, device.name
        )
    })
}

/// Tables that are told of one by one, of those whose prices are off by more than they should be.
const FARTHEST_TOLD: usize = 4;

/// A sentence on each origin other than a measurement, with the tables from there, and of each card one on its measured
/// tables whose prices are off by more than they should be, and one on those whose points were moved.
pub fn table_caveats(tables: &BTreeSet<TableUsed>) -> Vec<String> {
    // What another model lent is told of, however well it is known.
    let is_plain = |used: &&TableUsed| used.kind == Source::Measured && used.lent_by.is_none();
    let mut by_origin: BTreeMap<(&str, Source, String), Vec<&str>> = BTreeMap::new();
    for used in tables.iter().filter(|used| !is_plain(used)) {
        let error = used.error.as_ref().map(|error| format!(", {error}")).unwrap_or_default();
        let origin = (used.card.as_str(), used.kind, format!("{}{error}", used.source));
        by_origin.entry(origin).or_default().push(&used.table);
    }
    let mut off: BTreeMap<&str, Vec<(u64, String)>> = BTreeMap::new();
    let mut moved: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for used in tables.iter().filter(|used| used.kind == Source::Measured) {
        if let Some((farthest, how)) = &used.beyond_limits {
            let of_card = off.entry(&used.card).or_default();
            of_card.push((*farthest, format!("{} ({how})", used.table)));
        }
        if let Some(error) = used.error.as_ref().filter(|_| is_plain(&used)) {
            let of_card = moved.entry(&used.card).or_default();
            of_card.push(format!("{}: {error}", used.table));
        }
    }
    let of_origin = |((card, kind, source), tables): (&(&str, Source, String), &Vec<&str>)| {
        format!("Card {card}, {kind} ({source}): {}.", tables.join("; "))
    };
    let of_card = |(card, mut tables): (&str, Vec<(u64, String)>)| {
        tables.sort_by(|(one, _), (other, _)| other.cmp(one));
        let told: Vec<&str> = tables.iter().take(FARTHEST_TOLD).map(|(_, table)| table.as_str()).collect();
        let more = match tables.len() - told.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!(
            "Card {card} was measured, and between the points of {} of the tables that priced this its prices are off \
             by more than they should be ({:.0} % in the median, {:.0} % at p95; own: where each of a table's own \
             points is left out, since none was held out), the farthest: {}{more} (`tenantry profile show {card}`).",
            tables.len(),
            100.0 * TableError::MEDIAN_LIMIT,
            100.0 * TableError::P95_LIMIT,
            told.join("; ")
        )
    };
    let of_moved = |(card, tables): (&str, Vec<String>)| format!("Card {card}: {}.", tables.join("; "));
    let sentences = by_origin.iter().map(of_origin).chain(off.into_iter().map(of_card));
    sentences.chain(moved.into_iter().map(of_moved)).collect()
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;

    use super::*;

    #[test]
    fn a_card_of_then_or_there_is_told_of() {
        let here = ThisMachine {
            processor: "Synthetic host".to_owned(),
            boot: Some("third".to_owned()),
            today: "2026-01-31".to_owned(),
        };
        let otherwise = |card: &Card| Measured::of_card(card).and_then(|measured| measured.otherwise(&here));
        let mut card = synthetic_card();
        assert_eq!(otherwise(&card), None, "nobody measured it");
        card.provenance.source = Source::Measured;
        card.provenance.date = "2026-01-31".to_owned();
        assert_eq!(otherwise(&card), None);
        card.provenance.boot = Some("third".to_owned());
        assert_eq!(otherwise(&card), None);
        let told = |card: &Card, part: &str| {
            let told = otherwise(card).unwrap();
            assert!(
                told.contains(part) && told.contains("`tenantry profile compare`") && Measured::is_told_in(&told),
                "{told}"
            );
        };
        card.provenance.date = "2026-01-30".to_owned();
        told(&card, "was measured on 2026-01-30 and not today");
        card.provenance.boot = Some("second".to_owned());
        told(&card, "before this machine was last started");
        card.device.host.cpu = "Another".to_owned();
        told(&card, "on Another, and this machine has Synthetic host");
        card.device.kind = DeviceKind::Cuda;
        assert_eq!(otherwise(&card), None);
    }

    /// Another GPU than the measured one is told of; how importers spell a GPU's name is not.
    #[test]
    fn a_card_of_another_device_is_told_of() {
        let mut card = synthetic_card();
        card.device.kind = DeviceKind::Cuda;
        card.device.name = "NVIDIA H200".to_owned();
        let mut here = card.device.clone();
        card.provenance.source = Source::Measured;
        assert_eq!(of_another_device(&card, &here, "so"), None);
        here.name = "NVIDIA L4".to_owned();
        let told = of_another_device(&card, &here, "so").unwrap();
        assert!(
            told.ends_with("is of NVIDIA H200, and requests were served by NVIDIA L4: so."),
            "{told}"
        );
        card.provenance.source = Source::Imported;
        assert_eq!(of_another_device(&card, &here, "so"), None);
        here.kind = DeviceKind::Cpu;
        let told = of_another_device(&card, &here, "so").unwrap();
        assert!(told.ends_with("served by this processor: so."), "{told}");
    }
}
