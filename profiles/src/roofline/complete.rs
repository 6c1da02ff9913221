//! What a card lacks of a scenario's models: of layers that it knows under another name, and by the roofline of its
//! datasheet.

use std::cell::OnceCell;

use super::derive::{adapter_tokens, adapters, decoder, encoder, lora, merge, without_model};
use super::lend::lend;
use super::ops::is_encoder;
use super::{Datasheet, Roofline};
use crate::card::{Card, Source};
use crate::keys::AdapterImplementation;
use crate::model::{DType, ModelShape};
use crate::rows::{AdapterRow, LoraRow};
use crate::slice::{dtype_of, model_of, slices};
use crate::tables::Tables;

/// A model that a card is to have tables of.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// Its shape.
    pub model: ModelShape,
    /// Its number format.
    pub dtype: DType,
    /// Of its tenants' adapters, where they have such.
    pub bottleneck: Option<u32>,
    /// Of its tenants' LoRAs, where they have such.
    pub rank: Option<u32>,
    /// Cards that share each of its layers.
    pub tensor_parallel: u32,
}

/// Adds to a card what it lacks of these models. Layers that it knows under another model's name are lent, whatever the
/// card. What is then still lacking is derived, each table listed among its origins as derived, where a datasheet says
/// what the card is made of: not where it was measured, since what is derived is no match for that, nor where it is a
/// paper's testbed, whose numbers are the paper's. Another shape of a name that is known gets nothing, nor is derived
/// what the card knows in another number format, which is worth more than what can be derived, or what it has no
/// arithmetic for.
pub fn complete(card: &mut Card, needs: impl IntoIterator<Item = Need>) {
    // Mostly nothing is missing, run after run, and then no datasheet need be read.
    let roofline = OnceCell::new();
    let roofline_of = |card: &Card, dtype: DType| {
        let roofline: &Option<Roofline> = roofline.get_or_init(|| roofline_of(card));
        roofline.clone().filter(|roofline| roofline.sheet.peak(dtype).is_some())
    };
    for need in needs {
        let builtin = ModelShape::builtin(&need.model.name);
        let known = builtin.as_ref().or_else(|| card.models.iter().find(|model| model.name == need.model.name));
        if known.is_some_and(|known| !is_of_such_layers(known, &need.model)) {
            continue;
        }
        // Tables are of a layer, and what is of all of them is of the model that has the name.
        let need = Need {
            model: known.unwrap_or(&need.model).clone(),
            ..need
        };
        let is_lent = lend(card, &need, |card| roofline_of(card, need.dtype).is_some());
        let is_derived = derive(card, &need, roofline_of);
        if builtin.is_some() || card.models.contains(&need.model) {
            continue;
        }
        // Where it is known in another number format alone, whoever asks is told so, which takes its shape.
        if is_lent || is_derived || is_known_at_all(card, &need) {
            card.models.push(need.model);
        }
    }
}

/// By which a card's ops are derived, where they are.
fn roofline_of(card: &Card) -> Option<Roofline> {
    if !matches!(card.provenance.source, Source::Imported | Source::Derived) {
        return None;
    }
    let of_product = || Datasheet::all().into_iter().find(|sheet| sheet.product == card.device.name);
    card.datasheet.clone().or_else(of_product).map(Roofline::new)
}

/// Adds what is missing of a need by the card's roofline in its number format, if it has one. Says whether there was
/// anything.
fn derive(card: &mut Card, need: &Need, roofline_of: impl Fn(&Card, DType) -> Option<Roofline>) -> bool {
    let missing = Missing::of(&card.tables, need);
    if missing == Missing::default() {
        return false;
    }
    let Some(roofline) = roofline_of(card, need.dtype) else {
        return false;
    };
    if is_known_at_all(card, need) && !is_known(card, need, need.dtype) {
        return false;
    }
    let derived = missing.derived(&roofline, need);
    merge(card, derived, &roofline.sheet.name);
    true
}

/// Whether shapes differ by no more than how many layers there are.
fn is_of_such_layers(one: &ModelShape, other: &ModelShape) -> bool {
    let one = ModelShape {
        layers: other.layers,
        ..one.clone()
    };
    one == *other
}

