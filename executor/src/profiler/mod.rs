//! Measures what each op costs on a device, with the functions and thread settings that serve requests later.
//!
//! [`profile`] makes a [`Card`] of a [`Plan`] (`plan.rs`). `models.rs` loads the models, `subjects.rs` makes what
//! tenants add to them and collects the points; each family's are in a file of their own (`compute.rs`, `instances.rs`,
//! `adapters.rs`, `lookups.rs`, `decoder.rs`, `steps.rs`, `lora.rs`, `pets.rs`, `texts.rs`, `copies.rs`, `solves.rs`,
//! `plans.rs`). `schedule.rs` decides how often each is measured, `timing.rs` how one measurement is taken, `stats.rs`
//! what came out; `resume.rs`, `handing_over.rs` and `limits.rs` measure what is no op. `partial.rs` is what an
//! interrupted run leaves for the next one.

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
mod limits;
mod lookups;
mod lora;
mod measuring;
mod memory;
mod models;
mod ops;
mod outcome;
mod partial;
mod passes;
mod pets;
mod plan;
mod plans;
mod resume;
mod schedule;
mod scratch;
mod sizes;
mod solves;
mod stats;
mod steps;
mod subjects;
#[cfg(test)]
mod tests;
mod texts;
mod timing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::{Card, Contention, Lanes, ModelShape, Origin, Origins, Provenance, Source, Tables};

pub use self::axes::Served;
pub use self::gauge::{Pace, gauge};
use self::measuring::Measuring;
use self::models::Models;
pub use self::ops::Ops;
use self::outcome::or_else_noted;
use self::partial::Partial;
use self::plan::unmeasured;
pub use self::plan::{Plan, Profiled, Progress, Suite};
use self::schedule::Point;
use self::subjects::Subjects;
pub use self::texts::ServedRoute;
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;
use crate::gpu::clocks;
use crate::host::lies_in_memory;
use crate::machine::hand_overs::hand_overs;

/// What contention, copies after idleness and the second half of the hand-overs take after the points, on a processor.
const AFTER_POINTS: Duration = Duration::from_secs(15);
/// The same on a GPU.
const AFTER_POINTS_ON_GPU: Duration = Duration::from_secs(9);
/// What the passes after idleness of one model that change the same take, on a processor.
const RESUME: Duration = Duration::from_secs(12);
/// The same on a GPU.
const RESUME_ON_GPU: Duration = Duration::from_secs(6);
/// What look-ups after idleness take, where there are tables.
const LOOKUP_RESUME: Duration = Duration::from_secs(10);

/// What comes after the points that a card lacks which it is added to: all, where there is none.
struct Lacking {
    contention: bool,
    copy_resume: bool,
    lookup_resume: bool,
    hand_overs: bool,
}

impl Lacking {
    fn of(plan: &Plan) -> Lacking {
        let (there, looks_up) = (&plan.there, subjects::looks_up(plan));
        Lacking {
            // How much look-ups and compute disturb each other is measured with the first of their tables.
            contention: there.names().is_empty() || (looks_up && there.plot_lookup.is_empty()),
            copy_resume: there.copy_resume.is_empty(),
            lookup_resume: looks_up && there.lookup_resume.is_empty(),
            hand_overs: there.dispatch.is_empty() || there.hand_over.is_empty(),
        }
    }
}

/// What comes after the points takes so long.
fn after_points(plan: &Plan) -> Duration {
    let lacking = Lacking::of(plan);
    let passes = plan.models.iter().map(|model| passes::changings(plan, model).len());
    let resumed = *axes::on(plan.device, &RESUME, &RESUME_ON_GPU) * passes.sum::<usize>() as u32;
    short_after_points(plan)
        + if lacking.lookup_resume {
            LOOKUP_RESUME
        } else {
            Duration::ZERO
        }
        + resumed
}

