//! Layers that several cards share, on a card that knows what they take on one.
//!
//! A table of one card that was measured and one of two that was derived do not go together: where kernels are faster
//! than the roofline says, a second card would seem to slow a layer down. So of what is derived of several cards only
//! the share is taken that it is of what is derived of one. The roofline's share of `k` cards lies between `1/k` and 1
//! at each size, and so does what comes of it.

use crate::beyond::{ChunkAttention, carried_on};
use crate::family::Family;
use crate::grid::Grid;
use crate::rows::Row;
use crate::slice::{Slice, slice};
use crate::stats::Stats;

/// What a label says before the cards that share a layer.
const SHARED_BY: &str = "tensor_parallel=";

/// What the table of layers on one card is called, of a table of layers that several share.
pub(super) fn on_one_card(label: &str) -> Option<String> {
    let (of_model, cards) = label.rsplit_once(SHARED_BY)?;
    (cards != "1").then(|| format!("{of_model}{SHARED_BY}1"))
}

/// The rows of a `table` of the derived ones, each in proportion to what the card's `own` table `on_one` card says:
/// nothing where either has no such table. More work never takes less.
pub(super) fn in_proportion<R: Row>(table: &Slice, derived: &[R], own: &[R], on_one: &str) -> Option<Vec<R>> {
    let stats = shared(table, &slice(derived, on_one)?, &slice(own, on_one)?)?;
    let mut rows: Vec<R> = table.points.iter().map(|point| derived[point.row].clone()).collect();
    for (row, stats) in rows.iter_mut().zip(stats) {
        *row.stats_mut() = stats;
    }
    Some(rows)
}

/// What each point of a derived `table` of several cards takes, by the derived one `on_one` card and the card's `own`.
fn shared(table: &Slice, on_one: &Slice, own: &Slice) -> Option<Vec<Stats>> {
    let own_us = by_own(own)?;
    let points = table.points.iter().map(|point| {
        let alone = on_one.points.iter().find(|alone| alone.at == point.at)?;
        Some((point, point.stats.median_us / alone.stats.median_us * own_us(&point.at)))
    });
    let points = points.collect::<Option<Vec<_>>>()?;
    let stats = points.iter().map(|(point, _)| {
        let is_no_larger = |at: &[u64]| at.iter().zip(&point.at).all(|(a, b)| a <= b);
        let smaller = points.iter().filter(|(other, _)| is_no_larger(&other.at));
        Stats::exact(smaller.map(|(_, us)| *us).fold(0.0, f64::max))
    });
    Some(stats.collect())
}

/// A price, in microseconds, at what it depends on.
type PriceAt = Box<dyn Fn(&[u64]) -> f64>;

/// What a table says of any size, in microseconds, as a run is priced by it.
fn by_own(own: &Slice) -> Option<PriceAt> {
    match own.family {
        Family::DecoderDense => by_grid::<1>(own),
        Family::DecoderPrefill => by_grid::<2>(&carried_on(own, &ChunkAttention)),
        Family::DecoderDecode | Family::DecoderEnds => by_grid::<2>(own),
        _ => None,
    }
}

fn by_grid<const N: usize>(own: &Slice) -> Option<PriceAt> {
    let grid: Grid<N> = Grid::new(own).ok()?;
    Some(Box::new(move |at| {
        let at = at.try_into().expect("a family's points have its axes");
        grid.median_ns(at) as f64 / 1e3
    }))
}

#[cfg(test)]
mod tests {
    use crate::card::{Card, Source};
    use crate::decoder::Decoder;
    use crate::family::Family;
    use crate::model::{DType, ModelShape};
    use crate::roofline::{Datasheet, Roofline, fill};

    /// Imported cards that know a decoder's layers on one card and not on several.
    const CARDS: [(&str, &str, &str, DType); 5] = [
        ("a40", "a40", "phi-2", DType::F16),
        ("a100-sxm", "a100-sxm", "phi-2", DType::F16),
        ("h100-sxm", "h100-sxm", "phi-2", DType::F16),
        ("rtx4090", "rtx-4090", "llama3.1-8b", DType::Bf16),
        ("rtx-pro-6000", "rtx-pro-6000", "llama3.1-8b", DType::Bf16),
    ];

    /// A shipped card whose tables of layers that several cards share are derived from what it knows now.
    fn derived_again(name: &str, sheet: &str, model: &ModelShape, dtype: DType) -> Card {
        let mut card = Card::embedded(name).unwrap().unwrap();
        let is_shared = |label: &str| super::on_one_card(label).is_some();
        let is_left_out = |(_, label): &(Family, String)| is_shared(label);
        let left_out: Vec<(Family, String)> = card.tables.names().into_iter().filter(is_left_out).collect();
        card.tables = card.tables.without(&left_out);
        let origins = card.origins.list().iter();
        let kept = origins.filter(|origin| !origin.table.as_deref().is_some_and(is_shared));
        card.origins = crate::Origins::new(kept.cloned().collect());
        let roofline = Roofline::new(Datasheet::builtin(sheet).unwrap());
        fill(&mut card, &roofline, std::slice::from_ref(model), dtype);
        card.validate().unwrap_or_else(|error| panic!("{name}: {error}"));
        card
    }

