//! `tenantry report`: the page of one run's folder, or of several side by side.

use serde_json::json;
use tenantry_reports::compared::{Compared, Finished};
use tenantry_reports::whole::write_whole;
use tenantry_reports::{ReportError, figure, terminal};

use crate::cli::{OutputArgs, ReportArgs};
use crate::failure::Failure;
use crate::output::{Started, print, say, style};

pub fn run(args: &ReportArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let read = |folder: &std::path::PathBuf| {
        Finished::read(folder).map_err(|error| match error {
            ReportError::File { .. } => Failure::bad_input(error),
            error => Failure::running(error),
        })
    };
    let folders: Vec<Finished> = args.folders.iter().map(read).collect::<Result<_, _>>()?;
    let page = match (&args.out, &args.folders[..]) {
        (Some(out), _) => out.clone(),
        (None, [folder]) => folder.join("report.html"),
        (None, _) => "out/report.html".into(),
    };
    let compared = Compared::new(folders, started.manifest(None, None, 0, Vec::new()));
    let html = compared.render().map_err(Failure::running)?;
    if let Some(folder) = page.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failure::Running(format!("{}: {error}", folder.display())))?;
    }
    write_whole(&page, html.as_bytes()).map_err(Failure::running)?;
    let figures = args
        .figures
        .as_deref()
        .map(|folder| figure::write(folder, &compared.page()));
    let figures = figures.transpose().map_err(Failure::running)?;
    let summaries: Vec<_> = compared.runs.iter().map(|run| &run.summary).collect();
    let value = json!({ "scenario": compared.scenario, "page": page, "figures": figures, "runs": summaries });
    print(output, &value, || terminal::systems(&compared.runs, style()))?;
    say(output, &format!("report: {}", page.display()));
    if let (Some(folder), Some(figures)) = (&args.figures, &figures) {
        say(
            output,
            &format!("figures: {} files in {}", figures.len(), folder.display()),
        );
    }
    Ok(())
}
