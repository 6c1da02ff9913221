//! `tenantry new`: a commented scenario from a few answers, given as flags or asked for. What it writes, `check` accepts.

mod ask;
mod write;

use std::io::IsTerminal;
use std::path::Path;

use serde_json::json;
use tenantry_profiles::{DType, ModelKind, ModelShape, near_miss};
use tenantry_reports::whole::write_whole;
use tenantry_scenarios::Scenario;
use tenantry_traces::read::Format;

use crate::cli::{NewArgs, OutputArgs, ReadArgs};
use crate::commands::check;
use crate::commands::trace::source;
use crate::failure::Failure;
use crate::output::{next, print};
use crate::runs::{Loaded, card_names};

/// What is asked, answered.
#[derive(Clone, Debug)]
struct Answers {
    model: ModelShape,
    tenants: String,
    /// The trace says which tenant asks.
    tenants_of_trace: bool,
    rate: String,
    trace: Option<String>,
    input: String,
    output: String,
    latency: String,
    at: String,
    card: String,
    gpus: String,
    systems: Vec<String>,
}

pub fn run(args: &NewArgs, output: &OutputArgs) -> Result<(), Failure> {
    if args.file.exists() {
        return Err(Failure::BadInput(format!(
            "{}: must be a new file, got one that exists; name another as `tenantry new FILE`",
            args.file.display()
        )));
    }
    let asks = std::io::stdin().is_terminal() && !args.defaults && !output.quiet && !output.json;
    let answers = answers(args, asks)?;
    let file = args.file.display().to_string();
    let (text, loaded) = fitting(&file, &answers)?;
    if let Some(folder) = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failure::Running(format!("{}: {error}", folder.display())))?;
    }
    write_whole(&args.file, text.as_bytes()).map_err(Failure::running)?;
    let value = json!({ "scenario": loaded.scenario.name, "file": args.file, "runs": loaded.runs.len() });
    print(output, &value, || {
        format!("{file} is written, and valid; read and change it as you like.")
    })?;
    next(output, &format!("tenantry simulate {file}"));
    Ok(())
}

/// The scenario with numbers of a type that its card has prices for: the presets' own where it does.
fn fitting(file: &str, answers: &Answers) -> Result<(String, Loaded), Failure> {
    let with = |dtype: Option<DType>| {
        let text = write::scenario(file, answers, dtype);
        let scenario = Scenario::from_yaml(file, &text, &[]).map_err(Failure::bad_input)?;
        let loaded = Loaded::of(scenario, None)?;
        check::fits(&loaded)?;
        Ok((text, loaded))
    };
    with(None).or_else(|failure| {
        let others = [DType::F16, DType::Bf16, DType::F32];
        let found = others.into_iter().find_map(|dtype| with(Some(dtype)).ok());
        found.ok_or(failure)
    })
}

/// Flags first; what they do not say is asked for, or takes its default.
fn answers(args: &NewArgs, asks: bool) -> Result<Answers, Failure> {
    let ask = |flag: &Option<String>, question: &str, default: &str| -> Result<String, Failure> {
        match flag {
            Some(answer) => Ok(answer.clone()),
            None if asks => ask::text(question, default),
            None => Ok(default.to_owned()),
        }
    };
    let model = match &args.model {
        Some(model) => model.clone(),
        None if asks => ask::one_of(
            "Which model do tenants build on?",
            ModelShape::builtin_names(),
            "bert-base",
        )?,
        None => "bert-base".to_owned(),
    };
    let model = built_in(&model)?;
    let generates = model.kind == ModelKind::Decoder;
    if let Some(trace) = &args.trace {
        let format = Format::of(Path::new(trace)).map_err(Failure::bad_input)?;
        if !format.replays() {
            let message = format!(
                "--trace: {trace}: must have an arrival and lengths for each request, got {}",
                format.name()
            );
            return Err(Failure::BadInput(message));
        }
    }
    let of_trace = args.trace.as_ref().and_then(|trace| tenants_of(trace));
    let known = of_trace.map_or("1000".to_owned(), |count| count.to_string());
    let tenants = match of_trace {
        Some(_) => args.tenants.clone().unwrap_or(known),
        None => ask(&args.tenants, "How many tenants?", &known)?,
    };
    if let (Some(least), Some(trace)) = (of_trace, &args.trace)
        && tenants.parse::<u32>().is_ok_and(|count| count < least)
    {
        return Err(Failure::BadInput(format!(
            "--tenants: must be at least {least}, since {trace} has so many, got {tenants}"
        )));
    }
    let (rate, trace) = match &args.trace {
        Some(trace) => (String::new(), Some(trace.clone())),
        None => (
            ask(&args.rate, "How many requests a second, from all of them?", "100/s")?,
            None,
        ),
    };
    let input = match &trace {
        Some(_) => String::new(),
        None => ask(&args.input, "How many tokens has an input?", "64")?,
    };
    let output = match generates && trace.is_none() {
        true => ask(&args.output, "How many tokens has an output?", "128")?,
        false => String::new(),
    };
    let latency = ask(
        &args.latency,
        "Within which time must they be answered?",
        if generates { "30s" } else { "100ms" },
    )?;
    let at = ask(&args.at, "For which share of them?", "p98")?;
    let card = match &args.card {
        Some(card) => card.clone(),
        None if asks => {
            let names = card_names();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            ask::one_of("On which card?", &names, default_card(generates))?
        }
        None => default_card(generates).to_owned(),
    };
    Ok(Answers {
        model,
        tenants,
        tenants_of_trace: of_trace.is_some(),
        rate,
        trace,
        input,
        output,
        latency,
        at,
        card,
        gpus: ask(&args.gpus, "How many of them?", "1")?,
        systems: match args.systems.is_empty() {
            false => args.systems.clone(),
            true => write::usual_systems(generates).map(str::to_owned).to_vec(),
        },
    })
}

/// How many tenants a trace has, by the largest number of one; nothing where it does not say who asks.
fn tenants_of(trace: &str) -> Option<u32> {
    // What cannot be read is told of with the scenario.
    let records = source::records(Path::new(trace), &ReadArgs::default()).ok()?;
    let mut largest = None;
    for record in records {
        largest = largest.max(Some(record.ok()?.tenant?));
    }
    largest?.checked_add(1)
}

fn built_in(name: &str) -> Result<ModelShape, Failure> {
    ModelShape::builtin(name).ok_or_else(|| {
        let names = ModelShape::builtin_names();
        let meant =
            near_miss(name, names.iter().copied()).map_or(String::new(), |near| format!("; did you mean {near}?"));
        Failure::BadInput(format!(
            "--model: must be one of {}, got {name}{meant}",
            names.join(", ")
        ))
    })
}

/// One that has a usual model's tables, and comes with the program.
fn default_card(generates: bool) -> &'static str {
    if generates { "a100-sxm" } else { "h100-sxm" }
}
