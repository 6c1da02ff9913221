//! What `tenantry plan` says: `plan.json`, and the same as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::human::{self, ABSENT};
use crate::terminal::{Style, figures};

/// A whole `plan.json`. What does not apply is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// Of the file's form: 1.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// What was searched for: `fewest-cards`, `least-cost`, `most-tenants`, `highest-rate`, `tightest-latency`.
    pub find: String,
    /// Whether anything keeps the target. Where nothing does, the answer names what comes nearest.
    pub feasible: bool,
    /// In a sentence.
    pub answer: String,
    /// How sure the answer is, from 0 to 1: all decisions that it rests on together.
    pub confidence: f64,
    /// Every system with its settings on every card, in the plan's order.
    pub options: Vec<PlanOption>,
    /// What costs how much and answers how fast, of all that was run and keeps the target, by rising cost.
    pub front: Vec<FrontPoint>,
    /// At which quantile its latencies are, such as `p98`.
    #[serde(default = "p98")]
    pub latency_at: String,
    /// What the costs of `front` are in.
    pub cost_unit: CostUnit,
    /// What keeps the answer from being better.
    pub binds: Option<Binds>,
    /// How the answer moves.
    pub moves: Vec<Move>,
    /// What it took.
    pub runs: PlanRuns,
    /// What must be known before trusting it.
    pub notes: Vec<String>,
}

fn p98() -> String {
    "p98".to_owned()
}

/// What costs are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostUnit {
    /// Cards, where they have no price.
    Cards,
    /// The price of all cards, an hour.
    CostPerHour,
    /// Where the load differs, cards without a price: for how long a million requests take them.
    CardHoursPerMillion,
    /// Likewise with prices.
    CostPerMillion,
}

impl CostUnit {
    /// Of a column.
    pub fn name(self) -> &'static str {
        match self {
            CostUnit::Cards => "Cards in all",
            CostUnit::CostPerHour => "Cost/h",
            CostUnit::CardHoursPerMillion => "Card-hours/million requests",
            CostUnit::CostPerMillion => "Cost/million requests",
        }
    }
}

/// A system with its settings on a kind of card, where it was decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanOption {
    /// The system's name.
    pub system: String,
    /// Its settings by path below it.
    pub settings: BTreeMap<String, serde_json::Value>,
    /// The card's profile.
    pub card: String,
    /// How many cards.
    pub gpus: u32,
    /// How many tenants.
    pub tenants: u32,
    /// Requests a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rps: Option<f64>,
    /// Of all cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<f64>,
    /// Of the requests offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_million_requests: Option<f64>,
    /// The share of requests that kept the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// Half the width of its interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_half_width: Option<f64>,
    /// The share of the answers that are right, where somebody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// At the target's quantile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// Likewise to the first token, where the target limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Likewise from one token to the next, where the target limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// How sure the decision about it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Runs of this one level.
    pub runs: u32,
    /// What came of it, in a few words.
    pub verdict: String,
    /// It is the answer.
    pub chosen: bool,
}

impl PlanOption {
    /// The system with its settings.
    pub fn name(&self) -> String {
        name(&self.system, self.settings.iter())
    }

    /// The verdict as tables have it: by the number of its reason among `reasons`, where it has one.
    fn verdict_by_number(&self, reasons: &[&str]) -> String {
        let number = reasons.iter().position(|reason| Some(*reason) == self.reason());
        number.map_or_else(|| self.verdict.clone(), |number| format!("cannot run ({})", number + 1))
    }

    /// Why it cannot be run; nothing where it can.
    fn reason(&self) -> Option<&str> {
        self.verdict.strip_prefix(CANNOT_RUN)
    }
}

/// How sure something is, for people: nothing that rests on a sample is certain.
pub fn sure(confidence: f64) -> String {
    human::percent(confidence.min(0.9999))
}

