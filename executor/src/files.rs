//! Weights of users' own in place of random ones: safetensors in Hugging Face's layout.
//!
//! A checkpoint is a folder with `model.safetensors` (and `config.json`, which is then checked), or the file alone. Tenants' files lie in one
//! folder, in the order of their names; tenants take them in turns where there are fewer.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use crate::adapters::AdapterShape;
use crate::cascade::{ClassifierConfig, read_encoder};
use crate::decoder::{DecoderConfig, map, numbers, parse, read_decoder};
use crate::error::ExecutorError;
use crate::model::{Encoder, LAYER_NORM_EPSILON, read_checkpoint};
use crate::whole_models::WholeModel;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const SUFFIX: &str = "safetensors";

/// What is read instead of being drawn at random. Whatever is left out is random.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// The checkpoint of the backbone, or of the generic model that a table's root is built from.
    pub model: Option<PathBuf>,
    /// Checkpoints that were further pretrained for domains, whose lower layers fill these domains' tables (HMI, section 5.1). Domain `d`
    /// has the `d`-th; those beyond have the model's.
    pub domains: Vec<PathBuf>,
    /// A folder with a safetensors file for each tenant: its adapters and head, or its whole model; or PEFT's folders, for low-rank ones.
    pub tenants: Option<PathBuf>,
    /// Texts that tables are built from and requests are taken from, one a line, by domain: domain `d` has the `d`-th file, in turns.
    pub corpus: Vec<PathBuf>,
}

impl Files {
    /// All is random.
    pub const NONE: Files = Files {
        model: None,
        domains: Vec::new(),
        tenants: None,
        corpus: Vec::new(),
    };

    /// The model's tokenizer, where it lies beside its weights.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        let path = self.model.as_ref()?.join(TOKENIZER);
        path.exists().then_some(path)
    }

    /// Tenants' files, where there are any.
    ///
    /// # Errors
    /// A folder that cannot be read, or has none.
    pub(crate) fn of_tenants(&self) -> Result<Option<Vec<PathBuf>>, ExecutorError> {
        self.tenants.as_deref().map(tenants_files).transpose()
    }
}

/// What tells these checkpoints from others: a hash of their weights.
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
            let unreadable = |source| ExecutorError::File {
                path: file.clone(),
                source,
            };
            let bytes = fs::File::open(&file).map_err(unreadable)?;
            hasher.update_reader(bytes).map_err(unreadable)?;
        }
    }
    Ok(format!("weights-{}", &hasher.finalize().to_hex()[..16]))
}

/// A block of an encoder's parameters, and what its norms add to variances.
pub(crate) struct EncoderBlock {
    pub parameters: Tensor,
    pub norm_epsilon: f64,
}

impl EncoderBlock {
    /// The layers from `first_layer` on, on a device; all, with the embedding, from 0 on.
    ///
    /// # Errors
    /// No such layer, or no memory on the device.
    pub fn encoder(self, shape: &ModelShape, first_layer: u32, device: Device) -> Result<Encoder, ExecutorError> {
        let upper = Encoder::numbers(shape, first_layer)? as i64;
        let all = self.parameters.size()[0];
        let own = self
            .parameters
            .f_narrow(0, all - upper, upper)?
            .f_contiguous()?
            .f_to(device)?;
        Ok(Encoder::from_upper_parameters(shape, first_layer, own)?.with_norm_epsilon(self.norm_epsilon))
    }
}

