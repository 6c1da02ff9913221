//! Measures what each op costs on a device, with the functions and thread settings that serve requests later.
//!
//! [`profile`] makes a [`Card`]. Each family's points are in a file of their own (`compute.rs`, `instances.rs`, `adapters.rs`,
//! `lookups.rs`, `decoder.rs`, `steps.rs`, `lora.rs`, `copies.rs`, `solves.rs`, `plans.rs`); `schedule.rs` decides how often each is measured, and
//! `stats.rs` what came out.
//! `partial.rs` is what an interrupted run leaves for the next one.

mod adapters;
mod axes;
mod compute;
mod contention;
mod copies;
mod decoder;
mod gauge;
mod handing_over;
mod held_out;
mod instances;
mod lookups;
mod lora;
mod ops;
mod partial;
mod passes;
mod pets;
mod plans;
mod resume;
mod schedule;
mod sizes;
mod solves;
mod stats;
mod steps;
mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::{
    Card, DType, Device, DispatchOperation, DispatchRow, Lanes, ModelKind, ModelShape, Provenance, Source, Tables,
};

use self::adapters::AdapterSubject;
pub use self::axes::Served;
use self::compute::Subject;
use self::copies::{Checkpoint, Copies, Stored};
use self::decoder::DecoderSubject;
pub use self::gauge::{Pace, gauge};
use self::held_out::HoldOut;
use self::lookups::LookupSubject;
use self::lora::LoraSubject;
pub use self::ops::Ops;
use self::partial::Partial;
use self::pets::PetSubject;
use self::schedule::{Outcome, Point, Schedule, Watch};
use self::sizes::Sizes;
use self::steps::StepTenants;
pub use self::texts::ServedRoute;
use self::texts::TextSubject;
use crate::device::{Event, prepare_lane_thread, synchronize};
use crate::error::ExecutorError;
use crate::gpu::clocks;
use crate::machine::hand_overs::hand_overs;

/// How thorough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Up to a minute for the first model and 80 seconds for each further one; on a GPU 3 minutes at most.
    Quick,
    /// Up to 10 minutes a model, on a GPU 9 minutes for all: adapters at every length, larger copies, and time for every point to settle.
    Full,
}

/// What a suite takes at most on a GPU, which may be rented by the minute: most ops are assumed to take so little there that each is measured
/// often enough.
const GPU_QUICK: Duration = Duration::from_secs(170);
const GPU_FULL: Duration = Duration::from_secs(520);

impl Suite {
    /// How long it takes at most; it ends earlier when every point's median is known to 2 %.
    pub fn duration(self, models: usize, device: tch::Device) -> Duration {
        let seconds = match self {
            Suite::Quick => 60 + 80 * (models as u64).saturating_sub(1),
            Suite::Full => 600 * models as u64,
        };
        let all = Duration::from_secs(seconds);
        match (self, device.is_cuda()) {
            (_, false) => all,
            (Suite::Quick, true) => all.min(GPU_QUICK),
            (Suite::Full, true) => all.min(GPU_FULL),
        }
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The card's name.
    pub name: String,
    /// Where.
    pub device: tch::Device,
    /// What that is: [`describe`](crate::describe).
    pub description: Device,
    /// The models; the first is the one whose ops are set beside copies to find how they disturb each other.
    pub models: Vec<ModelShape>,
    /// Of weights and activations.
    pub dtype: DType,
    /// Bottlenecks of adapters.
    pub bottlenecks: Vec<u32>,
    /// Ranks of decoders' LoRA.
    pub ranks: Vec<u32>,
    /// Numbers of classes of heads.
    pub classes: Vec<u32>,
    /// Beside those that every model takes.
    pub ops: Ops,
    /// By encoders.
    pub served: Served,
    /// Routes whose trained models answer texts.
    pub texts: Vec<ServedRoute>,
    /// How thorough.
    pub suite: Suite,
    /// Of weights, and of the order of measurement.
    pub seed: u64,
    /// A folder on the disk that models are loaded from; a file of each model's size is written there for a while.
    pub scratch: PathBuf,
    /// Where measurements are kept while there is no card: a run goes on with what an interrupted one of the same plan left there, at
    /// the same place of the same order. Whoever has saved the card removes it. Nothing is kept where absent.
    pub partial: Option<PathBuf>,
    /// The command that measures this card again.
    pub command: String,
    /// The day, as `2025-01-31`.
    pub date: String,
}

/// How far a profile has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Points whose median is known as well as is asked for, or that were visited as often as any is.
    pub points_done: usize,
    /// All.
    pub points: usize,
    /// At most; it ends earlier when all points are done.
    pub time_left: Duration,
}

