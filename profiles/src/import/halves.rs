//! Decoders' kernels in f16 priced as those in bf16, where a card has imported these alone.

use crate::card::{Card, Source};
use crate::family::Family;
use crate::model::DType;
use crate::origin::{Origin, Origins};
use crate::slice::{Slice, table_of};
use crate::tables::Tables;

/// Gives a card a decoder's tables in f16 that it has imported in bf16 alone, in the place of derived ones: numbers are
/// of as many bytes, and tensor cores multiply both at the same rate, as the datasheets of all cards since the A100
/// say.
pub(super) fn as_bf16(card: &mut Card, model: &str) {
    let tables = &card.tables;
    let have = tables.slices();
    // Where the table in bf16 comes from, if the one in f16 is to be the same.
    let lent = |family: Family, in_f16: &str| -> Option<Origin> {
        let origin = card.origin(family, &in_f16.replace("dtype=f16", "dtype=bf16"));
        let has = have.iter().any(|slice| slice.family == family && slice.label == in_f16);
        let lends = origin.kind == Source::Imported && (!has || card.origin(family, in_f16).kind == Source::Derived);
        lends.then(|| Origin {
            table: Some(in_f16.to_owned()),
            source: format!(
                "{}; taken for f16 too, of as many bytes and the same rate of tensor cores",
                origin.source
            ),
            ..origin
        })
    };
    macro_rules! in_f16 {
        ($($family:ident: $rows:ident),+) => {
            Tables {
                $($rows: {
                    let of_bf16 = tables.$rows.iter().filter(|row| row.model == model && row.dtype == DType::Bf16);
                    let in_f16 = of_bf16.cloned().map(|mut row| {
                        row.dtype = DType::F16;
                        row
                    });
                    in_f16.filter(|row| lent(Family::$family, &table_of(row)).is_some()).collect()
                },)+
                ..Tables::default()
            }
        };
    }
    let lent_tables = in_f16!(
        DecoderPrefill: decoder_prefill,
        DecoderDecode: decoder_decode,
        DecoderMixed: decoder_mixed,
        DecoderPrompts: decoder_prompts,
        DecoderEnds: decoder_ends
    );
    let slices = lent_tables.slices();
    // Each was lent by a table of the same cards.
    let origins = slices.iter().filter_map(|slice| lent(slice.family, &slice.label));
    let kept = card.origins.list().iter().filter(|origin| {
        let is_replaced = |slice: &Slice| origin.family == slice.family && origin.table.as_ref() == Some(&slice.label);
        !slices.iter().any(is_replaced)
    });
    let origins: Vec<Origin> = kept.cloned().chain(origins).collect();
    card.tables.replace_with(&lent_tables);
    card.origins = Origins::new(origins);
}
