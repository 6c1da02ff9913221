//! `tenantry sweep`: a scenario's runs in parts, each saved as it finishes.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rayon::prelude::*;
use serde_json::json;
use tenantry_reports::curves::{MAX_RUNS_WITH_OPS, RunCurves};
use tenantry_reports::manifest::quoted;
use tenantry_reports::{Summary, terminal};

use crate::caveats::TableUsed;
use crate::cli::{OutputArgs, SweepArgs};
use crate::failure::Failure;
use crate::output::{Started, check_folder, counted, next, print, say, style};
use crate::runs::{Loaded, scenario, simulate};
use crate::sweep::identity::{Inputs, Sweep};
use crate::sweep::job_file;
use crate::sweep::saved::{Saved, SavedRun, Union, Written};
use crate::sweep::shard::Shard;
use crate::{interrupt, progress};

pub fn run(args: &SweepArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    check_folder("--out", &args.out)?;
    let profile = args.profile.as_deref();
    // A point whose system is not possible on its card is left out, and said.
    let loaded = Loaded::of_what_fits(scenario(&args.scenario, profile)?, profile)?;
    if let (Some(engine), Some(shards)) = (args.job_file, args.shards) {
        return write_job_file(engine, shards, loaded.runs.len(), args, output);
    }
    let inputs = Inputs::of(loaded.scenario.inputs())?;
    let saved = Saved::begin(&args.out, Sweep::of(&loaded, &inputs, &started)?)?;
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    let mine: Vec<usize> = (0..loaded.runs.len()).filter(|&run| shard.has(run)).collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(args.jobs.map_or(0, |jobs| jobs.get().min(mine.len().max(1))))
        .build()
        .map_err(Failure::running)?;
    let mut missing = pool.install(|| saved.left_of(&mine));
    say_what_is_there(&saved, &mine, &missing, output);
    let keys = keys(&loaded, &saved.sweep, &missing);
    if let Some(folder) = &args.reuse {
        let draws_ops = loaded.runs.len() <= MAX_RUNS_WITH_OPS;
        let taken = take_over(folder, &saved, &keys, draws_ops, mine.len(), output)?;
        missing.retain(|run| !taken.contains(run));
    }

    let interrupt = interrupt::flag();
    let bar = progress::bar(mine.len() as u64, "sweeping", output.quiet);
    bar.set_position((mine.len() - missing.len()) as u64);
    bar.reset_eta();
    let (events, finished) = (AtomicU64::new(0), AtomicUsize::new(0));
    let one = |&run: &usize| -> Result<(), Failure> {
        let saved_run = match simulate_one(&loaded, (&saved.sweep, &keys[&run]), run, &interrupt)? {
            Some(saved_run) => saved_run,
            None => return Ok(()),
        };
        inputs.check_unchanged()?;
        saved.save(&saved_run)?;
        events.fetch_add(saved_run.events, Ordering::Relaxed);
        finished.fetch_add(1, Ordering::Relaxed);
        bar.inc(1);
        Ok(())
    };
    // In the runs' order, one by one: how long a run takes is not known beforehand, and two shards' folders look alike.
    let result = pool.install(|| missing.par_iter().with_max_len(1).map(one).collect::<Result<(), _>>());
    bar.finish_and_clear();
    result?;
    if interrupt.load(Ordering::Relaxed) {
        let there = mine.len() - missing.len() + finished.into_inner();
        return Err(Failure::Interrupted(format!(
            "{there} of {} runs are saved in {}; the same command goes on with the others",
            mine.len(),
            args.out.display()
        )));
    }
    if shard.is_part() {
        return print_shard(shard, mine.len(), &args.out, output);
    }
    let written = Union::of(&[saved])?.write(&args.out, &started, events.into_inner(), &interrupt)?;
    publish(&written, &args.out, output)
}

/// Writes what hands the sweep to a cluster's queue, in so many shards.
fn write_job_file(
    engine: job_file::Engine,
    shards: NonZeroUsize,
    runs: usize,
    args: &SweepArgs,
    output: &OutputArgs,
) -> Result<(), Failure> {
    if shards.get() > runs {
        return Err(Failure::BadInput(format!(
            "--shards: must be at most {runs}, since there are so many runs, got {shards}"
        )));
    }
    let file = job_file::write(engine, shards, args)?;
    let value = json!({ "runs": runs, "shards": shards, "job_file": file.path });
    print(output, &value, || {
        let runs = counted(runs as u64, "run", "runs");
        format!("{runs} in {}: {file}", counted(shards.get() as u64, "shard", "shards"))
    })
}

