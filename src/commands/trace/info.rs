//! `tenantry trace info`: what traces look like.

use std::path::PathBuf;

use tenantry_reports::manifest::quoted;
use tenantry_reports::page::TracePage;
use tenantry_reports::trace::{Trace, TraceFigures, table};
use tenantry_traces::read::Format;

use super::columns;
use super::source::{self, Watchdog, approximation, format_of, must_have_texts, read};
use crate::cli::{OutputArgs, TraceInfoArgs};
use crate::failure::Failure;
use crate::output::{OF_PAGES, Started, check_ending, check_file, next, print, say, style, write_in_folder};

pub fn run(args: &TraceInfoArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let mut watchdog = Watchdog::new();
    if let Some(report) = &args.report {
        check_file("--report", report, &args.files)?;
        check_ending("--report", report, &OF_PAGES)?;
    }
    let formats = args.files.iter().map(|file| format_of(file, &args.read));
    let formats: Vec<Format> = formats.collect::<Result<_, _>>()?;
    must_have_texts(&args.files[0], &args.read, &formats)?;
    let mut traces: Vec<Trace> =
        args.files.iter().map(|file| read(file, &args.read, &mut watchdog)).collect::<Result<_, _>>()?;
    // A file's name is enough where it tells the files apart.
    let short = |file: &PathBuf| file.file_name().map(|name| name.to_string_lossy().into_owned());
    for (file, trace) in args.files.iter().zip(&mut traces) {
        if let (Some(name), 1) = (
            short(file),
            args.files.iter().filter(|other| short(other) == short(file)).count(),
        ) {
            trace.figures.name = name;
        }
    }
    if let Some(path) = &args.report {
        let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
        let page = TracePage {
            title: &names.join(", "),
            traces: &traces,
            fit: None,
            manifest: &started.manifest(&[], None, 0, Vec::new()),
        };
        let html = page.render().map_err(Failure::running)?;
        write_in_folder(path, &html)?;
    }
    let figures: Vec<_> = traces.iter().map(|trace| &trace.figures).collect();
    print(output, &figures, || table(&traces, style()))?;
    for (file, format) in args.files.iter().zip(&formats) {
        if let Some(note) = approximation(*format, &args.read) {
            say(output, &format!("note: {}: {note}", file.display()));
        }
    }
    for ((file, format), trace) in args.files.iter().zip(&formats).zip(&traces) {
        for note in notes(&quoted(&file.display().to_string()), *format, &trace.figures) {
            say(output, &format!("note: {}: {note}", file.display()));
        }
    }
    if let Some(path) = &args.report {
        say(output, &format!("report: {}", path.display()));
    }
    if let [file] = &args.files[..]
        && formats[0].replays()
        && traces[0].figures.out_of_order.is_none()
    {
        let file = quoted(&file.display().to_string());
        next(
            output,
            &format!("tenantry new mine.yaml --trace {file} (a scenario that replays it)"),
        );
    }
    Ok(())
}

/// What a reader must know of a file's figures, and what to do where it is to be replayed; `file` is as a shell takes
/// it.
fn notes(file: &str, format: Format, figures: &TraceFigures) -> Vec<String> {
    let requests = figures.requests;
    let mut notes: Vec<String> = columns::left_out(file, format, &figures.unread_columns).into_iter().collect();
    notes.extend(source::distorted_rate(figures));
    // Of activity, silent tenants count too, and rows are told by their numbers.
    if let Some(tenants) = figures.tenants
        && !matches!(format, Format::ActivitySparse | Format::ActivityWide)
    {
        notes.extend(source::sparse_tenants(file, tenants.count, tenants.highest));
    }
    notes.extend(figures.silent_s.map(|silent_s| {
        format!(
            "the first request comes after {silent_s} s of silence, and figures are from there on; to be replayed \
             without it: `from: {silent_s}s` in a scenario, or tenantry trace convert {file} cut.csv --cut \
             {silent_s}s.."
        )
    }));
    notes.extend(figures.unanswered.map(|unanswered| {
        format!(
            "{unanswered} of {requests} requests got no answer: they are in no figure of outputs, and left out of \
             replays"
        )
    }));
    notes.extend(figures.out_of_order.map(|late| {
        format!(
            "{late} of {requests} requests stand after one of a later time; to be replayed: tenantry trace convert \
             {file} sorted.csv --sort"
        )
    }));
    notes
}
