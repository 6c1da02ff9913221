//! Fills a card with tables that are computed from a datasheet, each marked as derived.

use std::collections::BTreeMap;

use super::ops::{DISK_BYTES_PER_US, is_encoder, plot_lookup_us};
use super::sharing::{in_proportion, on_one_card};
use super::{DerivedError, Factors, Roofline};
use crate::card::{Card, Device, DeviceKind, Host, Lanes, Provenance, Source};
use crate::family::Family;
use crate::keys::{
    AdapterImplementation, CollectiveOperation, Direction, DispatchOperation, LoadSource, LookupOutcome, PetKind, Tier,
    TokensOf,
};
use crate::model::{DType, ModelShape};
use crate::origin::Origin;
use crate::rows::{
    AdapterRow, CollectiveRow, ConcurrentLayerRow, CopyRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow,
    DecoderPrefillRow, DispatchRow, EmbeddingRow, EncoderLayerRow, HeadRow, LoraRow, ModelLoadRow, PetRow,
    PlotLookupRow, StaticModelRow,
};
use crate::slice::slices;
use crate::stats::Stats;
use crate::tables::{Tables, for_each_family};

const BATCHES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const TOKENS: [u32; 6] = [16, 32, 64, 128, 256, 512];
const CLASSES: [u32; 2] = [2, 16];
const BOTTLENECKS: [u32; 2] = [16, 64];
const ADAPTER_TOKENS: [u32; 3] = [16, 128, 512];
const STREAMS: [u32; 4] = [1, 2, 4, 8];
const STEP_TOKENS: [u32; 10] = [1, 8, 32, 64, 128, 256, 512, 1024, 2048, 8192];
const CONTEXTS: [u32; 6] = [16, 128, 512, 1024, 2048, 4096];
const SEQUENCES: [u32; 7] = [1, 4, 16, 32, 64, 128, 256];
const RANKS: [u32; 2] = [16, 64];
/// Sizes of copies whose costs lie on a line between them.
pub(crate) const COPY_BYTES: [u64; 6] = [1 << 10, 1 << 15, 1 << 20, 1 << 23, 1 << 26, 1 << 30];
const LOAD_BYTES: [u64; 4] = [1 << 20, 1 << 26, 1 << 30, 1 << 36];
const THREADS: [u32; 2] = [1, 8];

/// What handing work over takes on a host that nobody measured.
const DISPATCH_US: [(DispatchOperation, f64); 3] = [
    (DispatchOperation::Wake, 10.0),
    (DispatchOperation::Tell, 10.0),
    (DispatchOperation::Alarm, 60.0),
];

/// A card that nobody measured, from its datasheet: these models' tables in every number format that the card has, and
/// whatever needs no model. `date` and `command` say when and how it was made.
pub fn derive_card(roofline: &Roofline, models: &[ModelShape], date: &str, command: &str) -> Card {
    let sheet = &roofline.sheet;
    let device = Device {
        name: sheet.product.clone(),
        kind: DeviceKind::Cuda,
        memory_bytes: sheet.memory_bytes,
        // What a context, its libraries and activations commonly take.
        reserve_bytes: sheet.memory_bytes / 10,
        shares_host_memory: sheet.shares_host_memory,
        driver: None,
        libtorch: None,
        host: Host {
            cpu: "unknown".into(),
            cores: 8,
        },
    };
    let notes = vec![
        format!("from the datasheet alone ({}); measured on no device", sheet.source),
        format!(
            "costs by roofline: {} µs a kernel, {:.0} % of the arithmetic and {:.0} % of the memory's bandwidth; \
                 whole encoders: {} on cards left out of the fit",
            roofline.factors.launch_us,
            100.0 * roofline.factors.arithmetic,
            100.0 * roofline.factors.memory,
            Factors::stated_error(),
        ),
        "host, dispatch, disk and contention are assumptions".into(),
    ];
    let provenance = Provenance::unmeasured(Source::Derived, date, command, notes);
    let mut card = Card {
        datasheet: (!sheet.is_builtin()).then(|| sheet.clone()),
        ..Card::without_tables(&sheet.name, device, Lanes { host: 1 }, provenance)
    };
    let is_builtin = |model: &&ModelShape| ModelShape::builtin(&model.name).as_ref() == Some(*model);
    card.models = models.iter().filter(|model| !is_builtin(model)).cloned().collect();
    for &dtype in DType::ALL {
        if sheet.peak(dtype).is_some() {
            fill(&mut card, roofline, models, dtype);
        }
    }
    card
}

