//! A card: a device, how its lanes disturb each other, where the numbers come from, and the measured tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::certainty::Certainty;
use crate::error::Invalid;
use crate::limits::Limits;
use crate::model::ModelShape;
use crate::names::named;
use crate::origin::Origins;
use crate::roofline::Datasheet;
use crate::tables::Tables;

/// What each op costs on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The name that scenarios use, which is also its folder's.
    pub name: String,
    /// The device.
    pub device: Device,
    /// What runs side by side on the host.
    pub lanes: Lanes,
    /// How much lanes slow each other down.
    pub contention: Contention,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// Tables that were come by in another way.
    #[serde(default, skip_serializing_if = "Origins::is_empty")]
    pub origins: Origins,
    /// How well the medians of the measured tables are known; nothing of a table says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certainty: Vec<Certainty>,
    /// What the device reached of its limits, by number format.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limits>,
    /// The shapes of measured models that are not built-in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelShape>,
    /// What its maker publishes, where it was derived from that and the product does not come with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datasheet: Option<Datasheet>,
    /// The measured points.
    #[serde(skip)]
    pub tables: Tables,
    /// Points that were measured to check by, and price nothing: how far interpolation is off between those of the
    /// tables.
    #[serde(skip)]
    pub held_out: Tables,
}

/// Which kind of processor computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// The host's own cores.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}
named!(DeviceKind { Cpu => "cpu", Cuda => "cuda" });

/// The device, and what it was measured with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The product's name.
    pub name: String,
    /// CPU or GPU.
    pub kind: DeviceKind,
    /// Memory in bytes; for a CPU, the part of the host's that serving may use.
    pub memory_bytes: u64,
    /// What of it stays free for activations and the runtime, in bytes.
    pub reserve_bytes: u64,
    /// Whether a GPU's memory is the host's as well, as on a Jetson: what the host keeps of tenants' parameters lies
    /// there beside what the GPU has of them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub shares_host_memory: bool,
    /// The driver's version, where the device has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// libtorch's version, where it ran the ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libtorch: Option<String>,
    /// The machine around it.
    pub host: Host,
}

/// What a name must be where it is none: others are printed, and written into commands.
pub(crate) const ONE_LINE: &str = "a name without line breaks or other control characters";

/// Whether it is written `2025-01-31`.
fn is_day(date: &str) -> bool {
    // Others of its forms are longer.
    date.len() == "2025-01-31".len() && date.parse::<jiff::civil::Date>().is_ok()
}

/// As serde asks for a default that is not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// The machine around a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The processor's name.
    pub cpu: String,
    /// Its cores, as the operating system counts them.
    pub cores: u32,
}

/// What runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lanes {
    /// Cores beside the one that computes, at least 1: so many copies run side by side.
    pub host: u32,
}

/// No lane slows another one down by so much.
const CONTENTION_MAX: f64 = 1000.0;

/// Factors by which an op's time grows while another lane works, from 1 (none) to 1,000.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// Compute while a copy runs.
    pub compute_beside_copy: f64,
    /// A copy while compute runs.
    pub copy_beside_compute: f64,
    /// Compute while representations are looked up.
    #[serde(default = "undisturbed")]
    pub compute_beside_lookup: f64,
    /// A look-up while compute runs.
    #[serde(default = "undisturbed")]
    pub lookup_beside_compute: f64,
}

impl Contention {
    /// Nothing slows anything down.
    pub const NONE: Contention = Contention {
        compute_beside_copy: 1.0,
        copy_beside_compute: 1.0,
        compute_beside_lookup: 1.0,
        lookup_beside_compute: 1.0,
    };
}

/// The factor of what was not measured, or does not disturb.
fn undisturbed() -> f64 {
    1.0
}

/// How the numbers were come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Measured by `tenantry profile`.
    Measured,
    /// Taken from a public simulator's or vendor's tables.
    Imported,
    /// Fitted to a paper's numbers.
    Fitted,
    /// Computed, from a datasheet or a formula.
    Derived,
    /// Chosen, since nobody published it.
    Assumed,
}
named!(Source {
    Measured => "measured",
    Imported => "imported",
    Fitted => "fitted",
    Derived => "derived",
    Assumed => "assumed",
});

