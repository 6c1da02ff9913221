//! Cards of the papers' own testbeds, made from the papers' own numbers.
//!
//! Each card has a committed file of inputs (`profiles/papers/NAME.yaml`): every number with its table, figure or
//! sentence, and what nobody stated marked as assumed. Code here turns these into tables, fits what is fitted, and says
//! with simple arithmetic what the paper's results would then be, so that the effect of every assumption can be told.

mod arlo;
mod draft;
mod hmi;
mod pets;
mod punica;
mod sensitivity;
mod tabi;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::card::{Card, Device, DeviceKind, Host, Lanes, Provenance, Source};
use crate::error::{Invalid, ProfileError};
use crate::names::near_miss;
use crate::origin::Origins;
use draft::Draft;

pub use sensitivity::{LEAST_CHANGE, Sensitivity};

/// How a number came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knowledge {
    /// The paper says it.
    Stated,
    /// Somebody else published it: a datasheet, a table of another project.
    Published,
    /// The paper says it, and not of what: the setting was chosen here.
    Interpreted,
    /// Nobody says it: chosen, so that the rest can be used.
    Assumed,
}

impl Knowledge {
    /// Whether something of it was chosen here.
    pub fn is_chosen(self) -> bool {
        matches!(self, Knowledge::Interpreted | Knowledge::Assumed)
    }
}

/// One number that a card is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// In its unit.
    pub value: f64,
    /// Of the value; empty for plain numbers.
    pub unit: String,
    /// How it came to be known.
    pub kind: Knowledge,
    /// The table, figure or sentence; for an assumption, why this and no other.
    pub source: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inputs {
    paper: String,
    date: String,
    device: String,
    host: Host,
    #[serde(default)]
    shares_host_memory: bool,
    notes: Vec<String>,
    numbers: BTreeMap<String, Number>,
}

/// A paper's testbed.
#[derive(Clone, Debug)]
pub struct Paper {
    name: &'static str,
    maker: Maker,
    inputs: Inputs,
}

/// What a result of the paper is to a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The card was fitted to it.
    Input,
    /// The card says it without having been fitted to it.
    Predicted,
    /// The card says it of a setting that the paper does not name.
    Assumed,
}

/// A result of the paper, and what first-order arithmetic over the card's tables says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What: `hBERT, requests a second (Table 6)`.
    pub what: &'static str,
    /// The paper's.
    pub paper: f64,
    /// The card's.
    pub ours: f64,
    /// Whether it was fitted.
    pub role: Role,
}

/// How one card is made.
#[derive(Clone, Copy, Debug)]
struct Maker {
    inputs: &'static str,
    tables: fn(&Paper) -> Draft,
    outcomes: fn(&Paper, &Card) -> Vec<Outcome>,
}

macro_rules! makers {
    ($($name:literal: $module:ident),+ $(,)?) => {
        const NAMES: &[&str] = &[$($name),+];
        const MAKERS: &[Maker] = &[$(Maker {
            inputs: include_str!(concat!("../../papers/", $name, ".yaml")),
            tables: $module::tables,
            outcomes: $module::outcomes,
        }),+];
    };
}
makers! {
    "paper-p5000": hmi,
    "paper-gtx1080ti": pets,
    "paper-v100": pets,
    "paper-tx2": pets,
    "paper-a100-80g": punica,
    "paper-a100-40g": punica,
    "paper-rtx3090": arlo,
    "paper-v100-tabi": tabi,
}

impl Paper {
    /// The names of all paper cards.
    pub fn names() -> &'static [&'static str] {
        NAMES
    }

    /// The testbed of the card called `name`.
    ///
    /// # Errors
    /// There is none of that name, or its file of inputs is broken.
    pub fn load(name: &str) -> Result<Paper, ProfileError> {
        let Some(index) = NAMES.iter().position(|known| *known == name) else {
            let suggested = near_miss(name, NAMES.iter().copied());
            let must = format!("one of {}", NAMES.join(", "));
            return Err(Invalid::argument("paper", must, name).suggest(suggested).into());
        };
        let file = format!("profiles/papers/{name}.yaml");
        let inputs: Inputs = crate::yaml::read(&file, MAKERS[index].inputs)?;
        for (name, number) in &inputs.numbers {
            if !number.value.is_finite() || number.source.trim().is_empty() {
                let field = format!("numbers.{name}");
                return Err(Invalid::new(&file, &field, "a number with its source", format!("{number:?}")).into());
            }
        }
        Ok(Paper {
            name: NAMES[index],
            maker: MAKERS[index],
            inputs,
        })
    }

    /// The card's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The paper.
    pub fn paper(&self) -> &str {
        &self.inputs.paper
    }

    /// All numbers, by name.
    pub fn numbers(&self) -> &BTreeMap<String, Number> {
        &self.inputs.numbers
    }

    /// The value of one of the numbers, in its unit.
    ///
    /// # Panics
    /// There is no number of that name: files of inputs and the code that reads them belong together.
    pub fn number(&self, name: &str) -> f64 {
        match self.inputs.numbers.get(name) {
            Some(number) => number.value,
            None => panic!("profiles/papers/{}.yaml has no number {name}", self.name),
        }
    }

    /// The same testbed with another value for one of its numbers.
    pub fn with(&self, name: &str, value: f64) -> Paper {
        let mut changed = self.clone();
        if let Some(number) = changed.inputs.numbers.get_mut(name) {
            number.value = value;
        }
        changed
    }

    /// Makes the card.
    pub fn card(&self) -> Card {
        let Draft {
            tables,
            origins,
            models,
        } = (self.maker.tables)(self);
        let gib = |name: &str| (self.number(name) * f64::from(1u32 << 30)) as u64;
        let mut notes = vec![format!(
            "fitted to {}; inputs in profiles/papers/{}.yaml",
            self.inputs.paper, self.name
        )];
        notes.extend(self.inputs.notes.iter().cloned());
        let device = Device {
            name: self.inputs.device.clone(),
            kind: DeviceKind::Cuda,
            memory_bytes: gib("memory_gib"),
            reserve_bytes: gib("reserve_gib"),
            shares_host_memory: self.inputs.shares_host_memory,
            driver: None,
            libtorch: None,
            host: self.inputs.host.clone(),
        };
        let lanes = Lanes {
            host: (self.inputs.host.cores - 1).max(1),
        };
        let command = format!("tenantry profile derive --paper {}", self.name);
        let provenance = Provenance::unmeasured(Source::Fitted, &self.inputs.date, &command, notes);
        Card {
            origins: Origins::new(origins),
            models,
            tables,
            ..Card::without_tables(self.name, device, lanes, provenance)
        }
    }

    /// The paper's results that follow from a card's tables by simple arithmetic, without queues and schedules.
    pub fn outcomes(&self, card: &Card) -> Vec<Outcome> {
        (self.maker.outcomes)(self, card)
    }
}