/// Adds to a card the tables of these models and this number format that it lacks, and those without a model, each
/// listed among its origins as derived.
pub fn fill(card: &mut Card, roofline: &Roofline, models: &[ModelShape], dtype: DType) {
    let mut derived = Tables::default();
    for model in models {
        if is_encoder(model) {
            encoder(&mut derived, roofline, model, dtype);
        } else {
            decoder(&mut derived, roofline, model, dtype);
        }
    }
    without_model(&mut derived, roofline);
    merge(card, derived, &roofline.sheet.name);
}

/// The values up to the longest input, and that one.
fn up_to(values: &[u32], most: u32) -> Vec<u32> {
    let mut values: Vec<u32> = values.iter().copied().filter(|value| *value < most).collect();
    values.push(most);
    values
}

pub(super) fn encoder(tables: &mut Tables, roofline: &Roofline, shape: &ModelShape, dtype: DType) {
    let model = || shape.name.clone();
    let lengths = up_to(&TOKENS, shape.positions.min(512));
    for batch in BATCHES {
        for &tokens in &lengths {
            let stats = Stats::exact(roofline.encoder_layer_us(shape, dtype, batch, tokens));
            tables.encoder_layer.push(EncoderLayerRow {
                model: model(),
                dtype,
                batch,
                tokens,
                stats,
            });
            let stats = Stats::exact(roofline.embedding_us(shape, dtype, batch, tokens));
            tables.embedding.push(EmbeddingRow {
                model: model(),
                dtype,
                batch,
                tokens,
                stats,
            });
            let stats = Stats::exact(roofline.static_model_us(shape, dtype, batch, tokens));
            tables.static_model.push(StaticModelRow {
                model: model(),
                dtype,
                batch,
                tokens,
                stats,
            });
            for streams in STREAMS {
                let stats = Stats::exact(roofline.concurrent_layer_us(shape, dtype, streams, batch, tokens));
                let row = ConcurrentLayerRow {
                    model: model(),
                    dtype,
                    streams,
                    batch,
                    tokens,
                    stats,
                };
                tables.concurrent_layer.push(row);
            }
            for &kind in PetKind::ALL {
                let stats = Stats::exact(roofline.pet_us(shape, dtype, kind, batch, tokens));
                tables.pet.push(PetRow {
                    model: model(),
                    dtype,
                    kind,
                    batch,
                    tokens,
                    stats,
                });
            }
        }
        for classes in CLASSES {
            let stats = Stats::exact(roofline.head_us(shape, dtype, batch, classes));
            tables.head.push(HeadRow {
                model: model(),
                dtype,
                batch,
                classes,
                stats,
            });
        }
    }
    for bottleneck in BOTTLENECKS {
        for tokens in adapter_tokens(shape) {
            adapters(tables, roofline, shape, dtype, bottleneck, tokens);
        }
    }
    plot(tables, shape);
}

/// The lengths at which adapters are derived.
pub(super) fn adapter_tokens(shape: &ModelShape) -> Vec<u32> {
    up_to(&ADAPTER_TOKENS, shape.positions.min(512))
}

/// Adapters of one bottleneck and length, in all implementations.
pub(crate) fn adapters(
    tables: &mut Tables,
    roofline: &Roofline,
    shape: &ModelShape,
    dtype: DType,
    bottleneck: u32,
    tokens: u32,
) {
    for &implementation in AdapterImplementation::ALL {
        for batch in BATCHES {
            for tenants in BATCHES.into_iter().filter(|tenants| *tenants <= batch) {
                let point = [tenants, batch, tokens];
                let stats = Stats::exact(roofline.adapter_us(shape, dtype, implementation, bottleneck, point));
                let model = shape.name.clone();
                tables.adapter.push(AdapterRow {
                    model,
                    dtype,
                    implementation,
                    bottleneck,
                    tenants,
                    batch,
                    tokens,
                    stats,
                });
            }
        }
    }
}

/// Look-ups, as HMI's host does them. It has no figure for decoders, which read one vector for each token whatever the
/// fragment: theirs are taken for an encoder's of trigrams.
pub(crate) fn plot(tables: &mut Tables, shape: &ModelShape) {
    for &tier in Tier::ALL {
        for threads in THREADS {
            for tokens in [16, 128, 512, 2048, 8192] {
                for fragment_tokens in [1, 3, 8] {
                    let fragments = if is_encoder(shape) { fragment_tokens } else { 3 };
                    tables.plot_lookup.push(PlotLookupRow {
                        model: shape.name.clone(),
                        tier,
                        outcome: LookupOutcome::Any,
                        tokens_of: TokensOf::Texts,
                        threads,
                        tokens,
                        fragment_tokens,
                        stats: Stats::exact(plot_lookup_us(tier == Tier::Disk, tokens, fragments)),
                    });
                }
            }
        }
    }
}

