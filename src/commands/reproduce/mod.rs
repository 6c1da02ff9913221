//! `tenantry reproduce`: the papers' tables and figures beside what the simulator says of the papers' own cards.
//!
//! Every figure of ours comes from a simulated run of a shipped scenario (`scenarios/hmi`, `scenarios/pets`, `scenarios/punica`, `scenarios/arlo`), from a server's memory
//! plan, from the formulas of a table's size, or, where the paper timed a kernel or a layer alone, from the card's tables. What each
//! comparison is worth stands beside it: see `docs/reproduce.md`. `--sensitivity` asks instead what the assumptions of the cards are worth.

mod arlo;
mod grounds;
mod hmi;
mod lab;
mod number;
mod pets;
mod punica;
mod row;
mod seeds;
mod sensitivity;
mod show;
mod tabi;

use serde::Serialize;
use tenantry_reports::folder::json;
use tenantry_reports::whole::write_whole;

use crate::cards::find_card;
use crate::cli::{OutputArgs, PaperName, ReproduceArgs};
use crate::failure::Failure;
use crate::output::{check_folder, make_folder, print, say, style};
use crate::{interrupt, progress};
use grounds::Ground;
use lab::Lab;
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
    check_folder("--out", &args.out)?;
    if args.sensitivity {
        return sensitivity::run(args, output);
    }
    if let Some(card) = &args.profile {
        if args.paper != PaperName::Hmi {
            let message = format!("--profile: must be left out but for hmi, got {card}");
            return Err(Failure::BadInput(message));
        }
        find_card(card)?;
    }
    let papers: Vec<(&str, &str, &[Figure])> = [
        (PaperName::Hmi, "hmi", hmi::TITLE, hmi::FIGURES),
        (PaperName::Pets, "pets", pets::TITLE, pets::FIGURES),
        (PaperName::Punica, "punica", punica::TITLE, punica::FIGURES),
        (PaperName::Arlo, "arlo", arlo::TITLE, arlo::FIGURES),
        (PaperName::Tabi, "tabi", tabi::TITLE, tabi::FIGURES),
    ]
    .into_iter()
    .filter(|(name, ..)| args.paper == PaperName::All || args.paper == *name)
    .map(|(_, name, title, figures)| (name, title, figures))
    .collect();
    let lab = Lab::new(interrupt::flag(), args.profile.clone());
    let steps = papers.iter().map(|(.., figures)| figures.len()).sum::<usize>();
    let bar = progress::bar(steps as u64, "reproducing", output.quiet);
    let mut reproductions = Vec::new();
    let (mut done, mut interrupted) = (0, false);
    for (paper, title, figures) in papers {
        if interrupted {
            break;
        }
        let mut rows = Vec::new();
        let mut grounds = Vec::new();
        for (index, figure) in figures.iter().enumerate() {
            let mut own = match (figure(&lab), lab.other_card()) {
                (Ok(own), None) => own,
                (Ok(own), Some(_)) => own.into_iter().map(Row::elsewhere).collect(),
                // A card without the tables is no mistake of the user's.
                (Err(Failure::BadInput(why)), Some(card)) => {
                    vec![Row::not_checkable(hmi::NAMES[index], format!("on card {card}"), why)]
                }
                // What other figures came to is kept.
                (Err(Failure::Interrupted(_)), _) if done > 0 => {
                    interrupted = true;
                    break;
                }
                (Err(failure), _) => return Err(failure),
            };
            done += 1;
            let ground = lab.take_ground();
            // Where a figure does not say of which runs a row is, it may be of one that was.
            for row in own
                .iter_mut()
                .filter(|row| row.ours.is_some() && row.extrapolated.is_none())
            {
                row.extrapolated = Some(ground.extrapolated.is_some());
            }
            if ground != Ground::default() {
                grounds.push(OfFigure {
                    figure: show::names(&own).join(", "),
                    ground,
                });
            }
            rows.extend(own);
            bar.inc(1);
        }
        if rows.is_empty() {
            break;
        }
        reproductions.push(Reproduction {
            paper,
            title: match lab.other_card() {
                None => title.to_owned(),
                Some(card) => format!("{title}, and here on card {card}, which the paper does not have"),
            },
            within: !rows.iter().any(Row::missed),
            rows,
            grounds,
        });
    }
    bar.finish_and_clear();
    publish(args, output, &reproductions, interrupted)?;
    if interrupted {
        return Err(Failure::Interrupted(format!(
            "{done} of {steps} figures are in {}",
            args.out.display()
        )));
    }

    let missed: Vec<String> = reproductions
        .iter()
        .flat_map(|paper| {
            paper
                .rows
                .iter()
                .filter(|row| row.missed())
                .map(|row| (paper.paper, row))
        })
        .map(|(paper, row)| format!("{paper}, {}, {} ({})", row.figure, row.what, row.kind.name()))
        .collect();
    match missed.is_empty() {
        true => Ok(()),
        false => Err(Failure::LimitNotMet(format!(
            "outside the tolerance: {}",
            missed.join("; ")
        ))),
    }
}

fn publish(
    args: &ReproduceArgs,
    output: &OutputArgs,
    reproductions: &[Reproduction],
    interrupted: bool,
) -> Result<(), Failure> {
    let folder = &args.out;
    make_folder(folder)?;
    let written = Written {
        schema: 1,
        interrupted,
        papers: reproductions,
    };
    let bytes = json(&written).map_err(Failure::running)?;
    write_whole(&folder.join("reproduce.json"), &bytes).map_err(Failure::running)?;
    let mut pages: Vec<String> = reproductions.iter().map(show::markdown).collect();
    if interrupted {
        pages.insert(0, "Interrupted: figures are missing.\n".to_owned());
    }
    let page = folder.join("reproduce.md");
    write_whole(&page, pages.join("\n").as_bytes()).map_err(Failure::running)?;
    print(output, &written, || {
        let texts: Vec<String> = reproductions.iter().map(|paper| show::text(paper, style())).collect();
        texts.join("\n\n")
    })?;
    say(output, &format!("report: {}", page.display()));
    Ok(())
}