    /// At the sizes that are derived.
    fn prices(decoder: &Decoder) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        for tokens in [1, 8, 32, 64, 128, 256, 512, 1024, 2048, 8192] {
            all.push(("dense", decoder.dense.median_ns(tokens)));
        }
        for (tokens, context) in [(16, 16), (16, 2048), (128, 512), (1024, 1024), (2048, 2048)] {
            all.push(("prefill", decoder.prefill.median_ns(tokens, context)));
        }
        for (sequences, context) in [(1, 16), (1, 2048), (32, 512), (128, 2048), (256, 1024)] {
            all.push(("decode", decoder.decode.median_ns(sequences, context)));
        }
        for (sequences, tokens) in [(1, 1), (32, 256), (256, 8192)] {
            all.push(("ends", decoder.ends.median_ns(sequences, tokens)));
        }
        all
    }

    /// Whoever measured what one card takes: a second makes no layer slower, nor more than twice as fast.
    #[test]
    fn a_layer_that_cards_share_takes_a_share_of_what_it_takes_on_one() {
        for (name, sheet, model, dtype) in CARDS {
            let model = ModelShape::builtin(model).unwrap();
            let card = derived_again(name, sheet, &model, dtype);
            let alone = prices(&card.decoder(&model, dtype, 1).unwrap());
            for cards in [2, 4, 8] {
                let shared = prices(&card.decoder(&model, dtype, cards).unwrap());
                for ((of, alone_ns), (_, shared_ns)) in alone.iter().zip(&shared) {
                    // Prices are whole nanoseconds.
                    let least = alone_ns / u64::from(cards) - 1;
                    assert!(
                        (least..=alone_ns + 1).contains(shared_ns),
                        "{name}: {of}: {shared_ns} ns on {cards} cards, {alone_ns} on one"
                    );
                }
                let table = format!("model={} dtype={dtype} tensor_parallel={cards}", model.name);
                let origin = card.origin(Family::DecoderDense, &table);
                assert_eq!(origin.kind, Source::Derived);
                assert!(
                    origin.source.starts_with("the card's own table of one card"),
                    "{}",
                    origin.source
                );
            }
        }
    }

    /// Dense layers that somebody measured on several cards, as they would be derived if nobody had: nearer than by the
    /// roofline alone.
    #[test]
    fn shares_are_nearer_to_what_was_measured_than_the_roofline() {
        let (mut by_share, mut by_roofline) = (Vec::new(), Vec::new());
        for (name, model, dtype) in [
            ("a40", "llama-7b", DType::F16),
            ("a100-sxm", "llama-7b", DType::F16),
            ("a100-sxm", "llama3-8b", DType::F16),
            ("h100-sxm", "llama-7b", DType::F16),
            ("h100-sxm", "llama-7b", DType::Bf16),
            ("h100-sxm", "llama-13b", DType::Bf16),
            ("h100-sxm", "llama-70b", DType::Bf16),
        ] {
            let model = ModelShape::builtin(model).unwrap();
            let roofline = Roofline::new(Datasheet::builtin(name).unwrap());
            let (measured, derived) = (
                Card::embedded(name).unwrap().unwrap(),
                derived_again(name, name, &model, dtype),
            );
            for cards in [2, 4, 8] {
                let dense = |card: &Card| card.decoder(&model, dtype, cards).unwrap().dense;
                let (measured, derived) = (dense(&measured), dense(&derived));
                for tokens in [1, 8, 32, 64, 128, 256, 512, 1024, 2048] {
                    let measured_us = measured.median_ns(tokens.into()) as f64 / 1e3;
                    let error = |us: f64| (us / measured_us - 1.0).abs();
                    by_share.push(error(derived.median_ns(tokens.into()) as f64 / 1e3));
                    by_roofline.push(error(roofline.decoder_dense_us(&model, dtype, cards, tokens)));
                }
            }
        }
        let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
        let (by_share, by_roofline) = (mean(&by_share), mean(&by_roofline));
        assert!(by_share < by_roofline, "{by_share:.3} and {by_roofline:.3}");
    }

    /// Where the card knows nothing of one card, the roofline itself is all there is.
    #[test]
    fn what_is_derived_of_one_card_is_derived_of_several() {
        let (llama, roofline) = (
            ModelShape::builtin("llama-13b").unwrap(),
            Roofline::new(Datasheet::builtin("l4").unwrap()),
        );
        let mut l4 = Card::embedded("l4").unwrap().unwrap();
        fill(&mut l4, &roofline, std::slice::from_ref(&llama), DType::F16);
        let ns = |cards| l4.decoder(&llama, DType::F16, cards).unwrap().dense.median_ns(64);
        for cards in [1, 2, 4, 8] {
            let us = roofline.decoder_dense_us(&llama, DType::F16, cards, 64);
            assert_eq!(ns(cards), (1e3 * us).round() as u64);
        }
    }
}
