//! `tenantry trace convert`: any known format as our own.

use std::num::NonZeroU32;
use std::path::Path;

use serde_json::json;
use tenantry_reports::manifest::quoted;
use tenantry_traces::describe::MAX_SECONDS;
use tenantry_traces::read::{Counts, Format, Record, Records, activity};
use tenantry_traces::write::{TraceFile, write_names};
use tenantry_traces::{Duration, Entry, Request, Time, build, none_but, out_of_order};

use super::dense::Numbering;
use super::source::{self, Watchdog, must_be_left_out};
use super::{columns, names, workload};
use crate::cli::{OutputArgs, TraceConvertArgs};
use crate::failure::Failure;
use crate::output::{check_file, counted, next, print, say};
use crate::time_range;

const NS_PER_S: u64 = 1_000_000_000;

/// What became of a file.
#[derive(Default)]
struct Converted {
    requests: u64,
    skipped_lines: u64,
    unanswered: u64,
    management_requests: u64,
    absent_at_first: u64,
    prefix_hashes: u64,
    /// What the format does not say, and what was put in its place.
    filled_in: Vec<String>,
    /// Who the numbers stand for, where they are not the recording's own: `tenant` or `class`, and names by number.
    names: Vec<(&'static str, Vec<String>)>,
}

pub fn run(args: &TraceConvertArgs, output: &OutputArgs) -> Result<(), Failure> {
    let columns = args.columns.as_deref().map(columns::parse).transpose()?;
    let format = match columns {
        Some(_) => Format::Columns,
        None => source::format(&args.file, &args.read)?,
    };
    check_out(args)?;
    let cut = match &args.cut {
        None => (Duration::ZERO, None),
        Some(text) => time_range::parse_open("--cut", text)?,
    };
    let records = match (&columns, format) {
        (Some(columns), _) => {
            let records = Records::open_columns(&args.file, columns, args.read.skip_bad_lines);
            Some(records.map_err(columns::failure)?)
        }
        (None, Format::Counts | Format::ActivitySparse | Format::ActivityWide) => None,
        (None, _) => Some(source::records(&args.file, &args.read)?),
    };
    let unread = format.unread_columns(&args.file).map_err(Failure::bad_input)?;
    let mut out = source::create(&args.out, false)?;
    let mut watchdog = Watchdog::new();
    let converted = match records {
        None => aggregated(args, format, cut, &mut out, &mut watchdog)?,
        Some(records) => requests(args, records, cut, &mut out, &mut watchdog)?,
    };
    if converted.requests == 0 {
        return Err(Failure::BadInput(format!(
            "{}: must have requests in the part that is converted, got {}",
            args.file.display(),
            none_but(converted.skipped_lines)
        )));
    }
    // Numbers that nobody can read are worth nothing: their names come first, and an earlier conversion's go.
    names::remove(&args.out)?;
    for (of, names) in &converted.names {
        write_names(&names::file(&args.out, of), of, names.iter().map(String::as_str))?;
    }
    out.finish()?;
    let mut value = json!({
        "file": args.file,
        "format": format.name(),
        "out": args.out,
        "requests": converted.requests,
        "skipped_lines": converted.skipped_lines,
        "unanswered": converted.unanswered,
        "left_out": {
            "management_requests": converted.management_requests,
            "absent_at_first": converted.absent_at_first,
            "prefix_hashes": converted.prefix_hashes,
        },
        "filled_in": converted.filled_in,
        "unread_columns": unread,
    });
    for (of, names) in &converted.names {
        value["names"][of] = json!({ "file": names::file(&args.out, of), "count": names.len() });
    }
    print(output, &value, || {
        format!(
            "{}: {} from {} ({})",
            args.out.display(),
            counted(converted.requests, "request", "requests"),
            args.file.display(),
            format.name()
        )
    })?;
    for note in notes(args, &converted, format, &unread) {
        say(output, &format!("note: {note}"));
    }
    let out = quoted(&args.out.display().to_string());
    next(output, &format!("tenantry trace info {out} (what is in it)"));
    Ok(())
}

/// Refuses what cannot be written, and to write over the file that is read.
fn check_out(args: &TraceConvertArgs) -> Result<(), Failure> {
    let names = names::OF.map(|of| names::file(&args.out, of));
    std::iter::once(&args.out)
        .chain(&names)
        .try_for_each(|out| check_file("OUT", out, [&args.file]))
}

/// What is otherwise than in the file: left out, filled in, or called by a number.
fn notes(args: &TraceConvertArgs, converted: &Converted, format: Format, unread: &[String]) -> Vec<String> {
    let left_out = [
        (converted.skipped_lines, "broken line", "broken lines", ""),
        (converted.unanswered, "request", "requests", " without an answer"),
        (
            converted.management_requests,
            "management request",
            "management requests",
            "",
        ),
        (converted.absent_at_first, "mark", "marks", " of who is absent at first"),
        (
            converted.prefix_hashes,
            "prefix hash",
            "prefix hashes",
            ", for which our formats have no column,",
        ),
    ];
    let left_out = left_out.into_iter().filter(|(count, ..)| *count > 0);
    let told = left_out.map(|(count, one, many, more)| {
        let were = if count == 1 { "was" } else { "were" };
        format!("{}{more} {were} left out", counted(count, one, many))
    });
    let mut notes: Vec<String> = told.collect();
    notes.extend(source::approximation(format, &args.read).map(str::to_owned));
    let filled_in = converted.filled_in.iter();
    notes.extend(filled_in.map(|filled| format!("the format does not say it: {filled}")));
    notes.extend(columns::left_out(
        &quoted(&args.file.display().to_string()),
        format,
        unread,
    ));
    notes.extend(converted.names.iter().map(|(of, names)| {
        let (all, file) = (names.len(), names::file(&args.out, of));
        let what = match *of {
            "class" => counted(all as u64, "service class is", "service classes are"),
            _ => counted(all as u64, "tenant is", "tenants are"),
        };
        let order = match format {
            Format::ActivitySparse => "in the order of the file's numbers",
            _ => "in the order in which they first occur",
        };
        format!("{what} numbered from 0 {order}; {} says who is who", file.display())
    }));
    notes
}

/// A file with a record a request.
fn requests(
    args: &TraceConvertArgs,
    mut records: Records,
    (from, length): (Duration, Option<Duration>),
    out: &mut TraceFile,
    watchdog: &mut Watchdog,
) -> Result<Converted, Failure> {
    let mut converted = Converted::default();
    let mut numbering = Numbering::new(args.dense_tenants);
    let mut completion = Completion::new(args);
    let mut sorted: Vec<Request> = Vec::new();
    let mut last = Time::ZERO;
    while let Some(record) = records.next() {
        watchdog.check()?;
        let record = record.map_err(Failure::bad_input)?;
        if record.is_unanswered() {
            let since = record.arrival.map(|arrival| arrival.0.checked_sub(from.0));
            let is_kept = |since: u64| length.is_none_or(|length| since < length.0);
            converted.unanswered += u64::from(since.is_none_or(|since| since.is_some_and(is_kept)));
            continue;
        }
        let mut request = completion.complete(&record, &args.file)?;
        let came = request.arrival;
        let Some(since) = came.0.checked_sub(from.0) else {
            continue;
        };
        if length.is_some_and(|length| since >= length.0) {
            continue;
        }
        converted.prefix_hashes += records.prefix_hashes().len() as u64;
        request.arrival = match args.scale {
            1.0 => Time(since),
            scale => Time((since as f64 / scale) as u64),
        };
        if request.arrival.0 / NS_PER_S >= MAX_SECONDS {
            let number = converted.requests + sorted.len() as u64;
            // A clock that counts from 1970 is no long recording. Of what is to be put in order, the first may not be
            // the earliest.
            let end = args.cut.as_deref().and_then(|cut| cut.split_once(".."));
            let silence = match number {
                0 if !args.sort => format!(
                    "; --cut {}s..{} leaves out the silence before it",
                    (from.0 + since) / NS_PER_S,
                    end.map_or("", |(_, end)| end)
                ),
                _ => String::new(),
            };
            return Err(Failure::BadInput(format!(
                "{}: must end within two years of its start to be read again, got request {number} at {:.3e} \
                 s{silence}",
                args.out.display(),
                request.arrival.as_secs_f64()
            )));
        }
        if args.sort {
            sorted.push(request);
            continue;
        }
        if came < last {
            let wrong = out_of_order(came, last);
            let message = format!("{wrong}; --sort puts it in order, in memory");
            return Err(Failure::bad_input(records.error(message)));
        }
        last = came;
        request.ticket = converted.requests;
        converted.requests += 1;
        numbering.renumber(&mut request, &records);
        out.write(&request)?;
    }
    sorted.sort_by_key(|request| request.arrival);
    for mut request in sorted {
        request.ticket = converted.requests;
        converted.requests += 1;
        numbering.renumber(&mut request, &records);
        out.write(&request)?;
    }
    converted.names = numbering.names(&records);
    converted.skipped_lines = records.skipped();
    converted.management_requests = records.management_requests();
    converted.absent_at_first = records.absent_at_first();
    converted.filled_in = completion.filled_in;
    Ok(converted)
}

/// Puts in what a format does not say.
struct Completion<'a> {
    args: &'a TraceConvertArgs,
    seen: u64,
    filled_in: Vec<String>,
}