/// Where the numbers come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// How they were come by.
    pub source: Source,
    /// The day, as `2025-01-31`.
    pub date: String,
    /// The command that makes them again.
    pub command: String,
    /// The seed of the measured models' weights.
    pub seed: u64,
    /// The version of Tenantry that wrote the profile.
    pub version: String,
    /// What the system calls the time since the machine was last started, where all was measured within one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Whatever a reader of the numbers must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Provenance {
    /// Of numbers that were measured on no device here.
    pub fn unmeasured(source: Source, date: &str, command: &str, notes: Vec<String>) -> Provenance {
        Provenance {
            source,
            date: date.to_owned(),
            command: command.to_owned(),
            seed: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot: None,
            notes,
        }
    }
}

impl Card {
    /// A card whose lanes do not slow each other down, without tables.
    pub fn without_tables(name: &str, device: Device, lanes: Lanes, provenance: Provenance) -> Card {
        Card {
            name: name.to_owned(),
            device,
            lanes,
            contention: Contention::NONE,
            provenance,
            origins: Origins::default(),
            certainty: Vec::new(),
            limits: Vec::new(),
            models: Vec::new(),
            datasheet: None,
            tables: Tables::default(),
            held_out: Tables::default(),
        }
    }

    /// The same card where every op takes so many times as long, as when its machine's clock is lower.
    pub fn at_pace(&self, ratio: f64) -> Card {
        Card {
            tables: self.tables.clone().at_pace(ratio),
            held_out: self.held_out.clone().at_pace(ratio),
            ..self.clone()
        }
    }

    /// The JSON Schema of `card.yaml`, for editors.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Card)
    }

    /// A hash of everything in the card: the same for the same content, however its files are formatted or ordered.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, text) in self.to_files() {
            // Lengths keep a name and its text, and one file and the next, apart.
            hasher.update(&(name.len() as u64).to_le_bytes()).update(name.as_bytes());
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The shape of a model of the tables: listed by the card, or built-in.
    pub fn model(&self, name: &str) -> Option<ModelShape> {
        let listed = self.models.iter().find(|model| model.name == name).cloned();
        listed.or_else(|| ModelShape::builtin(name))
    }

    /// Checks `card.yaml`'s values; `file` is what errors call it.
    pub(crate) fn check_fields(&self, file: &str) -> Result<(), Invalid> {
        let fail = |field: &str, must: String, got: String| Err(Invalid::new(file, field, must, got));
        for (field, text) in [("name", &self.name), ("device.name", &self.device.name)] {
            if text.trim().is_empty() {
                return fail(field, "a name".into(), "nothing".into());
            }
            if text.contains(char::is_control) {
                return fail(field, ONE_LINE.into(), format!("{text:?}"));
            }
        }
        // It is what its folder is called.
        if self.name.contains(['/', '\\']) || self.name.starts_with('.') {
            let must = "a name without slashes that begins with no dot".to_owned();
            return fail("name", must, format!("{:?}", self.name));
        }
        if !is_day(&self.provenance.date) {
            let must = "a day, as 2025-01-31".to_owned();
            return fail("provenance.date", must, format!("{:?}", self.provenance.date));
        }
        let Device {
            memory_bytes,
            reserve_bytes,
            ..
        } = self.device;
        if memory_bytes == 0 {
            return fail("device.memory_bytes", "at least 1".into(), "0".into());
        }
        if reserve_bytes >= memory_bytes {
            let must = format!("less than device.memory_bytes ({memory_bytes})");
            return fail("device.reserve_bytes", must, reserve_bytes.to_string());
        }
        for (field, number) in [
            ("device.host.cores", self.device.host.cores),
            ("lanes.host", self.lanes.host),
        ] {
            if number == 0 {
                return fail(field, "at least 1".into(), "0".into());
            }
        }
        for (field, factor) in [
            ("contention.compute_beside_copy", self.contention.compute_beside_copy),
            ("contention.copy_beside_compute", self.contention.copy_beside_compute),
            (
                "contention.compute_beside_lookup",
                self.contention.compute_beside_lookup,
            ),
            (
                "contention.lookup_beside_compute",
                self.contention.lookup_beside_compute,
            ),
        ] {
            if !(1.0..=CONTENTION_MAX).contains(&factor) {
                let must = format!("a factor from 1 to {CONTENTION_MAX}");
                return fail(field, must, factor.to_string());
            }
        }
        for (index, model) in self.models.iter().enumerate() {
            if let Err(error) = model.validate() {
                return fail(&format!("models[{index}].{}", error.field), error.must, error.got);
            }
            if self.models[..index].iter().any(|earlier| earlier.name == model.name) {
                return fail(
                    &format!("models[{index}].name"),
                    "listed once".into(),
                    format!("{:?} again", model.name),
                );
            }
        }
        Ok(())
    }
}