/// Says which runs were saved before, and which of them must be made again.
fn say_what_is_there(saved: &Saved, mine: &[usize], missing: &[usize], output: &OutputArgs) {
    if missing.len() < mine.len() {
        let there = mine.len() - missing.len();
        say(output, &format!("{there} of {} runs were saved before", mine.len()));
    }
    if let Some((damaged, numbers)) = saved.damaged_of(missing) {
        let damaged = counted(damaged as u64, "saved run is", "saved runs are");
        say(
            output,
            &format!("note: {damaged} not as this sweep saves them, and made again: {numbers}"),
        );
    }
}

/// Takes runs over from another sweep's folder, by their keys, and says how many of `of` they are.
fn take_over(
    folder: &Path,
    saved: &Saved,
    keys: &BTreeMap<usize, String>,
    draws_ops: bool,
    of: usize,
    output: &OutputArgs,
) -> Result<BTreeSet<usize>, Failure> {
    let other = Saved::open(folder)?;
    let taken = saved.take_over(&other, keys, draws_ops)?;
    let why = saved.sweep.difference(&other.sweep).filter(|_| taken.is_empty());
    let why = why.map_or(String::new(), |why| format!(", which is of {why}"));
    say(
        output,
        &format!(
            "{} of {of} runs are taken over from {}{why}",
            taken.len(),
            folder.display()
        ),
    );
    Ok(taken)
}

/// Prints where a shard's runs are.
fn print_shard(shard: Shard, runs: usize, folder: &Path, output: &OutputArgs) -> Result<(), Failure> {
    let folder = folder.display().to_string();
    let quoted = quoted(&folder);
    let value = json!({ "shard": shard.to_string(), "runs": runs, "folder": folder });
    print(output, &value, || {
        format!(
            "shard {shard}: {} saved in {folder}; when all shards are done: tenantry merge {quoted}",
            counted(runs as u64, "run is", "runs are")
        )
    })
}

/// The [`Sweep::key`] of each of these runs. A card is hashed once, however many runs it prices.
fn keys(loaded: &Loaded, sweep: &Sweep, runs: &[usize]) -> BTreeMap<usize, String> {
    let (cards, inputs) = (loaded.card_digests(), loaded.scenario.inputs_by_run());
    let key = |&run: &usize| {
        let spec = &loaded.runs[run];
        (run, sweep.key(spec, &cards[spec.card.as_str()], inputs[run]))
    };
    runs.par_iter().map(key).collect()
}

/// Prints what was written of all runs.
pub fn publish(written: &Written, folder: &Path, output: &OutputArgs) -> Result<(), Failure> {
    let value = Summary::new(&written.scenario, written.seed, &written.runs);
    print(output, &value, || terminal::systems(&written.runs, style()))?;
    for caveat in &written.manifest.caveats {
        say(output, &format!("note: {caveat}"));
    }
    say(output, &format!("report: {}", written.page.display()));
    let folder = quoted(&folder.display().to_string());
    next(
        output,
        &format!("tenantry report {folder} --figures {folder}/figures (each chart as SVG and PNG)"),
    );
    Ok(())
}

/// Nothing where the user stopped it.
fn simulate_one(
    loaded: &Loaded,
    (sweep, key): (&Sweep, &str),
    run: usize,
    interrupt: &std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Result<Option<SavedRun>, Failure> {
    let spec = &loaded.runs[run];
    // A copy has used nothing yet: what it says is of this run.
    let card = &loaded.card(spec).clone();
    let done = match simulate(spec, card, interrupt, None) {
        Ok(done) => done,
        Err(failure) => {
            // One combination that does not fit is a finding about it, and no reason to lose the others.
            let refused = loaded.refusal(run).ok_or(failure)?;
            return Ok(Some(SavedRun {
                sweep: sweep.digest.clone(),
                run,
                key: key.to_owned(),
                refused: Some(refused),
                summary: None,
                curves: None,
                events: 0,
                extrapolated: Vec::new(),
                caveats: Vec::new(),
                another_rate: None,
                tables: TableUsed::of_card(card).collect(),
            }));
        }
    };
    let finished = done.filter(|done| !done.interrupted);
    Ok(finished.map(|mut done| SavedRun {
        sweep: sweep.digest.clone(),
        run,
        key: key.to_owned(),
        refused: None,
        curves: {
            if loaded.runs.len() > MAX_RUNS_WITH_OPS {
                done.run.curves.ops.clear();
            }
            Some(RunCurves::of(&done.run))
        },
        summary: Some(done.run.summary),
        events: done.events,
        extrapolated: done.extrapolated,
        caveats: done.caveats,
        another_rate: done.another_rate,
        tables: TableUsed::of_card(card).collect(),
    }))
}