impl Completion<'_> {
    fn new(args: &TraceConvertArgs) -> Completion<'_> {
        Completion {
            args,
            seen: 0,
            filled_in: Vec::new(),
        }
    }

    fn complete(&mut self, record: &Record, path: &Path) -> Result<Request, Failure> {
        let missing = |what: &str, flag: &str| {
            Failure::BadInput(format!(
                "{}: must say the {what}, got a format that does not; give {flag}",
                path.display()
            ))
        };
        let arrival = match (record.arrival, self.args.rate) {
            (Some(_), Some(rate)) => return Err(must_be_left_out("--rate", "arrivals", path, rate)),
            (Some(arrival), None) => arrival,
            (None, Some(rate)) => {
                self.note(|| format!("arrivals are evenly spaced at {rate} requests/s"));
                Time((self.seen as f64 * 1e9 / rate) as u64)
            }
            (None, None) => return Err(missing("arrival", "--rate 5/s, for equal gaps")),
        };
        self.seen += 1;
        let input_tokens = match (record.input_tokens, self.args.input.map(NonZeroU32::get)) {
            (Some(_), Some(tokens)) => return Err(must_be_left_out("--input", "input lengths", path, tokens)),
            (Some(tokens), None) => tokens,
            (None, Some(tokens)) => {
                let outputs = match record.output_tokens {
                    Some(1..) => "",
                    _ => ", outputs none",
                };
                self.note(|| format!("inputs are {tokens} tokens{outputs}"));
                tokens
            }
            (None, None) => return Err(missing("input length", "--input N, in tokens, for equal lengths")),
        };
        if record.tenant.is_none() && self.args.dense_tenants {
            return Err(must_be_left_out("--dense-tenants", "no tenants", path, "it"));
        }
        if record.tenant.is_none() {
            self.note(|| "all requests are of tenant 0".to_owned());
        }
        if record.class.is_none() {
            self.note(|| "all requests are of service class 0".to_owned());
        }
        Ok(Request {
            ticket: 0,
            tenant: record.tenant.unwrap_or(0),
            arrival,
            input_tokens,
            output_tokens: record.output_tokens.unwrap_or(0),
            class: record.class.unwrap_or(0),
        })
    }

    fn note(&mut self, text: impl Fn() -> String) {
        // The first record says it all: a format has a column or has it not.
        if self.seen <= 1 {
            let text = text();
            if !self.filled_in.contains(&text) {
                self.filled_in.push(text);
            }
        }
    }
}

