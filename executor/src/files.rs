//! Weights of users' own in place of random ones: safetensors in Hugging Face's layout.
//!
//! A checkpoint is a folder with `model.safetensors` (and `config.json`, which is then checked), or the file, with
//! `config.json` beside it. Tenants' files lie in one folder, in the order of their names; tenants take them in turns
//! where there are fewer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use tch::{Device, Kind, Tensor};
use tenantry_core::pet::header::PoolerActivation;
use tenantry_core::spec::{HeadTask, PoolSpec};
use tenantry_profiles::{DType, ModelKind, ModelShape, of_checkpoint};

use crate::adapters::AdapterShape;
use crate::cascade::{ClassifierConfig, read_encoder};
use crate::decoder::{DecoderConfig, checkpoint_files, read_decoder};
use crate::error::ExecutorError;
use crate::model::{Encoder, LinearParameters, Pooler, Variant, read_checkpoint};
use crate::tensors_file::{map, numbers, parse};
use crate::whole_models::WholeModel;

mod houlsby;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const SUFFIX: &str = "safetensors";

/// What is read instead of being drawn at random. Whatever is left out is random.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// The checkpoint of the backbone, of tasks' own shared model, or of the generic model that a table's root is built
    /// from.
    pub model: Option<PathBuf>,
    /// Of tasks' further shared models, by name.
    pub models: BTreeMap<String, PathBuf>,
    /// Checkpoints that were further pretrained for domains, whose lower layers fill these domains' tables (HMI,
    /// section 5.1). Domain `d` has the `d`-th; those beyond have the model's.
    pub domains: Vec<PathBuf>,
    /// A folder with a safetensors file for each tenant: its adapters and head, or its whole model; or PEFT's folders,
    /// for low-rank ones.
    pub tenants: Option<PathBuf>,
    /// Texts that tables are built from and requests are taken from, one a line, by domain: domain `d` has the `d`-th
    /// file, in turns.
    pub corpus: Vec<PathBuf>,
}

impl Files {
    /// All is random.
    pub const NONE: Files = Files {
        model: None,
        models: BTreeMap::new(),
        domains: Vec::new(),
        tenants: None,
        corpus: Vec::new(),
    };

    /// The model's tokenizer, where it lies beside its weights.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        let path = of_checkpoint(self.model.as_ref()?, TOKENIZER);
        path.exists().then_some(path)
    }

    /// That a pool's checkpoints are such of its models, as far as their configs and the headers of their weights say,
    /// and that tenants have files. What numbers they have is known when they are read.
    ///
    /// # Errors
    /// Files that cannot be read, or of another shape than the model's.
    pub(crate) fn check(&self, pool: &PoolSpec) -> Result<(), ExecutorError> {
        let of_pool = self.model.iter().chain(&self.domains).map(|path| (path, &pool.model));
        let more = pool.tasks.iter().flat_map(|tasks| tasks.named_models(&pool.model));
        let of_tasks = more.filter_map(|(name, shape)| Some((self.models.get(name)?, shape)));
        for (path, shape) in of_pool.chain(of_tasks) {
            check_header(path, shape)?;
        }
        match pool.tasks {
            // Each has a file of its own, which says of which kind it is.
            Some(_) => Ok(()),
            None => self.of_tenants().map(drop),
        }
    }

    /// Tenants' files, where there are any.
    ///
    /// # Errors
    /// A folder that cannot be read, or has none.
    pub(crate) fn of_tenants(&self) -> Result<Option<Vec<PathBuf>>, ExecutorError> {
        self.tenants.as_deref().map(tenants_files).transpose()
    }
}

/// What tells these checkpoints from others: a hash of their weights, and of what `config.json` says of them.
///
/// # Errors
/// Files that cannot be read.
pub(crate) fn fingerprint<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<String, ExecutorError> {
    let mut hasher = blake3::Hasher::new();
    for path in paths {
        let files = match path.is_dir() {
            true => tenants_files(path)?.into_iter().filter(|file| file.is_file()).collect(),
            false => vec![path.clone()],
        };
        for file in files {
            hash_file(&file, &mut hasher)?;
        }
        let config = of_checkpoint(path, CONFIG);
        if config.exists() {
            hash_file(&config, &mut hasher)?;
        }
    }
    Ok(format!("weights-{}", &hasher.finalize().to_hex()[..16]))
}

/// Adds a file's bytes to a hash.
pub(crate) fn hash_file(path: &Path, hasher: &mut blake3::Hasher) -> Result<(), ExecutorError> {
    let hashed = fs::File::open(path).and_then(|file| hasher.update_reader(file).map(|_| ()));
    hashed.map_err(ExecutorError::file(path))
}

