//! What a card knows of a layer under another model's name.
//!
//! A layer costs what its shape and its number format say, whatever the model is called, however many such layers it
//! has, and whatever words come before and after them. So a model that a card has no tables of borrows those of one
//! whose layers are the same.

use std::collections::BTreeSet;

use super::complete::Need;
use super::ops::is_encoder;
use crate::card::{Card, Source};
use crate::certainty::Certainty;
use crate::family::Family;
use crate::model::ModelShape;
use crate::origin::Origin;
use crate::rows::Row;
use crate::slice::{dtype_of, table_of};
use crate::tables::for_each_family;

/// A card's table of a model.
struct Table {
    family: Family,
    model: String,
    /// What the card calls it.
    label: String,
    /// What it would be called as the borrower's.
    as_borrowed: String,
}

/// Gives a model the tables of those models of the card whose layers are the same, as far as it has none of its own:
/// measured ones before imported, and those before others. Each has an origin that says whose it is, before where it
/// comes from. What is no more than derived is left out where it `is_derived_anew` for whoever lacks it. Says whether
/// there were any.
pub(super) fn lend(card: &mut Card, need: &Need, is_derived_anew: impl Fn(&Card) -> bool) -> bool {
    let lenders = lenders(card, need);
    if lenders.is_empty() {
        return false;
    }
    let borrowed = borrowed(card, need, &lenders, is_derived_anew);
    for tables in [&mut card.tables, &mut card.held_out] {
        for_each_family!(tables, rows => take(rows, &borrowed, &need.model.name));
    }
    for (table, origin) in &borrowed {
        let certainty = card.certainty_of(table.family, &table.label).cloned();
        card.certainty.extend(certainty.map(|certainty| Certainty {
            table: table.as_borrowed.clone(),
            ..certainty
        }));
        card.origins.push(origin.clone());
    }
    !borrowed.is_empty()
}

/// The models that do the same in each layer and of which the card has tables of their own in the need's number format,
/// the best known first, and of equally known ones those that are most alike in other ways.
fn lenders(card: &Card, need: &Need) -> Vec<ModelShape> {
    let Need { model, dtype, .. } = need;
    let (encoders, decoders) = (&card.tables.encoder_layer, &card.tables.decoder_dense);
    let names: BTreeSet<(&str, u32)> = match is_encoder(model) {
        true => encoders.iter().filter(|row| row.dtype == *dtype).map(|row| (row.model.as_str(), 0)).collect(),
        false => decoders
            .iter()
            .filter(|row| row.dtype == *dtype)
            .map(|row| (row.model.as_str(), row.tensor_parallel))
            .collect(),
    };
    let mut lenders: Vec<(Source, ModelShape)> = Vec::new();
    let mut last = "";
    for (name, cards) in names {
        // Sorted by name, so that a decoder's tables for several cards follow each other: the first of them tells.
        if std::mem::replace(&mut last, name) == name {
            continue;
        }
        let Some(shape) = card.model(name).filter(|shape| shape.has_layers_of(model)) else {
            continue;
        };
        let table = format!("model={name} dtype={dtype}");
        let origin = match is_encoder(model) {
            true => card.origin(Family::EncoderLayer, &table),
            false => card.origin(Family::DecoderDense, &format!("{table} tensor_parallel={cards}")),
        };
        if name != model.name && origin.lent_by.is_none() {
            lenders.push((origin.kind, shape));
        }
    }
    lenders.sort_by_key(|(source, shape)| {
        let differs = (shape.vocabulary != model.vocabulary, shape.layers != model.layers);
        (*source, differs)
    });
    lenders.into_iter().map(|(_, shape)| shape).collect()
}

