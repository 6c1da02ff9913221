//! `tenantry plan`: the best that keeps a target, how sure that is, and the scenario that executes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenantry_profiles::DeviceKind;
use tenantry_reports::folder::json;
use tenantry_reports::manifest::quoted;
use tenantry_reports::page::PlanPage;
use tenantry_reports::plan::PlanReport;
use tenantry_reports::whole::write_together;
use tenantry_reports::{Manifest, ReportError};
use tenantry_scenarios::Scenario;
use tenantry_scenarios::plan::{Plan, Variant, Way};

use crate::cards::{card_from_anywhere, find_card};
use crate::caveats::{planned_class_target_caveat, recording_caveats};
use crate::cli::{OutputArgs, PlanArgs, ScenarioArgs};
use crate::failure::Failure;
use crate::keep::earlier_than_plan;
use crate::output::{Started, check_folder, counted, make_folder, next, print, say, style};
use crate::planning::{KeptRuns, Known, answer};
use crate::runs::{Loaded, scenario};
use crate::sweep::identity::{Inputs, Sweep};
use crate::{interrupt, progress};

/// The plan of a scenario that has none.
const FEWEST_CARDS: &str = "plan={find: fewest-cards, gpus: {from: 1, to: 32}}";
/// What a plan tries it says itself.
const NO_SWEEP: &str = "sweep={}";

/// The files that its runs read, those that only a choice names among them.
fn files(scenario: &Scenario, plan: &Plan) -> BTreeSet<PathBuf> {
    let of_way = |(way, (card, price)): (&Way, &(String, Option<f64>))| {
        let variant = |gpus: &u32| {
            let of = Variant {
                way,
                card,
                price: *price,
                gpus: *gpus,
                tenants: plan.tenants[0],
                load: 1.0,
                repeats: 1,
            };
            // With too few cards it may not be valid, and then has no runs.
            scenario.variant(&of).ok()
        };
        plan.gpus.iter().rev().find_map(variant)
    };
    let offers = plan.ways.iter().flat_map(|way| plan.cards.iter().map(move |card| (way, card)));
    let mut files = scenario.inputs();
    for variant in offers.filter_map(of_way) {
        files.extend(variant.inputs());
    }
    files
}

pub fn run(args: &PlanArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let (scenario, plan) = planned(&args.scenario, output)?;
    let plan = &plan;
    let interrupt = interrupt::flag();
    let bar = progress::counting("planning", output.quiet);
    let cards = Loaded::of_plan(scenario.clone(), plan)?;
    check_folder("--out", &args.out)?;
    let inputs = Inputs::of(files(&scenario, plan))?;
    let identity = Sweep::of(&cards, &inputs, &started)?;
    let kept = KeptRuns::new(&args.out, &identity.digest);
    let runs = kept.read()?;
    let goes_on = runs.is_some();
    if let Some(runs) = &runs {
        let kept = counted(runs.len() as u64, "run", "runs");
        say(output, &format!("kept of this plan: {kept}"));
    }
    for path in kept.of_others()? {
        let note = "is of another plan, scenario, card, recording or build, and is left";
        say(output, &format!("note: {} {note}", path.display()));
    }
    let known = Arc::new(runs.map_or_else(Known::default, Known::with));
    let planned = answer(&scenario, plan, &known, &interrupt, &bar);
    bar.finish_and_clear();
    if let Err(Failure::Interrupted(_)) = planned {
        let runs = Arc::into_inner(known).expect("the searches are over").into_runs();
        let count = runs.len();
        if count == 0 {
            return Err(Failure::Interrupted("no run of the plan was finished".to_owned()));
        }
        inputs.check_unchanged()?;
        let path = kept.write(runs)?;
        return Err(Failure::Interrupted(format!(
            "{count} runs of the plan are kept in {}; the same command goes on with them",
            path.display()
        )));
    }
    let planned = planned?;
    inputs.check_unchanged()?;
    let report = &planned.report;
    let mut caveats = cards.card_caveats();
    caveats.extend(cards.machine_caveats());
    if let Some(best) = &planned.best {
        let best = Loaded::of_what_fits(best.clone(), None)?;
        caveats.extend(best.run_caveats());
        caveats.extend(recording_caveats(&best.runs));
        caveats.extend(best.runs.iter().filter_map(planned_class_target_caveat));
    }
    caveats.extend(planned.caveats);
    caveats.extend(report.notes.iter().cloned());
    caveats.extend(earlier_than_plan(&args.out));
    let manifest = started.manifest(&cards.all_cards(), None, 0, caveats);
    let answer = planned.best.as_ref().map(|best| -> Result<String, Failure> {
        // Whoever runs the answer may be in another folder than who planned it.
        let here = std::env::current_dir().map_err(Failure::running)?;
        Ok(best.placed_yaml(&here, &card_from_anywhere(&best.card)?))
    });
    make_folder(&args.out)?;
    write(&args.out, report, &manifest, answer.transpose()?).map_err(Failure::running)?;
    if goes_on {
        kept.remove()?;
    }
    print(output, report, || report.text(style()))?;
    for caveat in &manifest.caveats {
        say(output, &format!("note: {caveat}"));
    }
    say(output, &format!("report: {}", args.out.join("plan.html").display()));
    if !report.feasible {
        return Err(Failure::LimitNotMet(report.answer.clone()));
    }
    let answer = args.out.join("answer.yaml");
    let card = planned.best.as_ref().map_or("cpu", |best| best.card.as_str());
    next(
        output,
        &worth_trying(&quoted(&answer.display().to_string()), find_card(card)?.device.kind),
    );
    Ok(())
}

