//! Cards from public measurements: simulators' profiling tables and vendors' benchmark tables, in their own formats.
//!
//! Each source says what it measured and no more. What it lacks is missing from the card, and every table of the card
//! has an origin: the file, the source's version, and how far interpolation is off at the measured points that the
//! table leaves out.

mod aiconfigurator;
mod bert;
mod conversion;
mod copies;
mod draft;
mod file_names;
mod gpus;
mod halves;
mod llmservingsim;
mod operators;
mod pairs;
mod peaks;
mod profile_meta;
mod sheet;
mod slips;
mod summary_stats;
mod vidur;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::draft::Draft;
use self::gpus::Gpu;
use self::profile_meta::ProfileMeta;
use self::sheet::Sheet;
use crate::card::{Card, Source};
use crate::error::{Invalid, ProfileError};
use crate::family::Family;
use crate::model::{DType, ModelShape};
use crate::names::named;
use crate::origin::{Origin, Origins};
use crate::roofline::{Datasheet, Roofline, fill};

/// Sources say milliseconds, cards microseconds.
const US_PER_MS: f64 = 1e3;

/// Whose tables they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportSource {
    /// Microsoft's Vidur: operators of decoders, attention, collectives, host overheads.
    Vidur,
    /// NVIDIA's aiconfigurator: matrix products, attention and collectives of H100 and H200.
    Aiconfigurator,
    /// LLMServingSim: layers of Llama-3.1-8B in vLLM.
    Llmservingsim,
    /// The BERT latencies of TensorRT's demonstration.
    TensorrtBert,
    /// TensorRT engines built for one length and for any, of the same models.
    TensorrtPairs,
    /// The BERT latencies of FasterTransformer's guide.
    FastertransformerBert,
    /// Published bandwidths of copies between host and device.
    HostDeviceBandwidth,
}
named!(ImportSource {
    Vidur => "vidur",
    Aiconfigurator => "aiconfigurator",
    Llmservingsim => "llmservingsim",
    TensorrtBert => "tensorrt-bert",
    TensorrtPairs => "tensorrt-pairs",
    FastertransformerBert => "fastertransformer-bert",
    HostDeviceBandwidth => "host-device-bandwidth",
});

/// What to import.
#[derive(Clone, Debug)]
pub struct Import {
    /// Whose tables they are.
    pub source: ImportSource,
    /// The GPU that they were measured on, by its datasheet's name.
    pub gpu: String,
    /// The models to compose from operators; all that the source has, or can be composed of, where empty.
    pub models: Vec<ModelShape>,
    /// The gap between two kernels, in microseconds, where a source has kernels' times only.
    pub launch_overhead_us: f64,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// The gap between two kernels of one stream where the host is ahead of the card, or the kernels are captured in a
/// graph: about a microsecond on the cards of these tables. Issued one by one from PyTorch they cost the host some 5 µs
/// each, which is what counts for kernels shorter than that.
pub const DEFAULT_LAUNCH_OVERHEAD_US: f64 = 1.0;

impl Import {
    /// The command that imports these tables again, without the paths of this machine.
    pub fn command(&self) -> String {
        let mut command = format!("tenantry profile import --from {} --gpu {}", self.source, self.gpu);
        if !self.models.is_empty() {
            let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
            command += &format!(" --model {}", names.join(","));
        }
        if self.source == ImportSource::Aiconfigurator {
            command += &format!(" --launch-overhead-us {}", self.launch_overhead_us);
        }
        for file in &self.files {
            command += &format!(" {}", file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
        }
        command
    }

    /// Files of another GPU's kernels may be in a number format that this one does not have.
    fn check_formats(&self, card: &Card, gpu: &Gpu) -> Result<(), Invalid> {
        for slice in card.tables.slices() {
            let Some(dtype) = DType::ALL.iter().find(|dtype| Some(dtype.name()) == slice.dtype()) else {
                continue;
            };
            if gpu.sheet.peak(*dtype).is_none() {
                let must = format!(
                    "a GPU that computes in {dtype}, as the {} of these files are",
                    slice.family
                );
                return Err(Invalid::argument("--gpu", must, self.gpu.clone()));
            }
        }
        Ok(())
    }

    /// A card called `name` of what the files hold. `date` goes into its provenance.
    ///
    /// # Errors
    /// Files that cannot be read, are not the source's, hold nothing of the GPU, or whose names say different ones.
    pub fn run(&self, name: &str, date: &str) -> Result<Card, ProfileError> {
        let gpu = Gpu::find(&self.gpu)?;
        if !(0.0..=1e3).contains(&self.launch_overhead_us) {
            let got = self.launch_overhead_us.to_string();
            return Err(Invalid::argument("--launch-overhead-us", "from 0 to 1000 µs", got).into());
        }
        let notes_of_names = file_names::check(&self.files, &gpu)?;
        let is_meta = |path: &&PathBuf| self.source == ImportSource::Llmservingsim && ProfileMeta::is_one(path);
        let (metas, tables): (Vec<&PathBuf>, Vec<&PathBuf>) = self.files.iter().partition(is_meta);
        let metas = metas.into_iter().map(|path| ProfileMeta::open(path));
        let metas = metas.collect::<Result<Vec<_>, _>>()?;
        let sheets = tables
            .into_iter()
            .enumerate()
            .map(|(number, path)| Sheet::open(number, path))
            .collect::<Result<Vec<_>, _>>()?;
        let mut draft = Draft::of(&sheets);
        match self.source {
            ImportSource::Vidur => vidur::import(&sheets, &self.models, &mut draft)?,
            ImportSource::Aiconfigurator => aiconfigurator::import(&sheets, self, &gpu, &mut draft)?,
            ImportSource::Llmservingsim => llmservingsim::import(&metas, &sheets, &gpu, &mut draft)?,
            ImportSource::TensorrtBert => bert::tensorrt(&sheets, &gpu, &mut draft)?,
            ImportSource::TensorrtPairs => pairs::import(&sheets, &gpu, &mut draft)?,
            ImportSource::FastertransformerBert => bert::faster_transformer(&sheets, &gpu, &mut draft)?,
            ImportSource::HostDeviceBandwidth => copies::import(&sheets, &gpu, &mut draft)?,
        }
        let mut card = gpu.card(name, date, &self.command());
        let notes = notes_of_names.iter().chain(&draft.notes);
        let notes = notes.map(|note| format!("{}: {note}", self.source));
        card.provenance.notes.extend(notes);
        card.tables = draft.tables;
        if card.tables.names().is_empty() {
            let must = format!("with something for a card of {} in it, for {}", self.gpu, self.source);
            return Err(Invalid::argument("FILES", must, "nothing").into());
        }
        self.check_formats(&card, &gpu)?;
        peaks::check(&card, &gpu.sheet)?;
        draft.origins.into_iter().for_each(|origin| card.origins.push(origin));
        card.validate()?;
        Ok(card)
    }
}

impl Card {
    /// Derives from the datasheet called `gpu` what imported tables lack to serve the models that they are of, in their
    /// number formats, each table marked so; a decoder's in f16 are those in bf16 where these are imported.
    ///
    /// # Errors
    /// No such datasheet.
    pub fn fill_from_datasheet(&mut self, gpu: &str) -> Result<(), Invalid> {
        let roofline = Roofline::new(Datasheet::builtin(gpu)?);
        let tables = &self.tables;
        let encoders = tables.encoder_layer.iter().map(|row| (&row.model, row.dtype));
        let decoders = tables.decoder_dense.iter().map(|row| (&row.model, row.dtype));
        let imported: BTreeSet<(String, DType)> =
            encoders.chain(decoders).map(|(model, dtype)| (model.clone(), dtype)).collect();
        for (model, dtype) in imported {
            if dtype == DType::F16 {
                halves::as_bf16(self, &model);
            }
            let model = self.model(&model).expect("a card has tables of known models only");
            fill(self, &roofline, &[model], dtype);
        }
        self.tables = std::mem::take(&mut self.tables).rounded();
        Ok(())
    }

