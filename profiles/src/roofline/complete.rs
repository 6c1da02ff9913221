//! What a card lacks of a scenario's models, by the roofline of its datasheet.

use super::derive::{adapter_tokens, adapters, decoder, encoder, lora, merge, without_model};
use super::ops::is_encoder;
use super::{Datasheet, Roofline};
use crate::card::{Card, Source};
use crate::keys::AdapterImplementation;
use crate::model::{DType, ModelShape};
use crate::rows::{AdapterRow, LoraRow};
use crate::tables::Tables;

/// A model that a card is to have tables of.
#[derive(Clone, Debug)]
pub struct Need {
    /// Its shape.
    pub model: ModelShape,
    /// Its number format.
    pub dtype: DType,
    /// Of its tenants' adapters, where they have such.
    pub bottleneck: Option<u32>,
    /// Of its tenants' LoRAs, where they have such.
    pub rank: Option<u32>,
}

/// Adds to a card what it lacks of these models, each table listed among its origins as derived. A card is left as it is where no datasheet says
/// what it is made of, as of CPUs, and where it is a paper's testbed, whose numbers are the paper's; and so is what another shape of the same
/// name is there for, what the card knows in another number format, which is worth more than what can be derived, and what it has no arithmetic for.
pub fn complete(card: &mut Card, needs: impl IntoIterator<Item = Need>) {
    let is_papers = matches!(card.provenance.source, Source::Fitted | Source::Assumed);
    let sheets = Datasheet::all().into_iter();
    let Some(sheet) = { sheets }.find(|sheet| sheet.product == card.device.name && !is_papers) else {
        return;
    };
    let roofline = Roofline::new(sheet);
    for need in needs {
        let is_builtin = ModelShape::builtin(&need.model.name).is_some_and(|model| model == need.model);
        let is_listed = card.models.contains(&need.model);
        let is_another = { card.models.iter() }.any(|model| model.name == need.model.name)
            || ModelShape::builtin(&need.model.name).is_some();
        let is_known_otherwise = {
            let encoders = { card.tables.encoder_layer.iter() }.map(|row| (&row.model, row.dtype));
            let decoders = { card.tables.decoder_dense.iter() }.map(|row| (&row.model, row.dtype));
            let mut own = encoders
                .chain(decoders)
                .filter(|(model, _)| **model == need.model.name)
                .peekable();
            own.peek().is_some() && own.all(|(_, dtype)| dtype != need.dtype)
        };
        if !is_builtin && !is_listed && is_another || is_known_otherwise || roofline.sheet.peak(need.dtype).is_none() {
            continue;
        }
        let derived = lacking(card, &roofline, &need);
        if derived.slices().is_empty() {
            continue;
        }
        if !is_builtin && !is_listed {
            card.models.push(need.model);
        }
        merge(card, derived, &roofline.sheet.name);
    }
}

/// The tables of a model, where the card has not got them all, and those of adapters and LoRAs that it does not have.
fn lacking(card: &Card, roofline: &Roofline, need: &Need) -> Tables {
    let Need { model, dtype, .. } = need;
    let own = (&model.name, *dtype);
    let tables = &card.tables;
    let mut derived = Tables::default();
    if is_encoder(model) {
        let has_all = tables.encoder_layer.iter().any(|row| (&row.model, row.dtype) == own)
            && tables.embedding.iter().any(|row| (&row.model, row.dtype) == own)
            && tables.head.iter().any(|row| (&row.model, row.dtype) == own)
            && tables.plot_lookup.iter().any(|row| row.model == model.name);
        if !has_all {
            encoder(&mut derived, roofline, model, *dtype);
        }
    } else if !{ tables.decoder_dense.iter() }.any(|row| (&row.model, row.dtype) == own) {
        decoder(&mut derived, roofline, model, *dtype);
    }
    let of_model = |row: &&AdapterRow| (&row.model, row.dtype) == own;
    let mut known = { tables.adapter.iter().chain(&derived.adapter) }.filter(of_model);
    if let Some(bottleneck) = need.bottleneck
        && !known.any(|row| row.bottleneck == bottleneck)
    {
        for tokens in adapter_tokens(model) {
            adapters(&mut derived, roofline, model, *dtype, bottleneck, tokens);
        }
    }
    let of_model = |row: &&LoraRow| (&row.model, row.dtype) == own;
    let mut known = { tables.lora.iter().chain(&derived.lora) }.filter(of_model);
    if let Some(rank) = need.rank
        && !known.any(|row| row.rank == rank)
    {
        for &implementation in AdapterImplementation::ALL {
            lora(&mut derived, model, *dtype, implementation, rank, |point| {
                roofline.lora_us(model, *dtype, implementation, rank, point)
            });
        }
    }
    if !derived.slices().is_empty() {
        without_model(&mut derived, roofline);
    }
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Family;

    fn need(model: ModelShape, dtype: DType) -> Need {
        Need {
            model,
            dtype,
            bottleneck: None,
            rank: None,
        }
    }

    fn card(name: &str) -> Card {
        Card::embedded(name).unwrap().unwrap()
    }

    #[test]
    fn models_that_a_card_lacks_are_derived_and_what_it_has_is_kept() {
        let before = card("t4");
        let mut t4 = before.clone();
        let small = ModelShape {
            name: "small".into(),
            hidden: 256,
            heads: 4,
            kv_heads: 4,
            intermediate: 1024,
            ..ModelShape::builtin("bert-base").unwrap()
        };
        let base = ModelShape::builtin("bert-base").unwrap();
        assert!(t4.encoder_layer(&small, DType::F32).is_err());
        let with_adapters = Need {
            bottleneck: Some(80),
            ..need(base.clone(), DType::F32)
        };
        complete(&mut t4, [need(small.clone(), DType::F32), with_adapters.clone()]);
        t4.validate().unwrap();
        assert!(t4.encoder_layer(&small, DType::F32).is_ok());
        let implementation = AdapterImplementation::GatherBmm;
        assert!(t4.adapter(&base, DType::F32, implementation, 80).is_ok());
        let origin = |model: &str| t4.origin(Family::EncoderLayer, &format!("model={model} dtype=f32"));
        assert_eq!(origin("small").kind, Source::Derived);
        assert_eq!(origin("bert-base").kind, Source::Imported);
        let cost = |card: &Card| card.encoder_layer(&base, DType::F32).unwrap().cost(8, 128);
        assert_eq!(cost(&t4), cost(&before));
        // Once is enough.
        let once = t4.clone();
        complete(&mut t4, [need(small, DType::F32), with_adapters]);
        assert_eq!(t4.digest(), once.digest());
    }

    #[test]
    fn papers_cards_and_cpus_and_other_shapes_are_left_alone() {
        let another = ModelShape {
            layers: 3,
            ..ModelShape::builtin("bert-base").unwrap()
        };
        let large = ModelShape::builtin("roberta-large").unwrap_or_else(|| ModelShape {
            name: "wide".into(),
            ..ModelShape::builtin("bert-large").unwrap()
        });
        let base = ModelShape::builtin("bert-base").unwrap();
        for (name, model, dtype) in [
            ("l4", base, DType::F32),
            ("cpu", large.clone(), DType::F32),
            ("paper-p5000", large.clone(), DType::F32),
            ("t4", another, DType::F32),
            ("t4", large, DType::Bf16),
        ] {
            let before = card(name);
            let mut after = before.clone();
            complete(&mut after, [need(model, dtype)]);
            assert_eq!(after.digest(), before.digest(), "{name}");
        }
    }
}