/// What was measured.
#[derive(Debug)]
pub struct Profiled {
    /// The card. Its notes say what is missing or uncertain.
    pub card: Card,
    /// Whether it was interrupted; the card holds the tables that were complete.
    pub interrupted: bool,
}

/// Width up to which decoders' look-ups are measured: a wider one's table of every token would take hundreds of megabytes.
const LOOKUP_HIDDEN_MAX: u32 = 2048;
/// What contention, copies after idleness and the second half of the hand-overs take, after the points,
const AFTER_POINTS: Duration = Duration::from_secs(15);
/// and what each model's passes after idleness do, of those that change the same.
const RESUME: Duration = Duration::from_secs(12);
/// Share of a model's time that goes to its forward pass, when its grid is chosen.
const FORWARD_SHARE: f64 = 0.6;

/// Measures a card. `progress` is called some hundred times a second at most; once `interrupted` is set, what is complete
/// is returned.
///
/// # Errors
/// A model that this executor does not run, a scratch folder that cannot be written, no memory, or measurements kept of another plan.
pub fn profile(
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
    interrupted: &AtomicBool,
) -> Result<Profiled, ExecutorError> {
    if plan.models.is_empty() {
        return Err(ExecutorError::input("models", "at least one", "none"));
    }
    prepare_lane_thread();
    let start = Instant::now();
    let changings = passes::changings(plan);
    let after = AFTER_POINTS + RESUME * (plan.models.len() * changings.len()) as u32;
    let suite_time = plan.suite.duration(plan.models.len(), plan.device);
    let time = suite_time.saturating_sub(after);
    let earlier = match &plan.partial {
        Some(path) => Partial::read(path, plan)?,
        None => None,
    };
    let per_token = |model: &ModelShape| {
        let known = earlier.as_ref()?.per_token_ns.get(&model.name)?;
        Some(Duration::from_nanos(*known))
    };
    let mut handed_over = hand_overs(interrupted)?;

    let mut notes = unmeasured(plan);
    let clocks_before = clocks(plan.device);
    let time_for_model = suite_time / plan.models.len() as u32;
    let subject = |shape| {
        Subject::new(
            shape,
            plan.seed,
            plan.dtype,
            plan.device,
            plan.served,
            time_for_model.mul_f64(FORWARD_SHARE),
            per_token(shape),
        )
    };
    let of_kind = |kind| plan.models.iter().filter(move |model| model.kind == kind);
    let subjects = of_kind(ModelKind::Encoder)
        .map(subject)
        .collect::<Result<Vec<_>, _>>()?;
    let decoder = |shape| {
        let time = time_for_model.mul_f64(FORWARD_SHARE);
        DecoderSubject::new(shape, plan.seed, plan.dtype, plan.device, time, per_token(shape))
    };
    let decoders = of_kind(ModelKind::Decoder)
        .map(decoder)
        .collect::<Result<Vec<_>, _>>()?;
    let heads = subjects
        .iter()
        .map(|subject| subject.heads(&plan.classes))
        .collect::<Result<Vec<_>, _>>()?;
    let mut adapters = Vec::new();
    for subject in &subjects {
        for &bottleneck in &plan.bottlenecks {
            let what = || format!("adapters of {}, bottleneck {bottleneck}", subject.encoder.shape().name);
            let made = AdapterSubject::of_encoder(subject, bottleneck, plan.dtype, plan.seed);
            adapters.extend(if_it_fits(made, what, &mut notes)?);
        }
    }
    let mut step_adapters = Vec::new();
    for subject in &decoders {
        for &bottleneck in &plan.bottlenecks {
            let what = || format!("adapters of {}, bottleneck {bottleneck}", subject.decoder.shape().name);
            let made = AdapterSubject::of_decoder(subject, bottleneck, plan.dtype, plan.seed);
            step_adapters.extend(if_it_fits(made, what, &mut notes)?.map(|adapters| (subject, adapters)));
        }
    }
    for adapter in adapters
        .iter()
        .chain(step_adapters.iter().map(|(_, adapters)| adapters))
    {
        if let Some(reason) = adapter.grouped_fails() {
            notes.push(format!(
                "grouped adapters of {}, bottleneck {}, do not run here: {reason}",
                adapter.model(),
                adapter.bottleneck()
            ));
        }
    }
    let texts = TextSubject::all(&plan.texts, plan.seed, plan.device)?;
    let pets = subjects
        .iter()
        .map(|subject| PetSubject::new(subject, &plan.ops.pets, plan.dtype, plan.seed))
        .collect::<Result<Vec<_>, _>>()?;
    notes.extend(pets.iter().flat_map(PetSubject::fails));
    let mut loras = Vec::new();
    for subject in &decoders {
        for &rank in &plan.ranks {
            let what = || format!("LoRA of {}, rank {rank}", subject.decoder.shape().name);
            let made = LoraSubject::new(subject, rank, plan.dtype, plan.seed);
            let Some(lora) = if_it_fits(made, what, &mut notes)? else {
                continue;
            };
            if let Some(reason) = lora.grouped_fails() {
                let name = &subject.decoder.shape().name;
                notes.push(format!(
                    "grouped LoRA of {name}, rank {rank}, does not run here: {reason}"
                ));
            }
            loras.push(lora);
        }
    }
    let looked_up = plan.models.iter().filter(|_| !plan.ops.lookups.is_empty());
    let (narrow, wide): (Vec<&ModelShape>, Vec<&ModelShape>) =
        looked_up.partition(|shape| shape.kind == ModelKind::Encoder || shape.hidden <= LOOKUP_HIDDEN_MAX);
    notes.extend(wide.iter().map(|shape| {
        let name = &shape.name;
        format!("look-ups of {name} are not measured: it is a decoder wider than {LOOKUP_HIDDEN_MAX}")
    }));
    let lookups = narrow
        .into_iter()
        .map(|shape| LookupSubject::new(shape, &plan.ops.lookups, plan.seed, &plan.scratch))
        .collect::<Result<Vec<_>, _>>()?;
    let Sizes {
        copies: copy_sizes,
        models: model_sizes,
        stored: stored_sizes,
    } = Sizes::new(plan)?;
    let copies = Copies::new(plan.device, *copy_sizes.last().expect("there are sizes"))?;
    let encoders = subjects.iter().map(|subject| &subject.encoder);
    let checkpoints = encoders
        .map(|encoder| Checkpoint::write(encoder, &plan.scratch))
        .collect::<Result<Vec<_>, _>>()?;
    let stored = stored_sizes
        .iter()
        .map(|&bytes| Stored::write(bytes, plan.device))
        .collect::<Result<Vec<_>, _>>()?;

    let hold_out = HoldOut::new(plan.suite, plan.seed);
    let mut points = Vec::new();
    for (subject, heads) in subjects.iter().zip(&heads) {
        points.extend(subject.points(heads, plan.ops.attended, hold_out)?);
        if plan.ops.tagging {
            points.extend(subject.tagging(heads, hold_out)?);
        }
        points.extend(instances::points(subject, heads, &plan.ops, plan.suite)?);
    }
    for adapter in &adapters {
        points.extend(adapter.points(&plan.ops.adapters, plan.suite, hold_out)?);
    }
    for pet in &pets {
        points.extend(pet.points(plan.suite, hold_out)?);
        if plan.ops.concurrent {
            points.extend(pet.side_by_side(plan.suite)?);
        }
    }
    for lookup in &lookups {
        points.extend(lookup.points(plan.suite, hold_out));
    }
    for subject in &decoders {
        points.extend(subject.points(hold_out)?);
        points.extend(steps::points(
            subject,
            StepTenants::Backbone,
            &plan.ops,
            time_for_model,
            hold_out,
        )?);
    }
    for (subject, adapters) in &step_adapters {
        points.extend(adapters.points(&plan.ops.adapters, plan.suite, hold_out)?);
        let tenants = StepTenants::Adapters(&adapters.cache);
        points.extend(steps::points(subject, tenants, &plan.ops, time_for_model, hold_out)?);
    }
    for lora in &loras {
        points.extend(lora.points(&plan.ops.adapters, hold_out)?);
        let tenants = StepTenants::Loras(&lora.cache);
        points.extend(steps::points(
            lora.subject,
            tenants,
            &plan.ops,
            time_for_model,
            hold_out,
        )?);
    }
    if let Some(subject) = subjects.first().filter(|_| plan.ops.attended) {
        points.push(subject.inspect()?);
    }
    for (index, text) in texts.iter().enumerate() {
        let name = &text.probe.shape().name;
        let first = texts.iter().position(|other| other.probe.shape().name == *name);
        points.extend(text.points(first == Some(index))?);
    }
    if plan.device.is_cuda() {
        points.push(match (subjects.first(), decoders.first()) {
            (Some(subject), _) => issue(subject.issuing()?),
            (None, Some(subject)) => issue(subject.issuing()?),
            (None, None) => unreachable!("there is a model, and it is one or the other"),
        });
    }
    if plan.ops.solves {
        points.extend(solves::points());
    }
    points.extend(plans::points(&plan.ops.plans, plan.seed));
    points.extend(copies.points(&copy_sizes, hold_out));
    points.extend(copies.model_points(&model_sizes));
    points.extend(checkpoints.iter().map(|checkpoint| checkpoint.point(plan.dtype)));
    points.extend(stored.iter().map(Stored::point));

    let (mut tables, mut held_out) = (Tables::default(), Tables::default());
    let mut schedule = Schedule::new(points, plan.seed).within(time);
    let encoders = subjects
        .iter()
        .map(|subject| (subject.encoder.shape(), subject.per_token));
    let decoders_too = decoders
        .iter()
        .map(|subject| (subject.decoder.shape(), subject.per_token));
    let per_token_ns: BTreeMap<String, u64> = encoders
        .chain(decoders_too)
        .map(|(shape, per_token)| (shape.name.clone(), per_token.as_nanos() as u64))
        .collect();
    // Preparing again is not part of the time, so that a run in many parts measures as much as one.
    let (spent, runs) = match earlier {
        None => (start.elapsed(), 1),
        Some(earlier) => {
            if !schedule.resume(earlier.state) {
                let what = plan
                    .partial
                    .as_ref()
                    .map_or(String::new(), |path| path.display().to_string());
                return Err(ExecutorError::input(
                    what,
                    "of the points that this machine has, or removed",
                    "others",
                ));
            }
            (Duration::from_nanos(earlier.spent_ns), earlier.runs + 1)
        }
    };
    let begin = Instant::now();
    let mut keep = |state| match &plan.partial {
        None => Ok(()),
        Some(path) => {
            let mut partial = Partial::new(plan, spent + begin.elapsed(), per_token_ns.clone(), state);
            partial.runs = runs;
            partial.write(path)
        }
    };
    let mut watch = Watch {
        until: begin + time.saturating_sub(spent),
        progress,
        keep: &mut keep,
        interrupted,
    };
    schedule.measure(&mut watch)?;
    // A GPU's kernels do cost less for more work now and then, as published tables show: measuring again is assumed not to help.
    let settled = match plan.device.is_cuda() {
        true => Vec::new(),
        false => schedule.settle(&mut watch)?,
    };
    if !settled.is_empty() {
        let tables = settled.join("; ");
        notes.push(format!(
            "measured anew, since an op had cost less than a smaller one: {tables}"
        ));
    }
    keep(schedule.state())?;
    let outcome = schedule.record(&mut tables, &mut held_out);
    notes.extend(outcome.notes());
    if runs > 1 {
        notes.push(format!(
            "measured in {runs} runs: it was interrupted, and went on where it had stopped"
        ));
    }
    let mut middle = match (subjects.first(), decoders.first()) {
        (Some(subject), _) if plan.models[0].kind == ModelKind::Encoder => subject.middle()?,
        (_, Some(subject)) => subject.middle()?,
        _ => unreachable!("there is a first model, and it is one or the other"),
    };
    let contention = contention::measure(&mut middle, &copies, lookups.first(), interrupted)?;
    for &changing in &changings {
        for (subject, heads) in subjects.iter().zip(&heads) {
            let Some((_, heads)) = heads.first() else { continue };
            let name = &subject.encoder.shape().name;
            let of_texts = texts.iter().find(|text| text.probe.shape().name == *name);
            let rows = match of_texts {
                Some(text) => passes::measure_texts(text, interrupted)?,
                None => passes::measure_encoder(subject, heads, changing, plan, interrupted)?,
            };
            tables.resume.extend(rows);
        }
        for subject in &decoders {
            let rows = passes::measure_decoder(subject, changing, plan, interrupted)?;
            tables.resume.extend(rows);
        }
    }
    tables.copy_resume.extend(resume::measure_copies(&copies, interrupted)?);
    handed_over.extend(hand_overs(interrupted)?);
    tables.dispatch.extend(handing_over::dispatch_rows(&handed_over));
    tables.hand_over.extend(handing_over::rows_by_rhythm(&handed_over));

    notes.extend(clocks_before.map(|clocks| format!("before: {clocks}")));
    notes.extend(clocks(plan.device).map(|clocks| format!("after: {clocks}")));
    if plan.device.is_cuda() {
        let (rising, moved) = tables.rising();
        tables = rising;
        notes.extend(
            moved
                .into_iter()
                .map(|table| format!("more work never costs less: {table}")),
        );
    }
    let interrupted = interrupted.load(Ordering::Relaxed);
    if interrupted {
        notes.push("interrupted before all was measured".to_string());
    }
    let not_builtin = |shape: &&ModelShape| ModelShape::builtin(&shape.name).as_ref() != Some(*shape);
    let card = Card {
        name: plan.name.clone(),
        lanes: Lanes {
            host: plan.description.host.cores.saturating_sub(1).max(1),
        },
        device: plan.description.clone(),
        contention,
        origins: Default::default(),
        provenance: Provenance {
            source: Source::Measured,
            date: plan.date.clone(),
            command: plan.command.clone(),
            seed: plan.seed,
            version: env!("CARGO_PKG_VERSION").to_string(),
            notes,
        },
        certainty: schedule.certainty(),
        models: plan.models.iter().filter(not_builtin).cloned().collect(),
        tables,
        held_out,
    };
    Ok(Profiled { card, interrupted })
}

