//! `tenantry trace generate`: a workload as a file.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenantry_reports::manifest::quoted;
use tenantry_scenarios::{Override, Scenario, shipped_names};
use tenantry_traces::describe::MAX_SECONDS;
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::spec::ArrivalsSpec;
use tenantry_traces::{Entry, Time, build};

use super::source::{self, Watchdog};
use super::{names, workload};
use crate::cards::{reading_failure, workload_failure};
use crate::caveats::{AnotherRate, another_rate_of_trace};
use crate::cli::{OutputArgs, TraceGenerateArgs};
use crate::failure::Failure;
use crate::keep::without_cancellations;
use crate::output::{check_file, counted, next, print, say};
use crate::progress;
use crate::runs::check_not_set;

/// No trace can be called so.
fn names_scenario(word: &str) -> bool {
    word.ends_with(".yaml") || shipped_names().contains(&word)
}

pub fn run(args: &TraceGenerateArgs, output: &OutputArgs) -> Result<(), Failure> {
    let (name, out) = match &args.scenario_and_out[..] {
        [name, out] => (Some(name.as_str()), Path::new(out)),
        [scenario] if names_scenario(scenario) => {
            return Err(Failure::BadInput(format!(
                "OUT: must be given after the scenario, got {scenario} alone; such as `tenantry trace generate {scenario} \
                 requests.csv`"
            )));
        }
        [out] => (None, Path::new(out)),
        _ => unreachable!("the command line takes one or two"),
    };
    let scenario = scenario(args, name)?;
    let spec = workload::one(&scenario)?;
    if let ArrivalsSpec::ClosedLoop { .. } = spec.arrivals {
        return Err(Failure::BadInput(
            "workload.arrivals: must not wait for answers, got closed-loop; `tenantry simulate --record` writes down \
             what such clients ask"
                .into(),
        ));
    }
    let files = scenario.inputs().into_iter().chain(name.map(PathBuf::from));
    check_file("OUT", out, files)?;
    let mut watchdog = Watchdog::new();
    let mut workload = build(&spec).map_err(|error| workload_failure(name, &error))?;
    let mut file = source::create(out, spec.management != ManagementSpec::None)?;
    let bar = progress::bar(
        spec.stop.requests.unwrap_or(0),
        "generating",
        output.quiet || spec.stop.requests.is_none(),
    );
    let (mut requests, mut cancellations): (u64, u64) = (0, 0);
    let mut last = Time::ZERO;
    while let Some(entry) = workload.next().map_err(|error| reading_failure(name, &error))? {
        watchdog.check()?;
        match entry {
            Entry::Request(request) => {
                file.write(&request)?;
                last = request.arrival;
                requests += 1;
                if requests.is_multiple_of(1 << 16) {
                    bar.set_position(requests);
                }
            }
            Entry::Manage(request) => file.write_change(&request)?,
            Entry::Cancel { .. } => cancellations += 1,
        }
    }
    bar.finish_and_clear();
    if requests == 0 {
        return Err(Failure::BadInput(
            "workload: must have requests to be written, got none".into(),
        ));
    }
    names::remove(out)?;
    file.finish()?;
    for source in spec.sources() {
        say(output, &format!("note: {source}"));
    }
    if cancellations > 0 {
        say(
            output,
            &format!("note: {}", without_cancellations(&out.display(), cancellations)),
        );
    }
    let value = json!({ "out": out, "requests": requests, "tenants": spec.tenants, "seed": spec.seed });
    print(output, &value, || {
        format!(
            "{}: {} of {}, seed {}",
            out.display(),
            counted(requests, "request", "requests"),
            counted(spec.tenants.into(), "tenant", "tenants"),
            spec.seed
        )
    })?;
    if let Some(another_rate) = AnotherRate::of_workload(&spec, requests, last) {
        say(output, &format!("note: {}", another_rate_of_trace(another_rate)));
    }
    if last.0 / 1_000_000_000 >= MAX_SECONDS {
        say(
            output,
            &format!(
                "note: the last request comes after {:.3e} s, and `tenantry trace info` and `convert` read two years \
                 of a trace; a scenario replays all of it",
                last.as_secs_f64()
            ),
        );
        return Ok(());
    }
    let out = quoted(&out.display().to_string());
    next(output, &format!("tenantry trace info {out} (what is in it)"));
    Ok(())
}

/// The scenario, or one of the flags alone; flags change a scenario's workload too.
fn scenario(args: &TraceGenerateArgs, name: Option<&str>) -> Result<Scenario, Failure> {
    let mut overrides: Vec<Override> = args.set.iter().map(|text| Override::set(text)).collect();
    let seed = args.seed.map(|seed| seed.to_string());
    for (option, path, value) in [
        ("--arrivals", "workload.arrivals", &args.arrivals),
        ("--lengths", "workload.lengths", &args.lengths),
        ("--tenants", "tenants.count", &args.tenants),
        ("--popularity", "tenants.popularity", &args.popularity),
        ("--requests", "workload.stop.requests", &args.requests),
        ("--after", "workload.stop.after", &args.after),
        ("--seed", "seed", &seed),
    ] {
        let Some(value) = value else {
            continue;
        };
        check_not_set(&args.set, option, path, value)?;
        overrides.push(Override::option(option, path, value));
    }
    match name {
        Some(name) => Scenario::load_with(name, &overrides).map_err(Failure::bad_input),
        None => {
            for (flag, value) in [("--arrivals", &args.arrivals), ("--lengths", &args.lengths)] {
                if value.is_none() && args.set.is_empty() {
                    return Err(Failure::BadInput(format!(
                        "{flag}: must be given where there is no scenario, got nothing; see `tenantry trace generate \
                         --help`"
                    )));
                }
            }
            workload::of_options(&overrides)
        }
    }
}