/// A system with its settings, for people: `hmi (max_size 16, pipeline layerwise)`. Settings are called by as much of
/// the end of their paths as tells them apart.
pub fn name<'a>(system: &str, settings: impl Iterator<Item = (&'a String, &'a serde_json::Value)>) -> String {
    let settings: Vec<(&String, &serde_json::Value)> = settings.collect();
    let end = |path: &str, parts: usize| {
        let all: Vec<&str> = path.split('.').collect();
        all[all.len().saturating_sub(parts)..].join(".")
    };
    let is_taken = |path: &str, parts: usize| {
        let others = settings.iter().filter(|(other, _)| other.as_str() != path);
        others.into_iter().any(|(other, _)| end(other, parts) == end(path, parts))
    };
    let called = |path: &str| {
        let parts = (1..=path.split('.').count()).find(|parts| !is_taken(path, *parts));
        parts.map_or_else(|| path.to_owned(), |parts| end(path, parts))
    };
    let setting = |(path, value): &(&String, &serde_json::Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{} {value}", called(path))
    };
    match settings.is_empty() {
        true => system.to_owned(),
        false => format!(
            "{system} ({})",
            settings.iter().map(setting).collect::<Vec<_>>().join(", ")
        ),
    }
}

/// A point of cost against latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrontPoint {
    /// The system with its settings.
    pub name: String,
    /// The card's profile.
    pub card: String,
    /// How many.
    pub gpus: u32,
    /// How many tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<u32>,
    /// Requests a second; absent where clients wait for their answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_rps: Option<f64>,
    /// In the plan's `cost_unit`.
    pub cost: f64,
    /// At the target's quantile.
    pub latency_ms: f64,
    /// Nothing that was run is both cheaper and faster.
    pub on_front: bool,
}

/// What keeps the answer from being better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binds {
    /// `compute`, `link`, `host-lookup`, `host-disk`, `solver`, `memory` or `none`.
    pub what: String,
    /// In a sentence.
    pub sentence: String,
    /// Of the level that just fails, or of the answer where there is none: how busy each kind of lane was, and how full
    /// the memory.
    pub shares: BTreeMap<String, f64>,
}

/// The answer under other circumstances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    /// What is different.
    #[serde(rename = "if")]
    pub when: String,
    /// The answer then.
    pub then: String,
}

/// What a plan took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRuns {
    /// Runs for the answer itself.
    pub answer: usize,
    /// Runs for all that is said, the front and the moves included.
    pub all: usize,
    /// Options times levels: what trying everything once would take.
    pub everything: usize,
}

/// How the verdict on an option begins that its card cannot run; the reason follows.
pub const CANNOT_RUN: &str = "cannot run: ";

impl PlanReport {
    /// Why options cannot be run: each reason once, since it is that of all settings of a system.
    pub fn reasons(&self) -> Vec<&str> {
        let mut reasons: Vec<&str> = Vec::new();
        for reason in self.options.iter().filter_map(PlanOption::reason) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// The options as rows; the first is the header. Columns that no option has anything in are left out.
    /// [`reasons`](Self::reasons) are given by their numbers.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let [ttft, tpot] = ["TTFT", "TPOT"].map(|part| format!("{part} {} ms", self.latency_at));
        let latency = self.latency_title();
        let titles = [
            "System",
            "Card",
            "Cards",
            "Tenants",
            "Requests/s",
            "In target",
            "Right",
            &ttft,
            &tpot,
            &latency,
            "Cost/h",
            "Cost/million",
            "Sure",
            "Runs",
            "Verdict",
        ];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        let number = |value: Option<f64>| value.map_or(ABSENT.to_owned(), human::number);
        let reasons = self.reasons();
        for option in &self.options {
            let within = option.within.map_or(ABSENT.to_owned(), |within| {
                let width = option.within_half_width.filter(|width| *width >= 0.0005 && width.is_finite());
                let width = width.map_or(String::new(), |width| format!(" ± {:.1}", width * 100.0));
                format!("{}{width}", human::percent(within))
            });
            rows.push(vec![
                format!("{}{}", if option.chosen { "→ " } else { "" }, option.name()),
                option.card.clone(),
                human::count(option.gpus.into()),
                human::count(option.tenants.into()),
                number(option.offered_rps),
                within,
                option.accuracy.map_or(ABSENT.to_owned(), human::percent),
                number(option.ttft_ms),
                number(option.tpot_ms),
                number(option.latency_ms),
                number(option.cost_per_hour),
                number(option.cost_per_million_requests),
                option.confidence.map_or(ABSENT.to_owned(), sure),
                option.runs.to_string(),
                option.verdict_by_number(&reasons),
            ]);
        }
        let shown = |column: &usize| rows[1..].iter().any(|row| row[*column] != ABSENT);
        let columns: Vec<usize> = (0..titles.len()).filter(shown).collect();
        let row = |row: &Vec<String>| columns.iter().map(|column| row[*column].clone()).collect();
        rows.iter().map(row).collect()
    }

