//! One batch of many tasks against full models: Figs. 7, 8 and 9.

use tenantry_reports::RunSummary;

use super::{Queries, TOLERANCE, greatest, least, mean, runs, runs_with};
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

/// What a throughput is set beside: one task's full model (the text), or PetS with one task (the authors' public
/// plots).
#[derive(Clone, Copy, Debug)]
enum Baseline {
    FullModel,
    OneTask,
}

/// PetS's throughput over that of one task, by shape and tasks.
fn speed_ups(
    lab: &Lab,
    (card, model): (&str, &str),
    baseline: Baseline,
    shapes: &[(u32, u32)],
    tasks: &[u32],
) -> Result<Vec<f64>, Failure> {
    let mut all = Vec::new();
    for &(each, tokens) in shapes {
        let queries = |tasks| Queries {
            card,
            model,
            tasks,
            each,
            tokens,
        };
        let pets = |tasks| Ok::<_, Failure>(rate(runs(lab, "pets/fig-7", 1, queries(tasks))?.of("pets")));
        let single = match baseline {
            Baseline::FullModel => rate(runs(lab, "pets/fig-8", 2, queries(1))?.of("seqs")),
            Baseline::OneTask => pets(1)?,
        };
        for &tasks in tasks {
            all.push(pets(tasks)? / single);
        }
    }
    Ok(all)
}

/// Fig. 7's mean over models, shapes and tasks on one of its cards.
pub fn mean_speed_up(lab: &Lab, card: &str) -> Result<f64, Failure> {
    let of_card = CARDS.iter().filter(|(name, ..)| *name == card);
    let mut all = Vec::new();
    for (card, _, tasks, _) in of_card {
        for model in MODELS {
            all.extend(speed_ups(lab, (card, model), Baseline::FullModel, &SHAPES, tasks)?);
        }
    }
    Ok(mean(&all))
}

