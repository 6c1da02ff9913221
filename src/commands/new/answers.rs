//! What a scenario is made of: flags, and defaults for what they do not say.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use tenantry_profiles::{Card, DType, ModelKind, ModelShape, did_you_mean};
use tenantry_reports::human;
use tenantry_reports::manifest::quoted;
use tenantry_reports::trace::Collector;
use tenantry_scenarios::{Scenario, ScenarioErrors};
use tenantry_traces::describe::silence_before;
use tenantry_traces::read::{Format, Record, Records};
use tenantry_traces::{Duration, Time, TraceError, out_of_order};

use super::write;
use crate::cards::{card_names, find_card};
use crate::cli::NewArgs;
use crate::commands::trace::source;
use crate::failure::Failure;
use crate::output::counted;
use crate::runs::Loaded;

/// What can be asked, answered.
#[derive(Clone, Debug)]
pub struct Answers {
    pub model: ModelShape,
    pub tenants: String,
    /// The trace says which tenant asks.
    pub tenants_of_trace: bool,
    pub rate: String,
    pub trace: Option<String>,
    /// Before the trace's first request, where it is to be left out.
    pub silent: Option<Duration>,
    pub input: String,
    pub output: String,
    pub latency: String,
    pub at: String,
    pub card: String,
    pub gpus: String,
    pub systems: Vec<String>,
}

impl Answers {
    /// Of flags, and of what their trace says.
    pub fn of(args: &NewArgs, of_trace: &OfTrace) -> Result<Answers, Failure> {
        let systems: Vec<String> = args.systems.iter().map(|name| name.trim().to_owned()).collect();
        let model = model_of(args.model.as_deref(), &systems, of_trace)?;
        let OfTrace {
            tenants: of_trace,
            silent,
            ..
        } = *of_trace;
        let generates = model.kind == ModelKind::Decoder;
        let usual = Usual::of(generates);
        let or = |flag: &Option<String>, usual: &str| flag.clone().unwrap_or_else(|| usual.to_owned());
        let tenants = or(
            &args.tenants,
            &of_trace.map_or(usual.tenants.to_owned(), |count| count.to_string()),
        );
        if let (Some(least), Some(trace)) = (of_trace, &args.trace)
            && tenants.parse::<u32>().is_ok_and(|count| count < least)
        {
            return Err(Failure::BadInput(format!(
                "--tenants: must be at least {least}, since {trace} has so many, got {tenants}"
            )));
        }
        if let Some(output) = args.output.as_ref().filter(|_| !generates) {
            return Err(Failure::BadInput(format!(
                "--output: must be left out for a model that generates nothing, as {}, got {output}",
                model.name
            )));
        }
        Ok(Answers {
            model,
            tenants,
            tenants_of_trace: of_trace.is_some(),
            rate: or(&args.rate, usual.rate),
            trace: args.trace.clone(),
            silent,
            input: or(&args.input, usual.input),
            output: or(&args.output, usual.output),
            latency: or(&args.latency, usual.latency),
            at: or(&args.at, usual.at),
            card: or(&args.card, usual.card),
            gpus: or(&args.gpus, usual.gpus),
            systems: match systems.is_empty() {
                false => systems,
                true => write::usual_systems(generates).map(str::to_owned).to_vec(),
            },
        })
    }

    /// Whether what is asked for is generated.
    pub fn generates(&self) -> bool {
        self.model.kind == ModelKind::Decoder
    }

    /// Whether none of the systems is of the model.
    pub fn have_own_models(&self) -> bool {
        write::are_cascades(&self.systems)
    }

    /// That outputs end where the model's positions do; nothing where all are made as asked.
    pub fn cut_outputs(&self) -> Option<String> {
        let (input, output): (u32, u32) = (self.input.parse().ok()?, self.output.parse().ok()?);
        let Answers { model, trace, .. } = self;
        let left = model.positions.checked_sub(input)?;
        let is_cut = trace.is_none() && self.generates() && output > left;
        is_cut.then(|| {
            format!(
                "inputs of {} tokens leave {} of the {} positions of {}: outputs of {} tokens end there",
                human::count(input.into()),
                human::count(left.into()),
                human::count(model.positions.into()),
                model.name,
                human::count(output.into())
            )
        })
    }

    /// The scenario's text, which is to be called `file`, and what it says.
    pub fn scenario(&self, file: &str, laid_out: LaidOut) -> Result<(String, Scenario), ScenarioErrors> {
        let text = write::scenario(file, self, laid_out);
        let scenario = Scenario::from_yaml(file, &text, &[])?;
        Ok((text, scenario))
    }

