//! The search over made-up systems.

use std::convert::Infallible;

use tenantry_core::durations::Durations;
use tenantry_traces::Duration;
use tenantry_traces::draw::{Draws, Purpose};

use super::*;

/// A made-up system: the share of requests in time rises with the level, and each batch and repeat differs a little.
fn made_up(
    candidates: &[Vec<f64>],
    spread: f64,
) -> impl FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Infallible> + use<> {
    let candidates = candidates.to_vec();
    move |cells| {
        let sample = |&(cell, repeat): &(Cell, u32)| {
            let share: f64 = candidates[cell.candidate][cell.level];
            // The same requests in every cell: what is hard for one is hard for all.
            let mut stream = Draws::new(u64::from(repeat), Purpose::Arrival).about(0);
            let within: Vec<f64> = (0..20).map(|_| (share + spread * stream.normal()).min(1.0)).collect();
            let score: Vec<f64> = within.iter().map(|within| 100.0 - within - cell.candidate as f64).collect();
            let mut latencies = Durations::default();
            score.iter().for_each(|ms| latencies.record(Duration((ms * 1e6) as u64)));
            Sample {
                score: score.into_iter().map(Some).collect(),
                latencies,
                judged: 20_000,
                kept: (1000.0 * within.iter().sum::<f64>()).round() as u64,
                within,
                hopeless: share < 0.95,
                busy: if share < 0.98 { 0.9 } else { 0.4 },
                ..Sample::empty()
            }
        };
        Ok(cells.iter().map(sample).collect())
    }
}

fn rising(levels: usize, first: usize) -> Vec<f64> {
    (0..levels)
        .map(|level| {
            if level < first {
                0.98 - 0.01 * (first - level) as f64
            } else {
                0.995
            }
        })
        .collect()
}

fn cards(levels: usize, price: f64) -> Candidate {
    Candidate {
        values: (1..=levels).map(|cards| cards as f64 * price).collect(),
    }
}

/// Every level of every candidate.
fn brute_force(candidates: &[Candidate], shares: &[Vec<f64>]) -> Option<(usize, usize)> {
    let cells = candidates.iter().enumerate().flat_map(|(candidate, levels)| {
        levels.values.iter().enumerate().map(move |(level, value)| (*value, candidate, level))
    });
    let met = cells.filter(|(_, candidate, level)| shares[*candidate][*level] >= 0.98);
    // Later candidates have the lower score.
    let best = met.min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)))?;
    Some((best.1, best.2))
}

#[test]
fn it_finds_what_brute_force_finds_at_a_tenth_of_the_cells() {
    let mut stream = Draws::new(3, Purpose::Arrival).about(0);
    let (mut runs, mut everything) = (0, 0);
    for case in 0..200 {
        let levels = 64;
        let price = |stream: &mut tenantry_traces::draw::Stream| 1.0 + stream.below(4) as f64;
        let candidates: Vec<Candidate> = (0..6).map(|_| cards(levels, price(&mut stream))).collect();
        let shares: Vec<Vec<f64>> = (0..6).map(|_| rising(levels, stream.below(80) as usize)).collect();
        let mut search = Search::new(Rules::SOME, made_up(&shares, 0.0));
        let answer = search.best(&candidates).unwrap();
        let found = answer.best.map(|cell| (cell.candidate, cell.level));
        assert_eq!(found, brute_force(&candidates, &shares), "case {case}");
        // Each new best is followed by a bisection: where one after the other is better, there are more of them.
        // Brute force takes as many seeds, but for what is hopeless.
        let seeds = |share: &f64| if *share < 0.95 { 1 } else { Rules::SOME.seeds as usize };
        let all: usize = shares.iter().flatten().map(seeds).sum();
        assert!(search.runs() * 8 <= all, "case {case}: {} runs of {all}", search.runs());
        runs += search.runs();
        everything += all;
        assert!(answer.confidence > 0.99, "{answer:?}");
    }
    assert!(runs * 10 <= everything, "{runs} runs of {everything}");
}

#[test]
fn a_close_decision_takes_repeats_and_says_how_sure_it_is() {
    let shares = [vec![0.97, 0.981, 0.999]];
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.01));
    let answer = search.best(&[cards(3, 1.0)]).unwrap();
    let close = search.judged(Cell { candidate: 0, level: 1 }).unwrap();
    assert!(close.runs > Rules::SOME.seeds, "{close:?}");
    assert!(answer.confidence < 0.999, "{answer:?}");
    let clear = search.judged(Cell { candidate: 0, level: 2 }).unwrap();
    assert!(clear.runs <= Rules::SOME.seeds, "{clear:?}");
}

