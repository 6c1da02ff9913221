//! The questions: each finds the flag that was not given.

use std::cell::Cell;

use tenantry_profiles::{ModelKind, ModelShape};

use super::answers::{Answers, LaidOut, OfTrace, Usual, built_in, of_flag, of_trace};
use super::ask::Dialogue;
use crate::cli::NewArgs;
use crate::failure::Failure;
use crate::output::come_by;

/// The flags with what is answered to the questions that they leave.
pub fn complete(args: &NewArgs) -> Result<NewArgs, Failure> {
    let mut asked = Asked::of(args)?;
    if asked.args.model.is_none() && !asked.answers()?.have_own_models() {
        asked.model()?;
    }
    let generates = asked.answers()?.generates();
    let usual = Usual::of(generates);
    let has_load = [&args.rate, &args.trace, &args.input, &args.output].iter().any(|flag| flag.is_some());
    if !has_load {
        asked.trace()?;
    }
    if asked.of_trace.tenants.is_none() {
        asked.text(|args| &mut args.tenants, "How many tenants?", usual.tenants)?;
    }
    if asked.args.trace.is_none() {
        asked.text(
            |args| &mut args.rate,
            "How many requests a second, from all of them?",
            usual.rate,
        )?;
        asked.text(|args| &mut args.input, "How many tokens has an input?", usual.input)?;
        if generates {
            asked.text(|args| &mut args.output, "How many tokens has an output?", usual.output)?;
        }
    }
    asked.text(
        |args| &mut args.latency,
        "Within which time must they be answered?",
        usual.latency,
    )?;
    asked.text(|args| &mut args.at, "For which share of them?", usual.at)?;
    let gpus = match asked.args.card {
        None => asked.card(usual.card)?,
        Some(_) => usual.gpus.to_owned(),
    };
    asked.text(|args| &mut args.gpus, "How many of them?", &gpus)?;
    Ok(asked.args)
}

struct Asked {
    dialogue: Dialogue,
    args: NewArgs,
    file: String,
    of_trace: OfTrace,
}

impl Asked {
    /// What is wrong with the flags is said before anything is asked.
    fn of(args: &NewArgs) -> Result<Asked, Failure> {
        let of_trace = of_flag(args.trace.as_deref())?;
        let asked = Asked {
            dialogue: Dialogue::new(),
            args: args.clone(),
            file: args.file.display().to_string(),
            of_trace,
        };
        let flags = asked.answers()?.scenario(&asked.file, LaidOut::default());
        flags.map_err(Failure::bad_input)?;
        Ok(asked)
    }

    /// By the flags and what was said so far.
    fn answers(&self) -> Result<Answers, Failure> {
        Answers::of(&self.args, &self.of_trace)
    }

    /// A flag's value, where it has none yet. The scenario's own rules say whether an answer fits.
    fn text(
        &mut self,
        flag: fn(&mut NewArgs) -> &mut Option<String>,
        question: &str,
        usual: &str,
    ) -> Result<(), Failure> {
        if flag(&mut self.args).is_some() {
            return Ok(());
        }
        let fits = |answer: &str| {
            let mut tried = self.args.clone();
            *flag(&mut tried) = Some(answer.to_owned());
            let answers = Answers::of(&tried, &self.of_trace).map_err(|failure| failure.reason().to_owned())?;
            // All else is known to be right.
            answers.scenario(&self.file, LaidOut::default()).map(drop).map_err(|errors| {
                let error = &errors.told[0];
                format!("must be {}, got {}", error.must, error.got)
            })
        };
        let answer = self.dialogue.text(question, usual, fits)?;
        *flag(&mut self.args) = Some(answer);
        Ok(())
    }

    fn model(&mut self) -> Result<(), Failure> {
        let shapes = ModelShape::builtin_names().iter().map(|name| built_in(name));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let width = shapes.iter().map(|shape| shape.name.len()).max().unwrap_or(0);
        let item = |shape: &ModelShape| {
            let does = match shape.kind {
                ModelKind::Encoder => "classifies texts",
                ModelKind::Decoder => "generates texts",
            };
            let (name, layers, hidden) = (&shape.name, shape.layers, shape.hidden);
            format!("{name:width$}  {does}, {layers} layers of {hidden}")
        };
        let items: Vec<String> = shapes.iter().map(item).collect();
        let usual = self.of_trace.usual_model();
        let usual = shapes.iter().position(|shape| shape.name == usual).unwrap_or(0);
        let chosen = self.dialogue.one_of("Which model do tenants build on?", &items, usual)?;
        self.args.model = Some(shapes[chosen].name.clone());
        Ok(())
    }

    fn trace(&mut self) -> Result<(), Failure> {
        const NONE: &str = "none";
        // A recording may be long: it is read once.
        let found = Cell::new(OfTrace::default());
        let fits = |answer: &str| match answer {
            NONE => Ok(()),
            file => of_trace(file).map(|said| found.set(said)),
        };
        let question = "A file with recorded requests, if there is one?";
        let answer = self.dialogue.text(question, NONE, fits)?;
        if answer != NONE {
            self.of_trace = found.take();
            self.args.trace = Some(answer);
        }
        Ok(())
    }

    /// Only cards that have prices and memory for what is asked, measured ones first; where no single one has, as few
    /// as have together. How many that is.
    fn card(&mut self, usual: &str) -> Result<String, Failure> {
        let answers = self.answers()?;
        let mut found = (answers.gpus.clone(), answers.cards(&self.file)?);
        if found.1.is_empty() && self.args.gpus.is_none() {
            found = answers.cards_together(&self.file)?.unwrap_or(found);
        }
        let (gpus, mut cards) = found;
        if cards.is_empty() {
            let why = answers.fitting(&self.file)?.err().unwrap_or_default();
            return Err(answers.no_card(&self.file, &why));
        }
        let width = cards.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let items: Vec<String> = cards
            .iter()
            .map(|(name, card)| {
                format!(
                    "{name:width$}  {}, {}",
                    card.device.name,
                    come_by(card.provenance.source)
                )
            })
            .collect();
        let usual = cards.iter().position(|(name, _)| name == usual).unwrap_or(0);
        let chosen = self.dialogue.one_of("On which card?", &items, usual)?;
        self.args.card = Some(cards.swap_remove(chosen).0);
        Ok(gpus)
    }
}
