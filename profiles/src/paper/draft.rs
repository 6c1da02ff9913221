//! A card's tables while they are made, each marked with where it comes from as soon as it is there.

use crate::card::Source;
use crate::keys::{Direction, DispatchOperation, LoadSource};
use crate::model::{DType, ModelShape};
use crate::origin::Origin;
use crate::roofline::COPY_BYTES;
use crate::rows::{CopyRow, DispatchRow, EmbeddingRow, EncoderLayerRow, HeadRow, ModelLoadRow};
use crate::stats::Stats;
use crate::tables::Tables;

/// Tables, where they come from, and the shapes that are not built-in.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub tables: Tables,
    pub origins: Vec<Origin>,
    pub models: Vec<ModelShape>,
}

const LOAD_BYTES: [u64; 3] = [1 << 20, 1 << 26, 1 << 31];

/// A host's link, disk and hand-overs, as far as a paper tells.
pub(super) struct Link {
    /// Beginning a copy.
    pub copy_us: f64,
    /// From page-locked memory.
    pub pinned_bytes_per_s: f64,
    /// From other memory.
    pub pageable_bytes_per_s: f64,
    /// Beginning to load a model.
    pub load_us: f64,
    /// From a file.
    pub disk_bytes_per_s: f64,
}

impl Link {
    /// As the numbers of most papers say it, with copies from pageable memory at half of the pinned rate.
    pub fn numbered(number: impl Fn(&str) -> f64) -> Link {
        Link {
            copy_us: number("copy_start_us"),
            pinned_bytes_per_s: 1e9 * number("link_gbytes_per_s"),
            pageable_bytes_per_s: 0.5e9 * number("link_gbytes_per_s"),
            load_us: number("load_start_us"),
            disk_bytes_per_s: 1e9 * number("disk_gbytes_per_s"),
        }
    }
}

impl Draft {
    /// Marks all tables that are there and not yet marked.
    pub fn mark(&mut self, kind: Source, source: &str, error: Option<&str>) {
        for slice in self.tables.slices() {
            let marked =
                |origin: &&Origin| origin.family == slice.family && origin.table.as_ref() == Some(&slice.label);
            if !self.origins.iter().any(|origin| marked(&origin)) {
                self.origins.push(Origin {
                    error: error.map(str::to_owned),
                    ..Origin::new(slice.family, Some(slice.label), kind, source)
                });
            }
        }
    }

    /// Encoder layers and embeddings over these batches and lengths.
    pub fn encoder(
        &mut self,
        model: &ModelShape,
        dtype: DType,
        [batches, lengths]: [&[u32]; 2],
        layer_us: impl Fn(u32, u32) -> f64,
        embedding_us: impl Fn(u32, u32) -> f64,
    ) {
        let name = || model.name.clone();
        for &batch in batches {
            for &tokens in lengths.iter().filter(|tokens| **tokens <= model.positions) {
                let stats = Stats::exact(layer_us(batch, tokens));
                self.tables.encoder_layer.push(EncoderLayerRow {
                    model: name(),
                    dtype,
                    batch,
                    tokens,
                    stats,
                });
                let stats = Stats::exact(embedding_us(batch, tokens));
                self.tables.embedding.push(EmbeddingRow {
                    model: name(),
                    dtype,
                    batch,
                    tokens,
                    stats,
                });
            }
        }
    }

    /// Heads over these batches, which cost the same for few classes and many.
    pub fn head(&mut self, model: &ModelShape, dtype: DType, batches: &[u32], us: impl Fn(u32) -> f64) {
        for &batch in batches {
            for classes in [2, 32] {
                let (model, stats) = (model.name.clone(), Stats::exact(us(batch)));
                self.tables.head.push(HeadRow {
                    model,
                    dtype,
                    batch,
                    classes,
                    stats,
                });
            }
        }
    }

    /// Copies and loads.
    pub fn link(&mut self, link: &Link) {
        let direction = Direction::HostToDevice;
        for bytes in COPY_BYTES {
            for (pinned, rate) in [(true, link.pinned_bytes_per_s), (false, link.pageable_bytes_per_s)] {
                let stats = Stats::exact(link.copy_us + 1e6 * bytes as f64 / rate);
                self.tables.copy.push(CopyRow {
                    direction,
                    pinned,
                    bytes,
                    stats,
                });
            }
        }
        for bytes in LOAD_BYTES {
            let slowest = link.disk_bytes_per_s.min(link.pageable_bytes_per_s);
            for (source, rate) in [
                (LoadSource::Host, link.pageable_bytes_per_s),
                (LoadSource::Disk, slowest),
            ] {
                let stats = Stats::exact(link.load_us + 1e6 * bytes as f64 / rate);
                self.tables.model_load.push(ModelLoadRow { source, bytes, stats });
            }
        }
    }

    /// Hand-overs: from handing over to an idle lane, from an end to its being heard, from an instant to its being
    /// noticed.
    pub fn dispatch(&mut self, [wake, tell, alarm]: [f64; 3]) {
        for (operation, us) in [
            (DispatchOperation::Wake, wake),
            (DispatchOperation::Tell, tell),
            (DispatchOperation::Alarm, alarm),
        ] {
            let stats = Stats::exact(us);
            self.tables.dispatch.push(DispatchRow { operation, stats });
        }
    }
}

/// A built-in shape.
pub(super) fn builtin(name: &str) -> ModelShape {
    ModelShape::builtin(name).expect("paper cards name built-in shapes")
}