/// One run without a burst has batches that are all alike: it is the other seeds that show the misses.
#[test]
fn one_lucky_run_decides_nothing() {
    let mut run = made_up(&[vec![0.5, 1.0, 1.0]], 0.0);
    let bursty = move |cells: &[(Cell, u32)]| {
        let mut samples = run(cells)?;
        for (sample, (cell, repeat)) in samples.iter_mut().zip(cells) {
            sample.dispersion = 500.0;
            if cell.level == 1 && *repeat > 0 {
                sample.kept = sample.judged * 95 / 100;
                sample.within = vec![0.95; 20];
            }
        }
        Ok::<_, Infallible>(samples)
    };
    let mut search = Search::new(Rules::SOME, bursty);
    let answer = search.best(&[cards(3, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 2 }));
    // Forty bursts at most in a run, and as many at least that all were in time: 1 - 0.98^40 = 0.55 in one run.
    assert!(search.samples(Cell { candidate: 0, level: 2 }).len() >= 3);
    assert!(answer.confidence < 0.99, "{answer:?}");
}

/// A rival that keeps the target with more than the answer takes is worse only if it misses the target with as little.
#[test]
fn doubts_about_a_worse_level_of_a_rival_count() {
    let shares = [
        vec![0.5, 0.5, 0.5, 0.979, 0.999, 0.999],
        vec![0.5, 0.5, 0.999, 0.999, 0.999, 0.999],
    ];
    let twice = Candidate {
        values: (1..=6).map(|cards| 1.55 * cards as f64).collect(),
    };
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.01));
    let answer = search.best(&[cards(6, 1.0), twice]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 1, level: 2 }), "{answer:?}");
    let close = Cell { candidate: 0, level: 3 };
    let doubt = 1.0 - search.judged(close).unwrap().confidence;
    assert!(
        search.samples(close).len() as u32 >= Rules::SOME.seeds && doubt > 0.0,
        "{doubt}"
    );
    assert!(answer.confidence <= 1.0 - doubt, "{answer:?}");
}

/// Where levels are not monotone, one that came near says more than the last, which surely misses the target.
#[test]
fn doubts_about_a_near_miss_of_a_rival_that_is_not_monotone_count() {
    let shares = [vec![0.9, 0.9, 0.9, 0.999], vec![0.9, 0.979, 0.9, 0.93]];
    let mut run = made_up(&shares, 0.01);
    let idle = move |cells: &[(Cell, u32)]| {
        let mut samples = run(cells)?;
        for (sample, (cell, _)) in samples.iter_mut().zip(cells).filter(|(_, (cell, _))| cell.candidate == 1) {
            (sample.busy, sample.hopeless) = (0.3, cell.level == 3);
        }
        Ok::<_, Infallible>(samples)
    };
    let mut search = Search::new(Rules::SOME, idle);
    let answer = search.best(&[cards(4, 1.0), cards(4, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 3 }), "{answer:?}");
    let near = search.judged(Cell { candidate: 1, level: 1 }).unwrap();
    assert!(near.runs >= Rules::SOME.seeds && near.confidence < 0.999, "{near:?}");
    assert!(answer.confidence <= near.confidence, "{answer:?} {near:?}");
}

/// Which candidate comes first changes nothing of how sure the answer is: what misses the target by a hair where it
/// costs more than the answer is no doubt.
#[test]
fn the_order_of_candidates_changes_no_doubt() {
    let (close, better) = (vec![0.9, 0.9, 0.9, 0.979], vec![0.9, 0.999, 0.999, 0.999]);
    let answer = |shares: [Vec<f64>; 2]| {
        let mut search = Search::new(Rules::SOME, made_up(&shares, 0.01));
        let answer = search.best(&[cards(4, 1.0), cards(4, 1.0)]).unwrap();
        (answer.best.unwrap().level, answer.confidence)
    };
    let first = answer([better.clone(), close.clone()]);
    assert_eq!(answer([close, better]), first);
    assert!(first.0 == 1 && first.1 > 0.99, "{first:?}");
}

/// A level that only the last check ran, and that keeps the target against all expectation, is found.
#[test]
fn what_the_last_check_finds_is_the_answer() {
    let shares = [vec![0.9, 0.999, 0.9, 0.9], vec![0.9, 0.999, 0.999, 0.999]];
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.0));
    let answer = search.best(&[cards(4, 0.9), cards(4, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 1 }));
    assert!(answer.standings[0].not_monotone);
}