    /// The scenario with models laid out as its card has prices and memory for: as the presets say where it does, on as
    /// few cards as hold one. Where the card cannot run it, the inner error says why.
    ///
    /// # Errors
    /// When an answer is wrong whatever the card.
    pub fn fitting(&self, file: &str) -> Result<Result<Fitting, String>, Failure> {
        Ok(match self.laid_out(file, LaidOut::default())? {
            Ok(found) => Ok(found),
            Err(why) => self.shares().find_map(|cards| self.on_so_many(file, cards)).ok_or(why),
        })
    }

    /// Likewise where each model lies on so many cards.
    fn on_so_many(&self, file: &str, cards: u32) -> Option<Fitting> {
        let dtypes = [None, Some(DType::F16), Some(DType::Bf16), Some(DType::F32)];
        let all = dtypes.into_iter().map(|dtype| LaidOut { dtype, cards });
        all.filter_map(|laid_out| self.laid_out(file, laid_out).ok()).find_map(Result::ok)
    }

    fn laid_out(&self, file: &str, laid_out: LaidOut) -> Result<Result<Fitting, String>, Failure> {
        let (text, scenario) = self.scenario(file, laid_out).map_err(|errors| by_flags(&errors.to_string(), file))?;
        let loaded = Loaded::of_what_fits(scenario, None).map_err(|failure| match failure {
            Failure::BadInput(errors) => by_flags(&errors, file),
            failure => failure,
        })?;
        let refused = (0..loaded.runs.len()).find_map(|run| loaded.refusal(run));
        Ok(match refused {
            Some(why) => Err(self.without_file(&why, file)),
            None => Ok(Fitting { text, loaded, laid_out }),
        })
    }

    /// On how many of the cards a model may lie: on one, and where it generates on each number that divides them and
    /// its heads.
    fn shares(&self) -> impl Iterator<Item = u32> {
        let gpus: u32 = self.gpus.parse().unwrap_or(1);
        let most = self.most_shared();
        (1..=most).filter(move |cards| gpus.is_multiple_of(*cards) && most.is_multiple_of(*cards))
    }

    fn most_shared(&self) -> u32 {
        match self.model.kind {
            ModelKind::Encoder => 1,
            ModelKind::Decoder => self.model.kv_heads,
        }
    }

    /// The same with more cards, by the number that may share a model.
    fn on_several(&self) -> impl Iterator<Item = (u32, Answers)> {
        let most = self.most_shared();
        let gpus = (2..=most).filter(move |gpus| most.is_multiple_of(*gpus));
        gpus.map(|gpus| (gpus, self.with(gpus)))
    }

    /// The same on so many cards.
    pub fn with(&self, gpus: u32) -> Answers {
        Answers {
            gpus: gpus.to_string(),
            ..self.clone()
        }
    }

    /// On how many cards it can be run at least, where these are too few to hold a model.
    pub fn gpus_that_fit(&self, file: &str) -> Option<u32> {
        let mut several = self.on_several();
        several.find_map(|(gpus, answers)| answers.on_so_many(file, gpus).map(|_| gpus))
    }

    /// How many cards hold a model together, by the fewest, and which do.
    ///
    /// # Errors
    /// As [`Answers::cards`].
    pub fn cards_together(&self, file: &str) -> Result<Option<(String, NamedCards)>, Failure> {
        for (_, answers) in self.on_several() {
            let cards = answers.cards(file)?;
            if !cards.is_empty() {
                return Ok(Some((answers.gpus, cards)));
            }
        }
        Ok(None)
    }

    /// Why a card cannot run it, of a scenario that is not there: without the file's name, and measured by the model's.
    fn without_file(&self, why: &str, file: &str) -> String {
        let why = why.strip_prefix(&format!("{file}: card: ")).unwrap_or(why);
        why.replace(&format!(" --for {file}"), &format!(" --models {}", self.model.name))
    }

    /// The same on another card.
    pub fn on(&self, card: &str) -> Answers {
        Answers {
            card: card.to_owned(),
            ..self.clone()
        }
    }

