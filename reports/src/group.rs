//! Runs that differ only in their repeat.

use std::collections::HashMap;

use serde::Serialize;

use crate::curves::Run;
use crate::summary::{Parameters, RunSummary, VIRTUAL, rounded};

/// The repeats of one system at one sweep point on one machine.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// At least one, in the order in which they were asked for.
    pub runs: Vec<&'a Run>,
}

/// A figure over repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Over the repeats.
    pub mean: f64,
    /// Of the repeats.
    pub min: f64,
    /// Of the repeats.
    pub max: f64,
}

impl Spread {
    /// `None` where there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let values: Vec<f64> = values.into_iter().collect();
        (!values.is_empty()).then(|| Spread {
            mean: rounded(values.iter().sum::<f64>() / values.len() as f64),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl<'a> Group<'a> {
    /// All groups, in the order of their first runs.
    pub fn all(runs: &'a [Run]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        let mut places = HashMap::new();
        for run in runs {
            let RunSummary {
                machine,
                system,
                parameters,
                ..
            } = &run.summary;
            let place = places.entry((machine, system, identity(parameters))).or_insert_with(|| {
                groups.push(Group { runs: Vec::new() });
                groups.len() - 1
            });
            groups[*place].runs.push(run);
        }
        groups
    }

    /// The system's name.
    pub fn system(&self) -> &'a str {
        &self.runs[0].summary.system
    }

    /// The sweep point.
    pub fn parameters(&self) -> &'a Parameters {
        &self.runs[0].summary.parameters
    }

    /// `virtual` or a device.
    pub fn machine(&self) -> &'a str {
        &self.runs[0].summary.machine
    }

    /// Whether the runs were simulated.
    pub fn is_virtual(&self) -> bool {
        self.machine() == VIRTUAL
    }

    /// See [`title`].
    pub fn title(&self) -> String {
        title(self.system(), self.parameters())
    }

    /// The sweep point, for people; empty without a sweep.
    pub fn point(&self) -> String {
        point(self.parameters())
    }

    /// Where the runs ran, for people.
    pub fn place(&self) -> String {
        match self.machine() {
            VIRTUAL => "simulated".to_owned(),
            device => format!("executed on {device}"),
        }
    }

    /// A figure over those repeats that have it.
    pub fn spread(&self, figure: impl Fn(&RunSummary) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| figure(&run.summary)))
    }

    /// A figure's mean over those repeats that have it.
    pub fn mean(&self, figure: impl Fn(&RunSummary) -> Option<f64>) -> Option<f64> {
        self.spread(figure).map(|spread| spread.mean)
    }

    /// A quantile of latency by its name, such as `p98`, in milliseconds: the mean over those repeats that hold it.
    pub fn latency_at(&self, name: &str) -> Option<f64> {
        Spread::of(self.runs.iter().filter_map(|run| run.latency_at(name))).map(|spread| spread.mean)
    }

    /// Latency in milliseconds at each of [`shares`](crate::curves::shares), averaged over the repeats that finished
    /// requests; empty where none did.
    pub fn latency_ms(&self) -> Vec<f64> {
        let curves: Vec<&[f64]> = self
            .runs
            .iter()
            .map(|run| run.curves.latency_ms.as_slice())
            .filter(|curve| !curve.is_empty())
            .collect();
        let points = curves.first().map_or(0, |curve| curve.len());
        (0..points)
            .map(|i| curves.iter().map(|curve| curve[i]).sum::<f64>() / curves.len() as f64)
            .collect()
    }
}

/// A system and its sweep point, for people: `hmi (tenants.count 100)`.
pub fn title(system: &str, parameters: &Parameters) -> String {
    match parameters.is_empty() {
        true => system.to_owned(),
        false => format!("{system} ({})", point(parameters)),
    }
}

/// Equal for equal sweep points, and for these alone.
pub(crate) fn identity(parameters: &Parameters) -> String {
    serde_json::to_string(parameters).expect("keys are strings")
}

/// A sweep point, for people; empty without a sweep.
pub(crate) fn point(parameters: &Parameters) -> String {
    let values = parameters.iter().map(|(key, value)| format!("{key} {}", plain(value)));
    values.collect::<Vec<_>>().join(", ")
}

/// A parameter's value as a scenario writes it.
pub(crate) fn plain(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => format!("[{}]", values.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Object(keys) => {
            let keys = keys.iter().map(|(key, value)| format!("{key}: {}", plain(value)));
            format!("{{{}}}", keys.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn values_are_written_as_in_a_scenario() {
        let written = |value| plain(&value);
        assert_eq!(written(serde_json::json!("64 MiB")), "64 MiB");
        assert_eq!(written(serde_json::json!({"of": [64, 192]})), "{of: [64, 192]}");
        assert_eq!(written(serde_json::json!(null)), "null");
    }

    #[test]
    fn repeats_are_grouped_and_order_is_kept() {
        let runs = testing::runs();
        let groups = Group::all(&runs);
        let found: Vec<_> = groups.iter().map(|g| (g.system(), g.machine(), g.runs.len())).collect();
        let expected = [
            ("hmi", "virtual", 1),
            ("hmi", "cpu", 3),
            ("bert-dedicated", "virtual", 1),
            ("bert-dedicated", "cpu", 3),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_spread_holds_its_mean_and_nothing_has_none() {
        assert_eq!(
            Spread::of([3.0, 1.0, 2.0]),
            Some(Spread {
                mean: 2.0,
                min: 1.0,
                max: 3.0
            })
        );
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn titles_name_the_sweep_point() {
        let point = [
            ("popularity".to_owned(), "uniform".into()),
            ("tenants.count".to_owned(), 100.into()),
        ]
        .into();
        assert_eq!(title("hmi", &point), "hmi (popularity uniform, tenants.count 100)");
    }
}