/// What of a plan is not measured on its device, and why.
fn unmeasured(plan: &Plan) -> Vec<String> {
    if !plan.device.is_cuda() {
        return Vec::new();
    }
    let whole = plan.ops.static_models.then_some(
        "static_model is not measured: on a GPU it stands for models captured as graphs, which are not made yet",
    );
    let steps = (plan.ops.concurrent && plan.models.iter().any(|model| model.kind == ModelKind::Decoder))
        .then_some("concurrent_step is not measured: instances on GPUs do not share the host's cores");
    let resume = "resume is measured of passes in which only the heads change: that other parameters are new is a matter of a CPU's caches";
    [whole, steps, Some(resume)]
        .into_iter()
        .flatten()
        .map(str::to_string)
        .collect()
}

/// What was made, or a note that there was no memory for it.
fn if_it_fits<T>(
    made: Result<T, ExecutorError>,
    what: impl Fn() -> String,
    notes: &mut Vec<String>,
) -> Result<Option<T>, ExecutorError> {
    match made {
        Err(error) if error.is_out_of_memory() => {
            notes.push(format!("{} are not measured: {error}", what()));
            Ok(None)
        }
        made => made.map(Some),
    }
}

/// The point of issuing a layer to a GPU: `measure` says how long the host was busy.
fn issue<'a>(measure: impl FnMut() -> Result<Duration, ExecutorError> + 'a) -> Point<'a> {
    let row = |tables: &mut Tables, stats| {
        tables.dispatch.push(DispatchRow {
            operation: DispatchOperation::Issue,
            stats,
        });
    };
    Point::new("dispatch: issue".into(), measure, row)
}