    /// The cards by name that can run it: measured ones first.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn cards(&self, file: &str) -> Result<NamedCards, Failure> {
        let fits = |card: &String| self.on(card).fitting(file).is_ok_and(|fit| fit.is_ok());
        let found = card_names().into_iter().filter(fits);
        let mut cards: NamedCards =
            found.map(|name| find_card(&name).map(|card| (name, card))).collect::<Result<_, _>>()?;
        cards.sort_by(|(a, of_a), (b, of_b)| of_a.provenance.source.cmp(&of_b.provenance.source).then(a.cmp(b)));
        Ok(cards)
    }

    /// That none of the cards can run it, of which the one that was asked for cannot because of `why`; and what would
    /// be needed.
    pub fn no_card(&self, file: &str, why: &str) -> Failure {
        let Answers { model, card, gpus, .. } = self;
        let (model, systems) = (&model.name, self.systems.join(", "));
        let mut names = std::iter::once(card.clone()).chain(card_names());
        let more = names.find_map(|card| Some((self.on(&card).gpus_that_fit(file)?, card)));
        Failure::BadInput(match more {
            Some((needed, other)) if other != *card => format!(
                "--card: must be one that holds {model} with {systems}, as {needed} {other} do together (--gpus \
                 {needed}), got {card} ({why})"
            ),
            Some((needed, card)) => format!(
                "--gpus: must be a multiple of {needed} for {model} with {systems}, since so many {card} hold it together, \
                 got {gpus} ({why})"
            ),
            None => format!(
                "--model: must be one for which a card has prices, and memory, with {systems} on {}, got {model} ({card}: \
                 {why})",
                counted(gpus.parse().unwrap_or(0), "card", "cards")
            ),
        })
    }
}

/// Cards by what they are called.
pub type NamedCards = Vec<(String, Card)>;

/// How models lie on the cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaidOut {
    /// Of their numbers, where it is not as the presets say.
    pub dtype: Option<DType>,
    /// Which share each layer.
    pub cards: u32,
}

impl Default for LaidOut {
    fn default() -> LaidOut {
        LaidOut { dtype: None, cards: 1 }
    }
}

/// A scenario that its card can run.
pub struct Fitting {
    pub text: String,
    pub loaded: Loaded,
    pub laid_out: LaidOut,
}

/// What is taken where nothing is said.
pub struct Usual {
    pub tenants: &'static str,
    pub rate: &'static str,
    pub input: &'static str,
    pub output: &'static str,
    pub latency: &'static str,
    pub at: &'static str,
    /// One that has a usual model's tables, and comes with the program.
    pub card: &'static str,
    pub gpus: &'static str,
}

impl Usual {
    /// Of a model that generates, or of one that does not.
    pub fn of(generates: bool) -> Usual {
        Usual {
            tenants: "1000",
            // Punica serves six times that on the usual card, within the usual latency.
            rate: if generates { "2/s" } else { "100/s" },
            input: "64",
            output: "128",
            latency: if generates { "30s" } else { "100ms" },
            at: "p98",
            card: if generates { "a100-sxm" } else { "h100-sxm" },
            gpus: "1",
        }
    }
}

/// The model that was asked for, or a usual one; systems with models of their own leave nothing to ask for.
fn model_of(asked: Option<&str>, systems: &[String], of_trace: &OfTrace) -> Result<ModelShape, Failure> {
    match (asked, write::are_cascades(systems)) {
        (Some(model), true) => Err(Failure::BadInput(format!(
            "--model: must be left out where all systems have models of their own, as {}, got {model}",
            systems.join(", ")
        ))),
        (None, true) => built_in(USUAL_ENCODER),
        (asked, false) => built_in(asked.unwrap_or(of_trace.usual_model())),
    }
}

const USUAL_ENCODER: &str = "bert-base";
const USUAL_DECODER: &str = "llama-7b";

/// A model by name.
pub fn built_in(name: &str) -> Result<ModelShape, Failure> {
    ModelShape::builtin(name).ok_or_else(|| {
        let names = ModelShape::builtin_names();
        let meant = did_you_mean(name, names.iter().copied());
        Failure::BadInput(format!(
            "--model: must be one of {}, got {name}{meant}",
            names.join(", ")
        ))
    })
}

/// What a trace says of a scenario that replays it.
#[derive(Debug, Default)]
pub struct OfTrace {
    /// How many there are, by the largest number of one; nothing where it does not say who asks.
    pub tenants: Option<u32>,
    /// How many of them ask.
    pub who_ask: u64,
    /// Requests ask for tokens to be generated.
    pub generates: bool,
    /// Before the first of them, where that is longer than they last.
    pub silent: Option<Duration>,
    /// What is to be said of stretches without a request.
    pub holes: Option<String>,
    /// How many are replayed of each length of an input.
    inputs: BTreeMap<u32, u64>,
}

