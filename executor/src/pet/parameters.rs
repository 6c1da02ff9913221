//! A task's parameters as they are stored: named arrays, compressed, in memory and in safetensors files.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tch::{Kind as Number, Tensor};
use tenantry_core::pet::header::{KIND, POOLER_ACTIVATION, PetHeader, PoolerActivation, SHARED_MODEL};
use tenantry_core::pet::tensors::{self, HEAD, HeadInFile, Misfit, POOLER, Resident, Stored, StoredTensor};
use tenantry_profiles::{ModelShape, PetKind};
use tenantry_traces::whole::{header_in_order, write_whole};

use crate::error::ExecutorError;
use crate::model::Encoder;

/// A stored array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Of its elements. Kinds compute with 32-bit floats, 32-bit integers and bytes, and refuse others.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its elements, little-endian.
    pub data: Vec<u8>,
}

impl Array {
    /// 32-bit floats.
    ///
    /// # Panics
    /// If there are not as many as the shape says.
    pub fn floats(shape: &[usize], numbers: &[f32]) -> Array {
        let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Array::new(Dtype::F32, shape, data)
    }

    /// 32-bit integers.
    ///
    /// # Panics
    /// If there are not as many as the shape says.
    pub fn integers(shape: &[usize], numbers: &[i32]) -> Array {
        let data = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Array::new(Dtype::I32, shape, data)
    }

    /// Bytes.
    ///
    /// # Panics
    /// If there are not as many as the shape says.
    pub fn bytes(shape: &[usize], data: Vec<u8>) -> Array {
        Array::new(Dtype::U8, shape, data)
    }

    /// As a tensor in host memory.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn tensor(&self) -> Result<Tensor, ExecutorError> {
        let kind = match self.dtype {
            Dtype::F32 => Number::Float,
            Dtype::I32 => Number::Int,
            _ => Number::Uint8,
        };
        let shape: Vec<i64> = self.shape.iter().map(|&size| size as i64).collect();
        Ok(Tensor::f_from_data_size(&self.data, &shape, kind)?)
    }

    /// Makes floats larger by a factor; others stay.
    fn scale(&mut self, factor: f32) {
        if self.dtype != Dtype::F32 {
            return;
        }
        for number in self.data.chunks_exact_mut(4) {
            let scaled = f32::from_le_bytes(number.try_into().expect("four bytes")) * factor;
            number.copy_from_slice(&scaled.to_le_bytes());
        }
    }

    fn new(dtype: Dtype, shape: &[usize], data: Vec<u8>) -> Array {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        assert_eq!(data.len(), bytes, "an array is as long as its shape {shape:?} says");
        let shape = shape.to_vec();
        Array { dtype, shape, data }
    }
}

/// A task's parameters, compressed: what the repository keeps and files hold. `layer.<i>.<linear or norm>.<part>` names
/// an array; which parts there are is said in each kind's file. Beside them may be a classification layer of the task's
/// own ([`HEAD`]), and before it a [`POOLER`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    arrays: BTreeMap<String, Array>,
    pooler_activation: PoolerActivation,
}

/// A task's own head, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredHead<'a> {
    /// Weight and bias of the classification layer.
    pub linear: [&'a Array; 2],
    /// Those of the pooler before it, where there is one, and its nonlinearity.
    pub pooler: Option<([&'a Array; 2], PoolerActivation)>,
}

impl Parameters {
    /// Puts an array in, in place of another of its name.
    pub fn insert(&mut self, name: impl Into<String>, array: Array) {
        self.arrays.insert(name.into(), array);
    }

    /// Takes an array out.
    pub fn remove(&mut self, name: &str) -> Option<Array> {
        self.arrays.remove(name)
    }

    /// The array of this name.
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// Says what stands between the task's own pooler and its classification layer.
    pub fn set_pooler_activation(&mut self, activation: PoolerActivation) {
        self.pooler_activation = activation;
    }

    /// The task's own head, where there is one.
    ///
    /// # Errors
    /// One that does not fit a model of this shape, or a system of so many classes.
    pub fn head(&self, shape: &ModelShape, classes: u32) -> Result<Option<StoredHead<'_>>, Misfit> {
        let of = |names: [&str; 2]| names.map(|name| &self.arrays[name]);
        let pooler = match tensors::check_head(shape, classes, &self.stored())? {
            HeadInFile::None => return Ok(None),
            HeadInFile::Linear => None,
            HeadInFile::Pooled => Some((of(POOLER), self.pooler_activation)),
        };
        let linear = of(HEAD);
        Ok(Some(StoredHead { linear, pooler }))
    }

    /// As the core checks them.
    fn stored(&self) -> Stored<'_> {
        let tensor = |array| {
            let Array { dtype, shape, data }: &Array = array;
            let dtype = format!("{dtype:?}");
            StoredTensor { dtype, shape, data }
        };
        let arrays = self.arrays.iter();
        arrays.map(|(name, array)| (name.as_str(), tensor(array))).collect()
    }

    /// The same with all floats larger by a factor.
    pub(crate) fn scaled(mut self, factor: f32) -> Parameters {
        self.arrays.values_mut().for_each(|array| array.scale(factor));
        self
    }

    /// Bytes that all arrays take in the repository.
    pub fn bytes(&self) -> u64 {
        self.arrays.values().map(|array| array.data.len() as u64).sum()
    }

    /// Writes a safetensors file whose header says of which shared model and kind they are. The file is there whole or
    /// not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save(&self, path: &Path, model: &str, kind: &str) -> Result<(), ExecutorError> {
        let failed = ExecutorError::file(path);
        let mut header = vec![(SHARED_MODEL, model), (KIND, kind)];
        if self.arrays.contains_key(POOLER[0]) {
            header.push((POOLER_ACTIVATION, self.pooler_activation.name()));
        }
        let header: HashMap<String, String> =
            header.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let mut tensors = Vec::new();
        for (name, array) in &self.arrays {
            let view = TensorView::new(array.dtype, array.shape.clone(), &array.data);
            tensors.push((name, view.expect("an array is as long as its shape says")));
        }
        let bytes = safetensors::serialize(tensors, Some(header))
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        write_whole(path, &header_in_order(bytes)).map_err(failed)
    }

    /// Reads what [`save`](Self::save) or another program wrote: the shared model's name, the kind's, and the
    /// parameters. LoRA's scale is multiplied into what it scales.
    ///
    /// # Errors
    /// A file that cannot be read, is no safetensors file, or whose header does not say of which model and kind it is,
    /// or says what is not computed.
    pub fn read(path: &Path) -> Result<(String, String, Parameters), ExecutorError> {
        let bytes = std::fs::read(path).map_err(ExecutorError::file(path))?;
        let wrong = |tensor: &str, must: &str, got: String| ExecutorError::checkpoint(path, tensor, must, got);
        let no_header =
            |error: safetensors::SafeTensorError| wrong("header", "that of a safetensors file", error.to_string());
        let tensors = SafeTensors::deserialize(&bytes).map_err(no_header)?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(no_header)?;
        let entries = metadata.metadata().as_ref();
        let header = PetHeader::read(|key| entries.and_then(|entries| entries.get(key)).map(String::as_str));
        let PetHeader {
            model,
            kind,
            scale,
            pooler_activation,
        } = header.map_err(|Misfit { tensor, must, got }| wrong(&tensor, &must, got))?;
        let mut parameters = Parameters::default();
        parameters.set_pooler_activation(pooler_activation);
        for (name, view) in tensors.iter() {
            let mut array = Array::new(view.dtype(), view.shape(), view.data().to_vec());
            if scale != 1.0 && name.ends_with(".lora_b") {
                array.scale(scale);
            }
            parameters.insert(name, array);
        }
        Ok((model, kind, parameters))
    }
}

