//! `summary.csv`: one row a run, nested fields flattened to `latency_ms.p98`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::ReportError;
use crate::page::number;
use crate::summary::RunSummary;

/// Columns that say which run a row is, before all others.
const LEADING: [&str; 6] = ["system", "machine", "card", "gpus", "repeat", "seed"];

/// Base units, and what the name of a column of numbers in them ends with.
const SUFFIXES: [(&str, &str); 5] = [
    ("B", "_bytes"),
    ("B/s", "_bytes_per_s"),
    ("s", "_s"),
    ("/s", "_per_s"),
    ("%", "_percent"),
];

/// The table. Its columns are the union over all runs: those that say which run it is, the sweep's parameters, and the
/// rest in alphabetical order. What a run lacks is empty. A parameter with a unit has a column as it was written, and
/// one with the number alone, in the base unit that its name ends with: `…rate` has `6000/min`, `…rate_per_s` 100.
pub fn csv(runs: &[RunSummary]) -> Result<Vec<u8>, ReportError> {
    let rows: Vec<BTreeMap<String, String>> = runs.iter().map(row).collect::<Result<_, _>>()?;
    let names: BTreeSet<&str> = rows.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    let is_parameter = |name: &&&str| name.starts_with("parameters.");
    let mut header: Vec<&str> = LEADING.to_vec();
    header.extend(names.iter().filter(is_parameter));
    header.extend(names.iter().filter(|name| !is_parameter(name) && !LEADING.contains(name)));

    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header)?;
    for row in &rows {
        writer.write_record(header.iter().map(|name| row.get(*name).map_or("", String::as_str)))?;
    }
    Ok(writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?)
}

fn row(run: &RunSummary) -> Result<BTreeMap<String, String>, ReportError> {
    let mut cells = BTreeMap::new();
    flatten("", serde_json::to_value(run)?, &mut cells);
    for (path, value) in &run.parameters {
        if let (true, Some((number, base))) = (value.is_string(), number(value))
            && let Some((_, suffix)) = SUFFIXES.iter().find(|(of, _)| *of == base)
        {
            cells.insert(
                format!("parameters.{path}{suffix}"),
                to_twelve_digits(number).to_string(),
            );
        }
    }
    Ok(cells)
}

/// What somebody asked for is no figure of six digits; what a unit's factor leaves behind a number's own is none of it.
fn to_twelve_digits(number: f64) -> f64 {
    format!("{number:.11e}").parse().expect("a number was written")
}

fn flatten(path: &str, value: Value, cells: &mut BTreeMap<String, String>) {
    match value {
        // A parameter's own value stays one cell, whatever its form: a column is a path of the scenario.
        Value::Object(fields) if !path.starts_with("parameters.") => {
            for (key, value) in fields {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(&path, value, cells);
            }
        }
        Value::String(text) => {
            cells.insert(path.to_owned(), text);
        }
        value => {
            cells.insert(path.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::summary::{RunLabels, VIRTUAL};
    use crate::testing::{labels, record};
    use tenantry_core::RunRecord;
    use tenantry_traces::Duration;

    /// Points of a sweep stay apart, and a size is as many bytes as it is.
    #[test]
    fn what_was_asked_for_is_not_rounded_as_figures_are() {
        let parameters = [
            ("cluster.gpu_memory".to_owned(), json!("64 MiB")),
            ("workload.arrivals.poisson.rate".to_owned(), json!("1234.567/s")),
        ];
        let labels = RunLabels {
            parameters: parameters.into(),
            ..labels("hmi", VIRTUAL)
        };
        let cells = row(&RunSummary::new(labels, &RunRecord::default())).unwrap();
        assert_eq!(cells["parameters.cluster.gpu_memory_bytes"], "67108864");
        let rate = cells
            .iter()
            .find(|(path, _)| path.starts_with("parameters.workload") && path.ends_with("per_s"));
        assert_eq!(rate.unwrap().1, "1234.567");
    }

    #[test]
    fn every_figure_is_found_again_in_its_cell() {
        let parameters = [
            ("tenants.count".to_owned(), json!(10)),
            ("popularity".to_owned(), json!({ "zipf": 1.1 })),
            ("workload.arrivals.poisson.rate".to_owned(), json!("6000/min")),
        ];
        let odd = RunLabels {
            parameters: parameters.into(),
            ..labels("commas, \"quotes\"\nand lines", VIRTUAL)
        };
        let runs = [
            RunSummary::new(odd, &record(500, Duration::from_millis(90))),
            RunSummary::new(labels("idle", "cpu"), &RunRecord::default()),
        ];
        let bytes = csv(&runs).unwrap();
        let mut reader = csv::Reader::from_reader(bytes.as_slice());
        let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        assert_eq!(
            header[..10],
            [
                "system",
                "machine",
                "card",
                "gpus",
                "repeat",
                "seed",
                "parameters.popularity",
                "parameters.tenants.count",
                "parameters.workload.arrivals.poisson.rate",
                "parameters.workload.arrivals.poisson.rate_per_s"
            ]
        );
        let rows: Vec<BTreeMap<&str, String>> = reader
            .records()
            .map(|record| header.iter().map(String::as_str).zip(record.unwrap().iter().map(str::to_owned)).collect())
            .collect();
        assert_eq!(rows[0]["system"], runs[0].system);
        assert_eq!(rows[0]["parameters.workload.arrivals.poisson.rate"], "6000/min");
        assert_eq!(rows[0]["parameters.workload.arrivals.poisson.rate_per_s"], "100");
        assert_eq!(rows[0]["parameters.popularity"], r#"{"zipf":1.1}"#);
        assert_eq!(
            rows[0]["latency_ms.p98"].parse::<f64>().unwrap(),
            runs[0].latency_ms.unwrap().p98
        );
        assert_eq!(
            rows[0]["lanes.gpu0/copy.busy_share"].parse::<f64>().unwrap(),
            runs[0].lanes["gpu0/copy"].busy_share
        );
        assert_eq!(rows[1]["latency_ms.p98"], "", "absent, not zero");
        assert_eq!(rows[1]["requests.offered"], "0");
    }
}