/// Whether somebody measured or published the model's layers in such a number format, under whatever name.
fn is_known(card: &Card, need: &Need, dtype: DType) -> bool {
    let layers = [slices(&card.tables.encoder_layer), slices(&card.tables.decoder_dense)];
    layers.iter().flatten().any(|slice| {
        let is_of_such_layers = |name| card.model(name).is_some_and(|shape| shape.has_layers_of(&need.model));
        dtype_of(&slice.label) == Some(dtype.to_string().as_str())
            && model_of(&slice.label).is_some_and(is_of_such_layers)
            && card.origin(slice.family, &slice.label).kind != Source::Derived
    })
}

/// The same in any number format.
fn is_known_at_all(card: &Card, need: &Need) -> bool {
    DType::ALL.iter().any(|dtype| is_known(card, need, *dtype))
}

/// What a card has not got of a need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Missing {
    /// Any of the model's own tables.
    model: bool,
    /// Adapters of this bottleneck.
    bottleneck: Option<u32>,
    /// LoRAs of this rank.
    rank: Option<u32>,
}

impl Missing {
    fn of(tables: &Tables, need: &Need) -> Missing {
        let own = (&need.model.name, need.dtype);
        let has_model = match is_encoder(&need.model) {
            true => {
                tables.encoder_layer.iter().any(|row| (&row.model, row.dtype) == own)
                    && tables.embedding.iter().any(|row| (&row.model, row.dtype) == own)
                    && tables.head.iter().any(|row| (&row.model, row.dtype) == own)
                    && tables.plot_lookup.iter().any(|row| row.model == need.model.name)
            }
            false => {
                let shared = (&need.model.name, need.dtype, need.tensor_parallel);
                macro_rules! has {
                    ($family:ident) => {{ tables.$family.iter() }.any(|row| (&row.model, row.dtype, row.tensor_parallel) == shared)};
                }
                has!(decoder_dense)
                    && has!(decoder_prefill)
                    && has!(decoder_decode)
                    && has!(decoder_ends)
                    && tables.plot_lookup.iter().any(|row| row.model == need.model.name)
            }
        };
        let is_of = |row: &AdapterRow, bottleneck| (&row.model, row.dtype) == own && row.bottleneck == bottleneck;
        let has_bottleneck = |bottleneck: &u32| tables.adapter.iter().any(|row| is_of(row, *bottleneck));
        let is_of = |row: &LoraRow, rank| {
            (&row.model, row.dtype) == own && (row.rank, row.tensor_parallel) == (rank, need.tensor_parallel)
        };
        let has_rank = |rank: &u32| tables.lora.iter().any(|row| is_of(row, *rank));
        Missing {
            model: !has_model,
            bottleneck: need.bottleneck.filter(|bottleneck| !has_bottleneck(bottleneck)),
            rank: need.rank.filter(|rank| !has_rank(rank)),
        }
    }

