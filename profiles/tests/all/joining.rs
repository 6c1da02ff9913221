//! Whoever joins a decoder's step never makes it cheaper, on all shipped cards.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use tenantry_profiles::{Card, DType, Decoder};

/// What all shipped cards price decoders by.
static DECODERS: LazyLock<Vec<(String, Decoder)>> = LazyLock::new(|| {
    let cards = Card::embedded_names().into_iter();
    cards.flat_map(|name| decoders(&Card::embedded(name).unwrap().unwrap())).collect()
});

fn decoders(card: &Card) -> Vec<(String, Decoder)> {
    let rows = card.tables.decoder_dense.iter();
    let tables: BTreeSet<(&str, DType, u32)> =
        rows.map(|row| (row.model.as_str(), row.dtype, row.tensor_parallel)).collect();
    let bound = tables.into_iter().filter_map(|(model, dtype, cards)| {
        let decoder = card.decoder(&card.model(model)?, dtype, cards).ok()?;
        Some((format!("{}: {model} {dtype} on {cards}", card.name), decoder))
    });
    bound.collect()
}

/// From one to far beyond what was measured, small ones as often as large.
fn size(doublings: f64) -> impl Strategy<Value = u32> {
    (0.0..doublings).prop_map(|doublings| doublings.exp2() as u32)
}

/// A chunk's tokens, and those that the last of them attends to.
fn chunk() -> impl Strategy<Value = (u32, u32)> {
    let cached = prop_oneof![Just(0), size(15.0)];
    (size(15.0), cached).prop_map(|(tokens, cached)| (tokens, tokens + cached))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A decode beside whatever there is, and a chunk beside decodes.
    #[test]
    fn who_joins_a_step_never_makes_it_cheaper(
        of in any::<prop::sample::Index>(),
        chunks in prop::collection::vec(chunk(), 0..4),
        sequences in prop_oneof![Just(0), size(9.0)],
        context in size(15.0),
    ) {
        let (name, decoder) = of.get(&DECODERS);
        let step_ns = |chunks: &[(u32, u32)], sequences| decoder.step(32, chunks, sequences, context).median_ns;
        let (before, one_more) = (step_ns(&chunks, sequences), step_ns(&chunks, sequences + 1));
        prop_assert!(one_more >= before, "{name}: {one_more} ns with one more decode, {before} before");
        if let [first, ..] = &chunks[..] {
            let (before, one_more) = (step_ns(&[], sequences), step_ns(&[*first], sequences));
            prop_assert!(one_more >= before, "{name}: {one_more} ns with a chunk, {before} before");
        }
        prop_assert_eq!(
            decoder.attention(&chunks, sequences, context).median_ns,
            decoder.attention_ns(&chunks, sequences, context)
        );
    }

    /// Several chunks count as those that were measured together, and so many of them are only held to the dearest
    /// alone.
    #[test]
    fn chunks_together_take_no_less_than_the_dearest_alone(
        of in any::<prop::sample::Index>(),
        chunks in prop::collection::vec(chunk(), 2..5),
        sequences in prop_oneof![Just(0), size(9.0)],
        context in size(15.0),
    ) {
        let (name, decoder) = of.get(&DECODERS);
        let together = decoder.attention_ns(&chunks, sequences, context);
        let alone = chunks.iter().map(|chunk| decoder.attention_ns(&[*chunk], sequences, context));
        let dearest = alone.max().unwrap();
        // Shares of each are rounded, in parts of a million and to the nanosecond.
        let rounded = dearest / 1_000_000 + 1 + chunks.len() as u64;
        prop_assert!(together + rounded >= dearest, "{name}: {together} ns together, {dearest} alone");
    }
}
