//! What the sources call a GPU that a datasheet names.

use crate::card::{Card, Device, DeviceKind, Host, Lanes, Provenance, Source};
use crate::error::Invalid;
use crate::roofline::Datasheet;

/// One GPU.
pub(super) struct Gpu {
    pub sheet: Datasheet,
    /// As TensorRT's tables, FasterTransformer's and the published copies call it; none where they do not have it.
    pub tensorrt: Option<&'static str>,
    pub faster_transformer: Option<&'static str>,
    pub copies: Option<&'static str>,
}

/// What stays free for activations and the runtime: nobody publishes it.
const RESERVE_BYTES: u64 = 2 << 30;

impl Gpu {
    /// The one that a datasheet is called by, as `--gpu` gives it.
    pub fn find(name: &str) -> Result<Gpu, Invalid> {
        let (tensorrt, faster_transformer, copies) = match name {
            // TensorRT's table is of the 40 GB card, whose memory is a quarter slower; compute is the same.
            "a100-sxm" => (Some("A100 40GB"), Some("A100"), Some("A100")),
            "a100-sxm-40g" => (Some("A100 40GB"), None, Some("A100")),
            "a10" => (None, Some("A10"), None),
            "a30" => (Some("A30"), None, None),
            "h100-sxm" => (None, None, Some("H100")),
            "l4" => (Some("L4"), None, None),
            "l40s" => (Some("L40S"), None, None),
            "rtx-4090" => (None, None, Some("RTX 4090")),
            "t4" => (Some("T4 16GB"), Some("T4"), None),
            "v100-16g" => (Some("V100 16GB"), Some("V100"), Some("Tesla V100")),
            _ => (None, None, None),
        };
        let sheet = Datasheet::builtin(name).map_err(|error| Invalid {
            place: "--gpu".to_string(),
            ..error
        })?;
        Ok(Gpu {
            sheet,
            tensorrt,
            faster_transformer,
            copies,
        })
    }

    /// Its link to the host, as published copies call it; nothing where it has none, or one that is no PCIe.
    pub fn link(&self) -> Option<&'static str> {
        match self.sheet.link {
            _ if self.sheet.shares_host_memory => None,
            16e9 => Some("PCIe 3.0 x16"),
            32e9 => Some("PCIe 4.0 x16"),
            64e9 => Some("PCIe 5.0 x16"),
            _ => None,
        }
    }

    /// A card of this GPU, without tables.
    pub fn card(&self, name: &str, date: &str, command: &str) -> Card {
        let device = Device {
            name: self.sheet.product.clone(),
            kind: DeviceKind::Cuda,
            memory_bytes: self.sheet.memory_bytes,
            reserve_bytes: RESERVE_BYTES,
            shares_host_memory: self.sheet.shares_host_memory,
            driver: None,
            libtorch: None,
            host: Host {
                cpu: "not published".to_string(),
                cores: 8,
            },
        };
        let notes = vec![
            "assumed, as no source tells them: the host, that lanes do not slow each other down, 2 GiB for the \
                 runtime; memory is the datasheet's"
                .to_string(),
        ];
        let provenance = Provenance::unmeasured(Source::Imported, date, command, notes);
        Card::without_tables(name, device, Lanes { host: 1 }, provenance)
    }
}

/// What a datasheet's name calls its GPU, without form and memory, of which drivers' names say other things:
/// `rtx pro 6000` of `rtx-pro-6000`, `h100` of `h100-sxm`.
pub(super) fn model_words(datasheet: &str) -> Vec<String> {
    let is_number = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = datasheet.split('-').collect();
    let end = words.iter().position(|word| is_number(word)).map_or(words.len(), |number| number + 1);
    words[..end].iter().map(|word| word.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::model_words;

    #[test]
    fn a_gpu_is_known_by_its_number_and_what_is_before() {
        assert_eq!(model_words("rtx-pro-6000"), ["rtx", "pro", "6000"]);
        assert_eq!(model_words("a100-sxm-40g"), ["a100"]);
        assert_eq!(model_words("gtx-1080-ti"), ["gtx", "1080"]);
    }
}
