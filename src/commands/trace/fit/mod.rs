//! `tenantry trace fit`: a generator fitted to one part of a recording and checked against the other.
//!
//! What is checked is what is printed: the fitted numbers are written as a scenario's keys, those keys make the
//! generated requests, and these are set beside the part that the fit did not see.

mod generators;
mod lengths;
mod popularity;
mod rates;
mod requests;

use serde_json::{Value, json};
use tenantry_reports::page::{Fit, TracePage};
use tenantry_reports::trace::{Collector, Comparison, Trace, table};
use tenantry_traces::read::Format;
use tenantry_traces::{Entry, build};

use super::source::{self, Watchdog};
use super::workload;
use crate::cli::{FitKind, OutputArgs, TraceFitArgs};
use crate::failure::Failure;
use crate::output::{
    OF_PAGES, Started, check_apart, check_ending, check_file, print, say, style, to_stdout, write_in_folder,
};

/// Keys of a scenario: a dotted path and a value.
type Keys = Vec<(&'static str, Value)>;

/// A generator and what it was checked against.
struct Fitted {
    keys: Keys,
    /// What it is checked against: the part that the fit did not see.
    real: Trace,
    generated: Trace,
    /// The part that was fitted, where its own distance from the other is to be allowed for.
    seen: Option<Trace>,
    /// What was fitted to what.
    notes: Vec<String>,
}

pub fn run(args: &TraceFitArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let mut watchdog = Watchdog::new();
    let format = source::format(&args.file, &args.read)?;
    for (flag, out) in [("--out", &args.out), ("--report", &args.report)] {
        if let Some(out) = out {
            check_file(flag, out, [&args.file])?;
        }
    }
    check_apart(("--out", args.out.as_deref()), ("--report", args.report.as_deref()))?;
    if let Some(report) = &args.report {
        check_ending("--report", report, &OF_PAGES)?;
    }
    let is_rates = args.kind == FitKind::Twitter && format == Format::Counts;
    let is_requests = args.kind == FitKind::Requests;
    if let (Some(tenants), false) = (args.tenants, is_requests || args.kind == FitKind::AzureFunctions) {
        let message = format!("--tenants: must be left out but for requests and azure-functions, got {tenants}");
        return Err(Failure::BadInput(message));
    }
    if let (Some(hole), false) = (&args.drop_zeros_from, is_requests || is_rates) {
        let must_be = "must be left out but for requests, and twitter of per-second counts";
        return Err(Failure::BadInput(format!("--drop-zeros-from: {must_be}, got {hole}")));
    }
    let fitted = match args.kind {
        FitKind::Requests => requests::requests(args, format, &mut watchdog)?,
        FitKind::Twitter if is_rates => rates::rates(args, &mut watchdog)?,
        FitKind::Twitter | FitKind::Sharegpt => lengths::lengths(args, &mut watchdog)?,
        FitKind::AzureFunctions => popularity::popularity(args, format, &mut watchdog)?,
    };
    let yaml = yaml(&args.file.display().to_string(), &fitted)?;
    let generated = fitted.generated.restricted_to(&fitted.real);
    let traces = [fitted.real, generated];
    let comparison = Comparison::new(&traces[0], &traces[1], fitted.seen.as_ref());
    if let Some(path) = &args.report {
        let page = TracePage {
            title: &format!("{} fitted to {}", args.kind.name(), args.file.display()),
            traces: &traces,
            fit: Some(Fit {
                comparison: &comparison,
                yaml: &yaml,
            }),
            manifest: &started.manifest(&[], None, 0, fitted.notes.clone()),
        };
        let html = page.render().map_err(Failure::running)?;
        write_in_folder(path, &html)?;
    }
    if let Some(path) = &args.out {
        write_in_folder(path, &yaml)?;
    }
    let value = json!({
        "kind": args.kind.name(),
        "file": args.file,
        "notes": fitted.notes,
        "real": traces[0].figures,
        "generated": traces[1].figures,
        "comparison": comparison.rows,
        "within_aims": comparison.within(),
        "yaml": yaml,
    });
    match (output.quiet && !output.json, &args.out) {
        // As a script wants it, which has no other way to it.
        (true, None) => to_stdout(yaml.as_bytes())?,
        (true, Some(_)) => {}
        (false, _) => print(output, &value, || {
            let shown = args.out.as_ref().map_or(format!("\n\n{yaml}"), |_| String::new());
            format!("{}\n\n{}{shown}", table(&traces, style()), comparison.table(style()))
        })?,
    }
    for note in &fitted.notes {
        say(output, &format!("note: {note}"));
    }
    if let Some(path) = &args.out {
        say(output, &format!("written: {}", path.display()));
    }
    if let Some(path) = &args.report {
        say(output, &format!("report: {}", path.display()));
    }
    Ok(())
}

fn too_few(args: &TraceFitArgs, what: &str, least: usize, got: usize) -> Failure {
    Failure::BadInput(format!(
        "{}: must have at least {least} {what} to be fitted and checked, got {got}",
        args.file.display()
    ))
}

/// What is said where a recording's instants are left aside.
fn arrivals_are_not_fitted(format: Format) -> Option<String> {
    format.has_arrivals().then(|| {
        "arrivals are not fitted here: `tenantry trace fit requests` fits them too, and a scenario can replay them as \
         they were (`workload.arrivals: { trace: { path: … } }`)"
            .to_owned()
    })
}

/// Requests that are generated for a check: enough that chance plays no part beside the recording's own.
const GENERATED: u64 = 1_000_000;

/// Generates what `keys` say until `stop`.
fn generate(args: &TraceFitArgs, keys: &Keys, stop: Value, watchdog: &mut Watchdog) -> Result<Trace, Failure> {
    let mut overrides: Vec<String> = keys.iter().map(|(path, value)| format!("{path}={value}")).collect();
    overrides.push(format!("workload.stop={stop}"));
    overrides.push(format!("seed={}", args.seed));
    let mut workload = build(&workload::of_overrides(&overrides)?).map_err(Failure::running)?;
    let mut collector = Collector::new(1);
    while let Some(entry) = workload.next().map_err(Failure::running)? {
        watchdog.check()?;
        if let Entry::Request(request) = entry {
            collector.request(&request).map_err(Failure::running)?;
        }
    }
    Ok(collector.finish("generated", "fitted", 0))
}

fn after(seconds: f64) -> Value {
    json!({ "after": format!("{seconds}s") })
}

/// The keys, nested as a scenario has them.
fn yaml(file: &str, fitted: &Fitted) -> Result<String, Failure> {
    let mut nested = json!({});
    for (path, value) in &fitted.keys {
        let at = path.split('.').fold(&mut nested, |at, step| &mut at[step]);
        *at = value.clone();
    }
    let keys = serde_yaml::to_string(&nested).map_err(Failure::running)?;
    // A name may have a line end in it.
    let file = file.replace(char::is_control, " ");
    Ok(format!(
        "# For a scenario; fitted to {file} by `tenantry trace fit`.\n{keys}"
    ))
}

impl FitKind {
    fn name(self) -> &'static str {
        match self {
            FitKind::Requests => "requests",
            FitKind::Twitter => "twitter",
            FitKind::Sharegpt => "sharegpt",
            FitKind::AzureFunctions => "azure-functions",
        }
    }
}