/// Issues something to a device and says how long the host was busy with that, by its own clock. What comes of it is waited for, so that no
/// queue is ever full.
fn issued<T>(device: tch::Device, work: impl FnOnce() -> Result<T, ExecutorError>) -> Result<Duration, ExecutorError> {
    synchronize(device)?;
    let start = Instant::now();
    let result = work()?;
    let took = start.elapsed();
    synchronize(device)?;
    drop(result);
    Ok(took)
}

impl Outcome {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.known < self.points && self.left_out.is_empty() {
            let middle = match self.middle.is_finite() {
                true => format!("half of them to {:.0} %, ", self.middle * 100.0),
                false => String::new(),
            };
            let widest = if self.widest.is_finite() {
                format!("the least certain to {:.0} %", self.widest * 100.0)
            } else {
                "some measured too rarely to tell".to_string()
            };
            notes.push(format!(
                "medians of {} of {} points are known to 2 % (95 % confidence), {middle}{widest}",
                self.known, self.points
            ));
        }
        if !self.left_out.is_empty() {
            notes.push(format!("left out as incomplete: {}", self.left_out.join("; ")));
        }
        notes
    }
}

/// Does something on a device and says how long it took until the device was done, by the device's clock: a GPU's begins when it has
/// nothing else to do on this thread's stream, so that an op that its kernels' issuing takes longer than their running lasts as long as that.
fn timed<T>(device: tch::Device, work: impl FnOnce() -> Result<T, ExecutorError>) -> Result<Duration, ExecutorError> {
    synchronize(device)?;
    let start = Event::now(device)?;
    let result = work()?;
    let end = Event::now(device)?;
    end.synchronize()?;
    let took = end.since(&start)?;
    drop(result);
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let small = ModelShape {
            name: "smallest".into(),
            hidden: 16,
            heads: 2,
            kv_heads: 2,
            intermediate: 32,
            vocabulary: 50,
            positions: 8,
            ..ModelShape::builtin("tiny").unwrap()
        };
        Plan {
            name: "here".into(),
            device: tch::Device::Cpu,
            description: crate::describe_cpu().unwrap(),
            models: vec![small],
            dtype: DType::F32,
            bottlenecks: vec![4],
            ranks: vec![16],
            classes: vec![2],
            ops: Ops::all(),
            served: Served::default(),
            texts: Vec::new(),
            suite: Suite::Quick,
            seed: 1,
            scratch: std::env::temp_dir(),
            partial: None,
            command: "tenantry profile --device cpu".into(),
            date: "2025-01-31".into(),
        }
    }

    /// Stops when every point has been visited a few times.
    fn profile_briefly(plan: &Plan, calls_per_point: usize) -> Profiled {
        let interrupted = AtomicBool::new(false);
        let mut calls = 0;
        let mut progress = |progress: Progress| {
            calls += 1;
            if calls >= calls_per_point * progress.points {
                interrupted.store(true, Ordering::Relaxed);
            }
        };
        profile(plan, &mut progress, &interrupted).unwrap()
    }

    #[test]
    fn a_card_of_a_small_model_prices_all_its_ops() {
        let plan = plan();
        let card = profile_briefly(&plan, 3).card;
        // Three visits a point, beside other tests, are too few for `card.validate()`, which asks for costs that rise.
        let (model, dtype) = (&plan.models[0], plan.dtype);
        assert!(card.encoder_layer(model, dtype).unwrap().covers(32, 8));
        assert!(card.embedding(model, dtype).unwrap().covers(1, 8));
        assert!(card.head(model, dtype, 2).unwrap().covers(32));
        for &implementation in tenantry_profiles::AdapterImplementation::ALL {
            let adapter = card.adapter(model, dtype, implementation, 4);
            let runs = card.provenance.notes.iter().all(|note| !note.starts_with("grouped"));
            if runs || implementation != tenantry_profiles::AdapterImplementation::Grouped {
                assert!(adapter.unwrap().covers(32, 32, 8));
            }
        }
        assert!(card.static_model(model, dtype).is_ok());
        assert!(card.concurrent_layer(model, dtype).unwrap().covers(1, 4, 8));
        for &kind in tenantry_profiles::PetKind::ALL {
            assert!(card.pet(model, dtype, kind).unwrap().covers(32, 8), "{kind}");
        }
        assert!(
            card.copy(tenantry_profiles::Direction::HostToDevice, false)
                .unwrap()
                .covers(1 << 20)
        );
        for source in [tenantry_profiles::LoadSource::Disk, tenantry_profiles::LoadSource::Host] {
            card.model_load(source).unwrap();
        }
        for operation in [
            DispatchOperation::Wake,
            DispatchOperation::Tell,
            DispatchOperation::Alarm,
        ] {
            assert!(card.dispatch(operation).unwrap().median_ns > 0, "{operation}");
        }
        assert_eq!(card.models, plan.models);
    }

    #[test]
    fn a_card_of_a_small_decoder_prices_its_steps_and_lora() {
        let small = |name: &str| ModelShape {
            name: format!("small-{name}"),
            hidden: 16,
            heads: 4,
            kv_heads: if name == "tiny-llama" { 2 } else { 4 },
            intermediate: 32,
            vocabulary: 50,
            positions: 64,
            ..ModelShape::builtin(name).unwrap()
        };
        let models = vec![small("tiny-llama"), small("tiny-opt")];
        let plan = Plan { models, ..plan() };
        let card = profile_briefly(&plan, 3).card;
        for model in &plan.models {
            let decoder = card.decoder(model, plan.dtype, 1).unwrap();
            assert!(decoder.dense.covers(64) && decoder.ends.covers(32, 64));
            assert!(decoder.prefill.covers(16, 64) && decoder.decode.covers(32, 16));
            for &implementation in tenantry_profiles::AdapterImplementation::ALL {
                let lora = card.lora(model, plan.dtype, implementation, 16);
                let runs = card
                    .provenance
                    .notes
                    .iter()
                    .all(|note| !note.starts_with("grouped LoRA"));
                if runs || implementation != tenantry_profiles::AdapterImplementation::Grouped {
                    assert!(lora.unwrap().covers(16, 32), "{implementation}");
                }
            }
        }
        assert!(card.tables.encoder_layer.is_empty());
    }

    #[test]
    fn an_interrupted_profile_is_gone_on_with_and_only_by_its_own_plan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.partial");
        let plan = Plan {
            partial: Some(path.clone()),
            ..plan()
        };
        assert!(profile_briefly(&plan, 1).interrupted);
        let first = Partial::read(&path, &plan).unwrap().unwrap();
        let card = profile_briefly(&plan, 2).card;
        let second = Partial::read(&path, &plan).unwrap().unwrap();
        assert_eq!((first.runs, second.runs), (1, 2));
        assert_eq!(first.per_token_ns, second.per_token_ns);
        assert!(second.spent_ns >= first.spent_ns);
        let went_on = |note: &String| note.starts_with("measured in 2 runs");
        assert!(card.provenance.notes.iter().any(went_on), "{:?}", card.provenance.notes);

        let other = Plan { seed: 2, ..plan };
        let refused = profile(&other, &mut |_| {}, &AtomicBool::new(true))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("card.partial: seed: must be 2, as asked for, got 1"),
            "{refused}"
        );
        assert!(refused.contains("tenantry profile --device cpu"), "{refused}");
        std::fs::write(&path, "{").unwrap();
        let broken = profile(&other, &mut |_| {}, &AtomicBool::new(true))
            .unwrap_err()
            .to_string();
        assert!(broken.contains("must be an unfinished profile, or removed"), "{broken}");
    }

    #[test]
    fn an_interrupt_at_once_leaves_a_card_without_tables() {
        let profiled = profile(&plan(), &mut |_| {}, &AtomicBool::new(true)).unwrap();
        assert!(profiled.interrupted && profiled.card.tables.encoder_layer.is_empty());
        profiled.card.validate().unwrap();
        let notes = profiled.card.provenance.notes.join("\n");
        assert!(
            notes.contains("encoder_layer of smallest") && notes.contains("interrupted"),
            "{notes}"
        );
    }

    #[test]
    fn what_makes_no_sense_on_a_gpu_is_left_out_and_said() {
        let large = ModelShape::builtin("llama-7b").unwrap();
        let gpu = Plan {
            device: tch::Device::Cuda(0),
            models: vec![large],
            dtype: DType::F16,
            ..plan()
        };
        let cpu = Plan {
            device: tch::Device::Cpu,
            ..gpu.clone()
        };
        assert_eq!(passes::changings(&gpu), [tenantry_profiles::Changing::Heads]);
        assert_eq!(passes::changings(&cpu).len(), 3);
        let notes = unmeasured(&gpu).join("\n");
        for left_out in ["static_model", "concurrent_step", "resume"] {
            assert!(notes.contains(left_out), "{notes}");
        }
        assert_eq!(unmeasured(&cpu), Vec::<String>::new());
        let largest = |plan| {
            let sizes = Sizes::new(plan).unwrap();
            [sizes.copies, sizes.models].map(|all| *all.last().unwrap())
        };
        assert_eq!(largest(&gpu), [1 << 30; 2]);
        assert!(largest(&cpu).into_iter().all(|bytes| bytes > 13_000_000_000));
    }

    #[test]
    fn issuing_is_timed_by_the_hosts_clock_until_the_call_returns() {
        let slow = |device| {
            std::thread::sleep(Duration::from_millis(2));
            synchronize(device)
        };
        let took = issued(tch::Device::Cpu, || slow(tch::Device::Cpu)).unwrap();
        assert!(took >= Duration::from_millis(2));
        let subject = Subject::new(
            &plan().models[0],
            7,
            DType::F32,
            tch::Device::Cpu,
            Served::default(),
            Duration::from_secs(1),
            None,
        );
        let subject = subject.unwrap();
        assert!(subject.issuing().unwrap()().unwrap() > Duration::ZERO);
    }

    #[test]
    fn what_does_not_fit_the_memory_is_left_out_and_said() {
        let torch = |text: &str| ExecutorError::from(tch::TchError::Torch(text.to_string()));
        let mut notes = Vec::new();
        let no_room = "CUDA out of memory. Tried to allocate 20.00 GiB.\nstack";
        let left_out = if_it_fits(Err::<(), _>(torch(no_room)), || "these".into(), &mut notes);
        assert_eq!(left_out.unwrap(), None);
        assert_eq!(
            notes,
            ["these are not measured: libtorch: CUDA out of memory. Tried to allocate 20.00 GiB."]
        );
        assert!(
            if_it_fits(
                Err::<(), _>(torch("CUDA error: misaligned address")),
                || "these".into(),
                &mut notes
            )
            .is_err()
        );
        assert_eq!(if_it_fits(Ok(3), || "these".into(), &mut notes).unwrap(), Some(3));
    }

    #[test]
    fn the_quick_suite_keeps_its_promise_of_time() {
        let on = |suite: Suite, models, device| suite.duration(models, device).as_secs();
        let (cpu, gpu) = (tch::Device::Cpu, tch::Device::Cuda(0));
        assert!(on(Suite::Quick, 1, cpu) <= 60 && on(Suite::Quick, 2, cpu) < 180);
        assert!(on(Suite::Quick, 9, cpu) > 180 && on(Suite::Quick, 9, gpu) < 180);
        assert!(on(Suite::Full, 2, gpu) < 540 && on(Suite::Full, 2, cpu) == 1200);
    }
}