/// Counts a second or a minute: each becomes so many requests.
fn aggregated(
    args: &TraceConvertArgs,
    format: Format,
    (from, length): (Duration, Option<Duration>),
    out: &mut TraceFile,
    watchdog: &mut Watchdog,
) -> Result<Converted, Failure> {
    let Some(input) = args.input.map(NonZeroU32::get) else {
        return Err(Failure::BadInput(format!(
            "{}: must say the input length, got {}, which does not; give --input N, in tokens, for equal lengths",
            args.file.display(),
            format.name()
        )));
    };
    if let Some(rate) = args.rate {
        let what = match format {
            Format::Counts => "a count a second",
            _ => "a count a minute",
        };
        return Err(must_be_left_out("--rate", what, &args.file, rate));
    }
    if args.dense_tenants {
        let what = match format {
            Format::Counts => "no tenants",
            _ => "activity, whose tenants are numbered without gaps in any case",
        };
        return Err(must_be_left_out("--dense-tenants", what, &args.file, "it"));
    }
    let path = json!(args.file);
    let mut filled_in = vec![format!("inputs are {input} tokens, outputs none")];
    let mut overrides = vec![format!("workload.lengths.input.fixed={input}")];
    let mut skipped_lines = 0;
    let mut names = Vec::new();
    if format == Format::Counts {
        let mut counts = json!({
            "path": path,
            "placement": "even",
            "scale": args.scale,
            "from": format!("{}ns", from.0),
            "skip_bad_lines": args.read.skip_bad_lines,
        });
        if args.read.skip_bad_lines {
            let mut all = Counts::open(&args.file, true).map_err(Failure::bad_input)?;
            for count in all.by_ref() {
                count.map_err(Failure::bad_input)?;
            }
            skipped_lines = all.skipped();
        }
        if let Some(length) = length {
            counts["length"] = json!(format!("{}ns", length.0));
        }
        filled_in.push("arrivals are evenly spaced within each second".into());
        filled_in.push("all requests are of tenant 0".into());
        overrides.push(format!("workload.arrivals={}", json!({ "counts": counts })));
    } else {
        if args.cut.is_some() {
            return Err(Failure::BadInput(format!(
                "--cut: must not be given for tenants' activity ({}), got {}",
                format.name(),
                args.cut.as_deref().unwrap_or_default()
            )));
        }
        let (numbers, extent) = activity::numbers(&args.file, args.read.skip_bad_lines).map_err(Failure::bad_input)?;
        skipped_lines = extent.skipped;
        // Of a part of a larger recording, which keeps that one's numbers, each who asks is a row.
        if (0..).zip(&numbers).any(|(row, number)| row != *number) {
            names.push(("tenant", numbers.iter().map(u32::to_string).collect()));
        }
        filled_in.push("arrivals are drawn within each minute".into());
        overrides.push(format!("tenants.count={}", numbers.len()));
        overrides.push("tenants.popularity=of-arrivals".into());
        overrides.push(format!(
            "workload.arrivals={}",
            json!({ "activity": { "path": path, "scale": args.scale, "skip_bad_lines": args.read.skip_bad_lines } })
        ));
    }
    let mut workload = build(&workload::of_overrides(&overrides)?).map_err(Failure::bad_input)?;
    let mut requests = 0;
    while let Some(entry) = workload.next().map_err(Failure::bad_input)? {
        watchdog.check()?;
        if let Entry::Request(request) = entry {
            out.write(&request)?;
            requests += 1;
        }
    }
    Ok(Converted {
        requests,
        skipped_lines,
        filled_in,
        names,
        ..Converted::default()
    })
}
