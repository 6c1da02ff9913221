//! `tenantry new`: a commented scenario from a few answers, given as flags or asked for. What it writes, `check`
//! accepts.

mod answers;
mod ask;
mod dialogue;
mod write;

use serde_json::json;
use tenantry_reports::manifest::quoted;

use crate::cli::{NewArgs, OutputArgs};
use crate::commands::trace::source;
use crate::failure::Failure;
use crate::output::{check_file, next, print, say, write_in_folder};

use answers::{Answers, Fitting, of_flag};
use ask::Dialogue;

pub fn run(args: &NewArgs, output: &OutputArgs) -> Result<(), Failure> {
    if args.file.exists() {
        return Err(Failure::BadInput(format!(
            "{}: must be a new file, got one that exists; name another as `tenantry new FILE`",
            args.file.display()
        )));
    }
    check_file("FILE", &args.file, &args.trace)?;
    let asks = Dialogue::is_possible() && !args.defaults && !output.quiet && !output.json;
    let args = if asks { &dialogue::complete(args)? } else { args };
    let of_trace = of_flag(args.trace.as_deref())?;
    let file = args.file.display().to_string();
    if let (Some(trace), Some(tenants)) = (&args.trace, of_trace.tenants)
        && let Some(note) = source::sparse_tenants(&quoted(trace), of_trace.who_ask, tenants - 1)
    {
        say(output, &format!("note: {trace}: {note}"));
    }
    let answers = Answers::of(args, &of_trace)?;
    let of_recording = args.trace.iter().flat_map(|trace| {
        let notes = [of_trace.too_long(&answers.model), of_trace.holes.clone()];
        notes.into_iter().flatten().map(move |note| format!("{trace}: {note}"))
    });
    for note in of_recording.chain(answers.cut_outputs()) {
        say(output, &format!("note: {note}"));
    }
    let Fitting { text, loaded, laid_out } = on_a_card(args, answers, &file, output)?;
    if laid_out.cards > 1 {
        let cards = laid_out.cards;
        say(
            output,
            &format!("note: a card alone has too little memory: {cards} share each layer (generation.tensor_parallel)"),
        );
    }
    write_in_folder(&args.file, &text)?;
    let value = json!({ "scenario": loaded.scenario.name, "file": args.file, "runs": loaded.runs.len() });
    print(output, &value, || {
        format!("{file} is written, and valid; read and change it as you like.")
    })?;
    next(output, &format!("tenantry simulate {}", quoted(&file)));
    Ok(())
}

/// The scenario on its card; where no flag names one and the usual one cannot run it, on the first that can.
fn on_a_card(args: &NewArgs, answers: Answers, file: &str, output: &OutputArgs) -> Result<Fitting, Failure> {
    let why = match answers.fitting(file)? {
        Ok(found) => return Ok(found),
        Err(why) => why,
    };
    let others = answers.cards(file)?;
    // Nobody has said how many cards there are: as many as hold the model together.
    if args.gpus.is_none()
        && (args.card.is_some() || others.is_empty())
        && let Some(gpus) = answers.gpus_that_fit(file)
    {
        return answers.with(gpus).fitting(file)?.map_err(Failure::BadInput);
    }
    let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
    let Some(first) = names.first() else {
        return Err(answers.no_card(file, &why));
    };
    let (model, asked, names) = (&answers.model.name, &answers.card, names.join(", "));
    if args.card.is_some() {
        let more = answers.gpus_that_fit(file);
        let more = more.map_or(String::new(), |gpus| format!(", or --gpus a multiple of {gpus}"));
        return Err(Failure::BadInput(format!(
            "--card: must be one that has prices, and memory, for {model} with {}, such as {names}{more}, got {asked} \
             ({why})",
            answers.systems.join(", ")
        )));
    }
    say(
        output,
        &format!("note: {asked} has no prices, or no memory, for this: the card is {first}; so could be {names}"),
    );
    answers.on(first).fitting(file)?.map_err(Failure::BadInput)
}