/// The tables that the model of a need borrows, and what is to be said of each.
fn borrowed(
    card: &Card,
    need: &Need,
    lenders: &[ModelShape],
    is_derived_anew: impl Fn(&Card) -> bool,
) -> Vec<(Table, Origin)> {
    let mut tables = Vec::new();
    for_each_family!(shared &card.tables, rows => tables.extend(of_models(rows, &need.model.name)));
    let is_of_format = |table: &Table| dtype_of(&table.label).is_none_or(|dtype| dtype == need.dtype.to_string());
    tables.retain(is_of_format);
    let (own, others): (Vec<Table>, Vec<Table>) = tables.into_iter().partition(|table| table.model == need.model.name);
    let has_layers = own.iter().any(|table| is_of_layers(table.family));
    let mut there: BTreeSet<(Family, String)> = own.into_iter().map(|table| (table.family, table.label)).collect();
    let rank = |table: &Table| lenders.iter().position(|lender| lender.name == table.model);
    let mut ranked: Vec<(usize, Table)> = others.into_iter().filter_map(|table| Some((rank(&table)?, table))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut borrowed = Vec::new();
    for (rank, table) in ranked {
        let origin = card.origin(table.family, &table.label);
        let fits = holds_for(table.family, &lenders[rank], &need.model)
            // What goes with the layers comes from where they come from.
            && (!refines(table.family) || (rank == 0 && !has_layers))
            && origin.lent_by.is_none()
            && !(origin.kind >= Source::Derived && is_derived_anew(card));
        if fits && there.insert((table.family, table.as_borrowed.clone())) {
            let origin = Origin {
                table: Some(table.as_borrowed.clone()),
                source: format!(
                    "layers of {}, which have the same shape: {}",
                    table.model, origin.source
                ),
                lent_by: Some(table.model.clone()),
                ..origin
            };
            borrowed.push((table, origin));
        }
    }
    borrowed
}

/// The tables of one family that are some model's, and what they would be called as another's.
fn of_models<R: Row>(rows: &[R], borrower: &str) -> Vec<Table> {
    let first = rows.chunk_by(R::shares_table).map(|run| &run[0]);
    let of_model = first.filter_map(|row| Some((row.name("model")?, row)));
    let tables = of_model.map(|(model, row)| Table {
        family: R::FAMILY,
        model,
        label: table_of(row),
        as_borrowed: table_of(&row.of_model(borrower)),
    });
    tables.collect()
}

/// Copies the rows of the borrowed tables of one family.
fn take<R: Row>(rows: &mut Vec<R>, borrowed: &[(Table, Origin)], borrower: &str) {
    let is_borrowed = |run: &&[R]| {
        let label = table_of(&run[0]);
        borrowed.iter().any(|(table, _)| table.family == R::FAMILY && table.label == label)
    };
    let lent = rows.chunk_by(R::shares_table).filter(is_borrowed).flatten();
    let lent: Vec<R> = lent.map(|row| row.of_model(borrower)).collect();
    rows.extend(lent);
}

/// Whether a family says what layers themselves cost.
fn is_of_layers(family: Family) -> bool {
    matches!(family, Family::EncoderLayer | Family::DecoderDense)
}

/// Whether what one model's table of a family says holds for another whose layers are the same.
fn holds_for(family: Family, lender: &ModelShape, borrower: &ModelShape) -> bool {
    match family {
        Family::EncoderLayer
        | Family::AttendedLayer
        | Family::Adapter
        | Family::ConcurrentLayer
        | Family::ConcurrentPet
        | Family::Pet
        | Family::DecoderDense
        | Family::DecoderPrefill
        | Family::DecoderWholePrompt
        | Family::DecoderDecode
        | Family::DecoderMixed
        | Family::DecoderPrompts
        | Family::Lora
        // They are as wide as layers: each token is a row that is read, wherever it lies, and heads know nothing of
        // words.
        | Family::Embedding
        | Family::Head
        | Family::TaggingHead
        // The machine's more than the model's.
        | Family::Resume => true,
        // With a column of the output matrix for each word, and tables of representations of them.
        Family::DecoderEnds | Family::DecoderStep | Family::ConcurrentStep | Family::PlotLookup => {
            lender.vocabulary == borrower.vocabulary
        }
        // Of all layers at once.
        Family::StaticModel | Family::ConcurrentModel => lender.layers == borrower.layers,
        // Of a trained classifier, with a head and a tokenizer of its own.
        Family::TextPass | Family::TextLook => false,
        // Of no model.
        Family::Copy
        | Family::ModelLoad
        | Family::Dispatch
        | Family::HandOver
        | Family::CopyResume
        | Family::LookupResume
        | Family::Collective
        | Family::Solve
        | Family::Plan => false,
    }
}

/// Whether a family refines a price, which where a model lacks it is that of whatever is nearest.
fn refines(family: Family) -> bool {
    matches!(
        family,
        Family::AttendedLayer
            | Family::ConcurrentModel
            | Family::DecoderWholePrompt
            | Family::DecoderMixed
            | Family::DecoderPrompts
            | Family::DecoderStep
            | Family::ConcurrentStep
            | Family::PlotLookup
            | Family::Resume
    )
}
