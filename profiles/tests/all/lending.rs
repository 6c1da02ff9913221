//! Layers that a card knows under another model's name.

use tenantry_profiles::roofline::{Need, complete};
use tenantry_profiles::{Card, Cost, DType, Family, ModelShape, Source};

/// A model of a card's layers, and the cards that share each.
type Layers = (ModelShape, DType, u32);

fn cards() -> impl Iterator<Item = Card> {
    let names = Card::embedded_names().into_iter();
    names.map(|name| Card::embedded(name).unwrap().unwrap())
}

fn need((model, dtype, tensor_parallel): &Layers) -> Need {
    Need {
        model: model.clone(),
        dtype: *dtype,
        bottleneck: None,
        rank: None,
        tensor_parallel: *tensor_parallel,
    }
}

/// Whose layers a card has, with the origin of these.
fn layers_of(card: &Card) -> Vec<(Layers, Family, String)> {
    let layers = |name: &str, dtype, cards| (card.model(name).unwrap(), dtype, cards);
    let mut all = Vec::new();
    for row in &card.tables.encoder_layer {
        let table = format!("model={} dtype={}", row.model, row.dtype);
        all.push((layers(&row.model, row.dtype, 1), Family::EncoderLayer, table));
    }
    for row in &card.tables.decoder_dense {
        let (dtype, cards) = (row.dtype, row.tensor_parallel);
        let table = format!("model={} dtype={dtype} tensor_parallel={cards}", row.model);
        all.push((layers(&row.model, dtype, cards), Family::DecoderDense, table));
    }
    all.dedup();
    all
}

/// What one of its layers costs, at some sizes within all tables and beyond some.
fn of_a_layer(card: &Card, (model, dtype, cards): &Layers) -> Vec<Cost> {
    let sizes = [(1, 16), (3, 100), (8, 300), (64, 700)];
    match card.encoder_layer(model, *dtype) {
        Ok(layer) => sizes.map(|(batch, tokens)| layer.cost(batch, tokens)).to_vec(),
        Err(_) => {
            let decoder = card.decoder(model, *dtype, *cards).unwrap();
            sizes.map(|(sequences, tokens)| decoder.dense.cost(u64::from(sequences * tokens))).to_vec()
        }
    }
}

/// Under another name, with another number of layers, words or positions: it costs what the layers cost that it shares,
/// and what half as many layers take is half of it.
#[test]
fn a_layer_costs_the_same_whatever_its_model_is_called() {
    for card in cards() {
        let all = layers_of(&card);
        for (layers, family, table) in &all {
            let (model, dtype, cards) = layers;
            let alike = |(other, other_dtype, other_cards): &Layers| {
                other.has_layers_of(model) && (other_dtype, other_cards) == (dtype, cards)
            };
            for (vocabulary, positions) in [(model.vocabulary, model.positions), (777, 64)] {
                let copy = ModelShape {
                    name: "renamed".into(),
                    layers: 2 * model.layers,
                    vocabulary,
                    positions,
                    ..model.clone()
                };
                let copy = (copy, *dtype, *cards);
                let mut completed = card.clone();
                complete(&mut completed, [need(&copy)]);
                let what = format!("{}: {table}", card.name);
                completed.validate().unwrap_or_else(|error| panic!("{what}: {error}"));
                if *family == Family::DecoderDense && completed.decoder(&copy.0, *dtype, *cards).is_err() {
                    let is_measured = matches!(card.provenance.source, Source::Measured | Source::Fitted);
                    assert!(
                        is_measured && vocabulary == 777,
                        "{what}: only ends of other words are missing"
                    );
                    continue;
                }
                let renamed = table.replace(&format!("model={} ", model.name), "model=renamed ");
                let (own, lent) = (card.origin(*family, table), completed.origin(*family, &renamed));
                let Some(lender) = lent.lent_by.clone() else {
                    // What is derived is derived again, to more digits than tables have.
                    assert_eq!((own.kind, lent.kind), (Source::Derived, Source::Derived), "{what}");
                    continue;
                };
                let lender = all
                    .iter()
                    .find(|(other, ..)| other.0.name == lender && alike(other))
                    .expect("it lends what it has");
                assert_eq!(of_a_layer(&completed, &copy), of_a_layer(&card, &lender.0), "{what}");
                // The mark says how the lender's was come by, and nothing better was to be had.
                let of_lender = card.origin(*family, &lender.2);
                assert_eq!((lent.kind, &lent.error), (of_lender.kind, &of_lender.error), "{what}");
                let others = all.iter().filter(|(other, ..)| alike(other));
                let kinds = others.map(|(.., table)| card.origin(*family, table).kind);
                assert_eq!(kinds.min(), Some(lent.kind), "{what}");
                let said = format!(
                    "layers of {}, which have the same shape: {}",
                    lender.0.0.name, of_lender.source
                );
                assert_eq!(lent.source, said);
                // What priced a run is told, however well it is known.
                let told = completed.used_to_be_told();
                assert!(
                    told.iter().any(|used| (used.family, &used.table) == (*family, &renamed)),
                    "{what}"
                );
                // Again there is nothing to lend, and nothing of what was there has changed.
                let once = completed.clone();
                complete(&mut completed, [need(&copy)]);
                assert_eq!(completed, once, "{what}");
                assert_eq!(of_a_layer(&completed, layers), of_a_layer(&card, layers), "{what}");
            }
        }
    }
}

