//! What an op costs by a card's datasheet: arithmetic over the peak, bytes over the bandwidth, and launches.
//!
//! This is for cards and ops that nobody measured. How far it misses was found by deriving cards that were measured,
//! each with factors fitted to the others only ([`leave_one_card_out`]); every table made here says so.

mod complete;
mod derive;
mod fit;
mod lend;
pub mod ops;
mod sharing;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Invalid, ProfileError};
use crate::model::DType;
use crate::names::near_miss;
use crate::stats::Stats;

pub use complete::{Need, complete};
pub(crate) use derive::{COPY_BYTES, decoder_layers};
pub use derive::{derive_card, fill};
pub use fit::{DerivedError, Factors, LeftOut, WholeModel, leave_one_card_out};
pub(crate) use ops::matrix_weights;

/// What a maker publishes of a card. Nothing of it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Datasheet {
    /// By which `tenantry profile derive --datasheet` finds it.
    pub name: String,
    /// The product's name.
    pub product: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whether it is the host's as well.
    #[serde(default, skip_serializing_if = "crate::card::is_false")]
    pub shares_host_memory: bool,
    /// Of that memory, in bytes a second.
    pub memory_bandwidth: f64,
    /// Floating-point operations a second in single precision.
    pub f32: f64,
    /// In half precision, dense; absent where the card has no use of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f16: Option<f64>,
    /// In half precision that is summed up in half precision too, where the card is faster so: models are not served
    /// like that, and published kernels may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f16_summed_in_f16: Option<f64>,
    /// In bfloat16, dense; absent where the card does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<f64>,
    /// Bytes a second from the host, one direction.
    pub link: f64,
    /// Bytes a second to the other cards of its machine, one direction.
    pub peers: f64,
    /// Where all this is published.
    pub source: String,
}

/// The datasheets that come with the product.
const DATASHEETS: &str = include_str!("../../datasheets.yaml");

impl Datasheet {
    /// All datasheets that come with the product.
    pub fn all() -> Vec<Datasheet> {
        serde_yaml::from_str(DATASHEETS).expect("a test reads it")
    }

