//! The tenants' heads, all resident on the device and gathered per request: a class of each text, or a label of each of
//! its tokens.

use std::path::PathBuf;

use tch::{Device, Tensor};
use tenantry_core::spec::HeadTask;
use tenantry_profiles::{DType, ModelShape};

use super::Poolers;
use crate::device::{element_bytes, kind, sent_to};
use crate::error::ExecutorError;
use crate::files::{StoredHead, read_head};
use crate::random::{INITIAL_STD, Part, fill, weights};
use crate::tensors_file::converted;

/// One linear classifier for each tenant, over the hidden state of the first token (`[CLS]`), or over that of every
/// one.
#[derive(Debug)]
pub struct Heads {
    /// `[tenants, (hidden + 1) × classes]`: weight `[hidden, classes]`, then bias `[classes]`.
    parameters: Tensor,
    hidden: i64,
    classes: i64,
    /// Of those tenants whose files have one.
    poolers: Poolers,
    /// Heads that differ; tenants take them in turns.
    distinct: usize,
    /// Those of them that could not be read, and why.
    missing: Vec<(usize, String)>,
}

impl Heads {
    /// Random heads for `tenants` tenants.
    ///
    /// # Errors
    /// No tenants or classes, or no memory on the device.
    pub fn random(
        shape: &ModelShape,
        tenants: u32,
        classes: u32,
        seed: u64,
        dtype: DType,
        device: Device,
    ) -> Result<Heads, ExecutorError> {
        for (what, count) in [("tenants", tenants), ("classes", classes)] {
            if count == 0 {
                return Err(ExecutorError::input(what, "at least 1", 0));
            }
        }
        let length = shape.head_parameters(classes) as usize;
        let biases = classes as usize;
        let mut numbers = vec![0.0; tenants as usize * length];
        for (tenant, head) in numbers.chunks_mut(length).enumerate() {
            fill(
                &mut weights(seed, Part::Head, tenant as u64),
                INITIAL_STD,
                &mut head[..length - biases],
            );
        }
        let size = [i64::from(tenants), length as i64];
        let parameters = Tensor::f_from_slice(&numbers)?.f_view(size)?.f_to_kind(kind(dtype))?.f_to(device)?;
        Ok(Heads {
            parameters,
            hidden: shape.hidden.into(),
            classes: classes.into(),
            poolers: Poolers::default(),
            distinct: tenants as usize,
            missing: Vec::new(),
        })
    }

    /// The heads in these files, each a tenant's, for `tenants` tenants in turns. One that cannot be read, or not be
    /// held in this format, is [`missing`](Self::missing).
    ///
    /// # Errors
    /// No tenants, no head that can be read, or no memory on the device.
    pub(crate) fn read(
        shape: &ModelShape,
        tenants: u32,
        (classes, task): (u32, HeadTask),
        files: &[PathBuf],
        dtype: DType,
        device: Device,
    ) -> Result<Heads, ExecutorError> {
        if tenants == 0 {
            return Err(ExecutorError::input("tenants", "at least 1", 0));
        }
        let files = &files[..files.len().min(tenants as usize)];
        let kind = kind(dtype);
        let (mut own, mut poolers, mut missing) = (Vec::new(), Poolers::default(), Vec::new());
        let read = |file: &PathBuf| -> Result<StoredHead, ExecutorError> {
            let StoredHead { linear, pooler } = read_head(file, shape.hidden, classes, task)?;
            let of_file = |what: &str| format!("{}: {what}", file.display());
            let pooler = pooler.map(|pooler| pooler.to(&of_file("pooler"), kind, device));
            Ok(StoredHead {
                linear: converted(of_file("classifier"), &linear, kind)?,
                pooler: pooler.transpose()?,
            })
        };
        for (index, file) in files.iter().enumerate() {
            let StoredHead { linear, pooler } = match read(file) {
                Ok(head) => head,
                Err(error) if error.is_out_of_memory() || missing.len() + 1 == files.len() => return Err(error),
                Err(error) => {
                    missing.push((index, error.to_string()));
                    StoredHead {
                        linear: Tensor::f_zeros([shape.head_parameters(classes) as i64], (kind, Device::Cpu))?,
                        pooler: None,
                    }
                }
            };
            own.push(linear);
            if let Some(pooler) = pooler {
                for tenant in (index as u32..tenants).step_by(files.len()) {
                    poolers.put(tenant, pooler.share());
                }
            }
        }
        let own = Tensor::f_stack(&own, 0)?;
        let turns: Vec<i64> = (0..i64::from(tenants)).map(|tenant| tenant % own.size()[0]).collect();
        let parameters = own.f_index_select(0, &Tensor::f_from_slice(&turns)?)?;
        Ok(Heads {
            parameters: parameters.f_to(device)?,
            hidden: shape.hidden.into(),
            classes: classes.into(),
            poolers,
            distinct: files.len(),
            missing,
        })
    }