/// A block of an encoder's parameters, and what it has otherwise than BERT: never another layout.
pub(crate) struct EncoderBlock {
    pub parameters: Tensor,
    pub variant: Variant,
}

impl EncoderBlock {
    /// The layers from `first_layer` on, on a device; all, with the embedding, from 0 on.
    ///
    /// # Errors
    /// No such layer, or no memory on the device.
    pub fn encoder(self, shape: &ModelShape, first_layer: u32, device: Device) -> Result<Encoder, ExecutorError> {
        let upper = Encoder::numbers(shape, first_layer)? as i64;
        let all = self.parameters.size()[0];
        let own = self.parameters.f_narrow(0, all - upper, upper)?.f_contiguous()?.f_to(device)?;
        Encoder::of_variant(shape, self.variant, first_layer, own)
    }
}

/// Reads an encoder's checkpoint into host memory.
///
/// # Errors
/// Files that cannot be read, or of another shape than the model's.
pub(crate) fn read_encoder_block(path: &Path, shape: &ModelShape, dtype: DType) -> Result<EncoderBlock, ExecutorError> {
    let weights = weights_of(path);
    Ok(match encoder_config(path, shape)? {
        None => EncoderBlock {
            parameters: read_checkpoint(&weights, shape, dtype)?,
            variant: Variant::BERT,
        },
        Some(stored) => EncoderBlock {
            parameters: read_encoder(&weights, &stored, dtype)?,
            variant: stored.variant,
        },
    })
}

/// What an encoder's checkpoint says of itself, where it does: that of a model of this shape.
fn encoder_config(path: &Path, shape: &ModelShape) -> Result<Option<ClassifierConfig>, ExecutorError> {
    let config = of_checkpoint(path, CONFIG);
    if !config.exists() {
        return Ok(None);
    }
    let stored = ClassifierConfig::read_encoder(&config, &shape.name)?;
    agree(&config, shape, &stored.shape)?;
    if stored.variant.one_layer || stored.variant.relative.is_some() {
        let must = "bert, distilbert, roberta, xlm-roberta or camembert here (cascades read others too)";
        return Err(ExecutorError::checkpoint(
            config,
            "model_type",
            must,
            "one of another layout",
        ));
    }
    Ok(Some(stored))
}

/// Reads a decoder's checkpoint into host memory.
///
/// # Errors
/// As [`read_encoder_block`].
pub(crate) fn read_decoder_block(
    path: &Path,
    shape: &ModelShape,
    dtype: DType,
) -> Result<(DecoderConfig, Tensor), ExecutorError> {
    let config = decoder_config(path, shape)?;
    Ok((config, read_decoder(path, shape, dtype)?))
}

/// What a decoder's checkpoint says of itself, or its shape where it does not: that of a model of this shape.
fn decoder_config(path: &Path, shape: &ModelShape) -> Result<DecoderConfig, ExecutorError> {
    let stored = of_checkpoint(path, CONFIG);
    let config = match stored.exists() {
        true => DecoderConfig::read(&stored, &shape.name)?,
        // How fast its positions turn is in no tensor, and differs from one Llama to the next.
        false if shape.gated => {
            let must = "said for a Llama's weights, which do not tell them";
            return Err(ExecutorError::checkpoint(
                stored,
                "rope_theta and rms_norm_eps",
                must,
                "no such file",
            ));
        }
        false => DecoderConfig::new(shape)?,
    };
    agree(&stored, shape, &config.shape)?;
    Ok(config)
}

/// That a checkpoint is of a model of this shape, as far as its config says, and that its weights are safetensors files
/// and whole.
fn check_header(path: &Path, shape: &ModelShape) -> Result<(), ExecutorError> {
    let weights = match shape.kind {
        ModelKind::Encoder => {
            encoder_config(path, shape)?;
            vec![weights_of(path)]
        }
        ModelKind::Decoder => {
            decoder_config(path, shape)?;
            checkpoint_files(path)?
        }
    };
    weights.iter().try_for_each(|path| parse(path, &map(path)?).map(drop))
}

/// What all tenants' own models have beside their shape is one thing, by which their slots on the device compute: the
/// first's that can be read.
#[derive(Debug)]
pub(crate) struct OneForAll<T>(Option<T>);

impl<T: PartialEq> OneForAll<T> {
    /// Nobody's was read yet.
    pub fn unknown() -> OneForAll<T> {
        OneForAll(None)
    }

    /// # Errors
    /// Another than that of a tenant before.
    pub fn agree(&mut self, path: &Path, own: T) -> Result<(), ExecutorError> {
        match &self.0 {
            Some(first) if *first != own => {
                let config = of_checkpoint(path, CONFIG);
                let got = "another (activation, what norms add to variances, how positions are told)";
                Err(ExecutorError::checkpoint(
                    config,
                    "what layers compute",
                    "as in the first tenant's",
                    got,
                ))
            }
            Some(_) => Ok(()),
            None => {
                self.0 = Some(own);
                Ok(())
            }
        }
    }