    /// The one called `name`; the error lists the names. Who asked knows where the name stands.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn builtin(name: &str) -> Result<Datasheet, Invalid> {
        let all = Datasheet::all();
        let names: Vec<&str> = all.iter().map(|sheet| sheet.name.as_str()).collect();
        match all.iter().find(|sheet| sheet.name == name) {
            Some(sheet) => Ok(sheet.clone()),
            None => {
                let must = format!("one of {}", names.join(", "));
                let suggested = near_miss(name, names.iter().copied());
                Err(Invalid::argument("datasheet", must, name).suggest(suggested))
            }
        }
    }

    /// What bounds a device of this name, if anything is known of it: the datasheet whose product has all words of the
    /// name, and of several (a card of one name on two boards) the one with the most bandwidth. Good for a bound, and
    /// not to price by: that asks for the very product.
    pub fn of_device(name: &str) -> Option<Datasheet> {
        let words = |name: &str| -> Vec<String> {
            let words = name.split(|c: char| !c.is_alphanumeric());
            words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
        };
        let of_device = words(name);
        let is_it = |sheet: &Datasheet| {
            let of_product = words(&sheet.product);
            of_device.iter().all(|word| of_product.contains(word))
        };
        let found = Datasheet::all().into_iter().filter(is_it);
        found.max_by(|a, b| a.memory_bandwidth.total_cmp(&b.memory_bandwidth))
    }

    /// Whether it comes with the product, under its name.
    pub fn is_builtin(&self) -> bool {
        Datasheet::all().contains(self)
    }

    /// Reads one datasheet; `file` is what errors call it.
    ///
    /// # Errors
    /// A key that is missing, unknown or not a positive number.
    pub fn read(file: &str, text: &str) -> Result<Datasheet, ProfileError> {
        let sheet: Datasheet = crate::yaml::read(file, text)?;
        sheet.check(file).map_err(|invalid| crate::yaml::in_line(text, invalid))?;
        Ok(sheet)
    }

    /// Refuses what no card has, mostly a figure in another unit, and what says not whose it is or where it is from;
    /// `file` is what errors call where it stands.
    pub(crate) fn check(&self, file: &str) -> Result<(), Invalid> {
        let texts = [
            ("name", &self.name),
            ("product", &self.product),
            ("source", &self.source),
        ];
        if let Some((field, _)) = texts.iter().find(|(_, text)| text.trim().is_empty()) {
            return Err(Invalid::new(file, field, "some text", "none"));
        }
        let memory_bytes = self.memory_bytes as f64;
        // Some ten times beyond what cards have, and a tenth of what the least have: a thousandfold slip of a unit is
        // outside for most.
        let numbers = [
            ("memory_bytes", Some(memory_bytes), "bytes", 1e8..=1e13),
            (
                "memory_bandwidth",
                Some(self.memory_bandwidth),
                "bytes a second",
                1e10..=1e14,
            ),
            ("f32", Some(self.f32), "operations a second", 1e11..=2e15),
            ("f16", self.f16, "operations a second", 1e11..=5e16),
            (
                "f16_summed_in_f16",
                self.f16_summed_in_f16,
                "operations a second",
                1e11..=5e16,
            ),
            ("bf16", self.bf16, "operations a second", 1e11..=5e16),
            ("link", Some(self.link), "bytes a second", 1e8..=1e13),
            ("peers", Some(self.peers), "bytes a second", 1e8..=1e13),
        ];
        for (field, number, unit, range) in numbers {
            if let Some(number) = number.filter(|number| !range.contains(number)) {
                let must = format!("from {:e} to {:e} {unit}", range.start(), range.end());
                let meant = if number > *range.end() {
                    number / 1e3
                } else {
                    number * 1e3
                };
                let meant = range.contains(&meant).then(|| format!("{meant:e}"));
                // As the bounds are written, where it is as large.
                let got = if number >= 1e6 {
                    format!("{number:e}")
                } else {
                    number.to_string()
                };
                return Err(Invalid::new(file, field, must, got).suggest(meant));
            }
        }
        Ok(())
    }

    /// The peak of a number format, in operations a second; none where the card does not have it.
    pub fn peak(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F16 => self.f16,
            DType::Bf16 => self.bf16,
        }
    }
}

/// What an op asks of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Kernels launched.
    pub launches: f64,
    /// Floating-point operations of its matrix products.
    pub flops: f64,
    /// Bytes that the products stream, in step with their arithmetic: weights, a cache.
    pub streamed_bytes: f64,
    /// Bytes of kernels that only move data.
    pub moved_bytes: f64,
}

impl Work {
    /// Operations for each byte.
    pub fn intensity(&self) -> f64 {
        self.flops / (self.streamed_bytes + self.moved_bytes)
    }
}

/// How a card's ops are priced by its datasheet.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// The card.
    pub sheet: Datasheet,
    /// How much of it is had.
    pub factors: Factors,
}

impl Roofline {
    /// With the factors fitted to all cards that were measured.
    pub fn new(sheet: Datasheet) -> Roofline {
        Roofline {
            sheet,
            factors: Factors::FITTED,
        }
    }

    /// What the work takes, in microseconds: launches, then the slower of arithmetic and streaming, then the rest of
    /// the bytes. Formats that the card lacks are computed in single precision.
    pub fn us(&self, work: Work, dtype: DType) -> f64 {
        let Factors {
            launch_us,
            arithmetic,
            memory,
        } = self.factors;
        let peak = self.sheet.peak(dtype).unwrap_or(self.sheet.f32) * arithmetic;
        let bandwidth = self.sheet.memory_bandwidth * memory;
        let products_s = (work.flops / peak).max(work.streamed_bytes / bandwidth);
        work.launches * launch_us + 1e6 * (products_s + work.moved_bytes / bandwidth)
    }
}

impl Stats {
    /// The same measurements, each longer by so many microseconds.
    pub(crate) fn later(self, us: f64) -> Stats {
        Stats {
            count: self.count,
            mean_us: self.mean_us + us,
            median_us: self.median_us + us,
            p05_us: self.p05_us + us,
            p95_us: self.p95_us + us,
            p99_us: self.p99_us + us,
        }
    }