/// The scenario and its plan. Without one, the fewest cards are looked for.
fn planned(args: &ScenarioArgs, output: &OutputArgs) -> Result<(Scenario, Plan), Failure> {
    let given = scenario(args, None)?;
    if let Some(plan) = given.plan.clone() {
        return Ok((given, plan));
    }
    if given.slo.is_none() {
        return Err(Failure::BadInput(format!(
            "{}: must have a section plan, or at least an slo, got neither; `tenantry schema` has their keys, and \
             `tenantry plan plan/fewest-cards` is an example",
            args.scenario
        )));
    }
    let mut set = vec![FEWEST_CARDS];
    if given.has_sweep() {
        set.push(NO_SWEEP);
    }
    let flags: Vec<String> = set.iter().map(|set| format!("--set '{set}'")).collect();
    let without = if given.has_sweep() {
        " and without its sweep"
    } else {
        ""
    };
    say(
        output,
        &format!(
            "no section plan: looking for the fewest cards that keep the slo{without}, as {} would",
            flags.join(" ")
        ),
    );
    let mut args = args.clone();
    args.set.extend(set.into_iter().map(str::to_owned));
    let scenario = scenario(&args, None)?;
    let plan = scenario.plan.clone().expect("it was set");
    Ok((scenario, plan))
}

/// What is useful now: to see the answer's own report, and whether the machine agrees.
fn worth_trying(answer: &str, device: DeviceKind) -> String {
    let device = match device {
        DeviceKind::Cpu => "cpu",
        DeviceKind::Cuda => "cuda:0",
    };
    format!("tenantry simulate {answer} (its report), or on its cards: tenantry execute {answer} --device {device}")
}

/// Writes a plan's files; without an answer an earlier plan's goes, which would be taken for this one's.
fn write(folder: &Path, plan: &PlanReport, manifest: &Manifest, answer: Option<String>) -> Result<(), ReportError> {
    const ANSWER: &str = "answer.yaml";
    let page = PlanPage { plan, manifest }.render()?;
    let gone = answer.is_none().then_some(ANSWER);
    let mut files = vec![("manifest.json", json(manifest)?), ("plan.html", page.into_bytes())];
    files.extend(answer.map(|answer| (ANSWER, answer.into_bytes())));
    files.push(("plan.json", json(plan)?));
    write_together(folder, files, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A corpus that a choice names decides of the answer as one that the system names.
    #[test]
    fn what_a_choice_reads_is_of_the_plan() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "1 2 3 4\n5 6 7 8\n").unwrap();
            path
        };
        let (own, chosen) = (file("own.txt"), file("chosen.txt"));
        let plan = format!(
            "plan={{find: fewest-cards, gpus: {{from: 1, to: 2}}, choices: {{hmi: {{files.corpus: [[{}], [{}]]}}}}}}",
            own.display(),
            chosen.display()
        );
        let set = [
            plan,
            "systems=[{preset: hmi, plot: {met: counted, lower_layers: 1}}]".to_owned(),
            NO_SWEEP.to_owned(),
        ];
        let scenario = Scenario::load("quickstart", &set).unwrap_or_else(|errors| panic!("{errors}"));
        let read = files(&scenario, scenario.plan.as_ref().unwrap());
        assert!(read.contains(&own) && read.contains(&chosen), "{read:?}");
    }
}