    fn derived(self, roofline: &Roofline, need: &Need) -> Tables {
        let Need { model, dtype, .. } = need;
        let mut derived = Tables::default();
        match (self.model, is_encoder(model)) {
            (false, _) => {}
            (true, true) => encoder(&mut derived, roofline, model, *dtype),
            (true, false) => decoder(&mut derived, roofline, model, *dtype),
        }
        // Of some sizes they came with the model.
        let left = Missing::of(&derived, need);
        if let Some(bottleneck) = self.bottleneck.and(left.bottleneck) {
            for tokens in adapter_tokens(model) {
                adapters(&mut derived, roofline, model, *dtype, bottleneck, tokens);
            }
        }
        if let Some(rank) = self.rank.and(left.rank) {
            for &implementation in AdapterImplementation::ALL {
                let of = (implementation, [rank, need.tensor_parallel]);
                lora(&mut derived, roofline, model, *dtype, of);
            }
        }
        without_model(&mut derived, roofline);
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;

    fn need(model: ModelShape, dtype: DType) -> Need {
        Need {
            model,
            dtype,
            bottleneck: None,
            rank: None,
            tensor_parallel: 1,
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

    /// Cards that share a layer share its LoRA's products too.
    #[test]
    fn loras_of_shared_layers_are_derived_for_a_card_of_them() {
        let (mut a100, llama) = (card("a100-sxm"), ModelShape::builtin("llama-70b").unwrap());
        let on = |tensor_parallel| Need {
            rank: Some(16),
            tensor_parallel,
            ..need(llama.clone(), DType::F16)
        };
        complete(&mut a100, [on(1), on(8)]);
        a100.validate().unwrap();
        let us = |cards| {
            let surface = a100.lora(&llama, DType::F16, AdapterImplementation::Grouped, 16, cards);
            surface.unwrap().cost(32, 32).median_ns as f64 / 1e3
        };
        assert!(us(8) < us(1) && us(8) > us(1) / 8.0, "{} and {} µs", us(8), us(1));
    }

    #[test]
    fn layers_that_are_known_in_another_number_format_are_derived_under_no_name() {
        let before = card("l4");
        let mut l4 = before.clone();
        let mine = ModelShape {
            name: "mine".into(),
            vocabulary: 50_265,
            ..ModelShape::builtin("bert-base").unwrap()
        };
        complete(&mut l4, [need(mine.clone(), DType::F32)]);
        assert_eq!(l4.tables, before.tables);
        let refused = l4.encoder_layer(&mine, DType::F32).unwrap_err();
        assert_eq!(*refused.other_formats, ["f16"]);
        complete(&mut l4, [need(mine.clone(), DType::F16)]);
        let cost = |model: &ModelShape| l4.encoder_layer(model, DType::F16).unwrap().cost(8, 128);
        assert_eq!(cost(&mine), cost(&ModelShape::builtin("bert-base").unwrap()));
    }

    /// By the sheet that they were derived from, which the product does not come with.
    #[test]
    fn cards_of_datasheets_of_ones_own_are_completed() {
        let sheet = Datasheet {
            name: "mine".into(),
            product: "A card of mine".into(),
            ..Datasheet::builtin("t4").unwrap()
        };
        let base = ModelShape::builtin("bert-base").unwrap();
        let mut mine = super::super::derive_card(&Roofline::new(sheet.clone()), &[base], "2026-01-01", "derive");
        assert_eq!(mine.datasheet, Some(sheet));
        let large = ModelShape::builtin("bert-large").unwrap();
        assert!(mine.encoder_layer(&large, DType::F32).is_err());
        complete(&mut mine, [need(large.clone(), DType::F32)]);
        mine.validate().unwrap();
        assert!(mine.encoder_layer(&large, DType::F32).is_ok());
    }

    #[test]
    fn measured_cards_and_papers_and_cpus_and_other_shapes_are_left_alone() {
        let another = ModelShape {
            layers: 3,
            ..ModelShape::builtin("bert-base").unwrap()
        };
        let large = ModelShape::builtin("roberta-large").unwrap_or_else(|| ModelShape {
            name: "wide".into(),
            ..ModelShape::builtin("bert-large").unwrap()
        });
        let base = ModelShape::builtin("bert-base").unwrap();
        let distilled = ModelShape::builtin("distilbert").unwrap();
        for (name, model, dtype) in [
            // Which it knows in half precision, the second by the layers of the first.
            ("l4", base, DType::F32),
            ("l4", distilled, DType::F32),
            ("cpu", large.clone(), DType::F32),
            ("paper-p5000", large.clone(), DType::F32),
            ("t4", another, DType::F32),
            ("t4", large, DType::Bf16),
        ] {
            let before = card(name);
            let mut after = before.clone();
            complete(&mut after, [need(model, dtype)]);
            assert_eq!(after.tables, before.tables, "{name}");
            assert_eq!(after.origins, before.origins, "{name}");
        }
        // Also where its driver calls it as its maker does.
        let mut measured = card("t4");
        measured.provenance.source = Source::Measured;
        let (before, small) = (measured.digest(), ModelShape::builtin("tiny").unwrap());
        complete(&mut measured, [need(small, DType::F32)]);
        assert_eq!(measured.digest(), before);
    }
}