    /// A cost that is computed and not measured: it has no spread.
    pub fn exact(us: f64) -> Stats {
        Stats {
            count: 1,
            mean_us: us,
            median_us: us,
            p05_us: us,
            p95_us: us,
            p99_us: us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_datasheet_is_sound_and_named_once() {
        let all = Datasheet::all();
        for (index, sheet) in all.iter().enumerate() {
            sheet.check("datasheets.yaml").unwrap();
            assert!(
                all[..index].iter().all(|other| other.name != sheet.name),
                "{}",
                sheet.name
            );
            assert!(sheet.f16.unwrap_or(f64::MAX) > sheet.f32, "{}", sheet.name);
            assert!(!sheet.source.is_empty());
        }
        let error = Datasheet::builtin("h100-smx").unwrap_err().to_string();
        assert!(
            error.starts_with("datasheet: must be one of ") && error.ends_with("got h100-smx; did you mean h100-sxm?"),
            "{error}"
        );
    }

    #[test]
    fn devices_have_the_datasheets_of_their_products() {
        let found = |device: &str| Datasheet::of_device(device).map(|sheet| sheet.name);
        for sheet in Datasheet::all() {
            assert_eq!(found(&sheet.product), Some(sheet.name));
        }
        assert_eq!(found("Tesla V100-SXM2-16GB").as_deref(), Some("v100-16g"));
        assert_eq!(found("NVIDIA Tesla V100 32GB").as_deref(), Some("v100-32g"));
        assert_eq!(found("NVIDIA A100 80GB").as_deref(), Some("a100-sxm"));
        assert_eq!(found("AMD EPYC"), None);
    }

    #[test]
    fn broken_datasheets_are_refused_with_the_field() {
        let text = serde_yaml::to_string(&Datasheet::builtin("t4").unwrap()).unwrap();
        let refused = |from: &str, to: &str| {
            let error = Datasheet::read("t4.yaml", &text.replace(from, to)).unwrap_err();
            error.to_string()
        };
        assert!(Datasheet::read("t4.yaml", &text).is_ok());
        let link = refused("link: 16000000000.0", "link: -1");
        assert_eq!(link, "t4.yaml:7: link: must be from 1e8 to 1e13 bytes a second, got -1");
        assert!(refused("peers:", "piers:").contains("did you mean peers?"));
        let in_gigabytes = refused("memory_bytes: 17179869184", "memory_bytes: 16");
        assert!(
            in_gigabytes.contains("memory_bytes: must be from 1e8 to 1e13 bytes, got 16"),
            "{in_gigabytes}"
        );
        // A thousand times what a card has, and a thousandth of it.
        assert_eq!(
            refused("memory_bandwidth: 320000000000.0", "memory_bandwidth: 320e12"),
            "t4.yaml:4: memory_bandwidth: must be from 1e10 to 1e14 bytes a second, got 3.2e14; did you mean 3.2e11?"
        );
        let slow = refused("f32: 8100000000000.0", "f32: 8.1e9");
        assert!(slow.ends_with("got 8.1e9; did you mean 8.1e12?"), "{slow}");
        let unsourced = refused("source: NVIDIA T4 datasheet", "source: ''");
        assert!(unsourced.contains("source: must be some text, got none"), "{unsourced}");
    }

    #[test]
    fn the_slower_of_arithmetic_and_memory_counts() {
        let roofline = Roofline::new(Datasheet::builtin("h100-sxm").unwrap());
        let work = |flops, streamed_bytes| Work {
            flops,
            streamed_bytes,
            ..Work::default()
        };
        let us = |flops, bytes| roofline.us(work(flops, bytes), DType::Bf16);
        assert!((us(1e12, 1.0) - 1e18 / (989e12 * roofline.factors.arithmetic)).abs() < 1e-6);
        assert!((us(1.0, 1e9) - 1e15 / (3.35e12 * roofline.factors.memory)).abs() < 1e-6);
        assert_eq!(us(1e12, 1e6), us(1e12, 2e6));
    }
}