impl OfTrace {
    /// What requests of that kind are mostly answered by.
    pub fn usual_model(&self) -> &'static str {
        if self.generates { USUAL_DECODER } else { USUAL_ENCODER }
    }

    /// That requests are too long for a model, and will be refused; nothing where none is.
    pub fn too_long(&self, model: &ModelShape) -> Option<String> {
        // Who generates has a position left for a token.
        let most = model.positions - u32::from(model.kind == ModelKind::Decoder);
        let refused: u64 = self.inputs.range(most + 1..).map(|(_, requests)| requests).sum();
        (refused > 0).then(|| {
            format!(
                "of {} requests, {} have more than the {most} tokens that {} takes in, and will be refused",
                human::count(self.inputs.values().sum()),
                human::count(refused),
                model.name
            )
        })
    }
}

/// What the file that `--trace` names says of a scenario, where it names one.
pub fn of_flag(trace: Option<&str>) -> Result<OfTrace, Failure> {
    let said = trace.map_or(Ok(OfTrace::default()), of_trace);
    said.map_err(|why| Failure::BadInput(format!("--trace: {why}")))
}

/// Reads a trace, which must be of requests, each with an arrival and lengths; else says why it is of no use.
pub fn of_trace(trace: &str) -> Result<OfTrace, String> {
    let path = Path::new(trace);
    let told = |error: TraceError| error.to_string();
    let format = Format::of(path).map_err(told)?;
    if !format.replays() {
        return Err(format!(
            "{trace}: must have an arrival and lengths for each request, got {}; `tenantry trace convert --help` says \
             how requests are made of such a file",
            format.name()
        ));
    }
    let (mut all_say, mut first, mut last, mut generates) = (true, None, None::<Time>, false);
    let (mut tenants, mut inputs) = (HashSet::new(), BTreeMap::new());
    let mut rates = Some(Collector::new(1));
    let mut records = Records::open(path, false).map_err(told)?;
    while let Some(record) = records.next() {
        let record = record.map_err(told)?;
        if let (Some(at), Some(last)) = (record.arrival, last)
            && at < last
        {
            return Err(format!(
                "{}; `tenantry trace convert {} sorted.csv --sort` puts it in order",
                records.error(out_of_order(at, last)),
                quoted(trace)
            ));
        }
        let instant = Record {
            arrival: record.arrival,
            ..Record::default()
        };
        // Of instants that are years apart there are no figures.
        if rates.as_mut().is_some_and(|rates| rates.record(&instant).is_err()) {
            rates = None;
        }
        first = first.or(record.arrival);
        (last, all_say) = (record.arrival, all_say && record.tenant.is_some());
        tenants.extend(record.tenant);
        generates |= record.output_tokens.is_some_and(|tokens| tokens > 0);
        // Who was not answered is not asked for again.
        if !record.is_unanswered() {
            *inputs.entry(record.input_tokens.unwrap_or_default()).or_default() += 1;
        }
    }
    if last.is_none() {
        return Err(format!("{trace}: must have requests, got none"));
    }
    let largest = tenants.iter().max().copied();
    let holes = rates.and_then(|rates| source::distorted_rate(&rates.finish(trace, format.name(), 0).figures));
    Ok(OfTrace {
        holes,
        who_ask: tenants.len() as u64,
        tenants: largest.filter(|_| all_say).and_then(|tenant| tenant.checked_add(1)),
        generates,
        silent: first.zip(last).and_then(|(first, last)| silence_before(first, last)),
        inputs,
    })
}

/// What is wrong with a scenario that is not written yet, by the flags that have said it.
fn by_flags(errors: &str, file: &str) -> Failure {
    const FLAGS: [(&str, &str); 8] = [
        ("tenants.count: ", "--tenants: "),
        ("workload.arrivals.poisson.rate: ", "--rate: "),
        ("workload.lengths.input.fixed: ", "--input: "),
        ("workload.lengths.output.fixed: ", "--output: "),
        ("slo.latency: ", "--latency: "),
        ("slo.at: ", "--at: "),
        ("cluster.gpus: ", "--gpus: "),
        ("card: ", "--card: "),
    ];
    let line = |error: &str| {
        let placed = error.strip_prefix(file).and_then(|rest| rest.strip_prefix(':'));
        let told = placed.and_then(|rest| rest.split_once(": ")).map_or(error, |(_, told)| told);
        let named = FLAGS.iter().find_map(|(key, flag)| told.strip_prefix(key).map(|rest| format!("{flag}{rest}")));
        let of_system = || {
            let (path, rest) = told.strip_prefix("systems[")?.split_once(": ")?;
            // Other keys are a preset's, of which the flag says nothing.
            let is_preset = path.ends_with("].preset") || path.ends_with("].name");
            Some(format!("--systems: {}", if is_preset { rest } else { told }))
        };
        named.or_else(of_system).unwrap_or_else(|| error.to_owned())
    };
    Failure::BadInput(errors.lines().map(line).collect::<Vec<_>>().join("\n"))
}