/// Reads an encoder's checkpoint into host memory.
///
/// # Errors
/// Files that cannot be read, or of another shape than the model's.
pub(crate) fn read_encoder_block(path: &Path, shape: &ModelShape, dtype: DType) -> Result<EncoderBlock, ExecutorError> {
    let config = path.join(CONFIG);
    if !config.exists() {
        return Ok(EncoderBlock {
            parameters: read_checkpoint(&weights_of(path), shape, dtype)?,
            norm_epsilon: LAYER_NORM_EPSILON,
        });
    }
    let stored = ClassifierConfig::read(&config, &shape.name)?;
    agree(&config, shape, &stored.shape)?;
    Ok(EncoderBlock {
        parameters: read_encoder(&weights_of(path), &stored, dtype)?,
        norm_epsilon: stored.norm_epsilon,
    })
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
    let stored = path.join(CONFIG);
    let config = match stored.exists() {
        true => DecoderConfig::read(&stored, &shape.name)?,
        false => DecoderConfig::new(shape)?,
    };
    agree(&stored, shape, &config.shape)?;
    Ok((config, read_decoder(path, shape, dtype)?))
}

fn agree(path: &Path, shape: &ModelShape, stored: &ModelShape) -> Result<(), ExecutorError> {
    match stored == shape {
        true => Ok(()),
        false => Err(ExecutorError::Checkpoint {
            path: path.to_path_buf(),
            tensor: "config".into(),
            must: format!("of {}'s shape", shape.name),
            got: format!("another ({})", shape.differences(stored)),
        }),
    }
}

fn weights_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.join(WEIGHTS),
        false => path.to_path_buf(),
    }
}

