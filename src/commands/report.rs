//! `tenantry report`: the page of one run's folder, or of several side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde_json::json;
use tenantry_reports::compared::{Compared, Finished, read_plan};
use tenantry_reports::figure::{self, Figures};
use tenantry_reports::manifest::{Manifest, last_part};
use tenantry_reports::page::PlanPage;
use tenantry_reports::plan::PlanReport;
use tenantry_reports::{ReportError, terminal};

use crate::caveats::Measured;
use crate::cli::{OutputArgs, ReportArgs};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Started, check_folder, check_page, print, say, style, write_in_folder};

pub fn run(args: &ReportArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    each_once(&args.folders)?;
    check_places(args)?;
    if let [folder] = &args.folders[..]
        && let Some((plan, manifest)) = read_plan(folder).map_err(of_folder)?
    {
        let page = place(args, folder.join("plan.html"))?;
        return of_plan(args, output, &page, &plan, manifest);
    }
    let page = match &args.folders[..] {
        [folder] => place(args, folder.join("report.html"))?,
        _ => place(args, "out/report.html".into())?,
    };
    let read = |folder: &PathBuf| Finished::read(folder).map_err(of_folder);
    let mut folders: Vec<Finished> = args.folders.iter().map(read).collect::<Result<_, _>>()?;
    let mut manifest = started.manifest(&[], None, 0, Vec::new());
    if args.anonymous {
        // Where its name is told: of several folders alike in it, the place among these.
        let mut known: Vec<String> = Vec::new();
        for (place, folder) in (1..).zip(&mut folders) {
            leave_out_measured(&mut folder.source.manifest);
            let last = last_part(&folder.source.name).to_owned();
            folder.source.name = match known.contains(&last) {
                true => format!("{last} ({place})"),
                false => last.clone(),
            };
            known.push(last);
        }
        leave_out_measured(&mut manifest);
    }
    let mut compared = Compared::new(folders, manifest);
    if args.anonymous {
        compared = compared.anonymous();
    }
    write_in_folder(&page, &compared.render().map_err(Failure::running)?)?;
    let figures = draw(args, |folder, interrupt| {
        figure::write(folder, &compared.page(), interrupt)
    })?;
    let files = figures.as_ref().map(|figures| &figures.files);
    let summaries: Vec<_> = compared.runs.iter().map(|run| &run.summary).collect();
    let value = json!({ "scenario": compared.scenario, "page": page, "figures": files, "runs": summaries });
    print(output, &value, || terminal::systems(&compared.runs, style()))?;
    say(output, &format!("report: {}", page.display()));
    figures_done(args, output, figures.as_ref(), "no request was answered")
}

/// A folder beside itself compares nothing.
fn each_once(folders: &[PathBuf]) -> Result<(), Failure> {
    let mut known: Vec<PathBuf> = Vec::new();
    for folder in folders {
        // One that is not there is missed when it is read.
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        if known.contains(&real) {
            return Err(Failure::BadInput(format!(
                "DIR: must be different folders, got {} twice",
                folder.display()
            )));
        }
        known.push(real);
    }
    Ok(())
}

/// Better known before pages are made and figures drawn.
fn check_places(args: &ReportArgs) -> Result<(), Failure> {
    if let Some(file) = args.folders.iter().find(|folder| folder.is_file()) {
        return Err(Failure::BadInput(format!(
            "DIR: must be a folder that a command left its results in, got {}, which is a file",
            file.display()
        )));
    }
    args.figures.as_deref().map_or(Ok(()), |folder| check_folder("--figures", folder))
}

/// Where the page goes, and can.
fn place(args: &ReportArgs, default: PathBuf) -> Result<PathBuf, Failure> {
    let page = args.out.clone().unwrap_or(default);
    let checked = check_page("--out", &page, &args.folders);
    checked.map_err(|failure| match args.out {
        Some(_) => failure,
        None => failure.with("the page goes there unless `--out` says otherwise"),
    })?;
    Ok(page)
}

/// Leaves out what [`Manifest::anonymous`] cannot tell from other notes: what hangs on the machine and the day.
fn leave_out_measured(manifest: &mut Manifest) {
    manifest.caveats.retain(|caveat| !Measured::is_told_in(caveat));
}

/// The page of a plan's folder again.
fn of_plan(
    args: &ReportArgs,
    output: &OutputArgs,
    page: &Path,
    plan: &PlanReport,
    mut manifest: Manifest,
) -> Result<(), Failure> {
    if args.anonymous {
        leave_out_measured(&mut manifest);
        manifest = manifest.anonymous();
    }
    let plan_page = PlanPage {
        plan,
        manifest: &manifest,
    };
    write_in_folder(page, &plan_page.render().map_err(Failure::running)?)?;
    let figures = draw(args, |folder, interrupt| {
        figure::write_plan(folder, &plan_page, interrupt)
    })?;
    print(output, plan, || plan.text(style()))?;
    say(output, &format!("report: {}", page.display()));
    figures_done(args, output, figures.as_ref(), "nothing keeps the target")
}

/// The figures, where they are asked for.
fn draw(
    args: &ReportArgs,
    write: impl FnOnce(&Path, &AtomicBool) -> Result<Figures, ReportError>,
) -> Result<Option<Figures>, Failure> {
    let drawn = args.figures.as_deref().map(|folder| write(folder, &interrupt::flag()));
    drawn.transpose().map_err(Failure::running)
}

/// `why_none`: why there may be nothing to draw.
fn figures_done(
    args: &ReportArgs,
    output: &OutputArgs,
    figures: Option<&Figures>,
    why_none: &str,
) -> Result<(), Failure> {
    let (Some(folder), Some(Figures { files, drawn, of })) = (&args.figures, figures) else {
        return Ok(());
    };
    let folder = folder.display();
    if drawn < of {
        return Err(Failure::Interrupted(format!("{drawn} of {of} figures are in {folder}")));
    }
    let text = match files.len() {
        0 => format!("figures: none in {folder}, since {why_none}"),
        files => format!("figures: {files} files in {folder}"),
    };
    say(output, &text);
    Ok(())
}

fn of_folder(error: ReportError) -> Failure {
    match error {
        ReportError::File { .. } => Failure::bad_input(error),
        error => Failure::running(error),
    }
}
