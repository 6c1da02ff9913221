//! `tenantry reproduce`: the papers' tables and figures beside what the simulator says of the papers' own cards.
//!
//! Every figure of ours comes from a simulated run of a shipped scenario (`scenarios/hmi`, `scenarios/pets`,
//! `scenarios/punica`, `scenarios/arlo`), from a server's memory plan, from the formulas of a table's size, or, where
//! the paper timed a kernel or a layer alone, from the card's tables. What each comparison is worth stands beside it:
//! see `docs/reproduce.md`. `--sensitivity` asks instead what the assumptions of the cards are worth.

mod arlo;
mod grounds;
mod hmi;
mod lab;
mod number;
mod pets;
mod publish;
mod punica;
mod row;
mod seeds;
mod sensitivity;
mod show;
mod tabi;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::cards::card_of_option;
use crate::cli::{OutputArgs, PaperName, ReproduceArgs};
use crate::failure::Failure;
use crate::output::{Started, check_folder, style};
use crate::{interrupt, progress};
use grounds::Ground;
use lab::Lab;
use publish::{Pages, publish};
use row::Row;

/// One figure or table of a paper.
type Figure = fn(&Lab) -> Result<Vec<Row>, Failure>;

/// What came of one paper.
#[derive(Debug, Serialize)]
struct Reproduction {
    paper: &'static str,
    title: String,
    /// Whether all predictions, and all inputs, lie within their tolerance.
    within: bool,
    rows: Vec<Row>,
    /// What its figures rest on, in their order.
    grounds: Vec<OfFigure>,
}

/// What a figure or table rests on.
#[derive(Debug, Serialize)]
struct OfFigure {
    /// As its rows call it; several where one question answers them.
    figure: String,
    #[serde(flatten)]
    ground: Ground,
}

#[derive(Serialize)]
struct Written<'a> {
    schema: u32,
    /// Figures are missing, since the user stopped it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    papers: &'a [Reproduction],
}

pub fn run(args: &ReproduceArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    check_folder("--out", &args.out)?;
    if args.sensitivity {
        return sensitivity::run(args, started, output);
    }
    if let Some(card) = &args.profile {
        if args.paper != PaperName::Hmi {
            let message = format!("--profile: must be left out but for hmi, got {card}");
            return Err(Failure::BadInput(message));
        }
        card_of_option("--profile", card)?;
    }
    let papers = chosen(args.paper);
    let lab = Lab::new(interrupt::flag(), args.profile.clone());
    let steps = papers.iter().map(|(.., figures)| figures.len()).sum::<usize>();
    let bar = progress::bar(steps as u64, "reproducing", output.quiet);
    let mut reproductions = Vec::new();
    let (mut done, mut interrupted) = (0, false);
    for (paper, title, figures) in papers {
        let own = of_paper(&lab, figures, done > 0, &bar)?;
        (done, interrupted) = (done + own.done, own.interrupted);
        if !own.rows.is_empty() {
            reproductions.push(Reproduction {
                paper,
                title: match lab.other_card() {
                    None => title.to_owned(),
                    Some(card) => format!("{title}, and here on card {card}, which the paper does not have"),
                },
                within: !own.rows.iter().any(Row::missed),
                rows: own.rows,
                grounds: own.grounds,
            });
        }
        if interrupted {
            break;
        }
    }
    bar.finish_and_clear();
    let written = Written {
        schema: 1,
        interrupted,
        papers: &reproductions,
    };
    let pages = Pages {
        stem: "reproduce",
        pages: reproductions.iter().map(show::markdown).collect(),
        missing: interrupted.then_some("figures"),
        started,
        cards: lab.into_cards_used(),
    };
    publish(args, output, pages, &written, || {
        let texts: Vec<String> = reproductions.iter().map(|paper| show::text(paper, style())).collect();
        texts.join("\n\n")
    })?;
    if interrupted {
        return Err(Failure::Interrupted(format!(
            "{done} of {steps} figures are in {}",
            args.out.display()
        )));
    }
    none_missed(&reproductions)
}

/// The papers of the command line: each one's name, title and figures.
fn chosen(paper: PaperName) -> Vec<(&'static str, &'static str, &'static [Figure])> {
    let papers: [(PaperName, &str, &str, &[Figure]); 5] = [
        (PaperName::Hmi, "hmi", hmi::TITLE, hmi::FIGURES),
        (PaperName::Pets, "pets", pets::TITLE, pets::FIGURES),
        (PaperName::Punica, "punica", punica::TITLE, punica::FIGURES),
        (PaperName::Arlo, "arlo", arlo::TITLE, arlo::FIGURES),
        (PaperName::Tabi, "tabi", tabi::TITLE, tabi::FIGURES),
    ];
    let chosen = papers.into_iter().filter(|(name, ..)| paper == PaperName::All || paper == *name);
    chosen.map(|(_, name, title, figures)| (name, title, figures)).collect()
}

/// What came of a paper's figures.
#[derive(Default)]
struct OfPaper {
    rows: Vec<Row>,
    grounds: Vec<OfFigure>,
    /// Figures that were made.
    done: usize,
    /// The user stopped before all were.
    interrupted: bool,
}

/// A paper's figures one after the other. Where the user stops, what there is is kept: of this paper, or of others
/// before it (`others`).
fn of_paper(lab: &Lab, figures: &[Figure], others: bool, bar: &ProgressBar) -> Result<OfPaper, Failure> {
    let mut all = OfPaper::default();
    for (index, figure) in figures.iter().enumerate() {
        let mut own = match (figure(lab), lab.other_card()) {
            (Ok(own), None) => own,
            (Ok(own), Some(_)) => own.into_iter().map(Row::elsewhere).collect(),
            // A card without the tables is no mistake of the user's.
            (Err(Failure::BadInput(why)), Some(card)) => {
                vec![Row::not_checkable(hmi::NAMES[index], format!("on card {card}"), why)]
            }
            (Err(Failure::Interrupted(_)), _) if others || all.done > 0 => {
                all.interrupted = true;
                break;
            }
            (Err(failure), _) => return Err(failure),
        };
        all.done += 1;
        let ground = lab.take_ground();
        // Where a figure does not say of which runs a row is, it may be of one that was.
        let unsaid = |row: &&mut Row| row.ours.is_some() && row.extrapolated.is_none();
        for row in own.iter_mut().filter(unsaid) {
            row.extrapolated = Some(ground.extrapolated.is_some());
        }
        if ground != Ground::default() {
            all.grounds.push(OfFigure {
                figure: show::names(&own).join(", "),
                ground,
            });
        }
        all.rows.extend(own);
        bar.inc(1);
    }
    Ok(all)
}

/// Fails where a prediction is outside its tolerance.
fn none_missed(reproductions: &[Reproduction]) -> Result<(), Failure> {
    let missed = reproductions.iter().flat_map(|paper| {
        let missed = paper.rows.iter().filter(|row| row.missed());
        missed.map(|row| format!("{}, {}, {} ({})", paper.paper, row.figure, row.what, row.kind.name()))
    });
    let missed: Vec<String> = missed.collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::LimitNotMet(format!(
            "outside the tolerance: {}",
            missed.join("; ")
        ))),
    }
}