/// Tenants' files: what of a folder is a safetensors file or a folder itself, in the order of names.
///
/// # Errors
/// A folder that cannot be read, or has none.
pub(crate) fn tenants_files(folder: &Path) -> Result<Vec<PathBuf>, ExecutorError> {
    let unreadable = |source| ExecutorError::File {
        path: folder.to_path_buf(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
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

/// Reads a tenant's Houlsby adapters into a block in host memory, `[shape.parameters()]`, in single precision. Their names are those of
/// the `adapters` library (AdapterHub): `…layer.L.attention.….adapter_down.0.weight`, `[bottleneck, hidden]`, its bias, and `adapter_up`.
///
/// # Errors
/// A file that cannot be read, or tensors that are missing or of another shape.
pub(crate) fn read_adapters(path: &Path, shape: &AdapterShape) -> Result<Tensor, ExecutorError> {
    let path = weights_of(path);
    let bytes = map(&path)?;
    let tensors = Stored {
        path: &path,
        tensors: parse(&path, &bytes)?,
    };
    let block = Tensor::f_zeros([1, shape.parameters() as i64], (Kind::Float, Device::Cpu))?;
    let (hidden, bottleneck) = (shape.hidden as usize, shape.bottleneck as usize);
    for layer in shape.first_layer..shape.first_layer + shape.layers {
        let place = shape.layer_block(layer as usize);
        let views = shape.views(&block.f_narrow(1, place.start as i64, place.len() as i64)?)?;
        let take = |part: &str, kind: &str, size: &[usize]| {
            let is_own = |name: &str| {
                let of_layer = [format!("layer.{layer}."), format!("layers.{layer}.")];
                of_layer.iter().any(|of_layer| name.contains(of_layer.as_str()))
                    && name.contains("attention")
                    && name.contains(&format!("adapter_{part}."))
                    && name.ends_with(kind)
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

/// Reads a tenant's head into a block in host memory, `[(hidden + 1) × classes]`, in single precision: `classifier.weight`,
/// `[classes, hidden]`, and `classifier.bias`, as Hugging Face's classifiers of sequences and tokens have them.
///
/// # Errors
/// A file that cannot be read, or tensors that are missing or of another shape.
pub(crate) fn read_head(path: &Path, hidden: u32, classes: u32) -> Result<Tensor, ExecutorError> {
    let path = weights_of(path);
    let bytes = map(&path)?;
    let tensors = Stored {
        path: &path,
        tensors: parse(&path, &bytes)?,
    };
    let (hidden, classes) = (hidden as usize, classes as usize);
    let take = |name: &str, size: &[usize]| tensors.take(name, size, |stored| stored.ends_with(name));
    let weight = take("classifier.weight", &[classes, hidden])?.f_transpose(0, 1)?;
    let bias = take("classifier.bias", &[classes])?;
    Ok(Tensor::f_cat(&[weight.f_reshape([-1])?, bias], 0)?)
}

/// The tensors of a file.
struct Stored<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Stored<'_> {
    /// The one tensor whose name is what is looked for, in single precision.
    fn take(&self, what: &str, size: &[usize], is_own: impl Fn(&str) -> bool) -> Result<Tensor, ExecutorError> {
        let wrong = |tensor: &str, must: String, got: String| ExecutorError::Checkpoint {
            path: self.path.to_path_buf(),
            tensor: tensor.to_owned(),
            must,
            got,
        };
        let mut names: Vec<&str> = self.tensors.names().into_iter().filter(|name| is_own(name)).collect();
        names.sort_unstable();
        let name = match names[..] {
            [name] => name,
            [] => return Err(wrong(what, format!("a tensor {size:?}"), "no such tensor".into())),
            _ => return Err(wrong(what, "one tensor".into(), names.join(", "))),
        };
        let tensor = self.tensors.tensor(name).expect("it was listed");
        match tensor.shape() == size {
            true => Ok(numbers(self.path, name, &tensor)?.f_to_kind(Kind::Float)?),
            false => Err(wrong(
                name,
                format!("of shape {size:?}"),
                format!("{:?}", tensor.shape()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use tempfile::TempDir;
    use tenantry_core::ClusterSpec;
    use tenantry_core::spec::{
        AdmitSpec, BatchSpec, HeadTask, Met, Padding, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec, SwapSpec,
        SystemSpec, TenantState,
    };
    use tenantry_plot::Engine;
    use tenantry_profiles::testing::synthetic_card;
    use tenantry_profiles::{AdapterImplementation, Tier};
    use tenantry_traces::{Duration, Entry, Listed, Request, Time};

    use super::*;
    use crate::adapters::{AdapterCache, AdapterStore, Adapters};
    use crate::machine::execute::{Run, execute};
    use crate::model::{Heads, Input};
    use crate::plot::{Origin, Tables};
    use crate::write_checkpoint;

    const TENANTS: u32 = 7;
    const REQUESTS: u64 = 40;
    const CLASSES: u32 = 4;
    const BOTTLENECK: u32 = 8;

    fn model() -> ModelShape {
        ModelShape {
            name: "mine".into(),
            layers: 3,
            vocabulary: 60,
            ..ModelShape::builtin("tiny").unwrap()
        }
    }

    fn random(size: &[i64], std: f64) -> Tensor {
        Tensor::randn(size, (Kind::Float, Device::Cpu)) * std
    }

    fn write(path: &Path, tensors: &[(String, Tensor)]) {
        let bytes = |tensor: &Tensor| {
            let mut bytes = vec![0; 4 * tensor.numel()];
            tensor.contiguous().copy_data_u8(&mut bytes, tensor.numel());
            bytes
        };
        let data: Vec<Vec<u8>> = tensors.iter().map(|(_, tensor)| bytes(tensor)).collect();
        let views: HashMap<&str, TensorView<'_>> = { tensors.iter().zip(&data) }
            .map(|((name, tensor), data)| {
                let size = tensor.size().iter().map(|&n| n as usize).collect();
                (name.as_str(), TensorView::new(Dtype::F32, size, data).unwrap())
            })
            .collect();
        safetensors::serialize_to_file(&views, None, path).unwrap();
    }

    /// A tenant's file as the `adapters` library and Hugging Face's classifiers call its tensors; large, so that they count.
    fn write_tenant(path: &Path) -> Vec<(String, Tensor)> {
        let (hidden, bottleneck) = (128, i64::from(BOTTLENECK));
        let mut tensors = Vec::new();
        for layer in 0..3 {
            let of = format!("bert.encoder.layer.{layer}.attention.output.adapters.mine.");
            tensors.push((format!("{of}adapter_down.0.weight"), random(&[bottleneck, hidden], 0.3)));
            tensors.push((format!("{of}adapter_down.0.bias"), random(&[bottleneck], 0.3)));
            tensors.push((format!("{of}adapter_up.weight"), random(&[hidden, bottleneck], 0.3)));
            tensors.push((format!("{of}adapter_up.bias"), random(&[hidden], 0.3)));
        }
        tensors.push(("classifier.weight".into(), random(&[CLASSES.into(), hidden], 1.0)));
        tensors.push(("classifier.bias".into(), random(&[CLASSES.into()], 1.0)));
        write(path, &tensors);
        tensors
    }

    #[test]
    fn a_tenants_tensors_come_to_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.safetensors");
        let tensors = write_tenant(&path);
        let stored = |name: &str| &tensors.iter().find(|(known, _)| known.ends_with(name)).unwrap().1;
        let shape = AdapterShape::upper(&model(), 1, BOTTLENECK).unwrap();
        let block = read_adapters(&path, &shape).unwrap();
        let own = shape.layer_block(2);
        let layer = block.narrow(0, own.start as i64, own.len() as i64);
        let at = |index: i64| layer.double_value(&[index]);
        let of = "layer.2.attention.output.adapters.mine.";
        for (row, column) in [(0, 0), (100, 3), (127, 7)] {
            // `W_down [hidden, bottleneck]`, and then its bias, `W_up [bottleneck, hidden]` and its bias.
            let down = stored(&format!("{of}adapter_down.0.weight"));
            assert_eq!(at(row * 8 + column), down.double_value(&[column, row]));
            let up = stored(&format!("{of}adapter_up.weight"));
            assert_eq!(at(128 * 8 + 8 + column * 128 + row), up.double_value(&[row, column]));
        }
        assert_eq!(
            at(128 * 8 + 5),
            stored(&format!("{of}adapter_down.0.bias")).double_value(&[5])
        );
        assert_eq!(
            at(2 * 128 * 8 + 8 + 99),
            stored(&format!("{of}adapter_up.bias")).double_value(&[99])
        );
        let head = read_head(&path, 128, CLASSES).unwrap();
        assert_eq!(
            head.double_value(&[50 * 4 + 3]),
            stored("classifier.weight").double_value(&[3, 50])
        );
        assert_eq!(
            head.double_value(&[128 * 4 + 2]),
            stored("classifier.bias").double_value(&[2])
        );

        for (message, error) in [
            ("adapter_down.0.weight: must be of shape [9, 128], got [8, 128]", {
                let wider = AdapterShape { bottleneck: 9, ..shape };
                read_adapters(&path, &wider).unwrap_err()
            }),
            (
                "layer.3.attention.*.adapter_down.*weight: must be a tensor [8, 128], got no such tensor",
                {
                    let more = AdapterShape { layers: 3, ..shape };
                    read_adapters(&path, &more).unwrap_err()
                },
            ),
            (
                "classifier.weight: must be of shape [5, 128], got [4, 128]",
                read_head(&path, 128, 5).unwrap_err(),
            ),
        ] {
            assert!(error.to_string().ends_with(message), "{error}");
        }
        let empty = tempfile::tempdir().unwrap();
        let error = tenants_files(empty.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("must be a folder with tenants' *.safetensors, or with folders of theirs, got none"),
            "{error}"
        );
    }

    /// A model, three tenants' files, a domain's version and a corpus, all of one's own.
    fn files(folder: &TempDir) -> Files {
        let checkpoint = |name: &str, seed| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            let encoder = Encoder::random(&model(), seed, DType::F32, Device::Cpu).unwrap();
            write_checkpoint(&path.join(WEIGHTS), &model(), encoder.parameters()).unwrap();
            path
        };
        let tenants = folder.path().join("tenants");
        fs::create_dir(&tenants).unwrap();
        for tenant in 0..3 {
            write_tenant(&tenants.join(format!("{tenant}.safetensors")));
        }
        let corpus = folder.path().join("corpus.txt");
        // Few different ones, so that those that are kept for requests are among the others.
        let token = |first: usize, index: usize| ((first % 7) * index + index * index) % 59;
        let line = |first| {
            (0..30)
                .map(|index| token(first, index).to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        fs::write(&corpus, (1..60).map(|first| line(first) + "\n").collect::<String>()).unwrap();
        Files {
            model: Some(checkpoint("model", 71)),
            domains: vec![checkpoint("domain-0", 72)],
            tenants: Some(tenants),
            corpus: vec![corpus],
        }
    }

    const PLOT: PlotSpec = PlotSpec {
        lower_layers: 1,
        fragment_tokens: 3,
        threads: 1,
        tier: Tier::Memory,
        domain_hits_ppm: 500_000,
        fallbacks_ppm: 0,
        met: Met::AsBuilt,
        domain_bytes: 0,
    };

    fn system() -> SystemSpec {
        SystemSpec {
            name: "hbert".into(),
            admit: AdmitSpec::Open,
            route: None,
            pool: PoolSpec {
                name: "mine".into(),
                model: model(),
                dtype: DType::F32,
                classes: CLASSES,
                heads: HeadTask::Classification,
                plot: Some(PLOT),
                tenant_state: TenantState::Adapters {
                    bottleneck: BOTTLENECK,
                    implementation: AdapterImplementation::GatherBmm,
                },
                padding: Padding::Longest,
                instances_per_gpu: 1,
                place: PlaceSpec::LeastLoaded,
                batch: BatchSpec::SizeOrTimeout {
                    max_size: 8,
                    max_wait: Duration::ZERO,
                },
                swap: SwapSpec::LeastRecentlyUsed,
                pipeline: PipelineSpec::LAYERWISE,
                generation: None,
                tasks: None,
                runtimes: None,
            },
        }
    }

    fn request(ticket: u64) -> Request {
        Request {
            ticket,
            tenant: (ticket * 3 % u64::from(TENANTS)) as u32,
            arrival: Time(ticket * 100_000),
            input_tokens: 2 + (ticket % 17) as u32,
            output_tokens: 0,
            class: 0,
        }
    }

    fn served(folder: &TempDir, files: &Files) -> Vec<u32> {
        let (card, system) = (synthetic_card(), system());
        let spec = Run {
            device: Device::Cpu,
            card: &card,
            cluster: ClusterSpec {
                gpus: 1,
                gpu_memory_bytes: 1 << 30,
                copy_lanes: 1,
                lookup_lanes: 1,
            },
            system: &system,
            tenants: TENANTS,
            warm_up: Time::ZERO,
            seed: 3,
            outcomes: None,
            max_host_bytes: 1 << 30,
            files: files.clone(),
            tables: folder.path().join("plot"),
            building: |_| {},
        };
        let mut requests = Listed::new((0..REQUESTS).map(|ticket| Entry::Request(request(ticket))).collect());
        let done = execute(&spec, &mut requests, Arc::default(), ()).unwrap();
        assert_eq!(done.shared_sets, files.tenants.as_ref().map(|_| 3));
        let lookups = done.record.lookups.unwrap();
        assert!(lookups.domain_hits > 0 && lookups.root_hits > 0, "{lookups:?}");
        done.answers.iter().map(|answer| answer.class).collect()
    }

    /// What is executed of users' files is what their parts come to one by one: texts, the domain's or the root's rows, the model's upper
    /// layers, the tenant's adapters and its head.
    #[test]
    fn users_own_models_are_served() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let answers = served(&folder, &files);

        let origin = Origin { seed: 3, files: &files };
        let open = Tables::open_or_build;
        let tables = open(
            &folder.path().join("plot"),
            &model(),
            &PLOT,
            origin,
            Device::Cpu,
            &mut |_| panic!("they were built when they were served"),
        )
        .unwrap();
        let encoder = Encoder::random(&model(), 71, DType::F32, Device::Cpu).unwrap();
        let shape = AdapterShape::upper(&model(), 1, BOTTLENECK).unwrap();
        let paths = files.of_tenants().unwrap().unwrap();
        let store = AdapterStore::read(shape, TENANTS, &paths, DType::F32, Device::Cpu, 1 << 30).unwrap();
        let cache = AdapterCache::new(shape, 1, DType::F32, Device::Cpu).unwrap();
        let heads = Heads::read(&model(), TENANTS, CLASSES, &paths, DType::F32, Device::Cpu).unwrap();
        let expected: Vec<u32> = (0..REQUESTS)
            .map(|ticket| {
                let Request {
                    tenant, input_tokens, ..
                } = request(ticket);
                let tokens = input_tokens as usize;
                let mut found = vec![0.0; tokens * 128];
                let engine = Engine::new(1).unwrap();
                let one = [(ticket, tenant, input_tokens)];
                tables.retrieve(&engine, one.into_iter(), tokens, &mut found).unwrap();
                let hidden = Tensor::from_slice(&found).view([1, tokens as i64, 128]);
                let input = Input::of_lengths(&[tokens], tokens, Kind::Float, Device::Cpu).unwrap();
                cache.load(&store, tenant, 0, 1..3).unwrap();
                let plan = cache.plan(&[0], tokens, AdapterImplementation::Loop).unwrap();
                let adapters = Adapters::new(&cache, &plan);
                let hidden = encoder.layers(hidden, 1..3, &input, Some(&adapters)).unwrap();
                let logits = heads.forward(&hidden, &[tenant]).unwrap();
                logits.argmax(1, false).int64_value(&[0]) as u32
            })
            .collect();
        assert_eq!(answers, expected);
        assert_ne!(
            answers,
            served(
                &folder,
                &Files {
                    corpus: files.corpus.clone(),
                    ..Files::NONE
                }
            )
        );

        // The domain's rows are its own version's, the others' the model's.
        let version = |seed| Encoder::random(&model(), seed, DType::F32, Device::Cpu).unwrap();
        let snapshot = tables.snapshot();
        for (name, seed) in [("domain-0", 72), ("domain-1", 71)] {
            let domain = snapshot.domain(name).unwrap();
            let table = &snapshot.branch(domain).unwrap().tables()[0];
            let (key, _) = table.fragments().next().unwrap();
            let ids: Vec<i64> = key.iter().map(|&token| token.into()).collect();
            let encoder = version(seed);
            let input = encoder.input(&[ids], 3).unwrap();
            let expected = encoder
                .layers(encoder.embed(&input).unwrap(), 0..1, &input, None)
                .unwrap();
            let row: Vec<f32> = { table.get(key).unwrap().unwrap() }
                .iter()
                .map(|value| value.to_f32())
                .collect();
            let found = Tensor::from_slice(&row).view([1, 3, 128]);
            assert!((found - expected).abs().max().double_value(&[]) < 4e-3, "{name}");
        }
    }

    #[test]
    fn a_checkpoint_of_another_shape_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = files(&folder).model.unwrap();
        let other = ModelShape {
            heads: 4,
            kv_heads: 4,
            ..model()
        };
        let config =
            ClassifierConfig::new(&model(), crate::cascade::Answer::Class(vec!["a".into(), "b".into()])).unwrap();
        fs::write(path.join(CONFIG), config.to_json()).unwrap();
        assert!(read_encoder_block(&path, &model(), DType::F32).is_ok());
        let error = read_encoder_block(&path, &other, DType::F32).err().unwrap().to_string();
        assert!(
            error.ends_with("config: must be of mine's shape, got another (heads 4, not 2; kv_heads 4, not 2)"),
            "{error}"
        );
    }
}