/// A candidate with these shares whose cards have little to do from a level on, and which no run gives up.
fn idle_from(idle: usize, shares: Vec<f64>) -> impl FnMut(&[(Cell, u32)]) -> Result<Vec<Sample>, Infallible> {
    let mut run = made_up(&[shares], 0.0);
    move |cells| {
        let mut samples = run(cells)?;
        for (sample, (cell, _)) in samples.iter_mut().zip(cells) {
            sample.busy = if cell.level < idle { 0.95 } else { 0.3 };
            sample.hopeless = false;
        }
        Ok(samples)
    }
}

/// Batches of a fixed size: with many cards they do not fill.
#[test]
fn a_band_of_good_levels_is_found() {
    let mut shares = vec![0.90; 32];
    shares.iter_mut().enumerate().for_each(|(level, share)| match level {
        0..9 => *share = 0.90 + 0.005 * level as f64,
        9..14 => *share = 0.99,
        _ => *share = 0.979 - 0.001 * (level - 13) as f64,
    });
    let mut search = Search::new(Rules::SOME, idle_from(9, shares));
    let answer = search.best(&[cards(32, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 9 }));
    assert!(answer.standings[0].not_monotone);
}

/// Likewise where far too many cards fill no batch at all.
#[test]
fn a_band_is_found_in_a_wide_range() {
    let mut shares = vec![0.0; 64];
    shares.iter_mut().enumerate().for_each(|(level, share)| match level {
        0..9 => *share = 0.90,
        9..14 => *share = 0.99,
        14..20 => *share = 0.97,
        _ => {}
    });
    let mut search = Search::new(Rules::SOME, idle_from(9, shares));
    let answer = search.best(&[cards(64, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 9 }));
}

/// What one seed refuses is refused, whatever the others say.
#[test]
fn who_is_refused_is_surely_no_answer() {
    let mut run = made_up(&[vec![0.99; 4]], 0.01);
    let refusing = move |cells: &[(Cell, u32)]| {
        let mut samples = run(cells)?;
        for (sample, (cell, repeat)) in samples.iter_mut().zip(cells) {
            sample.refused = cell.level < 2 && *repeat == 1;
        }
        Ok::<_, Infallible>(samples)
    };
    let mut search = Search::new(Rules::SOME, refusing);
    let answer = search.best(&[cards(4, 1.0)]).unwrap();
    assert_eq!(answer.best, Some(Cell { candidate: 0, level: 2 }));
    let refused = search.judged(Cell { candidate: 0, level: 1 }).unwrap();
    assert_eq!((refused.meets, refused.confidence), (false, 1.0));
}

#[test]
fn nothing_feasible_is_no_answer_and_costs_little() {
    let shares = [vec![0.5; 64], vec![0.6; 64]];
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.0));
    let answer = search.best(&[cards(64, 1.0), cards(64, 2.0)]).unwrap();
    assert_eq!((answer.best, search.runs()), (None, 2));
}

#[test]
fn the_tightest_keeps_the_target() {
    // The faster one misses it, though not by far; and so does less of the slower one.
    let shares = [vec![0.97, 0.97, 0.99, 0.99, 0.99, 0.99], vec![0.965; 6]];
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.001));
    let race = search.tightest(&[cards(6, 1.0), cards(6, 1.0)]).unwrap();
    assert_eq!(race.best, Some(Cell { candidate: 0, level: 2 }), "{race:?}");
    assert_eq!(race.standings[1].level, None);
}

