//! Request streams that share the cards (section 6). The paper builds no such thing: all rows are ours.

use super::SEEDS;
use crate::commands::reproduce::lab::{Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Shares of the cards that follow what comes in, beside shares that stay.
pub fn section_6(lab: &Lab) -> Result<Vec<Row>, Failure> {
    let seeds = lab.seeds("arlo/streams", &[], &SEEDS)?;
    let row = |(system, name): (&str, &str)| {
        let [shared, fixed] = ["arlo", system].map(|system| seeds.spread(|runs| latency_ms(runs.of(system))).median);
        let over = seeds.ratio(|runs| latency_ms(runs.of(system)), |runs| latency_ms(runs.of("arlo")));
        let what = format!("two streams on 16 cards, mean: {name} over shares that follow what comes in: longer");
        let row = Row::ours("Section 6", what, "×", over.median, over.median > 1.0).over(over);
        row.note(format!("{fixed:.0} over {shared:.0} ms in the median"))
    };
    Ok([
        ("fixed", "the shares by the whole workload's mean load"),
        ("halves", "halves"),
    ]
    .map(row)
    .into())
}