    /// Adds what was imported from another source. Where both have a table, it is the other's, but for one of engines
    /// built for one shape each, which tells less of what takes any shape than one of that.
    ///
    /// # Errors
    /// This card was not imported, or is of another device.
    pub fn add_imported(&mut self, other: &Card) -> Result<(), Invalid> {
        let refused = |field: &str, must: &str, got: &str| Err(Invalid::new(&self.name, field, must, got));
        if self.provenance.source != Source::Imported {
            return refused(
                "provenance.source",
                "imported, to be added to",
                self.provenance.source.name(),
            );
        }
        if self.device.name != other.device.name {
            return refused("device.name", &other.device.name, &self.device.name);
        }
        let own = self.tables.names();
        let of_one_shape = |card: &Card, (family, table): &(Family, String)| card.origin(*family, table).one_shape;
        let (stay, replaced): (Vec<_>, Vec<_>) = other
            .tables
            .names()
            .into_iter()
            .partition(|table| own.contains(table) && of_one_shape(other, table) && !of_one_shape(self, table));
        self.tables.replace_with(&other.tables.clone().without(&stay));
        let is_of = |origin: &Origin, tables: &[(Family, String)]| {
            let of_origin = (origin.family, origin.table.clone().unwrap_or_default());
            tables.contains(&of_origin)
        };
        let kept = self.origins.list().iter().filter(|origin| !is_of(origin, &replaced));
        let taken = other.origins.list().iter().filter(|origin| !is_of(origin, &stay));
        let origins = kept.chain(taken).cloned().collect();
        self.origins = Origins::new(origins);
        for note in &other.provenance.notes {
            if !self.provenance.notes.contains(note) {
                self.provenance.notes.push(note.clone());
            }
        }
        // The last one's tables take the places of earlier ones: what was imported again counts where it came last.
        let last = other.provenance.command.as_str();
        let earlier = self.provenance.command.split(" && ").filter(|earlier| *earlier != last);
        self.provenance.command = earlier.chain([last]).collect::<Vec<_>>().join(" && ");
        self.provenance.date.clone_from(&other.provenance.date);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other's tables take the place of the first's, and the first's of these when it is imported once more.
    #[test]
    fn a_source_that_is_imported_again_comes_last_in_the_command() {
        let gpu = Gpu::find("t4").unwrap();
        let of = |command: &str| gpu.card("t4", "2026-01-01", command);
        let mut card = of("import one");
        for command in ["import other", "import one"] {
            card.add_imported(&of(command)).unwrap();
        }
        assert_eq!(card.provenance.command, "import other && import one");
        card.add_imported(&of("import one")).unwrap();
        assert_eq!(card.provenance.command, "import other && import one");
    }
}