    pub fn get(self) -> Option<T> {
        self.0
    }
}

fn agree(path: &Path, shape: &ModelShape, stored: &ModelShape) -> Result<(), ExecutorError> {
    match stored == shape {
        true => Ok(()),
        false => {
            let must = format!("of {}'s shape", shape.name);
            let got = format!("another ({})", shape.differences(stored));
            Err(ExecutorError::checkpoint(path, "config", must, got))
        }
    }
}

fn weights_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(WEIGHTS),
        false => path.to_path_buf(),
    }
}

/// Tenants' files: what of a folder is a safetensors file or a folder itself and not hidden, in the order of names.
///
/// # Errors
/// A folder that cannot be read, or has none.
pub(crate) fn tenants_files(folder: &Path) -> Result<Vec<PathBuf>, ExecutorError> {
    let unreadable = ExecutorError::file(folder);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(&unreadable)? {
        let path = entry.map_err(&unreadable)?.path();
        // Such as `.git`, or `.cache` of a download.
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        if path.is_dir() || path.extension().is_some_and(|suffix| suffix == SUFFIX) {
            files.push(path);
        }
    }
    files.sort_unstable();
    match files.is_empty() {
        true => Err(ExecutorError::input(
            folder.display().to_string(),
            "a folder with tenants' *.safetensors, or with folders of theirs",
            "none",
        )),
        false => Ok(files),
    }
}

/// Reads a tenant's Houlsby adapters into a block in host memory, `[shape.parameters()]`, in single precision. Their
/// names are those of the `adapters` library (AdapterHub): `…layer.L.attention.….adapter_down.0.weight`,
/// `[bottleneck, hidden]`, its bias, and `adapter_up`.
///
/// # Errors
/// A file that cannot be read, tensors that are missing or of another shape, or adapters that are not computed:
/// elsewhere than after attention.
pub(crate) fn read_adapters(path: &Path, shape: &AdapterShape) -> Result<Tensor, ExecutorError> {
    houlsby::check(path)?;
    let path = weights_of(path);
    let bytes = map(&path)?;
    let tensors = Stored::parse(&path, &bytes)?;
    let end_layer = shape.first_layer + shape.layers;
    let is_computed = |name: &str| (0..end_layer).any(|layer| is_after_attention(name, layer));
    if let Some(other) = tensors.names().find(|name| is_adapter(name) && !is_computed(name)) {
        let must = format!(
            "of adapter_down or adapter_up after attention in one of the {end_layer} layers, where alone adapters are \
             computed"
        );
        return Err(tensors.wrong(other, must, "another".into()));
    }
    let block = Tensor::f_zeros([1, shape.parameters() as i64], (Kind::Float, Device::Cpu))?;
    let (hidden, bottleneck) = (shape.hidden as usize, shape.bottleneck as usize);
    for layer in shape.first_layer..end_layer {
        let place = shape.layer_blocks(layer as usize..layer as usize + 1);
        let views = shape.views(&block.f_narrow(1, place.start as i64, place.len() as i64)?)?;
        let take = |part: &str, kind: &str, size: &[usize]| {
            let is_own = |name: &str| {
                is_after_attention(name, layer) && name.contains(&format!("adapter_{part}.")) && name.ends_with(kind)
            };
            tensors.take(
                &format!("layer.{layer}.attention.*.adapter_{part}.*{kind}"),
                size,
                is_own,
            )
        };
        for (part, weight, bias, size) in [
            ("down", &views.down, &views.down_bias, [bottleneck, hidden]),
            ("up", &views.up, &views.up_bias, [hidden, bottleneck]),
        ] {
            let stored = take(part, "weight", &size)?.f_transpose(0, 1)?;
            weight.f_select(0, 0)?.f_copy_(&stored)?;
            bias.f_view([-1])?.f_copy_(&take(part, "bias", &size[..1])?)?;
        }
    }
    Ok(block.f_view([-1])?)
}

/// Whether a tensor is an adapter's, of whatever kind.
fn is_adapter(name: &str) -> bool {
    name.contains("adapters.") || is_computed_part(name)
}

fn is_computed_part(name: &str) -> bool {
    ["adapter_down.", "adapter_up."].iter().any(|part| name.contains(part))
}

/// Whether a tensor is of what follows a layer's attention, and of what is computed there.
fn is_after_attention(name: &str, layer: u32) -> bool {
    // What tenants call their adapters comes behind.
    let place = name.split("adapters.").next().unwrap_or(name);
    let of_layer = [format!("layer.{layer}."), format!("layers.{layer}.")];
    let is_of_layer = of_layer.iter().any(|of_layer| place.contains(of_layer.as_str()));
    is_of_layer && place.contains("attention") && is_computed_part(name)
}