/// Over one task alone.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let mut rows = Vec::new();
    for (card, name, tasks, paper) in CARDS {
        let mut all = Vec::new();
        let mut of_model = Vec::new();
        let mut over_one_task = Vec::new();
        for model in MODELS {
            let speed_ups = speed_ups(lab, (card, model), Baseline::FullModel, &SHAPES, &tasks)?;
            of_model.push(mean(&speed_ups));
            all.extend(speed_ups);
            over_one_task.extend(self::speed_ups(lab, (card, model), Baseline::OneTask, &SHAPES, &tasks)?);
        }
        let shorter = mean(&speed_ups(
            lab,
            (card, "bert-base"),
            Baseline::FullModel,
            &SHORTER,
            &tasks,
        )?);
        let over_one_task = mean(&over_one_task);
        let note = format!(
            "1 × 128, 2 × 64 and 4 × 32 tokens a task, as in the authors' public plots; with half as many tokens \
             BERT-base's mean is {shorter:.2}. The baseline is SeqS with one task, as the text says; the public plots \
             divide by PetS with one task, which would be {over_one_task:.2}"
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
                        .note("in the same shapes; on the V100 the engine's constant is taken to be as on the 1080 Ti"),
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

/// Queries of each task and their tokens, as in the authors' public scripts (`research/eval_throughput_seqs.sh`): the
/// paper's image is lost.
const FIGURE_8_SHAPES: [(u32, u32); 4] = [(4, 16), (2, 32), (1, 64), (1, 128)];

/// PetS over ParS, over SeqS, and ParS over SeqS, where each task has queries of one shape.
fn over(lab: &Lab, tasks: u32, (each, tokens): (u32, u32)) -> Result<[f64; 3], Failure> {
    let runs = runs(lab, "pets/fig-8", 2, on_1080_ti("bert-base", tasks, each, tokens))?;
    let [pets, pars, seqs] = ["pets", "pars", "seqs"].map(|system| rate(runs.of(system)));
    Ok([pets / pars, pets / seqs, pars / seqs])
}

/// The same by shape.
fn of_shapes(lab: &Lab, tasks: u32) -> Result<[Vec<f64>; 3], Failure> {
    let mut all = [const { Vec::new() }; 3];
    for shape in FIGURE_8_SHAPES {
        for (all, one) in all.iter_mut().zip(over(lab, tasks, shape)?) {
            all.push(one);
        }
    }
    Ok(all)
}

/// Fig. 8's PetS over ParS in the mean of its shapes.
pub fn mean_over_pars(lab: &Lab, tasks: u32) -> Result<f64, Failure> {
    let [pets_over_pars, ..] = of_shapes(lab, tasks)?;
    Ok(mean(&pets_over_pars))
}

/// Against full models side by side.
pub fn figure_8(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let [pets_over_pars, _, pars_over_seqs] = of_shapes(lab, 16)?;
    let mut rows = vec![
        Row::input(
            FIGURE,
            "PetS over ParS, 16 tasks, mean of four shapes",
            "×",
            1.177,
            mean(&pets_over_pars),
        )
        .note(
            "one constant, by how much a model beside it crowds a model, was fitted to this mean; the shapes are \
             those of the authors' public scripts",
        ),
    ];
    for ((each, tokens), ratio) in FIGURE_8_SHAPES.into_iter().zip(&pets_over_pars) {
        let what = format!("PetS over ParS, 16 tasks of {each} × {tokens} tokens: PetS wins");
        rows.push(Row::shape(FIGURE, what, "×", *ratio, *ratio > 1.0));
    }
    let [half_as_much, ..] = over(lab, 16, (1, 32))?;
    rows.push(
        Row::assumed(
            FIGURE,
            "PetS over ParS, 16 tasks of 1 × 32 tokens, which the paper does not have",
            "×",
            None,
            half_as_much,
        )
        .note(
            "assumes the same crowding, which slows work and not launching: with half the work of the least of the \
             four shapes PetS loses, as its own operators are mostly launching",
        ),
    );
    let crowd = "greatest of the four shapes; assumes that each model beside it crowds a model alike, so that 16 are \
                 as slow as the text says";
    for tasks in [1, 2, 4] {
        let [over_pars, over_seqs, _] = of_shapes(lab, tasks)?;
        let ours = greatest(&over_pars);
        let what = match tasks {
            1 => "PetS over ParS, 1 task: PetS loses".to_owned(),
            _ => format!("PetS over ParS, {tasks} tasks: PetS does not win"),
        };
        let row = Row::shape(
            FIGURE,
            what,
            "×",
            ours,
            if tasks == 1 { ours < 1.0 } else { ours <= 1.0 },
        );
        rows.push(row.note(crowd));
        if tasks == 1 {
            let ours = greatest(&over_seqs);
            let what = "PetS over SeqS, 1 task: PetS loses, since its operators come on top";
            rows.push(Row::shape(FIGURE, what, "×", ours, ours < 1.0).note("greatest of the four shapes"));
        }
    }
    rows.push(Row::shape(
        FIGURE,
        "ParS over SeqS, 16 tasks, least of the four shapes: ParS wins",
        "×",
        least(&pars_over_seqs),
        least(&pars_over_seqs) > 1.0,
    ));
    Ok(rows)
}

/// PetS by itself, among more tasks.
pub fn figure_8_alone(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 8";
    let alone = |tasks| -> Result<(f64, bool), Failure> {
        let runs = runs(lab, "pets/fig-7", 1, on_1080_ti("bert-base", tasks, 1, 64))?;
        Ok((rate(runs.of("pets")), runs.beyond(&["pets"])))
    };
    let [at_16, at_32, at_64, at_256] = [alone(16)?, alone(32)?, alone(64)?, alone(256)?];
    let row =
        |what: &str, (one, one_beyond): (f64, bool), (other, other_beyond): (f64, bool), holds: fn(f64) -> bool| {
            Row::shape(FIGURE, what, "×", one / other, holds(one / other)).extrapolated(one_beyond || other_beyond)
        };
    Ok(vec![
        row("PetS, 32 tasks over 16: still grows", at_32, at_16, |ratio| ratio > 1.0),
        row("PetS, 256 tasks over 64: a plateau", at_256, at_64, |ratio| {
            (ratio - 1.0).abs() < 0.1
        }),
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
    // One task's full model over all queries at once does what all tasks share.
    let together = |model, (each, tokens): (u32, u32)| -> Result<f64, Failure> {
        let all = runs(lab, "pets/fig-8", 2, on_1080_ti(model, 1, TASKS * each, tokens))?;
        Ok(computing_s(all.of("seqs")))
    };
    let masks = on_1080_ti("bert-base", TASKS, 1, 64);
    let masks = runs_with(lab, "pets/fig-8", 2, masks, &["tenants.kinds={mask-bert: 1}"])?;
    let of_masks = 1.0 - together("bert-base", (1, 64))? / computing_s(masks.of("pets"));
    for model in ["bert-base", "bert-large"] {
        for (each, tokens) in [(1, 64), (2, 32)] {
            let all = runs(lab, "pets/fig-8", 2, on_1080_ti(model, TASKS, each, tokens))?;
            let (pets, seqs) = (computing_s(all.of("pets")), computing_s(all.of("seqs")));
            let shared = together(model, (each, tokens))?;
            speed_ups.push(seqs / shared);
            shares.push(1.0 - shared / pets);
        }
    }
    Ok(vec![
        Row::predicted(
            FIGURE,
            "shared operators of 8 tasks, least speed-up",
            "×",
            [2.17, least(&speed_ups)],
            TOLERANCE,
        ),
        Row::predicted(
            FIGURE,
            "shared operators of 8 tasks, greatest speed-up",
            "×",
            [3.28, greatest(&speed_ups)],
            TOLERANCE,
        )
        .note("α is one constant and one rate for all models, from the authors' own table of BERT-base"),
        Row::input(
            FIGURE,
            "tasks' operators, least share of the time",
            "%",
            27.4,
            100.0 * least(&shares),
        ),
        Row::predicted(
            FIGURE,
            "tasks' operators, greatest share of the time",
            "%",
            [41.3, 100.0 * greatest(&shares)],
            TOLERANCE,
        )
        .note(format!(
            "eight tasks whose kinds are drawn, as the paper's are, by the scenario's seed: of masks alone, which take \
             longest here, it is {:.1} %. β is a roofline with one factor for all kinds and models, fitted at the \
             least share",
            100.0 * of_masks
        )),
    ])
}