/// All that is tried misses the target by the first seed, and keeps it by most.
#[test]
fn one_seed_that_misses_is_no_answer() {
    let mut run = made_up(&[vec![0.985; 4]], 0.001);
    let unlucky = move |cells: &[(Cell, u32)]| {
        let mut samples = run(cells)?;
        for (sample, (_, repeat)) in samples.iter_mut().zip(cells) {
            if *repeat == 0 {
                sample.within.iter_mut().for_each(|share| *share -= 0.0055);
                sample.kept = (1000.0 * sample.within.iter().sum::<f64>()).round() as u64;
            }
        }
        Ok::<_, Infallible>(samples)
    };
    let mut search = Search::new(Rules::SOME, unlucky);
    let race = search.tightest(&[cards(4, 1.0)]).unwrap();
    assert!(race.best.is_some(), "{race:?}");
    // What is far off takes one run, and is sure.
    let mut search = Search::new(Rules::SOME, made_up(&[vec![0.5; 4]], 0.001));
    let race = search.tightest(&[cards(4, 1.0)]).unwrap();
    assert_eq!((race.best, search.runs()), (None, 4), "{race:?}");
    assert!(race.confidence > 0.99, "{race:?}");
    // How sure it is hangs on the nearest, whichever level that is.
    let mut search = Search::new(Rules::SOME, made_up(&[vec![0.9795, 0.5]], 0.01));
    let race = search.tightest(&[cards(2, 1.0)]).unwrap();
    let runs = |level| search.samples(Cell { candidate: 0, level }).len();
    assert_eq!((race.best, runs(1)), (None, 1), "{race:?}");
    assert!(
        runs(0) as u32 >= Rules::SOME.seeds && race.confidence < 0.99,
        "{race:?}"
    );
}

#[test]
fn the_tightest_is_found_and_ties_are_named() {
    let shares = [vec![0.99; 8], vec![0.99; 8], vec![0.99; 8]];
    let mut search = Search::new(Rules::SOME, made_up(&shares, 0.003));
    let race = search.tightest(&[cards(8, 1.0), cards(8, 1.0), cards(8, 1.0)]).unwrap();
    // All levels are alike, and the first of them takes least.
    assert_eq!(race.best, Some(Cell { candidate: 2, level: 0 }));
    assert_eq!(race.standings[2].level, Some(0));
    assert_eq!(
        (race.tied.len(), search.runs()),
        (0, 14),
        "paired batches tell at once, three levels more of each are looked at, and the answer takes two seeds more"
    );
}

/// Where one card of many is busy enough to fill its batches, it is the fastest, and only halving all the way shows it.
#[test]
fn the_tightest_may_be_the_fewest_cards() {
    let mut run = made_up(&[vec![0.99; 16]], 0.003);
    let filling_at_one = move |cells: &[(Cell, u32)]| {
        let mut samples = run(cells)?;
        for (sample, (cell, _)) in samples.iter_mut().zip(cells) {
            let faster_by = match cell.level {
                0 => 20.0,
                14.. => 5.0,
                _ => 0.0,
            };
            sample.score.iter_mut().flatten().for_each(|ms| *ms -= faster_by);
            sample.latencies = Durations::default();
            for ms in sample.score.iter().flatten() {
                sample.latencies.record(Duration((ms * 1e6) as u64));
            }
        }
        Ok::<_, Infallible>(samples)
    };
    let mut search = Search::new(Rules::SOME, filling_at_one);
    let race = search.tightest(&[cards(16, 1.0)]).unwrap();
    assert_eq!(race.best, Some(Cell { candidate: 0, level: 0 }), "{race:?}");
    assert!(race.standings[0].not_monotone);
}

/// Candidates that fare the same request by request are a choice that does not matter, and no doubt.
#[test]
fn what_is_exactly_as_fast_is_no_doubt() {
    let mut run = made_up(&[vec![0.99; 8], vec![0.99; 8]], 0.003);
    let alike = move |cells: &[(Cell, u32)]| {
        let first = |(cell, repeat): &(Cell, u32)| (Cell { candidate: 0, ..*cell }, *repeat);
        run(&cells.iter().map(first).collect::<Vec<_>>())
    };
    let mut search = Search::new(Rules::SOME, alike);
    let race = search.tightest(&[cards(8, 1.0), cards(8, 1.0)]).unwrap();
    assert_eq!(race.best, Some(Cell { candidate: 0, level: 0 }));
    assert_eq!(race.tied, [Cell { candidate: 1, level: 0 }]);
    assert!(race.confidence > 0.99, "{race:?}");
    assert_eq!(search.samples(race.tied[0]).len(), 1);
}

/// Batches are compared with the same ones of another run, whoever served nobody in one of them.
#[test]
fn batches_are_compared_by_their_number() {
    let of = |score: [Option<f64>; 3]| {
        let run = made_up(&[vec![1.0]], 0.0)(&[(Cell { candidate: 0, level: 0 }, 0)]);
        let Ok(mut samples) = run;
        samples[0].score = score.to_vec();
        samples.remove(0)
    };
    let own = of([None, Some(2.0), Some(3.0)]);
    let other = of([Some(1.0), None, Some(5.0)]);
    assert_eq!(own.differences(&other), [-2.0]);
    assert!(own.differences(&of([Some(1.0), None, None])).is_empty());
}