    /// Heads that could not be read, by the number of their file, and why. Nobody is to be answered by one.
    pub(crate) fn missing(&self) -> &[(usize, String)] {
        &self.missing
    }

    /// Whether a tenant's could not be read.
    pub(crate) fn lacks(&self, tenant: u32) -> bool {
        let own = tenant as usize % self.distinct;
        self.missing.iter().any(|(index, _)| *index == own)
    }

    /// Gives a tenant a head of its own: a weight, `[classes, hidden]`, and a bias, `[classes]`. Of fewer classes than
    /// other tenants have, those that it does not have never win.
    ///
    /// # Errors
    /// More classes, or another width.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub(crate) fn put(&self, tenant: u32, weight: &Tensor, bias: &Tensor) -> Result<(), ExecutorError> {
        assert!(tenant < self.tenants(), "a tenant beyond those that have heads");
        let missing = [0, self.classes - bias.size()[0]];
        let weight = weight.f_transpose(0, 1)?.f_pad(missing, "constant", 0.0)?;
        let bias = bias.f_pad(missing, "constant", f64::NEG_INFINITY)?;
        let head = Tensor::f_cat(&[weight.f_reshape([-1])?, bias], 0)?;
        tch::no_grad(|| self.parameters.f_select(0, tenant.into())?.f_copy_(&head))?;
        Ok(())
    }

    /// Logits `[n, classes]` of the last layer's `hidden`, `[n, l, hidden]`, each by its tenant's pooler, where it has
    /// one, and head.
    ///
    /// # Errors
    /// A number of tenants other than `n`, or no memory on the device.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn forward(&self, hidden: &Tensor, tenants: &[u32]) -> Result<Tensor, ExecutorError> {
        let pooled = self.poolers.forward(hidden, tenants)?;
        Ok(self.tag(&pooled, tenants)?.f_squeeze_dim(1)?)
    }

    /// Logits `[n, l, classes]` of every token of the last layer's `hidden`, `[n, l, hidden]`, padding included, each
    /// by its tenant's head.
    ///
    /// # Errors
    /// A number of tenants other than `n`, or no memory on the device.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn tag(&self, hidden: &Tensor, tenants: &[u32]) -> Result<Tensor, ExecutorError> {
        let count = self.tenants();
        let index: Vec<i64> = tenants.iter().map(|&tenant| tenant.into()).collect();
        assert!(
            tenants.iter().all(|&tenant| tenant < count),
            "a tenant beyond the {count} that have heads"
        );
        self.of(
            hidden,
            &sent_to(self.parameters.device(), &Tensor::f_from_slice(&index)?)?,
        )
    }

    /// Likewise with the tenants' numbers on the device, `[n]`, 64-bit: nothing is copied there, and nothing waited
    /// for.
    pub(crate) fn of(&self, hidden: &Tensor, tenants: &Tensor) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| {
            let n = tenants.size()[0];
            let own = self.parameters.f_index_select(0, tenants)?;
            let weights = self.hidden * self.classes;
            let weight = own.f_narrow(1, 0, weights)?.f_view([n, self.hidden, self.classes])?;
            let bias = own.f_narrow(1, weights, self.classes)?.f_unsqueeze(1)?;
            Ok(bias.f_baddbmm(hidden, &weight, 1.0, 1.0)?)
        })
    }

    /// Of each tenant the weight, `[hidden, classes]`, and then the bias: `[tenants, hidden · classes + classes]`.
    pub(crate) fn parameters(&self) -> &Tensor {
        &self.parameters
    }

    /// Tenants that have a head.
    pub fn tenants(&self) -> u32 {
        self.parameters.size()[0] as u32
    }

    /// Bytes of one tenant's head.
    pub fn bytes_per_tenant(&self) -> u64 {
        ((self.hidden + 1) * self.classes) as u64 * element_bytes(self.parameters.kind())
    }

    /// Bytes that all heads take on the device.
    pub fn device_bytes(&self) -> u64 {
        u64::from(self.tenants()) * self.bytes_per_tenant()
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> Heads {
        Heads {
            parameters: self.parameters.shallow_clone(),
            poolers: self.poolers.share(),
            missing: self.missing.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use tch::Kind;

    use super::*;

    #[test]
    fn each_request_meets_its_own_tenants_head() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let heads = Heads::random(&shape, 5, 3, 1, DType::F32, Device::Cpu).unwrap();
        assert_eq!(
            (heads.bytes_per_tenant(), heads.device_bytes()),
            (129 * 3 * 4, 5 * 129 * 3 * 4)
        );
        let mut parameters = heads.parameters.shallow_clone();
        parameters.copy_(&Tensor::randn([5, 129 * 3], (Kind::Float, Device::Cpu)));

        let hidden = Tensor::randn([4, 7, 128], (Kind::Float, Device::Cpu));
        let tenants = [3, 0, 3, 4];
        let logits = heads.forward(&hidden, &tenants).unwrap();
        assert_eq!(logits.size(), [4, 3]);
        for (row, tenant) in tenants.into_iter().enumerate() {
            let head = heads.parameters.get(tenant.into());
            let weight = head.narrow(0, 0, 128 * 3).view([128, 3]);
            let expected = hidden.get(row as i64).get(0).unsqueeze(0).matmul(&weight) + head.narrow(0, 128 * 3, 3);
            let difference = (logits.get(row as i64) - expected).abs().max().double_value(&[]);
            assert!(difference < 1e-5, "request {row}: {difference}");
        }

        // Tagging: every token by the same head, written out number by number.
        let tags = heads.tag(&hidden, &tenants).unwrap();
        assert_eq!(tags.size(), [4, 7, 3]);
        let number =
            |tensor: &Tensor, at: &[i64]| at.iter().fold(tensor.shallow_clone(), |t, &i| t.get(i)).double_value(&[]);
        for (row, tenant) in (0_i64..).zip(tenants) {
            for token in 0..7 {
                for class in 0..3 {
                    let own = |index| number(&heads.parameters, &[tenant.into(), index]);
                    let products = (0..128).map(|i| number(&hidden, &[row, token, i]) * own(3 * i + class));
                    let expected = own(3 * 128 + class) + products.sum::<f64>();
                    let found = number(&tags, &[row, token, class]);
                    assert!((found - expected).abs() < 1e-4, "{row}, {token}: {found}, {expected}");
                }
            }
        }
    }
    /// Numbers beyond half precision are one tenant's fault: the others are answered.
    #[test]
    fn a_head_that_the_format_does_not_hold_is_missing_alone() {
        let shape = ModelShape::builtin("tiny").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, largest: f32, pooler: f32| {
            let path = folder.path().join(name);
            let (hidden, numbers) = (shape.hidden as usize, |count: usize, first: f32| {
                let mut numbers = vec![0.5_f32; count];
                numbers[0] = first;
                numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>()
            });
            let tensors = [
                ("classifier.weight", vec![2, hidden], numbers(2 * hidden, largest)),
                ("classifier.bias", vec![2], numbers(2, 0.0)),
                (
                    "pooler.dense.weight",
                    vec![hidden, hidden],
                    numbers(hidden * hidden, pooler),
                ),
                ("pooler.dense.bias", vec![hidden], numbers(hidden, 0.0)),
            ];
            let views = tensors.iter().map(|(name, size, bytes)| {
                let view = TensorView::new(Dtype::F32, size.clone(), bytes).unwrap();
                (*name, view)
            });
            crate::tensors_file::write(&path, views.collect(), None).unwrap();
            path
        };
        let files = [
            file("good", 1.0, 1.0),
            file("head", 7e4, 1.0),
            file("pooler", 1.0, -7e4),
        ];
        let task = (2, HeadTask::Classification);
        let read = |dtype, files: &[PathBuf]| Heads::read(&shape, 6, task, files, dtype, Device::Cpu);
        assert!(read(DType::F32, &files).unwrap().missing().is_empty());
        let heads = read(DType::F16, &files).unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|tenant| heads.lacks(tenant)),
            [false, true, true, false, true, true]
        );
        for ((_, why), (name, what)) in heads.missing().iter().zip([("head", "classifier"), ("pooler", "pooler")]) {
            let must =
                format!("{name}: {what}: must be of numbers that half precision holds, 65504 at most, got 70000");
            assert!(why.ends_with(&must), "{why}");
        }
        assert!(read(DType::F16, &files[1..]).is_err(), "nobody has a head");
    }
}
