//! A dense layer between the encoder and a classification layer, over the first token: what Hugging Face calls BERT's
//! pooler, DistilBERT's `pre_classifier`, and `classifier.dense` of RoBERTa's head.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};
use tenantry_core::pet::header::PoolerActivation;

use super::LinearParameters;
use crate::error::ExecutorError;
use crate::tensors_file::converted;

/// The layer and its nonlinearity.
#[derive(Debug)]
pub(crate) struct Pooler {
    /// As wide as the encoder.
    pub dense: LinearParameters,
    pub activation: PoolerActivation,
}

impl Pooler {
    /// Of hidden states `[…, hidden]`, kept in mind for gradients where parameters ask for them.
    pub fn forward(&self, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        let dense = self.dense.forward(hidden)?;
        Ok(match self.activation {
            PoolerActivation::Tanh => dense.f_tanh()?,
            PoolerActivation::Relu => dense.f_relu()?,
            PoolerActivation::Gelu => dense.f_gelu("none")?,
        })
    }

    /// The same in another place and number format.
    ///
    /// # Errors
    /// No memory there, or numbers that the format does not hold; `what` says whose.
    pub fn to(&self, what: &str, kind: Kind, device: Device) -> Result<Pooler, ExecutorError> {
        let moved =
            |tensor: &Tensor| -> Result<Tensor, ExecutorError> { Ok(converted(what, tensor, kind)?.f_to(device)?) };
        Ok(Pooler {
            dense: LinearParameters {
                weight: moved(&self.dense.weight)?,
                bias: moved(&self.dense.bias)?,
            },
            ..*self
        })
    }

    /// Another handle on the same memory.
    pub fn share(&self) -> Pooler {
        Pooler {
            dense: LinearParameters {
                weight: self.dense.weight.shallow_clone(),
                bias: self.dense.bias.shallow_clone(),
            },
            ..*self
        }
    }
}

/// The poolers of those tenants that have one.
#[derive(Debug, Default)]
pub(crate) struct Poolers(BTreeMap<u32, Pooler>);

impl Poolers {
    /// Gives a tenant a pooler.
    pub fn put(&mut self, tenant: u32, pooler: Pooler) {
        self.0.insert(tenant, pooler);
    }

    /// What heads classify, `[n, 1, hidden]`, of the last layer's `hidden`, `[n, l, hidden]`: the first token's, by the
    /// pooler of those tenants that have one. A tenant's requests are neighbours.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn forward(&self, hidden: &Tensor, tenants: &[u32]) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| {
            let first = hidden.f_narrow(1, 0, 1)?;
            if self.0.is_empty() {
                return Ok(first);
            }
            let (mut pooled, mut from) = (Vec::new(), 0);
            for of_one in tenants.chunk_by(|a, b| a == b) {
                let count = of_one.len() as i64;
                let own = first.f_narrow(0, from, count)?;
                from += count;
                pooled.push(match self.0.get(&of_one[0]) {
                    Some(pooler) => pooler.forward(&own)?,
                    None => own,
                });
            }
            Ok(Tensor::f_cat(&pooled, 0)?)
        })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> Poolers {
        let shared = self.0.iter().map(|(tenant, pooler)| (*tenant, pooler.share()));
        Poolers(shared.collect())
    }
}