/// Of that, what takes as long whatever the models.
fn short_after_points(plan: &Plan) -> Duration {
    let lacking = Lacking::of(plan);
    match lacking.contention || lacking.copy_resume || lacking.hand_overs {
        true => *axes::on(plan.device, &AFTER_POINTS, &AFTER_POINTS_ON_GPU),
        false => Duration::ZERO,
    }
}

/// What is no op: how much lanes slow each other down, and what follows upon idleness, each a table. What cannot be
/// measured has a note.
fn measure_after_points(
    models: &Models,
    subjects: &Subjects<'_>,
    plan: &Plan,
    tables: &mut Tables,
    notes: &mut Vec<String>,
    interrupted: &AtomicBool,
    left: &mut dyn FnMut(Duration),
) -> Result<Contention, ExecutorError> {
    left(after_points(plan));
    let lacking = Lacking::of(plan);
    let (copies, lookup) = (&subjects.copies, subjects.lookups.first());
    let mut contention = Contention::NONE;
    if lacking.contention {
        let measured = models
            .middle(plan)
            .and_then(|mut middle| contention::measure(&mut middle, copies, lookup, interrupted));
        contention = or_else_noted("contention, taken for none", measured, Contention::NONE, notes)?;
    }
    left(after_points(plan).saturating_sub(short_after_points(plan)));
    let resumed = models.resume_rows(&subjects.texts, plan, interrupted);
    tables.resume = or_else_noted("resume", resumed, Vec::new(), notes)?;
    if lacking.copy_resume {
        let resumed = resume::measure_copies(copies, interrupted);
        tables.copy_resume = or_else_noted("copy_resume", resumed, Vec::new(), notes)?;
    }
    if let Some(lookup) = lookup.filter(|_| lacking.lookup_resume) {
        let resumed = resume::measure_lookups(lookup, interrupted);
        tables.lookup_resume = or_else_noted("lookup_resume", resumed, Vec::new(), notes)?;
    }
    Ok(contention)
}