pub(super) fn decoder(tables: &mut Tables, roofline: &Roofline, shape: &ModelShape, dtype: DType) {
    let cards = |cards: &u32| shape.kv_heads.is_multiple_of(*cards);
    for tensor_parallel in [1, 2, 4, 8].into_iter().filter(cards) {
        decoder_layers(tables, roofline, shape, dtype, tensor_parallel);
    }
    for rank in RANKS {
        for &implementation in AdapterImplementation::ALL {
            lora(tables, roofline, shape, dtype, (implementation, [rank, 1]));
        }
    }
    plot(tables, shape);
}

/// The four tables of a decoder whose layers so many cards share.
pub(crate) fn decoder_layers(
    tables: &mut Tables,
    roofline: &Roofline,
    shape: &ModelShape,
    dtype: DType,
    tensor_parallel: u32,
) {
    let model = || shape.name.clone();
    let contexts = up_to(&CONTEXTS, shape.positions.min(4096));
    for tokens in STEP_TOKENS {
        let stats = Stats::exact(roofline.decoder_dense_us(shape, dtype, tensor_parallel, tokens));
        tables.decoder_dense.push(DecoderDenseRow {
            model: model(),
            dtype,
            tensor_parallel,
            tokens,
            stats,
        });
    }
    for &tokens in &contexts {
        for &context in contexts.iter().filter(|context| tokens <= **context) {
            let stats = Stats::exact(roofline.decoder_prefill_us(shape, dtype, tensor_parallel, [tokens, context]));
            let row = DecoderPrefillRow {
                model: model(),
                dtype,
                tensor_parallel,
                tokens,
                context,
                stats,
            };
            tables.decoder_prefill.push(row);
        }
    }
    for sequences in SEQUENCES {
        for &context in &contexts {
            let stats = Stats::exact(roofline.decoder_decode_us(shape, dtype, tensor_parallel, [sequences, context]));
            let row = DecoderDecodeRow {
                model: model(),
                dtype,
                tensor_parallel,
                sequences,
                context,
                stats,
            };
            tables.decoder_decode.push(row);
        }
        for tokens in STEP_TOKENS {
            let stats = Stats::exact(roofline.decoder_ends_us(shape, dtype, tensor_parallel, [sequences, tokens]));
            let row = DecoderEndsRow {
                model: model(),
                dtype,
                tensor_parallel,
                sequences,
                tokens,
                stats,
            };
            tables.decoder_ends.push(row);
        }
    }
}

/// LoRA of one rank over steps of several tenants, where so many cards share a layer.
pub(super) fn lora(
    tables: &mut Tables,
    roofline: &Roofline,
    shape: &ModelShape,
    dtype: DType,
    (implementation, [rank, tensor_parallel]): (AdapterImplementation, [u32; 2]),
) {
    for tokens in STEP_TOKENS {
        for tenants in [1, 8, 32, 64].into_iter().filter(|tenants| *tenants <= tokens) {
            let us = roofline.lora_us(shape, dtype, implementation, [rank, tensor_parallel], [tenants, tokens]);
            tables.lora.push(LoraRow {
                model: shape.name.clone(),
                dtype,
                implementation,
                rank,
                tensor_parallel,
                tenants,
                tokens,
                stats: Stats::exact(us),
            });
        }
    }
}

pub(super) fn without_model(tables: &mut Tables, roofline: &Roofline) {
    let direction = Direction::HostToDevice;
    for bytes in COPY_BYTES {
        for pinned in [false, true] {
            let stats = Stats::exact(roofline.copy_us(pinned, bytes));
            tables.copy.push(CopyRow {
                direction,
                pinned,
                bytes,
                stats,
            });
        }
    }
    for bytes in LOAD_BYTES {
        for source in [LoadSource::Disk, LoadSource::Host] {
            let stats = Stats::exact(roofline.model_load_us(source, bytes));
            tables.model_load.push(ModelLoadRow { source, bytes, stats });
        }
    }
    for (operation, us) in DISPATCH_US {
        tables.dispatch.push(DispatchRow {
            operation,
            stats: Stats::exact(us),
        });
    }
    for &operation in CollectiveOperation::ALL {
        for workers in [2, 4, 8] {
            for bytes in COPY_BYTES {
                let stats = Stats::exact(roofline.collective_us(operation, workers, bytes));
                tables.collective.push(CollectiveRow {
                    operation,
                    workers,
                    bytes,
                    stats,
                });
            }
        }
    }
}

