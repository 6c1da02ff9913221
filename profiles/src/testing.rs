//! A card for the tests and examples of other crates: computed from simple formulas, measured nowhere.

use crate::card::{Card, Contention, Device, DeviceKind, Host, Lanes, Provenance, Source};
use crate::family::Family;
use crate::keys::{
    AdapterImplementation, Direction, DispatchOperation, LoadSource, LookupOutcome, PetKind, Tier, TokensOf,
};
use crate::model::{DType, ModelShape};
use crate::rows::{
    AdapterRow, CopyRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderPrefillRow, DispatchRow,
    EmbeddingRow, EncoderLayerRow, HeadRow, LoraRow, ModelLoadRow, PetRow, PlotLookupRow, Row,
};
use crate::stats::Stats;
use crate::tables::{Tables, family_of, for_each_family};

const BATCHES: [u32; 6] = [1, 2, 4, 8, 16, 32];
const TOKENS: [u32; 4] = [16, 32, 64, 128];
const CONTENTION: Contention = Contention {
    compute_beside_copy: 1.1,
    compute_beside_lookup: 1.0,
    lookup_beside_compute: 1.0,
    copy_beside_compute: 1.2,
};
const BYTES: [u64; 5] = [1 << 10, 1 << 15, 1 << 20, 1 << 25, 1 << 30];

/// A card whose costs are easy to compute by hand. It has `tiny` and `bert-base` in f32, adapters of bottleneck 16 and
/// 64 in all implementations, 1 GiB of memory of which 64 MiB are reserved, and:
///
/// | op | microseconds |
/// | --- | --- |
/// | encoder layer | `tiny`: 20 + 0.1 × batch × tokens; `bert-base`: 200 + 1 × batch × tokens |
/// | embedding | 5 + 0.01 × batch × tokens |
/// | head | 10 + 0.5 × batch |
/// | adapter, loop | 10 × tenants + 0.0002 × bottleneck × batch × tokens |
/// | adapter, gather-bmm | 15 + 1 × batch + 0.0002 × bottleneck × batch × tokens |
/// | adapter, grouped | 20 + 1 × tenants + 0.0002 × bottleneck × batch × tokens |
/// | a task's operators in a layer | 10 + k + 0.002 × (k + 1) × batch × tokens, where k counts `PetKind::ALL` from 0 |
/// | copy | pinned: 10 + bytes at 10 GB/s; not: 20 + bytes at 10 GB/s |
/// | model load | host: 100 + bytes at 10 GB/s; disk: 1000 + bytes at 1 GB/s |
/// | dispatch | wake: 5; tell: 20; alarm: 8 |
/// | look-up, `tiny` and `bert-base` | memory: 2 + 0.5 × tokens ÷ threads; disk: 2 + 5 × tokens ÷ threads |
/// | decoder layer, `tiny-llama` | dense: 30 + 0.5 × tokens; prefill: 2 + 0.001 × tokens × context; decode: 2 + 0.01 × sequences × context |
/// | decoder ends | 10 + 1 × sequences + 0.01 × tokens |
/// | LoRA, grouped, rank 8 | 5 + 1 × tenants + 0.05 × tokens |
///
/// These are medians. Quantiles are 0.95, 1.1 and 1.3 times the median at 5, 95 and 99 %. The mean is 1.02 times the
/// median, which almost straight lines through the quantiles have.
pub fn synthetic_card() -> Card {
    let device = Device {
        name: "Synthetic accelerator".into(),
        kind: DeviceKind::Cpu,
        memory_bytes: 1 << 30,
        reserve_bytes: 64 << 20,
        shares_host_memory: false,
        driver: None,
        libtorch: None,
        host: Host {
            cpu: "Synthetic host".into(),
            cores: 4,
        },
    };
    let command = "none: tenantry_profiles::testing::synthetic_card";
    let notes = vec!["SYNTHETIC: computed from formulas for tests, measured on no device.".into()];
    let provenance = Provenance::unmeasured(Source::Derived, "1970-01-01", command, notes);
    Card {
        contention: CONTENTION,
        tables: tables(),
        ..Card::without_tables("synthetic", device, Lanes { host: 2 }, provenance)
    }
}