    /// Of a column of latencies: of whole answers, which is said where the target is of their parts.
    fn latency_title(&self) -> String {
        match self.is_of_parts() {
            true => format!("Answer {} ms", self.latency_at),
            false => format!("{} ms", self.latency_at),
        }
    }

    /// Whether the target limits parts of an answer.
    pub fn is_of_parts(&self) -> bool {
        self.options.iter().any(|option| option.ttft_ms.is_some() || option.tpot_ms.is_some())
    }

    /// The points on the front as rows; the first is the header. Tenants and the load are columns where they tell
    /// points apart.
    pub fn front_rows(&self) -> Vec<Vec<String>> {
        let points: Vec<&FrontPoint> = self.front.iter().filter(|point| point.on_front).collect();
        let differ =
            |figure: fn(&FrontPoint) -> Option<f64>| points.windows(2).any(|pair| figure(pair[0]) != figure(pair[1]));
        let tenants = differ(|point| point.tenants.map(f64::from));
        let load = differ(|point| point.offered_rps);
        // Where cards are the cost, they have a column already.
        let has_cost = self.cost_unit != CostUnit::Cards;
        let row = |cells: [String; 7]| -> Vec<String> {
            let has = [true, true, true, tenants, load, has_cost, true];
            let cells = cells.into_iter().zip(has).filter(|(_, has)| *has);
            cells.map(|(cell, _)| cell).collect()
        };
        let header = row([
            "System".to_owned(),
            "Card".to_owned(),
            "Cards".to_owned(),
            "Tenants".to_owned(),
            "Requests/s".to_owned(),
            self.cost_unit.name().to_owned(),
            self.latency_title(),
        ]);
        let points = points.iter().map(|point| {
            row([
                point.name.clone(),
                point.card.clone(),
                human::count(point.gpus.into()),
                point.tenants.map_or(ABSENT.to_owned(), |tenants| human::count(tenants.into())),
                point.offered_rps.map_or(ABSENT.to_owned(), human::number),
                human::number(point.cost),
                human::number(point.latency_ms),
            ])
        });
        std::iter::once(header).chain(points).collect()
    }

    /// The runs that it took, in a sentence.
    pub fn effort(&self) -> String {
        let PlanRuns {
            answer,
            all,
            everything,
        } = self.runs;
        format!(
            "{answer} runs for the answer and {} for the rest; every level of every option once would be {everything}.",
            all - answer
        )
    }