/// Measures a card, on the calling thread, which has no part in gradients from then on. `progress` is called some
/// hundred times a second at most; once `interrupted` is set, what is complete is returned.
///
/// # Errors
/// A model that this executor does not run, a scratch folder that cannot be written, no memory, or measurements kept of
/// another plan.
pub fn profile(
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
    interrupted: &AtomicBool,
) -> Result<Profiled, ExecutorError> {
    if plan.models.is_empty() {
        return Err(ExecutorError::input("models", "at least one", "none"));
    }
    memory::check(plan)?;
    prepare_lane_thread();
    let start = Instant::now();
    let earlier = match &plan.partial {
        Some(path) => Partial::read(path, plan)?,
        None => None,
    };
    let lacks_hand_overs = Lacking::of(plan).hand_overs;
    let mut handed_over = match lacks_hand_overs {
        true => hand_overs(plan.device, interrupted)?,
        false => Vec::new(),
    };
    let mut notes = unmeasured(plan);
    if lies_in_memory(&std::env::temp_dir()) {
        notes.push(
            "the folder for temporary files lies in memory: what `model_load` has of the disk was read from there \
             (TMPDIR may name another)"
                .to_owned(),
        );
    }
    let clocks_before = clocks(plan.device);
    // Which takes a GPU two seconds.
    let limits = match (plan.suite, plan.device.is_cuda()) {
        (Suite::Full, _) | (_, true) if !plan.has_limits => vec![limits::measure(plan.device, plan.dtype)?],
        _ => Vec::new(),
    };
    let time_for_model = plan.duration() / plan.models.len() as u32;
    let known = earlier.as_ref().map(|earlier| &earlier.per_token_ns);
    let models = Models::load(plan, time_for_model, known)?;
    let subjects = Subjects::new(&models, plan, &mut notes)?;
    let mut points = subjects.points(plan, time_for_model)?;
    let there = plan.there.names();
    let kept_short = kept_short(&points, &plan.there);
    points.retain(|point| point.is_lacking(&there));

    let earlier = (earlier, start.elapsed());
    let mut measuring = Measuring::new(points, plan, models.per_token_ns(), earlier, after_points(plan))?;
    measuring.measure(progress, interrupted)?;
    // While the device is still as busy as it was: an idle GPU slows its clocks down within a second.
    let clocks_after = clocks(plan.device);
    // A GPU's kernels do cost less for more work now and then, as published tables show: measuring again is assumed not
    // to help.
    let settled = match plan.device.is_cuda() {
        true => Vec::new(),
        false => measuring.settle(progress, interrupted)?,
    };
    if !settled.is_empty() {
        let tables = settled.join("; ");
        notes.push(format!(
            "measured anew, since an op had cost less than a smaller one: {tables}"
        ));
    }
    measuring.keep()?;
    let (mut tables, mut held_out) = (Tables::default(), Tables::default());
    let outcome = measuring.schedule.record(&mut tables, &mut held_out);
    notes.extend(outcome.notes());
    let runs = measuring.runs();
    if runs > 1 {
        notes.push(format!(
            "measured in {runs} runs: it was interrupted, and went on where it had stopped"
        ));
    }
    let points = outcome.points;
    let mut left = |time_left| {
        progress(Progress {
            points_done: points,
            points,
            time_left,
        });
    };
    let contention = measure_after_points(
        &models,
        &subjects,
        plan,
        &mut tables,
        &mut notes,
        interrupted,
        &mut left,
    )?;
    // Of a processor also at the end, since they drift with what it does. A GPU's minutes are few.
    if lacks_hand_overs && !plan.device.is_cuda() {
        handed_over.extend(hand_overs(plan.device, interrupted)?);
    }
    if lacks_hand_overs {
        tables.dispatch.extend(handing_over::dispatch_rows(&handed_over));
        tables.hand_over.extend(handing_over::rows_by_rhythm(&handed_over));
    }

    notes.extend(clocks_before.map(|clocks| format!("before: {clocks}")));
    notes.extend(clocks_after.map(|clocks| format!("at the end of the points: {clocks}")));
    let interrupted = interrupted.load(Ordering::Relaxed);
    if interrupted {
        notes.push("interrupted before all was measured".to_string());
    }
    let boot = tenantry_profiles::boot().filter(|_| runs == 1);
    let card = Card {
        contention,
        certainty: measuring.schedule.certainty(),
        limits,
        held_out,
        ..card_of(plan, tables, notes, boot)
    };
    Ok(Profiled {
        card,
        interrupted,
        kept_short,
    })
}

/// Which tables that are there, and are not measured again, do not go as far as these points.
fn kept_short(points: &[Point<'_>], there: &Tables) -> Option<String> {
    let mut asked = Tables::default();
    points.iter().for_each(|point| point.lay_out(&mut asked));
    let short = there.short_of(&asked);
    (!short.is_empty()).then(|| short.join("; "))
}

/// A card of a plan's device with these tables, so that they rise with the work.
fn card_of(plan: &Plan, tables: Tables, notes: Vec<String>, boot: Option<String>) -> Card {
    let (tables, mended) = tables.rising();
    let origins = mended.into_iter().map(|mended| Origin {
        error: Some(mended.how_far),
        moved: Some(mended.moved),
        ..Origin::new(
            mended.family,
            Some(mended.table),
            Source::Measured,
            plan.command.as_str(),
        )
    });
    let not_builtin = |shape: &&ModelShape| ModelShape::builtin(&shape.name).as_ref() != Some(*shape);
    let lanes = Lanes {
        host: plan.description.host.cores.saturating_sub(1).max(1),
    };
    let provenance = Provenance {
        source: Source::Measured,
        date: plan.date.clone(),
        command: plan.command.clone(),
        seed: plan.seed,
        version: env!("CARGO_PKG_VERSION").to_string(),
        boot,
        notes,
    };
    Card {
        origins: Origins::new(origins.collect()),
        models: plan.models.iter().filter(not_builtin).cloned().collect(),
        tables,
        ..Card::without_tables(&plan.name, plan.description.clone(), lanes, provenance)
    }
}