/// The same card with the spread and the contention of the synthetic one: cards that are made from papers have neither.
pub fn disturbed(mut card: Card) -> Card {
    for_each_family!(&mut card.tables, rows => rows.iter_mut().for_each(|row| {
        let median_us = row.stats().median_us;
        *row.stats_mut() = stats(median_us);
    }));
    card.contention = CONTENTION;
    card
}

/// The same card, but for one family's ops, which take 1 % longer.
pub fn slowed(mut card: Card, family: Family) -> Card {
    for_each_family!(&mut card.tables, rows => if family_of(rows) == family {
        rows.iter_mut().for_each(|row| row.stats_mut().median_us *= 1.01);
    });
    card
}

fn tables() -> Tables {
    let mut tables = Tables {
        copy: copies(),
        model_load: model_loads(),
        dispatch: vec![
            DispatchRow {
                operation: DispatchOperation::Wake,
                stats: stats(5.0),
            },
            DispatchRow {
                operation: DispatchOperation::Alarm,
                stats: stats(8.0),
            },
            DispatchRow {
                operation: DispatchOperation::Tell,
                stats: stats(20.0),
            },
            DispatchRow {
                operation: DispatchOperation::Inspect,
                stats: stats(40.0),
            },
        ],
        ..Tables::default()
    };
    for name in ["tiny", "bert-base"] {
        let model = ModelShape::builtin(name).expect("it is built-in");
        add_model(&mut tables, &model);
        add_lookups(&mut tables, name);
    }
    add_decoder(&mut tables, "tiny-llama");
    add_lookups(&mut tables, "tiny-llama");
    for batch in BATCHES {
        // To adapters, each token of a decoder's step is a sequence of its own.
        for tokens in [1, 16] {
            add_adapters(&mut tables, "tiny-llama", batch, tokens);
        }
    }
    tables
}

fn add_lookups(tables: &mut Tables, model: &str) {
    for threads in [1, 2, 4] {
        for tokens in [1, 64, 1024, 8192] {
            for (tier, token_us) in [(Tier::Memory, 0.5), (Tier::Disk, 5.0)] {
                tables.plot_lookup.push(PlotLookupRow {
                    model: model.to_string(),
                    tier,
                    outcome: LookupOutcome::Any,
                    tokens_of: TokensOf::Texts,
                    threads,
                    tokens,
                    fragment_tokens: 3,
                    stats: stats(2.0 + token_us * f64::from(tokens) / f64::from(threads)),
                });
            }
        }
    }
}

fn add_decoder(tables: &mut Tables, model: &str) {
    let (model, dtype, tensor_parallel) = (|| model.to_string(), DType::F32, 1);
    const CONTEXTS: [u32; 5] = [1, 64, 256, 1024, 2048];
    for tokens in [1, 8, 32, 256, 2048] {
        tables.decoder_dense.push(DecoderDenseRow {
            model: model(),
            dtype,
            tensor_parallel,
            tokens,
            stats: stats(30.0 + 0.5 * f64::from(tokens)),
        });
        for context in CONTEXTS.into_iter().filter(|context| *context >= tokens) {
            tables.decoder_prefill.push(DecoderPrefillRow {
                model: model(),
                dtype,
                tensor_parallel,
                tokens,
                context,
                stats: stats(2.0 + 0.001 * f64::from(tokens) * f64::from(context)),
            });
        }
        for sequences in [1, 8, 32, 256] {
            tables.decoder_ends.push(DecoderEndsRow {
                model: model(),
                dtype,
                tensor_parallel,
                sequences,
                tokens,
                stats: stats(10.0 + f64::from(sequences) + 0.01 * f64::from(tokens)),
            });
        }
        for tenants in [1, 8, 32].into_iter().filter(|tenants| *tenants <= tokens) {
            tables.lora.push(LoraRow {
                model: model(),
                dtype,
                implementation: AdapterImplementation::Grouped,
                rank: 8,
                tensor_parallel,
                tenants,
                tokens,
                stats: stats(5.0 + f64::from(tenants) + 0.05 * f64::from(tokens)),
            });
        }
    }
    for sequences in [1, 8, 32] {
        for context in CONTEXTS {
            tables.decoder_decode.push(DecoderDecodeRow {
                model: model(),
                dtype,
                tensor_parallel,
                sequences,
                context,
                stats: stats(2.0 + 0.01 * f64::from(sequences) * f64::from(context)),
            });
        }
    }
}