/// Reads a task's parameters and remembers which, so that those that nobody reads can be refused.
#[derive(Debug)]
pub struct Reader<'a> {
    parameters: &'a Parameters,
    read: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Reader<'a> {
    /// Nothing read yet.
    pub fn new(parameters: &'a Parameters) -> Reader<'a> {
        Reader {
            parameters,
            read: RefCell::default(),
        }
    }

    /// Whether there is an array of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.arrays.contains_key(name)
    }

    /// Holds all arrays against the core's rules of what the kind has for a model of this shape. Returns what is
    /// resident of them.
    ///
    /// # Errors
    /// The first that does not fit.
    pub fn check(&self, kind: PetKind, shape: &ModelShape) -> Result<Resident, Misfit> {
        let resident = tensors::check(kind, shape, &self.parameters.stored())?;
        self.read.borrow_mut().extend(self.parameters.arrays.keys().map(String::as_str));
        Ok(resident)
    }

    /// A checked array.
    ///
    /// # Panics
    /// If there is none of this name.
    pub(crate) fn checked(&self, name: &str) -> &'a Array {
        self.parameters.get(name).expect("the parameters were checked")
    }

    /// The array of this name, of `dtype` and with as many dimensions as `shape` has; `None` in `shape` stands for any
    /// size.
    ///
    /// # Errors
    /// No such array, or one of another shape.
    pub fn array(&self, name: &str, dtype: Dtype, shape: &[Option<usize>]) -> Result<&'a Array, Misfit> {
        let wanted = || {
            let size = |size: &Option<usize>| size.map_or("any".to_string(), |size| size.to_string());
            let sizes: Vec<String> = shape.iter().map(size).collect();
            format!("{dtype:?} of shape [{}]", sizes.join(", "))
        };
        let misfit = |must, got| Misfit {
            tensor: name.to_string(),
            must,
            got,
        };
        let Some((name, array)) = self.parameters.arrays.get_key_value(name) else {
            return Err(misfit(wanted(), "no such tensor".into()));
        };
        let fits = |(found, wanted): (&usize, &Option<usize>)| wanted.is_none_or(|wanted| wanted == *found);
        if array.dtype != dtype || array.shape.len() != shape.len() || !array.shape.iter().zip(shape).all(fits) {
            return Err(misfit(
                wanted(),
                format!("{:?} of shape {:?}", array.dtype, array.shape),
            ));
        }
        self.read.borrow_mut().insert(name);
        Ok(array)
    }

    /// A checked array of floats as a tensor on the model's device, in its number format.
    ///
    /// # Errors
    /// No memory on the device.
    pub(crate) fn tensor(&self, name: &str, model: &Encoder) -> Result<Tensor, ExecutorError> {
        Ok(self.host_tensor(name)?.f_to_kind(model.kind())?.f_to(model.device())?)
    }

    /// A checked array as a tensor in host memory.
    pub(crate) fn host_tensor(&self, name: &str) -> Result<Tensor, ExecutorError> {
        self.checked(name).tensor()
    }

    /// Refuses arrays that were not read.
    ///
    /// # Errors
    /// The first of them by name.
    pub fn finish(&self) -> Result<(), Misfit> {
        let read = self.read.borrow();
        let left = self.parameters.arrays.keys().find(|name| !read.contains(name.as_str()));
        left.map_or(Ok(()), |name| {
            let got = "one that neither kind nor shared model has";
            Err(Misfit {
                tensor: name.clone(),
                must: "a tensor of this kind and shared model".into(),
                got: got.into(),
            })
        })
    }
}
