//! On which streams operators run: Fig. 11.

use super::{greatest, least, mean};
use crate::commands::reproduce::lab::{Lab, rate};
use crate::commands::reproduce::number::{fixed, signed};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const TASKS: [u32; 3] = [32, 64, 128];
/// Numbers of streams beside 32.
const OTHER_STREAMS: [&str; 3] = ["streams-1", "streams-2", "streams-8"];

/// Streams of operators.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    const TOKENS: [u32; 4] = [4, 16, 32, 64];
    let runs = lab.runs("pets/fig-11", &[])?;
    let of = |system: &str, tasks: u32, tokens: u32| {
        let at = [
            ("tenants.count", tasks.into()),
            ("workload.lengths.input.fixed", tokens.into()),
        ];
        rate(runs.find(system, &at))
    };
    // How much less time 1,024 queries take.
    let saved =
        |system: &str, tasks, tokens| 100.0 * (1.0 - of("streams-1", tasks, tokens) / of(system, tasks, tokens));
    let best = greatest(&TOKENS.map(|tokens| saved("streams-32", 32, tokens)));
    let least_over_others = TOKENS
        .map(|tokens| {
            let others = OTHER_STREAMS.map(|system| saved(system, 32, tokens));
            saved("streams-32", 32, tokens) - others.into_iter().fold(0.0, f64::max)
        })
        .into_iter()
        .fold(f64::MAX, f64::min);
    let mut rows =
        vec![
        Row::assumed(FIGURE, "32 tasks, 32 streams, time saved at most", "%", Some(15.0), best).note(
            "assumes that operators side by side share launches, bandwidth and arithmetic as a roofline has it \
             (docs/pets.md): nobody measured it on this card",
        ),
        Row::shape(
            FIGURE,
            "32 tasks, 32 streams, 4 tokens, time saved: some",
            "%",
            saved("streams-32", 32, 4),
            saved("streams-32", 32, 4) > 0.0,
        )
        .note(
            "the paper gains at 4 tokens with 32 tasks and loses with 64 and 128: operators \"too short for the GPU's \
             scheduler to overlap\" (section 6.3.3). 128 queries are as many tokens whatever their tasks, so that what \
             can overlap is the same for all three in a roofline, and so is the sign. What decides is the card's \
             scheduler, of which the text has no number; by the paper's appendix reviewers did not get the curve \
             elsewhere either",
        ),
        Row::shape(
            FIGURE,
            "32 tasks: 32 streams are the best number at every length, saved over the best other at least",
            "%",
            least_over_others,
            least_over_others >= 0.0,
        )
        .note(
            "operators side by side share the card's rates here, so that few streams are enough where launching \
             outlasts work, and 32 take longer to meet; what meeting takes is assumed (1 us to wake and to tell)",
        ),
    ];
    for tasks in [64, 128] {
        let lost = saved("streams-32", tasks, 4);
        let what = format!("{tasks} tasks, 32 streams, 4 tokens, time saved: less than none");
        rows.push(Row::shape(FIGURE, what, "%", lost, lost < 0.0));
    }
    let shapes = |all: &[u32], least_tokens: u32| -> Vec<(u32, u32)> {
        let of = |&tasks: &u32| TOKENS.map(|tokens| (tasks, tokens));
        all.iter().flat_map(of).filter(|(_, tokens)| *tokens >= least_tokens).collect()
    };
    let every = shapes(&TASKS, 0);
    let worst =
        |system: &str| least(&every.iter().map(|&(tasks, tokens)| saved(system, tasks, tokens)).collect::<Vec<_>>());
    // How much more one saves than another, by shape.
    let more = |one: &str, other: &str, shapes: &[(u32, u32)]| -> Vec<f64> {
        let more = shapes.iter().map(|&(tasks, tokens)| saved(one, tasks, tokens) - saved(other, tasks, tokens));
        more.collect()
    };
    // Chosen by the very prices that are charged: neither can fail but by a mistake in the program.
    rows.push(Row::ours(
        FIGURE,
        "as many streams as the profile says, over all shapes, time saved at least: none lost",
        "%",
        worst("by-profile"),
        worst("by-profile") >= 0.0,
    ));
    let behind: Vec<f64> = every
        .iter()
        .map(|&(tasks, tokens)| {
            let best = ["streams-1", "streams-2", "streams-8", "streams-32"].map(|system| saved(system, tasks, tokens));
            saved("by-profile", tasks, tokens) - greatest(&best)
        })
        .collect();
    let not_best = behind.iter().filter(|behind| **behind < -0.01).count();
    rows.push(
        Row::ours(
            FIGURE,
            "as many streams as the profile says over the best of 1, 2, 8 and 32, time saved in the mean of all \
             shapes: the best",
            "%",
            mean(&behind),
            not_best == 0,
        )
        .note(format!(
            "each batch has as many of 1, 2, 8 and 32 as its own operators take least time on; behind the best of \
             these numbers at {not_best} of 12 shapes, by {} % at most",
            fixed((-least(&behind)).max(0.0), 1)
        )),
    );
    let over_naive = mean(&more("streams-32", "one-each", &shapes(&[64, 128], 16)));
    rows.push(
        Row::shape(
            FIGURE,
            "64 and 128 tasks: 32 streams by intensity over a stream for each task, 16 tokens and more, time saved in \
             the mean: more",
            "%",
            over_naive,
            over_naive > 0.0,
        )
        .note("without 32 tasks, where both are the same"),
    );
    for streams in [2, 8] {
        let over_turns = |system: &str| more(&format!("{system}-{streams}"), &format!("in-turn-{streams}"), &every);
        let (counted, even) = (over_turns("streams"), over_turns("even"));
        let lost = counted.iter().filter(|gain| **gain < 0.0).count();
        let what = format!(
            "{streams} streams by intensity (Algorithm 2) over tasks in turn, all shapes, time saved in the mean: more"
        );
        rows.push(Row::assumed(FIGURE, what, "%", None, mean(&counted)).note(format!(
            "the paper compares numbers of streams, and its authors' public code has no Algorithm 2: it deals tasks to \
             streams in turn (turbo_transformers/core/cuda_device_context.h). Sorting saves less at {lost} of 12 \
             shapes, by {} % at most: sorted operators are of one kind after the other, and as many to each stream \
             leave the longest kind on one, for which all wait. The same order cut where streams take equally long \
             saves {} points in the mean, {} at least and {} at most",
            fixed((-least(&counted)).max(0.0), 1),
            signed(mean(&even), 2),
            signed(least(&even), 1),
            signed(greatest(&even), 1),
        )));
    }
    let lost = Row::ours(
        FIGURE,
        "a stream for each task, time saved at least: less than by the profile's number",
        "%",
        worst("one-each"),
        worst("one-each") < worst("by-profile") - 2.0,
    );
    rows.push(lost.note(
        "section 4.2 has that such a stream each may not get the ideal speed-up; with 32 tasks it is \
         the 32 streams that the figure has",
    ));
    Ok(rows)
}