fn add_model(tables: &mut Tables, model: &ModelShape) {
    let dtype = DType::F32;
    let (layer_us, token_us) = if model.name == "tiny" {
        (20.0, 0.1)
    } else {
        (200.0, 1.0)
    };
    for batch in BATCHES {
        for tokens in TOKENS {
            let work = f64::from(batch * tokens);
            let model = || model.name.clone();
            let layer = stats(layer_us + token_us * work);
            tables.encoder_layer.push(EncoderLayerRow {
                model: model(),
                dtype,
                batch,
                tokens,
                stats: layer,
            });
            let embedding = stats(5.0 + 0.01 * work);
            tables.embedding.push(EmbeddingRow {
                model: model(),
                dtype,
                batch,
                tokens,
                stats: embedding,
            });
            add_adapters(tables, &model(), batch, tokens);
            for (k, &kind) in (0u32..).zip(PetKind::ALL) {
                tables.pet.push(PetRow {
                    model: model(),
                    dtype,
                    kind,
                    batch,
                    tokens,
                    stats: stats(10.0 + f64::from(k) + 0.002 * f64::from(k + 1) * work),
                });
            }
        }
        for classes in [2, 16] {
            let stats = stats(10.0 + 0.5 * f64::from(batch));
            tables.head.push(HeadRow {
                model: model.name.clone(),
                dtype,
                batch,
                classes,
                stats,
            });
        }
    }
}

fn add_adapters(tables: &mut Tables, model: &str, batch: u32, tokens: u32) {
    for bottleneck in [16, 64] {
        let products_us = 0.0002 * f64::from(bottleneck) * f64::from(batch * tokens);
        for tenants in BATCHES.into_iter().filter(|tenants| *tenants <= batch) {
            for &implementation in AdapterImplementation::ALL {
                let overhead_us = match implementation {
                    AdapterImplementation::Loop => 10.0 * f64::from(tenants),
                    AdapterImplementation::GatherBmm => 15.0 + f64::from(batch),
                    AdapterImplementation::Grouped => 20.0 + f64::from(tenants),
                };
                tables.adapter.push(AdapterRow {
                    model: model.to_string(),
                    dtype: DType::F32,
                    implementation,
                    bottleneck,
                    tenants,
                    batch,
                    tokens,
                    stats: stats(overhead_us + products_us),
                });
            }
        }
    }
}

fn copies() -> Vec<CopyRow> {
    let row = |bytes: u64, pinned: bool| CopyRow {
        direction: Direction::HostToDevice,
        pinned,
        bytes,
        stats: stats(if pinned { 10.0 } else { 20.0 } + bytes as f64 / 10e3),
    };
    BYTES.into_iter().flat_map(|bytes| [row(bytes, true), row(bytes, false)]).collect()
}

fn model_loads() -> Vec<ModelLoadRow> {
    let row = |bytes: u64, source: LoadSource| {
        let (open_us, bytes_per_us) = match source {
            LoadSource::Host => (100.0, 10e3),
            LoadSource::Disk | LoadSource::Checkpoint => (1000.0, 1e3),
        };
        ModelLoadRow {
            source,
            bytes,
            stats: stats(open_us + bytes as f64 / bytes_per_us),
        }
    };
    BYTES
        .into_iter()
        .flat_map(|bytes| LoadSource::ALL.iter().map(move |source| row(bytes, *source)))
        .collect()
}

fn stats(median_us: f64) -> Stats {
    Stats {
        count: 100,
        mean_us: 1.02 * median_us,
        median_us,
        p05_us: 0.95 * median_us,
        p95_us: 1.1 * median_us,
        p99_us: 1.3 * median_us,
    }
}