    /// For the terminal.
    pub fn text(&self, style: Style) -> String {
        let mut text = format!("{}\n\n{}\n", self.answer, figures(&self.rows(), style));
        for (number, reason) in self.reasons().into_iter().enumerate() {
            text += &format!("({}) {reason}\n", number + 1);
        }
        if let Some(binds) = &self.binds {
            text += &format!("\nWhat binds: {}\n", binds.sentence);
        }
        for Move { when, then } in &self.moves {
            text += &format!("{when}: {then}\n");
        }
        if self.front.iter().filter(|point| point.on_front).count() > 1 {
            text += &format!("\nCost against latency:\n{}\n", figures(&self.front_rows(), style));
        }
        text += &format!("\n{}", self.effort());
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_said_once_and_points_are_told_apart() {
        let option = |system: &str, verdict: &str| PlanOption {
            system: system.to_owned(),
            settings: BTreeMap::new(),
            card: "l4".to_owned(),
            gpus: 1,
            tenants: 2,
            offered_rps: None,
            cost_per_hour: None,
            cost_per_million_requests: None,
            within: None,
            within_half_width: None,
            accuracy: None,
            latency_ms: None,
            ttft_ms: None,
            tpot_ms: None,
            confidence: None,
            runs: 0,
            verdict: verdict.to_owned(),
            chosen: false,
        };
        let long = "cannot run: system a: card l4 lacks a table";
        let mut report = PlanReport {
            schema: 1,
            scenario: "s".to_owned(),
            seed: 1,
            find: "fewest-cards".to_owned(),
            feasible: true,
            answer: "The answer.".to_owned(),
            confidence: 1.0,
            options: vec![option("a", long), option("a", long), option("b", "the answer")],
            front: Vec::new(),
            latency_at: "p98".into(),
            cost_unit: CostUnit::Cards,
            binds: None,
            moves: Vec::new(),
            runs: PlanRuns {
                answer: 1,
                all: 1,
                everything: 3,
            },
            notes: Vec::new(),
        };
        let text = report.text(Style::Plain);
        assert_eq!(text.matches("lacks a table").count(), 1, "{text}");
        assert_eq!(text.matches("cannot run (1)").count(), 2, "{text}");
        assert!(text.contains("\n(1) system a: card l4 lacks a table\n"), "{text}");

        let point = |tenants: u32| FrontPoint {
            name: "a".to_owned(),
            card: "l4".to_owned(),
            gpus: 2,
            tenants: Some(tenants),
            offered_rps: Some(10.0),
            cost: 1.0,
            latency_ms: 5.0,
            on_front: true,
        };
        report.front = vec![point(10), point(10)];
        assert_eq!(report.front_rows()[0], ["System", "Card", "Cards", "p98 ms"]);
        report.options[2].ttft_ms = Some(7.5);
        assert_eq!(report.front_rows()[0], ["System", "Card", "Cards", "Answer p98 ms"]);
        let of_options = report.rows();
        let column = of_options[0].iter().position(|title| title == "TTFT p98 ms").unwrap();
        assert_eq!([&of_options[1][column], &of_options[3][column]], ["–", "7.50"]);
        assert!(!of_options[0].contains(&"TPOT p98 ms".to_owned()), "nothing limits it");
        report.options[2].ttft_ms = None;
        report.front = vec![point(10), point(20)];
        assert_eq!(
            report.front_rows()[2],
            ["a", "l4", "2", "20", "5.00"],
            "what tells two points apart"
        );
    }

    #[test]
    fn settings_are_called_by_what_tells_them_apart() {
        let paths = [
            "cascade.stages[0].batch.max_size",
            "cascade.stages[1].batch.max_size",
            "dtype",
        ];
        let settings: Vec<(String, serde_json::Value)> = paths
            .iter()
            .zip([json!(8), json!(4), json!("f16")])
            .map(|(path, value)| (path.to_string(), value))
            .collect();
        let named = name("tabi", settings.iter().map(|(path, value)| (path, value)));
        assert_eq!(
            named,
            "tabi (stages[0].batch.max_size 8, stages[1].batch.max_size 4, dtype f16)"
        );
        assert_eq!(
            name("hmi", settings[..1].iter().map(|(path, value)| (path, value))),
            "hmi (max_size 8)"
        );
        assert_eq!(name("hmi", [].into_iter()), "hmi");
    }
}