/// A tenant's head in host memory, in single precision.
#[derive(Debug)]
pub(crate) struct StoredHead {
    /// `[(hidden + 1) × classes]`: weight `[hidden, classes]`, then bias `[classes]`.
    pub linear: Tensor,
    /// What stands before it, where the file has such.
    pub pooler: Option<Pooler>,
}

/// Names of classification layers: RoBERTa's, and all others'.
const OUTPUTS: [&str; 2] = ["classifier.out_proj", "classifier"];

/// Names of the layers before them that Hugging Face's classifiers of sequences have, and what follows. RoBERTa's comes
/// before the pooler that its encoder may have and its classifier does not use.
const POOLERS: [(&str, PoolerActivation); 3] = [
    ("classifier.dense", PoolerActivation::Tanh),
    ("pre_classifier", PoolerActivation::Relu),
    ("pooler.dense", PoolerActivation::Tanh),
];

/// Reads a tenant's head: `classifier.weight`, `[classes, hidden]`, and `classifier.bias`, and for sequences the pooler
/// before it, `[hidden, hidden]` with a bias, as BERT's, DistilBERT's and RoBERTa's classifiers in Hugging Face's
/// library have them.
///
/// # Errors
/// A file that cannot be read, or tensors that are missing or of another shape.
pub(crate) fn read_head(path: &Path, hidden: u32, classes: u32, task: HeadTask) -> Result<StoredHead, ExecutorError> {
    let path = weights_of(path);
    let bytes = map(&path)?;
    let tensors = Stored::parse(&path, &bytes)?;
    let (hidden, classes) = (hidden as usize, classes as usize);
    let has = |layer: &str| tensors.names().any(|stored| is_named(stored, &format!("{layer}.weight")));
    let read = |layer: &str, outputs: usize| {
        let take = |kind: &str, size: &[usize]| {
            let name = format!("{layer}.{kind}");
            tensors.take(&name, size, |stored| is_named(stored, &name))
        };
        Ok::<LinearParameters, ExecutorError>(LinearParameters {
            weight: take("weight", &[outputs, hidden])?,
            bias: take("bias", &[outputs])?,
        })
    };
    let output = OUTPUTS.into_iter().find(|layer| has(layer)).unwrap_or("classifier");
    let LinearParameters { weight, bias } = read(output, classes)?;
    let pooler = match task {
        HeadTask::Classification => POOLERS.into_iter().find(|(layer, _)| has(layer)),
        HeadTask::Tagging => None,
    };
    let pooler = pooler.map(|(layer, activation)| {
        Ok::<Pooler, ExecutorError>(Pooler {
            dense: read(layer, hidden)?,
            activation,
        })
    });
    Ok(StoredHead {
        linear: Tensor::f_cat(&[weight.f_transpose(0, 1)?.f_reshape([-1])?, bias], 0)?,
        pooler: pooler.transpose()?,
    })
}

/// Whether a tensor is called so, whatever it is part of.
fn is_named(stored: &str, name: &str) -> bool {
    stored.strip_suffix(name).is_some_and(|part_of| part_of.is_empty() || part_of.ends_with('.'))
}

/// The tensors of a file.
struct Stored<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl<'a> Stored<'a> {
    fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Stored<'a>, ExecutorError> {
        let tensors = parse(path, bytes)?;
        Ok(Stored { path, tensors })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.names().into_iter()
    }

    fn wrong(&self, tensor: &str, must: String, got: String) -> ExecutorError {
        ExecutorError::checkpoint(self.path, tensor, must, got)
    }

    /// The one tensor whose name is what is looked for, in single precision.
    fn take(&self, what: &str, size: &[usize], is_own: impl Fn(&str) -> bool) -> Result<Tensor, ExecutorError> {
        let mut names: Vec<&str> = self.names().filter(|name| is_own(name)).collect();
        names.sort_unstable();
        let name = match names[..] {
            [name] => name,
            [] => return Err(self.wrong(what, format!("a tensor {size:?}"), "no such tensor".into())),
            _ => return Err(self.wrong(what, "one tensor".into(), names.join(", "))),
        };
        let tensor = self.tensors.tensor(name).expect("it was listed");
        match tensor.shape() == size {
            true => Ok(numbers(self.path, name, &tensor)?.f_to_kind(Kind::Float)?),
            false => Err(self.wrong(name, format!("of shape {size:?}"), format!("{:?}", tensor.shape()))),
        }
    }
}

#[cfg(test)]
mod tests;
