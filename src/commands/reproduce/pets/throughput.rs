//! One batch of many tasks against full models: Figs. 7, 8 and 9.

use tenantry_reports::RunSummary;

use super::{Queries, runs};
use crate::commands::reproduce::lab::{Lab, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Queries of each task and their tokens, as in the authors' public plots: the paper's image is lost.
const SHAPES: [(u32, u32); 3] = [(1, 128), (2, 64), (4, 32)];
/// Other three, half as long, to see what that is worth.
const SHORTER: [(u32, u32); 3] = [(1, 64), (2, 32), (4, 16)];
const MODELS: [&str; 3] = ["distilbert", "bert-base", "bert-large"];
/// Card, its name, the tasks that it is given, and the paper's mean and greatest speed-up, if there is any.
type OfCard = (&'static str, &'static str, [u32; 3], Option<(f64, f64)>);

const CARDS: [OfCard; 3] = [
    ("paper-tx2", "TX2", [4, 16, 32], None),
    ("paper-gtx1080ti", "1080 Ti", [16, 32, 64], Some((1.53, 1.87))),
    ("paper-v100", "V100", [32, 64, 128], Some((1.63, 1.86))),
];

/// PetS's throughput over that of one task's full model, by model, shape and tasks.
fn speed_ups(lab: &Lab, card: &str, model: &str, shapes: &[(u32, u32)], tasks: &[u32]) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for &(each, tokens) in shapes {
        let queries = |tasks| Queries {
            card,
            model,
            tasks,
            each,
            tokens,
        };
        let single = rate(runs(lab, "pets/fig-8", 2, queries(1))?.of("seqs"));
        for &tasks in tasks {
            all.push(rate(runs(lab, "pets/fig-7", 1, queries(tasks))?.of("pets")) / single);
        }
    }
    Ok(all)
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

fn greatest(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

/// Over one task alone.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let mut rows = Vec::new();
    for (card, name, tasks, paper) in CARDS {
        let mut all = Vec::new();
        let mut of_model = Vec::new();
        for model in MODELS {
            let speed_ups = speed_ups(lab, card, model, &SHAPES, &tasks)?;
            of_model.push(mean(&speed_ups));
            all.extend(speed_ups);
        }
        let shorter = mean(&speed_ups(lab, card, "bert-base", &SHORTER, &tasks)?);
        let note = format!(
            "1 × 128, 2 × 64 and 4 × 32 tokens a task, as in the authors' public plots; with half as many tokens BERT-base's mean is {shorter:.2}"
        );
        match paper {
            Some((on_average, at_most)) => {
                let ours = mean(&all);
                rows.push(
                    Row::assumed(
                        FIGURE,
                        format!("{name}, mean over models, shapes and tasks"),
                        "×",
                        Some(on_average),
                        ours,
                    )
                    .note(note),
                );
                let ours = greatest(&all);
                rows.push(
                    Row::assumed(FIGURE, format!("{name}, greatest"), "×", Some(at_most), ours)
                        .note("in the same shapes; the engine's constant is another's (FasterTransformer) on the V100"),
                );
                rows.push(Row::shape(
                    FIGURE,
                    format!("{name}, BERT-large gains less than BERT-base: mean of the one over the other"),
                    "×",
                    of_model[2] / of_model[1],
                    of_model[2] < of_model[1],
                ));
            }
            None => rows.push(
                Row::shape(
                    FIGURE,
                    format!("{name}, no meaningful speed-up: mean"),
                    "×",
                    mean(&all),
                    mean(&all) < 1.1,
                )
                .note(note),
            ),
        }
    }
    Ok(rows)
}

/// On the card of Figs. 8 and 9.
fn on_1080_ti(model: &str, tasks: u32, each: u32, tokens: u32) -> Queries<'_> {
    Queries {
        card: "paper-gtx1080ti",
        model,
        tasks,
        each,
        tokens,
    }
}

