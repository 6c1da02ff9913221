//! `tenantry plan`: the best that keeps a target, how sure that is, and the scenario that executes it.

use tenantry_reports::folder::json;
use tenantry_reports::page::PlanPage;
use tenantry_reports::whole::write_whole;

use crate::cli::{OutputArgs, PlanArgs};
use crate::failure::Failure;
use crate::output::{Started, print, say, style};
use crate::planning::answer;
use crate::runs::{Loaded, scenario};
use crate::{interrupt, progress};

pub fn run(args: &PlanArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let scenario = scenario(&args.scenario)?;
    let plan = scenario.plan.as_ref().ok_or_else(|| {
        Failure::BadInput(format!(
            "{}: must have a section plan, got none; `tenantry schema` has its keys, and `tenantry plan plan/fewest-cards` is an example",
            args.scenario.scenario
        ))
    })?;
    let interrupt = interrupt::flag();
    let bar = progress::counting("planning", output.quiet);
    let planned = answer(&scenario, plan, &interrupt, &bar)?;
    bar.finish_and_clear();

    let report = &planned.report;
    let cards = Loaded::of_cards(scenario.clone(), plan.cards.iter().map(|(card, _)| card.as_str()))?;
    let mut caveats = cards.card_caveats();
    caveats.extend(report.notes.iter().cloned());
    let manifest = started.manifest(cards.first_card(), None, 0, caveats);
    let write = || -> Result<(), Failure> {
        let file = |name: &str, bytes: &[u8]| write_whole(&args.out.join(name), bytes).map_err(Failure::running);
        std::fs::create_dir_all(&args.out)
            .map_err(|error| Failure::Running(format!("{}: {error}", args.out.display())))?;
        file("manifest.json", &json(&manifest).map_err(Failure::running)?)?;
        file(
            "plan.html",
            PlanPage {
                plan: report,
                manifest: &manifest,
            }
            .render()
            .map_err(Failure::running)?
            .as_bytes(),
        )?;
        if let Some(best) = &planned.best {
            file("answer.yaml", best.resolved_yaml().as_bytes())?;
        }
        file("plan.json", &json(report).map_err(Failure::running)?)
    };
    write()?;
    print(output, report, || report.text(style()))?;
    for caveat in &manifest.caveats {
        say(output, &format!("note: {caveat}"));
    }
    say(output, &format!("report: {}", args.out.join("plan.html").display()));
    if !report.feasible {
        return Err(Failure::LimitNotMet(report.answer.clone()));
    }
    let answer = args.out.join("answer.yaml");
    say(
        output,
        &format!("next: tenantry execute {} --device …", answer.display()),
    );
    Ok(())
}
