//! Files of any known format.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_reports::human;
use tenantry_reports::trace::{Collector, Trace, TraceFigures};
use tenantry_traces::describe::is_sparse;
use tenantry_traces::read::sharegpt::{FOUR_CHARS_A_TOKEN, Tokenize};
use tenantry_traces::read::tokenizer::TokenizerJson;
use tenantry_traces::read::{Counts, Format, Records, activity};
use tenantry_traces::write::TraceFile;
use tenantry_traces::{TraceError, none_but};

use crate::cli::ReadArgs;
use crate::failure::Failure;
use crate::output::make_folder;

/// How many pieces pass between looks at the interrupt flag.
const INTERRUPT_CHECK: u64 = 1 << 16;

/// A flag that Ctrl-C sets, looked at now and then.
pub struct Watchdog {
    flag: Arc<AtomicBool>,
    calls: u64,
}

impl Watchdog {
    pub fn new() -> Watchdog {
        Watchdog {
            flag: crate::interrupt::flag(),
            calls: 0,
        }
    }

    /// To be called for every piece.
    pub fn check(&mut self) -> Result<(), Failure> {
        self.calls += 1;
        if self.calls.is_multiple_of(INTERRUPT_CHECK) && self.flag.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted("nothing was written".into()));
        }
        Ok(())
    }
}

/// The format of the one file that a command is given, as [`format_of`]; a tokenizer is for one with texts.
pub fn format(path: &Path, args: &ReadArgs) -> Result<Format, Failure> {
    let format = format_of(path, args)?;
    must_have_texts(path, args, &[format])?;
    Ok(format)
}

/// Refuses a tokenizer where none of the files, of which `path` is the first, has texts for it to count.
pub fn must_have_texts(path: &Path, args: &ReadArgs, formats: &[Format]) -> Result<(), Failure> {
    match &args.tokenizer {
        Some(tokenizer) if !formats.contains(&Format::ShareGpt) => {
            Err(must_be_left_out("--tokenizer", "no texts", path, tokenizer.display()))
        }
        _ => Ok(()),
    }
}

/// A flag that what a trace has, or has not, leaves nothing to do for.
pub fn must_be_left_out(flag: &str, what: &str, path: &Path, got: impl std::fmt::Display) -> Failure {
    let file = path.display();
    Failure::BadInput(format!(
        "{flag}: must be left out where the trace has {what}, as {file} has, got {got}"
    ))
}

/// The format of a file: the one that `--format` names, which the file must fit, or what its first line says.
pub fn format_of(path: &Path, args: &ReadArgs) -> Result<Format, Failure> {
    let Some(format) = args.format else {
        return Format::of(path).map_err(Failure::bad_input);
    };
    format.confirm(path).map_err(|error| Failure::BadInput(format!("--format: {error}")))?;
    Ok(format)
}

/// The requests of a file that holds them one by one.
pub fn records(path: &Path, args: &ReadArgs) -> Result<Records, Failure> {
    let tokenize: Box<dyn Tokenize> = match &args.tokenizer {
        Some(tokenizer) => Box::new(TokenizerJson::open(tokenizer).map_err(Failure::bad_input)?),
        None => Box::new(FOUR_CHARS_A_TOKEN),
    };
    Records::open_as(path, format_of(path, args)?, args.skip_bad_lines, tokenize).map_err(Failure::bad_input)
}

/// Begins a trace, in a folder that is made where it is missing.
pub fn create(out: &Path, with_changes: bool) -> Result<TraceFile, Failure> {
    let create = || match with_changes {
        false => TraceFile::create(out),
        true => TraceFile::create_with_changes(out),
    };
    match (create(), out.parent()) {
        (Err(TraceError::Io { source, .. }), Some(folder)) if source.kind() == ErrorKind::NotFound => {
            make_folder(folder)?;
            Ok(create()?)
        }
        (created, _) => Ok(created?),
    }
}

/// What is said of tenants whose numbers are far beyond how many ask: all below the highest are tenants of a replay
/// too.
pub fn sparse_tenants(file: &str, tenants: u64, highest: u32) -> Option<String> {
    is_sparse(tenants, highest).then(|| {
        let ask = match tenants {
            1 => "1 tenant asks".to_owned(),
            _ => format!("{} tenants ask", human::count(tenants)),
        };
        format!(
            "{ask}, with numbers up to {highest}, and each below is a tenant of a replay too; tenantry trace convert \
             {file} dense.csv --dense-tenants numbers them from 0"
        )
    })
}