/// Adds the derived tables that the card lacks, and says so. Layers that several cards share take of what the card
/// knows of one card the share that is derived.
pub(super) fn merge(card: &mut Card, derived: Tables, datasheet: &str) {
    let have: BTreeMap<(Family, String), Source> = card
        .tables
        .names()
        .into_iter()
        .map(|(family, table)| {
            let kind = card.origin(family, &table).kind;
            ((family, table), kind)
        })
        .collect();
    let is_known = |family: Family, table: &str| {
        let kind = have.get(&(family, table.to_owned()));
        kind.is_some_and(|kind| *kind < Source::Derived)
    };
    let mut added: Vec<(Family, String, bool)> = Vec::new();
    let tables = &mut card.tables;
    for_each_family!(pair tables, derived, ours, theirs => {
        for slice in slices(theirs) {
            if have.contains_key(&(slice.family, slice.label.clone())) {
                continue;
            }
            let on_one = on_one_card(&slice.label).filter(|on_one| is_known(slice.family, on_one));
            let shared = on_one.and_then(|on_one| in_proportion(&slice, theirs, ours, &on_one));
            added.push((slice.family, slice.label, shared.is_some()));
            match shared {
                Some(rows) => ours.extend(rows),
                None => ours.extend(slice.points.iter().map(|point| theirs[point.row].clone())),
            }
        }
    });
    for (family, table, is_shared) in added {
        let assumed = of_some_host(family, &table);
        let derived = || match is_shared {
            true => format!("the card's own table of one card, shared as by the roofline of datasheet {datasheet}"),
            false => format!("roofline of datasheet {datasheet}"),
        };
        let kind = assumed.as_ref().map_or(Source::Derived, |_| Source::Assumed);
        card.origins.push(Origin {
            error: assumed.is_none().then(|| DerivedError::stated(family)),
            ..Origin::new(family, Some(table), kind, assumed.unwrap_or_else(derived))
        });
    }
}

/// What stands for a table of the card's host, of which a datasheet says nothing.
fn of_some_host(family: Family, table: &str) -> Option<String> {
    match family {
        Family::Dispatch => Some("a host that nobody named".to_owned()),
        Family::PlotLookup => Some("HMI's host, section 6.1".to_owned()),
        Family::ModelLoad if table == "source=disk" => {
            Some(format!("a disk of {} GB/s that nobody named", DISK_BYTES_PER_US / 1e3))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Datasheet;

    fn model(name: &str) -> ModelShape {
        ModelShape::builtin(name).unwrap()
    }

    #[test]
    fn a_derived_card_is_sound_and_says_that_it_is_derived() {
        for sheet in Datasheet::all() {
            let roofline = Roofline::new(sheet);
            let models = [model("bert-base"), model("llama-7b")];
            let card = derive_card(&roofline, &models, "2026-11-21", "tenantry profile derive");
            card.validate().unwrap_or_else(|error| panic!("{}: {error}", card.name));
            for summary in crate::describe(&card) {
                let origin = card.origin(summary.family, &summary.table);
                assert!(
                    matches!(origin.kind, Source::Derived | Source::Assumed),
                    "{}",
                    summary.table
                );
                assert!(origin.kind == Source::Assumed || origin.error.is_some());
                let of_the_host =
                    matches!(summary.family, Family::Dispatch | Family::PlotLookup) || summary.table == "source=disk";
                assert_eq!(origin.kind == Source::Assumed, of_the_host, "{}", summary.table);
            }
            assert!(card.encoder_layer(&models[0], DType::F32).is_ok());
            assert!(card.decoder(&models[1], DType::F32, 8).is_ok());
        }
    }

    #[test]
    fn what_a_card_has_is_kept() {
        let mut card = crate::testing::synthetic_card();
        card.tables.pet.clear();
        let before = card.clone();
        let roofline = Roofline::new(Datasheet::builtin("t4").unwrap());
        fill(&mut card, &roofline, &[model("tiny"), model("distilbert")], DType::F32);
        card.validate().unwrap();
        let tiny = |card: &Card| card.encoder_layer(&model("tiny"), DType::F32).unwrap().cost(4, 64);
        assert_eq!(tiny(&card), tiny(&before));
        assert_eq!(card.origin(Family::EncoderLayer, "model=tiny dtype=f32").error, None);
        assert_eq!(
            card.origin(Family::EncoderLayer, "model=distilbert dtype=f32").kind,
            Source::Derived
        );
        assert!(before.pet(&model("tiny"), DType::F32, PetKind::BitFit).is_err());
        assert!(card.pet(&model("tiny"), DType::F32, PetKind::BitFit).is_ok());
    }
}