/// The order in which models are asked for makes no difference: nobody lends what he borrowed.
#[test]
fn models_lend_what_is_their_own() {
    let base = ModelShape::builtin("bert-base").unwrap();
    let called = |name: &str| ModelShape {
        name: name.into(),
        layers: 6,
        ..base.clone()
    };
    for (card, dtype) in [
        ("l4", DType::F16),
        ("paper-p5000", DType::F32),
        ("h200-sxm", DType::Bf16),
    ] {
        let card = Card::embedded(card).unwrap().unwrap();
        let [a, z] = ["a", "z"].map(|name| need(&(called(name), dtype, 1)));
        let mut one_way = card.clone();
        complete(&mut one_way, [a.clone(), z.clone()]);
        let mut other_way = card.clone();
        complete(&mut other_way, [z, a]);
        let origins = |card: &Card, name: &str| {
            let of_model = |table: &String| table.starts_with(&format!("model={name} "));
            let all = card.origins.list().iter().filter(|origin| origin.table.as_ref().is_some_and(of_model));
            all.map(|origin| (origin.family, origin.source.clone())).collect::<Vec<_>>()
        };
        for name in ["a", "z"] {
            assert!(!origins(&one_way, name).is_empty());
            assert_eq!(
                origins(&one_way, name),
                origins(&other_way, name),
                "{}: {name}",
                card.name
            );
        }
    }
}

/// Whole models and what comes after the last layer say nothing of models that have more layers or other words.
#[test]
fn what_is_of_more_than_a_layer_is_lent_where_it_is_the_same() {
    let base = ModelShape::builtin("bert-base").unwrap();
    let h200 = Card::embedded("h200-sxm").unwrap().unwrap();
    let with_layers = |layers| {
        let model = ModelShape {
            name: "renamed".into(),
            layers,
            vocabulary: 999,
            ..base.clone()
        };
        let mut card = h200.clone();
        complete(&mut card, [need(&(model.clone(), DType::Bf16, 1))]);
        card.static_model(&model, DType::Bf16).is_ok()
    };
    assert!(with_layers(12) && !with_layers(11));

    let llama = ModelShape::builtin("llama3-8b").unwrap();
    let rtx4090 = Card::embedded("rtx4090").unwrap().unwrap();
    let ends = |vocabulary| {
        let model = ModelShape {
            name: "renamed".into(),
            vocabulary,
            ..llama.clone()
        };
        let mut card = rtx4090.clone();
        complete(&mut card, [need(&(model.clone(), DType::Bf16, 1))]);
        assert!(card.decoder(&model, DType::Bf16, 1).is_ok());
        card.origin(Family::DecoderEnds, "model=renamed dtype=bf16 tensor_parallel=1").kind
    };
    assert_eq!(ends(llama.vocabulary), Source::Imported);
    assert_eq!(ends(llama.vocabulary / 2), Source::Derived);
}

/// What a model has of its own stays, and what it lacks beside comes from whoever has it.
#[test]
fn a_models_own_tables_come_first() {
    let p5000 = Card::embedded("paper-p5000").unwrap().unwrap();
    let distilbert = ModelShape::builtin("distilbert").unwrap();
    let layers = (distilbert.clone(), DType::F32, 1);
    let mut completed = p5000.clone();
    complete(&mut completed, [need(&layers)]);
    assert_eq!(of_a_layer(&completed, &layers), of_a_layer(&p5000, &layers));
    let table = "model=distilbert dtype=f32";
    assert_eq!(completed.origin(Family::EncoderLayer, table).lent_by, None);
    let adapter = |card: &Card| {
        let tables = card.tables.names().into_iter();
        let adapters = tables.filter(|(family, label)| *family == Family::Adapter && label.starts_with(table));
        adapters.map(|(family, label)| card.origin(family, &label).lent_by).collect::<Vec<_>>()
    };
    assert!(adapter(&p5000).is_empty());
    assert!(adapter(&completed).iter().all(|lender| lender.as_deref() == Some("bert-base")));
    assert!(!adapter(&completed).is_empty());
}