/// A result that the card was fitted to.
fn input(what: &'static str, paper: f64, ours: f64) -> Outcome {
    outcome(Role::Input, what, paper, ours)
}

/// A result that it was not.
fn predicted(what: &'static str, paper: f64, ours: f64) -> Outcome {
    outcome(Role::Predicted, what, paper, ours)
}

/// A result whose setting was chosen here.
fn assumed(what: &'static str, paper: f64, ours: f64) -> Outcome {
    outcome(Role::Assumed, what, paper, ours)
}

fn outcome(role: Role, what: &'static str, paper: f64, ours: f64) -> Outcome {
    Outcome {
        what,
        paper,
        ours,
        role,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn papers() -> impl Iterator<Item = Paper> {
        Paper::names().iter().map(|name| Paper::load(name).unwrap())
    }

    #[test]
    fn committed_cards_are_those_that_their_inputs_make() {
        for paper in papers() {
            let made = paper.card();
            made.validate().unwrap_or_else(|error| panic!("{error}"));
            let committed =
                Card::load(&Path::new("cards").join(paper.name())).unwrap_or_else(|error| panic!("{error}"));
            // The version is that of whoever wrote it.
            let mut made_then = made.clone();
            made_then.provenance.version.clone_from(&committed.provenance.version);
            assert!(
                made_then.digest() == committed.digest(),
                "profiles/cards/{0} is not what its inputs make: run `{1} --out profiles/cards/{0}`",
                paper.name(),
                made.provenance.command
            );
        }
    }

    #[test]
    fn every_table_says_where_it_comes_from() {
        for paper in papers() {
            let card = paper.card();
            for summary in crate::describe(&card) {
                let origin = card.origin(summary.family, &summary.table);
                assert_eq!(
                    origin.table.as_deref(),
                    Some(summary.table.as_str()),
                    "{} {}",
                    paper.name(),
                    summary.family
                );
            }
        }
    }

    #[test]
    fn inputs_are_met_and_predictions_are_not_made_of_air() {
        for paper in papers() {
            for outcome in paper.outcomes(&paper.card()) {
                let error = outcome.ours / outcome.paper - 1.0;
                assert!(outcome.ours.is_finite(), "{}: {outcome:?}", paper.name());
                if outcome.role == Role::Input {
                    assert!(error.abs() < 0.01, "{}: {outcome:?}", paper.name());
                }
            }
        }
    }

    #[test]
    fn every_number_has_a_use_or_is_for_the_reader() {
        // A number that no table and no result depends on is only there to be cited, and says so.
        for paper in papers() {
            let (card, before) = (paper.card(), paper.outcomes(&paper.card()));
            for (name, number) in paper.numbers() {
                let changed = paper.with(name, number.value * 1.1);
                let used = changed.card() != card || changed.outcomes(&card) != before;
                let cited = number.source.contains("for the reader");
                assert!(used != cited, "{}: {name}: used {used}, cited {cited}", paper.name());
            }
        }
    }

    #[test]
    fn memory_is_that_of_the_product() {
        let gib = |name: &str| Paper::load(name).unwrap().card().device.memory_bytes as f64 / f64::from(1u32 << 30);
        for (name, expected) in [
            ("paper-p5000", 16.0),
            ("paper-gtx1080ti", 11.0),
            ("paper-v100", 32.0),
            ("paper-tx2", 8.0),
            ("paper-a100-80g", 80.0),
            ("paper-a100-40g", 40.0),
            ("paper-rtx3090", 24.0),
            ("paper-v100-tabi", 16.0),
        ] {
            assert_eq!(gib(name), expected, "{name}");
        }
    }

    #[test]
    fn an_unknown_paper_is_refused_with_the_near_miss() {
        let error = Paper::load("paper-p500").unwrap_err().to_string();
        assert!(
            error.starts_with("paper: must be one of ") && error.ends_with("got paper-p500; did you mean paper-p5000?"),
            "{error}"
        );
    }
}
