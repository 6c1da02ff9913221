//! The page's part on how far simulation and execution differ.

use serde::Serialize;

use super::charts::Chart;
use super::curves;
use crate::group::title;
use crate::human::{self, ABSENT};
use crate::terminal::spread;
use crate::validation::{Comparison, Pair, Validation, Verdict};

/// One comparison.
#[derive(Debug, Serialize)]
pub struct View {
    title: String,
    device: Option<String>,
    repeats: String,
    verdict: Option<Verdict>,
    figures: Vec<[String; 6]>,
    verdicts: Vec<Option<Verdict>>,
    stages: Vec<[String; 5]>,
    lanes: Vec<[String; 3]>,
    /// Drawn by the page's script.
    pub charts: Vec<Chart>,
}

/// The answer over all systems; none where there are no limits and nothing failed.
pub fn sentence(validation: &Validation) -> Option<(&'static str, &'static str)> {
    if validation.failures().is_some() {
        let what = "Requests failed when they were executed that the simulation answered: the two machines did not \
                    serve the same.";
        return Some(("missed", what));
    }
    Some(match (validation.verdict?, validation.is_measured()) {
        (Verdict::Within, _) => ("met", "The simulation is within the limits of what was executed."),
        (Verdict::Outside, true) => ("missed", "The simulation is outside the limits of what was executed."),
        (Verdict::Outside, false) => (
            "missed",
            "Not all that has limits was measured on both machines: the simulation is not judged.",
        ),
    })
}

impl View {
    /// `index` tells the page's comparisons apart.
    pub fn new(index: usize, comparison: &Comparison, pair: &Pair<'_>) -> View {
        let percent =
            |value: Option<f64>| value.map_or(ABSENT.to_owned(), |value| format!("{} %", human::signed(value)));
        let share = |value: Option<f64>| value.map_or(ABSENT.to_owned(), human::percent);
        let figures = comparison.figures.iter().map(|figure| {
            [
                figure_title(&figure.figure).to_owned(),
                spread(figure.simulated),
                spread(figure.executed),
                percent(figure.error_percent),
                figure.limit_percent.map_or(ABSENT.to_owned(), |limit| format!("±{} %", human::number(limit))),
                figure.verdict.map_or(ABSENT, word).to_owned(),
            ]
        });
        let stages = comparison.stages.iter().map(|stage| {
            [
                stage.stage.to_owned(),
                human::number(stage.simulated_ms),
                human::number(stage.executed_ms),
                human::signed(stage.difference_ms),
                human::signed(stage.points_of_mean_error),
            ]
        });
        let lanes = comparison
            .lanes
            .iter()
            .map(|lane| [lane.lane.clone(), share(lane.simulated), share(lane.executed)]);
        let (simulated, executed) = (comparison.simulated_repeats, comparison.executed_repeats);
        View {
            title: title(&comparison.system, &comparison.parameters),
            device: comparison.device.clone(),
            repeats: format!("{simulated} simulated, {executed} executed"),
            verdict: comparison.verdict,
            figures: figures.collect(),
            verdicts: comparison.figures.iter().map(|figure| figure.verdict).collect(),
            stages: stages.collect(),
            lanes: lanes.collect(),
            charts: curves::validation(index, pair),
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Within => "within",
        Verdict::Outside => "outside",
    }
}

/// For people.
fn figure_title(figure: &str) -> &str {
    match figure {
        "throughput_rps" => "Throughput /s",
        "latency_ms.mean" => "Mean latency ms",
        "latency_ms.p50" => "p50 ms",
        "latency_ms.p98" => "p98 ms",
        "latency_ms.p99" => "p99 ms",
        "batch_size_mean" => "Requests a batch",
        other => other,
    }
}