/// What holes of a recording do to its mean rate.
pub fn distorted_rate(figures: &TraceFigures) -> Option<String> {
    let (holes, gaps, rates) = (figures.holes?, figures.gaps?, figures.requests_per_s?);
    let stretches = match holes.count {
        1 => "a stretch".to_owned(),
        count => format!("{count} stretches"),
    };
    Some(format!(
        "the mean rate of {}/s has in it {stretches} without a request of at least 60 s and 100 mean gaps, {} s in \
         all, the longest from {} s on; without them it is {}/s",
        human::number(rates.mean),
        human::number(holes.total_s),
        gaps.longest_from_s,
        human::number(holes.requests_per_s_without)
    ))
}

/// What must be said of lengths that are not what a tokenizer counts.
pub fn approximation(format: Format, args: &ReadArgs) -> Option<&'static str> {
    (format == Format::ShareGpt && args.tokenizer.is_none()).then_some(
        "texts are counted as four characters a token, an approximation for English; --tokenizer FILE counts them",
    )
}

/// A whole file.
pub fn read(path: &Path, args: &ReadArgs, watchdog: &mut Watchdog) -> Result<Trace, Failure> {
    let format = format_of(path, args)?;
    let name = path.display().to_string();
    let empty = |trace: Trace| match trace.figures.requests {
        0 => {
            let got = none_but(trace.figures.skipped_lines.unwrap_or(0));
            Err(Failure::BadInput(format!("{name}: must have requests, got {got}")))
        }
        _ => Ok(trace),
    };
    let located = |error: TraceError| match error {
        TraceError::Spec { field, message } => Failure::BadInput(format!("{name}: {field}: {message}")),
        error => Failure::bad_input(error),
    };
    match format {
        Format::Counts => {
            let mut collector = Collector::new(1);
            let mut counts = Counts::open(path, args.skip_bad_lines).map_err(Failure::bad_input)?;
            for (second, count) in counts.by_ref().enumerate() {
                watchdog.check()?;
                collector.window(second as u64, count.map_err(Failure::bad_input)?).map_err(located)?;
            }
            let mut trace = collector.finish(&name, format.name(), counts.skipped());
            // Windows are counted from the first line on, since a clock may count from 1970; what is said of when is by
            // the clock.
            if let Some(gaps) = &mut trace.figures.gaps {
                gaps.longest_from_s += counts.first_second() as f64;
            }
            empty(trace)
        }
        Format::ActivitySparse | Format::ActivityWide => {
            let mut collector = Collector::new(60);
            let mut failed = Ok(());
            let extent = activity::for_each(path, args.skip_bad_lines, |cell| {
                if failed.is_ok() {
                    failed = collector.window(u64::from(cell.minute), cell.requests);
                    collector.tenant(cell.tenant, cell.requests);
                }
            })
            .map_err(Failure::bad_input)?;
            // A recording lasts as long as it has minutes, also where nobody asks in the last ones.
            if let (true, Some(last)) = (failed.is_ok(), extent.minutes.checked_sub(1)) {
                failed = collector.window(u64::from(last), 0);
            }
            failed.map_err(located)?;
            empty(collector.finish(&name, format.name(), extent.skipped))
        }
        Format::RateShape => Err(Failure::BadInput(format!(
            "{name}: must hold requests, counts or activity, got {}, whose steps are averages; a scenario follows them \
             with `arrivals: {{ shape: {{ path: … }} }}`",
            format.name()
        ))),
        _ => {
            let mut collector = Collector::new(1);
            let mut records = records(path, args)?;
            while let Some(record) = records.next() {
                watchdog.check()?;
                match record {
                    Ok(record) => collector.record(&record).map_err(located)?,
                    Err(error) => return Err(Failure::bad_input(error)),
                }
                if format == Format::Mooncake {
                    collector.prefix_hashes(records.prefix_hashes());
                }
            }
            let mut trace = collector.finish(&name, format.name(), records.skipped());
            let some = |count: u64| (count > 0).then_some(count);
            trace.figures.management_requests = some(records.management_requests());
            trace.figures.absent_at_first = some(records.absent_at_first());
            // All at one moment, or one alone, have no rate.
            if trace.figures.span_s == Some(0.0) {
                trace.figures.requests_per_s = None;
            }
            trace.figures.unread_columns = format.unread_columns(path).map_err(Failure::bad_input)?;
            empty(trace)
        }
    }
}