/// Against full models side by side.
pub fn figure_8(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let over = |tasks| -> Result<(f64, f64, f64), Failure> {
        let runs = runs(lab, "pets/fig-8", 2, on_1080_ti("bert-base", tasks, 1, 64))?;
        let [pets, pars, seqs] = ["pets", "pars", "seqs"].map(|system| rate(runs.of(system)));
        Ok((pets / pars, pets / seqs, pars / seqs))
    };
    let (one, two, four, sixteen) = (over(1)?, over(2)?, over(4)?, over(16)?);
    let alone = |tasks| -> Result<f64, Failure> {
        Ok(rate(
            runs(lab, "pets/fig-7", 1, on_1080_ti("bert-base", tasks, 1, 64))?.of("pets"),
        ))
    };
    let (at_16, at_32, at_64, at_256) = (alone(16)?, alone(32)?, alone(64)?, alone(256)?);
    let crowd = "assumes that each model beside it crowds a model alike, so that 16 are as slow as the text says";
    Ok(vec![
        Row::input(
            FIGURE,
            "PetS over ParS, 16 tasks of one query of 64 tokens",
            "×",
            1.177,
            sixteen.0,
        )
        .note("the paper's is the mean of four shapes that are lost"),
        Row::shape(FIGURE, "PetS over ParS, 1 task: PetS loses", "×", one.0, one.0 < 1.0),
        Row::shape(
            FIGURE,
            "PetS over SeqS, 1 task: PetS loses, since its operators come on top",
            "×",
            one.1,
            one.1 < 1.0,
        ),
        Row::shape(
            FIGURE,
            "PetS over ParS, 2 tasks: PetS does not win",
            "×",
            two.0,
            two.0 <= 1.0,
        )
        .note(crowd),
        Row::shape(
            FIGURE,
            "PetS over ParS, 4 tasks: PetS does not win",
            "×",
            four.0,
            four.0 <= 1.0,
        )
        .note(crowd),
        Row::shape(
            FIGURE,
            "ParS over SeqS, 16 tasks: ParS wins",
            "×",
            sixteen.2,
            sixteen.2 > 1.0,
        ),
        Row::shape(
            FIGURE,
            "PetS, 32 tasks over 16: still grows",
            "×",
            at_32 / at_16,
            at_32 > at_16,
        ),
        Row::shape(
            FIGURE,
            "PetS, 256 tasks over 64: a plateau",
            "×",
            at_256 / at_64,
            (at_256 / at_64 - 1.0).abs() < 0.1,
        ),
    ])
}

/// Time on the compute lane, in seconds.
fn computing_s(run: &RunSummary) -> f64 {
    let lane = run.lanes.iter().find(|(name, _)| name.contains("compute"));
    lane.map_or(f64::NAN, |(_, lane)| lane.busy_share * run.duration_s)
}

/// Where the time goes.
pub fn figure_9(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 9";
    const TASKS: u32 = 8;
    let mut speed_ups = Vec::new();
    let mut shares = Vec::new();
    for model in ["bert-base", "bert-large"] {
        for (each, tokens) in [(1, 64), (2, 32)] {
            let all = runs(lab, "pets/fig-8", 2, on_1080_ti(model, TASKS, each, tokens))?;
            // One task's full model over all queries at once does what all tasks share.
            let together = runs(lab, "pets/fig-8", 2, on_1080_ti(model, 1, TASKS * each, tokens))?;
            let (pets, seqs) = (computing_s(all.of("pets")), computing_s(all.of("seqs")));
            let shared = computing_s(together.of("seqs"));
            speed_ups.push(seqs / shared);
            shares.push(1.0 - shared / pets);
        }
    }
    let extremes = |of: &[f64]| (of.iter().copied().fold(f64::INFINITY, f64::min), greatest(of));
    let ((slowest, fastest), (least, most)) = (extremes(&speed_ups), extremes(&shares));
    Ok(vec![
        Row::input(
            FIGURE,
            "shared operators of 8 tasks, least speed-up",
            "×",
            2.17,
            slowest,
        ),
        Row::predicted(
            FIGURE,
            "shared operators of 8 tasks, greatest speed-up",
            "×",
            [3.28, fastest],
            0.2,
        ),
        Row::input(
            FIGURE,
            "tasks' operators, least share of the time",
            "%",
            27.4,
            100.0 * least,
        ),
        Row::predicted(
            FIGURE,
            "tasks' operators, greatest share of the time",
            "%",
            [41.3, 100.0 * most],
            0.2,
        ),
    ])
}
